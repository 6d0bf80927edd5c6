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

package main

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	kubeinformers "k8s.io/client-go/informers"
	kubefake "k8s.io/client-go/kubernetes/fake"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/tools/record"
	"k8s.io/component-base/metrics"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"

	cachev1alpha1 "example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	foofake "example.com/sample-controller/pkg/generated/clientset/versioned/fake"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
)

// testFleet is a fleet of two, whose kinds are served and whose rights are granted as
// the test wants it.
type testFleet struct {
	*fleet
	foo, other testUnit
}

type testUnit struct {
	served, forbidden atomic.Bool
	// urgent says that nothing can be done without it.
	urgent              atomic.Bool
	unreachable, broken error
	synced              atomic.Int32
	// stuck keeps a sync until it is closed.
	stuck chan struct{}
}

// newTestFleet returns a fleet with those controllers on. The caller is in a synctest
// bubble.
func newTestFleet(t *testing.T, controllers ...string) (context.Context, *testFleet) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	f := &testFleet{}
	fake := foofake.NewClientset(newFoo(), &cachev1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Namespace: testNamespace, Name: "other"}})
	for resource, u := range map[string]*testUnit{"foos": &f.foo, "memcacheds": &f.other} {
		fake.PrependReactor("list", resource, func(clienttesting.Action) (bool, runtime.Object, error) {
			return u.forbidden.Load(), nil, apierrors.NewForbidden(schema.GroupResource{Resource: resource}, "", errors.New("no right"))
		})
	}
	shared := informersFrom(map[string]*factories{metav1.NamespaceAll: {
		kube: kubeinformers.NewSharedInformerFactory(kubefake.NewClientset(), 0),
		pods: kubeinformers.NewSharedInformerFactory(kubefake.NewClientset(), 0),
		foo:  fooinformers.NewSharedInformerFactory(fake, 0),
	}})
	common := controller.Options{Recorder: record.NewFakeRecorder(10), Clock: clock.RealClock{}, Metrics: controller.NewMetrics(metrics.NewKubeRegistry()), Workers: 1, GracePeriod: time.Second}
	foos, others := shared.foos, shared.memcacheds
	f.fleet = newFleet((&options{controllers: controllers}).enabled(), shared, []*unit{
		unitOf(&f.foo, "foo", func() (cache.TypedSharedIndexInformer[*v1alpha1.Foo], cache.SharedIndexInformer) {
			return foos.TypedInformer(), foos.Informer()
		}, common),
		unitOf(&f.other, "other", func() (cache.TypedSharedIndexInformer[*cachev1alpha1.Memcached], cache.SharedIndexInformer) {
			return others.TypedInformer(), others.Informer()
		}, common),
	})
	return ctx, f
}

// unitOf returns a unit that feeds on that informer.
func unitOf[T cache.Object](u *testUnit, name string, informers func() (cache.TypedSharedIndexInformer[T], cache.SharedIndexInformer), common controller.Options) *unit {
	return &unit{
		name:   name,
		served: func(context.Context) (bool, error) { return u.served.Load(), u.unreachable },
		awaitServed: func(ctx context.Context, urgent bool) error {
			u.urgent.Store(urgent)
			for !u.served.Load() {
				select {
				case <-time.After(time.Second):
				case <-ctx.Done():
					return ctx.Err()
				}
			}
			return nil
		},
		missing: name + " is not served",
		build: func(ctx context.Context) (*controller.Loop, []cache.SharedIndexInformer, error) {
			if u.broken != nil {
				return nil, nil, u.broken
			}
			loop := controller.NewLoop(name, func(context.Context, cache.ObjectName) (time.Duration, error) {
				u.synced.Add(1)
				if u.stuck != nil {
					<-u.stuck
				}
				return 0, nil
			}, controller.Caches{}, common)
			typed, informer := informers()
			err := controller.Subscribe(ctx, loop, name, typed, cache.TypedResourceEventHandlerFuncs[T]{
				AddFunc: func(object T) { loop.Queue.Add(cache.MetaObjectToName(any(object).(metav1.Object))) },
			})
			return loop, []cache.SharedIndexInformer{informer}, err
		},
	}
}

// play prepares the fleet and lets it work, if it can, and returns what prepare
// returned, or errUnfinished if it still waits after a minute. during is called then.
func (f *testFleet) play(ctx context.Context, t *testing.T, during func()) error {
	t.Helper()
	ctx, cancel := context.WithCancel(ctx)
	prepared := make(chan error, 1)
	worked := make(chan error, 1)
	go func() {
		err := f.prepare(ctx)
		prepared <- err
		if err == nil {
			err = f.work(ctx)
		}
		worked <- err
	}()
	time.Sleep(time.Minute)
	synctest.Wait()
	err := errUnfinished
	select {
	case err = <-prepared:
	default:
	}
	if during != nil {
		during()
	}
	cancel()
	if workErr := <-worked; err == nil && workErr != nil {
		t.Errorf("work returned %v", workErr)
	}
	f.shutdown(context.Background())
	return err
}

var errUnfinished = errors.New("it still waits")

func TestFleet(t *testing.T) {
	const foo, other = 1, 2
	sum := func(fooIs, otherIs bool) (total int) {
		if fooIs {
			total += foo
		}
		if otherIs {
			total += other
		}
		return total
	}
	tests := map[string]struct {
		controllers string
		// served and forbidden are sums of foo and other.
		served, forbidden int
		// err is a part of what prepare returns.
		err string
		// working is the sum of those that work a minute later, crd and caches are
		// parts of the two checks of readiness.
		working     int
		crd, caches string
		// urgent is the sum of those whose kind is looked for every second.
		urgent int
	}{
		"all whose kind is served work":                                    {controllers: "*", served: foo + other, working: foo + other},
		"one whose kind is not served keeps nobody waiting":                {controllers: "*", served: foo, working: foo},
		"one whose kind is not served keeps nobody waiting, first in line": {controllers: "*", served: other, working: other},
		"where no kind is served, it waits and is not ready":               {controllers: "*", err: "it still waits", crd: "foo is not served\nother is not served", caches: "no cache is filled", urgent: foo + other},
		"one that was named is waited for":                                 {controllers: "*,other", served: foo, err: "it still waits", crd: "other is not served", urgent: other},
		"one that is off does not work":                                    {controllers: "*,-other", served: foo + other, working: foo},
		"only those that are named":                                        {controllers: "other", served: foo + other, working: other, urgent: other},
		"one that may not fill its caches does not stop another":           {controllers: "*", served: foo + other, forbidden: other, working: foo},
		"one that was named and may not is an end":                         {controllers: "*,other", served: foo + other, forbidden: other, err: "no right", urgent: other},
		"the only one that is served may not, which is an end":             {controllers: "*", served: foo, forbidden: foo, err: "no right"},
		"all that are served may not, which is an end":                     {controllers: "*", served: foo + other, forbidden: foo + other, err: "no right"},
		"one may not, the other is not served, which is no start":          {controllers: "foo", served: foo, forbidden: foo, err: "no right", urgent: foo},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newTestFleet(t, strings.Split(test.controllers, ",")...)
				f.foo.served.Store(test.served&foo != 0)
				f.other.served.Store(test.served&other != 0)
				f.foo.forbidden.Store(test.forbidden&foo != 0)
				f.other.forbidden.Store(test.forbidden&other != 0)
				err := f.play(ctx, t, func() {
					if test.err != "" && test.err != errUnfinished.Error() {
						return
					}
					for _, check := range []struct {
						err  error
						want string
					}{{f.checkServed(), test.crd}, {f.checkCaches(), test.caches}} {
						if (check.err == nil) != (check.want == "") || check.err != nil && !strings.Contains(check.err.Error(), check.want) {
							t.Errorf("check %v, want %q", check.err, check.want)
						}
					}
					if err := f.checkWorkers(); err != nil {
						t.Errorf("workers: %v", err)
					}
				})
				if (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
					t.Errorf("prepare returned %v, want %q", err, test.err)
				}
				if got := sum(f.foo.urgent.Load(), f.other.urgent.Load()); got != test.urgent {
					t.Errorf("urgent: %d, want %d", got, test.urgent)
				}
				working := sum(f.foo.synced.Load() > 0, f.other.synced.Load() > 0)
				if working != test.working {
					t.Errorf("working: %d, want %d", working, test.working)
				}
			})
		})
	}
}

// TestFleetGrows installs a kind, or grants rights, while others are at work.
func TestFleetGrows(t *testing.T) {
	tests := map[string]struct {
		before, then func(*testFleet)
	}{
		"a kind that is served later": {
			before: func(*testFleet) {},
			then:   func(f *testFleet) { f.other.served.Store(true) }},
		"rights that are granted later": {
			before: func(f *testFleet) { f.other.served.Store(true); f.other.forbidden.Store(true) },
			then:   func(f *testFleet) { f.other.forbidden.Store(false) }},
		"a kind that is served later, whose rights are granted even later": {
			before: func(f *testFleet) { f.other.forbidden.Store(true) },
			then: func(f *testFleet) {
				f.other.served.Store(true)
				time.Sleep(5 * time.Minute)
				if err := f.checkCaches(); err != nil {
					t.Errorf("a controller that may not work makes the process not ready: %v", err)
				}
				f.other.forbidden.Store(false)
			}},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newTestFleet(t, "*")
				f.foo.served.Store(true)
				test.before(f)
				if err := f.play(ctx, t, func() {
					if f.other.synced.Load() > 0 || f.foo.synced.Load() == 0 {
						t.Errorf("syncs before: %d and %d", f.foo.synced.Load(), f.other.synced.Load())
					}
					test.then(f)
					time.Sleep(5 * time.Minute)
					synctest.Wait()
					if f.other.synced.Load() == 0 {
						t.Error("it does not work")
					}
					if err := errors.Join(f.checkServed(), f.checkCaches()); err != nil {
						t.Errorf("not ready: %v", err)
					}
				}); err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestFleetTellsOfARefusalOnce has the API server forbid one controller its caches for an
// hour, in which its informer tries again and again.
func TestFleetTellsOfARefusalOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newTestFleet(t, "*")
		logger := ktesting.NewLogger(t, ktesting.NewConfig(ktesting.BufferLogs(true)))
		f.foo.served.Store(true)
		f.other.served.Store(true)
		f.other.forbidden.Store(true)
		if err := f.play(klog.NewContext(ctx, logger), t, func() { time.Sleep(time.Hour) }); err != nil {
			t.Error(err)
		}
		var told []string
		for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			if entry.Type == ktesting.LogError {
				told = append(told, entry.Message)
			}
		}
		if len(told) != 1 {
			t.Errorf("errors in the log: %q, want one", told)
		}
	})
}

// TestFleetStopsQuietly: a controller that still waits for its kind has nothing to tell
// when the process is told to stop. Of two channels one is chosen by chance.
func TestFleetStopsQuietly(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newTestFleet(t, "*")
		ctx, cancel := context.WithCancel(ctx)
		cancel()
		for range 30 {
			f.start(ctx, f.units[0], false)
		}
		if told := len(f.outcomes); told > 0 {
			t.Errorf("told %d times", told)
		}
	})
}

// TestFleetTellsOfStuckWorkers has the only worker of one controller stuck.
func TestFleetTellsOfStuckWorkers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newTestFleet(t, "*")
		f.foo.served.Store(true)
		f.other.served.Store(true)
		f.other.stuck = make(chan struct{})
		if err := f.play(ctx, t, func() {
			time.Sleep(time.Hour)
			if err := f.checkWorkers(); err == nil || !strings.Contains(err.Error(), "all 1 workers of the other controller") {
				t.Errorf("workers: %v", err)
			}
			close(f.other.stuck)
		}); err != nil {
			t.Error(err)
		}
	})
}

// TestFleetFails is about what is no controller's fault, or one's own.
func TestFleetFails(t *testing.T) {
	tests := map[string]struct {
		prepare func(*testFleet)
		want    string
	}{
		"the API server cannot be reached": {func(f *testFleet) { f.foo.unreachable = errors.New("refused") }, "refused"},
		"a controller cannot be built":     {func(f *testFleet) { f.other.broken = errors.New("broken") }, "building the controller other: broken"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, f := newTestFleet(t, "*")
				f.foo.served.Store(true)
				f.other.served.Store(true)
				test.prepare(f)
				if err := f.play(ctx, t, nil); err == nil || err.Error() != test.want {
					t.Errorf("error %v, want %q", err, test.want)
				}
			})
		})
	}
}

// TestSharedInformer starts an informer that another controller has started before.
func TestSharedInformer(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, f := newTestFleet(t, "*")
		ctx, cancel := context.WithCancel(ctx)
		f.foo.forbidden.Store(true)
		var told [2]int
		for i := range told {
			informer := f.informers.foos.Informer()
			stop, err := f.informers.start(ctx, []cache.SharedIndexInformer{informer}, func(error) { told[i]++ })
			if err != nil {
				t.Fatal(err)
			}
			defer stop()
			synctest.Wait()
		}
		time.Sleep(time.Minute)
		cancel()
		f.informers.shutdown(context.Background())
		if told[0] == 0 || told[1] == 0 {
			t.Errorf("the two that share it were told of the refusal %v times", told)
		}
	})
}
