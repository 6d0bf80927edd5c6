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

// Package controller is the plumbing that all controllers of this program share: the
// loop that takes keys from a queue, what a process remembers between syncs, the
// writing of a status, and a few small rules about owners, errors and conditions. It
// is no framework: what a controller does, and in which order, stands in its own
// syncHandler.
package controller

import (
	"context"
	"fmt"
	"runtime/debug"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/namespaces"
)

// How long things wait, at least and at most.
const (
	// MinBackoff and MaxBackoff bound the delay between two tries of a sync that
	// failed; it doubles each time.
	MinBackoff = 5 * time.Millisecond
	MaxBackoff = 5 * time.Minute
	// MaxTransientBackoff bounds it where the API server did not refuse but fail:
	// its return is no event.
	MaxTransientBackoff = 30 * time.Second
	// StaleCacheDelay is how long a sync waits for the caches to show its own
	// last writes. Their events wake it as well.
	StaleCacheDelay = 50 * time.Millisecond
	// SyncTimeout bounds one sync with all its requests, so that a server that
	// never answers does not hold a worker. The API server's own limit for a
	// request is as long.
	SyncTimeout = time.Minute
)

// SyncFunc brings the cluster one step nearer to what the object of that name asks
// for. It returns how long to wait before the next sync, 0 for until something
// happens, or the error for which to try again.
type SyncFunc func(ctx context.Context, key cache.ObjectName) (time.Duration, error)

// Options are what every controller needs. All but Resync are required.
type Options struct {
	Recorder record.EventRecorder
	Clock    clock.WithTicker
	Metrics  *Metrics
	// Workers is the number of keys that are synced at the same time.
	Workers int
	// GracePeriod is how long the syncs in progress may still take once the
	// controller is told to stop. After it their requests are cancelled.
	GracePeriod time.Duration
	// Resync says that the informers resync periodically, and that a parent's event
	// without a change is therefore to be worked on.
	Resync bool
}

// Loop syncs the keys that event handlers put into its queue, and tries again with
// growing delays what failed. Create it with NewLoop.
type Loop struct {
	// Queue holds the keys that wait to be synced.
	Queue *Queue
	// Gate is what the process remembers between syncs.
	Gate *Gate

	kind    string
	name    string
	sync    SyncFunc
	caches  Caches
	options Options
	metrics Counters
	backoff workqueue.TypedRateLimiter[cache.ObjectName]
	synced  []cache.DoneChecker
	pulse   pulse
	// working says that the workers have begun: what comes now has just happened.
	working atomic.Bool
}

// Caches are the informers of what a controller writes: the parents that it works for,
// and the children that it makes for them.
type Caches struct {
	Parents, Children cache.SharedInformer
}

// reached returns how far the caches have come in a namespace.
func (c Caches) reached(namespace string) Versions {
	return Versions{
		Parents:  namespaces.LastStoreSyncResourceVersion(c.Parents.GetStore(), namespace),
		Children: namespaces.LastStoreSyncResourceVersion(c.Children.GetStore(), namespace),
	}
}

// NewLoop returns a Loop that is ready to Run and calls sync. kind is the kind of
// what is synced, as in Foo; in lower case it names the queue and the controller in
// metrics. The queue works already: shut it down if the loop is never run.
func NewLoop(kind string, sync SyncFunc, caches Caches, options Options) *Loop {
	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](MinBackoff, MaxBackoff)
	name := nameOf(kind)
	return &Loop{
		Queue:   newQueue(name, backoff, options.Clock),
		Gate:    NewGate(options.Clock),
		kind:    kind,
		name:    name,
		sync:    sync,
		caches:  caches,
		options: options,
		metrics: options.Metrics.Of(kind),
		backoff: backoff,
	}
}

// nameOf returns the name of the controller of a kind.
func nameOf(kind string) string {
	return strings.ToLower(kind)
}

// Subscribe adds handlers to an informer. Run waits until they have been told of all
// that the informer's cache is filled with.
func Subscribe[T cache.Object](ctx context.Context, l *Loop, kind string, informer cache.TypedSharedIndexInformer[T], handler cache.TypedResourceEventHandler[T]) error {
	logger := klog.FromContext(ctx)
	events, err := informer.AddTypedEventHandler(handler, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return fmt.Errorf("adding an event handler to the %s informer: %w", kind, err)
	}
	l.synced = append(l.synced, namespaces.SyncCheckers(events)...)
	return nil
}

// Enqueue wakes the parent of that name, because of an event. It goes before the backlog
// of what was there when the workers began.
func (l *Loop) Enqueue(key cache.ObjectName) {
	if l.working.Load() {
		l.Queue.AddFresh(key)
	} else {
		l.Queue.Add(key)
	}
}

// ParentUpdated wakes a parent, unless its event tells nothing new and no resync was
// asked for. It reports whether something is new.
func (l *Loop) ParentUpdated(old, parent metav1.Object) bool {
	key := cache.MetaObjectToName(parent)
	// A relist repeats what is known. So does a resync, but that one was asked for.
	if old.GetResourceVersion() == parent.GetResourceVersion() {
		if l.options.Resync {
			l.Queue.Add(key)
		}
		return false
	}
	if old.GetUID() != parent.GetUID() {
		l.Gate.Forget(key)
	}
	if old.GetUID() != parent.GetUID() || old.GetGeneration() != parent.GetGeneration() {
		// What went wrong with the old spec says nothing about the new one.
		l.Queue.Forget(key)
	}
	l.Enqueue(key)
	return true
}

// ParentDeleted wakes a parent that is gone. One of the same name may be there
// before the key is worked on, and nothing of the former is true of it.
func (l *Loop) ParentDeleted(key cache.ObjectName) {
	l.Gate.Forget(key)
	l.Queue.Forget(key)
	l.Enqueue(key)
}

// CaughtUp reports whether the caches show what this process last wrote on behalf of
// key, or should have shown it long ago. A sync that reads them before that would act on
// the past.
func (l *Loop) CaughtUp(key cache.ObjectName) bool {
	if l.Gate.CaughtUp(key, l.caches.reached(key.Namespace)) {
		return true
	}
	l.metrics.SkippedStaleCache()
	return false
}

// EnqueueOwner wakes the parent of that kind that controls the object, if one does.
func (l *Loop) EnqueueOwner(kind schema.GroupKind, object metav1.Object) {
	if ref := ControllerOf(object, kind); ref != nil {
		l.Enqueue(cache.NewObjectName(object.GetNamespace(), ref.Name))
	}
}

// Run syncs until ctx ends, then lets the syncs in progress finish and returns. The
// informers must be started by the caller. It returns an error only if ctx ends
// before the caches are filled.
func (l *Loop) Run(ctx context.Context) error {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "controller", l.name)
	ctx = klog.NewContext(ctx, logger)
	defer l.Queue.ShutDown()

	logger.Info("Starting " + l.kind + " controller")
	logger.Info("Waiting for informer caches to sync")
	if err := l.WaitForCaches(ctx); err != nil {
		return err
	}

	// The syncs outlive ctx by the grace period.
	syncCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)

	logger.Info("Starting workers", "count", l.options.Workers)
	l.working.Store(true)
	var workers sync.WaitGroup
	for range l.options.Workers {
		workers.Go(func() {
			for l.processNextWorkItem(ctx, syncCtx) {
			}
		})
	}
	logger.Info("Started workers")

	<-ctx.Done()
	logger.Info("Stopping workers", "gracePeriod", l.options.GracePeriod)
	l.Queue.ShutDown()
	defer time.AfterFunc(l.options.GracePeriod, func() {
		cancel(fmt.Errorf("the grace period of %s is over", l.options.GracePeriod))
	}).Stop()
	workers.Wait()
	logger.Info("Stopped workers")
	return nil
}

// WaitForCaches returns nil once the caches are filled and their contents are in
// the queue, or an error if ctx ends first.
func (l *Loop) WaitForCaches(ctx context.Context) error {
	if !cache.WaitFor(ctx, "", l.synced...) {
		return fmt.Errorf("waiting for the caches to sync: %w", context.Cause(ctx))
	}
	return nil
}

// processNextWorkItem syncs one key and decides when it is to be synced again.
// It returns false when there will be no more work.
func (l *Loop) processNextWorkItem(ctx, syncCtx context.Context) bool {
	key, shutdown := l.Queue.Get()
	if shutdown {
		return false
	}
	defer l.Queue.Done(key)
	// A queue that shuts down still hands out the keys it holds.
	if ctx.Err() != nil {
		return true
	}

	logger := klog.LoggerWithValues(klog.FromContext(ctx), l.name, key)
	syncCtx, cancel := context.WithTimeout(klog.NewContext(syncCtx, logger), SyncTimeout)
	defer cancel()
	again, err := l.syncMeasured(syncCtx, key)
	if err == nil {
		l.Queue.Forget(key)
		if again > 0 {
			l.Queue.AddAfter(key, again)
		}
		return true
	}

	if IsConflict(err) {
		logger.V(2).Info(l.kind+" changed while it was being synced, trying again", "reason", err)
	} else {
		logger.Error(err, "Syncing "+l.kind+" failed, trying again", "failures", l.Queue.NumRequeues(key)+1)
	}
	delay := l.backoff.When(key)
	if !IsRejection(err) {
		delay = min(delay, MaxTransientBackoff)
	}
	retryAfter, _ := apierrors.SuggestsClientDelay(err)
	delay = max(delay, time.Duration(retryAfter)*time.Second)
	l.Queue.AddAfter(key, delay)
	return true
}

// syncMeasured counts the sync, and shows that it is under way.
func (l *Loop) syncMeasured(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	began := l.options.Clock.Now()
	l.pulse.began(key, began)
	again, err := l.syncRecovered(ctx, key)
	l.pulse.ended(key)
	l.metrics.Synced(resultOf(again, err), l.options.Clock.Since(began))
	return again, err
}

// syncRecovered turns a panic of the sync into an error, so that one object cannot
// stop the others.
func (l *Loop) syncRecovered(ctx context.Context, key cache.ObjectName) (again time.Duration, err error) {
	defer func() {
		if r := recover(); r != nil {
			l.metrics.panicked()
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return l.sync(ctx, key)
}
