//go:build faults

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

package faults

import (
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// cronTabScenarios each end with a suspended CronTab, so that a final state exists, and
// with one Job kept, so that the final state does not depend on the number of runs.
var cronTabScenarios = []*scenario{
	{
		name:    "CronTab: its first run is started",
		prepare: func(*run) {},
		operate: func(r *run) { r.createCronTab("4s").awaitNextRun().suspend() },
		want:    []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		name:    "CronTab: Forbid delays a run until the previous one has finished",
		prepare: func(r *run) { r.createCronTab("3s", forbid, endless).awaitNextRun() },
		operate: func(r *run) {
			r.awaitNextDue().completeJobs().awaitNextRun().suspend().completeJobs()
		},
		want: []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		name:    "CronTab: Replace deletes the previous Job",
		prepare: func(r *run) { r.createCronTab("4s", replace, endless).awaitNextRun() },
		operate: func(r *run) { r.awaitNextRun().suspend().completeJobs() },
		want:    []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		name: "CronTab: the history limit is reduced",
		prepare: func(r *run) {
			r.createCronTab("2s", historyLimit(3)).awaitNextRun().awaitNextRun().awaitNextRun().suspend().awaitCompleted(3)
		},
		operate: func(r *run) { r.patch("c", `{"spec":{"successfulJobsHistoryLimit":1}}`) },
		want:    []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		name:    "CronTab: resumed after the deadline of a run",
		prepare: func(r *run) { r.createCronTab("10s", deadline(1)) },
		operate: func(r *run) {
			r.suspend().awaitDeadlinePassed(10*time.Second, 1).patch("c", `{"spec":{"suspend":false}}`).awaitNextRun().suspend()
		},
		want: []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		name:    "CronTab: the name of a run's Job is taken",
		prepare: func(r *run) { r.createCronTab("8s") },
		operate: func(r *run) { r.takeJobName(8 * time.Second).awaitMissed(8 * time.Second).awaitNextRun().suspend() },
		want:    []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete", "Job foreign without an owner: active"},
	},
	{
		name:    "CronTab: a Job is deleted by hand",
		prepare: func(r *run) { r.createCronTab("5s").awaitNextRun() },
		operate: func(r *run) { r.deleteJob().awaitNextRun().suspend() },
		want:    []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		name:    "CronTab: deleted in the foreground",
		prepare: func(r *run) { r.createCronTab("3s", endless).awaitNextRun() },
		operate: func(r *run) { r.delete("c", metav1.DeletePropagationForeground) },
		want:    []string{},
	},
	{
		name:    "CronTab: deleted and recreated under the same name",
		prepare: func(r *run) { r.createCronTab("3s", endless).awaitNextRun() },
		operate: func(r *run) {
			r.delete("c", metav1.DeletePropagationBackground).createCronTab("3s").awaitNextRun().suspend()
		},
		want: []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		name:    "CronTab: runs fail",
		prepare: func(r *run) { r.createCronTab("4s", endless).awaitNextRun() },
		operate: func(r *run) { r.failJobs().awaitNextRun().suspend().failJobs() },
		want:    []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Failed"},
	},
	{
		name:    "CronTab: another schedule",
		prepare: func(r *run) { r.createCronTab("4s").awaitNextRun() },
		operate: func(r *run) { r.reschedule("5s").awaitNextRun().reschedule("3s").awaitNextRun().suspend() },
		want:    []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		name:          "CronTab: the namespace is deleted",
		prepare:       func(*run) {},
		operate:       func(r *run) { r.deleteNamespaceDuringCreate(func() { r.createCronTab("4s") }) },
		want:          []string{},
		endsNamespace: true,
	},
}
