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
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	ownfake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/test/fixture"
)

// TestSeveralNamespaces works in two namespaces of three. The metric of the alert
// SampleControllerCacheNotFilled is 0 for a cache that RBAC forbids to fill, and not for one that
// is filled.
func TestSeveralNamespaces(t *testing.T) {
	alerts, err := os.ReadFile("../../artifacts/deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	alert := regexp.MustCompile(`alert: SampleControllerCacheNotFilled\n(?:.*\n)*?      expr: .*\((\w+)\{name=~"(.*)"\}\) == 0\n`).FindStringSubmatch(string(alerts))
	if alert == nil {
		t.Fatal("there is no such alert")
	}
	for _, informerName := range []string{name + "/foo", name + "/foo/a"} {
		if !regexp.MustCompile("^(?:" + alert[2] + ")$").MatchString(informerName) {
			t.Errorf("the alert ignores the informers named %s", informerName)
		}
	}
	// informer-gen appends an s to every kind, also to Class and Policy.
	filled := map[string]float64{strings.ToLower("Foo") + "s": 7, "cronjobs": 0}
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "--namespace=b,a", nil)
		e.state.Store(&state{served: "foo other", forbidden: "other"})
		e.foo.keys = make(chan string, 10)
		e.clients.own.(*ownfake.Clientset).PrependReactor("list", fooResource.Resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			foo := v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Namespace: action.GetNamespace(), Name: "foo"}}
			return true, &v1alpha1.FooList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []v1alpha1.Foo{foo}}, nil
		})
		if err := e.run(ctx, func() {
			for namespace, want := range map[string]map[string]float64{"a": filled, "b": filled, "c": {}} {
				fixture.Differ(t, alert[1]+" of namespace "+namespace, want, cacheMetric(t, alert[1], namespace))
				c := e.find("foo").inNamespace(namespace)
				if (c == nil) != (namespace == "c") || c != nil && c.Options.Namespace != namespace {
					t.Errorf("the informers for namespace %s are %+v", namespace, c)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		fixture.Differ(t, "synced", []string{"a/foo", "b/foo"}, e.foo.synced())
	})
}

// cacheMetric returns the values of that metric of the caches of that namespace, by resource.
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
			if strings.HasSuffix(labels["name"], "/"+namespace) {
				values[labels["resource"]] = metric.GetGauge().GetValue()
			}
		}
	}
	return values
}

// TestOwnCaches has two controllers that read Deployments, and one of them Pods by a label: each
// has caches of its own, trimmed as it wants them.
func TestOwnCaches(t *testing.T) {
	named := func(name string) func(*appsv1.Deployment) *appsv1.Deployment {
		return func(d *appsv1.Deployment) *appsv1.Deployment {
			return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: d.Namespace, Name: d.Name, Labels: map[string]string{"by": name}}}
		}
	}
	deployments := appsv1.SchemeGroupVersion.WithResource("deployments")
	pods := Informer{Resource: corev1.SchemeGroupVersion.WithResource("pods"), Selector: "app"}
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "", func(e *testEnv) {
			foo, other := &e.program.Controllers[0], &e.program.Controllers[1]
			foo.Informers = append(foo.Informers, Informer{Resource: deployments, Trim: TypedTrim(named("foo"))}, pods)
			other.Informers = append(other.Informers, Informer{Resource: deployments, Trim: TypedTrim(named("other"))})
		})
		e.state.Store(&state{served: "foo other", failing: "pods"})
		e.clients.kube.(*kubefake.Clientset).PrependReactor("list", "pods", e.list("pods"))
		for name, labels := range map[string]map[string]string{"x": {"app": "x"}, "y": nil} {
			meta := metav1.ObjectMeta{Namespace: "a", Name: name, Labels: labels}
			_, podErr := e.clients.kube.CoreV1().Pods("a").Create(ctx, &corev1.Pod{ObjectMeta: meta}, metav1.CreateOptions{})
			_, err := e.clients.kube.AppsV1().Deployments("a").Create(ctx, &appsv1.Deployment{ObjectMeta: meta}, metav1.CreateOptions{})
			if err = errors.Join(podErr, err); err != nil {
				t.Fatal(err)
			}
		}
		if err := e.run(ctx, func() {
			for _, name := range []string{"foo", "other"} {
				store := e.find(name).inNamespace("a").KubeInformers.Apps().V1().Deployments().Informer().GetStore()
				if cached := store.List(); len(cached) != 2 || cached[0].(*appsv1.Deployment).Labels["by"] != name {
					t.Errorf("%s has cached %+v", name, cached)
				}
			}
			if e.find("foo").hasSynced() || !e.find("other").hasSynced() || e.find("none").hasSynced() {
				t.Error("the webhooks do not know which caches are filled")
			}
			fixture.Differ(t, "working before the cache of Pods is filled", "other", e.working())
			e.state.Store(&state{served: "foo other"})
			time.Sleep(5 * time.Minute)
			synctest.Wait()
			fixture.Differ(t, "working", "foo other", e.working())
			selected := e.find("foo").inNamespace("a").SelectedKubeInformers["app"].Core().V1().Pods().Informer().GetStore()
			fixture.Differ(t, "cached by the selector", []string{"a/x"}, selected.ListKeys())
		}); err != nil {
			t.Error(err)
		}
	})
}

// TestTransform: what a cache keeps of an object.
func TestTransform(t *testing.T) {
	deleted := metav1.NewTime(time.Unix(1, 0))
	full := func() *appsv1.Deployment {
		return &appsv1.Deployment{
			ObjectMeta: metav1.ObjectMeta{
				Name: "web", Namespace: "default", UID: "uid", ResourceVersion: "5", Generation: 3, DeletionTimestamp: &deleted,
				Labels: map[string]string{"app": "web"}, Annotations: map[string]string{"theirs": "large"}, Finalizers: []string{"example.com/wait"},
				OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "x", UID: "uid-x", Controller: ptr.To(true)}},
				ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
			},
			Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}, Status: appsv1.DeploymentStatus{Replicas: 3},
		}
	}
	bounded, identity := full(), full()
	bounded.Labels, bounded.Annotations, bounded.Finalizers, bounded.ManagedFields = nil, nil, nil, nil
	*identity = appsv1.Deployment{ObjectMeta: bounded.ObjectMeta}
	identity.Generation = 0
	mine := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: "mine"}}
	for sentence, test := range map[string]struct {
		trim func(any) any
		want *appsv1.Deployment
	}{
		"rule 24: without a Trim spec and status are kept, and of the metadata what is bounded": {nil, bounded},
		"rule 24: the Trim decides what is kept":                                                {TypedTrim(func(*appsv1.Deployment) *appsv1.Deployment { return mine }), mine},
		"rule 5: of an object that does not concern the controller identity and owners are kept": {
			TypedTrim(func(*appsv1.Deployment) *appsv1.Deployment { return nil }), identity},
		"a Trim for another type keeps nothing else": {TypedTrim(func(*corev1.Pod) *corev1.Pod { return &corev1.Pod{} }), identity},
	} {
		t.Run(sentence, func(t *testing.T) {
			informer := Informer{Trim: test.trim}
			got, err := informer.Transform(full())
			again, againErr := informer.Transform(got)
			if err = errors.Join(err, againErr); err != nil {
				t.Fatal(err)
			}
			fixture.Differ(t, "kept", any(test.want), got)
			fixture.Differ(t, "kept of what is kept", any(test.want), again)
			if got, err := informer.Transform("no object"); got != "no object" || err != nil {
				t.Errorf("a string became %v, error %v", got, err)
			}
		})
	}
}
