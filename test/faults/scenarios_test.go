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
	"maps"
	"slices"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"
)

// scenario is a sequence of operations of users and the final state that they must lead
// to.
type scenario struct {
	suite *kindSuite
	name  string
	// prepare creates the initial state. No faults are injected into it.
	prepare func(*run)
	// operate performs the operation under faults.
	operate func(*run)
	// want has the summary of each object in the final state, or its part before a colon.
	want []string
	// endsNamespace is set if the operation deletes the namespace.
	endsNamespace bool
}

// check returns nil if the final state is as wanted.
func (s *scenario) check(now state) error {
	got := now.summary()
	if !slices.EqualFunc(s.want, got, func(want, line string) bool { return line == want || strings.HasPrefix(line, want+": ") }) {
		return fmt.Errorf("want %q, got %q", s.want, got)
	}
	return nil
}

// newScenarios returns the scenarios that each kind has. They are about one object, x.
func (k *kindSuite) newScenarios() []*scenario {
	name := k.ownedName(k.newObject("x", k.Spec))
	owned := k.Owns.Kind + " " + name
	settled := []string{k.Kind + " x: ready", owned + " of x"}
	notOwned := []string{k.Kind + " x: " + k.notOwned(), owned + " without an owner"}
	nothing := func(*run) {}
	created := func(r *run) { r.create().awaitReady("x") }
	all := []*scenario{
		{name: "created", prepare: nothing, operate: func(r *run) { r.create() }, want: settled},
		{name: "its " + k.Owns.Kind + " is deleted", prepare: created, operate: func(r *run) { r.deleteOwned(name) }, want: settled},
		{name: "its owner reference is removed", prepare: created, operate: func(r *run) { r.editOwned(name, `{"metadata":{"ownerReferences":null}}`) }, want: notOwned},
		{
			name:    "a foreign " + k.Owns.Kind + " has the name and is then deleted",
			prepare: func(r *run) { created(r); r.delete(metav1.DeletePropagationOrphan) },
			operate: func(r *run) { r.create().awaitNotOwned("x").deleteOwned(name) },
			want:    settled,
		},
		{name: "deleted in the foreground", prepare: created, operate: func(r *run) { r.delete(metav1.DeletePropagationForeground) }, want: []string{}},
		{
			name: "deleted and recreated under the same name",
			// The finalizer keeps the old dependent until the new owner has reported it.
			prepare: func(r *run) { created(r); r.editOwned(name, `{"metadata":{"finalizers":["example.com/hold"]}}`) },
			operate: func(r *run) {
				r.delete(metav1.DeletePropagationBackground).create().awaitNotOwned("x").editOwned(name, `{"metadata":{"finalizers":null}}`)
			},
			want: settled,
		},
		{
			name: "deleted without its " + k.Owns.Kind + ", and recreated", prepare: created,
			operate: func(r *run) { r.delete(metav1.DeletePropagationOrphan).create() },
			want:    notOwned,
		},
		{
			name: "the namespace is deleted", prepare: nothing,
			operate: func(r *run) { r.deleteNamespaceDuringCreate(func() { r.createAs("x", k.MarkerSpec) }) },
			want:    []string{}, endsNamespace: true,
		},
	}
	for _, what := range slices.Sorted(maps.Keys(k.Changes)) {
		all = append(all, &scenario{name: what, prepare: created, operate: func(r *run) { r.patch("x", string(k.Changes[what])) }, want: settled})
	}
	for _, what := range slices.Sorted(maps.Keys(k.Owns.Drifts)) {
		all = append(all, &scenario{
			name: "its " + k.Owns.Kind + " is " + what, prepare: created,
			operate: func(r *run) { r.editOwned(name, string(k.Owns.Drifts[what])) }, want: settled,
		})
	}
	for _, s := range all {
		s.name = k.Kind + ": " + s.name
	}
	return all
}

// Operations of users. Each is a step, during which the process can be dead, and returns
// the run to chain the next one.

// create creates the object x as users do.
func (r *run) create() *run {
	r.t.Helper()
	return r.createAs("x", r.scenario.suite.Spec)
}

// createAs creates an object with that spec.
func (r *run) createAs(name string, spec []byte) *run {
	r.t.Helper()
	k := r.scenario.suite
	return r.step("create "+k.Kind+" "+name, func() error {
		_, err := r.client(k.Resource).Create(r.t.Context(), k.newObject(name, spec), metav1.CreateOptions{})
		return err
	})
}

func (r *run) patch(name, patch string) *run {
	r.t.Helper()
	return r.step("patch "+r.scenario.suite.Kind+" "+name, func() error {
		_, err := r.client(r.scenario.suite.Resource).Patch(r.t.Context(), name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
}

// delete deletes the object x and waits until it is gone. With the policies Foreground and
// Orphan the garbage collector has then handled its dependents.
func (r *run) delete(propagation metav1.DeletionPropagation) *run {
	r.t.Helper()
	const name = "x"
	k := r.scenario.suite
	r.step("delete "+k.Kind+" "+name, func() error {
		return r.client(k.Resource).Delete(r.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &propagation})
	})
	r.await(k.Kind+" "+name+" is gone", func() error {
		if slices.Contains(k.ownerNames(r.history), name) {
			return errors.New("it exists")
		}
		return nil
	})
	return r
}

// editOwned patches the dependent of that name, and waits until the history has the patch.
// Without that the state before the patch would look like the final state.
func (r *run) editOwned(name, patch string) {
	r.t.Helper()
	k := r.scenario.suite
	var edited *unstructured.Unstructured
	r.step("edit "+k.Owns.Kind+" "+name, func() (err error) {
		edited, err = r.client(k.ownedResource()).Patch(r.t.Context(), name, types.StrategicMergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	})
	r.await("the history has the patch", func() error {
		for _, v := range k.ownedVersions(r.history) {
			if v.object.GetUID() == edited.GetUID() && v.revision >= parseRevision(edited.GetResourceVersion()) {
				return nil
			}
		}
		return errors.New("it does not yet")
	})
}

// deleteOwned deletes the dependent of that name, and waits until the history has the
// deletion.
func (r *run) deleteOwned(name string) {
	r.t.Helper()
	k, what, uid := r.scenario.suite, r.scenario.suite.Owns.Kind, types.UID("")
	if !k.namesVary {
		what += " " + name
	}
	r.awaitOwned(name).history.locked(func() { uid = existing(k.ownedVersions(r.history))[name].GetUID() })
	r.step("delete "+what, func() error {
		policy := metav1.DeletePropagationBackground
		return r.client(k.ownedResource()).Delete(r.t.Context(), name, metav1.DeleteOptions{PropagationPolicy: &policy})
	})
	r.await("the history has the deletion", func() error {
		if !slices.ContainsFunc(k.ownedVersions(r.history), func(v version[*unstructured.Unstructured]) bool { return v.deleted && v.object.GetUID() == uid }) {
			return errors.New("it does not yet")
		}
		return nil
	})
}

// awaitOwned waits until the controller has created the dependent.
func (r *run) awaitOwned(name string) *run {
	r.t.Helper()
	k := r.scenario.suite
	r.await(k.Owns.Kind+" "+name+" exists", func() error {
		if existing(k.ownedVersions(r.history))[name] == nil {
			return errors.New("it does not")
		}
		return nil
	})
	return r
}

// deleteNamespaceDuringCreate calls create and deletes the namespace while the proxy
// blocks the controller's POST for the dependent.
func (r *run) deleteNamespaceDuringCreate(create func()) {
	r.t.Helper()
	arrived, open := r.proxy.creations.close()
	defer open()
	create()
	select {
	case <-arrived:
	case <-r.t.Context().Done():
	}
	r.step("delete the namespace", func() error {
		return cluster.kube.CoreV1().Namespaces().Delete(r.t.Context(), r.namespace, metav1.DeleteOptions{})
	})
	// The API server gets the POST when the namespace is terminating.
	open()
	r.poll("the namespace is gone", r.checkNamespaceGone)
}

// awaitReady waits until the object is ready for its current generation.
func (r *run) awaitReady(name string) *run {
	r.t.Helper()
	return r.awaitOwner(name, "ready", func(s ownerState) bool { return s.Ready == metav1.ConditionTrue })
}

// awaitNotOwned waits until the object reports that the name is taken.
func (r *run) awaitNotOwned(name string) *run {
	r.t.Helper()
	return r.awaitReason(name, r.scenario.suite.notOwned())
}

// notOwned returns the reason for a name that is taken.
func (k *kindSuite) notOwned() string {
	return k.Owns.Kind + "NotOwned"
}

func (r *run) awaitReason(name, reason string) *run {
	r.t.Helper()
	return r.awaitOwner(name, reason, func(s ownerState) bool { return s.Reason == reason })
}

// awaitOwner waits until the status of the object is up to date and as wanted.
func (r *run) awaitOwner(name, what string, wanted func(ownerState) bool) *run {
	r.t.Helper()
	k := r.scenario.suite
	r.await(k.Kind+" "+name+": "+what, func() error {
		owner := existing(k.ownerVersions(r.history))[name]
		if owner == nil {
			return errors.New("it does not exist")
		}
		if s := newOwnerState(owner, nil); !s.UpToDate || !wanted(s) {
			return fmt.Errorf("the state is %+v", s)
		}
		return nil
	})
	return r
}
