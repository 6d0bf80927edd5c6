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

package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"
	"sigs.k8s.io/yaml"
)

// readObjects returns the objects of a manifest in their order.
func readObjects(file string) ([]unstructured.Unstructured, error) {
	data, err := os.Open(file)
	if err != nil {
		return nil, err
	}
	defer data.Close()
	var objects []unstructured.Unstructured
	for decoder := utilyaml.NewYAMLOrJSONDecoder(data, 4096); ; {
		// A document may have only comments, which is no object.
		var document runtime.RawExtension
		switch err := decoder.Decode(&document); {
		case errors.Is(err, io.EOF):
			return objects, nil
		case err != nil:
			return nil, fmt.Errorf("%s: %w", file, err)
		case document.Raw == nil:
			continue
		}
		var item unstructured.Unstructured
		if err := item.UnmarshalJSON(document.Raw); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		objects = append(objects, item)
	}
}

// chart is a Helm chart. The names of its files are those in its directory.
type chart struct {
	files  map[string]string
	values strings.Builder
	// The JSON schemas of the values, by section and name.
	schemas   map[string]map[string]any
	namespace string
}

// writeChart writes a Helm chart that installs what the manifests do. The first manifest is
// always installed. Each other one is NAME=FILE: it has all objects of the first one and more, and
// the value NAME.enabled adds those. The CRDs of the first one are in crds; CRDs of others are not in
// the chart, because Helm has no conditions there.
func writeChart(out string, o origin, manifests []string) error {
	if len(manifests) == 0 {
		return errors.New("a chart takes a manifest")
	}
	base, err := readObjects(manifests[0])
	if err != nil {
		return err
	}
	c, err := newChart(o, base)
	if err != nil {
		return err
	}
	for _, manifest := range manifests[1:] {
		name, file, found := strings.Cut(manifest, "=")
		if !found {
			return fmt.Errorf("%q is not NAME=FILE", manifest)
		}
		objects, err := readObjects(file)
		if err != nil {
			return err
		}
		if err := c.addOptional(name, filepath.Base(file), base, objects); err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
	}
	c.files["values.yaml"] = c.values.String()
	if c.files["values.schema.json"], err = c.schema(); err != nil {
		return err
	}
	for name, content := range c.files {
		file := filepath.Join(out, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, []byte(content), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// newChart returns a chart with these objects.
func newChart(o origin, base []unstructured.Unstructured) (*chart, error) {
	// Helm gives the values that all charts share to a chart that is a part of another one.
	c := &chart{schemas: map[string]map[string]any{"": {"global": map[string]any{"type": "object"}}}}
	about, err := yaml.Marshal(map[string]any{
		"apiVersion": "v2", "name": o.program, "type": "application",
		"description": "The controllers of " + o.program + " " + o.version + ", with the objects of install.yaml",
		"version":     strings.TrimPrefix(o.version, "v"), "appVersion": o.version,
	})
	if err != nil {
		return nil, err
	}
	c.files = map[string]string{"Chart.yaml": string(about)}
	var installed []unstructured.Unstructured
	for _, item := range base {
		switch item.GetKind() {
		case "Namespace":
			// `helm install --create-namespace` makes it: Helm keeps its own records there.
			c.namespace = item.GetName()
		case "CustomResourceDefinition":
			encoded, err := yaml.Marshal(item.Object)
			if err != nil {
				return nil, err
			}
			c.files["crds/"+item.GetName()+".yaml"] = string(encoded)
		default:
			installed = append(installed, item)
		}
	}
	if c.namespace == "" {
		return nil, errors.New("the manifest has no Namespace")
	}
	c.files["templates/install.yaml"], err = c.template("", installed)
	return c, err
}

// addOptional adds what the objects have beyond the base.
func (c *chart) addOptional(name, file string, base, objects []unstructured.Unstructured) error {
	var added []unstructured.Unstructured
	left := base
	for _, item := range objects {
		if len(left) > 0 && item.GetKind() == left[0].GetKind() && item.GetName() == left[0].GetName() {
			if item.GetKind() != "CustomResourceDefinition" && !reflect.DeepEqual(item, left[0]) {
				return fmt.Errorf("the %s %s is not that of the base, so a chart cannot add it", item.GetKind(), item.GetName())
			}
			left = left[1:]
			continue
		}
		added = append(added, item)
	}
	if len(left) > 0 {
		return fmt.Errorf("it has not the %s %s of the base, or at another place", left[0].GetKind(), left[0].GetName())
	}
	fmt.Fprintf(&c.values, "\n# What %s has beyond install.yaml. It takes other CRDs, too: docs/release.md.\n%s:\n  enabled: false\n", file, name)
	c.schemas[name] = map[string]any{"enabled": map[string]any{"type": "boolean"}}
	text, err := c.template(name, added)
	c.files["templates/"+name+".yaml"] = "{{- if .Values." + name + ".enabled }}\n" + text + "{{- end }}\n"
	return err
}

// template returns the objects with references to values in place of the namespace, and of the
// image, replicas and resources of a Deployment. Its own values become the defaults in that section
// of the values, and the image is the same everywhere.
func (c *chart) template(section string, objects []unstructured.Unstructured) (string, error) {
	// By the names that they have in the YAML.
	references := map[string]string{"VALUE(namespace)": ".Release.Namespace"}
	var text strings.Builder
	for _, item := range objects {
		fields, ok := c.withoutNamespace(item.Object).(map[string]any)
		if !ok {
			return "", fmt.Errorf("%s %s has no fields", item.GetKind(), item.GetName())
		}
		if item.GetKind() == "Deployment" {
			if err := c.exposeValues(section, fields, references); err != nil {
				return "", fmt.Errorf("deployment %s: %w", item.GetName(), err)
			}
		}
		encoded, err := yaml.Marshal(fields)
		if err != nil {
			return "", err
		}
		// Braces of the manifest are not those of a template.
		escaped := strings.ReplaceAll(string(encoded), "{{", `{{ "{{" }}`)
		for name, value := range references {
			escaped = strings.ReplaceAll(escaped, name, "{{ toJson "+value+" }}")
		}
		text.WriteString("---\n" + escaped)
	}
	return text.String(), nil
}

// schema returns the JSON schema of the values, in the draft that Helm expects. It allows no other values:
// Helm would silently ignore a misspelled one.
func (c *chart) schema() (string, error) {
	properties := map[string]any{}
	maps.Copy(properties, c.schemas[""])
	for section, schemas := range c.schemas {
		if section != "" {
			properties[section] = objectSchema(schemas)
		}
	}
	schema := objectSchema(properties)
	schema["$schema"] = "http://json-schema.org/draft-07/schema#"
	encoded, err := json.MarshalIndent(schema, "", "  ")
	return string(encoded) + "\n", err
}

// objectSchema returns the schema of an object that has these properties only.
func objectSchema(properties map[string]any) map[string]any {
	return map[string]any{"type": "object", "properties": properties, "additionalProperties": false}
}

// resourcesSchema returns the schema of the ResourceRequirements of a container, as far as it helps against
// misspelling. A quantity such as 1 is a number in YAML.
func resourcesSchema() map[string]any {
	quantities := map[string]any{
		"type": []string{"object", "null"}, "additionalProperties": map[string]any{"type": []string{"string", "number", "null"}},
	}
	schema := objectSchema(map[string]any{"limits": quantities, "requests": quantities, "claims": map[string]any{"type": "array"}})
	schema["type"] = []string{"object", "null"}
	return schema
}

// withoutNamespace returns a copy in which the namespace is a reference.
func (c *chart) withoutNamespace(value any) any {
	switch typed := value.(type) {
	case string:
		if typed == c.namespace {
			return "VALUE(namespace)"
		}
	case []any:
		items := make([]any, 0, len(typed))
		for _, item := range typed {
			items = append(items, c.withoutNamespace(item))
		}
		return items
	case map[string]any:
		fields := make(map[string]any, len(typed))
		for key, item := range typed {
			fields[key] = c.withoutNamespace(item)
		}
		return fields
	}
	return value
}

// exposeValues replaces the image, the replicas and the resources of a Deployment by references, and
// adds its own as defaults.
func (c *chart) exposeValues(section string, deployment map[string]any, references map[string]string) error {
	containers, _, err := unstructured.NestedSlice(deployment, "spec", "template", "spec", "containers")
	if err != nil {
		return err
	}
	if len(containers) != 1 {
		return fmt.Errorf("it has %d containers, and the values are for one", len(containers))
	}
	container, ok := containers[0].(map[string]any)
	if !ok {
		return errors.New("its container has no fields")
	}
	replicas, _, err := unstructured.NestedInt64(deployment, "spec", "replicas")
	if err != nil {
		return err
	}
	prefix, indent := ".Values.", ""
	if section == "" {
		image, err := yaml.Marshal(map[string]any{"image": container["image"]})
		if err != nil {
			return err
		}
		c.values.WriteString("# The image of all containers, with a tag or a digest.\n" + string(image))
		c.schemas[section]["image"] = map[string]any{"type": "string", "minLength": 1}
	} else {
		prefix, indent = prefix+section+".", "  "
	}
	c.schemas[section]["replicas"] = map[string]any{"type": "integer", "minimum": 0}
	c.schemas[section]["resources"] = resourcesSchema()
	defaults, err := yaml.Marshal(map[string]any{"replicas": replicas, "resources": container["resources"]})
	if err != nil {
		return err
	}
	for line := range strings.Lines(string(defaults)) {
		c.values.WriteString(indent + line)
	}
	references["VALUE(image)"] = ".Values.image"
	references["VALUE(replicas)"], references["VALUE(resources)"] = prefix+"replicas", prefix+"resources"
	container["image"], container["resources"] = "VALUE(image)", "VALUE(resources)"
	if err := unstructured.SetNestedSlice(deployment, containers, "spec", "template", "spec", "containers"); err != nil {
		return err
	}
	return unstructured.SetNestedField(deployment, "VALUE(replicas)", "spec", "replicas")
}
