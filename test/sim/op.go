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

// Package sim simulates a cluster in memory: the API server, the garbage collector, the Deployment controller, and
// what users do with a few Foos and Deployments in one namespace. It shares no code with the controller: a shared
// mistake would stay unnoticed. Explorations run controllers on it.
package sim

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/stored"
)

// Verb says what an operation does.
type Verb string

// What users do.
const (
	CreateFoo        Verb = "create a Foo"
	ScaleFoo         Verb = "scale a Foo"
	SetImage         Verb = "set the image of a Foo"
	Rename           Verb = "rename the Deployment of a Foo" // +drop:rename
	Swap             Verb = "swap the names of two Foos"     // +drop:rename
	DeleteFoo        Verb = "delete a Foo"
	RecreateFoo      Verb = "delete and recreate a Foo"
	AddCondition     Verb = "add a condition of another controller"
	CreateForeign    Verb = "create a Deployment without an owner"
	CopyDeployment   Verb = "copy a Deployment, owner references included"
	EditDeployment   Verb = "edit a Deployment"
	DeleteDeployment Verb = "delete a Deployment"
	// Rewrite begins to change the registry of all images that are written, as a MutatingAdmissionPolicy does.
	Rewrite Verb = "let a policy rewrite images"
)

// Edit is a change that a user makes to a Deployment.
type Edit string

// All edits.
const (
	EditReplicas        Edit = "replicas"
	EditImage           Edit = "image"
	EditUnlabel         Edit = "label removed"
	EditOtherFields     Edit = "fields of others"
	EditPause           Edit = "paused"
	EditResume          Edit = "resumed"
	EditRecreate        Edit = "strategy Recreate"
	EditRelease         Edit = "owner references removed"
	EditHandOver        Edit = "handed over"
	EditNoController    Edit = "controller: false"
	EditUnblock         Edit = "blockOwnerDeletion: false"
	EditAddFinalizer    Edit = "finalizer added"
	EditRemoveFinalizer Edit = "finalizer removed"
	EditAskAdoption     Edit = "adoption asked for"
	EditLargeAnnotation Edit = "large annotation"
)

// The two resources.
const (
	Foos        = "foos"
	Deployments = "deployments"
)

// StalledImage is an image whose Pods never become available.
const StalledImage = "nginx:stalled"

// largeAnnotation is nearly as many bytes as the API server allows.
const largeAnnotation = 250_000

// HoldFinalizer delays the deletion of a Deployment. At the end of a sequence it is
// removed from all Deployments.
const HoldFinalizer = "example.com/hold"

// Op is one operation. The verb determines which fields are used.
type Op struct {
	Verb Verb
	// Foo and Other are names of Foos, Deployment is one of a Deployment. Other is the name
	// of a copy of the Deployment.
	Foo, Other, Deployment string
	Replicas               int32
	NewImage               string
	Propagation            metav1.DeletionPropagation
	Edit                   Edit
}

// String tells the operation by what it uses.
func (op Op) String() string {
	uses := []string{string(op.Verb)}
	for _, use := range []string{op.Foo, op.Deployment, op.Other, op.NewImage, string(op.Propagation), string(op.Edit)} {
		if use != "" {
			uses = append(uses, use)
		}
	}
	if op.Verb == CreateFoo || op.Verb == ScaleFoo || op.Edit == EditReplicas {
		uses = append(uses, fmt.Sprint(op.Replicas))
	}
	return strings.Join(uses, " ")
}

// Operations returns a generator of operations of users on three Foos and four names.
func Operations() *rapid.Generator[Op] { return rapid.Custom(drawOp) }

// A verb that is listed more often is drawn more often.
func drawOp(t *rapid.T) Op {
	op := Op{Verb: rapid.SampledFrom([]Verb{
		CreateFoo, CreateFoo, CreateFoo, CreateFoo, CreateFoo, CreateFoo,
		Rename, Rename, Rename, Rename, Rename, Rename, Swap, Swap, // +drop:rename
		ScaleFoo, ScaleFoo, SetImage,
		DeleteFoo, DeleteFoo, RecreateFoo, RecreateFoo, AddCondition, CreateForeign, CopyDeployment,
		EditDeployment, EditDeployment, EditDeployment, EditDeployment, EditDeployment, EditDeployment,
		DeleteDeployment, DeleteDeployment, Rewrite,
	}).Draw(t, "verb")}
	op.Foo = rapid.SampledFrom([]string{"x", "y", "x", "y", "z"}).Draw(t, "foo")
	op.Deployment = rapid.SampledFrom([]string{"a", "b", "a", "b", "c", "d"}).Draw(t, "deployment")
	op.Replicas = rapid.Int32Range(0, 3).Draw(t, "replicas")
	switch op.Verb {
	case CreateFoo:
		op.NewImage = rapid.SampledFrom([]string{"", "nginx:1"}).Draw(t, "image")
		if rapid.IntRange(0, 9).Draw(t, "form") == 9 {
			// A Foo without a spec was stored before the CRD had a schema.
			op.Deployment = ""
		}
	case SetImage:
		op.NewImage = rapid.SampledFrom([]string{"nginx:1", "nginx:2", "", StalledImage, StalledImage}).Draw(t, "image")
	case Swap: // +drop:rename
		op.Other = rapid.SampledFrom([]string{"x", "y", "z"}).Draw(t, "other") // +drop:rename
	case CopyDeployment:
		op.Other = rapid.SampledFrom([]string{"a", "b", "c", "d"}).Draw(t, "copy")
	case DeleteFoo, DeleteDeployment:
		op.Propagation = rapid.SampledFrom([]metav1.DeletionPropagation{
			metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
		}).Draw(t, "propagation")
	case EditDeployment:
		op.Edit = rapid.SampledFrom([]Edit{
			EditReplicas, EditImage, EditUnlabel, EditOtherFields, EditPause, EditResume, EditUnblock, EditAddFinalizer, EditRemoveFinalizer,
			EditRelease, EditRelease, EditNoController, EditHandOver, EditHandOver, EditHandOver, EditRecreate, EditRecreate,
			EditAskAdoption, EditAskAdoption, EditAskAdoption, EditLargeAnnotation,
		}).Draw(t, "edit")
	}
	return op
}

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
		delete(deployment.Labels, stored.ManagedBy)
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
	meta := metav1.ObjectMeta{Name: name, Labels: deployment.Labels, Annotations: deployment.Annotations, OwnerReferences: deployment.OwnerReferences}
	return (&appsv1.Deployment{ObjectMeta: meta, Spec: deployment.Spec}).DeepCopy()
}

// ForeignDeployment returns a Deployment that no Foo owns.
func ForeignDeployment(name string) *appsv1.Deployment {
	deployment, labels := stored.Created(name, name, "nginx:foreign", ptr.To[int32](1)), map[string]string{"foreign": name}
	deployment.Labels, deployment.Spec.Selector.MatchLabels, deployment.Spec.Template.Labels = labels, labels, labels
	return deployment
}
