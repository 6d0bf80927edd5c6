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
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	kubeinformers "k8s.io/client-go/informers"
	"k8s.io/client-go/kubernetes"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
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

// dueOf returns when runs of a schedule are due after that time, and not after the other.
func dueOf(observed alphav1.ObservedSchedule, after, until time.Time) []time.Time {
	if times, unreadable := read(observed); unreadable.Reason == "" {
		return timesBetween(times.next, after, until)
	}
	return nil
}

// TestExplore explores CronTabs with few instants: two runs that are due, and every order in which users, Jobs, watches,
// handlers and syncs can go on between them.
func TestExplore(t *testing.T) {
	for _, test := range []struct {
		policy alphav1.ConcurrencyPolicy
		// jobs is the Job controller, if any. fails says that nothing but one fault happens.
		jobs  func(*sim.Store, string)
		fails bool
		then  []explore.Operation
	}{
		{policy: alphav1.AllowConcurrent, then: []explore.Operation{
			inTime(runNow()), inTime(suspend(true)), inTime(reschedule("3 1 1 1 *")), deleteJob(), endJob(batchv1.JobComplete), endJob(batchv1.JobFailed),
			inTime(refuse(exploredJobs)), inTime(refuse(exploredStatus)), inTime(deleteCronTab()),
		}},
		{policy: alphav1.ForbidConcurrent, then: []explore.Operation{inTime(runNow()), endJob(batchv1.JobComplete), inTime(suspend(true))}},
		{policy: alphav1.ReplaceConcurrent, then: []explore.Operation{inTime(runNow()), endJob(batchv1.JobComplete), inTime(refuse(exploredJobs))}},
		{policy: alphav1.ReplaceConcurrent, fails: true},
		{policy: alphav1.AllowConcurrent, fails: true, jobs: vanish},
		{policy: alphav1.AllowConcurrent, jobs: vanish, then: []explore.Operation{inTime(runNow()), inTime(refuse(""))}},
	} {
		kind := exploredKind(test.jobs)
		// Each operation before is an hour long.
		last := begin.Add(time.Hour + 4*time.Minute)
		name, schedule, operations, until, part, all := string(test.policy), "2,4 1 1 1 *", []explore.Operation(nil), time.Time{}, "1+0", ""
		kind.IsCoarse = test.policy == alphav1.ReplaceConcurrent
		kind.Calendar = last.Add(20 * time.Minute)
		if test.fails {
			name += ", one fault"
			until, kind.IsCoarse, part, all = last.Add(time.Minute), true, "", "0+1"
		}
		if test.jobs != nil && !test.fails {
			name, schedule, operations = "Jobs that vanish, refused statuses", "2 2 1 1 *", []explore.Operation{inTime(refuse(exploredStatus))}
			// Then there is nothing but a retry of the status each half minute.
			until, kind.IsCoarse = last.Add(59*time.Minute), true
		}
		explore.Check(t, kind, explore.Start{Name: name, IsLarge: true, Operations: slices.Insert(operations, 0, create(alphav1.CronTabSpec{Schedule: schedule, ConcurrencyPolicy: test.policy}, nil)), Then: test.then, Part: part, All: all, Until: until})
	}
}

// exploredKind is a cluster with that Job controller, nil for none.
func exploredKind(jobs func(*sim.Store, string)) explore.Kind {
	kind := explore.Kind{Build: buildExplored, Judge: &cronTabJudge{Vanishes: jobs != nil}, Resources: []sim.Resource{
		{GroupResource: alphav1.Resource(exploredCronTabs), New: func() sim.Object { return &alphav1.CronTab{} }},
		{GroupResource: batchv1.Resource(exploredJobs), New: func() sim.Object { return &batchv1.Job{} }},
	}}
	if jobs != nil {
		kind.Around = []explore.Around{{Name: "Job controller", Resource: exploredJobs, Step: jobs}}
	}
	return kind
}

// buildExplored builds the controller for test/explore.
func buildExplored(ctx context.Context, env explore.Env) explore.Controller {
	kube, own := kubernetes.NewForConfigOrDie(env.Config()), clientset.NewForConfigOrDie(env.Config())
	kubeInformers, informers := kubeinformers.NewSharedInformerFactory(kube, 0), externalversions.NewSharedInformerFactory(own, 0)
	explore.Inform(env, NewDescriptor().Informers, kubeInformers)
	explore.Inform(env, NewDescriptor().Informers, informers)
	c, err := New(ctx, Options{
		KubeClient: kube, Client: own, CronTabs: informers.Alpha().V1().CronTabs(), Jobs: kubeInformers.Batch().V1().Jobs(), Options: env.Options("CronTab"),
	})
	if err != nil {
		panic(err)
	}
	return explore.Controller{Memory: []any{c}, Ignored: map[string]string{"crontab.Controller.skew": "no decision depends on it"}}
}

// cronTabJudge has the invariants of docs/crontab.md.
type cronTabJudge struct {
	// Runs are those that were started, sorted by the names of their Jobs.
	Runs []startedRun
	// Schedules are those that the status has had.
	Schedules []alphav1.ObservedSchedule
	// Vanishes says that Jobs end and are deleted at once.
	Vanishes bool
}

// startedRun is a run whose Job was created, by this process or by a former one. Created is set if Jobs vanish.
type startedRun struct {
	Job     string
	Mine    bool
	Created time.Time
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
	if cronTab == nil {
		return &cronTabJudge{j.Runs, nil, j.Vanishes}
	}
	observed := cronTab.Status.ObservedSchedule
	if observed == nil || last >= 0 && !changed(j.Schedules[last], *observed) {
		return j
	}
	return &cronTabJudge{j.Runs, append(slices.Clone(j.Schedules), *observed), j.Vanishes}
}

func exploredCronTab(store *sim.Store) *alphav1.CronTab {
	cronTab, _ := store.Get(exploredCronTabs, "x").(*alphav1.CronTab)
	return cronTab
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
		status := &w.After.(*alphav1.CronTab).Status
		judgeStatus(&w.Before.(*alphav1.CronTab).Status, status, acting, violated)
		j.judgeRuns(status, later(timeOf(status.LastScheduleTime), timeOf(status.LastMissedTime)), violated)
	}
	return j, violations
}

// judgeRuns judges whether all runs that are due until then, or are of a former schedule, were started or are missed.
func (j *cronTabJudge) judgeRuns(status *alphav1.CronTabStatus, until time.Time, violated func(string, ...any)) {
	for i, observed := range j.Schedules {
		end := until
		if i+1 < len(j.Schedules) {
			end = j.Schedules[i+1].Since.Time
		}
		for _, at := range dueOf(observed, later(observed.Since.Time, timeOf(status.LastMissedTime)), end) {
			if j.find(dueRun{at: at}.jobName("x")) < 0 {
				violated("rule C6: the run due at %s was not started, and is not reported as missed", at)
			}
		}
	}
}

// judgeStatus judges a status that was written.
func judgeStatus(before, after *alphav1.CronTabStatus, acting *alphav1.CronTab, violated func(string, ...any)) {
	times := func(s *alphav1.CronTabStatus) []*metav1.Time {
		return []*metav1.Time{s.LastScheduleTime, s.LastMissedTime, s.LastManualTime, s.LastSuccessfulTime, s.LastFailedTime}
	}
	for i, old := range times(before) {
		if timeOf(times(after)[i]).Before(timeOf(old)) {
			violated("rule C18: a time went back: %+v after %+v", after, before)
		}
	}
	old, since := before.ObservedSchedule, acting.CreationTimestamp.Time
	if old != nil {
		since = old.Since.Time
		if changed(*old, *after.ObservedSchedule) {
			since = later(since, timeOf(acting.ManagedFields[0].Time))
		}
	}
	if !after.ObservedSchedule.Since.Time.Equal(since) {
		violated("rule C13: %+v counts from %s", after.ObservedSchedule, since)
	}
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
	judgeStart(acting, at, manual, w.Store.Now().Time, violated)
	for _, job := range w.Store.Objects(exploredJobs) {
		other := j.find(job.GetName())
		if acting.Spec.ConcurrencyPolicy != alphav1.AllowConcurrent && job.GetName() != w.Request.Name && !hasEnded(job.(*batchv1.Job)) && other >= 0 && j.Runs[other].Mine {
			violated("rules C10, C11: the run due at %s was started beside the Job %s", at, job.GetName())
		}
	}
	return next
}

// judgeStart judges whether a run may be started now.
func judgeStart(acting *alphav1.CronTab, at time.Time, manual bool, now time.Time, violated func(string, ...any)) {
	if manual {
		if asked := askedOfExplored(acting); !at.Equal(asked) || at.After(now) || !at.After(timeOf(acting.Status.LastManualTime)) || at.Before(acting.CreationTimestamp.Add(-time.Minute)) {
			violated("rule C22: the run of %s was started, and %s is asked for: %+v", at, asked, acting.Status)
		}
		return
	}
	observed, shifted := ptr.Deref(acting.Status.ObservedSchedule, alphav1.ObservedSchedule{}), now.Add(-offsetOf(acting))
	due := dueOf(observed, later(observed.Since.Time, timeOf(acting.Status.LastScheduleTime), timeOf(acting.Status.LastMissedTime)), shifted)
	if i := slices.IndexFunc(due, at.Equal); i < 0 || i < len(due)-1 && observed.Schedule == acting.Spec.Schedule {
		violated("rules C6, C8, C13 and C24: the run due at %s was started, and due are %s", at, due)
	}
	if ptr.Deref(acting.Spec.Suspend, false) {
		violated("rule C12: the run due at %s was started, and the CronTab is suspended", at)
	}
	if shifted.Unix()-at.Unix() > ptr.Deref(acting.Spec.StartingDeadlineSeconds, math.MaxInt64) {
		violated("rule C9: the run due at %s was started too late", at)
	}
}

// askedOfExplored returns when the run is due that a user asks for, the zero time if none.
func askedOfExplored(cronTab *alphav1.CronTab) time.Time {
	at, _ := time.Parse(time.RFC3339, cronTab.Annotations[alphav1.RunAtAnnotation])
	return at
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
	cronTab, refused := exploredCronTab(c.Store), c.Store.Refused
	active, ended := 0, map[batchv1.JobConditionType]int{}
	for _, object := range c.Store.Objects(exploredJobs) {
		switch job := object.(*batchv1.Job); {
		case len(job.OwnerReferences) == 0:
		case hasEnded(job):
			ended[job.Status.Conditions[0].Type]++
		default:
			active++
		}
	}
	if cronTab == nil {
		if active+len(ended) > 0 {
			violated("rule C1: there are Jobs of a CronTab that is gone")
		}
		return violations
	}
	status, spec := &cronTab.Status, &cronTab.Spec
	if refused == exploredStatus {
		return nil
	}
	if refused != exploredJobs && (ended[batchv1.JobComplete] > int(*spec.SuccessfulJobsHistoryLimit) || ended[batchv1.JobFailed] > int(*spec.FailedJobsHistoryLimit)) {
		violated("rule C17: the history is %v", ended)
	}
	if status.ObservedGeneration != cronTab.Generation || int(status.ActiveCount) != active {
		violated("the status is of generation %d and says %d active Jobs: there are %d", status.ObservedGeneration, status.ActiveCount, active)
	}
	if refused == exploredJobs || spec.ConcurrencyPolicy == alphav1.ForbidConcurrent && active > 0 {
		// The latest run waits.
		return violations
	}
	if status.ObservedSchedule == nil || status.ObservedSchedule.Schedule != spec.Schedule {
		violated("rule C13: the schedule is %q, and the status has %+v", spec.Schedule, status.ObservedSchedule)
	}
	until := c.Store.Now().Add(-offsetOf(cronTab))
	if ptr.Deref(spec.Suspend, false) {
		until = time.Time{}
	}
	j.judgeRuns(status, until, violated)
	if at := askedOfExplored(cronTab); at.After(timeOf(status.LastManualTime)) && !at.Before(cronTab.CreationTimestamp.Add(-time.Minute)) {
		violated("rule C22: the run that was asked for at %s was not started", at)
	}
	return violations
}
