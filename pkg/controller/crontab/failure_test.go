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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
)

func failureTests() map[string]syncTest {
	hourly := newCronTab("11:00:00", recordedAt("11:30:00"))
	rejected := putStatus + "last=11:00:00 missed= next=13:00:00 active=0 False/JobRejected"
	return map[string]syncTest{
		"rule C16: a refusal is reported once, and retried": {
			now: "12:00:00", cronTab: hourly, prepare: failing("create", "jobs", errQuota()),
			requests: []string{getLive, createRun, rejected}, events: []string{"Warning JobRejected"}, err: "exceeded quota", requeueAfter: minRetry},
		"rule C16: a repeated refusal changes nothing": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", refusedAt("12:00:00")), prepare: failing("create", "jobs", errQuota()),
			requests: []string{getLive, createRun}, err: "exceeded quota", requeueAfter: minRetry},
		"rule C16: the delay after refusals does not delay the next run": {
			now: "12:59:58", cronTab: newCronTab("11:00:00", refusedAt("12:00:00")),
			prepare: func(f *fixture) {
				f.refused.Store(testKey("backup"), refusedJob{jobAttempt{"uid-backup", 1, jobName("backup", moment("12:00:00"))}, moment("13:10:00")})
			},
			requeueAfter: 2 * time.Second},
		"rule C16: what is known of a former CronTab of the name does not count": {
			now: "12:00:00", cronTab: hourly,
			prepare: func(f *fixture) {
				f.refused.Store(testKey("backup"), refusedJob{jobAttempt{"former", 1, jobName("backup", moment("12:00:00"))}, moment("13:10:00")})
				f.unrecorded.Store(testKey("backup"), startedRuns{"former", []time.Time{moment("12:00:00")}, moment("12:00:00")})
			},
			requests: []string{getLive, createRun, started}, events: []string{"Normal Created"}, requeueAfter: time.Minute},
		"rule C16: an owner reference that admission removes is a refusal": {
			now: "12:00:00", cronTab: hourly,
			prepare: func(f *fixture) {
				f.prepend("create", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
					return true, jobAt("12:00:00", ownedBy("", "", "")), nil
				})
			},
			requests: []string{getLive, createRun, rejected}, events: []string{"Warning JobRejected"}, err: "owner reference", requeueAfter: minRetry},
		"rule C16: in a terminating namespace the sync stops without an error": {
			now: "12:00:00", cronTab: hourly, prepare: failing("create", "jobs", errTerminating()),
			requests: []string{getLive, createRun}},
		"rule C16: a server error is reported as a refusal is, and retried": {
			now: "12:00:00", cronTab: hourly, prepare: failing("create", "jobs", errServer()),
			requests: []string{getLive, createRun, rejected}, events: []string{"Warning JobRejected"},
			err: `creating Job "backup-1795262400": Internal error occurred: connection refused`, requeueAfter: time.Minute},
		"rule C16: a run that is created after a server error is recorded": {
			now: "12:00:01", cronTab: newCronTab("11:00:00", failedAt("12:00:00")),
			requests: []string{getLive, createRun, started}, events: []string{"Normal Created"}, requeueAfter: time.Minute},
		"rule C16: a repeated server error changes nothing": {
			now: "12:10:00", cronTab: newCronTab("11:00:00", failedAt("12:00:00")), prepare: failing("create", "jobs", errServer()),
			requests: []string{getLive, createRun}, err: "connection refused", requeueAfter: time.Minute},
		"rule C16: an overload is retried, and does not change the status": {
			now: "12:00:00", cronTab: hourly, prepare: failing("create", "jobs", apierrors.NewTooManyRequests("later", 1)),
			requests: []string{getLive, createRun}, err: `creating Job "backup-1795262400": later`, requeueAfter: time.Minute},
		"rule C16: a lost connection is retried, and does not change the status": {
			now: "12:00:00", cronTab: hourly, prepare: failing("create", "jobs", errors.New("connection refused")),
			requests: []string{getLive, createRun}, err: `creating Job "backup-1795262400": connection refused`, requeueAfter: time.Minute},
		"rule C19: a status that is not stored has no events, but those of writes": {
			now: "12:00:00", cronTab: hourly, prepare: failing("patch", "crontabs", errConflict()),
			requests: []string{getLive, createRun, started}, events: []string{"Normal Created"}, err: "updating the status of CronTab", requeueAfter: time.Minute},
		"rule C16: the error names both a refusal and a failed status update": {
			now: "12:00:00", cronTab: hourly,
			prepare: func(f *fixture) {
				failing("create", "jobs", errQuota())(f)
				failing("patch", "crontabs", errConflict())(f)
			},
			requests: []string{getLive, createRun, rejected}, err: "used: count/jobs.batch=1\nupdating the status of CronTab", requeueAfter: minRetry},
		"rule C16: without a next run a failed status update is retried with backoff only": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", suspended), prepare: failing("patch", "crontabs", errQuota()),
			requests: []string{putStatus + "last=11:00:00 missed= next= active=0 False/Suspended"}, err: "exceeded quota"},
		"rule C7: no run is started if the CronTab cannot be read": {
			now: "12:00:00", cronTab: hourly, prepare: failing("get", "crontabs", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{getLive}, err: "reading CronTab ns/backup: Internal error occurred: oops", requeueAfter: time.Minute},
		"rule C6: slow answers do not delay the next run": {
			now: "11:59:58", cronTab: newCronTab("11:00:00"),
			prepare: func(f *fixture) {
				f.prepend("patch", "crontabs", func(clienttesting.Action) (bool, runtime.Object, error) {
					time.Sleep(700 * time.Millisecond)
					return false, nil, nil
				})
			},
			requests: []string{putStatus + "last=11:00:00 missed= next=12:00:00 active=0 True/Scheduled"}, requeueAfter: 1300 * time.Millisecond},
		"rule C6: a refused status update does not delay the next run": {
			now: "11:59:58", cronTab: newCronTab("11:00:00"), prepare: failing("patch", "crontabs", errQuota()),
			requests: []string{putStatus + "last=11:00:00 missed= next=12:00:00 active=0 True/Scheduled"}, err: "exceeded quota", requeueAfter: 2 * time.Second},
	}
}

// TestNewTwice: New returns an error if an informer has the index already.
func TestNewTwice(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "11:30:00", nil, nil)
		if _, err := New(ctx, f.options); err == nil || !strings.Contains(err.Error(), "adding an index to the Job informer") {
			t.Errorf("error %v", err)
		}
	})
}
