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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
)

// managed is an entry of managed fields.
func managed(manager, subresource, fields string, at time.Duration) metav1.ManagedFieldsEntry {
	entry := metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fields)}
	if at >= 0 {
		entry.Time = ptr.To(metav1.NewTime(testNow.Add(at)))
	}
	return entry
}

// TestFight is rule 21 as one sync after the other: somebody scales the
// Deployment back after each repair.
func TestFight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		three := newFoo(fooReplicas(ptr.To[int32](3)))
		theirs := newOwned(newFoo(), available, func(d *appsv1.Deployment) {
			d.ManagedFields = []metav1.ManagedFieldsEntry{managed("kube-controller-manager", "scale", `{"f:spec":{"f:replicas":{}}}`, 0)}
		})
		ctx, f := newFixture(t, []*v1alpha1.Foo{three}, []*appsv1.Deployment{theirs})
		f.fill(t, []*v1alpha1.Foo{three}, []*appsv1.Deployment{theirs})
		// The fake clientset keeps managed fields of its own making.
		f.kube.PrependReactor("get", "deployments", func(clienttesting.Action) (bool, runtime.Object, error) { return true, theirs, nil })
		sync := func() (time.Duration, []string) {
			t.Helper()
			f.kube.ClearActions()
			f.foo.ClearActions()
			again, err := f.syncHandler(ctx, testKey("foo"))
			if err != nil {
				t.Fatal(err)
			}
			return again, f.requests()
		}
		const patch = `patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`
		const confirm = "get foos foo"
		for i := range 5 {
			again, requests := sync()
			want := []string{patch, confirm}
			if i == 0 {
				want = []string{patch}
			}
			differ(t, "rule 4: requests of an ordinary repair, which reads the Foo live from the second one on", want, requests)
			if again != controller.ProgressDelay {
				t.Errorf("repair %d: again after %v", i, again)
			}
		}
		f.recorded()

		again, requests := sync()
		differ(t, "rule 21: requests when the fight begins", []string{"get deployments web", putStatus + "gen=1 available=1 replicas=1 False/DeploymentContested"}, requests)
		differ(t, "rule 21: events when the fight begins", []string{"Warning DeploymentContested"}, f.recorded())
		if again != controller.MinFightPause {
			t.Errorf("rule 21: again after %v, want %v", again, controller.MinFightPause)
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
		if err := f.fooIndex.Update(stored); err != nil {
			t.Fatal(err)
		}

		time.Sleep(4 * time.Second)
		again, requests = sync()
		differ(t, "rule 21: requests during the pause", []string(nil), requests)
		if want := controller.MinFightPause - 4*time.Second; again != want {
			t.Errorf("rule 21: again after %v, want %v", again, want)
		}
		time.Sleep(again)
		_, requests = sync()
		differ(t, "rule 21: requests after the pause: one repair, the status unchanged", []string{patch, confirm}, requests)

		// The other writer gives up.
		if err := f.deploymentIndex.Update(newOwned(three, available)); err != nil {
			t.Fatal(err)
		}
		again, requests = sync()
		differ(t, "rule 21: requests while the peace is young", []string{"update foos/status foo uid=uid-foo version=10: gen=1 available=3 replicas=3 False/DeploymentContested"}, requests)
		time.Sleep(again)
		_, requests = sync()
		differ(t, "rule 21: requests in peace", []string{"update foos/status foo uid=uid-foo version=10: gen=1 available=3 replicas=3 True/DeploymentAvailable"}, requests)
		differ(t, "rule 21: events in peace", []string{"Normal Updated", "Normal Synced"}, f.recorded())
	})
}

func TestFightThatCannotBeLookedInto(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		three := newFoo(fooReplicas(ptr.To[int32](3)))
		ctx, f := newFixture(t, []*v1alpha1.Foo{three}, nil)
		f.fill(t, []*v1alpha1.Foo{three}, []*appsv1.Deployment{newOwned(newFoo(), available)})
		for range controller.MaxRepairs {
			f.Gate.Repaired(testKey("foo"), 1)
		}
		if _, err := f.syncHandler(ctx, testKey("foo")); err == nil || !strings.Contains(err.Error(), "reading Deployment") {
			t.Errorf("error %v", err)
		}
	})
}
