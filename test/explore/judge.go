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
	"maps"
	"slices"
	"strconv"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/sim"
)

// judge has the invariants of docs/contract.md, and what of the past they speak of. It uses no clock: what a process
// knows is what its caches had when the sync began, or what that sync has read live.
type judge struct {
	foos map[types.UID]history
	// own are the versions that the API server has answered to this process, by owner, resource and name. What was
	// written for one owner another one learns from the cache.
	own map[string]int64
}

// history is what happened to one Foo.
type history struct {
	// names are those that its spec has had, in order.
	names string
	// applied is the last generation that a write to a Deployment has applied.
	applied int64
	// generation is the present one, whose spec has had a Deployment that conforms to it, or whose rollout is complete.
	generation           int64
	conformed, rolledOut bool
}

func (j *judge) encode(t *tokens) {
	for _, name := range slices.Sorted(maps.Keys(j.own)) {
		t.string(name)
		t.version(strconv.FormatInt(j.own[name], 10))
	}
	for _, uid := range slices.SortedFunc(maps.Keys(j.foos), func(a, b types.UID) int { return compare(string(a), string(b)) }) {
		h := j.foos[uid]
		t.uid(uid)
		t.string(h.names)
		t.int(h.applied)
		t.int(h.generation)
		t.bool(h.conformed)
		t.bool(h.rolledOut)
	}
}

// note returns the judge after a step. versions are those of Deployments that a cache of the process may show: the
// cached ones, those that are not delivered yet, and the present ones.
func (j *judge) note(store *sim.Store, versions func() []*appsv1.Deployment) *judge {
	next := &judge{foos: map[types.UID]history{}, own: j.own}
	for _, object := range store.Objects(sim.Foos) {
		foo := object.(*v1alpha1.Foo)
		h := j.foos[foo.UID]
		if name := "/" + foo.Spec.DeploymentName + "/"; !strings.Contains(h.names, name) {
			h.names += name
		}
		if h.generation != foo.Generation {
			h.generation, h.conformed, h.rolledOut = foo.Generation, false, false
		}
		if !h.rolledOut {
			for _, d := range versions() {
				if owner := sim.Owner(d); d.Name == foo.Spec.DeploymentName && owner != nil && owner.UID == foo.UID {
					waits := d.Spec.Replicas != nil && *d.Spec.Replicas == 0 || d.DeletionTimestamp != nil
					conforms := sim.Conforms(d, &foo.Spec)
					h.conformed = h.conformed || conforms || waits
					h.rolledOut = h.rolledOut || conforms && sim.RolledOut(d)
				}
			}
		}
		next.foos[foo.UID] = h
	}
	// A Foo that is gone may still be in a cache.
	for uid, h := range j.foos {
		if _, ok := next.foos[uid]; !ok {
			next.foos[uid] = history{names: h.names, applied: h.applied}
		}
	}
	return next
}

// write judges a write that the API server has carried out. was is the judge before it. acting is the Foo that the sync acts for, as its cache has
// it, reads are what the sync has read live; both are nil for a request that was detached.
func (j *judge) write(was *judge, store *sim.Store, r *sim.Request, before, after sim.Object, acting *v1alpha1.Foo, reads []sim.Object) (violations []string) {
	violated := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	j.precondition(r, violated)
	if acting == nil || r.Resource == sim.Deployments && r.Verb != "create" && before == nil {
		return violations
	}
	h := j.foos[acting.UID]
	switch {
	case r.Subresource == "status":
		j.status(before.(*v1alpha1.Foo), after.(*v1alpha1.Foo), violated)
		return violations
	case r.Verb == "create":
		d := after.(*appsv1.Deployment)
		if owner := sim.Owner(d); owner == nil || owner.UID != acting.UID || !strings.Contains(h.names, "/"+d.Name+"/") {
			violated("S2: Deployment %s was created for Foo %s, whose spec has named %s", d.Name, acting.Name, h.names)
		}
		if foo := read[*v1alpha1.Foo](reads, acting.Name); was.foos[acting.UID].conformed && (foo == nil || foo.UID != acting.UID || foo.DeletionTimestamp != nil) {
			violated("rule 3: Deployment %s was created again for Foo %s, which was read live as %v", d.Name, acting.Name, foo)
		}
		j.recreate(store, d, violated)
	case r.Verb == "patch":
		j.patch(store, before.(*appsv1.Deployment), after.(*appsv1.Deployment), acting, reads, violated)
	case r.Verb == "delete":
		j.delete(before.(*appsv1.Deployment), acting, reads, violated)
	}
	if after == nil || before == nil || after.GetResourceVersion() != before.GetResourceVersion() {
		if acting.Generation < h.applied {
			violated("S6: generation %d of Foo %s was applied after generation %d", acting.Generation, acting.Name, h.applied)
		}
		h.applied = max(h.applied, acting.Generation)
		j.foos[acting.UID] = h
	}
	return violations
}

// refused judges a write that the API server has refused because the object is another one than the cache had: the
// process knew that by the answer to a write of its own.
func (j *judge) refused(key cache.ObjectName, r *sim.Request, before sim.Object) (violations []string) {
	if own := j.own[ownName(key, r)]; before != nil && own != 0 && before.GetResourceVersion() == strconv.FormatInt(own, 10) {
		return []string{fmt.Sprintf("rule 14: the request %s does not know the process's own write of version %d", r, own)}
	}
	return nil
}

// answered returns the judge after the process has got the answer to a write.
func (j *judge) answered(key cache.ObjectName, r *sim.Request, a answer) *judge {
	if a.err != nil || r.Verb == "get" {
		return j
	}
	next := &judge{j.foos, maps.Clone(j.own)}
	if next.own == nil {
		next.own = map[string]int64{}
	}
	delete(next.own, ownName(key, r))
	if a.object != nil {
		next.own[ownName(key, r)], _ = strconv.ParseInt(a.object.GetResourceVersion(), 10, 64)
	}
	return next
}

func ownName(key cache.ObjectName, r *sim.Request) string {
	return key.Name + "/" + r.Resource + "/" + r.Name
}

// precondition checks the part of S5 that concerns writes which arrive late.
func (j *judge) precondition(r *sim.Request, violated func(string, ...any)) {
	switch r.Verb {
	case "delete":
		if p := r.Options.Preconditions; p == nil || p.UID == nil || p.ResourceVersion == nil {
			violated("S5: a delete of %s without preconditions", r.Name)
		}
	case "patch":
		var sent metav1.PartialObjectMetadata
		if err := json.Unmarshal(r.Patch, &sent); err != nil || sent.ResourceVersion == "" {
			violated("S5: a patch of %s without a resourceVersion: %s", r.Name, r.Patch)
		}
	}
}

func (j *judge) patch(store *sim.Store, before, after *appsv1.Deployment, acting *v1alpha1.Foo, reads []sim.Object, violated func(string, ...any)) {
	if metav1.GetControllerOfNoCopy(before) == nil {
		foo := read[*v1alpha1.Foo](reads, acting.Name)
		if before.DeletionTimestamp != nil || before.Annotations[v1alpha1.AdoptByAnnotation] != acting.Name || before.Name != acting.Spec.DeploymentName ||
			foo == nil || foo.UID != acting.UID || foo.DeletionTimestamp != nil {
			violated("rule 10: Deployment %s was adopted by Foo %s; read live: %v", before.Name, acting.Name, foo)
		}
		return
	}
	if owner := sim.Owner(before); owner == nil || owner.UID != acting.UID {
		violated("S1: Deployment %s was patched for Foo %s, and belongs to %+v", before.Name, acting.Name, before.OwnerReferences)
	}
	if owner := sim.Owner(after); owner == nil || owner.UID != acting.UID {
		violated("S1: Deployment %s was given to %+v", before.Name, after.OwnerReferences)
	}
	if before.DeletionTimestamp != nil {
		violated("rule 7: Deployment %s was patched while it is terminating", before.Name)
	}
	if diff := sim.UnownedDiff(before, after); diff != "" {
		violated("rule 4: Deployment %s was changed in a field of others: %s", before.Name, diff)
	}
	if before.Name != acting.Spec.DeploymentName {
		violated("rule 8: the former Deployment %s was patched", before.Name)
	}
	if before.Spec.Replicas != nil && *before.Spec.Replicas == 0 {
		j.recreate(store, after, violated)
	}
}

// recreate checks that no Pods of the Deployment run beside those of one with strategy Recreate that it follows.
func (j *judge) recreate(store *sim.Store, d *appsv1.Deployment, violated func(string, ...any)) {
	if d.Spec.Replicas != nil && *d.Spec.Replicas == 0 {
		return
	}
	for _, object := range store.Objects(sim.Deployments) {
		former := object.(*appsv1.Deployment)
		if owner := sim.Owner(former); former.Name != d.Name && owner != nil && owner.UID == sim.Owner(d).UID && sim.WrittenByController(former) &&
			former.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType && former.Status.Replicas > 0 {
			violated("rule 8: Deployment %s was given Pods beside those of %s, whose strategy is Recreate", d.Name, former.Name)
		}
	}
}

// delete checks S4 and rule 8 by what the sync has read live.
func (j *judge) delete(former *appsv1.Deployment, acting *v1alpha1.Foo, reads []sim.Object, violated func(string, ...any)) {
	if owner := sim.Owner(former); owner == nil || owner.UID != acting.UID {
		violated("S1: Deployment %s was deleted for Foo %s, and belongs to %+v", former.Name, acting.Name, former.OwnerReferences)
	}
	if !sim.WrittenByController(former) {
		violated("rule 8: Deployment %s was deleted, which a user made", former.Name)
	}
	foo := read[*v1alpha1.Foo](reads, acting.Name)
	if foo == nil || foo.UID != acting.UID || foo.Generation != acting.Generation || foo.DeletionTimestamp != nil || foo.Spec.DeploymentName == former.Name {
		violated("rule 8: Deployment %s was deleted for Foo %s, which was read live as %v", former.Name, acting.Name, foo)
		return
	}
	present := read[*appsv1.Deployment](reads, foo.Spec.DeploymentName)
	if present == nil {
		violated("S4: Deployment %s was deleted, and %s was not read live", former.Name, foo.Spec.DeploymentName)
		return
	}
	switch owner := sim.Owner(present); {
	case owner == nil:
		violated("S4: Deployment %s was deleted, while nobody owns %s", former.Name, present.Name)
	case owner.UID == foo.UID:
		hasPods := present.Spec.Replicas == nil || *present.Spec.Replicas > 0
		asksForNone := foo.Spec.Replicas != nil && *foo.Spec.Replicas == 0
		if present.DeletionTimestamp != nil || !sim.RolledOut(present) || !hasPods && !asksForNone && former.Spec.Strategy.Type != appsv1.RecreateDeploymentStrategyType {
			violated("S4: Deployment %s was deleted, while %s is not rolled out", former.Name, present.Name)
		}
	default:
		// A cycle: the other Foos were read live, and one of them asks for the former Deployment.
		if other := read[*v1alpha1.Foo](reads, owner.Name); other == nil || other.UID != owner.UID || other.Name < foo.Name {
			violated("S4: Deployment %s was deleted, while %s belongs to Foo %s", former.Name, present.Name, owner.Name)
		}
		if !slices.ContainsFunc(reads, func(object sim.Object) bool {
			other, ok := object.(*v1alpha1.Foo)
			return ok && other.Name > foo.Name && other.Spec.DeploymentName == former.Name
		}) {
			violated("S4: Deployment %s was deleted in no cycle", former.Name)
		}
	}
}

// read returns what the sync has read of that name last, nil if nothing.
func read[T sim.Object](reads []sim.Object, name string) (last T) {
	for _, object := range reads {
		if object, ok := object.(T); ok && object.GetName() == name {
			last = object
		}
	}
	return last
}

// status checks S3.
func (j *judge) status(before, after *v1alpha1.Foo, violated func(string, ...any)) {
	was, is := before.Status.ObservedGeneration, after.Status.ObservedGeneration
	ready := meta.FindStatusCondition(after.Status.Conditions, v1alpha1.FooReady)
	h := j.foos[before.UID]
	switch {
	case is > before.Generation || is < was || ready == nil || ready.ObservedGeneration != is:
		violated("S3: Foo %s of generation %d has observed %d after %d; Ready is %+v", before.Name, before.Generation, is, was, ready)
	case before.DeletionTimestamp != nil:
		violated("rule 2: the status of Foo %s was written while it is terminating", before.Name)
	case ready.Status == metav1.ConditionTrue && (h.generation != is || !h.rolledOut),
		ready.Reason == v1alpha1.ReasonDeploymentProgressing && after.Status.Selector != "" && (h.generation != is || !h.conformed):
		violated("S3: Foo %s says %s %s of generation %d, which was not applied", before.Name, ready.Status, ready.Reason, is)
	}
}

// versions returns the Deployments that a cache may show, and the present ones.
func (s *state) versions(deployments int) []*appsv1.Deployment {
	var all []*appsv1.Deployment
	for _, object := range s.process.caches[deployments].objects {
		all = append(all, object.(*appsv1.Deployment))
	}
	for _, event := range s.logs[deployments] {
		if event.Type != watch.Deleted {
			all = append(all, event.Object.(*appsv1.Deployment))
		}
	}
	if s.run != nil {
		for _, e := range s.run.log {
			if e.event != nil && e.informer == deployments && e.event.Type != watch.Deleted {
				all = append(all, e.event.Object.(*appsv1.Deployment))
			}
		}
	}
	for _, object := range s.store.Objects(sim.Deployments) {
		all = append(all, object.(*appsv1.Deployment))
	}
	return all
}

func (j *judge) clone() *judge { return &judge{maps.Clone(j.foos), j.own} }
