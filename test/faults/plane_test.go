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
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"
)

// The names of the components that are killed.
const (
	etcdName      = "etcd"
	apiServerName = "kube-apiserver"
)

// plane is the control plane, process by process. kwokctl cannot start a single
// component again, so what it started is taken down from /proc, and started the
// same way. hack/cluster/down.sh finds such a process as it finds kwokctl's: by
// what it was started as.
type plane struct {
	// components are in the order in which they are to be started.
	components []*component
}

// component is one process of the control plane.
type component struct {
	name                   string
	arguments, environment []string
	directory              string
	logFile, pidFile       string

	mu  sync.Mutex
	pid int
	// down says that it is meant to be gone.
	down bool
	// restarts counts how often it ended by itself.
	restarts int
}

// newPlane takes down how the components of the cluster in that directory were
// started.
func newPlane(cluster string) (*plane, error) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		return nil, errors.New("the outages need Linux: without /proc nobody can tell how a component was started")
	}
	p := &plane{}
	for _, name := range []string{etcdName, apiServerName, "kube-controller-manager", "kube-scheduler", "kwok-controller"} {
		c, err := newComponent(filepath.Join(cluster, ".kwok", "clusters", "control-plane"), name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p.components = append(p.components, c)
	}
	return p, nil
}

func newComponent(directory, name string) (*component, error) {
	c := &component{
		name:    name,
		pidFile: filepath.Join(directory, "pids", name+".pid"),
		logFile: filepath.Join(directory, "logs", name+".log"),
	}
	text, err := os.ReadFile(c.pidFile)
	if err != nil {
		return nil, err
	}
	if c.pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return nil, err
	}
	process := fmt.Sprintf("/proc/%d/", c.pid)
	if c.arguments, err = words(process + "cmdline"); err != nil {
		return nil, err
	}
	if c.environment, err = words(process + "environ"); err != nil {
		return nil, err
	}
	if c.arguments[0] != filepath.Join(directory, "bin", name) {
		return nil, fmt.Errorf("process %d is another one: %q", c.pid, c.arguments)
	}
	c.directory, err = os.Readlink(process + "cwd")
	return c, err
}

// words returns the strings in a file of /proc, each of which ends in a zero.
func words(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), nil
}

// flag returns the value of one of the component's flags.
func (c *component) flag(name string) string {
	for _, argument := range c.arguments {
		if value, ok := strings.CutPrefix(argument, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

// kill ends the component as a power failure would, and returns when it is gone.
func (c *component) kill(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = true
	if !c.ended() {
		if err := syscall.Kill(c.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, patience, true, func(context.Context) (bool, error) {
		return c.ended(), nil
	})
}

// start starts the component as it was started before.
func (c *component) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.down = false
	return c.run()
}

// run starts the process. The caller holds the lock.
func (c *component) run() error {
	log, err := os.OpenFile(c.logFile, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.arguments[0], c.arguments[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.environment, c.directory, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return fmt.Errorf("starting %s: %w", c.name, err)
	}
	c.pid = cmd.Process.Pid
	go func() {
		// Its end is looked for elsewhere.
		_ = cmd.Wait()
	}()
	return os.WriteFile(c.pidFile, []byte(strconv.Itoa(c.pid)), 0o640)
}

// ended reports whether the process is gone. One that waits for nothing but its
// parent has no command line, and a stranger with its number has another one.
func (c *component) ended() bool {
	arguments, err := words(fmt.Sprintf("/proc/%d/cmdline", c.pid))
	return err != nil || arguments[0] != c.arguments[0]
}

// supervise starts again what ends by itself until ctx ends, as a kubelet would:
// a kube-controller-manager that loses its lease gives up.
func (p *plane) supervise(ctx context.Context) {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		for _, c := range p.components {
			c.mu.Lock()
			if !c.down && c.ended() {
				c.restarts++
				if err := c.run(); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
			c.mu.Unlock()
		}
	}
}

// find returns the component of that name.
func (p *plane) find(name string) *component {
	for _, c := range p.components {
		if c.name == name {
			return c
		}
	}
	panic("no component " + name)
}

// restarts tells how often components have ended by themselves.
func (p *plane) restarts() (count int) {
	for _, c := range p.components {
		c.mu.Lock()
		count += c.restarts
		c.mu.Unlock()
	}
	return count
}

// listening waits until something accepts connections at that address.
func listening(ctx context.Context, address string) error {
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, patience, true, func(ctx context.Context) (bool, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		accepted := err == nil
		if accepted {
			err = connection.Close()
			return accepted, err
		}
		return accepted, nil
	})
}
