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
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log"
	"net/http"
	"net/http/httputil"
	"sync"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// What the proxies between the controllers and the API server share.

// newPassthrough returns a handler for requests that are neither recorded nor changed:
// discovery, events, leases.
func newPassthrough(transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:       func(out *httputil.ProxyRequest) { out.SetURL(cluster.server) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		// The test killed the client or the API server, or the run is over.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

// readRequest returns the parsed request and its body. It aborts the connection of a
// request that it cannot read.
func readRequest(t *testing.T, incoming *http.Request, path resourcePath) (*request, []byte) {
	body, err := io.ReadAll(incoming.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	request, err := parseRequest(incoming.Method, path, body)
	if err != nil {
		t.Errorf("%s %s: %v", incoming.Method, incoming.URL, err)
		panic(http.ErrAbortHandler)
	}
	if incoming.URL.Query().Has("dryRun") {
		request.detail = dryRun
	}
	return request, body
}

// apiResponse is a complete response of the API server.
type apiResponse struct {
	code   int
	header http.Header
	body   []byte
}

// write sends the response to the client, which may have been killed meanwhile.
func (a *apiResponse) write(w http.ResponseWriter) {
	for name, values := range a.header {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(a.code)
	_, _ = w.Write(a.body)
}

// recordIn records the response in the request.
func (a *apiResponse) recordIn(r *request) {
	r.code = a.code
	if r.observed.generation > 0 && r.applied() {
		answer := &metav1.PartialObjectMetadata{}
		if json.Unmarshal(a.body, answer) == nil {
			r.observed.uid = answer.UID
		}
	}
	if r.verb != http.MethodGet || a.code != http.StatusOK {
		return
	}
	foo, deployment := &v1alpha1.Foo{}, &appsv1.Deployment{}
	switch r.resource {
	case foos:
		if json.Unmarshal(a.body, foo) == nil {
			r.readFoo = foo
		}
	case deployments:
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(a.body, nil, deployment); err == nil {
			r.readDeployment = deployment
		}
	}
}

// forward sends the request to the API server. It does not cancel the request when the
// client dies: the API server may have applied it, and the test must know.
func forward(transport http.RoundTripper, incoming *http.Request, body []byte) (*apiResponse, error) {
	out := toAPIServer(incoming.Clone(context.WithoutCancel(incoming.Context())))
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response, err := transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the response: %w", err)
	}
	return &apiResponse{response.StatusCode, response.Header, data}, nil
}

// openWatch opens the watch in JSON and sends the response header to the client.
func openWatch(transport http.RoundTripper, w http.ResponseWriter, incoming *http.Request) *http.Response {
	out := toAPIServer(incoming.Clone(incoming.Context()))
	out.Header.Set("Accept", "application/json")
	response, err := transport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	return response
}

// toAPIServer addresses the request to the API server. Without Accept-Encoding the
// transport asks for gzip and also decompresses the response.
func toAPIServer(out *http.Request) *http.Request {
	out.RequestURI, out.Host = "", ""
	out.URL.Scheme, out.URL.Host = cluster.server.Scheme, cluster.server.Host
	out.Header.Del("Accept-Encoding")
	return out
}

// barrier blocks requests while it is closed. The zero value is open.
type barrier struct {
	mu sync.Mutex
	// closed is nil while the barrier is open. open closes it.
	closed  chan struct{}
	arrived chan struct{}
}

// close blocks requests until the caller calls open. arrived receives once a request is
// blocked.
func (b *barrier) close() (arrived <-chan struct{}, open func()) {
	b.mu.Lock()
	defer b.mu.Unlock()
	closed := make(chan struct{})
	b.closed, b.arrived = closed, make(chan struct{}, 1)
	return b.arrived, sync.OnceFunc(func() {
		b.mu.Lock()
		defer b.mu.Unlock()
		b.closed = nil
		close(closed)
	})
}

// wait blocks while the barrier is closed, and reports whether it was.
func (b *barrier) wait(ctx context.Context) bool {
	b.mu.Lock()
	closed, arrived := b.closed, b.arrived
	b.mu.Unlock()
	if closed == nil {
		return false
	}
	select {
	case arrived <- struct{}{}:
	default:
	}
	select {
	case <-closed:
	case <-ctx.Done():
	}
	return true
}

// copyRequests returns copies, which later responses do not change.
func copyRequests(requests []*request) []request {
	copies := make([]request, 0, len(requests))
	for _, request := range requests {
		copies = append(copies, *request)
	}
	return copies
}
