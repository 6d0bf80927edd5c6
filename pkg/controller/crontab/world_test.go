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
	"errors"
	"fmt"
	"maps"
	"slices"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	"example.com/sample-controller/pkg/controller"
)

// world is a cluster with one CronTab: what the API server keeps of it, a clock, and
// what has come of its runs. Its sync is the order of writes that the controller has
// to keep to.
type world struct {
	now     time.Time
	cronTab *alphav1.CronTab
	jobs    map[string]*batchv1.Job

	// started counts the creations of each run's Job, by Unix time. givenUp are the
	// runs of which a stored status has told. epochs are the schedules that were
	// followed, one after the other.
	started map[int64]int
	givenUp []account
	epochs  []epoch
	// late is the longest time between when a run was due and when it was started.
	late time.Duration

	// writesLeft is how many writes the process makes before it dies; negative if it
	// lives on. lastAnswer says whether the one it dies of is carried out.
	writesLeft int
	lastAnswer bool
	// behind is the name of a Job that the cache does not have yet.
	behind string
	// trimFirst has the history trimmed before the status is written.
	trimFirst bool
	refuse    bool
	writes    int
	faults    []string
}

// account is a skip, and the number of the epoch whose runs they are.
type account struct {
	skip
	epoch int
}

// epoch is a schedule, and the time after which its runs count.
type epoch struct {
	schedule alphav1.ObservedSchedule
	after    time.Time
}

var (
	errDied   = errors.New("the process died")
	errExists = errors.New("the name is taken")
)

func newWorld(cronTab *alphav1.CronTab) *world {
	return &world{
		now: cronTab.CreationTimestamp.Time, cronTab: cronTab, jobs: map[string]*batchv1.Job{},
		started: map[int64]int{}, writesLeft: -1,
	}
}

func (w *world) fault(format string, args ...any) {
	w.faults = append(w.faults, w.now.UTC().Format(time.RFC3339Nano)+": "+fmt.Sprintf(format, args...))
}

// owned returns the CronTab's Jobs in the order of their names.
func (w *world) owned() []*batchv1.Job {
	var jobs []*batchv1.Job
	for _, name := range slices.Sorted(maps.Keys(w.jobs)) {
		if owns(w.cronTab, w.jobs[name]) {
			jobs = append(jobs, w.jobs[name])
		}
	}
	return jobs
}

// cached returns of them what the cache has.
func (w *world) cached() []*batchv1.Job {
	return slices.DeleteFunc(w.owned(), func(job *batchv1.Job) bool { return job.Name == w.behind })
}

// write is one request that changes something.
func (w *world) write(carryOut func()) error {
	w.writes++
	if w.writesLeft != 0 {
		w.writesLeft--
		carryOut()
		return nil
	}
	if w.lastAnswer {
		carryOut()
	}
	return errDied
}

// sync is what the controller does: decide, delete what is replaced, create the Job,
// write the status, delete what is too much history. If the name of the Job turns out
// to be taken it decides anew, with what the API server has there. It returns when to
// look again.
func (w *world) sync() (time.Duration, error) {
	seen := observation{cronTab: w.cronTab.DeepCopy(), jobs: w.cached(), now: w.now}
	seen.named = func(name string) *batchv1.Job {
		if name == w.behind {
			return nil
		}
		return w.jobs[name]
	}
	d := decide(seen)
	done, err := w.act(d)
	if errors.Is(err, errExists) {
		live := w.jobs[d.start.Name]
		seen.named = func(string) *batchv1.Job { return live }
		d = decide(seen)
		done, err = w.act(d)
	}
	if err == nil && w.trimFirst {
		err = w.trimAll(d)
	}
	if err == nil {
		err = w.report(seen, d, done)
	}
	if err == nil && !w.trimFirst {
		err = w.trimAll(d)
	}
	if err == nil {
		err = done.rejected
	}
	return d.wake, err
}

// report writes the status if it differs.
func (w *world) report(seen observation, d decision, done outcome) error {
	status := newStatus(seen, d, done)
	if equality.Semantic.DeepEqual(status, w.cronTab.Status) {
		if events := eventsOf(seen, d, done, &status); len(events) > 0 {
			w.fault("rule C19: told without a change of the status: %v", events)
		}
		return nil
	}
	return w.write(func() { w.store(d, status) })
}

func (w *world) trimAll(d decision) error {
	for _, job := range d.trim {
		if err := w.write(func() { w.trim(job) }); err != nil {
			return err
		}
	}
	return nil
}

func (w *world) act(d decision) (outcome, error) {
	var done outcome
	if d.start != nil && slices.ContainsFunc(inTheWay(w.cronTab, w.cached()), func(ref corev1.ObjectReference) bool {
		return w.jobs[ref.Name] != nil && w.jobs[ref.Name].UID == ref.UID && resultOf(w.jobs[ref.Name]) == underWay
	}) {
		return done, controller.ErrCacheBehind
	}
	for _, job := range d.replace {
		if err := w.write(func() { delete(w.jobs, job.Name) }); err != nil {
			return done, err
		}
		done.replaced = true
	}
	switch {
	case d.start == nil:
	case w.refuse:
		w.writes++
		done.rejected = errors.New("refused")
	case w.jobs[d.start.Name] != nil:
		if d.start.Name != w.behind {
			w.fault("rule C7: %s is there already", d.start.Name)
		}
		return done, errExists
	default:
		if err := w.write(func() { w.create(d) }); err != nil {
			return done, err
		}
		done.created = w.jobs[d.start.Name]
	}
	return done, nil
}

// create creates a run's Job, and checks that it may be started now.
func (w *world) create(d decision) {
	spec := &w.cronTab.Spec
	job := d.start.DeepCopy()
	job.UID = types.UID(fmt.Sprintf("uid-%s-%d", job.Name, w.writes))
	job.CreationTimestamp = metav1.NewTime(w.now.Truncate(time.Second))
	lateness := w.now.Sub(d.due)
	w.late = max(w.late, lateness)
	running := active(w.owned())
	switch {
	case w.started[d.due.Unix()] > 0:
		w.fault("rule C7: the run due at %v is started twice", d.due)
	case lateness < 0:
		w.fault("rule C6: the run due at %v is started before", d.due)
	case spec.StartingDeadlineSeconds != nil && int64(lateness/time.Second) > *spec.StartingDeadlineSeconds:
		w.fault("rule C9: the run due at %v is started too late", d.due)
	case spec.ConcurrencyPolicy == alphav1.ForbidConcurrent && len(running) > 0:
		w.fault("rule C10: the run due at %v is started beside %s", d.due, running[0].Name)
	case spec.ConcurrencyPolicy == alphav1.ReplaceConcurrent && len(running) > 0:
		w.fault("rule C11: the run due at %v is started before %s is deleted", d.due, running[0].Name)
	case ptr.Deref(spec.Suspend, false):
		w.fault("rule C12: the run due at %v is started while suspended", d.due)
	}
	w.jobs[job.Name] = job
	w.started[d.due.Unix()]++
}

// store stores a status, and with it what has become of runs.
func (w *world) store(d decision, status alphav1.CronTabStatus) {
	old := w.cronTab.Status
	for name, times := range map[string][2]*metav1.Time{
		"lastScheduleTime": {old.LastScheduleTime, status.LastScheduleTime},
		"lastMissedTime":   {old.LastMissedTime, status.LastMissedTime},
	} {
		if times[0] != nil && times[1].Before(times[0]) {
			w.fault("rule C18: %s goes back from %v to %v", name, times[0], times[1])
		}
	}
	former := len(w.epochs) - 1
	if former < 0 || w.epochs[former].schedule != d.observed {
		w.epochs = append(w.epochs, epoch{d.observed, later(d.observed.Since.Time, settledUntil(w.cronTab))})
	}
	for _, skipped := range d.skipped {
		number := len(w.epochs) - 1
		if skipped.reason == skipChanged {
			number = former
		}
		w.givenUp = append(w.givenUp, account{skipped, number})
	}
	w.cronTab.Status = *status.DeepCopy()
}

// trim deletes a Job of the history, and checks that it is not needed.
func (w *world) trim(job *batchv1.Job) {
	limit := ptr.Deref(w.cronTab.Spec.SuccessfulJobsHistoryLimit, defaultSuccessful)
	if resultOf(job) == result(batchv1.JobFailed) {
		limit = ptr.Deref(w.cronTab.Spec.FailedJobsHistoryLimit, defaultFailed)
	}
	kept := 0
	for _, other := range w.owned() {
		if resultOf(other) == resultOf(job) {
			kept++
		}
	}
	switch {
	case resultOf(job) == underWay:
		w.fault("rule C17: %s is deleted, which is under way", job.Name)
	case kept <= int(limit):
		w.fault("rule C17: %s is deleted, with %d in the history and a limit of %d", job.Name, kept, limit)
	}
	delete(w.jobs, job.Name)
}

// run lets the controller work for a time: it looks when it said that it would.
func (w *world) run(period time.Duration, limit int) {
	for end := w.now.Add(period); w.now.Before(end) && limit > 0; limit-- {
		writes := w.writes
		wake, err := w.sync()
		switch {
		case err != nil:
			// It is tried again with backoff.
			wake = min(maxWake, max(wake, time.Second))
		case w.writes != writes:
			// What is written comes back as an event.
			continue
		}
		if wake == 0 || w.now.Add(wake).After(end) {
			wake = end.Sub(w.now)
		}
		w.now = w.now.Add(wake)
	}
}

// end ends a Job.
func (w *world) end(job *batchv1.Job, how batchv1.JobConditionType) {
	ended(how)(job)
	if how == batchv1.JobComplete {
		job.Status.CompletionTime = ptr.To(metav1.NewTime(w.now.Truncate(time.Second)))
	}
}
