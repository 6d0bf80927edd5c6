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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	fixtures "example.com/sample-controller/test/fixture"
)

// renameTests are calls of syncHandler for a Foo whose spec.deploymentName has
// changed, and for Foos that are in each other's way.
func renameTests() map[string]syncTest {
	foo := newFoo()
	ready := newFoo(fooReady)
	moved := newFoo(fooReady, fooGeneration(2), wants("next"))
	renamed := func(foo *v1alpha1.Foo) *appsv1.Deployment { return newOwned(foo, available) }
	bar := newFoo(fooNamed("bar"), wants("next"))
	barSwapping := newFoo(fooNamed("bar"), wants("web"))
	heldByBar := newOwned(bar, available)

	return map[string]syncTest{
		"rule 8: renamed: first the Deployment of the new name": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo)}, liveFoos: []*v1alpha1.Foo{moved},
			requests: []string{
				"create deployments next replicas=1 owner=uid-foo",
				"delete deployments web uid=uid-web version=10",
				"get foos foo"},
			events: []string{"Normal Created", "Normal Deleted"}, requeueAfter: time.Second},
		"rule 8: renamed twice: the Deployments of all old names go": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), renamed(newFoo(wants("first"))), newOwned(moved)},
			requests: []string{
				"get deployments next",
				"delete deployments first uid=uid-first version=10",
				"delete deployments web uid=uid-web version=10",
				"get foos foo"},
			events: []string{"Normal Deleted", "Normal Deleted"}, requeueAfter: time.Second},
		"rule 8: renamed: while the new name is taken the old Deployment stays": {
			foos: []*v1alpha1.Foo{moved, bar}, deployments: []*appsv1.Deployment{renamed(foo), heldByBar},
			requests: []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:   []string{"Warning ErrResourceExists"}, enqueued: []string{"bar"}},
		"rule 8: renamed: while the new Deployment is refused the old one stays": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo)},
			prepare: fail("create", "deployments", errQuota()),
			requests: []string{
				"create deployments next replicas=1 owner=uid-foo",
				putStatus + "gen=2 available=0 replicas=0 False/DeploymentRejected"},
			events: []string{"Warning DeploymentRejected"}, err: "exceeded quota"},
		"rule 8: renamed: while the new Deployment is being deleted the old one stays": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, deploymentTerminating)},
			requeueAfter: time.Second},
		"rule 8: an old Deployment that is terminating is not deleted twice": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{newOwned(foo, deploymentTerminating), newOwned(moved)},
			requeueAfter: time.Second},
		"rule 14: a Deployment that this process deleted counts as terminating": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved)},
			prepare:      func(f *fixture) { f.deletions.ExpectDeletion("uid-web") },
			requeueAfter: time.Second},
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
		"rule 8: an old Deployment that is gone already is fine": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved)},
			liveDeployments: []*appsv1.Deployment{newOwned(moved)},
			requests:        []string{"get deployments next", "delete deployments web uid=uid-web version=10", "get foos foo"}, requeueAfter: time.Second},
		"rule 8: 409 on the delete is retried": {
			foos: []*v1alpha1.Foo{moved}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved)},
			prepare:  fail("delete", "deployments", errConflict()),
			requests: []string{"get deployments next", "delete deployments web uid=uid-web version=10", "get foos foo"}, err: "deleting Deployment"},
		"rule 8: two Foos that swap names: the old Deployment is deleted at once": {
			foos: []*v1alpha1.Foo{moved, barSwapping}, deployments: []*appsv1.Deployment{renamed(foo), heldByBar},
			requests: []string{
				"delete deployments web uid=uid-web version=10",
				"get foos foo", "get foos bar",
				putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events: []string{"Normal Deleted", "Warning ErrResourceExists"}, enqueued: []string{"bar"}},
		"rule 8: a swap is confirmed by reading the other Foo live as well": {
			foos: []*v1alpha1.Foo{moved, barSwapping}, deployments: []*appsv1.Deployment{renamed(foo), heldByBar},
			liveFoos: []*v1alpha1.Foo{moved, newFoo(fooNamed("bar"), fooGeneration(2), wants("next"))},
			requests: []string{"get foos foo", "get foos bar"}, err: "out of date"},
		"rule 11: a swap whose deletes are refused enqueues nothing, or the two Foos would enqueue each other for ever": {
			foos: []*v1alpha1.Foo{moved, barSwapping}, deployments: []*appsv1.Deployment{renamed(foo), heldByBar},
			prepare: fail("delete", "deployments", errQuota()),
			requests: []string{
				"delete deployments web uid=uid-web version=10",
				"get foos foo", "get foos bar",
				putStatus + "gen=2 available=0 replicas=0 False/DeploymentRejected"},
			events: []string{"Warning DeploymentRejected"}, err: "exceeded quota"},
		"rule 8: renamed back before the cache shows the delete: the Deployment that stands is kept": {
			foos: []*v1alpha1.Foo{ready}, deployments: []*appsv1.Deployment{renamed(foo), newOwned(moved, available)},
			prepare:      func(f *fixture) { f.deletions.ExpectDeletion("uid-web") },
			requeueAfter: time.Second},
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
		"rule 8: the current owner's Deployment is terminating, so there is no cycle to break": {
			foos:        []*v1alpha1.Foo{moved, barSwapping},
			deployments: []*appsv1.Deployment{renamed(foo), newOwned(bar, deploymentTerminating)},
			requests:    []string{putStatus + "gen=2 available=0 replicas=0 False/DeploymentNotOwned"},
			events:      []string{"Warning ErrResourceExists"}},
		"rule 9: the other Foo keeps the name, and is enqueued, for it may have to be renamed first": {
			foos: []*v1alpha1.Foo{foo, newFoo(fooNamed("bar"))}, deployments: []*appsv1.Deployment{newOwned(newFoo(fooNamed("bar")), available)},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}, enqueued: []string{"bar"}},
		"rule 9: the Foo that has the name is gone already, so no Foo is enqueued": {
			foos: []*v1alpha1.Foo{foo}, deployments: []*appsv1.Deployment{newOwned(newFoo(fooNamed("bar")), available)},
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
	}
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

func TestFollowClaims(t *testing.T) {
	a, b, c := newFoo(fooNamed("a")), newFoo(fooNamed("b")), newFoo(fooNamed("c"))
	tests := map[string]struct {
		// blockedBy maps each Foo to the one that holds the name it asks for.
		blockedBy map[*v1alpha1.Foo]*v1alpha1.Foo
		chain     []*v1alpha1.Foo
		cycle     bool
	}{
		"rule 9: nothing blocks":               {},
		"rule 9: another Foo owns the name":    {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b}, chain: []*v1alpha1.Foo{b}},
		"rule 9: a chain that ends":            {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: c}, chain: []*v1alpha1.Foo{b, c}},
		"rule 9: a Foo that owns its own name": {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: b}, chain: []*v1alpha1.Foo{b}},
		"rule 8: a swap":                       {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: a}, chain: []*v1alpha1.Foo{b}, cycle: true},
		"rule 8: a rotation of three":          {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: c, c: a}, chain: []*v1alpha1.Foo{b, c}, cycle: true},
		"rule 8: a cycle without this Foo":     {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: c, c: b}, chain: []*v1alpha1.Foo{b, c}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			chain, cycle := followClaims(a, func(foo *v1alpha1.Foo) *v1alpha1.Foo { return test.blockedBy[foo] })
			if diff := cmp.Diff(test.chain, chain); diff != "" || cycle != test.cycle {
				t.Errorf("cycle %v, want %v; chain (-want +got):\n%s", cycle, test.cycle, diff)
			}
		})
	}
}
