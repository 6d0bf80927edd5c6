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
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"
	kubeinformers "k8s.io/client-go/informers"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	kubefake "k8s.io/client-go/kubernetes/fake"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/app"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/crontab"
	foofake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	ownscheme "example.com/sample-controller/pkg/generated/clientset/versioned/scheme"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/pkg/webhook"
	fixtures "example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/kinds"
	"example.com/sample-controller/test/reference"
)

const operations = "docs/operations.md"

var updateDocs = flag.Bool("update-docs", false, "Write the tables of "+operations+" instead of comparing them.")

// TestOperationsDoc compares the tables of flags, metrics, alerts, reasons and events in docs/operations.md with
// those of the program. `make generate` writes the tables.
func TestOperationsDoc(t *testing.T) {
	data, err := os.ReadFile(operations)
	if err != nil {
		t.Fatal(err)
	}
	text := string(data)
	for name, table := range map[string]string{
		"flags": flagTable(), "metrics": metricTable(t), "alerts": reference.AlertTable(t),
		"reasons": reference.ReasonTable(t), "events": reference.EventTable(t, controllerDirs()),
	} {
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
		fmt.Fprintf(&table, "| `--%s` | %s | %s |\n", f.Name, value, reference.Cell(f.Usage))
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
	m.Of(fooKind).Synced(0, nil, 0)
	m.Of(fooKind).Wrote("deployments", "create")
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	if err := store.Add(newFoo()); err != nil {
		t.Fatal(err)
	}
	for _, descriptor := range newProgram().Controllers {
		m.CountByReady(pluralOf(&descriptor), store)
	}
	crontab.RegisterMetrics(m, cache.NewStore(cache.MetaNamespaceKeyFunc))
	requestWebhooks(webhook.NewMetrics(registry))
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
		lines = append(lines, fmt.Sprintf("| `%s` | %s | %s | %s |\n", family.GetName(), strings.ToLower(family.GetType().String()), strings.Join(labels, ", "), reference.Cell(help)))
	}
	slices.Sort(lines)
	return "| metric | type | labels | what it tells |\n|---|---|---|---|\n" + strings.Join(lines, "")
}

// controllerDirs returns the directories of the controllers by their kinds.
func controllerDirs() map[string]string {
	dirs := map[string]string{}
	for _, descriptor := range newProgram().Controllers {
		dirs[descriptor.Kind] = filepath.Join("pkg", "controller", descriptor.Name)
	}
	dirs[fooKind] = "."
	return dirs
}

// pluralOf returns the plural of the kind in camel case.
func pluralOf(descriptor *app.ControllerDescriptor) string {
	kind, plural, same := descriptor.Kind, descriptor.Resource.Resource, 0
	for same < min(len(kind), len(plural)) && strings.EqualFold(kind[:same+1], plural[:same+1]) {
		same++
	}
	return kind[:same] + plural[same:]
}

// requestWebhooks makes the webhooks count a request.
func requestWebhooks(m *webhook.Metrics) {
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

// TestSeveralNamespaces runs the Foo controller in two namespaces of three.
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
		checkWebhookLookups(t, e)
		e.stop()
	})
}

// checkWebhookLookups checks that the webhooks know the Foos and Deployments in the
// namespaces of the process, and no others.
func checkWebhookLookups(t *testing.T, e *processEnv) {
	t.Helper()
	lookups := newWebhookLookups(app.WebhookContext{Namespace: func(namespace string) *app.ControllerContext { return e.contexts[namespace] }})
	for _, namespace := range []string{"a", "b", "c"} {
		want := namespace != "c"
		if lookups.Deployment(namespace, "web") != nil != want || len(lookups.Claimants(namespace, "web")) > 0 != want {
			t.Errorf("the webhooks know what is in %s: want %v", namespace, want)
		}
	}
}

// TestStandby builds each controller as a process does that does not lead: its caches and
// indexes can be read, and its queue stays empty until it runs.
func TestStandby(t *testing.T) {
	for _, descriptor := range newProgram().Controllers {
		t.Run(descriptor.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				e := newProcess(t, &descriptor, []runtime.Object{newObject(t, &descriptor)}, metav1.NamespaceAll)
				synctest.Wait()
				differ(t, "rule 22: keys in the queue of a standby", 0, e.worker.Queue.Len())
				if descriptor.Name == "foo" {
					webhookLookups := newWebhookLookups(app.WebhookContext{Namespace: func(string) *app.ControllerContext { return e.contexts[metav1.NamespaceAll] }})
					differ(t, "rule 22: Foos that the webhooks of a standby find by the name that they ask for", 1, len(webhookLookups.Claimants(testNamespace, "web")))
				}
				if err := e.worker.StartEventHandlers(t.Context()); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				differ(t, "rule 22: keys in the queue once it leads", 1, e.worker.Queue.Len())
				e.run()
				synctest.Wait()
				e.stop()
			})
		})
	}
}

// newObject returns an object of the controller's kind.
func newObject(t *testing.T, descriptor *app.ControllerDescriptor) runtime.Object {
	t.Helper()
	if descriptor.Kind == fooKind {
		return newFoo()
	}
	object, err := ownscheme.Scheme.New(descriptor.Resource.GroupVersion().WithKind(descriptor.Kind))
	if err != nil {
		t.Fatal(err)
	}
	accessor, err := meta.Accessor(object)
	if err != nil {
		t.Fatal(err)
	}
	accessor.SetNamespace(testNamespace)
	accessor.SetName("foo")
	return object
}

// processEnv is a controller that runs as pkg/app runs it: built once for each namespace,
// with one worker, on fake API servers.
type processEnv struct {
	kube     *kubefake.Clientset
	own      *foofake.Clientset
	contexts map[string]*app.ControllerContext
	worker   *controller.Worker
	// run starts the workers, stop ends them.
	run, stop func()
}

// startProcess starts the controller and returns when nothing is left to do.
func startProcess(t *testing.T, descriptor *app.ControllerDescriptor, objects []runtime.Object, namespaces ...string) *processEnv {
	t.Helper()
	e := newProcess(t, descriptor, objects, namespaces...)
	e.run()
	synctest.Wait()
	return e
}

// newProcess builds the controller and starts its informers.
func newProcess(t *testing.T, descriptor *app.ControllerDescriptor, objects []runtime.Object, namespaces ...string) *processEnv {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	e := &processEnv{kube: kubefake.NewClientset(), contexts: map[string]*app.ControllerContext{}}
	var tracker clienttesting.ObjectTracker
	e.own, tracker = fixtures.NewClientset()
	fixtures.Create(t, tracker, descriptor.Resource, objects)
	registered := controller.NewMetrics(metrics.NewKubeRegistry())
	e.worker = controller.NewWorker(descriptor.Kind, controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: registered, Workers: 2, GracePeriod: testGracePeriod})
	for _, namespace := range namespaces {
		c := &app.ControllerContext{
			KubeClient: e.kube, Client: e.own,
			KubeInformers:         kubeinformers.NewSharedInformerFactoryWithOptions(e.kube, 0, kubeinformers.WithNamespace(namespace)),
			Informers:             fooinformers.NewSharedInformerFactoryWithOptions(e.own, 0, fooinformers.WithNamespace(namespace)),
			SelectedKubeInformers: map[string]kubeinformers.SharedInformerFactory{},
			Options:               controller.Options{Worker: e.worker, Namespace: namespace, Recorder: record.NewFakeRecorder(100), Clock: clock.RealClock{}, Metrics: registered},
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
	e.run = func() { go func() { ended <- e.worker.Run(ctx) }() }
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
		go func() { result <- f.Worker.Run(ctx) }()
		synctest.Wait()
		cancel()
		if err := <-result; err == nil || !strings.Contains(err.Error(), "waiting for the caches to sync") {
			t.Errorf("Run returned %v", err)
		}
		if !f.Worker.Queue.ShuttingDown() {
			t.Error("the queue still accepts keys after all workers have stopped")
		}
	})
}

// slowClient is a client of Deployments whose creations take time.
type slowClient struct {
	typedappsv1.DeploymentInterface

	takes time.Duration
	// done and cancelled count the finished and the cancelled creations.
	done, cancelled atomic.Int32
}

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
				slow := &slowClient{DeploymentInterface: f.kube.AppsV1().Deployments(testNamespace), takes: test.takes}
				f.deployments.Client = func(string) controller.DependentClient[*appsv1.Deployment] { return slow }
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

// TestProgressYieldsToWork checks rule 13: many Foos are created at once, and their
// Deployments become ready later.
func TestProgressYieldsToWork(t *testing.T) {
	const never = time.Hour
	for name, test := range map[string]struct {
		foos int
		// readyAfter returns when the Deployment of the Foo of that number is ready.
		readyAfter func(i int) time.Duration
		// mostStatuses bounds the status writes in the first minutes.
		mostStatuses int
	}{
		"rule 13: one Foo alone tells its progress after a second, and that it is ready": {
			foos: 1, readyAfter: func(int) time.Duration { return 5 * time.Second }, mostStatuses: 2},
		"rule 13: of a thousand Foos nine in ten are ready within 5 to 30 seconds, the others within a minute": {
			foos: 1000, mostStatuses: 1300,
			readyAfter: func(i int) time.Duration {
				if i%10 == 0 {
					return 30*time.Second + time.Duration(i*7919%1000)*30*time.Millisecond
				}
				return 5*time.Second + time.Duration(i*7919%1000)*25*time.Millisecond
			}},
		// No more can be saved here: every other Foo has waited for 30 seconds.
		"rule 13: of a thousand Foos all are ready evenly within 5 to 60 seconds": {
			foos: 1000, mostStatuses: 1600,
			readyAfter: func(i int) time.Duration { return 5*time.Second + time.Duration(i*7919%1000)*55*time.Millisecond }},
		"rule 13: what waits for longer than 30 seconds tells it, budget or not": {
			foos: 300, readyAfter: func(int) time.Duration { return never }, mostStatuses: 300},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, nil, nil)
				// The default recorder holds a hundred events.
				f.foos.Recorder = &record.FakeRecorder{}
				c := &slowCluster{t: t, fixture: f, begun: time.Now(), readyAfter: test.readyAfter, told: map[string]time.Duration{}}
				f.kube.PrependReactor("create", "deployments", c.create)
				f.foo.PrependReactor("patch", "foos", c.patchStatus)
				c.on = f.deployments.EventHandler(f.enqueueName)
				stop := f.start(ctx, t)
				synctest.Wait()
				for i := range test.foos {
					foo := newFoo(fooNamed(fmt.Sprintf("foo-%d", i)), wants(fmt.Sprintf("web-%d", i)))
					f.fill(t, []*v1alpha1.Foo{foo}, nil)
					f.foos.Enqueue(foo)
				}
				time.Sleep(5 * time.Minute)
				stop()
				t.Logf("%d statuses of %d Foos", c.statuses, test.foos)
				if c.statuses > test.mostStatuses {
					t.Errorf("%d statuses of %d Foos, want %d at most", c.statuses, test.foos, test.mostStatuses)
				}
				c.check(test.foos)
			})
		})
	}
}

// slowCluster is an API server and a Deployment controller, without the lag of a watch.
type slowCluster struct {
	*fixture

	t          *testing.T
	begun      time.Time
	readyAfter func(i int) time.Duration

	// on handles the events of Deployments.
	on appsinformers.DeploymentHandlerFuncs

	mu sync.Mutex
	// version is the last resourceVersion.
	version int
	// created are the Deployments, statuses the status writes.
	created, statuses int
	// early are the reports of progress in the first 30 seconds.
	early []time.Duration
	// told is when the first status of each Foo was written.
	told map[string]time.Duration
}

// nextVersion returns the resourceVersion of a write.
func (c *slowCluster) nextVersion() string {
	c.version++
	return fmt.Sprint(100 + c.version)
}

// create stores a Deployment, whose rollout begins after half a second.
func (c *slowCluster) create(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	d := action.(clienttesting.CreateAction).GetObject().(*appsv1.Deployment).DeepCopy()
	d.UID, d.Generation, d.ResourceVersion = types.UID("uid-"+d.Name), 1, c.nextVersion()
	var number int
	if _, err := fmt.Sscanf(d.Name, "web-%d", &number); err != nil {
		c.t.Error(err)
	}
	c.fill(c.t, nil, []*appsv1.Deployment{d})
	c.on.AddFunc(d)
	c.created++
	time.AfterFunc(time.Second/2, func() { c.setStatus(d, pods(1, 1, 0)) })
	time.AfterFunc(c.readyAfter(number), func() { c.setStatus(d, available) })
	return true, d, nil
}

// setStatus gives the Deployment a new status.
func (c *slowCluster) setStatus(old *appsv1.Deployment, status deploymentOption) {
	c.mu.Lock()
	defer c.mu.Unlock()
	updated := old.DeepCopy()
	updated.ResourceVersion = c.nextVersion()
	status(updated)
	c.fill(c.t, nil, []*appsv1.Deployment{updated})
	c.on.UpdateFunc(old, updated)
}

// patchStatus stores the status of a Foo. Its event comes before the answer.
func (c *slowCluster) patchStatus(action clienttesting.Action) (bool, runtime.Object, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	patch := action.(clienttesting.PatchAction)
	old, _ := c.foos.Cached(cache.NewObjectName(patch.GetNamespace(), patch.GetName()))
	updated := c.patched(old, patch.GetPatch())
	updated.ResourceVersion = c.nextVersion()
	c.fill(c.t, []*v1alpha1.Foo{updated}, nil)
	c.foos.Updated(old, updated)
	c.statuses++
	at := time.Since(c.begun)
	if _, ok := c.told[updated.Name]; !ok {
		c.told[updated.Name] = at
	}
	if ready := controller.GetReady(updated.Status.Conditions); ready.Status != metav1.ConditionTrue && at < 30*time.Second {
		c.early = append(c.early, at)
	}
	return true, updated, nil
}

// check checks when the Foos told what.
func (c *slowCluster) check(foos int) {
	if c.created != foos || len(c.told) != foos {
		c.t.Errorf("%d Deployments and %d Foos with a status, want %d", c.created, len(c.told), foos)
	}
	for name, at := range c.told {
		if at > 30*time.Second || foos == 1 && at != time.Second {
			c.t.Errorf("%s told nothing for %v", name, at)
		}
	}
	for i, at := range c.early {
		if budget := 10 + 4*(at-time.Second).Seconds(); float64(i+1) > budget+0.01 {
			c.t.Errorf("%d reports of progress within %v, want %.0f at most", i+1, at, budget)
			return
		}
	}
}

// TestSuites tests that the suites in test know each kind, and what its controller caches, as
// the descriptor says it.
func TestSuites(t *testing.T) {
	all, err := kinds.Read(".")
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string][]schema.GroupVersionResource{}, map[string][]schema.GroupVersionResource{}
	for _, descriptor := range newProgram().Controllers {
		name := descriptor.Name + " of " + descriptor.Kind
		for _, informer := range descriptor.Informers {
			want[name] = append(want[name], informer.Resource)
		}
	}
	for _, k := range all {
		name := k.Controller + " of " + k.Kind
		got[name] = append(got[name], k.GVR(), k.Owns.GVR())
		for i := range k.Also {
			got[name] = append(got[name], k.Also[i].GVR())
		}
		for i := range k.Reads {
			got[name] = append(got[name], k.Reads[i].GVR())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources of the informers (-), of the files testdata/suites.yaml (+):\n%s", diff)
	}
}
