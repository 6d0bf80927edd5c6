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
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	fixtures "example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/sim"
)

// contested makes five repairs of the Deployment "next" in a row, which the cache does not show.
func contested(f *fixture) {
	foo, _ := f.foos.Cached(testKey("foo"))
	next := f.deployments.Get(testNamespace, "next")
	for i := range 5 {
		if i > 0 {
			time.Sleep(time.Minute)
		}
		if _, err := f.deployments.Patch(context.Background(), foo, next, diffDeployment(foo, next, desiredReplicas(foo))); err != nil {
			panic(err)
		}
	}
	f.count()
	f.recorded()
}

// renameTests are calls of syncHandler for a Foo whose spec.deploymentName has
// changed, and for Foos that are in each other's way.
func renameTests() map[string]syncTest {
	foo := newFoo()
	ready := newFoo(fooReady)
	moved := newFoo(fooReady, fooGeneration(2), wants("next"))
	renamed := func(foo *v1alpha1.Foo) *appsv1.Deployment { return newOwned(foo, available) }
	bar := newFoo(fooNamed("bar"), wants("next"))
	heldByBar := newOwned(bar, available)
	// In a cycle the Foo with the smallest name deletes. These names come before and after that
	// of any kind.
	const before, after = "0-bar", "zz-bar"
	last, lastSwapping := newFoo(fooNamed(after), wants("next")), newFoo(fooNamed(after), wants("web"))
	heldByLast := newOwned(last, available)
	firstSwapping, heldByFirst := newFoo(fooNamed(before), wants("web")), newOwned(newFoo(fooNamed(before), wants("next")), available)

	copied := newOwned(newFoo(wants("copy")), available, writtenBy("kubectl-create"))
	recreate := func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }
	empty := deploymentReplicas(ptr.To[int32](0))
	unlabelled := func(d *appsv1.Deployment) { d.Labels = nil }
	const (
		getWeb, getNext, getFoo = "get deployments web", "get deployments next", "get foos foo"
		createNext              = "create deployments next replicas=1 owner=uid-foo"
		deleteWeb               = "delete deployments web uid=uid-web version=10"
		putReady                = putStatus + "gen=2 available=1 replicas=1 True/DeploymentAvailable"
	)
	deletesWeb := []string{getNext, deleteWeb, getFoo, putReady}

	return map[string]syncTest{
		"rule 8: renamed: the Deployment of the new name is created as a copy, and the former one stays": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo)},
			requests: []string{getWeb, createNext},
			events:   []string{"Normal Created"}, requeueAfter: time.Second},
		"rule 8: renamed: the former Deployment stays until the rollout of the new one is complete": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, pods(1, 1, 0))},
			requeueAfter: time.Second},
		"rule 8: renamed: the former Deployment goes once the rollout of the new one is complete, after live reads of the Foo and the new one": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			requests: deletesWeb, events: []string{"Normal Deleted"}},
		"rule 8: renamed: the former Deployment is neither repaired nor scaled": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{newOwned(foo, available, deploymentReplicas(ptr.To[int32](9)), unlabelled), newOwned(moved, pods(1, 1, 0))},
			requeueAfter: time.Second},
		"rule 8: a stalled rollout keeps the former Deployment": {
			foos:        []*v1alpha1.Foo{moved},
			deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, pods(1, 1, 0), deploymentCondition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "no"))},
			requests:    []string{putStatus + "gen=2 available=0 replicas=1 False/DeploymentStalled"}},
		"rule 8: complete is judged by the rollout alone: a contended Foo does not keep both": {
			foos:        []*v1alpha1.Foo{moved},
			deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available, unlabelled)},
			prepare:     contested,
			requests:    []string{getNext, deleteWeb, getFoo, putStatus + "gen=2 available=1 replicas=1 False/DeploymentContested"},
			events:      []string{"Normal Deleted", "Warning DeploymentContested"}, requeueAfter: 16 * time.Second},
		"rule 8: a Deployment that another writer holds at 0 replicas does not replace the one that serves": {
			foos:        []*v1alpha1.Foo{moved},
			deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, pods(0, 0, 0), deploymentReplicas(ptr.To[int32](0)))},
			prepare:     contested,
			requests:    []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentContested"},
			events:      []string{"Warning DeploymentContested"}, requeueAfter: 16 * time.Second},
		"rule 8: nor does one that another writer has just set to 0 replicas, which the cache does not show": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveDeployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, pods(0, 0, 0), deploymentReplicas(ptr.To[int32](0)))},
			requests:        []string{getNext}, err: "out of date"},
		"rule 8: complete is judged by the rollout alone: a Foo whose repair is refused does not keep both": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available, unlabelled)},
			prepare: fail("patch", "deployments", errQuota()),
			requests: []string{
				`patch deployments next {"metadata":{"labels":{"app.kubernetes.io/managed-by":"sample-controller"},"resourceVersion":"10"}}`,
				getNext, deleteWeb, getFoo, putStatus + "gen=2 available=1 replicas=1 False/DeploymentRejected"},
			events: []string{"Normal Deleted", "Warning DeploymentRejected"}, err: "exceeded quota"},
		"rule 8: renamed twice: two of the former Deployments go in one sync": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), renamed(newFoo(wants("first"))), renamed(newFoo(wants("third"))), newOwned(moved, available)},
			requests: []string{
				getNext, "delete deployments first uid=uid-first version=10", "delete deployments third uid=uid-third version=10",
				getFoo, getFoo, putReady},
			events: []string{"Normal Deleted", "Normal Deleted"}},
		"rule 8: renamed back: the half-made Deployment goes, which is the former one now": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, pods(1, 1, 0))},
			requests: []string{getWeb, "delete deployments next uid=uid-next version=10", getFoo}, events: []string{"Normal Deleted"}},
		"rule 8: renamed: while the new name is taken the former Deployment stays": {
			foos: []*v1alpha1.Foo{moved, bar}, deployments: []*appsv1.Deployment{renamed(foo), heldByBar},
			requests: []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:   []string{"Warning ErrResourceExists"}},
		"rule 8: renamed: while the new Deployment is refused the former one stays": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo)},
			prepare: fail("create", "deployments", errQuota()),
			requests: []string{
				getWeb, createNext,
				putStatus + "gen=2 available=0 replicas=0 False/DeploymentRejected"},
			events: []string{"Warning DeploymentRejected"}, err: "exceeded quota"},
		"rule 8: renamed: while the new Deployment is being deleted the former one stays": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available, deploymentTerminating)},
			requeueAfter: time.Second},
		"rule 8: a former Deployment that is terminating is not deleted twice": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{newOwned(foo, deploymentTerminating), newOwned(moved, available)},
			requests: []string{putReady}},
		"rule 14: a Deployment that this process deleted counts as terminating": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			prepare:  func(f *fixture) { f.foos.Writes.Deleted("uid-web") },
			requests: []string{putReady}},
		"rule 8: a user's copy of the Deployment is left, owner reference included": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{newOwned(moved, available), copied},
			requests: []string{putReady}},
		"rule 8: a user's copy is no former Deployment to copy": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{copied},
			requests: []string{createNext}, events: []string{"Normal Created"}, requeueAfter: time.Second},
		"rule 8: nothing is created when the former Deployment cannot be read": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo)},
			prepare:  fail("get", "deployments", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{getWeb}, err: "oops"},
		"rule 8: nothing is created when the former Deployment is gone, which the cache does not know": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo)}, liveDeployments: []*appsv1.Deployment{newForeign(ownedBy(), func(d *appsv1.Deployment) { d.Name = "other" })},
			requests: []string{getWeb}, err: "out of date"},

		"rule 8: strategy Recreate: the new Deployment gets no Pods beside those of the former one": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{newOwned(foo, available, recreate)},
			// The fake clientset sets no generation, without which the rollout of 0 replicas looks complete.
			prepare:  func(f *fixture) { answer(f, "create", newOwned(moved, recreate, empty)) },
			requests: []string{getWeb, "create deployments next replicas=0 owner=uid-foo"},
			events:   []string{"Normal Created"}, requeueAfter: time.Second},
		"rule 8: strategy Recreate: the former Deployment is deleted in the foreground, before the new one has Pods": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{newOwned(foo, available, recreate), newOwned(moved, recreate, empty, available)},
			requests: []string{getNext, deleteWeb + " Foreground", getFoo},
			events:   []string{"Normal Deleted"}, requeueAfter: time.Second},
		"rule 8: strategy Recreate: while Pods of the former Deployment may run the new one is not scaled": {
			foos:         []*v1alpha1.Foo{moved},
			deployments:  []*appsv1.Deployment{newOwned(foo, available, recreate, deploymentTerminating), newOwned(moved, recreate, empty, available)},
			requeueAfter: time.Second},
		"rule 8: strategy Recreate: once the former Deployment is gone the new one is scaled": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{newOwned(moved, recreate, empty, available)},
			requests: []string{`patch deployments next {"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
			events:   []string{"Normal Updated"}, requeueAfter: time.Second},
		"rule 8: strategy Recreate: another former Deployment serves until the new one does": {
			foos:        []*v1alpha1.Foo{moved},
			deployments: []*appsv1.Deployment{renamed(newFoo(wants("first"))), newOwned(foo, pods(1, 1, 0), recreate), newOwned(moved, recreate, empty, available)},
			requests:    []string{getNext, deleteWeb + " Foreground", getFoo},
			events:      []string{"Normal Deleted"}, requeueAfter: time.Second},
		"rule 8: strategy Recreate set after the new Deployment has Pods: it is not scaled down": {
			foos:         []*v1alpha1.Foo{moved},
			deployments:  []*appsv1.Deployment{newOwned(foo, available, recreate), newOwned(moved, pods(1, 1, 0))},
			requeueAfter: time.Second},
		"rule 8: a former Deployment that has changed since: nothing is created": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo)},
			liveDeployments: []*appsv1.Deployment{newOwned(foo, available, recreate, func(d *appsv1.Deployment) { d.Generation = 2 })},
			requests:        []string{getWeb}, err: "out of date"},

		"rule 8: nothing is deleted when the live Foo has another generation": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveFoos: []*v1alpha1.Foo{newFoo(fooGeneration(3))},
			requests: []string{getNext, getFoo}, err: "out of date"},
		"rule 8: nothing is deleted when the live Foo has another uid": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveFoos: []*v1alpha1.Foo{newFoo(fooGeneration(2), fooUID("next"))},
			requests: []string{getNext, getFoo}, err: "out of date"},
		"rule 8: nothing is deleted when the live Foo is terminating": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveFoos: []*v1alpha1.Foo{newFoo(fooGeneration(2), fooTerminating)},
			requests: []string{getNext, getFoo}, err: "out of date"},
		"rule 8: nothing is deleted when the live Foo is gone": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveFoos: []*v1alpha1.Foo{newFoo(fooNamed("other"))},
			requests: []string{getNext, getFoo}, err: "out of date"},
		"rule 8: nothing is deleted when the live Foo cannot be read": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			prepare:  fail("get", "foos", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{getNext, getFoo}, err: "oops"},
		"rule 8: 409 on the delete is retried": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			prepare:  fail("delete", "deployments", errConflict()),
			requests: []string{getNext, deleteWeb, getFoo}, err: "deleting Deployment"},
		"rule 8: a former Deployment that is gone at the DELETE is fine": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			prepare:  fail("delete", "deployments", apierrors.NewNotFound(deploymentsGroup, "web")),
			requests: deletesWeb},
		"rule 11: a former Deployment whose deletion is refused does not keep the others": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(newFoo(wants("first")), pods(2, 2, 2)), newOwned(moved, available)},
			prepare: func(f *fixture) {
				f.kube.PrependReactor("delete", "deployments", func(action clienttesting.Action) (bool, runtime.Object, error) {
					return action.(clienttesting.DeleteAction).GetName() == "first", nil, errQuota()
				})
			},
			requests: []string{
				getNext, "delete deployments first uid=uid-first version=10", deleteWeb,
				getFoo, getFoo, putStatus + "gen=2 available=1 replicas=1 False/DeploymentRejected"},
			events: []string{"Normal Deleted", "Warning DeploymentRejected"}, err: "exceeded quota"},
		"rule 8: two Foos that swap names: the former Deployment is deleted at once": {
			foos: []*v1alpha1.Foo{moved, lastSwapping}, deployments: []*appsv1.Deployment{renamed(foo), heldByLast},
			requests: []string{
				getNext, deleteWeb, "get foos " + after, getFoo,
				putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events: []string{"Normal Deleted", "Warning ErrResourceExists"}},
		"rule 8: in a cycle only the Foo with the smallest name deletes: this one keeps its Deployment and enqueues that one": {
			foos:        []*v1alpha1.Foo{moved, firstSwapping},
			deployments: []*appsv1.Deployment{renamed(foo), heldByFirst},
			requests:    []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:      []string{"Warning ErrResourceExists"}, enqueued: []string{before}},
		"rule 8: in a rotation a Foo that waits enqueues none but the one with the smallest name, or they would enqueue each other for ever": {
			foos:        []*v1alpha1.Foo{moved, newFoo(fooNamed(after), wants("third")), firstSwapping},
			deployments: []*appsv1.Deployment{renamed(foo), heldByLast, newOwned(newFoo(fooNamed(before), wants("third")), available)},
			requests:    []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:      []string{"Warning ErrResourceExists"}, enqueued: []string{before}},
		"rule 8: in a cycle only the Deployment that another Foo of the cycle asks for is deleted": {
			foos: []*v1alpha1.Foo{moved, lastSwapping}, deployments: []*appsv1.Deployment{renamed(newFoo(wants("first"))), renamed(foo), heldByLast},
			requests: []string{
				getNext, deleteWeb, "get foos " + after, getFoo,
				putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events: []string{"Normal Deleted", "Warning ErrResourceExists"}},
		"rule 8: a swap is confirmed by reading the other Foo live as well": {
			foos: []*v1alpha1.Foo{moved, lastSwapping}, deployments: []*appsv1.Deployment{renamed(foo), heldByLast},
			liveFoos: []*v1alpha1.Foo{moved, newFoo(fooNamed(after), fooGeneration(2), wants("next"))},
			requests: []string{getNext, "get foos " + after}, err: "out of date"},
		"rule 11: a swap whose deletes are refused enqueues nothing, or the two Foos would enqueue each other for ever": {
			foos: []*v1alpha1.Foo{moved, lastSwapping}, deployments: []*appsv1.Deployment{renamed(foo), heldByLast},
			prepare: fail("delete", "deployments", errQuota()),
			requests: []string{
				getNext, deleteWeb, "get foos " + after, getFoo,
				putStatus + "gen=2 available=0 replicas=0 False/DeploymentRejected"},
			events: []string{"Warning DeploymentRejected"}, err: "exceeded quota"},
		"rule 8: a swap for a user's copy is none: the other Foo would not delete it": {
			foos:        []*v1alpha1.Foo{moved, lastSwapping},
			deployments: []*appsv1.Deployment{renamed(foo), newOwned(last, available, writtenBy("kubectl-create"))},
			requests:    []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:      []string{"Warning ErrResourceExists"}},
		"rule 8: renamed back before the cache shows the delete: the Deployment that stands is kept": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			prepare:  func(f *fixture) { f.foos.Writes.Deleted("uid-web") },
			requests: []string{putStatus + "gen=1 available=1 replicas=1 False/DeploymentProgressing"}, requeueAfter: 10 * time.Minute},
		"rule 8: nothing is deleted when the Deployment of the new name is gone, which the cache does not know": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveDeployments: []*appsv1.Deployment{renamed(foo)},
			requests:        []string{getNext}, err: "out of date"},
		"rule 8: nothing is deleted when the rollout of the new Deployment is not complete any more": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveDeployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, pods(1, 1, 0))},
			requests:        []string{getNext}, err: "out of date"},
		"rule 8: nothing is deleted when the Deployment of the new name is terminating": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveDeployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available, deploymentTerminating)},
			requests:        []string{getNext}, err: "out of date"},
		"rule 8: nothing is deleted when the Deployment of the new name was handed over": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveDeployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available, ownedBy())},
			requests:        []string{getNext}, err: "out of date"},
		"rule 8: nothing is deleted when the Deployment of the new name was made anew": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			liveDeployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available, func(d *appsv1.Deployment) { d.UID = "another" })},
			requests:        []string{getNext}, err: "out of date"},
		"rule 8: nothing is deleted when the Deployment of the new name cannot be read": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			prepare:  fail("get", "deployments", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{getNext}, err: "oops"},
		"rule 8: a swap with a terminating Foo is none": {
			foos:        []*v1alpha1.Foo{moved, newFoo(fooNamed(after), wants("web"), fooTerminating)},
			deployments: []*appsv1.Deployment{renamed(foo), heldByLast},
			requests:    []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:      []string{"Warning ErrResourceExists"}},
		"rule 8: a swap with an earlier Foo of that name is none": {
			foos:        []*v1alpha1.Foo{moved, newFoo(fooNamed(after), wants("web"), fooUID("recreated"))},
			deployments: []*appsv1.Deployment{renamed(foo), heldByLast},
			requests:    []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:      []string{"Warning ErrResourceExists"}},
		"rule 8: the current owner's Deployment is terminating, so there is no cycle to break": {
			foos:        []*v1alpha1.Foo{moved, lastSwapping},
			deployments: []*appsv1.Deployment{renamed(foo), newOwned(last, deploymentTerminating)},
			requests:    []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:      []string{"Warning ErrResourceExists"}, requeueAfter: 10 * time.Minute},
		"rule 9: the other Foo keeps the name, whether it asks for it or not": {
			foos: []*v1alpha1.Foo{foo, newFoo(fooNamed("bar"))}, deployments: []*appsv1.Deployment{newOwned(newFoo(fooNamed("bar")), available)},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
		"rule 9: the Foo that has the name is gone already, so no Foo is enqueued": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newOwned(newFoo(fooNamed("bar")), available)},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
	}
}

// TestPolicyRaisesWaitingReplicas is rule 4 with the strategy Recreate: a policy gave the copy
// replicas when it was to have none. It was not asked for those of the spec.
func TestPolicyRaisesWaitingReplicas(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		// It was Ready in this generation, so that the status is written at once.
		moved := newFoo(fooReady, wants("next"), fooReplicas(ptr.To[int32](3)))
		former := newOwned(newFoo(), available, func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType })
		ctx, f := newFixture(t, []*v1alpha1.Foo{moved}, []*appsv1.Deployment{former})
		f.fill(t, []*v1alpha1.Foo{moved}, []*appsv1.Deployment{former})
		answer(f, "create", newOwned(moved, deploymentReplicas(ptr.To[int32](2))))
		if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
			t.Fatal(err)
		}
		if accepted := f.deployments.Accepted(moved, newOwned(moved, deploymentReplicas(ptr.To[int32](2)))); accepted != "" {
			t.Errorf("rule 4: %s is accepted in place of the 3 replicas of the spec", accepted)
		}
		if _, message := f.refresh(ctx, t); strings.Contains(message, "0 replicas") {
			t.Errorf("rule 8: the message of a Deployment with 2 replicas is %q", message)
		}
	})
}

// TestRefusedRenameNamesWhatIsKept is about the message of rule 11.
func TestRefusedRenameNamesWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moved := newFoo(wants("next"))
		deployments := []*appsv1.Deployment{newOwned(newFoo()), newOwned(newFoo(wants("first")))}
		ctx, f := newFixture(t, []*v1alpha1.Foo{moved}, deployments)
		f.fill(t, []*v1alpha1.Foo{moved}, deployments)
		fixtures.Failing(&f.kube.Fake, "create", "deployments", errQuota())
		if _, err := f.syncHandler(ctx, testKey("foo")); err == nil {
			t.Error("no error")
		}
		stored, err := f.foo.SamplecontrollerV1alpha1().Foos(testNamespace).Get(ctx, "foo", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(stored.Status.Conditions) != 1 || !strings.Contains(stored.Status.Conditions[0].Message, `the former Deployment "first", "web" is kept`) {
			t.Errorf("rule 11: conditions %+v, want the old Deployments named", stored.Status.Conditions)
		}
	})
}

// TestCopyDeployment checks field by field what a rename keeps.
func TestCopyDeployment(t *testing.T) {
	source := newOwned(newFoo(), available, func(d *appsv1.Deployment) {
		d.Labels["theirs"], d.Annotations = "no", map[string]string{"theirs": "no"}
		d.Spec.Selector.MatchLabels = map[string]string{"app": "stock"}
		d.Spec.Paused = true
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(2))}}
		d.Spec.MinReadySeconds, d.Spec.RevisionHistoryLimit, d.Spec.ProgressDeadlineSeconds = 7, ptr.To[int32](3), ptr.To[int32](90)
		d.Spec.Template.Labels = map[string]string{"app": "stock", "theirs": "kept"}
		d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
		d.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		d.Spec.Template.Spec.Containers = []corev1.Container{
			{Name: "nginx", Image: "nginx:theirs", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}},
			{Name: "sidecar", Image: "sidecar:1"},
		}
	})
	before := source.DeepCopy()
	for sentence, test := range map[string]struct {
		foo    *v1alpha1.Foo
		change func(want *appsv1.Deployment)
	}{
		"rule 8: image, resources, env and sidecars are kept": {newFoo(wants("next")), func(*appsv1.Deployment) {}},
		"rule 8: the replicas come from the Foo":              {newFoo(wants("next"), fooReplicas(ptr.To[int32](4))), func(*appsv1.Deployment) {}},
		"rule 8: the image comes from the Foo if it is set": {newFoo(wants("next"), fooImage("nginx:foo")), func(want *appsv1.Deployment) {
			want.Spec.Template.Spec.Containers[0].Image = "nginx:foo"
		}},
	} {
		t.Run(sentence, func(t *testing.T) {
			want := newDeployment(newFoo(wants("next")), desiredReplicas(test.foo))
			before.Spec.Template.DeepCopyInto(&want.Spec.Template)
			want.Spec.Template.Labels = map[string]string{"app": "stock", "controller": "foo", "theirs": "kept"}
			want.Spec.Selector.MatchLabels = map[string]string{"app": "stock", "controller": "foo"}
			want.Spec.Strategy, want.Spec.MinReadySeconds = before.Spec.Strategy, 7
			want.Spec.RevisionHistoryLimit, want.Spec.ProgressDeadlineSeconds = ptr.To[int32](3), ptr.To[int32](90)
			test.change(want)
			differ(t, "the new Deployment", want, copyDeployment(test.foo, source, desiredReplicas(test.foo)))
			differ(t, "the former Deployment", before, source)
		})
	}
	source.Spec.Template.Labels, source.Spec.Template.Spec.Containers = nil, source.Spec.Template.Spec.Containers[1:]
	bare := copyDeployment(newFoo(fooImage("nginx:foo")), source, 1)
	differ(t, "rule 8: labels of a template without any", map[string]string{"controller": "foo"}, bare.Spec.Template.Labels)
	differ(t, "rule 4: no container is added for the image", before.Spec.Template.Spec.Containers[1:], bare.Spec.Template.Spec.Containers)
}

// TestFormerToCopy is about several former Deployments.
func TestFormerToCopy(t *testing.T) {
	created := func(seconds int) deploymentOption {
		return func(d *appsv1.Deployment) {
			d.CreationTimestamp = metav1.NewTime(testNow.Add(time.Duration(seconds) * time.Second))
		}
	}
	a, b, c := newFoo(wants("a")), newFoo(wants("b")), newFoo(wants("c"))
	for sentence, test := range map[string]struct {
		deployments []*appsv1.Deployment
		want        []string
	}{
		"rule 8: the one with most available Pods is copied": {
			[]*appsv1.Deployment{newOwned(a, pods(3, 3, 0), created(1)), newOwned(b, pods(2, 2, 2), created(3)), newOwned(c, pods(1, 1, 1), created(2))}, []string{"b", "c", "a"}},
		"rule 8: of those with equally many the oldest is copied": {
			[]*appsv1.Deployment{newOwned(a, available, created(3)), newOwned(b, available, created(1)), newOwned(c, available, created(2))}, []string{"b", "c", "a"}},
		"rule 8: one whose managed fields the API server has compacted is a former one": {
			[]*appsv1.Deployment{newOwned(a, writtenBy("ancient-changes"))}, []string{"a"}},
		"rule 8: what a user made, what is terminating and what spec names is no former Deployment": {
			[]*appsv1.Deployment{newOwned(a, available, writtenBy("kubectl-create")), newOwned(b, deploymentTerminating), newOwned(newFoo()), newOwned(c)}, []string{"c"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, f := newFixture(t, nil, nil)
				f.fill(t, nil, test.deployments)
				var got []string
				for _, d := range f.oldDeployments(newFoo(), nil).former {
					got = append(got, d.Name)
				}
				differ(t, "former Deployments", test.want, got)
			})
		})
	}
}

// TestRenameMessages checks what Ready says about Deployments of other names.
func TestRenameMessages(t *testing.T) {
	foo, moved, bar := newFoo(), newFoo(wants("next")), newFoo(fooNamed("bar"), wants("next"))
	web := newOwned(foo, available)
	copied := newOwned(newFoo(wants("copy")), writtenBy("kubectl-create"))
	recreate := func(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }
	const wayOut = "the way out is: kubectl delete deployment web -n "
	for sentence, test := range map[string]struct {
		foos        []*v1alpha1.Foo
		deployments []*appsv1.Deployment
		reason      string
		want, not   []string
	}{
		"rule 8: the former Deployment still serves, and the way out is named": {
			[]*v1alpha1.Foo{moved}, []*appsv1.Deployment{web, newOwned(moved, pods(1, 1, 0))}, v1alpha1.ReasonDeploymentProgressing,
			[]string{`the former Deployment "web" still serves`, wayOut}, nil},
		"rule 8: a former Deployment without available Pods is kept": {
			[]*v1alpha1.Foo{moved}, []*appsv1.Deployment{newOwned(foo), newOwned(moved, pods(1, 1, 0))}, v1alpha1.ReasonDeploymentProgressing,
			[]string{`the former Deployment "web" is kept`}, []string{"serves"}},
		"rule 8: while the new name is taken the former Deployment serves, and deleting it is no way out": {
			[]*v1alpha1.Foo{moved, bar}, []*appsv1.Deployment{web, newOwned(bar, available)}, v1alpha1.ReasonDeploymentNotOwned,
			[]string{`controlled by Foo "bar"`, "once that one is deleted, or is renamed and its new Deployment is rolled out;", `"web" still serves`}, []string{"kubectl delete"}},
		"rule 8: a user's copy is named although the Foo is ready": {
			[]*v1alpha1.Foo{foo}, []*appsv1.Deployment{web, copied}, v1alpha1.ReasonDeploymentAvailable,
			[]string{`Deployment "copy" carries this Foo's owner reference but was not made by this controller`}, []string{"former"}},
		"rule 8: strategy Recreate: what the new Deployment waits for": {
			[]*v1alpha1.Foo{moved}, []*appsv1.Deployment{newOwned(foo, available, recreate, deploymentTerminating), newOwned(moved, deploymentReplicas(ptr.To[int32](0)), available)}, v1alpha1.ReasonDeploymentProgressing,
			[]string{`Deployment "next" waits with 0 replicas until the former Deployment "web", whose strategy is Recreate, and its Pods are gone`}, []string{"kubectl delete"}},
		"rule 8: strategy Recreate: a former Deployment that does not go is named with what holds it": {
			[]*v1alpha1.Foo{moved}, []*appsv1.Deployment{newOwned(foo, available, recreate, func(d *appsv1.Deployment) {
				d.DeletionTimestamp, d.Finalizers = ptr.To(metav1.NewTime(time.Date(1999, 12, 31, 23, 49, 0, 0, time.UTC))), []string{"example.com/hold"}
			}), newOwned(moved, deploymentReplicas(ptr.To[int32](0)), available)}, v1alpha1.ReasonDeploymentStalled,
			[]string{`Deployment "web" has been terminating for longer than its progress deadline of 10m0s`, "example.com/hold"}, []string{"created anew"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, test.foos, test.deployments)
				f.fill(t, test.foos, test.deployments)
				for range 2 {
					if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Second)
				}
				stored, err := f.foo.SamplecontrollerV1alpha1().Foos(testNamespace).Get(ctx, "foo", metav1.GetOptions{})
				if err != nil {
					t.Fatal(err)
				}
				ready := controller.GetReady(stored.Status.Conditions)
				if ready.Reason != test.reason {
					t.Errorf("reason %s, want %s", ready.Reason, test.reason)
				}
				for _, part := range test.want {
					if !strings.Contains(ready.Message, part) {
						t.Errorf("message %q, want %q in it", ready.Message, part)
					}
				}
				for _, part := range test.not {
					if strings.Contains(ready.Message, part) {
						t.Errorf("message %q, want no %q in it", ready.Message, part)
					}
				}
			})
		})
	}
}

// TestRefusedCopyKeepsTheFormer: a quota that has no room for both Deployments refuses the new one.
// The former one is the only copy of the Pod template, so that no command deletes it.
func TestRefusedCopyKeepsTheFormer(t *testing.T) {
	f := findings{old: oldDeployments{former: []*appsv1.Deployment{newOwned(newFoo(), available)}}, refused: errQuota()}
	got := describeOldDeployments(newFoo(wants("next")), f)
	if want := `the former Deployment "web" still serves; if a quota counts it, raise the quota for the time of the change`; !strings.HasSuffix(got, want) || strings.Contains(got, "kubectl") {
		t.Errorf("rule 8: message %q, want %q at its end", got, want)
	}
}

// TestManyOldDeployments keeps the message below the length that the CRD allows.
func TestManyOldDeployments(t *testing.T) {
	var old oldDeployments
	for range 300 {
		old.former = append(old.former, newOwned(newFoo(wants(strings.Repeat("a", 253)))))
		old.copies = append(old.copies, newOwned(newFoo(wants(strings.Repeat("b", 253)))))
	}
	message := describeOldDeployments(newFoo(), findings{old: old})
	if !strings.Contains(message, "and 295 more") || len(message) > 4096 {
		t.Errorf("rule 8: %d bytes: %s", len(message), message)
	}
}

// TestEventOfCycle checks that the event says that a cycle of renames drops what ran.
func TestEventOfCycle(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foos := []*v1alpha1.Foo{newFoo(wants("next")), newFoo(fooNamed("0-bar"))}
		deployments := []*appsv1.Deployment{newOwned(newFoo(), available), newOwned(newFoo(fooNamed("0-bar"), wants("next")), available)}
		ctx, f := newFixture(t, foos, deployments)
		f.fill(t, foos, deployments)
		if _, err := f.syncHandler(ctx, testKey("0-bar")); err != nil {
			t.Fatal(err)
		}
		if event := <-f.events.Events; !strings.Contains(event, `Foo "foo" waits for that name in a cycle of renames; Deployment "web" will not be a copy of it but the default one`) {
			t.Errorf("rule 8: event %q", event)
		}
	})
}

// TestCyclesOfRenames checks whose Pod template a cycle of renames costs: that of the Foo with
// the smallest name, whatever keeps this one from deleting its Deployment for a while. The
// process forgets before each request what it has deleted, as if another worker had been at
// the same point at that moment.
func TestCyclesOfRenames(t *testing.T) {
	op := func(verb sim.Verb, foo, deployment string) sim.Op {
		return sim.Op{Verb: verb, Foo: foo, Deployment: deployment, Replicas: 1}
	}
	edit := func(deployment string, edit sim.Edit) sim.Op {
		return sim.Op{Verb: sim.EditDeployment, Deployment: deployment, Edit: edit}
	}
	swap := sim.Op{Verb: sim.Swap, Foo: "x", Other: "y"}
	swapped := []string{"Deployment a of y: 2 containers", "Deployment b of x: 1 containers", "Deployment c of z: 2 containers"}
	for sentence, test := range map[string]struct {
		ops  []sim.Op
		want []string
	}{
		"rule 8: two Foos swap names": {[]sim.Op{swap}, swapped},
		"rule 8: three Foos rotate names": {
			[]sim.Op{op(sim.Rename, "x", "b"), op(sim.Rename, "y", "c"), op(sim.Rename, "z", "a")},
			[]string{"Deployment a of z: 2 containers", "Deployment b of x: 1 containers", "Deployment c of y: 2 containers"}},
		"rule 11: the API server refuses the deletion for a while": {
			[]sim.Op{{Verb: sim.FailRequests, Failure: sim.Forbidden, Count: 20}, swap}, swapped},
		"rule 12: the API server is away for a while": {
			[]sim.Op{{Verb: sim.FailRequests, Failure: sim.Unreachable, Count: 20}, swap}, swapped},
		"rule 8: the process is killed before the deletion": {
			[]sim.Op{{Verb: sim.Kill, Before: 4}, swap}, swapped},
		"rule 8: the Deployment to delete is paused": {
			[]sim.Op{edit("a", sim.EditPause), swap}, swapped},
		"rule 8: the Deployment to delete has a finalizer": {
			[]sim.Op{edit("a", sim.EditAddFinalizer), swap}, swapped},
		"rule 2: the Foo with the smallest name is deleted, and gives its name up with it": {
			[]sim.Op{swap, {Verb: sim.DeleteFoo, Foo: "x", Propagation: metav1.DeletePropagationForeground}},
			[]string{"Deployment a of y: 2 containers", "Deployment c of z: 2 containers"}},
		"rule 8: the Foo with the smallest name is renamed out of the cycle": {
			[]sim.Op{swap, op(sim.Rename, "x", "d")},
			[]string{"Deployment a of y: 2 containers", "Deployment c of z: 2 containers", "Deployment d of x: 2 containers"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ops := []sim.Op{op(sim.CreateFoo, "x", "a"), op(sim.CreateFoo, "y", "b"), op(sim.CreateFoo, "z", "c")}
				ops[2].Then = time.Minute
				ops = append(ops, edit("a", sim.EditOtherFields), edit("b", sim.EditOtherFields), edit("c", sim.EditOtherFields))
				ops[5].Then = time.Minute
				ops = append(ops, test.ops...)
				ops[len(ops)-1].Then = 2 * time.Minute
				result := simulate(forgetting(sim.Sequence{Workers: 1, Collection: time.Second, Rollout: 200 * time.Millisecond, Ops: ops}))
				differ(t, "violations", []string(nil), result.Violations)
				var got []string
				for _, found := range regexp.MustCompile(`(?m)^(Deployment .*?: ).*?(\d+ containers)`).FindAllStringSubmatch(result.Outcome, -1) {
					got = append(got, found[1]+found[2])
				}
				differ(t, "Deployments at the end", test.want, got)
			})
		})
	}
}

func TestFollowNames(t *testing.T) {
	a, b, c := newFoo(fooNamed("a")), newFoo(fooNamed("b")), newFoo(fooNamed("c"))
	tests := map[string]struct {
		// blockedBy maps each Foo to the one that holds the name it asks for.
		blockedBy map[*v1alpha1.Foo]*v1alpha1.Foo
		cycle     []*v1alpha1.Foo
	}{
		"rule 9: nothing blocks":                              {},
		"rule 9: another Foo owns the name":                   {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b}},
		"rule 9: a chain that ends":                           {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: c}},
		"rule 9: a Foo that owns its own name":                {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: b}},
		"rule 8: the cache still shows that this Foo owns it": {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: a}},
		"rule 8: a swap":                                      {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: a}, cycle: []*v1alpha1.Foo{b}},
		"rule 8: a rotation of three":                         {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: c, c: a}, cycle: []*v1alpha1.Foo{b, c}},
		"rule 8: a cycle without this Foo":                    {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: c, c: b}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			differ(t, "cycle", test.cycle, followNames(a, func(foo *v1alpha1.Foo) *v1alpha1.Foo { return test.blockedBy[foo] }))
		})
	}
}

// TestLongCycle is rule 8: a rotation of more than a hundred Foos is not broken, and the message
// says so; one of a hundred is.
func TestLongCycle(t *testing.T) {
	for others, want := range map[int]string{maxCycle - 1: "delete", maxCycle: "100 or more Foos wait for each other's names"} {
		synctest.Test(t, func(t *testing.T) {
			// foo-0 has the Deployment 0 and asks for 1, and so on; the last one asks for 0.
			name := func(i int) string { return fmt.Sprint("d", i%(others+1)) }
			var foos []*v1alpha1.Foo
			var deployments []*appsv1.Deployment
			for i := range others + 1 {
				foo := fooNamed(fmt.Sprintf("foo-%03d", i))
				foos = append(foos, newFoo(foo, wants(name(i+1))))
				deployments = append(deployments, newOwned(newFoo(foo, wants(name(i))), available))
			}
			ctx, f := newFixture(t, foos, deployments)
			f.fill(t, foos, deployments)
			if _, err := f.syncHandler(ctx, testKey("foo-000")); err != nil {
				t.Fatal(err)
			}
			ready, err := f.foo.SamplecontrollerV1alpha1().Foos(testNamespace).Get(ctx, "foo-000", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			told := strings.Join(f.requests(), "\n") + controller.GetReady(ready.Status.Conditions).Message
			if !strings.Contains(told, want) || want == "delete" == strings.Contains(told, "or more Foos") {
				t.Errorf("rule 8: a cycle of %d: %s", others+1, told)
			}
		})
	}
}

// TestTerminatingDeploymentsAreSorted is rule 15: an index returns them in any order, and each
// order would be another message.
func TestTerminatingDeploymentsAreSorted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo, want := newFoo(), []string{"a", "b", "c", "d", "e", "f", "g", "h"}
		var deployments []*appsv1.Deployment
		for _, name := range want {
			deployments = append(deployments, newOwned(newFoo(wants(name)), deploymentTerminating))
		}
		_, f := newFixture(t, nil, nil)
		f.fill(t, []*v1alpha1.Foo{foo}, deployments)
		var got []string
		for _, d := range f.oldDeployments(foo, nil).terminating {
			got = append(got, d.Name)
		}
		differ(t, "rule 15: terminating Deployments", want, got)
	})
}
