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
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
)

func TestDeletionExpectations(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewDeletionExpectations(clock.RealClock{})
		e.ExpectDeletion("a")
		e.ExpectDeletion("b")
		if !e.DeletionExpected("a") || e.DeletionExpected("c") {
			t.Errorf("rule 14: expected a: %v, c: %v, want true and false", e.DeletionExpected("a"), e.DeletionExpected("c"))
		}
		e.DeletionObserved("a")
		if e.DeletionExpected("a") || !e.DeletionExpected("b") {
			t.Errorf("rule 14: after a's event a: %v, b: %v, want false and true", e.DeletionExpected("a"), e.DeletionExpected("b"))
		}
		time.Sleep(deletionTTL)
		synctest.Wait()
		if e.DeletionExpected("b") {
			t.Error("rule 14: after 30 seconds the deletion of b is still expected")
		}
	})
}

func TestDeletionExpectationsKeepNoOldDeletion(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e := NewDeletionExpectations(clock.RealClock{})
		e.ExpectDeletion("a") // whose event arrived before the API server's answer
		time.Sleep(deletionTTL / 2)
		e.ExpectDeletion("b")
		for _, want := range []int{1, 0} {
			time.Sleep(deletionTTL)
			synctest.Wait()
			e.mu.Lock()
			if got := len(e.deleted); got != want || e.sweeping != (want > 0) {
				t.Errorf("rule 23: %d deletions are remembered, want %d; the timer goes on: %v", got, want, e.sweeping)
			}
			e.mu.Unlock()
			if e.DeletionExpected("b") {
				t.Error("rule 14: after 30 seconds the deletion of b is still expected")
			}
		}
	})
}
