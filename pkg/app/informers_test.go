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

package app

import (
	"errors"
	"maps"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/legacyregistry"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	ownfake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	fixtures "example.com/sample-controller/test/fixture"
)

// fooMetric is the resource in the metrics of informers of Foos: informer-gen appends an s to every
// kind, also to Class and Policy.
var fooMetric = strings.ToLower("Foo") + "s"

// TestSeveralNamespaces works in two namespaces of three.
func TestSeveralNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "--namespace=b,a", nil)
		e.foo.served.Store(true)
		e.foo.keys = make(chan string, 10)
		if err := e.run(ctx, func() {
			for _, namespace := range []string{"a", "b", "c"} {
				var cached []string
				if namespace != "c" {
					cached = []string{fooMetric}
				}
				fixtures.Differ(t, "caches in the metrics", cached, slices.Collect(maps.Keys(cacheMetric(t, "informer_queued_items", namespace))))
				c := e.informers.forNamespace(namespace)
				if (c == nil) != (namespace == "c") || c != nil && c.Options.Namespace != namespace {
					t.Errorf("the informers for namespace %s are %+v", namespace, c)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		close(e.foo.keys)
		var synced []string
		for key := range e.foo.keys {
			synced = append(synced, key)
		}
		slices.Sort(synced)
		fixtures.Differ(t, "synced", []string{"a/foo", "b/foo"}, synced)
	})
}

// TestAlertOnCacheNotFilled: the metric of the alert SampleControllerCacheNotFilled is 0 for a
// cache that RBAC forbids to fill, and not for one that is filled.
func TestAlertOnCacheNotFilled(t *testing.T) {
	alerts, err := os.ReadFile("../../artifacts/deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	alert := regexp.MustCompile(`alert: SampleControllerCacheNotFilled\n(?:.*\n)*?      expr: .*\((\w+)\{name=~"(.*)"\}\) == 0\n`).FindStringSubmatch(string(alerts))
	if alert == nil {
		t.Fatal("there is no such alert")
	}
	for _, informerName := range []string{name, name + "/x"} {
		if !regexp.MustCompile("^(?:" + alert[2] + ")$").MatchString(informerName) {
			t.Errorf("the alert ignores the informers named %s", informerName)
		}
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "--namespace=x,y", nil)
		e.foo.served.Store(true)
		e.other.served.Store(true)
		e.other.forbidden.Store(true)
		e.clients.own.(*ownfake.Clientset).PrependReactor("list", fooResource.Resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, &v1alpha1.FooList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}}, nil
		})
		if err := e.run(ctx, func() {
			fixtures.Differ(t, alert[1], map[string]float64{fooMetric: 7, "cronjobs": 0}, cacheMetric(t, alert[1], "x"))
		}); err != nil {
			t.Error(err)
		}
	})
}

// cacheMetric returns the values of that metric of the caches of that namespace alone, by
// resource.
func cacheMetric(t *testing.T, metricName, namespace string) map[string]float64 {
	t.Helper()
	families, err := legacyregistry.DefaultGatherer.Gather()
	if err != nil {
		t.Fatal(err)
	}
	values := map[string]float64{}
	for _, family := range families {
		if family.GetName() != metricName {
			continue
		}
		for _, metric := range family.GetMetric() {
			labels := map[string]string{}
			for _, label := range metric.GetLabel() {
				labels[label.GetName()] = label.GetValue()
			}
			if labels["name"] == name+"/"+namespace {
				values[labels["resource"]] = metric.GetGauge().GetValue()
			}
		}
	}
	return values
}

// TestOneNamespaceForbidden has no right in one of two namespaces: /readyz and the log
// name it, and how to grant the right in it.
func TestOneNamespaceForbidden(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "--namespace=a,b --controllers=foo", nil)
		e.foo.served.Store(true)
		e.foo.forbiddenInB.Store(true)
		if err := e.run(ctx, func() {
			err := e.checkCaches()
			checkError(t, "caches", err, "filling the cache of foos.samplecontroller.k8s.io in namespace b: ")
			checkError(t, "caches", err, "no right")
			if strings.Contains(err.Error(), "in namespace a") || e.led.Load() {
				t.Errorf("error %v, leads: %v", err, e.led.Load())
			}
			logged := strings.Join(e.loggedErrors(), "\n")
			if !strings.Contains(logged, "docs/scale.md") || strings.Count(logged, "\n") > 0 {
				t.Errorf("errors in the log: %s", logged)
			}
			e.foo.forbiddenInB.Store(false)
			time.Sleep(time.Minute)
			synctest.Wait()
			if err := e.checkCaches(); err != nil || e.foo.syncs.Load() != 2 {
				t.Errorf("once it has the right: error %v, %d syncs", err, e.foo.syncs.Load())
			}
		}); err != nil {
			t.Error(err)
		}
	})
}

// TestSharedInformer forbids a resource that two controllers read, of which one starts
// later: both wait, and the log names both, once.
func TestSharedInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "", func(e *testEnv) {
			e.program.Controllers[1].Informers = []Informer{{Resource: otherResource}, {Resource: fooResource}}
		})
		e.foo.served.Store(true)
		e.foo.forbidden.Store(true)
		if err := e.run(ctx, func() {
			e.other.served.Store(true)
			time.Sleep(time.Minute)
			synctest.Wait()
			for _, c := range e.all {
				if c.hasSynced() || !c.isForbidden() {
					t.Errorf("the %s controller: has synced %v, forbidden %v", c.Name, c.hasSynced(), c.isForbidden())
				}
			}
			if logged := e.loggedErrors(); len(logged) != 1 || !strings.Contains(logged[0], "controllers [foo other]") {
				t.Errorf("errors in the log: %q", logged)
			}
		}); err != nil {
			t.Error(err)
		}
	})
}

// TestSelectedInformer has a controller that reads Pods by a label, and what is trimmed.
func TestSelectedInformer(t *testing.T) {
	pods := Informer{Resource: corev1.SchemeGroupVersion.WithResource("pods"), Selector: "app", Trim: TypedTrim(func(pod *corev1.Pod) *corev1.Pod {
		return &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: pod.Namespace, Name: pod.Name, Annotations: map[string]string{"trimmed": ""}}}
	})}
	deployments := Informer{Resource: appsv1.SchemeGroupVersion.WithResource("deployments"), Trim: TypedTrim(func(*appsv1.Deployment) *appsv1.Deployment { return nil })}
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "--controllers=foo", func(e *testEnv) {
			e.program.Controllers[0].Informers = append(e.program.Controllers[0].Informers, pods, deployments)
		})
		e.foo.served.Store(true)
		meta := metav1.ObjectMeta{Namespace: "a", Name: "x", Labels: map[string]string{"app": "x"}}
		_, podErr := e.clients.kube.CoreV1().Pods("a").Create(ctx, &corev1.Pod{ObjectMeta: meta}, metav1.CreateOptions{})
		_, otherErr := e.clients.kube.CoreV1().Pods("a").Create(ctx, &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "y"}}, metav1.CreateOptions{})
		_, deploymentErr := e.clients.kube.AppsV1().Deployments("a").Create(ctx, &appsv1.Deployment{ObjectMeta: meta}, metav1.CreateOptions{})
		if err := errors.Join(podErr, otherErr, deploymentErr); err != nil {
			t.Fatal(err)
		}
		if err := e.run(ctx, func() {
			c := e.informers.forNamespace("a")
			for _, store := range []cache.Store{
				c.SelectedKubeInformers["app"].Core().V1().Pods().Informer().GetStore(), c.KubeInformers.Apps().V1().Deployments().Informer().GetStore(),
			} {
				fixtures.Differ(t, "cached", []string{"a/x"}, store.ListKeys())
				for _, object := range store.List() {
					if labels := object.(metav1.Object).GetLabels(); len(labels) > 0 {
						t.Errorf("%T is cached with the labels %v", object, labels)
					}
				}
			}
			if !e.hasSynced("foo") || e.hasSynced("other") {
				t.Error("the webhooks do not know which caches are filled")
			}
		}); err != nil {
			t.Error(err)
		}
	})
}

// TestInformerErrors: an error that is no missing right is logged by client-go, and told
// by /readyz.
func TestInformerErrors(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "--controllers=foo", nil)
		e.foo.served.Store(true)
		e.foo.failing.Store(true)
		if err := e.run(ctx, func() {
			checkError(t, "caches", e.checkCaches(), "no disk")
			if c := e.all[0]; c.isForbidden() || len(e.loggedErrors()) < 2 {
				t.Errorf("forbidden: %v, errors in the log: %q", c.isForbidden(), e.loggedErrors())
			}
		}); err != nil {
			t.Error(err)
		}
	})
}

// TestForbiddenThenFailing: a controller that RBAC forbids to list does not make the process
// unready when its lists begin to fail in another way.
func TestForbiddenThenFailing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "", nil)
		e.foo.served.Store(true)
		e.other.served.Store(true)
		e.other.forbidden.Store(true)
		if err := e.run(ctx, func() {
			for _, failing := range []bool{false, true, false} {
				e.other.failing.Store(failing)
				time.Sleep(2 * time.Minute)
				synctest.Wait()
				if err := e.checkCaches(); err != nil || !e.led.Load() || e.foo.syncs.Load() == 0 {
					t.Errorf("with failing lists %v: not ready %v, led %v", failing, err, e.led.Load())
				}
			}
			forbidden := 0
			for _, logged := range e.loggedErrors() {
				if strings.Contains(logged, "Not allowed to fill a cache") {
					forbidden++
				}
			}
			if forbidden != 1 {
				t.Errorf("the missing right is logged %d times", forbidden)
			}
		}); err != nil {
			t.Error(err)
		}
	})
}
