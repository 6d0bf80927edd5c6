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
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/util/jsonpath"
)

// suite is what a suite file says of a controller. The paths in it are relative to the file.
type suite struct {
	// CRDs are files with CRDs, which are created in the cluster unless they exist.
	CRDs []string `json:"crds,omitempty"`
	// Example is a file with one object that the controller reconciles.
	Example string `json:"example"`
	// Setup are files with objects that each namespace has before the controller starts.
	Setup []string `json:"setup,omitempty"`
	// Scenarios are beyond the generated ones, which OnlyThese leaves out.
	Scenarios []*scenario `json:"scenarios,omitempty"`
	OnlyThese bool        `json:"onlyThese,omitempty"`
	// Quiet is for how long nothing changes at rest: longer than the controller waits on its own.
	Quiet metav1.Duration `json:"quiet,omitempty"`
	// Patience is for how long the end may differ while nothing changes.
	Patience metav1.Duration `json:"patience,omitempty"`
	// Ignore are beginnings of lines of an end that no judge compares, such as "deployments x .spec.paused".
	Ignore []string `json:"ignore,omitempty"`
	// AllowNoops is set if a sync may repeat a write that changes nothing, as a server-side apply.
	AllowNoops bool `json:"allowNoops,omitempty"`
	// KeepLease is set if a new process must wait until the lease of the killed one expires.
	KeepLease bool `json:"keepLease,omitempty"`

	example *unstructured.Unstructured
	setup   []*unstructured.Unstructured
}

// scenario is what users do, and what must follow.
type scenario struct {
	Name string `json:"name"`
	// Prepare leads to the state in which the operation begins, by default that of the example at rest. No
	// fault is injected into it.
	Prepare []step `json:"prepare,omitempty"`
	Steps   []step `json:"steps"`
	// Restores is set if the end must be the state in which the operation began.
	Restores bool `json:"restores,omitempty"`
	// EndsAs are steps that lead to the same end from an empty namespace.
	EndsAs []step `json:"endsAs,omitempty"`
}

// step is one thing that a user does, or waits for.
type step struct {
	Apply  *unstructured.Unstructured `json:"apply,omitempty"`
	Patch  *patchStep                 `json:"patch,omitempty"`
	Delete *deleteStep                `json:"delete,omitempty"`
	Wait   *waitStep                  `json:"wait,omitempty"`
}

// ref names an object: the example by default, or with Owned the first object of that kind that the example owns.
type ref struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Name       string `json:"name,omitempty"`
	Owned      bool   `json:"owned,omitempty"`
}

type patchStep struct {
	ref `json:",inline"`

	// Merge is a JSON merge patch, and JSON a JSON patch.
	Merge json.RawMessage `json:"merge,omitempty"`
	JSON  json.RawMessage `json:"json,omitempty"`
}

type deleteStep struct {
	ref `json:",inline"`

	Propagation metav1.DeletionPropagation `json:"propagation,omitempty"`
}

// waitStep waits until the JSONPath selects the value, or until the object is gone.
type waitStep struct {
	ref `json:",inline"`

	Path  string `json:"path,omitempty"`
	Value string `json:"value,omitempty"`
	Gone  bool   `json:"gone,omitempty"`
}

// String describes the step in a report.
func (s *step) String() string {
	switch {
	case s.Apply != nil:
		return "apply " + s.Apply.GetKind() + " " + s.Apply.GetName()
	case s.Patch != nil:
		return "patch " + s.Patch.String() + " " + string(s.Patch.Merge) + string(s.Patch.JSON)
	case s.Delete != nil:
		return "delete " + s.Delete.String()
	case s.Wait.Gone:
		return "wait until " + s.Wait.String() + " is gone"
	}
	return fmt.Sprintf("wait until %s has %s = %s", s.Wait.String(), s.Wait.Path, s.Wait.Value)
}

func (r *ref) String() string {
	if r.Owned {
		return "its " + r.Kind
	}
	return r.Kind + " " + r.Name
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
	at := func(name string) string { return filepath.Join(filepath.Dir(file), name) }
	for i := range s.CRDs {
		s.CRDs[i] = at(s.CRDs[i])
	}
	examples, err := readObjects(at(s.Example))
	if err != nil {
		return nil, fmt.Errorf("example: %w", err)
	}
	if len(examples) != 1 {
		return nil, fmt.Errorf("example: %s has %d objects", s.Example, len(examples))
	}
	s.example = examples[0]
	for _, name := range s.Setup {
		objects, err := readObjects(at(name))
		if err != nil {
			return nil, fmt.Errorf("setup: %w", err)
		}
		s.setup = append(s.setup, objects...)
	}
	for _, scenario := range s.Scenarios {
		if err := s.complete(scenario); err != nil {
			return nil, fmt.Errorf("scenario %q: %w", scenario.Name, err)
		}
	}
	return s, nil
}

// complete sets the defaults of a scenario of the file, and refuses what has no meaning.
func (s *suite) complete(c *scenario) error {
	if c.Prepare == nil {
		c.Prepare = []step{{Apply: s.example}}
	}
	if c.Name == "" || len(c.Steps) == 0 {
		return errors.New("it needs a name and steps")
	}
	for _, steps := range [][]step{c.Prepare, c.Steps, c.EndsAs} {
		for i := range steps {
			var r *ref
			switch one := &steps[i]; {
			case one.Apply != nil:
				continue
			case one.Patch != nil:
				r = &one.Patch.ref
			case one.Delete != nil:
				r = &one.Delete.ref
			case one.Wait != nil:
				if err := jsonpath.New("").Parse(one.Wait.Path); err != nil {
					return err
				}
				r = &one.Wait.ref
			default:
				return errors.New("a step is one of apply, patch, delete and wait")
			}
			if *r == (ref{}) || r.Kind == s.example.GetKind() && r.APIVersion == "" {
				example := refTo(s.example)
				r.APIVersion, r.Kind = example.APIVersion, example.Kind
				if r.Name == "" {
					r.Name = example.Name
				}
			}
		}
	}
	return nil
}

func refTo(object *unstructured.Unstructured) ref {
	return ref{APIVersion: object.GetAPIVersion(), Kind: object.GetKind(), Name: object.GetName()}
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

// The options of most requests, and the name under which users write.
var (
	getOptions    = metav1.GetOptions{}
	createOptions = metav1.CreateOptions{FieldManager: "check-user"}
	patchOptions  = metav1.PatchOptions{FieldManager: "check-user"}
	dryRun        = []string{metav1.DryRunAll}
)

func createIfAbsent(ctx context.Context, client dynamic.ResourceInterface, object *unstructured.Unstructured) error {
	_, err := client.Create(ctx, object, createOptions)
	if apierrors.IsAlreadyExists(err) {
		return nil
	}
	return err
}

// find returns in words what the JSONPath selects of the object, "" for nothing.
func find(path string, object map[string]any) string {
	j := jsonpath.New("").AllowMissingKeys(true)
	if j.Parse(path) != nil {
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

func encode64(data []byte) string { return base64.StdEncoding.EncodeToString(data) }
