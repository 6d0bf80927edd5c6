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
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
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
