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
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestIsNewRefusal(t *testing.T) {
	const quota = "exceeded quota: one, used: count/deployments.apps=9, limited: 9"
	tests := map[string]struct {
		reason, message string
		want            bool
	}{
		"rule 11: the same message is no news":                        {"Rejected", quota, false},
		"rule 11: other digits are no news":                           {"Rejected", "exceeded quota: one, used: count/deployments.apps=7, limited: 7", false},
		"rule 11: more digits are no news":                            {"Rejected", "exceeded quota: one, used: count/deployments.apps=10, limited: 100", false},
		"rule 11: another quota is news":                              {"Rejected", "exceeded quota: two, used: count/deployments.apps=9, limited: 9", true},
		"rule 11: another policy is news":                             {"Rejected", "the image is denied", true},
		"rule 11: the same message for another reason is news":        {"Other", quota, true},
		"rule 11: a number in place of a word is news":                {"Rejected", "exceeded quota: 1, used: count/deployments.apps=9, limited: 9", true},
		"rule 11: a message that begins in the same way is news":      {"Rejected", quota + " and more", true},
		"rule 11: a message that lacks the last number is news":       {"Rejected", "exceeded quota: one, used: count/deployments.apps=9, limited: ", true},
		"rule 11: two numbers in place of one are news":               {"Rejected", "exceeded quota: one, used: count/deployments.apps=9 9, limited: 9", true},
		"rule 11: digits of another script are digits":                {"Rejected", "exceeded quota: one, used: count/deployments.apps=٩, limited: ٩", false},
		"rule 11: letters of another script are compared as they are": {"Rejected", "exceeded quota: öne, used: count/deployments.apps=9, limited: 9", true},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			old := metav1.Condition{Reason: "Rejected", Message: quota}
			if got := IsNewRefusal(old, metav1.Condition{Reason: test.reason, Message: test.message}); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}
