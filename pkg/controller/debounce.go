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

// progressDelay is how long a status that reports only progress waits. A short
// rollout finishes within it, and one status write reports it all.
const progressDelay = time.Second

// StatusDebouncer delays status updates that report only progress, so that the many steps
// of a rollout cost one write a second and not one each. Create it with
// NewStatusDebouncer.
type StatusDebouncer struct {
	clock clock.PassiveClock

	mu    sync.Mutex
	since map[cache.ObjectName]time.Time
}

// NewStatusDebouncer returns a StatusDebouncer with no update waiting.
func NewStatusDebouncer(clock clock.PassiveClock) *StatusDebouncer {
	return &StatusDebouncer{clock: clock, since: map[cache.ObjectName]time.Time{}}
}

// Delay returns how long the update of key's status must still wait: one second at its
// first call for key, 0 once that second has passed.
func (d *StatusDebouncer) Delay(key cache.ObjectName) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	since, ok := d.since[key]
	if !ok {
		since = d.clock.Now()
		d.since[key] = since
	}
	return max(0, progressDelay-d.clock.Since(since))
}

// Reset ends the wait of key: its status was written, needs no update any more, or the
// object is gone.
func (d *StatusDebouncer) Reset(key cache.ObjectName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, ok := d.since[key]; !ok {
		return
	}
	delete(d.since, key)
	if len(d.since) == 0 {
		// A Go map never shrinks.
		d.since = map[cache.ObjectName]time.Time{}
	}
}
