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
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/test/fixture"
)

// TestNewJob: the Job has the Pod spec and each option, and the labels and annotations of the controller
// win.
func TestNewJob(t *testing.T) {
	policy := &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionFailJob}}}
	ours, when := map[string]string{"app.kubernetes.io/managed-by": "sample-controller", "alpha.ianlewis.org/crontab": "backup"}, "2026-11-21T13:00:00+01:00"
	cronTab := hourly("", inZone("Europe/Berlin"))
	cronTab.Spec.JobOptions = alphav1.JobOptions{
		Metadata:     alphav1.JobMetadata{Labels: map[string]string{"team": "a", cronTabLabel: "other"}, Annotations: map[string]string{"note": "b", alphav1.ScheduledTimeAnnotation: "never"}},
		PodMetadata:  alphav1.JobMetadata{Labels: map[string]string{"team": "c", cronTabLabel: "other"}, Annotations: map[string]string{"note": "d"}},
		BackoffLimit: ptr.To[int32](0), ActiveDeadlineSeconds: ptr.To[int64](1), TTLSecondsAfterFinished: ptr.To[int32](2),
		Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](4), PodFailurePolicy: policy,
	}
	before := cronTab.DeepCopy()
	want := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: "backup-1795262400", Namespace: "ns", Labels: labels.Merge(ours, map[string]string{"team": "a"}),
			Annotations: map[string]string{"note": "b", "alpha.ianlewis.org/scheduled-time": when},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "alpha.ianlewis.org/v1", Kind: "CronTab", Name: "backup", UID: "uid-backup",
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit: ptr.To[int32](0), ActiveDeadlineSeconds: ptr.To[int64](1), TTLSecondsAfterFinished: ptr.To[int32](2),
			Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](4), PodFailurePolicy: policy.DeepCopy(),
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels:      map[string]string{"team": "c", "alpha.ianlewis.org/crontab": "backup"},
					Annotations: map[string]string{"note": "d", "alpha.ianlewis.org/scheduled-time": when},
				},
				Spec: *cronTab.Spec.JobTemplate.DeepCopy(),
			},
		},
	}
	berlin := time.FixedZone("Europe/Berlin", 3600)
	got := newJob(cronTab, moment("12:00"), berlin)
	fixture.Differ(t, "rule C7: the Job of a run", want, got)
	got.Labels["team"], *got.Spec.BackoffLimit, got.Spec.Template.Spec.Containers[0].Image = "x", 9, "other"
	fixture.Differ(t, "rule C7: the CronTab afterwards", before, cronTab)

	want.Name = "backup-mtoupc0"
	want.Annotations["alpha.ianlewis.org/instantiate"], want.Spec.Template.Annotations["alpha.ianlewis.org/instantiate"] = "manual", "manual"
	fixture.Differ(t, "rule C22: the Job of a run that a user asks for", want, newManualJob(cronTab, moment("12:00"), berlin))
}

// TestJobNames: which names of Jobs are those of runs.
func TestJobNames(t *testing.T) {
	for name, run := range map[string]string{
		"backup-1795262400": "12:00", "backup-1795262401": "12:00:01", "backup-1000000000": "2001-09-09T01:46:40Z",
		"backup-mtoupc0": "asked 12:00", "backup-mtoupc1": "asked 12:00:01", "backup-mgjdgxs": "asked 2001-09-09T01:46:40Z", "backup-m38et6qnz": "asked 9999-12-31T23:59:59Z",
	} {
		clock, isManual := strings.CutPrefix(run, "asked ")
		due, err := time.Parse(time.RFC3339, clock)
		if err != nil {
			due = moment(clock)
		}
		nameOf, at, other := jobName, dueTime, manualTime
		if isManual {
			nameOf, at, other = manualJobName, manualTime, dueTime
		}
		fixture.Differ(t, "rules C7 and C22: the name of the run at "+run, name, nameOf("backup", due))
		fixture.Differ(t, "rules C7 and C22: the run of "+name, due, at(named("backup", name)))
		fixture.Differ(t, "rules C7 and C22: the other run of "+name, time.Time{}, other(named("backup", name)))
		// The longest name of a CronTab has 52 characters. The name of the Job is a label of its Pods.
		fixture.Differ(t, "rule C7: what is wrong about the label", []string(nil), validation.IsDNS1123Label(strings.Repeat("a", 52)+strings.TrimPrefix(name, "backup")))
	}
	for _, name := range []string{
		"", "backup", "backup-", "backup-x", "backup-manual", "other-1795262400", "backup-01795262400", "backup-+1795262400", "backup--5", "backup-1795262400-x",
		"backup-1-1795262400", "1795262400", "backup-99999999999999999999", "backup-29921040", "backup-999999999",
		"other-mtoupc0", "backup-manual-1", "backup-mTOUWO0", "backup-m0toupc0", "backup-m",
	} {
		fixture.Differ(t, "rule C7: the run of a Job with another name", name, runOf(named("backup", name)))
	}
	cronTab := hourly("11:00", keeps(0, 0), succeededAt("11:20"))
	copied := run("11:10", jobNamed("backup-202611221830"), complete("11:20"))
	fixture.Differ(t, "rule C7: a name that ends in a date of the future is that of no run", time.Time{}, dueTime(cronTab, copied))
	fixture.Differ(t, "rule C17: its Job is one of the history", jobs{copied}, excessJobs(cronTab, jobs{copied}))
	fixture.Differ(t, "rule C7: the clocks of two machines differ a little", moment("12:00"), dueTime(cronTab, run("12:00", bornAt("11:59"))))
}

func TestExcessJobs(t *testing.T) {
	recorded := func(last, success string) []cronTabOption {
		return []cronTabOption{keeps(0, 0), succeededAt(success), func(c *alphav1.CronTab) { c.Status.LastScheduleTime = ptr.To(stamp(last)) }}
	}
	all := func(options ...cronTabOption) *alphav1.CronTab {
		return hourly("12:00", append(options, succeededAt("12:30"))...)
	}
	done := func(clock string, options ...jobOption) *batchv1.Job {
		return run(clock, append(options, complete(clock))...)
	}
	successes := jobs{done("10:00"), done("08:00"), done("12:00"), done("09:00"), done("11:00")}
	failures := jobs{run("10:00", failed("")), run("12:00", failed("")), run("11:00", failed(""))}
	mixed := jobs{failures[0], failures[1], done("08:00"), done("09:00")}
	for sentence, test := range map[string]struct {
		cronTab *alphav1.CronTab
		jobs    jobs
		want    string
	}{
		"rule C17: by default the three latest completed Jobs stay":   {all(), successes, "08:00 09:00"},
		"rule C17: by default the latest failed Job stays":            {all(), failures, "10:00 11:00"},
		"rule C17: the limits of the spec count":                      {all(keeps(1, 2)), mixed, "08:00"},
		"rule C17: a negative limit is 0":                             {all(keeps(-1, -1)), mixed, "08:00 09:00 10:00 12:00"},
		"rule C17: Jobs that are being deleted are not counted":       {all(keeps(1, 1)), jobs{done("11:00", goesAway), run("12:00", failed(""), goesAway), done("10:00"), failures[0]}, ""},
		"rule C17: Jobs of the same age are ordered by name":          {all(keeps(1, 1)), jobs{done("10:00", jobNamed("b")), done("10:00", jobNamed("a"))}, "a"},
		"rule C17: a Job whose run is not recorded stays":             {hourly("", recorded("11:00", "12:30")...), successes[2:5], "09:00 11:00"},
		"rule C17: a Job whose success is not recorded stays":         {hourly("", recorded("12:00", "09:30")...), successes, "08:00 09:00"},
		"rule C17: a Job that a user made for the CronTab is deleted": {hourly("", recorded("11:00", "12:30")...), jobs{done("12:00", jobNamed("by-hand"))}, "by-hand"},
	} {
		var got []string
		for _, job := range excessJobs(test.cronTab, test.jobs) {
			got = append(got, runOf(test.cronTab, job))
		}
		fixture.Differ(t, sentence, test.want, strings.Join(got, " "))
	}
}

// TestTrim: the cache keeps of a CronTab all but the Pod spec and most metadata, and of a Job its identity,
// its age and how it ended.
func TestTrim(t *testing.T) {
	cronTab := hourly("11:00", askedAt("12:00"), writtenAtClock("11:10"), writtenAtClock("11:20"), writtenAtBy("11:50", "status"), was("Scheduled", ""))
	cronTab.ManagedFields[0].FieldsV1, cronTab.ManagedFields[0].Manager = metav1.NewFieldsV1("{}"), "kubectl"
	cronTab.Labels, cronTab.Annotations["x"] = map[string]string{"x": "y"}, "y"
	cronTab.Finalizers = []string{"example.com/wait"}
	cronTab.Spec.JobOptions = alphav1.JobOptions{BackoffLimit: ptr.To[int32](0)}
	want := cronTab.DeepCopy()
	want.Labels, want.Finalizers = nil, nil
	delete(want.Annotations, "x")
	want.Spec.JobTemplate, want.Spec.JobOptions = corev1.PodSpec{}, alphav1.JobOptions{}
	want.ManagedFields = []metav1.ManagedFieldsEntry{{Time: ptr.To(stamp("11:20"))}}
	before := writtenAt(cronTab, moment("12:00"))
	fixture.Differ(t, "rule 24: the cached CronTab", any(want), Trim(cronTab))
	fixture.Differ(t, "rule C13: when the schedule was written", before, writtenAt(cronTab, moment("12:00")))
	fixture.Differ(t, "rule 24: trimmed twice", any(want), Trim(want.DeepCopy()))
	for sentence, job := range map[string]*batchv1.Job{
		"rule 24: a terminating Job":                     run("11:00", goesAway),
		"rule 24: a complete Job":                        run("11:00", complete("11:01")),
		"rule 24: a failed Job":                          run("11:00", failed("11:01")),
		"rule 24: a Job that is about to fail is active": run("11:00", ended(batchv1.JobFailureTarget, "11:01")),
	} {
		want := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
			Name: job.Name, Namespace: job.Namespace, UID: job.UID, ResourceVersion: job.ResourceVersion, OwnerReferences: job.OwnerReferences,
			CreationTimestamp: job.CreationTimestamp, DeletionTimestamp: job.DeletionTimestamp,
		}, Status: batchv1.JobStatus{CompletionTime: job.Status.CompletionTime}}
		if endOfJob(job).Type != unfinished {
			want.Status.Conditions = job.Status.Conditions
		}
		fixture.Differ(t, sentence, any(want), Trim(job))
		fixture.Differ(t, sentence+": the result", endOfJob(job).Type, endOfJob(want).Type)
	}
	fixture.Differ(t, "an object of another kind", nil, Trim(&metav1.Status{}))
}
