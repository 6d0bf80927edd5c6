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

package child

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// Repair is a strategic-merge patch of the fields that have drifted, and of no
// other. Create it with NewRepair.
type Repair struct {
	// Changes are the fields.
	Changes []Change

	resourceVersion string
	metadata, spec  map[string]any
}

// Change is one field of a repair.
type Change struct {
	// Field is its name in messages, Path where managed fields record it.
	Field string
	Path  fieldpath.Path
	// Values are its former and its new value in words, "" where that says nothing.
	Values string
}

// NewRepair returns a Repair that changes nothing yet. The patch will carry the
// Deployment's resourceVersion: should it have changed hands or content meanwhile,
// the API server answers 409 and nothing is overwritten.
func NewRepair(deployment *appsv1.Deployment) Repair {
	return Repair{resourceVersion: deployment.ResourceVersion}
}

// set changes a field of the Deployment's spec.
func (r *Repair) set(name string, value any, change Change) {
	if r.spec == nil {
		r.spec = map[string]any{}
	}
	r.spec[name] = value
	r.Changes = append(r.Changes, change)
}

func (r *Repair) setMetadata(name string, value any, change Change) {
	if r.metadata == nil {
		r.metadata = map[string]any{}
	}
	r.metadata[name] = value
	r.Changes = append(r.Changes, change)
}

// CompareReplicas puts the number of Pods right.
func (r *Repair) CompareReplicas(deployment *appsv1.Deployment, want int32) {
	if got := ptr.Deref(deployment.Spec.Replicas, 1); want != got {
		r.set("replicas", want, Change{"replicas", fieldpath.MakePathOrDie("spec", "replicas"), fmt.Sprintf("from %d to %d", got, want)})
	}
}

// CompareOwnership puts our label and the owner reference right. The Deployment is
// the parent's.
func (r *Repair) CompareOwnership(kind Kind, parent metav1.Object, deployment *appsv1.Deployment) {
	if got := deployment.Labels[ManagedByLabel]; got != ManagedByValue {
		r.setMetadata("labels", map[string]string{ManagedByLabel: ManagedByValue},
			Change{"label " + ManagedByLabel, fieldpath.MakePathOrDie("metadata", "labels", ManagedByLabel), fmt.Sprintf("from %q to %q", got, ManagedByValue)})
	}
	if ref := kind.ControllerOf(deployment); ref.Name != parent.GetName() || !ptr.Deref(ref.BlockOwnerDeletion, false) {
		r.setMetadata("ownerReferences", []metav1.OwnerReference{kind.Reference(parent)},
			Change{Field: "owner reference", Path: fieldpath.MakePathOrDie("metadata", "ownerReferences")})
	}
}

// Patch returns the patch, nil if nothing is to be changed.
func (r Repair) Patch() []byte {
	if len(r.Changes) == 0 {
		return nil
	}
	metadata := map[string]any{"resourceVersion": r.resourceVersion}
	maps.Copy(metadata, r.metadata)
	spec := map[string]any{}
	maps.Copy(spec, r.spec)
	return mustJSON(map[string]any{"metadata": metadata, "spec": spec})
}

// String returns all changes in words, as in "replicas from 1 to 3, image from
// a to b".
func (r Repair) String() string {
	var words []string
	for _, change := range r.Changes {
		words = append(words, strings.TrimSpace(change.Field+" "+change.Values))
	}
	return strings.Join(words, ", ")
}

// mustJSON encodes a value made of maps, strings, numbers and API types, which
// cannot fail.
func mustJSON(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", value, err))
	}
	return data
}
