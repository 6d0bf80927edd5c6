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
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/app"
	"example.com/sample-controller/pkg/controller"
	foofake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/pkg/webhook"
)

const operations = "docs/operations.md"

var updateDocs = flag.Bool("update-docs", false, "Write the tables of "+operations+" instead of comparing them.")

// TestOperationsDoc compares the tables of flags and metrics in docs/operations.md with
// the flags and metrics of the program. `make generate` writes the tables.
func TestOperationsDoc(t *testing.T) {
	data, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for name, table := range map[string]string{"flags": flagTable(), "metrics": metricTable(t)} {
		section := regexp.MustCompile(`(?s)(<!-- begin ` + name + ` -->\n).*(<!-- end ` + name + ` -->)`)
		if !section.MatchString(text) {
			t.Fatalf("%s has no table of the %s", operations, name)
		}
		text = section.ReplaceAllStringFunc(text, func(found string) string {
			parts := section.FindStringSubmatch(found)
			return parts[1] + table + parts[2]
		})
	}
	if *updateDocs {
		if err := os.WriteFile(operations, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	differ(t, operations+" is out of date, run 'make generate'", text, string(data))
}

// cell escapes a text for a cell of a table.
func cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", `\|`), "\n", " ")
}

// flagTable returns the table of all flags but klog's own.
func flagTable() string {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klogFlags := app.NewOptions(newProgram()).AddFlags(flags)
	var table strings.Builder
	table.WriteString("| flag | default | what it does |\n|---|---|---|\n")
	flags.VisitAll(func(f *flag.Flag) {
		if klogFlags.Has(f.Name) {
			return
		}
		value := f.DefValue
		if value != "" {
			value = "`" + value + "`"
		}
		fmt.Fprintf(&table, "| `--%s` | %s | %s |\n", f.Name, value, cell(f.Usage))
	})
	return table.String()
}

// metricTable returns the table of the metrics that this program adds to those of client-go
// and component-base.
func metricTable(t *testing.T) string {
	t.Helper()
	registry := metrics.NewKubeRegistry()
	m := controller.NewMetrics(registry)
	// Metrics with labels exist once they were counted.
	m.Of(fooKind).Synced("success", 0)
	m.Of(fooKind).Wrote("deployments", "create")
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	if err := store.Add(newFoo()); err != nil {
		t.Fatal(err)
	}
	for _, descriptor := range newProgram().Controllers {
		m.CountByReady(descriptor.Kind+"s", store)
	}
	requestConversion(webhook.NewMetrics(registry))
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for _, family := range families {
		var labels []string
		for _, pair := range family.Metric[0].Label {
			labels = append(labels, "`"+pair.GetName()+"`")
		}
		help := strings.TrimPrefix(family.GetHelp(), "[ALPHA] ")
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |\n", family.GetName(), strings.ToLower(family.GetType().String()), strings.Join(labels, ", "), cell(help)))
	}
	slices.Sort(lines)
	return "| metric | type | labels | what it tells |\n|---|---|---|---|\n" + strings.Join(lines, "")
}

// requestConversion makes the webhooks count a request.
func requestConversion(m *webhook.Metrics) {
	review := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{}}`
	request := httptest.NewRequest(http.MethodPost, webhook.ConvertPath, strings.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	webhook.NewHandler(webhook.Options{Metrics: m, Clock: clock.RealClock{}}).ServeHTTP(httptest.NewRecorder(), request)
}

// TestDescriptors compares each descriptor with the manifest that it names, and with the
// controller that it builds: the controller reads no cache but those of its Informers,
// which alone the process trims and waits for.
func TestDescriptors(t *testing.T) {
	for _, descriptor := range newProgram().Controllers {
		t.Run(descriptor.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data, err := os.ReadFile(descriptor.CRDManifest)
				if err != nil {
					t.Fatal(err)
				}
				crd := apiextensionsv1.CustomResourceDefinition{}
				if err := yaml.Unmarshal(data, &crd); err != nil {
					t.Fatal(err)
				}
				differ(t, "name of the CRD", crd.Name, descriptor.Resource.GroupResource().String())
				differ(t, "kind", crd.Spec.Names.Kind, descriptor.Kind)
				differ(t, "name in --controllers", crd.Spec.Names.Singular, descriptor.Name)

				want := sets.New[schema.GroupVersionResource]()
				for _, informer := range descriptor.Informers {
					want.Insert(informer.Resource)
				}
				e := startProcess(t, &descriptor, nil, metav1.NamespaceAll)
				e.stop()
				differ(t, "resources that it lists", want, e.listed())
			})
		})
	}
}

// TestSeveralNamespaces runs the Foo controller in two namespaces of three. The webhooks
// know the Foos and Deployments of these.
func TestSeveralNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		descriptor := newFooDescriptor()
		var foos []runtime.Object
		for _, namespace := range []string{"a", "b", "c"} {
			foos = append(foos, newFoo(func(foo *v1alpha1.Foo) { foo.Namespace = namespace }))
		}
		e := startProcess(t, &descriptor, foos, "b", "a")
		var created []string
		for _, namespace := range []string{"a", "b", "c"} {
			deployments, err := e.kube.AppsV1().Deployments(namespace).List(t.Context(), metav1.ListOptions{})
			if err != nil {
				t.Fatal(err)
			}
			for _, deployment := range deployments.Items {
				created = append(created, deployment.Namespace+"/"+deployment.Name)
			}
		}
		differ(t, "Deployments", []string{"a/web", "b/web"}, created)
		lookups := newWebhookLookups(app.WebhookContext{Namespace: func(namespace string) *app.ControllerContext { return e.contexts[namespace] }})
		for _, namespace := range []string{"a", "b", "c"} {
			want := namespace != "c"
			if lookups.Deployment(namespace, "web") != nil != want || len(lookups.Claimants(namespace, "web")) > 0 != want {
				t.Errorf("the webhooks know what is in %s: want %v", namespace, want)
			}
		}
		e.stop()
	})
}

// processEnv is a controller that runs as pkg/app runs it: built once for each namespace,
// with one worker, on fake API servers.
type processEnv struct {
	kube     *kubefake.Clientset
	own      *foofake.Clientset
	contexts map[string]*app.ControllerContext
	stop     func()
}

// startProcess starts the controller and returns when nothing is left to do.
func startProcess(t *testing.T, descriptor *app.ControllerDescriptor, objects []runtime.Object, namespaces ...string) *processEnv {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	e := &processEnv{kube: kubefake.NewClientset(), own: foofake.NewClientset(objects...), contexts: map[string]*app.ControllerContext{}}
	registered := controller.NewMetrics(metrics.NewKubeRegistry())
	worker := controller.NewWorker(descriptor.Kind, controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: registered, Workers: 2, GracePeriod: testGracePeriod})
	for _, namespace := range namespaces {
		c := &app.ControllerContext{
			KubeClient: e.kube, Client: e.own,
			KubeInformers:         kubeinformers.NewSharedInformerFactoryWithOptions(e.kube, 0, kubeinformers.WithNamespace(namespace)),
			Informers:             fooinformers.NewSharedInformerFactoryWithOptions(e.own, 0, fooinformers.WithNamespace(namespace)),
			SelectedKubeInformers: map[string]kubeinformers.SharedInformerFactory{},
			Options:               controller.Options{Worker: worker, Namespace: namespace, Recorder: record.NewFakeRecorder(100), Clock: clock.RealClock{}, Metrics: registered},
		}
		for _, informer := range descriptor.Informers {
			c.SelectedKubeInformers[informer.Selector] = c.KubeInformers
		}
		e.contexts[namespace] = c
		if err := descriptor.New(ctx, c); err != nil {
			t.Fatal(err)
		}
		c.KubeInformers.StartWithContext(ctx)
		c.Informers.StartWithContext(ctx)
	}
	ended := make(chan error)
	go func() { ended <- worker.Run(ctx) }()
	e.stop = func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		for _, c := range e.contexts {
			c.KubeInformers.Shutdown()
			c.Informers.Shutdown()
		}
	}
	synctest.Wait()
	return e
}

// listed returns the resources that the informers have listed.
func (e *processEnv) listed() sets.Set[schema.GroupVersionResource] {
	listed := sets.New[schema.GroupVersionResource]()
	for _, action := range append(e.kube.Actions(), e.own.Actions()...) {
		if action.GetVerb() == "list" {
			listed.Insert(action.GetResource())
		}
	}
	return listed
}

// TestRun follows one Foo through a running controller: the event of the Foo leads to the
// Deployment, the event of the Deployment to the status, and then no request follows.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, nil, nil)
		stop := f.start(ctx, t)

		foos := f.foo.SamplecontrollerV1alpha1().Foos(testNamespace)
		if _, err := foos.Create(ctx, newFoo(), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		deployments := f.kube.AppsV1().Deployments(testNamespace)
		deployment, err := deployments.Get(ctx, "web", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		available(deployment)
		deployment.ResourceVersion = "2" // The fake does not increment it.
		if _, err := deployments.UpdateStatus(ctx, deployment, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()

		foo, err := foos.Get(ctx, "foo", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		differ(t, "status", "gen=1 available=1 replicas=1 True/DeploymentAvailable", summary(foo))
		differ(t, "events", []string{"Normal Created", "Normal Synced"}, f.recorded())

		f.kube.ClearActions()
		f.foo.ClearActions()
		time.Sleep(time.Hour)
		differ(t, "rule 15: requests in an hour without a change", []string(nil), f.requests())
		stop()
	})
}

// TestRunWithoutCaches stops the controller while it waits for the caches.
func TestRunWithoutCaches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, nil, nil)
		ctx, cancel := context.WithCancel(ctx)
		result := make(chan error)
		go func() { result <- f.worker.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-result; err == nil || !strings.Contains(err.Error(), "waiting for the caches to sync") {
			t.Errorf("Run returned %v", err)
		}
		if !f.worker.Queue.ShuttingDown() {
			t.Error("the queue still accepts keys after all workers have stopped")
		}
	})
}

// slowClient is a client whose Create of a Deployment takes a while unless its context ends
// before. A reactor of the fake clientset gets no context and blocks all other requests.
type slowClient struct {
	kubernetes.Interface
	typedappsv1.AppsV1Interface
	typedappsv1.DeploymentInterface

	takes time.Duration
	// done and cancelled count the finished and the cancelled requests.
	done, cancelled atomic.Int32
}

func newSlowClient(fast kubernetes.Interface, takes time.Duration) *slowClient {
	return &slowClient{Interface: fast, AppsV1Interface: fast.AppsV1(), DeploymentInterface: fast.AppsV1().Deployments(testNamespace), takes: takes}
}

func (c *slowClient) AppsV1() typedappsv1.AppsV1Interface { return c }

func (c *slowClient) Deployments(string) typedappsv1.DeploymentInterface { return c }

func (c *slowClient) RESTClient() rest.Interface { return c.AppsV1Interface.RESTClient() }

func (c *slowClient) Create(ctx context.Context, deployment *appsv1.Deployment, options metav1.CreateOptions) (*appsv1.Deployment, error) {
	select {
	case <-time.After(c.takes):
		c.done.Add(1)
		return c.DeploymentInterface.Create(ctx, deployment, options)
	case <-ctx.Done():
		c.cancelled.Add(1)
		return nil, context.Cause(ctx)
	}
}

// TestShutdown checks rule 20 with five Foos, two workers and requests of 3 or more seconds.
// The controller is stopped after one second.
func TestShutdown(t *testing.T) {
	tests := map[string]struct {
		takes, stopTakes time.Duration
		done, cancelled  int32
	}{
		"rule 20: running syncs finish, and no further key is synced": {
			takes: 3 * time.Second, stopTakes: 2 * time.Second, done: 2},
		"rule 20: requests still running after the grace period are cancelled": {
			takes: 30 * time.Second, stopTakes: testGracePeriod, cancelled: 2},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var foos []*v1alpha1.Foo
				for _, name := range []string{"a", "b", "c", "d", "e"} {
					foos = append(foos, newFoo(fooNamed(name), wants(name)))
				}
				ctx, f := newFixture(t, foos, nil)
				slow := newSlowClient(f.kube, test.takes)
				f.kubeClient = slow
				stop := f.start(ctx, t)
				time.Sleep(time.Second)
				began := time.Now()
				stop()
				if got := slow.done.Load(); got != test.done {
					t.Errorf("%d creations finished, want %d", got, test.done)
				}
				if got := slow.cancelled.Load(); got != test.cancelled {
					t.Errorf("%d creations were cancelled, want %d", got, test.cancelled)
				}
				if took := time.Since(began); took != test.stopTakes {
					t.Errorf("stopping took %v, want %v", took, test.stopTakes)
				}
			})
		})
	}
}

// TestPanic checks rule 18: the sync of one Foo panics, the controller still syncs the other
// Foo, and retries the first one.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad, good := newFoo(fooNamed("bad"), wants("bad")), newFoo(fooNamed("good"), wants("good"))
		ctx, f := newFixture(t, []*v1alpha1.Foo{bad, good}, nil)
		var panics atomic.Int32
		f.kube.PrependReactor("create", "deployments", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.(clienttesting.CreateAction).GetObject().(*appsv1.Deployment).Name == "bad" && panics.Add(1) <= 3 {
				panic("three times")
			}
			return false, nil, nil
		})
		stop := f.start(ctx, t)
		time.Sleep(time.Minute)
		for _, name := range []string{"bad", "good"} {
			if _, err := f.kube.AppsV1().Deployments(testNamespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
				t.Errorf("rule 18: %v", err)
			}
		}
		if got := panics.Load(); got != 4 {
			t.Errorf("rule 18: %d requests, want 3 that panic and one that succeeds", got)
		}
		stop()
	})
}
