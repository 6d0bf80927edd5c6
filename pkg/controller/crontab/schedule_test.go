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
	"cmp"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"pgregory.net/rapid"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/test/fixture"
)

// begin is a Thursday, from which @every counts.
var begin = time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)

// scheduleOf parses a schedule.
func scheduleOf(t *testing.T, text, zoneName string) schedule {
	t.Helper()
	times, unreadable := read(alphav1.ObservedSchedule{Schedule: text, TimeZone: zoneName, Since: metav1.NewTime(begin)})
	if unreadable.Reason != "" {
		t.Fatal(unreadable.Message)
	}
	return times
}

// timesBetween returns all times after the first given and not after the second.
func timesBetween(next func(time.Time) time.Time, after, until time.Time) []time.Time {
	var found []time.Time
	for due := next(after); !due.IsZero() && !due.After(until); due = next(due) {
		found = append(found, due)
	}
	return found
}

// TestParse: the first five times in 2026.
func TestParse(t *testing.T) {
	for text, want := range map[string]string{
		"0 0 * * mon-TUE":    "01-05T00:00:00 01-06T00:00:00 01-12T00:00:00 01-13T00:00:00 01-19T00:00:00",
		"0 0 13 * 5":         "01-02T00:00:00 01-09T00:00:00 01-13T00:00:00 01-16T00:00:00 01-23T00:00:00",
		"0 0 */10 * 1":       "01-05T00:00:00 01-11T00:00:00 01-12T00:00:00 01-19T00:00:00 01-21T00:00:00",
		"\t0  12 1\n* * ":    "01-01T12:00:00 02-01T12:00:00 03-01T12:00:00 04-01T12:00:00 05-01T12:00:00",
		" @weekly\n":         "01-04T00:00:00 01-11T00:00:00 01-18T00:00:00 01-25T00:00:00 02-01T00:00:00",
		"@every  1h30m":      "01-01T01:30:00 01-01T03:00:00 01-01T04:30:00 01-01T06:00:00 01-01T07:30:00",
		"@every 2000ms":      "01-01T00:00:02 01-01T00:00:04 01-01T00:00:06 01-01T00:00:08 01-01T00:00:10",
		"@every 2562047h47m": "",
	} {
		times := scheduleOf(t, text, "")
		var got []string
		for due := times.next(begin); len(got) < 5 && due.Year() == 2026; due = times.next(due) {
			got = append(got, due.Format("01-02T15:04:05"))
		}
		fixture.Differ(t, "rule C2: "+text, want, strings.Join(got, " "))
	}
}

func TestParseErrors(t *testing.T) {
	for text, want := range map[string]string{
		"60 0 * * *":          `field 1 (minute) of "60 0 * * *": `,
		"0 , * * *":           `field 2 (hour) of "0 , * * *": there is no value in it`,
		"0 0 0 * *":           `field 3 (day of month) of "0 0 0 * *": `,
		"0 0 * * 7":           `field 5 (day of week)`,
		"0 0 * *":             `the number of fields in "0 0 * *" is 4 and not five: minute, hour, day of month, month, day`,
		"":                    `the number of fields in "" is 0`,
		"@dayly":              `"@dayly": `,
		"@every":              `the duration of "@every": `,
		"@every 1500ms":       "not one or more whole seconds",
		"@every 0s":           "not one or more whole seconds",
		"@every 9999999999h":  `the duration of "@every 9999999999h": `,
		" CRON_TZ= 0 0 * * *": `names a time zone; set spec.timeZone`,
	} {
		if _, err := parse(text, time.UTC, begin); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("rule C3: parse(%q): %v, want %q in it", text, err, want)
		}
	}
}

func TestLoadZone(t *testing.T) {
	for name, want := range map[string]bool{
		"": true, "UTC": true, "Europe/Berlin": true, "Etc/GMT+5": true, "Asia/Kathmandu": true,
		"Local": false, "local": false, "Europe/Belin": false, "../zone": false, "/etc/localtime": false, "+02:00": false,
	} {
		zone, err := loadZone(name)
		if (err == nil) != want || name == "" && zone != time.UTC {
			t.Errorf("rule C3: loadZone(%q): %v, %v", name, zone, err)
		}
	}
}

// TestCount: count stops at the limit, and no method takes long for a long period.
func TestCount(t *testing.T) {
	for s, want := range map[string]int{"@daily": 31, "@hourly": 101, "@every 1s": 101, "0 0 31 * *": 1, "0 0 30 2 *": 0} {
		times := scheduleOf(t, s, "")
		fixture.Differ(t, "rule C8: in January "+s, want, count(times, begin, begin.AddDate(0, 1, 0), maxCount+1))
		if allocations := testing.AllocsPerRun(1, func() {
			count(times, begin, begin.AddDate(1000, 0, 0), maxCount+1)
			times.latest(begin, begin.AddDate(100, 0, 0))
			times.next(begin)
		}); allocations > 100 {
			t.Errorf("rule C8: %s: %v allocations", s, allocations)
		}
	}
}

// TestAgainstTheLibrary: if clocks change at night and by whole hours, the cron library returns the same times, and latest finds them.
func TestAgainstTheLibrary(t *testing.T) {
	// All values, but few of the days that not every month has, and no range that is empty.
	fields := rapid.StringMatching(`(\*|\*/[1-9]|[1-5]?[0-9](,[1-5]?[0-9])?|[12]?[0-9]-[3-5][0-9]) ` +
		`(\*|\*/[1-9]|1?[0-9](,2[0-3])?|1?[0-9]-2[0-3]) (\*|\*/[1-9]|1?[1-9](,2[0-8])?|[1-9]-1[0-9]) ` +
		`(\*|\*/[1-9]|[1-9](,1[0-2])?|[1-9]-1[0-2]) (\*|\*/[1-6]|[0-6](,[0-6])?|[0-3]-[3-6])`)
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Sydney", "Pacific/Auckland"} {
		texts := []string{"? 4 ? * ?", "0 0 31 * *", "0 0 29 2 *", "@daily", "@midnight", "@monthly", "@yearly", "@annually", "@hourly"}
		for seed := range 25 {
			texts = append(texts, fields.Example(seed))
		}
		for _, text := range texts {
			parsed, err := cron.ParseStandard("CRON_TZ=" + name + " " + text)
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs, times := begin, begin, scheduleOf(t, text, name)
			for n := 0; n < 300 && !ours.IsZero() && ours.Year() < 2090; n++ {
				before := ours
				ours, theirs = times.next(ours), parsed.Next(theirs)
				if !ours.Equal(theirs) || !times.latest(before, ours.Add(-time.Second)).IsZero() || !times.latest(before, ours).Equal(ours) {
					t.Fatalf("rule C2: %q in %s: %v after %v, the library says %v", text, name, ours, before, theirs)
				}
			}
		}
	}
}

// TestClockChanges has the table of docs/crontab.md, and more: the runs on days when clocks change.
func TestClockChanges(t *testing.T) {
	const berlin, lordHowe, saoPaulo = "Europe/Berlin", "Australia/Lord_Howe", "America/Sao_Paulo"
	for _, test := range []struct {
		sentence, zone, schedule string
		// from is the first of some days in the zone.
		from string
		days int
		// library are the times of the cron library, which CronJobs have, if they differ.
		want, library string
	}{
		{"a skipped time has no run", berlin, "30 2 * * *", "2026-03-28", 3, "28T02:30+01:00 30T02:30+02:00", ""},
		{"the time clocks go forward to has one", berlin, "0 3 * * *", "2026-03-28", 2, "28T03:00+01:00 29T03:00+02:00", ""},
		{"a repeated one has two", berlin, "30 2 * * *", "2026-10-25", 2, "25T02:30+02:00 25T02:30+01:00 26T02:30+01:00", ""},
		{"the time clocks go back from has one", berlin, "0 3 * * *", "2026-10-25", 1, "25T03:00+01:00", ""},
		{"midnight does not change", berlin, "@daily", "2026-10-25", 2, "25T00:00+02:00 26T00:00+01:00", ""},
		{"a skipped half hour", lordHowe, "15 2 * * *", "2026-10-03", 3, "03T02:15+10:30 05T02:15+11:00", ""},
		{"no run after is lost", lordHowe, "0 3 * * *", "2026-10-03", 2, "03T03:00+10:30 04T03:00+11:00", "03T03:00+10:30"},
		{"a half hour twice", lordHowe, "15,45 1 * * *", "2026-04-05", 1, "05T01:15+11:00 05T01:45+11:00 05T01:45+10:30", ""},
		{"a day without a midnight", saoPaulo, "@daily", "2018-11-03", 3, "03T00:00-03:00 05T00:00-02:00", ""},
		{"its hours are its own", saoPaulo, "0 1 3 11 *", "2018-11-03", 3, "03T01:00-03:00", "03T01:00-03:00 04T01:00-02:00"},
		{"a day with two ends", saoPaulo, "30 23 * * *", "2018-02-17", 2, "17T23:30-02:00 17T23:30-03:00 18T23:30-03:00", ""},
		{"a week whose Sunday has none", "Asia/Beirut", "@weekly", "2026-03-22", 15, "22T00:00+02:00 05T00:00+03:00", ""},
		{"odd seconds", "Africa/Monrovia", "0 0 * * *", "1972-01-06", 3, "06T00:00-00:44 08T00:00+00:00", "06T00:00-00:44"},
		{"a skipped day", "Pacific/Apia", "0 12 * * *", "2011-12-29", 3, "29T12:00-10:00 31T12:00+14:00", ""},
		{"two skipped hours", "Antarctica/Troll", "30 0-3 * * *", "2026-03-29", 1, "29T00:30+00:00 29T03:30+02:00", ""},
	} {
		zone, zoneErr := time.LoadLocation(test.zone)
		day, dayErr := time.ParseInLocation(time.DateOnly, test.from, zone)
		parsed, err := cron.ParseStandard(test.schedule)
		if err := errors.Join(zoneErr, dayErr, err); err != nil {
			t.Fatal(err)
		}
		from, to := day.Add(-time.Second), day.AddDate(0, 0, test.days).Add(-time.Second)
		ours, theirs := scheduleOf(t, test.schedule, test.zone).next, inLocalTime(timesBetween(parsed.Next, from.In(zone), to), zone)
		fixture.Differ(t, "rule C5: "+test.sentence, test.want, inLocalTime(timesBetween(ours, from, to), zone))
		fixture.Differ(t, "rule C5: by the library "+test.sentence, cmp.Or(test.library, test.want), theirs)
	}
}

func inLocalTime(times []time.Time, zone *time.Location) string {
	var words []string
	for _, due := range times {
		words = append(words, due.In(zone).Format("02T15:04-07:00"))
	}
	return strings.Join(words, " ")
}

// Fuzz targets. Plain `go test` runs their seeds; to search:
// go test -run '^$' -fuzz '^FuzzParse$' -fuzztime 1m ./pkg/controller/crontab

// TestEvery: the times depend only on the anchor, and are all after it.
func TestEvery(t *testing.T) {
	times := scheduleOf(t, "@every 25s", "")
	fixture.Differ(t, "rule C4: the first", begin.Add(25*time.Second), times.next(begin.Add(-time.Minute)))
	fixture.Differ(t, "rule C4: none is before it", time.Time{}, times.latest(time.Time{}, begin.Add(24*time.Second)))
}

// FuzzParse parses any text. For each valid schedule next and latest agree.
func FuzzParse(f *testing.F) {
	for _, text := range []string{
		"", "@", "@daily", "@every", "@every1h", "@every\u00a01h", "\t@every  1h", "@every 1ns", "TZ=UTC", "tz=UTC", "CRON_TZ=", "* * * * *", "0 0 30 2 *", "0 0 29 2 *", ", * * * *", "1,,2 * * * *",
		"*/99999999999 * * * *", "0-59/9223372036854775807 * * * *", "? ? ? ? ?", "0 0 L * *", "\x00", "59 23 31 12 6", "0 0 1-31/2 */2 1-5",
	} {
		f.Add(text, "Europe/Berlin", begin.Unix())
	}
	f.Add("0 0 * * *", "Asia/Beirut", time.Date(2026, 3, 28, 22, 30, 0, 0, time.UTC).Unix())
	f.Add("*/7 * * * *", "Australia/Lord_Howe", time.Date(2040, 12, 31, 1, 0, 0, 0, time.UTC).Unix())
	f.Fuzz(func(t *testing.T, text, zoneName string, unix int64) {
		zone, err := loadZone(zoneName)
		if err != nil || unix < 0 || unix > 3*begin.Unix() {
			return
		}
		now := time.Unix(unix, 0).UTC()
		times, err := parse(text, zone, now)
		if err != nil {
			return
		}
		next := times.next(now)
		if next.IsZero() {
			if got := times.latest(now, now.AddDate(horizonYears-1, 0, 0)); !got.IsZero() {
				t.Fatalf("%q: nothing is due after %v, but latest returns %v", text, now, got)
			}
			return
		}
		before, at, n := times.latest(now, next.Add(-time.Second)), times.latest(now, next), count(times, now, next, maxCount)
		if !next.After(now) || next.Nanosecond() != 0 || !before.IsZero() || !at.Equal(next) || n != 1 {
			t.Fatalf("%q: after %v comes %v; the latest before is %v, the latest until then %v, the number %d", text, now, next, before, at, n)
		}
	})
}
