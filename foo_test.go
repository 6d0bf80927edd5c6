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
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
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
	got := newDeployment(newFoo(fooImage("nginx:1.27"), fooReplicas(ptr.To[int32](3))))
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
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:1.27"}}},
			},
		},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("Deployment for a Foo (-want +got):\n%s", diff)
	}
}

func noContainerNginx(deployment *appsv1.Deployment) {
	deployment.Spec.Template.Spec.Containers[0].Name = "web"
}

// ourReference is the owner reference of newFoo in JSON.
const ourReference = `{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","name":"foo","uid":"uid-foo","controller":true,"blockOwnerDeletion":true}`

// drift returns what has drifted of the Deployment.
func drift(foo *v1alpha1.Foo, current *appsv1.Deployment) controller.Patch {
	return diffDeployment(foo, newDeployment(foo), current)
}

// TestDiffDeployment is about the patch of what drifted of the Foo's own Deployment.
func TestDiffDeployment(t *testing.T) {
	foo := newFoo()
	pinned := newFoo(fooImage("nginx:1.27"))
	tests := map[string]struct {
		foo        *v1alpha1.Foo
		deployment *appsv1.Deployment
		// Without changes and a patch nothing has drifted.
		changes string
		patch   string
		// invalid is a part of the complaint about the spec.
		invalid string
	}{
		"rules 4 and 10: a Deployment as it should be is left alone, replicas that the API server defaulted are 1, and the annotation of rule 10 means nothing": {
			foo: foo, deployment: newOwned(foo, deploymentReplicas(nil), adoptBy("foo"))},
		"rule 4: a Foo without replicas, stored before the default, means 1": {
			foo: newFoo(fooReplicas(nil)), deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](2))),
			changes: "replicas from 2 to 1",
			patch:   `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`},
		"rule 4: an image that the spec does not name is not compared": {
			foo: foo, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers[0].Image = "mine:1" })},
		"rule 4: several fields make one patch": {
			foo: pinned, deployment: newOwned(foo, deploymentReplicas(ptr.To[int32](5)), func(d *appsv1.Deployment) {
				d.Labels, d.OwnerReferences[0].BlockOwnerDeletion = map[string]string{"other": "x"}, nil
			}),
			changes: `replicas from 5 to 1, image from nginx:latest to nginx:1.27, label app.kubernetes.io/managed-by from none to "sample-controller", owner reference of "foo", blockOwnerDeletion false`,
			patch: `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"sample-controller"},"ownerReferences":[` + ourReference + `],"resourceVersion":"10"},` +
				`"spec":{"replicas":1,"template":{"spec":{"containers":[{"image":"nginx:1.27","name":"nginx"}]}}}}`},
		"drop-in: no container nginx to take spec.image, none is added, the owner reference gets its name": {
			foo: pinned, deployment: newOwned(foo, func(d *appsv1.Deployment) { d.OwnerReferences[0].Name = "bar" }, noContainerNginx),
			changes: `owner reference of "bar", blockOwnerDeletion true`, invalid: `no container "nginx"`,
			patch: `{"metadata":{"ownerReferences":[` + ourReference + `],"resourceVersion":"10"}}`},
		"drop-in: no container nginx and no spec.image is fine": {
			foo: foo, deployment: newOwned(foo, noContainerNginx)},
		"rule 7: no container nginx in a Deployment that is terminating: it is created again with one": {
			foo: pinned, deployment: newOwned(foo, noContainerNginx, deploymentTerminating)},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// The cache holds the trimmed one.
			trimmed := cached(t, test.deployment)
			differ(t, "trimmed twice", trimmed, cached(t, trimmed))
			patch := drift(test.foo, trimmed)
			differ(t, "changes", test.changes, patch.String())
			if !patch.IsEmpty() {
				differ(t, "patch", test.patch, string(patch.JSON()))
			}
			ready := readyCondition(test.foo, findings{deployment: test.deployment}, testNow.Time)
			if isInvalid := ready.Reason == v1alpha1.ReasonInvalidSpec; isInvalid != (test.invalid != "") || !strings.Contains(ready.Message, test.invalid) {
				t.Errorf("invalid = %v, %q, want %q in it", isInvalid, ready.Message, test.invalid)
			}
		})
	}
}

// TestNewStatus is about one status after another, which tells of a Foo without a Deployment where
// none is given, and about the event of that change.
func TestNewStatus(t *testing.T) {
	otherName := []string{"create this Foo anew with another spec.deploymentName"}
	otherName[0] = "ask for another name in spec.deploymentName" // +drop:rename
	freed := "is deleted"
	freed += ", or is renamed and its new Deployment is rolled out" // +drop:rename
	const (
		isNotOwned = "gen=1 available=0 replicas=0 False/DeploymentNotOwned"
		warning    = "Warning ErrResourceExists"
	)
	for sentence, test := range map[string]struct {
		to   findings
		want string
		// message is a part of that of Ready; with a $ behind it, the end.
		message string
		event   string
	}{
		"rule 5: this Foo owns the Deployment without controlling it": {
			to:   findings{deployment: newForeign(ownedBy(metav1.OwnerReference{APIVersion: "v1", Kind: "Foo", Name: "foo", UID: "uid-foo"}))},
			want: isNotOwned, event: warning, message: "not as its controller"},
		"rule 17: the controller has this Foo's name and another kind, whatever else this Foo owns": {
			to: findings{deployment: newForeign(ownedBy(
				metav1.OwnerReference{APIVersion: "v1", Kind: "Foo", Name: "foo", UID: "uid-foo"},
				metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: "foo", UID: "u", Controller: ptr.To(true)}))},
			want: isNotOwned, event: warning, message: `Deployment "web" is controlled by Thing "foo"; ` + otherName[0] + "$"},
		"rule 17: another Foo has the Deployment": {
			to: findings{deployment: newOwned(newFoo(fooNamed("bar")))}, want: isNotOwned, event: warning,
			message: `Deployment "web" is controlled by Foo "bar"; this Foo takes over the name once that one ` + freed + `; if you do not want to wait, ` + otherName[0] + "$"},
		"rule 10: where it asks for another Foo, the command overwrites that": {
			to: findings{deployment: newForeign(adoptBy("bar"))}, want: isNotOwned, event: warning,
			message: `adopted with kubectl annotate deployment web samplecontroller.k8s.io/adopt-by=foo -n ns --overwrite, or`},
	} {
		t.Run(sentence, func(t *testing.T) {
			foo := newFoo(fooStatus(findings{}))
			theirs := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "X"}
			foo.Status.Conditions = append(foo.Status.Conditions, theirs)
			before := foo.DeepCopy()
			status := newStatus(foo, test.to, testNow)
			differ(t, "the given Foo", before, foo)
			old, ready := controller.GetReady(foo.Status.Conditions), controller.GetReady(status.Conditions)
			foo.Status = status
			differ(t, "status", test.want, summary(foo))
			differ(t, "selector", strings.Contains(test.want, "replicas=0"), status.Selector == "")
			if !strings.Contains(ready.Message+"$", test.message) {
				t.Errorf("message %q, want %q in it", ready.Message, test.message)
			}
			differ(t, "API: conditions of other types", theirs, *meta.FindStatusCondition(status.Conditions, "Theirs"))
			differ(t, "API: lastTransitionTime changes with the status value", old.Status != ready.Status, ready.LastTransitionTime.Equal(&testNow))
			event := ""
			if told := deployment.ReadyEvent(fooKind, old, ready); told != nil {
				event = told.Type + " " + told.Reason
			}
			differ(t, "event", test.event, event)
		})
	}
}

// TestNextStall is about when a termination has lasted too long.
func TestNextStall(t *testing.T) {
	terminating := func(deadline int32) *appsv1.Deployment {
		return newOwned(newFoo(), func(d *appsv1.Deployment) {
			d.DeletionTimestamp, d.Spec.ProgressDeadlineSeconds = &testNow, &deadline
		})
	}
	f := findings{deployment: terminating(30)}
	differ(t, "rule 7: the next stall", testNow.Add(30*time.Second), f.nextTerminationStall(testNow.Time))
	// +drop:rename
	f.old.waitsFor = []*appsv1.Deployment{terminating(60), terminating(20), terminating(0)}
	differ(t, "rule 8: the next stall of several", testNow.Add(20*time.Second), f.nextTerminationStall(testNow.Time))
	// +drop:end
	differ(t, "rule 7: the next stall of none", time.Time{}, (&findings{deployment: newOwned(newFoo())}).nextTerminationStall(testNow.Time))
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

// enlarge gives an object with that controller all metadata that a user may write, and lets it
// grow to more bytes than an object may have.
func enlarge[T metav1.Object](object T, kind, apiVersion string) T {
	labels, annotations := map[string]string{}, map[string]string{"text": strings.Repeat("x", large)}
	var owners []metav1.OwnerReference
	for i := range large / 1000 {
		labels[fmt.Sprintf("example.com/label-%d", i)] = strings.Repeat("x", 63)
		owners = append(owners, metav1.OwnerReference{APIVersion: "v1", Kind: "Thing", Name: strings.Repeat("x", 1000), UID: types.UID(fmt.Sprint(i))})
		object.SetFinalizers(append(object.GetFinalizers(), fmt.Sprintf("example.com/finalizer-%d", i)))
		object.SetManagedFields(append(object.GetManagedFields(), metav1.ManagedFieldsEntry{Manager: fmt.Sprint(i), Time: &testNow, FieldsV1: metav1.NewFieldsV1("{}")}))
	}
	if kind != "" {
		name := strings.Repeat("x", large)
		owners = append(owners, metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: name, UID: types.UID(name), Controller: ptr.To(true)})
	}
	object.SetLabels(labels)
	object.SetAnnotations(annotations)
	object.SetOwnerReferences(owners)
	return object
}

// newLargeDeployment returns a Deployment whose Pod template, selector and metadata are
// large, with that controller.
func newLargeDeployment(container, kind, apiVersion string, options ...deploymentOption) *appsv1.Deployment {
	d := enlarge(newForeign(), kind, apiVersion)
	d.Spec.Selector, d.Spec.Template.Labels, d.Spec.Template.Annotations = &metav1.LabelSelector{MatchLabels: d.Labels}, d.Labels, d.Annotations
	pod := corev1.Container{
		Name: container, Image: strings.Repeat("x", large), Command: []string{strings.Repeat("x", large)},
		Args: make([]string, 10000), Env: make([]corev1.EnvVar, 10000), Ports: make([]corev1.ContainerPort, 10000),
	}
	d.Spec.Template.Spec.Containers = []corev1.Container{pod}
	d.Status.Conditions = []appsv1.DeploymentCondition{{Type: appsv1.DeploymentReplicaFailure, Status: corev1.ConditionTrue, Message: strings.Repeat("x", large)}}
	for _, option := range options {
		option(d)
	}
	return d
}

// +drop:memcached
func newLargeMemcachedService(kind string) *corev1.Service {
	service := enlarge(&corev1.Service{}, kind, cachev1alpha1.GroupVersion.String())
	service.Spec.Selector, service.Spec.Ports = service.Labels, make([]corev1.ServicePort, 10000)
	return service
}

// +drop:end

// +drop:crontab
func newLargeJob(kind, apiVersion string, template corev1.PodTemplateSpec) *batchv1.Job {
	job := enlarge(&batchv1.Job{Spec: batchv1.JobSpec{Template: template}}, kind, apiVersion)
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobFailed, Status: corev1.ConditionTrue, Message: strings.Repeat("x", large)}}
	return job
}

// +drop:end

// TestLargeObjects: a cache keeps little of an object that a user has made as large as the
// API server allows, and larger, and of 250 kB more of annotations nothing.
func TestLargeObjects(t *testing.T) {
	fooVersion := v1alpha1.GroupVersion.String()
	// +drop:memcached,crontab
	template := newLargeDeployment("x", "", "").Spec.Template
	// +drop:end
	// +drop:crontab
	cronTab := &alphav1.CronTab{}
	cronTab.Spec.JobTemplate.Containers = template.Spec.Containers
	// +drop:end

	for sentence, test := range map[string]struct {
		resource string
		object   runtime.Object
	}{
		"rule 24: a Foo":       {"foos", enlarge(newFoo(fooReady), "", "")},
		"rule 24: a Memcached": {"memcacheds", enlarge(&cachev1alpha1.Memcached{}, "", "")}, // +drop:memcached
		// +drop:crontab
		"rule 24: a CronTab":          {"crontabs", enlarge(cronTab, "", "")},
		"rule 24: a Job of a CronTab": {"jobs", newLargeJob("CronTab", alphav1.GroupVersion.String(), template)},
		"rule 24: a foreign Job":      {"jobs", newLargeJob("", "", template)},
		// +drop:end
		"rule 24: a Deployment of a Foo":                {"deployments", newLargeDeployment(containerName, fooKind, fooVersion)},
		"rule 24: a terminating Deployment of a Foo":    {"deployments", newLargeDeployment(containerName, fooKind, fooVersion, deploymentTerminating)},
		"rule 24: a Deployment of a Memcached":          {"deployments", newLargeDeployment("memcached", "Memcached", cachev1alpha1.GroupVersion.String())}, // +drop:memcached
		"rule 24: a foreign Deployment":                 {"deployments", newLargeDeployment("x", "Thing", "v1")},
		"rule 24: a Deployment without a controller":    {"deployments", newLargeDeployment("x", "", "")},
		"rule 24: a Deployment that asks to be adopted": {"deployments", newLargeDeployment("x", "", "", adoptBy(strings.Repeat("x", large)))},
		// +drop:memcached
		"rule 24: a Pod of a Memcached, or of another one": {"pods", enlarge(&corev1.Pod{Spec: template.Spec}, "", "")},
		"rule 24: a Service of a Memcached":                {"services", newLargeMemcachedService("Memcached")},
		"rule 24: a foreign Service beside Memcacheds":     {"services", newLargeMemcachedService("Thing")},
		"rule 24: a ReplicaSet of a Memcached":             {"replicasets", enlarge(&appsv1.ReplicaSet{Spec: appsv1.ReplicaSetSpec{Template: template}}, "", "")},
		// +drop:end
	} {
		t.Run(sentence, func(t *testing.T) {
			more := test.object.DeepCopyObject()
			more.(metav1.Object).GetAnnotations()["example.com/more"] = strings.Repeat("x", 250_000)
			for _, informer := range informersOf(test.resource) {
				keep := func(object any) any {
					kept, err := informer.Transform(object)
					if err != nil {
						t.Fatal(err)
					}
					return kept
				}
				kept := keep(test.object.DeepCopyObject())
				text, err := json.Marshal(kept)
				if most := 16 << 10; len(text) > most || err != nil {
					t.Errorf("%d bytes are kept, want %d at most, of %.300s; error %v", len(text), most, text, err)
				}
				differ(t, "kept with more annotations", kept, keep(more.DeepCopyObject()))
			}
		})
	}
}

// TestLargeIsKnown: of what this controller reads live, the cache knows that it is large.
func TestLargeIsKnown(t *testing.T) {
	ours, asking := newLargeDeployment(containerName, fooKind, v1alpha1.GroupVersion.String()), newLargeDeployment("x", "", "", adoptBy("foo"))
	for d, want := range map[*appsv1.Deployment]bool{ours: true, asking: true, newLargeDeployment("x", "Thing", "v1"): false, newLargeDeployment("x", "", ""): false, newOwned(newFoo()): false} {
		_, marked := cached(t, d).Annotations["sample-controller/large"]
		differ(t, "rule 24: large", want, marked)
	}
}

// informersOf returns the informers of all controllers that read the resource.
func informersOf(resource string) (all []app.Informer) {
	for _, descriptor := range newProgram().Controllers {
		for _, informer := range descriptor.Informers {
			if informer.Resource.Resource == resource {
				all = append(all, informer)
			}
		}
	}
	return all
}

// TestTrimKeepsWhatIsCompared: each field that is compared is repaired, and kept in the cache. One
// that diffDeployment compares and trimDeployment drops would be patched at each sync.
func TestTrimKeepsWhatIsCompared(t *testing.T) {
	foo := newFoo(fooReplicas(ptr.To[int32](3)), fooImage("nginx:1"))
	diff := func(d *appsv1.Deployment) controller.Patch { return drift(foo, d) }
	trim := func(d *appsv1.Deployment) *appsv1.Deployment { return newTrimmer().trimDeployment(d.DeepCopy()) }
	differ(t, "rule 4: repaired fields", []string{"image", "label app.kubernetes.io/managed-by", "owner reference", "replicas"},
		fixtures.CheckRepairs(t, newOwned(foo), diff, trim, ".ObjectMeta.ResourceVersion"))
	differ(t, "rule 10: a Foo asks for its own Deployment", false, asksToBeAdopted(foo, newOwned(foo, adoptBy("foo"))))
}

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
