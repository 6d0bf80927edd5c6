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
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"k8s.io/apimachinery/pkg/util/wait"

	"example.com/sample-controller/test/check/trace"
)

// The components that the suites kill.
const (
	etcdName      = "etcd"
	apiServerName = "kube-apiserver"
)

// controlPlane is the control plane of the local cluster, process by process in the order in which to start them.
// kwokctl cannot restart a single component, so the test reads from /proc how kwokctl started it and starts it the same
// way. hack/cluster.sh down recognizes the new process by its command line, as it recognizes kwokctl's.
type controlPlane []*component

type component struct {
	name                   string
	arguments, environment []string
	directory              string
	logFile, pidFile       string

	mu  sync.Mutex
	pid int
	// stopped is set while the test wants the component down.
	stopped bool
}

func newControlPlane(directory string) (p controlPlane, err error) {
	in := filepath.Join(directory, ".kwok", "clusters", "control-plane")
	names := []string{etcdName, apiServerName, "kube-controller-manager", "kube-scheduler", "kwok-controller"}
	for _, name := range names {
		c := &component{name: name, pidFile: in + "/pids/" + name + ".pid", logFile: in + "/logs/" + name + ".log"}
		if err = c.find(filepath.Join(in, "bin", name)); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
		p = append(p, c)
	}
	return p, nil
}

func (c *component) find(program string) error {
	text, err := os.ReadFile(c.pidFile)
	if err != nil {
		return err
	}
	if c.pid, err = strconv.Atoi(strings.TrimSpace(string(text))); err != nil {
		return err
	}
	var errs [3]error
	c.arguments, errs[0] = c.read("cmdline")
	c.environment, errs[1] = c.read("environ")
	c.directory, errs[2] = os.Readlink(fmt.Sprintf("/proc/%d/cwd", c.pid))
	if c.arguments[0] != program {
		return fmt.Errorf("process %d is not that component: %q", c.pid, c.arguments)
	}
	return errors.Join(errs[:]...)
}

// read returns the strings of a file in /proc, each of which ends with NUL.
func (c *component) read(file string) ([]string, error) {
	data, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", c.pid, file))
	return strings.Split(strings.TrimSuffix(string(data), "\x00"), "\x00"), err
}

func (c *component) flag(name string) string {
	for _, argument := range c.arguments {
		if value, ok := strings.CutPrefix(argument, "--"+name+"="); ok {
			return value
		}
	}
	return ""
}

// kill sends SIGKILL, as a power failure would end the process, and returns when it is gone.
func (c *component) kill(ctx context.Context) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.stopped = true
	if !c.exited() {
		if err := syscall.Kill(c.pid, syscall.SIGKILL); err != nil && !errors.Is(err, syscall.ESRCH) {
			return err
		}
	}
	return wait.PollUntilContextTimeout(ctx, 10*time.Millisecond, settleTimeout, true, func(context.Context) (bool, error) {
		return c.exited(), nil
	})
}

// start starts the component, or only does if it has exited by itself.
func (c *component) start(onlyIfExited bool) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if onlyIfExited && (c.stopped || !c.exited()) {
		return nil
	}
	log, err := os.OpenFile(c.logFile, os.O_APPEND|os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(c.arguments[0], c.arguments[1:]...)
	cmd.Env, cmd.Dir, cmd.Stdout, cmd.Stderr = c.environment, c.directory, log, log
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	if err := cmd.Start(); err != nil {
		return err
	}
	// exited reads /proc instead: the first process of the component is not a child of the test.
	go func() { _ = cmd.Wait() }()
	c.pid, c.stopped = cmd.Process.Pid, false
	return os.WriteFile(c.pidFile, []byte(strconv.Itoa(c.pid)), 0o640)
}

// exited reports whether the process is gone. A zombie has no command line, and another process that got the same PID
// has a different one.
func (c *component) exited() bool {
	arguments, err := c.read("cmdline")
	return err != nil || arguments[0] != c.arguments[0]
}

// supervise restarts components that exit by themselves until ctx ends, as a kubelet would: kube-controller-manager
// exits when it loses its lease.
func (p controlPlane) supervise(ctx context.Context) {
	for ; ctx.Err() == nil; trace.Pause(ctx, pollInterval) {
		for _, c := range p {
			if err := c.start(true); err != nil {
				fmt.Fprintln(os.Stderr, err)
			}
		}
	}
}

// find returns the component of that name. It panics if there is none.
func (p controlPlane) find(name string) *component {
	return p[slices.IndexFunc(p, func(c *component) bool { return c.name == name })]
}

// etcdClient calls etcd through its JSON gateway, which avoids a dependency on etcd's Go client. A watch of the API
// server would miss versions while the API server is down.
type etcdClient struct {
	url string
}

// etcdEvents are an answer to a watch.
type etcdEvents struct {
	Result struct {
		// CancelReason is why etcd has no more events, such as a compaction.
		CancelReason string `json:"cancel_reason"`
		Events       []struct {
			Type string `json:"type"`
			KV   struct {
				Key         []byte `json:"key"`
				Value       []byte `json:"value"`
				ModRevision int64  `json:"mod_revision,string"`
			} `json:"kv"`
			Previous struct {
				Value []byte `json:"value"`
			} `json:"prev_kv"`
		} `json:"events"`
	} `json:"result"`
}

func (c *etcdClient) post(ctx context.Context, path string, question any) (io.ReadCloser, error) {
	body := bytes.NewReader(trace.MustEncode(question))
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, body)
	if err != nil {
		return nil, err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return nil, err
	}
	if response.StatusCode != http.StatusOK {
		defer response.Body.Close()
		text, _ := io.ReadAll(response.Body)
		return nil, fmt.Errorf("%s: %s: %s", path, response.Status, text)
	}
	return response.Body, nil
}

// revision returns the current revision, an error while etcd does not work.
func (c *etcdClient) revision(ctx context.Context) (int64, error) {
	body, err := c.post(ctx, "/v3/kv/range", map[string]any{"key": []byte("/registry/"), "count_only": true})
	if err != nil {
		return 0, err
	}
	defer body.Close()
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	err = json.NewDecoder(body).Decode(&answer)
	return answer.Header.Revision, err
}

// record adds the versions of a resource below the prefix to the history, from that revision on until ctx ends. The
// version of a deleted object is its last state.
func (c *etcdClient) record(ctx context.Context, h *trace.History, resource, prefix string, from int64) error {
	end := []byte(prefix)
	end[len(end)-1]++
	for ; ctx.Err() == nil; trace.Pause(ctx, pollInterval) {
		body, err := c.post(ctx, "/v3/watch", map[string]any{"create_request": map[string]any{
			"key": []byte(prefix), "range_end": end, "start_revision": fmt.Sprint(from), "prev_kv": true,
		}})
		if err != nil {
			continue
		}
		for answers := json.NewDecoder(body); err == nil; {
			var answer etcdEvents
			err = answers.Decode(&answer)
			if answer.Result.CancelReason != "" {
				return fmt.Errorf("etcd cannot return all versions of %s: %s", prefix, answer.Result.CancelReason)
			}
			for _, event := range answer.Result.Events {
				from = event.KV.ModRevision + 1
				value, deleted := event.KV.Value, event.Type == "DELETE"
				if deleted {
					value = event.Previous.Value
				}
				object := trace.DecodeObject(value)
				if object == nil {
					return fmt.Errorf("%s cannot be decoded", event.KV.Key)
				}
				object.SetResourceVersion(fmt.Sprint(event.KV.ModRevision))
				h.Add(resource, object, deleted)
			}
		}
		// The watch broke.
		_ = body.Close()
	}
	return nil
}
