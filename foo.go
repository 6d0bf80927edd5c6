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
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

const (
	containerName  = "nginx"
	defaultImage   = "nginx:latest"
	managedByLabel = "app.kubernetes.io/managed-by"
	managedByValue = "sample-controller"
	fooKind        = "Foo"
)

// action is what a sync does about the Deployment that a Foo asks for.
type action int

const (
	// actNone leaves the Deployment alone: it is as it should be, or on its way
	// out.
	actNone action = iota
	// actCreate creates it.
	actCreate
	// actRepair patches the fields that this controller owns.
	actRepair
	// actWait leaves it alone because it is not this Foo's.
	actWait
)

// decision is the verdict on the Deployment that a Foo asks for.
type decision struct {
	action action
	// create is the Deployment to POST, for actCreate.
	create *appsv1.Deployment
	// repair is the patch to send, for actRepair.
	repair repair
	// invalid says why the spec cannot be acted upon in full, and what to do.
	invalid string
}

// repair is a strategic-merge patch of the fields that have drifted.
type repair struct {
	patch   []byte
	changes []change
}

// change is one field of a repair.
type change struct {
	field ownedField
	// values are its former and its new value in words, "" where that says
	// nothing.
	values string
}

// ownedField is a field of the Deployment that this controller owns, named as in
// messages.
type ownedField string

const (
	fieldReplicas ownedField = "replicas"
	fieldImage    ownedField = "image"
	fieldLabel    ownedField = "label " + managedByLabel
	fieldOwner    ownedField = "owner reference"
)

// String returns all changes in words, as in "replicas from 1 to 3, image from
// a to b".
func (r repair) String() string {
	var words []string
	for _, change := range r.changes {
		words = append(words, strings.TrimSpace(string(change.field)+" "+change.values))
	}
	return strings.Join(words, ", ")
}

// decide returns what to do about deployment, which is the Deployment of the
// name that foo asks for, or nil if there is none.
func decide(foo *v1alpha1.Foo, deployment *appsv1.Deployment) decision {
	if invalid := validateSpec(foo); invalid != "" {
		return decision{action: actNone, invalid: invalid}
	}
	switch {
	case deployment == nil:
		return decision{action: actCreate, create: newDeployment(foo)}
	case !owns(foo, deployment):
		return decision{action: actWait}
	case deployment.DeletionTimestamp != nil:
		return decision{action: actNone}
	}
	verdict := decision{action: actNone}
	if foo.Spec.Image != "" && nginxContainer(deployment) == nil {
		verdict.invalid = fmt.Sprintf("spec.image is set, but Deployment %q has no container %q to take it; unset spec.image, or add that container to the Deployment", deployment.Name, containerName)
	}
	if verdict.repair = driftOf(foo, deployment); len(verdict.repair.changes) > 0 {
		verdict.action = actRepair
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
	labels := map[string]string{"app": "nginx", "controller": labelValue(foo.Name)}
	image := foo.Spec.Image
	if image == "" {
		image = defaultImage
	}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name:            foo.Spec.DeploymentName,
			Namespace:       foo.Namespace,
			Labels:          map[string]string{managedByLabel: managedByValue},
			OwnerReferences: []metav1.OwnerReference{controllerReference(foo)},
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

// controllerReference returns the owner reference that makes foo the controller
// of a Deployment.
func controllerReference(foo *v1alpha1.Foo) metav1.OwnerReference {
	return *metav1.NewControllerRef(foo, schema.GroupVersion(v1alpha1.GroupVersion).WithKind(fooKind))
}

// labelValue returns name where it is a legal label value (63 characters at
// most), else a shortened form that ends in a hash of the whole name.
func labelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:])[:10]
	return strings.TrimRight(name[:validation.LabelValueMaxLength-len(suffix)], "-.") + suffix
}

// controllingFoo returns the owner reference of the Foo that controls the
// object, or nil if its controller is something else or nothing. The version of
// our API group does not matter: it is the same object in each.
func controllingFoo(object metav1.Object) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || ref.Kind != fooKind {
		return nil
	}
	if gv, err := schema.ParseGroupVersion(ref.APIVersion); err != nil || gv.Group != v1alpha1.GroupName {
		return nil
	}
	return ref
}

// owns reports whether this very foo, by UID, controls the Deployment.
func owns(foo *v1alpha1.Foo, deployment *appsv1.Deployment) bool {
	ref := controllingFoo(deployment)
	return ref != nil && ref.UID == foo.UID
}

// nginxContainer returns the container whose image the Foo may set, or nil.
func nginxContainer(deployment *appsv1.Deployment) *corev1.Container {
	containers := deployment.Spec.Template.Spec.Containers
	for i := range containers {
		if containers[i].Name == containerName {
			return &containers[i]
		}
	}
	return nil
}

// driftOf compares the fields that this controller owns, and those alone, and
// returns the patch that puts them right. The patch carries the resourceVersion
// it was computed from: should the Deployment have changed hands or content
// meanwhile, the API server answers 409 and nothing is overwritten.
func driftOf(foo *v1alpha1.Foo, deployment *appsv1.Deployment) repair {
	metadata := map[string]any{"resourceVersion": deployment.ResourceVersion}
	spec := map[string]any{}
	var changes []change

	if want, got := desiredReplicas(foo), ptr.Deref(deployment.Spec.Replicas, 1); want != got {
		spec["replicas"] = want
		changes = append(changes, change{fieldReplicas, fmt.Sprintf("from %d to %d", got, want)})
	}
	if container := nginxContainer(deployment); foo.Spec.Image != "" && container != nil && container.Image != foo.Spec.Image {
		spec["template"] = map[string]any{"spec": map[string]any{
			"containers": []map[string]any{{"name": containerName, "image": foo.Spec.Image}},
		}}
		changes = append(changes, change{fieldImage, fmt.Sprintf("from %s to %s", container.Image, foo.Spec.Image)})
	}
	if got := deployment.Labels[managedByLabel]; got != managedByValue {
		metadata["labels"] = map[string]string{managedByLabel: managedByValue}
		changes = append(changes, change{fieldLabel, fmt.Sprintf("from %q to %q", got, managedByValue)})
	}
	if ref := controllingFoo(deployment); ref.Name != foo.Name || !ptr.Deref(ref.BlockOwnerDeletion, false) {
		metadata["ownerReferences"] = []metav1.OwnerReference{controllerReference(foo)}
		changes = append(changes, change{field: fieldOwner})
	}
	if len(changes) == 0 {
		return repair{}
	}
	return repair{patch: mustJSON(map[string]any{"metadata": metadata, "spec": spec}), changes: changes}
}

// mustJSON encodes a value made of maps, strings and numbers, which cannot fail.
func mustJSON(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", value, err))
	}
	return data
}

// followBlockers follows "asks for → Deployment → owning Foo" from foo until a
// Foo is not blocked by another, and returns the Foos on the way. next returns
// the Foo that holds the name which the given one asks for, or nil. It reports
// whether the chain leads back to foo: a swap or a rotation of names, which
// nobody but its members can resolve.
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

// observation is what a sync found and did, all that a status is computed from.
type observation struct {
	// deployment is the one of the name that the spec asks for, nil if there is
	// none.
	deployment *appsv1.Deployment
	// invalid says why the spec cannot be acted upon, "" if it can.
	invalid string
	// rejected is the API server's final no, nil if it gave none.
	rejected error
	// former are the names of the Deployments that a rename has yet to delete.
	former []string
	// contested says what is fought over and with whom, "" without a fight.
	contested string
	// pause is how long a fight keeps the Deployment from being repaired.
	pause time.Duration
}

// newStatus returns the status that follows from the observation. now stamps a
// transition of the Ready condition. What is not ours in the present status,
// conditions of other types above all, is kept.
func newStatus(foo *v1alpha1.Foo, seen observation, now metav1.Time) v1alpha1.FooStatus {
	status := *foo.Status.DeepCopy()
	status.ObservedGeneration = foo.Generation
	status.AvailableReplicas, status.Replicas, status.Selector = 0, 0, ""
	if seen.deployment != nil && owns(foo, seen.deployment) {
		status.AvailableReplicas = seen.deployment.Status.AvailableReplicas
		status.Replicas = seen.deployment.Status.Replicas
		status.Selector = metav1.FormatLabelSelector(seen.deployment.Spec.Selector)
	}

	ready := readyCondition(foo, seen)
	ready.Type = v1alpha1.FooReady
	ready.ObservedGeneration = foo.Generation
	ready.LastTransitionTime = now
	if old := meta.FindStatusCondition(status.Conditions, v1alpha1.FooReady); old != nil && sameRejection(*old, ready) {
		ready.Message = old.Message
	}
	meta.SetStatusCondition(&status.Conditions, ready)
	return status
}

// sameRejection reports whether both conditions tell of one and the same
// refusal. The messages are not compared: a quota's quotes its current usage,
// and each change of that would otherwise be a write.
func sameRejection(old, new metav1.Condition) bool {
	return new.Reason == v1alpha1.ReasonDeploymentRejected &&
		old.Reason == new.Reason &&
		old.ObservedGeneration == new.ObservedGeneration
}

// readyCondition returns status, reason and message of the Ready condition. The
// first that applies of: the spec, the API server's refusal, the owner, a fight,
// the rollout.
func readyCondition(foo *v1alpha1.Foo, seen observation) metav1.Condition {
	switch {
	case seen.invalid != "":
		return notReady(v1alpha1.ReasonInvalidSpec, seen.invalid)
	case seen.rejected != nil:
		return notReady(v1alpha1.ReasonDeploymentRejected, describeRejection(seen))
	case seen.deployment == nil:
		return notReady(v1alpha1.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q does not exist yet", foo.Spec.DeploymentName))
	case !owns(foo, seen.deployment):
		return notReady(v1alpha1.ReasonDeploymentNotOwned, describeHolder(foo, seen.deployment))
	}
	if seen.contested != "" {
		return notReady(v1alpha1.ReasonDeploymentContested, seen.contested)
	}
	return rolloutCondition(seen.deployment)
}

// describeRejection repeats the API server's words and says what will happen.
func describeRejection(seen observation) string {
	message := fmt.Sprintf("the API server refused: %v; it is tried again every 5 minutes at the latest, and at once when the Foo changes", seen.rejected)
	if len(seen.former) > 0 {
		message += fmt.Sprintf("; until it is accepted the former Deployment %s is kept, which counts against a quota: raise the quota by one for the time of the change", strings.Join(seen.former, ", "))
	}
	return message
}

func notReady(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// describeHolder says whose the Deployment is and how the Foo can get its name.
func describeHolder(foo *v1alpha1.Foo, deployment *appsv1.Deployment) string {
	name := deployment.Name
	ref := metav1.GetControllerOfNoCopy(deployment)
	if ref == nil {
		for _, owner := range deployment.OwnerReferences {
			if owner.UID == foo.UID {
				return fmt.Sprintf("Deployment %q lists this Foo as an owner but not as its controller; set controller: true in that owner reference, or delete the Deployment", name)
			}
		}
		return fmt.Sprintf("Deployment %q exists and has no controller; delete it, or ask for another name in spec.deploymentName", name)
	}
	if controllingFoo(deployment) == nil {
		return fmt.Sprintf("Deployment %q is controlled by %s %q; ask for another name in spec.deploymentName", name, ref.Kind, ref.Name)
	}
	if ref.Name == foo.Name {
		return fmt.Sprintf("Deployment %q belongs to an earlier Foo of this name (uid %s); waiting for the garbage collector to remove it", name, ref.UID)
	}
	return fmt.Sprintf("Deployment %q is controlled by Foo %q; this Foo takes the name over once that one is deleted or asks for another, or ask for another name in spec.deploymentName", name, ref.Name)
}

// rolloutCondition judges the rollout of an owned Deployment as `kubectl rollout
// status` does (k8s.io/kubectl/pkg/polymorphichelpers), and says beyond that
// whether it is paused or stalled.
func rolloutCondition(deployment *appsv1.Deployment) metav1.Condition {
	desired := ptr.Deref(deployment.Spec.Replicas, 1)
	status := &deployment.Status
	counts := fmt.Sprintf("%d of %d updated Pods are available", min(status.UpdatedReplicas, status.AvailableReplicas), desired)

	switch {
	case deployment.DeletionTimestamp != nil:
		return notReady(v1alpha1.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q is being deleted and will be created anew", deployment.Name))
	case status.ObservedGeneration < deployment.Generation:
		return notReady(v1alpha1.ReasonDeploymentProgressing, fmt.Sprintf("Deployment %q has not been acted upon yet", deployment.Name))
	case status.UpdatedReplicas >= desired && status.Replicas <= status.UpdatedReplicas && status.AvailableReplicas >= desired:
		return metav1.Condition{Status: metav1.ConditionTrue, Reason: v1alpha1.ReasonDeploymentAvailable, Message: counts}
	case deployment.Spec.Paused:
		return notReady(v1alpha1.ReasonDeploymentPaused, fmt.Sprintf("the rollout of Deployment %q is paused: %s; continue it with kubectl rollout resume", deployment.Name, counts))
	}
	if problem := stallOf(deployment); problem != "" {
		return notReady(v1alpha1.ReasonDeploymentStalled, fmt.Sprintf("the rollout of Deployment %q is stalled: %s", deployment.Name, problem))
	}
	return notReady(v1alpha1.ReasonDeploymentProgressing, counts)
}

// stallOf returns the Deployment controller's own words on why the rollout does
// not go on, or "".
func stallOf(deployment *appsv1.Deployment) string {
	for _, condition := range deployment.Status.Conditions {
		switch {
		case condition.Type == appsv1.DeploymentReplicaFailure && condition.Status == corev1.ConditionTrue,
			condition.Type == appsv1.DeploymentProgressing && condition.Reason == "ProgressDeadlineExceeded":
			return condition.Message
		}
	}
	return ""
}

// isProgress reports whether a status tells of nothing but a rollout under way.
// Such a status may wait for a second: by then it is often overtaken.
func isProgress(status *v1alpha1.FooStatus) bool {
	ready := meta.FindStatusCondition(status.Conditions, v1alpha1.FooReady)
	return ready != nil && ready.Reason == v1alpha1.ReasonDeploymentProgressing
}

// transition is an event worth telling because the Ready condition changed.
type transition struct {
	eventType, reason, message string
}

// transitionOf returns the event that goes with the change from the old status
// to the new one, or nil if there is nothing to tell.
func transitionOf(old, new *v1alpha1.FooStatus) *transition {
	was := meta.FindStatusCondition(old.Conditions, v1alpha1.FooReady)
	is := meta.FindStatusCondition(new.Conditions, v1alpha1.FooReady)
	if was == nil {
		was = &metav1.Condition{}
	}
	if is.Status == metav1.ConditionTrue {
		if was.Status == metav1.ConditionTrue {
			return nil
		}
		return &transition{corev1.EventTypeNormal, eventSynced, "Foo is ready: " + is.Message}
	}
	// A new generation with another message is another trouble of the same kind,
	// such as a second name that is taken.
	if was.Reason == is.Reason && (was.Message == is.Message || was.ObservedGeneration == is.ObservedGeneration) {
		return nil
	}
	switch is.Reason {
	case v1alpha1.ReasonDeploymentNotOwned:
		return &transition{corev1.EventTypeWarning, eventErrResourceExists, is.Message}
	case v1alpha1.ReasonDeploymentRejected, v1alpha1.ReasonInvalidSpec, v1alpha1.ReasonDeploymentContested:
		return &transition{corev1.EventTypeWarning, is.Reason, is.Message}
	}
	return nil
}

// Reasons of the events about a Foo, beside those that repeat a reason of its
// Ready condition.
const (
	eventCreated           = "Created"
	eventUpdated           = "Updated"
	eventDeleted           = "Deleted"
	eventSynced            = "Synced"
	eventErrResourceExists = "ErrResourceExists"
)

// isRejection reports whether the API server refused a write for good: nothing
// but a change of the Foo, of a policy or of a quota can turn the answer.
func isRejection(err error) bool {
	return (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)) &&
		!apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}
