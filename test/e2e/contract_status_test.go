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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Rules 13 and 15: the status, and no writes without changes.

func status(t *testing.T) {
	e := startEnv(t, "")
	began := time.Now()
	e.create("x", replicas(10))
	foo := e.awaitReady("x")
	took := time.Since(began)
	if foo.Generation != 1 || foo.Status.ObservedGeneration != 1 {
		t.Errorf("generation %d, observed %d", foo.Generation, foo.Status.ObservedGeneration)
	}
	if foo.Status.AvailableReplicas != 10 || foo.Status.Replicas != 10 || foo.Status.Selector != "app=nginx,controller=x" {
		t.Errorf("status %+v", foo.Status)
	}
	// The contract allows one update when Ready changes and one for each second of progress.
	if writes := e.accepted(e.startMark, "patch foos/status x"); len(writes) > 1+int(took.Seconds()) {
		t.Errorf("%d status updates in %s: %v", len(writes), took, e.writes(e.startMark))
	}

	// The controller keeps another writer's condition, and changes lastTransitionTime only
	// with the status of its own.
	foreign := metav1.Condition{Type: "example.com/Foreign", Status: metav1.ConditionTrue, Reason: "Kept", Message: "kept"}
	meta.SetStatusCondition(&foo.Status.Conditions, foreign)
	_, err := e.foos().UpdateStatus(t.Context(), foo, metav1.UpdateOptions{})
	e.must(err)
	since := e.readyCondition(foo).LastTransitionTime
	e.update("x", replicas(0))
	e.eventually("the status has the new replicas", func(context.Context) error {
		if foo = e.awaitReady("x"); foo.Status.Replicas != 0 || foo.Status.AvailableReplicas != 0 {
			return fmt.Errorf("status %+v", foo.Status)
		}
		return nil
	})
	if foo.Generation != 2 || foo.Status.ObservedGeneration != 2 {
		t.Errorf("generation %d, status %+v", foo.Generation, foo.Status)
	}
	if now := e.readyCondition(foo).LastTransitionTime; !now.Equal(&since) {
		t.Errorf("lastTransitionTime went from %s to %s, though Ready stayed True", since, now)
	}
	if !meta.IsStatusConditionTrue(foo.Status.Conditions, foreign.Type) {
		t.Errorf("conditions %+v", foo.Status.Conditions)
	}
	e.kubectl("rollout pause deployment x")
	e.update("x", replicas(1), withImage("nginx:new"))
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentPaused), "kubectl rollout resume")
	e.kubectl("rollout resume deployment x")
	e.awaitReady("x")
}

func steadyState(t *testing.T) {
	e := startEnv(t, "--resync-period=1s")
	for i := range 5 {
		e.create(fmt.Sprintf("steady-%d", i), replicas(int32(i)))
	}
	e.createDeployment("foreign")
	e.create("blocked", deploymentName("foreign"))
	e.create("second", deploymentName("steady-1"))
	sh(t, applyFoo(e.namespace, "specless", ""))
	for i := range 5 {
		e.awaitReady(fmt.Sprintf("steady-%d", i))
	}
	e.awaitNotReady("blocked", v1alpha1.ReasonDeploymentNotOwned)
	e.awaitNotReady("second", v1alpha1.ReasonDeploymentNotOwned)
	e.awaitNotReady("specless", v1alpha1.ReasonInvalidSpec)
	// The controller sends the events after the status updates.
	e.awaitOneEvent(e.foo("blocked"), "ErrResourceExists")
	e.awaitOneEvent(e.foo("second"), "ErrResourceExists")
	e.awaitOneEvent(e.foo("specless"), v1alpha1.ReasonInvalidSpec)
	for i := range 5 {
		e.awaitOneEvent(e.foo(fmt.Sprintf("steady-%d", i)), "Synced")
	}

	mark := e.mark()
	e.runFor(3500 * time.Millisecond)
	e.controller.stop()
	e.startController("--resync-period=1s")
	e.runFor(2500 * time.Millisecond)
	if writes := e.writes(mark); len(writes) > 0 {
		t.Errorf("the controller wrote, though nothing had changed: %v", writes)
	}
}

// readyCondition returns the Foo's Ready condition.
func (e *env) readyCondition(foo *v1alpha1.Foo) metav1.Condition {
	e.Helper()
	ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady)
	if ready == nil {
		e.Fatalf("Foo %s has no Ready condition: %+v", foo.Name, foo.Status)
	}
	return *ready
}

// runFor lets the controller run for the period, and fails the test if the controller exits.
func (e *env) runFor(period time.Duration) {
	e.Helper()
	consistently(e.T, "the controller runs", period, func() error {
		if !e.controller.running() {
			return fmt.Errorf("it exited:\n%s", e.controller.tail())
		}
		return nil
	})
}

// statusPatch sends the request with which the controller writes a status: the resourceVersion alone
// makes the API server refuse it for a Foo that was created anew, and it ignores a uid.
func statusPatch(t *testing.T) {
	e := startEnv(t, "")
	e.create("x")
	foo := e.awaitReady("x")
	patch := func(metadata string) error {
		_, err := e.foos().Patch(t.Context(), "x", types.MergePatchType, []byte(`{"metadata":{`+metadata+`},"status":{"selector":"former"}}`), metav1.PatchOptions{}, "status")
		return err
	}
	e.kubectl("delete foo x")
	e.awaitGone("x")
	e.create("x")
	e.awaitReady("x")
	e.settle()
	if err := patch(fmt.Sprintf(`"resourceVersion":%q`, foo.ResourceVersion)); !apierrors.IsConflict(err) {
		t.Errorf("a status of the former Foo: error %v, want 409", err)
	}
	if got := e.foo("x").Status.Selector; got == "former" {
		t.Errorf("the selector is that of the former Foo")
	}
	if err := patch(fmt.Sprintf(`"uid":%q`, foo.UID)); err != nil {
		t.Errorf("a patch with the uid of the former Foo alone: error %v; if the API server compares it now, the decision about status patches is out of date", err)
	}
}
