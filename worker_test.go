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

package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestRun follows one Foo through a running controller: from its watch event to
// the Deployment, from that one's event to the status, and then to rest.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, nil, nil)
		stop := f.start(ctx, t)

		foos := f.foo.SamplecontrollerV1alpha1().Foos(testNamespace)
		if _, err := foos.Create(ctx, newFoo(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		deployments := f.kube.AppsV1().Deployments(testNamespace)
		deployment, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		available(deployment)
		deployment.ResourceVersion = "2" // which the fake does not raise by itself
		if _, err := deployments.UpdateStatus(ctx, deployment, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()

		foo, err := foos.Get(ctx, "foo", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		differ(t, "status", "gen=1 available=1 replicas=1 True/DeploymentAvailable", summary(foo))
		differ(t, "events", []string{"Normal Created", "Normal Synced"}, f.recorded())

		f.kube.ClearActions()
		f.foo.ClearActions()
		time.Sleep(time.Hour)
		differ(t, "rule 15: requests in an hour without a change", []string(nil), f.requests())
		stop()
	})
}

// TestRunBeforeTheCachesAreFilled stops the controller while it waits.
func TestRunBeforeTheCachesAreFilled(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, nil, nil)
		ctx, cancel := context.WithCancel(ctx)
		result := make(chan error)
		go func() { result <- f.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-result; err == nil || !strings.Contains(err.Error(), "waiting for the caches to sync") {
			t.Errorf("Run returned %v", err)
		}
		if !f.queue.ShuttingDown() {
			t.Error("the queue still takes keys that nobody will work on")
		}
	})
}

// slowClient is a client whose creations of Deployments take a while, unless
// their context ends before. (A reactor of the fake clientset gets no context
// and holds up all other requests.)
type slowClient struct {
	kubernetes.Interface
	typedappsv1.AppsV1Interface
	typedappsv1.DeploymentInterface

	takes time.Duration
	// done and cut count the creations that came to an end, and that did not.
	done, cut atomic.Int32
}

func newSlowClient(fast kubernetes.Interface, takes time.Duration) *slowClient {
	return &slowClient{Interface: fast, AppsV1Interface: fast.AppsV1(), DeploymentInterface: fast.AppsV1().Deployments(testNamespace), takes: takes}
}

func (c *slowClient) AppsV1() typedappsv1.AppsV1Interface { return c }

func (c *slowClient) Deployments(string) typedappsv1.DeploymentInterface { return c }

func (c *slowClient) RESTClient() rest.Interface { return c.AppsV1Interface.RESTClient() }

func (c *slowClient) Create(ctx context.Context, deployment *appsv1.Deployment, options metav1.CreateOptions) (*appsv1.Deployment, error) {
	select {
	case <-time.After(c.takes):
		c.done.Add(1)
		return c.DeploymentInterface.Create(ctx, deployment, options)
	case <-ctx.Done():
		c.cut.Add(1)
		return nil, context.Cause(ctx)
	}
}

// TestShutdown is rule 20 with five Foos, two workers and creations of 3 or more
// seconds, told to stop after one second.
func TestShutdown(t *testing.T) {
	tests := map[string]struct {
		takes     time.Duration
		stopTakes time.Duration
		done, cut int32
	}{
		"rule 20: running syncs finish, waiting keys are not taken": {
			takes: 3 * time.Second, stopTakes: 2 * time.Second, done: 2},
		"rule 20: requests still running after the grace period are cancelled": {
			takes: 30 * time.Second, stopTakes: testGracePeriod, cut: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var foos []*v1alpha1.Foo
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					foos = append(foos, newFoo(fooNamed(name), wants(name)))
				}
				ctx, f := newFixture(t, foos, nil)
				slow := newSlowClient(f.kube, test.takes)
				f.kubeClient = slow
				stop := f.start(ctx, t)
				time.Sleep(time.Second)
				begun := time.Now()
				stop()
				if got := slow.done.Load(); got != test.done {
					t.Errorf("%d creations finished, want %d", got, test.done)
				}
				if got := slow.cut.Load(); got != test.cut {
					t.Errorf("%d creations were cut, want %d", got, test.cut)
				}
				if took := time.Since(begun); took != test.stopTakes {
					t.Errorf("stopping took %v, want %v", took, test.stopTakes)
				}
			})
		})
	}
}

func TestStoppedWorkerTakesNoKey(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, nil, nil)
		f.fill(t, []*v1alpha1.Foo{newFoo()}, nil)
		ctx, cancel := context.WithCancel(ctx)
		f.queue.Add(testKey("foo"))
		cancel()
		if !f.processNextWorkItem(ctx, context.WithoutCancel(ctx)) {
			t.Error("the worker says that no more keys will come")
		}
		differ(t, "rule 20: requests after the stop", []string(nil), f.requests())
	})
}

// TestSyncTimeout is about a server that never answers.
func TestSyncTimeout(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, nil, nil)
		f.fill(t, []*v1alpha1.Foo{newFoo()}, nil)
		slow := newSlowClient(f.kube, time.Hour)
		f.kubeClient = slow
		f.queue.Add(testKey("foo"))
		begun := time.Now()
		f.processNextWorkItem(ctx, ctx)
		if took := time.Since(begun); took != syncTimeout || slow.cut.Load() != 1 {
			t.Errorf("rule 12: the worker was held for %v, want %v", took, syncTimeout)
		}
	})
}

func TestPanicBecomesAnError(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, nil, nil)
		f.gate = nil // the first thing that a sync touches
		_, err := f.syncRecovered(ctx, testKey("foo"))
		if err == nil || !strings.HasPrefix(err.Error(), "panic: ") || !strings.Contains(err.Error(), "syncHandler") {
			t.Errorf("rule 18: a panic became the error %v, want one with its stack", err)
		}
		if got := count(t, f.metrics.panics); got != 1 {
			t.Errorf("rule 18: %v panics counted, want 1", got)
		}
	})
}

// worker is one call of processNextWorkItem, after that many failures, whose
// creation of a Deployment fails with err, and returns what was logged as an error.
func worker(t *testing.T, failures int, err error, inspect func(*fixture)) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		_, f := newFixture(t, []*v1alpha1.Foo{newFoo()}, nil)
		f.fill(t, []*v1alpha1.Foo{newFoo()}, nil)
		if err != nil {
			failing(&f.kube.Fake, "create", "deployments", err)
		}
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		ctx := klog.NewContext(t.Context(), logger)
		for range failures {
			f.backoff.When(testKey("foo"))
		}
		f.queue.Add(testKey("foo"))
		if !f.processNextWorkItem(ctx, ctx) {
			t.Error("the worker says that no more keys will come")
		}
		f.logged = errorsIn(logger)
		inspect(f)
	})
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
		failures int
		err      error
		// retries is the number of failures that the queue counts afterwards.
		retries int
		// after is when the Foo is in the queue again, and notBefore when not yet.
		after, notBefore time.Duration
		logged           []string
	}{
		"what the sync asked for is done": {
			after: progressDelay, notBefore: progressDelay - time.Millisecond},
		"rule 12: a success ends the backoff": {
			failures: 3, after: progressDelay, notBefore: progressDelay - time.Millisecond},
		"rule 12: an error is logged and tried again with backoff": {
			err: apierrors.NewInternalError(errors.New("oops")), retries: 1, after: minBackoff, notBefore: minBackoff - 1, logged: []string{failed}},
		"rule 12: a conflict is tried again without an error in the log": {
			err: errConflict(), retries: 1, after: minBackoff, notBefore: minBackoff - 1},
		"rule 8: a cache that is behind is tried again without an error in the log": {
			err: errCacheBehind, retries: 1, after: minBackoff, notBefore: minBackoff - 1},
		"rule 12: Retry-After is honoured": {
			err: apierrors.NewTooManyRequests("later", 7), retries: 1, after: 7 * time.Second, notBefore: 7*time.Second - 1, logged: []string{failed}},
		"rule 11: a refusal is tried again with backoff": {
			err: errQuota(), retries: 1, after: minBackoff, notBefore: minBackoff - 1, logged: []string{failed}},
		"rule 11: a terminating namespace is not tried again": {
			err: errTerminating(), notBefore: time.Hour},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			worker(t, test.failures, test.err, func(f *fixture) {
				if got := f.queue.NumRequeues(testKey("foo")); got != test.retries {
					t.Errorf("%d failures counted, want %d", got, test.retries)
				}
				differ(t, "errors in the log", test.logged, f.logged)
				differ(t, "in the queue too early", []string(nil), f.woken(test.notBefore))
				if test.after > 0 {
					differ(t, "in the queue", []string{"foo"}, f.woken(test.after-test.notBefore))
				}
			})
		})
	}
}

// TestBackoffOfManyFailures is about the cap of the delay between two tries.
func TestBackoffOfManyFailures(t *testing.T) {
	tests := map[string]struct {
		err error
		cap time.Duration
	}{
		"rule 11: a refused Foo waits for 5 minutes at most":                {errQuota(), maxBackoff},
		"rule 12: an API server that comes back is found within 30 seconds": {apierrors.NewInternalError(errors.New("oops")), maxTransientBackoff},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, []*v1alpha1.Foo{newFoo()}, nil)
				f.fill(t, []*v1alpha1.Foo{newFoo()}, nil)
				failing(&f.kube.Fake, "create", "deployments", test.err)
				for range 30 {
					f.backoff.When(testKey("foo"))
				}
				f.queue.Add(testKey("foo"))
				f.processNextWorkItem(ctx, ctx)
				differ(t, "in the queue too early", []string(nil), f.woken(test.cap-1))
				differ(t, "in the queue", []string{"foo"}, f.woken(1))
			})
		})
	}
}

func TestBackoffIsCapped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, f := newFixture(t, nil, nil)
		for range 100 {
			f.queue.AddRateLimited(testKey("foo"))
			time.Sleep(maxBackoff)
			synctest.Wait()
			if f.queue.Len() != 1 {
				t.Fatal("rule 11: a failed Foo waits for more than 5 minutes")
			}
			key, _ := f.queue.Get()
			f.queue.Done(key)
		}
	})
}

// TestPanic is rule 18 with a running controller: one Foo's sync panics, the
// other Foo goes on, and the first one is tried again.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := newFoo(fooNamed("bad"), wants("bad")), newFoo(fooNamed("good"), wants("good"))
		ctx, f := newFixture(t, []*v1alpha1.Foo{bad, good}, nil)
		var panics atomic.Int32
		f.kube.PrependReactor("create", "deployments", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.(clienttesting.CreateAction).GetObject().(*appsv1.Deployment).Name == "bad" && panics.Add(1) <= 3 {
				panic("three times")
			}
			return false, nil, nil
		})
		stop := f.start(ctx, t)
		time.Sleep(time.Minute)
		for _, name := range []string{"bad", "good"} {
			if _, err := f.kube.AppsV1().Deployments(testNamespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
				t.Errorf("rule 18: %v", err)
			}
		}
		if got := panics.Load(); got != 4 {
			t.Errorf("rule 18: %d tries, want 3 that panic and one that works", got)
		}
		stop()
	})
}
