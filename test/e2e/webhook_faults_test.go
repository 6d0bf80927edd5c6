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
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/util/cert"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// rotation sends requests that take admission and conversion all the time, while the
// authority of the certificate is replaced by another one. Two replicas answer, the one
// for admission and the other for conversion, and either may renew the certificate. No
// request fails.
func (w *webhookStage) rotation(t *testing.T) {
	second := startInPod(t, webhookFlags+"127.0.0.1:0 -v=4")
	w.install(t, w.address, second.served("webhooks"))
	w.serves(t)
	w.underLoad(t)
	mustContain(t, second.output(), `"Answered a webhook" webhook="/convert-foo"`)
	if strings.Contains(second.output(), workersOfFoo) {
		t.Error("the second replica leads as well")
	}
	w.install(t, w.address, w.address)
	w.serves(t)
	second.stop()
	w.serves(t)
}

// underLoad returns when the authority has been replaced.
func (w *webhookStage) underLoad(t *testing.T) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	betas := shared.foos.SamplecontrollerV1beta1().Foos(w.namespace)
	alphas := shared.foos.SamplecontrollerV1alpha1().Foos(w.namespace)
	var requests atomic.Int64
	failed := make(chan error, 1)
	done := make(chan struct{})
	go func() {
		defer close(done)
		for ctx.Err() == nil {
			// Without an answer there would be no name, and admission would be ignored.
			foo, err := alphas.Create(ctx, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: "rotating"}}, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
			if err == nil && foo.Spec.DeploymentName != "rotating" {
				err = errors.New("admission was not asked")
			}
			if err == nil {
				// What is read from the API server's own cache is converted already.
				_, err = betas.List(ctx, metav1.ListOptions{})
			}
			if err != nil && ctx.Err() == nil {
				failed <- fmt.Errorf("after %d requests: %w", requests.Load(), err)
				return
			}
			requests.Add(1)
		}
	}()
	former := w.trusted(t)
	eventually(t, "the authority is replaced", func(context.Context) error {
		select {
		case err := <-failed:
			t.Fatal(err)
		default:
		}
		for authority := range w.trusted(t) {
			if former[authority] {
				return errors.New("a former one is trusted")
			}
		}
		return nil
	})
	cancel()
	<-done
	t.Logf("%d requests during a rotation, none failed", requests.Load())
}

// trusted returns the authorities that the API server trusts to convert, as PEM.
func (w *webhookStage) trusted(t *testing.T) map[string]bool {
	t.Helper()
	bundle, err := base64.StdEncoding.DecodeString(sh(t, "kubectl get crd foos.samplecontroller.k8s.io -o jsonpath='{.spec.conversion.webhook.clientConfig.caBundle}'"))
	if err != nil {
		t.Fatal(err)
	}
	authorities, err := cert.ParseCertsPEM(bundle)
	if err != nil {
		t.Fatal(err)
	}
	trusted := map[string]bool{}
	for _, authority := range authorities {
		trusted[string(authority.Raw)] = true
	}
	return trusted
}

// mended harms the certificate and what is published of it.
func (w *webhookStage) mended(t *testing.T) {
	for name, harm := range map[string]string{
		"the Secret is deleted":   "kubectl delete secret sample-controller-webhook --namespace=" + systemNamespace,
		"the Secret is corrupted": `kubectl patch secret sample-controller-webhook --type=merge -p '{"data":{"tls.key":"eA=="}}' --namespace=` + systemNamespace,
		"nobody is trusted":       `kubectl patch crd foos.samplecontroller.k8s.io --type=json -p '[{"op":"remove","path":"/spec/conversion/webhook/clientConfig/caBundle"}]'`,
		"nobody is trusted, at admission": `kubectl patch mutatingwebhookconfiguration sample-controller-webhook --type=json -p '[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]' && ` +
			`kubectl patch validatingwebhookconfiguration sample-controller-webhook --type=json -p '[{"op":"remove","path":"/webhooks/0/clientConfig/caBundle"}]'`,
	} {
		t.Run(name, func(t *testing.T) {
			sh(t, harm)
			w.serves(t)
			sh(t, w.apply("v1beta1", unique("mended"), "spec: {replicas: 0}"))
		})
	}
	t.Run("others are trusted", func(t *testing.T) {
		stranger, _, err := cert.GenerateSelfSignedCertKey("127.0.0.1", nil, nil)
		if err != nil {
			t.Fatal(err)
		}
		w.trust(t, stranger)
		w.serves(t)
		sh(t, w.apply("v1beta1", unique("mended"), "spec: {replicas: 0}"))
	})
}

// down: without the controller, users of v1alpha1 go on as without webhooks, those of
// v1beta1, which is what kubectl prefers where no version is said, learn what is missing,
// and it comes back by itself.
func (w *webhookStage) down(t *testing.T) {
	sh(t, w.apply("v1beta1", "mixed", "spec: {deployment: {name: mixed}, replicas: 0}"))
	w.controller.stop()
	w.plainGoesOn(t, "down")
	// Whoever manages its fields does so in v1beta1.
	w.scaleAsAlpha(t, "mixed", 1)
	mustContain(t, shFails(t, w.apply("v1beta1", "later", "spec: {deployment: {name: later}, replicas: 0}")), "conversion webhook for samplecontroller.k8s.io/v1beta1", "connection refused")
	w.start(w.address)
	w.serves(t)
	sh(t, "kubectl wait --for=condition=Ready --timeout=60s foo/down --namespace="+w.namespace)
	sh(t, w.apply("v1beta1", "later", "spec: {deployment: {name: later}, replicas: 0}"))
}

// plainGoesOn creates, changes and lists Foos as v1alpha1.
func (w *webhookStage) plainGoesOn(t *testing.T, name string) {
	t.Helper()
	alphas := shared.foos.SamplecontrollerV1alpha1().Foos(w.namespace)
	_, err := alphas.Create(t.Context(), &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: name}, Spec: v1alpha1.FooSpec{DeploymentName: name, Replicas: ptr.To[int32](0)}}, metav1.CreateOptions{})
	if err == nil {
		_, err = alphas.Patch(t.Context(), name, types.MergePatchType, []byte(`{"spec":{"replicas":1}}`), metav1.PatchOptions{})
	}
	if err == nil {
		_, err = alphas.List(t.Context(), metav1.ListOptions{})
	}
	if err != nil {
		t.Errorf("users of v1alpha1 are harmed: %v", err)
	}
}

// scaleAsAlpha scales a Foo as v1alpha1, and says how long that took.
func (w *webhookStage) scaleAsAlpha(t *testing.T, name string, replicas int) {
	t.Helper()
	began := time.Now()
	patch := fmt.Sprintf(`{"spec":{"replicas":%d}}`, replicas)
	if _, err := shared.foos.SamplecontrollerV1alpha1().Foos(w.namespace).Patch(t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{}); err != nil {
		t.Errorf("a Foo that v1beta1 made cannot be changed as v1alpha1: %v", err)
	}
	t.Logf("a Foo that v1beta1 made is changed as v1alpha1 within %s", time.Since(began).Round(time.Millisecond))
}

// slow: webhooks that take requests and never answer cost users a wait, and the
// controller nothing: what it writes is not theirs.
func (w *webhookStage) slow(t *testing.T) {
	hanging, err := (&net.ListenConfig{}).Listen(t.Context(), "tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	// The kernel takes connections, and nobody ever looks at them.
	t.Cleanup(func() {
		if err := hanging.Close(); err != nil {
			t.Error(err)
		}
	})
	w.install(t, hanging.Addr().String(), hanging.Addr().String())
	w.reconciles(t, "slow", 2)
}

// impostor answers with a certificate that nobody trusts.
func (w *webhookStage) impostor(t *testing.T) {
	server := httptest.NewUnstartedServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { t.Error("the API server talks to whom it must not trust") }))
	// It would tell of each handshake that fails, which is what it is for.
	server.Config.ErrorLog = log.New(io.Discard, "", 0)
	server.StartTLS()
	t.Cleanup(server.Close)
	address := server.Listener.Addr().String()
	w.install(t, address, address)
	eventually(t, "it is not trusted", func(context.Context) error {
		output, err := try(t, w.apply("v1beta1", "impostor-beta", "spec: {deployment: {name: impostor-beta}, replicas: 0}"))
		switch {
		case err == nil:
			return errors.New("nothing is amiss yet")
		case !strings.Contains(output, "conversion webhook for samplecontroller.k8s.io/v1beta1") || !strings.Contains(output, "certificate signed by unknown authority"):
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	w.reconciles(t, "impostor", 3)
}

// reconciles checks that the controller does its work, of a new Foo and of one that
// v1beta1 made, and has the webhooks answer again.
func (w *webhookStage) reconciles(t *testing.T, name string, replicas int) {
	t.Helper()
	w.plainGoesOn(t, name)
	sh(t, "kubectl wait --for=condition=Ready --timeout=60s foos.v1alpha1.samplecontroller.k8s.io/"+name+" --namespace="+w.namespace)
	w.scaleAsAlpha(t, "mixed", replicas)
	shUntil(t, "kubectl get foos.v1alpha1.samplecontroller.k8s.io mixed -o jsonpath='{.status.availableReplicas}' --namespace="+w.namespace, fmt.Sprintf("^%d$", replicas))
	w.install(t, w.address, w.address)
	w.serves(t)
}

// removal takes the component away: in order, and after somebody has only stopped what
// answers.
func (w *webhookStage) removal(t *testing.T) {
	sh(t, w.apply("v1beta1", "stays", "spec: {deployment: {name: stays}, replicas: 0}"))
	w.controller.stop()
	sh(t, removeWebhooks)
	mustContain(t, sh(t, "kubectl get foos.v1alpha1.samplecontroller.k8s.io stays -o jsonpath='{.apiVersion} {.spec}' --namespace="+w.namespace), `samplecontroller.k8s.io/v1alpha1 {"deploymentName":"stays","replicas":0}`)
	eventually(t, "v1beta1 is gone", func(context.Context) error {
		output, err := try(t, "kubectl get --raw /apis/samplecontroller.k8s.io/v1beta1")
		switch {
		case err == nil:
			return errors.New("it is served")
		case !strings.Contains(output, "could not find"):
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	sh(t, "kubectl delete foos.v1alpha1.samplecontroller.k8s.io stays --namespace="+w.namespace)
}
