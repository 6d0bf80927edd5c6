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
	"sync"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// samples is the number of status changes to time.
const samples = 1000

// TestLatency measures the time from the write of a Deployment's status to the event of the
// Foo's status, one after the other. A plain client, before and after, writes a Foo's status
// and waits for its event.
func TestLatency(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	foos := e.observeFoos()
	e.createFoos("foo", e.objects)

	before := foos.plainLatency(1_000_000)
	deploymentBefore := e.deploymentLatency()
	requests := e.requests()
	controller := e.start()
	e.awaitStatuses(requests, e.objects)
	deployments := foos.makeAllAvailable()
	// The restarted controller has no events left to send.
	controller.stop()
	controller = e.start()
	e.syncOneFoo("restarted")
	latency := foos.latency(deployments, 2)
	controller.stop()
	copied := foos.copyLatency(deployments, 1000)
	after := foos.plainLatency(2_000_000)
	deployment := mean(quantile(deploymentBefore, 0.5), quantile(e.deploymentLatency(), 0.5))

	for row, q := range map[string]float64{"status latency p50": 0.5, "status latency p99": 0.99} {
		plain := mean(quantile(before, q), quantile(after, q))
		e.record(row, quantile(latency, q)/plain, map[string]float64{
			"ms": quantile(latency, q) * 1e3, "PUT ms before": quantile(before, q) * 1e3, "PUT ms after": quantile(after, q) * 1e3,
			"PUT ms of a Deployment's status, p50": deployment * 1e3,
			"of a client that does nothing else":   quantile(copied, q) / plain,
		})
	}
}

// makeAllAvailable makes the Deployments of all Foos available and returns them.
func (o *fooObserver) makeAllAvailable() []*appsv1.Deployment {
	e := o.e
	e.Helper()
	deployments := make([]*appsv1.Deployment, e.objects)
	e.inParallel(e.objects, creators, func(ctx context.Context, i int) error {
		deployment, err := e.deploymentClient().Get(ctx, name("foo", i), metav1.GetOptions{})
		if err == nil {
			deployments[i], err = e.makeAvailable(ctx, deployment, 1)
		}
		return err
	})
	for i := range deployments {
		o.awaitReplicas(name("foo", i), 1)
	}
	return deployments
}

// latency returns the times from the write of a Deployment's status to the event of the
// Foo's status, in ascending order. Only the number of available replicas changes, from
// the given one on: the controller copies it at once, without a delay for progress.
func (o *fooObserver) latency(deployments []*appsv1.Deployment, from int) []time.Duration {
	e := o.e
	e.Helper()
	var latencies []time.Duration
	for i := range samples {
		at, replicas := i%e.objects, int32(from+i/e.objects)
		start := time.Now()
		updated, err := e.makeAvailable(e.Context(), deployments[at], replicas)
		e.must(err)
		latencies = append(latencies, o.awaitReplicas(name("foo", at), replicas).Sub(start))
		deployments[at] = updated
	}
	return sorted(latencies)
}

// copyLatency returns the same for a client that copies each Deployment's available replicas
// into the Foo's status as soon as its watch delivers them, and does nothing else: no
// controller can be faster.
func (o *fooObserver) copyLatency(deployments []*appsv1.Deployment, from int) []time.Duration {
	e := o.e
	e.Helper()
	events := e.watchDeploymentEvents()
	foos := o.list()
	var copier sync.WaitGroup
	copier.Go(func() {
		for event := range events.ResultChan() {
			deployment, ok := event.Object.(*appsv1.Deployment)
			if !ok || foos[deployment.Name] == nil {
				continue
			}
			foo := foos[deployment.Name]
			foo.Status.AvailableReplicas = deployment.Status.AvailableReplicas
			updated, err := e.fooClient().UpdateStatus(e.Context(), foo, metav1.UpdateOptions{})
			if err != nil {
				e.Errorf("copying the status of Deployment %s: %v", foo.Name, err)
				continue
			}
			foos[deployment.Name] = updated
		}
	})
	latencies := o.latency(deployments, from)
	events.Stop()
	copier.Wait()
	return latencies
}

// deploymentLatency returns the times from a plain client's write of a Deployment's status
// to the event of that Deployment, in ascending order. The controller's latency includes
// this one.
func (e *env) deploymentLatency() []time.Duration {
	e.Helper()
	deployment, err := e.deploymentClient().Get(e.Context(), "plain", metav1.GetOptions{})
	if apierrors.IsNotFound(err) {
		deployment, err = e.deploymentClient().Create(e.Context(), newDeployment("plain"), metav1.CreateOptions{})
	}
	e.must(err)
	events := e.watchDeploymentEvents()
	defer events.Stop()
	var latencies []time.Duration
	for i := range samples / 4 {
		start := time.Now()
		deployment, err = e.makeAvailable(e.Context(), deployment, 1+deployment.Status.Replicas)
		e.must(err)
		for event := range events.ResultChan() {
			delivered, ok := event.Object.(*appsv1.Deployment)
			if !ok {
				e.Fatalf("the watch of Deployments, after %d events: %+v", i, event.Object)
			}
			if delivered.ResourceVersion == deployment.ResourceVersion {
				break
			}
		}
		latencies = append(latencies, time.Since(start))
	}
	return sorted(latencies)
}

// plainLatency returns the times from a plain client's write of a Foo's status to its event,
// in ascending order. It writes numbers of available replicas from the given one on.
func (o *fooObserver) plainLatency(from int32) []time.Duration {
	e := o.e
	e.Helper()
	foos := o.list()
	var latencies []time.Duration
	for i := range samples {
		name, replicas := name("foo", i%e.objects), from+int32(i/e.objects)
		foo := foos[name]
		foo.Status.AvailableReplicas = replicas
		start := time.Now()
		updated, err := e.fooClient().UpdateStatus(e.Context(), foo, metav1.UpdateOptions{})
		e.must(err)
		latencies = append(latencies, o.awaitReplicas(name, replicas).Sub(start))
		foos[name] = updated
	}
	return sorted(latencies)
}

// list returns all Foos by name.
func (o *fooObserver) list() map[string]*v1alpha1.Foo {
	e := o.e
	e.Helper()
	list, err := e.fooClient().List(e.Context(), metav1.ListOptions{})
	e.must(err)
	foos := map[string]*v1alpha1.Foo{}
	for i := range list.Items {
		foos[list.Items[i].Name] = &list.Items[i]
	}
	return foos
}
