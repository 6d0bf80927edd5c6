//go:build faults

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

package faults

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// The invariants of the contract, checked after a run over all versions of all objects
// and all requests of the controllers. A write carries the resource version as a
// precondition, so the API server applied it to that version: the check has no race
// between reading and writing. A write without an answer was applied only if the next
// version shows its effect.

// ownerKind describes a kind whose objects, of type P, own objects of type D.
type ownerKind[P, D metav1.Object] struct {
	kind, group, resource string
	// ownedKind is the kind of the objects that it owns.
	ownedKind, ownedResource string
	// also are the resources of further objects that it owns, which furtherViolations checks.
	also []string
	// ownedName returns the name that the spec asks for. conforms reports whether an owned
	// object is as the spec wants it, settled whether other controllers have acted on it.
	ownedName func(P) string
	conforms  func(D, P) bool
	settled   func(D) bool
	status    func(P) (observed int64, conditions []metav1.Condition)
	// hasFinalizer is set if the controller has a finalizer on its objects.
	hasFinalizer bool
	// progress is the reason of a condition that says that the spec was applied, although the
	// object is not ready; waits reports whether it may say so of another spec. They may be
	// "" and nil, and so may all of the following.
	progress string
	waits    func(owned D, ready *metav1.Condition) bool
	// adopts reports whether a write to an object of no owner is one that S1 allows.
	adopts func(c *checker[P, D], r *request, before []request, index int) bool
	// checkDeletion checks a deletion. The controllers of other kinds delete nothing.
	checkDeletion func(c *checker[P, D], r *request, before []request, index int)
	// deletionJustified reports whether a deletion was right by what the controller had
	// read of the owner.
	deletionJustified func(deletion *request, owner *metav1.OwnerReference, before []request) bool
}

// controllerOf returns the controller reference if it refers to this kind, or nil. It
// does not share code with the controllers under test.
func (o ownerKind[P, D]) controllerOf(object metav1.Object) *metav1.OwnerReference {
	refs := object.GetOwnerReferences()
	index := slices.IndexFunc(refs, func(ref metav1.OwnerReference) bool { return ptr.Deref(ref.Controller, false) })
	if index < 0 || refs[index].Kind != o.kind || !strings.HasPrefix(refs[index].APIVersion, o.group+"/") {
		return nil
	}
	return &refs[index]
}

func (o ownerKind[P, D]) isReady(owner P) bool {
	observed, conditions := o.status(owner)
	return meta.IsStatusConditionTrue(conditions, readyType) && observed == owner.GetGeneration()
}

// checker collects violations of the invariants for one kind.
type checker[P, D metav1.Object] struct {
	*history
	ownerKind[P, D]

	owners []version[P]
	owned  []version[D]
	found  violations
}

// violations describe what broke the contract.
type violations []string

func (v *violations) add(format string, args ...any) {
	*v = append(*v, fmt.Sprintf(format, args...))
}

// ownedViolations returns the violations of S1 to S4, given the versions of the owners and of
// what they own, and the requests of each controller. The caller holds the lock of the history.
func ownedViolations[P, D metav1.Object](h *history, owners []version[P], owned []version[D], of ownerKind[P, D], records ...[]request) []string {
	c := &checker[P, D]{history: h, ownerKind: of, owners: owners, owned: owned}
	c.checkWrites(records, func(r *request) bool { return !slices.Contains(of.also, r.resource) })
	c.checkNames()
	c.checkOwned()
	c.checkStatuses()
	return c.found
}

// furtherViolations returns the violations of S1 and of the first half of S2 for further objects
// that the owners have.
func furtherViolations[P, D metav1.Object](h *history, owners []version[P], owned []version[D], of ownerKind[P, D], records ...[]request) []string {
	c := &checker[P, D]{history: h, ownerKind: of, owners: owners, owned: owned}
	c.checkWrites(records, func(r *request) bool { return r.resource == of.ownedResource })
	c.checkNames()
	return c.found
}

// checkWrites checks S1 for those requests that were applied, or may have been.
func (c *checker[P, D]) checkWrites(records [][]request, concerns func(*request) bool) {
	for _, requests := range records {
		for i := range requests {
			if r := &requests[i]; concerns(r) && (r.applied() || r.isWrite() && r.lost) {
				c.checkWrite(r, requests[:i])
			}
		}
	}
}

// checkWrite checks S1: the controller writes and deletes only what it owns by UID at
// that moment.
func (c *checker[P, D]) checkWrite(r *request, before []request) {
	isFinalizer := c.hasFinalizer && r.verb == http.MethodPatch && r.subresource == ""
	switch {
	case r.resource == c.resource && r.subresource != "status" && !isFinalizer:
		c.found.add("S1: %s: the controller may only write the status of objects of kind %s", r, c.kind)
		return
	case r.resource != c.resource && r.resource != c.ownedResource:
		c.found.add("S1: %s: the controller only reads %s", r, r.resource)
		return
	case r.verb == http.MethodPost:
		// A POST never changes an existing object.
		return
	case r.verb == http.MethodDelete && c.checkDeletion == nil:
		c.found.add("S1: %s: the controller deletes nothing", r)
		return
	case r.resourceVersion == 0:
		c.found.add("S1: %s was applied without a precondition", r)
		return
	case r.resource == c.resource:
		return
	}
	for i, v := range c.owned {
		if v.object.GetName() == r.name && v.revision == r.resourceVersion {
			if !r.lost || c.isEffect(r, i) {
				c.checkOwnership(r, before, i)
				if r.verb == http.MethodDelete {
					c.checkDeletion(c, r, before, i)
				}
			}
			return
		}
	}
	if !r.lost {
		c.found.add("S1: %s has the precondition resourceVersion %d, which that %s never had", r, r.resourceVersion, c.ownedKind)
	}
}

// isEffect reports whether the write may have caused the version after that index.
func (c *checker[P, D]) isEffect(r *request, index int) bool {
	was, is := c.owned[index].object, nextVersion(c.owned, index)
	switch {
	case is == nil:
		return false
	case is.deleted || is.object.GetDeletionTimestamp() != nil && was.GetDeletionTimestamp() == nil:
		return r.verb == http.MethodDelete
	}
	return r.verb != http.MethodDelete && (is.object.GetGeneration() != was.GetGeneration() ||
		!maps.Equal(is.object.GetLabels(), was.GetLabels()) || !equality.Semantic.DeepEqual(is.object.GetOwnerReferences(), was.GetOwnerReferences()))
}

// checkOwnership checks a write that was applied to the version at index.
func (c *checker[P, D]) checkOwnership(r *request, before []request, index int) {
	object := c.owned[index].object
	ref := c.controllerOf(object)
	if ref == nil {
		if c.adopts == nil || !c.adopts(c, r, before, index) {
			c.found.add("S1: %s was applied to a %s that no %s controls: %+v", r, c.ownedKind, c.kind, object.GetOwnerReferences())
		}
		return
	}
	ownerMissing := fmt.Sprintf("was applied to a %s whose %s did not exist", c.ownedKind, c.kind)
	violation := ownerMissing
	until, superseded := supersededAt(c.owned, index)
	for _, v := range c.owners {
		if v.object.GetUID() != ref.UID || superseded && v.revision >= until {
			continue
		}
		if r.lost && v.revision > c.owned[index].revision && violation == "" {
			// The write was right at first. A later violation may be the effect of
			// another client.
			break
		}
		switch {
		case v.deleted:
			violation = ownerMissing
		case r.verb == http.MethodDelete && c.ownedName(v.object) == r.name:
			violation = fmt.Sprintf("deleted the %s that its %s asked for", c.ownedKind, c.kind)
		default:
			violation = ""
		}
	}
	if c.concurrentUsers && (r.verb == http.MethodPatch || c.deletionJustified(r, ref, before)) {
		return
	}
	if violation != "" {
		c.found.add("S1: %s %s (uid %s)", r, violation, ref.UID)
	}
}

// fieldManager is the controller's. An object that it has not written, such as a copy
// with the owner reference, is a user's.
const fieldManager = "sample-controller"

func isWrittenByController(object metav1.Object) bool {
	return slices.ContainsFunc(object.GetManagedFields(), func(f metav1.ManagedFieldsEntry) bool { return f.Manager == fieldManager })
}

// checkNames checks the first half of S2: the spec of the owner named each of
// the objects that the controller made for it at an earlier time.
func (c *checker[P, D]) checkNames() {
	reported := map[types.UID]bool{}
	for _, v := range c.owned {
		ref := c.controllerOf(v.object)
		if ref == nil || reported[v.object.GetUID()] || !isWrittenByController(v.object) {
			continue
		}
		if !c.askedFor(ref.UID, v.object.GetName(), v.revision) {
			reported[v.object.GetUID()] = true
			c.found.add("S2: %s %s belongs to %s %s, whose spec never named it", c.ownedKind, v.object.GetName(), c.kind, ref.Name)
		}
	}
}

// askedFor reports whether the owner's spec had that name before that revision.
func (c *checker[P, D]) askedFor(owner types.UID, name string, before int64) bool {
	return slices.ContainsFunc(c.owners, func(v version[P]) bool {
		return v.object.GetUID() == owner && c.ownedName(v.object) == name && v.revision < before
	})
}

// checkOwned checks the second half of S2: in the end a ready owner has exactly one
// object that the controller made and that is not being deleted, the one that its spec
// names.
func (c *checker[P, D]) checkOwned() {
	names := map[types.UID][]string{}
	for name, object := range existing(c.owned) {
		if ref := c.controllerOf(object); ref != nil && object.GetDeletionTimestamp() == nil && isWrittenByController(object) {
			names[ref.UID] = append(names[ref.UID], name)
		}
	}
	for name, owner := range existing(c.owners) {
		owns := names[owner.GetUID()]
		if c.isReady(owner) && (len(owns) != 1 || owns[0] != c.ownedName(owner)) {
			c.found.add("S2: %s %s is ready, asks for %s and owns %q", c.kind, name, c.ownedName(owner), owns)
		}
	}
}

// checkStatuses checks S3 for each version of a status.
func (c *checker[P, D]) checkStatuses() {
	last := map[types.UID]int64{}
	for _, v := range c.owners {
		name, uid := v.object.GetName(), v.object.GetUID()
		observed, conditions := c.status(v.object)
		if v.deleted || observed == 0 {
			continue
		}
		switch {
		case observed > v.object.GetGeneration():
			c.found.add("S3: %s %s has observedGeneration %d of %d", c.kind, name, observed, v.object.GetGeneration())
		case observed < last[uid]:
			c.found.add("S3: %s %s has observedGeneration %d after %d", c.kind, name, observed, last[uid])
		}
		last[uid] = observed
		ready := meta.FindStatusCondition(conditions, readyType)
		if ready == nil || ready.ObservedGeneration != observed {
			c.found.add("S3: %s %s has observedGeneration %d, but its condition is %+v", c.kind, name, observed, ready)
			continue
		}
		if (ready.Status == metav1.ConditionTrue || c.progress != "" && ready.Reason == c.progress) && !c.wasApplied(uid, ready, v.revision) {
			c.found.add("S3: %s %s says %s for generation %d, which was not applied (revision %d)", c.kind, name, ready.Reason, observed, v.revision)
		}
	}
}

// wasApplied reports whether an object had the spec that the owner asked for, at some
// time between the owner's generation of the condition and the given revision.
func (c *checker[P, D]) wasApplied(owner types.UID, ready *metav1.Condition, moment int64) bool {
	asked, began, there := c.ownerAt(owner, ready.ObservedGeneration)
	if !there {
		return false
	}
	for i, v := range c.owned {
		if v.deleted || v.revision >= moment || v.object.GetName() != c.ownedName(asked) {
			continue
		}
		if end, superseded := supersededAt(c.owned, i); superseded && end < began {
			continue
		}
		ref := c.controllerOf(v.object)
		if ref == nil || ref.UID != owner {
			continue
		}
		if ready.Status == metav1.ConditionTrue && c.conforms(v.object, asked) && c.settled(v.object) {
			return true
		}
		// The controller reports progress while an object is being deleted, and does not
		// write to it.
		if ready.Status == metav1.ConditionFalse && (v.object.GetDeletionTimestamp() != nil || c.conforms(v.object, asked) || c.waits != nil && c.waits(v.object, ready)) {
			return true
		}
	}
	return false
}

// ownerAt returns the first version of the owner with that generation, and its revision.
func (c *checker[P, D]) ownerAt(owner types.UID, generation int64) (asked P, began int64, there bool) {
	for _, v := range c.owners {
		if v.object.GetUID() == owner && v.object.GetGeneration() == generation {
			return v.object, v.revision, true
		}
	}
	return asked, 0, false
}

// rolledOut reports whether the Deployment controller has finished the rollout of the
// current generation.
func rolledOut(deployment *appsv1.Deployment) bool {
	desired, status := ptr.Deref(deployment.Spec.Replicas, 1), &deployment.Status
	return status.ObservedGeneration >= deployment.Generation && status.UpdatedReplicas >= desired &&
		status.Replicas <= status.UpdatedReplicas && status.AvailableReplicas >= desired
}

// findContainer returns the container of that name in the Pod template, or nil.
func findContainer(deployment *appsv1.Deployment, name string) *corev1.Container {
	containers := deployment.Spec.Template.Spec.Containers
	index := slices.IndexFunc(containers, func(c corev1.Container) bool { return c.Name == name })
	if index < 0 {
		return nil
	}
	return &containers[index]
}
