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

func cronTabKind() *kind {
	return &kind{
		controller: "crontab",
		every:      12, everyWatch: 24,
		parent:     "CronTab",
		child:      "Job",
		roles:      map[string]role{cronTabs: parents, jobs: children},
		scenarios:  cronTabScenarios,
		numbered:   true,
		state:      (*history).cronTabState,
		parents:    func(h *history) []string { return namesOf(h.cronTabs) },
		children:   func(h *history) int { return countOf(h.jobs) },
		violations: (*history).cronTabViolations,
		mark:       markCronTab,
	}
}

// cronTabState is the state of a CronTab, less times: how many runs there were in a
// scenario depends on the clock.
type cronTabState struct {
	parentState

	Spec      alphav1.CronTabSpec
	Active    int32
	Listed    int
	Started   bool
	Completed bool
	Next      bool
}

// jobState is the state of a Job.
type jobState struct {
	Owners   []string
	Result   batchv1.JobConditionType
	Deleting bool
}

// cronTabState returns the state. The Jobs of a CronTab go by their order.
func (h *history) cronTabState() state {
	owners, ofRuns := present(h.cronTabs), 0
	s := state{Children: map[string]objectState{}}
	s.Parents = statesOf(h.cronTabs, func(cronTab *alphav1.CronTab) objectState {
		status := &cronTab.Status
		common := stateOfParent(cronTab, status.ObservedGeneration, status.Conditions)
		// It tells of times.
		common.Message = ""
		return cronTabState{
			parentState: common, Spec: cronTab.Spec, Active: status.ActiveCount, Listed: len(status.Active),
			Started: status.LastScheduleTime != nil, Completed: status.LastSuccessfulTime != nil, Next: status.NextScheduleTime != nil,
		}
	})
	for name, job := range present(h.jobs) {
		if isMarker(name) {
			continue
		}
		if _, isRun := slotOf(job); isRun {
			ofRuns++
			name = "#" + strconv.Itoa(ofRuns)
		} else {
			name = "foreign"
		}
		s.Children[name] = jobState{Owners: ownersOf(job, owners), Result: resultOf(job), Deleting: job.DeletionTimestamp != nil}
	}
	return s
}

func (s cronTabState) line(name string) string {
	return forNow(fmt.Sprintf("CronTab %s: %s, %d active", name, s.Reason, s.Active), s.stays())
}

func (s jobState) line(name string) string {
	result := string(s.Result)
	if result == "" {
		result = "active"
	}
	return forNow(fmt.Sprintf("Job %s of %s: %s", name, ownerAmong(s.Owners), result), !s.Deleting)
}

// slotOf returns the time that the run was due at whose Job this is.
func slotOf(job *batchv1.Job) (time.Time, bool) {
	slot, err := time.Parse(time.RFC3339, job.Annotations[alphav1.ScheduledTimeAnnotation])
	return slot, err == nil
}

// resultOf returns how the Job ended, "" if it has not.
func resultOf(job *batchv1.Job) batchv1.JobConditionType {
	for _, condition := range job.Status.Conditions {
		if (condition.Type == batchv1.JobComplete || condition.Type == batchv1.JobFailed) && condition.Status == corev1.ConditionTrue {
			return condition.Type
		}
	}
	return ""
}

// cronTabOf returns the reference to the CronTab that controls the Job, or nil.
func cronTabOf(job *batchv1.Job) *metav1.OwnerReference {
	return owners[*alphav1.CronTab]{kind: "CronTab", group: alphav1.GroupName}.controllerOf(job)
}

// markCronTab makes a CronTab that has no runs, and then a Job of its own for it: what
// its status says of that came after all other CronTabs and Jobs.
func markCronTab(r *run, name, what string) {
	r.t.Helper()
	marker, err := shared.foos.AlphaV1().CronTabs(r.namespace).Create(r.t.Context(), &alphav1.CronTab{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		Spec:       alphav1.CronTabSpec{Schedule: "@yearly", Suspend: ptr.To(true), JobTemplate: podOfRun(false)},
	}, metav1.CreateOptions{})
	r.must(err)
	owner := *metav1.NewControllerRef(marker, schema.GroupVersion(alphav1.GroupVersion).WithKind("CronTab"))
	_, err = shared.kube.BatchV1().Jobs(r.namespace).Create(r.t.Context(), aForeignJob(name, owner), metav1.CreateOptions{})
	r.must(err)
	r.await(what, func() error {
		now := present(r.history.cronTabs)[name]
		if now == nil || now.Status.ObservedGeneration != now.Generation || now.Status.ActiveCount != 1 || present(r.history.jobs)[name] == nil {
			return errors.New("the marker does not tell of its Job")
		}
		return nil
	})
}

// aForeignJob returns a Job that no controller of ours made. It never runs.
func aForeignJob(name string, owners ...metav1.OwnerReference) *batchv1.Job {
	return &batchv1.Job{
		ObjectMeta: metav1.ObjectMeta{Name: name, OwnerReferences: owners},
		Spec:       batchv1.JobSpec{Suspend: ptr.To(true), Template: corev1.PodTemplateSpec{Spec: podOfRun(false)}},
	}
}

// podOfRun returns the Pod of a run. It ends by itself, or when somebody says so.
func podOfRun(endless bool) corev1.PodSpec {
	pod := corev1.PodSpec{RestartPolicy: corev1.RestartPolicyNever, Containers: []corev1.Container{{Name: "run", Image: "run"}}}
	if endless {
		// There is no such node: so no simulated kubelet ends it.
		pod.NodeSelector = map[string]string{"example.com/nowhere": "true"}
	}
	return pod
}
