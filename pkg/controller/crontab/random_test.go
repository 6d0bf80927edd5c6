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
	"errors"
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// randomChecks is how many sequences a plain `go test` runs.
const randomChecks = 200

// TestRandom runs random sequences: the clock runs, jumps and goes back, the process is
// down or dies between two writes, users change the CronTab and Jobs, the API server refuses
// Jobs. In the end each run that was due was started exactly once, or one event said that it
// was missed and why.
func TestRandom(t *testing.T) {
	skipIfShort(t)
	// The same sequences each time, unless flags of rapid ask for others.
	checks, seed := flag.Lookup("rapid.checks"), flag.Lookup("rapid.seed")
	usual := os.Getenv("RAPID_CHECKS") == "" && checks.Value.String() == checks.DefValue && seed.Value.String() == seed.DefValue
	if usual {
		number := randomChecks
		if os.Getenv("KUBE_CACHE_MUTATION_DETECTOR") != "" {
			// The race detector runs with it, which takes ten times as long. hack/unit.sh runs the test
			// without them too.
			number /= 2
		}
		if err := errors.Join(checks.Value.Set(strconv.Itoa(number)), seed.Value.Set("1")); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _, _ = checks.Value.Set(checks.DefValue), seed.Value.Set(seed.DefValue) })
	}
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
			t.Fatalf("the contract is broken:\n%s\nafter\n%s", strings.Join(s.env.violations, "\n"), strings.Join(s.log, "\n"))
		}
		for name := range s.env.started {
			if manualTime(named("backup", name)).IsZero() {
				results["started"]++
			} else {
				results["asked"]++
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
	log []string
	// latest is the latest time that the clock has shown, and wentBack whether it has
	// ever gone back.
	latest   time.Time
	wentBack bool
	// askedAt is when the last run was due that a user asked for.
	askedAt time.Time
}

func newSequence(t *rapid.T) *sequence {
	// A day or so before clocks change, somewhere.
	begin := rapid.SampledFrom([]string{
		"2026-03-28T12:00:00Z", "2026-10-24T09:30:00Z", "2026-03-07T18:00:01Z", "2026-10-31T20:59:59Z", "2026-04-04T10:00:00Z",
		"2026-10-02T23:00:00Z", "2026-04-23T16:00:00Z", "2026-12-31T12:34:56Z", "2028-02-28T00:00:00Z", "2040-12-30T00:00:00Z",
	}).Draw(t, "begin")
	cronTab := unseen()
	cronTab.CreationTimestamp.Time = at(t, begin)
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

func (s *sequence) logf(format string, args ...any) {
	s.log = append(s.log, s.env.now().UTC().Format(time.RFC3339)+" "+fmt.Sprintf(format, args...))
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
	s.logf("schedule %q in %s", spec.Schedule, ptr.Deref(spec.TimeZone, "UTC"))
}

// step makes one random change. Most often time passes.
func (s *sequence) step() {
	e := s.env
	switch kind := rapid.IntRange(0, 21).Draw(s.t, "kind"); kind {
	case 0, 1, 2, 3:
		period := s.period()
		s.logf("the controller runs for %v", period)
		e.run(period, 60)
	case 4, 5:
		period := s.period()
		s.logf("the controller is down for %v", period)
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
		e.refuse = rapid.SampledFrom([]error{nil, errQuota(), errInvalid(), errServer()}).Draw(s.t, "refuse")
		s.logf("the API server refuses: %v", e.refuse)
	case 20:
		s.askForRun()
	case 21:
		e.refuseStatus = rapid.SampledFrom([]error{nil, errQuota(), errConflict(), errServer()}).Draw(s.t, "refuse statuses")
		s.logf("the API server refuses statuses: %v", e.refuseStatus)
	case 18:
		period := s.period()
		e.advance(-period)
		s.wentBack = true
		s.logf("the clock goes back by %v", period)
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
			s.logf("suspend: %v", *spec.Suspend)
		case 12:
			spec.ConcurrencyPolicy = drawPolicy(s.t)
			spec.SplaySeconds = rapid.SampledFrom([]*int32{nil, ptr.To[int32](60), ptr.To[int32](3600)}).Draw(s.t, "splay")
			s.logf("policy %s, splay %d s", spec.ConcurrencyPolicy, ptr.Deref(spec.SplaySeconds, 0))
		case 13:
			spec.StartingDeadlineSeconds = rapid.SampledFrom([]*int64{nil, ptr.To[int64](0), ptr.To[int64](10), ptr.To[int64](3600), ptr.To[int64](100000)}).Draw(s.t, "deadline")
			spec.SuccessDeadlineSeconds = rapid.SampledFrom([]*int64{nil, ptr.To[int64](1), ptr.To[int64](3600), ptr.To[int64](100000)}).Draw(s.t, "success deadline")
			s.logf("deadlines %d and %d", ptr.Deref(spec.StartingDeadlineSeconds, -1), ptr.Deref(spec.SuccessDeadlineSeconds, -1))
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
			cronTab.ManagedFields = []metav1.ManagedFieldsEntry{{Time: ptr.To(metav1.NewTime(s.env.now().Truncate(time.Second)))}}
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
		s.logf("the process dies after %d writes, the next is carried out: %v", e.writesLeft, e.lastWrite)
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
		s.logf("the cache of the next process does not have the status")
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
		s.logf("the cache of the next process does not have %s", job.Name)
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
			if resultOf(job) == unfinished {
				e.end(job, batchv1.JobComplete)
			}
		case 2:
			if resultOf(job) == unfinished {
				e.end(job, batchv1.JobFailed)
			}
		case 3:
			status := &e.cronTab.Status
			isRecorded := !dueTime(e.cronTab, job).After(timeOf(status.LastScheduleTime)) && !manualTime(e.cronTab, job).After(timeOf(status.LastManualTime))
			if isRecorded || e.creator[job.UID] == e.process {
				e.lost = e.lost || !isRecorded
				e.version++
				delete(e.jobs, job.Name)
			}
		}
	}
	s.logf("Jobs end")
}

// askForRun asks for a run now, as a user does. The controller starts no run before the last
// one that was asked for.
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
	s.logf("a user asks for a run")
}

// takeName gives the name of the next run's Job to a Job of another controller.
func (s *sequence) takeName() {
	e := s.env
	times, _, unreadable := read(observe(e.cronTab, specified(e.cronTab, e.now()), settledUntil(e.cronTab)))
	if unreadable.reason != "" {
		return
	}
	if due := times.next(e.now()); !due.IsZero() && e.jobs[jobName(e.cronTab.Name, due)] == nil {
		e.storeJob(jobOf(e.cronTab, due, ofCronJob))
		s.logf("a CronJob takes the name of the run due at %v", due)
	}
}

// settle removes everything that keeps runs from being started, and lets the controller
// finish.
func (s *sequence) settle() {
	e := s.env
	s.logf("nothing keeps runs from being started")
	e.refuse, e.refuseStatus = nil, nil
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

// check compares the runs that were started or missed with those that were due, and the
// history with its limits.
func (s *sequence) check() {
	e := s.env
	for _, how := range []batchv1.JobConditionType{batchv1.JobComplete, batchv1.JobFailed} {
		if finished, limit := e.finished(jobResult(how)); finished > limit {
			e.violation("rule C17: %d Jobs are %s, with a limit of %d", finished, how, limit)
		}
	}
	late, isLate := e.lateBy()
	e.violationIf(isLate != (late > 0), "rule C23: Late is %v, %v after the deadline", isLate, late)
	known := map[string]bool{}
	if !s.askedAt.IsZero() {
		asked := manualJobName("backup", s.askedAt)
		e.violationIf(e.started[asked] != 1, "rule C22: the run asked for at %v was started %d times", s.askedAt, e.started[asked])
	}
	for i, epoch := range e.epochs {
		until := e.now()
		if i+1 < len(e.epochs) {
			until = e.epochs[i+1].schedule.Since.Time
		}
		due := dueBy(epoch.schedule, epoch.after, until)
		for _, run := range due {
			name := jobName("backup", run)
			known[name] = true
			results := e.started[name]
			for _, missed := range e.missed {
				if missed.epoch == i && !run.Before(missed.first) && !run.After(missed.latest) {
					results++
				}
			}
			e.violationIf(results != 1, "the run due at %v by %q was started %d times, and started or missed %d times", run, epoch.schedule.Schedule, e.started[name], results)
		}
		for _, missed := range e.missed {
			covered := slices.DeleteFunc(slices.Clone(due), func(run time.Time) bool { return run.Before(missed.first) || run.After(missed.latest) })
			e.violationIf(missed.epoch == i && !s.wentBack && missed.count != min(len(covered), maxCount+1),
				"rule C8: %d runs from %v to %v are reported as %d", len(covered), missed.first, missed.latest, missed.count)
		}
	}
	for name := range e.started {
		isManual := !manualTime(named("backup", name)).IsZero()
		e.violationIf(!known[name] && !s.wentBack && !isManual, "rule C6: %s was created, and its run was not due", name)
	}
}

// dueBy returns what is due by a schedule, from the local time of every minute.
func dueBy(observed alphav1.ObservedSchedule, after, until time.Time) []time.Time {
	times, _, _ := read(observed)
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

// TestYears syncs CronTabs for years, only when a run is due. Each Job runs until the next.
// Every run is started once, in the second when it is due. It has one goroutine, and would take
// minutes with the race detector.
func TestYears(t *testing.T) {
	skipIfShort(t)
	tests := map[string]struct {
		schedule, zone string
		years          int
		policy         alphav1.ConcurrencyPolicy
		// runs is their number: 1461 days in four years, 3653 in ten. In Berlin 2:30 is skipped
		// once and repeated once in each year. No run is due at the begin and end of a test.
		runs int
	}{
		"rule C7: four years of days":                       {schedule: "@daily", zone: "UTC", years: 4, runs: 1461},
		"rule C7: ten years of days in Berlin":              {schedule: "@daily", zone: "Europe/Berlin", years: 10, runs: 3653},
		"rule C7: ten years of half past two in Berlin":     {schedule: "30 2 * * *", zone: "Europe/Berlin", years: 10, runs: 3652},
		"rule C7: ten years of days without some midnights": {schedule: "@daily", zone: "Asia/Beirut", years: 10, runs: 3643},
		"rule C7: a century of years":                       {schedule: "@yearly", zone: "America/New_York", years: 100, runs: 100},
		"rule C7: a century of leap days":                   {schedule: "0 0 29 2 *", zone: "UTC", years: 100, runs: 24},
		"rule C7: a year of hours":                          {schedule: "@hourly", zone: "Australia/Lord_Howe", years: 1, runs: 8758},
		"rule C10: four years of days, Forbid":              {schedule: "@daily", zone: "UTC", years: 4, policy: "Forbid", runs: 1461},
		"rule C11: four years of days, Replace":             {schedule: "@daily", zone: "UTC", years: 4, policy: "Replace", runs: 1461},
		"rule C4: ten years of @every with an odd delay":    {schedule: "@every 12h34m56s", zone: "UTC", years: 10, runs: 6967},
		"rule C4: a century of @every with a longer delay":  {schedule: "@every 8760h", zone: "UTC", years: 100, runs: 100},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// That is 2:30 in Berlin and 11:00 on Lord Howe, where each year has an hour less that
			// is full.
			cronTab := unseen(runsAt(test.schedule), inZone(test.zone))
			cronTab.Spec.ConcurrencyPolicy = test.policy
			cronTab.CreationTimestamp.Time = time.Date(2026, 6, 1, 0, 30, 0, 0, time.UTC)
			e := newEnv(cronTab)
			end := e.now().AddDate(test.years, 0, 0)
			for e.now().Before(end) {
				for _, job := range activeJobs(e.owned()) {
					e.end(job, batchv1.JobComplete)
				}
				if _, err := e.sync(); err != nil {
					t.Fatal(err)
				}
				if e.cronTab.Status.NextScheduleTime == nil {
					t.Fatalf("after %v there is no next run", e.now())
				}
				e.clock.SetTime(e.cronTab.Status.NextScheduleTime.Time)
			}
			for _, violation := range e.violations {
				t.Error(violation)
			}
			if len(e.started) != test.runs || len(e.missed) != 0 || e.late != 0 {
				t.Errorf("%d runs were started, want %d; %v were missed; the latest was %v late", len(e.started), test.runs, e.missed, e.late)
			}
			// Three are kept, one is under way, one has just ended.
			if left := len(e.owned()); left > 5 {
				t.Errorf("rule C17: %d Jobs are left", left)
			}
		})
	}
}
