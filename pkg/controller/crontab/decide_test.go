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
	"math"
	"math/rand/v2"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/types"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/test/fixture"
)

// decideTest is a CronTab at a time, the Jobs in the cache, and what decide says. Unless a case says so
// the CronTab has a run at every full hour, the next is one later, and the next sync in a minute.
type decideTest struct {
	sentence, now string
	cronTab       *alphav1.CronTab
	want          string
	jobs          jobs
}

func when(sentence, now string, cronTab *alphav1.CronTab, want string, jobs ...*batchv1.Job) decideTest {
	return decideTest{sentence, now, cronTab, want, jobs}
}

func TestDecide(t *testing.T) {
	for _, tests := range [][]decideTest{decideDue(), decideAfterDowntime(), decideSchedules(), decideJobs(), decideConcurrency(), decideManual(), decideSplay()} {
		for _, test := range tests {
			t.Run(test.sentence, func(t *testing.T) {
				before := test.cronTab.DeepCopy()
				fixture.Differ(t, "decision", test.want, describeDecision(t, moment(test.now), test.cronTab, decide(snapshotAt(test.now, test.cronTab, test.jobs))))
				fixture.Differ(t, "the CronTab afterwards", before, test.cronTab)
			})
		}
	}
}

func decideDue() []decideTest {
	every := func(last, schedule, created string) *alphav1.CronTab {
		return hourly(last, runsAt(schedule), createdAt(created))
	}
	berlin := hourly("19T23:00", runsAt("@daily"), inZone("Europe/Berlin"), createdAt("18T10:00"))
	return []decideTest{
		when("rule C1: a CronTab that is being deleted needs nothing", "12:00", hourly("11:00", deleted), "rest"),
		when("rule C6: before its time no run is due", "11:59:59", hourly("", createdAt("11:30")), "in 1s"),
		when("rule C20: the next sync is just before a run is due", "11:59:40.5", hourly("11:00"), "in 19.5s"),
		when("rule C6: a run is due at its time", "12:00", hourly("11:00"), "start 12:00"),
		when("rule C6: none is due at the time of the creation", "12:30", hourly("", createdAt("12:00")), ""),
		when("rule C5: the time zone of the spec counts", "20T23:00", berlin, "start 20T23:00, next 23:00"),
		when("rule C4: @every counts from the creation, and a late run shifts none",
			"12:01:40", every("", "@every 90s", "11:58:50"), "start 12:00:20, next 12:01:50, in 10s"),
		when("rule C25: a stored interval of 5 seconds is kept",
			"12:00:05", every("12:00", "@every 5s", "11:00"), "start 12:00:05, next 12:00:10, in 5s"),
		when("rule C12: no run is started while suspended", "12:00", hourly("11:00", suspended), "Suspended, rest"),
		when("rule C20: the clock is behind the latest run", "12:30", hourly("14:00"), "ClockBehind, next 15:00"),
		when("rule C20: the clock is behind the schedule",
			"12:30", hourly("11:00", follows("", "14:00")), "ClockBehind, next 15:00"),
		when("rule C20: a clock behind by a minute is tolerated", "11:59", hourly("12:00"), "next 13:00"),
		when("rule C20: a clock behind by more is reported", "11:58:59.9", hourly("12:00"), "ClockBehind, next 13:00"),
	}
}

func decideAfterDowntime() []decideTest {
	resumed := was(alphav1.ReasonSuspended, "")
	return []decideTest{
		when("rule C8: of many runs the latest is started",
			"12:10", hourly("20T20:00"), "Superseded 15x 20T21:00-11:00, start 12:00"),
		when("rule C8: a hundred missed runs are counted",
			"12:00", hourly("10:19", runsAt("* * * * *")), "Superseded 100x 10:20-11:59, start 12:00, next 12:01"),
		when("rule C9: at the deadline a run is started",
			"12:10:00.9", hourly("11:00", deadline(600)), "start 12:00, in 100ms"),
		when("rule C9: past the deadline it is missed", "12:10:01", hourly("11:00", deadline(600)), "MissedDeadline 12:00"),
		when("rule C9: a missed deadline is recorded once",
			"12:10:02", hourly("11:00", deadline(600), missedAt("12:00")), ""),
		when("rule C20: with it the next sync is not too late",
			"11:59:59.999999999", hourly("11:00", deadline(math.MaxInt64)), "in 1ns"),
		when("rule C12: after a suspension the latest is started",
			"12:10", hourly("09:00", resumed), "Suspended 2x 10:00-11:00, start 12:00"),
		when("rule C12: not past its deadline",
			"12:10", hourly("10:00", resumed, deadline(60)), "Suspended 11:00, Suspended 12:00"),
	}
}

func decideSchedules() []decideTest {
	at := writtenAtClock
	new15 := changesTo("15 * * * *")
	return []decideTest{
		when("rule C13: a new schedule counts from when it was written",
			"12:20", hourly("10:00", new15, at("12:10")), "ScheduleChanged 2x 11:00-12:00, hold 12:15, next 13:15"),
		when("rule C13: its times before the change are no runs",
			"12:20", hourly("12:00", new15, at("12:17"), at("12:10")), "next 13:15"),
		when("rule C13: the time of a status update is ignored",
			"12:20", hourly("12:00", new15, at("12:10"), writtenAtBy("12:17", "status")), "hold 12:15, next 13:15"),
		when("rule C13: without managed fields it counts from now", "12:20:00.5", hourly("12:00", new15), "next 13:15"),
		when("rule C13: and with a time ahead of the clock", "12:20", hourly("12:00", new15, at("13:17")), "next 13:15"),
		when("rule C13: another time zone is another schedule",
			"12:20", hourly("11:00", follows("", "20T10:30"), inZone("Asia/Kathmandu"), at("12:10")), "ScheduleChanged 12:00, hold 12:15, next 13:15"),
		when("rule C13: no run is started, and no Job replaced, before the status records the schedule",
			"12:10", unseen(createdAt("11:30"), replace), "hold 12:00", run("11:00")),
		when("rule C13: a former schedule that was invalid has no runs",
			"12:10", hourly("10:00", follows("0 25 * * *", "20T10:30"), at("12:05")), ""),
		when("rule C13: a change while suspended is one",
			"12:10", hourly("11:00", suspended, new15), "Suspended, ScheduleChanged 12:00, rest"),
		when("rule C13: runs of both schedules are started or missed",
			"12:30", hourly("11:00", changesTo("2,12 * * * *"), at("12:05")), "started 12:20, Superseded 12:12, next 13:02", run("12:00"), run("12:20")),
		when("rule C16: the Job of the next run is tried while one waits",
			"12:50", hourly("11:00", nextGeneration, forbid), "hold 12:00, try next", run("11:00")),
		when("rule C16: none is tried without a next run",
			"12:00", hourly("11:00", nextGeneration, suspended), "Suspended, rest"),
	}
}

// decideJobs: names and owners of Jobs, and the runs that they show to be started.
func decideJobs() []decideTest {
	inGroup := func(version string) jobOption {
		return func(job *batchv1.Job) { job.OwnerReferences[0].APIVersion = version }
	}
	noController := func(job *batchv1.Job) { job.OwnerReferences[0].Controller = nil }
	taken := func(sentence string, option jobOption) decideTest {
		return when(sentence, "12:00", hourly("11:00", replace), "JobNameTaken 12:00", run("11:00"), run("12:00", option))
	}
	return []decideTest{
		taken("rule C14: the name is taken, and no Job is replaced for it", unowned),
		taken("rule C14: the UID under another kind is another owner", ownedBy("CronJob", "backup", "uid-backup")),
		when("rule C14: another version of the group is the same owner",
			"12:00:01", hourly("11:00"), "started 12:00", run("12:00", inGroup("alpha.ianlewis.org/v2"))),
		taken("rule C14: the controller owns, not any owner", noController),
		when("rule C15: a run that has a Job was started",
			"12:30", hourly("11:00", deadline(60)), "started 12:00", run("12:00")),
		when("rule C15: even if its Job is older",
			"12:30", hourly("11:00", deadline(60)), "started 12:00", run("12:00", bornAt("11:00"))),
		when("rule C15: runs before, between and after are missed",
			"12:10", hourly("06:00"), "started 10:00, Superseded 07:00, Superseded 09:00, Superseded 11:00, start 12:00", run("10:00"), run("08:00")),
		when("rule C15: a Job ahead of the clock is ignored", "12:10", hourly("11:00"), "start 12:00", run("13:00")),
	}
}

func decideConcurrency() []decideTest {
	const starts, waits = "start 12:00", "hold 12:00"
	under := func(sentence string, policy cronTabOption, want string, jobs ...*batchv1.Job) decideTest {
		return when(sentence, "12:00", hourly("11:00", policy), want, jobs...)
	}
	return []decideTest{
		under("rule C10: Allow: a run is started while another is under way", allow, starts, run("11:00")),
		under("rule C10: Forbid: a run is started if all others have ended",
			forbid, starts, run("11:00", complete("11:01")), run("10:00", failed("11:01"))),
		under("rule C10: Forbid: a run waits if one of many is under way",
			forbid, waits, run("10:00", complete("10:01")), run("11:00"), run("09:00", complete("09:01"))),
		under("rule C10: Forbid: a Job that is not complete counts",
			forbid, waits, run("11:00", complete("11:01"), func(job *batchv1.Job) { job.Status.Conditions[0].Status = "False" })),
		under("rule C10: Forbid: a Job that is being deleted counts", forbid, waits, run("11:00", goesAway)),
		when("rule C8: Forbid: after downtime runs are superseded",
			"12:10", hourly("10:00", forbid), "Superseded 11:00, start 12:00", run("10:00", complete("10:01"))),
		when("rule C9: Forbid: a run waits until its deadline",
			"12:00:10.5", hourly("11:00", forbid, deadline(30)), "hold 12:00, in 20.5s", run("11:00")),
		under("rule C11: Replace: all Jobs under way are deleted, and no others",
			replace, "replace 11:00, replace 10:00, "+starts, run("11:00"), run("10:00"), run("09:00", complete("09:01")), run("08:00", failed("")), run("07:00", ofCronJob)),
		under("rule C11: Replace: one that is being deleted is not deleted again", replace, starts, run("11:00", goesAway)),
	}
}

// decideManual: the last run of the schedule was at 12:00.
func decideManual() []decideTest {
	const starts = "start asked 12:10"
	at1210 := askedAt("12:10")
	return []decideTest{
		when("rule C22: a late run is started, whatever the deadline",
			"12:30", hourly("12:00", at1210, deadline(60)), starts),
		when("rule C22: the time may be in another zone",
			"12:10", hourly("12:00", asked("2026-11-21T13:10:00.7+01:00")), starts),
		when("rule C22: a run is started while suspended",
			"12:10", hourly("12:00", at1210, suspended), "Suspended, start asked 12:10, rest"),
		when("rule C22: and with a schedule that cannot be read",
			"12:10", hourly("12:00", at1210, runsAt("x")), "InvalidSchedule, start asked 12:10, rest"),
		when("rule C22: meanwhile the clock is checked",
			"12:09:40", hourly("12:00", askedAt("18:10"), suspended), "Suspended, never"),
		when("rule C22: it waits until the status records the schedule",
			"12:10", unseen(createdAt("11:30"), askedAt("12:05")), "asked waits, hold 12:00"),
		when("rule C22: with Replace it does not wait for the end of a Job",
			"12:30", hourly("11:00", replace, askedAt("12:30")), "started 12:00", run("12:00")),
		when("rule C22: a run in the future waits", "12:09:40", hourly("12:00", at1210), "in 20s"),
		when("rule C22: a run that has a Job was started, even if that is older",
			"12:10:01", hourly("12:00", at1210), "asked 12:10", manual("12:10", bornAt("11:00"))),
		when("rule C22: also if the annotation is gone", "12:10:01", hourly("12:00"), "asked 12:10", manual("12:10")),
		when("rule C22: a Job ahead of the clock is ignored", "12:10:01", hourly("12:00", at1210), starts, manual("12:20")),
		when("rule C22: an older run goes before one of the schedule",
			"13:00:05", hourly("12:00", askedAt("12:30"), forbid), "start asked 12:30"),
		when("rule C22: it does not settle one of the schedule",
			"13:00", hourly("12:00", askedAt("13:00"), handledAt("13:00")), "start 13:00", manual("13:00")),
		when("rule C22: with Forbid the schedule waits for it",
			"13:00", hourly("12:00", handledAt("12:10"), forbid), "hold 13:00", manual("12:10")),
		when("rule C22: with Replace the active Job is deleted",
			"12:10", hourly("12:00", at1210, replace), "replace 12:00, "+starts, run("12:00")),
		when("rule C22: but not before its run is recorded",
			"13:00", hourly("12:00", replace), "asked 12:10, hold 13:00", manual("12:10")),
		when("rule C22: nor is it deleted as history",
			"12:30", hourly("12:00", keeps(0, 0)), "asked 12:10", manual("12:10", failed(""))),
		when("rule C22: a time before the creation is that of a CronTab which was restored",
			"12:10", hourly("12:00", askedAt("20T10:28:59")), ""),
		when("rule C22: the clock of the user may be behind",
			"12:10", hourly("12:00", askedAt("20T10:29")), "start asked 20T10:29"),
	}
}

// decideSplay: the offset is 10 seconds.
func decideSplay() []decideTest {
	minute, to30 := splays(60), changesTo("30 * * * *")
	return []decideTest{
		when("rule C24: it is started after the offset", "12:00:10", hourly("11:00", minute), "start 12:00"),
		when("rule C24: not if it was due before the creation", "12:00:10", hourly("", minute, createdAt("12:00:05")), ""),
		when("rule C24: an offset is no clock that is behind",
			"12:00:37", hourly("", splays(3600), createdAt("12:00:10")), ""),
		when("rule C24: it may be longer than the period",
			"12:31:33", hourly("12:00", runsAt("* * * * *"), splays(3600)), "next 12:01, in 37s"),
		when("rule C24: the deadline counts from it",
			"12:00:40", hourly("11:00", minute, deadline(30)), "start 12:00, in 1s"),
		when("rule C24: the deadline has passed",
			"12:00:41", hourly("11:00", minute, deadline(30)), "MissedDeadline 12:00"),
		when("rule C24: after downtime the latest of its time starts",
			"12:00", hourly("09:00", minute), "Superseded 10:00, start 11:00, next 12:00, in 10s"),
		when("rule C24: a run is held while the schedule changes",
			"12:00:05", hourly("11:00", minute, to30), "next 12:00, in 5s"),
		when("rule C24: it is started, though the schedule has changed",
			"12:00:10", hourly("11:00", minute, to30, writtenAtClock("12:00:05")), "start 12:00"),
		when("rule C24: another zone is another schedule",
			"12:00:10", hourly("11:00", minute, follows("", "20T10:30"), inZone("Asia/Kathmandu"), writtenAtClock("12:00:05")), "start 12:00"),
		when("rule C24: while suspended the new schedule is followed at once",
			"12:00:05", hourly("11:00", minute, to30, suspended), "Suspended, ScheduleChanged 12:00, rest"),
		when("rule C24: a former schedule has no runs after the change",
			"13:10", hourly("11:00", minute, to30, writtenAtClock("12:00:05")), "start 12:00, next 13:00"),
		when("rule C24: its runs whose time had come are missed",
			"12:00:20", hourly("11:00", minute, to30), "ScheduleChanged 12:00, next 12:30"),
	}
}

// TestSince: a schedule does not count from before the former one, and without managed fields from now.
func TestSince(t *testing.T) {
	to15, former := changesTo("15 * * * *"), follows("0 * * * *", "12:18")
	written := hourly("", to15, former, writtenAtClock("12:10"))
	fixture.Differ(t, "rule C13: since", stamp("12:18"), decide(snapshotAt("12:20", written, nil)).observed.Since)
	fixture.Differ(t, "rule C13: now", stamp("12:20"), decide(snapshotAt("12:20:00.5", hourly("", to15, former), nil)).observed.Since)
}

// TestOffsets: the offsets of many CronTabs are spread evenly.
func TestOffsets(t *testing.T) {
	const cronTabs, seconds = 10_000, 100
	random, counts := rand.NewChaCha8([32]byte{}), map[time.Duration]int{}
	for range cronTabs {
		uid := fmt.Sprintf("%016x-%016x", random.Uint64(), random.Uint64())
		counts[offsetOf(hourly("", splays(seconds), func(c *alphav1.CronTab) { c.UID = types.UID(uid) }))]++
	}
	for second := range seconds {
		if n := counts[time.Duration(second)*time.Second]; n < 60 || n > 140 {
			t.Errorf("rule C24: %d of %d CronTabs start in second %d of %d", n, cronTabs, second, seconds)
		}
	}
	fixture.Differ(t, "rule C24: seconds with a start", seconds, len(counts))
}
