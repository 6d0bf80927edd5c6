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
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"

	"example.com/sample-controller/test/check/trace"
	"example.com/sample-controller/test/kinds"
)

// suite is what a suite file says of a controller. The paths in it are relative to the file.
type suite struct {
	// Example is a file with one object that the controller reconciles.
	Example string `json:"example,omitempty"`
	// Spec is that of the example if the suite is of a kind, by default the one that all suites have.
	Spec json.RawMessage `json:"spec,omitempty"`
	// Setup is a file with objects that each namespace has before the controller starts.
	Setup string `json:"setup,omitempty"`
	// Scenarios are beyond the generated ones.
	Scenarios []*scenario `json:"scenarios,omitempty"`
	// Quiet is for how long nothing changes at rest: longer than the controller waits on its own.
	Quiet metav1.Duration `json:"quiet,omitempty"`
	// Ignore are beginnings of lines that no judge compares, such as "deployments x /spec/paused". A * is any name.
	Ignore []string `json:"ignore,omitempty"`
	// Keeps are the generated scenarios after which the controller leaves what a user did.
	Keeps []string `json:"keeps,omitempty"`
	// AllowNoops is set if a sync may repeat a write that changes nothing, such as a server-side apply.
	AllowNoops bool `json:"allowNoops,omitempty"`

	trace.RuleSet

	example *unstructured.Unstructured
	setup   []*unstructured.Unstructured
	// data are of a kind of this repository, whose file has the suite under check, or nil.
	data *kinds.Data
}

// scenario is what users do, and what must follow.
type scenario struct {
	Name string `json:"name"`
	// Prepare leads to the state in which the operation begins, by default to the example: at rest, unless the last step
	// of it waits for something else. No fault is injected into it.
	Prepare []step `json:"prepare,omitempty"`
	Steps   []step `json:"steps"`
	// Restores is set if the end must be the state in which the operation began.
	Restores bool `json:"restores,omitempty"`
	// EndsAs are steps that lead to the same end from an empty namespace.
	EndsAs []step `json:"endsAs,omitempty"`

	// similar is set if another scenario is so similar that no fault is injected into this one.
	similar bool
}

// step is one thing that a user does to objects, or waits for: Example, Apply, Merge, Strategic, JSON, Delete or Until.
// Texts in the first five may contain ${EXPRESSION}.
type step struct {
	// On are the objects, by default the example.
	On selector `json:"object,omitempty"`

	// Example applies the example with this JSON merge patch.
	Example json.RawMessage            `json:"example,omitempty"`
	Apply   *unstructured.Unstructured `json:"apply,omitempty"`
	// Merge, Strategic and JSON are patches of these types, and Delete is a propagation policy.
	Merge     json.RawMessage            `json:"merge,omitempty"`
	Strategic json.RawMessage            `json:"strategic,omitempty"`
	JSON      json.RawMessage            `json:"json,omitempty"`
	Delete    metav1.DeletionPropagation `json:"delete,omitempty"`
	// Until waits until the expression is true. There object is the example, was the example when the wait began, and
	// quiet for how long nothing has changed.
	Until string `json:"until,omitempty"`
}

// selector selects objects of a kind: by their name, or those for which Where is true. There object is the object, and
// was the example.
type selector struct {
	APIVersion  string `json:"apiVersion,omitempty"`
	Kind        string `json:"kind,omitempty"`
	Name        string `json:"name,omitempty"`
	Where       string `json:"where,omitempty"`
	Subresource string `json:"subresource,omitempty"`
}

func selectorOf(object *unstructured.Unstructured) selector {
	return selector{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Name: object.GetName()}
}

// String describes the step in a report.
func (s *step) String() string {
	object := s.On.Kind + " " + cmp.Or(s.On.Name, "where "+s.On.Where)
	switch {
	case s.Apply != nil:
		return "apply " + object
	case s.Delete != "":
		return "delete " + object
	case s.Until != "":
		return "wait until " + s.Until
	}
	return fmt.Sprintf("patch %s %s%s%s", object, s.Merge, s.Strategic, s.JSON)
}

// readSuite reads the file and what it names.
func readSuite(file string) (*suite, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	s := &suite{Quiet: metav1.Duration{Duration: 2 * time.Second}}
	var of struct {
		Controller string `json:"controller"`
	}
	if err := yaml.Unmarshal(data, &of); err != nil {
		return nil, err
	}
	if of.Controller == "" {
		err = errors.Join(yaml.UnmarshalStrict(data, s), s.readExample(filepath.Dir(file)))
	} else if s.data, err = kinds.ReadFile(file); err == nil {
		err = s.ofKind()
	}
	if err != nil {
		return nil, err
	}
	return s, s.complete()
}

// readExample reads the files that the suite names.
func (s *suite) readExample(dir string) error {
	examples, err := trace.ReadObjects(filepath.Join(dir, s.Example))
	if err != nil || len(examples) != 1 {
		return fmt.Errorf("example: one object is needed: %d, %w", len(examples), err)
	}
	s.example = examples[0]
	if s.Setup != "" {
		s.setup, err = trace.ReadObjects(filepath.Join(dir, s.Setup))
	}
	return err
}

// ofKind takes the suite from the data of a kind.
func (s *suite) ofKind() error {
	err := yaml.UnmarshalStrict(s.data.Check, s)
	if err == nil {
		if s.Spec == nil {
			s.Spec = s.data.Spec
		}
		s.example, err = s.data.New("x", s.Spec)
	}
	if err != nil {
		return err
	}
	for resource, varies := range map[string][]string{s.data.Resource: s.data.Varies, s.data.Owns.GVR().Resource: s.data.Owns.Varies} {
		for _, field := range varies {
			s.Ignore = append(s.Ignore, resource+" * /"+strings.ReplaceAll(field, ".", "/"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.data.Changes)) {
		s.Scenarios = append(s.Scenarios, &scenario{Name: name, Steps: []step{{Merge: s.data.Changes[name]}}, EndsAs: []step{{Example: s.data.Changes[name]}}})
	}
	for _, name := range slices.Sorted(maps.Keys(s.data.Owns.Drifts)) {
		on := selector{APIVersion: s.data.Owns.APIVersion, Kind: s.data.Owns.Kind, Where: "owned"}
		s.Scenarios = append(s.Scenarios, &scenario{Name: name, Steps: []step{{On: on, Strategic: s.data.Owns.Drifts[name]}}})
	}
	return nil
}

// complete adds what follows from the rest, and compiles the expressions.
func (s *suite) complete() error {
	s.Rules = append(s.Rules, trace.Rule{
		Name: "a write to what another object controls", When: "before != null",
		Must: "!before.metadata.?ownerReferences.orValue([]).exists(o, o.name == '" + trace.BystanderPrefix + "owner')",
	})
	if err := s.Prepare(); err != nil {
		return err
	}
	for _, c := range s.Scenarios {
		if c.Name == "" || len(c.Steps) == 0 {
			return fmt.Errorf("scenario %q: it needs a name and steps", c.Name)
		}
		if c.Prepare == nil {
			c.Prepare = []step{{Apply: s.example}}
		}
		for _, steps := range [][]step{c.Prepare, c.Steps, c.EndsAs} {
			for i := range steps {
				if err := s.completeStep(&steps[i]); err != nil {
					return fmt.Errorf("scenario %q: %w", c.Name, err)
				}
			}
		}
	}
	return nil
}

func (s *suite) completeStep(one *step) error {
	if one.Example != nil {
		changed, err := jsonpatch.MergePatch(trace.MustEncode(s.example), one.Example)
		one.Apply = &unstructured.Unstructured{}
		if err = errors.Join(err, one.Apply.UnmarshalJSON(changed)); err != nil {
			return err
		}
	}
	switch {
	case one.Apply != nil:
		one.On = selectorOf(one.Apply)
	case one.On == selector{}:
		one.On = selectorOf(s.example)
	}
	err := s.CompileIn(string(one.Merge) + string(one.Strategic) + string(one.JSON))
	if one.Apply != nil {
		err = errors.Join(err, s.CompileIn(string(trace.MustEncode(one.Apply))))
	}
	return errors.Join(err, s.Compile(one.On.Where), s.Compile(one.Until))
}

// generate runs the controller on the example, and returns scenarios that follow from what it does. It also makes the
// bystanders. A finding says that there is nothing to test.
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
	requests := r.proxy.recorded(0)
	r.proxy.mu.Lock()
	c.watched = slices.Sorted(maps.Keys(r.proxy.watched))
	r.proxy.mu.Unlock()
	for i := range requests {
		track(c.tracked, &requests[i])
	}
	if len(c.tracked) == 0 && ctx.Err() == nil {
		message := fmt.Sprintf("it wrote nothing for the example: %v; its output:\n%s", r.proxy.found(), r.lastOutput())
		return nil, &finding{Judge: "idle", Message: message}
	}
	if err != nil {
		return nil, err
	}
	leases, err := r.leases().List(ctx, metav1.ListOptions{})
	c.leases = err == nil && len(leases.Items) > 0
	c.tracked[c.owners.Resource], c.tracked[c.owners.Resource+"/status"] = true, true
	scenarios := c.ofOwner()
	// Changes come before what creates the example again: there it is chance which requests are sent.
	scenarios = slices.Insert(scenarios, 3, c.changes(ctx, r)...)
	seen, foreign, wait := map[string]bool{}, []step(nil), []step{{Until: "rest"}}
	versions, _ := r.history.All()
	for _, v := range c.owned(versions) {
		c.tracked[v.Resource] = true
		if !seen[v.Resource] {
			scenarios = append(scenarios, c.ofDependent(ctx, r, &v, requests)...)
			of := selector{APIVersion: v.Object.GetAPIVersion(), Kind: v.Object.GetKind(), Where: "foreign"}
			foreign = append(foreign, step{On: of, Delete: metav1.DeletePropagationBackground})
		}
		seen[v.Resource] = true
	}
	if len(foreign) > 0 {
		scenarios = append(scenarios, &scenario{
			Name: "what is foreign is deleted", Prepare: slices.Concat(c.created(), wait, c.deleted(metav1.DeletePropagationOrphan)),
			Steps: slices.Concat(c.created(), wait, foreign), EndsAs: c.created(),
		})
	}
	// As the last one, since a part injects each fault as early as it can.
	return append(scenarios, &scenario{Name: endOfNamespace, Prepare: c.created(), Steps: []step{
		{On: selector{APIVersion: "v1", Kind: "Namespace", Where: "rest"}, Delete: metav1.DeletePropagationBackground}, {Until: "gone"},
	}}), nil
}

// endOfNamespace is the scenario in which no process can take a lease.
const endOfNamespace = "its namespace is deleted"

// created creates the example.
func (c *checker) created() []step {
	return []step{{On: selectorOf(c.suite.example), Apply: c.suite.example}}
}

// ofOwner returns the scenarios that need no knowledge of the example.
func (c *checker) ofOwner() []*scenario {
	created := c.created()
	background, foreground, orphan := c.deleted(metav1.DeletePropagationBackground), c.deleted(metav1.DeletePropagationForeground), c.deleted(metav1.DeletePropagationOrphan)
	return []*scenario{
		{Name: "created", Steps: created},
		{Name: "deleted", Prepare: created, Steps: background},
		{Name: "deleted in the foreground", Prepare: created, Steps: foreground},
		{Name: "deleted and created again", Prepare: created, Restores: true, Steps: slices.Concat(background, created)},
		{Name: "orphaned and created again", Prepare: created, Steps: slices.Concat(orphan, created)},
	}
}

// deleted deletes the example and waits until it is gone.
func (c *checker) deleted(policy metav1.DeletionPropagation) []step {
	to := selectorOf(c.suite.example)
	return []step{{On: to, Delete: policy}, {On: to, Until: "gone"}}
}

// changes returns a scenario for each scalar in the spec of the example that the API server lets users change, and one
// without faults for a smaller number.
func (c *checker) changes(ctx context.Context, r *run) []*scenario {
	to, client := selectorOf(c.suite.example), c.cluster.client.Resource(c.owners).Namespace(r.namespace)
	var scenarios []*scenario
	for _, path := range scalars(c.suite.example.Object, "/spec/") {
		value := trace.Flatten(c.suite.example.Object)[path]
		number, isNumber := value.(int64)
		patch, changed, err := change(ctx, client, to.Name, c.suite.example.Object, path, others(value))
		if err == nil && (c.change == nil || isNumber) {
			c.change = []step{{Until: "rest"}, {On: to, JSON: patch}}
		}
		if slices.ContainsFunc(c.suite.Scenarios, func(s *scenario) bool { return s.EndsAs != nil && decode(s.Steps[0].Merge)[path] != nil }) {
			continue
		}
		if err != nil {
			c.note("%s is not changed: %.300s", path, err)
			continue
		}
		changes := scenario{Name: "change " + path, Prepare: c.created(), Steps: []step{{On: to, JSON: patch}}, EndsAs: []step{{On: to, Apply: changed}}}
		scenarios = append(scenarios, &changes)
		if !isNumber {
			continue
		}
		if patch, changed, err = change(ctx, client, to.Name, c.suite.example.Object, path, []any{number - 1}); err == nil {
			less := changes
			less.Name, less.similar, less.Steps, less.EndsAs = changes.Name+" down", true, []step{{On: to, JSON: patch}}, []step{{On: to, Apply: changed}}
			scenarios = append(scenarios, &less)
		}
	}
	return scenarios
}

// ofDependent returns the scenarios about an object that the example owns, and makes its bystanders. Its fields drift
// that the controller sent to create it.
func (c *checker) ofDependent(ctx context.Context, r *run, v *trace.Version, requests []trace.Request) []*scenario {
	to := selector{APIVersion: v.Object.GetAPIVersion(), Kind: v.Object.GetKind(), Where: "owned"}
	released, held := json.RawMessage(`{"metadata":{"ownerReferences":null}}`), json.RawMessage(`{"metadata":{"finalizers":["example.com/hold"]}}`)
	given := json.RawMessage(`{"metadata":{"ownerReferences":[{"apiVersion":"v1","kind":"ConfigMap",` +
		`"name":"bystander-owner","uid":"${stranger}","controller":true}]}}`)
	wait := []step{{Until: "rest"}}
	holding, letGo := step{On: to, Merge: held}, step{On: selector{APIVersion: to.APIVersion, Kind: to.Kind, Where: "finalized"}, Merge: json.RawMessage(`{"metadata":{"finalizers":null}}`)}
	scenarios := []*scenario{{
		Name: "delete " + v.Resource, Prepare: c.created(), Restores: true,
		Steps: []step{{On: to, Delete: metav1.DeletePropagationBackground}},
	}, {
		Name: "release " + v.Resource, Prepare: c.created(), Steps: []step{{On: to, Merge: released}},
	}, {
		Name: "give away " + v.Resource, Prepare: c.created(), Steps: append([]step{{On: to, Merge: given}}, c.change...),
	}, {
		Name:    "created again while " + v.Resource + " terminate",
		Prepare: append(c.created(), holding), EndsAs: c.created(),
		Steps: slices.Concat(c.deleted(metav1.DeletePropagationBackground), c.created(), wait, []step{letGo}),
	}}
	sent := slices.IndexFunc(requests, func(r trace.Request) bool {
		return r.Resource == v.Resource && r.Made == v.Object.GetName() && r.Body != nil && r.Subresource == ""
	})
	client, _, err := c.cluster.at(r.namespace, to.APIVersion, to.Kind)
	if sent < 0 || err != nil {
		c.note("%s: what the controller sent to create it is not known: no drift and no bystanders", v.Resource)
		return scenarios
	}
	body := requests[sent].Body
	for _, path := range scalars(body, "/spec/", "/data/", "/metadata/labels/", "/metadata/annotations/") {
		patch, _, err := change(ctx, client, v.Object.GetName(), v.Object.Object, path, others(trace.Flatten(v.Object.Object)[path]))
		if err != nil {
			c.note("%s %s does not drift: %.300s", v.Resource, path, err)
			continue
		}
		scenarios = append(scenarios, &scenario{
			Name: "drift " + v.Resource + " " + path, Prepare: c.created(), Restores: true, Steps: []step{{On: to, JSON: patch}},
			similar: c.part && strings.HasPrefix(scenarios[len(scenarios)-1].Name, "drift"),
		})
	}
	c.addBystanders(ctx, client, v, body)
	return scenarios
}

// owned returns the last version of each existing object that the example owns.
func (c *checker) owned(versions []trace.Version) []trace.Version {
	last, owned := trace.Latest(versions), []trace.Version(nil)
	for _, v := range last {
		ours := slices.ContainsFunc(v.Object.GetOwnerReferences(), func(o metav1.OwnerReference) bool {
			owner, ok := last[o.UID]
			return ok && owner.Resource == c.owners.Resource && owner.Object.GetName() == c.suite.example.GetName()
		})
		if ours && !v.Deleted {
			owned = append(owned, v)
		}
	}
	return owned
}

// addBystanders adds an object without an owner and one with another owner, if the API server accepts them.
func (c *checker) addBystanders(ctx context.Context, client dynamic.ResourceInterface, v *trace.Version, sent map[string]any) {
	for _, name := range []string{"orphan", "owned"} {
		if c.ignored("bystander " + name + " " + v.Resource) {
			continue
		}
		o := (&unstructured.Unstructured{Object: sent}).DeepCopy()
		o.Object["metadata"] = map[string]any{}
		o.SetGroupVersionKind(schema.FromAPIVersionAndKind(v.Object.GetAPIVersion(), v.Object.GetKind()))
		o.SetName(trace.BystanderPrefix + name + "-" + v.Resource)
		o.SetLabels(v.Object.GetLabels())
		delete(o.Object, "status")
		if spec, ok := o.Object["spec"].(map[string]any); ok && spec["replicas"] != nil {
			// Otherwise its Pods would take part in the run.
			spec["replicas"] = int64(0)
		}
		if _, err := client.Create(ctx, o, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil {
			c.note("no bystander for %s: %.300s", v.Resource, err)
			return
		}
		c.bystanders = append(c.bystanders, o)
	}
}
