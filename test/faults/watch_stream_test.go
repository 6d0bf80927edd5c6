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
	"k8s.io/apimachinery/pkg/watch"
)

type watchEvent struct {
	eventType  watch.EventType
	object     json.RawMessage
	meta       metav1.PartialObjectMetadata
	receivedAt time.Time
}

// watchFrame is a watch event on the wire.
type watchFrame struct {
	Type   watch.EventType `json:"type"`
	Object json.RawMessage `json:"object"`
}

// endsInitialList reports whether the event is the bookmark after the initial list.
func (e *watchEvent) endsInitialList() bool {
	return e.eventType == watch.Bookmark && e.meta.Annotations[metav1.InitialEventsAnnotationKey] == "true"
}

// asBookmark returns a bookmark with the event's resource version.
func (e *watchEvent) asBookmark() watchEvent {
	meta := metav1.PartialObjectMetadata{TypeMeta: e.meta.TypeMeta}
	meta.ResourceVersion = e.meta.ResourceVersion
	return watchEvent{eventType: watch.Bookmark, meta: meta, object: mustEncode(meta)}
}

// withResourceVersion returns the event with another resource version.
func (e *watchEvent) withResourceVersion(resourceVersion string) watchEvent {
	var object map[string]any
	if err := json.Unmarshal(e.object, &object); err != nil {
		panic(fmt.Sprintf("decoding a decoded object: %v", err))
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

// watchKey identifies a watch of one of the controllers across reconnects.
type watchKey struct {
	resource string
	second   bool
}

// watchState is the state of the watch fault of one run.
type watchState struct {
	fault *watchFault
	roles map[string]role

	mu sync.Mutex
	// active is set while the fault is injected, and over is closed afterwards.
	active bool
	over   chan struct{}
	// injections counts how often the fault was injected, windows by watch.
	injections int
	windows    map[watchKey]int
	// expireNext are the watches to answer with 410, cutNext the streamed lists to cut.
	expireNext, cutNext map[watchKey]bool
}

func newWatchState(k *kindSuite, fault *watchFault) *watchState {
	return &watchState{fault: fault, roles: k.roles, over: make(chan struct{}), windows: map[watchKey]int{}, expireNext: map[watchKey]bool{}, cutNext: map[watchKey]bool{}}
}

func (w *watchState) begin() {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.active = true
}

// end stops the fault: events that are held back are delivered.
func (w *watchState) end() {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.active {
		w.active = false
		close(w.over)
	}
}

// injectionCount returns how often the fault was injected. A second controller alone
// counts once.
func (w *watchState) injectionCount() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.fault != nil && w.fault.twoControllers && w.fault.delay+w.fault.hold == 0 {
		return 1
	}
	return w.injections
}

// inject reports whether to inject the fault into an event of that watch, and counts it.
func (w *watchState) inject(key watchKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	f := w.fault
	if !w.active || f == nil || !f.affects(w.roles[key.resource], key.second) || f.maxWindows > 0 && w.windows[key] >= f.maxWindows {
		return false
	}
	w.injections++
	w.windows[key]++
	return true
}

func (w *watchState) put(set map[watchKey]bool, key watchKey) {
	w.mu.Lock()
	defer w.mu.Unlock()
	set[key] = true
}

// take reports whether the set has the key, and removes it.
func (w *watchState) take(set map[watchKey]bool, key watchKey) bool {
	w.mu.Lock()
	defer w.mu.Unlock()
	had := set[key]
	delete(set, key)
	return had
}

// watchStream is one connection of a watch.
type watchStream struct {
	proxy *faultProxy
	key   watchKey
	fault *watchFault
	// events are what the API server sent.
	events chan watchEvent
	writer http.ResponseWriter
	// inInitialList is set until the bookmark after the initial list.
	inInitialList bool
	// last is the last delivered event. delivered counts the events after the initial
	// list.
	last      *watchEvent
	delivered int
}

func (p *faultProxy) serveStream(w http.ResponseWriter, incoming *http.Request, key watchKey) {
	listing := incoming.URL.Query().Get("sendInitialEvents") == "true"
	if !listing && p.watches.take(p.watches.expireNext, key) {
		respondWith(http.StatusGone, metav1.StatusReasonExpired)(w)
		return
	}
	response := openWatch(cluster.transport, w, incoming)
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		_, _ = io.Copy(w, response.Body)
		return
	}
	s := &watchStream{proxy: p, key: key, fault: p.watches.fault, events: make(chan watchEvent, 1000), writer: w, inInitialList: listing}
	s.flush()
	go s.read(incoming.Context(), json.NewDecoder(response.Body))
	s.serve(incoming.Context())
}

// read receives events and notes the time, even while earlier events are held back.
func (s *watchStream) read(ctx context.Context, from *json.Decoder) {
	defer close(s.events)
	for {
		var f watchFrame
		if err := from.Decode(&f); err != nil {
			return
		}
		e := watchEvent{eventType: f.Type, object: f.Object, receivedAt: time.Now()}
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

func (s *watchStream) serve(ctx context.Context) {
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

// handle delivers an event or injects the fault. It reports whether the watch continues.
func (s *watchStream) handle(ctx context.Context, e watchEvent) bool {
	watches := s.proxy.watches
	if s.inInitialList && e.endsInitialList() && watches.take(watches.cutNext, s.key) {
		s.sendHalf(e)
	}
	if s.inInitialList || e.eventType == watch.Bookmark || s.fault.cutAfter > s.delivered {
		s.inInitialList = s.inInitialList && !e.endsInitialList()
		s.deliver(e)
		return true
	}
	if !watches.inject(s.key) {
		s.deliver(e)
		return true
	}
	switch {
	case s.fault.cutAfter > 0:
		s.sendHalf(e)
	case s.fault.delay > 0:
		s.delay(ctx, time.Until(e.receivedAt.Add(s.fault.delay)))
		s.deliver(e)
	default:
		return s.endWindow(s.collectHeld(ctx, e))
	}
	return true
}

// endWindow handles the events of a window as the fault says.
func (s *watchStream) endWindow(held []watchEvent) bool {
	if s.fault.endWindow != nil {
		if s.fault.cutList {
			s.proxy.watches.put(s.proxy.watches.cutNext, s.key)
		}
		return s.fault.endWindow(s, held)
	}
	for _, e := range held {
		s.deliver(e)
	}
	return true
}

// delay returns early when the fault ends.
func (s *watchStream) delay(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-s.proxy.watches.over:
	case <-ctx.Done():
	}
}

// collectHeld returns all events of one window.
func (s *watchStream) collectHeld(ctx context.Context, first watchEvent) []watchEvent {
	held := []watchEvent{first}
	over := time.NewTimer(s.fault.hold)
	defer over.Stop()
	ticker := time.NewTicker(bookmarkInterval)
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
		case <-s.proxy.watches.over:
			return held
		case <-ctx.Done():
			return held
		}
	}
}

func (s *watchStream) deliver(e watchEvent) {
	s.last = &e
	if e.eventType != watch.Bookmark && !s.inInitialList {
		s.delivered++
	}
	s.write(mustEncode(watchFrame{e.eventType, e.object}))
}

// sendHalf sends half of the event and cuts the connection.
func (s *watchStream) sendHalf(e watchEvent) {
	data := mustEncode(watchFrame{e.eventType, e.object})
	s.write(data[:len(data)/2])
	panic(http.ErrAbortHandler)
}

// sendExpired sends a 410 event.
func (s *watchStream) sendExpired() {
	s.write(mustEncode(watchFrame{watch.Error, mustEncode(newStatus(http.StatusGone, metav1.StatusReasonExpired))}))
}

func (s *watchStream) write(data []byte) {
	// The test may have killed the client.
	_, _ = s.writer.Write(data)
	s.flush()
}

func (s *watchStream) flush() {
	_ = http.NewResponseController(s.writer).Flush()
}
