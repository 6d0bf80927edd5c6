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
	"os"
	"strings"
	"testing"
	"time"

	"k8s.io/client-go/util/cert"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/controller"
)

const webhookInNamespace = "--webhook-bind-address=:1 --leader-elect-resource-namespace=ns "

func TestWebhookOptions(t *testing.T) {
	hosts := func(o *Options) any { return strings.Join(o.webhook.hosts, " ") }
	lifetime := func(o *Options) any { return o.webhook.lifetime }
	checkOptions(t, []optionTest{
		{"0 stands for no webhooks", "--webhook-bind-address=0", func(o *Options) any { return o.webhook.address }, ""},
		{"the webhooks have no name outside a Pod", "", hosts, ""},
		{"the webhooks have the name of their Service", "--leader-elect-resource-namespace=ns", hosts, "sample-controller-webhook.ns.svc"},
		{"the webhooks have the names that are given", webhookInNamespace + "--webhook-hosts=a.example.com,127.0.0.1,::1",
			hosts, "a.example.com 127.0.0.1 ::1"},
		{"a certificate from files needs no namespace", "--webhook-bind-address=:1 --webhook-tls-cert-file=a --webhook-tls-private-key-file=b",
			lifetime, 90 * 24 * time.Hour},
		{"the shortest lifetime of a certificate is 12 s", webhookInNamespace + "--webhook-certificate-lifetime=12s", lifetime, 12 * time.Second},
	})
}

func TestWebhookMistakes(t *testing.T) {
	checkMistakes(t, [][2]string{
		{"--webhook-bind-address=9443", `--webhook-bind-address: "9443" is not an address`},
		{"--webhook-bind-address=:1", "--webhook-bind-address: needs a namespace for the Secret where the program does not run in a Pod; " +
			"give --leader-elect-resource-namespace, or --webhook-tls-cert-file"},
		{"--webhook-bind-address=:1 --webhook-tls-cert-file=a",
			"--webhook-tls-cert-file: goes together with --webhook-tls-private-key-file; give both or neither"},
		{"--webhook-tls-cert-file=a --webhook-tls-private-key-file=b",
			"--webhook-tls-cert-file: is for the webhooks; give --webhook-bind-address"},
		{"--webhook-client-ca-file=a", "--webhook-client-ca-file: is for the webhooks; give --webhook-bind-address"},
		{"--webhooks-only", "--webhooks-only: is for the webhooks; give --webhook-bind-address"},
		{webhookInNamespace + "--webhooks-only --leader-elect", "--webhooks-only: takes no lease; do not give --leader-elect"},
		{webhookInNamespace + "--webhooks-only --controllers=foo", "--webhooks-only: runs no controller; do not give --controllers"},
		{webhookInNamespace + "--webhook-secret=A", `--webhook-secret: "A" is not a name`},
		{webhookInNamespace + "--webhook-configuration=", `--webhook-configuration: "" is not a name`},
		{webhookInNamespace + "--webhook-hosts=a_b", `--webhook-hosts: "a_b" is neither an IP address nor a DNS name`},
		{webhookInNamespace + "--webhook-certificate-lifetime=11s", "--webhook-certificate-lifetime: must be at least 12s, got 11s"},
	})
	program := newTestProgram(nil)
	program.Webhooks = nil
	_, err := parseOptions(program, []string{"--webhook-bind-address=:1"}, nil)
	checkError(t, "a program without webhooks", err, "flag provided but not defined")
	if _, err := parseOptions(program, nil, nil); err != nil {
		t.Error(err)
	}
}

// TestCertificateWithoutLease: rule 20 is not for the certificate of the webhooks, which
// every replica makes.
func TestCertificateWithoutLease(t *testing.T) {
	written := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			written <- r.URL.Path
		}
		works(w, r)
	}))
	defer server.CloseClientConnections()
	arguments := leaderElection + " --webhook-bind-address=127.0.0.1:0"
	parsed, err := parseTestOptions(arguments)
	if err != nil {
		t.Fatal(err)
	}
	manager, err := newCertificates(parsed, newTestClients(t, arguments, server.URL), &controllers{worker: controller.WorkerOptions{
		Clock: clock.RealClock{}, Metrics: controller.NewMetrics(metrics.NewKubeRegistry()), Workers: 1,
	}})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- manager.Run(ctx) }()
	if got, want := <-written, "/api/v1/namespaces/system/secrets"; got != want {
		t.Errorf("it creates %s, want %s", got, want)
	}
	cancel()
	server.CloseClientConnections()
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

func TestServersOfWebhooks(t *testing.T) {
	certPEM, keyPEM, err := cert.GenerateSelfSignedCertKey("localhost", nil, nil)
	file := t.TempDir() + "/pem"
	if err = errors.Join(err, os.WriteFile(file, append(certPEM, keyPEM...), 0o600)); err != nil {
		t.Fatal(err)
	}
	arguments := servedPorts + " --webhook-bind-address=127.0.0.1:0"
	checkAnswers(t, arguments, map[string]string{"http://1/readyz/webhook-certificate": "500 "})
	checkAnswers(t, arguments+" --webhook-tls-cert-file="+file+" --webhook-tls-private-key-file="+file+" --webhook-client-ca-file="+file,
		map[string]string{"https://0/admission": "200 asked for true: a client certificate is required"})
	for _, test := range [][2]string{ // arguments, and the beginning of the error
		{"--webhook-bind-address=:0 --webhook-tls-cert-file=/none --webhook-tls-private-key-file=/none", "--webhook-tls-cert-file: "},
		{webhookInNamespace + "--webhook-client-ca-file=/none", "--webhook-client-ca-file: "},
	} {
		_, err := newTestServers(t, test[0])
		checkError(t, test[0], err, test[1])
	}
}
