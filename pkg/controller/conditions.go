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

package controller

import (
	"strings"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// Ready is the type of the condition that every controller sets.
const Ready = "Ready"

// Reasons of Normal events.
const (
	// EventSynced says that Ready became True.
	EventSynced = "Synced"
)

// Event is an event to record about an object.
type Event struct {
	Type, Reason, Message string
}

// SetReady sets the Ready condition and leaves conditions of other types alone.
// lastTransitionTime becomes now, in whole seconds as the API server keeps it, only if the
// condition's status changes.
func SetReady(conditions *[]metav1.Condition, ready metav1.Condition, generation int64, now metav1.Time) {
	ready.Type = Ready
	ready.ObservedGeneration = generation
	ready.LastTransitionTime = now.Rfc3339Copy()
	meta.SetStatusCondition(conditions, ready)
}

// GetReady returns the Ready condition, an empty one if there is none.
func GetReady(conditions []metav1.Condition) metav1.Condition {
	if ready := meta.FindStatusCondition(conditions, Ready); ready != nil {
		return *ready
	}
	return metav1.Condition{}
}

// EqualCondition reports whether two conditions are semantically equal.
func EqualCondition(a, b metav1.Condition) bool {
	equal := a.LastTransitionTime.Equal(&b.LastTransitionTime)
	a.LastTransitionTime = b.LastTransitionTime
	return equal && a == b
}

// NotReady returns a Ready condition that is False.
func NotReady(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// BecameReady reports whether the condition has become True.
func BecameReady(old, ready metav1.Condition) bool {
	return ready.Status == metav1.ConditionTrue && old.Status != metav1.ConditionTrue
}

// LostReady reports whether the condition was True for this generation and is not any more:
// the cluster has changed, not the spec.
func LostReady(old, ready metav1.Condition, generation int64) bool {
	return old.Status == metav1.ConditionTrue && ready.Status != metav1.ConditionTrue && old.ObservedGeneration == generation
}

// IsNews reports whether a problem is worth an event: it has another reason than the old one, or
// its message begins with another clause. What follows a semicolon is advice.
func IsNews(old, ready metav1.Condition) bool {
	was, _, _ := strings.Cut(old.Message, ";")
	is, _, _ := strings.Cut(ready.Message, ";")
	return old.Reason != ready.Reason || was != is
}

// DescribeRejection says what the API server refused, and when the write is tried again. kind is
// that of the owner.
func DescribeRejection(kind string, rejected error) string {
	return "the API server refused: " + RejectionMessage(rejected) + "; it is tried again at least every 5 minutes, and at once when the " + kind + " changes"
}
