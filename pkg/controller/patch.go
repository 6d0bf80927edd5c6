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
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// ownerReference is the name of that field in messages.
const ownerReference = "owner reference"

// maxChangeValue bounds the text of a value: that of a field may be as long as the object.
const maxChangeValue = 256

// Patch is a strategic-merge patch of the fields of a dependent that have drifted, and of no
// other. All changes go into one patch, because each change of a Pod template is a rollout.
// Create it with NewPatch.
type Patch struct {
	// Changes are the changed fields.
	Changes []Change
	// Admitted are the fields that are left as admission made them.
	Admitted []Change

	resourceVersion string
	admitted        []FieldValue
	fields          map[string]any
}

// Change is one field of a Patch.
type Change struct {
	// Field is the name of the field in messages.
	Field string
	// Path is the path of the field in metadata.managedFields.
	Path fieldpath.Path
	// From and To describe the old and the new value, "" if there is nothing to say.
	From, To string
}

// String describes the change, as in "replicas from 1 to 3".
func (c Change) String() string {
	switch {
	case c.From == "":
		return c.Field
	case c.To == "":
		return c.Field + " " + c.From
	}
	return fmt.Sprintf("%s from %s to %s", c.Field, c.From, c.To)
}

// NewPatch returns a Patch without changes. It carries the object's resourceVersion: if the
// owner or the content of the object changed meanwhile, the API server answers 409 and
// nothing is overwritten. A field whose value is listed in admitted is not patched.
func NewPatch(object metav1.Object, admitted ...FieldValue) Patch {
	return Patch{resourceVersion: object.GetResourceVersion(), admitted: admitted}
}

// IsEmpty reports whether the patch changes nothing.
func (p Patch) IsEmpty() bool {
	return len(p.Changes) == 0
}

// JSON returns the encoded patch, nil if it changes nothing.
func (p Patch) JSON() []byte {
	if p.IsEmpty() {
		return nil
	}
	fields, metadata := maps.Clone(p.fields), map[string]any{"resourceVersion": p.resourceVersion}
	if set, ok := fields["metadata"].(map[string]any); ok {
		maps.Copy(metadata, set)
	}
	fields["metadata"] = metadata
	return mustJSON(fields)
}

// String describes all changes, as in "replicas from 1 to 3, image from a to b".
func (p Patch) String() string {
	return join(p.Changes)
}

func join(changes []Change) string {
	var texts []string
	for _, change := range changes {
		texts = append(texts, change.String())
	}
	return strings.Join(texts, ", ")
}

// Fields returns the names of the changed fields.
func (p Patch) Fields() []string {
	return fieldsOf(p.Changes)
}

func fieldsOf(changes []Change) []string {
	var fields []string
	for _, change := range changes {
		fields = append(fields, change.Field)
	}
	return fields
}

// add adds the change, and returns false if the field is left as admission made it.
func (p *Patch) add(change Change) bool {
	change.From, change.To = shorten(change.From), shorten(change.To)
	if slices.Contains(p.admitted, FieldValue{Field: change.Field, Value: change.From}) {
		p.Admitted = append(p.Admitted, change)
		return false
	}
	p.Changes = append(p.Changes, change)
	return true
}

// shorten returns the text, if it is long only its beginning and a hash of all.
func shorten(text string) string {
	if len(text) <= maxChangeValue {
		return text
	}
	return fmt.Sprintf("%s… (sha256 %x)", strings.ToValidUTF8(text[:maxChangeValue], ""), sha256.Sum256([]byte(text)))
}

// Set sets the field at that path, nil to remove it. field is its name in messages; from and to
// are those of Change.
func (p *Patch) Set(value any, field, from, to string, path ...string) {
	p.set(value, Change{Field: field, Path: makePath(path), From: from, To: to}, path...)
}

// CompareReplicas adds spec.replicas if it is not want. The API server defaults it to 1.
func (p *Patch) CompareReplicas(got *int32, want int32) {
	if got := ptr.Deref(got, 1); got != want {
		p.Set(want, "replicas", fmt.Sprint(got), fmt.Sprint(want), "spec", "replicas")
	}
}

// EnsureLabel adds the label of the object if it is missing. Another value is the mark of a
// tool that may refuse an object without it.
func (p *Patch) EnsureLabel(object metav1.Object, label, value string) {
	if _, ok := object.GetLabels()[label]; !ok {
		p.Set(value, "label "+label, "none", strconv.Quote(value), "metadata", "labels", label)
	}
}

// CompareController adds the controller reference to owner if its name or
// blockOwnerDeletion is wrong. The object already is controlled by owner, by UID.
func (p *Patch) CompareController(object, owner metav1.Object, kind schema.GroupVersionKind) {
	got := metav1.GetControllerOfNoCopy(object)
	if got.Name != owner.GetName() || !ptr.Deref(got.BlockOwnerDeletion, false) {
		p.setController(owner, kind)
	}
}

// Adopt makes owner the controller of the object, which has none, and removes the annotation
// that asks for this.
func (p *Patch) Adopt(owner metav1.Object, kind schema.GroupVersionKind, annotation string) {
	p.setController(owner, kind)
	p.Set(nil, "annotation "+annotation, "", "", "metadata", "annotations", annotation)
}

func (p *Patch) setController(owner metav1.Object, kind schema.GroupVersionKind) {
	p.Set([]metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)}, ownerReference, "", "", "metadata", "ownerReferences")
}

// SetInTemplate sets the field of the Pod template at that path, nil to remove it. from and
// to are those of Change.
func (p *Patch) SetInTemplate(value any, from, to string, path ...string) {
	p.Set(value, strings.Join(path, "."), from, to, slices.Concat([]string{"spec", "template"}, path)...)
}

// SetInContainer sets the field of the named container at that path, nil to remove it. from
// and to are those of Change.
func (p *Patch) SetInContainer(name string, value any, from, to string, path ...string) {
	if !p.add(Change{Field: strings.Join(path, "."), Path: append(containerPath(name), makePath(path)...), From: from, To: to}) {
		return
	}
	pod := p.podSpec()
	containers, _ := pod["containers"].([]map[string]any)
	if len(containers) == 0 || containers[len(containers)-1]["name"] != name {
		containers = append(containers, map[string]any{"name": name})
	}
	pod["containers"] = containers
	set(containers[len(containers)-1], path, value)
}

// AddContainer adds a container that was removed from the Pod template.
func (p *Patch) AddContainer(container *corev1.Container) {
	if p.add(Change{Field: "container " + container.Name, Path: containerPath(container.Name), From: "was removed"}) {
		p.podSpec()["containers"] = []*corev1.Container{container}
	}
}

// set adds the change, and the value at that path unless the field is left as admission made
// it.
func (p *Patch) set(value any, change Change, path ...string) {
	if p.add(change) {
		set(p.init(), path, value)
	}
}

func (p *Patch) init() map[string]any {
	if p.fields == nil {
		p.fields = map[string]any{}
	}
	return p.fields
}

// podSpec returns the patch of the spec in the Pod template.
func (p *Patch) podSpec() map[string]any {
	return child(child(child(p.init(), "spec"), "template"), "spec")
}

// makePath returns the path of a field that is in no list.
func makePath(names []string) fieldpath.Path {
	var path fieldpath.Path
	for _, name := range names {
		path = append(path, fieldpath.PathElement{FieldName: &name})
	}
	return path
}

// containerPath returns the path of the container of that name in the Pod template.
func containerPath(name string) fieldpath.Path {
	return fieldpath.MakePathOrDie("spec", "template", "spec", "containers", fieldpath.KeyByFields("name", name))
}

// set sets the field at that path below parent.
func set(parent map[string]any, path []string, value any) {
	for _, name := range path[:len(path)-1] {
		parent = child(parent, name)
	}
	parent[path[len(path)-1]] = value
}

// child returns the map of that name in parent, and adds it if it is missing.
func child(parent map[string]any, name string) map[string]any {
	if _, ok := parent[name]; !ok {
		parent[name] = map[string]any{}
	}
	return parent[name].(map[string]any)
}

// mustJSON encodes a value made of maps, strings, numbers and API types, which cannot
// fail.
func mustJSON(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", value, err))
	}
	return data
}
