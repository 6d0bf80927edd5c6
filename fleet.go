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
	"sync"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/controller"
)

// unit is one of the controllers of this program, with what it takes to start it.
type unit struct {
	// name is the one in --controllers.
	name string
	// served returns whether the API server has the kind that it works for, and
	// awaitServed when it has.
	served      func(context.Context) (bool, error)
	awaitServed func(ctx context.Context, urgent bool) error
	// missing says what is to be done until then.
	missing string
	// build returns the loop, and the informers that feed it.
	build func(context.Context) (*controller.Loop, []cache.SharedIndexInformer, error)

	// named says that the user asked for this one by name. One that is on because
	// all are may be missing.
	named bool
	// loop is nil until the kind is served. The lock of the fleet guards it.
	loop *controller.Loop
	// refused says that it was not named and may not fill its caches.
	refused bool
}

// outcome tells that a unit can work, or why not.
type outcome struct {
	unit *unit
	err  error
}

// logRefusal tells that a controller is left out for now, where others work.
func (o outcome) logRefusal(ctx context.Context) {
	klog.FromContext(ctx).Error(o.err, "The controller may not fill its caches; it works once it may, or leave it out with --controllers=*,-"+o.unit.name, "controller", o.unit.name)
}

// fleet are the controllers that are on. Each starts when its kind is served, without
// regard to the others.
type fleet struct {
	units     []*unit
	informers *informers

	starting sync.WaitGroup
	outcomes chan outcome
	// ready are those that prepare has waited for.
	ready []*unit

	mu sync.Mutex
}

// newFleet returns the fleet of the units that are on; enabled says which are, and
// which are so by name.
func newFleet(enabled func(name string) (on, named bool), informers *informers, all []*unit) *fleet {
	f := &fleet{informers: informers}
	for _, u := range all {
		on, named := enabled(u.name)
		if u.named = named; on {
			f.units = append(f.units, u)
		}
	}
	// A unit may be refused first and work later.
	f.outcomes = make(chan outcome, 2*len(f.units))
	return f
}

// prepare returns once every controller that was named can work, every one whose kind
// is served either can or may not, and at least one can. It fails if the API server
// cannot be reached or accepts nobody, if it forbids a named one to fill its caches,
// and if it forbids that to all.
func (f *fleet) prepare(ctx context.Context) error {
	awaited, anyServed := map[*unit]bool{}, false
	for _, u := range f.units {
		served, err := u.served(ctx)
		if err != nil {
			return err
		}
		anyServed = anyServed || served
		if served || u.named {
			awaited[u] = true
		}
	}
	for _, u := range f.units {
		f.starting.Go(func() { f.start(ctx, u, u.named || !anyServed) })
	}
	var refusals []outcome
	for {
		select {
		case o := <-f.outcomes:
			switch {
			case o.err == nil:
				f.ready = append(f.ready, o.unit)
			case o.unit.named || !apierrors.IsForbidden(o.err):
				return o.err
			default:
				refusals = append(refusals, o)
			}
			delete(awaited, o.unit)
		case <-ctx.Done():
			return fmt.Errorf("waiting for a controller that can work: %w", context.Cause(ctx))
		}
		switch {
		case len(awaited) > 0:
		case len(f.ready) > 0:
			for _, o := range refusals {
				o.logRefusal(ctx)
			}
			return nil
		case len(refusals) > 0:
			// What mends one mends all.
			return refusals[0].err
		}
	}
}

// start brings one controller to where it can work, and tells so.
func (f *fleet) start(ctx context.Context, u *unit, urgent bool) {
	tell := func(err error) {
		if ctx.Err() != nil {
			// To be told to stop is no trouble of the controller's.
			return
		}
		select {
		case <-ctx.Done():
		case f.outcomes <- outcome{u, err}:
		}
	}
	if err := u.awaitServed(ctx, urgent); err != nil {
		tell(err)
		return
	}
	logger := klog.LoggerWithValues(klog.FromContext(ctx), "controller", u.name)
	ctx = klog.NewContext(ctx, logger)
	filling, refuse := context.WithCancelCause(ctx)
	defer refuse(nil)
	loop, stopTelling, err := f.build(ctx, u, refuse)
	if err != nil {
		tell(fmt.Errorf("building the controller %s: %w", u.name, err))
		return
	}
	err = loop.WaitForCaches(filling)
	if !apierrors.IsForbidden(err) {
		// Until then every further refusal says the same in other words.
		stopTelling()
	}
	f.mu.Lock()
	u.refused = apierrors.IsForbidden(err) && !u.named
	f.mu.Unlock()
	tell(err)
	if !u.refused {
		return
	}
	if err := loop.WaitForCaches(ctx); err == nil {
		stopTelling()
		f.mu.Lock()
		u.refused = false
		f.mu.Unlock()
		tell(nil)
	}
}

// build builds one controller and starts its informers; refuse is called if one of them
// may not fill its cache. One after the other: an informer starts with whoever comes
// first, and must have been prepared by then.
func (f *fleet) build(ctx context.Context, u *unit, refuse func(error)) (*controller.Loop, func(), error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	loop, feeds, err := u.build(ctx)
	if err != nil {
		return nil, nil, err
	}
	u.loop = loop
	stop, err := f.informers.start(ctx, feeds, refuse)
	return loop, stop, err
}

// work runs the controllers until ctx ends, and those that come later too.
func (f *fleet) work(ctx context.Context) error {
	var running sync.WaitGroup
	defer running.Wait()
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make(chan error, len(f.units))
	run := func(u *unit) {
		running.Go(func() {
			if err := u.loop.Run(ctx); err != nil {
				failed <- fmt.Errorf("running the controller %s: %w", u.name, err)
			}
		})
	}
	for _, u := range f.ready {
		run(u)
	}
	for {
		select {
		case o := <-f.outcomes:
			switch {
			case o.err == nil:
				run(o.unit)
			case apierrors.IsForbidden(o.err):
				o.logRefusal(ctx)
			default:
				klog.FromContext(ctx).Error(o.err, "A controller cannot be started", "controller", o.unit.name)
			}
		case err := <-failed:
			return err
		case <-ctx.Done():
			return nil
		}
	}
}

// shutdown returns when nothing of the fleet runs any more but informers that hear of
// nothing. The context of prepare has ended.
func (f *fleet) shutdown(ctx context.Context) {
	f.starting.Wait()
	for _, u := range f.units {
		if u.loop != nil {
			// One that never ran still has its queue.
			u.loop.Queue.ShutDown()
		}
	}
	f.informers.shutdown(ctx)
}

// filled reports whether the controller of that name is built and has its caches filled.
func (f *fleet) filled(name string) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.units {
		if u.name == name && u.loop != nil {
			return u.loop.CheckCaches() == nil
		}
	}
	return false
}

// loops returns those that are built and were not refused, and the units whose kind is
// not served.
func (f *fleet) loops() (built []*controller.Loop, missing []*unit) {
	f.mu.Lock()
	defer f.mu.Unlock()
	for _, u := range f.units {
		switch {
		case u.loop == nil:
			missing = append(missing, u)
		case !u.refused:
			built = append(built, u.loop)
		}
	}
	return built, missing
}

// checkServed returns an error while a kind is not served that a user asked for, and
// while none is.
func (f *fleet) checkServed() error {
	built, missing := f.loops()
	var problems []error
	for _, u := range missing {
		if u.named || len(built) == 0 {
			problems = append(problems, errors.New(u.missing))
		}
	}
	return errors.Join(problems...)
}

// checkCaches returns an error until the caches of all controllers are filled whose
// kind is served.
func (f *fleet) checkCaches() error {
	built, _ := f.loops()
	if len(built) == 0 {
		return errors.New("no cache is filled yet")
	}
	var problems []error
	for _, loop := range built {
		problems = append(problems, loop.CheckCaches())
	}
	return errors.Join(problems...)
}

// checkWorkers returns an error if all workers of a controller are stuck.
func (f *fleet) checkWorkers() error {
	built, _ := f.loops()
	var problems []error
	for _, loop := range built {
		problems = append(problems, loop.CheckWorkers())
	}
	return errors.Join(problems...)
}
