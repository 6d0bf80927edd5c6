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

package setting

import (
	"errors"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/newkind/pkg/apis/tuning/v1alpha1"
)

const (
	createX   = "create configmaps x owner=uid-x"
	getX      = "get settings x"
	patchBlue = `patch configmaps x {"data":{"$patch":"replace","color":"blue"},"metadata":{"resourceVersion":"10"}}`
	patchRed  = `patch configmaps x {"data":{"$patch":"replace","color":"red"},"metadata":{"resourceVersion":"10"}}`
	status    = "patch settings/status x version=10 gen=1 "
	isReady   = "True/ConfigMapReady"
	rejected  = "False/ConfigMapRejected"
)

// TestSyncHandler is the Setting contract, rule by rule.
func TestSyncHandler(t *testing.T) {
	its := func(options ...func(*corev1.ConfigMap)) []*corev1.ConfigMap {
		return []*corev1.ConfigMap{newOwned(options...)}
	}
	none, fresh, oops := []*corev1.ConfigMap{}, newSetting(), apierrors.NewInternalError(errors.New("oops"))
	nothing := func(*env) {}
	seen := func(e *env) { must(e.configMapIndexer.Add(newOwned())) }

	tests := map[string]syncTest{
		"rule Y1: for a Setting that is gone nothing is done": {
			configMaps: its(drifted), prepare: func(e *env) { must(e.settingIndexer.Delete(fresh)) }},
		"rule Y2: for one that is terminating nothing is created":    {setting: newSetting(ready, terminating), configMaps: none},
		"rule Y2: and nothing is repaired, and no status is written": {setting: newSetting(terminating), configMaps: its(drifted)},
		"rule Y3: a missing ConfigMap is created": {
			setting: fresh, configMaps: none, requests: []string{createX, status + isReady}, events: "Normal Created, Normal Synced"},
		"rule Y3: a ConfigMap that was there is created again after a live read of the Setting": {
			configMaps: none, requests: []string{createX, getX}, events: "Normal Created", again: time.Second},
		"rule Y3: that of a Setting that is gone from the API server is not": {
			configMaps: none, prepare: func(e *env) { must(e.tracker.Delete(settingsResource, testNamespace, "x")) },
			requests: []string{getX}, err: "the cache is out of date"},
		"rule Y3: after AlreadyExists the ConfigMap is read live, and the next sync decides": {
			setting: fresh, configMaps: none, prepare: func(e *env) { must(e.kube.Tracker().Add(newOwned(foreign))) },
			requests: []string{createX, "get configmaps x"}, err: `ConfigMap "x" exists: the caches are behind`},
		"rule Y4: drift is repaired with one patch": {configMaps: its(drifted), requests: []string{patchBlue}, events: "Normal Updated", again: time.Second},
		"rule Y4: a new spec is written with one patch, and reported": {
			setting: newSetting(ready, red), requests: []string{patchRed, "patch settings/status x version=10 gen=2 " + isReady}, events: "Normal Updated"},
		"rule Y4: while the cache may be older than what a former leader acted on, the live Setting is read before": {
			configMaps: its(drifted), prepare: func(e *env) { e.settingIndexer.Bookmark("9") }, requests: []string{patchBlue, getX}, events: "Normal Updated", again: time.Second},
		"rule Y5: a ConfigMap without a controller is reported, and never touched": {
			setting: fresh, configMaps: its(drifted, foreign), requests: []string{status + "False/ConfigMapNotOwned"}, events: "Warning ErrResourceExists"},
		"rule Y5: that of an earlier Setting is waited for": {
			setting: fresh, configMaps: its(func(c *corev1.ConfigMap) { c.OwnerReferences[0].UID = "earlier" }),
			requests: []string{status + "False/ConfigMapNotOwned"}, events: "Warning ErrResourceExists"},
		"rule Y5: while it is in the way nothing is written, told or tried again": {
			setting: newSetting(reported(findings{configMap: newOwned(foreign)})), configMaps: its(foreign)},
		"rule Y6: a ConfigMap that is being deleted is left alone": {
			configMaps: its(drifted, terminating), requests: []string{status + "False/ConfigMapProgressing"}},
		"rule Y7: a refusal is reported, told once, and tried again with backoff": {
			setting: fresh, configMaps: none, prepare: failing("create", forbidden()),
			requests: []string{createX, status + rejected}, events: "Warning ConfigMapRejected", err: "exceeded quota"},
		"rule Y7: a refusal that the status tells of changes nothing": {
			setting:    newSetting(reported(findings{refused: errors.New(`creating ConfigMap "x": configmaps "x" is forbidden: exceeded quota`)})),
			configMaps: none, prepare: failing("create", forbidden()), requests: []string{createX}, err: "exceeded quota"},
		"rule Y7: a ConfigMap whose owner reference admission removes stays refused": {
			setting: fresh, configMaps: none, prepare: answering("create", newOwned(foreign)), then: func(e *env) { must(e.configMapIndexer.Add(newOwned(foreign))) },
			requests: []string{createX, status + rejected, status + rejected}, events: "Warning ConfigMapRejected, Warning ConfigMapRejected", err: "overrides it"},
		"rule Y8: other failures are tried again, and the status stays": {
			setting: fresh, configMaps: none, prepare: failing("create", oops), requests: []string{createX}, err: "oops"},
		"rule Y9: the next sync waits until the cache shows a write": {
			setting: newSetting(ready, red), prepare: answering("patch", newOwned(func(c *corev1.ConfigMap) { c.ResourceVersion, c.Data["color"] = "11", "red" })), then: nothing,
			requests: []string{patchRed, "patch settings/status x version=10 gen=2 " + isReady}, events: "Normal Updated", err: "the caches are behind"},
		"rule Y10: at rest nothing is written": {},
		"rule Y11: an invalid spec is told once, is not tried again, and leaves the ConfigMap alone": {
			setting: newSetting(func(s *v1alpha1.Setting) { s.Spec.Data = map[string]string{"two words": ""} }), configMaps: its(drifted),
			requests: []string{status + "False/InvalidSpec"}, events: "Warning InvalidSpec"},
		"rule Y13: what admission made of a write is told, and not written again": {
			setting: newSetting(red, reported(findings{})), prepare: answering("patch", newOwned()), then: seen,
			requests: []string{patchRed, "patch settings/status x version=10 gen=2 " + isReady, "patch settings/status x version=10 gen=2 " + isReady},
			events:   "Normal Synced, Normal Synced"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test.run) })
	}
}

// TestContention: another writer undoes each repair.
func TestContention(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newEnv(t, newSetting(ready), newOwned(drifted))
		must(e.configMapIndexer.Add(newOwned(drifted)))
		for _, pause := range []time.Duration{time.Second, 2 * time.Second, 4 * time.Second, 8 * time.Second, 16 * time.Second} {
			e.kube.ClearActions()
			for range 2 {
				setting, err := e.tracker.Get(settingsResource, testNamespace, "x")
				must(err)
				must(e.settingIndexer.Add(setting.(*v1alpha1.Setting)))
				if _, err := e.syncHandler(ctx, testKey); err != nil {
					t.Error(err)
				}
			}
			// At the last one the ConfigMap is read, for the name of the writer.
			requests := e.requests()
			if len(e.kube.Actions()) > 2 || len(requests) == 0 {
				t.Errorf("rule Y12: requests in a pause: %q", requests)
			}
			time.Sleep(pause)
		}
		setting, err := e.tracker.Get(settingsResource, testNamespace, "x")
		must(err)
		is := controller.GetReady(setting.(*v1alpha1.Setting).Status.Conditions)
		fixture.Differ(t, "rule Y12: Ready", metav1.Condition{
			Type: controller.Ready, Status: metav1.ConditionFalse, ObservedGeneration: 1, LastTransitionTime: is.LastTransitionTime, Reason: v1alpha1.ReasonConfigMapContested,
			Message: `another writer keeps changing what this Setting enforces on ConfigMap "x": data (by a writer that is not on record); stop that writer, and change the Setting instead`,
		}, is)
	})
}

// TestWatches: the Setting is enqueued by its own events and by those of ConfigMaps that it may be about.
func TestWatches(t *testing.T) {
	other := func(c *corev1.ConfigMap) { c.Name = "other" }
	newer := func(c *corev1.ConfigMap) { c.ResourceVersion = "11" }
	for name, test := range map[string]struct {
		old, configMap *corev1.ConfigMap
		want           []string
	}{
		"rule Y14: its ConfigMap changes":                              {newOwned(), newOwned(drifted, newer), []string{"x"}},
		"rule Y14: its ConfigMap goes":                                 {newOwned(), nil, []string{"x"}},
		"rule Y14: a foreign ConfigMap of its name comes":              {nil, newOwned(foreign), []string{"x"}},
		"rule Y14: a foreign ConfigMap of its name goes":               {newOwned(foreign), nil, []string{"x"}},
		"rule Y14: a ConfigMap of another name loses it as controller": {newOwned(other), newOwned(other, foreign, newer), []string{"x"}},
		"rule Y14: a foreign ConfigMap of another name changes":        {newOwned(other, foreign), newOwned(other, foreign, drifted, newer), nil},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, e := newEnv(t, newSetting())
				must(e.settingIndexer.Add(newSetting()))
				fixture.Tell(e.configMaps.EventHandler(e.enqueueNamed), test.old, test.configMap)
				fixture.Differ(t, "keys", test.want, fixture.Enqueued(e.Worker, 0))
			})
		})
	}
}

// TestRun follows one Setting through a running controller: to its ConfigMap, which comes back after a deletion,
// and to rest.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newEnv(t, newSetting())
		// By the version of a status that is written the controller knows that its cache has the write.
		e.own.PrependReactor("patch", "settings", func(action clienttesting.Action) (bool, runtime.Object, error) {
			patched, err := fixture.Patch(e.tracker, action.(clienttesting.PatchAction))
			return true, patched, err
		})
		stop := fixture.Run(ctx, t, e.Worker, e.factories...)
		time.Sleep(time.Minute)
		synctest.Wait()
		// The fake API server has no versions, by which the controller would know that its cache is recent.
		fixture.Differ(t, "rule Y3: requests for a new Setting", []string{createX, getX, status + isReady}, e.requests())
		must(e.kube.Tracker().Delete(configMapsResource, testNamespace, "x"))
		time.Sleep(time.Minute)
		synctest.Wait()
		fixture.Differ(t, "rule Y3: requests after another client has deleted the ConfigMap", []string{createX, createX, getX, status + isReady, getX}, e.requests())
		e.kube.ClearActions()
		e.own.ClearActions()
		time.Sleep(time.Hour)
		synctest.Wait()
		fixture.Differ(t, "rule Y10: requests in an hour without a change", []string(nil), e.requests())
		stop()
	})
}

// TestNewTwice: New returns an error if the informers have their index already.
func TestNewTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newEnv(t, newSetting())
		if c, err := New(ctx, e.options); c != nil || err == nil {
			t.Errorf("controller %v, error %v", c, err)
		}
	})
}
