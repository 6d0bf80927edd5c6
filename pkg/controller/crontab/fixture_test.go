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
	"cmp"
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

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	utilruntime "k8s.io/apimachinery/pkg/util/runtime"
	"k8s.io/apimachinery/pkg/util/validation/field"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
	clientfake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/test/fixture"
)

func TestMain(m *testing.M) {
	// The second handler sleeps to limit the rate of errors. Bubbles of testing/synctest start
	// in 2000, so after one that has run to 2026 it would sleep for decades.
	utilruntime.ErrorHandlers = utilruntime.ErrorHandlers[:1]
	os.Exit(m.Run())
}

// testbed is a controller whose caches and API server a test fills separately.
type testbed struct {
	*fixture.Env
	*Controller

	t         *testing.T
	ctx       context.Context
	client    *clientfake.Clientset
	informers externalversions.SharedInformerFactory
	options   Options

	// jobsTake is after how long a Job completes, 0 for never.
	jobsTake time.Duration

	mu sync.Mutex
	// version is that of the last write. sent are the requests in order. created has for the name of each
	// Job the times when it was created.
	version int
	sent    []string
	created map[string][]time.Time
	// messages has the texts of recorded events.
	messages string
}

// newTestbed returns a controller at that time, with those objects in the API server, if any, and
// empty caches. The caller is in a synctest bubble.
func newTestbed(t *testing.T, now string, cronTab *alphav1.CronTab, jobs ...*batchv1.Job) *testbed {
	t.Helper()
	time.Sleep(time.Until(moment(now)))
	_, ctx := ktesting.NewTestContext(t)
	f := &testbed{t: t, ctx: ctx, client: clientfake.NewSimpleClientset(), version: 10, created: map[string][]time.Time{}}
	f.Env = fixture.NewEnv(t, cronTabGVK().Kind, f.client, scheme.Scheme, fixture.Objects(jobs)...)
	if cronTab != nil {
		cronTab.ResourceVersion = fixture.Version
		fixture.Must(f.Tracker.Add(cronTab.DeepCopy()))
	}
	f.informers = externalversions.NewSharedInformerFactory(f.client, 0)
	f.options = Options{KubeClient: f.Kube, Client: f.client, CronTabs: f.informers.Alpha().V1().CronTabs(), Jobs: f.KubeInformers.Batch().V1().Jobs(), Options: f.Shared}
	// The fake API server shares its objects with the informers.
	trim := func(object any) (any, error) { return Trim(object.(runtime.Object).DeepCopyObject()), nil }
	fixture.Must(errors.Join(f.options.CronTabs.Informer().SetTransform(trim), f.options.Jobs.Informer().SetTransform(trim)))
	var err error
	f.Controller, err = New(ctx, f.options)
	fixture.Must(err)
	f.prepend("*", "*", f.answer)
	return f
}

// fill puts what the program's caches keep of the objects into the caches, without calling the handlers.
func (f *testbed) fill(cronTab *alphav1.CronTab, jobs []*batchv1.Job) {
	f.t.Helper()
	var cronTabs, trimmed []any
	if cronTab != nil {
		cronTabs = []any{Trim(cronTab.DeepCopy())}
	}
	for _, job := range jobs {
		trimmed = append(trimmed, Trim(job.DeepCopy()))
	}
	version := strconv.Itoa(f.version)
	fixture.Must(f.options.CronTabs.Informer().GetIndexer().Replace(cronTabs, version))
	fixture.Must(f.options.Jobs.Informer().GetIndexer().Replace(trimmed, version))
}

// prepend makes the reaction the first one for those requests.
func (f *testbed) prepend(verb, resource string, reaction clienttesting.ReactionFunc) {
	f.Kube.PrependReactor(verb, resource, reaction)
	f.client.PrependReactor(verb, resource, reaction)
}

// answer does what a fake API server does not: it sets the version of what is written, UID and time of
// what is created, and answers dry runs.
func (f *testbed) answer(action clienttesting.Action) (bool, runtime.Object, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if patch, ok := action.(clienttesting.PatchActionImpl); ok {
		f.version++
		patched, err := fixture.Patch(f.Tracker, patch, strconv.Itoa(f.version))
		return true, patched, err
	}
	write, ok := action.(interface{ GetObject() runtime.Object })
	if !ok {
		return false, nil, nil
	}
	object := write.GetObject().(metav1.Object)
	if isDryRun(action) {
		if _, err := f.Kube.Tracker().Get(action.GetResource(), "ns", object.GetName()); err == nil {
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

// endJob completes the Job, as the Job controller does.
func (f *testbed) endJob(name string) {
	jobs, ctx := f.Kube.BatchV1().Jobs("ns"), context.WithoutCancel(f.ctx)
	job, err := jobs.Get(ctx, name, metav1.GetOptions{})
	if err == nil {
		complete(time.Now().UTC().Format("02T15:04:05"))(job)
		_, err = jobs.UpdateStatus(ctx, job, metav1.UpdateOptions{})
	}
	if err != nil {
		f.t.Errorf("Job %s was deleted before it ended: %v", name, err)
	}
}

// failing makes each request of that verb and resource fail.
func failing(verb, resource string, err error) func(*testbed) {
	return failingIf(verb, resource, nil, err)
}

func failingIf(verb, resource string, condition func(clienttesting.Action) bool, err error) func(*testbed) {
	return func(f *testbed) {
		f.prepend(verb, resource, func(action clienttesting.Action) (bool, runtime.Object, error) {
			return condition == nil || condition(action), nil, err
		})
	}
}

var jobsGroup = schema.GroupResource{Group: "batch", Resource: "jobs"}

func errQuota() error { return errQuotaOf(1) }

func errQuotaOf(used int) error {
	return apierrors.NewForbidden(jobsGroup, "backup", fmt.Errorf("exceeded quota: one, used: count/jobs.batch=%d", used))
}

func errServer() error { return apierrors.NewInternalError(errors.New("connection refused")) }

func errConflict() error {
	return apierrors.NewConflict(jobsGroup, "backup", errors.New("the object has been modified"))
}

func errInvalid() error {
	image := field.Required(field.NewPath("spec.template.spec.containers[0].image"), "")
	return apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, "backup", field.ErrorList{image})
}

// listen records the controller's requests from now on, including those that an earlier reaction makes fail.
func (f *testbed) listen() {
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
func (f *testbed) requests() []string {
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
		return words
	case clienttesting.PatchActionImpl:
		patched := &alphav1.CronTab{}
		fixture.Must(json.Unmarshal(action.GetPatch(), patched))
		return describeStatus(&patched.Status)
	case clienttesting.DeleteActionImpl:
		words, options := "delete "+runNamed(action.GetName()), action.GetDeleteOptions()
		if *options.Preconditions.UID != types.UID("uid-"+action.GetName()) || *options.Preconditions.ResourceVersion != fixture.Version || *options.PropagationPolicy != "Background" {
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

// describeStatus returns a status in one line. Unless it says so the next run is at the next full hour,
// and the CronTab is Scheduled.
func describeStatus(status *alphav1.CronTabStatus) string {
	var words []string
	for _, field := range []struct {
		name string
		at   *metav1.Time
	}{
		{"last", status.LastScheduleTime}, {"asked", status.LastManualTime}, {"missed", status.LastMissedTime},
		{"success", status.LastSuccessfulTime}, {"failure", status.LastFailedTime},
	} {
		if field.at != nil {
			words = append(words, field.name+"="+clockOf(field.at.Time))
		}
	}
	if next := timeOf(status.NextScheduleTime); next.IsZero() {
		words = append(words, "never")
	} else if !next.Equal(time.Now().Truncate(time.Hour).Add(time.Hour)) {
		words = append(words, "next="+clockOf(next))
	}
	if status.ActiveCount > 0 {
		words = append(words, fmt.Sprintf("active=%d", status.ActiveCount))
	}
	for _, condition := range status.Conditions {
		isGood := condition.Reason == alphav1.ReasonScheduled || condition.Reason == alphav1.ReasonNoSuccess
		if isGood != (condition.Status == metav1.ConditionTrue) {
			words = append(words, "illegal")
		}
		if condition.Reason != alphav1.ReasonScheduled {
			words = append(words, condition.Reason)
		}
	}
	return cmp.Or(strings.Join(words, " "), "no run")
}

// stored returns the Jobs in the API server.
func (f *testbed) stored() jobs {
	f.t.Helper()
	list, err := f.Kube.BatchV1().Jobs("ns").List(f.ctx, metav1.ListOptions{})
	fixture.Must(err)
	var stored jobs
	for i := range list.Items {
		stored = append(stored, &list.Items[i])
	}
	return stored
}

// recorded returns the reasons of the recorded events, those of Warnings with that word.
func (f *testbed) recorded() []string {
	var events []string
	for len(f.Events.Events) > 0 {
		event := <-f.Events.Events
		f.messages += event + "\n"
		fields := strings.Fields(event)
		events = append(events, strings.TrimPrefix(fields[0]+" "+fields[1], "Normal "))
	}
	return events
}

// metric returns the value of a gauge or counter, or the sum of a histogram, for each set of labels.
func (f *testbed) metric(name string) map[string]float64 {
	f.t.Helper()
	families, err := f.Registry.Gather()
	fixture.Must(err)
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

// start runs informers and workers, until the returned function is called.
func (f *testbed) start() (stop func()) {
	return fixture.Run(f.ctx, f.t, f.Worker, f.KubeInformers, f.informers)
}

// until lets time pass.
func until(clock string) {
	time.Sleep(time.Until(moment(clock)))
	synctest.Wait()
}

// create creates the CronTab as of now, without a status.
func (f *testbed) create(name, schedule string, options ...cronTabOption) {
	f.t.Helper()
	cronTab := unseen(append(options, runsAt(schedule))...)
	cronTab.Name, cronTab.UID = name, ""
	_, err := f.client.AlphaV1().CronTabs("ns").Create(f.ctx, cronTab, metav1.CreateOptions{})
	fixture.Must(err)
	synctest.Wait()
}

// get returns the stored CronTab.
func (f *testbed) get(name string) *alphav1.CronTab {
	f.t.Helper()
	synctest.Wait()
	cronTab, err := f.client.AlphaV1().CronTabs("ns").Get(f.ctx, name, metav1.GetOptions{})
	fixture.Must(err)
	return cronTab
}

// edit changes the CronTab.
func (f *testbed) edit(name string, changes ...cronTabOption) {
	f.t.Helper()
	cronTab := f.get(name)
	cronTab.Generation++
	for _, change := range changes {
		change(cronTab)
	}
	_, err := f.client.AlphaV1().CronTabs("ns").Update(f.ctx, cronTab, metav1.UpdateOptions{})
	fixture.Must(err)
	synctest.Wait()
}

// runs says for which runs Jobs were created, and when if that was not when they were due.
func (f *testbed) runs() string {
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

// Builders of the tests' objects. Each option changes one field of an otherwise ordinary object.

// today is the day of most tests, a Saturday. The CronTabs are from the day before.
const today = "2026-11-21"

// moment returns the time that is "12:00" or "12:00:05" today, or "20T12:00" on another day of the month.
func moment(clock string) time.Time {
	day := today
	if date, rest, found := strings.Cut(clock, "T"); found {
		day, clock = today[:8]+date, rest
	}
	if strings.Count(clock, ":") == 1 {
		clock += ":00"
	}
	parsed, err := time.Parse(time.RFC3339Nano, day+"T"+clock+"Z")
	if err != nil {
		panic(err)
	}
	return parsed
}

func stamp(clock string) metav1.Time { return metav1.NewTime(moment(clock)) }

// clockOf is the inverse of moment.
func clockOf(at time.Time) string {
	return strings.TrimPrefix(strings.TrimSuffix(at.UTC().Format("02T15:04:05.999"), ":00"), today[8:]+"T")
}

type cronTabOption func(*alphav1.CronTab)

// hourly returns a CronTab "backup" with hourly runs. Its last run was at the given time;
// with "" it had none. Its status records the schedule.
func hourly(last string, options ...cronTabOption) *alphav1.CronTab {
	cronTab := &alphav1.CronTab{
		ObjectMeta: metav1.ObjectMeta{Name: "backup", Namespace: "ns", UID: "uid-backup", Generation: 1, CreationTimestamp: stamp("20T10:30")},
		Spec: alphav1.CronTabSpec{
			Schedule: "0 * * * *",
			JobTemplate: corev1.PodSpec{
				Containers:    []corev1.Container{{Name: "backup", Image: "mybackupscript:v9"}},
				RestartPolicy: corev1.RestartPolicyNever,
			},
		},
		Status: alphav1.CronTabStatus{ObservedGeneration: 1},
	}
	if last != "" {
		cronTab.Status.LastScheduleTime = ptr.To(stamp(last))
	}
	for _, option := range options {
		option(cronTab)
	}
	if cronTab.Status.ObservedSchedule == nil {
		follows("", cronTab.CreationTimestamp.UTC().Format("02T15:04:05"))(cronTab)
	}
	return cronTab
}

// unseen returns the same without a status.
func unseen(options ...cronTabOption) *alphav1.CronTab {
	cronTab := hourly("", options...)
	cronTab.Status = alphav1.CronTabStatus{}
	return cronTab
}

func runsAt(schedule string) cronTabOption {
	return func(c *alphav1.CronTab) { c.Spec.Schedule = schedule }
}

func inZone(zone string) cronTabOption { return func(c *alphav1.CronTab) { c.Spec.TimeZone = &zone } }

func createdAt(clock string) cronTabOption {
	return func(c *alphav1.CronTab) { c.CreationTimestamp = stamp(clock) }
}

func missedAtNoon(cronTab *alphav1.CronTab) {
	cronTab.Status.LastMissedTime = ptr.To(stamp("12:00"))
}

func deadline(seconds int64) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Spec.StartingDeadlineSeconds = &seconds }
}

// succeedsWithin sets how many seconds may pass without a success.
func succeedsWithin(seconds int64) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Spec.SuccessDeadlineSeconds = &seconds }
}

func succeededAt(clock string) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Status.LastSuccessfulTime = ptr.To(stamp(clock)) }
}

// splays sets splaySeconds. The offset of "uid-backup" is 10 s of 60 and 1870 s of 3600.
func splays(seconds int32) cronTabOption {
	return func(c *alphav1.CronTab) { c.Spec.SplaySeconds = &seconds }
}

func forbid(cronTab *alphav1.CronTab)  { cronTab.Spec.ConcurrencyPolicy = alphav1.ForbidConcurrent }
func replace(cronTab *alphav1.CronTab) { cronTab.Spec.ConcurrencyPolicy = alphav1.ReplaceConcurrent }

func suspended(cronTab *alphav1.CronTab) { cronTab.Spec.Suspend = ptr.To(true) }

func nextGeneration(cronTab *alphav1.CronTab) { cronTab.Generation++ }

func deleted(cronTab *alphav1.CronTab) { cronTab.DeletionTimestamp = ptr.To(stamp("11:00")) }

// asked adds the annotation by which a user asks for a run.
func asked(value string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		cronTab.Annotations = map[string]string{alphav1.RunAtAnnotation: value}
	}
}

// askedAt asks for a run at that time of today.
func askedAt(clock string) cronTabOption { return asked(moment(clock).Format(time.RFC3339)) }

// keeps sets the limits of the history.
func keeps(successful, failed int32) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		cronTab.Spec.SuccessfulJobsHistoryLimit, cronTab.Spec.FailedJobsHistoryLimit = &successful, &failed
	}
}

// large makes the CronTab one of which no two are in memory at once (rule 24).
func large(c *alphav1.CronTab) { c.Spec.JobTemplate.Tolerations = make([]corev1.Toleration, 20_000) }

// follows sets the schedule that the status records, "" for that of the spec, and since when.
func follows(schedule, since string) cronTabOption {
	return func(c *alphav1.CronTab) {
		c.Status.ObservedSchedule = &alphav1.ObservedSchedule{
			Schedule: cmp.Or(schedule, c.Spec.Schedule), TimeZone: ptr.Deref(c.Spec.TimeZone, ""), Since: stamp(since),
		}
	}
}

// changesTo is the schedule of the spec. The status records that of every hour.
func changesTo(schedule string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		follows("0 * * * *", "20T10:30")(cronTab)
		cronTab.Spec.Schedule = schedule
	}
}

// writtenAtBy adds an entry to the managed fields.
func writtenAtBy(clock, part string) cronTabOption {
	return func(c *alphav1.CronTab) {
		c.ManagedFields = append(c.ManagedFields, metav1.ManagedFieldsEntry{Subresource: part, Time: ptr.To(stamp(clock))})
	}
}

func writtenAtClock(clock string) cronTabOption { return writtenAtBy(clock, "") }

// was sets the reason and the message of the Ready condition.
func was(reason, message string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		ready := controller.NotReady(reason, message)
		ready.Type, ready.ObservedGeneration, ready.LastTransitionTime = alphav1.CronTabReady, 1, stamp("20T11:00")
		cronTab.Status.Conditions = append(cronTab.Status.Conditions, ready)
	}
}

// refused sets the condition that a refusal with that message leaves.
func refused(message string) cronTabOption {
	return was(alphav1.ReasonJobRejected, describeRejection(result{rejected: errors.New(message)}))
}

// recordedAt gives the CronTab the status that a sync at that time writes for those Jobs.
func recordedAt(clock string, jobs ...*batchv1.Job) cronTabOption {
	return statusAfter(clock, nil, jobs...)
}

// statusAfter does so after that refusal of its Job.
func statusAfter(clock string, rejected error, jobs ...*batchv1.Job) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		if cronTab.Status.ObservedSchedule == nil {
			follows("", "20T10:30")(cronTab)
		}
		res := result{}
		if rejected != nil {
			res.rejected = fmt.Errorf("creating Job %q: %w", dueRun{at: moment(clock)}.jobName(cronTab.Name), rejected)
		}
		snap := snapshotAt(clock, cronTab, jobs)
		cronTab.Status = newStatus(snap, decide(snap), res)
	}
}

// snapshotAt returns what a sync reads at the time. The Jobs may belong to others.
func snapshotAt(clock string, cronTab *alphav1.CronTab, jobs []*batchv1.Job) snapshot {
	owned := slices.DeleteFunc(slices.Clone(jobs), func(job *batchv1.Job) bool { return !owns(cronTab, job) })
	return snapshot{cronTab: cronTab, jobs: owned, now: moment(clock), memory: newMemory(""), jobNamed: func(name string) *batchv1.Job {
		for _, job := range jobs {
			if job.Name == name {
				return job
			}
		}
		return nil
	}}
}

type jobs = []*batchv1.Job

type jobOption func(*batchv1.Job)

// run returns the Job, under way, of the run that was due at the time.
func run(clock string, options ...jobOption) *batchv1.Job {
	return jobOf(hourly(""), moment(clock), options...)
}

// manual returns the Job, under way, of the run that a user asked for at the time.
func manual(clock string, options ...jobOption) *batchv1.Job {
	return run(clock, append([]jobOption{jobNamed(dueRun{moment(clock), true}.jobName("backup"))}, options...)...)
}

func jobOf(cronTab *alphav1.CronTab, due time.Time, options ...jobOption) *batchv1.Job {
	job := newJob(cronTab, dueRun{at: due}, time.UTC)
	job.UID, job.ResourceVersion = types.UID("uid-"+job.Name), fixture.Version
	job.CreationTimestamp = metav1.NewTime(due)
	for _, option := range options {
		option(job)
	}
	return job
}

func jobNamed(name string) jobOption {
	return func(job *batchv1.Job) { job.Name, job.UID = name, types.UID("uid-"+name) }
}

// bornAt is when the Job was created, if not when its run was due.
func bornAt(clock string) jobOption {
	return func(job *batchv1.Job) { job.CreationTimestamp = stamp(clock) }
}

// endedAt sets a condition.
func endedAt(condition batchv1.JobConditionType, at metav1.Time) jobOption {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: at})
		if condition == batchv1.JobComplete {
			job.Status.CompletionTime = &at
		}
	}
}

// complete ends the Job successfully at the time.
func complete(clock string) jobOption { return endedAt(batchv1.JobComplete, stamp(clock)) }

// failed ends the Job with a failure at the time.
func failed(clock string) jobOption { return endedAt(batchv1.JobFailed, stamp(clock)) }

func goesAway(job *batchv1.Job) { job.DeletionTimestamp = ptr.To(stamp("11:00")) }

// ownedBy changes the Job's owner reference.
func ownedBy(kind string, uid types.UID) jobOption {
	return func(job *batchv1.Job) { job.OwnerReferences[0].Kind, job.OwnerReferences[0].UID = kind, uid }
}

// Owners of Jobs that are not the CronTab's.
func unowned(job *batchv1.Job)   { job.OwnerReferences = nil }
func ofCronJob(job *batchv1.Job) { ownedBy("CronJob", "uid-cronjob")(job) }
func ofFormer(job *batchv1.Job)  { ownedBy("CronTab", "uid-earlier")(job) }

// runNamed returns the time when the run was due whose Job has the name, or the name.
func runNamed(name string) string {
	switch due := runOf(named(name[:max(0, strings.LastIndex(name, "-"))], name)); {
	case due.manual:
		return "asked " + clockOf(due.at)
	case !due.at.IsZero():
		return clockOf(due.at)
	}
	return name
}

// named returns a CronTab and a Job with these names alone, for runOf.
func named(cronTab, job string) (*alphav1.CronTab, *batchv1.Job) {
	return &alphav1.CronTab{ObjectMeta: metav1.ObjectMeta{Name: cronTab}}, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job}}
}
