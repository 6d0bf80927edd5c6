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
	"fmt"
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	fooinformersv1alpha1 "example.com/sample-controller/pkg/generated/informers/externalversions/samplecontroller/v1alpha1"
)

// samples is how many status changes are timed.
const samples = 1000

// TestLatency measures how long it takes from the write of a Deployment's status to the
// Foo's event that tells of it, one after the other, and before and after that from a
// plain client's write of a Foo's status to its event, which is the floor.
func TestLatency(t *testing.T) {
	b := newBench(t)
	b.pauseOthers()
	foos := b.watchFoos()
	b.createFoos("foo", b.objects)

	before := foos.rawLatency(1_000_000)
	first := b.deploymentLatency()
	asked := b.requests()
	controller := b.start()
	b.settle(asked, b.objects)
	deployments := foos.rollOut()
	// A controller that has just begun has no events to send any more.
	controller.stop()
	controller = b.start()
	b.serveOne("restarted")
	latency := foos.latency(deployments, 2)
	controller.stop()
	echo := foos.echoed(deployments, 1000)
	after := foos.rawLatency(2_000_000)
	parts := mean(quantile(first, 0.5).Seconds(), quantile(b.deploymentLatency(), 0.5).Seconds()) * 1e3

	for row, q := range map[string]float64{"status latency p50": 0.5, "status latency p99": 0.99} {
		floor := mean(quantile(before, q).Seconds(), quantile(after, q).Seconds())
		b.report(row, quantile(latency, q).Seconds()/floor, map[string]float64{
			"ms": quantile(latency, q).Seconds() * 1e3, "PUT ms before": quantile(before, q).Seconds() * 1e3, "PUT ms after": quantile(after, q).Seconds() * 1e3,
			"PUT ms of a Deployment's status, p50": parts,
			"of a client that does nothing else":   quantile(echo, q).Seconds() / floor,
		})
	}
}

// rollOut makes all Deployments available, and returns them.
func (f *fooWatch) rollOut() []*appsv1.Deployment {
	b := f.b
	b.Helper()
	deployments := make([]*appsv1.Deployment, b.objects)
	b.inParallel(b.objects, creators, func(ctx context.Context, i int) error {
		deployment, err := b.kube.AppsV1().Deployments(namespace).Get(ctx, name("foo", i), metav1.GetOptions{})
		if err == nil {
			deployments[i], err = b.makeAvailable(ctx, deployment, 1)
		}
		return err
	})
	for i := range deployments {
		f.await(name("foo", i), 1)
	}
	return deployments
}

// latency returns how long it took from the write of a Deployment's status until the
// Foo's event, in ascending order. All Deployments are available: what changes is how
// many Pods are, from so many on, which is told at once.
func (f *fooWatch) latency(deployments []*appsv1.Deployment, from int) []time.Duration {
	b := f.b
	b.Helper()
	var took []time.Duration
	for i := range samples {
		at, pods := i%b.objects, int32(from+i/b.objects)
		began := time.Now()
		updated, err := b.makeAvailable(b.Context(), deployments[at], pods)
		b.must(err)
		took = append(took, f.await(name("foo", at), pods).Sub(began))
		deployments[at] = updated
	}
	return sorted(took)
}

// echoed returns what latency does, of a client that copies each Deployment's number of
// Pods into the Foo's status as soon as a watch tells of it, and does nothing else: no
// controller can be faster.
func (f *fooWatch) echoed(deployments []*appsv1.Deployment, from int) []time.Duration {
	b := f.b
	b.Helper()
	ctx, cancel := context.WithCancel(b.Context())
	all, err := b.kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
	b.must(err)
	events, err := b.kube.AppsV1().Deployments(namespace).Watch(ctx, metav1.ListOptions{ResourceVersion: all.ResourceVersion})
	b.must(err)
	foos := f.list()
	var echo sync.WaitGroup
	echo.Go(func() {
		for event := range events.ResultChan() {
			deployment, ok := event.Object.(*appsv1.Deployment)
			if !ok || foos[deployment.Name] == nil {
				continue
			}
			foo := foos[deployment.Name]
			foo.Status.AvailableReplicas = deployment.Status.AvailableReplicas
			updated, err := b.foos.SamplecontrollerV1alpha1().Foos(namespace).UpdateStatus(ctx, foo, metav1.UpdateOptions{})
			if err != nil {
				// latency waits in vain for this one, and says so.
				b.Errorf("echoing the status of %s: %v", foo.Name, err)
				continue
			}
			foos[deployment.Name] = updated
		}
	})
	took := f.latency(deployments, from)
	events.Stop()
	echo.Wait()
	cancel()
	return took
}

// deploymentLatency returns how long it took from a plain client's write of a Deployment's
// status until the Deployment's event, in ascending order: the first part of what it takes
// until the Foo's.
func (b *bench) deploymentLatency() []time.Duration {
	b.Helper()
	const name = "plain"
	deployments := b.kube.AppsV1().Deployments(namespace)
	deployment, err := deployments.Get(b.Context(), name, metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		deployment, err = deployments.Create(b.Context(), bareDeployment(name), metav1.CreateOptions{})
	}
	b.must(err)
	// The Deployment's own version may be longer ago than the API server remembers.
	now, err := deployments.List(b.Context(), metav1.ListOptions{Limit: 1})
	b.must(err)
	events, err := deployments.Watch(b.Context(), metav1.ListOptions{ResourceVersion: now.ResourceVersion})
	b.must(err)
	defer events.Stop()
	var took []time.Duration
	for i := range samples / 4 {
		began := time.Now()
		deployment, err = b.makeAvailable(b.Context(), deployment, 1+deployment.Status.Replicas)
		b.must(err)
		for event := range events.ResultChan() {
			seen, ok := event.Object.(*appsv1.Deployment)
			if !ok {
				b.Fatalf("the watch of Deployments, after %d events: %+v", i, event.Object)
			}
			if seen.ResourceVersion == deployment.ResourceVersion {
				break
			}
		}
		took = append(took, time.Since(began))
	}
	return sorted(took)
}

// rawLatency returns how long it took from a plain client's write of a Foo's status
// until its event, in ascending order. The numbers that it writes begin with from.
func (f *fooWatch) rawLatency(from int32) []time.Duration {
	b := f.b
	foos := f.list()
	var took []time.Duration
	for i := range samples {
		name, pods := name("foo", i%b.objects), from+int32(i/b.objects)
		foo := foos[name]
		foo.Status.AvailableReplicas = pods
		began := time.Now()
		updated, err := b.foos.SamplecontrollerV1alpha1().Foos(namespace).UpdateStatus(b.Context(), foo, metav1.UpdateOptions{})
		b.must(err)
		took = append(took, f.await(name, pods).Sub(began))
		foos[name] = updated
	}
	return sorted(took)
}

// list returns all Foos, by their names.
func (f *fooWatch) list() map[string]*v1alpha1.Foo {
	b := f.b
	b.Helper()
	foos := map[string]*v1alpha1.Foo{}
	list, err := b.foos.SamplecontrollerV1alpha1().Foos(namespace).List(b.Context(), metav1.ListOptions{})
	b.must(err)
	for i := range list.Items {
		foos[list.Items[i].Name] = &list.Items[i]
	}
	return foos
}

// fooWatch knows how many Pods each Foo tells of, and since when.
type fooWatch struct {
	b *bench

	mu        sync.Mutex
	available map[string]pods
	// told is closed and made anew with each event.
	told chan struct{}
}

// pods is how many a status told of, and when that was seen first.
type pods struct {
	count int32
	at    time.Time
}

// watchFoos watches Foos until the measurement ends.
func (b *bench) watchFoos() *fooWatch {
	b.Helper()
	f := &fooWatch{b: b, available: map[string]pods{}, told: make(chan struct{})}
	see := func(foo *v1alpha1.Foo) {
		now := time.Now()
		f.mu.Lock()
		defer f.mu.Unlock()
		if was, known := f.available[foo.Name]; !known || was.count != foo.Status.AvailableReplicas {
			f.available[foo.Name] = pods{foo.Status.AvailableReplicas, now}
		}
		close(f.told)
		f.told = make(chan struct{})
	}
	factory := fooinformers.NewSharedInformerFactory(b.foos, 0)
	_, err := factory.Samplecontroller().V1alpha1().Foos().TypedInformer().AddTypedEventHandler(fooinformersv1alpha1.FooHandlerFuncs{
		AddFunc: see, UpdateFunc: func(_, foo *v1alpha1.Foo) { see(foo) },
	})
	b.must(err)
	factory.StartWithContext(b.Context())
	factory.WaitForCacheSyncWithContext(b.Context())
	return f
}

// await waits until the Foo tells of that many Pods, and returns when that was seen.
func (f *fooWatch) await(name string, count int32) time.Time {
	f.b.Helper()
	ctx, cancel := context.WithTimeoutCause(f.b.Context(), patience, fmt.Errorf("Foo %s does not tell of %d Pods", name, count))
	defer cancel()
	for {
		f.mu.Lock()
		seen, told := f.available[name], f.told
		f.mu.Unlock()
		if seen.count == count {
			return seen.at
		}
		select {
		case <-told:
		case <-ctx.Done():
			f.b.Fatal(context.Cause(ctx))
		}
	}
}
