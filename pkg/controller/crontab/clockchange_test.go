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
	"time"

	"github.com/google/go-cmp/cmp"
	"github.com/robfig/cron/v3"
)

// TestClockChanges is the table of docs/crontab.md: the runs on days when clocks change.
func TestClockChanges(t *testing.T) {
	tests := map[string]struct {
		zone, schedule string
		// from and to are days in the zone, the latter included.
		from, to string
		want     string
		// library are the times of the cron library, if they differ.
		library string
	}{
		"a skipped time has no run: Berlin, 2:00 becomes 3:00": {
			zone: "Europe/Berlin", schedule: "30 2 * * *", from: "2026-03-28", to: "2026-03-30",
			want: "28T02:30+01:00 30T02:30+02:00"},
		"the time that clocks go forward to has one run": {
			zone: "Europe/Berlin", schedule: "0 3 * * *", from: "2026-03-28", to: "2026-03-29",
			want: "28T03:00+01:00 29T03:00+02:00"},
		"every half hour stays every half hour as clocks go forward": {
			zone: "Europe/Berlin", schedule: "*/30 1-3 * * *", from: "2026-03-29", to: "2026-03-29",
			want: "29T01:00+01:00 29T01:30+01:00 29T03:00+02:00 29T03:30+02:00"},
		"a repeated time has two runs: Berlin, 3:00 becomes 2:00": {
			zone: "Europe/Berlin", schedule: "30 2 * * *", from: "2026-10-24", to: "2026-10-26",
			want: "24T02:30+02:00 25T02:30+02:00 25T02:30+01:00 26T02:30+01:00"},
		"the time that clocks go back from has one run": {
			zone: "Europe/Berlin", schedule: "0 3 * * *", from: "2026-10-25", to: "2026-10-25",
			want: "25T03:00+01:00"},
		"midnight does not change: Berlin, @daily": {
			zone: "Europe/Berlin", schedule: "@daily", from: "2026-10-25", to: "2026-10-26",
			want: "25T00:00+02:00 26T00:00+01:00"},
		"a skipped time has no run: New York, 2:00 becomes 3:00": {
			zone: "America/New_York", schedule: "30 2 * * *", from: "2026-03-07", to: "2026-03-09",
			want: "07T02:30-05:00 09T02:30-04:00"},
		"a repeated time has two runs: New York, 2:00 becomes 1:00": {
			zone: "America/New_York", schedule: "30 1 * * *", from: "2026-10-31", to: "2026-11-02",
			want: "31T01:30-04:00 01T01:30-04:00 01T01:30-05:00 02T01:30-05:00"},
		"a skipped half hour: Lord Howe, 2:00 becomes 2:30": {
			zone: "Australia/Lord_Howe", schedule: "15 2 * * *", from: "2026-10-03", to: "2026-10-05",
			want: "03T02:15+10:30 05T02:15+11:00"},
		"runs after a skipped half hour are not lost": {
			zone: "Australia/Lord_Howe", schedule: "0 3 * * *", from: "2026-10-03", to: "2026-10-05",
			want:    "03T03:00+10:30 04T03:00+11:00 05T03:00+11:00",
			library: "03T03:00+10:30 05T03:00+11:00"},
		"a repeated half hour: Lord Howe, 2:00 becomes 1:30": {
			zone: "Australia/Lord_Howe", schedule: "15,45 1 * * *", from: "2026-04-05", to: "2026-04-05",
			want: "05T01:15+11:00 05T01:45+11:00 05T01:45+10:30"},
		"a day without a midnight: Sao Paulo, 0:00 becomes 1:00": {
			zone: "America/Sao_Paulo", schedule: "@daily", from: "2018-11-03", to: "2018-11-05",
			want: "03T00:00-03:00 05T00:00-02:00"},
		"a day without a midnight is not lost": {
			zone: "America/Sao_Paulo", schedule: "0 12 4 11 *", from: "2018-11-03", to: "2018-11-05",
			want: "04T12:00-02:00"},
		"hours of a day without a midnight are not those of the day before": {
			zone: "America/Sao_Paulo", schedule: "0 1 3 11 *", from: "2018-11-03", to: "2018-11-05",
			want: "03T01:00-03:00", library: "03T01:00-03:00 04T01:00-02:00"},
		"a day with two ends: Sao Paulo, 0:00 becomes 23:00": {
			zone: "America/Sao_Paulo", schedule: "30 23 * * *", from: "2018-02-17", to: "2018-02-18",
			want: "17T23:30-02:00 17T23:30-03:00 18T23:30-03:00"},
		"midnight after a day with two ends has one run": {
			zone: "America/Sao_Paulo", schedule: "@daily", from: "2018-02-17", to: "2018-02-19",
			want: "17T00:00-02:00 18T00:00-03:00 19T00:00-03:00"},
		"a day without a midnight: Beirut": {
			zone: "Asia/Beirut", schedule: "0 0,1 * * *", from: "2026-03-29", to: "2026-03-30",
			want: "29T01:00+03:00 30T00:00+03:00 30T01:00+03:00"},
		"a week whose Sunday has no midnight: Beirut, @weekly": {
			zone: "Asia/Beirut", schedule: "@weekly", from: "2026-03-22", to: "2026-04-05",
			want: "22T00:00+02:00 05T00:00+03:00"},
		"a day without a midnight: Cairo": {
			zone: "Africa/Cairo", schedule: "@daily", from: "2026-04-23", to: "2026-04-25",
			want: "23T00:00+02:00 25T00:00+03:00"},
		"a day with two ends: Cairo, 0:00 becomes 23:00": {
			zone: "Africa/Cairo", schedule: "0 0,23 * * *", from: "2026-10-29", to: "2026-10-30",
			want: "29T00:00+03:00 29T23:00+03:00 29T23:00+02:00 30T00:00+02:00 30T23:00+02:00"},
		"a skipped day: Apia crossed the date line": {
			zone: "Pacific/Apia", schedule: "0 12 * * *", from: "2011-12-29", to: "2011-12-31",
			want: "29T12:00-10:00 31T12:00+14:00"},
		"clocks that go back for Ramadan: Casablanca, 3:00 becomes 2:00": {
			zone: "Africa/Casablanca", schedule: "30 2 * * *", from: "2026-02-14", to: "2026-02-16",
			want: "14T02:30+01:00 15T02:30+01:00 15T02:30+00:00 16T02:30+00:00"},
		"two skipped hours: Troll, 1:00 becomes 3:00": {
			zone: "Antarctica/Troll", schedule: "30 0-3 * * *", from: "2026-03-29", to: "2026-03-29",
			want: "29T00:30+00:00 29T03:30+02:00"},
		"a zone without summer time": {
			zone: "Asia/Kathmandu", schedule: "30 2 * * *", from: "2026-03-28", to: "2026-03-30",
			want: "28T02:30+05:45 29T02:30+05:45 30T02:30+05:45"},
		"@every ignores changes of clocks": {
			zone: "Europe/Berlin", schedule: "@every 8h", from: "2026-03-28", to: "2026-03-29",
			want: "28T01:00+01:00 28T09:00+01:00 28T17:00+01:00 29T01:00+01:00 29T10:00+02:00 29T18:00+02:00"},
	}
	for name, test := range tests {
		t.Run("rule C5: "+name, func(t *testing.T) {
			zone := zoneOf(t, test.zone)
			from, errFrom := time.ParseInLocation(time.DateOnly, test.from, zone)
			to, errTo := time.ParseInLocation(time.DateOnly, test.to, zone)
			if errFrom != nil || errTo != nil {
				t.Fatal(errFrom, errTo)
			}
			from, to = from.Add(-time.Second), to.AddDate(0, 0, 1).Add(-time.Second)
			if diff := cmp.Diff(test.want, inLocalTime(timesBetween(scheduleOf(t, test.schedule, zone), from, to), zone)); diff != "" {
				t.Errorf("times (-want +got):\n%s", diff)
			}
			if strings.HasPrefix(test.schedule, "@every") {
				return
			}
			want := test.library
			if want == "" {
				want = test.want
			}
			if diff := cmp.Diff(want, byLibrary(t, test.schedule, zone, from, to)); diff != "" {
				t.Errorf("the library's times, which CronJobs have (-want +got):\n%s", diff)
			}
		})
	}
}

// byLibrary returns the times of the cron library.
func byLibrary(t *testing.T, text string, zone *time.Location, from, to time.Time) string {
	t.Helper()
	parsed, err := cron.ParseStandard(text)
	if err != nil {
		t.Fatal(err)
	}
	var found []time.Time
	for due := parsed.Next(from.In(zone)); !due.IsZero() && !due.After(to); due = parsed.Next(due) {
		found = append(found, due)
	}
	return inLocalTime(found, zone)
}

func inLocalTime(times []time.Time, zone *time.Location) string {
	var words []string
	for _, due := range times {
		words = append(words, due.In(zone).Format("02T15:04-07:00"))
	}
	return strings.Join(words, " ")
}
