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

// Package crontab starts Jobs at the times that CronTabs ask for. docs/crontab.md has the rules.
//
// A run is a time in the schedule. It is either started or missed, and once only. The name of a run's Job is
// computed from the time when the run was due, so the API server refuses a second Job for it. The status is the
// only record: all runs up to the later of lastScheduleTime and lastMissedTime are settled. The Job is created
// before the status records it; if the status update fails, the next sync finds the Job by its name.
package crontab

import (
	"fmt"
	"math"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

const (
	// maxRequeueAfter is the longest time between two syncs of a CronTab that has runs. A timer stops while a
	// machine is suspended and does not notice that the clock was set: no run is late by more than this.
	maxRequeueAfter = time.Minute
	// maxAhead is how far the status may be ahead of the clock before the CronTab becomes
	// ClockBehind: the clocks of two machines differ a little.
	maxAhead = time.Minute
	// maxUpcoming is how many of the next runs are computed.
	maxUpcoming = 5
	// maxCount is the highest number of missed runs that are counted.
	maxCount = 100
)

// Why runs are missed, in addition to reasons of the Ready condition. whyMissed explains them.
const (
	missedSuperseded = "Superseded"
	missedActive     = "AlreadyActive"
	missedChanged    = "ScheduleChanged"
	missedUnanswered = "Unanswered"
)

// snapshot is what a sync has read: all that decide uses.
type snapshot struct {
	cronTab *alphav1.CronTab
	// jobs are the Jobs that the CronTab controls.
	jobs []*batchv1.Job
	// memory is what the process knows of the CronTab.
	memory *memory
	// jobNamed returns the cached Job of that name in the CronTab's namespace, or nil. The Job may
	// belong to another owner.
	jobNamed func(name string) *batchv1.Job
	now      time.Time
}

// decision is what a sync does about a CronTab.
type decision struct {
	// observed is the schedule that decide followed.
	observed alphav1.ObservedSchedule
	// problem is the Ready condition of a CronTab that has no runs. Its reason is "" if it has.
	problem metav1.Condition
	// replace are the Jobs to delete before start is created.
	replace []*batchv1.Job
	// start is the run whose Job is to be created, nil for none.
	start *dueRun
	// due are the runs that are neither started nor missed yet: the latest of the schedule, and the one that
	// a user asks for.
	due []dueRun
	// recordFirst says that the status has to be written before a run is started.
	recordFirst bool
	// tryNext says that the spec is new, or that the API server has refused a Job: a dry run shows
	// whether it would refuse that of the next run.
	tryNext bool
	// started are when the latest runs were due, of the schedule and (true) by annotation, that were started
	// and that the status does not record yet.
	started map[bool]time.Time
	// refused says that a Job of the schedule waits for its next try after a refusal.
	refused bool
	// asked says why the run by annotation is not started, invalid why the annotation cannot be read.
	asked, invalid string
	// missed are the runs that will not be started.
	missed []missedRuns
	// excess are the finished Jobs to delete because the history is too long.
	excess []*batchv1.Job
	// next is when the next run is due, nextStart when it is to be started: spec.splaySeconds may hold it.
	next, nextStart time.Time
	// upcoming are when the next runs are due.
	upcoming []time.Time
	// requeueAfter is when to sync again at the latest, 0 if time alone changes nothing.
	requeueAfter time.Duration
}

// zone returns the time zone of the schedule, UTC if it is unknown.
func (d *decision) zone() *time.Location {
	if zone, err := loadZone(d.observed.TimeZone); err == nil {
		return zone
	}
	return time.UTC
}

// toCreate returns the run whose Job is to be created, or tried.
func (d *decision) toCreate() dueRun {
	if d.start != nil {
		return *d.start
	}
	return dueRun{at: d.next}
}

// missedRuns are consecutive runs that were missed for the same reason, or one by annotation.
type missedRuns struct {
	reason        string
	manual        bool
	first, latest time.Time
	// count is their number; maxCount+1 if there are more than maxCount.
	count int
	// takenBy is the Job that took the name of the run's Job, for JobNameTaken.
	takenBy *batchv1.Job
}

// decide returns what to do about the CronTab now.
func decide(snap snapshot) decision {
	cronTab := snap.cronTab
	d := decision{excess: excessJobs(cronTab, snap.jobs), started: map[bool]time.Time{}}
	d.decideScheduled(snap)
	d.decideManual(snap)
	d.choose(snap)
	mustTry := cronTab.Status.ObservedGeneration != cronTab.Generation || wasRejected(cronTab)
	d.tryNext = mustTry && d.problem.Reason == "" && d.start == nil && !d.recordFirst && !d.refused && !d.waits(snap, d.toCreate())
	return d
}

// decideScheduled decides about the runs of the schedule.
func (d *decision) decideScheduled(snap snapshot) {
	cronTab, now, settled := snap.cronTab, snap.now, settledUntil(snap.cronTab)
	runs, started := d.findStarted(snap, false)
	// The schedule is followed by a clock that is behind.
	shifted := now.Add(-offsetOf(cronTab))
	desired := specified(cronTab, now)
	d.observed = observe(cronTab, desired, later(settled, started))
	if changed(d.observed, desired) && shifted.After(desired.Since.Time) {
		shifted = desired.Since.Time
	}
	settled = d.missFormerSchedule(snap, settled, runs)

	times, unreadable := read(d.observed)
	if unreadable.Reason != "" {
		d.problem = unreadable
		return
	}
	d.miss(times, settled, started, runs, missedSuperseded)
	settled = later(settled, started)
	switch {
	case ptr.Deref(cronTab.Spec.Suspend, false):
		d.problem = controller.NotReady(alphav1.ReasonSuspended, "spec.suspend is true: no run is started")
		return
	case settled.After(now.Add(maxAhead)):
		d.problem = controller.NotReady(alphav1.ReasonClockBehind, describeClockBehind(settled))
		d.lookAhead(times, settled)
		d.syncBy(now.Add(maxRequeueAfter), now)
		return
	}
	if due := times.latest(settled, shifted); !due.IsZero() {
		d.missBetween(times, settled, due.Add(-time.Second), whyLate(snap, due.Add(-time.Second)))
		d.addDue(snap, dueRun{at: due})
		// The status has to record the schedule first, or a run could be started whose schedule is unknown
		// after a restart.
		old := cronTab.Status.ObservedSchedule
		d.recordFirst = d.recordFirst || old == nil || changed(*old, d.observed)
	}
	d.lookAhead(times, later(settled, shifted))
	d.syncBy(now.Add(maxRequeueAfter), now)
	if d.next.IsZero() {
		message := fmt.Sprintf("spec.schedule %q matches no date within %d years", d.observed.Schedule, horizonYears)
		d.problem = controller.NotReady(alphav1.ReasonNeverDue, message)
	} else {
		d.nextStart = d.next.Add(now.Sub(shifted))
		d.syncBy(d.nextStart, now)
	}
	if deadline := cronTab.Spec.StartingDeadlineSeconds; deadline != nil && len(d.due) > 0 {
		// The sum with a longer deadline might overflow.
		d.syncBy(time.Unix(d.due[0].at.Unix()+min(*deadline, math.MaxInt32)+1, 0), shifted)
	}
}

// decideManual decides about the run that a user asks for. The schedule, suspend and the
// deadline do not matter to it. A time before the creation is that of a CronTab which was
// deleted and restored, except that the clocks of two machines differ a little.
func (d *decision) decideManual(snap snapshot) {
	cronTab := snap.cronTab
	_, started := d.findStarted(snap, true)
	settled := later(timeOf(cronTab.Status.LastManualTime), started)
	at, err := askedFor(cronTab)
	switch {
	case err != nil:
		d.invalid = err.Error()
	case !at.After(settled) || at.Before(cronTab.CreationTimestamp.Add(-maxAhead)):
	case at.After(snap.now):
		d.syncBy(at, snap.now)
	default:
		d.addDue(snap, dueRun{at, true})
	}
}

// addDue adds the run to those that are due, unless it is too late, or the name of its Job is taken. If it is a
// Job of the CronTab that has the name, it is older than the run (runOf).
func (d *decision) addDue(snap snapshot, due dueRun) {
	cronTab := snap.cronTab
	missed := missedRuns{manual: due.manual, first: due.at, latest: due.at, count: 1, takenBy: snap.jobNamed(due.jobName(cronTab.Name))}
	_, unanswered := snap.memory.started[due]
	// Without fractions of a second, so that a deadline of 0 seconds can be met.
	lateness := snap.now.Add(-offsetOf(cronTab)).Unix() - due.at.Unix()
	switch late := !due.manual && lateness > ptr.Deref(cronTab.Spec.StartingDeadlineSeconds, math.MaxInt64); {
	case late && unanswered:
		missed.reason = missedUnanswered
	case late && whyLate(snap, due.at) == alphav1.ReasonSuspended:
		missed.reason = alphav1.ReasonSuspended
	case late:
		missed.reason = alphav1.ReasonMissedDeadline
	case missed.takenBy != nil:
		missed.reason = alphav1.ReasonJobNameTaken
	default:
		d.due = append(d.due, due)
		return
	}
	d.missed = append(d.missed, missed)
}

// choose decides which run that is due is started: the older one, unless it waits for its next try after a
// refusal, which may go on for ever.
func (d *decision) choose(snap snapshot) {
	slices.SortStableFunc(d.due, func(a, b dueRun) int { return a.at.Compare(b.at) })
	for _, due := range d.due {
		if d.waits(snap, due) || d.start != nil || d.recordFirst {
			continue
		}
		if d.begin(snap, due); d.start == nil && !d.recordFirst && due.manual {
			active := activeJobs(snap.jobs)[0].Name
			d.asked = fmt.Sprintf("; the %s waits for the end of Job %q, since spec.concurrencyPolicy is Forbid", due.describe(time.UTC), active)
		}
	}
}

// waits reports whether the Job of the run waits for its next try after a refusal.
func (d *decision) waits(snap snapshot, due dueRun) bool {
	refused := snap.memory.refused[due.manual]
	if refused.due != due || refused.generation != snap.cronTab.Generation || !refused.until.After(snap.now) {
		return false
	}
	d.syncBy(refused.until, snap.now)
	if d.refused = d.refused || !due.manual; due.manual {
		d.asked = refused.message
	}
	return true
}

// lookAhead computes when the next runs are due.
func (d *decision) lookAhead(times schedule, after time.Time) {
	d.next = times.next(after)
	for next := d.next; !next.IsZero() && len(d.upcoming) < maxUpcoming; next = times.next(next) {
		d.upcoming = append(d.upcoming, next)
	}
}

// begin decides to create the run's Job, and to delete the Jobs that it replaces, unless the
// concurrency policy makes it wait.
func (d *decision) begin(snap snapshot, due dueRun) {
	active := activeJobs(snap.jobs)
	switch snap.cronTab.Spec.ConcurrencyPolicy {
	case alphav1.ForbidConcurrent:
		if len(active) > 0 {
			return
		}
	case alphav1.ReplaceConcurrent:
		if slices.ContainsFunc(active, func(job *batchv1.Job) bool { return !recorded(snap.cronTab, job) }) {
			// The status has to record the replaced run first: once its Job is deleted nothing
			// else shows that it was started.
			d.recordFirst = true
			return
		}
		d.replace = slices.DeleteFunc(active, func(job *batchv1.Job) bool { return job.DeletionTimestamp != nil })
	}
	d.start = &due
}

// observe returns the schedule to follow, and since when: the desired one, or the old one while a run
// of it that was due before the change is held by spec.splaySeconds.
func observe(cronTab *alphav1.CronTab, desired alphav1.ObservedSchedule, settled time.Time) alphav1.ObservedSchedule {
	old := cronTab.Status.ObservedSchedule
	if old == nil || !changed(*old, desired) || ptr.Deref(cronTab.Spec.Suspend, false) {
		return desired
	}
	times, unreadable := read(*old)
	if unreadable.Reason != "" {
		return desired
	}
	due := times.latest(settled, desired.Since.Time)
	if !due.IsZero() && due.Add(offsetOf(cronTab)).After(desired.Since.Time) {
		return *old
	}
	return desired
}

// specified returns the schedule of the spec, and since when it holds. The first one of a CronTab holds
// since the creation. A changed one holds since it was written, as far as managed fields show it.
func specified(cronTab *alphav1.CronTab, now time.Time) alphav1.ObservedSchedule {
	observed := alphav1.ObservedSchedule{Schedule: cronTab.Spec.Schedule, TimeZone: ptr.Deref(cronTab.Spec.TimeZone, ""), Since: cronTab.CreationTimestamp}
	if old := cronTab.Status.ObservedSchedule; old != nil {
		observed.Since = old.Since
		if changed(*old, observed) {
			observed.Since = metav1.NewTime(later(old.Since.Time, writtenAt(cronTab, now)))
		}
	}
	return observed
}

// changed reports whether they are different schedules.
func changed(old, new alphav1.ObservedSchedule) bool {
	return old.Schedule != new.Schedule || old.TimeZone != new.TimeZone
}

// writtenAt returns when anything but the status was last written, by the times that the API server keeps in the
// managed fields: the schedule is no newer. Without such a time it returns now.
func writtenAt(cronTab *alphav1.CronTab, now time.Time) time.Time {
	written := timeOf(lastWritten(cronTab.ManagedFields))
	if written.IsZero() || written.After(now) {
		return now.Truncate(time.Second)
	}
	return written
}

// read returns the times of a schedule, or why it cannot be read.
func read(of alphav1.ObservedSchedule) (times schedule, unreadable metav1.Condition) {
	zone, err := loadZone(of.TimeZone)
	if err != nil {
		return nil, controller.NotReady(alphav1.ReasonUnknownTimeZone, fmt.Sprintf("spec.timeZone %q: %v", of.TimeZone, err))
	}
	if times, err = parse(of.Schedule, zone, of.Since.Time); err != nil {
		return nil, controller.NotReady(alphav1.ReasonInvalidSchedule, fmt.Sprintf("spec.schedule: %v", err))
	}
	return times, unreadable
}

// settledUntil returns the time up to which, by the status, every run was started or missed, or was never due.
func settledUntil(cronTab *alphav1.CronTab) time.Time {
	since := ptr.Deref(cronTab.Status.ObservedSchedule, alphav1.ObservedSchedule{}).Since
	return later(since.Time, cronTab.CreationTimestamp.Time, timeOf(cronTab.Status.LastScheduleTime), timeOf(cronTab.Status.LastMissedTime))
}

// findStarted returns when the runs of that sort were due that were started and that the status does not record, in
// order, and the latest: its last update may have failed, or an earlier process may have recorded a run as missed
// because its cache did not show the Job. A run whose creation has had no answer for maxResend is one, and missed.
func (d *decision) findStarted(snap snapshot, manual bool) (runs []time.Time, latest time.Time) {
	cronTab := snap.cronTab
	since := timeOf(*dueRun{manual: manual}.last(&cronTab.Status))
	for _, job := range snap.jobs {
		if due := runOf(cronTab, job); due.manual == manual && due.at.After(since) && !due.at.After(snap.now) {
			runs = append(runs, due.at)
		}
	}
	var unanswered []time.Time
	for due, sent := range snap.memory.started {
		switch over := sent.Add(maxResend); {
		case due.manual != manual:
		case sent.IsZero():
			runs = append(runs, due.at)
		case snap.jobNamed(due.jobName(cronTab.Name)) != nil:
		case over.After(snap.now):
			d.syncBy(over, snap.now)
		default:
			// The status records it before another run is started: there are few.
			unanswered, d.recordFirst = append(unanswered, due.at), true
			d.missed = append(d.missed, missedRuns{reason: missedUnanswered, manual: manual, first: due.at, latest: due.at, count: 1})
		}
	}
	d.started[manual] = later(append(runs, time.Time{})...)
	runs = append(runs, unanswered...)
	slices.SortFunc(runs, time.Time.Compare)
	return runs, later(append(runs, time.Time{})...)
}

// missFormerSchedule adds the missed runs of a former schedule, and returns the time from
// which the present schedule counts.
func (d *decision) missFormerSchedule(snap snapshot, settled time.Time, runs []time.Time) time.Time {
	old := snap.cronTab.Status.ObservedSchedule
	if old == nil || !changed(*old, d.observed) {
		return settled
	}
	if times, unreadable := read(*old); unreadable.Reason == "" {
		d.miss(times, settled, d.observed.Since.Time, runs, missedChanged)
	}
	return later(settled, d.observed.Since.Time)
}

// miss adds what was due after the first time and not after the second to the missed runs,
// except the runs given, which were started.
func (d *decision) miss(times schedule, after, until time.Time, runs []time.Time, reason string) {
	for _, run := range runs {
		if run.After(after) && !run.After(until) {
			d.missBetween(times, after, run.Add(-time.Second), reason)
			after = run
		}
	}
	d.missBetween(times, after, until, reason)
}

func (d *decision) missBetween(times schedule, after, until time.Time, reason string) {
	if latest := times.latest(after, until); !latest.IsZero() {
		d.missed = append(d.missed, missedRuns{
			reason: reason, first: times.next(after), latest: latest, count: count(times, after, until, maxCount+1),
		})
	}
}

// whyLate returns why runs up to that time were not started in time.
func whyLate(snap snapshot, at time.Time) string {
	cronTab := snap.cronTab
	switch reason := controller.GetReady(cronTab.Status.Conditions).Reason; {
	case reason == alphav1.ReasonSuspended && !at.After(writtenAt(cronTab, snap.now)), reason == alphav1.ReasonJobRejected:
		return reason
	case cronTab.Spec.ConcurrencyPolicy == alphav1.ForbidConcurrent && len(activeJobs(snap.jobs)) > 0:
		return missedActive
	}
	return missedSuperseded
}

// syncBy makes the next sync come at that time, or earlier.
func (d *decision) syncBy(at, now time.Time) {
	wait := min(at.Sub(now), maxRequeueAfter)
	if d.requeueAfter != 0 {
		wait = min(wait, d.requeueAfter)
	}
	d.requeueAfter = wait
}
