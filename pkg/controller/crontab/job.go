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
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

const (
	// cronTabLabel is a label of Jobs and Pods: the name of their CronTab.
	cronTabLabel = alphav1.GroupName + "/crontab"
	// firstSeconds is the lowest number in a Job's name that counts seconds. The seconds
	// since 1970 have been above it since 2001, and the minutes, which the names of a CronJob's
	// Jobs and those of former versions end in, will be in 3871.
	firstSeconds = 1_000_000_000

	// The defaults of the CRD's schema.
	defaultSuccessful = 3
	defaultFailed     = 1
)

func cronTabGVK() schema.GroupVersionKind {
	return schema.GroupVersion(alphav1.GroupVersion).WithKind("CronTab")
}

// jobName returns the name of the Job for the run that is due at the time. Every process
// computes the same name, and the API server accepts it only once, so no run is started
// twice. The name ends in the number of seconds since 1970. That of a CronJob's Job ends in
// the number of minutes, so a CronTab and a CronJob of one name do not ask for the same Job.
func jobName(cronTab string, due time.Time) string {
	return cronTab + "-" + strconv.FormatInt(due.Unix(), 10)
}

// formerJobName returns the name that former versions gave the Job of that run. It ended in
// the number of minutes, as for a CronJob, if the time was a full minute.
func formerJobName(cronTab string, due time.Time) string {
	if due.Unix()%60 != 0 {
		return jobName(cronTab, due)
	}
	return cronTab + "-" + strconv.FormatInt(due.Unix()/60, 10)
}

// dueTime returns the scheduled time of the run whose Job has that name. It returns the zero time for
// a name that neither jobName nor formerJobName returns.
func dueTime(cronTab, job string) time.Time {
	// For text that is not a number this is 0, and the name of that run differs.
	number, _ := strconv.ParseUint(strings.TrimPrefix(job, cronTab+"-"), 10, 40)
	if number < firstSeconds {
		number *= 60
	}
	due := time.Unix(int64(number), 0).UTC()
	if job != jobName(cronTab, due) && job != formerJobName(cronTab, due) {
		return time.Time{}
	}
	return due
}

// newJob returns the Job to create for the run that is due at the time. It has the Pod
// spec and the options of the CronTab unchanged.
func newJob(cronTab *alphav1.CronTab, due time.Time, zone *time.Location) *batchv1.Job {
	options := cronTab.Spec.JobOptions.DeepCopy()
	annotations := map[string]string{alphav1.ScheduledTimeAnnotation: due.In(zone).Format(time.RFC3339)}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            jobName(cronTab.Name, due),
			Namespace:       cronTab.Namespace,
			Labels:          merge(options.Metadata.Labels, map[string]string{controller.ManagedByLabel: controller.ManagedByValue, cronTabLabel: cronTab.Name}),
			Annotations:     merge(options.Metadata.Annotations, annotations),
			OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(cronTab, cronTabGVK())},
		},
		Spec: batchv1.JobSpec{
			BackoffLimit:            options.BackoffLimit,
			ActiveDeadlineSeconds:   options.ActiveDeadlineSeconds,
			TTLSecondsAfterFinished: options.TTLSecondsAfterFinished,
			Completions:             options.Completions,
			Parallelism:             options.Parallelism,
			PodFailurePolicy:        options.PodFailurePolicy,
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{
					Labels: merge(options.PodMetadata.Labels, map[string]string{cronTabLabel: cronTab.Name}),
					// The annotation lets a Pod read through the downward API when its run was due.
					Annotations: merge(options.PodMetadata.Annotations, annotations),
				},
				Spec: *cronTab.Spec.JobTemplate.DeepCopy(),
			},
		},
	}
}

// merge returns the union of both. The values of ours win.
func merge(theirs, ours map[string]string) map[string]string {
	merged := map[string]string{}
	maps.Copy(merged, theirs)
	maps.Copy(merged, ours)
	return merged
}

// owns reports whether this CronTab, by UID, controls the Job.
func owns(cronTab *alphav1.CronTab, job *batchv1.Job) bool {
	ref := controller.ControllerOf(job, cronTabGVK().GroupKind())
	return ref != nil && ref.UID == cronTab.UID
}

// jobResult is how a Job ended: batchv1.JobComplete, batchv1.JobFailed or unfinished.
type jobResult batchv1.JobConditionType

// unfinished is the result of a Job that has not ended.
const unfinished jobResult = ""

func resultOf(job *batchv1.Job) jobResult {
	return jobResult(endOfJob(job).Type)
}

// endOfJob returns the condition that says how the Job ended, an empty one if it has not.
func endOfJob(job *batchv1.Job) batchv1.JobCondition {
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
			return condition
		}
	}
	return batchv1.JobCondition{}
}

// failureTime returns when the Job failed, the zero time if it did not.
func failureTime(job *batchv1.Job) time.Time {
	if end := endOfJob(job); end.Type == batchv1.JobFailed {
		return end.LastTransitionTime.Time
	}
	return time.Time{}
}

// activeJobs returns the Jobs that have not ended. A Job that is being deleted is one of
// them: its Pods may still run.
func activeJobs(jobs []*batchv1.Job) []*batchv1.Job {
	var active []*batchv1.Job
	for _, job := range jobs {
		if resultOf(job) == unfinished {
			active = append(active, job)
		}
	}
	return active
}

// unseenActive returns the Jobs that the status lists as active and the cache does not
// have, if the concurrency policy makes the next run depend on them.
func unseenActive(cronTab *alphav1.CronTab, cached []*batchv1.Job) []corev1.ObjectReference {
	if policy := cronTab.Spec.ConcurrencyPolicy; policy != alphav1.ForbidConcurrent && policy != alphav1.ReplaceConcurrent {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(cronTab.Status.Active), func(ref corev1.ObjectReference) bool {
		return slices.ContainsFunc(cached, func(job *batchv1.Job) bool { return job.UID == ref.UID })
	})
}

// isUnseen reports whether the cache should have shown the Job to a sync that starts a run.
// ref is an entry of the list of active Jobs; without a UID it is the former name of the
// run's own Job.
func isUnseen(cronTab *alphav1.CronTab, ref corev1.ObjectReference, live *batchv1.Job) bool {
	return owns(cronTab, live) && (ref.UID == "" || ref.UID == live.UID && resultOf(live) == unfinished)
}

// excessJobs returns the oldest finished Jobs beyond the history limits. A Job that the
// stored status does not record yet stays: nothing else shows when its run was due and when
// it ended.
func excessJobs(cronTab *alphav1.CronTab, jobs []*batchv1.Job) []*batchv1.Job {
	spec := &cronTab.Spec
	return append(
		excessOf(cronTab, jobs, jobResult(batchv1.JobComplete), ptr.Deref(spec.SuccessfulJobsHistoryLimit, defaultSuccessful)),
		excessOf(cronTab, jobs, jobResult(batchv1.JobFailed), ptr.Deref(spec.FailedJobsHistoryLimit, defaultFailed))...)
}

// excessOf returns the oldest Jobs with the result beyond the limit.
func excessOf(cronTab *alphav1.CronTab, jobs []*batchv1.Job, result jobResult, limit int32) []*batchv1.Job {
	finished := slices.DeleteFunc(slices.Clone(jobs), func(job *batchv1.Job) bool {
		return resultOf(job) != result || job.DeletionTimestamp != nil
	})
	slices.SortFunc(finished, byAge)
	excess := finished[:max(0, len(finished)-int(max(0, limit)))]
	return slices.DeleteFunc(excess, func(job *batchv1.Job) bool { return !recorded(cronTab, job) })
}

// byAge compares Jobs by creation time, then by name.
func byAge(a, b *batchv1.Job) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// recorded reports whether the status records the Job's run and when it ended.
func recorded(cronTab *alphav1.CronTab, job *batchv1.Job) bool {
	status := &cronTab.Status
	if dueTime(cronTab.Name, job.Name).After(timeOf(status.LastScheduleTime)) || manualTime(cronTab.Name, job.Name).After(timeOf(status.LastManualTime)) {
		return false
	}
	completed := job.Status.CompletionTime
	return (completed == nil || !completed.After(timeOf(status.LastSuccessfulTime))) && !failureTime(job).After(timeOf(status.LastFailedTime))
}

// timeOf returns the time, or the zero time for nil.
func timeOf(at *metav1.Time) time.Time {
	return ptr.Deref(at, metav1.Time{}).Time
}
