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
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// Collect is one step of the garbage collector about one object: it deletes the object if all its owners are gone,
// otherwise it removes the references to those that are. It ends the deletion of a terminating one.
func (s *Store) Collect(resource, name string) {
	o := s.of(resource)
	object := o.present[name]
	if object == nil {
		return
	}
	owners := object.GetOwnerReferences()
	left := slices.DeleteFunc(slices.Clone(owners), func(ref metav1.OwnerReference) bool { return !s.exists(ref) })
	switch {
	case object.GetDeletionTimestamp() != nil:
		s.finish(o, object)
	case len(left) == len(owners):
	case len(left) > 0:
		after := copyOf(object)
		after.SetOwnerReferences(left)
		noteManager(object, after, false)
		s.replace(o, after)
	default:
		s.mustRemove(o, object)
	}
}

// exists reports whether there is an object of that name and UID.
func (s *Store) exists(ref metav1.OwnerReference) bool {
	return slices.ContainsFunc(s.tables, func(o *objects) bool {
		owner := o.present[ref.Name]
		return owner != nil && owner.GetUID() == ref.UID
	})
}

// finish orphans or deletes the dependents of an object that is being deleted, as its finalizers ask for, and then
// removes the finalizers.
func (s *Store) finish(o *objects, owner Object) {
	blocked := false
	for _, dependents := range s.tables {
		for _, name := range dependents.names() {
			blocked = s.finishDependent(owner, dependents, dependents.present[name]) || blocked
		}
	}
	if owner = o.present[owner.GetName()]; owner != nil && !blocked {
		after := copyOf(owner)
		after.SetFinalizers(slices.DeleteFunc(after.GetFinalizers(), isPropagation))
		s.replace(o, after)
	}
}

// isPropagation reports whether the finalizer is for the garbage collector.
func isPropagation(finalizer string) bool {
	return finalizer == metav1.FinalizerDeleteDependents || finalizer == metav1.FinalizerOrphanDependents
}

// finishDependent reports whether the owner has to wait for the dependent.
func (s *Store) finishDependent(owner Object, o *objects, dependent Object) (blocks bool) {
	owners := dependent.GetOwnerReferences()
	index := slices.IndexFunc(owners, func(ref metav1.OwnerReference) bool { return ref.UID == owner.GetUID() })
	switch {
	case index < 0:
	case slices.Contains(owner.GetFinalizers(), metav1.FinalizerOrphanDependents):
		after := copyOf(dependent)
		after.SetOwnerReferences(slices.Delete(slices.Clone(owners), index, index+1))
		noteManager(dependent, after, false)
		s.replace(o, after)
	case slices.Contains(owner.GetFinalizers(), metav1.FinalizerDeleteDependents) && ptr.Deref(owners[index].BlockOwnerDeletion, false):
		if dependent.GetDeletionTimestamp() == nil {
			s.mustRemove(o, dependent)
		}
		return o.present[dependent.GetName()] != nil
	}
	return false
}

// mustRemove deletes an object for the garbage collector.
func (s *Store) mustRemove(o *objects, object Object) {
	s.must(s.remove(o, object.GetName(), metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
		Preconditions:     &metav1.Preconditions{UID: ptr.To(object.GetUID())},
	}))
}

// RivalReplicas is what a rival wants.
const RivalReplicas = 3

// rollOutOne is one step of a rollout: the Deployment controller first writes the observedGeneration, and in the next
// step the replicas. A rival that is at work comes before it.
func (s *Store) rollOutOne(deployment *appsv1.Deployment) {
	if deployment.DeletionTimestamp != nil {
		return
	}
	after := copyOf(deployment)
	switch {
	case s.Rivals > 0 && *deployment.Spec.Replicas != RivalReplicas:
		if s.Rivals--; s.Rivals%2 == 1 {
			s.mustRemove(s.of(Deployments), deployment)
			return
		}
		after.Spec.Replicas = ptr.To[int32](RivalReplicas)
		noteManager(deployment, after, false)
	case deployment.Status.ObservedGeneration < deployment.Generation:
		after.Status.ObservedGeneration = deployment.Generation
		if imagesOf(deployment) != s.podImages[deployment.UID] {
			after.Status.UpdatedReplicas = 0
		}
	default:
		after.Status = s.rolledOut(deployment)
		after.Status.ObservedGeneration = deployment.Generation
	}
	s.replace(s.of(Deployments), after)
}

// rolledOut returns the status of a rollout that cannot proceed any further. While it is
// paused the Deployment controller scales old Pods and does not replace them. Pods of the
// StalledImage never become available: a rolling update keeps the old Pods then, the strategy
// Recreate has deleted them before.
func (s *Store) rolledOut(deployment *appsv1.Deployment) appsv1.DeploymentStatus {
	images, replicas := imagesOf(deployment), ptr.Deref(deployment.Spec.Replicas, 1)
	old, running := s.podImages[deployment.UID]
	switch {
	case deployment.Spec.Paused && !running:
		return appsv1.DeploymentStatus{}
	case deployment.Spec.Paused && old != images:
		return statusOf(replicas, 0, availableOf(old, replicas))
	case running && old != images && availableOf(images, replicas) < replicas && deployment.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType:
		return stalled(statusOf(replicas+1, 1, availableOf(old, replicas)))
	}
	s.podImages[deployment.UID] = images
	if available := availableOf(images, replicas); available < replicas {
		return stalled(statusOf(replicas, replicas, available))
	}
	return statusOf(replicas, replicas, replicas)
}

// availableOf returns how many of the Pods with those images become available.
func availableOf(images string, replicas int32) int32 {
	if strings.Contains(images, StalledImage) {
		return 0
	}
	return replicas
}

func statusOf(replicas, updated, available int32) appsv1.DeploymentStatus {
	return appsv1.DeploymentStatus{Replicas: replicas, UpdatedReplicas: updated, ReadyReplicas: available, AvailableReplicas: available}
}

// stalled adds the condition of a rollout that has exceeded its progress deadline.
func stalled(status appsv1.DeploymentStatus) appsv1.DeploymentStatus {
	status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionFalse, Reason: "ProgressDeadlineExceeded", Message: "no progress"}}
	return status
}

// fieldManager is the field manager of the controller's writes, and the value of its label.
const fieldManager = "sample-controller"

// imagesOf returns the images of the Pod template.
func imagesOf(deployment *appsv1.Deployment) string {
	var images []string
	for _, container := range deployment.Spec.Template.Spec.Containers {
		images = append(images, container.Name+"="+container.Image)
	}
	return strings.Join(images, ",")
}
