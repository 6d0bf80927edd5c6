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

package deployment

import (
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	"example.com/sample-controller/pkg/client/trim"
	"example.com/sample-controller/pkg/controller"
)

// manyContainers is the number of different containers that are interned.
const manyContainers = 1000

// Interner holds one copy of what very many cached Deployments have in common. Create it
// with NewInterner.
type Interner struct {
	labels     map[string]string
	written    []metav1.ManagedFieldsEntry
	containers *lru.Cache
}

// NewInterner returns an Interner that holds nothing yet.
func NewInterner() *Interner {
	return &Interner{
		labels:     map[string]string{controller.ManagedByLabel: controller.ManagedByValue},
		written:    []metav1.ManagedFieldsEntry{{Manager: controller.FieldManager}},
		containers: lru.New(manyContainers),
	}
}

// Containers returns a list of one container with that name and image, and no other field.
func (i *Interner) Containers(name, image string) []corev1.Container {
	key := [2]string{name, image}
	if known, ok := i.containers.Get(key); ok {
		return known.([]corev1.Container)
	}
	containers := []corev1.Container{{Name: name, Image: image}}
	i.containers.Add(key, containers)
	return containers
}

// managedByLabel returns the one label that is compared, nil if it is missing. Its value is not compared.
func (i *Interner) managedByLabel(labels map[string]string) map[string]string {
	if _, ok := labels[controller.ManagedByLabel]; ok {
		return i.labels
	}
	return nil
}

// compactedManagers is the manager in whose name the API server compacts the oldest entries
// when there are more than ten (k8s.io/apimachinery/pkg/util/managedfields).
const compactedManagers = "ancient-changes"

// WrittenByUs reports whether this program is on record as a writer of the Deployment, or
// may have been one of those that the API server has compacted. A copy that a user has just
// made, owner reference included, has other writers.
func WrittenByUs(deployment *appsv1.Deployment) bool {
	return slices.ContainsFunc(deployment.ManagedFields, func(entry metav1.ManagedFieldsEntry) bool {
		return entry.Manager == controller.FieldManager || entry.Manager == compactedManagers
	})
}

// Trim returns what a controller reads of a cached Deployment that it owns: its identity,
// generation, creation time and managed-by label, what Rollout and WrittenByUs read, the ready
// replicas, and of its spec the replicas, the selector and the type of strategy. template is
// what the controller compares of the Pod template. What Trim drops is never written back: a repair
// is a patch of the fields that have drifted, and carries the resourceVersion.
func (i *Interner) Trim(deployment *appsv1.Deployment, template corev1.PodTemplateSpec) *appsv1.Deployment {
	trimmed := &appsv1.Deployment{
		Spec: appsv1.DeploymentSpec{
			Replicas: deployment.Spec.Replicas, Selector: TrimSelector(deployment.Spec.Selector), Paused: deployment.Spec.Paused, Template: template,
			Strategy: appsv1.DeploymentStrategy{Type: appsv1.DeploymentStrategyType(trim.Intern(string(deployment.Spec.Strategy.Type)))},
		},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: deployment.Status.ObservedGeneration,
			Replicas:           deployment.Status.Replicas,
			UpdatedReplicas:    deployment.Status.UpdatedReplicas,
			ReadyReplicas:      deployment.Status.ReadyReplicas,
			AvailableReplicas:  deployment.Status.AvailableReplicas,
		},
	}
	trim.SetIdentity(trimmed, deployment)
	trimmed.Labels = i.managedByLabel(deployment.Labels)
	trimmed.CreationTimestamp = deployment.CreationTimestamp
	if WrittenByUs(deployment) {
		trimmed.ManagedFields = i.written
	}
	if deployment.DeletionTimestamp != nil {
		trimmed.Finalizers, trimmed.Spec.ProgressDeadlineSeconds = trimFinalizers(deployment.Finalizers), deployment.Spec.ProgressDeadlineSeconds
	}
	if stalled := stalledCondition(deployment.Status.Conditions); stalled != nil {
		trimmed.Status.Conditions = []appsv1.DeploymentCondition{{
			Type: stalled.Type, Status: stalled.Status, Reason: stalled.Reason, Message: trim.BoundedMessage(stalled.Message),
		}}
	}
	controller.MarkLarge(trimmed, &deployment.Spec)
	return trimmed
}

// TrimSelector returns the selector, nil if it is too long for FormatSelector.
func TrimSelector(selector *metav1.LabelSelector) *metav1.LabelSelector {
	if selector.Size() > maxSelector {
		return nil
	}
	return selector
}
