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
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

func TestDecideAboutJobs(t *testing.T) {
	forbid, replace := policy(alphav1.ForbidConcurrent), policy(alphav1.ReplaceConcurrent)
	running, done := jobAt("11:00:00"), jobAt("11:00:00", complete("11:01:00"))
	checkDecisions(t, map[string]situation{
		"rule C10: Allow: a run is started beside another": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", policy(alphav1.AllowConcurrent)), jobs: []*batchv1.Job{running},
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: no policy is Allow": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{running},
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: Forbid: a run is started if none is under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{done},
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: Forbid: a failed run is not under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", ended(batchv1.JobFailed))},
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: Forbid: a run waits for the one under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{running},
			want: "wait with 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: Forbid: one of many that is under way is enough": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("10:00:00", complete("10:01:00")), running, jobAt("09:00:00", complete("09:01:00"))},
			want: "wait with 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: Forbid: a run that is failing is under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", ended(batchv1.JobFailureTarget))},
			want: "wait with 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: Forbid: a run that is not complete is under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", ended(batchv1.JobComplete), func(job *batchv1.Job) {
				job.Status.Conditions[0].Status = corev1.ConditionFalse
			})},
			want: "wait with 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: Forbid: a run that is being deleted is under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", jobTerminating)},
			want: "wait with 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: Forbid: it is started late when the other has ended": {
			now: "12:40:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", complete("12:40:00"))},
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: Forbid: a run gives way to the next": {
			now: "13:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{running},
			want: "AlreadyActive 12:00:00, wait with 13:00:00, next 14:00:00, look in 1m0s"},
		"rule C8: Forbid: a run before the latest is given up after downtime, too": {
			now: "12:10:00", cronTab: newCronTab("10:00:00", forbid), jobs: []*batchv1.Job{jobAt("10:00:00", complete("10:01:00"))},
			want: "Superseded 11:00:00, start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C8: Allow: whatever is under way": {
			now: "12:10:00", cronTab: newCronTab("10:00:00"), jobs: []*batchv1.Job{jobAt("10:00:00")},
			want: "Superseded 11:00:00, start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: Forbid: the next is started when both are late": {
			now: "13:10:00", cronTab: newCronTab("11:00:00", forbid, missedAt("12:00:00")), jobs: []*batchv1.Job{done},
			want: "start 13:00:00, next 14:00:00, look in 1m0s"},
		"rule C10: Forbid: a Job by hand that belongs to the CronTab is under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", jobNamed("by-hand"))},
			want: "wait with 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: Forbid: somebody else's Job does not matter": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", ownedBy("", "", ""))},
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C10: Forbid: nor does that of an earlier CronTab of this name": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", ownedBy(cronTabKind, "backup", "uid-earlier"))},
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C9: Forbid: it is looked at the deadline": {
			now: "12:00:10.5", cronTab: newCronTab("11:00:00", forbid, deadline(30)), jobs: []*batchv1.Job{running},
			want: "wait with 12:00:00, next 13:00:00, look in 20.5s"},
		"rule C9: Forbid: a run that waited too long is given up": {
			now: "12:00:31", cronTab: newCronTab("11:00:00", forbid, deadline(30)), jobs: []*batchv1.Job{running},
			want: "MissedDeadline 12:00:00, next 13:00:00, look in 1m0s"},

		"rule C11: Replace: a run is started if none is under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{done},
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C11: Replace: the one under way is deleted": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{running},
			want: "replace 11:00:00, start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C11: Replace: all that are under way are deleted, and no other": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{running, jobAt("10:00:00"), jobAt("09:00:00", complete("09:01:00")), jobAt("08:00:00", ended(batchv1.JobFailed))},
			want: "replace 11:00:00, replace 10:00:00, start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C11: Replace: what is being deleted is not deleted again, and not waited for": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{jobAt("11:00:00", jobTerminating)},
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C11: Replace: nothing is deleted before the next run is due": {
			now: "11:59:59", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{running},
			want: "next 12:00:00, look in 1s"},
		"rule C11: Replace: nothing is deleted before the status tells of it": {
			now: "13:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{running, jobAt("12:00:00")},
			want: "started 12:00:00, wait with 13:00:00, next 14:00:00, look in 1m0s"},
		"rule C11: Replace: then it is": {
			now: "13:00:00", cronTab: newCronTab("12:00:00", replace), jobs: []*batchv1.Job{running, jobAt("12:00:00")},
			want: "replace 11:00:00, replace 12:00:00, start 13:00:00, next 14:00:00, look in 1m0s"},
		"rule C11: Replace: a run does not replace itself": {
			now: "12:00:01", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: "started 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C11: Replace: nothing is deleted for a run that is too late": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", replace, deadline(60)), jobs: []*batchv1.Job{running},
			want: "MissedDeadline 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C11: Replace: nothing is deleted for a run whose name is taken": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{running}, others: []*batchv1.Job{jobAt("12:00:00", ownedBy("", "", ""))},
			want: "JobNameTaken 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C11: Replace: somebody else's Job is not deleted": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{jobAt("11:00:00", ownedBy("CronJob", "backup", "uid-cronjob"))},
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},

		"rule C14: the name is taken by a Job without a controller": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", ownedBy("", "", ""))},
			want: "JobNameTaken 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C14: the name is taken by a CronJob's": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", ownedBy("CronJob", "backup", "uid-cronjob"))},
			want: "JobNameTaken 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C14: the name is taken by that of an earlier CronTab": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", ownedBy(cronTabKind, "backup", "uid-earlier"))},
			want: "JobNameTaken 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C14: our UID under another kind is somebody else": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", ownedBy("CronJob", "backup", "uid-backup"))},
			want: "JobNameTaken 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C14: an owner that is no controller is none": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", func(job *batchv1.Job) { job.OwnerReferences[0].Controller = nil })},
			want: "JobNameTaken 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C14: the next run goes on": {
			now: "13:00:00", cronTab: newCronTab("11:00:00", missedAt("12:00:00"), readyBecause(alphav1.ReasonJobNameTaken)),
			want: "start 13:00:00, next 14:00:00, look in 1m0s"},
		"rule C14: too late is too late, whoever has the name": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", deadline(60)), others: []*batchv1.Job{jobAt("12:00:00", ownedBy("", "", ""))},
			want: "MissedDeadline 12:00:00, next 13:00:00, look in 1m0s"},

		"rule C15: a Job of which the status does not know was started": {
			now: "12:00:01", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: "started 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C15: however late": {
			now: "12:30:00", cronTab: newCronTab("11:00:00", deadline(60)), jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: "started 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C15: a Job that only the API server knows of was started": {
			now: "12:30:00", cronTab: newCronTab("11:00:00", deadline(60)), others: []*batchv1.Job{jobAt("12:00:00")},
			want: "started 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C15: a Job that has ended was started, and stays until the status says so": {
			now: "12:00:01", cronTab: newCronTab("11:00:00", keeps(0, 0)), jobs: []*batchv1.Job{jobAt("12:00:00", ended(batchv1.JobFailed))},
			want: "started 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C15: a Job that is being deleted was started": {
			now: "12:00:01", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("12:00:00", jobTerminating)},
			want: "started 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C15: the one before the next, too": {
			now: "13:00:00", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: "started 12:00:00, start 13:00:00, next 14:00:00, look in 1m0s"},
		"rule C15: runs between those are told once the status is written": {
			now: "12:10:00", cronTab: newCronTab("06:00:00"), jobs: []*batchv1.Job{jobAt("12:00:00"), jobAt("09:00:00")},
			want: "started 12:00:00, Superseded 2x 07:00:00-08:00:00, Superseded 2x 10:00:00-11:00:00, next 13:00:00, look in 1m0s"},
		"rule C15: and those before the next": {
			now: "12:10:00", cronTab: newCronTab("06:00:00"), jobs: []*batchv1.Job{jobAt("08:00:00")},
			want: "started 08:00:00, Superseded 07:00:00, Superseded 3x 09:00:00-11:00:00, start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C15: in whatever order they are": {
			now: "12:10:00", cronTab: newCronTab("06:00:00"), jobs: []*batchv1.Job{jobAt("09:00:00"), jobAt("08:00:00")},
			want: "started 09:00:00, Superseded 07:00:00, Superseded 2x 10:00:00-11:00:00, start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C15: a Job of a former schedule was started, and what was due before is not": {
			now: "12:10:00", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("12:05:00")},
			want: "started 12:05:00, Superseded 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C15: a Job ahead of the clock does not matter": {
			now: "12:10:00", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("13:00:00")},
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C15: a Job with another name was not started by the schedule": {
			now: "12:10:00", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("12:00:00", jobNamed("backup-manual"))},
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C16: a refused Job is tried again": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", readyBecause(alphav1.ReasonJobRejected)),
			want: "start 12:00:00, next 13:00:00, look in 1m0s"},
		"rule C16: until the next run is due": {
			now: "13:00:00", cronTab: newCronTab("11:00:00", readyBecause(alphav1.ReasonJobRejected)),
			want: "JobRejected 12:00:00, start 13:00:00, next 14:00:00, look in 1m0s"},
	})
}
