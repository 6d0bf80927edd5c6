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
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// A drift after maxRepairs repairs of one object within contentionWindow is contention
	// with another writer. From then on repairs are minContentionPause apart, then twice
	// that, up to maxContentionPause.
	maxRepairs         = 5
	contentionWindow   = time.Minute
	minContentionPause = 10 * time.Second
	maxContentionPause = 5 * time.Minute
)

// ContentionDetector recognizes another writer, such as a HorizontalPodAutoscaler on an
// owned Deployment, that undoes each repair of an owned object. Without it the two would
// overwrite each other as fast as the API server allows. Create it with
// NewContentionDetector.
type ContentionDetector struct {
	clock clock.PassiveClock

	mu      sync.Mutex
	repairs map[cache.ObjectName]*repairs
}

// repairs are those made for one owner in one generation.
type repairs struct {
	generation int64
	// times are those within the window, and the last one however old it is.
	times []time.Time
	// pause is the time between two repairs, 0 without contention.
	pause time.Duration
	// message describes the contention, "" until Describe is called.
	message string
}

// Contention is what a ContentionDetector knows about one owner.
type Contention struct {
	// Contended says that another writer undoes the repairs.
	Contended bool
	// Pause is how long to leave the object alone: until the next repair if it has
	// drifted, else until the contention counts as over.
	Pause time.Duration
	// Message is what Describe recorded, "" if it was not called yet.
	Message string
}

// NewContentionDetector returns a ContentionDetector that has seen no repair.
func NewContentionDetector(clock clock.PassiveClock) *ContentionDetector {
	return &ContentionDetector{clock: clock, repairs: map[cache.ObjectName]*repairs{}}
}

// Repaired records a repair of the owner's object for that generation of the owner. It
// drops the repairs for another generation: the user has changed what is enforced.
func (d *ContentionDetector) Repaired(owner cache.ObjectName, generation int64) {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.of(owner, generation)
	if r == nil {
		r = &repairs{generation: generation}
		d.repairs[owner] = r
	}
	r.times = append(r.times, d.clock.Now())
	r.pause = min(2*r.pause, maxContentionPause)
}

// RepairedRecently reports whether this process has repaired the owner's object for that
// generation less than a minute ago, so that another repair may be contention.
func (d *ContentionDetector) RepairedRecently(owner cache.ObjectName, generation int64) bool {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.of(owner, generation)
	return r != nil && d.clock.Since(r.times[len(r.times)-1]) < contentionWindow
}

// Check returns whether another writer undoes the repairs of the owner's object for that
// generation. drifted says that the object differs from what the owner asks for now.
func (d *ContentionDetector) Check(owner cache.ObjectName, generation int64, drifted bool) Contention {
	d.mu.Lock()
	defer d.mu.Unlock()
	r := d.of(owner, generation)
	if r == nil {
		return Contention{}
	}
	quiet := d.clock.Since(r.times[len(r.times)-1])
	for len(r.times) > 1 && d.clock.Since(r.times[0]) >= contentionWindow {
		r.times = r.times[1:]
	}
	if drifted && r.pause == 0 && len(r.times) >= maxRepairs {
		r.pause = minContentionPause
	}
	if r.pause == 0 {
		return Contention{}
	}
	if drifted {
		return Contention{Contended: true, Pause: max(0, r.pause-quiet), Message: r.message}
	}
	// The contention ends when nothing has drifted for the current pause, at least a minute.
	if left := max(r.pause, contentionWindow) - quiet; left > 0 {
		return Contention{Contended: true, Pause: left, Message: r.message}
	}
	delete(d.repairs, owner)
	return Contention{}
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

// of returns the repairs for that generation, nil if there are none. The caller holds the
// lock.
func (d *ContentionDetector) of(owner cache.ObjectName, generation int64) *repairs {
	r, ok := d.repairs[owner]
	if !ok || r.generation != generation {
		return nil
	}
	return r
}
