//go:build bench

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

package bench

import (
	"context"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	clientv1alpha1 "example.com/sample-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
)

func (e *env) deploymentClient() clientappsv1.DeploymentInterface {
	return e.kube.AppsV1().Deployments(namespace)
}

func (e *env) fooClient() clientv1alpha1.FooInterface {
	return e.foos.SamplecontrollerV1alpha1().Foos(namespace)
}

// newDeployment returns a Deployment of the shape that the controller creates.
func newDeployment(name string) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": name}
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](1),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "nginx", Image: "nginx:latest"}}},
			},
		},
	}
}

// createDeployments creates Deployments without an owner.
func (e *env) createDeployments(prefix string, count int) {
	e.Helper()
	e.inParallel(count, func(ctx context.Context, i int) error {
		_, err := e.deploymentClient().Create(ctx, newDeployment(name(prefix, i)), metav1.CreateOptions{})
		return err
	})
}

// createFoos creates Foos whose Deployments have the Foos' names.
func (e *env) createFoos(prefix string, count int) {
	e.Helper()
	e.createFoosFor(prefix, prefix, count)
}

// createFoosFor creates Foos whose Deployments' names start with deployments.
func (e *env) createFoosFor(prefix, deployments string, count int) {
	e.Helper()
	e.inParallel(count, func(ctx context.Context, i int) error {
		foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name(prefix, i)}, Spec: v1alpha1.FooSpec{DeploymentName: name(deployments, i), Replicas: ptr.To[int32](1)}}
		_, err := e.fooClient().Create(ctx, foo, metav1.CreateOptions{})
		return err
	})
}

func (e *env) scaleFoo(ctx context.Context, name string, replicas int) error {
	_, err := e.fooClient().Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	return err
}

// scaleFoos scales the first e.objects Foos.
func (e *env) scaleFoos(prefix string, replicas int) {
	e.Helper()
	e.inParallel(e.objects, func(ctx context.Context, i int) error { return e.scaleFoo(ctx, name(prefix, i), replicas) })
}

// withStatus returns the Deployment with the status that the Deployment controller writes
// when the given number of replicas is available.
func withStatus(deployment *appsv1.Deployment, available int32) *appsv1.Deployment {
	updated := deployment.DeepCopy()
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	condition := func(conditionType appsv1.DeploymentConditionType, reason, message string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: conditionType, Status: corev1.ConditionTrue, LastUpdateTime: now, LastTransitionTime: now, Reason: reason, Message: message}
	}
	updated.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation,
		Replicas:           available, UpdatedReplicas: available, ReadyReplicas: available, AvailableReplicas: available,
		Conditions: []appsv1.DeploymentCondition{
			condition(appsv1.DeploymentAvailable, "MinimumReplicasAvailable", "Deployment has minimum availability."),
			condition(appsv1.DeploymentProgressing, "NewReplicaSetAvailable", fmt.Sprintf("ReplicaSet %q has successfully progressed.", deployment.Name+"-5d59d67564")),
		},
	}
	return updated
}

// makeAvailable writes that status and returns the API server's answer.
func (e *env) makeAvailable(ctx context.Context, deployment *appsv1.Deployment, available int32) (*appsv1.Deployment, error) {
	return e.kube.AppsV1().Deployments(deployment.Namespace).UpdateStatus(ctx, withStatus(deployment, available), metav1.UpdateOptions{})
}
