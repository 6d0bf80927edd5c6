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
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/test/kinds"
)

// run is one run of a scenario: a namespace, the controller, and the proxy between it and the API server.
type run struct {
	check     *checker
	namespace string
	history   *history
	proxy     *proxy
	// kubeconfig and output are files.
	kubeconfig string
	output     *os.File

	mu      sync.Mutex
	process *process
	closed  bool
}

// The bounds of waits that only a failing run reaches.
const (
	startTimeout = 30 * time.Second
	stepTimeout  = 60 * time.Second
	restTimeout  = 100 * time.Second
)

// newRun starts the controller in a new namespace. jitter is nil for no delays.
func (c *checker) newRun(ctx context.Context, jitter *rand.Rand) (*run, error) {
	namespace, err := c.cluster.createNamespace(ctx)
	if err != nil {
		return nil, err
	}
	r := &run{check: c, namespace: namespace, history: c.cluster.historyOf(namespace), proxy: newProxy(c.cluster, namespace, c.plain)}
	r.proxy.jitter, r.proxy.crash = jitter, func() { r.restart(ctx, func() {}) }
	r.kubeconfig, err = writeKubeconfig(c.dir, r.proxy.server.URL, r.proxy.ca(), namespace)
	if err == nil {
		r.output, err = os.Create(r.kubeconfig + ".log")
	}
	if err == nil {
		err = c.setUp(ctx, namespace)
	}
	if err != nil {
		return r, err
	}
	r.restart(ctx, func() {})
	err = poll(ctx, startTimeout, func(context.Context) error {
		if !r.watches() {
			return errors.New("the controller does not watch " + c.owners.Resource)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil && len(c.tracked) == 0 {
		// It may read owners now and then, or do nothing at all.
		c.noWatch.Store(true)
		return r, nil
	}
	return r, err
}

// setUp creates the objects that each namespace has before the controller starts. A ConfigMap is the owner of
// the bystanders that have one.
func (c *checker) setUp(ctx context.Context, namespace string) error {
	stranger := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": bystanderPrefix + "owner"},
	}}
	for _, object := range slices.Concat([]*unstructured.Unstructured{stranger}, c.suite.setup, c.bystanders) {
		if strings.HasPrefix(object.GetName(), bystanderPrefix+"owned-") {
			object = object.DeepCopy()
			object.SetOwnerReferences([]metav1.OwnerReference{{
				APIVersion: "v1", Kind: "ConfigMap", Name: stranger.GetName(), UID: stranger.GetUID(), Controller: ptr.To(true),
			}})
		}
		client, _, err := c.cluster.at(namespace, object.GetAPIVersion(), object.GetKind())
		if err != nil {
			return err
		}
		created, err := client.Create(ctx, object, metav1.CreateOptions{})
		if err != nil {
			return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
		}
		if object == stranger {
			stranger.SetUID(created.GetUID())
		}
	}
	return nil
}

// watches reports whether the process that runs now watches the owners.
func (r *run) watches() bool {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	return r.proxy.watched[r.check.owners.Resource] || r.check.noWatch.Load()
}

// process is one process of the controller, with its children. done is closed when it has exited.
type process struct {
	*exec.Cmd

	done chan struct{}
}

// start starts the command with the placeholders {} and {namespace} replaced.
func (r *run) start() (*process, error) {
	arguments := slices.Clone(r.check.command)
	for i := range arguments {
		arguments[i] = strings.NewReplacer("{}", r.kubeconfig, "{namespace}", r.namespace).Replace(arguments[i])
	}
	p := &process{Cmd: exec.Command(arguments[0], arguments[1:]...), done: make(chan struct{})}
	p.Stdout, p.Stderr, p.SysProcAttr = r.output, r.output, &syscall.SysProcAttr{Setpgid: true}
	// Other variables could connect the controller to an API server past its proxy.
	p.Env = slices.DeleteFunc(os.Environ(), func(variable string) bool { return strings.HasPrefix(variable, "KUBE") })
	if err := p.Start(); err != nil {
		return nil, err
	}
	go func() {
		// The state of the process says how it ended.
		_ = p.Wait()
		close(p.done)
	}()
	return p, nil
}

// kill kills the process and its children, and returns once it has exited.
func (p *process) kill() {
	// It may have exited.
	_ = syscall.Kill(-p.Process.Pid, syscall.SIGKILL)
	<-p.done
}

// restart kills the process, if there is one, calls meanwhile, and starts another one.
func (r *run) restart(ctx context.Context, meanwhile func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if former := r.process; former != nil {
		r.process = nil
		former.kill()
		if client, _, err := r.check.cluster.at(r.namespace, "coordination.k8s.io/v1", "Lease"); err == nil && !r.check.suite.KeepLease {
			// The next process would wait for the killed one. Without leases it does not.
			_ = client.DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
		}
	}
	r.proxy.forget()
	meanwhile()
	p, err := r.start()
	if err != nil {
		r.proxy.find("exit", "it does not start: "+err.Error())
		return
	}
	r.process = p
	go r.supervise(ctx, p)
}

// lastOutput returns the end of what the processes printed.
func (r *run) lastOutput() string {
	const most = 4000
	log, err := os.ReadFile(r.output.Name())
	if err != nil {
		return err.Error()
	}
	return string(log[max(0, len(log)-most):])
}

// supervise starts the controller again if it exits by itself, as the kubelet does.
func (r *run) supervise(ctx context.Context, p *process) {
	<-p.done
	r.mu.Lock()
	byItself := r.process == p && !r.closed
	r.mu.Unlock()
	if byItself {
		r.proxy.find("exit", "the controller exited by itself: "+p.ProcessState.String()+"; its output:\n"+r.lastOutput())
		pause(ctx, time.Second)
		r.restart(ctx, func() {})
	}
}

// close ends the run and deletes its namespace.
func (r *run) close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	if r.process != nil {
		r.process.kill()
	}
	r.mu.Unlock()
	r.proxy.close()
	r.output.Close()
	r.check.cluster.forget(r.namespace)
	// A namespace that is left costs nothing but room.
	_ = r.check.cluster.client.Resource(namespaces).Delete(context.WithoutCancel(ctx), r.namespace, metav1.DeleteOptions{})
}

// take takes the steps of a user. Each is a point where the process can be down.
func (r *run) take(ctx context.Context, steps []step) error {
	for i := range steps {
		s := &steps[i]
		var err error
		act := func() {
			err = poll(ctx, stepTimeout, func(ctx context.Context) error { return r.act(ctx, s) })
		}
		if !s.waits() && r.proxy.step(s.String()) {
			r.restart(ctx, act)
		} else {
			act()
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

// act takes one step.
func (r *run) act(ctx context.Context, s *step) error {
	client, name, err := r.resolve(&s.On)
	if err != nil {
		return err
	}
	patchType, patch, options := types.MergePatchType, s.Merge, metav1.PatchOptions{FieldManager: "check-user"}
	switch {
	case s.waits():
		return checkWait(ctx, client, name, s)
	case s.Delete != "":
		object, err := client.Get(ctx, name, metav1.GetOptions{})
		if err == nil {
			err = client.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &s.Delete})
		}
		return r.awaitRecorded(ctx, object, true, err)
	case s.Apply != nil:
		patchType, patch, options.Force = types.ApplyYAMLPatchType, mustEncode(s.Apply), ptr.To(true)
	case s.JSON != nil:
		patchType, patch = types.JSONPatchType, s.JSON
	}
	object, err := client.Patch(ctx, name, patchType, patch, options)
	return r.awaitRecorded(ctx, object, false, err)
}

// awaitRecorded waits until the history has the version or the deletion. Until then the former state would look
// like the final one.
func (r *run) awaitRecorded(ctx context.Context, object *unstructured.Unstructured, deletion bool, err error) error {
	if err != nil {
		return err
	}
	return poll(ctx, stepTimeout, func(context.Context) error {
		versions, _ := r.history.all()
		for i := range versions {
			v := &versions[i]
			if v.object.GetUID() == object.GetUID() && (deletion && !v.isLive() || !deletion && v.object.GetResourceVersion() == object.GetResourceVersion()) {
				return nil
			}
		}
		return errors.New("the change is not seen")
	})
}

func checkWait(ctx context.Context, client dynamic.ResourceInterface, name string, w *step) error {
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	switch {
	case w.Gone && apierrors.IsNotFound(err):
		return nil
	case w.Gone && err == nil:
		return errors.New("it exists")
	case err != nil:
		return err
	}
	if got := kinds.Find(w.Path, object.Object); got != w.Value {
		return fmt.Errorf("it has %q", got)
	}
	return nil
}

// resolve returns a client for the object of a step, and its name.
func (r *run) resolve(to *ref) (dynamic.ResourceInterface, string, error) {
	client, resource, err := r.check.cluster.at(r.namespace, to.APIVersion, to.Kind)
	if err != nil || !to.Owned {
		return client, to.Name, err
	}
	var names []string
	versions, _ := r.history.all()
	for _, v := range r.check.owned(versions) {
		if v.resource == resource && v.isLive() {
			names = append(names, v.object.GetName())
		}
	}
	if len(names) == 0 {
		return nil, "", fmt.Errorf("the example owns no %s", to.Kind)
	}
	return client, slices.Min(names), nil
}
