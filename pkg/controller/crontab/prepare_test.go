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
	"strings"
	"testing"
	"testing/synctest"
	"time"

	batchv1 "k8s.io/api/batch/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"

	alphav1 "example.com/sample-controller/pkg/apis/alpha/v1"
	clientset "example.com/sample-controller/pkg/generated/clientset/versioned"
	typedalphav1 "example.com/sample-controller/pkg/generated/clientset/versioned/typed/alpha/v1"
)

// TestPrepare syncs a CronTab two seconds before its run is due, and when it is.
func TestPrepare(t *testing.T) {
	running := jobAt("11:00:00")
	hourly := newCronTab("11:00:00", recordedAt("11:30:00"))
	forbids := newCronTab("11:00:00", policy(alphav1.ForbidConcurrent), recordedAt("11:30:00", running))
	// replaced puts a changed copy of the CronTab into the cache and the API server.
	replaced := func(change func(*alphav1.CronTab)) func(*testing.T, context.Context, *fixture) {
		return func(t *testing.T, _ context.Context, f *fixture) {
			t.Helper()
			changed := hourly.DeepCopy()
			changed.ResourceVersion = "11"
			change(changed)
			if err := f.client.Tracker().Update(alphav1.Resource("crontabs").WithVersion("v1"), changed, "ns"); err != nil {
				t.Fatal(err)
			}
			f.fill(t, []*alphav1.CronTab{changed}, nil)
		}
	}
	resynced := func(at string) func(*testing.T, context.Context, *fixture) {
		return func(t *testing.T, ctx context.Context, f *fixture) {
			t.Helper()
			time.Sleep(time.Until(moment(at)))
			if _, err := f.syncHandler(ctx, testKey("backup")); err != nil {
				t.Error(err)
			}
		}
	}
	// once makes the first request of that verb and resource fail.
	once := func(verb, resource string, err error) func(*fixture) {
		return func(f *fixture) {
			failed := false
			f.prepend(verb, resource, func(clienttesting.Action) (bool, runtime.Object, error) {
				defer func() { failed = true }()
				return !failed, nil, err
			})
		}
	}
	for name, test := range map[string]struct {
		cronTab *alphav1.CronTab
		jobs    []*batchv1.Job
		prepare func(*fixture)
		// then happens before the run is due.
		then func(*testing.T, context.Context, *fixture)
		// before are the requests until the run is due, due those of its sync.
		before, due []string
		err         string
	}{
		"its CronTab is read before the run is due, and not again": {
			before: []string{getLive}, due: []string{createRun, started}},
		"a sync in between reads nothing": {
			then:   resynced("11:59:59"),
			before: []string{getLive}, due: []string{createRun, started}},
		"a CronTab that was changed is read again": {
			then:   replaced(func(cronTab *alphav1.CronTab) { cronTab.Spec.JobTemplate.Containers[0].Image = "new" }),
			before: []string{getLive},
			due:    []string{getLive, "create jobs 12:00:00 owner=uid-backup image=new", strings.Replace(started, "version=10", "version=11", 1)}},
		"a CronTab that was created again is read again": {
			then:   replaced(func(cronTab *alphav1.CronTab) { cronTab.UID, cronTab.ResourceVersion = "new", testVersion }),
			before: []string{getLive},
			due:    []string{getLive, strings.Replace(createRun, "uid-backup", "new", 1), strings.Replace(started, "uid-backup", "new", 1)}},
		"a suspended CronTab starts nothing": {
			then:   replaced(suspended),
			before: []string{getLive}, due: []string{"patch crontabs/status backup version=11: last=11:00:00 missed= next= active=0 False/Suspended"}},
		"a cache that is out of date then may be up to date when the run is due": {
			prepare: once("get", "crontabs", apierrors.NewInternalError(context.Canceled)),
			before:  []string{getLive}, due: []string{getLive, createRun, started}},
		"after a failure the CronTab is read again": {
			prepare: once("create", "jobs", apierrors.NewTooManyRequests("later", 1)),
			then: func(t *testing.T, ctx context.Context, f *fixture) {
				t.Helper()
				time.Sleep(time.Until(moment("12:00:00")))
				if _, err := f.syncHandler(ctx, testKey("backup")); err == nil {
					t.Error("no error")
				}
			},
			before: []string{getLive, createRun}, due: []string{getLive, createRun, started}},
		"Forbid: an active Job that the cache does not have is read when the run is due": {
			cronTab: forbids, jobs: []*batchv1.Job{running},
			then: func(t *testing.T, _ context.Context, f *fixture) {
				t.Helper()
				if err := f.jobIndexer.Delete(running); err != nil {
					t.Fatal(err)
				}
			},
			before: []string{getLive}, due: []string{getRun}, err: "caches are behind"},
		"a run that is asked for reads the CronTab itself": {
			then: replaced(func(cronTab *alphav1.CronTab) {
				cronTab.ResourceVersion = testVersion
				askedToday("11:59:59")(cronTab)
				cronTab.Status.LastScheduleTime = &metav1.Time{Time: moment("12:00:00")}
			}),
			before: []string{getLive},
			due:    []string{getLive, "create jobs asked 11:59:59 owner=uid-backup image=mybackupscript:v9", putStatus + "last=12:00:00 asked=11:59:59 missed= next=13:00:00 active=1 True/Scheduled"}},
	} {
		t.Run("rule C7: "+name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				cronTab := hourly
				if test.cronTab != nil {
					cronTab = test.cronTab
				}
				cronTab = cronTab.DeepCopy()
				cronTab.ResourceVersion = testVersion
				ctx, f := newFixture(t, "11:59:58", []*alphav1.CronTab{cronTab}, atTestVersion(test.jobs))
				f.fill(t, []*alphav1.CronTab{cronTab}, atTestVersion(test.jobs))
				if test.prepare != nil {
					test.prepare(f)
				}
				f.listen()

				requeueAfter, err := f.syncHandler(ctx, testKey("backup"))
				if err != nil || requeueAfter != 2*time.Second {
					t.Errorf("error %v, requeueAfter %v", err, requeueAfter)
				}
				if test.then != nil {
					test.then(t, ctx, f)
				}
				differ(t, "requests before", test.before, f.requests())

				time.Sleep(time.Until(moment("12:00:00")))
				_, err = f.syncHandler(ctx, testKey("backup"))
				if (err != nil) != (test.err != "") || err != nil && !strings.Contains(err.Error(), test.err) {
					t.Errorf("error %v, want %q", err, test.err)
				}
				differ(t, "requests when the run is due", test.due, f.requests())
				if len(f.prepared.jobs) != 0 || f.prepared.size != 0 {
					t.Errorf("%d prepared Jobs of %d bytes are left", len(f.prepared.jobs), f.prepared.size)
				}
			})
		})
	}
}

// TestPrepareNothingForTheDeleted: a CronTab that is deleted leaves no prepared Job.
func TestPrepareNothingForTheDeleted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cronTab := newCronTab("11:00:00", recordedAt("11:30:00"))
		ctx, f := newFixture(t, "11:59:58", []*alphav1.CronTab{cronTab}, nil)
		f.fill(t, []*alphav1.CronTab{cronTab}, nil)
		sync := func() {
			if _, err := f.syncHandler(ctx, testKey("backup")); err != nil {
				t.Error(err)
			}
		}
		if sync(); len(f.prepared.jobs) != 1 {
			t.Fatalf("%d prepared Jobs", len(f.prepared.jobs))
		}
		if err := f.cronTabCache().Delete(cronTab); err != nil {
			t.Fatal(err)
		}
		if sync(); len(f.prepared.jobs) != 0 || f.prepared.size != 0 {
			t.Errorf("%d prepared Jobs of %d bytes are left", len(f.prepared.jobs), f.prepared.size)
		}
	})
}

// TestPreparedJobsHaveALimit: tenants decide how large their Pod specs are.
func TestPreparedJobsHaveALimit(t *testing.T) {
	var p preparedJobs
	job := jobAt("12:00:00")
	job.Annotations = map[string]string{"x": strings.Repeat("x", maxPrepared/16)}
	// 16 of them are as large as the limit.
	job.Annotations["x"] = job.Annotations["x"][job.Size()-maxPrepared/16:]
	preparedOf := func(cronTab *alphav1.CronTab) *preparedJob {
		return &preparedJob{cronTab.UID, cronTab.ResourceVersion, moment("11:59:58"), job}
	}
	cronTabs := make([]*alphav1.CronTab, 20)
	for i := range cronTabs {
		cronTabs[i] = newCronTab("11:00:00", func(cronTab *alphav1.CronTab) { cronTab.Name = strings.Repeat("x", i+1) })
		p.put(cache.MetaObjectToName(cronTabs[i]), preparedOf(cronTabs[i]))
	}
	if len(p.jobs) != 16 || p.size != maxPrepared {
		t.Errorf("%d Jobs of %d bytes are prepared, want 16 of %d", len(p.jobs), p.size, maxPrepared)
	}
	take := func(cronTab *alphav1.CronTab) *preparedJob {
		return p.take(cache.MetaObjectToName(cronTab), cronTab, moment("12:00:00"))
	}
	if take(cronTabs[0]) == nil {
		t.Error("the first Job is not prepared")
	}
	if p.put(cache.MetaObjectToName(cronTabs[19]), preparedOf(cronTabs[19])); take(cronTabs[19]) == nil {
		t.Error("there is no room for a Job after another was taken")
	}
}

// TestPreparedJobsGetOld: a run that starts late reads its CronTab live again.
func TestPreparedJobsGetOld(t *testing.T) {
	cronTab := newCronTab("11:00:00")
	for name, test := range map[string]struct {
		read, now time.Time
		want      bool
	}{
		"rule C7: a run on time has its Job":                   {moment("11:59:57"), moment("12:00:00"), true},
		"rule C7: a run that is a little late":                 {moment("11:59:57"), moment("12:00:03"), true},
		"rule C7: a run that is late has none":                 {moment("11:59:57"), moment("12:00:03.001"), false},
		"rule C7: a run after the machine was suspended":       {time.Now(), time.Now().Round(0).Add(time.Minute), false},
		"rule C7: a clock that has gone back makes no Job old": {moment("11:59:57"), moment("11:00:00"), true},
	} {
		t.Run(name, func(t *testing.T) {
			var p preparedJobs
			key := cache.MetaObjectToName(cronTab)
			p.put(key, &preparedJob{cronTab.UID, cronTab.ResourceVersion, test.read, jobAt("12:00:00")})
			if got := p.take(key, cronTab, test.now); (got != nil) != test.want {
				t.Errorf("%v, want %v", got, test.want)
			}
		})
	}
}

// TestPrepareHasNoAnswer: a read that gets no answer ends when the run is due.
func TestPrepareHasNoAnswer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cronTab := newCronTab("11:00:00", recordedAt("11:30:00"), deadline(30))
		ctx, f := newFixture(t, "11:59:58", []*alphav1.CronTab{cronTab}, nil)
		f.Controller.client = unanswered{f.client}
		f.fill(t, []*alphav1.CronTab{cronTab}, nil)
		if _, err := f.syncHandler(ctx, testKey("backup")); err != nil {
			t.Error(err)
		}
		differ(t, "rule C7: the end of the sync", "12:00:00", clockOf(time.Now()))
	})
}

// unanswered is a client whose reads of CronTabs get no answer.
type unanswered struct{ clientset.Interface }

func (u unanswered) AlphaV1() typedalphav1.AlphaV1Interface {
	return unansweredGroup{u.Interface.AlphaV1()}
}

type unansweredGroup struct{ typedalphav1.AlphaV1Interface }

func (u unansweredGroup) CronTabs(namespace string) typedalphav1.CronTabInterface {
	return unansweredCronTabs{u.AlphaV1Interface.CronTabs(namespace)}
}

type unansweredCronTabs struct{ typedalphav1.CronTabInterface }

func (unansweredCronTabs) Get(ctx context.Context, _ string, _ metav1.GetOptions) (*alphav1.CronTab, error) {
	<-ctx.Done()
	return nil, ctx.Err()
}
