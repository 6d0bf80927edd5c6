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
	"encoding/pem"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"sync"
	"sync/atomic"
	"testing"

	"k8s.io/client-go/rest"
	clientcmdapi "k8s.io/client-go/tools/clientcmd/api"
)

// httpProxy forwards HTTP requests to the API server, as kubectl proxy does, and can answer
// them itself or hold them back.
type httpProxy struct {
	t      *testing.T
	server *httptest.Server

	mu         sync.Mutex
	intercepts []intercept
}

// intercept is called before a request is forwarded. It returns true if it has answered the
// request.
type intercept func(http.ResponseWriter, *http.Request) bool

// startHTTPProxy starts a proxy that ends with the test.
func startHTTPProxy(t *testing.T) *httpProxy {
	t.Helper()
	target, err := url.Parse(shared.config.Host)
	must(t, err)
	transport, err := rest.TransportFor(shared.config)
	must(t, err)
	anonymous, err := rest.TransportFor(rest.AnonymousClientConfig(shared.config))
	must(t, err)
	upstream := &httputil.ReverseProxy{
		Rewrite:       func(r *httputil.ProxyRequest) { r.SetURL(target) },
		Transport:     &authTransport{admin: transport, anonymous: anonymous},
		FlushInterval: -1, // watches
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	p := &httpProxy{t: t}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !p.answered(w, r) {
			upstream.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		p.server.CloseClientConnections()
		p.server.Close()
	})
	return p
}

// authTransport sends a request with the token that it carries, and with the suite's
// credentials if it carries none.
type authTransport struct {
	admin, anonymous http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a *authTransport) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" {
		return a.anonymous.RoundTrip(r)
	}
	return a.admin.RoundTrip(r)
}

// answered reports whether one of the intercepts has answered the request.
func (p *httpProxy) answered(w http.ResponseWriter, r *http.Request) bool {
	p.mu.Lock()
	intercepts := slices.Clone(p.intercepts)
	p.mu.Unlock()
	return slices.ContainsFunc(intercepts, func(i intercept) bool { return i(w, r) })
}

func (p *httpProxy) add(i intercept) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.intercepts = append(p.intercepts, i)
}

// hold holds matching requests back until resume is called. arrived receives a value for
// each of them.
func (p *httpProxy) hold(matches func(*http.Request) bool) (arrived <-chan struct{}, resume func()) {
	came, resumed := make(chan struct{}, 10), make(chan struct{})
	resume = sync.OnceFunc(func() { close(resumed) })
	p.add(func(_ http.ResponseWriter, r *http.Request) bool {
		if matches(r) {
			came <- struct{}{}
			select {
			case <-resumed:
			case <-r.Context().Done():
			}
		}
		return false
	})
	// The server cannot close while it holds a request.
	p.t.Cleanup(resume)
	return came, resume
}

// unplug closes all connections, and each one that arrives until plug is called.
func (p *httpProxy) unplug() (plug func()) {
	var plugged atomic.Bool
	p.add(func(http.ResponseWriter, *http.Request) bool {
		if !plugged.Load() {
			panic(http.ErrAbortHandler)
		}
		return false
	})
	p.server.CloseClientConnections()
	return func() { plugged.Store(true) }
}

// kubeconfig returns a kubeconfig that names the proxy and the user. It uses TLS, because
// client-go sends credentials over TLS only.
func (p *httpProxy) kubeconfig(user *clientcmdapi.AuthInfo) string {
	p.t.Helper()
	server := httptest.NewTLSServer(p.server.Config.Handler)
	p.t.Cleanup(func() {
		server.CloseClientConnections()
		server.Close()
	})
	return writeKubeconfig(p.t, func(config *clientcmdapi.Config) {
		setUser(config, user)
		for _, cluster := range config.Clusters {
			cluster.Server = server.URL
			cluster.CertificateAuthorityData = pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: server.Certificate().Raw})
		}
	})
}
