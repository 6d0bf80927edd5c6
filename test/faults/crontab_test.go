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
	"strconv"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

func cronTabSuite() *kindSuite {
	return &kindSuite{
		controller: "crontab",
		every:      12, everyWatch: 24,
		owner:                  "CronTab",
		dependent:              "Job",
		roles:                  map[string]role{cronTabs: owners, jobs: dependents},
		scenarios:              cronTabScenarios,
		namesVary:              true,
		state:                  (*history).cronTabState,
		ownerNames:             func(h *history) []string { return existingNames(h.cronTabs) },
		countDependentVersions: func(h *history) int { return countVersions(h.jobs) },
		violations:             (*history).cronTabViolations,
		awaitMarker:            markCronTab,
	}
}

// cronTabState is the state of a CronTab without times and numbers of runs, which depend
// on the clock.
type cronTabState struct {
	ownerState

	Spec      alphav1.CronTabSpec
	Active    int32
	Listed    int
	Started   bool
	Completed bool
	Next      bool
}

type jobState struct {
	Owners   []string
	Result   batchv1.JobConditionType
	Deleting bool
}

// cronTabState returns the state. It numbers the Jobs, whose names contain times.
func (h *history) cronTabState() state {
	existingOwners, ofRuns := existing(h.cronTabs), 0
	s := state{Dependents: map[string]objectState{}}
	s.Owners = statesOf(h.cronTabs, func(cronTab *alphav1.CronTab) objectState {
		status := &cronTab.Status
		common := newOwnerState(cronTab, status.ObservedGeneration, status.Conditions)
		// The message contains times.
		common.Message = ""
		return cronTabState{
			ownerState: common, Spec: cronTab.Spec, Active: status.ActiveCount, Listed: len(status.Active),
			Started: status.LastScheduleTime != nil, Completed: status.LastSuccessfulTime != nil, Next: status.NextScheduleTime != nil,
		}
	})
	for name, job := range existing(h.jobs) {
		if isMarker(name) {
			continue
		}
		if _, isRun := scheduledTimeOf(job); isRun {
			ofRuns++
			name = "#" + strconv.Itoa(ofRuns)
		} else {
			name = "foreign"
		}
		s.Dependents[name] = jobState{Owners: describeOwners(job, existingOwners), Result: finishedType(job), Deleting: job.DeletionTimestamp != nil}
	}
	return s
}

func (s cronTabState) summary(name string) string {
	return markUnsettled(fmt.Sprintf("CronTab %s: %s, %d active", name, s.Reason, s.Active), s.settled())
}

func (s jobState) summary(name string) string {
	result := string(s.Result)
	if result == "" {
		result = "active"
	}
	return markUnsettled(fmt.Sprintf("Job %s %s: %s", name, ownerName(s.Owners), result), !s.Deleting)
}

// scheduledTimeOf returns the time at which the Job's run was due, false if the Job is
// not a CronTab's.
func scheduledTimeOf(job *batchv1.Job) (time.Time, bool) {
	scheduled, err := time.Parse(time.RFC3339, job.Annotations[alphav1.ScheduledTimeAnnotation])
	return scheduled, err == nil
}

// finishedType returns the condition type that says how the Job ended, "" while it runs.
func finishedType(job *batchv1.Job) batchv1.JobConditionType {
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
			return condition.Type
		}
	}
	return ""
}

// cronTabControllerOf returns the owner reference to the CronTab that controls the Job,
// or nil.
func cronTabControllerOf(job *batchv1.Job) *metav1.OwnerReference {
	return ownerKind[*alphav1.CronTab]{kind: "CronTab", group: alphav1.GroupName}.controllerOf(job)
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
