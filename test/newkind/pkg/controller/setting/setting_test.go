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
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/newkind/pkg/apis/tuning/v1alpha1"
	"example.com/sample-controller/test/newkind/pkg/app"
	clientfake "example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/test/newkind/pkg/generated/informers/externalversions"
)

const (
	createX   = "create configmaps x owner=uid-x"
	getX      = "get settings x"
	patchBlue = `patch configmaps x {"data":{"$patch":"replace","color":"blue"},"metadata":{"resourceVersion":"10"}}`
	patchRed  = `patch configmaps x {"data":{"$patch":"replace","color":"red"},"metadata":{"resourceVersion":"10"}}`
	status    = "status x version=10 gen=1 "
	isReady   = "True/ConfigMapReady"
	rejected  = status + "False/ConfigMapRejected"
)

var settingsResource = v1alpha1.Resource("settings").WithVersion("v1alpha1")

// env is a controller whose caches and API server are filled separately, by hand.
type env struct {
	*fixture.Env
	*Controller
}

// newEnv returns a controller with those objects in the API server and in its caches. The caller is in a synctest
// bubble.
func newEnv(t *testing.T, setting *v1alpha1.Setting, configMaps ...*corev1.ConfigMap) (context.Context, *env) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	own := &clientfake.Clientset{}
	e := &env{Env: fixture.NewEnv(t, settingKind, &own.Fake, scheme.Scheme, fixture.Objects(configMaps)...)}
	fixture.Create(t, e.Tracker, settingsResource, []*v1alpha1.Setting{setting})
	informers := externalversions.NewSharedInformerFactory(own, 0)
	var err error
	e.Controller, err = New(&app.ControllerContext{KubeClient: e.Kube, Client: own, KubeInformers: e.KubeInformers, Informers: informers, Options: e.Shared})
	fixture.Must(err)
	e.settings.ReadStartVersion(ctx)
	e.see(configMaps...)
	return ctx, e
}

// see makes the caches show the Setting that the API server has, and those ConfigMaps.
func (e *env) see(configMaps ...*corev1.ConfigMap) {
	setting, err := e.Tracker.Get(settingsResource, "ns", "x")
	fixture.Must(err)
	fixture.See(e.settings.Informer, TrimSetting, setting.(*v1alpha1.Setting))
	fixture.See(e.configMaps.Informer, TrimConfigMap, configMaps...)
}

// newSetting returns a Setting "x" that the controller has not seen.
func newSetting(options ...func(*v1alpha1.Setting)) *v1alpha1.Setting {
	return fixture.With(&v1alpha1.Setting{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: "ns", UID: "uid-x", Generation: 1, ResourceVersion: fixture.Version},
		Spec:       v1alpha1.SettingSpec{Data: map[string]string{"color": "blue"}},
	}, options)
}

// newOwned returns the ConfigMap of the Setting "x", as it is stored.
func newOwned(options ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	configMap := newConfigMap(newSetting())
	configMap.UID, configMap.ResourceVersion = "uid-configmap", fixture.Version
	return fixture.With(configMap, options)
}

// ready gives the Setting the status of one with its ConfigMap.
func ready(setting *v1alpha1.Setting) {
	setting.Status = newStatus(setting, findings{configMap: newOwned()}, metav1.Unix(1, 0))
}

// red gives the Setting a new spec.
func red(setting *v1alpha1.Setting) {
	setting.Generation, setting.Spec.Data = 2, map[string]string{"color": "red"}
}

func drifted(configMap *corev1.ConfigMap) { configMap.Data = map[string]string{"color": "green"} }

func foreign(configMap *corev1.ConfigMap) { configMap.OwnerReferences = nil }

func terminating[T metav1.Object](object T) {
	object.SetDeletionTimestamp(new(metav1.Now()))
	object.SetFinalizers([]string{"x"})
}

// TestSyncHandler is the Setting contract, rule by rule: one call of syncHandler for the Setting "x", and all that the
// call does. TestExplore has what a sequence of calls leads to.
func TestSyncHandler(t *testing.T) {
	none, fresh := []*corev1.ConfigMap{}, newSetting()
	its := func(options ...func(*corev1.ConfigMap)) []*corev1.ConfigMap {
		return []*corev1.ConfigMap{newOwned(options...)}
	}
	answer := func(verb string, object *corev1.ConfigMap, err error) func(*env) {
		return func(e *env) { fixture.Answer(&e.Kube.Fake, verb, "configmaps", object, err) }
	}
	for name, test := range map[string]struct {
		// setting and configMaps are what caches and API server have: without them a Setting that is ready and its
		// ConfigMap. prepare changes what they have, or answer.
		setting    *v1alpha1.Setting
		configMaps []*corev1.ConfigMap
		prepare    func(*env)
		// then is called before a second call of syncHandler, a second later. Without it there is none.
		then func(*env)

		requests []string
		// events are types and reasons, err is a part of the error.
		events, err string
		again       time.Duration
	}{
		"rule Y1: for a Setting that is gone nothing is done": {
			configMaps: its(drifted), prepare: func(e *env) { fixture.Must(e.settings.Informer.GetIndexer().Delete(fresh)) }},
		"rule Y2: for a terminating one nothing is created": {setting: newSetting(ready, terminating), configMaps: none},
		"rule Y2: and nothing is repaired or reported":      {setting: newSetting(terminating), configMaps: its(drifted)},
		"rule Y3: a missing ConfigMap is created":           {setting: fresh, configMaps: none, requests: []string{createX, status + isReady}, events: "Normal Created, Normal Synced"},
		"rule Y3: one that was there, after a live read":    {configMaps: none, requests: []string{createX, getX}, events: "Normal Created", again: time.Second},
		"rule Y4: drift is repaired with one patch":         {configMaps: its(drifted), requests: []string{patchBlue}, events: "Normal Updated", again: time.Second},
		"rule Y4: a new spec is written, and reported":      {setting: newSetting(ready, red), requests: []string{patchRed, "status x version=10 gen=2 " + isReady}, events: "Normal Updated"},
		"rule Y5: a ConfigMap without a controller is reported, and never touched": {
			setting: fresh, configMaps: its(drifted, foreign), requests: []string{status + "False/ConfigMapNotOwned"}, events: "Warning ErrResourceExists"},
		"rule Y6: a ConfigMap that is being deleted is left alone": {configMaps: its(drifted, terminating), requests: []string{status + "False/ConfigMapProgressing"}},
		"rule Y6: of a new Setting that is told a second later":    {setting: fresh, configMaps: its(terminating), again: time.Second},
		"rule Y7: a refusal is reported, and tried again with backoff": {
			setting: fresh, configMaps: none, prepare: answer("create", nil, apierrors.NewForbidden(corev1.Resource("configmaps"), "x", errors.New("exceeded quota"))),
			requests: []string{createX, rejected}, events: "Warning ConfigMapRejected", err: "exceeded quota"},
		"rule Y7: a ConfigMap whose owner reference admission removes stays refused": {
			setting: fresh, configMaps: none, prepare: answer("create", newOwned(foreign), nil), then: func(e *env) { e.see(newOwned(foreign)) },
			requests: []string{createX, rejected, "status x version=100 gen=1 False/ConfigMapRejected"}, events: "Warning ConfigMapRejected, Warning ConfigMapRejected", err: "overrides it"},
		"rule Y8: other failures are tried again, and the status stays": {
			setting: fresh, configMaps: none, prepare: answer("create", nil, errors.New("oops")), requests: []string{createX}, err: "oops"},
		"rule Y9: the next sync waits until the cache shows a write": {
			setting: newSetting(ready, red), then: func(*env) {}, requests: []string{patchRed, "status x version=10 gen=2 " + isReady}, events: "Normal Updated", err: "the caches are behind"},
		"rule Y10: at rest nothing is written": {},
		"rule Y11: an invalid spec is told, is not tried again, and leaves the ConfigMap alone": {
			setting: newSetting(func(s *v1alpha1.Setting) { s.Spec.Data = map[string]string{"two words": ""} }), configMaps: its(drifted),
			requests: []string{status + "False/InvalidSpec"}, events: "Warning InvalidSpec"},
		"rule Y13: what admission made of a write is told, and not written again": {
			setting: newSetting(red), prepare: answer("patch", newOwned(), nil), then: func(e *env) { e.see(newOwned()) },
			requests: []string{patchRed, "status x version=10 gen=2 " + isReady + "; accepted from admission webhooks or policies: data color=blue in place of color=red"}, events: "Normal Synced"},
		"rule Y15: conditions of other types are kept": {
			setting: newSetting(func(o *v1alpha1.Setting) {
				o.Status.Conditions = []metav1.Condition{{Type: "Theirs", Status: metav1.ConditionTrue}}
			}),
			requests: []string{status + isReady + " Theirs=True"}, events: "Normal Synced"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.setting = cmp.Or(test.setting, newSetting(ready))
				if test.configMaps == nil {
					test.configMaps = its()
				}
				ctx, e := newEnv(t, test.setting, test.configMaps...)
				if test.prepare != nil {
					test.prepare(e)
				}
				again, err := e.syncHandler(ctx, cache.NewObjectName("ns", "x"))
				if test.then != nil {
					time.Sleep(time.Second)
					test.then(e)
					again, err = e.syncHandler(ctx, cache.NewObjectName("ns", "x"))
				}
				e.Expect(t, test.requests, test.events, test.err, err)
				fixture.Differ(t, "to be called again after", test.again, again)
			})
		})
	}
}

// TestRepairs: whatever another writer changes of what is enforced, one patch takes it back, and nothing else. The
// cache keeps what is compared.
func TestRepairs(t *testing.T) {
	diff := func(c *corev1.ConfigMap) controller.Patch { return diffConfigMap(nil, newConfigMap(newSetting()), c) }
	fields := fixture.CheckRepairs(t, newOwned(), diff, TrimConfigMap)
	fixture.Differ(t, "rule Y4: fields that are repaired", []string{"data", "label app.kubernetes.io/managed-by"}, fields)

	many := newOwned(func(c *corev1.ConfigMap) {
		for i := range 2 * maxKeys {
			c.Data[fmt.Sprint("a", i)] = strings.Repeat("x", 10_000)
		}
	})
	if kept := TrimConfigMap(many); len(kept.Data) != maxKeys+1 || kept.Size() > 32<<10 {
		t.Errorf("rule Y16: the cache keeps %d keys and %d bytes of a large ConfigMap", len(kept.Data), kept.Size())
	}
	if kept := TrimConfigMap(newOwned(foreign)); kept != nil {
		t.Errorf("rule Y16: the cache keeps %v of a foreign ConfigMap", kept)
	}
}

// TestReadyCondition: the first finding that applies decides.
func TestReadyCondition(t *testing.T) {
	setting := newSetting(func(s *v1alpha1.Setting) { s.Spec.Data = map[string]string{"two words": ""} })
	all := findings{newOwned(foreign), errors.New("no"), controller.Report{Contested: "contested", Drift: "drift", Accepted: "accepted"}}
	for _, step := range []struct {
		rule, want string
		next       func()
	}{
		{"rule Y11: ", `InvalidSpec: spec.data has the key "two words", which no ConfigMap can have: ` + validation.IsConfigMapKey("two words")[0], func() { setting.Spec.Data = nil }},
		{"rule Y7: ", "ConfigMapRejected: the API server refused: no; it is tried again at least every 5 minutes, and at once when the Setting changes", func() { all.refused = nil }},
		{"rule Y5: ", `ConfigMapNotOwned: ConfigMap "x" exists and has no controller; delete it, or create this Setting under another name`, func() { all.configMap = newOwned(terminating) }},
		{"rule Y12: ", "ConfigMapContested: contested", func() { all.writes.Contested = "" }},
		{"rule Y6: ", `ConfigMapProgressing: ConfigMap "x" is being deleted and will be created anew`, func() { all.configMap = newOwned() }},
		{"rule Y4: ", `ConfigMapProgressing: ConfigMap "x" was changed by another writer and is about to be repaired: drift`, func() { all.writes.Drift = "" }},
		{"rule Y13: ", `ConfigMapReady: ConfigMap "x" is as the spec asks; accepted from admission webhooks or policies: accepted`, func() { all.configMap = nil }},
		{"rule Y3: ", `ConfigMapProgressing: ConfigMap "x" does not exist yet`, func() {}},
	} {
		is, isReady := readyCondition(setting, all), strings.HasPrefix(step.want, "ConfigMapReady")
		fixture.Differ(t, step.rule+"Ready", step.want, is.Reason+": "+is.Message)
		fixture.Differ(t, step.rule+"whether it is True", isReady, is.Status == metav1.ConditionTrue)
		step.next()
	}
}

func TestTrimSetting(t *testing.T) {
	setting := newSetting(ready, func(s *v1alpha1.Setting) {
		s.Annotations, s.Labels = map[string]string{"a": "b"}, map[string]string{"a": "b"}
	})
	fixture.Differ(t, "rule Y16: what the cache keeps", newSetting(ready), TrimSetting(setting))
}
