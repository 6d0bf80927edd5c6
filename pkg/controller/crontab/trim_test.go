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
	"testing"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// TestTrimCronTab: the cache keeps of a CronTab all but the Pod spec and most metadata.
func TestTrimCronTab(t *testing.T) {
	cronTab := newCronTab("11:00:00", writtenBy("", "11:10:00"), writtenBy("", "11:20:00"), writtenBy("status", "11:50:00"), readyBecause("Scheduled"))
	cronTab.ManagedFields[0].FieldsV1, cronTab.ManagedFields[0].Manager = metav1.NewFieldsV1("{}"), "kubectl"
	askedToday("12:00:00")(cronTab)
	cronTab.Labels, cronTab.Annotations["x"] = map[string]string{"x": "y"}, "y"
	cronTab.Finalizers = []string{"example.com/wait"}
	cronTab.Spec.JobOptions = alphav1.JobOptions{BackoffLimit: ptr.To[int32](0)}
	want := cronTab.DeepCopy()
	want.Labels, want.Finalizers = nil, nil
	delete(want.Annotations, "x")
	want.Spec.JobTemplate, want.Spec.JobOptions = corev1.PodSpec{}, alphav1.JobOptions{}
	want.ManagedFields = []metav1.ManagedFieldsEntry{{Time: ptr.To(stamp("11:20:00"))}}
	now := moment("12:00:00")
	before := writtenAt(cronTab, now)
	trimmed := Trim(cronTab)
	differ(t, "rule 24: the cached CronTab", any(want), trimmed)
	differ(t, "rule C13: when the schedule was written", before, writtenAt(cronTab, now))
	differ(t, "rule 24: trimmed twice", any(want), Trim(want.DeepCopy()))
}

// TestTrimJob: the cache keeps of a Job its identity, its age and how it ended.
func TestTrimJob(t *testing.T) {
	for sentence, job := range map[string]*batchv1.Job{
		"rule 24: a Job under way":                       jobAt("11:00:00"),
		"rule 24: a terminating Job":                     jobAt("11:00:00", jobTerminating),
		"rule 24: a complete Job":                        jobAt("11:00:00", complete("11:01:00")),
		"rule 24: a failed Job":                          jobAt("11:00:00", failed("11:01:00")),
		"rule 24: a Job that is about to fail is active": jobAt("11:00:00", ended(batchv1.JobFailureTarget)),
	} {
		t.Run(sentence, func(t *testing.T) {
			job.ResourceVersion, job.ManagedFields = testVersion, []metav1.ManagedFieldsEntry{{Manager: "x"}}
			want := &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
				Name: job.Name, Namespace: job.Namespace, UID: job.UID, ResourceVersion: job.ResourceVersion, OwnerReferences: job.OwnerReferences,
				CreationTimestamp: job.CreationTimestamp, DeletionTimestamp: job.DeletionTimestamp,
			}, Status: batchv1.JobStatus{CompletionTime: job.Status.CompletionTime}}
			if resultOf(job) != unfinished {
				want.Status.Conditions = job.Status.Conditions
			}
			differ(t, "kept", any(want), Trim(job))
			differ(t, "rule C15: the result", resultOf(job), resultOf(want))
		})
	}
	if kept := Trim(&metav1.Status{}); kept != nil {
		t.Errorf("of an object of another kind %v is kept", kept)
	}
}
