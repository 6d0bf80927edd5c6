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

// Ways in which a CronTab can be different.

func forbid(spec *alphav1.CronTabSpec)  { spec.ConcurrencyPolicy = alphav1.ForbidConcurrent }
func replace(spec *alphav1.CronTabSpec) { spec.ConcurrencyPolicy = alphav1.ReplaceConcurrent }
func endless(spec *alphav1.CronTabSpec) { spec.JobTemplate = podOfRun(true) }

func keep(limit int32) func(*alphav1.CronTabSpec) {
	return func(spec *alphav1.CronTabSpec) { spec.SuccessfulJobsHistoryLimit = &limit }
}

func deadline(seconds int64) func(*alphav1.CronTabSpec) {
	return func(spec *alphav1.CronTabSpec) { spec.StartingDeadlineSeconds = &seconds }
}

// createCronTab creates the one CronTab of a scenario, different in some ways.
func (r *run) createCronTab(every string, but ...func(*alphav1.CronTabSpec)) *run {
	r.t.Helper()
	cronTab := &alphav1.CronTab{ObjectMeta: metav1.ObjectMeta{Name: "c"}, Spec: alphav1.CronTabSpec{
		Schedule: "@every " + every, JobTemplate: podOfRun(false), SuccessfulJobsHistoryLimit: ptr.To[int32](1),
	}}
	for _, change := range but {
		change(&cronTab.Spec)
	}
	return r.step("create CronTab c", func() error {
		_, err := shared.foos.AlphaV1().CronTabs(r.namespace).Create(r.t.Context(), cronTab, metav1.CreateOptions{})
		return err
	})
}

func (r *run) suspend() *run {
	r.t.Helper()
	return r.patch("c", `{"spec":{"suspend":true}}`).says("c", alphav1.ReasonSuspended)
}

// anotherRun waits until a run is started since the one that was waited for before,
// and the status tells.
func (r *run) anotherRun() *run {
	r.t.Helper()
	r.await("another run", func() error {
		cronTab, latest := present(r.history.cronTabs)["c"], time.Time{}
		for _, v := range r.history.runs() {
			if slot, _ := slotOf(v.object); cronTab != nil && cronTabOf(v.object).UID == cronTab.UID && slot.After(latest) {
				latest = slot
			}
		}
		if cronTab == nil || !latest.After(r.awaited) || timeOf(cronTab.Status.LastScheduleTime).Before(latest) {
			return fmt.Errorf("the latest run was due at %s, that before at %s, and the CronTab is %s", latest, r.awaited, mustEncode(cronTab))
		}
		r.awaited = latest
		return nil
	})
	return r
}

// nextIsDue waits until the status tells that another run was due since the latest
// that was started.
func (r *run) nextIsDue() *run {
	r.t.Helper()
	r.await("another run is due", func() error {
		cronTab := present(r.history.cronTabs)["c"]
		if next := timeOf(cronTab.Status.NextScheduleTime); !next.After(timeOf(cronTab.Status.LastScheduleTime).Add(periodOf(cronTab.Spec.Schedule))) {
			return fmt.Errorf("the status: %s", mustEncode(cronTab.Status))
		}
		return nil
	})
	return r
}

// settled waits until the run that was due so long after the creation has come to an
// end.
func (r *run) settled(after time.Duration) *run {
	r.t.Helper()
	r.await("a run is given up", func() error {
		cronTab := present(r.history.cronTabs)["c"]
		if timeOf(cronTab.Status.LastMissedTime).Before(cronTab.CreationTimestamp.Add(after)) {
			return fmt.Errorf("the status: %s", mustEncode(cronTab.Status))
		}
		return nil
	})
	return r
}

// completed waits until so many Jobs are complete.
func (r *run) completed(count int) {
	r.t.Helper()
	r.await("Jobs are complete", func() error {
		complete := 0
		for _, job := range present(r.history.jobs) {
			if resultOf(job) == batchv1.JobComplete {
				complete++
			}
		}
		if complete != count {
			return fmt.Errorf("%d are", complete)
		}
		return nil
	})
}

// after waits until the clock is past the deadline of the run that is due so long
// after the creation, by more than the judge forgives. That time passes is what the
// scenario is about.
func (r *run) after(due time.Duration, deadline int64) *run {
	r.t.Helper()
	r.poll("it is too late", func(ctx context.Context) error {
		cronTab, err := shared.foos.AlphaV1().CronTabs(r.namespace).Get(ctx, "c", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if left := time.Until(cronTab.CreationTimestamp.Add(due + time.Duration(deadline+1)*time.Second + slack)); left > 0 {
			return fmt.Errorf("%s are left", left)
		}
		return nil
	})
	return r
}

// takeName makes a Job of the name that the run's will have that is due so long after
// the creation.
func (r *run) takeName(after time.Duration) *run {
	r.t.Helper()
	var slot time.Time
	r.await("a look at the CronTab", func() error {
		cronTab := present(r.history.cronTabs)["c"]
		if cronTab == nil {
			return errors.New("it is not there")
		}
		slot = cronTab.CreationTimestamp.Add(after)
		return nil
	})
	return r.step("create a Job of the name of a run's", func() error {
		_, err := shared.kube.BatchV1().Jobs(r.namespace).Create(r.t.Context(), aForeignJob(nameOfRun("c", slot)), metav1.CreateOptions{})
		return err
	})
}

// reschedule has another schedule followed.
func (r *run) reschedule(every string) *run {
	r.t.Helper()
	r.patch("c", fmt.Sprintf(`{"spec":{"schedule":"@every %s"}}`, every))
	r.await("the schedule is followed", func() error {
		status := present(r.history.cronTabs)["c"].Status
		if status.ObservedSchedule == nil || status.ObservedSchedule.Schedule != "@every "+every {
			return fmt.Errorf("the status: %s", mustEncode(status))
		}
		return nil
	})
	return r
}

// endJobs has the Jobs that are under way completed.
func (r *run) endJobs() *run {
	r.t.Helper()
	return r.endJobsBy(r.endPods)
}

// failJobs has the Jobs that are under way fail.
func (r *run) failJobs() *run {
	r.t.Helper()
	return r.endJobsBy(func(ctx context.Context, job string) error {
		_, err := shared.kube.BatchV1().Jobs(r.namespace).Patch(ctx, job, types.MergePatchType, []byte(`{"spec":{"activeDeadlineSeconds":1}}`), metav1.PatchOptions{})
		return err
	})
}

// endJobsBy ends the Jobs that are under way in that way, and waits until they have.
func (r *run) endJobsBy(end func(ctx context.Context, job string) error) *run {
	r.t.Helper()
	underWay := map[types.UID]string{}
	r.await("a look at the Jobs", func() error {
		clear(underWay)
		for name, job := range present(r.history.jobs) {
			if resultOf(job) == "" && !isMarker(name) {
				underWay[job.UID] = name
			}
		}
		return nil
	})
	return r.step("end what is under way", func() error {
		return wait.PollUntilContextTimeout(r.t.Context(), interval, patience, true, func(ctx context.Context) (bool, error) {
			list, err := shared.kube.BatchV1().Jobs(r.namespace).List(ctx, metav1.ListOptions{})
			if err != nil {
				return false, err
			}
			ended := true
			for i := range list.Items {
				job := &list.Items[i]
				if underWay[job.UID] == "" || resultOf(job) != "" {
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

// endPods ends the Pods of a Job as a kubelet would.
func (r *run) endPods(ctx context.Context, job string) error {
	client := shared.kube.CoreV1().Pods(r.namespace)
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

// removeJob deletes the one Job there is, and waits until the history tells.
func (r *run) removeJob() *run {
	r.t.Helper()
	var former *batchv1.Job
	r.await("a look at the Job", func() error {
		for _, job := range present(r.history.jobs) {
			if resultOf(job) == batchv1.JobComplete {
				former = job
				return nil
			}
		}
		return errors.New("none is complete")
	})
	r.step("delete a Job", func() error {
		return shared.kube.BatchV1().Jobs(r.namespace).Delete(r.t.Context(), former.Name, metav1.DeleteOptions{PropagationPolicy: ptr.To(metav1.DeletePropagationBackground)})
	})
	r.await("the history tells of the deletion", func() error {
		if job := present(r.history.jobs)[former.Name]; job != nil && job.UID == former.UID {
			return errors.New("it does not")
		}
		return nil
	})
	return r
}
