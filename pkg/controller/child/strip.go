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

package child

import (
	"unique"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/lru"

	"example.com/sample-controller/pkg/controller"
)

// What the cache keeps of Deployments. A cluster may have very many, most of which are
// none of ours. Whatever is read of a cached Deployment must be kept here; what a
// transform drops is never sent back, since a repair is a patch of what has drifted and
// insists on the resourceVersion.

// manyContainers is how many different containers are held once.
const manyContainers = 1000

// Shared holds once what very many cached Deployments have in common. Use NewShared.
type Shared struct {
	labels     map[string]string
	containers *lru.Cache
}

// NewShared returns what is shared before there is any Deployment.
func NewShared() *Shared {
	return &Shared{
		labels:     map[string]string{controller.ManagedByLabel: controller.ManagedByValue},
		containers: lru.New(manyContainers),
	}
}

// Container returns a container of that name and image, which is nothing else.
func (s *Shared) Container(name, image string) []corev1.Container {
	key := [2]string{name, image}
	if known, ok := s.containers.Get(key); ok {
		return known.([]corev1.Container)
	}
	containers := []corev1.Container{{Name: name, Image: image}}
	s.containers.Add(key, containers)
	return containers
}

// ourLabels returns the one label that is read.
func (s *Shared) ourLabels(labels map[string]string) map[string]string {
	switch value, ok := labels[controller.ManagedByLabel]; {
	case !ok:
		return nil
	case value == controller.ManagedByValue:
		return s.labels
	default:
		return map[string]string{controller.ManagedByLabel: value}
	}
}

// Once returns the string, which is held once however many objects have it.
func Once(s string) string {
	return unique.Make(s).Value()
}

// Stub returns what is read of a Deployment whosoever it is: who it is, whose it is and
// whether it is about to go. It shares that with the given one, whose owners it may
// replace by equal ones.
func Stub(deployment *appsv1.Deployment) *appsv1.Deployment {
	for i := range deployment.OwnerReferences {
		owner := &deployment.OwnerReferences[i]
		owner.APIVersion, owner.Kind = Once(owner.APIVersion), Once(owner.Kind)
	}
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name: deployment.Name, Namespace: Once(deployment.Namespace), UID: deployment.UID, ResourceVersion: deployment.ResourceVersion,
		DeletionTimestamp: deployment.DeletionTimestamp, OwnerReferences: deployment.OwnerReferences,
	}}
}

// Extract returns what is read of a Deployment that a parent controls. template is what
// the parent's kind compares of the Pod template.
func (s *Shared) Extract(deployment *appsv1.Deployment, template corev1.PodTemplateSpec) *appsv1.Deployment {
	kept := Stub(deployment)
	kept.Generation, kept.Labels = deployment.Generation, s.ourLabels(deployment.Labels)
	kept.Spec = appsv1.DeploymentSpec{
		Replicas: deployment.Spec.Replicas, Selector: deployment.Spec.Selector, Paused: deployment.Spec.Paused, Template: template,
	}
	status := &deployment.Status
	kept.Status = appsv1.DeploymentStatus{
		ObservedGeneration: status.ObservedGeneration,
		Replicas:           status.Replicas,
		UpdatedReplicas:    status.UpdatedReplicas,
		ReadyReplicas:      status.ReadyReplicas,
		AvailableReplicas:  status.AvailableReplicas,
	}
	for i := range status.Conditions {
		if isStall(&status.Conditions[i]) {
			kept.Status.Conditions = append(kept.Status.Conditions, status.Conditions[i])
		}
	}
	return kept
}
