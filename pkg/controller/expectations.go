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
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
)

// deletionTTL bounds how long a deletion is expected whose event never arrives.
const deletionTTL = 30 * time.Second

// DeletionExpectations remember the objects that this process has deleted until the
// informer reports their deletion. The answer to a DELETE carries no resource version, so
// the ConsistencyStore cannot cover it. Create it with NewDeletionExpectations.
type DeletionExpectations struct {
	clock clock.WithDelayedExecution

	mu      sync.Mutex
	deleted map[types.UID]time.Time
	// sweeping says that a timer will call sweep.
	sweeping bool
}

// NewDeletionExpectations returns expectations of no deletion.
func NewDeletionExpectations(clock clock.WithDelayedExecution) *DeletionExpectations {
	return &DeletionExpectations{clock: clock, deleted: map[types.UID]time.Time{}}
}

// ExpectDeletion records that the API server accepted the deletion of the object with
// that UID.
func (e *DeletionExpectations) ExpectDeletion(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.deleted[uid] = e.clock.Now()
	if !e.sweeping {
		e.sweeping = true
		e.clock.AfterFunc(deletionTTL, e.sweep)
	}
}

// sweep drops what is no longer expected, and runs again while something is left: if the
// informer reported a deletion before the API server's answer arrived, no event removes it.
func (e *DeletionExpectations) sweep() {
	e.mu.Lock()
	defer e.mu.Unlock()
	maps.DeleteFunc(e.deleted, func(_ types.UID, at time.Time) bool { return e.clock.Since(at) >= deletionTTL })
	if e.sweeping = len(e.deleted) > 0; e.sweeping {
		e.clock.AfterFunc(deletionTTL, e.sweep)
	}
}

// DeletionObserved drops the expectation once the informer has reported the deletion.
func (e *DeletionExpectations) DeletionObserved(uid types.UID) {
	e.mu.Lock()
	defer e.mu.Unlock()
	delete(e.deleted, uid)
}

// DeletionExpected reports whether this process deleted the object less than 30 s ago and
// the informer has not reported it yet. The cached object counts as terminating then.
func (e *DeletionExpectations) DeletionExpected(uid types.UID) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.clock.Since(e.deleted[uid]) < deletionTTL
}
