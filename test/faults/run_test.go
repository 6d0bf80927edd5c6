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
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/client-go/dynamic"

	"example.com/sample-controller/test/kinds"
)

// run is one run of a scenario: a namespace, a controller that works in that namespace
// only, and the proxy between the controller and the API server.
type run struct {
	t         *testing.T
	scenario  *scenario
	namespace string
	history   *history
	proxy     *faultProxy
	// service is the external service of the kind, nil if it has none.
	service *kinds.Service
	// +drop:crontab
	// lastScheduled is the time that awaitNextRun returned last.
	lastScheduled time.Time
	// +drop:end

	mu         sync.Mutex
	controller *process
	// secondController runs if the fault says so.
	secondController *process
	closed           bool
	// outputs are the outputs of all processes, including those that were killed.
	outputs []*output
}

// newRun starts a controller in a new namespace. fault is injected into its watches, nil
// for none.
func newRun(t *testing.T, s *scenario, fault *watchFault) *run {
	t.Helper()
	r := &run{t: t, scenario: s, namespace: cluster.uniqueName("faults")}
	r.history = cluster.recorder.historyOf(r.namespace)
	_, err := cluster.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}, metav1.CreateOptions{})
	r.must(err)
	// The API server admits Pods only when the namespace has its service account.
	r.poll("the namespace is ready for Pods", func(ctx context.Context) error {
		_, err := cluster.kube.CoreV1().ServiceAccounts(r.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	r.proxy = newFaultProxy(r, fault)
	t.Cleanup(r.close)
	r.service = s.suite.StartService(t.Context())
	r.restart(nil, nil)
	if fault != nil && fault.twoControllers {
		r.history.concurrentControllers = true
		r.startSecond()
	}
	for _, controller := range r.controllers() {
		select {
		case <-controller.output.started:
		case <-controller.done:
			t.Fatalf("the controller exited:\n%s", controller.output)
		case <-t.Context().Done():
		}
	}
	return r
}

// close kills the controller. It leaves the namespace: deleting the objects would cost
// the cluster more than the runs do.
func (r *run) close() {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	for _, controller := range []*process{r.controller, r.secondController} {
		if controller != nil {
			controller.kill()
		}
	}
	r.mu.Unlock()
	if !first {
		return
	}
	// A fault that is being injected needs the lock to return, and closing the proxy
	// waits for it.
	r.proxy.close()
	cluster.recorder.remove(r.namespace)
}

// step performs a step of the user, which is a point where the process can be killed.
func (r *run) step(what string, action func() error) *run {
	r.t.Helper()
	r.proxy.mu.Lock()
	var f *fault
	if r.proxy.armed {
		f = r.proxy.countPoint(stepPrefix + what)
	}
	r.proxy.mu.Unlock()
	var err error
	if f == nil {
		err = action()
	} else {
		r.restart(f.staleRoles, func() { err = action() })
	}
	if err != nil {
		r.fatal(what, err)
	}
	return r
}

// client returns a client for a resource that the controller caches.
func (r *run) client(resource string) dynamic.ResourceInterface {
	return cluster.dynamic.Resource(r.scenario.suite.gvrs[resource]).Namespace(r.namespace)
}

func (r *run) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// await waits until check returns nil. check may read the history.
func (r *run) await(what string, check func() error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), waitTimeout)
	defer cancel()
	if err := r.history.await(ctx, check); err != nil {
		r.fatal(what, err)
	}
}

// poll waits for what the history does not record.
func (r *run) poll(what string, check func(context.Context) error) {
	r.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(r.t.Context(), pollInterval, waitTimeout, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		r.t.Fatalf("%s: %v; last: %v", what, err, last)
	}
}

// fatal ends the test and logs what is known of the run.
func (r *run) fatal(what string, err error) {
	r.t.Helper()
	r.t.Errorf("%s: %v", what, err)
	r.describe()
	r.t.FailNow()
}

// processOutputs returns the output of each process.
func (r *run) processOutputs() []*output {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.outputs)
}

// execute runs the scenario and returns its final state. It waits until the state is as
// wanted or, if want is "", as the scenario says.
func (r *run) execute(target point, f *fault, want string) string {
	r.t.Helper()
	r.scenario.prepare(r)
	r.must(r.proxy.arm(r.t.Context(), target, f))
	r.scenario.operate(r)
	end := r.awaitState("the final state", want)
	if !r.scenario.endsNamespace {
		// The state can be final before the caches of the controller show it.
		r.withEachController(func() { r.awaitMarker("the controller has caught up") })
		r.awaitState("the final state, once the controller has caught up", want)
		r.proxy.watches.end()
		r.withEachController(func() {
			// A controller that was stopped has yet to see what the other one wrote.
			r.awaitMarker("the controller has seen the final state")
			r.checkNoMoreWrites(want)
		})
		end = r.awaitState("the final state stays", want)
	}
	r.checkInvariants()
	return end
}

// awaitState waits until the state is as wanted or, if want is "", as the scenario says,
// and returns it.
func (r *run) awaitState(what, want string) string {
	r.t.Helper()
	var end string
	r.await(what, func() error {
		now := r.scenario.suite.state(r.history)
		end = now.String()
		if want == "" {
			return errors.Join(r.scenario.check(now), r.scenario.suite.checkConverged(r.history))
		}
		if end != want {
			return errors.New("faultless run (-), this run (+):\n" + cmp.Diff(want, end))
		}
		return nil
	})
	if settled := r.scenario.suite.checkSettled; settled != nil && !r.scenario.endsNamespace {
		r.poll(what, func(ctx context.Context) error { return settled(ctx, r) })
	}
	return end
}

// quietRounds bounds how often checkNoMoreWrites tries.
const quietRounds = 20

// checkNoMoreWrites checks liveness L1: the controller has nothing left to write. It
// enqueues every object and waits until the controller has handled them. A round may
// still have writes: of a status if the Deployment controller was not finished, and of an
// object that was waiting for a retry. A controller that writes whenever an object is
// enqueued never passes.
func (r *run) checkNoMoreWrites(want string) {
	r.t.Helper()
	var late []request
	for range quietRounds {
		already, versions := len(r.proxy.recorded()), r.dependentVersions()
		r.touchAll()
		r.awaitMarker("the controller has handled all objects")
		late = slices.DeleteFunc(r.proxy.recorded()[already:], func(sent request) bool { return isMarker(sent.name) })
		if len(late) == 0 && r.dependentVersions() == versions {
			return
		}
		r.awaitState("the final state, after late writes", want)
	}
	for _, request := range late {
		r.t.Errorf("L1: %s was sent although there was nothing to do", &request)
	}
	r.t.Errorf("L1: the controller still writes after %d rounds", quietRounds)
}

func (r *run) dependentVersions() (count int) {
	r.history.locked(func() {
		for _, v := range r.scenario.suite.ownedVersions(r.history) {
			if !isMarker(v.object.GetName()) {
				count++
			}
		}
	})
	return count
}

// touchAll enqueues every object.
func (r *run) touchAll() {
	r.t.Helper()
	var names []string
	r.history.locked(func() { names = r.scenario.suite.ownerNames(r.history) })
	for _, name := range names {
		r.must(cluster.touch(r.t.Context(), r.client(r.scenario.suite.Resource), name))
	}
}

// awaitMarker creates a marker, which the single worker handles after all other objects,
// and waits for it. Then all caches, and the history, have everything from before.
func (r *run) awaitMarker(what string) {
	r.t.Helper()
	r.scenario.suite.awaitMarker(r, cluster.uniqueName(markerPrefix+"x"), what)
}

// checkInvariants fails the test for each violation, and logs what is known of the run.
func (r *run) checkInvariants() {
	r.t.Helper()
	r.history.locked(func() {
		for _, violation := range r.scenario.suite.violations(r.history, r.proxy.recorded()) {
			r.t.Error(violation)
		}
	})
	if r.service != nil {
		r.checkItems()
	}
	for _, output := range r.processOutputs() {
		if output.panicked() {
			r.t.Error("rule 18: the controller panicked")
		}
	}
	if r.t.Failed() {
		r.describe()
	}
}

// checkNamespaceGone returns nil once the namespace is gone.
func (r *run) checkNamespaceGone(ctx context.Context) error {
	_, err := cluster.kube.CoreV1().Namespaces().Get(ctx, r.namespace, metav1.GetOptions{})
	if err == nil {
		return errors.New("it exists")
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
