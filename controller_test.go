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
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	fixtures "example.com/sample-controller/test/fixture"
)

var deploymentsGroup = schema.GroupResource{Group: "apps", Resource: "deployments"}

func errQuota() error {
	return apierrors.NewForbidden(deploymentsGroup, "web", errors.New("exceeded quota: one, used: count/deployments.apps=1"))
}

func errConflict() error {
	return apierrors.NewConflict(deploymentsGroup, "web", errors.New("the object has been modified"))
}

func errTerminating() error {
	err := apierrors.NewForbidden(deploymentsGroup, "web", errors.New("unable to create new content in namespace ns because it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// syncTest is one call of syncHandler for the Foo "foo": what the caches and the
// API server hold, and all that the call does.
type syncTest struct {
	foos        []*v1alpha1.Foo
	deployments []*appsv1.Deployment
	// liveFoos and liveDeployments are what the API server holds, where that is
	// not what the caches hold.
	liveFoos        []*v1alpha1.Foo
	liveDeployments []*appsv1.Deployment
	// prepare makes requests fail, or records earlier writes.
	prepare func(*fixture)
	// waits is the delay before the sync is called a second time, for a status update
	// that is delayed.
	waits time.Duration

	requests     []string
	events       []string
	requeueAfter time.Duration
	enqueued     []string
	// err is a part of the error.
	err string
}

func fail(verb, resource string, err error) func(*fixture) {
	return func(f *fixture) {
		fake := &f.kube.Fake
		if strings.HasPrefix(resource, "foos") {
			fake = &f.foo.Fake
		}
		fixtures.Failing(fake, verb, strings.TrimSuffix(resource, "/status"), err)
	}
}

// answer makes the API server answer that request with the Deployment.
func answer(f *fixture, verb string, deployment *appsv1.Deployment) {
	f.kube.PrependReactor(verb, "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
		return true, deployment, nil
	})
}

const (
	createWeb = "create deployments web replicas=1 owner=uid-foo"
	putStatus = "patch foos/status foo version=10: "
	adoptWeb  = `patch deployments web {"metadata":{"annotations":{"samplecontroller.k8s.io/adopt-by":null},"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"}}`
	notOwned  = "gen=1 available=0 replicas=0 False/DeploymentNotOwned"
)

func syncTests() map[string]syncTest {
	foo := newFoo()
	ready := newFoo(fooReady)
	three := newFoo(fooReady, fooGeneration(2), fooReplicas(ptr.To[int32](3)))
	foreign := newForeign()
	blocked := newFoo(fooStatus(findings{deployment: foreign}))
	rejected := newFoo(fooStatus(findings{refused: fmt.Errorf("creating Deployment %q: %w", "web", errQuota())}))

	return map[string]syncTest{
		"rule 1: a Foo that is gone from the cache is nothing to do": {},
		"rule 1: the Deployment of a Foo that is gone is left to the garbage collector": {
			deployments: []*appsv1.Deployment{newOwned(foo)}},
		"rule 2: a terminating Foo's missing Deployment is not created": {
			foos: []*v1alpha1.Foo{newFoo(fooTerminating)}},
		"rule 2: a terminating Foo's Deployment is not repaired and no status is written": {
			foos: []*v1alpha1.Foo{newFoo(fooTerminating)}, deployments: []*appsv1.Deployment{newOwned(foo, deploymentReplicas(ptr.To[int32](9)))}},

		"rule 3: a missing Deployment is created, the status of its progress delayed": {
			foos:     []*v1alpha1.Foo{foo},
			requests: []string{createWeb}, events: []string{"Normal Created"}, requeueAfter: time.Second},
		"rule 3: a Deployment that is gone is created again after a live read of the Foo": {
			foos: []*v1alpha1.Foo{ready}, requests: []string{createWeb, "get foos foo", putStatus + "gen=1 available=0 replicas=0 False/DeploymentProgressing"}, events: []string{"Normal Created"}, requeueAfter: time.Second},
		"rule 3: the Deployment of a Foo that is gone from the API server is not created again": {
			foos: []*v1alpha1.Foo{ready}, liveFoos: []*v1alpha1.Foo{}, requests: []string{"get foos foo"}, err: "out of date"},
		"rule 3: AlreadyExists from a stale cache ends the sync, and the next one decides once the cache shows the Deployment": {
			foos: []*v1alpha1.Foo{foo}, liveDeployments: []*appsv1.Deployment{newOwned(foo, available)},
			requests: []string{createWeb, "get deployments web"}, err: controller.ErrStaleCache.Error()},
		"rule 3: AlreadyExists, and gone before it could be read: retried": {
			foos:     []*v1alpha1.Foo{foo},
			prepare:  fail("create", "deployments", apierrors.NewAlreadyExists(deploymentsGroup, "web")),
			requests: []string{createWeb, "get deployments web"}, err: "not found"},

		"rule 4: drift is repaired with one patch": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			requests: []string{`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`},
			events:   []string{"Normal Updated"}, requeueAfter: time.Second},
		"rule 4: 409 means that another writer was faster: retried, status unchanged": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare:  fail("patch", "deployments", errConflict()),
			requests: []string{`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`},
			err:      "updating Deployment \"web\": Operation cannot be fulfilled"},
		"rule 22: a new leader repairs after a live read of the Foo until its cache has reached the present": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare:  func(f *fixture) { f.fooIndexer.Bookmark("9") },
			requests: []string{`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`, "get foos foo"},
			events:   []string{"Normal Updated"}, requeueAfter: time.Second},
		"rule 22: a new leader does not undo what its predecessor did for a newer generation": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			liveFoos: []*v1alpha1.Foo{newFoo(fooGeneration(three.Generation + 1))},
			prepare:  func(f *fixture) { f.fooIndexer.Bookmark("9") },
			requests: []string{"get foos foo"}, err: "out of date"},
		"rule 22: nor does it create what its predecessor did not create for a newer generation": {
			foos: []*v1alpha1.Foo{foo}, liveFoos: []*v1alpha1.Foo{newFoo(fooGeneration(2), wants("next"))},
			prepare:  func(f *fixture) { f.fooIndexer.Bookmark("9") },
			requests: []string{"get foos foo"}, err: "out of date"},

		"rule 5: a foreign Deployment is reported and never touched": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{foreign},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
		"rule 5: while it is in the way nothing is written, told or retried": {
			foos: []*v1alpha1.Foo{blocked}, deployments: []*appsv1.Deployment{foreign}},
		"rule 5: our UID without controller: true is foreign": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newForeign(ownedBy(metav1.OwnerReference{APIVersion: "samplecontroller.k8s.io/v1alpha1", Kind: "Foo", Name: "foo", UID: "uid-foo"}))},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
		"rule 5: once it is gone the Foo gets its Deployment": {
			foos:     []*v1alpha1.Foo{blocked},
			requests: []string{createWeb}, events: []string{"Normal Created"}, requeueAfter: time.Second},
		"rule 6: an earlier Foo's Deployment is waited for": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newOwned(newFoo(fooUID("earlier")), available)},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
		"rule 7: an owned Deployment that is being deleted is left alone": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{newOwned(foo, available, deploymentTerminating, deploymentReplicas(ptr.To[int32](5)))},
			requests: []string{putStatus + "gen=1 available=1 replicas=1 False/DeploymentProgressing"}, requeueAfter: 10 * time.Minute},

		"rule 4: a repair of which admission makes another value is no refusal": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare: func(f *fixture) { answer(f, "patch", newOwned(foo, available, deploymentReplicas(ptr.To[int32](2)))) },
			requests: []string{
				`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`}, events: []string{"Normal Updated"}, requeueAfter: time.Second},
		"rule 4: a repair that admission takes back is no refusal, and no event tells of it": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare: func(f *fixture) { answer(f, "patch", newOwned(foo, available)) },
			requests: []string{
				`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`,
				putStatus + "gen=2 available=1 replicas=1 True/DeploymentAvailable"}, requeueAfter: time.Second},
		"rule 4: a creation of which admission makes another value is no refusal": {
			foos:     []*v1alpha1.Foo{foo},
			prepare:  func(f *fixture) { answer(f, "create", newOwned(foo, deploymentReplicas(ptr.To[int32](9)))) },
			requests: []string{createWeb}, events: []string{"Normal Created"}, requeueAfter: time.Second},
		"rule 11: a repair whose owner reference admission removes is a refusal": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare: func(f *fixture) { answer(f, "patch", newOwned(three, available, ownedBy())) },
			requests: []string{
				`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`,
				putStatus + "gen=2 available=0 replicas=0 False/DeploymentRejected"},
			events: []string{"Warning DeploymentRejected"}, err: "updating Deployment \"web\": owner reference: an admission webhook or policy overrides it"},
		"rule 11: a creation whose owner reference admission removes is a refusal": {
			foos:     []*v1alpha1.Foo{foo},
			prepare:  func(f *fixture) { answer(f, "create", newForeign()) },
			requests: []string{createWeb, putStatus + "gen=1 available=0 replicas=0 False/DeploymentRejected"},
			events:   []string{"Warning DeploymentRejected"}, err: "creating Deployment \"web\": owner reference"},
		"rule 10: an orphaned Deployment is not adopted": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newForeign(available)},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},

		"rule 10: a Deployment that asks for it is adopted with one patch, after a live read of the Foo": {
			foos: []*v1alpha1.Foo{blocked}, deployments: []*appsv1.Deployment{newForeign(available, adoptBy("foo"), deploymentReplicas(ptr.To[int32](5)))},
			requests: []string{adoptWeb, "get foos foo"}, events: []string{"Normal Adopted"}, err: controller.ErrStaleCache.Error()},
		"rule 10: it is not adopted by a Foo that is gone": {
			foos: []*v1alpha1.Foo{blocked}, liveFoos: []*v1alpha1.Foo{}, deployments: []*appsv1.Deployment{newForeign(adoptBy("foo"))},
			requests: []string{"get foos foo"}, err: "out of date"},
		"rule 10: it is not adopted by a Foo that has been recreated": {
			foos: []*v1alpha1.Foo{blocked}, liveFoos: []*v1alpha1.Foo{newFoo(fooUID("later"))}, deployments: []*appsv1.Deployment{newForeign(adoptBy("foo"))},
			requests: []string{"get foos foo"}, err: "out of date"},
		"rule 10: it is not adopted by a Foo that is terminating": {
			foos: []*v1alpha1.Foo{blocked}, liveFoos: []*v1alpha1.Foo{newFoo(fooTerminating)}, deployments: []*appsv1.Deployment{newForeign(adoptBy("foo"))},
			requests: []string{"get foos foo"}, err: "out of date"},
		"rule 10: a Deployment that changed meanwhile is not adopted": {
			foos: []*v1alpha1.Foo{blocked}, deployments: []*appsv1.Deployment{newForeign(adoptBy("foo"))}, prepare: fail("patch", "deployments", errConflict()),
			requests: []string{adoptWeb, "get foos foo"}, err: `adopting Deployment "web": Operation cannot be fulfilled`},
		"rule 10: an adoption that admission undoes is a refusal": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newForeign(adoptBy("foo"))}, prepare: func(f *fixture) { answer(f, "patch", newForeign()) },
			requests: []string{adoptWeb, "get foos foo", putStatus + "gen=1 available=0 replicas=0 False/DeploymentRejected"},
			events:   []string{"Warning DeploymentRejected"}, err: `adopting Deployment "web": owner reference: an admission webhook or policy overrides it`},
		"rule 10: a Deployment that asks for another Foo is left alone": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newForeign(adoptBy("bar"))},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
		"rule 11: refused for good: reported, one event, retried with backoff": {
			foos: []*v1alpha1.Foo{foo}, prepare: fail("create", "deployments", errQuota()),
			requests: []string{createWeb, putStatus + "gen=1 available=0 replicas=0 False/DeploymentRejected"},
			events:   []string{"Warning DeploymentRejected"}, err: "exceeded quota"},
		"rule 11: refused again with the same message: nothing to write or report": {
			foos: []*v1alpha1.Foo{rejected}, prepare: fail("create", "deployments", errQuota()),
			requests: []string{createWeb}, err: "exceeded quota"},
		"rule 11: a refused repair is reported as well": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare: fail("patch", "deployments", apierrors.NewInvalid(schema.GroupKind{Kind: "Deployment"}, "web", nil)),
			requests: []string{
				`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`,
				putStatus + "gen=2 available=1 replicas=1 False/DeploymentRejected"},
			events: []string{"Warning DeploymentRejected"}, err: "is invalid"},
		"rule 11: in a terminating namespace the sync stops, and no status is written": {
			foos: []*v1alpha1.Foo{foo}, prepare: fail("create", "deployments", errTerminating()),
			requests: []string{createWeb}, err: "because it is being terminated"},
		"rule 12: 500 is retried, status unchanged": {
			foos: []*v1alpha1.Foo{foo}, prepare: fail("create", "deployments", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{createWeb}, err: "creating Deployment \"web\": Internal error occurred: oops"},
		"rule 12: a failed status write is retried, without an event": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare:  fail("patch", "foos", errConflict()),
			requests: []string{putStatus + "gen=1 available=1 replicas=1 True/DeploymentAvailable"},
			err:      "updating the status of Foo"},

		"rule 13: ready is written at once": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			requests: []string{putStatus + "gen=1 available=1 replicas=1 True/DeploymentAvailable"},
			events:   []string{"Normal Synced"}},
		"rule 13: a failed child write does not stop the status, and both errors are told": {
			foos: []*v1alpha1.Foo{foo},
			prepare: func(f *fixture) {
				fail("create", "deployments", errQuota())(f)
				fail("patch", "foos", errConflict())(f)
			},
			requests: []string{createWeb, putStatus + "gen=1 available=0 replicas=0 False/DeploymentRejected"},
			err:      "used: count/deployments.apps=1\nupdating the status of Foo: "},
		"rule 13: paused is written at once": {
			foos:        []*v1alpha1.Foo{ready},
			deployments: []*appsv1.Deployment{newOwned(foo, pods(2, 1, 1), func(d *appsv1.Deployment) { d.Spec.Paused = true })},
			requests:    []string{putStatus + "gen=1 available=1 replicas=2 False/DeploymentPaused"}},
		"rule 13: stalled is written at once": {
			foos:        []*v1alpha1.Foo{ready},
			deployments: []*appsv1.Deployment{newOwned(foo, pods(0, 0, 0), deploymentCondition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "no"))},
			requests:    []string{putStatus + "gen=1 available=0 replicas=0 False/DeploymentStalled"}},
		"rule 13: progress is written by the first sync past one second": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newOwned(foo, pods(1, 1, 0))},
			waits:    time.Second,
			requests: []string{putStatus + "gen=1 available=0 replicas=1 False/DeploymentProgressing"}},
		"rule 13: progress is not written by a sync before that": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newOwned(foo, pods(1, 1, 0))},
			waits: 400 * time.Millisecond, requeueAfter: 600 * time.Millisecond},
		"rule 13: a Foo that loses Ready without a new generation is no progress: written at once": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{newOwned(foo, pods(1, 1, 0))},
			requests: []string{putStatus + "gen=1 available=0 replicas=1 False/DeploymentProgressing"}},
		"rule 13: a Foo that loses Ready by a new generation reports progress": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(three, pods(1, 1, 1))},
			requeueAfter: time.Second},
		"rule 13: a Foo that is not ready yet reports progress, whatever its generation": {
			foos: []*v1alpha1.Foo{newFoo(fooStatus(findings{deployment: newOwned(foo)}))}, deployments: []*appsv1.Deployment{newOwned(foo, pods(1, 1, 0))},
			requeueAfter: time.Second},

		"rule 14: a sync is postponed while the cache lags behind its own last write": {
			foos: []*v1alpha1.Foo{foo},
			prepare: func(f *fixture) {
				f.foos.Wrote(foo, f.deploymentIndexer, "11")
				f.deploymentIndexer.Bookmark("10")
			},
			err: "has reached version 10 of 11"},
		"rule 15: a converged Foo costs nothing": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{newOwned(foo, available)}},
		"rule 16: an invalid spec is reported once and not retried": {
			foos:     []*v1alpha1.Foo{newFoo(wants(""))},
			requests: []string{putStatus + "gen=1 available=0 replicas=0 False/InvalidSpec"},
			events:   []string{"Warning InvalidSpec"}},
	}
}

func TestSyncHandler(t *testing.T) {
	tests := syncTests()
	maps.Copy(tests, renameTests())
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test.run(t) })
		})
	}
}

func (test *syncTest) run(t *testing.T) {
	liveFoos, liveDeployments := test.liveFoos, test.liveDeployments
	if liveFoos == nil {
		liveFoos = test.foos
	}
	if liveDeployments == nil {
		liveDeployments = test.deployments
	}
	ctx, f := newFixture(t, liveFoos, liveDeployments)
	f.fill(t, test.foos, test.deployments)
	if test.prepare != nil {
		test.prepare(f)
	}

	requeueAfter, err := f.syncHandler(ctx, testKey("foo"))
	if test.waits > 0 {
		differ(t, "requests before the wait", []string(nil), f.requests())
		time.Sleep(test.waits)
		requeueAfter, err = f.syncHandler(ctx, testKey("foo"))
	}

	differ(t, "requests", test.requests, f.requests())
	differ(t, "events", test.events, f.recorded())
	if requeueAfter != test.requeueAfter {
		t.Errorf("requeue after %v, want %v", requeueAfter, test.requeueAfter)
	}
	switch {
	case test.err == "" && err != nil:
		t.Errorf("error %v", err)
	case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
		t.Errorf("error %v, want %q in it", err, test.err)
	}
	differ(t, "Foos enqueued", test.enqueued, f.enqueued(0))
}

// TestSyncLeavesTheCacheAlone syncs cached objects that a write changes and
// compares them with what they were.
func TestSyncLeavesTheCacheAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := newFoo(fooReplicas(ptr.To[int32](3)))
		deployment := newOwned(newFoo(), pods(1, 1, 1))
		ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, []*appsv1.Deployment{deployment})
		f.fill(t, []*v1alpha1.Foo{foo}, []*appsv1.Deployment{deployment})
		fooBefore, deploymentBefore := foo.DeepCopy(), deployment.DeepCopy()

		for range 2 {
			if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
				t.Fatal(err)
			}
			time.Sleep(time.Second)
		}

		if got := len(f.requests()); got != 3 {
			t.Errorf("%d requests, want two patches and a status: %v", got, f.requests())
		}
		differ(t, "cached Foo", fooBefore, foo)
		differ(t, "cached Deployment", deploymentBefore, deployment)
	})
}

// TestSyncDropsTheNote puts a status off and asks, after the sync, how long the
// next one would be delayed: for a whole second if the note is gone.
func TestSyncDropsTheNote(t *testing.T) {
	foo, ready := newFoo(), newFoo(fooReady)
	tests := map[string]struct {
		foos    []*v1alpha1.Foo
		prepare func(*fixture)
		want    time.Duration
	}{
		"rule 13: a status write drops the note": {
			foos: []*v1alpha1.Foo{foo}, want: time.Second},
		"rule 13: so does a status without a difference": {
			foos: []*v1alpha1.Foo{ready}, want: time.Second},
		"rule 13: a status write that failed does not": {
			foos: []*v1alpha1.Foo{foo}, prepare: fail("patch", "foos", errConflict()), want: time.Second - time.Millisecond},
		"rule 1: nothing is remembered of a Foo that is gone": {
			want: time.Second},
		"rule 2: nor of one that is terminating": {
			foos: []*v1alpha1.Foo{newFoo(fooTerminating)}, want: time.Second},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				deployments := []*appsv1.Deployment{newOwned(foo, available)}
				ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, deployments)
				f.fill(t, test.foos, deployments)
				if test.prepare != nil {
					test.prepare(f)
				}
				f.Worker.Debouncer.Delay(testKey("foo"))
				time.Sleep(time.Millisecond)
				_, err := f.syncHandler(ctx, testKey("foo"))
				if got := f.Worker.Debouncer.Delay(testKey("foo")); got != test.want {
					t.Errorf("delayed for %v, want %v; the sync's error was %v", got, test.want, err)
				}
			})
		})
	}
}

// TestEventHandlers checks rule 19: which keys an event enqueues. That of a name is enqueued once,
// whoever asks for it, and a worker enqueues these Foos.
func TestEventHandlers(t *testing.T) {
	foo, bar := newFoo(), newFoo(fooNamed("bar"), wants("other"))
	barOwnsWeb, elsewhere := newForeign(ownedBy(fooReference(bar))), func(d *appsv1.Deployment) { d.Name = "else" }
	changed := func(deployment *appsv1.Deployment) *appsv1.Deployment {
		deployment = deployment.DeepCopy()
		deployment.ResourceVersion = "11"
		return deployment
	}
	changedFoo := func(options ...fooOption) *v1alpha1.Foo {
		return newFoo(append([]fooOption{func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" }}, options...)...)
	}
	const web = namePrefix + "web"
	tests := map[string]struct {
		event func(*fixture, cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment])
		want  []string
	}{
		"rule 19: a changed Foo": {
			func(f *fixture, _ cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]) {
				f.foos.Updated(foo, changedFoo())
			}, []string{"foo"}},
		"rule 19: a relist of unchanged Foos enqueues none": {
			func(f *fixture, _ cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]) {
				f.foos.Updated(foo, newFoo())
			}, nil},
		"rule 19: a new Deployment: its owner and its name": {
			func(_ *fixture, on cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]) { on.AddFunc(barOwnsWeb) }, []string{"bar", web}},
		"rule 19: a Deployment whose Pods changed: its owner alone": {
			func(_ *fixture, on cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]) {
				on.UpdateFunc(barOwnsWeb, changed(newForeign(ownedBy(fooReference(bar)), available)))
			}, []string{"bar"}},
		"rule 17: an owner of kind Foo in another API group is not enqueued": {
			func(_ *fixture, on cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]) {
				on.AddFunc(newForeign(elsewhere, ownedBy(metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Foo", Name: "foo", UID: "uid-foo", Controller: ptr.To(true)})))
			}, []string{namePrefix + "else"}},
		"rule 5: a Deployment that changes its owner: the old and the new owner, and its name": {
			func(_ *fixture, on cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]) {
				on.UpdateFunc(newForeign(elsewhere, ownedBy(fooReference(bar))), changed(newForeign(elsewhere, ownedBy(fooReference(foo)))))
			}, []string{"bar", "foo", namePrefix + "else"}},
		"rule 10: a Deployment that begins to ask for adoption: its name": {
			func(_ *fixture, on cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]) {
				on.UpdateFunc(newForeign(), changed(newForeign(adoptBy("foo"))))
			}, []string{web}},
		"rule 7: a Deployment that begins to terminate: its name, for it may end a cycle": {
			func(_ *fixture, on cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]) {
				on.UpdateFunc(barOwnsWeb, changed(newForeign(ownedBy(fooReference(bar)), deploymentTerminating)))
			}, []string{"bar", web}},
		"rule 19: a relist of unchanged Deployments enqueues none": {
			func(_ *fixture, on cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]) {
				on.UpdateFunc(barOwnsWeb, barOwnsWeb.DeepCopy())
			}, nil},
		"rule 5: a deleted Deployment: its owner and its name": {
			func(_ *fixture, on cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]) {
				on.DeleteFunc(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: barOwnsWeb})
			}, []string{"bar", web}},
		"rule 5: a deleted Deployment of which the informer knows only the key: its name": {
			func(_ *fixture, on cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]) {
				on.DeleteFunc(cache.DeletedObject[*appsv1.Deployment]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "ns/web"}})
			}, []string{web}},
		"rule 9: a name: all Foos that ask for it": {
			func(f *fixture, _ cache.TypedResourceEventHandlerFuncs[*appsv1.Deployment]) {
				if delay, err := f.syncHandler(t.Context(), testKey(web)); delay != 0 || err != nil {
					t.Errorf("requeue after %v, error %v", delay, err)
				}
			}, []string{"foo"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, f := newFixture(t, nil, nil)
				f.fill(t, []*v1alpha1.Foo{foo, bar}, nil)
				test.event(f, f.deployments.EventHandler(f.enqueueName))
				differ(t, "enqueued", test.want, f.enqueued(0))
				differ(t, "requests", []string(nil), f.requests())
			})
		})
	}
}

func TestNewControllerFails(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, nil, nil)
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		options := f.options
		options.Metrics = controller.NewMetrics(metrics.NewKubeRegistry())
		// A stopped informer accepts no index.
		f.options.Deployments.Informer().RunWithContext(ctx)
		options.Foos = fooinformers.NewSharedInformerFactory(f.foo, 0).Samplecontroller().V1alpha1().Foos()
		if c, err := NewController(ctx, options); c != nil || err == nil || !strings.Contains(err.Error(), "adding an index to the Deployment informer") {
			t.Errorf("controller %v, error %v", c, err)
		}
		options.Foos = f.options.Foos
		f.options.Foos.Informer().RunWithContext(ctx)
		if c, err := NewController(ctx, options); c != nil || err == nil || !strings.Contains(err.Error(), "adding an index to the Foo informer") {
			t.Errorf("controller %v, error %v", c, err)
		}
	})
}

// TestWritesAreCountedAndLogged is also what the log has at -v=2: one line for each write.
func TestWritesAreCountedAndLogged(t *testing.T) {
	foo, three := newFoo(), newFoo(fooReplicas(ptr.To[int32](3)))
	former := newOwned(foo, func(deployment *appsv1.Deployment) { deployment.Name, deployment.UID = "former", "uid-of-former" })
	tests := map[string]struct {
		foo         *v1alpha1.Foo
		deployments []*appsv1.Deployment
		err         error
		want        []string
		logged      []string
	}{
		"a creation, and the status later": {
			foo: foo, want: []string{`resource="deployments",verb="create"`}, logged: []string{"Created Deployment deployment ns/web"},
		},
		"a repair": {
			foo: three, deployments: []*appsv1.Deployment{newOwned(foo)},
			want: []string{`resource="deployments",verb="patch"`}, logged: []string{"Patched Deployment deployment ns/web changes replicas from 1 to 3"},
		},
		"a status": {
			foo: foo, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			want: []string{`resource="foos/status",verb="patch"`}, logged: []string{"Updated status ready True reason DeploymentAvailable"},
		},
		"a deletion, and the status": {
			foo: foo, deployments: []*appsv1.Deployment{newOwned(foo, available), former},
			want:   []string{`resource="deployments",verb="delete"`, `resource="foos/status",verb="patch"`},
			logged: []string{"Deleted Deployment deployment ns/former", "Updated status ready True reason DeploymentAvailable"},
		},
		"a sync that finds nothing to do":         {foo: newFoo(fooReady), deployments: []*appsv1.Deployment{newOwned(foo, available)}},
		"what the API server refuses is no write": {foo: foo, err: errors.New("refused")},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, []*v1alpha1.Foo{test.foo}, test.deployments)
				f.fill(t, []*v1alpha1.Foo{test.foo}, test.deployments)
				if test.err != nil {
					fixtures.Failing(&f.kube.Fake, "create", "deployments", test.err)
				}
				logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.Verbosity(2), ktesting.BufferLogs(true)))
				if _, err := f.syncHandler(klog.NewContext(ctx, logger), testKey(test.foo.Name)); (err != nil) != (test.err != nil) {
					t.Fatal(err)
				}
				var logged []string
				for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
					logged = append(logged, strings.TrimSpace(fmt.Sprintln(append([]any{entry.Message}, entry.ParameterKVList...)...)))
				}
				differ(t, "log", test.logged, logged)
				var want strings.Builder
				for i, labels := range test.want {
					if i == 0 {
						want.WriteString("# HELP sample_controller_writes_total [ALPHA] Number of writes that the API server accepted, by controller, resource and verb. Events and the lease are not among them.\n# TYPE sample_controller_writes_total counter\n")
					}
					want.WriteString("sample_controller_writes_total{controller=\"foo\"," + labels + "} 1\n")
				}
				gatherer := f.registry
				if err := testutil.GatherAndCompare(gatherer, strings.NewReader(want.String()), "sample_controller_writes_total"); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

func TestFoosAreCountedByReason(t *testing.T) {
	unknown := newFoo(fooNamed("unknown"))
	unknown.Status = v1alpha1.FooStatus{}
	_, f := newFixture(t, nil, nil)
	f.fill(t, []*v1alpha1.Foo{newFoo(fooReady), newFoo(fooNamed("second"), fooReady), unknown}, nil)
	want := `# HELP sample_controller_foos [ALPHA] Number of Foos in this process's cache, by the status and the reason of their Ready condition; Unknown and an empty reason for those that have none. Every replica reports all.
# TYPE sample_controller_foos gauge
sample_controller_foos{ready="True",reason="DeploymentAvailable"} 2
sample_controller_foos{ready="Unknown",reason=""} 1
`
	if err := testutil.GatherAndCompare(f.registry, strings.NewReader(want), "sample_controller_foos"); err != nil {
		t.Error(err)
	}
}

// refresh puts the stored Foo into the cache and returns its status in one line, with the
// message of its Ready condition.
func (f *fixture) refresh(ctx context.Context, t *testing.T) (status, message string) {
	t.Helper()
	stored, err := f.foo.SamplecontrollerV1alpha1().Foos(testNamespace).Get(ctx, "foo", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	if err := f.fooIndexer.Update(stored); err != nil {
		t.Fatal(err)
	}
	for _, condition := range stored.Status.Conditions {
		message = condition.Message
	}
	return summary(stored), message
}

// count returns how many of the requests begin with one of these texts, and forgets all
// requests.
func (f *fixture) count(prefixes ...string) int {
	n := 0
	for _, request := range f.requests() {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(request, prefix) }) {
			n++
		}
	}
	f.kube.ClearActions()
	f.foo.ClearActions()
	return n
}

// TestAutoscalerOnDeployment is rule 21 against a HorizontalPodAutoscaler with the default
// period of kube-controller-manager: for an hour it scales the Deployment back every 15 s.
func TestAutoscalerOnDeployment(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		three := newFoo(fooReplicas(ptr.To[int32](3)))
		theirs := newOwned(newFoo(), available)
		ctx, f := newFixture(t, []*v1alpha1.Foo{three}, []*appsv1.Deployment{theirs})
		f.fill(t, []*v1alpha1.Foo{three}, []*appsv1.Deployment{theirs})
		repairs, contested, warnings := 0, 0, 0
		for drift := 1; drift <= 240; drift++ {
			if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
				t.Fatal(err)
			}
			repairs += f.count("patch deployments web")
			status, _ := f.refresh(ctx, t)
			switch isContested := strings.HasSuffix(status, "False/DeploymentContested"); {
			case isContested && contested == 0:
				contested = drift
			case !isContested && contested > 0:
				t.Fatalf("rule 21: status %s at drift %d: the alert would not fire", status, drift)
			}
			warnings += strings.Count(strings.Join(f.recorded(), "\n"), "Warning DeploymentContested")
			time.Sleep(15 * time.Second)
		}
		differ(t, "rule 21: the drift at which the contention is reported", 5, contested)
		if repairs < 15 || repairs > 25 {
			t.Errorf("rule 21: %d repairs in an hour, want 15 to 25", repairs)
		}
		differ(t, "rule 21: warnings", 1, warnings)
	})
}

// TestDeletedAgainAndAgain is rule 21 against a client that deletes the Deployment 50 ms
// after each creation.
func TestDeletedAgainAndAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := newFoo()
		ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, nil)
		f.fill(t, []*v1alpha1.Foo{foo}, nil)
		answer(f, "create", newOwned(foo))
		creations := 0
		for range 400 {
			if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
				t.Fatal(err)
			}
			creations += f.count(createWeb)
			f.refresh(ctx, t)
			time.Sleep(50 * time.Millisecond)
		}
		// At 0, 0.05, 1.05, 3.05, 7.05 and 15.05 s.
		differ(t, "rule 21: creations in twenty seconds", 6, creations)
		status, message := f.refresh(ctx, t)
		differ(t, "rule 21: the status", "gen=1 available=0 replicas=0 False/DeploymentContested", status)
		if want := "deleted by another client"; !strings.Contains(message, want) {
			t.Errorf("rule 21: message %q, want %q in it", message, want)
		}
	})
}

// TestCreatedAndGone is rule 3: the status does not tell of the Deployment yet, and the cache does
// not show that the Foo is gone, for which the garbage collector has deleted the Deployment.
func TestCreatedAndGone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := newFoo()
		ctx, f := newFixture(t, nil, nil)
		f.fill(t, []*v1alpha1.Foo{foo}, nil)
		answer(f, "create", newOwned(foo))
		if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
			t.Fatal(err)
		}
		differ(t, "rule 3: creations", 1, f.count(createWeb))
		time.Sleep(2 * time.Second)
		_, err := f.syncHandler(ctx, testKey("foo"))
		differ(t, "rule 3: requests for a Foo that is gone", []string{"get foos foo"}, f.requests())
		if !apierrors.IsConflict(err) {
			t.Errorf("rule 3: error %v, want a conflict", err)
		}
	})
}

// TestAdmissionStripsTheOwner is rules 4 and 11: a policy removes the owner reference. The Foo stays
// refused for this generation, and nothing advises to adopt the Deployment, which leads back there.
func TestAdmissionStripsTheOwner(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo, stripped := newFoo(), newForeign(available)
		ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, nil)
		f.fill(t, []*v1alpha1.Foo{foo}, nil)
		answer(f, "create", stripped)
		for i := range 3 {
			_, err := f.syncHandler(ctx, testKey("foo"))
			if !errors.Is(err, controller.ErrOverridden) {
				t.Fatalf("rule 11: error %v", err)
			}
			if want := map[int]int{0: 1}[i]; f.count("create deployments", "patch deployments") != want {
				t.Errorf("rule 11: writes in sync %d, want %d", i, want)
			}
			status, message := f.refresh(ctx, t)
			differ(t, "rule 11: the status", "gen=1 available=0 replicas=0 False/DeploymentRejected", status)
			if strings.Contains(message, "kubectl") {
				t.Errorf("rule 11: message %q, want no advice to adopt it", message)
			}
			if err := f.deploymentIndexer.Update(cached(t, []*appsv1.Deployment{stripped})[0]); err != nil {
				t.Fatal(err)
			}
		}
	})
}

const mirrored = "mirror.example.com/nginx:1"

// admit makes the API server answer creations and patches as a policy does that makes the
// image mirrored, and puts the answer into the cache.
func (f *fixture) admit(t *testing.T, foo *v1alpha1.Foo) {
	t.Helper()
	admitted := func(clienttesting.Action) (bool, runtime.Object, error) {
		answer := newOwned(foo, available, deploymentImage(mirrored))
		if err := f.deploymentIndexer.Update(cached(t, []*appsv1.Deployment{answer})[0]); err != nil {
			t.Error(err)
		}
		return true, answer, nil
	}
	f.kube.PrependReactor("create", "deployments", admitted)
	f.kube.PrependReactor("patch", "deployments", admitted)
}

// TestAdmissionChangesAWrite is rule 4: what admission makes of a write is accepted.
func TestAdmissionChangesAWrite(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := newFoo(fooImage("nginx:1"))
		deployments := []*appsv1.Deployment{newOwned(foo, available, deploymentImage("nginx:0"))}
		for process := range 2 {
			ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, deployments)
			f.fill(t, []*v1alpha1.Foo{foo}, deployments)
			f.admit(t, foo)
			for range 8 {
				if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
					t.Errorf("rule 4: process %d: %v", process, err)
				}
				f.refresh(ctx, t)
			}
			differ(t, "rule 4: writes of one process and generation", 1, f.count("patch deployments"))
			wantEvents := []string{"Normal Updated", "Normal Synced"}
			if process > 0 {
				// The write of a later process changes nothing.
				wantEvents = []string{"Normal Synced"}
			}
			differ(t, "rule 4: events", wantEvents, f.recorded())
			status, message := f.refresh(ctx, t)
			differ(t, "rule 4: the status", "gen=1 available=1 replicas=1 True/DeploymentAvailable", status)
			if want := "image " + mirrored; !strings.Contains(message, want) {
				t.Errorf("rule 4: message %q, want %q in it", message, want)
			}
			// The next process finds what this one left.
			deployments = []*appsv1.Deployment{newOwned(foo, available, deploymentImage(mirrored))}
		}
	})
}

// TestStallsWhileStatusIsWritten is rule 7: the progress deadline passes while the status that
// reports progress is written. No event announces that, and that of the status enqueues no Foo.
func TestStallsWhileStatusIsWritten(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := newFoo(fooReady)
		terminating := newOwned(foo, available, func(d *appsv1.Deployment) {
			d.DeletionTimestamp, d.Finalizers = ptr.To(metav1.NewTime(time.Now())), []string{"example.com/hold"}
			d.Spec.ProgressDeadlineSeconds = ptr.To[int32](2)
		})
		ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, []*appsv1.Deployment{terminating})
		f.fill(t, []*v1alpha1.Foo{foo}, []*appsv1.Deployment{terminating})
		f.foo.PrependReactor("patch", "foos", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(3 * time.Second)
			return false, nil, nil
		})
		requeueAfter, err := f.syncHandler(ctx, testKey("foo"))
		if requeueAfter != 2*time.Second || err != nil {
			t.Errorf("rule 7: requeue after %v, %v, want 2s", requeueAfter, err)
		}
	})
}

// TestSecondRefusal is rule 11: a quota refuses the Deployment, and once that is raised a
// policy denies its image.
func TestSecondRefusal(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := newFoo()
		ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, nil)
		f.fill(t, []*v1alpha1.Foo{foo}, nil)
		denied := apierrors.NewForbidden(deploymentsGroup, "web", errors.New("the image nginx:latest is denied"))
		for _, refusal := range []struct {
			err     error
			news    bool
			message string
		}{
			{errQuota(), true, "exceeded quota"},
			{apierrors.NewForbidden(deploymentsGroup, "web", errors.New("exceeded quota: one, used: count/deployments.apps=27")), false, "exceeded quota"},
			{denied, true, "image nginx:latest is denied"},
			{denied, false, "image nginx:latest is denied"},
			{errQuota(), true, "exceeded quota"},
		} {
			fixtures.Failing(&f.kube.Fake, "create", "deployments", refusal.err)
			_, _ = f.syncHandler(ctx, testKey("foo"))
			want := 0
			if refusal.news {
				want = 1
			}
			differ(t, "rule 11: status writes for "+refusal.err.Error(), want, f.count("patch foos/status"))
			differ(t, "rule 11: events for "+refusal.err.Error(), want, len(f.recorded()))
			if _, message := f.refresh(ctx, t); !strings.Contains(message, refusal.message) {
				t.Errorf("rule 11: message %q, want %q in it", message, refusal.message)
			}
		}
	})
}

// TestRefusedRepairAfterRename is rule 11: what is said about a quota concerns only the
// creation of the new Deployment.
func TestRefusedRepairAfterRename(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moved := newFoo(wants("next"))
		deployments := []*appsv1.Deployment{newOwned(newFoo()), newOwned(moved, deploymentReplicas(ptr.To[int32](5)))}
		ctx, f := newFixture(t, []*v1alpha1.Foo{moved}, deployments)
		f.fill(t, []*v1alpha1.Foo{moved}, deployments)
		fixtures.Failing(&f.kube.Fake, "patch", "deployments", apierrors.NewForbidden(deploymentsGroup, "next", errors.New("denied")))
		_, _ = f.syncHandler(ctx, testKey("foo"))
		if _, message := f.refresh(ctx, t); !strings.Contains(message, "denied") || strings.Contains(message, "quota") {
			t.Errorf("rule 11: message %q, want nothing about a quota in it", message)
		}
	})
}
