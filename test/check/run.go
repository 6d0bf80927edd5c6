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
	"maps"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"time"

	celtypes "github.com/google/cel-go/common/types"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/test/check/trace"
)

// run is one run of a scenario: a namespace, the controller, and the proxy between it and the API server.
type run struct {
	check     *checker
	namespace string
	history   *trace.History
	proxy     *proxy
	// kubeconfig and output are files.
	kubeconfig string
	output     *os.File

	mu      sync.Mutex
	process *trace.Process
	closed  bool

	// longer is for how long the fault delays the end, and mayExit is set if the process cannot keep its lease.
	longer  time.Duration
	mayExit bool
}

// The bounds of waits that only a failing run reaches.
const (
	startTimeout = 30 * time.Second
	stepTimeout  = 120 * time.Second
	restTimeout  = 100 * time.Second
	// patience is for how long the end may differ while nothing changes.
	patience = 40 * time.Second
)

// newRun starts the controller in a new namespace. jitter is nil for no delays.
func (c *checker) newRun(ctx context.Context, jitter *rand.Rand) (*run, error) {
	namespace, err := c.cluster.createNamespace(ctx)
	if err != nil {
		return nil, err
	}
	r := &run{check: c, namespace: namespace, history: trace.NewHistory()}
	c.cluster.histories.Store(namespace, r.history)
	r.proxy = newProxy(r, jitter)
	r.kubeconfig = filepath.Join(c.dir, namespace+".kubeconfig")
	err = trace.WriteKubeconfig(r.kubeconfig, r.proxy.server, "check", namespace)
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
	err = trace.Poll(ctx, startTimeout, func(context.Context) error {
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

// setUp creates the objects that each namespace has before the controller starts. A ConfigMap is the owner of the
// bystanders that have one.
func (c *checker) setUp(ctx context.Context, namespace string) error {
	stranger := &unstructured.Unstructured{Object: map[string]any{
		"apiVersion": "v1", "kind": "ConfigMap", "metadata": map[string]any{"name": trace.BystanderPrefix + "owner"},
	}}
	for _, object := range slices.Concat([]*unstructured.Unstructured{stranger}, c.suite.setup, c.bystanders) {
		if strings.HasPrefix(object.GetName(), trace.BystanderPrefix+"owned-") {
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

// start starts the command with the placeholders {}, {namespace} and {controller} replaced.
func (r *run) start() (*trace.Process, error) {
	arguments, controller := slices.Concat(r.check.command, r.check.flags), ""
	if r.check.suite.data != nil {
		controller = r.check.suite.data.Controller
	}
	replacer := strings.NewReplacer("{}", r.kubeconfig, "{namespace}", r.namespace, "{controller}", controller)
	for i := range arguments {
		arguments[i] = replacer.Replace(arguments[i])
	}
	command := exec.Command(arguments[0], arguments[1:]...)
	command.Stdout, command.Stderr = r.output, r.output
	return trace.Start(command)
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
		former.Kill()
		// The next process would wait for the killed one. Without leases it does not.
		_ = r.leases().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
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
func (r *run) supervise(ctx context.Context, p *trace.Process) {
	<-p.Done
	r.mu.Lock()
	byItself := r.process == p && !r.closed
	r.mu.Unlock()
	if byItself {
		if r.proxy.lost().IsZero() && !r.mayExit {
			r.proxy.find("exit", "the controller exited by itself: "+p.ProcessState.String()+"; its output:\n"+r.lastOutput())
		}
		trace.Pause(ctx, time.Second)
		r.restart(ctx, func() {})
	}
}

// close ends the run and deletes its namespace.
func (r *run) close(ctx context.Context) {
	r.mu.Lock()
	r.closed = true
	if r.process != nil {
		r.process.Kill()
	}
	r.mu.Unlock()
	trace.Close(r.proxy.server)
	r.output.Close()
	r.check.cluster.histories.Delete(r.namespace)
	if r.check.keep {
		return
	}
	// A namespace that is left costs nothing but room.
	_ = r.check.cluster.client.Resource(namespaces).Delete(context.WithoutCancel(ctx), r.namespace, metav1.DeleteOptions{})
}

// take takes the steps of a user. Each is a point where the process can be down.
func (r *run) take(ctx context.Context, steps []step) error {
	for i := range steps {
		s := &steps[i]
		var err error
		versions, _ := r.history.All()
		was := r.check.exampleIn(versions)
		act := func() {
			err = trace.Poll(ctx, stepTimeout, func(ctx context.Context) error { return r.act(ctx, s, was) })
		}
		if s.Until == "" && r.proxy.step(s.String()) {
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

// see returns what expressions can name now: object is the example.
func (r *run) see(was any) map[string]any {
	versions, changed := r.history.All()
	with, now := trace.Variables(versions), trace.Now()
	with["was"], with["now"], with["quiet"] = was, celtypes.Timestamp{Time: now}, celtypes.Duration{Duration: now.Sub(r.proxy.wroteAfter(changed))}
	with["object"] = r.check.exampleIn(versions)
	return with
}

// exampleIn returns the last version of the example, which exists or may have been deleted just now, or nil.
func (c *checker) exampleIn(versions []trace.Version) any {
	for _, v := range trace.Latest(versions) {
		if v.Resource == c.owners.Resource && v.Object.GetName() == c.suite.example.GetName() && !v.Deleted {
			return v.Object.Object
		}
	}
	return nil
}

// act takes one step, given the example as it was when the step began.
func (r *run) act(ctx context.Context, s *step, was any) error {
	with := r.see(was)
	if s.Until != "" {
		is, err := r.check.suite.IsTrue(s.Until, with)
		if err == nil && !is {
			err = errors.New("it is not true of " + trace.Brief(with["object"]))
		}
		return err
	}
	client, names, err := r.resolve(&s.On, with)
	// The controller may adopt what check makes foreign.
	if err == nil && len(names) == 0 && s.On.Where != "foreign" {
		err = errors.New("there is no such object")
	}
	patchType, patch := types.MergePatchType, []byte(s.Merge)
	switch {
	case s.Apply != nil:
		patchType, patch = types.ApplyYAMLPatchType, trace.MustEncode(s.Apply)
	case s.Strategic != nil:
		patchType, patch = types.StrategicMergePatchType, s.Strategic
	case s.JSON != nil:
		patchType, patch = types.JSONPatchType, s.JSON
	}
	if err == nil {
		patch, err = r.check.suite.Expand(patch, with)
	}
	for _, name := range names {
		if err == nil && s.Delete != "" {
			err = r.delete(ctx, client, name, s.Delete)
		} else if err == nil {
			options := metav1.PatchOptions{FieldManager: "check-user"}
			if s.Apply != nil {
				options.Force = ptr.To(true)
			}
			object, failed := client.Patch(ctx, name, patchType, patch, options, strings.Fields(s.On.Subresource)...)
			err = r.awaitRecorded(ctx, object, false, failed)
		}
	}
	return err
}

// delete deletes an object, which may have been deleted just now.
func (r *run) delete(ctx context.Context, client dynamic.ResourceInterface, name string, how metav1.DeletionPropagation) error {
	object, err := client.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		err = client.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &how})
	}
	if err == nil && object.GetNamespace() == "" {
		return nil
	}
	return r.awaitRecorded(ctx, object, true, err)
}

// awaitRecorded waits until the history has the change, unless that failed.
func (r *run) awaitRecorded(ctx context.Context, object *unstructured.Unstructured, deletion bool, err error) error {
	if err != nil {
		return err
	}
	return r.history.Await(ctx, stepTimeout, object, deletion)
}

// resolve returns a client for the objects of a step, and their names.
func (r *run) resolve(to *selector, with map[string]any) (dynamic.ResourceInterface, []string, error) {
	client, resource, err := r.check.cluster.at(r.namespace, to.APIVersion, to.Kind)
	if err == nil && to.Where == "" {
		var name []byte
		name, err = r.check.suite.Expand([]byte(to.Name), with)
		return client, []string{string(name)}, err
	}
	if err != nil {
		return nil, nil, err
	}
	if to.Kind == "Namespace" {
		return client, []string{r.namespace}, nil
	}
	var names []string
	versions, _ := r.history.All()
	with = maps.Clone(with)
	if with["object"] != nil {
		with["was"] = with["object"]
	}
	for _, v := range trace.Latest(versions) {
		if v.Resource != resource || v.Deleted {
			continue
		}
		with["object"] = v.Object.Object
		is, err := r.check.suite.IsTrue(to.Where, with)
		if err != nil {
			return nil, nil, err
		}
		if is {
			names = append(names, v.Object.GetName())
		}
	}
	slices.Sort(names)
	return client, names, nil
}

// touched is the annotation with which check makes the controller sync each owner again.
const touched = "check-touched"

// settle makes the controller sync each owner again, and returns its writes from there on that changed nothing.
func (r *run) settle(ctx context.Context, differs func([]trace.Version) []string) ([]trace.Request, error) {
	known := map[string]bool{}
	client := r.check.cluster.client.Resource(r.check.owners).Namespace(r.namespace)
	owners, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	versions, _ := r.history.All()
	for _, v := range versions {
		known[v.Object.GetResourceVersion()] = true
	}
	// Later, so that none of the requests from here on has led to one of these versions.
	before := len(r.proxy.recorded(0))
	for i := range owners.Items {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"yes"}}}`, touched)
		object, err := client.Patch(ctx, owners.Items[i].GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		if err := r.awaitRecorded(ctx, object, false, err); err != nil {
			return nil, fmt.Errorf("touching an owner: %w", err)
		}
		known[object.GetResourceVersion()] = true
	}
	if err := r.rest(ctx, differs); err != nil {
		return nil, err
	}
	var noops []trace.Request
	for _, request := range r.proxy.recorded(before) {
		if request.Applied() && known[request.Revision] {
			noops = append(noops, request)
		}
	}
	return noops, nil
}

// wroteAfterTouch reports whether the controller wrote to the resource of the line of a state after the touch. Other
// controllers, such as the garbage collector, may be late.
func (o *outcome) wroteAfterTouch(key string) bool {
	return slices.ContainsFunc(o.requests[o.touched:], func(r trace.Request) bool { return r.Applied() && strings.HasPrefix(key, r.Resource+" ") })
}

// judgeTouch returns a finding if each run had work left at rest, which only a touch of its owner made it do. lines are
// what each touch led to. Faults do not tell them again.
func (r *reference) judgeTouch(runs []*outcome, lines []string) []finding {
	slices.Sort(lines)
	var left []string
	for i := len(runs) - 1; i < len(lines); i++ {
		if key, _, _ := strings.Cut(lines[i][2:], ": "); lines[i] == lines[i-len(runs)+1] && !r.masked[key] {
			left, r.masked[key] = append(left, lines[i]), true
		}
	}
	if left == nil {
		return nil
	}
	return []finding{{Judge: "settled", Message: "it had work left, which a touch of its owner made it do:\n" + strings.Join(left, "\n")}}
}
