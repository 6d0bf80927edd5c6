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
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/go-logr/logr"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/klog/v2"
	"k8s.io/utils/clock"
	testingclock "k8s.io/utils/clock/testing"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
	clientfake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/test/fixture"
)

// TestRandom runs random sequences: the clock runs, jumps and goes back, the process is down or dies between two
// writes, users change the CronTab and Jobs, the API server refuses Jobs. In the end each run that was due was
// started exactly once, or one event said that it was missed and why.
func TestRandom(t *testing.T) {
	usual := fixture.FixSeed(t, 200)
	results := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		s := newSequence(t)
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			s.step()
			s.latest = later(s.latest, s.env.now())
		}
		s.settle()
		s.check()
		if len(s.env.violations) > 0 {
			t.Fatalf("the contract is broken:\n%s", strings.Join(s.env.violations, "\n"))
		}
		for name := range s.env.started {
			if runOf(named("backup", name)).manual {
				results["asked"]++
			} else {
				results["started"]++
			}
		}
		for _, missed := range s.env.missed {
			results[missed.reason] += missed.count
		}
	})
	t.Logf("runs: %v", results)
	for _, reason := range []string{
		"started", "asked", missedSuperseded, missedActive, missedChanged,
		alphav1.ReasonSuspended, alphav1.ReasonJobRejected, alphav1.ReasonMissedDeadline, alphav1.ReasonJobNameTaken,
	} {
		if usual && results[reason] == 0 {
			t.Errorf("no run of any sequence was %s", reason)
		}
	}
}

// sequence is one random sequence of steps.
type sequence struct {
	t   *rapid.T
	env *env
	// latest is the latest time that the clock has shown, and wentBack whether it has ever gone back.
	latest   time.Time
	wentBack bool
	// askedAt is when the last run was due that a user asked for.
	askedAt time.Time
}

func newSequence(t *rapid.T) *sequence {
	// A day or so before clocks change, somewhere.
	begin, err := time.Parse(time.RFC3339, rapid.SampledFrom([]string{
		"2026-03-28T12:00:00Z", "2026-10-24T09:30:00Z", "2026-03-07T18:00:01Z", "2026-10-31T20:59:59Z",
		"2026-04-04T10:00:00Z", "2026-10-02T23:00:00Z", "2026-04-23T16:00:00Z",
		"2026-12-31T12:34:56Z", "2028-02-28T00:00:00Z", "2040-12-30T00:00:00Z",
	}).Draw(t, "begin"))
	if err != nil {
		t.Fatal(err)
	}
	cronTab := unseen()
	cronTab.CreationTimestamp.Time = begin
	s := &sequence{t: t, env: newEnv(cronTab)}
	s.env.update(func(cronTab *alphav1.CronTab) {
		if rapid.Bool().Draw(t, "no history") {
			keeps(0, 0)(cronTab)
		}
		cronTab.Spec.ConcurrencyPolicy = drawPolicy(t)
		s.reschedule(&cronTab.Spec)
	})
	s.latest = s.env.now()
	return s
}

func drawPolicy(t *rapid.T) alphav1.ConcurrencyPolicy {
	return rapid.SampledFrom([]alphav1.ConcurrencyPolicy{"Allow", "Forbid", "Replace"}).Draw(t, "policy")
}

// reschedule draws a schedule and a time zone.
func (s *sequence) reschedule(spec *alphav1.CronTabSpec) {
	spec.Schedule = rapid.OneOf(
		rapid.SampledFrom([]string{"@hourly", "@daily", "30 2 * * *", "0 3 * * *", "15 0,1,2 * * *", "*/30 1-3 * * 0", "0 0 29 2 *", "0 0 30 2 *", "0 25 * * *"}),
		rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("*/%d %s * * *", rapid.IntRange(5, 59).Draw(t, "minutes"), rapid.SampledFrom([]string{"*", "*/3", "22-23", "0-4"}).Draw(t, "hours"))
		}),
		rapid.Custom(func(t *rapid.T) string {
			return "@every " + (time.Duration(rapid.SampledFrom([]int{7, 20, 60, 90, 600, 3601, 40000}).Draw(t, "delay")) * time.Second).String()
		}),
	).Draw(s.t, "schedule")
	spec.TimeZone = rapid.SampledFrom([]*string{
		nil, ptr.To("Europe/Berlin"), ptr.To("America/New_York"), ptr.To("Australia/Lord_Howe"), ptr.To("Africa/Cairo"), ptr.To("Asia/Kathmandu"), ptr.To("Europe/Belin"),
	}).Draw(s.t, "zone")
}

// step makes one random change. Most often time passes.
func (s *sequence) step() {
	e := s.env
	switch kind := rapid.IntRange(0, 22).Draw(s.t, "kind"); kind {
	case 0, 1, 2, 3:
		period := s.period()
		e.run(period, 60)
	case 4, 5:
		period := s.period()
		s.recordLost()
		e.advance(period)
		e.start()
	case 6, 7, 8:
		s.crashLoop()
	case 9, 10:
		s.endJobs()
	case 16:
		s.takeName()
	case 17:
		e.refuse = rapid.SampledFrom([]error{nil, errQuota(), errInvalid(), errServer(), apierrors.NewTimeoutError("slow", 0)}).Draw(s.t, "refuse")
	case 20:
		s.askForRun()
	case 22:
		e.loses, e.lastWrite = true, rapid.Bool().Draw(s.t, "carried out")
		e.run(s.period(), 60)
		s.endJobs()
	case 21:
		e.refuseStatus = rapid.SampledFrom([]error{nil, errQuota(), errConflict(), errServer()}).Draw(s.t, "refuse statuses")
	case 18:
		period := s.period()
		s.recordLost()
		e.advance(-period)
		s.wentBack = true
	default:
		s.changeSpec(kind)
	}
}

// changeSpec changes the spec as a user does. Managed fields may have the time.
func (s *sequence) changeSpec(kind int) {
	s.env.update(func(cronTab *alphav1.CronTab) {
		spec := &cronTab.Spec
		before := spec.DeepCopy()
		switch kind {
		case 11:
			spec.Suspend = ptr.To(!ptr.Deref(spec.Suspend, false))
		case 12:
			spec.ConcurrencyPolicy = drawPolicy(s.t)
			spec.SplaySeconds = rapid.SampledFrom([]*int32{nil, ptr.To[int32](60), ptr.To[int32](3600)}).Draw(s.t, "splay")
		case 13:
			spec.StartingDeadlineSeconds = rapid.SampledFrom([]*int64{nil, ptr.To[int64](0), ptr.To[int64](10), ptr.To[int64](3600), ptr.To[int64](100000)}).Draw(s.t, "deadline")
		case 14, 15:
			s.reschedule(spec)
		case 19:
			spec.SuccessfulJobsHistoryLimit = ptr.To(rapid.Int32Range(0, 3).Draw(s.t, "limit"))
			spec.FailedJobsHistoryLimit = ptr.To(rapid.Int32Range(0, 3).Draw(s.t, "limit"))
			spec.JobOptions.BackoffLimit = ptr.To(rapid.Int32Range(0, 3).Draw(s.t, "limit"))
		}
		if equality.Semantic.DeepEqual(before, spec) {
			return
		}
		cronTab.Generation++
		cronTab.ManagedFields = nil
		if rapid.Bool().Draw(s.t, "noted") {
			cronTab.ManagedFields = []metav1.ManagedFieldsEntry{{Time: &metav1.Time{Time: s.env.now().Truncate(time.Second)}}}
		}
	})
}

// crashLoop ends processes in the middle of a sync, one after the other.
func (s *sequence) crashLoop() {
	e := s.env
	s.recordLost()
	for range rapid.IntRange(1, 3).Draw(s.t, "crashes") {
		e.advance(s.period())
		e.writesLeft, e.lastWrite = rapid.IntRange(0, 3).Draw(s.t, "writes"), rapid.Bool().Draw(s.t, "carried out")
		jobs, cronTab := e.owned(), e.cronTab
		_, _ = e.sync()
		e.start()
		s.syncWithOldCaches(jobs, cronTab)
	}
}

// syncWithOldCaches syncs a new process whose caches may have the former CronTab and may lack
// a Job: a new one, or one that the status lists. Time passes only in the latter case: a
// process that does not see the Job of a run records it as missed, as docs/crontab.md says.
func (s *sequence) syncWithOldCaches(formerJobs []*batchv1.Job, former *alphav1.CronTab) {
	e := s.env
	if e.cronTab != former && rapid.Bool().Draw(s.t, "stale") {
		e.stale = former
	}
	for _, job := range e.owned() {
		isNew := !slices.ContainsFunc(formerJobs, func(other *batchv1.Job) bool { return other.UID == job.UID })
		isActive := slices.ContainsFunc(e.cronTab.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == job.UID })
		if e.behind != "" || !isNew && !isActive || !rapid.Bool().Draw(s.t, "behind") {
			continue
		}
		e.behind = job.Name
		if isActive {
			e.advance(s.period())
		}
	}
	if e.stale != nil || e.behind != "" {
		_, _ = e.sync()
	}
	e.stale, e.behind = nil, ""
}

// period draws a time from none to half a day.
func (s *sequence) period() time.Duration {
	unit := rapid.SampledFrom([]time.Duration{time.Hour, 13 * time.Minute, time.Minute, 11 * time.Second, 700 * time.Millisecond}).Draw(s.t, "unit")
	return unit * time.Duration(rapid.IntRange(0, 12).Draw(s.t, "units"))
}

// recordLost lets the status record the runs that only this process knows: another one would start them
// again, as docs/crontab.md says.
func (s *sequence) recordLost() {
	for e := s.env; e.lost; {
		e.refuseStatus = nil
		if _, err := e.sync(); err != nil && e.lost {
			e.violation("rule C15: the status does not record a run whose Job is gone: %v", err)
			return
		}
	}
}

// endJobs ends some Jobs and deletes some as users do. Of those whose runs the status does not record it
// deletes only what this process has created.
func (s *sequence) endJobs() {
	e := s.env
	for _, job := range e.owned() {
		switch rapid.IntRange(0, 4).Draw(s.t, "how") {
		case 0, 1:
			if endOfJob(job).Type == unfinished {
				e.end(job, batchv1.JobComplete)
			}
		case 2:
			if endOfJob(job).Type == unfinished {
				e.end(job, batchv1.JobFailed)
			}
		case 3:
			due := runOf(e.cronTab, job)
			isRecorded := !due.at.After(timeOf(*due.last(&e.cronTab.Status)))
			if isRecorded || e.creator[job.UID] == e.process {
				if e.lost = e.lost || !isRecorded; e.unanswered[job.Name] {
					// No Job runs, ends and is deleted sooner.
					e.advance(2 * time.Second)
				}
				e.version++
				delete(e.jobs, job.Name)
			}
		}
	}
}

// askForRun asks for a run now, as a user does. The controller starts no run before the last one that was asked for.
func (s *sequence) askForRun() {
	e := s.env
	now := e.now().UTC().Truncate(time.Second)
	if !now.After(s.askedAt) || now.Before(e.cronTab.CreationTimestamp.Time) {
		return
	}
	s.askedAt = now
	e.update(func(cronTab *alphav1.CronTab) {
		cronTab.Annotations = map[string]string{alphav1.RunAtAnnotation: now.Format(time.RFC3339)}
	})
}

// takeName gives the name of the next run's Job to a Job of another controller.
func (s *sequence) takeName() {
	e := s.env
	times, unreadable := read(observe(e.cronTab, specified(e.cronTab, e.now()), settledUntil(e.cronTab)))
	if unreadable.Reason != "" {
		return
	}
	if due := times.next(e.now()); !due.IsZero() && e.jobs[dueRun{at: due}.jobName(e.cronTab.Name)] == nil {
		e.storeJob(jobOf(e.cronTab, due, ofCronJob))
	}
}

// settle removes everything that keeps runs from being started, and lets the controller finish.
func (s *sequence) settle() {
	e := s.env
	e.refuse, e.refuseStatus, e.loses = nil, nil, false
	e.clock.SetTime(later(s.latest, e.now()).Add(2 * time.Second))
	e.update(func(cronTab *alphav1.CronTab) {
		cronTab.Generation++
		cronTab.Spec.Suspend, cronTab.Spec.StartingDeadlineSeconds, cronTab.Spec.SplaySeconds, cronTab.Spec.ConcurrencyPolicy = nil, nil, nil, alphav1.AllowConcurrent
	})
	requests := -1
	for range 100 {
		if requests == e.requests {
			break
		}
		requests = e.requests
		if _, err := e.sync(); err != nil {
			e.violation("one of the last syncs failed: %v", err)
		}
	}
	if _, err := e.sync(); err != nil || e.requests != requests {
		e.violation("rule C21: with nothing changing there are %d requests, error %v", e.requests-requests, err)
	}
}

// check compares the runs that were started or missed with those that were due, and the history with its limits.
func (s *sequence) check() {
	e := s.env
	for _, how := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if finished, limit := e.finished(how); finished > limit {
			e.violation("rule C17: %d Jobs are %s, with a limit of %d", finished, how, limit)
		}
	}
	known := map[string]bool{}
	if !s.askedAt.IsZero() {
		asked := dueRun{s.askedAt, true}.jobName("backup")
		e.violationIf(e.started[asked] != 1 && !e.unanswered[asked], "rule C22: asked for at %v, started %d times", s.askedAt, e.started[asked])
	}
	for i, epoch := range e.epochs {
		until := e.now()
		if i+1 < len(e.epochs) {
			until = e.epochs[i+1].schedule.Since.Time
		}
		due := dueBy(epoch.schedule, epoch.after, until)
		for _, run := range due {
			name := dueRun{at: run}.jobName("backup")
			known[name] = true
			results := e.started[name]
			for _, missed := range e.missed {
				if missed.epoch == i && !run.Before(missed.first) && !run.After(missed.latest) {
					results++
				}
			}
			e.violationIf(results != 1 && (!e.unanswered[name] || results != 2), "the run due at %v by %q was started %d times, and started or missed %d times", run, epoch.schedule.Schedule, e.started[name], results)
		}
		for _, missed := range e.missed {
			covered := slices.DeleteFunc(slices.Clone(due), func(run time.Time) bool { return run.Before(missed.first) || run.After(missed.latest) })
			e.violationIf(missed.epoch == i && !s.wentBack && missed.count != min(len(covered), maxCount+1),
				"rule C8: %d runs from %v to %v are reported as %d", len(covered), missed.first, missed.latest, missed.count)
		}
	}
	for name := range e.started {
		isManual := runOf(named("backup", name)).manual
		e.violationIf(!known[name] && !s.wentBack && !isManual, "rule C6: %s was created, and its run was not due", name)
	}
}

// dueBy returns what is due by a schedule, from the local time of every minute.
func dueBy(observed alphav1.ObservedSchedule, after, until time.Time) []time.Time {
	times, _ := read(observed)
	var due []time.Time
	switch times := times.(type) {
	case *calendar:
		return byLocalTime(times, after, until)
	case every:
		step := time.Duration(times.seconds) * time.Second
		for run := observed.Since.Add(step); !run.After(until); run = run.Add(step) {
			if run.After(after) {
				due = append(due, run)
			}
		}
	}
	return due
}

// env is a simulated API server with one CronTab, and the process of the controller. It has
// no goroutines: the test sets the clock, fills the caches, and calls syncHandler. env
// answers the controller's requests and checks each against the contract.
type env struct {
	// process is the one that runs now. start replaces it.
	process *process

	clock  *testingclock.FakePassiveClock
	kube   *kubefake.Clientset
	client *clientfake.Clientset

	// cronTab, jobs (by name) and version are what the API server stores. Stored objects
	// are never changed in place: the caches share them.
	cronTab *alphav1.CronTab
	jobs    map[string]*batchv1.Job
	version int

	// started counts the creations of the Job of each name. missed are the runs that were given up. epochs are the
	// schedules that were followed, one after the other. events counts those that may be sent only once.
	started map[string]int
	missed  []reportedRuns
	epochs  []epoch
	events  map[string]int

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
	// loses says that the next creation of a Job has no answer, and unanswered for which Jobs that was so.
	loses      bool
	unanswered map[string]bool
	// creator has the process that created a Job. lost says that a user has deleted a Job whose run only
	// that process knows to be started.
	creator map[types.UID]*process
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
		creator: map[types.UID]*process{}, unanswered: map[string]bool{}, started: map[string]int{}, events: map[string]int{}, writesLeft: -1,
	}
	e.kube.AddReactor("*", "*", e.react)
	e.client.AddReactor("*", "*", e.react)
	e.update(func(*alphav1.CronTab) {})
	e.start()
	return e
}

// start replaces the process: the new one remembers nothing.
func (e *env) start() {
	e.process = newProcess(klog.NewContext(context.Background(), logr.Discard()), e.kube, e.client, envClock{passive: e.clock}, eventChecker{env: e})
	// The test decides when to sync.
	e.process.Worker.Queue.ShutDown()
	e.dead, e.writesLeft = false, -1
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
	var jobs []*batchv1.Job
	for _, job := range e.jobs {
		if job.Name != e.behind {
			jobs = append(jobs, job)
		}
	}
	e.process.fill(e.version, cronTab, jobs)
}

// syncNow syncs once, with the present contents of the caches.
func (e *env) syncNow() (time.Duration, error) {
	key := cache.MetaObjectToName(e.cronTab)
	e.current = syncState{cached: e.current.cached}
	if cached, _ := e.process.cronTabs.Cached(key); cached != nil {
		e.current.missed = decide(e.process.snapshot(cached)).missed
	}
	again, err := e.process.syncHandler(context.Background(), key)
	e.violationIf(e.current.replaced && !e.current.triedCreate && !e.dead && len(activeJobs(e.owned())) == 0, "rule C11: Jobs are deleted for no run")
	e.violationIf(e.current.stored && e.current.reported != len(e.current.missed), "rule C19: %d events say that runs were missed: %v", e.current.reported, e.current.missed)
	e.kube.ClearActions()
	e.client.ClearActions()
	return again, err
}

// run runs the controller for a time: it syncs when the last sync asked for it, and after events of Jobs.
// No event of its own status enqueues the CronTab: nothing may depend on one.
func (e *env) run(period time.Duration, limit int) {
	for end := e.now().Add(period); e.now().Before(end) && limit > 0; limit-- {
		events := e.jobEvents
		again, err := e.sync()
		switch {
		case errors.Is(err, io.ErrUnexpectedEOF):
			// The API server cannot be reached until the next step.
			return
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

// syncBeforeEvents syncs while the caches do not show the last writes. It may delete more Jobs than one sync does.
func (e *env) syncBeforeEvents() {
	writes, jobs := e.writes, len(e.jobs)
	_, err := e.syncNow()
	if n := e.writes - writes - (jobs - len(e.jobs)); err != nil && !errors.Is(err, controller.ErrStaleCache) || n > 0 {
		e.violation("rule C7: before the caches show its writes the controller makes %d more, error %v", n, err)
	}
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
			// A 504 may come after the Job is stored.
			e.unanswered[job.Name] = e.unanswered[job.Name] || mayExist(e.refuse)
		}
		return nil, e.refuse
	case e.jobs[job.Name] != nil:
		e.violationIf(job.Name != e.behind && !dryRun, "rule C7: %s is there already", job.Name)
		return nil, apierrors.NewAlreadyExists(jobsGroup, job.Name)
	case dryRun:
		return job, nil
	}
	create := func() {
		e.checkStart(job, isManual)
		e.storeJob(job, func(job *batchv1.Job) {
			job.UID = types.UID(fmt.Sprintf("uid-%s-%d", job.Name, e.writes))
			job.CreationTimestamp = metav1.NewTime(e.now().Truncate(time.Second))
			e.creator[job.UID] = e.process
		})
		e.jobEvents++
	}
	if !e.loses {
		err := e.write(create)
		return e.jobs[job.Name], err
	}
	if e.loses, e.unanswered[job.Name] = false, true; e.lastWrite {
		create()
	}
	return nil, io.ErrUnexpectedEOF
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
		kept, limit := e.finished(endOfJob(job).Type)
		isActive := endOfJob(job).Type == unfinished
		e.current.replaced = e.current.replaced || isActive
		e.violationIf(!owns(e.cronTab, job), "rule C14: %s is deleted, which the CronTab does not control", job.Name)
		e.violationIf(!recorded(e.current.cached, job), "rules C11 and C17: %s is deleted before the status records its run and its end", job.Name)
		e.violationIf(isActive && spec.ConcurrencyPolicy != "Replace", "rule C17: %s is deleted while under way", job.Name)
		e.violationIf(isActive && e.refuse != nil && !isInconclusive(e.refuse), "rule C11: %s is deleted for a run that the API server refuses: %v", job.Name, e.refuse)
		e.violationIf(!isActive && kept <= limit, "rule C17: %s is deleted, with %d in the history and a limit of %d", job.Name, kept, limit)
		e.jobEvents++
		e.version++
		delete(e.jobs, job.Name)
	})
}

// finished returns how many Jobs have that result, and how many of them the spec allows.
func (e *env) finished(how batchv1.JobConditionType) (count, limit int) {
	for _, job := range e.owned() {
		if endOfJob(job).Type == how {
			count++
		}
	}
	spec := &e.cronTab.Spec
	if how == batchv1.JobFailed {
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
		e.violationIf(old != nil && times(&status)[i].Before(old), "rule C18: %v goes back to %v", old, times(&status)[i])
	}
	observed := *status.ObservedSchedule
	former := len(e.epochs) - 1
	e.current.stored = true
	if former < 0 || changed(e.epochs[former].schedule, observed) || !observed.Since.Equal(&e.epochs[former].schedule.Since) {
		e.epochs = append(e.epochs, epoch{observed, later(observed.Since.Time, settledUntil(e.cronTab))})
	}
	for _, missed := range e.current.missed {
		reported := reportedRuns{missed, len(e.epochs) - 1}
		if missed.reason == missedChanged || missed.reason == missedUnanswered && !missed.latest.After(observed.Since.Time) {
			reported.epoch = former
		}
		if !missed.manual {
			e.missed = append(e.missed, reported)
		}
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
