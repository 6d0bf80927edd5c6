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
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// variantObject has the fields of roles and bindings in a variant of the manifests.
type variantObject struct {
	metav1.TypeMeta   `json:",inline"`
	metav1.ObjectMeta `json:"metadata"`

	Rules    []rbacv1.PolicyRule
	RoleRef  rbacv1.RoleRef
	Subjects []rbacv1.Subject
}

// variants returns the variants and components below artifacts/deploy that grant rights.
func variants(t *testing.T) (names []string) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(shared.root, "artifacts/deploy/*/kustomization.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	for _, file := range files {
		if name := filepath.Base(filepath.Dir(file)); len(variantRights(t, name)) > 0 {
			names = append(names, name)
		}
	}
	return names
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
	rules, bindings := map[string][]rbacv1.PolicyRule{}, []variantObject{}
	decoder := yaml.NewYAMLOrJSONDecoder(strings.NewReader(output), 4096)
	for {
		object := variantObject{}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
		switch object.Kind {
		case "Role", "ClusterRole":
			rules[object.Kind+" "+object.Name] = object.Rules
		case "RoleBinding", "ClusterRoleBinding":
			bindings = append(bindings, object)
		}
	}
	bound := map[string][]rbacv1.PolicyRule{}
	for _, binding := range bindings {
		for _, subject := range binding.Subjects {
			bound[subject.Name] = append(bound[subject.Name], singleRules(rules[binding.RoleRef.Kind+" "+binding.RoleRef.Name]...)...)
		}
	}
	return bound
}

// buildOverlay returns the manifests of an overlay of base with those components.
func buildOverlay(t *testing.T, components ...string) string {
	t.Helper()
	overlay := t.TempDir()
	deploy, err := filepath.Rel(overlay, filepath.Join(shared.root, "artifacts/deploy"))
	if err != nil {
		t.Fatal(err)
	}
	for i := range components {
		components[i] = deploy + "/" + components[i]
	}
	text := fmt.Sprintf("apiVersion: kustomize.config.k8s.io/v1beta1\nkind: Kustomization\nresources: [%s/base]\ncomponents: [%s]\n", deploy, strings.Join(components, ", "))
	if err := os.WriteFile(filepath.Join(overlay, "kustomization.yaml"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return sh(t, "kubectl kustomize "+overlay)
}

// TestMonitoringVerifies builds an overlay with the component for Prometheus.
func TestMonitoringVerifies(t *testing.T) {
	t.Parallel()
	manifests := buildOverlay(t, "policy", "policy-users", "monitoring")
	const secret, name = "sample-controller-metrics-tls", "sample-controller-metrics.sample-controller-system.svc"
	if got := strings.Count(manifests, "insecureSkipVerify"); got > 0 {
		t.Errorf("insecureSkipVerify occurs %d times", got)
	}
	mustContain(t, manifests, "--tls-cert-file=/metrics-certificate/tls.crt", "--tls-private-key-file=/metrics-certificate/tls.key",
		"mountPath: /metrics-certificate", "secretName: "+secret, "kind: ServiceMonitor", "key: ca.crt", "name: "+secret, "serverName: "+name)
	certificate, err := os.ReadFile(filepath.Join(shared.root, "artifacts/deploy/monitoring/certificate.yaml"))
	if err != nil {
		t.Fatal(err)
	}
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
	all := variants(t)
	t.Logf("variants: %q", all)
	for _, name := range all {
		t.Run("the policy is about each service account that may write dependents: "+name, func(t *testing.T) {
			for account, rights := range variantRights(t, name) {
				// +drop:webhooks
				if account == webhookAccount {
					// The only one that it may write is its Secret, in its own namespace.
					rights = rights.Difference(sets.New(rightOf("create", "", "secrets"), rightOf("update", "", "secrets")))
				}
				// +drop:end
				writes := slices.ContainsFunc(shared.dependents, func(dependent string) bool {
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
