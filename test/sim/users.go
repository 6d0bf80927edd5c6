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
	"cmp"
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

// User is what users have of an API server. Each method does nothing if it cannot: like kubectl, it fails.
type User interface {
	// Get returns an object, nil if there is none. A resource may be a subresource, such as foos/status.
	Get(resource, name string) Object
	Create(resource string, object Object)
	Change(resource, name string, change func(Object))
	Delete(resource, name string, propagation metav1.DeletionPropagation)
	Now() metav1.Time
}

// Do does the operation, but for Rewrite, which is no request.
func (op Op) Do(u User) {
	switch op.Verb {
	case CreateFoo:
		spec := v1alpha1.FooSpec{}
		if op.Deployment != "" {
			spec = v1alpha1.FooSpec{DeploymentName: op.Deployment, Replicas: ptr.To(op.Replicas), Image: op.NewImage}
		}
		u.Create(Foos, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: op.Foo}, Spec: spec})
	case ScaleFoo:
		changeSpec(u, op.Foo, func(spec *v1alpha1.FooSpec) { spec.Replicas = ptr.To(op.Replicas) })
	case SetImage:
		changeSpec(u, op.Foo, func(spec *v1alpha1.FooSpec) { spec.Image = op.NewImage })
	// +drop:rename
	case Rename:
		changeSpec(u, op.Foo, func(spec *v1alpha1.FooSpec) { spec.DeploymentName = op.Deployment })
	case Swap:
		one, other := u.Get(Foos, op.Foo), u.Get(Foos, op.Other)
		if one != nil && other != nil {
			a, b := one.(*v1alpha1.Foo).Spec.DeploymentName, other.(*v1alpha1.Foo).Spec.DeploymentName
			changeSpec(u, op.Foo, func(spec *v1alpha1.FooSpec) { spec.DeploymentName = cmp.Or(b, a) })
			changeSpec(u, op.Other, func(spec *v1alpha1.FooSpec) { spec.DeploymentName = cmp.Or(a, b) })
		}
	// +drop:end
	case DeleteFoo:
		u.Delete(Foos, op.Foo, op.Propagation)
	case RecreateFoo:
		if former := u.Get(Foos, op.Foo); former != nil {
			u.Delete(Foos, op.Foo, metav1.DeletePropagationBackground)
			u.Create(Foos, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: op.Foo}, Spec: former.(*v1alpha1.Foo).Spec})
		}
	case AddCondition:
		u.Change(Foos+"/status", op.Foo, func(object Object) {
			meta.SetStatusCondition(&object.(*v1alpha1.Foo).Status.Conditions, metav1.Condition{
				Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Kept", Message: "another controller's", LastTransitionTime: u.Now(),
			})
		})
	case CreateForeign:
		u.Create(Deployments, ForeignDeployment(op.Deployment))
	case CopyDeployment:
		if original := u.Get(Deployments, op.Deployment); original != nil {
			u.Create(Deployments, copyOfDeployment(original.(*appsv1.Deployment), op.Other))
		}
	case DeleteDeployment:
		u.Delete(Deployments, op.Deployment, op.Propagation)
	case EditDeployment:
		op.edit(u)
	}
}

func changeSpec(u User, name string, change func(*v1alpha1.FooSpec)) {
	u.Change(Foos, name, func(object Object) { change(&object.(*v1alpha1.Foo).Spec) })
}

// edit changes a Deployment.
func (op Op) edit(u User) {
	var foo *v1alpha1.Foo
	if op.Edit == EditHandOver {
		foo, _ = u.Get(Foos, op.Foo).(*v1alpha1.Foo)
	}
	u.Change(Deployments, op.Deployment, func(object Object) { op.change(object.(*appsv1.Deployment), foo) })
}

func (op Op) change(deployment *appsv1.Deployment, foo *v1alpha1.Foo) {
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
		metav1.SetMetaDataLabel(&spec.Template.ObjectMeta, "theirs", "kept")
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
		if foo != nil {
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

// copyOfDeployment returns what a user creates from the Deployment's manifest. kubectl prints
// no managed fields.
func copyOfDeployment(deployment *appsv1.Deployment, name string) *appsv1.Deployment {
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
