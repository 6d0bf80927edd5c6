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

// Package sim simulates a cluster in memory for a controller of Foos: the API server,
// the garbage collector, the Deployment controller, users, and faults of the network and
// of the process. It generates sequences of operations on a few Foos and Deployments in
// one namespace, prints them as a script, and checks the invariants of docs/contract.md
// at each write and in the final state. It shares no code with the controller: a shared
// mistake would stay unnoticed. test/compare compares its API server with a real one.
package sim

import (
	"slices"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"
)

// Verb says what an operation does.
type Verb string

// What users do.
const (
	CreateFoo        Verb = "create a Foo"
	ScaleFoo         Verb = "scale a Foo"
	SetImage         Verb = "set the image of a Foo"
	Rename           Verb = "rename the Deployment of a Foo"
	Swap             Verb = "swap the names of two Foos"
	RollBack         Verb = "rename the Deployment of a Foo back"
	DeleteFoo        Verb = "delete a Foo"
	RecreateFoo      Verb = "delete and recreate a Foo"
	AddCondition     Verb = "add a condition of another controller"
	CreateForeign    Verb = "create a Deployment without an owner"
	CopyDeployment   Verb = "copy a Deployment, owner references included"
	EditDeployment   Verb = "edit a Deployment"
	DeleteDeployment Verb = "delete a Deployment"
	// Autoscale sets the replicas of a Deployment at once and then as often as a
	// HorizontalPodAutoscaler does.
	Autoscale Verb = "let a HorizontalPodAutoscaler scale a Deployment"
	// Rewrite begins to change the registry of all images that are written, as a
	// MutatingAdmissionPolicy does, until the end of the sequence and beyond.
	Rewrite Verb = "let a policy rewrite images"
	// Refuse begins to refuse every write to a Deployment, as a ValidatingAdmissionPolicy does; with a
	// Count of 0 it ends that.
	Refuse Verb = "let a policy refuse writes"
	// DeleteNamespace deletes the namespace, which is terminating from then on.
	DeleteNamespace Verb = "delete the namespace"
)

// Faults.
const (
	// FailRequests makes the next requests of the controller fail.
	FailRequests Verb = "let requests fail"
	// Kill ends the controller's process without a shutdown, as a power failure does,
	// and starts another one.
	Kill Verb = "kill the controller"
	// Forget drops what the process remembers between syncs.
	Forget Verb = "drop the memory of the process"
	// Hold delays the watch events of one resource.
	Hold Verb = "hold back the events of a resource"
	// Break ends the watch of one resource, so that the informer lists it again.
	Break Verb = "break the watch of a resource"
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

// Failure is a way in which a request can fail.
type Failure string

// All failures. The API server does not apply the first five; it applies the last two.
const (
	Conflict         Failure = "refused with 409"
	TooMany          Failure = "refused with 429 and Retry-After: 1"
	Internal         Failure = "refused with 500"
	Unreachable      Failure = "lost on the way"
	Forbidden        Failure = "refused with 403"
	AnswerLost       Failure = "applied, but the answers are lost"
	KilledAfterWrite Failure = "applied, and the controller is killed before it gets the answer"
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
	Mirror = "mirror.example/"
	// autoscalerPeriod is the default period of kube-controller-manager.
	autoscalerPeriod = 15 * time.Second
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
	Failure                Failure
	// Count is how many requests fail.
	Count    int
	Resource string
	// For is how long a fault or an autoscaler lasts.
	For time.Duration

	// Before delays the operation until the API server receives that many more requests
	// of the controller, so that it happens in the middle of a sync. With 0 it happens at
	// once.
	Before int
	// Then is the pause after the operation.
	Then time.Duration
}

// Sequence is a list of operations, and the parameters of the cluster.
type Sequence struct {
	// Workers is how many Foos the controller syncs in parallel.
	Workers int
	// Collection and Rollout are the durations of one step of the garbage collector and
	// of the Deployment controller.
	Collection, Rollout time.Duration
	Ops                 []Op
}

// Profile restricts what Generate generates.
type Profile struct {
	// Settled leaves faults out and waits after each operation until nothing changes any
	// more, so that the outcome does not depend on the order of concurrent writes.
	Settled bool
	// RealCluster leaves out faults that need access to the process, edits that the
	// invariants of a real cluster cannot tell from a mistake of the controller, and
	// contention over a field, which lasts for minutes.
	RealCluster bool
	// MinOps and MaxOps bound the length of a sequence.
	MinOps, MaxOps int
}

// settlingTime is how long the cluster needs at most until nothing changes any more after
// an operation without faults.
const settlingTime = 2 * time.Minute

// Generate returns a generator of sequences.
func Generate(profile Profile) *rapid.Generator[Sequence] {
	return rapid.Custom(func(t *rapid.T) Sequence {
		s := Sequence{
			Workers:    rapid.SampledFrom([]int{1, 1, 1, 3}).Draw(t, "workers"),
			Collection: rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second}).Draw(t, "collection"),
			Rollout:    rapid.SampledFrom([]time.Duration{3 * time.Millisecond, 200 * time.Millisecond, 3 * time.Second, 10 * time.Second}).Draw(t, "rollout"),
		}
		s.Ops = rapid.SliceOfN(rapid.Custom(profile.draw), max(1, profile.MinOps), profile.MaxOps).Draw(t, "ops")
		if profile.RealCluster {
			s.Ops = append(firstOps(), withoutContention(s.Ops)...)
		}
		return s
	})
}

// firstOps gives two Foos a Deployment each. Most operations need that, and there is time
// for few sequences on a real cluster.
func firstOps() []Op {
	return []Op{
		{Verb: CreateFoo, Foo: "x", Deployment: "a", Replicas: 1},
		{Verb: CreateFoo, Foo: "y", Deployment: "b", Replicas: 1, Then: time.Second},
	}
}

// withoutContention keeps the first few edits and deletions that the controller reverts.
func withoutContention(ops []Op) []Op {
	reverted := 0
	return slices.DeleteFunc(ops, func(op Op) bool {
		edit := op.Verb == EditDeployment && slices.Contains([]Edit{EditReplicas, EditImage, EditUnlabel, EditUnblock}, op.Edit)
		if !edit && op.Verb != DeleteDeployment {
			return false
		}
		reverted++
		return reverted > 4
	})
}

// verbs returns all verbs of the profile. One that is listed more often is drawn more
// often.
func (p Profile) verbs() []Verb {
	verbs := []Verb{
		CreateFoo, CreateFoo, CreateFoo, CreateFoo, CreateFoo, CreateFoo,
		Rename, Rename, Rename, Rename, Rename, Rename, Swap, Swap, ScaleFoo, ScaleFoo, SetImage,
		DeleteFoo, DeleteFoo, RecreateFoo, RecreateFoo, AddCondition, CreateForeign,
		EditDeployment, EditDeployment, EditDeployment, EditDeployment, EditDeployment, EditDeployment,
		DeleteDeployment, DeleteDeployment,
	}
	if !p.Settled {
		verbs = append(verbs, FailRequests, FailRequests, FailRequests, FailRequests, Kill)
	}
	if !p.RealCluster {
		verbs = append(verbs, RollBack, RollBack, CopyDeployment)
	}
	if !p.Settled && !p.RealCluster {
		verbs = append(verbs, Hold, Hold, Hold, Hold, Forget, Forget, Break, Autoscale, Rewrite)
	}
	return verbs
}

// draw draws one operation.
func (p Profile) draw(t *rapid.T) Op {
	op := Op{Verb: rapid.SampledFrom(p.verbs()).Draw(t, "verb")}
	switch op.Verb {
	case CreateFoo:
		// A Foo without a spec was stored before the CRD had a schema.
		op.Deployment = rapid.SampledFrom([]string{"a", "b", "a", "b", "a", "b", "c", "d", ""}).Draw(t, "deployment")
		op.Foo, op.Replicas = drawFoo(t), drawReplicas(t)
		op.NewImage = rapid.SampledFrom([]string{"", "nginx:1"}).Draw(t, "image")
	case ScaleFoo:
		op.Foo, op.Replicas = drawFoo(t), drawReplicas(t)
	case SetImage:
		images := []string{"nginx:1", "nginx:2", ""}
		if !p.RealCluster {
			images = append(images, StalledImage, StalledImage)
		}
		op.Foo, op.NewImage = drawFoo(t), rapid.SampledFrom(images).Draw(t, "image")
	case Rename:
		op.Foo, op.Deployment = drawFoo(t), drawName(t)
	case Swap:
		op.Foo, op.Other = drawFoo(t), drawFoo(t)
	case DeleteFoo:
		op.Foo, op.Propagation = drawFoo(t), drawPropagation(t)
	case RecreateFoo, AddCondition, RollBack:
		op.Foo = drawFoo(t)
	case CreateForeign:
		op.Deployment = drawName(t)
	case CopyDeployment:
		op.Deployment, op.Other = drawName(t), drawName(t)
	case EditDeployment:
		p.drawEdit(t, &op)
	case Autoscale:
		op.Deployment, op.Replicas = drawName(t), drawReplicas(t)
		op.For = rapid.SampledFrom([]time.Duration{time.Minute, 5 * time.Minute}).Draw(t, "for")
	case DeleteDeployment:
		op.Deployment, op.Propagation = drawName(t), drawPropagation(t)
	case FailRequests:
		op.Failure = rapid.SampledFrom([]Failure{Conflict, TooMany, Internal, Unreachable, Forbidden, AnswerLost, KilledAfterWrite}).Draw(t, "failure")
		op.Count = rapid.IntRange(1, 6).Draw(t, "count")
	case Hold:
		op.Resource = drawResource(t)
		op.For = rapid.SampledFrom([]time.Duration{2 * time.Second, 50 * time.Millisecond, 40 * time.Second, 2 * time.Minute}).Draw(t, "for")
	case Break:
		op.Resource = drawResource(t)
	}
	p.drawTiming(t, &op)
	return op
}

func (p Profile) drawEdit(t *rapid.T, op *Op) {
	edits := []Edit{
		EditReplicas, EditImage, EditUnlabel, EditOtherFields, EditPause, EditResume, EditUnblock, EditAddFinalizer, EditRemoveFinalizer,
		EditRelease, EditRelease, EditNoController,
	}
	if !p.RealCluster {
		edits = append(edits, EditHandOver, EditHandOver, EditHandOver, EditRecreate, EditRecreate, EditAskAdoption, EditAskAdoption, EditAskAdoption, EditLargeAnnotation)
	}
	op.Deployment, op.Edit = drawName(t), rapid.SampledFrom(edits).Draw(t, "edit")
	switch op.Edit {
	case EditReplicas:
		op.Replicas = drawReplicas(t)
	case EditHandOver, EditAskAdoption:
		op.Foo = drawFoo(t)
	}
}

// drawTiming draws when an operation happens, and the pause after it.
func (p Profile) drawTiming(t *rapid.T, op *Op) {
	switch {
	case p.Settled:
		op.Then = settlingTime
		return
	case p.RealCluster:
		op.Then = rapid.SampledFrom([]time.Duration{0, 5 * time.Millisecond, 50 * time.Millisecond, 500 * time.Millisecond, time.Second}).Draw(t, "then")
		return
	}
	op.Before = rapid.SampledFrom([]int{0, 0, 0, 0, 0, 0, 1, 2, 3, 4, 5}).Draw(t, "before")
	op.Then = rapid.SampledFrom([]time.Duration{0, 0, 5 * time.Millisecond, 50 * time.Millisecond, 2 * time.Second, time.Minute}).Draw(t, "then")
}

func drawFoo(t *rapid.T) string {
	return rapid.SampledFrom([]string{"x", "y", "x", "y", "z"}).Draw(t, "foo")
}

func drawName(t *rapid.T) string {
	return rapid.SampledFrom([]string{"a", "b", "a", "b", "c", "d"}).Draw(t, "deployment")
}

func drawReplicas(t *rapid.T) int32 {
	return rapid.Int32Range(0, 3).Draw(t, "replicas")
}

func drawPropagation(t *rapid.T) metav1.DeletionPropagation {
	return rapid.SampledFrom([]metav1.DeletionPropagation{
		metav1.DeletePropagationBackground, metav1.DeletePropagationForeground, metav1.DeletePropagationOrphan,
	}).Draw(t, "propagation")
}

func drawResource(t *rapid.T) string {
	return rapid.SampledFrom([]string{Foos, Deployments}).Draw(t, "resource")
}
