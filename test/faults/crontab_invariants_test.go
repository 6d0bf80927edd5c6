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
	"fmt"
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// The rules of docs/crontab.md that can be seen from outside, checked after a run over
// all versions that all CronTabs and Jobs had. How many runs there were depends on the
// clock; that each was started once or given up does not.

// slack is by how much a Job may be younger than the moment at which it was decided
// to start it.
const slack = 2 * time.Second

// cronTabJudge judges what was done for CronTabs.
type cronTabJudge struct {
	*history

	report func(format string, args ...any)
}

// cronTabViolations returns what breaks the rules, given what each controller sent.
// The caller holds the lock.
func (h *history) cronTabViolations(records ...[]request) []string {
	var found []string
	j := &cronTabJudge{history: h, report: func(format string, args ...any) { found = append(found, fmt.Sprintf(format, args...)) }}
	for _, requests := range records {
		for i := range requests {
			if requests[i].applied() {
				j.checkWrite(&requests[i])
			}
		}
	}
	j.checkJobs()
	j.checkConcurrency()
	j.checkStatuses()
	j.checkSlots()
	return found
}

// checkWrite checks S1: nothing is written or deleted that the controller does not
// own by UID at that moment.
func (j *cronTabJudge) checkWrite(r *request) {
	switch {
	case r.resource == cronTabs && (r.verb != http.MethodPut || r.subresource != "status"):
		j.report("S1: %s: of a CronTab only the status is the controller's", r)
	case r.resource == cronTabs, r.resource == jobs && r.verb == http.MethodPost:
		// A creation can do no harm to what is there.
	case r.resource != jobs || r.verb != http.MethodDelete:
		j.report("S1: %s: the controller creates and deletes Jobs, and writes nothing else", r)
	case r.uid == "":
		j.report("S1: %s %s was applied without a precondition, to whatever was there", r, r.name)
	default:
		j.checkDeletion(r)
	}
}

// checkDeletion checks that the Job's CronTab was there when the Job was deleted.
func (j *cronTabJudge) checkDeletion(r *request) {
	for _, v := range j.jobs {
		if v.object.UID != r.uid || !v.gone && v.object.DeletionTimestamp == nil {
			continue
		}
		ref := cronTabOf(v.object)
		if ref == nil {
			j.report("S1: %s deleted Job %s, which no CronTab controls: %+v", r, v.object.Name, v.object.OwnerReferences)
			return
		}
		if j.cronTab(ref.UID, v.number) == nil {
			j.report("S1: %s deleted Job %s, whose CronTab was not there at that moment", r, v.object.Name)
		}
		return
	}
	j.report("S1: %s was applied to uid %s, and no Job of that was deleted", r, r.uid)
}

// cronTab returns the CronTab as it was before that moment, nil if it was not there.
func (j *cronTabJudge) cronTab(uid types.UID, before int64) *alphav1.CronTab {
	var was *alphav1.CronTab
	for _, v := range j.cronTabs {
		if v.object.UID != uid || v.number >= before {
			continue
		}
		was = v.object
		if v.gone {
			was = nil
		}
	}
	return was
}

// runs returns the first version of each Job that a CronTab controls, markers' aside.
func (h *history) runs() []version[*batchv1.Job] {
	known := map[types.UID]bool{}
	var all []version[*batchv1.Job]
	for _, v := range h.jobs {
		if !known[v.object.UID] && cronTabOf(v.object) != nil && !isMarker(v.object.Name) {
			all = append(all, v)
		}
		known[v.object.UID] = true
	}
	return all
}

// checkJobs checks that each Job is that of a run, has its name, was started in time
// and while runs were to be started, and that no run has two.
func (j *cronTabJudge) checkJobs() {
	names := map[string]bool{}
	for _, v := range j.runs() {
		job, ref := v.object, cronTabOf(v.object)
		slot, isRun := slotOf(job)
		cronTab := j.cronTab(ref.UID, v.number)
		switch {
		case cronTab == nil && j.hasJustGone(ref.UID, v.seen):
			// It went between the look at it and the creation, and takes the Job with it.
			continue
		case cronTab == nil:
			j.report("C7: Job %s was made for CronTab %s, which was not there", job.Name, ref.Name)
			continue
		case !isRun || job.Name != nameOfRun(cronTab.Name, slot):
			j.report("C7: Job %s is for a run due at %q", job.Name, job.Annotations[alphav1.ScheduledTimeAnnotation])
			continue
		case names[string(ref.UID)+job.Name]:
			j.report("C7: the run due at %s was started twice", slot)
		case job.CreationTimestamp.Time.Before(slot):
			j.report("C6: the run due at %s was started at %s", slot, job.CreationTimestamp)
		case saysSuspended(cronTab):
			j.report("C12: the run due at %s was started after the status had told of the suspension", slot)
		}
		names[string(ref.UID)+job.Name] = true
		if deadline := cronTab.Spec.StartingDeadlineSeconds; deadline != nil && job.CreationTimestamp.Sub(slot) > time.Duration(*deadline)*time.Second+slack {
			j.report("C9: the run due at %s was started at %s, and the deadline is %d s", slot, job.CreationTimestamp, *deadline)
		}
	}
}

// hasJustGone reports whether the CronTab went shortly before that.
func (j *cronTabJudge) hasJustGone(uid types.UID, before time.Time) bool {
	return slices.ContainsFunc(j.cronTabs, func(v version[*alphav1.CronTab]) bool {
		return v.gone && v.object.UID == uid && before.Sub(v.seen) <= slack
	})
}

// saysSuspended reports whether the status tells that this very spec suspends runs.
func saysSuspended(cronTab *alphav1.CronTab) bool {
	ready := meta.FindStatusCondition(cronTab.Status.Conditions, readyType)
	return ready != nil && ready.Reason == alphav1.ReasonSuspended && ready.ObservedGeneration == cronTab.Generation
}

// nameOfRun returns the name of the Job of the run that is due then.
func nameOfRun(cronTab string, slot time.Time) string {
	number := slot.Unix()
	if number%60 == 0 {
		number /= 60
	}
	return cronTab + "-" + strconv.FormatInt(number, 10)
}

// checkConcurrency checks that runs do not overlap: at all with Forbid, and with
// Replace but for Jobs that are being deleted. Nothing but the lease keeps two
// controllers from starting two runs.
func (j *cronTabJudge) checkConcurrency() {
	if j.together {
		return
	}
	active := map[types.UID]map[types.UID]string{}
	for _, v := range j.jobs {
		job, ref := v.object, cronTabOf(v.object)
		if ref == nil || isMarker(job.Name) {
			continue
		}
		cronTab := j.cronTab(ref.UID, v.number)
		if active[ref.UID] == nil {
			active[ref.UID] = map[types.UID]string{}
		}
		underWay := active[ref.UID]
		_, known := underWay[job.UID]
		policy := alphav1.AllowConcurrent
		if cronTab != nil {
			policy = cronTab.Spec.ConcurrencyPolicy
		}
		if v.gone || resultOf(job) != "" || policy == alphav1.ReplaceConcurrent && job.DeletionTimestamp != nil {
			delete(underWay, job.UID)
			continue
		}
		underWay[job.UID] = job.Name
		if !known && len(underWay) > 1 && policy != alphav1.AllowConcurrent {
			j.report("C10, C11: Job %s was started, policy %s, with these under way: %v", job.Name, policy, underWay)
		}
	}
}

// checkStatuses checks that a status never goes back, and tells of no run that was
// not started.
func (j *cronTabJudge) checkStatuses() {
	last := map[types.UID]*alphav1.CronTab{}
	for _, v := range j.cronTabs {
		now, was := v.object, last[v.object.UID]
		if v.gone {
			continue
		}
		last[now.UID] = now
		if now.Status.ObservedGeneration > now.Generation {
			j.report("S3: CronTab %s has observed generation %d of %d", now.Name, now.Status.ObservedGeneration, now.Generation)
		}
		if was != nil && goesBack(&was.Status, &now.Status) {
			j.report("C18: the status of CronTab %s went back from %s to %s", now.Name, mustEncode(was.Status), mustEncode(now.Status))
		}
		if started := now.Status.LastScheduleTime; started != nil && !isMarker(now.Name) && !j.started(now.UID, started.Time, v.number) {
			j.report("S3: CronTab %s tells of a run started that was due at %s, and it was not (version %d)", now.Name, started, v.number)
		}
	}
}

func goesBack(was, now *alphav1.CronTabStatus) bool {
	return now.ObservedGeneration < was.ObservedGeneration ||
		timeOf(now.LastScheduleTime).Before(timeOf(was.LastScheduleTime)) ||
		timeOf(now.LastMissedTime).Before(timeOf(was.LastMissedTime)) ||
		timeOf(now.LastSuccessfulTime).Before(timeOf(was.LastSuccessfulTime))
}

// started reports whether the CronTab had a Job for that run before that moment.
func (j *cronTabJudge) started(cronTab types.UID, slot time.Time, before int64) bool {
	for _, v := range j.runs() {
		due, _ := slotOf(v.object)
		if cronTabOf(v.object).UID == cronTab && due.Equal(slot) && v.number < before {
			return true
		}
	}
	return false
}

// checkSlots checks that each run that a status counts as settled in the end was
// started or given up, and that no other was started. The schedules are @every.
func (j *cronTabJudge) checkSlots() {
	last := map[types.UID]*alphav1.CronTab{}
	for _, v := range j.cronTabs {
		if !v.gone {
			last[v.object.UID] = v.object
		}
	}
	epochs := map[types.UID][]epoch{}
	for uid, cronTab := range last {
		epochs[uid] = j.epochs(uid)
		missed, started := timeOf(cronTab.Status.LastMissedTime), timeOf(cronTab.Status.LastScheduleTime)
		for _, e := range epochs[uid] {
			for slot := e.since.Add(e.every); !slot.After(e.until) && (!slot.After(started) || !slot.After(missed)); slot = slot.Add(e.every) {
				if slot.After(missed) && !j.started(uid, slot, 1<<62) {
					j.report("C8: the run of CronTab %s that was due at %s was neither started nor given up: %s", cronTab.Name, slot, mustEncode(cronTab.Status))
				}
			}
		}
	}
	for _, v := range j.runs() {
		slot, _ := slotOf(v.object)
		known := epochs[cronTabOf(v.object).UID]
		if len(known) > 0 && !slices.ContainsFunc(known, func(e epoch) bool { return e.has(slot) }) {
			j.report("C4: nothing was due at %s", slot)
		}
	}
}

// epoch is a schedule that was followed, and from when until when.
type epoch struct {
	since, until time.Time
	schedule     string
	every        time.Duration
}

func (e epoch) has(slot time.Time) bool {
	return slot.After(e.since) && !slot.After(e.until) && slot.Sub(e.since)%e.every == 0
}

// epochs returns the schedules that a CronTab's status says were followed, one after
// the other, and checks from when each counts.
func (j *cronTabJudge) epochs(uid types.UID) []epoch {
	var epochs []epoch
	written := map[string][]time.Time{}
	for _, v := range j.cronTabs {
		cronTab, now := v.object, v.object.Status.ObservedSchedule
		if cronTab.UID != uid || v.gone {
			continue
		}
		written[cronTab.Spec.Schedule] = append(written[cronTab.Spec.Schedule], writtenAt(cronTab))
		if now == nil || periodOf(now.Schedule) == 0 {
			continue
		}
		next := epoch{since: now.Since.Time, until: now.Since.AddDate(1, 0, 0), schedule: now.Schedule, every: periodOf(now.Schedule)}
		latest := len(epochs) - 1
		switch {
		case latest < 0 && !now.Since.Equal(&cronTab.CreationTimestamp):
			j.report("C4: CronTab %s counts from %s, and is there since %s", cronTab.Name, now.Since, cronTab.CreationTimestamp)
		case latest >= 0 && epochs[latest] == next:
			continue
		case latest >= 0 && epochs[latest].schedule == next.schedule:
			j.report("C4: CronTab %s counts from %s, and counted from %s", cronTab.Name, now.Since, epochs[latest].since)
		case latest >= 0 && !slices.ContainsFunc(written[next.schedule], next.since.Equal):
			j.report("C13: CronTab %s counts from %s, and the schedule was written at one of %s", cronTab.Name, now.Since, written[next.schedule])
		}
		if latest >= 0 {
			epochs[latest].until = next.since
		}
		epochs = append(epochs, next)
	}
	return epochs
}

// writtenAt returns when anything but the status was last written.
func writtenAt(cronTab *alphav1.CronTab) time.Time {
	var latest time.Time
	for _, entry := range cronTab.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(latest) {
			latest = entry.Time.Time
		}
	}
	return latest
}

// periodOf returns that of @every, 0 for other schedules.
func periodOf(schedule string) time.Duration {
	text, _ := strings.CutPrefix(schedule, "@every ")
	every, err := time.ParseDuration(text)
	if err != nil {
		return 0
	}
	return every
}

func timeOf(t *metav1.Time) time.Time {
	if t == nil {
		return time.Time{}
	}
	return t.Time
}
