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
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
)

// failingSyncs counts the syncs of the namespace failing, of which all fail until repaired is true.
type failingSyncs struct {
	mu             sync.Mutex
	repaired       bool
	syncing, most  int
	failed, synced map[string]bool
}

func (s *failingSyncs) sync(_ context.Context, key cache.ObjectName) (time.Duration, error) {
	if key.Namespace != "failing" {
		return 0, nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.syncing++
	s.most = max(s.most, s.syncing)
	s.mu.Unlock()
	time.Sleep(10 * time.Millisecond)
	s.mu.Lock()
	s.syncing--
	if s.repaired {
		s.synced[key.Name] = true
		return 0, nil
	}
	s.failed[key.Name] = true
	return 0, errors.New("refused")
}

// look returns the most syncs at once since the last call, and how many keys have failed and have been
// synced, and sets what the next syncs do.
func (s *failingSyncs) look(repaired bool) (most, failed, synced int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	most, s.most, s.repaired = s.most, 0, repaired
	return most, len(s.failed), len(s.synced)
}

func (s *failingSyncs) hasFailed(name string) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.failed[name]
}

// TestFailingNamespace: one worker at a time syncs the keys of a namespace in which all syncs fail,
// each of them, and all workers do again soon after the syncs succeed. Nothing is remembered in the end.
func TestFailingNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const keys, workers = 500, 8
		s := &failingSyncs{failed: map[string]bool{}, synced: map[string]bool{}}
		w := newTestWorker(t, s.sync, func(o *WorkerOptions) { o.Workers = workers })
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		for i := range keys {
			w.Enqueue(cache.NewObjectName("failing", fmt.Sprint(i)))
		}
		// The first 16 syncs, and those that have begun before they end.
		time.Sleep(35 * time.Millisecond)
		if most, _, _ := s.look(false); most != workers {
			t.Errorf("%d syncs at once before they failed, want %d", most, workers)
		}
		w.Enqueue(cache.NewObjectName("failing", "changed"))
		const turn = minPause + 10*time.Millisecond
		time.Sleep(3 * turn)
		if !s.hasFailed("changed") {
			t.Error("the key of an event waits for more than three others")
		}
		// Some keys are retried meanwhile.
		time.Sleep(2 * keys * turn)
		if most, failed, _ := s.look(true); most != 1 || failed != keys+1 {
			t.Errorf("rule 25: %d syncs at once, of %d keys; want 1, of %d", most, failed, keys+1)
		}
		for i := range keys {
			w.Enqueue(cache.NewObjectName("failing", fmt.Sprint(i)))
		}
		time.Sleep(time.Second + 2*keys/workers*10*time.Millisecond)
		synctest.Wait()
		if most, _, synced := s.look(true); most != workers || synced != keys+1 {
			t.Errorf("after the repair %d syncs at once, of %d keys; want %d, of %d", most, synced, workers, keys+1)
		}
		if len(w.failing.namespaces) != 0 {
			t.Errorf("the worker remembers %d namespaces", len(w.failing.namespaces))
		}
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
}

// TestFailingNamespaceOfOthers: neither conflicts nor stale caches are failures, and a namespace is not
// limited by the failures of another one.
func TestFailingNamespaceOfOthers(t *testing.T) {
	parked, now := 0, time.Now()
	f := newFailingNamespaces(func(n int) { parked = n })
	begin := func(key cache.ObjectName) bool {
		ok, _ := f.begin(key, now)
		return ok
	}
	end := func(namespace string, o outcome) {
		t.Helper()
		if !begin(cache.NewObjectName(namespace, "x")) {
			t.Fatalf("a key of the namespace %s waits", namespace)
		}
		if next := f.end(namespace, o, now, maxCounted); len(next.keys) != 0 {
			t.Errorf("keys %v", next.keys)
		}
	}
	for range 2 * limitFrom / maxCounted {
		if !begin(cache.NewObjectName("failing", "x")) {
			t.Fatal("a key waits before a sync has failed")
		}
	}
	for range 2 * limitFrom / maxCounted {
		f.end("failing", outcomeOf(errors.New("refused")), now, maxCounted)
		end("waiting", outcomeOf(ErrStaleCache))
		end("waiting", outcomeOf(apierrors.NewConflict(schema.GroupResource{}, "x", nil)))
		end("other", outcomeOf(nil))
	}
	for _, namespace := range []string{"waiting", "other", "new"} {
		for range 2 {
			if !begin(cache.NewObjectName(namespace, "x")) {
				t.Errorf("a key of the namespace %s waits", namespace)
			}
		}
	}
	first, second := cache.NewObjectName("failing", "first"), cache.NewObjectName("failing", "second")
	if ok, delay := f.begin(first, now); ok || delay != minPause {
		t.Errorf("it may be synced: %t, after %v; want after %v", ok, delay, minPause)
	}
	if ok, delay := f.begin(second, now); ok || delay != 0 {
		t.Error("two keys are next")
	}
	now = now.Add(minPause)
	if begin(second) || !begin(first) || begin(second) {
		t.Error("not one worker at a time")
	}
	if parked != 1 {
		t.Errorf("%d keys wait, want 1", parked)
	}
	if next := f.end("failing", failed, now, time.Second/10); len(next.keys) != 1 || next.keys[0] != second || next.pause != pauseFactor*time.Second/10 || !next.urgent {
		t.Errorf("next are %+v, want %v once, after %v", next, second, pauseFactor*time.Second/10)
	}
	now = now.Add(pauseFactor * time.Second / 10)
	if begin(first) || !begin(second) {
		t.Errorf("it is not the turn of %v", second)
	}
	if next := f.end("failing", failed, now, time.Minute); parked != 0 || next.pause != maxPause {
		t.Errorf("%d keys wait, after a pause of %v; want %v", parked, next.pause, maxPause)
	}
	now = now.Add(maxPause)
	if !begin(first) || begin(second) {
		t.Errorf("it is not the turn of %v", first)
	}
	if next := f.end("failing", succeeded, now, time.Minute); next.pause != 0 {
		t.Errorf("a pause of %v after a success", next.pause)
	}
}

// TestFailingNamespaceChange: the key of an event waits for one other at most.
func TestFailingNamespaceChange(t *testing.T) {
	f, now := newFailingNamespaces(func(int) {}), time.Now()
	begin := func(key cache.ObjectName) bool {
		now = now.Add(minPause)
		ok, _ := f.begin(key, now)
		return ok
	}
	key := func(name string) cache.ObjectName { return cache.NewObjectName("failing", name) }
	for range 2 * limitFrom / maxCounted {
		if f.keepChanged(key("x")) || !begin(key("x")) {
			t.Fatal("a key waits too early")
		}
		f.end("failing", failed, now, maxCounted)
	}
	if f.keepChanged(key("x")) || !begin(key("x")) {
		t.Fatal("a key waits for no other")
	}
	for i := range 100 {
		if begin(key(fmt.Sprint(i))) {
			t.Fatal("not one worker at a time")
		}
	}
	// The third waits already, as a retry.
	for _, name := range []string{"changed", "changed", "1"} {
		if !f.keepChanged(key(name)) {
			t.Errorf("%s does not wait", name)
		}
	}
	if f.parked != 101 {
		t.Errorf("%d keys wait, want 101", f.parked)
	}
	var got []string
	for range 5 {
		next := f.end("failing", failed, now, maxCounted).keys[0]
		got = append(got, next.Name)
		if !begin(next) {
			t.Fatalf("%v may not be synced", next)
		}
	}
	next := f.end("failing", failed, now, maxCounted).keys[0]
	if f.keepChanged(next) {
		t.Errorf("the event of %v, for which all others wait, does not raise its priority", next)
	}
	if want := []string{"changed", "0", "1", "2", "3"}; !slices.Equal(got, want) {
		t.Errorf("the keys come as %q, want %q", got, want)
	}
}

// TestFailingNamespaceWithSuccesses: a success now and then does not end the limit, and as many failures
// as successes do not begin it.
func TestFailingNamespaceWithSuccesses(t *testing.T) {
	for failures, want := range map[int]bool{1: false, 3: true, 15: true} {
		f, now := newFailingNamespaces(func(int) {}), time.Now()
		sync := func(o outcome) {
			now = now.Add(minPause)
			if ok, delay := f.begin(cache.NewObjectName("ns", "x"), now); !ok {
				t.Fatalf("the only key waits for %v", delay)
			}
			f.end("ns", o, now, maxCounted)
		}
		for range 20 {
			for range failures {
				sync(failed)
			}
			sync(succeeded)
		}
		if got := f.namespaces["ns"] != nil && f.namespaces["ns"].limited(); got != want {
			t.Errorf("after %d failures for each success the namespace is limited: %t, want %t", failures, got, want)
		}
	}
}

// TestFailingNamespaceForgiven: neither short syncs nor a few objects that fail for ever limit a namespace,
// and the limit ends with time.
func TestFailingNamespaceForgiven(t *testing.T) {
	f, now := newFailingNamespaces(func(int) {}), time.Now()
	limitedAfter := func(syncs int, took, pause time.Duration) bool {
		t.Helper()
		for range syncs {
			now = now.Add(pause)
			if ok, delay := f.begin(cache.NewObjectName("ns", "x"), now); !ok {
				t.Fatalf("the only key waits for %v", delay)
			}
			f.end("ns", failed, now, took)
		}
		return f.namespaces["ns"].limited()
	}
	if limitedAfter(100, time.Millisecond, minPause) {
		t.Error("syncs of a millisecond, ten a second, limit the namespace")
	}
	if limitedAfter(24*60*2, time.Minute, 30*time.Second) {
		t.Error("an object that is retried each 30 seconds for a day limits the namespace")
	}
	if !limitedAfter(100, time.Minute, time.Second) {
		t.Error("an object that is retried each second does not")
	}
	now = now.Add(2 * limitFrom * forgiveness)
	if limitedAfter(1, time.Minute, 0) {
		t.Error("the limit does not end")
	}
}

// TestFailingNamespaceForgotten: the record of a failure is removed, also if no sync of the namespace
// follows, but not while keys wait there.
func TestFailingNamespaceForgotten(t *testing.T) {
	f, now := newFailingNamespaces(func(int) {}), time.Now()
	sync := func(namespace, name string, o outcome) []cache.ObjectName {
		t.Helper()
		if ok, delay := f.begin(cache.NewObjectName(namespace, name), now); !ok {
			t.Fatalf("a key waits for %v", delay)
		}
		return f.end(namespace, o, now, maxCounted).keys
	}
	for i := range 100 {
		sync(fmt.Sprint(i), "x", failed)
	}
	sync("other", "x", succeeded)
	if len(f.namespaces) != 100 {
		t.Errorf("%d namespaces are remembered, want 100", len(f.namespaces))
	}
	for range limitFrom / maxCounted {
		sync("waits", "x", failed)
		now = now.Add(minPause / 10)
	}
	sync("waits", "x", failed)
	now = now.Add(minPause)
	if ok, _ := f.begin(cache.NewObjectName("waits", "x"), now); !ok {
		t.Fatal("the only key waits")
	}
	for i := range 10 {
		f.begin(cache.NewObjectName("waits", fmt.Sprint(i)), now)
	}
	now = now.Add(2 * limitFrom * forgiveness)
	resumed := f.end("waits", succeeded, now, maxCounted).keys
	for range 200 {
		sync("other", "x", succeeded)
	}
	if len(f.namespaces) != 1 {
		t.Errorf("%d namespaces are remembered, want that in which keys wait", len(f.namespaces))
	}
	for i := 0; i < len(resumed); i++ {
		resumed = append(resumed, sync("waits", resumed[i].Name, succeeded)...)
	}
	if len(resumed) != 10 || f.parked != 0 || len(f.namespaces) != 0 {
		t.Errorf("%d of 10 keys were synced, %d wait, %d namespaces are remembered", len(resumed), f.parked, len(f.namespaces))
	}
}

// TestFailingNamespaceBesideABacklog: a user's change in a limited namespace waits neither for the backlog
// of another namespace nor for that of its own, and the API server's Retry-After stops nothing else.
func TestFailingNamespaceBesideABacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var mu sync.Mutex
		synced := map[cache.ObjectName]bool{}
		w := newTestWorker(t, func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
			time.Sleep(20 * time.Millisecond)
			mu.Lock()
			defer mu.Unlock()
			synced[key] = true
			switch {
			case key.Namespace == "other":
				return 0, nil
			case key.Name == "later":
				return 0, apierrors.NewTooManyRequests("later", 60)
			}
			return 0, errors.New("refused")
		}, func(o *WorkerOptions) { o.Workers = 4 })
		later, changed := cache.NewObjectName("failing", "later"), cache.NewObjectName("failing", "changed")
		for i := range 2000 {
			w.Queue.Add(cache.NewObjectName("failing", fmt.Sprint(i)))
			w.Queue.Add(cache.NewObjectName("other", fmt.Sprint(i)))
		}
		ctx, cancel := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- w.Run(ctx) }()
		synctest.Wait()
		w.Enqueue(later)
		time.Sleep(time.Second)
		w.Enqueue(later)
		w.Enqueue(changed)
		time.Sleep(4 * (minPause + 20*time.Millisecond))
		mu.Lock()
		if !synced[changed] || len(synced) > 500 {
			t.Errorf("rule 25: the changed object is synced: %t, after %d others", synced[changed], len(synced))
		}
		mu.Unlock()
		time.Sleep(10 * time.Minute)
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if len(synced) != 4002 {
			t.Errorf("%d keys were synced, want 4002", len(synced))
		}
	})
}
