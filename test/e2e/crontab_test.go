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
	"regexp"
	"strings"
	"testing"
	"time"
)

// backup is a container of a CronTab. The cluster's simulated nodes complete its Pods at once.
const backup = "containers: [{name: backup, image: mybackupscript:v9}]"

// cronTabOf returns the manifest of a CronTab with these fields in its spec, and of its Pods.
func cronTabOf(name, spec, pod string) string {
	return "{apiVersion: alpha.ianlewis.org/v1, kind: CronTab, metadata: {name: " + name + "}, spec: {" + spec +
		", jobTemplate: {restartPolicy: Never, " + pod + "}}}"
}

func (e *env) applyCronTab(name, spec, pod string) {
	e.Helper()
	e.apply(cronTabOf(name, spec, pod))
}

// awaitCronTab waits until the CronTab's condition Ready has that reason.
func (e *env) awaitCronTab(name, reason string) {
	e.Helper()
	e.kubectl(fmt.Sprintf(`wait --for=jsonpath='{.status.conditions[?(@.type=="Ready")].reason}'=%s --timeout=3m crontab/%s`, reason, name))
}

// TestWalkthrough7 runs the commands of walkthrough 7, on a CronTab in the namespace default.
func TestWalkthrough7(t *testing.T) {
	t.Parallel()
	p := startInPod(t, "-v=2 --controllers=crontab --namespace=default")
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

// TestCronTab has what a simulated API server would not show of the CronTab contract: what the API server refuses,
// at once or in the controller's dry run, and its managed fields.
func TestCronTab(t *testing.T) {
	t.Parallel()
	e := startEnv(t, "--controllers=crontab")
	for _, bad := range []struct{ spec, field, says string }{
		{"schedule: daily", "spec.schedule", "must be five fields"},
		{"schedule: '@every 9s'", "spec.schedule", "10 or more whole seconds"},
		{"schedule: '@daily', timeZone: Europe/Belin", "spec.timeZone", "must be a name of the IANA time zone database"},
		{"schedule: '@daily', jobOptions: {backoffLimit: -1}", "spec.jobOptions.backoffLimit", "Invalid value: -1"},
	} {
		output := shFails(t, "kubectl apply --namespace="+e.namespace+" -f - <<'EOF'\n"+cronTabOf("bad", bad.spec, backup)+"\nEOF")
		mustContain(t, output, bad.field, bad.says)
	}
	e.applyCronTab("late", "schedule: 0 25 * * *", backup)
	e.awaitCronTab("late", "InvalidSchedule")
	e.until("describe crontab late", `(?s)spec.schedule: field 2 \(hour\).*Events:.*InvalidSchedule`)
	e.applyCronTab("bad", "schedule: '@yearly'", "containers: [{name: a}]")
	e.awaitCronTab("bad", "JobRejected")
	e.until("describe crontab bad", `(?s)containers\[0\].image: Required value.*Events:.*JobRejected`)

	const options = "backoffLimit: 0, activeDeadlineSeconds: 3600, podFailurePolicy: {rules: [{action: FailJob, onExitCodes: {operator: In, values: [42]}}]}"
	e.applyCronTab("backup", "schedule: '@yearly', suspend: true, jobOptions: {metadata: {labels: {team: a}}, "+options+"}", backup)
	e.runNow("backup")
	e.until("describe crontab backup", "JobCompleted")
	mustContain(t, e.kubectl("get jobs -l team=a -o jsonpath='{.items[*].spec}'"), `"activeDeadlineSeconds":3600`, `"backoffLimit":0`, `"podFailurePolicy"`)
	mustContain(t, e.kubectl("get crontab backup -o yaml --show-managed-fields"), "f:jobTemplate:", "f:lastManualTime: {}", "manager: sample-controller", "subresource: status")
}

// keepCronTabsBusy creates a CronTab whose runs replace each other, if the missing right is
// one of that controller.
func keepCronTabsBusy(e *env, missing string) (flags string) {
	e.Helper()
	if !isOfCronTabs(missing) {
		return ""
	}
	e.applyCronTab("crontab-busy", "schedule: '@yearly', concurrencyPolicy: Replace", "nodeSelector: {no-such: node}, "+backup)
	return " --controllers=crontab"
}

// isOfCronTabs reports whether the right is one of the controller. It patches no Job: that of another kind may.
func isOfCronTabs(right string) bool {
	return strings.Contains(right, "/crontabs") || strings.Contains(right, "/jobs") && !strings.HasPrefix(right, "patch ")
}

// runCronTab starts a run. Before one the controller reads an active Job live that does not exist: the status tells of it.
func runCronTab(e *env, missing string) {
	e.Helper()
	if missing == "get batch/jobs" {
		_, _ = try(e.T, "kubectl patch crontab crontab-busy --namespace="+e.namespace+" --subresource=status --type=merge "+
			`-p '{"status":{"active":[{"apiVersion":"batch/v1","kind":"Job","name":"lost","uid":"lost"}]}}'`)
	}
	if isOfCronTabs(missing) {
		e.runNow("crontab-busy")
	}
}

// runNow starts a run as docs/crontab.md tells.
func (e *env) runNow(name string) {
	e.Helper()
	e.kubectl("annotate crontab " + name + " alpha.ianlewis.org/run-at=" + time.Now().UTC().Format(time.RFC3339) + " --overwrite")
}

// cronTabPolicy tries the limits of crontab-policy.yaml.
func cronTabPolicy(t *testing.T, limited, registries string) {
	t.Helper()
	apply := func(image, initImage string, parallelism int) string {
		spec := fmt.Sprintf(`schedule: "@yearly", jobOptions: {parallelism: %d}`, parallelism)
		pod := fmt.Sprintf("initContainers: [{name: first, image: %s}], containers: [{name: backup, image: %s}]", initImage, image)
		return "kubectl apply --namespace=" + limited + " -f - <<< '" + cronTabOf("limited", spec, pod) + "'"
	}
	const allowed = "registry.example.com/backup"
	sh(t, apply(allowed, allowed, 10))
	mustContain(t, shFails(t, apply(allowed, allowed, 11)), "spec.jobOptions.parallelism: more than the 10 that ConfigMap foo-limits allows")
	mustContain(t, shFails(t, apply("busybox", allowed, 1)), "an image of busybox, "+allowed+registries)
	mustContain(t, shFails(t, apply(allowed, "busybox", 1)), "an image of "+allowed+", busybox"+registries)
}

// createCronTabVictims creates a CronTab, and a Job of others.
func createCronTabVictims(e *env) {
	e.Helper()
	e.applyCronTab("x", "schedule: '@yearly'", backup)
	e.kubectl("create job theirs --image=foreign")
}

// cronTabAttempts take the rights of the controller of CronTabs.
func cronTabAttempts() []attempt {
	const path, owner = "/apis/batch/v1/namespaces/NS/jobs", ", OWNER(CronTab)"
	evil := func(metadata, pod string) string {
		return "{metadata: {name: evil" + metadata + "}, spec: {suspend: true, template: {spec: {restartPolicy: Never, " + pod + "}}}}"
	}
	return []attempt{
		{"create a Job that a CronTab controls, with any image and command", "POST " + path, evil(owner, anyImage)},
		{"create a Job with any service account of the namespace, and so get its token", "POST " + path, evil(owner, otherAccount)},
		{"create a Job without an owner", "POST " + path, evil("", anyImage)},
		{"create a Job in kube-system", "POST /apis/batch/v1/namespaces/kube-system/jobs", evil(owner, anyImage)},
		{"create a Job with a hostPath volume", "POST " + path, evil(owner, hostPath)},
		{"create a Job with a privileged container", "POST " + path, evil(owner, privileged)},
		{"create a Job in a namespace of the host", "POST " + path, evil(owner, "hostPID: true, "+anyImage)},
		{"delete a Job of others", "DELETE " + path + "/theirs", ""},
		{"read all Jobs, with what is in their environment", "GET " + path, ""},
	}
}
