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

package deployment

import (
	"crypto/sha256"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/sample-controller/pkg/controller"
)

// ownerReference is the name of that field in messages.
const ownerReference = "owner reference"

// maxValue bounds the text of a value: that of a field may be as long as the object.
const maxValue = 256

// Patch is a strategic-merge patch of the fields that have drifted, and of no other. All
// changes go into one patch, because each change of the Pod template is a rollout. Create
// it with NewPatch.
type Patch struct {
	// Changes are the changed fields.
	Changes []Change
	// Admitted are the fields that are left as admission made them.
	Admitted []Change

	resourceVersion string
	admitted        []controller.FieldValue
	metadata, spec  map[string]any
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

// NewPatch returns a Patch without changes. It carries the Deployment's resourceVersion:
// if the owner or the content of the Deployment changed meanwhile, the API server answers
// 409 and nothing is overwritten. A field that has its value of admitted is left as it is.
func NewPatch(deployment *appsv1.Deployment, admitted ...controller.FieldValue) Patch {
	return Patch{resourceVersion: deployment.ResourceVersion, admitted: admitted}
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
	metadata := map[string]any{"resourceVersion": p.resourceVersion}
	maps.Copy(metadata, p.metadata)
	spec := map[string]any{}
	maps.Copy(spec, p.spec)
	return mustJSON(map[string]any{"metadata": metadata, "spec": spec})
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
	var fields []string
	for _, change := range p.Changes {
		fields = append(fields, change.Field)
	}
	return fields
}

// add adds the change, and returns false if the field is left as admission made it.
func (p *Patch) add(change Change) bool {
	change.From, change.To = shorten(change.From), shorten(change.To)
	if slices.Contains(p.admitted, controller.FieldValue{Field: change.Field, Value: change.From}) {
		p.Admitted = append(p.Admitted, change)
		return false
	}
	p.Changes = append(p.Changes, change)
	return true
}

// shorten returns the text, if it is long only its beginning and a hash of all.
func shorten(text string) string {
	if len(text) <= maxValue {
		return text
	}
	return fmt.Sprintf("%s… (sha256 %x)", strings.ToValidUTF8(text[:maxValue], ""), sha256.Sum256([]byte(text)))
}

// CompareReplicas adds spec.replicas if it is not want.
func (p *Patch) CompareReplicas(deployment *appsv1.Deployment, want int32) {
	got := ptr.Deref(deployment.Spec.Replicas, 1)
	if got == want {
		return
	}
	if p.add(Change{"replicas", fieldpath.MakePathOrDie("spec", "replicas"), fmt.Sprint(got), fmt.Sprint(want)}) {
		p.initSpec()["replicas"] = want
	}
}

// EnsureLabel adds the label of the Deployment if it is missing. Another value is the mark of
// a tool that may refuse an object without it.
func (p *Patch) EnsureLabel(deployment *appsv1.Deployment, label, value string) {
	if _, ok := deployment.Labels[label]; ok {
		return
	}
	p.setMetadata("labels", map[string]string{label: value},
		Change{"label " + label, fieldpath.MakePathOrDie("metadata", "labels", label), "none", strconv.Quote(value)})
}

// CompareController adds the controller reference to owner if its name or
// blockOwnerDeletion is wrong. The Deployment already is controlled by owner, by UID.
func (p *Patch) CompareController(deployment *appsv1.Deployment, owner metav1.Object, kind schema.GroupVersionKind) {
	got := metav1.GetControllerOfNoCopy(deployment)
	if got.Name == owner.GetName() && ptr.Deref(got.BlockOwnerDeletion, false) {
		return
	}
	p.setMetadata("ownerReferences", []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		Change{Field: ownerReference, Path: fieldpath.MakePathOrDie("metadata", "ownerReferences")})
}

// Adopt makes owner the controller of the Deployment, which has none, and removes the
// annotation that asks for this.
func (p *Patch) Adopt(owner metav1.Object, kind schema.GroupVersionKind, annotation string) {
	p.setMetadata("ownerReferences", []metav1.OwnerReference{*metav1.NewControllerRef(owner, kind)},
		Change{Field: "owner reference", Path: fieldpath.MakePathOrDie("metadata", "ownerReferences")})
	p.setMetadata("annotations", map[string]any{annotation: nil},
		Change{Field: "annotation " + annotation, Path: fieldpath.MakePathOrDie("metadata", "annotations", annotation)})
}

// SetInTemplate sets the field of the Pod template at that path, nil to remove it. from and
// to are those of Change.
func (p *Patch) SetInTemplate(value any, from, to string, path ...string) {
	if p.addChange(from, to, path, "spec", "template") {
		set(p.template(), path, value)
	}
}

// SetInContainer sets the field of the named container at that path, nil to remove it. from
// and to are those of Change.
func (p *Patch) SetInContainer(name string, value any, from, to string, path ...string) {
	if !p.addChange(from, to, path, "spec", "template", "spec", "containers", fieldpath.KeyByFields("name", name)) {
		return
	}
	pod := child(p.template(), "spec")
	containers, _ := pod["containers"].([]map[string]any)
	if len(containers) == 0 || containers[len(containers)-1]["name"] != name {
		containers = append(containers, map[string]any{"name": name})
	}
	pod["containers"] = containers
	set(containers[len(containers)-1], path, value)
}

// AddContainer adds a container that was removed from the Pod template.
func (p *Patch) AddContainer(container *corev1.Container) {
	if p.add(Change{
		Field: "container " + container.Name,
		Path:  fieldpath.MakePathOrDie("spec", "template", "spec", "containers", fieldpath.KeyByFields("name", container.Name)),
		From:  "was removed",
	}) {
		child(p.template(), "spec")["containers"] = []*corev1.Container{container}
	}
}

func (p *Patch) setMetadata(name string, value any, change Change) {
	if !p.add(change) {
		return
	}
	if p.metadata == nil {
		p.metadata = map[string]any{}
	}
	p.metadata[name] = value
}

func (p *Patch) initSpec() map[string]any {
	if p.spec == nil {
		p.spec = map[string]any{}
	}
	return p.spec
}

// template returns the patch of the Pod template.
func (p *Patch) template() map[string]any {
	return child(p.initSpec(), "template")
}

// addChange adds the change of the field at that path below parent.
func (p *Patch) addChange(from, to string, path []string, parent ...any) bool {
	for _, name := range path {
		parent = append(parent, name)
	}
	return p.add(Change{Field: strings.Join(path, "."), Path: fieldpath.MakePathOrDie(parent...), From: from, To: to})
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

// Container returns the container of that name in the Pod template, nil if there is none.
func Container(deployment *appsv1.Deployment, name string) *corev1.Container {
	containers := deployment.Spec.Template.Spec.Containers
	if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		return &containers[i]
	}
	return nil
}
