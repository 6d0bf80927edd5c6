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

package main

import (
	"encoding/json"
	"errors"
	"regexp"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/controller"
)

// FuzzNewStatus checks that the CRD's schema allows the status of any observation, and that
// the same observation does not change that status any more. To search:
// go test -run '^$' -fuzz '^FuzzNewStatus$' -fuzztime 1m .
func FuzzNewStatus(f *testing.F) {
	f.Add("", "", "", []byte(nil))
	f.Add("no", "them", "old", []byte(`{"status":{"replicas":3,"updatedReplicas":2,"availableReplicas":-1}}`))
	f.Add(strings.Repeat("é", 2100), "", "old", []byte(`{"metadata":{"ownerReferences":null}}`))
	f.Add("", "", "", []byte(`{"status":{"conditions":[{"type":"ReplicaFailure","status":"True","message":"no"}]},`+
		`"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"Odd","values":["b"]}]}}}`))
	f.Add("", "", "", []byte(`{"spec":{"selector":null,"paused":true}}`))
	f.Fuzz(func(t *testing.T, rejected, contested, accepted string, change []byte) {
		foo, result := newFoo(), findings{writes: controller.Report{Contested: contested, Accepted: accepted}}
		if rejected != "" {
			result.refused = errors.New(rejected)
		}
		fromCache, later := result, metav1.NewTime(testNow.Add(time.Hour))
		if len(change) > 0 {
			result.deployment = newOwned(foo)
			if json.Unmarshal(change, result.deployment) != nil {
				return
			}
			fromCache.deployment = cached(t, result.deployment)
			if result.deployment.DeletionTimestamp != nil {
				// The status of a terminating Deployment changes when its progress deadline passes.
				later = testNow
			}
		}
		foo.Status = newStatus(foo, result, testNow)
		differ(t, "the status from the trimmed Deployment", foo.Status, newStatus(newFoo(), fromCache, testNow))
		ready := controller.GetReady(foo.Status.Conditions)
		// The pattern and the bounds of the CRD. The controller bounds contested and accepted before.
		legal := regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
		if !legal.MatchString(ready.Reason) || len(ready.Message)-len(contested)-len(accepted) > 32768 || ready.LastTransitionTime.IsZero() {
			t.Errorf("API: condition %+v", ready)
		}
		differ(t, "rule 15: the status of the same result", foo.Status, newStatus(foo, result, later))
	})
}
