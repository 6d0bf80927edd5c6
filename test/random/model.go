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

package random

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
)

// World is what there is: all Foos and Deployments by name.
type World struct {
	Foos        map[string]*v1alpha1.Foo
	Deployments map[string]*appsv1.Deployment
}

// Faults returns what the contract forbids of a world in which everything has
// come to rest. It does not say who of two that ask for one name gets it, since
// that depends on who was first: either is right.
func (w World) Faults() []string {
	var faults []string
	report := func(format string, args ...any) { faults = append(faults, fmt.Sprintf(format, args...)) }
	for _, foo := range w.Foos {
		w.checkFoo(foo, func(format string, args ...any) {
			report("Foo "+foo.Name+" "+format, args...)
		})
	}
	for _, deployment := range w.Deployments {
		w.checkDeployment(deployment, func(format string, args ...any) {
			report("Deployment "+deployment.Name+" "+format, args...)
		})
	}
	slices.Sort(faults)
	return faults
}

// checkFoo checks one Foo: whose the name is that it asks for, and what its status
// says of that.
func (w World) checkFoo(foo *v1alpha1.Foo, report func(string, ...any)) {
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
		report("has generation %d, but its status is of %d and the condition of %d", foo.Generation, foo.Status.ObservedGeneration, ready.ObservedGeneration)
	}
	if foo.Spec.DeploymentName == "" {
		expect(ready, v1alpha1.ReasonInvalidSpec, "", report)
		return
	}
	deployment := w.Deployments[foo.Spec.DeploymentName]
	switch {
	case deployment == nil:
		report("asks for %s, which does not exist", foo.Spec.DeploymentName)
	case Owner(deployment) == nil || Owner(deployment).UID != foo.UID:
		w.checkBlocked(foo, ready, deployment, report)
	default:
		w.checkOwned(foo, ready, deployment, report)
	}
}

// checkBlocked is rules 5, 8, 9 and 10.
func (w World) checkBlocked(foo *v1alpha1.Foo, ready *metav1.Condition, deployment *appsv1.Deployment, report func(string, ...any)) {
	expect(ready, v1alpha1.ReasonDeploymentNotOwned, strconv.Quote(deployment.Name), report)
	if holder := w.holder(foo); holder != nil {
		expect(ready, v1alpha1.ReasonDeploymentNotOwned, strconv.Quote(holder.Name), report)
	}
	if s := &foo.Status; s.AvailableReplicas != 0 || s.Replicas != 0 || s.Selector != "" {
		report("has no Deployment of its own, but its status says %d available of %d, selector %q", s.AvailableReplicas, s.Replicas, s.Selector)
	}
	seen := map[string]bool{}
	for holder := w.holder(foo); holder != nil && !seen[holder.Name]; holder = w.holder(holder) {
		if holder.UID == foo.UID {
			report("waits for a name in a circle that nobody has resolved")
			return
		}
		seen[holder.Name] = true
	}
}

// checkOwned is rule 4 and what the status says of the rollout.
func (w World) checkOwned(foo *v1alpha1.Foo, ready *metav1.Condition, deployment *appsv1.Deployment, report func(string, ...any)) {
	if got, want := ptr.Deref(deployment.Spec.Replicas, 1), ptr.Deref(foo.Spec.Replicas, 1); got != want {
		report("asks for %d replicas, its Deployment has %d", want, got)
	}
	if got := imageOf(deployment); foo.Spec.Image != "" && got != foo.Spec.Image {
		report("asks for image %s, its Deployment has %s", foo.Spec.Image, got)
	}
	if got := deployment.Labels["app.kubernetes.io/managed-by"]; got != "sample-controller" {
		report("has a Deployment whose label is %q", got)
	}
	if ref := Owner(deployment); ref.Name != foo.Name || !ptr.Deref(ref.BlockOwnerDeletion, false) {
		report("has a Deployment with the owner reference %+v", ref)
	}
	if len(deployment.OwnerReferences) != 1 {
		report("has a Deployment with %d owners", len(deployment.OwnerReferences))
	}
	status, selector := &foo.Status, metav1.FormatLabelSelector(deployment.Spec.Selector)
	if status.AvailableReplicas != deployment.Status.AvailableReplicas || status.Replicas != deployment.Status.Replicas || status.Selector != selector {
		report("has a status that says %d available of %d, selector %q; its Deployment says %d of %d, %q", status.AvailableReplicas, status.Replicas, status.Selector,
			deployment.Status.AvailableReplicas, deployment.Status.Replicas, selector)
	}
	switch {
	case RolledOut(deployment):
		expect(ready, v1alpha1.ReasonDeploymentAvailable, "", report)
	case deployment.Spec.Paused:
		expect(ready, v1alpha1.ReasonDeploymentPaused, "", report)
	default:
		report("has a Deployment whose rollout has not come to an end")
	}
}

// checkDeployment is S2: nothing is left behind.
func (w World) checkDeployment(deployment *appsv1.Deployment, report func(string, ...any)) {
	if deployment.DeletionTimestamp != nil {
		report("is still being deleted")
	}
	for _, ref := range deployment.OwnerReferences {
		if foo := w.Foos[ref.Name]; foo == nil || foo.UID != ref.UID {
			report("belongs to %s %s, which is gone", ref.Kind, ref.Name)
			return
		}
	}
	owner := Owner(deployment)
	if owner == nil {
		return
	}
	foo := w.Foos[owner.Name]
	wanted := foo.Spec.DeploymentName
	if wanted == deployment.Name || wanted == "" {
		return
	}
	// A Foo that is blocked keeps its former one.
	if standing := w.Deployments[wanted]; standing == nil || Owner(standing) != nil && Owner(standing).UID == foo.UID {
		report("is left over: its Foo %s asks for %s", foo.Name, wanted)
	}
}

// holder returns the live Foo that controls the Deployment which foo asks for, if
// that is another one or if foo is the end of a circle.
func (w World) holder(foo *v1alpha1.Foo) *v1alpha1.Foo {
	deployment := w.Deployments[foo.Spec.DeploymentName]
	if deployment == nil {
		return nil
	}
	ref := Owner(deployment)
	if ref == nil || ref.UID == foo.UID {
		return nil
	}
	holder := w.Foos[ref.Name]
	if holder == nil || holder.UID != ref.UID || holder.DeletionTimestamp != nil {
		return nil
	}
	return holder
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

// Owner returns the reference to the Foo that controls the Deployment, or nil.
func Owner(deployment *appsv1.Deployment) *metav1.OwnerReference {
	for i := range deployment.OwnerReferences {
		ref := &deployment.OwnerReferences[i]
		if ptr.Deref(ref.Controller, false) {
			if ref.Kind == "Foo" && strings.HasPrefix(ref.APIVersion, v1alpha1.GroupName+"/") {
				return ref
			}
			return nil
		}
	}
	return nil
}

// Conforms reports whether the Deployment is as the Foo's spec asks for.
func Conforms(deployment *appsv1.Deployment, spec *v1alpha1.FooSpec) bool {
	return ptr.Deref(deployment.Spec.Replicas, 1) == ptr.Deref(spec.Replicas, 1) && (spec.Image == "" || imageOf(deployment) == spec.Image)
}

// RolledOut reports whether the Deployment controller says so of this very spec.
func RolledOut(deployment *appsv1.Deployment) bool {
	desired, status := ptr.Deref(deployment.Spec.Replicas, 1), &deployment.Status
	return status.ObservedGeneration >= deployment.Generation && status.UpdatedReplicas >= desired &&
		status.Replicas <= status.UpdatedReplicas && status.AvailableReplicas >= desired
}

func imageOf(deployment *appsv1.Deployment) string {
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if container.Name == "nginx" {
			return container.Image
		}
	}
	return ""
}

// Outcome says in words who has what. Worlds with the same outcome differ in
// nothing that a user can see but UIDs and times. contested says that some Foo
// waits for a name that another one has, so that another order of events could
// have led elsewhere.
func (w World) Outcome() (outcome string, contested bool) {
	var lines []string
	for _, foo := range w.Foos {
		reason := ""
		if ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady); ready != nil {
			reason = ready.Reason + ": " + ready.Message
		}
		contested = contested || w.holder(foo) != nil
		lines = append(lines, fmt.Sprintf("Foo %s asks for %q: %s (%d of %d, %d conditions)", foo.Name, foo.Spec.DeploymentName, reason,
			foo.Status.AvailableReplicas, foo.Status.Replicas, len(foo.Status.Conditions)))
	}
	for _, deployment := range w.Deployments {
		owner := "nobody"
		if ref := Owner(deployment); ref != nil {
			owner = ref.Name
		}
		lines = append(lines, fmt.Sprintf("Deployment %s of %s: %d of %s, labels %v, annotations %v, %d containers, paused: %t", deployment.Name, owner,
			ptr.Deref(deployment.Spec.Replicas, 1), imageOf(deployment), deployment.Labels, deployment.Annotations,
			len(deployment.Spec.Template.Spec.Containers), deployment.Spec.Paused))
	}
	slices.Sort(lines)
	return strings.Join(lines, "\n"), contested
}
