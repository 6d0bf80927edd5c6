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

// Package controller has what the controllers of this program share: the Worker that takes keys from a
// queue and calls a controller's syncHandler, Owners and Dependents, which read and write objects, the
// ledger of these Writes, and rules about conditions, owner references and errors.
package controller

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"slices"
	"strings"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/client/trim"
)

const (
	// StaleCacheDelay is the delay before a sync that waits for the caches is repeated. Their event usually comes earlier.
	StaleCacheDelay = 50 * time.Millisecond
	// syncTimeout bounds one sync, as kube-apiserver's --request-timeout bounds a request: no answer must hold a worker.
	syncTimeout = time.Minute
)

// SyncFunc brings the cluster one step closer to what the object of that name asks for. It returns how long to wait
// before the next sync, 0 to wait for an event, and an error, after which the Worker retries with backoff.
type SyncFunc func(ctx context.Context, key cache.ObjectName) (requeueAfter time.Duration, err error)

// Options are what every controller needs. All are required.
type Options struct {
	// Worker calls the controller's syncHandler.
	Worker *Worker
	// Namespace is the one that the informers are restricted to, or metav1.NamespaceAll.
	Namespace string
	Recorder  record.EventRecorder
	Clock     clock.WithDelayedExecution
	Metrics   *Metrics
}

// WorkerOptions are what a Worker needs. All but Resync are required.
type WorkerOptions struct {
	Clock   clock.WithTickerAndDelayedExecution
	Metrics *Metrics
	// Workers is the number of keys that are synced at the same time.
	Workers int
	// GracePeriod is how long syncs in progress may take after a stop before they are cancelled.
	GracePeriod time.Duration
	// Resync says that the informers resync periodically.
	Resync bool
}

// Worker takes keys from a queue, calls a syncHandler for each, and retries what failed. Create it with NewWorker.
type Worker struct {
	// Queue holds the keys that wait to be synced, and Debouncer delays reports of progress.
	Queue     *Queue
	Debouncer *StatusDebouncer

	kind, name string
	options    WorkerOptions
	backoff    *backoff
	// syncs has the syncHandler of each namespace.
	syncs map[string]SyncFunc
	// handlers add an event handler each, and return what is done once it has received the initial list.
	handlers []func(context.Context) (cache.DoneChecker, error)
	// atStart are called in goroutines when the workers start. Their context ends with them.
	atStart []func(context.Context)
	// large is held by the sync that has a large object in memory.
	large *semaphore.Weighted
	// retryAfter has the time.Time of the end of each key's Retry-After.
	retryAfter sync.Map
}

// NewWorker returns a Worker, ready to Run once Handle is called. kind, such as Foo, names the queue and the controller
// in metrics, in lower case. The queue's goroutines already run: call Queue.ShutDown if Run is never called.
func NewWorker(kind string, options WorkerOptions) *Worker {
	w := &Worker{
		kind: kind, name: strings.ToLower(kind), options: options, backoff: newBackoff(options.Clock),
		Debouncer: newStatusDebouncer(options.Clock), syncs: map[string]SyncFunc{}, large: semaphore.NewWeighted(1),
	}
	w.Queue = newQueue(w.name, w.backoff, options.Clock)
	// An alert on counters of rare events sees their first increase if they begin at 0.
	options.Metrics.staleCacheSkips.WithLabelValues(w.name)
	options.Metrics.panics.WithLabelValues(w.name)
	return w
}

// Handle makes the Worker call sync for the keys of a namespace, or of all (metav1.NamespaceAll).
func (w *Worker) Handle(namespace string, sync SyncFunc) {
	w.syncs[namespace] = sync
}

// AddEventHandler makes Run add a handler to the informer of a kind. Before that, in a process that stands
// by, it would fill a queue that no worker drains.
func AddEventHandler[T cache.Object](w *Worker, kind string, informer cache.TypedSharedIndexInformer[T], handler cache.TypedResourceEventHandler[T]) {
	w.handlers = append(w.handlers, func(ctx context.Context) (cache.DoneChecker, error) {
		logger := klog.FromContext(ctx)
		registration, err := informer.AddTypedEventHandler(handler, cache.HandlerOptions{Logger: &logger})
		if err != nil {
			return nil, fmt.Errorf("adding an event handler to the %s informer: %w", kind, err)
		}
		return registration.HasSyncedChecker(), nil
	})
}

// holdsLarge is the key of the context of a sync for a *bool: whether the sync holds Worker.large.
type holdsLarge struct{}

// acquireLarge waits until no other sync has a large object in memory. The Worker releases it after the sync.
func (w *Worker) acquireLarge(ctx context.Context) error {
	holds, ok := ctx.Value(holdsLarge{}).(*bool)
	if !ok || *holds {
		return nil
	}
	if err := w.large.Acquire(ctx, 1); err != nil {
		return fmt.Errorf("waiting for another large object: %w", err)
	}
	*holds = true
	return nil
}

// acquireIfLarge is acquireLarge if MarkLarge has marked the cached object.
func (w *Worker) acquireIfLarge(ctx context.Context, cached metav1.Object) error {
	if !isLarge(cached) {
		return nil
	}
	return w.acquireLarge(ctx)
}

// Run adds the event handlers and syncs until ctx ends, then lets the syncs in progress finish. The caller starts the
// informers. It returns an error only if ctx ends before the caches are filled, or if the informers have stopped.
func (w *Worker) Run(ctx context.Context) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "controller", w.name)
	ctx = klog.NewContext(ctx, logger)
	defer w.Queue.ShutDown()

	logger.Info("Starting " + w.kind + " controller")
	if err := w.StartEventHandlers(ctx); err != nil {
		return err
	}

	// The syncs may outlive ctx by the grace period.
	syncCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)

	logger.Info("Starting workers", "count", w.options.Workers)
	var workers sync.WaitGroup
	for _, f := range w.atStart {
		workers.Go(func() { f(ctx) })
	}
	for range w.options.Workers {
		workers.Go(func() {
			for w.processNextWorkItem(ctx, syncCtx) {
			}
		})
	}
	logger.Info("Started workers")

	<-ctx.Done()
	logger.Info("Stopping workers", "gracePeriod", w.options.GracePeriod)
	w.Queue.ShutDown()
	defer time.AfterFunc(w.options.GracePeriod, func() {
		cancel(fmt.Errorf("the grace period of %s is over", w.options.GracePeriod))
	}).Stop()
	workers.Wait()
	logger.Info("Stopped workers")
	return nil
}

// StartEventHandlers adds the event handlers and waits until the caches are filled and their objects are in the queue.
func (w *Worker) StartEventHandlers(ctx context.Context) error {
	var synced []cache.DoneChecker
	for _, add := range w.handlers {
		done, err := add(ctx)
		if err != nil {
			return err
		}
		synced = append(synced, done)
	}
	klog.FromContext(ctx).Info("Waiting for informer caches to sync")
	if !cache.WaitFor(ctx, "", synced...) {
		return fmt.Errorf("waiting for the caches to sync: %w", context.Cause(ctx))
	}
	return nil
}

// processNextWorkItem syncs one key. It returns false once the queue is shut down and empty.
func (w *Worker) processNextWorkItem(ctx, syncCtx context.Context) bool {
	key, shutdown := w.Queue.Get()
	if shutdown {
		return false
	}
	defer w.Queue.Done(key)
	// A queue that shuts down still hands out the keys it holds.
	if ctx.Err() != nil {
		return true
	}
	if delay := w.delayByRetryAfter(key); delay > 0 {
		w.Queue.AddAfter(key, delay)
		return true
	}

	logger := klog.LoggerWithValues(klog.FromContext(ctx), w.name, key)
	syncCtx, cancel := context.WithTimeout(klog.NewContext(syncCtx, logger), syncTimeout)
	defer cancel()
	requeueAfter, err := w.sync(syncCtx, key)
	if err == nil {
		w.Queue.Forget(key)
	} else {
		requeueAfter = w.retryDelay(logger, key, requeueAfter, err)
	}
	if requeueAfter > 0 {
		w.Queue.AddAfter(key, requeueAfter)
	}
	return true
}

// retryDelay logs the error of a sync and returns how long to wait before the next one: the time that the sync asked
// for, or the backoff, whichever ends first, but at least Retry-After. A stale cache takes StaleCacheDelay, no backoff.
func (w *Worker) retryDelay(logger klog.Logger, key cache.ObjectName, requeueAfter time.Duration, err error) time.Duration {
	delay := StaleCacheDelay
	if errors.Is(err, ErrStaleCache) {
		// Neither success nor failure: the backoff is neither reset nor increased.
		logger.V(4).Info("Waiting for the caches", "reason", err)
	} else {
		delay = w.backoff.next(key, err)
		if apierrors.IsConflict(err) {
			logger.V(2).Info("The cache is out of date, trying again", "reason", err)
		} else {
			logger.Error(err, "Syncing "+w.kind+" failed, trying again", "failures", w.Queue.NumRequeues(key))
		}
	}
	if requeueAfter > 0 {
		delay = min(delay, requeueAfter)
	}
	retryAfter := RetryAfter(err)
	if !IsRefusal(err) {
		// After a refusal a change of the object may be accepted at once.
		w.retryAfter.Store(key, w.options.Clock.Now().Add(retryAfter))
	}
	return max(delay, retryAfter)
}

// delayByRetryAfter returns how long the API server has asked to wait before the key is synced again,
// also if an event enqueues it: an object that changes often must not add to its load.
func (w *Worker) delayByRetryAfter(key cache.ObjectName) time.Duration {
	if until, ok := w.retryAfter.Load(key); ok {
		if now := w.options.Clock.Now(); now.Before(until.(time.Time)) {
			return until.(time.Time).Sub(now)
		}
		w.retryAfter.Delete(key)
	}
	return 0
}

// DelayRefusal returns how long a namespace has to wait after a refusal, for a controller with delays of its own.
func (w *Worker) DelayRefusal(namespace string) time.Duration {
	return w.backoff.token(namespace)
}

// sync calls the syncHandler and measures it. It turns a panic into an error, so that one object cannot
// stop the others. In a terminating namespace nothing is left to do.
func (w *Worker) sync(ctx context.Context, key cache.ObjectName) (requeueAfter time.Duration, err error) {
	start, holds := w.options.Clock.Now(), false
	ctx = context.WithValue(ctx, holdsLarge{}, &holds)
	defer func() {
		if r := recover(); r != nil {
			w.options.Metrics.panics.WithLabelValues(w.name).Inc()
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
		if IsNamespaceTerminating(err) {
			requeueAfter, err = 0, nil
		}
		if holds {
			w.large.Release(1)
		}
		w.options.Metrics.Synced(w.kind, requeueAfter, err, w.options.Clock.Since(start))
	}()
	handler, ok := w.syncs[key.Namespace]
	if !ok {
		handler = w.syncs[metav1.NamespaceAll]
	}
	return handler(ctx, key)
}

// Earliest returns how long it is until the earliest of the times, 0 if all are zero, and little if it has passed.
func Earliest(now time.Time, times ...time.Time) (delay time.Duration) {
	for _, at := range times {
		if left := max(at.Sub(now), 1); !at.IsZero() && (delay == 0 || left < delay) {
			delay = left
		}
	}
	return delay
}

// ErrStaleCache says that a sync did nothing, because the caches do not show yet what this
// process has last written or read live. It is no failure: the Worker tries again after StaleCacheDelay.
var ErrStaleCache = errors.New("the caches are behind the last write or live read")

// ErrOverridden says that the API server accepted a write, but admission replaced the owner reference.
// Without it the garbage collector and this controller do not know the owner.
var ErrOverridden = errors.New(ownerReference + ": an admission webhook or policy overrides it")

// IsRefusal reports whether a request fails again until the object, a policy, a quota or
// RBAC changes. Of errors that are joined each has to be such a refusal: a failure is retried sooner.
func IsRefusal(err error) bool {
	if joined := unjoin(err); joined != nil {
		return !slices.ContainsFunc(joined, func(err error) bool { return !IsRefusal(err) })
	}
	isRefused := apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)
	return isRefused && !IsNamespaceTerminating(err) || errors.Is(err, ErrOverridden)
}

// unjoin returns the errors that err joins, nil if it joins none.
func unjoin(err error) []error {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return joined.Unwrap()
	}
	return nil
}

// IsNamespaceTerminating reports whether a write was refused because its namespace is terminating.
func IsNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// NewConflict returns the error of a sync that ended because a live read shows the cache to be out of date.
func NewConflict(resource schema.GroupResource, name string) error {
	return apierrors.NewConflict(resource, name, errors.New("the cache is out of date"))
}

// RefusalMessage returns the API server's message, bounded, and without the present usage of a quota, which changes.
func RefusalMessage(refused error) string {
	message := refused.Error()
	if before, usage, ok := strings.Cut(message, ", used: "); ok {
		message = before
		if _, limit, ok := strings.Cut(usage, ", limited: "); ok {
			message += ", limited: " + limit
		}
	}
	return trim.BoundedMessage(message)
}
