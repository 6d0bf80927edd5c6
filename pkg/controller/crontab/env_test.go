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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
	clientfake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/pkg/generated/informers/externalversions"
)

// env is a simulated API server with one CronTab, and the process of the controller. It has
// no goroutines: the test sets the clock, fills the caches, and calls syncHandler. env
// answers the controller's requests and checks each against the contract.
type env struct {
	// process is the one that runs now. start replaces it.
	process *Controller

	clock        *testingclock.FakePassiveClock
	cronTabCache cache.Indexer
	jobCache     cache.Indexer
	kube         *kubefake.Clientset
	client       *clientfake.Clientset

	// cronTab, jobs (by name) and version are what the API server stores. Stored objects
	// are never changed in place: the caches share them.
	cronTab *alphav1.CronTab
	jobs    map[string]*batchv1.Job
	version int

	// started counts the creations of the Job of each name. missed are the runs that were given up. epochs
	// are the schedules that were followed, one after the other. events counts those that may be sent only
	// once.
	started map[string]int
	missed  []reportedRuns
	epochs  []epoch
	events  map[string]int
	// late is the longest time between when a run was due and when it was started.
	late time.Duration

	// writesLeft is how many writes the process makes before it dies; negative if it does
	// not die. lastWrite says whether the write after those reaches the API server.
	writesLeft int
	lastWrite  bool
	dead       bool
	// behind is the name of a Job that the cache does not have yet, and stale the CronTab
	// that it has instead of the present one, nil for none.
	behind string
	stale  *alphav1.CronTab
	// refuse is the error with which the API server refuses Jobs, and refuseStatus that for statuses; nil
	// if it does not.
	refuse, refuseStatus error
	// creator has the process that created a Job. lost says that a user has deleted a Job whose run only
	// that process knows to be started.
	creator map[types.UID]*Controller
	lost    bool

	// writes and requests count those of the controller, events those that changed a Job.
	writes, requests, jobEvents int
	current                     syncState
	violations                  []string
}

// syncState is what has happened in the sync that is in progress.
type syncState struct {
	// cached is the CronTab that the controller sees.
	cached                        *alphav1.CronTab
	stored, replaced, triedCreate bool
	// missed are the runs that the controller decides to give up, and reported is how many events say so.
	missed   []missedRuns
	reported int
}

// reportedRuns are the missed runs of one event, and the index of their epoch.
type reportedRuns struct {
	missedRuns
	epoch int
}

// epoch is a schedule, and the time after which its runs count.
type epoch struct {
	schedule alphav1.ObservedSchedule
	after    time.Time
}

// errDied is the answer to each request of a process that has died.
var errDied = errors.New("the process died")

// envClock shows the time of the environment. Its timers are never used.
type envClock struct {
	clock.RealClock
	passive *testingclock.FakePassiveClock
}

func (c envClock) Now() time.Time { return c.passive.Now() }

func (c envClock) Since(since time.Time) time.Duration { return c.passive.Since(since) }

// newEnv returns an environment at the time when the CronTab was created.
func newEnv(cronTab *alphav1.CronTab) *env {
	e := &env{
		clock: testingclock.NewFakePassiveClock(cronTab.CreationTimestamp.Time),
		kube:  &kubefake.Clientset{}, client: &clientfake.Clientset{},
		cronTab: cronTab, jobs: map[string]*batchv1.Job{}, version: 10,
		creator: map[types.UID]*Controller{}, started: map[string]int{}, events: map[string]int{}, writesLeft: -1,
	}
	e.kube.AddReactor("*", "*", e.react)
	e.client.AddReactor("*", "*", e.react)
	e.update(func(*alphav1.CronTab) {})
	e.start()
	return e
}

// start replaces the process: the new one remembers nothing.
func (e *env) start() {
	clock, informers, kubeInformers := envClock{passive: e.clock}, externalversions.NewSharedInformerFactory(e.client, 0), kubeinformers.NewSharedInformerFactory(e.kube, 0)
	options := newOptions(e.kube, e.client, kubeInformers, informers, clock, eventChecker{env: e}, metrics.NewKubeRegistry())
	c, err := New(klog.NewContext(context.Background(), logr.Discard()), options)
	if err != nil {
		panic(err)
	}
	// The test decides when to sync.
	c.Worker.Queue.ShutDown()
	e.process, e.cronTabCache, e.jobCache, e.dead, e.writesLeft = c, options.CronTabs.Informer().GetIndexer(), options.Jobs.Informer().GetIndexer(), false, -1
}

func (e *env) now() time.Time { return e.clock.Now() }

// advance moves the clock, back if the duration is negative.
func (e *env) advance(by time.Duration) { e.clock.SetTime(e.now().Add(by)) }

// violation notes that the contract was broken.
func (e *env) violation(format string, args ...any) {
	e.violations = append(e.violations, e.now().UTC().Format(time.RFC3339Nano)+": "+fmt.Sprintf(format, args...))
}

func (e *env) violationIf(broken bool, format string, args ...any) {
	if broken {
		e.violation(format, args...)
	}
}

// owned returns the CronTab's Jobs in the order of their names.
func (e *env) owned() []*batchv1.Job {
	var jobs []*batchv1.Job
	for _, name := range slices.Sorted(maps.Keys(e.jobs)) {
		if owns(e.cronTab, e.jobs[name]) {
			jobs = append(jobs, e.jobs[name])
		}
	}
	return jobs
}

// nextVersion returns the resource version of the next write.
func (e *env) nextVersion() string {
	e.version++
	return strconv.Itoa(e.version)
}

// update stores a changed CronTab.
func (e *env) update(change func(*alphav1.CronTab)) {
	changed := e.cronTab.DeepCopy()
	change(changed)
	changed.ResourceVersion = e.nextVersion()
	e.cronTab = changed
}

// storeJob stores a Job, changed by the options.
func (e *env) storeJob(job *batchv1.Job, options ...jobOption) {
	job = job.DeepCopy()
	for _, option := range options {
		option(job)
	}
	job.ResourceVersion = e.nextVersion()
	e.jobs[job.Name] = job
}

// end ends a Job.
func (e *env) end(job *batchv1.Job, how batchv1.JobConditionType) {
	e.storeJob(job, endedAt(how, metav1.NewTime(e.now().Truncate(time.Second))))
}

// sync lets the caches catch up, and syncs once. It returns when to sync again.
func (e *env) sync() (time.Duration, error) {
	e.fillCaches()
	return e.syncNow()
}

// fillCaches puts what the program's caches keep of the stored objects into the caches, except
// as behind and stale say.
func (e *env) fillCaches() {
	cronTab := e.cronTab
	if e.stale != nil {
		cronTab = e.stale
	}
	e.current.cached = cronTab
	version := strconv.Itoa(e.version)
	var jobs []any
	for _, job := range e.jobs {
		if job.Name != e.behind {
			jobs = append(jobs, Trim(job.DeepCopy()))
		}
	}
	if err := errors.Join(e.cronTabCache.Replace([]any{Trim(cronTab.DeepCopy())}, version), e.jobCache.Replace(jobs, version)); err != nil {
		panic(err)
	}
}

// syncNow syncs once, with the present contents of the caches.
func (e *env) syncNow() (time.Duration, error) {
	key := cache.MetaObjectToName(e.cronTab)
	e.current = syncState{cached: e.current.cached}
	if cached, _ := e.process.cronTabs.Cached(key); cached != nil {
		snap := snapshot{cronTab: cached, jobs: e.process.jobs.Of(cached), now: e.now(), jobNamed: func(name string) *batchv1.Job { return e.process.jobs.Get("ns", name) }}
		if unrecorded, ok := e.process.unrecorded.Load(key); ok {
			snap.unrecorded = unrecorded.(startedRuns)
		}
		e.current.missed = decide(snap).missed
	}
	again, err := e.process.syncHandler(context.Background(), key)
	e.violationIf(e.current.replaced && !e.current.triedCreate && !e.dead, "rule C11: a Job is deleted for a run that is not started")
	e.violationIf(e.current.stored && e.current.reported != len(e.current.missed), "rule C19: %d events say that runs were missed: %v", e.current.reported, e.current.missed)
	e.kube.ClearActions()
	e.client.ClearActions()
	return again, err
}

// run runs the controller for a time: it syncs when the last sync asked for it, and after events of Jobs.
// The event of its own status does not enqueue the CronTab.
func (e *env) run(period time.Duration, limit int) {
	defer e.checkLate()
	for end := e.now().Add(period); e.now().Before(end) && limit > 0; limit-- {
		events := e.jobEvents
		again, err := e.sync()
		switch {
		case err != nil:
			// The queue tries again with backoff.
			again = max(again, time.Second)
		case e.jobEvents != events:
			e.syncBeforeEvents()
			continue
		}
		if again == 0 || e.now().Add(again).After(end) {
			again = end.Sub(e.now())
		}
		e.advance(again)
	}
}

// syncBeforeEvents syncs while the caches do not show the last writes. It may delete more Jobs than one
// sync does.
func (e *env) syncBeforeEvents() {
	writes, jobs := e.writes, len(e.jobs)
	_, err := e.syncNow()
	if more := e.writes - writes - (jobs - len(e.jobs)); err != nil && !errors.Is(err, controller.ErrStaleCache) || more > 0 {
		e.violation("rule C7: before the caches show its writes the controller makes %d more, error %v", more, err)
	}
}

// checkLate checks that time alone makes the CronTab late.
func (e *env) checkLate() {
	late, isLate := e.lateBy()
	upToDate := e.refuseStatus == nil && !e.dead && e.cronTab.Status.ObservedGeneration == e.cronTab.Generation
	e.violationIf(late > maxRequeueAfter+time.Second && !isLate && upToDate, "rule C23: Late is not True %v after the deadline", late)
}

// lateBy returns how long ago the CronTab became late, 0 if it did not, and whether the status says that
// it is.
func (e *env) lateBy() (time.Duration, bool) {
	deadline, status := e.cronTab.Spec.SuccessDeadlineSeconds, &e.cronTab.Status
	isLate := meta.IsStatusConditionTrue(status.Conditions, alphav1.CronTabLate)
	if deadline == nil {
		return 0, isLate
	}
	success := later(e.cronTab.CreationTimestamp.Time, timeOf(status.LastSuccessfulTime))
	return max(0, e.now().Truncate(time.Second).Sub(success)-time.Duration(*deadline)*time.Second), isLate
}

// react answers a request of the controller.
func (e *env) react(action clienttesting.Action) (bool, runtime.Object, error) {
	e.requests++
	if e.dead {
		return true, nil, errDied
	}
	var answer runtime.Object
	var err error
	switch {
	case action.Matches("get", "crontabs"):
		answer = e.cronTab.DeepCopy()
	case action.Matches("get", "jobs"):
		job := e.jobs[action.(clienttesting.GetAction).GetName()]
		if job == nil {
			return true, nil, errNotFound()
		}
		answer = job.DeepCopy()
	case action.Matches("create", "jobs"):
		create := action.(clienttesting.CreateActionImpl)
		answer, err = e.createJob(create.Object.(*batchv1.Job), len(create.CreateOptions.DryRun) > 0)
	case action.Matches("delete", "jobs"):
		err = e.deleteJob(action.(clienttesting.DeleteActionImpl))
	case action.Matches("patch", "crontabs/status"):
		answer, err = e.updateStatus(merged(e.cronTab, action.(clienttesting.PatchAction).GetPatch()))
	default:
		e.violation("unexpected request: %s %s", action.GetVerb(), action.GetResource().Resource)
	}
	if err != nil {
		return true, nil, err
	}
	return true, answer, nil
}

// write carries out a request that changes something, unless the process dies.
func (e *env) write(carryOut func()) error {
	e.writes++
	if e.writesLeft != 0 {
		e.writesLeft--
		carryOut()
		return nil
	}
	e.dead = true
	if e.lastWrite {
		carryOut()
	}
	return errDied
}

func (e *env) createJob(job *batchv1.Job, dryRun bool) (*batchv1.Job, error) {
	e.current.triedCreate = e.current.triedCreate || !dryRun
	e.violationIf(e.current.cached != e.cronTab, "rule C7: %s is created for a CronTab that is out of date", job.Name)
	isManual := job.Annotations[alphav1.InstantiateAnnotation] == alphav1.InstantiateManual
	observed := ptr.Deref(e.cronTab.Status.ObservedSchedule, alphav1.ObservedSchedule{})
	e.violationIf(!dryRun && !isManual && changed(observed, observe(e.cronTab, specified(e.cronTab, e.now()), settledUntil(e.cronTab))),
		"rule C13: %s is created before the status records the schedule", job.Name)
	switch {
	case e.refuse != nil:
		if !dryRun {
			e.writes++
		}
		return nil, e.refuse
	case e.jobs[job.Name] != nil:
		e.violationIf(job.Name != e.behind && !dryRun, "rule C7: %s is there already", job.Name)
		return nil, apierrors.NewAlreadyExists(jobsGroup, job.Name)
	case dryRun:
		return job, nil
	}
	err := e.write(func() {
		e.checkStart(job, isManual)
		e.storeJob(job, func(job *batchv1.Job) {
			job.UID = types.UID(fmt.Sprintf("uid-%s-%d", job.Name, e.writes))
			job.CreationTimestamp = metav1.NewTime(e.now().Truncate(time.Second))
			e.creator[job.UID] = e.process
		})
		e.jobEvents++
	})
	return e.jobs[job.Name], err
}

// checkStart checks that the Job may be created now.
func (e *env) checkStart(job *batchv1.Job, isManual bool) {
	spec, running := &e.cronTab.Spec, activeJobs(e.owned())
	due, err := time.Parse(time.RFC3339, job.Annotations[alphav1.ScheduledTimeAnnotation])
	lateness := e.now().Sub(due.Add(offsetOf(e.cronTab)))
	e.started[job.Name]++
	e.violationIf(err != nil, "rule C7: %s does not say when its run was due: %v", job.Name, err)
	e.violationIf(!ptr.Equal(job.Spec.BackoffLimit, spec.JobOptions.BackoffLimit), "rule C7: %s has another backoffLimit than the CronTab", job.Name)
	e.violationIf(e.started[job.Name] > 1, "rules C7 and C22: %s is created twice", job.Name)
	e.violationIf(len(running) > 0 && (spec.ConcurrencyPolicy == "Forbid" || spec.ConcurrencyPolicy == "Replace"), "rules C10 and C11: %s is created beside others", job.Name)
	if isManual {
		e.violationIf(e.now().Before(due), "rule C22: %s is created before its time", job.Name)
		e.violationIf(e.cronTab.Annotations[alphav1.RunAtAnnotation] != due.UTC().Format(time.RFC3339), "rule C22: %s is created for %v", job.Name, e.cronTab.Annotations)
		return
	}
	e.late = max(e.late, lateness)
	e.violationIf(lateness < 0, "rule C6: %s is created before its time", job.Name)
	e.violationIf(spec.StartingDeadlineSeconds != nil && int64(lateness/time.Second) > *spec.StartingDeadlineSeconds, "rule C9: %s is created too late", job.Name)
	e.violationIf(ptr.Deref(spec.Suspend, false), "rule C12: %s is created while suspended", job.Name)
}

// deleteJob deletes a Job, to be replaced or because the history is too long. The status that the
// controller saw must record it: nothing else shows when the run of a deleted Job was due.
func (e *env) deleteJob(action clienttesting.DeleteActionImpl) error {
	job, preconditions, spec := e.jobs[action.GetName()], action.GetDeleteOptions().Preconditions, &e.cronTab.Spec
	switch {
	case job == nil:
		return errNotFound()
	case *preconditions.UID != job.UID || *preconditions.ResourceVersion != job.ResourceVersion:
		return errConflict()
	}
	return e.write(func() {
		kept, limit := e.finished(resultOf(job))
		isActive := resultOf(job) == unfinished
		e.current.replaced = e.current.replaced || isActive
		e.violationIf(!owns(e.cronTab, job), "rule C14: %s is deleted, which the CronTab does not control", job.Name)
		e.violationIf(!recorded(e.current.cached, job), "rules C11 and C17: %s is deleted before the status records its run and its end", job.Name)
		e.violationIf(isActive && spec.ConcurrencyPolicy != "Replace", "rule C17: %s is deleted, which is under way", job.Name)
		e.violationIf(isActive && e.refuse != nil && !isInconclusive(e.refuse), "rule C11: %s is deleted for a run that the API server refuses: %v", job.Name, e.refuse)
		e.violationIf(!isActive && kept <= limit, "rule C17: %s is deleted, with %d in the history and a limit of %d", job.Name, kept, limit)
		e.jobEvents++
		e.version++
		delete(e.jobs, job.Name)
	})
}

// finished returns how many Jobs have that result, and how many of them the spec allows.
func (e *env) finished(how jobResult) (count, limit int) {
	for _, job := range e.owned() {
		if resultOf(job) == how {
			count++
		}
	}
	spec := &e.cronTab.Spec
	if how == jobResult(batchv1.JobFailed) {
		return count, int(ptr.Deref(spec.FailedJobsHistoryLimit, defaultFailed))
	}
	return count, int(ptr.Deref(spec.SuccessfulJobsHistoryLimit, defaultSuccessful))
}

// updateStatus stores a status. A process that dies with this write still sends its events:
// the test learns from them which runs were missed. The next request fails.
func (e *env) updateStatus(changed *alphav1.CronTab) (*alphav1.CronTab, error) {
	if changed.ResourceVersion != e.cronTab.ResourceVersion {
		return nil, errConflict()
	}
	if e.refuseStatus != nil {
		return nil, e.refuseStatus
	}
	err := e.write(func() { e.storeStatus(changed.Status) })
	if e.current.stored {
		err = nil
	}
	return e.cronTab.DeepCopy(), err
}

func (e *env) storeStatus(status alphav1.CronTabStatus) {
	times := func(s *alphav1.CronTabStatus) []*metav1.Time {
		return []*metav1.Time{s.LastScheduleTime, s.LastMissedTime, s.LastManualTime, s.LastSuccessfulTime, s.LastFailedTime}
	}
	for i, old := range times(&e.cronTab.Status) {
		e.violationIf(old != nil && times(&status)[i].Before(old), "rule C18: a time goes back from %v to %v", old, times(&status)[i])
	}
	observed := *status.ObservedSchedule
	former := len(e.epochs) - 1
	e.current.stored = true
	if former < 0 || changed(e.epochs[former].schedule, observed) || !observed.Since.Equal(&e.epochs[former].schedule.Since) {
		e.epochs = append(e.epochs, epoch{observed, later(observed.Since.Time, settledUntil(e.cronTab))})
	}
	for _, missed := range e.current.missed {
		reported := reportedRuns{missed, len(e.epochs) - 1}
		if missed.reason == missedChanged {
			reported.epoch = former
		}
		e.missed = append(e.missed, reported)
	}
	e.lost = false
	e.update(func(cronTab *alphav1.CronTab) { cronTab.Status = status })
}

// eventChecker receives the events of the controller.
type eventChecker struct {
	record.EventRecorder
	env *env
}

// Event implements record.EventRecorder.
func (r eventChecker) Event(_ runtime.Object, _, reason, message string) {
	e := r.env
	e.violationIf(!e.current.stored, "rule C19: an event without a change of the status: %s %s", reason, message)
	switch reason {
	case eventMissed, alphav1.ReasonMissedDeadline, alphav1.ReasonJobNameTaken:
		e.current.reported++
	case eventCompleted, eventFailed:
		e.once(message)
	}
}

// Eventf implements record.EventRecorder, for the events of writes.
func (r eventChecker) Eventf(_ runtime.Object, _, _, format string, args ...any) {
	r.env.once(fmt.Sprintf(format, args...))
}

// once checks that this event is sent once.
func (e *env) once(message string) {
	e.events[message]++
	e.violationIf(e.events[message] > 1, "rule C19: the event %q is sent twice", message)
}
