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

// Package events records Kubernetes events without blocking the caller.
package events

import (
	"context"
	"fmt"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// maxRetryAfter is how much of a Retry-After is respected.
const maxRetryAfter = 5 * time.Minute

// Recorder records core/v1 events. It queues them and sends them in order from a goroutine
// of its own, after client-go's correlator has aggregated equal ones. If the API server is
// overloaded it waits and sends the event again. While the queue is full, and if an object has
// very many events, it drops events and counts them as failures. Create one with New.
type Recorder struct {
	recorder    record.EventRecorder
	broadcaster record.EventBroadcaster
	sink        *sink
	// queue is client-go's queue of the events to send. client-go drops what does not fit in
	// and tells nothing, but its length can be read.
	queue <-chan watch.Event
}

// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// New starts a recorder that sends events of that component with the client and its rate
// limit. The scheme must have the types of the objects that events are about. The recorder
// calls failed for each request that fails, and for each event that it drops because its queue
// is full or the object has too many. Stop it with Shutdown.
func New(ctx context.Context, client typedcorev1.EventsGetter, scheme *runtime.Scheme, component string, failed func()) *Recorder {
	// The broadcaster must outlive ctx, or the events of syncs that finish after a signal
	// would be lost.
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)), record.WithCorrelatorOptions(correlatorOptions()))
	broadcaster.StartStructuredLogging(2)
	sink := &sink{EventSink: &typedcorev1.EventSinkImpl{Interface: client.Events(metav1.NamespaceAll)}, failed: failed, flushed: make(chan struct{}), stopped: make(chan struct{})}
	return &Recorder{
		recorder:    broadcaster.NewRecorder(scheme, corev1.EventSource{Component: component}),
		broadcaster: broadcaster,
		sink:        sink,
		queue:       broadcaster.StartRecordingToSink(newLimiter(sink, failed)).ResultChan(),
	}
}

// Event implements record.EventRecorder.
func (r *Recorder) Event(object runtime.Object, eventType, reason, message string) {
	if !r.isFull() {
		r.recorder.Event(object, eventType, reason, message)
	}
}

// Eventf implements record.EventRecorder.
func (r *Recorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	if !r.isFull() {
		r.recorder.Eventf(object, eventType, reason, format, args...)
	}
}

// AnnotatedEventf implements record.EventRecorder.
func (r *Recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason, format string, args ...any) {
	if !r.isFull() {
		r.recorder.AnnotatedEventf(object, annotations, eventType, reason, format, args...)
	}
}

// isFull reports whether the queue is full, and counts the event that is dropped then.
func (r *Recorder) isFull() bool {
	if len(r.queue) < cap(r.queue) {
		return false
	}
	r.sink.failed()
	return true
}

// Shutdown sends the queued events until ctx ends, then stops the recorder. Do not record
// events after it.
func (r *Recorder) Shutdown(ctx context.Context) {
	// client-go has no flush. The sink gets events in order: when it gets this one, it has
	// sent all others.
	r.recorder.Event(&corev1.ObjectReference{Kind: flushKind, Namespace: metav1.NamespaceDefault, Name: flushKind}, corev1.EventTypeNormal, flushKind, "")
	select {
	case <-r.sink.flushed:
	case <-ctx.Done():
		klog.FromContext(ctx).Info("Gave up sending the queued events", "cause", context.Cause(ctx))
	}
	close(r.sink.stopped)
	r.broadcaster.Shutdown()
}

// flushKind marks the event by which Shutdown notices that the queue is empty. The sink
// does not send it.
const flushKind = "Flush"

// sink sends events, counts failures, respects Retry-After and recognizes the event of
// Shutdown.
type sink struct {
	record.EventSink

	failed  func()
	once    sync.Once
	flushed chan struct{}
	// stopped is closed when nothing more is to be sent.
	stopped chan struct{}
}

// Create implements record.EventSink.
func (s *sink) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.InvolvedObject.Kind == flushKind && event.Reason == flushKind {
		s.once.Do(func() { close(s.flushed) })
		return event, nil
	}
	return s.handleFailure(s.EventSink.Create(event))
}

// Update implements record.EventSink.
func (s *sink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.handleFailure(s.EventSink.Update(event))
}

// Patch implements record.EventSink.
func (s *sink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	patched, err := s.EventSink.Patch(event, data)
	if apierrors.IsNotFound(err) {
		// The event has expired. client-go creates it anew.
		return patched, err
	}
	return s.handleFailure(patched, err)
}

// handleFailure counts a failure. client-go drops an event at any StatusError, and sends it
// again, up to twelve times, after an error of another type. An API server that is
// overloaded or not available gets that other type, after the time that it asked for.
func (s *sink) handleFailure(event *corev1.Event, err error) (*corev1.Event, error) {
	if err == nil {
		return event, nil
	}
	s.failed()
	seconds, retry := apierrors.SuggestsClientDelay(err)
	if !retry && !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err) {
		return event, err
	}
	select {
	case <-time.After(min(time.Duration(seconds)*time.Second, maxRetryAfter)):
	case <-s.stopped:
	}
	return event, fmt.Errorf("sending an event: %w", err)
}
