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
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

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
	sh(i.T, "kubectl apply --namespace="+e.namespace+" -f artifacts/deploy/namespaced/role.yaml")
	sh(i.T, fmt.Sprintf("kubectl create rolebinding sample-controller-of-%s --role=sample-controller --serviceaccount=%s:sample-controller --namespace=%s",
		i.home.namespace, i.home.namespace, e.namespace))
	e.awaitAccess(i.user(), rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"foos"}, Verbs: []string{"list"}}, true)
}

// start starts the instance for all of its namespaces.
func (i *instance) start() {
	i.Helper()
	i.home.startInstalled()
}

// writers returns the users of the controllers that have written in the env's namespace since
// the mark. It fails the test if one of them lacked a right.
func (e *env) writers(since int) []string {
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
	return slices.Sorted(maps.Keys(writers))
}

// TestNamespaceSets runs two instances in parallel.
func TestNamespaceSets(t *testing.T) {
	t.Parallel()
	instances := []*instance{newInstance(t), newInstance(t)}
	unserved := newEnv(t)
	untouched := unserved.create("x")
	for _, i := range instances {
		i.grant(i.namespaces[1])
		for _, e := range i.namespaces {
			// This Foo exists before the instance starts. Another one follows below.
			e.create("x", deploymentName("old"))
		}
		i.start()
	}
	for _, i := range instances {
		for _, e := range i.namespaces {
			e.create("later")
			e.createMemcached("y") // +drop:memcached
			e.awaitReady("x")
			e.update("x", deploymentName("new"))
			e.awaitReady("x")
			e.awaitGone("old")
			e.awaitReady("later")
			e.awaitMemcachedReady("y") // +drop:memcached
		}
	}
	t.Run("each namespace has one writer", func(t *testing.T) {
		for _, i := range instances {
			for _, e := range i.namespaces {
				if got := e.writers(e.startMark); !slices.Equal(got, []string{i.user()}) {
					t.Errorf("writers in %s: %q, want %s only", e.namespace, got, i.user())
				}
			}
		}
	})
	t.Run("a namespace of no instance has none", func(t *testing.T) {
		if got := unserved.writers(unserved.startMark); len(got) > 0 || unserved.foo("x").ResourceVersion != untouched.ResourceVersion {
			t.Errorf("writers: %q", got)
		}
	})
	t.Run("each instance has its own lease, and no errors", func(t *testing.T) {
		holders := map[string]bool{}
		for _, i := range instances {
			lease, err := shared.kube.CoordinationV1().Leases(i.home.namespace).Get(t.Context(), "sample-controller", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			holders[*lease.Spec.HolderIdentity] = true
			i.home.controller.requireNoErrors()
		}
		if len(holders) != len(instances) {
			t.Errorf("holders %v", holders)
		}
	})
	moveNamespace(t, instances[0], instances[1])
}

// moveNamespace moves the second namespace of one instance to the other one.
func moveNamespace(t *testing.T, from, to *instance) {
	t.Helper()
	moved := from.namespaces[1]
	before := moved.mark()
	foo := moved.foo("x")

	from.home.controller.stop()
	from.namespaces = from.namespaces[:1]
	from.install()
	sh(t, fmt.Sprintf("kubectl delete rolebinding sample-controller-of-%s --namespace=%s", from.home.namespace, moved.namespace))
	from.start()
	from.namespaces[0].settle()

	to.grant(moved)
	to.home.controller.stop()
	to.namespaces = append(to.namespaces, moved)
	to.install()
	to.start()
	to.namespaces[0].settle()
	t.Run("the move writes nothing", func(t *testing.T) {
		if writes := moved.writes(before); len(writes) > 0 || moved.foo("x").ResourceVersion != foo.ResourceVersion {
			t.Errorf("writes: %q", writes)
		}
	})
	moved.update("x", replicas(2))
	moved.awaitReady("x")
	t.Run("then only the other instance writes there", func(t *testing.T) {
		if got := moved.writers(before); !slices.Equal(got, []string{to.user()}) {
			t.Errorf("writers: %q, want %s only", got, to.user())
		}
	})
}

// TestNamespaceInTwoSets configures two instances for the same namespace by mistake. The
// objects still converge.
func TestNamespaceInTwoSets(t *testing.T) {
	t.Parallel()
	one, other := newInstance(t), newInstance(t)
	disputed := one.namespaces[1]
	one.grant(disputed)
	other.grant(disputed)
	other.namespaces[1] = disputed
	other.install()
	one.start()
	other.start()
	const count = 20
	var names []string
	for n := range count {
		names = append(names, fmt.Sprintf("x%d", n))
		disputed.create(names[n], deploymentName("old-"+names[n]))
	}
	for _, name := range names {
		disputed.awaitReady(name)
		disputed.update(name, deploymentName("new-"+name), replicas(2))
	}
	for _, name := range names {
		foo := disputed.awaitReady(name)
		disputed.awaitGone("old-" + name)
		if owned := disputed.deploymentsOf(foo); !slices.Equal(owned, []string{"new-" + name}) {
			t.Errorf("Foo %s owns %q", name, owned)
		}
		for reason, times := range map[string]int{"Created": 2, "Deleted": 1} {
			if events := disputed.events(foo, reason); len(events) > times {
				t.Logf("%d events %s of Foo %s, one instance sends %d", len(events), reason, name, times)
			}
		}
	}
	one.namespaces[0].settle()
	other.namespaces[0].settle()
	refused, accepted := 0, 0
	for _, r := range disputed.requests(disputed.startMark) {
		switch {
		case !r.isWrite() || r.ObjectRef.Resource == "events":
		case r.isAccepted():
			accepted++
		default:
			refused++
		}
	}
	t.Logf("the API server accepted %d writes and refused %d, by %q", accepted, refused, disputed.writers(disputed.startMark))
	rest := disputed.mark()
	consistently(t, "neither instance writes", 2*time.Second, func() error {
		if writes := disputed.writes(rest); len(writes) > 0 {
			return fmt.Errorf("writes: %q", writes)
		}
		return nil
	})
}

// TestMissingNamespace starts an instance that has no rights in one of its namespaces, and
// grants them.
func TestMissingNamespace(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	e := i.namespaces[1]
	secrets := t.TempDir()
	e.must(shared.writeSecrets(t.Context(), cache.NewObjectName(i.home.namespace, serviceAccount), secrets))
	p := start(t, t.TempDir(), shared.asInPod(t, secrets, fmt.Sprintf("sample-controller --namespace=%s,%s", i.namespaces[0].namespace, e.namespace)))
	waitsForRights(t, p, i.user(), `in the namespace \"`+e.namespace+`\"`, "docs/scale.md")
	i.grant(e)
	p.awaitOutput(startLines...)
	p.stop()
}
