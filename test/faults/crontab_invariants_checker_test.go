//go:build faults

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

package faults

import (
	"net/http"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

func (h *fakeHistory) addCronTab(cronTab *alphav1.CronTab) {
	appendVersion(h, &h.cronTabs, cronTab, false)
}
func (h *fakeHistory) addJob(job *batchv1.Job)    { appendVersion(h, &h.jobs, job, false) }
func (h *fakeHistory) deleteJob(job *batchv1.Job) { appendVersion(h, &h.jobs, job, true) }

// deleteCronTab deletes the CronTab at that second.
func (h *fakeHistory) deleteCronTab(cronTab *alphav1.CronTab, second int64) {
	appendVersion(h, &h.cronTabs, cronTab, true)
	h.cronTabs[len(h.cronTabs)-1].observedAt = cronTabTime(second).Time
}

// requestJobDeletion records a deletion of the Job with a UID precondition.
func (h *fakeHistory) requestJobDeletion(job *batchv1.Job) {
	h.requests = append(h.requests, request{verb: http.MethodDelete, resource: jobs, name: job.Name, uid: job.UID, code: http.StatusOK})
	h.deleteJob(job)
}

// cronTabTime returns a time n seconds after the creation of the CronTab.
func cronTabTime(n int64) metav1.Time {
	return metav1.Unix(1_700_000_000+n, 0)
}

// newCronTab returns a CronTab x that is due every five seconds. started and missed are
// lastScheduleTime and lastMissedTime of the status, in seconds; 0 leaves them unset.
func newCronTab(policy alphav1.ConcurrencyPolicy, started, missed int64) *alphav1.CronTab {
	cronTab := &alphav1.CronTab{
		ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "1", Generation: 1, CreationTimestamp: cronTabTime(0)},
		Spec:       alphav1.CronTabSpec{Schedule: "@every 5s", ConcurrencyPolicy: policy, StartingDeadlineSeconds: ptr.To[int64](5)},
		Status:     alphav1.CronTabStatus{ObservedGeneration: 1, ObservedSchedule: &alphav1.ObservedSchedule{Schedule: "@every 5s", Since: cronTabTime(0)}},
	}
	for last, of := range map[**metav1.Time]int64{&cronTab.Status.LastScheduleTime: started, &cronTab.Status.LastMissedTime: missed} {
		if of > 0 {
			*last = ptr.To(cronTabTime(of))
		}
	}
	return cronTab
}

// newRunJob returns the Job of x for the run that is due at that second.
func newRunJob(uid types.UID, due int64) *batchv1.Job {
	scheduled := cronTabTime(due)
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: jobName("x", scheduled.Time), UID: uid, CreationTimestamp: scheduled,
		Annotations:     map[string]string{alphav1.ScheduledTimeAnnotation: scheduled.UTC().Format(time.RFC3339)},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "x", UID: "1"}, schema.GroupVersion(alphav1.GroupVersion).WithKind("CronTab"))},
	}}
}

// askedFor adds the annotation that asks for a run at that second.
func askedFor(cronTab *alphav1.CronTab, second int64) *alphav1.CronTab {
	cronTab.Annotations = map[string]string{alphav1.RunAtAnnotation: cronTabTime(second).UTC().Format(time.RFC3339)}
	return cronTab
}

// newManualJob returns the Job of x for the run that a user asked for at the third second.
func newManualJob(uid types.UID) *batchv1.Job {
	job := newRunJob(uid, 3)
	job.Name, job.Annotations[alphav1.InstantiateAnnotation] = "x-manual", alphav1.InstantiateManual
	return job
}

// withSchedule changes the schedule to every three seconds. The spec was written at that
// second; since is status.observedSchedule.since, or 0 if the status has the old
// schedule.
func withSchedule(cronTab *alphav1.CronTab, written, since int64) *alphav1.CronTab {
	cronTab.Spec.Schedule = "@every 3s"
	cronTab.ManagedFields = []metav1.ManagedFieldsEntry{
		{Time: ptr.To(cronTabTime(1))}, {Time: ptr.To(cronTabTime(written))}, {Time: ptr.To(cronTabTime(written + 1)), Subresource: "status"},
	}
	if since > 0 {
		cronTab.Status.ObservedSchedule = &alphav1.ObservedSchedule{Schedule: cronTab.Spec.Schedule, Since: cronTabTime(since)}
	}
	return cronTab
}

// completed returns a copy of the Job with the condition Complete.
func completed(job *batchv1.Job) *batchv1.Job {
	job = job.DeepCopy()
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	return job
}

// TestCronTabInvariants tests the checker, which could otherwise let every run pass.
func TestCronTabInvariants(t *testing.T) {
	const allow, forbid, replace = alphav1.AllowConcurrent, alphav1.ForbidConcurrent, alphav1.ReplaceConcurrent
	testChecker(t, []checkerCase{
		{"valid: a run is started, one is given up, one is started", func(h *fakeHistory) {
			h.addCronTab(newCronTab(forbid, 0, 0))
			h.addJob(newRunJob("a", 5))
			h.addCronTab(newCronTab(forbid, 5, 0))
			h.addJob(completed(newRunJob("a", 5)))
			h.addJob(newRunJob("b", 15))
			h.addCronTab(newCronTab(forbid, 15, 10))
			h.requestJobDeletion(completed(newRunJob("a", 5)))
		}, nil},
		{"valid: Replace deletes the previous Job first", func(h *fakeHistory) {
			h.addCronTab(newCronTab(replace, 0, 0))
			h.addJob(newRunJob("a", 5))
			h.requestJobDeletion(newRunJob("a", 5))
			h.addJob(newRunJob("b", 10))
		}, nil},
		{"S1: a foreign Job is deleted", func(h *fakeHistory) {
			foreign := newRunJob("a", 5)
			foreign.OwnerReferences = nil
			h.addJob(foreign)
			h.requestJobDeletion(foreign)
		}, []string{"S1: DELETE jobs x-1700000005 deleted Job x-1700000005, which no CronTab controls"}},
		{"S1: the Job of a deleted CronTab is deleted", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			h.addJob(newRunJob("a", 5))
			h.deleteCronTab(newCronTab(allow, 0, 0), 6)
			h.requestJobDeletion(newRunJob("a", 5))
		}, []string{"S1: DELETE jobs x-1700000005 deleted Job x-1700000005, whose CronTab did not exist"}},
		{"S1: a deletion has no precondition", func(h *fakeHistory) {
			h.requests = append(h.requests, request{verb: http.MethodDelete, resource: jobs, name: "a", code: http.StatusOK})
		}, []string{"S1: DELETE jobs a a was applied without a precondition"}},
		{"S1: a status has no precondition", func(h *fakeHistory) {
			h.requests = append(h.requests, request{verb: http.MethodPatch, resource: cronTabs, name: "x", subresource: "status", code: http.StatusOK})
		}, []string{"S1: PATCH crontabs x status was applied without a precondition"}},
		{"S1: a Job is patched", func(h *fakeHistory) {
			h.requests = append(h.requests, request{verb: http.MethodPatch, resource: jobs, name: "a", code: http.StatusOK})
		}, []string{"S1: PATCH jobs a: the controller creates and deletes Jobs"}},
		{"S1: a CronTab's spec is written", func(h *fakeHistory) {
			h.requests = append(h.requests, request{verb: http.MethodPut, resource: cronTabs, name: "x", code: http.StatusOK})
		}, []string{"S1: PUT crontabs x: the controller may only write the status of a CronTab"}},
		{"valid: the CronTab is deleted while a run is started", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			h.deleteCronTab(newCronTab(allow, 0, 0), 5)
			h.addJob(newRunJob("a", 5))
			h.jobs[0].observedAt = cronTabTime(6).Time
		}, nil},
		{"C7: a run of a deleted CronTab is started", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			h.deleteCronTab(newCronTab(allow, 0, 0), 5)
			h.addJob(newRunJob("a", 10))
			h.jobs[0].observedAt = cronTabTime(10).Time
		}, []string{"C7: Job x-1700000010 was created for CronTab x, which did not exist"}},
		{"valid: two controllers start two runs", func(h *fakeHistory) {
			h.concurrentControllers = true
			h.addCronTab(newCronTab(forbid, 0, 0))
			h.addJob(newRunJob("a", 5))
			h.addJob(newRunJob("b", 10))
		}, nil},
		{"C7: a run is started twice", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			h.addJob(newRunJob("a", 5))
			h.deleteJob(newRunJob("a", 5))
			h.addJob(newRunJob("b", 5))
		}, []string{"C7: the run due at "}},
		{"C7: a Job has another name", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			job := newRunJob("a", 5)
			job.Name = "x-random"
			h.addJob(job)
		}, []string{"C7: Job x-random is for a run due at"}},
		{"valid: a run that a user asked for is started", func(h *fakeHistory) {
			h.addCronTab(askedFor(newCronTab(forbid, 0, 0), 3))
			h.addJob(newManualJob("a"))
		}, nil},
		{"C22: a run is started that no user asked for", func(h *fakeHistory) {
			h.addCronTab(askedFor(newCronTab(forbid, 0, 0), 2))
			h.addJob(newManualJob("a"))
		}, []string{"C22: Job x-manual was created for the annotations map[alpha.ianlewis.org/run-at:2023-11-14T22:13:22Z]"}},
		{"C22: a run that a user asked for is started twice", func(h *fakeHistory) {
			h.addCronTab(askedFor(newCronTab(allow, 0, 0), 3))
			h.addJob(newManualJob("a"))
			h.addJob(newManualJob("b"))
		}, []string{"C22: Job x-manual was created for the annotations"}},
		{"C7: a Job does not have the options", func(h *fakeHistory) {
			cronTab := newCronTab(allow, 0, 0)
			cronTab.Spec.JobOptions.BackoffLimit = ptr.To[int32](2)
			h.addCronTab(cronTab)
			job := newRunJob("a", 5)
			job.Spec.BackoffLimit = ptr.To[int32](6)
			h.addJob(job)
		}, []string{"C7: Job x-1700000005 does not have the options of CronTab x"}},
		{"C6: a run is started before it is due", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			job := newRunJob("a", 5)
			job.CreationTimestamp = cronTabTime(4)
			h.addJob(job)
		}, []string{"C6: the run due at"}},
		{"C4: a run is started that is not due", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			h.addJob(newRunJob("a", 6))
		}, []string{"C4: a run was started for"}},
		{"C9: a run is started after its deadline", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			job := newRunJob("a", 5)
			job.CreationTimestamp = cronTabTime(13)
			h.addJob(job)
		}, []string{"C9: the run due at"}},
		{"C12: a run is started although the status says Suspended", func(h *fakeHistory) {
			suspended := newCronTab(allow, 0, 0)
			suspended.Status.Conditions = []metav1.Condition{{Type: readyType, Reason: alphav1.ReasonSuspended, ObservedGeneration: 1}}
			h.addCronTab(suspended)
			h.addJob(newRunJob("a", 5))
		}, []string{"C12: the run due at"}},
		{"C10: Forbid starts a run while another one is running", func(h *fakeHistory) {
			h.addCronTab(newCronTab(forbid, 0, 0))
			h.addJob(newRunJob("a", 5))
			h.addJob(newRunJob("b", 10))
		}, []string{"C10, C11: Job x-1700000010 was started with policy Forbid"}},
		{"C11: Replace starts a run before it deletes the previous Job", func(h *fakeHistory) {
			h.addCronTab(newCronTab(replace, 0, 0))
			h.addJob(newRunJob("a", 5))
			h.addJob(newRunJob("b", 10))
			h.requestJobDeletion(newRunJob("a", 5))
		}, []string{"C10, C11: Job x-1700000010 was started with policy Replace"}},
		{"C8: a run is neither started nor given up", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			h.addJob(newRunJob("a", 10))
			h.addCronTab(newCronTab(allow, 10, 0))
		}, []string{"C8: the run of CronTab x that was due at"}},
		{"valid: a new schedule counts from when it was written", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			h.addJob(newRunJob("a", 5))
			h.addCronTab(newCronTab(allow, 5, 0))
			h.addCronTab(withSchedule(newCronTab(allow, 5, 0), 7, 0))
			h.addCronTab(withSchedule(newCronTab(allow, 5, 0), 7, 7))
			h.addJob(newRunJob("b", 10))
			h.addCronTab(withSchedule(newCronTab(allow, 10, 0), 7, 7))
		}, nil},
		{"C8: a run of the old schedule is neither started nor given up", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			h.addCronTab(withSchedule(newCronTab(allow, 0, 0), 7, 7))
			h.addJob(newRunJob("b", 10))
			h.addCronTab(withSchedule(newCronTab(allow, 10, 0), 7, 7))
		}, []string{"C8: the run of CronTab x that was due at"}},
		{"C4: a run of the old schedule is started", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			h.addJob(newRunJob("a", 5))
			h.addCronTab(withSchedule(newCronTab(allow, 5, 0), 8, 8))
			h.addJob(newRunJob("b", 10))
		}, []string{"C4: a run was started for"}},
		{"C4: an unchanged schedule counts from another time", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			moved := newCronTab(allow, 0, 0)
			moved.Status.ObservedSchedule.Since = cronTabTime(3)
			h.addCronTab(moved)
		}, []string{"C4: CronTab x counts from"}},
		{"C4: the first schedule does not count from the creation", func(h *fakeHistory) {
			moved := newCronTab(allow, 0, 0)
			moved.Status.ObservedSchedule.Since = cronTabTime(3)
			h.addCronTab(moved)
		}, []string{"C4: CronTab x counts from"}},
		{"C13: a new schedule counts from before it was written", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 0))
			h.addJob(newRunJob("a", 5))
			h.addCronTab(newCronTab(allow, 5, 0))
			h.addCronTab(withSchedule(newCronTab(allow, 5, 0), 7, 6))
		}, []string{"C13: CronTab x counts from"}},
		{"S3: lastScheduleTime is of a run that was not started", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 5, 0))
		}, []string{"S3: the status of CronTab x says that the run due at", "C8: the run of CronTab x"}},
		{"C18: a status goes back", func(h *fakeHistory) {
			h.addCronTab(newCronTab(allow, 0, 10))
			h.addCronTab(newCronTab(allow, 0, 5))
		}, []string{"C18: the status of CronTab x went back"}},
	}, func(h *fakeHistory) []string { return h.cronTabViolations(h.requests) })
}
