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

	corev1 "k8s.io/api/core/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

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
	shOnCleanup(e.T, "kubectl delete clusterrole,clusterrolebinding "+meta.Name)
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
	for _, k := range shared.data {
		if service := k.StartService(e.Context()); service != nil {
			flags += " " + strings.Join(k.Flags(service), " ")
			// No controller may have the rights to remove the finalizers.
			shOnCleanup(e.T, fmt.Sprintf(`kubectl get %[1]s --namespace=%[2]s -o name | xargs -r -n 1 kubectl patch --namespace=%[2]s --type=merge -p '{"metadata":{"finalizers":null}}'`,
				k.GVR().GroupResource(), e.namespace))
		}
	}
	// +drop:end
	for _, k := range shared.kinds {
		if keep, ok := busy[k.Names.Singular]; ok {
			flags += keep(e, missing)
			continue
		}
		sh(e.T, "kubectl create --namespace="+e.namespace+" -f artifacts/examples/"+k.Names.Singular+".yaml")
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
		isDependent := slices.Contains(shared.dependents, schema.GroupResource{Group: r.ObjectRef.APIGroup, Resource: r.resource()}.String())
		switch isRefused := isDependent && r.Annotations["authorization.k8s.io/decision"] == "allow"; {
		case isRefused && r.Verb == "create":
			right = shared.kindOfObject(r.ObjectRef.Name).finalizersRight()
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
		_, _ = try(e.T, fmt.Sprintf("kubectl label --all --namespace=%s %s %s-", e.namespace, strings.Join(shared.dependents, ","), managedBy))
	}
	// +drop:crontab
	if missing == "get batch/jobs" {
		loseActiveJob(e)
	}
	// +drop:end
	if strings.HasSuffix(missing, "reviews") {
		fetch(e.T, "https://"+e.controller.awaitServing("metrics")+"/metrics", token)
	}
	return fmt.Errorf("not among %d requests", len(requests))
}
