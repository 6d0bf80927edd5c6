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
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"slices"
	"strings"
	"sync"
	"testing"

	"k8s.io/client-go/rest"
)

// tcpProxy forwards TCP connections to the API server, and can close them.
type tcpProxy struct {
	t        *testing.T
	listener net.Listener
	target   string

	mu   sync.Mutex
	open map[net.Conn]bool
}

// startTCPProxy starts a proxy that ends with the test.
func startTCPProxy(t *testing.T) *tcpProxy {
	t.Helper()
	target, err := url.Parse(shared.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	p := &tcpProxy{t: t, listener: listen(t), target: target.Host, open: map[net.Conn]bool{}}
	go p.serve(p.listener)
	t.Cleanup(func() {
		_ = p.listener.Close()
		p.cut()
	})
	return p
}

func (p *tcpProxy) address() string {
	return "https://" + p.listener.Addr().String()
}

func (p *tcpProxy) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", p.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		p.mu.Lock()
		p.open[client], p.open[server] = true, true
		p.mu.Unlock()
		go p.pass(client, server)
		go p.pass(server, client)
	}
}

// pass copies until either side closes its connection, then closes both.
func (p *tcpProxy) pass(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_ = from.Close()
	_ = to.Close()
	p.mu.Lock()
	defer p.mu.Unlock()
	delete(p.open, from)
}

// cut closes all connections and returns their number.
func (p *tcpProxy) cut() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	for connection := range p.open {
		_ = connection.Close()
	}
	return len(p.open) / 2
}

// unplug closes the listener and all connections. plug listens again at the same address.
func (p *tcpProxy) unplug() (plug func()) {
	p.t.Helper()
	address := p.listener.Addr().String()
	_ = p.listener.Close()
	p.cut()
	return func() {
		p.t.Helper()
		listener, err := net.Listen("tcp", address)
		if err != nil {
			p.t.Fatal(err)
		}
		p.listener = listener
		go p.serve(listener)
	}
}

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
	if err != nil {
		t.Fatal(err)
	}
	transport, err := rest.TransportFor(shared.config)
	if err != nil {
		t.Fatal(err)
	}
	anonymous, err := rest.TransportFor(rest.AnonymousClientConfig(shared.config))
	if err != nil {
		t.Fatal(err)
	}
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

func createsDeployment(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/deployments")
}
