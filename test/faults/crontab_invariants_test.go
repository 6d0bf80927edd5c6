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
	"net/http"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// The rules of docs/crontab.md that clients can observe, checked after a run over all
// versions of all CronTabs and Jobs. The clock decides how many runs become due, but each
// of them must be started once or given up.

// clockSlack bounds the time between the decision to start a Job and its creation.
const clockSlack = 2 * time.Second

// cronTabChecker collects violations of the CronTab contract.
type cronTabChecker struct {
	*history

	found violations
}

// cronTabViolations returns the violations of the CronTab contract, given the requests of
// each controller. The caller holds the lock.
func (h *history) cronTabViolations(records ...[]request) []string {
	c := &cronTabChecker{history: h}
	for _, requests := range records {
		for i := range requests {
			if requests[i].applied() {
				c.checkWrite(&requests[i])
			}
		}
	}
	c.checkJobs()
	c.checkConcurrency()
	c.checkStatuses()
	c.checkRunsSettled()
	return c.found
}

// checkWrite checks S1: the controller writes and deletes only what it owns by UID at
// that moment.
func (c *cronTabChecker) checkWrite(r *request) {
	switch {
	case r.resource == cronTabs && r.subresource != "status":
		c.found.add("S1: %s: the controller may only write the status of a CronTab", r)
	case r.resource == cronTabs && r.resourceVersion == 0:
		c.found.add("S1: %s was applied without a precondition", r)
	case r.resource == cronTabs, r.resource == jobs && r.verb == http.MethodPost:
		// A POST never changes an existing object.
	case r.resource != jobs || r.verb != http.MethodDelete:
		c.found.add("S1: %s: the controller creates and deletes Jobs, and writes nothing else", r)
	case r.uid == "":
		c.found.add("S1: %s %s was applied without a precondition", r, r.name)
	default:
		c.checkDeletion(r)
	}
}

// checkDeletion checks that the Job's CronTab existed when the Job was deleted.
func (c *cronTabChecker) checkDeletion(r *request) {
	for _, v := range c.jobs {
		if v.object.UID != r.uid || !v.deleted && v.object.DeletionTimestamp == nil {
			continue
		}
		ref := cronTabControllerOf(v.object)
		if ref == nil {
			c.found.add("S1: %s deleted Job %s, which no CronTab controls: %+v", r, v.object.Name, v.object.OwnerReferences)
			return
		}
		if c.cronTab(ref.UID, v.revision) == nil {
			c.found.add("S1: %s deleted Job %s, whose CronTab did not exist", r, v.object.Name)
		}
		return
	}
	c.found.add("S1: %s has the precondition uid %s, but no such Job was deleted", r, r.uid)
}

// cronTab returns the CronTab as of that revision, or nil if it did not exist.
func (c *cronTabChecker) cronTab(uid types.UID, before int64) *alphav1.CronTab {
	var was *alphav1.CronTab
	for _, v := range c.cronTabs {
		if v.object.UID != uid || v.revision >= before {
			continue
		}
		was = v.object
		if v.deleted {
			was = nil
		}
	}
	return was
}

// cronTabJobs returns the first version of each Job that a CronTab controls, without
// markers.
func (h *history) cronTabJobs() []version[*batchv1.Job] {
	known := map[types.UID]bool{}
	var all []version[*batchv1.Job]
	for _, v := range h.jobs {
		if !known[v.object.UID] && cronTabControllerOf(v.object) != nil && !isMarker(v.object.Name) {
			all = append(all, v)
		}
		known[v.object.UID] = true
	}
	return all
}

// checkJobs checks of each Job that it belongs to a run, has the name of that run, and
// was created in time and while the CronTab was not suspended; and that no run has two
// Jobs.
func (c *cronTabChecker) checkJobs() {
	names := map[string]bool{}
	for _, v := range c.cronTabJobs() {
		job, ref := v.object, cronTabControllerOf(v.object)
		scheduled, isRun := scheduledTimeOf(job)
		cronTab := c.cronTab(ref.UID, v.revision)
		switch {
		case cronTab == nil && c.justDeleted(ref.UID, v.observedAt):
			// The CronTab was deleted between the live read and the creation. The garbage
			// collector deletes the Job.
			continue
		case cronTab == nil:
			c.found.add("C7: Job %s was created for CronTab %s, which did not exist", job.Name, ref.Name)
			continue
		case isManual(job):
			if cronTab.Annotations[alphav1.RunAtAnnotation] != job.Annotations[alphav1.ScheduledTimeAnnotation] || names[string(ref.UID)+job.Name] {
				c.found.add("C22: Job %s was created for the annotations %v", job.Name, cronTab.Annotations)
			}
			names[string(ref.UID)+job.Name] = true
			continue
		case !isRun || job.Name != jobName(cronTab.Name, scheduled):
			c.found.add("C7: Job %s is for a run due at %q", job.Name, job.Annotations[alphav1.ScheduledTimeAnnotation])
			continue
		case names[string(ref.UID)+job.Name]:
			c.found.add("C7: the run due at %s was started twice", scheduled)
		case cronTab.Spec.JobOptions.BackoffLimit != nil && !ptr.Equal(job.Spec.BackoffLimit, cronTab.Spec.JobOptions.BackoffLimit):
			c.found.add("C7: Job %s does not have the options of CronTab %s", job.Name, cronTab.Name)
		case job.CreationTimestamp.Time.Before(scheduled):
			c.found.add("C6: the run due at %s was started at %s", scheduled, job.CreationTimestamp)
		case reportsSuspended(cronTab):
			c.found.add("C12: the run due at %s was started after the status had said Suspended", scheduled)
		}
		names[string(ref.UID)+job.Name] = true
		if deadline := cronTab.Spec.StartingDeadlineSeconds; deadline != nil && job.CreationTimestamp.Sub(scheduled) > time.Duration(*deadline)*time.Second+clockSlack {
			c.found.add("C9: the run due at %s was started at %s, and the deadline is %d s", scheduled, job.CreationTimestamp, *deadline)
		}
	}
}

// justDeleted reports whether the CronTab was deleted shortly before that time.
func (c *cronTabChecker) justDeleted(uid types.UID, before time.Time) bool {
	return slices.ContainsFunc(c.cronTabs, func(v version[*alphav1.CronTab]) bool {
		return v.deleted && v.object.UID == uid && before.Sub(v.observedAt) <= clockSlack
	})
}

// reportsSuspended reports whether the status says Suspended for the current generation.
func reportsSuspended(cronTab *alphav1.CronTab) bool {
	ready := meta.FindStatusCondition(cronTab.Status.Conditions, readyType)
	return ready != nil && ready.Reason == alphav1.ReasonSuspended && ready.ObservedGeneration == cronTab.Generation
}

// jobName returns the name of the Job for the run that is due at that time.
func jobName(cronTab string, scheduled time.Time) string {
	return cronTab + "-" + strconv.FormatInt(scheduled.Unix(), 10)
}

// checkConcurrency checks that Jobs do not overlap with the policies Forbid and Replace;
// with Replace, a Job that is being deleted may overlap. Only the lease prevents two
// controllers from starting two Jobs, so runs with two controllers skip this.
func (c *cronTabChecker) checkConcurrency() {
	if c.concurrentControllers {
		return
	}
	active := map[types.UID]map[types.UID]string{}
	for _, v := range c.jobs {
		job, ref := v.object, cronTabControllerOf(v.object)
		if ref == nil || isMarker(job.Name) {
			continue
		}
		cronTab := c.cronTab(ref.UID, v.revision)
		if active[ref.UID] == nil {
			active[ref.UID] = map[types.UID]string{}
		}
		running := active[ref.UID]
		_, known := running[job.UID]
		policy := alphav1.AllowConcurrent
		if cronTab != nil {
			policy = cronTab.Spec.ConcurrencyPolicy
		}
		if v.deleted || finishedType(job) != "" || policy == alphav1.ReplaceConcurrent && job.DeletionTimestamp != nil {
			delete(running, job.UID)
			continue
		}
		running[job.UID] = job.Name
		if !known && len(running) > 1 && policy != alphav1.AllowConcurrent {
			c.found.add("C10, C11: Job %s was started with policy %s while these were running: %v", job.Name, policy, running)
		}
	}
}

// checkStatuses checks that times of a status never go back, and that a status only
// reports runs that were started.
func (c *cronTabChecker) checkStatuses() {
	last := map[types.UID]*alphav1.CronTab{}
	for _, v := range c.cronTabs {
		now, was := v.object, last[v.object.UID]
		if v.deleted {
			continue
		}
		last[now.UID] = now
		if now.Status.ObservedGeneration > now.Generation {
			c.found.add("S3: CronTab %s has observedGeneration %d of %d", now.Name, now.Status.ObservedGeneration, now.Generation)
		}
		if was != nil && goesBack(&was.Status, &now.Status) {
			c.found.add("C18: the status of CronTab %s went back from %s to %s", now.Name, mustEncode(was.Status), mustEncode(now.Status))
		}
		if started := now.Status.LastScheduleTime; started != nil && !isMarker(now.Name) && !c.hasJob(now.UID, started.Time, v.revision) {
			c.found.add("S3: the status of CronTab %s says that the run due at %s was started, which it was not (revision %d)", now.Name, started, v.revision)
		}
	}
}

func goesBack(was, now *alphav1.CronTabStatus) bool {
	return now.ObservedGeneration < was.ObservedGeneration ||
		timeOf(now.LastScheduleTime).Before(timeOf(was.LastScheduleTime)) ||
		timeOf(now.LastMissedTime).Before(timeOf(was.LastMissedTime)) ||
		timeOf(now.LastManualTime).Before(timeOf(was.LastManualTime)) ||
		timeOf(now.LastSuccessfulTime).Before(timeOf(was.LastSuccessfulTime)) ||
		timeOf(now.LastFailedTime).Before(timeOf(was.LastFailedTime))
}

// hasJob reports whether the CronTab had a Job for that run before that revision.
func (c *cronTabChecker) hasJob(cronTab types.UID, scheduled time.Time, before int64) bool {
	for _, v := range c.cronTabJobs() {
		due, isRun := scheduledTimeOf(v.object)
		if isRun && cronTabControllerOf(v.object).UID == cronTab && due.Equal(scheduled) && v.revision < before {
			return true
		}
	}
	return false
}

// checkRunsSettled checks that each run up to the last times of the final status was
// started or given up, and that every started run was due. All schedules are @every.
func (c *cronTabChecker) checkRunsSettled() {
	last := map[types.UID]*alphav1.CronTab{}
	for _, v := range c.cronTabs {
		if !v.deleted {
			last[v.object.UID] = v.object
		}
	}
	spans := map[types.UID][]scheduleSpan{}
	for uid, cronTab := range last {
		spans[uid] = c.scheduleSpans(uid)
		missed, started := timeOf(cronTab.Status.LastMissedTime), timeOf(cronTab.Status.LastScheduleTime)
		for _, span := range spans[uid] {
			for scheduled := span.since.Add(span.every); !scheduled.After(span.until) && (!scheduled.After(started) || !scheduled.After(missed)); scheduled = scheduled.Add(span.every) {
				if scheduled.After(missed) && !c.hasJob(uid, scheduled, 1<<62) {
					c.found.add("C8: the run of CronTab %s that was due at %s was neither started nor given up: %s", cronTab.Name, scheduled, mustEncode(cronTab.Status))
				}
			}
		}
	}
	for _, v := range c.cronTabJobs() {
		scheduled, isRun := scheduledTimeOf(v.object)
		known := spans[cronTabControllerOf(v.object).UID]
		if isRun && len(known) > 0 && !slices.ContainsFunc(known, func(span scheduleSpan) bool { return span.has(scheduled) }) {
			c.found.add("C4: a run was started for %s, when none was due", scheduled)
		}
	}
}

// scheduleSpan is a schedule and the time during which the status followed it.
type scheduleSpan struct {
	since, until time.Time
	schedule     string
	every        time.Duration
}

func (s scheduleSpan) has(scheduled time.Time) bool {
	return scheduled.After(s.since) && !scheduled.After(s.until) && scheduled.Sub(s.since)%s.every == 0
}

// scheduleSpans returns the schedules that the status of a CronTab followed, in order,
// and checks when each began.
func (c *cronTabChecker) scheduleSpans(uid types.UID) []scheduleSpan {
	var spans []scheduleSpan
	written := map[string][]time.Time{}
	for _, v := range c.cronTabs {
		cronTab, now := v.object, v.object.Status.ObservedSchedule
		if cronTab.UID != uid || v.deleted {
			continue
		}
		written[cronTab.Spec.Schedule] = append(written[cronTab.Spec.Schedule], specWrittenAt(cronTab))
		if now == nil || intervalOf(now.Schedule) == 0 {
			continue
		}
		next := scheduleSpan{since: now.Since.Time, until: now.Since.AddDate(1, 0, 0), schedule: now.Schedule, every: intervalOf(now.Schedule)}
		latest := len(spans) - 1
		switch {
		case latest < 0 && !now.Since.Equal(&cronTab.CreationTimestamp):
			c.found.add("C4: CronTab %s counts from %s, but was created at %s", cronTab.Name, now.Since, cronTab.CreationTimestamp)
		case latest >= 0 && spans[latest] == next:
			continue
		case latest >= 0 && spans[latest].schedule == next.schedule:
			c.found.add("C4: CronTab %s counts from %s, but counted from %s before", cronTab.Name, now.Since, spans[latest].since)
		case latest >= 0 && !slices.ContainsFunc(written[next.schedule], next.since.Equal):
			c.found.add("C13: CronTab %s counts from %s, but the schedule was written at one of %s", cronTab.Name, now.Since, written[next.schedule])
		}
		if latest >= 0 {
			spans[latest].until = next.since
		}
		spans = append(spans, next)
	}
	return spans
}

// specWrittenAt returns when the object was last written, except its status.
func specWrittenAt(cronTab *alphav1.CronTab) time.Time {
	var latest time.Time
	for _, entry := range cronTab.ManagedFields {
		if entry.Subresource == "" && entry.Time != nil && entry.Time.After(latest) {
			latest = entry.Time.Time
		}
	}
	return latest
}

// intervalOf returns the interval of an @every schedule, 0 for other schedules.
func intervalOf(schedule string) time.Duration {
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
