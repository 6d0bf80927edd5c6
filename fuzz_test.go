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
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/stored"
)

// Fuzz targets for the pure functions. Plain `go test` runs their seeds; to search:
// go test -run '^$' -fuzz '^FuzzRepair$' -fuzztime 1m .

// FuzzRepair is about any Foo and any Deployment of that name. One patch must end all drift,
// and change only fields that the controller owns.
func FuzzRepair(f *testing.F) {
	f.Add("web", int32(1), "", []byte("{}"))
	f.Add("web", int32(3), "nginx:2", []byte(`{"metadata":{"ownerReferences":[]}}`))
	f.Add("", int32(-1), "", []byte(`{"spec":{"replicas":7,"template":{"spec":{"containers":[{"name":"sidecar"},{"name":"nginx","image":"a"}]}}}}`))
	f.Add("web", int32(0), "i", []byte(`{"metadata":{"labels":null,"resourceVersion":"7","ownerReferences":[{"apiVersion":"v1","kind":"Thing","name":"x","uid":"u"},`+
		`{"apiVersion":"samplecontroller.k8s.io/none","kind":"Foo","name":"other","uid":"uid-foo","controller":true}]}}`))
	f.Add("web", int32(2), "i", []byte(`{"metadata":{"annotations":{"samplecontroller.k8s.io/adopt-by":"foo"},"ownerReferences":[{"apiVersion":"v1","kind":"Foo","name":"foo","uid":"uid-foo"}]}}`))
	f.Fuzz(func(t *testing.T, name string, replicas int32, container string, change []byte) {
		foo := newFoo(wants(name), fooImage(container), fooReplicas(&replicas))
		d := newOwned(foo)
		if err := json.Unmarshal(change, d); err != nil || !storable(foo, d) {
			return
		}
		before, kept := d.DeepCopy(), cached(t, d)
		differ(t, "rule 10: the trimmed Deployment asks for it", asksToBeAdopted(foo, d), asksToBeAdopted(foo, kept))
		if differ(t, "the trimmed Deployment is owned", owns(foo, d), owns(foo, kept)); owns(foo, d) {
			checkRepair(t, foo, d, kept)
		}
		differ(t, "the given Deployment", before, d)
	})
}

// storable reports whether the API server can have stored the objects. It checks what a
// strategic merge patch depends on.
func storable(foo *v1alpha1.Foo, deployment *appsv1.Deployment) bool {
	text, err := json.Marshal([]any{foo, deployment})
	if err != nil || strings.Contains(string(text), `\ufffd`) || deployment.Name != foo.Spec.DeploymentName {
		return false
	}
	names, uids, controllers := sets.New(""), sets.New[types.UID](""), 0
	for _, container := range deployment.Spec.Template.Spec.Containers {
		names.Insert(container.Name)
	}
	for _, ref := range deployment.OwnerReferences {
		uids.Insert(ref.UID)
		if ptr.Deref(ref.Controller, false) {
			controllers++
		}
	}
	return controllers <= 1 && len(names) == len(deployment.Spec.Template.Spec.Containers)+1 && len(uids) == len(deployment.OwnerReferences)+1
}

// checkRepair checks the patch of the Foo's own Deployment. kept is what the cache has of it.
func checkRepair(t *testing.T, foo *v1alpha1.Foo, current, kept *appsv1.Deployment) {
	t.Helper()
	patch := drift(foo, kept)
	differ(t, "the patch of the whole Deployment", patch.String(), drift(foo, current).String())
	if patch.IsEmpty() {
		return
	}
	after, err := stored.StrategicMerge(current, string(patch.JSON()))
	if err != nil {
		t.Fatalf("rule 4: the patch %s: %v", patch.JSON(), err)
	}
	differ(t, "rule 4: drift after the patch", "", drift(foo, after).String())
	differ(t, "rule 4: fields that the controller does not own", "", stored.UnownedDiff(current, after))
	others := func(d *appsv1.Deployment) []metav1.OwnerReference {
		return slices.DeleteFunc(slices.Clone(d.OwnerReferences), func(ref metav1.OwnerReference) bool { return ref.UID == foo.UID })
	}
	if before, now := others(current), others(after); !equality.Semantic.DeepEqual(before, now) || !owns(foo, after) {
		t.Errorf("rule 4: the patch %s made owners %+v of %+v", patch.JSON(), now, before)
	}
}

// FuzzNewStatus checks that the CRD's schema allows the status of any observation, and that
// the same observation does not change that status any more.
func FuzzNewStatus(f *testing.F) {
	f.Add("", "", "", []byte(nil))
	f.Add("no", "them", "old", []byte(`{"status":{"replicas":3,"updatedReplicas":2,"availableReplicas":-1}}`))
	f.Add(strings.Repeat("é", 2100), "", "old", []byte(`{"metadata":{"ownerReferences":null}}`))
	f.Add("", "", "", []byte(`{"status":{"conditions":[{"type":"ReplicaFailure","status":"True","message":"no"}]},`+
		`"spec":{"selector":{"matchExpressions":[{"key":"a","operator":"Odd","values":["b"]}]}}}`))
	f.Add("", "", "", []byte(`{"spec":{"selector":null,"paused":true}}`))
	f.Fuzz(func(t *testing.T, rejected, contested, accepted string, change []byte) {
		foo, result := newFoo(), findings{writes: controller.Report{Contested: contested, Accepted: accepted}}
		if rejected != "" {
			result.refused = errors.New(rejected)
		}
		fromCache, later := result, metav1.NewTime(testNow.Add(time.Hour))
		if len(change) > 0 {
			result.deployment = newOwned(foo)
			if json.Unmarshal(change, result.deployment) != nil {
				return
			}
			fromCache.deployment = cached(t, result.deployment)
			if result.deployment.DeletionTimestamp != nil {
				// The status of a terminating Deployment changes when its progress deadline passes.
				later = testNow
			}
		}
		foo.Status = newStatus(foo, result, testNow)
		differ(t, "the status from the trimmed Deployment", foo.Status, newStatus(newFoo(), fromCache, testNow))
		ready := controller.GetReady(foo.Status.Conditions)
		// The pattern and the bounds of the CRD. The controller bounds contested and accepted before.
		legal := regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)
		if !legal.MatchString(ready.Reason) || len(ready.Message)-len(contested)-len(accepted) > 32768 || ready.LastTransitionTime.IsZero() {
			t.Errorf("API: condition %+v", ready)
		}
		differ(t, "rule 15: the status of the same result", foo.Status, newStatus(foo, result, later))
	})
}
