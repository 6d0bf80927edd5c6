//go:build bench

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

package bench

import (
	"context"
	"errors"
	"fmt"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
)

// TestRequests counts what a Foo costs the API server: until it is ready, when it is
// scaled, while nothing happens, and at a restart.
func TestRequests(t *testing.T) {
	b := newBench(t)
	b.pauseOthers()
	b.actAsDeploymentController()
	foos := b.watchFoos()
	controller := b.start("--resync-period=1s")

	asked := b.requests()
	b.createFoos("foo", b.objects)
	foos.settleReady(b.objects, 1)
	b.quiet()
	b.reportCosts("create", b.since(asked))

	asked = b.requests()
	b.inParallel(b.objects, creators, func(ctx context.Context, i int) error { return b.scaleFoo(ctx, name("foo", i), 2) })
	foos.settleReady(b.objects, 2)
	b.quiet()
	spent := b.since(asked)
	spent["PATCH foos"] -= float64(b.objects)
	b.reportCosts("scale", spent)

	asked = b.requests()
	if !b.isPeer() {
		syncs := controller.metric("sample_controller_sync_duration_seconds_count")
		b.eventually(func(context.Context) error {
			if got := (controller.metric("sample_controller_sync_duration_seconds_count") - syncs) / float64(b.objects); got < 10 {
				return fmt.Errorf("%.1f resyncs", got)
			}
			return nil
		})
	}
	b.report("steady state", writes(b.since(asked)), nil)

	controller.stop()
	asked = b.requests()
	controller = b.start()
	if !b.isPeer() {
		b.eventually(func(context.Context) error {
			if got := controller.metric("sample_controller_sync_duration_seconds_count"); got < float64(b.objects) {
				return fmt.Errorf("%.0f syncs", got)
			}
			return nil
		})
	}
	b.quiet()
	spent = b.since(asked)
	b.report("restart", writes(spent), nil)
	// A list by a watch is counted as a watch, once it has ended.
	controller.stop()
	spent = b.since(asked)
	worst := 0.0
	for _, resource := range []string{"foos", "deployments"} {
		worst = max(worst, spent.sum(resource, "LIST", "WATCH", "WATCHLIST"))
	}
	b.report("restart lists", worst, spent)
}

// reportCosts reports what each Foo cost.
func (b *bench) reportCosts(what string, spent requests) {
	b.Helper()
	each := func(count float64) float64 { return count / float64(b.objects) }
	b.report(what+": Deployment writes", each(spent.sum("deployments", "POST", "PUT", "PATCH", "APPLY", "DELETE")), spent)
	b.report(what+": status writes", each(spent.sum("foos/status", "PUT", "PATCH", "APPLY")), nil)
	if what == "create" {
		b.report(what+": events", each(spent.sum("events", "POST", "PATCH", "PUT")), nil)
	}
	b.report(what+": reads", each(spent.sum("foos", "GET", "LIST")+spent.sum("deployments", "GET", "LIST")), nil)
}

// writes returns the number of all writes, events among them.
func writes(spent requests) float64 {
	total := 0.0
	for _, resource := range []string{"foos", "foos/status", "deployments", "events"} {
		total += spent.sum(resource, "POST", "PUT", "PATCH", "APPLY", "DELETE")
	}
	return total
}

// actAsDeploymentController has every Deployment become available as soon as this client
// hears of its spec.
func (b *bench) actAsDeploymentController() {
	b.Helper()
	changed := make(chan *appsv1.Deployment, 10*b.objects)
	tell := func(deployment *appsv1.Deployment) {
		if deployment.Status.ObservedGeneration < deployment.Generation {
			changed <- deployment
		}
	}
	factory := kubeinformers.NewSharedInformerFactory(b.kube, 0)
	_, err := factory.Apps().V1().Deployments().TypedInformer().AddTypedEventHandler(appsinformers.DeploymentHandlerFuncs{
		AddFunc: tell, UpdateFunc: func(_, deployment *appsv1.Deployment) { tell(deployment) },
	})
	b.must(err)
	factory.StartWithContext(b.Context())
	factory.WaitForCacheSyncWithContext(b.Context())
	for range creators {
		go func() {
			for {
				select {
				case deployment := <-changed:
					if _, err := b.makeAvailable(b.Context(), deployment, *deployment.Spec.Replicas); err != nil && b.Context().Err() == nil {
						b.Errorf("the status of Deployment %s: %v", deployment.Name, err)
					}
				case <-b.Context().Done():
					return
				}
			}
		}()
	}
}

// settleReady waits until all Foos are seen, which are so many, and tell of that many
// Pods.
func (f *fooWatch) settleReady(count int, replicas int32) {
	b := f.b
	b.Helper()
	b.eventually(func(context.Context) error {
		f.mu.Lock()
		defer f.mu.Unlock()
		if len(f.available) < count {
			return fmt.Errorf("%d Foos", len(f.available))
		}
		for name, pods := range f.available {
			if pods.count != replicas {
				return fmt.Errorf("%s tells of %d Pods", name, pods.count)
			}
		}
		return nil
	})
}

// quiet waits until nobody asks the API server to write any more.
func (b *bench) quiet() {
	b.Helper()
	last, same := -1.0, 0
	b.eventually(func(context.Context) error {
		now := writes(b.requests())
		if now != last {
			last, same = now, 0
			return errors.New("there are writes")
		}
		// Events come last, 20 a second.
		if same++; same < 20 {
			return errors.New("there were writes just now")
		}
		return nil
	})
}
