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
	"encoding/json"
	"errors"
	"regexp"
	"testing"
	"time"
)

// Fuzz targets. Plain `go test` runs their seeds; to search:
// go test -run '^$' -fuzz '^FuzzParse$' -fuzztime 1m ./pkg/controller/crontab

// FuzzParse parses any text. For each valid schedule next and latest agree.
func FuzzParse(f *testing.F) {
	begin := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for _, text := range []string{
		"", "@", "@daily", "@every", "@every 1h", "@every 1ns", "TZ=UTC", "CRON_TZ=", "* * * * *", "0 0 30 2 *", "0 0 29 2 *", ", * * * *", "1,,2 * * * *",
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

// legalReason is the CRD's pattern of reasons.
var legalReason = regexp.MustCompile(`^[A-Za-z]([A-Za-z0-9_,:]*[A-Za-z0-9_])?$`)

// FuzzDecide merges any JSON into an ordinary CronTab and its Job. The status is valid, and
// once it is stored the same result changes nothing.
func FuzzDecide(f *testing.F) {
	f.Add([]byte(nil), []byte(nil), int64(0), uint8(0))
	f.Add([]byte(`{"spec":{"schedule":"@every 7s","timeZone":"Asia/Tehran","concurrencyPolicy":"Forbid","startingDeadlineSeconds":9223372036854775807}}`), []byte(`{"status":{"conditions":null}}`), int64(86400), uint8(1))
	f.Add([]byte(`{"spec":{"schedule":"0 0 30 2 *","suspend":true,"successfulJobsHistoryLimit":-5},"status":{"lastScheduleTime":"2126-01-01T00:00:00Z"}}`), []byte(`{"metadata":{"ownerReferences":[]}}`), int64(60), uint8(2))
	f.Add([]byte(`{"spec":{"concurrencyPolicy":"Replace","startingDeadlineSeconds":-1},"metadata":{"creationTimestamp":null},"status":{"observedSchedule":{"schedule":"x","since":null}}}`), []byte(`{"metadata":{"name":"backup-29921040"}}`), int64(3), uint8(3))
	f.Add([]byte(`{"status":{"observedSchedule":{"schedule":"@hourly","timeZone":"Local","since":"2026-11-21T11:00:00.5Z"},"conditions":[{"type":"Ready","reason":"JobRejected"}]}}`), []byte(`{}`), int64(7200), uint8(7))
	f.Fuzz(func(t *testing.T, change, jobChange []byte, later int64, how uint8) {
		cronTab, job := hourly("11:00"), run("11:00")
		if len(change) > 0 && json.Unmarshal(change, cronTab) != nil || len(jobChange) > 0 && json.Unmarshal(jobChange, job) != nil {
			return
		}
		if later < 0 || later > 1e10 || cronTab.DeletionTimestamp != nil || len(cronTab.Spec.Schedule) > 512 {
			return
		}
		snap := snapshotAt("12:00", cronTab, jobs{job})
		snap.now = snap.now.Add(time.Duration(later) * time.Second / 2)
		d := decide(snap)
		if d.requeueAfter < 0 || d.requeueAfter > maxRequeueAfter {
			t.Fatalf("rule C20: the next sync is in %v", d.requeueAfter)
		}
		var res result
		switch {
		case d.start == nil:
		case how&1 != 0:
			res.replaced, res.created = d.replace, d.start
		case how&2 != 0:
			res.rejected = errors.New("no")
		}
		status := newStatus(snap, d, res)
		checkStatus(t, cronTab, &status)
		checkAgain(t, snap, res, status, 0)
	})
}
