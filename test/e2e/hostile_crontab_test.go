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
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/watch"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

const (
	// maxRunDelay is how late a run may be started beside the hostile namespace.
	maxRunDelay = time.Second
	// minInterval is the shortest interval that the controller allows by default.
	minInterval = 10 * time.Second
)

// hostileCronTabs are CronTabs in the hostile namespace, with as many runs as the controller
// allows, whose Jobs the API server refuses, and one in another namespace.
type hostileCronTabs struct {
	hostile, other *env
	count          int
	timed          bool
	// allDue is when each of the CronTabs has had a run.
	allDue time.Time
	// runs has those of the other namespace's CronTab, when they are started.
	runs chan startedRun
}

type startedRun struct {
	due, started time.Time
}

// newHostileCronTabs creates the CronTab in the other namespace.
func newHostileCronTabs(hostile, other *env, load hostileLoad) *hostileCronTabs {
	hostile.Helper()
	h := &hostileCronTabs{hostile: hostile, other: other, count: load.foos / 20, timed: load.timed, runs: make(chan startedRun, 1000)}
	cronTab := other.createCronTab("due", "@every "+minInterval.String())
	watcher, err := other.jobs().Watch(other.Context(), metav1.ListOptions{})
	other.must(err)
	other.Cleanup(watcher.Stop)
	// Its namespace is deleted later, and until then it would disturb tests that count runs.
	shOnCleanup(other.T, "kubectl delete crontabs --all --cascade=foreground --namespace="+other.namespace)
	go func() {
		for event := range watcher.ResultChan() {
			job, ok := event.Object.(*batchv1.Job)
			if !ok || event.Type != watch.Added || !metav1.IsControlledBy(job, cronTab) {
				continue
			}
			seconds, _ := strconv.ParseInt(strings.TrimPrefix(job.Name, cronTab.Name+"-"), 10, 64)
			h.runs <- startedRun{due: time.Unix(seconds, 0), started: time.Now()}
		}
	}()
	return h
}

// createIdleCronTabs creates CronTabs without a run, and other people's Jobs, and returns their
// resources.
func createIdleCronTabs(e *env, count int) []schema.GroupVersionResource {
	e.Helper()
	for i := range count {
		e.createCronTab(fmt.Sprintf("idle-%d", i), "0 0 29 2 *", suspend(true))
		createObject(e, e.jobs(), newForeignJob(fmt.Sprintf("their-%d", i)))
	}
	return []schema.GroupVersionResource{schema.GroupVersion(alphav1.GroupVersion).WithResource("crontabs"), batchv1.SchemeGroupVersion.WithResource("jobs")}
}

// create creates the CronTabs in the hostile namespace.
func (h *hostileCronTabs) create() {
	h.hostile.Helper()
	for i := range h.count {
		h.hostile.createCronTab(fmt.Sprintf("hostile-%d", i), "@every "+minInterval.String(), func(spec *alphav1.CronTabSpec) { spec.JobTemplate.Containers[0].Image = "" })
	}
	h.allDue = time.Now().Add(minInterval)
}

// delete deletes the CronTabs in the hostile namespace.
func (h *hostileCronTabs) delete() {
	h.hostile.Helper()
	h.hostile.must(h.hostile.cronTabs().DeleteCollection(h.hostile.Context(), metav1.DeleteOptions{}, metav1.ListOptions{}))
}

// awaitRuns waits for that many runs of the other namespace's CronTab which are due when those of
// the hostile namespace have failed too, and checks when each was started.
func (h *hostileCronTabs) awaitRuns(runs int) {
	h.other.Helper()
	var late []time.Duration
	for len(late) < runs {
		select {
		case run := <-h.runs:
			if run.due.After(h.allDue) {
				late = append(late, run.started.Sub(run.due))
			}
		case <-time.After(waitTimeout):
			h.other.Fatalf("%d runs of the CronTab were started, want %d", len(late), runs)
		}
	}
	h.other.Logf("%d CronTabs of the hostile namespace: runs of another one were started after %s", h.count, spread(late))
	for _, delay := range late {
		if h.timed && delay > maxRunDelay {
			h.other.Errorf("rule 25: a run of another namespace is started %v late, want %v at most", delay, maxRunDelay)
		}
	}
}
