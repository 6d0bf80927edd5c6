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
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/utils/ptr"
)

// touchedLabel is the label that enqueues an object. markerPrefix begins the names of
// markers.
const (
	touchedLabel = "example.com/touched"
	markerPrefix = "marker-"
)

// readyType is the condition type that all controllers set.
const readyType = "Ready"

func isMarker(name string) bool {
	return strings.HasPrefix(name, markerPrefix)
}

// state is what must be the same after every run: the objects, without markers and without
// what differs from one creation to the next.
type state struct {
	Owners     map[string]ownerState
	Dependents map[string]dependentState
}

// objectStates returns the state.
func (k *kindSuite) objectStates(h *history) state {
	s, present := state{map[string]ownerState{}, map[string]dependentState{}}, existing(k.ownerVersions(h))
	for name, owner := range present {
		if !isMarker(name) {
			s.Owners[name] = newOwnerState(owner, k.Varies)
		}
	}
	for name, dependent := range existing(k.ownedVersions(h)) {
		if !isMarker(name) {
			s.Dependents[name] = newDependentState(dependent, k.Owns.Varies, present)
		}
	}
	return s
}

// String returns the complete state, for comparison.
func (s state) String() string {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encoding a state: %v", err))
	}
	return string(data)
}

// summary returns one line for each object, as scenarios expect it.
func (s state) summary() []string {
	lines := []string{}
	for _, name := range slices.Sorted(maps.Keys(s.Owners)) {
		lines = append(lines, s.Owners[name].summary(name))
	}
	for _, name := range slices.Sorted(maps.Keys(s.Dependents)) {
		lines = append(lines, s.Dependents[name].summary(name))
	}
	return lines
}

// ownerState is the state of an owner.
type ownerState struct {
	Kind           string
	Labels         map[string]string
	Finalizers     []string
	Deleting       bool
	UpToDate       bool
	Ready          metav1.ConditionStatus
	Reason         string
	Message        string
	ConditionTypes []string
	Spec           any
	// Status has the fields of the status that not every kind has.
	Status map[string]any
}

func newOwnerState(owner *unstructured.Unstructured, varies []string) ownerState {
	observed, conditions := statusOf(owner)
	s := ownerState{
		Kind: owner.GetKind(), Labels: owner.GetLabels(), Finalizers: owner.GetFinalizers(), Deleting: owner.GetDeletionTimestamp() != nil,
		UpToDate: observed == owner.GetGeneration(),
	}
	delete(s.Labels, touchedLabel)
	if len(s.Labels) == 0 {
		s.Labels = nil
	}
	for _, condition := range conditions {
		s.ConditionTypes = append(s.ConditionTypes, condition.Type)
	}
	if ready := meta.FindStatusCondition(conditions, readyType); ready != nil {
		s.Ready, s.Reason = ready.Status, ready.Reason
		// Each run has a namespace of its own, which commands in messages name.
		s.Message = strings.ReplaceAll(ready.Message, "-n "+owner.GetNamespace(), "-n NAMESPACE")
		s.UpToDate = s.UpToDate && ready.ObservedGeneration == owner.GetGeneration()
	}
	content := withoutVarying(owner, varies)
	s.Spec = content["spec"]
	s.Status, _ = content["status"].(map[string]any)
	delete(s.Status, "conditions")
	delete(s.Status, "observedGeneration")
	return s
}

// statusOf returns what each status has.
func statusOf(owner *unstructured.Unstructured) (observed int64, conditions []metav1.Condition) {
	var object struct {
		Status struct {
			ObservedGeneration int64              `json:"observedGeneration"`
			Conditions         []metav1.Condition `json:"conditions"`
		} `json:"status"`
	}
	convert(owner, &object)
	return object.Status.ObservedGeneration, object.Status.Conditions
}

// convert converts the object to a Go type. The API server has validated it.
func convert(object *unstructured.Unstructured, to any) {
	if err := runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, to); err != nil {
		panic(fmt.Sprintf("converting %s %s to %T: %v", object.GetKind(), object.GetName(), to, err))
	}
}

func (s ownerState) summary(name string) string {
	line := s.Kind + " " + name + ": "
	if s.Ready == metav1.ConditionTrue {
		line += "ready"
	} else {
		line += s.Reason
	}
	if active, ok := s.Status["activeCount"]; ok {
		line += fmt.Sprintf(", %d active", active)
	}
	return markUnsettled(line, s.UpToDate && !s.Deleting)
}

// markUnsettled marks the line of an object that is about to change.
func markUnsettled(line string, stays bool) string {
	if stays {
		return line
	}
	return "not settled: " + line
}

// dependentState is the state of a dependent.
type dependentState struct {
	Kind       string
	Labels     map[string]string
	Owners     []string
	Finalizers []string
	Deleting   bool
	// Content are the fields beside metadata and status.
	Content map[string]any
	// Pods are how many Pods the status counts, and Result is how a Job ended.
	Pods     map[string]any
	Result   batchv1.JobConditionType
	UpToDate bool
}

func newDependentState(dependent *unstructured.Unstructured, varies []string, present map[string]*unstructured.Unstructured) dependentState {
	content := withoutVarying(dependent, varies)
	status, _ := content["status"].(map[string]any)
	s := dependentState{
		Kind: dependent.GetKind(), Labels: comparableLabels(dependent), Owners: describeOwners(dependent, present), Finalizers: dependent.GetFinalizers(),
		Deleting: dependent.GetDeletionTimestamp() != nil, Content: content, Pods: map[string]any{}, UpToDate: true,
	}
	if observed, ok := status["observedGeneration"].(int64); ok {
		s.UpToDate = observed >= dependent.GetGeneration()
	}
	if _, found, _ := unstructured.NestedInt64(content, "spec", "replicas"); found {
		for _, count := range []string{"availableReplicas", "replicas", "updatedReplicas"} {
			s.Pods[count], _, _ = unstructured.NestedInt64(status, count)
		}
	}
	if s.Kind == "Job" {
		job := &batchv1.Job{}
		convert(dependent, job)
		s.Result = finishedType(job)
	}
	for _, field := range []string{"apiVersion", "kind", "metadata", "status"} {
		delete(content, field)
	}
	return s
}

// comparableLabels returns the labels with a word in place of the object's UID: the API server
// gives a Job whose last label is removed those of its Pods, among them the UID.
func comparableLabels(object metav1.Object) map[string]string {
	labels := maps.Clone(object.GetLabels())
	for label, value := range labels {
		if value == string(object.GetUID()) {
			labels[label] = "its UID"
		}
	}
	return labels
}

func (s dependentState) summary(name string) string {
	line := s.Kind + " " + name + " " + ownerName(s.Owners)
	switch {
	case s.Kind == "Job" && s.Result == "":
		line += ": active"
	case s.Kind == "Job":
		line += ": " + string(s.Result)
	case len(s.Pods) > 0:
		line += fmt.Sprintf(": %d", s.Pods["availableReplicas"])
	}
	return markUnsettled(line, s.UpToDate && !s.Deleting)
}

// withoutVarying returns a copy of the object's content in which fields that differ from run to
// run have their size in place of their value.
func withoutVarying(object *unstructured.Unstructured, fields []string) map[string]any {
	content := object.DeepCopy().Object
	for _, field := range fields {
		path := strings.Split(field, ".")
		value, found, err := unstructured.NestedFieldNoCopy(content, path...)
		if err != nil || !found {
			continue
		}
		size := "a value"
		switch value := value.(type) {
		case []any:
			size = fmt.Sprint(len(value))
		case map[string]any:
			size = strings.Join(slices.Sorted(maps.Keys(value)), " ")
		}
		if err := unstructured.SetNestedField(content, size, path...); err != nil {
			panic(fmt.Sprintf("setting %s, which was found: %v", field, err))
		}
	}
	return content
}

// describeOwners describes owner references without UIDs, which differ from run to run,
// but with whether the UID is that of the existing object.
func describeOwners(object metav1.Object, present map[string]*unstructured.Unstructured) []string {
	var descriptions []string
	for _, ref := range object.GetOwnerReferences() {
		owner := present[ref.Name]
		descriptions = append(descriptions, fmt.Sprintf("%s %s %s, controller: %t, blockOwnerDeletion: %t, present: %t", ref.APIVersion, ref.Kind, ref.Name,
			ptr.Deref(ref.Controller, false), ptr.Deref(ref.BlockOwnerDeletion, false), owner != nil && owner.GetUID() == ref.UID))
	}
	return descriptions
}

// ownerName returns the name of the single owner.
func ownerName(descriptions []string) string {
	switch {
	case len(descriptions) == 0:
		return "without an owner"
	case len(descriptions) > 1:
		return "of several owners"
	case strings.HasSuffix(descriptions[0], "present: false"):
		return "of a deleted owner"
	}
	words, _, _ := strings.Cut(descriptions[0], ",")
	return "of " + words[strings.LastIndex(words, " ")+1:]
}

func TestComparableLabels(t *testing.T) {
	job := decode(`{"apiVersion":"batch/v1","kind":"Job","metadata":{"name":"x","uid":"1","labels":{"controller-uid":"1","job-name":"x"}}}`)
	if got, want := comparableLabels(job), map[string]string{"controller-uid": "its UID", "job-name": "x"}; !maps.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
}
