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

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/sim"
)

// The controllers of the control plane.
const (
	collector = "garbage collector"
	roller    = "Deployment controller"
)

var (
	fooVerbs = []sim.Verb{
		sim.CreateFoo, sim.CreateFoo, sim.CreateFoo, sim.CreateFoo, sim.ScaleFoo, sim.SetImage, sim.Rename, sim.Swap,
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
	case sim.Swap:
		op.Other = draw(s.random, fooNames...)
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
	u.do(op)
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

func (u *user) get(resource, name string) sim.Object {
	return u.send(&sim.Request{Verb: "get", Resource: resource, Name: name})
}

func (u *user) create(resource string, object sim.Object) {
	u.send(&sim.Request{Verb: "create", Resource: resource, Object: object})
}

func (u *user) delete(resource, name string, propagation metav1.DeletionPropagation) {
	u.send(&sim.Request{Verb: "delete", Resource: resource, Name: name, Options: metav1.DeleteOptions{PropagationPolicy: &propagation}})
}

// change writes the object, whose owners the change may take from the store.
func (u *user) change(resource, name, subresource string, change func(sim.Object)) {
	if object := u.get(resource, name); object != nil {
		change(object)
		refs := object.GetOwnerReferences()
		for i := range refs {
			refs[i].UID = types.UID(cmp.Or(u.real[string(refs[i].UID)], string(refs[i].UID)))
		}
		u.send(&sim.Request{Verb: "update", Resource: resource, Name: name, Subresource: subresource, Object: object})
	}
}

func (u *user) changeSpec(name string, change func(*v1alpha1.FooSpec)) {
	u.change(sim.Foos, name, "", func(o sim.Object) { change(&o.(*v1alpha1.Foo).Spec) })
}

func (u *user) do(op sim.Op) {
	foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: op.Foo}}
	switch op.Verb {
	case sim.CreateFoo:
		if op.Deployment != "" {
			foo.Spec = v1alpha1.FooSpec{DeploymentName: op.Deployment, Replicas: &op.Replicas, Image: op.NewImage}
		}
		u.create(sim.Foos, foo)
	case sim.ScaleFoo:
		u.changeSpec(op.Foo, func(spec *v1alpha1.FooSpec) { spec.Replicas = &op.Replicas })
	case sim.SetImage:
		u.changeSpec(op.Foo, func(spec *v1alpha1.FooSpec) { spec.Image = op.NewImage })
	case sim.Rename:
		u.changeSpec(op.Foo, func(spec *v1alpha1.FooSpec) { spec.DeploymentName = op.Deployment })
	case sim.Swap:
		one, other := u.get(sim.Foos, op.Foo), u.get(sim.Foos, op.Other)
		if u.err == nil {
			a, b := one.(*v1alpha1.Foo).Spec.DeploymentName, other.(*v1alpha1.Foo).Spec.DeploymentName
			u.changeSpec(op.Foo, func(spec *v1alpha1.FooSpec) { spec.DeploymentName = cmp.Or(b, a) })
			u.changeSpec(op.Other, func(spec *v1alpha1.FooSpec) { spec.DeploymentName = cmp.Or(a, b) })
		}
	case sim.DeleteFoo:
		u.delete(sim.Foos, op.Foo, op.Propagation)
	case sim.RecreateFoo:
		former := u.get(sim.Foos, op.Foo)
		u.delete(sim.Foos, op.Foo, metav1.DeletePropagationBackground)
		if u.err == nil {
			foo.Spec = former.(*v1alpha1.Foo).Spec
			u.create(sim.Foos, foo)
		}
	case sim.AddCondition:
		u.change(sim.Foos, op.Foo, "status", func(o sim.Object) {
			meta.SetStatusCondition(&o.(*v1alpha1.Foo).Status.Conditions, metav1.Condition{
				Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Kept", Message: "another controller's", LastTransitionTime: now(),
			})
		})
	case sim.CreateForeign:
		u.create(sim.Deployments, sim.ForeignDeployment(op.Deployment))
	case sim.CopyDeployment:
		if object := u.get(sim.Deployments, op.Deployment); object != nil {
			u.create(sim.Deployments, sim.CopyOfDeployment(object.(*appsv1.Deployment), op.Other))
		}
	case sim.DeleteDeployment:
		u.delete(sim.Deployments, op.Deployment, op.Propagation)
	case sim.EditDeployment:
		u.change(sim.Deployments, op.Deployment, "", func(o sim.Object) { u.store.Edit(o.(*appsv1.Deployment), op) })
	}
}

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
			u.change(e.resource, name, "status", func(o sim.Object) { o.(*appsv1.Deployment).Status = e.Object.(*appsv1.Deployment).Status })
		case before.GetDeletionTimestamp() == nil && (e.Type == watch.Deleted || e.Object.GetDeletionTimestamp() != nil):
			u.delete(e.resource, before.GetName(), metav1.DeletePropagationBackground)
		default:
			u.change(e.resource, before.GetName(), "", func(o sim.Object) {
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
