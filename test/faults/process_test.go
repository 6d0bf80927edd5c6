//go:build faults

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

package faults

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"
)

// startedLine is what the controller prints once it works.
const startedLine = "Started workers"

// process is one life of the controller.
type process struct {
	cmd    *exec.Cmd
	record string
	output *output
	done   chan struct{}
	// ended is when that was, once done.
	ended time.Time
}

// startProcess starts that build of the controller. Should the test binary be
// killed, hack/faults.sh ends it.
func startProcess(program string, environment []string, arguments ...string) (*process, error) {
	name := shared.unique("controller")
	p := &process{record: filepath.Join(shared.work, "pids", name), done: make(chan struct{})}
	log, err := os.Create(filepath.Join(shared.work, "logs", name+".log"))
	if err != nil {
		return nil, err
	}
	p.output = &output{started: make(chan struct{})}
	// The process records itself before it becomes the controller: so there is no
	// moment at which it runs and nobody knows.
	p.cmd = exec.Command("bash", append([]string{"-c", `echo $$ >"$1" && exec "${@:2}"`, "bash", p.record, program}, arguments...)...)
	p.cmd.Env = append(append([]string{}, shared.environment...), environment...)
	both := io.MultiWriter(log, p.output)
	p.cmd.Stdout, p.cmd.Stderr = both, both
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		log.Close()
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	go func() {
		defer close(p.done)
		// How it ended is for others to look at.
		_ = p.cmd.Wait()
		p.ended = time.Now()
		log.Close()
		_ = os.Remove(log.Name())
		_ = os.Remove(p.record)
	}()
	return p, nil
}

// kill ends the process as a power failure would, and returns when it is gone.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// over reports whether the process has ended.
func (p *process) over() bool {
	return isClosed(p.done)
}

// works reports whether the process has begun to work.
func (p *process) works() bool {
	return isClosed(p.output.started)
}

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// terminate tells the process to end, as a kubelet would.
func (p *process) terminate() error {
	return syscall.Kill(p.cmd.Process.Pid, syscall.SIGTERM)
}

// pause stops the process until resume.
func (p *process) pause() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGSTOP)
}

func (p *process) resume() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGCONT)
}

// output keeps what a process prints and tells when it works.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	begun bool
	// since is when started was closed.
	since   time.Time
	started chan struct{}
}

// Write implements io.Writer.
func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(data)
	if !o.begun && bytes.Contains(o.text.Bytes(), []byte(startedLine)) {
		o.begun, o.since = true, time.Now()
		close(o.started)
	}
	return len(data), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.text.String()
}

// panicked reports whether a sync or the whole process has panicked.
func (o *output) panicked() bool {
	text := o.String()
	return strings.Contains(text, "panic: ") || strings.Contains(text, "Observed a panic")
}
