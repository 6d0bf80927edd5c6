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

package crontab

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
	clientfake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/pkg/generated/informers/externalversions"
)

func TestMain(m *testing.M) {
	// The second handler sleeps to limit the rate of errors. Bubbles of testing/synctest start
	// in 2000, so after one that has run to 2026 it would sleep for decades.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

// testVersion is the resource version of the objects that a test begins with.
const testVersion = "10"

// fixture is a controller whose caches and API server a test fills separately.
type fixture struct {
	*Controller

	kube          *kubefake.Clientset
	client        *clientfake.Clientset
	kubeInformers kubeinformers.SharedInformerFactory
	informers     externalversions.SharedInformerFactory
	events        *record.FakeRecorder
	registry      metrics.KubeRegistry
	options       Options

	mu sync.Mutex
	// version is that of the last write, sent are the requests in order.
	version int
	sent    []string
}

// newFixture returns a controller at that time, with those objects in the API server and
// empty caches. wrap may change the client for Jobs. The caller is in a synctest bubble.
func newFixture(t *testing.T, now string, cronTabs []*alphav1.CronTab, jobs []*batchv1.Job, wrap ...func(kubernetes.Interface) kubernetes.Interface) (context.Context, *fixture) {
	t.Helper()
	time.Sleep(time.Until(moment(now)))
	_, ctx := ktesting.NewTestContext(t)
	f := &fixture{
		kube:    kubefake.NewClientset(objects(jobs)...),
		client:  clientfake.NewClientset(objects(cronTabs)...),
		events:  record.NewFakeRecorder(10_000),
		version: 10,
	}
	f.newProcess(ctx, t, wrap...)
	f.prepend("*", "*", f.stamp)
	return ctx, f
}

// newProcess replaces the controller by one that remembers nothing.
func (f *fixture) newProcess(ctx context.Context, t *testing.T, wrap ...func(kubernetes.Interface) kubernetes.Interface) {
	t.Helper()
	f.kubeInformers = kubeinformers.NewSharedInformerFactory(f.kube, 0)
	f.informers = externalversions.NewSharedInformerFactory(f.client, 0)
	f.registry = metrics.NewKubeRegistry()
	registered := controller.NewMetrics(f.registry)
	f.options = Options{
		KubeClient: f.kube,
		Client:     f.client,
		CronTabs:   f.informers.Alpha().V1().CronTabs(),
		Jobs:       f.kubeInformers.Batch().V1().Jobs(),
		Options: controller.Options{
			Worker:    controller.NewWorker(cronTabGVK().Kind, controller.WorkerOptions{Clock: clock.RealClock{}, Metrics: registered, Workers: 2, GracePeriod: 10 * time.Second}),
			Namespace: metav1.NamespaceAll, Recorder: f.events, Clock: clock.RealClock{}, Metrics: registered,
		},
	}
	// The fake API server shares its objects with the informers.
	trim := func(object any) (any, error) { return Trim(object.(runtime.Object).DeepCopyObject()), nil }
	for _, informer := range []cache.SharedIndexInformer{f.options.CronTabs.Informer(), f.options.Jobs.Informer()} {
		if err := informer.SetTransform(trim); err != nil {
			t.Fatal(err)
		}
	}
	for _, wrap := range wrap {
		f.options.KubeClient = wrap(f.kube)
	}
	var err error
	f.Controller, err = New(ctx, f.options)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(f.Worker.Queue.ShutDown)
}

func objects[T runtime.Object](typed []T) []runtime.Object {
	var untyped []runtime.Object
	for _, object := range typed {
		untyped = append(untyped, object.DeepCopyObject())
	}
	return untyped
}

// prepend makes the reaction the first one for those requests.
func (f *fixture) prepend(verb, resource string, reaction clienttesting.ReactionFunc) {
	f.kube.PrependReactor(verb, resource, reaction)
	f.client.PrependReactor(verb, resource, reaction)
}

// stamp sets what a fake API server does not: the version of what is written, UID and time
// of what is created.
func (f *fixture) stamp(action clienttesting.Action) (bool, runtime.Object, error) {
	if patch, ok := action.(clienttesting.PatchActionImpl); ok {
		return f.patchStatus(patch)
	}
	write, ok := action.(interface{ GetObject() runtime.Object })
	if !ok {
		return false, nil, nil
	}
	if create, ok := action.(clienttesting.CreateActionImpl); ok && len(create.CreateOptions.DryRun) > 0 {
		return true, create.Object, f.tryCreate(create)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	object := write.GetObject().(metav1.Object)
	object.SetResourceVersion(strconv.Itoa(f.version))
	if object.GetUID() == "" {
		object.SetUID(types.UID("uid-" + object.GetName()))
		object.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	return false, nil, nil
}

// patchStatus stores a status.
func (f *fixture) patchStatus(patch clienttesting.PatchActionImpl) (bool, runtime.Object, error) {
	stored, err := f.client.Tracker().Get(patch.GetResource(), patch.GetNamespace(), patch.GetName())
	if err != nil {
		return true, nil, err
	}
	patched := merged(stored.(*alphav1.CronTab), patch.GetPatch())
	f.mu.Lock()
	defer f.mu.Unlock()
	f.version++
	patched.ResourceVersion = strconv.Itoa(f.version)
	return true, patched, f.client.Tracker().Update(patch.GetResource(), patched, patch.GetNamespace())
}

// merged returns the CronTab after a JSON merge patch.
func merged(cronTab *alphav1.CronTab, patch []byte) *alphav1.CronTab {
	patched := &alphav1.CronTab{}
	old, err := json.Marshal(cronTab)
	if err == nil {
		patch, err = jsonpatch.MergePatch(old, patch)
	}
	if err := errors.Join(err, json.Unmarshal(patch, patched)); err != nil {
		panic(err)
	}
	return patched
}

// tryCreate answers the dry run of the creation of a Job.
func (f *fixture) tryCreate(create clienttesting.CreateActionImpl) error {
	name := create.Object.(metav1.Object).GetName()
	if _, err := f.kube.Tracker().Get(create.Resource, create.Namespace, name); err == nil {
		return apierrors.NewAlreadyExists(jobsGroup, name)
	}
	return nil
}

// listen records the controller's requests from now on, including those that a later
// reaction makes fail.
func (f *fixture) listen() {
	f.prepend("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		if verb := action.GetVerb(); verb == "list" || verb == "watch" || action.Matches("create", "crontabs") {
			return false, nil, nil
		}
		f.mu.Lock()
		defer f.mu.Unlock()
		f.sent = append(f.sent, describe(action))
		return false, nil, nil
	})
}

// requests describes the requests since the last call.
func (f *fixture) requests() []string {
	f.mu.Lock()
	defer f.mu.Unlock()
	sent := f.sent
	f.sent = nil
	return sent
}

// describe returns verb, resource and name of a request, and the relevant fields of its
// body. The name of a Job is shown as the time when its run was due.
func describe(action clienttesting.Action) string {
	resource := action.GetResource().Resource
	if subresource := action.GetSubresource(); subresource != "" {
		resource += "/" + subresource
	}
	head := action.GetVerb() + " " + resource + " "
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		job := action.GetObject().(*batchv1.Job)
		var images []string
		for _, container := range job.Spec.Template.Spec.Containers {
			images = append(images, container.Image)
		}
		if len(action.CreateOptions.DryRun) > 0 {
			head = "try to " + head
		}
		body := runNamed(job.Name) + " owner=" + string(job.OwnerReferences[0].UID) + " image=" + strings.Join(images, ",")
		if limit := job.Spec.BackoffLimit; limit != nil {
			body += fmt.Sprintf(" backoffLimit=%d", *limit)
		}
		return head + body
	case clienttesting.UpdateActionImpl:
		return head + "by the Job controller"
	case clienttesting.PatchActionImpl:
		patched := merged(&alphav1.CronTab{}, action.GetPatch())
		return fmt.Sprintf("%s%s version=%s: %s", head, action.GetName(), patched.ResourceVersion, summary(patched))
	case clienttesting.DeleteActionImpl:
		options := action.GetDeleteOptions()
		return fmt.Sprintf("%s%s uid=%s version=%s %s", head, runNamed(action.GetName()), *options.Preconditions.UID, *options.Preconditions.ResourceVersion, *options.PropagationPolicy)
	case clienttesting.GetActionImpl:
		return head + runNamed(action.GetName())
	}
	return head
}

// runNamed returns the time when the run was due whose Job has the name, or the name.
func runNamed(name string) string {
	cronTab := name[:max(0, strings.LastIndex(name, "-"))]
	if at := manualTime(named(cronTab, name)); !at.IsZero() {
		return "asked " + clockOf(at)
	}
	switch due := dueTime(named(cronTab, name)); {
	case due.IsZero():
		return name
	default:
		return clockOf(due)
	}
}

// summary returns a status in one line.
func summary(cronTab *alphav1.CronTab) string {
	status := &cronTab.Status
	ready := controller.GetReady(status.Conditions)
	asked := ""
	if status.LastManualTime != nil {
		asked = " asked=" + clockOf(status.LastManualTime.Time)
	}
	return fmt.Sprintf("last=%s%s missed=%s next=%s active=%d %s/%s", clockOrNone(status.LastScheduleTime), asked, clockOrNone(status.LastMissedTime),
		clockOrNone(status.NextScheduleTime), status.ActiveCount, ready.Status, ready.Reason)
}

// cronTabCache returns the cache of CronTabs.
func (f *fixture) cronTabCache() cache.Indexer {
	return f.options.CronTabs.TypedInformer().GetIndexer()
}

// jobCache returns the cache of Jobs.
func (f *fixture) jobCache() cache.TypedIndexer[*batchv1.Job] {
	return f.options.Jobs.TypedInformer().GetTypedIndexer()
}

// fill puts what the program's caches keep of the objects into the caches, without calling
// the handlers.
func (f *fixture) fill(t *testing.T, cronTabs []*alphav1.CronTab, jobs []*batchv1.Job) {
	t.Helper()
	for _, cronTab := range cronTabs {
		if err := f.cronTabCache().Add(Trim(cronTab.DeepCopy())); err != nil {
			t.Fatal(err)
		}
	}
	for _, job := range jobs {
		if err := f.jobCache().Add(Trim(job.DeepCopy())); err != nil {
			t.Fatal(err)
		}
	}
}

// failing makes each request of that verb and resource fail.
func failing(verb, resource string, err error) func(*fixture) {
	return func(f *fixture) {
		f.prepend(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) { return true, nil, err })
	}
}

// recorded returns type and reason of the recorded events.
func (f *fixture) recorded() []string {
	var events []string
	for {
		select {
		case event := <-f.events.Events:
			fields := strings.Fields(event)
			events = append(events, fields[0]+" "+fields[1])
		default:
			return events
		}
	}
}

// enqueued returns the names that are in the queue after that time.
func (f *fixture) enqueued(after time.Duration) []string {
	time.Sleep(after)
	synctest.Wait()
	var names []string
	for f.Worker.Queue.Len() > 0 {
		key, _ := f.Worker.Queue.Get()
		f.Worker.Queue.Done(key)
		names = append(names, key.Name)
	}
	return names
}

// start runs informers and workers. The returned function stops them and waits for Run to
// return.
func (f *fixture) start(ctx context.Context, t *testing.T) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	f.kubeInformers.StartWithContext(ctx)
	f.informers.StartWithContext(ctx)
	stopped := make(chan error)
	go func() { stopped <- f.Worker.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-stopped; err != nil {
			t.Errorf("Run: %v", err)
		}
		f.kubeInformers.Shutdown()
		f.informers.Shutdown()
	}
}

func testKey(name string) cache.ObjectName {
	return cache.NewObjectName("ns", name)
}

// skipIfShort skips a slow test that finds little beyond the fast ones.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow test")
	}
}

func differ(t *testing.T, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
