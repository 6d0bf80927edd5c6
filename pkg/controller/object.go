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
	"fmt"
	"maps"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/client/trim"
)

// FieldManager is the field manager of every write.
const FieldManager = "sample-controller"

// ManagedByLabel and ManagedByValue are the label of every object that this program creates.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedByValue = "sample-controller"
)

// Object is the type of an object that a controller syncs or owns.
type Object interface {
	comparable
	metav1.Object
	runtime.Object
}

// ControllerOf returns the owner reference of the object's controller if that is of the kind, else nil.
func ControllerOf(object metav1.Object, kind schema.GroupKind) *metav1.OwnerReference {
	ref := metav1.GetControllerOfNoCopy(object)
	if ref == nil || schema.FromAPIVersionAndKind(ref.APIVersion, ref.Kind).GroupKind() != kind {
		return nil
	}
	return ref
}

// IsControlledBy reports whether the object's controller is this owner, by kind and UID.
func IsControlledBy(object, owner metav1.Object, kind schema.GroupKind) bool {
	ref := ControllerOf(object, kind)
	return ref != nil && ref.UID == owner.GetUID()
}

// ByOwner is the name of an index that IndexByOwner makes.
const ByOwner = "controller"

// IndexByOwner returns an index function whose value is the UID of the object's controller of that kind.
func IndexByOwner[T metav1.Object](kind schema.GroupKind) func(T) ([]string, error) {
	return func(object T) ([]string, error) {
		if ref := ControllerOf(object, kind); ref != nil {
			return []string{string(ref.UID)}, nil
		}
		return nil, nil
	}
}

// LookUpOwned returns the objects whose controller the index ByOwner knows by the owner's UID. An owner
// reference is valid only within a namespace.
func LookUpOwned[T metav1.Object](indexer cache.TypedIndexer[T], owner metav1.Object) []T {
	return slices.DeleteFunc(LookUp(indexer, ByOwner, string(owner.GetUID())), func(object T) bool {
		return object.GetNamespace() != owner.GetNamespace()
	})
}

// LookUp returns the objects that have the value in an index. It panics if the index was not added.
func LookUp[T any](indexer cache.TypedIndexer[T], index, value string) []T {
	found, err := indexer.ByTypedIndex(index, value)
	if err != nil {
		panic(fmt.Sprintf("index %q was not added: %v", index, err))
	}
	return found
}

// stored returns the object of that name in the store, nil if there is none.
func stored[T Object](store cache.TypedIndexer[T], key cache.ObjectName) (object T) {
	// A store's GetByKey returns no error.
	if found, exists, _ := store.GetByKey(key.String()); exists {
		object = found.(T)
	}
	return object
}

// isCurrent reports whether the live object is the cached one, in the same generation and not terminating.
func isCurrent(live, cached metav1.Object) bool {
	return live.GetUID() == cached.GetUID() && live.GetGeneration() == cached.GetGeneration() && !isTerminating(live)
}

func isTerminating(object metav1.Object) bool {
	return object.GetDeletionTimestamp() != nil
}

// NotOwnedHints tell what the user can do about a dependent that the object does not control.
type NotOwnedHints struct {
	// Freed says when another object of the kind gives the name up, OtherName how to ask for another name.
	Freed, OtherName string
	// Adopt is the command that has a dependent without a controller adopted, "" if the kind adopts none.
	Adopt string
}

// DescribeNotOwned says why the object does not control the dependent, and what the user can do.
func DescribeNotOwned(dependent metav1.Object, dependentKind string, object metav1.Object, gvk schema.GroupVersionKind, hints NotOwnedHints) string {
	isObject := func(owner metav1.OwnerReference) bool { return owner.UID == object.GetUID() }
	text, kind, adopt := fmt.Sprintf("%s %q ", dependentKind, dependent.GetName()), gvk.Kind, ""
	if hints.Adopt != "" {
		adopt = "have it adopted with " + hints.Adopt + ", or "
	}
	switch ref := metav1.GetControllerOfNoCopy(dependent); {
	case ref == nil && slices.ContainsFunc(dependent.GetOwnerReferences(), isObject):
		return text + "lists this " + kind + " as an owner but not as its controller; " + adopt + "set controller: true in that owner reference, or delete the " + dependentKind
	case ref == nil:
		return text + "exists and has no controller; " + adopt + "delete it, or " + hints.OtherName
	case ref.Name == object.GetName() && ControllerOf(dependent, gvk.GroupKind()) != nil:
		return text + "belongs to an earlier " + kind + " of this name (uid " + string(ref.UID) + "); waiting for the garbage collector to remove it"
	default:
		if text += fmt.Sprintf("is controlled by %s %q; ", ref.Kind, ref.Name); ControllerOf(dependent, gvk.GroupKind()) != nil {
			text += "this " + kind + " takes over the name once that one " + hints.Freed + "; if you do not want to wait, "
		}
		return text + hints.OtherName
	}
}

const (
	// largeMark is an annotation that exists only in caches: the whole object was large.
	largeMark = "sample-controller/large"
	// maxEncoded is how many bytes an object may take as protobuf before it is large.
	maxEncoded = 32 << 10
)

// SetOwned copies what controllers read of any dependent: what SetIdentity does, and the label of this program.
func SetOwned(to, from metav1.Object) {
	trim.SetIdentity(to, from)
	if value, ok := from.GetLabels()[ManagedByLabel]; ok {
		to.SetLabels(map[string]string{ManagedByLabel: trim.Intern(value)})
	}
}

// MarkLarge marks the trimmed object if what is left out of whole may be large in memory: an empty element
// takes 2 bytes in a request and up to 200 when it is decoded (docs/contract.md, rule 24).
func MarkLarge(trimmed metav1.Object, whole interface{ Size() int }) {
	if whole.Size() > maxEncoded {
		annotations := map[string]string{largeMark: ""}
		maps.Copy(annotations, trimmed.GetAnnotations())
		trimmed.SetAnnotations(annotations)
	}
}

// isLarge reports whether MarkLarge has marked the object.
func isLarge(object metav1.Object) bool {
	_, marked := object.GetAnnotations()[largeMark]
	return marked
}
