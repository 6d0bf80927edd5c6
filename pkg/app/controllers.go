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

package app

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"golang.org/x/sync/errgroup"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/client"
	"example.com/sample-controller/pkg/controller"
)

const (
	// servedInterval is how often the process asks whether a missing resource is served.
	servedInterval = 2 * time.Second
	// pollsPerReminder makes the log tell once a minute what is missing.
	pollsPerReminder = 30
	// candidateInterval is that of client-go's waits for caches.
	candidateInterval = 100 * time.Millisecond
)

// controllers are the controllers that are enabled. They share clients and no caches: each waits for its
// CustomResourceDefinition, fills its caches and works, also while others wait or fail.
type controllers struct {
	all     []*controllerState
	clients *clients
	worker  controller.WorkerOptions
	// starting are the waits for resources, each of which starts informers.
	starting sync.WaitGroup
}

// controllerState is a controller that is enabled.
type controllerState struct {
	ControllerDescriptor

	// named says that the user named it in --controllers. The process is not ready without it.
	named    bool
	worker   *controller.Worker
	contexts []*ControllerContext
	// informers are those of all contexts.
	informers []*informer
	// served says that the API server serves the resource, awaited that it did so at the start.
	served, awaited atomic.Bool
}

// newControllers builds the controllers that the options enable. Call shutdown in the end.
func newControllers(ctx context.Context, clients *clients, options *Options, recorder record.EventRecorder, metrics *controller.Metrics) (*controllers, error) {
	cs := &controllers{clients: clients, worker: controller.WorkerOptions{
		Clock: clock.RealClock{}, Metrics: metrics, Workers: options.workers, GracePeriod: options.gracePeriod, Resync: options.resyncPeriod > 0,
	}}
	for _, descriptor := range options.program.Controllers {
		on, named := options.enabled(descriptor.Name)
		if !on {
			continue
		}
		c := &controllerState{ControllerDescriptor: descriptor, named: named, worker: controller.NewWorker(descriptor.Kind, cs.worker)}
		cs.all = append(cs.all, c)
		if err := cs.build(c.withLogger(ctx), c, options, recorder); err != nil {
			cs.shutdown(ctx)
			return nil, fmt.Errorf("building the controller %s: %w", c.Name, err)
		}
	}
	return cs, nil
}

// build builds the controller once for each namespace, all with one worker.
func (cs *controllers) build(ctx context.Context, c *controllerState, options *Options, recorder record.EventRecorder) error {
	namespaces := options.namespaces
	if len(namespaces) == 0 {
		namespaces = []string{metav1.NamespaceAll}
	}
	for _, namespace := range namespaces {
		in, err := c.newContext(cs.clients, options, namespace)
		if err != nil {
			return err
		}
		in.Options = controller.Options{Worker: c.worker, Namespace: namespace, Recorder: recorder, Clock: cs.worker.Clock, Metrics: cs.worker.Metrics}
		c.contexts = append(c.contexts, in)
		for _, of := range c.Informers {
			prepared, err := newInformer(in, of, grantRemedy(options.namespaces))
			if err != nil {
				return fmt.Errorf("preparing the informer of %s: %w", of.Resource.GroupResource(), err)
			}
			c.informers = append(c.informers, prepared)
		}
		if err := c.New(ctx, in); err != nil {
			return err
		}
	}
	return nil
}

func (c *controllerState) withLogger(ctx context.Context) context.Context {
	return klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "controller", c.Name))
}

// start begins to fill the caches of each controller whose resource is served, now or later, and returns
// when this process can lead. It returns an error if the API server cannot be reached or does not accept
// the credentials.
func (cs *controllers) start(ctx context.Context) error {
	for _, c := range cs.all {
		served, err := client.IsServed(ctx, cs.clients.discovery, c.Resource)
		if err != nil {
			return err
		}
		c.served.Store(served)
		c.awaited.Store(served)
		cs.starting.Go(func() {
			if cs.awaitServed(ctx, c) {
				for _, f := range c.factories() {
					f.StartWithContext(c.withLogger(ctx))
				}
			}
		})
	}
	return wait.PollUntilContextCancel(ctx, candidateInterval, true, func(context.Context) (bool, error) {
		return cs.anySynced() && !slices.ContainsFunc(cs.all, (*controllerState).isFilling), nil
	})
}

// awaitServed returns true once the resource is served, false if ctx ends before. The log tells
// at once what is missing, and each minute while the process is not ready for want of a resource.
func (cs *controllers) awaitServed(ctx context.Context, c *controllerState) bool {
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "crd", c.Resource.GroupResource().String())
	for polls := 0; !c.served.Load(); polls++ {
		if polls == 0 || polls%pollsPerReminder == 0 && cs.checkServed() != nil {
			logger.Info("Waiting for a CustomResourceDefinition that is not installed", "version", c.Resource.Version, "install", c.install())
		}
		select {
		case <-cs.worker.Clock.After(servedInterval):
		case <-ctx.Done():
			return false
		}
		served, err := client.IsServed(ctx, cs.clients.discovery, c.Resource)
		if err != nil && ctx.Err() == nil {
			logger.Error(err, "Failed to look for the CustomResourceDefinition, trying again")
		}
		c.served.Store(served)
	}
	return true
}

// isFilling reports whether this process must not lead yet: it fills the caches of a controller
// whose resource was served at the start. A leader with empty caches would do nothing, while
// another process could work; but a kind that cannot be listed, for want of a right or because
// of its conversion webhook, must not stop the others.
func (c *controllerState) isFilling() bool {
	hasFailed := slices.ContainsFunc(c.informers, func(i *informer) bool { return i.failure.Load() != nil })
	return c.awaited.Load() && !c.hasSynced() && !hasFailed
}

func (c *controllerState) hasSynced() bool {
	return len(c.informers) > 0 && !slices.ContainsFunc(c.informers, func(i *informer) bool { return !i.HasSynced() })
}

func (cs *controllers) anySynced() bool {
	return slices.ContainsFunc(cs.all, (*controllerState).hasSynced)
}

// run runs each controller's workers from when its caches are filled until ctx ends.
func (cs *controllers) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range cs.all {
		group.Go(func() error {
			for _, i := range c.informers {
				if !cache.WaitFor(ctx, "", i.HasSyncedChecker()) {
					return nil
				}
			}
			return c.worker.Run(ctx)
		})
	}
	return group.Wait()
}

// shutdown shuts down the queues and waits for the informers, whose context has ended.
func (cs *controllers) shutdown(ctx context.Context) {
	cs.starting.Wait()
	for _, c := range cs.all {
		// A worker that never ran has a queue with goroutines as well.
		c.worker.Queue.ShutDown()
	}
	client.AwaitInformers(ctx, func() {
		for _, c := range cs.all {
			for _, f := range c.factories() {
				f.Shutdown()
			}
		}
	})
}

// find returns the controller of that name. One that is not enabled has no contexts, and never
// fills its caches.
func (cs *controllers) find(name string) *controllerState {
	for _, c := range cs.all {
		if c.Name == name {
			return c
		}
	}
	return &controllerState{}
}

// inNamespace returns what the controller reads in the namespace, nil if it does not work in it.
func (c *controllerState) inNamespace(namespace string) *ControllerContext {
	for _, in := range c.contexts {
		if in.Options.Namespace == namespace || in.Options.Namespace == metav1.NamespaceAll {
			return in
		}
	}
	return nil
}

// checkServed returns an error while the resource of a controller that the user named is not
// served, or that of no controller is.
func (cs *controllers) checkServed() error {
	anyServed := slices.ContainsFunc(cs.all, func(c *controllerState) bool { return c.served.Load() })
	var errs []error
	for _, c := range cs.all {
		if !c.served.Load() && (c.named || !anyServed) {
			errs = append(errs, fmt.Errorf("the API server does not serve %s; %s", c.Resource.GroupResource(), c.install()))
		}
	}
	return errors.Join(errs...)
}

// checkCaches returns an error until the caches of all controllers are filled. It leaves out one that the user did not
// name if RBAC forbids to list its objects and another one's caches are filled.
func (cs *controllers) checkCaches() error {
	var errs []error
	if !cs.anySynced() {
		errs = append(errs, errors.New("no cache is filled yet"))
	}
	for _, c := range cs.all {
		isOptional := !c.named && slices.ContainsFunc(c.informers, (*informer).isForbidden) && cs.anySynced()
		if !c.served.Load() || c.hasSynced() || isOptional {
			continue
		}
		errs = append(errs, fmt.Errorf("the %s controller waits for its caches", c.Name))
		for _, i := range c.informers {
			errs = append(errs, i.check())
		}
	}
	return errors.Join(errs...)
}
