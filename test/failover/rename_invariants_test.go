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
	"math"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/sim"
)

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
