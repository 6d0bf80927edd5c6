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
	"fmt"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

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

const (
	// Mirror is the registry that Rewrite puts before images.
	Mirror = stored.Mirror
	// largeAnnotation is nearly as many bytes as the API server allows.
	largeAnnotation = 250_000
)

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
