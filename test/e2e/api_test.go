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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// applyFoo returns a command that applies a Foo. The spec may be "".
func applyFoo(namespace, name, spec string) string {
	return fmt.Sprintf(`cat << 'EOF' | kubectl apply --namespace=%s -f -
apiVersion: samplecontroller.k8s.io/v1alpha1
kind: Foo
metadata:
  name: %s
%s
EOF`, namespace, name, spec)
}

// installNamespaced installs the namespaced variant in the env, for its own namespace or, as
// docs/scale.md does, for these others.
func (e *env) installNamespaced(others ...string) {
	e.Helper()
	overlay := e.TempDir()
	base, err := filepath.Rel(overlay, filepath.Join(shared.root, "artifacts/deploy/namespaced"))
	e.must(err)
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: %s\nresources: [%s]\n", e.namespace, base)
	if len(others) > 0 {
		text += fmt.Sprintf(`patches:
- target: {kind: Deployment, name: sample-controller}
  patch: |
    - op: replace
      path: /spec/template/spec/containers/0/args/0
      value: --namespace=%s
- target: {kind: "Role(Binding)?", name: sample-controller}
  patch: |
    $patch: delete
    kind: Any
    metadata: {name: sample-controller}
`, strings.Join(others, ","))
	}
	e.must(os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600))
	sh(e.T, "kubectl apply -k "+overlay)
	// The controller creates the lease, so the overlay does not contain it.
	shOnCleanup(e.T, "kubectl delete --ignore-not-found -k "+overlay,
		"kubectl delete --ignore-not-found lease sample-controller --namespace="+e.namespace)
}

// startInstalled starts a controller with the flags of the variant that installNamespaced
// has installed.
func (e *env) startInstalled() {
	e.Helper()
	secrets := e.TempDir()
	e.must(shared.writeSecrets(e.Context(), cache.NewObjectName(e.namespace, serviceAccount), secrets))
	flags := strings.Join(e.deployment("sample-controller").Spec.Template.Spec.Containers[0].Args, " ")
	command := "sample-controller " + strings.ReplaceAll(flags, "$(NAMESPACE)", e.namespace) + " --health-probe-bind-address=127.0.0.1:0 -v=2"
	e.controller = start(e.T, e.TempDir(), shared.asInPod(e.T, secrets, command))
	e.controller.awaitOutput(startLines...)
}

// TestNamespacedVariant runs the variant for a namespace, under the policy for the controller.
func TestNamespacedVariant(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.installNamespaced()
	e.startInstalled()
	e.script("namespaced")
}

// docs/scale.md describes instances that run in parallel, each for a set of namespaces.

// serve installs and starts an instance in the env's namespace, or starts it again, for these namespaces. It gets
// its rights with the commands of docs/scale.md.
func (e *env) serve(namespaces ...*env) {
	e.Helper()
	if e.controller != nil {
		e.controller.stop()
	}
	var names []string
	for _, n := range namespaces {
		names = append(names, n.namespace)
		// TestUndeploy would find the roles.
		shOnCleanup(e.T, fmt.Sprintf("kubectl delete --ignore-not-found rolebinding/%s role/sample-controller --namespace=%s", e.bindingOf(), n.namespace))
		n.kubectl("apply -f artifacts/deploy/namespaced/role.yaml")
		n.kubectl(fmt.Sprintf("create rolebinding %s --role=sample-controller --serviceaccount=%s:sample-controller --dry-run=client -o yaml | kubectl apply -f -", e.bindingOf(), e.namespace))
		n.awaitAccess(serviceAccountIn(e.namespace), rbacv1.PolicyRule{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"foos"}, Verbs: []string{"list"}})
	}
	e.installNamespaced(names...)
	e.startInstalled()
	namespaces[0].settle()
}

// bindingOf returns the name of the binding for an instance in the env's namespace.
func (e *env) bindingOf() string {
	return "sample-controller-of-" + e.namespace
}

// requireWriter fails the test unless only that instance has written in the env's namespace since the mark, and
// had the right to.
func (e *env) requireWriter(instance *env, mark int) {
	e.Helper()
	e.eventually("the audit log has the writes", func(context.Context) error {
		writers := map[string]bool{}
		for _, r := range auditedRequests(e.T)[mark:] {
			if !strings.HasPrefix(r.UserAgent, "sample-controller/") || r.ObjectRef.Namespace != e.namespace || r.Verb == "list" || r.Verb == "watch" {
				continue
			}
			writers[r.User.Username] = true
			if r.ResponseStatus.Code == http.StatusForbidden {
				e.Errorf("%s lacks the right to %s", r.User.Username, r)
			}
		}
		if got := slices.Sorted(maps.Keys(writers)); !slices.Equal(got, []string{serviceAccountIn(instance.namespace)}) {
			return fmt.Errorf("writers %q", got)
		}
		return nil
	})
}

// TestNamespaceSets runs two instances in parallel, and moves a namespace from one to the other.
func TestNamespaceSets(t *testing.T) {
	t.Parallel()
	from, to, moved, stays, other := newEnv(t), newEnv(t), newEnv(t), newEnv(t), newEnv(t)
	for _, e := range []*env{moved, stays, other} {
		e.create("x")
	}
	from.serve(stays, moved)
	to.serve(other)
	for e, instance := range map[*env]*env{moved: from, stays: from, other: to} {
		e.awaitReady("x")
		e.requireWriter(instance, 0)
	}
	from.controller.requireNoErrors()

	mark := len(auditedRequests(t))
	from.serve(stays)
	moved.kubectl("delete rolebinding " + from.bindingOf())
	to.serve(other, moved)
	moved.update(replicas(2))
	moved.awaitReady("x")
	moved.requireWriter(to, mark)
}
