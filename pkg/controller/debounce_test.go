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

	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/clock"
)

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
