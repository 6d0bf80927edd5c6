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
	"time"

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
// nil if there is none. A field whose value is listed in admitted is not drift.
func decide(foo *v1alpha1.Foo, current *appsv1.Deployment, admitted ...controller.FieldValue) deployment.Decision {
	if invalid := validateSpec(foo); invalid != "" {
		return deployment.Decision{Action: deployment.NoChange, Invalid: invalid}
	}
	switch {
	case current == nil:
		return deployment.Decision{Action: deployment.Create, Desired: newDeployment(foo)}
	case !owns(foo, current) && asksToBeAdopted(foo, current):
		d := deployment.Decision{Action: deployment.Adopt, Patch: controller.NewPatch(current)}
		d.Patch.Adopt(foo, fooGVK(), v1alpha1.AdoptByAnnotation)
		return d
	case !owns(foo, current):
		return deployment.Decision{Action: deployment.NotOwned}
	case current.DeletionTimestamp != nil:
		return deployment.Decision{Action: deployment.NoChange}
	}
	d := deployment.Decision{Action: deployment.NoChange, Patch: diffDeployment(foo, current, admitted...)}
	if !d.Patch.IsEmpty() {
		d.Action = deployment.Repair
	}
	if foo.Spec.Image != "" && deployment.Container(current, containerName) == nil {
		d.Invalid = fmt.Sprintf("spec.image is set, but Deployment %q has no container %q to set it on; unset spec.image, or add that container to the Deployment", current.Name, containerName)
	}
	return d
}

// owns reports whether this very Foo, by UID, controls the Deployment.
func owns(foo *v1alpha1.Foo, d *appsv1.Deployment) bool {
	return controller.IsControlledBy(d, foo, fooGVK().GroupKind())
}

// asksToBeAdopted reports whether the Deployment has no controller, is not terminating, and
// asks by its annotation for this Foo, by name.
func asksToBeAdopted(foo *v1alpha1.Foo, d *appsv1.Deployment) bool {
	return d.DeletionTimestamp == nil && d.Annotations[v1alpha1.AdoptByAnnotation] == foo.Name && metav1.GetControllerOfNoCopy(d) == nil
}

// adoptCommand returns the command with which a user has the Deployment adopted.
func adoptCommand(foo *v1alpha1.Foo, d *appsv1.Deployment) string {
	command := fmt.Sprintf("kubectl annotate deployment %s %s=%s -n %s", d.Name, v1alpha1.AdoptByAnnotation, foo.Name, d.Namespace)
	if d.Annotations[v1alpha1.AdoptByAnnotation] != "" {
		// It asks for another Foo.
		command += " --overwrite"
	}
	return command
}

// validateSpec returns what is wrong with the spec and how to correct it, "" if it is
// valid. The CRD's schema refuses such specs, but an object may be older than the schema.
func validateSpec(foo *v1alpha1.Foo) string {
	name := foo.Spec.DeploymentName
	if name == "" {
		return "spec.deploymentName is not set; set it to the name of the Deployment to run"
	}
	if problems := validation.IsDNS1123Subdomain(name); len(problems) > 0 {
		return fmt.Sprintf("spec.deploymentName %q is not a valid Deployment name: %s", name, strings.Join(problems, "; "))
	}
	if replicas := desiredReplicas(foo); replicas < 0 {
		return fmt.Sprintf("spec.replicas is %d; set it to 0 or more", replicas)
	}
	return ""
}

// desiredReplicas returns spec.replicas, 1 if it is unset. The API server applies the CRD's
// default to stored objects too, so it is unset only while the installed CRD has no default.
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

// scalesUpFromZero reports whether the repair gives Pods to a Deployment without any, while the
// contention is about other fields: nothing may serve until then.
func scalesUpFromZero(d deployment.Decision, current *appsv1.Deployment, contention controller.Contention) bool {
	return d.Action == deployment.Repair && ptr.Deref(current.Spec.Replicas, 1) == 0 && slices.Contains(d.Drifted(), "replicas") && !slices.Contains(contention.Undone, "replicas")
}

// diffDeployment compares the fields that this controller enforces, and no others, and
// returns the patch that repairs them. foo owns current. A field whose value is
// listed in admitted is not patched.
func diffDeployment(foo *v1alpha1.Foo, current *appsv1.Deployment, admitted ...controller.FieldValue) controller.Patch {
	patch := controller.NewPatch(current, admitted...)
	patch.CompareReplicas(current.Spec.Replicas, desiredReplicas(foo))
	if container := deployment.Container(current, containerName); foo.Spec.Image != "" && container != nil && container.Image != foo.Spec.Image {
		patch.SetInContainer(containerName, foo.Spec.Image, controller.Bounded(container.Image), foo.Spec.Image, "image")
	}
	patch.EnsureLabel(current, controller.ManagedByLabel, controller.ManagedByValue)
	patch.CompareController(current, foo, fooGVK())
	return patch
}

// checkAdmitted returns the values that written, the API server's answer to a write, has in
// place of those that were sent. It returns controller.ErrOverridden if the owner reference is
// another one.
func checkAdmitted(foo *v1alpha1.Foo, written *appsv1.Deployment) ([]controller.FieldValue, error) {
	if !owns(foo, written) {
		return nil, fmt.Errorf("owner reference: %w", controller.ErrOverridden)
	}
	return controller.CheckAdmitted(diffDeployment(foo, written))
}

// hadDeployment reports whether the status of this generation tells of a Deployment of the
// Foo's own under the name that it asks for.
func hadDeployment(foo *v1alpha1.Foo) bool {
	return foo.Status.ObservedGeneration == foo.Generation && foo.Status.Selector != ""
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
	ready, old := addOldDeployments(readyCondition(foo, result, now.Time), result, now.Time), controller.GetReady(foo.Status.Conditions)
	if ready.Reason == v1alpha1.ReasonDeploymentRejected && old.ObservedGeneration == foo.Generation && !controller.IsNewRefusal(old, ready) {
		// The message of a quota quotes its current usage: each change of that would be a
		// status write.
		ready.Message = old.Message
	}
	controller.SetReady(&status.Conditions, ready, foo.Generation, now)
	return status
}

// isProgress reports whether a status update may wait, since it reports only progress. That
// a Foo is no longer Ready, although its spec did not change, is reported at once.
func isProgress(foo *v1alpha1.Foo, old, ready metav1.Condition) bool {
	return ready.Reason == v1alpha1.ReasonDeploymentProgressing && !controller.LostReady(old, ready, foo.Generation)
}

// equalStatus reports whether there is nothing to write. Nearly every sync ends here, and
// reflection would cost more than the rest of the sync.
func equalStatus(a, b *v1alpha1.FooStatus) bool {
	return a.ObservedGeneration == b.ObservedGeneration && a.AvailableReplicas == b.AvailableReplicas && a.Replicas == b.Replicas && a.Selector == b.Selector &&
		slices.EqualFunc(a.Conditions, b.Conditions, controller.EqualCondition)
}

// readyCondition returns status, reason and message of the Ready condition. The first that
// applies decides: the spec, contention unless the API server refused the write, that
// refusal, a missing Deployment, the owner, the rollout as it is at that time.
func readyCondition(foo *v1alpha1.Foo, result deployment.Result, now time.Time) metav1.Condition {
	switch {
	case result.Invalid != "":
		return controller.NotReady(v1alpha1.ReasonInvalidSpec, result.Invalid)
	case result.IsContested():
		return controller.NotReady(v1alpha1.ReasonDeploymentContested, result.Contention.Message)
	case result.Rejected != nil:
		return controller.NotReady(v1alpha1.ReasonDeploymentRejected, describeRejection(result))
	case result.Deployment == nil:
		return controller.NotReady(v1alpha1.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q does not exist yet", foo.Spec.DeploymentName))
	case !owns(foo, result.Deployment):
		freed := "is deleted, or is renamed and its new Deployment is rolled out"
		if result.OwnerMoved {
			freed = "has completed the rollout of its new Deployment"
		}
		return controller.NotReady(v1alpha1.ReasonDeploymentNotOwned, controller.DescribeNotOwned(result.Deployment, "Deployment", foo, fooGVK(), controller.NotOwnedHints{
			Freed: freed, OtherName: "ask for another name in spec.deploymentName", Adopt: adoptCommand(foo, result.Deployment),
		}))
	}
	state, message := deployment.Rollout(result.Deployment, now)
	if len(result.Admitted) > 0 {
		message += controller.DescribeAdmitted(diffDeployment(foo, result.Deployment, result.Admitted...))
	}
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
	return fmt.Sprintf("the API server refused: %s; it is tried again at least every 5 minutes, and at once when the Foo changes", controller.RejectionMessage(result.Rejected))
}

// readyEvent returns the event that reports that the Foo became Ready, or that its user has to
// change something. It returns nil for other changes: the Deployment's own events tell of a
// stalled rollout.
func readyEvent(old, ready metav1.Condition) *controller.Event {
	if controller.BecameReady(old, ready) {
		return &controller.Event{Type: corev1.EventTypeNormal, Reason: controller.EventSynced, Message: "Foo is ready: " + ready.Message}
	}
	isNew := controller.IsNewProblem(old, ready)
	if ready.Reason == v1alpha1.ReasonDeploymentRejected {
		isNew = controller.IsNewRefusal(old, ready)
	}
	if !isNew {
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

// trimFoo trims a Foo. The CRD bounds spec and status.
func (t trimmer) trimFoo(foo *v1alpha1.Foo) *v1alpha1.Foo {
	controller.TrimMetadata(foo)
	controller.TrimConditions(foo.Status.Conditions)
	foo.Spec.Image = controller.Intern(foo.Spec.Image)
	return foo
}

// trimDeployment returns what is read of a Deployment that a Foo controls or is asked to
// adopt, nil for any other Deployment.
func (t trimmer) trimDeployment(d *appsv1.Deployment) *appsv1.Deployment {
	if adoptBy := d.Annotations[v1alpha1.AdoptByAnnotation]; adoptBy != "" && metav1.GetControllerOfNoCopy(d) == nil {
		asking := &appsv1.Deployment{}
		controller.SetIdentity(asking, d)
		asking.Annotations = map[string]string{v1alpha1.AdoptByAnnotation: controller.Bounded(adoptBy)}
		return asking
	}
	if controller.ControllerOf(d, fooGVK().GroupKind()) == nil {
		return nil
	}
	var template corev1.PodTemplateSpec
	if container := deployment.Container(d, containerName); container != nil {
		template.Spec.Containers = t.interner.Containers(container.Name, controller.Bounded(container.Image))
	}
	return t.interner.Trim(d, template)
}
