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
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

const (
	// firstSeconds is the lowest number in a Job's name that counts seconds, those of the year 2001. The
	// names of a CronJob's Jobs end in minutes.
	firstSeconds = 1_000_000_000
	// maxUnrecorded is how many runs are remembered of a CronTab whose status cannot be written: those of
	// almost three hours at the shortest interval, in 32 kB.
	maxUnrecorded = 1000
	// maxResend is how long a Job whose creation had no answer may be created again if it is not there. Later
	// it may have run, ended and been deleted.
	maxResend = 2 * time.Second
)

// dueRun is a run of the schedule, or one that a user asks for by an annotation. Its time is in UTC and in
// whole seconds, so that runs can be compared.
type dueRun struct {
	at     time.Time
	manual bool
}

// jobName returns the name of the run's Job. Every process computes the same name, and the API server accepts
// it only once, so no run is started twice. A CronJob's Job ends in the number of minutes since 1970, not of
// seconds. After an m the seconds are to the base 36, since no more than 11 characters are left.
func (r dueRun) jobName(cronTab string) string {
	if r.manual {
		return cronTab + "-m" + strconv.FormatInt(r.at.Unix(), 36)
	}
	return cronTab + "-" + strconv.FormatInt(r.at.Unix(), 10)
}

// runOf returns the run that the CronTab's Job is for, the zero run for a name that jobName does not return,
// or of a Job that is older: a user may name a copy.
func runOf(cronTab *alphav1.CronTab, job *batchv1.Job) dueRun {
	number, manual := strings.CutPrefix(strings.TrimPrefix(job.Name, cronTab.Name+"-"), "m")
	base := 10
	if manual {
		base = 36
	}
	// For text that is not a number this is 0, and the name of that run differs. A name in words, such as
	// manual, is a number below those of times since 2001.
	seconds, _ := strconv.ParseUint(number, base, 40)
	due := dueRun{time.Unix(int64(seconds), 0).UTC(), manual}
	isFuture := !job.CreationTimestamp.IsZero() && due.at.After(job.CreationTimestamp.Add(maxAhead))
	if seconds < firstSeconds || job.Name != due.jobName(cronTab.Name) || isFuture {
		return dueRun{}
	}
	return due
}

// last returns the field of the status that records when the latest run of this sort was due.
func (r dueRun) last(status *alphav1.CronTabStatus) **metav1.Time {
	if r.manual {
		return &status.LastManualTime
	}
	return &status.LastScheduleTime
}

// describe says which run it is.
func (r dueRun) describe(zone *time.Location) string {
	at := r.at.In(zone).Format(time.RFC3339)
	if r.manual {
		return fmt.Sprintf("run that the annotation %s asked for at %s", alphav1.RunAtAnnotation, at)
	}
	return "run due at " + at
}

// askedFor returns the time of the run that the annotation asks for, the zero time if there is no annotation.
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

// memory is what this process knows of a CronTab and the status does not record.
type memory struct {
	cronTab types.UID
	// started are the runs whose Jobs were created: the status may have been refused, and the Jobs may be gone.
	// A run whose creation had no answer has the time when that was first sent, others the zero time.
	started map[dueRun]time.Time
	// refused is the Job that the API server has refused last, of the schedule and (true) by annotation.
	refused map[bool]refusedJob
}

// refusedJob is the Job of a run that the API server has refused in that generation of the CronTab. It is not tried
// again before that time, and after the next refusal for twice the delay. message is for a run by annotation.
type refusedJob struct {
	due        dueRun
	message    string
	generation int64
	until      time.Time
	delay      time.Duration
}

func newMemory(cronTab types.UID) *memory {
	return &memory{cronTab: cronTab, started: map[dueRun]time.Time{}, refused: map[bool]refusedJob{}}
}

// addStarted remembers that the run was started. Of too many it forgets all earlier ones of the schedule. One by
// annotation would be started again.
func (m *memory) addStarted(due dueRun) {
	if m.started[due] = (time.Time{}); len(m.started) > maxUnrecorded {
		maps.DeleteFunc(m.started, func(old dueRun, _ time.Time) bool { return !old.manual && old.at.Before(due.at) })
	}
}

// settle forgets what the new status of the CronTab records, and refusals of runs that are no longer due.
func (m *memory) settle(d *decision, cronTab *alphav1.CronTab) {
	settled := map[bool]time.Time{false: settledUntil(cronTab), true: timeOf(cronTab.Status.LastManualTime)}
	maps.DeleteFunc(m.started, func(due dueRun, _ time.Time) bool { return !due.at.After(settled[due.manual]) })
	if d.problem.Reason != "" {
		delete(m.refused, false)
	}
	if !slices.ContainsFunc(d.due, func(due dueRun) bool { return due.manual }) {
		delete(m.refused, true)
	}
}
