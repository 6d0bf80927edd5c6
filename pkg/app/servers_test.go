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
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/discovery"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/util/cert"
	"k8s.io/client-go/util/flowcontrol"

	"example.com/sample-controller/pkg/client"
	"example.com/sample-controller/pkg/server"
)

// TestFencedClients: which clients send a write while the process does not hold the lease.
func TestFencedClients(t *testing.T) {
	var written atomic.Bool
	server := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) { written.Store(true) }))
	defer server.Close()
	for arguments, elects := range map[string]bool{leaderElection: true, "": false} {
		c := newTestClients(t, arguments, server.URL)
		write := func(client discovery.DiscoveryInterface) error {
			return client.RESTClient().Delete().AbsPath("/x").Do(t.Context()).Error()
		}
		for sentence, test := range map[string]struct {
			err func() error
			// free says that the write is not the leader's work.
			free bool
		}{
			"the lease itself is written without a lease": {func() error { return write(c.lease.Discovery()) }, true},
			"reviews are created without a lease":         {func() error { return write(c.reviews.Discovery()) }, true},
			// +drop:webhooks
			"the certificate of the webhooks is written without one": {func() error {
				return c.certificates.Resource(fooResource).Delete(t.Context(), "x", metav1.DeleteOptions{})
			}, true},
			// +drop:end
			"no built-in object is written without one": {func() error { return write(c.kube.Discovery()) }, false},
			"no custom resource is written without one": {func() error { return write(c.own.Discovery()) }, false},
			"no event is written without one":           {func() error { return write(c.events.Discovery()) }, false},
		} {
			t.Run(fmt.Sprintf("rule 20: %s, leader election %t", sentence, elects), func(t *testing.T) {
				written.Store(false)
				err := test.err()
				if fenced := elects && !test.free; errors.Is(err, client.ErrFenced) != fenced || written.Load() == fenced {
					t.Errorf("the write ends with %v, fenced should be %t", err, fenced)
				}
			})
		}
	}
}

// TestRateLimits: no client uses up the requests of another one.
func TestRateLimits(t *testing.T) {
	c := newTestClients(t, leaderElection+" --kube-api-qps=7", "http://127.0.0.1:1")
	seen := map[flowcontrol.RateLimiter]bool{}
	for _, test := range []struct {
		sentence string
		client   rest.Interface
		qps      float32
		timeout  time.Duration
	}{
		{"custom resources have the limit of the flags", c.own.SamplecontrollerV1alpha1().RESTClient(), 7, 0},
		{"built-in types have the same limit", c.kube.AppsV1().RESTClient(), 7, 0},
		{"rule 16: events have a limit of their own", c.events.CoreV1().RESTClient(), 20, 0},
		{"rule 20: renewals of the lease have a limit of their own, and time for a second try", c.lease.CoordinationV1().RESTClient(), 10, 5 * time.Second},
		{"reviews have a limit of their own", c.reviews.AuthenticationV1().RESTClient(), 10, 0},
		{"lookups of the webhooks have a limit of their own", c.lookups.AuthorizationV1().RESTClient(), 10, 0}, // +drop:webhooks
	} {
		limiter, timeout := test.client.GetRateLimiter(), test.client.(*rest.RESTClient).Client.Timeout
		if seen[limiter] || limiter.QPS() != test.qps || timeout != test.timeout {
			t.Errorf("%s: %v requests a second, shared: %t, timeout %s", test.sentence, limiter.QPS(), seen[limiter], timeout)
		}
		seen[limiter] = true
	}
}

func newTestClients(t *testing.T, arguments, url string) *clients {
	t.Helper()
	return must(newClients(must(parseTestOptions(arguments + " --master=" + url))))
}

// newTestServers returns the servers that the arguments ask for, for controllers that
// have not started.
func newTestServers(t *testing.T, arguments string) (*servers, error) {
	t.Helper()
	options := must(parseTestOptions(arguments))
	// +drop:webhooks
	options.program.Webhooks.NewHandler = func(c WebhookContext) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.HasSynced() {
				t.Error("the webhooks take caches for filled that are not")
			}
			fmt.Fprintf(w, "asked for: %v", c.VerifyClient(r))
		})
	}
	// +drop:end
	_, e := newTestEnv(t, arguments, nil)
	e.state.Store(&state{})
	defer e.shutdown(t.Context())
	return newServers(t.Context(), options, newTestClients(t, arguments, "http://127.0.0.1:1"), e.controllers)
}

// checkAnswers asks the ports of a process that is shutting down: //1/ stands for the
// address of its second port.
func checkAnswers(t *testing.T, arguments string, answers map[string]string) {
	t.Helper()
	s := must(newTestServers(t, arguments))
	asked := false
	client := http.Client{Transport: &http.Transport{TLSClientConfig: &tls.Config{
		InsecureSkipVerify: true,
		GetClientCertificate: func(*tls.CertificateRequestInfo) (*tls.Certificate, error) {
			asked = true
			return &tls.Certificate{}, nil
		},
	}}}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.whileServing(ctx, func() error {
		for url, want := range answers {
			for i, port := range s.ports {
				url = strings.Replace(url, fmt.Sprintf("//%d/", i), "//"+port.Address()+"/", 1)
			}
			response, err := client.Get(url)
			if err != nil {
				t.Error(err)
				continue
			}
			body, err := io.ReadAll(response.Body)
			got := strings.Replace(fmt.Sprintf("%d %s", response.StatusCode, body), "asked for", fmt.Sprint("asked for ", asked), 1)
			if err = errors.Join(err, response.Body.Close()); err != nil || !strings.HasPrefix(got, want) {
				t.Errorf("%s: %q, %v, want %q", url, got, err, want)
			}
		}
		client.CloseIdleConnections()
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// servedPorts has the arguments of a process that serves its health and its metrics.
const servedPorts = leaderElection + " --health-probe-bind-address=127.0.0.1:0 --metrics-bind-address=127.0.0.1:0"

func TestServers(t *testing.T) {
	answers := map[string]string{
		"http://0/livez?verbose": "200 [+]ping ok\n[+]leaderElection ok\n",
		"http://0/readyz/crd":    "500 internal server error: " + fooNotServed,
		"http://0/readyz/caches": "500 internal server error: no cache is filled yet",
		"http://1/metrics":       "200 # HELP",
		"http://1/debug/pprof/":  "404 ",
	}
	// The kubelet's requests. Caches may be filled through the webhooks, and the Service routes to those of
	// their Pods that are ready.
	for manifest, want := range map[string]string{
		"controller":     "[-]caches failed",
		"webhook/server": "[+]caches excluded: ok", // +drop:webhooks
	} {
		text, err := os.ReadFile("../../artifacts/deploy/" + manifest + "/deployment.yaml")
		path := regexp.MustCompile(`readinessProbe:\n +httpGet:\n +path: (.*)\n`).FindSubmatch(text)
		if path == nil {
			t.Fatalf("%s has no probe, error %v", manifest, err)
		}
		answers["http://0"+string(path[1])] = "500 [+]ping ok\n[-]crd failed: reason withheld\n" + want
	}
	checkAnswers(t, servedPorts+" --metrics-secure=false", answers)
	checkAnswers(t, servedPorts, map[string]string{"https://1/metrics": "401 a bearer token is required", "https://1/metrics/slis": "401 "})
	// They have the results of the checks above.
	checkAnswers(t, servedPorts+" --metrics-secure=false", map[string]string{"http://1/metrics/slis": "200 " +
		"# HELP kubernetes_healthcheck [STABLE] This metric records the result of a single healthcheck.\n# TYPE kubernetes_healthcheck gauge\n" +
		`kubernetes_healthcheck{name="caches",type="readyz"} 0` + "\n" + `kubernetes_healthcheck{name="crd",type="readyz"} 0` + "\n" +
		`kubernetes_healthcheck{name="leaderElection",type="livez"} 1` + "\n"})
	checkAnswers(t, servedPorts+" --metrics-secure=false --profiling",
		map[string]string{"http://1/debug/pprof/": "200 <html>", "http://1/debug/pprof/cmdline": "200 " + os.Args[0]})
}

// TestLostLeaseDoesNotWaitForRequests loses the lease while a request hangs.
func TestLostLeaseDoesNotWaitForRequests(t *testing.T) {
	entered, release, answered := make(chan struct{}), make(chan struct{}), make(chan error)
	s := &servers{}
	hang := func(http.ResponseWriter, *http.Request) {
		close(entered)
		<-release
	}
	if err := s.listen(t.Context(), "test", "test", "127.0.0.1:0", http.HandlerFunc(hang), nil); err != nil {
		t.Fatal(err)
	}
	err := s.whileServing(t.Context(), func() error {
		go func() {
			response, err := http.Get("http://" + s.ports[0].Address())
			if err == nil {
				err = response.Body.Close()
			}
			answered <- err
		}()
		<-entered
		return server.ErrLeaseLost
	})
	close(release)
	if got := <-answered; !errors.Is(err, server.ErrLeaseLost) || got != nil {
		t.Errorf("rule 20: error %v; the process waited for a request, which ended with %v", err, got)
	}
}

// TestServersFail: the error names the flag.
func TestServersFail(t *testing.T) {
	taken := httptest.NewServer(nil)
	defer taken.Close()
	address := taken.Listener.Addr().String()
	for arguments, want := range map[string]string{
		"--health-probe-bind-address=" + address:                                       "--health-probe-bind-address: ",
		"--health-probe-bind-address=127.0.0.1:0 --metrics-bind-address=" + address:    "--metrics-bind-address: ",
		"--metrics-bind-address=:0 --tls-cert-file=/none --tls-private-key-file=/none": "--tls-cert-file: ",
		// +drop:webhooks
		"--webhook-bind-address=:0 --webhook-tls-cert-file=/none --webhook-tls-private-key-file=/none": "--webhook-tls-cert-file: ",
		webhookInNamespace + "--webhook-client-ca-file=/none":                                          "--webhook-client-ca-file: ",
		// +drop:end
	} {
		_, err := newTestServers(t, arguments)
		checkError(t, arguments, err, want)
	}
}

// +drop:webhooks
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
}

// +drop:end
