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

package sim

import (
	"maps"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

func (s *Store) doToFoo(op Op) {
	if op.Verb == CreateFoo {
		spec := v1alpha1.FooSpec{}
		if op.Deployment != "" {
			spec = v1alpha1.FooSpec{DeploymentName: op.Deployment, Replicas: ptr.To(op.Replicas), Image: op.NewImage}
		}
		s.Create(Foos, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: op.Foo}, Spec: spec})
		return
	}
	foo := s.foo(op.Foo)
	if foo == nil {
		return
	}
	switch op.Verb {
	case ScaleFoo:
		s.changeFoo(op.Foo, func(spec *v1alpha1.FooSpec) { spec.Replicas = ptr.To(op.Replicas) })
	case SetImage:
		s.changeFoo(op.Foo, func(spec *v1alpha1.FooSpec) { spec.Image = op.NewImage })
	case Rename:
		s.rename(op.Foo, op.Deployment)
	case Swap:
		if other := s.foo(op.Other); other != nil {
			a, b := foo.Spec.DeploymentName, other.Spec.DeploymentName
			s.rename(op.Foo, b)
			s.rename(op.Other, a)
		}
	case DeleteFoo:
		s.must(s.remove(s.foos, op.Foo, metav1.DeleteOptions{PropagationPolicy: &op.Propagation}))
	case RecreateFoo:
		s.must(s.remove(s.foos, op.Foo, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}))
		s.Create(Foos, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: op.Foo}, Spec: foo.Spec})
	case AddCondition:
		foo = copyOf(foo)
		meta.SetStatusCondition(&foo.Status.Conditions, metav1.Condition{
			Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Kept", Message: "another controller's", LastTransitionTime: s.now(),
		})
		s.replace(s.foos, foo)
	}
}

func (s *Store) must(err error) {
	if err != nil {
		panic(err)
	}
}

func (s *Store) changeFoo(name string, change func(*v1alpha1.FooSpec)) {
	foo := copyOf(s.foo(name))
	// The schema refuses other changes as long as there is no name.
	if foo.Spec.DeploymentName != "" {
		change(&foo.Spec)
		s.replace(s.foos, foo)
	}
}

func (s *Store) rename(name, deployment string) {
	foo := copyOf(s.foo(name))
	if deployment == "" {
		return
	}
	if foo.Spec.Replicas == nil {
		foo.Spec.Replicas = ptr.To[int32](1)
	}
	foo.Spec.DeploymentName = deployment
	s.replace(s.foos, foo)
}

func (s *Store) doToDeployment(op Op) {
	switch deployment := s.deployment(op.Deployment); op.Verb {
	case CreateForeign:
		s.Create(Deployments, ForeignDeployment(op.Deployment))
	case CopyDeployment:
		if deployment != nil {
			s.Create(Deployments, CopyOfDeployment(deployment, op.Other))
		}
	case DeleteDeployment:
		s.Delete(Deployments, op.Deployment, op.Propagation)
	case EditDeployment:
		s.Change(Deployments, op.Deployment, func(object Object) { s.Edit(object.(*appsv1.Deployment), op) })
	}
}

// admit returns the object as the policy of Rewrite changes Deployments, if that is in force.
func (s *Store) admit(object Object) Object {
	deployment, ok := object.(*appsv1.Deployment)
	if !ok {
		return object
	}
	if s.strips {
		deployment.OwnerReferences = nil
	}
	for i := range deployment.Spec.Template.Spec.Containers {
		if image := &deployment.Spec.Template.Spec.Containers[i].Image; s.rewrites && !strings.HasPrefix(*image, Mirror) {
			*image = Mirror + *image
		}
	}
	return deployment
}

// Edit changes the Deployment as the operation asks.
func (s *Store) Edit(deployment *appsv1.Deployment, op Op) {
	spec := &deployment.Spec
	switch op.Edit {
	case EditReplicas:
		spec.Replicas = ptr.To(op.Replicas)
	case EditImage:
		spec.Template.Spec.Containers[0].Image = "nginx:theirs"
	case EditUnlabel:
		delete(deployment.Labels, managedByLabel)
	case EditOtherFields:
		metav1.SetMetaDataLabel(&deployment.ObjectMeta, "theirs", "kept")
		metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, "theirs", "kept")
		if len(spec.Template.Spec.Containers) == 1 {
			spec.Template.Spec.Containers = append(spec.Template.Spec.Containers, corev1.Container{Name: "sidecar", Image: "sidecar:1"})
		}
	case EditPause, EditResume:
		spec.Paused = op.Edit == EditPause
	case EditRecreate:
		spec.Strategy = appsv1.DeploymentStrategy{Type: appsv1.RecreateDeploymentStrategyType}
	case EditRelease:
		deployment.OwnerReferences = nil
	case EditHandOver:
		if foo := s.foo(op.Foo); foo != nil {
			deployment.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(foo, schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Foo"))}
		}
	case EditAskAdoption:
		metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, v1alpha1.AdoptByAnnotation, op.Foo)
	case EditLargeAnnotation:
		metav1.SetMetaDataAnnotation(&deployment.ObjectMeta, "large", strings.Repeat("x", largeAnnotation))
	case EditNoController:
		for i := range deployment.OwnerReferences {
			deployment.OwnerReferences[i].Controller = ptr.To(false)
		}
	case EditUnblock:
		for i := range deployment.OwnerReferences {
			deployment.OwnerReferences[i].BlockOwnerDeletion = ptr.To(false)
		}
	case EditAddFinalizer:
		// The API server refuses new finalizers on an object that is being deleted.
		if deployment.DeletionTimestamp == nil && !slices.Contains(deployment.Finalizers, HoldFinalizer) {
			deployment.Finalizers = append(deployment.Finalizers, HoldFinalizer)
		}
	case EditRemoveFinalizer:
		deployment.Finalizers = slices.DeleteFunc(deployment.Finalizers, func(f string) bool { return f == HoldFinalizer })
	}
}

// CopyOfDeployment returns what a user creates from the Deployment's manifest. kubectl prints
// no managed fields.
func CopyOfDeployment(deployment *appsv1.Deployment, name string) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: name, Labels: maps.Clone(deployment.Labels), Annotations: maps.Clone(deployment.Annotations), OwnerReferences: slices.Clone(deployment.OwnerReferences)},
		Spec:       *deployment.Spec.DeepCopy(),
	}
}

// ForeignDeployment returns a Deployment that no Foo owns.
func ForeignDeployment(name string) *appsv1.Deployment {
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
