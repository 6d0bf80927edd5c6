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
	"slices"
	"strings"
	"testing"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// What is looked at when all other tests have run, by hack/e2e.sh in a go test of
// its own.

const serviceAccountUser = "system:serviceaccount:" + systemNamespace + ":" + serviceAccount

// onlyDemanded are rights that no request shows, with the test that proves them.
var onlyDemanded = map[string]string{
	"update samplecontroller.k8s.io/foos/finalizers": "TestOwnerReferencesPermissionEnforcement",
	"update cache.example.com/memcacheds/finalizers": "TestOwnerReferencesPermissionEnforcement",
	cronTabFinalizersRight:                           "TestEveryRightIsMissed",
}

// TestLeastPrivilege holds what the controllers of all tests did against what the
// manifests allow: both must be the same.
func TestLeastPrivilege(t *testing.T) {
	granted := grantedRights(t)
	used, denied := usedRights(t)
	if len(used) == 0 {
		t.Fatal("the audit log tells nothing of the service account")
	}
	for right := range onlyDemanded {
		if !granted[right] {
			t.Errorf("%s is not granted", right)
		}
		delete(granted, right)
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
	t.Logf("%d rights, all granted and all used, and %d more that are demanded: %q", len(used), len(onlyDemanded), slices.Sorted(maps.Keys(used)))
}

// grantedRights returns what the bindings in the cluster give the service account.
func grantedRights(t *testing.T) map[string]bool {
	t.Helper()
	rights := map[string]bool{}
	for _, rule := range grantedRules(t) {
		for _, single := range singleRules(rule) {
			rights[rightOf(single.Verbs[0], single.APIGroups[0], single.Resources[0])] = true
		}
	}
	return rights
}

// usedRights returns what the audit log tells of the service account, and what it
// was not allowed to do.
func usedRights(t *testing.T) (used map[string]bool, denied []string) {
	t.Helper()
	requests, err := shared.audit.read()
	if err != nil {
		t.Fatal(err)
	}
	used = map[string]bool{}
	for _, r := range requests {
		if r.User.Username != serviceAccountUser || r.ObjectRef.Resource == "" {
			continue
		}
		used[r.right()] = true
		if r.Annotations["authorization.k8s.io/decision"] == "forbid" {
			denied = append(denied, fmt.Sprintf("%s (%s)", r, r.Annotations["authorization.k8s.io/reason"]))
		}
	}
	return used, denied
}

// TestUndeploy removes the controller, after which there must be nothing left of it. Its
// webhooks are there, and nobody answers: the nodes run no containers.
func TestUndeploy(t *testing.T) {
	sh(t, "make deploy WEBHOOK=yes IMG="+testImage)
	sh(t, applyFoo(metav1.NamespaceDefault, "last", "spec: {deploymentName: last}"))
	eventually(t, "v1beta1 cannot be read", func(context.Context) error {
		output, err := try(t, "kubectl get --raw /apis/samplecontroller.k8s.io/v1beta1/foos")
		switch {
		case err == nil:
			return errors.New("it can: " + output)
		case !strings.Contains(output, "conversion webhook"):
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	sh(t, "make undeploy")
	for _, command := range []string{
		"kubectl get namespaces,crds,clusterroles,clusterrolebindings,mutatingwebhookconfigurations,validatingwebhookconfigurations -o name | grep -e sample-controller -e samplecontroller -e cache.example.com -e alpha.ianlewis.org || true",
		"kubectl get deployments,roles,rolebindings,leases,services,serviceaccounts,secrets --all-namespaces -o name | grep sample-controller || true",
		// One that was orphaned is its user's.
		`kubectl get deployments --all-namespaces -o jsonpath='{.items[*].metadata.ownerReferences[?(@.kind=="Foo")].name}'`,
		`kubectl get deployments --all-namespaces -o jsonpath='{.items[*].metadata.ownerReferences[?(@.kind=="Memcached")].name}'`,
		`kubectl get jobs --all-namespaces -o jsonpath='{.items[*].metadata.ownerReferences[?(@.kind=="CronTab")].name}'`,
	} {
		if left := strings.TrimSpace(sh(t, command)); left != "" {
			t.Errorf("left behind: %s", left)
		}
	}
	// To do it again is no mistake.
	sh(t, "make undeploy")
}
