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
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	fixtures "example.com/sample-controller/test/fixture"
)

// What a sync leaves in the gate for the next one.

// TestSyncRemembersItsWrites looks into the gate after one write whose answer has
// the resource version 11.
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
		behind, seen controller.Versions
	}{
		"rule 14: a creation": {
			foo: foo, prepare: func(f *fixture) { answer(f, "create", newOwned(foo, eleven)) },
			behind: controller.Versions{"99", "10"}, seen: controller.Versions{"1", "11"}},
		"rule 14: a repair": {
			foo: three, deployments: []*appsv1.Deployment{newOwned(foo)}, prepare: func(f *fixture) { answer(f, "patch", newOwned(three, eleven)) },
			behind: controller.Versions{"99", "10"}, seen: controller.Versions{"1", "11"}},
		"rule 14: what a creation found in its way counts like a write": {
			foo: foo, prepare: func(f *fixture) {
				fixtures.Failing(&f.kube.Fake, "create", "deployments", apierrors.NewAlreadyExists(deploymentsGroup, "web"))
				answer(f, "get", newOwned(foo, eleven))
			},
			behind: controller.Versions{"99", "10"}, seen: controller.Versions{"1", "11"}},
		"rule 14: a status": {
			foo: foo, deployments: []*appsv1.Deployment{newOwned(foo, available)},
			behind: controller.Versions{"9", "99"}, seen: controller.Versions{"10", "1"}},
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
				if f.Gate.CaughtUp(testKey("foo"), test.behind) {
					t.Errorf("caches at %v count as up to date", test.behind)
				}
				if !f.Gate.CaughtUp(testKey("foo"), test.seen) {
					t.Errorf("caches at %v count as behind", test.seen)
				}
			})
		})
	}
}

func TestSyncRemembersItsDeletes(t *testing.T) {
	foo := newFoo()
	moved := newFoo(wants("next"))
	tests := map[string][]*appsv1.Deployment{
		"rule 14: a Deployment that was deleted":     {newOwned(foo), newOwned(moved)},
		"rule 14: a Deployment that was gone before": {newOwned(moved)},
	}
	for name, live := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, []*v1alpha1.Foo{moved}, live)
				f.fill(t, []*v1alpha1.Foo{moved}, []*appsv1.Deployment{newOwned(foo), newOwned(moved)})
				if _, err := f.syncHandler(ctx, testKey("foo")); err != nil {
					t.Fatal(err)
				}
				if !f.Gate.IsDeleted("uid-web") || f.Gate.IsDeleted("uid-next") {
					t.Errorf("deleted: former %v, present %v, want true and false", f.Gate.IsDeleted("uid-web"), f.Gate.IsDeleted("uid-next"))
				}
			})
		})
	}
}

// TestSyncDropsTheNote puts a status off and asks, after the sync, how long the
// next one would be put off: for a whole second if the note is gone.
func TestSyncDropsTheNote(t *testing.T) {
	foo, ready := newFoo(), newFoo(fooReady)
	tests := map[string]struct {
		foos    []*v1alpha1.Foo
		prepare func(*fixture)
		want    time.Duration
	}{
		"rule 13: a status write drops the note": {
			foos: []*v1alpha1.Foo{foo}, want: controller.ProgressDelay},
		"rule 13: so does a status without a difference": {
			foos: []*v1alpha1.Foo{ready}, want: controller.ProgressDelay},
		"rule 13: a status write that failed does not": {
			foos: []*v1alpha1.Foo{foo}, prepare: fail("update", "foos", errConflict()), want: controller.ProgressDelay - time.Millisecond},
		"rule 1: nothing is remembered of a Foo that is gone": {
			want: controller.ProgressDelay},
		"rule 2: nor of one that is terminating": {
			foos: []*v1alpha1.Foo{newFoo(fooTerminating)}, want: controller.ProgressDelay},
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
				f.Gate.PutOff(testKey("foo"))
				time.Sleep(time.Millisecond)
				_, err := f.syncHandler(ctx, testKey("foo"))
				if got := f.Gate.PutOff(testKey("foo")); got != test.want {
					t.Errorf("put off for %v, want %v; the sync's error was %v", got, test.want, err)
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
				f.Queue.AddRateLimited(testKey("foo"))
				f.Gate.Wrote(testKey("foo"), controller.Parents, "11")
				test.event(f)
				if got := f.Gate.CaughtUp(testKey("foo"), controller.Versions{"10", "10"}); got != test.forgetsWrites {
					t.Errorf("writes forgotten: %v, want %v", got, test.forgetsWrites)
				}
				if got := f.Queue.NumRequeues(testKey("foo")) == 0; got != test.forgetsFailures {
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
		f.Gate.WroteDelete("uid-web")
		f.deploymentEvents().DeleteFunc(cache.DeletedObject[*appsv1.Deployment]{OptionalObj: newOwned(newFoo())})
		if f.Gate.IsDeleted("uid-web") {
			t.Error("rule 14: the delete is still remembered after its event")
		}
	})
}
