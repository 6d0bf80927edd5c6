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
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// The invariants of the contract, checked after a run over all versions that all
// objects had and all that the controller sent. A write that was applied tells
// which version it was applied to by the resource version that it insisted on,
// so that there is no race between a look and the write. One whose answer was lost
// can have been applied to that version only, and only if the next version shows
// it.

// owners are the objects of a kind that own Deployments.
type owners[P metav1.Object] struct {
	// kind, group and resource are what the API calls them.
	kind, group, resource string
	// deployment names the Deployment that one asks for, and conforms says whether a
	// Deployment is as it asks for.
	deployment func(P) string
	conforms   func(*appsv1.Deployment, P) bool
	status     func(P) (observed int64, conditions []metav1.Condition)
	// justified reports whether a deletion was right by what was known of the owner.
	justified func(deletion *request, owner *metav1.OwnerReference, before []request) bool
}

// controllerOf returns the reference to the object of this kind that controls another
// one, or nil. It is not the controllers' own code, which is under test.
func (o owners[P]) controllerOf(object metav1.Object) *metav1.OwnerReference {
	refs := object.GetOwnerReferences()
	index := slices.IndexFunc(refs, func(ref metav1.OwnerReference) bool { return ptr.Deref(ref.Controller, false) })
	if index < 0 || refs[index].Kind != o.kind || !strings.HasPrefix(refs[index].APIVersion, o.group+"/") {
		return nil
	}
	return &refs[index]
}

func (o owners[P]) isReady(parent P) bool {
	observed, conditions := o.status(parent)
	return meta.IsStatusConditionTrue(conditions, readyType) && observed == parent.GetGeneration()
}

// judge judges what was done for the objects of a kind.
type judge[P metav1.Object] struct {
	*history
	owners[P]

	parents []version[P]
	report  func(format string, args ...any)
}

// violations returns what breaks S1, S2 or S3, given the versions of the owners and
// what each controller sent. The caller holds the history's lock.
func violations[P metav1.Object](h *history, parents []version[P], of owners[P], records ...[]request) []string {
	var found []string
	j := &judge[P]{history: h, owners: of, parents: parents}
	j.report = func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, requests := range records {
		for i := range requests {
			if requests[i].applied() || requests[i].isWrite() && requests[i].lost {
				j.checkWrite(&requests[i], requests[:i])
			}
		}
	}
	j.checkNames()
	j.checkOwned()
	j.checkStatuses()
	return found
}

// checkWrite checks S1: nothing is written or deleted that the controller does
// not own by UID at that moment.
func (j *judge[P]) checkWrite(r *request, before []request) {
	switch {
	case r.resource == j.resource && (r.verb != http.MethodPut || r.subresource != "status"):
		j.report("S1: %s: of a %s only the status is the controller's", r, j.kind)
		return
	case r.resource != j.resource && r.resource != deployments:
		j.report("S1: %s: the controller only reads %s", r, r.resource)
		return
	case r.resource == j.resource, r.verb == http.MethodPost:
		// A creation can do no harm to what is there.
		return
	case r.version == 0:
		j.report("S1: %s was applied without a precondition, to whatever was there", r)
		return
	}
	for i, v := range j.deployments {
		if v.object.Name == r.name && v.number == r.version {
			if !r.lost || j.shows(r, i) {
				j.checkOwnership(r, before, i)
			}
			return
		}
	}
	if !r.lost {
		j.report("S1: %s was applied to version %d, which is none of that Deployment", r, r.version)
	}
}

// shows reports whether what followed the Deployment's version at index can be
// that write's doing.
func (h *history) shows(r *request, index int) bool {
	was, is := h.deployments[index].object, successor(h.deployments, index)
	switch {
	case is == nil:
		return false
	case is.gone || is.object.DeletionTimestamp != nil && was.DeletionTimestamp == nil:
		return r.verb == http.MethodDelete
	}
	return r.verb != http.MethodDelete && (is.object.Generation != was.Generation ||
		!maps.Equal(is.object.Labels, was.Labels) || !equality.Semantic.DeepEqual(is.object.OwnerReferences, was.OwnerReferences))
}

// checkOwnership checks the write that was applied to the Deployment's version
// at index.
func (j *judge[P]) checkOwnership(r *request, before []request, index int) {
	ref := j.controllerOf(j.deployments[index].object)
	if ref == nil {
		j.report("S1: %s was applied to a Deployment that no %s controls: %+v", r, j.kind, j.deployments[index].object.OwnerReferences)
		return
	}
	notThere := "was applied to a Deployment whose " + j.kind + " was not there at that moment"
	violation := notThere
	moment, superseded := next(j.deployments, index)
	for _, v := range j.parents {
		if v.object.GetUID() != ref.UID || superseded && v.number >= moment {
			continue
		}
		if r.lost && v.number > j.deployments[index].number && violation == "" {
			// It was right for a while, and what shows later may be somebody else's.
			break
		}
		switch {
		case v.gone:
			violation = notThere
		case r.verb == http.MethodDelete && j.deployment(v.object) == r.name:
			violation = "deleted the Deployment that its " + j.kind + " asked for at that moment"
		default:
			violation = ""
		}
	}
	if j.raced && (r.verb == http.MethodPatch || j.justified(r, ref, before)) {
		return
	}
	if violation != "" {
		j.report("S1: %s %s (uid %s)", r, violation, ref.UID)
	}
}

// checkNames checks the first half of S2: each Deployment that is owned was named by
// its owner's spec at some time before.
func (j *judge[P]) checkNames() {
	told := map[types.UID]bool{}
	for _, v := range j.deployments {
		ref := j.controllerOf(v.object)
		if ref == nil || told[v.object.UID] {
			continue
		}
		if !j.named(ref.UID, v.object.Name, v.number) {
			told[v.object.UID] = true
			j.report("S2: Deployment %s belongs to %s %s, whose spec had never named it", v.object.Name, j.kind, ref.Name)
		}
	}
}

// named reports whether the owner asked for that name before that moment.
func (j *judge[P]) named(owner types.UID, name string, before int64) bool {
	for _, v := range j.parents {
		if v.object.GetUID() == owner && j.deployment(v.object) == name && v.number < before {
			return true
		}
	}
	return false
}

// checkOwned checks the second half of S2: in the end an owner that is ready owns
// one Deployment that is not on its way out, the one that it asks for.
func (j *judge[P]) checkOwned() {
	owned := map[types.UID][]string{}
	for name, deployment := range present(j.deployments) {
		if ref := j.controllerOf(deployment); ref != nil && deployment.DeletionTimestamp == nil {
			owned[ref.UID] = append(owned[ref.UID], name)
		}
	}
	for name, parent := range present(j.parents) {
		names := owned[parent.GetUID()]
		if j.isReady(parent) && (len(names) != 1 || names[0] != j.deployment(parent)) {
			j.report("S2: %s %s is ready, asks for %s and owns %q", j.kind, name, j.deployment(parent), names)
		}
	}
}

// checkStatuses checks S3 at each change of a status.
func (j *judge[P]) checkStatuses() {
	last := map[types.UID]int64{}
	for _, v := range j.parents {
		name, uid := v.object.GetName(), v.object.GetUID()
		observed, conditions := j.status(v.object)
		if v.gone || observed == 0 {
			continue
		}
		switch {
		case observed > v.object.GetGeneration():
			j.report("S3: %s %s has observed generation %d of %d", j.kind, name, observed, v.object.GetGeneration())
		case observed < last[uid]:
			j.report("S3: %s %s has observed generation %d after %d", j.kind, name, observed, last[uid])
		}
		last[uid] = observed
		ready := meta.FindStatusCondition(conditions, readyType)
		if ready == nil || ready.ObservedGeneration != observed {
			j.report("S3: %s %s has observed generation %d, but its condition is %+v", j.kind, name, observed, ready)
			continue
		}
		if claimsAct(ready.Reason) && !j.actedUpon(uid, ready, v.number) {
			j.report("S3: %s %s says %s of generation %d, which was not applied (version %d)", j.kind, name, ready.Reason, observed, v.number)
		}
	}
}

// claimsAct reports whether the reason says that the spec was applied.
func claimsAct(reason string) bool {
	return reason == v1alpha1.ReasonDeploymentAvailable || reason == v1alpha1.ReasonDeploymentProgressing
}

// actedUpon reports whether there was, since the owner came to the generation that
// its status tells of and before that moment, a Deployment as its spec asks for.
func (j *judge[P]) actedUpon(owner types.UID, ready *metav1.Condition, moment int64) bool {
	asked, began, there := j.generation(owner, ready.ObservedGeneration)
	if !there {
		return false
	}
	for i, v := range j.deployments {
		if v.gone || v.number >= moment || v.object.Name != j.deployment(asked) {
			continue
		}
		if end, superseded := next(j.deployments, i); superseded && end < began {
			continue
		}
		ref := j.controllerOf(v.object)
		if ref == nil || ref.UID != owner {
			continue
		}
		if ready.Status == metav1.ConditionTrue && j.conforms(v.object, asked) && rolledOut(v.object) {
			return true
		}
		// One on its way out is left alone, and told as progress.
		if ready.Status == metav1.ConditionFalse && (v.object.DeletionTimestamp != nil || j.conforms(v.object, asked)) {
			return true
		}
	}
	return false
}

// generation returns the owner as it came to that generation, and when.
func (j *judge[P]) generation(owner types.UID, generation int64) (asked P, began int64, there bool) {
	for _, v := range j.parents {
		if v.object.GetUID() == owner && v.object.GetGeneration() == generation {
			return v.object, v.number, true
		}
	}
	return asked, 0, false
}

// rolledOut reports whether the Deployment controller says so of this very spec.
func rolledOut(deployment *appsv1.Deployment) bool {
	desired, status := ptr.Deref(deployment.Spec.Replicas, 1), &deployment.Status
	return status.ObservedGeneration >= deployment.Generation && status.UpdatedReplicas >= desired &&
		status.Replicas <= status.UpdatedReplicas && status.AvailableReplicas >= desired
}
