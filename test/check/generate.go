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
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
)

// bystanderPrefix begins the names of objects that look like dependents of the example and are none.
const bystanderPrefix = "bystander-"

// generate runs the controller on the example, and returns scenarios that follow from what it does. It also
// makes the bystanders. A finding says that there is nothing to test.
func (c *checker) generate(ctx context.Context) ([]*scenario, *finding, error) {
	r, err := c.newRun(ctx, nil, nil)
	if r != nil {
		defer r.close(ctx)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := r.take(ctx, []step{{Apply: c.suite.example}}); err != nil {
		return nil, nil, err
	}
	if err := r.rest(ctx, nil); err != nil {
		return nil, &finding{judge: "settled", message: err.Error(), requests: lastOf(r.proxy.recorded(0))}, nil
	}
	requests := r.proxy.recorded(0)
	for i := range requests {
		track(c.tracked, &requests[i])
	}
	if len(c.tracked) == 0 {
		return nil, &finding{judge: "idle", message: "the controller wrote nothing for the example; its output:\n" + r.output.String()}, nil
	}
	c.tracked[c.owners.Resource], c.tracked[c.owners.Resource+"/status"] = true, true
	scenarios := c.ofOwner()
	changes, err := c.changes(ctx, r)
	if err != nil {
		return nil, nil, err
	}
	scenarios = append(scenarios, changes...)
	owned := map[string]bool{}
	for _, v := range c.ownedBy(r.history.all(), c.suite.example.GetName()) {
		c.tracked[v.resource] = true
		if owned[v.resource] {
			continue
		}
		owned[v.resource] = true
		some, err := c.ofDependent(ctx, r, v, sentFor(requests, v))
		if err != nil {
			return nil, nil, err
		}
		scenarios = append(scenarios, some...)
	}
	return scenarios, nil, nil
}

// ofOwner returns the scenarios that need no knowledge of the example.
func (c *checker) ofOwner() []*scenario {
	created, to := step{Apply: c.suite.example}, refTo(c.suite.example)
	deleted := func(policy metav1.DeletionPropagation) []step {
		return []step{{Delete: &deleteStep{to, policy}}, {Wait: &waitStep{ref: to, Gone: true}}}
	}
	prepared := []step{created}
	return []*scenario{
		{Name: "created", Steps: []step{created}},
		{Name: "deleted", Prepare: prepared, Steps: deleted(metav1.DeletePropagationBackground)},
		{Name: "deleted in the foreground", Prepare: prepared, Steps: deleted(metav1.DeletePropagationForeground)},
		{
			Name: "deleted and created again", Prepare: prepared, Restores: true,
			Steps: append(deleted(metav1.DeletePropagationBackground), created),
		},
	}
}

// changes returns a scenario for each scalar in the spec of the example that the API server lets users change.
func (c *checker) changes(ctx context.Context, r *run) ([]*scenario, error) {
	client := c.cluster.client.Resource(c.owners).Namespace(r.namespace)
	to := refTo(c.suite.example)
	var scenarios []*scenario
	for _, path := range scalars(c.suite.example.Object, ".spec.") {
		patch, changed, err := change(ctx, client, to.Name, c.suite.example.Object, path)
		if err != nil {
			c.note("%s is not changed: %v", path, err)
			continue
		}
		scenarios = append(scenarios, &scenario{
			Name: "change " + path, Prepare: []step{{Apply: c.suite.example}},
			Steps: []step{{Patch: &patchStep{ref: to, JSON: patch}}}, EndsAs: []step{{Apply: changed}},
		})
	}
	return scenarios, nil
}

// ofDependent returns the scenarios about an object that the example owns and for which the controller sent
// that body, and makes its bystanders.
func (c *checker) ofDependent(ctx context.Context, r *run, v version, sent map[string]any) ([]*scenario, error) {
	to := ref{APIVersion: v.object.GetAPIVersion(), Kind: v.object.GetKind(), Owned: true}
	prepared := []step{{Apply: c.suite.example}}
	scenarios := []*scenario{
		{Name: "delete " + v.resource, Prepare: prepared, Restores: true, Steps: []step{{Delete: &deleteStep{to, metav1.DeletePropagationBackground}}}},
	}
	gvr, err := c.cluster.resource(to.APIVersion, to.Kind)
	if err != nil {
		return nil, err
	}
	client := c.cluster.client.Resource(gvr).Namespace(r.namespace)
	for _, path := range scalars(sent, ".spec.", ".data.", ".metadata.labels.", ".metadata.annotations.") {
		patch, _, err := change(ctx, client, v.object.GetName(), v.object.Object, path)
		if err != nil {
			c.note("%s %s does not drift: %v", v.resource, path, err)
			continue
		}
		scenarios = append(scenarios, &scenario{
			Name: "drift " + v.resource + " " + path, Prepare: prepared, Restores: true,
			Steps: []step{{Patch: &patchStep{ref: to, JSON: patch}}},
		})
	}
	if sent != nil {
		c.addBystanders(ctx, client, v, sent)
	}
	return scenarios, nil
}

// addBystanders adds an object without an owner and one with another owner, if the API server accepts them.
func (c *checker) addBystanders(ctx context.Context, client dynamic.ResourceInterface, v version, sent map[string]any) {
	for _, name := range []string{"orphan", "owned"} {
		o := (&unstructured.Unstructured{Object: sent}).DeepCopy()
		o.Object["metadata"] = map[string]any{}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(v.object.GetAPIVersion(), v.object.GetKind()))
		o.SetName(bystanderPrefix + name + "-" + v.resource)
		o.SetLabels(v.object.GetLabels())
		delete(o.Object, "status")
		if spec, ok := o.Object["spec"].(map[string]any); ok && spec["replicas"] != nil {
			// Otherwise its Pods would take part in the run.
			spec["replicas"] = int64(0)
		}
		if _, err := client.Create(ctx, o, metav1.CreateOptions{DryRun: dryRun}); err != nil {
			c.note("no bystander for %s: %v", v.resource, err)
			return
		}
		c.bystanders = append(c.bystanders, o)
	}
}

// sentFor returns the body with which the controller created the object, nil if it is not known.
func sentFor(requests []request, v version) map[string]any {
	for i := range requests {
		if r := &requests[i]; r.Resource == v.resource && r.name == v.object.GetName() && r.body != nil && r.subresource == "" {
			return r.body
		}
	}
	return nil
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
		patch := mustEncode([]map[string]any{{"op": "replace", "path": pointer(path), "value": value}})
		got, err := client.Patch(ctx, name, types.JSONPatchType, patch, metav1.PatchOptions{DryRun: dryRun})
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

// pointer returns the JSON pointer of a path.
func pointer(path string) string {
	var out strings.Builder
	for path != "" {
		var word string
		if strings.HasPrefix(path, ".[") {
			word, path, _ = strings.Cut(path[2:], "]")
		} else {
			end := strings.Index(path[1:], ".") + 1
			if end == 0 {
				end = len(path)
			}
			word, path = path[1:end], path[end:]
		}
		out.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(word))
	}
	return out.String()
}

// lastOf returns how often each class of write was sent, for a controller that never stops.
func lastOf(requests []request) []string {
	counts := map[string]int{}
	plain := newAliases("\x00", nil)
	for i := range requests {
		if requests[i].isWrite() {
			counts[requests[i].class(plain.of)]++
		}
	}
	var lines []string
	for _, class := range slices.Sorted(maps.Keys(counts)) {
		lines = append(lines, fmt.Sprintf("%s: %d times", class, counts[class]))
	}
	return lines
}
