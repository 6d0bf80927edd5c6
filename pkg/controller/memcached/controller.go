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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/app"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	memcachedinformers "example.com/sample-controller/pkg/generated/informers/externalversions/cache/v1alpha1"
)

// Controller turns each Memcached into a Deployment and a Service of its name.
//
// An event of a Memcached, a Deployment, a Service, a ReplicaSet or a Pod enqueues the key of
// the Memcached that it concerns. A worker takes a key and calls syncHandler, which reads the
// caches, makes at most one write to the Deployment and one to the Service, gathers the names of
// the live Pods (nodes.go), and writes the Memcached's status if it changed. The watch events of
// these writes enqueue the Memcached again, and that sync finds nothing to do. A sync that fails is
// retried with backoff. memcached.go and service.go decide.
type Controller struct {
	memcacheds  *controller.Owners[*v1alpha1.Memcached]
	deployments *controller.Dependents[*v1alpha1.Memcached, *appsv1.Deployment]
	services    *controller.Dependents[*v1alpha1.Memcached, *corev1.Service]

	replicaSets       appslisters.ReplicaSetLister
	replicaSetIndexer cache.TypedIndexer[*appsv1.ReplicaSet]
	podIndexer        cache.TypedIndexer[*corev1.Pod]

	controller.Options
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
// Worker. It adds indexes to the informers, and returns an error if that fails.
func New(ctx context.Context, options Options) (*Controller, error) {
	memcacheds, replicaSets, pods := options.Memcacheds.TypedInformer(), options.ReplicaSets.TypedInformer(), options.Pods.TypedInformer()
	c := &Controller{
		replicaSets:       options.ReplicaSets.Lister(),
		replicaSetIndexer: replicaSets.GetTypedIndexer(),
		podIndexer:        pods.GetTypedIndexer(),
		Options:           options.Options,
	}
	c.memcacheds = controller.NewOwners(controller.OwnersOptions[*v1alpha1.Memcached]{
		Options: options.Options, Kind: memcachedGVK(), Resource: v1alpha1.Resource("memcacheds"), Informer: memcacheds,
		Client: func(namespace string) controller.OwnerClient[*v1alpha1.Memcached] {
			return options.Client.CacheV1alpha1().Memcacheds(namespace)
		},
		LatestVersion: func(ctx context.Context) (string, error) {
			list, err := options.Client.CacheV1alpha1().Memcacheds(options.Namespace).List(ctx, metav1.ListOptions{Limit: 1})
			return list.ResourceVersion, err
		},
		Status: func(memcached *v1alpha1.Memcached) any { return &memcached.Status },
	})
	byDeployment := controller.IndexByOwner[*appsv1.ReplicaSet](appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind())
	byReplicaSet := controller.IndexByOwner[*corev1.Pod](appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind())
	if err := errors.Join(
		c.addDependents(options),
		replicaSets.AddTypedIndexers(appsinformers.ReplicaSetIndexers{controller.ByOwner: byDeployment}),
		pods.AddTypedIndexers(coreinformers.PodIndexers{controller.ByOwner: byReplicaSet}),
	); err != nil {
		return nil, fmt.Errorf("adding indexes to the informers: %w", err)
	}
	klog.FromContext(ctx).Info("Setting up event handlers")
	controller.AddEventHandler(c.Worker, memcachedKind, memcacheds, c.memcacheds.EventHandler())
	controller.AddEventHandler(c.Worker, "Deployment", options.Deployments.TypedInformer(), c.deployments.EventHandler(c.memcacheds.Enqueue))
	controller.AddEventHandler(c.Worker, "Service", options.Services.TypedInformer(), c.services.EventHandler(c.memcacheds.Enqueue))
	controller.AddEventHandler(c.Worker, "ReplicaSet", replicaSets, c.replicaSetHandlers())
	controller.AddEventHandler(c.Worker, "Pod", pods, c.podHandlers())
	c.Worker.Handle(options.Namespace, c.syncHandler)
	options.Metrics.CountByReady("Memcacheds", memcacheds.GetStore())
	return c, nil
}

// addDependents sets the Deployments and Services of the Controller.
func (c *Controller) addDependents(options Options) (err error) {
	interner := deployment.NewInterner()
	c.deployments, err = controller.NewDependents(c.memcacheds, controller.DependentsOptions[*v1alpha1.Memcached, *appsv1.Deployment]{
		Kind: "Deployment", Resource: appsv1.Resource("deployments"), Informer: options.Deployments.TypedInformer(),
		Client: func(namespace string) controller.DependentClient[*appsv1.Deployment] {
			return options.KubeClient.AppsV1().Deployments(namespace)
		},
		Diff: func(_ *v1alpha1.Memcached, desired, current *appsv1.Deployment) controller.Patch {
			return diffDeployment(desired, current)
		},
		Trim:    func(d *appsv1.Deployment) *appsv1.Deployment { return TrimDeployment(d, interner) },
		Existed: hadDeployment,
		Advice:  "and scale or change the Memcached instead (a HorizontalPodAutoscaler belongs on the Memcached)",
	})
	if err != nil {
		return err
	}
	c.services, err = controller.NewDependents(c.memcacheds, controller.DependentsOptions[*v1alpha1.Memcached, *corev1.Service]{
		Kind: "Service", Resource: corev1.Resource("services"), Informer: options.Services.TypedInformer(),
		Client: func(namespace string) controller.DependentClient[*corev1.Service] {
			return options.KubeClient.CoreV1().Services(namespace)
		},
		Diff: func(_ *v1alpha1.Memcached, desired, current *corev1.Service) controller.Patch {
			return diffService(desired, current)
		},
		Trim:    TrimService,
		Existed: hadDeployment,
		Advice:  "or create a Service of another name for it",
	})
	return err
}

// The admission plugin OwnerReferencesPermissionEnforcement requires update on memcacheds/finalizers to set blockOwnerDeletion.
// +kubebuilder:rbac:groups=cache.example.com,resources=memcacheds,verbs=get;list;watch
// +kubebuilder:rbac:groups=cache.example.com,resources=memcacheds/status,verbs=patch
// +kubebuilder:rbac:groups=cache.example.com,resources=memcacheds/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete
// +kubebuilder:rbac:groups="",resources=services,verbs=get;list;watch;create;patch

// syncHandler brings the cluster one step closer to what the Memcached of that name asks
// for. It returns how long to wait before the next sync, 0 to wait for an event, or the
// error for which to retry with backoff.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read from the caches, once they show what the last sync wrote.
	memcached, exists, err := c.memcacheds.Get(key)
	if err != nil || !exists {
		return 0, err
	}
	f := findings{deployment: c.deployments.Get(key.Namespace, key.Name), service: c.services.Get(key.Namespace, key.Name)}

	// 2. Decide, 3. act: make at most one write to the Deployment, ...
	desired := newDeployment(memcached)
	switch {
	case validateSpec(memcached) != "":
	case f.deployment == nil:
		f.deployment, err = c.deployments.Create(ctx, memcached, desired)
	default:
		f.deployment, err = c.deployments.Patch(ctx, memcached, f.deployment, desired)
	}
	if err != nil && !controller.IsRefusal(err) {
		return 0, err
	}
	f.refused = err
	// ... then one to the Service.
	desiredService := newService(memcached, selectorOf(memcached, f.deployment))
	switch {
	case validateSpec(memcached) != "" || !hasDeployment(memcached, f.deployment) || !canHaveService(memcached):
		// A Memcached that owns no Deployment has no Pods, and must not occupy the name of a Service.
	case f.service == nil:
		f.service, f.serviceErr = c.services.Create(ctx, memcached, desiredService)
	default:
		f.service, f.serviceErr = c.services.Patch(ctx, memcached, f.service, desiredService)
	}
	if controller.IsNamespaceTerminating(f.serviceErr) {
		return 0, nil
	}

	// 4. Report.
	f.writes, f.serviceWrites = c.deployments.Report(memcached, f.deployment, desired), c.services.Report(memcached, f.service, desiredService)
	delay, statusErr := c.updateMemcachedStatus(ctx, memcached, f)
	return delay, errors.Join(err, f.serviceErr, statusErr)
}

// updateMemcachedStatus writes the Memcached's status if it differs from the cached one, with an
// event if the Memcached became Ready or has a new problem, and one if its Service has. A status
// that reports only progress is delayed. It returns how long to wait before the next sync.
func (c *Controller) updateMemcachedStatus(ctx context.Context, memcached *v1alpha1.Memcached, f findings) (time.Duration, error) {
	now, stalls := c.Clock.Now(), time.Time{}
	if hasDeployment(memcached, f.deployment) {
		f.nodes = c.nodesOf(f.deployment)
	}
	if left := deployment.UntilTerminationStalls(f.deployment, now); left > 0 {
		stalls = now.Add(left)
	}
	status := newStatus(memcached, f, metav1.NewTime(now))
	// What reportService adds to the message is not part of ready: it has an event of its own.
	old, ready := controller.GetReady(memcached.Status.Conditions), controller.GetReady(status.Conditions)
	events := []*controller.Event{deployment.ReadyEvent(memcachedKind, old, ready), reportService(memcached, &status, f)}
	delayed, err := c.memcacheds.UpdateStatus(ctx, memcached, &status, isProgress(memcached, &status), ready, events...)
	return controller.Earliest(now, delayed, f.writes.Next, f.serviceWrites.Next, stalls), err
}

// NewDescriptor returns the descriptor of the controller of Memcacheds.
func NewDescriptor() app.ControllerDescriptor {
	resource, interner := schema.GroupVersion(v1alpha1.GroupVersion).WithResource("memcacheds"), deployment.NewInterner()
	trimDeployment := func(d *appsv1.Deployment) *appsv1.Deployment { return TrimDeployment(d, interner) }
	return app.ControllerDescriptor{
		Name: "memcached", Kind: memcachedKind, Resource: resource, CRDManifest: "artifacts/examples/memcached-crd.yaml",
		Informers: []app.Informer{
			{Resource: resource, Trim: app.TypedTrim(TrimMemcached)},
			{Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Trim: app.TypedTrim(trimDeployment)},
			{Resource: corev1.SchemeGroupVersion.WithResource("services"), Trim: app.TypedTrim(TrimService)},
			{Resource: appsv1.SchemeGroupVersion.WithResource("replicasets"), Selector: NodeSelector, Trim: TrimNode},
			{Resource: corev1.SchemeGroupVersion.WithResource("pods"), Selector: NodeSelector, Trim: TrimNode},
		},
		New: func(ctx context.Context, c *app.ControllerContext) error {
			nodes := c.SelectedKubeInformers[NodeSelector]
			_, err := New(ctx, Options{
				KubeClient: c.KubeClient, Client: c.Client,
				Memcacheds: c.Informers.Cache().V1alpha1().Memcacheds(), Deployments: c.KubeInformers.Apps().V1().Deployments(),
				Services:    c.KubeInformers.Core().V1().Services(),
				ReplicaSets: nodes.Apps().V1().ReplicaSets(), Pods: nodes.Core().V1().Pods(),
				Options: c.Options,
			})
			return err
		},
	}
}
