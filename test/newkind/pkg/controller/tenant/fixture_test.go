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
	"example.com/sample-controller/test/newkind/pkg/apis/tenancy/v1alpha1"
	clientfake "example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/test/newkind/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/test/newkind/pkg/generated/informers/externalversions"
)

const (
	testNamespace = "ns"
	testVersion   = "10"
)

var (
	tenantsResource    = v1alpha1.Resource("tenants").WithVersion("v1alpha1")
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
	service   *fakeService
	events    *record.FakeRecorder
	options   Options
	factories []fixture.Factory
	// patchErrors are those of the next patches of the finalizers, nil for none.
	patchErrors []error
	// hasVersions says that a status that is written raises the version, by which a controller that runs knows that
	// its cache has the write.
	hasVersions bool

	tenantIndexer    cache.TypedIndexer[*v1alpha1.Tenant]
	configMapIndexer cache.TypedIndexer[*corev1.ConfigMap]
}

// newEnv returns a controller with those objects in the API server and nothing in its caches, which are up to
// date. The caller is in a synctest bubble.
func newEnv(t *testing.T, tenant *v1alpha1.Tenant, configMaps ...*corev1.ConfigMap) (context.Context, *env) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	e := &env{kube: kubefake.NewClientset(fixture.Objects(configMaps)...), own: &clientfake.Clientset{}, service: newFakeService(), events: record.NewFakeRecorder(100)}
	e.tracker = fixture.Serve(&e.own.Fake, scheme.Scheme)
	fixture.Create(t, e.tracker, tenantsResource, []*v1alpha1.Tenant{tenant})
	e.own.PrependReactor("list", "tenants", func(action clienttesting.Action) (bool, runtime.Object, error) {
		isProbe := action.(clienttesting.ListActionImpl).ListOptions.Limit == 1
		return isProbe, &v1alpha1.TenantList{ListMeta: metav1.ListMeta{ResourceVersion: testVersion}}, nil
	})
	e.own.PrependReactor("patch", "tenants", e.patch)
	kubeInformers, informers := kubeinformers.NewSharedInformerFactory(e.kube, 0), externalversions.NewSharedInformerFactory(e.own, 0)
	registered := controller.NewMetrics(metrics.NewKubeRegistry())
	e.factories, e.options = []fixture.Factory{kubeInformers, informers}, Options{
		KubeClient: e.kube, Client: e.own, Service: e.service, Tenants: informers.Tenancy().V1alpha1().Tenants(), ConfigMaps: kubeInformers.Core().V1().ConfigMaps(),
		Options: controller.Options{
			Worker:   controller.NewWorker(tenantKind, controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: registered, Workers: 2, GracePeriod: time.Second}),
			Recorder: e.events, Clock: clock.RealClock{}, Metrics: registered,
		},
	}
	t.Cleanup(e.options.Worker.Queue.ShutDown)
	var err error
	if e.Controller, err = New(ctx, e.options); err != nil {
		t.Fatal(err)
	}
	e.tenantIndexer, e.configMapIndexer = e.options.Tenants.TypedInformer().GetTypedIndexer(), e.options.ConfigMaps.TypedInformer().GetTypedIndexer()
	e.tenants.ReadPresent(ctx)
	e.tenantIndexer.Bookmark(testVersion)
	e.configMapIndexer.Bookmark(testVersion)
	e.own.ClearActions()
	return ctx, e
}

// patch does what the API server does with patches of the finalizers, or those of the status too, unless they fail.
func (e *env) patch(action clienttesting.Action) (bool, runtime.Object, error) {
	isStatus := action.GetSubresource() != ""
	if isStatus && !e.hasVersions {
		return false, nil, nil
	}
	var err error
	e.service.locked(func() {
		if !isStatus && len(e.patchErrors) > 0 {
			err, e.patchErrors = e.patchErrors[0], e.patchErrors[1:]
		}
	})
	if err != nil {
		return true, nil, err
	}
	patched, err := fixture.Patch(e.tracker, action.(clienttesting.PatchAction))
	if _, gone := e.tracker.Get(tenantsResource, testNamespace, "x"); gone != nil && e.service.count() > 0 {
		panic("rule Z21: the Tenant goes before its item")
	}
	return true, patched, err
}

// requests returns every request that was sent, in words: about ConfigMaps, writes to the external service, and about
// Tenants.
func (e *env) requests() (words []string) {
	kube := len(e.kube.Actions())
	for i, action := range append(e.kube.Actions(), e.own.Actions()...) {
		if i == kube {
			words = append(words, e.service.writes...)
		}
		if patch, ok := action.(clienttesting.PatchAction); ok && patch.GetSubresource() == "status" {
			words = append(words, "patch tenants/status x "+summary(patch.GetPatch()))
		} else if verb := action.GetVerb(); verb != "list" && verb != "watch" {
			words = append(words, fixture.Describe(action, nil))
		}
	}
	if len(e.own.Actions()) == 0 {
		words = append(words, e.service.writes...)
	}
	return words
}

// summary is a status and the version of the object, encoded, in one line.
func summary(object []byte) string {
	var tenant v1alpha1.Tenant
	if err := json.Unmarshal(object, &tenant); err != nil {
		return err.Error()
	}
	ready := controller.GetReady(tenant.Status.Conditions)
	return fmt.Sprintf("version=%s gen=%d item=%s %s/%s", tenant.ResourceVersion, tenant.Status.ObservedGeneration, tenant.Status.ItemID, ready.Status, ready.Reason)
}

// with returns the object, changed by the options.
func with[T any](object T, options []func(T)) T {
	for _, option := range options {
		option(object)
	}
	return object
}

// newTenant returns a Tenant "x" with the finalizer.
func newTenant(options ...func(*v1alpha1.Tenant)) *v1alpha1.Tenant {
	return with(&v1alpha1.Tenant{
		ObjectMeta: metav1.ObjectMeta{Name: "x", Namespace: testNamespace, UID: "uid-x", Generation: 1, ResourceVersion: testVersion, Finalizers: []string{finalizer}},
		Spec:       v1alpha1.TenantSpec{DisplayName: "blue"},
	}, options)
}

// newOwned returns the ConfigMap of the Tenant "x", as it is stored.
func newOwned(options ...func(*corev1.ConfigMap)) *corev1.ConfigMap {
	configMap := newConfigMap(newTenant())
	configMap.UID, configMap.ResourceVersion = "uid-configmap", testVersion
	return with(configMap, options)
}

// reported gives the Tenant the status of those findings.
func reported(f findings) func(*v1alpha1.Tenant) {
	return func(tenant *v1alpha1.Tenant) {
		tenant.Status = newStatus(tenant, f, metav1.NewTime(testNow.Add(-time.Minute)))
	}
}

// ready gives the Tenant the status of one with its ConfigMap.
func ready(tenant *v1alpha1.Tenant) {
	reported(findings{configMap: newOwned(), itemID: "uid-x"})(tenant)
}

// red gives the Tenant a new spec.
func red(tenant *v1alpha1.Tenant) {
	tenant.Generation, tenant.Spec.DisplayName = 2, "red"
}

func drifted(configMap *corev1.ConfigMap) { configMap.Data["displayName"] = "green" }

func foreign(configMap *corev1.ConfigMap) { configMap.OwnerReferences = nil }

func terminating[T metav1.Object](object T) {
	object.SetDeletionTimestamp(&testNow)
	object.SetFinalizers([]string{"x"})
}

// withoutFinalizer makes the Tenant one that the controller has not seen.
func withoutFinalizer(tenant *v1alpha1.Tenant) { tenant.Finalizers = nil }

// deleted makes the Tenant a terminating one with the finalizer.
func deleted(tenant *v1alpha1.Tenant) { tenant.DeletionTimestamp = &testNow }

func must(err error) {
	if err != nil {
		panic(err)
	}
}

// syncTest is one call of syncHandler for the Tenant "x", and all that the call does. Caches, API server and external
// service hold a Tenant that is ready, its ConfigMap and its item, but for what is set.
type syncTest struct {
	tenant     *v1alpha1.Tenant
	configMaps []*corev1.ConfigMap
	// prepare changes what the API server or the caches hold.
	prepare func(*env)
	// then is called before a second call of syncHandler, a second later. Without it there is none.
	then func(*env)

	requests []string
	// events are types and reasons, err is a part of the error.
	events, err string
	// again is 0 for the period in which items are checked.
	again time.Duration
}

func (test syncTest) run(t *testing.T) {
	test.tenant = cmp.Or(test.tenant, newTenant(ready))
	if test.configMaps == nil {
		test.configMaps = []*corev1.ConfigMap{newOwned()}
	}
	ctx, e := newEnv(t, test.tenant, test.configMaps...)
	fixture.Fill(t, e.tenantIndexer, []*v1alpha1.Tenant{test.tenant})
	e.service.items["uid-x"] = newItem(test.tenant)
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
	if again == itemCheckPeriod {
		again = 0
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
