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

package v1beta1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Foo asks for a Deployment of nginx.
//
// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=foos,singular=foo,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.replicas,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:selectablefield:JSONPath=`.spec.deployment.name`
// +drop:fork
// +kubebuilder:metadata:annotations="api-approved.kubernetes.io=unapproved, experimental-only"
// +drop:end
// +kubebuilder:printcolumn:name="Deployment",type=string,JSONPath=`.spec.deployment.name`,description="The Deployment that the Foo asks for"
// +kubebuilder:printcolumn:name="Desired",type=integer,JSONPath=`.spec.replicas`,description="How many Pods the Foo asks for"
// +kubebuilder:printcolumn:name="Available",type=integer,JSONPath=`.status.availableReplicas`,description="How many Pods of the Foo's Deployment are available"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether the Foo owns the Deployment and its rollout is complete"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the Foo is or is not ready"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.deployment.image`,description="The image that the Foo enforces, if any"
type Foo struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the state that the user asks for.
	// ---
	// It is optional because Foos were stored without a spec before this schema existed. If
	// it were required, the API server would refuse every update of these, even one that
	// removes a finalizer.
	// +optional
	Spec FooSpec `json:"spec,omitzero"`

	// status is the state that the controller last saw.
	// +optional
	Status FooStatus `json:"status,omitzero"`
}

// FooSpec is the state that the user asks for.
type FooSpec struct {
	// deployment says which Deployment to run.
	// +required
	Deployment FooDeployment `json:"deployment,omitzero"`

	// replicas is the number of Pods that the Deployment should run.
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=0
	Replicas *int32 `json:"replicas,omitempty"`
}

// FooDeployment says which Deployment a Foo asks for.
type FooDeployment struct {
	// name is the name of the Deployment to run, in the Foo's namespace.
	// +drop:rename
	// When it changes, the controller creates the new Deployment, and deletes the old one
	// once the Pods of the new one are available.
	// +drop:end
	// +without:rename +kubebuilder:validation:XValidation:rule="self == oldSelf",message="cannot be changed"
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=253
	// +kubebuilder:validation:XValidation:rule="!format.dns1123Subdomain().validate(self).hasValue()",message="must be a lowercase RFC 1123 subdomain: lower case alphanumeric characters, '-' or '.', starting and ending with an alphanumeric character (for example 'example-foo')"
	Name string `json:"name"`

	// image is the image of the container nginx. If it is unset, a new Deployment
	// gets nginx:latest, and the controller does not change the image of an
	// existing one.
	// +optional
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Image string `json:"image,omitempty"`
}

// FooStatus is the state that the controller last saw.
type FooStatus struct {
	// observedGeneration is the metadata.generation that the controller last
	// acted upon.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// availableReplicas is the number of available Pods that the Foo's Deployment
	// reports; 0 while the Foo does not own the Deployment that its spec names.
	// +optional
	AvailableReplicas int32 `json:"availableReplicas"`

	// replicas is the number of Pods that the Foo's Deployment reports, for the
	// scale subresource.
	// +optional
	Replicas int32 `json:"replicas"`

	// selector is the label selector of the Foo's Deployment in its string
	// form, for the scale subresource.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Selector string `json:"selector,omitempty"`

	// conditions are the Foo's conditions. The controller sets the type "Ready" and
	// does not change other types.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(c, size(c.message)).sum() <= 32768",message="the messages of all conditions must have no more than 32768 characters together: controllers keep them in memory"
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// FooList is a list of Foos.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type FooList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the Foos.
	Items []Foo `json:"items"`
}
