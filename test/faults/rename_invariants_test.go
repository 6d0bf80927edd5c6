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
	"math"
	"net/http"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// S4 of the contract: no deletion by the controller takes a Deployment with available Pods
// while the one that the spec names is incomplete. Owners that wait in a cycle for each
// other's names, and Deployments with the strategy Recreate, are exceptions.

// fooChecker checks what Foos have beyond other kinds.
type fooChecker = checker[*v1alpha1.Foo, *appsv1.Deployment]

// adoptByAnnotation names the Foo that a user asks to adopt a Deployment.
const adoptByAnnotation = "samplecontroller.k8s.io/adopt-by"

// isAdoption reports whether the write is the one that S1 allows for a Deployment which the
// owner does not control: a patch makes the owner that the annotation names, and whose spec
// names the Deployment, its controller, and removes the annotation.
func isAdoption(c *fooChecker, r *request, before []request, index int) bool {
	was, is := c.owned[index].object, nextVersion(c.owned, index)
	if r.verb != http.MethodPatch || metav1.GetControllerOf(was) != nil || is == nil || is.object.Annotations[adoptByAnnotation] != "" {
		return false
	}
	ref := c.controllerOf(is.object)
	return ref != nil && ref.Name == was.Annotations[adoptByAnnotation] &&
		slices.ContainsFunc(momentOf(c, r, before, index).specs[ref.UID], func(foo *v1alpha1.Foo) bool {
			return foo.Spec.DeploymentName == was.Name && foo.DeletionTimestamp == nil
		})
}

// moment is what a deletion may have acted on: the objects when the API server applied it,
// and what the controller had read live just before. No controller can foresee that a user
// changes an object between that read and the deletion.
type moment struct {
	// until is the revision of the deletion.
	until int64
	// specs are the owners by UID, in each version that the deletion may have acted on.
	specs map[types.UID][]*v1alpha1.Foo
	// deployments are the Deployments by name, in the same sense.
	deployments map[string][]*appsv1.Deployment
}

// momentOf returns the moment of the write that was applied to the version at index.
func momentOf(c *fooChecker, r *request, before []request, index int) moment {
	m := moment{until: math.MaxInt64, specs: map[types.UID][]*v1alpha1.Foo{}, deployments: map[string][]*appsv1.Deployment{}}
	if until, superseded := supersededAt(c.owned, index); superseded {
		m.until = until
	}
	for _, owner := range existingBefore(c.owners, m.until) {
		m.specs[owner.GetUID()] = append(m.specs[owner.GetUID()], owner)
	}
	for name, deployment := range existingBefore(c.owned, m.until) {
		m.deployments[name] = append(m.deployments[name], deployment)
	}
	for _, read := range liveReads(r, before) {
		switch {
		case read.readDeployment != nil:
			m.deployments[read.name] = append(m.deployments[read.name], read.readDeployment)
		case read.readFoo != nil && read.readFoo.DeletionTimestamp == nil:
			if owner, _, there := c.ownerAt(read.readFoo.UID, read.readFoo.Generation); there {
				m.specs[read.readFoo.UID] = append(m.specs[read.readFoo.UID], owner)
			}
		}
	}
	return m
}

// liveReads returns the reads that may belong to the sync of the write: the last one of
// each object. With several workers other syncs read the same objects: if the requests have
// times, all reads that were answered within maxReadAge may belong to it.
func liveReads(write *request, before []request) (reads []*request) {
	timed, seen := !write.received.IsZero(), map[string]bool{}
	for i := len(before) - 1; i >= 0; i-- {
		r := &before[i]
		key := r.resource + "/" + r.name
		switch {
		case r.verb != http.MethodGet:
		case timed && (r.answered.IsZero() || r.answered.After(write.received) || write.received.Sub(r.answered) > maxReadAge):
		case timed || !seen[key]:
			seen[key] = true
			reads = append(reads, r)
		}
	}
	return reads
}

// checkAvailability checks S4 for a deletion of the Deployment's version at index.
func checkAvailability(c *fooChecker, r *request, before []request, index int) {
	former := c.owned[index].object
	ref := c.controllerOf(former)
	if ref == nil || former.Status.AvailableReplicas == 0 || former.Spec.Strategy.Type == appsv1.RecreateDeploymentStrategyType {
		return
	}
	m := momentOf(c, r, before, index)
	specs := slices.DeleteFunc(m.specs[ref.UID], func(foo *v1alpha1.Foo) bool { return foo.Spec.DeploymentName == former.Name })
	if len(specs) == 0 {
		// That is a violation of S1.
		return
	}
	for _, owner := range specs {
		complete := slices.ContainsFunc(m.deployments[owner.Spec.DeploymentName], func(named *appsv1.Deployment) bool {
			by := c.controllerOf(named)
			// Without a Pod it is only complete if the spec wants none.
			return by != nil && by.UID == ref.UID && named.DeletionTimestamp == nil && rolledOut(named) &&
				(named.Status.AvailableReplicas > 0 || c.conforms(named, owner))
		})
		if complete || inCycle(c, m, owner) {
			return
		}
	}
	c.found.add("S4: %s took %d available Pods while Deployment %s of %s %s was incomplete (revision %d)",
		r, former.Status.AvailableReplicas, specs[0].Spec.DeploymentName, c.kind, specs[0].Name, m.until)
}

// inCycle reports whether following current owners of the names that are asked for leads
// back to the owner. The caches of the controller may still show an owner that has released
// its name, but not one from before the generation that asks for it.
func inCycle(c *fooChecker, m moment, foo *v1alpha1.Foo) bool {
	visited := map[types.UID]bool{}
	for next := []*v1alpha1.Foo{foo}; len(next) > 0; next = next[1:] {
		for uid := range ownersOf(c, next[0], m.until) {
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
func ownersOf(c *fooChecker, asking *v1alpha1.Foo, before int64) map[types.UID]bool {
	_, began, _ := c.ownerAt(asking.UID, asking.Generation)
	uids := map[types.UID]bool{}
	for i, v := range c.owned {
		if v.deleted || v.revision >= before || v.object.Name != asking.Spec.DeploymentName || v.object.DeletionTimestamp != nil {
			continue
		}
		if until, superseded := supersededAt(c.owned, i); superseded && until < began {
			continue
		}
		if ref := c.controllerOf(v.object); ref != nil {
			uids[ref.UID] = true
		}
	}
	return uids
}
