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
)

// process is the controller that is measured: that of this repository, or any other
// one whose command is in BENCH_PEER.
type process struct {
	b    *bench
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// start starts it. The flags are for the controller of this repository. A peer finds the
// cluster by KUBECONFIG and may look at BENCH_WORKERS.
func (b *bench) start(flags ...string) *process {
	b.Helper()
	p := &process{b: b, log: filepath.Join(b.work(), "logs", "controller.log"), done: make(chan struct{})}
	command := fmt.Sprintf("exec %s --controllers=foo --workers=%d --metrics-bind-address=127.0.0.1:0 --metrics-secure=false --profiling %s",
		filepath.Join(b.work(), "bin", "sample-controller"), b.workers, strings.Join(flags, " "))
	if b.isPeer() {
		command = os.Getenv("BENCH_PEER")
	}
	log, err := os.Create(p.log)
	b.must(err)
	record := filepath.Join(b.work(), "pids", "controller")
	p.cmd = exec.Command("bash", "-c", `echo $$ >"$1" && eval "$2"`, "bash", record, command)
	p.cmd.Env = append(os.Environ(), "KUBECONFIG="+b.kubeconfig())
	if b.gogc != "" {
		p.cmd.Env = append(p.cmd.Env, "GOGC="+b.gogc)
	}
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	b.must(p.cmd.Start())
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
		_ = log.Close()
	}()
	b.Cleanup(p.stop)
	return p
}

func (b *bench) isPeer() bool {
	return os.Getenv("BENCH_WHO") != "ours"
}

// stop ends the process, if it still runs.
func (p *process) stop() {
	p.b.Helper()
	select {
	case <-p.done:
		return
	default:
	}
	if err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM); err != nil {
		p.b.Errorf("stopping the controller: %v", err)
	}
	<-p.done
	b := p.b
	if err := os.Remove(filepath.Join(b.work(), "pids", "controller")); err != nil {
		b.Error(err)
	}
	if b.Failed() {
		b.Logf("The last lines of the controller:\n%s", p.tail())
	}
}

// output returns all that it has printed.
func (p *process) output() string {
	p.b.Helper()
	text, err := os.ReadFile(p.log)
	p.b.must(err)
	return string(text)
}

func (p *process) tail() string {
	lines := strings.Split(p.output(), "\n")
	return strings.Join(lines[max(0, len(lines)-20):], "\n")
}

// get returns what the controller of this repository serves.
func (p *process) get(path string) string {
	b := p.b
	b.Helper()
	var address string
	b.eventually(func(context.Context) error {
		select {
		case <-p.done:
			b.Fatalf("the controller ended:\n%s", p.tail())
		default:
		}
		found := regexp.MustCompile(`"Serving" what="metrics" address="([^"]+)"`).FindStringSubmatch(p.output())
		if found == nil {
			return errors.New("the controller does not serve metrics yet")
		}
		address = found[1]
		return nil
	})
	request, err := http.NewRequestWithContext(b.Context(), http.MethodGet, "http://"+address+path, nil)
	b.must(err)
	response, err := http.DefaultClient.Do(request)
	b.must(err)
	text, err := io.ReadAll(response.Body)
	b.must(errors.Join(err, response.Body.Close()))
	return string(text)
}

// metric returns the sum of all metrics of that name.
func (p *process) metric(name string) float64 {
	p.b.Helper()
	parsed := testutil.NewMetrics()
	p.b.must(testutil.ParseMetrics(p.get("/metrics"), &parsed))
	total := 0.0
	for _, sample := range parsed[name] {
		total += float64(sample.Value)
	}
	return total
}

// heap returns the bytes that are in use after a collection.
func (p *process) heap() float64 {
	p.b.Helper()
	// One to find what is garbage, one to sweep what pools keep.
	p.get("/debug/pprof/heap?gc=1")
	p.get("/debug/pprof/heap?gc=1")
	return p.metric("go_memstats_heap_alloc_bytes")
}

// pid returns the process that does the work: a peer's command may have shells around it.
func (p *process) pid() int {
	b := p.b
	b.Helper()
	pid := p.cmd.Process.Pid
	for {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", pid, pid))
		b.must(err)
		children := strings.Fields(string(text))
		if len(children) != 1 {
			return pid
		}
		pid, err = strconv.Atoi(children[0])
		b.must(err)
	}
}

// resident returns what the kernel says of the process's memory, in bytes: VmRSS is
// what it has now, VmHWM the most it had.
func (p *process) resident(what string) float64 {
	b := p.b
	b.Helper()
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid()))
	b.must(err)
	found := regexp.MustCompile(what + `:\s+(\d+) kB`).FindSubmatch(text)
	if found == nil {
		b.Fatalf("no %s in %s", what, text)
	}
	kib, err := strconv.Atoi(string(found[1]))
	b.must(err)
	return float64(kib) * 1024
}
