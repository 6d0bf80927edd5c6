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

	"golang.org/x/sync/errgroup"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/client"
	"example.com/sample-controller/pkg/controller"
)

// controllers are the controllers that are enabled. Each waits for its
// CustomResourceDefinition, is built, fills its caches and runs, independently of the
// others.
type controllers struct {
	all       []*controllerState
	clients   *clients
	informers *informers
	recorder  record.EventRecorder
	metrics   *controller.Metrics
	worker    controller.WorkerOptions

	// changed has an element after a controller has filled its caches or an informer
	// has failed.
	changed chan struct{}
	// mu guards worker and informers of each controller. It also keeps one controller
	// from starting the informers of another one that is only half built.
	mu sync.Mutex
}

// controllerState is an enabled controller: it waits for its CustomResourceDefinition, fills
// its caches, or runs.
type controllerState struct {
	ControllerDescriptor

	// named says that the user named it in --controllers. The process is not ready without
	// its CustomResourceDefinition and its rights.
	named bool
	// awaited says that the process does not lead before the controller has filled its
	// caches or has failed to.
	awaited bool
	// pollFast says that the process asks every second whether the resource is served,
	// otherwise every ten.
	pollFast bool

	// worker and informers are nil until the resource is served.
	worker    *controller.Worker
	informers []*informer
	// synced is closed when the caches are filled.
	synced chan struct{}
}

// newControllers returns the controllers that the options enable.
func newControllers(clients *clients, options *Options, recorder record.EventRecorder, metrics *controller.Metrics) (*controllers, error) {
	cs := &controllers{
		clients: clients, recorder: recorder, metrics: metrics, changed: make(chan struct{}, 1),
		worker: controller.WorkerOptions{
			Clock: clock.RealClock{}, Metrics: metrics, Workers: options.workers, GracePeriod: options.gracePeriod, Resync: options.resyncPeriod > 0,
		},
	}
	var enabled []ControllerDescriptor
	for _, descriptor := range options.program.Controllers {
		on, named := options.enabled(descriptor.Name)
		if on {
			enabled = append(enabled, descriptor)
			cs.all = append(cs.all, &controllerState{ControllerDescriptor: descriptor, named: named, synced: make(chan struct{})})
		}
	}
	var err error
	cs.informers, err = newInformers(clients, options, enabled, cs.notify)
	return cs, err
}

func (cs *controllers) notify() {
	select {
	case cs.changed <- struct{}{}:
	default:
		// A notification is already pending.
	}
}

// start begins, for each controller, to wait for its resource, build it and fill its caches,
// in the group. It returns an error if the API server cannot
// be reached or does not accept the credentials.
func (cs *controllers) start(ctx context.Context, group *errgroup.Group) error {
	anyServed := false
	for _, c := range cs.all {
		served, err := client.IsServed(ctx, cs.clients.discovery, c.Resource)
		if err != nil {
			return err
		}
		anyServed = anyServed || served
		c.awaited = served || c.named
	}
	for _, c := range cs.all {
		c.pollFast = c.named || !anyServed
		group.Go(func() error { return cs.startOne(ctx, c) })
	}
	return nil
}

// startOne waits until the resource is served, builds the controller and waits for its
// caches. It returns an error if ctx ends.
func (cs *controllers) startOne(ctx context.Context, c *controllerState) error {
	if err := client.WaitUntilServed(ctx, cs.clients.discovery, c.Resource, c.install(), c.pollFast); err != nil {
		return err
	}
	if err := cs.build(ctx, c); err != nil {
		return fmt.Errorf("building the controller %s: %w", c.Name, err)
	}
	for _, i := range c.informers {
		if !cache.WaitFor(ctx, "", i.HasSyncedChecker()) {
			return context.Cause(ctx)
		}
	}
	close(c.synced)
	cs.notify()
	return nil
}

// build builds the controller once for each namespace, all with one worker, and starts
// its informers.
func (cs *controllers) build(ctx context.Context, c *controllerState) (err error) {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	if c.informers, err = cs.informers.prepare(&c.ControllerDescriptor); err != nil {
		return err
	}
	c.worker = controller.NewWorker(c.Kind, cs.worker)
	// The informers log without the controller's name, because controllers share them.
	newCtx := klog.NewContext(ctx, klog.LoggerWithValues(klog.FromContext(ctx), "controller", c.Name))
	for _, namespace := range cs.informers.namespaces {
		in := *namespace
		in.Options = controller.Options{
			Worker: c.worker, Namespace: namespace.Options.Namespace, Recorder: cs.recorder, Clock: cs.worker.Clock, Metrics: cs.metrics,
		}
		if err := c.New(newCtx, &in); err != nil {
			return err
		}
	}
	cs.informers.start(ctx)
	return nil
}

// awaitCandidate returns when this process can lead: when every controller that the user
// named, and every one whose resource was served at the start, has filled its caches or has
// failed to, and at least one has. A leader with empty caches would do nothing, while another
// process could work; but a kind that cannot be listed, for want of a right or because of its
// conversion webhook, must not stop the others. Its controller begins to work as soon as its
// caches are filled. It returns the cause if ctx ends first.
func (cs *controllers) awaitCandidate(ctx context.Context) error {
	for !cs.canLead() {
		select {
		case <-cs.changed:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	return nil
}

func (cs *controllers) canLead() bool {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	blocked := slices.ContainsFunc(cs.all, func(c *controllerState) bool { return c.awaited && !c.hasSynced() && !c.hasFailed() })
	return !blocked && cs.anySynced()
}

// run runs each controller's workers from when its caches are filled until ctx ends.
func (cs *controllers) run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	for _, c := range cs.all {
		group.Go(func() error {
			select {
			case <-c.synced:
				return c.worker.Run(ctx)
			case <-ctx.Done():
				return nil
			}
		})
	}
	return group.Wait()
}

// shutdown shuts down the queues and waits for the informers. Call it after the group of
// start has returned.
func (cs *controllers) shutdown(ctx context.Context) {
	for _, c := range cs.all {
		if c.worker != nil {
			// A worker that never ran has a queue with goroutines as well.
			c.worker.Queue.ShutDown()
		}
	}
	cs.informers.shutdown(ctx)
}

// hasSynced reports whether the caches of the controller of that name are filled.
func (cs *controllers) hasSynced(name string) bool {
	return slices.ContainsFunc(cs.all, func(c *controllerState) bool { return c.Name == name && c.hasSynced() })
}

func (cs *controllers) anySynced() bool {
	return slices.ContainsFunc(cs.all, (*controllerState).hasSynced)
}

// checkServed returns an error while the resource of a controller that the user named is not
// served, or that of no controller is.
func (cs *controllers) checkServed() error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	anyServed := slices.ContainsFunc(cs.all, func(c *controllerState) bool { return c.worker != nil })
	var problems []error
	for _, c := range cs.all {
		if c.worker == nil && (c.named || !anyServed) {
			problems = append(problems, c.errNotServed())
		}
	}
	return errors.Join(problems...)
}

// checkCaches returns an error while a controller whose resource is served has not filled its
// caches. It ignores a controller that RBAC forbids to list if the user did not name it
// and another controller has filled its caches.
func (cs *controllers) checkCaches() error {
	cs.mu.Lock()
	defer cs.mu.Unlock()
	var problems []error
	if !cs.anySynced() {
		problems = append(problems, errors.New("no cache is filled yet"))
	}
	for _, c := range cs.all {
		if c.worker == nil || c.hasSynced() || !c.named && c.isForbidden() && cs.anySynced() {
			continue
		}
		problems = append(problems, fmt.Errorf("the %s controller waits for its caches", c.Name))
		for _, i := range c.informers {
			problems = append(problems, i.check())
		}
	}
	return errors.Join(problems...)
}

func (c *controllerState) hasSynced() bool {
	select {
	case <-c.synced:
		return true
	default:
		return false
	}
}

// hasFailed reports whether a list or watch of a resource that the controller reads has failed,
// and the cache is not filled.
func (c *controllerState) hasFailed() bool {
	return slices.ContainsFunc(c.informers, (*informer).hasFailed)
}

// isForbidden reports whether RBAC forbids to list a resource that the controller reads.
func (c *controllerState) isForbidden() bool {
	return slices.ContainsFunc(c.informers, (*informer).isForbidden)
}
