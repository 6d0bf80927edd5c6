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

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestInvariants tests the checker, which could otherwise let every run pass.
func TestInvariants(t *testing.T) {
	const available, progressing = v1alpha1.ReasonDeploymentAvailable, v1alpha1.ReasonDeploymentProgressing
	testChecker(t, []checkerCase{
		{"valid: a Foo is created, scaled and renamed", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addRequest(http.MethodPost, deployments, "a", "")
			h.addDeployment(newDeployment("a", "1", 1))
			h.addFoo(withStatus(newFoo("1", 1, "a"), available, 1))
			h.addRequest(http.MethodPut, foos, "x", "status")
			h.addFoo(withStatus(newFoo("1", 2, "b"), available, 1))
			h.addDeployment(newDeployment("a", "1", 2))
			h.addRequest(http.MethodDelete, deployments, "a", "")
			h.addDeployment(newDeployment("b", "1", 2))
			h.deleteDeployment(newDeployment("a", "1", 2))
			h.addFoo(withStatus(newFoo("1", 2, "b"), available, 2))
		}, nil},
		{"S1: a Deployment without an owner is patched", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addDeployment(newDeployment("a", "", 1))
			h.addRequest(http.MethodPatch, deployments, "a", "")
		}, []string{"S1: PATCH deployments a was applied to a Deployment that no Foo controls"}},
		{"S1: the Deployment of a deleted Foo is deleted", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.deleteFoo(newFoo("1", 1, "a"))
			h.addFoo(newFoo("2", 1, "a"))
			h.addDeployment(newDeployment("a", "1", 1))
			h.addRequest(http.MethodDelete, deployments, "a", "")
		}, []string{"S1: DELETE deployments a was applied to a Deployment whose Foo did not exist"}},
		{"valid: a deletion whose answer was lost had no effect", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addDeployment(newDeployment("a", "1", 0))
			h.addLostRequest(http.MethodDelete)
			h.addDeployment(newDeployment("a", "1", 0))
		}, nil},
		{"valid: a deletion whose answer was lost was right until the Foo was deleted", func(h *fakeHistory) {
			h.addFormer()
			h.addLostRequest(http.MethodDelete)
			h.deleteFoo(newFoo("1", 2, "b"))
			h.deleteDeployment(newDeployment("a", "1", 0))
		}, nil},
		{"S1: a deletion whose answer was lost deleted the Deployment that its Foo asks for", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addDeployment(newDeployment("a", "1", 0))
			h.addLostRequest(http.MethodDelete)
			h.deleteDeployment(newDeployment("a", "1", 0))
		}, []string{"S1: DELETE deployments a deleted the Deployment that its Foo asked for"}},
		{"S1: a patch whose answer was lost changed a Deployment without an owner", func(h *fakeHistory) {
			h.addDeployment(newDeployment("a", "", 1))
			h.addLostRequest(http.MethodPatch)
			changed := newDeployment("a", "", 2)
			changed.Generation = 2
			h.addDeployment(changed)
		}, []string{"S1: PATCH deployments a was applied to a Deployment that no Foo controls"}},
		{"valid: a user deletes the Foo between the live read and the deletion", func(h *fakeHistory) {
			h.addFormer()
			h.addRead(newFoo("1", 2, "b"))
			h.addRequest(http.MethodDelete, deployments, "a", "")
			h.deleteFoo(newFoo("1", 2, "b"))
			h.deleteDeployment(newDeployment("a", "1", 0))
		}, nil},
		{"valid: the same, while another sync reads the Foo", func(h *fakeHistory) {
			h.addFormer()
			h.addRead(newFoo("1", 2, "b"))
			h.addRead(nil)
			h.last().answered = unixTime(9)
			h.addRequest(http.MethodDelete, deployments, "a", "")
			h.deleteFoo(newFoo("1", 2, "b"))
			h.deleteDeployment(newDeployment("a", "1", 0))
		}, nil},
		{"valid: the same, just after another sync got 404 for the Foo", func(h *fakeHistory) {
			h.addFormer()
			h.addRead(newFoo("1", 2, "b"))
			h.addRead(nil)
			h.deleteFoo(newFoo("1", 2, "b"))
			h.addRequest(http.MethodDelete, deployments, "a", "")
			h.last().resourceVersion = 3
			h.deleteDeployment(newDeployment("a", "1", 0))
		}, nil},
		{"S1: a deletion long after the last read that returned the Foo", func(h *fakeHistory) {
			h.addFormer()
			h.addRead(newFoo("1", 2, "b"))
			h.addRead(nil)
			h.deleteFoo(newFoo("1", 2, "b"))
			h.addRequest(http.MethodDelete, deployments, "a", "")
			h.last().received, h.last().resourceVersion = unixTime(30), 3
			h.deleteDeployment(newDeployment("a", "1", 0))
		}, []string{"S1: DELETE deployments a was applied to a Deployment whose Foo did not exist"}},
		{"S1: a deletion after a read of a Foo that still asks for the Deployment", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addDeployment(newDeployment("a", "1", 1))
			h.addRead(newFoo("1", 1, "a"))
			h.addRequest(http.MethodDelete, deployments, "a", "")
			h.deleteDeployment(newDeployment("a", "1", 1))
		}, []string{"S1: DELETE deployments a deleted the Deployment that its Foo asked for"}},
		{"S1: a deletion without a live read, after a user deleted the Foo", func(h *fakeHistory) {
			h.addFormer()
			h.addRequest(http.MethodDelete, deployments, "a", "")
			h.deleteFoo(newFoo("1", 2, "b"))
			h.deleteDeployment(newDeployment("a", "1", 0))
		}, []string{"S1: DELETE deployments a was applied to a Deployment whose Foo did not exist"}},
		{"S1: a patch has no precondition", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addDeployment(newDeployment("a", "1", 1))
			h.addRequest(http.MethodPatch, deployments, "a", "")
			h.last().resourceVersion = 0
		}, []string{"S1: PATCH deployments a was applied without a precondition"}},
		{"S1: a status has no precondition", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addRequest(http.MethodPatch, foos, "x", "status")
			h.last().resourceVersion = 0
		}, []string{"S1: PATCH foos x status was applied without a precondition"}},
		{"S1: a Foo's spec is written", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addRequest(http.MethodPut, foos, "x", "")
		}, []string{"S1: PUT foos x: the controller may only write the status of Foos"}},
		{"S1: a Pod is deleted", func(h *fakeHistory) {
			h.addRequest(http.MethodDelete, "pods", "p", "")
		}, []string{"S1: DELETE pods p: the controller only reads pods"}},
		{"S1: the Deployment that a Foo asks for is deleted", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addDeployment(newDeployment("a", "1", 1))
			h.addRequest(http.MethodDelete, deployments, "a", "")
		}, []string{"S1: DELETE deployments a deleted the Deployment that its Foo asked for"}},
		{"S2: a Deployment is created that the Foo never named", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addDeployment(newDeployment("b", "1", 1))
		}, []string{"S2: Deployment b belongs to Foo x, whose spec never named it"}},
		{"S2: a ready Foo keeps its old Deployment", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addDeployment(newDeployment("a", "1", 2))
			h.addFoo(newFoo("1", 2, "b"))
			h.addDeployment(newDeployment("b", "1", 2))
			h.addFoo(withStatus(newFoo("1", 2, "b"), available, 2))
		}, []string{"S2: Foo x is ready, asks for b and owns"}},
		{"valid: a ready Foo keeps a copy of its Deployment that a user made", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addDeployment(newDeployment("a", "1", 1))
			copied := newDeployment("copy", "1", 1)
			copied.ManagedFields[0].Manager = "kubectl-create"
			h.addDeployment(copied)
			h.addFoo(withStatus(newFoo("1", 1, "a"), available, 1))
		}, nil},
		{"S3: observedGeneration is ahead of the generation", func(h *fakeHistory) {
			h.addFoo(withStatus(newFoo("1", 1, "a"), v1alpha1.ReasonDeploymentNotOwned, 2))
		}, []string{"S3: Foo x has observedGeneration 2 of 1"}},
		{"S3: observedGeneration goes back", func(h *fakeHistory) {
			h.addFoo(withStatus(newFoo("1", 2, "a"), v1alpha1.ReasonDeploymentNotOwned, 2))
			h.addFoo(withStatus(newFoo("1", 2, "a"), v1alpha1.ReasonDeploymentNotOwned, 1))
		}, []string{"S3: Foo x has observedGeneration 1 after 2"}},
		{"S3: Ready is reported before the scaling was applied", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addDeployment(newDeployment("a", "1", 1))
			h.addFoo(withStatus(newFoo("1", 2, "a"), available, 2))
		}, []string{"S3: Foo x says DeploymentAvailable for generation 2, which was not applied"}},
		{"S3: Ready is reported for a Deployment that the Foo does not own", func(h *fakeHistory) {
			h.addFoo(newFoo("1", 1, "a"))
			h.addDeployment(newDeployment("a", "", 1))
			h.addFoo(withStatus(newFoo("1", 1, "a"), available, 1))
		}, []string{"S3: Foo x says DeploymentAvailable for generation 1", "S2: Foo x is ready, asks for a and owns []"}},
		{"S3: progress is reported without a Deployment", func(h *fakeHistory) {
			h.addFoo(withStatus(newFoo("1", 1, "a"), progressing, 1))
		}, []string{"S3: Foo x says DeploymentProgressing for generation 1"}},
	})
}
