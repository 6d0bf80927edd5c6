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
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

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
			"12:10:02", hourly("11:00", deadline(600), missedAtNoon), ""),
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
		taken("rule C14: the UID under another kind is another owner", ownedBy("CronJob", "uid-backup")),
		when("rule C14: another version of the group is the same owner",
			"12:00:01", hourly("11:00"), "started 12:00", run("12:00", inGroup("alpha.ianlewis.org/v2"))),
		taken("rule C14: the controller owns, not any owner", noController),
		when("rule C15: a run that has a Job was started",
			"12:30", hourly("11:00", deadline(60)), "started 12:00", run("12:00")),
		when("rule C15: even if its Job is older",
			"12:30", hourly("11:00", deadline(60)), "started 12:00", run("12:00", bornAt("11:00"))),
		when("rule C15: runs before, between and after are missed", "12:10", hourly("06:00"),
			"started 10:00, Superseded 07:00, Superseded 09:00, Superseded 11:00, start 12:00", run("10:00"), run("08:00")),
		when("rule C15: a Job ahead of the clock is ignored", "12:10", hourly("11:00"), "start 12:00", run("13:00")),
	}
}

func decideConcurrency() []decideTest {
	const starts, waits = "start 12:00", "hold 12:00"
	under := func(sentence string, policy cronTabOption, want string, jobs ...*batchv1.Job) decideTest {
		return when(sentence, "12:00", hourly("11:00", policy), want, jobs...)
	}
	return []decideTest{
		under("rule C10: Allow: a run is started while another is under way", runsAt("0 * * * *"), starts, run("11:00")),
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
			replace, "replace 11:00, replace 10:00, "+starts, run("11:00"), run("10:00"), run("09:00", complete("09:01")), run("08:00", failed("08:00")), run("07:00", ofCronJob)),
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
			"12:30", hourly("12:00", keeps(0, 0)), "asked 12:10", manual("12:10", failed("12:10"))),
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
		when("rule C24: the deadline has passed", "12:00:41", hourly("11:00", minute, deadline(30)), "MissedDeadline 12:00"),
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

// TestNewJob: the Job has the Pod spec and each option, and the labels and annotations of the controller
// win.
func TestNewJob(t *testing.T) {
	policy := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionFailJob}}}
	ours, when := map[string]string{"app.kubernetes.io/managed-by": "sample-controller", "alpha.ianlewis.org/crontab": "backup"}, "2026-11-21T13:00:00+01:00"
	cronTab := hourly("", inZone("Europe/Berlin"))
	cronTab.Spec.JobOptions = alphav1.JobOptions{
		Metadata:     alphav1.JobMetadata{Labels: map[string]string{"team": "a", cronTabLabel: "other"}, Annotations: map[string]string{"note": "b", alphav1.ScheduledTimeAnnotation: "never"}},
		PodMetadata:  alphav1.JobMetadata{Labels: map[string]string{"team": "c", cronTabLabel: "other"}, Annotations: map[string]string{"note": "d"}},
		BackoffLimit: ptr.To[int32](0), ActiveDeadlineSeconds: ptr.To[int64](1), TTLSecondsAfterFinished: ptr.To[int32](2),
		Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](4), PodFailurePolicy: policy,
	}
	before := cronTab.DeepCopy()
	want := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: "backup-1795262400", Namespace: "ns", Labels: labels.Merge(ours, map[string]string{"team": "a"}),
			Annotations: map[string]string{"note": "b", "alpha.ianlewis.org/scheduled-time": when},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "alpha.ianlewis.org/v1", Kind: "CronTab", Name: "backup", UID: "uid-backup",
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](0), ActiveDeadlineSeconds: ptr.To[int64](1), TTLSecondsAfterFinished: ptr.To[int32](2),
			Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](4), PodFailurePolicy: policy.DeepCopy(),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      map[string]string{"team": "c", "alpha.ianlewis.org/crontab": "backup"},
					Annotations: map[string]string{"note": "d", "alpha.ianlewis.org/scheduled-time": when},
				},
				Spec: *cronTab.Spec.JobTemplate.DeepCopy(),
			},
		},
	}
	berlin := time.FixedZone("Europe/Berlin", 3600)
	got := newJob(cronTab, moment("12:00"), berlin)
	fixture.Differ(t, "rule C7: the Job of a run", want, got)
	got.Labels["team"], *got.Spec.BackoffLimit, got.Spec.Template.Spec.Containers[0].Image = "x", 9, "other"
	fixture.Differ(t, "rule C7: the CronTab afterwards", before, cronTab)

	want.Name = "backup-mtoupc0"
	want.Annotations["alpha.ianlewis.org/instantiate"], want.Spec.Template.Annotations["alpha.ianlewis.org/instantiate"] = "manual", "manual"
	fixture.Differ(t, "rule C22: the Job of a run that a user asks for", want, newManualJob(cronTab, moment("12:00"), berlin))
}

// TestJobNames: which names of Jobs are those of runs.
func TestJobNames(t *testing.T) {
	for name, run := range map[string]string{
		"backup-1795262400": "12:00", "backup-1795262401": "12:00:01", "backup-1000000000": "2001-09-09T01:46:40Z",
		"backup-mtoupc0": "asked 12:00", "backup-mtoupc1": "asked 12:00:01", "backup-mgjdgxs": "asked 2001-09-09T01:46:40Z", "backup-m38et6qnz": "asked 9999-12-31T23:59:59Z",
	} {
		clock, isManual := strings.CutPrefix(run, "asked ")
		due, err := time.Parse(time.RFC3339, clock)
		if err != nil {
			due = moment(clock)
		}
		nameOf, at, other := jobName, dueTime, manualTime
		if isManual {
			nameOf, at, other = manualJobName, manualTime, dueTime
		}
		fixture.Differ(t, "rules C7 and C22: the name of the run at "+run, name, nameOf("backup", due))
		fixture.Differ(t, "rules C7 and C22: the run of "+name, due, at(named("backup", name)))
		fixture.Differ(t, "rules C7 and C22: the other run of "+name, time.Time{}, other(named("backup", name)))
		// The longest name of a CronTab has 52 characters. The name of the Job is a label of its Pods.
		fixture.Differ(t, "rule C7: what is wrong about the label", []string(nil), validation.IsDNS1123Label(strings.Repeat("a", 52)+strings.TrimPrefix(name, "backup")))
	}
	for _, name := range []string{
		"", "backup", "backup-", "backup-x", "backup-manual", "other-1795262400", "backup-01795262400", "backup-+1795262400", "backup--5", "backup-1795262400-x",
		"backup-1-1795262400", "1795262400", "backup-99999999999999999999", "backup-29921040", "backup-999999999",
		"other-mtoupc0", "backup-manual-1", "backup-mTOUWO0", "backup-m0toupc0", "backup-m",
	} {
		fixture.Differ(t, "rule C7: the run of a Job with another name", name, runOf(named("backup", name)))
	}
	cronTab := hourly("11:00", keeps(0, 0), succeededAt("11:20"))
	copied := run("11:10", jobNamed("backup-202611221830"), complete("11:20"))
	fixture.Differ(t, "rule C7: a name that ends in a date of the future is that of no run", time.Time{}, dueTime(cronTab, copied))
	fixture.Differ(t, "rule C17: its Job is one of the history", jobs{copied}, excessJobs(cronTab, jobs{copied}))
	fixture.Differ(t, "rule C7: the clocks of two machines differ a little", moment("12:00"), dueTime(cronTab, run("12:00", bornAt("11:59"))))
}

func TestExcessJobs(t *testing.T) {
	recorded := func(last, success string) []cronTabOption {
		return []cronTabOption{keeps(0, 0), succeededAt(success), func(c *alphav1.CronTab) { c.Status.LastScheduleTime = ptr.To(stamp(last)) }}
	}
	all := func(options ...cronTabOption) *alphav1.CronTab {
		noted := func(c *alphav1.CronTab) { c.Status.LastFailedTime = ptr.To(stamp("12:30")) }
		return hourly("12:00", append(options, succeededAt("12:30"), noted)...)
	}
	done := func(clock string, options ...jobOption) *batchv1.Job {
		return run(clock, append(options, complete(clock))...)
	}
	successes := jobs{done("10:00"), done("08:00"), done("12:00"), done("09:00"), done("11:00")}
	failures := jobs{run("10:00", failed("10:00")), run("12:00", failed("12:00")), run("11:00", failed("11:00"))}
	mixed := jobs{failures[0], failures[1], done("08:00"), done("09:00")}
	for sentence, test := range map[string]struct {
		cronTab *alphav1.CronTab
		jobs    jobs
		want    string
	}{
		"rule C17: by default the three latest completed Jobs stay":   {all(), successes, "08:00 09:00"},
		"rule C17: by default the latest failed Job stays":            {all(), failures, "10:00 11:00"},
		"rule C17: a negative limit is 0":                             {all(keeps(-1, -1)), mixed, "08:00 09:00 10:00 12:00"},
		"rule C17: Jobs that are being deleted are not counted":       {all(keeps(1, 1)), jobs{done("11:00", goesAway), run("12:00", failed("12:00"), goesAway), done("10:00"), failures[0]}, ""},
		"rule C17: Jobs of the same age are ordered by name":          {all(keeps(1, 1)), jobs{done("10:00", jobNamed("b")), done("10:00", jobNamed("a"))}, "a"},
		"rule C17: a Job whose success is not recorded stays":         {hourly("", recorded("12:00", "09:30")...), successes, "08:00 09:00"},
		"rule C17: a Job that a user made for the CronTab is deleted": {hourly("", recorded("11:00", "12:30")...), jobs{done("12:00", jobNamed("by-hand"))}, "by-hand"},
	} {
		var got []string
		for _, job := range excessJobs(test.cronTab, test.jobs) {
			got = append(got, runOf(test.cronTab, job))
		}
		fixture.Differ(t, sentence, test.want, strings.Join(got, " "))
	}
}

// TestTrim: the cache keeps of a CronTab all but the Pod spec and most metadata, and of a Job its identity,
// its age and how it ended.
func TestTrim(t *testing.T) {
	cronTab := hourly("11:00", askedAt("12:00"), writtenAtClock("11:10"), writtenAtClock("11:20"), writtenAtBy("11:50", "status"), was("Scheduled", ""))
	cronTab.ManagedFields[0].FieldsV1, cronTab.ManagedFields[0].Manager = metav1.NewFieldsV1("{}"), "kubectl"
	cronTab.Labels, cronTab.Annotations["x"] = map[string]string{"x": "y"}, "y"
	cronTab.Finalizers = []string{"example.com/wait"}
	cronTab.Spec.JobOptions = alphav1.JobOptions{BackoffLimit: ptr.To[int32](0)}
	want := cronTab.DeepCopy()
	want.Labels, want.Finalizers = nil, nil
	delete(want.Annotations, "x")
	want.Spec.JobTemplate, want.Spec.JobOptions = corev1.PodSpec{}, alphav1.JobOptions{}
	want.ManagedFields = []metav1.ManagedFieldsEntry{{Time: ptr.To(stamp("11:20"))}}
	before := writtenAt(cronTab, moment("12:00"))
	fixture.Differ(t, "rule 24: the cached CronTab", any(want), Trim(cronTab))
	fixture.Differ(t, "rule C13: when the schedule was written", before, writtenAt(cronTab, moment("12:00")))
	fixture.Differ(t, "rule 24: trimmed twice", any(want), Trim(want.DeepCopy()))
	for sentence, job := range map[string]*batchv1.Job{
		"rule 24: a terminating Job":                     run("11:00", goesAway),
		"rule 24: a complete Job":                        run("11:00", complete("11:01")),
		"rule 24: a failed Job":                          run("11:00", failed("11:01")),
		"rule 24: a Job that is about to fail is active": run("11:00", endedAt(batchv1.JobFailureTarget, stamp("11:01"))),
	} {
		want := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Name: job.Name, Namespace: job.Namespace, UID: job.UID, ResourceVersion: job.ResourceVersion, OwnerReferences: job.OwnerReferences,
			CreationTimestamp: job.CreationTimestamp, DeletionTimestamp: job.DeletionTimestamp,
		}, Status: batchv1.JobStatus{CompletionTime: job.Status.CompletionTime}}
		if endOfJob(job).Type != unfinished {
			want.Status.Conditions = job.Status.Conditions
		}
		fixture.Differ(t, sentence, any(want), Trim(job))
		fixture.Differ(t, sentence+": the result", endOfJob(job).Type, endOfJob(want).Type)
	}
	fixture.Differ(t, "an object of another kind", nil, Trim(&metav1.Status{}))
}
