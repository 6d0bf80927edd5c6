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
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	appslisters "k8s.io/client-go/listers/apps/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/child"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
	foolisters "example.com/sample-controller/pkg/generated/listers/samplecontroller/v1alpha1"
)

const (
	// controllerName names the program, the source of events and the field manager
	// of every write.
	controllerName = controller.FieldManager

	// byOwner indexes Deployments by the Foo that controls them, byName indexes
	// Foos by the Deployment that they ask for.
	byOwner = "controllingFoo"
	byName  = "wantedDeployment"

	// blockerDelay spaces the wakes among Foos that block each other in a circle.
	blockerDelay = time.Second
)

// Controller turns each Foo into the Deployment that its spec names.
//
// An event of a Foo or a Deployment becomes the keys of the Foos that it may
// concern. A worker takes a key and calls syncHandler, which reads the caches,
// decides (foo.go), makes at most one write to the Deployment of that name,
// deletes the Deployments of former names, and writes the Foo's status if it
// changed. What it writes comes back as an event, finds nothing to do, and the
// circle rests. A sync that fails is tried again with growing delays.
type Controller struct {
	*controller.Loop

	kubeClient kubernetes.Interface
	fooClient  clientset.Interface

	foos            foolisters.FooLister
	deployments     appslisters.DeploymentLister
	fooIndex        cache.TypedIndexer[*v1alpha1.Foo]
	deploymentIndex cache.TypedIndexer[*appsv1.Deployment]

	keeper   *child.Keeper[*v1alpha1.Foo]
	reporter *controller.Reporter
	recorder record.EventRecorder
	clock    clock.PassiveClock
	metrics  controller.Counters
}

// ControllerOptions are what a Controller needs. All clients and informers are
// required.
type ControllerOptions struct {
	KubeClient  kubernetes.Interface
	FooClient   clientset.Interface
	Deployments appsinformers.TypedDeploymentInformer
	Foos        fooinformers.TypedFooInformer

	controller.Options
}

// NewController returns a Controller that is ready to Run. It adds indexes and
// event handlers to the informers, and fails where these are taken. Another
// controller may have started that of the Deployments already.
func NewController(ctx context.Context, options ControllerOptions) (*Controller, error) {
	foos, deployments := options.Foos.TypedInformer(), options.Deployments.TypedInformer()
	if err := foos.AddTypedIndexers(cache.TypedIndexers[*v1alpha1.Foo]{byName: indexByWantedName}); err != nil {
		return nil, fmt.Errorf("adding an index to the Foo informer: %w", err)
	}
	if err := deployments.AddTypedIndexers(cache.TypedIndexers[*appsv1.Deployment]{byOwner: controller.IndexByOwner[*appsv1.Deployment](kindOfFoo().GroupKind())}); err != nil {
		return nil, fmt.Errorf("adding an index to the Deployment informer: %w", err)
	}

	c := &Controller{
		kubeClient:      options.KubeClient,
		fooClient:       options.FooClient,
		foos:            options.Foos.Lister(),
		deployments:     options.Deployments.Lister(),
		fooIndex:        foos.GetTypedIndexer(),
		deploymentIndex: deployments.GetTypedIndexer(),
		recorder:        options.Recorder,
		clock:           options.Clock,
		metrics:         options.Metrics.Of(fooKind),
	}
	c.Loop = controller.NewLoop(fooKind, c.syncHandler, controller.Caches{Parents: foos, Children: deployments}, options.Options)
	c.keeper = &child.Keeper[*v1alpha1.Foo]{
		Kind: kindOfFoo(), Client: c.kubeClient, Deployments: c.deployments, Gate: c.Gate, Metrics: c.metrics, Recorder: c.recorder, Clock: c.clock,
		Decide: decide, Confirm: c.confirm,
	}
	c.reporter = &controller.Reporter{Kind: fooKind, Resource: "foos", Gate: c.Gate, Metrics: c.metrics, Recorder: c.recorder}
	if err := c.addEventHandlers(ctx, foos, deployments); err != nil {
		c.Queue.ShutDown()
		return nil, err
	}
	controller.CountByReady(options.Metrics, "Foos", c.foos.List, conditionsOf)
	return c, nil
}

// addEventHandlers subscribes to both informers.
func (c *Controller) addEventHandlers(ctx context.Context, foos fooinformers.FooIndexInformer, deployments appsinformers.DeploymentIndexInformer) error {
	klog.FromContext(ctx).Info("Setting up event handlers")
	if err := controller.Subscribe(ctx, c.Loop, "Foo", foos, fooinformers.FooHandlerFuncs{
		AddFunc:    c.fooAdded,
		UpdateFunc: c.fooUpdated,
		DeleteFunc: c.fooDeleted,
	}); err != nil {
		return err
	}
	return controller.Subscribe(ctx, c.Loop, "Deployment", deployments, kindOfFoo().Handlers(c.Loop, c.enqueueAskers))
}

// indexByWantedName returns the key of the Deployment that a Foo asks for.
func indexByWantedName(foo *v1alpha1.Foo) ([]string, error) {
	return []string{foo.Namespace + "/" + foo.Spec.DeploymentName}, nil
}

// A Foo's event wakes that Foo, and the one whose Deployment it asks for or no
// longer asks for: the two may block each other.

func (c *Controller) fooAdded(foo *v1alpha1.Foo) {
	c.Enqueue(cache.MetaObjectToName(foo))
	c.enqueueHolder(foo)
}

func (c *Controller) fooUpdated(old, foo *v1alpha1.Foo) {
	if c.ParentUpdated(old, foo) {
		c.enqueueHolder(old)
		c.enqueueHolder(foo)
	}
}

func (c *Controller) fooDeleted(gone fooinformers.DeletedFoo) {
	c.ParentDeleted(gone.GetObjectName())
	if gone.OptionalObj != nil {
		c.enqueueHolder(gone.OptionalObj)
	}
}

// enqueueHolder wakes the Foo that controls the Deployment which foo asks for.
func (c *Controller) enqueueHolder(foo *v1alpha1.Foo) {
	if deployment, err := c.deployments.Deployments(foo.Namespace).Get(foo.Spec.DeploymentName); err == nil {
		c.EnqueueOwner(kindOfFoo().GroupKind(), deployment)
	}
}

// enqueueAskers wakes every Foo that asks for the Deployment's name.
func (c *Controller) enqueueAskers(deployment cache.ObjectName) {
	for _, foo := range controller.LookUp(c.fooIndex, byName, deployment.String()) {
		c.Enqueue(cache.MetaObjectToName(foo))
	}
}

// syncHandler brings the cluster one step nearer to what the Foo of that name
// asks for. It returns how long to wait before the next sync, 0 for until
// something happens, or the error for which to try again.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read the caches, once they show what the last sync wrote.
	if !c.CaughtUp(key) {
		return controller.StaleCacheDelay, nil
	}
	foo, err := c.foos.Foos(key.Namespace).Get(key.Name)
	switch {
	case err == nil && foo.DeletionTimestamp == nil:
	case err == nil || apierrors.IsNotFound(err):
		// The garbage collector removes the Deployment.
		c.Gate.Forget(key)
		return 0, nil
	default:
		return 0, fmt.Errorf("reading Foo from the cache: %w", err)
	}
	deployment, err := c.keeper.Cached(key.Namespace, foo.Spec.DeploymentName)
	if err != nil {
		return 0, err
	}

	// 2. Decide.
	verdict := decide(foo, deployment)

	// 3. Act: on the Deployment of that name, then on those of former names.
	seen, err := c.keeper.Act(ctx, foo, foo.Spec.DeploymentName, deployment, verdict)
	if err == nil {
		err = c.release(ctx, foo, seen)
	}
	switch {
	case err == nil:
	case controller.IsNamespaceTerminating(err):
		return 0, nil
	case controller.IsRejection(err):
		seen.Rejected, seen.Former = err, c.formerNames(foo)
	default:
		return 0, err
	}

	// 4. Report.
	wait, reportErr := c.report(ctx, foo, seen)
	return seen.Again(wait), errors.Join(err, reportErr)
}

// report writes the Foo's status if it differs from the cached one, and tells
// the transition of Ready as an event. It returns how long a status that tells
// of mere progress is put off.
func (c *Controller) report(ctx context.Context, foo *v1alpha1.Foo, seen child.Observation) (time.Duration, error) {
	status := newStatus(foo, seen, metav1.NewTime(c.clock.Now()))
	if sameStatus(&foo.Status, &status) {
		c.Gate.Reported(cache.MetaObjectToName(foo))
		return 0, nil
	}
	return c.writeStatus(ctx, foo, status)
}

// writeStatus is the part of report that most syncs do without.
func (c *Controller) writeStatus(ctx context.Context, foo *v1alpha1.Foo, status v1alpha1.FooStatus) (time.Duration, error) {
	was, is := controller.ReadyOf(foo.Status.Conditions), controller.ReadyOf(status.Conditions)
	return c.reporter.Report(ctx, foo, child.IsProgress(is), func(ctx context.Context) (metav1.Object, error) {
		// A PUT with the cached uid and resourceVersion: a status PATCH with a wrong
		// uid would be accepted in silence.
		updated := *foo
		updated.Status = status
		return c.fooClient.SamplecontrollerV1alpha1().Foos(foo.Namespace).UpdateStatus(ctx, &updated, metav1.UpdateOptions{FieldManager: controller.FieldManager})
	}, kindOfFoo().Transition(was, is))
}
