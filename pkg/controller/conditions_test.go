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
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/equality"
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
	if !equality.Semantic.DeepEqual(conditions, want) {
		t.Errorf("rule 13: conditions %+v, want %+v", conditions, want)
	}
}

func TestIsRejection(t *testing.T) {
	quota, refused := errQuota(), errors.New("dial tcp: connection refused")
	for sentence, test := range map[string]struct {
		err  error
		want bool
	}{
		"rule 11: 422 invalid":                                   {apierrors.NewInvalid(schema.GroupKind{Kind: "Deployment"}, "web", nil), true},
		"rule 11: 403 forbidden":                                 {quota, true},
		"rule 11: 400, a webhook's refusal":                      {apierrors.NewBadRequest("no"), true},
		"rule 11: 413":                                           {apierrors.NewRequestEntityTooLargeError("big"), true},
		"rule 11: a terminating namespace":                       {errTerminating(), false},
		"rule 12: 401, a token being rotated":                    {apierrors.NewUnauthorized("token"), false},
		"rule 12: 409":                                           {apierrors.NewConflict(testDeployments(), "web", errors.New("changed")), false},
		"rule 12: 429":                                           {apierrors.NewTooManyRequests("later", 1), false},
		"rule 12: connection refused":                            {refused, false},
		"rule 12: a refusal and a failure, which is over sooner": {errors.Join(quota, refused), false},
		"rule 11: two refusals":                                  {fmt.Errorf("syncing: %w", errors.Join(quota, ErrOverridden)), true},
		"no error":                                               {nil, false},
	} {
		if got := IsRejection(test.err); got != test.want {
			t.Errorf("%s: IsRejection(%v) = %v, want %v", sentence, test.err, got, test.want)
		}
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
