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

package memcached

import (
	"cmp"
	"context"
	"errors"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/controller/deployment"
	clientfake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/test/fixture"
)

const (
	testNamespace = "ns"
	testVersion   = "10"
)

var (
	memcachedsResource  = v1alpha1.Resource("memcacheds").WithVersion("v1alpha1")
	deploymentsResource = appsv1.SchemeGroupVersion.WithResource("deployments")
	servicesResource    = corev1.SchemeGroupVersion.WithResource("services")
)

var testNow = metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))

// env is a controller whose caches and API server are filled separately, by hand.
type env struct {
	*fixture.Env
	*Controller

	informers externalversions.SharedInformerFactory
	opts      Options
}

// newEnv returns a controller with those objects in the API server and nothing in its caches, of
// which that of Memcacheds is up to date. The caller is in a synctest bubble.
func newEnv(t *testing.T, memcacheds []*v1alpha1.Memcached, deployments []*appsv1.Deployment, services ...*corev1.Service) (context.Context, *env) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	own := clientfake.NewSimpleClientset()
	s := &env{Env: fixture.NewEnv(t, memcachedKind, own, scheme.Scheme, append(fixture.Objects(deployments), fixture.Objects(services)...)...)}
	fixture.Create(s.Tracker, memcachedsResource, memcacheds)
	s.informers = externalversions.NewSharedInformerFactory(own, 0)
	apps, core := s.KubeInformers.Apps().V1(), s.KubeInformers.Core().V1()
	s.opts = Options{
		KubeClient: s.Kube, Client: own, Memcacheds: s.informers.Cache().V1alpha1().Memcacheds(),
		Deployments: apps.Deployments(), Services: core.Services(), ReplicaSets: apps.ReplicaSets(), Pods: core.Pods(), Options: s.Shared,
	}
	s.Controller = must(New(ctx, s.opts))
	s.memcacheds.ReadStartVersion(ctx)
	s.memcacheds.Informer.GetTypedIndexer().Bookmark(testVersion)
	s.Requests()
	return ctx, s
}

// see makes the caches show those objects.
func (s *env) see(memcached *v1alpha1.Memcached, deployments []*appsv1.Deployment, services ...*corev1.Service) {
	fixture.See(s.memcacheds.Informer, TrimMemcached, memcached)
	s.memcacheds.Informer.GetTypedIndexer().Bookmark(memcached.ResourceVersion)
	fixture.See(s.deployments.Informer, trimDeployment, deployments...)
	fixture.See(s.services.Informer, TrimService, services...)
}

// trimDeployment returns what the program's caches keep of a Deployment.
func trimDeployment(d *appsv1.Deployment) *appsv1.Deployment {
	return TrimDeployment(d, deployment.NewInterner())
}

func testKey() cache.ObjectName { return cache.NewObjectName(testNamespace, "mc") }

type option = func(*v1alpha1.Memcached)

// newMemcached returns a Memcached "mc" with the defaults of the CRD.
func newMemcached(options ...option) *v1alpha1.Memcached {
	return fixture.With(&v1alpha1.Memcached{
		ObjectMeta: metav1.ObjectMeta{Name: "mc", Namespace: testNamespace, UID: "uid-mc", Generation: 1, ResourceVersion: testVersion},
		Spec:       v1alpha1.MemcachedSpec{Size: ptr.To[int32](1), Image: "memcached:1.6-alpine", Port: ptr.To[int32](11211)},
	}, options)
}

func size(size int32) option { return func(m *v1alpha1.Memcached) { m.Spec.Size = &size } }

func port(port int32) option { return func(m *v1alpha1.Memcached) { m.Spec.Port = &port } }

func memory(megabytes int32) option {
	return func(m *v1alpha1.Memcached) { m.Spec.MemoryMegabytes = &megabytes }
}

func topology(key string) option { return func(m *v1alpha1.Memcached) { m.Spec.TopologyKey = key } }

func generation(generation int64) option {
	return func(m *v1alpha1.Memcached) { m.Generation = generation }
}

// status gives the Memcached the status that this controller would give it.
func status(f findings) option {
	return func(memcached *v1alpha1.Memcached) {
		memcached.Status = newStatus(memcached, f, metav1.NewTime(testNow.Add(-time.Minute)))
		reportService(memcached, &memcached.Status, f)
	}
}

// ready gives the Memcached the status of a finished rollout with those nodes.
func ready(nodes ...string) option {
	return func(memcached *v1alpha1.Memcached) {
		status(findings{deployment: newOwned(memcached, fixture.Available), nodes: nodes})(memcached)
	}
}

// newOwned returns the Deployment that the controller would create, as it is stored.
func newOwned(memcached *v1alpha1.Memcached, options ...func(*appsv1.Deployment)) *appsv1.Deployment {
	deployment := newDeployment(memcached)
	deployment.UID, deployment.ResourceVersion, deployment.Generation = types.UID("uid-"+memcached.Name+"-deployment"), testVersion, 1
	return fixture.With(deployment, options)
}

// newForeign returns a Deployment "mc" without a controller.
func newForeign(options ...func(*appsv1.Deployment)) *appsv1.Deployment {
	return newOwned(newMemcached(), append([]func(*appsv1.Deployment){ownedBy()}, options...)...)
}

func ownedBy(owners ...metav1.OwnerReference) func(*appsv1.Deployment) {
	return func(deployment *appsv1.Deployment) { deployment.OwnerReferences = owners }
}

// newOwnedService returns the Service that the controller would create, as it is stored.
func newOwnedService(options ...func(*corev1.Service)) *corev1.Service {
	service := newService(newMemcached(), labelsOf(newMemcached()))
	service.UID, service.ResourceVersion = "uid-mc-service", testVersion
	return fixture.With(service, options)
}

// foreignService makes the Service one without a controller.
func foreignService(service *corev1.Service) { service.OwnerReferences = nil }

// controlled returns the metadata of an object that the owner controls.
func controlled(name string, owner metav1.Object, kind string) metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: name, Namespace: testNamespace, UID: types.UID("uid-" + name), ResourceVersion: testVersion,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(owner, appsv1.SchemeGroupVersion.WithKind(kind))},
	}
}

func newSet(name string, deployment *appsv1.Deployment, options ...func(*appsv1.ReplicaSet)) *appsv1.ReplicaSet {
	return fixture.With(&appsv1.ReplicaSet{ObjectMeta: controlled(name, deployment, "Deployment")}, options)
}

// newPod returns a running Pod of the ReplicaSet.
func newPod(name string, set *appsv1.ReplicaSet, options ...func(*corev1.Pod)) *corev1.Pod {
	return fixture.With(&corev1.Pod{ObjectMeta: controlled(name, set, "ReplicaSet"), Status: corev1.PodStatus{Phase: corev1.PodRunning}}, options)
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func terminating[T metav1.Object](object T) {
	object.SetDeletionTimestamp(&testNow)
	object.SetFinalizers([]string{"x"})
}

// memcached returns the Memcached in the API server.
func (s *env) memcached() *v1alpha1.Memcached {
	return must(s.Tracker.Get(memcachedsResource, testNamespace, "mc")).(*v1alpha1.Memcached).DeepCopy()
}

// setMemcached replaces the Memcached in the API server.
func (s *env) setMemcached(memcached *v1alpha1.Memcached) {
	must(0, s.Tracker.Update(memcachedsResource, memcached, testNamespace))
}

func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}

// syncTest is one call of syncHandler for the Memcached "mc", and all that the call does. Caches and
// API server hold a converged Memcached, but for what is set.
type syncTest struct {
	memcached   *v1alpha1.Memcached
	deployments []*appsv1.Deployment
	services    []*corev1.Service
	pods        []*corev1.Pod
	// prepare changes what the API server holds or answers.
	prepare func(*env)
	// waits is when syncHandler is called a second time, after the call of then.
	waits time.Duration
	then  func(*env)

	requests []string
	// events are types and reasons, err is a part of the error.
	events, err string
	again       time.Duration
}

// start sets what is not set, and returns the controller of the test.
func (test *syncTest) start(t *testing.T) (context.Context, *env) {
	converged := newOwned(newMemcached(), fixture.Available)
	set := newSet("rs", converged)
	test.memcached = cmp.Or(test.memcached, newMemcached(ready("a")))
	setDefault(&test.deployments, converged)
	setDefault(&test.services, newOwnedService())
	setDefault(&test.pods, newPod("a", set))
	ctx, s := newEnv(t, []*v1alpha1.Memcached{test.memcached}, test.deployments, test.services...)
	s.see(test.memcached, test.deployments, test.services...)
	fixture.Fill(s.replicaSetIndexer, []*appsv1.ReplicaSet{set})
	fixture.Fill(s.podIndexer, test.pods)
	s.deployments.Informer.GetTypedIndexer().Bookmark(testVersion)
	s.services.Informer.GetTypedIndexer().Bookmark(testVersion)
	return ctx, s
}

func (test syncTest) run(t *testing.T) {
	ctx, s := test.start(t)
	if test.prepare != nil {
		test.prepare(s)
	}
	again, err := s.syncHandler(ctx, cache.MetaObjectToName(test.memcached))
	if test.waits > 0 {
		time.Sleep(test.waits)
		if test.then != nil {
			test.then(s)
		}
		again, err = s.syncHandler(ctx, cache.MetaObjectToName(test.memcached))
	}
	s.Expect(t, test.requests, test.events, test.err, err)
	if again != test.again {
		t.Errorf("to be called again after %v, want %v", again, test.again)
	}
}

func setDefault[T any](list *[]T, value T) {
	if *list == nil {
		*list = []T{value}
	}
}

func forbidden(resource schema.GroupResource, text string) *apierrors.StatusError {
	return apierrors.NewForbidden(resource, "mc", errors.New(text))
}

// failing makes the API server refuse requests of that verb.
func failing(verb string, resource schema.GroupResource, err error) func(*env) {
	return func(s *env) { fixture.Answer(&s.Kube.Fake, verb, resource.Resource, nil, err) }
}

// answering makes the API server answer requests of that verb with the object.
func answering(verb string, resource schema.GroupResource, object runtime.Object) func(*env) {
	return func(s *env) { fixture.Answer(&s.Kube.Fake, verb, resource.Resource, object, nil) }
}
