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
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/intstr"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	fixtures "example.com/sample-controller/test/fixture"
)

// pods gives the Deployment the status of a rollout in progress.
var pods = fixtures.Pods

func recreate(d *appsv1.Deployment) { d.Spec.Strategy.Type = appsv1.RecreateDeploymentStrategyType }

// renameTests are calls of syncHandler for a Foo whose spec.deploymentName has
// changed, and for Foos that are in each other's way.
func renameTests() map[string]syncTest {
	foo, moved := newFoo(), newFoo(fooReady, fooEdited, wants("next"))
	web, next, starting := newOwned(foo, available), newOwned(moved, available), newOwned(moved, pods(1, 1, 0))
	first := newOwned(newFoo(wants("first")), available)
	empty, unlabelled := deploymentReplicas(ptr.To[int32](0)), func(d *appsv1.Deployment) { d.Labels = nil }
	none := newOwned(moved, pods(0, 0, 0), empty)
	// In a cycle the Foo with the smallest name deletes. These names come before and after that
	// of any kind.
	const before, after = "0-bar", "zz-bar"
	last, lastSwapping := newFoo(fooNamed(after), wants("next")), newFoo(fooNamed(after), wants("web"))
	heldByLast := newOwned(last, available)
	const (
		getWeb, getNext = "get deployments web", "get deployments next"
		createNext      = "create deployments next replicas=1 owner=uid-foo"
		deleteWeb       = "delete deployments web uid=uid-web version=10"
		deleteFirst     = "delete deployments first uid=uid-first version=10"
		putReady        = putStatus + "gen=2 True/DeploymentAvailable" + onePod
		putNotOwned     = putStatus + "gen=2 False/DeploymentNotOwned" + cleared
		putNone         = putStatus + "gen=2 False/DeploymentRejected" + cleared
		putRejected     = putStatus + "gen=2 False/DeploymentRejected" + onePod
		labelNext       = `patch deployments next {"metadata":{"labels":{"app.kubernetes.io/managed-by":"sample-controller"},"resourceVersion":"10"}}`
	)

	tests := map[string]syncTest{
		"rule 8: renamed: once the rollout of the new one is complete the former Deployment goes, as its own strategy says, after live reads of the Foo and the new one": {
			cached: objects{moved, web, newOwned(moved, recreate, available)}, requests: []string{getNext, deleteWeb, getFoo, putReady}, events: "Normal Deleted"},
		"rule 8: a Deployment that another writer has just set to 0 replicas, which the cache does not show, does not replace the one that serves": {
			cached: objects{moved, web, next}, live: objects{moved, web, none}, requests: []string{getNext}, err: "out of date"},
		"rule 12: while the new Deployment cannot be read live nothing is deleted": {
			cached: objects{moved, web, next}, prepare: fail("get", "deployments", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{getNext}, err: "reading Deployment \"next\": Internal error occurred: oops"},
		"rule 12: a repair that fails ends the sync, and nothing is deleted": {
			cached: objects{moved, web, newOwned(moved, available, unlabelled)}, prepare: fail("patch", "deployments", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{labelNext}, err: "updating Deployment \"next\": Internal error occurred: oops"},
		"rule 8: 409 on the delete is retried": {
			cached: objects{moved, web, next}, prepare: fail("delete", "deployments", errConflict()),
			requests: []string{getNext, deleteWeb, getFoo}, err: "deleting Deployment"},
		"rule 8: while the new Deployment is refused the former one stays": {
			cached: objects{moved, web}, prepare: fail("create", "deployments", errQuota()),
			requests: []string{getWeb, createNext, putNone}, events: "Warning DeploymentRejected", err: "exceeded quota",
			message: `the former Deployment "web" still serves; if a quota counts it, raise the quota`},
		"rule 8: renamed twice: two of the former Deployments go in one sync": {
			cached: objects{moved, web, first, newOwned(newFoo(wants("third")), available), next},
			requests: []string{getNext, deleteFirst, "delete deployments third uid=uid-third version=10", getFoo, getFoo,
				putStatus + `gen=2 True/DeploymentAvailable; until it is deleted, the former Deployment "web" still serves` + onePod}, events: "Normal Deleted, Normal Deleted"},

		"rule 8: strategy Recreate: the former Deployment is deleted in the foreground, before the new one has Pods, and another one serves until then": {
			cached:   objects{moved, first, newOwned(foo, pods(1, 1, 0), recreate), newOwned(moved, recreate, empty, available)},
			requests: []string{getNext, deleteWeb + " Foreground", getFoo}, events: "Normal Deleted", requeueAfter: time.Second},
		"rule 8: strategy Recreate: a Foo that wants no Pods does not wait for the former ones": {
			cached:   objects{newFoo(wants("next"), fooReplicas(ptr.To[int32](0))), newOwned(foo, recreate, deploymentTerminating), newOwned(moved, empty, pods(0, 0, 0))},
			requests: []string{putStatus + "gen=1 True/DeploymentAvailable" + noPods + ourSelector}, events: "Normal Synced"},
		"rule 8: strategy Recreate set after the new Deployment has Pods: it is not scaled down": {
			cached: objects{moved, newOwned(foo, available, recreate), starting}, requeueAfter: time.Second},
		"rule 8: strategy Recreate: a policy that gives the waiting copy replicas is seen in the next sync": {
			cached: objects{newFoo(fooReady, wants("next"), fooReplicas(ptr.To[int32](3))), newOwned(foo, available, recreate)},
			prepare: func(f *fixture) {
				fixtures.Answer(&f.Kube.Fake, "create", "deployments", newOwned(moved, deploymentReplicas(ptr.To[int32](2))), nil)
			},
			requests: []string{getWeb, "create deployments next replicas=0 owner=uid-foo", getFoo, putStatus + "gen=1 False/DeploymentProgressing" + noPods + ourSelector},
			events:   "Normal Created", requeueAfter: time.Second, message: "waits with 0 replicas until"},

		"rule 11: a former Deployment whose deletion is refused does not keep the others": {
			cached: objects{moved, web, newOwned(newFoo(wants("first")), pods(2, 2, 2)), next},
			prepare: func(f *fixture) {
				f.Kube.PrependReactor("delete", "deployments", func(action clienttesting.Action) (bool, runtime.Object, error) {
					return action.(clienttesting.DeleteAction).GetName() == "first", nil, errQuota()
				})
			},
			requests: []string{getNext, deleteFirst, deleteWeb, getFoo, getFoo, putRejected},
			events:   "Normal Deleted, Warning DeploymentRejected", err: "exceeded quota", message: `; until it is deleted, the former Deployment "first" still serves$`},

		"rule 8: in a rotation a Foo that waits enqueues none but the one with the smallest name, or they would enqueue each other for ever": {
			cached: objects{moved, newFoo(fooNamed(after), wants("third")), newFoo(fooNamed(before), wants("web")),
				web, heldByLast, newOwned(newFoo(fooNamed(before), wants("third")), available)},
			requests: []string{putNotOwned}, events: "Warning ErrResourceExists", enqueued: []string{before}},
		"rule 8: of a rotation every other Foo is read live": {
			cached: objects{moved, newFoo(fooNamed(after), wants("third")), newFoo(fooNamed("zzz"), wants("web")),
				web, heldByLast, newOwned(newFoo(fooNamed("zzz"), wants("third")), available)},
			live: objects{moved, newFoo(fooNamed(after), wants("third")), newFoo(fooNamed("zzz"), wants("fourth"), fooEdited),
				web, heldByLast, newOwned(newFoo(fooNamed("zzz"), wants("third")), available)},
			requests: []string{getNext, "get foos " + after, "get foos zzz"}, err: "out of date"},
		"API: with negative replicas nothing is repaired or deleted": {
			cached:   objects{newFoo(fooReady, fooEdited, wants("next"), fooReplicas(ptr.To[int32](-1))), web, next},
			requests: []string{putStatus + "gen=2 False/InvalidSpec" + onePod}, events: "Warning InvalidSpec",
			message: `spec.replicas is -1; set it to 0 or more; until the spec is valid, the former Deployment "web" still serves$`},
		"API: with an invalid spec a Foo of a swap enqueues nothing, or the two Foos would enqueue each other for ever": {
			cached:   objects{newFoo(fooReady, fooEdited, wants("next"), fooReplicas(ptr.To[int32](-1))), lastSwapping, web, heldByLast},
			requests: []string{putStatus + "gen=2 False/InvalidSpec" + cleared}, events: "Warning InvalidSpec"},
		"rule 8: a swap is confirmed by reading the Deployment that the Foo asks for live: the other Foo owns it still": {
			cached:   objects{moved, lastSwapping, web, heldByLast},
			live:     objects{moved, lastSwapping, web, newOwned(last, available, ownedBy())},
			requests: []string{getNext}, err: "out of date"},
	}
	for sentence, others := range map[string]objects{
		"a user's copy, which the other Foo would not delete": {lastSwapping, newOwned(last, available, writtenBy("kubectl-create"))},
		"a Foo that is gone":          {heldByLast},
		"a Foo without a Deployment":  {newFoo(fooNamed(after), wants("third")), heldByLast},
		"a terminating Foo":           {newFoo(fooNamed(after), wants("web"), fooTerminating), heldByLast},
		"an earlier Foo of that name": {newFoo(fooNamed(after), wants("web"), fooUID("recreated")), heldByLast},
		"a Foo whose Deployment is terminating": {lastSwapping, newOwned(last, deploymentTerminating, func(d *appsv1.Deployment) {
			d.DeletionTimestamp = ptr.To(metav1.NewTime(testNow.AddDate(-50, 0, 0)))
		})},
	} {
		tests["rule 8: none is a swap with "+sentence] = syncTest{
			cached: append(objects{moved, web}, others...), requests: []string{putNotOwned}, events: "Warning ErrResourceExists"}
	}
	return tests
}

// TestCopyDeployment checks field by field what a rename keeps.
func TestCopyDeployment(t *testing.T) {
	source := newOwned(newFoo(), available, func(d *appsv1.Deployment) {
		d.Labels["theirs"], d.Annotations = "no", map[string]string{"theirs": "no"}
		d.Spec.Selector.MatchLabels = map[string]string{"app": "stock"}
		d.Spec.Paused = true
		d.Spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RollingUpdateDeploymentStrategyType, RollingUpdate: &appsv1.RollingUpdateDeployment{MaxSurge: ptr.To(intstr.FromInt32(2))}}
		d.Spec.MinReadySeconds, d.Spec.RevisionHistoryLimit, d.Spec.ProgressDeadlineSeconds = 7, ptr.To[int32](3), ptr.To[int32](90)
		d.Spec.Template.Labels = map[string]string{"app": "stock", "theirs": "kept"}
		d.Spec.Template.Annotations = map[string]string{"kubectl.kubernetes.io/restartedAt": "now"}
		d.Spec.Template.Spec.NodeSelector = map[string]string{"disk": "ssd"}
		d.Spec.Template.Spec.Containers = []corev1.Container{
			{Name: "nginx", Image: "nginx:theirs", Env: []corev1.EnvVar{{Name: "A", Value: "b"}}, Resources: corev1.ResourceRequirements{Limits: corev1.ResourceList{corev1.ResourceCPU: resource.MustParse("1")}}},
			{Name: "sidecar", Image: "sidecar:1"},
		}
	})
	before := source.DeepCopy()
	for sentence, test := range map[string]struct {
		foo       *v1alpha1.Foo
		wantImage string
	}{
		"rule 8: image, resources, env and sidecars are kept, the replicas come from the Foo": {
			newFoo(wants("next"), fooReplicas(ptr.To[int32](4))), "nginx:theirs"},
		"rule 8: the image comes from the Foo if it is set": {newFoo(wants("next"), fooImage("nginx:foo")), "nginx:foo"},
	} {
		t.Run(sentence, func(t *testing.T) {
			desired := newDeployment(test.foo)
			want := desired.DeepCopy()
			before.Spec.Template.DeepCopyInto(&want.Spec.Template)
			want.Spec.Template.Labels = map[string]string{"app": "stock", "controller": "foo", "theirs": "kept"}
			want.Spec.Selector.MatchLabels = map[string]string{"app": "stock", "controller": "foo"}
			want.Spec.Strategy, want.Spec.MinReadySeconds = before.Spec.Strategy, 7
			want.Spec.RevisionHistoryLimit, want.Spec.ProgressDeadlineSeconds = ptr.To[int32](3), ptr.To[int32](90)
			want.Spec.Template.Spec.Containers[0].Image = test.wantImage
			differ(t, "the new Deployment", want, copyDeployment(test.foo, desired, source))
			differ(t, "the former Deployment", before, source)
		})
	}
	source.Spec.Template.Labels, source.Spec.Template.Spec.Containers = nil, source.Spec.Template.Spec.Containers[1:]
	bare := copyDeployment(newFoo(fooImage("nginx:foo")), newDeployment(newFoo()), source)
	differ(t, "rule 8: labels of a template without any", map[string]string{"controller": "foo"}, bare.Spec.Template.Labels)
	differ(t, "rule 4: no container is added for the image", before.Spec.Template.Spec.Containers[1:], bare.Spec.Template.Spec.Containers)
}

// TestOldDeployments: several Deployments of other names are sorted, or each sync would act
// and report in another order.
func TestOldDeployments(t *testing.T) {
	created := func(seconds int) deploymentOption {
		return func(d *appsv1.Deployment) {
			d.CreationTimestamp = metav1.NewTime(testNow.Add(time.Duration(seconds) * time.Second))
		}
	}
	a, b, c := newFoo(wants("a")), newFoo(wants("b")), newFoo(wants("c"))
	for sentence, test := range map[string]struct {
		deployments objects
		// want are the former ones and the terminating ones.
		want string
	}{
		"rule 8: the one with most available Pods is copied": {
			objects{newOwned(a, pods(3, 3, 0), created(1)), newOwned(b, pods(2, 2, 2), created(3)), newOwned(c, pods(1, 1, 1), created(2))}, "bca"},
		"rule 8: of those with equally many the oldest is copied": {
			objects{newOwned(a, available, created(3)), newOwned(b, available, created(1)), newOwned(c, available, created(2))}, "bca"},
		"rule 8: one whose managed fields the API server has compacted is a former one": {
			objects{newOwned(a, writtenBy("ancient-changes"))}, "a"},
		"rule 8: what a user made, what is terminating and what spec names is no former Deployment": {
			objects{newOwned(a, available, writtenBy("kubectl-create")), newOwned(b, deploymentTerminating), newOwned(newFoo()), newOwned(c)}, "cb"},
		"rule 5: an owner reference from another namespace is not one": {
			objects{newOwned(a, func(d *appsv1.Deployment) { d.Namespace = "other" })}, ""},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(f *fixture) {
				got, old := "", f.oldDeployments(newFoo(), nil)
				for _, d := range slices.Concat(old.former, old.terminating) {
					got += d.Name
				}
				differ(f, "old Deployments", test.want, got)
			}, test.deployments...)
		})
	}
}

// TestRenameMessages checks what Ready says about Deployments of other names.
func TestRenameMessages(t *testing.T) {
	foo, moved := newFoo(), newFoo(wants("next"))
	web, recreated, waiting := newOwned(foo, available), newOwned(foo, available, recreate), newOwned(moved, deploymentReplicas(ptr.To[int32](0)), available)
	held := newOwned(foo, recreate, deploymentTerminating, func(d *appsv1.Deployment) { d.Finalizers = []string{"example.com/hold"} })
	var many []*appsv1.Deployment
	for range 300 {
		many = append(many, newOwned(newFoo(wants(strings.Repeat("a", 253)))))
	}
	for sentence, test := range map[string]struct {
		findings findings
		after    time.Duration
		want     string
	}{
		"rule 8: a former Deployment without available Pods is kept": {
			findings{deployment: newOwned(moved, pods(1, 1, 0)), old: oldDeployments{former: []*appsv1.Deployment{newOwned(foo)}}}, 0,
			"DeploymentProgressing: .* the former Deployment \"web\" is kept; if"},
		"rule 8: strategy Recreate: a former Deployment that does not go is named with what holds it": {
			findings{deployment: waiting, old: oldDeployments{waitsFor: []*appsv1.Deployment{held}}}, 11 * time.Minute,
			"DeploymentStalled: .*; Deployment \"web\" has been terminating for longer than its progress deadline of 10m0s.* example.com/hold"},
		"rule 8: strategy Recreate: to delete the former Deployment, which the controller is about to do, is no way out": {
			findings{deployment: waiting, old: oldDeployments{former: []*appsv1.Deployment{recreated}, waitsFor: []*appsv1.Deployment{recreated}}}, 0,
			"DeploymentProgressing: Deployment \"next\" waits with 0 replicas until the former Deployment \"web\", whose strategy is Recreate, and its Pods are gone; until .* still serves$"},
		"rule 8: strategy Recreate: so it is while the Deployment controller has not seen the new Deployment": {
			findings{deployment: newOwned(moved, deploymentReplicas(ptr.To[int32](0))), old: oldDeployments{waitsFor: []*appsv1.Deployment{held}}}, 11 * time.Minute,
			"DeploymentStalled: Deployment \"next\" waits with 0 replicas"},
		"API: strategy Recreate: a new Deployment that is stalled does not just wait": {
			findings{deployment: newOwned(moved, deploymentReplicas(ptr.To[int32](0)), fixtures.Condition(appsv1.DeploymentProgressing, corev1.ConditionFalse, "ReplicaSetCreateError", "quota")),
				old: oldDeployments{waitsFor: []*appsv1.Deployment{held}}}, 0,
			"DeploymentStalled: the rollout of Deployment \"next\" is stalled: quota$"},
		"rule 11: without a refusal nothing is said about a quota": {
			findings{old: oldDeployments{former: []*appsv1.Deployment{web}}}, 0,
			"DeploymentProgressing: Deployment \"next\" does not exist yet; .* the former Deployment \"web\" still serves$"},
		"rule 8: a message that names many is shorter than the CRD allows": {
			findings{deployment: newOwned(moved), old: oldDeployments{former: many, unwritten: many}}, 0, "and 295 more .* and 295 more"},
	} {
		ready := readyCondition(moved, test.findings, testNow.Add(test.after))
		if told := ready.Reason + ": " + ready.Message; !regexp.MustCompile(test.want).MatchString(told) || len(told) > 4096 {
			t.Errorf("%s: %q, want %q", sentence, told, test.want)
		}
	}
}

// TestLongCycle is rule 8: a rotation of more than a hundred Foos is not broken, and the message
// says so; one of a hundred is, and the event says that this drops what ran.
func TestLongCycle(t *testing.T) {
	for others, want := range map[int]string{
		maxCycle - 1: `Foo "zz-foo-099" waits for that name in a cycle of renames; Deployment "d1" will not be a copy of it but the default one`,
		maxCycle:     "100 or more Foos wait for each other's names",
		maxCycle + 1: "100 or more Foos wait for each other's names",
	} {
		// The Foo of number i has the Deployment i and asks for the next one; the last one asks for the first.
		name := func(i int) string { return fmt.Sprint("d", i%(others+1)) }
		all := objects{newFoo(wants(name(1))), newOwned(newFoo(wants(name(0))), available)}
		for i := range others {
			foo := fooNamed(fmt.Sprintf("zz-foo-%03d", i+1))
			all = append(all, newFoo(foo, wants(name(i+2))), newOwned(newFoo(foo, wants(name(i+1))), available))
		}
		inCluster(t, func(f *fixture) {
			f.sync("")
			told := f.stored()
			for len(f.Events.Events) > 0 {
				told += "; " + <-f.Events.Events
			}
			if !strings.Contains(told, want) || others >= maxCycle == strings.Contains(told, "Deleted") {
				f.Errorf("rule 8: a cycle of %d: %s", others+1, told)
			}
		}, all...)
		// Without a former Deployment the first Foo is in no cycle.
		inCluster(t, func(f *fixture) {
			f.sync("")
			if told := f.stored(); strings.Contains(told, "wait for each other") {
				f.Errorf("rule 8: a Foo that has none of %d names: %s", others+1, told)
			}
		}, slices.Delete(all, 1, 2)...)
	}
}
