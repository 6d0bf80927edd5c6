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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
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
				failing(&f.kube.Fake, "create", "deployments", apierrors.NewAlreadyExists(deploymentsGroup, "web"))
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
				if f.gate.caughtUp(testKey("foo"), test.behind) {
					t.Errorf("caches at %v count as up to date", test.behind)
				}
				if !f.gate.caughtUp(testKey("foo"), test.seen) {
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
				if !f.gate.isDeleted("uid-web") || f.gate.isDeleted("uid-next") {
					t.Errorf("deleted: former %v, present %v, want true and false", f.gate.isDeleted("uid-web"), f.gate.isDeleted("uid-next"))
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
			foos: []*v1alpha1.Foo{foo}, want: progressDelay},
		"rule 13: so does a status without a difference": {
			foos: []*v1alpha1.Foo{ready}, want: progressDelay},
		"rule 13: a status write that failed does not": {
			foos: []*v1alpha1.Foo{foo}, prepare: fail("update", "foos", errConflict()), want: progressDelay - time.Millisecond},
		"rule 1: nothing is remembered of a Foo that is gone": {
			want: progressDelay},
		"rule 2: nor of one that is terminating": {
			foos: []*v1alpha1.Foo{newFoo(fooTerminating)}, want: progressDelay},
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
				f.gate.putOff(testKey("foo"))
				time.Sleep(time.Millisecond)
				_, err := f.syncHandler(ctx, testKey("foo"))
				if got := f.gate.putOff(testKey("foo")); got != test.want {
					t.Errorf("put off for %v, want %v; the sync's error was %v", got, test.want, err)
				}
			})
		})
	}
}

// TestRefusedRenameNamesWhatIsKept is about the message of rule 11.
func TestRefusedRenameNamesWhatIsKept(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		moved := newFoo(wants("next"))
		deployments := []*appsv1.Deployment{newOwned(newFoo()), newOwned(newFoo(wants("first")))}
		ctx, f := newFixture(t, []*v1alpha1.Foo{moved}, deployments)
		f.fill(t, []*v1alpha1.Foo{moved}, deployments)
		failing(&f.kube.Fake, "create", "deployments", errQuota())
		if _, err := f.syncHandler(ctx, testKey("foo")); err == nil {
			t.Error("no error")
		}
		stored, err := f.foo.SamplecontrollerV1alpha1().Foos(testNamespace).Get(ctx, "foo", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		if len(stored.Status.Conditions) != 1 || !strings.Contains(stored.Status.Conditions[0].Message, `the former Deployment "first", "web" is kept`) {
			t.Errorf("rule 11: conditions %+v, want the former Deployments named", stored.Status.Conditions)
		}
	})
}
