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
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	foolisters "example.com/sample-controller/pkg/generated/listers/samplecontroller/v1alpha1"
)

// Indexes of the informers.
const (
	// deploymentByOwner indexes Deployments by the Foo that controls them.
	deploymentByOwner = "controllingFoo"
	// byDeploymentName indexes Foos by the Deployment that they ask for.
	byDeploymentName = "wantedDeployment"
)

// Controller turns each Foo into the Deployment that its spec names.
//
// An event of a Foo or a Deployment enqueues the keys of the Foos that it may concern. A
// worker takes a key and calls syncHandler, which reads the caches, decides (foo.go), makes
// at most one write to the Deployment that the spec names, deletes the Deployments of former
// names once that one is rolled out (rename.go), and writes the Foo's status if it changed.
// The watch event of a write to a Deployment enqueues the Foo again, and that sync finds
// nothing to do. A sync that fails is retried with backoff.
type Controller struct {
	kubeClient kubernetes.Interface
	fooClient  clientset.Interface

	foos              foolisters.FooLister
	deployments       appslisters.DeploymentLister
	fooIndexer        cache.TypedIndexer[*v1alpha1.Foo]
	deploymentIndexer cache.TypedIndexer[*appsv1.Deployment]

	worker      *controller.Worker
	consistency *controller.ConsistencyStore
	deletions   *controller.DeletionExpectations
	contention  *controller.ContentionDetector
	admitted    *controller.AdmittedValues
	debouncer   *controller.StatusDebouncer

	recorder record.EventRecorder
	clock    clock.PassiveClock
	metrics  controller.Counters
}

// ControllerOptions are what a Controller needs. All are required.
type ControllerOptions struct {
	KubeClient  kubernetes.Interface
	FooClient   clientset.Interface
	Deployments appsinformers.TypedDeploymentInformer
	Foos        fooinformers.TypedFooInformer

	controller.Options
}

// NewController returns a Controller whose syncHandler and event handlers are registered with
// the Worker. It adds indexes to the informers, and returns an error if that fails. The
// informer of Deployments may already be running for another controller.
func NewController(ctx context.Context, options ControllerOptions) (*Controller, error) {
	foos, deployments := options.Foos.TypedInformer(), options.Deployments.TypedInformer()
	c := &Controller{
		kubeClient:        options.KubeClient,
		fooClient:         options.FooClient,
		foos:              options.Foos.Lister(),
		deployments:       options.Deployments.Lister(),
		fooIndexer:        foos.GetTypedIndexer(),
		deploymentIndexer: deployments.GetTypedIndexer(),
		worker:            options.Worker,
		consistency: controller.NewConsistencyStore(options.Clock, map[schema.GroupResource]controller.LastSyncRVGetter{
			v1alpha1.Resource("foos"): foos.GetStore(), appsv1.Resource("deployments"): deployments.GetStore(),
		}),
		deletions:  controller.NewDeletionExpectations(options.Clock),
		contention: controller.NewContentionDetector(options.Clock),
		admitted:   controller.NewAdmittedValues(),
		debouncer:  options.Worker.Debouncer,
		recorder:   options.Recorder,
		clock:      options.Clock,
		metrics:    options.Metrics.Of(fooKind),
	}
	if err := foos.AddTypedIndexers(fooinformers.FooIndexers{byDeploymentName: indexByDeploymentName}); err != nil {
		return nil, fmt.Errorf("adding an index to the Foo informer: %w", err)
	}
	if err := deployments.AddTypedIndexers(appsinformers.DeploymentIndexers{deploymentByOwner: controller.IndexByOwner[*appsv1.Deployment](fooGVK().GroupKind())}); err != nil {
		return nil, fmt.Errorf("adding an index to the Deployment informer: %w", err)
	}
	klog.FromContext(ctx).Info("Setting up event handlers")
	controller.AddEventHandler(c.worker, fooKind, foos, fooinformers.FooHandlerFuncs{
		AddFunc: c.addFoo, UpdateFunc: c.updateFoo, DeleteFunc: c.deleteFoo,
	})
	controller.AddEventHandler(c.worker, "Deployment", deployments, appsinformers.DeploymentHandlerFuncs{
		AddFunc: c.handleObject, UpdateFunc: c.updateDeployment, DeleteFunc: c.deleteDeployment,
	})
	c.worker.Handle(options.Namespace, c.syncHandler)
	options.Metrics.CountByReady("Foos", foos.GetStore())
	return c, nil
}

// A Foo's event enqueues that Foo, and the Foo that controls the Deployment which it asks or
// asked for: one may wait for the other to give up the name. If the name changes or the Foo
// begins to terminate, it also enqueues the Foos whose messages depend on that.

func (c *Controller) addFoo(foo *v1alpha1.Foo) {
	c.enqueueFoo(foo)
	c.enqueueOwnerOfWanted(foo)
}

func (c *Controller) updateFoo(old, foo *v1alpha1.Foo) {
	if old.ResourceVersion == foo.ResourceVersion {
		c.worker.EnqueueUnchanged(cache.MetaObjectToName(foo))
		return
	}
	if c.consistency.WriteObserved(cache.MetaObjectToName(foo), foo.UID, v1alpha1.Resource("foos"), foo.ResourceVersion) {
		// This is the event of the controller's own write. If it enqueued the object, a refusal
		// whose message differs each time would be retried without backoff.
		return
	}
	if old.UID != foo.UID {
		c.clear(cache.MetaObjectToName(foo))
	}
	if old.UID != foo.UID || old.Generation != foo.Generation {
		// The backoff belongs to the old spec.
		c.worker.Queue.Forget(cache.MetaObjectToName(foo))
	}
	c.enqueueFoo(foo)
	c.enqueueOwnerOfWanted(old)
	c.enqueueOwnerOfWanted(foo)
	if old.Spec.DeploymentName != foo.Spec.DeploymentName {
		// The messages of Foos that wait for the name say whether its owner still asks for it.
		c.enqueueClaimants(cache.NewObjectName(old.Namespace, old.Spec.DeploymentName))
		c.enqueueClaimants(cache.NewObjectName(foo.Namespace, foo.Spec.DeploymentName))
	}
	if old.DeletionTimestamp == nil && foo.DeletionTimestamp != nil {
		// The messages of Foos that wait for its Deployments may say that it is being renamed. A
		// finalizer may hold it for long, and no event of the Deployments comes before its end.
		for _, d := range controller.LookUp(c.deploymentIndexer, deploymentByOwner, controller.OwnerKey(foo.Namespace, foo.UID)) {
			c.enqueueClaimants(cache.MetaObjectToName(d))
		}
	}
}

func (c *Controller) deleteFoo(deleted fooinformers.DeletedFoo) {
	c.clear(deleted.GetObjectName())
	c.worker.Queue.Forget(deleted.GetObjectName())
	c.worker.Enqueue(deleted.GetObjectName())
	if deleted.OptionalObj != nil {
		c.enqueueOwnerOfWanted(deleted.OptionalObj)
	}
}

func (c *Controller) updateDeployment(old, updated *appsv1.Deployment) {
	if old.ResourceVersion == updated.ResourceVersion {
		return
	}
	// The owner reference may have changed: both Foos are concerned.
	c.enqueueControllerOf(old)
	c.handleObject(updated)
}

func (c *Controller) deleteDeployment(deleted appsinformers.DeletedDeployment) {
	if deleted.OptionalObj != nil {
		c.deletions.DeletionObserved(deleted.OptionalObj.UID)
		c.enqueueControllerOf(deleted.OptionalObj)
	}
	c.enqueueClaimants(deleted.GetObjectName())
}

// handleObject enqueues the Foo that controls the Deployment, and every Foo that asks for
// the Deployment's name.
func (c *Controller) handleObject(object *appsv1.Deployment) {
	c.enqueueControllerOf(object)
	c.enqueueClaimants(cache.MetaObjectToName(object))
}

func (c *Controller) enqueueFoo(foo *v1alpha1.Foo) {
	c.worker.Enqueue(cache.MetaObjectToName(foo))
}

// enqueueControllerOf enqueues the Foo that controls the Deployment, if a Foo does.
func (c *Controller) enqueueControllerOf(object *appsv1.Deployment) {
	if ref := controller.ControllerOf(object, fooGVK().GroupKind()); ref != nil {
		c.worker.Enqueue(cache.NewObjectName(object.Namespace, ref.Name))
	}
}

// enqueueOwnerOfWanted enqueues the Foo that controls the Deployment which foo asks for.
func (c *Controller) enqueueOwnerOfWanted(foo *v1alpha1.Foo) {
	if object, err := c.deployments.Deployments(foo.Namespace).Get(foo.Spec.DeploymentName); err == nil {
		c.enqueueControllerOf(object)
	}
}

// enqueueClaimants enqueues every Foo that asks for the Deployment's name.
func (c *Controller) enqueueClaimants(name cache.ObjectName) {
	for _, foo := range controller.LookUp(c.fooIndexer, byDeploymentName, name.String()) {
		c.enqueueFoo(foo)
	}
}

// clear drops what the process remembers about a Foo that is deleted or replaced.
func (c *Controller) clear(key cache.ObjectName) {
	c.consistency.Clear(key, "")
	c.contention.Clear(key)
	c.admitted.Clear(key)
	c.debouncer.Reset(key)
}

// The admission plugin OwnerReferencesPermissionEnforcement requires update on foos/finalizers
// to set blockOwnerDeletion.
// +kubebuilder:rbac:groups=samplecontroller.k8s.io,resources=foos,verbs=get;list;watch
// +kubebuilder:rbac:groups=samplecontroller.k8s.io,resources=foos/status;foos/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch

// syncHandler brings the cluster one step closer to what the Foo of that name asks for. It
// returns how long to wait before the next sync, 0 to wait for an event, or an error,
// after which the Worker retries with backoff.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read from the caches, once they show what the last sync wrote.
	if err := c.consistency.EnsureReady(key); err != nil {
		return 0, err
	}
	foo, err := c.foos.Foos(key.Namespace).Get(key.Name)
	switch {
	case err == nil && foo.DeletionTimestamp == nil:
	case err == nil || apierrors.IsNotFound(err):
		// The garbage collector deletes the Deployment.
		c.clear(key)
		return 0, nil
	default:
		return 0, fmt.Errorf("reading Foo from the cache: %w", err)
	}
	cached, err := c.cachedDeployment(key.Namespace, foo.Spec.DeploymentName)
	if err != nil {
		return 0, err
	}

	// 2. Decide.
	old := c.oldDeployments(foo)
	applied, d := decideNow(foo, cached, old, c.admitted.Get(key, foo.Generation)...)

	// 3. Act: create or patch the Deployment that the spec names, then delete those of former
	// names, also if the API server refused a repair: the rollout may be complete all the same.
	result, err := c.syncDeployment(ctx, applied, cached, d)
	if apierrors.IsAlreadyExists(err) {
		result, err = c.syncLiveDeployment(ctx, foo, old)
	}
	if !result.Adopted && (err == nil || controller.IsRejection(err)) {
		if result.Waits != "" {
			// What admission made of the temporary 0 replicas is not accepted for those of the spec.
			c.admitted.Drop(key, "replicas")
			result.WaitsFor = old.recreated()
		}
		if result.Deployment != nil && ptr.Deref(result.Deployment.Spec.Replicas, 1) > 0 {
			result.Waits, result.WaitsFor = "", nil
		}
		// A refusal hides an error of the cleanup: the sync is retried anyway.
		err = cmp.Or(err, c.cleanupOldDeployments(ctx, foo, &old, &result))
	}
	switch {
	case err == nil && result.Adopted:
		// The next sync compares the Deployment with the spec and reports.
		return result.RequeueAfter(0, c.clock.Now()), nil
	case err == nil:
	case controller.IsNamespaceTerminating(err):
		return 0, nil
	case controller.IsRejection(err):
		result.Rejected = err
	default:
		return 0, err
	}

	// 4. Report.
	result.Others = describeOldDeployments(foo, result, old)
	result.Admitted = c.admitted.Get(key, foo.Generation)
	now := c.clock.Now()
	delay, statusErr := c.updateFooStatus(ctx, foo, result, now)
	// now is from before the write, so a termination deadline that passes during it still causes a sync.
	return result.RequeueAfter(delay, now), errors.Join(err, statusErr)
}

// cachedDeployment returns the Deployment of that name, nil if the cache has none. If this
// process has deleted it and the cache does not show that yet, it returns a copy with a
// deletionTimestamp.
func (c *Controller) cachedDeployment(namespace, name string) (*appsv1.Deployment, error) {
	cached, err := c.deployments.Deployments(namespace).Get(name)
	switch {
	case err == nil:
	case apierrors.IsNotFound(err):
		return nil, nil
	default:
		return nil, fmt.Errorf("reading Deployment %q from the cache: %w", name, err)
	}
	if c.deletions.DeletionExpected(cached.UID) {
		terminating := *cached
		terminating.DeletionTimestamp = ptr.To(metav1.NewTime(c.clock.Now()))
		return &terminating, nil
	}
	return cached, nil
}

// syncDeployment carries out the decision with at most one write to the Deployment that
// the Foo asks for. current is that Deployment, nil if there is none.
func (c *Controller) syncDeployment(ctx context.Context, foo *v1alpha1.Foo, current *appsv1.Deployment, d deployment.Decision) (deployment.Result, error) {
	result := deployment.Result{Deployment: current, Invalid: d.Invalid, Waits: d.Waits}
	switch d.Action {
	case deployment.NotOwned:
		return result, nil
	case deployment.Adopt:
		adopted, err := c.adoptDeployment(ctx, foo, current, d.Patch)
		result.Wrote(adopted)
		result.Adopted = err == nil
		return result, err
	}
	var err error
	if result.Contention, err = c.checkContention(ctx, foo, d); err != nil || result.Contention.HoldsBack() && !scalesUpFromZero(d, current, result.Contention) {
		return result, err
	}
	switch d.Action {
	case deployment.Create:
		desired, err := c.copyFormer(ctx, foo, d.Desired)
		if err != nil {
			return result, err
		}
		created, err := c.createDeployment(ctx, foo, desired)
		result.CreateRefused = created == nil && controller.IsRejection(err)
		result.Wrote(created)
		return result, err
	case deployment.Repair:
		patched, err := c.patchDeployment(ctx, foo, current, d.Patch)
		result.Wrote(patched)
		return result, err
	}
	return result, nil
}

// syncLiveDeployment decides again on a live read, because the cache does not show the
// Deployment yet. The decision for an existing Deployment is never "create", so AlreadyExists cannot occur again.
func (c *Controller) syncLiveDeployment(ctx context.Context, foo *v1alpha1.Foo, old oldDeployments) (deployment.Result, error) {
	live, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Get(ctx, foo.Spec.DeploymentName, metav1.GetOptions{})
	if err != nil {
		return deployment.Result{}, fmt.Errorf("reading Deployment %q: %w", foo.Spec.DeploymentName, err)
	}
	// The next sync must not read the cache before it shows what was read here.
	key := cache.MetaObjectToName(foo)
	c.consistency.WroteAt(key, foo.UID, appsv1.Resource("deployments"), live.ResourceVersion)
	applied, d := decideNow(foo, live, old, c.admitted.Get(key, foo.Generation)...)
	result, err := c.syncDeployment(ctx, applied, live, d)
	result.CacheBehind = true
	return result, err
}

// checkContention tells whether another writer undoes what this controller would do to the
// Deployment now. Without it two controllers would overwrite each other for ever.
func (c *Controller) checkContention(ctx context.Context, foo *v1alpha1.Foo, d deployment.Decision) (controller.Contention, error) {
	key := cache.MetaObjectToName(foo)
	contention := c.contention.Check(key, foo.Generation, d.Drifted()...)
	if len(contention.Undone) == 0 || contention.Message != "" {
		return contention, nil
	}
	if d.Action == deployment.Create {
		contention.Message = deployment.DescribeDeletions(fooKind, foo.Spec.DeploymentName)
	} else {
		// Managed fields name the other writer, and the cache does not hold them.
		live, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Get(ctx, foo.Spec.DeploymentName, metav1.GetOptions{})
		if err != nil {
			return contention, fmt.Errorf("reading Deployment %q: %w", foo.Spec.DeploymentName, err)
		}
		contention.Message = deployment.DescribeContention(fooKind, live, d.Patch, contention.Undone)
	}
	c.contention.Describe(key, contention.Message)
	return contention, nil
}

// createDeployment creates the Deployment and returns the API server's answer. If admission
// replaced the owner reference, it returns both the answer and an error. Other values that
// admission replaced are accepted.
func (c *Controller) createDeployment(ctx context.Context, foo *v1alpha1.Foo, desired *appsv1.Deployment) (*appsv1.Deployment, error) {
	if hadDeployment(foo) {
		// The cache may still show a Foo that is gone, when the garbage collector has deleted its Deployment.
		if err := c.checkLiveFoo(ctx, foo); err != nil {
			return nil, err
		}
	}
	created, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Create(ctx, desired, metav1.CreateOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("creating Deployment %q: %w", desired.Name, err)
	}
	key := cache.MetaObjectToName(foo)
	c.metrics.Wrote("deployments", "create")
	c.consistency.WroteAt(key, foo.UID, appsv1.Resource("deployments"), created.ResourceVersion)
	admitted, err := checkAdmitted(foo, created)
	c.contention.Created(key, foo.Generation, hadDeployment(foo), admitted...)
	if err != nil {
		return created, fmt.Errorf("creating Deployment %q: %w", created.Name, err)
	}
	c.admitted.Set(key, foo.Generation, admitted)
	klog.FromContext(ctx).V(2).Info("Created Deployment", "deployment", klog.KObj(created))
	c.recorder.Eventf(foo, corev1.EventTypeNormal, deployment.EventCreated, "Created Deployment %q", created.Name)
	return created, nil
}

// patchDeployment repairs the fields that have drifted and returns the API server's answer.
// If admission replaced the owner reference, it returns both the answer and an error. Other
// values that admission replaced are accepted.
func (c *Controller) patchDeployment(ctx context.Context, foo *v1alpha1.Foo, current *appsv1.Deployment, patch controller.Patch) (*appsv1.Deployment, error) {
	key := cache.MetaObjectToName(foo)
	if c.contention.RepairedRecently(key, foo.Generation) {
		// The writer that undid the last repair may be another replica of this controller,
		// which acts on a newer spec than this cache has.
		if err := c.checkLiveFoo(ctx, foo); err != nil {
			return nil, err
		}
	}
	patched, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Patch(ctx, current.Name, types.StrategicMergePatchType, patch.JSON(), metav1.PatchOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("updating Deployment %q: %w", current.Name, err)
	}
	c.metrics.Wrote("deployments", "patch")
	if patched.ResourceVersion != current.ResourceVersion {
		// A patch without an effect causes no event, and so no sync that would drop the record.
		c.consistency.WroteAt(key, foo.UID, appsv1.Resource("deployments"), patched.ResourceVersion)
	}
	c.contention.Repaired(key, foo.Generation, patch.Fields()...)
	admitted, err := checkAdmitted(foo, patched)
	if err != nil {
		return patched, fmt.Errorf("updating Deployment %q: %w", patched.Name, err)
	}
	c.admitted.Set(key, foo.Generation, admitted)
	klog.FromContext(ctx).V(2).Info("Patched Deployment", "deployment", klog.KObj(patched), "changes", patch.String())
	if effective := patch.Effective(admitted); !effective.IsEmpty() {
		c.recorder.Eventf(foo, corev1.EventTypeNormal, deployment.EventUpdated, "Updated Deployment %q: %s", patched.Name, effective)
	}
	return patched, nil
}

// adoptDeployment makes the Foo the controller of a Deployment that has none and asks for
// this by its annotation, and returns the API server's answer. The patch carries the
// resourceVersion: the API server refuses it if the Deployment has got a controller or has
// lost the annotation since.
func (c *Controller) adoptDeployment(ctx context.Context, foo *v1alpha1.Foo, current *appsv1.Deployment, patch controller.Patch) (*appsv1.Deployment, error) {
	// The garbage collector would delete the Deployment of a Foo that is gone.
	if err := c.checkLiveFoo(ctx, foo); err != nil {
		return nil, err
	}
	adopted, err := c.kubeClient.AppsV1().Deployments(foo.Namespace).Patch(ctx, current.Name, types.StrategicMergePatchType, patch.JSON(), metav1.PatchOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return nil, fmt.Errorf("adopting Deployment %q: %w", current.Name, err)
	}
	c.metrics.Wrote("deployments", "patch")
	c.consistency.WroteAt(cache.MetaObjectToName(foo), foo.UID, appsv1.Resource("deployments"), adopted.ResourceVersion)
	if !owns(foo, adopted) {
		return adopted, fmt.Errorf("adopting Deployment %q: owner reference: %w", adopted.Name, controller.ErrOverridden)
	}
	klog.FromContext(ctx).V(2).Info("Adopted Deployment", "deployment", klog.KObj(adopted))
	c.recorder.Eventf(foo, corev1.EventTypeNormal, deployment.EventAdopted, "Adopted Deployment %q, as its annotation %s asks", adopted.Name, v1alpha1.AdoptByAnnotation)
	return adopted, nil
}

// checkLiveFoo returns nil if the API server has the Foo as the cache does, and
// controller.ErrStaleCache if the live Foo is gone, terminating, or has another UID or
// generation: another process may have acted on a newer spec.
func (c *Controller) checkLiveFoo(ctx context.Context, foo *v1alpha1.Foo) error {
	live, err := c.fooClient.SamplecontrollerV1alpha1().Foos(foo.Namespace).Get(ctx, foo.Name, metav1.GetOptions{})
	if err := controller.CheckLive(foo, live, err); err != nil {
		return fmt.Errorf("reading Foo %s: %w", klog.KObj(foo), err)
	}
	return nil
}

// updateFooStatus writes the Foo's status if it differs from the cached one, and then records
// the event of readyEvent, if any. It returns how long a status that reports only progress is
// delayed; the status that is true by then replaces it.
func (c *Controller) updateFooStatus(ctx context.Context, foo *v1alpha1.Foo, result deployment.Result, now time.Time) (time.Duration, error) {
	key := cache.MetaObjectToName(foo)
	status := newStatus(foo, result, metav1.NewTime(now))
	if equalStatus(&foo.Status, &status) {
		c.debouncer.Reset(key)
		return 0, nil
	}
	old, ready := controller.GetReady(foo.Status.Conditions), controller.GetReady(status.Conditions)
	if isProgress(foo, old, ready) {
		if delay := c.debouncer.Delay(key); delay > 0 {
			return delay, nil
		}
	}

	// The API server checks the uid and resourceVersion of a PUT. It ignores the uid in a
	// PATCH of the status, which could change a Foo that was created again with this name.
	updated := foo.DeepCopy()
	updated.Status = status
	written, err := c.fooClient.SamplecontrollerV1alpha1().Foos(foo.Namespace).UpdateStatus(ctx, updated, metav1.UpdateOptions{FieldManager: controller.FieldManager})
	if err != nil {
		return 0, fmt.Errorf("updating the status of Foo: %w", err)
	}
	c.metrics.Wrote("foos/status", "update")
	c.consistency.WroteAt(key, foo.UID, v1alpha1.Resource("foos"), written.ResourceVersion)
	c.debouncer.Reset(key)
	klog.FromContext(ctx).V(2).Info("Updated status", "ready", ready.Status, "reason", ready.Reason)
	if event := readyEvent(old, ready); event != nil {
		c.recorder.Event(foo, event.Type, event.Reason, event.Message)
	}
	return 0, nil
}
