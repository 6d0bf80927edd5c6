//go:build faults

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

package faults

import (
	"fmt"
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// extendFoo adds what Foos have beyond other kinds: their Deployments can be renamed and
// adopted, and admission changes some.
func extendFoo(k *kindSuite) {
	k.every, k.everyWatch = 10, 20
	k.scenarios = append(k.scenarios, fooScenarios...)
	k.violations = (*history).fooViolations
	k.conforms = func(dependent, owner *unstructured.Unstructured) bool {
		deployment, foo := &appsv1.Deployment{}, &v1alpha1.Foo{}
		convert(dependent, deployment)
		convert(owner, foo)
		return fooConforms(deployment, foo)
	}
}

// fooOwnerKind describes Foos to the checker.
func fooOwnerKind() ownerKind[*v1alpha1.Foo, *appsv1.Deployment] {
	return ownerKind[*v1alpha1.Foo, *appsv1.Deployment]{
		kind: "Foo", group: "samplecontroller.k8s.io", resource: foos, ownedKind: "Deployment", ownedResource: deployments,
		ownedName: func(foo *v1alpha1.Foo) string { return foo.Spec.DeploymentName },
		conforms:  fooConforms,
		settled:   rolledOut,
		status: func(foo *v1alpha1.Foo) (int64, []metav1.Condition) {
			return foo.Status.ObservedGeneration, foo.Status.Conditions
		},
		progress: v1alpha1.ReasonDeploymentProgressing,
		// While a Deployment waits for the end of a former one with the strategy Recreate.
		waits: func(deployment *appsv1.Deployment, ready *metav1.Condition) bool {
			return ptr.Deref(deployment.Spec.Replicas, 1) == 0 && strings.Contains(ready.Message, "waits with 0 replicas")
		},
		adopts:            isAdoption,
		checkDeletion:     checkAvailability,
		deletionJustified: fooDeletionJustified,
	}
}

// fooViolations returns the violations of S1 to S4, given the requests of each
// controller. The caller holds the lock.
func (h *history) fooViolations(records ...[]request) []string {
	return ownedViolations(h, h.foos, h.deployments, fooOwnerKind(), records...)
}

// fooDeletionJustified reports whether a live read of the Foo showed that it no longer asks
// for the Deployment. No controller can foresee that a user changes the Foo between that
// read and the deletion.
func fooDeletionJustified(deletion *request, owner *metav1.OwnerReference, before []request) bool {
	return slices.ContainsFunc(liveReads(deletion, before), func(r *request) bool {
		return r.readFoo != nil && r.readFoo.UID == owner.UID && r.readFoo.DeletionTimestamp == nil && r.readFoo.Spec.DeploymentName != deletion.name
	})
}

// maxReadAge bounds the time between the live read and the deletion of one sync on a busy
// machine.
const maxReadAge = 2 * time.Second

// fooConforms reports whether the Deployment has the replicas and the image of the Foo's
// spec, as admission settles them.
func fooConforms(deployment *appsv1.Deployment, foo *v1alpha1.Foo) bool {
	replicas, wanted := ptr.Deref(foo.Spec.Replicas, 1), foo.Spec.Image
	if strings.HasPrefix(deployment.Name, admittedPrefix) {
		replicas = max(replicas, admittedReplicas)
		if wanted != "" {
			wanted = admittedRegistry + wanted
		}
	}
	container := findContainer(deployment, "nginx")
	return ptr.Deref(deployment.Spec.Replicas, 1) == replicas && container != nil && (wanted == "" || container.Image == wanted)
}

// fooScenarios are those that no other kind has: renames and adoption.
var fooScenarios = []*scenario{
	{
		name:    "rule 8: a Foo is renamed",
		prepare: func(r *run) { r.createFoo("x", "old", 1).awaitReady("x") },
		operate: func(r *run) { r.rename("x", "new") },
		want:    []string{"Foo x: ready", "Deployment new of x: 1"},
	},
	{
		name:    "rule 8: a Foo is renamed, and the rollout of the new Deployment never completes",
		prepare: func(r *run) { r.createFoo("x", "old", 1).awaitReady("x") },
		operate: func(r *run) { r.rename("x", heldPrefix+"new") },
		want:    []string{"Foo x: DeploymentProgressing", "Deployment held-new of x: 0", "Deployment old of x: 1"},
	},
	{
		name:    "rule 8: a rename is rolled back half-way",
		prepare: func(r *run) { r.createFoo("x", "old", 1).awaitReady("x") },
		operate: func(r *run) { r.rename("x", heldPrefix+"new").awaitOwned(heldPrefix+"new").rename("x", "old") },
		want:    []string{"Foo x: ready", "Deployment old of x: 1"},
	},
	{
		name: "rule 8: a Foo is renamed whose Deployment has the strategy Recreate",
		prepare: func(r *run) {
			r.createFoo("x", "old", 1).awaitReady("x").editOwned("old", `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`)
		},
		operate: func(r *run) { r.rename("x", "new") },
		want:    []string{"Foo x: ready", "Deployment new of x: 1"},
	},
	{
		name: "rules 4 and 8: a Foo is renamed, and admission changes the new Deployment",
		prepare: func(r *run) {
			r.createFoo("x", "old", 1).awaitReady("x").patch("x", `{"spec":{"image":"nginx:1"}}`).awaitReady("x")
		},
		operate: func(r *run) { r.rename("x", admittedPrefix+"new") },
		want:    []string{"Foo x: ready", "Deployment admitted-new of x: 2"},
	},
	{
		name:    "rules 8 and 9: a Foo is renamed to a taken name, which its owner then gives up",
		prepare: func(r *run) { r.createFoo("x", "x", 1).createFoo("y", "y", 1).awaitReady("x").awaitReady("y") },
		operate: func(r *run) { r.rename("x", "y").awaitNotOwned("x").rename("y", "z") },
		want: []string{
			"Foo x: ready", "Foo y: ready",
			"Deployment y of x: 1", "Deployment z of y: 1",
		},
	},
	{
		name:    "rule 8: two Foos swap names",
		prepare: func(r *run) { r.createFoo("x", "x", 1).createFoo("y", "y", 1).awaitReady("x").awaitReady("y") },
		operate: func(r *run) { r.rename("x", "y").awaitNotOwned("x").rename("y", "x") },
		want: []string{
			"Foo x: ready", "Foo y: ready",
			"Deployment x of y: 1", "Deployment y of x: 1",
		},
	},
	{
		name: "rule 8: three Foos rotate names",
		prepare: func(r *run) {
			r.createFoo("x", "x", 1).createFoo("y", "y", 1).createFoo("z", "z", 1).awaitReady("x").awaitReady("y").awaitReady("z")
		},
		operate: func(r *run) {
			r.rename("x", "y").awaitNotOwned("x").rename("y", "z").awaitNotOwned("y").rename("z", "x")
		},
		want: []string{
			"Foo x: ready", "Foo y: ready", "Foo z: ready",
			"Deployment x of z: 1", "Deployment y of x: 1", "Deployment z of y: 1",
		},
	},
	{
		name: "rule 10: a Foo adopts a Deployment that a user annotates",
		prepare: func(r *run) {
			r.createFoo("x", "x", 1).awaitReady("x").delete(metav1.DeletePropagationOrphan).createFoo("x", "x", 2).awaitNotOwned("x")
		},
		operate: func(r *run) {
			r.editOwned("x", fmt.Sprintf(`{"metadata":{"annotations":{%q:"x"}}}`, adoptByAnnotation))
		},
		want: []string{"Foo x: ready", "Deployment x of x: 2"},
	},
}

// createFoo is create for a Foo with that Deployment.
func (r *run) createFoo(name, deployment string, replicas int32) *run {
	r.t.Helper()
	return r.createAs(name, mustEncode(desiredFoo{deployment, replicas}.object(name).Spec))
}

func (r *run) rename(name, deployment string) *run {
	r.t.Helper()
	return r.patch(name, fmt.Sprintf(`{"spec":{"deploymentName":%q}}`, deployment))
}

func foreignDeployment(name string) *appsv1.Deployment {
	labels := map[string]string{"foreign": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:foreign"}}},
			},
		},
	}
}
