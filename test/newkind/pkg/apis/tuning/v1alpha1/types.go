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

package v1alpha1

import (
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Reasons of the Ready condition of a Setting.
const (
	// ReasonConfigMapReady is the reason for True: the ConfigMap is as the spec asks.
	ReasonConfigMapReady = "ConfigMapReady"
	// ReasonConfigMapProgressing says that the ConfigMap does not exist yet, or waits for a repair.
	ReasonConfigMapProgressing = "ConfigMapProgressing"
	// ReasonConfigMapNotOwned says that a ConfigMap of the name exists and has another controller, or none.
	ReasonConfigMapNotOwned = "ConfigMapNotOwned"
	// ReasonConfigMapContested says that another writer keeps changing what is enforced on the ConfigMap.
	ReasonConfigMapContested = "ConfigMapContested"
	// ReasonConfigMapRejected says that the API server refuses the ConfigMap: it is invalid, or a quota, a
	// policy or RBAC forbids it.
	ReasonConfigMapRejected = "ConfigMapRejected"
	// ReasonInvalidSpec says that the controller cannot act on the spec.
	ReasonInvalidSpec = "InvalidSpec"
)

// Setting asks for a ConfigMap of its name.
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=settings,singular=setting,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether its ConfigMap is as the spec asks"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the Setting is or is not ready"
type Setting struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the state that the user asks for.
	// +optional
	Spec SettingSpec `json:"spec,omitzero"`

	// status is the state that the controller last saw.
	// +optional
	Status SettingStatus `json:"status,omitzero"`
}

// SettingSpec is the state that the user asks for.
type SettingSpec struct {
	// data is the data of the ConfigMap.
	// ---
	// The bounds keep the caches of the controller small, and its messages whole.
	// +optional
	// +kubebuilder:validation:MaxProperties=16
	// +kubebuilder:validation:XValidation:rule="self.map(key, size(key) + size(self[key])).sum() <= 900",message="keys and values must have no more than 900 characters together: controllers keep them in memory"
	Data map[string]string `json:"data,omitempty"`
}

// SettingStatus is the state that the controller last saw.
type SettingStatus struct {
	// observedGeneration is the metadata.generation that the controller last acted upon.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// conditions are the Setting's conditions. The controller sets the type "Ready" and does not change other
	// types.
	// +optional
	// +patchMergeKey=type
	// +patchStrategy=merge
	// +listType=map
	// +listMapKey=type
	// +kubebuilder:validation:MaxItems=16
	// +kubebuilder:validation:XValidation:rule="self.map(c, size(c.message)).sum() <= 32768",message="the messages of all conditions must have no more than 32768 characters together: controllers keep them in memory"
	Conditions []metav1.Condition `json:"conditions,omitempty" patchStrategy:"merge" patchMergeKey:"type"`
}

// SettingList is a list of Settings.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type SettingList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the Settings.
	Items []Setting `json:"items"`
}

// GetConditions returns the Setting's conditions.
func (s *Setting) GetConditions() []metav1.Condition {
	return s.Status.Conditions
}
