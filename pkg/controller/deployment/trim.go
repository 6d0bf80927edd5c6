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
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	"example.com/sample-controller/pkg/controller"
)

// manyContainers is the number of different containers that are interned.
const manyContainers = 1000

// Interner holds one copy of what very many cached Deployments have in common. Create it
// with NewInterner.
type Interner struct {
	labels     map[string]string
	containers *lru.Cache
}

// NewInterner returns an Interner that holds nothing yet.
func NewInterner() *Interner {
	return &Interner{
		labels:     map[string]string{controller.ManagedByLabel: controller.ManagedByValue},
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

// managedByLabel returns the one label that is compared, nil if it is missing.
func (i *Interner) managedByLabel(labels map[string]string) map[string]string {
	switch value, ok := labels[controller.ManagedByLabel]; {
	case !ok:
		return nil
	case value == controller.ManagedByValue:
		return i.labels
	default:
		return map[string]string{controller.ManagedByLabel: value}
	}
}

// Trim returns what a controller reads of a cached Deployment that it owns: its metadata,
// its status, and of its spec the replicas, selector and paused. template is what the
// controller compares of the Pod template. What Trim drops is never written back: a repair
// is a patch of the fields that have drifted, and carries the resourceVersion.
func (i *Interner) Trim(deployment *appsv1.Deployment, template corev1.PodTemplateSpec) *appsv1.Deployment {
	for j := range deployment.OwnerReferences {
		owner := &deployment.OwnerReferences[j]
		owner.APIVersion, owner.Kind = controller.Intern(owner.APIVersion), controller.Intern(owner.Kind)
	}
	trimmed := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: deployment.Name, Namespace: controller.Intern(deployment.Namespace), UID: deployment.UID,
			ResourceVersion: deployment.ResourceVersion, Generation: deployment.Generation,
			DeletionTimestamp: deployment.DeletionTimestamp, OwnerReferences: deployment.OwnerReferences,
			Labels: i.managedByLabel(deployment.Labels),
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: deployment.Spec.Replicas, Selector: deployment.Spec.Selector, Paused: deployment.Spec.Paused, Template: template,
		},
		Status: appsv1.DeploymentStatus{
			ObservedGeneration: deployment.Status.ObservedGeneration,
			Replicas:           deployment.Status.Replicas,
			UpdatedReplicas:    deployment.Status.UpdatedReplicas,
			ReadyReplicas:      deployment.Status.ReadyReplicas,
			AvailableReplicas:  deployment.Status.AvailableReplicas,
		},
	}
	for j := range deployment.Status.Conditions {
		if condition := &deployment.Status.Conditions[j]; isStalled(condition) {
			trimmed.Status.Conditions = append(trimmed.Status.Conditions, *condition)
		}
	}
	return trimmed
}
