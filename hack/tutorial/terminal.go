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

package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/clock"
)

const (
	// patience bounds each command. The first build of the control plane is the longest.
	patience = 20 * time.Minute
	// pollInterval is how often the output of the second terminal is looked at.
	pollInterval = 100 * time.Millisecond
	// graceful is how long a command may take to end after a signal.
	graceful = 90 * time.Second
)

// terminal runs commands one after the other, as a shell in a terminal does: the current
// directory and the exported variables stay. It keeps these in a file.
type terminal struct {
	work, state string
}

// script restores the state, runs the command, and saves the state.
const script = `source "$1"
trap '{ export -p; printf "cd %q\n" "${PWD}"; } >"$1"' EXIT
eval "$2"`

// newTerminal returns a terminal whose current directory is work.
func newTerminal(work string) (*terminal, error) {
	t := &terminal{work: work, state: filepath.Join(work, ".terminal")}
	return t, os.WriteFile(t.state, nil, 0o600)
}

// run runs the command and returns its output.
func (t *terminal) run(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	c := exec.CommandContext(ctx, "bash", "-c", script, "bash", t.state, command)
	c.Dir = t.work
	// The signal reaches make and what it started.
	c.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	c.Cancel = func() error { return syscall.Kill(-c.Process.Pid, syscall.SIGTERM) }
	c.WaitDelay = graceful
	output, err := c.CombinedOutput()
	return string(output), errors.Join(err, context.Cause(ctx))
}

// directory returns the current directory.
func (t *terminal) directory(ctx context.Context) (string, error) {
	output, err := t.run(ctx, "pwd")
	return strings.TrimRight(output, "\n"), err
}

// process is a command that runs in a terminal of its own.
type process struct {
	cmd    *exec.Cmd
	output safeBuffer
	ended  chan struct{}
	clock  clock.Clock
}

// startProcess starts the command in that directory.
func startProcess(dir, command string, clock clock.Clock) (*process, error) {
	p := &process{cmd: exec.Command("bash", "-c", command), ended: make(chan struct{}), clock: clock}
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = &p.output, &p.output
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	p.cmd.WaitDelay = graceful
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	go func() {
		defer close(p.ended)
		if err := p.cmd.Wait(); err != nil {
			fmt.Fprintf(&p.output, "%v\n", err)
		}
	}()
	return p, nil
}

// await waits until the output begins with these lines, and fails if the process ends before.
func (p *process) await(ctx context.Context, lines []string) error {
	return wait.PollUntilContextTimeout(ctx, pollInterval, patience, true, func(context.Context) (bool, error) {
		if matches(lines, p.output.String(), false) {
			return true, nil
		}
		select {
		case <-p.ended:
			return false, errors.New("the command has ended")
		default:
			return false, nil
		}
	})
}

// interrupt ends the process as Ctrl-C does in a terminal, and waits for its end.
func (p *process) interrupt() error {
	switch err := syscall.Kill(-p.cmd.Process.Pid, syscall.SIGINT); {
	case errors.Is(err, syscall.ESRCH):
		return fmt.Errorf("the command %s has ended before Ctrl-C:\n%s", p.cmd.Args[2], p.output.String())
	case err != nil:
		return err
	}
	select {
	case <-p.ended:
		return nil
	case <-p.clock.After(graceful):
	}
	err := fmt.Errorf("the command %s did not end within %v after Ctrl-C:\n%s", p.cmd.Args[2], graceful, p.output.String())
	return errors.Join(err, syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL))
}

// safeBuffer is a buffer that can be read while a process writes to it.
type safeBuffer struct {
	mu     sync.Mutex
	buffer bytes.Buffer
}

func (b *safeBuffer) Write(data []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.Write(data)
}

func (b *safeBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.buffer.String()
}
