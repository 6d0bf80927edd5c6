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
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// statusTest is a CronTab at a time, its Jobs, and what became of the decision.
type statusTest struct {
	now     string
	cronTab *alphav1.CronTab
	jobs    jobs
	res     result
	// want is the new status and, after a semicolon, the reasons of the events.
	want string
	// says is a part of the message of the condition or of an event.
	says string
}

// TestStatus: the status after a sync and its events. A second later there is nothing new.
func TestStatus(t *testing.T) {
	for _, tests := range []map[string]statusTest{statusOfRuns(), statusOfProblems(), statusOfRefusals(), statusOfJobs(), statusLate()} {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				snap := snapshotAt(test.now, test.cronTab, test.jobs)
				d := decide(snap)
				status := newStatus(snap, d, test.res)
				messages, reasons := "", ""
				for _, condition := range status.Conditions {
					messages += condition.Message + "\n"
				}
				for i, event := range eventsOf(snap, d, test.res, &status) {
					if i == 0 {
						reasons = ";"
					}
					messages += event.Message + "\n"
					reasons += strings.TrimPrefix(" "+event.Type, " Warning") + " " + event.Reason
				}
				differ(t, "status and events", test.want, describeStatus(&status)+reasons)
				if !strings.Contains(messages, test.says) {
					t.Errorf("%q is not in the messages\n%s", test.says, messages)
				}
				checkStatus(t, test.cronTab, &status)
				since, old := snap.now.Truncate(time.Second), meta.FindStatusCondition(test.cronTab.Status.Conditions, alphav1.CronTabReady)
				if ready := meta.FindStatusCondition(status.Conditions, alphav1.CronTabReady); old != nil && old.Status == ready.Status {
					since = old.LastTransitionTime.Time
				}
				differ(t, "the last transition", since, meta.FindStatusCondition(status.Conditions, alphav1.CronTabReady).LastTransitionTime.Time)
				again := test.res
				if again.tried {
					again.rejected = nil
				}
				checkAgain(t, snap, again, status, time.Second)
			})
		}
	}
}

// checkStatus checks what holds for any status.
func checkStatus(t *testing.T, cronTab *alphav1.CronTab, status *alphav1.CronTabStatus) {
	t.Helper()
	ready := meta.FindStatusCondition(status.Conditions, alphav1.CronTabReady)
	switch {
	case ready == nil:
		t.Fatal("there is no Ready condition")
	case status.ObservedGeneration != cronTab.Generation || ready.ObservedGeneration != cronTab.Generation:
		t.Errorf("generation %d, observed %d and %d", cronTab.Generation, status.ObservedGeneration, ready.ObservedGeneration)
	case !legalReason.MatchString(ready.Reason) || len(ready.Message) > 32768 || ready.LastTransitionTime.IsZero():
		t.Errorf("condition %+v", ready)
	case int(status.ActiveCount) < len(status.Active) || status.ObservedSchedule == nil:
		t.Errorf("status %+v", status)
	}
}

// checkAgain checks that a second sync after that time, with the first one's writes in the caches,
// changes nothing.
func checkAgain(t *testing.T, snap snapshot, res result, status alphav1.CronTabStatus, after time.Duration) {
	t.Helper()
	cronTab, jobs := snap.cronTab.DeepCopy(), jobsAfter(snap, res)
	cronTab.Status = status
	again := snapshotAt("12:00", cronTab, append(jobs, snap.jobs...))
	again.jobs, again.now = jobs, snap.now.Add(after)
	d := decide(again)
	if res.created != nil && d.start != nil {
		t.Errorf("rule C7: the run is started again, as %s", d.start.Name)
	}
	repeated := result{rejected: res.rejected}
	newer := newStatus(again, d, repeated)
	if !equality.Semantic.DeepEqual(status, newer) {
		t.Errorf("rule C21: the same result changes the status:\n%s", cmp.Diff(status, newer))
	}
	if events := eventsOf(again, d, repeated, &newer); len(events) > 0 {
		t.Errorf("rule C21: the same result has events: %v", events)
	}
}

// statusOfRuns: which runs were started or missed, and when the next is due.
func statusOfRuns() map[string]statusTest {
	created := result{created: run("12:00")}
	const next, active = "next=13:00 Scheduled", "next=13:00 active=1 Scheduled"
	everyMinute := runsAt("* * * * *")
	return map[string]statusTest{
		"rule C18: nothing has happened": {"11:30", hourly("", createdAt("11:10")), nil, result{}, "next=12:00 Scheduled", `the schedule "0 * * * *" is followed, in the time zone UTC`},
		"rule C24: the offset is named":  {"12:30", hourly("12:00", splays(60)), nil, result{}, "last=12:00 " + next, "in the time zone UTC; each run is started 10s after it is due"},
		"rule C18: a run was started":    {"12:00", hourly("11:00"), nil, created, "last=12:00 " + active, ""},
		"rule C8: runs were missed and one was started": {
			"12:00", hourly("09:00"), nil, created, "last=12:00 missed=11:00 " + active + "; MissedRuns", "2 runs due from 2026-11-21T10:00:00Z to 2026-11-21T11:00:00Z; a later run was already due or started"},
		"rule C18: runs were missed and one is due": {"12:00", hourly("10:00"), nil, result{}, "last=10:00 missed=11:00 " + next + "; MissedRuns",
			"not started: the run due at 2026-11-21T11:00:00Z; a later run was already due or started"},
		"rule C18: a run that was recorded as missed before the cache showed its Job was started": {
			"12:30", hourly("10:00", missedAt("12:00")), jobs{run("11:00")}, result{}, "last=11:00 missed=12:00 " + active, ""},
		"rule C18: the Job was found, and it has ended": {
			"12:00:09", hourly("11:00"), jobs{run("12:00", complete("12:00:05"))}, result{}, "last=12:00 next=13:00 success=12:00:05 Scheduled", ""},
		"rule C18: a suspended CronTab has no next run": {"12:30", hourly("12:00", suspended), nil, result{}, "last=12:00 Suspended", "spec.suspend is true"},
		"rule C19: two groups of missed runs": {"12:10", hourly("06:00"), jobs{run("09:00")}, result{}, "last=09:00 missed=11:00 " + active + "; MissedRuns MissedRuns",
			"2 runs due from 2026-11-21T07:00:00Z to 2026-11-21T08:00:00Z; a later"},
		"rule C19: more than a hundred, while suspended": {"12:00", hourly("20T12:00", everyMinute, was("Suspended", "")), nil, result{},
			"last=20T12:00 missed=11:59 next=12:01 Scheduled; MissedRuns", "more than 100 runs due from 2026-11-20T12:01:00Z to 2026-11-21T11:59:00Z; spec.suspend was true"},
		"rule C10: a run waited until the next was due": {"13:00", hourly("11:00", forbid), jobs{run("11:00")}, result{},
			"last=11:00 missed=12:00 next=14:00 active=1 Scheduled; MissedRuns", "; an earlier run was under way, and spec.concurrencyPolicy is Forbid"},
		"rule C16: a refused run was missed": {"13:00", hourly("11:00", refused("")), nil, result{}, "last=11:00 missed=12:00 next=14:00 JobRejected; MissedRuns",
			"the run due at 2026-11-21T12:00:00Z; the API server did not create the Job"},
		"rule C13: a run of a former schedule was missed": {"12:10", hourly("11:00", changesTo("30 * * * *")), nil, result{},
			"last=11:00 missed=12:00 next=12:30 Scheduled; MissedRuns", "the run due at 2026-11-21T12:00:00Z; the schedule was changed before"},
		"rule C19: a hundred missed runs": {"12:00", hourly("10:19", everyMinute), nil, result{}, "last=10:19 missed=11:59 next=12:01 Scheduled; MissedRuns",
			"not started: 100 runs due from 2026-11-21T10:20:00Z to 2026-11-21T11:59:00Z"},
		"rule C22: a run that was asked for ends MissedDeadline": {"12:10:05", hourly("12:00", was("MissedDeadline", "")), jobs{manual("12:10")}, result{}, "last=12:00 asked=12:10 " + active, ""},
		"rule C22: one whose name is taken does not": {"12:10:05", hourly("12:00", was("MissedDeadline", "as before"), askedAt("12:10")), jobs{manual("12:10", unowned)}, result{},
			"last=12:00 asked=12:10 next=13:00 MissedDeadline; JobNameTaken", "as before"},
		"rule C22: it waits also while the CronTab is suspended": {
			"12:10", hourly("12:00", askedAt("12:10"), forbid, suspended), jobs{run("12:00")}, result{}, "last=12:00 active=1 Suspended", "no run is started; the run that the annotation"},
		"rule C22: a run that is asked for waits": {"12:10", hourly("12:00", askedAt("12:10"), forbid), jobs{run("12:00")}, result{}, "last=12:00 " + active,
			`; the run that the annotation alpha.ianlewis.org/run-at asked for at 2026-11-21T12:10:00Z waits for the end of Job "backup-1795262400", since spec.concurrencyPolicy is Forbid`},
	}
}

// statusOfProblems: why no run is started.
func statusOfProblems() map[string]statusTest {
	started := result{created: run("12:00")}
	const hour25 = `spec.schedule: field 2 (hour) of "0 25 * * *": end of range (25) above maximum (23): 25`
	reads := func(options ...cronTabOption) *alphav1.CronTab {
		return hourly("11:00", append(options, follows("", "20T10:30"))...)
	}
	nameTaken := func(owner jobOption, says string) statusTest {
		return statusTest{"12:00", hourly("11:00"), jobs{run("12:00", owner)}, result{}, "last=11:00 missed=12:00 next=13:00 JobNameTaken; JobNameTaken", says}
	}
	const missedDeadline = "last=11:00 missed=12:00 next=13:00 MissedDeadline"
	return map[string]statusTest{
		"rule C3: a schedule that cannot be read": {"12:00", reads(runsAt("0 25 * * *")), nil, result{}, "last=11:00 InvalidSchedule; InvalidSchedule", hour25},
		"rule C3: another mistake is reported": {
			"12:00", reads(runsAt("0 25 * * *"), was("InvalidSchedule", ""), nextGeneration), nil, result{}, "last=11:00 InvalidSchedule; InvalidSchedule", ""},
		"rule C3: a time zone that does not exist": {"12:00", reads(inZone("Europe/Belin")), nil, result{}, "last=11:00 UnknownTimeZone; UnknownTimeZone",
			`spec.timeZone "Europe/Belin": unknown time zone Europe/Belin`},
		"rule C3: a date that does not exist": {"12:00", reads(runsAt("0 0 30 2 *")), nil, result{}, "last=11:00 NeverDue; NeverDue", `"0 0 30 2 *" matches no date within 12 years`},
		"rule C20: the clock is behind":       {"12:00", hourly("14:00"), nil, result{}, "last=14:00 next=15:00 ClockBehind; ClockBehind", "the status records all runs up to 2026-11-21T14:00:00Z as handled"},
		"rule C9: the deadline has passed": {"12:10", hourly("11:00", deadline(60)), nil, result{}, missedDeadline + "; MissedDeadline",
			"the run due at 2026-11-21T12:00:00Z was not started within spec.startingDeadlineSeconds, which is 60"},
		"rule C9: MissedDeadline stays until a run is started": {
			"12:20", hourly("11:00", deadline(60), missedAt("12:00"), was("MissedDeadline", "as before")), nil, result{}, missedDeadline, "as before"},
		"rule C9: then it ends": {
			"12:00", hourly("10:00", missedAt("11:00"), was("MissedDeadline", "")), nil, started, "last=12:00 missed=11:00 next=13:00 active=1 Scheduled", ""},
		"rule C9: it ends with another schedule": {
			"12:20", hourly("11:00", changesTo("30 * * * *"), missedAt("12:00"), was("MissedDeadline", "")), nil, result{}, "last=11:00 missed=12:00 next=12:30 Scheduled", ""},
		"rule C14: the name is taken by a Job of another controller": nameTaken(ofCronJob,
			`the run due at 2026-11-21T12:00:00Z was not started: the name of its Job, "backup-1795262400", is taken by a Job that is controlled by CronJob "backup"; later runs are not affected`),
		"rule C14: the message names an earlier CronTab": nameTaken(ofFormer, "is taken by a Job that belongs to an earlier CronTab of this name (uid uid-earlier)"),
		"rule C14: the message names another CronTab":    nameTaken(ownedBy("CronTab", "other", "uid-other"), `is taken by a Job that is controlled by CronTab "other"`),
		"rule C14: JobNameTaken replaces JobRejected": {"12:00", hourly("10:00", missedAt("11:00"), refused("")), jobs{run("12:00", ofCronJob)}, result{},
			"last=10:00 missed=12:00 next=13:00 JobNameTaken; JobNameTaken", ""},
	}
}

// statusOfRefusals: the Ready condition after refused Jobs.
func statusOfRefusals() map[string]statusTest {
	quota := func(used string) string {
		return "exceeded quota: q, requested: pods=1, used: pods=" + used + ", limited: pods=3"
	}
	no := result{rejected: errors.New(quota("3"))}
	const rejected, reported = "last=11:00 next=13:00 JobRejected", "last=11:00 next=13:00 JobRejected; JobRejected"
	return map[string]statusTest{
		"rule C16: the Job was refused": {"12:00", hourly("11:00"), nil, no, reported, "the API server refused the Job: exceeded quota: q, requested: pods=1, limited: pods=3; it is tried again"},
		"rule C16: another usage of the quota, and another generation, are nothing new": {
			"12:01", hourly("11:00", refused(quota("22")), nextGeneration), nil, no, rejected, ""},
		"rule C16: another refusal replaces the first, and is reported": {"12:01", hourly("11:00", refused("denied")), nil, no, reported, "exceeded quota"},
		"rule C16: the API server failed": {"12:00", hourly("11:00"), nil, result{rejected: errServer()}, reported,
			`the API server failed: Internal error occurred: connection refused; it is tried again until the next run is due`},
		"rule C16: the API server will refuse the next Job": {"11:40", hourly("11:00", nextGeneration), nil, result{tried: true, rejected: errInvalid()},
			"last=11:00 next=12:00 JobRejected; JobRejected", `the API server will refuse the Job of the next run: Job.batch "backup" is invalid: spec.template.spec.containers[0].image: Required value; it is tried again every 5 minutes at least`},
		"rule C16: a long message is cut": {"12:00", hourly("11:00"), nil, result{rejected: errors.New(strings.Repeat("é", 5000))}, reported, "é…; it is tried again"},
		"rule C16: JobRejected stays when the deadline has passed": {"12:10", hourly("11:00", deadline(60), refused("denied")), nil, result{},
			"last=11:00 missed=12:00 next=13:00 JobRejected; MissedDeadline", "denied"},
		"rule C16: JobRejected ends when a run is started": {"12:01", hourly("11:00", refused("")), nil, result{created: run("12:00")}, "last=12:00 next=13:00 active=1 Scheduled", ""},
	}
}

// statusOfJobs: which Jobs are active, and how the others ended.
func statusOfJobs() map[string]statusTest {
	listed := func(clocks ...string) cronTabOption {
		return func(cronTab *alphav1.CronTab) {
			for _, clock := range clocks {
				cronTab.Status.Active = append(cronTab.Status.Active, references(jobs{run(clock)})...)
			}
		}
	}
	done, broken := run("12:00", complete("12:01")), run("11:00", failed("11:20"))
	failedAt := func(cronTab *alphav1.CronTab) { cronTab.Status.LastFailedTime = ptr.To(stamp("12:02")) }
	replaced := result{replaced: jobs{run("11:00")}, created: run("12:00")}
	return map[string]statusTest{
		"rule C18: the latest success and failure count": {"12:30", hourly("12:00"), jobs{run("09:00", failed("11:10")), broken, run("10:00", complete("12:20")), done}, result{},
			"last=12:00 next=13:00 success=12:20 failure=11:20 Scheduled", ""},
		"rule C18: they stay when their Jobs are gone": {
			"12:30", hourly("12:00", succeededAt("12:01"), failedAt), nil, result{}, "last=12:00 next=13:00 success=12:01 failure=12:02 Scheduled", ""},
		"rule C18: a replaced Job is not active": {
			"12:00", hourly("11:00", replace), jobs{run("11:00"), run("10:00", goesAway)}, replaced, "last=12:00 next=13:00 active=2 Scheduled", ""},
		"rule C18: Jobs of other owners are not listed": {"12:30", hourly("12:00"), jobs{run("11:00", unowned)}, result{}, "last=12:00 next=13:00 Scheduled", ""},
		"rule C19: a Job that was active is complete": {"12:30", hourly("12:00", listed("11:00", "12:00")), jobs{run("11:00"), done}, result{},
			"last=12:00 next=13:00 success=12:01 active=1 Scheduled; Normal JobCompleted", `Job "backup-1795262400" is complete`},
		"rule C19: a Job that was active has failed": {"11:30", hourly("11:00", listed("11:00")), jobs{broken}, result{},
			"last=11:00 next=12:00 failure=11:20 Scheduled; JobFailed", `Job "backup-1795258800" has failed`},
		"rule C19: the end of another has no event": {"12:30", hourly("12:00", listed("11:00")), jobs{done}, result{}, "last=12:00 next=13:00 success=12:01 Scheduled", ""},
	}
}

// statusLate: the CronTabs may be an hour without a success.
func statusLate() map[string]statusTest {
	hour := succeedsWithin(3600)
	const late, inTime, reported = "last=12:00 next=13:00 Scheduled NoSuccess", "Scheduled InTime", "; Late"
	const since = "no run has succeeded since the creation of the CronTab, and spec.successDeadlineSeconds is 3600"
	return map[string]statusTest{
		"rule C23: without the field there is no condition": {"12:30", hourly("12:00", wasLate), nil, result{}, "last=12:00 next=13:00 Scheduled", ""},
		"rule C23: at the deadline it is in time": {
			"13:01", hourly("13:00", hour, succeededAt("12:01:30")), nil, result{}, "last=13:00 next=14:00 success=12:01:30 " + inTime, "is not longer ago than spec.successDeadlineSeconds"},
		"rule C23: after the deadline it is late": {"13:01:01", hourly("13:00", hour, succeededAt("12:01")), nil, result{}, "last=13:00 next=14:00 success=12:01 Scheduled NoSuccess" + reported,
			"no run has succeeded since 2026-11-21T12:01:00Z, and spec.successDeadlineSeconds is 3600"},
		"rule C23: a run that succeeds ends it": {
			"13:02", hourly("13:00", hour, wasLate), jobs{run("13:00", complete("13:01"))}, result{}, "last=13:00 next=14:00 success=13:01 " + inTime, ""},
		"rule C23: without a success it counts from the creation": {"12:30", hourly("12:00", hour), nil, result{}, late + reported, since},
		"rule C23: one that is suspended is late":                 {"12:30", hourly("12:00", hour, suspended), nil, result{}, "last=12:00 Suspended NoSuccess" + reported, since},
	}
}

// TestStatusDetails: what a line does not show.
func TestStatusDetails(t *testing.T) {
	cronTab := hourly("12:00", inZone("Europe/Berlin"))
	theirs := metav1.Condition{Type: "Theirs", Status: metav1.ConditionTrue, Reason: "Kept", LastTransitionTime: stamp("20T12:00")}
	cronTab.Status.Conditions = []metav1.Condition{theirs}
	var many jobs
	for minute := range 150 {
		many = append(many, jobOf(cronTab, moment("12:00").Add(-time.Duration(minute)*time.Minute)))
	}
	snap := snapshotAt("12:30", cronTab, many)
	status := newStatus(snap, decide(snap), result{})
	differ(t, "rule C18: observedSchedule", &alphav1.ObservedSchedule{Schedule: "0 * * * *", TimeZone: "Europe/Berlin", Since: cronTab.CreationTimestamp}, status.ObservedSchedule)
	differ(t, "rule C18: the condition of another controller", theirs, status.Conditions[0])
	differ(t, "rule C18: the Jobs under way", "150 of which 100 are listed", fmt.Sprintf("%d of which %d are listed", status.ActiveCount, len(status.Active)))
	differ(t, "rule C18: the latest of them comes last",
		corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: "ns", Name: "backup-1795262400", UID: "uid-backup-1795262400"}, status.Active[99])
	var times []string
	for _, next := range status.NextScheduleTimes {
		times = append(times, clockOf(next.Time))
	}
	differ(t, "rule C18: the next five runs", "13:00 14:00 15:00 16:00 17:00", strings.Join(times, " "))
}

// legalReason is the CRD's pattern of reasons.
var legalReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

func differ(t testing.TB, what string, want, got any) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}
