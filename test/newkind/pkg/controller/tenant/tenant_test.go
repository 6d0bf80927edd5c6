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

package tenant

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/newkind/pkg/apis/tenancy/v1alpha1"
)

func TestNewConfigMap(t *testing.T) {
	yes := true
	fixture.Differ(t, "rule Z3: the ConfigMap", &corev1.ConfigMap{
		ObjectMeta: metav1.ObjectMeta{
			Name: "x", Namespace: testNamespace, Labels: map[string]string{"app.kubernetes.io/managed-by": controller.ManagedByValue},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: v1alpha1.GroupVersion.String(), Kind: tenantKind, Name: "x", UID: "uid-x", Controller: &yes, BlockOwnerDeletion: &yes}},
		},
		Data: map[string]string{"displayName": "blue", "id": "uid-x"},
	}, newConfigMap(newTenant()))
}

// TestRepairs: whatever another writer changes of what is enforced, one patch takes it back, and nothing else. The
// cache keeps what is compared.
func TestRepairs(t *testing.T) {
	fields := fixture.CheckRepairs(t, newOwned(), func(c *corev1.ConfigMap) controller.Patch { return diffConfigMap(newConfigMap(newTenant()), c) }, TrimConfigMap)
	fixture.Differ(t, "rule Z4: fields that are repaired", []string{"data", "label app.kubernetes.io/managed-by", "owner reference"}, fields)

	many := newOwned(func(c *corev1.ConfigMap) {
		for i := range 2 * maxKeys {
			c.Data[fmt.Sprint("a", i)] = strings.Repeat("x", 10_000)
		}
	})
	if patch := diffConfigMap(newConfigMap(newTenant()), TrimConfigMap(many)); string(patch.JSON()) != `{"data":{"$patch":"replace","displayName":"blue","id":"uid-x"},"metadata":{"resourceVersion":"10"}}` {
		t.Errorf("rule Z4: more keys than the cache keeps are repaired with %s", patch.JSON())
	}
	if size := TrimConfigMap(many).Size(); size > 32<<10 {
		t.Errorf("rule Z16: the cache keeps %d bytes of a large ConfigMap", size)
	}
	if kept := TrimConfigMap(newOwned(foreign)); kept != nil {
		t.Errorf("rule Z16: the cache keeps %v of a foreign ConfigMap", kept)
	}
}

// TestReadyCondition: the first finding that applies decides.
func TestReadyCondition(t *testing.T) {
	all := findings{deletion: errNotDeleted, item: errNoService, configMap: newOwned(foreign), invalid: "wrong", refused: errors.New("no"), writes: controller.Report{Contested: "contested", Drift: "drift", Accepted: "accepted"}}
	for _, step := range []struct {
		rule, want string
		next       func()
	}{
		{"rule Z21", "ItemDeletionFailed: deleting the item failed: the external service still has it; it is tried again at least every 30 seconds", func() { all.deletion = nil }},
		{"rule Z11", "InvalidSpec: wrong", func() { all.invalid = "" }},
		{"rule Z7", "ConfigMapRejected: the API server refused: no; it is tried again at least every 5 minutes, and at once when the Tenant changes", func() { all.refused = nil }},
		{"rule Z20", "ItemFailed: the external service is not configured: start the controller with --tenant-endpoint", func() { all.item = nil }},
		{"rule Z5", `ConfigMapNotOwned: ConfigMap "x" exists and has no controller; delete it, or create this Tenant under another name`, func() { all.configMap = newOwned(terminating) }},
		{"rule Z12", "ConfigMapContested: contested", func() { all.writes.Contested = "" }},
		{"rule Z6", `ConfigMapProgressing: ConfigMap "x" is being deleted and will be created anew`, func() { all.configMap = newOwned() }},
		{"rule Z4", `ConfigMapProgressing: ConfigMap "x" was changed by another writer and is about to be repaired: drift`, func() { all.writes.Drift = "" }},
		{"rule Z13", `ConfigMapReady: ConfigMap "x" is as the spec asks; accepted from admission webhooks or policies: accepted`, func() { all.configMap = nil }},
		{"rule Z3", `ConfigMapProgressing: ConfigMap "x" does not exist yet`, func() {}},
	} {
		is := readyCondition(newTenant(), all)
		fixture.Differ(t, step.rule, step.want, is.Reason+": "+is.Message)
		fixture.Differ(t, step.rule+": whether it is True", is.Reason == v1alpha1.ReasonConfigMapReady, is.Status == metav1.ConditionTrue)
		step.next()
	}
}

func TestNewStatus(t *testing.T) {
	theirs := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue}
	tenant := newTenant(ready, func(s *v1alpha1.Tenant) { s.Status.Conditions = append(s.Status.Conditions, theirs) })
	before := tenant.DeepCopy()
	same, lost := newStatus(tenant, findings{configMap: newOwned(), itemID: "uid-x"}, testNow), newStatus(tenant, findings{}, testNow)
	fixture.Differ(t, "rule Z15: the status of the same findings", tenant.Status, same)
	fixture.Differ(t, "rule Z15: a condition of another type", theirs, lost.Conditions[1])
	fixture.Differ(t, "rule Z15: since when it is not ready", testNow, lost.Conditions[0].LastTransitionTime)
	fixture.Differ(t, "the object in the cache", before, tenant)
}

func TestTrimTenant(t *testing.T) {
	tenant := newTenant(ready, func(s *v1alpha1.Tenant) {
		s.Annotations, s.Labels = map[string]string{"a": "b"}, map[string]string{"a": "b"}
	})
	tenant.Finalizers = append(tenant.Finalizers, "theirs")
	fixture.Differ(t, "rule Z16: what the cache keeps", newTenant(ready), TrimTenant(tenant))
	fixture.Differ(t, "rule Z16: without the finalizer", []string(nil), TrimTenant(newTenant(withoutFinalizer)).Finalizers)
}
