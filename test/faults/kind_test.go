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
	"k8s.io/apimachinery/pkg/types"
)

// kind is a kind of objects that a controller of this program works for, and all
// that makes its suite differ from the others'. Functions that take a history are
// called with its lock held.
type kind struct {
	// controller is the name in --controllers.
	controller string
	// parent, child and other are words for the roles, as names of faults have them.
	parent, child, other string
	// roles are the parts that the resources play which the controller caches.
	roles     map[string]role
	scenarios []*scenario
	// every and everyWatch say of how many faults of requests and of watches one is
	// played where only a part is: fewer of kinds that share what was played for another.
	every, everyWatch int
	// numbered says that names of children differ from run to run.
	numbered bool
	// state returns what there is.
	state func(*history) state
	// parents names the objects that there are, children counts the versions that
	// those made for them had. Markers count among the former only.
	parents  func(*history) []string
	children func(*history) int
	// violations returns what breaks the invariants, given what the controllers sent.
	violations func(*history, ...[]request) []string
	// mark makes an object of that name, and waits until it shows that all caches
	// have come as far as that.
	mark func(r *run, name, what string)
	// settled, where there is one, returns nil if also that is as it must be in the
	// end which the history does not tell.
	settled func(context.Context, *run) error
}

// kinds returns all kinds, in the order of the report.
func kinds() []*kind {
	return []*kind{fooKind(), memcachedKind(), cronTabKind()}
}

// role is the part that a resource plays in a suite: the objects that the controller
// works for, what it makes for them, and what else it caches.
type role int

const (
	parents role = iota + 1
	children
	others
)

// roles are some of them.
type roles []role

// knows reports whether the kind has resources in all of these roles.
func (k *kind) knows(about roles) bool {
	for _, role := range about {
		if !slices.Contains(k.resources(), role) {
			return false
		}
	}
	return true
}

// resources returns the roles there are.
func (k *kind) resources() roles {
	var all roles
	for _, role := range k.roles {
		all = append(all, role)
	}
	return all
}

// named returns the name of a fault in the words of the kind.
func (k *kind) named(fault string) string {
	return strings.NewReplacer("Parent", k.parent, "Child", k.child, "Other", k.other).Replace(fault)
}

// resource returns the one whose objects the controller works for.
func (k *kind) resource() string {
	for resource, role := range k.roles {
		if role == parents {
			return resource
		}
	}
	return ""
}

// list returns what there is of a resource, as the API server sends it to whoever
// selects by these labels.
func (s *suite) list(ctx context.Context, resource, namespace, selector string) ([]byte, error) {
	request := s.kube.CoreV1().RESTClient().Get().AbsPath(pathOf(resource, namespace)).SetHeader("Accept", "application/json")
	return request.Param("labelSelector", selector).DoRaw(ctx)
}

// patch changes an object by a merge.
func (s *suite) patch(ctx context.Context, resource, namespace, name, patch string) error {
	_, err := s.kube.CoreV1().RESTClient().Patch(types.MergePatchType).AbsPath(pathOf(resource, namespace), name).Body([]byte(patch)).DoRaw(ctx)
	return err
}

// remove deletes an object.
func (s *suite) remove(ctx context.Context, resource, namespace, name string, propagation metav1.DeletionPropagation) error {
	_, err := s.kube.CoreV1().RESTClient().Delete().AbsPath(pathOf(resource, namespace), name).
		SetHeader("Content-Type", "application/json").Body(mustEncode(metav1.DeleteOptions{PropagationPolicy: &propagation})).DoRaw(ctx)
	return err
}

// namesOf names the objects that there are now.
func namesOf[T metav1.Object](versions []version[T]) []string {
	var names []string
	for name := range present(versions) {
		names = append(names, name)
	}
	return names
}

// countOf counts the versions, those of markers aside.
func countOf[T metav1.Object](versions []version[T]) (count int) {
	for _, v := range versions {
		if !isMarker(v.object.GetName()) {
			count++
		}
	}
	return count
}
