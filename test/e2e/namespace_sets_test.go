//go:build e2e

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

package e2e

import (
	"fmt"
	"maps"
	"net/http"
	"slices"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// docs/scale.md describes instances that run in parallel, each for a set of namespaces.

// instance is a controller that runs in a namespace of its own, and has rights in its
// namespaces only.
type instance struct {
	*testing.T

	home       *env
	namespaces []*env
}

// newInstance makes an instance for two new namespaces. It does not run yet, and lacks the
// rights in the second namespace.
func newInstance(t *testing.T) *instance {
	t.Helper()
	i := &instance{T: t, home: newEnv(t), namespaces: []*env{newEnv(t), newEnv(t)}}
	i.install()
	i.grant(i.namespaces[0])
	return i
}

// install installs the instance for its namespaces.
func (i *instance) install() {
	i.Helper()
	var names []string
	for _, e := range i.namespaces {
		names = append(names, e.namespace)
	}
	i.home.installNamespaced(names...)
}

// user returns the user name of the instance's service account.
func (i *instance) user() string {
	return serviceAccountIn(i.home.namespace)
}

// grant gives the instance its rights in the namespace, with the commands of docs/scale.md.
func (i *instance) grant(e *env) {
	i.Helper()
	// TestUndeploy would find the roles.
	shOnCleanup(i.T, fmt.Sprintf("kubectl delete --ignore-not-found rolebinding/sample-controller-of-%s role/sample-controller --namespace=%s", i.home.namespace, e.namespace))
	e.kubectl("apply -f artifacts/deploy/namespaced/role.yaml")
	e.kubectl(fmt.Sprintf("create rolebinding sample-controller-of-%s --role=sample-controller --serviceaccount=%[1]s:sample-controller", i.home.namespace))
	e.awaitAccess(i.user(), rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"foos"}, Verbs: []string{"list"}})
}

// requireWriters fails the test unless the controllers that have written in the env's namespace since the mark
// are of these users, and had the right to.
func (e *env) requireWriters(since int, users ...string) {
	e.Helper()
	writers := map[string]bool{}
	for _, r := range e.requests(since) {
		if !r.isWrite() {
			continue
		}
		writers[r.User.Username] = true
		if r.ResponseStatus.Code == http.StatusForbidden {
			e.Errorf("%s lacks the right to %s", r.User.Username, r)
		}
	}
	if got := slices.Sorted(maps.Keys(writers)); !slices.Equal(got, users) {
		e.Errorf("writers in %s: %q, want %q only", e.namespace, got, users)
	}
}

// TestNamespaceSets runs two instances in parallel, and moves a namespace from one to the other.
func TestNamespaceSets(t *testing.T) {
	t.Parallel()
	from, to := newInstance(t), newInstance(t)
	unserved := newEnv(t)
	unserved.create("x")
	for _, i := range []*instance{from, to} {
		i.grant(i.namespaces[1])
		for _, e := range i.namespaces {
			// This Foo exists before the instance starts. Another one follows below.
			e.create("x", deploymentName("old"))
		}
		i.home.startInstalled()
		for _, e := range i.namespaces {
			e.settle()
			e.applyMemcached("y", 1) // +drop:memcached
			e.awaitReady("x")
			// +drop:rename
			e.update(deploymentName("new"))
			e.awaitReady("x")
			e.awaitGone("old")
			// +drop:end
			e.awaitMemcached("y", 1) // +drop:memcached
			e.requireWriters(e.startMark, i.user())
		}
		e := i.home
		if holder := e.kubectl("get lease sample-controller -o jsonpath={.spec.holderIdentity}"); holder == "" {
			t.Errorf("the lease of %s has no holder", e.namespace)
		}
		e.controller.requireNoErrors()
	}
	unserved.requireWriters(unserved.startMark)

	moved := from.namespaces[1]
	before := moved.mark()
	from.home.controller.stop()
	from.namespaces = from.namespaces[:1]
	from.install()
	moved.kubectl("delete rolebinding sample-controller-of-" + from.home.namespace)
	from.home.startInstalled()
	from.namespaces[0].settle()

	to.grant(moved)
	to.home.controller.stop()
	to.namespaces = append(to.namespaces, moved)
	to.install()
	to.home.startInstalled()
	to.namespaces[0].settle()
	// The move writes nothing.
	moved.requireWriters(before)
	moved.update(replicas(2))
	moved.awaitReady("x")
	moved.requireWriters(before, to.user())
}
