//go:build e2e

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

package e2e

import (
	"context"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

const managedBy = "app.kubernetes.io/managed-by"

// Rules 1 to 4 and 7: the Foo's own Deployment.

func fooIsDeleted(t *testing.T) {
	e := startEnv(t, "")
	e.create("gone")
	if foo := e.awaitReady("gone"); len(foo.Finalizers) > 0 {
		t.Errorf("finalizers %v", foo.Finalizers)
	}
	mark := e.mark()
	e.kubectl("delete foo gone")
	e.awaitGone("gone")
	e.settle()
	e.noWrites(mark, "deployments", "gone")
	e.noWrites(mark, "foos", "gone")
	e.controller.requireNoErrors()
}

func foregroundDeletion(t *testing.T) {
	e := startEnv(t, "")
	e.create("x", replicas(3))
	e.awaitReady("x")
	unblock := e.blockDeletion()
	e.settle()
	mark := e.mark()
	deletion := start(t, shared.home, fmt.Sprintf("kubectl --namespace=%s delete foo x --cascade=foreground", e.namespace))
	e.awaitDeployment("x", "is terminating", func(d *appsv1.Deployment) error {
		if d.DeletionTimestamp == nil {
			return errors.New("it has no deletionTimestamp")
		}
		return nil
	})
	// The controller must not revert this change of a terminating Deployment.
	e.kubectl("scale deployment x --replicas=5")
	e.settle()
	unblock()
	if code := deletion.awaitExit(); code != 0 {
		t.Errorf("kubectl delete: exit code %d: %s", code, deletion.output())
	}
	e.awaitGone("x")
	e.settle()
	e.awaitGone("x")
	e.noWrites(mark, "deployments", "x")
	e.noWrites(mark, "foos", "x")
}

func deploymentExists(t *testing.T) {
	e, proxy := newProxiedEnv(t)
	e.startController("")
	arrived, resume := proxy.hold(createsDeployment)
	foo := e.create("race")
	<-arrived
	foreign := e.createDeployment("race")
	resume()
	message := e.awaitNotReady("race", v1alpha1.ReasonDeploymentNotOwned)
	mustContain(t, message, `Deployment "race" exists and has no controller`)
	e.awaitOneEvent(foo, "ErrResourceExists")
	if now := e.deployment("race"); now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the foreign Deployment was written to: %+v", now.ObjectMeta)
	}
	// The controller reads the Deployment after AlreadyExists and does not try again.
	if writes := e.writes(e.startMark); len(writes) < 2 || !slices.Equal(writes[:2], []string{"create deployments race", "patch foos/status race"}) || slices.Contains(writes[2:], writes[0]) {
		t.Errorf("want one create, then one status update, got %v", writes)
	}
	e.controller.requireNoErrors()
}

func driftIsReverted(t *testing.T) {
	e := startEnv(t, "")
	foo := e.create("drift", replicas(2), withImage("nginx:1.27"))
	e.awaitReady("drift")

	mark := e.mark()
	e.kubectl("rollout restart deployment drift")
	e.updateDeployment("drift", func(d *appsv1.Deployment) {
		d.Labels["team"] = "blue"
		d.Annotations["example.com/note"] = "kept"
		pod := &d.Spec.Template.Spec
		pod.Containers[0].Env = []corev1.EnvVar{{Name: "MODE", Value: "kept"}}
		pod.Containers = append(pod.Containers, corev1.Container{Name: "sidecar", Image: "sidecar:1"})
	})
	e.awaitReady("drift")
	e.settle()
	e.noWrites(mark, "deployments", "drift")
	before := e.deployment("drift")

	restored := func(d *appsv1.Deployment) error {
		if *d.Spec.Replicas != 2 || d.Spec.Template.Spec.Containers[0].Image != "nginx:1.27" || d.Labels[managedBy] != "sample-controller" || !*metav1.GetControllerOf(d).BlockOwnerDeletion {
			return fmt.Errorf("spec %+v, metadata %+v", d.Spec, d.ObjectMeta)
		}
		return nil
	}
	for _, drift := range []struct {
		event  string
		change func()
	}{
		{"replicas from 5 to 2", func() { e.kubectl("scale deployment drift --replicas=5") }},
		{"image from nginx:other to nginx:1.27", func() { e.kubectl("set image deployment/drift nginx=nginx:other") }},
		{"label " + managedBy + ` from none to "sample-controller"`, func() { e.kubectl("label deployment drift " + managedBy + "-") }},
		{"owner reference", func() {
			e.updateDeployment("drift", func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil })
		}},
	} {
		mark = e.mark()
		drift.change()
		e.eventually("event: "+drift.event, func(context.Context) error {
			if !slices.ContainsFunc(e.events(foo, "Updated"), func(e corev1.Event) bool { return strings.HasSuffix(e.Message, drift.event) }) {
				return fmt.Errorf("events %v", e.events(foo, "Updated"))
			}
			return nil
		})
		e.awaitDeployment("drift", "is restored", restored)
		if repairs := e.accepted(mark, "patch deployments drift"); len(repairs) != 1 {
			t.Errorf("%s: %d patches, want 1: %v", drift.event, len(repairs), e.writes(mark))
		}
	}

	e.awaitReady("drift")
	after := e.deployment("drift")
	if !equality.Semantic.DeepEqual(before.Spec, after.Spec) || !equality.Semantic.DeepEqual(before.Labels, after.Labels) {
		t.Errorf("the controller changed what it does not own:\nbefore %+v %+v\nafter  %+v %+v", before.Labels, before.Spec, after.Labels, after.Spec)
	}
	if after.Annotations["example.com/note"] != "kept" || after.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] == "" {
		t.Errorf("annotations %v, of the template %v", after.Annotations, after.Spec.Template.Annotations)
	}
}

func rolloutRestart(t *testing.T) {
	e := startEnv(t, "")
	e.create("x", replicas(2))
	e.awaitReady("x")
	e.settle()
	before := e.deployment("x")
	mark := e.mark()
	e.kubectl("rollout restart deployment x")
	e.kubectl("rollout status deployment x")
	if sets := strings.Fields(e.kubectl("get replicasets -l controller=x -o jsonpath='{.items[*].spec.replicas}'")); !slices.Contains(sets, "0") || !slices.Contains(sets, "2") {
		t.Errorf("the ReplicaSets want %v Pods, not 0 of the old and 2 of the new", sets)
	}
	// The controller has seen the whole rollout too.
	e.settle()
	if foo := e.awaitReady("x"); foo.Status.AvailableReplicas != 2 || foo.Status.Replicas != 2 {
		t.Errorf("status %+v", foo.Status)
	}
	const restartedAt = "kubectl.kubernetes.io/restartedAt"
	after := e.deployment("x")
	if after.Spec.Template.Annotations[restartedAt] == "" || after.Generation != before.Generation+1 {
		t.Errorf("generation %d became %d, with the annotations %v in the template", before.Generation, after.Generation, after.Spec.Template.Annotations)
	}
	delete(after.Spec.Template.Annotations, restartedAt)
	if !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		t.Errorf("the restart changed more than the annotation:\nbefore %+v\nafter  %+v", before.Spec, after.Spec)
	}
	e.noWrites(mark, "deployments", "x")
}

// stockDeployment returns the Deployment that the stock sample creates for the Foo.
func stockDeployment(foo *v1alpha1.Foo, container string) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": foo.Name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name:            foo.Spec.DeploymentName,
			OwnerReferences: []metav1.OwnerReference{controllerRef(foo)},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: foo.Spec.Replicas,
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: container, Image: "nginx:by-hand"}}},
			},
		},
	}
}

func dropIn(t *testing.T) {
	e := newEnv(t)
	foo := e.create("stock", replicas(2))
	createObject(e, e.deployments(), stockDeployment(foo, "nginx"))
	e.kubectl("rollout status deployment stock")
	before, pods := e.deployment("stock"), e.kubectl("get pods -o name --sort-by=.metadata.name")

	e.startController("")
	e.awaitReady("stock")
	e.settle()
	after := e.deployment("stock")
	if after.Labels[managedBy] != "sample-controller" {
		t.Errorf("labels %v", after.Labels)
	}
	if after.Generation != before.Generation || !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		t.Errorf("the spec was changed:\nbefore %+v\nafter  %+v", before.Spec, after.Spec)
	}
	if now := e.kubectl("get pods -o name --sort-by=.metadata.name -l controller=stock"); now != pods {
		t.Errorf("the Pods were %q and are %q", pods, now)
	}
}

func labelOfAnotherTool(t *testing.T) {
	e := startEnv(t, "")
	e.create("x")
	e.awaitReady("x")
	mark := e.mark()
	e.kubectl("label --overwrite deployment x " + managedBy + "=Helm")
	e.settle()
	e.noWrites(mark, "deployments", "x")
	if got := e.deployment("x").Labels[managedBy]; got != "Helm" {
		t.Errorf("the label is %q", got)
	}
}

func noContainerForImage(t *testing.T) {
	e := newEnv(t)
	foo := e.create("other", withImage("nginx:1.27"))
	createObject(e, e.deployments(), stockDeployment(foo, "web"))
	e.startController("")
	mustContain(t, e.awaitNotReady("other", v1alpha1.ReasonInvalidSpec), "spec.image is set", `has no container "nginx"`)
	e.awaitOneEvent(foo, v1alpha1.ReasonInvalidSpec)
	if containers := e.deployment("other").Spec.Template.Spec.Containers; len(containers) != 1 || containers[0].Image != "nginx:by-hand" {
		t.Errorf("containers %+v", containers)
	}
	e.update("other", withImage(""))
	e.awaitReady("other")
}

func deploymentIsDeleted(t *testing.T) {
	e := startEnv(t, "")
	e.create("x")
	e.awaitReady("x")
	unblock := e.blockDeletion()
	first := e.deployment("x")
	e.settle()
	mark := e.mark()
	e.kubectl("delete deployment x --wait=false")
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentProgressing), "is being deleted")
	e.kubectl("scale deployment x --replicas=4")
	e.settle()
	e.noWrites(mark, "deployments", "x")

	unblock()
	e.awaitDeployment("x", "is a new one", func(d *appsv1.Deployment) error {
		if d.UID == first.UID {
			return errors.New("it is the old one")
		}
		return nil
	})
	e.awaitReady("x")
	if creates := e.accepted(mark, "create deployments x"); len(creates) != 1 {
		t.Errorf("%d creates, want 1: %v", len(creates), e.writes(mark))
	}
}

func longName(t *testing.T) {
	e := startEnv(t, "")
	name := strings.Repeat("long-", 40)[:199] + "x"
	e.create(name, deploymentName("short"), replicas(2))
	// The names of both Foos have the same first 63 characters.
	other := name[:199] + "y"
	e.create(other, deploymentName("other"))
	foo := e.awaitReady(name)
	e.awaitReady(other)
	label := e.deployment("short").Spec.Template.Labels["controller"]
	if !regexp.MustCompile(`^long-long-[a-z0-9-]{0,53}$`).MatchString(label) {
		t.Errorf("label %q", label)
	}
	if e.deployment("other").Spec.Template.Labels["controller"] == label {
		t.Errorf("two Foos have the label %q", label)
	}
	if foo.Status.AvailableReplicas != 2 || foo.Status.Selector != "app=nginx,controller="+label {
		t.Errorf("status %+v", foo.Status)
	}
	e.kubectl("delete foo " + name)
	e.awaitGone("short")
	if _, err := e.deployments().Get(t.Context(), "other", metav1.GetOptions{}); apierrors.IsNotFound(err) {
		t.Error("the other Foo's Deployment was deleted too")
	}
}

// controllerRef returns the owner reference of an object that the Foo controls.
func controllerRef(foo *v1alpha1.Foo) metav1.OwnerReference {
	return *metav1.NewControllerRef(foo, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Foo"))
}
