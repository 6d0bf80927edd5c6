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
	"context"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/util/sets"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/legacyregistry"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	ownfake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/pkg/server"
	"example.com/sample-controller/test/fixture"
)

const (
	fooNotServed   = "the API server does not serve foos.samplecontroller.k8s.io; kubectl apply -f foo.yaml"
	otherNotServed = "the API server does not serve cronjobs.batch; kubectl apply -f other.yaml"
)

// TestControllers tells which controllers work a minute after the start, and five minutes after
// each later change, by what the API server serves and forbids, and by how it lists.
func TestControllers(t *testing.T) {
	const foo, other, both, onlyOther = "foo", "other", "foo other", "--controllers=other"
	const named = "--controllers=*,other"
	allWork := state{served: both, leads: true, working: both}
	// Foo works alone; a controller that the user did not name does not make the process unready.
	fooWorks := func(s state) state {
		s.leads, s.working = true, foo
		return s
	}
	for sentence, test := range map[string]struct {
		arguments string
		states    []state
	}{
		"all whose resource is served work": {"", []state{allWork}},
		"one whose resource is not served does not delay another one": {"", []state{
			{served: other, leads: true, working: other}}},
		"while no resource is served, the process waits and is not ready": {"", []state{
			{crd: fooNotServed + "\n" + otherNotServed, caches: "no cache is filled"}}},
		"one that the user named and that is not served does not stop another one, but the process is not ready": {
			named, []state{fooWorks(state{served: foo, crd: otherNotServed})}},
		"one that is disabled does not work":  {"--controllers=*,-other", []state{fooWorks(state{served: both})}},
		"only those that the user named work": {onlyOther, []state{{served: both, leads: true, working: other}}},
		"a resource that is served later":     {"", []state{fooWorks(state{served: foo}), allWork}},
		"a right that is missing and granted": {"", []state{fooWorks(state{served: both, forbidden: other}), allWork}},
		"one whose list fails does not stop another one, but the process is not ready": {"", []state{
			fooWorks(state{served: both, failing: other, caches: "the other controller waits for its caches\nfilling the cache of cronjobs.batch: "}), allWork}},
		"one whose lists take long is waited for": {"", []state{
			{served: both, slow: other, caches: "the cache of cronjobs.batch is not filled yet"}}},
		"the same of the only one that is enabled": {onlyOther, []state{
			{forbidden: other, crd: otherNotServed, caches: "no cache is filled"},
			{served: other, forbidden: other, caches: "cronjobs.batch is forbidden: no right"},
			{served: other, leads: true, working: other}}},
		"one that the user named and that may not fill its caches does not stop another one, but the process is not ready": {
			named, []state{fooWorks(state{served: both, forbidden: other,
				caches: "the other controller waits for its caches\nfilling the cache of cronjobs.batch: "}), allWork}},
		"where the only one that is served may not fill its caches, the process waits": {"", []state{
			{served: foo, forbidden: foo, caches: "no cache is filled yet\nthe foo controller waits for its caches\n" +
				"filling the cache of foos.samplecontroller.k8s.io: "}, allWork}},
		// +drop:webhooks
		"a process of webhooks fills the caches that they read, and never leads": {
			"--webhooks-only --webhook-bind-address=:1 --leader-elect-resource-namespace=ns", []state{
				{served: other, crd: fooNotServed, caches: "no cache is filled"}, {served: both}}},
		// +drop:end
		"one that may not fill its cache of one namespace waits": {"--namespace=a,b --controllers=foo", []state{
			{served: foo, forbidden: "foo/b", caches: "filling the cache of foos.samplecontroller.k8s.io in namespace b: "},
			fooWorks(state{served: foo})}},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, e := newTestEnv(t, test.arguments, nil)
				e.state.Store(&test.states[0])
				e.run(ctx, t, func() {
					for i, want := range test.states {
						if i > 0 {
							e.state.Store(&want)
							time.Sleep(5 * time.Minute)
							synctest.Wait()
						}
						checkError(t, "crd", e.checkServed(), want.crd)
						checkError(t, "caches", e.checkCaches(), want.caches)
						fixture.Differ(t, "leads", want.leads, e.led.Load())
						fixture.Differ(t, "working", want.working, e.working())
					}
				})
				// The goroutine of a slow list must end before the test does.
				time.Sleep(slowList)
				if e.led.Load() != e.eventsStopped {
					t.Errorf("leads: %v; rule 20: events stopped before the release: %v", e.led.Load(), e.eventsStopped)
				}
			})
		})
	}
}

// working returns the names of the controllers that have synced something.
func (e *testEnv) working() string {
	var working []string
	for i, of := range []*testController{&e.foo, &e.other} {
		if of.syncs.Load() > 0 {
			working = append(working, e.program.Controllers[i].Name)
		}
	}
	return strings.Join(working, " ")
}

// TestLostLeaseDoesNotWait loses the lease while an informer hangs.
func TestLostLeaseDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "", nil)
		e.other.handling = make(chan struct{})
		var lost time.Time
		err := runControllers(ctx, e.controllers, func(ctx context.Context, work func(context.Context) error) error {
			workCtx, stopWork := context.WithCancel(ctx)
			go func() { _ = work(workCtx) }()
			time.Sleep(time.Minute)
			stopWork()
			lost = time.Now()
			return fmt.Errorf("%w: test", server.ErrLeaseLost)
		}, func() {})
		if took := time.Since(lost); !errors.Is(err, server.ErrLeaseLost) || took > 0 {
			t.Errorf("rule 20: %v, %s after the loss, want ErrLeaseLost at once", err, took)
		}
		// Let all goroutines of the bubble end.
		close(e.other.handling)
		e.shutdown(ctx)
	})
}

// TestLog tells what the log has after an hour in which the API server serves or grants nothing new.
func TestLog(t *testing.T) {
	const missing, forbidden = "Waiting for a CustomResourceDefinition", "Not allowed to fill a cache"
	for sentence, test := range map[string]struct {
		arguments string
		state     state
		of        ktesting.LogType
		message   string
		// most is how many such entries there are at most, detail what each has.
		least, most int
		detail      string
	}{
		"a missing right is logged once, with the remedy": {
			"", state{served: "foo other", forbidden: "other"}, ktesting.LogError, forbidden, 1, 1,
			grantRemedy(nil) + ", or disable the controller with --controllers"},
		"a right that is missing in one of several namespaces is logged with another remedy": {
			"--namespace=a,b", state{served: "foo", forbidden: "foo/b"}, ktesting.LogError, forbidden, 1, 1, "docs/scale.md"},
		"a missing right is logged with the controller": {
			"", state{served: "foo other", forbidden: "other"}, ktesting.LogError, "is forbidden", 1, 1, "controller other"},
		"a list that fails otherwise is logged each time": {
			"", state{served: "foo other", failing: "other"}, ktesting.LogError, "no disk", 2, 1000, ""},
		"a resource that is not served is logged once": {
			"", state{served: "foo"}, ktesting.LogInfo, missing, 1, 1, "kubectl apply -f other.yaml"},
		"one that the user named is logged each minute": {
			"--controllers=*,other", state{served: "foo"}, ktesting.LogInfo, missing, 60, 62, "cronjobs.batch"},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, e := newTestEnv(t, test.arguments, nil)
				e.state.Store(&test.state)
				e.run(ctx, t, func() { time.Sleep(time.Hour) })
				logged := e.logged(test.of, test.message)
				if len(logged) < test.least || len(logged) > test.most {
					t.Fatalf("%d entries, want %d to %d: %.1000q", len(logged), test.least, test.most, logged)
				}
				if !strings.Contains(logged[0], test.detail) {
					t.Errorf("no %q in the log entry %q", test.detail, logged[0])
				}
			})
		})
	}
}

// TestControllersStopQuietly stops the process during one of its first requests for discovery: while it waits for
// a resource client-go chooses between an answer and the end of the context by chance.
func TestControllersStopQuietly(t *testing.T) {
	for stop := range int32(5) {
		synctest.Test(t, func(t *testing.T) {
			ctx, e := newTestEnv(t, "", nil)
			e.state.Store(&state{served: "foo"})
			ctx, cancel := context.WithCancel(ctx)
			defer cancel()
			var asked atomic.Int32
			e.asked = func(request context.Context) error {
				if asked.Add(1) == stop {
					cancel()
				}
				// Another request sees that ctx has ended before what is derived from ctx has.
				return request.Err()
			}
			e.run(ctx, t, func() {})
			if logged := e.logged(ktesting.LogError, ""); len(logged) > 0 {
				t.Errorf("rule 20: request %d: log %q", stop, logged)
			}
		})
	}
}

// TestSeveralNamespaces works in two namespaces of three. The metric of the alert
// SampleControllerCacheNotFilled is 0 for a cache that RBAC forbids to fill, and not for one that
// is filled.
func TestSeveralNamespaces(t *testing.T) {
	alerts := must(os.ReadFile("../../artifacts/deploy/monitoring/alerts.yaml"))
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
		e.run(ctx, t, func() {
			w := httptest.NewRecorder()
			legacyregistry.Handler().ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
			values := map[string]string{}
			// Without those that other tests have left of all namespaces.
			line := regexp.MustCompile(alert[1] + `\{.*name="(\S+/\w+/\w+)".*\} (\d+)\n`)
			for _, match := range line.FindAllStringSubmatch(w.Body.String(), -1) {
				if watched.MatchString(match[1]) {
					values[match[1]] = match[2]
				}
			}
			fixture.Differ(t, alert[1], map[string]string{
				name + "/foo/a": "7", name + "/foo/b": "7", name + "/other/a": "0", name + "/other/b": "0",
			}, values)
			for namespace, want := range map[string]bool{"a": true, "b": true, "c": false} {
				c := e.find("foo").inNamespace(namespace)
				if (c != nil) != want || want && c.Options.Namespace != namespace {
					t.Errorf("the informers for namespace %s are %+v", namespace, c)
				}
			}
		})
		fixture.Differ(t, "synced", sets.New("a/foo", "b/foo"), sets.New(<-e.foo.keys, <-e.foo.keys))
		fixture.Differ(t, "further syncs", 0, len(e.foo.keys))
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
		Name: "web", Namespace: "a", UID: "uid", Generation: 3, ResourceVersion: "5", DeletionTimestamp: &deletion,
		OwnerReferences: []metav1.OwnerReference{{Kind: "Thing", Name: "x", UID: "uid-x", Controller: ptr.To(true)}},
	}
	bounded := appsv1.Deployment{
		ObjectMeta: identity, Spec: appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)}, Status: appsv1.DeploymentStatus{Replicas: 3},
	}
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
				e.run(ctx, t, func() {
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
				})
			})
		})
	}
}
