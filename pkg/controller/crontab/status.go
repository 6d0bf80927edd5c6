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
	"fmt"
	"slices"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

// maxActive bounds the list of active Jobs in the status.
const maxActive = 100

// Reasons of Normal events.
const (
	// eventCompleted says that a Job has completed.
	eventCompleted = "JobCompleted"
)

// Reasons of Warning events, beside those of conditions.
const (
	// eventMissed says that the controller did not start runs that were due.
	eventMissed = "MissedRuns"
	// eventFailed says that a Job has failed.
	eventFailed = "JobFailed"
	// eventLate says that the Late condition became True.
	eventLate = "Late"
)

// result is what happened to a decision.
type result struct {
	// replaced are the Jobs that were deleted for the run.
	replaced []*batchv1.Job
	// created is the API server's answer to the creation of the Job, nil if it was not created.
	created *batchv1.Job
	// rejected is why the API server did not create the Job, or not with its owner, nil if it did.
	rejected error
	// tried says that no run was due, and that a dry run showed whether the API server would
	// create the Job of the next one. If not, rejected is the answer.
	tried bool
	// retryAfter is how long not to try again, if the answer was none.
	retryAfter time.Duration
}

// newStatus returns the status after a sync. It keeps what other controllers have written,
// such as conditions of other types.
func newStatus(snap snapshot, d decision, res result) alphav1.CronTabStatus {
	cronTab := snap.cronTab
	status := *cronTab.Status.DeepCopy()
	status.ObservedGeneration = cronTab.Generation
	status.ObservedSchedule = &d.observed

	status.LastScheduleTime = laterOf(status.LastScheduleTime, d.started[false])
	status.LastManualTime = laterOf(status.LastManualTime, d.started[true])
	for _, missed := range d.missed {
		last := &status.LastMissedTime
		if missed.manual {
			last = &status.LastManualTime
		}
		*last = laterOf(*last, missed.latest)
	}
	status.NextScheduleTime, status.NextScheduleTimes = laterOf(nil, d.next), nil
	for _, next := range d.upcoming {
		status.NextScheduleTimes = append(status.NextScheduleTimes, metav1.NewTime(next))
	}

	jobs := jobsAfter(snap, res)
	for _, job := range jobs {
		status.LastSuccessfulTime = laterOf(status.LastSuccessfulTime, timeOf(job.Status.CompletionTime))
		status.LastFailedTime = laterOf(status.LastFailedTime, failureTime(job))
	}
	active := activeJobs(jobs)
	slices.SortFunc(active, byAge)
	status.ActiveCount = int32(len(active))
	status.Active = references(active[max(0, len(active)-maxActive):])

	ready := readyCondition(cronTab, d, res)
	ready.Message += d.asked
	controller.SetReady(&status.Conditions, ready, cronTab.Generation, metav1.NewTime(snap.now.Truncate(time.Second)))
	setLate(cronTab, &status, snap.now)
	return status
}

// laterOf returns the later of two times, nil if both are zero.
func laterOf(old *metav1.Time, new time.Time) *metav1.Time {
	if new.IsZero() || old != nil && !new.After(old.Time) {
		return old
	}
	return &metav1.Time{Time: new}
}

// jobsAfter returns the CronTab's Jobs after the sync's writes.
func jobsAfter(snap snapshot, res result) []*batchv1.Job {
	jobs := slices.Clone(snap.jobs)
	if res.created != nil && owns(snap.cronTab, res.created) {
		jobs = append(jobs, res.created)
	}
	return slices.DeleteFunc(jobs, func(job *batchv1.Job) bool { return slices.Contains(res.replaced, job) })
}

// references returns the entries of status.active for the Jobs.
func references(jobs []*batchv1.Job) []corev1.ObjectReference {
	var refs []corev1.ObjectReference
	for _, job := range jobs {
		refs = append(refs, corev1.ObjectReference{
			APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Namespace: job.Namespace, Name: job.Name, UID: job.UID,
		})
	}
	return refs
}

// readyCondition returns status, reason and message of the Ready condition. The first that applies wins: why a Job
// was refused, why the CronTab has no runs, what happened to the latest run, what happened to an earlier one if none
// was started since, what is wrong about the annotation.
func readyCondition(cronTab *alphav1.CronTab, d decision, res result) metav1.Condition {
	old := controller.GetReady(cronTab.Status.Conditions)
	// newStatus adds anew what is said of the run by annotation.
	old.Message, _, _ = strings.Cut(old.Message, "; the run that the annotation ")
	observed := cronTab.Status.ObservedSchedule
	started := !d.started[false].IsZero() || !d.started[true].IsZero() || observed == nil || changed(*observed, d.observed)
	if started || res.tried && old.Reason == alphav1.ReasonJobRejected {
		old = metav1.Condition{}
	}
	stillRejected := old.Reason == alphav1.ReasonJobRejected
	switch {
	case res.rejected != nil && !d.toCreate().manual:
		return controller.NotReady(alphav1.ReasonJobRejected, describeRejection(res))
	case d.problem.Reason == alphav1.ReasonSuspended && d.invalid != "":
		return controller.NotReady(alphav1.ReasonInvalidRunAt, d.invalid)
	case d.problem.Reason != "":
		return controller.NotReady(d.problem.Reason, d.problem.Message)
	}
	for _, missed := range d.missed {
		// The refusal stays the reason when the deadline of a refused Job has passed.
		if missed.reason == alphav1.ReasonJobNameTaken && !missed.manual || missed.reason == alphav1.ReasonMissedDeadline && !stillRejected {
			return controller.NotReady(missed.reason, describeMissed(cronTab, missed))
		}
	}
	if stillRejected || old.Reason == alphav1.ReasonMissedDeadline || old.Reason == alphav1.ReasonJobNameTaken {
		return controller.NotReady(old.Reason, old.Message)
	}
	if d.invalid != "" {
		return controller.NotReady(alphav1.ReasonInvalidRunAt, d.invalid)
	}
	zone := cmp.Or(d.observed.TimeZone, time.UTC.String())
	message := fmt.Sprintf("the schedule %q is followed, in the time zone %s", d.observed.Schedule, zone)
	if offset := offsetOf(cronTab); offset > 0 {
		message += fmt.Sprintf("; each run is started %v after it is due", offset)
	}
	return metav1.Condition{Status: metav1.ConditionTrue, Reason: alphav1.ReasonScheduled, Message: message}
}

// eventsOf returns the events, or nil, to send after the status is stored, beside those of writes. A sync that
// does not change the status has none.
func eventsOf(snap snapshot, d decision, res result, status *alphav1.CronTabStatus) []*controller.Event {
	var events []*controller.Event
	for _, job := range jobsAfter(snap, res) {
		events = append(events, endOf(snap.cronTab, job))
	}
	for _, missed := range d.missed {
		events = append(events, missedEvent(snap.cronTab, missed))
	}
	if res.rejected != nil && d.toCreate().manual {
		events = append(events, warning(alphav1.ReasonJobRejected, strings.TrimPrefix(d.asked, "; ")))
	}
	return append(events, transitionOf(&snap.cronTab.Status, status), lateEvent(&snap.cronTab.Status, status))
}

// endOf returns the event for a Job that has ended and that the status lists as active, else nil.
func endOf(cronTab *alphav1.CronTab, job *batchv1.Job) *controller.Event {
	isSame := func(ref corev1.ObjectReference) bool { return ref.UID == job.UID }
	end := endOfJob(job).Type
	if end == unfinished || !slices.ContainsFunc(cronTab.Status.Active, isSame) {
		return nil
	}
	if end == batchv1.JobFailed {
		return warning(eventFailed, fmt.Sprintf("Job %q has failed", job.Name))
	}
	return &controller.Event{Type: corev1.EventTypeNormal, Reason: eventCompleted, Message: fmt.Sprintf("Job %q is complete", job.Name)}
}

func warning(reason, message string) *controller.Event {
	return &controller.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: message}
}

// transitionOf returns the event for a Ready condition that has become worse, or nil.
// Missed runs have events of their own.
func transitionOf(old, new *alphav1.CronTabStatus) *controller.Event {
	was, is := controller.GetReady(old.Conditions), controller.GetReady(new.Conditions)
	if !controller.IsNews(was, is) {
		return nil
	}
	switch is.Reason {
	case alphav1.ReasonInvalidSchedule, alphav1.ReasonUnknownTimeZone, alphav1.ReasonNeverDue, alphav1.ReasonClockBehind, alphav1.ReasonJobRejected, alphav1.ReasonInvalidRunAt:
		return warning(is.Reason, is.Message)
	}
	return nil
}

// missedEvent returns the event for runs that were missed.
func missedEvent(cronTab *alphav1.CronTab, missed missedRuns) *controller.Event {
	switch missed.reason {
	case alphav1.ReasonMissedDeadline, alphav1.ReasonJobNameTaken:
		return warning(missed.reason, describeMissed(cronTab, missed))
	}
	return warning(eventMissed, describeMissed(cronTab, missed))
}

// describeMissed says which runs were missed, and why.
func describeMissed(cronTab *alphav1.CronTab, missed missedRuns) string {
	switch missed.reason {
	case alphav1.ReasonMissedDeadline:
		return fmt.Sprintf("%s was not started within spec.startingDeadlineSeconds, which is %d", describeRuns(missed), *cronTab.Spec.StartingDeadlineSeconds)
	case alphav1.ReasonJobNameTaken:
		return describeTaken(cronTab, describeRuns(missed), missed.takenBy) + "; later runs are not affected"
	}
	return fmt.Sprintf("not started: %s; %s", describeRuns(missed), whyMissed[missed.reason])
}

// whyMissed explains the reasons that share the event MissedRuns.
var whyMissed = map[string]string{
	missedSuperseded:          "a later run was already due or started",
	missedActive:              "an earlier run was under way, and spec.concurrencyPolicy is Forbid",
	missedChanged:             "the schedule was changed before",
	missedUnanswered:          "it is not known whether its Job was created, and there is none; it may have run",
	alphav1.ReasonSuspended:   "spec.suspend was true",
	alphav1.ReasonJobRejected: "the API server did not create the Job",
}

// describeRuns says how many runs they are and when they were due.
func describeRuns(missed missedRuns) string {
	first, latest := missed.first.Format(time.RFC3339), missed.latest.Format(time.RFC3339)
	switch {
	case missed.count == 1:
		return "the " + dueRun{missed.latest, missed.manual}.describe(time.UTC)
	case missed.count > maxCount:
		return fmt.Sprintf("more than %d runs due from %s to %s", maxCount, first, latest)
	}
	return fmt.Sprintf("%d runs due from %s to %s", missed.count, first, latest)
}

// describeTaken says which Job took the name of the run's Job.
func describeTaken(cronTab *alphav1.CronTab, run string, job *batchv1.Job) string {
	owner, ref := "has no controller", metav1.GetControllerOfNoCopy(job)
	switch {
	case owns(cronTab, job):
		owner = "is older than the run"
	case ref != nil && ref.Kind == cronTabGVK().Kind && ref.Name == cronTab.Name:
		owner = fmt.Sprintf("belongs to an earlier CronTab of this name (uid %s)", ref.UID)
	case ref != nil:
		owner = fmt.Sprintf("is controlled by %s %q", ref.Kind, ref.Name)
	}
	return fmt.Sprintf("%s was not started: the name of its Job, %q, is taken by a Job that %s", run, job.Name, owner)
}

// describeClockBehind says that the clock is behind the times in the status. It names no command: without
// these times a run that has ended would be started again.
func describeClockBehind(settled time.Time) string {
	return fmt.Sprintf("the status records all runs up to %s as handled, and the clock of this controller is behind that time; no run is started before it. "+
		"If this clock is wrong, correct it; if that time is wrong, docs/crontab.md says how to change it", settled.UTC().Format(time.RFC3339))
}

// lateAt returns when the CronTab becomes late, the zero time if spec.successDeadlineSeconds is unset:
// that long after the last run that succeeded, or after the creation.
func lateAt(cronTab *alphav1.CronTab, status *alphav1.CronTabStatus) time.Time {
	deadline := cronTab.Spec.SuccessDeadlineSeconds
	if deadline == nil {
		return time.Time{}
	}
	since := later(cronTab.CreationTimestamp.Time, timeOf(status.LastSuccessfulTime))
	return time.Unix(since.Unix()+*deadline+1, 0)
}

// setLate sets the Late condition of the new status, or removes it.
func setLate(cronTab *alphav1.CronTab, status *alphav1.CronTabStatus, now time.Time) {
	at := lateAt(cronTab, status)
	if at.IsZero() {
		meta.RemoveStatusCondition(&status.Conditions, alphav1.CronTabLate)
		return
	}
	late := metav1.Condition{
		Type: alphav1.CronTabLate, Status: metav1.ConditionFalse, Reason: alphav1.ReasonInTime,
		ObservedGeneration: cronTab.Generation, LastTransitionTime: metav1.NewTime(now.Truncate(time.Second)),
		Message: "the last run that succeeded, or the creation, is not longer ago than spec.successDeadlineSeconds",
	}
	if !now.Before(at) {
		since := "the creation of the CronTab"
		if success := status.LastSuccessfulTime; success != nil {
			since = success.UTC().Format(time.RFC3339)
		}
		late.Status, late.Reason = metav1.ConditionTrue, alphav1.ReasonNoSuccess
		late.Message = fmt.Sprintf("no run has succeeded since %s, and spec.successDeadlineSeconds is %d", since, *cronTab.Spec.SuccessDeadlineSeconds)
	}
	meta.SetStatusCondition(&status.Conditions, late)
}

// lateEvent returns the event for a CronTab that has become late, or nil.
func lateEvent(old, new *alphav1.CronTabStatus) *controller.Event {
	const late = alphav1.CronTabLate
	if !meta.IsStatusConditionTrue(new.Conditions, late) || meta.IsStatusConditionTrue(old.Conditions, late) {
		return nil
	}
	return warning(eventLate, meta.FindStatusCondition(new.Conditions, late).Message)
}
