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
	"slices"
	"strings"
	"time"

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

// Object is the type of an object that a controller syncs or owns.
type Object interface {
	comparable
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

// labelHash is how many digits of its hash a shortened name ends in, after a hyphen.
const labelHash = 10

// LabelValue returns name if it is a legal label value (at most 63 characters), else a
// shortened form that ends in a hash of the whole name. A name that could be the shortened form of
// another one gets a hash, too.
func LabelValue(name string) string {
	const kept = validation.LabelValueMaxLength - 1 - labelHash
	if len(name) <= kept || len(name) <= validation.LabelValueMaxLength && !isShortened(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:kept], "-.") + "-" + hex.EncodeToString(sum[:])[:labelHash]
}

// isShortened reports whether the name ends as a shortened name does.
func isShortened(name string) bool {
	prefix, hash := name[:len(name)-labelHash], name[len(name)-labelHash:]
	return strings.HasSuffix(prefix, "-") && strings.Trim(hash, "0123456789abcdef") == ""
}

// NotOwnedHints tell in a message what the user can do about a dependent that the object does
// not control.
type NotOwnedHints struct {
	// Freed says when another object of the kind gives the name up.
	Freed string
	// OtherName says how to ask for another name.
	OtherName string
	// Adopt is the command that has a dependent without a controller adopted, "" if the
	// kind adopts none.
	Adopt string
}

// DescribeNotOwned says why the object does not control the dependent of that kind and what
// the user can do.
func DescribeNotOwned(dependent metav1.Object, dependentKind string, object metav1.Object, gvk schema.GroupVersionKind, hints NotOwnedHints) string {
	name, kind, ref := dependent.GetName(), gvk.Kind, metav1.GetControllerOfNoCopy(dependent)
	adopt := ""
	if hints.Adopt != "" {
		adopt = fmt.Sprintf("have it adopted with %s, or ", hints.Adopt)
	}
	switch {
	case ref == nil && slices.ContainsFunc(dependent.GetOwnerReferences(), func(owner metav1.OwnerReference) bool { return owner.UID == object.GetUID() }):
		return fmt.Sprintf("%s %q lists this %s as an owner but not as its controller; %sset controller: true in that owner reference, or delete the %s", dependentKind, name, kind, adopt, dependentKind)
	case ref == nil:
		return fmt.Sprintf("%s %q exists and has no controller; %sdelete it, or %s", dependentKind, name, adopt, hints.OtherName)
	case ControllerOf(dependent, gvk.GroupKind()) == nil:
		return fmt.Sprintf("%s %q is controlled by %s %q; %s", dependentKind, name, ref.Kind, ref.Name, hints.OtherName)
	case ref.Name == object.GetName():
		return fmt.Sprintf("%s %q belongs to an earlier %s of this name (uid %s); waiting for the garbage collector to remove it", dependentKind, name, kind, ref.UID)
	}
	return fmt.Sprintf("%s %q is controlled by %s %q; this %s takes over the name once that one %s; if you do not want to wait, %s", dependentKind, name, ref.Kind, ref.Name, kind, hints.Freed, hints.OtherName)
}

// Earliest returns how long it is from now to the earliest of the times, 0 if all are zero. A time
// that has passed is as early as can be.
func Earliest(now time.Time, times ...time.Time) (delay time.Duration) {
	for _, at := range times {
		if left := max(at.Sub(now), 1); !at.IsZero() && (delay == 0 || left < delay) {
			delay = left
		}
	}
	return delay
}
