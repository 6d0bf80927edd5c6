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
	"errors"
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

// moment returns the time that is "12:00" or "12:00:05" today, or "20T12:00" on another day of the
// month.
func moment(clock string) time.Time {
	day := today
	if date, rest, found := strings.Cut(clock, "T"); found {
		day, clock = today[:8]+date, rest
	}
	if strings.Count(clock, ":") == 1 {
		clock += ":00"
	}
	parsed, err := time.Parse(time.RFC3339Nano, day+"T"+clock+"Z")
	if err != nil {
		panic(err)
	}
	return parsed
}

func stamp(clock string) metav1.Time { return metav1.NewTime(moment(clock)) }

// clockOf is the inverse of moment.
func clockOf(at time.Time) string {
	return strings.TrimPrefix(strings.TrimSuffix(at.UTC().Format("02T15:04:05.999"), ":00"), today[8:]+"T")
}

type cronTabOption func(*alphav1.CronTab)

// hourly returns a CronTab "backup" with hourly runs. Its last run was at the given time;
// with "" it had none. Its status records the schedule.
func hourly(last string, options ...cronTabOption) *alphav1.CronTab {
	cronTab := &alphav1.CronTab{
		ObjectMeta: metav1.ObjectMeta{Name: "backup", Namespace: "ns", UID: "uid-backup", Generation: 1, CreationTimestamp: stamp("20T10:30")},
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
		follows("", cronTab.CreationTimestamp.UTC().Format("02T15:04:05"))(cronTab)
	}
	return cronTab
}

// unseen returns the same without a status.
func unseen(options ...cronTabOption) *alphav1.CronTab {
	cronTab := hourly("", options...)
	cronTab.Status = alphav1.CronTabStatus{}
	return cronTab
}

func runsAt(schedule string) cronTabOption {
	return func(c *alphav1.CronTab) { c.Spec.Schedule = schedule }
}

func inZone(zone string) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Spec.TimeZone = &zone }
}

func createdAt(clock string) cronTabOption {
	return func(c *alphav1.CronTab) { c.CreationTimestamp = stamp(clock) }
}

func missedAt(clock string) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Status.LastMissedTime = ptr.To(stamp(clock)) }
}

func deadline(seconds int64) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Spec.StartingDeadlineSeconds = &seconds }
}

// succeedsWithin sets how many seconds may pass without a success.
func succeedsWithin(seconds int64) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Spec.SuccessDeadlineSeconds = &seconds }
}

func succeededAt(clock string) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Status.LastSuccessfulTime = ptr.To(stamp(clock)) }
}

// splays sets splaySeconds. The offset of "uid-backup" is 10 s of 60 and 1870 s of 3600.
func splays(seconds int32) cronTabOption {
	return func(c *alphav1.CronTab) { c.Spec.SplaySeconds = &seconds }
}

func allow(cronTab *alphav1.CronTab)   { cronTab.Spec.ConcurrencyPolicy = alphav1.AllowConcurrent }
func forbid(cronTab *alphav1.CronTab)  { cronTab.Spec.ConcurrencyPolicy = alphav1.ForbidConcurrent }
func replace(cronTab *alphav1.CronTab) { cronTab.Spec.ConcurrencyPolicy = alphav1.ReplaceConcurrent }

func suspended(cronTab *alphav1.CronTab) { cronTab.Spec.Suspend = ptr.To(true) }
func resumed(cronTab *alphav1.CronTab)   { cronTab.Spec.Suspend = ptr.To(false) }

func nextGeneration(cronTab *alphav1.CronTab) { cronTab.Generation++ }

func deleted(cronTab *alphav1.CronTab) { cronTab.DeletionTimestamp = ptr.To(stamp("11:00")) }

// asked adds the annotation by which a user asks for a run.
func asked(value string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		cronTab.Annotations = map[string]string{alphav1.RunAtAnnotation: value}
	}
}

// askedAt asks for a run at that time of today.
func askedAt(clock string) cronTabOption { return asked(moment(clock).Format(time.RFC3339)) }

// handledAt is when the last run that was asked for was due.
func handledAt(clock string) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Status.LastManualTime = ptr.To(stamp(clock)) }
}

// keeps sets the limits of the history.
func keeps(successful, failed int32) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		cronTab.Spec.SuccessfulJobsHistoryLimit, cronTab.Spec.FailedJobsHistoryLimit = &successful, &failed
	}
}

// follows sets the schedule that the status records, "" for that of the spec, and since
// when.
func follows(schedule, since string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		cronTab.Status.ObservedSchedule = &alphav1.ObservedSchedule{
			Schedule: cmp.Or(schedule, cronTab.Spec.Schedule), TimeZone: ptr.Deref(cronTab.Spec.TimeZone, ""), Since: stamp(since),
		}
	}
}

// changesTo is the schedule of the spec. The status records that of every hour.
func changesTo(schedule string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		follows("0 * * * *", "20T10:30")(cronTab)
		cronTab.Spec.Schedule = schedule
	}
}

// writtenAtBy adds an entry to the managed fields.
func writtenAtBy(clock, subresource string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		cronTab.ManagedFields = append(cronTab.ManagedFields, metav1.ManagedFieldsEntry{Subresource: subresource, Time: ptr.To(stamp(clock))})
	}
}

func writtenAtClock(clock string) cronTabOption { return writtenAtBy(clock, "") }

// was sets the reason and the message of the Ready condition.
func was(reason, message string) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		status := metav1.ConditionFalse
		if reason == alphav1.ReasonScheduled {
			status = metav1.ConditionTrue
		}
		cronTab.Status.Conditions = append(cronTab.Status.Conditions, metav1.Condition{
			Type: alphav1.CronTabReady, Status: status, Reason: reason, Message: message, ObservedGeneration: 1, LastTransitionTime: stamp("20T11:00"),
		})
	}
}

// refused sets the condition that a refusal with that message leaves.
func refused(message string) cronTabOption {
	return was(alphav1.ReasonJobRejected, describeRejection(result{rejected: errors.New(message)}))
}

// wasLate sets the condition of a CronTab that is late.
func wasLate(cronTab *alphav1.CronTab) {
	cronTab.Status.Conditions = append(cronTab.Status.Conditions, metav1.Condition{
		Type: alphav1.CronTabLate, Status: metav1.ConditionTrue, Reason: alphav1.ReasonNoSuccess, ObservedGeneration: 1, LastTransitionTime: stamp("20T11:00"),
	})
}

// recordedAt gives the CronTab the status that a sync at that time writes for those Jobs.
func recordedAt(clock string, jobs ...*batchv1.Job) cronTabOption {
	return statusAfter(clock, nil, jobs...)
}

// statusAfter does so after that refusal of its Job.
func statusAfter(clock string, rejected error, jobs ...*batchv1.Job) cronTabOption {
	return func(cronTab *alphav1.CronTab) {
		if cronTab.Status.ObservedSchedule == nil {
			follows("", "20T10:30")(cronTab)
		}
		res := result{}
		if rejected != nil {
			res.rejected = fmt.Errorf("creating Job %q: %w", jobName(cronTab.Name, moment(clock)), rejected)
		}
		snap := snapshotAt(clock, cronTab, jobs)
		cronTab.Status = newStatus(snap, decide(snap), res)
	}
}

// snapshotAt returns what a sync reads at the time. The Jobs may belong to others.
func snapshotAt(clock string, cronTab *alphav1.CronTab, jobs []*batchv1.Job) snapshot {
	return snapshot{cronTab: cronTab, jobs: jobs, now: moment(clock), jobNamed: func(name string) *batchv1.Job {
		for _, job := range jobs {
			if job.Name == name {
				return job
			}
		}
		return nil
	}}
}

type jobs = []*batchv1.Job

type jobOption func(*batchv1.Job)

// run returns the Job, under way, of the run that was due at the time.
func run(clock string, options ...jobOption) *batchv1.Job {
	return jobOf(hourly(""), moment(clock), options...)
}

// manual returns the Job, under way, of the run that a user asked for at the time.
func manual(clock string, options ...jobOption) *batchv1.Job {
	return run(clock, append([]jobOption{jobNamed(manualJobName("backup", moment(clock)))}, options...)...)
}

func jobOf(cronTab *alphav1.CronTab, due time.Time, options ...jobOption) *batchv1.Job {
	job := newJob(cronTab, due, time.UTC)
	job.UID, job.ResourceVersion = types.UID("uid-"+job.Name), testVersion
	job.CreationTimestamp = metav1.NewTime(due)
	for _, option := range options {
		option(job)
	}
	return job
}

func jobNamed(name string) jobOption {
	return func(job *batchv1.Job) { job.Name, job.UID = name, types.UID("uid-"+name) }
}

// bornAt is when the Job was created, if not when its run was due.
func bornAt(clock string) jobOption {
	return func(job *batchv1.Job) { job.CreationTimestamp = stamp(clock) }
}

// ended sets a condition at the time, "" for none.
func ended(condition batchv1.JobConditionType, clock string) jobOption {
	if clock == "" {
		return endedAt(condition, metav1.Time{})
	}
	return endedAt(condition, stamp(clock))
}

func endedAt(condition batchv1.JobConditionType, at metav1.Time) jobOption {
	return func(job *batchv1.Job) {
		job.Status.Conditions = append(job.Status.Conditions, batchv1.JobCondition{Type: condition, Status: corev1.ConditionTrue, LastTransitionTime: at})
		if condition == batchv1.JobComplete {
			job.Status.CompletionTime = &at
		}
	}
}

// complete ends the Job successfully at the time.
func complete(clock string) jobOption { return ended(batchv1.JobComplete, clock) }

// failed ends the Job with a failure at the time.
func failed(clock string) jobOption { return ended(batchv1.JobFailed, clock) }

func goesAway(job *batchv1.Job) { job.DeletionTimestamp = ptr.To(stamp("11:00")) }

// ownedBy replaces the Job's owner reference.
func ownedBy(kind, name string, uid types.UID) jobOption {
	return func(job *batchv1.Job) {
		job.OwnerReferences = []metav1.OwnerReference{{APIVersion: "batch/v1", Kind: kind, Name: name, UID: uid, Controller: ptr.To(true)}}
		if kind == cronTabGVK().Kind {
			job.OwnerReferences[0].APIVersion = alphav1.GroupVersion.String()
		}
	}
}

// Owners of Jobs that are not the CronTab's.
func unowned(job *batchv1.Job)   { job.OwnerReferences = nil }
func ofCronJob(job *batchv1.Job) { ownedBy("CronJob", "backup", "uid-cronjob")(job) }
func ofFormer(job *batchv1.Job)  { ownedBy(cronTabGVK().Kind, "backup", "uid-earlier")(job) }

// describeDecision returns all of a decision in words. Unless they say so the next run is at the next full
// hour, and the next sync in a minute.
func describeDecision(t testing.TB, now time.Time, cronTab *alphav1.CronTab, d decision) string {
	t.Helper()
	var words []string
	say := func(condition bool, format string, args ...any) {
		if condition {
			words = append(words, fmt.Sprintf(format, args...))
		}
	}
	say(d.problem.reason != "", "%s", d.problem.reason)
	say(!d.started.IsZero(), "started %s", clockOf(d.started))
	for _, missed := range d.missed {
		say(missed.count == 1, "%s %s", missed.reason, clockOf(missed.latest))
		say(missed.count != 1, "%s %dx %s-%s", missed.reason, missed.count, clockOf(missed.first), clockOf(missed.latest))
	}
	say(!d.manual.settled.IsZero(), "asked %s", clockOf(d.manual.settled))
	say(d.manual.takenBy != nil, "taken")
	say(d.manual.waits || d.manual.behind != "", "asked waits")
	say(d.manual.invalid != "", "%s", alphav1.ReasonInvalidRunAt)
	for _, job := range d.replace {
		say(true, "replace %s", runOf(cronTab, job))
	}
	if d.start != nil {
		say(true, "start %s", runOf(cronTab, d.start))
		if at := cmp.Or(d.manual.at, d.due); d.start.Annotations[alphav1.ScheduledTimeAnnotation] != at.In(d.zone()).Format(time.RFC3339) {
			t.Errorf("the Job %s of the run at %v has the annotations %v", d.start.Name, at, d.start.Annotations)
		}
	}
	say(d.start == nil && !d.due.IsZero(), "hold %s", clockOf(d.due))
	say(d.tryNext, "try next")
	for _, job := range d.excess {
		say(true, "delete %s", runOf(cronTab, job))
	}
	say(d.next.IsZero() && d.requeueAfter > 0, "never")
	say(!d.next.IsZero() && !d.next.Equal(now.Truncate(time.Hour).Add(time.Hour)), "next %s", clockOf(d.next))
	say(d.requeueAfter == 0, "rest")
	say(d.requeueAfter != 0 && d.requeueAfter != time.Minute, "in %v", d.requeueAfter)
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
