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
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/go-logr/logr"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
)

func testKey(name string) cache.ObjectName {
	return cache.NewObjectName("ns", name)
}

// newTestWorker returns a Worker with two goroutines that calls sync for each key. The
// caller is in a synctest bubble.
func newTestWorker(t *testing.T, sync SyncFunc, change ...func(*WorkerOptions)) *Worker {
	t.Helper()
	options := WorkerOptions{Clock: clock.RealClock{}, Metrics: NewMetrics(metrics.NewKubeRegistry()), Workers: 2, GracePeriod: 10 * time.Second}
	for _, c := range change {
		c(&options)
	}
	w := NewWorker("Foo", options)
	w.Handle(metav1.NamespaceAll, sync)
	t.Cleanup(w.Queue.ShutDown)
	return w
}

// run runs the Worker until the function that it returns is called.
func run(t *testing.T, w *Worker) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logr.Discard()))
	var running sync.WaitGroup
	running.Go(func() {
		if err := w.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	synctest.Wait()
	return func() {
		synctest.Wait()
		cancel()
		running.Wait()
	}
}

// answer returns a sync that always returns the same.
func answer(again time.Duration, err error) SyncFunc {
	return func(context.Context, cache.ObjectName) (time.Duration, error) { return again, err }
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
	return apierrors.NewForbidden(testDeployments(), "web", errors.New("exceeded quota"))
}

func errTerminating() error {
	err := apierrors.NewForbidden(testDeployments(), "web", errors.New("namespace is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return fmt.Errorf("creating: %w", err)
}

func errorsIn(logger klog.Logger) (messages []string) {
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		if entry.Type == ktesting.LogError {
			messages = append(messages, strings.TrimSpace(fmt.Sprintln(append([]any{entry.Message}, entry.ParameterKVList...)...)))
		}
	}
	return messages
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
		"the key waits for an event":                                  {result: "success"},
		"the key is enqueued after the delay that the sync asked for": {again: time.Second, after: time.Second, result: "requeue"},
		"rule 12: a success ends the backoff, however soon the next sync follows": {
			failures: 3, again: StaleCacheDelay, after: StaleCacheDelay, result: "requeue"},
		"rule 12: a sync that waits for the caches does not end the backoff, and logs no error": {
			failures: 3, err: fmt.Errorf("wrapped: %w", ErrStaleCache), retries: 3, after: StaleCacheDelay, result: "requeue"},
		"rule 12: an error is logged and tried again with backoff": {
			err: oops, retries: 1, after: minBackoff},
		"rule 12: a conflict is tried again without an error in the log": {
			err: apierrors.NewConflict(testDeployments(), "web", errors.New("changed")), retries: 1, after: minBackoff, result: "conflict"},
		"rule 12: Retry-After is honoured up to 5 minutes": {
			err: apierrors.NewTooManyRequests("later", 3600), retries: 1, after: 5 * time.Minute},
		"rule 12: the longest Retry-After of all joined errors is honoured": {
			err:     errors.Join(errQuota(), fmt.Errorf("creating: %w", errors.Join(apierrors.NewTooManyRequests("later", 7), apierrors.NewTooManyRequests("later", 9)))),
			retries: 1, after: 9 * time.Second},
		"rule 12: a sync's own time is respected beside an error if it comes before the end of the backoff": {
			failures: 10, again: time.Second, err: oops, retries: 11, after: time.Second},
		"rule 12: the backoff is respected if it ends before a sync's own time": {
			again: time.Hour, err: oops, retries: 1, after: minBackoff},
		"rule 12: a sync's own time does not end Retry-After": {
			again: time.Second, err: apierrors.NewTooManyRequests("later", 7), retries: 1, after: 7 * time.Second},
		"rule 11: a sync in a terminating namespace succeeds": {failures: 3, again: time.Second, err: errTerminating(), result: "success"},
		"rule 11: a refused Foo waits for 5 minutes at most": {
			failures: 30, err: errQuota(), retries: 31, after: maxBackoff},
		"rule 12: an API server that comes back is found within 30 seconds": {
			failures: 30, err: oops, retries: 31, after: maxTransientBackoff},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newTestWorker(t, answer(test.again, test.err))
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
				var logged []string
				if test.result == "" {
					test.result = "error"
					logged = []string{fmt.Sprintf("Syncing Foo failed, trying again failures %d", test.retries)}
				}
				if got := errorsIn(logger); !slices.Equal(got, logged) {
					t.Errorf("errors in the log: %q, want %q", got, logged)
				}
				if got, err := testutil.GetHistogramMetricCount(w.options.Metrics.syncs.WithLabelValues("foo", test.result)); got != 1 || err != nil {
					t.Errorf("%d syncs with the result %s, error %v, want 1", got, test.result, err)
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
		}, func(o *WorkerOptions) { o.Workers = 1 })
		stop := run(t, w)
		for range 5 {
			w.Enqueue(testKey("foo"))
			time.Sleep(time.Second)
			synctest.Wait()
		}
		w.Enqueue(testKey("refused"))
		time.Sleep(time.Minute)
		w.Enqueue(testKey("foo"))
		synctest.Wait()
		w.Enqueue(testKey("refused"))
		time.Sleep(5*time.Minute - time.Second)
		if want := []string{"refused at 5s", "foo at 7s", "foo at 1m5s", "refused at 1m5s", "refused at 5m5s"}; !slices.Equal(synced[1:], want) {
			t.Errorf("rule 12: synced %q, want %q", synced[1:], want)
		}
		stop()
		w.retryAfter.Range(func(key, until any) bool {
			t.Errorf("rule 23: remembered for ever: %v until %v", key, until)
			return true
		})
	})
}

// TestAwaitInformers: an informer that does not stop is not waited for.
func TestAwaitInformers(t *testing.T) {
	for takes, want := range map[time.Duration]time.Duration{time.Second: time.Second, time.Minute: informerStopTimeout} {
		synctest.Test(t, func(t *testing.T) {
			begun := time.Now()
			if AwaitInformers(t.Context(), func() { time.Sleep(takes) }); time.Since(begun) != want {
				t.Errorf("rule 20: it took %s, want %s", time.Since(begun), want)
			}
			time.Sleep(time.Minute)
		})
	}
}

func TestEarliest(t *testing.T) {
	now := time.Now()
	for sentence, test := range map[string]struct {
		times []time.Time
		want  time.Duration
	}{
		"nothing waits":                 {[]time.Time{{}, {}}, 0},
		"the earliest comes first":      {[]time.Time{now.Add(2), {}, now.Add(3)}, 2},
		"a time that has passed is now": {[]time.Time{now.Add(2), now.Add(-2)}, 1},
	} {
		if got := Earliest(now, test.times...); got != test.want {
			t.Errorf("%s: %v, want %v", sentence, got, test.want)
		}
	}
}
