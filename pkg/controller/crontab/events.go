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

// event is something worth telling.
type event struct {
	eventType, reason, message string
}

// eventsOf returns what is to be told once the status is stored; what led to no
// change of the status was told before.
func eventsOf(seen observation, d decision, done outcome, status *alphav1.CronTabStatus) []event {
	var events []event
	if done.replaced {
		for _, job := range d.replace {
			events = append(events, event{corev1.EventTypeNormal, eventReplaced, fmt.Sprintf("deleted Job %q, which was under way when the next run was due", job.Name)})
		}
	}
	if done.created != nil {
		events = append(events, event{corev1.EventTypeNormal, eventCreated, fmt.Sprintf("created Job %q for the run due at %s", done.created.Name, d.due.Format(time.RFC3339))})
	}
	for _, job := range jobsAfter(seen, d, done) {
		if told := endOf(seen.cronTab, status, job); told != nil {
			events = append(events, *told)
		}
	}
	for _, skipped := range d.skipped {
		reason := eventMissed
		if skipped.reason == alphav1.ReasonMissedDeadline || skipped.reason == alphav1.ReasonJobNameTaken {
			reason = skipped.reason
		}
		events = append(events, event{corev1.EventTypeWarning, reason, describeSkip(seen.cronTab, skipped)})
	}
	if told := transitionOf(&seen.cronTab.Status, status); told != nil {
		events = append(events, *told)
	}
	return events
}

// endOf returns the event for a Job that has ended since the old status listed it as
// active, or before only the new one tells of its run; else nil.
func endOf(cronTab *alphav1.CronTab, status *alphav1.CronTabStatus, job *batchv1.Job) *event {
	wasActive := slices.ContainsFunc(cronTab.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == job.UID })
	due := dueTime(cronTab.Name, job.Name)
	isNew := due.After(timeOf(cronTab.Status.LastScheduleTime)) && !due.After(timeOf(status.LastScheduleTime))
	switch {
	case !wasActive && !isNew:
		return nil
	case resultOf(job) == result(batchv1.JobComplete):
		return &event{corev1.EventTypeNormal, eventCompleted, fmt.Sprintf("Job %q is complete", job.Name)}
	case resultOf(job) == result(batchv1.JobFailed):
		return &event{corev1.EventTypeWarning, eventFailed, fmt.Sprintf("Job %q has failed", job.Name)}
	}
	return nil
}

// transitionOf returns the event that goes with a Ready condition that has become
// worse, or nil. Runs that were given up have events of their own.
func transitionOf(old, new *alphav1.CronTabStatus) *event {
	was := meta.FindStatusCondition(old.Conditions, alphav1.CronTabReady)
	is := meta.FindStatusCondition(new.Conditions, alphav1.CronTabReady)
	if was != nil && was.Reason == is.Reason && (was.Message == is.Message || was.ObservedGeneration == is.ObservedGeneration) {
		return nil
	}
	switch is.Reason {
	case alphav1.ReasonInvalidSchedule, alphav1.ReasonUnknownTimeZone, alphav1.ReasonNeverDue, alphav1.ReasonClockBehind, alphav1.ReasonJobRejected:
		return &event{corev1.EventTypeWarning, is.Reason, is.Message}
	}
	return nil
}
