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

// violations returns what breaks S1, S2 or S3, given what each controller sent. The
// caller holds the lock.
func (h *history) violations(records ...[]request) []string {
	var found []string
	report := func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }
	for _, requests := range records {
		for i := range requests {
			if requests[i].applied() || requests[i].isWrite() && requests[i].lost {
				h.checkWrite(&requests[i], requests[:i], report)
			}
		}
	}
	h.checkNames(report)
	h.checkOwned(report)
	h.checkStatuses(report)
	return found
}

// checkWrite checks S1: nothing is written or deleted that the controller does
// not own by UID at that moment.
func (h *history) checkWrite(r *request, before []request, report func(string, ...any)) {
	switch {
	case r.resource == foos && (r.verb != http.MethodPut || r.subresource != "status"):
		report("S1: %s: of a Foo only the status is the controller's", r)
		return
	case r.resource == foos, r.verb == http.MethodPost:
		// A creation can do no harm to what is there.
		return
	case r.version == 0:
		report("S1: %s was applied without a precondition, to whatever was there", r)
		return
	}
	for i, v := range h.deployments {
		if v.object.Name == r.name && v.number == r.version {
			if !r.lost || h.shows(r, i) {
				h.checkOwnership(r, before, i, report)
			}
			return
		}
	}
	if !r.lost {
		report("S1: %s was applied to version %d, which is none of that Deployment", r, r.version)
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
func (h *history) checkOwnership(r *request, before []request, index int, report func(string, ...any)) {
	ref := controllerOf(h.deployments[index].object)
	if ref == nil {
		report("S1: %s was applied to a Deployment that no Foo controls: %+v", r, h.deployments[index].object.OwnerReferences)
		return
	}
	const notThere = "was applied to a Deployment whose Foo was not there at that moment"
	violation := notThere
	moment, superseded := next(h.deployments, index)
	for _, v := range h.foos {
		if v.object.UID != ref.UID || superseded && v.number >= moment {
			continue
		}
		if r.lost && v.number > h.deployments[index].number && violation == "" {
			// It was right for a while, and what shows later may be somebody else's.
			break
		}
		switch {
		case v.gone:
			violation = notThere
		case r.verb == http.MethodDelete && v.object.Spec.DeploymentName == r.name:
			violation = "deleted the Deployment that its Foo asked for at that moment"
		default:
			violation = ""
		}
	}
	if h.raced && (r.verb == http.MethodPatch || justified(r, ref, before)) {
		return
	}
	if violation != "" {
		report("S1: %s %s (uid %s)", r, violation, ref.UID)
	}
}

// justified reports whether the Foo, as the controller last read it live, had left
// the Deployment. A user who changes the Foo just then cannot be foreseen, and what
// another sync reads of it meanwhile is not known to this one.
func justified(deletion *request, owner *metav1.OwnerReference, before []request) bool {
	for _, r := range slices.Backward(before) {
		if !deletion.begun.IsZero() && (r.ended.IsZero() || r.ended.After(deletion.begun)) {
			continue
		}
		if r.verb == http.MethodGet && r.resource == foos && r.name == owner.Name {
			return r.read != nil && r.read.UID == owner.UID && r.read.DeletionTimestamp == nil && r.read.Spec.DeploymentName != deletion.name
		}
	}
	return false
}

// checkNames checks the first half of S2: each Deployment that a Foo owns was
// named by its spec at some time before.
func (h *history) checkNames(report func(string, ...any)) {
	told := map[types.UID]bool{}
	for _, v := range h.deployments {
		ref := controllerOf(v.object)
		if ref == nil || told[v.object.UID] {
			continue
		}
		if !h.named(ref.UID, v.object.Name, v.number) {
			told[v.object.UID] = true
			report("S2: Deployment %s belongs to Foo %s, whose spec had never named it", v.object.Name, ref.Name)
		}
	}
}

// named reports whether the Foo asked for that name before that moment.
func (h *history) named(foo types.UID, name string, before int64) bool {
	for _, v := range h.foos {
		if v.object.UID == foo && v.object.Spec.DeploymentName == name && v.number < before {
			return true
		}
	}
	return false
}

// checkOwned checks the second half of S2: in the end a Foo that is ready owns
// one Deployment that is not on its way out, the one that it asks for.
func (h *history) checkOwned(report func(string, ...any)) {
	owned := map[types.UID][]string{}
	for name, deployment := range present(h.deployments) {
		if ref := controllerOf(deployment); ref != nil && deployment.DeletionTimestamp == nil {
			owned[ref.UID] = append(owned[ref.UID], name)
		}
	}
	for name, foo := range present(h.foos) {
		names := owned[foo.UID]
		if isReady(foo) && (len(names) != 1 || names[0] != foo.Spec.DeploymentName) {
			report("S2: Foo %s is ready, asks for %s and owns %q", name, foo.Spec.DeploymentName, names)
		}
	}
}

// checkStatuses checks S3 at each change of a status.
func (h *history) checkStatuses(report func(string, ...any)) {
	last := map[types.UID]int64{}
	for _, v := range h.foos {
		foo := v.object
		observed := foo.Status.ObservedGeneration
		if v.gone || observed == 0 {
			continue
		}
		switch {
		case observed > foo.Generation:
			report("S3: Foo %s has observed generation %d of %d", foo.Name, observed, foo.Generation)
		case observed < last[foo.UID]:
			report("S3: Foo %s has observed generation %d after %d", foo.Name, observed, last[foo.UID])
		}
		last[foo.UID] = observed
		ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady)
		if ready == nil || ready.ObservedGeneration != observed {
			report("S3: Foo %s has observed generation %d, but its condition is %+v", foo.Name, observed, ready)
			continue
		}
		if claimsAct(ready.Reason) && !h.actedUpon(foo, ready, v.number) {
			report("S3: Foo %s says %s of generation %d, which was not applied (version %d)", foo.Name, ready.Reason, observed, v.number)
		}
	}
}

func isReady(foo *v1alpha1.Foo) bool {
	return meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.FooReady) && foo.Status.ObservedGeneration == foo.Generation
}

// claimsAct reports whether the reason says that the spec was applied.
func claimsAct(reason string) bool {
	return reason == v1alpha1.ReasonDeploymentAvailable || reason == v1alpha1.ReasonDeploymentProgressing
}

// actedUpon reports whether there was, since the Foo came to the generation that
// its status tells of and before that moment, a Deployment as its spec asks for.
func (h *history) actedUpon(foo *v1alpha1.Foo, ready *metav1.Condition, moment int64) bool {
	asked, began := h.generation(foo.UID, ready.ObservedGeneration)
	if asked == nil {
		return false
	}
	for i, v := range h.deployments {
		if v.gone || v.number >= moment || v.object.Name != asked.Spec.DeploymentName {
			continue
		}
		if end, superseded := next(h.deployments, i); superseded && end < began {
			continue
		}
		ref := controllerOf(v.object)
		if ref == nil || ref.UID != foo.UID {
			continue
		}
		if ready.Status == metav1.ConditionTrue && conforms(v.object, asked) && rolledOut(v.object) {
			return true
		}
		// One on its way out is left alone, and told as progress.
		if ready.Status == metav1.ConditionFalse && (v.object.DeletionTimestamp != nil || conforms(v.object, asked)) {
			return true
		}
	}
	return false
}

// generation returns the Foo as it came to that generation, and when.
func (h *history) generation(foo types.UID, generation int64) (*v1alpha1.Foo, int64) {
	for _, v := range h.foos {
		if v.object.UID == foo && v.object.Generation == generation {
			return v.object, v.number
		}
	}
	return nil, 0
}

// conforms reports whether the Deployment is as the Foo's spec asks for.
func conforms(deployment *appsv1.Deployment, foo *v1alpha1.Foo) bool {
	if ptr.Deref(deployment.Spec.Replicas, 1) != ptr.Deref(foo.Spec.Replicas, 1) {
		return false
	}
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if container.Name == "nginx" {
			return foo.Spec.Image == "" || container.Image == foo.Spec.Image
		}
	}
	return false
}

// rolledOut reports whether the Deployment controller says so of this very spec.
func rolledOut(deployment *appsv1.Deployment) bool {
	desired, status := ptr.Deref(deployment.Spec.Replicas, 1), &deployment.Status
	return status.ObservedGeneration >= deployment.Generation && status.UpdatedReplicas >= desired &&
		status.Replicas <= status.UpdatedReplicas && status.AvailableReplicas >= desired
}
