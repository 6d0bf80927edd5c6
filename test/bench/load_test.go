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
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
)

// bareDeployment returns a Deployment of the shape that the controller makes.
func bareDeployment(name string) *appsv1.Deployment {
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

// createDeployments creates bare Deployments.
func (b *bench) createDeployments(prefix string, count int) {
	b.Helper()
	b.inParallel(count, creators, func(ctx context.Context, i int) error {
		_, err := b.kube.AppsV1().Deployments(namespace).Create(ctx, bareDeployment(name(prefix, i)), metav1.CreateOptions{})
		return err
	})
}

// createOwned creates Deployments that are as long as the controller's: with its label, and
// an owner, which is none of its.
func (b *bench) createOwned(prefix string, count, parallel int) {
	b.Helper()
	owner, err := b.kube.CoreV1().ConfigMaps(namespace).Create(b.Context(), &corev1.ConfigMap{ObjectMeta: metav1.ObjectMeta{Name: prefix}}, metav1.CreateOptions{})
	b.must(err)
	b.inParallel(count, parallel, func(ctx context.Context, i int) error {
		deployment := bareDeployment(name(prefix, i))
		deployment.Labels = map[string]string{controller.ManagedByLabel: controller.ManagedByValue}
		deployment.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner, corev1.SchemeGroupVersion.WithKind("ConfigMap"))}
		_, err := b.kube.AppsV1().Deployments(namespace).Create(ctx, deployment, metav1.CreateOptions{FieldManager: controller.FieldManager})
		return err
	})
}

// patchDeployments scales Deployments to two replicas, so many at a time, insisting as the
// controller does on the versions that it knows.
func (b *bench) patchDeployments(prefix string, count, parallel int) {
	b.Helper()
	known, err := b.metadata.Resource(appsv1.SchemeGroupVersion.WithResource("deployments")).Namespace(namespace).List(b.Context(), metav1.ListOptions{})
	b.must(err)
	versions := map[string]string{}
	for _, deployment := range known.Items {
		versions[deployment.Name] = deployment.ResourceVersion
	}
	b.inParallel(count, parallel, func(ctx context.Context, i int) error {
		patch := fmt.Appendf(nil, `{"metadata":{"resourceVersion":%q},"spec":{"replicas":2}}`, versions[name(prefix, i)])
		_, err := b.kube.AppsV1().Deployments(namespace).Patch(ctx, name(prefix, i), types.StrategicMergePatchType, patch, metav1.PatchOptions{FieldManager: controller.FieldManager})
		return err
	})
}

// withWatch calls do while this client watches Deployments in full, as a controller
// does.
func (b *bench) withWatch(do func()) {
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	factory := kubeinformers.NewSharedInformerFactory(b.kube, 0)
	factory.Apps().V1().Deployments().Informer()
	factory.StartWithContext(ctx)
	factory.WaitForCacheSyncWithContext(ctx)
	do()
	cancel()
	factory.Shutdown()
}

// createFoos creates Foos that ask for Deployments of their own names.
func (b *bench) createFoos(prefix string, count int) {
	b.Helper()
	b.createFoosFor(prefix, prefix, count)
}

// createFoosFor creates Foos that ask for Deployments of other names.
func (b *bench) createFoosFor(prefix, deployments string, count int) {
	b.Helper()
	b.inParallel(count, creators, func(ctx context.Context, i int) error {
		foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name(prefix, i)}, Spec: v1alpha1.FooSpec{DeploymentName: name(deployments, i), Replicas: ptr.To[int32](1)}}
		_, err := b.foos.SamplecontrollerV1alpha1().Foos(namespace).Create(ctx, foo, metav1.CreateOptions{})
		return err
	})
}

// scaleFoo asks for so many replicas.
func (b *bench) scaleFoo(ctx context.Context, name string, replicas int) error {
	_, err := b.foos.SamplecontrollerV1alpha1().Foos(namespace).Patch(ctx, name, types.MergePatchType, fmt.Appendf(nil, `{"spec":{"replicas":%d}}`, replicas), metav1.PatchOptions{})
	return err
}

// settle waits until the controller has written a status of so many Foos since then.
func (b *bench) settle(before requests, count int) {
	b.Helper()
	// All counters of the API server are a megabyte of text.
	b.eventuallyEvery(time.Second, func(context.Context) error {
		if got := b.since(before).sum("foos/status", "PUT", "PATCH", "APPLY"); got < float64(count) {
			return fmt.Errorf("%.0f of %d statuses", got, count)
		}
		return nil
	})
}

// available returns the status that the Deployment controller would write once that many
// Pods are available.
func available(deployment *appsv1.Deployment, pods int32) *appsv1.Deployment {
	updated := deployment.DeepCopy()
	now := metav1.NewTime(time.Now().Truncate(time.Second))
	condition := func(of appsv1.DeploymentConditionType, reason, message string) appsv1.DeploymentCondition {
		return appsv1.DeploymentCondition{Type: of, Status: corev1.ConditionTrue, LastUpdateTime: now, LastTransitionTime: now, Reason: reason, Message: message}
	}
	updated.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation,
		Replicas:           pods, UpdatedReplicas: pods, ReadyReplicas: pods, AvailableReplicas: pods,
		Conditions: []appsv1.DeploymentCondition{
			condition(appsv1.DeploymentAvailable, "MinimumReplicasAvailable", "Deployment has minimum availability."),
			condition(appsv1.DeploymentProgressing, "NewReplicaSetAvailable", fmt.Sprintf("ReplicaSet %q has successfully progressed.", deployment.Name+"-5d59d67564")),
		},
	}
	return updated
}

// makeAvailable writes that status and returns the API server's answer.
func (b *bench) makeAvailable(ctx context.Context, deployment *appsv1.Deployment, pods int32) (*appsv1.Deployment, error) {
	return b.kube.AppsV1().Deployments(namespace).UpdateStatus(ctx, available(deployment, pods), metav1.UpdateOptions{})
}
