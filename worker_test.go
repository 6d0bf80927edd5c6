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
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"

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
		if !f.Queue.ShuttingDown() {
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
				f.keeper.Client = slow
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
