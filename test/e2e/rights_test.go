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
	"encoding/json"
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
	"k8s.io/apimachinery/pkg/util/sets"
)

// awaitAccess waits until the API server allows the user the rule's only right.
func (e *env) awaitAccess(user string, rule rbacv1.PolicyRule) {
	e.Helper()
	resource, subresource, _ := strings.Cut(rule.Resources[0], "/")
	attributes := &authorizationv1.ResourceAttributes{
		Namespace: e.namespace, Verb: rule.Verbs[0], Group: rule.APIGroups[0], Resource: resource, Subresource: subresource, Name: strings.Join(rule.ResourceNames, ""),
	}
	e.eventually(user+" may "+ruleRight(rule), func(ctx context.Context) error {
		review := &authorizationv1.SubjectAccessReview{Spec: authorizationv1.SubjectAccessReviewSpec{User: user, ResourceAttributes: attributes}}
		review, err := shared.kube.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
		if err == nil && !review.Status.Allowed {
			err = errors.New("no: " + review.Status.Reason)
		}
		return err
	})
}

// serviceAccountIn returns the user name of the controller's service account in the
// namespace.
func serviceAccountIn(namespace string) string {
	return "system:serviceaccount:" + namespace + ":" + serviceAccount
}

// grantedRules returns the rules of all roles, by the role's name, that are bound to the
// service account.
func grantedRules(t *testing.T, account string) map[string][]rbacv1.PolicyRule {
	t.Helper()
	rules := map[string][]rbacv1.PolicyRule{}
	for _, ref := range rolesOf(t, systemNamespace, account) {
		role := rbacv1.ClusterRole{}
		text := sh(t, fmt.Sprintf("kubectl get %s %s --namespace=%s -o json", ref.Kind, ref.Name, systemNamespace))
		must(t, json.Unmarshal([]byte(text), &role))
		rules[role.Name] = append(rules[role.Name], role.Rules...)
	}
	return rules
}

// rolesOf returns the roles that are bound to the service account in that namespace, in the whole
// cluster and in the namespace.
func rolesOf(t *testing.T, namespace, account string) (refs []rbacv1.RoleRef) {
	t.Helper()
	bindings := struct{ Items []manifest }{}
	text, err := try(t, "kubectl get clusterrolebindings,rolebindings -o json --namespace="+namespace)
	must(t, err)
	must(t, json.Unmarshal([]byte(text), &bindings))
	for _, binding := range bindings.Items {
		if slices.ContainsFunc(binding.Subjects, func(s rbacv1.Subject) bool {
			return s.Kind == rbacv1.ServiceAccountKind && s.Namespace == namespace && s.Name == account
		}) {
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

// variantRights returns the rights that the variant grants to each of its service accounts.
func variantRights(t *testing.T, name string) map[string]sets.Set[string] {
	t.Helper()
	rights := map[string]sets.Set[string]{}
	for account, rules := range variantRules(t, name) {
		rights[account] = sets.New[string]()
		for _, rule := range rules {
			rights[account].Insert(ruleRight(rule))
		}
	}
	return rights
}

// variantRules returns the rules that the variant binds to each of its service accounts, each with
// one right.
func variantRules(t *testing.T, name string) map[string][]rbacv1.PolicyRule {
	t.Helper()
	output, err := try(t, "kubectl kustomize artifacts/deploy/"+name)
	if err != nil {
		// A component that patches objects of others cannot be built alone. Its variant is.
		return nil
	}
	manifests, err := readManifests(strings.NewReader(output))
	must(t, err)
	rules, bound := map[string][]rbacv1.PolicyRule{}, map[string][]rbacv1.PolicyRule{}
	for _, object := range manifests {
		rules[object.Kind+" "+object.Name] = object.Rules
	}
	for _, binding := range manifests {
		for _, subject := range binding.Subjects {
			role := binding.RoleRef.Kind + " " + binding.RoleRef.Name
			bound[subject.Name] = append(bound[subject.Name], singleRules(rules[role]...)...)
		}
	}
	return bound
}

// buildOverlay returns the manifests of an overlay of base with those components.
func buildOverlay(t *testing.T, components ...string) string {
	t.Helper()
	overlay := t.TempDir()
	deploy, err := filepath.Rel(overlay, filepath.Join(shared.root, "artifacts/deploy"))
	must(t, err)
	for i := range components {
		components[i] = deploy + "/" + components[i]
	}
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s/base]\ncomponents: [%s]\n", deploy, strings.Join(components, ", "))
	must(t, os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600))
	return sh(t, "kubectl kustomize "+overlay)
}

// TestMonitoringVerifies builds an overlay with the component for Prometheus.
func TestMonitoringVerifies(t *testing.T) {
	t.Parallel()
	manifests := buildOverlay(t, "policy-namespaces", "policy-users", "monitoring")
	const secret, name = "sample-controller-metrics-tls", "sample-controller-metrics.sample-controller-system.svc"
	if got := strings.Count(manifests, "insecureSkipVerify"); got > 0 {
		t.Errorf("insecureSkipVerify occurs %d times", got)
	}
	mustContain(t, manifests, "--tls-cert-file=/metrics-certificate/tls.crt", "--tls-private-key-file=/metrics-certificate/tls.key",
		"mountPath: /metrics-certificate", "secretName: "+secret, "kind: ServiceMonitor", "key: ca.crt", "name: "+secret, "serverName: "+name)
	certificate, err := os.ReadFile(filepath.Join(shared.root, "artifacts/deploy/monitoring/certificate.yaml"))
	must(t, err)
	mustContain(t, string(certificate), "secretName: "+secret, "- "+name)
	mustContain(t, sh(t, "kubectl kustomize artifacts/deploy/base"), "kind: Service\n", "name: "+strings.TrimSuffix(name, ".sample-controller-system.svc"))
}

// TestVariants covers the variants of the manifests that TestLeastPrivilege does not run:
// it compares their rights with those of base.
func TestVariants(t *testing.T) {
	t.Parallel()
	base := variantRights(t, "base")[serviceAccount]
	t.Run("the variant for a namespace has the rights of base but the reviews", func(t *testing.T) {
		namespaced := variantRights(t, "namespaced")[serviceAccount]
		if missing, want := sets.List(base.Difference(namespaced)), []string{"create authentication.k8s.io/tokenreviews", "create authorization.k8s.io/subjectaccessreviews"}; !slices.Equal(missing, want) {
			t.Errorf("it lacks %q, want %q", missing, want)
		}
		if more := namespaced.Difference(base); len(more) > 0 {
			t.Errorf("it has more rights than base: %q", sets.List(more))
		}
	})
	files, err := filepath.Glob(filepath.Join(shared.root, "artifacts/deploy/*/kustomization.yaml"))
	must(t, err)
	for _, file := range files {
		name := filepath.Base(filepath.Dir(file))
		t.Run("the policy is about each service account that may write dependents: "+name, func(t *testing.T) {
			for account, rights := range variantRights(t, name) {
				// +drop:webhooks
				if account == webhookAccount {
					// The only one that it may write is its Secret, in its own namespace.
					rights = rights.Difference(sets.New(rightOf("create", "", "secrets"), rightOf("update", "", "secrets")))
				}
				// +drop:end
				writes := slices.ContainsFunc(shared.dependents(), func(dependent string) bool {
					resource, group, _ := strings.Cut(dependent, ".")
					return rights.HasAny(rightOf("create", group, resource), rightOf("patch", group, resource), rightOf("update", group, resource), rightOf("delete", group, resource))
				})
				if writes && account != serviceAccount {
					t.Errorf("service account %s", account)
				}
			}
		})
	}
}

// TestRights has the controllers use the rights that they need only beside other clients. Without streaming lists they
// use the rights to list.
func TestRights(t *testing.T) {
	t.Parallel()
	e := newEnv(t)
	e.environment = "KUBE_FEATURE_WatchListClient=false"
	var flags []string
	// +drop:check
	for _, k := range shared.kinds {
		if service := k.StartService(t.Context()); service != nil {
			flags = append(flags, k.Flags(service)...)
		}
	}
	// +drop:end
	e.startController(strings.Join(flags, " "))
	e.script("rights")
}
