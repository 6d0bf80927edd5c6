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
	wrote := func(version string) func(w *Writes, foos, deployments VersionedStore) {
		return func(w *Writes, foos, _ VersionedStore) { w.Wrote(ownerWith(), foos, version) }
	}
	for sentence, test := range map[string]struct {
		write func(w *Writes, foos, deployments VersionedStore)
		// foosAt and deploymentsAt are the versions that the caches have reached.
		foosAt, deploymentsAt reached
		want                  bool
	}{
		"rule 14: the cache has not seen the write, another one has": {wrote("10"), "9", "99", false},
		"rule 14: the cache has seen the write":                      {wrote("10"), "10", "1", true},
		"rule 14: the cache is past the write, as numbers":           {wrote("10"), "100", "1", true},
		"rule 14: the version of the cache is unknown":               {wrote("10"), "", "", true},
		"rule 14: the versions cannot be compared":                   {wrote("abc"), "9", "9", true},
		"rule 14: of two writes the cache has seen one": {func(w *Writes, foos, deployments VersionedStore) {
			w.Wrote(ownerWith(), foos, "10")
			w.Wrote(ownerWith(), deployments, "11")
		}, "99", "10", false},
		"rule 14: the last write counts": {func(w *Writes, foos, _ VersionedStore) {
			w.Wrote(ownerWith(), foos, "10")
			w.Wrote(ownerWith(), foos, "12")
		}, "11", "1", false},
		"rule 14: another Foo's write does not matter": {func(w *Writes, foos, _ VersionedStore) {
			w.Wrote(ownerWith(named("other")), foos, "10")
		}, "9", "9", true},
		"rule 14: a Foo made anew inherits no write": {func(w *Writes, foos, deployments VersionedStore) {
			w.Wrote(ownerWith(), deployments, "99")
			w.Wrote(ownerWith(anew), foos, "9")
		}, "9", "9", true},
		"rule 14: the writes of a Foo that is gone are dropped": {func(w *Writes, foos, _ VersionedStore) {
			w.Wrote(ownerWith(), foos, "10")
			w.Forget(testKey("foo"))
		}, "9", "9", true},
		"rule 14: almost 30 seconds later it still waits": {func(w *Writes, foos, _ VersionedStore) {
			w.Wrote(ownerWith(), foos, "10")
			time.Sleep(writeTTL - 1)
		}, "9", "9", false},
		"rule 14: after 30 seconds it carries on": {func(w *Writes, foos, _ VersionedStore) {
			w.Wrote(ownerWith(), foos, "10")
			time.Sleep(writeTTL)
		}, "9", "9", true},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := NewWrites(clock.RealClock{})
				test.write(w, &test.foosAt, &test.deploymentsAt)
				err := w.Seen(testKey("foo"))
				// A cache that is filled anew from a lagging API server may go back in time.
				test.foosAt, test.deploymentsAt = "1", "1"
				again := w.Seen(testKey("foo"))
				if (err == nil) != test.want || (again == nil) != test.want || err != nil && !errors.Is(err, ErrStaleCache) {
					t.Errorf("Seen returned %v, and %v for a cache that went back, want nil: %v", err, again, test.want)
				}
			})
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
		"rule 23: a status whose answer is lost":   {func(w *Writes) { w.noteStatus(ownerWith(), "new", "") }, 0, 0},
		"rule 23: a status whose event never came": {func(w *Writes) { w.noteStatus(ownerWith(), nil, "6") }, 0, 0},
		"rule 23: two deletions": {func(w *Writes) {
			w.DeletionAccepted("uid")
			time.Sleep(sweepPeriod - time.Second)
			w.DeletionAccepted("another")
		}, 0, 0},
		"rule 23: a write that no cache shows": {func(w *Writes) { w.Wrote(ownerWith(), store, "10") }, 0, 0},
		"rule 23: a creation": {func(w *Writes) {
			w.setState(ownerWith(), store, dependentState{existed: true, repaired: time.Now()})
		}, 1, 0},
		"rule 23: a repair": {func(w *Writes) { w.setState(ownerWith(), store, repaired(dependentState{})) }, 1, 0},
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
				first := reflect.ValueOf(w.owners).Pointer()
				test.act(w)
				for after, want := range map[time.Duration]int{9 * time.Minute: test.kept, time.Hour: test.forever} {
					time.AfterFunc(after, func() {
						w.mu.Lock()
						defer w.mu.Unlock()
						if got := len(w.owners); got != want || len(w.deleted) > 0 || w.sweeping != (want > 0) {
							t.Errorf("after %v: %d owners and %d deletions are remembered, want %d and none; a timer goes on: %v", after, got, len(w.deleted), want, w.sweeping)
						}
						if shrunk := reflect.ValueOf(w.owners).Pointer() != first; shrunk != (want == 0) {
							t.Errorf("after %v: the map, which never shrinks, is replaced: %v", after, shrunk)
						}
					})
				}
				time.Sleep(2 * time.Hour)
			})
		})
	}
}
