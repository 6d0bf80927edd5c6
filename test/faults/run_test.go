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
	"fmt"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
)

// run is one run of a scenario: a namespace, a controller that works in it and
// nowhere else, and the proxy between that and the API server.
type run struct {
	t         *testing.T
	scenario  *scenario
	namespace string
	history   *history
	proxy     *proxy
	// awaited is when the run of a CronTab was due that was last waited for.
	awaited time.Time

	mu         sync.Mutex
	controller *process
	// second is there by mistake, where that is the fault.
	second *process
	closed bool
	// outputs are those of all processes there were.
	outputs []*output
}

// newRun starts a controller in a namespace of its own, whose watches will have
// that fault, or nil for none.
func newRun(t *testing.T, s *scenario, fault *watchFault) *run {
	t.Helper()
	r := &run{t: t, scenario: s, namespace: shared.unique("faults")}
	r.history = shared.recorder.of(r.namespace)
	_, err := shared.kube.CoreV1().Namespaces().Create(t.Context(), &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: r.namespace}}, metav1.CreateOptions{})
	r.must(err)
	// Without its service account a namespace admits no Pod.
	r.poll("the namespace is ready for Pods", func(ctx context.Context) error {
		_, err := shared.kube.CoreV1().ServiceAccounts(r.namespace).Get(ctx, "default", metav1.GetOptions{})
		return err
	})
	r.proxy = newProxy(r, fault)
	t.Cleanup(r.close)
	r.restart(nil, nil)
	if fault != nil && fault.two {
		r.history.together = true
		r.startSecond()
	}
	for _, controller := range r.controllers() {
		select {
		case <-controller.output.started:
		case <-controller.done:
			t.Fatalf("the controller ended:\n%s", controller.output)
		case <-t.Context().Done():
		}
	}
	return r
}

// close ends the controller and forgets the namespace. What is in it stays: to
// remove it would keep the cluster busier than the runs do.
func (r *run) close() {
	r.mu.Lock()
	first := !r.closed
	r.closed = true
	for _, controller := range []*process{r.controller, r.second} {
		if controller != nil {
			controller.kill()
		}
	}
	r.mu.Unlock()
	if !first {
		return
	}
	// Not under the lock: a fault that strikes just now waits for it.
	r.proxy.close()
	shared.recorder.drop(r.namespace)
}

// restart kills the controller, lets something happen while there is none, and
// starts another one.
func (r *run) restart(by roles, meanwhile func()) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.closed {
		return
	}
	if r.controller != nil {
		r.controller.kill()
	}
	if meanwhile != nil {
		meanwhile()
	}
	r.proxy.fallBehind(by)
	// A cache that is filled by a watch has no list that could be old.
	fault := r.proxy.watches.fault
	r.controller = r.start(r.proxy.server.URL, len(by) > 0 || fault != nil && fault.lists)
}

// start starts a controller; lists says that it fills its caches by lists. The
// caller holds the lock.
func (r *run) start(server string, lists bool) *process {
	var environment []string
	if lists {
		environment = append(environment, "KUBE_FEATURE_WatchListClient=false")
	}
	// With one worker, requests come one after the other, and keys are worked on
	// in the order of their events.
	controller, err := startProcess(shared.program(), environment, "--master="+server, "--controllers="+r.scenario.kind.controller, "--namespace="+r.namespace, "--workers=1", "-v=2")
	if err != nil {
		r.t.Error(err)
		return nil
	}
	r.outputs = append(r.outputs, controller.output)
	return controller
}

// step takes a step of the user's, which is a point where the process can be
// dead.
func (r *run) step(what string, action func() error) *run {
	r.t.Helper()
	r.proxy.mu.Lock()
	var strike *fault
	if r.proxy.armed {
		strike = r.proxy.reach(step + what)
	}
	r.proxy.mu.Unlock()
	var err error
	if strike == nil {
		err = action()
	} else {
		r.restart(strike.lag, func() { err = action() })
	}
	if err != nil {
		r.fatalf("%s: %v", what, err)
	}
	return r
}

func (r *run) must(err error) {
	r.t.Helper()
	if err != nil {
		r.t.Fatal(err)
	}
}

// await waits until check, which may look at the history, returns nil.
func (r *run) await(what string, check func() error) {
	r.t.Helper()
	ctx, cancel := context.WithTimeout(r.t.Context(), patience)
	defer cancel()
	if err := r.history.await(ctx, check); err != nil {
		r.fatalf("%s: %v", what, err)
	}
}

// poll is for what the history does not tell.
func (r *run) poll(what string, check func(context.Context) error) {
	r.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(r.t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
		last = check(ctx)
		return last == nil, nil
	})
	if err != nil {
		r.t.Fatalf("%s: %v; the last look: %v", what, err, last)
	}
}

// fatalf ends the test with all that is known of the run.
func (r *run) fatalf(format string, args ...any) {
	r.t.Helper()
	r.t.Errorf(format, args...)
	r.describe()
	r.t.FailNow()
}

// printed returns what each process has printed.
func (r *run) printed() []*output {
	r.mu.Lock()
	defer r.mu.Unlock()
	return slices.Clone(r.outputs)
}

// recorded returns a copy of all requests so far.
func (p *proxy) recorded() []request {
	p.mu.Lock()
	defer p.mu.Unlock()
	var requests []request
	for _, request := range p.requests {
		requests = append(requests, *request)
	}
	return requests
}

// play plays the scenario and returns the state in which it ended, once that is
// wanted or, with "" for wanted, what the scenario says.
func (r *run) play(target point, strike *fault, wanted string) string {
	r.t.Helper()
	r.scenario.prepare(r)
	r.must(r.proxy.arm(r.t.Context(), target, strike))
	r.scenario.operate(r)
	end := r.awaitEnd("the end of the run", wanted)
	if !r.scenario.endsNamespace {
		// The end can come before the controller knows: its caches lag.
		r.eachAlone(func() { r.mark("the controller has caught up") })
		r.awaitEnd("the end, once the controller has caught up", wanted)
		r.proxy.watches.end()
		r.eachAlone(func() {
			// One that was stopped has yet to learn what the other one did.
			r.mark("the controller knows the end")
			r.staysQuiet(wanted)
		})
		end = r.awaitEnd("the state stays", wanted)
	}
	r.judge()
	return end
}

// awaitEnd waits until the state is as wanted or, with "" for wanted, as the
// scenario says, and returns it.
func (r *run) awaitEnd(what, wanted string) string {
	r.t.Helper()
	var end string
	r.await(what, func() error {
		now := r.scenario.kind.state(r.history)
		end = now.String()
		if wanted == "" {
			if diff := cmp.Diff(r.scenario.want, now.summary()); diff != "" {
				return errors.New("less (-) and more (+) than the scenario says:\n" + diff)
			}
		} else if end != wanted {
			return errors.New("less (-) and more (+) than the fault-free run:\n" + cmp.Diff(wanted, end))
		}
		return nil
	})
	if settled := r.scenario.kind.settled; settled != nil && !r.scenario.endsNamespace {
		r.poll(what, func(ctx context.Context) error { return settled(ctx, r) })
	}
	return end
}

// quietRounds bounds how often a check for quiet is made anew.
const quietRounds = 20

// staysQuiet checks liveness L1: there is nothing left to write. It wakes the
// controller for every object and waits until that has been dealt with. Writes may
// come once more: of a status if the cluster was not at rest yet, and of what an
// object still had to do that was in a pause between two tries, while it looked like
// the end by chance. One that writes each time it is woken never passes.
func (r *run) staysQuiet(wanted string) {
	r.t.Helper()
	var late []request
	for range quietRounds {
		already, versions := len(r.proxy.recorded()), r.childVersions()
		r.touchAll()
		r.mark("the controller has dealt with all objects")
		late = slices.DeleteFunc(r.proxy.recorded()[already:], func(request request) bool { return isMarker(request.name) })
		if len(late) == 0 && r.childVersions() == versions {
			return
		}
		r.awaitEnd("the end, once the cluster is at rest", wanted)
	}
	for _, request := range late {
		r.t.Errorf("L1: %s was sent although nothing was left to do", &request)
	}
	r.t.Errorf("L1: no quiet after %d looks", quietRounds)
}

// childVersions returns how many versions there were of what the controller makes,
// those of markers aside.
func (r *run) childVersions() (count int) {
	r.t.Helper()
	r.await("a look at the children", func() error {
		count = r.scenario.kind.children(r.history)
		return nil
	})
	return count
}

// touchAll wakes the controller for every object.
func (r *run) touchAll() {
	r.t.Helper()
	var names []string
	r.await("a look at the parents", func() error {
		names = r.scenario.kind.parents(r.history)
		return nil
	})
	for _, name := range names {
		patch := fmt.Sprintf(`{"metadata":{"labels":{%q:%q}}}`, touchedLabel, shared.unique("touch"))
		r.must(shared.patch(r.t.Context(), r.scenario.kind.resource(), r.namespace, name, patch))
	}
}

// mark makes another object, which the one worker gets to after all others, and waits
// until that has been dealt with. It takes all caches, and the history's streams have
// then told all that was before.
func (r *run) mark(what string) {
	r.t.Helper()
	r.scenario.kind.mark(r, shared.unique(markerPrefix+"x"), what)
}

// judge checks the invariants over all that has happened.
func (r *run) judge() {
	r.t.Helper()
	r.history.mu.Lock()
	violations := r.scenario.kind.violations(r.history, r.proxy.recorded())
	r.history.mu.Unlock()
	for _, violation := range violations {
		r.t.Error(violation)
	}
	for _, output := range r.printed() {
		if output.panicked() {
			r.t.Error("rule 18: the controller panicked")
		}
	}
	if r.t.Failed() {
		r.describe()
	}
}

// namespaceGone is nil once the namespace is gone.
func (r *run) namespaceGone(ctx context.Context) error {
	_, err := shared.kube.CoreV1().Namespaces().Get(ctx, r.namespace, metav1.GetOptions{})
	if err == nil {
		return errors.New("it is there")
	}
	if !apierrors.IsNotFound(err) {
		return err
	}
	return nil
}
