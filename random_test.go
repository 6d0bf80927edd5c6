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
	"encoding/json"
	"errors"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/test/sim"
)

const (
	// checks and memoryChecks are how many sequences a plain `go test` runs. `make random`
	// runs more, and others each time.
	checks       = 1000
	memoryChecks = 200
)

// TestRandom runs random sequences of operations and faults in a simulated cluster. At each
// write the invariants S1 to S4 hold. Once nothing changes any more the cluster is as the
// contract says, and the controller writes nothing over time, a relist, a restart and
// resyncs.
func TestRandom(t *testing.T) {
	sim.Check(t, checks, sim.Profile{MaxOps: 30}, simulate)
}

// TestRandomMemory drops what the process remembers before each of its requests, and
// compares the outcome with that of the same sequence without: losing it is harmless. If
// Foos wait for each other's names the outcome depends on their order and may differ.
func TestRandomMemory(t *testing.T) {
	compared := 0
	sim.Check(t, memoryChecks, sim.Profile{MaxOps: 12, Settled: true}, func(sequence sim.Sequence) sim.Result {
		with, without := simulate(sequence), simulate(forgetting(sequence))
		if len(with.Violations) == 0 && !with.Contested && !without.Contested {
			compared++
			if without.Outcome != with.Outcome {
				without.Violations = append(without.Violations, "without its memory the controller came to\n"+without.Outcome+"\nand with it to\n"+with.Outcome)
			}
		}
		if len(without.Violations) > 0 {
			return without
		}
		return with
	})
	t.Logf("Compared %d outcomes", compared)
}

// forgetting returns the sequence with the memory dropped before each of the ten requests
// that follow each operation.
func forgetting(sequence sim.Sequence) sim.Sequence {
	ops := sequence.Ops
	sequence.Ops = nil
	for _, op := range ops {
		for before := range 10 {
			sequence.Ops = append(sequence.Ops, sim.Op{Verb: sim.Forget, Before: before + 1})
		}
		sequence.Ops = append(sequence.Ops, op)
	}
	return sequence
}

func simulate(sequence sim.Sequence) sim.Result {
	return sim.Run(sequence, newSimulated)
}

// simulated adapts the Foo controller to test/sim.
type simulated struct {
	*Controller
	kube kubeinformers.SharedInformerFactory
	foo  fooinformers.SharedInformerFactory
}

func newSimulated(ctx context.Context, env sim.Env) sim.Controller {
	s := &simulated{
		kube: kubeinformers.NewSharedInformerFactoryWithOptions(env.KubeClient, env.Resync, kubeinformers.WithTransform(newTransform())),
		foo:  fooinformers.NewSharedInformerFactoryWithOptions(env.FooClient, env.Resync, fooinformers.WithTransform(newTransform())),
	}
	var err error
	registered := controller.NewMetrics(metrics.NewKubeRegistry())
	s.Controller, err = NewController(ctx, ControllerOptions{
		KubeClient:  env.KubeClient,
		FooClient:   env.FooClient,
		Deployments: s.kube.Apps().V1().Deployments(),
		Foos:        s.foo.Samplecontroller().V1alpha1().Foos(),
		Options: controller.Options{
			Worker: controller.NewWorker(fooKind, controller.WorkerOptions{
				Clock: clock.RealClock{}, Metrics: registered, Workers: env.Workers, GracePeriod: testGracePeriod, Resync: env.Resync > 0,
			}),
			Namespace: metav1.NamespaceAll, Recorder: env.Recorder, Clock: clock.RealClock{}, Metrics: registered,
		},
	})
	if err != nil {
		panic(err)
	}
	return s
}

// Run implements sim.Controller.
func (s *simulated) Run(ctx context.Context) {
	s.kube.StartWithContext(ctx)
	s.foo.StartWithContext(ctx)
	// It fails if ctx is done before the caches are filled.
	_ = s.Worker.Run(ctx)
	s.kube.Shutdown()
	s.foo.Shutdown()
}

// Forget implements sim.Controller.
func (s *simulated) Forget(foos []cache.ObjectName, deployments []types.UID) {
	for _, foo := range foos {
		s.foos.Forget(foo)
		s.Worker.Debouncer.Reset(foo)
	}
	for _, uid := range deployments {
		s.foos.DeletionSeen(uid)
	}
}

// Fuzz targets for the pure functions. Plain `go test` runs their seeds; to search:
// go test -run '^$' -fuzz '^FuzzDecide$' -fuzztime 1m .

// FuzzDecide calls decide with any Foo and any Deployment of that name. One patch must end
// all drift, and change only fields that the controller owns.
func FuzzDecide(f *testing.F) {
	f.Add("web", int32(1), true, "", []byte(nil))
	f.Add("web", int32(3), false, "nginx:2", []byte(`{"metadata":{"ownerReferences":[]}}`))
	f.Add("web", int32(-1), true, "nginx:2", []byte(`{"spec":{"replicas":7,"template":{"spec":{"containers":[{"name":"sidecar"},{"name":"nginx","image":"a"}]}}}}`))
	f.Add("web", int32(0), true, "i", []byte(`{"metadata":{"labels":null,"resourceVersion":"7","ownerReferences":[{"apiVersion":"v1","kind":"Thing","name":"x","uid":"u"},{"apiVersion":"samplecontroller.k8s.io/none","kind":"Foo","name":"other","uid":"uid-foo","controller":true}]}}`))
	f.Add("web", int32(2), true, "i", []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"web"}]}}}}`))
	f.Add("web", int32(2), true, "i", []byte(`{"metadata":{"annotations":{"samplecontroller.k8s.io/adopt-by":"foo"},"ownerReferences":[{"apiVersion":"v1","kind":"Foo","name":"foo","uid":"uid-foo","controller":false}]}}`))
	f.Fuzz(func(t *testing.T, name string, replicas int32, set bool, image string, change []byte) {
		foo := newFoo(wants(name), fooImage(image))
		foo.Spec.Replicas = nil
		if set {
			foo.Spec.Replicas = &replicas
		}
		d := newOwned(foo)
		if err := json.Unmarshal(change, d); err != nil && len(change) > 0 || !storable(foo, d) {
			return
		}
		before, kept := d.DeepCopy(), trim(t, d)
		action := decide(foo, d, oldDeployments{})
		if fromCache := decide(foo, kept, oldDeployments{}); action != fromCache {
			t.Fatalf("action %v on the whole Deployment, %v on the trimmed one", action, fromCache)
		}
		switch action {
		case create, createCopy:
			t.Fatalf("the Deployment exists, and the action is %v", action)
		case adopt:
			if metav1.GetControllerOf(d) != nil || d.DeletionTimestamp != nil || d.Annotations[v1alpha1.AdoptByAnnotation] != foo.Name {
				t.Fatal("rule 10: an adoption that was not asked for")
			}
		case repair:
			checkRepair(t, foo, d, kept)
		}
		if !equality.Semantic.DeepEqual(before, d) {
			t.Fatal("the given Deployment was changed")
		}
	})
}

// storable reports whether the API server can have stored the objects. It checks what a
// strategic merge patch depends on.
func storable(foo *v1alpha1.Foo, deployment *appsv1.Deployment) bool {
	text, err := json.Marshal([]any{foo, deployment})
	if err != nil || strings.Contains(string(text), `\ufffd`) || deployment.Name != foo.Spec.DeploymentName {
		return false
	}
	names, uids, controllers := map[string]bool{}, map[types.UID]bool{}, 0
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if container.Name == "" || names[container.Name] {
			return false
		}
		names[container.Name] = true
	}
	for _, ref := range deployment.OwnerReferences {
		if ref.UID == "" || uids[ref.UID] {
			return false
		}
		uids[ref.UID] = true
		if ptr.Deref(ref.Controller, false) {
			controllers++
		}
	}
	return controllers <= 1
}

// checkRepair checks the patch of the Foo's own Deployment. kept is what the cache has of it.
func checkRepair(t *testing.T, foo *v1alpha1.Foo, current, kept *appsv1.Deployment) {
	t.Helper()
	if !owns(foo, current) || current.DeletionTimestamp != nil {
		t.Fatal("rules 5 and 7: a repair of a Deployment that the Foo does not own or that is being deleted")
	}
	patch := diffDeployment(foo, kept, desiredReplicas(foo))
	differ(t, "the patch of the whole Deployment", patch.String(), diffDeployment(foo, current, desiredReplicas(foo)).String())
	if patch.IsEmpty() {
		return
	}
	var sent metav1.PartialObjectMetadata
	if err := json.Unmarshal(patch.JSON(), &sent); err != nil || sent.ResourceVersion != current.ResourceVersion {
		t.Fatalf("rule 4: the patch %s has not version %q as a precondition (error %v)", patch.JSON(), current.ResourceVersion, err)
	}
	after, err := sim.StrategicMerge(current, string(patch.JSON()))
	if err != nil {
		t.Fatalf("rule 4: the patch %s: %v", patch.JSON(), err)
	}
	if !owns(foo, after) {
		t.Fatalf("rule 4: the patch %s ends the ownership", patch.JSON())
	}
	if drift := diffDeployment(foo, after, desiredReplicas(foo)); !drift.IsEmpty() {
		t.Fatalf("rule 4: drift after the patch %s: %s", patch.JSON(), drift)
	}
	if diff := sim.UnownedDiff(current, after); diff != "" {
		t.Fatalf("rule 4: the patch %s changed fields that the controller does not own: %s", patch.JSON(), diff)
	}
	for _, ref := range current.OwnerReferences {
		if ref.UID != foo.UID && !slices.ContainsFunc(after.OwnerReferences, func(kept metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(ref, kept) }) {
			t.Fatalf("rule 4: the patch %s changed the owner reference %+v", patch.JSON(), ref)
		}
	}
}

// FuzzValidateSpec compares validateSpec with the API server's validation of names.
func FuzzValidateSpec(f *testing.F) {
	for _, name := range []string{"", "web", "No_Good", "a.b", "a..b", "-a", strings.Repeat("a", 253), strings.Repeat("a", 254)} {
		f.Add(name, int32(1))
	}
	f.Add("web", int32(-1))
	f.Fuzz(func(t *testing.T, name string, replicas int32) {
		message := validateSpec(newFoo(wants(name), fooReplicas(&replicas)))
		legal := len(validation.IsDNS1123Subdomain(name)) == 0 && replicas >= 0
		if legal != (message == "") {
			t.Errorf("validateSpec(%q, %d) = %q", name, replicas, message)
		}
		if got := decide(newFoo(wants(name), fooReplicas(&replicas)), nil, oldDeployments{}); (got == create) != legal {
			t.Errorf("a spec whose legality is %t leads to action %v", legal, got)
		}
	})
}

// legalReason is the pattern of reasons in the CRD.
var legalReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// FuzzNewStatus checks that the CRD's schema allows the status of any observation, and that
// the same observation does not change that status any more.
func FuzzNewStatus(f *testing.F) {
	f.Add(int64(1), "", "", "", []byte(nil))
	f.Add(int64(3), "no", "them", "old", []byte(`{"status":{"replicas":3,"updatedReplicas":2,"availableReplicas":-1}}`))
	f.Add(int64(3), strings.Repeat("é", 2100), "", "old", []byte(`{"metadata":{"ownerReferences":null}}`))
	f.Add(int64(2), "", "", "", []byte(`{"status":{"conditions":[{"type":"ReplicaFailure","status":"True","message":"no"}]},"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"Odd","values":["b"]}]}}}`))
	f.Add(int64(2), "", "", "", []byte(`{"spec":{"selector":null,"paused":true}}`))
	f.Fuzz(func(t *testing.T, generation int64, rejected, undone, accepted string, change []byte) {
		foo := newFoo(fooGeneration(generation))
		result := findings{undone: undone, accepted: accepted}
		if rejected != "" {
			result.refused = errors.New(rejected)
		}
		if len(change) > 0 {
			result.deployment = newOwned(foo)
			if json.Unmarshal(change, result.deployment) != nil {
				return
			}
		}
		other := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Kept", LastTransitionTime: testNow}
		foo.Status.Conditions = []metav1.Condition{other}

		if result.deployment != nil {
			fromCache := result
			fromCache.deployment = trim(t, result.deployment)
			differ(t, "the status from the trimmed Deployment", newStatus(foo, result, testNow), newStatus(foo, fromCache, testNow))
		}
		foo.Status = newStatus(foo, result, testNow)
		validateStatus(t, foo, undone == "" && accepted == "")
		if kept := meta.FindStatusCondition(foo.Status.Conditions, "Theirs"); kept == nil || *kept != other {
			t.Errorf("API: the condition of another controller became %+v", kept)
		}
		later := testNow
		if result.deployment == nil || result.deployment.DeletionTimestamp == nil {
			// The status of a terminating Deployment changes when its progress deadline passes.
			later = metav1.NewTime(testNow.Add(time.Hour))
		}
		again := newStatus(foo, result, later)
		if !equality.Semantic.DeepEqual(foo.Status, again) {
			t.Errorf("rule 15: the same result changes the status from %+v to %+v", foo.Status, again)
		}
		if event := readyEvent(controller.GetReady(foo.Status.Conditions), controller.GetReady(again.Conditions)); event != nil {
			t.Errorf("rule 16: the same result gives the event %+v", event)
		}
	})
}

// validateStatus checks the status against the CRD's schema. Other than in the controller the
// length of messages is not bounded if bounded is false.
func validateStatus(t *testing.T, foo *v1alpha1.Foo, bounded bool) {
	t.Helper()
	ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady)
	switch {
	case ready == nil:
		t.Fatal("there is no Ready condition")
	case foo.Status.ObservedGeneration != foo.Generation || ready.ObservedGeneration != foo.Generation:
		t.Errorf("generation %d, observed %d and %d", foo.Generation, foo.Status.ObservedGeneration, ready.ObservedGeneration)
	case !legalReason.MatchString(ready.Reason) || len(ready.Reason) > 1024:
		t.Errorf("reason %q", ready.Reason)
	case ready.Status != metav1.ConditionTrue && ready.Status != metav1.ConditionFalse:
		t.Errorf("status %q", ready.Status)
	case ready.LastTransitionTime.IsZero():
		t.Error("no time of the transition")
	case bounded && len(ready.Message) > 32768:
		t.Errorf("a message of %d bytes", len(ready.Message))
	}
}
