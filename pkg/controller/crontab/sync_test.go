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
	"context"
	"fmt"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/validation"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
)

// syncTest is one call of syncHandler for the CronTab "backup", and what the call does.
type syncTest struct {
	now     string
	cronTab *alphav1.CronTab
	// jobs are in the caches and the API server, live only in the latter, in their place.
	jobs, live jobs
	// prepare makes requests fail, or adds to what the controller remembers.
	prepare func(*testbed)
	// does has the requests, the events and, if it is not in a minute, the time of the next sync.
	does string
	// says is a part of the message of a condition or of an event, err a part of the error.
	says, err string
	// goesOn says that the next sync does more, remembers that the controller does what the status does not.
	goesOn, remembers bool
}

// reports is a sync about whose messages a user reads.
func reports(now string, cronTab *alphav1.CronTab, does, says string, jobs ...*batchv1.Job) syncTest {
	return syncTest{now: now, cronTab: cronTab, jobs: jobs, does: does, says: says}
}

func when(now string, cronTab *alphav1.CronTab, does string, jobs ...*batchv1.Job) syncTest {
	return reports(now, cronTab, does, "", jobs...)
}

func TestSyncHandler(t *testing.T) {
	for _, tests := range []map[string]syncTest{
		syncStarts(), syncReplace(), syncTries(), syncFailures(), syncHistory(),
		syncMissed(), syncEnds(),
		decideDue(), decideConcurrency(), decideManual(),
	} {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, test.run)
			})
		}
	}
}

func (test *syncTest) run(t *testing.T) {
	live := test.live
	if live == nil {
		live = test.jobs
	}
	f := newTestbed(t, test.now, test.cronTab, live...)
	f.fill(test.cronTab, test.jobs)
	if test.prepare != nil {
		test.prepare(f)
	}
	f.listen()
	before, _ := f.cronTabs.Cached(testKey("backup"))
	before = before.DeepCopy()

	ctx, cancel := context.WithTimeout(f.ctx, time.Minute)
	defer cancel()
	again, err := f.syncHandler(ctx, testKey("backup"))

	did := []string{strings.Join(f.requests(), ", "), strings.Join(f.recorded(), ", "), "in " + again.String()}
	did[2] = strings.NewReplacer("in 0s", "rest", "in 1m0s", "").Replace(did[2])
	fixture.Differ(t, "requests, events, and the next sync", test.does, strings.Trim(strings.ReplaceAll(strings.Join(did, "; "), "; ; ", "; "), "; "))
	if test.err == "" && err != nil || test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)) {
		t.Errorf("error %v, want %q in it", err, test.err)
	}
	if _, remembers := f.memories.Load(testKey("backup")); remembers != (test.remembers || strings.HasSuffix(test.does, "; in 5ms")) {
		t.Errorf("rule 23: what the status does not record is remembered: %v", remembers)
	}
	cached, _ := f.cronTabs.Cached(testKey("backup"))
	fixture.Differ(t, "the cached CronTab", before, cached)
	fixture.Differ(t, "enqueued in the end", []string(nil), fixture.Enqueued(f.Worker, time.Second))
	if test.cronTab != nil {
		test.runAgain(f, err == nil && test.live == nil && !test.goesOn && (again == 0 || again == maxRequeueAfter))
	}
}

// runAgain checks the messages, and that a sync which has stored all does nothing a second later.
func (test *syncTest) runAgain(f *testbed, done bool) {
	stored, messages := f.get("backup"), f.messages
	for _, condition := range stored.Status.Conditions {
		messages += condition.Message + "\n"
	}
	if !strings.Contains(messages, test.says) {
		f.t.Errorf("%q is not in the messages\n%s", test.says, messages)
	}
	if !done || stored.ResourceVersion == fixture.Version {
		return
	}
	if generation := controller.GetReady(stored.Status.Conditions).ObservedGeneration; generation != stored.Generation || stored.Status.ObservedGeneration != generation {
		f.t.Errorf("rule C18: generations %d, %d, %d", stored.Generation, stored.Status.ObservedGeneration, generation)
	}
	f.fill(stored, f.stored())
	f.requests()
	_, err := f.syncHandler(f.ctx, testKey("backup"))
	fixture.Differ(f.t, "rule C21: what a second sync does", []string(nil), append(f.requests(), f.recorded()...))
	fixture.Must(err)
}

const (
	started   = "last=12:00 active=1"
	startsRun = "live, create 12:00, " + started + "; Created"
	isRefused = "last=11:00 JobRejected; Warning JobRejected"
	isBehind  = "caches are behind"
	outOfDate = "the cache is out of date"
)

func syncStarts() map[string]syncTest {
	due := hourly("11:00", recordedAt("11:30"))
	running := jobs{run("11:00")}
	forbids := hourly("11:00", forbid, recordedAt("11:30", running...))
	const gone = "live, get 11:00, create 12:00, " + started + "; Created"
	return map[string]syncTest{
		"rules C6 and C7: a run takes a live read, which has the Pod spec, a creation, and a status update": {
			now: "12:00", cronTab: due, does: startsRun},

		"rule C10: an active Job that the cache does not have yet is read live": {
			now: "12:00", cronTab: forbids, live: running, does: "live, get 11:00", err: outOfDate},
		"rule C11: so it is with Replace": {now: "12:00", cronTab: hourly("11:00", replace, recordedAt("11:30", running...)),
			live: running, does: "live, get 11:00", err: outOfDate},
		"rule C10: one that the API server does not have was deleted": {now: "12:00", cronTab: forbids, does: gone},
		"rule C10: Allow: a run is started while another is under way, which is not read live": {
			now: "12:00", cronTab: hourly("11:00", recordedAt("11:30", running...)), live: running, does: startsRun},
	}
}

// syncReplace has a large CronTab: a sync that has the turn of such objects does not wait for itself (rule 24).
func syncReplace() map[string]syncTest {
	running, two := jobs{run("11:00")}, jobs{run("11:00"), run("10:00")}
	replaces := hourly("11:00", replace, large, recordedAt("11:30", running...))
	const (
		tries, deletes = "live, try 12:00", "live, try 12:00, live, delete 11:00"
		replaced       = deletes + ", create 12:00, " + started + "; Deleted, Created"
		keepsIt        = tries + ", last=11:00 active=1 JobRejected; Warning JobRejected"
	)
	many, deletions := eleven(func(string) jobOption { return func(*batchv1.Job) {} })
	conflicts := failingIf("delete", "jobs", func(action clienttesting.Action) bool {
		return action.(clienttesting.DeleteAction).GetName() == running[0].Name
	}, errConflict())
	return map[string]syncTest{
		"rule C11: a Job that has changed is not deleted, and no run is started; one deleted before is reported": {now: "12:00", cronTab: replaces, jobs: two, prepare: conflicts,
			does: "live, try 12:00, live, delete 10:00, live, delete 11:00, last=11:00 active=1; Deleted", err: `deleting Job "backup-1795258800"`},
		"rule C11: a replaced Job is reported even if the next Job is refused": {now: "12:00", cronTab: replaces, jobs: running, prepare: failing("create", "jobs", errQuota()),
			does: deletes + ", create 12:00, last=11:00 JobRejected; Deleted, Warning JobRejected; in 5ms", err: "quota"},

		"rule C11: a sync deletes ten at most": {now: "12:00", cronTab: hourly("11:00", replace, large, recordedAt("11:30", many...)), jobs: many,
			does: tries + deletions + ", last=11:00 active=1; Deleted" + strings.Repeat(", Deleted", 9), err: isBehind},
		"rule C16: the refusal of a deletion says nothing about it": {now: "12:00", cronTab: replaces, jobs: running, prepare: failing("delete", "jobs", errQuota()), does: deletes, err: "quota"},
		"rule C16: nor that of a read of the Job that has the name": {now: "12:00", cronTab: hourly("11:00"), live: jobs{run("12:00")}, prepare: failing("get", "jobs", errServer()), does: "live, create 12:00, get 12:00", err: "connection refused"},

		"rule C11: none is deleted while the API server fails to create Jobs": {now: "12:00", cronTab: replaces,
			jobs: running, prepare: failing("create", "jobs", errServer()), does: keepsIt, err: "connection refused"},
		"rule C11: a quota that counts the running Job is no refusal": {now: "12:00", cronTab: replaces, jobs: running, prepare: failingIf("create", "jobs", isDryRun, errQuota()), does: replaced},
		"rule C11: a webhook that answers no dry run refuses nothing": {now: "12:00", cronTab: replaces, jobs: running,
			prepare: failingIf("create", "jobs", isDryRun, apierrors.NewBadRequest(`admission webhook "mutate.example.com" does not support dry run`)), does: replaced},
		"rule C11: an adopted Job that is older than the CronTab is recorded before it is replaced": {now: "12:00", cronTab: hourly("", replace, createdAt("11:30")), jobs: jobs{run("09:00")},
			does: "last=09:00 active=1; in 50ms", goesOn: true},
		"rule C11: another bad request is one": {now: "12:00", cronTab: replaces, jobs: running,
			prepare: failingIf("create", "jobs", isDryRun, apierrors.NewBadRequest("bad")), does: keepsIt + "; in 5ms", err: "bad"},
	}
}

// syncTries: the Job of the next run is tried when the spec is new, and users ask for a run at 12:10.
func syncTries() map[string]syncTest {
	fresh := unseen(createdAt("11:30"))
	const tries, ready = "live, try 12:00, ", "live, try 12:00, last=11:00"
	const creates = "live, create asked 12:10, "
	return map[string]syncTest{
		"rule C16: the API server will refuse it": {
			now: "11:40", cronTab: fresh, prepare: failing("create", "jobs", errInvalid()), does: tries + "JobRejected; Warning JobRejected; in 5ms", err: "Required value",
			says: "image: Required value; it is tried again every 5m0s at least, and at once when the spec changes"},
		"rule C16: a name that is taken says nothing about the Job": {now: "11:40", cronTab: hourly("11:00", refused("invalid"), nextGeneration), live: jobs{run("12:00", unowned)}, does: ready},

		"rule C22: such a run ends an earlier refusal": {now: "12:10:05", cronTab: hourly("12:00", statusAfter("12:05", errQuota()), askedAt("12:10")), jobs: jobs{manual("12:10")},
			does: "live, try 13:00, last=12:00 asked=12:10 active=1"},
		"rule C22: its Job is refused, also while the CronTab is suspended": {
			now: "12:10:05", cronTab: hourly("12:00", suspended, recordedAt("12:05"), askedAt("12:10")), prepare: failing("create", "jobs", errInvalid()),
			does: creates + "last=12:00 never Suspended; Warning JobRejected; in 5ms", err: "image: Required value",
			says: "no run is started; the run that the annotation alpha.ianlewis.org/run-at asked for at 2026-11-21T12:10:00Z: the API server did not create the Job: creating"},
		"rule C22: a value that is not a time is reported": {now: "12:10:05",
			cronTab: hourly("12:00", recordedAt("12:05"), asked("now")), does: "last=12:00 InvalidRunAt; Warning InvalidRunAt"},
		"rule C22: also while the CronTab is suspended": {
			now: "12:10:05", cronTab: hourly("12:00", suspended, recordedAt("12:05"), asked("now")), does: "last=12:00 never InvalidRunAt; Warning InvalidRunAt; rest"},
	}
}

func syncFailures() map[string]syncTest {
	due, creates := hourly("11:00", recordedAt("11:30")), "live, create 12:00"
	failedBefore := func(err error) *alphav1.CronTab { return hourly("11:00", statusAfter("12:00", err)) }
	knows := func(uid types.UID) func(*testbed) {
		return func(f *testbed) {
			noon := dueRun{at: moment("12:00")}
			known := newMemory(uid)
			known.refused = map[bool]refusedJob{false: {noon, "", 1, moment("13:10"), maxRetry}, true: {}}
			if uid != due.UID {
				known.started = map[dueRun]time.Time{noon: {}, {noon.at, true}: {}}
			}
			f.remember(testKey("backup"), known)
		}
	}
	unansweredBy := func(manual bool) func(*testbed) {
		return func(f *testbed) {
			known := newMemory(due.UID)
			known.started[dueRun{moment("12:00"), manual}] = moment("12:00")
			f.remember(testKey("backup"), known)
		}
	}
	manualWaits := func(f *testbed) {
		known := newMemory(due.UID)
		known.refused[true] = refusedJob{dueRun{moment("12:10"), true}, "; as before", 1, moment("13:10"), maxRetry}
		f.remember(testKey("backup"), known)
	}
	unanswered := unansweredBy(false)
	slow := func(verb string, delay time.Duration) func(*testbed) {
		return func(f *testbed) {
			f.prepend(verb, "crontabs", func(clienttesting.Action) (bool, runtime.Object, error) { time.Sleep(delay); return false, nil, nil })
		}
	}
	withoutOwner := func(clienttesting.Action) (bool, runtime.Object, error) { return true, run("12:00", unowned), nil }
	failingFor := func(cronTab *alphav1.CronTab, err error, does, says, message string) syncTest {
		return syncTest{now: "12:00", cronTab: cronTab, prepare: failing("create", "jobs", err), does: creates + does, says: message, err: says}
	}
	failingWith := func(err error, does, says, text string) syncTest { return failingFor(due, err, does, says, text) }
	const mayHaveRun = "it is not known whether its Job was created, and there is none; it may have run"
	reads := 0
	return map[string]syncTest{
		"rule C16: a refusal is reported once, and retried": failingWith(errQuota(), ", "+isRefused+"; in 5ms", "quota",
			`the API server did not create the Job: creating Job "backup-1795262400": jobs.batch "backup" is forbidden: exceeded quota: one; it is tried again every 16m40s at least, and at once when`),
		"rule C16: another usage of the quota, and another generation, are nothing new": failingFor(
			hourly("11:00", statusAfter("12:00", errQuota()), nextGeneration), errQuotaOf(22), ", last=11:00 JobRejected; in 5ms", "batch=22", ""),
		"rule C16: another refusal replaces the first, and is reported": failingFor(
			hourly("11:00", refused("denied")), errQuota(), ", "+isRefused+"; in 5ms", "exceeded quota", "exceeded quota"),

		"rule C16: its delay does not delay the next run":                {now: "12:59:58", cronTab: failedBefore(errQuota()), prepare: knows(due.UID), does: "in 2s", remembers: true},
		"rule 23: refusals of runs that are no longer due are forgotten": {now: "12:30", cronTab: hourly("11:00", suspended, recordedAt("12:05")), prepare: knows(due.UID), does: "rest"},
		"rules C1 and 23: a CronTab that is gone is forgotten":           {now: "12:00", prepare: knows("former"), does: "rest"},
		"rule C16: what is known of a former CronTab does not count":     {now: "12:00", cronTab: due, prepare: knows("former"), does: startsRun},
		"rule C22: nor does it delay one by annotation": {now: "12:10:05", cronTab: hourly("11:00", statusAfter("12:00", errQuota()), askedAt("12:10")), prepare: knows(due.UID),
			does: "live, create asked 12:10, last=11:00 asked=12:10 active=1; Created; in 50ms", remembers: true},
		"rule C16: admission that removes the owner is a refusal, of a run that was started": {now: "12:00", cronTab: due, prepare: func(f *testbed) { f.prepend("create", "jobs", withoutOwner) },
			does: creates + ", last=12:00 JobRejected; Warning JobRejected; in 5ms", err: "owner reference", says: "the API server created the Job without its owner: creating Job"},
		"rule C15: a Job whose creation had no answer is created again soon, if it is not there": {now: "12:00:01.9", cronTab: due, prepare: unanswered,
			does: startsRun + "; in 100ms"},
		"rule C15: that it exists is no answer to an earlier one": {now: "12:00:01", cronTab: due, prepare: func(f *testbed) {
			unanswered(f)
			failing("create", "jobs", apierrors.NewAlreadyExists(jobsGroup, "backup"))(f)
		}, does: "live, create 12:00, get 12:00; in 1s", err: "already exists", remembers: true},
		"rule C15: the two seconds end at the creation": {now: "12:00:01", cronTab: due, prepare: func(f *testbed) { unanswered(f); slow("get", time.Second)(f) },
			does: "live; in 1ns", err: isBehind, remembers: true},
		"rule C15: a sync that has taken too long sends none": {now: "12:00", cronTab: due, prepare: slow("get", time.Hour), does: "live; in 1ns", err: isBehind},
		"rule C15: the deadline does not hide that": {now: "12:00:01", cronTab: hourly("11:00", deadline(0), recordedAt("11:30")), prepare: unanswered,
			does: "get 12:00, last=11:00 missed=12:00; Warning MissedRuns; in 1s", says: mayHaveRun},
		"rule C15: nor does an edit": {now: "12:10", cronTab: hourly("11:00", changesTo("30 * * * *")), prepare: unanswered,
			does: "get 12:00, last=11:00 missed=12:00 next=12:30; Warning MissedRuns; in 50ms", says: mayHaveRun},
		"rule C22: the message stays while a run of the schedule is refused": {now: "12:10:05", cronTab: hourly("11:00", askedAt("12:10")),
			prepare: func(f *testbed) { manualWaits(f); failing("create", "jobs", errQuota())(f) },
			does:    creates + ", " + isRefused + "; in 5ms", err: "quota", says: "changes; as before", remembers: true},
		"rule C22: and while that of the next run is tried": {now: "12:40", cronTab: hourly("12:00", refused("denied"), askedAt("12:10")), prepare: manualWaits,
			does: "live, try 13:00, last=12:00", says: "UTC; as before", remembers: true},
		"rule C15: a 504 may come after the Job is stored":  {now: "12:00", cronTab: due, prepare: failing("create", "jobs", apierrors.NewTimeoutError("slow", 0)), does: creates, err: "slow", remembers: true},
		"rule C15: so may an answer that was lost":          {now: "12:00", cronTab: due, prepare: failing("create", "jobs", io.ErrUnexpectedEOF), does: creates, err: "EOF", remembers: true},
		"rule C15: the cache has to show it if it is there": {now: "12:01", cronTab: due, live: jobs{run("12:00")}, prepare: unanswered, does: "get 12:00", err: outOfDate, remembers: true},
		"rule C15: without a connection no Job was created": {now: "12:00", cronTab: due, prepare: failing("create", "jobs", &net.OpError{Op: "dial", Err: os.ErrDeadlineExceeded}),
			does: creates, err: "i/o timeout"},
		"rule 12: Retry-After is that of a dry run, too": {now: "12:40", cronTab: hourly("12:00", refused("denied")),
			prepare: failing("create", "jobs", apierrors.NewTooManyRequests("later", 30)), does: "live, try 13:00, last=12:00 JobRejected; in 30s", remembers: true},
		"rule C16: a terminating namespace is no error": failingWith(fixture.Terminating(jobsGroup), "; rest", "", ""),
		"rule C23: a CronTab becomes late while no Job can be created": failingFor(hourly("11:00", recordedAt("11:30"), succeedsWithin(600)), apierrors.NewTooManyRequests("later", 1),
			", last=11:00 next=12:00 NoSuccess; Warning Late", `creating Job "backup-1795262400": later`, "no run has succeeded since the creation"),
		"rule C23: a failing sync begins no status": {now: "11:40", cronTab: unseen(createdAt("11:30"), succeedsWithin(3600)),
			prepare: failingIf("get", "crontabs", func(clienttesting.Action) bool { reads++; return reads == 1 }, errServer()), does: "live", err: "connection refused"},
		"rule C6: slow answers do not delay the next run": {now: "11:59:58", cronTab: hourly("11:00"), prepare: slow("patch", 700*time.Millisecond), does: "last=11:00; in 1.3s"},
	}
}

// eleven returns so many Jobs, and the requests that delete the ten oldest.
func eleven(option func(at string) jobOption) (many jobs, deletions string) {
	for minute := range 11 {
		at := fmt.Sprintf("10:%02d", minute)
		if many = append(many, run(at, option(at))); minute < 10 {
			deletions += ", live, delete " + at
		}
	}
	return many, deletions
}

func syncHistory() map[string]syncTest {
	both := jobs{run("10:00", complete("10:01")), run("11:00", complete("11:01"))}
	keepsNone := hourly("11:00", keeps(0, 0), recordedAt("11:30", both...))
	many, deletions := eleven(complete)
	keeping := func(does string, finished jobs, options ...cronTabOption) syncTest {
		return when("12:30", hourly("12:00", append(options, recordedAt("12:30", finished...))...), does, finished...)
	}
	done := func(clock string, options ...jobOption) *batchv1.Job {
		return run(clock, append(options, complete(clock))...)
	}
	const deletes, status = "live, delete 10:00, live, delete 11:00", "last=12:00 success=11:01 active=1"
	return map[string]syncTest{
		"rule C17: a Job whose success is not recorded yet stays until the next sync": {now: "11:40", cronTab: hourly("11:00", keeps(0, 0), recordedAt("10:30", both[0])), jobs: both,
			does: "last=11:00 success=11:01, live, delete 10:00; Deleted; in 50ms"},
		"rules C17 and C19: before the status is stored none is deleted, and only writes have events": {now: "12:00", cronTab: keepsNone, jobs: both, prepare: failing("patch", "crontabs", errConflict()),
			does: "live, create 12:00, " + status + "; Created", err: "the object has been modified", remembers: true},
		"rule C17: by default the three latest completed Jobs stay, and the latest failed Job": keeping(
			"live, delete 09:00, live, delete 07:00, live, delete 08:00; Deleted, Deleted, Deleted",
			jobs{done("12:00"), done("09:00"), run("07:00", failed("07:00")), done("11:00"), run("08:00", failed("08:00")), done("10:00"), run("10:30", failed("10:30"))}),
		"rule C17: a negative limit is 0":                       keeping("live, delete 08:00, live, delete 10:00; Deleted, Deleted", jobs{done("08:00"), run("10:00", failed("10:00"))}, keeps(-1, -1)),
		"rule C17: Jobs that are being deleted are not counted": keeping("", jobs{done("11:00", goesAway), run("12:00", failed("12:00"), goesAway), done("10:00")}, keeps(1, 1)),
		"rule C17: Jobs of the same age are ordered by name":    keeping("live, delete backup-a; Deleted", jobs{done("10:00", jobNamed("backup-b")), done("10:00", jobNamed("backup-a"))}, keeps(1, 1)),
		"rule C17: one that cannot be deleted delays neither another nor the next run": {
			now: "11:59:58", cronTab: keepsNone, jobs: both, prepare: failing("delete", "jobs", errQuota()), does: deletes + "; in 2s", err: `deleting Job "backup-1795258800"`},
		"rule C17: a sync deletes ten at most, and the next one goes on": {now: "11:40", cronTab: hourly("11:00", keeps(0, 0), recordedAt("11:30", many...)), jobs: many,
			does: deletions[2:] + "; " + strings.Repeat("Deleted, ", 9) + "Deleted; in 50ms"},
		"rule C17: ten can be all": {now: "11:40", cronTab: hourly("11:00", keeps(0, 0), recordedAt("11:30", many[:10]...)), jobs: many[:10],
			does: deletions[2:] + "; " + strings.Repeat("Deleted, ", 9) + "Deleted"},
	}
}

// syncMissed: which runs were missed, why no run is started, and what else Ready says.
func syncMissed() map[string]syncTest {
	const starts, active = "live, create 12:00, last=12:00 ", "active=1"
	const missed, missedDeadline = "last=11:00 missed=12:00 ", "last=11:00 missed=12:00 MissedDeadline"
	nameTaken := func(owner jobOption, says string) syncTest {
		return reports("12:00", hourly("11:00"), missed+"JobNameTaken; Warning JobNameTaken", says, run("12:00", owner))
	}
	reads := func(options ...cronTabOption) *alphav1.CronTab {
		return hourly("11:00", append(options, follows("", "20T10:30"))...)
	}
	asks := askedAt("12:10")
	const waits = `the run that the annotation alpha.ianlewis.org/run-at asked for at 2026-11-21T12:10:00Z waits for the end of Job "backup-1795262400", since spec.concurrencyPolicy is Forbid`
	return map[string]syncTest{
		"rule C8: runs were missed and one was started": reports("12:00", hourly("09:00"), starts+"missed=11:00 "+active+"; Created, Warning MissedRuns",
			"not started: 2 runs due from 2026-11-21T10:00:00Z to 2026-11-21T11:00:00Z; a later run was already due or started"),
		"rule C12: over a hundred, suspended": reports("12:00", hourly("20T12:00", runsAt("* * * * *"), was("Suspended", "")),
			starts+"missed=11:59 next=12:01 active=1; Created, Warning MissedRuns", "more than 100 runs due from 2026-11-20T12:01:00Z to 2026-11-21T11:59:00Z; spec.suspend was true"),
		"rule C10: a run waited until the next was due": reports("13:00", hourly("11:00", forbid), "last=11:00 missed=12:00 active=1; Warning MissedRuns",
			"; an earlier run was under way, and spec.concurrencyPolicy is Forbid", run("11:00")),
		"rule C9: not a run after the CronTab was resumed": reports("14:15", hourly("12:00", was("Suspended", ""), deadline(600), writtenAtClock("12:30")),
			"last=12:00 missed=14:00 MissedDeadline; Warning MissedRuns, Warning MissedDeadline", "due at 2026-11-21T13:00:00Z; a later run"),
		"rule C16: a refused run was missed, and the next ends the refusal": reports("13:00", hourly("11:00", refused("")),
			"live, create 13:00, last=13:00 missed=12:00 active=1; Created, Warning MissedRuns", "the run due at 2026-11-21T12:00:00Z; the API server did not create the Job"),
		"rule C13: a run of a former schedule was missed; without managed fields the new one counts from now": reports("12:10", hourly("11:00", changesTo("30 * * * *")),
			"last=11:00 missed=12:00 next=12:30; Warning MissedRuns", "the run due at 2026-11-21T12:00:00Z; the schedule was changed before"),
		"rule C18: a run that was recorded as missed before the cache showed its Job was started": reports("12:30", hourly("10:00", missedAtNoon), "last=11:00 missed=12:00 "+active, "", run("11:00")),

		"rule C9: too late": reports("12:10:01", hourly("11:00", deadline(600)), missedDeadline+"; Warning MissedDeadline",
			"the run due at 2026-11-21T12:00:00Z was not started within spec.startingDeadlineSeconds, which is 600"),
		"rule C9: it ends with another schedule": reports("12:20", hourly("11:00", changesTo("30 * * * *"), missedAtNoon, was("MissedDeadline", "")), "last=11:00 missed=12:00 next=12:30", ""),
		"rule C16: a refusal that a quota hides stays when the deadline has passed": {now: "12:10", cronTab: hourly("11:00", deadline(60), refused("denied")), prepare: failing("create", "jobs", errQuota()),
			does: "live, try 13:00, last=11:00 missed=12:00 JobRejected; Warning MissedDeadline; in 5ms", says: "denied"},

		"rule C14: the name is taken by a Job of another controller": nameTaken(ofCronJob,
			`the run due at 2026-11-21T12:00:00Z was not started: the name of its Job, "backup-1795262400", is taken by a Job that is controlled by CronJob "backup"; later runs are not affected`),
		"rule C14: the message names an earlier CronTab": nameTaken(ofFormer, "is taken by a Job that belongs to an earlier CronTab of this name (uid uid-earlier)"),

		"rule C24: the offset is named": reports("12:30", hourly("12:00", splays(60)), "last=12:00", `the schedule "0 * * * *" is followed, in the time zone UTC; each run is started 10s after it is due`),
		"rule C3: a schedule that cannot be read": reports("12:00", reads(runsAt("0 25 * * *")), "last=11:00 never InvalidSchedule; Warning InvalidSchedule; rest",
			`spec.schedule: field 2 (hour) of "0 25 * * *": end of range (25) above maximum (23): 25`),
		"rule C3: a time zone that does not exist": reports("12:00", reads(inZone("Europe/Belin")), "last=11:00 never UnknownTimeZone; Warning UnknownTimeZone; rest",
			`spec.timeZone "Europe/Belin": unknown time zone Europe/Belin`),
		"rule C3: a date that does not exist": reports("12:00", reads(runsAt("0 0 30 2 *")), "last=11:00 never NeverDue; Warning NeverDue", `"0 0 30 2 *" matches no date within 12 years`),
		"rule C20: the clock is behind":       reports("12:00", hourly("14:00"), "last=14:00 next=15:00 ClockBehind; Warning ClockBehind", "the status records all runs up to 2026-11-21T14:00:00Z as handled"),
		"rule C22: nor if its name is taken": reports("12:10:05", hourly("12:00", was("MissedDeadline", "as before"), asks),
			"last=12:00 asked=12:10 MissedDeadline; Warning JobNameTaken", "as before", manual("12:10", unowned)),
		"rule C22: a run that is asked for waits": reports("12:10", hourly("12:00", asks, forbid), "last=12:00 active=1", "; "+waits, run("12:00")),
	}
}

// syncEnds: how Jobs ended.
func syncEnds() map[string]syncTest {
	done, broken, both := run("12:00", complete("12:01")), run("11:00", failed("11:20")), recordedAt("12:00:30", run("11:00"), run("12:00"))
	hour, unset := succeedsWithin(3600), func(c *alphav1.CronTab) { c.Spec.SuccessDeadlineSeconds = nil }
	const inTime = "last=13:00 success=12:01:30 InTime"
	return map[string]syncTest{
		"rule C18: the latest success and failure count": reports("12:30", hourly("12:00"), "last=12:00 success=12:20 failure=11:20; in 50ms", "",
			run("09:00", failed("11:10")), broken, run("10:00", complete("12:20")), done),
		"rule C19: a Job that was active is complete": reports("12:30", hourly("12:00", both), "last=12:00 success=12:01 active=1; JobCompleted", `Job "backup-1795262400" is complete`, run("11:00"), done),
		"rule C19: a Job that was active has failed":  reports("12:30", hourly("12:00", both), "last=12:00 failure=11:20 active=1; Warning JobFailed", `Job "backup-1795258800" has failed`, broken, run("12:00")),

		"rule C23: the condition ends with the field": reports("12:30", hourly("12:00", hour, recordedAt("12:10"), unset), "last=12:00", ""),
		"rule C23: at the deadline it is in time":     reports("13:01:30", hourly("13:00", hour, succeededAt("12:01:30")), inTime+"; in 1s", "is not longer ago than spec.successDeadlineSeconds"),
		"rule C23: after the deadline it is late": reports("13:01:01", hourly("13:00", hour, succeededAt("12:01")), "last=13:00 success=12:01 NoSuccess; Warning Late",
			"no run has succeeded since 2026-11-21T12:01:00Z, and spec.successDeadlineSeconds is 3600"),
	}
}

// TestStatusDetails: what a line does not show.
func TestStatusDetails(t *testing.T) {
	cronTab := hourly("12:00", inZone("Europe/Berlin"))
	theirs := metav1.Condition{Type: "Theirs", Status: "True", Reason: "Kept", LastTransitionTime: stamp("20T12:00")}
	cronTab.Status.Conditions = []metav1.Condition{theirs}
	var many jobs
	for minute := range 150 {
		many = append(many, jobOf(cronTab, moment("12:00").Add(-time.Duration(minute)*time.Minute)))
	}
	snap := snapshotAt("12:30:00.5", cronTab, many)
	d := decide(snap)
	status := newStatus(snap, d, result{})
	fixture.Differ(t, "rule C5: the time zone of a Job's annotation", "Europe/Berlin", d.zone().String())
	want := &alphav1.ObservedSchedule{Schedule: "0 * * * *", TimeZone: "Europe/Berlin", Since: cronTab.CreationTimestamp}
	fixture.Differ(t, "rule C18: observedSchedule", want, status.ObservedSchedule)
	fixture.Differ(t, "rule C18: the condition of another controller", theirs, status.Conditions[0])
	fixture.Differ(t, "rule C18: when the condition changed", stamp("12:30"), status.Conditions[1].LastTransitionTime)
	fixture.Differ(t, "rule C18: the Jobs under way, of which 100 are listed", []int{150, 100}, []int{int(status.ActiveCount), len(status.Active)})
	fixture.Differ(t, "rule C18: the latest of them comes last",
		corev1.ObjectReference{APIVersion: "batch/v1", Kind: "Job", Namespace: "ns", Name: "backup-1795262400", UID: "uid-backup-1795262400"}, status.Active[99])
	var times []string
	for _, next := range status.NextScheduleTimes {
		times = append(times, clockOf(next.Time))
	}
	fixture.Differ(t, "rule C18: the next five runs", "13:00 14:00 15:00 16:00 17:00", strings.Join(times, " "))
}

func decideDue() map[string]syncTest {
	berlin := hourly("19T23:00", runsAt("@daily"), inZone("Europe/Berlin"), createdAt("18T10:00"))
	at := writtenAtClock
	new15 := changesTo("15 * * * *")
	return map[string]syncTest{
		"rule C1: a CronTab that is being deleted needs nothing": when("12:00", hourly("11:00", deleted), "rest"),
		"rules C6 and C20: before its time no run is due, and the next sync is when it is": when(
			"11:59:40.5", hourly("", createdAt("11:30")), "no run; in 19.5s"),
		"rule C5: the time zone of the spec counts": when(
			"20T23:00", berlin, "live, create 20T23:00, last=20T23:00 next=23:00 active=1; Created"),
		"rule C4: @every counts from the creation, and a late run shifts none": when(
			"12:01:40", hourly("", runsAt("@every 90s"), createdAt("11:58:50")), "live, create 12:00:20, last=12:00:20 next=12:01:50 active=1; Created; in 10s"),
		"rule C25: a stored interval of 5 seconds is kept": when(
			"12:00:05", hourly("12:00", runsAt("@every 5s")), "live, create 12:00:05, last=12:00:05 next=12:00:10 active=1; Created; in 5s"),

		"rule C8: a hundred missed runs are counted": reports("12:00", hourly("10:19", runsAt("* * * * *")),
			"live, create 12:00, last=12:00 missed=11:59 next=12:01 active=1; Created, Warning MissedRuns",
			": 100 runs due from 2026-11-21T10:20:00Z to 2026-11-21T11:59:00Z; a later run was"),
		"rule C20: with a deadline of centuries the next sync is not too early or late": when(
			"12:00", hourly("11:00", forbid, deadline(math.MaxInt64)), "last=11:00 active=1", run("11:00")),
		"rule C12: not past its deadline": reports("12:10", hourly("10:00", was("Suspended", ""), deadline(60)),
			"last=10:00 missed=12:00; Warning MissedRuns, Warning MissedRuns", "12:00:00Z; spec.suspend was true"),

		"rules C14 and C15: a Job that is older than the run, by a clock that was ahead, takes its name": reports(
			"12:30", hourly("11:00"), "last=11:00 missed=12:00 active=1 JobNameTaken; Warning JobNameTaken", "is taken by a Job that is older than the run", run("12:00", bornAt("11:00"))),
		"rule C15: runs before, between and after those with a Job, or that this process has started, are missed": {
			now: "12:10", cronTab: hourly("06:00"), jobs: jobs{run("10:00")}, prepare: func(f *testbed) {
				known := newMemory("uid-backup")
				known.started[dueRun{at: moment("08:00")}] = time.Time{}
				f.remember(testKey("backup"), known)
			}, does: "live, create 12:00, last=12:00 missed=11:00 active=2; Created" + strings.Repeat(", Warning MissedRuns", 3),
			says: "the run due at 2026-11-21T11:00:00Z; a later run"},

		"rule C15: a run within a minute of the creation counts as started by its Job": when(
			"12:01:10", hourly("", runsAt("* * * * *"), createdAt("12:00:30")), "last=12:01 next=12:02 active=1; in 50s", run("12:01")),
		"rule C15: a Job ahead of the clock is ignored": when(
			"12:10", hourly("11:00"), "live, create 12:00, last=12:00 active=2; Created", run("13:00")),
		"rule C13: a new schedule counts from when it was written": reports("12:20", hourly("10:00", new15, at("12:10")),
			"last=10:00 missed=12:00 next=13:15; Warning MissedRuns; in 50ms",
			": 2 runs due from 2026-11-21T11:00:00Z to 2026-11-21T12:00:00Z; the schedule was changed before"),
		"rule C13: its times before the change are no runs": when(
			"12:20", hourly("12:00", new15, at("12:17"), at("12:10")), "last=12:00 next=13:15"),
		"rule C13: with a time ahead of the clock it counts from now": when(
			"12:20", hourly("12:00", new15, at("13:17")), "last=12:00 next=13:15"),
		"rule C13: another time zone is another schedule": when(
			"12:20", hourly("11:00", follows("", "20T10:30"), inZone("Asia/Kathmandu"), at("12:10")), "last=11:00 missed=12:00 next=13:15; Warning MissedRuns; in 50ms"),
		"rule C13: runs of both schedules are started or missed": reports("12:30", hourly("11:00", changesTo("2,12 * * * *"), at("12:05")),
			"last=12:20 missed=12:12 next=13:02 active=2; Warning MissedRuns", "due at 2026-11-21T12:12:00Z; a later run",
			run("12:00"), run("12:20")),
		"rule C16: none is tried without a next run": when(
			"12:00", hourly("11:00", nextGeneration, suspended), "last=11:00 never Suspended; rest"),
	}
}

func decideConcurrency() map[string]syncTest {
	under := func(policy cronTabOption, does string, jobs ...*batchv1.Job) syncTest {
		return when("12:00", hourly("11:00", policy), does, jobs...)
	}
	return map[string]syncTest{
		"rule C10: Forbid: a Job that is not complete counts": under(
			forbid, "last=11:00 success=11:01 active=1",
			run("11:00", complete("11:01"), func(job *batchv1.Job) { job.Status.Conditions[0].Status = "False" })),
		"rules C8 and C10: Forbid: after downtime runs are superseded, and one is started if all others have ended": reports("12:10", hourly("10:00", forbid),
			"live, create 12:00, last=12:00 missed=11:00 success=10:01 failure=09:01 active=1; Created, Warning MissedRuns",
			"; a later run was already due or started", run("10:00", complete("10:01")), run("09:00", failed("09:01"))),
		"rule C11: the next Job is tried, all under way are deleted and no others, the next is created": under(
			replace, "live, try 12:00, live, delete 10:00, live, delete 11:00, create 12:00, "+
				"last=12:00 success=09:01 failure=08:00 active=1; Deleted, Deleted, Created",
			run("11:00"), run("10:00"), run("09:00", complete("09:01")), run("08:00", failed("08:00")), run("07:00", ofCronJob)),
	}
}

// decideManual: the last run of the schedule was at 12:00.
func decideManual() map[string]syncTest {
	const creates = "live, create asked 12:10, last=12:00 asked=12:10 "
	const starts = creates + "active=1; Created"
	at1210 := askedAt("12:10")
	minute, to30 := splays(60), changesTo("30 * * * *")
	return map[string]syncTest{
		"rule C22: a run that a user asks for is started, also late, whatever the deadline": when(
			"12:30", hourly("12:00", at1210, deadline(60)), starts),
		"rule C22: meanwhile the clock is checked": when(
			"12:09:40", hourly("12:00", askedAt("18:10"), suspended), "last=12:00 never Suspended"),
		"rule C22: it waits until the status records the schedule": when(
			"12:10", unseen(createdAt("11:30"), askedAt("12:05")), "no run; in 50ms"),
		"rule C22: with Replace it does not wait for the end of a Job": reports(
			"12:30", hourly("11:00", replace, askedAt("12:30")), "last=12:00 active=1; in 50ms", "zone UTC\n", run("12:00")),
		"rule C22: an older run goes before one of the schedule": when(
			"13:00:05", hourly("12:00", askedAt("12:30"), forbid), "live, create asked 12:30, last=12:00 asked=12:30 active=1; Created; in 50ms"),
		"rule C22: its Job stays in the history until its run is recorded": when("12:30",
			hourly("12:00", keeps(0, 0)), "last=12:00 asked=12:10 failure=12:10; in 50ms", manual("12:10", failed("12:10"))),
		"rule C22: a time before the creation is that of a CronTab which was restored": when(
			"12:10", hourly("12:00", askedAt("20T10:28:59")), "last=12:00"),

		"rules C9 and C24: the deadline counts from it, and at the deadline a run is started": when(
			"12:00:40.9", hourly("11:00", minute, deadline(30)), startsRun+"; in 100ms"),
		"rule C24: a run is held while the schedule changes": when(
			"12:00:05", hourly("11:00", minute, to30), "last=11:00 next=12:00; in 5s"),
		"rule C24: while suspended the new schedule is followed at once": when("12:00:05",
			hourly("11:00", minute, to30, suspended), "last=11:00 missed=12:00 never Suspended; Warning MissedRuns; rest"),
		"rule C24: a former schedule has no runs after the change": {now: "13:10", cronTab: hourly("11:00", minute, to30, writtenAtClock("12:00:05")),
			does: "live, create 12:00, last=12:00 next=13:00 active=1; Created", goesOn: true},
	}
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

// TestNewJob: the Job has the Pod spec and each option, and the labels and annotations of the controller win.
func TestNewJob(t *testing.T) {
	policy := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: "FailJob"}}}
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
	got := newJob(cronTab, dueRun{at: moment("12:00")}, berlin)
	fixture.Differ(t, "rule C7: the Job of a run", want, got)
	got.Labels["team"], *got.Spec.BackoffLimit, got.Spec.Template.Spec.Containers[0].Image = "x", 9, "other"
	fixture.Differ(t, "rule C7: the CronTab afterwards", before, cronTab)

	want.Name = "backup-mtoupc0"
	want.Annotations["alpha.ianlewis.org/instantiate"], want.Spec.Template.Annotations["alpha.ianlewis.org/instantiate"] = "manual", "manual"
	fixture.Differ(t, "rule C22: that of one by annotation", want, newJob(cronTab, dueRun{moment("12:00"), true}, berlin))
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
		want := dueRun{due, isManual}
		fixture.Differ(t, "rules C7 and C22: the name of the run at "+run, name, want.jobName("backup"))
		fixture.Differ(t, "rules C7 and C22: the run of "+name, true, want == runOf(named("backup", name)))
		// The longest name of a CronTab has 52 characters. The name of the Job is a label of its Pods.
		fixture.Differ(t, "rule C7: what is wrong about the label", []string(nil), validation.IsDNS1123Label(strings.Repeat("a", 52)+strings.TrimPrefix(name, "backup")))
	}
	for _, name := range []string{
		"", "backup", "backup-", "backup-x", "backup-manual", "other-1795262400", "backup-01795262400", "backup-+1795262400", "backup--5", "backup-1795262400-x",
		"backup-1-1795262400", "1795262400", "backup-99999999999999999999", "backup-29921040", "backup-999999999",
		"other-mtoupc0", "backup-manual-1", "backup-mTOUWO0", "backup-m0toupc0", "backup-m",
	} {
		fixture.Differ(t, "rule C7: no run has a Job with the name "+name, true, runOf(named("backup", name)) == dueRun{})
	}
	cronTab := hourly("11:00", keeps(0, 0), succeededAt("11:20"))
	copied := run("11:10", jobNamed("backup-202611221830"), complete("11:20"))
	fixture.Differ(t, "rule C7: a name with a date of the future is no run's", true, runOf(cronTab, copied) == dueRun{})
	fixture.Differ(t, "rule C17: its Job is one of the history", jobs{copied}, excessJobs(cronTab, jobs{copied}))
	fixture.Differ(t, "rule C7: the clocks of two machines differ a little", true, runOf(cronTab, run("12:00", bornAt("11:59"))) == dueRun{at: moment("12:00")})
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
	long := map[string]string{"team": strings.Repeat("x", 40_000)}
	for field, enlarge := range map[string]cronTabOption{
		"metadata":    func(c *alphav1.CronTab) { c.Spec.JobOptions.Metadata.Annotations = long },
		"podMetadata": func(c *alphav1.CronTab) { c.Spec.JobOptions.PodMetadata.Labels = long },
		"podFailurePolicy": func(c *alphav1.CronTab) {
			c.Spec.JobOptions.PodFailurePolicy = &batchv1.PodFailurePolicy{Rules: make([]batchv1.PodFailurePolicyRule, 20_000)}
		},
		"jobTemplate": large,
	} {
		if _, ok := Trim(hourly("11:00", enlarge)).(*alphav1.CronTab).Annotations["sample-controller/large"]; !ok {
			t.Errorf("rule 24: a CronTab with a large %s is not marked: several of them would be in memory at once", field)
		}
	}
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
