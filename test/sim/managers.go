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
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/sample-controller/test/stored"
)

// The API server records who last changed each field, and forgets a manager whose fields have all been changed by
// others. The store records that of the controller, for the fields that it repairs. What it has created it
// manages for ever: nobody can change the selector.

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
