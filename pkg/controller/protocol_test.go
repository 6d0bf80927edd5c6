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

package controller_test

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
	foofake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/test/fixture"
)

// testCluster is an API server with the Foo "foo" and its Deployment "web", and a controller whose
// caches show them when the test says so.
type testCluster struct {
	*testing.T
	ctx         context.Context
	worker      *controller.Worker
	foos        *controller.Owners[*v1alpha1.Foo]
	deployments *controller.Dependents[*v1alpha1.Foo, *appsv1.Deployment]
	// foo is the cached Foo.
	foo             *v1alpha1.Foo
	fooStore        cache.TypedIndexer[*v1alpha1.Foo]
	deploymentStore cache.TypedIndexer[*appsv1.Deployment]
	live            clienttesting.ObjectTracker
	events          *record.FakeRecorder

	// version is the latest one of the API server.
	version  int
	requests []string
	// before is called before each request, answer may refuse one, admit is a mutating webhook.
	before func()
	answer func(request string) error
	admit  func(metav1.Object)
	// replicas are the wanted ones. existed says that the status tells of a Deployment.
	replicas int32
	existed  bool
}

var (
	foos        = schema.GroupVersion(v1alpha1.GroupVersion).WithResource("foos")
	deployments = appsv1.SchemeGroupVersion.WithResource("deployments")
	names       = map[schema.GroupVersionResource]string{foos: "foo", deployments: "web"}
)

// inEachCluster runs tests by their sentences.
func inEachCluster(t *testing.T, tests map[string]func(*testCluster)) {
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) { inCluster(t, test) })
	}
}

// inCluster calls test in a synctest bubble. This process leads, and has seen the present version.
func inCluster(t *testing.T, test func(c *testCluster), change ...func(*controller.WorkerOptions)) {
	synctest.Test(t, func(t *testing.T) {
		c := &testCluster{
			T: t, ctx: klog.NewContext(t.Context(), ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))),
			live:   clienttesting.NewObjectTracker(scheme.Scheme, scheme.Codecs.UniversalDecoder()),
			events: record.NewFakeRecorder(1000), version: 10, replicas: 3,
			before: func() {}, answer: func(string) error { return nil }, admit: func(metav1.Object) {},
		}
		foo := &v1alpha1.Foo{
			ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo", UID: "uid-foo", Generation: 1, ResourceVersion: "10"},
			Spec:       v1alpha1.FooSpec{DeploymentName: "web", Image: "a"},
		}
		fixture.Create(c.live, foos, []*v1alpha1.Foo{foo})
		kubeClient, fooClient := &kubefake.Clientset{}, &foofake.Clientset{}
		kubeClient.AddReactor("*", "*", c.serve)
		fooClient.AddReactor("*", "*", c.serve)

		registered := controller.NewMetrics(metrics.NewKubeRegistry())
		options := controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: registered, Workers: 1}
		for _, change := range change {
			change(&options)
		}
		c.worker = controller.NewWorker("Foo", options)
		t.Cleanup(c.worker.Queue.ShutDown)
		fooInformer := fooinformers.NewSharedInformerFactory(fooClient, 0).Samplecontroller().V1alpha1().Foos().TypedInformer()
		informer := kubeinformers.NewSharedInformerFactory(kubeClient, 0).Apps().V1().Deployments().TypedInformer()
		c.fooStore, c.deploymentStore = fooInformer.GetTypedIndexer(), informer.GetTypedIndexer()
		c.foos = controller.NewOwners(controller.OwnersOptions[*v1alpha1.Foo]{
			Options: controller.Options{Worker: c.worker, Recorder: c.events, Clock: clock.RealClock{}, Metrics: registered},
			Kind:    schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Foo"), Resource: foos.GroupResource(), Informer: fooInformer,
			Client: func(ns string) controller.OwnerClient[*v1alpha1.Foo] {
				c.before()
				return fooClient.SamplecontrollerV1alpha1().Foos(ns)
			},
			LatestVersion: func(context.Context) (string, error) { return "10", nil },
			Status:        func(foo *v1alpha1.Foo) any { return &foo.Status },
		})
		var err error
		c.deployments, err = controller.NewDependents(c.foos, controller.DependentsOptions[*v1alpha1.Foo, *appsv1.Deployment]{
			Kind: "Deployment", Resource: deployments.GroupResource(), Informer: informer,
			Client: func(ns string) controller.DependentClient[*appsv1.Deployment] {
				c.before()
				return kubeClient.AppsV1().Deployments(ns)
			},
			Diff: diff, Replicas: func(d *appsv1.Deployment) int32 { return *d.Spec.Replicas },
			Trim:    func(d *appsv1.Deployment) *appsv1.Deployment { return d },
			Existed: func(*v1alpha1.Foo) bool { return c.existed },
			Advice:  "and change the Foo",
		})
		if err != nil {
			t.Fatal(err)
		}
		c.foos.ReadStartVersion(c.ctx)
		c.see()
		test(c)
	})
}

// diff compares replicas, image, a label and the owner reference.
func diff(foo *v1alpha1.Foo, desired, current *appsv1.Deployment) controller.Patch {
	patch := controller.NewPatch(current)
	deployment.CompareReplicas(&patch, current, desired)
	if got := deployment.Container(current, "c").Image; got != foo.Spec.Image {
		deployment.SetInContainer(&patch, "c", foo.Spec.Image, got, foo.Spec.Image, "image")
	}
	patch.AddMissingLabel(current, "tier", "web")
	patch.CompareController(current, desired)
	return patch
}

// desired returns the Deployment of the Foo.
func (c *testCluster) desired(foo *v1alpha1.Foo) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Namespace: "ns", Name: "web", Labels: map[string]string{"tier": "web"},
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(foo, c.foos.Kind)},
		},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To(c.replicas), Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: foo.Spec.Image}}},
		}},
	}
}

// serve answers as an API server does: each write makes a new version, a patch without an effect none.
func (c *testCluster) serve(action clienttesting.Action) (bool, runtime.Object, error) {
	request := fixture.Describe(action)
	c.requests = append(c.requests, request)
	if err := c.answer(request); err != nil {
		return true, nil, err
	}
	var before runtime.Object
	if action.GetVerb() == "patch" {
		before = c.get(action.GetResource())
	}
	_, object, err := clienttesting.ObjectReaction(c.live)(action)
	if verb := action.GetVerb(); err == nil && (verb == "create" || verb == "patch") {
		c.admit(object.(metav1.Object))
		c.store(action.GetResource(), object, before)
	}
	return true, object, err
}

// store makes a new version of the object, if it is not as before.
func (c *testCluster) store(resource schema.GroupVersionResource, object, before runtime.Object) {
	stored := object.(metav1.Object)
	if stored.GetUID() == "" {
		stored.SetUID(types.UID(fmt.Sprintf("uid-%d", c.version+1)))
		stored.SetGeneration(1)
	}
	if !equality.Semantic.DeepEqual(before, object) {
		c.version++
		stored.SetResourceVersion(strconv.Itoa(c.version))
	}
	if err := c.live.Update(resource, object, "ns"); err != nil {
		c.Fatal(err)
	}
}

// get returns the live Foo or Deployment, nil if there is none.
func (c *testCluster) get(resource schema.GroupVersionResource) runtime.Object {
	object, err := c.live.Get(resource, "ns", names[resource])
	if err != nil && !apierrors.IsNotFound(err) {
		c.Fatal(err)
	}
	return object
}

// see lets the caches catch up.
func (c *testCluster) see() {
	c.foo = c.get(foos).(*v1alpha1.Foo)
	fixture.Fill(c.fooStore, []*v1alpha1.Foo{c.foo})
	if d, _ := c.get(deployments).(*appsv1.Deployment); d != nil {
		fixture.Fill(c.deploymentStore, []*appsv1.Deployment{c.deployments.Trim(d)})
	} else if err := c.deploymentStore.Delete(c.desired(&v1alpha1.Foo{})); err != nil {
		c.Fatal(err)
	}
	c.fooStore.Bookmark(strconv.Itoa(c.version))
	c.deploymentStore.Bookmark(strconv.Itoa(c.version))
}

// drift lets another writer change the Deployment, or create it, and the caches see that.
func (c *testCluster) drift(changes ...func(metav1.Object)) {
	d := c.get(deployments)
	if d == nil {
		d = c.desired(c.foo)
		fixture.Create(c.live, deployments, []runtime.Object{d})
	}
	for _, change := range changes {
		change(d.(metav1.Object))
	}
	c.store(deployments, d, nil)
	c.see()
}

// edit changes the Foo, in a new generation, and lets the caches see that.
func (c *testCluster) edit(changes ...func(*v1alpha1.Foo)) {
	foo := c.get(foos).(*v1alpha1.Foo)
	foo.Generation++
	for _, change := range changes {
		change(foo)
	}
	c.store(foos, foo, nil)
	c.see()
}

// remove deletes the live Foo or Deployment.
func (c *testCluster) remove(resource schema.GroupVersionResource) {
	if err := c.live.Delete(resource, "ns", names[resource]); err != nil {
		c.Fatal(err)
	}
}

// cached returns the cached Deployment, nil if there is none.
func (c *testCluster) cached() *appsv1.Deployment {
	return c.deployments.Get("ns", "web")
}

// write makes the Deployment what the Foo asks for, and returns that. The caches do not see it yet.
func (c *testCluster) write() (*appsv1.Deployment, error) {
	current, desired := c.cached(), c.desired(c.foo)
	if current == nil {
		return c.deployments.Create(c.ctx, c.foo, desired)
	}
	return c.deployments.Patch(c.ctx, c.foo, current, desired)
}

// apply is write, and lets the caches see that.
func (c *testCluster) apply() error {
	kept, err := c.write()
	if c.see(); err == nil {
		fixture.Differ(c.T, "rule 24: what a sync keeps of an answer", c.cached(), kept)
	}
	return err
}

// report tells what became of the writes to that Deployment.
func (c *testCluster) report(current *appsv1.Deployment) controller.Report {
	return c.deployments.Report(c.foo, current, c.desired(c.foo))
}

// expect fails the test unless these are the requests since the last call, and the error is one for which is
// returns true, nil if that is nil.
func (c *testCluster) expect(err error, is func(error) bool, requests ...string) {
	c.Helper()
	if is == nil && err != nil || is != nil && !is(err) {
		c.Errorf("error %v", err)
	}
	fixture.Differ(c.T, "requests", requests, c.requests)
	c.requests = nil
}

// told fails the test unless these events have been recorded since the last call.
func (c *testCluster) told(events ...string) {
	c.Helper()
	fixture.Differ(c.T, "rule 16: events", events, fixture.Recorded(c.events))
}

// waits fails the test unless the next sync waits for the caches to show the last writes.
func (c *testCluster) waits(want bool) {
	c.Helper()
	if err := c.foos.Seen(cache.NewObjectName("ns", "foo")); isStale(err) != want {
		c.Errorf("rule 14: of the last writes the caches say: %v; the next sync should wait: %v", err, want)
	}
}

func isStale(err error) bool { return errors.Is(err, controller.ErrStaleCache) }
func isOverridden(err error) bool {
	return errors.Is(err, controller.ErrOverridden) && controller.IsRefusal(err)
}

// refuse returns an answer that refuses the requests which begin with verb.
func refuse(verb string, err error) func(string) error {
	return func(request string) error {
		if strings.HasPrefix(request, verb+" ") {
			return err
		}
		return nil
	}
}

func image(name string) func(metav1.Object) {
	return func(d metav1.Object) { deployment.Container(d.(*appsv1.Deployment), "c").Image = name }
}

func scale(replicas int32) func(metav1.Object) {
	return func(d metav1.Object) { d.(*appsv1.Deployment).Spec.Replicas = &replicas }
}

func orphan(d metav1.Object) { d.SetOwnerReferences(nil) }

const (
	readFoo = "get foos foo"
	read    = "get deployments web"
	create  = "create deployments web replicas=3 owner=uid-foo"
	reimage = `"template":{"spec":{"containers":[{"image":"a","name":"c"}]}}`
)

// patchOf returns the request that patches that of the spec of that version.
func patchOf(version int, spec string) string {
	return fmt.Sprintf(`patch deployments web {"metadata":{"resourceVersion":"%d"},"spec":{%s}}`, version, spec)
}

// rescale returns the request that sets the replicas to 3 in place of that version.
func rescale(version int) string { return patchOf(version, `"replicas":3`) }
