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

	"golang.org/x/time/rate"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/fairqueue"
)

const (
	// progressDelay is how long a status that reports only progress waits. A short
	// rollout finishes within it, and one status write reports it all.
	progressDelay = time.Second
	// maxProgressDelay is how long such a status waits at most.
	maxProgressDelay = 30 * time.Second
	// progressQPS and progressBurst limit such statuses of all objects together. If a
	// thousand objects are created at once, most become ready before their turn, and the API
	// server spends its time on their Deployments.
	progressQPS   = 4
	progressBurst = 10
)

// StatusDebouncer delays status updates that report only progress, so that the many steps
// of a rollout cost few writes. An update waits for a second, then for a token of a budget
// that all objects of the kind share. Namespaces take turns at the budget, so that a
// thousand objects in one namespace do not delay the reports of another one. The keys that
// wait come after all others in the queue; after 30 seconds they are keys like any other.
// Create it with newStatusDebouncer.
type StatusDebouncer struct {
	clock clock.WithDelayedExecution
	queue *Queue

	mu     sync.Mutex
	budget *rate.Limiter
	// waiting are the updates that are delayed, or may be written and are not written yet.
	waiting map[cache.ObjectName]*progressUpdate
	// line are the updates that wait for the budget. The first one gets the next token.
	line fairqueue.Queue[*progressUpdate]
	// nextToken fires when the first one does, nil if it has fired.
	nextToken clock.Timer
}

// progressUpdate is a status update that reports only progress.
type progressUpdate struct {
	key cache.ObjectName
	// since is when it was first delayed.
	since time.Time
	// place is its place in the line, nil if it does not wait for the budget.
	place *fairqueue.Item[*progressUpdate]
	// allowed says that it may be written.
	allowed bool
	// overdue raises the priority of the key in the queue after maxProgressDelay.
	overdue clock.Timer
}

// newStatusDebouncer returns a StatusDebouncer with no update waiting.
func newStatusDebouncer(clock clock.WithDelayedExecution, queue *Queue) *StatusDebouncer {
	return &StatusDebouncer{
		clock: clock, queue: queue, budget: rate.NewLimiter(progressQPS, progressBurst),
		waiting: map[cache.ObjectName]*progressUpdate{},
	}
}

// Delay returns how long the update of key's status must still wait, 0 if it may be written.
// The caller requeues the key after that time. A key whose turn comes earlier is enqueued
// then.
func (d *StatusDebouncer) Delay(key cache.ObjectName) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	update, ok := d.waiting[key]
	if !ok {
		update = &progressUpdate{key: key, since: now}
		update.overdue = d.clock.AfterFunc(maxProgressDelay, func() { d.endYielding(update) })
		d.waiting[key] = update
	}
	delay := update.since.Add(progressDelay).Sub(now)
	if delay <= 0 {
		delay = d.delayByBudget(update, now)
	}
	if delay > 0 {
		d.queue.keys.setNext(key, progressPriority)
	}
	return delay
}

// endYielding lets the key of the update, which has waited for maxProgressDelay, no longer come
// after all others: while there is always other work it would never come.
func (d *StatusDebouncer) endYielding(update *progressUpdate) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.waiting[update.key] == update {
		d.queue.Add(update.key)
	}
}

// delayByBudget returns how long an update that has waited for progressDelay must still
// wait at most.
func (d *StatusDebouncer) delayByBudget(update *progressUpdate, now time.Time) time.Duration {
	delay := update.since.Add(maxProgressDelay).Sub(now)
	switch {
	case delay <= 0:
		update.allowed = true
		d.leaveLine(update)
	case !update.allowed && update.place == nil:
		update.place = d.line.Push(update.key.Namespace, update)
	}
	d.spendBudget(now, update)
	if update.allowed {
		return 0
	}
	return delay
}

// leaveLine ends the update's wait for the budget.
func (d *StatusDebouncer) leaveLine(update *progressUpdate) {
	if update.place != nil {
		d.line.Remove(update.key.Namespace, update.place)
		update.place = nil
	}
}

// spendBudget allows the updates whose turn it is, as far as there are tokens, and enqueues
// them; current, if not nil, is being synced. If others still wait, it goes on when there is a
// token: a sync of theirs may not come, because their namespace is limited.
func (d *StatusDebouncer) spendBudget(now time.Time, current *progressUpdate) {
	for first, ok := d.line.First(); ok; first, ok = d.line.First() {
		token := d.budget.ReserveN(now, 1)
		if delay := token.DelayFrom(now); delay > 0 {
			token.CancelAt(now)
			if d.nextToken == nil {
				d.nextToken = d.clock.AfterFunc(delay, d.spendNextToken)
			}
			return
		}
		d.line.Pop()
		first.allowed, first.place = true, nil
		if first != current {
			d.queue.AddProgress(first.key)
		}
	}
}

func (d *StatusDebouncer) spendNextToken() {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.nextToken = nil
	d.spendBudget(d.clock.Now(), nil)
}

// Reset ends the wait of key: its status was written, needs no update any more, or the
// object is gone.
func (d *StatusDebouncer) Reset(key cache.ObjectName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	update, ok := d.waiting[key]
	if !ok {
		return
	}
	update.overdue.Stop()
	delete(d.waiting, key)
	if len(d.waiting) == 0 {
		// A Go map never shrinks.
		d.waiting = map[cache.ObjectName]*progressUpdate{}
	}
	if update.place != nil {
		d.leaveLine(update)
		d.spendBudget(d.clock.Now(), nil)
	}
}
