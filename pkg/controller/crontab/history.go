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

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// The defaults of the CRD's schema.
const (
	defaultSuccessful = 3
	defaultFailed     = 1
)

// expired returns the Jobs that are too many in the history, oldest first. Whatever
// the status as it is stored does not tell of yet stays: when a run was due whose Job
// is gone, and when a Job completed, is known from nowhere else.
func expired(cronTab *alphav1.CronTab, jobs []*batchv1.Job) []*batchv1.Job {
	var found []*batchv1.Job
	for outcome, limit := range map[result]int32{
		result(batchv1.JobComplete): ptr.Deref(cronTab.Spec.SuccessfulJobsHistoryLimit, defaultSuccessful),
		result(batchv1.JobFailed):   ptr.Deref(cronTab.Spec.FailedJobsHistoryLimit, defaultFailed),
	} {
		ended := slices.DeleteFunc(slices.Clone(jobs), func(job *batchv1.Job) bool {
			return resultOf(job) != outcome || job.DeletionTimestamp != nil
		})
		slices.SortFunc(ended, byAge)
		for _, job := range ended[:max(0, len(ended)-int(max(0, limit)))] {
			if recorded(cronTab, job) {
				found = append(found, job)
			}
		}
	}
	slices.SortFunc(found, byAge)
	return found
}

// byAge sorts Jobs by when they were created, and by name.
func byAge(a, b *batchv1.Job) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// recorded reports whether the status tells of the Job's run and of its success.
func recorded(cronTab *alphav1.CronTab, job *batchv1.Job) bool {
	status := &cronTab.Status
	if due, ok := dueTime(cronTab.Name, job.Name); ok && (status.LastScheduleTime == nil || due.After(status.LastScheduleTime.Time)) {
		return false
	}
	completed := job.Status.CompletionTime
	return completed == nil || status.LastSuccessfulTime != nil && !completed.After(status.LastSuccessfulTime.Time)
}
