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

// MemcachedReady is the type of the only condition that the controller sets on a
// Memcached. It and its reasons mean the same as on a Foo: the reasons are the constants
// Reason… of pkg/apis/samplecontroller/v1alpha1.
const MemcachedReady = "Ready"

// Memcached asks for a number of memcached Pods.
//
// +genclient
// +genclient:method=GetScale,verb=get,subresource=scale,result=k8s.io/api/autoscaling/v1.Scale
// +genclient:method=UpdateScale,verb=update,subresource=scale,input=k8s.io/api/autoscaling/v1.Scale,result=k8s.io/api/autoscaling/v1.Scale
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
// +kubebuilder:resource:path=memcacheds,singular=memcached,categories=all
// +kubebuilder:subresource:status
// +kubebuilder:subresource:scale:specpath=.spec.size,statuspath=.status.replicas,selectorpath=.status.selector
// +kubebuilder:printcolumn:name="Size",type=integer,JSONPath=`.spec.size`,description="How many Pods the Memcached asks for"
// +kubebuilder:printcolumn:name="Ready Nodes",type=integer,JSONPath=`.status.readyReplicas`,description="How many of its Pods are ready"
// +kubebuilder:printcolumn:name="Ready",type=string,JSONPath=`.status.conditions[?(@.type=="Ready")].status`,description="Whether its Deployment is complete"
// +kubebuilder:printcolumn:name="Age",type=date,JSONPath=`.metadata.creationTimestamp`
// +kubebuilder:printcolumn:name="Reason",type=string,priority=1,JSONPath=`.status.conditions[?(@.type=="Ready")].reason`,description="Why the Memcached is or is not ready"
// +kubebuilder:printcolumn:name="Image",type=string,priority=1,JSONPath=`.spec.image`,description="The image that its Pods run"
// +kubebuilder:printcolumn:name="Port",type=integer,priority=1,JSONPath=`.spec.port`,description="The port that its Pods listen on"
type Memcached struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard object's metadata.
	// +optional
	metav1.ObjectMeta `json:"metadata,omitempty"`

	// spec is the state that the user asks for.
	// ---
	// The default makes the API server set the defaults of the fields if the spec is
	// missing.
	// +optional
	// +default={}
	Spec MemcachedSpec `json:"spec,omitzero"`

	// status is the state that the controller last saw.
	// +optional
	Status MemcachedStatus `json:"status,omitzero"`
}

// MemcachedSpec is the state that the user asks for.
type MemcachedSpec struct {
	// size is the number of memcached Pods to run.
	// +optional
	// +default=1
	// +kubebuilder:validation:Minimum=0
	Size *int32 `json:"size,omitempty"`

	// image is the image that the Pods run.
	// +optional
	// +default="memcached:1.6-alpine"
	// +kubebuilder:validation:MinLength=1
	// +kubebuilder:validation:MaxLength=255
	Image string `json:"image,omitempty"`

	// port is the TCP port that memcached listens on.
	// +optional
	// +default=11211
	// +kubebuilder:validation:Minimum=1
	// +kubebuilder:validation:Maximum=65535
	Port *int32 `json:"port,omitempty"`

	// memoryMegabytes is how much memory memcached uses for items in each Pod, in megabytes.
	// memcached itself takes some more. If it is not set, memcached uses 64.
	// ---
	// A default would be written into stored Memcacheds.
	// +optional
	// +kubebuilder:validation:Minimum=1
	MemoryMegabytes *int32 `json:"memoryMegabytes,omitempty"`

	// topologyKey is the label of the nodes over whose values the Pods are spread as evenly as
	// possible, such as topology.kubernetes.io/zone. If it is not set, the controller leaves
	// the topology spread constraints of the Deployment as they are.
	// +optional
	// +kubebuilder:validation:MaxLength=317
	// +kubebuilder:validation:Pattern=`^([a-z0-9]([-a-z0-9.]*[a-z0-9])?/)?([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]$`
	TopologyKey string `json:"topologyKey,omitempty"`
}

// MemcachedStatus is the state that the controller last saw.
type MemcachedStatus struct {
	// observedGeneration is the metadata.generation that the controller last
	// acted upon.
	// +optional
	ObservedGeneration int64 `json:"observedGeneration,omitempty"`

	// nodes are the names of the Memcached's live Pods, sorted, the first 1000 of them.
	// ---
	// Never null, so that clients can iterate over it without a check. The schema does not
	// bound the number: it would refuse the statuses of controllers that do not either.
	// +optional
	// +default=[]
	// +listType=atomic
	// +kubebuilder:validation:items:MaxLength=253
	Nodes []string `json:"nodes"`

	// readyReplicas is the number of Pods that are ready; 0 while the Memcached
	// has no Deployment of its own.
	// +optional
	ReadyReplicas int32 `json:"readyReplicas"`

	// replicas is the number of Pods that the Memcached's Deployment reports, for
	// the scale subresource.
	// +optional
	Replicas int32 `json:"replicas"`

	// selector is the label selector of the Memcached's Deployment in its string
	// form, for the scale subresource.
	// +optional
	// +kubebuilder:validation:MaxLength=4096
	Selector string `json:"selector,omitempty"`

	// conditions are the Memcached's conditions. The controller sets the type "Ready" and
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

// MemcachedList is a list of Memcacheds.
//
// +k8s:deepcopy-gen:interfaces=k8s.io/apimachinery/pkg/runtime.Object
// +kubebuilder:object:root=true
type MemcachedList struct {
	metav1.TypeMeta `json:",inline"`
	// metadata is the standard list's metadata.
	// +optional
	metav1.ListMeta `json:"metadata,omitempty"`

	// items are the Memcacheds.
	Items []Memcached `json:"items"`
}

// GetConditions returns the Memcached's conditions.
func (m *Memcached) GetConditions() []metav1.Condition {
	return m.Status.Conditions
}
