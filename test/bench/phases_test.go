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
	deployments := e.observeDeployments()
	e.createFoos("foo", "foo", e.objects)
	before := e.requests()
	program := e.start()
	for generation, what := range []string{"Converge", "Scale"} {
		if what == "Scale" {
			before = e.requests()
			e.scaleFoos("foo", 2)
		}
		first, last := deployments.await("foo", fmt.Sprint("generation ", generation+1), e.objects)
		figures := program.cost(before)
		figures["foos/s"] = float64(e.objects-1) / last.Sub(first).Seconds()
		e.record(what, figures)
	}
}

// cost returns what the program has cost since its start, and the requests for each Foo since before was taken.
func (p *process) cost(before requests) map[string]float64 {
	p.Helper()
	sent, each := p.since(before), float64(p.objects)
	all := sent.writes("foos", "foos/status", "deployments") + sent.sum("foos", "GET", "LIST") + sent.sum("deployments", "GET", "LIST")
	return map[string]float64{
		"statuses/foo": sent.writes("foos/status") / each, "requests/foo": all / each, "cpu-s": p.cpu(), "peak-MiB": p.memory("VmHWM"),
	}
}

// TestFull measures on a complete cluster how long it takes until the status of Foos that are created at once, and then
// of Foos that are scaled at once, tells that all their replicas are available.
func TestFull(t *testing.T) {
	e := newEnv(t)
	foos := e.observeFoos()
	program := e.start()
	// One Foo first excludes what the control plane does only once.
	e.createFoos("first", "first", 1)
	foos.await("first", "available 1", 1)
	for replicas, change := range []func(){func() { e.createFoos("foo", "foo", e.objects) }, func() { e.scaleFoos("foo", 2) }} {
		before, cpu, start := e.requests(), program.cpu(), time.Now()
		change()
		_, last := foos.await("foo", fmt.Sprint("available ", replicas+1), e.objects)
		figures := program.cost(before)
		figures["cpu-s"] -= cpu
		figures["s"] = last.Sub(start).Seconds()
		e.record([]string{"FullCreate", "FullScale"}[replicas], figures)
	}
}

// samples is the number of status changes to time.
const samples = 2000

// TestLatency measures the milliseconds from the write of a Deployment's status to the event of the Foo's status, one
// after the other. Only the number of available replicas changes, and it is at least the desired one: the controller
// copies it at once, without a delay for progress.
func TestLatency(t *testing.T) {
	e := newEnv(t)
	e.pause()
	foos, observed := e.observeFoos(), e.observeDeployments()
	program := e.start()
	e.createFoos("foo", "foo", e.objects)
	observed.await("foo", "generation 1", e.objects)
	deployments := make([]*appsv1.Deployment, e.objects)
	e.inParallel(e.objects, func(ctx context.Context, i int) (err error) {
		deployments[i], err = e.kube.AppsV1().Deployments(namespace).Get(ctx, name("foo", i), metav1.GetOptions{})
		if err == nil {
			deployments[i], err = e.makeAvailable(ctx, deployments[i], 1)
		}
		return err
	})
	foos.await("foo", "available 1", e.objects)
	// The restarted program has no events left to send.
	program.stop()
	e.start()
	e.createFoos("restarted", "restarted", 1)
	observed.await("restarted", "generation 1", 1)

	var latencies []float64
	for i := range samples {
		at, replicas, start := i%e.objects, int32(2+i/e.objects), time.Now()
		updated, err := e.makeAvailable(e.Context(), deployments[at], replicas)
		e.must(err)
		// All before it have so many replicas already.
		_, last := foos.await("foo", fmt.Sprint("available ", replicas), at+1)
		latencies, deployments[at] = append(latencies, last.Sub(start).Seconds()*1e3), updated
	}
	slices.Sort(latencies)
	e.record("Latency", map[string]float64{"p50-ms": latencies[samples/2], "p99-ms": latencies[samples*99/100]})
}

// TestRequests counts the requests that a Foo costs the API server: until it is ready, when it is scaled, while nothing
// changes, and at a restart of the controller.
func TestRequests(t *testing.T) {
	e := newEnv(t)
	e.pause()
	e.simulateDeploymentController()
	foos := e.observeFoos()
	controller := e.start("--resync-period=1s")
	for replicas, what := range []string{"NewFoo", "ScaledFoo"} {
		before := e.requests()
		if what == "NewFoo" {
			e.createFoos("foo", "foo", e.objects)
		} else {
			e.scaleFoos("foo", 2)
		}
		foos.await("foo", fmt.Sprint("available ", replicas+1), e.objects)
		e.awaitNoWrites()
		sent, each := e.since(before), float64(e.objects)
		e.Logf("%s: %v", what, sent)
		e.record(what, map[string]float64{
			"deployment-writes": sent.writes("deployments") / each, "status-writes": sent.writes("foos/status") / each, "events": sent.writes("events") / each,
			"reads": (sent.sum("foos", "GET", "LIST") + sent.sum("deployments", "GET", "LIST")) / each,
		})
	}
	before := e.requests()
	controller.awaitSyncs(controller.syncs() + 10*e.objects)
	e.record("SteadyState", map[string]float64{"writes": e.since(before).allWrites()})

	controller.stop()
	before = e.requests()
	controller = e.start()
	controller.awaitSyncs(e.objects)
	e.awaitNoWrites()
	writes := e.since(before).allWrites()
	// The API server counts a list by watch as a watch, and only once it has ended.
	controller.stop()
	sent, lists := e.since(before), 0.0
	for _, resource := range []string{"foos", "deployments"} {
		lists = max(lists, sent.sum(resource, "LIST", "WATCH", "WATCHLIST"))
	}
	e.record("Restart", map[string]float64{"writes": writes, "lists": lists})
}

// TestProgress measures the seconds until the status of a Foo whose Deployment does not become available says so, while
// the controller has nothing else to do. It records the longest time.
func TestProgress(t *testing.T) {
	e := newEnv(t)
	e.pause()
	foos := e.observeFoos()
	e.start()
	e.createFoos("first", "first", 1)
	foos.await("first", "reported", 1)
	var longest time.Duration
	for i := range e.objects {
		alone, start := fmt.Sprintf("alone-%d", i), time.Now()
		e.createFoos(alone, alone, 1)
		_, reported := foos.await(alone, "reported", 1)
		longest = max(longest, reported.Sub(start))
	}
	e.record("Progress", map[string]float64{"s": longest.Seconds()})
}

// TestMemory measures the controller's memory, with the limit of the manifests, for three groups of objects: Foos with
// their own Deployments, twice as many Deployments that no Foo owns, and three quarters as many Foos whose Deployment
// name is taken by one of those. It starts when they exist, which takes the most memory, and then rests.
func TestMemory(t *testing.T) {
	e := newEnv(t)
	e.pause()
	e.simulateDeploymentController()
	foos := e.observeFoos()
	blocked := e.objects * 3 / 4
	controller := e.startLimited()
	e.createDeployments("foreign", 2*e.objects)
	e.createFoos("foo", "foo", e.objects)
	foos.await("foo", "available 1", e.objects)
	e.createFoos("blocked", "foreign", blocked)
	foos.await("blocked", "reported", blocked)
	peak := controller.memory("VmHWM")
	controller.stop()

	start := time.Now()
	controller = e.startLimited()
	controller.awaitSyncs(e.objects + blocked)
	restart := time.Since(start)
	e.awaitNoWrites()
	const collections, rest = "go_cpu_classes_gc_total_cpu_seconds_total", time.Minute
	before := controller.metric(collections)
	<-time.After(rest)
	figures := map[string]float64{
		"gc-cpus": (controller.metric(collections) - before) / rest.Seconds(), "peak-MiB": max(peak, controller.memory("VmHWM")),
		"rest-MiB": controller.memory("VmRSS"), "restart-s": restart.Seconds(),
	}
	figures["heap-MB"] = controller.liveHeap()
	e.record("Memory", figures)
}

// TestSizing measures what an operator plans for: the memory of a controller of all kinds, with one Foo and with many.
// TestFull measures the CPU time that a new one takes.
func TestSizing(t *testing.T) {
	e := newEnv(t)
	e.pause()
	e.simulateDeploymentController()
	foos := e.observeFoos()
	controller := e.start("--controllers=*")
	e.createFoos("first", "first", 1)
	foos.await("first", "available 1", 1)
	controller.liveHeap()
	one := controller.memory("VmRSS")
	e.createFoos("foo", "foo", e.objects)
	foos.await("foo", "available 1", e.objects)
	e.awaitNoWrites()
	controller.liveHeap()
	e.record("Sizing", map[string]float64{"one-MiB": one, "MiB": controller.memory("VmRSS")})
}

// startLimited starts the controller with the memory limit that it has in the manifests' Pod: Go's is 90 % of the
// container's.
func (e *env) startLimited() *process {
	e.Helper()
	text, err := os.ReadFile("../../artifacts/deploy/controller/deployment.yaml")
	e.must(err)
	var deployment appsv1.Deployment
	e.must(yaml.Unmarshal(text, &deployment))
	limit := deployment.Spec.Template.Spec.Containers[0].Resources.Limits.Memory().Value()
	return e.startWith([]string{fmt.Sprintf("GOMEMLIMIT=%d", limit/10*9)})
}
