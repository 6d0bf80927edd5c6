//go:build e2e && node

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
	"context"
	"fmt"
	"slices"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TestNodeCronTab starts runs that complete, fail and are replaced.
func TestNodeCronTab(t *testing.T) {
	e := newEnv(t)
	for name, command := range map[string]string{"completes": "true", "fails": "false", "long": "sleep"} {
		e.apply(fmt.Sprintf(`
apiVersion: alpha.ianlewis.org/v1
kind: CronTab
metadata: {name: %s}
spec:
  schedule: "@yearly"
  concurrencyPolicy: Replace
  jobOptions: {backoffLimit: 0}
  jobTemplate:
    restartPolicy: Never
    terminationGracePeriodSeconds: 1
    containers:
    - {name: job, image: busybox, command: [%q, "3600"]}`, name, command))
		e.runNow(name)
	}
	shUntil(t, e.get("crontab/completes", "{.status.lastSuccessfulTime}"), `^20\d\d-`)
	shUntil(t, e.get("crontab/fails", "{.status.lastFailedTime}"), `^20\d\d-`)

	const active = `{.status.active[*].name}`
	shUntil(t, e.get("crontab/long", active), `^long-\S+$`)
	first := sh(t, e.get("crontab/long", active))
	e.kubectl("wait --for=condition=Ready --timeout=3m pod --selector=batch.kubernetes.io/job-name=" + first)
	e.runNow("long")
	e.kubectl("wait --for=delete --timeout=3m job/" + first)
	e.kubectl("wait --for=delete --timeout=3m pod --selector=batch.kubernetes.io/job-name=" + first)
	shUntil(t, e.get("crontab/long", active), `^long-\S+$`)
}

// runNow starts a run as docs/crontab.md tells.
func (e *env) runNow(name string) {
	e.Helper()
	e.kubectl("annotate crontab " + name + " alpha.ianlewis.org/run-at=" + time.Now().UTC().Format(time.RFC3339) + " --overwrite")
}

// get returns the command that prints that field.
func (e *env) get(object, field string) string {
	return "kubectl --namespace=" + e.namespace + " get " + object + " --output=jsonpath='" + field + "'"
}

// startRuns creates a CronTab that starts a Job every ten seconds.
func (e *env) startRuns() {
	e.Helper()
	e.apply(`
apiVersion: alpha.ianlewis.org/v1
kind: CronTab
metadata: {name: often}
spec:
  schedule: "@every 10s"
  successfulJobsHistoryLimit: 1000
  jobTemplate:
    restartPolicy: Never
    containers:
    - {name: job, image: busybox, command: ["true"]}`)
	shUntil(e.T, e.get("crontab/often", "{.status.lastScheduleTime}"), `^20\d\d-`)
}

// checkRuns fails unless each run since the first was started once, up to one that is due from now on.
func (e *env) checkRuns() {
	e.Helper()
	began := time.Now()
	var due []time.Time
	e.eventually("another run is started", func(ctx context.Context) error {
		jobs, err := shared.kube.BatchV1().Jobs(e.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		due = nil
		for _, job := range jobs.Items {
			at, err := time.Parse(time.RFC3339, job.Annotations["alpha.ianlewis.org/scheduled-time"])
			e.must(err)
			due = append(due, at)
		}
		slices.SortFunc(due, time.Time.Compare)
		if len(due) == 0 || due[len(due)-1].Before(began) {
			return fmt.Errorf("runs %s", due)
		}
		return nil
	})
	for i := 1; i < len(due); i++ {
		if between := due[i].Sub(due[i-1]); between != 10*time.Second {
			e.Errorf("the run after that of %s is due %s later", due[i-1], between)
		}
	}
	e.Logf("%d runs", len(due))
}
