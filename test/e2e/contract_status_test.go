//go:build e2e

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

package e2e

import (
	"context"
	"fmt"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// What is told of the state, and that nothing is told twice: rules 13 and 15.

func status(t *testing.T) {
	s := newScene(t, "")
	began := time.Now()
	s.create("x", replicas(10))
	foo := s.ready("x")
	took := time.Since(began)
	if foo.Generation != 1 || foo.Status.ObservedGeneration != 1 {
		t.Errorf("generation %d, observed %d", foo.Generation, foo.Status.ObservedGeneration)
	}
	if foo.Status.AvailableReplicas != 10 || foo.Status.Replicas != 10 || foo.Status.Selector != "app=nginx,controller=x" {
		t.Errorf("status %+v", foo.Status)
	}
	// One for Ready, and one for each second of progress.
	if writes := s.accepted(s.began, "update foos/status x"); writes > 1+int(took.Seconds()) {
		t.Errorf("%d status writes in %s: %v", writes, took, s.writes(s.began))
	}

	// A condition of someone else's stays, and the time of ours moves only with
	// its status.
	foreign := metav1.Condition{Type: "example.com/Foreign", Status: metav1.ConditionTrue, Reason: "Kept", Message: "kept"}
	meta.SetStatusCondition(&foo.Status.Conditions, foreign)
	_, err := s.foos().UpdateStatus(t.Context(), foo, metav1.UpdateOptions{})
	s.must(err)
	since := s.readyCondition(foo).LastTransitionTime
	s.update("x", replicas(0))
	s.eventually("the status tells of the scaling", func(context.Context) error {
		if foo = s.ready("x"); foo.Status.Replicas != 0 || foo.Status.AvailableReplicas != 0 {
			return fmt.Errorf("status %+v", foo.Status)
		}
		return nil
	})
	if foo.Generation != 2 || foo.Status.ObservedGeneration != 2 {
		t.Errorf("generation %d, status %+v", foo.Generation, foo.Status)
	}
	if now := s.readyCondition(foo).LastTransitionTime; !now.Equal(&since) {
		t.Errorf("lastTransitionTime went from %s to %s, though Ready stayed True", since, now)
	}
	if !meta.IsStatusConditionTrue(foo.Status.Conditions, foreign.Type) {
		t.Errorf("conditions %+v", foo.Status.Conditions)
	}
	s.kubectl("rollout pause deployment x")
	s.update("x", replicas(1), image("nginx:new"))
	mustContain(t, s.notReady("x", v1alpha1.ReasonDeploymentPaused), "kubectl rollout resume")
	s.kubectl("rollout resume deployment x")
	s.ready("x")
}

func steadyState(t *testing.T) {
	s := newScene(t, "--resync-period=1s")
	for i := range 5 {
		s.create(fmt.Sprintf("steady-%d", i), replicas(int32(i)))
	}
	s.createDeployment("foreign")
	s.create("blocked", deploymentName("foreign"))
	s.create("second", deploymentName("steady-1"))
	sh(t, applyFoo(s.namespace, "specless", ""))
	for i := range 5 {
		s.ready(fmt.Sprintf("steady-%d", i))
	}
	s.notReady("blocked", v1alpha1.ReasonDeploymentNotOwned)
	s.notReady("second", v1alpha1.ReasonDeploymentNotOwned)
	s.notReady("specless", v1alpha1.ReasonInvalidSpec)
	// The events that go with the last statuses come after them.
	s.oneEvent(s.foo("blocked"), "ErrResourceExists")
	s.oneEvent(s.foo("second"), "ErrResourceExists")
	s.oneEvent(s.foo("specless"), v1alpha1.ReasonInvalidSpec)
	for i := range 5 {
		s.oneEvent(s.foo(fmt.Sprintf("steady-%d", i)), "Synced")
	}

	mark := s.mark()
	s.restsFor(3500 * time.Millisecond)
	s.controller.stop()
	s.startController("--resync-period=1s")
	s.restsFor(2500 * time.Millisecond)
	if writes := s.writes(mark); len(writes) > 0 {
		t.Errorf("the controller wrote, though nothing had changed: %v", writes)
	}
}

// readyCondition returns the Foo's Ready condition.
func (s *scene) readyCondition(foo *v1alpha1.Foo) metav1.Condition {
	s.Helper()
	ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady)
	if ready == nil {
		s.Fatalf("Foo %s has no Ready condition: %+v", foo.Name, foo.Status)
	}
	return *ready
}

// restsFor lets the controller resync for a while.
func (s *scene) restsFor(period time.Duration) {
	s.Helper()
	throughout(s.T, "the controller runs", period, func() error {
		if !s.controller.running() {
			return fmt.Errorf("it ended:\n%s", s.controller.tail())
		}
		return nil
	})
}
