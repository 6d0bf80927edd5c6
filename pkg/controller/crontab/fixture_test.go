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
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"
	jsonpatch "gopkg.in/evanphx/json-patch.v4"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"
	kubefake "k8s.io/client-go/kubernetes/fake"
	typedbatchv1 "k8s.io/client-go/kubernetes/typed/batch/v1"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
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

	t             *testing.T
	ctx           context.Context
	kube          *kubefake.Clientset
	client        *clientfake.Clientset
	kubeInformers kubeinformers.SharedInformerFactory
	informers     externalversions.SharedInformerFactory
	events        *record.FakeRecorder
	registry      metrics.KubeRegistry
	options       Options

	// creationsTake delays the creation of Jobs. After jobsTake, if that is set, a Job completes, unless
	// jobsRun says no, and is deleted if jobsVanish says so.
	creationsTake, jobsTake time.Duration
	jobsRun, jobsVanish     bool

	mu sync.Mutex
	// version is that of the last write. sent are the requests in order. created has for the name of each
	// Job the times when it was created.
	version int
	sent    []string
	created map[string][]time.Time
}

// newFixture returns a controller at that time, with those objects in the API server, if any, and
// empty caches. The caller is in a synctest bubble.
func newFixture(t *testing.T, now string, cronTab *alphav1.CronTab, jobs ...*batchv1.Job) *fixture {
	t.Helper()
	time.Sleep(time.Until(moment(now)))
	_, ctx := ktesting.NewTestContext(t)
	f := &fixture{
		t: t, ctx: ctx, kube: kubefake.NewClientset(), client: clientfake.NewClientset(),
		events: record.NewFakeRecorder(10_000), version: 10, created: map[string][]time.Time{},
	}
	if cronTab != nil {
		cronTab.ResourceVersion = testVersion
		f.must(f.client.Tracker().Add(cronTab.DeepCopy()))
	}
	for _, job := range jobs {
		f.must(f.kube.Tracker().Add(job.DeepCopy()))
	}
	f.newProcess()
	f.prepend("*", "*", f.answer)
	return f
}

// newProcess replaces the controller by one that remembers nothing.
func (f *fixture) newProcess() {
	f.t.Helper()
	f.kubeInformers = kubeinformers.NewSharedInformerFactory(f.kube, 0)
	f.informers = externalversions.NewSharedInformerFactory(f.client, 0)
	f.registry = metrics.NewKubeRegistry()
	f.options = newOptions(slowClient{Interface: f.kube, f: f}, f.client, f.kubeInformers, f.informers, clock.RealClock{}, f.events, f.registry)
	// The fake API server shares its objects with the informers.
	trim := func(object any) (any, error) { return Trim(object.(runtime.Object).DeepCopyObject()), nil }
	err := errors.Join(f.options.CronTabs.Informer().SetTransform(trim), f.options.Jobs.Informer().SetTransform(trim))
	f.must(err)
	f.Controller, err = New(f.ctx, f.options)
	f.must(err)
	f.t.Cleanup(f.Worker.Queue.ShutDown)
}

func newOptions(kube kubernetes.Interface, client clientset.Interface, kubeInformers kubeinformers.SharedInformerFactory, informers externalversions.SharedInformerFactory,
	clock clock.WithTickerAndDelayedExecution, recorder record.EventRecorder, registry metrics.KubeRegistry) Options {
	registered := controller.NewMetrics(registry)
	worker := controller.WorkerOptions{Clock: clock, Metrics: registered, Workers: 2, GracePeriod: 10 * time.Second}
	return Options{
		KubeClient: kube, Client: client, CronTabs: informers.Alpha().V1().CronTabs(), Jobs: kubeInformers.Batch().V1().Jobs(),
		Options: controller.Options{
			Worker: controller.NewWorker(cronTabGVK().Kind, worker), Namespace: metav1.NamespaceAll, Recorder: recorder, Clock: clock, Metrics: registered,
		},
	}
}

func (f *fixture) must(err error) {
	f.t.Helper()
	if err != nil {
		f.t.Fatal(err)
	}
}

// prepend makes the reaction the first one for those requests.
func (f *fixture) prepend(verb, resource string, reaction clienttesting.ReactionFunc) {
	f.kube.PrependReactor(verb, resource, reaction)
	f.client.PrependReactor(verb, resource, reaction)
}

// answer does what a fake API server does not: it sets the version of what is written, UID and time of
// what is created, and answers dry runs.
func (f *fixture) answer(action clienttesting.Action) (bool, runtime.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if patch, ok := action.(clienttesting.PatchActionImpl); ok {
		return f.patchStatus(patch)
	}
	write, ok := action.(interface{ GetObject() runtime.Object })
	if !ok {
		return false, nil, nil
	}
	object := write.GetObject().(metav1.Object)
	if isDryRun(action) {
		if _, err := f.kube.Tracker().Get(action.GetResource(), "ns", object.GetName()); err == nil {
			return true, nil, apierrors.NewAlreadyExists(jobsGroup, object.GetName())
		}
		return true, write.GetObject(), nil
	}
	f.version++
	object.SetResourceVersion(strconv.Itoa(f.version))
	if object.GetUID() == "" {
		object.SetUID(types.UID("uid-" + object.GetName()))
		object.SetCreationTimestamp(metav1.NewTime(time.Now().Truncate(time.Second)))
	}
	if action.Matches("create", "jobs") {
		f.created[object.GetName()] = append(f.created[object.GetName()], time.Now())
		if f.jobsTake > 0 {
			time.AfterFunc(f.jobsTake, func() { f.endJob(object.GetName()) })
		}
	}
	return false, nil, nil
}

func isDryRun(action clienttesting.Action) bool {
	create, ok := action.(clienttesting.CreateActionImpl)
	return ok && len(create.CreateOptions.DryRun) > 0
}

// patchStatus stores a status.
func (f *fixture) patchStatus(patch clienttesting.PatchActionImpl) (bool, runtime.Object, error) {
	stored, err := f.client.Tracker().Get(patch.GetResource(), patch.GetNamespace(), patch.GetName())
	if err != nil {
		return true, nil, err
	}
	patched := merged(stored.(*alphav1.CronTab), patch.GetPatch())
	if patched.ResourceVersion != stored.(*alphav1.CronTab).ResourceVersion {
		return true, nil, errConflict()
	}
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

// endJob completes the Job, as the Job controller does, and deletes it if it vanishes.
func (f *fixture) endJob(name string) {
	jobs, ctx := f.kube.BatchV1().Jobs("ns"), context.WithoutCancel(f.ctx)
	job, err := jobs.Get(ctx, name, metav1.GetOptions{})
	if err == nil && !f.jobsRun {
		complete(time.Now().UTC().Format("02T15:04:05"))(job)
		_, err = jobs.UpdateStatus(ctx, job, metav1.UpdateOptions{})
	}
	if err == nil && f.jobsVanish {
		err = jobs.Delete(ctx, name, metav1.DeleteOptions{})
	}
	if err != nil {
		f.t.Errorf("Job %s was deleted before it ended: %v", name, err)
	}
}

// slowClient is a client whose creations of Jobs take time. While a reaction of the fake client sleeps
// no other request is answered.
type slowClient struct {
	kubernetes.Interface
	typedbatchv1.BatchV1Interface
	typedbatchv1.JobInterface

	f *fixture
}

func (s slowClient) BatchV1() typedbatchv1.BatchV1Interface {
	return slowClient{BatchV1Interface: s.Interface.BatchV1(), f: s.f}
}

func (s slowClient) Jobs(namespace string) typedbatchv1.JobInterface {
	return slowClient{JobInterface: s.BatchV1Interface.Jobs(namespace), f: s.f}
}

func (s slowClient) Create(ctx context.Context, job *batchv1.Job, options metav1.CreateOptions) (*batchv1.Job, error) {
	time.Sleep(s.f.creationsTake)
	return s.JobInterface.Create(ctx, job, options)
}

// failing makes each request of that verb and resource fail.
func failing(verb, resource string, err error) func(*fixture) {
	return failingIf(verb, resource, nil, err)
}

// failingDryRun makes the creation of a Job fail if it is a dry run.
func failingDryRun(err error) func(*fixture) { return failingIf("create", "jobs", isDryRun, err) }

func failingIf(verb, resource string, condition func(clienttesting.Action) bool, err error) func(*fixture) {
	return func(f *fixture) {
		f.prepend(verb, resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			return condition == nil || condition(action), nil, err
		})
	}
}

var jobsGroup = schema.GroupResource{Group: "batch", Resource: "jobs"}

func errQuota() error {
	return apierrors.NewForbidden(jobsGroup, "backup", errors.New("exceeded quota: one, used: count/jobs.batch=1"))
}

func errServer() error { return apierrors.NewInternalError(errors.New("connection refused")) }

func errConflict() error {
	return apierrors.NewConflict(jobsGroup, "backup", errors.New("the object has been modified"))
}

func errNotFound() error { return apierrors.NewNotFound(jobsGroup, "backup") }

func errInvalid() error {
	image := field.Required(field.NewPath("spec.template.spec.containers[0].image"), "")
	return apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, "backup", field.ErrorList{image})
}

func errTerminating() error {
	err := apierrors.NewForbidden(jobsGroup, "backup", errors.New("unable to create new content in namespace ns because it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// listen records the controller's requests from now on, including those that an earlier
// reaction makes fail.
func (f *fixture) listen() {
	f.prepend("*", "*", func(action clienttesting.Action) (bool, runtime.Object, error) {
		f.mu.Lock()
		defer f.mu.Unlock()
		if verb := action.GetVerb(); verb != "list" && verb != "watch" && !action.Matches("create", "crontabs") {
			f.sent = append(f.sent, describe(action))
		}
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

// describe returns a request in words, with what is unusual about its body.
func describe(action clienttesting.Action) string {
	switch action := action.(type) {
	case clienttesting.CreateActionImpl:
		job := action.GetObject().(*batchv1.Job)
		words := "create "
		if isDryRun(action) {
			words = "try "
		}
		words += runNamed(job.Name)
		if image := job.Spec.Template.Spec.Containers[0].Image; image != "mybackupscript:v9" {
			words += " image=" + image
		}
		if limit := job.Spec.BackoffLimit; limit != nil {
			words += fmt.Sprintf(" backoffLimit=%d", *limit)
		}
		return words
	case clienttesting.PatchActionImpl:
		return describeStatus(&merged(&alphav1.CronTab{}, action.GetPatch()).Status)
	case clienttesting.DeleteActionImpl:
		words, options := "delete "+runNamed(action.GetName()), action.GetDeleteOptions()
		if *options.Preconditions.UID != types.UID("uid-"+action.GetName()) || *options.Preconditions.ResourceVersion != testVersion || *options.PropagationPolicy != "Background" {
			words += " with " + options.String()
		}
		return words
	case clienttesting.GetActionImpl:
		if action.Matches("get", "crontabs") {
			return "live"
		}
		return "get " + runNamed(action.GetName())
	}
	return action.GetVerb() + " " + action.GetResource().Resource
}

// runNamed returns the time when the run was due whose Job has the name, or the name.
func runNamed(name string) string {
	return runOf(named(name[:max(0, strings.LastIndex(name, "-"))], name))
}

// describeStatus returns a status in one line.
func describeStatus(status *alphav1.CronTabStatus) string {
	var words []string
	for _, field := range []struct {
		name string
		at   *metav1.Time
	}{
		{"last", status.LastScheduleTime}, {"asked", status.LastManualTime}, {"missed", status.LastMissedTime}, {"next", status.NextScheduleTime},
		{"success", status.LastSuccessfulTime}, {"failure", status.LastFailedTime},
	} {
		if field.at != nil {
			words = append(words, field.name+"="+clockOf(field.at.Time))
		}
	}
	if status.ActiveCount > 0 {
		words = append(words, fmt.Sprintf("active=%d", status.ActiveCount))
	}
	for _, kind := range []string{alphav1.CronTabReady, alphav1.CronTabLate} {
		condition := meta.FindStatusCondition(status.Conditions, kind)
		if condition != nil && (condition.Status == metav1.ConditionTrue) == slices.Contains([]string{alphav1.ReasonScheduled, alphav1.ReasonNoSuccess}, condition.Reason) {
			words = append(words, condition.Reason)
		}
	}
	return strings.Join(words, " ")
}

// fill puts what the program's caches keep of the objects into the caches, without calling
// the handlers.
func (f *fixture) fill(cronTab *alphav1.CronTab, jobs ...*batchv1.Job) {
	f.t.Helper()
	if cronTab != nil {
		f.must(f.options.CronTabs.Informer().GetIndexer().Add(Trim(cronTab.DeepCopy())))
	}
	for _, job := range jobs {
		f.must(f.options.Jobs.Informer().GetIndexer().Add(Trim(job.DeepCopy())))
	}
}

// recorded returns the reasons of the recorded events, those of Warnings with that word.
func (f *fixture) recorded() []string {
	var events []string
	for len(f.events.Events) > 0 {
		fields := strings.Fields(<-f.events.Events)
		events = append(events, strings.TrimPrefix(fields[0]+" "+fields[1], "Normal "))
	}
	return events
}

// counted returns how often each event was recorded.
func (f *fixture) counted() map[string]int {
	counts := map[string]int{}
	for _, event := range f.recorded() {
		counts[event]++
	}
	return counts
}

// metric returns the value of a gauge or counter, or the sum of a histogram, for each set of labels.
func (f *fixture) metric(name string) map[string]float64 {
	f.t.Helper()
	families, err := f.registry.Gather()
	f.must(err)
	values := map[string]float64{}
	for _, family := range families {
		for _, metric := range family.Metric {
			var labels []string
			for _, label := range metric.Label {
				labels = append(labels, label.GetValue())
			}
			if family.GetName() == name {
				values[strings.Join(labels, " ")] = metric.GetGauge().GetValue() + metric.GetCounter().GetValue() + metric.GetHistogram().GetSampleSum()
			}
		}
	}
	return values
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
func (f *fixture) start() (stop func()) {
	f.t.Helper()
	ctx, cancel := context.WithCancel(f.ctx)
	f.kubeInformers.StartWithContext(ctx)
	f.informers.StartWithContext(ctx)
	stopped := make(chan error)
	go func() { stopped <- f.Worker.Run(ctx) }()
	synctest.Wait()
	return func() {
		cancel()
		if err := <-stopped; err != nil {
			f.t.Errorf("Run: %v", err)
		}
		f.kubeInformers.Shutdown()
		f.informers.Shutdown()
	}
}

// until lets time pass.
func until(clock string) {
	time.Sleep(time.Until(moment(clock)))
	synctest.Wait()
}

// create creates the CronTab as of now, without a status.
func (f *fixture) create(name, schedule string, options ...cronTabOption) {
	f.t.Helper()
	cronTab := unseen(append(options, runsAt(schedule))...)
	cronTab.Name, cronTab.UID = name, ""
	_, err := f.client.AlphaV1().CronTabs("ns").Create(f.ctx, cronTab, metav1.CreateOptions{})
	f.must(err)
	synctest.Wait()
}

// get returns the stored CronTab.
func (f *fixture) get(name string) *alphav1.CronTab {
	f.t.Helper()
	synctest.Wait()
	cronTab, err := f.client.AlphaV1().CronTabs("ns").Get(f.ctx, name, metav1.GetOptions{})
	f.must(err)
	return cronTab
}

// edit changes the CronTab.
func (f *fixture) edit(name string, changes ...cronTabOption) {
	f.t.Helper()
	cronTab := f.get(name)
	cronTab.Generation++
	for _, change := range changes {
		change(cronTab)
	}
	_, err := f.client.AlphaV1().CronTabs("ns").Update(f.ctx, cronTab, metav1.UpdateOptions{})
	f.must(err)
	synctest.Wait()
}

// names returns the names of all Jobs, sorted.
func (f *fixture) names() []string {
	f.t.Helper()
	list, err := f.kube.BatchV1().Jobs("ns").List(f.ctx, metav1.ListOptions{})
	f.must(err)
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// runs says for which runs Jobs were created, and when if that was not when they were due.
func (f *fixture) runs() string {
	f.mu.Lock()
	defer f.mu.Unlock()
	var runs []string
	for _, name := range slices.Sorted(maps.Keys(f.created)) {
		for _, at := range f.created[name] {
			run := runNamed(name)
			if clockOf(at) != strings.TrimPrefix(run, "asked ") {
				run += " at " + clockOf(at)
			}
			runs = append(runs, run)
		}
	}
	return strings.Join(runs, ", ")
}

func testKey(name string) cache.ObjectName { return cache.NewObjectName("ns", name) }

// skipIfShort skips a slow test that finds little beyond the fast ones.
func skipIfShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("slow test")
	}
}

func differ(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
