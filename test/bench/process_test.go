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
	"syscall"

	"k8s.io/component-base/metrics/testutil"

	"example.com/sample-controller/test/bench/result"
)

// process is the measured controller: the one of this repository, or the peer whose command
// is in BENCH_PEER.
type process struct {
	e    *env
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// start starts the controller. A peer ignores the flags; it finds the cluster through
// KUBECONFIG and the number of its workers in BENCH_WORKERS.
func (e *env) start(flags ...string) *process {
	e.Helper()
	p := &process{e: e, log: filepath.Join(e.workDir(), "logs", "controller.log"), done: make(chan struct{})}
	command := fmt.Sprintf("exec %s --controllers=foo --workers=%d --metrics-bind-address=127.0.0.1:0 --metrics-secure=false --profiling %s",
		filepath.Join(e.workDir(), "bin", "sample-controller"), e.workers, strings.Join(flags, " "))
	if e.isPeer() {
		command = os.Getenv("BENCH_PEER")
	}
	log, err := os.Create(p.log)
	e.must(err)
	p.cmd = exec.Command("bash", "-c", `echo $$ >"$1" && eval "$2"`, "bash", p.pidFile(), command)
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+e.kubeconfig())
	if e.gogc != "" {
		p.cmd.Env = append(p.cmd.Env, "GOGC="+e.gogc)
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	e.must(p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
		_ = log.Close()
	}()
	e.Cleanup(p.stop)
	return p
}

func (e *env) isPeer() bool {
	return os.Getenv("BENCH_WHO") != result.Ours
}

// pidFile is where test/lib.sh finds a controller that the test did not stop.
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
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		e.Errorf("stopping the controller: %v", err)
	}
	<-p.done
	if err := os.Remove(p.pidFile()); err != nil {
		e.Error(err)
	}
	if e.Failed() {
		e.Logf("The last lines of the controller's log:\n%s", p.logTail())
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
		select {
		case <-p.done:
			e.Fatalf("the controller exited:\n%s", p.logTail())
		default:
		}
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

// liveHeap returns the controller's live heap in bytes. It returns 0 for a peer, which may
// have no such metric.
func (p *process) liveHeap() float64 {
	p.e.Helper()
	if p.e.isPeer() {
		return 0
	}
	// A sync.Pool drops its contents only in the second garbage collection.
	p.get("/debug/pprof/heap?gc=1")
	p.get("/debug/pprof/heap?gc=1")
	return p.metric("go_memstats_heap_alloc_bytes")
}

// pid returns the process of the controller itself: a peer's command may start it through
// shells.
func (p *process) pid() int {
	e := p.e
	e.Helper()
	pid := p.cmd.Process.Pid
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		e.must(err)
		children := strings.Fields(string(text))
		if len(children) != 1 {
			return pid
		}
		pid, err = strconv.Atoi(children[0])
		e.must(err)
	}
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
