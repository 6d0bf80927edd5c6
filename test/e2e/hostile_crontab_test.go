//go:build e2e

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

package e2e

import (
	"fmt"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/watch"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// maxRunDelay is how late a run may be started beside the hostile namespace.
const maxRunDelay = time.Second

// hostileCronTabs creates CronTabs in the hostile namespace, with as many runs as the controller
// allows, whose Jobs the API server refuses. It returns a function that waits for runs of a
// CronTab in the other namespace that are due after that time, and checks when each was started.
func hostileCronTabs(hostile, other *env, count int) (awaitRuns func(after time.Time, runs int)) {
	hostile.Helper()
	cronTab := other.createCronTab("due", "@every 10s")
	for i := range count {
		hostile.createCronTab(fmt.Sprintf("hostile-%d", i), "@every 10s", func(spec *alphav1.CronTabSpec) { spec.JobTemplate.Containers[0].Image = "" })
	}
	watcher, err := other.jobs().Watch(other.Context(), metav1.ListOptions{})
	other.must(err)
	other.Cleanup(watcher.Stop)
	type run struct{ due, started time.Time }
	started := make(chan run, 1000)
	go func() {
		for event := range watcher.ResultChan() {
			job, ok := event.Object.(*batchv1.Job)
			if !ok || event.Type != watch.Added || !metav1.IsControlledBy(job, cronTab) {
				continue
			}
			seconds, _ := strconv.ParseInt(strings.TrimPrefix(job.Name, cronTab.Name+"-"), 10, 64)
			started <- run{due: time.Unix(seconds, 0), started: time.Now()}
		}
	}()
	return func(after time.Time, runs int) {
		other.Helper()
		var late []time.Duration
		for len(late) < runs {
			select {
			case run := <-started:
				if run.due.After(after) {
					late = append(late, run.started.Sub(run.due))
				}
			case <-time.After(waitTimeout):
				other.Fatalf("%d runs of the CronTab were started, want %d", len(late), runs)
			}
		}
		other.Logf("%d CronTabs of the hostile namespace: runs of another one were started after %s", count, spread(late))
		for _, delay := range late {
			if delay > maxRunDelay {
				other.Errorf("rule 25: a run of another namespace is started %v late, want %v at most", delay, maxRunDelay)
			}
		}
	}
}
