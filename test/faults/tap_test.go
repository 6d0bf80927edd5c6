//go:build faults

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

package faults

import (
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"sync"
	"testing"
	"time"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// tap stands between one controller and the API server through outages and
// changes of leader. It records what the controller asks for and what becomes of
// that, and can keep the controller's watches waiting.
type tap struct {
	t         *testing.T
	namespace string
	address   string
	// transport leads to the API server, with the rights that the tap lends to the
	// controller, or with none but those that the controller shows.
	transport http.RoundTripper
	// tls is nil for plain HTTP. Over that no client shows its token.
	tls     *tls.Config
	through *httputil.ReverseProxy

	mu       sync.Mutex
	server   *http.Server
	requests []*request
	watches  barrier
	writes   barrier
	// gone counts by resource how often a watch was told that its version is too
	// old.
	gone map[string]int
}

func newTap(t *testing.T, namespace string, transport http.RoundTripper, tls *tls.Config) *tap {
	return &tap{
		t: t, namespace: namespace, address: "127.0.0.1:0", transport: transport, tls: tls,
		through: newThrough(transport), gone: map[string]int{},
	}
}

// open accepts connections, from now on always at the same address.
func (t *tap) open() error {
	listener, err := net.Listen("tcp", t.address)
	if err != nil {
		return err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.address = listener.Addr().String()
	// A client that is killed breaks connections off, which is no news.
	t.server = &http.Server{Handler: t, TLSConfig: t.tls, ErrorLog: log.New(io.Discard, "", 0)}
	server := t.server
	go func() {
		// It ends when it is closed.
		if server.TLSConfig != nil {
			_ = server.ServeTLS(listener, "", "")
			return
		}
		_ = server.Serve(listener)
	}()
	return nil
}

// shut refuses connections, as where there is no API server.
func (t *tap) shut() {
	t.mu.Lock()
	server := t.server
	t.mu.Unlock()
	_ = server.Close()
}

// ServeHTTP implements http.Handler.
func (t *tap) ServeHTTP(w http.ResponseWriter, incoming *http.Request) {
	to, ours := placeOf(incoming.URL.Path, t.namespace)
	switch {
	case !ours:
		t.through.ServeHTTP(w, incoming)
	case to.name != "" || incoming.Method != http.MethodGet:
		t.serveRequest(w, incoming, to)
	case incoming.URL.Query().Get("watch") != "":
		t.serveWatch(w, incoming, to.resource)
	default:
		t.through.ServeHTTP(w, incoming)
	}
}

func (t *tap) serveRequest(w http.ResponseWriter, incoming *http.Request, to place) {
	body, err := io.ReadAll(incoming.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	request, err := parse(incoming.Method, to, body)
	if err != nil {
		t.t.Errorf("%s %s: %v", incoming.Method, incoming.URL, err)
		panic(http.ErrAbortHandler)
	}
	t.mu.Lock()
	request.begun = time.Now()
	t.requests = append(t.requests, request)
	t.mu.Unlock()
	if request.isWrite() {
		t.writes.wait(incoming.Context())
	}
	answer, err := forward(t.transport, incoming, body)
	t.mu.Lock()
	request.ended = time.Now()
	request.lost = err != nil || answer.code >= http.StatusInternalServerError
	if err == nil {
		request.code = answer.code
		request.read = foundFoo(request, answer)
	}
	t.mu.Unlock()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.header {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(answer.code)
	// The client may be gone, which is no matter.
	_, _ = w.Write(answer.body)
}

// foundFoo returns the Foo that was read, nil if none was.
func foundFoo(r *request, answer *answer) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{}
	if r.verb != http.MethodGet || r.resource != foos || answer.code != http.StatusOK || json.Unmarshal(answer.body, foo) != nil {
		return nil
	}
	return foo
}

// serveWatch passes a watch on, event by event. One that is held is cut in the
// end, so that the controller watches anew from where it was.
func (t *tap) serveWatch(w http.ResponseWriter, incoming *http.Request, resource string) {
	t.watches.wait(incoming.Context())
	response := openWatch(t.transport, w, incoming)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		t.count(resource, response.StatusCode)
		_, _ = io.Copy(w, response.Body)
		return
	}
	flusher := http.NewResponseController(w)
	_ = flusher.Flush()
	events := json.NewDecoder(response.Body)
	for {
		var f frame
		err := events.Decode(&f)
		held := t.watches.wait(incoming.Context())
		if errors.Is(err, io.EOF) && !held {
			return
		}
		if err != nil || held {
			panic(http.ErrAbortHandler)
		}
		if f.Type == "ERROR" {
			var status struct{ Code int }
			_ = json.Unmarshal(f.Object, &status)
			t.count(resource, status.Code)
		}
		// The client may be gone, which is no matter.
		_, _ = w.Write(mustEncode(f))
		_ = flusher.Flush()
	}
}

func (t *tap) count(resource string, code int) {
	if code != http.StatusGone {
		return
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	t.gone[resource]++
}

// expired returns how often a watch of that resource was told that its version is
// too old.
func (t *tap) expired(resource string) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.gone[resource]
}

// barrier keeps requests waiting while it is closed.
type barrier struct {
	mu sync.Mutex
	// held is closed when they may go on, nil while they may.
	held chan struct{}
}

// wait reports whether it had to wait.
func (b *barrier) wait(ctx context.Context) bool {
	b.mu.Lock()
	held := b.held
	b.mu.Unlock()
	if held == nil {
		return false
	}
	select {
	case <-held:
	case <-ctx.Done():
	}
	return true
}

// hold keeps requests waiting until release.
func (b *barrier) hold() (release func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	held := make(chan struct{})
	b.held = held
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.held = nil
		close(held)
	})
}

// recorded returns a copy of all requests so far.
func (t *tap) recorded() []request {
	t.mu.Lock()
	defer t.mu.Unlock()
	requests := make([]request, 0, len(t.requests))
	for _, request := range t.requests {
		requests = append(requests, *request)
	}
	return requests
}
