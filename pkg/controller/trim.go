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

package controller

import (
	"maps"
	"reflect"
	"strings"
	"unique"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
)

// The API server lets users write labels, finalizers, owner references and Pod templates of up
// to 1.5 MB, and annotations of up to 256 KiB. A cache that kept them would let one user exhaust the memory of
// the process, so the functions of this file keep what is read, and bound it.

const (
	// maxOwnerReferences is how many owner references are kept of an object that has no
	// controller. Messages are about them, and nothing else.
	maxOwnerReferences = 8
	// maxValue bounds a text that is compared, in characters, as a CRD does (maxLength). No
	// text that a controller asks for is longer.
	maxValue = 1024
)

// TrimMetadata drops from a cached object the metadata that no controller reads: labels,
// annotations, finalizers and managed fields. Of the owners it keeps what SetIdentity keeps.
//
// A status written from a trimmed object does not delete them: of a PUT to the status of a
// custom resource the API server takes the status alone, and the rest from the stored
// object (statusStrategy in k8s.io/apiextensions-apiserver). Mutating admission webhooks for
// the status see the trimmed object. A CRD without the status subresource answers 404.
func TrimMetadata(object metav1.Object) {
	object.SetNamespace(Intern(object.GetNamespace()))
	object.SetOwnerReferences(trimOwners(object))
	object.SetLabels(nil)
	object.SetAnnotations(nil)
	object.SetFinalizers(nil)
	object.SetManagedFields(nil)
}

// SetIdentity copies from an object what controllers read of any object: its identity, its
// deletion timestamp and its owners.
func SetIdentity(to, from metav1.Object) {
	to.SetName(from.GetName())
	to.SetNamespace(Intern(from.GetNamespace()))
	to.SetUID(from.GetUID())
	to.SetResourceVersion(from.GetResourceVersion())
	to.SetDeletionTimestamp(from.GetDeletionTimestamp())
	to.SetOwnerReferences(trimOwners(from))
}

// trimOwners returns the owner reference of the object's controller, or without a controller
// the first references.
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

// TrimConditions interns what conditions have in common. It keeps conditions of other types,
// because a PUT of the status without them would delete them; the CRD bounds them.
func TrimConditions(conditions []metav1.Condition) {
	for i := range conditions {
		condition := &conditions[i]
		condition.Type, condition.Reason = Intern(condition.Type), Intern(condition.Reason)
		if condition.Status == metav1.ConditionTrue {
			// Very many objects have no problem, and few messages say so.
			condition.Message = Intern(condition.Message)
		}
	}
}

// largeMark is an annotation that exists only in caches: the whole object was large.
const largeMark = "sample-controller/large"

// maxElements is how many bytes the elements of an object's lists may take before it is large.
const maxElements = 64 << 10

// MarkLarge marks the trimmed object if what is left out of whole is large in memory: an empty
// element takes 2 bytes in a request and up to 200 when it is decoded. A live read of 8 such objects
// at a time would exhaust the memory of the process (docs/contract.md, rule 24).
func MarkLarge(trimmed metav1.Object, whole any) {
	if elementSize(reflect.ValueOf(whole), maxElements) > maxElements {
		annotations := maps.Clone(trimmed.GetAnnotations())
		if annotations == nil {
			annotations = map[string]string{}
		}
		annotations[largeMark] = ""
		trimmed.SetAnnotations(annotations)
	}
}

// isLarge reports whether MarkLarge has marked the object.
func isLarge(object metav1.Object) bool {
	_, marked := object.GetAnnotations()[largeMark]
	return marked
}

// elementSize returns the size of the elements of all lists and maps in the value, in bytes. It
// stops once that is more than limit.
func elementSize(value reflect.Value, limit int) (size int) {
	switch value.Kind() {
	case reflect.Pointer, reflect.Interface:
		if !value.IsNil() {
			size = elementSize(value.Elem(), limit)
		}
	case reflect.Struct:
		for i := 0; i < value.NumField() && size <= limit; i++ {
			size += elementSize(value.Field(i), limit-size)
		}
	case reflect.Slice:
		size = value.Len() * int(value.Type().Elem().Size())
		if kind := value.Type().Elem().Kind(); kind == reflect.Uint8 || kind == reflect.String {
			return size
		}
		for i := 0; i < value.Len() && size <= limit; i++ {
			size += elementSize(value.Index(i), limit-size)
		}
	case reflect.Map:
		return value.Len() * int(value.Type().Key().Size()+value.Type().Elem().Size())
	default:
	}
	return size
}

// LastWritten returns the managed fields of an object with one entry, whose time is the
// latest at which anything but a subresource was written.
func LastWritten(managedFields []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var latest *metav1.Time
	for i := range managedFields {
		if entry := &managedFields[i]; entry.Subresource == "" && entry.Time != nil && (latest == nil || latest.Before(entry.Time)) {
			latest = entry.Time
		}
	}
	if latest == nil {
		return nil
	}
	return []metav1.ManagedFieldsEntry{{Time: latest}}
}

// Intern returns an equal string of which the process holds one copy.
func Intern(s string) string {
	return unique.Make(s).Value()
}

// Bounded returns the text, cut off after 1024 characters. A text that is cut off differs from
// all that a controller asks for, as the whole text does. The copy does not keep the whole text
// in memory.
func Bounded(s string) string {
	characters := 0
	for i := range s {
		if characters == maxValue {
			return strings.Clone(s[:i]) + "…"
		}
		characters++
	}
	return s
}
