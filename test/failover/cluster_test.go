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
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
)

const (
	// waitTimeout bounds waits for processes. It is generous because only a failing test
	// waits so long.
	waitTimeout  = 180 * time.Second
	pollInterval = 100 * time.Millisecond
)

// testCluster is the local cluster of the test.
type testCluster struct {
	// work is the directory that the script in hack creates and removes.
	work string
	// environment is the environment of the controllers.
	environment []string
	// server is the address of the API server, transport connects to it as administrator.
	server    *url.URL
	transport http.RoundTripper
	config    *rest.Config
	clientSet

	control *controlPlane
	etcd    *etcdClient
	names   atomic.Int64
	// report has the lines of a table, which the script in hack prints when the test has ended.
	report []string
}

// clientSet are the clients of one user.
type clientSet struct {
	kube kubernetes.Interface
	foos clientset.Interface
}

func newClients(config *rest.Config) (a clientSet, err error) {
	if a.kube, err = kubernetes.NewForConfig(config); err != nil {
		return a, err
	}
	a.foos, err = clientset.NewForConfig(config)
	return a, err
}

// setUp connects to the cluster and restarts components of the control plane that exit by
// themselves, until the test has ended.
func setUp(t *testing.T) *testCluster {
	t.Helper()
	c, err := newTestCluster()
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	var supervision sync.WaitGroup
	supervision.Go(func() { c.control.supervise(ctx) })
	t.Cleanup(func() {
		cancel()
		supervision.Wait()
		if err := c.writeReport(); err != nil {
			t.Error(err)
		}
	})
	return c
}

func newTestCluster() (*testCluster, error) {
	work := os.Getenv("TEST_WORK")
	if work == "" {
		return nil, errors.New("there is no cluster; run hack/e2e.sh outages or hack/e2e.sh failover")
	}
	c := &testCluster{work: work, environment: []string{"HOME=" + filepath.Join(work, "tmp")}}
	for _, variable := range os.Environ() {
		// These variables could connect the controller to the API server past its proxy.
		if !strings.HasPrefix(variable, "KUBE") && !strings.HasPrefix(variable, "HOME=") {
			c.environment = append(c.environment, variable)
		}
	}
	var err error
	if c.config, err = clientcmd.BuildConfigFromFlags("", filepath.Join(work, "home", ".kube", "config")); err != nil {
		return nil, err
	}
	c.config.QPS = -1
	if c.server, err = url.Parse(c.config.Host); err != nil {
		return nil, err
	}
	if c.transport, err = rest.TransportFor(c.config); err != nil {
		return nil, err
	}
	if c.control, err = newControlPlane(filepath.Join(work, "cluster")); err != nil {
		return nil, err
	}
	c.etcd = &etcdClient{url: c.control.find(etcdName).flag("listen-client-urls")}
	c.clientSet, err = newClients(c.config)
	return c, err
}

func (c *testCluster) controllerBinary() string {
	return filepath.Join(c.work, "bin", "sample-controller")
}

// uniqueName returns a name that no other call returns.
func (c *testCluster) uniqueName(prefix string) string {
	return fmt.Sprintf("%s-%d", prefix, c.names.Add(1))
}

func (c *testCluster) writeReport() error {
	file, err := os.Create(filepath.Join(c.work, "report"))
	if err != nil {
		return err
	}
	table := tabwriter.NewWriter(file, 0, 0, 2, ' ', tabwriter.AlignRight)
	_, err = fmt.Fprintln(table, strings.Join(c.report, "\n"))
	return errors.Join(err, table.Flush(), file.Close())
}

// pause returns after the duration, or when the context ends. It is for delays that are
// part of a fault, never for waiting.
func pause(ctx context.Context, duration time.Duration) {
	timer := time.NewTimer(duration)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// process is one controller process.
type process struct {
	cmd *exec.Cmd
	// name is unique, and begins the user agent of the process.
	name   string
	output *output
	done   chan struct{}
	// exitedAt is set when done is closed.
	exitedAt time.Time
}

// startProcess starts that binary of the controller. If the test binary is killed, the
// script in hack ends the process.
func (c *testCluster) startProcess(program string, arguments ...string) (*process, error) {
	name := c.uniqueName("controller")
	pidFile := filepath.Join(c.work, "pids", name)
	p := &process{name: name, done: make(chan struct{}), output: &output{started: make(chan struct{})}}
	log, err := os.Create(filepath.Join(c.work, "logs", name+".log"))
	if err != nil {
		return nil, err
	}
	both := io.MultiWriter(log, p.output)
	// The shell writes its PID before it becomes the controller, so that the script can
	// find the process at any time. Its user agent begins with the name in exec -a.
	p.cmd = exec.Command("bash", append([]string{"-c", `echo $$ >"$1" && exec -a "$2" "${@:3}"`, "bash", pidFile, name, program}, arguments...)...)
	p.cmd.Env, p.cmd.Stdout, p.cmd.Stderr = c.environment, both, both
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
		_ = os.Remove(pidFile)
	}()
	return p, nil
}

// kill sends SIGKILL, as a power failure would end the process, and returns when it is
// gone.
func (p *process) kill() {
	_ = syscall.Kill(-p.cmd.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// signal sends the signal to the process.
func (p *process) signal(signal syscall.Signal) error {
	return syscall.Kill(p.cmd.Process.Pid, signal)
}

// exited reports whether the process has ended.
func (p *process) exited() bool { return isClosed(p.done) }

// started reports whether the controller has started its workers.
func (p *process) started() bool { return isClosed(p.output.started) }

func isClosed(channel <-chan struct{}) bool {
	select {
	case <-channel:
		return true
	default:
		return false
	}
}

// output collects what a process prints.
type output struct {
	mu    sync.Mutex
	text  bytes.Buffer
	begun bool
	// startedAt is when the controller logged that it starts its workers.
	startedAt time.Time
	started   chan struct{}
}

// Write implements io.Writer.
func (o *output) Write(data []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.text.Write(data)
	if !o.begun && bytes.Contains(o.text.Bytes(), []byte("Started workers")) {
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
