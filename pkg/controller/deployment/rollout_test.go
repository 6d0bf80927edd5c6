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
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/test/fixture"
)

// newRollout returns a Deployment of 3 replicas whose rollout is complete.
func newRollout(changes ...func(*appsv1.Deployment)) *appsv1.Deployment {
	d := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: "web", Generation: 2},
		Spec:       appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)},
	}
	fixture.Available(d)
	for _, change := range changes {
		change(d)
	}
	return d
}

func TestRollout(t *testing.T) {
	paused := func(d *appsv1.Deployment) { d.Spec.Paused = true }
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	terminatingSince := func(ago time.Duration, finalizers ...string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.DeletionTimestamp, d.Finalizers = ptr.To(metav1.NewTime(now.Add(-ago))), finalizers
		}
	}
	tests := map[string]struct {
		deployment *appsv1.Deployment
		want       RolloutState
		// message is a part of the message.
		message string
	}{
		"the rollout is complete": {
			newRollout(), RolloutComplete, "3 updated Pods are available, 3 are wanted"},
		"more Pods than asked for are no obstacle": {
			newRollout(fixture.Pods(4, 4, 4)), RolloutComplete, ""},
		"replicas that the API server defaulted are 1": {
			newRollout(fixture.Pods(1, 1, 1), func(d *appsv1.Deployment) { d.Spec.Replicas = nil }), RolloutComplete, "1 updated Pods are available, 1 are wanted"},
		"the Deployment controller has not seen the last change": {
			newRollout(func(d *appsv1.Deployment) { d.Generation++ }), RolloutProgressing, "not been acted upon"},
		"too few updated Pods": {
			newRollout(fixture.Pods(3, 2, 3)), RolloutProgressing, "2 updated Pods are available, 3 are wanted"},
		"too few updated Pods, in inconsistent counts": {
			newRollout(fixture.Pods(2, 2, 3)), RolloutProgressing, "2 updated Pods are available, 3 are wanted"},
		"old Pods still exist": {
			newRollout(fixture.Pods(4, 3, 4)), RolloutProgressing, "3 updated Pods are available, 3 are wanted"},
		"the available Pods are old ones": {
			newRollout(fixture.Pods(4, 1, 3)), RolloutProgressing, "0 updated Pods are available, 3 are wanted"},
		"too few available Pods": {
			newRollout(fixture.Pods(3, 3, 1)), RolloutProgressing, "1 updated Pods are available, 3 are wanted"},
		"rule 7: the Deployment is being deleted": {
			newRollout(terminatingSince(time.Minute)), RolloutProgressing, "being deleted"},
		"the Deployment has been terminating for its progress deadline: the message names the finalizers": {
			newRollout(terminatingSince(10*time.Minute, "example.com/backup", "example.com/dns")), RolloutStalled,
			`Deployment "web" has been terminating for longer than its progress deadline of 10m0s: it is held by the finalizers example.com/backup, example.com/dns;`},
		"the Deployment has been terminating for a shorter time than its progress deadline": {
			newRollout(terminatingSince(10*time.Minute, "example.com/backup"), func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = ptr.To[int32](601) }), RolloutProgressing, "being deleted"},
		"the Deployment has been terminating for too long without a finalizer": {
			newRollout(terminatingSince(time.Hour)), RolloutStalled, "no finalizer holds it"},
		"of many finalizers the message names the first": {
			newRollout(terminatingSince(time.Hour, "a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7", "a/8", "a/9")), RolloutStalled, "finalizers a/1, a/2, a/3, a/4, a/5, a/6, a/7, a/8;"},
		"the ReplicaSet cannot be created: observedGeneration stays behind": {
			newRollout(func(d *appsv1.Deployment) { d.Generation++ }, fixture.Condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError", "exceeded quota: replicasets")),
			RolloutStalled, `the rollout of Deployment "web" is stalled: exceeded quota: replicasets`},
		"the ReplicaSet cannot be created, and Pods of the old one cannot either": {
			newRollout(fixture.Condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "pods"), fixture.Condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError", "replicasets")),
			RolloutStalled, "is stalled: replicasets"},
		"other failures count only of the generation that the Deployment controller has seen": {
			newRollout(func(d *appsv1.Deployment) { d.Generation++ }, fixture.Condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "exceeded quota")),
			RolloutProgressing, "not been acted upon"},
		"a paused rollout that is not complete": {
			newRollout(fixture.Pods(3, 1, 3), paused), RolloutPaused, "kubectl rollout resume deployment web -n "},
		"a paused Deployment whose rollout is complete": {
			newRollout(paused), RolloutComplete, ""},
		"the progress deadline passed": {
			newRollout(fixture.Pods(3, 1, 1), fixture.Condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", "timed out")),
			RolloutStalled, `the rollout of Deployment "web" is stalled: timed out`},
		"Pods cannot be created": {
			newRollout(fixture.Pods(0, 0, 0), fixture.Condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "exceeded quota")),
			RolloutStalled, "exceeded quota"},
		"the namespace's Pod Security level refuses the Pods: the message says what to do": {
			newRollout(fixture.Pods(0, 0, 0), fixture.Condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", `pods "web-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true`)),
			RolloutStalled, "runAsNonRoot != true; set the securityContext in the Pod template as the Pod Security level of the namespace requires (kubectl edit deployment web -n "},
		"a failure that is over does not count": {
			newRollout(fixture.Pods(1, 1, 1), fixture.Condition(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "", "exceeded quota")),
			RolloutProgressing, "1 updated Pods are available, 3 are wanted"},
		"ordinary progress is no stall": {
			newRollout(fixture.Pods(1, 1, 1), fixture.Condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", "progressing")),
			RolloutProgressing, "1 updated Pods are available, 3 are wanted"},
		"a deadline that is not the rollout's does not count": {
			newRollout(fixture.Pods(1, 1, 1), fixture.Condition("Theirs", corev1.ConditionFalse, "ProgressDeadlineExceeded", "timed out")),
			RolloutProgressing, "1 updated Pods are available, 3 are wanted"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got, message := Rollout(NewInterner().Trim(test.deployment, corev1.PodTemplateSpec{}), now); got != test.want || !strings.Contains(message, test.message) {
				t.Errorf("of the trimmed Deployment: got %s %q, want %s %q", got, message, test.want, test.message)
			}
			if got, message := Rollout(test.deployment, now); got != test.want || !strings.Contains(message, test.message) {
				t.Errorf("got %s %q, want %s %q", got, message, test.want, test.message)
			}
		})
	}
}

// FuzzFormatSelector compares FormatSelector with metav1.FormatLabelSelector for selectors that
// the API server admits.
func FuzzFormatSelector(f *testing.F) {
	f.Add("", "", "", "", "")
	f.Add("app", "nginx", "controller", "foo", "")
	f.Add("b.example.com/x", "", "a", "z", "tier")
	f.Fuzz(func(t *testing.T, first, one, second, two, expression string) {
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{}}
		for label, value := range map[string]string{first: one, second: two} {
			if len(validation.IsQualifiedName(label)) == 0 && len(validation.IsValidLabelValue(value)) == 0 {
				selector.MatchLabels[label] = value
			}
		}
		if expression != "" {
			selector.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: expression, Operator: metav1.LabelSelectorOpExists}}
		}
		if got, want := FormatSelector(selector), metav1.FormatLabelSelector(selector); got != want {
			t.Errorf("%v is formatted as %q, want %q", selector, got, want)
		}
	})
}

func TestFormatSelectorThatIsNotReported(t *testing.T) {
	many, short := map[string]string{}, map[string]string{}
	for i := range 100 {
		many[fmt.Sprintf("label-%d", i)] = strings.Repeat("x", 63)
	}
	for i := range 700 {
		short[fmt.Sprintf("l%03d", i)] = ""
	}
	for sentence, selector := range map[string]*metav1.LabelSelector{
		"no selector": nil,
		"rule 24: a selector that is too long for the status":    {MatchLabels: many},
		"rule 24: very many short labels":                        {MatchLabels: short},
		"rule 24: very many empty values":                        {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpNotIn, Values: make([]string, 5000)}}},
		"rule 24: an expression that is too long for the status": {MatchExpressions: []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: slices.Sorted(maps.Values(many))}}},
	} {
		if got := FormatSelector(selector); got != "" {
			t.Errorf("%s is formatted as %d bytes: %.80q", sentence, len(got), got)
		}
	}
}
