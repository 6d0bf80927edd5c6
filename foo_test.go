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

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
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

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, name := range []string{"foo", strings.Repeat("a", 63)} {
		if got := labelValue(name); got != name {
			t.Errorf("labelValue(%q) = %q, want it unchanged", name, got)
		}
	}
	seen := map[string]string{}
	for _, name := range []string{long, long + "b", long + "c", strings.Repeat("a", 51) + ".-." + long, strings.Repeat("a.", 100) + "z"} {
		got := labelValue(name)
		if problems := validation.IsValidLabelValue(got); len(problems) > 0 {
			t.Errorf("labelValue(%q) = %q, no legal label value: %v", name, got, problems)
		}
		if again := labelValue(name); again != got {
			t.Errorf("labelValue(%q) is %q once and %q another time", name, got, again)
		}
		if other, taken := seen[got]; taken {
			t.Errorf("%q and %q share the label value %q", name, other, got)
		}
		seen[got] = name
	}
	// The value is in the selector of running Deployments: it must never change.
	if got, want := labelValue(long), strings.Repeat("a", 52)+"-ffe054fe7a"; got != want {
		t.Errorf("labelValue of 64 times a = %q, want %q", got, want)
	}
}

func TestOwns(t *testing.T) {
	foo := newFoo()
	reference := func(change func(*metav1.OwnerReference)) *appsv1.Deployment {
		ref := controllerReference(foo)
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
			if got := owns(foo, test.deployment); got != test.want {
				t.Errorf("owns = %v, want %v", got, test.want)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	foo := newFoo()
	pinned := newFoo(fooImage("nginx:1.27"))
	tests := map[string]struct {
		foo        *v1alpha1.Foo
		deployment *appsv1.Deployment
		want       action
		// changes and patch are expected of a repair.
		changes string
		patch   string
		// invalid is a part of the complaint about the spec.
		invalid string
	}{
		"rule 3: a missing Deployment is created": {foo: foo, want: actCreate},
		"rule 4: a Deployment as it should be is left alone": {
			foo: foo, deployment: newOwned(foo), want: actNone},
		"rule 4: replicas that the API server defaulted are 1": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(nil)), want: actNone},
		"rule 4: replicas are put right": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](0))), want: actRepair,
			changes: "replicas from 0 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"rule 4: a Foo without replicas, stored before the default, means 1": {
			foo: newFoo(fooReplicas(nil)), deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](2))), want: actRepair,
			changes: "replicas from 2 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"rule 4: an image that the spec names is enforced": {
			foo: pinned, deployment: newOwned(foo), want: actRepair,
			changes: "image from nginx:latest to nginx:1.27",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"template":{"spec":{"containers":[{"image":"nginx:1.27","name":"nginx"}]}}}}`},
		"rule 4: an image that the spec does not name is not compared": {
			foo: foo, deployment: newOwned(foo, deploymentImage("mine:1")), want: actNone},
		"rule 4: the right image is left alone": {
			foo: pinned, deployment: newOwned(pinned), want: actNone},
		"rule 4: the image of the container nginx counts, wherever it stands": {
			foo: pinned, deployment: newOwned(foo, func(d *appsv1.Deployment) {
				sidecar := corev1.Container{Name: "sidecar", Image: "sidecar:1"}
				d.Spec.Template.Spec.Containers = []corev1.Container{sidecar, {Name: "nginx", Image: "nginx:1.27"}}
			}), want: actNone},
		"rule 4: a removed label is put back": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.Labels = map[string]string{"other": "x"} }), want: actRepair,
			changes: `label app.kubernetes.io/managed-by from "" to "sample-controller"`,
			patch:   `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"sample-controller"},"resourceVersion":"10"},"spec":{}}`},
		"rule 4: an owner reference that does not block deletion is put right": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil }), want: actRepair,
			changes: "owner reference",
			patch:   `{"metadata":{"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"},"spec":{}}`},
		"rule 4: an owner reference with a wrong name is put right": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.OwnerReferences[0].Name = "x" }), want: actRepair,
			changes: "owner reference",
			patch:   `{"metadata":{"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"},"spec":{}}`},
		"rule 4: several fields make one patch": {
			foo: pinned, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](5))), want: actRepair,
			changes: "replicas from 5 to 1, image from nginx:latest to nginx:1.27",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1,"template":{"spec":{"containers":[{"image":"nginx:1.27","name":"nginx"}]}}}}`},
		"rule 4: what others put on the Deployment is not compared": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) {
				d.Labels["theirs"], d.Annotations = "x", map[string]string{"theirs": "y"}
				d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
				d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar"})
				d.Spec.Paused = true
			}), want: actNone},
		"rule 5: a foreign Deployment is not touched": {
			foo: foo, deployment: newForeign(deploymentReplicas(ptr.To[int32](7))), want: actWait},
		"rule 7: an owned Deployment that is being deleted is not repaired": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](7)), deploymentTerminating), want: actNone},
		"API: without a spec there is nothing to act upon": {
			foo: newFoo(wants("")), want: actNone, invalid: "spec.deploymentName is not set"},
		"API: an illegal deploymentName is not acted upon": {
			foo: newFoo(wants("No_Good")), want: actNone, invalid: `spec.deploymentName "No_Good"`},
		"API: no replicas at all are legal": {
			foo: newFoo(fooReplicas(ptr.To[int32](0))), deployment: newOwned(foo), want: actRepair,
			changes: "replicas from 1 to 0",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":0}}`},
		"API: negative replicas are not acted upon": {
			foo: newFoo(fooReplicas(ptr.To[int32](-1))), deployment: newOwned(foo), want: actNone, invalid: "spec.replicas is -1"},
		"drop-in: no container nginx to take spec.image, none is added, the rest is repaired": {
			foo: pinned, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](2)), func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Name = "web"
			}), want: actRepair, invalid: `no container "nginx"`,
			changes: "replicas from 2 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"drop-in: no container nginx and no spec.image is fine": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Name = "web" }), want: actNone},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(test.foo, test.deployment)
			if got.action != test.want {
				t.Errorf("action = %v, want %v", got.action, test.want)
			}
			if (got.create != nil) != (test.want == actCreate) {
				t.Errorf("create = %v with action %v", got.create, got.action)
			}
			if diff := cmp.Diff(test.changes, got.repair.String()); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.patch, string(got.repair.patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if !strings.Contains(got.invalid, test.invalid) || (test.invalid == "") != (got.invalid == "") {
				t.Errorf("invalid = %q, want %q in it", got.invalid, test.invalid)
			}
		})
	}
}

func TestMustJSON(t *testing.T) {
	if got := panicOf(func() { mustJSON(func() {}) }); !strings.Contains(got, "encoding func()") {
		t.Errorf("what cannot be encoded made the panic %q", got)
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

func TestIsRejection(t *testing.T) {
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	terminating := apierrors.NewForbidden(deployments, "web", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"rule 11: 422 invalid":                {apierrors.NewInvalid(schema.GroupKind{Kind: "Deployment"}, "web", nil), true},
		"rule 11: 403 forbidden":              {apierrors.NewForbidden(deployments, "web", errors.New("quota")), true},
		"rule 11: 400, a webhook's refusal":   {apierrors.NewBadRequest("no"), true},
		"rule 11: 413":                        {apierrors.NewRequestEntityTooLargeError("big"), true},
		"rule 11: a terminating namespace":    {terminating, false},
		"rule 12: 401, a token being rotated": {apierrors.NewUnauthorized("token"), false},
		"rule 12: 404":                        {apierrors.NewNotFound(deployments, "web"), false},
		"rule 12: 409":                        {apierrors.NewConflict(deployments, "web", errors.New("changed")), false},
		"rule 12: 429":                        {apierrors.NewTooManyRequests("later", 1), false},
		"rule 12: 500":                        {apierrors.NewInternalError(errors.New("oops")), false},
		"rule 12: connection refused":         {errors.New("dial tcp: connection refused"), false},
		"no error":                            {nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := isRejection(test.err); got != test.want {
				t.Errorf("isRejection(%v) = %v, want %v", test.err, got, test.want)
			}
		})
	}
}
