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
	"strconv"
	"strings"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

const (
	deployments = "deployments"
	foos        = "foos"
)

// request is a request of the controller for one object.
type request struct {
	verb, resource, subresource, name string
	// detail is the reason that a status has.
	detail string
	dryRun bool
	// resourceVersion is a precondition, 0 for none.
	resourceVersion int64
	// code is the API server's response code.
	code int
	// lost is set if the request got no answer, or a 5xx: the API server, or etcd behind
	// it, may or may not have applied it.
	lost bool
	// readFoo and readDeployment are the responses to a GET.
	readFoo        *v1alpha1.Foo
	readDeployment *appsv1.Deployment
	// observed is the generation that a status write reports.
	observed           fooGeneration
	received, answered time.Time
}

// fooGeneration identifies one spec of a Foo.
type fooGeneration struct {
	uid        types.UID
	generation int64
}

func (r *request) String() string {
	return strings.Join(strings.Fields(fmt.Sprint(r.verb, " ", r.resource, " ", r.name, " ", r.subresource, " ", r.detail)), " ")
}

func (r *request) isWrite() bool { return r.verb != http.MethodGet && !r.dryRun }

func (r *request) applied() bool { return r.isWrite() && r.code >= 200 && r.code < 300 }

// resourcePath is the path of a request to a resource.
type resourcePath struct {
	resource, name, subresource string
}

// parsePath returns false for paths that the proxies do not record: discovery, events,
// leases and other namespaces.
func parsePath(path, namespace string) (resourcePath, bool) {
	_, rest, inside := strings.Cut(path, "/namespaces/"+namespace+"/")
	resource, rest, _ := strings.Cut(rest, "/")
	name, subresource, _ := strings.Cut(rest, "/")
	return resourcePath{resource, name, subresource}, inside && resource != "events" && resource != "leases"
}

// parseRequest returns the request with that path and body.
func parseRequest(incoming *http.Request, to resourcePath, body []byte) (*request, error) {
	r := &request{verb: incoming.Method, resource: to.resource, name: to.name, subresource: to.subresource, dryRun: incoming.URL.Query().Has("dryRun")}
	switch {
	case r.verb == http.MethodPost && to.name == "":
		object, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, nil)
		if err != nil {
			return nil, fmt.Errorf("decoding the created object: %w", err)
		}
		accessor, err := meta.Accessor(object)
		if err != nil {
			return nil, err
		}
		r.name = accessor.GetName()
	case r.verb == http.MethodDelete:
		options := &metav1.DeleteOptions{}
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, options); err != nil {
			return nil, fmt.Errorf("decoding the delete options: %w", err)
		}
		if options.Preconditions != nil {
			r.resourceVersion = parseRevision(ptr.Deref(options.Preconditions.ResourceVersion, ""))
		}
	case r.verb != http.MethodGet:
		// A patch, or a status as an object or as a patch.
		var object struct {
			metav1.ObjectMeta `json:"metadata"`

			Status v1alpha1.FooStatus
		}
		if err := json.Unmarshal(body, &object); err != nil {
			return nil, fmt.Errorf("decoding a write: %w", err)
		}
		r.resourceVersion, r.observed.generation = parseRevision(object.ResourceVersion), object.Status.ObservedGeneration
		if ready := meta.FindStatusCondition(object.Status.Conditions, v1alpha1.FooReady); ready != nil {
			r.detail = ready.Reason
		}
	}
	return r, nil
}

// recordAnswer records the answer of the API server.
func (r *request) recordAnswer(code int, body []byte) {
	r.code = code
	answer := &metav1.PartialObjectMetadata{}
	if r.observed.generation > 0 && r.applied() && json.Unmarshal(body, answer) == nil {
		r.observed.uid = answer.UID
	}
	if r.verb != http.MethodGet || code != http.StatusOK {
		return
	}
	foo, deployment := &v1alpha1.Foo{}, &appsv1.Deployment{}
	switch r.resource {
	case foos:
		if json.Unmarshal(body, foo) == nil {
			r.readFoo = foo
		}
	case deployments:
		if _, _, err := scheme.Codecs.UniversalDeserializer().Decode(body, nil, deployment); err == nil {
			r.readDeployment = deployment
		}
	}
}

// parseRevision returns a resource version as a number, 0 if it is empty.
func parseRevision(resourceVersion string) int64 {
	n, err := strconv.ParseInt(resourceVersion, 10, 64)
	if err != nil {
		return 0
	}
	return n
}

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
	answer, err := p.forward(incoming, body)
	p.mu.Lock()
	request.answered = time.Now()
	request.lost = err != nil || answer.code >= http.StatusInternalServerError
	if err == nil {
		request.recordAnswer(answer.code, answer.body)
	}
	p.mu.Unlock()
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	for name, values := range answer.header {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(answer.code)
	// The test may have killed the client.
	_, _ = w.Write(answer.body)
}

// answer is a complete answer of the API server.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// forward sends the request to the API server. It does not cancel the request when the
// client dies: the API server may have applied it, and the test must know.
func (p *recordingProxy) forward(incoming *http.Request, body []byte) (*answer, error) {
	out := p.toAPIServer(incoming.Clone(context.WithoutCancel(incoming.Context())))
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	response, err := p.transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the response: %w", err)
	}
	return &answer{response.StatusCode, response.Header, data}, nil
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
