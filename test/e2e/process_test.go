//go:build e2e

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

package e2e

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"
)

// exitPatience bounds the end of a process that was told to stop.
const exitPatience = 30 * time.Second

// process is a command line that goes on while the test does: a controller, a
// proxy, a watch. It has a process group of its own, so that a signal reaches
// all of it as Ctrl-C in a terminal would.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  string
	done chan struct{}
	// container is the name of the container that it stands for, "" for none.
	container string
}

// start runs the command line in the root of the repository. The process ends
// with the test; should the test binary itself be killed, hack/e2e.sh ends it.
func start(t *testing.T, home, command string) *process {
	t.Helper()
	name := unique(strings.Map(plain, t.Name()))
	p := &process{t: t, log: filepath.Join(shared.work, "logs", name+".log"), done: make(chan struct{})}
	record := filepath.Join(shared.work, "pids", name)
	log, err := os.Create(p.log)
	if err != nil {
		t.Fatal(err)
	}

	// The process records itself before it becomes the command: so there is no
	// moment at which it runs and nobody knows.
	p.cmd = exec.Command("bash", "-c", `echo $$ >"$1" && exec bash -c "$2"`, "bash", record, command)
	p.cmd.Dir = shared.root
	p.cmd.Env = append([]string{"HOME=" + home}, shared.environment...)
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	t.Logf("$ %s", command)
	if err := p.cmd.Start(); err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	go func() {
		defer close(p.done)
		_ = p.cmd.Wait()
		_ = log.Close()
	}()
	t.Cleanup(func() {
		p.end()
		_ = os.Remove(record)
	})
	return p
}

// plain keeps of a test's name what is welcome in a file's name.
func plain(r rune) rune {
	if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
		return r
	}
	return '-'
}

// signal sends a signal to the process and all its children.
func (p *process) signal(signal syscall.Signal) {
	p.t.Helper()
	if err := syscall.Kill(-p.cmd.Process.Pid, signal); err != nil {
		p.t.Fatalf("sending %s: %v", signal, err)
	}
}

// running reports whether any process of the group is left.
func (p *process) running() bool {
	return !errors.Is(syscall.Kill(-p.cmd.Process.Pid, 0), syscall.ESRCH)
}

// maxDump is how much of a process's output is shown that does not end.
const maxDump = 200_000

// exited waits until the process has ended by itself and returns its exit code.
// Nothing that it started may be left.
func (p *process) exited() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(exitPatience):
		// Go's runtime tells of all goroutines, and exits.
		p.signal(syscall.SIGQUIT)
		<-p.done
		p.t.Fatalf("still running after %s:\n%s", exitPatience, p.output()[max(0, len(p.output())-maxDump):])
	}
	eventually(p.t, "the whole process group is gone", func(context.Context) error {
		if p.running() {
			return errors.New("a child is left")
		}
		return nil
	})
	return p.cmd.ProcessState.ExitCode()
}

// stop sends SIGTERM, for which a controller must exit in order and with 0.
func (p *process) stop() {
	p.t.Helper()
	p.signal(syscall.SIGTERM)
	if code := p.exited(); code != 0 {
		p.t.Fatalf("exit code %d after SIGTERM:\n%s", code, p.tail())
	}
}

// end is for a test that is over: whatever still runs goes, however it takes
// it.
func (p *process) end() {
	if p.running() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(exitPatience):
			p.t.Errorf("killed, because SIGTERM did not end it in %s:\n%s", exitPatience, p.tail())
		}
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	<-p.done
	if p.t.Failed() {
		p.t.Logf("The last lines of %s:\n%s", p.cmd.Args[len(p.cmd.Args)-1], p.tail())
	}
}

// output returns all that the process has printed so far.
func (p *process) output() string {
	p.t.Helper()
	data, err := os.ReadFile(p.log)
	if err != nil {
		p.t.Fatal(err)
	}
	return string(data)
}

// tail returns the last lines of the output.
func (p *process) tail() string {
	lines := strings.Split(p.output(), "\n")
	return strings.Join(lines[max(0, len(lines)-50):], "\n")
}

// prints waits until the output contains all of the words, in this order.
func (p *process) prints(words ...string) {
	p.t.Helper()
	eventually(p.t, "waiting for output", func(context.Context) error {
		if missing := firstMissing(p.output(), words); missing != "" {
			select {
			case <-p.done:
				p.t.Fatalf("exited before it printed %q:\n%s", missing, p.tail())
			default:
			}
			return fmt.Errorf("no %q in\n%s", missing, p.tail())
		}
		return nil
	})
}
