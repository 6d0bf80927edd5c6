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
	"errors"
	"fmt"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
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

// fooGroupKind names our kind without a version: it is the same object in each.
func fooGroupKind() schema.GroupKind {
	return schema.GroupKind{Group: v1alpha1.GroupName, Kind: fooKind}
}

// controllingFoo returns the owner reference of the Foo that controls the
// object, or nil if its controller is something else or nothing.
func controllingFoo(object metav1.Object) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() != fooGroupKind() {
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

// errOverridden tells that a write was accepted and yet did not take: admission
// puts other values in place of ours.
var errOverridden = errors.New("an admission webhook or policy overrides it")

// overridden returns an error if the API server's answer to a write is not what
// the Foo asks for.
func overridden(foo *v1alpha1.Foo, written *appsv1.Deployment) error {
	if !owns(foo, written) {
		return fmt.Errorf("owner reference: %w", errOverridden)
	}
	if left := driftOf(foo, written); len(left.changes) > 0 {
		return fmt.Errorf("%s: %w", left, errOverridden)
	}
	return nil
}

// isRejection reports whether the API server refused a write for good: nothing
// but a change of the Foo, of a policy or of a quota can turn the answer.
func isRejection(err error) bool {
	return errors.Is(err, errOverridden) || (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)) &&
		!apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// isConflict reports whether a sync ended because somebody changed an object
// meanwhile, which is no failure.
func isConflict(err error) bool {
	return apierrors.IsConflict(err) || errors.Is(err, errCacheBehind)
}
