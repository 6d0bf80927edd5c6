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
	"slices"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/random"
)

// What users and fate do to the cluster. An operation on something that is not
// there does nothing, as a command of kubectl that fails.

// do does the operation now.
func (c *simCluster) do(op random.Op) {
	c.logf("%s", strings.ReplaceAll(random.Op{Verb: op.Verb, Foo: op.Foo, Other: op.Other, Deployment: op.Deployment, Replicas: op.Replicas, Image: op.Image,
		Propagation: op.Propagation, Edit: op.Edit, Failure: op.Failure, Count: op.Count, Resource: op.Resource, For: op.For}.Script(), "\n", " "))
	switch op.Verb {
	case random.CreateForeign, random.EditDeployment, random.DeleteDeployment:
		c.doToDeployment(op)
	case random.Strike:
		if op.Failure == random.KilledBefore {
			op.Count = 1
		}
		c.failures = append(c.failures, slices.Repeat([]random.Failure{op.Failure}, op.Count)...)
	case random.Kill:
		c.kill()
	case random.Forget:
		c.process.forget()
	case random.Hold:
		c.hold(c.table(op.Resource), op.For)
	case random.Break:
		if t := c.table(op.Resource); t.stream != nil {
			t.stream.end()
		}
	default:
		c.doToFoo(op)
	}
}

func (c *simCluster) doToFoo(op random.Op) {
	if op.Verb == random.CreateFoo {
		spec := v1alpha1.FooSpec{}
		if op.Deployment != "" {
			spec = v1alpha1.FooSpec{DeploymentName: op.Deployment, Replicas: ptr.To(op.Replicas), Image: op.Image}
		}
		c.createFoo(op.Foo, spec)
		return
	}
	foo := c.foo(op.Foo)
	if foo == nil {
		return
	}
	switch op.Verb {
	case random.ScaleFoo:
		c.changeFoo(op.Foo, func(spec *v1alpha1.FooSpec) { spec.Replicas = ptr.To(op.Replicas) })
	case random.SetImage:
		c.changeFoo(op.Foo, func(spec *v1alpha1.FooSpec) { spec.Image = op.Image })
	case random.Rename:
		c.rename(op.Foo, op.Deployment)
	case random.Swap:
		if other := c.foo(op.Other); other != nil {
			a, b := foo.Spec.DeploymentName, other.Spec.DeploymentName
			c.rename(op.Foo, b)
			c.rename(op.Other, a)
		}
	case random.DeleteFoo:
		c.must(c.remove(c.foos, op.Foo, metav1.DeleteOptions{PropagationPolicy: &op.Propagation}))
	case random.RecreateFoo:
		c.must(c.remove(c.foos, op.Foo, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
		c.createFoo(op.Foo, foo.Spec)
	case random.AddCondition:
		foo = copyOf(foo)
		meta.SetStatusCondition(&foo.Status.Conditions, metav1.Condition{
			Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Kept", Message: "another controller's", LastTransitionTime: metav1.Now().Rfc3339Copy(),
		})
		c.replace(c.foos, foo)
	}
}

func (c *simCluster) must(err error) {
	if err != nil {
		panic(err)
	}
}

func (c *simCluster) createFoo(name string, spec v1alpha1.FooSpec) {
	if c.foo(name) == nil {
		c.must(c.create(c.foos, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}))
	}
}

func (c *simCluster) changeFoo(name string, change func(*v1alpha1.FooSpec)) {
	foo := copyOf(c.foo(name))
	// The schema does not allow anything else without a name.
	if foo.Spec.DeploymentName != "" {
		change(&foo.Spec)
		c.replace(c.foos, foo)
	}
}

func (c *simCluster) rename(name, deployment string) {
	foo := copyOf(c.foo(name))
	if deployment == "" {
		return
	}
	if foo.Spec.Replicas == nil {
		foo.Spec.Replicas = ptr.To[int32](1)
	}
	foo.Spec.DeploymentName = deployment
	c.replace(c.foos, foo)
}

func (c *simCluster) doToDeployment(op random.Op) {
	deployment := c.deployment(op.Deployment)
	switch {
	case op.Verb == random.CreateForeign && deployment == nil:
		c.must(c.create(c.deployments, foreignDeployment(op.Deployment)))
	case deployment == nil:
	case op.Verb == random.DeleteDeployment:
		c.must(c.remove(c.deployments, op.Deployment, metav1.DeleteOptions{PropagationPolicy: &op.Propagation}))
	case op.Verb == random.EditDeployment:
		deployment = copyOf(deployment)
		c.edit(deployment, op)
		c.replace(c.deployments, deployment)
	}
}

func foreignDeployment(name string) *appsv1.Deployment {
	labels := map[string]string{"foreign": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: labels},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: containerName, Image: "nginx:foreign"}}},
			},
		},
	}
}

func (c *simCluster) edit(deployment *appsv1.Deployment, op random.Op) {
	spec := &deployment.Spec
	switch op.Edit {
	case random.EditReplicas:
		spec.Replicas = ptr.To(op.Replicas)
	case random.EditImage:
		spec.Template.Spec.Containers[0].Image = "nginx:theirs"
	case random.EditUnlabel:
		delete(deployment.Labels, controller.ManagedByLabel)
	case random.EditTheirs:
		metav1.SetMetaDataLabel(&deployment.ObjectMeta, "theirs", "kept")
		metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, "theirs", "kept")
		if len(spec.Template.Spec.Containers) == 1 {
			spec.Template.Spec.Containers = append(spec.Template.Spec.Containers, corev1.Container{Name: "sidecar", Image: "sidecar:1"})
		}
	case random.EditPause, random.EditResume:
		spec.Paused = op.Edit == random.EditPause
	case random.EditRelease:
		deployment.OwnerReferences = nil
	case random.EditHandOver:
		if foo := c.foo(op.Foo); foo != nil {
			deployment.OwnerReferences = []metav1.OwnerReference{kindOfFoo().Reference(foo)}
		}
	case random.EditNoController:
		for i := range deployment.OwnerReferences {
			deployment.OwnerReferences[i].Controller = ptr.To(false)
		}
	case random.EditUnblock:
		for i := range deployment.OwnerReferences {
			deployment.OwnerReferences[i].BlockOwnerDeletion = ptr.To(false)
		}
	case random.EditHold:
		// A finalizer cannot be added to what is on its way out.
		if deployment.DeletionTimestamp == nil && !slices.Contains(deployment.Finalizers, random.HoldFinalizer) {
			deployment.Finalizers = append(deployment.Finalizers, random.HoldFinalizer)
		}
	case random.EditUnhold:
		deployment.Finalizers = slices.DeleteFunc(deployment.Finalizers, func(f string) bool { return f == random.HoldFinalizer })
	}
}

// play lets the sequence happen.
func (c *simCluster) play() {
	for _, op := range c.sequence.Ops {
		c.mu.Lock()
		if op.Before > 0 {
			c.later = append(c.later, laterOp{op: op, in: op.Before})
		} else {
			c.do(op)
		}
		c.mu.Unlock()
		if op.Then > 0 {
			time.Sleep(op.Then)
		}
	}
}

// calm ends all faults, and lets go what finalizers keep.
func (c *simCluster) calm() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.logf("# All faults end.")
	c.failures, c.later = nil, nil
	c.unhold(c.foos)
	c.unhold(c.deployments)
	for _, name := range c.deployments.names() {
		c.doToDeployment(random.Op{Verb: random.EditDeployment, Edit: random.EditUnhold, Deployment: name})
	}
}
