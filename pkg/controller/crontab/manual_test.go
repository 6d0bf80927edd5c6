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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

func TestManualJobName(t *testing.T) {
	for sentence, test := range map[string]struct {
		at   string
		name string
	}{
		"rule C22: a full minute":               {"2026-11-21T12:00:00Z", "backup-mtoupc0"},
		"rule C22: another second":              {"2026-11-21T12:00:01Z", "backup-mtoupc1"},
		"rule C22: the earliest time of a name": {"2001-09-09T01:46:40Z", "backup-mgjdgxs"},
		"rule C22: the latest time of RFC 3339": {"9999-12-31T23:59:59Z", "backup-m38et6qnz"},
	} {
		t.Run(sentence, func(t *testing.T) {
			at := at(t, test.at)
			differ(t, "name", test.name, manualJobName("backup", at))
			differ(t, "time of the name", at, manualTime(named("backup", test.name)))
			differ(t, "time of a run of the schedule", time.Time{}, dueTime(named("backup", test.name)))
			if longer := len(test.name) - len("backup"); longer > 11 {
				t.Errorf("the name is longer by %d", longer)
			}
		})
	}
	for sentence, name := range map[string]string{
		"rule C22: a Job of the schedule":       "backup-1795262400",
		"rule C22: a Job of another CronTab":    "other-mtoupc0",
		"rule C22: text that is not a number":   "backup-manual-1",
		"rule C22: text":                        "backup-manual",
		"rule C22: a number with upper case":    "backup-mTOUWO0",
		"rule C22: a number with a zero before": "backup-m0toupc0",
		"rule C22: no number":                   "backup-m",
	} {
		differ(t, sentence, time.Time{}, manualTime(named("backup", name)))
	}
}

func TestNewManualJob(t *testing.T) {
	cronTab := newCronTab("", inZone("Europe/Berlin"))
	job := newManualJob(cronTab, moment("12:00:00"), zoneOf(t, "Europe/Berlin"))
	want := map[string]string{"alpha.ianlewis.org/scheduled-time": "2026-11-21T13:00:00+01:00", "alpha.ianlewis.org/instantiate": "manual"}
	differ(t, "rule C22: annotations of the Job", want, job.Annotations)
	differ(t, "rule C22: annotations of the Pods", want, job.Spec.Template.Annotations)
	ofSchedule := newJob(cronTab, moment("12:00:00"), time.UTC)
	differ(t, "rule C22: labels", ofSchedule.Labels, job.Labels)
	differ(t, "rule C22: owner", ofSchedule.OwnerReferences, job.OwnerReferences)
	differ(t, "rule C22: Pod spec", cronTab.Spec.JobTemplate, job.Spec.Template.Spec)
}

// TestDecideManual: the CronTab of the table has a run at every full hour.
func TestDecideManual(t *testing.T) {
	const next, wait = "next 13:00:00, requeue after 1m0s", "requeue after 1m0s"
	taken := manualJob("12:10:00", ownedBy("CronJob", "backup", "uid-cronjob"))
	checkDecisions(t, map[string]decideTest{
		"rule C22: a run is started at the time that the annotation asks for": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedToday("12:10:00")), want: "start asked 12:10:00, " + next},
		"rule C22: a late run is started, whatever the deadline": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", askedToday("12:10:00"), deadline(60)), want: "start asked 12:10:00, " + next},
		"rule C22: a run that is asked for in another time zone": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedAt("2026-11-21T13:10:00.7+01:00")), want: "start asked 12:10:00, " + next},
		"rule C22: a run is started while the CronTab is suspended": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedToday("12:10:00"), suspended), want: "Suspended, start asked 12:10:00"},
		"rule C22: a run is started with a schedule that cannot be read": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedToday("12:10:00"), schedulesAt("x"), scheduled("x", "20T10:30:00")), want: "InvalidSchedule, start asked 12:10:00"},
		"rule C22: a run in the future waits": {
			now: "12:09:40", cronTab: newCronTab("12:00:00", askedToday("12:10:00")), want: "next 13:00:00, requeue after 20s"},
		"rule C22: a run in the far future waits, and the clock is checked": {
			now: "12:09:40", cronTab: newCronTab("12:00:00", askedToday("18:10:00"), suspended), want: "Suspended, " + wait},
		"rule C22: a run that the status records is not started again": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedToday("12:10:00"), handledAt("12:10:00")), want: next},
		"rule C22: a run before the one that the status records is not started": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedToday("12:09:59"), handledAt("12:10:00")), want: next},
		"rule C22: a run after the one that the status records is started": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedToday("12:10:00"), handledAt("12:09:59")), want: "start asked 12:10:00, " + next},
		"rule C22: a run that has a Job was started": {
			now: "12:10:01", cronTab: newCronTab("12:00:00", askedToday("12:10:00")), jobs: []*batchv1.Job{manualJob("12:10:00")}, want: "asked 12:10:00, " + next},
		"rule C22: a run whose Job only the API server shows was started": {
			now: "12:10:01", cronTab: newCronTab("12:00:00", askedToday("12:10:00")), others: []*batchv1.Job{manualJob("12:10:00")}, want: "asked 12:10:00, " + next},
		"rule C22: a run whose annotation is gone was started": {
			now: "12:10:01", cronTab: newCronTab("12:00:00"), jobs: []*batchv1.Job{manualJob("12:10:00")}, want: "asked 12:10:00, " + next},
		"rule C22: a run whose annotation was changed before the status recorded it": {
			now: "12:10:30", cronTab: newCronTab("12:00:00", askedToday("12:10:20")), jobs: []*batchv1.Job{manualJob("12:10:00")}, want: "asked 12:10:00, start asked 12:10:20, " + next},
		"rule C22: a Job ahead of the clock is ignored": {
			now: "12:10:01", cronTab: newCronTab("12:00:00", askedToday("12:10:00")), jobs: []*batchv1.Job{manualJob("12:20:00")}, want: "start asked 12:10:00, " + next},
		"rule C22: the name of the Job is taken": {
			now: "12:10:01", cronTab: newCronTab("12:00:00", askedToday("12:10:00")), others: []*batchv1.Job{taken}, want: "asked 12:10:00, taken, " + next},
		"rule C22: a run of the schedule is started first": {
			now: "12:00:01", cronTab: newCronTab("11:00:00", askedToday("12:00:00")), want: "asked waits, start 12:00:00, " + next},
		"rule C22: it is started before a later run of the schedule": {
			now: "13:00:05", cronTab: newCronTab("12:00:00", askedToday("12:30:00"), policy(alphav1.ForbidConcurrent)), want: "start asked 12:30:00, next 14:00:00, requeue after 1m0s"},
		"rule C22: a run that is started does not settle one of the schedule": {
			now: "13:00:00", cronTab: newCronTab("12:00:00", askedToday("13:00:00"), handledAt("13:00:00")), jobs: []*batchv1.Job{manualJob("13:00:00")},
			want: "start 13:00:00, next 14:00:00, requeue after 1m0s"},
		"rule C22: with Forbid it waits for an active Job": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedToday("12:10:00"), policy(alphav1.ForbidConcurrent)), jobs: []*batchv1.Job{jobAt("12:00:00")}, want: "asked waits, " + next},
		"rule C22: with Forbid a run of the schedule waits for it": {
			now: "13:00:00", cronTab: newCronTab("12:00:00", handledAt("12:10:00"), policy(alphav1.ForbidConcurrent)), jobs: []*batchv1.Job{manualJob("12:10:00")},
			want: "hold 13:00:00, next 14:00:00, requeue after 1m0s"},
		"rule C22: with Replace the active Job is deleted": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedToday("12:10:00"), policy(alphav1.ReplaceConcurrent)), jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: "replace 12:00:00, start asked 12:10:00, " + next},
		"rule C22: with Replace a run of the schedule deletes its Job": {
			now: "13:00:00", cronTab: newCronTab("12:00:00", handledAt("12:10:00"), policy(alphav1.ReplaceConcurrent)), jobs: []*batchv1.Job{manualJob("12:10:00")},
			want: "replace asked 12:10:00, start 13:00:00, next 14:00:00, requeue after 1m0s"},
		"rule C22: a Job is not replaced before the status records its run": {
			now: "13:00:00", cronTab: newCronTab("12:00:00", policy(alphav1.ReplaceConcurrent)), jobs: []*batchv1.Job{manualJob("12:10:00")},
			want: "asked 12:10:00, hold 13:00:00, next 14:00:00, requeue after 1m0s"},
		"rule C22: a finished Job stays until the status records its run": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", keeps(0, 0)), jobs: []*batchv1.Job{manualJob("12:10:00", ended(batchv1.JobFailed))}, want: "asked 12:10:00, " + next},
		"rule C22: its Job is one of the history": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", keeps(0, 0), handledAt("12:10:00")), jobs: []*batchv1.Job{manualJob("12:10:00", ended(batchv1.JobFailed))},
			want: "delete asked 12:10:00, " + next},
		"rule C22: a time before the creation is that of a CronTab which was restored": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedAt("2026-11-20T10:28:59Z")), want: next},
		"rule C22: the clock of the user may be behind": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedAt("2026-11-20T10:29:00Z")), want: "start asked 20T10:29:00, " + next},
		"rule C22: a value that is not a time": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedAt("now")), want: "InvalidRunAt, " + next},
		"rule C22: an empty value": {
			now: "12:10:00", cronTab: newCronTab("12:00:00", askedAt("")), want: "InvalidRunAt, " + next},
	})
}

// manualTests: a sync that starts a run which a user asked for.
func manualTests() map[string]syncTest {
	const (
		createAsked = "create jobs asked 12:10:00 owner=uid-backup image=mybackupscript:v9"
		recorded    = putStatus + "last=12:00:00 asked=12:10:00 missed= next=13:00:00 active=1 True/Scheduled"
	)
	asked := newCronTab("12:00:00", recordedAt("12:05:00"), askedToday("12:10:00"))
	created := []string{"Normal Created"}
	taken := manualJob("12:10:00", ownedBy("", "", ""))
	return map[string]syncTest{
		"rule C22: a run that a user asks for": {
			now: "12:10:05", cronTab: asked, requests: []string{getLive, createAsked, recorded}, events: created, requeueAfter: time.Minute},
		"rule C22: its Job exists, and the cache does not show it": {
			now: "12:10:05", cronTab: asked, liveJobs: []*batchv1.Job{manualJob("12:10:00")},
			requests: []string{getLive, createAsked, "get jobs asked 12:10:00"}, err: "caches are behind", requeueAfter: time.Minute},
		"rule C22: its Job exists, and the status does not record it": {
			now: "12:10:05", cronTab: asked, jobs: []*batchv1.Job{manualJob("12:10:00")}, requests: []string{recorded}, requeueAfter: time.Minute},
		"rule C22: a run that the status does not record ends an earlier refusal": {
			now: "12:10:05", cronTab: newCronTab("12:00:00", refusedAt("12:05:00"), askedToday("12:10:00")), jobs: []*batchv1.Job{manualJob("12:10:00")},
			requests: []string{getLive, "try to create jobs 13:00:00 owner=uid-backup image=mybackupscript:v9", recorded}, requeueAfter: time.Minute},
		"rule C22: the name of its Job is taken": {
			now: "12:10:05", cronTab: asked, jobs: []*batchv1.Job{taken},
			requests: []string{putStatus + "last=12:00:00 asked=12:10:00 missed= next=13:00:00 active=0 True/Scheduled"},
			events:   []string{"Warning JobNameTaken"}, requeueAfter: time.Minute},
		"rule C22: its Job is refused": {
			now: "12:10:05", cronTab: asked, prepare: failing("create", "jobs", errInvalid()),
			requests: []string{getLive, createAsked, putStatus + "last=12:00:00 missed= next=13:00:00 active=0 False/JobRejected"},
			events:   []string{"Warning JobRejected"}, err: "image: Required value", requeueAfter: minRetry},
		"rule C22: its Job is refused while the CronTab is suspended": {
			now: "12:10:05", cronTab: newCronTab("12:00:00", suspended, recordedAt("12:05:00"), askedToday("12:10:00")), prepare: failing("create", "jobs", errInvalid()),
			requests: []string{getLive, createAsked, putStatus + "last=12:00:00 missed= next= active=0 False/JobRejected"},
			events:   []string{"Warning JobRejected"}, err: "image: Required value", requeueAfter: minRetry},
		"rule C22: it is started right after the run of the schedule": {
			now: "12:10:05", cronTab: newCronTab("12:00:00", schedulesAt("*/10 * * * *"), recordedAt("12:05:00"), askedToday("12:10:00")),
			requests: []string{getLive, "create jobs 12:10:00 owner=uid-backup image=mybackupscript:v9", putStatus + "last=12:10:00 missed= next=12:20:00 active=1 True/Scheduled"},
			events:   created, requeueAfter: 50 * time.Millisecond},
		"rule C22: a value that is not a time is reported": {
			now: "12:10:05", cronTab: newCronTab("12:00:00", recordedAt("12:05:00"), askedAt("now")),
			requests: []string{putStatus + "last=12:00:00 missed= next=13:00:00 active=0 False/InvalidRunAt"}, events: []string{"Warning InvalidRunAt"}, requeueAfter: time.Minute},
		"rule C22: a value that is not a time is reported while the CronTab is suspended": {
			now: "12:10:05", cronTab: newCronTab("12:00:00", suspended, recordedAt("12:05:00"), askedAt("now")),
			requests: []string{putStatus + "last=12:00:00 missed= next= active=0 False/InvalidRunAt"}, events: []string{"Warning InvalidRunAt"}},
	}
}

// TestRunNow: a run that a user asks for is started at once and only once, although its Job is
// deleted and the process starts anew.
func TestRunNow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "12:00:00", nil, nil)
		var names []string
		f.prepend("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if create := action.(clienttesting.CreateActionImpl); len(create.CreateOptions.DryRun) == 0 {
				names = append(names, runNamed(create.Object.(*batchv1.Job).Name))
			}
			return false, nil, nil
		})
		stop := f.start(ctx, t)
		f.create(ctx, t, "backup", "@yearly")
		time.Sleep(90 * time.Second)
		cronTab, err := f.client.AlphaV1().CronTabs("ns").Get(ctx, "backup", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		cronTab.Spec.Suspend = ptr.To(true)
		askedToday("12:01:30")(cronTab)
		if _, err := f.client.AlphaV1().CronTabs("ns").Update(ctx, cronTab, metav1.UpdateOptions{}); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		differ(t, "rule C22: Jobs", "asked 12:01:30", strings.Join(names, " "))
		if err := f.kube.BatchV1().Jobs("ns").Delete(ctx, manualJobName("backup", moment("12:01:30")), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		stop()
		differ(t, "rule C22: Jobs after an hour", "asked 12:01:30", strings.Join(names, " "))
	})
}
