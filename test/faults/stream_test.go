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
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"sync"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// The types of watch events.
const (
	added    = "ADDED"
	modified = "MODIFIED"
	deleted  = "DELETED"
	bookmark = "BOOKMARK"
)

// event is one event of a watch.
type event struct {
	kind    string
	object  json.RawMessage
	meta    metav1.PartialObjectMetadata
	arrived time.Time
}

// frame is an event as it is sent.
type frame struct {
	Type   string          `json:"type"`
	Object json.RawMessage `json:"object"`
}

// endsList reports whether the event says that all objects there were at the
// beginning have been told.
func (e *event) endsList() bool {
	return e.kind == bookmark && e.meta.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// asBookmark returns a bookmark of the event's version.
func (e *event) asBookmark() event {
	meta := metav1.PartialObjectMetadata{TypeMeta: e.meta.TypeMeta}
	meta.ResourceVersion = e.meta.ResourceVersion
	return event{kind: bookmark, meta: meta, object: mustEncode(meta)}
}

// at returns the event with another version.
func (e *event) at(resourceVersion string) event {
	var object map[string]any
	if err := json.Unmarshal(e.object, &object); err != nil {
		panic(fmt.Sprintf("decoding what was decoded before: %v", err))
	}
	other := *e
	other.meta.ResourceVersion = resourceVersion
	if meta, ok := object["metadata"].(map[string]any); ok {
		meta["resourceVersion"] = resourceVersion
	}
	other.object = mustEncode(object)
	return other
}

func mustEncode(value any) []byte {
	data, err := json.Marshal(value)
	if err != nil {
		panic(fmt.Sprintf("encoding %T: %v", value, err))
	}
	return data
}

// streamKey names one of the controllers' watches, which goes on over several
// connections.
type streamKey struct {
	resource string
	second   bool
}

// watches is what the proxy knows of the controllers' watches.
type watches struct {
	fault *watchFault
	roles map[string]role

	mu sync.Mutex
	// begun says that the fault has begun, calm is closed when it is over.
	begun bool
	calm  chan struct{}
	// strikes counts how often it has struck, windows how often on each watch.
	strikes int
	windows map[streamKey]int
	// refuse are the watches to be answered with 410, cut the lists to be cut.
	refuse, cut map[streamKey]bool
}

func newWatches(k *kind, fault *watchFault) *watches {
	return &watches{fault: fault, roles: k.roles, calm: make(chan struct{}), windows: map[streamKey]int{}, refuse: map[streamKey]bool{}, cut: map[streamKey]bool{}}
}

func (w *watches) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.begun = true
}

// end ends the fault: what is held back is delivered.
func (w *watches) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.begun {
		w.begun = false
		close(w.calm)
	}
}

// struck returns how often the fault has struck. That of two controllers strikes
// by itself.
func (w *watches) struck() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault != nil && w.fault.two && w.fault.late+w.fault.hold == 0 {
		return 1
	}
	return w.strikes
}

// strike reports whether the fault strikes an event of that watch, and counts.
func (w *watches) strike(key streamKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.fault
	if !w.begun || f == nil || !f.concerns(w.roles[key.resource], key.second) || f.windows > 0 && w.windows[key] >= f.windows {
		return false
	}
	w.strikes++
	w.windows[key]++
	return true
}

func (w *watches) refuseNext(key streamKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.refuse[key] = true
}

func (w *watches) cutNext(key streamKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.cut[key] = true
}

// take reports whether the set has the key, and removes it.
func (w *watches) take(set map[streamKey]bool, key streamKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	had := set[key]
	delete(set, key)
	return had
}

// stream is one connection of a watch.
type stream struct {
	proxy *proxy
	key   streamKey
	fault *watchFault
	// events come from the API server.
	events chan event
	w      http.ResponseWriter
	// listing says that objects are told which there were at the beginning.
	listing bool
	// last is the last event that was delivered, delivered how many were besides
	// those.
	last      *event
	delivered int
}

// serveStream serves a watch event by event.
func (p *proxy) serveStream(w http.ResponseWriter, incoming *http.Request, key streamKey) {
	listing := incoming.URL.Query().Get("sendInitialEvents") == "true"
	if !listing && p.watches.take(p.watches.refuse, key) {
		refusal(http.StatusGone, metav1.StatusReasonExpired)(w)
		return
	}
	response := openWatch(shared.transport, w, incoming)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		_, _ = io.Copy(w, response.Body)
		return
	}
	s := &stream{proxy: p, key: key, fault: p.watches.fault, events: make(chan event, 1000), w: w, listing: listing}
	s.flush()
	go s.read(incoming.Context(), json.NewDecoder(response.Body))
	s.serve(incoming.Context())
}

// openWatch asks the API server for the watch, in JSON, and begins the answer.
func openWatch(transport http.RoundTripper, w http.ResponseWriter, incoming *http.Request) *http.Response {
	out := incoming.Clone(incoming.Context())
	out.RequestURI, out.Host = "", ""
	out.URL.Scheme, out.URL.Host = shared.server.Scheme, shared.server.Host
	out.Header.Set("Accept", "application/json")
	out.Header.Del("Accept-Encoding")
	response, err := transport.RoundTrip(out)
	if err != nil {
		panic(http.ErrAbortHandler)
	}
	w.Header().Set("Content-Type", response.Header.Get("Content-Type"))
	w.WriteHeader(response.StatusCode)
	return response
}

// read notes when each event comes, however long the ones before it are held.
func (s *stream) read(ctx context.Context, from *json.Decoder) {
	defer close(s.events)
	for {
		var f frame
		if err := from.Decode(&f); err != nil {
			return
		}
		e := event{kind: f.Type, object: f.Object, arrived: time.Now()}
		if err := json.Unmarshal(f.Object, &e.meta); err != nil {
			return
		}
		select {
		case s.events <- e:
		case <-ctx.Done():
			return
		}
	}
}

// serve delivers events until the watch ends.
func (s *stream) serve(ctx context.Context) {
	for {
		select {
		case e, ok := <-s.events:
			if !ok || !s.handle(ctx, e) {
				return
			}
		case <-ctx.Done():
			return
		}
	}
}

// handle delivers an event, or lets the fault strike. It reports whether the
// watch goes on.
func (s *stream) handle(ctx context.Context, e event) bool {
	watches := s.proxy.watches
	if s.listing && e.endsList() && watches.take(watches.cut, s.key) {
		s.cut(e)
	}
	if s.listing || e.kind == bookmark || s.fault.cutAfter > s.delivered {
		s.listing = s.listing && !e.endsList()
		s.deliver(e)
		return true
	}
	if !watches.strike(s.key) {
		s.deliver(e)
		return true
	}
	switch {
	case s.fault.cutAfter > 0:
		s.cut(e)
	case s.fault.late > 0:
		s.pause(ctx, time.Until(e.arrived.Add(s.fault.late)))
		s.deliver(e)
	default:
		return s.release(s.holdBack(ctx, e))
	}
	return true
}

// release does with the events held back what the fault says.
func (s *stream) release(held []event) bool {
	if s.fault.release != nil {
		if s.fault.cutList {
			s.proxy.watches.cutNext(s.key)
		}
		return s.fault.release(s, held)
	}
	for _, e := range held {
		s.deliver(e)
	}
	return true
}

// pause is a fault, not a wait.
func (s *stream) pause(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.proxy.watches.calm:
	case <-ctx.Done():
	}
}

// holdBack returns all events of the time for which the fault holds them back.
func (s *stream) holdBack(ctx context.Context, first event) []event {
	held := []event{first}
	over := time.NewTimer(s.fault.hold)
	defer over.Stop()
	ticker := time.NewTicker(beat)
	defer ticker.Stop()
	for {
		select {
		case e, ok := <-s.events:
			if !ok {
				return held
			}
			held = append(held, e)
		case <-ticker.C:
			if s.fault.bookmarks && s.last != nil {
				s.deliver(s.last.asBookmark())
			}
		case <-over.C:
			return held
		case <-s.proxy.watches.calm:
			return held
		case <-ctx.Done():
			return held
		}
	}
}

func (s *stream) deliver(e event) {
	s.last = &e
	if e.kind != bookmark && !s.listing {
		s.delivered++
	}
	s.write(mustEncode(frame{e.kind, e.object}))
}

// cut sends half of the event and ends the connection.
func (s *stream) cut(e event) {
	data := mustEncode(frame{e.kind, e.object})
	s.write(data[:len(data)/2])
	panic(http.ErrAbortHandler)
}

// fail says that the watch's version is too old.
func (s *stream) fail() {
	s.write(mustEncode(frame{"ERROR", mustEncode(statusOf(http.StatusGone, metav1.StatusReasonExpired))}))
}

func (s *stream) write(data []byte) {
	// The client may be gone, which is no matter.
	_, _ = s.w.Write(data)
	s.flush()
}

func (s *stream) flush() {
	_ = http.NewResponseController(s.w).Flush()
}
