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
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/rest"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/client"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/server"
)

// TestFencedClients: which clients send a write while the process does not hold the lease.
func TestFencedClients(t *testing.T) {
	written := make(chan string, 1)
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.Method != http.MethodGet {
			written <- r.URL.Path
		}
		works(w, r)
	}))
	defer server.CloseClientConnections()
	ctx, options := t.Context(), metav1.DeleteOptions{}
	for _, test := range []struct {
		sentence string
		// free says that the write is not the leader's work.
		free bool
		path string
		send func(*clients) error
	}{
		{"the lease itself is written without a lease", true, "/apis/coordination.k8s.io/v1/namespaces/system/leases/lease", func(c *clients) error {
			return c.lease.CoordinationV1().Leases("system").Delete(ctx, "lease", options)
		}},
		{"token reviews are created without a lease", true, "/apis/authentication.k8s.io/v1/tokenreviews", func(c *clients) error {
			_, err := c.reviews.AuthenticationV1().TokenReviews().Create(ctx, &authenticationv1.TokenReview{}, metav1.CreateOptions{})
			return err
		}},
		{"access reviews are created without a lease", true, "/apis/authorization.k8s.io/v1/subjectaccessreviews", func(c *clients) error {
			review := &authorizationv1.SubjectAccessReview{}
			_, err := c.reviews.AuthorizationV1().SubjectAccessReviews().Create(ctx, review, metav1.CreateOptions{})
			return err
		}},
		{"a built-in object is not written without a lease", false, "/apis/apps/v1/namespaces/ns/deployments/web", func(c *clients) error {
			return c.kube.AppsV1().Deployments("ns").Delete(ctx, "web", options)
		}},
		{"a custom resource is not written without a lease", false, "/apis/samplecontroller.k8s.io/v1alpha1/namespaces/ns/foos/foo", func(c *clients) error {
			return c.own.SamplecontrollerV1alpha1().Foos("ns").Delete(ctx, "foo", options)
		}},
		{"an event is not written without a lease", false, "/api/v1/namespaces/ns/events", func(c *clients) error {
			_, err := c.events.CoreV1().Events("ns").Create(ctx, &corev1.Event{}, metav1.CreateOptions{})
			return err
		}},
		{"another service is not written to without a lease", false, "/", func(c *clients) error {
			request, err := http.NewRequestWithContext(ctx, http.MethodPut, server.URL, http.NoBody)
			if err != nil {
				return err
			}
			response, err := c.fence.Wrap(server.Client().Transport).RoundTrip(request)
			if err != nil {
				return err
			}
			return response.Body.Close()
		}},
	} {
		for arguments, elects := range map[string]bool{leaderElection: true, "": false} {
			t.Run(fmt.Sprintf("rule 20: %s, leader election %t", test.sentence, elects), func(t *testing.T) {
				err := test.send(newTestClients(t, arguments, server.URL))
				got := ""
				select {
				case got = <-written:
				default:
				}
				if fenced := elects && !test.free; errors.Is(err, client.ErrFenced) != fenced || (got == test.path) == fenced {
					t.Errorf("the write to %q ends with %v, fenced should be %t", got, err, fenced)
				}
			})
		}
	}
	t.Run("rule 20: every replica makes the certificate of its webhooks", func(t *testing.T) {
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
	})
}

func newTestClients(t *testing.T, arguments, url string) *clients {
	t.Helper()
	parsed, err := parseTestOptions(arguments + " --master=" + url)
	if err != nil {
		t.Fatal(err)
	}
	c, err := newClients(parsed)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

// newTestServers returns the servers that the arguments ask for, for controllers that
// have not started.
func newTestServers(t *testing.T, arguments string) (*servers, error) {
	t.Helper()
	options, err := parseTestOptions(arguments)
	if err != nil {
		t.Fatal(err)
	}
	options.program.Webhooks.NewHandler = func(c WebhookContext) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
			if c.HasSynced() {
				t.Error("the webhooks take caches for filled that are not")
			}
			_, _ = io.WriteString(w, "webhooks")
		})
	}
	_, e := newTestEnv(t, arguments, nil)
	e.state.Store(&state{})
	defer e.shutdown(t.Context())
	return newServers(t.Context(), options, &clients{config: &rest.Config{}}, e.controllers)
}

func TestServers(t *testing.T) {
	s, err := newTestServers(t, "--health-probe-bind-address=127.0.0.1:0 --metrics-bind-address=127.0.0.1:0 --metrics-secure=false")
	if err != nil {
		t.Fatal(err)
	}
	health, metrics := s.ports[0].Address(), s.ports[1].Address()
	answers := map[string]struct {
		code int
		body string
	}{
		health + "/livez":         {http.StatusOK, "ok"},
		health + "/readyz":        {http.StatusInternalServerError, "[-]crd failed"},
		health + "/readyz/crd":    {http.StatusInternalServerError, fooNotServed},
		health + "/readyz/caches": {http.StatusInternalServerError, "no cache is filled yet"},
		metrics + "/metrics":      {http.StatusOK, "kubernetes_build_info"},
		metrics + "/debug/pprof/": {http.StatusNotFound, ""},
	}
	if err := s.whileServing(t.Context(), func() error {
		for url, want := range answers {
			response, err := http.Get("http://" + url)
			if err != nil {
				t.Error(err)
				continue
			}
			body, err := io.ReadAll(response.Body)
			if err = errors.Join(err, response.Body.Close()); err != nil || response.StatusCode != want.code || !strings.Contains(string(body), want.body) {
				t.Errorf("%s: %d %q, %v, want %d %q", url, response.StatusCode, body, err, want.code, want.body)
			}
		}
		return nil
	}); err != nil {
		t.Error(err)
	}
}

// TestLostLeaseDoesNotWaitForRequests loses the lease while a request hangs.
func TestLostLeaseDoesNotWaitForRequests(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	s := &servers{}
	if err := s.listen(t.Context(), "test", "test", "127.0.0.1:0", http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		close(entered)
		<-release
		_, _ = io.WriteString(w, "late")
	}), nil); err != nil {
		t.Fatal(err)
	}
	answered := make(chan string)
	go func() {
		response, err := http.Get("http://" + s.ports[0].Address())
		if err != nil {
			answered <- err.Error()
			return
		}
		defer response.Body.Close()
		body, _ := io.ReadAll(response.Body)
		answered <- string(body)
	}()
	if err := s.whileServing(t.Context(), func() error {
		<-entered
		return server.ErrLeaseLost
	}); !errors.Is(err, server.ErrLeaseLost) {
		t.Errorf("error %v", err)
	}
	close(release)
	if got := <-answered; got != "late" {
		t.Errorf("rule 20: the process waited for a request, which it cut off at last: %s", got)
	}
}

// TestServersFail: the error names the flag.
func TestServersFail(t *testing.T) {
	taken, err := newTestServers(t, "--health-probe-bind-address=127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer taken.ports[0].Close()
	address := taken.ports[0].Address()
	for _, test := range [][2]string{ // arguments, and the beginning of the error
		{"--health-probe-bind-address=" + address, "--health-probe-bind-address: "},
		{"--health-probe-bind-address=127.0.0.1:0 --metrics-bind-address=" + address, "--metrics-bind-address: "},
		{"--metrics-bind-address=:0 --tls-cert-file=/none --tls-private-key-file=/none", "--tls-cert-file: "},
		{"--webhook-bind-address=:0 --webhook-tls-cert-file=/none --webhook-tls-private-key-file=/none", "--webhook-tls-cert-file: "},
		{webhookInNamespace + "--webhook-client-ca-file=/none", "--webhook-client-ca-file: "},
	} {
		if _, err := newTestServers(t, test[0]); err == nil || !strings.HasPrefix(err.Error(), test[1]) {
			t.Errorf("%s: error %v, want %q", test[0], err, test[1])
		}
	}
}
