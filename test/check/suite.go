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
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
)

// suite is what a suite file says of a controller. The paths in it are relative to the file.
type suite struct {
	// Example is a file with one object that the controller reconciles.
	Example string `json:"example"`
	// Setup is a file with objects that each namespace has before the controller starts.
	Setup string `json:"setup,omitempty"`
	// Scenarios are beyond the generated ones.
	Scenarios []*scenario `json:"scenarios,omitempty"`
	// Quiet is for how long nothing changes at rest: longer than the controller waits on its own.
	Quiet metav1.Duration `json:"quiet,omitempty"`
	// Patience is for how long the end may differ while nothing changes.
	Patience metav1.Duration `json:"patience,omitempty"`
	// Ignore are beginnings of lines that no judge compares, such as "deployments x /spec/paused".
	Ignore []string `json:"ignore,omitempty"`
	// Keeps are the generated scenarios after which the controller leaves what a user did.
	Keeps []string `json:"keeps,omitempty"`
	// AllowNoops is set if a sync may repeat a write that changes nothing, such as a server-side apply.
	AllowNoops bool `json:"allowNoops,omitempty"`
	// KeepLease is set if a new process must wait until the lease of the killed one expires.
	KeepLease bool `json:"keepLease,omitempty"`

	example *unstructured.Unstructured
	setup   []*unstructured.Unstructured
}

// scenario is what users do, and what must follow.
type scenario struct {
	Name string `json:"name"`
	// Prepare leads to the state in which the operation begins, by default to the example at rest. No fault is
	// injected into it.
	Prepare []step `json:"prepare,omitempty"`
	Steps   []step `json:"steps"`
	// Restores is set if the end must be the state in which the operation began.
	Restores bool `json:"restores,omitempty"`
	// EndsAs are steps that lead to the same end from an empty namespace.
	EndsAs []step `json:"endsAs,omitempty"`
}

// step is one thing that a user does to an object, or waits for: Apply, Merge, JSON, Delete, Gone or a Path.
type step struct {
	// On is the object, by default the example.
	On ref `json:"object,omitempty"`

	Apply *unstructured.Unstructured `json:"apply,omitempty"`
	// Merge is a JSON merge patch, JSON a JSON patch, and Delete a propagation policy.
	Merge  json.RawMessage            `json:"merge,omitempty"`
	JSON   json.RawMessage            `json:"json,omitempty"`
	Delete metav1.DeletionPropagation `json:"delete,omitempty"`
	// Gone waits until the object is gone, and Path until that JSONPath selects the value.
	Gone  bool   `json:"gone,omitempty"`
	Path  string `json:"path,omitempty"`
	Value string `json:"value,omitempty"`
}

// ref names an object. With Owned it is the first one of that kind that the example owns.
type ref struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Name       string `json:"name,omitempty"`
	Owned      bool   `json:"owned,omitempty"`
}

func refTo(object *unstructured.Unstructured) ref {
	return ref{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Name: object.GetName()}
}

func (s *step) waits() bool { return s.Gone || s.Path != "" }

// String describes the step in a report.
func (s *step) String() string {
	object := s.On.Kind + " " + s.On.Name
	if s.On.Owned {
		object = "its " + s.On.Kind
	}
	switch {
	case s.Apply != nil:
		return "apply " + object
	case s.Delete != "":
		return "delete " + object
	case s.waits():
		return fmt.Sprintf("wait for %s: %s %s, gone: %t", object, s.Path, s.Value, s.Gone)
	}
	return fmt.Sprintf("patch %s %s%s", object, s.Merge, s.JSON)
}

// readSuite reads the file and what it names.
func readSuite(file string) (*suite, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &suite{Quiet: metav1.Duration{Duration: 2 * time.Second}, Patience: metav1.Duration{Duration: 40 * time.Second}}
	if err := yaml.UnmarshalStrict(data, s); err != nil {
		return nil, err
	}
	examples, err := readObjects(filepath.Join(filepath.Dir(file), s.Example))
	if err != nil || len(examples) != 1 {
		return nil, fmt.Errorf("example: one object is needed: %d, %w", len(examples), err)
	}
	s.example = examples[0]
	if s.Setup != "" {
		if s.setup, err = readObjects(filepath.Join(filepath.Dir(file), s.Setup)); err != nil {
			return nil, err
		}
	}
	for _, c := range s.Scenarios {
		if c.Name == "" || len(c.Steps) == 0 {
			return nil, fmt.Errorf("scenario %q: it needs a name and steps", c.Name)
		}
		if c.Prepare == nil {
			c.Prepare = []step{{Apply: s.example}}
		}
		for _, steps := range [][]step{c.Prepare, c.Steps, c.EndsAs} {
			for i := range steps {
				switch one := &steps[i]; {
				case one.Apply != nil:
					one.On = refTo(one.Apply)
				case one.On == ref{}:
					one.On = refTo(s.example)
				}
			}
		}
	}
	return s, nil
}

// readObjects reads the objects in a YAML file.
func readObjects(file string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		object := &unstructured.Unstructured{}
		if err := decoder.Decode(&object.Object); errors.Is(err, io.EOF) {
			return objects, nil
		} else if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		if len(object.Object) > 0 {
			objects = append(objects, object)
		}
	}
}

// poll waits until check returns nil, and returns its last error if it never does.
func poll(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 100*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

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
	if err = r.take(ctx, c.created()); err == nil {
		err = r.rest(ctx, nil)
	}
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
		message := fmt.Sprintf("the controller wrote nothing for the example: %v; its output:\n%s", r.proxy.found(), r.lastOutput())
		return nil, &finding{judge: "idle", message: message}
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

// created creates the example.
func (c *checker) created() []step {
	return []step{{On: refTo(c.suite.example), Apply: c.suite.example}}
}

// ofOwner returns the scenarios that need no knowledge of the example.
func (c *checker) ofOwner() []*scenario {
	created, to := c.created(), refTo(c.suite.example)
	background := []step{{On: to, Delete: metav1.DeletePropagationBackground}, {On: to, Gone: true}}
	foreground := []step{{On: to, Delete: metav1.DeletePropagationForeground}, {On: to, Gone: true}}
	return []*scenario{
		{Name: "created", Steps: created},
		{Name: "deleted", Prepare: created, Steps: background},
		{Name: "deleted in the foreground", Prepare: created, Steps: foreground},
		{Name: "deleted and created again", Prepare: created, Restores: true, Steps: slices.Concat(background, created)},
	}
}

// changes returns a scenario for each scalar in the spec of the example that the API server lets users change.
func (c *checker) changes(ctx context.Context, r *run) []*scenario {
	to, client := refTo(c.suite.example), c.cluster.client.Resource(c.owners).Namespace(r.namespace)
	var scenarios []*scenario
	for _, path := range scalars(c.suite.example.Object, "/spec/") {
		patch, changed, err := change(ctx, client, to.Name, c.suite.example.Object, path)
		if err != nil {
			c.note("%s is not changed: %v", path, err)
			continue
		}
		scenarios = append(scenarios, &scenario{
			Name: "change " + path, Prepare: c.created(), Steps: []step{{On: to, JSON: patch}}, EndsAs: []step{{On: to, Apply: changed}},
		})
	}
	return scenarios
}

// ofDependent returns the scenarios about an object that the example owns, and makes its bystanders. Its fields
// drift that the controller sent to create it.
func (c *checker) ofDependent(ctx context.Context, r *run, v *version, requests []request) []*scenario {
	to := ref{APIVersion: v.object.GetAPIVersion(), Kind: v.object.GetKind(), Owned: true}
	scenarios := []*scenario{{
		Name: "delete " + v.resource, Prepare: c.created(), Restores: true,
		Steps: []step{{On: to, Delete: metav1.DeletePropagationBackground}},
	}}
	sent := slices.IndexFunc(requests, func(r request) bool {
		return r.Resource == v.resource && r.made == v.object.GetName() && r.body != nil && r.subresource == ""
	})
	client, _, err := c.cluster.at(r.namespace, to.APIVersion, to.Kind)
	if sent < 0 || err != nil {
		c.note("%s: what the controller sent to create it is not known: no drift and no bystanders", v.resource)
		return scenarios
	}
	body := requests[sent].body
	for _, path := range scalars(body, "/spec/", "/data/", "/metadata/labels/", "/metadata/annotations/") {
		patch, _, err := change(ctx, client, v.object.GetName(), v.object.Object, path)
		if err != nil {
			c.note("%s %s does not drift: %v", v.resource, path, err)
			continue
		}
		scenarios = append(scenarios, &scenario{
			Name: "drift " + v.resource + " " + path, Prepare: c.created(), Restores: true, Steps: []step{{On: to, JSON: patch}},
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
