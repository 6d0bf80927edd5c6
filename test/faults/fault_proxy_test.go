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
	"fmt"
	"maps"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"slices"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// faultProxy is the proxy between the controller of one run and the API server. It
// records the controller's requests, and injects a fault into one of them or into the
// watches.
type faultProxy struct {
	run *run
	// secondServer serves the second controller of the faults that start two.
	server, secondServer *httptest.Server
	watches              *watchState
	passthrough          *httputil.ReverseProxy
	// creations blocks POST requests.
	creations barrier

	mu sync.Mutex
	// armed is set when the scenario's operation begins. From then on counts has the
	// number of requests and steps by description, and points lists all in order.
	armed  bool
	counts map[string]int
	points []point
	// target is where to inject fault; injected is set once that happened.
	target   point
	fault    *fault
	injected bool
	// queued are faults for the next requests, whatever these are.
	queued []*fault
	// requests are all since the start of the run.
	requests []*request
	// aliases replace names of dependents that differ from run to run.
	aliases map[string]string
	// selectors are the label selectors of the controller's caches, by resource.
	selectors map[string]string
	// listsBefore has a list of each resource from before the operation. staleLists
	// are those that the next process still has to get: it receives the stale list
	// first, and then a watch that sends nothing for a while.
	listsBefore map[string][]byte
	staleLists  map[string][]byte
}

func newFaultProxy(r *run, fault *watchFault) *faultProxy {
	p := &faultProxy{
		run: r, watches: newWatchState(r.scenario.suite, fault), passthrough: newPassthrough(cluster.transport),
		counts: map[string]int{}, aliases: map[string]string{}, selectors: map[string]string{},
	}
	p.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, incoming *http.Request) { p.serve(w, incoming, false) }))
	p.secondServer = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, incoming *http.Request) { p.serve(w, incoming, true) }))
	return p
}

func (p *faultProxy) close() {
	for _, server := range []*httptest.Server{p.server, p.secondServer} {
		server.CloseClientConnections()
		server.Close()
	}
}

func (p *faultProxy) serve(w http.ResponseWriter, incoming *http.Request, second bool) {
	path, recorded := parsePath(incoming.URL.Path, p.run.namespace)
	switch {
	case !recorded:
		p.passthrough.ServeHTTP(w, incoming)
	case path.name == "" && incoming.Method == http.MethodGet:
		p.serveCache(w, incoming, watchKey{path.resource, second})
	default:
		p.serveRequest(w, incoming, path)
	}
}

// serveCache serves a list or a watch of the controller's caches.
func (p *faultProxy) serveCache(w http.ResponseWriter, incoming *http.Request, key watchKey) {
	watch := incoming.URL.Query().Get("watch") != ""
	p.mu.Lock()
	p.selectors[key.resource] = incoming.URL.Query().Get("labelSelector")
	list, isStale := p.staleLists[key.resource]
	if isStale && watch {
		delete(p.staleLists, key.resource)
	}
	p.mu.Unlock()

	switch {
	case isStale && !watch:
		w.Header().Set("Content-Type", "application/json")
		// The test may have killed the client.
		_, _ = w.Write(list)
		return
	case isStale:
		pause(incoming.Context(), staleFor)
		if incoming.Context().Err() != nil {
			return
		}
	}
	if watch && p.watches.fault != nil {
		p.serveStream(w, incoming, key)
		return
	}
	p.passthrough.ServeHTTP(w, incoming)
}

// serveRequest records a request and injects the fault that is due.
func (p *faultProxy) serveRequest(w http.ResponseWriter, incoming *http.Request, path resourcePath) {
	request, body := readRequest(p.run.t, incoming, path)
	if request.verb == http.MethodPost && request.isWrite() && p.creations.wait(incoming.Context()) && incoming.Context().Err() != nil {
		// The test killed the client.
		panic(http.ErrAbortHandler)
	}
	f := p.record(request)
	if f != nil && f.respond != nil {
		f.respond(w)
		return
	}

	response, err := forward(cluster.transport, incoming, body)
	if err != nil {
		p.run.t.Errorf("forwarding %s: %v", request, err)
		panic(http.ErrAbortHandler)
	}
	p.mu.Lock()
	response.recordIn(request)
	p.mu.Unlock()
	if f != nil {
		if f.kills {
			p.run.restart(f.staleRoles, nil)
		}
		panic(http.ErrAbortHandler)
	}
	response.write(w)
}

// record records the request and returns the fault to inject into it, or nil.
func (p *faultProxy) record(r *request) *fault {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.requests = append(p.requests, r)
	if isMarker(r.name) {
		return nil
	}
	if len(p.queued) > 0 {
		f := p.queued[0]
		p.queued = p.queued[1:]
		return f
	}
	if !p.armed {
		return nil
	}
	r.alias = p.aliasOf(r)
	return p.countPoint(r.String())
}

// aliasOf returns a stable name for a dependent whose name differs from run to run: the
// number of dependents requested so far. The caller holds the lock.
func (p *faultProxy) aliasOf(r *request) string {
	if !p.run.scenario.suite.namesVary || p.watches.roles[r.resource] != dependents {
		return ""
	}
	if p.aliases[r.name] == "" {
		p.aliases[r.name] = fmt.Sprintf("#%d", len(p.aliases)+1)
	}
	return p.aliases[r.name]
}

// countPoint counts a point and returns the fault to inject there, or nil. The caller
// holds the lock.
func (p *faultProxy) countPoint(description string) *fault {
	p.counts[description]++
	here := point{description, p.counts[description]}
	p.points = append(p.points, here)
	if p.fault == nil || p.injected || here != p.target {
		return nil
	}
	p.injected = true
	return p.fault
}

// faultInjected reports whether the fault was injected completely: each cache that is to
// be stale has listed and watched.
func (p *faultProxy) faultInjected() bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.injected && len(p.staleLists) == 0
}

// arm starts counting points and enables the fault of the watches. It also takes the
// lists that a stale cache will get, before the scenario's operation begins.
func (p *faultProxy) arm(ctx context.Context, target point, f *fault) error {
	before := map[string][]byte{}
	p.mu.Lock()
	selectors := maps.Clone(p.selectors)
	p.mu.Unlock()
	for resource := range p.watches.roles {
		list, err := p.run.client(resource).List(ctx, metav1.ListOptions{LabelSelector: selectors[resource]})
		if err != nil {
			return fmt.Errorf("listing %s: %w", resource, err)
		}
		if before[resource], err = list.MarshalJSON(); err != nil {
			return fmt.Errorf("encoding %s: %w", resource, err)
		}
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.armed, p.target, p.fault, p.listsBefore = true, target, f, before
	p.watches.begin()
	return nil
}

// serveStaleLists makes the caches of the next process stale.
func (p *faultProxy) serveStaleLists(of roles) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.staleLists = map[string][]byte{}
	for resource, role := range p.watches.roles {
		if slices.Contains(of, role) {
			p.staleLists[resource] = p.listsBefore[resource]
		}
	}
}

// recorded returns a copy of all requests so far.
func (p *faultProxy) recorded() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	return copyRequests(p.requests)
}
