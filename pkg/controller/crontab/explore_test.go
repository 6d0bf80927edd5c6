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
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	clientfake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	"example.com/sample-controller/pkg/generated/clientset/versioned/scheme"
	"example.com/sample-controller/pkg/generated/informers/externalversions"
	"example.com/sample-controller/test/explore"
	"example.com/sample-controller/test/sim"
)

// The resources, and how one of them is refused.
const (
	exploredCronTabs = "crontabs"
	exploredStatus   = exploredCronTabs + "/status"
	exploredJobs     = "jobs"
)

// isInTime says that users do something: around the instants at which runs are due, which are in the first minutes of
// an hour.
func isInTime(store *sim.Store) bool {
	minute := store.Now().Minute()
	return minute < 5 || minute == 59
}

// dueOn returns when the runs of a schedule such as "2,4 1 1 1 *" are due.
func dueOn(schedule string) (all []time.Time) {
	fields := strings.Fields(schedule)
	hour, _ := strconv.Atoi(fields[1])
	for _, field := range strings.Split(fields[0], ",") {
		minute, _ := strconv.Atoi(field)
		all = append(all, time.Date(2026, 1, 1, hour, minute, 0, 0, time.UTC))
	}
	return all
}

// TestExplore explores CronTabs with few instants: two runs that are due, and every order in which users, Jobs, watches,
// handlers and syncs can go on between them.
func TestExplore(t *testing.T) {
	for _, test := range []struct {
		policy alphav1.ConcurrencyPolicy
		// vanishes says that Jobs end and are deleted at once, and fails that nothing but one fault happens.
		vanishes, fails bool
		then            []explore.Operation
	}{
		{policy: alphav1.AllowConcurrent, then: []explore.Operation{
			runNow(), suspend(true), reschedule(), deleteJob(), endJob(batchv1.JobComplete), endJob(batchv1.JobFailed), refuse(exploredJobs), refuse(exploredStatus), deleteCronTab(),
		}},
		{policy: alphav1.ForbidConcurrent, then: []explore.Operation{runNow(), endJob(batchv1.JobComplete), suspend(true)}},
		{policy: alphav1.ReplaceConcurrent, then: []explore.Operation{runNow(), endJob(batchv1.JobComplete), refuse(exploredJobs)}},
		{policy: alphav1.ReplaceConcurrent, fails: true},
		{policy: alphav1.AllowConcurrent, fails: true, vanishes: true},
		{policy: alphav1.AllowConcurrent, vanishes: true, then: []explore.Operation{runNow(), refuse("")}},
	} {
		kind := explore.Kind{Build: buildExplored(t), Judge: &cronTabJudge{Vanishes: test.vanishes}, Resources: []sim.Resource{
			{GroupResource: alphav1.Resource(exploredCronTabs), New: func() sim.Object { return &alphav1.CronTab{} }},
			{GroupResource: batchv1.Resource(exploredJobs), New: func() sim.Object { return &batchv1.Job{} }},
		}}
		// Each operation before is an hour long.
		name, schedule, operations, until, part, all := string(test.policy), "2,4 1 1 1 *", []explore.Operation(nil), time.Time{}, "1+0", ""
		kind.IsCoarse = test.policy == alphav1.ReplaceConcurrent
		kind.Calendar = dueOn(schedule)[1].Add(20 * time.Minute)
		if test.fails {
			name += ", one fault"
			until, kind.IsCoarse, part, all = dueOn(schedule)[1].Add(time.Minute), true, "", "0+1"
		}
		if test.vanishes {
			kind.Around = []explore.Around{{Name: "Job controller", Resource: exploredJobs, Step: vanish}}
		}
		if test.vanishes && !test.fails {
			name, schedule, operations = "Jobs that vanish, refused statuses", "2 2 1 1 *", []explore.Operation{refuse(exploredStatus)}
			// Then there is nothing but a retry of the status each half minute.
			until, kind.IsCoarse = dueOn(schedule)[0].Add(time.Minute), true
		}
		create := explore.Operation{Story: "create the CronTab", Do: func(store *sim.Store) {
			store.Create(exploredCronTabs, &alphav1.CronTab{ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: alphav1.CronTabSpec{
				Schedule: schedule, ConcurrencyPolicy: test.policy, SuccessfulJobsHistoryLimit: ptr.To[int32](1), FailedJobsHistoryLimit: ptr.To[int32](0),
			}})
		}}
		explore.Check(t, kind, explore.Start{Name: name, IsLarge: true, Operations: slices.Insert(operations, 0, create), Then: test.then, Part: part, All: all, Until: until})
	}
}

// buildExplored returns what builds the controller for test/explore.
func buildExplored(t *testing.T) func(context.Context, explore.Env) explore.Controller {
	return func(ctx context.Context, env explore.Env) explore.Controller {
		own := &clientfake.Clientset{}
		kube, kubeInformers := env.BuiltIn(scheme.Scheme, &own.Fake, NewDescriptor().Informers)
		informers := externalversions.NewSharedInformerFactory(own, 0)
		explore.Inform(env, NewDescriptor().Informers, informers)
		c, err := New(ctx, Options{
			KubeClient: kube, Client: own, CronTabs: informers.Alpha().V1().CronTabs(), Jobs: kubeInformers.Batch().V1().Jobs(), Options: env.Options("CronTab"),
		})
		if err != nil {
			t.Fatal(err)
		}
		return explore.Controller{Memory: []any{c}, Ignored: map[string]string{"crontab.Controller.skew": "no decision depends on it"}}
	}
}

// changing is an operation of a user on the CronTab.
func changing(story string, change func(cronTab *alphav1.CronTab, now time.Time)) explore.Operation {
	return explore.Operation{Story: story, Do: func(store *sim.Store) {
		store.Change(exploredCronTabs, "x", func(object sim.Object) {
			if now := store.Now().Rfc3339Copy(); isInTime(store) {
				change(object.(*alphav1.CronTab), now.UTC())
				object.SetManagedFields([]metav1.ManagedFieldsEntry{{Manager: "user", Time: &now}})
			}
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

func reschedule() explore.Operation {
	return changing("another schedule", func(cronTab *alphav1.CronTab, _ time.Time) { cronTab.Spec.Schedule = "3 1 1 1 *" })
}

func refuse(path string) explore.Operation {
	return explore.Operation{Story: "a policy refuses " + path, Do: func(store *sim.Store) {
		if isInTime(store) {
			store.RefuseWrites(path)
		}
	}}
}

func deleteCronTab() explore.Operation {
	return explore.Operation{Story: "delete the CronTab", Do: func(store *sim.Store) {
		if isInTime(store) {
			store.Delete(exploredCronTabs, "x", metav1.DeletePropagationBackground)
		}
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

// vanish lets a Job complete, and then deletes it.
func vanish(store *sim.Store, name string) {
	for _, job := range store.Objects(exploredJobs) {
		switch {
		case job.GetName() != name:
		case hasEnded(job.(*batchv1.Job)):
			store.Delete(exploredJobs, name, metav1.DeletePropagationBackground)
		default:
			end(store, name, batchv1.JobComplete)
		}
	}
}

// cronTabJudge has the invariants of docs/crontab.md.
type cronTabJudge struct {
	// Runs are those that were started, sorted by the names of their Jobs.
	Runs []startedRun
	// Schedules are those that the CronTab has had.
	Schedules []formerSchedule
	// Vanishes says that Jobs end and are deleted at once.
	Vanishes bool
}

// startedRun is a run whose Job was created, by this process or by a former one. Created is set if Jobs vanish.
type startedRun struct {
	Job     string
	Mine    bool
	Created time.Time
}

type formerSchedule struct {
	Schedule string
	Since    time.Time
}

func (j *cronTabJudge) find(job string) int {
	return slices.IndexFunc(j.Runs, func(run startedRun) bool { return run.Job == job })
}

// NewProcess implements explore.JudgeOfProcess.
func (j *cronTabJudge) NewProcess() explore.Judge {
	next := &cronTabJudge{slices.Clone(j.Runs), j.Schedules, j.Vanishes}
	for i := range next.Runs {
		next.Runs[i].Mine = false
	}
	return next
}

// Note implements explore.Judge.
func (j *cronTabJudge) Note(c *explore.ClusterState) explore.Judge {
	cronTab, last := exploredCronTab(c.Store), len(j.Schedules)-1
	if cronTab == nil || last >= 0 && j.Schedules[last].Schedule == cronTab.Spec.Schedule {
		return j
	}
	return &cronTabJudge{j.Runs, append(slices.Clone(j.Schedules), formerSchedule{cronTab.Spec.Schedule, c.Store.Now().Time}), j.Vanishes}
}

func exploredCronTab(store *sim.Store) *alphav1.CronTab {
	for _, object := range store.Objects(exploredCronTabs) {
		return object.(*alphav1.CronTab)
	}
	return nil
}

// runOfExplored returns when the run of a Job was due, and whether a user asked for it.
func runOfExplored(job sim.Object) (at time.Time, manual bool) {
	at, _ = time.Parse(time.RFC3339, job.GetAnnotations()[alphav1.ScheduledTimeAnnotation])
	return at, job.GetAnnotations()[alphav1.InstantiateAnnotation] != ""
}

// recordedIn returns up to when the status records the runs of that sort.
func recordedIn(cronTab *alphav1.CronTab, manual bool) time.Time {
	if manual {
		return timeOf(cronTab.Status.LastManualTime)
	}
	return timeOf(cronTab.Status.LastScheduleTime)
}

// Write implements explore.Judge.
func (j *cronTabJudge) Write(_ explore.Judge, w *explore.Write) (next explore.Judge, violations []string) {
	violated := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	acting, _ := w.Acting.(*alphav1.CronTab)
	if w.Err != nil || w.Request.DryRun {
		return j, nil
	}
	switch {
	case w.Request.Verb == "create":
		return j.created(w, acting, violated), violations
	case acting == nil:
	case w.Request.Verb == "delete" && w.Before != nil:
		j.deleted(w, acting, violated)
	case w.Request.Verb == "patch":
		before, after := w.Before.(*alphav1.CronTab), w.After.(*alphav1.CronTab)
		for _, manual := range []bool{false, true} {
			if recordedIn(after, manual).Before(recordedIn(before, manual)) || timeOf(after.Status.LastMissedTime).Before(timeOf(before.Status.LastMissedTime)) {
				violated("rule C18: a time went back: %+v after %+v", after.Status, before.Status)
			}
		}
	}
	return j, violations
}

// created judges a Job that was created.
func (j *cronTabJudge) created(w *explore.Write, acting *alphav1.CronTab, violated func(string, ...any)) explore.Judge {
	at, manual := runOfExplored(w.After)
	next := &cronTabJudge{slices.Clone(j.Runs), j.Schedules, j.Vanishes}
	i := j.find(w.Request.Name)
	// A process may end before the status records the run, and the Job may be deleted then. What an ended process has
	// sent may arrive later still. After a deviation a Job that vanishes within two seconds may be started twice: its
	// creation is sent again (C15), or another process has read the CronTab before a late status came.
	created := w.After.GetCreationTimestamp().Time
	isResent := i >= 0 && j.Vanishes && w.Deviates && created.Sub(j.Runs[i].Created) < maxResend
	if i >= 0 && !isResent && acting != nil && (j.Runs[i].Mine || exploredCronTab(w.Store) == nil || !at.After(recordedIn(exploredCronTab(w.Store), manual))) {
		violated("rule C7: the run due at %s was started twice", at)
	}
	if i >= 0 {
		next.Runs = slices.Delete(next.Runs, i, i+1)
	}
	if !j.Vanishes {
		created = time.Time{}
	}
	next.Runs = append(next.Runs, startedRun{w.Request.Name, acting != nil, created})
	slices.SortFunc(next.Runs, func(a, b startedRun) int { return strings.Compare(a.Job, b.Job) })
	if acting == nil {
		return next
	}
	// The deletion of a Job to replace reads the CronTab once more.
	if !slices.ContainsFunc(w.Reads, func(read sim.Object) bool {
		return read.GetName() == acting.Name && read.GetResourceVersion() == acting.ResourceVersion
	}) {
		violated("rule C7: a run was started, and the CronTab was not read live in version %s: %v", acting.ResourceVersion, w.Reads)
	}
	if !manual && ptr.Deref(acting.Spec.Suspend, false) {
		violated("rule C12: the run due at %s was started, and the CronTab is suspended", at)
	}
	if at.After(w.Store.Now().Time) {
		violated("rule C6: the run due at %s was started before", at)
	}
	for _, job := range w.Store.Objects(exploredJobs) {
		other := j.find(job.GetName())
		if acting.Spec.ConcurrencyPolicy != alphav1.AllowConcurrent && job.GetName() != w.Request.Name && !hasEnded(job.(*batchv1.Job)) && other >= 0 && j.Runs[other].Mine {
			violated("rules C10, C11: the run due at %s was started beside the Job %s", at, job.GetName())
		}
	}
	return next
}

// deleted judges a Job that was deleted.
func (j *cronTabJudge) deleted(w *explore.Write, acting *alphav1.CronTab, violated func(string, ...any)) {
	job := w.Before.(*batchv1.Job)
	at, manual := runOfExplored(job)
	switch {
	case !metav1.IsControlledBy(job, acting):
		violated("S1: Job %s was deleted, and belongs to %+v", job.Name, job.OwnerReferences)
	case !hasEnded(job) && acting.Spec.ConcurrencyPolicy != alphav1.ReplaceConcurrent:
		violated("rule C17: Job %s was deleted, and has not ended", job.Name)
	case at.After(recordedIn(exploredCronTab(w.Store), manual)):
		violated("rules C11, C17: Job %s was deleted, and the status does not record its run", job.Name)
	}
}

// Rest implements explore.Judge.
func (j *cronTabJudge) Rest(c *explore.ClusterState) (violations []string) {
	violated := func(format string, args ...any) { violations = append(violations, fmt.Sprintf(format, args...)) }
	cronTab, refused := exploredCronTab(c.Store), c.Store.Refused()
	active, ended := 0, map[batchv1.JobConditionType]int{}
	for _, object := range c.Store.Objects(exploredJobs) {
		if job := object.(*batchv1.Job); hasEnded(job) {
			ended[job.Status.Conditions[0].Type]++
		} else {
			active++
		}
	}
	if cronTab == nil {
		if active+len(ended) > 0 {
			violated("rule C1: there are Jobs of a CronTab that is gone")
		}
		return violations
	}
	status := &cronTab.Status
	if refused == exploredStatus {
		return nil
	}
	if refused != exploredJobs && (ended[batchv1.JobComplete] > 1 || ended[batchv1.JobFailed] > 0) {
		violated("rule C17: the history is %v", ended)
	}
	if status.ObservedGeneration != cronTab.Generation || int(status.ActiveCount) != active {
		violated("the status is of generation %d and says %d active Jobs: there are %d", status.ObservedGeneration, status.ActiveCount, active)
	}
	if refused == exploredJobs || cronTab.Spec.ConcurrencyPolicy == alphav1.ForbidConcurrent && active > 0 {
		// The latest run waits.
		return violations
	}
	for i, former := range j.Schedules {
		until := c.Store.Now().Time
		if i+1 < len(j.Schedules) {
			until = j.Schedules[i+1].Since
		} else if ptr.Deref(cronTab.Spec.Suspend, false) {
			continue
		}
		for _, at := range dueOn(former.Schedule) {
			if at.After(former.Since) && at.Before(until) && j.find(fmt.Sprint("x-", at.Unix())) < 0 && at.After(timeOf(status.LastMissedTime)) {
				violated("rule C6: the run due at %s was not started, and is not reported as missed", at)
			}
		}
	}
	if text, asked := cronTab.Annotations[alphav1.RunAtAnnotation]; asked {
		at, _ := time.Parse(time.RFC3339, text)
		if at.After(timeOf(status.LastManualTime)) {
			violated("rule C22: the run that was asked for at %s was not started", text)
		}
	}
	return violations
}
