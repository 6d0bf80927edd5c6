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
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/labels"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/client/trim"
	"example.com/sample-controller/pkg/controller"
)

const (
	// cronTabLabel is a label of Jobs and Pods: the name of their CronTab.
	cronTabLabel = alphav1.GroupName + "/crontab"
	// The defaults of the CRD's schema.
	defaultSuccessful = 3
	defaultFailed     = 1
)

func cronTabGVK() schema.GroupVersionKind {
	return schema.GroupVersion(alphav1.GroupVersion).WithKind("CronTab")
}

// newJob returns the Job to create for the run. It has the Pod spec and the options of the CronTab unchanged.
func newJob(cronTab *alphav1.CronTab, due dueRun, zone *time.Location) *batchv1.Job {
	options := cronTab.Spec.JobOptions.DeepCopy()
	ours := map[string]string{controller.ManagedByLabel: controller.ManagedByValue, cronTabLabel: cronTab.Name}
	annotations := map[string]string{alphav1.ScheduledTimeAnnotation: due.at.In(zone).Format(time.RFC3339)}
	if due.manual {
		annotations[alphav1.InstantiateAnnotation] = alphav1.InstantiateManual
	}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            due.jobName(cronTab.Name),
			Namespace:       cronTab.Namespace,
			Labels:          labels.Merge(options.Metadata.Labels, ours),
			Annotations:     labels.Merge(options.Metadata.Annotations, annotations),
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
					Labels: labels.Merge(options.PodMetadata.Labels, map[string]string{cronTabLabel: cronTab.Name}),
					// The annotation lets a Pod read through the downward API when its run was due.
					Annotations: labels.Merge(options.PodMetadata.Annotations, annotations),
				},
				Spec: *cronTab.Spec.JobTemplate.DeepCopy(),
			},
		},
	}
}

// owns reports whether this CronTab, by UID, controls the Job.
func owns(cronTab *alphav1.CronTab, job *batchv1.Job) bool {
	return controller.IsControlledBy(job, cronTab, cronTabGVK().GroupKind())
}

// unfinished is the type of endOfJob for a Job that has not ended.
const unfinished batchv1.JobConditionType = ""

// endOfJob returns the condition that says how the Job ended, an empty one if it has not.
func endOfJob(job *batchv1.Job) batchv1.JobCondition {
	for _, is := range job.Status.Conditions {
		if (is.Type == batchv1.JobComplete || is.Type == batchv1.JobFailed) && is.Status == corev1.ConditionTrue {
			return is
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

// activeJobs returns the Jobs that have not ended. A Job that is being deleted is one of them: its Pods may still run.
func activeJobs(jobs []*batchv1.Job) []*batchv1.Job {
	return slices.DeleteFunc(slices.Clone(jobs), func(job *batchv1.Job) bool { return endOfJob(job).Type != unfinished })
}

// excessJobs returns the oldest finished Jobs beyond the history limits. A Job that the stored status does not record
// yet stays: nothing else shows when its run was due and when it ended.
func excessJobs(cronTab *alphav1.CronTab, jobs []*batchv1.Job) []*batchv1.Job {
	spec := &cronTab.Spec
	return append(
		excessOf(cronTab, jobs, batchv1.JobComplete, ptr.Deref(spec.SuccessfulJobsHistoryLimit, defaultSuccessful)),
		excessOf(cronTab, jobs, batchv1.JobFailed, ptr.Deref(spec.FailedJobsHistoryLimit, defaultFailed))...)
}

// excessOf returns the oldest Jobs with that end beyond the limit.
func excessOf(cronTab *alphav1.CronTab, jobs []*batchv1.Job, end batchv1.JobConditionType, limit int32) []*batchv1.Job {
	finished := slices.DeleteFunc(slices.Clone(jobs), func(job *batchv1.Job) bool {
		return endOfJob(job).Type != end || job.DeletionTimestamp != nil
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
	status, due := &cronTab.Status, runOf(cronTab, job)
	return !due.at.After(timeOf(*due.last(status))) &&
		!timeOf(job.Status.CompletionTime).After(timeOf(status.LastSuccessfulTime)) &&
		!failureTime(job).After(timeOf(status.LastFailedTime))
}

// timeOf returns the time, or the zero time for nil.
func timeOf(at *metav1.Time) time.Time {
	return ptr.Deref(at, metav1.Time{}).Time
}

// Trim returns what a sync reads of a cached CronTab or Job, nil for an object of another
// kind. startRun reads the Pod spec and the options of a CronTab live, which may be over a megabyte.
func Trim(object any) any {
	switch object := object.(type) {
	case *alphav1.CronTab:
		// writtenAt reads when the schedule was written.
		var written []metav1.ManagedFieldsEntry
		if at := lastWritten(object.ManagedFields); at != nil {
			written = []metav1.ManagedFieldsEntry{{Time: at}}
		}
		runAt, asksForRun := object.Annotations[alphav1.RunAtAnnotation]
		trim.Metadata(object)
		if asksForRun {
			object.Annotations = map[string]string{alphav1.RunAtAnnotation: trim.Bounded(runAt)}
		}
		trim.Conditions(object.Status.Conditions)
		object.ManagedFields = written
		options := &object.Spec.JobOptions
		ofJob := metav1.ObjectMeta{Labels: options.Metadata.Labels, Annotations: options.Metadata.Annotations}
		ofPods := metav1.ObjectMeta{Labels: options.PodMetadata.Labels, Annotations: options.PodMetadata.Annotations}
		template := corev1.PodTemplateSpec{ObjectMeta: ofPods, Spec: object.Spec.JobTemplate}
		controller.MarkLarge(object, &batchv1.Job{ObjectMeta: ofJob, Spec: batchv1.JobSpec{PodFailurePolicy: options.PodFailurePolicy, Template: template}})
		object.Spec.JobTemplate, object.Spec.JobOptions = corev1.PodSpec{}, alphav1.JobOptions{}
		return object
	case *batchv1.Job:
		// A Job has an identity, an age, and how it ended.
		trimmed := &batchv1.Job{Status: batchv1.JobStatus{CompletionTime: object.Status.CompletionTime}}
		trim.SetIdentity(trimmed, object)
		trimmed.CreationTimestamp = object.CreationTimestamp
		if end := endOfJob(object); end.Type != unfinished {
			end = batchv1.JobCondition{Type: end.Type, Status: end.Status, LastTransitionTime: end.LastTransitionTime}
			trimmed.Status.Conditions = []batchv1.JobCondition{end}
		}
		return trimmed
	}
	return nil
}

// lastWritten returns the latest time at which anything but a subresource was written, nil for none.
func lastWritten(managedFields []metav1.ManagedFieldsEntry) *metav1.Time {
	var latest *metav1.Time
	for i := range managedFields {
		if entry := &managedFields[i]; entry.Subresource == "" && (latest == nil || latest.Before(entry.Time)) {
			latest = entry.Time
		}
	}
	return latest
}
