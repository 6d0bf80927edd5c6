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
	"context"
	"fmt"
	"strconv"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
	clientfake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/test/fixture"
)

const (
	testNamespace = "ns"
	testVersion   = "10"
)

var testNow = metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))

// env is a controller whose caches and API server are filled separately, by hand.
type env struct {
	*Controller

	kube          *kubefake.Clientset
	cache         *clientfake.Clientset
	kubeInformers kubeinformers.SharedInformerFactory
	informers     externalversions.SharedInformerFactory
	events        *record.FakeRecorder
	registry      metrics.KubeRegistry
	registered    *controller.Metrics
	queue         *controller.Worker
}

// newEnv returns a controller with those objects in the API server and nothing in its
// caches. The caller is in a synctest bubble.
func newEnv(t *testing.T, memcacheds []*v1alpha1.Memcached, deployments []*appsv1.Deployment, services ...*corev1.Service) (context.Context, *env) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	s := &env{
		kube:   kubefake.NewClientset(append(fixture.Objects(deployments), fixture.Objects(services)...)...),
		cache:  clientfake.NewClientset(fixture.Objects(memcacheds)...),
		events: record.NewFakeRecorder(100),
	}
	s.kubeInformers = kubeinformers.NewSharedInformerFactoryWithOptions(s.kube, 0, kubeinformers.WithTransform(trim))
	s.informers = externalversions.NewSharedInformerFactory(s.cache, 0)
	s.registry = metrics.NewKubeRegistry()
	s.registered = controller.NewMetrics(s.registry)
	s.queue = controller.NewWorker(memcachedKind, controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: s.registered, Workers: 2, GracePeriod: time.Second})
	t.Cleanup(s.queue.Queue.ShutDown)
	var err error
	s.Controller, err = New(ctx, s.options())
	if err != nil {
		t.Fatal(err)
	}
	return ctx, s
}

// trim drops what the program's caches do not keep.
func trim(object any) (any, error) {
	switch object := object.(type) {
	case *appsv1.Deployment:
		return cached(object)[0], nil
	case *corev1.Service:
		return cachedServices(object)[0], nil
	}
	return TrimNode(object), nil
}

// cachedServices returns what the program's caches keep of Services.
func cachedServices(services ...*corev1.Service) (kept []*corev1.Service) {
	for _, service := range services {
		trimmed := TrimService(service)
		if trimmed == nil {
			trimmed = &corev1.Service{}
			controller.SetIdentity(trimmed, service)
		}
		kept = append(kept, trimmed)
	}
	return kept
}

// cached returns what the program's caches keep of Deployments.
func cached(deployments ...*appsv1.Deployment) (kept []*appsv1.Deployment) {
	for _, d := range deployments {
		trimmed := TrimDeployment(d, deployment.NewInterner())
		if trimmed == nil {
			trimmed = &appsv1.Deployment{}
			controller.SetIdentity(trimmed, d)
		}
		kept = append(kept, trimmed)
	}
	return kept
}

func (s *env) options() Options {
	return Options{
		KubeClient:  s.kube,
		Client:      s.cache,
		Memcacheds:  s.informers.Cache().V1alpha1().Memcacheds(),
		Deployments: s.kubeInformers.Apps().V1().Deployments(),
		Services:    s.kubeInformers.Core().V1().Services(),
		ReplicaSets: s.kubeInformers.Apps().V1().ReplicaSets(),
		Pods:        s.kubeInformers.Core().V1().Pods(),
		Options: controller.Options{
			Worker: s.queue, Namespace: metav1.NamespaceAll, Recorder: s.events, Clock: clock.RealClock{}, Metrics: s.registered,
		},
	}
}

// requests returns every request that was sent, in words, those about Memcacheds last.
func (s *env) requests() []string {
	var words []string
	for _, action := range append(s.kube.Actions(), s.cache.Actions()...) {
		words = append(words, fixture.Describe(action, func(object runtime.Object) string { return summary(object.(*v1alpha1.Memcached)) }))
	}
	return words
}

// summary is a status in one line.
func summary(memcached *v1alpha1.Memcached) string {
	ready := controller.GetReady(memcached.Status.Conditions)
	return fmt.Sprintf("gen=%d nodes=%q ready=%d replicas=%d %s/%s", memcached.Status.ObservedGeneration, memcached.Status.Nodes,
		memcached.Status.ReadyReplicas, memcached.Status.Replicas, ready.Status, ready.Reason)
}

func testKey() cache.ObjectName {
	return cache.NewObjectName(testNamespace, "mc")
}

type option func(*v1alpha1.Memcached)

// newMemcached returns a Memcached "mc" with the defaults of the CRD.
func newMemcached(options ...option) *v1alpha1.Memcached {
	memcached := &v1alpha1.Memcached{
		ObjectMeta: metav1.ObjectMeta{Name: "mc", Namespace: testNamespace, UID: "uid-mc", Generation: 1, ResourceVersion: testVersion},
		Spec:       v1alpha1.MemcachedSpec{Size: ptr.To[int32](1), Image: "memcached:1.6-alpine", Port: ptr.To[int32](11211)},
	}
	for _, option := range options {
		option(memcached)
	}
	return memcached
}

func size(size int32) option {
	return func(memcached *v1alpha1.Memcached) { memcached.Spec.Size = &size }
}

func port(port int32) option {
	return func(memcached *v1alpha1.Memcached) { memcached.Spec.Port = &port }
}

func image(image string) option {
	return func(memcached *v1alpha1.Memcached) { memcached.Spec.Image = image }
}

func memory(megabytes int32) option {
	return func(memcached *v1alpha1.Memcached) { memcached.Spec.MemoryMegabytes = &megabytes }
}

func topology(key string) option {
	return func(memcached *v1alpha1.Memcached) { memcached.Spec.TopologyKey = key }
}

func generation(generation int64) option {
	return func(memcached *v1alpha1.Memcached) { memcached.Generation = generation }
}

// status gives the Memcached the status that this controller would give it.
func status(result deployment.Result, nodes ...string) option {
	return func(memcached *v1alpha1.Memcached) {
		memcached.Status = newStatus(memcached, result, nodes, metav1.NewTime(testNow.Add(-time.Minute)))
	}
}

// ready gives the Memcached the status of a finished rollout with those nodes.
func ready(nodes ...string) option {
	return func(memcached *v1alpha1.Memcached) {
		status(deployment.Result{Deployment: newOwned(memcached, fixture.Available)}, nodes...)(memcached)
	}
}

// newOwned returns the Deployment that the controller would create, as it is stored.
func newOwned(memcached *v1alpha1.Memcached, options ...func(*appsv1.Deployment)) *appsv1.Deployment {
	deployment := newDeployment(memcached)
	deployment.UID, deployment.ResourceVersion, deployment.Generation = types.UID("uid-"+memcached.Name+"-deployment"), testVersion, 1
	for _, option := range options {
		option(deployment)
	}
	return deployment
}

// newForeign returns a Deployment "mc" without a controller.
func newForeign(options ...func(*appsv1.Deployment)) *appsv1.Deployment {
	return newOwned(newMemcached(), append([]func(*appsv1.Deployment){ownedBy()}, options...)...)
}

func ownedBy(owners ...metav1.OwnerReference) func(*appsv1.Deployment) {
	return func(deployment *appsv1.Deployment) { deployment.OwnerReferences = owners }
}

// newSet returns a ReplicaSet of the Deployment.
func newSet(name string, deployment *appsv1.Deployment) *appsv1.ReplicaSet {
	return &appsv1.ReplicaSet{ObjectMeta: metav1.ObjectMeta{
		Name: name, Namespace: testNamespace, UID: types.UID("uid-" + name), ResourceVersion: testVersion,
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(deployment, appsv1.SchemeGroupVersion.WithKind("Deployment"))},
	}}
}

// newPod returns a running Pod of the ReplicaSet.
func newPod(name string, set *appsv1.ReplicaSet, options ...func(*corev1.Pod)) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{
			Name: name, Namespace: testNamespace, UID: types.UID("uid-" + name), ResourceVersion: testVersion, Labels: map[string]string{nameLabel: "mc"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(set, appsv1.SchemeGroupVersion.WithKind("ReplicaSet"))},
		},
		Status: corev1.PodStatus{Phase: corev1.PodRunning},
	}
	for _, option := range options {
		option(pod)
	}
	return pod
}

func phase(phase corev1.PodPhase) func(*corev1.Pod) {
	return func(pod *corev1.Pod) { pod.Status.Phase = phase }
}

func terminating(pod *corev1.Pod) { pod.DeletionTimestamp = &testNow }

// start runs informers and workers until the returned function is called.
func (s *env) start(ctx context.Context, t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	// The fake API server does not raise the version, by which the controller knows that its cache has
	// its last write.
	s.cache.PrependReactor("update", "memcacheds", func(action clienttesting.Action) (bool, runtime.Object, error) {
		written := action.(clienttesting.UpdateAction).GetObject().(*v1alpha1.Memcached)
		version, err := strconv.Atoi(written.ResourceVersion)
		written.ResourceVersion = strconv.Itoa(version + 1)
		return false, nil, err
	})
	s.kubeInformers.StartWithContext(ctx)
	s.informers.StartWithContext(ctx)
	result := make(chan error)
	go func() { result <- s.worker.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-result; err != nil {
			t.Errorf("Run: %v", err)
		}
		s.kubeInformers.Shutdown()
		s.informers.Shutdown()
	}
}

// rollOut does what the Deployment controller does: a ReplicaSet, a Pod, and the status.
func (s *env) rollOut(t *testing.T, replicas int32, pod string) *appsv1.Deployment {
	t.Helper()
	deployment, err := s.kube.AppsV1().Deployments(testNamespace).Get(t.Context(), "mc", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	deployment.UID = "uid-mc-deployment"
	if err := s.kube.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("deployments"), deployment, testNamespace); err != nil {
		t.Fatal(err)
	}
	set := newSet("rs", deployment)
	for _, object := range []runtime.Object{newPod(pod, set), set} {
		if err := s.kube.Tracker().Add(object); err != nil {
			t.Fatal(err)
		}
	}
	s.setCounts(t, replicas)
	return deployment
}

// setCounts makes that many of the Deployment's Pods available.
func (s *env) setCounts(t *testing.T, count int32) {
	t.Helper()
	deployment, err := s.kube.AppsV1().Deployments(testNamespace).Get(t.Context(), "mc", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	fixture.Pods(count, count, count)(deployment)
	deployment.Status.ReadyReplicas = count
	// The fake API server does not raise it.
	deployment.ResourceVersion = fmt.Sprint(100 + count)
	if err := s.kube.Tracker().Update(appsv1.SchemeGroupVersion.WithResource("deployments"), deployment, testNamespace); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// statusWrites returns how often a status was written.
func (s *env) statusWrites() (count int) {
	for _, action := range s.cache.Actions() {
		if action.GetSubresource() == "status" {
			count++
		}
	}
	return count
}

func (s *env) memcachedIndexer() cache.TypedIndexer[*v1alpha1.Memcached] {
	return s.informers.Cache().V1alpha1().Memcacheds().TypedInformer().GetTypedIndexer()
}

func (s *env) deploymentIndexer() cache.TypedIndexer[*appsv1.Deployment] {
	return s.kubeInformers.Apps().V1().Deployments().TypedInformer().GetTypedIndexer()
}

func (s *env) serviceIndexer() cache.TypedIndexer[*corev1.Service] {
	return s.kubeInformers.Core().V1().Services().TypedInformer().GetTypedIndexer()
}
