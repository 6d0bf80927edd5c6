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
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

// statusAndEvents decides about the CronTab at the time, and returns the new status and the
// events for the result.
func statusAndEvents(now string, cronTab *alphav1.CronTab, jobs, others []*batchv1.Job, res result) (alphav1.CronTabStatus, []*controller.Event) {
	snap := snapshot{cronTab: cronTab, jobs: jobs, jobNamed: jobsByName(jobs, others), now: moment(now)}
	d := decide(snap)
	status := newStatus(snap, d, res)
	return status, eventsOf(snap, d, res, &status)
}

// TestNewStatusTimes: times, and the list of active Jobs.
func TestNewStatusTimes(t *testing.T) {
	created := jobAt("12:00:00")
	tests := map[string]struct {
		now          string
		cronTab      *alphav1.CronTab
		jobs, others []*batchv1.Job
		res          result
		// last, missed, next, success and failure are clocks; active is a list of them.
		last, missed, next, success, failure, active string
	}{
		"rule C18: nothing has happened": {
			now: "11:30:00", cronTab: newCronTab("", createdAt("11:10:00")), next: "12:00:00"},
		"rule C18: a run was started": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), res: result{created: created},
			last: "12:00:00", next: "13:00:00", active: "12:00:00"},
		"rule C18: a run was not started, since the API server did not answer": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"),
			last: "11:00:00", next: "13:00:00"},
		"rule C18: runs were missed and one was started": {
			now: "12:00:00", cronTab: newCronTab("09:00:00"), res: result{created: created},
			last: "12:00:00", missed: "11:00:00", next: "13:00:00", active: "12:00:00"},
		"rule C18: runs were missed and one is due": {
			now: "12:00:00", cronTab: newCronTab("09:00:00"),
			last: "09:00:00", missed: "11:00:00", next: "13:00:00"},
		"rule C18: a run that was recorded as missed before the cache showed its Job was started": {
			now: "12:30:00", cronTab: newCronTab("10:00:00", missedAt("12:00:00")), jobs: []*batchv1.Job{jobAt("11:00:00")},
			last: "11:00:00", missed: "12:00:00", next: "13:00:00", active: "11:00:00"},
		"rule C18: a time never goes back": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", missedAt("11:00:00")), jobs: []*batchv1.Job{jobAt("09:00:00")},
			last: "12:00:00", missed: "11:00:00", next: "13:00:00", active: "09:00:00"},
		"rule C18: the Job was found": {
			now: "12:00:01", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{created},
			last: "12:00:00", next: "13:00:00", active: "12:00:00"},
		"rule C18: the Job was found and has ended": {
			now: "12:00:09", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("12:00:00", complete("12:00:05"))},
			last: "12:00:00", next: "13:00:00", success: "12:00:05"},
		"rule C18: the latest success counts": {
			now: "12:30:00", cronTab: newCronTab("12:00:00"),
			jobs: []*batchv1.Job{jobAt("10:00:00", complete("12:20:00")), jobAt("11:00:00", complete("11:01:00")), jobAt("12:00:00", ended(batchv1.JobFailed))},
			last: "12:00:00", next: "13:00:00", success: "12:20:00"},
		"rule C18: the latest failure counts": {
			now: "12:30:00", cronTab: newCronTab("12:00:00"),
			jobs: []*batchv1.Job{jobAt("10:00:00", failed("12:20:00")), jobAt("11:00:00", failed("11:01:00")), jobAt("12:00:00", complete("12:01:00"))},
			last: "12:00:00", next: "13:00:00", success: "12:01:00", failure: "12:20:00"},
		"rule C18: the last failure stays when its Job is gone": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", func(c *alphav1.CronTab) { c.Status.LastFailedTime = ptr.To(stamp("12:01:00")) }),
			last: "12:00:00", next: "13:00:00", failure: "12:01:00"},
		"rule C18: the last success stays when its Job is gone": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", func(c *alphav1.CronTab) { c.Status.LastSuccessfulTime = ptr.To(stamp("12:01:00")) }),
			last: "12:00:00", next: "13:00:00", success: "12:01:00"},
		"rule C18: active Jobs are listed from the oldest": {
			now: "12:30:00", cronTab: newCronTab("12:00:00"), jobs: []*batchv1.Job{created, jobAt("10:00:00"), jobAt("09:00:00", complete("09:01:00")), jobAt("11:00:00")},
			last: "12:00:00", next: "13:00:00", success: "09:01:00", active: "10:00:00 11:00:00 12:00:00"},
		"rule C18: a replaced Job is not active": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", policy(alphav1.ReplaceConcurrent)), jobs: []*batchv1.Job{jobAt("11:00:00"), jobAt("10:00:00", jobTerminating)},
			res:  result{replaced: []*batchv1.Job{jobAt("11:00:00")}, created: created},
			last: "12:00:00", next: "13:00:00", active: "10:00:00 12:00:00"},
		"rule C18: a Job that was not replaced is active": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", policy(alphav1.ReplaceConcurrent)), jobs: []*batchv1.Job{jobAt("11:00:00")},
			last: "11:00:00", next: "13:00:00", active: "11:00:00"},
		"rule C18: Jobs of other owners are not listed": {
			now: "12:30:00", cronTab: newCronTab("12:00:00"), jobs: []*batchv1.Job{jobAt("11:00:00", ownedBy("", "", ""))},
			last: "12:00:00", next: "13:00:00"},
		"rule C18: a suspended CronTab has no next run": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", suspended), jobs: []*batchv1.Job{created},
			last: "12:00:00", active: "12:00:00"},
		"rule C18: an invalid schedule has no next run": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", schedulesAt("x")), last: "12:00:00"},
		"rule C18: the next run is not the one that waits": {
			now: "12:30:00", cronTab: newCronTab("11:00:00", policy(alphav1.ForbidConcurrent)), jobs: []*batchv1.Job{jobAt("11:00:00")},
			last: "11:00:00", next: "13:00:00", active: "11:00:00"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			test.cronTab.Generation = 7
			status, _ := statusAndEvents(test.now, test.cronTab, test.jobs, test.others, test.res)
			var active []string
			for _, ref := range status.Active {
				active = append(active, clockOf(dueTime(named("backup", ref.Name))))
			}
			for field, values := range map[string][2]string{
				"lastScheduleTime":   {test.last, clockOrNone(status.LastScheduleTime)},
				"lastMissedTime":     {test.missed, clockOrNone(status.LastMissedTime)},
				"nextScheduleTime":   {test.next, clockOrNone(status.NextScheduleTime)},
				"lastSuccessfulTime": {test.success, clockOrNone(status.LastSuccessfulTime)},
				"lastFailedTime":     {test.failure, clockOrNone(status.LastFailedTime)},
				"active":             {test.active, strings.Join(active, " ")},
			} {
				if values[0] != values[1] {
					t.Errorf("%s is %q, want %q", field, values[1], values[0])
				}
			}
			if int(status.ActiveCount) != len(active) || status.ObservedGeneration != 7 {
				t.Errorf("activeCount %d, observedGeneration %d", status.ActiveCount, status.ObservedGeneration)
			}
		})
	}
}

// TestUpcoming: the status has the times of the next runs.
func TestUpcoming(t *testing.T) {
	for sentence, test := range map[string]struct {
		now     string
		cronTab *alphav1.CronTab
		want    string
	}{
		"rule C18: five runs":                           {"12:30:00", newCronTab("12:00:00"), "13:00:00 14:00:00 15:00:00 16:00:00 17:00:00"},
		"rule C18: a run that waits is not one of them": {"12:30:00", newCronTab("11:00:00", policy(alphav1.ForbidConcurrent)), "13:00:00 14:00:00 15:00:00 16:00:00 17:00:00"},
		"rule C18: no more than the schedule has":       {"12:30:00", newCronTab("12:00:00", schedulesAt("0 0 30 2 *"), scheduled("", "20T10:30:00")), ""},
		"rule C18: none while suspended":                {"12:30:00", newCronTab("12:00:00", suspended), ""},
		"rule C20: after what counts as done":           {"12:30:00", newCronTab("14:00:00"), "15:00:00 16:00:00 17:00:00 18:00:00 19:00:00"},
	} {
		t.Run(sentence, func(t *testing.T) {
			status, _ := statusAndEvents(test.now, test.cronTab, nil, nil, result{})
			var got []string
			for _, next := range status.NextScheduleTimes {
				got = append(got, clockOf(next.Time))
			}
			differ(t, "nextScheduleTimes", test.want, strings.Join(got, " "))
		})
	}
}

func clockOrNone(at *metav1.Time) string {
	if at == nil {
		return ""
	}
	return clockOf(at.Time)
}

func TestNewStatusDetails(t *testing.T) {
	cronTab := newCronTab("", inZone("Europe/Berlin"))
	theirs := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Kept", LastTransitionTime: stamp("20T12:00:00")}
	cronTab.Status.Conditions = []metav1.Condition{theirs}
	status, _ := statusAndEvents("12:00:00", cronTab, []*batchv1.Job{jobAt("12:00:00")}, nil, result{})
	if diff := cmp.Diff(&alphav1.ObservedSchedule{Schedule: "0 * * * *", TimeZone: "Europe/Berlin", Since: cronTab.CreationTimestamp}, status.ObservedSchedule); diff != "" {
		t.Errorf("rule C18: observedSchedule (-want +got):\n%s", diff)
	}
	want := []corev1.ObjectReference{{APIVersion: "batch/v1", Kind: "Job", Namespace: "ns", Name: "backup-1795262400", UID: "uid-backup-1795262400"}}
	if diff := cmp.Diff(want, status.Active); diff != "" {
		t.Errorf("rule C18: active (-want +got):\n%s", diff)
	}
	if kept := meta.FindStatusCondition(status.Conditions, "Theirs"); kept == nil || *kept != theirs {
		t.Errorf("rule C18: the condition of another controller became %+v", kept)
	}

	var jobs []*batchv1.Job
	for minute := range 150 {
		jobs = append(jobs, jobOf(cronTab, moment("12:00:00").Add(-time.Duration(minute)*time.Minute)))
	}
	status, _ = statusAndEvents("12:00:00", newCronTab("12:00:00"), jobs, nil, result{})
	if status.ActiveCount != 150 || len(status.Active) != 100 || status.Active[99].Name != "backup-1795262400" {
		t.Errorf("rule C18: of 150 Jobs under way %d are counted and %d listed, up to %s", status.ActiveCount, len(status.Active), status.Active[99].Name)
	}
}

// TestReady: the Ready condition and the events after each result.
func TestReady(t *testing.T) {
	taken := []*batchv1.Job{jobAt("12:00:00", ownedBy("CronJob", "backup", "uid-cronjob"))}
	refused := result{rejected: errors.New("exceeded quota: q, requested: pods=1, used: pods=3, limited: pods=3")}
	started := result{created: jobAt("12:00:00")}
	tests := map[string]struct {
		now     string
		cronTab *alphav1.CronTab
		jobs    []*batchv1.Job
		others  []*batchv1.Job
		res     result
		// reason and message are those of the condition, the message in part.
		reason, message string
		// events are the reasons of all events.
		events string
	}{
		"rule C18: nothing is due": {
			now: "12:30:00", cronTab: newCronTab("12:00:00"), reason: "Scheduled", message: `the schedule "0 * * * *" is followed, in the time zone UTC`},
		"rule C18: a run was started": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), res: started, reason: "Scheduled", events: ""},
		"rule C18: the message names the time zone": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", inZone("Europe/Berlin")), reason: "Scheduled", message: "in the time zone Europe/Berlin"},
		"rule C12: suspended": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", suspended), reason: "Suspended", message: "spec.suspend is true"},
		"rule C3: a schedule that cannot be read": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", schedulesAt("0 25 * * *"), scheduled("", "20T10:30:00")), reason: "InvalidSchedule",
			message: `spec.schedule: field 2 (hour) of "0 25 * * *": end of range (25) above maximum (23): 25`, events: "InvalidSchedule"},
		"rule C3: an invalid schedule is reported once": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", schedulesAt("0 25 * * *"), scheduled("", "20T10:30:00"), readyBecause("InvalidSchedule"), func(c *alphav1.CronTab) {
				c.Status.Conditions[0].Message = `spec.schedule: field 2 (hour) of "0 25 * * *": end of range (25) above maximum (23): 25`
			}), reason: "InvalidSchedule"},
		"rule C3: another mistake in another generation is reported": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", schedulesAt("0 25 * * *"), scheduled("", "20T10:30:00"), readyBecause("InvalidSchedule"), nextGeneration), reason: "InvalidSchedule", events: "InvalidSchedule"},
		"rule C3: the same mistake in another generation is not reported again": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", schedulesAt("x"), scheduled("", "20T10:30:00"), readyBecause("InvalidSchedule"), nextGeneration, func(c *alphav1.CronTab) {
				c.Status.Conditions[0].Message = `spec.schedule: the number of fields in "x" is 1 and not five: minute, hour, day of month, month, day of week`
			}), reason: "InvalidSchedule"},
		"rule C3: a time zone that does not exist": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", inZone("Europe/Belin"), scheduled("", "20T10:30:00")), reason: "UnknownTimeZone",
			message: `spec.timeZone "Europe/Belin": unknown time zone Europe/Belin`, events: "UnknownTimeZone"},
		"rule C3: a date that does not exist": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", schedulesAt("0 0 30 2 *"), scheduled("", "20T10:30:00")), reason: "NeverDue",
			message: `"0 0 30 2 *" matches no date within 12 years`, events: "NeverDue"},
		"rule C20: the clock is behind": {
			now: "12:00:00", cronTab: newCronTab("14:00:00"), reason: "ClockBehind", message: "the status records all runs up to 2026-11-21T14:00:00Z as handled", events: "ClockBehind"},
		"rule C9: the deadline has passed": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", deadline(60)), reason: "MissedDeadline",
			message: "the run due at 2026-11-21T12:00:00Z was not started within spec.startingDeadlineSeconds, which is 60", events: "MissedDeadline"},
		"rule C9: MissedDeadline stays until a run is started": {
			now: "12:20:00", cronTab: newCronTab("11:00:00", deadline(60), missedAt("12:00:00"), readyBecause("MissedDeadline")), reason: "MissedDeadline", message: "as before"},
		"rule C22: a run that is asked for waits for an active Job": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedToday("12:10:00"), policy(alphav1.ForbidConcurrent)), jobs: []*batchv1.Job{jobAt("12:00:00")}, reason: "Scheduled",
			message: `; the run that the annotation alpha.ianlewis.org/run-at asked for at 2026-11-21T12:10:00Z waits for the end of Job "backup-1795262400", since spec.concurrencyPolicy is Forbid`},
		"rule C9: MissedDeadline ends when a run is started": {
			now: "12:00:00", cronTab: newCronTab("10:00:00", missedAt("11:00:00"), readyBecause("MissedDeadline")), res: started, reason: "Scheduled", events: ""},
		"rule C9: MissedDeadline ends if the status records no schedule": {
			now: "12:20:00", cronTab: unobserved(newCronTab("12:00:00", missedAt("11:00:00"), readyBecause("MissedDeadline"))), reason: "Scheduled"},
		"rule C9: MissedDeadline ends with another schedule": {
			now: "12:20:00", cronTab: newCronTab("11:00:00", schedulesAt("30 * * * *"), scheduled("0 * * * *", "20T10:30:00"), missedAt("12:00:00"), readyBecause("MissedDeadline")), reason: "Scheduled"},
		"rule C14: the name is taken by a Job of another controller": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: taken, reason: "JobNameTaken",
			message: `the run due at 2026-11-21T12:00:00Z was not started: the name of its Job, "backup-1795262400", is taken by a Job that is controlled by CronJob "backup"; later runs are not affected`, events: "JobNameTaken"},
		"rule C14: the message names a Job without a controller": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", ownedBy("", "", ""))}, reason: "JobNameTaken",
			message: "is taken by a Job that has no controller", events: "JobNameTaken"},
		"rule C14: the message names an earlier CronTab": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", ownedBy(cronTabGVK().Kind, "backup", "uid-earlier"))}, reason: "JobNameTaken",
			message: "is taken by a Job that belongs to an earlier CronTab of this name (uid uid-earlier)", events: "JobNameTaken"},
		"rule C14: the message names another CronTab": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", ownedBy(cronTabGVK().Kind, "other", "uid-other"))}, reason: "JobNameTaken",
			message: `is taken by a Job that is controlled by CronTab "other"`, events: "JobNameTaken"},
		"rule C14: JobNameTaken stays until a run is started": {
			now: "12:20:00", cronTab: newCronTab("11:00:00", missedAt("12:00:00"), readyBecause("JobNameTaken")), reason: "JobNameTaken", message: "as before"},
		"rule C14: JobNameTaken replaces JobRejected": {
			now: "12:00:00", cronTab: newCronTab("10:00:00", missedAt("11:00:00"), readyBecause("JobRejected")), others: taken, reason: "JobNameTaken", events: "JobNameTaken"},
		"rule C16: the Job was refused": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), res: refused, reason: "JobRejected",
			message: "the API server refused the Job: exceeded quota: q, requested: pods=1, limited: pods=3; it is tried again", events: "JobRejected"},
		"rule C16: the Job was refused after earlier ones were created": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", readyBecause("Scheduled")), res: refused, reason: "JobRejected",
			message: "exceeded quota", events: "JobRejected"},
		"rule C16: a repeated refusal with another usage of the quota changes nothing": {
			now: "12:01:00", cronTab: newCronTab("11:00:00", refusedBecause("exceeded quota: q, requested: pods=1, used: pods=22, limited: pods=3")), res: refused, reason: "JobRejected", message: "q, requested: pods=1, limited: pods=3;"},
		"rule C16: the same refusal of another generation is not reported again": {
			now: "12:01:00", cronTab: newCronTab("11:00:00", refusedBecause("exceeded quota: q, requested: pods=1, used: pods=22, limited: pods=3"), nextGeneration), res: refused, reason: "JobRejected", message: "q, requested: pods=1, limited: pods=3;"},
		"rule C16: another refusal replaces the first, and is reported": {
			now: "12:01:00", cronTab: newCronTab("11:00:00", refusedBecause("admission webhook denied it")), res: refused, reason: "JobRejected", message: "exceeded quota", events: "JobRejected"},
		"rule C16: a refusal of another generation is reported": {
			now: "12:01:00", cronTab: newCronTab("11:00:00", readyBecause("JobRejected"), nextGeneration), res: refused, reason: "JobRejected", message: "exceeded quota", events: "JobRejected"},
		"rule C16: the API server failed": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), res: result{rejected: errServer()}, reason: "JobRejected",
			message: `the API server failed: Internal error occurred: connection refused; it is tried again until the next run is due`, events: "JobRejected"},
		"rule C16: the API server will refuse the next Job": {
			now: "11:40:00", cronTab: newCronTab("11:00:00", nextGeneration), res: result{tried: true, rejected: errInvalid()}, reason: "JobRejected",
			message: `the API server will refuse the Job of the next run: Job.batch "backup" is invalid: spec.template.spec.containers[0].image: Required value; it is tried again every 5 minutes at least`, events: "JobRejected"},
		"rule C16: a long message of a refusal is cut": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), res: result{rejected: errors.New(strings.Repeat("é", 5000))}, reason: "JobRejected", message: "é…; it is tried again", events: "JobRejected"},
		"rule C16: a message of the maximum length is not cut": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), res: result{rejected: errors.New(strings.Repeat("x", 4096))}, reason: "JobRejected", message: "x; it is tried again", events: "JobRejected"},
		"rule C16: a failed request after a refusal changes nothing": {
			now: "12:01:00", cronTab: newCronTab("11:00:00", readyBecause("JobRejected")), reason: "JobRejected", message: "as before"},
		"rule C16: JobRejected stays when the deadline has passed": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", deadline(60), readyBecause("JobRejected")), reason: "JobRejected", message: "as before", events: "MissedDeadline"},
		"rule C16: JobRejected ends when a run is started": {
			now: "12:01:00", cronTab: newCronTab("11:00:00", readyBecause("JobRejected")), res: started, reason: "Scheduled", events: ""},
		"rule C8: superseded runs are reported and the CronTab stays ready": {
			now: "12:00:00", cronTab: newCronTab("09:00:00"), res: started, reason: "Scheduled", events: "MissedRuns"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			status, events := statusAndEvents(test.now, test.cronTab, test.jobs, test.others, test.res)
			ready := meta.FindStatusCondition(status.Conditions, alphav1.CronTabReady)
			if ready.Reason != test.reason || (ready.Status == metav1.ConditionTrue) != (test.reason == "Scheduled") || !strings.Contains(ready.Message, test.message) {
				t.Errorf("Ready is %s %s %q, want %s %q", ready.Status, ready.Reason, ready.Message, test.reason, test.message)
			}
			if ready.ObservedGeneration != test.cronTab.Generation || len(ready.Message) > 32768 {
				t.Errorf("generation %d, a message of %d bytes", ready.ObservedGeneration, len(ready.Message))
			}
			since := moment(test.now)
			if old := meta.FindStatusCondition(test.cronTab.Status.Conditions, alphav1.CronTabReady); old != nil && old.Status == ready.Status {
				since = old.LastTransitionTime.Time
			}
			if !ready.LastTransitionTime.Time.Equal(since) {
				t.Errorf("the last transition was at %v, want %v", ready.LastTransitionTime, since)
			}
			var got []string
			for _, event := range events {
				got = append(got, event.Reason)
			}
			if diff := cmp.Diff(test.events, strings.Join(got, " ")); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
			checkSteady(t, test.now, test.cronTab, test.jobs, test.others, test.res, status)
		})
	}
}

func unobserved(cronTab *alphav1.CronTab) *alphav1.CronTab {
	cronTab.Status.ObservedSchedule = nil
	return cronTab
}

// refusedBecause sets the condition that a refusal with that message leaves.
func refusedBecause(message string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		readyBecause(alphav1.ReasonJobRejected)(cronTab)
		cronTab.Status.Conditions[0].Message = describeRejection(result{rejected: errors.New(message)})
	}
}

func nextGeneration(cronTab *alphav1.CronTab) { cronTab.Generation++ }

// checkSteady checks that a second later, with the status stored and the same refusal,
// neither the status changes nor are there events.
func checkSteady(t *testing.T, now string, cronTab *alphav1.CronTab, jobs, others []*batchv1.Job, res result, status alphav1.CronTabStatus) {
	t.Helper()
	stored := cronTab.DeepCopy()
	stored.Status = status
	if res.created != nil {
		jobs = append(slices.Clone(jobs), res.created)
	}
	snap := snapshot{cronTab: stored, jobs: jobs, jobNamed: jobsByName(jobs, others), now: moment(now).Add(time.Second)}
	d, repeated := decide(snap), result{rejected: res.rejected}
	if res.tried {
		// The next run is tried once.
		repeated = result{}
	}
	again := newStatus(snap, d, repeated)
	if !equality.Semantic.DeepEqual(status, again) {
		t.Errorf("rule C21: a second later the status changes:\n%s", cmp.Diff(status, again))
	}
	if events := eventsOf(snap, d, repeated, &again); len(events) > 0 {
		t.Errorf("rule C21: a second later there are events: %v", events)
	}
}
