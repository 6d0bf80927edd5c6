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

// Package memcached is the controller of Memcacheds: it keeps for each a Deployment of
// its name, and tells in its status which Pods there are. docs/memcached.md is its
// contract.
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
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/child"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	memcachedinformers "example.com/sample-controller/pkg/generated/informers/externalversions/cache/v1alpha1"
	memcachedlisters "example.com/sample-controller/pkg/generated/listers/cache/v1alpha1"
)

// Controller turns each Memcached into a Deployment of its name.
//
// An event of a Memcached, a Deployment, a ReplicaSet or a Pod becomes the key of the
// Memcached that it concerns. A worker takes a key and calls syncHandler, which reads
// the caches, decides (memcached.go), makes at most one write to the Deployment,
// gathers the names of its live Pods (nodes.go), and writes the Memcached's status if
// it changed. What it writes comes back as an event, finds nothing to do, and the
// circle rests. A sync that fails is tried again with growing delays.
type Controller struct {
	*controller.Loop

	client clientset.Interface

	memcacheds      memcachedlisters.MemcachedLister
	deployments     appslisters.DeploymentLister
	replicaSets     appslisters.ReplicaSetLister
	memcachedIndex  cache.TypedIndexer[*v1alpha1.Memcached]
	deploymentIndex cache.TypedIndexer[*appsv1.Deployment]
	replicaSetIndex cache.TypedIndexer[*appsv1.ReplicaSet]
	podIndex        cache.TypedIndexer[*corev1.Pod]

	keeper   *child.Keeper[*v1alpha1.Memcached]
	reporter *controller.Reporter
	clock    clock.PassiveClock
	metrics  controller.Counters
}

// Options are what a Controller needs. All clients and informers are required.
type Options struct {
	KubeClient  kubernetes.Interface
	Client      clientset.Interface
	Memcacheds  memcachedinformers.TypedMemcachedInformer
	Deployments appsinformers.TypedDeploymentInformer
	// ReplicaSets and Pods need hold no more than SelectPods selects and StripPods
	// leaves.
	ReplicaSets appsinformers.TypedReplicaSetInformer
	Pods        coreinformers.TypedPodInformer

	controller.Options
}

// New returns a Controller that is ready to Run. It adds indexes and event handlers to
// the informers, and fails where these are taken. Another controller may have started
// that of the Deployments already.
func New(ctx context.Context, options Options) (*Controller, error) {
	memcacheds, deployments := options.Memcacheds.TypedInformer(), options.Deployments.TypedInformer()
	replicaSets, pods := options.ReplicaSets.TypedInformer(), options.Pods.TypedInformer()
	if err := addNodeIndexes(replicaSets, pods); err != nil {
		return nil, err
	}

	c := &Controller{
		client:          options.Client,
		memcacheds:      options.Memcacheds.Lister(),
		deployments:     options.Deployments.Lister(),
		replicaSets:     options.ReplicaSets.Lister(),
		memcachedIndex:  memcacheds.GetTypedIndexer(),
		deploymentIndex: deployments.GetTypedIndexer(),
		replicaSetIndex: replicaSets.GetTypedIndexer(),
		podIndex:        pods.GetTypedIndexer(),
		clock:           options.Clock,
		metrics:         options.Metrics.Of(kind),
	}
	c.Loop = controller.NewLoop(kind, c.syncHandler, controller.Caches{Parents: memcacheds, Children: deployments}, options.Options)
	c.keeper = &child.Keeper[*v1alpha1.Memcached]{
		Kind: kindOfMemcached(), Client: options.KubeClient, Deployments: c.deployments, Gate: c.Gate, Metrics: c.metrics, Recorder: options.Recorder, Clock: c.clock,
		Decide: decide, Confirm: c.confirm,
	}
	c.reporter = &controller.Reporter{Kind: kind, Resource: "memcacheds", Gate: c.Gate, Metrics: c.metrics, Recorder: options.Recorder}
	if err := c.addEventHandlers(ctx, memcacheds, deployments, replicaSets, pods); err != nil {
		c.Queue.ShutDown()
		return nil, err
	}
	controller.CountByReady(options.Metrics, "Memcacheds", c.memcacheds.List, conditionsOf)
	return c, nil
}

// addEventHandlers subscribes to all informers.
func (c *Controller) addEventHandlers(ctx context.Context, memcacheds memcachedinformers.MemcachedIndexInformer, deployments appsinformers.DeploymentIndexInformer,
	replicaSets appsinformers.ReplicaSetIndexInformer, pods coreinformers.PodIndexInformer) error {
	klog.FromContext(ctx).Info("Setting up event handlers")
	return errors.Join(
		controller.Subscribe(ctx, c.Loop, kind, memcacheds, c.memcachedHandlers()),
		controller.Subscribe(ctx, c.Loop, "Deployment", deployments, kindOfMemcached().Handlers(c.Loop, c.wakeAsker)),
		controller.Subscribe(ctx, c.Loop, "ReplicaSet", replicaSets, c.replicaSetHandlers()),
		controller.Subscribe(ctx, c.Loop, "Pod", pods, c.podHandlers()))
}

// memcachedHandlers returns what wakes a Memcached by its own events.
func (c *Controller) memcachedHandlers() memcachedinformers.MemcachedHandlerFuncs {
	return memcachedinformers.MemcachedHandlerFuncs{
		AddFunc:    func(memcached *v1alpha1.Memcached) { c.Enqueue(cache.MetaObjectToName(memcached)) },
		UpdateFunc: func(old, memcached *v1alpha1.Memcached) { c.ParentUpdated(old, memcached) },
		DeleteFunc: func(gone memcachedinformers.DeletedMemcached) { c.ParentDeleted(gone.GetObjectName()) },
	}
}

// syncHandler brings the cluster one step nearer to what the Memcached of that name
// asks for. It returns how long to wait before the next sync, 0 for until something
// happens, or the error for which to try again.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read the caches, once they show what the last sync wrote.
	if !c.CaughtUp(key) {
		return controller.StaleCacheDelay, nil
	}
	memcached, err := c.memcacheds.Memcacheds(key.Namespace).Get(key.Name)
	switch {
	case err == nil && memcached.DeletionTimestamp == nil:
	case err == nil || apierrors.IsNotFound(err):
		// The garbage collector removes the Deployment.
		c.Gate.Forget(key)
		return 0, nil
	default:
		return 0, fmt.Errorf("reading Memcached from the cache: %w", err)
	}
	deployment, err := c.keeper.Cached(key.Namespace, key.Name)
	if err != nil {
		return 0, err
	}

	// 2. Decide.
	verdict := decide(memcached, deployment)

	// 3. Act.
	seen, err := c.keeper.Act(ctx, memcached, key.Name, deployment, verdict)
	switch {
	case err == nil:
	case controller.IsNamespaceTerminating(err):
		return 0, nil
	case controller.IsRejection(err):
		seen.Rejected = err
	default:
		return 0, err
	}

	// 4. Report.
	wait, reportErr := c.report(ctx, memcached, seen)
	return seen.Again(wait), errors.Join(err, reportErr)
}

// confirm returns nil if the API server has the Memcached in the generation that the
// cache has. Another process may have acted on a newer one.
func (c *Controller) confirm(ctx context.Context, memcached *v1alpha1.Memcached) error {
	live, err := c.client.CacheV1alpha1().Memcacheds(memcached.Namespace).Get(ctx, memcached.Name, metav1.GetOptions{})
	if err := controller.Confirm(memcached, live, err); err != nil {
		return fmt.Errorf("reading Memcached %s: %w", klog.KObj(memcached), err)
	}
	return nil
}

// report writes the Memcached's status if it differs from the cached one, and tells the
// transition of Ready as an event. It returns how long a status that tells of mere
// progress is put off.
func (c *Controller) report(ctx context.Context, memcached *v1alpha1.Memcached, seen child.Observation) (time.Duration, error) {
	status := newStatus(memcached, seen, c.nodesOf(seen.Deployment), metav1.NewTime(c.clock.Now()))
	if equality.Semantic.DeepEqual(memcached.Status, status) {
		c.Gate.Reported(cache.MetaObjectToName(memcached))
		return 0, nil
	}
	event := kindOfMemcached().Transition(controller.ReadyOf(memcached.Status.Conditions), controller.ReadyOf(status.Conditions))
	return c.reporter.Report(ctx, memcached, isProgress(memcached, &status), func(ctx context.Context) (metav1.Object, error) {
		// A PUT with the cached uid and resourceVersion, as for Foos.
		updated := *memcached
		updated.Status = status
		return c.client.CacheV1alpha1().Memcacheds(memcached.Namespace).UpdateStatus(ctx, &updated, metav1.UpdateOptions{FieldManager: controller.FieldManager})
	}, event)
}
