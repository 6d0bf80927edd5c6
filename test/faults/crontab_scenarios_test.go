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

// cronTabScenarios are those of CronTabs. Each ends with one that is suspended, so that
// there is an end, and with one Job kept, so that it is the same however many runs the
// clock has made of it.
var cronTabScenarios = []*scenario{
	{
		sentence: "CronTab: its first run is started",
		prepare:  func(*run) {},
		operate:  func(r *run) { r.createCronTab("4s").anotherRun().suspend() },
		want:     []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		sentence: "CronTab: Forbid keeps a run waiting until the former one has ended",
		prepare:  func(r *run) { r.createCronTab("3s", forbid, endless).anotherRun() },
		operate: func(r *run) {
			r.nextIsDue().endJobs().anotherRun().suspend().endJobs()
		},
		want: []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		sentence: "CronTab: Replace ends the former run",
		prepare:  func(r *run) { r.createCronTab("4s", replace, endless).anotherRun() },
		operate:  func(r *run) { r.anotherRun().suspend().endJobs() },
		want:     []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		sentence: "CronTab: the history becomes shorter",
		prepare: func(r *run) {
			r.createCronTab("2s", keep(3)).anotherRun().anotherRun().anotherRun().suspend().completed(3)
		},
		operate: func(r *run) { r.patch("c", `{"spec":{"successfulJobsHistoryLimit":1}}`) },
		want:    []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		sentence: "CronTab: resumed too late for the run that was due meanwhile",
		prepare:  func(r *run) { r.createCronTab("10s", deadline(1)) },
		operate: func(r *run) {
			r.suspend().after(10*time.Second, 1).patch("c", `{"spec":{"suspend":false}}`).anotherRun().suspend()
		},
		want: []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		sentence: "CronTab: the name of a run's Job is taken",
		prepare:  func(r *run) { r.createCronTab("8s") },
		operate:  func(r *run) { r.takeName(8 * time.Second).settled(8 * time.Second).anotherRun().suspend() },
		want:     []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete", "Job foreign of nobody: active"},
	},
	{
		sentence: "CronTab: a Job is deleted by hand",
		prepare:  func(r *run) { r.createCronTab("5s").anotherRun() },
		operate:  func(r *run) { r.removeJob().anotherRun().suspend() },
		want:     []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		sentence: "CronTab: deleted in the foreground",
		prepare:  func(r *run) { r.createCronTab("3s", endless).anotherRun() },
		operate:  func(r *run) { r.remove("c", metav1.DeletePropagationForeground) },
		want:     []string{},
	},
	{
		sentence: "CronTab: deleted and made anew under the same name",
		prepare:  func(r *run) { r.createCronTab("3s", endless).anotherRun() },
		operate: func(r *run) {
			r.remove("c", metav1.DeletePropagationBackground).createCronTab("3s").anotherRun().suspend()
		},
		want: []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		sentence: "CronTab: runs fail",
		prepare:  func(r *run) { r.createCronTab("4s", endless).anotherRun() },
		operate:  func(r *run) { r.failJobs().anotherRun().suspend().failJobs() },
		want:     []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Failed"},
	},
	{
		sentence: "CronTab: another schedule",
		prepare:  func(r *run) { r.createCronTab("4s").anotherRun() },
		operate:  func(r *run) { r.reschedule("5s").anotherRun().reschedule("3s").anotherRun().suspend() },
		want:     []string{"CronTab c: Suspended, 0 active", "Job #1 of c: Complete"},
	},
	{
		sentence:      "CronTab: the namespace is deleted",
		prepare:       func(*run) {},
		operate:       func(r *run) { r.endNamespace(jobs, func() { r.createCronTab("4s") }) },
		want:          []string{},
		endsNamespace: true,
	},
}
