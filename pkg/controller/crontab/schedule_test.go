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
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"

	"example.com/sample-controller/test/fixture"
)

// zoneOf returns the time zone of the name.
func zoneOf(t testing.TB, name string) *time.Location {
	t.Helper()
	zone, err := loadZone(name)
	if err != nil {
		t.Fatal(err)
	}
	return zone
}

// at parses a time as in "2026-03-29T01:59:00Z".
func at(t interface {
	Helper()
	Fatal(args ...any)
}, text string) time.Time {
	t.Helper()
	parsed, err := time.Parse(time.RFC3339, text)
	if err != nil {
		t.Fatal(err)
	}
	return parsed
}

// scheduleOf parses a schedule that is anchored at the beginning of 2026.
func scheduleOf(t testing.TB, text string, zone *time.Location) schedule {
	t.Helper()
	times, err := parse(text, zone, time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC))
	if err != nil {
		t.Fatal(err)
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

func TestParse(t *testing.T) {
	// The first five times in 2026, a Thursday to begin with.
	tests := map[string]string{
		"* * * * *":          "01-01T00:01:00 01-01T00:02:00 01-01T00:03:00 01-01T00:04:00 01-01T00:05:00",
		"*/20 4 * * *":       "01-01T04:00:00 01-01T04:20:00 01-01T04:40:00 01-02T04:00:00 01-02T04:20:00",
		"0 0 31 * *":         "01-31T00:00:00 03-31T00:00:00 05-31T00:00:00 07-31T00:00:00 08-31T00:00:00",
		"0 0 * * 0":          "01-04T00:00:00 01-11T00:00:00 01-18T00:00:00 01-25T00:00:00 02-01T00:00:00",
		"0 0 * * mon-TUE":    "01-05T00:00:00 01-06T00:00:00 01-12T00:00:00 01-13T00:00:00 01-19T00:00:00",
		"0 0 13 * 5":         "01-02T00:00:00 01-09T00:00:00 01-13T00:00:00 01-16T00:00:00 01-23T00:00:00",
		"0 0 */10 * 1":       "01-05T00:00:00 01-11T00:00:00 01-12T00:00:00 01-19T00:00:00 01-21T00:00:00",
		"\t0  12 1\n* * ":    "01-01T12:00:00 02-01T12:00:00 03-01T12:00:00 04-01T12:00:00 05-01T12:00:00",
		"@daily":             "01-02T00:00:00 01-03T00:00:00 01-04T00:00:00 01-05T00:00:00 01-06T00:00:00",
		" @midnight\n":       "01-02T00:00:00 01-03T00:00:00 01-04T00:00:00 01-05T00:00:00 01-06T00:00:00",
		"@weekly":            "01-04T00:00:00 01-11T00:00:00 01-18T00:00:00 01-25T00:00:00 02-01T00:00:00",
		"@yearly":            "",
		"@annually":          "",
		"@every  1h30m":      "01-01T01:30:00 01-01T03:00:00 01-01T04:30:00 01-01T06:00:00 01-01T07:30:00",
		"@every 2000ms":      "01-01T00:00:02 01-01T00:00:04 01-01T00:00:06 01-01T00:00:08 01-01T00:00:10",
		"@every 2562047h47m": "",
	}
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range tests {
		t.Run("rule C2: "+text, func(t *testing.T) {
			times := scheduleOf(t, text, time.UTC)
			var got []string
			for due := times.next(begin); len(got) < 5 && due.Year() == 2026; due = times.next(due) {
				got = append(got, due.Format("01-02T15:04:05"))
			}
			fixture.Differ(t, "times", want, strings.Join(got, " "))
		})
	}
}

func TestParseErrors(t *testing.T) {
	tests := map[string]string{
		"60 0 * * *":                   `field 1 (minute) of "60 0 * * *": `,
		"0 25 * * *":                   `field 2 (hour) of "0 25 * * *": `,
		"0 0 0 * *":                    `field 3 (day of month) of "0 0 0 * *": `,
		"0 0 * * 7":                    `field 5 (day of week)`,
		"0 1-2-3 * * *":                `field 2 (hour)`,
		"0 , * * *":                    `field 2 (hour) of "0 , * * *": there is no value in it`,
		"99999999999999999999 0 * * *": `field 1 (minute)`,
		"0 L * * *":                    `field 2 (hour)`,
		"0 0 * *":                      `the number of fields in "0 0 * *" is 4 and not five: minute, hour, day of month, month, day of week`,
		"0 0 * * * *":                  "is 6 and not five",
		"":                             `the number of fields in "" is 0`,
		"@dayly":                       `"@dayly": `,
		"@every":                       `the duration of "@every": `,
		"@every 1 h":                   `the duration of "@every 1 h": `,
		"@every 1500ms":                "not one or more whole seconds",
		"@every 9999999999h":           `the duration of "@every 9999999999h": `,
		"TZ=UTC 0 0 * * *":             `names a time zone; set spec.timeZone`,
		" CRON_TZ= 0 0 * * *":          `names a time zone; set spec.timeZone`,
	}
	for text, want := range tests {
		t.Run("rule C3: "+text, func(t *testing.T) {
			_, err := parse(text, time.UTC, time.Time{})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("parse(%q): %v, want %q in it", text, err, want)
			}
		})
	}
}

func TestLoadZone(t *testing.T) {
	tests := map[string]bool{
		"": true, "UTC": true, "Europe/Berlin": true, "Etc/GMT+5": true, "Asia/Kathmandu": true,
		"Local": false, "local": false, "Europe/Belin": false, "../zone": false, "/etc/localtime": false, "+02:00": false,
	}
	for name, want := range tests {
		zone, err := loadZone(name)
		if (err == nil) != want {
			t.Errorf("rule C3: loadZone(%q): %v", name, err)
		}
		if name == "" && zone != time.UTC {
			t.Errorf("rule C2: no time zone is %v, want UTC", zone)
		}
	}
}

// TestEvery: the times depend only on the anchor.
func TestEvery(t *testing.T) {
	times, err := parse("@every 25s", time.UTC, at(t, "2026-01-01T00:00:10Z"))
	if err != nil {
		t.Fatal(err)
	}
	for sentence, test := range map[string]struct{ now, next, latest string }{
		"rule C4: before the anchor":        {"2025-12-31T23:59:00Z", "2026-01-01T00:00:35Z", ""},
		"rule C4: just before the first":    {"2026-01-01T00:00:34Z", "2026-01-01T00:00:35Z", ""},
		"rule C4: at the first":             {"2026-01-01T00:00:35Z", "2026-01-01T00:01:00Z", "2026-01-01T00:00:35Z"},
		"rule C4: within a second after":    {"2026-01-01T00:00:35.9Z", "2026-01-01T00:01:00Z", "2026-01-01T00:00:35Z"},
		"rule C4: a hundred years after it": {"2126-01-01T00:00:00Z", "2126-01-01T00:00:10Z", "2125-12-31T23:59:45Z"},
	} {
		now, latest := at(t, test.now), time.Time{}
		if test.latest != "" {
			latest = at(t, test.latest)
		}
		fixture.Differ(t, sentence+": next", at(t, test.next), times.next(now))
		fixture.Differ(t, sentence+": latest", latest, times.latest(time.Time{}, now))
		fixture.Differ(t, sentence+": latest between a time and itself", time.Time{}, times.latest(now, now))
	}
}

// TestCount: count stops at the limit, and no method takes long for a long period.
func TestCount(t *testing.T) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for text, want := range map[string]int{"@daily": 31, "@every 24h": 31, "@hourly": 101, "@every 1s": 101, "0 0 31 * *": 1, "0 0 30 2 *": 0} {
		times := scheduleOf(t, text, time.UTC)
		fixture.Differ(t, "rule C8: the number of runs in January by "+text, want, count(times, begin, begin.AddDate(0, 1, 0), maxCount+1))
		if allocations := testing.AllocsPerRun(1, func() {
			count(times, begin, begin.AddDate(1000, 0, 0), maxCount+1)
			times.latest(begin, begin.AddDate(100, 0, 0))
			times.next(begin)
		}); allocations > 100 {
			t.Errorf("rule C8: %s: %v allocations", text, allocations)
		}
	}
}

// TestAgainstLocalTime compares next and latest with the local time of every minute.
func TestAgainstLocalTime(t *testing.T) {
	skipIfShort(t)
	texts := []string{
		"* * * * *", "*/30 * * * *", "0 * * * *", "30 2 * * *", "0 0 * * *", "15 0,1,2,3,23 * * *", "45 1 * * 0", "0 12 4 11 *", "59 23 28-31 * *", "0 3 1 * 1"}
	for zoneName, begins := range map[string][]string{
		"UTC":                 {"2026-02-27"},
		"Europe/Berlin":       {"2026-03-28", "2026-10-24", "2040-12-29"},
		"Australia/Lord_Howe": {"2026-04-03", "2026-10-02"},
		"America/Sao_Paulo":   {"2018-11-02", "2018-02-16"},
		"Africa/Cairo":        {"2026-04-22", "2026-10-28"},
		"Pacific/Apia":        {"2011-12-28"},
		"Asia/Kathmandu":      {"2026-01-01", "1985-12-30"},
		"Africa/Casablanca":   {"2026-02-14", "2026-03-21"},
		"Africa/Monrovia":     {"1972-01-05"},
	} {
		for _, begin := range begins {
			for _, text := range texts {
				times, after := scheduleOf(t, text, zoneOf(t, zoneName)), at(t, begin+"T00:00:00Z")
				until := after.AddDate(0, 0, 3)
				want := byLocalTime(times.(*calendar), after, until)
				what := strings.Join([]string{"rule C5:", zoneName, text, begin}, " ")
				fixture.Differ(t, what+": next", want, timesBetween(times.next, after, until))
				var back []time.Time
				for due := times.latest(after, until); !due.IsZero(); due = times.latest(after, due.Add(-time.Second)) {
					back = append(back, due)
				}
				slices.Reverse(back)
				fixture.Differ(t, what+": latest", want, back)
			}
		}
	}
}

// byLocalTime returns what is due after the first time and not after the second, by the local time of
// every minute.
func byLocalTime(c *calendar, after, until time.Time) []time.Time {
	var due []time.Time
	step := time.Minute
	if _, offset := after.In(c.zone).Zone(); offset%60 != 0 {
		step = 10 * time.Second
	}
	for now := after.Truncate(step); !now.After(until); now = now.Add(step) {
		if local := now.In(c.zone); now.After(after) && local.Second() == 0 && has(c.minute, local.Minute()) && has(c.hour, local.Hour()) &&
			has(c.month, int(local.Month())) && c.hasDay(local) {
			due = append(due, now)
		}
	}
	return due
}

// TestAgainstTheLibrary: if clocks change at night and by whole hours, the cron library
// returns the same times.
func TestAgainstTheLibrary(t *testing.T) {
	skipIfShort(t)
	random := rand.New(rand.NewPCG(1, 2))
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	for _, name := range []string{"UTC", "Europe/Berlin", "America/New_York", "Asia/Kathmandu", "Australia/Sydney", "Pacific/Auckland"} {
		for range 25 {
			text := randomFields(random)
			parsed, err := cron.ParseStandard("CRON_TZ=" + name + " " + text)
			if err != nil {
				t.Fatal(err)
			}
			ours, theirs, times := begin, begin, scheduleOf(t, text, zoneOf(t, name))
			for n := 0; n < 300 && !ours.IsZero(); n++ {
				ours, theirs = times.next(ours), parsed.Next(theirs)
				if !ours.Equal(theirs) {
					t.Fatalf("rule C5: %q in %s: %v, the library says %v", text, name, ours, theirs)
				}
			}
		}
	}
}

func randomFields(random *rand.Rand) string {
	field := func(low, high int) string {
		value := low + random.IntN(high-low+1)
		switch random.IntN(5) {
		case 0:
			return fmt.Sprint(value)
		case 1:
			return fmt.Sprintf("%d-%d", value, value+random.IntN(high-value+1))
		case 2:
			return fmt.Sprintf("*/%d", 1+random.IntN(high))
		case 3:
			return fmt.Sprintf("%d,%d", value, low+random.IntN(high-low+1))
		}
		return "*"
	}
	return strings.Join([]string{field(0, 59), field(0, 23), field(1, 28), field(1, 12), field(0, 6)}, " ")
}

// TestClockChanges is the table of docs/crontab.md: the runs on days when clocks change.
func TestClockChanges(t *testing.T) {
	const berlin, newYork, lordHowe, saoPaulo = "Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "America/Sao_Paulo"
	for sentence, test := range map[string]struct {
		zone, schedule string
		// from is the first of some days in the zone.
		from string
		days int
		want string
		// library are the times of the cron library, which CronJobs have, if they differ.
		library string
	}{
		"a skipped time has no run":                   {berlin, "30 2 * * *", "2026-03-28", 3, "28T02:30+01:00 30T02:30+02:00", ""},
		"the time that clocks go forward to has one":  {berlin, "0 3 * * *", "2026-03-28", 2, "28T03:00+01:00 29T03:00+02:00", ""},
		"a repeated time has two":                     {berlin, "30 2 * * *", "2026-10-25", 2, "25T02:30+02:00 25T02:30+01:00 26T02:30+01:00", ""},
		"the time that clocks go back from has one":   {berlin, "0 3 * * *", "2026-10-25", 1, "25T03:00+01:00", ""},
		"midnight does not change":                    {berlin, "@daily", "2026-10-25", 2, "25T00:00+02:00 26T00:00+01:00", ""},
		"New York: a repeated time has two":           {newYork, "30 1 * * *", "2026-11-01", 2, "01T01:30-04:00 01T01:30-05:00 02T01:30-05:00", ""},
		"a skipped half hour":                         {lordHowe, "15 2 * * *", "2026-10-03", 3, "03T02:15+10:30 05T02:15+11:00", ""},
		"runs after a skipped half hour are not lost": {lordHowe, "0 3 * * *", "2026-10-03", 2, "03T03:00+10:30 04T03:00+11:00", "03T03:00+10:30"},
		"a repeated half hour":                        {lordHowe, "15,45 1 * * *", "2026-04-05", 1, "05T01:15+11:00 05T01:45+11:00 05T01:45+10:30", ""},
		"a day without a midnight":                    {saoPaulo, "@daily", "2018-11-03", 3, "03T00:00-03:00 05T00:00-02:00", ""},
		"its hours are not those of the day before":   {saoPaulo, "0 1 3 11 *", "2018-11-03", 3, "03T01:00-03:00", "03T01:00-03:00 04T01:00-02:00"},
		"a day with two ends":                         {saoPaulo, "30 23 * * *", "2018-02-17", 2, "17T23:30-02:00 17T23:30-03:00 18T23:30-03:00", ""},
		"Beirut: a week whose Sunday has none":        {"Asia/Beirut", "@weekly", "2026-03-22", 15, "22T00:00+02:00 05T00:00+03:00", ""},
		"a skipped day":                               {"Pacific/Apia", "0 12 * * *", "2011-12-29", 3, "29T12:00-10:00 31T12:00+14:00", ""},
		"clocks that go back for Ramadan":             {"Africa/Casablanca", "30 2 * * *", "2026-02-15", 1, "15T02:30+01:00 15T02:30+00:00", ""},
		"two skipped hours":                           {"Antarctica/Troll", "30 0-3 * * *", "2026-03-29", 1, "29T00:30+00:00 29T03:30+02:00", ""},
		"@every ignores changes of clocks":            {berlin, "@every 12h", "2026-03-28", 2, "28T01:00+01:00 28T13:00+01:00 29T01:00+01:00 29T14:00+02:00", "-"},
	} {
		zone := zoneOf(t, test.zone)
		begin, err := time.ParseInLocation(time.DateOnly, test.from, zone)
		if err != nil {
			t.Fatal(err)
		}
		from, to := begin.Add(-time.Second), begin.AddDate(0, 0, test.days).Add(-time.Second)
		parsed, err := cron.ParseStandard(test.schedule)
		if err != nil {
			t.Fatal(err)
		}
		fixture.Differ(t, "rule C5: "+sentence, test.want, inLocalTime(timesBetween(scheduleOf(t, test.schedule, zone).next, from, to), zone))
		if test.library != "-" {
			fixture.Differ(t, "rule C5: "+sentence+": by the library", cmp.Or(test.library, test.want), inLocalTime(timesBetween(parsed.Next, from.In(zone), to), zone))
		}
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

// FuzzParse parses any text. For each valid schedule next and latest agree.
func FuzzParse(f *testing.F) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for _, text := range []string{
		"", "@", "@daily", "@every", "@every1h", "@every\u00a01h", "\t@every  1h", "@every 1ns", "TZ=UTC", "tz=UTC", "CRON_TZ=", "* * * * *", "0 0 30 2 *", "0 0 29 2 *", ", * * * *", "1,,2 * * * *",
		"*/99999999999 * * * *", "0-59/9223372036854775807 * * * *", "? ? ? ? ?", "0 0 L * *", "\x00", "59 23 31 12 6", "0 0 1-31/2 */2 1-5",
	} {
		f.Add(text, "Europe/Berlin", begin)
	}
	f.Add("0 0 * * *", "Asia/Beirut", time.Date(2026, 3, 28, 22, 30, 0, 0, time.UTC).Unix())
	f.Add("*/7 * * * *", "Australia/Lord_Howe", time.Date(2040, 12, 31, 1, 0, 0, 0, time.UTC).Unix())
	f.Fuzz(func(t *testing.T, text, zoneName string, unix int64) {
		zone, err := loadZone(zoneName)
		if err != nil || unix < 0 || unix > begin*3 {
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
