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
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

func TestIsNews(t *testing.T) {
	const quota = "exceeded quota: one, limited: 9; raise it"
	for sentence, test := range map[string]struct {
		reason, message string
		want            bool
	}{
		"rule 11: the same message is no news":                 {"Rejected", quota, false},
		"rule 11: other advice is no news":                     {"Rejected", "exceeded quota: one, limited: 9; ask for less", false},
		"rule 11: another quota is news":                       {"Rejected", "exceeded quota: two, limited: 9; raise it", true},
		"rule 11: the same message for another reason is news": {"Other", quota, true},
		"rule 16: the first problem is news":                   {"", "", true},
	} {
		if got := IsNews(metav1.Condition{Reason: test.reason, Message: test.message}, metav1.Condition{Reason: "Rejected", Message: quota}); got != test.want {
			t.Errorf("%s: got %v, want %v", sentence, got, test.want)
		}
	}
}

func TestSetReady(t *testing.T) {
	now := metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 1, time.UTC))
	theirs := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue}
	conditions := []metav1.Condition{theirs}
	SetReady(&conditions, NotReady("Rejected", "no"), 1, now)
	SetReady(&conditions, NotReady("Stalled", "late"), 2, metav1.NewTime(now.Add(time.Hour)))
	want := []metav1.Condition{theirs, {
		Type: Ready, Status: metav1.ConditionFalse, Reason: "Stalled", Message: "late", ObservedGeneration: 2, LastTransitionTime: now.Rfc3339Copy(),
	}}
	if !slices.EqualFunc(conditions, want, EqualCondition) {
		t.Errorf("rule 13: conditions %+v, want %+v", conditions, want)
	}
}

func TestIsRejection(t *testing.T) {
	terminating := apierrors.NewForbidden(testDeployments(), "web", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"rule 11: 422 invalid":                {apierrors.NewInvalid(schema.GroupKind{Kind: "Deployment"}, "web", nil), true},
		"rule 11: 403 forbidden":              {apierrors.NewForbidden(testDeployments(), "web", errors.New("quota")), true},
		"rule 11: 400, a webhook's refusal":   {apierrors.NewBadRequest("no"), true},
		"rule 11: 413":                        {apierrors.NewRequestEntityTooLargeError("big"), true},
		"rule 11: a terminating namespace":    {terminating, false},
		"rule 12: 401, a token being rotated": {apierrors.NewUnauthorized("token"), false},
		"rule 12: 404":                        {apierrors.NewNotFound(testDeployments(), "web"), false},
		"rule 12: 409":                        {apierrors.NewConflict(testDeployments(), "web", errors.New("changed")), false},
		"rule 12: 429":                        {apierrors.NewTooManyRequests("later", 1), false},
		"rule 12: 500":                        {apierrors.NewInternalError(errors.New("oops")), false},
		"rule 12: connection refused":         {errors.New("dial tcp: connection refused"), false},
		"rule 12: a refusal and a failure, which is tried again sooner": {
			errors.Join(apierrors.NewForbidden(testDeployments(), "web", errors.New("quota")), errors.New("dial tcp: connection refused")), false},
		"rule 11: two refusals": {
			fmt.Errorf("syncing: %w", errors.Join(apierrors.NewForbidden(testDeployments(), "web", errors.New("quota")), ErrOverridden)), true},
		"no error": {nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := IsRejection(test.err); got != test.want {
				t.Errorf("IsRejection(%v) = %v, want %v", test.err, got, test.want)
			}
		})
	}
}

func TestRejectionMessage(t *testing.T) {
	long := strings.Repeat("a", maxMessage-1)
	for sentence, test := range map[string]struct{ message, want string }{
		"rule 11: the usage of a quota is left out": {
			"web is forbidden: exceeded quota: one, requested: pods=1, used: pods=9,cpu=1, limited: pods=9,cpu=2", "web is forbidden: exceeded quota: one, requested: pods=1, limited: pods=9,cpu=2"},
		"rule 11: a message with nothing after the usage": {"exceeded quota: one, used: pods=9", "exceeded quota: one"},
		"rule 11: another message":                        {"denied", "denied"},
		"rule 24: a message of 4096 bytes is kept":        {long + "b", long + "b"},
		"rule 24: a longer one is cut between letters":    {long + "é", long + "…"},
	} {
		if got := RejectionMessage(errors.New(test.message)); got != test.want {
			t.Errorf("%s: got %q, want %q", sentence, got, test.want)
		}
	}
}

// FuzzRejection is about errors of any code, reason and text: a refusal for good is
// never one that is to be tried again soon.
func FuzzRejection(f *testing.F) {
	f.Add(int32(422), "Invalid", "no")
	f.Add(int32(403), "Forbidden", "exceeded quota")
	f.Add(int32(409), "Conflict", "")
	f.Fuzz(func(t *testing.T, code int32, reason, message string) {
		err := &statusError{metav1.Status{Code: code, Reason: metav1.StatusReason(reason), Message: message}}
		got := IsRejection(fmt.Errorf("creating: %w", err))
		if temporary := code == 409 || code == 429 || code >= 500; temporary && got && !slices.Contains([]string{"Invalid", "Forbidden", "BadRequest", "RequestEntityTooLarge"}, reason) {
			t.Errorf("rule 12: %d %s is taken for a rejection", code, reason)
		}
	})
}

// statusError is any answer of an API server.
type statusError struct{ status metav1.Status }

// Error implements error.
func (e *statusError) Error() string { return e.status.Message }

// Status implements apierrors.APIStatus.
func (e *statusError) Status() metav1.Status { return e.status }
