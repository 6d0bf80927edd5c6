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
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The two parts of kube-controller-manager that matter here: the garbage collector
// and the Deployment controller. Each takes its time for each of its steps.

// wakeActors lets both have a look once their time has passed.
func (c *simCluster) wakeActors() {
	if !c.collectionIsDue {
		c.collectionIsDue = true
		time.AfterFunc(c.sequence.Collection, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.collectionIsDue = false
			c.collect()
		})
	}
	if !c.rolloutIsDue {
		c.rolloutIsDue = true
		time.AfterFunc(c.sequence.Rollout, func() {
			c.mu.Lock()
			defer c.mu.Unlock()
			c.rolloutIsDue = false
			c.rollOut()
		})
	}
}

// collect is one pass of the garbage collector.
func (c *simCluster) collect() {
	for _, name := range c.foos.names() {
		if foo := c.foo(name); foo.DeletionTimestamp != nil {
			c.finishFoo(foo)
		}
	}
	for _, name := range c.deployments.names() {
		deployment := c.deployment(name)
		if deployment.DeletionTimestamp != nil {
			// Its ReplicaSets are gone, or orphaned.
			c.dropFinalizer(c.deployments, deployment, metav1.FinalizerDeleteDependents)
			c.dropFinalizer(c.deployments, c.deployment(name), metav1.FinalizerOrphanDependents)
			continue
		}
		c.collectDeployment(deployment)
	}
}

// collectDeployment deletes a Deployment whose owners are all gone, or removes the
// references to those that are.
func (c *simCluster) collectDeployment(deployment *appsv1.Deployment) {
	gone := func(ref metav1.OwnerReference) bool {
		foo := c.foo(ref.Name)
		return foo == nil || foo.UID != ref.UID
	}
	switch {
	case !slices.ContainsFunc(deployment.OwnerReferences, gone):
	case slices.ContainsFunc(deployment.OwnerReferences, func(ref metav1.OwnerReference) bool { return !gone(ref) }):
		after := copyOf(deployment)
		after.OwnerReferences = slices.DeleteFunc(after.OwnerReferences, gone)
		c.replace(c.deployments, after)
	default:
		c.logf("the garbage collector deletes Deployment %s", deployment.Name)
		c.mustRemove(deployment)
	}
}

// finishFoo does what the finalizers of a Foo wait for.
func (c *simCluster) finishFoo(foo *v1alpha1.Foo) {
	blocked := false
	for _, name := range c.deployments.names() {
		deployment := c.deployment(name)
		index := slices.IndexFunc(deployment.OwnerReferences, func(ref metav1.OwnerReference) bool { return ref.UID == foo.UID })
		switch {
		case index < 0:
		case slices.Contains(foo.Finalizers, metav1.FinalizerOrphanDependents):
			after := copyOf(deployment)
			after.OwnerReferences = slices.Delete(after.OwnerReferences, index, index+1)
			c.replace(c.deployments, after)
		case slices.Contains(foo.Finalizers, metav1.FinalizerDeleteDependents) && ptr.Deref(deployment.OwnerReferences[index].BlockOwnerDeletion, false):
			if deployment.DeletionTimestamp == nil {
				c.logf("the garbage collector deletes Deployment %s", name)
				c.mustRemove(deployment)
			}
			blocked = blocked || c.deployment(name) != nil
		}
	}
	if !blocked {
		c.dropFinalizer(c.foos, foo, metav1.FinalizerDeleteDependents)
		if foo = c.foo(foo.Name); foo != nil {
			c.dropFinalizer(c.foos, foo, metav1.FinalizerOrphanDependents)
		}
	}
}

// mustRemove deletes a Deployment on nobody's account.
func (c *simCluster) mustRemove(deployment *appsv1.Deployment) {
	if err := c.remove(c.deployments, deployment.Name, metav1.DeleteOptions{
		PropagationPolicy: ptr.To(metav1.DeletePropagationBackground),
		Preconditions:     &metav1.Preconditions{UID: ptr.To(deployment.UID)},
	}); err != nil {
		panic(err)
	}
}

// dropFinalizer removes a finalizer, and the object with the last one.
func (c *simCluster) dropFinalizer(t *simTable, object simObject, finalizer string) {
	if object == (*appsv1.Deployment)(nil) || !slices.Contains(object.GetFinalizers(), finalizer) {
		return
	}
	after := copyOf(object)
	after.SetFinalizers(slices.DeleteFunc(after.GetFinalizers(), func(f string) bool { return f == finalizer }))
	c.replace(t, after)
}

// rollOut is one step of each rollout: at first the Deployment controller says
// that it has seen the spec, and then that all Pods are there.
func (c *simCluster) rollOut() {
	for _, name := range c.deployments.names() {
		deployment := c.deployment(name)
		if deployment.DeletionTimestamp != nil {
			continue
		}
		after := copyOf(deployment)
		if deployment.Status.ObservedGeneration < deployment.Generation {
			after.Status.ObservedGeneration = deployment.Generation
			if imagesOf(deployment) != c.images[deployment.UID] {
				after.Status.UpdatedReplicas = 0
			}
		} else {
			after.Status = c.rolledOut(deployment.UID, imagesOf(deployment), ptr.Deref(deployment.Spec.Replicas, 1), deployment.Spec.Paused)
			after.Status.ObservedGeneration = deployment.Generation
		}
		c.replace(c.deployments, after)
	}
}

// rolledOut returns the status of a rollout that has come as far as it can. While
// it is paused old Pods are scaled, but not replaced.
func (c *simCluster) rolledOut(uid types.UID, images string, replicas int32, paused bool) appsv1.DeploymentStatus {
	old, running := c.images[uid]
	switch {
	case paused && !running:
		return appsv1.DeploymentStatus{}
	case paused && old != images:
		return appsv1.DeploymentStatus{Replicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas}
	}
	c.images[uid] = images
	return appsv1.DeploymentStatus{Replicas: replicas, UpdatedReplicas: replicas, ReadyReplicas: replicas, AvailableReplicas: replicas}
}
