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
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/dynamic"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/test/kinds"
)

// maxRemovals is more than the repairs before a controller reports contention.
const maxRemovals = 20

// TestEveryKind checks what all kinds have in common, with the data in their testdata. The
// controllers run with the rights of the manifests and use each of them: see
// TestLeastPrivilege.
func TestEveryKind(t *testing.T) {
	t.Parallel()
	for _, k := range shared.data {
		if len(k.Spec) == 0 {
			continue
		}
		t.Run(k.Kind, func(t *testing.T) {
			t.Parallel()
			e := newKindEnv(t, k)
			e.create("x", k.Spec)
			e.awaitConverged("x")
			for _, what := range slices.Sorted(maps.Keys(k.Changes)) {
				e.patch(e.owners, "x", types.MergePatchType, k.Changes[what])
				e.awaitConverged("x")
			}
			for _, what := range slices.Sorted(maps.Keys(k.Owns.Drifts)) {
				e.patch(e.owned, e.ownedName("x"), types.StrategicMergePatchType, k.Owns.Drifts[what])
				e.awaitConverged("x")
			}
			e.checkAtRest()
			e.contend()
			for _, name := range []string{"x", "settle"} {
				e.delete(name)
			}
		})
	}
}

// kindEnv is an env for objects of one kind.
type kindEnv struct {
	*env

	kind          *kinds.Data
	owners, owned dynamic.ResourceInterface
	// service is the external service of the kind, nil if it has none.
	service *kinds.Service
}

// start starts the controller of the kind.
func (e *kindEnv) start() {
	e.Helper()
	e.startController(strings.Join(append(e.kind.Flags(e.service), "--controllers="+e.kind.Controller), " "))
}

// newKindEnv makes an env in which the controller of the kind runs.
func newKindEnv(t *testing.T, k *kinds.Data) *kindEnv {
	t.Helper()
	e := &kindEnv{env: newEnv(t), kind: k, service: k.StartService(t.Context())}
	e.owners, e.owned = shared.dynamic.Resource(k.GVR()).Namespace(e.namespace), shared.dynamic.Resource(k.Owns.GVR()).Namespace(e.namespace)
	e.start()
	return e
}

func (e *kindEnv) create(name string, spec json.RawMessage) {
	e.Helper()
	object, err := e.kind.New(name, spec)
	e.must(err)
	_, err = e.owners.Create(e.Context(), object, metav1.CreateOptions{})
	e.must(err)
}

func (e *kindEnv) patch(client dynamic.ResourceInterface, name string, of types.PatchType, patch []byte) {
	e.Helper()
	_, err := client.Patch(e.Context(), name, of, patch, metav1.PatchOptions{})
	e.must(err)
}

// ownedName returns the name of what the object owns.
func (e *kindEnv) ownedName(name string) string {
	e.Helper()
	owner, err := e.owners.Get(e.Context(), name, metav1.GetOptions{})
	e.must(err)
	return kinds.Find(e.kind.Owns.Name, owner.Object)
}

// awaitConverged waits until the object is ready, what it owns is as its spec asks, has the
// controller's label and all its Pods, and the status counts them. Then the status is final.
func (e *kindEnv) awaitConverged(name string) {
	e.Helper()
	e.eventually(e.kind.Kind+" "+name+" converges", func(ctx context.Context) error {
		owner, err := e.owners.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		owned, err := e.owned.Get(ctx, kinds.Find(e.kind.Owns.Name, owner.Object), metav1.GetOptions{})
		if err != nil {
			return err
		}
		status, _ := kinds.Ready(owner)
		if status != string(metav1.ConditionTrue) || !metav1.IsControlledBy(owned, owner) || owned.GetLabels()[managedBy] == "" || !e.kind.Owns.ShowSpec(owned.Object, owner.Object) {
			return fmt.Errorf("%v owns %v", owner.Object, owned.Object)
		}
		wanted := kinds.Find("{.spec.replicas}", owned.Object)
		if observed := kinds.Find("{.status.observedGeneration}", owned.Object); wanted != "" && observed != fmt.Sprint(owned.GetGeneration()) {
			return fmt.Errorf("generation %d of %s is not observed yet, but %s", owned.GetGeneration(), owned.GetName(), observed)
		}
		for _, count := range []string{"replicas", "updatedReplicas", "readyReplicas", "availableReplicas"} {
			path := "{.status." + count + "}"
			got, told := kinds.Find(path, owned.Object), kinds.Find(path, owner.Object)
			if wanted != "" && (wanted != cmp.Or(got, "0") || wanted != cmp.Or(told, wanted)) {
				return fmt.Errorf("%s is %s, and %s by the status; %s are wanted", count, got, told, wanted)
			}
		}
		if e.service != nil && !slices.Contains(e.service.IDs(), string(owner.GetUID())) {
			return errors.New("the external service has no item for it")
		}
		return e.checkRolledOut(ctx, owned)
	})
}

// checkRolledOut returns an error if a Deployment has more than one ReplicaSet with Pods. Its
// controller, behind with the events of those, reports that it is complete, and then that it is not.
func (e *kindEnv) checkRolledOut(ctx context.Context, owned metav1.Object) error {
	all, err := shared.kube.AppsV1().ReplicaSets(e.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	var withPods []string
	for i := range all.Items {
		if set := &all.Items[i]; metav1.IsControlledBy(set, owned) && (ptr.Deref(set.Spec.Replicas, 1) > 0 || set.Status.Replicas > 0) {
			withPods = append(withPods, set.Name)
		}
	}
	if len(withPods) > 1 {
		return fmt.Errorf("the ReplicaSets %s have Pods", withPods)
	}
	return nil
}

// checkAtRest starts the controller anew, and checks that it writes nothing for x, which has
// converged.
func (e *kindEnv) checkAtRest() {
	e.Helper()
	e.controller.stop()
	mark := e.mark()
	e.start()
	e.create("settle", e.kind.MarkerSpec)
	e.awaitConverged("settle")
	e.noWrites(mark, e.kind.Resource, "x")
	e.noWrites(mark, e.kind.Owns.GVR().Resource, e.ownedName("x"))
}

// contend removes the controller's label from what x owns until the status of x says that
// another writer does so.
func (e *kindEnv) contend() {
	e.Helper()
	name, removals := e.ownedName("x"), 0
	e.eventually("the status reports the other writer", func(ctx context.Context) error {
		owned, err := e.owned.Get(ctx, name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		if owned.GetLabels()[managedBy] != "" && removals < maxRemovals {
			removals++
			e.patch(e.owned, name, types.MergePatchType, fmt.Appendf(nil, `{"metadata":{"labels":{%q:null}}}`, managedBy))
		}
		owner, err := e.owners.Get(ctx, "x", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if _, reason := kinds.Ready(owner); reason != e.kind.Owns.Kind+"Contested" {
			return fmt.Errorf("%s after %d removals", reason, removals)
		}
		return nil
	})
}

// delete deletes the object, and waits until it and all that it had are gone.
func (e *kindEnv) delete(name string) {
	e.Helper()
	owner, err := e.owners.Get(e.Context(), name, metav1.GetOptions{})
	e.must(err)
	e.must(e.owners.Delete(e.Context(), name, metav1.DeleteOptions{}))
	owned := kinds.Find(e.kind.Owns.Name, owner.Object)
	e.eventually(e.kind.Kind+" "+name+" is gone", func(ctx context.Context) error {
		_, ownerErr := e.owners.Get(ctx, name, metav1.GetOptions{})
		_, ownedErr := e.owned.Get(ctx, owned, metav1.GetOptions{})
		if !apierrors.IsNotFound(ownerErr) || !apierrors.IsNotFound(ownedErr) {
			return fmt.Errorf("reading it: %w; reading what it owns: %w", ownerErr, ownedErr)
		}
		if e.service != nil && slices.Contains(e.service.IDs(), string(owner.GetUID())) {
			return errors.New("the external service has its item")
		}
		return nil
	})
}
