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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

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
