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
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// startNamespaced installs the namespaced variant in the env and starts a controller with
// the variant's service account and flags.
func (e *env) startNamespaced() {
	e.Helper()
	e.installNamespaced()
	e.startInstalled()
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

func TestNamespacedVariant(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startNamespaced()
	e.create("x", deploymentName("old"))
	e.awaitReady("x")
	e.update("x", deploymentName("new"))
	e.awaitReady("x")
	e.awaitGone("old")
	// +drop:memcached
	e.createMemcached("y")
	e.awaitMemcachedReady("y")
	// +drop:end
	e.controller.requireNoErrors()
}

// TestOwnerReferencesPermissionEnforcement removes the rights to the kinds' finalizers from
// the role. The admission plugin of that name demands them, and no request shows them in the
// audit log.
func TestOwnerReferencesPermissionEnforcement(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.startNamespaced()
	var kept, removed []rbacv1.PolicyRule
	e.updateRole(func(role *rbacv1.Role) {
		kept, removed = nil, nil
		for _, rule := range singleRules(role.Rules...) {
			if strings.HasSuffix(rule.Resources[0], "/finalizers") {
				removed = append(removed, rule)
			} else {
				kept = append(kept, rule)
			}
		}
		role.Rules = kept
	})
	if len(removed) != len(shared.kinds) {
		t.Fatalf("want a right to the finalizers of each kind, got %+v", removed)
	}
	for _, rule := range removed {
		e.awaitAccess(serviceAccountIn(e.namespace), rule, false)
	}
	e.create("x")
	e.createMemcached("y") // +drop:memcached
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentRejected), "cannot set blockOwnerDeletion")
	// +drop:memcached
	_, refusedMemcached := e.awaitMemcachedReason("y", v1alpha1.ReasonDeploymentRejected)
	mustContain(t, refusedMemcached.Message, "cannot set blockOwnerDeletion")
	// +drop:end

	e.updateRole(func(role *rbacv1.Role) { role.Rules = append(role.Rules, removed...) })
	e.update("x", replicas(2))
	e.updateMemcached("y", size(2)) // +drop:memcached
	e.awaitReady("x")
	e.awaitMemcachedReady("y") // +drop:memcached
}

// awaitAccess waits until the API server allows or denies the user the rule's only right.
func (e *env) awaitAccess(user string, rule rbacv1.PolicyRule, allowed bool) {
	e.Helper()
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	name := ""
	if len(rule.ResourceNames) > 0 {
		name = rule.ResourceNames[0]
	}
	e.eventually(fmt.Sprintf("allowed is %t for %s to %s", allowed, user, rule.String()), func(ctx context.Context) error {
		review, err := shared.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
			Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: &authorizationv1.ResourceAttributes{
				Namespace: e.namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource, Name: name,
			}},
		}, metav1.CreateOptions{})
		if err == nil && review.Status.Allowed != allowed {
			err = fmt.Errorf("status %+v", review.Status)
		}
		return err
	})
}

// serviceAccountIn returns the user name of the controller's service account in the
// namespace.
func serviceAccountIn(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + serviceAccount
}

func (e *env) updateRole(change func(*rbacv1.Role)) {
	e.Helper()
	updateObject(e, shared.kube.RbacV1().Roles(e.namespace), "sample-controller", change)
}

// TestWithoutWatchList fills the caches as on an API server without streaming lists.
func TestWithoutWatchList(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	command := "env KUBE_FEATURE_WatchListClient=false sample-controller -v=2 --namespace=" + e.namespace
	e.controller = start(t, t.TempDir(), shared.asInPod(t, shared.secrets, command))
	e.controller.awaitOutput("Started workers")
	e.create("x")
	e.awaitReady("x")
}

// grantedRules returns the rules of all roles, by the role's name, that are bound to the
// service account.
func grantedRules(t *testing.T, account string) map[string][]rbacv1.PolicyRule {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, ref := range rolesOf(t, systemNamespace, account) {
		if ref.Kind == "Role" {
			role, err := shared.kube.RbacV1().Roles(systemNamespace).Get(t.Context(), ref.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			rules[role.Name] = append(rules[role.Name], role.Rules...)
			continue
		}
		role, err := shared.kube.RbacV1().ClusterRoles().Get(t.Context(), ref.Name, metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		rules[role.Name] = append(rules[role.Name], role.Rules...)
	}
	return rules
}

// rolesOf returns the roles that are bound to the service account in that namespace, in the whole
// cluster and in the namespace.
func rolesOf(t *testing.T, namespace, account string) (refs []rbacv1.RoleRef) {
	t.Helper()
	ours := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace && s.Name == account
		})
	}
	clusterBindings, err := shared.kube.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, binding := range clusterBindings.Items {
		if ours(binding.Subjects) {
			refs = append(refs, binding.RoleRef)
		}
	}
	bindings, err := shared.kube.RbacV1().RoleBindings(namespace).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, binding := range bindings.Items {
		if ours(binding.Subjects) {
			refs = append(refs, binding.RoleRef)
		}
	}
	return refs
}

// singleRules returns the rules as rules of one right each.
func singleRules(rules ...rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var single []rbacv1.PolicyRule
	for _, rule := range rules {
		for _, group := range rule.APIGroups {
			for _, resource := range rule.Resources {
				for _, verb := range rule.Verbs {
					single = append(single, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: rule.ResourceNames})
				}
			}
		}
	}
	return single
}

// ruleRight returns the right of a rule that singleRules has returned.
func ruleRight(rule rbacv1.PolicyRule) string {
	return rightOf(rule.Verbs[0], rule.APIGroups[0], rule.Resources[0])
}
