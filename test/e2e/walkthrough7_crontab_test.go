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
	"regexp"
	"strings"
	"testing"
)

// TestWalkthrough7 runs the commands of walkthrough 7, on a CronTab in the namespace default.
func TestWalkthrough7(t *testing.T) {
	p := startInPod(t, "-v=2 --controllers=crontab")
	p.awaitOutput("Started workers")
	mustContain(t, sh(t, `kubectl apply -f artifacts/examples/backup.yaml`), "crontab.alpha.ianlewis.org/backup created")
	shOnCleanup(t, "kubectl delete -f artifacts/examples/backup.yaml --cascade=foreground")
	shUntil(t, `kubectl get crontab`, `NAME +SCHEDULE +TIME ZONE +SUSPEND +ACTIVE +LAST SCHEDULE +NEXT +AGE\nbackup +@daily +false +0 +\d{4}-\d\d-\d\dT00:00:00Z +\d+s\n`)
	mustContain(t, sh(t, `kubectl get ct`), "backup")
	if output := sh(t, `kubectl get jobs`); strings.Contains(output, "backup") {
		t.Errorf("the controller started a Job before it was due:\n%s", output)
	}

	t.Run("at each due time, a Job named after the CronTab", func(t *testing.T) {
		sh(t, `kubectl patch crontab backup --type=merge -p '{"spec":{"schedule":"@every 10s"}}'`)
		shUntil(t, `kubectl get jobs`, `(?s)backup-\d+ +Complete +1/1.*backup-\d+ +Complete +1/1`)
		shUntil(t, `kubectl get crontab -o wide`, `backup +@every 10s +false +\d +\d+s +\S+Z +\S+ +True +Scheduled +\d+s\n`)
		mustContain(t, sh(t, `kubectl describe crontab backup`), "Last Successful Time:", "Events:", "Created", "Created Job \"backup-")
	})
	t.Run("suspend stops the schedule", func(t *testing.T) {
		sh(t, `kubectl patch crontab backup --type=merge -p '{"spec":{"suspend":true}}'`)
		shUntil(t, `kubectl get crontab -o wide`, `backup +@every 10s +true +0 +\S+ +\S+ +False +Suspended`)
		sh(t, `kubectl wait --for=condition=Complete jobs --all`)
		if jobs := regexp.MustCompile(`(?m)^backup-`).FindAllString(sh(t, `kubectl get jobs`), -1); len(jobs) == 0 || len(jobs) > 3 {
			t.Errorf("%d Jobs are left, want up to three", len(jobs))
		}
	})
	p.stop()
}
