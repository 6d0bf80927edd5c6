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
	"context"
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

	"example.com/sample-controller/test/check/trace"
)

// proxy is between the controller of one run and the API server. It confines the controller to the namespace of the
// run, records its requests, and injects one fault.
type proxy struct {
	*trace.Upstream

	run       *run
	namespace string
	server    *httptest.Server
	// holding is how many requests and events are held back: a run is not at rest before the process has them.
	holding atomic.Int32

	mu       sync.Mutex
	requests []*trace.Request
	findings []finding
	// jitter, if not nil, delays each request and event.
	jitter *rand.Rand
	// armed is set while the operation of the scenario runs. From then on counts has the number of requests by class, and
	// points lists all in order.
	armed    bool
	counts   map[string]int
	points   []recordedPoint
	aliases  *aliases
	fault    *fault
	target   point
	injected bool
	// shown has the UID that the process last got of each object.
	shown map[string]string
	// heldUntil is when something was last held back.
	heldUntil time.Time
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

	request *trace.Request
}

func newProxy(r *run, jitter *rand.Rand) *proxy {
	p := &proxy{Upstream: &r.check.cluster.Upstream, run: r, namespace: r.namespace, jitter: jitter}
	p.counts, p.aliases = map[string]int{}, newAliases(r.namespace, nil)
	p.forget()
	p.server = trace.NewServer(p)
	p.server.StartTLS()
	return p
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, incoming *http.Request) {
	// The upstream has its own credentials. Without any, kubectl would ask for them.
	incoming.Header.Del("Authorization")
	to, ok := trace.ParsePath(incoming.URL.Path)
	isRead, query := incoming.Method == http.MethodGet, incoming.URL.Query()
	isCache := ok && isRead && to.Name == ""
	if isCache && to.Namespace == "" && p.run.check.cluster.namespaced[to.GroupResource()] {
		to.Namespace = p.namespace
		incoming.URL.Path, incoming.URL.RawPath = to.Path(), ""
	}
	isOurs := to.Namespace == p.namespace && to.Resource != "events" && to.Resource != "leases"
	switch {
	case isCache && (query.Get("watch") == "true" || query.Get("watch") == "1"):
		p.serveWatch(w, incoming, to.Resource)
	case isCache:
		p.serveList(w, incoming, to)
	case ok && !isRead && to.Namespace != p.namespace && !strings.HasSuffix(to.Resource, "reviews"):
		message := incoming.Method + " " + to.Path() + ": a write outside the namespace of the run"
		p.find("isolation", message)
		trace.Respond(w, http.StatusForbidden, metav1.StatusReasonForbidden, message)
	case ok && isOurs:
		p.serveRequest(w, incoming, to)
	default:
		_, body := trace.ReadRequest(incoming, to)
		p.Forward(incoming, body).Write(w)
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

func (p *proxy) serveList(w http.ResponseWriter, incoming *http.Request, to trace.Target) {
	trace.AsJSON(incoming.Header)
	response, list := p.Forward(incoming, nil), &unstructured.UnstructuredList{}
	if response != nil && response.Code == http.StatusOK && list.UnmarshalJSON(response.Body) == nil {
		for i := range list.Items {
			p.show(to.Resource, &list.Items[i])
		}
		if len(list.Items) > 0 && p.take(&p.cutNext, to.Resource) {
			response.Body = response.Body[:len(response.Body)/2]
			response.Write(w)
			panic(http.ErrAbortHandler)
		}
	}
	response.Write(w)
}

// show notes that the process gets the object.
func (p *proxy) show(resource string, object *unstructured.Unstructured) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.shown[resource+"/"+object.GetName()] = string(object.GetUID())
}

// serveRequest records a request and injects the fault that is due.
func (p *proxy) serveRequest(w http.ResponseWriter, incoming *http.Request, to trace.Target) {
	r, body := trace.ReadRequest(incoming, to)
	ctx := incoming.Context()
	trace.Pause(ctx, p.delay(false))
	if p.writesWithoutLease(ctx, r) {
		trace.Respond(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "injected by check")
		return
	}
	f := p.record(r)
	switch {
	case f == nil:
	case f.replaces:
		p.run.recreate(ctx, r)
	case f.executes:
	case f.hangs:
		p.hold(ctx, f.wait)
		panic(http.ErrAbortHandler)
	case f.takesLease:
		p.lose(p.run.takeLease(ctx))
		trace.Respond(w, http.StatusInternalServerError, metav1.StatusReasonInternalError, "injected by check")
		return
	case f.kills:
		p.crash(ctx)
		panic(http.ErrAbortHandler)
	default:
		trace.Respond(w, f.code, f.reason, "injected by check")
		return
	}
	if f != nil && !f.kills && !f.replaces {
		p.lag()
	}
	response := p.Forward(incoming, body)
	p.answered(r, response)
	if f != nil && !f.replaces {
		if f.kills {
			p.crash(ctx)
		}
		panic(http.ErrAbortHandler)
	}
	response.Write(w)
}

// crash kills the process and starts it again.
func (p *proxy) crash(ctx context.Context) { p.run.restart(context.WithoutCancel(ctx), func() {}) }

// lose notes that another process has the lease for so long.
func (p *proxy) lose(lease time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lostUntil = trace.Now().Add(lease)
}

// lost returns until when the lease lasts that the process has lost, the zero time if it has lost none.
func (p *proxy) lost() time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.lostUntil
}

// writesWithoutLease reports whether another process has the lease. For the duration of the lease the process may not
// have learned that.
func (p *proxy) writesWithoutLease(ctx context.Context, r *trace.Request) bool {
	until := p.lost()
	if until.IsZero() || !r.IsWrite() || !p.run.leaseTaken(ctx) {
		return false
	}
	if trace.Now().After(until) {
		p.find("lease", r.Class(newAliases(p.namespace, nil).of)+": another process has had the lease for its duration")
	}
	return true
}

// record records the request and returns the fault to inject into it, or nil.
func (p *proxy) record(r *trace.Request) *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	r.At = trace.Now()
	r.Shown = p.shown[r.Resource+"/"+r.Name]
	p.requests = append(p.requests, r)
	if !p.armed {
		return nil
	}
	f := p.count(r.Class(p.aliases.of), r)
	if f != nil {
		r.Fault = f.name
	}
	return f
}

// count counts a point and returns the fault to inject there, or nil. The caller holds the lock.
func (p *proxy) count(class string, r *trace.Request) *fault {
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
func (p *proxy) answered(r *trace.Request, response *trace.Response) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if object := r.Answered(response); object != nil && object.GetKind() != "Status" {
		p.shown[r.Resource+"/"+r.Made] = string(object.GetUID())
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

// miss notes that the fault found no occasion after all.
func (p *proxy) miss() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.injected = false
}

// recorded returns a copy of the requests from that index on.
func (p *proxy) recorded(from int) []trace.Request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var copies []trace.Request
	for _, r := range p.requests[from:] {
		copies = append(copies, *r)
	}
	return copies
}

// hold holds a request or an event back.
func (p *proxy) hold(ctx context.Context, wait time.Duration) {
	p.holding.Add(1)
	defer p.holding.Add(-1)
	trace.Pause(ctx, wait)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.heldUntil = trace.Now()
}

// wroteAfter returns when the process last wrote, or something was last held back, if that is later.
func (p *proxy) wroteAfter(since time.Time) time.Time {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.heldUntil.After(since) {
		since = p.heldUntil
	}
	for _, r := range slices.Backward(p.requests) {
		if r.IsWrite() && r.At.After(since) {
			return r.At
		}
	}
	return since
}

// lag delays all watches a little: a client whose answer was lost shall not learn of its write at once.
func (p *proxy) lag() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lagsUntil = trace.Now().Add(time.Second)
}

// delay returns by how much a request or an event is delayed at random, or until the lag is over.
func (p *proxy) delay(isEvent bool) time.Duration {
	p.mu.Lock()
	defer p.mu.Unlock()
	switch {
	case isEvent && p.fault != nil:
		return p.lagsUntil.Sub(trace.Now())
	case p.jitter != nil:
		return time.Duration(p.jitter.Int64N(int64(100 * time.Millisecond)))
	}
	return 0
}
