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

func (p *proxy) serveWatch(w http.ResponseWriter, incoming *http.Request, to target) {
	listing := incoming.URL.Query().Get("sendInitialEvents") == "true"
	if !listing && p.takeExpired(to.Resource) {
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
	p.watched[to.Resource] = true
	p.mu.Unlock()
	s := &watchStream{proxy: p, resource: to.Resource, writer: w, events: make(chan watchEvent, 1000), inInitialList: listing}
	s.flush()
	go s.read(incoming.Context(), json.NewDecoder(response.Body))
	for e := range s.events {
		if !s.handle(incoming.Context(), e) || incoming.Context().Err() != nil {
			return
		}
	}
}

// takeExpired reports whether the watch is to be answered with 410.
func (p *proxy) takeExpired(resource string) bool {
	p.mu.Lock()
	defer p.mu.Unlock()
	expired := p.expireNext && p.target.class == watchClass(resource)
	if expired {
		p.expireNext = false
	}
	return expired
}

func watchClass(resource string) string { return "WATCH " + resource }

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
func (s *watchStream) due() *watchFault {
	p := s.proxy
	p.mu.Lock()
	defer p.mu.Unlock()
	if !p.armed || p.fault == nil || p.fault.watch == nil || p.target.class != watchClass(s.resource) {
		return nil
	}
	f := p.fault.watch
	switch {
	case p.injected && (f.hold > 0 || f.expires):
		return nil
	case f.cuts > 0 && p.cuts == f.cuts:
		return nil
	case f.expires && !f.inStream:
		p.expireNext = true
	}
	p.injected = true
	p.cuts++
	return f
}

// handle delivers an event or injects the fault. It reports whether the watch continues.
func (s *watchStream) handle(ctx context.Context, e watchEvent) bool {
	object := &unstructured.Unstructured{}
	isObject := e.Type != watch.Bookmark && e.Type != watch.Error && object.UnmarshalJSON(e.Object) == nil
	if e.Type == watch.Bookmark && s.inInitialList {
		var meta metav1.PartialObjectMetadata
		s.inInitialList = json.Unmarshal(e.Object, &meta) != nil || meta.Annotations[metav1.InitialEventsAnnotationKey] != "true"
	} else if isObject && !s.inInitialList {
		pause(ctx, s.proxy.jitterDelay())
		if f := s.due(); f != nil {
			switch {
			case f.cuts > 0:
				data := mustEncode(e)
				s.write(data[:len(data)/2])
				panic(http.ErrAbortHandler)
			case f.expires:
				if f.inStream {
					status := newStatus(http.StatusGone, metav1.StatusReasonExpired, "injected by check")
					s.write(mustEncode(watchEvent{Type: watch.Error, Object: status}))
				}
				return false
			}
			pause(ctx, e.receivedAt.Add(f.delay+f.hold).Sub(s.proxy.cluster.clock.Now()))
		}
	}
	if ctx.Err() != nil {
		return false
	}
	if isObject {
		s.proxy.show(s.resource, object)
	}
	s.write(mustEncode(e))
	return true
}

func (s *watchStream) write(data []byte) {
	// The client may be gone.
	_, _ = s.writer.Write(data)
	s.flush()
}

func (s *watchStream) flush() { _ = http.NewResponseController(s.writer).Flush() }
