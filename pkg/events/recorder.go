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
	"cmp"
	"context"
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	typedcorev1 "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/tools/record/util"
	"k8s.io/client-go/tools/reference"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/fairqueue"
)

const (
	// maxWaiting is how many events may wait to be sent, and share how many of each namespace
	// may wait although so many of others do.
	maxWaiting = 1000
	share      = 25
	// maxTries is how often an event is sent at most, and retryDelay how long after a failure,
	// as client-go's EventBroadcaster does.
	maxTries   = 12
	retryDelay = 10 * time.Second
	// maxRetryAfter is how much of a Retry-After is respected.
	maxRetryAfter = 5 * time.Minute
)

// Recorder records core/v1 events. It queues them and sends them from a goroutine of its own,
// after client-go's correlator has aggregated equal ones. Namespaces take turns, and events of
// a namespace are sent in order: client-go's EventBroadcaster has one queue, which one
// namespace can fill. If the API server is overloaded or cannot be reached, the Recorder waits
// and sends the event again. It drops events of which too many wait, or which an object has
// too many of, and counts them as failures. Create one with New.
type Recorder struct {
	client     typedcorev1.EventInterface
	scheme     *runtime.Scheme
	component  string
	failed     func()
	correlator *record.EventCorrelator
	logger     klog.Logger

	mu sync.Mutex
	// changed is signalled when an event waits or closed is set.
	changed *sync.Cond
	queue   fairqueue.Queue[*corev1.Event]
	limiter *limiter
	// closed says that the goroutine ends once no event waits.
	closed bool

	// stop ends the goroutine, its request and its wait. done is closed when it has ended.
	stop context.CancelFunc
	done chan struct{}
}

// +kubebuilder:rbac:groups="",resources=events,verbs=create;patch

// New starts a recorder that sends events of that component with the client and its rate
// limit. The scheme must have the types of the objects that events are about. The recorder
// calls failed for each request that fails, and for each event that it drops. Stop it with
// Shutdown.
func New(ctx context.Context, client typedcorev1.EventsGetter, scheme *runtime.Scheme, component string, failed func()) *Recorder {
	r := &Recorder{
		client: client.Events(metav1.NamespaceAll), scheme: scheme, component: component, failed: failed,
		// This disables client-go's spam filter, which silently drops all but one event of an object in
		// five minutes after a burst. The limiter replaces it.
		correlator: record.NewEventCorrelatorWithOptions(record.CorrelatorOptions{BurstSize: math.MaxInt32}),
		logger:     klog.FromContext(ctx), limiter: newLimiter(), done: make(chan struct{}),
	}
	r.changed = sync.NewCond(&r.mu)
	// The recorder must outlive ctx, or the events of syncs that finish after a signal would be
	// lost.
	ctx, r.stop = context.WithCancel(context.WithoutCancel(ctx))
	go r.run(ctx)
	return r
}

// Event implements record.EventRecorder.
func (r *Recorder) Event(object runtime.Object, eventType, reason, message string) {
	r.AnnotatedEventf(object, nil, eventType, reason, "%s", message)
}

// Eventf implements record.EventRecorder.
func (r *Recorder) Eventf(object runtime.Object, eventType, reason, format string, args ...any) {
	r.AnnotatedEventf(object, nil, eventType, reason, format, args...)
}

// AnnotatedEventf implements record.EventRecorder.
func (r *Recorder) AnnotatedEventf(object runtime.Object, annotations map[string]string, eventType, reason, format string, args ...any) {
	involved, err := reference.GetReference(r.scheme, object)
	if err != nil {
		r.logger.Error(err, "Making an event failed", "reason", reason)
		r.failed()
		return
	}
	now := metav1.Now()
	event := &corev1.Event{
		ObjectMeta: metav1.ObjectMeta{
			Name: util.GenerateEventName(involved.Name, now.UnixNano()), Namespace: cmp.Or(involved.Namespace, metav1.NamespaceDefault), Annotations: annotations,
		},
		InvolvedObject: *involved, Type: eventType, Reason: reason, Message: fmt.Sprintf(format, args...),
		FirstTimestamp: now, LastTimestamp: now, Count: 1,
		Source: corev1.EventSource{Component: r.component}, ReportingController: r.component,
	}
	r.logger.V(2).Info("Event occurred", "object", klog.KRef(involved.Namespace, involved.Name), "kind", involved.Kind,
		"type", event.Type, "reason", event.Reason, "message", event.Message)
	if !r.enqueue(event) {
		r.failed()
	}
}

// enqueue adds the event to the queue. It returns false if the event is dropped.
func (r *Recorder) enqueue(event *corev1.Event) bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	isFull := r.queue.Len() >= maxWaiting && r.queue.LenOf(event.Namespace) >= share
	if r.closed || isFull || !r.limiter.accept(event) {
		return false
	}
	r.queue.Push(event.Namespace, event)
	r.changed.Signal()
	return true
}

// Shutdown sends the queued events until ctx ends, then stops the recorder. Do not record
// events after it.
func (r *Recorder) Shutdown(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	r.changed.Signal()
	r.mu.Unlock()
	select {
	case <-r.done:
	case <-ctx.Done():
		klog.FromContext(ctx).Info("Gave up sending the queued events", "cause", context.Cause(ctx))
	}
	r.stop()
}

// run sends events until ctx ends, or Shutdown is called and none waits.
func (r *Recorder) run(ctx context.Context) {
	defer close(r.done)
	for event := r.next(); event != nil && ctx.Err() == nil; event = r.next() {
		r.send(ctx, event)
	}
}

// next removes the next event from the queue and returns it. If none waits, it waits for one,
// and returns nil after Shutdown.
func (r *Recorder) next() *corev1.Event {
	r.mu.Lock()
	defer r.mu.Unlock()
	for r.queue.Len() == 0 {
		if r.closed {
			return nil
		}
		r.changed.Wait()
	}
	return r.queue.Pop()
}

// send sends the event until the API server accepts or refuses it, maxTries times at most.
func (r *Recorder) send(ctx context.Context, event *corev1.Event) {
	logger := klog.LoggerWithValues(r.logger, "object", klog.KRef(event.Namespace, event.InvolvedObject.Name), "reason", event.Reason)
	correlated, err := r.correlator.EventCorrelate(event)
	if err != nil {
		logger.Error(err, "Comparing an event with earlier ones failed")
		r.failed()
		return
	}
	for try := 1; ; try++ {
		stored, err := r.write(ctx, correlated)
		if err == nil {
			r.correlator.UpdateState(stored)
			return
		}
		r.failed()
		delay, retry := retryAfter(err)
		retry = retry && try < maxTries
		if !apierrors.IsAlreadyExists(err) && !apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause) {
			logger.Error(err, "Sending an event failed", "retry", retry)
		}
		if !retry {
			return
		}
		select {
		case <-time.After(delay):
		case <-ctx.Done():
			return
		}
	}
}

// write sends a request to record the event, and returns the API server's answer.
func (r *Recorder) write(ctx context.Context, correlated *record.EventCorrelateResult) (*corev1.Event, error) {
	if correlated.Event.Count > 1 {
		stored, err := r.client.PatchWithEventNamespaceWithContext(ctx, correlated.Event, correlated.Patch)
		if !apierrors.IsNotFound(err) {
			return stored, err
		}
		// The event has expired. It is created anew.
	}
	correlated.Event.ResourceVersion = ""
	return r.client.CreateWithEventNamespaceWithContext(ctx, correlated.Event)
}

// retryAfter returns after which delay a request that failed is sent again, false if the API
// server has refused it.
func retryAfter(err error) (delay time.Duration, retry bool) {
	seconds, suggested := apierrors.SuggestsClientDelay(err)
	var answer apierrors.APIStatus
	if errors.As(err, &answer) && !suggested && !apierrors.IsTooManyRequests(err) && !apierrors.IsServiceUnavailable(err) {
		return 0, false
	}
	return max(retryDelay, min(time.Duration(seconds)*time.Second, maxRetryAfter)), true
}
