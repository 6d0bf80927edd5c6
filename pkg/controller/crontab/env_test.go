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
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"

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

	// started counts the creations of each run's Job, by the Unix time when it was due.
	// missed are the runs that events reported as missed. epochs are the schedules that
	// were followed, one after the other. events counts those that may be sent only once.
	started map[int64]int
	// asked has the same for the runs that users asked for.
	asked  map[int64]int
	missed []reportedRuns
	epochs []epoch
	events map[string]int
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
	cached *alphav1.CronTab
	// formerEpoch is the index of the epoch before the status was stored.
	formerEpoch                   int
	stored, replaced, triedCreate bool
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
		creator: map[types.UID]*Controller{}, started: map[int64]int{}, asked: map[int64]int{}, events: map[string]int{}, writesLeft: -1,
	}
	e.kube.AddReactor("*", "*", e.react)
	e.client.AddReactor("*", "*", e.react)
	e.update(func(*alphav1.CronTab) {})
	e.start()
	return e
}

// start replaces the process: the new one remembers nothing.
func (e *env) start() {
	ctx := klog.NewContext(context.Background(), logr.Discard())
	informers := externalversions.NewSharedInformerFactory(e.client, 0).Alpha().V1().CronTabs()
	jobs := kubeinformers.NewSharedInformerFactory(e.kube, 0).Batch().V1().Jobs()
	registered, clock := controller.NewMetrics(metrics.NewKubeRegistry()), envClock{passive: e.clock}
	c, err := New(ctx, Options{
		KubeClient: e.kube, Client: e.client, CronTabs: informers, Jobs: jobs,
		Options: controller.Options{
			Worker:    controller.NewWorker(cronTabGVK().Kind, controller.WorkerOptions{Clock: clock, Metrics: registered, Workers: 1}),
			Namespace: metav1.NamespaceAll, Recorder: eventChecker{env: e}, Clock: clock, Metrics: registered,
		},
	})
	if err != nil {
		panic(err)
	}
	// The test decides when to sync.
	c.Worker.Queue.ShutDown()
	e.process, e.cronTabCache, e.jobCache, e.dead, e.writesLeft = c, informers.TypedInformer().GetIndexer(), jobs.TypedInformer().GetIndexer(), false, -1
}

func (e *env) now() time.Time { return e.clock.Now() }

// advance moves the clock, back if the duration is negative.
func (e *env) advance(by time.Duration) { e.clock.SetTime(e.now().Add(by)) }

// violation notes that the contract was broken.
func (e *env) violation(format string, args ...any) {
	e.violations = append(e.violations, e.now().UTC().Format(time.RFC3339Nano)+": "+fmt.Sprintf(format, args...))
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
	e.storeJob(job, ended(how), func(job *batchv1.Job) {
		now := metav1.NewTime(e.now().Truncate(time.Second))
		job.Status.Conditions[len(job.Status.Conditions)-1].LastTransitionTime = now
		if how == batchv1.JobComplete {
			job.Status.CompletionTime = &now
		}
	})
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
	e.current = syncState{cached: e.current.cached}
	again, err := e.process.syncHandler(context.Background(), cache.MetaObjectToName(e.cronTab))
	if e.current.replaced && !e.current.triedCreate && !e.dead {
		e.violation("rule C11: a Job is deleted for a run that is not started")
	}
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
	deadline, status := e.cronTab.Spec.SuccessDeadlineSeconds, &e.cronTab.Status
	if deadline == nil || e.refuseStatus != nil || e.dead || status.ObservedGeneration != e.cronTab.Generation {
		return
	}
	success := later(e.cronTab.CreationTimestamp.Time, timeOf(status.LastSuccessfulTime))
	if late := e.now().Sub(success) - time.Duration(*deadline)*time.Second; late > maxRequeueAfter+time.Second && !meta.IsStatusConditionTrue(status.Conditions, alphav1.CronTabLate) {
		e.violation("rule C23: Late is not True %v after the deadline", late)
	}
}
