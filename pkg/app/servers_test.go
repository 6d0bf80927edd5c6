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
	"errors"
	"io"
	"net/http"
	"strings"
	"testing"

	"k8s.io/client-go/rest"

	"example.com/sample-controller/pkg/server"
)

// newTestServers returns the servers that the arguments ask for, for controllers that
// have not started.
func newTestServers(t *testing.T, arguments string) (*servers, error) {
	t.Helper()
	options, err := parseTestOptions(strings.Fields(arguments))
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
	for arguments, want := range map[string]string{
		"--health-probe-bind-address=" + address:                                                                              "--health-probe-bind-address: ",
		"--health-probe-bind-address=127.0.0.1:0 --metrics-bind-address=" + address:                                           "--metrics-bind-address: ",
		"--metrics-bind-address=127.0.0.1:0 --tls-cert-file=/nonexistent --tls-private-key-file=/nonexistent":                 "--tls-cert-file: ",
		"--webhook-bind-address=127.0.0.1:0 --webhook-tls-cert-file=/nonexistent --webhook-tls-private-key-file=/nonexistent": "--webhook-tls-cert-file: ",
	} {
		if _, err := newTestServers(t, arguments); err == nil || !strings.HasPrefix(err.Error(), want) {
			t.Errorf("%s: error %v, want %q", arguments, err, want)
		}
	}
}
