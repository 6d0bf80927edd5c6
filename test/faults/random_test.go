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
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/sim"
)

// The random operations of the root package's TestRandom, on a real API server.

const (
	// randomRuns is the number of sequences; FAULTS=part runs fewer.
	randomRuns = 60
	// minRandomOps and maxRandomOps bound the number of operations of a sequence.
	minRandomOps, maxRandomOps = 8, 25
	// operationsPerExtra is how many operations of a sequence there are for one that only
	// this suite has.
	operationsPerExtra = 6
	// largeAnnotation is nearly as large as the API server allows.
	largeAnnotation = 250_000
)

// faultNames are the names in requestFaults of the failures of random operations.
var faultNames = map[sim.Failure]string{
	sim.Conflict: "409", sim.TooMany: "429", sim.Internal: "500", sim.Unreachable: "connection error",
	sim.AnswerLost: "answer lost", sim.KilledAfterWrite: "killed",
}

// runRandom runs sequences that are the same each time.
func runRandom(t *testing.T, k *kindSuite, row *scenarioRow, every int) {
	began := time.Now()
	row.name, row.ran = "random operations", true
	sequences := sim.Generate(sim.Profile{RealCluster: true, MinOps: minRandomOps, MaxOps: maxRandomOps})
	for seed := 0; seed < randomRuns; seed += every {
		row.runs++
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { row.record(time.Since(began), t.Failed(), "") })
			sequence := sequences.Example(seed)
			sequence.Workers = 0
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("The sequence, with pauses shorter than a user's:\n%s", sequence.Script())
				}
			})
			runSequence(newRun(t, &scenario{suite: k, name: "random operations"}, nil), sequence, seed)
		})
	}
}

// runSequence applies the sequence, waits until the contract is met, and checks the
// invariants.
func runSequence(r *run, sequence sim.Sequence, seed int) {
	r.t.Helper()
	r.history.locked(func() { r.history.concurrentUsers = true })
	random := rand.New(rand.NewPCG(1, uint64(seed)))
	for _, op := range sequence.Ops {
		r.apply(op)
		pause(r.t.Context(), op.Then)
		if random.IntN(operationsPerExtra) == 0 {
			r.applyExtra(random, op.Then)
		}
	}
	r.proxy.mu.Lock()
	r.proxy.queued = nil
	r.proxy.mu.Unlock()
	for _, name := range r.deploymentNames() {
		r.apply(sim.Op{Verb: sim.EditDeployment, Deployment: name, Edit: sim.EditRemoveFinalizer})
	}
	r.await("the contract is met", func() error {
		if faults := r.history.snapshot().Violations(); len(faults) > 0 {
			return errors.New(strings.Join(faults, "\n"))
		}
		return nil
	})
	r.awaitMarker("the controller has handled all objects")
	want := ""
	r.history.locked(func() { want = r.scenario.suite.state(r.history).String() })
	r.checkNoMoreWrites(want)
	r.checkInvariants()
	r.close()
}

// applyExtra applies an operation on a Deployment that a user has and the sequence does not
// know. It ignores errors of operations that are not possible in the current state.
func (r *run) applyExtra(random *rand.Rand, then time.Duration) {
	r.t.Helper()
	names := r.deploymentNames()
	if len(names) == 0 {
		return
	}
	name := names[random.IntN(len(names))]
	what, err := "", error(nil)
	switch random.IntN(3) {
	case 0:
		what = "copy Deployment " + name + " with its owner references"
		err = r.tryCopy(name, name+"-copy")
	case 1:
		other := []string{"x", "y", "z"}[random.IntN(3)]
		what = "ask Foo " + other + " to adopt Deployment " + name
		_, err = r.client(deployments).Patch(r.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{%q:%q},"ownerReferences":null}}`, adoptByAnnotation, other), metav1.PatchOptions{})
	case 2:
		what = "add a large annotation to Deployment " + name
		_, err = r.client(deployments).Patch(r.t.Context(), name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"annotations":{"example.com/large":%q}}}`, strings.Repeat("x", largeAnnotation)), metav1.PatchOptions{})
	}
	r.t.Logf("%s: %v", what, err)
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		r.fatal(what, err)
	}
	pause(r.t.Context(), then)
}

// tryCopy creates a Deployment like the given one, as `kubectl get` and `kubectl create` do.
func (r *run) tryCopy(name, to string) error {
	api := cluster.kube.AppsV1().Deployments(r.namespace)
	deployment, err := api.Get(r.t.Context(), name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	deployment.ObjectMeta = metav1.ObjectMeta{Name: to, Labels: deployment.Labels, Annotations: deployment.Annotations, OwnerReferences: deployment.OwnerReferences}
	_, err = api.Create(r.t.Context(), deployment, metav1.CreateOptions{})
	return err
}

// snapshot returns the existing Foos and Deployments without markers. The caller holds the
// lock.
func (h *history) snapshot() sim.State {
	s := sim.State{Foos: existing(h.foos), Deployments: existing(h.deployments)}
	for name := range s.Foos {
		if isMarker(name) {
			delete(s.Foos, name)
			delete(s.Deployments, name)
		}
	}
	return s
}

func (r *run) deploymentNames() []string {
	r.t.Helper()
	list, err := cluster.kube.AppsV1().Deployments(r.namespace).List(r.t.Context(), metav1.ListOptions{})
	r.must(err)
	var names []string
	for i := range list.Items {
		if !isMarker(list.Items[i].Name) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// apply applies the operation. It ignores errors of operations that are not possible in
// the current state.
func (r *run) apply(op sim.Op) {
	r.t.Helper()
	var err error
	switch op.Verb {
	case sim.FailRequests:
		r.queueFaults(op)
	case sim.Kill:
		r.restart(nil, nil)
	case sim.CreateForeign:
		err = r.tryCreateForeign(op.Deployment)
	case sim.EditDeployment:
		err = r.tryEdit(op)
	case sim.DeleteDeployment:
		err = cluster.kube.AppsV1().Deployments(r.namespace).Delete(r.t.Context(), op.Deployment, metav1.DeleteOptions{PropagationPolicy: &op.Propagation})
	default:
		err = r.applyToFoo(op)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		r.fatal(op.Script(), err)
	}
}

// queueFaults makes the next requests fail. It ignores Forbidden, which has no entry in
// faultNames: the API server has no reason for it here.
func (r *run) queueFaults(op sim.Op) {
	index := slices.IndexFunc(requestFaults, func(f fault) bool { return f.name == faultNames[op.Failure] })
	if index < 0 {
		return
	}
	if op.Failure == sim.KilledAfterWrite {
		op.Count = 1
	}
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	r.proxy.queued = append(r.proxy.queued, slices.Repeat([]*fault{&requestFaults[index]}, op.Count)...)
}

func (r *run) applyToFoo(op sim.Op) error {
	ctx, api := r.t.Context(), cluster.foos.SamplecontrollerV1alpha1().Foos(r.namespace)
	create := func(spec v1alpha1.FooSpec) error {
		_, err := api.Create(ctx, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: op.Foo}, Spec: spec}, metav1.CreateOptions{})
		return err
	}
	switch op.Verb {
	case sim.CreateFoo:
		if op.Deployment == "" {
			return create(v1alpha1.FooSpec{})
		}
		return create(v1alpha1.FooSpec{DeploymentName: op.Deployment, Replicas: ptr.To(op.Replicas), Image: op.NewImage})
	case sim.DeleteFoo:
		return api.Delete(ctx, op.Foo, metav1.DeleteOptions{PropagationPolicy: &op.Propagation})
	}
	foo, err := api.Get(ctx, op.Foo, metav1.GetOptions{})
	if err != nil {
		return err
	}
	switch op.Verb {
	case sim.Swap:
		other, err := api.Get(ctx, op.Other, metav1.GetOptions{})
		if err != nil || foo.Spec.DeploymentName == "" || other.Spec.DeploymentName == "" {
			return err
		}
		first := sim.Op{Verb: sim.Rename, Foo: op.Foo, Deployment: other.Spec.DeploymentName}
		second := sim.Op{Verb: sim.Rename, Foo: op.Other, Deployment: foo.Spec.DeploymentName}
		return errors.Join(r.applyToFoo(first), r.applyToFoo(second))
	case sim.RecreateFoo:
		if err := api.Delete(ctx, op.Foo, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
			return err
		}
		return create(foo.Spec)
	case sim.AddCondition:
		meta.SetStatusCondition(&foo.Status.Conditions, metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Kept", LastTransitionTime: metav1.Now()})
		_, err = api.UpdateStatus(ctx, foo, metav1.UpdateOptions{})
		return err
	}
	_, err = api.Patch(ctx, op.Foo, types.MergePatchType, []byte(op.FooPatch()), metav1.PatchOptions{})
	return err
}

func (r *run) tryEdit(op sim.Op) error {
	api := cluster.kube.AppsV1().Deployments(r.namespace)
	if patch := op.DeploymentPatch(); patch != "" {
		_, err := api.Patch(r.t.Context(), op.Deployment, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	deployment, err := api.Get(r.t.Context(), op.Deployment, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for i := range deployment.OwnerReferences {
		if op.Edit == sim.EditNoController {
			deployment.OwnerReferences[i].Controller = ptr.To(false)
		} else {
			deployment.OwnerReferences[i].BlockOwnerDeletion = ptr.To(false)
		}
	}
	_, err = api.Update(r.t.Context(), deployment, metav1.UpdateOptions{})
	return err
}

func (r *run) tryCreateForeign(name string) error {
	_, err := cluster.kube.AppsV1().Deployments(r.namespace).Create(r.t.Context(), foreignDeployment(name), metav1.CreateOptions{})
	return err
}
