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
	"fmt"
	"reflect"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	cachev1alpha1 "example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/app"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
	fixtures "example.com/sample-controller/test/fixture"
)

func TestNewDeployment(t *testing.T) {
	got := newDeployment(newFoo(), 3)
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

	if got := newDeployment(newFoo(fooImage("nginx:1.27")), 1).Spec.Template.Spec.Containers[0].Image; got != "nginx:1.27" {
		t.Errorf("spec.image nginx:1.27 gives a Deployment with image %s", got)
	}
}

func noContainerNginx(deployment *appsv1.Deployment) {
	deployment.Spec.Template.Spec.Containers[0].Name = "web"
}

func TestDecide(t *testing.T) {
	foo := newFoo()
	pinned := newFoo(fooImage("nginx:1.27"))
	tests := map[string]struct {
		foo        *v1alpha1.Foo
		deployment *appsv1.Deployment
		want       action
		// changes and patch are expected of a repair. Without them nothing has drifted.
		changes string
		patch   string
		// invalid is a part of the complaint about the spec.
		invalid string
	}{
		"rule 3: a missing Deployment is created": {foo: foo, want: create},
		"rule 4: a Deployment as it should be is left alone": {
			foo: foo, deployment: newOwned(foo), want: repair},
		"rule 4: replicas that the API server defaulted are 1": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(nil)), want: repair},
		"rule 4: replicas are put right": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](0))), want: repair,
			changes: "replicas from 0 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"rule 4: a Foo without replicas, stored before the default, means 1": {
			foo: newFoo(fooReplicas(nil)), deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](2))), want: repair,
			changes: "replicas from 2 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"rule 4: an image that the spec names is enforced": {
			foo: pinned, deployment: newOwned(foo), want: repair,
			changes: "image from nginx:latest to nginx:1.27",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"template":{"spec":{"containers":[{"image":"nginx:1.27","name":"nginx"}]}}}}`},
		"rule 4: an image that the spec does not name is not compared": {
			foo: foo, deployment: newOwned(foo, deploymentImage("mine:1")), want: repair},
		"rule 4: the right image is left alone": {
			foo: pinned, deployment: newOwned(pinned), want: repair},
		"rule 4: the image of the container nginx counts, wherever it stands": {
			foo: pinned, deployment: newOwned(foo, func(d *appsv1.Deployment) {
				sidecar := corev1.Container{Name: "sidecar", Image: "sidecar:1"}
				d.Spec.Template.Spec.Containers = []corev1.Container{sidecar, {Name: "nginx", Image: "nginx:1.27"}}
			}), want: repair},
		"rule 4: a removed label is put back": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.Labels = map[string]string{"other": "x"} }), want: repair,
			changes: `label app.kubernetes.io/managed-by from none to "sample-controller"`,
			patch:   `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"sample-controller"},"resourceVersion":"10"}}`},
		"rule 4: a label that another tool set is left": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.Labels = map[string]string{controller.ManagedByLabel: "Helm"} }), want: repair},
		"rule 4: an owner reference that does not block deletion is put right": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil }), want: repair,
			changes: "owner reference",
			patch:   `{"metadata":{"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"}}`},
		"rule 4: an owner reference with a wrong name is put right": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.OwnerReferences[0].Name = "x" }), want: repair,
			changes: "owner reference",
			patch:   `{"metadata":{"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"}}`},
		"rule 10: a Deployment without a controller that asks for this Foo is adopted": {
			foo: foo, deployment: newForeign(adoptBy("foo")), want: adopt},
		"rule 10: one with owners of which none is its controller is adopted": {
			foo: foo, deployment: newForeign(adoptBy("foo"), ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "it", UID: "u"})), want: adopt},
		"rule 10: one that asks for another Foo is not adopted": {
			foo: foo, deployment: newForeign(adoptBy("bar")), want: keepOff},
		"rule 10: one with a controller is not adopted": {
			foo: foo, deployment: newForeign(adoptBy("foo"), ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "it", UID: "u", Controller: ptr.To(true)})), want: keepOff},
		"rule 10: one of an earlier Foo of the name is not adopted": {
			foo: foo, deployment: newOwned(newFoo(fooUID("earlier")), adoptBy("foo")), want: keepOff},
		"rule 10: one that is terminating is not adopted": {
			foo: foo, deployment: newForeign(adoptBy("foo"), deploymentTerminating), want: keepOff},
		"rule 10: the annotation of the Foo's own Deployment means nothing": {
			foo: foo, deployment: newOwned(foo, adoptBy("foo")), want: repair},
		"rule 4: label and owner reference make one patch": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.Labels = nil; d.OwnerReferences[0].Name = "x" }), want: repair,
			changes: `label app.kubernetes.io/managed-by from none to "sample-controller", owner reference`,
			patch:   `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"sample-controller"},"ownerReferences":[{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"}}`},
		"rule 4: several fields make one patch": {
			foo: pinned, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](5))), want: repair,
			changes: "replicas from 5 to 1, image from nginx:latest to nginx:1.27",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1,"template":{"spec":{"containers":[{"image":"nginx:1.27","name":"nginx"}]}}}}`},
		"rule 4: what others put on the Deployment is not compared": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) {
				d.Labels["theirs"], d.Annotations = "x", map[string]string{"theirs": "y"}
				d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
				d.Spec.Template.Spec.Containers = append(d.Spec.Template.Spec.Containers, corev1.Container{Name: "sidecar"})
				d.Spec.Paused = true
			}), want: repair},
		"rule 5: a foreign Deployment is not touched": {
			foo: foo, deployment: newForeign(deploymentReplicas(ptr.To[int32](7))), want: keepOff},
		"rule 7: an owned Deployment that is being deleted is not repaired": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](7)), deploymentTerminating), want: wait},
		"API: without a spec there is nothing to act upon": {
			foo: newFoo(wants("")), want: wait, invalid: "spec.deploymentName is not set"},
		"API: an illegal deploymentName is not acted upon": {
			foo: newFoo(wants("No_Good")), want: wait, invalid: `spec.deploymentName "No_Good"`},
		"API: no replicas at all are legal": {
			foo: newFoo(fooReplicas(ptr.To[int32](0))), deployment: newOwned(foo), want: repair,
			changes: "replicas from 1 to 0",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":0}}`},
		"API: negative replicas are not acted upon": {
			foo: newFoo(fooReplicas(ptr.To[int32](-1))), deployment: newOwned(foo), want: wait, invalid: "spec.replicas is -1"},
		"drop-in: no container nginx to take spec.image, none is added, the rest is repaired": {
			foo: pinned, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](2)), noContainerNginx), want: repair, invalid: `no container "nginx"`,
			changes: "replicas from 2 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"drop-in: no container nginx in what is to be created anew is fine": {
			foo: pinned, deployment: newOwned(foo, deploymentTerminating, noContainerNginx), want: wait},
		"rule 5: no container nginx in a foreign Deployment is not compared": {
			foo: pinned, deployment: newForeign(noContainerNginx), want: keepOff},
		"rule 3: a missing Deployment is created with the image that the spec names": {foo: pinned, want: create},
		"drop-in: no container nginx and no spec.image is fine": {
			foo: foo, deployment: newOwned(foo, noContainerNginx), want: repair},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := decide(test.foo, test.deployment, oldDeployments{}); got != test.want {
				t.Errorf("action = %v, want %v", got, test.want)
			}
			if test.want == repair {
				// The cache holds the trimmed one.
				patch := diffDeployment(test.foo, newTrimmer().trimDeployment(test.deployment), desiredReplicas(test.foo))
				differ(t, "changes", test.changes, patch.String())
				differ(t, "patch", test.patch, string(patch.JSON()))
			}
			ready := readyCondition(test.foo, findings{deployment: test.deployment}, testNow.Time)
			if isInvalid := ready.Reason == v1alpha1.ReasonInvalidSpec; isInvalid != (test.invalid != "") || isInvalid && !strings.Contains(ready.Message, test.invalid) {
				t.Errorf("invalid = %v, %q, want %q in it", isInvalid, ready.Message, test.invalid)
			}
		})
	}
}

// TestEqualStatus changes every field there is: one that equalStatus does not know of would
// never be written.
func TestEqualStatus(t *testing.T) {
	status := newFoo(fooReady).Status
	if !equalStatus(&status, status.DeepCopy()) {
		t.Error("rule 15: a copy counts as a difference")
	}
	empty := v1alpha1.FooStatus{Conditions: []metav1.Condition{}}
	if !equalStatus(&empty, &v1alpha1.FooStatus{}) {
		t.Error("rule 15: no conditions and none count as a difference")
	}
	ofStatus := func(status *v1alpha1.FooStatus) reflect.Value { return reflect.ValueOf(status).Elem() }
	ofCondition := func(status *v1alpha1.FooStatus) reflect.Value { return reflect.ValueOf(&status.Conditions[0]).Elem() }
	for _, fields := range []func(*v1alpha1.FooStatus) reflect.Value{ofStatus, ofCondition} {
		for i := range fields(&status).NumField() {
			name := fields(&status).Type().Field(i).Name
			if fields(&status).Field(i).IsZero() {
				t.Fatalf("the example lacks %s", name)
			}
			other := status.DeepCopy()
			fields(other).Field(i).SetZero()
			if equalStatus(&status, other) {
				t.Errorf("rule 13: one without %s counts as the same", name)
			}
		}
	}
}

func TestReadyCondition(t *testing.T) {
	foo := newFoo(fooReplicas(ptr.To[int32](3)))
	forbidden := apierrors.NewForbidden(schema.GroupResource{Resource: "deployments"}, "web", errors.New("exceeded quota"))
	other := fooReference(newFoo(fooNamed("bar")))
	tests := map[string]struct {
		result findings
		reason string
		// message is a part of the condition's; with a $ behind it, the end.
		message string
	}{
		"Ready: the rollout is complete": {
			findings{deployment: newOwned(foo, available)}, "DeploymentAvailable", "3 updated Pods are available, 3 are wanted"},
		"no Deployment yet": {
			findings{}, "DeploymentProgressing", "does not exist yet"},
		"rule 7: the Deployment is being deleted": {
			findings{deployment: newOwned(foo, available, deploymentTerminating)}, "DeploymentProgressing", "being deleted"},
		"a paused rollout that is not complete": {
			findings{deployment: newOwned(foo, pods(3, 1, 3), func(d *appsv1.Deployment) { d.Spec.Paused = true })}, "DeploymentPaused", "kubectl rollout resume"},
		"rule 5: no controller": {
			findings{deployment: newForeign(available)}, "DeploymentNotOwned", "has no controller"},
		"rule 10: without a controller, the message tells the command with which it is adopted": {
			findings{deployment: newForeign(available)}, "DeploymentNotOwned", `have it adopted with kubectl annotate deployment web samplecontroller.k8s.io/adopt-by=foo -n ns, or delete it, or ask for another name in spec.deploymentName$`},
		"rule 10: without a controller and asking for another Foo, the command overwrites that": {
			findings{deployment: newForeign(adoptBy("bar"))}, "DeploymentNotOwned", `kubectl annotate deployment web samplecontroller.k8s.io/adopt-by=foo -n ns --overwrite, or`},
		"rule 10: owned by this Foo without being controlled, the message tells the command": {
			findings{deployment: newForeign(ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Foo", Name: "foo", UID: "uid-foo"}))}, "DeploymentNotOwned", "kubectl annotate deployment web"},
		"Ready: the ReplicaSet cannot be created, and observedGeneration stays behind": {
			findings{deployment: newOwned(foo, func(d *appsv1.Deployment) { d.Generation = 2 }, deploymentCondition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError", "exceeded quota"))},
			"DeploymentStalled", "exceeded quota"},
		"Ready: the Deployment has been terminating for longer than its progress deadline": {
			findings{deployment: newOwned(foo, available, deploymentTerminating, func(d *appsv1.Deployment) {
				d.DeletionTimestamp = ptr.To(metav1.NewTime(testNow.Add(-10 * time.Minute)))
			})},
			"DeploymentStalled", "held by the finalizers foregroundDeletion"},
		"rule 5: something else controls the Deployment": {
			findings{deployment: newForeign(ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "it", UID: "u", Controller: ptr.To(true)}))},
			"DeploymentNotOwned", `controlled by Thing "it"`},
		"rule 5: something else owns the Deployment without controlling it": {
			findings{deployment: newForeign(ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "it", UID: "u"}))},
			"DeploymentNotOwned", "has no controller"},
		"rule 5: this Foo owns the Deployment without controlling it": {
			findings{deployment: newForeign(ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Foo", Name: "foo", UID: "uid-foo"}))},
			"DeploymentNotOwned", "not as its controller"},
		"rule 6: an earlier Foo of this name": {
			findings{deployment: newOwned(newFoo(fooUID("earlier")))}, "DeploymentNotOwned", "earlier Foo of this name"},
		"rule 9: another Foo": {
			findings{deployment: newForeign(ownedBy(other))}, "DeploymentNotOwned", `controlled by Foo "bar"`},
		"rule 11: the API server refused, and nothing of an old name is in the way": {
			findings{refused: forbidden}, "DeploymentRejected", "exceeded quota; it is tried again at least every 5 minutes, and at once when the Foo changes$"},
		"rule 11: the longest of messages fits into a condition": {
			findings{refused: errors.New(strings.Repeat("é", 20000))}, "DeploymentRejected", "é…; it is tried again"},
		"rule 11: a message that just fits is told in full": {
			findings{refused: errors.New(strings.Repeat("x", 4096))}, "DeploymentRejected", "x; it is tried again"},
		"rule 21: contention": {
			findings{deployment: newOwned(foo, available), undone: "by them"}, "DeploymentContested", "by them"},
		"rule 11: a repair that the API server refuses during contention": {
			findings{deployment: newOwned(foo, available), undone: "by them", refused: forbidden}, "DeploymentRejected", "exceeded quota"},
		"rule 21: a Deployment that is deleted again and again": {
			findings{undone: "by them"}, "DeploymentContested", "by them"},
		"rule 4: the rollout is complete with what admission made of the spec": {
			findings{deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](5)), available), accepted: "replicas 5 in place of 3"},
			"DeploymentAvailable", "5 updated Pods are available, 5 are wanted; accepted from admission webhooks or policies: replicas 5 in place of 3$"},
		"rule 4: the rollout goes on with what admission made of the spec": {
			findings{deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](5)), pods(5, 5, 1)), accepted: "replicas 5 in place of 3"},
			"DeploymentProgressing", "; accepted from admission webhooks or policies: replicas 5 in place of 3$"},
		"rule 11: a refused change does not look ready": {
			findings{deployment: newOwned(foo, available), refused: forbidden}, "DeploymentRejected", "exceeded quota"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			got := controller.GetReady(newStatus(foo, test.result, testNow).Conditions)
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
	quota := func(used string) findings {
		return findings{refused: errors.New("exceeded quota: q, requested: pods=1, used: pods=" + used + ", limited: pods=4")}
	}

	t.Run("rule 13: counts and selector are the owned Deployment's", func(t *testing.T) {
		foo := newFoo(fooGeneration(4))
		owned := newOwned(foo, available, pods(3, 2, 1), func(d *appsv1.Deployment) {
			d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"b": "2", "a": "1"}}
		})
		got := newStatus(foo, findings{deployment: owned}, testNow)
		if got.ObservedGeneration != 4 || got.AvailableReplicas != 1 || got.Replicas != 3 || got.Selector != "a=1,b=2" {
			t.Errorf("got %+v", got)
		}
		if ready := meta.FindStatusCondition(got.Conditions, "Ready"); ready.ObservedGeneration != 4 || !ready.LastTransitionTime.Equal(&testNow) {
			t.Errorf("condition %+v", ready)
		}
	})
	t.Run("API: without a Deployment of its own the Foo has no Pods and no selector", func(t *testing.T) {
		foo := newFoo(fooReady)
		for _, result := range []findings{{}, {deployment: newForeign(available)}} {
			got := newStatus(foo, result, testNow)
			if got.AvailableReplicas != 0 || got.Replicas != 0 || got.Selector != "" {
				t.Errorf("got %+v", got)
			}
		}
	})
	t.Run("API: conditions of other types are left alone, and the Foo in the cache is", func(t *testing.T) {
		foo := newFoo()
		theirs := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "X"}
		foo.Status.Conditions = []metav1.Condition{theirs}
		got := newStatus(foo, findings{}, testNow)
		if diff := cmp.Diff(theirs, got.Conditions[0]); diff != "" || len(got.Conditions) != 2 {
			t.Errorf("conditions %+v", got.Conditions)
		}
		if len(foo.Status.Conditions) != 1 {
			t.Errorf("the given Foo was changed: %+v", foo.Status)
		}
	})
	t.Run("API: lastTransitionTime changes only with the status value", func(t *testing.T) {
		foo := newFoo(fooStatus(findings{}))
		before := foo.Status.Conditions[0].LastTransitionTime
		foo.Status = newStatus(foo, findings{deployment: newForeign()}, later)
		if got := foo.Status.Conditions[0]; !got.LastTransitionTime.Equal(&before) || got.Reason != "DeploymentNotOwned" {
			t.Errorf("False to False: %+v", got)
		}
		foo.Status = newStatus(foo, findings{deployment: newOwned(foo, available)}, later)
		if got := foo.Status.Conditions[0]; !got.LastTransitionTime.Equal(&later) {
			t.Errorf("False to True: %+v", got)
		}
	})
	t.Run("rule 11: the present usage of a quota is no news, and its limit is told", func(t *testing.T) {
		foo := newFoo()
		foo.Status = newStatus(foo, quota("4"), testNow)
		differ(t, "the status", foo.Status, newStatus(foo, quota("5"), later))
		if got := foo.Status.Conditions[0].Message; !strings.Contains(got, "exceeded quota: q, requested: pods=1, limited: pods=4;") {
			t.Errorf("message %q", got)
		}
	})
}

func TestReadyEvent(t *testing.T) {
	foo := newFoo()
	ready := findings{deployment: newOwned(foo, available)}
	progress := findings{deployment: newOwned(foo)}
	notOwned := findings{deployment: newForeign()}
	rejected := findings{refused: errors.New("no")}
	tests := map[string]struct {
		from, to findings
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
		"rule 5: a second name that is taken is told":                {from: notOwned, to: findings{deployment: newForeign(func(d *appsv1.Deployment) { d.Name = "second" })}, toGeneration: 2, want: "Warning ErrResourceExists"},
		"rule 5: told when the name goes from one owner to the next": {from: notOwned, to: findings{deployment: newOwned(newFoo(fooNamed("bar")))}, want: "Warning ErrResourceExists"},
		"rule 11: DeploymentRejected when the state begins":          {from: ready, to: rejected, want: "Warning DeploymentRejected"},
		"rule 11: nothing while it lasts":                            {from: rejected, to: rejected},
		"rule 11: another refusal is told":                           {from: rejected, to: findings{refused: errors.New("other")}, want: "Warning DeploymentRejected"},
		"rule 11: the same refusal of a new generation is not":       {from: rejected, to: rejected, toGeneration: 2},
		"rule 21: DeploymentContested when the state begins":         {from: ready, to: findings{deployment: newOwned(foo), undone: "by them"}, want: "Warning DeploymentContested"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			old := newFoo(fooStatus(test.from))
			if test.toGeneration != 0 {
				old.Generation = test.toGeneration
			}
			status := newStatus(old, test.to, testNow)
			got := ""
			if change := readyEvent(controller.GetReady(old.Status.Conditions), controller.GetReady(status.Conditions)); change != nil {
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
	if change := readyEvent(metav1.Condition{}, controller.GetReady(status.Conditions)); change == nil || change.Reason != "Synced" {
		t.Errorf("the first status of all, ready: event %+v, want Synced", change)
	}
}

// TestTrimFoo keeps spec and status of a Foo, and its identity.
func TestTrimFoo(t *testing.T) {
	foo, _ := realReady(0)
	foo.Labels, foo.Annotations["theirs"] = map[string]string{"team": "red"}, "dropped"
	foo.Finalizers = []string{"example.com/wait"}
	theirs := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Kept", Message: "another controller's", LastTransitionTime: testNow}
	foo.Status.Conditions = append(foo.Status.Conditions, theirs)
	want := foo.DeepCopy()
	want.ManagedFields, want.Annotations, want.Labels, want.Finalizers = nil, nil, nil, nil
	differ(t, "rule 24: the cached Foo", want, newTrimmer().trimFoo(foo))
}

// large is more than the API server lets a user write into one object.
const large = 2 << 20

// enlarge gives an object all metadata that a user may write, and lets it grow to that many
// bytes. The owner reference of its controller is the last one.
func enlarge(object metav1.Object, bytes int) {
	labels, annotations := map[string]string{}, map[string]string{"text": strings.Repeat("x", bytes)}
	owners := object.GetOwnerReferences()
	for i := range bytes / 1000 {
		labels[fmt.Sprintf("example.com/label-%d", i)] = strings.Repeat("x", 63)
		owners = append([]metav1.OwnerReference{{APIVersion: "v1", Kind: "Thing", Name: strings.Repeat("x", 1000), UID: types.UID(fmt.Sprint(i))}}, owners...)
		object.SetFinalizers(append(object.GetFinalizers(), fmt.Sprintf("example.com/finalizer-%d", i)))
		object.SetManagedFields(append(object.GetManagedFields(), metav1.ManagedFieldsEntry{Manager: fmt.Sprint(i), Time: &testNow, FieldsV1: metav1.NewFieldsV1("{}")}))
	}
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	object.SetOwnerReferences(owners)
}

// newLargeDeployment returns a Deployment whose Pod template, selector and metadata are
// large, with that controller.
func newLargeDeployment(container, kind, apiVersion string) *appsv1.Deployment {
	d := newForeign(ownedBy())
	if kind != "" {
		d.OwnerReferences = []metav1.OwnerReference{{APIVersion: apiVersion, Kind: kind, Name: strings.Repeat("x", large), UID: types.UID(strings.Repeat("x", large)), Controller: ptr.To(true)}}
	}
	enlarge(d, large)
	d.Spec.Selector, d.Spec.Template.Labels, d.Spec.Template.Annotations = &metav1.LabelSelector{MatchLabels: d.Labels}, d.Labels, d.Annotations
	pod := corev1.Container{Name: container, Image: strings.Repeat("x", large), Command: []string{strings.Repeat("x", large)}, Args: make([]string, 10000)}
	for i := range 10000 {
		pod.Env = append(pod.Env, corev1.EnvVar{Name: fmt.Sprint(i), Value: "x"})
		pod.Ports = append(pod.Ports, corev1.ContainerPort{ContainerPort: int32(i + 1)})
	}
	d.Spec.Template.Spec.Containers = []corev1.Container{pod}
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: strings.Repeat("x", large)}}
	return d
}

// newLargeMemcachedService returns a Service whose selector, ports and metadata are large, with a
// controller of that kind in the group of Memcacheds.
func newLargeMemcachedService(kind string) *corev1.Service {
	service := &corev1.Service{}
	service.OwnerReferences = []metav1.OwnerReference{{APIVersion: cachev1alpha1.GroupVersion.String(), Kind: kind, Name: "x", UID: "uid-x", Controller: ptr.To(true)}}
	enlarge(service, large)
	service.Spec.Selector = service.Labels
	for i := range 10000 {
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: fmt.Sprint(i), Port: int32(i + 1)})
	}
	return service
}

// TestLargeObjects: a cache keeps little of an object that a user has made as large as the
// API server allows, and larger.
func TestLargeObjects(t *testing.T) {
	deployments, jobs := appsv1.SchemeGroupVersion.WithResource("deployments"), batchv1.SchemeGroupVersion.WithResource("jobs")
	foo, memcached, cronTab, job := newFoo(fooReady), &cachev1alpha1.Memcached{}, &alphav1.CronTab{}, &batchv1.Job{}
	cronTab.Spec.JobTemplate.Containers = []corev1.Container{{Image: strings.Repeat("x", large)}}
	job.OwnerReferences = []metav1.OwnerReference{{APIVersion: alphav1.GroupVersion.String(), Kind: "CronTab", Name: "x", UID: "uid-x", Controller: ptr.To(true)}}
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Message: strings.Repeat("x", large)}}
	foreignJob, pod, replicaSet := &batchv1.Job{}, &corev1.Pod{}, &appsv1.ReplicaSet{}
	for _, object := range []metav1.Object{foo, memcached, cronTab, job, foreignJob, pod, replicaSet} {
		enlarge(object, large)
	}
	asking := newLargeDeployment("x", "", "")
	asking.Annotations[v1alpha1.AdoptByAnnotation] = strings.Repeat("x", large)
	for _, spec := range []*corev1.PodSpec{&job.Spec.Template.Spec, &foreignJob.Spec.Template.Spec, &pod.Spec, &replicaSet.Spec.Template.Spec} {
		spec.Containers = cronTab.Spec.JobTemplate.Containers
	}
	deleted := newLargeDeployment(containerName, fooKind, v1alpha1.GroupVersion.String())
	deleted.DeletionTimestamp = &testNow

	for sentence, test := range map[string]struct {
		resource schema.GroupVersionResource
		selector string
		object   runtime.Object
	}{
		"rule 24: a Foo":                                   {resource: schema.GroupVersion(v1alpha1.GroupVersion).WithResource("foos"), object: foo},
		"rule 24: a Memcached":                             {resource: schema.GroupVersion(cachev1alpha1.GroupVersion).WithResource("memcacheds"), object: memcached},
		"rule 24: a CronTab":                               {resource: schema.GroupVersion(alphav1.GroupVersion).WithResource("crontabs"), object: cronTab},
		"rule 24: a Job of a CronTab":                      {resource: jobs, object: job},
		"rule 24: a foreign Job":                           {resource: jobs, object: foreignJob},
		"rule 24: a Deployment of a Foo":                   {resource: deployments, object: newLargeDeployment(containerName, fooKind, v1alpha1.GroupVersion.String())},
		"rule 24: a terminating Deployment of a Foo":       {resource: deployments, object: deleted},
		"rule 24: a Deployment of a Memcached":             {resource: deployments, object: newLargeDeployment("memcached", "Memcached", cachev1alpha1.GroupVersion.String())},
		"rule 24: a foreign Deployment":                    {resource: deployments, object: newLargeDeployment("x", "Thing", "v1")},
		"rule 24: a Deployment without a controller":       {resource: deployments, object: newLargeDeployment("x", "", "")},
		"rule 24: a Deployment that asks to be adopted":    {resource: deployments, object: asking},
		"rule 24: a Pod of a Memcached, or of another one": {resource: corev1.SchemeGroupVersion.WithResource("pods"), selector: "memcached_cr", object: pod},
		"rule 24: a Service of a Memcached":                {resource: corev1.SchemeGroupVersion.WithResource("services"), object: newLargeMemcachedService("Memcached")},
		"rule 24: a foreign Service beside Memcacheds":     {resource: corev1.SchemeGroupVersion.WithResource("services"), object: newLargeMemcachedService("Thing")},
		"rule 24: a ReplicaSet of a Memcached":             {resource: appsv1.SchemeGroupVersion.WithResource("replicasets"), selector: "memcached_cr", object: replicaSet},
	} {
		t.Run(sentence, func(t *testing.T) {
			for _, informer := range informersOf(test.resource, test.selector) {
				kept, err := informer.Transform(test.object.DeepCopyObject())
				if err != nil {
					t.Fatal(err)
				}
				text, err := json.Marshal(kept)
				if err != nil {
					t.Fatal(err)
				}
				if most := 16 << 10; len(text) > most {
					t.Errorf("%d bytes are kept, want %d at most, of %.300s", len(text), most, text)
				}
			}
		})
	}
}

// TestAnnotationsCostNothing: a cache keeps of an object with 250 kB of annotations what it
// keeps of the same object without.
func TestAnnotationsCostNothing(t *testing.T) {
	owned := newOwned(newFoo(), available)
	for sentence, test := range map[string]struct {
		resource schema.GroupVersionResource
		object   runtime.Object
	}{
		"rule 24: a Foo":                {schema.GroupVersion(v1alpha1.GroupVersion).WithResource("foos"), newFoo(fooReady)},
		"rule 24: a Memcached":          {schema.GroupVersion(cachev1alpha1.GroupVersion).WithResource("memcacheds"), &cachev1alpha1.Memcached{}},
		"rule 24: a CronTab":            {schema.GroupVersion(alphav1.GroupVersion).WithResource("crontabs"), &alphav1.CronTab{}},
		"rule 24: a foreign Job":        {batchv1.SchemeGroupVersion.WithResource("jobs"), &batchv1.Job{}},
		"rule 24: a foreign Deployment": {appsv1.SchemeGroupVersion.WithResource("deployments"), realForeign(0)},
		"rule 24: an owned Deployment":  {appsv1.SchemeGroupVersion.WithResource("deployments"), owned},
	} {
		t.Run(sentence, func(t *testing.T) {
			for _, informer := range informersOf(test.resource, "") {
				annotated := test.object.DeepCopyObject()
				annotated.(metav1.Object).SetAnnotations(map[string]string{"example.com/text": strings.Repeat("x", 250_000)})
				want, wantErr := informer.Transform(test.object.DeepCopyObject())
				got, err := informer.Transform(annotated)
				if err = errors.Join(wantErr, err); err != nil {
					t.Fatal(err)
				}
				differ(t, "kept", want, got)
			}
		})
	}
}

// informersOf returns the informers of all controllers that read the resource with that selector.
func informersOf(resource schema.GroupVersionResource, selector string) (all []app.Informer) {
	for _, descriptor := range newProgram().Controllers {
		for _, informer := range descriptor.Informers {
			if informer.Resource == resource && informer.Selector == selector {
				all = append(all, informer)
			}
		}
	}
	return all
}

// TestTrimDeploymentOfOthers: a Deployment that no Foo controls does not concern the
// controller, and the process keeps its metadata alone.
func TestTrimDeploymentOfOthers(t *testing.T) {
	other := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Thing", Name: "x", UID: "uid-x", Controller: ptr.To(true)}
	listed := fooReference(newFoo())
	listed.Controller = nil
	for sentence, owners := range map[string][]metav1.OwnerReference{
		"it has no owner": nil, "another object controls it": {other}, "a Foo owns it, but does not control it": {listed},
	} {
		d := realForeign(0)
		d.OwnerReferences = owners
		if trimmed := newTrimmer().trimDeployment(d); trimmed != nil {
			t.Errorf("%s: trimmed to %+v", sentence, trimmed)
		}
	}
}

// TestTrimDeployment decides the same about a Deployment before and after it is trimmed.
func TestTrimDeployment(t *testing.T) {
	_, current := realReady(0)
	trimmed := newTrimmer().trimDeployment(current.DeepCopy())
	if trimmed.Annotations != nil || len(trimmed.Spec.Template.Labels) > 0 || trimmed.Spec.Strategy.RollingUpdate != nil || len(trimmed.Status.Conditions) > 0 {
		t.Errorf("fields that nothing reads are kept: %+v", trimmed)
	}
	differ(t, "trimmed twice", trimmed, newTrimmer().trimDeployment(trimmed.DeepCopy()))
}

// TestTrimKeepsWhatIsCompared sets each field of an owned Deployment in turn, and makes the same
// decision before and after it is trimmed. A field that diffDeployment compares and trimDeployment
// drops would be patched at each sync.
func TestTrimKeepsWhatIsCompared(t *testing.T) {
	foo := newFoo(fooReplicas(ptr.To[int32](3)), fooImage("nginx:1"))
	fields := fixtures.EachField(newOwned(foo), func(d *appsv1.Deployment) {
		if !owns(foo, d) || d.DeletionTimestamp != nil {
			return
		}
		want := diffDeployment(foo, d, desiredReplicas(foo)).String()
		got := diffDeployment(foo, newTrimmer().trimDeployment(d.DeepCopy()), desiredReplicas(foo)).String()
		differ(t, "rule 4: what has drifted", want, got)
	})
	if fields < 300 {
		t.Errorf("only %d fields were set", fields)
	}
}

// TestTrimInterns: the cached Deployments share the containers and labels that many of
// them have in common.
func TestTrimInterns(t *testing.T) {
	trim := newTrimmer()
	kept := func(i int, change func(*appsv1.Deployment)) *appsv1.Deployment {
		_, d := realReady(i)
		if change != nil {
			change(d)
		}
		return trim.trimDeployment(d)
	}
	one, other := kept(0, nil), kept(1, nil)
	image := one.Spec.Template.Spec.Containers[0].Image
	if &one.Spec.Template.Spec.Containers[0] != &other.Spec.Template.Spec.Containers[0] {
		t.Error("two Deployments of one image have a container each")
	}
	if reflect.ValueOf(one.Labels).Pointer() != reflect.ValueOf(other.Labels).Pointer() {
		t.Error("two Deployments with our label have a map each")
	}
	differ(t, "rule 4: the label that is compared", map[string]string{controller.ManagedByLabel: controller.ManagedByValue}, one.Labels)

	changed := kept(2, func(d *appsv1.Deployment) {
		d.Labels[controller.ManagedByLabel] = "someone"
		d.Spec.Template.Spec.Containers[0].Image = "another"
	})
	differ(t, "rule 4: another value of the label", map[string]string{controller.ManagedByLabel: "someone"}, changed.Labels)
	differ(t, "rule 4: another image", "another", changed.Spec.Template.Spec.Containers[0].Image)
	differ(t, "rule 8: of the managed fields, that this program has written it", []metav1.ManagedFieldsEntry{{Manager: controller.FieldManager}}, one.ManagedFields)
	if &one.ManagedFields[0] != &other.ManagedFields[0] {
		t.Error("two Deployments that this program has written have managed fields each")
	}
	theirs := kept(4, writtenBy("kubectl-create"))
	differ(t, "rule 8: of the managed fields of others", 0, len(theirs.ManagedFields))
	differ(t, "rule 8: a Deployment that this program has written", []bool{true, false}, []bool{deployment.WrittenByUs(one), deployment.WrittenByUs(theirs)})
	bare := kept(3, func(d *appsv1.Deployment) { delete(d.Labels, controller.ManagedByLabel) })
	differ(t, "rule 4: no label", 0, len(bare.Labels))
	differ(t, "rule 4: the first one as before", controller.ManagedByValue, one.Labels[controller.ManagedByLabel])
	differ(t, "rule 4: its image as before", image, one.Spec.Template.Spec.Containers[0].Image)
}

// TestDeploymentChangesHands gives the Foo's Deployment to another controller, to the Foo,
// to none and back: each time the cache must have what is read of it then.
func TestDeploymentChangesHands(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		foo := newFoo()
		current := newOwned(foo, available)
		ours := current.OwnerReferences
		current.OwnerReferences = []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "x", UID: "uid-x", Controller: ptr.To(true)}}
		ctx, f := newFixture(t, []*v1alpha1.Foo{foo}, []*appsv1.Deployment{current})
		defer f.start(ctx, t)()
		for i, hand := range []struct {
			owners []metav1.OwnerReference
			want   string
		}{
			{current.OwnerReferences, "gen=1 available=0 replicas=0 False/DeploymentNotOwned"},
			{ours, "gen=1 available=1 replicas=1 True/DeploymentAvailable"},
			{nil, "gen=1 available=0 replicas=0 False/DeploymentNotOwned"},
			{ours, "gen=1 available=1 replicas=1 True/DeploymentAvailable"},
		} {
			current.OwnerReferences = hand.owners
			// The fake does not raise it by itself.
			current.ResourceVersion = fmt.Sprint(100 + i)
			if err := f.kube.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("deployments"), current, testNamespace); err != nil {
				t.Fatal(err)
			}
			<-time.After(controller.StaleCacheDelay)
			synctest.Wait()
			cached := f.deployments.Get(testNamespace, current.Name)
			owned := controller.ControllerOf(cached, fooGVK().GroupKind()) != nil
			if (cached.Spec.Replicas != nil) != owned || (deployment.Container(cached, containerName) != nil) != owned {
				t.Errorf("rule 5: owned is %v, and of the spec is kept: %+v", owned, cached.Spec)
			}
			updated, err := f.foo.SamplecontrollerV1alpha1().Foos(testNamespace).Get(ctx, foo.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			differ(t, "rule 5: the status", hand.want, summary(updated))
		}
	})
}
