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
	"fmt"
	"math/rand/v2"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/check/trace"
	"example.com/sample-controller/test/sim"
)

// The components of the control plane that the tests kill. Others exit if the API server does not answer when they start.
const (
	etcd              = "etcd"
	apiServer         = "kube-apiserver"
	controllerManager = "kube-controller-manager"
	scheduler         = "kube-scheduler"
	kwok              = "kwok-controller"
)

// controlPlane returns a path in the directory of the control plane.
func (e *env) controlPlane(names ...string) string {
	return filepath.Join(append([]string{e.work, "cluster/.kwok/clusters/control-plane"}, names...)...)
}

// killComponents sends SIGKILL, as a power failure would end the processes, and returns when they are gone. kwokctl starts
// those that do not run by their PID files, which name this process until startComponents is called.
func (e *env) killComponents(names ...string) {
	e.outage = true
	for _, name := range names {
		file := e.controlPlane("pids", name+".pid")
		text, err := os.ReadFile(file)
		e.must(err)
		pid, err := strconv.Atoi(strings.TrimSpace(string(text)))
		e.must(err)
		e.must(syscall.Kill(pid, syscall.SIGKILL))
		e.must(os.WriteFile(file, []byte(strconv.Itoa(os.Getpid())), 0o640))
		e.poll(name+" is gone", func(context.Context) error {
			// Its threads end one by one, and the last one closes its port. A zombie has no files.
			files, err := filepath.Glob(fmt.Sprintf("/proc/%d/task/*/fd/*", pid))
			if len(files) > 0 {
				err = fmt.Errorf("it has %d open files", len(files))
			}
			return err
		})
	}
}

// startComponents returns when the API server answers.
func (e *env) startComponents(names ...string) {
	for _, name := range names {
		e.must(os.Remove(e.controlPlane("pids", name+".pid")))
	}
	start := exec.CommandContext(e.t.Context(), e.kwokctl, "--name=control-plane", "start", "cluster")
	// By this name hack/cluster.sh down finds it, if this process is killed.
	start.Args[0] = e.controlPlane("bin", "kwokctl")
	start.Env = append(os.Environ(), "HOME="+filepath.Join(e.work, "cluster"), "PATH="+filepath.Dir(e.kwokctl)+":"+os.Getenv("PATH"))
	if output, err := start.CombinedOutput(); err != nil {
		e.fatalf("%v: %s", err, output)
	}
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

// record adds the versions of a resource below the prefix to the history, from that revision on until ctx ends. The
// version of a deleted object is its last state. It calls etcd through its JSON gateway, which avoids a dependency on
// etcd's Go client. A watch of the API server would miss versions while the API server is down.
func (e *env) record(ctx context.Context, resource, prefix string, from int64) error {
	end, url := []byte(prefix), os.Getenv("TEST_ETCD")+"/v3/watch"
	end[len(end)-1]++
	for ; ctx.Err() == nil; trace.Pause(ctx, pollInterval) {
		question := bytes.NewReader(trace.MustEncode(map[string]any{"create_request": map[string]any{
			"key": []byte(prefix), "range_end": end, "start_revision": from, "prev_kv": true,
		}}))
		request, err := http.NewRequestWithContext(ctx, http.MethodPost, url, question)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			continue
		}
		for answers := json.NewDecoder(response.Body); err == nil; {
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
				e.history.Add(resource, object, deleted)
			}
		}
		// The watch broke.
		_ = response.Body.Close()
	}
	return nil
}

const (
	countOfUsers = 8
	// thinkTime is how long a user waits between two operations. It sets the load, not a bound.
	thinkTime = 150 * time.Millisecond
)

// startUsers lets users change Foos until the returned function is called. Their sequences of operations are the same in
// every run.
func (e *env) startUsers(foosEach int) (stop func()) {
	ctx, cancel := context.WithCancel(e.t.Context())
	var users sync.WaitGroup
	for i := range countOfUsers {
		users.Go(func() {
			u := &user{env: e, random: rand.New(rand.NewPCG(1, uint64(i))), name: fmt.Sprint("u", i), foos: foosEach}
			for n := range foosEach {
				sim.Op{Verb: sim.CreateFoo, Foo: u.foo(n), Deployment: u.foo(n), Replicas: 1}.Do(u)
			}
			for trace.Pause(ctx, thinkTime); ctx.Err() == nil; trace.Pause(ctx, thinkTime) {
				u.draw().Do(u)
				e.operations.Add(1)
			}
		})
	}
	e.t.Cleanup(users.Wait)
	return func() {
		cancel()
		users.Wait()
	}
}

// user changes Foos that no other user changes, and gives no two the same Deployment. It sends each request again until it
// succeeds, so that lost answers do not change the final state.
type user struct {
	*env

	random *rand.Rand
	// foos is the number of its Foos, made that of the names that it has made up for Deployments.
	name       string
	foos, made int
}

// foo returns the name of its nth Foo. The judges know by what comes before the first dash whose it is.
func (u *user) foo(n int) string { return fmt.Sprintf("%s-foo-%d", u.name, n) }

func (u *user) draw() sim.Op {
	op := sim.Op{Foo: u.foo(u.random.IntN(u.foos)), Other: u.foo(u.random.IntN(u.foos)), Replicas: 1 + u.random.Int32N(3)}
	switch chance := u.random.IntN(100); {
	case chance < 40:
		op.Verb = sim.ScaleFoo
	case chance < 65:
		u.made++
		op.Verb, op.Deployment = sim.Rename, fmt.Sprintf("%s-web-%d", u.name, u.made)
	case chance < 90:
		op.Verb = sim.Swap
	default:
		op.Verb = sim.RecreateFoo
	}
	return op
}

// retry also fails for an API server that has just started: it does not serve Foos yet.
func (u *user) retry(request func(context.Context) error) {
	if err := trace.Poll(u.t.Context(), settleTimeout, request); err != nil && u.t.Context().Err() == nil {
		u.t.Errorf("a user: %v", err)
	}
}

// Get implements sim.User.
func (u *user) Get(_, name string) (object sim.Object) {
	u.retry(func(ctx context.Context) (err error) {
		object, err = u.client.Get(ctx, name, metav1.GetOptions{})
		return err
	})
	return object
}

// Create implements sim.User.
func (u *user) Create(_ string, object sim.Object) {
	u.retry(func(ctx context.Context) error {
		_, err := u.client.Create(ctx, object.(*v1alpha1.Foo), metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
}

// Change implements sim.User. It sends the resource version, so that an earlier attempt cannot take effect after a later
// operation.
func (u *user) Change(_, name string, change func(sim.Object)) {
	u.retry(func(ctx context.Context) error {
		foo, err := u.client.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			change(foo)
			_, err = u.client.Update(ctx, foo, metav1.UpdateOptions{})
		}
		return err
	})
}

// Delete implements sim.User. What is not found was deleted by an earlier attempt, or is created again in vain.
func (u *user) Delete(_, name string, propagation metav1.DeletionPropagation) {
	u.retry(func(ctx context.Context) error {
		err := u.client.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &propagation})
		if apierrors.IsNotFound(err) {
			return nil
		}
		return err
	})
}

// Now implements sim.User.
func (u *user) Now() metav1.Time { return metav1.Now() }
