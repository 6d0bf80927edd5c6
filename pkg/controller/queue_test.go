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
				q.AddProgress(testKey("progress"))
				q.Add(testKey("a"))
				q.AddHighPriority(testKey("b"))
			},
			"b a progress",
		},
		"a key that reports progress is raised by an event": {
			func(q *Queue) {
				q.AddProgress(testKey("changed"))
				q.Add(testKey("a"))
				q.AddHighPriority(testKey("changed"))
			},
			"changed a",
		},
		"a key that reports progress is raised by a retry": {
			func(q *Queue) {
				q.AddProgress(testKey("first"))
				q.AddProgress(testKey("retried"))
				q.Add(testKey("retried"))
			},
			"retried first",
		},
		"a key that an event raises while it is being synced does not report progress last": {
			func(q *Queue) {
				q.Add(testKey("busy"))
				key, _ := q.Get()
				q.AddHighPriority(key)
				q.AddProgress(key)
				q.Add(testKey("a"))
				q.Done(key)
			},
			"busy a",
		},
		"a key that reports progress keeps its place": {
			func(q *Queue) {
				q.AddProgress(testKey("a"))
				q.AddProgress(testKey("b"))
				q.AddProgress(testKey("a"))
			},
			"a b",
		},
		"rule 25: namespaces take turns, and each is first in, first out": {
			func(q *Queue) {
				for i := range 4 {
					q.Add(cache.NewObjectName("many", fmt.Sprintf("many-%d", i)))
				}
				q.Add(cache.NewObjectName("a", "a-0"))
				q.Add(cache.NewObjectName("b", "b-0"))
				q.Add(cache.NewObjectName("b", "b-1"))
			},
			"many-0 a-0 b-0 many-1 b-1 many-2 many-3",
		},
		"rule 25: namespaces take turns at each priority": {
			func(q *Queue) {
				for _, namespace := range []string{"many", "few"} {
					for i := range map[string]int{"many": 3, "few": 1}[namespace] {
						q.AddHighPriority(cache.NewObjectName(namespace, fmt.Sprintf("new-%s-%d", namespace, i)))
						q.Add(cache.NewObjectName(namespace, fmt.Sprintf("%s-%d", namespace, i)))
						q.AddProgress(cache.NewObjectName(namespace, fmt.Sprintf("progress-%s-%d", namespace, i)))
					}
				}
			},
			"new-many-0 new-few-0 new-many-1 new-many-2 many-0 few-0 many-1 many-2 progress-many-0 progress-few-0 progress-many-1 progress-many-2",
		},
		"rule 25: a namespace does not lose its turn with a key that is raised": {
			func(q *Queue) {
				q.Add(cache.NewObjectName("a", "a-raised"))
				q.Add(cache.NewObjectName("a", "a-0"))
				q.Add(cache.NewObjectName("b", "b-0"))
				q.Add(cache.NewObjectName("c", "c-raised"))
				q.AddHighPriority(cache.NewObjectName("a", "a-raised"))
				q.AddHighPriority(cache.NewObjectName("c", "c-raised"))
			},
			"a-raised c-raised a-0 b-0",
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
			if q.Len()+len(q.keys.next)+q.keys.high.Len()+q.keys.low.Len()+q.keys.progress.Len() != 0 {
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
		namespaces := []string{"red", "green", "blue"}
		waiting, working := map[cache.ObjectName]bool{}, map[cache.ObjectName]bool{}
		again := map[cache.ObjectName]bool{}
		high := 0
		add := func(insert func(cache.ObjectName)) func(*rapid.T) {
			return func(r *rapid.T) {
				key := cache.NewObjectName(rapid.SampledFrom(namespaces).Draw(r, "namespace"), rapid.SampledFrom([]string{"a", "b", "c"}).Draw(r, "name"))
				insert(key)
				if working[key] {
					again[key] = true
				} else {
					waiting[key] = true
				}
			}
		}
		take := func(r *rapid.T) {
			if len(waiting) == 0 {
				r.Skip("nothing waits")
			}
			low, before := q.keys.low.Len(), q.keys.progress.Len()
			key, _ := q.Get()
			if q.keys.progress.Len() < before && len(waiting) > before {
				r.Fatalf("%s reports progress before others, %v wait", key, waiting)
			}
			if !waiting[key] || working[key] {
				r.Fatalf("%s is handed out, %v wait, %v are worked on", key, waiting, working)
			}
			if high++; q.keys.low.Len() < low || low == 0 {
				high = 0
			}
			if high > highInARow {
				r.Fatalf("low priority waits for %d keys of high priority", high)
			}
			delete(waiting, key)
			working[key] = true
		}
		done := func(r *rapid.T) {
			for key := range working {
				q.Done(key)
				delete(working, key)
				if again[key] {
					delete(again, key)
					waiting[key] = true
				}
				return
			}
			r.Skip("no key is being synced")
		}
		r.Repeat(map[string]func(*rapid.T){
			"add": add(q.Add), "add high": add(q.AddHighPriority), "take": take, "done": done,
			"add progress": add(func(key cache.ObjectName) { q.AddProgress(key) }),
			"": func(r *rapid.T) {
				if q.Len() != len(waiting) {
					r.Fatalf("%d wait, not %v", q.Len(), waiting)
				}
			},
		})
	})
}

// TestQueueKeepsNothing raises keys for a long time: nothing is left of their former places.
func TestQueueKeepsNothing(t *testing.T) {
	q := newTestQueue(t)
	for range 10_000 {
		q.Add(testKey("a"))
		q.AddHighPriority(testKey("a"))
		q.Add(testKey("b"))
		q.AddProgress(testKey("c"))
		q.Add(testKey("c"))
		next(q, 3)
	}
	if left := q.keys.low.Len() + q.keys.high.Len() + q.keys.progress.Len() + len(q.keys.waiting) + len(q.keys.next); left > 0 {
		t.Errorf("%d entries are left", left)
	}
}

// TestQueueReleasesMemory fills the queue with many keys, a raised one among them.
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
		maps := func() [2]uintptr {
			return [2]uintptr{reflect.ValueOf(q.keys.waiting).Pointer(), reflect.ValueOf(q.keys.next).Pointer()}
		}
		before := maps()
		next(q, test.keys-1)
		if maps() != before {
			t.Errorf("of %d keys the last one is lost", test.keys)
		}
		next(q, 1)
		if after := maps(); (after == before) != test.kept || (after[0] == before[0]) != (after[1] == before[1]) || q.keys.most > 0 != test.kept {
			t.Errorf("after %d keys: the maps were %v and are %v, kept should be %v", test.keys, before, after, test.kept)
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

// TestHostileKeys: the sync of a key does not wait for ten thousand keys of another namespace,
// whether all are changed, all were delayed, or all report progress.
func TestHostileKeys(t *testing.T) {
	const keys, workers, each = 10_000, 8, 10 * time.Millisecond
	for name, add := range map[string]func(*Queue, cache.ObjectName){
		"rule 25: keys of events":  (*Queue).AddHighPriority,
		"rule 25: keys of delays":  func(q *Queue, key cache.ObjectName) { q.AddAfter(key, 0) },
		"rule 25: keys of reports": func(q *Queue, key cache.ObjectName) { q.AddProgress(key) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := context.WithCancel(t.Context())
				synced := make(chan time.Time, 1)
				w := newTestWorker(t, func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
					time.Sleep(each)
					if key.Namespace == "other" {
						synced <- time.Now()
					}
					return 0, nil
				}, func(o *WorkerOptions) { o.Workers = workers })
				for i := range keys {
					add(w.Queue, cache.NewObjectName("hostile", fmt.Sprint(i)))
				}
				add(w.Queue, cache.NewObjectName("other", "foo"))
				time.Sleep(time.Second)
				begun := time.Now()
				var running sync.WaitGroup
				running.Go(func() {
					if err := w.Run(ctx); err != nil {
						t.Error(err)
					}
				})
				if took := (<-synced).Sub(begun); took > 2*each {
					t.Errorf("it waits for %v, and each sync takes %v", took, each)
				}
				cancel()
				running.Wait()
			})
		})
	}
}
