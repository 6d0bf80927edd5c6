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
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// manualRun is what a sync does about the run that a user asks for by an annotation. Like a
// run of the schedule it has a Job whose name is computed from its time, and the status records
// the time after the Job is created.
type manualRun struct {
	// at is the time of the manual run whose Job is to be created, the zero time if no manual
	// run is to be started.
	at time.Time
	// settled is when the latest run was due that has a Job, or whose Job's name is taken, and
	// that the status does not record yet.
	settled time.Time
	// takenBy is the Job that has the name of that run's, nil for none.
	takenBy *batchv1.Job
	// waits says that a run of the schedule goes first, and behind says which Jobs the run waits for.
	waits  bool
	behind string
	// invalid is why the annotation cannot be read, "" if it can.
	invalid string
}

// manualJobName returns the name of the Job for the run that a user asked for. No run of the
// schedule has that name: it ends in m and the seconds since 1970 to the base 36, since no more
// than 11 characters are left.
func manualJobName(cronTab string, at time.Time) string {
	return cronTab + "-m" + strconv.FormatInt(at.Unix(), 36)
}

// manualTime returns when the run was due that the CronTab's Job is for, as dueTime does. A name in words,
// such as manual, is a number below those of times since 2001.
func manualTime(cronTab *alphav1.CronTab, job *batchv1.Job) time.Time {
	// For text that is not a number this is 0, and the name of that run differs.
	seconds, _ := strconv.ParseUint(strings.TrimPrefix(job.Name, cronTab.Name+"-m"), 36, 40)
	return runTime(manualJobName, cronTab, job, int64(seconds))
}

// newManualJob returns the Job to create for the run that a user asked for.
func newManualJob(cronTab *alphav1.CronTab, at time.Time, zone *time.Location) *batchv1.Job {
	job := newJob(cronTab, at, zone)
	job.Name = manualJobName(cronTab.Name, at)
	job.Annotations[alphav1.InstantiateAnnotation] = alphav1.InstantiateManual
	job.Spec.Template.Annotations[alphav1.InstantiateAnnotation] = alphav1.InstantiateManual
	return job
}

// askedFor returns the time of the run that the annotation asks for, the zero time if there is
// no annotation.
func askedFor(cronTab *alphav1.CronTab) (time.Time, error) {
	text, ok := cronTab.Annotations[alphav1.RunAtAnnotation]
	if !ok {
		return time.Time{}, nil
	}
	at, err := time.Parse(time.RFC3339, text)
	if err != nil {
		return time.Time{}, fmt.Errorf("the annotation %s is %q, which is not an RFC 3339 time such as 2026-11-22T18:30:00Z", alphav1.RunAtAnnotation, text)
	}
	return at.UTC().Truncate(time.Second), nil
}

// decideManual decides about the run that a user asks for. The schedule, suspend and the
// deadline do not matter to it. A time before the creation is that of a CronTab which was
// deleted and restored, except that the clocks of two machines differ a little.
func (d *decision) decideManual(snap snapshot) {
	cronTab := snap.cronTab
	settled := timeOf(cronTab.Status.LastManualTime)
	times := []time.Time{snap.unrecorded.manual}
	for _, job := range snap.jobs {
		times = append(times, manualTime(cronTab, job))
	}
	for _, at := range times {
		if at.After(settled) && (!at.After(snap.now) || at.Equal(snap.unrecorded.manual)) {
			d.manual.settled, settled = at, at
		}
	}
	at, err := askedFor(cronTab)
	switch {
	case err != nil:
		d.manual.invalid = err.Error()
	case !at.After(settled) || at.Before(cronTab.CreationTimestamp.Add(-maxAhead)):
	case at.After(snap.now):
		d.syncBy(at, snap.now)
	default:
		d.decideManualDue(snap, at)
	}
}

// decideManualDue decides whether the run is started, waits, or has been started. Of this run and one of
// the schedule the older goes first.
func (d *decision) decideManualDue(snap snapshot, at time.Time) {
	cronTab := snap.cronTab
	existing := snap.jobNamed(manualJobName(cronTab.Name, at))
	switch {
	case existing == nil && (d.recordFirst || d.start != nil && !at.Before(d.due)):
		d.manual.waits = true
	case existing == nil:
		d.start, d.replace = nil, nil
		if d.begin(snap, newManualJob(cronTab, at, d.zone())); d.start != nil {
			d.manual.at = at
		} else if active := activeJobs(snap.jobs); len(active) > 0 && !d.recordFirst {
			d.manual.behind = fmt.Sprintf("the %s waits for the end of Job %q, since spec.concurrencyPolicy is Forbid", describeManual(at), active[0].Name)
		}
	case owns(cronTab, existing):
		d.manual.settled = at
	default:
		d.manual.settled, d.manual.takenBy = at, existing
	}
}

// describeManual says which run a user asked for.
func describeManual(at time.Time) string {
	return fmt.Sprintf("run that the annotation %s asked for at %s", alphav1.RunAtAnnotation, at.Format(time.RFC3339))
}
