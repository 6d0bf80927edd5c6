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
	"context"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// kindSuite is the suite of one kind: its scenarios, and what distinguishes the kind from
// others. The functions that take a history are called with its lock held.
type kindSuite struct {
	// controller is the name of the controller in --controllers.
	controller string
	// owner, dependent and other replace these roles in the names of faults.
	owner, dependent, other string
	// roles are the roles of the resources that the controller caches.
	roles     map[string]role
	scenarios []*scenario
	// With FAULTS=part, one in every request faults and one in everyWatch watch faults
	// runs. The values are higher for kinds that share code with a kind that is tested
	// more.
	every, everyWatch int
	// namesVary is set if the names of dependents differ from run to run.
	namesVary bool
	state     func(*history) state
	// ownerNames returns the names of existing owners. countDependentVersions returns how
	// many versions of dependents the history has, without those of markers.
	ownerNames             func(*history) []string
	countDependentVersions func(*history) int
	// violations checks the invariants, given the requests of each controller.
	violations func(*history, ...[]request) []string
	// awaitMarker creates a marker of that name and waits until its status shows that all
	// caches have everything from before.
	awaitMarker func(r *run, name, what string)
	// checkSettled, if not nil, checks the final state of objects that the history does
	// not record.
	checkSettled func(context.Context, *run) error
}

// kindSuites returns the suites in the order of the report.
func kindSuites() []*kindSuite {
	return []*kindSuite{fooSuite(), memcachedSuite(), cronTabSuite()}
}

// role is what a resource is to the controller: owners are the objects that it
// reconciles, dependents those that it creates for them, others those that it only reads.
type role int

const (
	owners role = iota + 1
	dependents
	others
)

type roles []role

// hasRoles reports whether the controller caches a resource of each of the roles.
func (k *kindSuite) hasRoles(wanted roles) bool {
	for _, role := range wanted {
		if !slices.Contains(k.allRoles(), role) {
			return false
		}
	}
	return true
}

func (k *kindSuite) allRoles() roles {
	var all roles
	for _, role := range k.roles {
		all = append(all, role)
	}
	return all
}

// faultName replaces the roles in the name of a fault by kinds.
func (k *kindSuite) faultName(fault string) string {
	return strings.NewReplacer("Owner", k.owner, "Dependent", k.dependent, "Other", k.other).Replace(fault)
}

// ownerResource returns the resource that the controller reconciles.
func (k *kindSuite) ownerResource() string {
	for resource, role := range k.roles {
		if role == owners {
			return resource
		}
	}
	return ""
}

// existingNames returns the names of the objects that exist now.
func existingNames[T metav1.Object](versions []version[T]) []string {
	var names []string
	for name := range existing(versions) {
		names = append(names, name)
	}
	return names
}

// countVersions returns the number of versions without those of markers.
func countVersions[T metav1.Object](versions []version[T]) (count int) {
	for _, v := range versions {
		if !isMarker(v.object.GetName()) {
			count++
		}
	}
	return count
}
