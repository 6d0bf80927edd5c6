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

// Package memcached is the controller of Memcacheds: it keeps a Deployment and a headless
// Service of the same name for each, and reports the Deployment's Pods in the status.
// docs/memcached.md is its contract.
package memcached

import (
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	corelisters "k8s.io/client-go/listers/core/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	memcachedinformers "example.com/sample-controller/pkg/generated/informers/externalversions/cache/v1alpha1"
	memcachedlisters "example.com/sample-controller/pkg/generated/listers/cache/v1alpha1"
)

// byOwner indexes ReplicaSets by the Deployment and Pods by the ReplicaSet that controls
// them.
const byOwner = "controller"

// Controller turns each Memcached into a Deployment and a Service of its name.
//
// An event of a Memcached, a Deployment, a Service, a ReplicaSet or a Pod enqueues the key of
// the Memcached that it concerns. A worker takes a key and calls syncHandler, which reads the
// caches, decides (memcached.go, service.go), makes at most one write to the Deployment and one
// to the Service, gathers the names of the live Pods (nodes.go), and writes the Memcached's
// status if it changed. The watch events of these writes enqueue the Memcached again, and that
// sync finds nothing to do. A sync that fails is retried with backoff.
type Controller struct {
	kubeClient kubernetes.Interface
	client     clientset.Interface

	memcacheds        memcachedlisters.MemcachedLister
	deployments       appslisters.DeploymentLister
	services          corelisters.ServiceLister
	replicaSets       appslisters.ReplicaSetLister
	replicaSetIndexer cache.TypedIndexer[*appsv1.ReplicaSet]
	podIndexer        cache.TypedIndexer[*corev1.Pod]

	worker      *controller.Worker
	consistency *controller.ConsistencyStore
	contention  *controller.ContentionDetector
	admitted    *controller.AdmittedValues
	// Fields of a Service and of a Deployment may have the same name.
	serviceContention *controller.ContentionDetector
	serviceAdmitted   *controller.AdmittedValues
	debouncer         *controller.StatusDebouncer

	recorder record.EventRecorder
	clock    clock.PassiveClock
	metrics  controller.Counters
}

// Options are what a Controller needs. All are required.
type Options struct {
	KubeClient  kubernetes.Interface
	Client      clientset.Interface
	Memcacheds  memcachedinformers.TypedMemcachedInformer
	Deployments appsinformers.TypedDeploymentInformer
	Services    coreinformers.TypedServiceInformer
	// ReplicaSets and Pods need hold only those with the label NodeSelector, trimmed by
	// TrimNode.
	ReplicaSets appsinformers.TypedReplicaSetInformer
	Pods        coreinformers.TypedPodInformer

	controller.Options
}

// New returns a Controller whose syncHandler and event handlers are registered with the
// Worker. It adds indexes to the informers, and returns an error if that fails. The informers
// of Deployments and Services may already run, for another controller.
func New(ctx context.Context, options Options) (*Controller, error) {
	memcacheds, deployments := options.Memcacheds.TypedInformer(), options.Deployments.TypedInformer()
	services := options.Services.TypedInformer()
	replicaSets, pods := options.ReplicaSets.TypedInformer(), options.Pods.TypedInformer()
	c := &Controller{
		kubeClient:        options.KubeClient,
		client:            options.Client,
		memcacheds:        options.Memcacheds.Lister(),
		deployments:       options.Deployments.Lister(),
		services:          options.Services.Lister(),
		replicaSets:       options.ReplicaSets.Lister(),
		replicaSetIndexer: replicaSets.GetTypedIndexer(),
		podIndexer:        pods.GetTypedIndexer(),
		worker:            options.Worker,
		consistency: controller.NewConsistencyStore(options.Clock, map[schema.GroupResource]controller.LastSyncRVGetter{
			v1alpha1.Resource("memcacheds"): memcacheds.GetStore(), appsv1.Resource("deployments"): deployments.GetStore(),
			corev1.Resource("services"): services.GetStore(),
		}),
		contention:        controller.NewContentionDetector(options.Clock),
		admitted:          controller.NewAdmittedValues(),
		serviceContention: controller.NewContentionDetector(options.Clock),
		serviceAdmitted:   controller.NewAdmittedValues(),
		debouncer:         options.Worker.Debouncer,
		recorder:          options.Recorder,
		clock:             options.Clock,
		metrics:           options.Metrics.Of(memcachedKind),
	}

	if err := replicaSets.AddTypedIndexers(appsinformers.ReplicaSetIndexers{byOwner: controller.IndexByOwner[*appsv1.ReplicaSet](appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind())}); err != nil {
		return nil, fmt.Errorf("adding an index to the ReplicaSet informer: %w", err)
	}
	if err := pods.AddTypedIndexers(coreinformers.PodIndexers{byOwner: controller.IndexByOwner[*corev1.Pod](appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind())}); err != nil {
		return nil, fmt.Errorf("adding an index to the Pod informer: %w", err)
	}
	klog.FromContext(ctx).Info("Setting up event handlers")
	controller.AddEventHandler(c.worker, memcachedKind, memcacheds, memcachedinformers.MemcachedHandlerFuncs{
		AddFunc: c.enqueueMemcached, UpdateFunc: c.updateMemcached, DeleteFunc: c.deleteMemcached,
	})
	controller.AddEventHandler(c.worker, "Deployment", deployments, appsinformers.DeploymentHandlerFuncs{
		AddFunc: c.addDeployment, UpdateFunc: c.updateDeployment, DeleteFunc: c.deleteDeployment,
	})
	controller.AddEventHandler(c.worker, "Service", services, coreinformers.ServiceHandlerFuncs{
		AddFunc: c.addService, UpdateFunc: c.updateService, DeleteFunc: c.deleteService,
	})
	controller.AddEventHandler(c.worker, "ReplicaSet", replicaSets, c.replicaSetHandlers())
	controller.AddEventHandler(c.worker, "Pod", pods, c.podHandlers())
	c.worker.Handle(options.Namespace, c.syncHandler)
	options.Metrics.CountByReady("Memcacheds", memcacheds.GetStore())
	return c, nil
}

func (c *Controller) enqueueMemcached(memcached *v1alpha1.Memcached) {
	c.worker.Enqueue(cache.MetaObjectToName(memcached))
}

func (c *Controller) updateMemcached(old, memcached *v1alpha1.Memcached) {
	if old.ResourceVersion == memcached.ResourceVersion {
		c.worker.EnqueueUnchanged(cache.MetaObjectToName(memcached))
		return
	}
	if c.consistency.WriteObserved(cache.MetaObjectToName(memcached), memcached.UID, v1alpha1.Resource("memcacheds"), memcached.ResourceVersion) {
		// This is the event of the controller's own write. If it enqueued the object, a refusal
		// whose message differs each time would be retried without backoff.
		return
	}
	if old.UID != memcached.UID {
		c.clear(cache.MetaObjectToName(memcached))
	}
	if old.UID != memcached.UID || old.Generation != memcached.Generation {
		// The failures of the old spec say nothing about the new one.
		c.worker.Queue.Forget(cache.MetaObjectToName(memcached))
	}
	c.enqueueMemcached(memcached)
}

func (c *Controller) deleteMemcached(deleted memcachedinformers.DeletedMemcached) {
	c.clear(deleted.GetObjectName())
	c.worker.Queue.Forget(deleted.GetObjectName())
	c.worker.Enqueue(deleted.GetObjectName())
}

func (c *Controller) addDeployment(added *appsv1.Deployment) {
	c.handleObject(added)
}

func (c *Controller) updateDeployment(old, updated *appsv1.Deployment) {
	if old.ResourceVersion == updated.ResourceVersion {
		return
	}
	// The owner reference may have changed: both Memcacheds are concerned.
	c.enqueueControllerOf(old)
	c.handleObject(updated)
}

func (c *Controller) deleteDeployment(deleted appsinformers.DeletedDeployment) {
	if deleted.OptionalObj != nil {
		c.enqueueControllerOf(deleted.OptionalObj)
	}
	c.enqueueClaimant(deleted.GetObjectName())
}

func (c *Controller) addService(added *corev1.Service) {
	c.handleObject(added)
}

func (c *Controller) updateService(old, updated *corev1.Service) {
	if old.ResourceVersion == updated.ResourceVersion {
		return
	}
	c.enqueueControllerOf(old)
	c.handleObject(updated)
}

func (c *Controller) deleteService(deleted coreinformers.DeletedService) {
	if deleted.OptionalObj != nil {
		c.enqueueControllerOf(deleted.OptionalObj)
	}
	c.enqueueClaimant(deleted.GetObjectName())
}

// handleObject enqueues the Memcached that controls the Deployment or Service, and the one of
// its name.
func (c *Controller) handleObject(object metav1.Object) {
	c.enqueueControllerOf(object)
	c.enqueueClaimant(cache.MetaObjectToName(object))
}

// enqueueControllerOf enqueues the Memcached that controls the object, if one does.
func (c *Controller) enqueueControllerOf(object metav1.Object) {
	if ref := controller.ControllerOf(object, memcachedGVK().GroupKind()); ref != nil {
		c.worker.Enqueue(cache.NewObjectName(object.GetNamespace(), ref.Name))
	}
}

// enqueueClaimant enqueues the Memcached that asks for the Deployment and the Service of that
// name: the one of the same name.
func (c *Controller) enqueueClaimant(name cache.ObjectName) {
	if _, err := c.memcacheds.Memcacheds(name.Namespace).Get(name.Name); err == nil {
		c.worker.Enqueue(name)
	}
}

// clear drops what the process remembers about a Memcached that is deleted or replaced.
func (c *Controller) clear(key cache.ObjectName) {
	c.consistency.Clear(key, "")
	c.contention.Clear(key)
	c.admitted.Clear(key)
	c.serviceContention.Clear(key)
	c.serviceAdmitted.Clear(key)
	c.debouncer.Reset(key)
}

// The admission plugin OwnerReferencesPermissionEnforcement requires update on memcacheds/finalizers to set blockOwnerDeletion.
// +kubebuilder:rbac:groups=cache.example.com,resources=memcacheds,verbs=get;list;watch
// +kubebuilder:rbac:groups=cache.example.com,resources=memcacheds/status;memcacheds/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch

// syncHandler brings the cluster one step closer to what the Memcached of that name asks
// for. It returns how long to wait before the next sync, 0 to wait for an event, or the
// error for which to retry with backoff.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read from the caches, once they show what the last sync wrote.
	if err := c.consistency.EnsureReady(key); err != nil {
		return 0, err
	}
	memcached, err := c.memcacheds.Memcacheds(key.Namespace).Get(key.Name)
	switch {
	case err == nil && memcached.DeletionTimestamp == nil:
	case err == nil || apierrors.IsNotFound(err):
		// The garbage collector deletes the Deployment and the Service.
		c.clear(key)
		return 0, nil
	default:
		return 0, fmt.Errorf("reading Memcached from the cache: %w", err)
	}
	cached, err := orNil(c.deployments.Deployments(key.Namespace).Get(key.Name))
	if err != nil {
		return 0, fmt.Errorf("reading Deployment %q from the cache: %w", key.Name, err)
	}
	cachedService, err := orNil(c.services.Services(key.Namespace).Get(key.Name))
	if err != nil {
		return 0, fmt.Errorf("reading Service %q from the cache: %w", key.Name, err)
	}

	// 2. Decide.
	d := decide(memcached, cached, c.admitted.Get(key, memcached.Generation)...)

	// 3. Act: at most one write to the Deployment, then one to the Service.
	result, err := c.syncDeployment(ctx, memcached, cached, d)
	switch {
	case err == nil:
	case controller.IsNamespaceTerminating(err):
		return 0, nil
	case controller.IsRejection(err):
		result.Rejected = err
	default:
		return 0, err
	}

	var service serviceResult
	if result.Invalid == "" && hasDeployment(memcached, result) {
		// A Memcached that owns no Deployment has no Pods, and must not occupy the name of a Service.
		service = c.syncService(ctx, memcached, cachedService)
	}
	if controller.IsNamespaceTerminating(service.err) {
		return 0, nil
	}

	// 4. Report.
	result.Admitted, service.admitted = c.admitted.Get(key, memcached.Generation), c.serviceAdmitted.Get(key, memcached.Generation)
	now := c.clock.Now()
	delay, statusErr := c.updateMemcachedStatus(ctx, memcached, result, service, now)
	// A deadline that passes during the write is after now, so that the Memcached is synced then.
	return service.requeueAfter(result.RequeueAfter(delay, now)), errors.Join(err, service.err, statusErr)
}

// orNil returns nil for an object that the cache does not have.
func orNil[T any](object *T, err error) (*T, error) {
	if apierrors.IsNotFound(err) {
		return nil, nil
	}
	return object, err
}

// syncDeployment carries out the decision with at most one write to the Deployment that
// the Memcached asks for. current is that Deployment, nil if there is none.
func (c *Controller) syncDeployment(ctx context.Context, memcached *v1alpha1.Memcached, current *appsv1.Deployment, d deployment.Decision) (deployment.Result, error) {
	result := deployment.Result{Deployment: current, Invalid: d.Invalid}
	if d.Action == deployment.NotOwned {
		return result, nil
	}
	var err error
	if result.Contention, err = c.checkContention(ctx, memcached, d); err != nil || result.Contention.HoldsBack() {
		return result, err
	}
	switch d.Action {
	case deployment.Create:
		created, err := c.createDeployment(ctx, memcached, d.Desired)
		if apierrors.IsAlreadyExists(err) {
			return c.syncLiveDeployment(ctx, memcached)
		}
		result.Wrote(created)
		return result, err
	case deployment.Repair:
		patched, err := c.patchDeployment(ctx, memcached, current, d.Patch)
		result.Wrote(patched)
		return result, err
	}
	return result, nil
}

// syncLiveDeployment decides again on a live read, because the cache does not show the
// Deployment yet. The decision for an existing Deployment is never "create", so this
// cannot loop.
func (c *Controller) syncLiveDeployment(ctx context.Context, memcached *v1alpha1.Memcached) (deployment.Result, error) {
	live, err := c.kubeClient.AppsV1().Deployments(memcached.Namespace).Get(ctx, memcached.Name, metav1.GetOptions{})
	if err != nil {
		return deployment.Result{}, fmt.Errorf("reading Deployment %q: %w", memcached.Name, err)
	}
	// The next sync must not read the cache before it shows what was read here.
	key := cache.MetaObjectToName(memcached)
	c.consistency.WroteAt(key, memcached.UID, appsv1.Resource("deployments"), live.ResourceVersion)
	result, err := c.syncDeployment(ctx, memcached, live, decide(memcached, live, c.admitted.Get(key, memcached.Generation)...))
	result.CacheBehind = true
	return result, err
}

// checkContention tells whether another writer undoes what this controller would do to the
// Deployment now. Without it two controllers would overwrite each other for ever.
func (c *Controller) checkContention(ctx context.Context, memcached *v1alpha1.Memcached, d deployment.Decision) (controller.Contention, error) {
	key := cache.MetaObjectToName(memcached)
	contention := c.contention.Check(key, memcached.Generation, d.Drifted()...)
	if len(contention.Undone) == 0 || contention.Message != "" {
		return contention, nil
	}
	if d.Action == deployment.Create {
		contention.Message = deployment.DescribeDeletions(memcachedKind, memcached.Name)
	} else {
		live, err := c.kubeClient.AppsV1().Deployments(memcached.Namespace).Get(ctx, memcached.Name, metav1.GetOptions{})
		if err != nil {
			return contention, fmt.Errorf("reading Deployment %q: %w", memcached.Name, err)
		}
		contention.Message = deployment.DescribeContention(memcachedKind, live, d.Patch, contention.Undone)
	}
	c.contention.Describe(key, contention.Message)
	return contention, nil
}

// createDeployment creates the Deployment and returns the API server's answer. If admission
// replaced the owner reference, it returns both the answer and an error. Other values that
// admission replaced are accepted.
func (c *Controller) createDeployment(ctx context.Context, memcached *v1alpha1.Memcached, desired *appsv1.Deployment) (*appsv1.Deployment, error) {
	if hadDeployment(memcached) {
		// The cache may still show a Memcached that is gone, when its Deployment has been deleted for that.
		if err := c.checkLiveMemcached(ctx, memcached); err != nil {
			return nil, err
		}
	}
	created, err := c.kubeClient.AppsV1().Deployments(memcached.Namespace).Create(ctx, desired, metav1.CreateOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("creating Deployment %q: %w", desired.Name, err)
	}
	key := cache.MetaObjectToName(memcached)
	c.metrics.Wrote("deployments", "create")
	c.consistency.WroteAt(key, memcached.UID, appsv1.Resource("deployments"), created.ResourceVersion)
	admitted, err := checkAdmitted(memcached, created)
	c.contention.Created(key, memcached.Generation, hadDeployment(memcached), admitted...)
	if err != nil {
		return created, fmt.Errorf("creating Deployment %q: %w", created.Name, err)
	}
	c.admitted.Set(key, memcached.Generation, admitted)
	klog.FromContext(ctx).V(2).Info("Created Deployment", "deployment", klog.KObj(created))
	c.recorder.Eventf(memcached, corev1.EventTypeNormal, deployment.EventCreated, "Created Deployment %q", created.Name)
	return created, nil
}

// patchDeployment repairs the fields that have drifted and returns the API server's answer.
// If admission replaced the owner reference, it returns both the answer and an error. Other
// values that admission replaced are accepted.
func (c *Controller) patchDeployment(ctx context.Context, memcached *v1alpha1.Memcached, current *appsv1.Deployment, patch controller.Patch) (*appsv1.Deployment, error) {
	key := cache.MetaObjectToName(memcached)
	if c.contention.RepairedRecently(key, memcached.Generation) {
		// The writer that undid the last repair may be another replica of this controller,
		// which acts on a newer spec than this cache has.
		if err := c.checkLiveMemcached(ctx, memcached); err != nil {
			return nil, err
		}
	}
	patched, err := c.kubeClient.AppsV1().Deployments(memcached.Namespace).Patch(ctx, current.Name, types.StrategicMergePatchType, patch.JSON(), metav1.PatchOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("updating Deployment %q: %w", current.Name, err)
	}
	c.metrics.Wrote("deployments", "patch")
	if patched.ResourceVersion != current.ResourceVersion {
		// A patch without an effect causes no event, and so no sync that would drop the record.
		c.consistency.WroteAt(key, memcached.UID, appsv1.Resource("deployments"), patched.ResourceVersion)
	}
	c.contention.Repaired(key, memcached.Generation, patch.Fields()...)
	admitted, err := checkAdmitted(memcached, patched)
	if err != nil {
		return patched, fmt.Errorf("updating Deployment %q: %w", patched.Name, err)
	}
	c.admitted.Set(key, memcached.Generation, admitted)
	klog.FromContext(ctx).V(2).Info("Patched Deployment", "deployment", klog.KObj(patched), "changes", patch.String())
	if effective := patch.Effective(admitted); !effective.IsEmpty() {
		c.recorder.Eventf(memcached, corev1.EventTypeNormal, deployment.EventUpdated, "Updated Deployment %q: %s", patched.Name, effective)
	}
	return patched, nil
}

// checkLiveMemcached returns nil if the API server has the Memcached as the cache does, and
// controller.ErrStaleCache if the live one is gone, terminating, or has another UID or
// generation: another process may have acted on a newer spec.
func (c *Controller) checkLiveMemcached(ctx context.Context, memcached *v1alpha1.Memcached) error {
	live, err := c.client.CacheV1alpha1().Memcacheds(memcached.Namespace).Get(ctx, memcached.Name, metav1.GetOptions{})
	if err := controller.CheckLive(memcached, live, err); err != nil {
		return fmt.Errorf("reading Memcached %s: %w", klog.KObj(memcached), err)
	}
	return nil
}

// updateMemcachedStatus writes the Memcached's status if it differs from the cached one,
// and records an event if the Memcached became Ready or has a new problem, and one if its
// Service has. It returns how long a status that reports only progress is delayed.
func (c *Controller) updateMemcachedStatus(ctx context.Context, memcached *v1alpha1.Memcached, result deployment.Result, service serviceResult, now time.Time) (time.Duration, error) {
	key := cache.MetaObjectToName(memcached)
	status := newStatus(memcached, result, c.nodesOf(result.Deployment), metav1.NewTime(now))
	serviceEvent := reportService(memcached, &status, service)
	if equality.Semantic.DeepEqual(memcached.Status, status) {
		c.debouncer.Reset(key)
		return 0, nil
	}
	if isProgress(memcached, &status) {
		if delay := c.debouncer.Delay(key); delay > 0 {
			return delay, nil
		}
	}

	// A PUT carries the cached uid and resourceVersion. The API server would silently accept
	// a PATCH of the status with the uid of an earlier Memcached.
	updated := memcached.DeepCopy()
	updated.Status = status
	written, err := c.client.CacheV1alpha1().Memcacheds(memcached.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return 0, fmt.Errorf("updating the status of Memcached: %w", err)
	}
	c.metrics.Wrote("memcacheds/status", "update")
	c.consistency.WroteAt(key, memcached.UID, v1alpha1.Resource("memcacheds"), written.ResourceVersion)
	c.debouncer.Reset(key)
	old, ready := controller.GetReady(memcached.Status.Conditions), controller.GetReady(status.Conditions)
	klog.FromContext(ctx).V(2).Info("Updated status", "ready", ready.Status, "reason", ready.Reason)
	for _, event := range []*controller.Event{readyEvent(old, ready), serviceEvent} {
		if event != nil {
			c.recorder.Event(memcached, event.Type, event.Reason, event.Message)
		}
	}
	return 0, nil
}
