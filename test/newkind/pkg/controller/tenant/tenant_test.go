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
	"cmp"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/newkind/pkg/apis/tenancy/v1alpha1"
	"example.com/sample-controller/test/newkind/pkg/app"
	clientfake "example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/test/newkind/pkg/generated/informers/externalversions"
)

const (
	createX   = "create configmaps x owner=uid-x"
	getX      = "get tenants x"
	patchBlue = `patch configmaps x {"data":{"$patch":"replace","displayName":"blue","id":"uid-x"},"metadata":{"resourceVersion":"10"}}`
	patchRed  = `patch configmaps x {"data":{"$patch":"replace","displayName":"red","id":"uid-x"},"metadata":{"resourceVersion":"10"}}`
	status    = "status x version=10 gen=1 "
	withItem  = " itemID=uid-x" // +external
	isReady   = "True/ConfigMapReady" + withItem
	redStatus = "status x version=10 gen=2 " + isReady
	rejected  = status + "False/ConfigMapRejected"
)

var tenantsResource = v1alpha1.Resource("tenants").WithVersion("v1alpha1")

// env is a controller whose caches and API server are filled separately, by hand.
type env struct {
	*fixture.Env
	*Controller

	external *fakeService // +external
}

// newEnv returns a controller with those objects in the API server and in its caches. The caller is in a synctest
// bubble.
func newEnv(t *testing.T, tenant *v1alpha1.Tenant, configMaps ...*corev1.ConfigMap) (context.Context, *env) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	own := clientfake.NewSimpleClientset()
	e := &env{Env: fixture.NewEnv(t, tenantKind, own, scheme.Scheme, fixture.Objects(configMaps)...)}
	fixture.Create(e.Tracker, tenantsResource, []*v1alpha1.Tenant{tenant})
	informers := externalversions.NewSharedInformerFactory(own, 0)
	var err error
	e.Controller, err = New(&app.ControllerContext{KubeClient: e.Kube, Client: own, KubeInformers: e.KubeInformers, Informers: informers, Options: e.Shared})
	fixture.Must(err)
	e.serve(newItem(tenant)) // +external
	e.tenants.ReadStartVersion(ctx)
	e.see(configMaps...)
	return ctx, e
}

// see makes the caches show the Tenant that the API server has, and those ConfigMaps.
func (e *env) see(configMaps ...*corev1.ConfigMap) {
	tenant, err := e.Tracker.Get(tenantsResource, "ns", "x")
	fixture.Must(err)
	fixture.See(e.tenants.Informer, TrimTenant, tenant.(*v1alpha1.Tenant))
	fixture.See(e.configMaps.Informer, TrimConfigMap, configMaps...)
}

// newTenant returns a Tenant "x".
func newTenant(options ...func(*v1alpha1.Tenant)) *v1alpha1.Tenant {
	tenant := &v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "ns", UID: "uid-x", Generation: 1, ResourceVersion: fixture.Version},
		Spec:       v1alpha1.TenantSpec{DisplayName: "blue"},
	}
	tenant.Finalizers = []string{finalizer} // +external
	return fixture.With(tenant, options)
}

// newOwned returns the ConfigMap of the Tenant "x", as it is stored.
func newOwned(options ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	configMap := newConfigMap(newTenant())
	configMap.UID, configMap.ResourceVersion = "uid-configmap", fixture.Version
	return fixture.With(configMap, options)
}

// ready gives the Tenant the status of one that is as the spec asks.
func ready(tenant *v1alpha1.Tenant) {
	f := findings{configMap: newOwned()}
	f.itemID = "uid-x" // +external
	tenant.Status = newStatus(tenant, f, metav1.Unix(1, 0))
}

// red gives the Tenant a new spec.
func red(tenant *v1alpha1.Tenant) {
	tenant.Generation, tenant.Spec.DisplayName = 2, "red"
}

func drifted(configMap *corev1.ConfigMap) { configMap.Data["displayName"] = "green" }

func foreign(configMap *corev1.ConfigMap) { configMap.OwnerReferences = nil }

func terminating[T metav1.Object](object T) {
	object.SetDeletionTimestamp(new(metav1.Now()))
	object.SetFinalizers([]string{"x"})
}

// syncTest is one call of syncHandler for the Tenant "x", and all that the call does.
type syncTest struct {
	// tenant and configMaps are what caches and API server have: without them a Tenant that is ready and its ConfigMap.
	// prepare changes what they have, or answer.
	tenant     *v1alpha1.Tenant
	configMaps []*corev1.ConfigMap
	prepare    func(*env)
	// then is called before a second call of syncHandler, a second later. Without it there is none.
	then func(*env)

	requests []string
	// events are types and reasons, err is a part of the error.
	events, err string
	again       time.Duration
}

func (test syncTest) run(t *testing.T) {
	test.tenant = cmp.Or(test.tenant, newTenant(ready))
	if test.configMaps == nil {
		test.configMaps = its()
	}
	ctx, e := newEnv(t, test.tenant, test.configMaps...)
	if test.prepare != nil {
		test.prepare(e)
	}
	again, err := e.syncHandler(ctx, cache.NewObjectName("ns", "x"))
	if test.then != nil {
		time.Sleep(time.Second)
		test.then(e)
		again, err = e.syncHandler(ctx, cache.NewObjectName("ns", "x"))
	}
	// +external:begin
	if again == itemCheckPeriod && test.again == 0 {
		again = 0
	}
	// +external:end
	e.Expect(t, test.requests, test.events, test.err, err)
	fixture.Differ(t, "to be called again after", test.again, again)
}

func none() []*corev1.ConfigMap { return []*corev1.ConfigMap{} }

func its(options ...func(*corev1.ConfigMap)) []*corev1.ConfigMap {
	return []*corev1.ConfigMap{newOwned(options...)}
}

func forbidden() error {
	return apierrors.NewForbidden(corev1.Resource("configmaps"), "x", errors.New("exceeded quota"))
}

// TestSyncHandler is what the Tenant contract says of one call. TestExplore has what a sequence of calls leads to.
func TestSyncHandler(t *testing.T) {
	fresh := newTenant()
	answer := func(verb string, object *corev1.ConfigMap, err error) func(*env) {
		return func(e *env) { fixture.Answer(&e.Kube.Fake, verb, "configmaps", object, err) }
	}
	for name, test := range map[string]syncTest{
		"rule Z2: for a terminating Tenant nothing is written": {tenant: newTenant(terminating), configMaps: its(drifted)},
		"rule Z3: a missing ConfigMap is created": {
			tenant: fresh, configMaps: none(), requests: []string{createX, status + isReady}, events: "Normal Created, Normal Synced"},
		"rule Z4: drift is repaired with one patch": {
			configMaps: its(drifted), requests: []string{patchBlue}, events: "Normal Updated", again: time.Second},
		"rule Z5: a ConfigMap without a controller is reported, and never touched": {
			tenant: fresh, configMaps: its(drifted, foreign), requests: []string{status + "False/ConfigMapNotOwned" + withItem}, events: "Warning ErrResourceExists"},
		"rule Z6: a ConfigMap that is being deleted is left alone": {
			configMaps: its(drifted, terminating), requests: []string{status + "False/ConfigMapProgressing" + withItem}},
		"rule Z6: of a new Tenant that is told a second later": {tenant: fresh, configMaps: its(terminating), again: time.Second},
		"rule Z7: a refusal is reported, and tried again with backoff": {
			tenant: fresh, configMaps: none(), prepare: answer("create", nil, forbidden()), requests: []string{createX, rejected + withItem}, events: "Warning ConfigMapRejected", err: "exceeded quota"},
		"rule Z7: a ConfigMap whose owner reference admission removes stays refused": {
			tenant: fresh, configMaps: none(), prepare: answer("create", newOwned(foreign), nil), then: func(e *env) { e.see(newOwned(foreign)) },
			requests: []string{createX, rejected + withItem, "status x version=100 gen=1 False/ConfigMapRejected" + withItem}, events: "Warning ConfigMapRejected, Warning ConfigMapRejected", err: "overrides it"},
		"rule Z8: other failures are tried again, and the status stays": {
			tenant: fresh, configMaps: none(), prepare: answer("create", nil, errors.New("oops")), requests: []string{createX}, err: "oops"},
		"rule Z9: the next sync waits until the cache shows a write": {
			tenant: newTenant(ready, red), then: func(*env) {}, requests: []string{patchRed, redStatus}, events: "Normal Updated", err: "the caches are behind"},
		"rule Z11: an invalid spec is told, is not tried again, and leaves the ConfigMap alone": {
			tenant: newTenant(func(s *v1alpha1.Tenant) { s.Spec.DisplayName = "" }), configMaps: its(drifted), requests: []string{status + "False/InvalidSpec"}, events: "Warning InvalidSpec"},
		"rule Z13: what admission made of a write is told, and not written again": {
			tenant: newTenant(red), prepare: answer("patch", newOwned(), nil), then: func(e *env) { e.see(newOwned()) }, events: "Normal Synced",
			requests: []string{patchRed, "status x version=10 gen=2 True/ConfigMapReady; accepted from admission webhooks or policies: data displayName=blue,id=uid-x in place of displayName=red,id=uid-x" + withItem}},
		"rule Z15: conditions of other types are kept": {
			tenant: newTenant(func(o *v1alpha1.Tenant) {
				o.Status.Conditions = []metav1.Condition{{Type: "Theirs", Status: metav1.ConditionTrue}}
			}),
			requests: []string{status + "True/ConfigMapReady Theirs=True" + withItem}, events: "Normal Synced"},
	} {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test.run) })
	}
}

// TestRepairs: whatever another writer changes of what is enforced, one patch takes it back, and nothing else. The
// cache keeps what is compared.
func TestRepairs(t *testing.T) {
	diff := func(c *corev1.ConfigMap) controller.Patch { return diffConfigMap(nil, newConfigMap(newTenant()), c) }
	fields := fixture.CheckRepairs(t, newOwned(), diff, TrimConfigMap)
	fixture.Differ(t, "rule Z4: fields that are repaired", []string{"data", "label app.kubernetes.io/managed-by"}, fields)

	many := newOwned(func(c *corev1.ConfigMap) {
		for i := range 2 * maxKeys {
			c.Data[fmt.Sprint("a", i)] = strings.Repeat("x", 10_000)
		}
	})
	if kept := TrimConfigMap(many); len(kept.Data) != maxKeys+1 || kept.Size() > 32<<10 {
		t.Errorf("rule Z16: the cache keeps %d keys and %d bytes of a large ConfigMap", len(kept.Data), kept.Size())
	}
	if kept := TrimConfigMap(newOwned(foreign)); kept != nil {
		t.Errorf("rule Z16: the cache keeps %v of a foreign ConfigMap", kept)
	}
}

// TestReadyCondition: the first finding that applies decides.
func TestReadyCondition(t *testing.T) {
	tenant := newTenant(func(s *v1alpha1.Tenant) { s.Spec.DisplayName = "" })
	all := findings{configMap: newOwned(foreign), refused: errors.New("no"), writes: controller.Report{Contested: "contested", Drift: "drift", Accepted: "accepted"}}
	all.deletion, all.item = errNotDeleted, errNoService // +external
	for _, step := range []struct {
		rule, want string
		next       func()
	}{
		{"rule Z21: ", "ItemDeletionFailed: deleting the item failed: the external service still has it; it is tried again at least every 30 seconds", func() { all.deletion = nil }}, // +external
		{"rule Z11: ", "InvalidSpec: spec.displayName is not set; set it to a name for people", func() { tenant.Spec.DisplayName = "blue" }},
		{"rule Z7: ", "ConfigMapRejected: the API server refused: no; it is tried again at least every 5 minutes, and at once when the Tenant changes", func() { all.refused = nil }},
		{"rule Z20: ", "ItemFailed: the external service is not configured: start the controller with --tenant-endpoint", func() { all.item = nil }}, // +external
		{"rule Z5: ", `ConfigMapNotOwned: ConfigMap "x" exists and has no controller; delete it, or create this Tenant under another name`, func() { all.configMap = newOwned(terminating) }},
		{"rule Z12: ", "ConfigMapContested: contested", func() { all.writes.Contested = "" }},
		{"rule Z6: ", `ConfigMapProgressing: ConfigMap "x" is being deleted and will be created anew`, func() { all.configMap = newOwned() }},
		{"rule Z4: ", `ConfigMapProgressing: ConfigMap "x" was changed by another writer and is about to be repaired: drift`, func() { all.writes.Drift = "" }},
		{"rule Z13: ", `ConfigMapReady: ConfigMap "x" is as the spec asks; accepted from admission webhooks or policies: accepted`, func() { all.configMap = nil }},
		{"rule Z3: ", `ConfigMapProgressing: ConfigMap "x" does not exist yet`, func() {}},
	} {
		is, isReady := readyCondition(tenant, all), strings.HasPrefix(step.want, "ConfigMapReady")
		fixture.Differ(t, step.rule+"Ready", step.want, is.Reason+": "+is.Message)
		fixture.Differ(t, step.rule+"whether it is True", isReady, is.Status == metav1.ConditionTrue)
		step.next()
	}
}

func TestTrimTenant(t *testing.T) {
	tenant := newTenant(ready, func(s *v1alpha1.Tenant) {
		s.Annotations, s.Labels = map[string]string{"a": "b"}, map[string]string{"a": "b"}
	})
	tenant.Finalizers = append(tenant.Finalizers, "theirs")
	fixture.Differ(t, "rule Z16: what the cache keeps", newTenant(ready), TrimTenant(tenant))
	fixture.Differ(t, "rule Z16: without the finalizer", []string(nil), TrimTenant(newTenant(withoutFinalizer)).Finalizers) // +external
}
