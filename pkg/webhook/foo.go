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

// holder is an object that keeps a Foo from getting a Deployment name.
type holder struct {
	resource schema.GroupResource
	name     string
	// description is for the user.
	description string
}

// holderOf returns the object that keeps the Foo from getting the Deployment name that it asks for, nil if
// there is none. deployment is the Deployment of that name, nil if there is none, and claimants are the Foos
// whose spec asks for it.
func holderOf(foo *v1alpha1.Foo, deployment *appsv1.Deployment, claimants []*v1alpha1.Foo) *holder {
	if deployment != nil && deployment.DeletionTimestamp != nil {
		deployment = nil
	}
	kind := fooGVK.GroupKind()
	for _, claimant := range claimants {
		// It owns the Deployment or, if there is none, may create the next one.
		mayHave := deployment == nil || controller.IsControlledBy(deployment, claimant, kind)
		if mayHave && claimant.Name != foo.Name && claimant.DeletionTimestamp == nil {
			return &holder{v1alpha1.Resource("foos"), claimant.Name, "Foo " + claimant.Name}
		}
	}
	if deployment == nil || controller.ControllerOf(deployment, kind) != nil {
		// The owner is this Foo or an earlier one of its name, or a Foo that is deleted, is
		// being deleted or asks for another name: the Deployment will be deleted, after a rename once
		// the owner's new Deployment is rolled out.
		return nil
	}
	description := fmt.Sprintf("a Deployment that has no controller and does not ask by the annotation %s=%s to be adopted", v1alpha1.AdoptByAnnotation, foo.Name)
	if ref := metav1.GetControllerOfNoCopy(deployment); ref != nil {
		description = fmt.Sprintf("a Deployment of %s %s", ref.Kind, ref.Name)
	} else if deployment.Annotations[v1alpha1.AdoptByAnnotation] == foo.Name {
		// The controller makes this Foo its controller.
		return nil
	}
	return &holder{appsv1.Resource("deployments"), deployment.Name, description}
}
