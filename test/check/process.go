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
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
)

// process is one process of the controller, with its children.
type process struct {
	command *exec.Cmd
	output  *output
	// done is closed when it has exited, and killed is set before check kills it.
	done chan struct{}

	mu     sync.Mutex
	killed bool
}

// startProcess starts the command with the placeholders {} and {namespace} replaced.
func startProcess(command []string, kubeconfig, namespace string, out *output) (*process, error) {
	replace := strings.NewReplacer("{}", kubeconfig, "{namespace}", namespace)
	arguments := make([]string, len(command))
	for i := range command {
		arguments[i] = replace.Replace(command[i])
	}
	p := &process{command: exec.Command(arguments[0], arguments[1:]...), output: out, done: make(chan struct{})}
	p.command.Stdout, p.command.Stderr = out, out
	p.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	for _, variable := range os.Environ() {
		// These variables could connect the controller to an API server past its proxy.
		if !strings.HasPrefix(variable, "KUBE") {
			p.command.Env = append(p.command.Env, variable)
		}
	}
	if err := p.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		// The state of the process says how it ended.
		_ = p.command.Wait()
		close(p.done)
	}()
	return p, nil
}

// kill kills the process and its children, and returns once it has exited.
func (p *process) kill() {
	p.mu.Lock()
	p.killed = true
	p.mu.Unlock()
	// It may have exited.
	_ = syscall.Kill(-p.command.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// failed reports whether the process has exited by itself.
func (p *process) failed() bool {
	select {
	case <-p.done:
	default:
		return false
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return !p.killed
}

// output keeps the end of what the processes of a run print.
type output struct {
	mu   sync.Mutex
	data []byte
}

const outputLimit = 1 << 16

// Write implements io.Writer.
func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.data = append(o.data, data...)
	if len(o.data) > 2*outputLimit {
		o.data = append([]byte(nil), o.data[len(o.data)-outputLimit:]...)
	}
	return len(data), nil
}

func (o *output) String() string {
	o.mu.Lock()
	defer o.mu.Unlock()
	return string(o.data)
}

// panicked reports whether a process printed what the Go runtime prints when a program dies.
func (o *output) panicked() bool {
	text := o.String()
	return strings.Contains(text, "panic: ") && strings.Contains(text, "goroutine ")
}
