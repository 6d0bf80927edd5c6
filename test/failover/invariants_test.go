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

package failover

import (
	"fmt"
	"maps"
	"math"
	"net/http"
	"slices"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/sim"
)

// The invariants S1 to S3 of the contract, checked after a run over all versions of all objects
// and all requests of the controllers. A write carries the resource version as a
// precondition, so the API server applied it to that version: the check has no race
// between reading and writing. A write without an answer was applied only if the next
// version shows its effect. Users neither annotate a Deployment for its adoption nor change
// its strategy, so these exceptions have no place here.

// checker collects violations of the invariants.
type checker struct {
	*history

	found violations
}

// violations describe what broke the contract.
type violations []string

func (v *violations) add(format string, args ...any) {
	*v = append(*v, fmt.Sprintf(format, args...))
}

// checkFoos returns the violations of S1 to S4, given the requests of each controller.
func (h *history) checkFoos(records ...[]request) []string {
	c := &checker{history: h}
	for _, requests := range records {
		for i := range requests {
			if r := &requests[i]; r.applied() || r.isWrite() && r.lost {
				c.checkWrite(r, requests[:i])
			}
		}
	}
	c.checkNames()
	c.checkOwned()
	c.checkStatuses()
	return c.found
}

func isFooReady(foo *v1alpha1.Foo) bool {
	return meta.IsStatusConditionTrue(foo.Status.Conditions, v1alpha1.FooReady) && foo.Status.ObservedGeneration == foo.Generation
}

// checkWrite checks S1: the controller writes and deletes only what the Foo owns by UID at
// that moment.
func (c *checker) checkWrite(r *request, before []request) {
	switch {
	case r.resource == foos && r.subresource != "status":
		c.found.add("S1: %s: the controller may only write the status of Foos", r)
		return
	case r.resource != foos && r.resource != deployments:
		c.found.add("S1: %s: the controller only reads %s", r, r.resource)
		return
	case r.verb == http.MethodPost:
		// A POST never changes an existing object.
		return
	case r.resourceVersion == 0:
		c.found.add("S1: %s was applied without a precondition", r)
		return
	case r.resource == foos:
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
func (c *checker) isEffect(r *request, index int) bool {
	was, is := c.deployments[index].object, nextVersion(c.deployments, index)
	switch {
	case is == nil:
		return false
	case is.deleted || is.object.DeletionTimestamp != nil && was.DeletionTimestamp == nil:
		return r.verb == http.MethodDelete
	}
	return r.verb != http.MethodDelete && (is.object.Generation != was.Generation ||
		!maps.Equal(is.object.Labels, was.Labels) || !equality.Semantic.DeepEqual(is.object.OwnerReferences, was.OwnerReferences))
}

// checkOwnership checks a write that was applied to the version at index. Users do not wait for
// the controller: no controller can foresee what they do between its last read and its write.
func (c *checker) checkOwnership(r *request, before []request, index int) {
	ref := sim.Owner(c.deployments[index].object)
	switch {
	case ref == nil:
		c.found.add("S1: %s was applied to a Deployment that no Foo controls: %+v", r, c.deployments[index].object.OwnerReferences)
		return
	case r.verb == http.MethodPatch || isDeletionJustified(r, ref, before):
		return
	}
	const ownerMissing = "was applied to a Deployment whose Foo did not exist"
	violation := ownerMissing
	until, superseded := supersededAt(c.deployments, index)
	for _, v := range c.foos {
		if v.object.UID != ref.UID || superseded && v.revision >= until {
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
		case r.verb == http.MethodDelete && v.object.Spec.DeploymentName == r.name:
			violation = "deleted the Deployment that its Foo asked for"
		default:
			violation = ""
		}
	}
	if violation != "" {
		c.found.add("S1: %s %s (uid %s)", r, violation, ref.UID)
	}
}

// isDeletionJustified reports whether a live read of the Foo showed that it no longer asks
// for the Deployment.
func isDeletionJustified(deletion *request, owner *metav1.OwnerReference, before []request) bool {
	return slices.ContainsFunc(liveReads(deletion, before), func(r *request) bool {
		return r.readFoo != nil && r.readFoo.UID == owner.UID && r.readFoo.DeletionTimestamp == nil && r.readFoo.Spec.DeploymentName != deletion.name
	})
}

// maxReadAge bounds the time between the live read and the deletion of one sync on a busy
// machine.
const maxReadAge = 2 * time.Second

// liveReads returns the reads that may belong to the sync of the write. With several workers
// other syncs read the same objects: all reads that were answered within maxReadAge may belong
// to it.
func liveReads(write *request, before []request) (reads []*request) {
	for i := range before {
		r := &before[i]
		if r.verb == http.MethodGet && !r.answered.IsZero() && !r.answered.After(write.received) && write.received.Sub(r.answered) <= maxReadAge {
			reads = append(reads, r)
		}
	}
	return reads
}

// checkNames checks the first half of S2: the spec of the Foo named each of the Deployments
// that the controller made for it at an earlier time. A Deployment that the controller has not
// written, such as a copy with the owner reference, is a user's.
func (c *checker) checkNames() {
	reported := map[types.UID]bool{}
	for _, v := range c.deployments {
		ref := sim.Owner(v.object)
		if ref == nil || reported[v.object.UID] || !sim.WrittenByController(v.object) {
			continue
		}
		if !slices.ContainsFunc(c.foos, func(foo version[*v1alpha1.Foo]) bool {
			return foo.object.UID == ref.UID && foo.object.Spec.DeploymentName == v.object.Name && foo.revision < v.revision
		}) {
			reported[v.object.UID] = true
			c.found.add("S2: Deployment %s belongs to Foo %s, whose spec never named it", v.object.Name, ref.Name)
		}
	}
}

// checkOwned checks the second half of S2: in the end a ready Foo has exactly one Deployment
// that the controller made and that is not being deleted, the one that its spec names.
func (c *checker) checkOwned() {
	names := map[types.UID][]string{}
	for name, deployment := range existing(c.deployments) {
		if ref := sim.Owner(deployment); ref != nil && deployment.DeletionTimestamp == nil && sim.WrittenByController(deployment) {
			names[ref.UID] = append(names[ref.UID], name)
		}
	}
	for name, foo := range existing(c.foos) {
		if owns := names[foo.UID]; isFooReady(foo) && (len(owns) != 1 || owns[0] != foo.Spec.DeploymentName) {
			c.found.add("S2: Foo %s is ready, asks for %s and owns %q", name, foo.Spec.DeploymentName, owns)
		}
	}
}

// checkStatuses checks S3 for each version of a status.
func (c *checker) checkStatuses() {
	last := map[types.UID]int64{}
	for _, v := range c.foos {
		name, uid, observed := v.object.Name, v.object.UID, v.object.Status.ObservedGeneration
		if v.deleted || observed == 0 {
			continue
		}
		switch {
		case observed > v.object.Generation:
			c.found.add("S3: Foo %s has observedGeneration %d of %d", name, observed, v.object.Generation)
		case observed < last[uid]:
			c.found.add("S3: Foo %s has observedGeneration %d after %d", name, observed, last[uid])
		}
		last[uid] = observed
		ready := meta.FindStatusCondition(v.object.Status.Conditions, v1alpha1.FooReady)
		if ready == nil || ready.ObservedGeneration != observed {
			c.found.add("S3: Foo %s has observedGeneration %d, but its condition is %+v", name, observed, ready)
			continue
		}
		if (ready.Status == metav1.ConditionTrue || ready.Reason == v1alpha1.ReasonDeploymentProgressing) && !c.wasApplied(uid, ready, v.revision) {
			c.found.add("S3: Foo %s says %s for generation %d, which was not applied (revision %d)", name, ready.Reason, observed, v.revision)
		}
	}
}

// wasApplied reports whether a Deployment had the spec that the Foo asked for, at some
// time between the Foo's generation of the condition and the given revision.
func (c *checker) wasApplied(owner types.UID, ready *metav1.Condition, moment int64) bool {
	asked, began := c.fooAt(owner, ready.ObservedGeneration)
	if asked == nil {
		return false
	}
	for i, v := range c.deployments {
		if v.deleted || v.revision >= moment || v.object.Name != asked.Spec.DeploymentName {
			continue
		}
		if end, superseded := supersededAt(c.deployments, i); superseded && end < began {
			continue
		}
		ref := sim.Owner(v.object)
		if ref == nil || ref.UID != owner {
			continue
		}
		conforms := sim.Conforms(v.object, &asked.Spec)
		// The controller reports progress while a Deployment is being deleted, and does not
		// write to it.
		if ready.Status == metav1.ConditionTrue && conforms && sim.RolledOut(v.object) ||
			ready.Status == metav1.ConditionFalse && (conforms || v.object.DeletionTimestamp != nil) {
			return true
		}
	}
	return false
}

// fooAt returns the first version of the Foo with that generation, nil if there is none, and
// its revision.
func (c *checker) fooAt(uid types.UID, generation int64) (asked *v1alpha1.Foo, began int64) {
	for _, v := range c.foos {
		if v.object.UID == uid && v.object.Generation == generation {
			return v.object, v.revision
		}
	}
	return nil, 0
}

// S4 of the contract: no deletion by the controller takes a Deployment with available Pods
// while the one that the spec names is incomplete. Foos that wait in a cycle for each
// other's names are exceptions.

// moment is what a deletion may have acted on: the objects when the API server applied it,
// and what the controller had read live just before. No controller can foresee that a user
// changes an object between that read and the deletion.
type moment struct {
	// until is the revision of the deletion.
	until int64
	// specs are the Foos by UID, in each version that the deletion may have acted on.
	specs map[types.UID][]*v1alpha1.Foo
	// deployments are the Deployments by name, in the same sense.
	deployments map[string][]*appsv1.Deployment
}

// momentOf returns the moment of the write that was applied to the version at index.
func (c *checker) momentOf(r *request, before []request, index int) moment {
	m := moment{until: math.MaxInt64, specs: map[types.UID][]*v1alpha1.Foo{}, deployments: map[string][]*appsv1.Deployment{}}
	if until, superseded := supersededAt(c.deployments, index); superseded {
		m.until = until
	}
	for _, foo := range existingBefore(c.foos, m.until) {
		m.specs[foo.UID] = append(m.specs[foo.UID], foo)
	}
	for name, deployment := range existingBefore(c.deployments, m.until) {
		m.deployments[name] = append(m.deployments[name], deployment)
	}
	for _, read := range liveReads(r, before) {
		switch {
		case read.readDeployment != nil:
			m.deployments[read.name] = append(m.deployments[read.name], read.readDeployment)
		case read.readFoo != nil && read.readFoo.DeletionTimestamp == nil:
			if foo, _ := c.fooAt(read.readFoo.UID, read.readFoo.Generation); foo != nil {
				m.specs[foo.UID] = append(m.specs[foo.UID], foo)
			}
		}
	}
	return m
}

// checkAvailability checks S4 for a deletion of the Deployment's version at index.
func (c *checker) checkAvailability(r *request, before []request, index int) {
	former := c.deployments[index].object
	ref := sim.Owner(former)
	if ref == nil || former.Status.AvailableReplicas == 0 {
		return
	}
	m := c.momentOf(r, before, index)
	specs := slices.DeleteFunc(m.specs[ref.UID], func(foo *v1alpha1.Foo) bool { return foo.Spec.DeploymentName == former.Name })
	if len(specs) == 0 {
		// That is a violation of S1.
		return
	}
	for _, foo := range specs {
		complete := slices.ContainsFunc(m.deployments[foo.Spec.DeploymentName], func(named *appsv1.Deployment) bool {
			by := sim.Owner(named)
			// Without a Pod it is only complete if the spec wants none.
			return by != nil && by.UID == ref.UID && named.DeletionTimestamp == nil && sim.RolledOut(named) &&
				(named.Status.AvailableReplicas > 0 || sim.Conforms(named, &foo.Spec))
		})
		if complete || c.inCycle(m, foo) {
			return
		}
	}
	c.found.add("S4: %s took %d available Pods while Deployment %s of Foo %s was incomplete (revision %d)",
		r, former.Status.AvailableReplicas, specs[0].Spec.DeploymentName, specs[0].Name, m.until)
}

// inCycle reports whether following current owners of the names that are asked for leads
// back to the Foo. The caches of the controller may still show an owner that has released
// its name, but not one from before the generation that asks for it.
func (c *checker) inCycle(m moment, foo *v1alpha1.Foo) bool {
	visited := map[types.UID]bool{}
	for next := []*v1alpha1.Foo{foo}; len(next) > 0; next = next[1:] {
		for uid := range c.ownersOf(next[0], m.until) {
			switch {
			case uid == next[0].UID || visited[uid]:
				continue
			case uid == foo.UID:
				return true
			}
			visited[uid] = true
			next = append(next, slices.DeleteFunc(slices.Clone(m.specs[uid]), func(other *v1alpha1.Foo) bool { return other.DeletionTimestamp != nil })...)
		}
	}
	return false
}

// ownersOf returns the UIDs of the controllers that the Deployment which asking names has
// had before that revision, since asking has its generation.
func (c *checker) ownersOf(asking *v1alpha1.Foo, before int64) map[types.UID]bool {
	_, began := c.fooAt(asking.UID, asking.Generation)
	uids := map[types.UID]bool{}
	for i, v := range c.deployments {
		if v.deleted || v.revision >= before || v.object.Name != asking.Spec.DeploymentName || v.object.DeletionTimestamp != nil {
			continue
		}
		if until, superseded := supersededAt(c.deployments, i); superseded && until < began {
			continue
		}
		if ref := sim.Owner(v.object); ref != nil {
			uids[ref.UID] = true
		}
	}
	return uids
}
