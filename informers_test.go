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
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	foofake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
)

// inNamespace makes a Foo one of that namespace.
func inNamespace(namespace string) func(*v1alpha1.Foo) {
	return func(foo *v1alpha1.Foo) { foo.Namespace = namespace }
}

// TestSeveralNamespaces runs a controller in two namespaces of three.
func TestSeveralNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		ctx, cancel := context.WithCancel(ctx)
		clients := &clients{kube: kubefake.NewClientset(), foo: foofake.NewClientset(newFoo(inNamespace("a")), newFoo(inNamespace("b")), newFoo(inNamespace("c")))}
		informers, err := newInformers(clients, &options{namespaces: []string{"b", "a"}})
		if err != nil {
			t.Fatal(err)
		}
		common := controller.Options{Recorder: record.NewFakeRecorder(10), Clock: clock.RealClock{}, Metrics: controller.NewMetrics(metrics.NewKubeRegistry()), Workers: 2, GracePeriod: testGracePeriod}
		loop, feeds, err := fooUnit(clients, informers, common).build(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := informers.start(ctx, feeds, func(err error) { t.Error(err) }); err != nil {
			t.Fatal(err)
		}
		ended := make(chan error)
		go func() { ended <- loop.Run(ctx) }()
		synctest.Wait()
		var served []string
		for _, namespace := range []string{"a", "b", "c"} {
			deployments, err := clients.kube.AppsV1().Deployments(namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, deployment := range deployments.Items {
				served = append(served, deployment.Namespace+"/"+deployment.Name)
			}
		}
		differ(t, "Deployments", []string{"a/web", "b/web"}, served)
		lookups := webhookLookups(informers, nil)
		for _, namespace := range []string{"a", "b", "c"} {
			want := namespace != "c"
			if lookups.Deployment(namespace, "web") != nil != want || len(lookups.Claimants(namespace, "web")) > 0 != want {
				t.Errorf("the webhooks know what is in %s: want %v", namespace, want)
			}
		}
		differ(t, "caches in the metrics", []string{"sample-controller/a deployments", "sample-controller/a foos", "sample-controller/b deployments", "sample-controller/b foos"}, cachesInMetrics(t))
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		informers.shutdown(context.Background())
	})
}

// cachesInMetrics returns name and resource of those of a namespace of which metrics tell.
func cachesInMetrics(t *testing.T) []string {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var caches []string
	for _, family := range families {
		if family.GetName() != "informer_queued_items" {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			// Other tests have caches of all namespaces.
			if strings.Contains(labels["name"], "/") {
				caches = append(caches, labels["name"]+" "+labels["resource"])
			}
		}
	}
	slices.Sort(caches)
	return caches
}

// TestOneNamespaceForbidden: where one of several may not be watched, the error says which.
func TestOneNamespaceForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		ctx, cancel := context.WithCancel(ctx)
		kube := kubefake.NewClientset()
		kube.PrependReactor("list", "deployments", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return action.GetNamespace() == "b", nil, apierrors.NewForbidden(appsv1.Resource("deployments"), "", errors.New("no right in "+action.GetNamespace()))
		})
		informers, err := newInformers(&clients{kube: kube, foo: foofake.NewClientset()}, &options{namespaces: []string{"a", "b"}})
		if err != nil {
			t.Fatal(err)
		}
		common := controller.Options{Recorder: record.NewFakeRecorder(10), Clock: clock.RealClock{}, Metrics: controller.NewMetrics(metrics.NewKubeRegistry()), Workers: 1, GracePeriod: testGracePeriod}
		u := fooUnit(&clients{kube: kube, foo: foofake.NewClientset()}, informers, common)
		u.served = func(context.Context) (bool, error) { return true, nil }
		u.awaitServed = func(context.Context, bool) error { return nil }
		f := newFleet(func(string) (on, named bool) { return true, true }, informers, []*unit{u})
		if err := f.prepare(ctx); !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "no right in b") {
			t.Errorf("error %v", err)
		}
		cancel()
		f.shutdown(context.Background())
	})
}
