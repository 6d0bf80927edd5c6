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
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/clock"
)

// reached is an informer's store that has reached a resource version.
type reached string

func (r reached) LastStoreSyncResourceVersion() string { return string(r) }

// newTestConsistencyStore returns a store whose caches of Foos and of Deployments have
// reached those versions.
func newTestConsistencyStore(foosAt, deploymentsAt string) *ConsistencyStore {
	return NewConsistencyStore(clock.RealClock{}, map[schema.GroupResource]LastSyncRVGetter{
		testFoos(): reached(foosAt), testDeployments(): reached(deploymentsAt),
	})
}

func testFoos() schema.GroupResource {
	return schema.GroupResource{Group: "example.com", Resource: "foos"}
}

func testDeployments() schema.GroupResource {
	return schema.GroupResource{Group: "apps", Resource: "deployments"}
}

func TestEnsureReady(t *testing.T) {
	foo, other := testKey("foo"), testKey("other")
	tests := map[string]struct {
		write func(*ConsistencyStore)
		// foosAt and deploymentsAt are the versions that the caches have reached.
		foosAt, deploymentsAt string
		after                 time.Duration
		want                  bool
	}{
		"rule 14: nothing was written": {foosAt: "1", deploymentsAt: "1", want: true},
		"rule 14: the cache has not seen the write": {
			write: func(s *ConsistencyStore) { s.WroteAt(foo, "uid", testDeployments(), "10") }, foosAt: "99", deploymentsAt: "9", want: false},
		"rule 14: the cache has seen the write": {
			write: func(s *ConsistencyStore) { s.WroteAt(foo, "uid", testDeployments(), "10") }, foosAt: "1", deploymentsAt: "10", want: true},
		"rule 14: the cache is past the write": {
			write: func(s *ConsistencyStore) { s.WroteAt(foo, "uid", testDeployments(), "10") }, foosAt: "1", deploymentsAt: "100", want: true},
		"rule 14: a status write is compared with the cache of Foos": {
			write: func(s *ConsistencyStore) { s.WroteAt(foo, "uid", testFoos(), "10") }, foosAt: "9", deploymentsAt: "99", want: false},
		"rule 14: of two writes the cache has seen one": {
			write: func(s *ConsistencyStore) {
				s.WroteAt(foo, "uid", testFoos(), "10")
				s.WroteAt(foo, "uid", testDeployments(), "11")
			}, foosAt: "10", deploymentsAt: "10", want: false},
		"rule 14: a write to a resource without a cache does not hide the next one": {
			write: func(s *ConsistencyStore) {
				s.WroteAt(foo, "uid", schema.GroupResource{Resource: "events"}, "10")
				s.WroteAt(foo, "uid", testDeployments(), "11")
			}, foosAt: "10", deploymentsAt: "10", want: false},
		"rule 14: the last write counts": {
			write: func(s *ConsistencyStore) {
				s.WroteAt(foo, "uid", testFoos(), "10")
				s.WroteAt(foo, "uid", testFoos(), "12")
			}, foosAt: "11", deploymentsAt: "1", want: false},
		"rule 14: another Foo's write does not matter": {
			write: func(s *ConsistencyStore) { s.WroteAt(other, "uid", testFoos(), "10") }, foosAt: "1", deploymentsAt: "1", want: true},
		"rule 14: the version of the cache is unknown: carry on": {
			write: func(s *ConsistencyStore) { s.WroteAt(foo, "uid", testFoos(), "10") }, want: true},
		"rule 14: the versions are not comparable: carry on": {
			write: func(s *ConsistencyStore) { s.WroteAt(foo, "uid", testFoos(), "abc") }, foosAt: "9", deploymentsAt: "9", want: true},
		"rule 14: a resource without a cache does not matter": {
			write: func(s *ConsistencyStore) { s.WroteAt(foo, "uid", schema.GroupResource{Resource: "secrets"}, "10") }, foosAt: "9", deploymentsAt: "9", want: true},
		"rule 14: almost 30 seconds later it still waits": {
			write: func(s *ConsistencyStore) { s.WroteAt(foo, "uid", testFoos(), "10") }, foosAt: "9", deploymentsAt: "9", after: 30*time.Second - 1, want: false},
		"rule 14: after 30 seconds: carry on": {
			write: func(s *ConsistencyStore) { s.WroteAt(foo, "uid", testFoos(), "10") }, foosAt: "9", deploymentsAt: "9", after: 30 * time.Second, want: true},
		"rule 14: the Foo is gone, and its writes are dropped": {
			write: func(s *ConsistencyStore) { s.WroteAt(foo, "uid", testFoos(), "10"); s.Clear(foo, "") }, foosAt: "9", deploymentsAt: "9", want: true},
		"rule 14: the writes of the Foo with that UID are dropped": {
			write: func(s *ConsistencyStore) { s.WroteAt(foo, "uid", testFoos(), "10"); s.Clear(foo, "uid") }, foosAt: "9", deploymentsAt: "9", want: true},
		"rule 14: the writes of a Foo with another UID are kept": {
			write: func(s *ConsistencyStore) { s.WroteAt(foo, "uid", testFoos(), "10"); s.Clear(foo, "earlier") }, foosAt: "9", deploymentsAt: "9", want: false},
		"rule 14: a Foo made anew inherits no write": {
			write: func(s *ConsistencyStore) {
				s.WroteAt(foo, "earlier", testDeployments(), "99")
				s.WroteAt(foo, "uid", testFoos(), "9")
			}, foosAt: "9", deploymentsAt: "9", want: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := newTestConsistencyStore(test.foosAt, test.deploymentsAt)
				if test.write != nil {
					test.write(s)
				}
				time.Sleep(test.after)
				for range 2 {
					if err := s.EnsureReady(foo); (err == nil) != test.want {
						t.Errorf("EnsureReady returned %v, want ready: %v", err, test.want)
					}
				}
			})
		})
	}
}

// TestWroteAtKeepsTheLastWrite: an owner that is written very often before the cache catches
// up takes no more memory than any other.
func TestWroteAtKeepsTheLastWrite(t *testing.T) {
	s := newTestConsistencyStore("9", "9")
	for _, version := range []string{"10", "11", "12"} {
		s.WroteAt(testKey("foo"), "uid", testFoos(), version)
		s.WroteAt(testKey("foo"), "uid", testDeployments(), version)
	}
	var kept []string
	for _, last := range s.writes[testKey("foo")].last {
		kept = append(kept, last.version)
	}
	if !slices.Equal(kept, []string{"12", "12"}) {
		t.Errorf("rule 14: the versions %q are kept, want the last one of each resource", kept)
	}
}

func TestStaleCacheError(t *testing.T) {
	s := newTestConsistencyStore("9", "")
	s.WroteAt(testKey("foo"), "uid", testFoos(), "10")
	err := s.EnsureReady(testKey("foo"))
	var stale *StaleCacheError
	if !errors.As(err, &stale) || *stale != (StaleCacheError{Resource: testFoos(), ReadVersion: "9", WrittenVersion: "10"}) {
		t.Errorf("got %#v", err)
	}
	if got, want := err.Error(), "the cache of foos.example.com has reached version 9, behind version 10 of the last write or live read"; got != want {
		t.Errorf("got %q, want %q", got, want)
	}
}

func TestEnsureReadyForgetsAWriteThatWasSeen(t *testing.T) {
	s := newTestConsistencyStore("10", "")
	s.WroteAt(testKey("foo"), "uid", testFoos(), "10")
	if err := s.EnsureReady(testKey("foo")); err != nil {
		t.Error(err)
	}
	// A cache that is filled anew from a lagging API server may go back in time.
	s.stores[testFoos()] = reached("9")
	if err := s.EnsureReady(testKey("foo")); err != nil {
		t.Errorf("a write that the cache has seen is still waited for: %v", err)
	}
}

func TestConsistencyStoreReleasesMemory(t *testing.T) {
	s := newTestConsistencyStore("10", "10")
	first := reflect.ValueOf(s.writes).Pointer()
	s.WroteAt(testKey("foo"), "uid", testFoos(), "10")
	s.WroteAt(testKey("bar"), "uid", testFoos(), "10")
	s.WroteAt(testKey("baz"), "uid", testFoos(), "11")
	for range 2 {
		if err := errors.Join(s.EnsureReady(testKey("foo")), s.EnsureReady(testKey("bar"))); err != nil {
			t.Error(err)
		}
	}
	if err := s.EnsureReady(testKey("baz")); err == nil || len(s.writes) != 1 || reflect.ValueOf(s.writes).Pointer() != first {
		t.Errorf("error %v; %d owners are remembered, want the one whose write was not seen", err, len(s.writes))
	}
	s.Clear(testKey("baz"), "")
	if len(s.writes) != 0 || reflect.ValueOf(s.writes).Pointer() == first {
		t.Errorf("without owners the map of %d is not replaced", len(s.writes))
	}
}

// FuzzEnsureReady is rule 14 with any resource versions: numbers are compared,
// and with anything else the sync carries on.
func FuzzEnsureReady(f *testing.F) {
	f.Add("10", "9")
	f.Add("9", "10")
	f.Add("010", "9")
	f.Add("", "abc")
	f.Add("340282366920938463463374607431768211456", "18446744073709551616")
	f.Fuzz(func(t *testing.T, wrote, at string) {
		s := newTestConsistencyStore(at, "")
		s.WroteAt(testKey("foo"), "uid", testFoos(), wrote)
		got := s.EnsureReady(testKey("foo")) == nil
		want := true
		if isNumber(wrote) && isNumber(at) {
			want = len(at) > len(wrote) || len(at) == len(wrote) && at >= wrote
		}
		if got != want {
			t.Errorf("rule 14: wrote %q, reached %q: ready: %v", wrote, at, got)
		}
	})
}

func isNumber(version string) bool {
	return version != "" && version[0] != '0' && strings.Trim(version, "0123456789") == ""
}
