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
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/newkind/pkg/apis/tenancy/v1alpha1"
)

const (
	createX   = "create configmaps x owner=uid-x"
	getX      = "get tenants x"
	patchBlue = `patch configmaps x {"data":{"$patch":"replace","displayName":"blue","id":"uid-x"},"metadata":{"resourceVersion":"10"}}`
	patchRed  = `patch configmaps x {"data":{"$patch":"replace","displayName":"red","id":"uid-x"},"metadata":{"resourceVersion":"10"}}`
	putRed    = `put uid-x {ns/x red}`
	redStatus = "patch tenants/status x version=10 gen=2 item=uid-x "
	status    = "patch tenants/status x version=10 gen=1 item=uid-x "
	isReady   = "True/ConfigMapReady"
	rejected  = "False/ConfigMapRejected"
)

// TestSyncHandler is the Tenant contract, rule by rule.
func TestSyncHandler(t *testing.T) {
	its := func(options ...func(*corev1.ConfigMap)) []*corev1.ConfigMap {
		return []*corev1.ConfigMap{newOwned(options...)}
	}
	none, fresh, oops := []*corev1.ConfigMap{}, newTenant(), apierrors.NewInternalError(errors.New("oops"))
	nothing := func(*env) {}
	seen := func(e *env) { must(e.configMapIndexer.Add(newOwned())) }

	tests := map[string]syncTest{
		"rule Z1: for a Tenant that is gone nothing is done": {
			configMaps: its(drifted), prepare: func(e *env) { must(e.tenantIndexer.Delete(fresh)) }},
		"rule Z2: for one that is terminating nothing is created":    {tenant: newTenant(ready, terminating), configMaps: none},
		"rule Z2: and nothing is repaired, and no status is written": {tenant: newTenant(terminating), configMaps: its(drifted)},
		"rule Z3: a missing ConfigMap is created": {
			tenant: fresh, configMaps: none, requests: []string{createX, status + isReady}, events: "Normal Created, Normal Synced"},
		"rule Z3: a ConfigMap that was there is created again after a live read of the Tenant": {
			configMaps: none, requests: []string{createX, getX}, events: "Normal Created", again: time.Second},
		"rule Z3: that of a Tenant that is gone from the API server is not": {
			configMaps: none, prepare: func(e *env) { must(e.tracker.Delete(tenantsResource, testNamespace, "x")) },
			requests: []string{getX}, err: "the cache is out of date"},
		"rule Z3: after AlreadyExists the ConfigMap is read live, and the next sync decides": {
			tenant: fresh, configMaps: none, prepare: func(e *env) { must(e.kube.Tracker().Add(newOwned(foreign))) },
			requests: []string{createX, "get configmaps x"}, err: `ConfigMap "x" exists: the caches are behind`},
		"rule Z4: drift is repaired with one patch": {configMaps: its(drifted), requests: []string{patchBlue}, events: "Normal Updated", again: time.Second},
		"rule Z4: a new spec is written with one patch, and reported": {
			tenant: newTenant(ready, red), requests: []string{patchRed, redStatus + isReady}, events: "Normal Updated"},
		"rule Z4: while the cache may be older than what a former leader acted on, the live Tenant is read before": {
			configMaps: its(drifted), prepare: func(e *env) { e.tenantIndexer.Bookmark("9") }, requests: []string{patchBlue, getX}, events: "Normal Updated", again: time.Second},
		"rule Z5: a ConfigMap without a controller is reported, and never touched": {
			tenant: fresh, configMaps: its(drifted, foreign), requests: []string{status + "False/ConfigMapNotOwned"}, events: "Warning ErrResourceExists"},
		"rule Z5: that of an earlier Tenant is waited for": {
			tenant: fresh, configMaps: its(func(c *corev1.ConfigMap) { c.OwnerReferences[0].UID = "earlier" }),
			requests: []string{status + "False/ConfigMapNotOwned"}, events: "Warning ErrResourceExists"},
		"rule Z5: while it is in the way nothing is written, told or tried again": {
			tenant: newTenant(reported(findings{configMap: newOwned(foreign), itemID: "uid-x"})), configMaps: its(foreign)},
		"rule Z6: a ConfigMap that is being deleted is left alone": {
			configMaps: its(drifted, terminating), requests: []string{status + "False/ConfigMapProgressing"}},
		"rule Z7: a refusal is reported, told once, and tried again with backoff": {
			tenant: fresh, configMaps: none, prepare: failing("create", forbidden()),
			requests: []string{createX, status + rejected}, events: "Warning ConfigMapRejected", err: "exceeded quota"},
		"rule Z7: a refusal that the status tells of changes nothing": {
			tenant:     newTenant(reported(findings{itemID: "uid-x", refused: errors.New(`creating ConfigMap "x": configmaps "x" is forbidden: exceeded quota`)})),
			configMaps: none, prepare: failing("create", forbidden()), requests: []string{createX}, err: "exceeded quota"},
		"rule Z7: a ConfigMap whose owner reference admission removes stays refused": {
			tenant: fresh, configMaps: none, prepare: answering("create", newOwned(foreign)), then: func(e *env) { must(e.configMapIndexer.Add(newOwned(foreign))) },
			requests: []string{createX, status + rejected, status + rejected}, events: "Warning ConfigMapRejected, Warning ConfigMapRejected", err: "overrides it"},
		"rule Z8: other failures are tried again, and the status stays": {
			tenant: fresh, configMaps: none, prepare: failing("create", oops), requests: []string{createX}, err: "oops"},
		"rule Z9: the next sync waits until the cache shows a write": {
			tenant: newTenant(ready, red), prepare: answering("patch", newOwned(func(c *corev1.ConfigMap) { c.ResourceVersion, c.Data["displayName"] = "11", "red" })), then: nothing,
			requests: []string{patchRed, redStatus + isReady}, events: "Normal Updated", err: "the caches are behind"},
		"rule Z10: at rest nothing is written": {},
		"rule Z11: an invalid spec is told once, is not tried again, and leaves the ConfigMap alone": {
			tenant: newTenant(func(s *v1alpha1.Tenant) { s.Spec.DisplayName = "" }), configMaps: its(drifted),
			requests: []string{"patch tenants/status x version=10 gen=1 item= False/InvalidSpec"}, events: "Warning InvalidSpec"},
		"rule Z13: what admission made of a write is told, and not written again": {
			tenant: newTenant(red, reported(findings{})), prepare: answering("patch", newOwned()), then: seen,
			requests: []string{patchRed, redStatus + isReady, redStatus + isReady},
			events:   "Normal Synced, Normal Synced"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test.run) })
	}
}

// TestContention: another writer undoes each repair.
func TestContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newEnv(t, newTenant(ready), newOwned(drifted))
		must(e.configMapIndexer.Add(newOwned(drifted)))
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second} {
			e.kube.ClearActions()
			for range 2 {
				tenant, err := e.tracker.Get(tenantsResource, testNamespace, "x")
				must(err)
				must(e.tenantIndexer.Add(tenant.(*v1alpha1.Tenant)))
				if _, err := e.syncHandler(ctx, testKey); err != nil {
					t.Error(err)
				}
			}
			// At the last one the ConfigMap is read, for the name of the writer.
			requests := e.requests()
			if len(e.kube.Actions()) > 2 || len(requests) == 0 {
				t.Errorf("rule Z12: requests in a pause: %q", requests)
			}
			time.Sleep(pause)
		}
		tenant, err := e.tracker.Get(tenantsResource, testNamespace, "x")
		must(err)
		is := controller.GetReady(tenant.(*v1alpha1.Tenant).Status.Conditions)
		fixture.Differ(t, "rule Z12: Ready", metav1.Condition{
			Type: controller.Ready, Status: metav1.ConditionFalse, ObservedGeneration: 1, LastTransitionTime: is.LastTransitionTime, Reason: v1alpha1.ReasonConfigMapContested,
			Message: `another writer keeps changing what this Tenant enforces on ConfigMap "x": data (by a writer that is not on record); stop that writer, and change the Tenant instead`,
		}, is)
	})
}

// TestWatches: the Tenant is enqueued by its own events and by those of ConfigMaps that it may be about.
func TestWatches(t *testing.T) {
	other := func(c *corev1.ConfigMap) { c.Name = "other" }
	newer := func(c *corev1.ConfigMap) { c.ResourceVersion = "11" }
	for name, test := range map[string]struct {
		old, configMap *corev1.ConfigMap
		want           []string
	}{
		"rule Z14: its ConfigMap changes":                              {newOwned(), newOwned(drifted, newer), []string{"x"}},
		"rule Z14: its ConfigMap goes":                                 {newOwned(), nil, []string{"x"}},
		"rule Z14: a foreign ConfigMap of its name comes":              {nil, newOwned(foreign), []string{"x"}},
		"rule Z14: a foreign ConfigMap of its name goes":               {newOwned(foreign), nil, []string{"x"}},
		"rule Z14: a ConfigMap of another name loses it as controller": {newOwned(other), newOwned(other, foreign, newer), []string{"x"}},
		"rule Z14: a foreign ConfigMap of another name changes":        {newOwned(other, foreign), newOwned(other, foreign, drifted, newer), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, e := newEnv(t, newTenant())
				must(e.tenantIndexer.Add(newTenant()))
				fixture.Tell(e.configMaps.EventHandler(e.enqueueNamed), test.old, test.configMap)
				fixture.Differ(t, "keys", test.want, fixture.Enqueued(e.Worker, 0))
			})
		})
	}
}

// TestRun follows one Tenant through a running controller: to its item and its ConfigMap, which come back after a
// deletion, to rest, and to its end.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newEnv(t, newTenant(withoutFinalizer))
		e.hasVersions = true
		stop := fixture.Run(ctx, t, e.Worker, e.factories...)
		time.Sleep(time.Minute)
		synctest.Wait()
		fixture.Differ(t, "rule Z17: requests for a new Tenant", []string{
			createX, "put uid-x {ns/x blue}", getX, addFinalizer, getX, "patch tenants/status x version=100 gen=1 item=uid-x " + isReady,
		}, e.requests())
		must(e.kube.Tracker().Delete(configMapsResource, testNamespace, "x"))
		e.service.locked(func() { delete(e.service.items, "uid-x") })
		e.clear()
		time.Sleep(time.Minute)
		synctest.Wait()
		fixture.Differ(t, "rule Z3: requests after others have deleted item and ConfigMap", []string{createX, "put uid-x {ns/x blue}", getX, getX}, e.requests())
		e.clear()
		time.Sleep(time.Hour)
		synctest.Wait()
		fixture.Differ(t, "rule Z10: requests in an hour without a change", []string(nil), e.requests())
		fixture.Differ(t, "rule Z18: reads of the item in an hour", 6, e.service.reads)
		stop()
	})
}

// TestNewTwice: New returns an error if the informers have their index already.
func TestNewTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newEnv(t, newTenant())
		if c, err := New(ctx, e.options); c != nil || err == nil {
			t.Errorf("controller %v, error %v", c, err)
		}
	})
}
