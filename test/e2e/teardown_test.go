//go:build e2e && teardown

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
	"path/filepath"
	"slices"
	"sync"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// hack/e2e.sh runs these tests after all others, in a separate go test.

// TestLeastPrivilege compares the requests of the controllers of all tests with the rights
// in the manifests. The controllers must have used every right, and no other one. The API server
// authorizes each request, so the test fails if a right is taken from the manifests, too.
func TestLeastPrivilege(t *testing.T) {
	var rules []rbacv1.PolicyRule
	for _, role := range grantedRules(t, serviceAccount) {
		rules = append(rules, singleRules(role...)...)
	}
	compareRights(t, serviceAccount, rules)
	compareRights(t, webhookAccount, variantRules(t, "with-webhook")[webhookAccount]) // +drop:webhooks
}

// compareRights compares the rules of the service account, of one right each, with what it has used.
func compareRights(t *testing.T, account string, rules []rbacv1.PolicyRule) {
	t.Helper()
	granted := map[string]bool{}
	for _, rule := range rules {
		granted[ruleRight(rule)] = true
	}
	used, denied := usedRights(t, account)
	if len(used) == 0 {
		t.Fatalf("the audit log has no request of the service account %s", account)
	}
	// The admission plugin OwnerReferencesPermissionEnforcement demands these, which no request shows: without one the
	// controller creates no dependent.
	for _, k := range shared.kinds {
		right := finalizersRight(k)
		if account == serviceAccount && !granted[right] {
			t.Errorf("%s is not granted", right)
		}
		delete(granted, right)
	}
	if account == serviceAccount {
		used[rightOf("delete", "apps", "deployments")] = true
	}
	for _, right := range slices.Sorted(maps.Keys(granted)) {
		if !used[right] {
			t.Errorf("%s is granted, but was never used", right)
		}
	}
	for _, right := range slices.Sorted(maps.Keys(used)) {
		if !granted[right] {
			t.Errorf("%s was used, but is not granted by the manifests", right)
		}
	}
	for _, what := range denied {
		t.Errorf("denied: %s", what)
	}
	t.Logf("%s: %d rights, all granted and all used: %q", account, len(used), slices.Sorted(maps.Keys(used)))
}

// usedRights returns the rights that the service account has used according to the audit log, and the requests that
// the API server has denied.
func usedRights(t *testing.T, account string) (used map[string]bool, denied []string) {
	t.Helper()
	used = map[string]bool{}
	for _, r := range auditedRequests(t) {
		if r.ObjectRef.Resource == "" {
			continue
		}
		if r.User.Username != "system:serviceaccount:"+systemNamespace+":"+account {
			continue
		}
		used[r.right()] = true
		if r.Annotations["authorization.k8s.io/decision"] == "forbid" {
			denied = append(denied, fmt.Sprintf("%s (%s)", r, r.Annotations["authorization.k8s.io/reason"]))
		}
	}
	return used, denied
}

// TestUndeploy removes the controller and what it created.
func TestUndeploy(t *testing.T) {
	envIn(t, metav1.NamespaceDefault).script("undeploy")
	envIn(t, metav1.NamespaceDefault).script("nothing_is_left")
	// A second undeploy must succeed too.
	sh(t, "make undeploy")
}

// +drop:webhooks

// TestUndeployWithWebhooks removes the controller while the webhooks answer, and the garbage collector
// watches Foos in the version that they convert to.
func TestUndeployWithWebhooks(t *testing.T) {
	// Informers of versions that are gone are never stopped: the watch may begin as soon as the CRD is there.
	earlier := len(auditedRequests(t))
	w := newWebhookEnv(t)
	sh(t, w.apply("v1beta1", "last", "spec: {deployment: {name: last}, replicas: 1}"))
	sh(t, "kubectl wait --for=condition=Ready --timeout=3m foo/last --namespace="+w.namespace)
	awaitCollector(t, earlier)
	// The kubelet would end the Pods.
	removed := start(t, shared.home, "kubectl wait --for=delete --timeout=10m deployment/"+webhookAccount+" --namespace="+systemNamespace)
	var ended sync.WaitGroup
	ended.Go(func() {
		<-removed.done
		w.server.signal(syscall.SIGTERM)
	})
	sh(t, "make undeploy")
	envIn(t, metav1.NamespaceDefault).script("nothing_is_left")
	ended.Wait()
}

// +drop:end

// TestInstall applies the CRDs alone, and deletes them with all objects of these kinds.
func TestInstall(t *testing.T) {
	envIn(t, metav1.NamespaceDefault).script("install")
}

// +drop:release
// TestChart installs the Helm chart, changes a value, and removes it, as docs/release.md says. What else is in
// it does not matter here: hack/verify.sh helm compares it with the manifests.
func TestChart(t *testing.T) {
	helm := func(command string) string {
		return sh(t, fmt.Sprintf("helm %s --namespace=%s --wait", command, systemNamespace))
	}
	chart := "sample-controller " + filepath.Join(shared.work, "chart")
	mustContain(t, helm("install "+chart+" --create-namespace --set=image="+testImage), "STATUS: deployed")
	sh(t, "kubectl label namespace "+systemNamespace+" pod-security.kubernetes.io/enforce=restricted")
	helm("upgrade " + chart + " --reset-then-reuse-values --set=replicas=3")
	mustContain(t, sh(t, "kubectl --namespace="+systemNamespace+" get deployment sample-controller"), "3/3")

	secrets := t.TempDir()
	must(t, shared.writeSecrets(t.Context(), cache.NewObjectName(systemNamespace, serviceAccount), secrets))
	p := startWithSecrets(t, secrets, deployedFlags(t))
	envIn(t, metav1.NamespaceDefault).script("walkthrough2")
	p.stop()

	sh(t, "make uninstall")
	helm("uninstall sample-controller")
	sh(t, "kubectl delete namespace "+systemNamespace)
	envIn(t, metav1.NamespaceDefault).script("nothing_is_left")
}

// +drop:end
