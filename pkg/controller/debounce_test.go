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
	"fmt"
	"reflect"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/time/rate"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

func newTestDebouncer(t *testing.T) *StatusDebouncer {
	return newStatusDebouncer(clock.RealClock{}, newTestQueue(t))
}

// spend takes all tokens that are there from the budget.
func spend(d *StatusDebouncer) {
	for d.budget.AllowN(d.clock.Now(), 1) {
	}
}

func TestStatusDebouncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, foo := newTestDebouncer(t), testKey("foo")
		expect := func(sentence string, want time.Duration) {
			t.Helper()
			if got := d.Delay(foo); got != want {
				t.Errorf("rule 13: %s: delay %v, want %v", sentence, got, want)
			}
		}
		expect("the first sync notes the time", time.Second)
		time.Sleep(300 * time.Millisecond)
		expect("a sync before the second is over waits for the rest", 700*time.Millisecond)
		d.Delay(testKey("other"))
		time.Sleep(700 * time.Millisecond)
		expect("the first sync past the second writes", 0)
		spend(d)
		expect("and so does any later one, with the token that it has", 0)
		d.Reset(foo)
		expect("a write or the end of the Foo drops the note", time.Second)
		d.Reset(testKey("unknown"))
		expect("another Foo's reset does not", time.Second)
		time.Sleep(time.Second)
		spend(d)
		d.budget.SetLimit(rate.Every(time.Hour))
		expect("one that finds no token waits for one, until 30 seconds are over", 29*time.Second)
		time.Sleep(28 * time.Second)
		expect("and still waits while there is none", time.Second)
		time.Sleep(time.Second)
		expect("and is written without one after 30 seconds", 0)
	})
}

func TestStatusDebouncerReleasesMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDebouncer(t)
		spend(d)
		first := reflect.ValueOf(d.waiting).Pointer()
		names := []string{"foo", "bar"}
		for _, name := range names {
			d.Delay(testKey(name))
		}
		time.Sleep(time.Second)
		spend(d)
		for _, name := range names {
			d.Delay(testKey(name))
		}
		d.Reset(testKey("foo"))
		if len(d.waiting) != 1 || reflect.ValueOf(d.waiting).Pointer() != first {
			t.Errorf("rule 23: with one status waiting there are %d in another map", len(d.waiting))
		}
		d.Reset(testKey("bar"))
		if len(d.waiting)+d.line.Len() != 0 || reflect.ValueOf(d.waiting).Pointer() == first {
			t.Errorf("rule 23: with no status waiting there are %d in the same map, %d in line", len(d.waiting), d.line.Len())
		}
	})
}

// runProgress runs a worker whose keys have progress to report until they have reported it.
// It returns when each key reported after it was enqueued; keys that are in ready need no
// report any more after that time.
func runProgress(t *testing.T, keys []cache.ObjectName, ready map[cache.ObjectName]time.Duration) map[cache.ObjectName]time.Duration {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	begun, told := time.Now(), map[cache.ObjectName]time.Duration{}
	var mu sync.Mutex
	var w *Worker
	w = newTestWorker(t, func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
		mu.Lock()
		defer mu.Unlock()
		_, done := told[key]
		if at, ok := ready[key]; done || ok && time.Since(begun) >= at {
			w.Debouncer.Reset(key)
			return 0, nil
		}
		if delay := w.Debouncer.Delay(key); delay > 0 {
			return delay, nil
		}
		told[key] = time.Since(begun)
		w.Debouncer.Reset(key)
		return 0, nil
	})
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	for _, key := range keys {
		w.Enqueue(key)
		// The workqueue's order of delays that end at the same time is arbitrary.
		time.Sleep(time.Microsecond)
	}
	for key, at := range ready {
		time.AfterFunc(at, func() { w.Enqueue(key) })
	}
	time.Sleep(2 * time.Minute)
	synctest.Wait()
	cancel()
	running.Wait()
	if len(w.Debouncer.waiting)+len(w.Queue.keys.next) > 0 {
		t.Errorf("rule 23: left over: %v, %v", w.Debouncer.waiting, w.Queue.keys.next)
	}
	return told
}

// keysOf returns that many keys of a namespace.
func keysOf(namespace string, count int) (keys []cache.ObjectName) {
	for i := range count {
		keys = append(keys, cache.NewObjectName(namespace, fmt.Sprintf("foo-%d", i)))
	}
	return keys
}

// times returns when the keys reported, in order.
func times(told map[cache.ObjectName]time.Duration, keys []cache.ObjectName) (sorted []time.Duration) {
	for _, key := range keys {
		if at, ok := told[key]; ok {
			sorted = append(sorted, at)
		}
	}
	slices.Sort(sorted)
	return sorted
}

// TestProgressBudget: reports of progress share a budget of 4 a second with a burst of 10.
func TestProgressBudget(t *testing.T) {
	const second = time.Second
	for name, test := range map[string]struct {
		keys []cache.ObjectName
		// ready is the number of keys that need no report any more after readyAt.
		ready   int
		readyAt time.Duration
		reports int
		// want is when some of the reports come.
		want map[int]time.Duration
	}{
		"rule 13: one Foo alone reports after a second": {
			keys: keysOf("ns", 1), reports: 1, want: map[int]time.Duration{0: second}},
		"rule 13: a burst of ten reports after a second, then four report a second": {
			keys: keysOf("ns", 30), reports: 30,
			want: map[int]time.Duration{9: second, 10: second + second/4, 11: second + second/2, 13: 2 * second, 29: 6 * second}},
		"rule 13: a report waits for 30 seconds at most": {
			keys: keysOf("ns", 200), reports: 200,
			want: map[int]time.Duration{10: second + second/4, 124: 29*second + 3*second/4, 126: 30 * second, 199: 30 * second}},
		"rule 13: what is ready by then needs no report, and leaves its token to others": {
			keys: keysOf("ns", 100), ready: 90, readyAt: 1900 * time.Millisecond, reports: 23,
			want: map[int]time.Duration{9: second, 12: second + 3*second/4, 13: 2 * second, 22: 4*second + second/4}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ready := map[cache.ObjectName]time.Duration{}
				for _, key := range test.keys[:test.ready] {
					ready[key] = test.readyAt
				}
				got := times(runProgress(t, test.keys, ready), test.keys)
				if len(got) != test.reports {
					t.Fatalf("%d reports, want %d", len(got), test.reports)
				}
				for i, want := range test.want {
					if got[i].Round(time.Millisecond) != want {
						t.Errorf("report %d came after %v, want %v", i, got[i], want)
					}
				}
			})
		})
	}
}

// TestProgressTurns: a thousand objects in one namespace do not delay the reports of others.
func TestProgressTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		crowd, few := keysOf("crowd", 1000), keysOf("few", 4)
		got := times(runProgress(t, slices.Concat(crowd, few), nil), few)
		// The burst goes to those that came first; then the namespaces get each second token.
		for i, at := range got {
			if at.Round(time.Millisecond) > time.Second+time.Duration(i+1)*time.Second/2 {
				t.Errorf("rule 13: report %d of the small namespace came after %v", i, at)
			}
		}
		if len(got) != len(few) {
			t.Errorf("rule 13: %d reports, want %d", len(got), len(few))
		}
	})
}

// TestProgressAfterAPause: the workers were busy while the budget grew.
func TestProgressAfterAPause(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, keys := newTestDebouncer(t), keysOf("ns", 6)
		for _, key := range keys {
			d.Delay(key)
		}
		time.Sleep(progressDelay)
		spend(d)
		for _, key := range keys {
			d.Delay(key)
		}
		time.Sleep(time.Second)
		if delay := d.Delay(keys[0]); delay != 0 {
			t.Errorf("rule 13: the first report waits for another %v", delay)
		}
		synctest.Wait()
		if got := d.queue.Len(); got != progressQPS {
			t.Errorf("rule 13: %d keys are in the queue when %d may report", got, progressQPS)
		}
	})
}

// TestProgressOfALimitedNamespace: the key whose turn it is waits, because its namespace is limited
// (rule 25), and the next one does not wait for it.
func TestProgressOfALimitedNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d, waits, other := newTestDebouncer(t), testKey("waits"), cache.NewObjectName("other", "foo")
		for _, key := range []cache.ObjectName{waits, other} {
			d.Delay(key)
		}
		time.Sleep(progressDelay)
		spend(d)
		for _, key := range []cache.ObjectName{waits, other} {
			d.Delay(key)
		}
		time.Sleep(time.Second)
		if delay := d.Delay(other); delay != 0 {
			t.Errorf("rule 25: the report of another namespace waits for %v", delay)
		}
		synctest.Wait()
		if got := d.queue.Len(); got != 2 {
			t.Errorf("%d keys are in the queue, want 2", got)
		}
	})
}

// TestProgressComesLast: keys that wait to report progress come after all others.
func TestProgressComesLast(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newTestDebouncer(t)
		d.Delay(testKey("reports"))
		d.queue.AddAfter(testKey("reports"), progressDelay)
		d.Delay(testKey("changed"))
		d.queue.AddAfter(testKey("changed"), progressDelay)
		time.Sleep(progressDelay)
		synctest.Wait()
		for i := range 20 {
			d.queue.Add(testKey(fmt.Sprintf("old-%02d", i)))
		}
		d.queue.AddHighPriority(testKey("changed"))
		d.queue.AddHighPriority(testKey("new"))
		want := "changed new old-00 old-01 old-02 old-03 old-04 old-05 old-06 old-07 old-08 old-09 old-10 old-11 old-12 old-13 old-14 old-15 old-16 old-17 old-18 old-19 reports"
		if got := next(d.queue, 23); got != want {
			t.Errorf("rule 13: the order is %s", got)
		}
	})
}

// TestProgressUnderLoad keeps all workers busy for ever with other keys, which are always in
// the queue.
func TestProgressUnderLoad(t *testing.T) {
	for name, enqueue := range map[string]func(*Worker, cache.ObjectName){
		"rule 13: a report does not wait for the end of all events": func(w *Worker, key cache.ObjectName) { w.Enqueue(key) },
		"rule 13: nor for the end of all other work":                func(w *Worker, key cache.ObjectName) { w.Queue.Add(key) },
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				const took = 10 * time.Millisecond
				ctx, cancel := context.WithCancel(t.Context())
				begun, work, reports := time.Now(), keysOf("work", 10), keysOf("reports", 200)
				var mu sync.Mutex
				told := map[cache.ObjectName]time.Duration{}
				var w *Worker
				w = newTestWorker(t, func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
					time.Sleep(took)
					if key.Namespace == "work" {
						if ctx.Err() == nil {
							enqueue(w, key)
						}
						return 0, nil
					}
					if delay := w.Debouncer.Delay(key); delay > 0 {
						return delay, nil
					}
					w.Debouncer.Reset(key)
					mu.Lock()
					defer mu.Unlock()
					told[key] = time.Since(begun)
					return 0, nil
				})
				var running sync.WaitGroup
				running.Go(func() {
					if err := w.Run(ctx); err != nil {
						t.Error(err)
					}
				})
				synctest.Wait()
				for _, key := range slices.Concat(work, reports) {
					w.Enqueue(key)
				}
				time.Sleep(time.Minute)
				cancel()
				running.Wait()
				// Every eighth key is none of an event.
				latest := maxProgressDelay + time.Duration(8*(len(work)+len(reports)))*took
				for _, key := range reports {
					if at, ok := told[key]; !ok || at > latest {
						t.Errorf("%s reported after %v, want at most %v", key.Name, at, latest)
					}
				}
			})
		})
	}
}
