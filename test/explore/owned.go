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
	"encoding/json"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"sync"
	"testing"

	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	kubescheme "k8s.io/client-go/kubernetes/scheme"

	"example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/kinds"
	"example.com/sample-controller/test/sim"
)

// Items is the resource of an external service, which has an item for each object, whose UID is its name.
const Items = "items"

// Owned is the exploration of a kind whose objects own one object each of some kinds, of their own name, as the file
// testdata/suites.yaml of the kind describes them.
type Owned struct {
	*kinds.Data

	Kind Kind
	// Owner, Main and Also are the resources of the kind and of what its objects own.
	Owner, Main string
	Also        []string
	// Rest returns what else is wrong with a cluster at rest.
	Rest func(store *sim.Store) []string

	// shown caches whether an object shows what its owner asks for.
	shown sync.Map
}

// name is that of the only owner.
const name = "x"

// ReadOwned returns the exploration of the kind with that controller, whose types own knows.
func ReadOwned(t testing.TB, root, controller string, own *runtime.Scheme) *Owned {
	all, err := kinds.Read(root)
	i := slices.IndexFunc(all, func(k *kinds.Data) bool { return k.Controller == controller })
	if err != nil || i < 0 {
		t.Fatalf("no data of %s in %d files: %v", controller, len(all), err)
	}
	o := &Owned{Data: all[i]}
	o.Owner, o.Main = o.Resource, o.Owns.GVR().Resource
	add := func(scheme *runtime.Scheme, resource schema.GroupResource, of kinds.Object) {
		example, err := scheme.New(schema.FromAPIVersionAndKind(of.APIVersion, of.Kind))
		if err != nil {
			t.Fatal(err)
		}
		o.Kind.Resources = append(o.Kind.Resources, sim.Resource{GroupResource: resource, New: func() sim.Object {
			return reflect.New(reflect.TypeOf(example).Elem()).Interface().(sim.Object)
		}})
	}
	add(own, o.GVR().GroupResource(), o.Object)
	for _, of := range slices.Concat([]kinds.Object{o.Owns.Object}, o.Data.Also, o.Reads) {
		add(kubescheme.Scheme, of.GVR().GroupResource(), of)
	}
	for _, of := range o.Data.Also {
		o.Also = append(o.Also, of.GVR().Resource)
	}
	if o.External != "" {
		add(kubescheme.Scheme, schema.GroupResource{Resource: Items}, kinds.Object{APIVersion: "v1", Kind: "ConfigMap"})
	}
	o.Kind.Judge = &OwnedJudge{of: o}
	return o
}

// Starts are an empty cluster, one with an object that is settled, and one in which the name is taken.
func (o *Owned) Starts(settled ...Operation) []Start {
	create, takeName, free := o.Create(), o.TakeName(o.Main), o.Remove(o.Main, metav1.DeletePropagationBackground)
	return []Start{
		{Name: "empty", Part: "1+0", Then: []Operation{create, o.Refuse()}},
		{Name: "settled", IsLarge: true, Part: "1+0", Operations: []Operation{create}, Then: settled},
		{Name: "the name is taken", Part: "1+0", Operations: []Operation{takeName}, Then: []Operation{create, free}},
		{Name: "waiting for the name", Part: "1+0", Operations: []Operation{takeName, create}, Then: []Operation{free, o.Remove(o.Owner, metav1.DeletePropagationBackground)}},
	}
}

// All are the operations of users on an object that is settled.
func (o *Owned) All() (all []Operation) {
	for what := range o.Changes {
		all = append(all, o.Edit(what))
	}
	for what := range o.Owns.Drifts {
		all = append(all, o.Drift(what))
	}
	all = append(all, o.Remove(o.Owner, metav1.DeletePropagationBackground), o.Remove(o.Owner, metav1.DeletePropagationOrphan), o.Refuse())
	for _, resource := range append([]string{o.Main}, o.Also...) {
		all = append(all, o.Remove(resource, metav1.DeletePropagationBackground))
	}
	slices.SortFunc(all, func(a, b Operation) int { return strings.Compare(a.Story, b.Story) })
	return all
}

// Create creates the owner.
func (o *Owned) Create() Operation {
	return Operation{"create " + o.Owner, func(store *sim.Store) {
		object, err := o.New(name, o.MarkerSpec)
		typed := o.Kind.Resources[0].New()
		if err == nil {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, typed)
		}
		fixture.Must(err)
		store.Create(o.Owner, typed)
	}}
}

// Edit is one of the changes of users to the owner.
func (o *Owned) Edit(what string) Operation {
	return Operation{what, func(store *sim.Store) {
		store.Change(o.Owner, name, func(object sim.Object) { apply(object, o.Changes[what], jsonpatch.MergePatch) })
	}}
}

// Drift is one of the changes to what it owns that the controller undoes.
func (o *Owned) Drift(what string) Operation {
	return Operation{o.Main + " " + what, func(store *sim.Store) {
		store.Change(o.Main, name, func(object sim.Object) {
			apply(object, o.Owns.Drifts[what], func(text, patch []byte) ([]byte, error) {
				return strategicpatch.StrategicMergePatch(text, patch, object)
			})
		})
	}}
}

// apply applies a patch to an object.
func apply(object sim.Object, patch json.RawMessage, with func(text, patch []byte) ([]byte, error)) {
	text, err := json.Marshal(object)
	if err == nil {
		text, err = with(text, patch)
	}
	fixture.Must(err)
	changed := reflect.New(reflect.TypeOf(object).Elem())
	fixture.Must(json.Unmarshal(text, changed.Interface()))
	reflect.ValueOf(object).Elem().Set(changed.Elem())
}

// Remove deletes the object of that resource.
func (o *Owned) Remove(resource string, propagation metav1.DeletionPropagation) Operation {
	return Operation{fmt.Sprintf("delete %s --cascade=%s", resource, propagation), func(store *sim.Store) { store.Delete(resource, name, propagation) }}
}

// TakeName creates an object of that resource that nobody owns.
func (o *Owned) TakeName(resource string) Operation {
	return Operation{"create " + resource + " of a user", func(store *sim.Store) {
		i := slices.IndexFunc(o.Kind.Resources, func(r sim.Resource) bool { return r.Resource == resource })
		object := o.Kind.Resources[i].New()
		object.SetName(name)
		store.Create(resource, object)
	}}
}

// Refuse lets a policy refuse the writes to what it owns.
func (o *Owned) Refuse() Operation {
	return Operation{"a policy refuses " + o.Main, func(store *sim.Store) { store.Refused = o.Main }}
}

// OwnedJudge has the invariants of such a kind.
type OwnedJudge struct {
	// Past is what happened to each owner.
	Past map[types.UID]Past
	of   *Owned
}

// Note implements Judge.
func (j *OwnedJudge) Note(c *ClusterState) Judge {
	return &OwnedJudge{c.note(j.Past, j.of.Owner, j.of.Main, func(owner, object sim.Object) (name string, isShown, isComplete bool) {
		name = owner.GetName()
		isShown = object != nil && object.GetName() == name && metav1.IsControlledBy(object, owner) && j.of.shows(object, owner)
		return name, isShown, isShown && isDone(object)
	}), j.of}
}

// isDone reports whether what the object asks for is done.
func isDone(object sim.Object) bool {
	deployment, ok := object.(*appsv1.Deployment)
	return !ok || sim.RolledOut(deployment)
}

// shows reports whether the object shows what its owner asks for.
func (o *Owned) shows(object, owner sim.Object) bool {
	key := [2]sim.Object{object, owner}
	if shown, known := o.shown.Load(key); known {
		return shown.(bool)
	}
	shown := o.Owns.ShowSpec(fields(object), fields(owner))
	o.shown.Store(key, shown)
	return shown
}

func fields(object sim.Object) map[string]any {
	all, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	fixture.Must(err)
	return all
}

// Write implements Judge.
func (j *OwnedJudge) Write(before Judge, w *Write) (next Judge, violations []string) {
	violated := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	if w.Err != nil || w.Acting == nil || w.Request.Resource == Items {
		return j, nil
	}
	acting, r := w.Acting, w.Request
	h := j.Past[acting.GetUID()]
	if r.Resource == j.of.Owner {
		if r.Subresource == "status" {
			j.status(w, h, violated)
		}
		return j, violations
	}
	for _, object := range []sim.Object{w.Before, w.After} {
		if object != nil && (!metav1.IsControlledBy(object, acting) || object.GetName() != acting.GetName()) {
			violated("S1: %s %s for %s %s, and it belongs to %+v", r.Verb, r.Resource, j.of.Owner, acting.GetName(), object.GetOwnerReferences())
		}
	}
	// Neither the status nor the process knows of an earlier one while the status tells of a refusal.
	_, reason := kinds.Ready(&unstructured.Unstructured{Object: fields(acting)})
	if live := Read[sim.Object](w, acting.GetName()); w.Before == nil && r.Resource == j.of.Main && before.(*OwnedJudge).Past[acting.GetUID()].Shown &&
		!strings.HasSuffix(reason, "Rejected") && !strings.HasSuffix(reason, "Failed") && (live == nil || live.GetUID() != acting.GetUID() || live.GetDeletionTimestamp() != nil) {
		violated("rule 3: %s %s was created again for an owner that was read live as %v", r.Resource, r.Name, live)
	}
	if w.Before != nil && w.Before.GetDeletionTimestamp() != nil {
		violated("rule 7: %s %s was changed while it is terminating", r.Resource, r.Name)
	}
	if w.Before != nil && w.After.GetResourceVersion() == w.Before.GetResourceVersion() {
		return j, violations
	}
	return &OwnedJudge{applied(j.Past, acting, violated), j.of}, violations
}

// status checks S3.
func (j *OwnedJudge) status(w *Write, h Past, violated func(string, ...any)) {
	is := &unstructured.Unstructured{Object: fields(w.After)}
	was, _, _ := unstructured.NestedInt64(fields(w.Before), "status", "observedGeneration")
	observed, _, _ := unstructured.NestedInt64(is.Object, "status", "observedGeneration")
	// Ready is told of the generation that was observed.
	is.SetGeneration(observed)
	ready, reason := kinds.Ready(is)
	switch {
	case observed > w.Before.GetGeneration() || observed < was || ready == "":
		violated("S3: generation %d has observed %d after %d, Ready is %q", w.Before.GetGeneration(), observed, was, ready)
	case w.Before.GetDeletionTimestamp() != nil && j.of.External == "":
		violated("rule 2: the status was written while it is terminating")
	case ready == string(metav1.ConditionTrue) && (h.Generation != observed || !h.Complete):
		violated("S3: Ready is True, %s, of generation %d, which was not applied", reason, observed)
	}
}

// Rest implements Judge.
func (j *OwnedJudge) Rest(c *ClusterState) (violations []string) {
	o, violated := j.of, func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	for _, owner := range c.Store.Objects(o.Owner) {
		ready, reason := kinds.Ready(&unstructured.Unstructured{Object: fields(owner)})
		main := c.Store.Get(o.Main, owner.GetName())
		isOwned := main != nil && metav1.IsControlledBy(main, owner)
		switch {
		case owner.GetDeletionTimestamp() != nil:
			violated("it is still being deleted")
		case strings.HasSuffix(reason, "Rejected") && c.Store.Refused == o.Main:
		case main == nil:
			violated("there is none of %s, and Ready is %s %s", o.Main, ready, reason)
		case !isOwned && !strings.HasSuffix(reason, "NotOwned"):
			violated("another owner has the name, and Ready is %s %s", ready, reason)
		case isOwned && (!o.shows(main, owner) || main.GetLabels()["app.kubernetes.io/managed-by"] == ""):
			violated("%s is not what the spec asks for", o.Main)
		case isOwned && isDone(main) != (ready == string(metav1.ConditionTrue)):
			violated("Ready is %s %s, and it is complete: %t", ready, reason, isDone(main))
		}
		for _, resource := range o.Also {
			if also := c.Store.Get(resource, owner.GetName()); isOwned && also == nil {
				violated("there is none of %s", resource)
			}
		}
		if o.External != "" && ready == string(metav1.ConditionTrue) && c.Store.Get(Items, string(owner.GetUID())) == nil {
			violated("it is ready, and has no item")
		}
	}
	for _, resource := range append([]string{o.Main}, o.Also...) {
		for _, object := range c.Store.Objects(resource) {
			if ref := metav1.GetControllerOfNoCopy(object); ref != nil && !hasUID(c.Store, o.Owner, ref.UID) {
				violated("S2: %s %s is left of an owner that is gone", resource, object.GetName())
			}
		}
	}
	if o.External != "" {
		for _, item := range c.Store.Objects(Items) {
			if !hasUID(c.Store, o.Owner, types.UID(item.GetName())) {
				violated("the item %s is left of an owner that is gone", item.GetName())
			}
		}
	}
	if o.Rest != nil {
		violations = append(violations, o.Rest(c.Store)...)
	}
	return violations
}

func hasUID(store *sim.Store, resource string, uid types.UID) bool {
	return slices.ContainsFunc(store.Objects(resource), func(object sim.Object) bool { return object.GetUID() == uid })
}
