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

// Package crontab starts Jobs at the times that CronTabs say. What it does, rule by
// rule, is in docs/crontab.md.
//
// Every time in a schedule ends in one of two ways. Either its run is started, once:
// its Job has a name that is computed from the time, so that the API server refuses a
// second one. Or it is given up, for a reason that is told once. What has come to an
// end is kept in the status and nowhere else: everything up to the later of
// lastScheduleTime and lastMissedTime. A Job is created before the status says so; if
// the status is not written, the Job is found again by its name.
package crontab

import (
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

const (
	// maxWake is the longest time without a look at the clock. A timer does not run
	// while a machine is suspended and takes no notice when the clock is set, so no
	// run is late by more than this. A look costs no request, and 25 µs.
	maxWake = time.Minute
	// maxAhead is how far status may be ahead of the clock without a complaint: the
	// clocks of two machines differ a little.
	maxAhead = time.Minute
	// maxCount is where the counting of runs that were given up ends.
	maxCount = 100
)

// Why a run is given up, beside reasons of the Ready condition.
const (
	// skipSuperseded: only the latest run that was due is made up for.
	skipSuperseded = "Superseded"
	// skipActive: a former run was under way, and the policy is Forbid.
	skipActive = "AlreadyActive"
	// skipChanged: the schedule was changed before it was started.
	skipChanged = "ScheduleChanged"
)

// observation is what a sync found, all that a decision is made from.
type observation struct {
	cronTab *alphav1.CronTab
	// jobs are the Jobs that the CronTab controls. Others among them are ignored.
	jobs []*batchv1.Job
	// named returns the Job of that name in the CronTab's namespace, whoever controls
	// it, or nil. After the API server has said AlreadyExists it returns what is there.
	named func(name string) *batchv1.Job
	now   time.Time
}

// decision is what a sync does about a CronTab.
type decision struct {
	// observed is the schedule that was followed.
	observed alphav1.ObservedSchedule
	// problem is why no run is due, with reason "" if runs are.
	problem problem
	// replace are the Jobs to delete before start is created.
	replace []*batchv1.Job
	// start is the Job to create, nil if there is none.
	start *batchv1.Job
	// due is when the latest run was due that is not yet started or given up.
	due time.Time
	// started is when the latest run was due that has a Job which the status does not
	// know of.
	started time.Time
	// found is the Job of that run if it was not among the CronTab's, but had the name.
	found *batchv1.Job
	// skipped are the runs that are given up.
	skipped []skip
	// trim are the Jobs to delete because the history is long enough.
	trim []*batchv1.Job
	// next is when the next run is due.
	next time.Time
	// wake is when to look again at the latest, 0 if the clock changes nothing.
	wake time.Duration
}

// zone returns the time zone of the schedule, UTC if there is no such zone.
func (d *decision) zone() *time.Location {
	if zone, err := loadZone(d.observed.TimeZone); err == nil {
		return zone
	}
	return time.UTC
}

// problem is a reason of the Ready condition, and a message.
type problem struct {
	reason, message string
}

// skip is a number of runs that are given up for one reason.
type skip struct {
	reason        string
	first, latest time.Time
	// count is their number; maxCount+1 if there are more than maxCount.
	count int
	// holder is the Job that has the name, for JobNameTaken.
	holder *batchv1.Job
}

// decide returns what to do about the CronTab now.
func decide(seen observation) decision {
	cronTab, now := seen.cronTab, seen.now
	if cronTab.DeletionTimestamp != nil {
		return decision{}
	}
	seen.jobs = slices.DeleteFunc(slices.Clone(seen.jobs), func(job *batchv1.Job) bool { return !owns(cronTab, job) })
	d := decision{observed: observe(cronTab, now), trim: expired(cronTab, seen.jobs)}
	settled := settledUntil(cronTab)
	runs := startedRuns(seen, settled)
	// A run may have been given up because a cache did not show its Job. It was started
	// all the same.
	if untold := startedRuns(seen, later(cronTab.CreationTimestamp.Time, timeOf(cronTab.Status.LastScheduleTime))); len(untold) > 0 {
		d.started = untold[len(untold)-1]
	}
	settled = d.giveUpFormer(cronTab, settled, runs)

	times, zone, unreadable := read(d.observed)
	if unreadable.reason != "" {
		d.problem = unreadable
		return d
	}
	d.giveUp(times, settled, d.started, runs, skipSuperseded)
	settled = later(settled, d.started)
	switch {
	case ptr.Deref(cronTab.Spec.Suspend, false):
		d.problem = problem{alphav1.ReasonSuspended, "spec.suspend is true: no run is started"}
		return d
	case settled.After(now.Add(maxAhead)):
		d.problem = problem{alphav1.ReasonClockBehind, describeAhead(settled)}
		d.next, d.wake = times.next(settled), maxWake
		return d
	}
	if due := times.latest(settled, now); !due.IsZero() {
		d.giveUpBetween(times, settled, due.Add(-time.Second), whyLate(seen))
		d.decideDue(seen, due, zone)
	}
	d.next = times.next(later(settled, now))
	if d.next.IsZero() {
		d.problem = problem{alphav1.ReasonNeverDue, fmt.Sprintf("spec.schedule %q names no date that there is within %d years", d.observed.Schedule, horizonYears)}
	}
	d.wake = d.nextLook(cronTab, now)
	return d
}

// decideDue starts the latest run that is due, or gives it up, or waits with it.
func (d *decision) decideDue(seen observation, due time.Time, zone *time.Location) {
	cronTab := seen.cronTab
	holder := seen.named(jobName(cronTab.Name, due))
	underWay := active(seen.jobs)
	switch {
	case holder != nil && owns(cronTab, holder):
		d.started, d.found = due, holder
	case tooLate(cronTab, due, seen.now):
		d.skipped = append(d.skipped, skip{reason: alphav1.ReasonMissedDeadline, first: due, latest: due, count: 1})
	case holder != nil:
		d.skipped = append(d.skipped, skip{reason: alphav1.ReasonJobNameTaken, first: due, latest: due, count: 1, holder: holder})
	case cronTab.Status.ObservedSchedule == nil || changed(*cronTab.Status.ObservedSchedule, d.observed):
		// First the status has to tell of the schedule, or a run could be started of
		// which nobody knows what it was due by. Its being written wakes us.
		d.due = due
	case cronTab.Spec.ConcurrencyPolicy == alphav1.ForbidConcurrent && len(underWay) > 0:
		d.due = due
	case cronTab.Spec.ConcurrencyPolicy == alphav1.ReplaceConcurrent && slices.ContainsFunc(underWay, func(job *batchv1.Job) bool { return !recorded(cronTab, job) }):
		// First the status has to tell of the run that is replaced: nothing else will.
		d.due = due
	default:
		d.due = due
		d.start = newJob(cronTab, due, zone)
		if cronTab.Spec.ConcurrencyPolicy == alphav1.ReplaceConcurrent {
			d.replace = slices.DeleteFunc(underWay, func(job *batchv1.Job) bool { return job.DeletionTimestamp != nil })
		}
	}
}

// observe returns the schedule to follow, and since when. A schedule that was seen
// from the beginning holds since the CronTab exists. A new one holds since it was
// written, as far as that is known.
func observe(cronTab *alphav1.CronTab, now time.Time) alphav1.ObservedSchedule {
	seen := alphav1.ObservedSchedule{
		Schedule: cronTab.Spec.Schedule,
		TimeZone: ptr.Deref(cronTab.Spec.TimeZone, ""),
		Since:    cronTab.CreationTimestamp,
	}
	if old := cronTab.Status.ObservedSchedule; old != nil {
		seen.Since = old.Since
		if changed(*old, seen) {
			seen.Since = metav1.NewTime(later(old.Since.Time, writtenAt(cronTab, now)))
		}
	}
	return seen
}

// changed reports whether they are different schedules.
func changed(old, new alphav1.ObservedSchedule) bool {
	return old.Schedule != new.Schedule || old.TimeZone != new.TimeZone
}

// writtenAt returns when anything but the status was last written, as the API server
// has noted it: the schedule is no newer. Without such a note that is now.
func writtenAt(cronTab *alphav1.CronTab, now time.Time) time.Time {
	var written time.Time
	for _, entry := range cronTab.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil {
			written = later(written, entry.Time.Time)
		}
	}
	if written.IsZero() || written.After(now) {
		return now.Truncate(time.Second)
	}
	return written
}

// read returns the times of a schedule, and the zone it is read in.
func read(observed alphav1.ObservedSchedule) (schedule, *time.Location, problem) {
	zone, err := loadZone(observed.TimeZone)
	if err != nil {
		return nil, nil, problem{alphav1.ReasonUnknownTimeZone, fmt.Sprintf("spec.timeZone %q: %v", observed.TimeZone, err)}
	}
	times, err := parse(observed.Schedule, zone, observed.Since.Time)
	if err != nil {
		return nil, nil, problem{alphav1.ReasonInvalidSchedule, fmt.Sprintf("spec.schedule: %v", err)}
	}
	return times, zone, problem{}
}

// settledUntil returns the time up to which every run was started or given up, or
// was never due.
func settledUntil(cronTab *alphav1.CronTab) time.Time {
	settled := cronTab.CreationTimestamp.Time
	if observed := cronTab.Status.ObservedSchedule; observed != nil {
		settled = later(settled, observed.Since.Time)
	}
	settled = later(settled, timeOf(cronTab.Status.LastScheduleTime))
	return later(settled, timeOf(cronTab.Status.LastMissedTime))
}

// startedRuns returns when the runs were due that have a Job since the time, in
// order. The status may not know of them: its last write failed.
func startedRuns(seen observation, since time.Time) []time.Time {
	var runs []time.Time
	for _, job := range seen.jobs {
		if due := dueTime(seen.cronTab.Name, job.Name); due.After(since) && !due.After(seen.now) {
			runs = append(runs, due)
		}
	}
	slices.SortFunc(runs, time.Time.Compare)
	return runs
}

// giveUpFormer gives up what was due by a former schedule, and returns the time from
// which the present one counts.
func (d *decision) giveUpFormer(cronTab *alphav1.CronTab, settled time.Time, runs []time.Time) time.Time {
	old := cronTab.Status.ObservedSchedule
	if old == nil || !changed(*old, d.observed) {
		return settled
	}
	if times, _, unreadable := read(*old); unreadable.reason == "" {
		d.giveUp(times, settled, d.observed.Since.Time, runs, skipChanged)
	}
	return later(settled, d.observed.Since.Time)
}

// giveUp gives up what was due after the first time and not after the second, but for
// the runs.
func (d *decision) giveUp(times schedule, after, until time.Time, runs []time.Time, reason string) {
	for _, run := range runs {
		if run.After(after) && !run.After(until) {
			d.giveUpBetween(times, after, run.Add(-time.Second), reason)
			after = run
		}
	}
	d.giveUpBetween(times, after, until, reason)
}

func (d *decision) giveUpBetween(times schedule, after, until time.Time, reason string) {
	if latest := times.latest(after, until); !latest.IsZero() {
		d.skipped = append(d.skipped, skip{
			reason: reason, first: times.next(after), latest: latest, count: count(times, after, until, maxCount+1),
		})
	}
}

// whyLate returns why runs before the latest were not started in time.
func whyLate(seen observation) string {
	reason := ""
	if ready := meta.FindStatusCondition(seen.cronTab.Status.Conditions, alphav1.CronTabReady); ready != nil {
		reason = ready.Reason
	}
	switch {
	case reason == alphav1.ReasonSuspended || reason == alphav1.ReasonJobRejected:
		return reason
	case seen.cronTab.Spec.ConcurrencyPolicy == alphav1.ForbidConcurrent && len(active(seen.jobs)) > 0:
		return skipActive
	}
	return skipSuperseded
}

// tooLate reports whether the run may not be started any more. Parts of a second do
// not count: a deadline of 0 seconds can be met.
func tooLate(cronTab *alphav1.CronTab, due, now time.Time) bool {
	deadline := cronTab.Spec.StartingDeadlineSeconds
	return deadline != nil && now.Unix()-due.Unix() > *deadline
}

// nextLook returns how long it is until the clock changes the decision, or maxWake.
func (d *decision) nextLook(cronTab *alphav1.CronTab, now time.Time) time.Duration {
	wake := maxWake
	if !d.next.IsZero() {
		wake = min(wake, d.next.Sub(now))
	}
	if deadline := cronTab.Spec.StartingDeadlineSeconds; deadline != nil && !d.due.IsZero() {
		left := min(*deadline-(now.Unix()-d.due.Unix()), int64(maxWake/time.Second))
		wake = min(wake, now.Truncate(time.Second).Add(time.Duration(left+1)*time.Second).Sub(now))
	}
	return wake
}

// later returns the later of two times.
func later(a, b time.Time) time.Time {
	if a.After(b) {
		return a
	}
	return b
}
