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
	alert := regexp.MustCompile(`alert: SampleControllerCacheNotFilled\n(?:.*\n)*?      expr: .*\((\w+)\{name=~"(.*)"\}\) == 0\n`).
		FindStringSubmatch(string(alerts))
	if alert == nil {
		t.Fatal("there is no such alert")
	}
	watched := regexp.MustCompile("^(?:" + alert[2] + ")$")
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "--namespace=b,a", nil)
		e.state.Store(&state{served: "foo other", forbidden: "other"})
		e.foo.keys = make(chan string, 10)
		e.clients.own.(*ownfake.Clientset).PrependReactor("list", "foos", func(action clienttesting.Action) (bool, runtime.Object, error) {
			foo := v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Namespace: action.GetNamespace(), Name: "foo"}}
			return true, &v1alpha1.FooList{ListMeta: metav1.ListMeta{ResourceVersion: "7"}, Items: []v1alpha1.Foo{foo}}, nil
		})
		if err := e.run(ctx, func() {
			families, err := legacyregistry.DefaultGatherer.Gather()
			if err != nil {
				t.Fatal(err)
			}
			values := map[string]float64{}
			for _, family := range families {
				for _, metric := range family.GetMetric() {
					labels := map[string]string{}
					for _, label := range metric.GetLabel() {
						labels[label.GetName()] = label.GetValue()
					}
					// Without those that other tests have left of all namespaces.
					if cache := labels["name"]; family.GetName() == alert[1] && watched.MatchString(cache) && strings.Count(cache, "/") == 2 {
						values[cache+" "+labels["resource"]] = metric.GetGauge().GetValue()
					}
				}
			}
			fixture.Differ(t, alert[1], map[string]float64{
				name + "/foo/a foos": 7, name + "/foo/b foos": 7, name + "/other/a cronjobs": 0, name + "/other/b cronjobs": 0,
			}, values)
			for namespace, want := range map[string]bool{"a": true, "b": true, "c": false} {
				c := e.find("foo").inNamespace(namespace)
				if (c != nil) != want || want && c.Options.Namespace != namespace {
					t.Errorf("the informers for namespace %s are %+v", namespace, c)
				}
			}
		}); err != nil {
			t.Fatal(err)
		}
		fixture.Differ(t, "synced", []string{"a/foo", "b/foo"}, e.foo.synced())
	})
	if !watched.MatchString(name + "/foo") {
		t.Error("the alert ignores the informers of all namespaces")
	}
}

// TestOwnCaches has two controllers that read Deployments, and one of them Pods by a label: each
// has caches of its own, trimmed as it wants them.
func TestOwnCaches(t *testing.T) {
	deletion := metav1.NewTime(time.Unix(1, 0))
	identity := metav1.ObjectMeta{
		Name: "web", Namespace: "a", UID: "uid", ResourceVersion: "5", DeletionTimestamp: &deletion,
		OwnerReferences: []metav1.OwnerReference{{Kind: "Thing", Name: "x", UID: "uid-x", Controller: ptr.To(true)}},
	}
	bounded := appsv1.Deployment{
		ObjectMeta: identity, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}, Status: appsv1.DeploymentStatus{Replicas: 3},
	}
	bounded.Generation = 3
	full := bounded.DeepCopy()
	full.Labels, full.Annotations = map[string]string{"app": "web"}, map[string]string{"theirs": "large"}
	full.Finalizers, full.ManagedFields = []string{"example.com/wait"}, []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
	mine := appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: "web", ResourceVersion: "5", UID: "mine"}}
	deployments, pods := appsv1.SchemeGroupVersion.WithResource("deployments"), corev1.SchemeGroupVersion.WithResource("pods")
	for sentence, test := range map[string]struct {
		trim func(any) any
		want appsv1.Deployment
	}{
		"rule 24: without a Trim spec and status are kept, and of the metadata what is bounded": {nil, bounded},
		"rule 24: the Trim decides what is kept": {
			TypedTrim(func(*appsv1.Deployment) *appsv1.Deployment { return mine.DeepCopy() }), mine},
		"rule 5: of an object that does not concern the controller identity and owners are kept": {
			TypedTrim(func(*appsv1.Deployment) *appsv1.Deployment { return nil }), appsv1.Deployment{ObjectMeta: identity}},
		"a Trim for another type keeps no more": {
			TypedTrim(func(*corev1.Pod) *corev1.Pod { return &corev1.Pod{} }), appsv1.Deployment{ObjectMeta: identity}},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				informer := Informer{Resource: deployments, Trim: test.trim}
				ctx, e := newTestEnv(t, "", func(e *testEnv) {
					foo, other := &e.program.Controllers[0], &e.program.Controllers[1]
					foo.Informers = append(foo.Informers, Informer{Resource: deployments}, Informer{Resource: pods, Selector: "app"})
					other.Informers = append(other.Informers, informer)
				})
				e.state.Store(&state{served: "foo other", failing: "pods"})
				kube := e.clients.kube.(*kubefake.Clientset)
				kube.PrependReactor("list", "pods", e.list("pods"))
				err := kube.Tracker().Add(full.DeepCopy())
				for name, labels := range map[string]map[string]string{"x": {"app": "x"}, "y": nil} {
					pod := &corev1.Pod{ObjectMeta: metav1.ObjectMeta{Namespace: "a", Name: name, Labels: labels}}
					err = errors.Join(err, kube.Tracker().Add(pod))
				}
				if err != nil {
					t.Fatal(err)
				}
				if err := e.run(ctx, func() {
					for name, want := range map[string]appsv1.Deployment{"foo": bounded, "other": test.want} {
						cached := e.find(name).inNamespace("a").KubeInformers.Apps().V1().Deployments().Informer().GetStore().List()
						fixture.Differ(t, "cached of "+name, []any{&want}, cached)
					}
					again, err := informer.Transform(test.want.DeepCopy())
					fixture.Differ(t, "kept of what is kept", any(&test.want), again)
					if err != nil || e.find("foo").hasSynced() || !e.find("other").hasSynced() || e.find("none").hasSynced() {
						t.Errorf("error %v, or the webhooks do not know which caches are filled", err)
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
		})
	}
}
