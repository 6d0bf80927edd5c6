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
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

func fooSuite() *kindSuite {
	return &kindSuite{
		controller: "foo",
		every:      5, everyWatch: 10,
		owner:                  "Foo",
		dependent:              "Deployment",
		roles:                  map[string]role{foos: owners, deployments: dependents},
		scenarios:              fooScenarios,
		state:                  (*history).fooState,
		ownerNames:             func(h *history) []string { return existingNames(h.foos) },
		countDependentVersions: func(h *history) int { return countVersions(h.deployments) },
		violations:             (*history).fooViolations,
		awaitMarker:            markFoo,
	}
}

// fooOwnerKind describes Foos to the checker.
func fooOwnerKind() ownerKind[*v1alpha1.Foo] {
	return ownerKind[*v1alpha1.Foo]{
		kind: "Foo", group: "samplecontroller.k8s.io", resource: foos,
		deploymentName: func(foo *v1alpha1.Foo) string { return foo.Spec.DeploymentName },
		conforms:       fooConforms,
		status: func(foo *v1alpha1.Foo) (int64, []metav1.Condition) {
			return foo.Status.ObservedGeneration, foo.Status.Conditions
		},
		deletionJustified: fooDeletionJustified,
	}
}

// fooViolations returns the violations of S1 to S4, given the requests of each
// controller. The caller holds the lock.
func (h *history) fooViolations(records ...[]request) []string {
	return deploymentViolations(h, h.foos, fooOwnerKind(), records...)
}

// fooControllerOf returns the owner reference to the Foo that controls the Deployment, or
// nil.
func fooControllerOf(deployment *appsv1.Deployment) *metav1.OwnerReference {
	return fooOwnerKind().controllerOf(deployment)
}

func isFooReady(foo *v1alpha1.Foo) bool {
	return fooOwnerKind().isReady(foo)
}

type fooState struct {
	ownerState

	Spec      v1alpha1.FooSpec
	Available int32
	Replicas  int32
	Selector  string
}

func (h *history) fooState() state {
	return state{
		Owners:     statesOf(h.foos, func(foo *v1alpha1.Foo) objectState { return newFooState(foo) }),
		Dependents: deploymentStates(h, h.foos),
	}
}

func newFooState(foo *v1alpha1.Foo) fooState {
	return fooState{
		ownerState: newOwnerState(foo, foo.Status.ObservedGeneration, foo.Status.Conditions),
		Spec:       foo.Spec,
		Available:  foo.Status.AvailableReplicas,
		Replicas:   foo.Status.Replicas,
		Selector:   foo.Status.Selector,
	}
}

func (s fooState) summary(name string) string {
	return markUnsettled(fmt.Sprintf("Foo %s asks for %s: %s %d", name, s.Spec.DeploymentName, s.Reason, s.Available), s.settled())
}

// markFoo creates a marker Foo and waits until it is ready. Its Deployment is newer than
// all others.
func markFoo(r *run, name, what string) {
	r.t.Helper()
	_, err := cluster.foos.SamplecontrollerV1alpha1().Foos(r.namespace).Create(r.t.Context(), markerFoo(name), metav1.CreateOptions{})
	r.must(err)
	r.await(what, func() error {
		marker, deployment := existing(r.history.foos)[name], existing(r.history.deployments)[name]
		if marker == nil || deployment == nil || !rolledOut(deployment) || newFooState(marker).Ready != metav1.ConditionTrue {
			return errors.New("the marker is not ready")
		}
		return nil
	})
}

// fooDeletionJustified reports whether a live read of the Foo showed that it no longer asks
// for the Deployment. No controller can foresee that a user changes the Foo between that
// read and the deletion.
func fooDeletionJustified(deletion *request, owner *metav1.OwnerReference, before []request) bool {
	return slices.ContainsFunc(liveReads(deletion, before), func(r *request) bool {
		return r.readFoo != nil && r.readFoo.UID == owner.UID && r.readFoo.DeletionTimestamp == nil && r.readFoo.Spec.DeploymentName != deletion.name
	})
}

// maxReadAge bounds the time between the live read and the deletion of one sync on a busy
// machine.
const maxReadAge = 2 * time.Second

// fooConforms reports whether the Deployment has the replicas and the image of the Foo's
// spec, as admission settles them.
func fooConforms(deployment *appsv1.Deployment, foo *v1alpha1.Foo) bool {
	replicas, image := ptr.Deref(foo.Spec.Replicas, 1), foo.Spec.Image
	if strings.HasPrefix(deployment.Name, admittedPrefix) {
		replicas = max(replicas, admittedReplicas)
		if image != "" {
			image = admittedRegistry + image
		}
	}
	container := findContainer(deployment, "nginx")
	return ptr.Deref(deployment.Spec.Replicas, 1) == replicas && container != nil && (image == "" || container.Image == image)
}
