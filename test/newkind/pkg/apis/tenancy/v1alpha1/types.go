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

// Reasons of the Ready condition of a Tenant.
const (
	// ReasonConfigMapReady is the reason for True: all is as the spec asks.
	ReasonConfigMapReady = "ConfigMapReady"
	// ReasonConfigMapProgressing says that the ConfigMap does not exist yet, or waits for a repair.
	ReasonConfigMapProgressing = "ConfigMapProgressing"
	// ReasonConfigMapNotOwned says that a ConfigMap of the name exists and has another controller, or none.
	ReasonConfigMapNotOwned = "ConfigMapNotOwned"
	// ReasonConfigMapContested says that another writer keeps changing what is enforced on the ConfigMap.
	ReasonConfigMapContested = "ConfigMapContested"
	// ReasonConfigMapRejected says that the API server refuses a write: it is invalid, or a quota, a policy or RBAC forbids
	// it.
	ReasonConfigMapRejected = "ConfigMapRejected"
	// +external:begin
	// ReasonItemFailed says that the external service does not have the item as the spec asks.
	ReasonItemFailed = "ItemFailed"
	// ReasonItemDeletionFailed says that the Tenant is terminating, and the external service has not deleted
	// its item.
	ReasonItemDeletionFailed = "ItemDeletionFailed"
	// +external:end
	// ReasonInvalidSpec says that the controller cannot act on the spec.
	ReasonInvalidSpec = "InvalidSpec"
)

// Tenant asks for a ConfigMap of its name.
// +external:begin
//
// It also asks for an item in an external service.
// +external:end
//
// +genclient
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=tenants,singular=tenant,categories=all
// +kubebuilder:subresource:status
// +external:begin
// +kubebuilder:printcolumn:name="Item",type=string,JSONPath=`.status.itemID`,description="The ID of its item in the external service"
// +external:end
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether all is as the spec asks"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the Tenant is or is not ready"
type Tenant struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the state that the user asks for.
	// +required
	Spec TenantSpec `json:"spec,omitzero"`

	// status is the state that the controller last saw.
	// +optional
	Status TenantStatus `json:"status,omitzero"`
}

// TenantSpec is the state that the user asks for.
type TenantSpec struct {
	// displayName is the name for people.
	// +required
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=63
	DisplayName string `json:"displayName,omitempty"`
}

// TenantStatus is the state that the controller last saw.
type TenantStatus struct {
	// observedGeneration is the metadata.generation that the controller last acted upon.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// +external:begin
	// itemID is the ID of the item in the external service, "" if the controller has written none.
	// +optional
	// +kubebuilder:validation:MaxLength=63
	ItemID string `json:"itemID,omitempty"`
	// +external:end

	// conditions are the Tenant's conditions. The controller sets the type "Ready" and does not change other
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

// TenantList is a list of Tenants.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type TenantList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the Tenants.
	Items []Tenant `json:"items"`
}

// GetConditions returns the Tenant's conditions.
func (s *Tenant) GetConditions() []metav1.Condition {
	return s.Status.Conditions
}
