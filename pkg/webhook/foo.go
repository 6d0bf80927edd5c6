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

// What is decided about Foos at their admission. It is a courtesy: whoever asks for a
// name that is taken learns it at once, and not from a condition later. The controller
// remains the authority, so that nothing is lost where nobody was asked.

// holding is what the caches know about a name of a Deployment.
type holding struct {
	// deployment is the one of that name, nil if there is none.
	deployment *appsv1.Deployment
	// askers are the Foos that ask for the name.
	askers []*v1alpha1.Foo
	// owner is the Foo that controls the Deployment, nil if there is none or the
	// Deployment's controller is none.
	owner *v1alpha1.Foo
}

// defaults returns what is to be filled in to a Foo that lacks it. A new one's Deployment
// has its own name. One that is changed keeps the name that it had, since leaving it out
// asks for no other, and if it had none it is left alone: it was stored before there was
// a schema, and whoever changes it, perhaps to let it go, asks for no Deployment.
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

// verdict is the answer to somebody who creates or changes a Foo.
type verdict struct {
	// refusal is why it may not be, "" if it may.
	refusal  string
	warnings []string
}

// judge returns the answer for a Foo that is created, or was old before. held is what is
// known of the name that it asks for.
func judge(operation admissionv1.Operation, foo, old *v1alpha1.Foo, held holding) verdict {
	var v verdict
	if ptr.Deref(foo.Spec.Replicas, 1) == 0 && (old == nil || ptr.Deref(old.Spec.Replicas, 1) != 0) {
		v.warnings = append(v.warnings, "spec.replicas is 0: the Deployment will have no Pods")
	}
	if foo.DeletionTimestamp != nil || old != nil && old.Spec.DeploymentName == foo.Spec.DeploymentName {
		return v
	}
	holder := held.by(foo)
	switch {
	case holder == "":
	case operation == admissionv1.Create:
		v.refusal = fmt.Sprintf("%s: the name %q is held by %s; choose another name", nameField, foo.Spec.DeploymentName, holder)
	default:
		// Two Foos may be about to swap their names, or one to take over another's.
		v.warnings = append(v.warnings, fmt.Sprintf("%s: the name %q is held by %s; nothing is done until it is free, and the former Deployment %q stays until then",
			nameField, foo.Spec.DeploymentName, holder, old.Spec.DeploymentName))
	}
	return v
}

// nameField says in words of both versions what a message is about.
const nameField = "spec.deploymentName (v1beta1: spec.deployment.name)"

// by returns in words who keeps the Foo from having the name, "" if nobody does.
func (h holding) by(foo *v1alpha1.Foo) string {
	for _, asker := range h.askers {
		if asker.Name != foo.Name && asker.DeletionTimestamp == nil && h.keeps(asker) {
			return "Foo " + asker.Name
		}
	}
	if h.deployment == nil || h.deployment.DeletionTimestamp != nil {
		return ""
	}
	ref := metav1.GetControllerOfNoCopy(h.deployment)
	switch {
	case ref == nil:
		return "a Deployment that has no controller"
	case controller.ControllerOf(h.deployment, fooKind()) == nil:
		return fmt.Sprintf("a Deployment of %s %s", ref.Kind, ref.Name)
	}
	// It is a Foo's: of this one or of an earlier one of its name, of one that is gone,
	// or of one that is about to go or to leave the name. So it is about to go as well.
	return ""
}

// keeps reports whether a Foo that asks for the name has it, or is going to.
func (h holding) keeps(asker *v1alpha1.Foo) bool {
	if h.deployment == nil || h.deployment.DeletionTimestamp != nil {
		return true
	}
	return h.owner != nil && h.owner.UID == asker.UID
}

func fooKind() schema.GroupKind {
	return schema.GroupKind{Group: v1alpha1.GroupName, Kind: "Foo"}
}
