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
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/component-base/metrics/testutil"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
)

// jobEnder ends each Job some time after its creation, as the Job controller does, and
// records when each was created.
type jobEnder struct {
	mu      sync.Mutex
	created map[string][]string
}

func newJobEnder(ctx context.Context, t *testing.T, f *fixture, takes time.Duration) *jobEnder {
	t.Helper()
	a := &jobEnder{created: map[string][]string{}}
	f.kube.PrependReactor("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
		create := action.(clienttesting.CreateActionImpl)
		if len(create.CreateOptions.DryRun) > 0 {
			return false, nil, nil
		}
		name := create.Object.(*batchv1.Job).Name
		a.mu.Lock()
		defer a.mu.Unlock()
		a.created[name] = append(a.created[name], time.Now().Format("02T15:04:05.999"))
		time.AfterFunc(takes, func() { a.end(ctx, t, f, name) })
		return false, nil, nil
	})
	return a
}

func (a *jobEnder) end(ctx context.Context, t *testing.T, f *fixture, name string) {
	jobs := f.kube.BatchV1().Jobs("ns")
	job, err := jobs.Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		t.Errorf("Job %s was deleted before it ended: %v", name, err)
		return
	}
	complete(time.Now().UTC().Format("02T15:04:05"))(job)
	if _, err := jobs.UpdateStatus(ctx, job, metav1.UpdateOptions{}); err != nil {
		t.Error(err)
	}
}

// names returns the names of all Jobs, sorted.
func (f *fixture) names(ctx context.Context, t *testing.T) []string {
	t.Helper()
	list, err := f.kube.BatchV1().Jobs("ns").List(ctx, metav1.ListOptions{})
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for i := range list.Items {
		names = append(names, list.Items[i].Name)
	}
	slices.Sort(names)
	return names
}

// create creates the CronTab as of now, without a status.
func (f *fixture) create(ctx context.Context, t *testing.T, name, schedule string, options ...cronTabOption) {
	t.Helper()
	cronTab := newUnseen(append(options, schedulesAt(schedule))...)
	cronTab.Name, cronTab.UID = name, ""
	if _, err := f.client.AlphaV1().CronTabs("ns").Create(ctx, cronTab, metav1.CreateOptions{}); err != nil {
		t.Fatal(err)
	}
	synctest.Wait()
}

// TestRun runs the controller for a day with two CronTabs.
func TestRun(t *testing.T) {
	skipIfShort(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "00:00:30", nil, nil)
		a := newJobEnder(ctx, t, f, 20*time.Second)
		stop := f.start(ctx, t)
		f.create(ctx, t, "hourly", "@hourly")
		f.create(ctx, t, "often", "@every 22m30s")
		time.Sleep(24 * time.Hour)
		synctest.Wait()

		want := map[string][]string{}
		for due := moment("01:00:00"); !due.After(moment("22T00:00:30")); due = due.Add(time.Hour) {
			want[jobName("hourly", due)] = []string{due.Format("02T15:04:05.999")}
		}
		for due := moment("00:23:00"); !due.After(moment("22T00:00:30")); due = due.Add(22*time.Minute + 30*time.Second) {
			want[jobName("often", due)] = []string{due.Format("02T15:04:05.999")}
		}
		if len(want) != 24+64 {
			t.Fatalf("the test expects %d Jobs", len(want))
		}
		differ(t, "rule C6: the Jobs and when they were created", want, a.created)
		kept := []string{
			jobName("hourly", moment("22:00:00")), jobName("hourly", moment("23:00:00")), jobName("hourly", moment("22T00:00:00")),
			jobName("often", moment("22:53:00")), jobName("often", moment("23:15:30")), jobName("often", moment("23:38:00")), jobName("often", moment("22T00:00:30")),
		}
		slices.Sort(kept)
		differ(t, "rule C17: the Jobs that are kept", kept, f.names(ctx, t))
		counts := map[string]int{}
		for _, event := range f.recorded() {
			counts[event]++
		}
		differ(t, "rule C19: events", map[string]int{"Normal Created": 88, "Normal JobCompleted": 87, "Normal Deleted": 81}, counts)
		stop()
	})
}

// TestDueRunsGoFirst: what waits already, such as the statuses of runs that were started, does not
// delay a run that is due. After a failure it does: the backoff adds the key as well.
func TestDueRunsGoFirst(t *testing.T) {
	for name, c := range map[string]struct {
		prepare func(*fixture)
		want    []string
	}{
		"rule C20: a run that is due goes first":      {func(*fixture) {}, []string{"backup", "0", "1", "2"}},
		"rule C20: after a failure it takes its turn": {failing("patch", "crontabs", errServer()), []string{"0", "1", "2", "backup"}},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cronTabs := []*alphav1.CronTab{newCronTab("11:00:00", recordedAt("11:30:00"))}
				cronTabs[0].Status.NextScheduleTime = nil
				ctx, f := newFixture(t, "11:40:00", cronTabs, nil)
				f.fill(t, cronTabs, nil)
				c.prepare(f)
				// Errors are the Worker's.
				delay, _ := f.syncHandler(ctx, testKey("backup"))
				for i := range 3 {
					f.Worker.Queue.Add(testKey(fmt.Sprint(i)))
				}
				f.Worker.Queue.AddAfter(testKey("backup"), delay)
				differ(t, "the order", c.want, f.enqueued(delay))
			})
		})
	}
}

// TestRunCostsNothing: CronTabs without a run cause no request for a day.
func TestRunCostsNothing(t *testing.T) {
	skipIfShort(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "12:00:00", nil, nil)
		a := newJobEnder(ctx, t, f, 20*time.Second)
		f.listen()
		stop := f.start(ctx, t)
		f.create(ctx, t, "suspended", "* * * * *", suspended)
		f.create(ctx, t, "broken", "0 25 * * *")
		f.create(ctx, t, "never", "0 0 30 2 *")
		f.create(ctx, t, "monthly", "@monthly")
		synctest.Wait()
		f.requests()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		differ(t, "rule C21: requests in a day", []string(nil), f.requests())
		differ(t, "Jobs", map[string][]string{}, a.created)
		stop()
	})
}

// TestRunOnceADay: the requests for one run.
func TestRunOnceADay(t *testing.T) {
	skipIfShort(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "20T23:00:00", nil, nil)
		newJobEnder(ctx, t, f, 20*time.Second)
		f.listen()
		stop := f.start(ctx, t)
		f.create(ctx, t, "daily", "@daily")
		synctest.Wait()
		f.requests()
		time.Sleep(24 * time.Hour)
		synctest.Wait()
		var sent []string
		for _, request := range f.requests() {
			sent = append(sent, strings.Join(strings.Fields(request)[:3], " "))
		}
		// This includes the two of the jobEnder.
		differ(t, "rule C21: requests in a day with one run", []string{
			"get crontabs daily", "create jobs 00:00:00", "patch crontabs/status daily", "get jobs 00:00:00", "update jobs/status by", "patch crontabs/status daily",
		}, sent)
		stop()
	})
}

// TestRunChanges: what a user does while the controller runs.
func TestRunChanges(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "12:00:00", nil, nil)
		a := newJobEnder(ctx, t, f, time.Second)
		stop := f.start(ctx, t)
		f.create(ctx, t, "backup", "@every 10m")
		cronTabs := f.client.AlphaV1().CronTabs("ns")
		change := func(option cronTabOption) {
			t.Helper()
			cronTab, err := cronTabs.Get(ctx, "backup", metav1.GetOptions{})
			if err != nil {
				t.Fatal(err)
			}
			option(cronTab)
			cronTab.Generation++
			if _, err := cronTabs.Update(ctx, cronTab, metav1.UpdateOptions{}); err != nil {
				t.Fatal(err)
			}
		}
		time.Sleep(15 * time.Minute) // one run at 12:10
		change(suspended)
		time.Sleep(10 * time.Minute) // none at 12:20
		change(func(cronTab *alphav1.CronTab) { cronTab.Spec.Suspend = nil })
		time.Sleep(time.Minute) // that one at 12:25
		change(schedulesAt("@every 4m"))
		time.Sleep(5 * time.Minute) // one 4 minutes after 12:26
		if err := cronTabs.Delete(ctx, "backup", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Hour)
		synctest.Wait()
		var runs []string
		for name, times := range maps.All(a.created) {
			runs = append(runs, fmt.Sprintf("%s at %s", runNamed(name), strings.Join(times, " and ")))
		}
		slices.Sort(runs)
		differ(t, "rules C12 and C13: the runs and when they were started", []string{"12:10:00 at 21T12:10:00", "12:20:00 at 21T12:25:00", "12:30:00 at 21T12:30:00"}, runs)
		stop()
	})
}

// TestPanic: if the sync of one CronTab panics, the other is synced, and the first is retried.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "12:00:00", nil, nil)
		panics := 0
		f.kube.PrependReactor("create", "jobs", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if strings.HasPrefix(action.(clienttesting.CreateAction).GetObject().(*batchv1.Job).Name, "bad-") {
				if panics++; panics <= 3 {
					panic("three times")
				}
			}
			return false, nil, nil
		})
		stop := f.start(ctx, t)
		f.create(ctx, t, "bad", "@hourly")
		f.create(ctx, t, "good", "@hourly")
		time.Sleep(61 * time.Minute)
		synctest.Wait()
		differ(t, "rule C16: Jobs", []string{jobName("bad", moment("13:00:00")), jobName("good", moment("13:00:00"))}, f.names(ctx, t))
		stop()
	})
}

// TestRunIsOnTime: failing deletions do not delay runs.
func TestRunIsOnTime(t *testing.T) {
	skipIfShort(t)
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "12:00:00", nil, nil)
		a := newJobEnder(ctx, t, f, time.Second)
		failing("delete", "jobs", errQuota())(f)
		stop := f.start(ctx, t)
		f.create(ctx, t, "backup", "@every 10m", keeps(0, 0))
		time.Sleep(4 * time.Hour)
		synctest.Wait()
		for name, times := range a.created {
			if due := dueTime(named("backup", name)); len(times) != 1 || times[0] != due.Format("02T15:04:05") {
				t.Errorf("rule C6: Job %s was created at %v", name, times)
			}
		}
		if len(a.created) != 24 {
			t.Errorf("rule C6: %d Jobs", len(a.created))
		}
		stop()
	})
}

// TestRunRefusals: a refusal that reads differently each time is retried with backoff only.
func TestRunRefusals(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "12:00:00", nil, nil)
		var tries atomic.Int64
		f.prepend("create", "jobs", func(clienttesting.Action) (bool, runtime.Object, error) {
			return true, nil, apierrors.NewForbidden(jobsGroup, "backup", errors.New("denied"+strings.Repeat("!", int(tries.Add(1)))))
		})
		// An API server sends the event of a write about when it answers. If the event comes
		// first, it enqueues the CronTab once more, which is not tested here.
		respond := f.client.WatchReactionChain[0]
		f.client.PrependWatchReactor("crontabs", func(action clienttesting.Action) (bool, watch.Interface, error) {
			handled, events, err := respond.React(action)
			if err != nil {
				return handled, nil, err
			}
			return handled, watch.Filter(events, func(event watch.Event) (watch.Event, bool) {
				time.Sleep(time.Millisecond)
				return event, true
			}), nil
		})
		stop := f.start(ctx, t)
		f.create(ctx, t, "backup", "@hourly")
		time.Sleep(70 * time.Minute)
		synctest.Wait()
		if n := tries.Load(); n < 10 || n > 60 {
			t.Errorf("rule C16: a refused Job was tried %d times in 10 minutes", n)
		}
		stop()
	})
}

// TestHandlers: events of the informers reach the queue, and a delete event ends the
// expectation of it.
func TestHandlers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newFixture(t, "11:30:00", nil, nil)
		ctx, cancel := context.WithCancel(ctx)
		f.kubeInformers.StartWithContext(ctx)
		f.informers.StartWithContext(ctx)
		if err := f.Worker.StartEventHandlers(ctx); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		f.create(ctx, t, "backup", "@hourly")
		differ(t, "enqueued by a new CronTab", []string{"backup"}, f.enqueued(0))
		job := jobAt("11:00:00")
		if _, err := f.kube.BatchV1().Jobs("ns").Create(ctx, job, metav1.CreateOptions{}); err != nil {
			t.Fatal(err)
		}
		differ(t, "enqueued by a new Job", []string{"backup"}, f.enqueued(0))
		f.cronTabs.DeletionAccepted(job.UID)
		if err := f.kube.BatchV1().Jobs("ns").Delete(ctx, job.Name, metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		differ(t, "enqueued by the deletion of the Job", []string{"backup"}, f.enqueued(0))
		if f.cronTabs.IsDeleted(job.UID) {
			t.Error("the deleted Job still counts as terminating")
		}
		if err := f.client.AlphaV1().CronTabs("ns").Delete(ctx, "backup", metav1.DeleteOptions{}); err != nil {
			t.Fatal(err)
		}
		differ(t, "enqueued by the deletion of the CronTab", []string{"backup"}, f.enqueued(0))
		cancel()
		f.kubeInformers.Shutdown()
		f.informers.Shutdown()
	})
}

// TestMetrics: the metrics after a run was replaced.
func TestMetrics(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		jobs := atTestVersion([]*batchv1.Job{jobAt("11:00:00")})
		cronTabs := []*alphav1.CronTab{newCronTab("11:00:00", policy(alphav1.ReplaceConcurrent), recordedAt("11:30:00", jobs...))}
		ctx, f := newFixture(t, "12:00:03", cronTabs, jobs)
		f.fill(t, cronTabs, jobs)
		if _, err := f.syncHandler(ctx, testKey("backup")); err != nil {
			t.Fatal(err)
		}
		const want = `# HELP sample_controller_crontabs [ALPHA] Number of CronTabs in this process's cache, by the status and the reason of their Ready condition; Unknown and an empty reason for those that have none. Every replica reports all.
# TYPE sample_controller_crontabs gauge
sample_controller_crontabs{ready="True",reason="Scheduled"} 1
# HELP sample_controller_writes_total [ALPHA] Number of writes that the API server accepted, by controller, resource and verb. Events and the lease are not among them.
# TYPE sample_controller_writes_total counter
sample_controller_writes_total{controller="crontab",resource="crontabs/status",verb="patch"} 1
sample_controller_writes_total{controller="crontab",resource="jobs",verb="create"} 1
sample_controller_writes_total{controller="crontab",resource="jobs",verb="delete"} 1
# HELP crontab_controller_job_creation_skew_duration_seconds [ALPHA] Time between when a run of a CronTab is to be started, and when its Job is created.
# TYPE crontab_controller_job_creation_skew_duration_seconds histogram
crontab_controller_job_creation_skew_duration_seconds_bucket{le="1"} 0
crontab_controller_job_creation_skew_duration_seconds_bucket{le="2"} 0
crontab_controller_job_creation_skew_duration_seconds_bucket{le="4"} 1
crontab_controller_job_creation_skew_duration_seconds_bucket{le="8"} 1
crontab_controller_job_creation_skew_duration_seconds_bucket{le="16"} 1
crontab_controller_job_creation_skew_duration_seconds_bucket{le="32"} 1
crontab_controller_job_creation_skew_duration_seconds_bucket{le="64"} 1
crontab_controller_job_creation_skew_duration_seconds_bucket{le="128"} 1
crontab_controller_job_creation_skew_duration_seconds_bucket{le="256"} 1
crontab_controller_job_creation_skew_duration_seconds_bucket{le="512"} 1
crontab_controller_job_creation_skew_duration_seconds_bucket{le="+Inf"} 1
crontab_controller_job_creation_skew_duration_seconds_sum 3
crontab_controller_job_creation_skew_duration_seconds_count 1
`
		if err := testutil.GatherAndCompare(f.registry, strings.NewReader(want), "sample_controller_crontabs", "sample_controller_writes_total", "crontab_controller_job_creation_skew_duration_seconds"); err != nil {
			t.Error(err)
		}
	})
}
