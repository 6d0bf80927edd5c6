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

package app

import (
	"reflect"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/controller"
)

// A cache keeps only what controllers read: a cluster may have very many Deployments, and
// most of them concern no controller of this process.

// NewTransform returns the cache transform for a resource and selector that controllers
// share.
func NewTransform(descriptors []ControllerDescriptor, resource schema.GroupVersionResource, selector string) cache.TransformFunc {
	var trims []func(any) any
	for _, descriptor := range descriptors {
		for _, of := range descriptor.Informers {
			if of.Resource == resource && of.Selector == selector {
				trims = append(trims, of.Trim)
			}
		}
	}
	return newTransform(trims)
}

// newTransform returns the cache transform for a resource that controllers read with
// those Trims, of which any may be nil.
func newTransform(trims []func(object any) any) cache.TransformFunc {
	for _, trim := range trims {
		if trim == nil {
			return trimAny
		}
	}
	return func(object any) (any, error) {
		for _, trim := range trims {
			if kept := trim(object); kept != nil {
				return kept, nil
			}
		}
		return metadataOnly(object), nil
	}
}

// TypedTrim returns a Trim for an Informer from one for objects of one type.
func TypedTrim[T any](trim func(*T) *T) func(object any) any {
	return func(object any) any {
		if typed, ok := object.(*T); ok {
			if kept := trim(typed); kept != nil {
				return kept
			}
		}
		return nil
	}
}

func trimAny(object any) (any, error) {
	if accessor, err := meta.Accessor(object); err == nil {
		controller.TrimMetadata(accessor)
	}
	return object, nil
}

// metadataOnly returns an object of the same type with the identity, the owners and the
// deletion timestamp alone: controllers that look for an object of a certain name read
// these of any object. It returns as it is what is not an API object.
func metadataOnly(object any) any {
	from, err := meta.Accessor(object)
	if err != nil {
		return object
	}
	kept := reflect.New(reflect.TypeOf(object).Elem()).Interface()
	controller.SetIdentity(kept.(metav1.Object), from)
	return kept
}
