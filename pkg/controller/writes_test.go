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
	"errors"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
)

// reached is an informer's store that has reached a resource version.
type reached string

func (r *reached) LastStoreSyncResourceVersion() string { return string(*r) }

func testDeployments() schema.GroupResource {
	return schema.GroupResource{Group: "apps", Resource: "deployments"}
}

// ownerWith returns an owner in generation 1 and version 5.
func ownerWith(changes ...func(*metav1.ObjectMeta)) *metav1.ObjectMeta {
	owner := &metav1.ObjectMeta{Namespace: "ns", Name: "foo", UID: "uid", Generation: 1, ResourceVersion: "5"}
	for _, change := range changes {
		change(owner)
	}
	return owner
}

func named(name string) func(*metav1.ObjectMeta) {
	return func(owner *metav1.ObjectMeta) { owner.Name = name }
}

func anew(owner *metav1.ObjectMeta) { owner.UID = "anew" }

func TestSeen(t *testing.T) {
	for sentence, test := range map[string]struct {
		write func(w *Writes, foos, deployments VersionedStore)
		// foosAt and deploymentsAt are the versions that the caches have reached.
		foosAt, deploymentsAt reached
		want                  bool
	}{
		"rule 14: nothing was written": {func(*Writes, VersionedStore, VersionedStore) {}, "1", "1", true},
		"rule 14: the cache has not seen the write": {
			func(w *Writes, _, deployments VersionedStore) { w.Wrote(ownerWith(), deployments, "10") }, "99", "9", false},
		"rule 14: the cache has seen the write": {
			func(w *Writes, _, deployments VersionedStore) { w.Wrote(ownerWith(), deployments, "10") }, "1", "10", true},
		"rule 14: the cache is past the write, as numbers": {
			func(w *Writes, _, deployments VersionedStore) { w.Wrote(ownerWith(), deployments, "10") }, "1", "100", true},
		"rule 14: each resource waits for its own cache": {
			func(w *Writes, foos, _ VersionedStore) { w.Wrote(ownerWith(), foos, "10") }, "9", "99", false},
		"rule 14: of two writes the cache has seen one": {
			func(w *Writes, foos, deployments VersionedStore) {
				w.Wrote(ownerWith(), foos, "10")
				w.Wrote(ownerWith(), deployments, "11")
			}, "99", "10", false},
		"rule 14: the last write counts": {
			func(w *Writes, foos, _ VersionedStore) {
				w.Wrote(ownerWith(), foos, "10")
				w.Wrote(ownerWith(), foos, "12")
			}, "11", "1", false},
		"rule 14: another Foo's write does not matter": {
			func(w *Writes, foos, _ VersionedStore) { w.Wrote(ownerWith(named("other")), foos, "10") }, "9", "9", true},
		"rule 14: a Foo made anew inherits no write": {
			func(w *Writes, foos, deployments VersionedStore) {
				w.Wrote(ownerWith(), deployments, "99")
				w.Wrote(ownerWith(anew), foos, "9")
			}, "9", "9", true},
		"rule 14: the writes of a Foo that is gone are dropped": {
			func(w *Writes, foos, _ VersionedStore) {
				w.Wrote(ownerWith(), foos, "10")
				w.Forget(testKey("foo"))
			}, "9", "9", true},
		"rule 14: the version of the cache is unknown": {
			func(w *Writes, foos, _ VersionedStore) { w.Wrote(ownerWith(), foos, "10") }, "", "", true},
		"rule 14: the versions cannot be compared": {
			func(w *Writes, foos, _ VersionedStore) { w.Wrote(ownerWith(), foos, "abc") }, "9", "9", true},
		"rule 14: almost 30 seconds later it still waits": {
			func(w *Writes, foos, _ VersionedStore) {
				w.Wrote(ownerWith(), foos, "10")
				time.Sleep(writeTTL - 1)
			}, "9", "9", false},
		"rule 14: after 30 seconds it carries on": {
			func(w *Writes, foos, _ VersionedStore) {
				w.Wrote(ownerWith(), foos, "10")
				time.Sleep(writeTTL)
			}, "9", "9", true},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := NewWrites(clock.RealClock{})
				test.write(w, &test.foosAt, &test.deploymentsAt)
				err := w.Seen(testKey("foo"))
				if (err == nil) != test.want || err != nil && !errors.Is(err, ErrStaleCache) {
					t.Errorf("Seen returned %v, want nil: %v", err, test.want)
				}
				// A cache that is filled anew from a lagging API server may go back in time.
				test.foosAt, test.deploymentsAt = "1", "1"
				if again := w.Seen(testKey("foo")); (again == nil) != test.want {
					t.Errorf("a cache that went back: Seen returned %v, want nil: %v", again, test.want)
				}
			})
		})
	}
}

// FuzzSeen is rule 14 with any resource versions: numbers are compared, and with anything else
// the sync carries on.
func FuzzSeen(f *testing.F) {
	f.Add("10", "9")
	f.Add("010", "9")
	f.Add("", "abc")
	f.Add("340282366920938463463374607431768211456", "18446744073709551616")
	isNumber := func(version string) bool {
		return version != "" && version[0] != '0' && strings.Trim(version, "0123456789") == ""
	}
	f.Fuzz(func(t *testing.T, wrote, at string) {
		w := NewWrites(clock.RealClock{})
		w.Wrote(ownerWith(), ptr.To(reached(at)), wrote)
		want := !isNumber(wrote) || !isNumber(at) || len(at) > len(wrote) || len(at) == len(wrote) && at >= wrote
		if got := w.Seen(testKey("foo")) == nil; got != want {
			t.Errorf("rule 14: wrote %q, reached %q: seen %v", wrote, at, got)
		}
	})
}

// TestDeleted is rule 14: a delete has no resource version to wait for.
func TestDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := NewWrites(clock.RealClock{})
		check := func(when string, a, b bool) {
			t.Helper()
			if gotA, gotB := w.IsDeleted("a"), w.IsDeleted("b"); gotA != a || gotB != b || w.IsDeleted("c") {
				t.Errorf("rule 14: %s: a is deleted: %v, b: %v, want %v, %v, and never c", when, gotA, gotB, a, b)
			}
		}
		w.Deleted("a")
		w.Deleted("b")
		check("after the answers", true, true)
		w.DeletionSeen("a")
		check("after a's event", false, true)
		time.Sleep(writeTTL - time.Second)
		check("within 30 seconds", false, true)
		time.Sleep(time.Second)
		check("after 30 seconds", false, false)
	})
}

// TestOwnStatus is about one update event after the status "new" was sent for version 5.
func TestOwnStatus(t *testing.T) {
	for sentence, test := range map[string]struct {
		// answer is the version of the API server's answer, "" if that refused the status. Without
		// one there is no answer yet, or it is lost.
		answer *string
		change func(old, owner *metav1.ObjectMeta, status *string)
		want   bool
	}{
		"rule 19: the event comes before the answer, or the answer is lost": {want: true},
		"rule 19: the event comes after the answer":                         {answer: ptr.To("6"), want: true},
		"rule 19: after the answer the version decides, whatever admission made of the status": {
			ptr.To("6"), func(_, _ *metav1.ObjectMeta, status *string) { *status = "other" }, true},
		"rule 19: after the answer another version is another writer's": {
			ptr.To("6"), func(_, owner *metav1.ObjectMeta, _ *string) { owner.ResourceVersion = "7" }, false},
		"rule 19: the API server has refused the status, and another writer sent the same": {answer: ptr.To("")},
		"rule 19: another status": {
			nil, func(_, _ *metav1.ObjectMeta, status *string) { *status = "other" }, false},
		"rule 19: another generation": {
			nil, func(_, owner *metav1.ObjectMeta, _ *string) { owner.Generation++ }, false},
		"rule 19: a deletion has begun": {
			nil, func(_, owner *metav1.ObjectMeta, _ *string) { owner.DeletionTimestamp = &metav1.Time{} }, false},
		"rule 19: a deletion had begun before": {
			nil, func(old, owner *metav1.ObjectMeta, _ *string) {
				old.DeletionTimestamp, owner.DeletionTimestamp = &metav1.Time{}, &metav1.Time{}
			}, true},
		"rule 19: the status was not sent to replace that version": {
			nil, func(old, _ *metav1.ObjectMeta, _ *string) { old.ResourceVersion = "4" }, false},
		"rule 19: a Foo made anew": {
			ptr.To("6"), func(_, owner *metav1.ObjectMeta, _ *string) { anew(owner) }, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			w, base := NewWrites(clock.RealClock{}), ownerWith()
			w.noteStatus(base, "new", "")
			if test.answer != nil {
				w.noteStatus(base, nil, *test.answer)
			}
			old, owner, status := ownerWith(), ownerWith(), "new"
			owner.ResourceVersion = "6"
			if test.change != nil {
				test.change(old, owner, &status)
			}
			if got := w.isOwnStatus(old, owner, status); got != test.want {
				t.Errorf("own status: %v, want %v", got, test.want)
			}
		})
	}
}

// TestWritesOfAnOwnerAtRest: no sync and no other call follows.
func TestWritesOfAnOwnerAtRest(t *testing.T) {
	store := ptr.To(reached("9"))
	repaired := func(state dependentState) dependentState {
		state.addRepair(3, time.Now())
		return state
	}
	for sentence, test := range map[string]struct {
		act func(*Writes)
		// kept is how many owners are remembered after 9 minutes, and for ever.
		kept, forever int
	}{
		"rule 23: a status that was sent":          {func(w *Writes) { w.noteStatus(ownerWith(), "new", "") }, 0, 0},
		"rule 23: a status whose event never came": {func(w *Writes) { w.noteStatus(ownerWith(), "new", ""); w.noteStatus(ownerWith(), nil, "6") }, 0, 0},
		"rule 23: a deletion":                      {func(w *Writes) { w.Deleted("uid") }, 0, 0},
		"rule 23: a creation": {func(w *Writes) {
			w.Wrote(ownerWith(), store, "10")
			w.setState(ownerWith(), store, dependentState{existed: true, repaired: time.Now()})
		}, 1, 0},
		"rule 23: a repair": {func(w *Writes) { w.setState(ownerWith(), store, repaired(dependentState{})) }, 1, 0},
		"rule 23: a repair of an owner that is gone, and one of another": {func(w *Writes) {
			w.setState(ownerWith(named("gone")), store, repaired(dependentState{}))
			w.Forget(testKey("gone"))
			w.setState(ownerWith(), store, repaired(dependentState{}))
		}, 1, 0},
		"rule 4: what admission answered is kept": {func(w *Writes) {
			w.setState(ownerWith(), store, repaired(dependentState{answered: []Change{{Field: "image"}}}))
		}, 1, 1},
		"rule 4: that admission took the owner reference is kept": {func(w *Writes) {
			w.setState(ownerWith(), store, dependentState{overridden: "uid"})
		}, 1, 1},
		"rule 23: what admission answered in a former generation is not": {func(w *Writes) {
			w.setState(ownerWith(), store, dependentState{generation: 1, answered: []Change{{Field: "image"}}, overridden: "uid"})
			w.state(ownerWith(func(o *metav1.ObjectMeta) { o.Generation = 2 }), store)
		}, 0, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := NewWrites(clock.RealClock{})
				test.act(w)
				for after, want := range []int{test.kept, test.forever} {
					time.Sleep([]time.Duration{9 * time.Minute, time.Hour}[after])
					synctest.Wait()
					w.mu.Lock()
					if got := len(w.owners); got != want || len(w.deleted) > 0 || w.sweeping != (want > 0) {
						t.Errorf("%d owners and %d deletions are remembered, want %d and none; a timer goes on: %v", got, len(w.deleted), want, w.sweeping)
					}
					w.mu.Unlock()
				}
				w.Forget(testKey("foo"))
				time.Sleep(2 * sweepPeriod)
			})
		})
	}
}

// TestWritesReleaseMemory is rule 23: a Go map never shrinks.
func TestWritesReleaseMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, store := NewWrites(clock.RealClock{}), ptr.To(reached("10"))
		first := reflect.ValueOf(w.owners).Pointer()
		w.Wrote(ownerWith(), store, "10")
		if time.Sleep(2 * sweepPeriod); len(w.owners) > 0 || reflect.ValueOf(w.owners).Pointer() == first {
			t.Errorf("rule 23: without owners the map of %d is not replaced", len(w.owners))
		}
	})
}
