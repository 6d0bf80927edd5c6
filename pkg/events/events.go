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

// Package events records Kubernetes events with client-go's broadcaster.
package events

import (
	"context"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
)

// client-go's default of one event in 5 minutes after a burst would hide what an object goes
// through that does something every ten seconds, with two events each time.
const (
	objectBurst = 25
	objectQPS   = 0.2
)

// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// New returns a recorder of the component's events, and a function that stops it: events that
// have not been sent by then are lost. The scheme must have the types of the objects that events
// are about. failed is called for each request that fails.
func New(ctx context.Context, client typedcorev1.EventsGetter, scheme *runtime.Scheme, component string, failed func()) (record.EventRecorder, context.CancelFunc) {
	// It outlives ctx: syncs in progress record events after a signal.
	ctx, stop := context.WithCancel(context.WithoutCancel(ctx))
	broadcaster := record.NewBroadcaster(record.WithContext(ctx),
		record.WithCorrelatorOptions(record.CorrelatorOptions{BurstSize: objectBurst, QPS: objectQPS}))
	broadcaster.StartStructuredLogging(2)
	broadcaster.StartRecordingToSink(&sink{EventSinkImpl: typedcorev1.EventSinkImpl{Interface: client.Events(metav1.NamespaceAll)}, stopped: ctx, failed: failed})
	return broadcaster.NewRecorder(scheme, corev1.EventSource{Component: component}).WithLogger(klog.FromContext(ctx)), stop
}

// sink sends events and counts the requests that fail.
type sink struct {
	// The broadcaster creates and patches events, and updates none.
	typedcorev1.EventSinkImpl

	// stopped ends the requests: the methods of record.EventSink take no context.
	stopped context.Context
	failed  func()
}

// Create implements record.EventSink.
func (s *sink) Create(event *corev1.Event) (*corev1.Event, error) {
	stored, err := s.Interface.CreateWithEventNamespaceWithContext(s.stopped, event)
	return s.answer(event, stored, err, err == nil)
}

// Patch implements record.EventSink. An event that has expired is created again, so it is not lost.
func (s *sink) Patch(event *corev1.Event, patch []byte) (*corev1.Event, error) {
	stored, err := s.Interface.PatchWithEventNamespaceWithContext(s.stopped, event, patch)
	return s.answer(event, stored, err, err == nil || apierrors.IsNotFound(err))
}

// answer counts a failure. It hides the error of a request that the stop has cut off, which
// client-go would log.
func (s *sink) answer(sent, stored *corev1.Event, err error, expected bool) (*corev1.Event, error) {
	switch {
	case expected:
	case s.stopped.Err() != nil:
		stored, err = sent, nil
	default:
		s.failed()
	}
	return stored, err
}
