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
	"slices"
	"strings"
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

func (h *tale) cronTab(cronTab *alphav1.CronTab) {
	h.now++
	h.cronTabs = append(h.cronTabs, version[*alphav1.CronTab]{object: cronTab, number: h.now})
}

// cronTabGone records that a CronTab went at that second.
func (h *tale) cronTabGone(cronTab *alphav1.CronTab, at int64) {
	h.now++
	h.cronTabs = append(h.cronTabs, version[*alphav1.CronTab]{object: cronTab, number: h.now, gone: true, seen: second(at).Time})
}

func (h *tale) job(job *batchv1.Job) {
	h.now++
	h.jobs = append(h.jobs, version[*batchv1.Job]{object: job, number: h.now})
}

func (h *tale) jobGone(job *batchv1.Job) {
	h.now++
	h.jobs = append(h.jobs, version[*batchv1.Job]{object: job, number: h.now, gone: true})
}

// deleted records that a Job was deleted, by UID.
func (h *tale) deleted(job *batchv1.Job) {
	h.requests = append(h.requests, request{verb: http.MethodDelete, resource: jobs, name: job.Name, uid: job.UID, code: http.StatusOK})
	h.jobGone(job)
}

// second returns a time; CronTabs of tales were made at the first of them.
func second(n int64) metav1.Time {
	return metav1.Unix(1_700_000_000+n, 0)
}

// aCronTab returns a CronTab x with a run every five seconds, whose status tells of
// these last times, 0 for none.
func aCronTab(policy alphav1.ConcurrencyPolicy, started, missed int64) *alphav1.CronTab {
	cronTab := &alphav1.CronTab{
		ObjectMeta: metav1.ObjectMeta{Name: "x", UID: "1", Generation: 1, CreationTimestamp: second(0)},
		Spec:       alphav1.CronTabSpec{Schedule: "@every 5s", ConcurrencyPolicy: policy, StartingDeadlineSeconds: ptr.To[int64](5)},
		Status:     alphav1.CronTabStatus{ObservedGeneration: 1, ObservedSchedule: &alphav1.ObservedSchedule{Schedule: "@every 5s", Since: second(0)}},
	}
	for last, of := range map[**metav1.Time]int64{&cronTab.Status.LastScheduleTime: started, &cronTab.Status.LastMissedTime: missed} {
		if of > 0 {
			*last = ptr.To(second(of))
		}
	}
	return cronTab
}

// aRun returns the Job of the run of x that was due at that second.
func aRun(uid types.UID, due int64) *batchv1.Job {
	slot := second(due)
	return &batchv1.Job{ObjectMeta: metav1.ObjectMeta{
		Name: nameOfRun("x", slot.Time), UID: uid, CreationTimestamp: slot,
		Annotations:     map[string]string{alphav1.ScheduledTimeAnnotation: slot.UTC().Format(time.RFC3339)},
		OwnerReferences: []metav1.OwnerReference{*metav1.NewControllerRef(&metav1.ObjectMeta{Name: "x", UID: "1"}, schema.GroupVersion(alphav1.GroupVersion).WithKind("CronTab"))},
	}}
}

// rescheduled gives the CronTab a run every three seconds, as was written at that second
// and is observed since that other one, 0 for not yet.
func rescheduled(cronTab *alphav1.CronTab, written, since int64) *alphav1.CronTab {
	cronTab.Spec.Schedule = "@every 3s"
	cronTab.ManagedFields = []metav1.ManagedFieldsEntry{
		{Time: ptr.To(second(1))}, {Time: ptr.To(second(written))}, {Time: ptr.To(second(written + 1)), Subresource: "status"},
	}
	if since > 0 {
		cronTab.Status.ObservedSchedule = &alphav1.ObservedSchedule{Schedule: cronTab.Spec.Schedule, Since: second(since)}
	}
	return cronTab
}

// complete returns the Job as it is when it is complete.
func complete(job *batchv1.Job) *batchv1.Job {
	job = job.DeepCopy()
	job.Status.Conditions = []batchv1.JobCondition{{Type: batchv1.JobComplete, Status: corev1.ConditionTrue}}
	return job
}

// TestCronTabInvariants checks the judge of CronTabs.
func TestCronTabInvariants(t *testing.T) {
	const allow, forbid, replace = alphav1.AllowConcurrent, alphav1.ForbidConcurrent, alphav1.ReplaceConcurrent
	for _, test := range []struct {
		sentence string
		tell     func(*tale)
		// want are the beginnings of what is reported.
		want []string
	}{
		{"nothing is wrong with a run, another one that was given up, and a third", func(h *tale) {
			h.cronTab(aCronTab(forbid, 0, 0))
			h.job(aRun("a", 5))
			h.cronTab(aCronTab(forbid, 5, 0))
			h.job(complete(aRun("a", 5)))
			h.job(aRun("b", 15))
			h.cronTab(aCronTab(forbid, 15, 10))
			h.deleted(complete(aRun("a", 5)))
		}, nil},
		{"nothing is wrong with Replace that deletes first", func(h *tale) {
			h.cronTab(aCronTab(replace, 0, 0))
			h.job(aRun("a", 5))
			h.deleted(aRun("a", 5))
			h.job(aRun("b", 10))
		}, nil},
		{"S1: a foreign Job is deleted", func(h *tale) {
			foreign := aRun("a", 5)
			foreign.OwnerReferences = nil
			h.job(foreign)
			h.deleted(foreign)
		}, []string{"S1: DELETE jobs x-1700000005 deleted Job x-1700000005, which no CronTab controls"}},
		{"S1: a predecessor's Job is deleted", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			h.job(aRun("a", 5))
			h.cronTabGone(aCronTab(allow, 0, 0), 6)
			h.deleted(aRun("a", 5))
		}, []string{"S1: DELETE jobs x-1700000005 deleted Job x-1700000005, whose CronTab was not there"}},
		{"S1: a deletion has no precondition", func(h *tale) {
			h.requests = append(h.requests, request{verb: http.MethodDelete, resource: jobs, name: "a", code: http.StatusOK})
		}, []string{"S1: DELETE jobs a a was applied without a precondition"}},
		{"S1: a Job is patched", func(h *tale) {
			h.requests = append(h.requests, request{verb: http.MethodPatch, resource: jobs, name: "a", code: http.StatusOK})
		}, []string{"S1: PATCH jobs a: the controller creates and deletes Jobs"}},
		{"S1: a CronTab's spec is written", func(h *tale) {
			h.requests = append(h.requests, request{verb: http.MethodPut, resource: cronTabs, name: "x", code: http.StatusOK})
		}, []string{"S1: PUT crontabs x: of a CronTab only the status"}},
		{"nothing is wrong with a run of a CronTab that goes while it is started", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			h.cronTabGone(aCronTab(allow, 0, 0), 5)
			h.job(aRun("a", 5))
			h.jobs[0].seen = second(6).Time
		}, nil},
		{"C7: a run is started of a CronTab that is gone", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			h.cronTabGone(aCronTab(allow, 0, 0), 5)
			h.job(aRun("a", 10))
			h.jobs[0].seen = second(10).Time
		}, []string{"C7: Job x-1700000010 was made for CronTab x, which was not there"}},
		{"nothing is wrong with two runs of two controllers", func(h *tale) {
			h.together = true
			h.cronTab(aCronTab(forbid, 0, 0))
			h.job(aRun("a", 5))
			h.job(aRun("b", 10))
		}, nil},
		{"C7: a run is started twice", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			h.job(aRun("a", 5))
			h.jobGone(aRun("a", 5))
			h.job(aRun("b", 5))
		}, []string{"C7: the run due at "}},
		{"C7: a Job has another name", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			job := aRun("a", 5)
			job.Name = "x-random"
			h.job(job)
		}, []string{"C7: Job x-random is for a run due at"}},
		{"C6: a run is started before it is due", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			job := aRun("a", 5)
			job.CreationTimestamp = second(4)
			h.job(job)
		}, []string{"C6: the run due at"}},
		{"C4: a run is started that is not due", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			h.job(aRun("a", 6))
		}, []string{"C4: nothing was due at"}},
		{"C9: a run is started after its deadline", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			job := aRun("a", 5)
			job.CreationTimestamp = second(13)
			h.job(job)
		}, []string{"C9: the run due at"}},
		{"C12: a run is started although the CronTab is known to be suspended", func(h *tale) {
			suspended := aCronTab(allow, 0, 0)
			suspended.Status.Conditions = []metav1.Condition{{Type: readyType, Reason: alphav1.ReasonSuspended, ObservedGeneration: 1}}
			h.cronTab(suspended)
			h.job(aRun("a", 5))
		}, []string{"C12: the run due at"}},
		{"C10: Forbid starts a run beside another", func(h *tale) {
			h.cronTab(aCronTab(forbid, 0, 0))
			h.job(aRun("a", 5))
			h.job(aRun("b", 10))
		}, []string{"C10, C11: Job x-1700000010 was started, policy Forbid"}},
		{"C11: Replace starts a run before it deletes the other", func(h *tale) {
			h.cronTab(aCronTab(replace, 0, 0))
			h.job(aRun("a", 5))
			h.job(aRun("b", 10))
			h.deleted(aRun("a", 5))
		}, []string{"C10, C11: Job x-1700000010 was started, policy Replace"}},
		{"C8: a run is forgotten", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			h.job(aRun("a", 10))
			h.cronTab(aCronTab(allow, 10, 0))
		}, []string{"C8: the run of CronTab x that was due at"}},
		{"nothing is wrong with another schedule that counts from when it was written", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			h.job(aRun("a", 5))
			h.cronTab(aCronTab(allow, 5, 0))
			h.cronTab(rescheduled(aCronTab(allow, 5, 0), 7, 0))
			h.cronTab(rescheduled(aCronTab(allow, 5, 0), 7, 7))
			h.job(aRun("b", 10))
			h.cronTab(rescheduled(aCronTab(allow, 10, 0), 7, 7))
		}, nil},
		{"C8: a run by the former schedule is forgotten", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			h.cronTab(rescheduled(aCronTab(allow, 0, 0), 7, 7))
			h.job(aRun("b", 10))
			h.cronTab(rescheduled(aCronTab(allow, 10, 0), 7, 7))
		}, []string{"C8: the run of CronTab x that was due at"}},
		{"C4: a run is started by the former schedule", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			h.job(aRun("a", 5))
			h.cronTab(rescheduled(aCronTab(allow, 5, 0), 8, 8))
			h.job(aRun("b", 10))
		}, []string{"C4: nothing was due at"}},
		{"C4: a schedule that is the same counts from another time", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			moved := aCronTab(allow, 0, 0)
			moved.Status.ObservedSchedule.Since = second(3)
			h.cronTab(moved)
		}, []string{"C4: CronTab x counts from"}},
		{"C4: the first schedule does not count from the creation", func(h *tale) {
			moved := aCronTab(allow, 0, 0)
			moved.Status.ObservedSchedule.Since = second(3)
			h.cronTab(moved)
		}, []string{"C4: CronTab x counts from"}},
		{"C13: another schedule counts from before it was written", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 0))
			h.job(aRun("a", 5))
			h.cronTab(aCronTab(allow, 5, 0))
			h.cronTab(rescheduled(aCronTab(allow, 5, 0), 7, 6))
		}, []string{"C13: CronTab x counts from"}},
		{"S3: a status tells of a run that was not started", func(h *tale) {
			h.cronTab(aCronTab(allow, 5, 0))
		}, []string{"S3: CronTab x tells of a run started", "C8: the run of CronTab x"}},
		{"C18: a status goes back", func(h *tale) {
			h.cronTab(aCronTab(allow, 0, 10))
			h.cronTab(aCronTab(allow, 0, 5))
		}, []string{"C18: the status of CronTab x went back"}},
	} {
		t.Run(test.sentence, func(t *testing.T) {
			h := &tale{}
			test.tell(h)
			found := h.cronTabViolations(h.requests)
			for _, want := range test.want {
				if !slices.ContainsFunc(found, func(line string) bool { return strings.HasPrefix(line, want) }) {
					t.Errorf("nothing begins with %q", want)
				}
			}
			if len(found) != len(test.want) {
				t.Errorf("reported is %q", found)
			}
		})
	}
}
