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
	"fmt"
	"slices"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/test/explore"
	"example.com/sample-controller/test/sim"
)

// TestRandom walks at random through more operations of users than TestExplore has: schedules of each few minutes,
// deadlines, offsets, names that are taken, a CronTab that is deleted and restored. `make random` takes more walks.
func TestRandom(t *testing.T) {
	explore.Walks(t, 200, func(r *rapid.T) (explore.Kind, explore.Scope) {
		jobs := rapid.SampledFrom([]func(*sim.Store, string){func(*sim.Store, string) {}, completes, vanish}).Draw(r, "jobs")
		drawn := rapid.SliceOfN(rapid.SampledFrom(walkedOperations()), 5, 25).Draw(r, "operations")
		faults := rapid.IntRange(0, 8).Draw(r, "faults")
		last := []explore.Operation{suspend(false), refuse(""), follow(alphav1.AllowConcurrent), reschedule(never)}
		operations := slices.Concat([]explore.Operation{restore()}, drawn, last)
		return exploredKind(jobs), explore.Scope{Start: explore.Start{Then: operations}, Budget: explore.Budget{Deviations: faults}}
	})
}

// never is a schedule without runs.
const never = "0 0 30 2 *"

// walkedOperations are those of users. One that is listed more often is drawn more often.
func walkedOperations() []explore.Operation {
	ops := []explore.Operation{
		follow(alphav1.AllowConcurrent), follow(alphav1.ForbidConcurrent), follow(alphav1.ForbidConcurrent), follow(alphav1.ReplaceConcurrent),
		runNow(), runNow(), suspend(true), suspend(false), deleteJob(), endJob(batchv1.JobComplete), endJob(batchv1.JobFailed), takeName(), takeName(),
		refuse(exploredJobs), refuse(exploredStatus), refuse(""), refuse(""), deleteCronTab(), restore(), restore(), restore(),
		reschedule(never), reschedule("0 25 * * *"), reschedule("*/2 0 * * *"), reschedule("1-59/3 * 1 1 *"), reschedule("@every 70s"), reschedule("@every 10m"),
	}
	for _, seconds := range []int32{0, 10, 100} {
		ops = append(ops, changing(fmt.Sprintf("a deadline of %d s", seconds), func(cronTab *alphav1.CronTab, _ time.Time) {
			cronTab.Spec.StartingDeadlineSeconds = ptr.To(int64(seconds))
		}), changing(fmt.Sprintf("an offset of up to %d s", seconds), func(cronTab *alphav1.CronTab, _ time.Time) {
			cronTab.Spec.SplaySeconds = &seconds
		}), changing(fmt.Sprintf("a history of %d", seconds%7), func(cronTab *alphav1.CronTab, _ time.Time) {
			keeps(seconds%7, seconds%7)(cronTab)
		}))
	}
	return ops
}

// restore creates the CronTab with an annotation that is older. While it is suspended, time passes until it is late.
func restore() explore.Operation {
	spec := alphav1.CronTabSpec{Schedule: "1-59/4 * * * *", ConcurrencyPolicy: alphav1.AllowConcurrent, SuccessDeadlineSeconds: ptr.To[int64](1800)}
	return create(spec, map[string]string{alphav1.RunAtAnnotation: begin.Add(-time.Hour).Format(time.RFC3339)})
}

func follow(policy alphav1.ConcurrencyPolicy) explore.Operation {
	return changing(string(policy), func(cronTab *alphav1.CronTab, _ time.Time) { cronTab.Spec.ConcurrencyPolicy = policy })
}

// takeName creates a Job without an owner that has the name of the next run's Job.
func takeName() explore.Operation {
	return explore.Operation{Story: "the name of the next Job is taken", Do: func(store *sim.Store) {
		if cronTab := exploredCronTab(store); cronTab != nil && cronTab.Status.NextScheduleTime != nil {
			store.Create(exploredJobs, &batchv1.Job{ObjectMeta: metav1.ObjectMeta{Name: dueRun{at: cronTab.Status.NextScheduleTime.Time}.jobName("x")}})
		}
	}}
}

// inTime bounds an operation of a user to about when runs are due, which are in the first minutes of an hour.
func inTime(op explore.Operation) explore.Operation {
	return explore.Operation{Story: op.Story, Do: func(store *sim.Store) {
		if minute := store.Now().Minute(); minute < 5 || minute == 59 {
			op.Do(store)
		}
	}}
}

func create(spec alphav1.CronTabSpec, annotations map[string]string) explore.Operation {
	spec.SuccessfulJobsHistoryLimit, spec.FailedJobsHistoryLimit = ptr.To[int32](1), ptr.To[int32](0)
	return explore.Operation{Story: "create the CronTab", Do: func(store *sim.Store) {
		store.Create(exploredCronTabs, &alphav1.CronTab{ObjectMeta: metav1.ObjectMeta{Name: "x", Annotations: annotations}, Spec: spec})
	}}
}

// changing is an operation of a user on the CronTab.
func changing(story string, change func(cronTab *alphav1.CronTab, now time.Time)) explore.Operation {
	return explore.Operation{Story: story, Do: func(store *sim.Store) {
		store.Change(exploredCronTabs, "x", func(object sim.Object) {
			now := store.Now().Rfc3339Copy()
			change(object.(*alphav1.CronTab), now.UTC())
			object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "user", Time: &now}})
		})
	}}
}

func runNow() explore.Operation {
	return changing("run now", func(cronTab *alphav1.CronTab, now time.Time) {
		metav1.SetMetaDataAnnotation(&cronTab.ObjectMeta, alphav1.RunAtAnnotation, now.Format(time.RFC3339))
	})
}

func suspend(is bool) explore.Operation {
	return changing(fmt.Sprint("suspend: ", is), func(cronTab *alphav1.CronTab, _ time.Time) { cronTab.Spec.Suspend = &is })
}

func reschedule(schedule string) explore.Operation {
	return changing("schedule: "+schedule, func(cronTab *alphav1.CronTab, _ time.Time) { cronTab.Spec.Schedule = schedule })
}

func refuse(path string) explore.Operation {
	return explore.Operation{Story: "a policy refuses " + path, Do: func(store *sim.Store) { store.Refused = path }}
}

func deleteCronTab() explore.Operation {
	return explore.Operation{Story: "delete the CronTab", Do: func(store *sim.Store) {
		store.Delete(exploredCronTabs, "x", metav1.DeletePropagationBackground)
	}}
}

func deleteJob() explore.Operation {
	return explore.Operation{Story: "delete a Job", Do: func(store *sim.Store) {
		for _, job := range store.Objects(exploredJobs) {
			store.Delete(exploredJobs, job.GetName(), metav1.DeletePropagationBackground)
			return
		}
	}}
}

func endJob(how batchv1.JobConditionType) explore.Operation {
	return explore.Operation{Story: "a Job ends: " + string(how), Do: func(store *sim.Store) {
		for _, job := range store.Objects(exploredJobs) {
			if !hasEnded(job.(*batchv1.Job)) {
				end(store, job.GetName(), how)
				return
			}
		}
	}}
}

func end(store *sim.Store, name string, how batchv1.JobConditionType) {
	store.Change(exploredJobs, name, func(object sim.Object) {
		status, now := &object.(*batchv1.Job).Status, store.Now().Rfc3339Copy()
		status.Conditions = []batchv1.JobCondition{{Type: how, Status: corev1.ConditionTrue, LastTransitionTime: now}}
		if how == batchv1.JobComplete {
			status.CompletionTime = &now
		}
	})
}

func hasEnded(job *batchv1.Job) bool { return len(job.Status.Conditions) > 0 }

// completes lets a Job complete.
func completes(store *sim.Store, name string) {
	if job, exists := store.Get(exploredJobs, name).(*batchv1.Job); exists && !hasEnded(job) {
		end(store, name, batchv1.JobComplete)
	}
}

// vanish lets a Job complete, and then deletes it.
func vanish(store *sim.Store, name string) {
	if job, exists := store.Get(exploredJobs, name).(*batchv1.Job); exists && hasEnded(job) {
		store.Delete(exploredJobs, name, metav1.DeletePropagationBackground)
	}
	completes(store, name)
}
