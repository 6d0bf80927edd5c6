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

// requests is the API server's count of requests by verb and resource, such as "POST deployments".
type requests map[string]float64

// requests returns the requests of all clients since the API server's start. The API server counts LIST, WATCH and
// WATCHLIST separately.
func (e *env) requests() requests {
	e.Helper()
	text, err := e.kube.Discovery().RESTClient().Get().AbsPath("/metrics").DoRaw(e.Context())
	e.must(err)
	parsed := testutil.NewMetrics()
	e.must(testutil.ParseMetrics(string(text), &parsed))
	counted := requests{}
	for _, sample := range parsed["apiserver_request_total"] {
		resource := string(sample.Metric["resource"])
		if sub := string(sample.Metric["subresource"]); sub != "" {
			resource += "/" + sub
		}
		counted[fmt.Sprintf("%s %s", sample.Metric["verb"], resource)] += float64(sample.Value)
	}
	return counted
}

// since returns the requests since before was taken.
func (e *env) since(before requests) requests {
	e.Helper()
	counted := requests{}
	for request, count := range e.requests() {
		counted[request] = count - before[request]
	}
	return counted
}

// writes returns the number of writes of the resources.
func (r requests) writes(resources ...string) (total float64) {
	for _, resource := range resources {
		total += r.sum(resource, "POST", "PUT", "PATCH", "APPLY", "DELETE")
	}
	return total
}

// sum returns the number of requests for the resource with one of the verbs.
func (r requests) sum(resource string, verbs ...string) (total float64) {
	for _, verb := range verbs {
		total += r[verb+" "+resource]
	}
	return total
}

// allWrites returns the number of all writes that a controller of Foos may send.
func (r requests) allWrites() float64 {
	return r.writes("foos", "foos/status", "deployments", "events")
}

// awaitNoWrites waits until the API server has received no write for two seconds. Events are the last: the controller
// sends 20 per second.
func (e *env) awaitNoWrites() {
	e.Helper()
	last, unchanged := -1.0, 0
	e.eventually(func() error {
		if now := e.requests().allWrites(); now != last {
			last, unchanged = now, 0
		}
		if unchanged++; unchanged < 10 {
			return errors.New("the API server received writes within the last two seconds")
		}
		return nil
	})
}

// process is the measured program.
type process struct {
	*env

	cmd *trace.Process
	// stopped is set before the test ends the process.
	stopped atomic.Bool
}

// start starts the measured program. Only the controller of this repository has the flags.
func (e *env) start(flags ...string) *process {
	e.Helper()
	return e.startWith(nil, flags...)
}

// startWith is start with additional environment variables.
func (e *env) startWith(variables []string, flags ...string) *process {
	e.Helper()
	p := &process{env: e}
	binary, arguments := e.who, []string{fmt.Sprintf("--workers=%d", e.workers)}
	if e.who == ours {
		binary = "sample-controller"
		arguments = append(arguments, "--controllers=foo", "--metrics-bind-address=127.0.0.1:0", "--metrics-secure=false", "--profiling")
		arguments = append(arguments, flags...)
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
		if got := p.syncs(); got < count {
			return fmt.Errorf("%d of %d syncs", got, count)
		}
		return nil
	})
}

func (p *process) syncs() int {
	p.Helper()
	return int(p.metric("sample_controller_sync_duration_seconds_count"))
}

// liveHeap returns the controller's live heap in MB.
func (p *process) liveHeap() float64 {
	p.Helper()
	// A sync.Pool drops its contents only in the second garbage collection.
	p.get("/debug/pprof/heap?gc=1")
	p.get("/debug/pprof/heap?gc=1")
	return p.metric("go_memstats_heap_alloc_bytes") / 1e6
}

// memory returns a field of /proc/PID/status in MiB: VmRSS is the resident memory, VmHWM its peak.
func (p *process) memory(field string) float64 {
	p.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.cmd.Process.Pid))
	p.must(err)
	found := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		p.Fatalf("no %s in %s", field, text)
	}
	kib, err := strconv.ParseFloat(string(found[1]), 64)
	p.must(err)
	return kib / 1024
}

// cpu returns the CPU seconds that the program has used.
func (p *process) cpu() (total float64) {
	p.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
	p.must(err)
	// The program's name, in parentheses, may contain blanks. utime and stime are the 14th and the 15th field, in
	// hundredths of a second on Linux.
	_, after, _ := strings.Cut(string(text), ") ")
	for _, field := range strings.Fields(after)[11:13] {
		ticks, err := strconv.ParseFloat(field, 64)
		p.must(err)
		total += ticks / 100
	}
	return total
}
