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
	"context"
	"errors"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
)

// hack/e2e.sh runs these tests after all others, in a separate go test.

// TestLeastPrivilege compares the requests of the controllers of all tests with the rights
// in the manifests. The controllers must have used every right, and no other one.
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
	used, tried, denied := usedRights(t, account)
	if len(used) == 0 {
		t.Fatalf("the audit log has no request of the service account %s", account)
	}
	// TestEveryRightIsMissed covers these rights, which no request shows.
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
		if !used[right] && !tried[right] {
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

// usedRights returns the rights that the service account has used according to the audit log, those that only
// the accounts of TestEveryRightIsMissed have tried, and the requests that the API server has denied.
func usedRights(t *testing.T, account string) (used, tried map[string]bool, denied []string) {
	t.Helper()
	used, tried = map[string]bool{}, map[string]bool{}
	for _, r := range auditedRequests(t) {
		if r.ObjectRef.Resource == "" {
			continue
		}
		if strings.HasPrefix(r.User.Username, "system:serviceaccount:"+accountsNamespace+":") {
			tried[r.right()] = true
		}
		if r.User.Username != "system:serviceaccount:"+systemNamespace+":"+account {
			continue
		}
		used[r.right()] = true
		if r.Annotations["authorization.k8s.io/decision"] == "forbid" {
			denied = append(denied, fmt.Sprintf("%s (%s)", r, r.Annotations["authorization.k8s.io/reason"]))
		}
	}
	return used, tried, denied
}

// TestUndeploy removes the controller and what it created.
func TestUndeploy(t *testing.T) {
	sh(t, "make deploy IMG="+testImage)
	sh(t, "kubectl apply -k artifacts/deploy/policy && kubectl apply -k artifacts/deploy/policy-users")
	sh(t, applyFoo(metav1.NamespaceDefault, "last", "spec: {deploymentName: last}"))
	// +drop:webhooks
	// The webhooks do not answer, because the nodes run no containers.
	mustContain(t, shFails(t, "make deploy WEBHOOK=yes IMG="+testImage), "the API server does not reach the webhooks", "conversion webhook")
	eventually(t, "v1beta1 cannot be read", func(context.Context) error {
		// Without the timeout, and with --raw in spite of it, kubectl would retry for minutes while the
		// API server answers that its cache is not filled yet.
		if output, err := try(t, "kubectl get foos.v1beta1.samplecontroller.k8s.io --all-namespaces --request-timeout=10s"); err == nil {
			return errors.New("it was read: " + output)
		}
		return nil
	})
	// +drop:end
	mustUndeploy(t)
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
	mustUndeploy(t)
	ended.Wait()
}

// +drop:end

// mustUndeploy removes the controller and what it created, and fails unless nothing is left.
func mustUndeploy(t *testing.T) {
	t.Helper()
	output := sh(t, "make undeploy")
	// A controller that stands by would fail if it could no longer read the lease.
	mustContain(t, output, `deployment.apps "sample-controller" deleted`, `clusterrole.rbac.authorization.k8s.io "sample-controller" deleted`)
	nothingIsLeft(t)
}

// nothingIsLeft fails if there is anything of the controller, or of the kinds that it owns.
func nothingIsLeft(t *testing.T) {
	t.Helper()
	// Of whole words, since Kubernetes has roles of names such as system:kube-scheduler.
	names := "-e sample-controller -e samplecontroller"
	for _, k := range shared.kinds {
		names += " -e " + k.GVR().Group
	}
	commands := []string{
		"kubectl get namespaces,crds,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations,validatingadmissionpolicies,validatingadmissionpolicybindings -o name | grep -w " + names + " | grep -v /system: || true",
		"kubectl get deployments,roles,rolebindings,leases,services,serviceaccounts,secrets --all-namespaces -o name | grep -w sample-controller || true",
	}
	// An orphaned dependent has no owner and belongs to its user, so it stays.
	for _, k := range shared.kinds {
		commands = append(commands, fmt.Sprintf("kubectl get %s --all-namespaces -o jsonpath='{.items[*].metadata.ownerReferences[?(@.kind==%q)].name}'",
			strings.Join(shared.dependents(), ","), k.Kind))
	}
	for _, command := range commands {
		if left := strings.TrimSpace(sh(t, command)); left != "" {
			t.Errorf("left behind: %s", left)
		}
	}
}

// TestInstall applies the CRDs alone, and deletes them with all objects of these kinds.
func TestInstall(t *testing.T) {
	sh(t, "make install")
	sh(t, "kubectl apply -f config/samples/example-foo.yaml")
	sh(t, "make uninstall")
	for _, k := range shared.kinds {
		if left := sh(t, "kubectl get crd "+crdOf(k)+" --ignore-not-found -o name"); left != "" {
			t.Errorf("left behind: %s", left)
		}
	}
	// A second one must succeed too.
	sh(t, "make uninstall")
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
	(&env{T: t, namespace: "default"}).script("walkthrough2")
	p.stop()

	sh(t, "make uninstall")
	helm("uninstall sample-controller")
	sh(t, "kubectl delete namespace "+systemNamespace)
	nothingIsLeft(t)
}

// +drop:end
