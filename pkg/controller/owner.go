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
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
)

// FieldManager is the field manager of every write.
const FieldManager = "sample-controller"

// ManagedByLabel and ManagedByValue are the label of every object that this program
// creates.
const (
	ManagedByLabel = "app.kubernetes.io/managed-by"
	ManagedByValue = "sample-controller"
)

// Object is an object that a controller syncs.
type Object interface {
	metav1.Object
	runtime.Object
}

// ControllerOf returns the owner reference of the object's controller if that is of the
// kind, in any version, else nil.
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

// OwnerKey returns the value of an IndexByOwner index for the owner with that UID.
func OwnerKey(namespace string, uid types.UID) string {
	return namespace + "/" + string(uid)
}

// IndexByOwner returns an index function whose value is the namespace and the UID of the
// object's controller if that is of the kind.
func IndexByOwner[T metav1.Object](kind schema.GroupKind) func(T) ([]string, error) {
	return func(object T) ([]string, error) {
		if ref := ControllerOf(object, kind); ref != nil {
			return []string{OwnerKey(object.GetNamespace(), ref.UID)}, nil
		}
		return nil, nil
	}
}

// LookUp returns the objects that have the value in an index. It panics if the index was
// not added.
func LookUp[T any](indexer cache.TypedIndexer[T], index, value string) []T {
	found, err := indexer.ByTypedIndex(index, value)
	if err != nil {
		panic(fmt.Sprintf("index %q was not added: %v", index, err))
	}
	return found
}

// LabelValue returns name if it is a legal label value (at most 63 characters), else a
// shortened form that ends in a hash of the whole name.
func LabelValue(name string) string {
	if len(name) <= validation.LabelValueMaxLength {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	suffix := "-" + hex.EncodeToString(sum[:])[:10]
	return strings.TrimRight(name[:validation.LabelValueMaxLength-len(suffix)], "-.") + suffix
}
