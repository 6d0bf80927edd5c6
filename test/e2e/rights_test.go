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
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"

	"example.com/sample-controller/test/kinds"
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
	manifests := buildOverlay(t, "policy", "policy-users", "monitoring")
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

// accountsNamespace has the service accounts of TestEveryRightIsMissed. The audit policy
// names it, to record all of their requests.
const accountsNamespace = "e2e-rights"

// TestEveryRightIsMissed runs a controller for each right in the manifests. The controller
// has all rights but this one, and the test waits until the API server has refused the
// controller exactly this right. It proves that TestLeastPrivilege fails if any right is
// removed from the manifests.
func TestEveryRightIsMissed(t *testing.T) {
	t.Parallel()
	shared.deploy(t)
	createAccountsNamespace(t)
	shOnCleanup(t, "kubectl delete namespace --wait=false "+accountsNamespace)
	granted := grantedRules(t, serviceAccount)
	var rules []rbacv1.PolicyRule
	for _, role := range slices.Sorted(maps.Keys(granted)) {
		for _, rule := range singleRules(granted[role]...) {
			// The roles of two kinds may grant the same right.
			if !slices.ContainsFunc(rules, func(r rbacv1.PolicyRule) bool { return ruleRight(r) == ruleRight(rule) }) {
				rules = append(rules, rule)
			}
		}
	}
	if len(rules) == 0 {
		t.Fatal("the service account has no rights")
	}
	for i, rule := range rules {
		missing := ruleRight(rule)
		t.Run(missing, func(t *testing.T) {
			t.Parallel()
			e := newEnv(t)
			user, token := e.newAccount(slices.Concat(rules[:i], rules[i+1:]))
			flags := e.keepBusy(missing)
			e.startAs(token, flags, strings.HasSuffix(missing, "reviews"))
			e.eventually("the API server refuses to "+missing, func(context.Context) error { return e.refused(user, token, missing) })
		})
	}
	// +drop:webhooks
	missWebhookRights(t, false)
	// +drop:end
}

// createAccountsNamespace creates the namespace of the service accounts if there is none.
func createAccountsNamespace(t *testing.T) {
	t.Helper()
	sh(t, "kubectl create namespace "+accountsNamespace+" -o yaml --dry-run=client | kubectl apply -f -")
}

// newAccount creates a service account with these rights, and returns its user name and a
// token.
func (e *env) newAccount(rules []rbacv1.PolicyRule) (user, token string) {
	e.Helper()
	meta := metav1.ObjectMeta{Name: unique("account")}
	createObject(e, shared.kube.CoreV1().ServiceAccounts(accountsNamespace), &corev1.ServiceAccount{ObjectMeta: meta})
	createObject(e, shared.kube.RbacV1().ClusterRoles(), &rbacv1.ClusterRole{ObjectMeta: meta, Rules: rules})
	createObject(e, shared.kube.RbacV1().ClusterRoleBindings(), &rbacv1.ClusterRoleBinding{
		ObjectMeta: meta,
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: meta.Name},
		Subjects:   []rbacv1.Subject{{Kind: rbacv1.ServiceAccountKind, Namespace: accountsNamespace, Name: meta.Name}},
	})
	user = "system:serviceaccount:" + accountsNamespace + ":" + meta.Name
	e.awaitAccess(user, rules[0])
	return user, requestToken(e.T, accountsNamespace, meta.Name)
}

// keepKindBusy returns what keepBusy does for the kinds that have more than an example.
func keepKindBusy() map[string]func(e *env, missing string) (flags string) {
	return map[string]func(e *env, missing string) (flags string){
		"foo":       keepFoosBusy,
		"memcached": keepMemcachedsBusy, // +drop:memcached
		"crontab":   keepCronTabsBusy,   // +drop:crontab
	}
}

// keepBusy creates objects of each kind whose reconciliation takes every right of the
// controllers, and returns the controller's flags. The names of the objects begin with the
// kind, by which refused recognizes them.
func (e *env) keepBusy(missing string) (flags string) {
	e.Helper()
	busy := keepKindBusy()
	// +drop:check
	for _, k := range shared.kinds {
		if service := k.StartService(e.Context()); service != nil {
			flags += " " + strings.Join(k.Flags(service), " ")
			// No controller may have the rights to remove the finalizers.
			shOnCleanup(e.T, fmt.Sprintf(`kubectl get %[1]s --namespace=%[2]s -o name | xargs -r -n 1 kubectl patch --namespace=%[2]s --type=merge -p '{"metadata":{"finalizers":null}}'`,
				k.GVR().GroupResource(), e.namespace))
		}
	}
	// +drop:end
	for _, k := range shared.kinds {
		if keep, ok := busy[strings.ToLower(k.Kind)]; ok {
			flags += keep(e, missing)
			continue
		}
		sh(e.T, "kubectl create --namespace="+e.namespace+" -f artifacts/examples/"+strings.ToLower(k.Kind)+".yaml")
	}
	return flags
}

// keepFoosBusy creates Foos whose Deployments differ from the spec, by a field or by the name.
func keepFoosBusy(e *env, missing string) (flags string) {
	e.Helper()
	for _, foo := range []struct{ name, asksFor string }{
		{"foo-drift", "foo-drift"},
		{"foo-renamed", "foo-new"},
	} {
		deployment := stockDeployment(e.create(foo.name, deploymentName(foo.asksFor)))
		deployment.Name, deployment.Labels = foo.name, map[string]string{managedBy: "sample-controller"}
		if missing == "delete apps/deployments" {
			deployment.OwnerReferences[0].BlockOwnerDeletion = nil
		}
		// The controller deletes no Deployment that it has not written.
		_, err := e.deployments().Create(e.Context(), deployment, metav1.CreateOptions{FieldManager: "sample-controller"})
		e.must(err)
	}
	return ""
}

// startAs starts a controller with that token, which may lack rights that it needs to start.
func (e *env) startAs(token, flags string, metrics bool) {
	e.Helper()
	// Streaming lists do not take the right to list.
	command := fmt.Sprintf("env KUBE_FEATURE_WatchListClient=false sample-controller -kubeconfig=%s --namespace=%s --leader-elect --leader-elect-resource-namespace=%s",
		kubeconfigOf(e.T, &clientcmdapi.AuthInfo{Token: token}), e.namespace, e.namespace)
	command += flags
	if metrics {
		command += " --metrics-bind-address=127.0.0.1:0"
	}
	// This cleanup runs after the controller has ended, which would create the lease again.
	shOnCleanup(e.T, "kubectl delete lease sample-controller --ignore-not-found --namespace="+e.namespace)
	e.controller = start(e.T, e.TempDir(), command)
	if metrics {
		e.controller.awaitServing("metrics")
	}
}

// refused returns nil once the API server has refused the user the missing right. It fails
// the test if the API server has refused another one.
func (e *env) refused(user, token, missing string) error {
	e.Helper()
	requests, err := shared.audit.read()
	e.must(err)
	found := false
	for _, r := range requests {
		if r.User.Username != user || r.ResponseStatus.Code != http.StatusForbidden {
			continue
		}
		right := r.right()
		// If RBAC allowed the write, the admission plugin OwnerReferencesPermissionEnforcement refused the owner
		// reference.
		isDependent := slices.Contains(shared.dependents(), schema.GroupResource{Group: r.ObjectRef.APIGroup, Resource: r.resource()}.String())
		switch isRefused := isDependent && r.Annotations["authorization.k8s.io/decision"] == "allow"; {
		case isRefused && r.Verb == "create":
			// The names begin with the kind: see keepBusy.
			kind, _, _ := strings.Cut(r.ObjectRef.Name, "-")
			if i := slices.IndexFunc(shared.kinds, func(k *kinds.Data) bool { return strings.ToLower(k.Kind) == kind }); i >= 0 {
				right = finalizersRight(shared.kinds[i])
			}
		case isRefused && r.Verb == "patch":
			right = rightOf("delete", r.ObjectRef.APIGroup, r.resource())
		}
		if right != missing {
			e.Fatalf("the API server refused to %s, though the controller lacks only the right to %s", right, missing)
		}
		found = true
	}
	if found {
		return nil
	}
	// Controllers repair this label. They patch an event and read the owner live at the second repair, and the
	// dependent at the sixth. An object may be deleted meanwhile: the next call removes the others' labels.
	if strings.HasPrefix(missing, "get ") || strings.HasPrefix(missing, "patch ") {
		_, _ = try(e.T, fmt.Sprintf("kubectl label --all --namespace=%s %s %s-", e.namespace, strings.Join(shared.dependents(), ","), managedBy))
	}
	// +drop:crontab
	runCronTab(e, missing)
	// +drop:end
	if strings.HasSuffix(missing, "reviews") {
		fetch(e.T, "https://"+e.controller.awaitServing("metrics")+"/metrics", token)
	}
	return fmt.Errorf("not among %d requests", len(requests))
}
