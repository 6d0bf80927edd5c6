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
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// Ready is the type of the condition that every controller sets.
const Ready = "Ready"

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

// NotReady returns a Ready condition that is False.
func NotReady(reason, message string) metav1.Condition {
	return metav1.Condition{Status: metav1.ConditionFalse, Reason: reason, Message: message}
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

// DescribeRefusal says what the API server refused, and when the write is tried again. kind is
// that of the owner.
func DescribeRefusal(kind string, refused error) string {
	message := "the API server refused: " + RefusalMessage(refused)
	if errors.Is(refused, ErrOverridden) {
		return message + "; once it no longer does, delete that object, and it is created again"
	}
	return message + "; it is tried again at least every 5 minutes, and at once when the " + kind + " changes"
}

// ErrStaleCache says that a sync did nothing, because the caches do not show yet what this
// process has last written or read live. It is no failure: the Worker tries again after StaleCacheDelay.
var ErrStaleCache = errors.New("the caches are behind the last write or live read")

// ErrOverridden says that the API server accepted a write, but admission replaced the owner reference.
// Without it the garbage collector and this controller do not know the owner.
var ErrOverridden = errors.New(ownerReference + ": an admission webhook or policy overrides it")

// IsRefusal reports whether a request fails again until the object, a policy, a quota or
// RBAC changes. Of errors that are joined each has to be such a refusal: a failure is retried sooner.
func IsRefusal(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !IsRefusal(err) })
	}
	isRefused := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
	return isRefused && !IsNamespaceTerminating(err) || errors.Is(err, ErrOverridden)
}

// IsNamespaceTerminating reports whether a write was refused because its namespace is
// terminating: the namespace controller deletes everything in it, and nothing is left to do.
func IsNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// NewConflict returns the error of a sync that ended because a live read shows the object otherwise
// than the cache: the one with which the API server answers an outdated precondition.
func NewConflict(resource schema.GroupResource, name string) error {
	return apierrors.NewConflict(resource, name, errors.New("the cache is out of date"))
}

// maxMessage bounds what is repeated of another component's message: a webhook may answer at any length.
const maxMessage = 4096

// RefusalMessage returns the API server's message, cut off after 4096 characters, without the present
// usage of a quota: each change of that would change the status.
func RefusalMessage(refused error) string {
	message := refused.Error()
	if before, usage, ok := strings.Cut(message, ", used: "); ok {
		message = before
		if _, limit, ok := strings.Cut(usage, ", limited: "); ok {
			message += ", limited: " + limit
		}
	}
	return BoundedMessage(message)
}

// BoundedMessage returns the message, cut off after 4096 characters.
func BoundedMessage(message string) string {
	return bounded(message, maxMessage)
}
