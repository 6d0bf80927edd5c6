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
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

func newTestQueue(t testing.TB) *Queue {
	t.Helper()
	q := newQueue("test", workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](minBackoff, maxBackoff), clock.RealClock{})
	t.Cleanup(q.ShutDown)
	return q
}

// left returns how many entries the queue has.
func left(q *Queue) int {
	count := q.Len()
	for _, t := range []*turns{&q.keys.high, &q.keys.low} {
		count += len(t.keys) + len(t.namespaces) + t.order.Len()
	}
	q.keys.raised.Range(func(any, any) bool { count++; return true })
	return count
}

// letterKey returns the key of that name, whose namespace is its first letter.
func letterKey(name string) cache.ObjectName {
	return cache.NewObjectName(name[:1], name)
}

// TestQueue does what the words say: "a1" adds the key a1 of the namespace a, "a1!" adds it with
// high priority, "a1^" raises its next priority, ">" takes a key, and "<" is done with it. Then it
// takes all keys.
func TestQueue(t *testing.T) {
	many := strings.Fields("h01! h02! h03! h04! h05! h06! h07! h08! h09! h10! h11! h12! h13! h14! h15! h16!")
	for name, test := range map[string]struct{ words, want string }{
		"rule 22: keys of events go first, each priority is first in, first out": {"a a1! b b1! c c1!", "a1 b1 c1 a b c"},
		"rule 13: every 8th key has low priority": {strings.Join(many, " ") + " l1 l2 l3",
			"h01 h02 h03 h04 h05 h06 h07 l1 h08 h09 h10 h11 h12 h13 h14 l2 h15 h16 l3"},
		"the priority of a waiting key is raised":              {"a1 a2 a3 a3!", "a3 a1 a2"},
		"a key of high priority keeps its place":               {"a1 a2! a3! a2 a2!", "a2 a3 a1"},
		"a raised key has low priority the next time":          {"a1 a2 a3 a2! > < a2", "a2 a1 a3 a2"},
		"a key is raised while it is being synced":             {"a1 > a2 a1! <", "a1 a1 a2"},
		"a key is added while it is being synced":              {"a1 > a2 a1 <", "a1 a2 a1"},
		"a key is raised before it is added":                   {"a1 a2^ a2", "a2 a1"},
		"rule 25: namespaces take turns":                       {"m1 m2 m3 m4 a1 b1 b2", "m1 a1 b1 m2 b2 m3 m4"},
		"rule 25: namespaces take turns at each priority":      {"m1! m2! m3! f1! m4 m5 m6 f2", "m1 f1 m2 m3 m4 f2 m5 m6"},
		"rule 25: a namespace that comes back has its turn":    {"a1 b1 b2 > a2 <", "a1 b1 a2 b2"},
		"rule 25: a namespace loses no turn with a raised key": {"a1 a2 b1 c1 a1! c1!", "a1 c1 a2 b1"},
	} {
		t.Run(name, func(t *testing.T) {
			q := newTestQueue(t)
			var got []string
			take := func() cache.ObjectName {
				key, _ := q.Get()
				got = append(got, key.Name)
				return key
			}
			for _, word := range strings.Fields(test.words) {
				switch name := strings.TrimRight(word, "!^"); {
				case word == ">":
					take()
				case word == "<":
					q.Done(letterKey(got[len(got)-1]))
				case strings.HasSuffix(word, "!"):
					q.AddHighPriority(letterKey(name))
				case strings.HasSuffix(word, "^"):
					q.RaiseNext(letterKey(name))
				default:
					q.Add(letterKey(name))
				}
			}
			for q.Len() > 0 {
				q.Done(take())
			}
			if order := strings.Join(got, " "); order != test.want || left(q) > 0 {
				t.Errorf("the order is %s, not %s; %d entries are left", order, test.want, left(q))
			}
		})
	}
}

// TestQueueReleasesMemory fills the queue with many keys of as many namespaces.
func TestQueueReleasesMemory(t *testing.T) {
	for keys, kept := range map[int]bool{manyKeys: true, manyKeys + 1: false} {
		q := newTestQueue(t)
		low := &q.keys.low
		maps := [2]uintptr{reflect.ValueOf(low.keys).Pointer(), reflect.ValueOf(low.namespaces).Pointer()}
		for i := range keys {
			q.Add(cache.NewObjectName(fmt.Sprint(i), "foo"))
		}
		for q.Len() > 0 {
			key, _ := q.Get()
			q.Done(key)
		}
		after := [2]uintptr{reflect.ValueOf(low.keys).Pointer(), reflect.ValueOf(low.namespaces).Pointer()}
		if (after == maps) != kept || (after[0] == maps[0]) != (after[1] == maps[1]) || low.most > 0 != kept {
			t.Errorf("after %d keys: the maps were %v and are %v, kept should be %v", keys, maps, after, kept)
		}
	}
}

// TestWorkerPriorities: keys of the initial list, of resyncs, of delays and of retries have low
// priority, keys of events high priority.
func TestWorkerPriorities(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var order []string
		blocked := make(chan struct{})
		w := newTestWorker(t, func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
			if key.Name == "first" {
				<-blocked
			}
			if order = append(order, key.Name); key.Name == "fails" {
				return 0, errors.New("failed")
			}
			return 0, nil
		}, func(o *WorkerOptions) { o.Resync, o.Workers = true, 1 })
		w.Enqueue(testKey("first"))
		w.Enqueue(testKey("initial"))
		stop := run(t, w)
		w.enqueueUnchanged(testKey("resync"))
		w.Queue.AddAfter(testKey("delayed"), time.Second)
		time.Sleep(time.Second)
		w.Enqueue(testKey("changed"))
		w.Enqueue(testKey("fails"))
		close(blocked)
		time.Sleep(minBackoff)
		stop()
		if want := []string{"first", "changed", "fails", "initial", "resync", "delayed", "fails"}; !slices.Equal(order, want) {
			t.Errorf("the order is %v, not %v", order, want)
		}
	})
}

func TestRefusalsShareABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBackoff(clock.RealClock{})
		buckets := func() int {
			b.mu.Lock()
			defer b.mu.Unlock()
			return len(b.buckets)
		}
		expect := func(sentence, namespace string, want time.Duration) {
			t.Helper()
			if got := b.token(namespace).Round(time.Microsecond); got != want {
				t.Errorf("rule 25: %s: delay %v, want %v", sentence, got, want)
			}
		}
		for range refusalBurst {
			expect("a hundred refusals have no delay", "ns", 0)
		}
		expect("ten a second follow", "ns", 100*time.Millisecond)
		expect("another namespace has a bucket of its own", "other", 0)
		for i := range 5*60*refusalQPS - 1 {
			expect("each waits for its token", "ns", time.Duration(i+2)*100*time.Millisecond)
		}
		for range 1000 {
			expect("a refusal waits for 5 minutes at most", "ns", 5*time.Minute)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		expect("and takes no token then", "ns", 5*time.Minute-900*time.Millisecond)
		if got := buckets(); got != 1 {
			t.Errorf("rule 23: %d namespaces are remembered, want the one whose bucket is not full", got)
		}
		time.Sleep(3*time.Minute - time.Second)
		for range 40 {
			b.token("ns")
		}
		// 3,141 tokens are back after 314.1 s.
		time.Sleep(134 * time.Second)
		synctest.Wait()
		if got := buckets(); got != 1 {
			t.Errorf("rule 25: %d namespaces are remembered before the bucket is full", got)
		}
		time.Sleep(time.Second)
		synctest.Wait()
		if got := buckets(); got != 0 {
			t.Errorf("rule 23: %d namespaces are remembered", got)
		}
	})
}

// syncsOf returns a sync that calls result for the keys of the namespace ns, and the number of
// these calls. A key of another namespace succeeds.
func syncsOf(result func(key cache.ObjectName) error) (SyncFunc, func() int) {
	var mu sync.Mutex
	count := 0
	return func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
			time.Sleep(time.Millisecond)
			if key.Namespace != "ns" {
				return 0, nil
			}
			mu.Lock()
			defer mu.Unlock()
			count++
			return 0, result(key)
		}, func() int {
			mu.Lock()
			defer mu.Unlock()
			return count
		}
}

// TestRefusedNamespace is about objects that are refused for ever: up to 3,000 of them are synced
// ten times a second, more of them once in 5 minutes each. A change of another namespace waits for
// the syncs in progress.
func TestRefusedNamespace(t *testing.T) {
	for keys, want := range map[int]int{2000: 5 * 60 * refusalQPS, 10_000: 10_000} {
		t.Run(fmt.Sprint(keys), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				sync, count := syncsOf(func(cache.ObjectName) error { return errQuota() })
				var changed atomic.Int32
				w := newTestWorker(t, func(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
					if key.Namespace == "other" {
						changed.Add(1)
					}
					return sync(ctx, key)
				})
				stop := run(t, w)
				for _, key := range keysOf(keys) {
					w.Enqueue(key)
				}
				settled, begun := 0, time.Now()
				for i := int32(1); time.Since(begun) < 20*time.Minute; i++ {
					if settled == 0 && time.Since(begun) > 15*time.Minute {
						settled = count()
					}
					w.Enqueue(cache.NewObjectName("other", "foo"))
					time.Sleep(2 * time.Millisecond)
					synctest.Wait()
					if changed.Load() != i {
						t.Fatal("rule 25: a change of another namespace waits for more than the syncs in progress")
					}
					time.Sleep(95 * time.Millisecond)
				}
				if got := count() - settled; got < want*98/100 || got > want*102/100 {
					t.Errorf("rule 25: %d syncs are refused in 5 minutes, want about %d", got, want)
				}
				stop()
			})
		})
	}
}

// TestOutage: the API server is away for a minute. Its return is found soon, however many objects of
// one namespace wait for it.
func TestOutage(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		begun, converged := time.Now(), map[cache.ObjectName]bool{}
		sync, _ := syncsOf(func(key cache.ObjectName) error {
			if time.Since(begun) < time.Minute {
				return errors.New("connection refused")
			}
			converged[key] = true
			return nil
		})
		w := newTestWorker(t, sync, func(o *WorkerOptions) { o.Workers = 8 })
		stop := run(t, w)
		for _, key := range keysOf(10_000) {
			w.Enqueue(key)
		}
		time.Sleep(2 * time.Minute)
		stop()
		if len(converged) != 10_000 {
			t.Errorf("rule 12: %d of 10,000 objects have converged a minute after the outage", len(converged))
		}
		if len(w.backoff.buckets) > 0 {
			t.Error("rule 25: a failure takes a token")
		}
	})
}

func TestStatusDebouncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, foo := newStatusDebouncer(clock.RealClock{}), testKey("foo")
		spend := func() {
			for d.budget.AllowN(time.Now(), 1) {
			}
		}
		expect := func(sentence string, want time.Duration) {
			t.Helper()
			if got := d.Delay(foo); got != want {
				t.Errorf("rule 13: %s: delay %v, want %v", sentence, got, want)
			}
		}
		expect("the first sync notes the time", time.Second)
		time.Sleep(300 * time.Millisecond)
		expect("a sync before the second is over waits for the rest", 700*time.Millisecond)
		time.Sleep(700 * time.Millisecond)
		expect("the first sync past the second writes", 0)
		spend()
		expect("and so does any later one, with the token that it has", 0)
		d.Reset(foo)
		expect("a write or the end of the Foo drops the note", time.Second)
		d.Reset(testKey("unknown"))
		expect("another Foo's reset does not", time.Second)
		time.Sleep(time.Second)
		spend()
		expect("one that finds no token waits for one", time.Second/4)
		d.Delay(testKey("other"))
		time.Sleep(time.Second)
		spend()
		if got := d.Delay(testKey("other")); got != time.Second/2 {
			t.Errorf("rule 13: the second one that finds none waits for %v", got)
		}
		d.Reset(testKey("other"))
		expect("the line gets shorter with each that needs no report", time.Second/4)
		time.Sleep(27*time.Second + 900*time.Millisecond)
		spend()
		expect("until 30 seconds are over", 100*time.Millisecond)
		time.Sleep(100 * time.Millisecond)
		spend()
		expect("and is written without one then", 0)

		first := reflect.ValueOf(d.since).Pointer()
		if d.Reset(foo); len(d.since)+len(d.inLine) > 0 || reflect.ValueOf(d.since).Pointer() == first {
			t.Errorf("rule 23: remembered after the wait: %v, %v", d.since, d.inLine)
		}
	})
}

// keysOf returns that many keys of the namespace ns.
func keysOf(count int) (keys []cache.ObjectName) {
	for i := range count {
		keys = append(keys, testKey(fmt.Sprintf("foo-%d", i)))
	}
	return keys
}

// runProgress runs a worker whose keys have progress to report until they have reported it. It
// returns the times of the reports, in order. A key is ready at some time, and reports nothing then;
// the last one is enqueued at that time and is ready never.
func runProgress(t *testing.T, keys []cache.ObjectName, ready time.Duration) (reports []time.Duration) {
	t.Helper()
	var mu sync.Mutex
	begun, told, last := time.Now(), map[cache.ObjectName]bool{}, keys[len(keys)-1]
	var w *Worker
	w = newTestWorker(t, func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
		mu.Lock()
		defer mu.Unlock()
		if key != last && time.Since(begun) >= ready || told[key] {
			w.Debouncer.Reset(key)
			return 0, nil
		}
		if delay := w.Debouncer.Delay(key); delay > 0 {
			return delay, nil
		}
		told[key] = true
		reports = append(reports, time.Since(begun))
		w.Debouncer.Reset(key)
		return 0, nil
	})
	stop := run(t, w)
	for _, key := range keys[:len(keys)-1] {
		w.Enqueue(key)
	}
	time.AfterFunc(ready, func() {
		for _, key := range keys {
			w.Enqueue(key)
		}
	})
	time.Sleep(3 * time.Minute)
	stop()
	if len(w.Debouncer.since)+len(w.Debouncer.inLine) > 0 {
		t.Errorf("rule 23: left over: %v, %v", w.Debouncer.since, w.Debouncer.inLine)
	}
	return reports
}

// TestProgressBudget: reports of progress share a budget of 4 a second with a burst of 10.
func TestProgressBudget(t *testing.T) {
	const second, never = time.Second, time.Minute
	for name, test := range map[string]struct {
		keys    int
		ready   time.Duration
		reports int
		// want is when some of the reports come.
		want map[int]time.Duration
	}{
		"rule 13: one Foo alone reports after a second": {
			1, 0, 1, map[int]time.Duration{0: second}},
		"rule 13: a burst of ten reports after a second, then four report a second": {
			31, never, 31, map[int]time.Duration{9: second, 10: second + second/4, 11: second + second/2, 13: 2 * second, 29: 6 * second}},
		"rule 13: a report waits for 30 seconds at most": {
			1001, never, 1001, map[int]time.Duration{10: second + second/4, 124: 29*second + 3*second/4, 126: 30 * second, 999: 30 * second}},
		"rule 13: what is ready within a second takes no part of the budget": {
			1001, second / 2, 1, map[int]time.Duration{0: second + second/2}},
		"rule 13: what is ready while it waits gives up its part of the budget": {
			1001, 1900 * time.Millisecond, 14, map[int]time.Duration{12: second + 3*second/4, 13: 2900 * time.Millisecond}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				got := runProgress(t, keysOf(test.keys), test.ready)
				if len(got) != test.reports || !slices.IsSorted(got) {
					t.Fatalf("%d reports, want %d", len(got), test.reports)
				}
				for i, want := range test.want {
					if got[i] != want {
						t.Errorf("report %d came after %v, want %v", i, got[i], want)
					}
				}
			})
		})
	}
}
