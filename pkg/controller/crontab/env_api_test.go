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
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/record"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

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
	if e.current.cached != e.cronTab {
		e.violation("rule C7: %s is created for a CronTab that is out of date", job.Name)
	}
	isManual := job.Annotations[alphav1.InstantiateAnnotation] == alphav1.InstantiateManual
	if observed := e.cronTab.Status.ObservedSchedule; !dryRun && !isManual && (observed == nil || changed(*observed, observe(e.cronTab, specified(e.cronTab, e.now()), settledUntil(e.cronTab)))) {
		e.violation("rule C13: %s is created before the status records the schedule", job.Name)
	}
	switch {
	case e.refuse != nil:
		if !dryRun {
			e.writes++
		}
		return nil, e.refuse
	case e.jobs[job.Name] != nil:
		if job.Name != e.behind && !dryRun {
			e.violation("rule C7: %s is there already", job.Name)
		}
		return nil, apierrors.NewAlreadyExists(jobsGroup, job.Name)
	case dryRun:
		return job, nil
	}
	due, err := time.Parse(time.RFC3339, job.Annotations[alphav1.ScheduledTimeAnnotation])
	if err != nil {
		e.violation("rule C7: %s does not say when its run was due: %v", job.Name, err)
	}
	if limit := e.cronTab.Spec.JobOptions.BackoffLimit; !ptr.Equal(job.Spec.BackoffLimit, limit) {
		e.violation("rule C7: %s has the backoffLimit %d, and the CronTab %d", job.Name, ptr.Deref(job.Spec.BackoffLimit, -1), ptr.Deref(limit, -1))
	}
	err = e.write(func() {
		if isManual {
			e.checkManualStart(due)
		} else {
			e.checkStart(due)
		}
		e.storeJob(job, func(job *batchv1.Job) {
			job.UID = types.UID(fmt.Sprintf("uid-%s-%d", job.Name, e.writes))
			job.CreationTimestamp = metav1.NewTime(e.now().Truncate(time.Second))
			e.creator[job.UID] = e.process
		})
		e.jobEvents++
	})
	return e.jobs[job.Name], err
}

// checkManualStart checks that the run that a user asked for may be started now.
func (e *env) checkManualStart(at time.Time) {
	e.asked[at.Unix()]++
	switch {
	case e.asked[at.Unix()] > 1:
		e.violation("rule C22: the run asked for at %v is started twice", at)
	case e.now().Before(at):
		e.violation("rule C22: the run asked for at %v is started before", at)
	case e.cronTab.Annotations[alphav1.RunAtAnnotation] != at.UTC().Format(time.RFC3339):
		e.violation("rule C22: the run asked for at %v is started for the annotation %v", at, e.cronTab.Annotations)
	}
	e.checkConcurrency("asked for", at)
}

// checkConcurrency checks that the policy allows to start a run.
func (e *env) checkConcurrency(which string, at time.Time) {
	running := activeJobs(e.owned())
	switch policy := e.cronTab.Spec.ConcurrencyPolicy; {
	case policy == alphav1.ForbidConcurrent && len(running) > 0:
		e.violation("rule C10: the run %s at %v is started beside %s", which, at, running[0].Name)
	case policy == alphav1.ReplaceConcurrent && len(running) > 0:
		e.violation("rule C11: the run %s at %v is started before %s is deleted", which, at, running[0].Name)
	}
}

// checkStart checks that the run may be started now.
func (e *env) checkStart(due time.Time) {
	spec := &e.cronTab.Spec
	lateness := e.now().Sub(due.Add(offsetOf(e.cronTab)))
	e.late = max(e.late, lateness)
	e.started[due.Unix()]++
	e.checkConcurrency("due", due)
	switch {
	case e.started[due.Unix()] > 1:
		e.violation("rule C7: the run due at %v is started twice", due)
	case lateness < 0:
		e.violation("rule C6: the run due at %v is started before", due)
	case spec.StartingDeadlineSeconds != nil && int64(lateness/time.Second) > *spec.StartingDeadlineSeconds:
		e.violation("rule C9: the run due at %v is started too late", due)
	case ptr.Deref(spec.Suspend, false):
		e.violation("rule C12: the run due at %v is started while suspended", due)
	}
}

func (e *env) deleteJob(action clienttesting.DeleteActionImpl) error {
	job, preconditions := e.jobs[action.GetName()], action.GetDeleteOptions().Preconditions
	switch {
	case job == nil:
		return errNotFound()
	case *preconditions.UID != job.UID || *preconditions.ResourceVersion != job.ResourceVersion:
		return errConflict()
	}
	return e.write(func() {
		e.checkDelete(job)
		e.jobEvents++
		e.version++
		delete(e.jobs, job.Name)
	})
}

// checkDelete checks that the Job may be deleted: to be replaced, or because the history
// is too long. The status that the controller saw must record the Job: nothing else shows
// when the run of a deleted Job was due.
func (e *env) checkDelete(job *batchv1.Job) {
	spec, status := &e.cronTab.Spec, &e.current.cached.Status
	due, completed := dueTime(e.cronTab, job), job.Status.CompletionTime
	kept, limit := e.finished(resultOf(job))
	isActive := resultOf(job) == unfinished
	e.current.replaced = e.current.replaced || isActive
	switch {
	case !owns(e.cronTab, job):
		e.violation("rule C14: %s is deleted, which the CronTab does not control", job.Name)
	case due.After(timeOf(status.LastScheduleTime)) || manualTime(e.cronTab, job).After(timeOf(status.LastManualTime)):
		e.violation("rules C11 and C17: %s is deleted before the status records it", job.Name)
	case completed != nil && completed.After(timeOf(status.LastSuccessfulTime)):
		e.violation("rule C17: %s is deleted before the status records its success", job.Name)
	case failureTime(job).After(timeOf(status.LastFailedTime)):
		e.violation("rule C17: %s is deleted before the status records its failure", job.Name)
	case isActive && spec.ConcurrencyPolicy != alphav1.ReplaceConcurrent:
		e.violation("rule C17: %s is deleted, which is under way", job.Name)
	case isActive && e.refuse != nil && !isInconclusive(e.refuse):
		e.violation("rule C11: %s is deleted for a run that the API server refuses: %v", job.Name, e.refuse)
	case !isActive && kept <= limit:
		e.violation("rule C17: %s is deleted, with %d in the history and a limit of %d", job.Name, kept, limit)
	}
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
	old := &e.cronTab.Status
	for name, times := range map[string][2]*metav1.Time{
		"lastScheduleTime":   {old.LastScheduleTime, status.LastScheduleTime},
		"lastMissedTime":     {old.LastMissedTime, status.LastMissedTime},
		"lastManualTime":     {old.LastManualTime, status.LastManualTime},
		"lastSuccessfulTime": {old.LastSuccessfulTime, status.LastSuccessfulTime},
		"lastFailedTime":     {old.LastFailedTime, status.LastFailedTime},
	} {
		if times[0] != nil && times[1].Before(times[0]) {
			e.violation("rule C18: %s goes back from %v to %v", name, times[0], times[1])
		}
	}
	observed := *status.ObservedSchedule
	e.current.stored, e.current.formerEpoch = true, len(e.epochs)-1
	if former := e.current.formerEpoch; former < 0 || changed(e.epochs[former].schedule, observed) || !observed.Since.Equal(&e.epochs[former].schedule.Since) {
		e.epochs = append(e.epochs, epoch{observed, later(observed.Since.Time, settledUntil(e.cronTab))})
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
	if !e.current.stored {
		e.violation("rule C19: an event without a change of the status: %s %s", reason, message)
	}
	switch reason {
	case eventMissed, alphav1.ReasonMissedDeadline, alphav1.ReasonJobNameTaken:
		e.addMissed(reason, message)
	case eventCompleted, eventFailed:
		if e.events[message]++; e.events[message] > 1 {
			e.violation("rule C19: the event %q is sent twice", message)
		}
	}
}

// Eventf implements record.EventRecorder, for the events of writes.
func (r eventChecker) Eventf(_ runtime.Object, _, _, format string, args ...any) {
	e := r.env
	message := fmt.Sprintf(format, args...)
	if e.events[message]++; e.events[message] > 1 {
		e.violation("rule C19: the event %q is sent twice", message)
	}
}

// runsPattern matches what describeRuns returns.
var runsPattern = regexp.MustCompile(`(?:the run due at|(more than )?(\d+) runs due from) ([0-9TZ:-]+)(?: to ([0-9TZ:-]+))?`)

// addMissed adds the runs of an event that says which were missed, and why.
func (e *env) addMissed(reason, message string) {
	match := runsPattern.FindStringSubmatch(message)
	if match == nil {
		e.violation("rule C19: no runs are named in %q", message)
		return
	}
	runs := reportedRuns{missedRuns{reason: reason, count: 1}, len(e.epochs) - 1}
	if match[2] != "" {
		runs.count, _ = strconv.Atoi(match[2])
	}
	if match[1] != "" {
		runs.count++
	}
	first, errFirst := time.Parse(time.RFC3339, match[3])
	latest, errLatest := first, error(nil)
	if match[4] != "" {
		latest, errLatest = time.Parse(time.RFC3339, match[4])
	}
	if err := errors.Join(errFirst, errLatest); err != nil {
		e.violation("rule C19: %q: %v", message, err)
	}
	runs.first, runs.latest = first, latest
	for missedReason, why := range whyMissed {
		if strings.HasSuffix(message, "; "+why) {
			runs.reason = missedReason
		}
	}
	if runs.reason == missedChanged {
		runs.epoch = e.current.formerEpoch
	}
	e.missed = append(e.missed, runs)
}
