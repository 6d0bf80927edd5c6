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
	"example.com/sample-controller/test/random"
)

// The random operations of the root package's TestRandom, on a real API server.

const (
	// randomRuns is how many sequences are played in all; FAULTS=part plays a part.
	randomRuns = 60
	// minRandomOps and maxRandomOps bound what a sequence holds.
	minRandomOps, maxRandomOps = 8, 25
)

// failures are the faults by the names that random operations have for them.
var failures = map[random.Failure]string{
	random.Conflict: "409", random.TooMany: "429", random.Internal: "500", random.Unreachable: "connection error",
	random.AnswerLost: "answer lost", random.KilledBefore: "killed",
}

// playRandom plays sequences that are the same in each run of the suite.
func playRandom(t *testing.T, result *row, every int) {
	began := time.Now()
	result.sentence, result.played = "random operations", true
	sequences := random.Generate(random.Kind{Real: true, MinOps: minRandomOps, MaxOps: maxRandomOps})
	for seed := 0; seed < randomRuns; seed += every {
		result.runs++
		t.Run(fmt.Sprintf("seed %d", seed), func(t *testing.T) {
			t.Parallel()
			t.Cleanup(func() { result.ended(time.Since(began), t.Failed(), "") })
			sequence := sequences.Example(seed)
			sequence.Workers = 0
			t.Cleanup(func() {
				if t.Failed() {
					t.Logf("The sequence, with sleeps between commands as short as a user's never are:\n%s", sequence.Script())
				}
			})
			playSequence(newRun(t, &scenario{kind: fooKind(), sentence: "random operations"}, nil), sequence)
		})
	}
}

// playSequence plays the sequence, lets everything come to rest, and judges.
func playSequence(r *run, sequence random.Sequence) {
	r.t.Helper()
	r.history.mu.Lock()
	r.history.raced = true
	r.history.mu.Unlock()
	for _, op := range sequence.Ops {
		r.do(op)
		// This is how fast the user is, not a wait.
		timer := time.NewTimer(op.Then)
		select {
		case <-timer.C:
		case <-r.t.Context().Done():
		}
		timer.Stop()
	}
	r.proxy.mu.Lock()
	r.proxy.queued = nil
	r.proxy.mu.Unlock()
	for _, name := range r.deploymentNames() {
		r.do(random.Op{Verb: random.EditDeployment, Deployment: name, Edit: random.EditUnhold})
	}
	r.await("all is as the contract says", func() error {
		if faults := r.history.world().Faults(); len(faults) > 0 {
			return errors.New(strings.Join(faults, "\n"))
		}
		return nil
	})
	r.mark("the controller has dealt with all that there was")
	wanted := ""
	r.await("the state", func() error {
		wanted = r.history.fooState().String()
		return nil
	})
	r.staysQuiet(wanted)
	r.judge()
	r.close()
}

// world returns what there is but for markers. The caller holds the lock.
func (h *history) world() random.World {
	w := random.World{Foos: present(h.foos), Deployments: present(h.deployments)}
	for name := range w.Foos {
		if isMarker(name) {
			delete(w.Foos, name)
			delete(w.Deployments, name)
		}
	}
	return w
}

func (r *run) deploymentNames() []string {
	r.t.Helper()
	list, err := shared.kube.AppsV1().Deployments(r.namespace).List(r.t.Context(), metav1.ListOptions{})
	r.must(err)
	var names []string
	for i := range list.Items {
		if !isMarker(list.Items[i].Name) {
			names = append(names, list.Items[i].Name)
		}
	}
	return names
}

// do does the operation. What the API server says no to is nothing that a user can
// do in that state.
func (r *run) do(op random.Op) {
	r.t.Helper()
	var err error
	switch op.Verb {
	case random.Strike:
		r.queue(op)
	case random.Kill:
		r.restart(nil, nil)
	case random.CreateForeign:
		err = r.tryForeign(op.Deployment)
	case random.EditDeployment:
		err = r.tryEdit(op)
	case random.DeleteDeployment:
		err = shared.kube.AppsV1().Deployments(r.namespace).Delete(r.t.Context(), op.Deployment, metav1.DeleteOptions{PropagationPolicy: &op.Propagation})
	default:
		err = r.doToFoo(op)
	}
	if err != nil && !apierrors.IsNotFound(err) && !apierrors.IsAlreadyExists(err) && !apierrors.IsConflict(err) && !apierrors.IsInvalid(err) {
		r.fatalf("%s: %v", op.Script(), err)
	}
}

// queue lets the next requests fail. There is no reason for which the API server
// would forbid anything here, so that refusal is left out.
func (r *run) queue(op random.Op) {
	index := slices.IndexFunc(faults, func(f fault) bool { return f.name == failures[op.Failure] })
	if index < 0 {
		return
	}
	if op.Failure == random.KilledBefore {
		op.Count = 1
	}
	r.proxy.mu.Lock()
	defer r.proxy.mu.Unlock()
	r.proxy.queued = append(r.proxy.queued, slices.Repeat([]*fault{&faults[index]}, op.Count)...)
}

func (r *run) doToFoo(op random.Op) error {
	ctx, client := r.t.Context(), shared.foos.SamplecontrollerV1alpha1().Foos(r.namespace)
	create := func(spec v1alpha1.FooSpec) error {
		_, err := client.Create(ctx, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: op.Foo}, Spec: spec}, metav1.CreateOptions{})
		return err
	}
	switch op.Verb {
	case random.CreateFoo:
		if op.Deployment == "" {
			return create(v1alpha1.FooSpec{})
		}
		return create(v1alpha1.FooSpec{DeploymentName: op.Deployment, Replicas: ptr.To(op.Replicas), Image: op.Image})
	case random.DeleteFoo:
		return client.Delete(ctx, op.Foo, metav1.DeleteOptions{PropagationPolicy: &op.Propagation})
	}
	foo, err := client.Get(ctx, op.Foo, metav1.GetOptions{})
	if err != nil {
		return err
	}
	switch op.Verb {
	case random.Swap:
		other, err := client.Get(ctx, op.Other, metav1.GetOptions{})
		if err != nil || foo.Spec.DeploymentName == "" || other.Spec.DeploymentName == "" {
			return err
		}
		first := random.Op{Verb: random.Rename, Foo: op.Foo, Deployment: other.Spec.DeploymentName}
		second := random.Op{Verb: random.Rename, Foo: op.Other, Deployment: foo.Spec.DeploymentName}
		return errors.Join(r.doToFoo(first), r.doToFoo(second))
	case random.RecreateFoo:
		if err := client.Delete(ctx, op.Foo, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)}); err != nil {
			return err
		}
		return create(foo.Spec)
	case random.AddCondition:
		meta.SetStatusCondition(&foo.Status.Conditions, metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Kept", LastTransitionTime: metav1.Now()})
		_, err = client.UpdateStatus(ctx, foo, metav1.UpdateOptions{})
		return err
	}
	_, err = client.Patch(ctx, op.Foo, types.MergePatchType, []byte(op.FooPatch()), metav1.PatchOptions{})
	return err
}

// tryEdit edits a Deployment by hand.
func (r *run) tryEdit(op random.Op) error {
	client := shared.kube.AppsV1().Deployments(r.namespace)
	if patch := op.DeploymentPatch(); patch != "" {
		_, err := client.Patch(r.t.Context(), op.Deployment, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	deployment, err := client.Get(r.t.Context(), op.Deployment, metav1.GetOptions{})
	if err != nil {
		return err
	}
	for i := range deployment.OwnerReferences {
		if op.Edit == random.EditNoController {
			deployment.OwnerReferences[i].Controller = ptr.To(false)
		} else {
			deployment.OwnerReferences[i].BlockOwnerDeletion = ptr.To(false)
		}
	}
	_, err = client.Update(r.t.Context(), deployment, metav1.UpdateOptions{})
	return err
}

func (r *run) tryForeign(name string) error {
	_, err := shared.kube.AppsV1().Deployments(r.namespace).Create(r.t.Context(), foreignDeployment(name), metav1.CreateOptions{})
	return err
}
