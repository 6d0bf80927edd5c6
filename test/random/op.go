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

// Package random generates sequences of what users and fate can do to a few Foos
// and Deployments in one namespace, prints them as a script, and judges what there
// is in the end by the contract alone. It shares no code with the controller,
// since that would prove nothing. The sequences are played by the root package's
// tests against an API server in memory, and by test/faults against a real one.
package random

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
	DeleteFoo        Verb = "delete a Foo"
	RecreateFoo      Verb = "delete a Foo and create it anew at once"
	AddCondition     Verb = "write a condition of another controller's"
	CreateForeign    Verb = "create a Deployment that is no Foo's"
	EditDeployment   Verb = "edit a Deployment"
	DeleteDeployment Verb = "delete a Deployment"
)

// What fate does.
const (
	// Strike lets the next requests of the controller's fail.
	Strike Verb = "let requests fail"
	// Kill ends the controller's process as a power failure would, and starts
	// another one.
	Kill Verb = "kill the controller"
	// Forget drops what the process remembers between syncs.
	Forget Verb = "drop the memory of the process"
	// Hold keeps the events of one resource back for a while.
	Hold Verb = "hold back the events of a resource"
	// Break ends the watch of one resource, so that it is listed anew.
	Break Verb = "break the watch of a resource"
)

// Edit is a change that somebody makes to a Deployment by hand.
type Edit string

// All edits.
const (
	EditReplicas     Edit = "replicas"
	EditImage        Edit = "image"
	EditUnlabel      Edit = "label removed"
	EditTheirs       Edit = "fields of others"
	EditPause        Edit = "paused"
	EditResume       Edit = "resumed"
	EditRelease      Edit = "owner references removed"
	EditHandOver     Edit = "handed over"
	EditNoController Edit = "controller: false"
	EditUnblock      Edit = "blockOwnerDeletion: false"
	EditHold         Edit = "finalizer added"
	EditUnhold       Edit = "finalizer removed"
)

// Failure is a way in which a request can fail.
type Failure string

// All failures. The first ones are refusals, the last two are applied.
const (
	Conflict     Failure = "refused with 409"
	TooMany      Failure = "refused with 429 and Retry-After: 1"
	Internal     Failure = "refused with 500"
	Unreachable  Failure = "lost on the way"
	Forbidden    Failure = "refused with 403"
	AnswerLost   Failure = "applied, but the answers are lost"
	KilledBefore Failure = "applied, and the controller is killed before it learns of that"
)

// The two resources.
const (
	Foos        = "foos"
	Deployments = "deployments"
)

// HoldFinalizer keeps a Deployment that was deleted. At the end of a sequence it
// is removed everywhere.
const HoldFinalizer = "example.com/hold"

// Op is one operation. Which fields count depends on the verb.
type Op struct {
	Verb Verb
	// Foo and Other are names of Foos, Deployment is one of a Deployment.
	Foo, Other, Deployment string
	Replicas               int32
	Image                  string
	Propagation            metav1.DeletionPropagation
	Edit                   Edit
	Failure                Failure
	// Count is how many requests fail.
	Count    int
	Resource string
	// For is how long something lasts.
	For time.Duration

	// Before delays the operation to the moment at which the controller is about
	// to send that many more requests, so that it falls into the midst of a sync;
	// with 0 it happens at once.
	Before int
	// Then is how long nothing happens afterwards.
	Then time.Duration
}

// Sequence is a list of operations, and the cluster that they happen in.
type Sequence struct {
	// Workers is how many Foos the controller syncs at the same time.
	Workers int
	// Collection and Rollout are how long the garbage collector and the Deployment
	// controller take for each of their steps.
	Collection, Rollout time.Duration
	Ops                 []Op
}

// Kind restricts what is generated.
type Kind struct {
	// Calm leaves faults out and lets everything come to rest after each operation,
	// so that the outcome does not depend on who is faster.
	Calm bool
	// Real leaves out what cannot be done to a process from outside, what the judge
	// of a real cluster cannot tell from a fault, and fights, which last for minutes.
	Real bool
	// MinOps and MaxOps bound the length of a sequence.
	MinOps, MaxOps int
}

// Rest is long enough for all to come to rest after an operation without faults.
const Rest = 40 * time.Second

// Generate returns a generator of sequences.
func Generate(kind Kind) *rapid.Generator[Sequence] {
	return rapid.Custom(func(t *rapid.T) Sequence {
		s := Sequence{
			Workers:    rapid.SampledFrom([]int{1, 1, 1, 3}).Draw(t, "workers"),
			Collection: rapid.SampledFrom([]time.Duration{100 * time.Millisecond, time.Second, 10 * time.Second}).Draw(t, "collection"),
			Rollout:    rapid.SampledFrom([]time.Duration{3 * time.Millisecond, 200 * time.Millisecond, 3 * time.Second}).Draw(t, "rollout"),
		}
		s.Ops = rapid.SliceOfN(rapid.Custom(kind.draw), max(1, kind.MinOps), kind.MaxOps).Draw(t, "ops")
		if kind.Real {
			s.Ops = append(beginning(), withoutFights(s.Ops)...)
		}
		return s
	})
}

// beginning gives two Foos a Deployment each. A real cluster allows few sequences,
// and most of what is worth trying needs that.
func beginning() []Op {
	return []Op{
		{Verb: CreateFoo, Foo: "x", Deployment: "a", Replicas: 1},
		{Verb: CreateFoo, Foo: "y", Deployment: "b", Replicas: 1, Then: time.Second},
	}
}

// withoutFights keeps the first few edits that the controller reverts.
func withoutFights(ops []Op) []Op {
	reverted := 0
	return slices.DeleteFunc(ops, func(op Op) bool {
		if op.Verb != EditDeployment || !slices.Contains([]Edit{EditReplicas, EditImage, EditUnlabel, EditUnblock}, op.Edit) {
			return false
		}
		reverted++
		return reverted > 4
	})
}

// verbs lists each verb as often as it is to come.
func (k Kind) verbs() []Verb {
	verbs := []Verb{
		CreateFoo, CreateFoo, CreateFoo, CreateFoo, CreateFoo, CreateFoo,
		Rename, Rename, Rename, Rename, Rename, Rename, Swap, Swap, ScaleFoo, ScaleFoo, SetImage,
		DeleteFoo, DeleteFoo, RecreateFoo, RecreateFoo, AddCondition, CreateForeign,
		EditDeployment, EditDeployment, EditDeployment, EditDeployment, EditDeployment, EditDeployment,
		DeleteDeployment, DeleteDeployment,
	}
	if !k.Calm {
		verbs = append(verbs, Strike, Strike, Strike, Strike, Kill)
	}
	if !k.Calm && !k.Real {
		verbs = append(verbs, Hold, Hold, Hold, Hold, Forget, Forget, Break)
	}
	return verbs
}

// draw draws one operation.
func (k Kind) draw(t *rapid.T) Op {
	op := Op{Verb: rapid.SampledFrom(k.verbs()).Draw(t, "verb")}
	switch op.Verb {
	case CreateFoo:
		// A Foo without a spec is one that was stored before there was a schema.
		op.Deployment = rapid.SampledFrom([]string{"a", "b", "a", "b", "a", "b", "c", "d", ""}).Draw(t, "deployment")
		op.Foo, op.Replicas = drawFoo(t), drawReplicas(t)
		op.Image = rapid.SampledFrom([]string{"", "nginx:1"}).Draw(t, "image")
	case ScaleFoo:
		op.Foo, op.Replicas = drawFoo(t), drawReplicas(t)
	case SetImage:
		op.Foo, op.Image = drawFoo(t), rapid.SampledFrom([]string{"nginx:1", "nginx:2", ""}).Draw(t, "image")
	case Rename:
		op.Foo, op.Deployment = drawFoo(t), drawName(t)
	case Swap:
		op.Foo, op.Other = drawFoo(t), drawFoo(t)
	case DeleteFoo:
		op.Foo, op.Propagation = drawFoo(t), drawPropagation(t)
	case RecreateFoo, AddCondition:
		op.Foo = drawFoo(t)
	case CreateForeign:
		op.Deployment = drawName(t)
	case EditDeployment:
		k.drawEdit(t, &op)
	case DeleteDeployment:
		op.Deployment, op.Propagation = drawName(t), drawPropagation(t)
	case Strike:
		op.Failure = rapid.SampledFrom([]Failure{Conflict, TooMany, Internal, Unreachable, Forbidden, AnswerLost, KilledBefore}).Draw(t, "failure")
		op.Count = rapid.IntRange(1, 6).Draw(t, "count")
	case Hold:
		op.Resource = drawResource(t)
		op.For = rapid.SampledFrom([]time.Duration{2 * time.Second, 50 * time.Millisecond, 40 * time.Second, 2 * time.Minute}).Draw(t, "for")
	case Break:
		op.Resource = drawResource(t)
	}
	k.drawTiming(t, &op)
	return op
}

func (k Kind) drawEdit(t *rapid.T, op *Op) {
	edits := []Edit{
		EditReplicas, EditImage, EditUnlabel, EditTheirs, EditPause, EditResume, EditUnblock, EditHold, EditUnhold,
		EditRelease, EditRelease, EditNoController,
	}
	if !k.Real {
		edits = append(edits, EditHandOver, EditHandOver, EditHandOver)
	}
	op.Deployment, op.Edit = drawName(t), rapid.SampledFrom(edits).Draw(t, "edit")
	switch op.Edit {
	case EditReplicas:
		op.Replicas = drawReplicas(t)
	case EditHandOver:
		op.Foo = drawFoo(t)
	}
}

// drawTiming draws when an operation happens, and how long nothing does then.
func (k Kind) drawTiming(t *rapid.T, op *Op) {
	switch {
	case k.Calm:
		op.Then = Rest
		return
	case k.Real:
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
