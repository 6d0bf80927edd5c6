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
	"context"
	"errors"
	"fmt"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// Options of createCronTab.

func forbid(spec *alphav1.CronTabSpec)  { spec.ConcurrencyPolicy = alphav1.ForbidConcurrent }
func replace(spec *alphav1.CronTabSpec) { spec.ConcurrencyPolicy = alphav1.ReplaceConcurrent }
func endless(spec *alphav1.CronTabSpec) { spec.JobTemplate = newPodSpec(true) }

func spread(spec *alphav1.CronTabSpec) {
	spec.SplaySeconds, spec.SuccessDeadlineSeconds = ptr.To[int32](4), ptr.To[int64](1_000_000)
}

func historyLimit(limit int32) func(*alphav1.CronTabSpec) {
	return func(spec *alphav1.CronTabSpec) { spec.SuccessfulJobsHistoryLimit = &limit }
}

func deadline(seconds int64) func(*alphav1.CronTabSpec) {
	return func(spec *alphav1.CronTabSpec) { spec.StartingDeadlineSeconds = &seconds }
}

// createCronTab creates CronTab c. Each scenario has one.
func (r *run) createCronTab(every string, but ...func(*alphav1.CronTabSpec)) *run {
	r.t.Helper()
	cronTab := &alphav1.CronTab{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: alphav1.CronTabSpec{
		Schedule: "@every " + every, JobTemplate: newPodSpec(false), SuccessfulJobsHistoryLimit: ptr.To[int32](1),
		JobOptions: alphav1.JobOptions{BackoffLimit: ptr.To[int32](2)},
	}}
	for _, change := range but {
		change(&cronTab.Spec)
	}
	return r.step("create CronTab c", func() error {
		_, err := cluster.foos.AlphaV1().CronTabs(r.namespace).Create(r.t.Context(), cronTab, metav1.CreateOptions{})
		return err
	})
}

func (r *run) suspend() *run {
	r.t.Helper()
	return r.patch("x", `{"spec":{"suspend":true}}`).awaitReason("x", alphav1.ReasonSuspended)
}

// awaitCronTab waits until check returns true for CronTab c.
func (r *run) awaitCronTab(what string, check func(*alphav1.CronTab) bool) *run {
	r.t.Helper()
	r.await(what, func() error {
		if cronTab := existing(r.history.cronTabs)["x"]; cronTab == nil || !check(cronTab) {
			return fmt.Errorf("the CronTab is %s", mustEncode(cronTab))
		}
		return nil
	})
	return r
}

// awaitNextRun waits until the controller has started a run after the last one that was
// awaited, and the status has its scheduled time.
func (r *run) awaitNextRun() *run {
	r.t.Helper()
	return r.awaitCronTab("another run is started", func(cronTab *alphav1.CronTab) bool {
		latest := time.Time{}
		for _, v := range r.history.cronTabJobs() {
			if scheduled, isRun := scheduledTimeOf(v.object); isRun && cronTabControllerOf(v.object).UID == cronTab.UID && scheduled.After(latest) {
				latest = scheduled
			}
		}
		if !latest.After(r.lastScheduled) || timeOf(cronTab.Status.LastScheduleTime).Before(latest) {
			return false
		}
		r.lastScheduled = latest
		return true
	})
}

// awaitNextDue waits until the status says that a run became due after the latest one
// that was started.
func (r *run) awaitNextDue() *run {
	r.t.Helper()
	return r.awaitCronTab("another run is due", func(cronTab *alphav1.CronTab) bool {
		return timeOf(cronTab.Status.NextScheduleTime).After(timeOf(cronTab.Status.LastScheduleTime).Add(intervalOf(cronTab.Spec.Schedule)))
	})
}

// awaitMissed waits until the status has given up the run that was due that long after
// the creation.
func (r *run) awaitMissed(after time.Duration) *run {
	r.t.Helper()
	return r.awaitCronTab("the run is given up", func(cronTab *alphav1.CronTab) bool {
		return !timeOf(cronTab.Status.LastMissedTime).Before(cronTab.CreationTimestamp.Add(after))
	})
}

// awaitCompleted waits until that many Jobs are complete.
func (r *run) awaitCompleted(count int) {
	r.t.Helper()
	r.await("Jobs are complete", func() error {
		complete := 0
		for _, job := range existing(r.history.jobs) {
			if finishedType(job) == batchv1.JobComplete {
				complete++
			}
		}
		if complete != count {
			return fmt.Errorf("%d Jobs are complete", complete)
		}
		return nil
	})
}

// awaitDeadlinePassed waits until the deadline of the run that is due that long after the
// creation has passed, by more than clockSlack. The scenario is about time passing.
func (r *run) awaitDeadlinePassed(due time.Duration, deadline int64) *run {
	r.t.Helper()
	r.poll("the deadline has passed", func(ctx context.Context) error {
		cronTab, err := cluster.foos.AlphaV1().CronTabs(r.namespace).Get(ctx, "x", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if left := time.Until(cronTab.CreationTimestamp.Add(due + time.Duration(deadline+1)*time.Second + clockSlack)); left > 0 {
			return fmt.Errorf("%s left", left)
		}
		return nil
	})
	return r
}

// askForRun asks for a run now, and waits until the status records it.
func (r *run) askForRun() *run {
	r.t.Helper()
	now := time.Now().UTC().Truncate(time.Second)
	r.patch("x", fmt.Sprintf(`{"metadata":{"annotations":{%q:%q}}}`, alphav1.RunAtAnnotation, now.Format(time.RFC3339)))
	return r.awaitCronTab("the run is started", func(cronTab *alphav1.CronTab) bool { return timeOf(cronTab.Status.LastManualTime).Equal(now) })
}

// takeJobName creates a foreign Job with the name of the run's Job that is due that long
// after the creation.
func (r *run) takeJobName(after time.Duration) *run {
	r.t.Helper()
	var name string
	r.awaitCronTab("the CronTab exists", func(cronTab *alphav1.CronTab) bool {
		name = jobName("x", cronTab.CreationTimestamp.Add(after))
		return true
	})
	return r.step("create a Job with the name of a run's", func() error {
		_, err := cluster.kube.BatchV1().Jobs(r.namespace).Create(r.t.Context(), newForeignJob(name), metav1.CreateOptions{})
		return err
	})
}

// reschedule changes the schedule and waits until the status follows it.
func (r *run) reschedule(every string) *run {
	r.t.Helper()
	schedule := "@every " + every
	r.patch("x", fmt.Sprintf(`{"spec":{"schedule":%q}}`, schedule))
	return r.awaitCronTab("the schedule is followed", func(cronTab *alphav1.CronTab) bool {
		return cronTab.Status.ObservedSchedule != nil && cronTab.Status.ObservedSchedule.Schedule == schedule
	})
}

// completeJobs completes the running Jobs.
func (r *run) completeJobs() *run {
	r.t.Helper()
	return r.finishJobs(r.completePods)
}

// failJobs makes the running Jobs fail.
func (r *run) failJobs() *run {
	r.t.Helper()
	return r.finishJobs(func(ctx context.Context, job string) error {
		_, err := cluster.kube.BatchV1().Jobs(r.namespace).Patch(ctx, job, types.MergePatchType, []byte(`{"spec":{"activeDeadlineSeconds":1}}`), metav1.PatchOptions{})
		return err
	})
}

// finishJobs calls end for the running Jobs until all have finished.
func (r *run) finishJobs(end func(ctx context.Context, job string) error) *run {
	r.t.Helper()
	running := map[types.UID]string{}
	r.history.locked(func() {
		for name, job := range existing(r.history.jobs) {
			if finishedType(job) == "" && !isMarker(name) {
				running[job.UID] = name
			}
		}
	})
	return r.step("finish the running Jobs", func() error {
		return wait.PollUntilContextTimeout(r.t.Context(), pollInterval, waitTimeout, true, func(ctx context.Context) (bool, error) {
			list, err := cluster.kube.BatchV1().Jobs(r.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			ended := true
			for i := range list.Items {
				job := &list.Items[i]
				if running[job.UID] == "" || finishedType(job) != "" {
					continue
				}
				ended = false
				if err := end(ctx, job.Name); err != nil {
					return false, err
				}
			}
			return ended, nil
		})
	})
}

// completePods completes the Pods of a Job as a kubelet would.
func (r *run) completePods(ctx context.Context, job string) error {
	client := cluster.kube.CoreV1().Pods(r.namespace)
	list, err := client.List(ctx, metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
	if err != nil {
		return err
	}
	for i := range list.Items {
		if _, err := client.Patch(ctx, list.Items[i].Name, types.MergePatchType, []byte(`{"status":{"phase":"Succeeded"}}`), metav1.PatchOptions{}, "status"); err != nil {
			return err
		}
	}
	return nil
}

// deleteJob deletes the completed Job and waits until the history has the deletion.
func (r *run) deleteJob() *run {
	r.t.Helper()
	var name string
	r.await("a Job is complete", func() error {
		for _, job := range existing(r.history.jobs) {
			if finishedType(job) == batchv1.JobComplete {
				name = job.Name
				return nil
			}
		}
		return errors.New("no Job is complete")
	})
	r.deleteOwned(name)
	return r
}
