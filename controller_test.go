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
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
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
		failing(fake, verb, strings.TrimSuffix(resource, "/status"), err)
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
	blocked := newFoo(fooStatus(observation{deployment: foreign}))
	rejected := newFoo(fooStatus(observation{rejected: fmt.Errorf("creating Deployment %q: %w", "web", errQuota())}))
	moved := newFoo(fooReady, fooGeneration(2), wants("next"))
	renamed := func(foo *v1alpha1.Foo) *appsv1.Deployment { return newOwned(foo, available) }
	bar := newFoo(fooNamed("bar"), wants("next"))
	barSwapping := newFoo(fooNamed("bar"), wants("web"))
	heldByBar := newOwned(bar, available)

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
			events:   []string{"Normal Synced"}},
		"rule 3: AlreadyExists from a stale cache: it is this Foo's and has drifted": {
			foos: []*v1alpha1.Foo{foo}, liveDeployments: []*appsv1.Deployment{newOwned(foo, deploymentReplicas(ptr.To[int32](2)))},
			requests: []string{createWeb, "get deployments web", `patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
			events:   []string{"Normal Updated"}, again: time.Second},
		"rule 3: AlreadyExists, and it is foreign": {
			foos: []*v1alpha1.Foo{foo}, liveDeployments: []*appsv1.Deployment{foreign},
			requests: []string{createWeb, "get deployments web", putStatus + notOwned},
			events:   []string{"Warning ErrResourceExists"}},
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

		"rule 8: renamed: first the Deployment of the new name": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo)}, liveFoos: []*v1alpha1.Foo{moved},
			requests: []string{
				"create deployments next replicas=1 owner=uid-foo",
				"delete deployments web uid=uid-web version=10",
				"get foos foo"},
			events: []string{"Normal Created", "Normal Deleted"}, again: time.Second},
		"rule 8: renamed twice: the Deployments of all former names go": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), renamed(newFoo(wants("first"))), newOwned(moved)},
			requests: []string{
				"get deployments next",
				"delete deployments first uid=uid-first version=10",
				"delete deployments web uid=uid-web version=10",
				"get foos foo"},
			events: []string{"Normal Deleted", "Normal Deleted"}, again: time.Second},
		"rule 8: renamed: while the new name is taken the former Deployment stays": {
			foos: []*v1alpha1.Foo{moved, bar}, deployments: []*appsv1.Deployment{renamed(foo), heldByBar},
			requests: []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:   []string{"Warning ErrResourceExists"}, woken: []string{"bar"}},
		"rule 8: renamed: while the new Deployment is refused the former one stays": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo)},
			prepare: fail("create", "deployments", errQuota()),
			requests: []string{
				"create deployments next replicas=1 owner=uid-foo",
				putStatus + "gen=2 available=0 replicas=0 False/DeploymentRejected"},
			events: []string{"Warning DeploymentRejected"}, err: "exceeded quota"},
		"rule 8: renamed: while the new Deployment is being deleted the former one stays": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, deploymentTerminating)},
			again: time.Second},
		"rule 8: a former Deployment that is terminating is not deleted twice": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{newOwned(foo, deploymentTerminating), newOwned(moved)},
			again: time.Second},
		"rule 14: a Deployment that this process deleted counts as terminating": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved)},
			prepare: func(f *fixture) { f.gate.wroteDelete("uid-web") },
			again:   time.Second},
		"rule 8: nothing is deleted when the live Foo has another generation": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved)},
			liveFoos: []*v1alpha1.Foo{newFoo(fooGeneration(3))},
			requests: []string{"get foos foo"}, err: "out of date"},
		"rule 8: nothing is deleted when the live Foo has another uid": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved)},
			liveFoos: []*v1alpha1.Foo{newFoo(fooGeneration(2), fooUID("next"))},
			requests: []string{"get foos foo"}, err: "out of date"},
		"rule 8: nothing is deleted when the live Foo is terminating": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved)},
			liveFoos: []*v1alpha1.Foo{newFoo(fooGeneration(2), fooTerminating)},
			requests: []string{"get foos foo"}, err: "out of date"},
		"rule 8: nothing is deleted when the live Foo is gone": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved)},
			liveFoos: []*v1alpha1.Foo{newFoo(fooNamed("other"))},
			requests: []string{"get foos foo"}, err: "out of date"},
		"rule 8: nothing is deleted when the live Foo cannot be read": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved)},
			prepare:  fail("get", "foos", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{"get foos foo"}, err: "oops"},
		"rule 8: a former Deployment that is gone already is fine": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved)},
			liveDeployments: []*appsv1.Deployment{newOwned(moved)},
			requests:        []string{"get deployments next", "delete deployments web uid=uid-web version=10", "get foos foo"}, again: time.Second},
		"rule 8: 409 on the delete is tried again": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved)},
			prepare:  fail("delete", "deployments", errConflict()),
			requests: []string{"get deployments next", "delete deployments web uid=uid-web version=10", "get foos foo"}, err: "deleting Deployment"},
		"rule 8: two Foos that swap names: the former Deployment is released at once": {
			foos: []*v1alpha1.Foo{moved, barSwapping}, deployments: []*appsv1.Deployment{renamed(foo), heldByBar},
			requests: []string{
				"delete deployments web uid=uid-web version=10",
				"get foos foo", "get foos bar",
				putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events: []string{"Normal Deleted", "Warning ErrResourceExists"}, woken: []string{"bar"}},
		"rule 8: a swap is confirmed by reading the other Foo live as well": {
			foos: []*v1alpha1.Foo{moved, barSwapping}, deployments: []*appsv1.Deployment{renamed(foo), heldByBar},
			liveFoos: []*v1alpha1.Foo{moved, newFoo(fooNamed("bar"), fooGeneration(2), wants("next"))},
			requests: []string{"get foos foo", "get foos bar"}, err: "out of date"},
		"rule 11: a swap whose deletes are refused wakes nobody, or the two would wake each other for ever": {
			foos: []*v1alpha1.Foo{moved, barSwapping}, deployments: []*appsv1.Deployment{renamed(foo), heldByBar},
			prepare: fail("delete", "deployments", errQuota()),
			requests: []string{
				"delete deployments web uid=uid-web version=10",
				"get foos foo", "get foos bar",
				putStatus + "gen=2 available=0 replicas=0 False/DeploymentRejected"},
			events: []string{"Warning DeploymentRejected"}, err: "exceeded quota"},
		"rule 8: renamed back before the cache shows the delete: the Deployment that stands is kept": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			prepare: func(f *fixture) { f.gate.wroteDelete("uid-web") },
			again:   time.Second},
		"rule 8: nothing is deleted when the Deployment of the new name is gone, which the cache does not know": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveDeployments: []*appsv1.Deployment{renamed(foo)},
			requests:        []string{"get deployments next", "get foos foo"}, err: "out of date"},
		"rule 8: nothing is deleted when the Deployment of the new name is terminating": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveDeployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, deploymentTerminating)},
			requests:        []string{"get deployments next", "get foos foo"}, err: "out of date"},
		"rule 8: nothing is deleted when the Deployment of the new name was handed over": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveDeployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, ownedBy())},
			requests:        []string{"get deployments next", "get foos foo"}, err: "out of date"},
		"rule 8: nothing is deleted when the Deployment of the new name was made anew": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveDeployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, func(d *appsv1.Deployment) { d.UID = "another" })},
			requests:        []string{"get deployments next", "get foos foo"}, err: "out of date"},
		"rule 8: nothing is deleted when the Deployment of the new name cannot be read": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			prepare:  fail("get", "deployments", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{"get deployments next", "get foos foo"}, err: "oops"},
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
		"rule 8: a swap with a terminating Foo is none": {
			foos:        []*v1alpha1.Foo{moved, newFoo(fooNamed("bar"), wants("web"), fooTerminating)},
			deployments: []*appsv1.Deployment{renamed(foo), heldByBar},
			requests:    []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:      []string{"Warning ErrResourceExists"}},
		"rule 8: a swap with an earlier Foo of that name is none": {
			foos:        []*v1alpha1.Foo{moved, newFoo(fooNamed("bar"), wants("web"), fooUID("recreated"))},
			deployments: []*appsv1.Deployment{renamed(foo), heldByBar},
			requests:    []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:      []string{"Warning ErrResourceExists"}},
		"rule 8: the holder's Deployment is on its way out, so there is nothing to break": {
			foos:        []*v1alpha1.Foo{moved, barSwapping},
			deployments: []*appsv1.Deployment{renamed(foo), newOwned(bar, deploymentTerminating)},
			requests:    []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:      []string{"Warning ErrResourceExists"}},
		"rule 9: the other Foo keeps the name, and is woken should it have to move": {
			foos: []*v1alpha1.Foo{foo, newFoo(fooNamed("bar"))}, deployments: []*appsv1.Deployment{newOwned(newFoo(fooNamed("bar")), available)},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}, woken: []string{"bar"}},
		"rule 9: the Foo that has the name is gone already, so there is nobody to wake": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newOwned(newFoo(fooNamed("bar")), available)},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
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
				f.gate.wrote(testKey("foo"), deploymentsResource, "11")
				f.deploymentIndex.Bookmark("10")
			},
			again: staleCacheDelay},
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
			again: fightWindow},
	}
}

// beginFight lets the controller remember a fight of which it does not know more.
func beginFight(f *fixture) {
	for range maxRepairs {
		f.gate.repaired(testKey("foo"), 1)
	}
	f.gate.fighting(testKey("foo"), 1, true)
}

func TestSyncHandler(t *testing.T) {
	for name, test := range syncTests() {
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
		f.gate.wrote(testKey("foo"), foosResource, "11")
		f.fooIndex.Bookmark("10")
		for range 3 {
			if again, err := f.syncHandler(ctx, testKey("foo")); again != staleCacheDelay || err != nil {
				t.Errorf("rule 14: again after %v, error %v", again, err)
			}
		}
		if got := count(t, f.metrics.staleCacheSkips); got != 3 {
			t.Errorf("rule 14: %v skips counted, want 3", got)
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
			time.Sleep(progressDelay)
		}

		if got := len(f.requests()); got != 3 {
			t.Errorf("%d requests, want two patches and a status: %v", got, f.requests())
		}
		differ(t, "cached Foo", fooBefore, foo)
		differ(t, "cached Deployment", deploymentBefore, deployment)
	})
}

// TestWakes is rule 19: which events wake which Foos.
func TestWakes(t *testing.T) {
	foo, bar := newFoo(), newFoo(fooNamed("bar"), wants("other"))
	barOwnsWeb := newForeign(ownedBy(controllerReference(bar)))
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
		"rule 19: a new Foo is woken": {
			event: func(f *fixture) { f.fooAdded(foo) }, want: []string{"foo"}},
		"rule 19: a new Foo wakes the holder of the name it asks for": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event:       func(f *fixture) { f.fooAdded(foo) }, want: []string{"foo", "bar"}},
		"rule 19: a changed Foo is woken": {
			event: func(f *fixture) { f.fooUpdated(foo, changedFoo()) }, want: []string{"foo"}},
		"rule 19: a renamed Foo wakes the holder of the name it asked for": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event:       func(f *fixture) { f.fooUpdated(foo, changedFoo(wants("free"))) }, want: []string{"bar", "foo"}},
		"rule 19: a renamed Foo wakes the holder of the name it now asks for": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event:       func(f *fixture) { f.fooUpdated(newFoo(wants("free")), changedFoo()) }, want: []string{"foo", "bar"}},
		"rule 19: a relist wakes nobody": {
			event: func(f *fixture) { f.fooUpdated(foo, newFoo()) }},
		"rule 19: a resync that was asked for wakes the Foo": {
			event: func(f *fixture) { f.options.Resync = true; f.fooUpdated(foo, newFoo()) }, want: []string{"foo"}},
		"rule 19: a deleted Foo wakes itself and the holder of its name": {
			deployments: []*appsv1.Deployment{barOwnsWeb},
			event:       func(f *fixture) { f.fooDeleted(cache.DeletedObject[*v1alpha1.Foo]{OptionalObj: foo}) }, want: []string{"foo", "bar"}},
		"rule 19: a deleted Foo of which only the key is known": {
			event: func(f *fixture) {
				f.fooDeleted(cache.DeletedObject[*v1alpha1.Foo]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "ns/foo"}})
			}, want: []string{"foo"}},
		"rule 19: a Deployment wakes its owner and everyone who asks for its name": {
			event: func(f *fixture) { f.deploymentAdded(barOwnsWeb) }, want: []string{"bar", "foo"}},
		"rule 19: a foreign Deployment wakes those who ask for its name": {
			event: func(f *fixture) { f.deploymentAdded(newForeign()) }, want: []string{"foo"}},
		"rule 19: a Deployment that nobody cares for wakes nobody": {
			event: func(f *fixture) { f.deploymentAdded(newForeign(func(d *appsv1.Deployment) { d.Name = "nobody's" })) }},
		"rule 19: a Deployment of the name in another namespace wakes nobody": {
			event: func(f *fixture) {
				f.deploymentAdded(newForeign(func(d *appsv1.Deployment) { d.Namespace = "elsewhere" }))
			}},
		"rule 17: a Foo of another group is no owner": {
			event: func(f *fixture) {
				f.deploymentAdded(newForeign(func(d *appsv1.Deployment) { d.Name = "else" }, ownedBy(metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Foo", Name: "foo", UID: "uid-foo", Controller: ptr.To(true)})))
			}},
		"rule 5: a Deployment that is handed over wakes the former and the new owner": {
			event: func(f *fixture) {
				f.deploymentUpdated(newForeign(ownedBy(controllerReference(bar))), changed(newForeign(ownedBy(controllerReference(foo)))))
			}, want: []string{"bar", "foo"}},
		"rule 5: a Deployment that is handed over wakes a new owner who does not ask for its name": {
			event: func(f *fixture) {
				elsewhere := func(d *appsv1.Deployment) { d.Name = "else" }
				f.deploymentUpdated(newForeign(elsewhere), changed(newForeign(elsewhere, ownedBy(controllerReference(foo)))))
			}, want: []string{"foo"}},
		"rule 19: a changed Deployment of somebody else wakes those who ask for its name": {
			event: func(f *fixture) { f.deploymentUpdated(newForeign(), changed(newForeign())) }, want: []string{"foo"}},
		"rule 19: a relisted Deployment wakes nobody": {
			event: func(f *fixture) { f.deploymentUpdated(barOwnsWeb, barOwnsWeb.DeepCopy()) }},
		"rule 5: a deleted Deployment wakes its owner and everyone who asks for its name": {
			event: func(f *fixture) {
				f.deploymentDeleted(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: barOwnsWeb})
			}, want: []string{"bar", "foo"}},
		"rule 5: a deleted Deployment of which only the key is known": {
			event: func(f *fixture) {
				f.deploymentDeleted(cache.DeletedObject[*appsv1.Deployment]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "ns/web"}})
			}, want: []string{"foo"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, f := newFixture(t, nil, nil)
				f.fill(t, []*v1alpha1.Foo{foo, bar}, test.deployments)
				test.event(f)
				differ(t, "woken", test.want, f.woken(0))
				differ(t, "requests", []string(nil), f.requests())
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
			event: func(f *fixture) { f.fooUpdated(newFoo(), changed(fooGeneration(2))) }, forgetsFailures: true},
		"rule 11: a new status changes nothing": {
			event: func(f *fixture) { f.fooUpdated(newFoo(), changed()) }},
		"rule 21: a Foo made anew inherits nothing, seen as one update": {
			event: func(f *fixture) { f.fooUpdated(newFoo(), changed(fooUID("anew"))) }, forgetsWrites: true, forgetsFailures: true},
		"rule 21: a Foo made anew inherits nothing, seen as delete and add": {
			event: func(f *fixture) { f.fooDeleted(cache.DeletedObject[*v1alpha1.Foo]{OptionalObj: newFoo()}) }, forgetsWrites: true, forgetsFailures: true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, f := newFixture(t, nil, nil)
				f.backoff.When(testKey("foo"))
				f.gate.wrote(testKey("foo"), foosResource, "11")
				test.event(f)
				if got := f.gate.caughtUp(testKey("foo"), versions{"10", "10"}); got != test.forgetsWrites {
					t.Errorf("writes forgotten: %v, want %v", got, test.forgetsWrites)
				}
				if got := f.queue.NumRequeues(testKey("foo")) == 0; got != test.forgetsFailures {
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
		f.gate.wroteDelete("uid-web")
		f.deploymentDeleted(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: newOwned(newFoo())})
		if f.gate.isDeleted("uid-web") {
			t.Error("rule 14: the delete is still remembered after its event")
		}
	})
}
