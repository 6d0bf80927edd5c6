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
	"context"
	"fmt"
	"time"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
)

// Ready is the type of the one condition that each controller keeps.
const Ready = "Ready"

// eventSynced is the reason of the event that tells that an object became ready.
const eventSynced = "Synced"

// Event is what goes out when a Ready condition changes.
type Event struct {
	Type, Reason, Message string
}

// SetReady puts the Ready condition among the others, which it leaves alone.
func SetReady(conditions *[]metav1.Condition, ready metav1.Condition, generation int64, now metav1.Time) {
	ready.Type = Ready
	ready.ObservedGeneration = generation
	ready.LastTransitionTime = now
	meta.SetStatusCondition(conditions, ready)
}

// ReadyOf returns the Ready condition, an empty one if there is none.
func ReadyOf(conditions []metav1.Condition) metav1.Condition {
	if ready := meta.FindStatusCondition(conditions, Ready); ready != nil {
		return *ready
	}
	return metav1.Condition{}
}

// SameCondition reports whether two conditions say the same, of the same time.
func SameCondition(a, b metav1.Condition) bool {
	same := a.LastTransitionTime.Equal(&b.LastTransitionTime)
	a.LastTransitionTime = b.LastTransitionTime
	return same && a == b
}

// NotReady returns a Ready condition that is False.
func NotReady(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
}

// Transition returns the event that goes with the change of the Ready condition of
// an object of that kind, or nil if there is nothing to tell. warning returns the
// reason of the event for a reason of a condition that is worth a warning, "" for
// others.
func Transition(kind string, was, is metav1.Condition, warning func(reason string) string) *Event {
	if is.Status == metav1.ConditionTrue {
		if was.Status == metav1.ConditionTrue {
			return nil
		}
		return &Event{corev1.EventTypeNormal, eventSynced, kind + " is ready: " + is.Message}
	}
	// A new generation with another message is another trouble of the same kind,
	// such as a second name that is taken.
	if was.Reason == is.Reason && (was.Message == is.Message || was.ObservedGeneration == is.ObservedGeneration) {
		return nil
	}
	if reason := warning(is.Reason); reason != "" {
		return &Event{corev1.EventTypeWarning, reason, is.Message}
	}
	return nil
}

// Reporter is the last step of a sync: it writes a status and then tells what has
// changed by it. All fields are required.
type Reporter struct {
	// Kind and Resource are those of what the status is of, as in Foo and foos.
	Kind, Resource string
	Gate           *Gate
	Metrics        Counters
	Recorder       record.EventRecorder
}

// Report writes a status that differs from the cached one with write, which returns
// the API server's answer, and then records the events; nil is none. It returns
// how long a status that tells of mere progress is put off.
func (r *Reporter) Report(ctx context.Context, object Object, progress bool, write func(context.Context) (metav1.Object, error), events ...*Event) (time.Duration, error) {
	key := cache.MetaObjectToName(object)
	if progress {
		if wait := r.Gate.PutOff(key); wait > 0 {
			return wait, nil
		}
	}
	written, err := write(ctx)
	if err != nil {
		return 0, fmt.Errorf("updating the status of %s: %w", r.Kind, err)
	}
	r.Metrics.Wrote(r.Resource+"/status", "update")
	r.Gate.Wrote(key, Parents, written.GetResourceVersion())
	r.Gate.Reported(key)
	for _, event := range events {
		if event != nil {
			r.Recorder.Event(object, event.Type, event.Reason, event.Message)
		}
	}
	return 0, nil
}
