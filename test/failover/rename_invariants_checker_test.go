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
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

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
