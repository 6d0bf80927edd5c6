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
	"flag"
	"fmt"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
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
	"k8s.io/client-go/features"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	typedappsv1 "k8s.io/client-go/kubernetes/typed/apps/v1"
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
	text, dirs := string(data), map[string]string{}
	for _, descriptor := range newProgram().Controllers {
		dirs[descriptor.Kind] = filepath.Join("pkg", "controller", descriptor.Name)
	}
	dirs[fooKind] = "."
	for name, table := range map[string]string{
		"flags": flagTable(), "metrics": metricTable(t), "alerts": reference.AlertTable(t),
		"reasons": reference.ReasonTable(t), "events": reference.EventTable(t, dirs),
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
	// The tables are made from the source, and a change of its form must not empty them.
	for _, row := range []string{
		"| " + fooKind + " | Ready | `DeploymentNotOwned` | `ErrResourceExists` |", "| " + fooKind + " | Ready | `InvalidSpec` | `InvalidSpec` |",
		"| any | Warning | `ErrResourceExists` |", "| any | Normal | `Created` |",
	} {
		if !strings.Contains(text, row) {
			t.Errorf("%s has no row %q", operations, row)
		}
	}
	if *updateDocs {
		if err := os.WriteFile(operations, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		return
	}
	differ(t, operations+" is out of date, run 'make generate'", text, string(data))
}

// gates are feature gates of client-go with their defaults.
type gates map[string]string

// Add implements features.Registry.
func (g gates) Add(specs map[features.Feature]features.FeatureSpec) error {
	for name, spec := range specs {
		g[string(name)] = strconv.FormatBool(spec.Default)
	}
	return nil
}

// TestFeatureGates compares the feature gates of docs/design.md with those of client-go.
func TestFeatureGates(t *testing.T) {
	text, err := os.ReadFile("docs/design.md")
	got, want := gates{}, gates{}
	if err = errors.Join(err, features.AddFeaturesToExistingFeatureGates(want)); err != nil {
		t.Fatal(err)
	}
	for _, gate := range regexp.MustCompile("`(\\w+)=(true|false)`").FindAllSubmatch(text, -1) {
		got[string(gate[1])] = string(gate[2])
	}
	differ(t, "docs/design.md has other feature gates than client-go, or other defaults", want, got)
}

// flagTable returns the table of all flags but alpha ones and klog's own.
func flagTable() string {
	flags := flag.NewFlagSet("", flag.ContinueOnError)
	klogFlags := app.NewOptions(newProgram()).AddFlags(flags)
	var table strings.Builder
	table.WriteString("| flag | default | what it does |\n|---|---|---|\n")
	flags.VisitAll(func(f *flag.Flag) {
		if klogFlags.Has(f.Name) || strings.HasPrefix(f.Usage, "[Alpha]") {
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
	controller.NewWorker(fooKind, controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: m}).Queue.ShutDown()
	m.Synced(fooKind, 0, nil, 0)
	m.Wrote(fooKind, "deployments", "create")
	store := cache.NewStore(cache.MetaNamespaceKeyFunc)
	if err := store.Add(newFoo()); err != nil {
		t.Fatal(err)
	}
	for _, descriptor := range newProgram().Controllers {
		m.CountByReady(pluralOf(&descriptor), store)
	}
	crontab.RegisterMetrics(m, cache.NewStore(cache.MetaNamespaceKeyFunc)) // +drop:crontab
	requestWebhooks(webhook.NewMetrics(registry))                          // +drop:webhooks
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

// pluralOf returns the plural of the kind in camel case.
func pluralOf(descriptor *app.ControllerDescriptor) string {
	kind, plural, same := descriptor.Kind, descriptor.Resource.Resource, 0
	for same < min(len(kind), len(plural)) && strings.EqualFold(kind[:same+1], plural[:same+1]) {
		same++
	}
	return kind[:same] + plural[same:]
}

// +drop:webhooks
// requestWebhooks makes the webhooks count a request.
func requestWebhooks(m *webhook.Metrics) {
	review := `{"apiVersion":"apiextensions.k8s.io/v1","kind":"ConversionReview","request":{}}`
	request := httptest.NewRequest(http.MethodPost, webhook.ConvertPath, strings.NewReader(review))
	request.Header.Set("Content-Type", "application/json")
	webhook.NewHandler(webhook.Options{Metrics: m, Clock: clock.RealClock{}}).ServeHTTP(httptest.NewRecorder(), request)
}

// +drop:end

// TestDescriptors compares each descriptor with the manifest that it names, and with the
// controller that it builds: the controller reads no cache but those of its Informers, which
// alone the process trims and waits for. In a process that does not lead its caches and indexes
// can be read, and its queue stays empty until it runs.
func TestDescriptors(t *testing.T) {
	for _, descriptor := range newProgram().Controllers {
		t.Run(descriptor.Name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				data, err := os.ReadFile(descriptor.CRDManifest)
				crd := apiextensionsv1.CustomResourceDefinition{}
				if err == nil {
					err = yaml.Unmarshal(data, &crd)
				}
				if err != nil {
					t.Fatal(err)
				}
				differ(t, "name of the CRD", crd.Name, descriptor.Resource.GroupResource().String())
				differ(t, "kind", crd.Spec.Names.Kind, descriptor.Kind)
				differ(t, "name in --controllers", crd.Spec.Names.Singular, descriptor.Name)

				object, err := ownscheme.Scheme.New(descriptor.Resource.GroupVersion().WithKind(descriptor.Kind))
				if err != nil {
					t.Fatal(err)
				}
				if foo, ok := object.(*v1alpha1.Foo); ok {
					newFoo().DeepCopyInto(foo)
				}
				object.(metav1.Object).SetNamespace(testNamespace)
				object.(metav1.Object).SetName("foo")
				e := newProcess(t, &descriptor, objects{object}, metav1.NamespaceAll)
				synctest.Wait()
				differ(t, "rule 22: keys in the queue of a standby", 0, e.worker.Queue.Len())
				// +drop:webhooks
				if descriptor.Name == "foo" {
					differ(t, "rule 22: Foos that the webhooks of a standby find", 1, len(webhookLookups(e, metav1.NamespaceAll).Claimants(testNamespace, "web")))
				}
				// +drop:end
				if err := e.worker.StartEventHandlers(t.Context()); err != nil {
					t.Error(err)
				}
				synctest.Wait()
				differ(t, "rule 22: keys in the queue once it leads", 1, e.worker.Queue.Len())
				e.run()
				e.stop()
				want, listed := sets.New[schema.GroupVersionResource](), sets.New[schema.GroupVersionResource]()
				for _, informer := range descriptor.Informers {
					want.Insert(informer.Resource)
				}
				for _, action := range append(e.kube.Actions(), e.own.Actions()...) {
					if action.GetVerb() == "list" {
						listed.Insert(action.GetResource())
					}
				}
				differ(t, "resources that it lists", want, listed)
			})
		})
	}
}

// TestSeveralNamespaces runs the Foo controller in two namespaces of three. The webhooks know the
// Foos in these.
func TestSeveralNamespaces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		descriptor, wanted := newFooDescriptor(), map[string]bool{"a": true, "b": true, "c": false}
		var foos []runtime.Object
		for namespace := range wanted {
			foos = append(foos, newFoo(func(foo *v1alpha1.Foo) { foo.Namespace = namespace }))
		}
		e := newProcess(t, &descriptor, foos, "b", "a")
		e.run()
		for namespace, want := range wanted {
			_, err := e.kube.AppsV1().Deployments(namespace).Get(t.Context(), "web", metav1.GetOptions{})
			differ(t, "Deployment in namespace "+namespace, want, err == nil)
			// +drop:webhooks
			differ(t, "Foo that the webhooks find in "+namespace, want, len(webhookLookups(e, namespace).Claimants(namespace, "web")) > 0)
			differ(t, "Deployment that the webhooks find in "+namespace, want, webhookLookups(e, namespace).Deployment(namespace, "web") != nil)
			// +drop:end
		}
		e.stop()
	})
}

// +drop:webhooks
// webhookLookups returns what the webhooks look up in the caches of the controller of that namespace.
func webhookLookups(e *processEnv, namespace string) webhook.Lookups {
	return newWebhookLookups(app.WebhookContext{Namespace: func(string) *app.ControllerContext { return e.contexts[namespace] }})
}

// +drop:end

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

// newProcess builds the controller and starts its informers.
func newProcess(t *testing.T, descriptor *app.ControllerDescriptor, objects []runtime.Object, namespaces ...string) *processEnv {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, cancel := context.WithCancel(ctx)
	var factories []fixtures.Factory
	e := &processEnv{kube: kubefake.NewClientset(), contexts: map[string]*app.ControllerContext{}}
	e.own = foofake.NewSimpleClientset()
	fixtures.Create(e.own.Tracker(), descriptor.Resource, objects)
	registered := controller.NewMetrics(metrics.NewKubeRegistry())
	e.worker = controller.NewWorker(descriptor.Kind, controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: registered, Workers: 2, GracePeriod: fixtures.GracePeriod})
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
		factories = append(factories, c.KubeInformers, c.Informers)
	}
	e.run = func() {
		stop := fixtures.Run(ctx, t, e.worker)
		e.stop = func() {
			cancel()
			stop()
			for _, factory := range factories {
				factory.Shutdown()
			}
		}
	}
	return e
}

// TestRunWithoutCaches stops the controller while it waits for the caches.
func TestRunWithoutCaches(t *testing.T) {
	inCluster(t, func(f *fixture) {
		ctx, cancel := context.WithCancel(f.ctx)
		time.AfterFunc(time.Second, cancel)
		if err := f.Worker.Run(ctx); err == nil || !strings.Contains(err.Error(), "waiting for the caches to sync") {
			f.Errorf("Run returned %v", err)
		}
		if !f.Worker.Queue.ShuttingDown() {
			f.Error("the queue still accepts keys after all workers have stopped")
		}
	})
}

// slowClient is a client of Deployments whose creations take time.
type slowClient struct {
	typedappsv1.DeploymentInterface

	takes time.Duration
	// done counts the finished creations.
	done atomic.Int32
}

func (c *slowClient) Create(ctx context.Context, deployment *appsv1.Deployment, options metav1.CreateOptions) (*appsv1.Deployment, error) {
	select {
	case <-time.After(c.takes):
		c.done.Add(1)
		return c.DeploymentInterface.Create(ctx, deployment, options)
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
}

// TestShutdown checks rule 20 with five Foos, two workers and requests of 3 or more seconds.
// The controller is stopped after one second.
func TestShutdown(t *testing.T) {
	for sentence, test := range map[string]struct {
		takes, stopTakes time.Duration
		done             int32
	}{
		"rule 20: running syncs finish, and no further key is synced": {
			takes: 3 * time.Second, stopTakes: 2 * time.Second, done: 2},
		"rule 20: requests still running after the grace period are cancelled": {
			takes: 30 * time.Second, stopTakes: fixtures.GracePeriod},
	} {
		t.Run(sentence, func(t *testing.T) {
			var foos objects
			for _, name := range []string{"a", "b", "c", "d", "e"} {
				foos = append(foos, newFoo(fooNamed(name), wants(name)))
			}
			synctest.Test(t, func(t *testing.T) {
				f := newFixture(t, foos...)
				slow := &slowClient{DeploymentInterface: f.Kube.AppsV1().Deployments(testNamespace), takes: test.takes}
				f.deployments.Client = func(string) controller.DependentClient[*appsv1.Deployment] { return slow }
				stop := f.start()
				time.Sleep(time.Second)
				began := time.Now()
				stop()
				differ(f, "finished creations", test.done, slow.done.Load())
				differ(f, "stopping took", test.stopTakes, time.Since(began))
			})
		})
	}
}

// TestProgressYieldsToWork checks rule 13: the Deployments of two hundred Foos are created at once,
// and what is told of their progress waits for a part of the budget, for 30 seconds at most.
func TestProgressYieldsToWork(t *testing.T) {
	var foos objects
	for i := range 200 {
		foos = append(foos, newFoo(fooNamed(fmt.Sprintf("foo-%d", i)), wants(fmt.Sprintf("web-%d", i))))
	}
	synctest.Test(t, func(t *testing.T) {
		f := newFixture(t, foos...)
		defer f.start()()
		differ(f, "rule 13: creations", 200, f.count("create deployments"))
		told := 0
		for _, step := range []struct {
			after time.Duration
			told  int
		}{{900 * time.Millisecond, 0}, {200 * time.Millisecond, 10}, {10 * time.Second, 50}, {20 * time.Second, 200}, {time.Hour, 200}} {
			time.Sleep(step.after)
			told += f.count("status")
			differ(f, fmt.Sprintf("rule 13: statuses %v later", step.after), step.told, told)
		}
	})
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
	differ(t, "resources of the informers (-), of the files testdata/suites.yaml (+)", want, got)
}
