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

// Package child keeps the one Deployment that an object asks for, its parent: rules
// 3 to 7, 11, 12 and 21 of docs/contract.md, which are the same for every kind of
// parent. What the Deployment is to look like, and when it is to go, is the parent's
// controller's affair.
//
// This file decides, from values alone; keeper.go acts.
package child

import (
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/sample-controller/pkg/controller"
)

// Action is what a sync does about the Deployment that a parent asks for.
type Action int

const (
	// None leaves the Deployment alone: it is as it should be, or on its way out.
	None Action = iota
	// Create creates it.
	Create
	// Mend patches the fields that the controller owns.
	Mend
	// Wait leaves it alone because it is not this parent's.
	Wait
)

// Verdict is the decision on the Deployment that a parent asks for.
type Verdict struct {
	Action Action
	// Create is the Deployment to POST, for Create.
	Create *appsv1.Deployment
	// Repair is the patch to send, for Mend.
	Repair Repair
	// Invalid says why the spec cannot be acted upon in full, and what to do.
	Invalid string
}

// Kind is a kind of parents.
type Kind struct {
	schema.GroupVersionKind
	// Elsewhere says what to do where the Deployment's name is taken, and LetsGo when
	// another parent gives it up.
	Elsewhere, LetsGo string
}

// ControllerOf returns the owner reference of the parent of this kind, in whatever
// version, that controls the object, or nil if its controller is something else or
// nothing.
func (k Kind) ControllerOf(object metav1.Object) *metav1.OwnerReference {
	return controller.ControllerOf(object, k.GroupKind())
}

// Owns reports whether this very parent, by UID, controls the Deployment.
func (k Kind) Owns(parent metav1.Object, deployment *appsv1.Deployment) bool {
	ref := k.ControllerOf(deployment)
	return ref != nil && ref.UID == parent.GetUID()
}

// Reference returns the owner reference that makes the parent the controller of a
// Deployment.
func (k Kind) Reference(parent metav1.Object) metav1.OwnerReference {
	return *metav1.NewControllerRef(parent, k.GroupVersionKind)
}

// Decide returns what to do about the Deployment of the name that the parent asks
// for, nil if there is none. create makes the one to be created, drift compares one
// that is the parent's.
func (k Kind) Decide(parent metav1.Object, deployment *appsv1.Deployment, create func() *appsv1.Deployment, drift func() Repair) Verdict {
	switch {
	case deployment == nil:
		return Verdict{Action: Create, Create: create()}
	case !k.Owns(parent, deployment):
		return Verdict{Action: Wait}
	case deployment.DeletionTimestamp != nil:
		return Verdict{Action: None}
	}
	if repair := drift(); len(repair.Changes) > 0 {
		return Verdict{Action: Mend, Repair: repair}
	}
	return Verdict{Action: None}
}
