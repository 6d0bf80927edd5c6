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

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	foofake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	ownscheme "example.com/sample-controller/pkg/generated/clientset/versioned/scheme"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	fixtures "example.com/sample-controller/test/fixture"
)

func TestMain(m *testing.M) {
	// The second handler limits the rate of errors by sleeping. The clock of a synctest
	// bubble may stand decades before that of the previous error.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

// fixture is a controller whose caches and API server are filled separately, by hand: the
// fake clients record all requests, and a test decides how far the caches lag.
type fixture struct {
	testing.TB
	*fixtures.Env
	*Controller

	ctx       context.Context
	foo       *foofake.Clientset
	options   ControllerOptions
	informers []fixtures.Factory
	// deploymentIndexer is the cache of Deployments.
	deploymentIndexer cache.TypedIndexer[*appsv1.Deployment]
}

// objects are Foos and Deployments.
type objects = []runtime.Object

// inCluster runs the test in a bubble, with the objects in the API server and in the caches.
func inCluster(t *testing.T, test func(f *fixture), all ...runtime.Object) {
	t.Helper()
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, all...)
		f.fill(all...)
		test(f)
	})
}

// newFixture returns a controller with those objects in the API server and nothing in its caches.
func newFixture(t testing.TB, all ...runtime.Object) *fixture {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	f := &fixture{TB: t, ctx: ctx, foo: foofake.NewSimpleClientset()}
	var foos, deployments objects
	for _, object := range all {
		if foo, ok := object.(*v1alpha1.Foo); ok {
			foos = append(foos, foo)
		} else {
			deployments = append(deployments, object.DeepCopyObject())
		}
	}
	f.Env = fixtures.NewEnv(t, fooKind, f.foo, ownscheme.Scheme, deployments...)
	fixtures.Create(f.Tracker, schema.GroupVersion(v1alpha1.GroupVersion).WithResource("foos"), foos)
	informers := fooinformers.NewSharedInformerFactory(f.foo, 0)
	f.informers = []fixtures.Factory{f.KubeInformers, informers}
	f.options = ControllerOptions{
		KubeClient: f.Kube, FooClient: f.foo, Options: f.Shared,
		Deployments: f.KubeInformers.Apps().V1().Deployments(), Foos: informers.Samplecontroller().V1alpha1().Foos(),
	}
	fixtures.Must(errors.Join(f.options.Deployments.Informer().SetTransform(newTransform()), f.options.Foos.Informer().SetTransform(newTransform())))
	var err error
	f.Controller, err = NewController(ctx, f.options)
	fixtures.Must(err)
	f.deploymentIndexer = f.options.Deployments.TypedInformer().GetTypedIndexer()
	f.foos.ReadStartVersion(ctx)
	f.Requests()
	f.fooIndexer.Bookmark(fixtures.Version)
	return f
}

// fill puts what the caches keep of the objects there, without calling the event handlers, and
// returns that.
func (f *fixture) fill(all ...runtime.Object) (kept objects) {
	f.Helper()
	for _, object := range all {
		kept = append(kept, cached(f, object))
		err := error(nil)
		switch object := kept[len(kept)-1].(type) {
		case *v1alpha1.Foo:
			err = f.fooIndexer.Add(object)
		case *appsv1.Deployment:
			err = f.deploymentIndexer.Add(object)
		}
		if err != nil {
			f.Fatal(err)
		}
	}
	return kept
}

// cached returns what a cache keeps of the object.
func cached[T runtime.Object](t testing.TB, object T) T {
	t.Helper()
	trimmed, err := newTransform()(object.DeepCopyObject())
	if err != nil {
		t.Fatal(err)
	}
	return trimmed.(T)
}

// newTransform returns the cache transform of the program, for Foos and for Deployments.
func newTransform() cache.TransformFunc {
	informers := newFooDescriptor().Informers
	return func(object any) (any, error) {
		if _, ok := object.(*v1alpha1.Foo); ok {
			return informers[0].Transform(object)
		}
		return informers[1].Transform(object)
	}
}

// count returns how many of the requests begin with one of these texts, and forgets all.
func (f *fixture) count(prefixes ...string) int {
	n := 0
	for _, request := range f.Requests() {
		if slices.ContainsFunc(prefixes, func(prefix string) bool { return strings.HasPrefix(request, prefix) }) {
			n++
		}
	}
	return n
}

// sync syncs the Foo "foo", and returns when the next sync is due. err is a part of the error.
func (f *fixture) sync(err string) time.Duration {
	f.Helper()
	again, got := f.syncHandler(f.ctx, fooKey())
	if got == nil != (err == "") || got != nil && !strings.Contains(got.Error(), err) {
		f.Errorf("error %v, want %q in it", got, err)
	}
	return again
}

// stored returns the message of Ready of the Foo "foo", once the cache shows it.
func (f *fixture) stored() string {
	f.Helper()
	foo, err := f.foo.SamplecontrollerV1alpha1().Foos(testNamespace).Get(f.ctx, "foo", metav1.GetOptions{})
	if err != nil {
		f.Fatal(err)
	}
	f.fill(foo)
	return controller.GetReady(foo.Status.Conditions).Message
}

// start runs informers and workers until the returned function is called.
func (f *fixture) start() (stop func()) {
	f.Helper()
	return fixtures.Run(f.ctx, f, f.Worker, f.informers...)
}

func fooKey() cache.ObjectName {
	return cache.NewObjectName(testNamespace, "foo")
}

func differ(t testing.TB, what string, want, got any) {
	t.Helper()
	fixtures.Differ(t, what, want, got)
}

// The builders return ordinary objects; each option changes one thing.

const (
	testNamespace = "ns"
	testVersion   = fixtures.Version
)

// testNow is when all tests happen, to the second as the API server keeps it.
var testNow = metav1.NewTime(time.Date(2026, 11, 21, 12, 0, 0, 0, time.UTC))

type fooOption func(*v1alpha1.Foo)

// newFoo returns a Foo "foo" that asks for 1 replica of Deployment "web".
func newFoo(options ...fooOption) *v1alpha1.Foo {
	foo := &v1alpha1.Foo{
		ObjectMeta: metav1.ObjectMeta{
			Name: "foo", Namespace: testNamespace, UID: "uid-foo", Generation: 1, ResourceVersion: testVersion,
		},
		Spec: v1alpha1.FooSpec{DeploymentName: "web", Replicas: ptr.To[int32](1)},
	}
	for _, option := range options {
		option(foo)
	}
	return foo
}

// fooNamed gives the Foo a name and its own UID.
func fooNamed(name string) fooOption {
	return func(foo *v1alpha1.Foo) { foo.Name, foo.UID = name, types.UID("uid-"+name) }
}

func fooUID(uid types.UID) fooOption {
	return func(foo *v1alpha1.Foo) { foo.UID = uid }
}

func wants(deploymentName string) fooOption {
	return func(foo *v1alpha1.Foo) { foo.Spec.DeploymentName = deploymentName }
}

func fooReplicas(replicas *int32) fooOption {
	return func(foo *v1alpha1.Foo) { foo.Spec.Replicas = replicas }
}

func fooImage(name string) fooOption {
	return func(foo *v1alpha1.Foo) { foo.Spec.Image = name }
}

// fooEdited gives the Foo its second generation.
func fooEdited(foo *v1alpha1.Foo) { foo.Generation = 2 }

func fooTerminating(foo *v1alpha1.Foo) {
	foo.DeletionTimestamp, foo.Finalizers = &testNow, []string{metav1.FinalizerDeleteDependents}
}

// fooStatus gives the Foo the status that this controller would have written for the findings
// a minute ago.
func fooStatus(f findings) fooOption {
	return func(foo *v1alpha1.Foo) {
		foo.Status = newStatus(foo, f, metav1.NewTime(testNow.Add(-time.Minute)))
	}
}

// fooReady gives the Foo the status of a finished rollout.
func fooReady(foo *v1alpha1.Foo) {
	fooStatus(findings{deployment: newOwned(foo, available)})(foo)
}

type deploymentOption func(*appsv1.Deployment)

// newOwned returns the Deployment that the controller would create for foo, with
// the defaults that the API server adds and nothing in its status.
func newOwned(foo *v1alpha1.Foo, options ...deploymentOption) *appsv1.Deployment {
	d := newDeployment(foo)
	d.UID, d.ResourceVersion, d.Generation = types.UID("uid-"+d.Name), testVersion, 1
	writtenBy(controller.FieldManager)(d)
	for _, option := range options {
		option(d)
	}
	return d
}

// newForeign returns a Deployment "web" without a controller.
func newForeign(options ...deploymentOption) *appsv1.Deployment {
	return newOwned(newFoo(), append([]deploymentOption{ownedBy()}, options...)...)
}

func ownedBy(owners ...metav1.OwnerReference) deploymentOption {
	return func(deployment *appsv1.Deployment) { deployment.OwnerReferences = owners }
}

// writtenBy makes that field manager the only writer of the Deployment.
func writtenBy(manager string) deploymentOption {
	return func(deployment *appsv1.Deployment) {
		deployment.ManagedFields = []metav1.ManagedFieldsEntry{{
			Manager: manager, Operation: metav1.ManagedFieldsOperationUpdate, APIVersion: "apps/v1",
			FieldsType: "FieldsV1", FieldsV1: metav1.NewFieldsV1(`{"f:spec":{"f:replicas":{}}}`),
		}}
	}
}

// adoptBy makes the Deployment ask to be adopted by the Foo of that name.
func adoptBy(foo string) deploymentOption {
	return func(deployment *appsv1.Deployment) {
		deployment.Annotations = map[string]string{v1alpha1.AdoptByAnnotation: foo}
	}
}

func deploymentReplicas(replicas *int32) deploymentOption {
	return func(deployment *appsv1.Deployment) { deployment.Spec.Replicas = replicas }
}

func deploymentTerminating(d *appsv1.Deployment) {
	d.DeletionTimestamp, d.Finalizers = &testNow, []string{metav1.FinalizerDeleteDependents}
}

// available gives the Deployment the status of a finished rollout.
var available = fixtures.Available

// summary is a status in one line: "gen=1 available=1 replicas=1 True/DeploymentAvailable".
func summary(foo *v1alpha1.Foo) string {
	ready := meta.FindStatusCondition(foo.Status.Conditions, v1alpha1.FooReady)
	if ready == nil {
		return "no status"
	}
	return fmt.Sprintf("gen=%d available=%d replicas=%d %s/%s",
		foo.Status.ObservedGeneration, foo.Status.AvailableReplicas, foo.Status.Replicas, ready.Status, ready.Reason)
}
