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

package controller_test

import (
	"context"
	"errors"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/features"
	featurestesting "k8s.io/client-go/features/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
)

func terminate(foo *v1alpha1.Foo) { foo.DeletionTimestamp = ptr.To(metav1.Now()) }

func TestCheckLive(t *testing.T) {
	for sentence, test := range map[string]struct {
		change func(*cluster, *v1alpha1.Foo)
		fails  func(error) bool
	}{
		"rule 3: the status has changed": {func(_ *cluster, foo *v1alpha1.Foo) { foo.Status.Replicas = 7 }, nil},
		"rule 3: another generation":     {func(_ *cluster, foo *v1alpha1.Foo) { foo.Generation++ }, apierrors.IsConflict},
		"rule 3: made anew":              {func(_ *cluster, foo *v1alpha1.Foo) { foo.UID = "anew" }, apierrors.IsConflict},
		"rule 3: terminating":            {func(_ *cluster, foo *v1alpha1.Foo) { terminate(foo) }, apierrors.IsConflict},
		"rule 12: unknown": {func(c *cluster, _ *v1alpha1.Foo) {
			c.answer = refuse("get", apierrors.NewInternalError(errors.New("oops")))
		}, apierrors.IsInternalError},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				live := c.foo.DeepCopy()
				test.change(c, live)
				c.store(foos, live, nil)
				c.expect(c.foos.CheckLive(c.ctx, c.foo), test.fails, readFoo)
			})
		})
	}
}

// TestPresentVersion is invariant S6: no write applies a spec older than one that was applied before.
func TestPresentVersion(t *testing.T) {
	unavailable := apierrors.NewServiceUnavailable("starting")
	for sentence, test := range map[string]struct {
		// present is the answer to the second of two requests, foosAt the version of the cache.
		present string
		err     error
		foosAt  string
		// readsFoo says that each write reads the Foo live before.
		readsFoo bool
	}{
		"rule 22: the cache has not reached the present version": {"100", nil, "99", true},
		"rule 22: the cache has reached the present version":     {"100", nil, "100", false},
		"rule 22: the present version is unknown":                {"", nil, "100", true},
		"rule 22: the version of the cache is unknown":           {"100", nil, "", true},
		"rule 20: the end of the lease ends the requests":        {"100", unavailable, "100", true},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.present = func() (string, error) { return "", nil }
				c.foos.ReadPresent(c.ctx)
				calls := 0
				c.present = func() (string, error) {
					if calls++; calls == 1 {
						return "1", unavailable
					}
					return test.present, test.err
				}
				ctx, cancel := context.WithTimeout(c.ctx, time.Minute)
				defer cancel()
				begun := time.Now()
				if c.foos.ReadPresent(ctx); test.err == nil && (calls != 2 || time.Since(begun) != time.Second) {
					t.Errorf("%d requests in %v, want one a second until the API server answers", calls, time.Since(begun))
				}
				c.drift(scale(5))
				if test.foosAt == "" {
					featurestesting.SetFeatureDuringTest(c.T, features.AtomicFIFO, false)
				}
				c.fooStore.Bookmark(test.foosAt)
				want := []string{rescale(11)}
				if test.readsFoo {
					want = []string{readFoo, rescale(11)}
				}
				_, err := c.deployments.Apply(c.ctx, c.foo, c.deployments.Get("ns", "web"), c.desired)
				c.expect(err, nil, want...)
				newer := c.foo.DeepCopy()
				newer.Generation++
				c.store(foos, newer, nil)
				time.Sleep(time.Second)
				if _, err := c.deployments.Create(c.ctx, c.foo, c.desired(c.foo)); apierrors.IsConflict(err) != test.readsFoo {
					t.Errorf("error %v of a creation for a Foo that a former leader has seen changed", err)
				}
			})
		})
	}
}

func TestEventsOfOwners(t *testing.T) {
	key := cache.NewObjectName("ns", "foo")
	// sends sends a status, and then that status arrives.
	sends := func(answer error) func(*cluster, *v1alpha1.Foo) {
		return func(c *cluster, foo *v1alpha1.Foo) {
			c.answer, foo.Status = refuse("patch", answer), v1alpha1.FooStatus{Replicas: 7}
			if _, err := c.foos.UpdateStatus(c.ctx, c.foo, &foo.Status, false, metav1.Condition{}); !errors.Is(err, answer) {
				c.Errorf("error %v", err)
			}
		}
	}
	for sentence, test := range map[string]struct {
		change   func(c *cluster, foo *v1alpha1.Foo)
		enqueued []string
		// failures are those that the backoff counts of two, forgets says that the ledger is empty.
		failures int
		forgets  bool
	}{
		"rule 19: a relist": {func(_ *cluster, foo *v1alpha1.Foo) { foo.ResourceVersion = "10" }, nil, 2, false},
		"rule 19: a resync": {func(_ *cluster, foo *v1alpha1.Foo) {
			foo.ResourceVersion = "10"
		}, []string{"foo"}, 2, false},
		"rule 19: another's status":                                                 {func(_ *cluster, foo *v1alpha1.Foo) { foo.Status.Replicas = 1 }, []string{"foo"}, 2, false},
		"rule 11: the controller's own status, before the answer":                   {sends(errors.New("the answer is lost")), nil, 2, false},
		"rule 11: the status that the API server has refused, from another":         {sends(apierrors.NewInvalid(schema.GroupKind{Kind: "Foo"}, "foo", nil)), []string{"foo"}, 2, false},
		"rule 11: the status that was refused because of its version, from another": {sends(apierrors.NewConflict(schema.GroupResource{}, "foo", nil)), []string{"foo"}, 2, false},
		"rule 14: the controller's own status, after a sync that did not wait for it": {func(c *cluster, foo *v1alpha1.Foo) {
			sends(nil)(c, foo)
			if _, err := c.foos.UpdateStatus(c.ctx, c.foo, c.foo.Status.DeepCopy(), false, metav1.Condition{}); err != nil {
				c.Error(err)
			}
		}, []string{"foo"}, 2, false},
		"rule 12: a new generation ends the backoff": {func(_ *cluster, foo *v1alpha1.Foo) { foo.Generation++ }, []string{"foo"}, 0, false},
		"rule 1: made anew":                          {func(_ *cluster, foo *v1alpha1.Foo) { foo.UID = "anew" }, []string{"foo"}, 0, true},
		"rule 1: gone":                               {nil, []string{"foo"}, 0, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.foos.Wrote(c.foo, c.deploymentStore, "20")
				for range 2 {
					c.worker.Queue.AddRateLimited(key)
				}
				fixture.Enqueued(c.worker, time.Minute)
				c.foos.Wrote(c.foo, c.deploymentStore, "20")
				changed := c.foo.DeepCopy()
				changed.ResourceVersion = "11"
				if test.change == nil {
					c.foos.Deleted(key)
				} else {
					test.change(c, changed)
					c.foos.Updated(c.foo, changed)
				}
				fixture.Differ(t, "enqueued", test.enqueued, fixture.Enqueued(c.worker, 0))
				if got := c.worker.Queue.NumRequeues(key); got != test.failures || c.seen() != test.forgets {
					t.Errorf("%d failures, forgets: %v, want %d, %v", got, c.seen(), test.failures, test.forgets)
				}
			}, func(o *controller.WorkerOptions) { o.Resync = sentence == "rule 19: a resync" })
		})
	}
}

// TestUpdateStatus: the patch has the whole status, null for what goes, and the version that the cache has.
func TestUpdateStatus(t *testing.T) {
	theirs := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue}
	const patch = `patch foos/status foo {"metadata":{"resourceVersion":"11"},"status":{"availableReplicas":1,"conditions":[` +
		`{"message":"","reason":"","status":"True","type":"Theirs"},{"message":"","reason":"","status":"False","type":"Ready"}],"replicas":2,"selector":null}}`
	for sentence, test := range map[string]struct {
		change func(*cluster)
		fails  func(error) bool
		events []string
		// waits says that the next sync waits for the cache.
		waits bool
	}{
		"rule 13: a status is one patch; conditions of others stay": {func(*cluster) {}, nil, []string{"Normal Synced"}, true},
		"rule 13: a Foo that has changed is not written": {func(c *cluster) {
			newer := c.foo.DeepCopy()
			newer.Generation++
			c.store(foos, newer, nil)
		}, apierrors.IsConflict, nil, false},
		"rule 19: the event of a status that admission changed is the controller's own": {func(c *cluster) {
			c.admitFoo = func(foo *v1alpha1.Foo) { foo.Status.Selector = "c=d" }
		}, nil, []string{"Normal Synced"}, true},
		"rule 13: a status that admission took back is not waited for": {func(c *cluster) {
			c.admitFoo = func(foo *v1alpha1.Foo) { foo.Status = c.foo.Status }
		}, nil, []string{"Normal Synced"}, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.edit(func(foo *v1alpha1.Foo) {
					foo.Status = v1alpha1.FooStatus{AvailableReplicas: 1, Replicas: 1, Selector: "a=b", Conditions: []metav1.Condition{theirs}}
				})
				test.change(c)
				cached := c.foo
				status := cached.Status.DeepCopy()
				status.Replicas, status.Selector, status.Conditions = 2, "", append(status.Conditions, metav1.Condition{Type: controller.Ready, Status: metav1.ConditionFalse})
				_, err := c.foos.UpdateStatus(c.ctx, cached, status, false, controller.GetReady(status.Conditions), nil, &controller.Event{Type: "Normal", Reason: "Synced", Message: "done"})
				c.expect(err, test.fails, patch)
				fixture.Differ(t, "rule 16: events", test.events, fixture.Recorded(c.events))
				if c.seen() == test.waits {
					t.Errorf("rule 14: the next sync waits: %v, want %v", !test.waits, test.waits)
				}
				if c.see(); err == nil {
					fixture.Differ(t, "metric", []string{"foos/status patch 1"}, c.written())
					c.foos.Updated(cached, c.foo)
					fixture.Differ(t, "rule 19: enqueued by the own status", []string(nil), fixture.Enqueued(c.worker, 0))
				}
			})
		})
	}
}
