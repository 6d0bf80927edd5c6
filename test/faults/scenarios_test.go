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
	"errors"
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// scenario is a sequence of operations of users and the final state that they must lead
// to.
type scenario struct {
	suite *kindSuite
	name  string
	// prepare creates the initial state. No faults are injected into it.
	prepare func(*run)
	// operate performs the operation under faults.
	operate func(*run)
	// want is the summary of the final state.
	want []string
	// endsNamespace is set if the operation deletes the namespace.
	endsNamespace bool
}

var fooScenarios = []*scenario{
	{
		name:    "rule 3: a Foo is created",
		prepare: func(*run) {},
		operate: func(r *run) { r.createFoo("x", "x", 2) },
		want:    []string{"Foo x asks for x: DeploymentAvailable 2", "Deployment x of x: 2"},
	},
	{
		name:    "rule 4: a Foo is scaled",
		prepare: func(r *run) { r.createFoo("x", "x", 1).awaitReady("x") },
		operate: func(r *run) { r.patch("x", `{"spec":{"replicas":3}}`) },
		want:    []string{"Foo x asks for x: DeploymentAvailable 3", "Deployment x of x: 3"},
	},
	{
		name: "rule 4: a Foo's image is changed",
		prepare: func(r *run) {
			r.createFoo("x", "x", 1).awaitReady("x").patch("x", `{"spec":{"image":"nginx:1"}}`).awaitReady("x")
		},
		operate: func(r *run) { r.patch("x", `{"spec":{"image":"nginx:2"}}`) },
		want:    []string{"Foo x asks for x: DeploymentAvailable 1", "Deployment x of x: 1"},
	},
	{
		name:    "rule 8: a Foo is renamed",
		prepare: func(r *run) { r.createFoo("x", "old", 1).awaitReady("x") },
		operate: func(r *run) { r.rename("x", "new") },
		want:    []string{"Foo x asks for new: DeploymentAvailable 1", "Deployment new of x: 1"},
	},
	{
		name:    "rule 8: a Foo is renamed, and the rollout of the new Deployment never completes",
		prepare: func(r *run) { r.createFoo("x", "old", 1).awaitReady("x") },
		operate: func(r *run) { r.rename("x", heldPrefix+"new") },
		want:    []string{"Foo x asks for held-new: DeploymentProgressing 0", "Deployment held-new of x: 0", "Deployment old of x: 1"},
	},
	{
		name:    "rule 8: a rename is rolled back half-way",
		prepare: func(r *run) { r.createFoo("x", "old", 1).awaitReady("x") },
		operate: func(r *run) { r.rename("x", heldPrefix+"new").awaitDeployment(heldPrefix+"new").rename("x", "old") },
		want:    []string{"Foo x asks for old: DeploymentAvailable 1", "Deployment old of x: 1"},
	},
	{
		name: "rule 8: a Foo is renamed whose Deployment has the strategy Recreate",
		prepare: func(r *run) {
			r.createFoo("x", "old", 1).awaitReady("x").editDeployment("old", `{"spec":{"strategy":{"type":"Recreate","rollingUpdate":null}}}`)
		},
		operate: func(r *run) { r.rename("x", "new") },
		want:    []string{"Foo x asks for new: DeploymentAvailable 1", "Deployment new of x: 1"},
	},
	{
		name: "rules 4 and 8: a Foo is renamed, and admission changes the new Deployment",
		prepare: func(r *run) {
			r.createFoo("x", "old", 1).awaitReady("x").patch("x", `{"spec":{"image":"nginx:1"}}`).awaitReady("x")
		},
		operate: func(r *run) { r.rename("x", admittedPrefix+"new") },
		want:    []string{"Foo x asks for admitted-new: DeploymentAvailable 2", "Deployment admitted-new of x: 2"},
	},
	{
		name:    "rules 8 and 9: a Foo is renamed to a taken name, which its owner then gives up",
		prepare: func(r *run) { r.createFoo("x", "x", 1).createFoo("y", "y", 1).awaitReady("x").awaitReady("y") },
		operate: func(r *run) { r.rename("x", "y").awaitNotOwned("x").rename("y", "z") },
		want: []string{
			"Foo x asks for y: DeploymentAvailable 1", "Foo y asks for z: DeploymentAvailable 1",
			"Deployment y of x: 1", "Deployment z of y: 1",
		},
	},
	{
		name:    "rule 8: two Foos swap names",
		prepare: func(r *run) { r.createFoo("x", "x", 1).createFoo("y", "y", 1).awaitReady("x").awaitReady("y") },
		operate: func(r *run) { r.rename("x", "y").awaitNotOwned("x").rename("y", "x") },
		want: []string{
			"Foo x asks for y: DeploymentAvailable 1", "Foo y asks for x: DeploymentAvailable 1",
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
			"Foo x asks for y: DeploymentAvailable 1", "Foo y asks for z: DeploymentAvailable 1", "Foo z asks for x: DeploymentAvailable 1",
			"Deployment x of z: 1", "Deployment y of x: 1", "Deployment z of y: 1",
		},
	},
	{
		name: "rule 6: a Foo is deleted and recreated under the same name",
		// The finalizer keeps the old Deployment until the new Foo has reported it.
		prepare: func(r *run) {
			r.createFoo("x", "x", 1).awaitReady("x").editDeployment("x", `{"metadata":{"finalizers":["example.com/hold"]}}`)
		},
		operate: func(r *run) {
			r.delete("x", metav1.DeletePropagationBackground).createFoo("x", "x", 1).awaitNotOwned("x").editDeployment("x", `{"metadata":{"finalizers":null}}`)
		},
		want: []string{"Foo x asks for x: DeploymentAvailable 1", "Deployment x of x: 1"},
	},
	{
		name:    "rule 2: a Foo is deleted in the foreground",
		prepare: func(r *run) { r.createFoo("x", "x", 1).awaitReady("x") },
		operate: func(r *run) { r.delete("x", metav1.DeletePropagationForeground) },
		want:    []string{},
	},
	{
		name:    "rule 10: a Foo is deleted without its Deployment, and recreated",
		prepare: func(r *run) { r.createFoo("x", "x", 1).awaitReady("x") },
		operate: func(r *run) {
			r.delete("x", metav1.DeletePropagationOrphan).createFoo("x", "x", 3)
		},
		want: []string{"Foo x asks for x: DeploymentNotOwned 0", "Deployment x without an owner: 1"},
	},
	{
		name: "rule 10: a Foo adopts a Deployment that a user annotates",
		prepare: func(r *run) {
			r.createFoo("x", "x", 1).awaitReady("x").delete("x", metav1.DeletePropagationOrphan).createFoo("x", "x", 2).awaitNotOwned("x")
		},
		operate: func(r *run) {
			r.editDeployment("x", fmt.Sprintf(`{"metadata":{"annotations":{%q:"x"}}}`, adoptByAnnotation))
		},
		want: []string{"Foo x asks for x: DeploymentAvailable 2", "Deployment x of x: 2"},
	},
	{
		name:    "rule 7: a Foo's Deployment is deleted",
		prepare: func(r *run) { r.createFoo("x", "x", 1).awaitReady("x") },
		operate: func(r *run) { r.deleteDeployment("x") },
		want:    []string{"Foo x asks for x: DeploymentAvailable 1", "Deployment x of x: 1"},
	},
	{
		name: "rule 4: a Foo's Deployment is edited by hand",
		prepare: func(r *run) {
			r.createFoo("x", "x", 1).awaitReady("x").patch("x", `{"spec":{"image":"nginx:1"}}`).awaitReady("x")
		},
		operate: func(r *run) {
			r.editDeployment("x", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null,"theirs":"kept"}},
				"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:theirs"}]}}}}`)
		},
		want: []string{"Foo x asks for x: DeploymentAvailable 1", "Deployment x of x: 1"},
	},
	{
		name:    "rule 5: a foreign Deployment has the name and is then deleted",
		prepare: func(r *run) { r.createForeign("x") },
		operate: func(r *run) { r.createFoo("x", "x", 2).awaitNotOwned("x").deleteDeployment("x") },
		want:    []string{"Foo x asks for x: DeploymentAvailable 2", "Deployment x of x: 2"},
	},
	{
		name:          "rule 11: the namespace is deleted",
		prepare:       func(*run) {},
		operate:       func(r *run) { r.deleteNamespaceDuringCreate(func() { r.createFoo("x", "x", 0) }) },
		want:          []string{},
		endsNamespace: true,
	},
}

// Operations of users. Each is a step, during which the process can be dead, and returns
// the run to chain the next one.

func (r *run) createFoo(name, deployment string, replicas int32) *run {
	r.t.Helper()
	return r.step("create Foo "+name, func() error {
		_, err := cluster.foos.SamplecontrollerV1alpha1().Foos(r.namespace).Create(r.t.Context(), desiredFoo{deployment, replicas}.object(name), metav1.CreateOptions{})
		return err
	})
}

func (r *run) patch(name, patch string) *run {
	r.t.Helper()
	return r.step("patch "+r.scenario.suite.owner+" "+name, func() error {
		return cluster.patchObject(r.t.Context(), r.scenario.suite.ownerResource(), r.namespace, name, patch)
	})
}

func (r *run) rename(name, deployment string) *run {
	r.t.Helper()
	return r.patch(name, fmt.Sprintf(`{"spec":{"deploymentName":%q}}`, deployment))
}

// delete deletes an object and waits until it is gone. With the policies Foreground and
// Orphan the garbage collector has then handled its dependents.
func (r *run) delete(name string, propagation metav1.DeletionPropagation) *run {
	r.t.Helper()
	what := r.scenario.suite.owner + " " + name
	r.step("delete "+what, func() error {
		return cluster.deleteObject(r.t.Context(), r.scenario.suite.ownerResource(), r.namespace, name, propagation)
	})
	r.await(what+" is gone", func() error {
		if slices.Contains(r.scenario.suite.ownerNames(r.history), name) {
			return errors.New("it exists")
		}
		return nil
	})
	return r
}

// editDeployment patches a Deployment, and waits until the history has the patch. Without
// that the state before the patch would look like the final state.
func (r *run) editDeployment(name, patch string) {
	r.t.Helper()
	var edited *appsv1.Deployment
	r.step("edit Deployment "+name, func() (err error) {
		edited, err = cluster.kube.AppsV1().Deployments(r.namespace).Patch(r.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
	r.await("the history has the patch", func() error {
		for _, v := range r.history.deployments {
			if v.object.UID == edited.UID && v.revision >= parseRevision(edited.ResourceVersion) {
				return nil
			}
		}
		return errors.New("it does not yet")
	})
}

func (r *run) deleteDeployment(name string) {
	r.t.Helper()
	var deployment *appsv1.Deployment
	r.history.locked(func() { deployment = existing(r.history.deployments)[name] })
	deleteDependent(r, "Deployment "+name, deployments, deployment, &r.history.deployments)
}

// awaitDeployment waits until the controller has created the Deployment.
func (r *run) awaitDeployment(name string) *run {
	r.t.Helper()
	r.await("Deployment "+name+" exists", func() error {
		if existing(r.history.deployments)[name] == nil {
			return errors.New("it does not")
		}
		return nil
	})
	return r
}

// deleteDependent deletes an object that the controller created, and waits until the
// history has the deletion.
func deleteDependent[T metav1.Object](r *run, what, resource string, object T, versions *[]version[T]) {
	r.t.Helper()
	r.step("delete "+what, func() error {
		return cluster.deleteObject(r.t.Context(), resource, r.namespace, object.GetName(), metav1.DeletePropagationBackground)
	})
	r.await("the history has the deletion", func() error {
		if !slices.ContainsFunc(*versions, func(v version[T]) bool { return v.deleted && v.object.GetUID() == object.GetUID() }) {
			return errors.New("it does not yet")
		}
		return nil
	})
}

// deleteNamespaceDuringCreate calls create and deletes the namespace while the proxy
// blocks the controller's POST for the dependent.
func (r *run) deleteNamespaceDuringCreate(create func()) {
	r.t.Helper()
	arrived, open := r.proxy.creations.close()
	defer open()
	create()
	select {
	case <-arrived:
	case <-r.t.Context().Done():
	}
	r.step("delete the namespace", func() error {
		return cluster.kube.CoreV1().Namespaces().Delete(r.t.Context(), r.namespace, metav1.DeleteOptions{})
	})
	// The API server gets the POST when the namespace is terminating.
	open()
	r.poll("the namespace is gone", r.checkNamespaceGone)
}

// createForeign creates a Deployment that has no owner.
func (r *run) createForeign(name string) {
	r.t.Helper()
	_, err := cluster.kube.AppsV1().Deployments(r.namespace).Create(r.t.Context(), foreignDeployment(name), metav1.CreateOptions{})
	r.must(err)
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

// awaitReady waits until the object is ready for its current generation.
func (r *run) awaitReady(name string) *run {
	r.t.Helper()
	return r.awaitReason(name, v1alpha1.ReasonDeploymentAvailable)
}

// awaitNotOwned waits until the object reports that its name is taken.
func (r *run) awaitNotOwned(name string) *run {
	r.t.Helper()
	return r.awaitReason(name, v1alpha1.ReasonDeploymentNotOwned)
}

func (r *run) awaitReason(name, reason string) *run {
	r.t.Helper()
	r.await(r.scenario.suite.owner+" "+name+" has the reason "+reason, func() error {
		states := r.scenario.suite.state(r.history).Owners
		if s, there := states[name].(interface{ common() ownerState }); !there || !s.common().UpToDate || s.common().Reason != reason {
			return fmt.Errorf("the state is %+v", states[name])
		}
		return nil
	})
	return r
}
