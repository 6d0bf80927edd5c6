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

package deployment

import (
	"errors"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
)

// compare returns the patch of a Deployment that should have 1 replica, image a, two labels,
// no container "gone" missing, and its owner "owner".
func compare(d *appsv1.Deployment, admitted ...controller.FieldValue) controller.Patch {
	p := controller.NewPatch(d, admitted...)
	p.CompareReplicas(d.Spec.Replicas, 1)
	if container := Container(d, "c"); container.Image != "a" {
		p.SetInContainer("c", "a", container.Image, "a", "image")
	}
	p.EnsureLabel(d, "ours", "us")
	p.CompareController(d, &metav1.ObjectMeta{Name: "owner", UID: "uid"}, schema.GroupVersionKind{Kind: "Foo"})
	return p
}

// drifted returns a Deployment with 3 replicas and that image, and without the label.
func drifted(image string) *appsv1.Deployment {
	owner := metav1.OwnerReference{Name: "owner", UID: "uid", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "10", OwnerReferences: []metav1.OwnerReference{owner}}}
	d.Spec.Replicas = ptr.To[int32](3)
	d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "c", Image: image})
	return d
}

func TestAdmitted(t *testing.T) {
	long := strings.Repeat("é", 200)
	tests := map[string]struct {
		image string
		// written is the answer to a write whose values are accepted.
		written   *appsv1.Deployment
		patch     string
		described string
	}{
		"rule 4: nothing is accepted before a write": {
			image: "b", patch: `replicas from 3 to 1, image from b to a, label ours from none to "us"`},
		"rule 4: what the answer to a write shows is accepted": {
			image: "b", written: drifted("b"),
			described: `; accepted from admission webhooks or policies: replicas 3 in place of 1, image b in place of a, label ours none in place of "us"`},
		"rule 4: a third value is drift": {
			image: "c", written: drifted("b"), patch: "image from c to a",
			described: `; accepted from admission webhooks or policies: replicas 3 in place of 1, label ours none in place of "us"`},
		"rule 4: the value that was asked for is no drift": {
			image: "a", written: drifted("b"),
			described: `; accepted from admission webhooks or policies: replicas 3 in place of 1, label ours none in place of "us"`},
		"rule 4: a long value is accepted": {
			image: long, written: drifted(long),
			described: "; accepted from admission webhooks or policies: replicas 3 in place of 1, image " + strings.Repeat("é", 128) + `… (sha256 `},
		"rule 4: another long value that begins in the same way is drift": {
			image: long + "x", written: drifted(long), patch: "image from " + strings.Repeat("é", 128) + "… (sha256 ",
			described: `; accepted from admission webhooks or policies: replicas 3 in place of 1, label ours`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var admitted []controller.FieldValue
			if test.written != nil {
				var err error
				if admitted, err = controller.CheckAdmitted(compare(test.written)); err != nil {
					t.Fatal(err)
				}
			}
			patch := compare(drifted(test.image), admitted...)
			if got := patch.String(); !strings.HasPrefix(got, test.patch) || test.patch == "" && got != "" {
				t.Errorf("patch %q, want %q", got, test.patch)
			}
			if got := controller.DescribeAdmitted(patch); !strings.HasPrefix(got, test.described) || test.described == "" && got != "" {
				t.Errorf("described as %q, want %q", got, test.described)
			}
			if (patch.JSON() == nil) != (test.patch == "") {
				t.Errorf("patch %s", patch.JSON())
			}
		})
	}
}

func TestAdmittedOwnerReference(t *testing.T) {
	d := drifted("b")
	d.OwnerReferences[0].BlockOwnerDeletion = nil
	if values, err := controller.CheckAdmitted(compare(d)); !errors.Is(err, controller.ErrOverridden) || values != nil {
		t.Errorf("rule 4: values %v, error %v for an owner reference that admission changed", values, err)
	}
}

func TestEffective(t *testing.T) {
	patch := compare(drifted("b"))
	got := patch.Effective([]controller.FieldValue{{Field: "image", Value: "b"}, {Field: "replicas", Value: "2"}})
	fixture.Differ(t, "rule 16: what the patch changed", `replicas from 3 to 1, label ours from none to "us"`, got.String())
	fixture.Differ(t, "the patch itself", 3, len(patch.Changes))
}

func TestCompared(t *testing.T) {
	replicas, image := controller.FieldValue{Field: "replicas", Value: "3"}, controller.FieldValue{Field: "image", Value: "c"}
	patch := compare(drifted("b"), replicas)
	got := patch.Compared([]controller.FieldValue{replicas, image, {Field: "key a", Value: "is not wanted"}})
	fixture.Differ(t, "rule 4: the values of written fields and of accepted ones", []controller.FieldValue{replicas, image}, got)
}

func TestAdmittedContainer(t *testing.T) {
	d := drifted("b")
	add := func(admitted ...controller.FieldValue) controller.Patch {
		p := controller.NewPatch(d, admitted...)
		p.AddContainer(&corev1.Container{Name: "gone"})
		return p
	}
	admitted, err := controller.CheckAdmitted(add())
	if err != nil {
		t.Fatal(err)
	}
	patch := add(admitted...)
	fixture.Differ(t, "rule M4: the patch", "", string(patch.JSON()))
	fixture.Differ(t, "rule M4: the message", "; accepted from admission webhooks or policies: container gone was removed", controller.DescribeAdmitted(patch))
}
