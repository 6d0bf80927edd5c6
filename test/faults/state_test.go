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

// touchedLabel marks what was touched to wake the controller, and markerPrefix
// begins the names of objects that tell when it has dealt with that.
const (
	touchedLabel = "example.com/touched"
	markerPrefix = "marker-"
)

// readyType is the type of the condition that every controller of this program keeps.
const readyType = "Ready"

func isMarker(name string) bool {
	return strings.HasPrefix(name, markerPrefix)
}

// state is all that must be the same after every run: what there is, less names
// and numbers that differ from one creation of an object to the next.
type state struct {
	Parents, Children map[string]objectState
}

// objectState is the state of one object.
type objectState interface {
	// line gives it in a line, as scenarios expect it.
	line(name string) string
}

// statesOf returns the states of all objects but markers.
func statesOf[T metav1.Object](versions []version[T], of func(T) objectState) map[string]objectState {
	states := map[string]objectState{}
	for name, object := range present(versions) {
		if !isMarker(name) {
			states[name] = of(object)
		}
	}
	return states
}

// String gives the state in full, for comparison.
func (s state) String() string {
	data, err := json.MarshalIndent(s, "", "  ")
	if err != nil {
		panic(fmt.Sprintf("encoding a state: %v", err))
	}
	return string(data)
}

// summary gives the state in a line an object.
func (s state) summary() []string {
	lines := []string{}
	for _, states := range []map[string]objectState{s.Parents, s.Children} {
		for _, name := range slices.Sorted(maps.Keys(states)) {
			lines = append(lines, states[name].line(name))
		}
	}
	return lines
}

// forNow marks the line of an object that does not stay as it is.
func forNow(line string, stays bool) string {
	if stays {
		return line
	}
	return line + " for now"
}

// parentState is what all kinds of objects have that a controller works for.
type parentState struct {
	Labels         map[string]string
	Finalizers     []string
	Deleting       bool
	UpToDate       bool
	Ready          metav1.ConditionStatus
	Reason         string
	Message        string
	ConditionTypes []string
}

func stateOfParent(object metav1.Object, observed int64, conditions []metav1.Condition) parentState {
	s := parentState{
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
		s.Ready, s.Reason, s.Message = ready.Status, ready.Reason, ready.Message
		s.UpToDate = s.UpToDate && ready.ObservedGeneration == object.GetGeneration()
	}
	return s
}

func (s parentState) common() parentState {
	return s
}

func (s parentState) stays() bool {
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

// deploymentStates returns the states of Deployments whose owners, if they have any,
// are among the parents.
func deploymentStates[P metav1.Object](h *history, parents []version[P]) map[string]objectState {
	owners := present(parents)
	return statesOf(h.deployments, func(d *appsv1.Deployment) objectState {
		return deploymentState{
			Labels:     d.Labels,
			Owners:     ownersOf(d, owners),
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

// ownersOf describes the owners. Their UIDs differ from run to run, but not whether
// they are the right ones.
func ownersOf[P metav1.Object](object metav1.Object, parents map[string]P) []string {
	var owners []string
	for _, ref := range object.GetOwnerReferences() {
		parent, there := parents[ref.Name]
		owners = append(owners, fmt.Sprintf("%s %s %s, controller: %t, blockOwnerDeletion: %t, present: %t", ref.APIVersion, ref.Kind, ref.Name,
			ptr.Deref(ref.Controller, false), ptr.Deref(ref.BlockOwnerDeletion, false), there && parent.GetUID() == ref.UID))
	}
	return owners
}

func (s deploymentState) line(name string) string {
	return forNow(fmt.Sprintf("Deployment %s of %s: %d", name, ownerAmong(s.Owners), s.Available), s.UpToDate && !s.Deleting)
}

// ownerAmong names the one owner that an object has in these scenarios.
func ownerAmong(owners []string) string {
	switch {
	case len(owners) == 0:
		return "nobody"
	case len(owners) > 1:
		return "many"
	case strings.HasSuffix(owners[0], "present: false"):
		return "somebody who is gone"
	}
	words, _, _ := strings.Cut(owners[0], ",")
	return words[strings.LastIndex(words, " ")+1:]
}
