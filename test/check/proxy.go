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

package main

import (
	"bytes"
	"context"
	"encoding/pem"
	"io"
	"log"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"

	"example.com/sample-controller/test/kinds"
)

// proxy is between the controller of one run and the API server. It confines the controller to the namespace
// of the run, records its requests, and injects one fault.
type proxy struct {
	cluster   *cluster
	namespace string
	server    *httptest.Server
	// crash kills the process and starts it again. takeLease gives the lease to another process and returns how long
	// it lasts, and leaseTaken reports whether that one has it. recreate replaces the object of a request.
	crash      func()
	takeLease  func() time.Duration
	leaseTaken func() bool
	recreate   func(*request)
	// holding is how many watches hold events back: a run is not at rest before these are delivered.
	holding atomic.Int32

	mu       sync.Mutex
	requests []*request
	findings []finding
	// jitter, if not nil, delays each request and event.
	jitter *rand.Rand
	// armed is set while the operation of the scenario runs. From then on counts has the number of requests by
	// class, and points lists all in order.
	armed    bool
	counts   map[string]int
	points   []recordedPoint
	aliases  *aliases
	fault    *fault
	target   point
	injected bool
	// shown has the UID that the process last got of each object.
	shown map[string]string
	// lagsUntil is until when no watch sends an event.
	lagsUntil time.Time
	// expireNext is set if the next watch of the target is answered with 410, and cuts counts cut events.
	expireNext bool
	cuts       int
	// cutNext is set if the next list of the target is cut.
	cutNext bool
	// lostUntil is until when the lease lasts that another process took.
	lostUntil time.Time
	// watched has the resources of which the process watches objects.
	watched map[string]bool
}

// recordedPoint is a point and the request there, nil for a step of the user.
type recordedPoint struct {
	point

	request *request
}

func newProxy(c *cluster, namespace string) *proxy {
	p := &proxy{cluster: c, namespace: namespace, counts: map[string]int{}, aliases: newAliases(namespace, nil)}
	p.forget()
	p.server = httptest.NewUnstartedServer(p)
	// It would report each connection of a killed client.
	p.server.Config.ErrorLog = log.New(io.Discard, "", 0)
	p.server.EnableHTTP2 = true
	p.server.StartTLS()
	return p
}

// ca returns the certificate of the proxy.
func (p *proxy) ca() []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: p.server.Certificate().Raw})
}

func (p *proxy) close() {
	p.server.CloseClientConnections()
	p.server.Close()
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, incoming *http.Request) {
	to, ok := parsePath(incoming.URL.Path)
	isRead, query := incoming.Method == http.MethodGet, incoming.URL.Query()
	isCache := ok && isRead && to.name == ""
	if isCache && to.namespace == "" && p.cluster.namespaced[to.GroupResource()] {
		to.namespace = p.namespace
		incoming.URL.Path, incoming.URL.RawPath = to.path(), ""
	}
	isOurs := to.namespace == p.namespace && to.Resource != "events" && to.Resource != "leases"
	switch {
	case isCache && (query.Get("watch") == "true" || query.Get("watch") == "1"):
		p.serveWatch(w, incoming, to.Resource)
	case isCache:
		p.serveList(w, incoming, to)
	case ok && !isRead && to.namespace != p.namespace && !strings.HasSuffix(to.Resource, "reviews"):
		message := incoming.Method + " " + to.path() + ": a write outside the namespace of the run"
		p.find("isolation", message)
		respond(w, http.StatusForbidden, metav1.StatusReasonForbidden, message)
	case ok && isOurs:
		p.serveRequest(w, incoming, to)
	default:
		p.forward(incoming, incoming.Body).write(w)
	}
}

func (p *proxy) find(judge, message string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.findings = append(p.findings, finding{Judge: judge, Message: message})
}

// found returns the findings so far.
func (p *proxy) found() []finding {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Clone(p.findings)
}

func (p *proxy) serveList(w http.ResponseWriter, incoming *http.Request, to target) {
	asJSON(incoming.Header)
	response, list := p.forward(incoming, incoming.Body), &unstructured.UnstructuredList{}
	if response.code == http.StatusOK && list.UnmarshalJSON(response.body) == nil {
		for i := range list.Items {
			p.show(to.Resource, &list.Items[i])
		}
		if len(list.Items) > 0 && p.takeListCut(to.Resource) {
			response.body = response.body[:len(response.body)/2]
			response.write(w)
			panic(http.ErrAbortHandler)
		}
	}
	response.write(w)
}

// show notes that the process gets the object.
func (p *proxy) show(resource string, object *unstructured.Unstructured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown[resource+"/"+object.GetName()] = string(object.GetUID())
}

// serveRequest records a request and injects the fault that is due.
func (p *proxy) serveRequest(w http.ResponseWriter, incoming *http.Request, to target) {
	body, err := io.ReadAll(incoming.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	pause(incoming.Context(), p.delay(false))
	r := newRequest(incoming.Method, incoming.Header.Get("Content-Type"), to, body)
	if incoming.URL.Query().Has("dryRun") {
		r.verb = http.MethodGet
	}
	if p.writesWithoutLease(r) {
		respond(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "injected by check")
		return
	}
	f := p.record(r)
	switch {
	case f == nil:
	case f.replaces:
		p.recreate(r)
	case f.executes:
	case f.hangs:
		p.holding.Add(1)
		pause(incoming.Context(), f.wait)
		p.holding.Add(-1)
		panic(http.ErrAbortHandler)
	case f.takesLease:
		p.lose(p.takeLease())
		respond(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "injected by check")
		return
	case f.kills:
		p.crash()
		panic(http.ErrAbortHandler)
	default:
		respond(w, f.code, f.reason, "injected by check")
		return
	}
	if f != nil && !f.kills && !f.replaces {
		p.lag()
	}
	response := p.forward(incoming, bytes.NewReader(body))
	p.answered(r, response)
	if f != nil && !f.replaces {
		if f.kills {
			p.crash()
		}
		panic(http.ErrAbortHandler)
	}
	response.write(w)
}

// lose notes that another process has the lease for so long.
func (p *proxy) lose(lease time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lostUntil = p.cluster.clock.Now().Add(lease)
}

// lost returns until when the lease lasts that the process has lost, the zero time if it has lost none.
func (p *proxy) lost() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lostUntil
}

// writesWithoutLease reports whether another process has the lease. For the duration of the lease the process may
// not have learned that.
func (p *proxy) writesWithoutLease(r *request) bool {
	until := p.lost()
	if until.IsZero() || !r.isWrite() || !p.leaseTaken() {
		return false
	}
	if p.cluster.clock.Now().After(until) {
		p.find("lease", r.class(newAliases(p.namespace, nil).of)+": another process has had the lease for its duration")
	}
	return true
}

// record records the request and returns the fault to inject into it, or nil.
func (p *proxy) record(r *request) *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.at = p.cluster.clock.Now()
	r.shown = p.shown[r.Resource+"/"+r.name]
	p.requests = append(p.requests, r)
	if !p.armed {
		return nil
	}
	f := p.count(r.class(p.aliases.of), r)
	if f != nil {
		r.fault = f.name
	}
	return f
}

// count counts a point and returns the fault to inject there, or nil. The caller holds the lock.
func (p *proxy) count(class string, r *request) *fault {
	p.counts[class]++
	here := point{class, p.counts[class]}
	p.points = append(p.points, recordedPoint{here, r})
	if p.fault == nil || p.fault.isOfWatch() || p.injected || here != p.target {
		return nil
	}
	p.injected = true
	return p.fault
}

// answered records the answer of the API server.
func (p *proxy) answered(r *request, response *apiResponse) {
	object := decodeObject(response.body)
	p.mu.Lock()
	defer p.mu.Unlock()
	r.code = response.code
	if object == nil || !r.applied() && r.verb != http.MethodGet {
		return
	}
	uid := string(object.GetUID())
	if r.verb == http.MethodDelete {
		if object.GetKind() == "Status" {
			uid = kinds.Find("{.details.uid}", object.Object)
		}
		r.deletes = uid
		return
	}
	r.made, r.revision = object.GetName(), object.GetResourceVersion()
	if r.code == http.StatusOK || r.code == http.StatusCreated {
		p.shown[r.Resource+"/"+r.made] = uid
	}
}

// step counts a point where the process can be down while the user acts, and reports whether it is to be.
func (p *proxy) step(class string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.armed && p.count("user: "+class, nil) != nil
}

// forget is called between two processes.
func (p *proxy) forget() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown, p.watched, p.lostUntil = map[string]string{}, map[string]bool{}, time.Time{}
}

// arm begins the operation: from here on points are counted and the fault is injected.
func (p *proxy) arm(f *fault, at point) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.fault, p.target = true, f, at
}

// disarm ends the operation, and reports whether the fault was injected.
func (p *proxy) disarm() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed = false
	return p.injected && !p.expireNext && !p.cutNext
}

// recorded returns a copy of the requests from that index on.
func (p *proxy) recorded(from int) []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var copies []request
	for _, r := range p.requests[from:] {
		copies = append(copies, *r)
	}
	return copies
}

// wroteAfter returns when the process last wrote, if that is later.
func (p *proxy) wroteAfter(since time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range slices.Backward(p.requests) {
		if r.isWrite() && r.at.After(since) {
			return r.at
		}
	}
	return since
}

// lag delays all watches a little: a client whose answer was lost shall not learn of its write at once.
func (p *proxy) lag() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lagsUntil = p.cluster.clock.Now().Add(time.Second)
}

// delay returns by how much a request or an event is delayed at random, or until the lag is over.
func (p *proxy) delay(isEvent bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case isEvent && p.fault != nil:
		return p.lagsUntil.Sub(p.cluster.clock.Now())
	case p.jitter != nil:
		return time.Duration(p.jitter.Int64N(int64(100 * time.Millisecond)))
	}
	return 0
}

// apiResponse is a complete response of the API server.
type apiResponse struct {
	code   int
	header http.Header
	body   []byte
}

func (a *apiResponse) write(w http.ResponseWriter) {
	for name, values := range a.header {
		if name != "Content-Length" {
			w.Header()[name] = values
		}
	}
	w.WriteHeader(a.code)
	// The client may be gone.
	_, _ = w.Write(a.body)
}

// forward sends the request to the API server. It does not cancel it when the client dies: the API server
// may have applied it, and the run must know.
func (p *proxy) forward(incoming *http.Request, body io.Reader) *apiResponse {
	out := p.toAPIServer(incoming.Clone(context.WithoutCancel(incoming.Context())))
	out.Body = io.NopCloser(body)
	response, err := p.cluster.transport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	return &apiResponse{response.StatusCode, response.Header, data}
}

// toAPIServer addresses the request. Without Accept-Encoding the transport asks for gzip and also decompresses.
func (p *proxy) toAPIServer(out *http.Request) *http.Request {
	out.RequestURI, out.Host = "", ""
	out.URL.Scheme, out.URL.Host = p.cluster.server.Scheme, p.cluster.server.Host
	out.Header.Del("Accept-Encoding")
	out.Header.Del("Authorization")
	return out
}

// asJSON makes the client accept JSON in place of what cannot be read here. The parameters as, g and v stay.
func asJSON(header http.Header) {
	accepted := strings.NewReplacer("application/vnd.kubernetes.protobuf", "application/json", "application/cbor", "application/json")
	header.Set("Accept", accepted.Replace(header.Get("Accept")))
}

// pause is for delays that are part of a fault, never for waiting.
func pause(ctx context.Context, duration time.Duration) {
	if duration <= 0 {
		return
	}
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}
