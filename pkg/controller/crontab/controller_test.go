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

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

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
		"rule C7: a Job that was read after AlreadyExists":     {cronTab: hourly, live: begun, dependents: true, err: controller.ErrStaleCache},
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
					f.jobCache().Bookmark(reached[batchv1.Resource("jobs")])
					differ(t, "the cache is waited for", waits, f.cronTabs.Seen(testKey("backup")) != nil)
					differ(t, "the Job counts as terminating", test.deleted, f.cronTabs.IsDeleted(running[0].UID))
				})
			})
		}
	}
}
