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
	"math"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// decideTest is a CronTab at a time, and what decide says about it.
type decideTest struct {
	now     string
	cronTab *alphav1.CronTab
	// jobs belong to the CronTab; others are found only by their names.
	jobs, others []*batchv1.Job
	want         string
}

func checkDecisions(t *testing.T, tests map[string]decideTest) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			before := test.cronTab.DeepCopy()
			d := decide(snapshot{cronTab: test.cronTab, jobs: test.jobs, jobNamed: jobsByName(test.jobs, test.others), now: moment(test.now)})
			if diff := cmp.Diff(test.want, describeDecision(t, test.cronTab, d)); diff != "" {
				t.Errorf("decision (-want +got):\n%s", diff)
			}
			if diff := cmp.Diff(before, test.cronTab); diff != "" {
				t.Errorf("the CronTab was changed (-was +is):\n%s", diff)
			}
		})
	}
}

// The CronTab of these tables has a run at every full hour.

func TestDecideWhatIsDue(t *testing.T) {
	checkDecisions(t, map[string]decideTest{
		"rule C1: a CronTab that is being deleted needs nothing": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", terminating)},
		"rule C6: before the first time nothing is due": {
			now: "11:59:59", cronTab: newCronTab("", createdAt("11:30:00")),
			want: "next 12:00:00, requeue after 1s"},
		"rule C6: a fraction of a second before the first time nothing is due": {
			now: "11:59:59.9", cronTab: newCronTab("11:00:00"),
			want: "next 12:00:00, requeue after 100ms"},
		"rule C6: a run is due at its time": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"),
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C6: the first run after the creation is due": {
			now: "12:00:00", cronTab: newCronTab("", createdAt("11:30:00")),
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C6: a time before the creation is not due": {
			now: "12:30:00", cronTab: newCronTab("", createdAt("12:00:01")),
			want: "next 13:00:00, requeue after 1m0s"},
		"rule C6: the time of the creation itself is not due": {
			now: "12:30:00", cronTab: newCronTab("", createdAt("12:00:00")),
			want: "next 13:00:00, requeue after 1m0s"},
		"rule C6: a run that was started is not due": {
			now: "12:00:30", cronTab: newCronTab("12:00:00"),
			want: "next 13:00:00, requeue after 1m0s"},
		"rule C6: a missed run is not due": {
			now: "12:30:00", cronTab: newCronTab("11:00:00", missedAt("12:00:00")),
			want: "next 13:00:00, requeue after 1m0s"},
		"rule C6: a late run is started": {
			now: "12:59:59", cronTab: newCronTab("11:00:00"),
			want: "start 12:00:00, next 13:00:00, requeue after 1s"},
		"rule C5: the time zone of the spec counts": {
			now: "20T23:00:00", cronTab: newCronTab("19T23:00:00", schedulesAt("@daily"), inZone("Europe/Berlin"), createdAt("18T10:00:00")),
			want: "start 20T23:00:00, next 23:00:00, requeue after 1m0s"},
		"rule C5: without a time zone it is UTC": {
			now: "20T23:00:00", cronTab: newCronTab("20T00:00:00", schedulesAt("@daily"), createdAt("18T10:00:00")),
			want: "next 00:00:00, requeue after 1m0s"},
		"rule C4: @every is counted from the creation": {
			now: "12:00:20", cronTab: newCronTab("", schedulesAt("@every 90s"), createdAt("11:58:50")),
			want: "start 12:00:20, next 12:01:50, requeue after 1m0s"},
		"rule C4: a late run of @every does not shift the next": {
			now: "12:01:40", cronTab: newCronTab("", schedulesAt("@every 90s"), createdAt("11:58:50")),
			want: "start 12:00:20, next 12:01:50, requeue after 10s"},
		"rule C4: a run of @every is not started twice": {
			now: "12:00:21", cronTab: newCronTab("12:00:20", schedulesAt("@every 90s"), createdAt("11:58:50")),
			want: "next 12:01:50, requeue after 1m0s"},
		"rule C25: a stored @every of less than 10 seconds keeps its interval": {
			now: "12:00:05", cronTab: newCronTab("12:00:00", schedulesAt("@every 5s"), createdAt("11:00:00")),
			jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: "start 12:00:05, next 12:00:10, requeue after 5s"},
		"rule C4: a new @every is counted from when it was written": {
			now: "12:00:50", cronTab: newCronTab("11:00:00", schedulesAt("@every 1h"), scheduled("@every 2h", "20T10:30:00"), writtenBy("", "12:00:40")),
			want: "next 13:00:40, requeue after 1m0s"},
	})
}

func TestDecideAfterDowntime(t *testing.T) {
	checkDecisions(t, map[string]decideTest{
		"rule C8: of two runs the later is started": {
			now: "12:10:00", cronTab: newCronTab("10:00:00"),
			want: "Superseded 11:00:00, start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C8: of many runs the latest is started": {
			now: "12:10:00", cronTab: newCronTab("20T20:00:00"),
			want: "Superseded 15x 20T21:00:00-11:00:00, start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C8: a new CronTab that is synced late": {
			now: "12:10:00", cronTab: newCronTab("", createdAt("09:30:00")),
			want: "Superseded 2x 10:00:00-11:00:00, start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C8: more than a hundred missed runs are not counted": {
			now: "12:00:00", cronTab: newCronTab("20T12:00:00", schedulesAt("* * * * *")),
			want: "Superseded 101x 20T12:01:00-11:59:00, start 12:00:00, next 12:01:00, requeue after 1m0s"},
		"rule C8: a hundred missed runs are counted": {
			now: "12:00:00", cronTab: newCronTab("10:19:00", schedulesAt("* * * * *")),
			want: "Superseded 100x 10:20:00-11:59:00, start 12:00:00, next 12:01:00, requeue after 1m0s"},
		"rule C8: runs of @every": {
			now: "12:00:30", cronTab: newCronTab("11:59:30", schedulesAt("@every 10s"), createdAt("11:00:00")),
			want: "Superseded 5x 11:59:40-12:00:20, start 12:00:30, next 12:00:40, requeue after 10s"},
		"rule C8: a recorded missed run is not missed again": {
			now: "12:10:00", cronTab: newCronTab("09:00:00", missedAt("11:00:00")),
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C8: nothing was due in between": {
			now: "12:10:00", cronTab: newCronTab("20T12:00:00", schedulesAt("0 12 * * *")),
			want: "start 12:00:00, next 22T12:00:00, requeue after 1m0s"},
		"rule C8: nothing at all was due": {
			now: "12:10:00", cronTab: newCronTab("20T13:00:00", schedulesAt("0 13 * * *")),
			want: "next 13:00:00, requeue after 1m0s"},

		"rule C9: within the deadline": {
			now: "12:09:59", cronTab: newCronTab("11:00:00", deadline(600)),
			want: "start 12:00:00, next 13:00:00, requeue after 2s"},
		"rule C9: at the deadline": {
			now: "12:10:00.9", cronTab: newCronTab("11:00:00", deadline(600)),
			want: "start 12:00:00, next 13:00:00, requeue after 100ms"},
		"rule C9: past the deadline": {
			now: "12:10:01", cronTab: newCronTab("11:00:00", deadline(600)),
			want: "MissedDeadline 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C9: a missed deadline is recorded once": {
			now: "12:10:02", cronTab: newCronTab("11:00:00", deadline(600), missedAt("12:00:00")),
			want: "next 13:00:00, requeue after 1m0s"},
		"rule C9: a deadline of no seconds is met within the second": {
			now: "12:00:00.9", cronTab: newCronTab("11:00:00", deadline(0)),
			want: "start 12:00:00, next 13:00:00, requeue after 100ms"},
		"rule C9: a deadline of no seconds is missed in the next": {
			now: "12:00:01", cronTab: newCronTab("11:00:00", deadline(0)),
			want: "MissedDeadline 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C9: the longest deadline": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", deadline(math.MaxInt64)),
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C9: after downtime, within the deadline": {
			now: "12:05:00", cronTab: newCronTab("09:00:00", deadline(600)),
			want: "Superseded 2x 10:00:00-11:00:00, start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C9: after downtime, past the deadline": {
			now: "12:15:00", cronTab: newCronTab("09:00:00", deadline(600)),
			want: "Superseded 2x 10:00:00-11:00:00, MissedDeadline 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C9: a deadline longer than the time between two runs starts one run": {
			now: "12:30:00", cronTab: newCronTab("10:00:00", deadline(7200)),
			want: "Superseded 11:00:00, start 12:00:00, next 13:00:00, requeue after 1m0s"},

		"rule C12: no run is started while suspended": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", suspended), want: "Suspended"},
		"rule C12: suspend: false has no effect": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", func(c *alphav1.CronTab) { c.Spec.Suspend = ptr.To(false) }),
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C12: after a suspension the latest run is started": {
			now: "12:10:00", cronTab: newCronTab("09:00:00", readyBecause(alphav1.ReasonSuspended)),
			want: "Suspended 2x 10:00:00-11:00:00, start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C12: after a suspension no run is started past its deadline": {
			now: "12:10:00", cronTab: newCronTab("09:00:00", readyBecause(alphav1.ReasonSuspended), deadline(60)),
			want: "Suspended 2x 10:00:00-11:00:00, Suspended 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C12: after a suspension without a run nothing is started": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", readyBecause(alphav1.ReasonSuspended)),
			want: "next 13:00:00, requeue after 1m0s"},
		"rule C12: a started run is recorded while suspended": {
			now: "12:00:30", cronTab: newCronTab("11:00:00", suspended), jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: "Suspended, started 12:00:00"},

		"rule C20: the clock is behind the latest run": {
			now: "12:30:00", cronTab: newCronTab("14:00:00"),
			want: "ClockBehind, next 15:00:00, requeue after 1m0s"},
		"rule C20: the clock is behind the latest missed run": {
			now: "12:30:00", cronTab: newCronTab("11:00:00", missedAt("14:00:00")),
			want: "ClockBehind, next 15:00:00, requeue after 1m0s"},
		"rule C20: the clock is behind the schedule": {
			now: "12:30:00", cronTab: newCronTab("11:00:00", scheduled("", "14:00:00")),
			want: "ClockBehind, next 15:00:00, requeue after 1m0s"},
		"rule C20: the clock is behind the creation": {
			now: "12:30:00", cronTab: newCronTab("", createdAt("14:00:00")),
			want: "ClockBehind, next 15:00:00, requeue after 1m0s"},
		"rule C20: a clock behind by a minute is tolerated, and no run is started twice": {
			now: "11:59:00", cronTab: newCronTab("12:00:00"),
			want: "next 13:00:00, requeue after 1m0s"},
		"rule C20: a clock behind by more than a minute is reported": {
			now: "11:58:59.9", cronTab: newCronTab("12:00:00"),
			want: "ClockBehind, next 13:00:00, requeue after 1m0s"},
		"rule C20: the next sync is just before the next run is due": {
			now: "11:59:40.5", cronTab: newCronTab("11:00:00"),
			want: "next 12:00:00, requeue after 19.5s"},
	})
}

func TestDecideReadability(t *testing.T) {
	checkDecisions(t, map[string]decideTest{
		"rule C3: a schedule that cannot be read": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", schedulesAt("0 25 * * *")), want: "InvalidSchedule"},
		"rule C3: a time zone that does not exist": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", inZone("Europe/Belin")), want: "UnknownTimeZone"},
		"rule C3: the machine's own time zone": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", inZone("Local")), want: "UnknownTimeZone"},
		"rule C3: a date that does not exist": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", schedulesAt("0 0 30 2 *")), want: "NeverDue, requeue after 1m0s"},
		"rule C3: a date that rarely exists": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", schedulesAt("0 0 29 2 *")), want: "next 29T00:00:00, requeue after 1m0s"},
		"rule C3: an invalid schedule is reported while suspended": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", schedulesAt("0 25 * * *"), suspended), want: "InvalidSchedule"},
		"rule C17: finished Jobs are deleted when the schedule is invalid": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", schedulesAt("0 25 * * *"), keeps(3, 0)),
			jobs: []*batchv1.Job{jobAt("11:00:00", ended(batchv1.JobFailed))}, want: "InvalidSchedule, delete 11:00:00"},
		"rule C17: finished Jobs are deleted while suspended": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", suspended, keeps(3, 0)),
			jobs: []*batchv1.Job{jobAt("11:00:00", ended(batchv1.JobFailed))}, want: "Suspended, delete 11:00:00"},
		"rule C13: times of a new schedule before the change are not runs": {
			now: "11:50:00", cronTab: newCronTab("11:00:00", schedulesAt("30 * * * *"), scheduled("0 * * * *", "20T10:30:00"), writtenBy("", "11:45:00")),
			want: "next 12:30:00, requeue after 1m0s"},
		"rule C13: runs of the former schedule that were not started are missed": {
			now: "12:10:00", cronTab: newCronTab("10:00:00", schedulesAt("30 * * * *"), scheduled("0 * * * *", "20T10:30:00"), writtenBy("", "12:05:00")),
			want: "ScheduleChanged 2x 11:00:00-12:00:00, next 12:30:00, requeue after 1m0s"},
		"rule C13: a new schedule counts from when it was written": {
			now: "12:20:00", cronTab: newCronTab("11:00:00", schedulesAt("15 * * * *"), scheduled("0 * * * *", "20T10:30:00"), writtenBy("", "12:10:00")),
			want: "ScheduleChanged 12:00:00, hold 12:15:00, next 13:15:00, requeue after 1m0s"},
		"rule C13: the latest write time counts": {
			now: "12:20:00", cronTab: newCronTab("12:00:00", schedulesAt("15 * * * *"), scheduled("0 * * * *", "20T10:30:00"), writtenBy("", "12:17:00"), writtenBy("", "12:10:00")),
			want: "next 13:15:00, requeue after 1m0s"},
		"rule C13: the time of a status update is ignored": {
			now: "12:20:00", cronTab: newCronTab("12:00:00", schedulesAt("15 * * * *"), scheduled("0 * * * *", "20T10:30:00"), writtenBy("", "12:10:00"), writtenBy("status", "12:17:00")),
			want: "hold 12:15:00, next 13:15:00, requeue after 1m0s"},
		"rule C13: without managed fields a new schedule counts from now": {
			now: "12:20:00.5", cronTab: newCronTab("12:00:00", schedulesAt("15 * * * *"), scheduled("0 * * * *", "20T10:30:00")),
			want: "next 13:15:00, requeue after 1m0s"},
		"rule C13: a write time ahead of the clock is ignored": {
			now: "12:20:00", cronTab: newCronTab("12:00:00", schedulesAt("15 * * * *"), scheduled("0 * * * *", "20T10:30:00"), writtenBy("", "13:17:00")),
			want: "next 13:15:00, requeue after 1m0s"},
		"rule C13: a write time before the former schedule is ignored": {
			now: "12:20:00", cronTab: newCronTab("", schedulesAt("15 * * * *"), scheduled("0 * * * *", "12:18:00"), writtenBy("", "12:10:00")),
			want: "next 13:15:00, requeue after 1m0s"},
		"rule C13: a change of the time zone is a change of the schedule": {
			now: "12:20:00", cronTab: newCronTab("11:00:00", scheduled("", "20T10:30:00"), inZone("Asia/Kathmandu"), writtenBy("", "12:10:00")),
			want: "ScheduleChanged 12:00:00, hold 12:15:00, next 13:15:00, requeue after 1m0s"},
		"rule C13: a change of other fields does not change the schedule": {
			now: "12:20:00", cronTab: newCronTab("11:00:00", writtenBy("", "12:10:00"), keeps(0, 0)),
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C13: no run is started before the status records the schedule": {
			now: "12:10:00", cronTab: newUnseen(createdAt("11:30:00")),
			want: "hold 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C13: no Job is replaced before the status records the schedule": {
			now: "12:10:00", cronTab: newUnseen(createdAt("11:30:00"), policy(alphav1.ReplaceConcurrent)), jobs: []*batchv1.Job{jobAt("11:00:00")},
			want: "hold 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C16: the Job of a new CronTab is tried": {
			now: "11:50:00", cronTab: newUnseen(createdAt("11:30:00")),
			want: "try next, next 12:00:00, requeue after 1m0s"},
		"rule C16: the Job of a changed CronTab is tried": {
			now: "11:50:00", cronTab: newCronTab("11:00:00", nextGeneration),
			want: "try next, next 12:00:00, requeue after 1m0s"},
		"rule C16: the Job of a changed CronTab is tried while a run waits": {
			now: "12:50:00", cronTab: newCronTab("11:00:00", nextGeneration, policy(alphav1.ForbidConcurrent)), jobs: []*batchv1.Job{jobAt("11:00:00")},
			want: "hold 12:00:00, try next, next 13:00:00, requeue after 1m0s"},
		"rule C16: the Job of a changed CronTab is not tried if it is created": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", nextGeneration),
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C16: the Job of a changed CronTab without runs is not tried": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", nextGeneration, suspended), want: "Suspended"},
		"rule C13: a recorded schedule counts from the recorded time": {
			now: "12:20:00", cronTab: newCronTab("12:00:00", schedulesAt("15 * * * *"), scheduled("", "12:10:00")),
			want: "start 12:15:00, next 13:15:00, requeue after 1m0s"},
		"rule C13: an invalid former schedule has no missed runs": {
			now: "12:10:00", cronTab: newCronTab("10:00:00", scheduled("0 25 * * *", "20T10:30:00"), writtenBy("", "12:05:00")),
			want: "next 13:00:00, requeue after 1m0s"},
		"rule C13: times of a corrected schedule before the correction are not runs": {
			now: "12:10:00", cronTab: newCronTab("10:00:00", scheduled("0 0 30 2 *", "20T10:30:00")),
			want: "next 13:00:00, requeue after 1m0s"},
		"rule C13: a change to an invalid schedule is a change": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", schedulesAt("x"), scheduled("0 * * * *", "20T10:30:00")),
			want: "InvalidSchedule, ScheduleChanged 12:00:00"},
		"rule C13: the schedule may change while suspended": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", suspended, schedulesAt("15 * * * *"), scheduled("0 * * * *", "20T10:30:00")),
			want: "Suspended, ScheduleChanged 12:00:00"},
		"rule C13: managed fields without a time are ignored": {
			now: "12:20:00", cronTab: newCronTab("12:00:00", schedulesAt("15 * * * *"), scheduled("0 * * * *", "20T10:30:00"), func(c *alphav1.CronTab) {
				c.ManagedFields = []metav1.ManagedFieldsEntry{{Manager: "kubectl"}}
			}),
			want: "next 13:15:00, requeue after 1m0s"},
		"rule C13: a run of the former schedule may be started after the new one was written": {
			now: "13:10:00", cronTab: newCronTab("10:00:00", schedulesAt("30 * * * *"), scheduled("0 * * * *", "20T10:30:00"), writtenBy("", "11:05:00")),
			jobs: []*batchv1.Job{jobAt("13:00:00")},
			want: "started 13:00:00, ScheduleChanged 11:00:00, Superseded 2x 11:30:00-12:30:00, next 13:30:00, requeue after 1m0s"},
		"rule C13: runs of both schedules are started or missed": {
			now: "12:30:00", cronTab: newCronTab("11:00:00", schedulesAt("2,12 * * * *"), scheduled("0 * * * *", "20T10:30:00"), writtenBy("", "12:05:00")),
			jobs: []*batchv1.Job{jobAt("12:00:00"), jobAt("12:20:00")},
			want: "started 12:20:00, Superseded 12:12:00, next 13:02:00, requeue after 1m0s"},
		"rule C13: a run of the former schedule that has its Job is not missed": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", schedulesAt("30 * * * *"), scheduled("0 * * * *", "20T10:30:00"), writtenBy("", "12:05:00")),
			jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: "started 12:00:00, next 12:30:00, requeue after 1m0s"},
	})
}

// TestRequeueAfterIsInRange: the next sync is neither now nor too late.
func TestRequeueAfterIsInRange(t *testing.T) {
	cronTab := newCronTab("11:00:00", deadline(math.MaxInt64))
	for nanoseconds := range 3 {
		now := moment("11:59:59").Add(time.Second - time.Duration(nanoseconds))
		d := decide(snapshot{cronTab: cronTab, jobNamed: jobsByName(), now: now})
		if d.requeueAfter <= 0 || d.requeueAfter > maxRequeueAfter {
			t.Errorf("rule C20: at %v the next sync is in %v", now, d.requeueAfter)
		}
	}
}
