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
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

func TestNewDeployment(t *testing.T) {
	got := newDeployment(newFoo(fooReplicas(ptr.To[int32](3))))
	labels := map[string]string{"app": "nginx", "controller": "foo"}
	want := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: testNamespace,
			Labels: map[string]string{"app.kubernetes.io/managed-by": "sample-controller"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "samplecontroller.k8s.io/v1alpha1", Kind: "Foo", Name: "foo", UID: "uid-foo",
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:latest"}}},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Deployment for a Foo (-want +got):\n%s", diff)
	}

	if got := *newDeployment(newFoo(fooReplicas(nil))).Spec.Replicas; got != 1 {
		t.Errorf("a Foo without replicas means %d replicas, want 1", got)
	}
	if got := newDeployment(newFoo(fooImage("nginx:1.27"))).Spec.Template.Spec.Containers[0].Image; got != "nginx:1.27" {
		t.Errorf("spec.image nginx:1.27 gives a Deployment with image %s", got)
	}
}

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, name := range []string{"foo", strings.Repeat("a", 63)} {
		if got := labelValue(name); got != name {
			t.Errorf("labelValue(%q) = %q, want it unchanged", name, got)
		}
	}
	seen := map[string]string{}
	for _, name := range []string{long, long + "b", long + "c", strings.Repeat("a", 51) + ".-." + long, strings.Repeat("a.", 100) + "z"} {
		got := labelValue(name)
		if problems := validation.IsValidLabelValue(got); len(problems) > 0 {
			t.Errorf("labelValue(%q) = %q, no legal label value: %v", name, got, problems)
		}
		if again := labelValue(name); again != got {
			t.Errorf("labelValue(%q) is %q once and %q another time", name, got, again)
		}
		if other, taken := seen[got]; taken {
			t.Errorf("%q and %q share the label value %q", name, other, got)
		}
		seen[got] = name
	}
	// The value is in the selector of running Deployments: it must never change.
	if got, want := labelValue(long), strings.Repeat("a", 52)+"-ffe054fe7a"; got != want {
		t.Errorf("labelValue of 64 times a = %q, want %q", got, want)
	}
}

func TestOwns(t *testing.T) {
	foo := newFoo()
	reference := func(change func(*metav1.OwnerReference)) *appsv1.Deployment {
		ref := controllerReference(foo)
		change(&ref)
		return newForeign(ownedBy(ref))
	}
	tests := map[string]struct {
		deployment *appsv1.Deployment
		want       bool
	}{
		"the controller reference by this UID": {reference(func(*metav1.OwnerReference) {}), true},
		"rule 17: another version of our API group is the same Foo": {
			reference(func(ref *metav1.OwnerReference) { ref.APIVersion = "samplecontroller.k8s.io/v1beta1" }), true},
		"rule 5: nobody": {newForeign(), false},
		"rule 5: our UID without controller: true": {
			reference(func(ref *metav1.OwnerReference) { ref.Controller = nil }), false},
		"rule 6: an earlier Foo of the same name": {
			reference(func(ref *metav1.OwnerReference) { ref.UID = "earlier" }), false},
		"rule 17: a Foo of another group": {
			reference(func(ref *metav1.OwnerReference) { ref.APIVersion = "example.com/v1" }), false},
		"rule 17: a malformed group": {
			reference(func(ref *metav1.OwnerReference) { ref.APIVersion = "a/b/c" }), false},
		"rule 17: another kind of our group": {
			reference(func(ref *metav1.OwnerReference) { ref.Kind = "Bar" }), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := owns(foo, test.deployment); got != test.want {
				t.Errorf("owns = %v, want %v", got, test.want)
			}
		})
	}
}

func TestDecide(t *testing.T) {
	foo := newFoo()
	pinned := newFoo(fooImage("nginx:1.27"))
	tests := map[string]struct {
		foo        *v1alpha1.Foo
		deployment *appsv1.Deployment
		want       action
		// changes and patch are expected of a repair.
		changes string
		patch   string
		// invalid is a part of the complaint about the spec.
		invalid string
	}{
		"rule 3: a missing Deployment is created": {foo: foo, want: actCreate},
		"rule 4: a Deployment as it should be is left alone": {
			foo: foo, deployment: newOwned(foo), want: actNone},
		"rule 4: replicas that the API server defaulted are 1": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(nil)), want: actNone},
		"rule 4: replicas are put right": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](0))), want: actRepair,
			changes: "replicas from 0 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"rule 4: a Foo without replicas, stored before the default, means 1": {
			foo: newFoo(fooReplicas(nil)), deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](2))), want: actRepair,
			changes: "replicas from 2 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"rule 4: an image that the spec names is enforced": {
			foo: pinned, deployment: newOwned(foo), want: actRepair,
			changes: "image from nginx:latest to nginx:1.27",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"template":{"spec":{"containers":[{"image":"nginx:1.27","name":"nginx"}]}}}}`},
		"rule 4: an image that the spec does not name is not compared": {
			foo: foo, deployment: newOwned(foo, deploymentImage("mine:1")), want: actNone},
		"rule 4: the right image is left alone": {
			foo: pinned, deployment: newOwned(pinned), want: actNone},
		"rule 4: the image of the container nginx counts, wherever it stands": {
			foo: pinned, deployment: newOwned(foo, func(d *appsv1.Deployment) {
				sidecar := corev1.Container{Name: "sidecar", Image: "sidecar:1"}
				d.Spec.Template.Spec.Containers = []corev1.Container{sidecar, {Name: "nginx", Image: "nginx:1.27"}}
			}), want: actNone},
		"rule 4: a removed label is put back": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.Labels = map[string]string{"other": "x"} }), want: actRepair,
			changes: `label app.kubernetes.io/managed-by from "" to "sample-controller"`,
			patch:   `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"sample-controller"},"resourceVersion":"10"},"spec":{}}`},
		"rule 4: an owner reference that does not block deletion is put right": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil }), want: actRepair,
			changes: "owner reference",
			patch:   `{"metadata":{"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"},"spec":{}}`},
		"rule 4: an owner reference with a wrong name is put right": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.OwnerReferences[0].Name = "x" }), want: actRepair,
			changes: "owner reference",
			patch:   `{"metadata":{"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"},"spec":{}}`},
		"rule 4: several fields make one patch": {
			foo: pinned, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](5))), want: actRepair,
			changes: "replicas from 5 to 1, image from nginx:latest to nginx:1.27",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1,"template":{"spec":{"containers":[{"image":"nginx:1.27","name":"nginx"}]}}}}`},
		"rule 4: what others put on the Deployment is not compared": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) {
				d.Labels["theirs"], d.Annotations = "x", map[string]string{"theirs": "y"}
				d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
				d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar"})
				d.Spec.Paused = true
			}), want: actNone},
		"rule 5: a foreign Deployment is not touched": {
			foo: foo, deployment: newForeign(deploymentReplicas(ptr.To[int32](7))), want: actWait},
		"rule 7: an owned Deployment that is being deleted is not repaired": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](7)), deploymentTerminating), want: actNone},
		"API: without a spec there is nothing to act upon": {
			foo: newFoo(wants("")), want: actNone, invalid: "spec.deploymentName is not set"},
		"API: an illegal deploymentName is not acted upon": {
			foo: newFoo(wants("No_Good")), want: actNone, invalid: `spec.deploymentName "No_Good"`},
		"API: negative replicas are not acted upon": {
			foo: newFoo(fooReplicas(ptr.To[int32](-1))), deployment: newOwned(foo), want: actNone, invalid: "spec.replicas is -1"},
		"drop-in: no container nginx to take spec.image, none is added, the rest is repaired": {
			foo: pinned, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](2)), func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.Containers[0].Name = "web"
			}), want: actRepair, invalid: `no container "nginx"`,
			changes: "replicas from 2 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"drop-in: no container nginx and no spec.image is fine": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Name = "web" }), want: actNone},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := decide(test.foo, test.deployment)
			if got.action != test.want {
				t.Errorf("action = %v, want %v", got.action, test.want)
			}
			if (got.create != nil) != (test.want == actCreate) {
				t.Errorf("create = %v with action %v", got.create, got.action)
			}
			if diff := cmp.Diff(test.changes, got.repair.String()); diff != "" {
				t.Errorf("changes (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(test.patch, string(got.repair.patch)); diff != "" {
				t.Errorf("patch (-want +got):\n%s", diff)
			}
			if !strings.Contains(got.invalid, test.invalid) || (test.invalid == "") != (got.invalid == "") {
				t.Errorf("invalid = %q, want %q in it", got.invalid, test.invalid)
			}
		})
	}
}

func TestReadyCondition(t *testing.T) {
	foo := newFoo(fooReplicas(ptr.To[int32](3)))
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "web", errors.New("exceeded quota"))
	other := controllerReference(newFoo(fooNamed("bar")))
	tests := map[string]struct {
		seen   observation
		reason string
		// message is a part of the condition's.
		message string
	}{
		"Ready: the rollout is complete": {
			observation{deployment: newOwned(foo, available)}, "DeploymentAvailable", "3 of 3 updated Pods are available"},
		"Ready: more Pods than asked for are no obstacle": {
			observation{deployment: newOwned(foo, pods(4, 4, 4))}, "DeploymentAvailable", ""},
		"no Deployment yet": {
			observation{}, "DeploymentProgressing", "does not exist yet"},
		"the Deployment controller has not seen the last change": {
			observation{deployment: newOwned(foo, available, func(d *appsv1.Deployment) { d.Generation++ })}, "DeploymentProgressing", "not been acted upon"},
		"too few updated Pods": {
			observation{deployment: newOwned(foo, pods(3, 2, 3))}, "DeploymentProgressing", "2 of 3"},
		"old Pods are still there": {
			observation{deployment: newOwned(foo, pods(4, 3, 3))}, "DeploymentProgressing", "3 of 3"},
		"too few available Pods": {
			observation{deployment: newOwned(foo, pods(3, 3, 1))}, "DeploymentProgressing", "1 of 3"},
		"rule 7: the Deployment is being deleted": {
			observation{deployment: newOwned(foo, available, deploymentTerminating)}, "DeploymentProgressing", "being deleted"},
		"a paused rollout that is not complete": {
			observation{deployment: newOwned(foo, pods(3, 1, 3), func(d *appsv1.Deployment) { d.Spec.Paused = true })}, "DeploymentPaused", "kubectl rollout resume"},
		"a paused Deployment whose rollout is complete is ready": {
			observation{deployment: newOwned(foo, available, func(d *appsv1.Deployment) { d.Spec.Paused = true })}, "DeploymentAvailable", ""},
		"the progress deadline passed": {
			observation{deployment: newOwned(foo, pods(3, 1, 1), deploymentCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ProgressDeadlineExceeded", "timed out"))},
			"DeploymentStalled", "timed out"},
		"Pods cannot be created": {
			observation{deployment: newOwned(foo, pods(0, 0, 0), deploymentCondition(appsv1.DeploymentReplicaFailure, corev1.ConditionTrue, "FailedCreate", "exceeded quota"))},
			"DeploymentStalled", "exceeded quota"},
		"a failure of the past is none": {
			observation{deployment: newOwned(foo, pods(1, 1, 1), deploymentCondition(appsv1.DeploymentReplicaFailure, corev1.ConditionFalse, "", "exceeded quota"))},
			"DeploymentProgressing", "1 of 3"},
		"ordinary progress is no stall": {
			observation{deployment: newOwned(foo, pods(1, 1, 1), deploymentCondition(appsv1.DeploymentProgressing, corev1.ConditionTrue, "ReplicaSetUpdated", "progressing"))},
			"DeploymentProgressing", "1 of 3"},
		"rule 5: nobody controls the Deployment": {
			observation{deployment: newForeign(available)}, "DeploymentNotOwned", "has no controller"},
		"rule 5: something else controls the Deployment": {
			observation{deployment: newForeign(ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "it", UID: "u", Controller: ptr.To(true)}))},
			"DeploymentNotOwned", `controlled by Thing "it"`},
		"rule 5: this Foo owns the Deployment without controlling it": {
			observation{deployment: newForeign(ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Foo", Name: "foo", UID: "uid-foo"}))},
			"DeploymentNotOwned", "not as its controller"},
		"rule 6: an earlier Foo of this name": {
			observation{deployment: newOwned(newFoo(fooUID("earlier")))}, "DeploymentNotOwned", "earlier Foo of this name"},
		"rule 9: another Foo": {
			observation{deployment: newForeign(ownedBy(other))}, "DeploymentNotOwned", `controlled by Foo "bar"`},
		"rule 11: the API server refused": {
			observation{rejected: forbidden}, "DeploymentRejected", "exceeded quota"},
		"rule 11: a rename that a quota keeps from finishing says so": {
			observation{rejected: forbidden, former: []string{`"old"`}}, "DeploymentRejected", `former Deployment "old" is kept, which counts against a quota`},
		"rule 21: a fight": {
			observation{deployment: newOwned(foo, available), contested: "by them"}, "DeploymentContested", "by them"},
		"rule 11: a refused change does not look ready": {
			observation{deployment: newOwned(foo, available), rejected: forbidden}, "DeploymentRejected", "exceeded quota"},
		"an invalid spec is never ready": {
			observation{deployment: newOwned(foo, available), invalid: "bad"}, "InvalidSpec", "bad"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := readyCondition(foo, test.seen)
			want := metav1.ConditionFalse
			if test.reason == v1alpha1.ReasonDeploymentAvailable {
				want = metav1.ConditionTrue
			}
			if got.Status != want || got.Reason != test.reason || !strings.Contains(got.Message, test.message) {
				t.Errorf("got %s %s %q, want %s %s %q", got.Status, got.Reason, got.Message, want, test.reason, test.message)
			}
		})
	}
}

func TestNewStatus(t *testing.T) {
	later := metav1.NewTime(testNow.Add(time.Minute))
	quota := func(used string) observation {
		return observation{rejected: errors.New("exceeded quota, used " + used)}
	}

	t.Run("rule 13: counts and selector are the owned Deployment's", func(t *testing.T) {
		foo := newFoo(fooGeneration(4))
		deployment := newOwned(foo, available, pods(3, 2, 1), func(d *appsv1.Deployment) {
			d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"b": "2", "a": "1"}}
		})
		got := newStatus(foo, observation{deployment: deployment}, testNow)
		if got.ObservedGeneration != 4 || got.AvailableReplicas != 1 || got.Replicas != 3 || got.Selector != "a=1,b=2" {
			t.Errorf("got %+v", got)
		}
		if ready := meta.FindStatusCondition(got.Conditions, "Ready"); ready.ObservedGeneration != 4 || !ready.LastTransitionTime.Equal(&testNow) {
			t.Errorf("condition %+v", ready)
		}
	})
	t.Run("API: without a Deployment of its own the Foo has no Pods and no selector", func(t *testing.T) {
		foo := newFoo(fooReady)
		for _, seen := range []observation{{}, {deployment: newForeign(available)}} {
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
		got := newStatus(foo, observation{}, testNow)
		if diff := cmp.Diff(theirs, got.Conditions[0]); diff != "" || len(got.Conditions) != 2 {
			t.Errorf("conditions %+v", got.Conditions)
		}
		if len(foo.Status.Conditions) != 1 {
			t.Errorf("the given Foo was changed: %+v", foo.Status)
		}
	})
	t.Run("API: lastTransitionTime changes only with the status value", func(t *testing.T) {
		foo := newFoo(fooStatus(observation{}))
		before := foo.Status.Conditions[0].LastTransitionTime
		foo.Status = newStatus(foo, observation{deployment: newForeign()}, later)
		if got := foo.Status.Conditions[0]; !got.LastTransitionTime.Equal(&before) || got.Reason != "DeploymentNotOwned" {
			t.Errorf("False to False: %+v", got)
		}
		foo.Status = newStatus(foo, observation{deployment: newOwned(foo, available)}, later)
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
	t.Run("another message of another reason is news", func(t *testing.T) {
		foo := newFoo()
		foo.Status = newStatus(foo, observation{invalid: "one"}, testNow)
		if got := newStatus(foo, observation{invalid: "two"}, later).Conditions[0].Message; got != "two" {
			t.Errorf("message %q", got)
		}
	})
}

func TestTransitionOf(t *testing.T) {
	foo := newFoo()
	ready := observation{deployment: newOwned(foo, available)}
	progress := observation{deployment: newOwned(foo)}
	notOwned := observation{deployment: newForeign()}
	rejected := observation{rejected: errors.New("no")}
	tests := map[string]struct {
		from, to observation
		// fromGeneration and toGeneration are 1 unless set.
		toGeneration int64
		want         string
	}{
		"rule 16: Synced when the Foo becomes ready":                 {from: progress, to: ready, want: "Normal Synced"},
		"rule 16: nothing while it stays ready":                      {from: ready, to: ready, toGeneration: 2},
		"rule 16: nothing about progress":                            {from: ready, to: progress},
		"rule 5: ErrResourceExists when the state begins":            {from: progress, to: notOwned, want: "Warning ErrResourceExists"},
		"rule 5: nothing while it lasts":                             {from: notOwned, to: notOwned},
		"rule 5: nothing for the same trouble with a new generation": {from: notOwned, to: notOwned, toGeneration: 2},
		"rule 5: a second name that is taken is told":                {from: notOwned, to: observation{deployment: newForeign(func(d *appsv1.Deployment) { d.Name = "second" })}, toGeneration: 2, want: "Warning ErrResourceExists"},
		"rule 11: DeploymentRejected when the state begins":          {from: ready, to: rejected, want: "Warning DeploymentRejected"},
		"rule 11: nothing while it lasts":                            {from: rejected, to: rejected},
		"rule 21: DeploymentContested when the state begins":         {from: ready, to: observation{deployment: newOwned(foo), contested: "by them"}, want: "Warning DeploymentContested"},
		"rule 16: InvalidSpec when the state begins":                 {from: ready, to: observation{invalid: "bad"}, want: "Warning InvalidSpec"},
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
				got = change.eventType + " " + change.reason
				if change.message == "" {
					t.Error("the event has no message")
				}
			}
			if got != test.want {
				t.Errorf("event %q, want %q", got, test.want)
			}
		})
	}
	status := newStatus(foo, ready, testNow)
	if change := transitionOf(&v1alpha1.FooStatus{}, &status); change == nil || change.reason != eventSynced {
		t.Errorf("the first status of all, ready: event %+v, want Synced", change)
	}
}

func TestFollowBlockers(t *testing.T) {
	a, b, c := newFoo(fooNamed("a")), newFoo(fooNamed("b")), newFoo(fooNamed("c"))
	tests := map[string]struct {
		// blockedBy maps each Foo to the one that holds the name it asks for.
		blockedBy map[*v1alpha1.Foo]*v1alpha1.Foo
		chain     []*v1alpha1.Foo
		cycle     bool
	}{
		"rule 9: blocked by nobody":               {},
		"rule 9: one Foo blocks":                  {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b}, chain: []*v1alpha1.Foo{b}},
		"rule 9: a chain that ends":               {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: c}, chain: []*v1alpha1.Foo{b, c}},
		"rule 8: a swap":                          {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: a}, chain: []*v1alpha1.Foo{b}, cycle: true},
		"rule 8: a rotation of three":             {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: c, c: a}, chain: []*v1alpha1.Foo{b, c}, cycle: true},
		"rule 8: a circle that is not this Foo's": {blockedBy: map[*v1alpha1.Foo]*v1alpha1.Foo{a: b, b: c, c: b}, chain: []*v1alpha1.Foo{b, c}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			chain, cycle := followBlockers(a, func(foo *v1alpha1.Foo) *v1alpha1.Foo { return test.blockedBy[foo] })
			if diff := cmp.Diff(test.chain, chain); diff != "" || cycle != test.cycle {
				t.Errorf("cycle %v, want %v; chain (-want +got):\n%s", cycle, test.cycle, diff)
			}
		})
	}
}

func TestIsRejection(t *testing.T) {
	deployments := schema.GroupResource{Group: "apps", Resource: "deployments"}
	terminating := apierrors.NewForbidden(deployments, "web", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"rule 11: 422 invalid":                {apierrors.NewInvalid(schema.GroupKind{Kind: "Deployment"}, "web", nil), true},
		"rule 11: 403 forbidden":              {apierrors.NewForbidden(deployments, "web", errors.New("quota")), true},
		"rule 11: 400, a webhook's refusal":   {apierrors.NewBadRequest("no"), true},
		"rule 11: 413":                        {apierrors.NewRequestEntityTooLargeError("big"), true},
		"rule 11: a terminating namespace":    {terminating, false},
		"rule 12: 401, a token being rotated": {apierrors.NewUnauthorized("token"), false},
		"rule 12: 404":                        {apierrors.NewNotFound(deployments, "web"), false},
		"rule 12: 409":                        {apierrors.NewConflict(deployments, "web", errors.New("changed")), false},
		"rule 12: 429":                        {apierrors.NewTooManyRequests("later", 1), false},
		"rule 12: 500":                        {apierrors.NewInternalError(errors.New("oops")), false},
		"rule 12: connection refused":         {errors.New("dial tcp: connection refused"), false},
		"no error":                            {nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := isRejection(test.err); got != test.want {
				t.Errorf("isRejection(%v) = %v, want %v", test.err, got, test.want)
			}
		})
	}
}
