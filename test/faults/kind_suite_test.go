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
	"maps"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/sample-controller/test/kinds"
)

// kindSuite is the suite of one kind. Most of it follows from the kind's testdata/suites.yaml;
// a kind that has more to say extends it. The functions that take a history are called with
// its lock held.
type kindSuite struct {
	*kinds.Data

	// roles are the roles of the resources that the controller caches, and gvrs the same
	// resources in full.
	roles     map[string]role
	gvrs      map[string]schema.GroupVersionResource
	scenarios []*scenario
	// With FAULTS=part, one in every request faults and one in everyWatch watch faults
	// runs. The values are higher for kinds that share code with a kind that is tested
	// more.
	every, everyWatch int
	// namesVary is set if the names of dependents differ from run to run.
	namesVary bool
	state     func(*history) state
	// conforms reports whether a dependent is as the owner's spec asks.
	conforms func(dependent, owner *unstructured.Unstructured) bool
	// progress is the reason that says that the spec is applied and its effect is awaited, ""
	// if none says so.
	progress string
	// violations checks the invariants, given the requests of each controller.
	violations func(*history, ...[]request) []string
	// awaitMarker creates a marker of that name and waits until its status shows that all
	// caches have everything from before.
	awaitMarker func(r *run, name, what string)
	// checkSettled, if not nil, checks the final state of objects that the history does
	// not record.
	checkSettled func(context.Context, *run) error
}

// newKindSuites returns the suites in the order of the report.
func newKindSuites() ([]*kindSuite, error) {
	all, err := kinds.Read("../..")
	if err != nil {
		return nil, err
	}
	extensions := map[string]func(*kindSuite){
		"foo":       extendFoo,
		"memcached": extendMemcached, // +drop:memcached
		"crontab":   extendCronTab,   // +drop:crontab
	}
	var suites []*kindSuite
	for _, k := range all {
		suite := newKindSuite(k)
		if extend := extensions[k.Controller]; extend != nil {
			extend(suite)
		}
		suites = append(suites, suite)
	}
	return suites, nil
}

// newKindSuite returns the suite that follows from the data.
func newKindSuite(data *kinds.Data) *kindSuite {
	owned := data.Owns.GVR()
	k := &kindSuite{
		Data: data, every: 20, everyWatch: 40,
		roles:       map[string]role{data.Resource: owners, owned.Resource: dependents},
		gvrs:        map[string]schema.GroupVersionResource{data.Resource: data.GVR(), owned.Resource: owned},
		awaitMarker: createMarker,
	}
	for i := range data.Also {
		gvr := data.Also[i].GVR()
		k.roles[gvr.Resource], k.gvrs[gvr.Resource] = dependents, gvr
	}
	for i := range data.Reads {
		gvr := data.Reads[i].GVR()
		k.roles[gvr.Resource], k.gvrs[gvr.Resource] = others, gvr
	}
	k.state, k.violations = k.objectStates, k.checkInvariants
	k.conforms = func(dependent, owner *unstructured.Unstructured) bool {
		return k.Owns.ShowSpec(dependent.Object, owner.Object)
	}
	if len(data.Spec) > 0 {
		k.scenarios = k.newScenarios()
	}
	return k
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
	all := slices.Collect(maps.Values(k.roles))
	return !slices.ContainsFunc(wanted, func(wanted role) bool { return !slices.Contains(all, wanted) })
}

// faultName replaces the roles in the name of a fault by kinds.
func (k *kindSuite) faultName(fault string) string {
	other := ""
	if n := len(k.Reads); n > 0 {
		other = k.Reads[n-1].Kind
	}
	return strings.NewReplacer("Owner", k.Kind, "Dependent", k.Owns.Kind, "Other", other).Replace(fault)
}

// ownedResource returns the resource of the dependents.
func (k *kindSuite) ownedResource() string {
	return k.Owns.GVR().Resource
}

// ownerVersions and ownedVersions return the versions of the owners and of the dependents.
func (k *kindSuite) ownerVersions(h *history) []version[*unstructured.Unstructured] {
	return h.objects[k.Resource]
}

func (k *kindSuite) ownedVersions(h *history) []version[*unstructured.Unstructured] {
	return h.objects[k.ownedResource()]
}

// ownerNames returns the names of existing owners.
func (k *kindSuite) ownerNames(h *history) []string {
	return slices.Collect(maps.Keys(existing(k.ownerVersions(h))))
}
