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
		return apierrors.NewAlreadyExists(o.group, object.GetName())
	}
	stored.SetDefaults(object)
	s.uids++
	object.SetUID(types.UID(fmt.Sprintf("uid-%d-%s", s.uids, object.GetName())))
	if s.apart {
		o.uids++
		object.SetUID(types.UID(fmt.Sprintf("uid-%s-%d-%s", o.group.Resource, o.uids, object.GetName())))
	}
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
		return apierrors.NewNotFound(o.group, name)
	case conditions == nil:
	case conditions.UID != nil && *conditions.UID != object.GetUID() || conditions.ResourceVersion != nil && *conditions.ResourceVersion != object.GetResourceVersion():
		return apierrors.NewConflict(o.group, name, errors.New("the preconditions are not met"))
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
	finalizers := slices.DeleteFunc(slices.Clone(object.GetFinalizers()), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	})
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
			return apierrors.NewConflict(o.group, name, errors.New("the preconditions are not met"))
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
		return nil, apierrors.NewNotFound(o.group, r.Name)
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
		return nil, apierrors.NewConflict(o.group, r.Name, errors.New("the object has been modified"))
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
		kind, path := schema.GroupKind{Group: o.group.Group, Kind: reflect.TypeOf(before).Elem().Name()}, validation.NewPath("metadata", "ownerReferences")
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

// managedPaths are the paths of those fields that have a value.
func managedPaths(deployment *appsv1.Deployment) map[string]fieldpath.Path {
	paths := map[string]fieldpath.Path{"selector": fieldpath.MakePathOrDie("spec", "selector"), "replicas": fieldpath.MakePathOrDie("spec", "replicas")}
	if ImageOf(deployment) != "" {
		paths["image"] = fieldpath.MakePathOrDie("spec", "template", "spec", "containers", fieldpath.KeyByFields("name", containerName), "image")
	}
	if _, ok := deployment.Labels[managedByLabel]; ok {
		paths["label"] = fieldpath.MakePathOrDie("metadata", "labels", managedByLabel)
	}
	if len(deployment.OwnerReferences) > 0 {
		paths["owners"] = fieldpath.MakePathOrDie("metadata", "ownerReferences")
	}
	if ref := metav1.GetControllerOfNoCopy(deployment); ref != nil {
		paths["controller"] = fieldpath.MakePathOrDie("metadata", "ownerReferences", fieldpath.KeyByFields("uid", string(ref.UID)))
	}
	return paths
}

// managedValue returns the value at one of those paths.
func managedValue(deployment *appsv1.Deployment, field string) any {
	switch field {
	case "replicas":
		return *deployment.Spec.Replicas
	case "image":
		return ImageOf(deployment)
	case "label":
		return deployment.Labels[managedByLabel]
	case "controller":
		return metav1.GetControllerOfNoCopy(deployment).String()
	}
	return nil
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
	former, managed, paths := &appsv1.Deployment{}, []string{}, managedPaths(deployment)
	if before != nil {
		former = before.(*appsv1.Deployment)
		managed = slices.DeleteFunc(managedByController(former), func(field string) bool { return paths[field] == nil })
	}
	old := managedPaths(former)
	for field := range paths {
		if before == nil || old[field] == nil || managedValue(former, field) != managedValue(deployment, field) {
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
	managed, paths := []string{}, managedPaths(deployment)
	for _, entry := range deployment.ManagedFields {
		var fields fieldpath.Set
		if entry.Manager != fieldManager || fields.FromJSON(entry.FieldsV1.GetRawReader()) != nil {
			continue
		}
		for field, path := range paths {
			if fields.Has(path) {
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
