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
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"
)

func newTestQueue(t testing.TB) *Queue {
	t.Helper()
	q := newQueue("test", workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](MinBackoff, MaxBackoff), clock.RealClock{})
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

func TestFreshKeysGoFirst(t *testing.T) {
	for name, test := range map[string]struct {
		fill func(*Queue)
		want string
	}{
		"each line keeps its order": {
			func(q *Queue) {
				for _, name := range []string{"a", "b", "c"} {
					q.Add(testKey(name))
					q.AddFresh(testKey("new-" + name))
				}
			},
			"new-a new-b new-c a b c",
		},
		"every 8th is of the backlog": {
			func(q *Queue) {
				for i := range 16 {
					q.AddFresh(testKey(fmt.Sprintf("new-%02d", i)))
				}
				for _, name := range []string{"a", "b", "c"} {
					q.Add(testKey(name))
				}
			},
			"new-00 new-01 new-02 new-03 new-04 new-05 new-06 a new-07 new-08 new-09 new-10 new-11 new-12 new-13 b new-14 new-15 c",
		},
		"news of a key of the backlog": {
			func(q *Queue) {
				for _, name := range []string{"a", "b", "c"} {
					q.Add(testKey(name))
				}
				q.AddFresh(testKey("c"))
			},
			"c a b",
		},
		"a fresh key stays fresh, in its place": {
			func(q *Queue) {
				q.Add(testKey("a"))
				q.AddFresh(testKey("b"))
				q.AddFresh(testKey("c"))
				q.Add(testKey("b"))
				q.AddFresh(testKey("b"))
			},
			"b c a",
		},
		"a key that moved is new to the backlog the next time": {
			func(q *Queue) {
				q.Add(testKey("moved"))
				q.Add(testKey("a"))
				q.AddFresh(testKey("moved"))
				key, _ := q.Get()
				q.Done(key)
				q.Add(testKey("moved"))
			},
			"a moved",
		},
		"news of a key that a worker has": {
			func(q *Queue) {
				q.Add(testKey("busy"))
				key, _ := q.Get()
				q.Add(testKey("a"))
				q.AddFresh(key)
				q.Done(key)
			},
			"busy a",
		},
		"none of a key that a worker has": {
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
			if q.Len() != 0 || q.lines.news.Len() != 0 || q.lines.fresh.waiting != 0 || q.lines.backlog.waiting != 0 {
				t.Errorf("left over: %+v", q.lines)
			}
		})
	}
}

// TestQueueLosesNothing plays any sequence of operations: what was added is handed out,
// once and to one worker, and nothing waits for more than the others' share.
func TestQueueLosesNothing(t *testing.T) {
	rapid.Check(t, func(r *rapid.T) {
		q := newTestQueue(t)
		waiting, working := map[string]bool{}, map[string]bool{}
		again := map[string]bool{}
		fresh := 0
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
			backlog := q.lines.backlog.waiting
			key, _ := q.Get()
			if !waiting[key.Name] || working[key.Name] {
				r.Fatalf("%s is handed out, %v wait, %v are worked on", key.Name, waiting, working)
			}
			if fresh++; q.lines.backlog.waiting < backlog || backlog == 0 {
				fresh = 0
			}
			if fresh > freshInARow {
				r.Fatalf("the backlog waits for %d fresh keys", fresh)
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
			r.Skip("nobody works")
		}
		r.Repeat(map[string]func(*rapid.T){
			"add": add(q.Add), "add fresh": add(q.AddFresh), "take": take, "done": done,
			"": func(r *rapid.T) {
				if q.Len() != len(waiting) {
					r.Fatalf("%d wait, not %v", q.Len(), waiting)
				}
			},
		})
	})
}

// TestQueueKeepsNothing has keys move for a long time: what they leave behind goes.
func TestQueueKeepsNothing(t *testing.T) {
	q := newTestQueue(t)
	for range 10_000 {
		q.Add(testKey("a"))
		q.AddFresh(testKey("a"))
		q.Add(testKey("b"))
		next(q, 2)
	}
	if left := len(q.lines.backlog.entries) + len(q.lines.fresh.entries); left > 0 {
		t.Errorf("%d entries are left", left)
	}
	if room := cap(q.lines.backlog.entries) + cap(q.lines.fresh.entries); room > 100 {
		t.Errorf("there is room for %d entries", room)
	}
}

// TestLongLinesAreGivenBack has moved keys in the backlog as well.
func TestLongLinesAreGivenBack(t *testing.T) {
	for _, test := range []struct {
		keys int
		kept bool
	}{{manyKeys, true}, {manyKeys + 1, false}} {
		q := newTestQueue(t)
		for i := range test.keys {
			q.Add(testKey(fmt.Sprint(i)))
		}
		q.AddFresh(testKey("7"))
		next(q, test.keys-1)
		if cap(q.lines.backlog.entries) == 0 {
			t.Errorf("of %d keys the last one is lost", test.keys)
		}
		next(q, 1)
		if kept := cap(q.lines.fresh.entries)+q.lines.most > 0; kept != test.kept {
			t.Errorf("after %d keys: memory is kept: %v, want %v", test.keys, kept, test.kept)
		}
		q.Add(testKey("old"))
		q.AddFresh(testKey("new"))
		if got := next(q, 2); got != "new old" {
			t.Errorf("after that the keys %q come", got)
		}
	}
}

// TestLoopTellsNewsFromTheBacklog: what was there before the workers, what comes by the
// clock, and what failed waits behind what happens now.
func TestLoopTellsNewsFromTheBacklog(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		parent := func(name, version string) *metav1.PartialObjectMetadata {
			return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: name, ResourceVersion: version}}
		}
		ctx, cancel := context.WithCancel(t.Context())
		order := make(chan string, 10)
		blocked := make(chan struct{})
		l := newTestLoop(t, func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
			if key.Name == "first" {
				<-blocked
			}
			order <- key.Name
			if key.Name == "fails" {
				return 0, errors.New("failed")
			}
			return 0, nil
		}, func(o *Options) { o.Resync, o.Workers = true, 1 })
		l.Enqueue(testKey("first"))
		l.Enqueue(testKey("there before"))
		var running sync.WaitGroup
		running.Go(func() {
			if err := l.Run(ctx); err != nil {
				t.Error(err)
			}
		})
		synctest.Wait()

		l.ParentUpdated(parent("resync", "1"), parent("resync", "1"))
		l.Queue.AddAfter(testKey("put off"), time.Second)
		time.Sleep(time.Second)
		l.Enqueue(testKey("created"))
		l.ParentUpdated(parent("changed", "1"), parent("changed", "2"))
		l.ParentDeleted(testKey("gone"))
		owned := parent("child", "1")
		owned.OwnerReferences = []metav1.OwnerReference{{APIVersion: "samplecontroller.k8s.io/v1alpha1", Kind: "Foo", Name: "fails", Controller: ptr.To(true)}}
		l.EnqueueOwner(schema.GroupKind{Group: "samplecontroller.k8s.io", Kind: "Foo"}, owned)
		close(blocked)
		synctest.Wait()
		time.Sleep(MinBackoff)
		synctest.Wait()
		cancel()
		running.Wait()
		close(order)
		var got []string
		for name := range order {
			got = append(got, name)
		}
		want := []string{"first", "created", "changed", "gone", "fails", "there before", "resync", "put off", "fails"}
		if !slices.Equal(got, want) {
			t.Errorf("the order is %v, not %v", got, want)
		}
	})
}
