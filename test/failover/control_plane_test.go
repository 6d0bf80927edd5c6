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
	"math"
	"net"
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

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
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

// The prefixes under which the API server stores the objects.
const (
	deploymentKeys = "/registry/deployments/"
	fooKeys        = "/registry/samplecontroller.k8s.io/foos/"
)

// etcdClient calls etcd through its JSON gateway, which avoids a dependency on etcd's Go
// client. A watch of the API server could miss versions while the API server is down.
type etcdClient struct {
	url string
}

type etcdEvent struct {
	Type     string   `json:"type"`
	KV       keyValue `json:"kv"`
	Previous keyValue `json:"prev_kv"`
}

type keyValue struct {
	Key         []byte `json:"key"`
	Value       []byte `json:"value"`
	ModRevision int64  `json:"mod_revision,string"`
}

// etcdWatchResponse is one message of a watch.
type etcdWatchResponse struct {
	Result struct {
		Canceled     bool        `json:"canceled"`
		CancelReason string      `json:"cancel_reason"`
		Compacted    string      `json:"compact_revision"`
		Events       []etcdEvent `json:"events"`
	} `json:"result"`
}

func (c *etcdClient) post(ctx context.Context, path string, question any) (*http.Response, error) {
	body, err := json.Marshal(question)
	if err != nil {
		return nil, err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.url+path, bytes.NewReader(body))
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
	return response, nil
}

// revision returns the current revision, an error while etcd does not work.
func (c *etcdClient) revision(ctx context.Context) (int64, error) {
	response, err := c.post(ctx, "/v3/kv/range", map[string]any{"key": []byte(deploymentKeys), "count_only": true})
	if err != nil {
		return 0, err
	}
	defer response.Body.Close()
	var answer struct {
		Header struct {
			Revision int64 `json:"revision,string"`
		} `json:"header"`
	}
	err = json.NewDecoder(response.Body).Decode(&answer)
	return answer.Header.Revision, err
}

// compact discards versions before the revision.
func (c *etcdClient) compact(ctx context.Context, revision int64) error {
	response, err := c.post(ctx, "/v3/kv/compaction", map[string]any{"revision": strconv.FormatInt(revision, 10), "physical": true})
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// watchPrefix calls each for every change of a key with the prefix from that revision on,
// in order. It returns after the first key that ends with last.
func (c *etcdClient) watchPrefix(ctx context.Context, prefix string, from int64, last string, each func(etcdEvent) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	end := []byte(prefix)
	end[len(end)-1]++
	response, err := c.post(ctx, "/v3/watch", map[string]any{"create_request": map[string]any{
		"key": []byte(prefix), "range_end": end, "start_revision": strconv.FormatInt(from, 10), "prev_kv": true,
	}})
	if err != nil {
		return err
	}
	defer response.Body.Close()
	answers := json.NewDecoder(response.Body)
	for {
		var answer etcdWatchResponse
		if err := answers.Decode(&answer); err != nil {
			return fmt.Errorf("watching %s: %w", prefix, err)
		}
		if answer.Result.Canceled {
			return fmt.Errorf("watching %s: %s (compacted: %s)", prefix, answer.Result.CancelReason, answer.Result.Compacted)
		}
		for _, event := range answer.Result.Events {
			if err := each(event); err != nil {
				return fmt.Errorf("%s: %w", event.KV.Key, err)
			}
			if strings.HasSuffix(string(event.KV.Key), last) {
				return nil
			}
		}
	}
}

// appendFromEtcd appends the versions of Foos and Deployments in the namespace from that
// revision on, up to the Foo with the name last, and returns the revision of that Foo.
// The test creates a Deployment of the same name after it, which ends the second watch.
func (h *history) appendFromEtcd(ctx context.Context, e *etcdClient, namespace string, from int64, last string) (upTo int64, err error) {
	foos, upTo, err := readVersions(ctx, e, fooKeys, namespace, from, last, func(value []byte) (*v1alpha1.Foo, error) {
		foo := &v1alpha1.Foo{}
		return foo, json.Unmarshal(value, foo)
	})
	if err != nil {
		return 0, err
	}
	deployments, _, err := readVersions(ctx, e, deploymentKeys, namespace, from, last, func(value []byte) (*appsv1.Deployment, error) {
		deployment := &appsv1.Deployment{}
		_, _, err := scheme.Codecs.UniversalDeserializer().Decode(value, nil, deployment)
		return deployment, err
	})
	h.foos = append(h.foos, foos...)
	h.deployments = append(h.deployments, slices.DeleteFunc(deployments, func(v version[*appsv1.Deployment]) bool { return v.revision > upTo })...)
	return upTo, err
}

// readVersions returns the versions of the objects in the namespace from that revision
// on, and the revision of the last event. The version of a deleted object is its last
// state.
func readVersions[T metav1.Object](ctx context.Context, e *etcdClient, prefix, namespace string, from int64, last string, decode func([]byte) (T, error)) (versions []version[T], upTo int64, err error) {
	err = e.watchPrefix(ctx, prefix, from, "/"+last, func(event etcdEvent) error {
		upTo = event.KV.ModRevision
		if !strings.HasPrefix(string(event.KV.Key), prefix+namespace+"/") {
			return nil
		}
		value, deleted := event.KV.Value, event.Type == "DELETE"
		if deleted {
			value = event.Previous.Value
		}
		object, err := decode(value)
		if err != nil {
			return err
		}
		object.SetResourceVersion(strconv.FormatInt(upTo, 10))
		versions = append(versions, version[T]{object: object, revision: upTo, deleted: deleted})
		return nil
	})
	return versions, upTo, err
}

// version is one version of an object. Revisions order the versions of all objects: the
// cluster has one etcd, and resource versions are its revisions.
type version[T metav1.Object] struct {
	object   T
	revision int64
	// deleted marks the deletion; object is then the last state.
	deleted bool
}

// history has every version of the Foos and Deployments of a namespace, in order.
type history struct {
	foos        []version[*v1alpha1.Foo]
	deployments []version[*appsv1.Deployment]
}

// existing returns the objects that exist now, by name.
func existing[T metav1.Object](versions []version[T]) map[string]T {
	return existingBefore(versions, math.MaxInt64)
}

// existingBefore returns the objects that existed just before that revision, by name.
func existingBefore[T metav1.Object](versions []version[T], revision int64) map[string]T {
	objects := map[string]T{}
	for _, v := range versions {
		switch {
		case v.revision >= revision:
			return objects
		case v.deleted:
			delete(objects, v.object.GetName())
		default:
			objects[v.object.GetName()] = v.object
		}
	}
	return objects
}

// supersededAt returns the revision of the next version, false if there is none.
func supersededAt[T metav1.Object](versions []version[T], index int) (int64, bool) {
	if v := nextVersion(versions, index); v != nil {
		return v.revision, true
	}
	return 0, false
}

// nextVersion returns the next version of the same object, nil if there is none.
func nextVersion[T metav1.Object](versions []version[T], index int) *version[T] {
	uid := versions[index].object.GetUID()
	for i := index + 1; i < len(versions); i++ {
		if versions[i].object.GetUID() == uid {
			return &versions[i]
		}
	}
	return nil
}
