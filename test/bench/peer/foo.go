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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func groupVersion() schema.GroupVersion {
	return schema.GroupVersion{Group: "samplecontroller.k8s.io", Version: "v1alpha1"}
}

// Foo has the fields that k8s.io/sample-controller has. Fewer fields take less time to decode.
type Foo struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata,omitempty"`

	Spec   FooSpec   `json:"spec"`
	Status FooStatus `json:"status"`
}

// FooSpec is what a user asks for.
type FooSpec struct {
	DeploymentName string `json:"deploymentName"`
	Replicas       *int32 `json:"replicas"`
}

// FooStatus is what the controller reports.
type FooStatus struct {
	AvailableReplicas int32 `json:"availableReplicas"`
}

// DeepCopyObject implements runtime.Object.
func (f *Foo) DeepCopyObject() runtime.Object {
	copied := f.deepCopy()
	return &copied
}

func (f *Foo) deepCopy() Foo {
	copied := *f
	f.ObjectMeta.DeepCopyInto(&copied.ObjectMeta)
	if f.Spec.Replicas != nil {
		copied.Spec.Replicas = new(*f.Spec.Replicas)
	}
	return copied
}

// FooList is the answer to a list request.
type FooList struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata,omitempty"`

	Items []Foo `json:"items"`
}

// DeepCopyObject implements runtime.Object.
func (l *FooList) DeepCopyObject() runtime.Object {
	copied := *l
	l.ListMeta.DeepCopyInto(&copied.ListMeta)
	copied.Items = make([]Foo, 0, len(l.Items))
	for i := range l.Items {
		copied.Items = append(copied.Items, l.Items[i].deepCopy())
	}
	return &copied
}
