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
	"fmt"
	"reflect"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/child"
)

// What the caches keep. That it is all that is read the other tests show: they put into
// the caches what strip leaves.

func TestStrip(t *testing.T) {
	foo, _ := realReady(0)
	foo.Annotations["theirs"] = "kept"
	want := foo.DeepCopy()
	want.ManagedFields, want.Annotations = nil, map[string]string{"theirs": "kept"}
	got, err := newStripper().strip(foo)
	if err != nil {
		t.Fatal(err)
	}
	differ(t, "rule 14: all of a Foo but the managed fields and the last applied configuration", any(want), got)
	delete(foo.Annotations, "theirs")
	if _, err := newStripper().strip(foo); err != nil || foo.Annotations != nil {
		t.Errorf("the annotations %v are left, error %v", foo.Annotations, err)
	}
	if got, err := newStripper().strip("no object"); got != "no object" || err != nil {
		t.Errorf("what is no object became %v, %v", got, err)
	}
}

// TestStripForeign is about the Deployments of which there may be very many.
func TestStripForeign(t *testing.T) {
	someone := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Thing", Name: "x", UID: "uid-x", Controller: ptr.To(true)}
	ours := kindOfFoo().Reference(newFoo())
	ours.Controller = nil
	for name, owners := range map[string][]metav1.OwnerReference{
		"nobody's": nil, "somebody else's": {someone}, "listed as our Foo's, but not controlled by it": {ours},
	} {
		t.Run(name, func(t *testing.T) {
			deployment := realForeign(0)
			deployment.OwnerReferences, deployment.DeletionTimestamp = owners, &testNow
			want := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
				Name: deployment.Name, Namespace: deployment.Namespace, UID: deployment.UID, ResourceVersion: deployment.ResourceVersion,
				DeletionTimestamp: &testNow, OwnerReferences: owners,
			}}
			got, err := newStripper().strip(deployment)
			if err != nil {
				t.Fatal(err)
			}
			differ(t, "rule 5: what is kept of it", any(want), got)
			again, err := newStripper().strip(got)
			if err != nil {
				t.Fatal(err)
			}
			differ(t, "what is kept of that", any(want), again)
		})
	}
}

// TestStripOwned compares what the decisions come to.
func TestStripOwned(t *testing.T) {
	foo, deployment := realReady(0)
	kept := newStripper().deployment(deployment.DeepCopy())
	if kept.Annotations != nil || kept.ManagedFields != nil || len(kept.Spec.Template.Labels) > 0 || kept.Spec.Strategy.RollingUpdate != nil || len(kept.Status.Conditions) > 0 {
		t.Errorf("what nobody reads is kept: %+v", kept)
	}
	foo.Spec.Replicas, foo.Spec.Image = ptr.To[int32](3), "other"
	differ(t, "rule 4: the repair", summaryOf(decide(foo, deployment)), summaryOf(decide(foo, kept)))
	stripped := newStripper().deployment(kept.DeepCopy())
	differ(t, "what is kept of what is kept", kept, stripped)
}

// TestStripShares looks at what the caches hold once for very many.
func TestStripShares(t *testing.T) {
	s := newStripper()
	kept := func(i int, change func(*appsv1.Deployment)) *appsv1.Deployment {
		_, deployment := realReady(i)
		if change != nil {
			change(deployment)
		}
		return s.deployment(deployment)
	}
	one, other := kept(0, nil), kept(1, nil)
	image := one.Spec.Template.Spec.Containers[0].Image
	if &one.Spec.Template.Spec.Containers[0] != &other.Spec.Template.Spec.Containers[0] {
		t.Error("two Deployments of one image have a container each")
	}
	if reflect.ValueOf(one.Labels).Pointer() != reflect.ValueOf(other.Labels).Pointer() {
		t.Error("two Deployments with our label have a map each")
	}
	differ(t, "rule 4: the label that is compared", map[string]string{controller.ManagedByLabel: controller.ManagedByValue}, one.Labels)

	theirs := kept(2, func(deployment *appsv1.Deployment) {
		deployment.Labels[controller.ManagedByLabel] = "someone"
		deployment.Spec.Template.Spec.Containers[0].Image = "another"
	})
	differ(t, "rule 4: another value of the label", map[string]string{controller.ManagedByLabel: "someone"}, theirs.Labels)
	differ(t, "rule 4: another image", "another", theirs.Spec.Template.Spec.Containers[0].Image)
	bare := kept(3, func(deployment *appsv1.Deployment) { delete(deployment.Labels, controller.ManagedByLabel) })
	differ(t, "rule 4: no label", 0, len(bare.Labels))
	differ(t, "rule 4: the first one as before", controller.ManagedByValue, one.Labels[controller.ManagedByLabel])
	differ(t, "rule 4: its image as before", image, one.Spec.Template.Spec.Containers[0].Image)
}

// TestDeploymentChangesHands shows the Foo a Deployment that is somebody else's, then
// its own, then nobody's: each time the cache must have what is read of it then.
func TestDeploymentChangesHands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := newFoo()
		deployment := newOwned(foo, available)
		ours := deployment.OwnerReferences
		deployment.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "x", UID: "uid-x", Controller: ptr.To(true)}}
		ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, []*appsv1.Deployment{deployment})
		defer f.start(ctx, t)()
		for i, hand := range []struct {
			owners []metav1.OwnerReference
			want   string
		}{
			{deployment.OwnerReferences, "gen=1 available=0 replicas=0 False/DeploymentNotOwned"},
			{ours, "gen=1 available=1 replicas=1 True/DeploymentAvailable"},
			{nil, "gen=1 available=0 replicas=0 False/DeploymentNotOwned"},
			{ours, "gen=1 available=1 replicas=1 True/DeploymentAvailable"},
		} {
			deployment.OwnerReferences = hand.owners
			// The fake does not raise it by itself.
			deployment.ResourceVersion = fmt.Sprint(100 + i)
			if err := f.kube.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("deployments"), deployment, testNamespace); err != nil {
				t.Fatal(err)
			}
			<-time.After(controller.StaleCacheDelay)
			synctest.Wait()
			cached, err := f.deployments.Deployments(testNamespace).Get(deployment.Name)
			if err != nil {
				t.Fatal(err)
			}
			owned := kindOfFoo().ControllerOf(cached) != nil
			if (cached.Spec.Replicas != nil) != owned || (child.Container(cached, containerName) != nil) != owned {
				t.Errorf("rule 5: owned is %v, and of the spec is kept: %+v", owned, cached.Spec)
			}
			updated, err := f.fooClient.SamplecontrollerV1alpha1().Foos(testNamespace).Get(ctx, foo.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			differ(t, "rule 5: the status", hand.want, summary(updated))
		}
	})
}
