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

package trace

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apimachinery/pkg/util/yaml"
	"k8s.io/utils/clock"
)

// Now returns the time.
func Now() time.Time { return clock.RealClock{}.Now() }

// Poll waits until check returns nil, and returns its last error if it never does.
func Poll(ctx context.Context, timeout time.Duration, check func(context.Context) error) error {
	var last error
	err := wait.PollUntilContextTimeout(ctx, 200*time.Millisecond, timeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil && last != nil {
		return fmt.Errorf("%w: %w", err, last)
	}
	return err
}

// ReadObjects reads the objects in a YAML file.
func ReadObjects(file string) ([]*unstructured.Unstructured, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var objects []*unstructured.Unstructured
	for decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096); ; {
		var document runtime.RawExtension
		if err = decoder.Decode(&document); errors.Is(err, io.EOF) {
			return objects, nil
		}
		if object := new(unstructured.Unstructured); err == nil && len(document.Raw) > 0 {
			// This keeps integers apart from other numbers.
			err, objects = object.UnmarshalJSON(document.Raw), append(objects, object)
		}
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
}

// Process is one process of the controller, with its children.
type Process struct {
	*exec.Cmd

	// Done is closed when it has exited, and ExitedAt is when that was.
	Done     chan struct{}
	ExitedAt time.Time

	log string
}

// Start starts a command in a process group of its own. Its variables are beside those of this process that could not
// connect it to an API server past its proxy.
func Start(command *exec.Cmd) (*Process, error) { return start(command, func() {}) }

// StartRecorded starts a program whose output is in logs/NAME.log below the directory. As long as it runs its PID is in
// pids/NAME: if this process is killed, hack/lib.sh ends it.
func StartRecorded(dir, name string, variables []string, program string, arguments ...string) (*Process, error) {
	log, err := os.Create(filepath.Join(dir, "logs", name+".log"))
	if err != nil {
		return nil, err
	}
	defer log.Close()
	record := filepath.Join(dir, "pids", name)
	// The shell writes its PID before it becomes the program.
	shell := []string{"-c", `echo $$ >"$0" && exec "$@"`, record, program}
	command := exec.Command("bash", append(shell, arguments...)...)
	command.Env, command.Stdout, command.Stderr = variables, log, log
	p, err := start(command, func() { _ = os.Remove(record) })
	if err == nil {
		p.log = log.Name()
	}
	return p, err
}

// Output returns what a recorded process has printed so far.
func (p *Process) Output() string {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err.Error()
	}
	return string(text)
}

func start(command *exec.Cmd, ended func()) (*Process, error) {
	p := &Process{Cmd: command, Done: make(chan struct{})}
	p.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	ofCluster := func(entry string) bool { return strings.HasPrefix(entry, "KUBE") }
	p.Env = append(slices.DeleteFunc(os.Environ(), ofCluster), p.Env...)
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() {
		// The state of the process says how it ended.
		_ = p.Wait()
		p.ExitedAt = Now()
		ended()
		close(p.Done)
	}()
	return p, nil
}

// Kill kills the process and its children, and returns once it has exited.
func (p *Process) Kill() {
	// It may have exited.
	_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
	<-p.Done
}
