//go:build !race

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
	"time"

	batchv1 "k8s.io/api/batch/v1"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// TestYears syncs CronTabs for years, only when a run is due. Each Job runs until the next.
// Every run is started once, in the second when it is due. It has one goroutine, and would take
// minutes with the race detector.
func TestYears(t *testing.T) {
	skipIfShort(t)
	tests := map[string]struct {
		schedule, zone string
		years          int
		policy         alphav1.ConcurrencyPolicy
		// runs is their number: 1461 days in four years, 3653 in ten. In Berlin 2:30 is skipped
		// once and repeated once in each year. No run is due at the begin and end of a test.
		runs int
	}{
		"rule C7: four years of days":                       {schedule: "@daily", zone: "UTC", years: 4, runs: 1461},
		"rule C7: ten years of days in Berlin":              {schedule: "@daily", zone: "Europe/Berlin", years: 10, runs: 3653},
		"rule C7: ten years of half past two in Berlin":     {schedule: "30 2 * * *", zone: "Europe/Berlin", years: 10, runs: 3652},
		"rule C7: ten years of days without some midnights": {schedule: "@daily", zone: "Asia/Beirut", years: 10, runs: 3643},
		"rule C7: a century of years":                       {schedule: "@yearly", zone: "America/New_York", years: 100, runs: 100},
		"rule C7: a century of leap days":                   {schedule: "0 0 29 2 *", zone: "UTC", years: 100, runs: 24},
		"rule C7: a year of hours":                          {schedule: "@hourly", zone: "Australia/Lord_Howe", years: 1, runs: 8758},
		"rule C10: four years of days, Forbid":              {schedule: "@daily", zone: "UTC", years: 4, policy: alphav1.ForbidConcurrent, runs: 1461},
		"rule C11: four years of days, Replace":             {schedule: "@daily", zone: "UTC", years: 4, policy: alphav1.ReplaceConcurrent, runs: 1461},
		"rule C4: ten years of @every with an odd delay":    {schedule: "@every 12h34m56s", zone: "UTC", years: 10, runs: 6967},
		"rule C4: a century of @every with a longer delay":  {schedule: "@every 8760h", zone: "UTC", years: 100, runs: 100},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			// That is 2:30 in Berlin and 11:00 on Lord Howe, where each year has an hour less that
			// is full.
			cronTab := newUnseen(schedulesAt(test.schedule), inZone(test.zone), policy(test.policy))
			cronTab.CreationTimestamp.Time = time.Date(2026, 6, 1, 0, 30, 0, 0, time.UTC)
			e := newEnv(cronTab)
			end := e.now().AddDate(test.years, 0, 0)
			for e.now().Before(end) {
				for _, job := range activeJobs(e.owned()) {
					e.end(job, batchv1.JobComplete)
				}
				if _, err := e.sync(); err != nil {
					t.Fatal(err)
				}
				if e.cronTab.Status.NextScheduleTime == nil {
					t.Fatalf("after %v there is no next run", e.now())
				}
				e.clock.SetTime(e.cronTab.Status.NextScheduleTime.Time)
			}
			for _, violation := range e.violations {
				t.Error(violation)
			}
			if len(e.started) != test.runs || len(e.missed) != 0 || e.late != 0 {
				t.Errorf("%d runs were started, want %d; %v were missed; the latest was %v late", len(e.started), test.runs, e.missed, e.late)
			}
			// Three are kept, one is under way, one has just ended.
			if left := len(e.owned()); left > 5 {
				t.Errorf("rule C17: %d Jobs are left", left)
			}
		})
	}
}
