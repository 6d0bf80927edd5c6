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
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

// TestOthersWait: while other keys wait, the next sync updates the status of a started run,
// unless it could not report everything.
func TestOthersWait(t *testing.T) {
	running := jobAt("11:00:00")
	const startedLate = putStatus + "last=12:00:00 missed=11:00:00 next=13:00:00 active=1 True/Scheduled"
	created := []string{"Normal Created"}
	tests := map[string]struct {
		cronTab *alphav1.CronTab
		jobs    []*batchv1.Job
		// first and second are what the two syncs send.
		first, second []string
		events        []string
	}{
		"rule C6: the status of a started run is left to the next sync": {
			cronTab: newCronTab("11:00:00", recordedAt("11:30:00")),
			first:   []string{getLive, createRun}, second: []string{started}, events: created},
		"rule C8: missed runs are reported at once: the next sync does not know the reason": {
			cronTab: newCronTab("10:00:00", recordedAt("10:30:00"), readyBecause(alphav1.ReasonSuspended)),
			first:   []string{getLive, createRun, startedLate}, events: []string{"Normal Created", "Warning MissedRuns"}},
		"rule C11: replaced Jobs are reported at once": {
			cronTab: newCronTab("11:00:00", policy(alphav1.ReplaceConcurrent), recordedAt("11:30:00", running)), jobs: []*batchv1.Job{running},
			first: []string{getLive, tryRun, deleteRun, createRun, started}, events: []string{"Normal Replaced", "Normal Created"}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.cronTab.ResourceVersion = testVersion
				cronTabs, jobs := []*alphav1.CronTab{test.cronTab}, atTestVersion(test.jobs)
				ctx, f := newFixture(t, "12:00:00", cronTabs, jobs)
				f.fill(t, cronTabs, jobs)
				f.listen()
				f.worker.Queue.Add(testKey("other"))
				requeueAfter, err := f.syncHandler(ctx, testKey("backup"))
				if wanted := len(test.second) > 0; (requeueAfter == controller.StaleCacheDelay) != wanted || err != nil {
					t.Errorf("requeueAfter %v, error %v", requeueAfter, err)
				}
				differ(t, "requests", test.first, f.requests())
				if test.second != nil {
					f.fill(t, nil, []*batchv1.Job{jobAt("12:00:00")})
					if requeueAfter, err := f.syncHandler(ctx, testKey("backup")); requeueAfter != time.Minute || err != nil {
						t.Errorf("requeueAfter %v, error %v", requeueAfter, err)
					}
					differ(t, "requests of the next sync", test.second, f.requests())
				}
				differ(t, "events", test.events, f.recorded())
			})
		})
	}
}

// TestWritesAreRemembered: after each kind of write the next sync waits for its event, and
// a deleted Job counts as terminating until its delete event.
func TestWritesAreRemembered(t *testing.T) {
	running, begun := atTestVersion([]*batchv1.Job{jobAt("11:00:00")}), atTestVersion([]*batchv1.Job{jobAt("12:00:00")})
	hourly := newCronTab("11:00:00", recordedAt("11:30:00"))
	replaces := newCronTab("11:00:00", policy(alphav1.ReplaceConcurrent), recordedAt("11:30:00", running...))
	tests := map[string]struct {
		cronTab *alphav1.CronTab
		// jobs are in the cache, live in the API server.
		jobs, live []*batchv1.Job
		// owners and dependents are the caches that the next sync waits for: of CronTabs and of
		// Jobs.
		owners, dependents bool
		// deleted says that the Job of the run of 11:00 counts as terminating.
		deleted bool
		err     error
	}{
		"rule C7: a creation and a status update":              {cronTab: hourly, owners: true, dependents: true},
		"rule C7: a Job that was read after AlreadyExists":     {cronTab: hourly, live: begun, owners: true, dependents: true},
		"rule C11: a Job that was replaced":                    {cronTab: replaces, jobs: running, live: running, owners: true, dependents: true, deleted: true},
		"rule C11: a Job that was gone before it was deleted":  {cronTab: replaces, jobs: running, owners: true, dependents: true, deleted: true},
		"rule C11: an active Job that the cache does not have": {cronTab: replaces, live: running, dependents: true, err: controller.ErrStaleCache},
		"rule C21: no request":                                 {cronTab: newCronTab("12:00:00", recordedAt("12:00:00"))},
	}
	for name, test := range tests {
		// A check against a cache that has caught up drops the version, so each cache has a
		// test of its own.
		for behind, waits := range map[schema.GroupResource]bool{alphav1.Resource("crontabs"): test.owners, batchv1.Resource("jobs"): test.dependents} {
			t.Run(fmt.Sprintf("%s, cache of %s", name, behind), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					cronTabs := []*alphav1.CronTab{test.cronTab.DeepCopy()}
					ctx, f := newFixture(t, "12:00:00", cronTabs, test.live)
					f.fill(t, cronTabs, test.jobs)
					if _, err := f.syncHandler(ctx, testKey("backup")); !errors.Is(err, test.err) {
						t.Fatalf("error %v, want %v", err, test.err)
					}
					reached := map[schema.GroupResource]string{alphav1.Resource("crontabs"): "99", batchv1.Resource("jobs"): "99"}
					reached[behind] = "9"
					f.cronTabCache().Bookmark(reached[alphav1.Resource("crontabs")])
					f.jobIndexer.Bookmark(reached[batchv1.Resource("jobs")])
					differ(t, "the cache is waited for", waits, f.cronTabs.Seen(testKey("backup")) != nil)
					differ(t, "the Job counts as terminating", test.deleted, f.cronTabs.IsDeleted(running[0].UID))
				})
			})
		}
	}
}

// TestManyActiveJobs: with more active Jobs than the status lists, the end of each is reported
// once, whether it was listed or not.
func TestManyActiveJobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var jobs []*batchv1.Job
		for minute := range 103 {
			jobs = append(jobs, jobOf(newCronTab(""), moment("11:00:00").Add(-time.Duration(minute)*time.Minute)))
		}
		cronTabs := []*alphav1.CronTab{newCronTab("11:00:00", recordedAt("11:30:00", jobs...))}
		ctx, f := newFixture(t, "11:40:00", cronTabs, nil)
		f.fill(t, cronTabs, jobs)
		sync := func() []string {
			t.Helper()
			if _, err := f.syncHandler(ctx, testKey("backup")); err != nil {
				t.Fatal(err)
			}
			stored, err := f.client.AlphaV1().CronTabs("ns").Get(ctx, "backup", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			f.fill(t, []*alphav1.CronTab{stored}, nil)
			return f.recorded()
		}
		differ(t, "rule C19: events while all are active", []string(nil), sync())
		completed, failed := jobOf(newCronTab(""), moment("09:18:00"), complete("11:40:00")), jobOf(newCronTab(""), moment("11:00:00"), ended(batchv1.JobFailed))
		f.fill(t, nil, []*batchv1.Job{completed})
		differ(t, "rule C19: events when the oldest, which is not listed, is complete", []string{"Normal JobCompleted"}, sync())
		f.fill(t, nil, []*batchv1.Job{failed})
		differ(t, "rule C19: events when the latest, which is listed, has failed", []string{"Warning JobFailed"}, sync())
		f.fill(t, nil, []*batchv1.Job{jobOf(newCronTab(""), moment("09:19:00"), complete("11:40:00"))})
		differ(t, "rule C19: events when the last that was not listed is complete", []string{"Normal JobCompleted"}, sync())
		differ(t, "rule C19: events when nothing has changed", []string(nil), sync())
	})
}
