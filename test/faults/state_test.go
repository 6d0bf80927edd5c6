//go:build faults

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

package faults

import (
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// touchedLabel marks the Foos that were touched to wake the controller, and
// markerPrefix begins the names of Foos that tell when it has dealt with that.
const (
	touchedLabel = "example.com/touched"
	markerPrefix = "marker-"
)

func isMarker(name string) bool {
	return strings.HasPrefix(name, markerPrefix)
}

// state is all that must be the same after every run: what there is, less names
// and numbers that differ from one creation of an object to the next.
type state struct {
	Foos        map[string]fooState
	Deployments map[string]deploymentState
}

type fooState struct {
	Spec           v1alpha1.FooSpec
	Labels         map[string]string
	Finalizers     []string
	Deleting       bool
	UpToDate       bool
	Available      int32
	Replicas       int32
	Selector       string
	Ready          metav1.ConditionStatus
	Reason         string
	Message        string
	ConditionTypes []string
}

type deploymentState struct {
	Labels     map[string]string
	Owners     []string
	Finalizers []string
	Deleting   bool
	Spec       appsv1.DeploymentSpec
	Available  int32
	Replicas   int32
	Updated    int32
	UpToDate   bool
}

// state returns what there is in the namespace. The caller holds the lock.
func (h *history) state() state {
	s := state{Foos: map[string]fooState{}, Deployments: map[string]deploymentState{}}
	foos := present(h.foos)
	for name, foo := range foos {
		if !isMarker(name) {
			s.Foos[name] = stateOfFoo(foo)
		}
	}
	for name, deployment := range present(h.deployments) {
		if !isMarker(name) {
			s.Deployments[name] = stateOfDeployment(deployment, foos)
		}
	}
	return s
}

func stateOfFoo(foo *v1alpha1.Foo) fooState {
	s := fooState{
		Spec:       foo.Spec,
		Labels:     maps.Clone(foo.Labels),
		Finalizers: foo.Finalizers,
		Deleting:   foo.DeletionTimestamp != nil,
		UpToDate:   foo.Status.ObservedGeneration == foo.Generation,
		Available:  foo.Status.AvailableReplicas,
		Replicas:   foo.Status.Replicas,
		Selector:   foo.Status.Selector,
	}
	delete(s.Labels, touchedLabel)
	if len(s.Labels) == 0 {
		s.Labels = nil
	}
	for _, condition := range foo.Status.Conditions {
		s.ConditionTypes = append(s.ConditionTypes, condition.Type)
	}
	if ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady); ready != nil {
		s.Ready, s.Reason, s.Message = ready.Status, ready.Reason, ready.Message
		s.UpToDate = s.UpToDate && ready.ObservedGeneration == foo.Generation
	}
	return s
}

func stateOfDeployment(deployment *appsv1.Deployment, foos map[string]*v1alpha1.Foo) deploymentState {
	s := deploymentState{
		Labels:     deployment.Labels,
		Finalizers: deployment.Finalizers,
		Deleting:   deployment.DeletionTimestamp != nil,
		Spec:       deployment.Spec,
		Available:  deployment.Status.AvailableReplicas,
		Replicas:   deployment.Status.Replicas,
		Updated:    deployment.Status.UpdatedReplicas,
		UpToDate:   deployment.Status.ObservedGeneration >= deployment.Generation,
	}
	for _, ref := range deployment.OwnerReferences {
		// The UID differs from run to run, but not whether it is the right one.
		uid := types.UID("")
		if foo := foos[ref.Name]; foo != nil {
			uid = foo.UID
		}
		s.Owners = append(s.Owners, fmt.Sprintf("%s %s %s, controller: %t, blockOwnerDeletion: %t, present: %t", ref.APIVersion, ref.Kind, ref.Name,
			ptr.Deref(ref.Controller, false), ptr.Deref(ref.BlockOwnerDeletion, false), ref.UID == uid))
	}
	return s
}

// String gives the state in full, for comparison.
func (s state) String() string {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encoding a state: %v", err))
	}
	return string(data)
}

// summary gives the state in a line an object, as scenarios expect it.
func (s state) summary() []string {
	lines := []string{}
	for _, name := range slices.Sorted(maps.Keys(s.Foos)) {
		foo := s.Foos[name]
		line := fmt.Sprintf("Foo %s asks for %s: %s %d", name, foo.Spec.DeploymentName, foo.Reason, foo.Available)
		if !foo.UpToDate || foo.Deleting {
			line += " for now"
		}
		lines = append(lines, line)
	}
	for _, name := range slices.Sorted(maps.Keys(s.Deployments)) {
		deployment := s.Deployments[name]
		line := fmt.Sprintf("Deployment %s of %s: %d", name, deployment.owner(), deployment.Available)
		if !deployment.UpToDate || deployment.Deleting {
			line += " for now"
		}
		lines = append(lines, line)
	}
	return lines
}

// owner names the one owner that a Deployment has in these scenarios.
func (s deploymentState) owner() string {
	switch {
	case len(s.Owners) == 0:
		return "nobody"
	case len(s.Owners) > 1:
		return "many"
	case strings.HasSuffix(s.Owners[0], "present: false"):
		return "a Foo that is gone"
	}
	words, _, _ := strings.Cut(s.Owners[0], ",")
	return words[strings.LastIndex(words, " ")+1:]
}
