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
	"fmt"
	"maps"
	"slices"
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/child"
)

const (
	kind          = "Memcached"
	containerName = "memcached"
	portName      = "memcached"

	// Those of the CRD, for objects that were stored before it had them.
	defaultSize  = 1
	defaultImage = "memcached:1.6-alpine"
	defaultPort  = 11211

	// userID is the user memcache of the image. The kubelet can tell of a number, and
	// not of a name, that it is not root's.
	userID = 11211

	// nameLabel is on all Pods and ReplicaSets of a Memcached, with its name.
	nameLabel = "memcached_cr"
)

// kindOfMemcached returns what is to be known of Memcacheds to keep their Deployments.
func kindOfMemcached() child.Kind {
	return child.Kind{
		GroupVersionKind: schema.GroupVersion(v1alpha1.GroupVersion).WithKind(kind),
		Elsewhere:        "create this Memcached under another name",
		LetsGo:           "is deleted",
	}
}

// decide returns what to do about deployment, which is the Deployment of memcached's
// name, or nil if there is none.
func decide(memcached *v1alpha1.Memcached, deployment *appsv1.Deployment) child.Verdict {
	if invalid := validateSpec(memcached); invalid != "" {
		return child.Verdict{Action: child.None, Invalid: invalid}
	}
	return kindOfMemcached().Decide(memcached, deployment,
		func() *appsv1.Deployment { return newDeployment(memcached) },
		func() child.Repair { return driftOf(memcached, deployment) })
}

// validateSpec returns what is wrong with the spec and how to mend it, or "". The
// CRD's schema refuses such specs; an object may be older than the schema.
func validateSpec(memcached *v1alpha1.Memcached) string {
	if size := desiredSize(memcached); size < 0 {
		return fmt.Sprintf("spec.size is %d; set it to 0 or more", size)
	}
	if port := desiredPort(memcached); port < 1 || port > 65535 {
		return fmt.Sprintf("spec.port is %d; set it to a number from 1 to 65535", port)
	}
	return ""
}

func desiredSize(memcached *v1alpha1.Memcached) int32 {
	return ptr.Deref(memcached.Spec.Size, defaultSize)
}

func desiredPort(memcached *v1alpha1.Memcached) int32 {
	return ptr.Deref(memcached.Spec.Port, defaultPort)
}

func desiredImage(memcached *v1alpha1.Memcached) string {
	if memcached.Spec.Image == "" {
		return defaultImage
	}
	return memcached.Spec.Image
}

// labelsOf returns the labels of the Pods. They make up the selector, which cannot be
// changed later: nothing that a spec says may be among them.
func labelsOf(memcached *v1alpha1.Memcached) map[string]string {
	return map[string]string{"app": "memcached", nameLabel: controller.LabelValue(memcached.Name)}
}

// newDeployment returns the Deployment to create for memcached.
func newDeployment(memcached *v1alpha1.Memcached) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name:            memcached.Name,
			Namespace:       memcached.Namespace,
			Labels:          map[string]string{controller.ManagedByLabel: controller.ManagedByValue},
			OwnerReferences: []metav1.OwnerReference{kindOfMemcached().Reference(memcached)},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(desiredSize(memcached)),
			Selector: &metav1.LabelSelector{MatchLabels: labelsOf(memcached)},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labelsOf(memcached)},
				Spec: corev1.PodSpec{
					SecurityContext: &corev1.PodSecurityContext{
						RunAsNonRoot:   ptr.To(true),
						SeccompProfile: &corev1.SeccompProfile{Type: corev1.SeccompProfileTypeRuntimeDefault},
					},
					Containers: []corev1.Container{*newContainer(memcached)},
				},
			},
		},
	}
}

func newContainer(memcached *v1alpha1.Memcached) *corev1.Container {
	return &corev1.Container{
		Name:    containerName,
		Image:   desiredImage(memcached),
		Command: []string{"memcached", "-m", "64", "-o", "modern", "-v", "-p", strconv.Itoa(int(desiredPort(memcached)))},
		Ports:   []corev1.ContainerPort{{Name: portName, ContainerPort: desiredPort(memcached), Protocol: corev1.ProtocolTCP}},
		SecurityContext: &corev1.SecurityContext{
			RunAsNonRoot:             ptr.To(true),
			RunAsUser:                ptr.To[int64](userID),
			AllowPrivilegeEscalation: ptr.To(false),
			Capabilities:             &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}},
		},
	}
}

// driftOf compares the fields that this controller owns, and those alone, and returns
// the patch that puts them right.
func driftOf(memcached *v1alpha1.Memcached, deployment *appsv1.Deployment) child.Repair {
	repair := child.NewRepair(deployment)
	repair.CompareReplicas(deployment, desiredSize(memcached))
	compareLabels(&repair, labelsOf(memcached), deployment)
	comparePod(&repair, &deployment.Spec.Template.Spec)
	want := newContainer(memcached)
	if container := child.Container(deployment, containerName); container == nil {
		repair.AddContainer(want)
	} else {
		compareContainer(&repair, want, container)
	}
	repair.CompareOwnership(kindOfMemcached(), memcached, deployment)
	return repair
}

// compareLabels puts the labels of the Pods right. Those that the selector demands are
// as they are: it cannot be changed.
func compareLabels(repair *child.Repair, want map[string]string, deployment *appsv1.Deployment) {
	demanded := map[string]string{}
	if selector := deployment.Spec.Selector; selector != nil {
		demanded = selector.MatchLabels
	}
	for _, label := range slices.Sorted(maps.Keys(want)) {
		if _, fixed := demanded[label]; fixed {
			continue
		}
		if got := deployment.Spec.Template.Labels[label]; got != want[label] {
			repair.SetInTemplate(want[label], fmt.Sprintf("from %q to %q", got, want[label]), "metadata", "labels", label)
		}
	}
}

// comparePod puts right what of the Pod the security level restricted demands.
func comparePod(repair *child.Repair, pod *corev1.PodSpec) {
	got := ptr.Deref(pod.SecurityContext, corev1.PodSecurityContext{})
	if !ptr.Deref(got.RunAsNonRoot, false) {
		repair.SetInTemplate(true, "to true", "spec", "securityContext", "runAsNonRoot")
	}
	if got.SeccompProfile == nil || got.SeccompProfile.Type != corev1.SeccompProfileTypeRuntimeDefault {
		// As a whole: the name of a file goes with another type alone.
		profile := map[string]any{"type": corev1.SeccompProfileTypeRuntimeDefault, "localhostProfile": nil}
		repair.SetInTemplate(profile, "to RuntimeDefault", "spec", "securityContext", "seccompProfile")
	}
}

// compareContainer puts right what of the container is ours.
func compareContainer(repair *child.Repair, want, got *corev1.Container) {
	if got.Image != want.Image {
		repair.SetInContainer(containerName, want.Image, fmt.Sprintf("from %s to %s", got.Image, want.Image), "image")
	}
	if !slices.Equal(got.Command, want.Command) {
		repair.SetInContainer(containerName, want.Command, fmt.Sprintf("from %q to %q", got.Command, want.Command), "command")
	}
	if len(got.Args) > 0 {
		repair.SetInContainer(containerName, nil, fmt.Sprintf("from %q to none", got.Args), "args")
	}
	comparePorts(repair, want.Ports[0], got.Ports)

	secure, is := want.SecurityContext, ptr.Deref(got.SecurityContext, corev1.SecurityContext{})
	if !ptr.Equal(is.RunAsNonRoot, secure.RunAsNonRoot) {
		repair.SetInContainer(containerName, true, "to true", "securityContext", "runAsNonRoot")
	}
	if !ptr.Equal(is.RunAsUser, secure.RunAsUser) {
		repair.SetInContainer(containerName, userID, fmt.Sprintf("to %d", userID), "securityContext", "runAsUser")
	}
	if !ptr.Equal(is.AllowPrivilegeEscalation, secure.AllowPrivilegeEscalation) {
		repair.SetInContainer(containerName, false, "to false", "securityContext", "allowPrivilegeEscalation")
	}
	if drop := ptr.Deref(is.Capabilities, corev1.Capabilities{}).Drop; !slices.Equal(drop, secure.Capabilities.Drop) {
		repair.SetInContainer(containerName, secure.Capabilities.Drop, fmt.Sprintf("from %q to %q", drop, secure.Capabilities.Drop), "securityContext", "capabilities", "drop")
	}
}

// comparePorts puts the port of our name right, and leaves others alone.
func comparePorts(repair *child.Repair, want corev1.ContainerPort, got []corev1.ContainerPort) {
	ours := func(port corev1.ContainerPort) bool {
		return port.Name == want.Name || port.ContainerPort == want.ContainerPort && port.Protocol == want.Protocol
	}
	i := slices.IndexFunc(got, ours)
	if i >= 0 && got[i].Name == want.Name && got[i].ContainerPort == want.ContainerPort && got[i].Protocol == want.Protocol {
		return
	}
	was := "none"
	// The list as a whole: a merge goes by the number, and cannot change it.
	ports := []any{map[string]string{"$patch": "replace"}}
	for _, port := range got {
		if ours(port) {
			was = strconv.Itoa(int(port.ContainerPort))
		} else {
			ports = append(ports, port)
		}
	}
	repair.SetInContainer(containerName, append(ports, want), fmt.Sprintf("from %s to %d", was, want.ContainerPort), "ports")
}

// Extract returns what is read of a Deployment that a Memcached controls, nil if none
// does.
func Extract(deployment *appsv1.Deployment, shared *child.Shared) *appsv1.Deployment {
	if kindOfMemcached().ControllerOf(deployment) == nil {
		return nil
	}
	return shared.Extract(deployment, comparedTemplate(deployment))
}

// comparedTemplate returns what driftOf reads of the Pod template. Ports are kept in
// full: a patch of ours sends those of others along.
func comparedTemplate(deployment *appsv1.Deployment) (template corev1.PodTemplateSpec) {
	template.Labels = deployment.Spec.Template.Labels
	template.Spec.SecurityContext = deployment.Spec.Template.Spec.SecurityContext
	if container := child.Container(deployment, containerName); container != nil {
		template.Spec.Containers = []corev1.Container{{
			Name: container.Name, Image: container.Image, Command: container.Command, Args: container.Args, Ports: container.Ports, SecurityContext: container.SecurityContext,
		}}
	}
	return template
}

// conditionsOf returns the conditions of a Memcached.
func conditionsOf(memcached *v1alpha1.Memcached) []metav1.Condition {
	return memcached.Status.Conditions
}

// newStatus returns the status that follows from what a sync has seen, nodes being the
// names of the live Pods. now stamps a transition of the Ready condition. What is not
// ours in the present status, conditions of other types above all, is kept.
func newStatus(memcached *v1alpha1.Memcached, seen child.Observation, nodes []string, now metav1.Time) v1alpha1.MemcachedStatus {
	status := *memcached.Status.DeepCopy()
	status.ObservedGeneration = memcached.Generation
	status.Nodes, status.ReadyReplicas, status.Replicas, status.Selector = []string{}, 0, 0, ""
	if seen.Deployment != nil && kindOfMemcached().Owns(memcached, seen.Deployment) {
		status.Nodes = append(status.Nodes, nodes...)
		status.ReadyReplicas = seen.Deployment.Status.ReadyReplicas
		status.Replicas = seen.Deployment.Status.Replicas
		status.Selector = child.FormatSelector(seen.Deployment.Spec.Selector)
	}
	kindOfMemcached().SetReady(&status.Conditions, memcached, memcached.Name, seen, now)
	return status
}

// isProgress reports whether the status that memcached is to get may wait for a second:
// it tells of a rollout under way, of nothing new about Ready, or of one that is ready
// although its Pods have not all come to the cache, or not all gone. That they have is
// an event of its own.
func isProgress(memcached *v1alpha1.Memcached, status *v1alpha1.MemcachedStatus) bool {
	was, is := controller.ReadyOf(memcached.Status.Conditions), controller.ReadyOf(status.Conditions)
	settled := status.Replicas == desiredSize(memcached) && len(status.Nodes) == int(status.Replicas)
	return child.IsProgress(is) || equality.Semantic.DeepEqual(was, is) || is.Status == metav1.ConditionTrue && !settled
}
