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

func decideDue() map[string]syncTest {
	berlin := hourly("19T23:00", runsAt("@daily"), inZone("Europe/Berlin"), createdAt("18T10:00"))
	return map[string]syncTest{
		"rule C1: a CronTab that is being deleted needs nothing": when("12:00", hourly("11:00", deleted), "rest"),
		"rules C6 and C20: before its time no run is due, and the next sync is when it is": when(
			"11:59:40.5", hourly("", createdAt("11:30")), "no run; in 19.5s"),
		"rule C6: none is due at the time of the creation": when("12:30", hourly("", createdAt("12:00")), "no run"),
		"rule C5: the time zone of the spec counts": when(
			"20T23:00", berlin, "live, create 20T23:00, last=20T23:00 next=23:00 active=1; Created"),
		"rule C4: @every counts from the creation, and a late run shifts none": when(
			"12:01:40", hourly("", runsAt("@every 90s"), createdAt("11:58:50")), "live, create 12:00:20, last=12:00:20 next=12:01:50 active=1; Created; in 10s"),
		"rule C25: a stored interval of 5 seconds is kept": when(
			"12:00:05", hourly("12:00", runsAt("@every 5s")), "live, create 12:00:05, last=12:00:05 next=12:00:10 active=1; Created; in 5s"),
		"rule C20: the clock is behind the schedule": when(
			"12:30", hourly("11:00", follows("", "14:00")), "last=11:00 next=15:00 ClockBehind; Warning ClockBehind"),
		"rule C20: a clock behind by a minute is tolerated": when("11:59", hourly("12:00"), "last=12:00 next=13:00"),
		"rule C20: a clock behind by more is reported": when(
			"11:58:58.99", hourly("12:00"), "last=12:00 next=13:00 ClockBehind; Warning ClockBehind"),

		"rule C8: a hundred missed runs are counted": reports("12:00", hourly("10:19", runsAt("* * * * *")),
			"live, create 12:00, last=12:00 missed=11:59 next=12:01 active=1; Created, Warning MissedRuns",
			": 100 runs due from 2026-11-21T10:20:00Z to 2026-11-21T11:59:00Z; a later run was"),
		"rule C9: at the deadline a run is started": when(
			"12:10:00.9", hourly("11:00", deadline(600)), startsRun+"; in 100ms"),
		"rule C20: with it the next sync is not too late": when(
			"11:59:59.999999999", hourly("11:00", deadline(math.MaxInt64)), "last=11:00; in 1ns"),
		"rule C12: not past its deadline": reports("12:10", hourly("10:00", was("Suspended", ""), deadline(60)),
			"last=10:00 missed=12:00; Warning MissedRuns, Warning MissedRuns", "12:00:00Z; spec.suspend was true"),

		"rule C14: the UID under another kind is another owner, and no Job is replaced for it": when(
			"12:00", hourly("11:00", replace), "last=11:00 missed=12:00 active=1 JobNameTaken; Warning JobNameTaken",
			run("11:00"), run("12:00", ownedBy("CronJob", "uid-backup"))),
		"rule C15: a run that has a Job was started, even if that is older": when(
			"12:30", hourly("11:00", deadline(60)), "last=12:00 active=1", run("12:00", bornAt("11:00"))),
		"rule C15: runs before, between and after are missed": reports(
			"12:10", hourly("06:00"), "live, create 12:00, last=12:00 missed=11:00 active=3; Created"+strings.Repeat(", Warning MissedRuns", 3),
			"the run due at 2026-11-21T09:00:00Z; a later run", run("10:00"), run("08:00")),
		"rule C15: a Job ahead of the clock is ignored": when(
			"12:10", hourly("11:00"), "live, create 12:00, last=12:00 active=2; Created", run("13:00")),
	}
}

func decideSchedules() map[string]syncTest {
	at := writtenAtClock
	new15 := changesTo("15 * * * *")
	return map[string]syncTest{
		"rule C13: a new schedule counts from when it was written": reports("12:20", hourly("10:00", new15, at("12:10")),
			"last=10:00 missed=12:00 next=13:15; Warning MissedRuns; in 50ms",
			": 2 runs due from 2026-11-21T11:00:00Z to 2026-11-21T12:00:00Z; the schedule was changed before"),
		"rule C13: its times before the change are no runs": when(
			"12:20", hourly("12:00", new15, at("12:17"), at("12:10")), "last=12:00 next=13:15"),
		"rule C13: the time of a status update is ignored": when(
			"12:20", hourly("12:00", new15, at("12:10"), writtenAtBy("12:17", "status")), "last=12:00 next=13:15; in 50ms"),
		"rule C13: without managed fields it counts from now": when(
			"12:20:00.5", hourly("12:00", new15), "last=12:00 next=13:15"),
		"rule C13: and with a time ahead of the clock": when(
			"12:20", hourly("12:00", new15, at("13:17")), "last=12:00 next=13:15"),
		"rule C13: another time zone is another schedule": when(
			"12:20", hourly("11:00", follows("", "20T10:30"), inZone("Asia/Kathmandu"), at("12:10")), "last=11:00 missed=12:00 next=13:15; Warning MissedRuns; in 50ms"),
		"rule C13: no run is started, and no Job replaced, before the status records the schedule": when(
			"12:10", unseen(createdAt("11:30"), replace), "active=1; in 50ms", run("11:00")),
		"rule C13: a former schedule that was invalid has no runs": when(
			"12:10", hourly("10:00", follows("0 25 * * *", "20T10:30"), at("12:05")), "last=10:00"),
		"rule C13: a change while suspended is one": reports("12:10", hourly("11:00", suspended, new15),
			"last=11:00 missed=12:00 never Suspended; Warning MissedRuns; rest", "; the schedule was changed before"),
		"rule C13: runs of both schedules are started or missed": reports("12:30", hourly("11:00", changesTo("2,12 * * * *"), at("12:05")),
			"last=12:20 missed=12:12 next=13:02 active=2; Warning MissedRuns", "the run due at 2026-11-21T12:12:00Z; a later run",
			run("12:00"), run("12:20")),
		"rule C16: the Job of the next run is tried while one waits": when(
			"12:50", hourly("11:00", nextGeneration, forbid), "live, try 13:00, last=11:00 active=1", run("11:00")),
		"rule C16: none is tried without a next run": when(
			"12:00", hourly("11:00", nextGeneration, suspended), "last=11:00 never Suspended; rest"),
	}
}

func decideConcurrency() map[string]syncTest {
	const superseded = "; a later run was already due or started"
	under := func(policy cronTabOption, does string, jobs ...*batchv1.Job) syncTest {
		return when("12:00", hourly("11:00", policy), does, jobs...)
	}
	return map[string]syncTest{
		"rule C10: Forbid: a run is started if all others have ended": under(
			forbid, "live, create 12:00, last=12:00 success=11:01 failure=11:01 active=1; Created",
			run("11:00", complete("11:01")), run("10:00", failed("11:01"))),
		"rule C10: Forbid: a run waits if one of many is under way, also one that is being deleted": under(
			forbid, "last=11:00 success=10:01 active=1", run("10:00", complete("10:01")), run("11:00", goesAway), run("09:00", complete("09:01"))),
		"rule C10: Forbid: a Job that is not complete counts": under(
			forbid, "last=11:00 success=11:01 active=1",
			run("11:00", complete("11:01"), func(job *batchv1.Job) { job.Status.Conditions[0].Status = "False" })),
		"rule C8: Forbid: after downtime runs are superseded": reports("12:10", hourly("10:00", forbid),
			"live, create 12:00, last=12:00 missed=11:00 success=10:01 active=1; Created, Warning MissedRuns", superseded,
			run("10:00", complete("10:01"))),
		"rule C9: Forbid: a run waits until its deadline": when(
			"12:00:10.5", hourly("11:00", forbid, deadline(30)), "last=11:00 active=1; in 20.5s", run("11:00")),
		"rule C11: the next Job is tried, all under way are deleted and no others, the next is created": under(
			replace, "live, try 12:00, live, delete 10:00, live, delete 11:00, create 12:00, "+
				"last=12:00 success=09:01 failure=08:00 active=1; Deleted, Deleted, Created",
			run("11:00"), run("10:00"), run("09:00", complete("09:01")), run("08:00", failed("08:00")), run("07:00", ofCronJob)),
		"rule C11: Replace: one that is being deleted is not deleted again": under(
			replace, "live, create 12:00, last=12:00 active=2; Created", run("11:00", goesAway)),
	}
}

// decideManual: the last run of the schedule was at 12:00.
func decideManual() map[string]syncTest {
	const creates = "live, create asked 12:10, last=12:00 asked=12:10 "
	const starts = creates + "active=1; Created"
	at1210 := askedAt("12:10")
	return map[string]syncTest{
		"rule C22: a run that a user asks for is started, also late, whatever the deadline": when(
			"12:30", hourly("12:00", at1210, deadline(60)), starts),
		"rule C22: the time may be in another zone": when(
			"12:10", hourly("12:00", asked("2026-11-21T13:10:00.7+01:00")), starts),
		"rule C22: a run is started while suspended": when(
			"12:10", hourly("12:00", at1210, suspended), creates+"never active=1 Suspended; Created; rest"),
		"rule C22: and with a schedule that cannot be read": when(
			"12:10", hourly("12:00", at1210, runsAt("x")), creates+"never active=1 InvalidSchedule; Created, Warning InvalidSchedule; rest"),
		"rule C22: meanwhile the clock is checked": when(
			"12:09:40", hourly("12:00", askedAt("18:10"), suspended), "last=12:00 never Suspended"),
		"rule C22: it waits until the status records the schedule": when(
			"12:10", unseen(createdAt("11:30"), askedAt("12:05")), "no run; in 50ms"),
		"rule C22: with Replace it does not wait for the end of a Job": when(
			"12:30", hourly("11:00", replace, askedAt("12:30")), "last=12:00 active=1; in 50ms", run("12:00")),
		"rule C22: a run in the future waits": when("12:09:40", hourly("12:00", at1210), "last=12:00; in 20s"),
		"rule C22: a run that has a Job was started, even if that is older": when(
			"12:10:01", hourly("12:00", at1210), "last=12:00 asked=12:10 active=1", manual("12:10", bornAt("11:00"))),
		"rule C22: also if the annotation is gone": when(
			"12:10:01", hourly("12:00"), "last=12:00 asked=12:10 active=1", manual("12:10")),
		"rule C22: a Job ahead of the clock is ignored": when(
			"12:10:01", hourly("12:00", at1210), creates+"active=2; Created", manual("12:20")),
		"rule C22: an older run goes before one of the schedule": when(
			"13:00:05", hourly("12:00", askedAt("12:30"), forbid), "live, create asked 12:30, last=12:00 asked=12:30 active=1; Created; in 50ms"),
		"rule C22: it does not settle one of the schedule": when(
			"13:00", hourly("12:00", askedAt("13:00"), handledAt("13:00")), "live, create 13:00, last=13:00 asked=13:00 active=2; Created", manual("13:00")),
		"rule C22: with Forbid the schedule waits for it": when(
			"13:00", hourly("12:00", handledAt("12:10"), forbid), "last=12:00 asked=12:10 active=1", manual("12:10")),
		"rule C22: with Replace the active Job is deleted": when(
			"12:10", hourly("12:00", at1210, replace), "live, try asked 12:10, live, delete 12:00, create asked 12:10, last=12:00 asked=12:10 active=1; Deleted, Created", run("12:00")),
		"rule C22: but not before its run is recorded": when(
			"13:00", hourly("12:00", replace), "last=12:00 asked=12:10 active=1; in 50ms", manual("12:10")),
		"rule C22: nor is it deleted as history": when(
			"12:30", hourly("12:00", keeps(0, 0)), "last=12:00 asked=12:10 failure=12:10; in 50ms", manual("12:10", failed("12:10"))),
		"rule C22: a time before the creation is that of a CronTab which was restored": when(
			"12:10", hourly("12:00", askedAt("20T10:28:59")), "last=12:00"),
		"rule C22: the clock of the user may be behind": when(
			"12:10", hourly("12:00", askedAt("20T10:29")), "live, create asked 20T10:29, last=12:00 asked=20T10:29 active=1; Created"),
	}
}

// decideSplay: the offset is 10 seconds.
func decideSplay() map[string]syncTest {
	minute, to30 := splays(60), changesTo("30 * * * *")
	return map[string]syncTest{
		"rule C24: not if it was due before the creation": when(
			"12:00:10", hourly("", minute, createdAt("12:00:05")), "no run"),
		"rule C24: an offset is no clock that is behind": when(
			"12:00:37", hourly("", splays(3600), createdAt("12:00:10")), "no run"),
		"rule C24: it may be longer than the period": when(
			"12:31:33", hourly("12:00", runsAt("* * * * *"), splays(3600)), "last=12:00 next=12:01; in 37s"),
		"rule C24: the deadline counts from it": when(
			"12:00:40", hourly("11:00", minute, deadline(30)), startsRun+"; in 1s"),
		"rule C24: the deadline has passed": when(
			"12:00:41", hourly("11:00", minute, deadline(30)), "last=11:00 missed=12:00 MissedDeadline; Warning MissedDeadline"),
		"rule C24: after downtime the latest of its time starts": when("12:00", hourly("09:00", minute),
			"live, create 11:00, last=11:00 missed=10:00 next=12:00 active=1; Created, Warning MissedRuns; in 10s"),
		"rule C24: a run is held while the schedule changes": when(
			"12:00:05", hourly("11:00", minute, to30), "last=11:00 next=12:00; in 5s"),
		"rule C24: it is started, though the schedule has changed": {
			now: "12:00:10", cronTab: hourly("11:00", minute, to30, writtenAtClock("12:00:05")), does: startsRun, goesOn: true},
		"rule C24: another zone is another schedule": {now: "12:00:10", does: startsRun, goesOn: true,
			cronTab: hourly("11:00", minute, follows("", "20T10:30"), inZone("Asia/Kathmandu"), writtenAtClock("12:00:05"))},
		"rule C24: while suspended the new schedule is followed at once": when(
			"12:00:05", hourly("11:00", minute, to30, suspended), "last=11:00 missed=12:00 never Suspended; Warning MissedRuns; rest"),
		"rule C24: a former schedule has no runs after the change": {now: "13:10", cronTab: hourly("11:00", minute, to30, writtenAtClock("12:00:05")),
			does: "live, create 12:00, last=12:00 next=13:00 active=1; Created", goesOn: true},
		"rule C24: its runs whose time had come are missed": reports("12:00:20", hourly("11:00", minute, to30),
			"last=11:00 missed=12:00 next=12:30; Warning MissedRuns", "; the schedule was changed before"),
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
		due, at := dueTime(named("backup", name)), manualTime(named("backup", name))
		fixture.Differ(t, "rule C7: the runs of a Job with the name "+name, [2]time.Time{}, [2]time.Time{due, at})
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
			got = append(got, runNamed(job.Name))
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
