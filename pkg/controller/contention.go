/*
Copyright The sample-controller Authors.

Licensed under the Apache License, Version 2.0 (the "License");
you may not use this file except in compliance with the License.
You may obtain a copy of the License at

    http://www.apache.org/licenses/LICENSE-2.0

Unless required by applicable law or agreed to in writing, software
distributed under the License is distributed on an "AS IS" BASIS,
WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
See the License for the specific language governing permissions and
limitations under the License.
*/

package controller

import (
	"maps"
	"slices"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// MinContentionPause is the first pause between two repairs of a contended field.
	MinContentionPause = 10 * time.Second

	// A drift of a field after maxRepairs repairs of it within contentionWindow is contention
	// with another writer. A HorizontalPodAutoscaler with the default period undoes four
	// repairs a minute. From then on repairs are MinContentionPause apart, then twice that, up
	// to maxContentionPause. A repair that holds for contentionWindow, which is longer than
	// any pause, ends the contention.
	maxRepairs         = 5
	contentionWindow   = 10 * time.Minute
	maxContentionPause = 5 * time.Minute

	// recentRepair is the time after a repair within which a second repair of the object needs a
	// live read of its owner: another replica may have undone the first one for a newer spec.
	recentRepair = time.Minute

	// contentionSweep is how often records that no longer count are dropped.
	contentionSweep = time.Minute
)

// Existence stands for the object itself among the fields of a ContentionDetector: its repair
// is to create the object again after another client deleted it.
const Existence = "existence"

// ContentionDetector recognizes another writer, such as a HorizontalPodAutoscaler on an
// owned Deployment, that undoes each repair of an owned object. Without it the two would
// overwrite each other as fast as the API server allows. A record counts for 10 minutes; a
// timer then drops it, so that an owner at rest needs neither a sync nor memory. Create it
// with NewContentionDetector.
type ContentionDetector struct {
	clock clock.WithDelayedExecution

	mu      sync.Mutex
	repairs map[cache.ObjectName]*repairs
	// sweeping says that a timer will call sweep.
	sweeping bool
}

// repairs are those made for one owner in one generation.
type repairs struct {
	generation int64
	// made are the repairs within the window.
	made []repair
	// created says that this process has created the object.
	created bool
	// last is the time of the last repair or creation, lastContended that of the last one of a
	// field that is contended.
	last, lastContended time.Time
	// pause is the time between two repairs, 0 without contention.
	pause time.Duration
	// contended are the fields that another writer keeps changing.
	contended []string
	// message describes the contention, "" until Describe is called.
	message string
}

// repair is one repair of one field.
type repair struct {
	field string
	at    time.Time
}

// Contention is what a ContentionDetector knows about one owner.
type Contention struct {
	// Undone are the drifted fields whose repairs another writer undoes.
	Undone []string
	// Pause is the time until Undone may be repaired again, or, if Undone is empty, until the
	// contention counts as over. It is 0 without contention.
	Pause time.Duration
	// Message is what Describe recorded, "" without contention or before that call.
	Message string
}

// HoldsBack reports whether the object must not be repaired yet.
func (c Contention) HoldsBack() bool {
	return len(c.Undone) > 0 && c.Pause > 0
}

// NewContentionDetector returns a ContentionDetector that has seen no repair.
func NewContentionDetector(clock clock.WithDelayedExecution) *ContentionDetector {
	return &ContentionDetector{clock: clock, repairs: map[cache.ObjectName]*repairs{}}
}

// Repaired records a repair of those fields of the owner's object for that generation of the
// owner. It drops the repairs for another generation: the user has changed what is enforced.
func (d *ContentionDetector) Repaired(owner cache.ObjectName, generation int64, fields ...string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.add(owner, generation, fields...)
}

// Created records that the owner's object was created, and which values admission replaced.
// It is a repair of Existence if existed says that there was an object for that generation,
// or this process created it before: the name counts, since each object has another UID.
func (d *ContentionDetector) Created(owner cache.ObjectName, generation int64, existed bool, admitted ...FieldValue) {
	d.mu.Lock()
	defer d.mu.Unlock()
	var fields []string
	if r := d.of(owner, generation); existed || r != nil && r.created {
		fields = append(fields, Existence)
	}
	for _, value := range admitted {
		fields = append(fields, value.Field)
	}
	d.add(owner, generation, fields...)
	d.repairs[owner].created = true
}

// add records the repair of the fields. The caller holds the lock.
func (d *ContentionDetector) add(owner cache.ObjectName, generation int64, fields ...string) {
	r := d.of(owner, generation)
	if r == nil {
		r = &repairs{generation: generation}
		d.repairs[owner] = r
	}
	r.last = d.clock.Now()
	r.dropOld(r.last)
	for _, field := range fields {
		r.made = append(r.made, repair{field: field, at: r.last})
	}
	if slices.ContainsFunc(fields, func(field string) bool { return slices.Contains(r.contended, field) }) {
		r.lastContended = r.last
		r.pause = min(2*r.pause, maxContentionPause)
	}
	if !d.sweeping {
		d.sweeping = true
		d.clock.AfterFunc(contentionSweep, d.sweep)
	}
}

// RepairedRecently reports whether this process has repaired the owner's object for that
// generation less than a minute ago, so that another repair may be contention.
func (d *ContentionDetector) RepairedRecently(owner cache.ObjectName, generation int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.of(owner, generation)
	return r != nil && len(r.made) > 0 && d.clock.Since(r.made[len(r.made)-1].at) < recentRepair
}

// Check returns whether another writer undoes the repairs of the owner's object for that
// generation. drifted are the fields that differ from what the owner asks for now.
func (d *ContentionDetector) Check(owner cache.ObjectName, generation int64, drifted ...string) Contention {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.of(owner, generation)
	if r == nil {
		return Contention{}
	}
	if d.clock.Since(r.lastContended) >= contentionWindow {
		r.pause, r.contended, r.message = 0, nil, ""
	}
	var undone []string
	for _, field := range drifted {
		if !slices.Contains(r.contended, field) {
			if r.count(field, d.clock.Now()) < maxRepairs {
				continue
			}
			r.contended = append(r.contended, field)
			r.lastContended = r.last
			r.pause = max(r.pause, MinContentionPause)
			// It does not name this field.
			r.message = ""
		}
		undone = append(undone, field)
	}
	if r.pause == 0 {
		return Contention{}
	}
	quiet := d.clock.Since(r.lastContended)
	if len(undone) > 0 {
		return Contention{Undone: undone, Pause: max(0, r.pause-quiet), Message: r.message}
	}
	return Contention{Pause: contentionWindow - quiet, Message: r.message}
}

// count returns the number of repairs of the field within the window that ends now.
func (r *repairs) count(field string, now time.Time) int {
	r.dropOld(now)
	n := 0
	for _, made := range r.made {
		if made.field == field {
			n++
		}
	}
	return n
}

// dropOld drops the repairs before the window that ends now.
func (r *repairs) dropOld(now time.Time) {
	r.made = slices.DeleteFunc(r.made, func(made repair) bool { return now.Sub(made.at) >= contentionWindow })
}

// Describe records a message about the present contention over the owner's object, so
// that the live read that it takes is made once.
func (d *ContentionDetector) Describe(owner cache.ObjectName, message string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if r, ok := d.repairs[owner]; ok {
		r.message = message
	}
}

// Clear drops what is known of the owner, which is gone.
func (d *ContentionDetector) Clear(owner cache.ObjectName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.repairs, owner)
}

// of returns the repairs for that generation, nil if there are none that count. The caller
// holds the lock.
func (d *ContentionDetector) of(owner cache.ObjectName, generation int64) *repairs {
	r, ok := d.repairs[owner]
	if !ok || r.generation != generation || d.expired(r) {
		return nil
	}
	return r
}

// expired reports whether the last repair has held for so long that none counts any more.
func (d *ContentionDetector) expired(r *repairs) bool {
	return d.clock.Since(r.last) >= contentionWindow
}

// sweep drops what has expired, and runs again while something is left.
func (d *ContentionDetector) sweep() {
	d.mu.Lock()
	defer d.mu.Unlock()
	maps.DeleteFunc(d.repairs, func(_ cache.ObjectName, r *repairs) bool { return d.expired(r) })
	if d.sweeping = len(d.repairs) > 0; d.sweeping {
		d.clock.AfterFunc(contentionSweep, d.sweep)
		return
	}
	// A Go map never shrinks.
	d.repairs = map[cache.ObjectName]*repairs{}
}
