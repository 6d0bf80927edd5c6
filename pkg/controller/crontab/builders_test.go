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
	"cmp"
	"fmt"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// Builders of the tests' objects. Each option changes one field of an otherwise ordinary
// object.

// today is the day of most tests, a Saturday. The CronTabs are from the day before.
const today = "2026-11-21"

// moment returns the time that is "12:00:00" today, or "20T12:00:00" on another day of the
// month.
func moment(clock string) time.Time {
	day := today
	if date, rest, found := strings.Cut(clock, "T"); found {
		day, clock = today[:8]+date, rest
	}
	parsed, err := time.Parse(time.RFC3339Nano, day+"T"+clock+"Z")
	if err != nil {
		panic(err)
	}
	return parsed
}

func stamp(clock string) metav1.Time {
	return metav1.NewTime(moment(clock))
}

// clockOf is the inverse of moment.
func clockOf(at time.Time) string {
	return strings.TrimPrefix(at.UTC().Format("02T15:04:05"), today[8:]+"T")
}

type cronTabOption func(*alphav1.CronTab)

// newCronTab returns a CronTab "backup" with hourly runs. Its last run was at the given time;
// with "" it had none. Its status records the schedule.
func newCronTab(last string, options ...cronTabOption) *alphav1.CronTab {
	cronTab := &alphav1.CronTab{
		ObjectMeta: metav1.ObjectMeta{
			Name: "backup", Namespace: "ns", UID: "uid-backup", Generation: 1, CreationTimestamp: stamp("20T10:30:00"),
		},
		Spec: alphav1.CronTabSpec{
			Schedule: "0 * * * *",
			JobTemplate: corev1.PodSpec{
				Containers:    []corev1.Container{{Name: "backup", Image: "mybackupscript:v9"}},
				RestartPolicy: corev1.RestartPolicyNever,
			},
		},
		Status: alphav1.CronTabStatus{ObservedGeneration: 1},
	}
	if last != "" {
		cronTab.Status.LastScheduleTime = ptr.To(stamp(last))
	}
	for _, option := range options {
		option(cronTab)
	}
	if cronTab.Status.ObservedSchedule == nil {
		scheduled("", cronTab.CreationTimestamp.UTC().Format("02T15:04:05"))(cronTab)
	}
	return cronTab
}

// newUnseen returns the same without a status.
func newUnseen(options ...cronTabOption) *alphav1.CronTab {
	cronTab := newCronTab("", options...)
	cronTab.Status = alphav1.CronTabStatus{}
	return cronTab
}

func schedulesAt(schedule string) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Spec.Schedule = schedule }
}

func inZone(zone string) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Spec.TimeZone = &zone }
}

func createdAt(clock string) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.CreationTimestamp = stamp(clock) }
}

func missedAt(clock string) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Status.LastMissedTime = ptr.To(stamp(clock)) }
}

func deadline(seconds int64) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Spec.StartingDeadlineSeconds = &seconds }
}

func policy(policy alphav1.ConcurrencyPolicy) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Spec.ConcurrencyPolicy = policy }
}

// askedAt adds the annotation by which a user asks for a run.
func askedAt(value string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		cronTab.Annotations = map[string]string{alphav1.RunAtAnnotation: value}
	}
}

// askedToday asks for a run at the time.
func askedToday(clock string) cronTabOption { return askedAt(today + "T" + clock + "Z") }

// handledAt is when the last run that was asked for was due.
func handledAt(clock string) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Status.LastManualTime = ptr.To(stamp(clock)) }
}

func suspended(cronTab *alphav1.CronTab) {
	cronTab.Spec.Suspend = ptr.To(true)
}

func terminating(cronTab *alphav1.CronTab) {
	cronTab.DeletionTimestamp = ptr.To(stamp("11:00:00"))
}

// keeps sets the limits of the history.
func keeps(successful, failed int32) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		cronTab.Spec.SuccessfulJobsHistoryLimit, cronTab.Spec.FailedJobsHistoryLimit = &successful, &failed
	}
}

// scheduled sets the schedule that the status records, "" for that of the spec, and since
// when.
func scheduled(schedule, since string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		cronTab.Status.ObservedSchedule = &alphav1.ObservedSchedule{
			Schedule: cmp.Or(schedule, cronTab.Spec.Schedule), TimeZone: ptr.Deref(cronTab.Spec.TimeZone, ""), Since: stamp(since),
		}
	}
}

// writtenBy adds an entry to the managed fields.
func writtenBy(subresource, clock string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		cronTab.ManagedFields = append(cronTab.ManagedFields, metav1.ManagedFieldsEntry{Subresource: subresource, Time: ptr.To(stamp(clock))})
	}
}

func readyBecause(reason string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		status := metav1.ConditionFalse
		if reason == alphav1.ReasonScheduled {
			status = metav1.ConditionTrue
		}
		cronTab.Status.Conditions = append(cronTab.Status.Conditions, metav1.Condition{
			Type: alphav1.CronTabReady, Status: status, Reason: reason, Message: "as before", ObservedGeneration: 1, LastTransitionTime: stamp("20T11:00:00"),
		})
	}
}

type jobOption func(*batchv1.Job)

// jobAt returns the Job, under way, of the run that was due at the time.
func jobAt(clock string, options ...jobOption) *batchv1.Job {
	return jobOf(newCronTab(""), moment(clock), options...)
}

func jobOf(cronTab *alphav1.CronTab, due time.Time, options ...jobOption) *batchv1.Job {
	job := newJob(cronTab, due, time.UTC)
	job.UID = types.UID("uid-" + job.Name)
	job.CreationTimestamp = metav1.NewTime(due)
	for _, option := range options {
		option(job)
	}
	return job
}

func ended(condition batchv1.JobConditionType) jobOption {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue})
	}
}

// complete ends the Job successfully at the time.
func complete(clock string) jobOption {
	return func(job *batchv1.Job) {
		ended(batchv1.JobComplete)(job)
		job.Status.CompletionTime = ptr.To(stamp(clock))
	}
}

// failed ends the Job with a failure at the time.
func failed(clock string) jobOption {
	return func(job *batchv1.Job) {
		ended(batchv1.JobFailed)(job)
		job.Status.Conditions[len(job.Status.Conditions)-1].LastTransitionTime = stamp(clock)
	}
}

func jobTerminating(job *batchv1.Job) {
	job.DeletionTimestamp = ptr.To(stamp("11:00:00"))
}

// ownedBy replaces the Job's owner reference, "" for none.
func ownedBy(kind, name string, uid types.UID) jobOption {
	return func(job *batchv1.Job) {
		job.OwnerReferences = nil
		if kind != "" {
			job.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: kind, Name: name, UID: uid, Controller: ptr.To(true)}}
			if kind == cronTabGVK().Kind {
				job.OwnerReferences[0].APIVersion = alphav1.GroupVersion.String()
			}
		}
	}
}

func jobNamed(name string) jobOption {
	return func(job *batchv1.Job) { job.Name, job.UID = name, types.UID("uid-"+name) }
}

// manualJob returns the Job, under way, of the run that a user asked for at the time.
func manualJob(clock string, options ...jobOption) *batchv1.Job {
	named := func(job *batchv1.Job) { jobNamed(manualJobName("backup", moment(clock)))(job) }
	return jobAt(clock, append([]jobOption{named}, options...)...)
}

// jobsByName returns a function that finds a Job by its name.
func jobsByName(lists ...[]*batchv1.Job) func(string) *batchv1.Job {
	return func(name string) *batchv1.Job {
		for _, jobs := range lists {
			for _, job := range jobs {
				if job.Name == name {
					return job
				}
			}
		}
		return nil
	}
}

// describeDecision returns all of a decision in words.
func describeDecision(t testing.TB, cronTab *alphav1.CronTab, d decision) string {
	t.Helper()
	var words []string
	say := func(format string, args ...any) { words = append(words, fmt.Sprintf(format, args...)) }
	if d.problem.reason != "" {
		say("%s", d.problem.reason)
	}
	if !d.started.IsZero() {
		say("started %s", clockOf(d.started))
	}
	for _, skipped := range d.missed {
		if skipped.count == 1 {
			say("%s %s", skipped.reason, clockOf(skipped.latest))
		} else {
			say("%s %dx %s-%s", skipped.reason, skipped.count, clockOf(skipped.first), clockOf(skipped.latest))
		}
	}
	if !d.manual.settled.IsZero() {
		say("asked %s", clockOf(d.manual.settled))
	}
	if d.manual.takenBy != nil {
		say("taken")
	}
	if d.manual.waits || d.manual.behind != "" {
		say("asked waits")
	}
	if d.manual.invalid != "" {
		say("%s", alphav1.ReasonInvalidRunAt)
	}
	for _, job := range d.replace {
		say("replace %s", runOf(cronTab, job))
	}
	switch {
	case !d.manual.at.IsZero():
		if at := manualTime(cronTab, d.start); !at.Equal(d.manual.at) {
			t.Errorf("the Job of the run asked for at %v has the name %s", d.manual.at, d.start.Name)
		}
		say("start asked %s", clockOf(d.manual.at))
	case d.start != nil:
		if due := dueTime(cronTab, d.start); !due.Equal(d.due) {
			t.Errorf("the Job of the run at %v has the name %s", d.due, d.start.Name)
		}
		say("start %s", clockOf(d.due))
	case !d.due.IsZero():
		say("hold %s", clockOf(d.due))
	}
	if d.tryNext {
		say("try next")
	}
	for _, job := range d.excess {
		say("delete %s", runOf(cronTab, job))
	}
	if !d.next.IsZero() {
		say("next %s", clockOf(d.next))
	}
	if d.requeueAfter > 0 {
		say("requeue after %v", d.requeueAfter)
	}
	return strings.Join(words, ", ")
}

func runOf(cronTab *alphav1.CronTab, job *batchv1.Job) string {
	if due := dueTime(cronTab, job); !due.IsZero() {
		return clockOf(due)
	}
	if at := manualTime(cronTab, job); !at.IsZero() {
		return "asked " + clockOf(at)
	}
	return job.Name
}

// named returns a CronTab and a Job with these names alone, for dueTime and manualTime.
func named(cronTab, job string) (*alphav1.CronTab, *batchv1.Job) {
	return &alphav1.CronTab{ObjectMeta: metav1.ObjectMeta{Name: cronTab}}, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: job}}
}
