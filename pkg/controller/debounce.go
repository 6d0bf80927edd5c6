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
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

const (
	// A status that reports only progress waits for progressDelay, in which a short rollout ends, and
	// for maxProgressDelay at most.
	progressDelay    = time.Second
	maxProgressDelay = 30 * time.Second
	// progressQPS and progressBurst limit such statuses of all objects together.
	progressQPS   = 4
	progressBurst = 10
)

// StatusDebouncer delays status updates that report only progress: for a second, then for a token of
// a budget that all objects of the kind share, 30 seconds at most. A token is taken when it is used: a
// rate.Limiter takes back only its last reservation, so that short rollouts would use up the budget.
type StatusDebouncer struct {
	clock  clock.PassiveClock
	budget *rate.Limiter

	mu sync.Mutex
	// since has the time of the first Delay, inLine the keys that did not find a token at once.
	since  map[cache.ObjectName]time.Time
	inLine sets.Set[cache.ObjectName]
}

func newStatusDebouncer(clock clock.PassiveClock) *StatusDebouncer {
	return &StatusDebouncer{
		clock: clock, budget: rate.NewLimiter(progressQPS, progressBurst),
		since: map[cache.ObjectName]time.Time{}, inLine: sets.Set[cache.ObjectName]{},
	}
}

// Delay returns how long the update of key's status must still wait, 0 if it may be written. The
// caller requeues the key after that time.
func (d *StatusDebouncer) Delay(key cache.ObjectName) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	since, ok := d.since[key]
	if !ok {
		since, d.since[key] = now, now
	}
	switch waited := now.Sub(since); {
	case waited < progressDelay:
		return progressDelay - waited
	case waited >= maxProgressDelay:
		return 0
	case d.budget.AllowN(now, 1):
		// It keeps the token until Reset, as if it had waited long enough.
		d.since[key] = time.Time{}
		return 0
	default:
		d.inLine.Insert(key)
		return min(time.Duration(d.inLine.Len())*time.Second/progressQPS, maxProgressDelay-waited)
	}
}

// Reset ends the wait of key: its status was written, needs no update any more, or the object is gone.
func (d *StatusDebouncer) Reset(key cache.ObjectName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, waits := d.since[key]; !waits {
		return
	}
	delete(d.since, key)
	d.inLine.Delete(key)
	if len(d.since) == 0 { // A Go map never shrinks.
		d.since, d.inLine = map[cache.ObjectName]time.Time{}, sets.Set[cache.ObjectName]{}
	}
}
