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
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// samples is the number of status changes to time.
const samples = 2000

// TestLatency measures the milliseconds from the write of a Deployment's status to the event
// of the Foo's status, one after the other.
func TestLatency(t *testing.T) {
	e := newEnv(t)
	e.pauseAllButAPIServer()
	foos, observer := e.observeFoos(), e.observe()
	program := e.start()
	e.createFoos("foo", e.objects)
	e.waitForCount("Foos have their Deployments", e.objects, func() int { return observer.count("foo", 0) })
	deployments := foos.makeAllAvailable()
	// The restarted program has no events left to send.
	program.stop()
	e.start()
	e.createFoos("restarted", 1)
	e.waitForCount("Foos have their Deployments", 1, func() int { return observer.count("restarted", 0) })

	latency := foos.latency(deployments)
	e.record("status latency p50", quantile(latency, 0.5)*1e3, nil)
	e.record("status latency p99", quantile(latency, 0.99)*1e3, nil)
}

// makeAllAvailable makes the Deployments of all Foos available and returns them.
func (o *fooObserver) makeAllAvailable() []*appsv1.Deployment {
	e := o.e
	e.Helper()
	deployments := make([]*appsv1.Deployment, e.objects)
	e.inParallel(e.objects, func(ctx context.Context, i int) error {
		deployment, err := e.deploymentClient().Get(ctx, name("foo", i), metav1.GetOptions{})
		if err == nil {
			deployments[i], err = e.makeAvailable(ctx, deployment, 1)
		}
		return err
	})
	o.awaitAll("foo", e.objects, 1)
	return deployments
}

// latency returns the times from the write of a Deployment's status to the event of the Foo's
// status, in ascending order. Only the number of available replicas changes, and it is at least
// the desired one: the controller copies it at once, without a delay for progress.
func (o *fooObserver) latency(deployments []*appsv1.Deployment) []time.Duration {
	e := o.e
	e.Helper()
	var latencies []time.Duration
	for i := range samples {
		at, replicas := i%e.objects, int32(2+i/e.objects)
		start := time.Now()
		updated, err := e.makeAvailable(e.Context(), deployments[at], replicas)
		e.must(err)
		latencies = append(latencies, o.awaitReplicas(name("foo", at), replicas).Sub(start))
		deployments[at] = updated
	}
	return sorted(latencies)
}
