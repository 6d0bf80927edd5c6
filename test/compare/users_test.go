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
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/sim"
)

var (
	fooVerbs = []sim.Verb{
		sim.CreateFoo, sim.CreateFoo, sim.CreateFoo, sim.CreateFoo, sim.ScaleFoo, sim.SetImage, sim.Rename, sim.Swap, sim.DeleteFoo, sim.DeleteFoo,
		sim.RecreateFoo, sim.AddCondition,
	}
	deploymentVerbs = []sim.Verb{sim.CreateForeign, sim.CreateForeign, sim.CopyDeployment, sim.DeleteDeployment, sim.EditDeployment}
	edits           = []sim.Edit{
		sim.EditReplicas, sim.EditImage, sim.EditUnlabel, sim.EditOtherFields, sim.EditPause, sim.EditResume, sim.EditRecreate, sim.EditRelease, sim.EditHandOver,
		sim.EditNoController, sim.EditUnblock, sim.EditAddFinalizer, sim.EditRemoveFinalizer, sim.EditAskAdoption, sim.EditLargeAnnotation,
	}
)

func (s *sequence) drawOperation() sim.Op {
	op := sim.Op{
		Verb: draw(s.random, slices.Concat(fooVerbs, deploymentVerbs, slices.Repeat([]sim.Verb{sim.EditDeployment}, 10))...), Foo: s.name(sim.Foos), Deployment: s.name(sim.Deployments),
		Replicas: s.random.Int32N(4), NewImage: draw(s.random, images...), Propagation: draw(s.random, propagations...), Edit: draw(s.random, edits...),
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

// operate does what a user does. The user of the real API server reads an object, changes it and writes it.
func (s *sequence) operate(op sim.Op) {
	c := cell{verb: string(op.Verb), resource: sim.Foos, precondition: none, state: s.state(sim.Foos, op.Foo)}
	if slices.Contains(deploymentVerbs, op.Verb) {
		c.resource, c.state = sim.Deployments, s.state(sim.Deployments, op.Deployment)
	}
	if op.Verb == sim.EditDeployment && s.policy == "" {
		c.verb = editing(op.Edit)
	}
	s.sent = append(s.sent, fmt.Sprintf("%+v %s", op, c.state))
	s.store.Do(op)
	objects, err := s.operateReally(op)
	text, changed := answer(err), s.settled < len(s.history)
	switch {
	case changed && err != nil && op.Verb != sim.RecreateFoo && op.Verb != sim.Swap:
		s.differ("the simulated API server did %+v, the real one answered %s", op, text)
	case changed || err != nil:
	case slices.ContainsFunc(objects, s.isReordered):
		text = reordered
	case !s.areKnown(objects):
		s.differ("the API server did %+v, the simulated one did not", op)
	default:
		text = "no change"
	}
	s.settle()
	s.table.add(s.inForce(c), text)
}

// areKnown reports whether none of the objects has a new version.
func (s *sequence) areKnown(objects []sim.Object) bool {
	return !slices.ContainsFunc(objects, func(o sim.Object) bool { return s.simulated[o.GetResourceVersion()] == "" })
}

// operateReally returns the answers, and the first error.
func (s *sequence) operateReally(op sim.Op) (answers []sim.Object, err error) {
	send := func(r *sim.Request) sim.Object {
		if err != nil {
			return nil
		}
		var object sim.Object
		if object, err = s.server.send(s.Context(), userName, s.namespace, r); object != nil {
			answers = append(answers, object)
		}
		return object
	}
	get := func(resource, name string) sim.Object {
		return send(&sim.Request{Verb: "get", Resource: resource, Name: name})
	}
	change := func(resource, name, subresource string, change func(sim.Object)) {
		if object := get(resource, name); object != nil {
			change(object)
			send(&sim.Request{Verb: "update", Resource: resource, Name: name, Subresource: subresource, Object: object})
		}
	}
	create := func(name string, spec v1alpha1.FooSpec) {
		send(&sim.Request{Verb: "create", Resource: sim.Foos, Object: &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: spec}})
	}
	remove := func(resource, name string, propagation metav1.DeletionPropagation) {
		send(&sim.Request{Verb: "delete", Resource: resource, Name: name, Options: metav1.DeleteOptions{PropagationPolicy: &propagation}})
	}
	rename := func(name, deployment string) {
		if deployment != "" {
			change(sim.Foos, name, "", func(o sim.Object) { o.(*v1alpha1.Foo).Spec.DeploymentName = deployment })
		}
	}
	switch op.Verb {
	case sim.CreateFoo:
		spec := v1alpha1.FooSpec{}
		if op.Deployment != "" {
			spec = v1alpha1.FooSpec{DeploymentName: op.Deployment, Replicas: &op.Replicas, Image: op.NewImage}
		}
		create(op.Foo, spec)
	case sim.ScaleFoo:
		change(sim.Foos, op.Foo, "", func(o sim.Object) { o.(*v1alpha1.Foo).Spec.Replicas = &op.Replicas })
	case sim.SetImage:
		change(sim.Foos, op.Foo, "", func(o sim.Object) { o.(*v1alpha1.Foo).Spec.Image = op.NewImage })
	case sim.Rename:
		rename(op.Foo, op.Deployment)
	case sim.Swap:
		foo, other := get(sim.Foos, op.Foo), get(sim.Foos, op.Other)
		if err == nil {
			rename(op.Foo, other.(*v1alpha1.Foo).Spec.DeploymentName)
			rename(op.Other, foo.(*v1alpha1.Foo).Spec.DeploymentName)
		}
	case sim.DeleteFoo:
		remove(sim.Foos, op.Foo, op.Propagation)
	case sim.RecreateFoo:
		foo := get(sim.Foos, op.Foo)
		remove(sim.Foos, op.Foo, metav1.DeletePropagationBackground)
		if err == nil {
			create(op.Foo, foo.(*v1alpha1.Foo).Spec)
		}
	case sim.AddCondition:
		change(sim.Foos, op.Foo, "status", func(o sim.Object) {
			meta.SetStatusCondition(&o.(*v1alpha1.Foo).Status.Conditions, metav1.Condition{
				Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Kept", Message: "another controller's", LastTransitionTime: now(),
			})
		})
	case sim.CreateForeign:
		send(&sim.Request{Verb: "create", Resource: sim.Deployments, Object: sim.ForeignDeployment(op.Deployment)})
	case sim.CopyDeployment:
		if object := get(sim.Deployments, op.Deployment); object != nil {
			send(&sim.Request{Verb: "create", Resource: sim.Deployments, Object: sim.CopyOfDeployment(object.(*appsv1.Deployment), op.Other)})
		}
	case sim.DeleteDeployment:
		remove(sim.Deployments, op.Deployment, op.Propagation)
	case sim.EditDeployment:
		change(sim.Deployments, op.Deployment, "", func(o sim.Object) {
			s.store.Edit(o.(*appsv1.Deployment), op)
			o.SetOwnerReferences(s.translateRefs(o.GetOwnerReferences()))
		})
	}
	return answers, err
}

// controlPlane lets the garbage collector or the Deployment controller of the simulated cluster write about one
// object, and sends the same to the real API server.
func (s *sequence) controlPlane() {
	name, c := s.name(sim.Deployments), cell{verb: "Deployment controller", resource: sim.Deployments}
	act := func() { s.store.RollOut(name) }
	switch s.random.IntN(3) {
	case 0:
		c.verb = "garbage collector"
		act = func() { s.store.Collect(sim.Deployments, name) }
	case 1:
		c.verb, c.resource, name = "garbage collector", sim.Foos, s.name(sim.Foos)
		act = func() { s.store.Collect(sim.Foos, name) }
	}
	c.state = s.state(c.resource, name)
	s.sent = append(s.sent, fmt.Sprintf("%s %s %s", c.verb, c.resource, name))
	text := "no change"
	if s.store.Objects(c.resource) != nil && c.state != absent {
		act()
	}
	for _, e := range s.history[s.settled:] {
		r := s.writeOf(e)
		if c.verb == "Deployment controller" {
			object, err := s.server.send(s.Context(), userName, s.namespace, &sim.Request{Verb: "get", Resource: sim.Deployments, Name: name})
			s.must(err)
			object.(*appsv1.Deployment).Status = e.Object.(*appsv1.Deployment).Status
			r = &sim.Request{Verb: "update", Resource: sim.Deployments, Name: name, Subresource: "status", Object: object}
		}
		_, err := s.server.send(s.Context(), userName, s.namespace, s.translate(r))
		if text = answer(err); err != nil {
			s.differ("the simulated %s wrote %+v, the real API server answered %s", c.verb, e, text)
		}
	}
	s.settle()
	s.table.add(s.inForce(c), text)
}

// writeOf returns the request of the garbage collector that led to the event.
func (s *sequence) writeOf(e event) *sim.Request {
	before := s.present[e.name()]
	r := &sim.Request{Verb: "patch", Resource: e.resource, Name: e.Object.GetName(), PatchType: types.MergePatchType}
	finalizers := e.Object.GetFinalizers()
	switch {
	case before.GetDeletionTimestamp() == nil && (e.Type == watch.Deleted || e.Object.GetDeletionTimestamp() != nil):
		r.Verb = "delete"
		r.Options = metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground), Preconditions: &metav1.Preconditions{UID: ptr.To(before.GetUID())}}
		return r
	case e.Type == watch.Deleted:
		finalizers = nil
	}
	r.Patch = encode(map[string]any{"metadata": map[string]any{"finalizers": finalizers, "ownerReferences": e.Object.GetOwnerReferences()}})
	return r
}
