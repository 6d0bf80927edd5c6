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

package stored

import (
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

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
