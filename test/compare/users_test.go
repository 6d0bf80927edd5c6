//go:build compare

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

package compare

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/sample-controller/test/sim"
)

// The controllers of the control plane.
const (
	collector = "garbage collector"
	roller    = "Deployment controller"
)

var (
	fooVerbs = []sim.Verb{
		sim.CreateFoo, sim.CreateFoo, sim.CreateFoo, sim.CreateFoo, sim.ScaleFoo, sim.SetImage,
		sim.Rename, sim.Swap, // +drop:rename
		sim.DeleteFoo, sim.DeleteFoo, sim.RecreateFoo, sim.AddCondition,
	}
	deploymentVerbs = []sim.Verb{
		sim.CreateForeign, sim.CreateForeign, sim.CopyDeployment, sim.CopyDeployment, sim.DeleteDeployment, sim.DeleteDeployment,
		sim.EditDeployment,
	}
	edits = []sim.Edit{
		sim.EditReplicas, sim.EditImage, sim.EditUnlabel, sim.EditOtherFields, sim.EditPause, sim.EditResume, sim.EditRecreate,
		sim.EditRelease, sim.EditHandOver, sim.EditNoController, sim.EditUnblock, sim.EditAddFinalizer, sim.EditRemoveFinalizer,
		sim.EditAskAdoption, sim.EditLargeAnnotation,
	}
)

func (s *sequence) drawOperation() sim.Op {
	verbs := slices.Concat(fooVerbs, deploymentVerbs, slices.Repeat([]sim.Verb{sim.EditDeployment}, 12))
	op := sim.Op{
		Verb: draw(s.random, verbs...), Foo: s.name(sim.Foos), Deployment: s.name(sim.Deployments), Replicas: s.random.Int32N(4),
		NewImage: draw(s.random, images...), Propagation: draw(s.random, propagations...), Edit: draw(s.random, edits...),
	}
	if s.isEnding() && s.chance(50) {
		op.Verb = draw(s.random, sim.CreateFoo, sim.CreateForeign)
	}
	switch op.Verb {
	case sim.CreateFoo:
		op.Deployment = draw(s.random, append(deploymentNames, deploymentNames[0], "")...)
		op.NewImage = draw(s.random, "", op.NewImage)
	case sim.Swap: // +drop:rename
		op.Other = draw(s.random, fooNames...) // +drop:rename
	case sim.CopyDeployment:
		op.Other = draw(s.random, deploymentNames...)
	}
	return op
}

// operate does what a user does.
func (s *sequence) operate(op sim.Op) {
	c := cell{verb: string(op.Verb), resource: sim.Foos, precondition: none, state: s.state(sim.Foos, op.Foo)}
	if slices.Contains(deploymentVerbs, op.Verb) {
		c.resource, c.state = sim.Deployments, s.state(sim.Deployments, op.Deployment)
	}
	if op.Verb == sim.EditDeployment && s.policy != rewrite {
		c.verb = editing(op.Edit)
	}
	s.sent = append(s.sent, fmt.Sprintf("%+v: %s", op, c.state))
	s.store.Do(op)
	u := &user{sequence: s}
	op.Do(u)
	text := answer(u.err)
	if u.err == nil && s.settled == len(s.history) {
		if text = "no change"; slices.ContainsFunc(u.answers, s.isReordered) {
			text = reordered
		}
	}
	s.settle()
	s.table.add(s.inForce(c), text)
}

// user sends requests to the real API server: it reads an object, changes it and writes it. It stops at an error.
type user struct {
	*sequence

	answers []sim.Object
	err     error
}

func (u *user) send(r *sim.Request) (object sim.Object) {
	if u.err != nil {
		return nil
	}
	if object, u.err = u.server.send(u.Context(), userName, u.namespace, r); object != nil {
		u.answers = append(u.answers, object)
	}
	return object
}

// Get implements sim.User.
func (u *user) Get(resource, name string) sim.Object {
	return u.send(&sim.Request{Verb: "get", Resource: resource, Name: name})
}

// Create implements sim.User.
func (u *user) Create(resource string, object sim.Object) {
	u.send(&sim.Request{Verb: "create", Resource: resource, Object: object})
}

// Delete implements sim.User.
func (u *user) Delete(resource, name string, propagation metav1.DeletionPropagation) {
	u.send(&sim.Request{Verb: "delete", Resource: resource, Name: name, Options: metav1.DeleteOptions{PropagationPolicy: &propagation}})
}

// Change writes the object, whose owners the change may take from the store.
func (u *user) Change(path, name string, change func(sim.Object)) {
	resource, subresource, _ := strings.Cut(path, "/")
	if object := u.Get(resource, name); object != nil {
		change(object)
		refs := object.GetOwnerReferences()
		for i := range refs {
			refs[i].UID = types.UID(cmp.Or(u.real[string(refs[i].UID)], string(refs[i].UID)))
		}
		u.send(&sim.Request{Verb: "update", Resource: resource, Name: name, Subresource: subresource, Object: object})
	}
}

// Now implements sim.User.
func (u *user) Now() metav1.Time { return now() }

// controlPlane lets the garbage collector or the Deployment controller of the simulated cluster write about one
// object, and sends the same to the real API server.
func (s *sequence) controlPlane() {
	c := cell{verb: draw(s.random, collector, collector, roller), resource: draw(s.random, sim.Foos, sim.Deployments)}
	if c.verb == roller {
		c.resource = sim.Deployments
	}
	name := s.name(c.resource)
	c.state = s.state(c.resource, name)
	s.sent = append(s.sent, fmt.Sprintf("%s %s %s", c.verb, c.resource, name))
	if c.verb == collector {
		s.store.Collect(c.resource, name)
	} else {
		s.store.RollOut(name)
	}
	text := "no change"
	for _, e := range s.history[s.settled:] {
		u, before := &user{sequence: s}, s.present[e.name()]
		switch {
		case c.verb == roller:
			u.Change(e.resource+"/status", name, func(o sim.Object) { o.(*appsv1.Deployment).Status = e.Object.(*appsv1.Deployment).Status })
		case before.GetDeletionTimestamp() == nil && (e.Type == watch.Deleted || e.Object.GetDeletionTimestamp() != nil):
			u.Delete(e.resource, before.GetName(), metav1.DeletePropagationBackground)
		default:
			u.Change(e.resource, before.GetName(), func(o sim.Object) {
				o.SetOwnerReferences(slices.Clone(e.Object.GetOwnerReferences()))
				if o.SetFinalizers(e.Object.GetFinalizers()); e.Type == watch.Deleted {
					o.SetFinalizers(nil)
				}
			})
		}
		text = answer(u.err)
		s.must(u.err)
	}
	s.settle()
	s.table.add(s.inForce(c), text)
}
