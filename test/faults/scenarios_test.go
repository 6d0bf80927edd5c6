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
	"net/http"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// scenario is something that users do, and what there must be in the end.
type scenario struct {
	kind     *kind
	sentence string
	// prepare makes what there is before, without a fault.
	prepare func(*run)
	// operate does it, while faults strike.
	operate func(*run)
	// want is the summary of the state in the end.
	want []string
	// endsNamespace says that there is no namespace in the end.
	endsNamespace bool
}

// fooScenarios are those of Foos.
var fooScenarios = []*scenario{
	{
		sentence: "rule 3: a Foo is created",
		prepare:  func(*run) {},
		operate:  func(r *run) { r.create("x", "x", 2) },
		want:     []string{"Foo x asks for x: DeploymentAvailable 2", "Deployment x of x: 2"},
	},
	{
		sentence: "rule 4: a Foo is scaled",
		prepare:  func(r *run) { r.create("x", "x", 1).ready("x") },
		operate:  func(r *run) { r.patch("x", `{"spec":{"replicas":3}}`) },
		want:     []string{"Foo x asks for x: DeploymentAvailable 3", "Deployment x of x: 3"},
	},
	{
		sentence: "rule 4: a Foo's image is changed",
		prepare:  func(r *run) { r.create("x", "x", 1).ready("x").patch("x", `{"spec":{"image":"nginx:1"}}`).ready("x") },
		operate:  func(r *run) { r.patch("x", `{"spec":{"image":"nginx:2"}}`) },
		want:     []string{"Foo x asks for x: DeploymentAvailable 1", "Deployment x of x: 1"},
	},
	{
		sentence: "rule 8: a Foo is renamed",
		prepare:  func(r *run) { r.create("x", "old", 1).ready("x") },
		operate:  func(r *run) { r.rename("x", "new") },
		want:     []string{"Foo x asks for new: DeploymentAvailable 1", "Deployment new of x: 1"},
	},
	{
		sentence: "rules 8 and 9: a Foo is renamed onto a taken name, which the other one then leaves",
		prepare:  func(r *run) { r.create("x", "x", 1).create("y", "y", 1).ready("x").ready("y") },
		operate:  func(r *run) { r.rename("x", "y").notOwned("x").rename("y", "z") },
		want: []string{
			"Foo x asks for y: DeploymentAvailable 1", "Foo y asks for z: DeploymentAvailable 1",
			"Deployment y of x: 1", "Deployment z of y: 1",
		},
	},
	{
		sentence: "rule 8: two Foos swap names",
		prepare:  func(r *run) { r.create("x", "x", 1).create("y", "y", 1).ready("x").ready("y") },
		operate:  func(r *run) { r.rename("x", "y").notOwned("x").rename("y", "x") },
		want: []string{
			"Foo x asks for y: DeploymentAvailable 1", "Foo y asks for x: DeploymentAvailable 1",
			"Deployment x of y: 1", "Deployment y of x: 1",
		},
	},
	{
		sentence: "rule 8: three Foos rotate names",
		prepare: func(r *run) {
			r.create("x", "x", 1).create("y", "y", 1).create("z", "z", 1).ready("x").ready("y").ready("z")
		},
		operate: func(r *run) { r.rename("x", "y").notOwned("x").rename("y", "z").notOwned("y").rename("z", "x") },
		want: []string{
			"Foo x asks for y: DeploymentAvailable 1", "Foo y asks for z: DeploymentAvailable 1", "Foo z asks for x: DeploymentAvailable 1",
			"Deployment x of z: 1", "Deployment y of x: 1", "Deployment z of y: 1",
		},
	},
	{
		sentence: "rule 6: a Foo is deleted and made anew under the same name",
		// The finalizer keeps the predecessor's Deployment until the new Foo has
		// seen it.
		prepare: func(r *run) {
			r.create("x", "x", 1).ready("x").edit("x", `{"metadata":{"finalizers":["example.com/hold"]}}`)
		},
		operate: func(r *run) {
			r.remove("x", metav1.DeletePropagationBackground).create("x", "x", 1).notOwned("x").edit("x", `{"metadata":{"finalizers":null}}`)
		},
		want: []string{"Foo x asks for x: DeploymentAvailable 1", "Deployment x of x: 1"},
	},
	{
		sentence: "rule 2: a Foo is deleted in the foreground",
		prepare:  func(r *run) { r.create("x", "x", 1).ready("x") },
		operate:  func(r *run) { r.remove("x", metav1.DeletePropagationForeground) },
		want:     []string{},
	},
	{
		sentence: "rule 10: a Foo is deleted without its Deployment, and made anew",
		prepare:  func(r *run) { r.create("x", "x", 1).ready("x") },
		operate: func(r *run) {
			r.remove("x", metav1.DeletePropagationOrphan).create("x", "x", 3)
		},
		want: []string{"Foo x asks for x: DeploymentNotOwned 0", "Deployment x of nobody: 1"},
	},
	{
		sentence: "rule 7: a Foo's Deployment is deleted",
		prepare:  func(r *run) { r.create("x", "x", 1).ready("x") },
		operate:  func(r *run) { r.removeDeployment("x") },
		want:     []string{"Foo x asks for x: DeploymentAvailable 1", "Deployment x of x: 1"},
	},
	{
		sentence: "rule 4: a Foo's Deployment is edited by hand",
		prepare:  func(r *run) { r.create("x", "x", 1).ready("x").patch("x", `{"spec":{"image":"nginx:1"}}`).ready("x") },
		operate: func(r *run) {
			r.edit("x", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null,"theirs":"kept"}},
				"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"nginx","image":"nginx:theirs"}]}}}}`)
		},
		want: []string{"Foo x asks for x: DeploymentAvailable 1", "Deployment x of x: 1"},
	},
	{
		sentence: "rule 5: a foreign Deployment is in the way and then removed",
		prepare:  func(r *run) { r.foreign("x") },
		operate:  func(r *run) { r.create("x", "x", 2).notOwned("x").removeDeployment("x") },
		want:     []string{"Foo x asks for x: DeploymentAvailable 2", "Deployment x of x: 2"},
	},
	{
		sentence:      "rule 11: the namespace is deleted",
		prepare:       func(*run) {},
		operate:       func(r *run) { r.endNamespace(deployments, func() { r.create("x", "x", 0) }) },
		want:          []string{},
		endsNamespace: true,
	},
}

// What users do. Each is a step, where the controller's process can be dead, and
// returns the run for the next one.

func (r *run) create(name, deployment string, replicas int32) *run {
	r.t.Helper()
	return r.step("create Foo "+name, func() error {
		_, err := shared.foos.SamplecontrollerV1alpha1().Foos(r.namespace).Create(r.t.Context(), &v1alpha1.Foo{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			Spec:       v1alpha1.FooSpec{DeploymentName: deployment, Replicas: ptr.To(replicas)},
		}, metav1.CreateOptions{})
		return err
	})
}

func (r *run) patch(name, patch string) *run {
	r.t.Helper()
	return r.step("patch "+r.scenario.kind.parent+" "+name, func() error {
		return shared.patch(r.t.Context(), r.scenario.kind.resource(), r.namespace, name, patch)
	})
}

func (r *run) rename(name, deployment string) *run {
	r.t.Helper()
	return r.patch(name, fmt.Sprintf(`{"spec":{"deploymentName":%q}}`, deployment))
}

// remove deletes an object and waits until it is gone, and has left what that
// propagation policy leaves.
func (r *run) remove(name string, propagation metav1.DeletionPropagation) *run {
	r.t.Helper()
	what := r.scenario.kind.parent + " " + name
	r.step("delete "+what, func() error {
		return shared.remove(r.t.Context(), r.scenario.kind.resource(), r.namespace, name, propagation)
	})
	r.await(what+" is gone", func() error {
		if slices.Contains(r.scenario.kind.parents(r.history), name) {
			return errors.New("it is there")
		}
		return nil
	})
	return r
}

// edit changes a Deployment by hand, and waits until the history tells: the state
// before looks like the one that the controller is to restore.
func (r *run) edit(name, patch string) {
	r.t.Helper()
	var edited *appsv1.Deployment
	r.step("edit Deployment "+name, func() (err error) {
		edited, err = shared.kube.AppsV1().Deployments(r.namespace).Patch(r.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
	r.await("the history tells of the edit", func() error {
		for _, v := range r.history.deployments {
			if v.object.UID == edited.UID && v.number >= number(edited.ResourceVersion) {
				return nil
			}
		}
		return errors.New("it does not")
	})
}

// removeDeployment deletes a Deployment, and waits until the history tells.
func (r *run) removeDeployment(name string) {
	r.t.Helper()
	var former types.UID
	r.await("a look at the Deployment", func() error {
		former = present(r.history.deployments)[name].UID
		return nil
	})
	r.step("delete Deployment "+name, func() error {
		return shared.kube.AppsV1().Deployments(r.namespace).Delete(r.t.Context(), name, metav1.DeleteOptions{})
	})
	r.await("the history tells of the deletion", func() error {
		if deployment := present(r.history.deployments)[name]; deployment != nil && deployment.UID == former {
			return errors.New("it does not")
		}
		return nil
	})
}

// endNamespace deletes the namespace while the controller creates one of those.
func (r *run) endNamespace(children string, create func()) {
	r.t.Helper()
	arrived, release := r.proxy.holdBack(http.MethodPost, children)
	defer release()
	create()
	select {
	case <-arrived:
	case <-r.t.Context().Done():
	}
	r.step("delete the namespace", func() error {
		return shared.kube.CoreV1().Namespaces().Delete(r.t.Context(), r.namespace, metav1.DeleteOptions{})
	})
	// The creation comes when the namespace is on its way out.
	release()
	r.poll("the namespace is gone", r.namespaceGone)
}

// foreign creates a Deployment that no controller of ours made.
func (r *run) foreign(name string) {
	r.t.Helper()
	_, err := shared.kube.AppsV1().Deployments(r.namespace).Create(r.t.Context(), foreignDeployment(name), metav1.CreateOptions{})
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

// ready waits until the object is ready as its spec stands now.
func (r *run) ready(name string) *run {
	r.t.Helper()
	return r.says(name, v1alpha1.ReasonDeploymentAvailable)
}

// notOwned waits until the object says that the name is taken.
func (r *run) notOwned(name string) *run {
	r.t.Helper()
	return r.says(name, v1alpha1.ReasonDeploymentNotOwned)
}

func (r *run) says(name, reason string) *run {
	r.t.Helper()
	r.await(r.scenario.kind.parent+" "+name+" says "+reason, func() error {
		states := r.scenario.kind.state(r.history).Parents
		if s, there := states[name].(interface{ common() parentState }); !there || !s.common().UpToDate || s.common().Reason != reason {
			return fmt.Errorf("its state: %+v", states[name])
		}
		return nil
	})
	return r
}
