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

// What the controller makes of a Deployment that is a Foo's own: rules 1 to 4
// and 7.

func fooIsDeleted(t *testing.T) {
	s := newScene(t, "")
	s.create("gone")
	if foo := s.ready("gone"); len(foo.Finalizers) > 0 {
		t.Errorf("finalizers %v", foo.Finalizers)
	}
	mark := s.mark()
	s.kubectl("delete foo gone")
	s.awaitGone("gone")
	s.settle()
	s.noWrites(mark, "deployments", "gone")
	s.noWrites(mark, "foos", "gone")
	if lines := errorLines(s.controller.output()); len(lines) > 0 {
		t.Errorf("errors in the log: %q", lines)
	}
}

func foregroundDeletion(t *testing.T) {
	s := newScene(t, "")
	s.create("x", replicas(3))
	s.ready("x")
	// Someone else's finalizer keeps the Deployment in deletion for a while.
	s.updateDeployment("x", func(d *appsv1.Deployment) { d.Finalizers = append(d.Finalizers, "example.com/hold") })
	s.settle()
	mark := s.mark()
	deletion := start(t, shared.home, fmt.Sprintf("kubectl --namespace=%s delete foo x --cascade=foreground", s.namespace))
	s.awaitDeployment("x", "is in deletion", func(d *appsv1.Deployment) error {
		if d.DeletionTimestamp == nil {
			return errors.New("it is not")
		}
		return nil
	})
	// What would be repaired otherwise.
	s.kubectl("scale deployment x --replicas=5")
	s.settle()
	s.updateDeployment("x", func(d *appsv1.Deployment) { d.Finalizers = nil })
	if code := deletion.exited(); code != 0 {
		t.Errorf("kubectl delete: exit code %d: %s", code, deletion.output())
	}
	s.awaitGone("x")
	s.settle()
	s.awaitGone("x")
	s.noWrites(mark, "deployments", "x")
	s.noWrites(mark, "foos", "x")
}

func createdMeanwhile(t *testing.T) {
	g := newGate(t)
	s := newStage(t).behind(g.server.URL)
	s.startController("")
	arrived, release := g.hold(createsDeployment)
	foo := s.create("race")
	<-arrived
	foreign := s.createDeployment("race")
	release()
	message := s.notReady("race", v1alpha1.ReasonDeploymentNotOwned)
	mustContain(t, message, `Deployment "race" exists and has no controller`)
	s.oneEvent(foo, "ErrResourceExists")
	if now := s.deployment("race"); now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the foreign Deployment was written to: %+v", now.ObjectMeta)
	}
	// It was looked at, not tried again.
	if writes := s.writes(s.began); len(writes) < 2 || !slices.Equal(writes[:2], []string{"create deployments race", "update foos/status race"}) || slices.Contains(writes[2:], writes[0]) {
		t.Errorf("one try to create it is wanted, then the status: %v", writes)
	}
	if lines := errorLines(s.controller.output()); len(lines) > 0 {
		t.Errorf("errors in the log: %q", lines)
	}
}

func driftIsReverted(t *testing.T) {
	s := newScene(t, "")
	foo := s.create("drift", replicas(2), image("nginx:1.27"))
	s.ready("drift")

	mark := s.mark()
	s.kubectl("rollout restart deployment drift")
	s.updateDeployment("drift", func(d *appsv1.Deployment) {
		d.Labels["team"] = "blue"
		d.Annotations["example.com/note"] = "kept"
		pod := &d.Spec.Template.Spec
		pod.Containers[0].Env = []corev1.EnvVar{{Name: "MODE", Value: "kept"}}
		pod.Containers = append(pod.Containers, corev1.Container{Name: "sidecar", Image: "sidecar:1"})
	})
	s.ready("drift")
	s.settle()
	s.noWrites(mark, "deployments", "drift")
	before := s.deployment("drift")

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
		{"replicas from 5 to 2", func() { s.kubectl("scale deployment drift --replicas=5") }},
		{"image from nginx:other to nginx:1.27", func() { s.kubectl("set image deployment/drift nginx=nginx:other") }},
		{"label " + managedBy + ` from "" to "sample-controller"`, func() { s.kubectl("label deployment drift " + managedBy + "-") }},
		{"owner reference", func() {
			s.updateDeployment("drift", func(d *appsv1.Deployment) { d.OwnerReferences[0].BlockOwnerDeletion = nil })
		}},
	} {
		mark = s.mark()
		drift.change()
		s.eventually("an event tells: "+drift.event, func(context.Context) error {
			if !slices.ContainsFunc(s.events(foo, "Updated"), func(e corev1.Event) bool { return strings.HasSuffix(e.Message, drift.event) }) {
				return fmt.Errorf("events %v", s.events(foo, "Updated"))
			}
			return nil
		})
		s.awaitDeployment("drift", "is restored", restored)
		if repairs := s.accepted(mark, "patch deployments drift"); repairs != 1 {
			t.Errorf("%s: %d patches, want 1: %v", drift.event, repairs, s.writes(mark))
		}
	}

	s.ready("drift")
	after := s.deployment("drift")
	if !equality.Semantic.DeepEqual(before.Spec, after.Spec) || !equality.Semantic.DeepEqual(before.Labels, after.Labels) {
		t.Errorf("what others added did not stay:\nbefore %+v %+v\nafter  %+v %+v", before.Labels, before.Spec, after.Labels, after.Spec)
	}
	if after.Annotations["example.com/note"] != "kept" || after.Spec.Template.Annotations["kubectl.kubernetes.io/restartedAt"] == "" {
		t.Errorf("annotations %v, of the template %v", after.Annotations, after.Spec.Template.Annotations)
	}
}

func rolloutRestart(t *testing.T) {
	s := newScene(t, "")
	s.create("x", replicas(2))
	s.ready("x")
	s.settle()
	before := s.deployment("x")
	mark := s.mark()
	s.kubectl("rollout restart deployment x")
	s.kubectl("rollout status deployment x")
	if sets := strings.Fields(s.kubectl("get replicasets -l controller=x -o jsonpath='{.items[*].spec.replicas}'")); !slices.Contains(sets, "0") || !slices.Contains(sets, "2") {
		t.Errorf("the ReplicaSets want %v Pods, not 0 of the old and 2 of the new", sets)
	}
	// The rollout is behind the controller as well.
	s.settle()
	if foo := s.ready("x"); foo.Status.AvailableReplicas != 2 || foo.Status.Replicas != 2 {
		t.Errorf("status %+v", foo.Status)
	}
	const restartedAt = "kubectl.kubernetes.io/restartedAt"
	after := s.deployment("x")
	if after.Spec.Template.Annotations[restartedAt] == "" || after.Generation != before.Generation+1 {
		t.Errorf("generation %d became %d, with the annotations %v in the template", before.Generation, after.Generation, after.Spec.Template.Annotations)
	}
	delete(after.Spec.Template.Annotations, restartedAt)
	if !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		t.Errorf("more than that was changed:\nbefore %+v\nafter  %+v", before.Spec, after.Spec)
	}
	s.noWrites(mark, "deployments", "x")
}

// stockDeployment is what the stock sample makes for a Foo.
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
	s := newStage(t)
	foo := s.create("stock", replicas(2))
	_, err := s.deployments().Create(t.Context(), stockDeployment(foo, "nginx"), metav1.CreateOptions{})
	s.must(err)
	s.kubectl("rollout status deployment stock")
	before, pods := s.deployment("stock"), s.kubectl("get pods -o name --sort-by=.metadata.name")

	s.startController("")
	s.ready("stock")
	s.settle()
	after := s.deployment("stock")
	if after.Labels[managedBy] != "sample-controller" {
		t.Errorf("labels %v", after.Labels)
	}
	if after.Generation != before.Generation || !equality.Semantic.DeepEqual(before.Spec, after.Spec) {
		t.Errorf("the spec was changed:\nbefore %+v\nafter  %+v", before.Spec, after.Spec)
	}
	if now := s.kubectl("get pods -o name --sort-by=.metadata.name -l controller=stock"); now != pods {
		t.Errorf("the Pods were %q and are %q", pods, now)
	}
}

func noContainerForImage(t *testing.T) {
	s := newStage(t)
	foo := s.create("other", image("nginx:1.27"))
	_, err := s.deployments().Create(t.Context(), stockDeployment(foo, "web"), metav1.CreateOptions{})
	s.must(err)
	s.startController("")
	mustContain(t, s.notReady("other", v1alpha1.ReasonInvalidSpec), "spec.image is set", `has no container "nginx"`)
	s.oneEvent(foo, v1alpha1.ReasonInvalidSpec)
	if containers := s.deployment("other").Spec.Template.Spec.Containers; len(containers) != 1 || containers[0].Image != "nginx:by-hand" {
		t.Errorf("containers %+v", containers)
	}
	s.update("other", image(""))
	s.ready("other")
}

func deploymentIsDeleted(t *testing.T) {
	s := newScene(t, "")
	s.create("x")
	s.ready("x")
	s.updateDeployment("x", func(d *appsv1.Deployment) { d.Finalizers = append(d.Finalizers, "example.com/hold") })
	first := s.deployment("x")
	s.settle()
	mark := s.mark()
	s.kubectl("delete deployment x --wait=false")
	mustContain(t, s.notReady("x", v1alpha1.ReasonDeploymentProgressing), "is being deleted")
	s.kubectl("scale deployment x --replicas=4")
	s.settle()
	s.noWrites(mark, "deployments", "x")

	s.updateDeployment("x", func(d *appsv1.Deployment) { d.Finalizers = nil })
	s.eventually("there is a new Deployment", func(ctx context.Context) error {
		d, err := s.deployments().Get(ctx, "x", metav1.GetOptions{})
		if err == nil && d.UID == first.UID {
			err = errors.New("it is still the old one")
		}
		return err
	})
	s.ready("x")
	if creates := s.accepted(mark, "create deployments x"); creates != 1 {
		t.Errorf("%d creations, want 1: %v", creates, s.writes(mark))
	}
}

func longName(t *testing.T) {
	s := newScene(t, "")
	name := strings.Repeat("long-", 40)[:199] + "x"
	s.create(name, deploymentName("short"), replicas(2))
	// Another one that is the same in its first 63 characters.
	other := name[:199] + "y"
	s.create(other, deploymentName("other"))
	foo := s.ready(name)
	s.ready(other)
	label := s.deployment("short").Spec.Template.Labels["controller"]
	if !regexp.MustCompile(`^long-long-[a-z0-9-]{0,53}$`).MatchString(label) {
		t.Errorf("label %q", label)
	}
	if s.deployment("other").Spec.Template.Labels["controller"] == label {
		t.Errorf("two Foos have the label %q", label)
	}
	if foo.Status.AvailableReplicas != 2 || foo.Status.Selector != "app=nginx,controller="+label {
		t.Errorf("status %+v", foo.Status)
	}
	s.kubectl("delete foo " + name)
	s.awaitGone("short")
	if _, err := s.deployments().Get(t.Context(), "other", metav1.GetOptions{}); apierrors.IsNotFound(err) {
		t.Error("the other Foo's Deployment went as well")
	}
}

// controllerRef is the owner reference that makes the Foo a controller.
func controllerRef(foo *v1alpha1.Foo) metav1.OwnerReference {
	return *metav1.NewControllerRef(foo, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Foo"))
}
