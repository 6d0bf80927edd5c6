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

// Package stored has what tests know of an API server: objects as it stores them, with defaults and managed fields,
// and what a patch makes of them.
package stored

import (
	"fmt"
	"strings"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The objects of this file are as the API server stores them: with defaults, with what
// kubectl and other controllers add, and with managed fields.

// perNamespace is how many Foos, and how many other Deployments, are in one namespace.
const perNamespace = 100

var storedAt = metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))

func storedNamespace(i int) string {
	return fmt.Sprintf("team-%05d", i/perNamespace)
}

func storedUID(kind, i int) types.UID {
	return types.UID(fmt.Sprintf("%08x-%04x-4000-8000-%012x", i, kind, i))
}

// managedFields returns an entry of the managed fields. Caches keep none of its fields.
func managedFields(manager, subresource string) metav1.ManagedFieldsEntry {
	return metav1.ManagedFieldsEntry{
		Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "v1", Time: &storedAt, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1("{}"), Subresource: subresource,
	}
}

// ControllerRef is the reference of what the Foo controls.
func ControllerRef(foo metav1.Object) metav1.OwnerReference {
	return *metav1.NewControllerRef(foo, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Foo"))
}

// Created returns a Deployment as the controller sends it, but for its label, for the Foo of that name.
func Created(name, foo, image string, replicas *int32, owners ...metav1.OwnerReference) *appsv1.Deployment {
	labels := map[string]string{"app": "nginx", "controller": foo}
	d := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners}}
	d.Spec.Replicas, d.Spec.Selector = replicas, &metav1.LabelSelector{MatchLabels: labels}
	d.Spec.Template.Labels, d.Spec.Template.Spec.Containers = labels, []corev1.Container{{Name: Container, Image: image}}
	return d
}

// Foo returns Foo number i, which kubectl apply has created, without a status.
func Foo(i int) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{
			Name: fmt.Sprintf("foo-%06d", i), Namespace: storedNamespace(i), UID: storedUID(1, i), Generation: 1,
			ResourceVersion: fmt.Sprint(1000000 + i), CreationTimestamp: storedAt,
			ManagedFields: []metav1.ManagedFieldsEntry{
				managedFields("kubectl-client-side-apply", ""),
				managedFields("sample-controller", "status"),
			},
		},
		Spec: v1alpha1.FooSpec{DeploymentName: fmt.Sprintf("web-%06d", i), Replicas: ptr.To[int32](1), Image: "registry.example.com/library/nginx:1.29.3"},
	}
	foo.Annotations = map[string]string{corev1.LastAppliedConfigAnnotation: fmt.Sprintf(
		`{"apiVersion":"samplecontroller.k8s.io/v1alpha1","kind":"Foo","metadata":{"annotations":{},"name":%q,"namespace":%q},"spec":{"deploymentName":%q,"image":%q,"replicas":1}}`,
		foo.Name, foo.Namespace, foo.Spec.DeploymentName, foo.Spec.Image)}
	return foo
}

// Own turns the Deployment that a controller creates for Foo number i into what the
// API server stores once it is rolled out.
func Own(i int, deployment *appsv1.Deployment) {
	fillIn(deployment, i, 2)
	deployment.ManagedFields = append(deployment.ManagedFields, managedFields("sample-controller", ""))
}

// Foreign returns Deployment number i of a Helm chart, rolled out.
func Foreign(i int) *appsv1.Deployment {
	name := fmt.Sprintf("shop-%06d", i)
	deployment := Created(name, name, "registry.example.com/shop/backend:4.2.1", ptr.To[int32](3))
	deployment.Namespace, deployment.Labels = storedNamespace(i), map[string]string{"app.kubernetes.io/instance": name, ManagedBy: "Helm"}
	deployment.Annotations = map[string]string{"meta.helm.sh/release-name": name, "meta.helm.sh/release-namespace": storedNamespace(i)}
	container := &deployment.Spec.Template.Spec.Containers[0]
	container.Args = []string{"--listen=:8080", "--log-format=json"}
	for v := range 8 {
		container.Env = append(container.Env, corev1.EnvVar{Name: fmt.Sprintf("SHOP_SETTING_%d", v), Value: fmt.Sprintf("https://service-%d.example.com", v)})
	}
	fillIn(deployment, i, 3)
	deployment.ManagedFields = append(deployment.ManagedFields, managedFields("helm", ""))
	return deployment
}

// fillIn adds what the API server and the Deployment controller add. kind makes the UIDs of
// owned and foreign Deployments differ.
func fillIn(deployment *appsv1.Deployment, i, kind int) {
	deployment.UID, deployment.Generation = storedUID(kind, i), 1
	deployment.ResourceVersion, deployment.CreationTimestamp = fmt.Sprint(2000000+i), storedAt
	if deployment.Annotations == nil {
		deployment.Annotations = map[string]string{}
	}
	deployment.Annotations["deployment.kubernetes.io/revision"] = "1"
	deployment.ManagedFields = []metav1.ManagedFieldsEntry{managedFields("kube-controller-manager", "status")}
	SetDefaults(deployment)
	RollOut(deployment, *deployment.Spec.Replicas, storedAt, metav1.NewTime(storedAt.Add(10*time.Second)))
}

// RollOut gives the Deployment the status that the Deployment controller writes at the end of a rollout.
func RollOut(deployment *appsv1.Deployment, replicas int32, began, ended metav1.Time) {
	deployment.Status = appsv1.DeploymentStatus{
		ObservedGeneration: deployment.Generation,
		Replicas:           replicas, UpdatedReplicas: replicas, AvailableReplicas: replicas, ReadyReplicas: replicas,
	}
	deployment.Status.Conditions = []appsv1.DeploymentCondition{
		{Type: appsv1.DeploymentAvailable, Status: corev1.ConditionTrue, Reason: "MinimumReplicasAvailable",
			Message: "Deployment has minimum availability.", LastUpdateTime: ended, LastTransitionTime: ended},
		{Type: appsv1.DeploymentProgressing, Status: corev1.ConditionTrue, Reason: "NewReplicaSetAvailable",
			Message:        fmt.Sprintf("ReplicaSet %q has successfully progressed.", deployment.Name+"-7d9c6b5f4"),
			LastUpdateTime: ended, LastTransitionTime: began},
	}
}

// SetDefaults sets the fields that the API server defaults when it decodes an object.
func SetDefaults(object metav1.Object) {
	switch object := object.(type) {
	case *v1alpha1.Foo:
		// The schema defaults fields of a spec, but not a whole one.
		if spec := &object.Spec; spec.DeploymentName != "" && spec.Replicas == nil {
			spec.Replicas = ptr.To[int32](1)
		}
	case *appsv1.Deployment:
		setDeploymentDefaults(&object.Spec)
	}
}

func setDeploymentDefaults(spec *appsv1.DeploymentSpec) {
	setDefault(&spec.Replicas, ptr.To[int32](1))
	setDefault(&spec.RevisionHistoryLimit, ptr.To[int32](10))
	setDefault(&spec.ProgressDeadlineSeconds, ptr.To[int32](600))
	setDefault(&spec.Strategy.Type, appsv1.RollingUpdateDeploymentStrategyType)
	if spec.Strategy.Type == appsv1.RollingUpdateDeploymentStrategyType {
		quarter := intstr.FromString("25%")
		setDefault(&spec.Strategy.RollingUpdate, &appsv1.RollingUpdateDeployment{})
		setDefault(&spec.Strategy.RollingUpdate.MaxUnavailable, &quarter)
		setDefault(&spec.Strategy.RollingUpdate.MaxSurge, &quarter)
	}
	pod := &spec.Template.Spec
	setDefault(&pod.RestartPolicy, corev1.RestartPolicyAlways)
	setDefault(&pod.DNSPolicy, corev1.DNSClusterFirst)
	setDefault(&pod.SchedulerName, corev1.DefaultSchedulerName)
	setDefault(&pod.TerminationGracePeriodSeconds, ptr.To[int64](corev1.DefaultTerminationGracePeriodSeconds))
	setDefault(&pod.SecurityContext, &corev1.PodSecurityContext{})
	for i := range pod.Containers {
		container := &pod.Containers[i]
		setDefault(&container.TerminationMessagePath, corev1.TerminationMessagePathDefault)
		setDefault(&container.TerminationMessagePolicy, corev1.TerminationMessageReadFile)
		if container.ImagePullPolicy == "" && (strings.HasSuffix(container.Image, ":latest") || !strings.Contains(container.Image, ":")) {
			container.ImagePullPolicy = corev1.PullAlways
		}
		setDefault(&container.ImagePullPolicy, corev1.PullIfNotPresent)
	}
}

func setDefault[T comparable](field *T, value T) {
	if *field == *new(T) {
		*field = value
	}
}

// Mirror is the registry that a policy puts before images.
const Mirror = "mirror.example/"

// What the Foo controller owns in a Deployment, beside replicas and owner reference.
const (
	// ManagedBy is a label.
	ManagedBy = "app.kubernetes.io/managed-by"
	// Container is the one whose image the controller owns.
	Container = "nginx"
)

// UnownedDiff returns how two versions of a Deployment differ in fields that the controller
// does not own, "" if they do not.
func UnownedDiff(before, after *appsv1.Deployment) string {
	unowned := func(deployment *appsv1.Deployment) *appsv1.Deployment {
		deployment = deployment.DeepCopy()
		deployment.ResourceVersion, deployment.Generation, deployment.OwnerReferences, deployment.Spec.Replicas = "", 0, nil, nil
		deployment.ManagedFields = nil
		delete(deployment.Labels, ManagedBy)
		for i := range deployment.Spec.Template.Spec.Containers {
			if container := &deployment.Spec.Template.Spec.Containers[i]; container.Name == Container {
				container.Image = ""
			} else {
				container.Image = strings.TrimPrefix(container.Image, Mirror)
			}
		}
		return deployment
	}
	a, b := unowned(before), unowned(after)
	if equality.Semantic.DeepEqual(a, b) {
		return ""
	}
	return fmt.Sprintf("%+v became %+v", a, b)
}
