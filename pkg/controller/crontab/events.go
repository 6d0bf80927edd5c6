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
	"fmt"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

// Reasons of the events about a CronTab, beside those that repeat a reason of its
// Ready condition.
const (
	eventCreated   = "Created"
	eventReplaced  = "Replaced"
	eventMissed    = "MissedRuns"
	eventCompleted = "JobCompleted"
	eventFailed    = "JobFailed"
)

// eventsOf returns what is to be told once the status is stored; what led to no
// change of the status was told before.
func eventsOf(seen observation, d decision, done outcome, status *alphav1.CronTabStatus) []*controller.Event {
	var events []*controller.Event
	if done.replaced {
		for _, job := range d.replace {
			events = append(events, &controller.Event{Type: corev1.EventTypeNormal, Reason: eventReplaced, Message: fmt.Sprintf("deleted Job %q, which was under way when the next run was due", job.Name)})
		}
	}
	for _, job := range jobsAfter(seen, d, done) {
		if due, ok := untold(seen.cronTab, status, job); ok {
			events = append(events, &controller.Event{Type: corev1.EventTypeNormal, Reason: eventCreated, Message: fmt.Sprintf("created Job %q for the run due at %s", job.Name, due.In(d.zone()).Format(time.RFC3339))})
		}
		if told := endOf(seen.cronTab, status, job); told != nil {
			events = append(events, told)
		}
	}
	for _, skipped := range d.skipped {
		reason := eventMissed
		if skipped.reason == alphav1.ReasonMissedDeadline || skipped.reason == alphav1.ReasonJobNameTaken {
			reason = skipped.reason
		}
		events = append(events, &controller.Event{Type: corev1.EventTypeWarning, Reason: reason, Message: describeSkip(seen.cronTab, skipped)})
	}
	if told := transitionOf(&seen.cronTab.Status, status); told != nil {
		events = append(events, told)
	}
	return events
}

// untold returns when the run was due whose Job it is, if the new status tells of it and
// the old one did not: whoever created it, nobody else will tell.
func untold(cronTab *alphav1.CronTab, status *alphav1.CronTabStatus, job *batchv1.Job) (due time.Time, ok bool) {
	due = dueTime(cronTab.Name, job.Name)
	return due, due.After(timeOf(cronTab.Status.LastScheduleTime)) && !due.After(timeOf(status.LastScheduleTime))
}

// endOf returns the event for a Job that has ended since the old status listed it as
// active, or before only the new one tells of its run; else nil.
func endOf(cronTab *alphav1.CronTab, status *alphav1.CronTabStatus, job *batchv1.Job) *controller.Event {
	_, isNew := untold(cronTab, status, job)
	wasActive := slices.ContainsFunc(cronTab.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == job.UID })
	switch {
	case !wasActive && !isNew:
		return nil
	case resultOf(job) == result(batchv1.JobComplete):
		return &controller.Event{Type: corev1.EventTypeNormal, Reason: eventCompleted, Message: fmt.Sprintf("Job %q is complete", job.Name)}
	case resultOf(job) == result(batchv1.JobFailed):
		return &controller.Event{Type: corev1.EventTypeWarning, Reason: eventFailed, Message: fmt.Sprintf("Job %q has failed", job.Name)}
	}
	return nil
}

// transitionOf returns the event that goes with a Ready condition that has become
// worse, or nil. Runs that were given up have events of their own.
func transitionOf(old, new *alphav1.CronTabStatus) *controller.Event {
	was := meta.FindStatusCondition(old.Conditions, alphav1.CronTabReady)
	is := meta.FindStatusCondition(new.Conditions, alphav1.CronTabReady)
	if was != nil && was.Reason == is.Reason && (was.Message == is.Message || was.ObservedGeneration == is.ObservedGeneration) {
		return nil
	}
	switch is.Reason {
	case alphav1.ReasonInvalidSchedule, alphav1.ReasonUnknownTimeZone, alphav1.ReasonNeverDue, alphav1.ReasonClockBehind, alphav1.ReasonJobRejected:
		return &controller.Event{Type: corev1.EventTypeWarning, Reason: is.Reason, Message: is.Message}
	}
	return nil
}
