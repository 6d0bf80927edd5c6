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

package main

import (
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/child"
)

const (
	containerName = "nginx"
	defaultImage  = "nginx:latest"
	fooKind       = "Foo"
)

// kindOfFoo returns what is to be known of Foos to keep their Deployments.
func kindOfFoo() child.Kind {
	return child.Kind{
		GroupVersionKind: schema.GroupVersion(v1alpha1.GroupVersion).WithKind(fooKind),
		Elsewhere:        "ask for another name in spec.deploymentName",
		LetsGo:           "is deleted or asks for another",
	}
}

// decide returns what to do about deployment, which is the Deployment of the
// name that foo asks for, or nil if there is none.
func decide(foo *v1alpha1.Foo, deployment *appsv1.Deployment) child.Verdict {
	if invalid := validateSpec(foo); invalid != "" {
		return child.Verdict{Action: child.None, Invalid: invalid}
	}
	verdict := kindOfFoo().Decide(foo, deployment,
		func() *appsv1.Deployment { return newDeployment(foo) },
		func() child.Repair { return driftOf(foo, deployment) })
	alive := deployment != nil && deployment.DeletionTimestamp == nil && verdict.Action != child.Wait
	if alive && foo.Spec.Image != "" && child.Container(deployment, containerName) == nil {
		verdict.Invalid = fmt.Sprintf("spec.image is set, but Deployment %q has no container %q to take it; unset spec.image, or add that container to the Deployment", deployment.Name, containerName)
	}
	return verdict
}

// validateSpec returns what is wrong with the spec and how to mend it, or "".
// The CRD's schema refuses such specs; an object may be older than the schema.
func validateSpec(foo *v1alpha1.Foo) string {
	name := foo.Spec.DeploymentName
	if name == "" {
		return "spec.deploymentName is not set; set it to the name of the Deployment to run"
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Sprintf("spec.deploymentName %q is no legal name for a Deployment: %s", name, strings.Join(problems, "; "))
	}
	if replicas := desiredReplicas(foo); replicas < 0 {
		return fmt.Sprintf("spec.replicas is %d; set it to 0 or more", replicas)
	}
	return ""
}

// desiredReplicas returns spec.replicas, which is 1 where it is unset: the Foo
// was stored before the CRD had that default.
func desiredReplicas(foo *v1alpha1.Foo) int32 {
	return ptr.Deref(foo.Spec.Replicas, 1)
}

// newDeployment returns the Deployment to create for foo.
func newDeployment(foo *v1alpha1.Foo) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": controller.LabelValue(foo.Name)}
	image := foo.Spec.Image
	if image == "" {
		image = defaultImage
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name:            foo.Spec.DeploymentName,
			Namespace:       foo.Namespace,
			Labels:          map[string]string{controller.ManagedByLabel: controller.ManagedByValue},
			OwnerReferences: []metav1.OwnerReference{kindOfFoo().Reference(foo)},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To(desiredReplicas(foo)),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: containerName, Image: image}}},
			},
		},
	}
}

// driftOf compares the fields that this controller owns, and those alone, and
// returns the patch that puts them right.
func driftOf(foo *v1alpha1.Foo, deployment *appsv1.Deployment) child.Repair {
	repair := child.NewRepair(deployment)
	repair.CompareReplicas(deployment, desiredReplicas(foo))
	if container := child.Container(deployment, containerName); foo.Spec.Image != "" && container != nil && container.Image != foo.Spec.Image {
		repair.SetInContainer(containerName, foo.Spec.Image, fmt.Sprintf("from %s to %s", container.Image, foo.Spec.Image), "image")
	}
	repair.CompareOwnership(kindOfFoo(), foo, deployment)
	return repair
}

// comparedTemplate returns what driftOf and decide read of the Pod template.
func comparedTemplate(deployment *appsv1.Deployment, shared *child.Shared) (template corev1.PodTemplateSpec) {
	if container := child.Container(deployment, containerName); container != nil {
		template.Spec.Containers = shared.Container(container.Name, container.Image)
	}
	return template
}

// followBlockers follows "asks for → Deployment → owning Foo" from foo until a
// Foo is not blocked by another, and returns the Foos on the way. next returns
// the Foo that holds the name which the given one asks for, or nil. It reports
// whether the chain leads back to foo: a swap or a rotation of names, which
// nobody but its members can resolve. A Foo that holds its own name blocks itself.
func followBlockers(foo *v1alpha1.Foo, next func(*v1alpha1.Foo) *v1alpha1.Foo) (chain []*v1alpha1.Foo, cycle bool) {
	seen := map[string]bool{}
	for blocker := next(foo); blocker != nil && !seen[blocker.Name]; blocker = next(blocker) {
		if blocker.UID == foo.UID {
			return chain, true
		}
		seen[blocker.Name] = true
		chain = append(chain, blocker)
	}
	return chain, false
}

// conditionsOf returns the conditions of a Foo.
func conditionsOf(foo *v1alpha1.Foo) []metav1.Condition {
	return foo.Status.Conditions
}

// newStatus returns the status that follows from what a sync has seen. now stamps a
// transition of the Ready condition. What is not ours in the present status,
// conditions of other types above all, is kept.
func newStatus(foo *v1alpha1.Foo, seen child.Observation, now metav1.Time) v1alpha1.FooStatus {
	var status v1alpha1.FooStatus
	foo.Status.DeepCopyInto(&status)
	status.ObservedGeneration = foo.Generation
	status.AvailableReplicas, status.Replicas, status.Selector = 0, 0, ""
	if seen.Deployment != nil && kindOfFoo().Owns(foo, seen.Deployment) {
		status.AvailableReplicas = seen.Deployment.Status.AvailableReplicas
		status.Replicas = seen.Deployment.Status.Replicas
		status.Selector = child.FormatSelector(seen.Deployment.Spec.Selector)
	}
	kindOfFoo().SetReady(&status.Conditions, foo, foo.Spec.DeploymentName, seen, now)
	return status
}

// sameStatus reports whether nothing is to be written. Nearly every sync comes to this,
// and reflection would cost it more than all the rest.
func sameStatus(a, b *v1alpha1.FooStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration && a.AvailableReplicas == b.AvailableReplicas && a.Replicas == b.Replicas && a.Selector == b.Selector &&
		slices.EqualFunc(a.Conditions, b.Conditions, controller.SameCondition)
}
