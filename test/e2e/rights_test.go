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
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	cachev1alpha1 "example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// What the controller does with other rights than those of the cluster-wide
// manifests.

// startNamespaced installs the namespaced variant in the scene and starts a
// controller with its service account and its flags.
func (s *scene) startNamespaced() {
	s.Helper()
	s.installNamespaced()
	s.startInstalled()
}

// installNamespaced installs the namespaced variant in the scene, for further namespaces
// as well.
func (s *scene) installNamespaced(further ...string) {
	s.Helper()
	overlay := s.TempDir()
	base, err := filepath.Rel(overlay, filepath.Join(shared.root, "artifacts/deploy/namespaced"))
	s.must(err)
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nnamespace: %s\nresources: [%s]\n", s.namespace, base)
	if len(further) > 0 {
		text += fmt.Sprintf(`patches:
- target: {kind: Deployment, name: sample-controller}
  patch: |
    - op: add
      path: /spec/template/spec/containers/0/args/-
      value: --namespace=%s
`, strings.Join(further, ","))
	}
	s.must(os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600))
	sh(s.T, "kubectl apply -k "+overlay)
	s.Cleanup(func() {
		// The lease is the controller's own.
		command := fmt.Sprintf("kubectl delete --ignore-not-found -k %s && kubectl delete --ignore-not-found lease sample-controller --namespace=%s", overlay, s.namespace)
		if output, err := tryIn(context.WithoutCancel(s.Context()), command); err != nil {
			s.Errorf("removing the namespaced variant: %v: %s", err, output)
		}
	})
}

// startInstalled starts what installNamespaced has installed.
func (s *scene) startInstalled() {
	s.Helper()
	secrets := s.TempDir()
	s.must(shared.writeSecrets(s.Context(), s.namespace, secrets))
	flags := strings.Join(s.deployment("sample-controller").Spec.Template.Spec.Containers[0].Args, " ")
	command := "sample-controller " + strings.ReplaceAll(flags, "$(NAMESPACE)", s.namespace) + " --health-probe-bind-address=127.0.0.1:0 -v=2"
	s.controller = start(s.T, s.TempDir(), shared.asInPod(s.T, secrets, command))
	s.controller.prints(startLines...)
}

func TestNamespacedVariant(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.startNamespaced()
	s.create("x", deploymentName("old"))
	s.ready("x")
	s.update("x", deploymentName("new"))
	s.ready("x")
	s.awaitGone("old")
	s.createMemcached("y")
	s.memcachedReady("y")
	if lines := errorLines(s.controller.output()); len(lines) > 0 {
		t.Errorf("errors in the log: %q", lines)
	}
}

// TestOwnerReferencesPermissionEnforcement takes the rights foos/finalizers and
// memcacheds/finalizers away, which the plugin of that name wants and no request shows.
func TestOwnerReferencesPermissionEnforcement(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	s.startNamespaced()
	rules := []rbacv1.PolicyRule{
		{APIGroups: []string{v1alpha1.GroupName}, Resources: []string{"foos/finalizers"}, Verbs: []string{"update"}},
		{APIGroups: []string{cachev1alpha1.GroupName}, Resources: []string{"memcacheds/finalizers"}, Verbs: []string{"update"}},
	}
	s.updateRole(func(role *rbacv1.Role) {
		before := len(role.Rules)
		role.Rules = slices.DeleteFunc(role.Rules, func(r rbacv1.PolicyRule) bool {
			return slices.ContainsFunc(rules, func(rule rbacv1.PolicyRule) bool { return r.String() == rule.String() })
		})
		if len(role.Rules) != before-len(rules) {
			t.Fatalf("the role lacks one of these rules: %+v", role.Rules)
		}
	})
	s.eventually("the API server has taken notice", func(ctx context.Context) error {
		for _, rule := range rules {
			resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
			review, err := shared.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, &authorizationv1.SubjectAccessReview{
				Spec: authorizationv1.SubjectAccessReviewSpec{User: "system:serviceaccount:" + s.namespace + ":" + serviceAccount, ResourceAttributes: &authorizationv1.ResourceAttributes{
					Namespace: s.namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource,
				}},
			}, metav1.CreateOptions{})
			if err != nil {
				return err
			}
			if review.Status.Allowed {
				return errors.New("it allows " + rule.String())
			}
		}
		return nil
	})
	s.create("x")
	s.createMemcached("y")
	mustContain(t, s.notReady("x", v1alpha1.ReasonDeploymentRejected), "cannot set blockOwnerDeletion")
	_, refused := s.memcachedCondition("y", v1alpha1.ReasonDeploymentRejected)
	mustContain(t, refused.Message, "cannot set blockOwnerDeletion")

	s.updateRole(func(role *rbacv1.Role) { role.Rules = append(role.Rules, rules...) })
	s.update("x", replicas(2))
	s.updateMemcached("y", size(2))
	s.ready("x")
	s.memcachedReady("y")
}

func (s *scene) updateRole(change func(*rbacv1.Role)) {
	s.Helper()
	roles := shared.kube.RbacV1().Roles(s.namespace)
	s.must(retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		role, err := roles.Get(s.Context(), "sample-controller", metav1.GetOptions{})
		if err != nil {
			return err
		}
		change(role)
		_, err = roles.Update(s.Context(), role, metav1.UpdateOptions{})
		return err
	}))
}

// TestWithoutWatchList fills the caches as with an API server that streams no
// lists.
func TestWithoutWatchList(t *testing.T) {
	t.Parallel()
	s := newStage(t)
	command := "env KUBE_FEATURE_WatchListClient=false sample-controller -v=2 --namespace=" + s.namespace
	s.controller = start(t, t.TempDir(), shared.asInPod(t, shared.secrets, command))
	s.controller.prints("Started workers")
	s.create("x")
	s.ready("x")
}

// grantedRules returns the rules of all roles that are bound to the service account.
func grantedRules(t *testing.T) []rbacv1.PolicyRule {
	t.Helper()
	var rules []rbacv1.PolicyRule
	ours := func(subjects []rbacv1.Subject) bool {
		return slices.ContainsFunc(subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == systemNamespace && s.Name == serviceAccount
		})
	}
	clusterBindings, err := shared.kube.RbacV1().ClusterRoleBindings().List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, binding := range clusterBindings.Items {
		if ours(binding.Subjects) {
			role, err := shared.kube.RbacV1().ClusterRoles().Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, role.Rules...)
		}
	}
	bindings, err := shared.kube.RbacV1().RoleBindings(metav1.NamespaceAll).List(t.Context(), metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	for _, binding := range bindings.Items {
		if ours(binding.Subjects) {
			role, err := shared.kube.RbacV1().Roles(binding.Namespace).Get(t.Context(), binding.RoleRef.Name, metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			rules = append(rules, role.Rules...)
		}
	}
	return rules
}

// singleRules returns the rule as rules of one right each.
func singleRules(rule rbacv1.PolicyRule) []rbacv1.PolicyRule {
	var single []rbacv1.PolicyRule
	for _, group := range rule.APIGroups {
		for _, resource := range rule.Resources {
			for _, verb := range rule.Verbs {
				single = append(single, rbacv1.PolicyRule{APIGroups: []string{group}, Resources: []string{resource}, Verbs: []string{verb}, ResourceNames: rule.ResourceNames})
			}
		}
	}
	return single
}
