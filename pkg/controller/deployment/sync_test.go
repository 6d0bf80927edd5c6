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

package deployment

import (
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
)

func TestDrifted(t *testing.T) {
	patch := compare(drifted("b"))
	for sentence, test := range map[string]struct {
		decision Decision
		want     []string
	}{
		"rule 21: a Deployment that is gone":    {Decision{Action: Create}, []string{controller.Existence}},
		"rule 21: a Deployment that is changed": {Decision{Action: Repair, Patch: patch}, []string{"replicas", "image", "label ours"}},
		"rule 21: a Deployment as it should be": {Decision{Action: NoChange}, nil},
	} {
		fixture.Differ(t, sentence, test.want, test.decision.Drifted())
	}
}

// TestRequeueAfter: no event announces that a Deployment has been terminating for too long.
func TestRequeueAfter(t *testing.T) {
	const short, long = time.Second, time.Minute
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	terminating := func(since time.Duration) *appsv1.Deployment {
		return newRollout(func(d *appsv1.Deployment) { d.DeletionTimestamp = ptr.To(metav1.NewTime(now.Add(since))) })
	}
	for sentence, test := range map[string]struct {
		result      Result
		statusDelay time.Duration
		want        time.Duration
	}{
		"nothing waits":           {Result{}, 0, 0},
		"rule 13: a status waits": {Result{}, short, short},
		"rule 21: a repair waits": {Result{Contention: controller.Contention{Pause: long}}, 0, long},
		"rule 21: a repair was made that may have no effect, and so no event":             {Result{Contention: controller.Contention{Message: "by another"}}, 0, controller.MinContentionPause},
		"rule 13: a status waits, and a repair longer":                                    {Result{Contention: controller.Contention{Pause: long}}, short, short},
		"rule 21: a repair waits, and a status longer":                                    {Result{Contention: controller.Contention{Pause: short}}, long, short},
		"rule 3: the cache is behind, and nothing waits":                                  {Result{CacheBehind: true}, 0, controller.StaleCacheDelay},
		"rule 3: the cache is behind, and a status waits":                                 {Result{CacheBehind: true}, short, short},
		"without a Deployment there is nothing to wait for":                               {Result{}, 0, 0},
		"a Deployment that is not terminating is waited for by events":                    {Result{Deployment: newRollout()}, 0, 0},
		"a terminating Deployment is looked at when its progress deadline passes":         {Result{Deployment: terminating(-4 * time.Minute)}, 0, 6 * time.Minute},
		"a status that is delayed comes first":                                            {Result{Deployment: terminating(-4 * time.Minute)}, time.Second, time.Second},
		"the deadline comes before the end of a longer pause":                             {Result{Deployment: terminating(-6 * time.Minute), Contention: controller.Contention{Pause: 5 * time.Minute}}, 0, 4 * time.Minute},
		"once the deadline has passed only events matter":                                 {Result{Deployment: terminating(-10 * time.Minute)}, 0, 0},
		"a clock that is behind that of the API server waits no longer than the deadline": {Result{Deployment: terminating(time.Hour)}, 0, 10 * time.Minute},
		"rule 10: after an adoption the Deployment is compared soon":                      {Result{Deployment: newRollout(), Adopted: true}, 0, controller.StaleCacheDelay},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := test.result.RequeueAfter(test.statusDelay, now); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
}

func TestIsContested(t *testing.T) {
	contention := controller.Contention{Message: "by them"}
	for sentence, test := range map[string]struct {
		result Result
		want   bool
	}{
		"rule 21: no contention":                                         {Result{}, false},
		"rule 21: contention":                                            {Result{Contention: contention}, true},
		"rule 11: the API server refuses the repair":                     {Result{Contention: contention, Rejected: errors.New("no")}, false},
		"rule 21: admission replaces the owner reference at each repair": {Result{Contention: contention, Rejected: controller.ErrOverridden}, true},
		"rule 11: admission replaces the owner reference":                {Result{Rejected: controller.ErrOverridden}, false},
	} {
		if got := test.result.IsContested(); got != test.want {
			t.Errorf("%s: contested %v, want %v", sentence, got, test.want)
		}
	}
}
