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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// tale is a history that a test tells, version by version.
type tale struct {
	history

	requests []request
	now      int64
}

func (h *tale) foo(foo *v1alpha1.Foo) {
	h.now++
	h.foos = append(h.foos, version[*v1alpha1.Foo]{object: foo, number: h.now})
}

func (h *tale) fooGone(foo *v1alpha1.Foo) {
	h.now++
	h.foos = append(h.foos, version[*v1alpha1.Foo]{object: foo, number: h.now, gone: true})
}

func (h *tale) deployment(deployment *appsv1.Deployment) {
	h.now++
	h.deployments = append(h.deployments, version[*appsv1.Deployment]{object: deployment, number: h.now})
}

func (h *tale) deploymentGone(deployment *appsv1.Deployment) {
	h.now++
	h.deployments = append(h.deployments, version[*appsv1.Deployment]{object: deployment, number: h.now, gone: true})
}

// sent records a request that was applied to the present version.
func (h *tale) sent(verb, resource, name, subresource string) {
	h.requests = append(h.requests, request{verb: verb, resource: resource, name: name, subresource: subresource, version: h.now, code: http.StatusOK})
}

// lost records a write to the present version of Deployment a, of which nobody
// knows what became of it.
func (h *tale) lost(verb string) {
	h.requests = append(h.requests, request{verb: verb, resource: deployments, name: "a", version: h.now, lost: true})
}

// aFoo returns a Foo x in that generation, which asks for that Deployment.
func aFoo(uid types.UID, generation int64, deployment string) *v1alpha1.Foo {
	return &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: "x", UID: uid, Generation: generation},
		Spec:       v1alpha1.FooSpec{DeploymentName: deployment, Replicas: ptr.To(int32(generation))},
	}
}

// saying returns the Foo with a status that tells of that generation.
func saying(foo *v1alpha1.Foo, reason string, generation int64) *v1alpha1.Foo {
	foo.Status.ObservedGeneration = generation
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonDeploymentAvailable {
		status = metav1.ConditionTrue
	}
	meta.SetStatusCondition(&foo.Status.Conditions, metav1.Condition{Type: v1alpha1.FooReady, Status: status, Reason: reason, ObservedGeneration: generation})
	return foo
}

// aDeployment returns a Deployment of the Foo with that UID, rolled out.
func aDeployment(name string, owner types.UID, replicas int32) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, UID: types.UID("uid of " + name)},
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

// TestInvariants checks the judge: a suite whose judge lets everything pass would
// pass as well.
func TestInvariants(t *testing.T) {
	const available, progressing = v1alpha1.ReasonDeploymentAvailable, v1alpha1.ReasonDeploymentProgressing
	for _, test := range []struct {
		sentence string
		tell     func(*tale)
		// want are the beginnings of what is reported.
		want []string
	}{
		{"nothing is wrong with a Foo that was created, scaled and renamed", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.sent(http.MethodPost, deployments, "a", "")
			h.deployment(aDeployment("a", "1", 1))
			h.foo(saying(aFoo("1", 1, "a"), available, 1))
			h.sent(http.MethodPut, foos, "x", "status")
			h.foo(saying(aFoo("1", 2, "b"), available, 1))
			h.deployment(aDeployment("a", "1", 2))
			h.sent(http.MethodDelete, deployments, "a", "")
			h.deployment(aDeployment("b", "1", 2))
			h.deploymentGone(aDeployment("a", "1", 2))
			h.foo(saying(aFoo("1", 2, "b"), available, 2))
		}, nil},
		{"S1: a Deployment without an owner is patched", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.deployment(aDeployment("a", "", 1))
			h.sent(http.MethodPatch, deployments, "a", "")
		}, []string{"S1: PATCH deployments a was applied to a Deployment that no Foo controls"}},
		{"S1: a predecessor's Deployment is deleted", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.fooGone(aFoo("1", 1, "a"))
			h.foo(aFoo("2", 1, "a"))
			h.deployment(aDeployment("a", "1", 1))
			h.sent(http.MethodDelete, deployments, "a", "")
		}, []string{"S1: DELETE deployments a was applied to a Deployment whose Foo was not there"}},
		{"nothing is wrong with a deletion whose answer was lost, and that came too late", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.deployment(aDeployment("a", "1", 1))
			h.lost(http.MethodDelete)
			h.deployment(aDeployment("a", "1", 1))
		}, nil},
		{"nothing is wrong with a lost deletion that was right until the Foo was deleted", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.foo(aFoo("1", 2, "b"))
			h.deployment(aDeployment("a", "1", 1))
			h.lost(http.MethodDelete)
			h.fooGone(aFoo("1", 2, "b"))
			h.deploymentGone(aDeployment("a", "1", 1))
		}, nil},
		{"S1: a deletion whose answer was lost hits the Deployment that its Foo asks for", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.deployment(aDeployment("a", "1", 1))
			h.lost(http.MethodDelete)
			h.deploymentGone(aDeployment("a", "1", 1))
		}, []string{"S1: DELETE deployments a deleted the Deployment that its Foo asked for"}},
		{"S1: a patch whose answer was lost changes a Deployment without an owner", func(h *tale) {
			h.deployment(aDeployment("a", "", 1))
			h.lost(http.MethodPatch)
			changed := aDeployment("a", "", 2)
			changed.Generation = 2
			h.deployment(changed)
		}, []string{"S1: PATCH deployments a was applied to a Deployment that no Foo controls"}},
		{"nothing is wrong with a deletion after a look at a Foo that a user then deletes", func(h *tale) {
			h.raced = true
			h.foo(aFoo("1", 1, "a"))
			h.foo(aFoo("1", 2, "b"))
			h.deployment(aDeployment("a", "1", 1))
			h.requests = append(h.requests, request{verb: http.MethodGet, resource: foos, name: "x", read: aFoo("1", 2, "b")})
			h.sent(http.MethodDelete, deployments, "a", "")
			h.fooGone(aFoo("1", 2, "b"))
			h.deploymentGone(aDeployment("a", "1", 1))
		}, nil},
		{"nothing is wrong with a deletion while another sync looks at a Foo that a user then deletes", func(h *tale) {
			h.raced = true
			h.foo(aFoo("1", 1, "a"))
			h.foo(aFoo("1", 2, "b"))
			h.deployment(aDeployment("a", "1", 1))
			h.requests = append(h.requests,
				request{verb: http.MethodGet, resource: foos, name: "x", read: aFoo("1", 2, "b"), begun: at(1), ended: at(2)},
				request{verb: http.MethodGet, resource: foos, name: "x", begun: at(2), ended: at(4)})
			h.sent(http.MethodDelete, deployments, "a", "")
			h.requests[2].begun, h.requests[2].ended = at(3), at(5)
			h.fooGone(aFoo("1", 2, "b"))
			h.deploymentGone(aDeployment("a", "1", 1))
		}, nil},
		{"nothing is wrong with a deletion just after another sync has seen that a user deleted the Foo", func(h *tale) {
			h.raced = true
			h.foo(aFoo("1", 1, "a"))
			h.foo(aFoo("1", 2, "b"))
			h.deployment(aDeployment("a", "1", 1))
			h.requests = append(h.requests,
				request{verb: http.MethodGet, resource: foos, name: "x", read: aFoo("1", 2, "b"), begun: at(1), ended: at(2)},
				request{verb: http.MethodGet, resource: foos, name: "x", begun: at(2), ended: at(3)})
			h.fooGone(aFoo("1", 2, "b"))
			h.sent(http.MethodDelete, deployments, "a", "")
			h.requests[2].begun, h.requests[2].ended, h.requests[2].version = at(3), at(4), 3
			h.deploymentGone(aDeployment("a", "1", 1))
		}, nil},
		{"S1: a deletion long after the last look at a Foo that was there", func(h *tale) {
			h.raced = true
			h.foo(aFoo("1", 1, "a"))
			h.foo(aFoo("1", 2, "b"))
			h.deployment(aDeployment("a", "1", 1))
			h.requests = append(h.requests,
				request{verb: http.MethodGet, resource: foos, name: "x", read: aFoo("1", 2, "b"), begun: at(1), ended: at(2)},
				request{verb: http.MethodGet, resource: foos, name: "x", begun: at(2), ended: at(3)})
			h.fooGone(aFoo("1", 2, "b"))
			h.sent(http.MethodDelete, deployments, "a", "")
			h.requests[2].begun, h.requests[2].ended, h.requests[2].version = at(30), at(31), 3
			h.deploymentGone(aDeployment("a", "1", 1))
		}, []string{"S1: DELETE deployments a was applied to a Deployment whose Foo was not there"}},
		{"S1: a deletion after a look at a Foo that still asks for the Deployment", func(h *tale) {
			h.raced = true
			h.foo(aFoo("1", 1, "a"))
			h.deployment(aDeployment("a", "1", 1))
			h.requests = append(h.requests, request{verb: http.MethodGet, resource: foos, name: "x", read: aFoo("1", 1, "a")})
			h.sent(http.MethodDelete, deployments, "a", "")
			h.deploymentGone(aDeployment("a", "1", 1))
		}, []string{"S1: DELETE deployments a deleted the Deployment that its Foo asked for"}},
		{"S1: a deletion without a look, of a Deployment whose Foo a user has deleted", func(h *tale) {
			h.raced = true
			h.foo(aFoo("1", 1, "a"))
			h.foo(aFoo("1", 2, "b"))
			h.deployment(aDeployment("a", "1", 1))
			h.sent(http.MethodDelete, deployments, "a", "")
			h.fooGone(aFoo("1", 2, "b"))
			h.deploymentGone(aDeployment("a", "1", 1))
		}, []string{"S1: DELETE deployments a was applied to a Deployment whose Foo was not there"}},
		{"S1: a patch has no precondition", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.deployment(aDeployment("a", "1", 1))
			h.requests = append(h.requests, request{verb: http.MethodPatch, resource: deployments, name: "a", code: http.StatusOK})
		}, []string{"S1: PATCH deployments a was applied without a precondition"}},
		{"S1: a Foo's spec is written", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.sent(http.MethodPut, foos, "x", "")
		}, []string{"S1: PUT foos x: of a Foo only the status"}},
		{"S1: a Pod is deleted", func(h *tale) {
			h.sent(http.MethodDelete, pods, "p", "")
		}, []string{"S1: DELETE pods p: the controller only reads pods"}},
		{"S1: the Deployment that a Foo asks for is deleted", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.deployment(aDeployment("a", "1", 1))
			h.sent(http.MethodDelete, deployments, "a", "")
		}, []string{"S1: DELETE deployments a deleted the Deployment that its Foo asked for"}},
		{"S2: a Deployment is made that the Foo never named", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.deployment(aDeployment("b", "1", 1))
		}, []string{"S2: Deployment b belongs to Foo x, whose spec had never named it"}},
		{"S2: a Foo that is ready keeps the Deployment of its former name", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.deployment(aDeployment("a", "1", 2))
			h.foo(aFoo("1", 2, "b"))
			h.deployment(aDeployment("b", "1", 2))
			h.foo(saying(aFoo("1", 2, "b"), available, 2))
		}, []string{"S2: Foo x is ready, asks for b and owns"}},
		{"S3: a status tells of a generation that is yet to come", func(h *tale) {
			h.foo(saying(aFoo("1", 1, "a"), v1alpha1.ReasonDeploymentNotOwned, 2))
		}, []string{"S3: Foo x has observed generation 2 of 1"}},
		{"S3: a status goes back to an older generation", func(h *tale) {
			h.foo(saying(aFoo("1", 2, "a"), v1alpha1.ReasonDeploymentNotOwned, 2))
			h.foo(saying(aFoo("1", 2, "a"), v1alpha1.ReasonDeploymentNotOwned, 1))
		}, []string{"S3: Foo x has observed generation 1 after 2"}},
		{"S3: Ready is claimed for a scale that was not applied", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.deployment(aDeployment("a", "1", 1))
			h.foo(saying(aFoo("1", 2, "a"), available, 2))
		}, []string{"S3: Foo x says DeploymentAvailable of generation 2, which was not applied"}},
		{"S3: Ready is claimed for a Deployment of the right shape that is someone else's", func(h *tale) {
			h.foo(aFoo("1", 1, "a"))
			h.deployment(aDeployment("a", "", 1))
			h.foo(saying(aFoo("1", 1, "a"), available, 1))
		}, []string{"S3: Foo x says DeploymentAvailable of generation 1", "S2: Foo x is ready, asks for a and owns []"}},
		{"S3: progress is claimed where nothing was done", func(h *tale) {
			h.foo(saying(aFoo("1", 1, "a"), progressing, 1))
		}, []string{"S3: Foo x says DeploymentProgressing of generation 1"}},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			h := &tale{}
			test.tell(h)
			found := h.violations(h.requests)
			for _, want := range test.want {
				if !slices.ContainsFunc(found, func(line string) bool { return strings.HasPrefix(line, want) }) {
					t.Errorf("nothing begins with %q", want)
				}
			}
			if len(found) != len(test.want) {
				t.Errorf("reported is %q", found)
			}
		})
	}
}
