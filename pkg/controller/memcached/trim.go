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
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/client/trim"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
)

const (
	// maxCompared bounds the lists that are compared. Each list that the controller asks for
	// is shorter.
	maxCompared = 16
	// maxSpread is one more than the topology spread constraints that the controller asks for.
	maxSpread = 2
	// maxPorts bounds the ports that are kept of a container.
	maxPorts = 64
)

// TrimMemcached trims a Memcached. The CRD bounds spec and status.
func TrimMemcached(memcached *v1alpha1.Memcached) *v1alpha1.Memcached {
	trim.Metadata(memcached)
	trim.Conditions(memcached.Status.Conditions)
	memcached.Spec.Image, memcached.Spec.TopologyKey = trim.Intern(memcached.Spec.Image), trim.Intern(memcached.Spec.TopologyKey)
	return memcached
}

// TrimDeployment returns what is read of a Deployment that a Memcached controls, nil for
// any other Deployment.
func TrimDeployment(d *appsv1.Deployment, interner *deployment.Interner) *appsv1.Deployment {
	if controller.ControllerOf(d, memcachedGVK().GroupKind()) == nil {
		return nil
	}
	var template corev1.PodTemplateSpec
	for label := range labelsOf(&v1alpha1.Memcached{}) {
		metav1.SetMetaDataLabel(&template.ObjectMeta, label, d.Spec.Template.Labels[label])
	}
	if pod := d.Spec.Template.Spec.SecurityContext; pod != nil {
		template.Spec.SecurityContext = &corev1.PodSecurityContext{RunAsNonRoot: pod.RunAsNonRoot}
		if pod.SeccompProfile != nil {
			template.Spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: pod.SeccompProfile.Type}
			if path := pod.SeccompProfile.LocalhostProfile; path != nil {
				template.Spec.SecurityContext.SeccompProfile.LocalhostProfile = ptr.To(trim.Bounded(*path))
			}
		}
	}
	// The API server bounds the other fields that describeSpread reads.
	constraints := d.Spec.Template.Spec.TopologySpreadConstraints
	for _, constraint := range constraints[:min(len(constraints), maxSpread)] {
		template.Spec.TopologySpreadConstraints = append(template.Spec.TopologySpreadConstraints, corev1.TopologySpreadConstraint{
			MaxSkew: constraint.MaxSkew, TopologyKey: constraint.TopologyKey, WhenUnsatisfiable: constraint.WhenUnsatisfiable,
			LabelSelector: deployment.TrimSelector(constraint.LabelSelector),
		})
	}
	if container := deployment.Container(d, containerName); container != nil {
		template.Spec.Containers = []corev1.Container{trimContainer(container)}
	}
	return interner.Trim(d, template)
}

// trimContainer returns what compareContainer reads.
func trimContainer(container *corev1.Container) corev1.Container {
	trimmed := corev1.Container{
		Name: container.Name, Image: trim.Intern(trim.Bounded(container.Image)),
		Command: trimList(container.Command), Args: trimList(container.Args), Ports: trimPorts(container.Ports),
	}
	if secure := container.SecurityContext; secure != nil {
		trimmed.SecurityContext = &corev1.SecurityContext{
			RunAsNonRoot: secure.RunAsNonRoot, RunAsUser: secure.RunAsUser, AllowPrivilegeEscalation: secure.AllowPrivilegeEscalation,
		}
		if secure.Capabilities != nil {
			trimmed.SecurityContext.Capabilities = &corev1.Capabilities{Drop: trimList(secure.Capabilities.Drop)}
		}
	}
	return trimmed
}

// trimPorts returns the ports: a patch that repairs ours repeats those of other writers. Of a
// container with more than 64 it returns ours and the first others, so that such a repair
// deletes the rest.
func trimPorts(ports []corev1.ContainerPort) []corev1.ContainerPort {
	trimmed := slices.Clone(ports[:min(len(ports), maxPorts)])
	if i := slices.IndexFunc(ports, func(port corev1.ContainerPort) bool { return port.Name == portName }); i >= maxPorts {
		trimmed[maxPorts-1] = ports[i]
	}
	return trimmed
}

// trimList returns the list, cut off where it differs from all that the controller asks for.
func trimList[T ~string](list []T) []T {
	var trimmed []T
	for _, value := range list[:min(len(list), maxCompared)] {
		trimmed = append(trimmed, T(trim.Bounded(string(value))))
	}
	return trimmed
}

// NodeSelector selects the Pods and ReplicaSets of all Memcacheds.
const NodeSelector = nameLabel

// TrimNode returns what is read of a Pod or ReplicaSet: its identity, its controller and
// whether it lives. A cluster may have very many.
func TrimNode(object any) any {
	switch object := object.(type) {
	case *corev1.Pod:
		pod := &corev1.Pod{Status: corev1.PodStatus{Phase: object.Status.Phase}}
		trim.SetIdentity(pod, object)
		return pod
	case *appsv1.ReplicaSet:
		replicaSet := &appsv1.ReplicaSet{}
		trim.SetIdentity(replicaSet, object)
		return replicaSet
	}
	return nil
}
