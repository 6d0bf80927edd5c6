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
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"pgregory.net/rapid"
)

func newTestQueue(t testing.TB) *Queue {
	t.Helper()
	q := newQueue("test", workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](minBackoff, maxBackoff), clock.RealClock{})
	t.Cleanup(q.ShutDown)
	return q
}

// next returns the names of the next keys, and is done with each.
func next(q *Queue, count int) string {
	var names []string
	for range count {
		key, _ := q.Get()
		names = append(names, key.Name)
		q.Done(key)
	}
	return strings.Join(names, " ")
}

func TestHighPriorityGoesFirst(t *testing.T) {
	for name, test := range map[string]struct {
		fill func(*Queue)
		want string
	}{
		"each priority is first in, first out": {
			func(q *Queue) {
				for _, name := range []string{"a", "b", "c"} {
					q.Add(testKey(name))
					q.AddHighPriority(testKey("new-" + name))
				}
			},
			"new-a new-b new-c a b c",
		},
		"every 8th key has low priority": {
			func(q *Queue) {
				for i := range 16 {
					q.AddHighPriority(testKey(fmt.Sprintf("new-%02d", i)))
				}
				for _, name := range []string{"a", "b", "c"} {
					q.Add(testKey(name))
				}
			},
			"new-00 new-01 new-02 new-03 new-04 new-05 new-06 a new-07 new-08 new-09 new-10 new-11 new-12 new-13 b new-14 new-15 c",
		},
		"the priority of a waiting key is raised": {
			func(q *Queue) {
				for _, name := range []string{"a", "b", "c"} {
					q.Add(testKey(name))
				}
				q.AddHighPriority(testKey("c"))
			},
			"c a b",
		},
		"a key of high priority keeps its place": {
			func(q *Queue) {
				q.Add(testKey("a"))
				q.AddHighPriority(testKey("b"))
				q.AddHighPriority(testKey("c"))
				q.Add(testKey("b"))
				q.AddHighPriority(testKey("b"))
			},
			"b c a",
		},
		"a key that was raised has low priority the next time": {
			func(q *Queue) {
				q.Add(testKey("moved"))
				q.Add(testKey("a"))
				q.AddHighPriority(testKey("moved"))
				key, _ := q.Get()
				q.Done(key)
				q.Add(testKey("moved"))
			},
			"a moved",
		},
		"a key is raised while it is being synced": {
			func(q *Queue) {
				q.Add(testKey("busy"))
				key, _ := q.Get()
				q.Add(testKey("a"))
				q.AddHighPriority(key)
				q.Done(key)
			},
			"busy a",
		},
		"keys that report progress come after all others": {
			func(q *Queue) {
				q.AddProgressAfter(testKey("progress"), 0)
				q.Add(testKey("a"))
				q.AddHighPriority(testKey("b"))
			},
			"b a progress",
		},
		"a key that reports progress is raised by an event": {
			func(q *Queue) {
				q.AddProgressAfter(testKey("changed"), 0)
				q.Add(testKey("a"))
				q.AddHighPriority(testKey("changed"))
			},
			"changed a",
		},
		"a key that reports progress is raised by a retry": {
			func(q *Queue) {
				q.AddProgressAfter(testKey("first"), 0)
				q.AddProgressAfter(testKey("retried"), 0)
				q.Add(testKey("retried"))
			},
			"retried first",
		},
		"a key that an event raises while it is being synced does not report progress last": {
			func(q *Queue) {
				q.Add(testKey("busy"))
				key, _ := q.Get()
				q.AddHighPriority(key)
				q.AddProgressAfter(key, 0)
				q.Add(testKey("a"))
				q.Done(key)
			},
			"busy a",
		},
		"a key that reports progress keeps its place": {
			func(q *Queue) {
				q.AddProgressAfter(testKey("a"), 0)
				q.AddProgressAfter(testKey("b"), 0)
				q.AddProgressAfter(testKey("a"), 0)
			},
			"a b",
		},
		"a key is added while it is being synced": {
			func(q *Queue) {
				q.Add(testKey("busy"))
				key, _ := q.Get()
				q.Add(testKey("a"))
				q.Add(key)
				q.Done(key)
			},
			"a busy",
		},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t)
			test.fill(q)
			if got := next(q, q.Len()); got != test.want {
				t.Errorf("the order is %s, not %s", got, test.want)
			}
			if q.Len()+len(q.keys.next)+q.keys.high.valid+q.keys.low.valid+q.keys.progress.valid != 0 {
				t.Errorf("left over: %+v", q.keys)
			}
		})
	}
}

// TestQueueLosesNothing runs random sequences of operations: each key that was added is
// handed out once and to one worker, and low priority gets its share.
func TestQueueLosesNothing(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		q := newTestQueue(t)
		waiting, working := map[string]bool{}, map[string]bool{}
		again := map[string]bool{}
		high := 0
		add := func(insert func(cache.ObjectName)) func(*rapid.T) {
			return func(r *rapid.T) {
				name := rapid.SampledFrom([]string{"a", "b", "c", "d", "e"}).Draw(r, "name")
				insert(testKey(name))
				if working[name] {
					again[name] = true
				} else {
					waiting[name] = true
				}
			}
		}
		take := func(r *rapid.T) {
			if len(waiting) == 0 {
				r.Skip("nothing waits")
			}
			low, before := q.keys.low.valid, q.keys.progress.valid
			key, _ := q.Get()
			if q.keys.progress.valid < before && len(waiting) > before {
				r.Fatalf("%s reports progress before others, %v wait", key.Name, waiting)
			}
			if !waiting[key.Name] || working[key.Name] {
				r.Fatalf("%s is handed out, %v wait, %v are worked on", key.Name, waiting, working)
			}
			if high++; q.keys.low.valid < low || low == 0 {
				high = 0
			}
			if high > highInARow {
				r.Fatalf("low priority waits for %d keys of high priority", high)
			}
			delete(waiting, key.Name)
			working[key.Name] = true
		}
		done := func(r *rapid.T) {
			for name := range working {
				q.Done(testKey(name))
				delete(working, name)
				if again[name] {
					delete(again, name)
					waiting[name] = true
				}
				return
			}
			r.Skip("no key is being synced")
		}
		r.Repeat(map[string]func(*rapid.T){
			"add": add(q.Add), "add high": add(q.AddHighPriority), "take": take, "done": done,
			"add progress": add(func(key cache.ObjectName) { q.AddProgressAfter(key, 0) }),
			"": func(r *rapid.T) {
				if q.Len() != len(waiting) {
					r.Fatalf("%d wait, not %v", q.Len(), waiting)
				}
			},
		})
	})
}

// TestQueueKeepsNothing raises keys for a long time: their stale entries are removed.
func TestQueueKeepsNothing(t *testing.T) {
	q := newTestQueue(t)
	for range 10_000 {
		q.Add(testKey("a"))
		q.AddHighPriority(testKey("a"))
		q.Add(testKey("b"))
		q.AddProgressAfter(testKey("c"), 0)
		q.Add(testKey("c"))
		next(q, 3)
	}
	if left := len(q.keys.low.entries) + len(q.keys.high.entries) + len(q.keys.next); left > 0 {
		t.Errorf("%d entries are left", left)
	}
	if room := cap(q.keys.low.entries) + cap(q.keys.high.entries); room > 100 {
		t.Errorf("there is room for %d entries", room)
	}
}

// TestQueueReleasesMemory fills the queue with many keys, a stale one among them.
func TestQueueReleasesMemory(t *testing.T) {
	for _, test := range []struct {
		keys int
		kept bool
	}{{manyKeys, true}, {manyKeys + 1, false}} {
		q := newTestQueue(t)
		for i := range test.keys {
			q.Add(testKey(fmt.Sprint(i)))
		}
		q.AddHighPriority(testKey("7"))
		marks := reflect.ValueOf(q.keys.next).Pointer()
		next(q, test.keys-1)
		if cap(q.keys.low.entries) == 0 {
			t.Errorf("of %d keys the last one is lost", test.keys)
		}
		next(q, 1)
		if kept := cap(q.keys.high.entries)+q.keys.most > 0; kept != test.kept || (reflect.ValueOf(q.keys.next).Pointer() == marks) != test.kept {
			t.Errorf("after %d keys: memory is kept: %v, want %v", test.keys, kept, test.kept)
		}
		q.Add(testKey("old"))
		q.AddHighPriority(testKey("new"))
		if got := next(q, 2); got != "new old" {
			t.Errorf("after that the keys %q come", got)
		}
	}
}

// TestWorkerPriorities: keys of the initial list, of resyncs, of delays and of retries have
// low priority, keys of events high priority.
func TestWorkerPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		order := make(chan string, 10)
		blocked := make(chan struct{})
		w := newTestWorker(t, func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
			if key.Name == "first" {
				<-blocked
			}
			order <- key.Name
			if key.Name == "fails" {
				return 0, errors.New("failed")
			}
			return 0, nil
		}, func(o *WorkerOptions) { o.Resync, o.Workers = true, 1 })
		w.Enqueue(testKey("first"))
		w.Enqueue(testKey("initial"))
		var running sync.WaitGroup
		running.Go(func() {
			if err := w.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()

		w.EnqueueUnchanged(testKey("resync"))
		w.Queue.AddAfter(testKey("delayed"), time.Second)
		time.Sleep(time.Second)
		w.Enqueue(testKey("changed"))
		w.Enqueue(testKey("fails"))
		close(blocked)
		synctest.Wait()
		time.Sleep(minBackoff)
		synctest.Wait()
		cancel()
		running.Wait()
		close(order)
		var got []string
		for name := range order {
			got = append(got, name)
		}
		want := []string{"first", "changed", "fails", "initial", "resync", "delayed", "fails"}
		if !slices.Equal(got, want) {
			t.Errorf("the order is %v, not %v", got, want)
		}
	})
}
