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
func (c *checker) generate(ctx context.Context) ([]*scenario, error) {
	r, err := c.newRun(ctx, nil)
	if r != nil {
		defer r.close(ctx)
	}
	if err != nil {
		return nil, err
	}
	if err := r.take(ctx, []step{{Apply: c.suite.example}}); err != nil {
		return nil, err
	}
	err = r.rest(ctx, nil)
	if err != nil {
		return nil, err
	}
	requests := r.proxy.recorded(0)
	r.proxy.mu.Lock()
	c.watched = slices.Sorted(maps.Keys(r.proxy.watched))
	r.proxy.mu.Unlock()
	for i := range requests {
		track(c.tracked, &requests[i])
	}
	if len(c.tracked) == 0 {
		return nil, &finding{judge: "idle", message: "the controller wrote nothing for the example"}
	}
	c.tracked[c.owners.Resource], c.tracked[c.owners.Resource+"/status"] = true, true
	scenarios := slices.Concat(c.ofOwner(), c.changes(ctx, r))
	seen := map[string]bool{}
	versions, _ := r.history.all()
	for _, v := range c.owned(versions) {
		c.tracked[v.resource] = true
		if !seen[v.resource] {
			scenarios = append(scenarios, c.ofDependent(ctx, r, &v, requests)...)
		}
		seen[v.resource] = true
	}
	return scenarios, nil
}

// ofOwner returns the scenarios that need no knowledge of the example.
func (c *checker) ofOwner() []*scenario {
	created := []step{{Apply: c.suite.example}}
	to := *created[0].ref()
	deleted := func(policy metav1.DeletionPropagation) []step {
		return []step{{Delete: &deleteStep{to, policy}}, {Wait: &waitStep{ref: to, Gone: true}}}
	}
	background := deleted(metav1.DeletePropagationBackground)
	return []*scenario{
		{Name: "created", Steps: created},
		{Name: "deleted", Prepare: created, Steps: background},
		{Name: "deleted in the foreground", Prepare: created, Steps: deleted(metav1.DeletePropagationForeground)},
		{Name: "deleted and created again", Prepare: created, Restores: true, Steps: slices.Concat(background, created)},
	}
}

// changes returns a scenario for each scalar in the spec of the example that the API server lets users change.
func (c *checker) changes(ctx context.Context, r *run) []*scenario {
	client := c.cluster.client.Resource(c.owners).Namespace(r.namespace)
	prepare := []step{{Apply: c.suite.example}}
	to := *prepare[0].ref()
	var scenarios []*scenario
	for _, path := range scalars(c.suite.example.Object, ".spec.") {
		patch, changed, err := change(ctx, client, to.Name, c.suite.example.Object, path)
		if err != nil {
			c.note("%s is not changed: %v", path, err)
			continue
		}
		steps := []step{{Patch: &patchStep{ref: to, JSON: patch}}}
		scenarios = append(scenarios, &scenario{Name: "change " + path, Prepare: prepare, Steps: steps, EndsAs: []step{{Apply: changed}}})
	}
	return scenarios
}

// ofDependent returns the scenarios about an object that the example owns, and makes its bystanders. Its fields
// drift that the controller sent to create it.
func (c *checker) ofDependent(ctx context.Context, r *run, v *version, requests []request) []*scenario {
	to := ref{APIVersion: v.object.GetAPIVersion(), Kind: v.object.GetKind(), Owned: true}
	prepare := []step{{Apply: c.suite.example}}
	scenarios := []*scenario{{
		Name: "delete " + v.resource, Prepare: prepare, Restores: true,
		Steps: []step{{Delete: &deleteStep{to, metav1.DeletePropagationBackground}}},
	}}
	sent := slices.IndexFunc(requests, func(r request) bool {
		return r.Resource == v.resource && r.name == v.object.GetName() && r.body != nil && r.subresource == ""
	})
	client, _, err := c.cluster.at(r.namespace, to.APIVersion, to.Kind)
	if sent < 0 || err != nil {
		c.note("%s: what the controller sent to create it is not known: no drift and no bystanders", v.resource)
		return scenarios
	}
	body := requests[sent].body
	for _, path := range scalars(body, ".spec.", ".data.", ".metadata.labels.", ".metadata.annotations.") {
		patch, _, err := change(ctx, client, v.object.GetName(), v.object.Object, path)
		if err != nil {
			c.note("%s %s does not drift: %v", v.resource, path, err)
			continue
		}
		scenarios = append(scenarios, &scenario{
			Name: "drift " + v.resource + " " + path, Prepare: prepare, Restores: true,
			Steps: []step{{Patch: &patchStep{ref: to, JSON: patch}}},
		})
	}
	c.addBystanders(ctx, client, v, body)
	return scenarios
}

// addBystanders adds an object without an owner and one with another owner, if the API server accepts them.
func (c *checker) addBystanders(ctx context.Context, client dynamic.ResourceInterface, v *version, sent map[string]any) {
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
		if _, err := client.Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			c.note("no bystander for %s: %v", v.resource, err)
			return
		}
		c.bystanders = append(c.bystanders, o)
	}
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

// pointer returns the JSON pointer of a path.
func pointer(path string) string {
	var out strings.Builder
	for path != "" {
		word, rest, bracketed := "", "", strings.HasPrefix(path, ".[")
		if bracketed {
			word, rest, _ = strings.Cut(path[2:], "]")
		} else {
			word, rest, _ = strings.Cut(path[1:], ".")
		}
		if path = rest; path != "" && !bracketed {
			path = "." + path
		}
		out.WriteString("/" + strings.NewReplacer("~", "~0", "/", "~1").Replace(word))
	}
	return out.String()
}
