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
	"errors"
	"fmt"
	"slices"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Whose a Deployment is, and what happens when two want it: rules 5, 6 and 8 to
// 10. No controller here resyncs, so that a missed wake stays missed.

// hold keeps the Deployment in deletion until release.
func (s *scene) hold(name string) (release func()) {
	s.Helper()
	s.updateDeployment(name, func(d *appsv1.Deployment) { d.Finalizers = append(d.Finalizers, "example.com/hold") })
	return func() {
		s.Helper()
		s.updateDeployment(name, func(d *appsv1.Deployment) { d.Finalizers = nil })
	}
}

func foreignDeployment(t *testing.T) {
	s := newScene(t, "")
	owner, err := shared.kube.CoreV1().ConfigMaps(s.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	s.must(err)
	byOther := *metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	for _, foreign := range []struct {
		name, message string
		owners        []metav1.OwnerReference
	}{
		{"nobodys", `Deployment "nobodys" exists and has no controller`, nil},
		{"anothers", `Deployment "anothers" is controlled by ConfigMap "owner"`, []metav1.OwnerReference{byOther}},
	} {
		deployment := s.createDeployment(foreign.name, foreign.owners...)
		foo := s.create("wants-"+foreign.name, deploymentName(foreign.name), replicas(3), image("nginx:wanted"))
		mustContain(t, s.notReady(foo.Name, v1alpha1.ReasonDeploymentNotOwned), foreign.message)
		mustContain(t, s.oneEvent(foo, "ErrResourceExists"), foreign.message)
		if status := s.foo(foo.Name).Status; status.Replicas != 0 || status.AvailableReplicas != 0 || status.Selector != "" {
			t.Errorf("the status tells of a Deployment that is not the Foo's: %+v", status)
		}
		s.settle()
		if now := s.deployment(foreign.name); now.ResourceVersion != deployment.ResourceVersion {
			t.Errorf("Deployment %s was changed:\nfrom %+v\nto   %+v", foreign.name, deployment, now)
		}
		// More occasions to do the wrong thing, or to tell it again.
		s.kubectl("label foo " + foo.Name + " a=b")
		s.kubectl("scale deployment " + foreign.name + " --replicas=2")
		s.settle()
		s.noWrites(s.began, "deployments", foreign.name)
		s.oneEvent(foo, "ErrResourceExists")

		s.kubectl("delete deployment " + foreign.name)
		s.ready(foo.Name)
		if d := s.deployment(foreign.name); !metav1.IsControlledBy(d, foo) || *d.Spec.Replicas != 3 {
			t.Errorf("Deployment %s was not made anew: %+v", foreign.name, d)
		}
	}
}

func ownerButNotController(t *testing.T) {
	s := newScene(t, "")
	foo := s.create("x", deploymentName("former"))
	s.ready("x")
	ref := controllerRef(foo)
	ref.Controller = nil
	before := s.createDeployment("x", ref)

	s.update("x", deploymentName("x"))
	mustContain(t, s.notReady("x", v1alpha1.ReasonDeploymentNotOwned), "lists this Foo as an owner but not as its controller", "set controller: true")
	s.oneEvent(foo, "ErrResourceExists")
	if now := s.deployment("x"); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("the Deployment was written to: %+v", now)
	}
	// As the message says.
	s.updateDeployment("x", func(d *appsv1.Deployment) { d.OwnerReferences[0].Controller = ptr.To(true) })
	s.ready("x")
	s.awaitGone("former")
}

func predecessor(t *testing.T) {
	s := newScene(t, "")
	s.create("x")
	s.ready("x")
	release := s.hold("x")
	first := s.deployment("x")
	s.kubectl("delete foo x")
	foo := s.create("x")
	mustContain(t, s.notReady("x", v1alpha1.ReasonDeploymentNotOwned), "belongs to an earlier Foo of this name")
	release()
	s.ready("x")
	if d := s.deployment("x"); d.UID == first.UID || !metav1.IsControlledBy(d, foo) {
		t.Errorf("this is the predecessor's: %+v", d.ObjectMeta)
	}
}

func renamed(t *testing.T) {
	s := newScene(t, "")
	foo := s.create("x", deploymentName("old"), replicas(2))
	s.ready("x")
	mark := s.mark()
	s.update("x", deploymentName("new"))
	s.ready("x")
	s.awaitGone("old")
	mustContain(t, s.oneEvent(foo, "Deleted"), `Deleted Deployment "old"`)
	s.settle()
	writes := s.writes(mark)
	created, deleted := slices.Index(writes, "create deployments new"), slices.Index(writes, "delete deployments old")
	if created < 0 || deleted < created {
		t.Errorf("wanted is a creation, then a deletion: %v", writes)
	}
	if names := s.deploymentsOf(foo); !slices.Equal(names, []string{"new"}) {
		t.Errorf("the Foo's Deployments are %v", names)
	}
}

func renamedToTaken(t *testing.T) {
	s := newScene(t, "")
	s.create("x", deploymentName("old"))
	s.ready("x")
	s.createDeployment("taken")
	before := s.deployment("old")
	s.update("x", deploymentName("taken"))
	s.notReady("x", v1alpha1.ReasonDeploymentNotOwned)
	s.settle()
	if now := s.deployment("old"); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("the former Deployment was written to: %+v", now.ObjectMeta)
	}
	s.noWrites(s.began, "deployments", "taken")
	s.kubectl("delete deployment taken")
	s.ready("x")
	s.awaitGone("old")
}

func rotation(t *testing.T, count int) {
	s := newScene(t, "")
	name := func(i int) string { return fmt.Sprintf("n%d", i%count) }
	for i := range count {
		s.create(name(i))
	}
	for i := range count {
		s.ready(name(i))
	}
	for i := range count {
		s.update(name(i), deploymentName(name(i+1)))
	}
	for i := range count {
		foo := s.ready(name(i))
		if names := s.deploymentsOf(foo); !slices.Equal(names, []string{name(i + 1)}) {
			t.Errorf("the Deployments of Foo %s are %v, not %s alone", foo.Name, names, name(i+1))
		}
	}
}

func twoAskForOne(t *testing.T) {
	s := newScene(t, "")
	s.create("first", deploymentName("shared"))
	s.ready("first")
	second := s.create("second", deploymentName("shared"), replicas(2))
	mustContain(t, s.notReady("second", v1alpha1.ReasonDeploymentNotOwned), `is controlled by Foo "first"`)
	s.oneEvent(second, "ErrResourceExists")
	s.ready("first")

	// The owner moves away: the second takes over, and then blocks a third.
	s.update("first", deploymentName("elsewhere"))
	s.ready("first")
	s.ready("second")
	if d := s.deployment("shared"); !metav1.IsControlledBy(d, second) || *d.Spec.Replicas != 2 {
		t.Errorf("Deployment shared is %+v", d)
	}
	third := s.create("third", deploymentName("shared"))
	s.notReady("third", v1alpha1.ReasonDeploymentNotOwned)
	s.kubectl("delete foo second")
	s.ready("third")
	s.awaitDeployment("shared", "belongs to the third", func(d *appsv1.Deployment) error {
		if !metav1.IsControlledBy(d, third) {
			return errors.New("it does not")
		}
		return nil
	})
}

func orphan(t *testing.T) {
	s := newScene(t, "")
	s.create("x")
	s.ready("x")
	s.kubectl("delete foo x --cascade=orphan")
	s.awaitDeployment("x", "has lost its owner", func(d *appsv1.Deployment) error {
		if len(d.OwnerReferences) > 0 {
			return fmt.Errorf("owners %v", d.OwnerReferences)
		}
		return nil
	})
	mark := s.mark()
	foo := s.create("x", replicas(4))
	mustContain(t, s.notReady("x", v1alpha1.ReasonDeploymentNotOwned), "has no controller")
	s.oneEvent(foo, "ErrResourceExists")
	s.settle()
	s.noWrites(mark, "deployments", "x")
}
