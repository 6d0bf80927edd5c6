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

// state is what must be the same after every run: the objects without names and numbers
// that differ from one creation to the next.
type state struct {
	Owners, Dependents map[string]objectState
}

type objectState interface {
	// summary returns the state in one line, as scenarios expect it.
	summary(name string) string
}

// statesOf returns the states of all objects but markers.
func statesOf[T metav1.Object](versions []version[T], of func(T) objectState) map[string]objectState {
	states := map[string]objectState{}
	for name, object := range existing(versions) {
		if !isMarker(name) {
			states[name] = of(object)
		}
	}
	return states
}

// String returns the complete state, for comparison.
func (s state) String() string {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encoding a state: %v", err))
	}
	return string(data)
}

// summary returns one line for each object.
func (s state) summary() []string {
	lines := []string{}
	for _, states := range []map[string]objectState{s.Owners, s.Dependents} {
		for _, name := range slices.Sorted(maps.Keys(states)) {
			lines = append(lines, states[name].summary(name))
		}
	}
	return lines
}

// markUnsettled marks the line of an object that is about to change.
func markUnsettled(line string, stays bool) string {
	if stays {
		return line
	}
	return line + " (not settled)"
}

// ownerState is the part of the state that all kinds share.
type ownerState struct {
	Labels         map[string]string
	Finalizers     []string
	Deleting       bool
	UpToDate       bool
	Ready          metav1.ConditionStatus
	Reason         string
	Message        string
	ConditionTypes []string
}

func newOwnerState(object metav1.Object, observed int64, conditions []metav1.Condition) ownerState {
	s := ownerState{
		Labels:     maps.Clone(object.GetLabels()),
		Finalizers: object.GetFinalizers(),
		Deleting:   object.GetDeletionTimestamp() != nil,
		UpToDate:   observed == object.GetGeneration(),
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
		s.Message = strings.ReplaceAll(ready.Message, "-n "+object.GetNamespace(), "-n NAMESPACE")
		s.UpToDate = s.UpToDate && ready.ObservedGeneration == object.GetGeneration()
	}
	return s
}

func (s ownerState) common() ownerState {
	return s
}

func (s ownerState) settled() bool {
	return s.UpToDate && !s.Deleting
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

// deploymentStates returns the states of Deployments, whose owners are of one kind.
func deploymentStates[P metav1.Object](h *history, ownerVersions []version[P]) map[string]objectState {
	existingOwners := existing(ownerVersions)
	return statesOf(h.deployments, func(d *appsv1.Deployment) objectState {
		return deploymentState{
			Labels:     d.Labels,
			Owners:     describeOwners(d, existingOwners),
			Finalizers: d.Finalizers,
			Deleting:   d.DeletionTimestamp != nil,
			Spec:       d.Spec,
			Available:  d.Status.AvailableReplicas,
			Replicas:   d.Status.Replicas,
			Updated:    d.Status.UpdatedReplicas,
			UpToDate:   d.Status.ObservedGeneration >= d.Generation,
		}
	})
}

// describeOwners describes owner references without UIDs, which differ from run to run,
// but with whether the UID is that of the existing object.
func describeOwners[P metav1.Object](object metav1.Object, existingOwners map[string]P) []string {
	var descriptions []string
	for _, ref := range object.GetOwnerReferences() {
		owner, there := existingOwners[ref.Name]
		descriptions = append(descriptions, fmt.Sprintf("%s %s %s, controller: %t, blockOwnerDeletion: %t, present: %t", ref.APIVersion, ref.Kind, ref.Name,
			ptr.Deref(ref.Controller, false), ptr.Deref(ref.BlockOwnerDeletion, false), there && owner.GetUID() == ref.UID))
	}
	return descriptions
}

func (s deploymentState) summary(name string) string {
	return markUnsettled(fmt.Sprintf("Deployment %s %s: %d", name, ownerName(s.Owners), s.Available), s.UpToDate && !s.Deleting)
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
