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
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// What a repair changes of the Pod template. It all goes into one patch, since each
// change of the template is a rollout.

// Container returns the container of that name, or nil.
func Container(deployment *appsv1.Deployment, name string) *corev1.Container {
	containers := deployment.Spec.Template.Spec.Containers
	if i := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name }); i >= 0 {
		return &containers[i]
	}
	return nil
}

// SetInTemplate changes a field of the Pod template, nil to remove it. at is the way
// to it; values are as in Change.
func (r *Repair) SetInTemplate(value any, values string, at ...string) {
	put(r.template(), at, value)
	r.change(values, at, "spec", "template")
}

// SetInContainer changes a field of the container of that name, nil to remove it.
func (r *Repair) SetInContainer(name string, value any, values string, at ...string) {
	pod := inside(r.template(), "spec")
	containers, _ := pod["containers"].([]map[string]any)
	if len(containers) == 0 || containers[len(containers)-1]["name"] != name {
		containers = append(containers, map[string]any{"name": name})
	}
	pod["containers"] = containers
	put(containers[len(containers)-1], at, value)
	r.change(values, at, "spec", "template", "spec", "containers", fieldpath.KeyByFields("name", name))
}

// AddContainer puts a container back that somebody has removed.
func (r *Repair) AddContainer(container *corev1.Container) {
	inside(r.template(), "spec")["containers"] = []*corev1.Container{container}
	r.Changes = append(r.Changes, Change{
		Field:  "container " + container.Name,
		Path:   fieldpath.MakePathOrDie("spec", "template", "spec", "containers", fieldpath.KeyByFields("name", container.Name)),
		Values: "was removed",
	})
}

// template returns the part of the patch that is about the Pod template.
func (r *Repair) template() map[string]any {
	if r.spec == nil {
		r.spec = map[string]any{}
	}
	return inside(r.spec, "template")
}

// change notes the change of the field that is found that way from above.
func (r *Repair) change(values string, at []string, above ...any) {
	for _, name := range at {
		above = append(above, name)
	}
	r.Changes = append(r.Changes, Change{Field: strings.Join(at, "."), Path: fieldpath.MakePathOrDie(above...), Values: values})
}

// put sets what is found that way from above.
func put(above map[string]any, at []string, value any) {
	for _, name := range at[:len(at)-1] {
		above = inside(above, name)
	}
	above[at[len(at)-1]] = value
}

// inside returns the map of that name, a new one if there is none.
func inside(above map[string]any, name string) map[string]any {
	if _, ok := above[name]; !ok {
		above[name] = map[string]any{}
	}
	return above[name].(map[string]any)
}
