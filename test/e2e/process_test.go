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
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// exitTimeout bounds the time from a signal to the exit of a process.
const exitTimeout = 30 * time.Second

// process is a command line that runs in the background: a controller, a proxy, a watch.
// It has its own process group, so that a signal reaches all of its children, as Ctrl-C in
// a terminal does.
type process struct {
	t    *testing.T
	cmd  *exec.Cmd
	log  string
	done chan struct{}
}

// start runs the command line in the root of the repository. The test's cleanup ends the
// process; if the test binary is killed, hack/e2e.sh ends it.
func start(t *testing.T, home, command string) *process {
	t.Helper()
	name := unique(strings.Map(fileNameRune, t.Name()))
	p := &process{t: t, log: filepath.Join(shared.work, "logs", name+".log"), done: make(chan struct{})}
	record := filepath.Join(shared.work, "pids", name)
	log, err := os.Create(p.log)
	must(t, err)

	// The process records its ID before it becomes the command, so that hack/e2e.sh finds
	// it whenever the test binary is killed.
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
		p.cleanup()
		_ = os.Remove(record)
	})
	return p
}

// fileNameRune replaces what a test's name may contain and a file's name should not.
func fileNameRune(r rune) rune {
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

// awaitExit waits until the process and all of its children have exited, and returns its
// exit code.
func (p *process) awaitExit() int {
	p.t.Helper()
	select {
	case <-p.done:
	case <-time.After(exitTimeout):
		// Go's runtime prints the stacks of all goroutines and exits.
		p.signal(syscall.SIGQUIT)
		<-p.done
		p.t.Fatalf("still running after %s:\n%s", exitTimeout, p.output())
	}
	eventually(p.t, "the process group has exited", func(context.Context) error {
		if p.running() {
			return errors.New("a child is running")
		}
		return nil
	})
	return p.cmd.ProcessState.ExitCode()
}

// stop ends the process as the kubelet does.
func (p *process) stop() {
	p.t.Helper()
	p.end(syscall.SIGTERM)
}

// end sends the signal and fails the test unless the process then exits with 0.
func (p *process) end(signal syscall.Signal) {
	p.t.Helper()
	p.signal(signal)
	if code := p.awaitExit(); code != 0 {
		p.t.Fatalf("exit code %d after %s:\n%s", code, signal, p.tail())
	}
}

// cleanup ends the process, by SIGKILL if SIGTERM does not, and logs the end of its output
// if the test has failed.
func (p *process) cleanup() {
	if p.running() {
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGTERM)
		select {
		case <-p.done:
		case <-time.After(exitTimeout):
			p.t.Errorf("killed, because SIGTERM did not end it in %s:\n%s", exitTimeout, p.tail())
		}
		_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	}
	<-p.done
	if p.t.Failed() {
		p.t.Logf("The last lines of %s:\n%s", p.cmd.Args[len(p.cmd.Args)-1], p.tail())
	}
}

// output returns what the process has printed so far.
func (p *process) output() string {
	p.t.Helper()
	data, err := os.ReadFile(p.log)
	must(p.t, err)
	return string(data)
}

// tail returns the last 50 lines of the output.
func (p *process) tail() string {
	lines := strings.Split(p.output(), "\n")
	return strings.Join(lines[max(0, len(lines)-50):], "\n")
}

// requireNoErrors fails the test if the process has logged an error.
func (p *process) requireNoErrors() {
	p.t.Helper()
	if lines := errorLines(p.output()); len(lines) > 0 {
		p.t.Errorf("errors in the log: %q", lines)
	}
}

// awaitOutput waits until the output contains all of the words, in this order.
func (p *process) awaitOutput(words ...string) {
	p.t.Helper()
	eventually(p.t, "waiting for output", func(context.Context) error {
		if missing := firstMissing(p.output(), words); missing != "" {
			select {
			case <-p.done:
				p.t.Fatalf("the process exited before it printed %q:\n%s", missing, p.tail())
			default:
			}
			return fmt.Errorf("no %q in\n%s", missing, p.tail())
		}
		return nil
	})
}

// commandEnvironment returns the environment of commands: the caller's without the
// variables that could name another cluster, and with the suite's kubectl, curl and jq
// first in PATH.
func commandEnvironment(work, root string) ([]string, error) {
	environment, err := goEnvironment()
	if err != nil {
		return nil, err
	}
	for _, variable := range os.Environ() {
		if !strings.HasPrefix(variable, "KUBE") && !strings.HasPrefix(variable, "HOME=") {
			environment = append(environment, variable)
		}
	}
	path := []string{filepath.Join(work, "bin"), filepath.Join(root, "bin"), os.Getenv("PATH")}
	return append(environment, "PATH="+strings.Join(path, string(os.PathListSeparator)), "KUBERC=off"), nil
}

// sh runs a command line in the root of the repository, as a reader of the walkthroughs
// would type it, and returns its output. The test fails if the command fails.
func sh(t *testing.T, command string) string {
	t.Helper()
	began := time.Now()
	output, err := try(t, command)
	t.Logf("$ %s   (%.1f s)\n%s", command, time.Since(began).Seconds(), output)
	if err != nil {
		t.Fatalf("%s: %v", command, err)
	}
	return output
}

// shFails runs a command line that must fail, and returns its output.
func shFails(t *testing.T, command string) string {
	t.Helper()
	output, err := try(t, command)
	t.Logf("$ %s\n%s", command, output)
	if err == nil {
		t.Fatalf("%s: succeeded, but must fail", command)
	}
	return output
}

// shOnCleanup runs the command lines when the test has ended. The test fails if one fails.
func shOnCleanup(t *testing.T, commands ...string) {
	t.Helper()
	t.Cleanup(func() {
		for _, command := range commands {
			if output, err := tryIn(context.WithoutCancel(t.Context()), command); err != nil {
				t.Errorf("%s: %v: %s", command, err, output)
			}
		}
	})
}

// +drop:webhooks,node,newkind

// shUntil runs the command line until its output matches the pattern.
func shUntil(t *testing.T, command, pattern string) {
	t.Helper()
	wanted := regexp.MustCompile(pattern)
	var output string
	began := time.Now()
	poll(t, command, commandInterval, func(context.Context) error {
		var err error
		output, err = try(t, command)
		if err == nil && !wanted.MatchString(output) {
			err = fmt.Errorf("no match for %q", pattern)
		}
		if err != nil {
			return fmt.Errorf("%w in\n%s", err, output)
		}
		return nil
	})
	t.Logf("$ %s   (as expected after %s)\n%s", command, time.Since(began).Round(time.Millisecond), output)
}

// +drop:end

// try runs a command line and returns its stdout and stderr.
func try(t *testing.T, command string) (string, error) {
	return tryIn(t.Context(), command)
}

func tryIn(ctx context.Context, command string) (string, error) {
	ctx, cancel := context.WithTimeout(ctx, commandTimeout)
	defer cancel()
	cmd := exec.CommandContext(ctx, "bash", "-c", command)
	cmd.Dir = shared.root
	cmd.Env = append([]string{"HOME=" + shared.home}, shared.environment...)
	cmd.WaitDelay = 5 * time.Second
	output, err := cmd.CombinedOutput()
	return string(output), err
}

// mustContain fails the test unless the text contains all of the words, in this order.
func mustContain(t *testing.T, text string, words ...string) {
	t.Helper()
	if missing := firstMissing(text, words); missing != "" {
		t.Fatalf("%q is missing, or out of order, in\n%s", missing, text)
	}
}

// firstMissing returns the first of the words that the text lacks after the previous
// word, or "" if the text has all of them in this order.
func firstMissing(text string, words []string) string {
	for _, word := range words {
		_, rest, found := strings.Cut(text, word)
		if !found {
			return word
		}
		text = rest
	}
	return ""
}
