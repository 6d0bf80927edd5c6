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

func newGeneration(foo *v1alpha1.Foo) { foo.Generation++ }

func madeAnew(foo *v1alpha1.Foo) { foo.UID = "anew" }

func TestCheckLive(t *testing.T) {
	for sentence, test := range map[string]struct {
		change func(*v1alpha1.Foo)
		answer error
		fails  func(error) bool
	}{
		"rule 3: the status has changed": {func(foo *v1alpha1.Foo) { foo.Status.Replicas = 7 }, nil, nil},
		"rule 3: another generation":     {newGeneration, nil, apierrors.IsConflict},
		"rule 3: made anew":              {madeAnew, nil, apierrors.IsConflict},
		"rule 3: terminating":            {terminate, nil, apierrors.IsConflict},
		"rule 12: unknown":               {madeAnew, apierrors.NewInternalError(errors.New("oops")), apierrors.IsInternalError},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				live := c.foo.DeepCopy()
				test.change(live)
				c.store(foos, live, nil)
				c.answer = refuse("get", test.answer)
				c.expect(c.foos.CheckLive(c.ctx, c.foo), test.fails, readFoo)
			})
		})
	}
}

// TestPresentVersion is invariant S6: no write applies a spec older than one that was applied before.
func TestPresentVersion(t *testing.T) {
	for sentence, test := range map[string]struct {
		// present is the answer to the second of two requests, foosAt the version of the cache.
		present, foosAt string
		err             error
		// readsFoo says that each write reads the Foo live before.
		readsFoo bool
	}{
		"rule 22: the cache has not reached the present version": {"100", "99", nil, true},
		"rule 22: the cache has reached the present version":     {"100", "100", nil, false},
		"rule 22: the present version is unknown":                {"", "100", nil, true},
		"rule 22: the version of the cache is unknown":           {"100", "", nil, true},
		"rule 20: the end of the lease ends the requests":        {"100", "100", errors.New("starting"), true},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.foos.Present = func(context.Context) (string, error) { return "", nil }
				c.foos.ReadPresent(c.ctx)
				calls := 0
				c.foos.Present = func(context.Context) (string, error) {
					if calls++; calls == 1 {
						return "1", errors.New("starting")
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
				_, err := c.deployments.Apply(c.ctx, c.foo, c.cached(), c.desired)
				c.expect(err, nil, want...)
			})
		})
	}
}

// TestEventsOfOwners is about an update event of version 11 in place of version 10, or a delete event.
func TestEventsOfOwners(t *testing.T) {
	// sends sends a status, and then that status arrives, with the changes.
	sends := func(answer error, changes ...func(*v1alpha1.Foo)) func(*cluster, *v1alpha1.Foo) {
		return func(c *cluster, foo *v1alpha1.Foo) {
			c.answer, foo.Status = refuse("patch", answer), v1alpha1.FooStatus{Replicas: 7}
			if _, err := c.foos.UpdateStatus(c.ctx, c.foo, foo.Status.DeepCopy(), false, metav1.Condition{}); !errors.Is(err, answer) {
				c.Errorf("error %v", err)
			}
			for _, change := range changes {
				change(foo)
			}
		}
	}
	lost, other := errors.New("the answer is lost"), func(foo *v1alpha1.Foo) { foo.Status.Replicas = 1 }
	for sentence, test := range map[string]struct {
		change func(c *cluster, foo *v1alpha1.Foo)
		// enqueues says that the Foo is enqueued, backoff that its failures count, and forgets that the ledger is empty.
		enqueues, backoff, forgets bool
	}{
		"rule 19: a relist":                                   {func(_ *cluster, foo *v1alpha1.Foo) { foo.ResourceVersion = "10" }, false, true, false},
		"rule 19: another's status":                           {func(_ *cluster, foo *v1alpha1.Foo) { other(foo) }, true, true, false},
		"rule 11: the own status, before the answer":          {sends(lost), false, true, false},
		"rule 11: the own status, after the answer":           {sends(nil, other), false, true, false},
		"rule 19: another version than that of the answer":    {sends(nil, func(foo *v1alpha1.Foo) { foo.ResourceVersion = "12" }), true, true, false},
		"rule 19: another status than the one that was sent":  {sends(lost, other), true, true, false},
		"rule 12: beside the own status another generation":   {sends(lost, newGeneration), true, false, false},
		"rule 19: beside the own status a deletion has begun": {sends(lost, terminate), true, true, false},
		"rule 11: the API server has refused the status":      {sends(apierrors.NewInvalid(schema.GroupKind{}, "", nil)), true, true, false},
		"rule 11: it was refused because of its version":      {sends(apierrors.NewConflict(schema.GroupResource{}, "", nil)), true, true, false},
		"rule 19: the status was sent to replace another one": {func(c *cluster, foo *v1alpha1.Foo) { sends(lost)(c, foo); c.foo.ResourceVersion = "9" }, true, true, false},
		"rule 14: a sync that did not wait for the own status": {func(c *cluster, foo *v1alpha1.Foo) {
			sends(nil)(c, foo)
			if _, err := c.foos.UpdateStatus(c.ctx, c.foo, c.foo.Status.DeepCopy(), false, metav1.Condition{}); err != nil {
				c.Error(err)
			}
		}, true, true, false},
		"rule 12: a new generation ends the backoff": {func(_ *cluster, foo *v1alpha1.Foo) { newGeneration(foo) }, true, false, false},
		"rule 1: made anew":                          {func(_ *cluster, foo *v1alpha1.Foo) { madeAnew(foo) }, true, false, true},
		"rule 1: made anew after the own status":     {sends(nil, madeAnew), true, false, true},
		"rule 1: gone":                               {nil, true, false, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				key, enqueued := cache.NewObjectName("ns", "foo"), []string(nil)
				c.worker.Queue.AddRateLimited(key)
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
				if test.enqueues {
					enqueued = []string{"foo"}
				}
				fixture.Differ(t, "enqueued", enqueued, fixture.Enqueued(c.worker, 0))
				if got := c.worker.Queue.NumRequeues(key); (got > 0) != test.backoff {
					t.Errorf("rule 12: %d failures count", got)
				}
				c.waits(!test.forgets)
			})
		})
	}
}

// TestUpdateStatus: the patch has the whole status, null for what goes, and the version that the cache has.
func TestUpdateStatus(t *testing.T) {
	const patch = `patch foos/status foo {"metadata":{"resourceVersion":"11"},"status":{"availableReplicas":1,"conditions":[` +
		`{"message":"","reason":"","status":"True","type":"Theirs"},{"message":"","reason":"","status":"False","type":"Ready"}],"replicas":2,"selector":null}}`
	synced := []string{"Normal Synced"}
	for sentence, test := range map[string]struct {
		admit  func(status *v1alpha1.FooStatus, cached v1alpha1.FooStatus)
		edit   bool
		fails  func(error) bool
		events []string
		// waits says that the next sync waits for the cache.
		waits bool
	}{
		"rule 13: a status is one patch; conditions of others stay": {nil, false, nil, synced, true},
		"rule 13: a Foo that has changed is not written":            {nil, true, apierrors.IsConflict, nil, false},
		"rule 19: the event of a status that admission changed is the controller's own": {
			func(status *v1alpha1.FooStatus, _ v1alpha1.FooStatus) { status.Selector = "c=d" }, false, nil, synced, true},
		"rule 13: a status that admission took back is not waited for": {
			func(status *v1alpha1.FooStatus, cached v1alpha1.FooStatus) { *status = cached }, false, nil, synced, false},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(c *cluster) {
				c.edit(func(foo *v1alpha1.Foo) {
					conditions := []metav1.Condition{{Type: "Theirs", Status: metav1.ConditionTrue}}
					foo.Status = v1alpha1.FooStatus{AvailableReplicas: 1, Replicas: 1, Selector: "a=b", Conditions: conditions}
				})
				cached := c.foo.DeepCopy()
				if test.admit != nil {
					c.admit = func(foo metav1.Object) { test.admit(&foo.(*v1alpha1.Foo).Status, cached.Status) }
				}
				if test.edit {
					c.edit()
				}
				status := cached.Status.DeepCopy()
				status.Replicas, status.Selector = 2, ""
				status.Conditions = append(status.Conditions, controller.NotReady("", ""))
				status.Conditions[1].Type = controller.Ready
				_, err := c.foos.UpdateStatus(c.ctx, cached, status, false, metav1.Condition{}, nil, &controller.Event{Type: "Normal", Reason: "Synced"})
				c.expect(err, test.fails, patch)
				c.told(test.events...)
				c.waits(test.waits)
				if c.see(); err == nil {
					c.foos.Updated(cached, c.foo)
					fixture.Differ(t, "rule 19: enqueued by the own status", []string(nil), fixture.Enqueued(c.worker, 0))
				}
			})
		})
	}
}
