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
	"strings"
	"testing"

	authenticationv1 "k8s.io/api/authentication/v1"
	authorizationv1 "k8s.io/api/authorization/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/util/flowcontrol"

	"example.com/sample-controller/pkg/client"
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
}

// TestRateLimits: no client uses up the requests of another one.
func TestRateLimits(t *testing.T) {
	c := newTestClients(t, leaderElection, "http://127.0.0.1:1")
	seen := map[flowcontrol.RateLimiter]string{}
	for name, kube := range map[string]kubernetes.Interface{"kube": c.kube, "events": c.events, "lease": c.lease, "reviews": c.reviews, "lookups": c.lookups} {
		limiter := kube.AuthorizationV1().RESTClient().GetRateLimiter()
		if other, ok := seen[limiter]; ok {
			t.Errorf("%s and %s share a limit", name, other)
		}
		seen[limiter] = name
	}
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
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if c.HasSynced() {
				t.Error("the webhooks take caches for filled that are not")
			}
			fmt.Fprintf(w, "asked for: %v", c.VerifyClient(r))
		})
	}
	_, e := newTestEnv(t, arguments, nil)
	e.state.Store(&state{})
	defer e.shutdown(t.Context())
	return newServers(t.Context(), options, newTestClients(t, arguments, "http://127.0.0.1:1"), e.controllers)
}

// checkAnswers asks the ports of a process that is shutting down: //1/ stands for the
// address of its second port.
func checkAnswers(t *testing.T, arguments string, answers map[string]string) {
	t.Helper()
	s, err := newTestServers(t, arguments)
	if err != nil {
		t.Fatal(err)
	}
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
	checkAnswers(t, servedPorts+" --metrics-secure=false", map[string]string{
		"http://0/livez":                "200 ok",
		"http://0/livez/leaderElection": "200 ok",
		"http://0/readyz":               "500 [+]ping ok\n[-]crd failed",
		"http://0/readyz/crd":           "500 internal server error: " + fooNotServed,
		"http://0/readyz/caches":        "500 internal server error: no cache is filled yet",
		"http://1/metrics":              "200 # HELP",
		"http://1/debug/pprof/":         "404 ",
	})
	checkAnswers(t, servedPorts, map[string]string{"https://1/metrics": "401 a bearer token is required"})
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
	} {
		if _, err := newTestServers(t, test[0]); err == nil || !strings.HasPrefix(err.Error(), test[1]) {
			t.Errorf("%s: error %v, want %q", test[0], err, test[1])
		}
	}
}
