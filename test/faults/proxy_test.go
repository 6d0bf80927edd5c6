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
	"fmt"
	"io"
	"log"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"sync"
	"time"
)

// proxy stands between one run's controller and the API server. It records what
// the controller asks for, and lets one of the requests fail, or its watches.
type proxy struct {
	run *run
	// server is the controller's, second that of another one at work by mistake.
	server, second *httptest.Server
	watches        *watches
	// through passes on what is not recorded: lists, watches, events, discovery.
	through *httputil.ReverseProxy

	mu sync.Mutex
	// armed says that the scenario's operation has begun; seen counts each
	// description since, points are all of them in order.
	armed  bool
	seen   map[string]int
	points []point
	// target is where strike is to happen; struck tells that it has.
	target point
	strike *fault
	struck bool
	// queued strike the next requests, whatever these are.
	queued []*fault
	// requests are all since the start.
	requests []*request
	holds    map[string]*hold
	// aliases are those of children by their names.
	aliases map[string]string
	// selectors are those of the controller's caches.
	selectors map[string]string
	// before is what each cache would hold had it stopped before the operation,
	// lagging what the present process is still to be shown of that: the list first,
	// and then a watch that is silent at first.
	before  map[string][]byte
	lagging map[string][]byte
}

// hold keeps a request back until it is released.
type hold struct {
	once              sync.Once
	arrived, released chan struct{}
}

func newProxy(r *run, fault *watchFault) *proxy {
	p := &proxy{run: r, watches: newWatches(r.scenario.kind, fault), seen: map[string]int{}, holds: map[string]*hold{}, aliases: map[string]string{}, selectors: map[string]string{}, before: map[string][]byte{}, lagging: map[string][]byte{}}
	p.through = newThrough(shared.transport)
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, incoming *http.Request) { p.serve(w, incoming, false) }))
	p.second = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, incoming *http.Request) { p.serve(w, incoming, true) }))
	return p
}

// newThrough returns what passes requests on as they are.
func newThrough(transport http.RoundTripper) *httputil.ReverseProxy {
	return &httputil.ReverseProxy{
		Rewrite:       func(out *httputil.ProxyRequest) { out.SetURL(shared.server) },
		Transport:     transport,
		FlushInterval: -1, // watches
		ErrorLog:      log.New(io.Discard, "", 0),
		// The client or the API server was killed, or the run is over.
		ErrorHandler: func(http.ResponseWriter, *http.Request, error) { panic(http.ErrAbortHandler) },
	}
}

func (p *proxy) close() {
	for _, server := range []*httptest.Server{p.server, p.second} {
		server.CloseClientConnections()
		server.Close()
	}
}

// serve serves a request of the first or the second controller.
func (p *proxy) serve(w http.ResponseWriter, incoming *http.Request, second bool) {
	to, ours := placeOf(incoming.URL.Path, p.run.namespace)
	switch {
	case !ours:
		p.through.ServeHTTP(w, incoming)
	case to.name == "" && incoming.Method == http.MethodGet:
		p.serveCache(w, incoming, streamKey{to.resource, second})
	default:
		p.serveRequest(w, incoming, to)
	}
}

// serveCache serves a list or a watch of the controller's caches.
func (p *proxy) serveCache(w http.ResponseWriter, incoming *http.Request, key streamKey) {
	watch := incoming.URL.Query().Get("watch") != ""
	p.mu.Lock()
	p.selectors[key.resource] = incoming.URL.Query().Get("labelSelector")
	list, lags := p.lagging[key.resource]
	if lags && watch {
		delete(p.lagging, key.resource)
	}
	p.mu.Unlock()

	if lags && !watch {
		w.Header().Set("Content-Type", "application/json")
		// The client may be gone, which is no matter.
		_, _ = w.Write(list)
		return
	}
	if lags {
		// This silence is the fault, not a wait.
		timer := time.NewTimer(stale)
		defer timer.Stop()
		select {
		case <-timer.C:
		case <-incoming.Context().Done():
			return
		}
	}
	if watch && p.watches.fault != nil {
		p.serveStream(w, incoming, key)
		return
	}
	p.through.ServeHTTP(w, incoming)
}

// serveRequest serves a request that is recorded and can fail.
func (p *proxy) serveRequest(w http.ResponseWriter, incoming *http.Request, to place) {
	body, err := io.ReadAll(incoming.Body)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	request, err := parse(incoming.Method, to, body)
	if err != nil {
		p.run.t.Errorf("%s %s: %v", incoming.Method, incoming.URL, err)
		panic(http.ErrAbortHandler)
	}
	p.waitForRelease(incoming.Context(), request)
	strike := p.note(request)
	if strike != nil && strike.refuse != nil {
		strike.refuse(w)
		return
	}

	answer, err := forward(shared.transport, incoming, body)
	if err != nil {
		p.run.t.Errorf("passing %s on: %v", request, err)
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	request.code, request.read = answer.code, foundFoo(request, answer)
	p.mu.Unlock()
	if strike != nil {
		if strike.kills {
			p.run.restart(strike.lag, nil)
		}
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

// note records the request and returns the fault that is to strike it, or nil.
func (p *proxy) note(request *request) *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, request)
	if isMarker(request.name) {
		return nil
	}
	if len(p.queued) > 0 {
		strike := p.queued[0]
		p.queued = p.queued[1:]
		return strike
	}
	if !p.armed {
		return nil
	}
	request.alias = p.aliasOf(request)
	return p.reach(request.String())
}

// aliasOf returns how a request for a child is known from one run to the next where
// its name is not: by how many others were asked for before. The caller holds the
// lock.
func (p *proxy) aliasOf(r *request) string {
	if !p.run.scenario.kind.numbered || p.watches.roles[r.resource] != children {
		return ""
	}
	if p.aliases[r.name] == "" {
		p.aliases[r.name] = fmt.Sprintf("#%d", len(p.aliases)+1)
	}
	return p.aliases[r.name]
}

// reach counts a point and returns the fault that is to strike there, or nil.
// The caller holds the lock.
func (p *proxy) reach(description string) *fault {
	p.seen[description]++
	here := point{description, p.seen[description]}
	p.points = append(p.points, here)
	if p.strike == nil || p.struck || here != p.target {
		return nil
	}
	p.struck = true
	return p.strike
}

// answer is all that the API server said to a request.
type answer struct {
	code   int
	header http.Header
	body   []byte
}

// reached reports whether the fault has struck, in full: each cache that was to
// lag has listed and watched.
func (p *proxy) reached() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.struck && len(p.lagging) == 0
}

// forward sends the request on, whatever becomes of its sender meanwhile.
func forward(transport http.RoundTripper, incoming *http.Request, body []byte) (*answer, error) {
	out := incoming.Clone(context.WithoutCancel(incoming.Context()))
	out.RequestURI, out.Host = "", ""
	out.URL.Scheme, out.URL.Host = shared.server.Scheme, shared.server.Host
	out.Body, out.ContentLength = io.NopCloser(bytes.NewReader(body)), int64(len(body))
	// The transport then asks for gzip and undoes it.
	out.Header.Del("Accept-Encoding")
	response, err := transport.RoundTrip(out)
	if err != nil {
		return nil, err
	}
	defer response.Body.Close()
	data, err := io.ReadAll(response.Body)
	if err != nil {
		return nil, fmt.Errorf("reading the answer: %w", err)
	}
	return &answer{response.StatusCode, response.Header, data}, nil
}

// arm begins the count of points and the fault of the watches. Before the
// operation begins it also takes down what a lagging cache will show.
func (p *proxy) arm(ctx context.Context, target point, strike *fault) error {
	before := map[string][]byte{}
	p.mu.Lock()
	selectors := maps.Clone(p.selectors)
	p.mu.Unlock()
	for resource := range p.watches.roles {
		list, err := shared.list(ctx, resource, p.run.namespace, selectors[resource])
		if err != nil {
			return fmt.Errorf("listing %s: %w", resource, err)
		}
		before[resource] = list
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.target, p.strike, p.before = true, target, strike, before
	p.watches.begin()
	return nil
}

// fallBehind makes the caches of the next process lag.
func (p *proxy) fallBehind(by roles) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.lagging = map[string][]byte{}
	for resource, role := range p.watches.roles {
		if slices.Contains(by, role) {
			p.lagging[resource] = p.before[resource]
		}
	}
}

// holdBack keeps requests of that verb for that resource back until release. arrived
// tells that one came.
func (p *proxy) holdBack(verb, resource string) (arrived <-chan struct{}, release func()) {
	p.mu.Lock()
	defer p.mu.Unlock()
	h := &hold{arrived: make(chan struct{}), released: make(chan struct{})}
	p.holds[verb+" "+resource] = h
	return h.arrived, sync.OnceFunc(func() { close(h.released) })
}

func (p *proxy) waitForRelease(ctx context.Context, request *request) {
	p.mu.Lock()
	h := p.holds[request.verb+" "+request.resource]
	p.mu.Unlock()
	if h == nil {
		return
	}
	h.once.Do(func() { close(h.arrived) })
	select {
	case <-h.released:
	case <-ctx.Done():
		// Its sender was killed.
		panic(http.ErrAbortHandler)
	}
}
