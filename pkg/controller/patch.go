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
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/sample-controller/pkg/client/trim"
)

// ownerReference is the name of that field in messages.
const ownerReference = "owner reference"

// Patch is a strategic-merge patch of the fields of a dependent that have drifted, and of no other. All changes go
// into one patch, because each change of a Pod template is a rollout. Create it with NewPatch.
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

	// path is the place of value in the object. A container is in the list under its name.
	path  fieldpath.Path
	value any
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
	fields := set(nil, p.resourceVersion, fieldpath.MakePathOrDie("metadata", "resourceVersion"))
	for _, change := range p.Changes {
		fields = set(fields, change.value, change.path)
	}
	data, err := json.Marshal(fields)
	if err != nil {
		// Maps, strings, numbers and API types can be encoded.
		panic(fmt.Sprintf("encoding a patch: %v", err))
	}
	return data
}

// set returns the map or list, nil for an empty one, with the value at the path below it.
func set(parent, value any, path fieldpath.Path) any {
	if len(path) == 0 {
		return value
	}
	if path[0].Key == nil {
		fields, ok := parent.(map[string]any)
		if !ok {
			fields = map[string]any{}
		}
		name := *path[0].FieldName
		fields[name] = set(fields[name], value, path[1:])
		return fields
	}
	list, _ := parent.([]any)
	name := (*path[0].Key)[0].Value.AsString()
	i := slices.IndexFunc(list, func(element any) bool {
		fields, ok := element.(map[string]any)
		return ok && fields["name"] == name
	})
	if i < 0 {
		i, list = len(list), append(list, map[string]any{"name": name})
	}
	list[i] = set(list[i], value, path[1:])
	return list
}

// Set sets the field at that path, nil to remove it. field is its name in messages; from and to
// are those of Change. An element of path is the name of a field, or a key of a list (fieldpath.MakePath).
func (p *Patch) Set(value any, field, from, to string, path ...any) {
	// A value may be as long as the object.
	p.Changes = append(p.Changes, Change{Field: field, From: trim.Bounded(from), To: trim.Bounded(to), path: fieldpath.MakePathOrDie(path...), value: value})
}

// ReplaceMap makes the map at that path the desired one. A merge would keep the keys of other writers.
func (p *Patch) ReplaceMap(current, desired map[string]string, field string, path ...any) {
	if maps.Equal(current, desired) {
		return
	}
	value := map[string]any{}
	for key, desired := range desired {
		value[key] = desired
	}
	if len(current) > 0 {
		// Where there is nothing to replace, a map with this directive is dropped.
		value["$patch"] = "replace"
	}
	p.Set(value, field, cmp.Or(labels.Set(current).String(), "none"), cmp.Or(labels.Set(desired).String(), "none"), path...)
}

// AddMissingLabel adds the label if the object has none of that name. Another value is the mark of another tool.
func (p *Patch) AddMissingLabel(object metav1.Object, label, value string) {
	if _, ok := object.GetLabels()[label]; !ok {
		p.Set(value, "label "+label, "none", strconv.Quote(value), "metadata", "labels", label)
	}
}

// CompareController adds the controller reference if its name or blockOwnerDeletion is wrong. The owner owns current.
func (p *Patch) CompareController(current, desired metav1.Object) {
	got, want := metav1.GetControllerOfNoCopy(current), metav1.GetControllerOfNoCopy(desired)
	if blocks := ptr.Deref(got.BlockOwnerDeletion, false); got.Name != want.Name || !blocks {
		p.setController(want, fmt.Sprintf("of %q, blockOwnerDeletion %t", got.Name, blocks))
	}
}

func (p *Patch) setController(ref *metav1.OwnerReference, from string) {
	p.Set([]metav1.OwnerReference{*ref}, ownerReference, from, "", "metadata", "ownerReferences")
}

// managerOf returns the name of the other field manager that last set the changed field of the live object,
// and through which subresource. Managed fields do not record a writer that removed a field.
func managerOf(change Change, live metav1.Object) string {
	name, latest := "", time.Time{}
	for _, entry := range live.GetManagedFields() {
		var fields fieldpath.Set
		set := ptr.Deref(entry.Time, metav1.Time{}).Time
		if entry.Manager == FieldManager || set.Before(latest) || fields.FromJSON(entry.FieldsV1.GetRawReader()) != nil || !fields.Has(change.path) {
			continue
		}
		name, latest = entry.Manager, set
		if entry.Subresource != "" {
			name += " through " + entry.Subresource
		}
	}
	return cmp.Or(name, "a writer that is not on record")
}
