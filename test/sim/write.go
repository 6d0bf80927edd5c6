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

package sim

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	validation "k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/sample-controller/test/stored"
)

// create stores a new object.
func (s *Store) create(o *objects, object Object) error {
	if o.present[object.GetName()] != nil {
		return apierrors.NewAlreadyExists(o.GroupResource, object.GetName())
	}
	stored.SetDefaults(object)
	o.uids++
	object.SetUID(types.UID(fmt.Sprintf("uid-%s-%d-%s", o.GroupResource.Resource, o.uids, object.GetName())))
	object.SetNamespace(Namespace)
	object.SetGeneration(1)
	object.SetCreationTimestamp(s.now().Rfc3339Copy())
	s.store(o, watch.Added, object)
	return nil
}

// replace stores a new version of a present object. A change of the spec increments the
// generation; without any change there is no new version.
func (s *Store) replace(o *objects, object Object) {
	old := o.present[object.GetName()]
	stored.SetDefaults(object)
	if sameObject(old, object) {
		return
	}
	if !sameIntent(old, object) {
		object.SetGeneration(old.GetGeneration() + 1)
	}
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		s.store(o, watch.Deleted, copyOf(old))
		return
	}
	s.store(o, watch.Modified, object)
}

// checkPreconditions returns why an object must not be deleted.
func (s *Store) checkPreconditions(o *objects, name string, conditions *metav1.Preconditions) error {
	object := o.present[name]
	switch {
	case object == nil:
		return apierrors.NewNotFound(o.GroupResource, name)
	case conditions == nil:
	case conditions.UID != nil && *conditions.UID != object.GetUID() || conditions.ResourceVersion != nil && *conditions.ResourceVersion != object.GetResourceVersion():
		return apierrors.NewConflict(o.GroupResource, name, errors.New("the preconditions are not met"))
	}
	return nil
}

// remove deletes an object, or sets its deletion timestamp if it has finalizers.
func (s *Store) remove(o *objects, name string, options metav1.DeleteOptions) error {
	if err := s.checkPreconditions(o, name, options.Preconditions); err != nil {
		return err
	}
	old := o.present[name]
	object := copyOf(old)
	finalizers := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), isPropagation)
	if options.PropagationPolicy != nil {
		switch *options.PropagationPolicy {
		case metav1.DeletePropagationForeground:
			finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
		case metav1.DeletePropagationOrphan:
			finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
		}
	}
	if len(finalizers) == 0 {
		if p := options.Preconditions; p != nil && p.ResourceVersion != nil && len(old.GetFinalizers()) > 0 {
			// The API server compares the version of an update that it did not make.
			return apierrors.NewConflict(o.GroupResource, name, errors.New("the preconditions are not met"))
		}
		s.store(o, watch.Deleted, object)
		return nil
	}
	object.SetFinalizers(finalizers)
	if object.GetDeletionTimestamp() == nil {
		now := s.now()
		object.SetDeletionTimestamp(&now)
		object.SetDeletionGracePeriodSeconds(ptr.To[int64](0))
		object.SetGeneration(object.GetGeneration() + 1)
	}
	if !sameObject(old, object) {
		s.store(o, watch.Modified, object)
	}
	return nil
}

// patch applies a strategic merge patch to a built-in object, or a JSON merge patch to another one: to the status
// or to all but that. A resourceVersion in it is a precondition.
func (s *Store) patch(o *objects, r *Request) (Object, error) {
	before := o.present[r.Name]
	if before == nil {
		return nil, apierrors.NewNotFound(o.GroupResource, r.Name)
	}
	text, err := json.Marshal(before)
	if err == nil && r.PatchType == types.StrategicMergePatchType {
		text, err = strategicpatch.StrategicMergePatch(text, r.Patch, o.New())
	} else if err == nil {
		text, err = jsonpatch.MergePatch(text, r.Patch)
	}
	merged := o.New()
	if err == nil {
		err = json.Unmarshal(text, merged)
	}
	if err != nil {
		return nil, apierrors.NewBadRequest(err.Error())
	}
	if merged.GetResourceVersion() != before.GetResourceVersion() {
		return nil, apierrors.NewConflict(o.GroupResource, r.Name, errors.New("the object has been modified"))
	}
	if r.Subresource == "status" {
		if err := s.checkPolicy(o, r); err != nil {
			return nil, err
		}
		after := copyOf(before)
		field(after, "Status").Set(field(merged, "Status"))
		s.replace(o, after)
		return after, nil
	}
	controllers := slices.DeleteFunc(slices.Clone(merged.GetOwnerReferences()), func(ref metav1.OwnerReference) bool { return !ptr.Deref(ref.Controller, false) })
	if len(controllers) > 1 {
		kind, path := schema.GroupKind{Group: o.Group, Kind: reflect.TypeOf(before).Elem().Name()}, validation.NewPath("metadata", "ownerReferences")
		return nil, apierrors.NewInvalid(kind, r.Name, validation.ErrorList{validation.Invalid(path, nil, "only one can be the controller")})
	}
	if err := s.checkPolicy(o, r); err != nil {
		return nil, err
	}
	if status := field(merged, "Status"); status.IsValid() {
		status.Set(field(before, "Status"))
	}
	noteManager(before, merged, true)
	s.replace(o, s.admit(merged))
	return merged, nil
}

// admit returns the object as the policy of Rewrite changes Deployments, if that is in force.
func (s *Store) admit(object Object) Object {
	deployment, ok := object.(*appsv1.Deployment)
	if !ok {
		return object
	}
	if s.Strips {
		deployment.OwnerReferences = nil
	}
	for i := range deployment.Spec.Template.Spec.Containers {
		if image := &deployment.Spec.Template.Spec.Containers[i].Image; s.Rewrites && !strings.HasPrefix(*image, stored.Mirror) {
			*image = stored.Mirror + *image
		}
	}
	return deployment
}

// field returns that field of an object, an invalid value if there is none.
func field(object Object, name string) reflect.Value {
	return reflect.ValueOf(object).Elem().FieldByName(name)
}

// sameObject compares two objects without their resource versions.
func sameObject(a, b Object) bool {
	if a.GetResourceVersion() != b.GetResourceVersion() {
		b = copyOf(b)
		b.SetResourceVersion(a.GetResourceVersion())
	}
	return equality.Semantic.DeepEqual(a, b)
}

// sameIntent compares what the generation counts changes of: the spec, and of Deployments also annotations.
func sameIntent(a, b Object) bool {
	if _, ok := a.(*appsv1.Deployment); ok && !equality.Semantic.DeepEqual(a.GetAnnotations(), b.GetAnnotations()) {
		return false
	}
	spec := field(a, "Spec")
	return !spec.IsValid() || equality.Semantic.DeepEqual(spec.Interface(), field(b, "Spec").Interface())
}

// The API server records who last changed each field, and forgets a manager whose fields have all been changed by
// others. The store records that of the controller, for the fields that it repairs. What it has created it
// manages for ever: the selector is immutable.

// managedField is one of those fields, with its value.
type managedField struct {
	path  fieldpath.Path
	value any
}

// managedFields returns those fields that have a value.
func managedFields(deployment *appsv1.Deployment) map[string]managedField {
	at, owners := fieldpath.MakePathOrDie, []any{"metadata", "ownerReferences"}
	fields := map[string]managedField{
		"selector": {path: at("spec", "selector")}, "replicas": {at("spec", "replicas"), ptr.Deref(deployment.Spec.Replicas, 1)},
	}
	if image := ImageOf(deployment); image != "" {
		fields["image"] = managedField{at("spec", "template", "spec", "containers", fieldpath.KeyByFields("name", stored.Container), "image"), image}
	}
	if label, ok := deployment.Labels[stored.ManagedBy]; ok {
		fields["label"] = managedField{at("metadata", "labels", stored.ManagedBy), label}
	}
	if len(deployment.OwnerReferences) > 0 {
		fields["owners"] = managedField{path: at(owners...)}
	}
	if ref := metav1.GetControllerOfNoCopy(deployment); ref != nil {
		fields["controller"] = managedField{at(append(owners, fieldpath.KeyByFields("uid", string(ref.UID)))...), ref.String()}
	}
	return fields
}

// noteManager records a write that changes before to after, before admission. before is nil if it creates the object.
// Of other objects than Deployments it never forgets a manager.
func noteManager(before, after Object, byController bool) {
	deployment, ok := after.(*appsv1.Deployment)
	if !ok {
		if byController && !WrittenByController(after) {
			after.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: fieldManager}})
		}
		return
	}
	stored.SetDefaults(after)
	old, managed, fields := map[string]managedField{}, []string{}, managedFields(deployment)
	if before != nil {
		former := before.(*appsv1.Deployment)
		old = managedFields(former)
		managed = slices.DeleteFunc(managedByController(former), func(field string) bool { return fields[field].path == nil })
	}
	for field, is := range fields {
		if was := old[field]; was.path == nil || was.value != is.value {
			managed = slices.DeleteFunc(managed, func(other string) bool { return other == field })
			if byController {
				managed = append(managed, field)
			}
		}
	}
	setManaged(deployment, managed)
}

// managedByController returns which of those fields the controller manages in a Deployment of the store.
func managedByController(deployment *appsv1.Deployment) []string {
	if len(deployment.ManagedFields) == 0 {
		return nil
	}
	text := strings.TrimSuffix(strings.TrimPrefix(deployment.ManagedFields[0].FieldsV1.GetRawString(), `{"f:`), `":{}}`)
	return strings.Split(text, `":{},"f:`)
}

// NormalizeManagers replaces the managed fields of a Deployment of an API server by what the store would have.
func NormalizeManagers(deployment *appsv1.Deployment) {
	managed, all := []string{}, managedFields(deployment)
	for _, entry := range deployment.ManagedFields {
		var fields fieldpath.Set
		if entry.Manager != fieldManager || fields.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
			continue
		}
		for field, is := range all {
			if fields.Has(is.path) {
				managed = append(managed, field)
			}
		}
	}
	setManaged(deployment, managed)
}

// setManaged records which of those fields the controller manages.
func setManaged(deployment *appsv1.Deployment, managed []string) {
	if deployment.ManagedFields = nil; len(managed) > 0 {
		slices.Sort(managed)
		fields := metav1.NewFieldsV1(`{"f:` + strings.Join(managed, `":{},"f:`) + `":{}}`)
		deployment.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: fieldManager, FieldsV1: fields}}
	}
}

// WrittenByController reports whether the controller is on record as a writer of the object.
func WrittenByController(object metav1.Object) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(entry metav1.ManagedFieldsEntry) bool { return entry.Manager == fieldManager })
}
