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
	"cmp"
	"encoding/json"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// ownerReference is the name of that field in messages.
const ownerReference = "owner reference"

// Patch is a strategic-merge patch of the fields of a dependent that have drifted, and of no
// other. All changes go into one patch, because each change of a Pod template is a rollout.
// Create it with NewPatch.
type Patch struct {
	// Changes are the changed fields.
	Changes []Change

	resourceVersion string
}

// Change is one field of a Patch.
type Change struct {
	// Field is the name of the field in messages.
	Field string
	// From and To describe the old and the new value, "" if there is nothing to say.
	From, To string

	// path is the place of value in the object, or in the container of that name in the Pod template, in
	// whose place value is without a path.
	container string
	path      []string
	value     any
}

// describe lists the changes. format is for the field, the old and the new value.
func describe(changes []Change, format string) string {
	var texts []string
	for _, c := range changes {
		switch {
		case c.From == "":
			texts = append(texts, c.Field)
		case c.To == "":
			texts = append(texts, c.Field+" "+c.From)
		default:
			texts = append(texts, fmt.Sprintf(format, c.Field, c.From, c.To))
		}
	}
	return strings.Join(texts, ", ")
}

// NewPatch returns a Patch without changes. It carries the object's resourceVersion: if the object
// changed meanwhile, the API server answers 409 and nothing is overwritten.
func NewPatch(object metav1.Object) Patch {
	return Patch{resourceVersion: object.GetResourceVersion()}
}

// IsEmpty reports whether the patch changes nothing.
func (p Patch) IsEmpty() bool {
	return len(p.Changes) == 0
}

// String describes all changes, as in "replicas from 1 to 3, image from a to b".
func (p Patch) String() string {
	return describe(p.Changes, "%s from %s to %s")
}

// changes reports whether the patch changes the field.
func (p Patch) changes(field string) bool {
	return slices.ContainsFunc(p.Changes, func(change Change) bool { return change.Field == field })
}

// split returns the patch without the changes that are among the known ones, and those changes.
func (p Patch) split(known []Change) (rest Patch, accepted []Change) {
	rest = p
	rest.Changes = slices.DeleteFunc(slices.Clone(p.Changes), func(c Change) bool {
		isKnown := slices.ContainsFunc(known, func(k Change) bool { return k.Field == c.Field && k.From == c.From && k.To == c.To })
		if isKnown {
			accepted = append(accepted, c)
		}
		return isKnown
	})
	return rest, accepted
}

// JSON returns the encoded patch.
func (p Patch) JSON() []byte {
	fields := map[string]any{}
	set(fields, p.resourceVersion, "metadata", "resourceVersion")
	var containers []any
	var last map[string]any
	for _, change := range p.Changes {
		switch {
		case change.container == "":
			set(fields, change.value, change.path...)
			continue
		case len(change.path) == 0:
			containers = append(containers, change.value)
		default:
			if last == nil || last["name"] != change.container {
				last = map[string]any{"name": change.container}
				containers = append(containers, last)
			}
			set(last, change.value, change.path...)
		}
		set(fields, containers, "spec", "template", "spec", "containers")
	}
	data, err := json.Marshal(fields)
	if err != nil {
		// Maps, strings, numbers and API types can be encoded.
		panic(fmt.Sprintf("encoding a patch: %v", err))
	}
	return data
}

// set sets the field at that path below parent.
func set(parent map[string]any, value any, path ...string) {
	for _, name := range path[:len(path)-1] {
		if _, ok := parent[name]; !ok {
			parent[name] = map[string]any{}
		}
		parent = parent[name].(map[string]any)
	}
	parent[path[len(path)-1]] = value
}

// Set sets the field at that path, nil to remove it. field is its name in messages; from and to
// are those of Change.
func (p *Patch) Set(value any, field, from, to string, path ...string) {
	p.add(Change{Field: field, From: from, To: to, path: path, value: value})
}

// CompareReplicas adds spec.replicas if it is not the desired one. The API server defaults it to 1.
func (p *Patch) CompareReplicas(current, desired *int32) {
	got, want := ptr.Deref(current, 1), ptr.Deref(desired, 1)
	if got != want {
		p.Set(want, "replicas", fmt.Sprint(got), fmt.Sprint(want), "spec", "replicas")
	}
}

// AddMissingLabel adds the label if the object has none of that name. Another value is the mark of another tool.
func (p *Patch) AddMissingLabel(object metav1.Object, label, value string) {
	if _, ok := object.GetLabels()[label]; !ok {
		p.Set(value, "label "+label, "none", strconv.Quote(value), "metadata", "labels", label)
	}
}

// CompareController adds the controller reference if the name of the desired one or blockOwnerDeletion is
// wrong. The owner controls current, by UID.
func (p *Patch) CompareController(current, desired metav1.Object) {
	got, want := metav1.GetControllerOfNoCopy(current), metav1.GetControllerOfNoCopy(desired)
	if got.Name != want.Name || !ptr.Deref(got.BlockOwnerDeletion, false) {
		p.setController(want)
	}
}

func (p *Patch) setController(ref *metav1.OwnerReference) {
	p.Set([]metav1.OwnerReference{*ref}, ownerReference, "", "", "metadata", "ownerReferences")
}

// SetInTemplate sets the field of the Pod template at that path, nil to remove it. from and
// to are those of Change.
func (p *Patch) SetInTemplate(value any, from, to string, path ...string) {
	p.Set(value, strings.Join(path, "."), from, to, slices.Concat([]string{"spec", "template"}, path)...)
}

// SetInContainer sets the field of the named container at that path, nil to remove it. from
// and to are those of Change.
func (p *Patch) SetInContainer(name string, value any, from, to string, path ...string) {
	p.add(Change{Field: strings.Join(path, "."), From: from, To: to, container: name, path: path, value: value})
}

// AddContainer adds a container that was removed from the Pod template.
func (p *Patch) AddContainer(container *corev1.Container) {
	p.add(Change{Field: "container " + container.Name, From: "was removed", container: container.Name, value: container})
}

// add adds the change. A value may be as long as the object.
func (p *Patch) add(change Change) {
	change.From, change.To = Bounded(change.From), Bounded(change.To)
	p.Changes = append(p.Changes, change)
}

// managerOf returns the name of the other field manager that last set the changed field of the live object,
// and through which subresource. Managed fields do not record a writer that removed a field.
func managerOf(change Change, live metav1.Object) string {
	var path fieldpath.Path
	if change.container != "" {
		path = fieldpath.MakePathOrDie("spec", "template", "spec", "containers", fieldpath.KeyByFields("name", change.container))
	}
	for _, name := range change.path {
		path = append(path, fieldpath.PathElement{FieldName: &name})
	}
	name, latest := "", time.Time{}
	for _, entry := range live.GetManagedFields() {
		var fields fieldpath.Set
		set := ptr.Deref(entry.Time, metav1.Time{}).Time
		if entry.Manager == FieldManager || set.Before(latest) || fields.FromJSON(entry.FieldsV1.GetRawReader()) != nil || !fields.Has(path) {
			continue
		}
		name, latest = entry.Manager, set
		if entry.Subresource != "" {
			name += " through " + entry.Subresource
		}
	}
	return cmp.Or(name, "a writer that is not on record")
}
