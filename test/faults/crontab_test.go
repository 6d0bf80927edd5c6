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
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// extendCronTab adds the scenarios of CronTabs, which are about time, and their invariants.
func extendCronTab(k *kindSuite) {
	k.scenarios, k.namesVary = cronTabScenarios, true
	k.state = func(h *history) state { return withoutClock(k.objectStates(h)) }
	k.violations, k.awaitMarker = (*history).cronTabViolations, markCronTab
}

// withoutClock returns the state without what depends on the clock: messages that contain
// times, runs that were missed, and the names of Jobs, which it numbers.
func withoutClock(s state) state {
	for name, owner := range s.Owners {
		owner.Message = ""
		delete(owner.Status, "lastMissedTime")
		s.Owners[name] = owner
	}
	numbered, ofRuns := map[string]dependentState{}, 0
	for _, job := range s.Dependents {
		name := "foreign"
		if len(job.Owners) > 0 {
			ofRuns++
			name = fmt.Sprintf("#%d", ofRuns)
		} else {
			// The API server has given it those of its Pods, with its UID.
			job.Labels = nil
		}
		numbered[name] = job
	}
	s.Dependents = numbered
	return s
}

// scheduledTimeOf returns the time at which the Job's run was due, false if the Job is
// not for a run of a CronTab's schedule.
func scheduledTimeOf(job *batchv1.Job) (time.Time, bool) {
	scheduled, err := time.Parse(time.RFC3339, job.Annotations[alphav1.ScheduledTimeAnnotation])
	return scheduled, err == nil && !isManual(job)
}

// isManual reports whether the Job is for a run that a user asked for.
func isManual(job *batchv1.Job) bool {
	return job.Annotations[alphav1.InstantiateAnnotation] == alphav1.InstantiateManual
}

// cronTabControllerOf returns the owner reference to the CronTab that controls the Job,
// or nil.
func cronTabControllerOf(job *batchv1.Job) *metav1.OwnerReference {
	return ownerKind[*alphav1.CronTab, *batchv1.Job]{kind: "CronTab", group: alphav1.GroupName}.controllerOf(job)
}

// markCronTab creates a suspended CronTab and then a Job that it owns. When its status
// counts the Job, both caches have everything from before.
func markCronTab(r *run, name, what string) {
	r.t.Helper()
	marker, err := cluster.foos.AlphaV1().CronTabs(r.namespace).Create(r.t.Context(), &alphav1.CronTab{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       alphav1.CronTabSpec{Schedule: "@yearly", Suspend: ptr.To(true), JobTemplate: newPodSpec(false)},
	}, metav1.CreateOptions{})
	r.must(err)
	owner := *metav1.NewControllerRef(marker, schema.GroupVersion(alphav1.GroupVersion).WithKind("CronTab"))
	_, err = cluster.kube.BatchV1().Jobs(r.namespace).Create(r.t.Context(), newForeignJob(name, owner), metav1.CreateOptions{})
	r.must(err)
	r.await(what, func() error {
		now := existing(r.history.cronTabs)[name]
		if now == nil || now.Status.ObservedGeneration != now.Generation || now.Status.ActiveCount != 1 || existing(r.history.jobs)[name] == nil {
			return errors.New("the status of the marker does not have its Job")
		}
		return nil
	})
}

// newForeignJob returns a suspended Job that no CronTab controller created.
func newForeignJob(name string, owners ...metav1.OwnerReference) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners},
		Spec:       batchv1.JobSpec{Suspend: ptr.To(true), Template: corev1.PodTemplateSpec{Spec: newPodSpec(false)}},
	}
}

// newPodSpec returns a Pod that completes by itself, or, if endless, when the test
// completes it.
func newPodSpec(endless bool) corev1.PodSpec {
	pod := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "run", Image: "run"}}}
	if endless {
		// No node matches, so kwok never completes the Pod.
		pod.NodeSelector = map[string]string{"example.com/nowhere": "true"}
	}
	return pod
}

// cronTabScenarios each end with a suspended CronTab, so that a final state exists, and
// with one Job kept, so that the final state does not depend on the number of runs.
var cronTabScenarios = []*scenario{
	{
		name:    "CronTab: its first run is started",
		prepare: func(*run) {},
		operate: func(r *run) { r.createCronTab("4s").awaitNextRun().suspend() },
		want:    []string{"CronTab x: Suspended, 0 active", "Job #1 of x: Complete"},
	},
	{
		name:    "CronTab: Forbid delays a run until the previous one has finished",
		prepare: func(r *run) { r.createCronTab("3s", forbid, endless).awaitNextRun() },
		operate: func(r *run) {
			r.awaitNextDue().completeJobs().awaitNextRun().suspend().completeJobs()
		},
		want: []string{"CronTab x: Suspended, 0 active", "Job #1 of x: Complete"},
	},
	{
		name:    "CronTab: Replace deletes the previous Job",
		prepare: func(r *run) { r.createCronTab("4s", replace, endless).awaitNextRun() },
		operate: func(r *run) { r.awaitNextRun().suspend().completeJobs() },
		want:    []string{"CronTab x: Suspended, 0 active", "Job #1 of x: Complete"},
	},
	{
		name: "CronTab: the history limit is reduced",
		prepare: func(r *run) {
			r.createCronTab("2s", historyLimit(3)).awaitNextRun().awaitNextRun().awaitNextRun().suspend().awaitCompleted(3)
		},
		operate: func(r *run) { r.patch("x", `{"spec":{"successfulJobsHistoryLimit":1}}`) },
		want:    []string{"CronTab x: Suspended, 0 active", "Job #1 of x: Complete"},
	},
	{
		name:    "CronTab: resumed after the deadline of a run",
		prepare: func(r *run) { r.createCronTab("10s", deadline(1)) },
		operate: func(r *run) {
			r.suspend().awaitDeadlinePassed(10*time.Second, 1).patch("x", `{"spec":{"suspend":false}}`).awaitNextRun().suspend()
		},
		want: []string{"CronTab x: Suspended, 0 active", "Job #1 of x: Complete"},
	},
	{
		name:    "CronTab: the name of a run's Job is taken",
		prepare: func(r *run) { r.createCronTab("8s") },
		operate: func(r *run) { r.takeJobName(8 * time.Second).awaitMissed(8 * time.Second).awaitNextRun().suspend() },
		want:    []string{"CronTab x: Suspended, 0 active", "Job #1 of x: Complete", "Job foreign without an owner: active"},
	},
	{
		name:    "CronTab: a Job is deleted by hand",
		prepare: func(r *run) { r.createCronTab("5s").awaitNextRun() },
		operate: func(r *run) { r.deleteJob().awaitNextRun().suspend() },
		want:    []string{"CronTab x: Suspended, 0 active", "Job #1 of x: Complete"},
	},
	{
		name:    "CronTab: its runs are spread, and it is in time",
		prepare: func(*run) {},
		operate: func(r *run) { r.createCronTab("4s", spread).awaitNextRun().suspend() },
		want:    []string{"CronTab x: Suspended, 0 active", "Job #1 of x: Complete"},
	},
	{
		name:    "CronTab: a run is asked for while it is suspended",
		prepare: func(r *run) { r.createCronTab("1h").suspend() },
		operate: func(r *run) { r.askForRun() },
		want:    []string{"CronTab x: Suspended, 0 active", "Job #1 of x: Complete"},
	},
	{
		name:    "CronTab: deleted in the foreground",
		prepare: func(r *run) { r.createCronTab("3s", endless).awaitNextRun() },
		operate: func(r *run) { r.delete(metav1.DeletePropagationForeground) },
		want:    []string{},
	},
	{
		name:    "CronTab: deleted and recreated under the same name",
		prepare: func(r *run) { r.createCronTab("3s", endless).awaitNextRun() },
		operate: func(r *run) {
			r.delete(metav1.DeletePropagationBackground).createCronTab("3s").awaitNextRun().suspend()
		},
		want: []string{"CronTab x: Suspended, 0 active", "Job #1 of x: Complete"},
	},
	{
		name:    "CronTab: runs fail",
		prepare: func(r *run) { r.createCronTab("4s", endless).awaitNextRun() },
		operate: func(r *run) { r.failJobs().awaitNextRun().suspend().failJobs() },
		want:    []string{"CronTab x: Suspended, 0 active", "Job #1 of x: Failed"},
	},
	{
		name:    "CronTab: another schedule",
		prepare: func(r *run) { r.createCronTab("4s").awaitNextRun() },
		operate: func(r *run) { r.reschedule("5s").awaitNextRun().reschedule("3s").awaitNextRun().suspend() },
		want:    []string{"CronTab x: Suspended, 0 active", "Job #1 of x: Complete"},
	},
	{
		name:          "CronTab: the namespace is deleted",
		prepare:       func(*run) {},
		operate:       func(r *run) { r.deleteNamespaceDuringCreate(func() { r.createCronTab("4s") }) },
		want:          []string{},
		endsNamespace: true,
	},
}
