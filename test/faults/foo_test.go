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
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

func fooKind() *kind {
	return &kind{
		controller: "foo",
		every:      5, everyWatch: 10,
		parent:     "Foo",
		child:      "Deployment",
		roles:      map[string]role{foos: parents, deployments: children},
		scenarios:  fooScenarios,
		state:      (*history).fooState,
		parents:    func(h *history) []string { return namesOf(h.foos) },
		children:   func(h *history) int { return countOf(h.deployments) },
		violations: (*history).violations,
		mark:       markFoo,
	}
}

// fooOwners are Foos as the judge of Deployments sees them.
func fooOwners() owners[*v1alpha1.Foo] {
	return owners[*v1alpha1.Foo]{
		kind: "Foo", group: "samplecontroller.k8s.io", resource: foos,
		deployment: func(foo *v1alpha1.Foo) string { return foo.Spec.DeploymentName },
		conforms:   conforms,
		status: func(foo *v1alpha1.Foo) (int64, []metav1.Condition) {
			return foo.Status.ObservedGeneration, foo.Status.Conditions
		},
		justified: justified,
	}
}

// violations returns what breaks S1, S2 or S3 for Foos, given what each controller
// sent. The caller holds the lock.
func (h *history) violations(records ...[]request) []string {
	return violations(h, h.foos, fooOwners(), records...)
}

// controllerOf returns the reference to the Foo that controls the Deployment, or
// nil.
func controllerOf(deployment *appsv1.Deployment) *metav1.OwnerReference {
	return fooOwners().controllerOf(deployment)
}

func isReady(foo *v1alpha1.Foo) bool {
	return fooOwners().isReady(foo)
}

// fooState is the state of a Foo.
type fooState struct {
	parentState

	Spec      v1alpha1.FooSpec
	Available int32
	Replicas  int32
	Selector  string
}

func (h *history) fooState() state {
	return state{
		Parents:  statesOf(h.foos, func(foo *v1alpha1.Foo) objectState { return stateOfFoo(foo) }),
		Children: deploymentStates(h, h.foos),
	}
}

func stateOfFoo(foo *v1alpha1.Foo) fooState {
	return fooState{
		parentState: stateOfParent(foo, foo.Status.ObservedGeneration, foo.Status.Conditions),
		Spec:        foo.Spec,
		Available:   foo.Status.AvailableReplicas,
		Replicas:    foo.Status.Replicas,
		Selector:    foo.Status.Selector,
	}
}

func (s fooState) line(name string) string {
	return forNow(fmt.Sprintf("Foo %s asks for %s: %s %d", name, s.Spec.DeploymentName, s.Reason, s.Available), s.stays())
}

// markFoo waits until the marker is ready: its Deployment was made after all others.
func markFoo(r *run, name, what string) {
	r.t.Helper()
	_, err := shared.foos.SamplecontrollerV1alpha1().Foos(r.namespace).Create(r.t.Context(), &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       v1alpha1.FooSpec{DeploymentName: name, Replicas: ptr.To[int32](0)},
	}, metav1.CreateOptions{})
	r.must(err)
	r.await(what, func() error {
		marker, deployment := present(r.history.foos)[name], present(r.history.deployments)[name]
		if marker == nil || deployment == nil || !rolledOut(deployment) || stateOfFoo(marker).Ready != metav1.ConditionTrue {
			return errors.New("the marker is not ready")
		}
		return nil
	})
}

// justified reports whether the Foo, as the controller last read it live, had left
// the Deployment. A user who changes the Foo just then cannot be foreseen, and what
// another sync reads of it meanwhile is not known to this one: where times are taken
// down, any read that was answered shortly before may be the deletion's own.
func justified(deletion *request, owner *metav1.OwnerReference, before []request) bool {
	timed := !deletion.begun.IsZero()
	for _, r := range slices.Backward(before) {
		if timed && (r.ended.IsZero() || r.ended.After(deletion.begun)) {
			continue
		}
		if r.verb != http.MethodGet || r.resource != foos || r.name != owner.Name {
			continue
		}
		if r.read != nil && r.read.UID == owner.UID && r.read.DeletionTimestamp == nil && r.read.Spec.DeploymentName != deletion.name {
			return true
		}
		if !timed || deletion.begun.Sub(r.ended) > ownRead {
			return false
		}
	}
	return false
}

// ownRead is how long before a deletion its own read was answered at most, on a busy
// machine.
const ownRead = 2 * time.Second

// conforms reports whether the Deployment is as the Foo's spec asks for.
func conforms(deployment *appsv1.Deployment, foo *v1alpha1.Foo) bool {
	if ptr.Deref(deployment.Spec.Replicas, 1) != ptr.Deref(foo.Spec.Replicas, 1) {
		return false
	}
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if container.Name == "nginx" {
			return foo.Spec.Image == "" || container.Image == foo.Spec.Image
		}
	}
	return false
}
