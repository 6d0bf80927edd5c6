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
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/kubernetes/scheme"
)

// target is what the path of a request names.
type target struct {
	schema.GroupVersionResource

	namespace, name, subresource string
}

// parsePath returns false for paths that name no resource, such as discovery.
func parsePath(path string) (target, bool) {
	var t target
	words := strings.Split(strings.Trim(path, "/"), "/")
	switch {
	case len(words) > 2 && words[0] == "api":
		t.Version, words = words[1], words[2:]
	case len(words) > 3 && words[0] == "apis":
		t.Group, t.Version, words = words[1], words[2], words[3:]
	default:
		return t, false
	}
	if words[0] == "namespaces" && len(words) > 2 && words[2] != "status" && words[2] != "finalize" {
		t.namespace, words = words[1], words[2:]
	}
	words = append(words, "", "")
	t.Resource, t.name, t.subresource = words[0], words[1], words[2]
	return t, true
}

// path is the opposite of parsePath.
func (t *target) path() string {
	words := []string{"api", t.Version}
	if t.Group != "" {
		words = []string{"apis", t.Group, t.Version}
	}
	if t.namespace != "" {
		words = append(words, "namespaces", t.namespace)
	}
	words = append(words, t.Resource, t.name, t.subresource)
	return "/" + strings.Join(slices.DeleteFunc(words, func(s string) bool { return s == "" }), "/")
}

// request is a request of the controller about one object.
type request struct {
	target

	verb string
	// fields are those that a patch sets, and body is the object that a request creates.
	fields string
	body   map[string]any
	// conditional is set if the request has a resource version as its precondition.
	conditional bool
	at          time.Time
	// code is the answer of the API server, 0 for none; fault is what was injected.
	code  int
	fault string
	// made and revision are the name and the resource version in the answer.
	made, revision string
	// deletes is the UID of the deleted object, and shown the UID that the process last got of it.
	deletes, shown string
}

func (r *request) isWrite() bool { return r.verb != http.MethodGet }

func (r *request) applied() bool { return r.isWrite() && r.code >= 200 && r.code < 300 }

// class identifies the request across runs.
func (r *request) class(alias func(resource, name string) string) string {
	words := r.verb + " " + r.Resource
	if r.subresource != "" {
		words += "/" + r.subresource
	}
	words += " " + alias(r.Resource, r.name)
	if r.fields != "" {
		words += " {" + r.fields + "}"
	}
	return words
}

// newRequest returns the request with that target and body. A body that nothing here can read is the API
// server's to judge.
func newRequest(verb, contentType string, to target, body []byte) *request {
	r := &request{target: to, verb: verb}
	switch verb {
	case http.MethodPatch:
		var patch any
		if json.Unmarshal(body, &patch) != nil && yaml.Unmarshal(body, &patch) != nil {
			break
		}
		if object, ok := patch.(map[string]any); ok {
			u := unstructured.Unstructured{Object: object}
			r.conditional = u.GetResourceVersion() != ""
			if strings.Contains(contentType, "apply-patch") {
				r.body = object
			}
		}
		r.fields = strings.Join(fieldsOf(patch), ",")
	case http.MethodDelete:
		options := &metav1.DeleteOptions{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, options); err == nil {
			r.conditional = options.Preconditions != nil
		}
	case http.MethodPost, http.MethodPut:
		object := decodeObject(body)
		if object == nil {
			break
		}
		r.conditional = object.GetResourceVersion() != ""
		if verb == http.MethodPost && to.name == "" {
			r.name, r.body = object.GetName(), object.Object
		}
	}
	return r
}

// decodeObject decodes an object or a Status, in JSON or of a built-in kind. It returns nil if it cannot.
func decodeObject(data []byte) *unstructured.Unstructured {
	object := &unstructured.Unstructured{}
	if object.UnmarshalJSON(data) == nil {
		return object
	}
	typed, gvk, err := scheme.Codecs.UniversalDeserializer().Decode(data, nil, nil)
	if err != nil {
		return nil
	}
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(typed)
	if err != nil {
		return nil
	}
	object.Object = fields
	object.SetGroupVersionKind(*gvk)
	return object
}

// fieldsOf returns the fields that a patch sets, without preconditions and identity.
func fieldsOf(patch any) []string {
	found := map[string]bool{}
	if operations, ok := patch.([]any); ok {
		for _, operation := range operations {
			if o, ok := operation.(map[string]any); ok && o["op"] != "test" {
				if path, ok := o["path"].(string); ok {
					found[path] = true
				}
			}
		}
	} else {
		for path := range flatten(patch) {
			switch path {
			case "/kind", "/apiVersion", "/metadata/name", "/metadata/namespace", "/metadata/resourceVersion", "/metadata/uid":
			default:
				found[path] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// flatten returns the scalars in a value by JSON pointer. An empty map or list counts as a scalar.
func flatten(value any) map[string]any {
	leaves := map[string]any{}
	var walk func(string, any)
	walk = func(path string, value any) {
		switch v := value.(type) {
		case map[string]any:
			for key, field := range v {
				walk(path+"/"+strings.NewReplacer("~", "~0", "/", "~1").Replace(key), field)
			}
			if len(v) > 0 {
				return
			}
		case []any:
			for i, element := range v {
				walk(path+"/"+strconv.Itoa(i), element)
			}
			if len(v) > 0 {
				return
			}
		}
		leaves[path] = value
	}
	walk("", value)
	return leaves
}

// point is where a fault is injected: the nth request of that class, or the step of a user.
type point struct {
	class string
	nth   int
}

func (p point) String() string { return p.class + " #" + strconv.Itoa(p.nth) }

// aliases give objects whose names differ from run to run a name that does not.
type aliases struct {
	namespace string
	// stable are the names that all runs have; nil for all names. RESOURCE/* is false if its names always differ.
	stable map[string]bool
	given  map[string]string
	counts map[string]int
}

func newAliases(namespace string, stable map[string]bool) *aliases {
	return &aliases{namespace, stable, map[string]string{}, map[string]int{}}
}

// of returns the alias of an object.
func (a *aliases) of(resource, name string) string {
	name = strings.ReplaceAll(name, a.namespace, "NAMESPACE")
	if same, known := a.stable[resource+"/*"]; a.stable == nil || a.stable[name] && (same || !known) || name == "" {
		return cmp.Or(name, "*")
	}
	key := resource + "/" + name
	if a.given[key] == "" {
		a.counts[resource]++
		a.given[key] = "#" + strconv.Itoa(a.counts[resource])
	}
	return a.given[key]
}

// repoint counts points again, with names that all runs have.
func repoint(points []recordedPoint, names *aliases) []recordedPoint {
	counts := map[string]int{}
	out := slices.Clone(points)
	for i := range out {
		if out[i].request != nil {
			out[i].class = out[i].request.class(names.of)
		}
		counts[out[i].class]++
		out[i].nth = counts[out[i].class]
	}
	return out
}

// commonNames returns the names that objects of all runs have.
func commonNames(runs []*outcome) map[string]bool {
	counts := map[string]int{}
	for _, o := range runs {
		names := map[string]bool{}
		for _, v := range o.versions {
			names[strings.ReplaceAll(v.object.GetName(), o.namespace, "NAMESPACE")] = true
		}
		for i := range o.requests {
			names[strings.ReplaceAll(o.requests[i].name, o.namespace, "NAMESPACE")] = true
		}
		for name := range names {
			counts[name]++
		}
	}
	stable := map[string]bool{}
	for name, n := range counts {
		stable[name] = n == len(runs)
	}
	return stable
}

// track adds the resource of a write.
func track(tracked map[string]bool, r *request) {
	if r.applied() {
		tracked[r.Resource] = true
		if r.subresource == "status" {
			tracked[r.Resource+"/status"] = true
		}
	}
}

// describe returns one line for each point.
func describe(points []recordedPoint) []string {
	lines := make([]string, len(points))
	for i, p := range points {
		lines[i] = p.class
		if p.request != nil {
			lines[i] += fmt.Sprintf(" -> %d %s", p.request.code, p.request.fault)
		}
	}
	return lines
}

// decode returns the scalars of a patch.
func decode(patch []byte) map[string]any {
	var value any
	if json.Unmarshal(patch, &value) != nil {
		return nil
	}
	return flatten(value)
}

// scalars returns the paths of the scalars that begin so, sorted.
func scalars(object map[string]any, prefixes ...string) []string {
	var paths []string
	for path, value := range flatten(object) {
		switch value.(type) {
		case map[string]any, []any, nil:
			continue
		}
		if slices.ContainsFunc(prefixes, func(p string) bool { return strings.HasPrefix(path, p) }) {
			paths = append(paths, path)
		}
	}
	slices.Sort(paths)
	return paths
}

// change returns a JSON patch that gives the scalar at the path another value, and the object with it, if the
// API server accepts one in a dry run.
func change(ctx context.Context, client dynamic.ResourceInterface, name string, object map[string]any, path string) (json.RawMessage, *unstructured.Unstructured, error) {
	var candidates []any
	switch v := flatten(object)[path].(type) {
	case bool:
		candidates = []any{!v}
	case int64:
		candidates = []any{v + 1, v - 1, v * 2}
	case float64:
		candidates = []any{v + 1, v - 1}
	case string:
		candidates = []any{v + "2", "other", "1" + v, ""}
		if n, err := strconv.ParseInt(v, 10, 64); err == nil {
			candidates = []any{strconv.FormatInt(n+1, 10)}
		}
	default:
		return nil, nil, fmt.Errorf("the object has no scalar there")
	}
	var last error
	for _, value := range candidates {
		patch := mustEncode([]map[string]any{{"op": "replace", "path": path, "value": value}})
		got, err := client.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{DryRun: []string{metav1.DryRunAll}})
		if err != nil {
			last = err
			continue
		}
		if fmt.Sprint(flatten(got.Object)[path]) != fmt.Sprint(value) {
			last = fmt.Errorf("the API server does not keep the change")
			continue
		}
		changed := &unstructured.Unstructured{Object: map[string]any{
			"apiVersion": got.GetAPIVersion(), "kind": got.GetKind(), "metadata": map[string]any{"name": name}, "spec": got.Object["spec"],
		}}
		return patch, changed, nil
	}
	return nil, nil, last
}
