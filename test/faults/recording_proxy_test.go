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

	"k8s.io/apimachinery/pkg/watch"
)

// recordingProxy is the proxy between one controller and the API server during outages
// and changes of leader. It records requests and responses, and can block watches and
// writes.
type recordingProxy struct {
	t         *testing.T
	namespace string
	address   string
	// transport connects to the API server, either with the rights that the proxy lends
	// to the controller or only with the credentials that the controller sends.
	transport http.RoundTripper
	// tls is nil for plain HTTP, over which no client sends its token.
	tls         *tls.Config
	passthrough *httputil.ReverseProxy
	// barrier holds all requests and watch events.
	barrier      barrier
	watchBarrier barrier
	writeBarrier barrier

	mu       sync.Mutex
	server   *http.Server
	requests []*request
	// expiredWatches counts the 410 Gone responses and events by resource.
	expiredWatches map[string]int
}

func newRecordingProxy(t *testing.T, namespace string, transport http.RoundTripper, serverTLS *tls.Config) *recordingProxy {
	return &recordingProxy{
		t: t, namespace: namespace, address: "127.0.0.1:0", transport: transport, tls: serverTLS,
		passthrough: newPassthrough(transport), expiredWatches: map[string]int{},
	}
}

// listen accepts connections. It uses the same address each time.
func (p *recordingProxy) listen() error {
	listener, err := net.Listen("tcp", p.address)
	if err != nil {
		return err
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.address = listener.Addr().String()
	// The log is discarded: it would report each connection of a killed client.
	server := &http.Server{Handler: p, TLSConfig: p.tls, ErrorLog: log.New(io.Discard, "", 0)}
	p.server = server
	go func() {
		// Serve returns when close is called.
		if server.TLSConfig != nil {
			_ = server.ServeTLS(listener, "", "")
			return
		}
		_ = server.Serve(listener)
	}()
	return nil
}

// close refuses connections, as if there were no API server.
func (p *recordingProxy) close() {
	p.mu.Lock()
	server := p.server
	p.mu.Unlock()
	_ = server.Close()
}

// ServeHTTP implements http.Handler.
func (p *recordingProxy) ServeHTTP(w http.ResponseWriter, incoming *http.Request) {
	if p.barrier.wait(incoming.Context()) && incoming.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
	path, recorded := parsePath(incoming.URL.Path, p.namespace)
	switch {
	case !recorded:
		p.passthrough.ServeHTTP(w, incoming)
	case path.name != "" || incoming.Method != http.MethodGet:
		p.serveRequest(w, incoming, path)
	case incoming.URL.Query().Get("watch") != "":
		p.serveWatch(w, incoming, path.resource)
	default:
		p.passthrough.ServeHTTP(w, incoming)
	}
}

func (p *recordingProxy) serveRequest(w http.ResponseWriter, incoming *http.Request, path resourcePath) {
	request, body := readRequest(p.t, incoming, path)
	p.mu.Lock()
	request.received = time.Now()
	p.requests = append(p.requests, request)
	p.mu.Unlock()
	if request.isWrite() {
		p.writeBarrier.wait(incoming.Context())
	}
	response, err := forward(p.transport, incoming, body)
	p.mu.Lock()
	request.answered = time.Now()
	request.lost = err != nil || response.code >= http.StatusInternalServerError
	if err == nil {
		response.recordIn(request)
	}
	p.mu.Unlock()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	response.write(w)
}

// serveWatch forwards a watch event by event. After the barrier has blocked it, it cuts
// the connection, so that the controller watches again from its last resource version.
func (p *recordingProxy) serveWatch(w http.ResponseWriter, incoming *http.Request, resource string) {
	p.watchBarrier.wait(incoming.Context())
	response := openWatch(p.transport, w, incoming)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		p.countExpired(resource, response.StatusCode)
		_, _ = io.Copy(w, response.Body)
		return
	}
	flusher := http.NewResponseController(w)
	_ = flusher.Flush()
	events := json.NewDecoder(response.Body)
	for {
		var f watchFrame
		err := events.Decode(&f)
		held := p.watchBarrier.wait(incoming.Context()) || p.barrier.wait(incoming.Context())
		if errors.Is(err, io.EOF) && !held {
			return
		}
		if err != nil || held {
			panic(http.ErrAbortHandler)
		}
		if f.Type == watch.Error {
			var status struct{ Code int }
			_ = json.Unmarshal(f.Object, &status)
			p.countExpired(resource, status.Code)
		}
		// The test may have killed the client.
		_, _ = w.Write(mustEncode(f))
		_ = flusher.Flush()
	}
}

func (p *recordingProxy) countExpired(resource string, code int) {
	if code != http.StatusGone {
		return
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.expiredWatches[resource]++
}

// expiredCount returns how often a watch of the resource got 410 Gone.
func (p *recordingProxy) expiredCount(resource string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.expiredWatches[resource]
}

// recorded returns a copy of all requests so far.
func (p *recordingProxy) recorded() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return copyRequests(p.requests)
}
