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

package failover

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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
)

// fakeHistory is a history that a test builds version by version.
type fakeHistory struct {
	history

	requests []request
	revision int64
}

// addFoo, addDeployment, deleteFoo and deleteDeployment append the next version of an object.
func (h *fakeHistory) addFoo(foo *v1alpha1.Foo)              { h.appendFoo(foo, false) }
func (h *fakeHistory) deleteFoo(foo *v1alpha1.Foo)           { h.appendFoo(foo, true) }
func (h *fakeHistory) addDeployment(d *appsv1.Deployment)    { h.appendDeployment(d, false) }
func (h *fakeHistory) deleteDeployment(d *appsv1.Deployment) { h.appendDeployment(d, true) }

func (h *fakeHistory) appendFoo(foo *v1alpha1.Foo, deleted bool) {
	h.revision++
	h.foos = append(h.foos, version[*v1alpha1.Foo]{foo, h.revision, deleted})
}

func (h *fakeHistory) appendDeployment(d *appsv1.Deployment, deleted bool) {
	h.revision++
	h.deployments = append(h.deployments, version[*appsv1.Deployment]{d, h.revision, deleted})
}

// addRequest records a request that was applied to the current version, one second after the
// one before.
func (h *fakeHistory) addRequest(verb, resource, name, subresource string) {
	at := unixTime(int64(len(h.requests)))
	h.requests = append(h.requests, request{
		verb: verb, resource: resource, name: name, subresource: subresource,
		resourceVersion: h.revision, code: http.StatusOK, received: at, answered: at,
	})
}

// last returns the last request.
func (h *fakeHistory) last() *request { return &h.requests[len(h.requests)-1] }

// addLostRequest records a write to the current version of Deployment a that got no
// answer.
func (h *fakeHistory) addLostRequest(verb string) {
	h.addRequest(verb, deployments, "a", "")
	h.last().code, h.last().lost = 0, true
}

// addFormer adds the Deployment a of Foo x, which now asks for b.
func (h *fakeHistory) addFormer() {
	h.addFoo(newFoo("1", 1, "a"))
	h.addFoo(newFoo("1", 2, "b"))
	h.addDeployment(newDeployment("a", "1", 0))
}

// addRead records a live read of Foo x or y, which returned that Foo, or nil for 404.
func (h *fakeHistory) addRead(foo *v1alpha1.Foo) {
	h.addRequest(http.MethodGet, foos, "", "")
	h.last().readFoo = foo
}

// addDeploymentRead records a live read of the Deployment.
func (h *fakeHistory) addDeploymentRead(deployment *appsv1.Deployment) {
	h.addRequest(http.MethodGet, deployments, deployment.Name, "")
	h.last().readDeployment = deployment
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
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name), ManagedFields: []metav1.ManagedFieldsEntry{{Manager: controller.FieldManager}}},
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

func testChecker(t *testing.T, cases []checkerCase) {
	for _, test := range cases {
		t.Run(test.name, func(t *testing.T) {
			h := &fakeHistory{}
			test.build(h)
			found := h.checkFoos(h.requests)
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

// incomplete returns the Deployment before any of its Pods is available.
func incomplete(deployment *appsv1.Deployment) *appsv1.Deployment {
	deployment.Status = appsv1.DeploymentStatus{}
	return deployment
}

// newFooY returns Foo y with that generation and deploymentName.
func newFooY(generation int64, deployment string) *v1alpha1.Foo {
	foo := newFoo("2", generation, deployment)
	foo.Name = "y"
	return foo
}

// renameFoo changes the name that Foo x asks for from a, whose Deployment is rolled out, to b.
func (h *fakeHistory) renameFoo() {
	h.addFoo(newFoo("1", 1, "a"))
	h.addDeployment(newDeployment("a", "1", 2))
	h.addFoo(newFoo("1", 2, "b"))
}

// addDeletion records a deletion of the current version of the Deployment, and deletes it.
func (h *fakeHistory) addDeletion(name string, owner types.UID) {
	h.addRequest(http.MethodDelete, deployments, name, "")
	for _, v := range h.deployments {
		if v.object.Name == name {
			h.last().resourceVersion = v.revision
		}
	}
	h.deleteDeployment(newDeployment(name, owner, 2))
}

// TestRenameInvariants tests the checker of S4.
func TestRenameInvariants(t *testing.T) {
	const took = "S4: DELETE deployments a took 2 available Pods while Deployment "
	testChecker(t, []checkerCase{
		{"valid: the new Deployment is complete", func(h *fakeHistory) {
			h.renameFoo()
			h.addDeployment(newDeployment("b", "1", 2))
			h.addDeletion("a", "1")
		}, nil},
		{"S4: the former Deployment is deleted right after the POST", func(h *fakeHistory) {
			h.renameFoo()
			h.addRequest(http.MethodPost, deployments, "b", "")
			h.addDeployment(incomplete(newDeployment("b", "1", 2)))
			h.addRead(newFoo("1", 2, "b"))
			h.addDeletion("a", "1")
			h.addDeployment(newDeployment("b", "1", 2))
		}, []string{took + "b of Foo x was incomplete"}},
		{"S4: the new Deployment was created with 0 replicas", func(h *fakeHistory) {
			h.renameFoo()
			h.addDeployment(newDeployment("b", "1", 0))
			h.addDeletion("a", "1")
		}, []string{took + "b of Foo x was incomplete"}},
		{"S4: no Deployment has the new name", func(h *fakeHistory) {
			h.renameFoo()
			h.addDeletion("a", "1")
		}, []string{took + "b of Foo x was incomplete"}},
		{"S4: a deletion without an answer", func(h *fakeHistory) {
			h.renameFoo()
			h.addDeletion("a", "1")
			h.last().code, h.last().lost = 0, true
		}, []string{took + "b of Foo x was incomplete"}},
		{"S4: the Deployment of the new name is complete, but not the Foo's", func(h *fakeHistory) {
			h.addDeployment(newDeployment("b", "", 2))
			h.renameFoo()
			h.addDeletion("a", "1")
		}, []string{took + "b of Foo x was incomplete"}},
		{"S4: the new Deployment is terminating", func(h *fakeHistory) {
			h.renameFoo()
			terminating := newDeployment("b", "1", 2)
			terminating.DeletionTimestamp = &terminating.CreationTimestamp
			h.addDeployment(terminating)
			h.addDeletion("a", "1")
		}, []string{took + "b of Foo x was incomplete"}},
		{"valid: the new Deployment was complete when the controller read it", func(h *fakeHistory) {
			h.renameFoo()
			h.addDeploymentRead(newDeployment("b", "1", 2))
			h.addDeployment(incomplete(newDeployment("b", "1", 2)))
			h.addDeletion("a", "1")
		}, nil},
		{"S4: the live read showed that the new Deployment was incomplete", func(h *fakeHistory) {
			h.renameFoo()
			h.addDeploymentRead(incomplete(newDeployment("b", "1", 2)))
			h.addDeletion("a", "1")
		}, []string{took + "b of Foo x was incomplete"}},
		{"valid: a user renames the Foo again between the live read and the deletion", func(h *fakeHistory) {
			h.renameFoo()
			h.addDeployment(newDeployment("b", "1", 2))
			h.addRead(newFoo("1", 2, "b"))
			h.addFoo(newFoo("1", 3, "c"))
			h.addDeletion("a", "1")
		}, nil},
		{"S4: a user renames the Foo again before the live read", func(h *fakeHistory) {
			h.renameFoo()
			h.addDeployment(newDeployment("b", "1", 2))
			h.addFoo(newFoo("1", 3, "c"))
			h.addRead(newFoo("1", 3, "c"))
			h.addDeletion("a", "1")
		}, []string{took + "c of Foo x was incomplete"}},
		{"valid: no Pod of the former Deployment is available", func(h *fakeHistory) {
			h.renameFoo()
			h.addDeployment(incomplete(newDeployment("a", "1", 2)))
			h.addDeletion("a", "1")
		}, nil},
		{"valid: two Foos swap names, and the caches show neither the other one's deletion", func(h *fakeHistory) {
			h.addFoo(newFooY(1, "b"))
			h.addDeployment(newDeployment("b", "2", 2))
			h.addFoo(newFooY(2, "a"))
			h.renameFoo()
			h.addDeletion("a", "1")
			h.addDeletion("b", "2")
		}, nil},
		{"valid: the other Foo of a swap is renamed between the live read and the deletion", func(h *fakeHistory) {
			h.addFoo(newFooY(1, "b"))
			h.addDeployment(newDeployment("b", "2", 2))
			h.addFoo(newFooY(2, "a"))
			h.renameFoo()
			h.addRead(newFooY(2, "a"))
			h.addFoo(newFooY(3, "c"))
			h.addDeletion("a", "1")
		}, nil},
		{"S4: the owner of the new name does not ask for the former one", func(h *fakeHistory) {
			h.addFoo(newFooY(1, "b"))
			h.addDeployment(newDeployment("b", "2", 2))
			h.renameFoo()
			h.addDeletion("a", "1")
		}, []string{took + "b of Foo x was incomplete"}},
		{"S4: the Foos stopped being a cycle before the generation that asks for the name", func(h *fakeHistory) {
			h.addFoo(newFooY(1, "b"))
			h.addFoo(newFooY(2, "a"))
			h.addDeployment(newDeployment("b", "2", 2))
			h.deleteDeployment(newDeployment("b", "2", 2))
			h.renameFoo()
			h.addDeletion("a", "1")
		}, []string{took + "b of Foo x was incomplete"}},
	})
}
