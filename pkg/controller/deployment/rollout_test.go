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
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	reasons "example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
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

// noProgress adds the condition that the rollout cannot go on, noPods the one that Pods cannot be created.
func noProgress(reason, message string) func(*appsv1.Deployment) {
	return fixture.Condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, reason, message)
}

func noPods(message string) func(*appsv1.Deployment) {
	return fixture.Condition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", message)
}

func TestRollout(t *testing.T) {
	unseen := func(d *appsv1.Deployment) { d.Generation++ }
	paused := func(d *appsv1.Deployment) { d.Spec.Paused = true }
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	terminatingSince := func(ago time.Duration, finalizers ...string) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			d.DeletionTimestamp, d.Finalizers = ptr.To(metav1.NewTime(now.Add(-ago))), finalizers
		}
	}
	tests := map[string]struct {
		deployment *appsv1.Deployment
		want       string
		// message is a part of the message.
		message string
	}{
		"the rollout is complete": {
			newRollout(), reasons.ReasonDeploymentAvailable, "3 updated Pods are available, 3 are wanted"},
		"more Pods than asked for are no obstacle": {
			newRollout(fixture.Pods(4, 4, 4)), reasons.ReasonDeploymentAvailable, ""},
		"replicas that the API server defaulted are 1": {
			newRollout(fixture.Pods(1, 1, 1), func(d *appsv1.Deployment) { d.Spec.Replicas = nil }), reasons.ReasonDeploymentAvailable, "1 updated Pods are available, 1 are wanted"},
		"the Deployment controller has not seen the last change": {
			newRollout(unseen), reasons.ReasonDeploymentProgressing, "not been acted upon"},
		"too few updated Pods": {
			newRollout(fixture.Pods(3, 2, 3)), reasons.ReasonDeploymentProgressing, "2 updated Pods are available, 3 are wanted"},
		"too few updated Pods, in inconsistent counts": {
			newRollout(fixture.Pods(2, 2, 3)), reasons.ReasonDeploymentProgressing, "2 updated Pods are available, 3 are wanted"},
		"old Pods still exist": {
			newRollout(fixture.Pods(4, 3, 4)), reasons.ReasonDeploymentProgressing, "3 updated Pods are available, 3 are wanted"},
		"the available Pods are old ones": {
			newRollout(fixture.Pods(4, 1, 3)), reasons.ReasonDeploymentProgressing, "0 updated Pods are available, 3 are wanted"},
		"too few available Pods": {
			newRollout(fixture.Pods(3, 3, 1)), reasons.ReasonDeploymentProgressing, "1 updated Pods are available, 3 are wanted"},
		"rule 7: the Deployment is being deleted": {
			newRollout(terminatingSince(time.Minute)), reasons.ReasonDeploymentProgressing, "being deleted"},
		"the Deployment has been terminating for its progress deadline: the message names the finalizers": {
			newRollout(terminatingSince(10*time.Minute, "example.com/backup", "example.com/dns")), reasons.ReasonDeploymentStalled,
			`Deployment "web" has been terminating for longer than its progress deadline of 10m0s: it is held by the finalizers example.com/backup, example.com/dns;`},
		"the Deployment has been terminating for a shorter time than its progress deadline": {
			newRollout(terminatingSince(10*time.Minute, "example.com/backup"), func(d *appsv1.Deployment) { d.Spec.ProgressDeadlineSeconds = ptr.To[int32](601) }), reasons.ReasonDeploymentProgressing, "being deleted"},
		"the Deployment has been terminating for too long without a finalizer": {
			newRollout(terminatingSince(time.Hour)), reasons.ReasonDeploymentStalled, "no finalizer holds it"},
		"of many finalizers the message names the first": {
			newRollout(terminatingSince(time.Hour, "a/1", "a/2", "a/3", "a/4", "a/5", "a/6", "a/7", "a/8", "a/9")), reasons.ReasonDeploymentStalled, "finalizers a/1, a/2, a/3, a/4, a/5, a/6, a/7, a/8;"},
		"the ReplicaSet cannot be created: observedGeneration stays behind": {
			newRollout(unseen, noProgress(replicaSetCreateError, "exceeded quota: replicasets")),
			reasons.ReasonDeploymentStalled, `the rollout of Deployment "web" is stalled: exceeded quota: replicasets`},
		"the ReplicaSet cannot be created, and Pods of the old one cannot either": {
			newRollout(noPods("pods"), noProgress(replicaSetCreateError, "replicasets")),
			reasons.ReasonDeploymentStalled, "is stalled: replicasets"},
		"the ReplicaSet cannot be created comes first, wherever it stands": {
			newRollout(noProgress(replicaSetCreateError, "replicasets"), noPods("pods")),
			reasons.ReasonDeploymentStalled, "is stalled: replicasets"},
		"other failures count only of the generation that the Deployment controller has seen": {
			newRollout(unseen, noPods("exceeded quota")),
			reasons.ReasonDeploymentProgressing, "not been acted upon"},
		"a paused rollout that is not complete": {
			newRollout(fixture.Pods(3, 1, 3), paused), reasons.ReasonDeploymentPaused, "kubectl rollout resume deployment web -n "},
		"a paused Deployment whose rollout is complete": {
			newRollout(paused), reasons.ReasonDeploymentAvailable, ""},
		"the progress deadline passed": {
			newRollout(fixture.Pods(3, 1, 1), noProgress("ProgressDeadlineExceeded", "timed out")),
			reasons.ReasonDeploymentStalled, `the rollout of Deployment "web" is stalled: timed out`},
		"Pods cannot be created": {
			newRollout(fixture.Pods(0, 0, 0), noPods("exceeded quota")),
			reasons.ReasonDeploymentStalled, "exceeded quota"},
		"the namespace's Pod Security level refuses the Pods: the message says what to do": {
			newRollout(fixture.Pods(0, 0, 0), noPods(`pods "web-1" is forbidden: violates PodSecurity "restricted:latest": runAsNonRoot != true`)),
			reasons.ReasonDeploymentStalled, "runAsNonRoot != true; set the securityContext in the Pod template as the Pod Security level of the namespace requires (kubectl edit deployment web -n "},
		"a failure that is over does not count": {
			newRollout(fixture.Pods(1, 1, 1), fixture.Condition(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "", "exceeded quota")),
			reasons.ReasonDeploymentProgressing, "1 updated Pods are available, 3 are wanted"},
		"ordinary progress is no stall": {
			newRollout(fixture.Pods(1, 1, 1), fixture.Condition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", "progressing")),
			reasons.ReasonDeploymentProgressing, "1 updated Pods are available, 3 are wanted"},
		"a deadline that is not the rollout's does not count": {
			newRollout(fixture.Pods(1, 1, 1), fixture.Condition("Theirs", corev1.ConditionFalse, "ProgressDeadlineExceeded", "timed out")),
			reasons.ReasonDeploymentProgressing, "1 updated Pods are available, 3 are wanted"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			for _, d := range []*appsv1.Deployment{test.deployment, NewInterner().Trim(test.deployment, corev1.PodTemplateSpec{})} {
				got := Rollout(d, now)
				if isReady := test.want == reasons.ReasonDeploymentAvailable; got.Reason != test.want || (got.Status == metav1.ConditionTrue) != isReady || !strings.Contains(got.Message, test.message) {
					t.Errorf("got %s %s %q, want %s %q", got.Status, got.Reason, got.Message, test.want, test.message)
				}
			}
		})
	}
}

// TestFormatSelector is rule 24: a selector of 4096 bytes is cached and reported, a longer one is not.
func TestFormatSelector(t *testing.T) {
	if got := FormatSelector(nil); got != "" {
		t.Errorf("no selector is formatted as %q", got)
	}
	for length, want := range map[int]bool{maxSelector: true, maxSelector + 1: false} {
		selector := &metav1.LabelSelector{MatchLabels: map[string]string{"app": strings.Repeat("x", length)}}
		selector.MatchLabels["app"] = strings.Repeat("x", 2*length-selector.Size())
		if kept := TrimSelector(selector) != nil; selector.Size() != length || kept != want || (FormatSelector(selector) != "") != want {
			t.Errorf("rule 24: a selector of %d bytes, not %d, is cached: %v, want %v", selector.Size(), length, kept, want)
		}
	}
}

// TestReadyCondition: what waits for a repair is not ready, what is worse than that is told, and so is what
// admission has changed.
func TestReadyCondition(t *testing.T) {
	const admitted, changed = "replicas 3 in place of 1", "replicas from 3 to 5"
	const accepted = "; accepted from admission webhooks or policies: " + admitted
	const drift = `Deployment "web" was changed by another writer and is about to be repaired: ` + changed
	const available, stalled = "3 updated Pods are available, 3 are wanted", `the rollout of Deployment "web" is stalled: quota`
	complete, stuck := newRollout(), newRollout(noProgress(replicaSetCreateError, "quota"))
	for sentence, test := range map[string]struct {
		deployment *appsv1.Deployment
		writes     controller.Report
		// want is Ready but for its status.
		want metav1.Condition
	}{
		"rule 4: the rollout is complete": {complete, controller.Report{Accepted: admitted},
			metav1.Condition{Reason: reasons.ReasonDeploymentAvailable, Message: available + accepted}},
		"rule 4: the rollout is stalled": {stuck, controller.Report{Accepted: admitted},
			metav1.Condition{Reason: reasons.ReasonDeploymentStalled, Message: stalled + accepted}},
		"rule 21: the rollout is stalled, with a drift": {stuck, controller.Report{Drift: changed},
			metav1.Condition{Reason: reasons.ReasonDeploymentStalled, Message: stalled}},
		"rule 21: another drift than what was accepted": {complete, controller.Report{Accepted: admitted, Drift: changed},
			metav1.Condition{Reason: reasons.ReasonDeploymentProgressing, Message: drift + accepted}},
	} {
		test.want.Status = metav1.ConditionFalse
		if test.want.Reason == reasons.ReasonDeploymentAvailable {
			test.want.Status = metav1.ConditionTrue
		}
		fixture.Differ(t, sentence, test.want, ReadyCondition(test.deployment, test.writes, time.Time{}))
	}
}

func TestReadyEvent(t *testing.T) {
	ready := metav1.Condition{Status: metav1.ConditionTrue, Reason: reasons.ReasonDeploymentAvailable, Message: "all Pods"}
	synced := &controller.Event{Type: corev1.EventTypeNormal, Reason: "Synced", Message: "Foo is ready: all Pods"}
	no := func(reason string) metav1.Condition { return controller.NotReady(reason, "no; do this") }
	warning := func(reason string) *controller.Event {
		return &controller.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: "no; do this"}
	}
	refused := no(reasons.ReasonDeploymentRejected)
	for sentence, test := range map[string]struct {
		old, ready metav1.Condition
		want       *controller.Event
	}{
		"rule 16: it became Ready":                          {metav1.Condition{}, ready, synced},
		"rule 16: it stays Ready":                           {ready, ready, nil},
		"rule 16: no event of progress":                     {ready, no(reasons.ReasonDeploymentProgressing), nil},
		"rule 16: no event of a rollout that is stalled":    {ready, no(reasons.ReasonDeploymentStalled), nil},
		"rule 5: another owner":                             {ready, no(reasons.ReasonDeploymentNotOwned), warning("ErrResourceExists")},
		"rule 11: a refusal":                                {ready, refused, warning("DeploymentRejected")},
		"rule 21: another writer, of whom the same is said": {refused, no(reasons.ReasonDeploymentContested), warning("DeploymentContested")},
		"rule 16: an invalid spec":                          {ready, no(reasons.ReasonInvalidSpec), warning("InvalidSpec")},
		"rule 11: no news":                                  {controller.NotReady(refused.Reason, "no; do that"), refused, nil},
		"rule 11: news":                                     {controller.NotReady(refused.Reason, "never; do this"), refused, warning("DeploymentRejected")},
	} {
		fixture.Differ(t, sentence, test.want, ReadyEvent("Foo", test.old, test.ready))
	}
}

func TestTrimDropsFinalizers(t *testing.T) {
	d := newRollout(func(d *appsv1.Deployment) { d.Finalizers = []string{"example.com/hold"} })
	if got := NewInterner().Trim(d, corev1.PodTemplateSpec{}).Finalizers; got != nil {
		t.Errorf("rule 24: finalizers are kept only of a terminating Deployment, not %q", got)
	}
}

func TestInternerContainers(t *testing.T) {
	interner := NewInterner()
	first := interner.Containers("one", "image")
	for key, same := range map[[2]string]bool{{"one", "image"}: true, {"two", "image"}: false, {"one", "other"}: false} {
		got := interner.Containers(key[0], key[1])
		fixture.Differ(t, "containers", []corev1.Container{{Name: key[0], Image: key[1]}}, got)
		if is := &got[0] == &first[0]; is != same {
			t.Errorf("of %q it is the same copy: %v, want %v", key, is, same)
		}
	}
}

// TestUntilTerminationStalls: no event announces that a Deployment has been terminating for too long.
func TestUntilTerminationStalls(t *testing.T) {
	now := time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC)
	terminating := func(since time.Duration) *appsv1.Deployment {
		return newRollout(func(d *appsv1.Deployment) { d.DeletionTimestamp = &metav1.Time{Time: now.Add(since)} })
	}
	for sentence, test := range map[string]struct {
		deployment *appsv1.Deployment
		want       time.Duration
		stalls     bool
	}{
		"rule 7: no Deployment":                                      {nil, 0, false},
		"rule 7: one that is not terminating":                        {newRollout(), 0, false},
		"rule 7: its progress deadline counts":                       {terminating(-4 * time.Minute), 6 * time.Minute, false},
		"rule 7: the deadline has passed":                            {terminating(-11 * time.Minute), 0, true},
		"rule 7: the clock of the API server is ahead of this one's": {terminating(time.Hour), 10 * time.Minute, false},
	} {
		fixture.Differ(t, sentence, test.want, UntilTerminationStalls(test.deployment, now))
		if d := test.deployment; d != nil && (DescribeStalledTermination(d, now) != "") != test.stalls {
			t.Errorf("%s: %q", sentence, DescribeStalledTermination(d, now))
		}
	}
}

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("a", 64)
	for name, want := range map[string]string{
		"foo": "foo", long[1:]: long[1:], strings.Repeat("a", 41) + "-1763845200": strings.Repeat("a", 41) + "-1763845200",
		strings.Repeat("a", 52) + "-not-a-hash": strings.Repeat("a", 52) + "-not-a-hash",
		// The value is in the selector of running Deployments: it must never change.
		long: strings.Repeat("a", 52) + "-ffe054fe7a",
	} {
		if got := LabelValue(name); got != want {
			t.Errorf("the label value of %q is %q, want %q", name, got, want)
		}
	}
}

// FuzzLabelValue checks the labels of any two Foos that the API server would keep.
func FuzzLabelValue(f *testing.F) {
	long := strings.Repeat("a", 64)
	f.Add(long, long+"b")
	f.Add(long, LabelValue(long))
	f.Add(strings.Repeat("a", 51)+".-."+long, strings.Repeat("a.", 100)+"z")
	f.Fuzz(func(t *testing.T, a, b string) {
		if len(validation.IsDNS1123Subdomain(a))+len(validation.IsDNS1123Subdomain(b)) > 0 {
			return
		}
		value := LabelValue(a)
		if problems := validation.IsValidLabelValue(value); len(problems) > 0 || len(a) <= 52 && value != a || a != b && value == LabelValue(b) {
			t.Errorf("the label value of %q is %q, that of %q is %q: %v", a, value, b, LabelValue(b), problems)
		}
	})
}
