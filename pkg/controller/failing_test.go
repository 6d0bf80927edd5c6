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
		if keys, _ := f.end(namespace, o, now, maxCounted); len(keys) != 0 {
			t.Errorf("keys %v", keys)
		}
	}
	for range maxWasted / maxCounted {
		end("failing", outcomeOf(errors.New("refused")))
		end("waiting", outcomeOf(&StaleCacheError{}))
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
	if keys, pause := f.end("failing", failed, now, time.Second/10); len(keys) != 1 || keys[0] != second || pause != pauseFactor*time.Second/10 {
		t.Errorf("keys %v after %v, want %v once, after %v", keys, pause, second, pauseFactor*time.Second/10)
	}
	now = now.Add(pauseFactor * time.Second / 10)
	if begin(first) || !begin(second) {
		t.Errorf("it is not the turn of %v", second)
	}
	if _, pause := f.end("failing", failed, now, time.Minute); parked != 0 || pause != maxPause {
		t.Errorf("%d keys wait, after a pause of %v; want %v", parked, pause, maxPause)
	}
	now = now.Add(maxPause)
	if !begin(first) || begin(second) {
		t.Errorf("it is not the turn of %v", first)
	}
	if _, pause := f.end("failing", succeeded, now, time.Minute); pause != 0 {
		t.Errorf("a pause of %v after a success", pause)
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
	for range maxWasted / maxCounted {
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
	for _, name := range []string{"changed", "changed", "later"} {
		if !f.keepChanged(key(name)) {
			t.Errorf("%s does not wait", name)
		}
	}
	var got []string
	for range 5 {
		keys, _ := f.end("failing", failed, now, maxCounted)
		got = append(got, keys[0].Name)
		if !begin(keys[0]) {
			t.Fatalf("%v may not be synced", keys[0])
		}
	}
	if want := []string{"changed", "0", "later", "1", "2"}; !slices.Equal(got, want) {
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

// TestFailingNamespaceForgotten: the record of a failure is removed, also if no sync of the namespace
// follows.
func TestFailingNamespaceForgotten(t *testing.T) {
	f, now := newFailingNamespaces(func(int) {}), time.Now()
	sync := func(namespace string, o outcome) {
		f.begin(cache.NewObjectName(namespace, "x"), now)
		f.end(namespace, o, now, maxCounted)
	}
	for i := range 100 {
		sync(fmt.Sprint(i), failed)
	}
	now = now.Add(maxBackoff)
	sync("other", succeeded)
	if len(f.namespaces) != 100 {
		t.Errorf("%d namespaces are remembered before their last retry", len(f.namespaces))
	}
	now = now.Add(2 * forgetAfter)
	for range 100 {
		sync("other", succeeded)
	}
	if len(f.namespaces) != 0 {
		t.Errorf("%d namespaces are remembered", len(f.namespaces))
	}
}
