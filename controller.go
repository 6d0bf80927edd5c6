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
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	foolisters "example.com/sample-controller/pkg/generated/listers/samplecontroller/v1alpha1"
)

const (
	// controllerName names the queue in metrics, the source of events and the
	// field manager of every write.
	controllerName = "sample-controller"

	// byOwner indexes Deployments by the Foo that controls them, byName indexes
	// Foos by the Deployment that they ask for.
	byOwner = "controllingFoo"
	byName  = "wantedDeployment"

	// minBackoff and maxBackoff bound the delay between two tries of a sync that
	// failed; it doubles each time.
	minBackoff = 5 * time.Millisecond
	maxBackoff = 5 * time.Minute
	// maxTransientBackoff bounds it where the API server did not refuse but fail:
	// its return is no event.
	maxTransientBackoff = 30 * time.Second
	// staleCacheDelay is how long a sync waits for the caches to show its own
	// last writes. Their events wake it as well.
	staleCacheDelay = 50 * time.Millisecond
	// blockerDelay spaces the wakes among Foos that block each other in a circle.
	blockerDelay = time.Second
	// syncTimeout bounds one sync with all its requests, so that a server that
	// never answers does not hold a worker. The API server's own limit for a
	// request is as long.
	syncTimeout = time.Minute
)

// errCacheBehind tells that the API server has something newer than the cache. The
// event is on its way; nothing may be deleted on the strength of what is old.
var errCacheBehind = errors.New("the cache is out of date")

// Controller turns each Foo into the Deployment that its spec names.
//
// An event of a Foo or a Deployment becomes the keys of the Foos that it may
// concern. A worker takes a key and calls syncHandler, which reads the caches,
// decides (foo.go), makes at most one write to the Deployment of that name,
// deletes the Deployments of former names, and writes the Foo's status if it
// changed. What it writes comes back as an event, finds nothing to do, and the
// circle rests. A sync that fails is tried again with growing delays.
type Controller struct {
	kubeClient kubernetes.Interface
	fooClient  clientset.Interface

	foos            foolisters.FooLister
	deployments     appslisters.DeploymentLister
	fooIndex        cache.TypedIndexer[*v1alpha1.Foo]
	deploymentIndex cache.TypedIndexer[*appsv1.Deployment]
	synced          []cache.DoneChecker

	queue    workqueue.TypedRateLimitingInterface[cache.ObjectName]
	backoff  workqueue.TypedRateLimiter[cache.ObjectName]
	gate     *gate
	recorder record.EventRecorder
	clock    clock.PassiveClock
	metrics  *Metrics
	pulse    pulse
	options  ControllerOptions
}

// ControllerOptions are what a Controller needs. All clients, informers, the
// recorder, the clock and the metrics are required.
type ControllerOptions struct {
	KubeClient  kubernetes.Interface
	FooClient   clientset.Interface
	Deployments appsinformers.TypedDeploymentInformer
	Foos        fooinformers.TypedFooInformer
	Recorder    record.EventRecorder
	Clock       clock.WithTicker
	Metrics     *Metrics

	// Workers is the number of Foos that are synced at the same time.
	Workers int
	// GracePeriod is how long the syncs in progress may still take once the
	// controller is told to stop. After it their requests are cancelled.
	GracePeriod time.Duration
	// Resync says that the informers resync periodically, and that a Foo's event
	// without a change is therefore to be worked on.
	Resync bool
}

// NewController returns a Controller that is ready to Run. It adds indexes and
// event handlers to the informers, which must not have been started, and fails
// where these are taken.
func NewController(ctx context.Context, options ControllerOptions) (*Controller, error) {
	foos, deployments := options.Foos.TypedInformer(), options.Deployments.TypedInformer()
	if err := foos.AddTypedIndexers(cache.TypedIndexers[*v1alpha1.Foo]{byName: indexByWantedName}); err != nil {
		return nil, fmt.Errorf("adding an index to the Foo informer: %w", err)
	}
	if err := deployments.AddTypedIndexers(cache.TypedIndexers[*appsv1.Deployment]{byOwner: indexByOwner}); err != nil {
		return nil, fmt.Errorf("adding an index to the Deployment informer: %w", err)
	}

	backoff := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](minBackoff, maxBackoff)
	c := &Controller{
		kubeClient:      options.KubeClient,
		fooClient:       options.FooClient,
		foos:            options.Foos.Lister(),
		deployments:     options.Deployments.Lister(),
		fooIndex:        foos.GetTypedIndexer(),
		deploymentIndex: deployments.GetTypedIndexer(),
		queue: workqueue.NewTypedRateLimitingQueueWithConfig(backoff,
			workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{Name: "foo", Clock: options.Clock}),
		backoff:  backoff,
		gate:     newGate(options.Clock),
		recorder: options.Recorder,
		clock:    options.Clock,
		metrics:  options.Metrics,
		options:  options,
	}
	if err := c.addEventHandlers(ctx, foos, deployments); err != nil {
		c.queue.ShutDown()
		return nil, err
	}
	c.metrics.watchFoos(c.foos)
	return c, nil
}

// addEventHandlers subscribes to both informers.
func (c *Controller) addEventHandlers(ctx context.Context, foos fooinformers.FooIndexInformer, deployments appsinformers.DeploymentIndexInformer) error {
	logger := klog.FromContext(ctx)
	logger.Info("Setting up event handlers")
	fooEvents, err := foos.AddTypedEventHandler(fooinformers.FooHandlerFuncs{
		AddFunc:    c.fooAdded,
		UpdateFunc: c.fooUpdated,
		DeleteFunc: c.fooDeleted,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return fmt.Errorf("adding an event handler to the Foo informer: %w", err)
	}
	deploymentEvents, err := deployments.AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc:    c.deploymentAdded,
		UpdateFunc: c.deploymentUpdated,
		DeleteFunc: c.deploymentDeleted,
	}, cache.HandlerOptions{Logger: &logger})
	if err != nil {
		return fmt.Errorf("adding an event handler to the Deployment informer: %w", err)
	}
	c.synced = []cache.DoneChecker{fooEvents.HasSyncedChecker(), deploymentEvents.HasSyncedChecker()}
	return nil
}

// Run syncs Foos until ctx ends, then lets the syncs in progress finish and
// returns. The informers must be started by the caller. It returns an error only
// if ctx ends before the caches are filled.
func (c *Controller) Run(ctx context.Context) error {
	logger := klog.FromContext(ctx)
	defer c.queue.ShutDown()

	logger.Info("Starting Foo controller")
	logger.Info("Waiting for informer caches to sync")
	if err := c.WaitForCaches(ctx); err != nil {
		return err
	}

	// The syncs outlive ctx by the grace period.
	syncCtx, cancel := context.WithCancelCause(context.WithoutCancel(ctx))
	defer cancel(nil)

	logger.Info("Starting workers", "count", c.options.Workers)
	var workers sync.WaitGroup
	for range c.options.Workers {
		workers.Go(func() {
			for c.processNextWorkItem(ctx, syncCtx) {
			}
		})
	}
	logger.Info("Started workers")

	<-ctx.Done()
	logger.Info("Stopping workers", "gracePeriod", c.options.GracePeriod)
	c.queue.ShutDown()
	defer time.AfterFunc(c.options.GracePeriod, func() {
		cancel(fmt.Errorf("the grace period of %s is over", c.options.GracePeriod))
	}).Stop()
	workers.Wait()
	logger.Info("Stopped workers")
	return nil
}

// WaitForCaches returns nil once the caches are filled and their contents are in
// the queue, or an error if ctx ends first.
func (c *Controller) WaitForCaches(ctx context.Context) error {
	if !cache.WaitFor(ctx, "", c.synced...) {
		return fmt.Errorf("waiting for the caches to sync: %w", context.Cause(ctx))
	}
	return nil
}

// indexByWantedName returns the key of the Deployment that a Foo asks for.
func indexByWantedName(foo *v1alpha1.Foo) ([]string, error) {
	return []string{foo.Namespace + "/" + foo.Spec.DeploymentName}, nil
}

// indexByOwner returns namespace and UID of the Foo that controls a Deployment.
func indexByOwner(deployment *appsv1.Deployment) ([]string, error) {
	if ref := controllingFoo(deployment); ref != nil {
		return []string{ownerKey(deployment.Namespace, ref.UID)}, nil
	}
	return nil, nil
}

// lookUp returns what has that value in an index that NewController added.
func lookUp[T any](indexer cache.TypedIndexer[T], index, value string) []T {
	found, err := indexer.ByTypedIndex(index, value)
	if err != nil {
		panic(fmt.Sprintf("index %q was not added: %v", index, err))
	}
	return found
}

func ownerKey(namespace string, uid types.UID) string {
	return namespace + "/" + string(uid)
}

// A Foo's event wakes that Foo, and the one whose Deployment it asks for or no
// longer asks for: the two may block each other.

func (c *Controller) fooAdded(foo *v1alpha1.Foo) {
	c.enqueueFoo(foo)
}

func (c *Controller) fooUpdated(old, foo *v1alpha1.Foo) {
	// A relist repeats what is known. So does a resync, but that one was asked for.
	if old.ResourceVersion == foo.ResourceVersion && !c.options.Resync {
		return
	}
	if old.UID != foo.UID {
		c.gate.forget(cache.MetaObjectToName(foo))
	}
	if old.UID != foo.UID || old.Generation != foo.Generation {
		// What went wrong with the old spec says nothing about the new one.
		c.queue.Forget(cache.MetaObjectToName(foo))
	}
	c.enqueueHolder(old)
	c.enqueueFoo(foo)
}

func (c *Controller) fooDeleted(gone fooinformers.DeletedFoo) {
	// A Foo of the same name may be there before the key is worked on.
	c.gate.forget(gone.GetObjectName())
	c.queue.Forget(gone.GetObjectName())
	c.queue.Add(gone.GetObjectName())
	if gone.OptionalObj != nil {
		c.enqueueHolder(gone.OptionalObj)
	}
}

func (c *Controller) enqueueFoo(foo *v1alpha1.Foo) {
	c.queue.Add(cache.MetaObjectToName(foo))
	c.enqueueHolder(foo)
}

// enqueueHolder wakes the Foo that controls the Deployment which foo asks for.
func (c *Controller) enqueueHolder(foo *v1alpha1.Foo) {
	if deployment, err := c.deployments.Deployments(foo.Namespace).Get(foo.Spec.DeploymentName); err == nil {
		c.enqueueOwner(deployment)
	}
}

// A Deployment's event wakes the Foo that controls it and every Foo that asks
// for its name.

func (c *Controller) deploymentAdded(deployment *appsv1.Deployment) {
	c.enqueueOwner(deployment)
	c.enqueueAskers(cache.MetaObjectToName(deployment))
}

func (c *Controller) deploymentUpdated(old, deployment *appsv1.Deployment) {
	if old.ResourceVersion == deployment.ResourceVersion {
		return
	}
	c.enqueueOwner(old)
	c.enqueueOwner(deployment)
	c.enqueueAskers(cache.MetaObjectToName(deployment))
}

func (c *Controller) deploymentDeleted(gone appsinformers.DeletedDeployment) {
	if gone.OptionalObj != nil {
		c.gate.sawDelete(gone.OptionalObj.UID)
		c.enqueueOwner(gone.OptionalObj)
	}
	c.enqueueAskers(gone.GetObjectName())
}

func (c *Controller) enqueueOwner(deployment *appsv1.Deployment) {
	if ref := controllingFoo(deployment); ref != nil {
		c.queue.Add(cache.NewObjectName(deployment.Namespace, ref.Name))
	}
}

func (c *Controller) enqueueAskers(deployment cache.ObjectName) {
	for _, foo := range lookUp(c.fooIndex, byName, deployment.String()) {
		c.queue.Add(cache.MetaObjectToName(foo))
	}
}

// processNextWorkItem syncs one key and decides when it is to be synced again.
// It returns false when there will be no more work.
func (c *Controller) processNextWorkItem(ctx, syncCtx context.Context) bool {
	key, shutdown := c.queue.Get()
	if shutdown {
		return false
	}
	defer c.queue.Done(key)
	// A queue that shuts down still hands out the keys it holds.
	if ctx.Err() != nil {
		return true
	}

	logger := klog.LoggerWithValues(klog.FromContext(ctx), "foo", key)
	syncCtx, cancel := context.WithTimeout(klog.NewContext(syncCtx, logger), syncTimeout)
	defer cancel()
	again, err := c.syncMeasured(syncCtx, key)
	if err == nil {
		c.queue.Forget(key)
		if again > 0 {
			c.queue.AddAfter(key, again)
		}
		return true
	}

	if isConflict(err) {
		logger.V(2).Info("Foo changed while it was being synced, trying again", "reason", err)
	} else {
		logger.Error(err, "Syncing Foo failed, trying again", "failures", c.queue.NumRequeues(key)+1)
	}
	delay := c.backoff.When(key)
	if !isRejection(err) {
		delay = min(delay, maxTransientBackoff)
	}
	retryAfter, _ := apierrors.SuggestsClientDelay(err)
	delay = max(delay, time.Duration(retryAfter)*time.Second)
	c.queue.AddAfter(key, delay)
	return true
}

// syncMeasured counts the sync, and shows that it is under way.
func (c *Controller) syncMeasured(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	began := c.clock.Now()
	c.pulse.began(key, began)
	again, err := c.syncRecovered(ctx, key)
	c.pulse.ended(key)
	c.metrics.synced(resultOf(again, err), c.clock.Since(began))
	return again, err
}

// syncRecovered turns a panic of the sync into an error, so that one Foo cannot
// stop the others.
func (c *Controller) syncRecovered(ctx context.Context, key cache.ObjectName) (again time.Duration, err error) {
	defer func() {
		if r := recover(); r != nil {
			c.metrics.panics.Inc()
			err = fmt.Errorf("panic: %v\n%s", r, debug.Stack())
		}
	}()
	return c.syncHandler(ctx, key)
}

// syncHandler brings the cluster one step nearer to what the Foo of that name
// asks for. It returns how long to wait before the next sync, 0 for until
// something happens, or the error for which to try again.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read the caches, once they show what the last sync wrote.
	if !c.gate.caughtUp(key, c.cacheVersions()) {
		c.metrics.staleCacheSkips.Inc()
		return staleCacheDelay, nil
	}
	foo, err := c.foos.Foos(key.Namespace).Get(key.Name)
	if apierrors.IsNotFound(err) || err == nil && foo.DeletionTimestamp != nil {
		// The garbage collector removes the Deployment.
		c.gate.forget(key)
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("reading Foo from the cache: %w", err)
	}
	deployment, err := c.cachedDeployment(key.Namespace, foo.Spec.DeploymentName)
	if err != nil {
		return 0, err
	}

	// 2. Decide.
	verdict := decide(foo, deployment)

	// 3. Act: on the Deployment of that name, then on those of former names.
	seen, err := c.act(ctx, foo, deployment, verdict)
	if err == nil {
		err = c.release(ctx, foo, seen)
	}
	switch {
	case apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause):
		return 0, nil
	case isRejection(err):
		seen.rejected, seen.former = err, c.formerNames(foo)
	case err != nil:
		return 0, err
	}

	// 4. Report.
	again, reportErr := c.report(ctx, foo, seen)
	if seen.ahead && again == 0 {
		// Should it be gone before the cache gets to see it, no event will tell.
		again = staleCacheDelay
	}
	return again, errors.Join(err, reportErr)
}

// cachedDeployment returns the Deployment of that name, nil if the cache has none.
// One that this process has deleted is shown as terminating, although the cache
// does not know yet.
func (c *Controller) cachedDeployment(namespace, name string) (*appsv1.Deployment, error) {
	deployment, err := c.deployments.Deployments(namespace).Get(name)
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	if err != nil {
		return nil, fmt.Errorf("reading Deployment %q from the cache: %w", name, err)
	}
	if c.gate.isDeleted(deployment.UID) {
		terminating := *deployment
		terminating.DeletionTimestamp = ptr.To(metav1.NewTime(c.clock.Now()))
		return &terminating, nil
	}
	return deployment, nil
}

// cacheVersions returns how far the caches have come.
func (c *Controller) cacheVersions() versions {
	return versions{
		foosResource:        c.fooIndex.LastStoreSyncResourceVersion(),
		deploymentsResource: c.deploymentIndex.LastStoreSyncResourceVersion(),
	}
}

// act carries the decision out and returns what is known of the Deployment
// afterwards: the API server's answer where there was a write, else cached.
func (c *Controller) act(ctx context.Context, foo *v1alpha1.Foo, cached *appsv1.Deployment, verdict decision) (observation, error) {
	seen := observation{deployment: cached, invalid: verdict.invalid}
	var err error
	if seen.pause, seen.contested, err = c.restrain(ctx, foo, verdict); err != nil {
		return seen, err
	}
	if seen.pause > 0 {
		return seen, nil
	}

	var written *appsv1.Deployment
	switch verdict.action {
	case actCreate:
		written, err = c.create(ctx, foo, verdict.create)
		if apierrors.IsAlreadyExists(err) {
			// The cache is behind. What is there decides, and it is never created a
			// second time: with a Deployment there is no such decision.
			live, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Get(ctx, foo.Spec.DeploymentName, metav1.GetOptions{})
			if err != nil {
				return seen, fmt.Errorf("reading Deployment %q: %w", foo.Spec.DeploymentName, err)
			}
			c.gate.wrote(cache.MetaObjectToName(foo), deploymentsResource, live.ResourceVersion)
			seen, err = c.act(ctx, foo, live, decide(foo, live))
			seen.ahead = true
			return seen, err
		}
	case actRepair:
		// Whoever undid the last repair may be another process of ours, which acts
		// on a newer spec than this cache has.
		if c.gate.repairedLately(cache.MetaObjectToName(foo), foo.Generation) {
			if err := c.confirm(ctx, foo); err != nil {
				return seen, err
			}
		}
		written, err = c.repair(ctx, foo, cached, verdict.repair)
	}
	if written != nil {
		seen.deployment, seen.fresh = written, true
	}
	return seen, err
}

func (c *Controller) create(ctx context.Context, foo *v1alpha1.Foo, deployment *appsv1.Deployment) (*appsv1.Deployment, error) {
	created, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Create(ctx, deployment, metav1.CreateOptions{FieldManager: controllerName})
	if err != nil {
		return nil, fmt.Errorf("creating Deployment %q: %w", deployment.Name, err)
	}
	c.metrics.wrote("deployments", "create")
	c.gate.wrote(cache.MetaObjectToName(foo), deploymentsResource, created.ResourceVersion)
	if err := overridden(foo, created); err != nil {
		return created, fmt.Errorf("creating Deployment %q: %w", created.Name, err)
	}
	klog.FromContext(ctx).V(2).Info("Created Deployment", "deployment", klog.KObj(created))
	c.recorder.Eventf(foo, corev1.EventTypeNormal, eventCreated, "Created Deployment %q", created.Name)
	return created, nil
}

func (c *Controller) repair(ctx context.Context, foo *v1alpha1.Foo, cached *appsv1.Deployment, drift repair) (*appsv1.Deployment, error) {
	patched, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Patch(ctx, cached.Name, types.StrategicMergePatchType, drift.patch, metav1.PatchOptions{FieldManager: controllerName})
	if err != nil {
		return nil, fmt.Errorf("updating Deployment %q: %w", cached.Name, err)
	}
	c.metrics.wrote("deployments", "patch")
	c.gate.wrote(cache.MetaObjectToName(foo), deploymentsResource, patched.ResourceVersion)
	if err := overridden(foo, patched); err != nil {
		return patched, fmt.Errorf("updating Deployment %q: %w", patched.Name, err)
	}
	c.gate.repaired(cache.MetaObjectToName(foo), foo.Generation)
	klog.FromContext(ctx).V(2).Info("Updated Deployment", "deployment", klog.KObj(patched), "changes", drift.String())
	c.recorder.Eventf(foo, corev1.EventTypeNormal, eventUpdated, "Updated Deployment %q: %s", patched.Name, drift)
	return patched, nil
}

// report writes the Foo's status if it differs from the cached one, and tells
// the transition of Ready as an event. It returns how long a status that tells
// of mere progress is put off.
func (c *Controller) report(ctx context.Context, foo *v1alpha1.Foo, seen observation) (time.Duration, error) {
	key := cache.MetaObjectToName(foo)
	status := newStatus(foo, seen, metav1.NewTime(c.clock.Now()))
	if equality.Semantic.DeepEqual(foo.Status, status) {
		c.gate.reported(key)
		return seen.pause, nil
	}
	if isProgress(&status) {
		if wait := c.gate.putOff(key); wait > 0 {
			return wait, nil
		}
	}

	// A PUT with the cached uid and resourceVersion: a status PATCH with a wrong
	// uid would be accepted in silence.
	updated := *foo
	updated.Status = status
	written, err := c.fooClient.SamplecontrollerV1alpha1().Foos(foo.Namespace).UpdateStatus(ctx, &updated, metav1.UpdateOptions{FieldManager: controllerName})
	if err != nil {
		return 0, fmt.Errorf("updating the status of Foo: %w", err)
	}
	c.metrics.wrote("foos/status", "update")
	c.gate.wrote(key, foosResource, written.ResourceVersion)
	c.gate.reported(key)
	if change := transitionOf(&foo.Status, &status); change != nil {
		c.recorder.Event(foo, change.eventType, change.reason, change.message)
	}
	return seen.pause, nil
}
