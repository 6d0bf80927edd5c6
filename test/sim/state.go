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

package sim

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/stored"
)

// State is the state of the namespace: all Foos and Deployments by name.
type State struct {
	Foos        map[string]*v1alpha1.Foo
	Deployments map[string]*appsv1.Deployment
}

// Violations returns what violates the contract once nothing changes any more. If two
// Foos ask for the same Deployment, either may own it: that depends on the order of events.
func (s State) Violations() []string {
	var violations []string
	report := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	for _, foo := range s.Foos {
		s.checkFoo(foo, func(format string, args ...any) {
			report("Foo "+foo.Name+" "+format, args...)
		})
	}
	for _, deployment := range s.Deployments {
		s.checkDeployment(deployment, func(format string, args ...any) {
			report("Deployment "+deployment.Name+" "+format, args...)
		})
	}
	slices.Sort(violations)
	return violations
}

// checkFoo checks the status of one Foo against the Deployment that it asks for.
func (s State) checkFoo(foo *v1alpha1.Foo, report func(string, ...any)) {
	if foo.DeletionTimestamp != nil {
		report("is still being deleted")
		return
	}
	ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady)
	if ready == nil {
		report("has no Ready condition")
		return
	}
	if foo.Status.ObservedGeneration != foo.Generation || ready.ObservedGeneration != foo.Generation {
		report("has generation %d, but its status has observed %d and its condition %d", foo.Generation, foo.Status.ObservedGeneration, ready.ObservedGeneration)
	}
	if foo.Spec.DeploymentName == "" {
		expect(ready, v1alpha1.ReasonInvalidSpec, "", report)
		return
	}
	deployment := s.Deployments[foo.Spec.DeploymentName]
	switch {
	case deployment == nil:
		report("asks for %s, which does not exist", foo.Spec.DeploymentName)
	case !metav1.IsControlledBy(deployment, foo):
		s.checkBlocked(foo, ready, deployment, report)
	default:
		s.checkOwned(foo, ready, deployment, report)
	}
}

// checkBlocked checks rules 5, 9 and 10: also that an adoption that was asked for came.
func (s State) checkBlocked(foo *v1alpha1.Foo, ready *metav1.Condition, deployment *appsv1.Deployment, report func(string, ...any)) {
	expect(ready, v1alpha1.ReasonDeploymentNotOwned, strconv.Quote(deployment.Name), report)
	if owner := s.currentOwner(foo); owner != nil {
		expect(ready, v1alpha1.ReasonDeploymentNotOwned, strconv.Quote(owner.Name), report)
	}
	if metav1.GetControllerOfNoCopy(deployment) == nil && deployment.Annotations[v1alpha1.AdoptByAnnotation] == foo.Name {
		report("asks for %s, which asks to be adopted by it", deployment.Name)
	}
	if status := &foo.Status; status.AvailableReplicas != 0 || status.Replicas != 0 || status.Selector != "" {
		report("owns no Deployment, but its status says %d available of %d, selector %q", status.AvailableReplicas, status.Replicas, status.Selector)
	}
	// +drop:rename
	seen := map[string]bool{}
	// Rule 8: a copy that a user made ends the cycle, since its owner does not delete it.
	for at, owner := foo, s.currentOwner(foo); owner != nil && !seen[owner.Name] && WrittenByController(s.Deployments[at.Spec.DeploymentName]); at, owner = owner, s.currentOwner(owner) {
		if owner.UID == foo.UID {
			report("still waits for a name in a cycle of renames")
			return
		}
		seen[owner.Name] = true
	}
	// +drop:end
}

// checkOwned checks rule 4, and that the status tells of the rollout.
func (s State) checkOwned(foo *v1alpha1.Foo, ready *metav1.Condition, deployment *appsv1.Deployment, report func(string, ...any)) {
	if got, want := ptr.Deref(deployment.Spec.Replicas, 1), ptr.Deref(foo.Spec.Replicas, 1); got != want {
		report("asks for %d replicas, its Deployment has %d", want, got)
	}
	switch got := ImageOf(deployment); {
	case foo.Spec.Image == "" || got == foo.Spec.Image:
	case got == "":
		expect(ready, v1alpha1.ReasonInvalidSpec, strconv.Quote(stored.Container), report)
		return
	case got != stored.Mirror+foo.Spec.Image:
		report("asks for image %s, its Deployment has %s", foo.Spec.Image, got)
	case !strings.Contains(ready.Message, got):
		report("says %q, which does not name the image %s that a policy gave its Deployment", ready.Message, got)
	}
	if got := deployment.Labels[stored.ManagedBy]; got != fieldManager {
		report("has a Deployment whose label is %q", got)
	}
	if ref := Owner(deployment); ref.Name != foo.Name || !ptr.Deref(ref.BlockOwnerDeletion, false) {
		report("has a Deployment with the owner reference %+v", ref)
	}
	// A Deployment that was adopted keeps owners that are not its controller.
	for i, ref := range deployment.OwnerReferences {
		if slices.ContainsFunc(deployment.OwnerReferences[:i], func(other metav1.OwnerReference) bool { return other.UID == ref.UID }) {
			report("has a Deployment with two references to the owner %s", ref.Name)
		}
	}
	status, selector := &foo.Status, metav1.FormatLabelSelector(deployment.Spec.Selector)
	if status.AvailableReplicas != deployment.Status.AvailableReplicas || status.Replicas != deployment.Status.Replicas || status.Selector != selector {
		report("has a status that says %d available of %d, selector %q; its Deployment says %d of %d, %q", status.AvailableReplicas, status.Replicas, status.Selector,
			deployment.Status.AvailableReplicas, deployment.Status.Replicas, selector)
	}
	switch {
	case deployment.DeletionTimestamp != nil:
		expect(ready, v1alpha1.ReasonDeploymentStalled, HoldFinalizer, report)
	case RolledOut(deployment):
		expect(ready, v1alpha1.ReasonDeploymentAvailable, "", report)
	case deployment.Spec.Paused:
		expect(ready, v1alpha1.ReasonDeploymentPaused, "", report)
	case len(deployment.Status.Conditions) > 0:
		expect(ready, v1alpha1.ReasonDeploymentStalled, "", report)
	default:
		report("has a Deployment whose rollout has not ended")
	}
}

// checkDeployment checks that no Deployment is left over.
func (s State) checkDeployment(deployment *appsv1.Deployment, report func(string, ...any)) {
	if deployment.DeletionTimestamp != nil && !slices.Contains(deployment.Finalizers, HoldFinalizer) {
		report("is still being deleted")
	}
	for _, ref := range deployment.OwnerReferences {
		if foo := s.Foos[ref.Name]; foo == nil || foo.UID != ref.UID {
			report("belongs to %s %s, which is gone", ref.Kind, ref.Name)
			return
		}
	}
	// +drop:rename
	owner := Owner(deployment)
	if owner == nil {
		return
	}
	foo := s.Foos[owner.Name]
	wanted := foo.Spec.DeploymentName
	if wanted == deployment.Name || wanted == "" {
		return
	}
	if ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady); ready != nil && !strings.Contains(ready.Message, strconv.Quote(deployment.Name)) {
		report("is not named by its Foo %s, which says %q", foo.Name, ready.Message)
	}
	// A blocked Foo, and one whose new Deployment is not complete, keep their old Deployments.
	// A Deployment that the controller has never written is a user's copy.
	if present := s.Deployments[wanted]; WrittenByController(deployment) && (present == nil || metav1.IsControlledBy(present, foo) && RolledOut(present)) {
		report("is left over: its Foo %s asks for %s", foo.Name, wanted)
	}
	// +drop:end
}

// currentOwner returns the Foo that owns the Deployment which foo asks for. It returns nil
// if that is foo itself, no Foo, or one that is being deleted.
func (s State) currentOwner(foo *v1alpha1.Foo) *v1alpha1.Foo {
	deployment := s.Deployments[foo.Spec.DeploymentName]
	if deployment == nil {
		return nil
	}
	ref := Owner(deployment)
	if ref == nil || ref.UID == foo.UID {
		return nil
	}
	owner := s.Foos[ref.Name]
	if owner == nil || owner.UID != ref.UID || owner.DeletionTimestamp != nil {
		return nil
	}
	return owner
}

func expect(ready *metav1.Condition, reason, word string, report func(string, ...any)) {
	status := metav1.ConditionFalse
	if reason == v1alpha1.ReasonDeploymentAvailable {
		status = metav1.ConditionTrue
	}
	if ready.Status != status || ready.Reason != reason || !strings.Contains(ready.Message, word) {
		report("says %s %s %q, must say %s %s %s", ready.Status, ready.Reason, ready.Message, status, reason, word)
	}
}

// Owner returns the reference to the Foo that controls the Deployment, nil if there is
// none.
func Owner(deployment *appsv1.Deployment) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(deployment)
	if ref == nil || ref.Kind != "Foo" || !strings.HasPrefix(ref.APIVersion, v1alpha1.GroupName+"/") {
		return nil
	}
	return ref
}

// Conforms reports whether replicas and image of the Deployment are those of the Foo's
// spec, or what a policy made of them.
func Conforms(deployment *appsv1.Deployment, spec *v1alpha1.FooSpec) bool {
	return ptr.Deref(deployment.Spec.Replicas, 1) == ptr.Deref(spec.Replicas, 1) && (spec.Image == "" || strings.TrimPrefix(ImageOf(deployment), stored.Mirror) == spec.Image)
}

// RolledOut reports whether the status of the Deployment says that the rollout of its
// present generation is complete.
func RolledOut(deployment *appsv1.Deployment) bool {
	desired, status := ptr.Deref(deployment.Spec.Replicas, 1), &deployment.Status
	return status.ObservedGeneration >= deployment.Generation && status.UpdatedReplicas >= desired &&
		status.Replicas <= status.UpdatedReplicas && status.AvailableReplicas >= desired
}

// ImageOf returns the image of the container that Foos are about, "" if there is none.
func ImageOf(deployment *appsv1.Deployment) string {
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if container.Name == stored.Container {
			return container.Image
		}
	}
	return ""
}
