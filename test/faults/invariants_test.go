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

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The invariants of the contract, checked after a run over all versions of all objects
// and all requests of the controllers. A write carries the resource version as a
// precondition, so the API server applied it to that version: the check has no race
// between reading and writing. A write without an answer was applied only if the next
// version shows its effect.

// ownerKind describes a kind whose objects own Deployments.
type ownerKind[P metav1.Object] struct {
	kind, group, resource string
	// deploymentName returns the name that the spec asks for. conforms reports whether a
	// Deployment is as the spec wants it.
	deploymentName func(P) string
	conforms       func(*appsv1.Deployment, P) bool
	status         func(P) (observed int64, conditions []metav1.Condition)
	// deletionJustified reports whether a deletion was right by what the controller had
	// read of the owner.
	deletionJustified func(deletion *request, owner *metav1.OwnerReference, before []request) bool
}

// controllerOf returns the controller reference if it refers to this kind, or nil. It
// does not share code with the controllers under test.
func (o ownerKind[P]) controllerOf(object metav1.Object) *metav1.OwnerReference {
	refs := object.GetOwnerReferences()
	index := slices.IndexFunc(refs, func(ref metav1.OwnerReference) bool { return ptr.Deref(ref.Controller, false) })
	if index < 0 || refs[index].Kind != o.kind || !strings.HasPrefix(refs[index].APIVersion, o.group+"/") {
		return nil
	}
	return &refs[index]
}

func (o ownerKind[P]) isReady(owner P) bool {
	observed, conditions := o.status(owner)
	return meta.IsStatusConditionTrue(conditions, readyType) && observed == owner.GetGeneration()
}

// checker collects violations of the invariants for one kind.
type checker[P metav1.Object] struct {
	*history
	ownerKind[P]

	owners []version[P]
	found  violations
}

// violations describe what broke the contract.
type violations []string

func (v *violations) add(format string, args ...any) {
	*v = append(*v, fmt.Sprintf(format, args...))
}

// deploymentViolations returns the violations of S1 to S4, given the versions of the
// owners and the requests of each controller. The caller holds the lock of the history.
func deploymentViolations[P metav1.Object](h *history, versions []version[P], of ownerKind[P], records ...[]request) []string {
	c := &checker[P]{history: h, ownerKind: of, owners: versions}
	for _, requests := range records {
		for i := range requests {
			if requests[i].applied() || requests[i].isWrite() && requests[i].lost {
				c.checkWrite(&requests[i], requests[:i])
			}
		}
	}
	c.checkDeploymentNames()
	c.checkOwned()
	c.checkStatuses()
	return c.found
}

// checkWrite checks S1: the controller writes and deletes only what it owns by UID at
// that moment.
func (c *checker[P]) checkWrite(r *request, before []request) {
	switch {
	case r.resource == c.resource && (r.verb != http.MethodPut || r.subresource != "status"):
		c.found.add("S1: %s: the controller may only write the status of a %s", r, c.kind)
		return
	case r.resource != c.resource && r.resource != deployments:
		c.found.add("S1: %s: the controller only reads %s", r, r.resource)
		return
	case r.resource == c.resource, r.verb == http.MethodPost:
		// A POST never changes an existing object.
		return
	case r.resourceVersion == 0:
		c.found.add("S1: %s was applied without a precondition", r)
		return
	}
	for i, v := range c.deployments {
		if v.object.Name == r.name && v.revision == r.resourceVersion {
			if !r.lost || c.isEffect(r, i) {
				c.checkOwnership(r, before, i)
				if r.verb == http.MethodDelete {
					c.checkAvailability(r, before, i)
				}
			}
			return
		}
	}
	if !r.lost {
		c.found.add("S1: %s has the precondition resourceVersion %d, which that Deployment never had", r, r.resourceVersion)
	}
}

// isEffect reports whether the write may have caused the version after that index.
func (h *history) isEffect(r *request, index int) bool {
	was, is := h.deployments[index].object, nextVersion(h.deployments, index)
	switch {
	case is == nil:
		return false
	case is.deleted || is.object.DeletionTimestamp != nil && was.DeletionTimestamp == nil:
		return r.verb == http.MethodDelete
	}
	return r.verb != http.MethodDelete && (is.object.Generation != was.Generation ||
		!maps.Equal(is.object.Labels, was.Labels) || !equality.Semantic.DeepEqual(is.object.OwnerReferences, was.OwnerReferences))
}

// checkOwnership checks a write that was applied to the Deployment's version at index.
func (c *checker[P]) checkOwnership(r *request, before []request, index int) {
	ref := c.controllerOf(c.deployments[index].object)
	if ref == nil && c.isAdoption(r, before, index) {
		return
	}
	if ref == nil {
		c.found.add("S1: %s was applied to a Deployment that no %s controls: %+v", r, c.kind, c.deployments[index].object.OwnerReferences)
		return
	}
	ownerMissing := "was applied to a Deployment whose " + c.kind + " did not exist"
	violation := ownerMissing
	until, superseded := supersededAt(c.deployments, index)
	for _, v := range c.owners {
		if v.object.GetUID() != ref.UID || superseded && v.revision >= until {
			continue
		}
		if r.lost && v.revision > c.deployments[index].revision && violation == "" {
			// The write was right at first. A later violation may be the effect of
			// another client.
			break
		}
		switch {
		case v.deleted:
			violation = ownerMissing
		case r.verb == http.MethodDelete && c.deploymentName(v.object) == r.name:
			violation = "deleted the Deployment that its " + c.kind + " asked for"
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

// adoptByAnnotation names the Foo that a user asks to adopt a Deployment.
const adoptByAnnotation = "samplecontroller.k8s.io/adopt-by"

// isAdoption reports whether the write is the one that S1 allows for a Deployment which the
// owner does not control: a patch makes the owner that the annotation names, and whose spec
// names the Deployment, its controller, and removes the annotation.
func (c *checker[P]) isAdoption(r *request, before []request, index int) bool {
	was, is := c.deployments[index].object, nextVersion(c.deployments, index)
	if r.verb != http.MethodPatch || metav1.GetControllerOf(was) != nil || is == nil || is.object.Annotations[adoptByAnnotation] != "" {
		return false
	}
	ref := c.controllerOf(is.object)
	return ref != nil && ref.Name == was.Annotations[adoptByAnnotation] &&
		slices.ContainsFunc(c.momentOf(r, before, index).specs[ref.UID], func(owner P) bool {
			return c.deploymentName(owner) == was.Name && owner.GetDeletionTimestamp() == nil
		})
}

// fieldManager is the controller's. A Deployment that it has not written, such as a copy
// with the owner reference, is a user's.
const fieldManager = "sample-controller"

func isWrittenByController(deployment *appsv1.Deployment) bool {
	return slices.ContainsFunc(deployment.ManagedFields, func(f metav1.ManagedFieldsEntry) bool { return f.Manager == fieldManager })
}

// checkDeploymentNames checks the first half of S2: the spec of the owner named each of
// the Deployments that the controller made for it at an earlier time.
func (c *checker[P]) checkDeploymentNames() {
	reported := map[types.UID]bool{}
	for _, v := range c.deployments {
		ref := c.controllerOf(v.object)
		if ref == nil || reported[v.object.UID] || !isWrittenByController(v.object) {
			continue
		}
		if !c.askedFor(ref.UID, v.object.Name, v.revision) {
			reported[v.object.UID] = true
			c.found.add("S2: Deployment %s belongs to %s %s, whose spec never named it", v.object.Name, c.kind, ref.Name)
		}
	}
}

// askedFor reports whether the owner's spec had that name before that revision.
func (c *checker[P]) askedFor(owner types.UID, name string, before int64) bool {
	for _, v := range c.owners {
		if v.object.GetUID() == owner && c.deploymentName(v.object) == name && v.revision < before {
			return true
		}
	}
	return false
}

// checkOwned checks the second half of S2: in the end a ready owner has exactly one
// Deployment that the controller made and that is not being deleted, the one that its spec
// names.
func (c *checker[P]) checkOwned() {
	owned := map[types.UID][]string{}
	for name, deployment := range existing(c.deployments) {
		if ref := c.controllerOf(deployment); ref != nil && deployment.DeletionTimestamp == nil && isWrittenByController(deployment) {
			owned[ref.UID] = append(owned[ref.UID], name)
		}
	}
	for name, owner := range existing(c.owners) {
		names := owned[owner.GetUID()]
		if c.isReady(owner) && (len(names) != 1 || names[0] != c.deploymentName(owner)) {
			c.found.add("S2: %s %s is ready, asks for %s and owns %q", c.kind, name, c.deploymentName(owner), names)
		}
	}
}

// checkStatuses checks S3 for each version of a status.
func (c *checker[P]) checkStatuses() {
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
		if claimsApplied(ready.Reason) && !c.wasApplied(uid, ready, v.revision) {
			c.found.add("S3: %s %s says %s for generation %d, which was not applied (revision %d)", c.kind, name, ready.Reason, observed, v.revision)
		}
	}
}

// claimsApplied reports whether the reason says that the spec was applied.
func claimsApplied(reason string) bool {
	return reason == v1alpha1.ReasonDeploymentAvailable || reason == v1alpha1.ReasonDeploymentProgressing
}

// wasApplied reports whether a Deployment had the spec that the owner asked for, at some
// time between the owner's generation of the condition and the given revision.
func (c *checker[P]) wasApplied(owner types.UID, ready *metav1.Condition, moment int64) bool {
	asked, began, there := c.ownerAt(owner, ready.ObservedGeneration)
	if !there {
		return false
	}
	for i, v := range c.deployments {
		if v.deleted || v.revision >= moment || v.object.Name != c.deploymentName(asked) {
			continue
		}
		if end, superseded := supersededAt(c.deployments, i); superseded && end < began {
			continue
		}
		ref := c.controllerOf(v.object)
		if ref == nil || ref.UID != owner {
			continue
		}
		if ready.Status == metav1.ConditionTrue && c.conforms(v.object, asked) && rolledOut(v.object) {
			return true
		}
		// The controller reports progress while a Deployment is being deleted, and does
		// not write to it, and while one waits for the end of a former one with the strategy
		// Recreate.
		waits := ptr.Deref(v.object.Spec.Replicas, 1) == 0 && strings.Contains(ready.Message, "waits with 0 replicas")
		if ready.Status == metav1.ConditionFalse && (waits || v.object.DeletionTimestamp != nil || c.conforms(v.object, asked)) {
			return true
		}
	}
	return false
}

// ownerAt returns the first version of the owner with that generation, and its revision.
func (c *checker[P]) ownerAt(owner types.UID, generation int64) (asked P, began int64, there bool) {
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
