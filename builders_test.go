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
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller/child"
	fixtures "example.com/sample-controller/test/fixture"
)

// Builders of the objects that the tests are about. Every option changes one
// thing of an otherwise ordinary object.

const (
	testNamespace = "ns"
	// An object's resource version in the tests; the fake clientset compares it
	// with what it holds.
	testVersion = "10"
)

// testNow is when all tests happen, to the second as the API server keeps it.
var testNow = metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))

type fooOption func(*v1alpha1.Foo)

// newFoo returns a Foo "foo" that asks for 1 replica of Deployment "web".
func newFoo(options ...fooOption) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{
			Name: "foo", Namespace: testNamespace, UID: "uid-foo", Generation: 1, ResourceVersion: testVersion,
		},
		Spec: v1alpha1.FooSpec{DeploymentName: "web", Replicas: ptr.To[int32](1)},
	}
	for _, option := range options {
		option(foo)
	}
	return foo
}

// fooNamed gives the Foo a name, and a UID of its own with it.
func fooNamed(name string) fooOption {
	return func(foo *v1alpha1.Foo) { foo.Name, foo.UID = name, types.UID("uid-"+name) }
}

func fooUID(uid types.UID) fooOption {
	return func(foo *v1alpha1.Foo) { foo.UID = uid }
}

func wants(deploymentName string) fooOption {
	return func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = deploymentName }
}

func fooReplicas(replicas *int32) fooOption {
	return func(foo *v1alpha1.Foo) { foo.Spec.Replicas = replicas }
}

func fooImage(image string) fooOption {
	return func(foo *v1alpha1.Foo) { foo.Spec.Image = image }
}

func fooGeneration(generation int64) fooOption {
	return func(foo *v1alpha1.Foo) { foo.Generation = generation }
}

func fooTerminating(foo *v1alpha1.Foo) {
	foo.DeletionTimestamp = &testNow
	foo.Finalizers = []string{metav1.FinalizerDeleteDependents}
}

// fooStatus gives the Foo the status that this controller would give it for the
// child.Observation, as of a minute ago.
func fooStatus(seen child.Observation) fooOption {
	return func(foo *v1alpha1.Foo) {
		foo.Status = newStatus(foo, seen, metav1.NewTime(testNow.Add(-time.Minute)))
	}
}

// fooReady gives the Foo the status of a finished rollout.
func fooReady(foo *v1alpha1.Foo) {
	fooStatus(child.Observation{Deployment: newOwned(foo, available)})(foo)
}

type deploymentOption func(*appsv1.Deployment)

// newOwned returns the Deployment that the controller would create for foo, with
// the defaults that the API server adds and nothing in its status.
func newOwned(foo *v1alpha1.Foo, options ...deploymentOption) *appsv1.Deployment {
	deployment := newDeployment(foo)
	deployment.UID = types.UID("uid-" + deployment.Name)
	deployment.ResourceVersion = testVersion
	deployment.Generation = 1
	for _, option := range options {
		option(deployment)
	}
	return deployment
}

// newForeign returns a Deployment "web" that nobody controls.
func newForeign(options ...deploymentOption) *appsv1.Deployment {
	return newOwned(newFoo(), append([]deploymentOption{ownedBy()}, options...)...)
}

func ownedBy(owners ...metav1.OwnerReference) deploymentOption {
	return func(deployment *appsv1.Deployment) { deployment.OwnerReferences = owners }
}

func deploymentReplicas(replicas *int32) deploymentOption {
	return func(deployment *appsv1.Deployment) { deployment.Spec.Replicas = replicas }
}

func deploymentImage(image string) deploymentOption {
	return func(deployment *appsv1.Deployment) { deployment.Spec.Template.Spec.Containers[0].Image = image }
}

func deploymentTerminating(deployment *appsv1.Deployment) {
	deployment.DeletionTimestamp = &testNow
	deployment.Finalizers = []string{metav1.FinalizerDeleteDependents}
}

// available gives the Deployment the status of a finished rollout.
func available(deployment *appsv1.Deployment) {
	fixtures.Available(deployment)
}

// pods sets the counts of a rollout under way.
func pods(replicas, updated, available int32) deploymentOption {
	return fixtures.Pods(replicas, updated, available)
}

func deploymentCondition(kind appsv1.DeploymentConditionType, status corev1.ConditionStatus, reason, message string) deploymentOption {
	return fixtures.Condition(kind, status, reason, message)
}

// summary is a status in one line, for comparisons that can be read:
// "gen=1 available=1 replicas=1 True/DeploymentAvailable".
func summary(foo *v1alpha1.Foo) string {
	ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady)
	if ready == nil {
		return "no status"
	}
	return fmt.Sprintf("gen=%d available=%d replicas=%d %s/%s",
		foo.Status.ObservedGeneration, foo.Status.AvailableReplicas, foo.Status.Replicas, ready.Status, ready.Reason)
}
