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

// startedLine is what the controller logs when it starts its workers.
const startedLine = "Started workers"

// process is one controller process.
type process struct {
	cmd *exec.Cmd
	// name is unique, and begins the user agent of the process.
	name, pidFile string
	output        *output
	done          chan struct{}
	// exitedAt is set when done is closed.
	exitedAt time.Time
}

// startProcess starts that binary of the controller. If the test binary is killed, the
// script in hack ends the process.
func startProcess(program string, environment []string, arguments ...string) (*process, error) {
	name := cluster.uniqueName("controller")
	p := &process{name: name, pidFile: filepath.Join(cluster.work, "pids", name), done: make(chan struct{})}
	log, err := os.Create(filepath.Join(cluster.work, "logs", name+".log"))
	if err != nil {
		return nil, err
	}
	p.output = &output{started: make(chan struct{})}
	// The shell writes its PID before it becomes the controller, so that the script can
	// find the process at any time. Its user agent begins with the name in exec -a.
	p.cmd = exec.Command("bash", append([]string{"-c", `echo $$ >"$1" && exec -a "$2" "${@:3}"`, "bash", p.pidFile, name, program}, arguments...)...)
	p.cmd.Env = append(append([]string{}, cluster.environment...), environment...)
	both := io.MultiWriter(log, p.output)
	p.cmd.Stdout, p.cmd.Stderr = both, both
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := p.cmd.Start(); err != nil {
		log.Close()
		return nil, fmt.Errorf("starting the controller: %w", err)
	}
	go func() {
		defer close(p.done)
		// The exit code is in ProcessState.
		_ = p.cmd.Wait()
		p.exitedAt = time.Now()
		log.Close()
		_ = os.Remove(log.Name())
		_ = os.Remove(p.pidFile)
	}()
	return p, nil
}

// kill sends SIGKILL, as a power failure would end the process, and returns when it is
// gone.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// pause stops the process until resume.
func (p *process) pause() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGSTOP)
}

func (p *process) resume() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGCONT)
}

// output collects what a process prints.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	begun bool
	// startedAt is when startedLine came.
	startedAt time.Time
	started   chan struct{}
}

// Write implements io.Writer.
func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(data)
	if !o.begun && bytes.Contains(o.text.Bytes(), []byte(startedLine)) {
		o.begun, o.startedAt = true, time.Now()
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
