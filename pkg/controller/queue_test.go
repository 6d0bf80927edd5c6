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

// TestQueueReleasesMemory is rule 23: a Go map never shrinks.
func TestQueueReleasesMemory(t *testing.T) {
	for keys, kept := range map[int]bool{manyKeys: true, manyKeys + 1: false} {
		q := newTestQueue(t)
		low := &q.keys.low
		pointers := func() [2]uintptr {
			return [2]uintptr{reflect.ValueOf(low.keys).Pointer(), reflect.ValueOf(low.namespaces).Pointer()}
		}
		before := pointers()
		for i := range keys {
			q.Add(cache.NewObjectName(fmt.Sprint(i), "foo"))
		}
		for q.Len() > 0 {
			key, _ := q.Get()
			q.Done(key)
		}
		if after := pointers(); (after[0] == before[0]) != kept || (after[1] == before[1]) != kept || low.most > 0 != kept {
			t.Errorf("rule 23: after %d keys the maps were %v and are %v, kept should be %v", keys, before, after, kept)
		}
	}
}

// TestWorkerPriorities: keys of the initial list, of delays and of retries have low
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
		}, func(o *WorkerOptions) { o.Workers = 1 })
		w.Enqueue(testKey("first"))
		w.Enqueue(testKey("initial"))
		stop := run(t, w)
		w.Queue.AddAfter(testKey("delayed"), time.Second)
		time.Sleep(time.Second)
		w.Enqueue(testKey("changed"))
		w.Enqueue(testKey("fails"))
		close(blocked)
		time.Sleep(minBackoff)
		stop()
		if want := []string{"first", "changed", "fails", "initial", "delayed", "fails"}; !slices.Equal(order, want) {
			t.Errorf("the order is %v, not %v", order, want)
		}
	})
}

func TestRefusalsShareABucket(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b, failed := newBackoff(clock.RealClock{}), 0
		expect := func(sentence, namespace string, want time.Duration) {
			t.Helper()
			// A first failure has a delay of 5 ms of its own.
			failed++
			key := cache.NewObjectName(namespace, fmt.Sprint(failed))
			if got := b.next(key, errQuota()).Round(time.Millisecond); got != max(want, minBackoff) {
				t.Errorf("rule 25: %s: delay %v, want %v", sentence, got, want)
			}
		}
		for range refusalBurst {
			expect("a hundred refusals have no delay", "ns", 0)
		}
		expect("another namespace has a bucket of its own", "other", 0)
		for i := range 5 * 60 * refusalQPS {
			expect("then each waits for its token", "ns", time.Duration(i+1)*100*time.Millisecond)
		}
		for range 1000 {
			expect("a refusal waits for 5 minutes at most, and takes no token then", "ns", 5*time.Minute)
		}
		time.Sleep(time.Second)
		expect("ten tokens come back in a second", "ns", 5*time.Minute-900*time.Millisecond)
		for i := range 2 * maxBuckets {
			expect("so do many namespaces", fmt.Sprint("ns-", i), 0)
		}
		if got := b.buckets.Len(); got != maxBuckets {
			t.Errorf("rule 23: %d namespaces are remembered", got)
		}
	})
}

func TestStatusDebouncer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		d := newStatusDebouncer(clock.RealClock{})
		expect := func(sentence string, foo int, want time.Duration) {
			t.Helper()
			if got := d.Delay(testKey(fmt.Sprint(foo))); got != want {
				t.Errorf("rule 13: %s: delay %v of Foo %d, want %v", sentence, got, foo, want)
			}
		}
		for i := range 1001 {
			expect("the first sync notes the time", i, time.Second)
		}
		time.Sleep(300 * time.Millisecond)
		expect("a sync before the second is over waits for the rest", 0, 700*time.Millisecond)
		d.Reset(testKey("0"))
		expect("a write or the end of the Foo drops the note", 0, time.Second)
		time.Sleep(time.Second)
		for i := range 1001 {
			wait := max(0, time.Duration(i-9)*time.Second/4)
			expect("past the second the first ten write, then four a second, each after 30 seconds at most", i, min(wait, 29*time.Second))
		}
		expect("and so does any later one, with the token that it has", 0, 0)
		first := reflect.ValueOf(d.waits).Pointer()
		for i := range 1001 {
			d.Reset(testKey(fmt.Sprint(i)))
		}
		if d.Reset(testKey("unknown")); len(d.waits) > 0 || reflect.ValueOf(d.waits).Pointer() == first {
			t.Errorf("rule 23: remembered after the wait: %v", d.waits)
		}
	})
}
