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
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"

	"k8s.io/component-base/metrics/testutil"

	"example.com/sample-controller/test/bench/result"
)

// process is the measured program.
type process struct {
	e    *env
	cmd  *exec.Cmd
	log  string
	done chan struct{}
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
	p := &process{e: e, log: filepath.Join(e.workDir(), "logs", "controller.log"), done: make(chan struct{})}
	binary, arguments := e.who, []string{fmt.Sprintf("--workers=%d", e.workers)}
	if e.who == result.Ours {
		binary = "sample-controller"
		arguments = append(arguments, "--controllers=foo", "--metrics-bind-address=127.0.0.1:0", "--metrics-secure=false", "--profiling")
		arguments = append(arguments, flags...)
	}
	log, err := os.Create(p.log)
	e.must(err)
	arguments = append([]string{"-c", `echo $$ >"$0" && exec "$@"`, p.pidFile(), filepath.Join(e.workDir(), "bin", binary)}, arguments...)
	p.cmd = exec.Command("bash", arguments...)
	p.cmd.Env = append(append(os.Environ(), "KUBECONFIG="+e.kubeconfig()), variables...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	e.must(p.cmd.Start())
	go func() {
		defer close(p.done)
		err := p.cmd.Wait()
		_ = log.Close()
		if !p.stopped.Load() {
			e.Errorf("the measured program ended by itself: %v\n%s", err, p.logTail())
		}
	}()
	e.Cleanup(p.stop)
	return p
}

// pidFile is where hack/lib.sh finds a process that the test did not stop.
func (p *process) pidFile() string {
	return filepath.Join(p.e.workDir(), "pids", "controller")
}

// stop ends the process if it still runs.
func (p *process) stop() {
	e := p.e
	e.Helper()
	select {
	case <-p.done:
		return
	default:
	}
	p.stopped.Store(true)
	if err := syscall.Kill(-p.pid(), syscall.SIGTERM); err != nil {
		e.Errorf("stopping the measured program: %v", err)
	}
	<-p.done
	if err := os.Remove(p.pidFile()); err != nil {
		e.Error(err)
	}
	if e.Failed() {
		e.Logf("The last lines of the measured program's log:\n%s", p.logTail())
	}
}

func (p *process) readLog() string {
	p.e.Helper()
	text, err := os.ReadFile(p.log)
	p.e.must(err)
	return string(text)
}

func (p *process) logTail() string {
	lines := strings.Split(p.readLog(), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

var metricsAddress = regexp.MustCompile(`"Serving" what="metrics" address="([^"]+)"`)

// get returns the response of the metrics port of this repository's controller.
func (p *process) get(path string) string {
	e := p.e
	e.Helper()
	var address string
	e.eventually(func(context.Context) error {
		found := metricsAddress.FindStringSubmatch(p.readLog())
		if found == nil {
			return errors.New("the controller does not serve metrics yet")
		}
		address = found[1]
		return nil
	})
	request, err := http.NewRequestWithContext(e.Context(), http.MethodGet, "http://"+address+path, nil)
	e.must(err)
	response, err := http.DefaultClient.Do(request)
	e.must(err)
	text, err := io.ReadAll(response.Body)
	e.must(errors.Join(err, response.Body.Close()))
	return string(text)
}

// metric returns the sum over all label values of the metric.
func (p *process) metric(name string) float64 {
	p.e.Helper()
	parsed := testutil.NewMetrics()
	p.e.must(testutil.ParseMetrics(p.get("/metrics"), &parsed))
	total := 0.0
	for _, sample := range parsed[name] {
		total += float64(sample.Value)
	}
	return total
}

// syncs returns the number of syncs since the controller's start.
func (p *process) syncs() int {
	p.e.Helper()
	return int(p.metric("sample_controller_sync_duration_seconds_count"))
}

// liveHeap returns the controller's live heap in bytes.
func (p *process) liveHeap() float64 {
	p.e.Helper()
	// A sync.Pool drops its contents only in the second garbage collection.
	p.get("/debug/pprof/heap?gc=1")
	p.get("/debug/pprof/heap?gc=1")
	return p.metric("go_memstats_heap_alloc_bytes")
}

// pid returns the process and its process group: bash has replaced itself by the program.
func (p *process) pid() int {
	return p.cmd.Process.Pid
}

// memory returns a field of /proc/PID/status in bytes: VmRSS is the resident memory, VmHWM
// its peak.
func (p *process) memory(field string) float64 {
	e := p.e
	e.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	e.must(err)
	found := regexp.MustCompile(field + `:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		e.Fatalf("no %s in %s", field, text)
	}
	kib, err := strconv.Atoi(string(found[1]))
	e.must(err)
	return float64(kib) * 1024
}
