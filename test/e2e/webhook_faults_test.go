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
	"encoding/base64"
	"errors"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httptest"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// rotation sends requests that need admission and conversion while the webhooks replace their
// certificate. One replica answers for admission and another one for
// conversion, and either may renew the certificate. No request may fail.
func (w *webhookEnv) rotation(t *testing.T) {
	second := startWithSecrets(t, w.secrets, webhookFlags+"127.0.0.1:0 -v=4")
	w.install(t, w.address, second.awaitServing("webhooks"))
	w.awaitWebhooks(t)
	w.rotateUnderLoad(t)
	mustContain(t, second.output(), `"Answered a webhook request" webhook="/convert-foo"`)
	w.install(t, w.address, w.address)
	w.awaitWebhooks(t)
	second.stop()
	w.awaitWebhooks(t)
}

// rotateUnderLoad sends requests until all certificates have been replaced.
func (w *webhookEnv) rotateUnderLoad(t *testing.T) {
	load := startLoad(t, w.namespace)
	old := w.trustedAuthorities(t)
	eventually(t, "the certificates have been replaced", func(context.Context) error {
		for authority := range w.trustedAuthorities(t) {
			if old[authority] {
				return errors.New("the API server trusts an old one")
			}
		}
		return nil
	})
	t.Logf("%d requests during a rotation, none failed", load.stop())
}

// trustedAuthorities returns the authorities of the conversion webhook that the API server
// trusts, as DER.
func (w *webhookEnv) trustedAuthorities(t *testing.T) map[string]bool {
	t.Helper()
	bundle, err := base64.StdEncoding.DecodeString(sh(t, "kubectl get crd foos.samplecontroller.k8s.io -o jsonpath='{.spec.conversion.webhook.clientConfig.caBundle}'"))
	must(t, err)
	authorities, err := cert.ParseCertsPEM(bundle)
	must(t, err)
	trusted := map[string]bool{}
	for _, authority := range authorities {
		trusted[string(authority.Raw)] = true
	}
	return trusted
}

// repairs damages the certificate and the published CA bundles, which the process restores.
func (w *webhookEnv) repairs(t *testing.T) {
	for name, harm := range map[string]string{
		"the Secret is deleted":    "kubectl delete secret sample-controller-webhook --namespace=" + systemNamespace,
		"the Secret is corrupted":  `kubectl patch secret sample-controller-webhook --type=merge -p '{"data":{"tls.key":"eA=="}}' --namespace=` + systemNamespace,
		"the CRD has no CA bundle": `kubectl patch crd foos.samplecontroller.k8s.io --type=json -p '[{"op":"remove","path":"/spec/conversion/webhook/clientConfig/caBundle"}]'`,
		"the configurations have no CA bundle": `kubectl patch mutatingwebhookconfiguration sample-controller-webhook --type=json -p '[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]' && ` +
			`kubectl patch validatingwebhookconfiguration sample-controller-webhook --type=json -p '[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]'`,
	} {
		t.Run(name, func(t *testing.T) {
			sh(t, harm)
			w.awaitWebhooks(t)
			sh(t, w.apply("v1beta1", unique("restored"), "spec: {replicas: 0}"))
		})
	}
	t.Run("the CA bundles are of another authority", func(t *testing.T) {
		stranger, _, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
		must(t, err)
		w.trust(t, stranger)
		w.awaitWebhooks(t)
		sh(t, w.apply("v1beta1", unique("restored"), "spec: {replicas: 0}"))
	})
}

// down stops the webhooks. Requests in v1alpha1 succeed as without webhooks. Requests in
// v1beta1, which kubectl prefers, fail with a message that names the conversion webhook,
// until the webhooks are back. The controller needs none.
func (w *webhookEnv) down(t *testing.T) {
	sh(t, w.apply("v1beta1", "mixed", "spec: {deployment: {name: mixed}, replicas: 0}"))
	w.server.stop()
	w.useV1alpha1(t, "down")
	sh(t, "kubectl wait --for=condition=Ready --timeout=3m foos.v1alpha1.samplecontroller.k8s.io/down --namespace="+w.namespace)
	// The field managers of this Foo use v1beta1.
	w.scaleAsAlpha(t, "mixed", 1)
	mustContain(t, shFails(t, w.apply("v1beta1", "later", "spec: {deployment: {name: later}, replicas: 0}")), "conversion webhook for samplecontroller.k8s.io/v1beta1", "connection refused")
	w.start(w.address)
	w.awaitWebhooks(t)
	sh(t, w.apply("v1beta1", "later", "spec: {deployment: {name: later}, replicas: 0}"))
}

// useV1alpha1 creates, changes and lists Foos as v1alpha1.
func (w *webhookEnv) useV1alpha1(t *testing.T, name string) {
	t.Helper()
	alphas := shared.clientset.SamplecontrollerV1alpha1().Foos(w.namespace)
	_, err := alphas.Create(t.Context(), &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FooSpec{DeploymentName: name, Replicas: ptr.To[int32](0)}}, metav1.CreateOptions{})
	if err == nil {
		_, err = alphas.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{})
	}
	if err == nil {
		_, err = alphas.List(t.Context(), metav1.ListOptions{})
	}
	if err != nil {
		t.Errorf("a request in v1alpha1 failed: %v", err)
	}
}

// scaleAsAlpha scales a Foo as v1alpha1, and logs the time that it takes.
func (w *webhookEnv) scaleAsAlpha(t *testing.T, name string, replicas int) {
	t.Helper()
	began := time.Now()
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	if _, err := shared.clientset.SamplecontrollerV1alpha1().Foos(w.namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Errorf("changing a Foo of v1beta1 as v1alpha1: %v", err)
	}
	t.Logf("changing a Foo of v1beta1 as v1alpha1 took %s", time.Since(began).Round(time.Millisecond))
}

// slow replaces the webhooks by a server that never answers. Users wait for the timeout, but
// the controller reconciles, because the webhooks are not called for its writes.
func (w *webhookEnv) slow(t *testing.T) {
	// The kernel completes connections to a listener that never accepts them.
	address := listen(t).Addr().String()
	w.install(t, address, address)
	// Each change of a Foo waits for both admission webhooks, in the manifests 5 s for each.
	for _, kind := range []string{"mutatingwebhookconfiguration", "validatingwebhookconfiguration"} {
		sh(t, "kubectl patch "+kind+` sample-controller-webhook --type=json -p '[{"op":"replace","path":"/webhooks/0/timeoutSeconds","value":1}]'`)
	}
	before := ignoredWebhookFailures(t)
	w.reconciles(t, "slow", 2)
	if ignoredWebhookFailures(t) == before {
		t.Error("SampleControllerWebhookUnanswered would not fire")
	}
}

// impostor replaces the webhooks by a server whose certificate the API server does not trust.
func (w *webhookEnv) impostor(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("the API server sent a request to a server that it must not trust")
	}))
	// The server would log each failed handshake, which this test expects.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	w.install(t, address, address)
	eventually(t, "the API server does not trust the certificate", func(context.Context) error {
		output, err := try(t, w.apply("v1beta1", "impostor-beta", "spec: {deployment: {name: impostor-beta}, replicas: 0}"))
		switch {
		case err == nil:
			return errors.New("the request succeeded")
		case !strings.Contains(output, "conversion webhook for samplecontroller.k8s.io/v1beta1") || !strings.Contains(output, "certificate signed by unknown authority"):
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	w.reconciles(t, "impostor", 3)
}

// reconciles checks that the controller reconciles a new Foo and one of v1beta1, and then
// installs the controller's own webhooks again.
func (w *webhookEnv) reconciles(t *testing.T, name string, replicas int) {
	t.Helper()
	w.useV1alpha1(t, name)
	sh(t, "kubectl wait --for=condition=Ready --timeout=3m foos.v1alpha1.samplecontroller.k8s.io/"+name+" --namespace="+w.namespace)
	w.scaleAsAlpha(t, "mixed", replicas)
	shUntil(t, "kubectl get foos.v1alpha1.samplecontroller.k8s.io mixed -o jsonpath='{.status.availableReplicas}' --namespace="+w.namespace, fmt.Sprintf("^%d$", replicas))
	w.install(t, w.address, w.address)
	w.awaitWebhooks(t)
}

// removal removes the component after the webhooks have stopped.
func (w *webhookEnv) removal(t *testing.T) {
	sh(t, w.apply("v1beta1", "stays", "spec: {deployment: {name: stays}, replicas: 0}"))
	w.server.stop()
	sh(t, removeWebhooks)
	mustContain(t, sh(t, "kubectl get foos.v1alpha1.samplecontroller.k8s.io stays -o jsonpath='{.apiVersion} {.spec}' --namespace="+w.namespace), `samplecontroller.k8s.io/v1alpha1 {"deploymentName":"stays","replicas":0}`)
	eventually(t, "v1beta1 is gone", func(context.Context) error {
		output, err := try(t, "kubectl get --raw /apis/samplecontroller.k8s.io/v1beta1")
		switch {
		case err == nil:
			return errors.New("the API server serves it")
		case !strings.Contains(output, "could not find"):
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	// kubectl may have asked which versions there are before that one was gone, and would use it for hours.
	sh(t, "kubectl api-resources --api-group=samplecontroller.k8s.io")
	sh(t, "kubectl delete foos.v1alpha1.samplecontroller.k8s.io stays --namespace="+w.namespace)
}

// ignoredWebhookFailures returns how many failures of our webhooks the API server has ignored.
func ignoredWebhookFailures(t *testing.T) (count int) {
	t.Helper()
	metrics := sh(t, "kubectl get --raw /metrics | grep '^apiserver_admission_webhook_fail_open_count' || true")
	for _, match := range regexp.MustCompile(`name="(?:mutate|validate)[.]`+regexp.QuoteMeta("samplecontroller.k8s.io")+`".* (\d+)`).FindAllStringSubmatch(metrics, -1) {
		n, err := strconv.Atoi(match[1])
		must(t, err)
		count += n
	}
	return count
}
