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
	"maps"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// starts records which controllers have created a Job for each run.
type starts struct {
	mu sync.Mutex
	by map[string][]string
}

func newStarts(f *fixture) *starts {
	s := &starts{by: map[string][]string{}}
	f.kube.PrependReactor("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create := action.(clienttesting.CreateActionImpl)
		if len(create.CreateOptions.DryRun) == 0 {
			job := create.Object.(*batchv1.Job)
			at, err := time.Parse(time.RFC3339, job.Annotations[alphav1.ScheduledTimeAnnotation])
			if err != nil {
				panic(err)
			}
			due := clockOf(at)
			s.mu.Lock()
			defer s.mu.Unlock()
			s.by[due] = append(s.by[due], metav1.GetControllerOf(job).Kind)
		}
		return false, nil, nil
	})
	return s
}

// runCronJob creates the Jobs of a CronJob "backup" as the CronJob controller does, every five
// minutes until ctx ends, which suspends the CronJob.
func runCronJob(ctx context.Context, t *testing.T, f *fixture) {
	t.Helper()
	const every = 5 * time.Minute
	for {
		due := time.Now().UTC().Truncate(every).Add(every)
		select {
		case <-ctx.Done():
			return
		case <-time.After(time.Until(due)):
		}
		job := jobOf(newCronTab(""), due, jobNamed(fmt.Sprint("backup-", due.Unix()/60)), ownedBy("CronJob", "backup", "uid-cronjob"), complete(clockOf(due)))
		if _, err := f.kube.BatchV1().Jobs("ns").Create(context.WithoutCancel(ctx), job, metav1.CreateOptions{}); err != nil {
			t.Errorf("the CronJob controller cannot create a Job: %v", err)
		}
	}
}

// TestMigration moves a CronJob to a CronTab of the same name and schedule in the middle of a
// day, as docs/crontab.md says, while both controllers run.
func TestMigration(t *testing.T) {
	skipIfShort(t)
	half := 12 * time.Hour
	if os.Getenv("KUBE_CACHE_MUTATION_DETECTOR") != "" {
		// The race detector runs with it, which takes ten times as long. hack/unit.sh runs the test
		// without them too.
		half = time.Hour
	}
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "00:00:00", nil, nil)
		newJobEnder(ctx, t, f, 20*time.Second)
		started := newStarts(f)
		stop := f.start(ctx, t)
		cronJob, suspend := context.WithCancel(ctx)
		go runCronJob(cronJob, t, f)
		time.Sleep(half + 150*time.Second)
		suspend()
		synctest.Wait()
		f.create(ctx, t, "backup", "*/5 * * * *")
		time.Sleep(half - 150*time.Second)
		synctest.Wait()
		want := map[string][]string{}
		begin := moment("00:00:00")
		for due := begin.Add(5 * time.Minute); !due.After(begin.Add(2 * half)); due = due.Add(5 * time.Minute) {
			want[clockOf(due)] = []string{"CronTab"}
			if !due.After(begin.Add(half)) {
				want[clockOf(due)] = []string{"CronJob"}
			}
		}
		differ(t, "rule C14: the runs and the controllers that started them", want, started.by)
		stop()
	})
}

// TestBesideACronJob runs a CronTab beside a CronJob of the same name and schedule: neither
// takes the name of the other's Job.
func TestBesideACronJob(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "00:00:00", nil, nil)
		started := newStarts(f)
		stop := f.start(ctx, t)
		f.create(ctx, t, "backup", "*/5 * * * *")
		cronJob, suspend := context.WithCancel(ctx)
		go runCronJob(cronJob, t, f)
		time.Sleep(61 * time.Minute)
		suspend()
		synctest.Wait()
		for _, due := range slices.Sorted(maps.Keys(started.by)) {
			by := slices.Sorted(slices.Values(started.by[due]))
			differ(t, "rule C14: the controllers that started the run at "+due, "CronJob CronTab", strings.Join(by, " "))
		}
		differ(t, "rule C14: runs", 12, len(started.by))
		for _, event := range f.recorded() {
			differ(t, "rule C14: event", "Normal Created", event)
		}
		stop()
	})
}
