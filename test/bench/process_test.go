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
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"k8s.io/component-base/metrics/testutil"

	"example.com/sample-controller/test/check/trace"
)

// pause stops all components of the control plane but the API server and etcd until the measurement ends, so that these
// and their client have the machine to themselves.
func (e *env) pause() {
	e.Helper()
	for _, component := range []string{"kube-controller-manager", "kube-scheduler", "kwok-controller"} {
		text, err := os.ReadFile(e.path("cluster/.kwok/clusters/control-plane/pids", component+".pid"))
		e.must(err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		e.must(err)
		e.must(syscall.Kill(pid, syscall.SIGSTOP))
		e.Cleanup(func() {
			if err := syscall.Kill(pid, syscall.SIGCONT); err != nil {
				e.Errorf("resuming %s: %v", component, err)
			}
		})
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
	binary, arguments := e.who, []string{fmt.Sprintf("--workers=%d", e.workers)}
	if e.who == ours {
		binary = "sample-controller"
		arguments = append(arguments, "--controllers=foo", "--metrics-bind-address=127.0.0.1:0", "--metrics-secure=false", "--profiling")
	}
	var err error
	p.cmd, err = trace.StartRecorded(e.path(), "controller", append(variables, "KUBECONFIG="+e.kubeconfig()), e.path("bin", binary), arguments...)
	e.must(err)
	go func() {
		if <-p.cmd.Done; !p.stopped.Load() {
			e.Errorf("the measured program ended by itself: %v\n%s", p.cmd.ProcessState, p.logTail())
		}
	}()
	e.Cleanup(p.stop)
	return p
}

// stop ends the process if it still runs.
func (p *process) stop() {
	p.Helper()
	if p.stopped.Swap(true) {
		return
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		p.Errorf("stopping the measured program: %v", err)
	}
	<-p.cmd.Done
	if p.Failed() {
		p.Logf("The last lines of the measured program's log:\n%s", p.logTail())
	}
}

func (p *process) logTail() string {
	lines := strings.Split(p.cmd.Output(), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// get returns the response of the metrics port of this repository's controller.
func (p *process) get(path string) string {
	p.Helper()
	var address []string
	p.eventually(func() error {
		if address = regexp.MustCompile(`"Serving" what="metrics" address="([^"]+)"`).FindStringSubmatch(p.cmd.Output()); address == nil {
			return errors.New("the controller does not serve metrics yet")
		}
		return nil
	})
	request, err := http.NewRequestWithContext(p.Context(), http.MethodGet, "http://"+address[1]+path, nil)
	p.must(err)
	response, err := http.DefaultClient.Do(request)
	p.must(err)
	text, err := io.ReadAll(response.Body)
	p.must(errors.Join(err, response.Body.Close()))
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

var highWater = regexp.MustCompile(`VmHWM:\s+(\d+) kB`)

// peak returns the most bytes that were resident. The kernel's ru_maxrss would include what this test had at the fork.
func (p *process) peak() float64 {
	p.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	p.must(err)
	found := highWater.FindSubmatch(text)
	if found == nil {
		p.Fatalf("no peak in %s", text)
	}
	kib, err := strconv.ParseFloat(string(found[1]), 64)
	p.must(err)
	return kib * 1024
}

// recordCost stops the program and records what it has cost.
func (p *process) recordCost(what string) {
	p.Helper()
	peak := p.peak()
	p.stop()
	cpu := p.cmd.ProcessState.UserTime() + p.cmd.ProcessState.SystemTime()
	p.record(what, map[string]float64{"cpu-sec": cpu.Seconds(), "peak-B": peak})
}
