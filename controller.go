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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
)

// byDeploymentName indexes Foos by the Deployment that they ask for.
const byDeploymentName = "deploymentName"

// Controller turns each Foo into the Deployment that its spec names.
//
// An event of a Foo or a Deployment enqueues the keys of the Foos that it concerns. A worker
// takes a key and calls syncHandler, which reads the caches, decides (foo.go), makes at most one
// write to the Deployment that the spec names, and writes the Foo's status if it changed. A status
// that only tells of progress is left to a sync 1 to 30 s later. The watch event of a write to a
// Deployment enqueues the Foo again, and that sync has nothing to write to the Deployment. A sync
// that fails is retried with backoff.
type Controller struct {
	foos        *controller.Owners[*v1alpha1.Foo]
	deployments *controller.Dependents[*v1alpha1.Foo, *appsv1.Deployment]
	fooIndexer  cache.TypedIndexer[*v1alpha1.Foo]

	controller.Options
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
// the Worker. It adds indexes to the informers, and returns an error if that fails.
func NewController(ctx context.Context, options ControllerOptions) (*Controller, error) {
	foos := options.Foos.TypedInformer()
	if err := foos.AddTypedIndexers(fooinformers.FooIndexers{byDeploymentName: indexByDeploymentName}); err != nil {
		return nil, fmt.Errorf("adding an index to the Foo informer: %w", err)
	}
	c := &Controller{Options: options.Options, fooIndexer: foos.GetTypedIndexer()}
	c.foos = controller.NewOwners(controller.OwnersOptions[*v1alpha1.Foo]{
		Options: options.Options, Kind: fooGVK(), Resource: v1alpha1.Resource("foos"), Informer: foos,
		Client: func(namespace string) controller.OwnerClient[*v1alpha1.Foo] {
			return options.FooClient.SamplecontrollerV1alpha1().Foos(namespace)
		},
		LatestVersion: func(ctx context.Context) (string, error) {
			list, err := options.FooClient.SamplecontrollerV1alpha1().Foos(options.Namespace).List(ctx, metav1.ListOptions{Limit: 1})
			return list.ResourceVersion, err
		},
		Status: func(foo *v1alpha1.Foo) any { return &foo.Status },
	})
	var err error
	c.deployments, err = controller.NewDependents(c.foos, controller.DependentsOptions[*v1alpha1.Foo, *appsv1.Deployment]{
		Kind: "Deployment", Resource: appsv1.Resource("deployments"), Informer: options.Deployments.TypedInformer(),
		Client: func(namespace string) controller.DependentClient[*appsv1.Deployment] {
			return options.KubeClient.AppsV1().Deployments(namespace)
		},
		Diff:     diffDeployment,
		Replicas: func(d *appsv1.Deployment) int32 { return *d.Spec.Replicas },
		Trim:     newTrimmer().trimDeployment, // what a write answers, as the cache will have it
		Existed:  hadDeployment,
		Advice:   "and scale or change the Foo instead (a HorizontalPodAutoscaler belongs on the Foo)",
	})
	if err != nil {
		return nil, err
	}
	klog.FromContext(ctx).Info("Setting up event handlers")
	controller.AddEventHandler(c.Worker, fooKind, foos, c.foos.EventHandler())
	controller.AddEventHandler(c.Worker, "Deployment", options.Deployments.TypedInformer(), c.deployments.EventHandler(c.enqueueAsking))
	// While this process leads, workers call syncHandler with the keys of the queue.
	c.Worker.Handle(options.Namespace, c.syncHandler)
	options.Metrics.CountByReady("Foos", foos.GetStore())
	return c, nil
}

// enqueueAsking enqueues the Foos whose spec names that Deployment, with low priority: very many may.
func (c *Controller) enqueueAsking(deployment cache.ObjectName) {
	for _, foo := range controller.LookUp(c.fooIndexer, byDeploymentName, deployment.String()) {
		c.Worker.Queue.Add(cache.MetaObjectToName(foo))
	}
}

// The admission plugin OwnerReferencesPermissionEnforcement requires update on foos/finalizers
// to set blockOwnerDeletion, and delete on a Deployment to change its owner reference (rules 4 and 10).
// +kubebuilder:rbac:groups=samplecontroller.k8s.io,resources=foos,verbs=get;list;watch
// +kubebuilder:rbac:groups=samplecontroller.k8s.io,resources=foos/status,verbs=patch
// +kubebuilder:rbac:groups=samplecontroller.k8s.io,resources=foos/finalizers,verbs=update
// +kubebuilder:rbac:groups=apps,resources=deployments,verbs=get;list;watch;create;patch;delete

// syncHandler brings the cluster one step closer to what the Foo of that name asks for. It
// returns the longest time until the next sync, or 0 to wait for an event. After an error the
// Worker syncs again at that time or after the backoff, whichever is earlier, but not before Retry-After.
func (c *Controller) syncHandler(ctx context.Context, key cache.ObjectName) (time.Duration, error) {
	// 1. Read from the caches, once they show what the last sync wrote. A terminating Foo does not exist.
	foo, exists, err := c.foos.Get(key)
	if err != nil || !exists {
		return 0, err
	}
	current := c.deployments.Get(key.Namespace, foo.Spec.DeploymentName)
	// +drop:rename
	// The lines so marked deal with Deployments of former names (rename.go).
	old := c.oldDeployments(foo, current)
	// +drop:end

	// 2. Decide. 3. Act: make at most one write to the Deployment that the spec names.
	desired, result := newDeployment(foo), current
	*desired.Spec.Replicas = wantedReplicas(foo, old) // +drop:rename
	switch {
	case validateSpec(foo) != "":
		// There is nothing to write but the status.
	case current == nil && len(old.former) > 0: // +drop:rename
		result, err = c.createCopy(ctx, foo, desired, old.former[0]) // +drop:rename
	case current == nil:
		result, err = c.deployments.Create(ctx, foo, desired)
	case asksToBeAdopted(foo, current):
		// Adopt ends this sync with an error. The next one goes on with the adopted Deployment.
		err = c.deployments.Adopt(ctx, foo, current, v1alpha1.AdoptByAnnotation)
	default:
		// Patch leaves a Deployment alone that this Foo does not own.
		result, err = c.deployments.Patch(ctx, foo, current, desired)
	}
	// +drop:rename
	// Then delete those of former names, even after a refusal, which cleanUp returns: the rollout may be complete.
	old, err = c.cleanUp(ctx, foo, result, old, err)
	// +drop:end
	// A refusal of the API server is reported in the status. Any other error ends the sync.
	if err != nil && !controller.IsRefusal(err) {
		return 0, err
	}

	// 4. Report.
	f := findings{deployment: result, refused: err, writes: c.deployments.Report(foo, result, desired)}
	f.old = old // +drop:rename
	delay, statusErr := c.updateFooStatus(ctx, foo, f)
	return delay, errors.Join(err, statusErr)
}

// updateFooStatus writes the Foo's status if it differs from the cached one, and then records the event that
// ReadyEvent returns, if any. A status that reports only progress is left to a later sync, which computes it anew.
// It returns how long to wait before the next sync, 0 to wait for an event.
func (c *Controller) updateFooStatus(ctx context.Context, foo *v1alpha1.Foo, f findings) (time.Duration, error) {
	now := c.Clock.Now()
	status := newStatus(foo, f, metav1.NewTime(now))
	was, ready := controller.GetReady(foo.Status.Conditions), controller.GetReady(status.Conditions)
	next, err := c.foos.UpdateStatus(ctx, foo, &status, isProgress(foo, was, ready), ready, deployment.ReadyEvent(fooKind, was, ready))
	return controller.Earliest(now, next, f.writes.Next, f.nextTerminationStall(now)), err
}
