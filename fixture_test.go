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
	"os"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/runtime"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	foofake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	fixtures "example.com/sample-controller/test/fixture"
)

func TestMain(m *testing.M) {
	// The second handler sleeps after an error until a moment has passed since the one
	// before, which in a bubble of testing/synctest may have been decades later.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

// testGracePeriod is the grace period of the controllers under test.
const testGracePeriod = 10 * time.Second

// fixture is a controller whose caches and API server are filled by hand, and
// apart: what it sends is all that the fake clients record, and the caches lag
// as the test wants them to.
type fixture struct {
	*Controller

	kube          *kubefake.Clientset
	foo           *foofake.Clientset
	kubeInformers kubeinformers.SharedInformerFactory
	fooInformers  fooinformers.SharedInformerFactory
	events        *record.FakeRecorder
	registry      metrics.KubeRegistry
	options       ControllerOptions
}

// newFixture returns a controller with those objects in the API server and
// nothing in its caches. The caller is in a synctest bubble.
func newFixture(t *testing.T, foos []*v1alpha1.Foo, deployments []*appsv1.Deployment, change ...func(*ControllerOptions)) (context.Context, *fixture) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	f := &fixture{
		kube:   kubefake.NewClientset(fixtures.Objects(deployments)...),
		foo:    foofake.NewClientset(fixtures.Objects(foos)...),
		events: record.NewFakeRecorder(100),
	}
	f.kubeInformers = kubeinformers.NewSharedInformerFactoryWithOptions(f.kube, 0, kubeinformers.WithTransform(newStripper().strip))
	f.fooInformers = fooinformers.NewSharedInformerFactoryWithOptions(f.foo, 0, fooinformers.WithTransform(newStripper().strip))
	f.registry = metrics.NewKubeRegistry()
	f.options = ControllerOptions{
		KubeClient:  f.kube,
		FooClient:   f.foo,
		Deployments: f.kubeInformers.Apps().V1().Deployments(),
		Foos:        f.fooInformers.Samplecontroller().V1alpha1().Foos(),
		Options: controller.Options{
			Recorder:    f.events,
			Clock:       clock.RealClock{},
			Metrics:     controller.NewMetrics(f.registry),
			Workers:     2,
			GracePeriod: testGracePeriod,
		},
	}
	for _, c := range change {
		c(&f.options)
	}
	var err error
	f.Controller, err = NewController(ctx, f.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Queue.ShutDown)
	return ctx, f
}

// fill puts what the caches keep of the objects into them, without telling the handlers.
func (f *fixture) fill(t *testing.T, foos []*v1alpha1.Foo, deployments []*appsv1.Deployment) {
	t.Helper()
	fixtures.Fill(t, f.fooIndex, cached(t, foos))
	fixtures.Fill(t, f.deploymentIndex, cached(t, deployments))
}

// cached returns what the caches keep of the objects.
func cached[T simObject](t *testing.T, objects []T) []T {
	t.Helper()
	var kept []T
	for _, object := range objects {
		stripped, err := newStripper().strip(object.DeepCopyObject())
		if err != nil {
			t.Fatal(err)
		}
		kept = append(kept, stripped.(T))
	}
	return kept
}

// deploymentEvents returns the handlers of the events of Deployments.
func (f *fixture) deploymentEvents() appsinformers.DeploymentHandlerFuncs {
	return kindOfFoo().Handlers(f.Loop, f.enqueueAskers)
}

// requests returns every request that was sent, in words, those about
// Deployments first.
func (f *fixture) requests() []string {
	var words []string
	for _, action := range append(f.kube.Actions(), f.foo.Actions()...) {
		words = append(words, describe(action))
	}
	return words
}

// describe returns a request in words.
func describe(action clienttesting.Action) string {
	return fixtures.Describe(action, func(object runtime.Object) string { return summary(object.(*v1alpha1.Foo)) })
}

// recorded returns the events that were recorded, as type and reason.
func (f *fixture) recorded() []string {
	return fixtures.Recorded(f.events)
}

// woken returns the keys that are in the queue once that much time has passed,
// without their namespace.
func (f *fixture) woken(after time.Duration) []string {
	return fixtures.Woken(f.Loop, after)
}

// start runs informers and workers until the returned function is called, which
// returns once Run has.
func (f *fixture) start(ctx context.Context, t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	f.kubeInformers.StartWithContext(ctx)
	f.fooInformers.StartWithContext(ctx)
	result := make(chan error)
	go func() { result <- f.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-result; err != nil {
			t.Errorf("Run: %v", err)
		}
		f.kubeInformers.Shutdown()
		f.fooInformers.Shutdown()
	}
}

func testKey(name string) cache.ObjectName {
	return cache.NewObjectName(testNamespace, name)
}

func differ(t *testing.T, what string, want, got any) {
	t.Helper()
	fixtures.Differ(t, what, want, got)
}
