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
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

// Trim returns what a sync reads of a cached CronTab or Job, nil for an object of another
// kind. The Pod spec and the options of a CronTab may be over a megabyte: startRun reads them
// live.
func Trim(object any) any {
	switch object := object.(type) {
	case *alphav1.CronTab:
		// writtenAt reads when the schedule was written.
		written := lastWritten(object.ManagedFields)
		runAt, asksForRun := object.Annotations[alphav1.RunAtAnnotation]
		controller.TrimMetadata(object)
		if asksForRun {
			object.Annotations = map[string]string{alphav1.RunAtAnnotation: controller.Bounded(runAt)}
		}
		controller.TrimConditions(object.Status.Conditions)
		object.ManagedFields = written
		object.Spec.JobTemplate, object.Spec.JobOptions = corev1.PodSpec{}, alphav1.JobOptions{}
		return object
	case *batchv1.Job:
		return trimJob(object)
	}
	return nil
}

// trimJob returns the identity of a Job, its age, and how it ended.
func trimJob(job *batchv1.Job) *batchv1.Job {
	trimmed := &batchv1.Job{Status: batchv1.JobStatus{CompletionTime: job.Status.CompletionTime}}
	controller.SetIdentity(trimmed, job)
	trimmed.CreationTimestamp = job.CreationTimestamp
	if end := endOfJob(job); end.Type != "" {
		trimmed.Status.Conditions = []batchv1.JobCondition{{Type: end.Type, Status: end.Status, LastTransitionTime: end.LastTransitionTime}}
	}
	return trimmed
}

// lastWritten returns managed fields with one entry, whose time is the latest at which anything but a
// subresource was written.
func lastWritten(managedFields []metav1.ManagedFieldsEntry) []metav1.ManagedFieldsEntry {
	var latest *metav1.Time
	for i := range managedFields {
		if entry := &managedFields[i]; entry.Subresource == "" && (latest == nil || latest.Before(entry.Time)) {
			latest = entry.Time
		}
	}
	if latest == nil {
		return nil
	}
	return []metav1.ManagedFieldsEntry{{Time: latest}}
}
