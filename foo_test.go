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
	"reflect"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller/child"
)

func TestNewDeployment(t *testing.T) {
	got := newDeployment(newFoo(fooReplicas(ptr.To[int32](3))))
	labels := map[string]string{"app": "nginx", "controller": "foo"}
	want := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: testNamespace,
			Labels: map[string]string{"app.kubernetes.io/managed-by": "sample-controller"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "samplecontroller.k8s.io/v1alpha1", Kind: "Foo", Name: "foo", UID: "uid-foo",
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:latest"}}},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Deployment for a Foo (-want +got):\n%s", diff)
	}

	if got := *newDeployment(newFoo(fooReplicas(nil))).Spec.Replicas; got != 1 {
		t.Errorf("a Foo without replicas means %d replicas, want 1", got)
	}
	if got := newDeployment(newFoo(fooImage("nginx:1.27"))).Spec.Template.Spec.Containers[0].Image; got != "nginx:1.27" {
		t.Errorf("spec.image nginx:1.27 gives a Deployment with image %s", got)
	}
}

func TestOwns(t *testing.T) {
	foo := newFoo()
	reference := func(change func(*metav1.OwnerReference)) *appsv1.Deployment {
		ref := kindOfFoo().Reference(foo)
		change(&ref)
		return newForeign(ownedBy(ref))
	}
	tests := map[string]struct {
		deployment *appsv1.Deployment
		want       bool
	}{
		"the controller reference by this UID": {reference(func(*metav1.OwnerReference) {}), true},
		"rule 17: another version of our API group is the same Foo": {
			reference(func(ref *metav1.OwnerReference) { ref.APIVersion = "samplecontroller.k8s.io/v1beta1" }), true},
		"rule 5: nobody": {newForeign(), false},
		"rule 5: our UID without controller: true": {
			reference(func(ref *metav1.OwnerReference) { ref.Controller = nil }), false},
		"rule 6: an earlier Foo of the same name": {
			reference(func(ref *metav1.OwnerReference) { ref.UID = "earlier" }), false},
		"rule 17: a Foo of another group": {
			reference(func(ref *metav1.OwnerReference) { ref.APIVersion = "example.com/v1" }), false},
		"rule 17: a malformed group": {
			reference(func(ref *metav1.OwnerReference) { ref.APIVersion = "a/b/c" }), false},
		"rule 17: another kind of our group": {
			reference(func(ref *metav1.OwnerReference) { ref.Kind = "Bar" }), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := kindOfFoo().Owns(foo, test.deployment); got != test.want {
				t.Errorf("owns = %v, want %v", got, test.want)
			}
		})
	}
}

func noContainerNginx(deployment *appsv1.Deployment) {
	deployment.Spec.Template.Spec.Containers[0].Name = "web"
}

func TestDecide(t *testing.T) {
	foo := newFoo()
	pinned := newFoo(fooImage("nginx:1.27"))
	tests := map[string]struct {
		foo        *v1alpha1.Foo
		deployment *appsv1.Deployment
		want       child.Action
		// changes and patch are expected of a repair.
		changes string
		patch   string
		// invalid is a part of the complaint about the spec.
		invalid string
	}{
		"rule 3: a missing Deployment is created": {foo: foo, want: child.Create},
		"rule 4: a Deployment as it should be is left alone": {
			foo: foo, deployment: newOwned(foo), want: child.None},
		"rule 4: replicas that the API server defaulted are 1": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(nil)), want: child.None},
		"rule 4: replicas are put right": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](0))), want: child.Mend,
			changes: "replicas from 0 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"rule 4: a Foo without replicas, stored before the default, means 1": {
			foo: newFoo(fooReplicas(nil)), deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](2))), want: child.Mend,
			changes: "replicas from 2 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"rule 4: an image that the spec names is enforced": {
			foo: pinned, deployment: newOwned(foo), want: child.Mend,
			changes: "image from nginx:latest to nginx:1.27",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"template":{"spec":{"containers":[{"image":"nginx:1.27","name":"nginx"}]}}}}`},
		"rule 4: an image that the spec does not name is not compared": {
			foo: foo, deployment: newOwned(foo, deploymentImage("mine:1")), want: child.None},
		"rule 4: the right image is left alone": {
			foo: pinned, deployment: newOwned(pinned), want: child.None},
		"rule 4: the image of the container nginx counts, wherever it stands": {
			foo: pinned, deployment: newOwned(foo, func(d *appsv1.Deployment) {
				sidecar := corev1.Container{Name: "sidecar", Image: "sidecar:1"}
				d.Spec.Template.Spec.Containers = []corev1.Container{sidecar, {Name: "nginx", Image: "nginx:1.27"}}
			}), want: child.None},
		"rule 4: a removed label is put back": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.Labels = map[string]string{"other": "x"} }), want: child.Mend,
			changes: `label app.kubernetes.io/managed-by from "" to "sample-controller"`,
			patch:   `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"sample-controller"},"resourceVersion":"10"},"spec":{}}`},
		"rule 4: an owner reference that does not block deletion is put right": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil }), want: child.Mend,
			changes: "owner reference",
			patch:   `{"metadata":{"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"},"spec":{}}`},
		"rule 4: an owner reference with a wrong name is put right": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.OwnerReferences[0].Name = "x" }), want: child.Mend,
			changes: "owner reference",
			patch:   `{"metadata":{"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"},"spec":{}}`},
		"rule 4: label and owner reference make one patch": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.Labels = nil; d.OwnerReferences[0].Name = "x" }), want: child.Mend,
			changes: `label app.kubernetes.io/managed-by from "" to "sample-controller", owner reference`,
			patch:   `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"sample-controller"},"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"},"spec":{}}`},
		"rule 4: several fields make one patch": {
			foo: pinned, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](5))), want: child.Mend,
			changes: "replicas from 5 to 1, image from nginx:latest to nginx:1.27",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1,"template":{"spec":{"containers":[{"image":"nginx:1.27","name":"nginx"}]}}}}`},
		"rule 4: what others put on the Deployment is not compared": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) {
				d.Labels["theirs"], d.Annotations = "x", map[string]string{"theirs": "y"}
				d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
				d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar"})
				d.Spec.Paused = true
			}), want: child.None},
		"rule 5: a foreign Deployment is not touched": {
			foo: foo, deployment: newForeign(deploymentReplicas(ptr.To[int32](7))), want: child.Wait},
		"rule 7: an owned Deployment that is being deleted is not repaired": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](7)), deploymentTerminating), want: child.None},
		"API: without a spec there is nothing to act upon": {
			foo: newFoo(wants("")), want: child.None, invalid: "spec.deploymentName is not set"},
		"API: an illegal deploymentName is not acted upon": {
			foo: newFoo(wants("No_Good")), want: child.None, invalid: `spec.deploymentName "No_Good"`},
		"API: no replicas at all are legal": {
			foo: newFoo(fooReplicas(ptr.To[int32](0))), deployment: newOwned(foo), want: child.Mend,
			changes: "replicas from 1 to 0",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":0}}`},
		"API: negative replicas are not acted upon": {
			foo: newFoo(fooReplicas(ptr.To[int32](-1))), deployment: newOwned(foo), want: child.None, invalid: "spec.replicas is -1"},
		"drop-in: no container nginx to take spec.image, none is added, the rest is repaired": {
			foo: pinned, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](2)), noContainerNginx), want: child.Mend, invalid: `no container "nginx"`,
			changes: "replicas from 2 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"drop-in: no container nginx in what is to be created anew is fine": {
			foo: pinned, deployment: newOwned(foo, deploymentTerminating, noContainerNginx), want: child.None},
		"rule 5: no container nginx in a foreign Deployment is none of our business": {
			foo: pinned, deployment: newForeign(noContainerNginx), want: child.Wait},
		"rule 3: a missing Deployment is created with the image that the spec names": {foo: pinned, want: child.Create},
		"drop-in: no container nginx and no spec.image is fine": {
			foo: foo, deployment: newOwned(foo, noContainerNginx), want: child.None},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(test.foo, test.deployment)
			if got.Action != test.want {
				t.Errorf("action = %v, want %v", got.Action, test.want)
			}
			if (got.Create != nil) != (test.want == child.Create) {
				t.Errorf("create = %v with action %v", got.Create, got.Action)
			}
			if diff := cmp.Diff(test.changes, got.Repair.String()); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.patch, string(got.Repair.Patch())); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if !strings.Contains(got.Invalid, test.invalid) || (test.invalid == "") != (got.Invalid == "") {
				t.Errorf("invalid = %q, want %q in it", got.Invalid, test.invalid)
			}
		})
	}
}

func TestFollowBlockers(t *testing.T) {
	a, b, c := newFoo(fooNamed("a")), newFoo(fooNamed("b")), newFoo(fooNamed("c"))
	tests := map[string]struct {
		// blockedBy maps each Foo to the one that holds the name it asks for.
		blockedBy map[*v1alpha1.Foo]*v1alpha1.Foo
		chain     []*v1alpha1.Foo
		cycle     bool
	}{
		"rule 9: blocked by nobody":               {},
		"rule 9: one Foo blocks":                  {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b}, chain: []*v1alpha1.Foo{b}},
		"rule 9: a chain that ends":               {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: c}, chain: []*v1alpha1.Foo{b, c}},
		"rule 9: a Foo that holds its own name":   {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: b}, chain: []*v1alpha1.Foo{b}},
		"rule 8: a swap":                          {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: a}, chain: []*v1alpha1.Foo{b}, cycle: true},
		"rule 8: a rotation of three":             {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: c, c: a}, chain: []*v1alpha1.Foo{b, c}, cycle: true},
		"rule 8: a circle that is not this Foo's": {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: c, c: b}, chain: []*v1alpha1.Foo{b, c}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			chain, cycle := followBlockers(a, func(foo *v1alpha1.Foo) *v1alpha1.Foo { return test.blockedBy[foo] })
			if diff := cmp.Diff(test.chain, chain); diff != "" || cycle != test.cycle {
				t.Errorf("cycle %v, want %v; chain (-want +got):\n%s", cycle, test.cycle, diff)
			}
		})
	}
}

// TestSameStatus changes every field there is: one that sameStatus does not know of would
// never be written.
func TestSameStatus(t *testing.T) {
	status := newFoo(fooReady).Status
	if !sameStatus(&status, status.DeepCopy()) {
		t.Error("rule 15: a copy counts as a difference")
	}
	empty := v1alpha1.FooStatus{Conditions: []metav1.Condition{}}
	if !sameStatus(&empty, &v1alpha1.FooStatus{}) {
		t.Error("rule 15: no conditions and none count as a difference")
	}
	ofStatus := func(status *v1alpha1.FooStatus) reflect.Value { return reflect.ValueOf(status).Elem() }
	ofCondition := func(status *v1alpha1.FooStatus) reflect.Value { return reflect.ValueOf(&status.Conditions[0]).Elem() }
	for _, fields := range []func(*v1alpha1.FooStatus) reflect.Value{ofStatus, ofCondition} {
		for i := range fields(&status).NumField() {
			name := fields(&status).Type().Field(i).Name
			if fields(&status).Field(i).IsZero() {
				t.Fatalf("the example lacks %s", name)
			}
			other := status.DeepCopy()
			fields(other).Field(i).SetZero()
			if sameStatus(&status, other) {
				t.Errorf("rule 13: one without %s counts as the same", name)
			}
		}
	}
}
