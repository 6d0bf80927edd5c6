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
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

func TestEvents(t *testing.T) {
	activeAt := func(clocks ...string) cronTabOption {
		return func(cronTab *alphav1.CronTab) {
			for _, clock := range clocks {
				cronTab.Status.Active = append(cronTab.Status.Active, references([]*batchv1.Job{jobAt(clock)})...)
			}
		}
	}
	tests := map[string]struct {
		now     string
		cronTab *alphav1.CronTab
		jobs    []*batchv1.Job
		res     result
		want    string
	}{
		"rule C19: a Job is complete": {
			now: "11:30:00", cronTab: newCronTab("11:00:00", activeAt("10:00:00", "11:00:00")), jobs: []*batchv1.Job{jobAt("10:00:00"), jobAt("11:00:00", complete("11:20:00"))},
			want: `Normal JobCompleted: Job "backup-1795258800" is complete`},
		"rule C19: a Job has failed": {
			now: "11:30:00", cronTab: newCronTab("11:00:00", activeAt("11:00:00")), jobs: []*batchv1.Job{jobAt("11:00:00", ended(batchv1.JobFailed))},
			want: `Warning JobFailed: Job "backup-1795258800" has failed`},
		"rule C19: a time zone does not exist": {
			now: "12:00:09", cronTab: newCronTab("11:00:00", inZone("Europe/Belin")), jobs: []*batchv1.Job{jobAt("12:00:00")},
			want: `Warning UnknownTimeZone: spec.timeZone "Europe/Belin": unknown time zone Europe/Belin`},
		"rule C19: a Job that was not replaced has no event": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", policy(alphav1.ReplaceConcurrent), activeAt("11:00:00")), jobs: []*batchv1.Job{jobAt("11:00:00")}},
		"rule C19: a finished Job that was not active has no event": {
			now: "12:30:00", cronTab: newCronTab("12:00:00", activeAt("12:00:00")), jobs: []*batchv1.Job{jobAt("11:00:00", complete("11:00:05")), jobAt("12:00:00")}},
		"rule C19: a Job ahead of the clock has no event before its time": {
			now: "12:30:00", cronTab: newCronTab("12:00:00"), jobs: []*batchv1.Job{jobAt("13:00:00", complete("12:29:00"))}},
		"rule C19: a finished Job that the status recorded before has no event": {
			now: "12:00:09", cronTab: newCronTab("12:00:00"), jobs: []*batchv1.Job{jobAt("12:00:00", complete("12:00:05"))}},
		"rule C19: two groups of superseded runs": {
			now: "12:10:00", cronTab: newCronTab("06:00:00"), jobs: []*batchv1.Job{jobAt("09:00:00")},
			want: `Warning MissedRuns: not started: 2 runs due from 2026-11-21T07:00:00Z to 2026-11-21T08:00:00Z; a later run was already due or started
Warning MissedRuns: not started: 2 runs due from 2026-11-21T10:00:00Z to 2026-11-21T11:00:00Z; a later run was already due or started`},
		"rule C19: one missed run": {
			now: "13:00:00", cronTab: newCronTab("11:00:00", policy(alphav1.ForbidConcurrent), activeAt("11:00:00")), jobs: []*batchv1.Job{jobAt("11:00:00")},
			want: `Warning MissedRuns: not started: the run due at 2026-11-21T12:00:00Z; an earlier run was under way, and spec.concurrencyPolicy is Forbid`},
		"rule C19: a hundred missed runs": {
			now: "12:00:00", cronTab: newCronTab("10:19:00", schedulesAt("* * * * *")),
			want: `Warning MissedRuns: not started: 100 runs due from 2026-11-21T10:20:00Z to 2026-11-21T11:59:00Z; a later run was already due or started`},
		"rule C19: more than a hundred missed runs": {
			now: "12:00:00", cronTab: newCronTab("20T12:00:00", schedulesAt("* * * * *"), readyBecause("Suspended")),
			want: `Warning MissedRuns: not started: more than 100 runs due from 2026-11-20T12:01:00Z to 2026-11-21T11:59:00Z; spec.suspend was true`},
		"rule C19: a refused run": {
			now: "13:00:00", cronTab: newCronTab("11:00:00", readyBecause("JobRejected")),
			want: `Warning MissedRuns: not started: the run due at 2026-11-21T12:00:00Z; the API server did not create the Job`},
		"rule C19: a run of a former schedule": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", schedulesAt("30 * * * *"), scheduled("0 * * * *", "20T10:30:00")),
			want: `Warning MissedRuns: not started: the run due at 2026-11-21T12:00:00Z; the schedule was changed before`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			_, events := statusAndEvents(test.now, test.cronTab, test.jobs, nil, test.res)
			var got []string
			for _, event := range events {
				got = append(got, fmt.Sprintf("%s %s: %s", event.Type, event.Reason, event.Message))
			}
			if diff := cmp.Diff(test.want, strings.Join(got, "\n")); diff != "" {
				t.Errorf("events (-want +got):\n%s", diff)
			}
		})
	}
}
