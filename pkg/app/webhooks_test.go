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

package app

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/controller"
)

// TestProgramWithoutWebhooks: such a program has no flags for webhooks.
func TestProgramWithoutWebhooks(t *testing.T) {
	program := newTestProgram(nil)
	program.Webhooks = nil
	if _, err := parseOptions(program, []string{"--webhook-bind-address=:1"}, nil); err == nil || !strings.Contains(err.Error(), "flag provided but not defined") {
		t.Errorf("error %v", err)
	}
	if _, err := parseOptions(program, nil, nil); err != nil {
		t.Error(err)
	}
}

// TestWebhookOptions tests the defaults that depend on where the program runs.
func TestWebhookOptions(t *testing.T) {
	for arguments, want := range map[string]string{
		"":                                     "",
		"--webhook-bind-address=0":             "",
		"--leader-elect-resource-namespace=ns": "sample-controller-webhook.ns.svc",
		"--leader-elect-resource-namespace=ns --webhook-hosts=a.example.com,127.0.0.1,::1 --webhook-bind-address=:1": "a.example.com 127.0.0.1 ::1",
		"--webhook-bind-address=:1 --webhook-tls-cert-file=a --webhook-tls-private-key-file=b":                       "",
	} {
		got, err := parseTestOptions(strings.Fields(arguments))
		if err != nil {
			t.Errorf("%s: %v", arguments, err)
			continue
		}
		if hosts := strings.Join(got.webhook.hosts, " "); hosts != want || got.webhook.lifetime != 90*24*time.Hour || got.webhook.secret != "sample-controller-webhook" {
			t.Errorf("%s: %+v, want hosts %q", arguments, got.webhook, want)
		}
	}
	shortest := "--webhook-bind-address=:1 --leader-elect-resource-namespace=ns --webhook-certificate-lifetime=12s"
	if _, err := parseTestOptions(strings.Fields(shortest)); err != nil {
		t.Errorf("%s: %v", shortest, err)
	}
}

// TestWebhooksOnly: such a process fills the caches that the webhooks read, and never leads.
func TestWebhooksOnly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "--webhooks-only --webhook-bind-address=:1 --leader-elect-resource-namespace=ns", nil)
		e.foo.served.Store(true)
		e.other.served.Store(true)
		ctx, cancel := context.WithCancel(ctx)
		ended := make(chan error)
		go func() {
			ended <- runControllers(ctx, e.controllers, (&servers{webhooksOnly: true}).lead, func() {})
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if len(e.all) != 1 || !e.find("foo").hasSynced() {
			t.Errorf("%d controllers, caches of foo filled: %t", len(e.all), e.find("foo").hasSynced())
		}
		if err := errors.Join(e.checkServed(), e.checkCaches()); err != nil {
			t.Errorf("it is not ready: %v", err)
		}
		cancel()
		if err := <-ended; err != nil || e.foo.syncs.Load() != 0 {
			t.Errorf("error %v, %d syncs", err, e.foo.syncs.Load())
		}
	})
}

// TestCertificateWithoutLease: every replica makes the certificate of its webhooks.
func TestCertificateWithoutLease(t *testing.T) {
	kinds := map[string]metav1.TypeMeta{
		"secrets":                         {APIVersion: "v1", Kind: "SecretList"},
		"customresourcedefinitions":       {APIVersion: "apiextensions.k8s.io/v1", Kind: "CustomResourceDefinitionList"},
		"mutatingwebhookconfigurations":   {APIVersion: "admissionregistration.k8s.io/v1", Kind: "MutatingWebhookConfigurationList"},
		"validatingwebhookconfigurations": {APIVersion: "admissionregistration.k8s.io/v1", Kind: "ValidatingWebhookConfigurationList"},
	}
	created := make(chan string)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		resource := r.URL.Path[strings.LastIndex(r.URL.Path, "/")+1:]
		switch query := r.URL.Query(); {
		case r.Method == http.MethodPost:
			select {
			case created <- r.URL.Path:
			case <-r.Context().Done():
			}
			refuse(w, r)
		case query.Get("sendInitialEvents") != "":
			answer(w, http.StatusUnprocessableEntity, apierrors.NewInvalid(schema.GroupKind{}, "", nil).Status())
		case query.Get("watch") != "":
			<-r.Context().Done()
		default:
			answer(w, http.StatusOK, struct {
				metav1.TypeMeta
				Metadata metav1.ListMeta `json:"metadata"`
				Items    []any           `json:"items"`
			}{kinds[resource], metav1.ListMeta{ResourceVersion: "1"}, []any{}})
		}
	}))
	defer server.CloseClientConnections()
	parsed, err := parseTestOptions(strings.Fields(leaderElection + " --webhook-bind-address=127.0.0.1:0 --master=" + server.URL))
	if err != nil {
		t.Fatal(err)
	}
	c, err := newClients(parsed)
	if err != nil {
		t.Fatal(err)
	}
	manager, err := newCertificates(parsed, c, &controllers{worker: controller.WorkerOptions{
		Clock: clock.RealClock{}, Metrics: controller.NewMetrics(metrics.NewKubeRegistry()), Workers: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- manager.Run(ctx) }()
	if got, want := <-created, "/api/v1/namespaces/system/secrets"; got != want {
		t.Errorf("rule 20: it creates %s, want %s", got, want)
	}
	cancel()
	server.CloseClientConnections()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}
