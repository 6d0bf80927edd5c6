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
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	reasons "example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
)

// TestReadyCondition: what waits for a repair is not ready, and what is worse than that is told.
func TestReadyCondition(t *testing.T) {
	const accepted = "; accepted from admission webhooks or policies: replicas 3 in place of 1"
	stalled := newRollout(fixture.Condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError", "quota"))
	notReady := controller.NotReady
	for sentence, test := range map[string]struct {
		deployment *appsv1.Deployment
		drift      string
		want       metav1.Condition
	}{
		"rule 4: the rollout is complete": {newRollout(), "", metav1.Condition{
			Status: metav1.ConditionTrue, Reason: reasons.ReasonDeploymentAvailable, Message: "3 updated Pods are available, 3 are wanted"}},
		"rule 4: the rollout is under way": {newRollout(fixture.Pods(1, 1, 1)), "", notReady(reasons.ReasonDeploymentProgressing,
			"1 updated Pods are available, 3 are wanted")},
		"rule 4: the rollout is paused": {newRollout(fixture.Pods(3, 1, 3), func(d *appsv1.Deployment) { d.Spec.Paused = true }), "", notReady(reasons.ReasonDeploymentPaused,
			`the rollout of Deployment "web" is paused: 1 updated Pods are available, 3 are wanted; continue it with kubectl rollout resume deployment web -n `)},
		"rule 4: the rollout is stalled": {stalled, "", notReady(reasons.ReasonDeploymentStalled, `the rollout of Deployment "web" is stalled: quota`)},
		"rule 21: the rollout is complete": {newRollout(), "replicas from 3 to 5", notReady(reasons.ReasonDeploymentProgressing,
			`Deployment "web" was changed by another writer and is about to be repaired: replicas from 3 to 5`)},
		"rule 21: the rollout is stalled": {stalled, "replicas from 3 to 5", notReady(reasons.ReasonDeploymentStalled, `the rollout of Deployment "web" is stalled: quota`)},
	} {
		fixture.Differ(t, sentence, test.want, ReadyCondition(test.deployment, controller.Report{Drift: test.drift}, time.Time{}))
		test.want.Message += accepted
		fixture.Differ(t, sentence+", and admission changed a field", test.want,
			ReadyCondition(test.deployment, controller.Report{Drift: test.drift, Accepted: "replicas 3 in place of 1"}, time.Time{}))
	}
}

func TestReadyEvent(t *testing.T) {
	ready := metav1.Condition{Status: metav1.ConditionTrue, Reason: reasons.ReasonDeploymentAvailable, Message: "all Pods"}
	warning := func(reason string) *controller.Event {
		return &controller.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: "no; do this"}
	}
	for sentence, test := range map[string]struct {
		old, ready metav1.Condition
		want       *controller.Event
	}{
		"rule 16: it became Ready":                          {metav1.Condition{}, ready, &controller.Event{Type: corev1.EventTypeNormal, Reason: "Synced", Message: "Foo is ready: all Pods"}},
		"rule 16: it stays Ready":                           {ready, ready, nil},
		"rule 16: no event of progress":                     {ready, controller.NotReady(reasons.ReasonDeploymentProgressing, "no"), nil},
		"rule 16: no event of a rollout that is stalled":    {ready, controller.NotReady(reasons.ReasonDeploymentStalled, "no"), nil},
		"rule 5: another owner":                             {ready, controller.NotReady(reasons.ReasonDeploymentNotOwned, "no; do this"), warning("ErrResourceExists")},
		"rule 11: a refusal":                                {ready, controller.NotReady(reasons.ReasonDeploymentRejected, "no; do this"), warning("DeploymentRejected")},
		"rule 21: another writer, of whom the same is said": {controller.NotReady(reasons.ReasonDeploymentRejected, "no; do this"), controller.NotReady(reasons.ReasonDeploymentContested, "no; do this"), warning("DeploymentContested")},
		"rule 16: an invalid spec":                          {ready, controller.NotReady(reasons.ReasonInvalidSpec, "no; do this"), warning("InvalidSpec")},
		"rule 11: no news":                                  {controller.NotReady(reasons.ReasonDeploymentRejected, "no; do that"), controller.NotReady(reasons.ReasonDeploymentRejected, "no; do this"), nil},
		"rule 11: news":                                     {controller.NotReady(reasons.ReasonDeploymentRejected, "never; do this"), controller.NotReady(reasons.ReasonDeploymentRejected, "no; do this"), warning("DeploymentRejected")},
	} {
		fixture.Differ(t, sentence, test.want, ReadyEvent("Foo", test.old, test.ready))
	}
}

func TestContainer(t *testing.T) {
	d := newRollout(func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers = []corev1.Container{{Name: "a"}, {Name: "b"}}
	})
	if got := Container(d, "b"); got != &d.Spec.Template.Spec.Containers[1] || Container(d, "c") != nil {
		t.Errorf("got %v and %v", got, Container(d, "c"))
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
	}{
		"rule 7: no Deployment":                                      {nil, 0},
		"rule 7: one that is not terminating":                        {newRollout(), 0},
		"rule 7: its progress deadline counts":                       {terminating(-4 * time.Minute), 6 * time.Minute},
		"rule 7: the deadline has passed":                            {terminating(-11 * time.Minute), 0},
		"rule 7: the clock of the API server is ahead of this one's": {terminating(time.Hour), 10 * time.Minute},
	} {
		fixture.Differ(t, sentence, test.want, UntilTerminationStalls(test.deployment, now))
	}
}
