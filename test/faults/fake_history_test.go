//go:build faults

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

package faults

import (
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// fakeHistory is a history that a test builds version by version.
type fakeHistory struct {
	history

	requests []request
	revision int64
}

// appendVersion appends the next version of an object.
func appendVersion[T metav1.Object](h *fakeHistory, to *[]version[T], object T, deleted bool) {
	h.revision++
	*to = append(*to, version[T]{object: object, revision: h.revision, deleted: deleted})
}

func (h *fakeHistory) addFoo(foo *v1alpha1.Foo)           { appendVersion(h, &h.foos, foo, false) }
func (h *fakeHistory) deleteFoo(foo *v1alpha1.Foo)        { appendVersion(h, &h.foos, foo, true) }
func (h *fakeHistory) addDeployment(d *appsv1.Deployment) { appendVersion(h, &h.deployments, d, false) }
func (h *fakeHistory) deleteDeployment(d *appsv1.Deployment) {
	appendVersion(h, &h.deployments, d, true)
}

// addObject appends a version of an object of any kind, deleteObject its deletion.
func (h *fakeHistory) addObject(resource string, object *unstructured.Unstructured) {
	h.appendObject(resource, object, false)
}

func (h *fakeHistory) deleteObject(resource string, object *unstructured.Unstructured) {
	h.appendObject(resource, object, true)
}

func (h *fakeHistory) appendObject(resource string, object *unstructured.Unstructured, deleted bool) {
	if h.objects == nil {
		h.objects = map[string][]version[*unstructured.Unstructured]{}
	}
	versions := h.objects[resource]
	appendVersion(h, &versions, object, deleted)
	h.objects[resource] = versions
}

// decode returns the object in JSON.
func decode(data string) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	if err := object.UnmarshalJSON([]byte(data)); err != nil {
		panic(err)
	}
	return object
}

// addRequest records a request that was applied to the current version.
func (h *fakeHistory) addRequest(verb, resource, name, subresource string) {
	h.requests = append(h.requests, request{verb: verb, resource: resource, name: name, subresource: subresource, resourceVersion: h.revision, code: http.StatusOK})
}

// addLostRequest records a write to the current version of Deployment a that got no
// answer.
func (h *fakeHistory) addLostRequest(verb string) {
	h.requests = append(h.requests, request{verb: verb, resource: deployments, name: "a", resourceVersion: h.revision, lost: true})
}

// addAdoption adds a Deployment without an owner whose annotation names that Foo, and a patch
// that makes Foo x its controller.
func (h *fakeHistory) addAdoption(name, by string) {
	foreign := newDeployment(name, "", 1)
	foreign.Annotations = map[string]string{adoptByAnnotation: by}
	h.addDeployment(foreign)
	h.addRequest(http.MethodPatch, deployments, name, "")
	h.addDeployment(newDeployment(name, "1", 1))
}

// newFoo returns Foo x with that generation and deploymentName.
func newFoo(uid types.UID, generation int64, deployment string) *v1alpha1.Foo {
	return &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: "x", UID: uid, Generation: generation},
		Spec:       v1alpha1.FooSpec{DeploymentName: deployment, Replicas: ptr.To(int32(generation))},
	}
}

// withStatus sets a status for that generation and returns the Foo.
func withStatus(foo *v1alpha1.Foo, reason string, generation int64) *v1alpha1.Foo {
	foo.Status.ObservedGeneration = generation
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonDeploymentAvailable {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&foo.Status.Conditions, metav1.Condition{Type: v1alpha1.FooReady, Status: status, Reason: reason, ObservedGeneration: generation})
	return foo
}

// newDeployment returns a Deployment that the controller has written and that is rolled
// out, controlled by the Foo with that UID; "" for none.
func newDeployment(name string, owner types.UID, replicas int32) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: fieldManager}}},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(replicas),
			Template: corev1.PodTemplateSpec{Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx"}}}},
		},
		Status: appsv1.DeploymentStatus{Replicas: replicas, UpdatedReplicas: replicas, AvailableReplicas: replicas},
	}
	if owner != "" {
		d.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "x", UID: owner}, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Foo"))}
	}
	return d
}

// unixTime returns a time for requests of a fake history.
func unixTime(seconds int64) time.Time {
	return time.Unix(seconds, 0)
}

// checkerCase is a history and the violations that a checker must find in it.
type checkerCase struct {
	name  string
	build func(*fakeHistory)
	// want has the beginning of each violation.
	want []string
}

func testChecker(t *testing.T, cases []checkerCase, check func(*fakeHistory) []string) {
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			h := &fakeHistory{}
			test.build(h)
			found := check(h)
			for _, want := range test.want {
				if !slices.ContainsFunc(found, func(line string) bool { return strings.HasPrefix(line, want) }) {
					t.Errorf("no violation begins with %q", want)
				}
			}
			if len(found) != len(test.want) {
				t.Errorf("violations: %q", found)
			}
		})
	}
}
