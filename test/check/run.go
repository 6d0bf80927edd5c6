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
	"net/http/httptest"
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

// trial is what a run tries: a scenario with a fault, or none, at a point. Each request and event is delayed by jitter.
type trial struct {
	*scenario

	// want is what runs without a fault have in common. In such a run it is empty.
	want   *reference
	fault  *fault
	at     point
	jitter *rand.Rand
}

// withoutFault tries a scenario without a fault.
func (c *checker) withoutFault(s *scenario) trial {
	return trial{scenario: s, want: &reference{check: c}, fault: &fault{}}
}

func (t *trial) id() string {
	if t.fault.name == "" {
		return t.Name
	}
	return t.Name + " | " + t.fault.name + " | " + t.at.String()
}

// run is one run of a scenario: a namespace, the controller, and the proxy between it and the API server. The proxy
// confines the controller to the namespace, records its requests, and injects one fault.
type run struct {
	trial

	check     *checker
	namespace string
	history   *trace.History
	server    *httptest.Server
	// kubeconfig and output are files.
	kubeconfig string
	output     *os.File

	// starting guards process and closed.
	starting sync.Mutex
	process  *trace.Process
	closed   bool

	// mutex guards the others.
	mutex
	requests []*trace.Request
	findings []finding
	// armed is set while the operation of the scenario runs. From then on counts has the number of requests by class, and
	// points lists all in order.
	armed    bool
	counts   map[string]int
	points   []recordedPoint
	aliases  *aliases
	injected bool
	// shown has the UID that the process last got of each object, and creations what creates it again.
	shown     map[string]string
	creations map[string]func() *trace.Response
	// active is when the process last wrote, or something was last held back, also if that is still to come.
	active time.Time
	// lagsUntil is until when no watch sends an event.
	lagsUntil time.Time
	// times is into how many events the fault was injected, and next what the next request about them gets.
	times int
	next  string
	// lostUntil is until when the lease lasts that another process took.
	lostUntil time.Time
	// watched has the resources of which the process watches objects.
	watched map[string]bool

	// The others are set at the end. Of the versions the operation led to those from prepared to rested. Of the requests
	// those from touched on came after the touch of the owners.
	versions                  []trace.Version
	sent                      []trace.Request
	prepared, rested, touched int
	reached                   bool
	extremes                  map[string]int
}

// The bounds of waits that only a failing run reaches.
const (
	startTimeout = 30 * time.Second
	stepTimeout  = 120 * time.Second
	restTimeout  = 160 * time.Second
	// patience is for how long the end may differ while nothing changes.
	patience = 40 * time.Second
)

// newRun starts the controller in a new namespace.
func (c *checker) newRun(ctx context.Context, t trial) (*run, error) {
	namespace, err := c.cluster.createNamespace(ctx)
	if err != nil {
		return nil, err
	}
	r := &run{trial: t, check: c, namespace: namespace, history: trace.NewHistory()}
	r.aliases, r.counts, r.creations = c.aliases(namespace, t.want.stable), map[string]int{}, map[string]func() *trace.Response{}
	c.cluster.histories.Store(namespace, r.history)
	r.server = trace.NewServer(r)
	r.server.StartTLS()
	r.kubeconfig = filepath.Join(c.dir, namespace+".kubeconfig")
	err = trace.WriteKubeconfig(r.kubeconfig, r.server, "check", namespace)
	if err == nil {
		r.output, err = os.Create(r.kubeconfig + ".log")
	}
	if err == nil {
		err = r.take(ctx, c.suite.setup)
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

func (r *run) find(judge, format string, arguments ...any) {
	found := finding{Judge: judge, Message: fmt.Sprintf(format, arguments...)}
	r.locked(func() { r.findings = append(r.findings, found) })
}

// recorded returns a copy of the requests from that index on.
func (r *run) recorded(from int) (copies []trace.Request) {
	r.locked(func() {
		for _, request := range r.requests[from:] {
			copies = append(copies, *request)
		}
	})
	return copies
}

// watches reports whether the process that runs now watches the owners.
func (r *run) watches() (is bool) {
	r.locked(func() { is = r.watched[r.check.owners.Resource] || r.check.noWatch.Load() })
	return is
}

func later(a, b time.Time) time.Time { return slices.MaxFunc([]time.Time{a, b}, time.Time.Compare) }

// see returns the versions so far, and for how long nothing has changed, been written or been held back.
func (r *run) see() (versions []trace.Version, quiet time.Duration) {
	versions, last := r.history.All()
	r.locked(func() { last = later(last, r.active) })
	return versions, trace.Now().Sub(last)
}

// restart kills the process, if there is one, calls meanwhile, and starts the command with the placeholders {},
// {namespace} and {controller} replaced.
func (r *run) restart(ctx context.Context, meanwhile func()) {
	r.starting.Lock()
	defer r.starting.Unlock()
	if r.closed {
		return
	}
	if former := r.process; former != nil {
		r.process = nil
		former.Kill()
		// The next process would wait for the killed one. Without leases it does not.
		_ = r.leases().DeleteCollection(ctx, metav1.DeleteOptions{}, metav1.ListOptions{})
	}
	r.locked(func() { r.shown, r.watched, r.lostUntil = map[string]string{}, map[string]bool{}, time.Time{} })
	meanwhile()
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
	p, err := trace.Start(command, func() {})
	if err != nil {
		r.find("exit", "it does not start: %v", err)
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
	r.starting.Lock()
	byItself := r.process == p && !r.closed
	r.starting.Unlock()
	if byItself {
		// Where there is no namespace, no process can keep its lease.
		mayExit := r.Name == endOfNamespace
		r.locked(func() { mayExit = mayExit || !r.lostUntil.IsZero() })
		if !mayExit {
			r.find("exit", "the controller exited by itself: %s; its output:\n%s", p.ProcessState, r.lastOutput())
		}
		trace.Pause(ctx, time.Second)
		r.restart(ctx, func() {})
	}
}

// close ends the run and deletes its namespace.
func (r *run) close(ctx context.Context) {
	r.starting.Lock()
	r.closed = true
	if r.process != nil {
		r.process.Kill()
	}
	r.starting.Unlock()
	trace.Close(r.server)
	r.output.Close()
	r.check.cluster.histories.Delete(r.namespace)
	if client := r.check.cluster.client.Resource(namespaces); !r.check.keep {
		// A namespace that is left costs nothing but room.
		_ = client.Delete(context.WithoutCancel(ctx), r.namespace, metav1.DeleteOptions{})
	}
}

// take takes the steps of a user. Each is a point where the process can be down.
func (r *run) take(ctx context.Context, steps []step) error {
	for i := range steps {
		s := &steps[i]
		var err error
		was, isDown := r.variables()["object"], false
		act := func() {
			err = trace.Poll(ctx, stepTimeout, func(ctx context.Context) error { return r.act(ctx, s, was) })
		}
		if s.Until == "" {
			r.locked(func() { isDown = r.count("user: "+s.String(), nil).kills })
		}
		if isDown {
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

// variables returns what expressions can name now: object is the last version of the example, which exists or may have
// been deleted just now, or null.
func (r *run) variables() map[string]any {
	versions, quiet := r.see()
	with := trace.Variables(versions)
	with["now"], with["quiet"] = celtypes.Timestamp{Time: trace.Now()}, celtypes.Duration{Duration: quiet}
	for _, v := range trace.Latest(versions) {
		if v.Resource == r.check.owners.Resource && v.Object.GetName() == r.check.suite.example.GetName() && !v.Deleted {
			with["object"] = v.Object.Object
		}
	}
	return with
}

// act takes one step, given the example as it was when the step began.
func (r *run) act(ctx context.Context, s *step, was any) error {
	with, suite := r.variables(), r.check.suite
	with["was"] = was
	if s.Until != "" {
		is, err := suite.IsTrue(s.Until, with)
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
	options, patchType, patch := metav1.PatchOptions{FieldManager: "check-user"}, types.MergePatchType, []byte(s.Merge)
	switch {
	case s.Apply != nil:
		options.Force, patchType, patch = ptr.To(true), types.ApplyYAMLPatchType, trace.MustEncode(s.Apply)
	case s.Strategic != nil:
		patchType, patch = types.StrategicMergePatchType, s.Strategic
	case s.JSON != nil:
		patchType, patch = types.JSONPatchType, s.JSON
	}
	if err == nil {
		patch, err = suite.Expand(patch, with)
	}
	for _, name := range names {
		if err != nil {
			break
		}
		var object *unstructured.Unstructured
		if s.Delete == "" {
			object, err = client.Patch(ctx, name, patchType, patch, options, strings.Fields(s.On.Subresource)...)
		} else if object, err = client.Get(ctx, name, metav1.GetOptions{}); err == nil {
			err = client.Delete(ctx, name, metav1.DeleteOptions{PropagationPolicy: &s.Delete})
		}
		if err == nil && s.On.Kind != "Namespace" {
			err = r.history.Await(ctx, stepTimeout, object, s.Delete != "")
		}
	}
	return err
}

// resolve returns a client for the objects of a step, and their names.
func (r *run) resolve(to *selector, with map[string]any) (dynamic.ResourceInterface, []string, error) {
	client, resource, err := r.check.cluster.at(r.namespace, to.APIVersion, to.Kind)
	if err == nil && to.Where == "" {
		name, err := r.check.suite.Expand([]byte(to.Name), with)
		return client, []string{string(name)}, err
	}
	if err != nil {
		return nil, nil, err
	}
	var names []string
	versions, _ := r.see()
	with = maps.Clone(with)
	if with["object"] != nil {
		with["was"] = with["object"]
	}
	for _, v := range trace.Latest(versions) {
		if v.Resource != resource.Resource || v.Deleted {
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

// settle makes the controller sync each owner again, which must lead to no write that changes nothing.
func (r *run) settle(ctx context.Context, end state) error {
	known := map[string]bool{}
	client := r.check.cluster.client.Resource(r.check.owners).Namespace(r.namespace)
	owners, err := client.List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	versions, _ := r.see()
	for _, v := range versions {
		known[v.Object.GetResourceVersion()] = true
	}
	// Later, so that none of the requests from here on has led to one of these versions.
	before := len(r.recorded(0))
	for i := range owners.Items {
		patch := fmt.Appendf(nil, `{"metadata":{"annotations":{%q:"yes"}}}`, touched)
		object, err := client.Patch(ctx, owners.Items[i].GetName(), types.MergePatchType, patch, metav1.PatchOptions{})
		if err == nil {
			err = r.history.Await(ctx, stepTimeout, object, false)
		}
		if err != nil {
			return fmt.Errorf("touching an owner: %w", err)
		}
		known[object.GetResourceVersion()] = true
	}
	if err := r.rest(ctx, end); err != nil {
		return err
	}
	for _, request := range r.recorded(before) {
		if request.Applied() && known[request.Revision] && !r.check.suite.AllowNoops {
			return &finding{Judge: "settled", Message: r.plain(&request) + " wrote what was there, after a touch of its owner"}
		}
	}
	return nil
}
