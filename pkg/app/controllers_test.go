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
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/klog/v2/ktesting"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/server"
	fixtures "example.com/sample-controller/test/fixture"
)

const (
	fooNotServed   = "the API server does not serve foos.samplecontroller.k8s.io; kubectl apply -f foo.yaml"
	otherNotServed = "the API server does not serve cronjobs.batch; kubectl apply -f other.yaml"
)

// controllersTest is what the API server serves and forbids, and what follows from that.
type controllersTest struct {
	controllers       string
	served, forbidden string
	// Lists of failing controllers fail, those of slow ones take minutes.
	failing, slow string
	// leads says whether the process campaigns for the lease, working which controllers sync.
	leads   bool
	working string
	// crd and caches are parts of the errors of these checks of /readyz.
	crd, caches string
}

func (test controllersTest) run(t *testing.T) {
	t.Helper()
	ctx, e := newTestEnv(t, "--controllers="+test.controllers, nil)
	for name, of := range map[string]*testController{"foo": &e.foo, "other": &e.other} {
		of.served.Store(strings.Contains(test.served, name))
		of.forbidden.Store(strings.Contains(test.forbidden, name))
		of.failing.Store(strings.Contains(test.failing, name))
		of.slow.Store(strings.Contains(test.slow, name))
	}
	if err := e.run(ctx, func() {
		checkError(t, "crd", e.checkServed(), test.crd)
		checkError(t, "caches", e.checkCaches(), test.caches)
	}); err != nil {
		t.Error(err)
	}
	if test.slow != "" {
		// The goroutine of the list must end before the test does.
		time.Sleep(slowList)
	}
	if e.led.Load() != test.leads || e.eventsStopped != test.leads {
		t.Errorf("leads: %v, want %v; rule 20: events stopped before the release: %v", e.led.Load(), test.leads, e.eventsStopped)
	}
	var working []string
	for i, of := range []*testController{&e.foo, &e.other} {
		if of.syncs.Load() > 0 {
			working = append(working, e.program.Controllers[i].Name)
		}
	}
	fixtures.Differ(t, "working", test.working, strings.Join(working, " "))
}

// TestControllers tells which controllers work a minute after the start, by what the API
// server serves and forbids, and by how it lists.
func TestControllers(t *testing.T) {
	// The lists are names of controllers: foo, other, both in this order, or none.
	const none, foo, other, both = "", "foo", "other", "foo other"
	for sentence, test := range map[string]controllersTest{
		"all whose resource is served work": {
			controllers: "*", served: both, leads: true, working: both},
		"one whose resource is not served does not delay another one": {
			controllers: "*", served: other, leads: true, working: other},
		"while no resource is served, the process waits and is not ready": {
			controllers: "*", served: none, crd: fooNotServed + "\n" + otherNotServed, caches: "no cache is filled"},
		"one that the user named and that is not served does not stop another one, but the process is not ready": {
			controllers: "*,other", served: foo, leads: true, working: foo, crd: otherNotServed},
		"one that is disabled does not work": {
			controllers: "*,-other", served: both, leads: true, working: foo},
		"only those that the user named work": {
			controllers: "other", served: both, leads: true, working: other},
		"one that may not fill its caches does not stop another one": {
			controllers: "*", served: both, forbidden: other, leads: true, working: foo},
		"one that the user named and that may not fill its caches does not stop another one, but the process is not ready": {
			controllers: "*,other", served: both, forbidden: other, leads: true, working: foo,
			caches: "the other controller waits for its caches\nfilling the cache of cronjobs.batch: "},
		"one whose lists fail does not stop another one": {
			controllers: "*", served: both, failing: other, leads: true, working: foo},
		"one that the user named and whose lists fail makes the process not ready": {
			controllers: "*,other", served: both, failing: other, leads: true, working: foo, caches: "no disk"},
		"where all lists fail, the process waits": {
			controllers: "*", served: both, failing: both, caches: "no cache is filled yet"},
		"one whose lists take long is waited for": {
			controllers: "*", served: both, slow: other, caches: "the cache of cronjobs.batch is not filled yet"},
		"where the only one that is served may not fill its caches, the process waits": {
			controllers: "*", served: foo, forbidden: foo, caches: "no cache is filled yet\nthe foo controller waits for its caches\nfilling the cache of foos.samplecontroller.k8s.io: "},
		"where none may fill its caches, the process waits": {
			controllers: "*", served: both, forbidden: both, caches: "cronjobs is forbidden: no right"},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.run(t)
			})
		})
	}
}

// checkError fails the test unless the error has the text in it, or is nil for "".
func checkError(t *testing.T, what string, err error, want string) {
	t.Helper()
	if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
		t.Errorf("%s: error %v, want %q", what, err, want)
	}
}

// TestControllersStartLater installs a CustomResourceDefinition, or grants rights, while
// the process runs.
func TestControllersStartLater(t *testing.T) {
	serve := func(e *testEnv) { e.other.served.Store(true) }
	forbid := func(e *testEnv) { e.other.forbidden.Store(true) }
	grant := func(e *testEnv) { e.other.forbidden.Store(false) }
	fail := func(e *testEnv) { e.other.failing.Store(true) }
	mend := func(e *testEnv) { e.other.failing.Store(false) }
	for sentence, test := range map[string]struct {
		arguments    string
		before, then []func(*testEnv)
		// alone says that foo is not served either.
		alone bool
	}{
		"a resource is served later":                        {"", nil, []func(*testEnv){serve}, false},
		"rights are granted later":                          {"", []func(*testEnv){serve, forbid}, []func(*testEnv){grant}, false},
		"a resource is served later, and rights even later": {"", []func(*testEnv){forbid}, []func(*testEnv){serve, grant}, false},
		"lists that fail succeed later":                     {"", []func(*testEnv){serve, fail}, []func(*testEnv){mend}, false},
		"rights of the only one that is served":             {"", []func(*testEnv){serve, forbid}, []func(*testEnv){grant}, true},
		"a resource of the only one, and rights even later": {"--controllers=other", []func(*testEnv){forbid}, []func(*testEnv){serve, grant}, true},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, e := newTestEnv(t, test.arguments, nil)
				e.foo.served.Store(!test.alone)
				for _, do := range test.before {
					do(e)
				}
				if err := e.run(ctx, func() {
					if e.other.syncs.Load() > 0 || e.foo.syncs.Load() > 0 != e.led.Load() {
						t.Errorf("syncs before: %d and %d, leads: %v", e.foo.syncs.Load(), e.other.syncs.Load(), e.led.Load())
					}
					for i, do := range test.then {
						if err := e.checkCaches(); i > 0 && e.led.Load() && err != nil {
							t.Errorf("a controller that may not fill its caches makes the process not ready: %v", err)
						}
						do(e)
						time.Sleep(5 * time.Minute)
						synctest.Wait()
					}
					if e.other.syncs.Load() == 0 {
						t.Error("it does not work")
					}
					if err := errors.Join(e.checkServed(), e.checkCaches()); err != nil {
						t.Errorf("not ready: %v", err)
					}
				}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestStandby is about a process whose caches are filled and that does not lead, and then
// leads.
func TestStandby(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "", nil)
		e.foo.served.Store(true)
		e.other.served.Store(true)
		e.foo.keys = make(chan string, 10)
		ctx, cancel := context.WithCancel(ctx)
		elected, ended := make(chan struct{}), make(chan error)
		go func() {
			ended <- runControllers(ctx, e.controllers, func(ctx context.Context, work func(context.Context) error) error {
				<-elected
				return work(ctx)
			}, func() {})
		}()
		time.Sleep(time.Minute)
		synctest.Wait()
		if err := errors.Join(e.checkServed(), e.checkCaches()); err != nil {
			t.Errorf("rule 22: a standby is not ready: %v", err)
		}
		foos := e.clients.own.SamplecontrollerV1alpha1().Foos("a")
		for i := range 10 {
			foo := &v1alpha1.Foo{ObjectMeta: metav1.ObjectMeta{Name: fmt.Sprintf("gone-%d", i)}}
			if _, err := foos.Create(ctx, foo, metav1.CreateOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			if err := foos.Delete(ctx, foo.Name, metav1.DeleteOptions{}); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		for _, c := range e.all {
			if got := c.worker.Queue.Len(); got != 0 {
				t.Errorf("rule 22: the queue of %s has %d keys in a standby, want none", c.Name, got)
			}
		}

		close(elected)
		time.Sleep(time.Minute)
		synctest.Wait()
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		fixtures.Differ(t, "rule 22: synced by a standby that leads", []string{"a/foo", "b/foo", "c/foo"}, e.foo.synced())
	})
}

// TestLostLeaseDoesNotWait loses the lease while a sync, an informer and the end of the events hang.
func TestLostLeaseDoesNotWait(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, e := newTestEnv(t, "", nil)
		e.foo.served.Store(true)
		e.other.served.Store(true)
		// Each sync waits for a receiver.
		e.foo.keys, e.other.handling = make(chan string), make(chan struct{})
		ctx, cancel := context.WithCancel(ctx)
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
		cancel()
		go func() {
			for range e.foo.keys {
			}
		}()
		close(e.other.handling)
		close(stopped)
		<-worked
		close(e.foo.keys)
		e.shutdown(ctx)
	})
}

// TestLog tells what the log has after an hour in which the API server serves or grants nothing new.
func TestLog(t *testing.T) {
	const missing, forbidden = "Waiting for a CustomResourceDefinition", "Not allowed to fill a cache"
	for sentence, test := range map[string]struct {
		arguments string
		prepare   func(*testEnv)
		of        ktesting.LogType
		message   string
		// most is how many such entries there are at most, words what each has.
		least, most int
		words       []string
	}{
		"a missing right is logged once, with the remedy": {"", func(e *testEnv) { e.other.served.Store(true); e.other.forbidden.Store(true) },
			ktesting.LogError, forbidden, 1, 1, []string{"cronjobs is forbidden", "controller other", "kubectl apply -k artifacts/deploy/base", "--controllers"}},
		"a list that fails otherwise is logged each time": {"", func(e *testEnv) { e.other.served.Store(true); e.other.failing.Store(true) },
			ktesting.LogError, "no disk", 2, 1000, nil},
		"a resource that is not served is logged once": {"", func(*testEnv) {},
			ktesting.LogInfo, missing, 1, 1, []string{"cronjobs.batch", "kubectl apply -f other.yaml"}},
		"one that the user named is logged each minute": {"--controllers=*,other", func(*testEnv) {},
			ktesting.LogInfo, missing, 60, 62, []string{"cronjobs.batch"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, e := newTestEnv(t, test.arguments, nil)
				e.foo.served.Store(true)
				test.prepare(e)
				if err := e.run(ctx, func() { time.Sleep(time.Hour) }); err != nil {
					t.Error(err)
				}
				logged := e.logged(test.of, test.message)
				if len(logged) < test.least || len(logged) > test.most {
					t.Fatalf("%d entries, want %d to %d: %.1000q", len(logged), test.least, test.most, logged)
				}
				for _, word := range test.words {
					if !strings.Contains(logged[0], word) {
						t.Errorf("no %q in the log entry %q", word, logged[0])
					}
				}
			})
		})
	}
}

// TestControllersStopQuietly stops the process while a controller waits for its resource, or
// before the start: client-go chooses between an answer and the end of the context by chance.
func TestControllersStopQuietly(t *testing.T) {
	for range 10 {
		for sentence, prepare := range map[string]func(*testEnv, context.CancelFunc){
			"a resource is not served":    func(e *testEnv, _ context.CancelFunc) { e.foo.served.Store(true) },
			"no resource is served":       func(*testEnv, context.CancelFunc) {},
			"it stops in its first check": func(_ *testEnv, cancel context.CancelFunc) { cancel() },
		} {
			synctest.Test(t, func(t *testing.T) {
				ctx, e := newTestEnv(t, "", nil)
				ctx, cancel := context.WithCancel(ctx)
				defer cancel()
				prepare(e, cancel)
				if err := e.run(ctx, nil); err != nil || len(e.logged(ktesting.LogError, "")) > 0 {
					t.Errorf("rule 20: %s: error %v, log %q", sentence, err, e.logged(ktesting.LogError, ""))
				}
			})
		}
	}
}

// TestControllersFail ends the process at its start.
func TestControllersFail(t *testing.T) {
	for sentence, test := range map[string]struct {
		change func(*testEnv)
		want   string
	}{
		"the API server cannot be reached": {func(e *testEnv) { e.foo.unreachable = errors.New("connection refused") }, "contacting the API server at localhost: "},
		"a controller cannot be built":     {func(e *testEnv) { e.other.broken = errors.New("broken") }, "building the controller other: broken"},
		"a controller reads a resource that no client knows": {func(e *testEnv) {
			e.program.Controllers[1].Informers = []Informer{{Resource: fooResource.GroupVersion().WithResource("bars")}}
		}, "building the controller other: preparing the informer of bars.samplecontroller.k8s.io: "},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, e := newTestEnv(t, "", test.change)
				err := e.buildErr
				if err == nil {
					err = e.run(ctx, nil)
				}
				if err == nil || !strings.HasPrefix(err.Error(), test.want) {
					t.Errorf("error %v, want %q", err, test.want)
				}
			})
		})
	}
}

// synced returns the keys that were synced, in order. Call it when no sync runs any more.
func (of *testController) synced() []string {
	close(of.keys)
	var synced []string
	for key := range of.keys {
		synced = append(synced, key)
	}
	slices.Sort(synced)
	return synced
}
