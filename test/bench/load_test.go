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
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	clientappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	clientv1alpha1 "example.com/sample-controller/pkg/generated/clientset/versioned/typed/samplecontroller/v1alpha1"
)

func (e *env) deploymentClient() clientappsv1.DeploymentInterface {
	return e.kube.AppsV1().Deployments(namespace)
}

func (e *env) fooClient() clientv1alpha1.FooInterface {
	return e.foos.SamplecontrollerV1alpha1().Foos(namespace)
}

// newDeployment returns a Deployment with the spec that the controller creates.
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
	e.inParallel(count, creators, func(ctx context.Context, i int) error {
		_, err := e.deploymentClient().Create(ctx, newDeployment(name(prefix, i)), metav1.CreateOptions{})
		return err
	})
}

// createOwner creates a ConfigMap, which the controller ignores as an owner, and returns
// the owner reference for its dependents.
func (e *env) createOwner(name string) []metav1.OwnerReference {
	e.Helper()
	owner, err := e.kube.CoreV1().ConfigMaps(namespace).Create(e.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	e.must(err)
	return []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
}

// createOwned creates Deployments of the same size as the controller's, with its label and
// an owner reference.
func (e *env) createOwned(prefix string, count, parallel int) {
	e.Helper()
	owners := e.createOwner(prefix)
	e.inParallel(count, parallel, func(ctx context.Context, i int) error {
		deployment := newDeployment(name(prefix, i))
		deployment.Labels = map[string]string{controller.ManagedByLabel: controller.ManagedByValue}
		deployment.OwnerReferences = owners
		_, err := e.deploymentClient().Create(ctx, deployment, metav1.CreateOptions{FieldManager: controller.FieldManager})
		return err
	})
}

// patchDeployments scales Deployments to two replicas. Each patch has the Deployment's
// resourceVersion as a precondition, as the controller's patches have.
func (e *env) patchDeployments(prefix string, count, parallel int) {
	e.Helper()
	list, err := e.metadata.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace(namespace).List(e.Context(), metav1.ListOptions{})
	e.must(err)
	versions := map[string]string{}
	for _, deployment := range list.Items {
		versions[deployment.Name] = deployment.ResourceVersion
	}
	e.inParallel(count, parallel, func(ctx context.Context, i int) error {
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"replicas":2}}`, versions[name(prefix, i)])
		_, err := e.deploymentClient().Patch(ctx, name(prefix, i), types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: controller.FieldManager})
		return err
	})
}

// plainRate returns how many Deployments per second a plain client creates or changes by
// run, while it also watches Deployments, as a controller must. change is as in milestone.
func (e *env) plainRate(o *observer, prefix string, change int, run func(prefix string, count, parallel int)) float64 {
	e.Helper()
	stop := e.watchDeployments(nil)
	run(prefix, e.objects, e.workers)
	rate := o.rate(prefix, change, e.objects)
	stop()
	return rate
}

// createFoos creates Foos whose Deployments have the Foos' names.
func (e *env) createFoos(prefix string, count int) {
	e.Helper()
	e.createFoosFor(prefix, prefix, count)
}

// createFoosFor creates Foos whose Deployments' names start with deployments.
func (e *env) createFoosFor(prefix, deployments string, count int) {
	e.Helper()
	e.inParallel(count, creators, func(ctx context.Context, i int) error {
		foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name(prefix, i)}, Spec: v1alpha1.FooSpec{DeploymentName: name(deployments, i), Replicas: ptr.To[int32](1)}}
		_, err := e.fooClient().Create(ctx, foo, metav1.CreateOptions{})
		return err
	})
}

// syncOneFoo creates a Foo and waits for its status. By then the controller's caches show
// all that was created before the Foo.
func (e *env) syncOneFoo(prefix string) {
	e.Helper()
	e.createFoos(prefix, 1)
	e.eventually(func(ctx context.Context) error {
		foo, err := e.fooClient().Get(ctx, name(prefix, 0), metav1.GetOptions{})
		if err == nil && len(foo.Status.Conditions) == 0 {
			err = errors.New("the Foo has no status")
		}
		return err
	})
}

func (e *env) scaleFoo(ctx context.Context, name string, replicas int) error {
	_, err := e.fooClient().Patch(ctx, name, types.MergePatchType, replicasPatch(replicas), metav1.PatchOptions{})
	return err
}

func replicasPatch(replicas int) []byte {
	return fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas)
}

// scaleFoos scales the first e.objects Foos.
func (e *env) scaleFoos(prefix string, replicas int) {
	e.Helper()
	e.inParallel(e.objects, creators, func(ctx context.Context, i int) error { return e.scaleFoo(ctx, name(prefix, i), replicas) })
}

// awaitStatuses waits until count statuses of Foos have been written since before was taken.
func (e *env) awaitStatuses(before requests, count int) {
	e.Helper()
	// The API server's metrics are a megabyte of text; reading them ten times per second
	// would slow down what is measured.
	e.eventuallyEvery(time.Second, func(context.Context) error {
		if got := e.since(before).statusWrites(); got < float64(count) {
			return fmt.Errorf("%.0f of %d statuses", got, count)
		}
		return nil
	})
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
