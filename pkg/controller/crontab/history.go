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
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// The defaults of the CRD's schema.
const (
	defaultSuccessful = 3
	defaultFailed     = 1
)

// expired returns the Jobs that are too many in the history, the oldest. Whatever
// the status as it is stored does not tell of yet stays: when a run was due whose Job
// is gone, and when a Job completed, is known from nowhere else.
func expired(cronTab *alphav1.CronTab, jobs []*batchv1.Job) []*batchv1.Job {
	spec := &cronTab.Spec
	return append(
		tooMany(cronTab, jobs, result(batchv1.JobComplete), ptr.Deref(spec.SuccessfulJobsHistoryLimit, defaultSuccessful)),
		tooMany(cronTab, jobs, result(batchv1.JobFailed), ptr.Deref(spec.FailedJobsHistoryLimit, defaultFailed))...)
}

// tooMany returns the Jobs with the result that are beyond the limit.
func tooMany(cronTab *alphav1.CronTab, jobs []*batchv1.Job, how result, limit int32) []*batchv1.Job {
	ended := slices.DeleteFunc(slices.Clone(jobs), func(job *batchv1.Job) bool {
		return resultOf(job) != how || job.DeletionTimestamp != nil
	})
	slices.SortFunc(ended, byAge)
	old := ended[:max(0, len(ended)-int(max(0, limit)))]
	return slices.DeleteFunc(old, func(job *batchv1.Job) bool { return !recorded(cronTab, job) })
}

// byAge sorts Jobs by when they were created, and by name.
func byAge(a, b *batchv1.Job) int {
	return cmp.Or(a.CreationTimestamp.Compare(b.CreationTimestamp.Time), cmp.Compare(a.Name, b.Name))
}

// recorded reports whether the status tells of the Job's run and of its success.
func recorded(cronTab *alphav1.CronTab, job *batchv1.Job) bool {
	status := &cronTab.Status
	if dueTime(cronTab.Name, job.Name).After(timeOf(status.LastScheduleTime)) {
		return false
	}
	completed := job.Status.CompletionTime
	return completed == nil || !completed.After(timeOf(status.LastSuccessfulTime))
}

// timeOf returns the time, the zero time if there is none.
func timeOf(at *metav1.Time) time.Time {
	return ptr.Deref(at, metav1.Time{}).Time
}
