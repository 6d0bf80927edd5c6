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

// Package events records Kubernetes events without ever holding up the caller.
package events

import (
	"context"
	"sync"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// Recorder records core/v1 events. They are queued, deduplicated by client-go's
// correlator and sent in order by a goroutine of its own; a full queue drops
// them. Create one with New.
type Recorder struct {
	record.EventRecorder

	broadcaster record.EventBroadcaster
	sink        *sink
}

// New starts a recorder that sends events as component through client, whose
// rate limit is the recorder's. The scheme must know the kinds that events will
// be about. failed is called for each request to record one that failed. Stop the
// recorder with Shutdown.
func New(ctx context.Context, client typedcorev1.EventsGetter, scheme *runtime.Scheme, component string, failed func()) *Recorder {
	// The broadcaster must outlive ctx, or a signal would lose the events of the
	// syncs that are still running.
	broadcaster := record.NewBroadcaster(record.WithContext(context.WithoutCancel(ctx)))
	broadcaster.StartStructuredLogging(2)
	sink := &sink{EventSink: &typedcorev1.EventSinkImpl{Interface: client.Events(metav1.NamespaceAll)}, failed: failed, flushed: make(chan struct{})}
	broadcaster.StartRecordingToSink(sink)
	return &Recorder{
		EventRecorder: broadcaster.NewRecorder(scheme, corev1.EventSource{Component: component}),
		broadcaster:   broadcaster,
		sink:          sink,
	}
}

// Shutdown sends what is queued until ctx ends, then stops the recorder. Nothing
// may be recorded after it.
func (r *Recorder) Shutdown(ctx context.Context) {
	// The sink gets events in order, so that the arrival of a last one of our own
	// tells that all others have been dealt with. client-go has no flush.
	r.Event(&corev1.ObjectReference{Kind: flushKind, Namespace: metav1.NamespaceDefault, Name: flushKind}, corev1.EventTypeNormal, flushKind, "")
	select {
	case <-r.sink.flushed:
	case <-ctx.Done():
		klog.FromContext(ctx).Info("Gave up sending the last events", "cause", context.Cause(ctx))
	}
	r.broadcaster.Shutdown()
}

// flushKind marks the event that only Shutdown records and the sink keeps.
const flushKind = "Flush"

// sink passes events on, tells what fails and notices the flush mark.
type sink struct {
	record.EventSink

	failed  func()
	once    sync.Once
	flushed chan struct{}
}

// Create implements record.EventSink.
func (s *sink) Create(event *corev1.Event) (*corev1.Event, error) {
	if event.InvolvedObject.Kind == flushKind && event.Reason == flushKind {
		s.once.Do(func() { close(s.flushed) })
		return event, nil
	}
	return s.told(s.EventSink.Create(event))
}

// Update implements record.EventSink.
func (s *sink) Update(event *corev1.Event) (*corev1.Event, error) {
	return s.told(s.EventSink.Update(event))
}

// Patch implements record.EventSink.
func (s *sink) Patch(event *corev1.Event, data []byte) (*corev1.Event, error) {
	return s.told(s.EventSink.Patch(event, data))
}

func (s *sink) told(event *corev1.Event, err error) (*corev1.Event, error) {
	if err != nil {
		s.failed()
	}
	return event, err
}
