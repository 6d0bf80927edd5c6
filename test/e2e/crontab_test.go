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
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// TestCronTabs checks the CronTab contract on a real API server, rule by rule. The cluster's
// simulated nodes complete the Pods of Jobs at once.
func TestCronTabs(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"rule C3: the message about an invalid schedule names the field", invalidSchedules},
		{"rule C7: the controller does not change a Job that another client creates first, and starts no run twice", jobExists},
		{"rule C7: a Job has the options of its CronTab", jobOptions},
		{"rule C10: with Forbid a run waits until the previous one has finished", forbid},
		{"rule C11: with Replace the controller deletes the previous run first", replace},
		{"rule C14: a foreign Job with the name of a run replaces that run only", foreignJobName},
		{"rule C16: a Job that the API server will refuse is reported when the CronTab is created", refusedNextJob},
		{"rule C17: the controller deletes old Jobs and keeps the managed fields", history},
		{"rule C22: a run that a user asks for is started once, over restarts", runNow},
		{"rule C23: a CronTab without a run that succeeds within its deadline is late", lateCronTab},
		{"rule C21: a CronTab without a due run causes no writes, over restarts", idleCronTabs},
	})
}

func invalidSchedules(t *testing.T) {
	e := startEnv(t, cronTabFlags)
	for i, bad := range []struct{ schedule, zone, field, says string }{
		{"daily", "", "spec.schedule", "must be five fields"},
		{"@every 9s", "", "spec.schedule", "10 or more whole seconds"},
		{"@daily", "Europe/Belin", "spec.timeZone", "must be a name of the IANA time zone database"},
	} {
		manifest := fmt.Sprintf(`{apiVersion: alpha.ianlewis.org/v1, kind: CronTab, metadata: {name: bad-%d}, spec: {schedule: "%s", timeZone: "%s", jobTemplate: {restartPolicy: Never, containers: [{name: a, image: a}]}}}`,
			i, bad.schedule, bad.zone)
		if bad.zone == "" {
			manifest = strings.Replace(manifest, `timeZone: "", `, "", 1)
		}
		output := shFails(t, fmt.Sprintf("kubectl apply --namespace=%s -f - <<'EOF'\n%s\nEOF", e.namespace, manifest))
		mustContain(t, output, bad.field)
		mustContain(t, output, bad.says)
	}
	// The schema accepts this schedule; only the controller finds the mistake.
	cronTab := e.createCronTab("late", "0 25 * * *")
	_, message := e.awaitCronTab("late", alphav1.ReasonInvalidSchedule, nil)
	mustContain(t, message, "spec.schedule: field 2 (hour)")
	e.awaitEvent(cronTab, alphav1.ReasonInvalidSchedule)
	mustContain(t, e.kubectl("describe crontab late"), "spec.schedule: field 2 (hour)", "Events:", "InvalidSchedule")

	e.updateCronTab("late", func(spec *alphav1.CronTabSpec) { spec.Schedule = "@every 10s" })
	e.awaitCronTab("late", alphav1.ReasonScheduled, hasRun)
}

func lateCronTab(t *testing.T) {
	e := startEnv(t, cronTabFlags)
	cronTab := e.createCronTab("late", "@every 10s", suspend(true), successWithin(ptr.To[int64](1)))
	e.awaitCronTab("late", alphav1.ReasonSuspended, isLate(metav1.ConditionTrue))
	mustContain(t, e.awaitOneEvent(cronTab, alphav1.CronTabLate), "no run has succeeded since the creation", "spec.successDeadlineSeconds is 1")

	e.updateCronTab("late", func(spec *alphav1.CronTabSpec) {
		suspend(false)(spec)
		successWithin(ptr.To[int64](3600))(spec)
	})
	e.awaitCronTab("late", alphav1.ReasonScheduled, isLate(metav1.ConditionFalse))
	e.updateCronTab("late", successWithin(nil))
	e.awaitCronTab("late", alphav1.ReasonScheduled, isLate(""))
	e.controller.requireNoErrors()
}

func successWithin(seconds *int64) func(*alphav1.CronTabSpec) {
	return func(spec *alphav1.CronTabSpec) { spec.SuccessDeadlineSeconds = seconds }
}

// isLate returns a check of the status of the condition Late, "" for none.
func isLate(want metav1.ConditionStatus) func(*alphav1.CronTab) error {
	return func(cronTab *alphav1.CronTab) error {
		var got metav1.ConditionStatus
		if late := meta.FindStatusCondition(cronTab.Status.Conditions, alphav1.CronTabLate); late != nil {
			got = late.Status
		}
		if got != want {
			return fmt.Errorf("the condition Late is %q, want %q", got, want)
		}
		return nil
	}
}

// hasRun returns nil if the controller has started a run.
func hasRun(cronTab *alphav1.CronTab) error {
	if cronTab.Status.LastScheduleTime == nil {
		return errors.New("there was no run")
	}
	return nil
}

func jobExists(t *testing.T) {
	e, proxy := startProxiedCronTabEnv(t)
	cronTab := e.createCronTab("race", "@every 10s", suspend(true))
	e.awaitCronTab("race", alphav1.ReasonSuspended, nil)
	e.updateCronTab("race", suspend(false))
	foreign := e.createForeignJobFirst(proxy, "race")
	e.awaitCronTab("race", alphav1.ReasonJobNameTaken, nil)
	e.awaitEvent(cronTab, alphav1.ReasonJobNameTaken)
	e.awaitCronTab("race", alphav1.ReasonScheduled, hasRun)
	if now, err := e.jobs().Get(t.Context(), foreign.Name, metav1.GetOptions{}); err != nil || now.UID != foreign.UID || metav1.GetControllerOf(now) != nil {
		t.Errorf("the foreign Job was written to: %+v %v", now, err)
	}
	tries := slices.DeleteFunc(e.requests(e.startMark), func(r *request) bool {
		return r.String() != "create jobs "+foreign.Name || strings.Contains(r.RequestURI, "dryRun=")
	})
	if len(tries) != 1 {
		t.Errorf("want one create, got %v", tries)
	}
	e.controller.requireNoErrors()
}

func jobOptions(t *testing.T) {
	e := startEnv(t, cronTabFlags)
	none, hour := int32(0), int64(3600)
	options := alphav1.JobOptions{
		Metadata:     alphav1.JobMetadata{Labels: map[string]string{"team": "a"}},
		PodMetadata:  alphav1.JobMetadata{Annotations: map[string]string{"note": "b"}},
		BackoffLimit: &none, ActiveDeadlineSeconds: &hour,
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{
			Action:      batchv1.PodFailurePolicyActionFailJob,
			OnExitCodes: &batchv1.PodFailurePolicyOnExitCodesRequirement{Operator: batchv1.PodFailurePolicyOnExitCodesOpIn, Values: []int32{3}},
		}}},
	}
	cronTab := e.createCronTab("options", "@every 10s", func(spec *alphav1.CronTabSpec) { spec.JobOptions = options })
	e.awaitCronTab("options", alphav1.ReasonScheduled, hasRun)
	e.updateCronTab("options", suspend(true))
	for _, job := range e.jobsOf(cronTab) {
		spec := &job.Spec
		if job.Labels["team"] != "a" || spec.Template.Annotations["note"] != "b" || *spec.BackoffLimit != 0 || *spec.ActiveDeadlineSeconds != 3600 || len(spec.PodFailurePolicy.Rules) != 1 {
			t.Errorf("the Job is %+v", job)
		}
	}
	_, err := e.cronTabs().Patch(t.Context(), "options", types.MergePatchType, []byte(`{"spec":{"jobOptions":{"backoffLimit":-1}}}`), metav1.PatchOptions{})
	if err == nil || !strings.Contains(err.Error(), "spec.jobOptions.backoffLimit: Invalid value: -1") {
		t.Errorf("a negative backoffLimit: %v", err)
	}
}

func forbid(t *testing.T) {
	e := startEnv(t, cronTabFlags)
	cronTab := e.createCronTab("one", "@every 10s", unschedulable, concurrency(alphav1.ForbidConcurrent))
	e.awaitEvent(cronTab, "MissedRuns")
	jobs := e.jobsOf(cronTab)
	if len(jobs) != 1 {
		t.Fatalf("%d Jobs", len(jobs))
	}
	e.must(e.jobs().Delete(t.Context(), jobs[0].Name, metav1.DeleteOptions{}))
	e.eventually("the next run is started", func(context.Context) error {
		if now := e.jobsOf(cronTab); len(now) != 1 || now[0].UID == jobs[0].UID {
			return fmt.Errorf("%d Jobs", len(now))
		}
		return nil
	})
}

func replace(t *testing.T) {
	e := startEnv(t, cronTabFlags)
	cronTab := e.createCronTab("one", "@every 10s", unschedulable, concurrency(alphav1.ReplaceConcurrent))
	e.awaitEvent(cronTab, "Deleted")
	e.updateCronTab("one", suspend(true))
	e.awaitCronTab("one", alphav1.ReasonSuspended, func(cronTab *alphav1.CronTab) error {
		if cronTab.Status.ActiveCount != 1 {
			return fmt.Errorf("%d Jobs are active", cronTab.Status.ActiveCount)
		}
		return nil
	})
	if jobs := e.jobsOf(cronTab); len(jobs) != 1 {
		t.Errorf("%d Jobs are left", len(jobs))
	}
	// Each create follows a delete, so that two Jobs are never active at a time.
	before := ""
	for _, r := range e.requests(e.startMark) {
		// The API server refuses to delete a Job whose resourceVersion is outdated.
		isDryRun := strings.Contains(r.RequestURI, "dryRun=")
		if (r.Verb == "create" && !isDryRun || r.Verb == "delete") && r.resource() == "jobs" && r.isAccepted() {
			if r.Verb == before {
				t.Errorf("two in a row: %s", r)
			}
			before = r.Verb
		}
	}
}

func foreignJobName(t *testing.T) {
	e := startEnv(t, cronTabFlags)
	// The status announces the first run five seconds ahead.
	cronTab := e.createCronTab("taken", "@every 10s")
	known, _ := e.awaitCronTab("taken", alphav1.ReasonScheduled, nil)
	createObject(e, e.jobs(), newForeignJob(nextJobName(known)))
	_, message := e.awaitCronTab("taken", alphav1.ReasonJobNameTaken, nil)
	mustContain(t, message, nextJobName(known), "has no controller")
	e.awaitEvent(cronTab, alphav1.ReasonJobNameTaken)
	e.awaitCronTab("taken", alphav1.ReasonScheduled, hasRun)
}

func refusedNextJob(t *testing.T) {
	e := startEnv(t, cronTabFlags)
	image := func(name string) func(*alphav1.CronTabSpec) {
		return func(spec *alphav1.CronTabSpec) { spec.JobTemplate.Containers[0].Image = name }
	}
	cronTab := e.createCronTab("bad", "@yearly", image(""))
	_, message := e.awaitCronTab("bad", alphav1.ReasonJobRejected, nil)
	mustContain(t, message, "spec.template.spec.containers[0].image: Required value")
	e.awaitEvent(cronTab, alphav1.ReasonJobRejected)
	e.updateCronTab("bad", image("mybackupscript:v9"))
	e.awaitCronTab("bad", alphav1.ReasonScheduled, nil)
	if jobs := e.jobsOf(cronTab); len(jobs) > 0 {
		t.Errorf("%d Jobs were created before a run was due", len(jobs))
	}
}

func history(t *testing.T) {
	e := startEnv(t, cronTabFlags)
	two := int32(2)
	cronTab := e.createCronTab("often", "@every 10s", func(spec *alphav1.CronTabSpec) { spec.SuccessfulJobsHistoryLimit = &two })
	e.awaitEvent(cronTab, "JobCompleted")
	e.eventually("the controller deletes a Job", func(context.Context) error {
		if !slices.ContainsFunc(e.writes(e.startMark), func(w string) bool { return strings.HasPrefix(w, "delete jobs often-") }) {
			return errors.New("it deleted none")
		}
		return nil
	})
	e.updateCronTab("often", suspend(true))
	e.eventually("two completed Jobs are left", func(context.Context) error {
		jobs := e.jobsOf(cronTab)
		for _, job := range jobs {
			if !slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobComplete }) {
				return fmt.Errorf("%s is not complete", job.Name)
			}
		}
		if len(jobs) != 2 {
			return fmt.Errorf("%d Jobs", len(jobs))
		}
		return nil
	})
	now, err := e.cronTabs().Get(t.Context(), "often", metav1.GetOptions{})
	e.must(err)
	var managers []string
	for _, entry := range now.ManagedFields {
		if entry.FieldsV1 == nil || len(entry.FieldsV1.GetRawBytes()) < 3 {
			t.Errorf("the managed fields were emptied: %+v", entry)
		}
		managers = append(managers, entry.Manager+" "+entry.Subresource)
	}
	if !slices.Contains(managers, "sample-controller status") || len(managers) != 2 {
		t.Errorf("the managers are %q", managers)
	}
}

func runNow(t *testing.T) {
	e := startEnv(t, cronTabFlags)
	cronTab := e.createCronTab("backup", "@yearly", suspend(true))
	e.awaitCronTab("backup", alphav1.ReasonSuspended, nil)
	e.kubectl("annotate crontab backup alpha.ianlewis.org/run-at=$(date -u +%FT%TZ) --overwrite")
	e.awaitEvent(cronTab, "JobCompleted")
	jobs := e.jobsOf(cronTab)
	if len(jobs) != 1 || jobs[0].Annotations[alphav1.InstantiateAnnotation] != alphav1.InstantiateManual {
		t.Fatalf("the Jobs are %+v", jobs)
	}
	e.awaitCronTab("backup", alphav1.ReasonSuspended, func(cronTab *alphav1.CronTab) error {
		if cronTab.Status.LastManualTime == nil || cronTab.Status.LastScheduleTime != nil {
			return fmt.Errorf("status %+v", cronTab.Status)
		}
		return nil
	})
	e.must(e.jobs().Delete(t.Context(), jobs[0].Name, metav1.DeleteOptions{}))
	e.controller.stop()
	e.startController(cronTabFlags)
	e.createCronTab("other", "@every 10s")
	e.awaitCronTab("other", alphav1.ReasonScheduled, hasRun)
	if jobs := e.jobsOf(cronTab); len(jobs) > 0 {
		t.Errorf("after a restart there is %s", jobs[0].Name)
	}
	e.kubectl("annotate crontab backup alpha.ianlewis.org/run-at=now --overwrite")
	_, message := e.awaitCronTab("backup", alphav1.ReasonInvalidRunAt, nil)
	mustContain(t, message, `"now"`)
	e.awaitEvent(cronTab, alphav1.ReasonInvalidRunAt)
}

func idleCronTabs(t *testing.T) {
	e := startEnv(t, cronTabFlags)
	e.createCronTab("suspended", "@every 10s", suspend(true))
	e.createCronTab("daily", "@daily")
	e.awaitCronTab("suspended", alphav1.ReasonSuspended, nil)
	_, message := e.awaitCronTab("daily", alphav1.ReasonScheduled, nil)
	mustContain(t, message, `"@daily"`)
	// Once another CronTab has had a run, the controller has processed these CronTabs too.
	awaitOtherRun := func() {
		name := unique("other")
		e.createCronTab(name, "@every 10s")
		e.awaitCronTab(name, alphav1.ReasonScheduled, hasRun)
		e.must(e.cronTabs().Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	mark := e.mark()
	awaitOtherRun()
	e.controller.stop()
	e.startController(cronTabFlags)
	awaitOtherRun()
	for _, name := range []string{"suspended", "daily"} {
		e.noWrites(mark, "crontabs", name)
		if writes := slices.DeleteFunc(e.writes(mark), func(w string) bool { return !strings.Contains(w, "jobs "+name) }); len(writes) > 0 {
			t.Errorf("writes: %v", writes)
		}
	}
}
