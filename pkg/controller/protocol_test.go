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
	"encoding/json"
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
	kubescheme "k8s.io/client-go/kubernetes/scheme"
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
	fooscheme "example.com/sample-controller/pkg/generated/clientset/versioned/scheme"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/test/fixture"
)

// cluster is an API server with the Foo "foo" and its Deployment "web", and a controller whose
// caches show them when the test says so.
type cluster struct {
	*testing.T
	ctx         context.Context
	worker      *controller.Worker
	foos        *controller.Owners[*v1alpha1.Foo]
	deployments *controller.Dependents[*v1alpha1.Foo, *appsv1.Deployment]
	// foo is the cached Foo.
	foo             *v1alpha1.Foo
	fooStore        cache.TypedIndexer[*v1alpha1.Foo]
	deploymentStore cache.TypedIndexer[*appsv1.Deployment]
	live            map[string]clienttesting.ObjectTracker
	events          *record.FakeRecorder
	registry        metrics.KubeRegistry

	// version is the latest one of the API server.
	version  int
	requests []string
	// answer may refuse a request, hold may block one about Deployments. admit is a mutating webhook.
	answer func(request string) error
	hold   func()
	admit  func(*appsv1.Deployment)
	// admitFoo is one for Foos.
	admitFoo func(*v1alpha1.Foo)
	// present is the answer to the request for the present version of Foos.
	present func() (string, error)
	// replicas are the wanted ones, existed says that the status knows of a Deployment, and trim
	// is what the cache keeps.
	replicas int32
	existed  bool
	trim     func(*appsv1.Deployment) *appsv1.Deployment
}

const foos, deployments = "foos", "deployments"

func resource(name string) schema.GroupVersionResource {
	if name == foos {
		return schema.GroupVersion(v1alpha1.GroupVersion).WithResource(foos)
	}
	return appsv1.SchemeGroupVersion.WithResource(deployments)
}

// inCluster calls test in a synctest bubble. This process leads, and has seen the present version.
func inCluster(t *testing.T, test func(c *cluster), change ...func(*controller.WorkerOptions)) {
	synctest.Test(t, func(t *testing.T) {
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		c := &cluster{
			T: t, ctx: klog.NewContext(t.Context(), logger), live: map[string]clienttesting.ObjectTracker{}, events: record.NewFakeRecorder(1000), registry: metrics.NewKubeRegistry(),
			answer: func(string) error { return nil }, hold: func() {}, admit: func(*appsv1.Deployment) {}, admitFoo: func(*v1alpha1.Foo) {}, present: func() (string, error) { return "10", nil },
			version: 10, replicas: 3, trim: func(d *appsv1.Deployment) *appsv1.Deployment { return d },
		}
		foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "foo", UID: "uid-foo", Generation: 1, ResourceVersion: "10"}, Spec: v1alpha1.FooSpec{DeploymentName: "web", Image: "a"}}
		kubeClient, fooClient := &kubefake.Clientset{}, &foofake.Clientset{}
		c.serve(&kubeClient.Fake, deployments, kubescheme.Scheme, kubescheme.Codecs.UniversalDecoder())
		c.serve(&fooClient.Fake, foos, fooscheme.Scheme, fooscheme.Codecs.UniversalDecoder())
		fixture.Create(t, c.live[foos], resource(foos), []*v1alpha1.Foo{foo})

		registered := controller.NewMetrics(c.registry)
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
			Kind:    schema.GroupVersion(v1alpha1.GroupVersion).WithKind("Foo"), Resource: v1alpha1.Resource(foos), Informer: fooInformer,
			Client: func(ns string) controller.OwnerClient[*v1alpha1.Foo] {
				return fooClient.SamplecontrollerV1alpha1().Foos(ns)
			},
			Present: func(context.Context) (string, error) { return c.present() },
			Status:  func(foo *v1alpha1.Foo) any { return &foo.Status },
		})
		var err error
		c.deployments, err = controller.NewDependents(c.foos, controller.DependentsOptions[*v1alpha1.Foo, *appsv1.Deployment]{
			Kind: "Deployment", Resource: appsv1.Resource(deployments), Informer: informer,
			Client: func(ns string) controller.DependentClient[*appsv1.Deployment] {
				c.hold()
				return kubeClient.AppsV1().Deployments(ns)
			},
			Diff:    c.diff,
			Trim:    func(d *appsv1.Deployment) *appsv1.Deployment { return c.trim(d) },
			Existed: func(*v1alpha1.Foo) bool { return c.existed },
			Advice:  "and change the Foo",
		})
		if err != nil {
			t.Fatal(err)
		}
		c.foos.ReadPresent(c.ctx)
		c.see()
		test(c)
	})
}

// diff compares replicas, image, a label and the owner reference.
func (c *cluster) diff(foo *v1alpha1.Foo, d *appsv1.Deployment) controller.Patch {
	patch := controller.NewPatch(d)
	patch.CompareReplicas(d.Spec.Replicas, c.replicas)
	if got := deployment.Container(d, "c").Image; got != foo.Spec.Image {
		patch.SetInContainer("c", foo.Spec.Image, got, foo.Spec.Image, "image")
	}
	patch.EnsureLabel(d, "tier", "web")
	patch.CompareController(d, foo, c.foos.Kind)
	return patch
}

// desired returns the Deployment of the Foo.
func (c *cluster) desired(foo *v1alpha1.Foo) *appsv1.Deployment {
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Namespace: "ns", Name: "web", Labels: map[string]string{"tier": "web"}, OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(foo, c.foos.Kind)}},
		Spec: appsv1.DeploymentSpec{Replicas: ptr.To(c.replicas), Template: corev1.PodTemplateSpec{
			Spec: corev1.PodSpec{Containers: []corev1.Container{{Name: "c", Image: foo.Spec.Image}}},
		}},
	}
}

// serve makes a fake client answer as an API server does: each write makes a new version, a
// patch without an effect none, and a patch of another version is refused.
func (c *cluster) serve(client *clienttesting.Fake, name string, scheme *runtime.Scheme, decoder runtime.Decoder) {
	live := clienttesting.NewObjectTracker(scheme, decoder)
	c.live[name] = live
	client.AddReactor("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		request := fixture.Describe(action, nil)
		c.requests = append(c.requests, request)
		if err := c.answer(request); err != nil {
			return true, nil, err
		}
		var before runtime.Object
		if patch, ok := action.(clienttesting.PatchActionImpl); ok {
			var sent metav1.PartialObjectMetadata
			if err := json.Unmarshal(patch.GetPatch(), &sent); err != nil {
				c.Fatal(err)
			}
			if before = c.get(name); before.(metav1.Object).GetResourceVersion() != sent.ResourceVersion {
				return true, nil, apierrors.NewConflict(resource(name).GroupResource(), patch.GetName(), errors.New("another version"))
			}
		}
		_, object, err := clienttesting.ObjectReaction(live)(action)
		if verb := action.GetVerb(); err == nil && (verb == "create" || verb == "patch") {
			object = c.store(name, object, before)
		}
		return true, object, err
	})
}

// store makes a new version of the object, if it is not as before.
func (c *cluster) store(name string, object, before runtime.Object) runtime.Object {
	switch object := object.(type) {
	case *v1alpha1.Foo:
		c.admitFoo(object)
	case *appsv1.Deployment:
		if c.admit(object); object.UID == "" {
			object.UID, object.Generation = types.UID(fmt.Sprintf("uid-%d", c.version+1)), 1
		}
	}
	if !equality.Semantic.DeepEqual(before, object) {
		c.version++
		object.(metav1.Object).SetResourceVersion(strconv.Itoa(c.version))
	}
	if err := c.live[name].Update(resource(name), object, "ns"); err != nil {
		c.Fatal(err)
	}
	return object
}

// get returns the live Foo or Deployment, nil if it is gone.
func (c *cluster) get(name string) runtime.Object {
	object, err := c.live[name].Get(resource(name), "ns", map[string]string{foos: "foo", deployments: "web"}[name])
	if err != nil && !apierrors.IsNotFound(err) {
		c.Fatal(err)
	}
	return object
}

// see lets the caches catch up.
func (c *cluster) see() {
	c.foo, _ = c.get(foos).(*v1alpha1.Foo)
	if c.foo != nil {
		fixture.Fill(c.T, c.fooStore, []*v1alpha1.Foo{c.foo})
	}
	if d, _ := c.get(deployments).(*appsv1.Deployment); d != nil {
		fixture.Fill(c.T, c.deploymentStore, []*appsv1.Deployment{c.trim(d)})
	} else if err := c.deploymentStore.Delete(c.desired(&v1alpha1.Foo{})); err != nil {
		c.Fatal(err)
	}
	c.fooStore.Bookmark(strconv.Itoa(c.version))
	c.deploymentStore.Bookmark(strconv.Itoa(c.version))
}

// drift lets another writer change the Deployment, or create it, and the caches see that.
func (c *cluster) drift(changes ...func(*appsv1.Deployment)) {
	d, _ := c.get(deployments).(*appsv1.Deployment)
	if d == nil {
		d = c.desired(c.foo)
		fixture.Create(c.T, c.live[deployments], resource(deployments), []*appsv1.Deployment{d})
	}
	for _, change := range changes {
		change(d)
	}
	admit := c.admit
	c.admit = func(*appsv1.Deployment) {}
	c.store(deployments, d, nil)
	c.admit = admit
	c.see()
}

// edit changes the Foo, in a new generation, and lets the caches see that.
func (c *cluster) edit(change func(*v1alpha1.Foo)) {
	foo := c.get(foos).(*v1alpha1.Foo)
	foo.Generation++
	change(foo)
	c.store(foos, foo, nil)
	c.see()
}

// remove deletes the live Foo or Deployment.
func (c *cluster) remove(name string) {
	if err := c.live[name].Delete(resource(name), "ns", map[string]string{foos: "foo", deployments: "web"}[name]); err != nil {
		c.Fatal(err)
	}
}

// apply makes the Deployment what the Foo asks for, and lets the caches see that.
func (c *cluster) apply() error {
	_, err := c.deployments.Apply(c.ctx, c.foo, c.deployments.Get("ns", "web"), c.desired)
	c.see()
	return err
}

// expect fails the test unless these are the requests since the last call, and the error is one for which is
// returns true, nil if that is nil.
func (c *cluster) expect(err error, is func(error) bool, requests ...string) {
	c.Helper()
	if is == nil && err != nil || is != nil && !is(err) {
		c.Errorf("error %v", err)
	}
	fixture.Differ(c.T, "requests", requests, c.requests)
	c.requests = nil
}

// differences fails the test unless these are the differences of the live Deployment.
func (c *cluster) differences(accepted, drift string) {
	c.Helper()
	report := c.deployments.Report(c.foo, c.get(deployments).(*appsv1.Deployment))
	fixture.Differ(c.T, "accepted and drift", []string{accepted, drift}, []string{report.Accepted, report.Drift})
}

// seen reports whether the caches show the last writes.
func (c *cluster) seen() bool {
	return c.foos.Seen(cache.MetaObjectToName(c.foo)) == nil
}

// written returns the writes that the metric counts, as resource and verb.
func (c *cluster) written() (writes []string) {
	families, err := c.registry.Gather()
	if err != nil {
		c.Fatal(err)
	}
	for _, family := range families {
		for _, metric := range family.GetMetric() {
			if family.GetName() == "sample_controller_writes_total" {
				writes = append(writes, fmt.Sprintf("%s %s %v", metric.GetLabel()[1].GetValue(), metric.GetLabel()[2].GetValue(), metric.GetCounter().GetValue()))
			}
		}
	}
	return writes
}

func isStale(err error) bool { return errors.Is(err, controller.ErrStaleCache) }
func isOverridden(err error) bool {
	return errors.Is(err, controller.ErrOverridden) && controller.IsRejection(err)
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

func image(name string) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { deployment.Container(d, "c").Image = name }
}

func scale(replicas int32) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { d.Spec.Replicas = &replicas }
}

func orphan(d *appsv1.Deployment) { d.OwnerReferences = nil }

const (
	readFoo = "get foos foo"
	read    = "get deployments web"
	create  = "create deployments web replicas=3 owner=uid-foo"
)

// rescale returns the request that sets the replicas to 3 in place of that version.
func rescale(version int) string {
	return fmt.Sprintf(`patch deployments web {"metadata":{"resourceVersion":"%d"},"spec":{"replicas":3}}`, version)
}
