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
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Rules 5, 6, 9 and 10: owners of Deployments and claimants of names. The controllers
// here do not resync, so that a missed event fails the test.

func foreignDeployment(t *testing.T) {
	e := startEnv(t, "")
	owner, err := shared.kube.CoreV1().ConfigMaps(e.namespace).Create(t.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: "owner"}}, metav1.CreateOptions{})
	e.must(err)
	byOther := *metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))
	for _, foreign := range []struct {
		name, message string
		owners        []metav1.OwnerReference
	}{
		{"uncontrolled", `Deployment "uncontrolled" exists and has no controller`, nil},
		{"controlled", `Deployment "controlled" is controlled by ConfigMap "owner"`, []metav1.OwnerReference{byOther}},
	} {
		deployment := e.createDeployment(foreign.name, foreign.owners...)
		foo := e.create("wants-"+foreign.name, deploymentName(foreign.name), replicas(3), withImage("nginx:wanted"))
		mustContain(t, e.awaitNotReady(foo.Name, v1alpha1.ReasonDeploymentNotOwned), foreign.message)
		mustContain(t, e.awaitOneEvent(foo, "ErrResourceExists"), foreign.message)
		if status := e.foo(foo.Name).Status; status.Replicas != 0 || status.AvailableReplicas != 0 || status.Selector != "" {
			t.Errorf("the status is about a foreign Deployment: %+v", status)
		}
		e.settle()
		if now := e.deployment(foreign.name); now.ResourceVersion != deployment.ResourceVersion {
			t.Errorf("Deployment %s was changed:\nfrom %+v\nto   %+v", foreign.name, deployment, now)
		}
		// These events must cause neither a write nor a second event.
		e.kubectl("label foo " + foo.Name + " a=b")
		e.kubectl("scale deployment " + foreign.name + " --replicas=2")
		e.settle()
		e.noWrites(e.startMark, "deployments", foreign.name)
		e.awaitOneEvent(foo, "ErrResourceExists")

		e.kubectl("delete deployment " + foreign.name)
		e.awaitReady(foo.Name)
		if d := e.deployment(foreign.name); !metav1.IsControlledBy(d, foo) || *d.Spec.Replicas != 3 {
			t.Errorf("Deployment %s was not created again: %+v", foreign.name, d)
		}
	}
}

func ownerButNotController(t *testing.T) {
	e := startEnv(t, "")
	foo := e.create("x", deploymentName("old"))
	e.awaitReady("x")
	ref := controllerRef(foo)
	ref.Controller = nil
	before := e.createDeployment("x", ref)

	e.update("x", deploymentName("x"))
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentNotOwned), "lists this Foo as an owner but not as its controller", "set controller: true")
	e.awaitOneEvent(foo, "ErrResourceExists")
	if now := e.deployment("x"); now.ResourceVersion != before.ResourceVersion {
		t.Errorf("the Deployment was written to: %+v", now)
	}
	// The remedy in the message works.
	e.updateDeployment("x", func(d *appsv1.Deployment) { d.OwnerReferences[0].Controller = ptr.To(true) })
	e.awaitReady("x")
	e.awaitGone("old")
}

func previousFoo(t *testing.T) {
	e := startEnv(t, "")
	e.create("x")
	e.awaitReady("x")
	unblock := e.blockDeletion()
	first := e.deployment("x")
	e.kubectl("delete foo x")
	foo := e.create("x")
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentNotOwned), "belongs to an earlier Foo of this name")
	unblock()
	e.awaitReady("x")
	if d := e.deployment("x"); d.UID == first.UID || !metav1.IsControlledBy(d, foo) {
		t.Errorf("this is the previous Foo's Deployment: %+v", d.ObjectMeta)
	}
}

func twoClaimants(t *testing.T) {
	e := startEnv(t, "")
	e.create("first", deploymentName("shared"))
	e.awaitReady("first")
	second := e.create("second", deploymentName("shared"), replicas(2))
	mustContain(t, e.awaitNotReady("second", v1alpha1.ReasonDeploymentNotOwned), `is controlled by Foo "first"`)
	e.awaitOneEvent(second, "ErrResourceExists")
	e.awaitReady("first")

	// When the current owner is renamed, the second Foo gets the name and blocks a third one.
	e.update("first", deploymentName("elsewhere"))
	e.awaitReady("first")
	e.awaitReady("second")
	if d := e.deployment("shared"); !metav1.IsControlledBy(d, second) || *d.Spec.Replicas != 2 {
		t.Errorf("Deployment shared is %+v", d)
	}
	third := e.create("third", deploymentName("shared"))
	e.awaitNotReady("third", v1alpha1.ReasonDeploymentNotOwned)
	e.kubectl("delete foo second")
	e.awaitReady("third")
	e.awaitDeployment("shared", "is controlled by the third Foo", func(d *appsv1.Deployment) error {
		if !metav1.IsControlledBy(d, third) {
			return fmt.Errorf("owners %+v", d.OwnerReferences)
		}
		return nil
	})
}

func orphan(t *testing.T) {
	e := startEnv(t, "")
	e.create("x")
	e.awaitReady("x")
	e.kubectl("delete foo x --cascade=orphan")
	e.awaitDeployment("x", "has lost its owner", func(d *appsv1.Deployment) error {
		if len(d.OwnerReferences) > 0 {
			return fmt.Errorf("owners %v", d.OwnerReferences)
		}
		return nil
	})
	mark := e.mark()
	foo := e.create("x", replicas(4))
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentNotOwned), "has no controller")
	e.awaitOneEvent(foo, "ErrResourceExists")
	e.settle()
	e.noWrites(mark, "deployments", "x")
}

func adoption(t *testing.T) {
	e := startEnv(t, "")
	e.create("x", replicas(2))
	e.awaitReady("x")
	before := e.deployment("x")
	e.kubectl("delete foo x --cascade=orphan")
	foo := e.create("x", replicas(1))
	command := fmt.Sprintf("kubectl annotate deployment x %s=x -n %s", v1alpha1.AdoptByAnnotation, e.namespace)
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentNotOwned), "has no controller; have it adopted with "+command+",")

	// The annotation of another Foo's name has no effect.
	e.kubectl("annotate deployment x " + v1alpha1.AdoptByAnnotation + "=other")
	e.settle()
	if owners := e.deployment("x").OwnerReferences; len(owners) > 0 {
		t.Fatalf("owners %+v", owners)
	}
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentNotOwned), command)

	sh(t, command+" --overwrite")
	e.awaitReady("x")
	e.awaitOneEvent(foo, "Adopted")
	after := e.deployment("x")
	if !metav1.IsControlledBy(after, foo) || len(after.OwnerReferences) != 1 || *after.Spec.Replicas != 1 || after.UID != before.UID {
		t.Errorf("the Deployment became %+v", after)
	}
	if asks, ok := after.Annotations[v1alpha1.AdoptByAnnotation]; ok {
		t.Errorf("the annotation %q is left", asks)
	}
	if !equality.Semantic.DeepEqual(before.Spec.Template, after.Spec.Template) {
		t.Errorf("the Pod template went from %+v to %+v", before.Spec.Template, after.Spec.Template)
	}
}
