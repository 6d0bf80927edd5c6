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

// wire passes TCP connections on to the API server, and can cut them.
type wire struct {
	t        *testing.T
	listener net.Listener
	target   string

	mu   sync.Mutex
	open map[net.Conn]bool
}

// newWire starts a wire. It ends with the test.
func newWire(t *testing.T) *wire {
	t.Helper()
	target, err := url.Parse(shared.config.Host)
	if err != nil {
		t.Fatal(err)
	}
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	w := &wire{t: t, listener: listener, target: target.Host, open: map[net.Conn]bool{}}
	go w.serve(listener)
	t.Cleanup(func() {
		_ = w.listener.Close()
		w.cut()
	})
	return w
}

func (w *wire) address() string {
	return "https://" + w.listener.Addr().String()
}

func (w *wire) serve(listener net.Listener) {
	for {
		client, err := listener.Accept()
		if err != nil {
			return
		}
		server, err := net.Dial("tcp", w.target)
		if err != nil {
			_ = client.Close()
			continue
		}
		w.mu.Lock()
		w.open[client], w.open[server] = true, true
		w.mu.Unlock()
		go w.pass(client, server)
		go w.pass(server, client)
	}
}

// pass copies until either side ends, then ends both.
func (w *wire) pass(from, to net.Conn) {
	_, _ = io.Copy(to, from)
	_ = from.Close()
	_ = to.Close()
	w.mu.Lock()
	defer w.mu.Unlock()
	delete(w.open, from)
}

// cut ends all connections and returns how many there were.
func (w *wire) cut() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	for connection := range w.open {
		_ = connection.Close()
	}
	return len(w.open) / 2
}

// unplug refuses new connections and cuts the present ones. It returns a
// function that accepts them again at the same address.
func (w *wire) unplug() (plug func()) {
	w.t.Helper()
	address := w.listener.Addr().String()
	_ = w.listener.Close()
	w.cut()
	return func() {
		w.t.Helper()
		listener, err := net.Listen("tcp", address)
		if err != nil {
			w.t.Fatal(err)
		}
		w.listener = listener
		go w.serve(listener)
	}
}

// gate passes HTTP requests on to the API server, as kubectl proxy does, and can
// answer them itself or hold them back.
type gate struct {
	t      *testing.T
	server *httptest.Server

	mu         sync.Mutex
	intercepts []intercept
}

// intercept sees a request before the API server does. It returns true if it has
// answered it.
type intercept func(http.ResponseWriter, *http.Request) bool

// newGate starts a gate. It ends with the test.
func newGate(t *testing.T) *gate {
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
		Transport:     &asWhom{nobody: transport, somebody: anonymous},
		FlushInterval: -1, // watches
		ErrorHandler:  func(w http.ResponseWriter, _ *http.Request, _ error) { w.WriteHeader(http.StatusBadGateway) },
	}
	g := &gate{t: t}
	g.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if !g.answered(w, r) {
			upstream.ServeHTTP(w, r)
		}
	}))
	t.Cleanup(func() {
		g.server.CloseClientConnections()
		g.server.Close()
	})
	return g
}

// asWhom passes requests on with the tests' own credentials, but those that bring a
// token with that.
type asWhom struct {
	nobody, somebody http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (a *asWhom) RoundTrip(r *http.Request) (*http.Response, error) {
	if r.Header.Get("Authorization") != "" {
		return a.somebody.RoundTrip(r)
	}
	return a.nobody.RoundTrip(r)
}

// answered reports whether one of the intercepts has answered the request.
func (g *gate) answered(w http.ResponseWriter, r *http.Request) bool {
	g.mu.Lock()
	intercepts := slices.Clone(g.intercepts)
	g.mu.Unlock()
	return slices.ContainsFunc(intercepts, func(i intercept) bool { return i(w, r) })
}

func (g *gate) add(i intercept) {
	g.mu.Lock()
	defer g.mu.Unlock()
	g.intercepts = append(g.intercepts, i)
}

// hold holds the requests back that match. arrived tells of each one that came,
// release lets them all go on.
func (g *gate) hold(matches func(*http.Request) bool) (arrived <-chan struct{}, release func()) {
	came, opened := make(chan struct{}, 10), make(chan struct{})
	release = sync.OnceFunc(func() { close(opened) })
	g.add(func(_ http.ResponseWriter, r *http.Request) bool {
		if matches(r) {
			came <- struct{}{}
			select {
			case <-opened:
			case <-r.Context().Done():
			}
		}
		return false
	})
	// Whatever is still held would keep the server from closing.
	g.t.Cleanup(release)
	return came, release
}

func createsDeployment(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/deployments")
}

func createsEvent(r *http.Request) bool {
	return r.Method == http.MethodPost && strings.HasSuffix(r.URL.Path, "/events")
}
