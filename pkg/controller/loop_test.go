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
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/namespaces"
)

func testKey(name string) cache.ObjectName {
	return cache.NewObjectName("ns", name)
}

// newTestLoop returns a Loop with two workers. The caller is in a synctest bubble.
func newTestLoop(t *testing.T, sync SyncFunc, change ...func(*Options)) *Loop {
	t.Helper()
	options := Options{Clock: clock.RealClock{}, Metrics: NewMetrics(metrics.NewKubeRegistry()), Workers: 2, GracePeriod: 10 * time.Second}
	for _, c := range change {
		c(&options)
	}
	l := NewLoop("Foo", sync, Caches{}, options)
	t.Cleanup(l.Queue.ShutDown)
	return l
}

// TestCaughtUpInItsNamespace: how far the cache of another namespace has come says nothing.
func TestCaughtUpInItsNamespace(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		members := map[string]cache.SharedIndexInformer{}
		for namespace, version := range map[string]string{"behind": "5", "ns": "7", "ahead": "9"} {
			members[namespace] = cache.NewSharedIndexInformer(&cache.ListWatch{}, nil, 0, cache.Indexers{})
			members[namespace].GetStore().Bookmark(version)
		}
		l := newTestLoop(t, answer(0, nil))
		l.caches = Caches{Parents: namespaces.Merge(members), Children: namespaces.Merge(members)}
		for kin := range kinds {
			for version, want := range map[string]bool{"6": true, "7": true, "8": false} {
				l.Gate.Lose()
				l.Gate.Wrote(testKey("foo"), kin, version)
				if got := l.CaughtUp(testKey("foo")); got != want {
					t.Errorf("rule 14: caught up with version %s of cache %d: %v, want %v", version, kin, got, want)
				}
			}
		}
	})
}

// answer is a sync that always comes to the same.
func answer(again time.Duration, err error) SyncFunc {
	return func(context.Context, cache.ObjectName) (time.Duration, error) { return again, err }
}

// woken returns the names in the queue once that much time has passed.
func woken(l *Loop, after time.Duration) (names []string) {
	time.Sleep(after)
	synctest.Wait()
	for l.Queue.Len() > 0 {
		key, _ := l.Queue.Get()
		l.Queue.Done(key)
		names = append(names, key.Name)
	}
	return names
}

func TestStoppedWorkerTakesNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t, func(context.Context, cache.ObjectName) (time.Duration, error) {
			t.Error("rule 20: a key is synced after the stop")
			return 0, nil
		})
		ctx, cancel := context.WithCancel(t.Context())
		l.Queue.Add(testKey("foo"))
		cancel()
		if !l.processNextWorkItem(ctx, context.WithoutCancel(ctx)) {
			t.Error("the worker says that no more keys will come")
		}
	})
}

// TestSyncTimeout is about a server that never answers.
func TestSyncTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t, func(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
			<-ctx.Done()
			return 0, ctx.Err()
		})
		l.Queue.Add(testKey("foo"))
		begun := time.Now()
		l.processNextWorkItem(t.Context(), t.Context())
		if took := time.Since(begun); took != SyncTimeout {
			t.Errorf("rule 12: the worker was held for %v, want %v", took, SyncTimeout)
		}
	})
}

func TestPanicBecomesAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t, func(context.Context, cache.ObjectName) (time.Duration, error) { panic("oops") })
		_, err := l.syncRecovered(t.Context(), testKey("foo"))
		if err == nil || !strings.HasPrefix(err.Error(), "panic: oops\n") || !strings.Contains(err.Error(), "loop_test.go") {
			t.Errorf("rule 18: a panic became the error %v, want one with its stack", err)
		}
		if got, err := testutil.GetCounterMetricValue(l.options.Metrics.panics.WithLabelValues("foo")); got != 1 || err != nil {
			t.Errorf("rule 18: %v panics counted, error %v, want 1", got, err)
		}
	})
}

var deployments = schema.GroupResource{Group: "apps", Resource: "deployments"}

func errQuota() error {
	return apierrors.NewForbidden(deployments, "web", errors.New("exceeded quota"))
}

func errorsIn(logger klog.Logger) (messages []string) {
	for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
		if entry.Type == ktesting.LogError {
			messages = append(messages, entry.Message)
		}
	}
	return messages
}

func TestWorker(t *testing.T) {
	const failed = "Syncing Foo failed, trying again"
	tests := map[string]struct {
		// failures are those before.
		failures int
		again    time.Duration
		err      error
		// retries is the number of failures that the queue counts afterwards.
		retries int
		// after is when the key is in the queue again.
		after  time.Duration
		logged []string
	}{
		"nothing is to be done until something happens": {},
		"what the sync asked for is done":               {again: time.Second, after: time.Second},
		"rule 12: a success ends the backoff":           {failures: 3},
		"rule 12: an error is logged and tried again with backoff": {
			err: apierrors.NewInternalError(errors.New("oops")), retries: 1, after: MinBackoff, logged: []string{failed}},
		"rule 12: the delay doubles": {
			failures: 3, err: apierrors.NewInternalError(errors.New("oops")), retries: 4, after: 8 * MinBackoff, logged: []string{failed}},
		"rule 12: a conflict is tried again without an error in the log": {
			err: apierrors.NewConflict(deployments, "web", errors.New("changed")), retries: 1, after: MinBackoff},
		"rule 8: a cache that is behind is tried again without an error in the log": {
			err: fmt.Errorf("reading: %w", ErrCacheBehind), retries: 1, after: MinBackoff},
		"rule 12: Retry-After is honoured": {
			err: apierrors.NewTooManyRequests("later", 7), retries: 1, after: 7 * time.Second, logged: []string{failed}},
		"rule 11: a refusal is tried again with backoff": {
			err: errQuota(), retries: 1, after: MinBackoff, logged: []string{failed}},
		"rule 11: a refused Foo waits for 5 minutes at most": {
			failures: 30, err: errQuota(), retries: 31, after: MaxBackoff, logged: []string{failed}},
		"rule 12: an API server that comes back is found within 30 seconds": {
			failures: 30, err: apierrors.NewInternalError(errors.New("oops")), retries: 31, after: MaxTransientBackoff, logged: []string{failed}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newTestLoop(t, answer(test.again, test.err))
				logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
				ctx := klog.NewContext(t.Context(), logger)
				for range test.failures {
					l.backoff.When(testKey("foo"))
				}
				l.Queue.Add(testKey("foo"))
				if !l.processNextWorkItem(ctx, ctx) {
					t.Error("the worker says that no more keys will come")
				}
				if got := l.Queue.NumRequeues(testKey("foo")); got != test.retries {
					t.Errorf("%d failures counted, want %d", got, test.retries)
				}
				if got := errorsIn(logger); !slices.Equal(got, test.logged) {
					t.Errorf("errors in the log: %q, want %q", got, test.logged)
				}
				if test.after == 0 {
					if got := woken(l, time.Hour); len(got) > 0 {
						t.Errorf("in the queue again: %q", got)
					}
					return
				}
				if got := woken(l, test.after-1); len(got) > 0 {
					t.Errorf("in the queue too early: %q", got)
				}
				if got := woken(l, 1); !slices.Equal(got, []string{"foo"}) {
					t.Errorf("in the queue after %v: %q", test.after, got)
				}
			})
		})
	}
}

// TestLogTellsWhatIsSynced looks at what a sync logs.
func TestLogTellsWhatIsSynced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx, cancel := context.WithCancel(klog.NewContext(t.Context(), logger))
		l := newTestLoop(t, func(ctx context.Context, _ cache.ObjectName) (time.Duration, error) {
			klog.FromContext(ctx).Info("Syncing")
			cancel()
			return 0, nil
		})
		l.Queue.Add(testKey("foo"))
		if err := l.Run(ctx); err != nil {
			t.Error(err)
		}
		if got, want := logger.GetSink().(ktesting.Underlier).GetBuffer().String(), `Syncing controller="foo" foo="ns/foo"`; !strings.Contains(got, want) {
			t.Errorf("log %s\nwant in it: %s", got, want)
		}
	})
}

func TestBackoffIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t, answer(0, nil))
		for range 100 {
			l.Queue.AddRateLimited(testKey("foo"))
			if got := woken(l, MaxBackoff); len(got) != 1 {
				t.Fatal("rule 11: a failed Foo waits for more than 5 minutes")
			}
		}
	})
}

func TestParentUpdated(t *testing.T) {
	parent := func(version, uid string, generation int64) *metav1.PartialObjectMetadata {
		return &metav1.PartialObjectMetadata{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo", ResourceVersion: version, UID: types.UID(uid), Generation: generation}}
	}
	tests := map[string]struct {
		resync  bool
		changed *metav1.PartialObjectMetadata
		wakes   bool
		// forgets are what was written for it and how often it failed.
		forgetsWrites, forgetsFailures bool
	}{
		"rule 19: a relist wakes nobody":                                 {changed: parent("1", "a", 1)},
		"rule 19: a resync that was asked for wakes the parent":          {resync: true, changed: parent("1", "a", 1), wakes: true},
		"rule 19: a new status wakes the parent and changes nothing":     {changed: parent("2", "a", 1), wakes: true},
		"rule 11: a new generation is not held back by earlier failures": {changed: parent("2", "a", 2), wakes: true, forgetsFailures: true},
		"rule 21: a parent made anew inherits nothing":                   {changed: parent("2", "b", 1), wakes: true, forgetsWrites: true, forgetsFailures: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := newTestLoop(t, answer(0, nil), func(o *Options) { o.Resync = test.resync })
				l.backoff.When(testKey("foo"))
				l.Gate.Wrote(testKey("foo"), Parents, "11")
				changed := test.changed.ResourceVersion != "1"
				if got := l.ParentUpdated(parent("1", "a", 1), test.changed); got != changed {
					t.Errorf("reported %v, want %v", got, changed)
				}
				if got := l.Gate.CaughtUp(testKey("foo"), Versions{"10", "10"}); got != test.forgetsWrites {
					t.Errorf("writes forgotten: %v, want %v", got, test.forgetsWrites)
				}
				if got := l.Queue.NumRequeues(testKey("foo")) == 0; got != test.forgetsFailures {
					t.Errorf("failures forgotten: %v, want %v", got, test.forgetsFailures)
				}
				if got := woken(l, 0); len(got) == 1 != test.wakes {
					t.Errorf("woken: %q, want one: %v", got, test.wakes)
				}
			})
		})
	}
}

func TestParentDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t, answer(0, nil))
		l.backoff.When(testKey("foo"))
		l.Gate.Wrote(testKey("foo"), Parents, "11")
		l.ParentDeleted(testKey("foo"))
		if !l.Gate.CaughtUp(testKey("foo"), Versions{"10", "10"}) || l.Queue.NumRequeues(testKey("foo")) != 0 {
			t.Error("rule 14: what is known of a parent that is gone is not forgotten")
		}
		if got := woken(l, 0); len(got) != 1 {
			t.Errorf("woken: %q", got)
		}
	})
}

func TestSyncsAreMeasured(t *testing.T) {
	tests := map[string]struct {
		again time.Duration
		err   error
		want  string
	}{
		"nothing to wait for":           {want: resultSuccess},
		"a certain time to wait for":    {again: time.Second, want: resultRequeue},
		"a conflict is no error":        {err: apierrors.NewConflict(deployments, "web", nil), want: resultConflict},
		"an error":                      {err: errors.New("failed"), want: resultError},
		"an error with a time, as well": {again: time.Second, err: errors.New("failed"), want: resultError},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				underWay := 0
				var l *Loop
				l = newTestLoop(t, func(context.Context, cache.ObjectName) (time.Duration, error) {
					underWay = len(l.pulse.since)
					return test.again, test.err
				})
				l.Queue.Add(testKey("foo"))
				l.processNextWorkItem(t.Context(), t.Context())
				if underWay != 1 || len(l.pulse.since) != 0 {
					t.Errorf("%d syncs were under way during the only one, %d are afterwards", underWay, len(l.pulse.since))
				}
				if got, err := testutil.GetHistogramMetricCount(l.options.Metrics.syncs.WithLabelValues("foo", test.want)); got != 1 || err != nil {
					t.Errorf("%d syncs with the result %s, error %v, want 1", got, test.want, err)
				}
			})
		})
	}
}

func TestCheckWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := newTestLoop(t, answer(0, nil))
		l.pulse.began(testKey("a"), time.Now())
		time.Sleep(stuckAfter + time.Second)
		l.pulse.began(testKey("b"), time.Now())
		if err := l.CheckWorkers(); err != nil {
			t.Errorf("with one of two workers stuck: %v", err)
		}
		time.Sleep(stuckAfter)
		if err := l.CheckWorkers(); err != nil {
			t.Errorf("with the other as long at it as it may: %v", err)
		}
		time.Sleep(time.Second)
		if err := l.CheckWorkers(); err == nil || !strings.Contains(err.Error(), "all 2 workers") {
			t.Errorf("with both stuck: %v", err)
		}
		l.pulse.ended(testKey("a"))
		if err := l.CheckWorkers(); err != nil {
			t.Errorf("with one free again: %v", err)
		}
	})
}
