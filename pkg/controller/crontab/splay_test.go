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
	"math/rand/v2"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// splays sets splaySeconds. The offset of "uid-backup" is 10 s of 60 and 1870 s of 3600.
func splays(seconds int32) cronTabOption {
	return func(cronTab *alphav1.CronTab) { cronTab.Spec.SplaySeconds = &seconds }
}

// TestDecideWithSplay: the CronTab of the table has a run at every full hour.
func TestDecideWithSplay(t *testing.T) {
	checkDecisions(t, map[string]decideTest{
		"rule C24: a run that is due waits": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", splays(60)), want: "next 12:00:00, requeue after 10s"},
		"rule C24: a run is started after the offset": {
			now: "12:00:10", cronTab: newCronTab("11:00:00", splays(60)), want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C24: 0 is no offset": {
			now: "12:00:00", cronTab: newCronTab("11:00:00", splays(0)), want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C24: a run that was due before the creation is not started": {
			now: "12:00:10", cronTab: newCronTab("", splays(60), createdAt("12:00:05")), want: "next 13:00:00, requeue after 1m0s"},
		"rule C24: the clock is not behind while the creation is less than the offset ago": {
			now: "12:00:37", cronTab: newCronTab("", splays(3600), createdAt("12:00:10")), want: "next 13:00:00, requeue after 1m0s"},
		"rule C24: the offset may be longer than the period": {
			now: "12:31:33", cronTab: newCronTab("12:00:00", schedulesAt("* * * * *"), splays(3600)), want: "next 12:01:00, requeue after 37s"},
		"rule C24: the deadline counts from the offset": {
			now: "12:00:40", cronTab: newCronTab("11:00:00", splays(60), deadline(30)), want: "start 12:00:00, next 13:00:00, requeue after 1s"},
		"rule C24: the deadline has passed": {
			now: "12:00:41", cronTab: newCronTab("11:00:00", splays(60), deadline(30)), want: "MissedDeadline 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C24: after downtime the latest run whose time has come is started": {
			now: "12:00:00", cronTab: newCronTab("09:00:00", splays(60)), want: "Superseded 10:00:00, start 11:00:00, next 12:00:00, requeue after 10s"},
		"rule C24: a run that is held when the schedule changes waits": {
			now: "12:00:05", cronTab: newCronTab("11:00:00", splays(60), schedulesAt("30 * * * *"), scheduled("0 * * * *", "20T10:30:00")), want: "next 12:00:00, requeue after 5s"},
		"rule C24: it is started after the offset": {
			now: "12:00:10", cronTab: newCronTab("11:00:00", splays(60), schedulesAt("30 * * * *"), scheduled("0 * * * *", "20T10:30:00"), writtenBy("", "12:00:05")), want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C24: then the new schedule is followed": {
			now: "12:00:11", cronTab: newCronTab("12:00:00", splays(60), schedulesAt("30 * * * *"), scheduled("0 * * * *", "20T10:30:00"), writtenBy("", "12:00:05")), want: "next 12:30:00, requeue after 1m0s"},
		"rule C24: another zone is another schedule": {
			now: "12:00:10", cronTab: newCronTab("11:00:00", splays(60), scheduled("0 * * * *", "20T10:30:00"), inZone("Asia/Kathmandu"), writtenBy("", "12:00:05")), want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C24: late, no run of a former schedule is started that was due after the change": {
			now: "13:10:00", cronTab: newCronTab("11:00:00", splays(60), schedulesAt("30 * * * *"), scheduled("0 * * * *", "20T10:30:00"), writtenBy("", "12:00:05")), want: "start 12:00:00, next 13:00:00, requeue after 1m0s"},
		"rule C24: a run of a former schedule whose time had come is missed": {
			now: "12:00:20", cronTab: newCronTab("11:00:00", splays(60), schedulesAt("30 * * * *"), scheduled("0 * * * *", "20T10:30:00")), want: "ScheduleChanged 12:00:00, next 12:30:00, requeue after 1m0s"},
		"rule C24: a run that was started before the offset changed is not started again": {
			now: "12:00:05", cronTab: newCronTab("12:00:00", splays(60)), want: "next 13:00:00, requeue after 1m0s"},
	})
}

// TestOffsets: the offsets of many CronTabs are spread evenly, and the message tells that of one.
func TestOffsets(t *testing.T) {
	const cronTabs, seconds = 10_000, 100
	random, counts := rand.NewChaCha8([32]byte{}), map[time.Duration]int{}
	for range cronTabs {
		uid := fmt.Sprintf("%08x-%04x-4%03x-8%03x-%012x", random.Uint64()>>32, random.Uint64()>>48, random.Uint64()>>52, random.Uint64()>>52, random.Uint64()>>16)
		counts[offsetOf(newCronTab("", splays(seconds), func(c *alphav1.CronTab) { c.UID = types.UID(uid) }))]++
	}
	for second := range seconds {
		if n := counts[time.Duration(second)*time.Second]; n < 60 || n > 140 {
			t.Errorf("rule C24: %d of %d CronTabs start in second %d of %d", n, cronTabs, second, seconds)
		}
	}
	differ(t, "rule C24: seconds with a start", seconds, len(counts))
	status, _ := statusAndEvents("11:30:00", newCronTab("11:00:00", splays(60)), nil, nil, result{})
	differ(t, "rule C24: message", `the schedule "0 * * * *" is followed, in the time zone UTC; each run is started 10s after it is due`, status.Conditions[0].Message)
}

// TestSplayInTime: runs are started after the offset, and the skew does not count it.
func TestSplayInTime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "11:30:00", nil, nil)
		newJobEnder(ctx, t, f, 20*time.Second)
		stop := f.start(ctx, t)
		if _, err := f.client.AlphaV1().CronTabs("ns").Create(ctx, newUnseen(createdAt("11:30:00"), splays(60)), metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(30*time.Minute + 9*time.Second)
		differ(t, "rule C24: Jobs before the offset", 0, len(jobsIn(ctx, t, f)))
		time.Sleep(2 * time.Second)
		jobs := jobsIn(ctx, t, f)
		if len(jobs) != 1 || jobs[0].Name != jobName("backup", moment("12:00:00")) || !jobs[0].CreationTimestamp.Time.Equal(moment("12:00:10")) {
			t.Errorf("rule C24: the Jobs are %+v", jobs)
		}
		differ(t, "rule C24: skew", 0.0, metricValue(t, f, "crontab_controller_job_creation_skew_duration_seconds"))
		stop()
	})
}

func jobsIn(ctx context.Context, t *testing.T, f *fixture) []batchv1.Job {
	t.Helper()
	list, err := f.kube.BatchV1().Jobs("ns").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return list.Items
}
