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
	"encoding/json"
	"io"
	"net/http"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/watch"
)

// fault is one way in which a request, the process that sent it, or a watch can fail.
type fault struct {
	name string
	// code and reason are what is answered in place of the API server.
	code   int
	reason metav1.StatusReason
	// kills kills the process, before the API server gets the request or, if executes is set, before the
	// process gets the answer. With executes alone only the answer is lost.
	kills, executes bool
	// hangs gives no answer for wait. takesLease gives the lease to another process, and answers this and the
	// following writes with 500 for as long as the lease lasts. replaces makes a user delete and create the object
	// that the request deletes, just before it does.
	hangs, takesLease, replaces bool
	// rare is injected once into each class of request, also if not only a part is.
	rare bool
	// The others are about watches: the events of one resource after the operation began. wait is how late each
	// event is or, with once, the first one, and those after it until then. cuts is how many events are cut in
	// their middle. expires ends the watch with 410, after wait: as the next answer or, with inStream, as an event.
	// cutsList also cuts the list after it.
	wait              time.Duration
	once              bool
	cuts              int
	expires, inStream bool
	cutsList          bool
}

func requestFaults() []*fault {
	return []*fault{
		{name: "crash-before", kills: true},
		{name: "crash-after", kills: true, executes: true},
		{name: "answer-lost", executes: true},
		{name: "409", code: http.StatusConflict, reason: metav1.StatusReasonConflict},
		{name: "429", code: http.StatusTooManyRequests, reason: metav1.StatusReasonTooManyRequests},
		{name: "500", code: http.StatusInternalServerError, reason: metav1.StatusReasonInternalError},
		{name: "403", code: http.StatusForbidden, reason: metav1.StatusReasonForbidden},
		{name: "hang-60s", hangs: true, wait: time.Minute, rare: true},
		{name: "lease-taken", takesLease: true, rare: true},
		{name: "replaced", replaces: true, executes: true},
	}
}

// longHold is longer than the 30 seconds for which a controller may wait for a watch.
const longHold = 33 * time.Second

func watchFaults() []*fault {
	return []*fault{
		{name: "late-0.3s", wait: 300 * time.Millisecond},
		{name: "late-1.5s", wait: 1500 * time.Millisecond},
		{name: "held-4s", wait: 4 * time.Second, once: true},
		{name: "held-33s", wait: longHold, once: true},
		{name: "cut", cuts: 3},
		{name: "410-answer", expires: true},
		{name: "410-event", expires: true, inStream: true},
		{name: "skipped-4s", wait: 4 * time.Second, once: true, expires: true, inStream: true},
		{name: "cut-list", expires: true, inStream: true, cutsList: true},
	}
}

func (f *fault) isOfWatch() bool { return f.wait > 0 && !f.hangs || f.cuts > 0 || f.expires }

// appliesTo reports whether a correct API server can answer the request so. Without a precondition it has no
// reason for a conflict, except of a patch, which it retries five times on its own.
func (f *fault) appliesTo(r *request) bool {
	switch {
	case f.replaces:
		return r.verb == http.MethodDelete && r.name != ""
	case f.takesLease:
		return r.isWrite()
	case f.code == http.StatusConflict:
		return r.verb == http.MethodPatch || r.conditional
	case !r.isWrite():
		return !f.kills || !f.executes
	}
	return true
}

// respond answers in place of the API server.
func respond(w http.ResponseWriter, code int, reason metav1.StatusReason, message string) {
	if code == http.StatusTooManyRequests {
		w.Header().Set("Retry-After", "1")
	}
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(code)
	// The client may be gone.
	_, _ = w.Write(newStatus(code, reason, message))
}

func newStatus(code int, reason metav1.StatusReason, message string) []byte {
	return mustEncode(&metav1.Status{
		TypeMeta: metav1.TypeMeta{APIVersion: "v1", Kind: "Status"},
		Status:   metav1.StatusFailure, Code: int32(code), Reason: reason, Message: message,
	})
}

func mustEncode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(err)
	}
	return data
}

// watchEvent is a watch event on the wire.
type watchEvent struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`

	receivedAt time.Time
}

// watchStream is one connection of a watch.
type watchStream struct {
	proxy    *proxy
	resource string
	writer   http.ResponseWriter
	events   chan watchEvent
	// inInitialList is set until the bookmark after the initial list.
	inInitialList bool
}

func watchClass(resource string) string { return "WATCH " + resource }

func (p *proxy) serveWatch(w http.ResponseWriter, incoming *http.Request, resource string) {
	listing := incoming.URL.Query().Get("sendInitialEvents") == "true"
	if !listing && p.takeExpired(resource) {
		respond(w, http.StatusGone, metav1.StatusReasonExpired, "injected by check")
		return
	}
	out := p.toAPIServer(incoming.Clone(incoming.Context()))
	asJSON(out.Header)
	response, err := p.cluster.transport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	defer response.Body.Close()
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	if response.StatusCode != http.StatusOK {
		// The client may be gone.
		_, _ = io.Copy(w, response.Body)
		return
	}
	p.mu.Lock()
	p.watched[resource] = true
	p.mu.Unlock()
	s := &watchStream{p, resource, w, make(chan watchEvent, 1000), listing}
	s.write(nil)
	go s.read(incoming.Context(), json.NewDecoder(response.Body))
	for e := range s.events {
		if !s.handle(incoming.Context(), &e) {
			return
		}
	}
}

// takeExpired reports whether the watch is to be answered with 410.
func (p *proxy) takeExpired(resource string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	expired := p.expireNext && p.target.class == watchClass(resource)
	p.expireNext = p.expireNext && !expired
	return expired
}

// read receives events and notes the time, even while earlier events are held.
func (s *watchStream) read(ctx context.Context, from *json.Decoder) {
	defer close(s.events)
	for {
		var e watchEvent
		if from.Decode(&e) != nil {
			return
		}
		e.receivedAt = s.proxy.cluster.clock.Now()
		select {
		case s.events <- e:
		case <-ctx.Done():
			return
		}
	}
}

// due returns the fault to inject into an event of this watch, or nil, and counts it.
func (s *watchStream) due() *fault {
	p := s.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	f := p.fault
	if !p.armed || f == nil || p.target.class != watchClass(s.resource) || p.injected && (f.once || f.expires) || f.cuts > 0 && p.cuts == f.cuts {
		return nil
	}
	p.injected = true
	p.cuts++
	p.expireNext, p.cutNext = f.expires && !f.inStream, f.cutsList
	return f
}

// handle delivers an event or injects the fault. It reports whether the watch continues.
func (s *watchStream) handle(ctx context.Context, e *watchEvent) bool {
	object := &unstructured.Unstructured{}
	if e.Type == watch.Error || object.UnmarshalJSON(e.Object) != nil {
		s.write(mustEncode(e))
		return true
	}
	if s.inInitialList && e.Type != watch.Bookmark && s.proxy.takeListCut(s.resource) {
		s.cut(e)
	}
	if !s.inInitialList && e.Type != watch.Bookmark && !s.inject(ctx, e) {
		return false
	}
	if ctx.Err() != nil {
		return false
	}
	if e.Type == watch.Bookmark {
		s.inInitialList = s.inInitialList && object.GetAnnotations()[metav1.InitialEventsAnnotationKey] != "true"
	} else {
		s.proxy.show(s.resource, object)
	}
	s.write(mustEncode(e))
	return true
}

// inject injects the fault that is due, and reports whether the watch continues with the event.
func (s *watchStream) inject(ctx context.Context, e *watchEvent) bool {
	pause(ctx, s.proxy.delay(true))
	f := s.due()
	if f == nil {
		return true
	}
	if f.wait > 0 {
		s.proxy.holding.Add(1)
		pause(ctx, e.receivedAt.Add(f.wait).Sub(s.proxy.cluster.clock.Now()))
		s.proxy.holding.Add(-1)
	}
	if f.cuts > 0 {
		s.cut(e)
	}
	if f.inStream {
		s.write(mustEncode(&watchEvent{Type: watch.Error, Object: newStatus(http.StatusGone, metav1.StatusReasonExpired, "injected by check")}))
	}
	return !f.expires
}

// cut breaks the connection in the middle of the event.
func (s *watchStream) cut(e *watchEvent) {
	data := mustEncode(e)
	s.write(data[:len(data)/2])
	panic(http.ErrAbortHandler)
}

// takeListCut reports whether the list is to be cut.
func (p *proxy) takeListCut(resource string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	cut := p.cutNext && p.target.class == watchClass(resource)
	p.cutNext = p.cutNext && !cut
	return cut
}

// write sends data to the client, which may be gone.
func (s *watchStream) write(data []byte) {
	_, _ = s.writer.Write(data)
	_ = http.NewResponseController(s.writer).Flush()
}
