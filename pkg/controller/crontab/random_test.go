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
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/robfig/cron/v3"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"pgregory.net/rapid"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// randomChecks is how many sequences a plain `go test` plays.
const randomChecks = 200

// TestRandom plays random sequences: the clock runs, jumps and goes back, the process
// is down or dies in the middle of its writes, users change the CronTab and Jobs, the
// API server refuses. In the end each run that was due was started exactly once, or a
// status has told that it was given up and why.
func TestRandom(t *testing.T) {
	skipIfShort(t)
	// The same sequences each time, unless rapid was told otherwise.
	usual := os.Getenv("RAPID_CHECKS") == ""
	checks := randomChecks
	if os.Getenv("KUBE_CACHE_MUTATION_DETECTOR") != "" {
		// That goes with the race detector, with which all takes ten times as long.
		checks /= 2
	}
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(checks), "rapid.seed": "1"} {
		f := flag.Lookup(name)
		if usual = usual && f.Value.String() == f.DefValue; !usual {
			break
		}
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Value.Set(f.DefValue) })
	}
	fates := map[string]int{}
	rapid.Check(t, func(t *rapid.T) {
		p := newPlay(t)
		for range rapid.IntRange(5, 40).Draw(t, "steps") {
			p.step()
			p.latest = later(p.latest, p.world.now)
		}
		p.settle()
		p.judge()
		if len(p.world.faults) > 0 {
			t.Fatalf("the contract is broken:\n%s\nafter\n%s", strings.Join(p.world.faults, "\n"), strings.Join(p.told, "\n"))
		}
		fates["started"] += len(p.world.started)
		for _, account := range p.world.givenUp {
			fates[account.reason] += account.count
		}
	})
	t.Logf("runs: %v", fates)
	for _, fate := range []string{
		"started", skipSuperseded, skipActive, skipChanged,
		alphav1.ReasonSuspended, alphav1.ReasonJobRejected, alphav1.ReasonMissedDeadline, alphav1.ReasonJobNameTaken,
	} {
		if usual && fates[fate] == 0 {
			t.Errorf("no run of any sequence was %s", fate)
		}
	}
}

// play is one sequence.
type play struct {
	t     *rapid.T
	world *world
	told  []string
	// latest is the latest time that the clock has shown, and wentBack whether it has
	// ever gone back.
	latest   time.Time
	wentBack bool
}

func newPlay(t *rapid.T) *play {
	// A day or so before clocks change, somewhere.
	begin := rapid.SampledFrom([]string{
		"2026-03-28T12:00:00Z", "2026-10-24T09:30:00Z", "2026-03-07T18:00:01Z", "2026-10-31T20:59:59Z", "2026-04-04T10:00:00Z",
		"2026-10-02T23:00:00Z", "2026-04-23T16:00:00Z", "2026-12-31T12:34:56Z", "2028-02-28T00:00:00Z", "2040-12-30T00:00:00Z",
	}).Draw(t, "begin")
	cronTab := newUnseen()
	cronTab.CreationTimestamp.Time = at(t, begin)
	p := &play{t: t, world: newWorld(cronTab)}
	p.world.trimFirst = rapid.Bool().Draw(t, "trim first")
	if rapid.Bool().Draw(t, "no history") {
		keeps(0, 0)(cronTab)
	}
	p.reschedule()
	p.latest = p.world.now
	return p
}

func (p *play) tell(format string, args ...any) {
	p.told = append(p.told, p.world.now.UTC().Format(time.RFC3339)+" "+fmt.Sprintf(format, args...))
}

// reschedule draws a schedule and a time zone.
func (p *play) reschedule() {
	spec := &p.world.cronTab.Spec
	spec.Schedule = rapid.OneOf(
		rapid.SampledFrom([]string{"@hourly", "@daily", "30 2 * * *", "0 3 * * *", "15 0,1,2 * * *", "*/30 1-3 * * 0", "0 0 29 2 *", "0 0 30 2 *", "0 25 * * *"}),
		rapid.Custom(func(t *rapid.T) string {
			return fmt.Sprintf("*/%d %s * * *", rapid.IntRange(5, 59).Draw(t, "minutes"), rapid.SampledFrom([]string{"*", "*/3", "22-23", "0-4"}).Draw(t, "hours"))
		}),
		rapid.Custom(func(t *rapid.T) string {
			return "@every " + (time.Duration(rapid.SampledFrom([]int{7, 20, 60, 90, 600, 3601, 40000}).Draw(t, "delay")) * time.Second).String()
		}),
	).Draw(p.t, "schedule")
	spec.TimeZone = rapid.SampledFrom([]*string{
		nil, ptr.To("Europe/Berlin"), ptr.To("America/New_York"), ptr.To("Australia/Lord_Howe"), ptr.To("Africa/Cairo"), ptr.To("Asia/Kathmandu"), ptr.To("Europe/Belin"),
	}).Draw(p.t, "zone")
	p.tell("schedule %q in %s", spec.Schedule, ptr.Deref(spec.TimeZone, "UTC"))
}

// step does one thing. Most of the time that is to let time go by.
func (p *play) step() {
	w := p.world
	spec := &w.cronTab.Spec
	before := spec.DeepCopy()
	switch kind := rapid.IntRange(0, 19).Draw(p.t, "kind"); kind {
	case 0, 1, 2, 3:
		period := p.period()
		p.tell("the controller runs for %v", period)
		w.run(period, 60)
	case 4, 5:
		period := p.period()
		p.tell("the controller is down for %v", period)
		w.now = w.now.Add(period)
	case 6, 7, 8:
		w.writesLeft, w.lastAnswer = rapid.IntRange(0, 3).Draw(p.t, "writes"), rapid.Bool().Draw(p.t, "carried out")
		p.tell("a sync dies after %d writes, the next is carried out: %v", w.writesLeft, w.lastAnswer)
		before := w.owned()
		_, _ = w.sync()
		w.writesLeft = -1
		p.lookAgain(before)
	case 9, 10:
		p.endJobs()
	case 11:
		spec.Suspend = ptr.To(!ptr.Deref(spec.Suspend, false))
		p.tell("suspend: %v", *spec.Suspend)
	case 12:
		spec.ConcurrencyPolicy = rapid.SampledFrom([]alphav1.ConcurrencyPolicy{"Allow", "Forbid", "Replace"}).Draw(p.t, "policy")
		p.tell("policy %s", spec.ConcurrencyPolicy)
	case 13:
		spec.StartingDeadlineSeconds = rapid.SampledFrom([]*int64{nil, ptr.To[int64](0), ptr.To[int64](10), ptr.To[int64](3600), ptr.To[int64](100000)}).Draw(p.t, "deadline")
		p.tell("deadline %d", ptr.Deref(spec.StartingDeadlineSeconds, -1))
	case 14, 15:
		p.reschedule()
	case 16:
		p.takeName()
	case 17:
		w.refuse = !w.refuse
		p.tell("the API server refuses: %v", w.refuse)
	case 18:
		period := p.period()
		w.now, p.wentBack = w.now.Add(-period), true
		p.tell("the clock goes back by %v", period)
	case 19:
		spec.SuccessfulJobsHistoryLimit = ptr.To(rapid.Int32Range(0, 3).Draw(p.t, "limit"))
		spec.FailedJobsHistoryLimit = ptr.To(rapid.Int32Range(0, 3).Draw(p.t, "limit"))
	}
	p.wrote(before)
}

// lookAgain has the next process look before its cache has the Job that the last one
// created, if it did, maybe; much later only if the status tells of the Job.
func (p *play) lookAgain(before []*batchv1.Job) {
	w := p.world
	for _, job := range w.owned() {
		if !slices.Contains(before, job) && rapid.Bool().Draw(p.t, "behind") {
			w.behind = job.Name
			period := time.Duration(0)
			if slices.ContainsFunc(w.cronTab.Status.Active, func(ref corev1.ObjectReference) bool { return ref.UID == job.UID }) {
				period = p.period()
				w.now = w.now.Add(period)
			}
			p.tell("the next process looks %v later, and its cache does not have %s", period, job.Name)
			_, _ = w.sync()
			w.behind = ""
			return
		}
	}
}

// wrote notes a change of the spec as the API server does, if it does.
func (p *play) wrote(before *alphav1.CronTabSpec) {
	w := p.world
	if equality.Semantic.DeepEqual(before, &w.cronTab.Spec) {
		return
	}
	w.cronTab.Generation++
	w.cronTab.ManagedFields = nil
	if rapid.Bool().Draw(p.t, "noted") {
		w.cronTab.ManagedFields = []metav1.ManagedFieldsEntry{{Time: ptr.To(metav1.NewTime(w.now.Truncate(time.Second)))}}
	}
}

// period draws a time from none to half a day.
func (p *play) period() time.Duration {
	unit := rapid.SampledFrom([]time.Duration{time.Hour, 13 * time.Minute, time.Minute, 11 * time.Second, 700 * time.Millisecond}).Draw(p.t, "unit")
	return unit * time.Duration(rapid.IntRange(0, 12).Draw(p.t, "units"))
}

// endJobs ends some Jobs, and users delete some. Of those only such as the status
// tells of: a run whose Job is gone before is forgotten.
func (p *play) endJobs() {
	w := p.world
	for _, job := range w.owned() {
		switch rapid.IntRange(0, 4).Draw(p.t, "how") {
		case 0, 1:
			if resultOf(job) == underWay {
				w.end(job, batchv1.JobComplete)
			}
		case 2:
			if resultOf(job) == underWay {
				w.end(job, batchv1.JobFailed)
			}
		case 3:
			if !dueTime(w.cronTab.Name, job.Name).After(timeOf(w.cronTab.Status.LastScheduleTime)) {
				delete(w.jobs, job.Name)
			}
		}
	}
	p.tell("Jobs end")
}

// takeName has somebody else take the name of the next run's Job.
func (p *play) takeName() {
	w := p.world
	times, _, unreadable := read(observe(w.cronTab, w.now))
	if unreadable.reason != "" {
		return
	}
	if due := times.next(w.now); !due.IsZero() && w.jobs[jobName(w.cronTab.Name, due)] == nil {
		name := jobName(w.cronTab.Name, due)
		w.jobs[name] = jobOf(w.cronTab, due, ownedBy("CronJob", "backup", "uid-cronjob"))
		p.tell("somebody else takes the name of the run due at %v", due)
	}
}

// settle lifts all that keeps runs from being started, and lets the controller finish.
func (p *play) settle() {
	w := p.world
	p.tell("everything is lifted")
	w.refuse, w.now = false, later(p.latest, w.now).Add(2*time.Second)
	w.cronTab.Spec.Suspend, w.cronTab.Spec.StartingDeadlineSeconds, w.cronTab.Spec.ConcurrencyPolicy = nil, nil, alphav1.AllowConcurrent
	for range 3 {
		if _, err := w.sync(); err != nil {
			w.fault("the last sync failed: %v", err)
		}
	}
	writes := w.writes
	if _, err := w.sync(); err != nil || w.writes != writes {
		w.fault("rule C21: with nothing changing there are %d writes, error %v", w.writes-writes, err)
	}
}

// judge compares what has become of the runs with those that were due.
func (p *play) judge() {
	w := p.world
	known := map[int64]bool{}
	for i, epoch := range w.epochs {
		until := w.now
		if i+1 < len(w.epochs) {
			until = w.epochs[i+1].schedule.Since.Time
		}
		due := dueBy(p.t, epoch.schedule, epoch.after, until)
		for _, run := range due {
			known[run.Unix()] = true
			fates := w.started[run.Unix()]
			for _, account := range w.givenUp {
				if account.epoch == i && !run.Before(account.first) && !run.After(account.latest) {
					fates++
				}
			}
			if fates != 1 {
				w.fault("the run due at %v by %q was started %d times and has %d fates", run, epoch.schedule.Schedule, w.started[run.Unix()], fates)
			}
		}
		for _, account := range w.givenUp {
			covered := slices.DeleteFunc(slices.Clone(due), func(run time.Time) bool { return run.Before(account.first) || run.After(account.latest) })
			if account.epoch == i && !p.wentBack && account.count != min(len(covered), maxCount+1) {
				w.fault("rule C8: %d runs from %v to %v are told as %d", len(covered), account.first, account.latest, account.count)
			}
		}
	}
	for run := range w.started {
		if !known[run] && !p.wentBack {
			w.fault("rule C6: the run of %v was started, and was not due", time.Unix(run, 0).UTC())
		}
	}
}

// dueBy returns what is due by a schedule, by looking at the clock on the wall every
// minute.
func dueBy(t *rapid.T, observed alphav1.ObservedSchedule, after, until time.Time) []time.Time {
	zone, err := time.LoadLocation(observed.TimeZone)
	if err != nil {
		return nil
	}
	var due []time.Time
	if delay, isEvery := strings.CutPrefix(observed.Schedule, "@every "); isEvery {
		step, err := time.ParseDuration(delay)
		if err != nil {
			t.Fatal(err)
		}
		for run := observed.Since.Add(step); !run.After(until); run = run.Add(step) {
			if run.After(after) {
				due = append(due, run)
			}
		}
		return due
	}
	parsed, err := cron.ParseStandard(observed.Schedule)
	if err != nil {
		return nil
	}
	fields := parsed.(*cron.SpecSchedule)
	for run := after.Truncate(time.Minute); !run.After(until); run = run.Add(time.Minute) {
		wall := run.In(zone)
		if run.After(after) && has(fields.Minute, wall.Minute()) && has(fields.Hour, wall.Hour()) && has(fields.Month, int(wall.Month())) &&
			has(fields.Dom, wall.Day()) && has(fields.Dow, int(wall.Weekday())) {
			due = append(due, run)
		}
	}
	return due
}
