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
	"os"
	"slices"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestThroughput measures the Deployments per second that the program creates for Foos that exist before it starts,
// then those that it scales while users patch all Foos. No Deployment has a status, so every Foo is in progress all the
// time.
func TestThroughput(t *testing.T) {
	e := newEnv(t)
	e.pause()
	e.observeDeployments()
	e.createFoos("foo", "foo", e.objects)
	program := e.start()
	for generation, what := range []string{"Converge", "Scale"} {
		if what == "Scale" {
			e.scaleFoos("foo", 2)
		}
		first, last := e.await("foo", fmt.Sprint("generation ", generation+1), e.objects)
		e.record(what, map[string]float64{"foos/s": float64(e.objects-1) / last.Sub(first).Seconds()})
	}
	program.recordCost("Throughput")
}

// TestFull measures on a complete cluster how long it takes until the status of Foos that are created at once, and then
// of Foos that are scaled at once, tells that all their replicas are available.
func TestFull(t *testing.T) {
	e := newEnv(t)
	e.observeFoos()
	program := e.start()
	// One Foo first excludes what the control plane does only once.
	e.createFoos("first", "first", 1)
	e.await("first", "available 1", 1)
	for i, change := range []func(){func() { e.createFoos("foo", "foo", e.objects) }, func() { e.scaleFoos("foo", 2) }} {
		start := time.Now()
		change()
		_, last := e.await("foo", fmt.Sprint("available ", i+1), e.objects)
		e.record([]string{"FullCreate", "FullScale"}[i], map[string]float64{"sec": last.Sub(start).Seconds()})
	}
	program.recordCost("Full")
}

// samples is the number of status changes to time.
const samples = 2000

// TestLatency measures the time from the write of a Deployment's status to the event of the Foo's status, one
// after the other. Only the number of available replicas changes, and it is at least the desired one: the controller
// copies it at once, without a delay for progress.
func TestLatency(t *testing.T) {
	e := newEnv(t)
	e.pause()
	e.observeFoos()
	e.observeDeployments()
	program := e.start()
	e.createFoos("foo", "foo", e.objects)
	e.await("foo", "generation 1", e.objects)
	deployments := make([]*appsv1.Deployment, e.objects)
	e.inParallel(e.objects, func(ctx context.Context, i int) (err error) {
		deployments[i], err = e.kube.AppsV1().Deployments(namespace).Get(ctx, name("foo", i), metav1.GetOptions{})
		if err == nil {
			deployments[i], err = e.makeAvailable(ctx, deployments[i], 1)
		}
		return err
	})
	e.await("foo", "available 1", e.objects)
	// The restarted program has no events left to send.
	program.stop()
	e.start()
	e.createFoos("restarted", "restarted", 1)
	e.await("restarted", "generation 1", 1)

	var latencies []float64
	for i := range samples {
		at, replicas, start := i%e.objects, int32(2+i/e.objects), time.Now()
		updated, err := e.makeAvailable(e.Context(), deployments[at], replicas)
		e.must(err)
		// All before it have so many replicas already.
		_, last := e.await("foo", fmt.Sprint("available ", replicas), at+1)
		latencies, deployments[at] = append(latencies, last.Sub(start).Seconds()), updated
	}
	slices.Sort(latencies)
	e.record("Latency", map[string]float64{"p50-sec": latencies[samples/2], "p99-sec": latencies[samples*99/100]})
}

// TestMemory measures the controller's memory, with the limit of the manifests, for three groups of objects: Foos with
// their own Deployments, twice as many Deployments that no Foo owns, and three quarters as many Foos whose Deployment
// name is taken by one of those. It starts when they exist, which takes the most memory, and then rests.
func TestMemory(t *testing.T) {
	e := newEnv(t)
	e.pause()
	e.simulateDeploymentController()
	e.observeFoos()
	text, err := os.ReadFile("../../artifacts/deploy/controller/deployment.yaml")
	e.must(err)
	var deployment appsv1.Deployment
	e.must(yaml.Unmarshal(text, &deployment))
	limit := deployment.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
	// What the controller makes of the limit of its container.
	variable := fmt.Sprintf("GOMEMLIMIT=%d", limit/10*9)
	blocked := e.objects * 3 / 4
	controller := e.start(variable)
	e.createDeployments("foreign", 2*e.objects)
	e.createFoos("foo", "foo", e.objects)
	e.await("foo", "available 1", e.objects)
	e.createFoos("blocked", "foreign", blocked)
	e.await("blocked", "reported", blocked)
	peak := controller.peak()
	controller.stop()

	start := time.Now()
	controller = e.start(variable)
	controller.awaitSyncs(e.objects + blocked)
	restart := time.Since(start)
	peak = max(peak, controller.peak())
	e.record("Memory", map[string]float64{"peak-B": peak, "heap-B": controller.liveHeap(), "restart-sec": restart.Seconds()})
	if peak > float64(limit) {
		t.Errorf("%v bytes resident, and the manifests allow %d", peak, limit)
	}
}
