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
	"strconv"
	"strings"
	"time"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
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
	// setup creates what each namespace has before the controller starts, and created the example.
	setup, created []step
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

func selectorOf(object *unstructured.Unstructured, where string) selector {
	return selector{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Where: where}
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
	if s.Setup == "" {
		return nil
	}
	objects, err := trace.ReadObjects(filepath.Join(dir, s.Setup))
	for _, object := range objects {
		s.setup = append(s.setup, step{Apply: object})
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
	owns := &s.data.Owns
	for resource, varies := range map[string][]string{s.data.Resource: s.data.Varies, owns.GVR().Resource: owns.Varies} {
		for _, field := range varies {
			s.Ignore = append(s.Ignore, resource+" * /"+strings.ReplaceAll(field, ".", "/"))
		}
	}
	for _, name := range slices.Sorted(maps.Keys(s.data.Changes)) {
		steps, endsAs := []step{{Merge: s.data.Changes[name]}}, []step{{Example: s.data.Changes[name]}}
		s.Scenarios = append(s.Scenarios, &scenario{Name: name, Steps: steps, EndsAs: endsAs})
	}
	on := selector{APIVersion: owns.APIVersion, Kind: owns.Kind, Where: "owned"}
	for _, name := range slices.Sorted(maps.Keys(owns.Drifts)) {
		s.Scenarios = append(s.Scenarios, &scenario{Name: name, Steps: []step{{On: on, Strategic: owns.Drifts[name]}}})
	}
	return nil
}

// toStranger gives an object to another owner.
const toStranger = `{"metadata":{"ownerReferences":[` +
	`{"apiVersion":"v1","kind":"ConfigMap","name":"bystander-owner","uid":"${stranger}","controller":true}]}}`

// configMap applies one that has these metadata.
func configMap(metadata string) step {
	return step{Apply: trace.DecodeObject([]byte(`{"apiVersion":"v1","kind":"ConfigMap","metadata":{` + metadata + `}}`))}
}

// complete adds what follows from the rest, and compiles the expressions.
func (s *suite) complete() error {
	s.Rules = append(s.Rules, trace.Rule{
		Name: "a write to what another object controls", When: "before != null",
		Must: "!before.metadata.?ownerReferences.orValue([]).exists(o, o.name == 'bystander-owner')",
	})
	// On a busy cluster that takes long.
	s.Ends = append(s.Ends, trace.Rule{Name: "a controller of the cluster has not acted upon its object", Must: "objects.all(o, " +
		"!(o.kind in ['Deployment', 'ReplicaSet', 'StatefulSet', 'DaemonSet']) || has(o.metadata.deletionTimestamp) || " +
		"o.?status.?observedGeneration.orValue(0) >= o.metadata.generation)"})
	stranger := configMap(`"name":"bystander-owner"`)
	s.setup, s.created = slices.Insert(s.setup, 0, stranger), []step{{Apply: s.example}}
	if err := s.Prepare(); err != nil {
		return err
	}
	return s.completeScenarios(s.Scenarios)
}

func (s *suite) completeScenarios(all []*scenario) error {
	for _, c := range append(all, &scenario{Name: "what each has", Prepare: s.setup, Steps: s.created}) {
		if c.Name == "" || len(c.Steps) == 0 {
			return fmt.Errorf("scenario %q: it needs a name and steps", c.Name)
		}
		if c.Prepare == nil {
			c.Prepare = s.created
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
	if of := cmp.Or(one.Apply, s.example); one.Apply != nil || one.On == (selector{}) {
		one.On = selectorOf(of, "")
		one.On.Name = of.GetName()
	}
	texts := [][]byte{[]byte(one.On.Name), one.Merge, one.Strategic, one.JSON, trace.MustEncode(one.Apply)}
	return errors.Join(s.CompileIn(string(slices.Concat(texts...))), s.Compile(one.On.Where), s.Compile(one.Until))
}

// endOfNamespace is the scenario in which no process can take a lease.
const endOfNamespace = "its namespace is deleted"

// deleted deletes the example and waits until it is gone.
func deleted(policy metav1.DeletionPropagation) []step {
	return []step{{Delete: policy}, {Until: "gone"}}
}

// generate runs the controller on the example, and returns scenarios that follow from what it does. It also makes the
// bystanders. A finding says that there is nothing to test.
func (c *checker) generate(ctx context.Context) ([]*scenario, error) {
	r, err := c.newRun(ctx, c.withoutFault(&scenario{Name: "the example"}))
	if r != nil {
		defer r.close(ctx)
	}
	created, background := c.suite.created, metav1.DeletePropagationBackground
	scenarios := []*scenario{
		{Name: "created", Prepare: []step{}, Steps: created},
		{Name: "deleted", Steps: deleted(background)},
		{Name: "deleted in the foreground", Steps: deleted(metav1.DeletePropagationForeground)},
		{Name: "deleted and created again", Restores: true, Steps: slices.Concat(deleted(background), created)},
		{Name: "orphaned and created again", Steps: slices.Concat(deleted(metav1.DeletePropagationOrphan), created)},
	}
	if err = errors.Join(err, c.suite.completeScenarios(scenarios)); err == nil {
		err = c.learn(ctx, r)
	}
	if err != nil {
		return nil, err
	}
	// Changes come before what creates the example again: there it is chance which requests are sent.
	scenarios = slices.Insert(scenarios, 3, c.changes(ctx, r)...)
	seen, foreign, rest := map[string]bool{}, []step(nil), []step{{Until: "rest"}}
	versions, _ := r.history.All()
	for _, v := range c.owned(versions) {
		c.tracked[v.Resource] = true
		if !seen[v.Resource] {
			scenarios = append(scenarios, c.ofDependent(ctx, r, &v)...)
			foreign = append(foreign, step{On: selectorOf(v.Object, "foreign"), Delete: background})
		}
		seen[v.Resource] = true
	}
	if len(foreign) > 0 {
		scenarios = append(scenarios, &scenario{
			Name: "what is foreign is deleted", Prepare: slices.Concat(created, rest, deleted(metav1.DeletePropagationOrphan)),
			Steps: slices.Concat(created, rest, foreign), EndsAs: created,
		})
	}
	// The last one is about the namespace, since a part injects each fault as early as it can.
	itself := selector{APIVersion: "v1", Kind: "Namespace", Name: "${object.metadata.namespace}"}
	last := &scenario{Name: endOfNamespace, Steps: []step{{On: itself, Delete: background}, {Until: "gone"}}}
	scenarios = append(slices.Concat(scenarios, c.suite.Scenarios), last)
	return scenarios, c.suite.completeScenarios(scenarios)
}

// changes returns a scenario for each scalar in the spec of the example that the API server lets users change, and one
// without faults for a smaller number.
func (c *checker) changes(ctx context.Context, r *run) (scenarios []*scenario) {
	example := c.suite.example
	client := c.cluster.client.Resource(c.owners).Namespace(r.namespace)
	add := func(path, suffix string, values ...any) {
		patch, changed, err := change(ctx, client, example, path, values)
		_, isNumber := values[0].(int64)
		if err == nil && suffix == "" && (c.change == nil || isNumber) {
			c.change = []step{{Until: "rest"}, {JSON: patch}}
		}
		isTold := func(s *scenario) bool {
			return s.EndsAs != nil && strings.Contains(string(s.Steps[0].Merge), strconv.Quote(filepath.Base(path)))
		}
		switch {
		case slices.ContainsFunc(c.suite.Scenarios, isTold) || err != nil && suffix != "":
		case err != nil:
			c.note("%s is not changed: %.300s", path, err)
		default:
			s := scenario{Name: "change " + path + suffix, Steps: []step{{JSON: patch}}, EndsAs: []step{{Apply: changed}}}
			s.similar = suffix != ""
			scenarios = append(scenarios, &s)
		}
	}
	for _, path := range scalars(example.Object, "/spec/") {
		value := trace.Flatten(example.Object)[path]
		add(path, "", others(value)...)
		if number, isNumber := value.(int64); isNumber {
			add(path, " down", number-1)
		}
	}
	return scenarios
}

// ofDependent returns the scenarios about an object that the example owns, and makes its bystanders. Its fields drift
// that the controller sent to create it.
func (c *checker) ofDependent(ctx context.Context, r *run, v *trace.Version) []*scenario {
	of, background := selectorOf(v.Object, "owned"), metav1.DeletePropagationBackground
	merge := func(where, patch string) step {
		return step{On: selectorOf(v.Object, where), Merge: json.RawMessage(patch)}
	}
	given := step{On: of, Merge: json.RawMessage(toStranger)}
	released := merge("owned", `{"metadata":{"ownerReferences":null}}`)
	held := merge("owned", `{"metadata":{"finalizers":["example.com/hold"]}}`)
	letGo := []step{{Until: "rest"}, merge("finalized", `{"metadata":{"finalizers":null}}`)}
	created := c.suite.created
	scenarios := []*scenario{
		{Name: "delete " + v.Resource, Restores: true, Steps: []step{{On: of, Delete: background}}},
		{Name: "release " + v.Resource, Steps: []step{released}},
		{Name: "give away " + v.Resource, Steps: append([]step{given}, c.change...)},
		{
			Name: "created again while " + v.Resource + " terminate", Prepare: slices.Concat(created, []step{held}),
			Steps: slices.Concat(deleted(background), created, letGo), EndsAs: created,
		},
	}
	requests := r.recorded(0)
	sent := slices.IndexFunc(requests, func(r trace.Request) bool {
		return r.Resource == v.Resource && r.Made == v.Object.GetName() && r.Body != nil && r.Subresource == ""
	})
	client, _, err := c.cluster.at(r.namespace, of.APIVersion, of.Kind)
	if sent < 0 || err != nil {
		c.note("%s: what the controller sent to create it is not known: no drift and no bystanders", v.Resource)
		return scenarios
	}
	body := requests[sent].Body
	for _, path := range scalars(body, "/spec/", "/data/", "/metadata/labels/", "/metadata/annotations/") {
		patch, _, err := change(ctx, client, v.Object, path, others(trace.Flatten(v.Object.Object)[path]))
		if err != nil {
			c.note("%s %s does not drift: %.300s", v.Resource, path, err)
			continue
		}
		similar := c.part && strings.HasPrefix(scenarios[len(scenarios)-1].Name, "drift")
		scenarios = append(scenarios, &scenario{
			Name: "drift " + v.Resource + " " + path, Restores: true, Steps: []step{{On: of, JSON: patch}}, similar: similar,
		})
	}
	c.addBystanders(ctx, client, v, body)
	return scenarios
}

// addBystanders adds an object without an owner and one with another owner, if the API server accepts them.
func (c *checker) addBystanders(ctx context.Context, client dynamic.ResourceInterface, v *trace.Version, sent map[string]any) {
	for _, name := range []string{"orphan", "owned"} {
		if c.suite.ignores("bystander " + name + " " + v.Resource) {
			continue
		}
		o := (&unstructured.Unstructured{Object: sent}).DeepCopy()
		o.Object["metadata"] = map[string]any{}
		o.SetGroupVersionKind(v.Object.GroupVersionKind())
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
		c.suite.setup = append(c.suite.setup, step{Apply: o})
		if name == "owned" {
			to := selectorOf(o, "object.metadata.name == '"+o.GetName()+"'")
			c.suite.setup = append(c.suite.setup, step{On: to, Merge: json.RawMessage(toStranger)})
		}
	}
}
