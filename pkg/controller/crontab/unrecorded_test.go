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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	typedbatchv1 "k8s.io/client-go/kubernetes/typed/batch/v1"
	clienttesting "k8s.io/client-go/testing"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// TestJobsThatVanish: the Jobs complete and are deleted, as with ttlSecondsAfterFinished 0, before the
// statuses record their runs.
func TestJobsThatVanish(t *testing.T) {
	refusesStatuses := func(f *fixture) {
		f.prepend("patch", "crontabs", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !time.Now().Before(moment("12:00:00")) && time.Now().Before(moment("12:00:20")), nil, errConflict()
		})
	}
	for name, test := range map[string]struct {
		cronTabs int
		prepare  func(*fixture)
		// asked is when users ask for one more run of each.
		asked string
		// restarts says that the process ends three seconds after the runs were due.
		restarts bool
	}{
		"rule C15: runs of many CronTabs are due":                          {cronTabs: 40, prepare: func(*fixture) {}},
		"rule C15: a restart in a busy minute":                             {cronTabs: 40, prepare: func(*fixture) {}, restarts: true},
		"rule C15: the API server refuses statuses for a while":            {cronTabs: 1, prepare: refusesStatuses},
		"rule C15: it does while a run of the schedule and another is due": {cronTabs: 1, prepare: refusesStatuses, asked: "12:00:05"},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				created := make(chan string, 10_000)
				var ctx context.Context
				var f *fixture
				slow := func(client kubernetes.Interface) kubernetes.Interface {
					return slowClient{client, func(job *batchv1.Job) {
						created <- job.Name
						time.AfterFunc(time.Second, func() { f.endAndDelete(context.WithoutCancel(ctx), t, job) })
					}}
				}
				ctx, f = newFixture(t, "11:00:30", nil, nil, slow)
				test.prepare(f)
				stop := f.start(ctx, t)
				want := map[string]int{}
				for number := range test.cronTabs {
					name := fmt.Sprint("c", number)
					f.create(ctx, t, name, "0 * * * *")
					want[jobName(name, moment("12:00:00"))] = 1
					if test.asked != "" {
						f.ask(ctx, t, name, test.asked)
						want[manualJobName(name, moment(test.asked))] = 1
					}
				}
				if test.restarts {
					time.Sleep(time.Until(moment("12:00:03")))
					stop()
					f.newProcess(ctx, t, slow)
					stop = f.start(ctx, t)
				}
				time.Sleep(time.Until(moment("12:02:00")))
				synctest.Wait()
				got := map[string]int{}
				for len(created) > 0 {
					got[<-created]++
				}
				differ(t, "how often each run was started", want, got)
				cronTabs, err := f.client.AlphaV1().CronTabs("ns").List(ctx, metav1.ListOptions{})
				if err != nil {
					t.Fatal(err)
				}
				for _, cronTab := range cronTabs.Items {
					status := cronTab.Status
					if !timeOf(status.LastScheduleTime).Equal(moment("12:00:00")) || status.ActiveCount != 0 {
						t.Errorf("status %s", summary(&cronTab))
					}
				}
				counts := map[string]int{}
				for _, event := range f.recorded() {
					counts[event]++
				}
				differ(t, "events of starts", len(want), counts["Normal Created"])
				stop()
			})
		})
	}
}

// ask asks for a run of the CronTab at the time.
func (f *fixture) ask(ctx context.Context, t *testing.T, name, clock string) {
	t.Helper()
	f.edit(ctx, t, name, askedToday(clock))
}

// edit changes the CronTab.
func (f *fixture) edit(ctx context.Context, t *testing.T, name string, change func(*alphav1.CronTab)) {
	t.Helper()
	cronTab, err := f.client.AlphaV1().CronTabs("ns").Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	change(cronTab)
	if _, err := f.client.AlphaV1().CronTabs("ns").Update(ctx, cronTab, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// TestNeverCreated: the API server refuses Jobs for a day.
func TestNeverCreated(t *testing.T) {
	for name, test := range map[string]struct {
		schedule string
		cronTabs int
		// edited is when a user changes the CronTabs, not at all if "".
		edited         string
		refused        error
		from, until    string
		atLeast, tries int
	}{
		"rule C16: the delays of the CronJob controller, up to 1000 s":    {schedule: "0 12 * * *", cronTabs: 1, refused: errQuota(), from: "12:00:00", until: "22T11:59:59", atLeast: 100, tries: 105},
		"rule C16: a change is tried at once, and the delays begin again": {schedule: "0 12 * * *", cronTabs: 1, edited: "18:00:00", refused: errQuota(), from: "18:00:00", until: "18:01:00", atLeast: 10, tries: 15},
		"rule C16: what a dry run refuses, every 5 minutes":               {schedule: "0 12 1 1 *", cronTabs: 1, refused: errInvalid(), from: "12:00:00", until: "22T11:59:59", atLeast: 288, tries: 290},
		"rule 25: a namespace with many refusals is slowed down":          {schedule: "0 12 * * *", cronTabs: 300, refused: errQuota(), from: "12:00:00", until: "12:00:10", atLeast: 300, tries: 510},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newFixture(t, "11:00:30", nil, nil)
				tries := 0
				f.prepend("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
					isDryRun := len(action.(clienttesting.CreateActionImpl).CreateOptions.DryRun) > 0
					if isDryRun == apierrors.IsInvalid(test.refused) && !time.Now().Before(moment(test.from)) {
						tries++
					}
					return true, nil, test.refused
				})
				stop := f.start(ctx, t)
				for number := range test.cronTabs {
					f.create(ctx, t, fmt.Sprint("c", number), test.schedule)
				}
				if test.edited != "" {
					time.Sleep(time.Until(moment(test.edited)))
					f.edit(ctx, t, "c0", func(cronTab *alphav1.CronTab) { cronTab.Generation++ })
				}
				time.Sleep(time.Until(moment(test.until)))
				stop()
				if tries < test.atLeast || tries > test.tries {
					t.Errorf("%d creations, and not %d to %d", tries, test.atLeast, test.tries)
				}
			})
		})
	}
}

// TestManyUnrecorded: the API server refuses the statuses of many runs.
func TestManyUnrecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "11:00:30", nil, nil)
		f.prepend("patch", "crontabs", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !time.Now().Before(moment("11:01:00")), nil, errConflict()
		})
		stop := f.start(ctx, t)
		f.create(ctx, t, "backup", "@every 10s")
		time.Sleep(time.Until(moment("11:31:00")))
		stop()
		known, ok := f.unrecorded.Load(testKey("backup"))
		if !ok || len(known.(startedRuns).scheduled) != maxUnrecorded {
			t.Errorf("remembers %v, and not the last %d runs", known, maxUnrecorded)
		}
	})
}

// TestLargeCronTabs is rule 24 of the Foo contract: of CronTabs whose Pod specs may be large in memory
// one run is started at a time.
func TestLargeCronTabs(t *testing.T) {
	for size, want := range map[int]time.Duration{1: 0, 40_000: 200 * time.Millisecond} {
		synctest.Test(t, func(t *testing.T) {
			var created []time.Time
			ctx, f := newFixture(t, "11:00:30", nil, nil, func(client kubernetes.Interface) kubernetes.Interface {
				return slowClient{client, func(*batchv1.Job) { created = append(created, time.Now()) }}
			})
			stop := f.start(ctx, t)
			for _, name := range []string{"a", "b"} {
				f.create(ctx, t, name, "0 * * * *", func(cronTab *alphav1.CronTab) {
					cronTab.Spec.JobTemplate.Containers[0].Args = []string{strings.Repeat("x", size)}
				})
			}
			time.Sleep(time.Until(moment("12:00:10")))
			stop()
			if len(created) != 2 || created[1].Sub(created[0]) != want {
				t.Errorf("rule 24: with %d bytes the runs are started at %v", size, created)
			}
		})
	}
}

// TestJobVanishesUnseen: a user deletes a Job that has not ended before the status records its run.
func TestJobVanishesUnseen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "11:00:30", nil, nil)
		starts := 0
		f.prepend("create", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			starts++
			return false, nil, nil
		})
		f.prepend("patch", "crontabs", func(clienttesting.Action) (bool, runtime.Object, error) {
			return !time.Now().Before(moment("12:00:00")) && time.Now().Before(moment("12:00:20")), nil, errConflict()
		})
		stop := f.start(ctx, t)
		f.create(ctx, t, "backup", "0 * * * *", policy(alphav1.ForbidConcurrent))
		time.Sleep(time.Until(moment("12:00:10")))
		if err := f.kube.BatchV1().Jobs("ns").Delete(ctx, jobName("backup", moment("12:00:00")), metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		// The backoff lasts as long as the refusals. The sync after the status finds that the Job is gone.
		time.Sleep(time.Until(moment("12:00:40")))
		synctest.Wait()
		cronTab, err := f.client.AlphaV1().CronTabs("ns").Get(ctx, "backup", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		differ(t, "rule C15: the status", "last=12:00:00 missed= next=13:00:00 active=0 True/Scheduled", summary(cronTab))
		// One of them is the dry run of a new spec.
		differ(t, "rule C15: creations", 2, starts)
		stop()
	})
}

// endAndDelete completes the Job and deletes it.
func (f *fixture) endAndDelete(ctx context.Context, t *testing.T, job *batchv1.Job) {
	t.Helper()
	complete(clockOf(time.Now()))(job)
	if _, err := f.kube.BatchV1().Jobs("ns").UpdateStatus(ctx, job, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
	if err := f.kube.BatchV1().Jobs("ns").Delete(ctx, job.Name, metav1.DeleteOptions{}); err != nil {
		t.Error(err)
	}
}

// slowClient is a client whose creations of Jobs take 200 ms. It calls created for each.
type slowClient struct {
	kubernetes.Interface

	created func(*batchv1.Job)
}

func (s slowClient) BatchV1() typedbatchv1.BatchV1Interface {
	return slowBatch{s.Interface.BatchV1(), s.created}
}

type slowBatch struct {
	typedbatchv1.BatchV1Interface

	created func(*batchv1.Job)
}

func (s slowBatch) Jobs(namespace string) typedbatchv1.JobInterface {
	return slowJobs{s.BatchV1Interface.Jobs(namespace), s.created}
}

type slowJobs struct {
	typedbatchv1.JobInterface

	created func(*batchv1.Job)
}

func (s slowJobs) Create(ctx context.Context, job *batchv1.Job, options metav1.CreateOptions) (*batchv1.Job, error) {
	time.Sleep(200 * time.Millisecond)
	created, err := s.JobInterface.Create(ctx, job, options)
	if err == nil && len(options.DryRun) == 0 {
		s.created(created.DeepCopy())
	}
	return created, err
}
