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
	"errors"
	"fmt"
	"maps"
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
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/child"
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
	// prepare makes requests fail, or gives the gate something to remember.
	prepare func(*fixture)
	// waits is how long the sync is told to wait before it is called a second
	// time, for progress that is put off.
	waits time.Duration

	requests []string
	events   []string
	again    time.Duration
	woken    []string
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
	notOwned  = "gen=1 available=0 replicas=0 False/DeploymentNotOwned"
)

func syncTests() map[string]syncTest {
	foo := newFoo()
	ready := newFoo(fooReady)
	three := newFoo(fooReady, fooGeneration(2), fooReplicas(ptr.To[int32](3)))
	foreign := newForeign()
	blocked := newFoo(fooStatus(child.Observation{Deployment: foreign}))
	rejected := newFoo(fooStatus(child.Observation{Rejected: fmt.Errorf("creating Deployment %q: %w", "web", errQuota())}))

	return map[string]syncTest{
		"rule 1: a Foo that is gone from the cache is nothing to do": {},
		"rule 1: the Deployment of a Foo that is gone is left to the garbage collector": {
			deployments: []*appsv1.Deployment{newOwned(foo)}},
		"rule 2: a terminating Foo's missing Deployment is not created": {
			foos: []*v1alpha1.Foo{newFoo(fooTerminating)}},
		"rule 2: a terminating Foo's Deployment is not repaired and no status is written": {
			foos: []*v1alpha1.Foo{newFoo(fooTerminating)}, deployments: []*appsv1.Deployment{newOwned(foo, deploymentReplicas(ptr.To[int32](9)))}},

		"rule 3: a missing Deployment is created, the status of its progress put off": {
			foos:     []*v1alpha1.Foo{foo},
			requests: []string{createWeb}, events: []string{"Normal Created"}, again: time.Second},
		"rule 3: AlreadyExists from a stale cache: it is this Foo's and as it should be": {
			foos: []*v1alpha1.Foo{foo}, liveDeployments: []*appsv1.Deployment{newOwned(foo, available)},
			requests: []string{createWeb, "get deployments web", putStatus + "gen=1 available=1 replicas=1 True/DeploymentAvailable"},
			events:   []string{"Normal Synced"}, again: controller.StaleCacheDelay},
		"rule 3: AlreadyExists from a stale cache: it is this Foo's and has drifted": {
			foos: []*v1alpha1.Foo{foo}, liveDeployments: []*appsv1.Deployment{newOwned(foo, deploymentReplicas(ptr.To[int32](2)))},
			requests: []string{createWeb, "get deployments web", `patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
			events:   []string{"Normal Updated"}, again: time.Second},
		"rule 3: AlreadyExists, and it is foreign": {
			foos: []*v1alpha1.Foo{foo}, liveDeployments: []*appsv1.Deployment{foreign},
			requests: []string{createWeb, "get deployments web", putStatus + notOwned},
			events:   []string{"Warning ErrResourceExists"}, again: controller.StaleCacheDelay},
		"rule 3: AlreadyExists, and nothing to report: it may be gone before the cache sees it, so it is looked at again": {
			foos: []*v1alpha1.Foo{blocked}, liveDeployments: []*appsv1.Deployment{foreign},
			requests: []string{createWeb, "get deployments web"}, again: controller.StaleCacheDelay},
		"rule 3: AlreadyExists, and gone before it could be read: tried again": {
			foos:     []*v1alpha1.Foo{foo},
			prepare:  fail("create", "deployments", apierrors.NewAlreadyExists(deploymentsGroup, "web")),
			requests: []string{createWeb, "get deployments web"}, err: "not found"},

		"rule 4: drift is repaired with one patch": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			requests: []string{`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`},
			events:   []string{"Normal Updated"}, again: time.Second},
		"rule 4: 409 means that somebody was faster: tried again, status unchanged": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare:  fail("patch", "deployments", errConflict()),
			requests: []string{`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`},
			err:      "updating Deployment \"web\": Operation cannot be fulfilled"},
		"rule 4: what was repaired a moment ago is repaired again if the live Foo still asks for it": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare:  func(f *fixture) { f.Gate.Repaired(testKey("foo"), three.Generation) },
			requests: []string{`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`, "get foos foo"},
			events:   []string{"Normal Updated"}, again: time.Second},
		"rule 4: what another process changed for a newer generation is not undone a second time": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			liveFoos: []*v1alpha1.Foo{newFoo(fooGeneration(three.Generation + 1))},
			prepare:  func(f *fixture) { f.Gate.Repaired(testKey("foo"), three.Generation) },
			requests: []string{"get foos foo"}, err: "out of date"},

		"rule 5: a foreign Deployment is reported and never touched": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{foreign},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
		"rule 5: while it is in the way nothing is written, told or tried again": {
			foos: []*v1alpha1.Foo{blocked}, deployments: []*appsv1.Deployment{foreign}},
		"rule 5: our UID without controller: true is foreign": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newForeign(ownedBy(metav1.OwnerReference{APIVersion: "samplecontroller.k8s.io/v1alpha1", Kind: "Foo", Name: "foo", UID: "uid-foo"}))},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
		"rule 5: once it is gone the Foo gets its Deployment": {
			foos:     []*v1alpha1.Foo{blocked},
			requests: []string{createWeb}, events: []string{"Normal Created"}, again: time.Second},
		"rule 6: an earlier Foo's Deployment is waited for": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newOwned(newFoo(fooUID("earlier")), available)},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
		"rule 7: an owned Deployment that is being deleted is left alone": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{newOwned(foo, available, deploymentTerminating, deploymentReplicas(ptr.To[int32](5)))},
			again: time.Second},

		"rule 4: a repair that admission overrides is a refusal, never Ready": {
			foos: []*v1alpha1.Foo{three}, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			prepare: func(f *fixture) { answer(f, "patch", newOwned(foo, available)) },
			requests: []string{
				`patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`,
				putStatus + "gen=2 available=1 replicas=1 False/DeploymentRejected"},
			events: []string{"Warning DeploymentRejected"}, err: "updating Deployment \"web\": replicas from 1 to 3: an admission webhook or policy overrides it"},
		"rule 3: a creation that admission overrides is a refusal": {
			foos:     []*v1alpha1.Foo{foo},
			prepare:  func(f *fixture) { answer(f, "create", newOwned(foo, deploymentReplicas(ptr.To[int32](9)))) },
			requests: []string{createWeb, putStatus + "gen=1 available=0 replicas=0 False/DeploymentRejected"},
			events:   []string{"Warning DeploymentRejected"}, err: "creating Deployment \"web\": replicas from 9 to 1"},
		"rule 3: a creation whose owner reference admission removes is a refusal": {
			foos:     []*v1alpha1.Foo{foo},
			prepare:  func(f *fixture) { answer(f, "create", newForeign()) },
			requests: []string{createWeb, putStatus + "gen=1 available=0 replicas=0 False/DeploymentRejected"},
			events:   []string{"Warning DeploymentRejected"}, err: "creating Deployment \"web\": owner reference"},
		"rule 10: an orphaned Deployment is not adopted": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newForeign(available)},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},

		"rule 11: refused for good: reported, told once, tried again with backoff": {
			foos: []*v1alpha1.Foo{foo}, prepare: fail("create", "deployments", errQuota()),
			requests: []string{createWeb, putStatus + "gen=1 available=0 replicas=0 False/DeploymentRejected"},
			events:   []string{"Warning DeploymentRejected"}, err: "exceeded quota"},
		"rule 11: refused again: nothing to write or tell": {
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
		"rule 12: 500 is tried again, status unchanged": {
			foos: []*v1alpha1.Foo{foo}, prepare: fail("create", "deployments", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{createWeb}, err: "creating Deployment \"web\": Internal error occurred: oops"},
		"rule 12: a failed status write is tried again, without an event": {
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
			err:      "exceeded quota: one, used: count/deployments.apps=1\nupdating the status of Foo"},
		"rule 13: paused is written at once": {
			foos:        []*v1alpha1.Foo{ready},
			deployments: []*appsv1.Deployment{newOwned(foo, pods(2, 1, 1), func(d *appsv1.Deployment) { d.Spec.Paused = true })},
			requests:    []string{putStatus + "gen=1 available=1 replicas=2 False/DeploymentPaused"}},
		"rule 13: stalled is written at once": {
			foos:        []*v1alpha1.Foo{ready},
			deployments: []*appsv1.Deployment{newOwned(foo, pods(0, 0, 0), deploymentCondition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "no"))},
			requests:    []string{putStatus + "gen=1 available=0 replicas=0 False/DeploymentStalled"}},
		"rule 13: progress is written by the first sync past one second": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{newOwned(foo, pods(1, 1, 0))},
			waits:    time.Second,
			requests: []string{putStatus + "gen=1 available=0 replicas=1 False/DeploymentProgressing"}},
		"rule 13: progress is not written by a sync before that": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{newOwned(foo, pods(1, 1, 0))},
			waits: 400 * time.Millisecond, again: 600 * time.Millisecond},

		"rule 14: a sync that its own last write has not come back to waits": {
			foos: []*v1alpha1.Foo{foo},
			prepare: func(f *fixture) {
				f.Gate.Wrote(testKey("foo"), controller.Children, "11")
				f.deploymentIndex.Bookmark("10")
			},
			again: controller.StaleCacheDelay},
		"rule 15: a converged Foo costs nothing": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{newOwned(foo, available)}},
		"rule 16: an invalid spec is told once and not tried again": {
			foos:     []*v1alpha1.Foo{newFoo(wants(""))},
			requests: []string{putStatus + "gen=1 available=0 replicas=0 False/InvalidSpec"},
			events:   []string{"Warning InvalidSpec"}},

		"rule 21: a Deployment that is gone is created, whoever fought over it": {
			foos: []*v1alpha1.Foo{foo}, prepare: beginFight,
			requests: []string{createWeb}, events: []string{"Normal Created"}, again: time.Second},
		"rule 21: a Deployment that was handed over is nothing to fight over": {
			foos: []*v1alpha1.Foo{blocked}, deployments: []*appsv1.Deployment{foreign}, prepare: beginFight},
		"rule 21: who it is fought with is not looked into while nothing has drifted": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{newOwned(foo, available)}, prepare: beginFight,
			again: controller.FightWindow},
	}
}

// beginFight lets the controller remember a fight of which it does not know more.
func beginFight(f *fixture) {
	for range controller.MaxRepairs {
		f.Gate.Repaired(testKey("foo"), 1)
	}
	f.Gate.Fighting(testKey("foo"), 1, true)
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

	again, err := f.syncHandler(ctx, testKey("foo"))
	if test.waits > 0 {
		differ(t, "requests before the wait", []string(nil), f.requests())
		time.Sleep(test.waits)
		again, err = f.syncHandler(ctx, testKey("foo"))
	}

	differ(t, "requests", test.requests, f.requests())
	differ(t, "events", test.events, f.recorded())
	if again != test.again {
		t.Errorf("to be called again after %v, want %v", again, test.again)
	}
	switch {
	case test.err == "" && err != nil:
		t.Errorf("error %v", err)
	case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
		t.Errorf("error %v, want %q in it", err, test.err)
	}
	differ(t, "Foos woken at once", []string(nil), f.woken(0))
	differ(t, "Foos woken after the delay", test.woken, f.woken(blockerDelay))
}

func TestStaleCacheIsCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, nil, nil)
		f.Gate.Wrote(testKey("foo"), controller.Parents, "11")
		f.fooIndex.Bookmark("10")
		for range 3 {
			if again, err := f.syncHandler(ctx, testKey("foo")); again != controller.StaleCacheDelay || err != nil {
				t.Errorf("rule 14: again after %v, error %v", again, err)
			}
		}
		const want = `# HELP sample_controller_stale_cache_skips_total [ALPHA] Number of syncs put off because the caches had not seen the last writes of this process, by controller.
# TYPE sample_controller_stale_cache_skips_total counter
sample_controller_stale_cache_skips_total{controller="foo"} 3
`
		if err := testutil.GatherAndCompare(f.registry, strings.NewReader(want), "sample_controller_stale_cache_skips_total"); err != nil {
			t.Errorf("rule 14: %v", err)
		}
	})
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
			time.Sleep(controller.ProgressDelay)
		}

		if got := len(f.requests()); got != 4 {
			t.Errorf("%d requests, want two patches, the second after a look at the Foo, and a status: %v", got, f.requests())
		}
		differ(t, "cached Foo", fooBefore, foo)
		differ(t, "cached Deployment", deploymentBefore, deployment)
	})
}
