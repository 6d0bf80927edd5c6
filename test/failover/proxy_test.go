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

package failover

import (
	"bytes"
	"context"
	"crypto/tls"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httputil"
	"net/url"
	"sync"
	"time"

	"k8s.io/apimachinery/pkg/watch"
)

// recordingProxy is the proxy between one controller and the API server. It records requests
// and responses, and can block watches and writes.
type recordingProxy struct {
	namespace string
	address   string
	// apiServer is the address of the API server. transport connects to it, either with the
	// rights that the proxy lends to the controller or only with the credentials that the
	// controller sends.
	apiServer *url.URL
	transport http.RoundTripper
	// tls is nil for plain HTTP, over which no client sends its token.
	tls *tls.Config
	// passthrough is for requests that are neither recorded nor changed.
	passthrough *httputil.ReverseProxy
	// barrier holds all requests and watch events.
	barrier      barrier
	watchBarrier barrier
	writeBarrier barrier

	mu       sync.Mutex
	server   *http.Server
	requests []*request
	// unread are the errors of requests that could not be recorded.
	unread violations
	// expiredWatches counts the 410 Gone responses and events by resource.
	expiredWatches map[string]int
}

func newRecordingProxy(namespace string, apiServer *url.URL, transport http.RoundTripper, serverTLS *tls.Config) *recordingProxy {
	return &recordingProxy{
		namespace: namespace, address: "127.0.0.1:0", apiServer: apiServer, transport: transport, tls: serverTLS,
		expiredWatches: map[string]int{},
		passthrough: &httputil.ReverseProxy{
			Rewrite:       func(out *httputil.ProxyRequest) { out.SetURL(apiServer) },
			Transport:     transport,
			FlushInterval: -1, // watches
			ErrorLog:      log.New(io.Discard, "", 0),
			// The test killed the client or the API server, or it is over.
			ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
		},
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
	body, err := io.ReadAll(incoming.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	request, err := parseRequest(incoming, path, body)
	p.mu.Lock()
	if err != nil {
		p.unread.add("%s %s: %v", incoming.Method, incoming.URL, err)
		p.mu.Unlock()
		panic(http.ErrAbortHandler)
	}
	request.received = time.Now()
	p.requests = append(p.requests, request)
	p.mu.Unlock()
	if request.isWrite() {
		p.writeBarrier.wait(incoming.Context())
	}
	response, data, err := p.forward(incoming, body)
	p.mu.Lock()
	request.answered = time.Now()
	request.lost = err != nil || response.StatusCode >= http.StatusInternalServerError
	if err == nil {
		request.recordAnswer(response.StatusCode, data)
	}
	p.mu.Unlock()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	for name, values := range response.Header {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(response.StatusCode)
	// The test may have killed the client.
	_, _ = w.Write(data)
}

// forward sends the request to the API server. It does not cancel the request when the
// client dies: the API server may have applied it, and the test must know.
func (p *recordingProxy) forward(incoming *http.Request, body []byte) (*http.Response, []byte, error) {
	out := p.toAPIServer(incoming.Clone(context.WithoutCancel(incoming.Context())))
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response, err := p.transport.RoundTrip(out)
	if err != nil {
		return nil, nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, nil, fmt.Errorf("reading the response: %w", err)
	}
	return response, data, nil
}

// toAPIServer addresses the request to the API server. Without Accept-Encoding the
// transport asks for gzip and also decompresses the response.
func (p *recordingProxy) toAPIServer(out *http.Request) *http.Request {
	out.RequestURI, out.Host = "", ""
	out.URL.Scheme, out.URL.Host = p.apiServer.Scheme, p.apiServer.Host
	out.Header.Del("Accept-Encoding")
	return out
}

// serveWatch forwards a watch in JSON, event by event. After the barrier has blocked it, it cuts
// the connection, so that the controller watches again from its last resource version.
func (p *recordingProxy) serveWatch(w http.ResponseWriter, incoming *http.Request, resource string) {
	p.watchBarrier.wait(incoming.Context())
	out := p.toAPIServer(incoming.Clone(incoming.Context()))
	out.Header.Set("Accept", "application/json")
	response, err := p.transport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	if response.StatusCode != http.StatusOK {
		p.countExpired(resource, response.StatusCode)
		_, _ = io.Copy(w, response.Body)
		return
	}
	flusher := http.NewResponseController(w)
	_ = flusher.Flush()
	for events := json.NewDecoder(response.Body); ; {
		var frame json.RawMessage
		err := events.Decode(&frame)
		held := p.watchBarrier.wait(incoming.Context()) || p.barrier.wait(incoming.Context())
		if errors.Is(err, io.EOF) && !held {
			return
		}
		if err != nil || held {
			panic(http.ErrAbortHandler)
		}
		var event struct {
			Type   watch.EventType
			Object struct{ Code int }
		}
		if json.Unmarshal(frame, &event) == nil && event.Type == watch.Error {
			p.countExpired(resource, event.Object.Code)
		}
		_, _ = w.Write(frame)
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
func (p *recordingProxy) recorded() (copies []request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, request := range p.requests {
		copies = append(copies, *request)
	}
	return copies
}

// barrier blocks requests while it is closed. The zero value is open.
type barrier struct {
	mu sync.Mutex
	// closed is nil while the barrier is open. open closes it.
	closed chan struct{}
}

// close blocks requests until the caller calls open.
func (b *barrier) close() (open func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	closed := make(chan struct{})
	b.closed = closed
	return sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.closed = nil
		close(closed)
	})
}

// wait blocks while the barrier is closed, and reports whether it was.
func (b *barrier) wait(ctx context.Context) bool {
	b.mu.Lock()
	closed := b.closed
	b.mu.Unlock()
	if closed == nil {
		return false
	}
	select {
	case <-closed:
	case <-ctx.Done():
	}
	return true
}
