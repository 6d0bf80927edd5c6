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

package webhook

import (
	"fmt"

	admissionv1 "k8s.io/api/admission/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
)

// This file decides about Foos at admission, from values alone. Admission only gives
// users an earlier answer: the controller enforces the same rules and reports them in the
// Ready condition, so a request that skips the webhooks breaks nothing.

// deploymentNameField names the field in both versions.
const deploymentNameField = "spec.deploymentName (v1beta1: spec.deployment.name)"

var fooGVK = schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Foo")

// defaults returns the fields to fill in to a Foo; fields that need no default are unset.
// A new Foo's Deployment gets the Foo's own name. An update that leaves the name out keeps
// the old name. A Foo that was stored without a spec, before the CRD had a schema, gets no
// defaults: with them, an update that only removes a finalizer would ask for a Deployment.
func defaults(foo, old *v1alpha1.Foo) v1alpha1.FooSpec {
	name := foo.Name
	if old != nil {
		name = old.Spec.DeploymentName
	}
	var missing v1alpha1.FooSpec
	if foo.Spec.DeploymentName == "" {
		missing.DeploymentName = name
	}
	if foo.Spec.Replicas == nil && foo.Spec.DeploymentName+name != "" {
		missing.Replicas = ptr.To[int32](1)
	}
	return missing
}

// nameUse is what the caches know about one Deployment name.
type nameUse struct {
	// deployment is the Deployment of that name, nil if there is none.
	deployment *appsv1.Deployment
	// claimants are the Foos whose spec asks for that name.
	claimants []*v1alpha1.Foo
}

// validate decides about a Foo that is created, or that is updated from old. use is
// about the Deployment name that the Foo asks for. The refusal is "" if the Foo is allowed.
//
// The answer names the object that has the Deployment name only if mayGet says that the user may
// get that object.
func validate(operation admissionv1.Operation, foo, old *v1alpha1.Foo, use nameUse, mayGet func(resource schema.GroupResource, name string) bool) (refusal string, warnings []string) {
	if ptr.Deref(foo.Spec.Replicas, 1) == 0 && (old == nil || ptr.Deref(old.Spec.Replicas, 1) != 0) {
		warnings = append(warnings, "spec.replicas is 0: the Deployment will have no Pods")
	}
	if foo.DeletionTimestamp != nil || old != nil && old.Spec.DeploymentName == foo.Spec.DeploymentName {
		return "", warnings
	}
	holder := use.heldBy(foo)
	if holder == nil {
		return "", warnings
	}
	owner := "an object that you may not get"
	if mayGet(holder.resource, holder.name) {
		owner = holder.description
	}
	held := fmt.Sprintf("%s: the name %q is held by %s; ", deploymentNameField, foo.Spec.DeploymentName, owner)
	if operation == admissionv1.Create {
		return held + "choose another name", warnings
	}
	// An update only gets a warning: refused, two Foos could not swap their names.
	return "", append(warnings, fmt.Sprintf("%suntil it is free the controller keeps the Deployment %q and does not create another",
		held, old.Spec.DeploymentName))
}

// holder is an object that keeps a Foo from getting a Deployment name.
type holder struct {
	resource schema.GroupResource
	name     string
	// description is for the user.
	description string
}

// heldBy returns the object that keeps the Foo from getting the name, nil if there is none.
func (u nameUse) heldBy(foo *v1alpha1.Foo) *holder {
	for _, claimant := range u.claimants {
		if claimant.Name != foo.Name && claimant.DeletionTimestamp == nil && u.belongsTo(claimant) {
			return &holder{v1alpha1.Resource("foos"), claimant.Name, "Foo " + claimant.Name}
		}
	}
	if u.deployment == nil || u.deployment.DeletionTimestamp != nil {
		return nil
	}
	found := &holder{resource: appsv1.Resource("deployments"), name: u.deployment.Name}
	ref := metav1.GetControllerOfNoCopy(u.deployment)
	switch {
	case ref == nil && u.deployment.Annotations[v1alpha1.AdoptByAnnotation] == foo.Name:
		// The controller makes this Foo its controller.
		return nil
	case ref == nil:
		found.description = fmt.Sprintf("a Deployment that has no controller and does not ask by the annotation %s=%s to be adopted", v1alpha1.AdoptByAnnotation, foo.Name)
	case controller.ControllerOf(u.deployment, fooGVK.GroupKind()) == nil:
		found.description = fmt.Sprintf("a Deployment of %s %s", ref.Kind, ref.Name)
	default:
		// The owner is this Foo or an earlier one of its name, or a Foo that is deleted, is
		// being deleted or asks for another name: the Deployment will be deleted, after a rename once
		// the owner's new Deployment is rolled out.
		return nil
	}
	return found
}

// belongsTo reports whether the claimant owns the Deployment of the name or, if there is
// no Deployment or it is terminating, may create the next one.
func (u nameUse) belongsTo(claimant *v1alpha1.Foo) bool {
	if u.deployment == nil || u.deployment.DeletionTimestamp != nil {
		return true
	}
	ref := controller.ControllerOf(u.deployment, fooGVK.GroupKind())
	return ref != nil && ref.UID == claimant.UID
}
