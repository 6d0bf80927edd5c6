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
	checkDecisions(t, map[string]decideTest{
		"rule C10: Allow: a run is started while another is under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", policy(alphav1.AllowConcurrent)), jobs: []*batchv1.Job{running},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: the default policy is Allow": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{running},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: Forbid: a run is started if none is under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{done},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: Forbid: a failed run does not count as under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", ended(batchv1.JobFailed))},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: Forbid: a run waits for the run under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{running},
			want: "hold 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: Forbid: a run waits if one of many is under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("10:00:00", complete("10:01:00")), running, jobAt("09:00:00", complete("09:01:00"))},
			want: "hold 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: Forbid: a run whose Job is about to fail counts as under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", ended(batchv1.JobFailureTarget))},
			want: "hold 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: Forbid: a run whose condition Complete is False counts as under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", ended(batchv1.JobComplete), func(job *batchv1.Job) {
				job.Status.Conditions[0].Status = corev1.ConditionFalse
			})},
			want: "hold 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: Forbid: a run whose Job is being deleted counts as under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", jobTerminating)},
			want: "hold 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: Forbid: a run that has waited is started when the other has ended": {
			now: "12:40:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", complete("12:40:00"))},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: Forbid: a run that waits is missed when the next is due": {
			now: "13:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{running},
			want: "AlreadyActive 12:00:00, hold 13:00:00, next 14:00:00, requeue after 1m0s"},
		"rule C8: Forbid: after downtime a run before the latest is superseded": {
			now: "12:10:00", cronTab: newCronTab("10:00:00", forbid), jobs: []*batchv1.Job{jobAt("10:00:00", complete("10:01:00"))},
			want: "Superseded 11:00:00, start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C8: Allow: a run before the latest is superseded while another is under way": {
			now: "12:10:00", cronTab: newCronTab("10:00:00"), jobs: []*batchv1.Job{jobAt("10:00:00")},
			want: "Superseded 11:00:00, start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: Forbid: after a missed run the next one is started": {
			now: "13:10:00", cronTab: newCronTab("11:00:00", forbid, missedAt("12:00:00")), jobs: []*batchv1.Job{done},
			want: "start 13:00:00, next 14:00:00, requeue after 1m0s"},
		"rule C10: Forbid: a Job that a user created for the CronTab counts as under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", jobNamed("by-hand"))},
			want: "hold 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: Forbid: a Job without an owner does not count": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", ownedBy("", "", ""))},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C10: Forbid: a Job of an earlier CronTab of this name does not count": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", forbid), jobs: []*batchv1.Job{jobAt("11:00:00", ownedBy(cronTabGVK().Kind, "backup", "uid-earlier"))},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C9: Forbid: the next sync is at the deadline": {
			now: "12:00:10.5", cronTab: newCronTab("11:00:00", forbid, deadline(30)), jobs: []*batchv1.Job{running},
			want: "hold 12:00:00, next 13:00:00, requeue after 20.5s"},
		"rule C9: Forbid: a run that waits past its deadline is missed": {
			now: "12:00:31", cronTab: newCronTab("11:00:00", forbid, deadline(30)), jobs: []*batchv1.Job{running},
			want: "MissedDeadline 12:00:00, next 13:00:00, requeue after 1m0s"},

		"rule C11: Replace: a run is started if none is under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{done},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C11: Replace: the Job under way is deleted": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{running},
			want: "replace 11:00:00, start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C11: Replace: all Jobs under way are deleted, and no others": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{running, jobAt("10:00:00"), jobAt("09:00:00", complete("09:01:00")), jobAt("08:00:00", ended(batchv1.JobFailed))},
			want: "replace 11:00:00, replace 10:00:00, start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C11: Replace: a Job that is being deleted is not deleted again, and the run does not wait": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{jobAt("11:00:00", jobTerminating)},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C11: Replace: no Job is deleted before the next run is due": {
			now: "11:59:59", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{running},
			want: "next 12:00:00, requeue after 1s"},
		"rule C11: Replace: no Job is deleted before the status records its run": {
			now: "13:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{running, jobAt("12:00:00")},
			want: "started 12:00:00, hold 13:00:00, next 14:00:00, requeue after 1m0s"},
		"rule C11: Replace: a Job is deleted once the status records its run": {
			now: "13:00:00", cronTab: newCronTab("12:00:00", replace), jobs: []*batchv1.Job{running, jobAt("12:00:00")},
			want: "replace 11:00:00, replace 12:00:00, start 13:00:00, next 14:00:00, requeue after 1m0s"},
		"rule C11: Replace: a run does not replace itself": {
			now: "12:00:01", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: "started 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C11: Replace: no Job is deleted for a run that has missed its deadline": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", replace, deadline(60)), jobs: []*batchv1.Job{running},
			want: "MissedDeadline 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C11: Replace: no Job is deleted for a run whose name is taken": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{running}, others: []*batchv1.Job{jobAt("12:00:00", ownedBy("", "", ""))},
			want: "JobNameTaken 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C11: Replace: a Job of another controller is not deleted": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", replace), jobs: []*batchv1.Job{jobAt("11:00:00", ownedBy("CronJob", "backup", "uid-cronjob"))},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},

		"rule C14: the name is taken by a Job without a controller": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", ownedBy("", "", ""))},
			want: "JobNameTaken 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C14: the name is taken by a Job of a CronJob": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", ownedBy("CronJob", "backup", "uid-cronjob"))},
			want: "JobNameTaken 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C14: a CronJob of the same name and schedule does not take the name": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", jobNamed("backup-29921040"), ownedBy("CronJob", "backup", "uid-cronjob"))},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C14: the name is taken by a Job of an earlier CronTab": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", ownedBy(cronTabGVK().Kind, "backup", "uid-earlier"))},
			want: "JobNameTaken 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C14: the CronTab's UID under another kind is another owner": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", ownedBy("CronJob", "backup", "uid-backup"))},
			want: "JobNameTaken 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C14: an owner reference without controller does not make the Job the CronTab's": {
			now: "12:00:00", cronTab: newCronTab("11:00:00"), others: []*batchv1.Job{jobAt("12:00:00", func(job *batchv1.Job) { job.OwnerReferences[0].Controller = nil })},
			want: "JobNameTaken 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C14: the next run is started": {
			now: "13:00:00", cronTab: newCronTab("11:00:00", missedAt("12:00:00"), readyBecause(alphav1.ReasonJobNameTaken)),
			want: "start 13:00:00, next 14:00:00, requeue after 1m0s"},
		"rule C14: a missed deadline is reported before a taken name": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", deadline(60)), others: []*batchv1.Job{jobAt("12:00:00", ownedBy("", "", ""))},
			want: "MissedDeadline 12:00:00, next 13:00:00, requeue after 1m0s"},

		"rule C15: a run that has a Job was started": {
			now: "12:00:01", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: "started 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C15: a run that has a Job was started, even past its deadline": {
			now: "12:30:00", cronTab: newCronTab("11:00:00", deadline(60)), jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: "started 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C15: a run whose Job only the API server shows was started": {
			now: "12:30:00", cronTab: newCronTab("11:00:00", deadline(60)), others: []*batchv1.Job{jobAt("12:00:00")},
			want: "started 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C15: a finished Job stays until the status records its run": {
			now: "12:00:01", cronTab: newCronTab("11:00:00", keeps(0, 0)), jobs: []*batchv1.Job{jobAt("12:00:00", ended(batchv1.JobFailed))},
			want: "started 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C15: a run whose Job is being deleted was started": {
			now: "12:00:01", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("12:00:00", jobTerminating)},
			want: "started 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C15: a started run is recorded when the next is started": {
			now: "13:00:00", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: "started 12:00:00, start 13:00:00, next 14:00:00, requeue after 1m0s"},
		"rule C15: runs between started runs are missed": {
			now: "12:10:00", cronTab: newCronTab("06:00:00"), jobs: []*batchv1.Job{jobAt("12:00:00"), jobAt("09:00:00")},
			want: "started 12:00:00, Superseded 2x 07:00:00-08:00:00, Superseded 2x 10:00:00-11:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C15: runs before and after a started run are missed": {
			now: "12:10:00", cronTab: newCronTab("06:00:00"), jobs: []*batchv1.Job{jobAt("08:00:00")},
			want: "started 08:00:00, Superseded 07:00:00, Superseded 3x 09:00:00-11:00:00, start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C15: the order of the Jobs does not matter": {
			now: "12:10:00", cronTab: newCronTab("06:00:00"), jobs: []*batchv1.Job{jobAt("09:00:00"), jobAt("08:00:00")},
			want: "started 09:00:00, Superseded 07:00:00, Superseded 2x 10:00:00-11:00:00, start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C15: a run of a former schedule supersedes runs that were due before": {
			now: "12:10:00", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("12:05:00")},
			want: "started 12:05:00, Superseded 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C15: a Job ahead of the clock is ignored": {
			now: "12:10:00", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("13:00:00")},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C15: a Job with another name is not of a run": {
			now: "12:10:00", cronTab: newCronTab("11:00:00"), jobs: []*batchv1.Job{jobAt("12:00:00", jobNamed("backup-manual"))},
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C17: a failed Job stays until the status records when it failed": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", keeps(0, 0)), jobs: []*batchv1.Job{jobAt("11:00:00", failed("11:10:00"))},
			want: "next 13:00:00, requeue after 1m0s"},
		"rule C16: a refused Job is tried again": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", readyBecause(alphav1.ReasonJobRejected)),
			want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C16: a refused Job is missed when the next run is due": {
			now: "13:00:00", cronTab: newCronTab("11:00:00", readyBecause(alphav1.ReasonJobRejected)),
			want: "JobRejected 12:00:00, start 13:00:00, next 14:00:00, requeue after 1m0s"},
	})
}
