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
	"flag"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	clientfake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/test/fixture"
)

func TestMain(m *testing.M) {
	// The second handler limits the rate of errors by sleeping. The clock of a synctest
	// bubble may stand years before that of the previous error.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

// testEnv is a process with two controllers, foo and other, and an API server that serves
// their resources and grants the rights as its state says.
type testEnv struct {
	testLog
	*controllers

	program    *Program
	foo, other testController
	state      atomic.Pointer[state]
	// asked is told of each request for discovery, and may answer it with an error.
	asked func(context.Context) error
	// lead elects the process.
	lead func(ctx context.Context, work func(context.Context) error) error
	// led says that the process has been the leader, eventsStopped that the recorder of events had
	// stopped by the end of that.
	led           atomic.Bool
	eventsStopped bool
}

// state is what the API server does, and what follows from that. The lists are names of
// controllers: foo, other, both in this order, or none.
type state struct {
	// served are those whose resource is served. Lists of failing ones fail, those of slow ones
	// take minutes. foo/b is forbidden in namespace b alone.
	served, forbidden, failing, slow string
	// leads says whether the process has campaigned for the lease, working which controllers sync.
	leads   bool
	working string
	// crd and caches are parts of the errors of these checks of /readyz.
	crd, caches string
}

func isIn(names, name string) bool { return slices.Contains(strings.Fields(names), name) }

// testController is what a controller has done, and what holds it up.
type testController struct {
	syncs atomic.Int32
	// keys has the synced keys if it is not nil.
	keys chan string
	// handling delays the informer's event handler, and so the end of the informer, until it is
	// closed.
	handling chan struct{}
	// broken is the error of New.
	broken error
}

var (
	fooResource   = schema.GroupVersion(v1alpha1.GroupVersion).WithResource("foos")
	otherResource = batchv1.SchemeGroupVersion.WithResource("cronjobs")
)

// newTestProgram returns a program whose controllers sync the Foos and the CronJobs.
func newTestProgram(e *testEnv) *Program {
	return &Program{
		Description: "is a test.",
		Controllers: []ControllerDescriptor{
			{
				Name: "foo", Kind: "Foo", Resource: fooResource, CRDManifest: "foo.yaml",
				Informers: []Informer{{Resource: fooResource}},
				AddFlags:  func(flags *flag.FlagSet) { flags.Int("first-size", 1, "") },
				New: func(_ context.Context, c *ControllerContext) error {
					return build(&e.foo, c, c.Informers.Samplecontroller().V1alpha1().Foos().TypedInformer())
				},
			},
			{
				Name: "other", Kind: "Other", Resource: otherResource, CRDManifest: "other.yaml",
				Informers: []Informer{{Resource: otherResource}},
				New: func(_ context.Context, c *ControllerContext) error {
					return build(&e.other, c, c.KubeInformers.Batch().V1().CronJobs().TypedInformer())
				},
			},
		},
		Webhooks: &Webhooks{Controller: "foo"}, // +drop:webhooks
	}
}

// build is the New of a controller that only counts its syncs.
func build[T cache.Object](of *testController, c *ControllerContext, informer cache.TypedSharedIndexInformer[T]) error {
	worker := c.Options.Worker
	worker.Handle(c.Options.Namespace, func(_ context.Context, key cache.ObjectName) (time.Duration, error) {
		of.syncs.Add(1)
		if of.keys != nil {
			of.keys <- key.String()
		}
		return 0, nil
	})
	controller.AddEventHandler(worker, "test", informer, cache.TypedResourceEventHandlerFuncs[T]{
		AddFunc: func(object T) {
			if of.handling != nil {
				<-of.handling
			}
			worker.Queue.Add(cache.MetaObjectToName(any(object).(metav1.Object)))
		},
		DeleteFunc: func(deleted cache.DeletedObject[T]) { worker.Queue.Add(deleted.GetObjectName()) },
	})
	return of.broken
}

// slowList is how long a list of a slow controller takes.
const slowList = 2 * time.Minute

// newTestEnv returns the process that the arguments ask for, beside an API server that serves
// both resources. change may change the program. The caller is in a synctest bubble.
func newTestEnv(t *testing.T, arguments string, change func(*testEnv)) (context.Context, *testEnv) {
	t.Helper()
	e := &testEnv{}
	ctx, log := newTestLog(t)
	e.testLog, e.program = log, newTestProgram(e)
	e.state.Store(&state{served: "foo other"})
	if change != nil {
		change(e)
	}
	options := must(parseOptions(e.program, strings.Fields(arguments), io.Discard))
	process := &servers{}
	process.webhooksOnly = options.webhook.only // +drop:webhooks
	e.lead = process.lead
	var owners, others []runtime.Object
	for _, namespace := range []string{"a", "b", "c"} {
		owners = append(owners, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "foo"}})
		others = append(others, &batchv1.CronJob{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "other"}})
	}
	kube := kubefake.NewClientset(others...)
	own := clientfake.NewSimpleClientset()
	fixture.Create(own.Tracker(), fooResource, owners)
	own.PrependReactor("list", fooResource.Resource, e.list("foo"))
	kube.PrependReactor("list", otherResource.Resource, e.list("other"))
	discovery := must(rest.UnversionedRESTClientFor(&rest.Config{
		Host: "localhost", Transport: e, QPS: -1, ContentConfig: rest.ContentConfig{NegotiatedSerializer: scheme.Codecs.WithoutConversion()},
	}))
	e.controllers = must(newControllers(ctx, &clients{kube: kube, own: own, discovery: discovery}, options,
		record.NewFakeRecorder(10), controller.NewMetrics(metrics.NewKubeRegistry())))
	return ctx, e
}

// list answers a list with the error that the state asks for, if any.
func (e *testEnv) list(name string) clienttesting.ReactionFunc {
	return func(action clienttesting.Action) (bool, runtime.Object, error) {
		state := e.state.Load()
		if isIn(state.failing, name) {
			return true, nil, apierrors.NewInternalError(errors.New("no disk"))
		}
		if isIn(state.slow, name) {
			time.Sleep(slowList)
		}
		forbidden := isIn(state.forbidden, name) || isIn(state.forbidden, name+"/"+action.GetNamespace())
		return forbidden, nil, apierrors.NewForbidden(action.GetResource().GroupResource(), "", errors.New("no right"))
	}
}

// RoundTrip implements http.RoundTripper for discovery: it answers which resources a group
// version has.
func (e *testEnv) RoundTrip(request *http.Request) (*http.Response, error) {
	if e.asked != nil {
		if err := e.asked(request.Context()); err != nil {
			return nil, err
		}
	}
	list := metav1.APIResourceList{TypeMeta: metav1.TypeMeta{Kind: "APIResourceList", APIVersion: "v1"}}
	for name, resource := range map[string]schema.GroupVersionResource{"foo": fooResource, "other": otherResource} {
		if request.URL.Path != "/apis/"+resource.GroupVersion().String() {
			continue
		}
		// The status alone is not enough.
		list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource.Resource + "/status"})
		if isIn(e.state.Load().served, name) {
			list.APIResources = append(list.APIResources, metav1.APIResource{Name: resource.Resource})
		}
	}
	w := httptest.NewRecorder()
	answer(w, list)
	return w.Result(), nil
}

// run runs the process for a minute, calls during, and shuts the process down.
func (e *testEnv) run(ctx context.Context, t *testing.T, during func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	ended := make(chan error)
	go func() {
		var eventsStopped atomic.Bool
		ended <- runControllers(ctx, e.controllers, func(ctx context.Context, work func(context.Context) error) error {
			return e.lead(ctx, func(ctx context.Context) error {
				e.led.Store(true)
				err := work(ctx)
				e.eventsStopped = eventsStopped.Load()
				return err
			})
		}, func() { eventsStopped.Store(true) })
	}()
	time.Sleep(time.Minute)
	synctest.Wait()
	during()
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("rule 20: the process ended with %v", err)
	}
}

// testLog has what was logged.
type testLog struct{ ktesting.Underlier }

func newTestLog(t *testing.T) (context.Context, testLog) {
	t.Helper()
	logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
	return klog.NewContext(t.Context(), logger), testLog{logger.GetSink().(ktesting.Underlier)}
}

// logged returns the log entries of that type with the text in them, each with its keys and values.
func (l testLog) logged(of ktesting.LogType, text string) []string {
	var logged []string
	for _, entry := range l.GetBuffer().Data() {
		line := fmt.Sprint(entry.Message, " ", entry.Err, entry.WithKVList, entry.ParameterKVList)
		if entry.Type == of && strings.Contains(line, text) {
			logged = append(logged, line)
		}
	}
	return logged
}

// checkError fails the test unless the error has the text in it, or is nil for "".
func checkError(t *testing.T, what string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want %q", what, err, want)
	}
}

// must returns the value if there is no error.
func must[T any](value T, err error) T {
	if err != nil {
		panic(err)
	}
	return value
}
