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

package explore

import (
	"context"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/sim"
	"example.com/sample-controller/test/stored"
)

// Foo has the invariants of docs/contract.md.
type Foo struct {
	// Past is what happened to each Foo.
	Past map[types.UID]Past
}

// FooKind is what Foos need to be explored.
func FooKind(build func(context.Context, Env) Controller) Kind {
	rollOut := Around{
		Name: "Deployment controller", Resource: sim.Deployments, Step: func(store *sim.Store, name string) { store.RollOut(name) },
	}
	return Kind{Build: build, Resources: sim.FooResources(), Around: []Around{rollOut}, Judge: &Foo{}}
}

// FooOperations are those operations of users.
func FooOperations(ops ...sim.Op) (all []Operation) {
	for _, op := range ops {
		all = append(all, Operation{op.String(), func(store *sim.Store) { store.Do(op) }})
	}
	return all
}

// Note implements Judge.
func (j *Foo) Note(c *ClusterState) Judge {
	return &Foo{c.note(j.Past, sim.Foos, sim.Deployments, func(owner, object sim.Object) (name string, isShown, isComplete bool) {
		spec := &owner.(*v1alpha1.Foo).Spec
		d, ok := object.(*appsv1.Deployment)
		if !ok || d.Name != spec.DeploymentName || !metav1.IsControlledBy(d, owner) {
			return spec.DeploymentName, false, false
		}
		waits := d.Spec.Replicas != nil && *d.Spec.Replicas == 0 || d.DeletionTimestamp != nil
		conforms := sim.Conforms(d, spec)
		return d.Name, conforms || waits, conforms && sim.RolledOut(d)
	})}
}

// Rest implements Judge.
func (j *Foo) Rest(c *ClusterState) []string {
	return slices.DeleteFunc(c.Store.State().Violations(), func(violation string) bool {
		// A policy refuses what this Foo asks for, as its condition says.
		return slices.ContainsFunc(c.Store.Objects(sim.Foos), func(object sim.Object) bool {
			foo := object.(*v1alpha1.Foo)
			ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady)
			return ready != nil && ready.Reason == v1alpha1.ReasonDeploymentRejected && (strings.HasPrefix(violation, "Foo "+foo.Name+" ") ||
				c.Store.Refused == sim.Deployments && strings.Contains(violation, "is left over: its Foo "+foo.Name+" "))
		})
	})
}

// Write implements Judge.
func (j *Foo) Write(before Judge, w *Write) (next Judge, violations []string) {
	violated := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	acting, _ := w.Acting.(*v1alpha1.Foo)
	if w.Err != nil || acting == nil || w.Request.Resource == sim.Deployments && w.Request.Verb != "create" && w.Before == nil {
		return j, nil
	}
	h := j.Past[acting.UID]
	switch {
	case w.Request.Subresource == "status":
		j.status(w.Before.(*v1alpha1.Foo), w.After.(*v1alpha1.Foo), violated)
		return j, violations
	case w.Request.Verb == "create":
		d := w.Request.Object.(*appsv1.Deployment)
		if owner := sim.Owner(d); owner == nil || owner.UID != acting.UID || !strings.Contains(h.Names, "/"+d.Name+"/") {
			violated("S2: Deployment %s was created for Foo %s, whose spec has named %s", d.Name, acting.Name, h.Names)
		}
		if image, wants := sim.ImageOf(d), acting.Spec.Image; image != "" && wants != "" && image != wants {
			violated("rule 4: Deployment %s was created with image %s for Foo %s, which asks for %s", d.Name, image, acting.Name, wants)
		}
		tells := before.(*Foo).Past[acting.UID].Shown && acting.Status.ObservedGeneration == acting.Generation && acting.Status.Selector != ""
		if foo := Read[*v1alpha1.Foo](w, acting.Name); tells && (foo == nil || foo.UID != acting.UID || foo.DeletionTimestamp != nil) {
			violated("rule 3: Deployment %s was created again for Foo %s, which was read live as %v", d.Name, acting.Name, foo)
		}
		j.recreate(w, d, violated)       // +drop:rename
		j.copies(w, d, acting, violated) // +drop:rename
	case w.Request.Verb == "patch":
		j.patch(w, acting, violated)
	case w.Request.Verb == "delete": // +drop:rename
		j.delete(w, acting, violated) // +drop:rename
	default:
		violated("S1: a %s of a Deployment", w.Request.Verb)
	}
	if w.After == nil || w.Before == nil || w.After.GetResourceVersion() != w.Before.GetResourceVersion() {
		j = &Foo{applied(j.Past, acting, violated)}
	}
	return j, violations
}

func (j *Foo) patch(w *Write, acting *v1alpha1.Foo, violated func(string, ...any)) {
	before, after := w.Before.(*appsv1.Deployment), w.After.(*appsv1.Deployment)
	if metav1.GetControllerOfNoCopy(before) == nil {
		foo := Read[*v1alpha1.Foo](w, acting.Name)
		if before.DeletionTimestamp != nil || before.Annotations[v1alpha1.AdoptByAnnotation] != acting.Name || before.Name != acting.Spec.DeploymentName ||
			foo == nil || foo.UID != acting.UID || foo.DeletionTimestamp != nil {
			violated("rule 10: Deployment %s was adopted by Foo %s; read live: %v", before.Name, acting.Name, foo)
		}
		return
	}
	if owner := sim.Owner(before); owner == nil || owner.UID != acting.UID {
		violated("S1: Deployment %s was patched for Foo %s, and belongs to %+v", before.Name, acting.Name, before.OwnerReferences)
	}
	if owner := sim.Owner(after); (owner == nil || owner.UID != acting.UID) && !w.Store.Strips {
		violated("S1: Deployment %s was given to %+v", before.Name, after.OwnerReferences)
	}
	if before.DeletionTimestamp != nil {
		violated("rule 7: Deployment %s was patched while it is terminating", before.Name)
	}
	if diff := stored.UnownedDiff(before, after); diff != "" {
		violated("rule 4: Deployment %s was changed in a field of others: %s", before.Name, diff)
	}
	if before.Name != acting.Spec.DeploymentName {
		violated("S2: Deployment %s was patched, which the spec does not name", before.Name)
	}
	// +drop:rename
	if before.Spec.Replicas != nil && *before.Spec.Replicas == 0 {
		j.recreate(w, after, violated)
	}
	// +drop:end
}

// status checks S3.
func (j *Foo) status(before, after *v1alpha1.Foo, violated func(string, ...any)) {
	was, is := before.Status.ObservedGeneration, after.Status.ObservedGeneration
	ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.FooReady)
	h := j.Past[before.UID]
	switch {
	case is > before.Generation || is < was || ready == nil || ready.ObservedGeneration != is:
		violated("S3: Foo %s of generation %d has observed %d after %d; Ready is %+v", before.Name, before.Generation, is, was, ready)
	case before.DeletionTimestamp != nil:
		violated("rule 2: the status of Foo %s was written while it is terminating", before.Name)
	case ready.Status == metav1.ConditionTrue && (h.Generation != is || !h.Complete),
		ready.Reason == v1alpha1.ReasonDeploymentProgressing && after.Status.Selector != "" && (h.Generation != is || !h.Shown):
		violated("S3: Foo %s says %s %s of generation %d, which was not applied", before.Name, ready.Status, ready.Reason, is)
	}
}
