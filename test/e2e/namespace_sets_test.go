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
	"context"
	"fmt"
	"maps"
	"net/http"
	"slices"
	"strings"
	"testing"
	"time"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Instances side by side, each for a set of namespaces, as docs/scale.md has them.

// instance is a controller that runs in the first of its namespaces, has rights in each
// of them, and none elsewhere.
type instance struct {
	*testing.T

	served []*scene
}

// newInstance makes an instance of two new namespaces, which does not run yet and lacks
// the rights in the second one.
func newInstance(t *testing.T) *instance {
	t.Helper()
	i := &instance{T: t, served: []*scene{newStage(t), newStage(t)}}
	i.home().installNamespaced(i.served[1].namespace)
	return i
}

func (i *instance) home() *scene {
	return i.served[0]
}

// user is whom the API server sees.
func (i *instance) user() string {
	return "system:serviceaccount:" + i.home().namespace + ":" + serviceAccount
}

// grant gives the instance its rights in a namespace, in the words of docs/scale.md.
func (i *instance) grant(s *scene) {
	i.Helper()
	i.Cleanup(func() {
		// TestUndeploy finds nothing of the manifests any more.
		command := fmt.Sprintf("kubectl delete --ignore-not-found rolebinding/sample-controller-of-%s role/sample-controller --namespace=%s", i.home().namespace, s.namespace)
		if output, err := tryIn(context.WithoutCancel(i.Context()), command); err != nil {
			i.Errorf("taking back the rights in %s: %v: %s", s.namespace, err, output)
		}
	})
	sh(i.T, "kubectl apply --namespace="+s.namespace+" -f artifacts/deploy/namespaced/role.yaml")
	sh(i.T, fmt.Sprintf("kubectl create rolebinding sample-controller-of-%s --role=sample-controller --serviceaccount=%s:sample-controller --namespace=%s",
		i.home().namespace, i.home().namespace, s.namespace))
	s.awaitRight(i.user(), rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"foos"}, Verbs: []string{"list"}})
}

// start starts the instance for all that it serves.
func (i *instance) start() {
	i.Helper()
	i.home().startInstalled()
}

// writers returns which service accounts have written in the scene's namespace since the
// mark, and fails the test where one was refused as having no right to.
func (s *scene) writers(since int) []string {
	s.Helper()
	writers := map[string]bool{}
	for _, r := range s.requests(since) {
		if r.Verb == "list" || r.Verb == "watch" {
			continue
		}
		writers[r.User.Username] = true
		if r.ResponseStatus.Code == http.StatusForbidden {
			s.Errorf("%s was refused %q", r.User.Username, r)
		}
	}
	return slices.Sorted(maps.Keys(writers))
}

// TestNamespaceSets runs two instances side by side.
func TestNamespaceSets(t *testing.T) {
	t.Parallel()
	instances := []*instance{newInstance(t), newInstance(t)}
	nobodys := newStage(t)
	untouched := nobodys.create("x")
	for _, i := range instances {
		i.grant(i.served[1])
		for _, s := range i.served {
			// One is there before the instance is, and one comes later.
			s.create("x", deploymentName("old"))
		}
		i.start()
	}
	for _, i := range instances {
		for _, s := range i.served {
			s.create("later")
			s.createMemcached("y")
			s.ready("x")
			s.update("x", deploymentName("new"))
			s.ready("x")
			s.awaitGone("old")
			s.ready("later")
			s.memcachedReady("y")
		}
	}
	t.Run("each namespace has one writer", func(t *testing.T) {
		for _, i := range instances {
			for _, s := range i.served {
				if got := s.writers(s.began); !slices.Equal(got, []string{i.user()}) {
					t.Errorf("in %s has written %q, want %s alone", s.namespace, got, i.user())
				}
			}
		}
	})
	t.Run("the one between them has none", func(t *testing.T) {
		if got := nobodys.writers(nobodys.began); len(got) > 0 || nobodys.foo("x").ResourceVersion != untouched.ResourceVersion {
			t.Errorf("%q have written in it", got)
		}
	})
	t.Run("each has a lease of its own, and no errors", func(t *testing.T) {
		holders := map[string]bool{}
		for _, i := range instances {
			lease, err := shared.kube.CoordinationV1().Leases(i.home().namespace).Get(t.Context(), "sample-controller", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			holders[*lease.Spec.HolderIdentity] = true
			if lines := errorLines(i.home().controller.output()); len(lines) > 0 {
				t.Errorf("errors in the log: %q", lines)
			}
		}
		if len(holders) != len(instances) {
			t.Errorf("holders %v", holders)
		}
	})
	moveNamespace(t, instances[0], instances[1])
}

// moveNamespace takes the second namespace from one instance, and then gives it to another.
func moveNamespace(t *testing.T, from, to *instance) {
	t.Helper()
	moved := from.served[1]
	before := moved.mark()
	foo := moved.foo("x")

	from.home().controller.stop()
	from.served = from.served[:1]
	from.home().installNamespaced()
	sh(t, fmt.Sprintf("kubectl delete rolebinding sample-controller-of-%s --namespace=%s", from.home().namespace, moved.namespace))
	from.start()
	from.home().settle()

	to.grant(moved)
	to.home().controller.stop()
	to.served = append(to.served, moved)
	to.home().installNamespaced(to.served[1].namespace, moved.namespace)
	to.start()
	to.home().settle()
	t.Run("the move writes nothing", func(t *testing.T) {
		if writes := moved.writes(before); len(writes) > 0 || moved.foo("x").ResourceVersion != foo.ResourceVersion {
			t.Errorf("writes: %q", writes)
		}
	})
	moved.update("x", replicas(2))
	moved.ready("x")
	t.Run("then the new one works there, and the former does not", func(t *testing.T) {
		if got := moved.writers(before); !slices.Equal(got, []string{to.user()}) {
			t.Errorf("%q have written, want %s alone", got, to.user())
		}
	})
}

// TestNamespaceInTwoSets has two instances work in the same namespace, which is a mistake
// of whoever runs them.
func TestNamespaceInTwoSets(t *testing.T) {
	t.Parallel()
	one, other := newInstance(t), newInstance(t)
	disputed := one.served[1]
	one.grant(disputed)
	other.grant(disputed)
	other.home().installNamespaced(disputed.namespace)
	one.start()
	other.start()
	const count = 20
	var names []string
	for n := range count {
		names = append(names, fmt.Sprintf("x%d", n))
		disputed.create(names[n], deploymentName("old-"+names[n]))
	}
	for _, name := range names {
		disputed.ready(name)
		disputed.update(name, deploymentName("new-"+name), replicas(2))
	}
	for _, name := range names {
		foo := disputed.ready(name)
		disputed.awaitGone("old-" + name)
		if owned := disputed.deploymentsOf(foo); !slices.Equal(owned, []string{"new-" + name}) {
			t.Errorf("Foo %s owns %q", name, owned)
		}
		for reason, times := range map[string]int{"Created": 2, "Deleted": 1} {
			if events := disputed.events(foo, reason); len(events) > times {
				t.Logf("%d events %s of Foo %s, one alone would have told %d", len(events), reason, name, times)
			}
		}
	}
	one.home().settle()
	other.home().settle()
	refused, accepted := 0, 0
	for _, r := range disputed.requests(disputed.began) {
		switch {
		case r.Verb == "list" || r.Verb == "watch" || r.ObjectRef.Resource == "events":
		case r.ResponseStatus.Code < http.StatusBadRequest:
			accepted++
		default:
			refused++
		}
	}
	t.Logf("%d writes were accepted and %d refused, by %q", accepted, refused, disputed.writers(disputed.began))
	rest := disputed.mark()
	throughout(t, "both are at rest", 2*time.Second, func() error {
		if writes := disputed.writes(rest); len(writes) > 0 {
			return fmt.Errorf("writes: %q", writes)
		}
		return nil
	})
}

// TestMissingNamespace starts an instance that has no rights in one of its namespaces.
func TestMissingNamespace(t *testing.T) {
	t.Parallel()
	i := newInstance(t)
	s := i.served[1]
	secrets := t.TempDir()
	s.must(shared.writeSecrets(t.Context(), i.home().namespace, secrets))
	s.eventually("it is refused", func(context.Context) error {
		output := exitsWith(t, 1, t.TempDir(), shared.asInPod(t, secrets, fmt.Sprintf("sample-controller --namespace=%s,%s", i.home().namespace, s.namespace)))
		if !strings.Contains(output, `in the namespace \"`+s.namespace+`\"`) {
			return fmt.Errorf("output %s", output)
		}
		oneErrorLine(t, output, `User \"`+i.user()+`\" cannot`, " resource ", "docs/scale.md")
		return nil
	})
}
