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

package app

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/ktesting"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/server"
	"example.com/sample-controller/test/fixture"
)

const (
	fooNotServed   = "the API server does not serve foos.samplecontroller.k8s.io; kubectl apply -f foo.yaml"
	otherNotServed = "the API server does not serve cronjobs.batch; kubectl apply -f other.yaml"
)

// TestControllers tells which controllers work a minute after the start, and five minutes after
// each later change, by what the API server serves and forbids, and by how it lists.
func TestControllers(t *testing.T) {
	const foo, other, both, onlyOther = "foo", "other", "foo other", "--controllers=other"
	const named = "--controllers=*,other"
	allWork := state{served: both, leads: true, working: both}
	// Foo works alone; a controller that the user did not name does not make the process unready.
	fooWorks := func(s state) state {
		s.leads, s.working = true, foo
		return s
	}
	for sentence, test := range map[string]struct {
		arguments string
		states    []state
	}{
		"all whose resource is served work": {"", []state{allWork}},
		"one whose resource is not served does not delay another one": {"", []state{
			{served: other, leads: true, working: other}}},
		"while no resource is served, the process waits and is not ready": {"", []state{
			{crd: fooNotServed + "\n" + otherNotServed, caches: "no cache is filled"}}},
		"one that the user named and that is not served does not stop another one, but the process is not ready": {
			named, []state{fooWorks(state{served: foo, crd: otherNotServed})}},
		"one that is disabled does not work":  {"--controllers=*,-other", []state{fooWorks(state{served: both})}},
		"only those that the user named work": {onlyOther, []state{{served: both, leads: true, working: other}}},
		"a resource that is served later":     {"", []state{fooWorks(state{served: foo}), allWork}},
		"a right that is missing and granted": {"", []state{fooWorks(state{served: both, forbidden: other}), allWork}},
		"one whose lists take long is waited for": {"", []state{
			{served: both, slow: other, caches: "the cache of cronjobs.batch is not filled yet"}}},
		"the same of the only one that is enabled": {onlyOther, []state{
			{forbidden: other, crd: otherNotServed, caches: "no cache is filled"},
			{served: other, forbidden: other, caches: "cronjobs.batch is forbidden: no right"},
			{served: other, leads: true, working: other}}},
		"one that the user named and that may not fill its caches does not stop another one, but the process is not ready": {
			named, []state{fooWorks(state{served: both, forbidden: other,
				caches: "the other controller waits for its caches\nfilling the cache of cronjobs.batch: "}), allWork}},
		"where the only one that is served may not fill its caches, the process waits": {"", []state{
			{served: foo, forbidden: foo, caches: "no cache is filled yet\nthe foo controller waits for its caches\n" +
				"filling the cache of foos.samplecontroller.k8s.io: "}, allWork}},
		"a process of webhooks fills the caches that they read, and never leads": {
			"--webhooks-only --webhook-bind-address=:1 --leader-elect-resource-namespace=ns", []state{
				{served: other, crd: fooNotServed, caches: "no cache is filled"}, {served: both}}},
		"one that may not fill its cache of one namespace waits": {"--namespace=a,b --controllers=foo", []state{
			{served: foo, forbidden: "foo/b", caches: "filling the cache of foos.samplecontroller.k8s.io in namespace b: "},
			fooWorks(state{served: foo})}},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, e := newTestEnv(t, test.arguments, nil)
				e.state.Store(&test.states[0])
				if err := e.run(ctx, func() {
					for i, want := range test.states {
						if i > 0 {
							e.state.Store(&want)
							time.Sleep(5 * time.Minute)
							synctest.Wait()
						}
						checkError(t, "crd", e.checkServed(), want.crd)
						checkError(t, "caches", e.checkCaches(), want.caches)
						fixture.Differ(t, "leads", want.leads, e.led.Load())
						fixture.Differ(t, "working", want.working, e.working())
					}
				}); err != nil {
					t.Error(err)
				}
				// The goroutine of a slow list must end before the test does.
				time.Sleep(slowList)
				if e.led.Load() != e.eventsStopped {
					t.Errorf("leads: %v; rule 20: events stopped before the release: %v", e.led.Load(), e.eventsStopped)
				}
			})
		})
	}
}

// working returns the names of the controllers that have synced something.
func (e *testEnv) working() string {
	var working []string
	for i, of := range []*testController{&e.foo, &e.other} {
		if of.syncs.Load() > 0 {
			working = append(working, e.program.Controllers[i].Name)
		}
	}
	return strings.Join(working, " ")
}

// TestStandby is about a process whose caches are filled and that does not lead, and then
// leads.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "", nil)
		e.foo.keys = make(chan string, 10)
		elected := make(chan struct{})
		e.lead = func(ctx context.Context, work func(context.Context) error) error {
			<-elected
			return work(ctx)
		}
		if err := e.run(ctx, func() {
			if err := errors.Join(e.checkServed(), e.checkCaches()); err != nil {
				t.Errorf("rule 22: a standby is not ready: %v", err)
			}
			foos := e.clients.own.SamplecontrollerV1alpha1().Foos("a")
			_, err := foos.Create(ctx, &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: "gone"}}, metav1.CreateOptions{})
			synctest.Wait()
			if err = errors.Join(err, foos.Delete(ctx, "gone", metav1.DeleteOptions{})); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			for _, c := range e.all {
				fixture.Differ(t, "rule 22: keys in the queue of "+c.Name+" in a standby", 0, c.worker.Queue.Len())
			}
			close(elected)
			time.Sleep(time.Minute)
			synctest.Wait()
		}); err != nil {
			t.Error(err)
		}
		fixture.Differ(t, "rule 22: synced by a standby that leads", []string{"a/foo", "b/foo", "c/foo"}, e.foo.synced())
	})
}

// TestLostLeaseDoesNotWait loses the lease while a sync, an informer and the end of the events hang.
func TestLostLeaseDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "", nil)
		// Each sync waits for a receiver.
		e.foo.keys, e.other.handling = make(chan string), make(chan struct{})
		stopped, worked := make(chan struct{}), make(chan struct{})
		var lost time.Time
		err := runControllers(ctx, e.controllers, func(ctx context.Context, work func(context.Context) error) error {
			workCtx, stopWork := context.WithCancel(ctx)
			go func() {
				defer close(worked)
				_ = work(workCtx)
			}()
			time.Sleep(time.Minute)
			stopWork()
			lost = time.Now()
			return fmt.Errorf("%w: test", server.ErrLeaseLost)
		}, func() { <-stopped })
		if took := time.Since(lost); !errors.Is(err, server.ErrLeaseLost) || took > 0 {
			t.Errorf("rule 20: %v, %s after the loss, want ErrLeaseLost at once", err, took)
		}
		// Let all goroutines of the bubble end.
		close(e.other.handling)
		close(stopped)
		for done := false; !done; {
			select {
			case <-e.foo.keys:
			case <-worked:
				done = true
			}
		}
		e.shutdown(ctx)
	})
}

// TestLog tells what the log has after an hour in which the API server serves or grants nothing new.
func TestLog(t *testing.T) {
	const missing, forbidden = "Waiting for a CustomResourceDefinition", "Not allowed to fill a cache"
	for sentence, test := range map[string]struct {
		arguments string
		state     state
		of        ktesting.LogType
		message   string
		// most is how many such entries there are at most, detail what each has.
		least, most int
		detail      string
	}{
		"a missing right is logged once, with the remedy": {
			"", state{served: "foo other", forbidden: "other"}, ktesting.LogError, forbidden, 1, 1,
			grantRemedy(nil) + ", or disable the controller with --controllers"},
		"a right that is missing in one of several namespaces is logged with another remedy": {
			"--namespace=a,b", state{served: "foo", forbidden: "foo/b"}, ktesting.LogError, forbidden, 1, 1, "docs/scale.md"},
		"a missing right is logged with the controller": {
			"", state{served: "foo other", forbidden: "other"}, ktesting.LogError, "is forbidden", 1, 1, "controller other"},
		"a list that fails otherwise is logged each time": {
			"", state{served: "foo other", failing: "other"}, ktesting.LogError, "no disk", 2, 1000, ""},
		"a resource that is not served is logged once": {
			"", state{served: "foo"}, ktesting.LogInfo, missing, 1, 1, "kubectl apply -f other.yaml"},
		"one that the user named is logged each minute": {
			"--controllers=*,other", state{served: "foo"}, ktesting.LogInfo, missing, 60, 62, "cronjobs.batch"},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, e := newTestEnv(t, test.arguments, nil)
				e.state.Store(&test.state)
				if err := e.run(ctx, func() { time.Sleep(time.Hour) }); err != nil {
					t.Error(err)
				}
				logged := e.logged(test.of, test.message)
				if len(logged) < test.least || len(logged) > test.most {
					t.Fatalf("%d entries, want %d to %d: %.1000q", len(logged), test.least, test.most, logged)
				}
				if !strings.Contains(logged[0], test.detail) {
					t.Errorf("no %q in the log entry %q", test.detail, logged[0])
				}
			})
		})
	}
}

// TestControllersStopQuietly stops the process during its first requests for discovery, or later:
// while it waits for a resource client-go chooses between an answer and the end of the context by
// chance.
func TestControllersStopQuietly(t *testing.T) {
	for stop := range 5 {
		for _, served := range []string{"foo", ""} {
			synctest.Test(t, func(t *testing.T) {
				ctx, e := newTestEnv(t, "", nil)
				e.state.Store(&state{served: served})
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				var asked atomic.Int32
				e.asked = func() error {
					if int(asked.Add(1)) == stop {
						cancel()
					}
					return ctx.Err()
				}
				if err := e.run(ctx, nil); err != nil || len(e.logged(ktesting.LogError, "")) > 0 {
					t.Errorf("rule 20: served %q, request %d: error %v, log %q", served, stop, err, e.logged(ktesting.LogError, ""))
				}
			})
		}
	}
}

// TestControllersFail ends the process at its start.
func TestControllersFail(t *testing.T) {
	for want, change := range map[string]func(*testEnv){
		"building the controller other: broken": func(e *testEnv) { e.other.broken = errors.New("broken") },
		"building the controller other: preparing the informer of bars.samplecontroller.k8s.io: ": func(e *testEnv) {
			e.program.Controllers[1].Informers = []Informer{{Resource: fooResource.GroupVersion().WithResource("bars")}}
		},
	} {
		synctest.Test(t, func(t *testing.T) {
			_, e := newTestEnv(t, "", change)
			checkError(t, "the start", e.buildErr, want)
		})
	}
}
