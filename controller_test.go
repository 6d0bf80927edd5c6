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
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	appslisters "k8s.io/client-go/listers/apps/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	foov1alpha1 "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	foolisters "example.com/sample-controller/pkg/generated/listers/samplecontroller/v1alpha1"
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
	putStatus = "update foos/status foo uid=uid-foo version=10: "
	adoptWeb  = `patch deployments web {"metadata":{"annotations":{"samplecontroller.k8s.io/adopt-by":null},"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"}}`
	notOwned  = "gen=1 available=0 replicas=0 False/DeploymentNotOwned"
)

func syncTests() map[string]syncTest {
	foo := newFoo()
	ready := newFoo(fooReady)
	three := newFoo(fooReady, fooGeneration(2), fooReplicas(ptr.To[int32](3)))
	foreign := newForeign()
	blocked := newFoo(fooStatus(deployment.Result{Deployment: foreign}))
	rejected := newFoo(fooStatus(deployment.Result{Rejected: fmt.Errorf("creating Deployment %q: %w", "web", errQuota())}))

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
			foos: []*v1alpha1.Foo{ready}, requests: []string{createWeb, "get foos foo", putStatus + "gen=1 available=0 replicas=0 False/DeploymentProgressing"}, events: []string{"Normal Created"}},
		"rule 3: the Deployment of a Foo that is gone from the API server is not created again": {
			foos: []*v1alpha1.Foo{ready}, liveFoos: []*v1alpha1.Foo{}, requests: []string{"get foos foo"}, err: controller.ErrStaleCache.Error()},
		"rule 3: AlreadyExists from a stale cache: it is this Foo's and as it should be": {
			foos: []*v1alpha1.Foo{foo}, liveDeployments: []*appsv1.Deployment{newOwned(foo, available)},
			requests: []string{createWeb, "get deployments web", putStatus + "gen=1 available=1 replicas=1 True/DeploymentAvailable"},
			events:   []string{"Normal Synced"}, requeueAfter: controller.StaleCacheDelay},
		"rule 3: AlreadyExists from a stale cache: it is this Foo's and has drifted": {
			foos: []*v1alpha1.Foo{foo}, liveDeployments: []*appsv1.Deployment{newOwned(foo, deploymentReplicas(ptr.To[int32](2)))},
			requests: []string{createWeb, "get deployments web", `patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
			events:   []string{"Normal Updated"}, requeueAfter: time.Second},
		"rule 3: AlreadyExists from a stale cache: a Foo of 0 replicas scales it down": {
			foos: []*v1alpha1.Foo{newFoo(fooReplicas(ptr.To[int32](0)))}, liveDeployments: []*appsv1.Deployment{newOwned(foo)},
			requests: []string{"create deployments web replicas=0 owner=uid-foo", "get deployments web", `patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":0}}`},
			events:   []string{"Normal Updated"}, requeueAfter: time.Second},
		"rule 3: AlreadyExists, and it is foreign": {
			foos: []*v1alpha1.Foo{foo}, liveDeployments: []*appsv1.Deployment{foreign},
			requests: []string{createWeb, "get deployments web", putStatus + notOwned},
			events:   []string{"Warning ErrResourceExists"}, requeueAfter: controller.StaleCacheDelay},
		"rule 3: AlreadyExists, and nothing to report: it may be gone before the cache sees it, so the Foo is enqueued again": {
			foos: []*v1alpha1.Foo{blocked}, liveDeployments: []*appsv1.Deployment{foreign},
			requests: []string{createWeb, "get deployments web"}, requeueAfter: controller.StaleCacheDelay},
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
		"rule 4: what was repaired a moment ago is repaired again if the live Foo still asks for it": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare:  func(f *fixture) { f.contention.Repaired(testKey("foo"), three.Generation, "replicas") },
			requests: []string{`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`, "get foos foo"},
			events:   []string{"Normal Updated"}, requeueAfter: time.Second},
		"rule 4: what another process changed for a newer generation is not undone a second time": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			liveFoos: []*v1alpha1.Foo{newFoo(fooGeneration(three.Generation + 1))},
			prepare:  func(f *fixture) { f.contention.Repaired(testKey("foo"), three.Generation, "replicas") },
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
				putStatus + "gen=2 available=1 replicas=1 True/DeploymentAvailable"}},
		"rule 4: a creation of which admission makes another value is no refusal": {
			foos:     []*v1alpha1.Foo{foo},
			prepare:  func(f *fixture) { answer(f, "create", newOwned(foo, deploymentReplicas(ptr.To[int32](9)))) },
			requests: []string{createWeb}, events: []string{"Normal Created"}, requeueAfter: time.Second},
		"rule 11: a repair whose owner reference admission changes is a refusal": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare: func(f *fixture) {
				answer(f, "patch", newOwned(three, available, func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil }))
			},
			requests: []string{
				`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`,
				putStatus + "gen=2 available=3 replicas=3 False/DeploymentRejected"},
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
			requests: []string{adoptWeb, "get foos foo"}, events: []string{"Normal Adopted"}, requeueAfter: controller.StaleCacheDelay},
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
		"rule 10: AlreadyExists, and it asks to be adopted": {
			foos: []*v1alpha1.Foo{foo}, liveDeployments: []*appsv1.Deployment{newForeign(available, adoptBy("foo"))},
			requests: []string{createWeb, "get deployments web", adoptWeb, "get foos foo"}, events: []string{"Normal Adopted"}, requeueAfter: controller.StaleCacheDelay},

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
		"rule 11: in a terminating namespace the sync stops quietly": {
			foos: []*v1alpha1.Foo{foo}, prepare: fail("create", "deployments", errTerminating()),
			requests: []string{createWeb}},
		"rule 12: 500 is retried, status unchanged": {
			foos: []*v1alpha1.Foo{foo}, prepare: fail("create", "deployments", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{createWeb}, err: "creating Deployment \"web\": Internal error occurred: oops"},
		"rule 12: a failed status write is retried, without an event": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare:  fail("update", "foos", errConflict()),
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
				fail("update", "foos", errConflict())(f)
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
			foos: []*v1alpha1.Foo{newFoo(fooStatus(deployment.Result{Deployment: newOwned(foo)}))}, deployments: []*appsv1.Deployment{newOwned(foo, pods(1, 1, 0))},
			requeueAfter: time.Second},

		"rule 14: a sync is postponed while the cache lags behind its own last write": {
			foos: []*v1alpha1.Foo{foo},
			prepare: func(f *fixture) {
				f.consistency.WroteAt(testKey("foo"), "uid-foo", appsv1.Resource("deployments"), "11")
				f.deploymentIndexer.Bookmark("10")
			},
			err: "behind version 11"},
		"rule 15: a converged Foo costs nothing": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{newOwned(foo, available)}},
		"rule 16: an invalid spec is reported once and not retried": {
			foos:     []*v1alpha1.Foo{newFoo(wants(""))},
			requests: []string{putStatus + "gen=1 available=0 replicas=0 False/InvalidSpec"},
			events:   []string{"Warning InvalidSpec"}},

		"rule 21: a Deployment that is gone is created, after contention over it": {
			foos: []*v1alpha1.Foo{foo}, prepare: beginContention,
			requests: []string{createWeb}, events: []string{"Normal Created"}, requeueAfter: time.Second},
		"rule 21: a Deployment that was handed over is no contention": {
			foos: []*v1alpha1.Foo{blocked}, deployments: []*appsv1.Deployment{foreign}, prepare: beginContention},
		"rule 21: no live read for the other writer while nothing has drifted": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{newOwned(foo, available)}, prepare: beginContention,
			requeueAfter: 10 * time.Minute},
	}
}

// beginContention begins contention whose other writer is not yet described.
func beginContention(f *fixture) {
	for range 5 {
		f.contention.Repaired(testKey("foo"), 1, "replicas")
	}
	f.contention.Check(testKey("foo"), 1, "replicas")
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
	differ(t, "Foos enqueued at once", []string(nil), f.enqueued(0))
	differ(t, "Foos enqueued after the delay", test.enqueued, f.enqueued(claimDelay))
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

		if got := len(f.requests()); got != 4 {
			t.Errorf("%d requests, want two patches, the second after a look at the Foo, and a status: %v", got, f.requests())
		}
		differ(t, "cached Foo", fooBefore, foo)
		differ(t, "cached Deployment", deploymentBefore, deployment)
	})
}

// versions are the resource versions that the caches of Foos and of Deployments have
// reached.
type versions struct{ foos, deployments string }

// ready reports whether caches at those versions show every write for the Foo "foo".
func (f *fixture) ready(reached versions) bool {
	f.fooIndexer.Bookmark(reached.foos)
	f.deploymentIndexer.Bookmark(reached.deployments)
	return f.consistency.EnsureReady(testKey("foo")) == nil
}

// TestSyncRemembersItsWrites makes one write whose answer has the resource version 11.
func TestSyncRemembersItsWrites(t *testing.T) {
	eleven := func(deployment *appsv1.Deployment) { deployment.ResourceVersion = "11" }
	foo := newFoo()
	three := newFoo(fooReplicas(ptr.To[int32](3)))
	tests := map[string]struct {
		foo         *v1alpha1.Foo
		deployments []*appsv1.Deployment
		prepare     func(*fixture)
		// behind are caches that have not seen the write yet, and seen those that
		// have.
		behind, seen versions
	}{
		"rule 14: a creation": {
			foo: foo, prepare: func(f *fixture) { answer(f, "create", newOwned(foo, eleven)) },
			behind: versions{"99", "10"}, seen: versions{"1", "11"}},
		"rule 14: a repair": {
			foo: three, deployments: []*appsv1.Deployment{newOwned(foo)}, prepare: func(f *fixture) { answer(f, "patch", newOwned(three, eleven)) },
			behind: versions{"99", "10"}, seen: versions{"1", "11"}},
		"rule 14: what a creation found in its way counts like a write": {
			foo: foo, prepare: func(f *fixture) {
				fixtures.Failing(&f.kube.Fake, "create", "deployments", apierrors.NewAlreadyExists(deploymentsGroup, "web"))
				answer(f, "get", newOwned(foo, eleven))
			},
			behind: versions{"99", "10"}, seen: versions{"1", "11"}},
		"rule 14: a status": {
			foo: foo, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			behind: versions{"9", "99"}, seen: versions{"10", "1"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, []*v1alpha1.Foo{test.foo}, test.deployments)
				f.fill(t, []*v1alpha1.Foo{test.foo}, test.deployments)
				if test.prepare != nil {
					test.prepare(f)
				}
				if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
					t.Fatal(err)
				}
				if f.ready(test.behind) {
					t.Errorf("caches at %v count as up to date", test.behind)
				}
				if !f.ready(test.seen) {
					t.Errorf("caches at %v count as behind", test.seen)
				}
			})
		})
	}
}

func TestSyncRemembersItsDeletes(t *testing.T) {
	foo := newFoo()
	moved := newFoo(wants("next"))
	deployments := []*appsv1.Deployment{newOwned(foo), newOwned(moved, available)}
	tests := map[string]func(*fixture){
		"rule 14: a Deployment that was deleted":     func(*fixture) {},
		"rule 14: a Deployment that was gone before": fail("delete", "deployments", apierrors.NewNotFound(deploymentsGroup, "web")),
	}
	for name, prepare := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, []*v1alpha1.Foo{moved}, deployments)
				f.fill(t, []*v1alpha1.Foo{moved}, deployments)
				prepare(f)
				if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
					t.Fatal(err)
				}
				if !f.deletions.DeletionExpected("uid-web") || f.deletions.DeletionExpected("uid-next") {
					t.Errorf("deleted: former %v, present %v, want true and false", f.deletions.DeletionExpected("uid-web"), f.deletions.DeletionExpected("uid-next"))
				}
			})
		})
	}
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
			foos: []*v1alpha1.Foo{foo}, prepare: fail("update", "foos", errConflict()), want: time.Second - time.Millisecond},
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
				f.debouncer.Delay(testKey("foo"))
				time.Sleep(time.Millisecond)
				_, err := f.syncHandler(ctx, testKey("foo"))
				if got := f.debouncer.Delay(testKey("foo")); got != test.want {
					t.Errorf("delayed for %v, want %v; the sync's error was %v", got, test.want, err)
				}
			})
		})
	}
}

// TestEventsEndWhatIsRemembered is about a Foo that is changed, or made anew,
// faster than it is worked on.
func TestEventsEndWhatIsRemembered(t *testing.T) {
	changed := func(options ...fooOption) *v1alpha1.Foo {
		return newFoo(append(options, func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" })...)
	}
	tests := map[string]struct {
		event func(*fixture)
		// forgetsWrites and forgetsFailures say what is gone after the event.
		forgetsWrites, forgetsFailures bool
	}{
		"rule 11: a new generation is not held back by the failures of the old one": {
			event: func(f *fixture) { f.updateFoo(newFoo(), changed(fooGeneration(2))) }, forgetsFailures: true},
		"rule 11: a new status changes nothing": {
			event: func(f *fixture) { f.updateFoo(newFoo(), changed()) }},
		"rule 23: the event of the status write ends the record of it": {
			event: func(f *fixture) {
				f.updateFoo(newFoo(), newFoo(func(foo *v1alpha1.Foo) { foo.ResourceVersion = "12" }))
			}, forgetsWrites: true},
		"rule 21: a Foo made anew inherits nothing, seen as one update": {
			event: func(f *fixture) { f.updateFoo(newFoo(), changed(fooUID("anew"))) }, forgetsWrites: true, forgetsFailures: true},
		"rule 21: a Foo made anew inherits nothing, seen as delete and add": {
			event: func(f *fixture) { f.deleteFoo(cache.DeletedObject[*v1alpha1.Foo]{OptionalObj: newFoo()}) }, forgetsWrites: true, forgetsFailures: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, f := newFixture(t, nil, nil)
				f.worker.Queue.AddRateLimited(testKey("foo"))
				f.consistency.WroteAt(testKey("foo"), "uid-foo", v1alpha1.Resource("foos"), "12")
				test.event(f)
				if got := f.ready(versions{"10", "10"}); got != test.forgetsWrites {
					t.Errorf("writes forgotten: %v, want %v", got, test.forgetsWrites)
				}
				if got := f.worker.Queue.NumRequeues(testKey("foo")) == 0; got != test.forgetsFailures {
					t.Errorf("failures forgotten: %v, want %v", got, test.forgetsFailures)
				}
			})
		})
	}
}

// TestDeleteEventEndsTheMemoryOfTheDelete is the end of rule 14 for deletes.
func TestDeleteEventEndsTheMemoryOfTheDelete(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, f := newFixture(t, nil, nil)
		f.deletions.ExpectDeletion("uid-web")
		f.deleteDeployment(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: newOwned(newFoo())})
		if f.deletions.DeletionExpected("uid-web") {
			t.Error("rule 14: the delete is still remembered after its event")
		}
	})
}

// TestEventHandlers checks rule 19: which events enqueue which Foos.
func TestEventHandlers(t *testing.T) {
	foo, bar := newFoo(), newFoo(fooNamed("bar"), wants("other"))
	barOwnsWeb := newForeign(ownedBy(fooReference(bar)))
	changed := func(deployment *appsv1.Deployment) *appsv1.Deployment {
		deployment = deployment.DeepCopy()
		deployment.ResourceVersion = "11"
		return deployment
	}
	changedFoo := func(options ...fooOption) *v1alpha1.Foo {
		return newFoo(append([]fooOption{func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" }}, options...)...)
	}
	tests := map[string]struct {
		deployments []*appsv1.Deployment
		event       func(*fixture)
		want        []string
	}{
		"rule 19: a new Foo is enqueued": {
			event: func(f *fixture) { f.addFoo(foo) }, want: []string{"foo"}},
		"rule 19: a new Foo enqueues the owner of the Deployment that it asks for": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event:       func(f *fixture) { f.addFoo(foo) }, want: []string{"foo", "bar"}},
		"rule 19: a changed Foo is enqueued": {
			event: func(f *fixture) { f.updateFoo(foo, changedFoo()) }, want: []string{"foo"}},
		"rule 11: the event of its own status write enqueues no Foo, or a refusal that reads differently each time would be retried without backoff": {
			event: func(f *fixture) {
				f.consistency.WroteAt(testKey("foo"), foo.UID, v1alpha1.Resource("foos"), "11")
				f.updateFoo(foo, changedFoo())
			}},
		"rule 19: a change that follows its own status write enqueues the Foo": {
			event: func(f *fixture) {
				f.consistency.WroteAt(testKey("foo"), foo.UID, v1alpha1.Resource("foos"), "10")
				f.updateFoo(foo, changedFoo())
			}, want: []string{"foo"}},
		"rule 19: a renamed Foo enqueues the owner of the Deployment that it asked for": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event:       func(f *fixture) { f.updateFoo(foo, changedFoo(wants("free"))) }, want: []string{"foo", "bar"}},
		"rule 19: a renamed Foo enqueues the owner of the Deployment that it asks for now": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event:       func(f *fixture) { f.updateFoo(newFoo(wants("free")), changedFoo()) }, want: []string{"foo", "bar"}},
		"rule 9: a renamed Foo enqueues the Foos that wait for the name that it asked for, for their messages tell of it": {
			event: func(f *fixture) {
				f.updateFoo(newFoo(fooNamed("baz")), newFoo(fooNamed("baz"), wants("free"), func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" }))
			}, want: []string{"baz", "foo"}},
		"rule 9: a renamed Foo enqueues the Foos that wait for the name that it asks for now": {
			event: func(f *fixture) {
				f.updateFoo(newFoo(fooNamed("baz"), wants("free")), newFoo(fooNamed("baz"), func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" }))
			}, want: []string{"baz", "foo"}},
		"rule 9: a Foo whose deletion begins enqueues the Foos that wait for its Deployments, for their messages tell of it": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event: func(f *fixture) {
				f.updateFoo(bar, newFoo(fooNamed("bar"), wants("other"), fooTerminating, func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" }))
			}, want: []string{"bar", "foo"}},
		"rule 19: a later event of a terminating Foo enqueues no other one": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event: func(f *fixture) {
				terminating := newFoo(fooNamed("bar"), wants("other"), fooTerminating)
				f.updateFoo(terminating, newFoo(fooNamed("bar"), wants("other"), fooTerminating, func(foo *v1alpha1.Foo) { foo.ResourceVersion = "11" }))
			}, want: []string{"bar"}},
		"rule 19: a relist of unchanged Foos enqueues no Foo": {
			event: func(f *fixture) { f.updateFoo(foo, newFoo()) }},
		"rule 19: a deleted Foo is enqueued, with the owner of the Deployment that it asked for": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event:       func(f *fixture) { f.deleteFoo(cache.DeletedObject[*v1alpha1.Foo]{OptionalObj: foo}) }, want: []string{"foo", "bar"}},
		"rule 19: a deleted Foo of which the informer knows only the key is enqueued": {
			event: func(f *fixture) {
				f.deleteFoo(cache.DeletedObject[*v1alpha1.Foo]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "ns/foo"}})
			}, want: []string{"foo"}},
		"rule 19: a Deployment enqueues its owner and all Foos that ask for its name": {
			event: func(f *fixture) { f.handleObject(barOwnsWeb) }, want: []string{"bar", "foo"}},
		"rule 19: a Deployment without an owner enqueues all Foos that ask for its name": {
			event: func(f *fixture) { f.handleObject(newForeign()) }, want: []string{"foo"}},
		"rule 19: a Deployment that no Foo owns or asks for enqueues no Foo": {
			event: func(f *fixture) {
				f.handleObject(newForeign(func(d *appsv1.Deployment) { d.Name = "unrelated" }))
			}},
		"rule 19: a Deployment in another namespace enqueues no Foo": {
			event: func(f *fixture) {
				f.handleObject(newForeign(func(d *appsv1.Deployment) { d.Namespace = "elsewhere" }))
			}},
		"rule 17: an owner of kind Foo in another API group is not enqueued": {
			event: func(f *fixture) {
				f.handleObject(newForeign(func(d *appsv1.Deployment) { d.Name = "else" }, ownedBy(metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Foo", Name: "foo", UID: "uid-foo", Controller: ptr.To(true)})))
			}},
		"rule 5: a Deployment that changes its owner enqueues the old and the new owner": {
			event: func(f *fixture) {
				f.updateDeployment(newForeign(ownedBy(fooReference(bar))), changed(newForeign(ownedBy(fooReference(foo)))))
			}, want: []string{"bar", "foo"}},
		"rule 5: a Deployment that changes its owner enqueues a new owner that does not ask for its name": {
			event: func(f *fixture) {
				elsewhere := func(d *appsv1.Deployment) { d.Name = "else" }
				f.updateDeployment(newForeign(elsewhere), changed(newForeign(elsewhere, ownedBy(fooReference(foo)))))
			}, want: []string{"foo"}},
		"rule 19: a changed Deployment without an owner enqueues all Foos that ask for its name": {
			event: func(f *fixture) { f.updateDeployment(newForeign(), changed(newForeign())) }, want: []string{"foo"}},
		"rule 19: a relist of unchanged Deployments enqueues no Foo": {
			event: func(f *fixture) { f.updateDeployment(barOwnsWeb, barOwnsWeb.DeepCopy()) }},
		"rule 5: a deleted Deployment enqueues its owner and all Foos that ask for its name": {
			event: func(f *fixture) {
				f.deleteDeployment(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: barOwnsWeb})
			}, want: []string{"bar", "foo"}},
		"rule 5: a deleted Deployment of which the informer knows only the key enqueues all Foos that ask for its name": {
			event: func(f *fixture) {
				f.deleteDeployment(cache.DeletedObject[*appsv1.Deployment]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "ns/web"}})
			}, want: []string{"foo"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, f := newFixture(t, nil, nil)
				f.fill(t, []*v1alpha1.Foo{foo, bar}, test.deployments)
				test.event(f)
				differ(t, "enqueued", test.want, f.enqueued(0))
				differ(t, "requests", []string(nil), f.requests())
			})
		})
	}
}

// TestResyncEnqueuesOneFoo checks that the resync of a Foo enqueues no other Foo: each has a
// resync of its own, with a low priority.
func TestResyncEnqueuesOneFoo(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo, bar := newFoo(), newFoo(fooNamed("bar"), wants("other"))
		_, f := newFixture(t, nil, nil, func(o *controller.WorkerOptions) { o.Resync = true })
		f.fill(t, []*v1alpha1.Foo{foo, bar}, []*appsv1.Deployment{newForeign(ownedBy(fooReference(bar)))})
		f.updateFoo(foo, newFoo())
		differ(t, "enqueued", []string{"foo"}, f.enqueued(0))
	})
}

// brokenInformer is an informer that returns errors for indexes.
type brokenInformer[T cache.Object] struct {
	cache.TypedSharedIndexInformer[T]
	indexes error
}

func (b brokenInformer[T]) AddTypedIndexers(indexes cache.TypedIndexers[T]) error {
	if b.indexes != nil {
		return b.indexes
	}
	return b.TypedSharedIndexInformer.AddTypedIndexers(indexes)
}

type brokenFoos struct {
	foov1alpha1.TypedFooInformer
	brokenInformer[*v1alpha1.Foo]
}

func (b brokenFoos) TypedInformer() foov1alpha1.FooIndexInformer { return b.brokenInformer }

type brokenDeployments struct {
	appsinformers.TypedDeploymentInformer
	brokenInformer[*appsv1.Deployment]
}

func (b brokenDeployments) TypedInformer() appsinformers.DeploymentIndexInformer {
	return b.brokenInformer
}

func TestNewControllerFails(t *testing.T) {
	broken := errors.New("broken")
	tests := map[string]struct {
		foos        brokenInformer[*v1alpha1.Foo]
		deployments brokenInformer[*appsv1.Deployment]
		want        string
	}{
		"no index of Foos": {
			foos: brokenInformer[*v1alpha1.Foo]{indexes: broken}, want: "adding an index to the Foo informer: broken"},
		"no index of Deployments": {
			deployments: brokenInformer[*appsv1.Deployment]{indexes: broken}, want: "adding an index to the Deployment informer: broken"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// The bubble fails the test if NewController leaves the queue running.
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, nil, nil)
				foos := fooinformers.NewSharedInformerFactory(f.foo, 0).Samplecontroller().V1alpha1().Foos()
				deployments := kubeinformers.NewSharedInformerFactory(f.kube, 0).Apps().V1().Deployments()
				test.foos.TypedSharedIndexInformer = foos.TypedInformer()
				test.deployments.TypedSharedIndexInformer = deployments.TypedInformer()
				options := f.options
				options.Foos, options.Deployments = brokenFoos{foos, test.foos}, brokenDeployments{deployments, test.deployments}
				options.Metrics = controller.NewMetrics(metrics.NewKubeRegistry())
				c, err := NewController(ctx, options)
				if c != nil || err == nil || err.Error() != test.want {
					t.Errorf("controller %v, error %v, want none and %q", c, err, test.want)
				}
			})
		})
	}
}

// brokenIndexer is a cache that returns an error for each read.
type brokenIndexer struct {
	cache.Indexer
}

func (brokenIndexer) GetByKey(string) (any, bool, error) {
	return nil, false, errors.New("broken")
}

func TestSyncWithBrokenCache(t *testing.T) {
	tests := map[string]struct {
		prepare func(*fixture)
		want    string
	}{
		"the Foos": {
			func(f *fixture) { f.foos = foolisters.NewFooLister(brokenIndexer{}) }, "reading Foo from the cache: broken"},
		"the Deployments": {
			func(f *fixture) { f.deployments = appslisters.NewDeploymentLister(brokenIndexer{}) }, `reading Deployment "web" from the cache: broken`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, nil, nil)
				f.fill(t, []*v1alpha1.Foo{newFoo()}, nil)
				test.prepare(f)
				if _, err := f.syncHandler(ctx, testKey("foo")); err == nil || err.Error() != test.want {
					t.Errorf("error %v, want %q", err, test.want)
				}
				differ(t, "requests", []string(nil), f.requests())
			})
		})
	}
}

// TestWritesAreCounted looks at what one sync counts.
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
			want: []string{`resource="foos/status",verb="update"`}, logged: []string{"Updated status ready True reason DeploymentAvailable"},
		},
		"a deletion, and the status": {
			foo: foo, deployments: []*appsv1.Deployment{newOwned(foo, available), former},
			want:   []string{`resource="deployments",verb="delete"`, `resource="foos/status",verb="update"`},
			logged: []string{"Deleted the former Deployment after spec.deploymentName changed deployment ns/former", "Updated status ready True reason DeploymentAvailable"},
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

// managed returns an entry of managed fields.
func managed(manager, subresource, fields string, at time.Duration) metav1.ManagedFieldsEntry {
	entry := metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fields)}
	if at >= 0 {
		entry.Time = ptr.To(metav1.NewTime(testNow.Add(at)))
	}
	return entry
}

// TestContention is rule 21 as one sync after the other: another writer scales the
// Deployment back after each repair.
func TestContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		three := newFoo(fooReplicas(ptr.To[int32](3)))
		theirs := newOwned(newFoo(), available, func(d *appsv1.Deployment) {
			d.ManagedFields = []metav1.ManagedFieldsEntry{managed("kube-controller-manager", "scale", `{"f:spec":{"f:replicas":{}}}`, 0)}
		})
		ctx, f := newFixture(t, []*v1alpha1.Foo{three}, []*appsv1.Deployment{theirs})
		f.fill(t, []*v1alpha1.Foo{three}, []*appsv1.Deployment{theirs})
		// The fake clientset replaces managed fields.
		f.kube.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) { return true, theirs, nil })
		sync := func() (time.Duration, []string) {
			t.Helper()
			f.kube.ClearActions()
			f.foo.ClearActions()
			requeueAfter, err := f.syncHandler(ctx, testKey("foo"))
			if err != nil {
				t.Fatal(err)
			}
			return requeueAfter, f.requests()
		}
		const patch = `patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`
		const confirm = "get foos foo"
		for i := range 5 {
			requeueAfter, requests := sync()
			want := []string{patch, confirm}
			if i == 0 {
				want = []string{patch}
			}
			differ(t, "rule 4: requests of an ordinary repair, which reads the Foo live from the second one on", want, requests)
			if requeueAfter != time.Second {
				t.Errorf("repair %d: requeue after %v", i, requeueAfter)
			}
		}
		f.recorded()

		requeueAfter, requests := sync()
		differ(t, "rule 21: requests when the contention begins", []string{"get deployments web", putStatus + "gen=1 available=1 replicas=1 False/DeploymentContested"}, requests)
		differ(t, "rule 21: events when the contention begins", []string{"Warning DeploymentContested"}, f.recorded())
		if requeueAfter != 10*time.Second {
			t.Errorf("rule 21: requeue after %v, want %v", requeueAfter, 10*time.Second)
		}
		stored, err := f.foo.SamplecontrollerV1alpha1().Foos(testNamespace).Get(ctx, "foo", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(stored.Status.Conditions) == 0 {
			t.Fatal("no condition was written")
		}
		if got, want := stored.Status.Conditions[0].Message, "replicas (by kube-controller-manager through scale)"; !strings.Contains(got, want) {
			t.Errorf("rule 21: message %q, want %q in it", got, want)
		}
		if err := f.fooIndexer.Update(stored); err != nil {
			t.Fatal(err)
		}

		time.Sleep(4 * time.Second)
		requeueAfter, requests = sync()
		differ(t, "rule 21: requests during the pause", []string(nil), requests)
		if want := 10*time.Second - 4*time.Second; requeueAfter != want {
			t.Errorf("rule 21: requeue after %v, want %v", requeueAfter, want)
		}
		time.Sleep(requeueAfter)
		_, requests = sync()
		differ(t, "rule 21: requests after the pause: one repair, the status unchanged", []string{patch, confirm}, requests)

		// The other writer gives up.
		if err := f.deploymentIndexer.Update(newOwned(three, available)); err != nil {
			t.Fatal(err)
		}
		requeueAfter, requests = sync()
		differ(t, "rule 21: requests while the repair has not held for long", []string{"update foos/status foo uid=uid-foo version=10: gen=1 available=3 replicas=3 False/DeploymentContested"}, requests)
		time.Sleep(requeueAfter)
		_, requests = sync()
		differ(t, "rule 21: requests after the contention", []string{"update foos/status foo uid=uid-foo version=10: gen=1 available=3 replicas=3 True/DeploymentAvailable"}, requests)
		differ(t, "rule 21: events after the contention", []string{"Normal Updated", "Normal Synced"}, f.recorded())
	})
}

func TestContentionThatCannotBeRead(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		three := newFoo(fooReplicas(ptr.To[int32](3)))
		ctx, f := newFixture(t, []*v1alpha1.Foo{three}, nil)
		f.fill(t, []*v1alpha1.Foo{three}, []*appsv1.Deployment{newOwned(newFoo(), available)})
		for range 5 {
			f.contention.Repaired(testKey("foo"), 1, "replicas")
		}
		if _, err := f.syncHandler(ctx, testKey("foo")); err == nil || !strings.Contains(err.Error(), "reading Deployment") {
			t.Errorf("error %v", err)
		}
	})
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
		differ(t, "rule 21: the drift at which the contention is reported", 6, contested)
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
		f.kube.PrependReactor("create", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, newOwned(foo), nil
		})
		f.kube.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) {
			t.Error("a Deployment that is gone was read")
			return false, nil, nil
		})
		creations := 0
		for range 100 {
			if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
				t.Fatal(err)
			}
			creations += f.count(createWeb)
			f.refresh(ctx, t)
			time.Sleep(50 * time.Millisecond)
		}
		differ(t, "rule 21: creations in five seconds: the first one and five more", 6, creations)
		status, message := f.refresh(ctx, t)
		differ(t, "rule 21: the status", "gen=1 available=0 replicas=0 False/DeploymentContested", status)
		if want := "deleted by another client"; !strings.Contains(message, want) {
			t.Errorf("rule 21: message %q, want %q in it", message, want)
		}
	})
}

// TestAdmissionReplacesTheOwnerReference is rules 11 and 21: each repair is refused in this way,
// and each answer is an event. The repairs end in pauses, with one warning for each state.
func TestAdmissionReplacesTheOwnerReference(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := newFoo()
		stripped := newOwned(foo, available, func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil })
		ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, []*appsv1.Deployment{stripped})
		f.fill(t, []*v1alpha1.Foo{foo}, []*appsv1.Deployment{stripped})
		answer(f, "patch", stripped)
		repairs := 0
		for range 600 {
			_, _ = f.syncHandler(ctx, testKey("foo"))
			repairs += f.count("patch deployments web")
			f.refresh(ctx, t)
			time.Sleep(time.Second)
		}
		if repairs < 8 || repairs > 12 {
			t.Errorf("rule 21: %d repairs in ten minutes, want 8 to 12", repairs)
		}
		differ(t, "rule 21: events", []string{"Warning DeploymentRejected", "Warning DeploymentContested"}, f.recorded())
		status, message := f.refresh(ctx, t)
		differ(t, "rule 21: the status", "gen=1 available=1 replicas=1 False/DeploymentContested", status)
		if want := "owner reference (by "; !strings.Contains(message, want) {
			t.Errorf("rule 21: message %q, want %q in it", message, want)
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
		f.foo.PrependReactor("update", "foos", func(clienttesting.Action) (bool, runtime.Object, error) {
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
			differ(t, "rule 11: status writes for "+refusal.err.Error(), want, f.count("update foos/status"))
			differ(t, "rule 11: events for "+refusal.err.Error(), want, len(f.recorded()))
			if _, message := f.refresh(ctx, t); !strings.Contains(message, refusal.message) {
				t.Errorf("rule 11: message %q, want %q in it", message, refusal.message)
			}
		}
	})
}

// TestPatchWithoutEffect is rule 23: admission takes a patch back, the API server answers with
// the version that the cache has, and no event follows. The next sync waits for nothing.
func TestPatchWithoutEffect(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := newFoo(fooImage("nginx:1"))
		deployments := []*appsv1.Deployment{newOwned(foo, available, deploymentImage(mirrored))}
		ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, deployments)
		f.fill(t, []*v1alpha1.Foo{foo}, deployments)
		f.admit(t, foo)
		if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
			t.Fatal(err)
		}
		if !f.ready(versions{"10", "9"}) {
			t.Error("rule 23: a patch without an effect is remembered")
		}
	})
}

// TestThirdValue is rule 4: only what admission made of the last write is accepted.
func TestThirdValue(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := newFoo(fooImage("nginx:1"))
		ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, nil)
		f.fill(t, []*v1alpha1.Foo{foo}, nil)
		f.admit(t, foo)
		steps := []struct {
			// image is what another client sets before the sync.
			image  string
			writes int
		}{{"", 1}, {"", 0}, {"other:1", 1}, {"", 0}, {"nginx:1", 0}, {mirrored, 0}}
		for i, step := range steps {
			if step.image != "" {
				set := newOwned(foo, available, deploymentImage(step.image))
				if err := f.deploymentIndexer.Update(cached(t, []*appsv1.Deployment{set})[0]); err != nil {
					t.Fatal(err)
				}
			}
			if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
				t.Fatal(err)
			}
			differ(t, fmt.Sprintf("rule 4: writes in step %d", i), step.writes, f.count("create deployments", "patch deployments"))
		}
	})
}

// TestAdmittedValueEnds is rule 4: a new generation asks again, and of a Foo that is gone
// nothing is remembered.
func TestAdmittedValueEnds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := newFoo(fooImage("nginx:1"))
		ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, nil)
		f.fill(t, []*v1alpha1.Foo{foo}, nil)
		f.admit(t, foo)
		for generation := range int64(3) {
			next := newFoo(fooImage("nginx:1"), fooGeneration(generation+1))
			if err := f.fooIndexer.Update(next); err != nil {
				t.Fatal(err)
			}
			for range 3 {
				if _, err := f.syncHandler(ctx, testKey("foo")); err != nil && !apierrors.IsConflict(err) {
					t.Fatal(err)
				}
			}
			differ(t, fmt.Sprintf("rule 4: writes for generation %d", next.Generation), 1, f.count("create deployments", "patch deployments"))
		}
		f.clear(testKey("foo"))
		differ(t, "rule 1: what is remembered of a Foo that is gone", []controller.FieldValue(nil), f.admitted.Get(testKey("foo"), 3))
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
