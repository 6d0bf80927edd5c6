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
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

const (
	// maxActive bounds the list of active Jobs in the status.
	maxActive = 100
	// maxReason bounds what is repeated of the API server's words.
	maxReason = 4096
)

// outcome is what became of a decision.
type outcome struct {
	// replaced says that the Jobs to be replaced are deleted.
	replaced bool
	// created is the API server's answer to the creation of the Job, nil if it was not
	// created.
	created *batchv1.Job
	// rejected is the API server's final no, nil if it gave none.
	rejected error
}

// newStatus returns the status that follows from what was found, decided and done.
// What is not ours in the present status, conditions of other types above all, is
// kept.
func newStatus(seen observation, d decision, done outcome) alphav1.CronTabStatus {
	cronTab := seen.cronTab
	status := *cronTab.Status.DeepCopy()
	status.ObservedGeneration = cronTab.Generation
	status.ObservedSchedule = &d.observed

	status.LastScheduleTime = laterOf(status.LastScheduleTime, d.started)
	if done.created != nil {
		status.LastScheduleTime = laterOf(status.LastScheduleTime, d.due)
	}
	for _, skipped := range d.skipped {
		status.LastMissedTime = laterOf(status.LastMissedTime, skipped.latest)
	}
	status.NextScheduleTime = laterOf(nil, d.next)

	jobs := jobsAfter(seen, d, done)
	for _, job := range jobs {
		if completed := job.Status.CompletionTime; completed != nil {
			status.LastSuccessfulTime = laterOf(status.LastSuccessfulTime, completed.Time)
		}
	}
	underWay := active(jobs)
	slices.SortFunc(underWay, byAge)
	status.ActiveCount = int32(len(underWay))
	status.Active = references(underWay[max(0, len(underWay)-maxActive):])

	ready := readyCondition(cronTab, d, done, &status)
	controller.SetReady(&status.Conditions, ready, cronTab.Generation, metav1.NewTime(seen.now.Truncate(time.Second)))
	return status
}

// laterOf returns the later of two times, nil if both are zero.
func laterOf(old *metav1.Time, new time.Time) *metav1.Time {
	if new.IsZero() || old != nil && !new.After(old.Time) {
		return old
	}
	return &metav1.Time{Time: new}
}

// jobsAfter returns the CronTab's Jobs as they are after all that was done.
func jobsAfter(seen observation, d decision, done outcome) []*batchv1.Job {
	jobs := slices.DeleteFunc(slices.Clone(seen.jobs), func(job *batchv1.Job) bool {
		return !owns(seen.cronTab, job) || done.replaced && slices.Contains(d.replace, job)
	})
	for _, job := range []*batchv1.Job{d.found, done.created} {
		if job != nil {
			jobs = append(jobs, job)
		}
	}
	return jobs
}

// references returns what the status lists of the Jobs.
func references(jobs []*batchv1.Job) []corev1.ObjectReference {
	var found []corev1.ObjectReference
	for _, job := range jobs {
		found = append(found, corev1.ObjectReference{
			APIVersion: batchv1.SchemeGroupVersion.String(), Kind: "Job", Namespace: job.Namespace, Name: job.Name, UID: job.UID,
		})
	}
	return found
}

// readyCondition returns status, reason and message of the Ready condition. The first
// that applies of: why no run is due, what became of the latest run, what became of
// the one before it as long as none was started since.
func readyCondition(cronTab *alphav1.CronTab, d decision, done outcome, status *alphav1.CronTabStatus) metav1.Condition {
	old := meta.FindStatusCondition(cronTab.Status.Conditions, alphav1.CronTabReady)
	if old == nil || startedSince(cronTab, status) {
		old = &metav1.Condition{}
	}
	wasRejected := old.Reason == alphav1.ReasonJobRejected
	switch {
	case d.problem.reason != "":
		return controller.NotReady(d.problem.reason, d.problem.message)
	case done.rejected != nil && (!wasRejected || old.ObservedGeneration != cronTab.Generation):
		return controller.NotReady(alphav1.ReasonJobRejected, describeRejection(done.rejected))
	}
	for _, skipped := range d.skipped {
		// That a refused Job is too late in the end is no news.
		if skipped.reason == alphav1.ReasonJobNameTaken || skipped.reason == alphav1.ReasonMissedDeadline && !wasRejected {
			return controller.NotReady(skipped.reason, describeSkip(cronTab, skipped))
		}
	}
	// A refusal in other words is none either: a quota's quote its current usage.
	if wasRejected || old.Reason == alphav1.ReasonMissedDeadline || old.Reason == alphav1.ReasonJobNameTaken {
		return controller.NotReady(old.Reason, old.Message)
	}
	zone := d.observed.TimeZone
	if zone == "" {
		zone = time.UTC.String()
	}
	return metav1.Condition{
		Status: metav1.ConditionTrue, Reason: alphav1.ReasonScheduled,
		Message: fmt.Sprintf("the schedule %q is followed, in the time zone %s", d.observed.Schedule, zone),
	}
}

// startedSince reports whether the new status tells of a run that the old one does
// not, or of another schedule.
func startedSince(cronTab *alphav1.CronTab, status *alphav1.CronTabStatus) bool {
	old := cronTab.Status.ObservedSchedule
	return !status.LastScheduleTime.Equal(cronTab.Status.LastScheduleTime) || old == nil || changed(*old, *status.ObservedSchedule)
}

// describeRejection repeats the API server's words and says what will happen.
func describeRejection(rejected error) string {
	reason := rejected.Error()
	if len(reason) > maxReason {
		reason = strings.ToValidUTF8(reason[:maxReason], "") + "…"
	}
	return fmt.Sprintf("the API server refused the Job: %s; it is tried again until the next run is due, and at once when the CronTab changes", reason)
}

// describeSkip says which runs were given up, and why.
func describeSkip(cronTab *alphav1.CronTab, skipped skip) string {
	switch skipped.reason {
	case alphav1.ReasonMissedDeadline:
		return fmt.Sprintf("%s was not started within spec.startingDeadlineSeconds, which is %d", describeRuns(skipped), *cronTab.Spec.StartingDeadlineSeconds)
	case alphav1.ReasonJobNameTaken:
		return fmt.Sprintf("%s was not started: its Job would be named %q, and that one is %s; later runs are not affected", describeRuns(skipped), skipped.holder.Name, describeHolder(cronTab, skipped.holder))
	}
	why := map[string]string{
		skipSuperseded:            "by the time they could be, a later run was due or started",
		skipActive:                "a former run was under way, and spec.concurrencyPolicy is Forbid",
		skipChanged:               "the schedule was changed before",
		alphav1.ReasonSuspended:   "spec.suspend was true",
		alphav1.ReasonJobRejected: "the API server refused the Job",
	}
	return fmt.Sprintf("not started: %s; %s", describeRuns(skipped), why[skipped.reason])
}

// describeRuns says how many runs they are and when they were due.
func describeRuns(skipped skip) string {
	first, latest := skipped.first.Format(time.RFC3339), skipped.latest.Format(time.RFC3339)
	switch {
	case skipped.count == 1:
		return "the run due at " + latest
	case skipped.count > maxCount:
		return fmt.Sprintf("more than %d runs due from %s to %s", maxCount, first, latest)
	}
	return fmt.Sprintf("%d runs due from %s to %s", skipped.count, first, latest)
}

// describeHolder says whose the Job is that has the name of a run's.
func describeHolder(cronTab *alphav1.CronTab, job *batchv1.Job) string {
	ref := metav1.GetControllerOfNoCopy(job)
	switch {
	case ref == nil:
		return "there without a controller"
	case ref.Kind == cronTabKind && ref.Name == cronTab.Name:
		return fmt.Sprintf("of an earlier CronTab of this name (uid %s)", ref.UID)
	}
	return fmt.Sprintf("controlled by %s %q", ref.Kind, ref.Name)
}

// describeAhead says that the clock is behind what the status tells.
func describeAhead(settled time.Time) string {
	return fmt.Sprintf("everything up to %s counts as done, and the clock of this controller shows an earlier time; runs are started after that. "+
		"If that time is wrong, remove lastScheduleTime, lastMissedTime and observedSchedule with kubectl edit --subresource=status", settled.UTC().Format(time.RFC3339))
}
