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
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/child"
)

func TestReadyCondition(t *testing.T) {
	foo := newFoo(fooReplicas(ptr.To[int32](3)))
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "web", errors.New("exceeded quota"))
	other := kindOfFoo().Reference(newFoo(fooNamed("bar")))
	tests := map[string]struct {
		seen   child.Observation
		reason string
		// message is a part of the condition's; with a $ behind it, the end.
		message string
	}{
		"Ready: the rollout is complete": {
			child.Observation{Deployment: newOwned(foo, available)}, "DeploymentAvailable", "3 updated Pods are available, 3 are wanted"},
		"Ready: more Pods than asked for are no obstacle": {
			child.Observation{Deployment: newOwned(foo, pods(4, 4, 4))}, "DeploymentAvailable", ""},
		"no Deployment yet": {
			child.Observation{}, "DeploymentProgressing", "does not exist yet"},
		"the Deployment controller has not seen the last change": {
			child.Observation{Deployment: newOwned(foo, available, func(d *appsv1.Deployment) { d.Generation++ })}, "DeploymentProgressing", "not been acted upon"},
		"too few updated Pods": {
			child.Observation{Deployment: newOwned(foo, pods(3, 2, 3))}, "DeploymentProgressing", "2 updated Pods are available, 3 are wanted"},
		"too few updated Pods, in counts that do not fit together": {
			child.Observation{Deployment: newOwned(foo, pods(2, 2, 3))}, "DeploymentProgressing", "2 updated Pods are available, 3 are wanted"},
		"old Pods are still there": {
			child.Observation{Deployment: newOwned(foo, pods(4, 3, 3))}, "DeploymentProgressing", "3 updated Pods are available, 3 are wanted"},
		"too few available Pods": {
			child.Observation{Deployment: newOwned(foo, pods(3, 3, 1))}, "DeploymentProgressing", "1 updated Pods are available, 3 are wanted"},
		"rule 7: the Deployment is being deleted": {
			child.Observation{Deployment: newOwned(foo, available, deploymentTerminating)}, "DeploymentProgressing", "being deleted"},
		"a paused rollout that is not complete": {
			child.Observation{Deployment: newOwned(foo, pods(3, 1, 3), func(d *appsv1.Deployment) { d.Spec.Paused = true })}, "DeploymentPaused", "kubectl rollout resume"},
		"a paused Deployment whose rollout is complete is ready": {
			child.Observation{Deployment: newOwned(foo, available, func(d *appsv1.Deployment) { d.Spec.Paused = true })}, "DeploymentAvailable", ""},
		"the progress deadline passed": {
			child.Observation{Deployment: newOwned(foo, pods(3, 1, 1), deploymentCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", "timed out"))},
			"DeploymentStalled", "timed out"},
		"Pods cannot be created": {
			child.Observation{Deployment: newOwned(foo, pods(0, 0, 0), deploymentCondition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "exceeded quota"))},
			"DeploymentStalled", "exceeded quota"},
		"a failure of the past is none": {
			child.Observation{Deployment: newOwned(foo, pods(1, 1, 1), deploymentCondition(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "", "exceeded quota"))},
			"DeploymentProgressing", "1 updated Pods are available, 3 are wanted"},
		"ordinary progress is no stall": {
			child.Observation{Deployment: newOwned(foo, pods(1, 1, 1), deploymentCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", "progressing"))},
			"DeploymentProgressing", "1 updated Pods are available, 3 are wanted"},
		"a deadline that is not the rollout's is none of ours": {
			child.Observation{Deployment: newOwned(foo, pods(1, 1, 1), deploymentCondition("Theirs", corev1.ConditionFalse, "ProgressDeadlineExceeded", "timed out"))},
			"DeploymentProgressing", "1 updated Pods are available, 3 are wanted"},
		"rule 5: nobody controls the Deployment": {
			child.Observation{Deployment: newForeign(available)}, "DeploymentNotOwned", "has no controller"},
		"rule 5: something else controls the Deployment": {
			child.Observation{Deployment: newForeign(ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "it", UID: "u", Controller: ptr.To(true)}))},
			"DeploymentNotOwned", `controlled by Thing "it"`},
		"rule 5: something else owns the Deployment without controlling it": {
			child.Observation{Deployment: newForeign(ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "it", UID: "u"}))},
			"DeploymentNotOwned", "has no controller"},
		"rule 5: this Foo owns the Deployment without controlling it": {
			child.Observation{Deployment: newForeign(ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Foo", Name: "foo", UID: "uid-foo"}))},
			"DeploymentNotOwned", "not as its controller"},
		"rule 6: an earlier Foo of this name": {
			child.Observation{Deployment: newOwned(newFoo(fooUID("earlier")))}, "DeploymentNotOwned", "earlier Foo of this name"},
		"rule 9: another Foo": {
			child.Observation{Deployment: newForeign(ownedBy(other))}, "DeploymentNotOwned", `controlled by Foo "bar"`},
		"rule 11: the API server refused, and nothing of a former name is in the way": {
			child.Observation{Rejected: forbidden}, "DeploymentRejected", "exceeded quota; it is tried again every 5 minutes at the latest, and at once when the Foo changes$"},
		"rule 11: a rename that a quota keeps from finishing says so": {
			child.Observation{Rejected: forbidden, Former: []string{`"old"`}}, "DeploymentRejected", `former Deployment "old" is kept, which counts against a quota`},
		"rule 11: the longest of messages fits into a condition": {
			child.Observation{Rejected: errors.New(strings.Repeat("é", 20000))}, "DeploymentRejected", "é…; it is tried again"},
		"rule 11: a message that just fits is told in full": {
			child.Observation{Rejected: errors.New(strings.Repeat("x", 4096))}, "DeploymentRejected", "x; it is tried again"},
		"rule 21: a fight": {
			child.Observation{Deployment: newOwned(foo, available), Contested: "by them"}, "DeploymentContested", "by them"},
		"rule 11: a refused change does not look ready": {
			child.Observation{Deployment: newOwned(foo, available), Rejected: forbidden}, "DeploymentRejected", "exceeded quota"},
		"an invalid spec is never ready": {
			child.Observation{Deployment: newOwned(foo, available), Invalid: "bad"}, "InvalidSpec", "bad"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := controller.ReadyOf(newStatus(foo, test.seen, testNow).Conditions)
			want := metav1.ConditionFalse
			if test.reason == v1alpha1.ReasonDeploymentAvailable {
				want = metav1.ConditionTrue
			}
			if got.Status != want || got.Reason != test.reason || !strings.Contains(got.Message+"$", test.message) {
				t.Errorf("got %s %s %q, want %s %s %q", got.Status, got.Reason, got.Message, want, test.reason, test.message)
			}
		})
	}
}

func TestNewStatus(t *testing.T) {
	later := metav1.NewTime(testNow.Add(time.Minute))
	quota := func(used string) child.Observation {
		return child.Observation{Rejected: errors.New("exceeded quota, used " + used)}
	}

	t.Run("rule 13: counts and selector are the owned Deployment's", func(t *testing.T) {
		foo := newFoo(fooGeneration(4))
		deployment := newOwned(foo, available, pods(3, 2, 1), func(d *appsv1.Deployment) {
			d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"b": "2", "a": "1"}}
		})
		got := newStatus(foo, child.Observation{Deployment: deployment}, testNow)
		if got.ObservedGeneration != 4 || got.AvailableReplicas != 1 || got.Replicas != 3 || got.Selector != "a=1,b=2" {
			t.Errorf("got %+v", got)
		}
		if ready := meta.FindStatusCondition(got.Conditions, "Ready"); ready.ObservedGeneration != 4 || !ready.LastTransitionTime.Equal(&testNow) {
			t.Errorf("condition %+v", ready)
		}
	})
	t.Run("API: without a Deployment of its own the Foo has no Pods and no selector", func(t *testing.T) {
		foo := newFoo(fooReady)
		for _, seen := range []child.Observation{{}, {Deployment: newForeign(available)}} {
			got := newStatus(foo, seen, testNow)
			if got.AvailableReplicas != 0 || got.Replicas != 0 || got.Selector != "" {
				t.Errorf("got %+v", got)
			}
		}
	})
	t.Run("API: conditions of other types are left alone, and the Foo in the cache is", func(t *testing.T) {
		foo := newFoo()
		theirs := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "X"}
		foo.Status.Conditions = []metav1.Condition{theirs}
		got := newStatus(foo, child.Observation{}, testNow)
		if diff := cmp.Diff(theirs, got.Conditions[0]); diff != "" || len(got.Conditions) != 2 {
			t.Errorf("conditions %+v", got.Conditions)
		}
		if len(foo.Status.Conditions) != 1 {
			t.Errorf("the given Foo was changed: %+v", foo.Status)
		}
	})
	t.Run("API: lastTransitionTime changes only with the status value", func(t *testing.T) {
		foo := newFoo(fooStatus(child.Observation{}))
		before := foo.Status.Conditions[0].LastTransitionTime
		foo.Status = newStatus(foo, child.Observation{Deployment: newForeign()}, later)
		if got := foo.Status.Conditions[0]; !got.LastTransitionTime.Equal(&before) || got.Reason != "DeploymentNotOwned" {
			t.Errorf("False to False: %+v", got)
		}
		foo.Status = newStatus(foo, child.Observation{Deployment: newOwned(foo, available)}, later)
		if got := foo.Status.Conditions[0]; !got.LastTransitionTime.Equal(&later) {
			t.Errorf("False to True: %+v", got)
		}
	})
	t.Run("rule 11: another message of the same refusal is not news", func(t *testing.T) {
		foo := newFoo()
		foo.Status = newStatus(foo, quota("4"), testNow)
		if diff := cmp.Diff(foo.Status, newStatus(foo, quota("5"), later)); diff != "" {
			t.Errorf("the status changed (-was +is):\n%s", diff)
		}
		foo.Generation++
		if got := newStatus(foo, quota("5"), later).Conditions[0].Message; !strings.Contains(got, "used 5") {
			t.Errorf("after a change of the spec the message is %q", got)
		}
	})
	t.Run("rule 11: a refusal does not repeat what was wrong before", func(t *testing.T) {
		foo := newFoo(fooStatus(child.Observation{Invalid: "bad"}))
		if got := newStatus(foo, quota("4"), later).Conditions[0].Message; !strings.Contains(got, "used 4") {
			t.Errorf("message %q", got)
		}
	})
	t.Run("another message of another reason is news", func(t *testing.T) {
		foo := newFoo()
		foo.Status = newStatus(foo, child.Observation{Invalid: "one"}, testNow)
		if got := newStatus(foo, child.Observation{Invalid: "two"}, later).Conditions[0].Message; got != "two" {
			t.Errorf("message %q", got)
		}
	})
}

func TestTransitionOf(t *testing.T) {
	foo := newFoo()
	ready := child.Observation{Deployment: newOwned(foo, available)}
	progress := child.Observation{Deployment: newOwned(foo)}
	notOwned := child.Observation{Deployment: newForeign()}
	rejected := child.Observation{Rejected: errors.New("no")}
	tests := map[string]struct {
		from, to child.Observation
		// fromGeneration and toGeneration are 1 unless set.
		toGeneration int64
		want         string
	}{
		"rule 16: Synced when the Foo becomes ready":                     {from: progress, to: ready, want: "Normal Synced"},
		"rule 16: nothing while it stays ready":                          {from: ready, to: ready, toGeneration: 2},
		"rule 16: nothing about progress":                                {from: ready, to: progress},
		"rule 5: ErrResourceExists when the state begins":                {from: progress, to: notOwned, want: "Warning ErrResourceExists"},
		"rule 5: nothing while it lasts":                                 {from: notOwned, to: notOwned},
		"rule 5: nothing for the same trouble with a new generation":     {from: notOwned, to: notOwned, toGeneration: 2},
		"rule 5: a second name that is taken is told":                    {from: notOwned, to: child.Observation{Deployment: newForeign(func(d *appsv1.Deployment) { d.Name = "second" })}, toGeneration: 2, want: "Warning ErrResourceExists"},
		"rule 5: nothing when the name goes from one holder to the next": {from: notOwned, to: child.Observation{Deployment: newOwned(newFoo(fooNamed("bar")))}},
		"rule 11: DeploymentRejected when the state begins":              {from: ready, to: rejected, want: "Warning DeploymentRejected"},
		"rule 11: nothing while it lasts":                                {from: rejected, to: rejected},
		"rule 21: DeploymentContested when the state begins":             {from: ready, to: child.Observation{Deployment: newOwned(foo), Contested: "by them"}, want: "Warning DeploymentContested"},
		"rule 16: InvalidSpec when the state begins":                     {from: ready, to: child.Observation{Invalid: "bad"}, want: "Warning InvalidSpec"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			old := newFoo(fooStatus(test.from))
			if test.toGeneration != 0 {
				old.Generation = test.toGeneration
			}
			status := newStatus(old, test.to, testNow)
			got := ""
			if change := transitionOf(&old.Status, &status); change != nil {
				got = change.Type + " " + change.Reason
				if change.Message == "" {
					t.Error("the event has no message")
				}
			}
			if got != test.want {
				t.Errorf("event %q, want %q", got, test.want)
			}
		})
	}
	status := newStatus(foo, ready, testNow)
	if change := transitionOf(&v1alpha1.FooStatus{}, &status); change == nil || change.Reason != "Synced" {
		t.Errorf("the first status of all, ready: event %+v, want Synced", change)
	}
}

// transitionOf returns the event that goes with the change of the status.
func transitionOf(old, new *v1alpha1.FooStatus) *controller.Event {
	return kindOfFoo().Transition(controller.ReadyOf(old.Conditions), controller.ReadyOf(new.Conditions))
}
