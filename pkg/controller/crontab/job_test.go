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
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

func TestNewJob(t *testing.T) {
	cronTab := newCronTab("", inZone("Europe/Berlin"))
	got := newJob(cronTab, moment("12:00:00"), zoneOf(t, "Europe/Berlin"))
	when := map[string]string{"alpha.ianlewis.org/scheduled-time": "2026-11-21T13:00:00+01:00"}
	want := &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name: "backup-1795262400", Namespace: "ns",
			Labels:      map[string]string{"app.kubernetes.io/managed-by": "sample-controller", "alpha.ianlewis.org/crontab": "backup"},
			Annotations: when,
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "alpha.ianlewis.org/v1", Kind: "CronTab", Name: "backup", UID: "uid-backup",
				Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true),
			}},
		},
		Spec: batchv1.JobSpec{Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{"alpha.ianlewis.org/crontab": "backup"}, Annotations: when},
			Spec:       cronTab.Spec.JobTemplate,
		}},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("rule C7: Job for a run (-want +got):\n%s", diff)
	}
	got.Spec.Template.Spec.Containers[0].Image = "other"
	if cronTab.Spec.JobTemplate.Containers[0].Image != "mybackupscript:v9" {
		t.Error("rule C7: the Job shares its Pod spec with the CronTab")
	}
	if got := newJob(cronTab, moment("12:00:00"), time.UTC).Annotations["alpha.ianlewis.org/scheduled-time"]; got != "2026-11-21T12:00:00Z" {
		t.Errorf("rule C7: in UTC it was scheduled for %s", got)
	}
}

// TestNewJobWithOptions: each option is in the Job, and labels and annotations of the
// controller win.
func TestNewJobWithOptions(t *testing.T) {
	cronTab := newCronTab("")
	cronTab.Spec.JobOptions = alphav1.JobOptions{
		Metadata:     alphav1.JobMetadata{Labels: map[string]string{"team": "a", cronTabLabel: "other"}, Annotations: map[string]string{"note": "b", alphav1.ScheduledTimeAnnotation: "never"}},
		PodMetadata:  alphav1.JobMetadata{Labels: map[string]string{"team": "c", cronTabLabel: "other"}, Annotations: map[string]string{"note": "d"}},
		BackoffLimit: ptr.To[int32](0), ActiveDeadlineSeconds: ptr.To[int64](1), TTLSecondsAfterFinished: ptr.To[int32](2),
		Completions: ptr.To[int32](3), Parallelism: ptr.To[int32](4),
		PodFailurePolicy: &batchv1.PodFailurePolicy{Rules: []batchv1.PodFailurePolicyRule{{Action: batchv1.PodFailurePolicyActionFailJob}}},
	}
	options := cronTab.Spec.JobOptions.DeepCopy()
	const when = "2026-11-21T12:00:00Z"
	got := newJob(cronTab, moment("12:00:00"), time.UTC)
	differ(t, "rule C7: labels of the Job", map[string]string{"team": "a", controller.ManagedByLabel: controller.ManagedByValue, cronTabLabel: "backup"}, got.Labels)
	differ(t, "rule C7: annotations of the Job", map[string]string{"note": "b", alphav1.ScheduledTimeAnnotation: when}, got.Annotations)
	differ(t, "rule C7: spec of the Job", batchv1.JobSpec{
		BackoffLimit: options.BackoffLimit, ActiveDeadlineSeconds: options.ActiveDeadlineSeconds, TTLSecondsAfterFinished: options.TTLSecondsAfterFinished,
		Completions: options.Completions, Parallelism: options.Parallelism, PodFailurePolicy: options.PodFailurePolicy,
		Template: corev1.PodTemplateSpec{
			ObjectMeta: metav1.ObjectMeta{
				Labels:      map[string]string{"team": "c", cronTabLabel: "backup"},
				Annotations: map[string]string{"note": "d", alphav1.ScheduledTimeAnnotation: when},
			},
			Spec: cronTab.Spec.JobTemplate,
		},
	}, got.Spec)
	got.Labels["team"], *got.Spec.BackoffLimit = "x", 9
	differ(t, "rule C7: the options of the CronTab afterwards", *options, cronTab.Spec.JobOptions)
}

func TestJobName(t *testing.T) {
	for sentence, test := range map[string]struct{ due, name string }{
		"rule C7: the name has the number of seconds": {"12:00:00", "backup-1795262400"},
		"rule C7: the next second":                    {"12:00:01", "backup-1795262401"},
	} {
		due := moment(test.due)
		differ(t, sentence, test.name, jobName("backup", due))
		differ(t, sentence, due, dueTime(named("backup", test.name)))
	}
	for _, name := range []string{
		"", "backup", "backup-", "backup-x", "backup-manual", "other-1795262400", "backup-01795262400", "backup-+1795262400",
		"backup--5", "backup-1795262400-x", "backup-1-1795262400", "1795262400", "backup-99999999999999999999", "backup-29921040", "backup-999999999",
	} {
		if due := dueTime(named("backup", name)); !due.IsZero() {
			t.Errorf("rule C7: %q is taken for the name of the run at %v", name, due)
		}
	}
}

// TestNameInTheFuture: a user gives a Job of the CronTab a name that ends in a date.
func TestNameInTheFuture(t *testing.T) {
	cronTab, copied := newCronTab("11:00:00", recordedAt("11:30:00"), keeps(0, 0)), jobAt("11:10:00", jobNamed("backup-202611221830"), complete("11:20:00"))
	if due := dueTime(cronTab, copied); !due.IsZero() {
		t.Errorf("rule C7: it is the run of %v", due)
	}
	cronTab.Status.LastSuccessfulTime = copied.Status.CompletionTime
	differ(t, "rule C17: Jobs beyond the history", []*batchv1.Job{copied}, excessJobs(cronTab, []*batchv1.Job{copied}))
	early := jobAt("12:00:00")
	early.CreationTimestamp = stamp("11:59:00")
	differ(t, "rule C7: the clocks of two machines differ a little", moment("12:00:00"), dueTime(cronTab, early))
}

// TestJobNamesAreUnique: no two runs within two centuries share a name, which no CronJob gives
// a Job, and dueTime returns the run of each name.
func TestJobNamesAreUnique(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	longest := strings.Repeat("a", 52)
	seen := map[string]time.Time{}
	begin := time.Date(2010, 1, 1, 0, 0, 0, 0, time.UTC).Unix()
	for range 20000 {
		due := time.Unix(begin+random.Int64N(200*365*24*3600), 0).UTC()
		if random.IntN(2) == 0 {
			due = due.Truncate(time.Minute)
		}
		name := jobName(longest, due)
		if other, taken := seen[name]; taken && !other.Equal(due) {
			t.Fatalf("rule C7: %v and %v share the name %q", other, due, name)
		}
		seen[name] = due
		// The name of a CronJob's Job ends in the minutes of its run.
		minutes, err := strconv.ParseInt(name[strings.LastIndex(name, "-")+1:], 10, 64)
		if year := time.Unix(minutes*60, 0).Year(); err != nil || year < 3000 {
			t.Fatalf("rule C14: a CronJob asks for the name %q in the year %d, error %v", name, year, err)
		}
		// The Job's name becomes a label of its Pods.
		if problems := validation.IsDNS1123Label(name); len(problems) > 0 {
			t.Fatalf("rule C7: %q: %v", name, problems)
		}
		if back := dueTime(named(longest, name)); !back.Equal(due) {
			t.Fatalf("rule C7: %q is the name of %v, not of %v", name, back, due)
		}
	}
}

func TestOwns(t *testing.T) {
	tests := map[string]struct {
		job  *batchv1.Job
		want bool
	}{
		"rule C14: the controller reference by this UID": {jobAt("12:00:00"), true},
		"rule C14: another version of our API group is the same CronTab": {
			jobAt("12:00:00", func(job *batchv1.Job) { job.OwnerReferences[0].APIVersion = "alpha.ianlewis.org/v2" }), true},
		"rule C14: another group": {
			jobAt("12:00:00", func(job *batchv1.Job) { job.OwnerReferences[0].APIVersion = "stable.example.com/v1" }), false},
		"rule C14: another kind":                    {jobAt("12:00:00", ownedBy("CronJob", "backup", "uid-backup")), false},
		"rule C14: an earlier CronTab of this name": {jobAt("12:00:00", ownedBy(cronTabGVK().Kind, "backup", "uid-earlier")), false},
		"rule C14: no owner":                        {jobAt("12:00:00", ownedBy("", "", "")), false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := owns(newCronTab(""), test.job); got != test.want {
				t.Errorf("owns = %v, want %v", got, test.want)
			}
		})
	}
}

func TestExcessJobs(t *testing.T) {
	failed := ended(batchv1.JobFailed)
	recordedAt := func(last, success string) cronTabOption {
		return func(cronTab *alphav1.CronTab) {
			cronTab.Status.LastScheduleTime, cronTab.Status.LastSuccessfulTime = nil, nil
			if last != "" {
				cronTab.Status.LastScheduleTime = ptr.To(stamp(last))
			}
			if success != "" {
				cronTab.Status.LastSuccessfulTime = ptr.To(stamp(success))
			}
		}
	}
	all := recordedAt("12:00:00", "12:30:00")
	successes := []*batchv1.Job{
		jobAt("10:00:00", complete("10:01:00")), jobAt("08:00:00", complete("08:01:00")), jobAt("12:00:00", complete("12:01:00")),
		jobAt("09:00:00", complete("09:01:00")), jobAt("11:00:00", complete("11:01:00")),
	}
	failures := []*batchv1.Job{jobAt("10:00:00", failed), jobAt("12:00:00", failed), jobAt("11:00:00", failed)}
	tests := map[string]struct {
		cronTab *alphav1.CronTab
		jobs    []*batchv1.Job
		want    string
	}{
		"rule C17: by default the three latest completed Jobs stay": {newCronTab("", all), successes, "08:00:00 09:00:00"},
		"rule C17: by default the latest failed Job stays":          {newCronTab("", all), failures, "10:00:00 11:00:00"},
		"rule C17: the limits of the spec count":                    {newCronTab("", all, keeps(1, 2)), append(failures[:2:2], successes[1], successes[3]), "08:00:00"},
		"rule C17: with limits of 0 no Job stays":                   {newCronTab("", all, keeps(0, 0)), append(failures[:1:1], successes[1]), "08:00:00 10:00:00"},
		"rule C17: a negative limit is 0":                           {newCronTab("", all, keeps(-1, -1)), append(failures[:1:1], successes[1]), "08:00:00 10:00:00"},
		"rule C17: with fewer Jobs than the limits all stay":        {newCronTab("", all, keeps(100, 100)), append(failures[:3:3], successes...), ""},
		"rule C17: Jobs under way are not counted":                  {newCronTab("", all, keeps(1, 1)), []*batchv1.Job{jobAt("10:00:00"), jobAt("11:00:00"), successes[0]}, ""},
		"rule C17: Jobs that are being deleted are not counted": {newCronTab("", all, keeps(1, 1)), []*batchv1.Job{
			jobAt("11:00:00", complete("11:01:00"), jobTerminating), jobAt("12:00:00", failed, jobTerminating), successes[0], failures[0]}, ""},
		"rule C17: Jobs of the same age are ordered by name": {newCronTab("", all, keeps(1, 1)), []*batchv1.Job{
			jobAt("10:00:00", complete("10:01:00"), jobNamed("b")), jobAt("10:00:00", complete("10:01:00"), jobNamed("a"))}, "a"},
		"rule C17: a Job whose run the status does not record stays": {newCronTab("", recordedAt("11:00:00", "12:30:00"), keeps(0, 0)), successes[2:5], "09:00:00 11:00:00"},
		"rule C17: without a recorded run all Jobs stay":             {newCronTab("", recordedAt("", "12:30:00"), keeps(0, 0)), append(failures[:3:3], successes...), ""},
		"rule C17: a Job whose success the status does not record stays": {
			newCronTab("", recordedAt("12:00:00", "09:30:00"), keeps(0, 0)), successes, "08:00:00 09:00:00"},
		"rule C17: without a recorded success all completed Jobs stay": {newCronTab("", recordedAt("12:00:00", ""), keeps(0, 0)), successes, ""},
		"rule C17: a Job that a user created for the CronTab is deleted as well": {newCronTab("", recordedAt("11:00:00", "12:30:00"), keeps(0, 0)), []*batchv1.Job{
			jobAt("12:00:00", complete("12:01:00"), jobNamed("by-hand"))}, "by-hand"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			var got []string
			for _, job := range excessJobs(test.cronTab, test.jobs) {
				got = append(got, runOf(test.cronTab, job))
			}
			if diff := cmp.Diff(test.want, strings.Join(got, " ")); diff != "" {
				t.Errorf("Jobs to delete (-want +got):\n%s", diff)
			}
		})
	}
}
