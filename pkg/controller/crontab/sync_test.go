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
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

var jobsGroup = schema.GroupResource{Group: "batch", Resource: "jobs"}

func errQuota() error {
	return apierrors.NewForbidden(jobsGroup, "backup", errors.New("exceeded quota: one, used: count/jobs.batch=1"))
}

func errServer() error {
	return apierrors.NewInternalError(errors.New("connection refused"))
}

func errConflict() error {
	return apierrors.NewConflict(jobsGroup, "backup", errors.New("the object has been modified"))
}

func errNotFound() error {
	return apierrors.NewNotFound(jobsGroup, "backup")
}

func errTerminating() error {
	err := apierrors.NewForbidden(jobsGroup, "backup", errors.New("unable to create new content in namespace ns because it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

// syncTest is one call of syncHandler for the CronTab "backup": the contents of the caches
// and of the API server, and what the call does.
type syncTest struct {
	now     string
	cronTab *alphav1.CronTab
	jobs    []*batchv1.Job
	// liveCronTab and liveJobs are what the API server has, if the caches have something
	// else.
	liveCronTab *alphav1.CronTab
	liveJobs    []*batchv1.Job
	// prepare makes requests fail, or adds to what the controller remembers.
	prepare func(*fixture)

	requests     []string
	events       []string
	requeueAfter time.Duration
	// err is a part of the error.
	err string
}

// recordedAt gives the CronTab the status that a sync at that time writes for those Jobs.
func recordedAt(clock string, jobs ...*batchv1.Job) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		if cronTab.Status.ObservedSchedule == nil {
			scheduled("", "20T10:30:00")(cronTab)
		}
		for range 2 {
			cronTab.Status, _ = statusAndEvents(clock, cronTab, jobs, nil, result{})
		}
	}
}

// refusedAt gives the CronTab the status that follows a refusal of its Job.
func refusedAt(clock string) cronTabOption { return statusAfter(errQuota(), clock) }

// failedAt gives the CronTab the status that follows a server error.
func failedAt(clock string) cronTabOption { return statusAfter(errServer(), clock) }

func statusAfter(rejected error, clock string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		recordedAt("11:30:00")(cronTab)
		rejected := fmt.Errorf("creating Job %q: %w", jobName(cronTab.Name, moment(clock)), rejected)
		cronTab.Status, _ = statusAndEvents(clock, cronTab, nil, nil, result{rejected: rejected})
	}
}

func generation(number int64) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Generation = number }
}

const (
	createRun = "create jobs 12:00:00 owner=uid-backup image=mybackupscript:v9"
	tryRun    = "try to " + createRun
	deleteRun = "delete jobs 11:00:00 uid=uid-backup-1795258800 version=10 Background"
	// deleteEarlier is for the Job of the run at 10:00.
	deleteEarlier = "delete jobs 10:00:00 uid=uid-backup-1795255200 version=10 Background"

	putStatus = "patch crontabs/status backup version=10: "
	started   = putStatus + "last=12:00:00 missed= next=13:00:00 active=1 True/Scheduled"
	getLive   = "get crontabs backup"
	getRun    = "get jobs 11:00:00"
)

// conflicts makes the deletion of that Job fail.
func conflicts(job *batchv1.Job) func(*fixture) {
	return func(f *fixture) {
		f.prepend("delete", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
			return action.(clienttesting.DeleteAction).GetName() == job.Name, nil, errConflict()
		})
	}
}

func startTests() map[string]syncTest {
	hourly := newCronTab("11:00:00", recordedAt("11:30:00"))
	return map[string]syncTest{
		"rule C1: a CronTab that is gone from the cache needs nothing": {now: "12:00:00"},
		"rule C1: the garbage collector deletes the Jobs of a CronTab that is being deleted": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", terminating, keeps(0, 0)), jobs: []*batchv1.Job{jobAt("11:00:00", complete("11:01:00"))}},

		"rule C6: a run takes one creation and one status update": {
			now: "12:00:00", cronTab: hourly,
			requests: []string{getLive, createRun, started}, events: []string{"Normal Created"}, requeueAfter: time.Minute},
		"rule C7: the Job has the Pod spec and the options of the live CronTab, which the cache does not hold": {
			now: "12:00:00", cronTab: hourly, prepare: func(f *fixture) {
				f.prepend("get", "crontabs", func(clienttesting.Action) (bool, runtime.Object, error) {
					live := hourly.DeepCopy()
					live.ResourceVersion, live.Spec.JobTemplate.Containers[0].Image = testVersion, "live:v1"
					live.Spec.JobOptions.BackoffLimit = ptr.To[int32](0)
					return true, live, nil
				})
			},
			requests: []string{getLive, "create jobs 12:00:00 owner=uid-backup image=live:v1 backoffLimit=0", started}, events: []string{"Normal Created"}, requeueAfter: time.Minute},
		"rule C6: before a run is due there are no requests": {
			now: "11:59:56", cronTab: hourly, requeueAfter: 4 * time.Second},
		"rule C13: the status records the schedule before the first run is started": {
			now: "12:10:00", cronTab: newUnseen(createdAt("11:30:00")),
			requests: []string{putStatus + "last= missed= next=13:00:00 active=0 True/Scheduled"}, requeueAfter: controller.StaleCacheDelay},
		"rule C3: an invalid schedule is reported, and the CronTab is not requeued": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", schedulesAt("0 25 * * *")),
			requests: []string{putStatus + "last=11:00:00 missed= next= active=0 False/InvalidSchedule"}, events: []string{"Warning InvalidSchedule"}},
		"rule C12: a suspended CronTab starts nothing": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", suspended),
			requests: []string{putStatus + "last=11:00:00 missed= next= active=0 False/Suspended"}},

		"rule C7: AlreadyExists: the next sync decides from the cache": {
			now: "12:00:00", cronTab: hourly, liveJobs: []*batchv1.Job{jobAt("12:00:00")},
			requests: []string{getLive, createRun, "get jobs 12:00:00"}, err: "caches are behind", requeueAfter: time.Minute},
		"rule C7: no run is started while the cached status is out of date": {
			now: "12:00:00", cronTab: hourly, prepare: func(f *fixture) {
				f.prepend("get", "crontabs", func(clienttesting.Action) (bool, runtime.Object, error) {
					newer := hourly.DeepCopy()
					newer.ResourceVersion = "99"
					return true, newer, nil
				})
			},
			requests: []string{getLive}, err: "the cache is out of date", requeueAfter: time.Minute},
		"rule C7: AlreadyExists: the Job is gone before it is read, and the sync is retried": {
			now: "12:00:00", cronTab: hourly, prepare: failing("create", "jobs", apierrors.NewAlreadyExists(jobsGroup, "backup")),
			requests: []string{getLive, createRun, "get jobs 12:00:00"}, err: `creating Job "backup-1795262400"`, requeueAfter: time.Minute},
		"rule C14: no Job is created if the cache shows that the name is taken": {
			now: "12:00:00", cronTab: hourly, jobs: []*batchv1.Job{jobAt("12:00:00", ownedBy("", "", ""))},
			requests: []string{putStatus + "last=11:00:00 missed=12:00:00 next=13:00:00 active=0 False/JobNameTaken"},
			events:   []string{"Warning JobNameTaken"}, requeueAfter: time.Minute},
		"rule C14: the next run is started": {
			now: "12:00:00", cronTab: newCronTab("10:00:00", missedAt("11:00:00"), readyBecause(alphav1.ReasonJobNameTaken)), jobs: []*batchv1.Job{jobAt("11:00:00", ownedBy("", "", ""))},
			requests: []string{getLive, createRun, putStatus + "last=12:00:00 missed=11:00:00 next=13:00:00 active=1 True/Scheduled"},
			events:   []string{"Normal Created"}, requeueAfter: time.Minute},
		"rule C15: a run that has a Job is recorded, and no Job is created": {
			now: "12:00:01", cronTab: hourly, jobs: []*batchv1.Job{jobAt("12:00:00")},
			requests: []string{started}, requeueAfter: time.Minute},
		"rule C21: without a change there are no requests": {
			now: "12:00:01", cronTab: newCronTab("12:00:00", recordedAt("12:00:00", jobAt("12:00:00"))), jobs: []*batchv1.Job{jobAt("12:00:00")}, requeueAfter: time.Minute},
	}
}

func concurrencyTests() map[string]syncTest {
	running := jobAt("11:00:00")
	forbids := newCronTab("11:00:00", policy(alphav1.ForbidConcurrent), recordedAt("11:30:00", running))
	waits := newCronTab("11:00:00", policy(alphav1.ForbidConcurrent), recordedAt("12:00:00", running))
	replaces := newCronTab("11:00:00", policy(alphav1.ReplaceConcurrent), recordedAt("11:30:00", running))
	replaced := []string{"Normal Deleted", "Normal Created"}
	return map[string]syncTest{
		"rule C10: Forbid: a run that waits has no Job, and the status has the next": {
			now: "12:00:00", cronTab: forbids, jobs: []*batchv1.Job{running},
			requests: []string{putStatus + "last=11:00:00 missed= next=13:00:00 active=1 True/Scheduled"}, requeueAfter: time.Minute},
		"rule C10: Forbid: while a run waits there are no requests": {
			now: "12:10:00", cronTab: waits, jobs: []*batchv1.Job{running}, requeueAfter: time.Minute},
		"rule C10: Forbid: a run that waits is started when the earlier one has ended": {
			now: "12:10:00", cronTab: waits, jobs: []*batchv1.Job{jobAt("11:00:00", complete("12:09:59"))},
			requests: []string{getLive, createRun, started}, events: []string{"Normal Created", "Normal JobCompleted"}, requeueAfter: time.Minute},
		"rule C10: Forbid: a Job that this process has just deleted may still run": {
			now: "12:10:00", cronTab: waits, jobs: []*batchv1.Job{running},
			prepare: func(f *fixture) { f.cronTabs.DeletionAccepted(running.UID) }, requeueAfter: time.Minute},
		"rule C10: Forbid: an active Job that the cache does not have yet is read live": {
			now: "12:00:00", cronTab: forbids, liveJobs: []*batchv1.Job{running},
			requests: []string{getLive, getRun}, err: "caches are behind", requeueAfter: time.Minute},
		"rule C11: Replace: an active Job that the cache does not have yet is read live": {
			now: "12:00:00", cronTab: replaces, liveJobs: []*batchv1.Job{running},
			requests: []string{getLive, getRun}, err: "caches are behind", requeueAfter: time.Minute},
		"rule C10: Forbid: an active Job that the API server does not have was deleted": {
			now: "12:00:00", cronTab: forbids,
			requests: []string{getLive, getRun, createRun, started}, events: []string{"Normal Created"}, requeueAfter: time.Minute},
		"rule C10: Forbid: so is one that has ended, whose end the cache does not have yet": {
			now: "12:00:00", cronTab: forbids, liveJobs: []*batchv1.Job{jobAt("11:00:00", complete("11:59:59"))},
			requests: []string{getLive, getRun}, err: "caches are behind", requeueAfter: time.Minute},
		"rule C10: Forbid: another Job with the name of an active Job does not matter": {
			now: "12:00:00", cronTab: forbids, liveJobs: []*batchv1.Job{jobAt("11:00:00", func(job *batchv1.Job) { job.UID = "another" })},
			requests: []string{getLive, getRun, createRun, started}, events: []string{"Normal Created"}, requeueAfter: time.Minute},
		"rule C10: Forbid: an active Job whose owner reference was removed does not matter": {
			now: "12:10:00", cronTab: waits, jobs: []*batchv1.Job{jobAt("11:00:00", ownedBy("", "", ""))},
			requests: []string{getLive, getRun, createRun, started}, events: []string{"Normal Created"}, requeueAfter: time.Minute},
		"rule C10: Forbid: no run is started if an active Job cannot be read": {
			now: "12:00:00", cronTab: forbids, prepare: failing("get", "jobs", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{getLive, getRun}, err: `reading Job "backup-1795258800": Internal error occurred: oops`, requeueAfter: time.Minute},
		"rule C6: Allow: active Jobs are not read live": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", recordedAt("11:30:00", running)), liveJobs: []*batchv1.Job{running},
			requests: []string{getLive, createRun, started}, events: []string{"Normal Created"}, requeueAfter: time.Minute},
		"rule C11: Replace: the CronTab is read live, the next Job tried, the earlier one deleted, the next created": {
			now: "12:00:00", cronTab: replaces, jobs: []*batchv1.Job{running},
			requests: []string{getLive, tryRun, getLive, deleteRun, createRun, started}, events: replaced, requeueAfter: time.Minute},
		"rule C11: Replace: all Jobs under way are deleted first": {
			now: "12:00:00", cronTab: replaces, jobs: []*batchv1.Job{running, jobAt("10:00:00")},
			requests: []string{getLive, tryRun, getLive, deleteEarlier, getLive, deleteRun, createRun, started},
			events:   []string{"Normal Deleted", "Normal Deleted", "Normal Created"}, requeueAfter: time.Minute},
		"rule C11: Replace: no Job is deleted if the live CronTab has another generation": {
			now: "12:00:00", cronTab: replaces, jobs: []*batchv1.Job{running}, liveCronTab: newCronTab("11:00:00", suspended, generation(2)),
			requests: []string{getLive}, err: "out of date", requeueAfter: time.Minute},
		"rule C11: Replace: no Job is deleted if the CronTab is gone": {
			now: "12:00:00", cronTab: replaces, jobs: []*batchv1.Job{running}, prepare: failing("get", "crontabs", errNotFound()),
			requests: []string{getLive}, err: "out of date", requeueAfter: time.Minute},
		"rule C11: Replace: a Job that has changed is not deleted, and no run is started before the cache shows it": {
			now: "12:00:00", cronTab: replaces, jobs: []*batchv1.Job{running}, prepare: failing("delete", "jobs", errConflict()),
			requests: []string{getLive, tryRun, getLive, deleteRun}, err: `deleting Job "backup-1795258800"`, requeueAfter: time.Minute},
		"rule C11: Replace: a Job that was deleted is reported even if the next one has changed": {
			now: "12:00:00", cronTab: replaces, jobs: []*batchv1.Job{running, jobAt("10:00:00")}, prepare: conflicts(running),
			requests: []string{getLive, tryRun, getLive, deleteEarlier, getLive, deleteRun, putStatus + "last=11:00:00 missed= next=13:00:00 active=1 True/Scheduled"},
			events:   []string{"Normal Deleted"}, err: `deleting Job "backup-1795258800"`, requeueAfter: time.Minute},
		"rule C11: Replace: a Job that is already gone does not stop the run": {
			now: "12:00:00", cronTab: replaces, jobs: []*batchv1.Job{running}, prepare: failing("delete", "jobs", errNotFound()),
			requests: []string{getLive, tryRun, getLive, deleteRun, createRun, started}, events: []string{"Normal Created"}, requeueAfter: time.Minute},
		"rule C11: Replace: a Job that this process has just deleted is not deleted again": {
			now: "12:00:00", cronTab: replaces, jobs: []*batchv1.Job{running},
			prepare:  func(f *fixture) { f.cronTabs.DeletionAccepted(running.UID) },
			requests: []string{getLive, createRun, putStatus + "last=12:00:00 missed= next=13:00:00 active=2 True/Scheduled"},
			events:   []string{"Normal Created"}, requeueAfter: time.Minute},
		"rule C11: Replace: a run waits until the status records the run that it replaces": {
			now: "13:00:00", cronTab: replaces, jobs: []*batchv1.Job{running, jobAt("12:00:00")},
			requests: []string{putStatus + "last=12:00:00 missed= next=14:00:00 active=2 True/Scheduled"}, requeueAfter: controller.StaleCacheDelay},
		"rule C11: Replace: nothing is deleted if no Job is under way": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", policy(alphav1.ReplaceConcurrent), recordedAt("11:30:00")),
			requests: []string{getLive, createRun, started}, events: []string{"Normal Created"}, requeueAfter: time.Minute},
		"rule C11: Replace: a replaced Job is reported even if the name is then taken": {
			now: "12:00:00", cronTab: replaces, jobs: []*batchv1.Job{running}, liveJobs: []*batchv1.Job{running, jobAt("12:00:00", ownedBy("", "", ""))}, prepare: failingDryRun(errQuota()),
			requests: []string{getLive, tryRun, getLive, deleteRun, createRun, "get jobs 12:00:00", putStatus + "last=11:00:00 missed= next=13:00:00 active=0 True/Scheduled"},
			events:   []string{"Normal Deleted"}, err: "caches are behind", requeueAfter: time.Minute},
		"rule C11: Replace: a replaced Job is reported even if the next Job is refused": {
			now: "12:00:00", cronTab: replaces, jobs: []*batchv1.Job{running}, prepare: failing("create", "jobs", errQuota()),
			requests: []string{getLive, tryRun, getLive, deleteRun, createRun, putStatus + "last=11:00:00 missed= next=13:00:00 active=0 False/JobRejected"},
			events:   []string{"Normal Deleted", "Warning JobRejected"}, err: "exceeded quota", requeueAfter: minRetry},
	}
}

func historyTests() map[string]syncTest {
	first, second := jobAt("10:00:00", complete("10:01:00")), jobAt("11:00:00", complete("11:01:00"))
	keepsNone := newCronTab("11:00:00", keeps(0, 0), recordedAt("11:30:00", first, second))
	var many []*batchv1.Job
	var deletions []string
	for minute := range maxDeletions + 1 {
		at := fmt.Sprintf("10:%02d:00", minute)
		many = append(many, jobAt(at, complete(at)))
		if minute < maxDeletions {
			deletions = append(deletions, getLive, fmt.Sprintf("delete jobs %s uid=%s version=10 Background", at, many[minute].UID))
		}
	}
	return map[string]syncTest{
		"rule C17: Jobs beyond the limit are deleted, the oldest first": {
			now: "11:40:00", cronTab: keepsNone, jobs: []*batchv1.Job{second, first},
			requests: []string{getLive, deleteEarlier, getLive, deleteRun}, events: []string{"Normal Deleted", "Normal Deleted"}, requeueAfter: time.Minute},
		"rule C17: as many Jobs as the limit stay": {
			now: "11:40:00", cronTab: newCronTab("11:00:00", keeps(1, 0), recordedAt("11:30:00", first, second)), jobs: []*batchv1.Job{second, first},
			requests: []string{getLive, deleteEarlier}, events: []string{"Normal Deleted"}, requeueAfter: time.Minute},
		"rule C17: a Job whose success the status does not record yet stays": {
			now: "11:40:00", cronTab: newCronTab("11:00:00", keeps(0, 0), recordedAt("10:30:00", first)), jobs: []*batchv1.Job{second, first},
			requests: []string{putStatus + "last=11:00:00 missed= next=12:00:00 active=0 True/Scheduled", getLive, deleteEarlier},
			events:   []string{"Normal Deleted"}, requeueAfter: controller.StaleCacheDelay},
		"rule C17: no finished Job is deleted before the status is stored": {
			now: "12:00:00", cronTab: keepsNone, jobs: []*batchv1.Job{second, first}, prepare: failing("patch", "crontabs", errConflict()),
			requests: []string{getLive, createRun, started}, events: []string{"Normal Created"}, err: "the object has been modified", requeueAfter: time.Minute},
		"rule C17: the next run is started and recorded first": {
			now: "12:00:00", cronTab: keepsNone, jobs: []*batchv1.Job{second, first},
			requests: []string{getLive, createRun, started, getLive, deleteEarlier, getLive, deleteRun}, events: []string{"Normal Created", "Normal Deleted", "Normal Deleted"}, requeueAfter: time.Minute},
		"rule C17: finished Jobs are deleted when the next Job is refused": {
			now: "12:00:00", cronTab: keepsNone, jobs: []*batchv1.Job{second}, prepare: failing("create", "jobs", errQuota()),
			requests: []string{getLive, createRun, putStatus + "last=11:00:00 missed= next=13:00:00 active=0 False/JobRejected", getLive, deleteRun},
			events:   []string{"Warning JobRejected", "Normal Deleted"}, err: "exceeded quota", requeueAfter: minRetry},
		"rule C17: finished Jobs are deleted when the API server fails to create the next Job": {
			now: "12:00:00", cronTab: keepsNone, jobs: []*batchv1.Job{second}, prepare: failing("create", "jobs", errServer()),
			requests: []string{getLive, createRun, putStatus + "last=11:00:00 missed= next=13:00:00 active=0 False/JobRejected", getLive, deleteRun},
			events:   []string{"Warning JobRejected", "Normal Deleted"}, err: "connection refused", requeueAfter: time.Minute},
		"rule C17: a Job that cannot be deleted delays neither another deletion nor the next run": {
			now: "11:59:58", cronTab: keepsNone, jobs: []*batchv1.Job{second, first}, prepare: failing("delete", "jobs", errQuota()),
			requests: []string{getLive, deleteEarlier, getLive, deleteRun}, err: `deleting Job "backup-1795258800"`, requeueAfter: 2 * time.Second},
		"rule C17: the sync is not retried for a Job that is already gone": {
			now: "11:40:00", cronTab: keepsNone, jobs: []*batchv1.Job{second}, prepare: failing("delete", "jobs", errNotFound()),
			requests: []string{getLive, deleteRun}, requeueAfter: time.Minute},
		"rule C17: a sync deletes ten Jobs at most, and the next one goes on": {
			now: "11:40:00", cronTab: newCronTab("11:00:00", keeps(0, 0), recordedAt("11:30:00", many...)), jobs: many,
			requests: deletions, events: slices.Repeat([]string{"Normal Deleted"}, maxDeletions), requeueAfter: controller.StaleCacheDelay},
		"rule C17: a Job that this process has just deleted is not deleted again": {
			now: "11:40:00", cronTab: keepsNone, jobs: []*batchv1.Job{second}, prepare: func(f *fixture) { f.cronTabs.DeletionAccepted(second.UID) },
			requeueAfter: time.Minute},
	}
}

func TestSyncHandler(t *testing.T) {
	for _, tests := range []map[string]syncTest{startTests(), concurrencyTests(), dryRunTests(), nextRunTests(), manualTests(), failureTests(), historyTests()} {
		for name, test := range tests {
			t.Run(name, func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) { test.run(t) })
			})
		}
	}
}

func (test *syncTest) run(t *testing.T) {
	var cronTabs, liveCronTabs []*alphav1.CronTab
	if test.cronTab != nil {
		test.cronTab = test.cronTab.DeepCopy()
		test.cronTab.ResourceVersion = testVersion
		cronTabs, liveCronTabs = []*alphav1.CronTab{test.cronTab}, []*alphav1.CronTab{test.cronTab}
	}
	if test.liveCronTab != nil {
		liveCronTabs = []*alphav1.CronTab{test.liveCronTab}
	}
	jobs, liveJobs := atTestVersion(test.jobs), atTestVersion(test.liveJobs)
	if test.liveJobs == nil {
		liveJobs = jobs
	}
	ctx, f := newFixture(t, test.now, liveCronTabs, liveJobs)
	f.fill(t, cronTabs, jobs)
	if test.prepare != nil {
		test.prepare(f)
	}
	f.listen()
	var before []any
	for _, cached := range f.cronTabCache().List() {
		before = append(before, cached.(*alphav1.CronTab).DeepCopy())
	}

	requeueAfter, err := f.syncHandler(ctx, testKey("backup"))

	differ(t, "requests", test.requests, f.requests())
	differ(t, "events", test.events, f.recorded())
	if requeueAfter != test.requeueAfter {
		t.Errorf("requeueAfter is %v, want %v", requeueAfter, test.requeueAfter)
	}
	switch {
	case test.err == "" && err != nil:
		t.Errorf("error %v", err)
	case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
		t.Errorf("error %v, want %q in it", err, test.err)
	}
	differ(t, "the cached CronTabs", before, append([]any(nil), f.cronTabCache().List()...))
	differ(t, "enqueued in the end", []string(nil), f.enqueued(time.Hour))
}

// atTestVersion returns copies of the Jobs as they are stored.
func atTestVersion(jobs []*batchv1.Job) []*batchv1.Job {
	var stored []*batchv1.Job
	for _, job := range jobs {
		job = job.DeepCopy()
		job.ResourceVersion = testVersion
		stored = append(stored, job)
	}
	return stored
}
