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
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/newkind/pkg/apis/tuning/v1alpha1"
	clientfake "example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/test/newkind/pkg/generated/informers/externalversions"
)

const (
	testNamespace = "ns"
	testVersion   = "10"
)

var (
	settingsResource   = v1alpha1.Resource("settings").WithVersion("v1alpha1")
	configMapsResource = corev1.SchemeGroupVersion.WithResource("configmaps")

	testKey = cache.NewObjectName(testNamespace, "x")
	testNow = metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))
)

// env is a controller whose caches and API server are filled separately, by hand.
type env struct {
	*Controller

	kube      *kubefake.Clientset
	own       *clientfake.Clientset
	tracker   clienttesting.ObjectTracker
	events    *record.FakeRecorder
	options   Options
	factories []fixture.Factory

	settingIndexer   cache.TypedIndexer[*v1alpha1.Setting]
	configMapIndexer cache.TypedIndexer[*corev1.ConfigMap]
}

// newEnv returns a controller with those objects in the API server and nothing in its caches, which are up to
// date. The caller is in a synctest bubble.
func newEnv(t *testing.T, setting *v1alpha1.Setting, configMaps ...*corev1.ConfigMap) (context.Context, *env) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	e := &env{kube: kubefake.NewClientset(fixture.Objects(configMaps)...), own: &clientfake.Clientset{}, events: record.NewFakeRecorder(100)}
	e.tracker = fixture.Serve(&e.own.Fake, scheme.Scheme)
	fixture.Create(t, e.tracker, settingsResource, []*v1alpha1.Setting{setting})
	e.own.PrependReactor("list", "settings", func(action clienttesting.Action) (bool, runtime.Object, error) {
		isProbe := action.(clienttesting.ListActionImpl).ListOptions.Limit == 1
		return isProbe, &v1alpha1.SettingList{ListMeta: metav1.ListMeta{ResourceVersion: testVersion}}, nil
	})
	kubeInformers, informers := kubeinformers.NewSharedInformerFactory(e.kube, 0), externalversions.NewSharedInformerFactory(e.own, 0)
	registered := controller.NewMetrics(metrics.NewKubeRegistry())
	e.factories, e.options = []fixture.Factory{kubeInformers, informers}, Options{
		KubeClient: e.kube, Client: e.own, Settings: informers.Tuning().V1alpha1().Settings(), ConfigMaps: kubeInformers.Core().V1().ConfigMaps(),
		Options: controller.Options{
			Worker:   controller.NewWorker(settingKind, controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: registered, Workers: 2, GracePeriod: time.Second}),
			Recorder: e.events, Clock: clock.RealClock{}, Metrics: registered,
		},
	}
	t.Cleanup(e.options.Worker.Queue.ShutDown)
	var err error
	if e.Controller, err = New(ctx, e.options); err != nil {
		t.Fatal(err)
	}
	e.settingIndexer, e.configMapIndexer = e.options.Settings.TypedInformer().GetTypedIndexer(), e.options.ConfigMaps.TypedInformer().GetTypedIndexer()
	e.settings.ReadPresent(ctx)
	e.settingIndexer.Bookmark(testVersion)
	e.configMapIndexer.Bookmark(testVersion)
	e.own.ClearActions()
	return ctx, e
}

// requests returns every request that was sent, in words, those about Settings last.
func (e *env) requests() (words []string) {
	for _, action := range append(e.kube.Actions(), e.own.Actions()...) {
		if patch, ok := action.(clienttesting.PatchAction); ok && patch.GetSubresource() == "status" {
			words = append(words, "patch settings/status x "+summary(patch.GetPatch()))
		} else if verb := action.GetVerb(); verb != "list" && verb != "watch" {
			words = append(words, fixture.Describe(action, nil))
		}
	}
	return words
}

// summary is a status and the version of the object, encoded, in one line.
func summary(object []byte) string {
	var setting v1alpha1.Setting
	if err := json.Unmarshal(object, &setting); err != nil {
		return err.Error()
	}
	ready := controller.GetReady(setting.Status.Conditions)
	return fmt.Sprintf("version=%s gen=%d %s/%s", setting.ResourceVersion, setting.Status.ObservedGeneration, ready.Status, ready.Reason)
}

// with returns the object, changed by the options.
func with[T any](object T, options []func(T)) T {
	for _, option := range options {
		option(object)
	}
	return object
}

// newSetting returns a Setting "x" that the controller has not seen.
func newSetting(options ...func(*v1alpha1.Setting)) *v1alpha1.Setting {
	return with(&v1alpha1.Setting{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: testNamespace, UID: "uid-x", Generation: 1, ResourceVersion: testVersion},
		Spec:       v1alpha1.SettingSpec{Data: map[string]string{"color": "blue"}},
	}, options)
}

// newOwned returns the ConfigMap of the Setting "x", as it is stored.
func newOwned(options ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	configMap := newConfigMap(newSetting())
	configMap.UID, configMap.ResourceVersion = "uid-configmap", testVersion
	return with(configMap, options)
}

// reported gives the Setting the status of those findings.
func reported(f findings) func(*v1alpha1.Setting) {
	return func(setting *v1alpha1.Setting) {
		setting.Status = newStatus(setting, f, metav1.NewTime(testNow.Add(-time.Minute)))
	}
}

// ready gives the Setting the status of one with its ConfigMap.
func ready(setting *v1alpha1.Setting) { reported(findings{configMap: newOwned()})(setting) }

// red gives the Setting a new spec.
func red(setting *v1alpha1.Setting) {
	setting.Generation, setting.Spec.Data = 2, map[string]string{"color": "red"}
}

func drifted(configMap *corev1.ConfigMap) { configMap.Data = map[string]string{"color": "green"} }

func foreign(configMap *corev1.ConfigMap) { configMap.OwnerReferences = nil }

func terminating[T metav1.Object](object T) {
	object.SetDeletionTimestamp(&testNow)
	object.SetFinalizers([]string{"x"})
}

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// syncTest is one call of syncHandler for the Setting "x", and all that the call does. Caches and API server hold
// a Setting that is ready and its ConfigMap, but for what is set.
type syncTest struct {
	setting    *v1alpha1.Setting
	configMaps []*corev1.ConfigMap
	// prepare changes what the API server or the caches hold.
	prepare func(*env)
	// then is called before a second call of syncHandler, a second later. Without it there is none.
	then func(*env)

	requests []string
	// events are types and reasons, err is a part of the error.
	events, err string
	again       time.Duration
}

func (test syncTest) run(t *testing.T) {
	test.setting = cmp.Or(test.setting, newSetting(ready))
	if test.configMaps == nil {
		test.configMaps = []*corev1.ConfigMap{newOwned()}
	}
	ctx, e := newEnv(t, test.setting, test.configMaps...)
	fixture.Fill(t, e.settingIndexer, []*v1alpha1.Setting{test.setting})
	for _, configMap := range test.configMaps {
		must(e.configMapIndexer.Add(cmp.Or(TrimConfigMap(configMap), configMap)))
	}
	if test.prepare != nil {
		test.prepare(e)
	}
	again, err := e.syncHandler(ctx, testKey)
	if test.then != nil {
		time.Sleep(time.Second)
		test.then(e)
		again, err = e.syncHandler(ctx, testKey)
	}
	fixture.Differ(t, "requests", test.requests, e.requests())
	fixture.Differ(t, "events", test.events, strings.Join(fixture.Recorded(e.events), ", "))
	fixture.Differ(t, "to be called again after", test.again, again)
	if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
		t.Errorf("error %v, want %q in it", err, test.err)
	}
}

// failing makes the API server refuse requests of that verb for ConfigMaps.
func failing(verb string, err error) func(*env) {
	return func(e *env) { fixture.Failing(&e.kube.Fake, verb, "configmaps", err) }
}

// answering makes the API server answer requests of that verb with the ConfigMap.
func answering(verb string, configMap *corev1.ConfigMap) func(*env) {
	return func(e *env) {
		e.kube.PrependReactor(verb, "configmaps", func(clienttesting.Action) (bool, runtime.Object, error) { return true, configMap, nil })
	}
}

func forbidden(causes ...metav1.StatusCause) error {
	err := apierrors.NewForbidden(corev1.Resource("configmaps"), "x", errors.New("exceeded quota"))
	err.ErrStatus.Details.Causes = causes
	return err
}
