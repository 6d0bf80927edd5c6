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
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/child"
)

// Fuzz targets for the pure functions. Plain `go test` runs their seeds; to search:
// go test -run '^$' -fuzz '^FuzzDecide$' -fuzztime 1m .

// FuzzDecide feeds decide with any Foo and any Deployment of that name. One patch
// must end all drift, and change nothing but what the controller owns.
func FuzzDecide(f *testing.F) {
	f.Add("web", int32(1), true, "", []byte(nil))
	f.Add("web", int32(3), false, "nginx:2", []byte(`{"metadata":{"ownerReferences":[]}}`))
	f.Add("web", int32(-1), true, "nginx:2", []byte(`{"spec":{"replicas":7,"template":{"spec":{"containers":[{"name":"sidecar"},{"name":"nginx","image":"a"}]}}}}`))
	f.Add("web", int32(0), true, "i", []byte(`{"metadata":{"labels":null,"resourceVersion":"7","ownerReferences":[{"apiVersion":"v1","kind":"Thing","name":"x","uid":"u"},{"apiVersion":"samplecontroller.k8s.io/v2","kind":"Foo","name":"other","uid":"uid-foo","controller":true}]}}`))
	f.Add("web", int32(2), true, "i", []byte(`{"spec":{"template":{"spec":{"containers":[{"name":"web"}]}}}}`))
	f.Fuzz(func(t *testing.T, name string, replicas int32, set bool, image string, change []byte) {
		foo := newFoo(wants(name), fooImage(image))
		foo.Spec.Replicas = nil
		if set {
			foo.Spec.Replicas = &replicas
		}
		deployment := newOwned(foo)
		if err := json.Unmarshal(change, deployment); err != nil && len(change) > 0 || !storable(foo, deployment) {
			return
		}
		before := deployment.DeepCopy()
		verdict := decide(foo, deployment)
		if !equality.Semantic.DeepEqual(before, deployment) {
			t.Fatal("decide changed the Deployment that it was given")
		}
		checkVerdict(t, foo, deployment, verdict)
		differ(t, "the verdict on what the cache keeps", summaryOf(verdict), summaryOf(decide(foo, newStripper().deployment(deployment))))
	})
}

// summaryOf returns all that a verdict comes to.
func summaryOf(verdict child.Verdict) []string {
	return []string{fmt.Sprint(verdict.Action), verdict.Invalid, string(verdict.Repair.Patch()), verdict.Repair.String()}
}

// storable reports whether the API server would keep the objects, as far as that
// matters for a patch.
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

func checkVerdict(t *testing.T, foo *v1alpha1.Foo, deployment *appsv1.Deployment, verdict child.Verdict) {
	t.Helper()
	switch {
	case verdict.Action == child.Create:
		t.Fatal("there is one, and it is to be created")
	case verdict.Action != child.Mend:
		if len(verdict.Repair.Patch()) > 0 && verdict.Action != child.None {
			t.Fatalf("action %v with the patch %s", verdict.Action, verdict.Repair.Patch())
		}
		if verdict.Action == child.None && verdict.Invalid == "" && deployment.DeletionTimestamp == nil && overridden(foo, deployment) != nil {
			t.Fatalf("left alone with drift: %v", overridden(foo, deployment))
		}
		return
	}
	if !kindOfFoo().Owns(foo, deployment) || deployment.DeletionTimestamp != nil {
		t.Fatalf("rules 5 and 7: a patch for a Deployment that is not to be touched: %s", verdict.Repair.Patch())
	}
	var sent metav1.PartialObjectMetadata
	if err := json.Unmarshal(verdict.Repair.Patch(), &sent); err != nil || sent.ResourceVersion != deployment.ResourceVersion {
		t.Fatalf("rule 4: the patch %s does not insist on version %q (error %v)", verdict.Repair.Patch(), deployment.ResourceVersion, err)
	}
	after, err := strategicMerge(deployment, string(verdict.Repair.Patch()))
	if err != nil {
		t.Fatalf("rule 4: the patch %s: %v", verdict.Repair.Patch(), err)
	}
	if err := overridden(foo, after); err != nil {
		t.Fatalf("rule 4: drift after the patch %s: %v", verdict.Repair.Patch(), err)
	}
	if again := decide(foo, after); again.Action != child.None {
		t.Fatalf("rule 4: after the patch %s another one is needed: %s", verdict.Repair.Patch(), again.Repair.Patch())
	}
	if diff := differences(deployment, after); diff != "" {
		t.Fatalf("rule 4: the patch %s changed what is not ours: %s", verdict.Repair.Patch(), diff)
	}
	for _, ref := range deployment.OwnerReferences {
		if ref.UID != foo.UID && !slices.ContainsFunc(after.OwnerReferences, func(kept metav1.OwnerReference) bool { return equality.Semantic.DeepEqual(ref, kept) }) {
			t.Fatalf("rule 4: the patch %s changed the owner reference %+v", verdict.Repair.Patch(), ref)
		}
	}
}

// FuzzValidateSpec compares validateSpec with what the API server says of names.
func FuzzValidateSpec(f *testing.F) {
	for _, name := range []string{"", "web", "No_Good", "a.b", "a..b", "-a", strings.Repeat("a", 253), strings.Repeat("a", 254)} {
		f.Add(name, int32(1))
	}
	f.Add("web", int32(-1))
	f.Fuzz(func(t *testing.T, name string, replicas int32) {
		complaint := validateSpec(newFoo(wants(name), fooReplicas(&replicas)))
		legal := len(validation.IsDNS1123Subdomain(name)) == 0 && replicas >= 0
		if legal != (complaint == "") {
			t.Errorf("validateSpec(%q, %d) = %q", name, replicas, complaint)
		}
		if verdict := decide(newFoo(wants(name), fooReplicas(&replicas)), nil); (verdict.Action == child.Create) != legal {
			t.Errorf("an illegal spec leads to action %v", verdict.Action)
		}
	})
}

// legalReason is the pattern of the CRD.
var legalReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// FuzzNewStatus checks that any observation gives a status that the CRD allows, and
// that the same observation then changes nothing.
func FuzzNewStatus(f *testing.F) {
	f.Add(int64(1), "", "", "", "", []byte(nil))
	f.Add(int64(3), "bad", "no", "them", "old", []byte(`{"status":{"replicas":3,"updatedReplicas":2,"availableReplicas":-1}}`))
	f.Add(int64(3), "", strings.Repeat("é", 2100), "", "old", []byte(`{"metadata":{"ownerReferences":null}}`))
	f.Add(int64(2), "", "", "", "", []byte(`{"status":{"conditions":[{"type":"ReplicaFailure","status":"True","message":"no"}]},"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"Odd","values":["b"]}]}}}`))
	f.Add(int64(2), "", "", "", "", []byte(`{"spec":{"selector":null,"paused":true}}`))
	f.Fuzz(func(t *testing.T, generation int64, invalid, rejected, contested, former string, change []byte) {
		foo := newFoo(fooGeneration(generation))
		seen := child.Observation{Invalid: invalid, Contested: contested}
		if former != "" {
			seen.Former = []string{strconv.Quote(former)}
		}
		if rejected != "" {
			seen.Rejected = errors.New(rejected)
		}
		if len(change) > 0 {
			seen.Deployment = newOwned(foo)
			if json.Unmarshal(change, seen.Deployment) != nil {
				return
			}
		}
		theirs := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Kept", LastTransitionTime: testNow}
		foo.Status.Conditions = []metav1.Condition{theirs}

		if seen.Deployment != nil {
			fromCache := seen
			fromCache.Deployment = newStripper().deployment(seen.Deployment)
			differ(t, "the status by what the cache keeps", newStatus(foo, seen, testNow), newStatus(foo, fromCache, testNow))
		}
		foo.Status = newStatus(foo, seen, testNow)
		checkStatus(t, foo, invalid == "" && contested == "")
		if kept := meta.FindStatusCondition(foo.Status.Conditions, "Theirs"); kept == nil || *kept != theirs {
			t.Errorf("API: the condition of another controller became %+v", kept)
		}
		again := newStatus(foo, seen, metav1.NewTime(testNow.Add(time.Hour)))
		if !equality.Semantic.DeepEqual(foo.Status, again) {
			t.Errorf("rule 15: the same observation changes the status from %+v to %+v", foo.Status, again)
		}
		if told := transitionOf(&foo.Status, &again); told != nil {
			t.Errorf("rule 16: the same observation is told as %+v", told)
		}
	})
}

// checkStatus checks the status against the CRD. What is handed in as words is of
// any length, which in the controller it is not.
func checkStatus(t *testing.T, foo *v1alpha1.Foo, bounded bool) {
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

// FuzzFollowBlockers gives each of eight Foos the one that blocks it, a byte each:
// there is a circle if and only if following them leads back.
func FuzzFollowBlockers(f *testing.F) {
	f.Add([]byte{1, 0})
	f.Add([]byte{1, 2, 0})
	f.Add([]byte{1, 2, 1})
	f.Add([]byte{9})
	f.Add([]byte{0})
	f.Fuzz(func(t *testing.T, blockedBy []byte) {
		foos := make([]*v1alpha1.Foo, 8)
		for i := range foos {
			foos[i] = newFoo(fooNamed(fmt.Sprint(i)))
		}
		follow := func(i int) int {
			if i < len(blockedBy) && int(blockedBy[i]) < len(foos) {
				return int(blockedBy[i])
			}
			return -1
		}
		next := func(foo *v1alpha1.Foo) *v1alpha1.Foo {
			i, err := strconv.Atoi(foo.Name)
			if err != nil || follow(i) < 0 {
				return nil
			}
			return foos[follow(i)]
		}
		var want []*v1alpha1.Foo
		leadsBack, here := false, follow(0)
		for range foos {
			if leadsBack = here == 0; here <= 0 {
				break
			}
			if !slices.Contains(want, foos[here]) {
				want = append(want, foos[here])
			}
			here = follow(here)
		}
		chain, cycle := followBlockers(foos[0], next)
		if cycle != leadsBack || !slices.Equal(chain, want) {
			t.Errorf("blocked by %v: chain of %d, circle %v; want %d, %v", blockedBy, len(chain), cycle, len(want), leadsBack)
		}
	})
}

// FuzzOwns is rule 17: Kind, group and UID of a reference that controls, nothing
// else.
func FuzzOwns(f *testing.F) {
	f.Add("samplecontroller.k8s.io/v1alpha1", "Foo", "foo", "uid-foo", true)
	f.Add("samplecontroller.k8s.io/v1beta1", "Foo", "other", "uid-foo", true)
	f.Add("samplecontroller.k8s.io", "Foo", "foo", "uid-foo", true)
	f.Add("a/b/c", "Foo", "foo", "uid-foo", true)
	f.Add("", "", "", "", false)
	f.Fuzz(func(t *testing.T, version, kind, name, uid string, controls bool) {
		foo := newFoo()
		ref := metav1.OwnerReference{APIVersion: version, Kind: kind, Name: name, UID: types.UID(uid), Controller: &controls}
		deployment := newForeign(ownedBy(ref))
		group, rest, found := strings.Cut(version, "/")
		is := controls && kind == "Foo" && found && group == "samplecontroller.k8s.io" && !strings.Contains(rest, "/")
		if got := kindOfFoo().ControllerOf(deployment) != nil; got != is {
			t.Errorf("rule 17: controllingFoo of %+v: %v, want %v", ref, got, is)
		}
		if got := kindOfFoo().Owns(foo, deployment); got != (is && ref.UID == foo.UID) {
			t.Errorf("rule 17: owns with %+v = %v", ref, got)
		}
		if keys, err := controller.IndexByOwner[*appsv1.Deployment](kindOfFoo().GroupKind())(deployment); err != nil || (len(keys) == 1) != is {
			t.Errorf("rule 17: index %q, %v", keys, err)
		}
	})
}

// overridden returns an error if the Deployment is not as the Foo wants it.
func overridden(foo *v1alpha1.Foo, deployment *appsv1.Deployment) error {
	if !kindOfFoo().Owns(foo, deployment) {
		return errors.New("owner reference")
	}
	if left := driftOf(foo, deployment); len(left.Changes) > 0 {
		return errors.New(left.String())
	}
	return nil
}
