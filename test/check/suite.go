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
	"os"
	"path/filepath"
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
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
	// Ignore are beginnings of lines that no judge compares, such as "deployments x .spec.paused".
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
	// Prepare leads to the state in which the operation begins. No fault is injected into it.
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

// ref names an object: the example if it is empty, or with Owned the first of that kind that the example owns.
type ref struct {
	APIVersion string `json:"apiVersion,omitempty"`
	Kind       string `json:"kind,omitempty"`
	Name       string `json:"name,omitempty"`
	Owned      bool   `json:"owned,omitempty"`
}

// patchStep has a JSON merge patch or a JSON patch.
type patchStep struct {
	ref `json:",inline"`

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

// ref returns the object of the step.
func (s *step) ref() *ref {
	switch {
	case s.Apply != nil:
		return &ref{APIVersion: s.Apply.GetAPIVersion(), Kind: s.Apply.GetKind(), Name: s.Apply.GetName()}
	case s.Patch != nil:
		return &s.Patch.ref
	case s.Delete != nil:
		return &s.Delete.ref
	case s.Wait != nil:
		return &s.Wait.ref
	}
	return nil
}

// String describes the step in a report.
func (s *step) String() string {
	r := s.ref()
	object := r.Kind + " " + r.Name
	if r.Owned {
		object = "its " + r.Kind
	}
	switch {
	case s.Apply != nil:
		return "apply " + object
	case s.Patch != nil:
		return fmt.Sprintf("patch %s %s%s", object, s.Patch.Merge, s.Patch.JSON)
	case s.Delete != nil:
		return "delete " + object
	case s.Wait.Gone:
		return "wait until " + object + " is gone"
	}
	return fmt.Sprintf("wait until %s has %s = %s", object, s.Wait.Path, s.Wait.Value)
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
		for _, one := range slices.Concat(c.Prepare, c.Steps, c.EndsAs) {
			r := one.ref()
			if r == nil {
				return nil, fmt.Errorf("scenario %q: a step is one of apply, patch, delete and wait", c.Name)
			}
			if *r == (ref{}) {
				*r = *(&step{Apply: s.example}).ref()
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
