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

package memcached

import (
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
)

// TrimDeployment returns what is read of a Deployment that a Memcached controls, nil for
// any other Deployment. It keeps all ports: a patch repeats those of other writers.
func TrimDeployment(d *appsv1.Deployment, interner *deployment.Interner) *appsv1.Deployment {
	if controller.ControllerOf(d, memcachedGVK().GroupKind()) == nil {
		return nil
	}
	var template corev1.PodTemplateSpec
	template.Labels = d.Spec.Template.Labels
	template.Spec.SecurityContext = d.Spec.Template.Spec.SecurityContext
	if container := deployment.Container(d, containerName); container != nil {
		template.Spec.Containers = []corev1.Container{{
			Name: container.Name, Image: container.Image, Command: container.Command, Args: container.Args, Ports: container.Ports, SecurityContext: container.SecurityContext,
		}}
	}
	return interner.Trim(d, template)
}

// NodeSelector selects the Pods and ReplicaSets of all Memcacheds.
const NodeSelector = nameLabel

// TrimNode returns what is read of a Pod or ReplicaSet: its identity, its controller and
// whether it lives. A cluster may have very many.
func TrimNode(object any) any {
	switch object := object.(type) {
	case *corev1.Pod:
		return &corev1.Pod{ObjectMeta: trimObjectMeta(&object.ObjectMeta), Status: corev1.PodStatus{Phase: object.Status.Phase}}
	case *appsv1.ReplicaSet:
		return &appsv1.ReplicaSet{ObjectMeta: trimObjectMeta(&object.ObjectMeta)}
	}
	return nil
}

func trimObjectMeta(object *metav1.ObjectMeta) metav1.ObjectMeta {
	trimmed := metav1.ObjectMeta{
		Name: object.Name, Namespace: object.Namespace, UID: object.UID, ResourceVersion: object.ResourceVersion,
		DeletionTimestamp: object.DeletionTimestamp,
	}
	if owner := metav1.GetControllerOf(object); owner != nil {
		trimmed.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return trimmed
}
