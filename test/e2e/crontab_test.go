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
	"net/http"
	"slices"
	"strings"
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// TestCronTabs checks the rules of CronTabs on a real API server. The nodes of its
// cluster complete the Pods of Jobs at once.
func TestCronTabs(t *testing.T) {
	t.Parallel()
	for _, rule := range []struct {
		sentence string
		test     func(*testing.T)
	}{
		{"rule C3: a schedule that cannot be read is told in words that name the field", unreadableSchedules},
		{"rule C7: a Job of the name that appears meanwhile is looked at, not touched, and no run is started twice", jobMeanwhile},
		{"rule C10: Forbid: a run waits until the former has ended", forbid},
		{"rule C11: Replace: the former run is deleted first", replace},
		{"rule C14: a foreign Job of the name costs one run and no more", foreignJobName},
		{"rule C17: the history is trimmed, and the managed fields stay whole", history},
		{"rule C21: a CronTab with nothing due costs nothing, over restarts", restingCronTabs},
	} {
		t.Run(rule.sentence, func(t *testing.T) {
			t.Parallel()
			rule.test(t)
		})
	}
}

func unreadableSchedules(t *testing.T) {
	s := newScene(t, "--controllers=crontab")
	for i, bad := range []struct{ schedule, zone, field, says string }{
		{"daily", "", "spec.schedule", "must be five fields"},
		{"@every 500ms", "", "spec.schedule", "whole seconds"},
		{"@daily", "Europe/Belin", "spec.timeZone", "must be a name of the IANA time zone database"},
	} {
		manifest := fmt.Sprintf(`{apiVersion: alpha.ianlewis.org/v1, kind: CronTab, metadata: {name: bad-%d}, spec: {schedule: "%s", timeZone: "%s", jobTemplate: {restartPolicy: Never, containers: [{name: a, image: a}]}}}`,
			i, bad.schedule, bad.zone)
		if bad.zone == "" {
			manifest = strings.Replace(manifest, `timeZone: "", `, "", 1)
		}
		output := shFails(t, fmt.Sprintf("kubectl apply --namespace=%s -f - <<'EOF'\n%s\nEOF", s.namespace, manifest))
		mustContain(t, output, bad.field)
		mustContain(t, output, bad.says)
	}
	// What the API server cannot tell.
	cronTab := s.createCronTab("late", "0 25 * * *")
	_, message := s.awaitCronTab("late", alphav1.ReasonInvalidSchedule, nil)
	mustContain(t, message, "spec.schedule: field 2 (hour)")
	s.awaitEvent(cronTab, alphav1.ReasonInvalidSchedule)
	mustContain(t, s.kubectl("describe crontab late"), "spec.schedule: field 2 (hour)", "Events:", "InvalidSchedule")

	s.updateCronTab("late", func(spec *alphav1.CronTabSpec) { spec.Schedule = "@every 1s" })
	s.awaitCronTab("late", alphav1.ReasonScheduled, awaitRun)
}

// awaitRun returns nil if a run was started.
func awaitRun(cronTab *alphav1.CronTab) error {
	if cronTab.Status.LastScheduleTime == nil {
		return errors.New("no run was started")
	}
	return nil
}

func jobMeanwhile(t *testing.T) {
	s, g := newGatedScene(t)
	cronTab := s.createCronTab("race", "@every 5s", suspend(true))
	s.awaitCronTab("race", alphav1.ReasonSuspended, nil)
	s.updateCronTab("race", suspend(false))
	foreign := s.raceForJob(g, "race")
	s.awaitCronTab("race", alphav1.ReasonJobNameTaken, nil)
	s.awaitEvent(cronTab, alphav1.ReasonJobNameTaken)
	s.awaitCronTab("race", alphav1.ReasonScheduled, awaitRun)
	if now, err := s.jobs().Get(t.Context(), foreign.Name, metav1.GetOptions{}); err != nil || now.UID != foreign.UID || metav1.GetControllerOf(now) != nil {
		t.Errorf("the foreign Job was written to: %+v %v", now, err)
	}
	if tries := slices.DeleteFunc(s.writes(s.began), func(w string) bool { return w != "create jobs "+foreign.Name }); len(tries) != 1 {
		t.Errorf("one try to create it is wanted: %v", tries)
	}
	if lines := errorLines(s.controller.output()); len(lines) > 0 {
		t.Errorf("errors in the log: %q", lines)
	}
}

func forbid(t *testing.T) {
	s := newScene(t, "--controllers=crontab")
	cronTab := s.createCronTab("one", "@every 1s", neverEnds, concurrency(alphav1.ForbidConcurrent))
	s.awaitEvent(cronTab, "MissedRuns")
	jobs := s.jobsOf(cronTab)
	if len(jobs) != 1 {
		t.Fatalf("%d Jobs", len(jobs))
	}
	s.must(s.jobs().Delete(t.Context(), jobs[0].Name, metav1.DeleteOptions{}))
	s.eventually("the next run is started", func(context.Context) error {
		if now := s.jobsOf(cronTab); len(now) != 1 || now[0].UID == jobs[0].UID {
			return fmt.Errorf("%d Jobs", len(now))
		}
		return nil
	})
}

func replace(t *testing.T) {
	s := newScene(t, "--controllers=crontab")
	cronTab := s.createCronTab("one", "@every 1s", neverEnds, concurrency(alphav1.ReplaceConcurrent))
	s.awaitEvent(cronTab, "Replaced")
	s.updateCronTab("one", suspend(true))
	s.awaitCronTab("one", alphav1.ReasonSuspended, func(cronTab *alphav1.CronTab) error {
		if cronTab.Status.ActiveCount != 1 {
			return fmt.Errorf("%d are under way", cronTab.Status.ActiveCount)
		}
		return nil
	})
	if jobs := s.jobsOf(cronTab); len(jobs) != 1 {
		t.Errorf("%d Jobs are left", len(jobs))
	}
	// Never two at a time: each creation follows a deletion.
	before := ""
	for _, r := range s.requests(s.began) {
		// A Job that has changed meanwhile is not deleted, and looked at again.
		if (r.Verb == "create" || r.Verb == "delete") && r.resource() == "jobs" && r.ResponseStatus.Code < http.StatusBadRequest {
			if r.Verb == before {
				t.Errorf("two in a row: %s", r)
			}
			before = r.Verb
		}
	}
}

func foreignJobName(t *testing.T) {
	s := newScene(t, "--controllers=crontab")
	// Its first time is a while away, and known from the status.
	cronTab := s.createCronTab("taken", "@every 5s")
	known, _ := s.awaitCronTab("taken", alphav1.ReasonScheduled, nil)
	s.foreignJob(nextJob(known))
	_, message := s.awaitCronTab("taken", alphav1.ReasonJobNameTaken, nil)
	mustContain(t, message, nextJob(known), "there without a controller")
	s.awaitEvent(cronTab, alphav1.ReasonJobNameTaken)
	s.awaitCronTab("taken", alphav1.ReasonScheduled, awaitRun)
}

func history(t *testing.T) {
	s := newScene(t, "--controllers=crontab")
	two := int32(2)
	cronTab := s.createCronTab("often", "@every 1s", func(spec *alphav1.CronTabSpec) { spec.SuccessfulJobsHistoryLimit = &two })
	s.awaitEvent(cronTab, "JobCompleted")
	s.eventually("a Job is trimmed", func(context.Context) error {
		if !slices.ContainsFunc(s.writes(s.began), func(w string) bool { return strings.HasPrefix(w, "delete jobs often-") }) {
			return errors.New("none was")
		}
		return nil
	})
	s.updateCronTab("often", suspend(true))
	s.eventually("two completed Jobs are left", func(context.Context) error {
		jobs := s.jobsOf(cronTab)
		for _, job := range jobs {
			if !slices.ContainsFunc(job.Status.Conditions, func(c batchv1.JobCondition) bool { return c.Type == batchv1.JobComplete }) {
				return fmt.Errorf("%s has not ended", job.Name)
			}
		}
		if len(jobs) != 2 {
			return fmt.Errorf("%d Jobs", len(jobs))
		}
		return nil
	})
	now, err := s.cronTabs().Get(t.Context(), "often", metav1.GetOptions{})
	s.must(err)
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

func restingCronTabs(t *testing.T) {
	s := newScene(t, "--controllers=crontab")
	s.createCronTab("suspended", "@every 1s", suspend(true))
	s.createCronTab("daily", "@daily")
	s.awaitCronTab("suspended", alphav1.ReasonSuspended, nil)
	_, message := s.awaitCronTab("daily", alphav1.ReasonScheduled, nil)
	mustContain(t, message, `"@daily"`)
	// A run of another one shows that the controller has had a look at all.
	look := func() {
		name := unique("other")
		s.createCronTab(name, "@every 1s")
		s.awaitCronTab(name, alphav1.ReasonScheduled, awaitRun)
		s.must(s.cronTabs().Delete(t.Context(), name, metav1.DeleteOptions{}))
	}
	mark := s.mark()
	look()
	s.controller.stop()
	s.startController("--controllers=crontab")
	look()
	for _, name := range []string{"suspended", "daily"} {
		s.noWrites(mark, "crontabs", name)
		if writes := slices.DeleteFunc(s.writes(mark), func(w string) bool { return !strings.Contains(w, "jobs "+name) }); len(writes) > 0 {
			t.Errorf("writes: %v", writes)
		}
	}
}
