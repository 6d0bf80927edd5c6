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
	"slices"
	"strings"
	"sync"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"
)

// run is one run of a scenario: a namespace, the controller, and the proxy between it and the API server.
type run struct {
	check *checker
	// scenario is nil for the run in which check learns what the controller does.
	scenario  *scenario
	namespace string
	history   *history
	proxy     *proxy
	output    *output

	mu         sync.Mutex
	kubeconfig string
	process    *process
	closed     bool
	exits      int
}

// The bounds of waits that only a failing run reaches.
const (
	startTimeout = 30 * time.Second
	stepTimeout  = 60 * time.Second
	restTimeout  = 150 * time.Second
)

// newRun starts the controller in a new namespace. jitter is nil for no delays.
func (c *checker) newRun(ctx context.Context, s *scenario, jitter *rand.Rand) (*run, error) {
	namespace, err := c.cluster.createNamespace(ctx)
	if err != nil {
		return nil, err
	}
	r := &run{check: c, scenario: s, namespace: namespace, output: &output{}, history: c.recorder.begin(namespace)}
	r.proxy = newProxy(c.cluster, namespace, c.plain)
	r.proxy.jitter, r.proxy.crash, r.proxy.aliases = jitter, func() { r.restart(ctx, func() {}) }, newAliases(namespace, nil)
	if r.kubeconfig, err = writeKubeconfig(c.dir, r.proxy.server.URL, r.proxy.ca(), namespace); err != nil {
		r.close(ctx)
		return nil, err
	}
	if err := c.setUp(ctx, namespace); err != nil {
		r.close(ctx)
		return nil, err
	}
	r.restart(ctx, func() {})
	return r, r.awaitStarted(ctx)
}

// setUp creates the objects that each namespace has before the controller starts. A bystander of the name owned
// gets a ConfigMap as its owner.
func (c *checker) setUp(ctx context.Context, namespace string) error {
	stranger := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": bystanderPrefix + "owner"},
	}}
	configMaps, err := c.cluster.at(namespace, "v1", "ConfigMap")
	if err != nil {
		return err
	}
	if stranger, err = configMaps.Create(ctx, stranger, createOptions); err != nil {
		return err
	}
	for _, object := range slices.Concat(c.suite.setup, c.bystanders) {
		object = object.DeepCopy()
		if strings.HasPrefix(object.GetName(), bystanderPrefix+"owned-") {
			object.SetOwnerReferences([]metav1.OwnerReference{{
				APIVersion: "v1", Kind: "ConfigMap", Name: stranger.GetName(), UID: stranger.GetUID(), Controller: ptr.To(true),
			}})
		}
		client, err := c.cluster.at(namespace, object.GetAPIVersion(), object.GetKind())
		if err == nil {
			err = createIfAbsent(ctx, client, object)
		}
		if err != nil {
			return fmt.Errorf("creating %s %s: %w", object.GetKind(), object.GetName(), err)
		}
	}
	return nil
}

// awaitStarted waits until the process watches the owners, unless it never does.
func (r *run) awaitStarted(ctx context.Context) error {
	err := poll(ctx, startTimeout, func(context.Context) error {
		if !r.watches() {
			return errors.New("the controller does not watch " + r.check.owners.Resource)
		}
		return nil
	})
	if err != nil && ctx.Err() == nil && r.scenario == nil {
		r.check.noWatch.Store(true)
		return nil
	}
	return err
}

// watches reports whether the process that runs now watches the owners.
func (r *run) watches() bool {
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	return r.proxy.watched[r.check.owners.Resource] || r.check.noWatch.Load()
}

// restart kills the process, if there is one, calls meanwhile, and starts another one.
func (r *run) restart(ctx context.Context, meanwhile func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if r.process != nil {
		r.process.kill()
		r.clearLeases(ctx)
	}
	r.proxy.mu.Lock()
	r.proxy.shown, r.proxy.watched = map[string]string{}, map[string]bool{}
	r.proxy.mu.Unlock()
	meanwhile()
	p, err := startProcess(r.check.command, r.kubeconfig, r.namespace, r.output)
	if err != nil {
		r.proxy.find("exit", "it does not start: "+err.Error())
		return
	}
	r.process = p
	go r.supervise(ctx, p)
}

// supervise starts the controller again if it exits by itself, as the kubelet does.
func (r *run) supervise(ctx context.Context, p *process) {
	select {
	case <-p.done:
	case <-ctx.Done():
		return
	}
	if !p.failed() {
		return
	}
	r.mu.Lock()
	r.exits++
	first := r.exits == 1
	r.mu.Unlock()
	if first {
		r.proxy.find("exit", "the controller exited by itself: "+p.command.ProcessState.String())
	}
	pause(ctx, time.Second)
	r.restart(ctx, func() {})
}

// clearLeases removes the holder of each lease, so that the next process does not wait for the killed one.
func (r *run) clearLeases(ctx context.Context) {
	if r.check.suite.KeepLease {
		return
	}
	client, err := r.check.cluster.at(r.namespace, "coordination.k8s.io/v1", "Lease")
	if err != nil {
		return
	}
	leases, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return
	}
	for i := range leases.Items {
		patch := []byte(`{"spec":{"holderIdentity":""}}`)
		if _, err := client.Patch(ctx, leases.Items[i].GetName(), types.MergePatchType, patch, patchOptions); err != nil && ctx.Err() == nil {
			r.proxy.find("infrastructure", "clearing a lease: "+err.Error())
		}
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
	r.check.recorder.end(r.namespace)
	// A namespace that is left costs nothing but room.
	_ = r.check.cluster.client.Resource(namespaces).Delete(context.WithoutCancel(ctx), r.namespace, metav1.DeleteOptions{})
}

// take takes the steps of a user. Each is a point where the process can be down.
func (r *run) take(ctx context.Context, steps []step) error {
	for i := range steps {
		s := &steps[i]
		var err error
		if s.Wait == nil && r.proxy.step(s.String()) != nil {
			r.restart(ctx, func() { err = r.act(ctx, s) })
		} else {
			err = r.act(ctx, s)
		}
		if err != nil {
			return fmt.Errorf("%s: %w", s, err)
		}
	}
	return nil
}

func (r *run) act(ctx context.Context, s *step) error {
	switch {
	case s.Apply != nil:
		client, err := r.check.cluster.at(r.namespace, s.Apply.GetAPIVersion(), s.Apply.GetKind())
		if err != nil {
			return err
		}
		options := metav1.ApplyOptions{FieldManager: "check-user", Force: true}
		applied, err := client.Apply(ctx, s.Apply.GetName(), s.Apply, options)
		return r.awaitRecorded(ctx, applied, err)
	case s.Wait != nil:
		return poll(ctx, stepTimeout, func(ctx context.Context) error { return r.checkWait(ctx, s.Wait) })
	case s.Patch != nil:
		return poll(ctx, stepTimeout, func(ctx context.Context) error {
			client, name, err := r.resolve(s.Patch.ref)
			if err != nil {
				return err
			}
			patch, patchType := s.Patch.Merge, types.MergePatchType
			if s.Patch.JSON != nil {
				patch, patchType = s.Patch.JSON, types.JSONPatchType
			}
			patched, err := client.Patch(ctx, name, patchType, patch, patchOptions)
			return r.awaitRecorded(ctx, patched, err)
		})
	}
	client, name, err := r.resolve(s.Delete.ref)
	if err != nil {
		return err
	}
	object, err := client.Get(ctx, name, getOptions)
	if err != nil {
		return err
	}
	options := metav1.DeleteOptions{}
	if s.Delete.Propagation != "" {
		options.PropagationPolicy = &s.Delete.Propagation
	}
	if err := client.Delete(ctx, name, options); err != nil {
		return err
	}
	return poll(ctx, stepTimeout, func(context.Context) error {
		r.history.mu.Lock()
		defer r.history.mu.Unlock()
		if v, ok := r.history.existing[object.GetUID()]; ok && v.object.GetDeletionTimestamp() == nil {
			return errors.New("the deletion is not seen")
		}
		return nil
	})
}

// awaitRecorded waits until the history has the version that a step wrote. Until then the former state would
// look like the final one.
func (r *run) awaitRecorded(ctx context.Context, object *unstructured.Unstructured, err error) error {
	if err != nil {
		return err
	}
	return poll(ctx, stepTimeout, func(context.Context) error {
		for _, v := range r.history.all() {
			if v.object.GetUID() == object.GetUID() && v.object.GetResourceVersion() == object.GetResourceVersion() {
				return nil
			}
		}
		return errors.New("the change is not seen")
	})
}

func (r *run) checkWait(ctx context.Context, w *waitStep) error {
	client, name, err := r.resolve(w.ref)
	if err != nil {
		return err
	}
	object, err := client.Get(ctx, name, getOptions)
	switch {
	case w.Gone && apierrors.IsNotFound(err):
		return nil
	case w.Gone && err == nil:
		return errors.New("it exists")
	case err != nil:
		return err
	}
	if got := find(w.Path, object.Object); got != w.Value {
		return fmt.Errorf("it has %q", got)
	}
	return nil
}
