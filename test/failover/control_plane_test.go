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

package failover

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

// The components that the suites kill.
const (
	etcdName      = "etcd"
	apiServerName = "kube-apiserver"
)

// controlPlane is the control plane of the local cluster, process by process. kwokctl
// cannot restart a single component, so the test reads from /proc how kwokctl started it
// and starts it the same way. hack/cluster.sh down recognizes the new process by its
// command line, as it recognizes kwokctl's.
type controlPlane struct {
	// components are in the order in which to start them.
	components []*component
}

type component struct {
	name                   string
	arguments, environment []string
	directory              string
	logFile, pidFile       string

	mu  sync.Mutex
	pid int
	// stopped is set while the test wants the component down.
	stopped bool
	// restarts counts how often supervise restarted it.
	restarts int
}

// newControlPlane reads how the components of the cluster in that directory were started.
func newControlPlane(directory string) (*controlPlane, error) {
	if _, err := os.Stat("/proc/self/cmdline"); err != nil {
		return nil, errors.New("this test needs Linux: it reads from /proc how the components were started")
	}
	p := &controlPlane{}
	for _, name := range []string{etcdName, apiServerName, "kube-controller-manager", "kube-scheduler", "kwok-controller"} {
		c, err := findComponent(filepath.Join(directory, ".kwok", "clusters", "control-plane"), name)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p.components = append(p.components, c)
	}
	return p, nil
}

func findComponent(directory, name string) (*component, error) {
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
	if c.arguments, err = readNulSeparated(process + "cmdline"); err != nil {
		return nil, err
	}
	if c.environment, err = readNulSeparated(process + "environ"); err != nil {
		return nil, err
	}
	if c.arguments[0] != filepath.Join(directory, "bin", name) {
		return nil, fmt.Errorf("process %d is not that component: %q", c.pid, c.arguments)
	}
	c.directory, err = os.Readlink(process + "cwd")
	return c, err
}

// readNulSeparated returns the strings of a file in /proc, each of which ends with NUL.
func readNulSeparated(file string) ([]string, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), nil
}

// flag returns the value of the flag, "" if the component does not have it.
func (c *component) flag(name string) string {
	for _, argument := range c.arguments {
		if value, ok := strings.CutPrefix(argument, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

// kill sends SIGKILL, as a power failure would end the process, and returns when it is
// gone.
func (c *component) kill(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if !c.exited() {
		if err := syscall.Kill(c.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, waitTimeout, true, func(context.Context) (bool, error) {
		return c.exited(), nil
	})
}

// start starts the component with the arguments and environment that kwokctl gave it.
func (c *component) start() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = false
	return c.startProcess()
}

// startProcess starts the process. The caller holds the lock.
func (c *component) startProcess() error {
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
		// exited reads /proc instead: the first process of the component is not a child
		// of the test.
		_ = cmd.Wait()
	}()
	return os.WriteFile(c.pidFile, []byte(strconv.Itoa(c.pid)), 0o640)
}

// exited reports whether the process is gone. A zombie has no command line, and another
// process that got the same PID has a different one.
func (c *component) exited() bool {
	arguments, err := readNulSeparated(fmt.Sprintf("/proc/%d/cmdline", c.pid))
	return err != nil || arguments[0] != c.arguments[0]
}

// supervise restarts components that exit by themselves until ctx ends, as a kubelet
// would: kube-controller-manager exits when it loses its lease.
func (p *controlPlane) supervise(ctx context.Context) {
	ticker := time.NewTicker(pollInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ticker.C:
		case <-ctx.Done():
			return
		}
		for _, c := range p.components {
			c.mu.Lock()
			if !c.stopped && c.exited() {
				c.restarts++
				if err := c.startProcess(); err != nil {
					fmt.Fprintln(os.Stderr, err)
				}
			}
			c.mu.Unlock()
		}
	}
}

// find returns the component of that name. It panics if there is none.
func (p *controlPlane) find(name string) *component {
	for _, c := range p.components {
		if c.name == name {
			return c
		}
	}
	panic("no component " + name)
}

// restarts returns how often supervise restarted a component.
func (p *controlPlane) restarts() (count int) {
	for _, c := range p.components {
		c.mu.Lock()
		count += c.restarts
		c.mu.Unlock()
	}
	return count
}

// awaitListening waits until the address accepts connections.
func awaitListening(ctx context.Context, address string) error {
	return wait.PollUntilContextTimeout(ctx, 20*time.Millisecond, waitTimeout, true, func(ctx context.Context) (bool, error) {
		connection, err := (&net.Dialer{}).DialContext(ctx, "tcp", address)
		accepted := err == nil
		if accepted {
			err = connection.Close()
			return accepted, err
		}
		return accepted, nil
	})
}
