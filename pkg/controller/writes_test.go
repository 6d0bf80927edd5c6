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
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
)

// reached is an informer's store that has reached a resource version.
type reached string

func (r *reached) LastStoreSyncResourceVersion() string { return string(*r) }
func (r *reached) GetByKey(string) (any, bool, error) {
	return &metav1.ObjectMeta{UID: "uid-web"}, true, nil
}

// ownerOf returns an owner of that name and UID.
func ownerOf(name string, uid types.UID) *metav1.ObjectMeta {
	return &metav1.ObjectMeta{Namespace: "ns", Name: name, UID: uid, Generation: 1, ResourceVersion: "5"}
}

func TestSeen(t *testing.T) {
	type write struct {
		owner          *metav1.ObjectMeta
		store, version string
	}
	foo := ownerOf("foo", "uid")
	foo10 := write{foo, "foos", "10"}
	for sentence, test := range map[string]struct {
		writes []write
		after  time.Duration
		// foosAt and deploymentsAt are the versions that the caches have reached.
		foosAt, deploymentsAt reached
		want                  bool
	}{
		"rule 14: the cache has not seen the write, another one has": {[]write{foo10}, 0, "9", "99", false},
		"rule 14: the cache has seen the write":                      {[]write{foo10}, 0, "10", "1", true},
		"rule 14: the cache is past the write, as numbers":           {[]write{foo10}, 0, "100", "1", true},
		"rule 14: the version of the cache is unknown":               {[]write{foo10}, 0, "", "", true},
		"rule 14: of two writes the cache has seen one":              {[]write{foo10, {foo, "deployments", "11"}}, 0, "99", "10", false},
		"rule 14: the last write counts":                             {[]write{foo10, {foo, "foos", "12"}}, 0, "11", "1", false},
		"rule 14: another Foo's write does not matter":               {[]write{{ownerOf("other", "uid"), "foos", "10"}}, 0, "9", "9", true},
		"rule 14: a Foo made anew inherits no write": {
			[]write{{foo, "deployments", "99"}, {ownerOf("foo", "anew"), "foos", "9"}}, 0, "9", "9", true},
		"rule 14: almost 30 seconds later it still waits": {[]write{foo10}, 30*time.Second - 1, "9", "9", false},
		"rule 14: after 30 seconds it carries on":         {[]write{foo10}, 30 * time.Second, "9", "9", true},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w, stores := NewWrites(clock.RealClock{}), map[string]VersionedStore{"foos": &test.foosAt, "deployments": &test.deploymentsAt}
				for _, write := range test.writes {
					w.Await(write.owner, stores[write.store], write.version)
				}
				time.Sleep(test.after)
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

// TestSweep is rule 14: a sweep drops nothing that is younger than 30 seconds. One timer serves all.
func TestSweep(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, foo, store := NewWrites(clock.RealClock{}), ownerOf("foo", "uid"), ptr.To(reached("9"))
		w.setState(foo, store, dependentState{generation: 1, overridden: "uid-web"})
		if got := w.state(ownerOf("foo", "anew"), store); got.overridden != "" {
			t.Errorf("rule 11: a Foo made anew inherits that admission took %q from the earlier one", got.overridden)
		}
		time.Sleep(sweepPeriod - writeTTL)
		w.Await(ownerOf("old", "uid"), store, "10")
		time.Sleep(writeTTL - time.Second)
		w.AwaitDeletion(ownerOf("baz", "uid"), store, ownerOf("web", "uid-web"))
		w.Await(ownerOf("bar", "uid"), store, "10")
		time.Sleep(2 * time.Second)
		for _, name := range []string{"bar", "baz"} {
			if err := w.Seen(testKey(name)); !errors.Is(err, ErrStaleCache) {
				t.Errorf("rule 14: two seconds after a write for %s a sync waits because of: %v", name, err)
			}
		}
		if w.owners[testKey("old")] != nil {
			t.Error("rule 23: a write for which no sync waits any more is remembered until the next sweep")
		}
	})
	c := clocktesting.NewFakeClock(time.Now())
	w, store := NewWrites(c), ptr.To(reached("9"))
	w.Await(ownerOf("foo", "uid"), store, "10")
	w.AwaitDeletion(ownerOf("bar", "uid"), store, ownerOf("web", "uid-web"))
	if got := c.Waiters(); got != 1 {
		t.Errorf("rule 23: %d timers, want one for all", got)
	}
}

// TestWritesOfAnOwnerAtRest: no sync and no other call follows.
func TestWritesOfAnOwnerAtRest(t *testing.T) {
	foo, store := ownerOf("foo", "uid"), ptr.To(reached("9"))
	for sentence, test := range map[string]struct {
		act func(*Writes)
		// kept is how many owners are remembered after 9 minutes, and for ever.
		kept, forever int
	}{
		"rule 23: two deletions": {func(w *Writes) {
			w.AwaitDeletion(foo, store, ownerOf("web", "uid-web"))
			time.Sleep(sweepPeriod - time.Second)
			w.AwaitDeletion(ownerOf("bar", "uid"), store, ownerOf("web", "uid-web"))
		}, 0, 0},
		"rule 23: a write that no cache shows": {func(w *Writes) { w.Await(foo, store, "10") }, 0, 0},
		"rule 23: a creation": {func(w *Writes) {
			w.setState(foo, store, dependentState{lastWrite: time.Now()})
		}, 1, 0},
		"rule 4: what admission answered is kept": {func(w *Writes) {
			w.setState(foo, store, dependentState{repairs: 1, lastWrite: time.Now(), accepted: []Change{{Field: "image"}}})
		}, 1, 1},
		"rule 4: that admission took the owner reference is kept": {func(w *Writes) {
			w.setState(foo, store, dependentState{overridden: "uid"})
		}, 1, 1},
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
						if got := len(w.owners); got != want || w.sweeping != (want > 0) {
							t.Errorf("after %v: %d owners are remembered, want %d; a timer goes on: %v", after, got, want, w.sweeping)
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
