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
	"cmp"
	"context"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
)

func testKey(name string) cache.ObjectName {
	return cache.NewObjectName("ns", name)
}

// newTestWorker returns a Worker with one goroutine that calls sync for each key. The
// caller is in a synctest bubble.
func newTestWorker(t *testing.T, sync SyncFunc) *Worker {
	w := NewWorker("Foo", WorkerOptions{Clock: clock.RealClock{}, Metrics: NewMetrics(metrics.NewKubeRegistry()), Workers: 1})
	w.Handle(metav1.NamespaceAll, sync)
	t.Cleanup(w.Queue.ShutDown)
	return w
}

// enqueued returns the names in the queue once that much time has passed.
func enqueued(w *Worker, after time.Duration) (names []string) {
	time.Sleep(after)
	synctest.Wait()
	for w.Queue.Len() > 0 {
		key, _ := w.Queue.Get()
		w.Queue.Done(key)
		names = append(names, key.Name)
	}
	return names
}

// TestSyncThatEndsBadly is about a server that never answers, and a panic.
func TestSyncThatEndsBadly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w, begun := newTestWorker(t, func(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
			<-ctx.Done()
			panic("oops")
		}), time.Now()
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		w.Queue.Add(testKey("foo"))
		w.processNextWorkItem(klog.NewContext(t.Context(), logger), t.Context())
		if took := time.Since(begun); took != syncTimeout {
			t.Errorf("rule 12: the worker was held for %v, want %v", took, syncTimeout)
		}
		log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
		if !strings.Contains(log, "panic: oops") || !strings.Contains(log, "worker_test.go") || !strings.Contains(log, `foo="ns/foo"`) {
			t.Errorf("rule 18: log %s, want the panic, its stack and the Foo", log)
		}
		if got, err := testutil.GetCounterMetricValue(w.options.Metrics.panics.WithLabelValues("foo")); got != 1 || err != nil {
			t.Errorf("rule 18: %v panics counted, error %v, want 1", got, err)
		}
	})
}

func errQuota() *apierrors.StatusError {
	return apierrors.NewForbidden(appsv1.Resource("deployments"), "web", errors.New("exceeded quota"))
}

func errTerminating() error {
	err := apierrors.NewForbidden(appsv1.Resource("deployments"), "web", errors.New("namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return fmt.Errorf("creating: %w", err)
}

func TestWorker(t *testing.T) {
	oops := apierrors.NewInternalError(errors.New("oops"))
	for name, test := range map[string]struct {
		// failures are those before, again and err what the sync returns.
		failures int
		again    time.Duration
		err      error
		// retries is the number of failures that the queue counts afterwards, after is when the key is in it again.
		retries int
		after   time.Duration
		// result is that in the metric. Without one it is an error, which is in the log with the number of failures.
		result string
	}{
		"rule 12: a success ends the backoff, however soon the next sync follows that it asked for": {
			failures: 3, again: StaleCacheDelay, after: StaleCacheDelay, result: "requeue"},
		"rule 12: a sync that waits for the caches does not end the backoff, and logs no error": {
			failures: 3, err: fmt.Errorf("wrapped: %w", ErrStaleCache), retries: 3, after: StaleCacheDelay, result: "requeue"},
		"rule 12: a conflict is tried again without an error in the log": {
			err: apierrors.NewConflict(appsv1.Resource("deployments"), "web", errors.New("changed")), retries: 1, after: minBackoff, result: "conflict"},
		"rule 12: Retry-After is honoured up to 5 minutes, whatever time of its own the sync has": {
			again: time.Second, err: apierrors.NewTooManyRequests("later", 3600), retries: 1, after: 5 * time.Minute},
		"rule 12: the longest Retry-After of all joined errors is honoured": {
			err:     errors.Join(errQuota(), fmt.Errorf("creating: %w", errors.Join(apierrors.NewTooManyRequests("later", 7), apierrors.NewTooManyRequests("later", 9)))),
			retries: 1, after: 9 * time.Second},
		"rule 12: a sync's own time is respected beside an error if it comes before the end of the backoff": {
			failures: 10, again: time.Second, err: oops, retries: 11, after: time.Second},
		"rule 12: the backoff is respected if it ends before a sync's own time": {
			again: time.Hour, err: oops, retries: 1, after: minBackoff},
		"rule 11: a sync in a terminating namespace succeeds": {failures: 3, again: time.Second, err: errTerminating(), result: "success"},
		"rule 11: a refused Foo waits for 5 minutes at most": {
			failures: 30, err: errQuota(), retries: 31, after: maxBackoff},
		"rule 12: an API server that comes back is found within 30 seconds": {
			failures: 30, err: oops, retries: 31, after: maxTransientBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorker(t, func(context.Context, cache.ObjectName) (time.Duration, error) { return test.again, test.err })
				logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
				ctx := klog.NewContext(t.Context(), logger)
				for range test.failures {
					w.backoff.When(testKey("foo"))
				}
				w.Queue.Add(testKey("foo"))
				if !w.processNextWorkItem(ctx, ctx) {
					t.Error("the worker reports that the queue is shut down")
				}
				if got := w.Queue.NumRequeues(testKey("foo")); got != test.retries {
					t.Errorf("%d failures counted, want %d", got, test.retries)
				}
				log := logger.GetSink().(ktesting.Underlier).GetBuffer().String()
				if want := fmt.Sprintf("failures=%d", test.retries); strings.Contains(log, want) != (test.result == "") {
					t.Errorf("the log is %s; an error with %s should be in it: %v", log, want, test.result == "")
				}
				if got, err := testutil.GetHistogramMetricCount(w.options.Metrics.syncs.WithLabelValues("foo", cmp.Or(test.result, "error"))); got != 1 || err != nil {
					t.Errorf("%d syncs with the result %q, error %v, want 1", got, test.result, err)
				}
				got, err := testutil.GetCounterMetricValue(w.options.Metrics.staleCacheSkips.WithLabelValues("foo"))
				if err != nil || (got == 1) != errors.Is(test.err, ErrStaleCache) {
					t.Errorf("rule 14: %v syncs counted that waited for the caches, error %v", got, err)
				}
				if got := enqueued(w, cmp.Or(test.after, time.Hour)-1); len(got) > 0 {
					t.Errorf("in the queue too early: %q", got)
				}
				if got := enqueued(w, 1); (len(got) == 1) != (test.after > 0) {
					t.Errorf("in the queue after %v: %q", test.after, got)
				}
			})
		})
	}
}

// TestEventsRespectRetryAfter: the events of an object do not end its Retry-After, and do
// not prolong it. Other objects are synced meanwhile. A refused one is synced at once.
func TestEventsRespectRetryAfter(t *testing.T) {
	refusal := errQuota()
	refusal.ErrStatus.Details.RetryAfterSeconds = 300
	synctest.Test(t, func(t *testing.T) {
		begun, synced := time.Now(), []string(nil)
		w := newTestWorker(t, func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
			synced = append(synced, fmt.Sprintf("%s at %v", key.Name, time.Since(begun)))
			switch {
			case key.Name == "refused":
				return 0, refusal
			case key.Name == "foo" && len(synced) == 1:
				return 0, fmt.Errorf("creating: %w", apierrors.NewTooManyRequests("later", 7))
			}
			return 0, nil
		})
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
		result := make(chan error)
		go func() { result <- w.Run(ctx) }()
		synctest.Wait()
		// The queue keeps the earlier one of two delays.
		w.Queue.AddAfter(testKey("foo"), 3*time.Second)
		for range 5 {
			w.Queue.AddHighPriority(testKey("foo"))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		w.Queue.AddHighPriority(testKey("refused"))
		time.Sleep(time.Minute)
		w.Queue.AddHighPriority(testKey("foo"))
		synctest.Wait()
		w.Queue.AddHighPriority(testKey("refused"))
		time.Sleep(5*time.Minute - time.Second)
		synctest.Wait()
		cancel()
		if err := <-result; err != nil {
			t.Error(err)
		}
		if want := []string{"refused at 5s", "foo at 7s", "foo at 1m5s", "refused at 1m5s", "refused at 5m5s"}; !slices.Equal(synced[1:], want) {
			t.Errorf("rule 12: synced %q, want %q", synced[1:], want)
		}
		w.retryAfter.Range(func(key, until any) bool {
			t.Errorf("rule 23: remembered for ever: %v until %v", key, until)
			return true
		})
	})
}

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
		"a key of high priority keeps its place":                                            {"a1 a2! a3! a2 a2!", "a2 a3 a1"},
		"rule 19: a key of low priority keeps its place":                                    {"a1 a2 a3! a2", "a3 a1 a2"},
		"a raised key has low priority the next time":                                       {"a1 a2 a3 a2! > < a2", "a2 a1 a3 a2"},
		"a key is raised while it is being synced":                                          {"a1 > a2 a1! <", "a1 a1 a2"},
		"a key is raised before it is added":                                                {"a1 a2^ a2", "a2 a1"},
		"rule 25: namespaces take turns, at each priority":                                  {"m1! m2! m3! f1! m4 m5 m6 f2", "m1 f1 m2 m3 m4 f2 m5 m6"},
		"rule 25: a namespace that comes back has its turn":                                 {"a1 b1 b2 > a2 <", "a1 b1 a2 b2"},
		"rule 25: the priority of a waiting key is raised, and its namespace loses no turn": {"a1 a2 b1 c1 a1! c1!", "a1 c1 a2 b1"},
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
		taken := 0
		for ; q.Len() > 0; taken++ {
			key, _ := q.Get()
			q.Done(key)
		}
		if after := pointers(); taken != keys || (after[0] == before[0]) != kept || (after[1] == before[1]) != kept || low.most > 0 != kept {
			t.Errorf("rule 23: after %d of %d keys the maps were %v and are %v, kept should be %v", taken, keys, before, after, kept)
		}
	}
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
		for i := range 5 * 60 * refusalQPS {
			expect("then each waits for its token", "ns", time.Duration(i+1)*100*time.Millisecond)
		}
		for range 1000 {
			expect("a refusal waits for 5 minutes at most, and takes no token then", "ns", 5*time.Minute)
		}
		time.Sleep(time.Second)
		expect("ten tokens come back in a second", "ns", 5*time.Minute-900*time.Millisecond)
		for i := range 2 * maxBuckets {
			expect("each namespace has a bucket of its own", fmt.Sprint("ns-", i), 0)
		}
		if got := b.buckets.Len(); got != maxBuckets {
			t.Errorf("rule 23: %d namespaces are remembered", got)
		}
	})
}

// TestDebouncerReleasesMemory is rule 23: a Go map never shrinks.
func TestDebouncerReleasesMemory(t *testing.T) {
	d := newStatusDebouncer(clock.RealClock{})
	first := reflect.ValueOf(d.waits).Pointer()
	d.Postpone(testKey("foo"))
	d.Postpone(testKey("bar"))
	if d.Reset(testKey("foo")); len(d.waits) != 1 {
		t.Errorf("rule 13: the end of one wait leaves %v", d.waits)
	}
	if d.Reset(testKey("bar")); len(d.waits) > 0 || reflect.ValueOf(d.waits).Pointer() == first {
		t.Errorf("rule 23: remembered after the wait: %v", d.waits)
	}
}
