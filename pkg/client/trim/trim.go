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

// Package trim drops what no controller reads from the objects that informers keep, and bounds the rest.
package trim

import (
	"maps"
	"slices"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// Users write labels, owner references and Pod templates of up to 1.5 MB. A cache that kept them would let
// one user exhaust the memory of the process, so what follows keeps what is read, and bounds it.

const (
	// maxOwnerReferences is how many owner references are kept of an object without a controller, for messages.
	maxOwnerReferences = 8
	// maxMessage bounds what is repeated of another component's message: a webhook may answer at any length.
	maxMessage = 4096
	// maxValue bounds a text that is compared, in characters. No text that a controller asks for is longer.
	maxValue = 1024
)

// Metadata drops the labels, annotations, finalizers and managed fields of an object, and trims its owners.
func Metadata(object metav1.Object) {
	object.SetNamespace(Intern(object.GetNamespace()))
	object.SetOwnerReferences(trimOwners(object))
	object.SetLabels(nil)
	object.SetAnnotations(nil)
	object.SetFinalizers(nil)
	object.SetManagedFields(nil)
}

// SetIdentity copies what controllers read of any object: identity, generation, deletion timestamp and owners.
func SetIdentity(to, from metav1.Object) {
	to.SetName(from.GetName())
	to.SetNamespace(Intern(from.GetNamespace()))
	to.SetUID(from.GetUID())
	to.SetResourceVersion(from.GetResourceVersion())
	to.SetGeneration(from.GetGeneration())
	to.SetDeletionTimestamp(from.GetDeletionTimestamp())
	to.SetOwnerReferences(trimOwners(from))
}

// Map returns so many entries of a map, the first by their keys, and one more: that there are too many is drift.
func Map(whole map[string]string, wanted int) map[string]string {
	kept, keys := map[string]string{}, slices.Sorted(maps.Keys(whole))
	for _, key := range keys[:min(len(keys), wanted+1)] {
		kept[Intern(key)] = Bounded(whole[key])
	}
	return kept
}

// trimOwners returns the owner reference of the object's controller, or without one the first references.
func trimOwners(object metav1.Object) []metav1.OwnerReference {
	owners := object.GetOwnerReferences()
	if ref := metav1.GetControllerOfNoCopy(object); ref != nil {
		owners = []metav1.OwnerReference{*ref}
	}
	if len(owners) == 0 {
		return nil
	}
	trimmed := make([]metav1.OwnerReference, min(len(owners), maxOwnerReferences))
	for i := range trimmed {
		owner := &owners[i]
		trimmed[i] = metav1.OwnerReference{
			APIVersion: Intern(Bounded(owner.APIVersion)), Kind: Intern(Bounded(owner.Kind)),
			Name: Bounded(owner.Name), UID: types.UID(Bounded(string(owner.UID))),
			Controller: owner.Controller, BlockOwnerDeletion: owner.BlockOwnerDeletion,
		}
	}
	return trimmed
}

// Conditions interns what conditions have in common. It keeps conditions of other types, because a
// status without them would delete them; the CRD bounds them.
func Conditions(conditions []metav1.Condition) {
	for i := range conditions {
		condition := &conditions[i]
		condition.Type, condition.Reason = Intern(condition.Type), Intern(condition.Reason)
		if condition.Status == metav1.ConditionTrue {
			// Very many objects have no problem, and few messages say so.
			condition.Message = Intern(condition.Message)
		}
	}
}

// Intern returns an equal string of which the process holds one copy.
func Intern(s string) string {
	return unique.Make(s).Value()
}

// Bounded returns the text, cut off after 1024 characters: like the whole text that differs from all
// that a controller asks for.
func Bounded(s string) string {
	return bounded(s, maxValue)
}

// BoundedMessage returns the message, cut off after 4096 characters.
func BoundedMessage(message string) string {
	return bounded(message, maxMessage)
}

func bounded(s string, most int) string {
	characters := 0
	for i := range s {
		if characters == most {
			return s[:i] + "…" // A copy, which does not keep the whole text in memory.
		}
		characters++
	}
	return s
}
