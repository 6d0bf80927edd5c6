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
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/component-base/metrics/testutil"

	"example.com/sample-controller/test/check/trace"
)

// TestThroughput measures the Deployments per second that the program creates for Foos that exist before it starts,
// then those that it scales while users patch all Foos. No Deployment has a status, so every Foo is in progress all the
// time.
func TestThroughput(t *testing.T) {
	e := newEnv(t)
	e.observeDeployments()
	e.createFoos("foo", "foo", e.objects)
	e.start()
	for generation, what := range []string{"Converge", "Scale"} {
		if what == "Scale" {
			e.scaleFoos("foo", 2)
		}
		first, last := e.await("foo", fmt.Sprint("generation ", generation+1), e.objects)
		e.record(what, map[string]float64{"foos/s": float64(e.objects-1) / last.Sub(first).Seconds()})
	}
}

// TestFull measures on a complete cluster how long it takes until the status of Foos that are created at once, and then
// of Foos that are scaled at once, tells that all their replicas are available.
func TestFull(t *testing.T) {
	e := newEnv(t)
	e.observeFoos()
	e.start()
	// One Foo first excludes what the control plane does only once.
	e.createFoos("first", "first", 1)
	e.await("first", "available 1", 1)
	for i, change := range []func(){func() { e.createFoos("foo", "foo", e.objects) }, func() { e.scaleFoos("foo", 2) }} {
		start := time.Now()
		change()
		_, last := e.await("foo", fmt.Sprint("available ", i+1), e.objects)
		e.record([]string{"FullCreate", "FullScale"}[i], map[string]float64{"sec": last.Sub(start).Seconds()})
	}
}

// samples is the number of status changes to time.
const samples = 2000

// TestLatency measures the time from the write of a Deployment's status to the event of the Foo's status, one
// after the other. Only the number of available replicas changes, and it is at least the desired one: the controller
// copies it at once, without a delay for progress.
func TestLatency(t *testing.T) {
	e := newEnv(t)
	e.observeFoos()
	e.observeDeployments()
	program := e.start()
	e.createFoos("foo", "foo", e.objects)
	deployments := e.rollOut()
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
	e.observeFoos()
	e.observeDeployments()
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
	e.rollOut()
	e.createFoos("blocked", "foreign", blocked)
	e.await("blocked", "reported", blocked)
	peak := controller.peak()
	controller.stop()

	controller = e.start(variable)
	controller.awaitSyncs(e.objects + blocked)
	peak = max(peak, controller.peak())
	e.record("Memory", map[string]float64{"peak-B": peak, "heap-B": controller.liveHeap()})
	if peak > float64(limit) {
		t.Errorf("%v bytes resident, and the manifests allow %d", peak, limit)
	}
}

// process is the measured program.
type process struct {
	*env

	cmd *trace.Process
	// stopped is set before the test ends the process.
	stopped atomic.Bool
}

// start starts the measured program with additional environment variables.
func (e *env) start(variables ...string) *process {
	e.Helper()
	p := &process{env: e}
	binary, arguments := e.who, []string(nil)
	if e.who == ours {
		binary = "sample-controller"
		arguments = []string{"--controllers=foo", "--metrics-bind-address=127.0.0.1:0", "--metrics-secure=false", "--profiling"}
	}
	var err error
	p.cmd, err = trace.StartRecorded(e.path(), "controller", append(variables, "KUBECONFIG="+e.kubeconfig()), e.path("bin", binary), arguments...)
	e.must(err)
	go func() {
		if <-p.cmd.Done; !p.stopped.Load() {
			e.progress.L.Lock()
			defer e.progress.L.Unlock()
			e.Errorf("the measured program ended by itself: %v\n%s", p.cmd.ProcessState, p.logTail())
			e.progress.Broadcast()
		}
	}()
	e.Cleanup(p.stop)
	return p
}

// stop kills the process if it still runs: it has nothing to hand over.
func (p *process) stop() {
	p.Helper()
	p.stopped.Store(true)
	p.cmd.Kill()
	if p.Failed() {
		p.Logf("The last lines of the measured program's log:\n%s", p.logTail())
	}
}

func (p *process) logTail() string {
	lines := strings.Split(p.cmd.Output(), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

var serving = regexp.MustCompile(`"Serving" what="metrics" address="([^"]+)"`)

// get returns the response of the metrics port of this repository's controller.
func (p *process) get(path string) string {
	p.Helper()
	var text []byte
	p.eventually(func() error {
		address := serving.FindStringSubmatch(p.cmd.Output())
		if address == nil {
			return errors.New("the controller does not serve metrics yet")
		}
		response, err := http.Get("http://" + address[1] + path)
		if err == nil {
			text, err = io.ReadAll(response.Body)
			err = errors.Join(err, response.Body.Close())
		}
		return err
	})
	return string(text)
}

// metric returns the sum over all label values of the metric.
func (p *process) metric(name string) (total float64) {
	p.Helper()
	parsed := testutil.NewMetrics()
	p.must(testutil.ParseMetrics(p.get("/metrics"), &parsed))
	for _, sample := range parsed[name] {
		total += float64(sample.Value)
	}
	return total
}

// awaitSyncs waits for so many syncs since the controller's start.
func (p *process) awaitSyncs(count int) {
	p.Helper()
	p.eventually(func() error {
		if got := p.metric("sample_controller_sync_duration_seconds_count"); got < float64(count) {
			return fmt.Errorf("%v of %d syncs", got, count)
		}
		return nil
	})
}

// liveHeap returns the bytes of the controller's live heap.
func (p *process) liveHeap() float64 {
	p.Helper()
	// A sync.Pool drops its contents only in the second garbage collection.
	p.get("/debug/pprof/heap?gc=1")
	p.get("/debug/pprof/heap?gc=1")
	return p.metric("go_memstats_heap_alloc_bytes")
}

// peak returns the most bytes that were resident. The kernel's ru_maxrss would include what this test had at the fork.
func (p *process) peak() float64 {
	p.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	p.must(err)
	_, peak, _ := strings.Cut(string(text), "VmHWM:")
	peak, _, _ = strings.Cut(peak, "kB")
	kib, err := strconv.ParseFloat(strings.TrimSpace(peak), 64)
	p.must(err)
	return kib * 1024
}
