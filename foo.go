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
	"example.com/sample-controller/pkg/controller/deployment"
)

// This file decides, from values alone, and trims objects for the caches. controller.go
// reads, acts and reports.

const (
	fooKind       = "Foo"
	containerName = "nginx"
	defaultImage  = "nginx:latest"
)

func fooGVK() schema.GroupVersionKind {
	return schema.GroupVersion(v1alpha1.GroupVersion).WithKind(fooKind)
}

// indexByDeploymentName returns the key of the Deployment that a Foo asks for.
func indexByDeploymentName(foo *v1alpha1.Foo) ([]string, error) {
	return []string{foo.Namespace + "/" + foo.Spec.DeploymentName}, nil
}

// decide returns what to do about current, the Deployment of the name that foo asks for,
// nil if there is none.
func decide(foo *v1alpha1.Foo, current *appsv1.Deployment) deployment.Decision {
	if invalid := validateSpec(foo); invalid != "" {
		return deployment.Decision{Action: deployment.NoChange, Invalid: invalid}
	}
	switch {
	case current == nil:
		return deployment.Decision{Action: deployment.Create, Desired: newDeployment(foo)}
	case !owns(foo, current):
		return deployment.Decision{Action: deployment.NotOwned}
	case current.DeletionTimestamp != nil:
		return deployment.Decision{Action: deployment.NoChange}
	}
	d := deployment.Decision{Action: deployment.NoChange, Patch: diffDeployment(foo, current)}
	if !d.Patch.IsEmpty() {
		d.Action = deployment.Repair
	}
	if foo.Spec.Image != "" && deployment.Container(current, containerName) == nil {
		d.Invalid = fmt.Sprintf("spec.image is set, but Deployment %q has no container %q to take it; unset spec.image, or add that container to the Deployment", current.Name, containerName)
	}
	return d
}

// owns reports whether this very Foo, by UID, controls the Deployment.
func owns(foo *v1alpha1.Foo, d *appsv1.Deployment) bool {
	return controller.IsControlledBy(d, foo, fooGVK().GroupKind())
}

// validateSpec returns what is wrong with the spec and how to correct it, "" if it is
// valid. The CRD's schema refuses such specs, but an object may be older than the schema.
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

// desiredReplicas returns spec.replicas, 1 if it is unset: the Foo was stored before the
// CRD had that default.
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
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(foo, fooGVK())},
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

// diffDeployment compares the fields that this controller enforces, and no others, and
// returns the patch that repairs them. foo owns current.
func diffDeployment(foo *v1alpha1.Foo, current *appsv1.Deployment) deployment.Patch {
	patch := deployment.NewPatch(current)
	patch.CompareReplicas(current, desiredReplicas(foo))
	if container := deployment.Container(current, containerName); foo.Spec.Image != "" && container != nil && container.Image != foo.Spec.Image {
		patch.SetInContainer(containerName, foo.Spec.Image, fmt.Sprintf("from %s to %s", container.Image, foo.Spec.Image), "image")
	}
	patch.CompareLabel(current, controller.ManagedByLabel, controller.ManagedByValue)
	patch.CompareController(current, foo, fooGVK())
	return patch
}

// checkAdmitted returns controller.ErrOverridden if written, the API server's answer to a
// write, does not have the values that were sent.
func checkAdmitted(foo *v1alpha1.Foo, written *appsv1.Deployment) error {
	if !owns(foo, written) {
		return fmt.Errorf("owner reference: %w", controller.ErrOverridden)
	}
	if patch := diffDeployment(foo, written); !patch.IsEmpty() {
		return fmt.Errorf("%s: %w", patch, controller.ErrOverridden)
	}
	return nil
}

// newStatus returns the status that follows from the result of a sync. now becomes
// lastTransitionTime if the status of Ready changes. Fields that are not this controller's,
// above all conditions of other types, are kept.
func newStatus(foo *v1alpha1.Foo, result deployment.Result, now metav1.Time) v1alpha1.FooStatus {
	var status v1alpha1.FooStatus
	foo.Status.DeepCopyInto(&status)
	status.ObservedGeneration = foo.Generation
	status.AvailableReplicas, status.Replicas, status.Selector = 0, 0, ""
	if result.Deployment != nil && owns(foo, result.Deployment) {
		status.AvailableReplicas = result.Deployment.Status.AvailableReplicas
		status.Replicas = result.Deployment.Status.Replicas
		status.Selector = deployment.FormatSelector(result.Deployment.Spec.Selector)
	}
	ready, old := readyCondition(foo, result), controller.GetReady(foo.Status.Conditions)
	if ready.Reason == v1alpha1.ReasonDeploymentRejected && old.Reason == ready.Reason && old.ObservedGeneration == foo.Generation {
		// The message of a quota quotes its current usage: each change of that would be a
		// status write.
		ready.Message = old.Message
	}
	controller.SetReady(&status.Conditions, ready, foo.Generation, now)
	return status
}

// equalStatus reports whether there is nothing to write. Nearly every sync ends here, and
// reflection would cost more than the rest of the sync.
func equalStatus(a, b *v1alpha1.FooStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration && a.AvailableReplicas == b.AvailableReplicas && a.Replicas == b.Replicas && a.Selector == b.Selector &&
		slices.EqualFunc(a.Conditions, b.Conditions, controller.EqualCondition)
}

// readyCondition returns status, reason and message of the Ready condition. The first that
// applies decides: the spec, the API server's refusal, a missing Deployment, the owner,
// contention, the rollout.
func readyCondition(foo *v1alpha1.Foo, result deployment.Result) metav1.Condition {
	switch {
	case result.Invalid != "":
		return controller.NotReady(v1alpha1.ReasonInvalidSpec, result.Invalid)
	case result.Rejected != nil:
		return controller.NotReady(v1alpha1.ReasonDeploymentRejected, describeRejection(result))
	case result.Deployment == nil:
		return controller.NotReady(v1alpha1.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q does not exist yet", foo.Spec.DeploymentName))
	case !owns(foo, result.Deployment):
		return controller.NotReady(v1alpha1.ReasonDeploymentNotOwned, deployment.DescribeNotOwned(result.Deployment, foo, fooGVK(),
			"is deleted or asks for another", "ask for another name in spec.deploymentName"))
	case result.Contention.Message != "":
		return controller.NotReady(v1alpha1.ReasonDeploymentContested, result.Contention.Message)
	}
	state, message := deployment.Rollout(result.Deployment)
	switch state {
	case deployment.RolloutComplete:
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDeploymentAvailable, Message: message}
	case deployment.RolloutPaused:
		return controller.NotReady(v1alpha1.ReasonDeploymentPaused, message)
	case deployment.RolloutStalled:
		return controller.NotReady(v1alpha1.ReasonDeploymentStalled, message)
	}
	return controller.NotReady(v1alpha1.ReasonDeploymentProgressing, message)
}

// describeRejection repeats the API server's message and says when the write is retried.
func describeRejection(result deployment.Result) string {
	message := fmt.Sprintf("the API server refused: %s; it is tried again at least every 5 minutes, and at once when the Foo changes", controller.RejectionMessage(result.Rejected))
	if len(result.OldNames) > 0 {
		message += fmt.Sprintf("; until it is accepted the former Deployment %s is kept, which counts against a quota: raise the quota by one for the time of the change", strings.Join(result.OldNames, ", "))
	}
	return message
}

// readyEvent returns the event that reports that the Foo became Ready, or that its user has to
// change something. It returns nil for other changes: the Deployment's own events tell of a
// stalled rollout.
func readyEvent(old, ready metav1.Condition) *controller.Event {
	if controller.BecameReady(old, ready) {
		return &controller.Event{Type: corev1.EventTypeNormal, Reason: controller.EventSynced, Message: "Foo is ready: " + ready.Message}
	}
	if !controller.IsNewProblem(old, ready) {
		return nil
	}
	switch ready.Reason {
	case v1alpha1.ReasonDeploymentNotOwned:
		return &controller.Event{Type: corev1.EventTypeWarning, Reason: deployment.EventErrResourceExists, Message: ready.Message}
	case v1alpha1.ReasonDeploymentRejected, v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonDeploymentContested:
		return &controller.Event{Type: corev1.EventTypeWarning, Reason: ready.Reason, Message: ready.Message}
	}
	return nil
}

// trimmer drops from cached objects what the Foo controller does not read.
type trimmer struct {
	interner *deployment.Interner
}

// trimFoo trims a Foo.
func (t trimmer) trimFoo(foo *v1alpha1.Foo) *v1alpha1.Foo {
	controller.TrimMetadata(foo)
	controller.TrimConditions(foo.Status.Conditions)
	return foo
}

// trimDeployment returns what is read of a Deployment that a Foo controls, nil for any
// other Deployment.
func (t trimmer) trimDeployment(d *appsv1.Deployment) *appsv1.Deployment {
	if controller.ControllerOf(d, fooGVK().GroupKind()) == nil {
		return nil
	}
	var template corev1.PodTemplateSpec
	if container := deployment.Container(d, containerName); container != nil {
		template.Spec.Containers = t.interner.Containers(container.Name, container.Image)
	}
	return t.interner.Trim(d, template)
}
