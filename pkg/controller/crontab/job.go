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
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

const (
	cronTabKind = "CronTab"
	// cronTabLabel is a label of Jobs and Pods: the name of their CronTab.
	cronTabLabel = alphav1.GroupName + "/crontab"
	// firstSeconds is the least number in a Job's name that is one of seconds: they have
	// been as many since 2001, and minutes will not be before 3871.
	firstSeconds = 1_000_000_000
)

// jobName returns the name of the Job for the run that is due at the time. There
// is one name for it whoever asks, and a name is given only once: that is what
// keeps a run from being started twice. The number in it is that of minutes since
// 1970, as a CronJob has it, or of seconds where the time is no full minute.
func jobName(cronTab string, due time.Time) string {
	number := due.Unix()
	if number%60 == 0 {
		number /= 60
	}
	return cronTab + "-" + strconv.FormatInt(number, 10)
}

// dueTime returns when the run was due whose Job has the name, the zero time if that is
// no name of such a Job.
func dueTime(cronTab, job string) time.Time {
	// What is no number becomes 0, whose name is another.
	number, _ := strconv.ParseUint(strings.TrimPrefix(job, cronTab+"-"), 10, 40)
	if number < firstSeconds {
		number *= 60
	}
	due := time.Unix(int64(number), 0).UTC()
	if jobName(cronTab, due) != job {
		return time.Time{}
	}
	return due
}

// newJob returns the Job to create for the run that is due at the time. The Pod
// spec goes in as it is.
func newJob(cronTab *alphav1.CronTab, due time.Time, zone *time.Location) *batchv1.Job {
	labels := map[string]string{controller.ManagedByLabel: controller.ManagedByValue, cronTabLabel: cronTab.Name}
	annotations := map[string]string{alphav1.ScheduledTimeAnnotation: due.In(zone).Format(time.RFC3339)}
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{
			Name:            jobName(cronTab.Name, due),
			Namespace:       cronTab.Namespace,
			Labels:          labels,
			Annotations:     annotations,
			OwnerReferences: []metav1.OwnerReference{controllerReference(cronTab)},
		},
		Spec: batchv1.JobSpec{
			Template: corev1.PodTemplateSpec{
				// A Pod, too, is told when it was due: its downward API has annotations.
				ObjectMeta: metav1.ObjectMeta{Labels: map[string]string{cronTabLabel: cronTab.Name}, Annotations: annotations},
				Spec:       *cronTab.Spec.JobTemplate.DeepCopy(),
			},
		},
	}
}

// controllerReference returns the owner reference that makes the CronTab the
// controller of a Job.
func controllerReference(cronTab *alphav1.CronTab) metav1.OwnerReference {
	return *metav1.NewControllerRef(cronTab, schema.GroupVersion(alphav1.GroupVersion).WithKind(cronTabKind))
}

// owns reports whether this very CronTab, by UID, controls the Job.
func owns(cronTab *alphav1.CronTab, job *batchv1.Job) bool {
	ref := controller.ControllerOf(job, groupKind())
	return ref != nil && ref.UID == cronTab.UID
}

// groupKind names our kind without a version: it is the same object in each.
func groupKind() schema.GroupKind {
	return schema.GroupKind{Group: alphav1.GroupName, Kind: cronTabKind}
}

// result is how a Job ended.
type result batchv1.JobConditionType

// underWay is the result of a Job that has not ended.
const underWay result = ""

// resultOf returns batchv1.JobComplete, batchv1.JobFailed or underWay.
func resultOf(job *batchv1.Job) result {
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
			return result(condition.Type)
		}
	}
	return underWay
}

// active returns the Jobs that are under way. One that is being deleted is among
// them: its Pods may still run.
func active(jobs []*batchv1.Job) []*batchv1.Job {
	var found []*batchv1.Job
	for _, job := range jobs {
		if resultOf(job) == underWay {
			found = append(found, job)
		}
	}
	return found
}

// inTheWay returns the Jobs that are under way by the status, are not among those, and
// matter to whether the next run may be started.
func inTheWay(cronTab *alphav1.CronTab, jobs []*batchv1.Job) []corev1.ObjectReference {
	if policy := cronTab.Spec.ConcurrencyPolicy; policy != alphav1.ForbidConcurrent && policy != alphav1.ReplaceConcurrent {
		return nil
	}
	return slices.DeleteFunc(slices.Clone(cronTab.Status.Active), func(ref corev1.ObjectReference) bool {
		return slices.ContainsFunc(jobs, func(job *batchv1.Job) bool { return job.UID == ref.UID })
	})
}
