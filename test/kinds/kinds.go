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

// Package kinds reads what the suites in test have to know of each kind that its CRD does not
// say: the file testdata/suites.yaml beside its controller.
package kinds

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/util/jsonpath"
)

// Data are about a kind that a controller of the program reconciles.
type Data struct {
	Object `json:",inline"`

	// Controller is the name of the controller in --controllers.
	Controller string `json:"controller"`
	// Resource is the plural.
	Resource string `json:"resource"`
	// Owns is the built-in kind of the objects that the controller creates.
	Owns Owned `json:"owns"`
	// Also are the built-in kinds of further objects that the controller creates, of the name of
	// their owner. Whether the owner is ready does not depend on them.
	Also []Object `json:"also,omitempty"`
	// Reads are the built-in kinds that the controller caches and does not write.
	Reads []Object `json:"reads,omitempty"`

	// External is the flag with the address of the external service that has an item for each object, ""
	// if the controller uses none.
	External string `json:"external,omitempty"`

	// Spec is a spec that users write, and MarkerSpec one that takes little work to reconcile,
	// by default the same. In both, $(NAME) is the name of the object.
	Spec       json.RawMessage `json:"spec,omitempty"`
	MarkerSpec json.RawMessage `json:"markerSpec,omitempty"`
	// Changes are the JSON merge patches of users to an object, by a few words each.
	Changes map[string]json.RawMessage `json:"changes,omitempty"`
	// Varies are the fields of an object, such as status.nodes, whose value differs from run
	// to run.
	Varies []string `json:"varies,omitempty"`
	// Check is a suite of the command check, without its example.
	Check json.RawMessage `json:"check,omitempty"`
}

// Object is the type of objects.
type Object struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

// Owned is how the objects are that a controller creates.
type Owned struct {
	Object `json:",inline"`

	// Name is the JSONPath of their name in the owner, by default {.metadata.name}.
	Name string `json:"name,omitempty"`
	// Drifts are the strategic merge patches that the controller undoes, by a few words each.
	Drifts map[string]json.RawMessage `json:"drifts,omitempty"`
	// Shows are the fields that have the value of a field of the owner, as JSONPaths.
	Shows []Shown `json:"shows,omitempty"`
	// Varies are as for the owner.
	Varies []string `json:"varies,omitempty"`
}

// Shown is a field of the owner and the field of what it owns that must have its value.
type Shown struct {
	Asked string `json:"asked"`
	Is    string `json:"is"`
}

// GVR returns the resource of the kind.
func (k *Data) GVR() schema.GroupVersionResource {
	return schema.FromAPIVersionAndKind(k.APIVersion, k.Kind).GroupVersion().WithResource(k.Resource)
}

// GVR returns the resource of a built-in kind.
func (o *Object) GVR() schema.GroupVersionResource {
	resource, _ := meta.UnsafeGuessKindToResource(schema.FromAPIVersionAndKind(o.APIVersion, o.Kind))
	return resource
}

// Read returns the data of all kinds of the repository with that root: of the one whose
// controller is there, and then of those below pkg/controller.
func Read(root string) ([]*Data, error) {
	below, err := filepath.Glob(filepath.Join(root, "pkg/controller/*/testdata/suites.yaml"))
	if err != nil {
		return nil, err
	}
	var all []*Data
	for _, file := range append([]string{filepath.Join(root, "testdata/suites.yaml")}, below...) {
		k, err := ReadFile(file)
		if errors.Is(err, os.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		all = append(all, k)
	}
	return all, nil
}

// ReadFile returns the data in that file.
func ReadFile(file string) (*Data, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	k := &Data{}
	if err := yaml.UnmarshalStrict(data, k); err != nil {
		return nil, err
	}
	for field, value := range map[string]string{
		"controller": k.Controller, "apiVersion": k.APIVersion, "kind": k.Kind, "resource": k.Resource, "owns.apiVersion": k.Owns.APIVersion, "owns.kind": k.Owns.Kind,
	} {
		if value == "" {
			return nil, fmt.Errorf("%s is not set", field)
		}
	}
	if k.Owns.Name == "" {
		k.Owns.Name = "{.metadata.name}"
	}
	paths := []string{k.Owns.Name}
	for _, shown := range k.Owns.Shows {
		paths = append(paths, shown.Asked, shown.Is)
	}
	for _, path := range paths {
		if err := jsonpath.New("").Parse(path); err != nil {
			return nil, fmt.Errorf("%q: %w", path, err)
		}
	}
	if k.MarkerSpec == nil {
		k.MarkerSpec = k.Spec
	}
	return k, nil
}

// New returns an object of the kind with that name and spec, in which $(NAME) is the name.
func (k *Data) New(name string, spec json.RawMessage) (*unstructured.Unstructured, error) {
	object := &unstructured.Unstructured{}
	return object, object.UnmarshalJSON(fmt.Appendf(nil, `{"apiVersion":%q,"kind":%q,"metadata":{"name":%q},"spec":%s}`,
		k.APIVersion, k.Kind, name, strings.ReplaceAll(string(spec), "$(NAME)", name)))
}

// Ready returns the status of the condition Ready and its reason, both "" unless they are about
// the current generation of the object.
func Ready(object *unstructured.Unstructured) (status, reason string) {
	generation, at := fmt.Sprint(object.GetGeneration()), "{.status.conditions[?(@.type==\"Ready\")]."
	if Find("{.status.observedGeneration}", object.Object) != generation || Find(at+"observedGeneration}", object.Object) != generation {
		return "", ""
	}
	return Find(at+"status}", object.Object), Find(at+"reason}", object.Object)
}

// ShowSpec reports whether an object shows what the spec of its owner asks for.
func (o *Owned) ShowSpec(owned, owner map[string]any) bool {
	return !slices.ContainsFunc(o.Shows, func(s Shown) bool {
		asked := Find(s.Asked, owner)
		return asked != "" && asked != Find(s.Is, owned)
	})
}

// Find returns in words what the JSONPath, which Read has checked, selects of the object, "" for
// nothing.
func Find(path string, object map[string]any) string {
	j := jsonpath.New("").AllowMissingKeys(true)
	if err := j.Parse(path); err != nil {
		return ""
	}
	// Where the object has a value of another type it has nothing of that path.
	results, err := j.FindResults(object)
	if err != nil {
		return ""
	}
	var words []string
	for _, values := range results {
		for _, value := range values {
			words = append(words, fmt.Sprint(value.Interface()))
		}
	}
	return strings.Join(words, " ")
}
