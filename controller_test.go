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
	"fmt"
	"maps"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/cache"
	"k8s.io/component-base/metrics/testutil"
	"k8s.io/klog/v2"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/controller"
	fooinformers "example.com/sample-controller/pkg/generated/informers/externalversions"
	fixtures "example.com/sample-controller/test/fixture"
)

func errQuota() error {
	return apierrors.NewForbidden(appsv1.Resource("deployments"), "web", errors.New("exceeded quota: one, used: count/deployments.apps=1"))
}

func errConflict() error {
	return apierrors.NewConflict(appsv1.Resource("deployments"), "web", errors.New("the object has been modified"))
}

// syncTest is one call of syncHandler for the Foo "foo": what the caches and the
// API server hold, and all that the call does.
type syncTest struct {
	// live is what the API server holds, where that is not what the caches hold.
	cached, live objects
	// prepare makes requests fail, or records earlier writes.
	prepare func(*fixture)

	requests []string
	// events are separated by commas.
	events       string
	requeueAfter time.Duration
	enqueued     []string
	// err is a part of the error, message one of the stored message of Ready; with a $ behind it, the end.
	err, message string
}

func fail(verb, resource string, err error) func(*fixture) {
	return func(f *fixture) {
		fixtures.Answer(&f.Kube.Fake, verb, resource, nil, err)
		fixtures.Answer(&f.foo.Fake, verb, resource, nil, err)
	}
}

// lagging gives the cache of Foos that version, "" if it is unknown. The present one is testVersion.
func lagging(cached string) func(*fixture) {
	return func(f *fixture) { f.fooIndexer.Bookmark(cached) }
}

const (
	createWeb = "create deployments web replicas=1 owner=uid-foo"
	scaleWeb  = `patch deployments web {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`
	adoptWeb  = `patch deployments web {"metadata":{"annotations":{"samplecontroller.k8s.io/adopt-by":null},` +
		`"ownerReferences":[` + ourReference + `],"resourceVersion":"10"}}`
	getFoo      = "get foos foo"
	putStatus   = "status foo version=10 "
	noPods      = " availableReplicas=0 replicas=0"
	ourSelector = " selector=app=nginx,controller=foo"
	cleared     = noPods + " selector=<nil>"
	onePod      = " availableReplicas=1 replicas=1" + ourSelector
	putNotOwned = putStatus + "gen=1 False/DeploymentNotOwned" + noPods
	putRejected = putStatus + "gen=1 False/DeploymentRejected" + noPods
)

func syncTests() map[string]syncTest {
	foo, ready := newFoo(), newFoo(fooReady)
	three := newFoo(fooReady, fooEdited, fooReplicas(ptr.To[int32](3)))
	web, foreign := newOwned(foo, available), newForeign()
	blocked := newFoo(fooStatus(findings{deployment: foreign}))
	nine := deploymentReplicas(ptr.To[int32](9))

	return map[string]syncTest{

		"rule 2: for a terminating Foo nothing is done": {cached: objects{newFoo(fooTerminating)}},
		"rule 3: a missing Deployment is created, the status of its progress delayed": {
			cached: objects{foo}, requests: []string{createWeb}, events: "Normal Created", requeueAfter: time.Second},

		"rule 4: drift is repaired with one patch": {
			cached: objects{three, web}, requests: []string{scaleWeb}, events: "Normal Updated", requeueAfter: time.Second},

		"rule 22: a new leader repairs after a live read of the Foo while the version of its cache is unknown": {
			cached: objects{three, web}, prepare: lagging(""),
			requests: []string{scaleWeb, getFoo}, events: "Normal Updated", requeueAfter: time.Second},

		"rule 5: a foreign Deployment is reported and never touched": {
			cached: objects{foo, foreign}, requests: []string{putNotOwned}, events: "Warning ErrResourceExists"},
		"rule 5: once it is gone the Foo gets its Deployment": {
			cached: objects{blocked}, requests: []string{createWeb}, events: "Normal Created", requeueAfter: time.Second},
		"rule 6: an earlier Foo's Deployment is waited for": {
			cached:   objects{foo, newOwned(newFoo(fooUID("earlier")), available)},
			requests: []string{putNotOwned}, events: "Warning ErrResourceExists"},

		"rule 10: a Deployment that asks for it is adopted with one patch, after a live read of the Foo": {
			cached:   objects{blocked, newForeign(available, adoptBy("foo"), nine)},
			requests: []string{adoptWeb, getFoo}, events: "Normal Adopted", err: controller.ErrStaleCache.Error()},
		"rule 10: it is not adopted by a Foo that has been recreated": {
			cached: objects{blocked, newForeign(adoptBy("foo"))}, live: objects{newFoo(fooUID("later")), newForeign(adoptBy("foo"))},
			requests: []string{getFoo}, err: "out of date"},
		"rule 10: a Deployment that asks for another Foo is left alone": {
			cached: objects{foo, newForeign(adoptBy("bar"))}, requests: []string{putNotOwned}, events: "Warning ErrResourceExists"},
		"rule 10: one that is terminating is left alone": {
			cached:   objects{foo, newForeign(adoptBy("foo"), deploymentTerminating)},
			requests: []string{putNotOwned}, events: "Warning ErrResourceExists", requeueAfter: 10 * time.Minute},
		"API: without a legal deploymentName nothing is created": {
			cached: objects{newFoo(wants("No_Good"))}, message: `spec.deploymentName "No_Good" is not a valid Deployment name`,
			requests: []string{putStatus + "gen=1 False/InvalidSpec" + noPods}, events: "Warning InvalidSpec"},

		"rule 11: refused for good: reported, one event, retried with backoff": {
			cached: objects{foo}, prepare: fail("create", "deployments", errQuota()),
			requests: []string{createWeb, putRejected}, events: "Warning DeploymentRejected", err: "exceeded quota"},
		"rule 12: 500 is retried, status unchanged": {
			cached: objects{foo}, prepare: fail("create", "deployments", apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{createWeb}, err: "creating Deployment \"web\": Internal error occurred: oops"},

		"rule 13: ready is written at once": {
			cached:   objects{foo, web},
			requests: []string{putStatus + "gen=1 True/DeploymentAvailable" + onePod}, events: "Normal Synced"},
		"rule 13: a failed child write does not stop the status, both errors are told, and a status that is not written has no event": {
			cached: objects{foo},
			prepare: func(f *fixture) {
				fail("create", "deployments", errQuota())(f)
				fail("patch", "foos", errConflict())(f)
			},
			requests: []string{createWeb, putRejected},
			err:      "used: count/deployments.apps=1\nupdating the status of Foo: "},

		"rule 15: a converged Foo costs nothing": {cached: objects{ready, web}},
	}
}

func TestSyncHandler(t *testing.T) {
	tests := syncTests()
	maps.Copy(tests, renameTests()) // +drop:rename
	for sentence, test := range tests {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) { test.run(t) })
		})
	}
}

func (test *syncTest) run(t *testing.T) {
	live := test.live
	if live == nil {
		live = test.cached
	}
	f := newFixture(t, live...)
	cached := f.fill(test.cached...)
	if test.prepare != nil {
		test.prepare(f)
	}
	before := fixtures.Objects(cached)

	requeueAfter := f.sync(test.err)

	differ(t, "requests", test.requests, f.Requests())
	differ(t, "events", test.events, strings.Join(fixtures.Recorded(f.Events), ", "))
	differ(t, "requeue after", test.requeueAfter, requeueAfter)
	differ(t, "Foos enqueued", test.enqueued, fixtures.Enqueued(f.Worker, 0))
	differ(t, "the cached objects", before, cached)
	if test.message != "" {
		if message := f.stored(); !strings.Contains(message+"$", test.message) {
			t.Errorf("message %q, want %q in it", message, test.message)
		}
	}
}

// TestSyncDropsTheNote: the next status that is put off waits for a whole second.
func TestSyncDropsTheNote(t *testing.T) {
	for sentence, cached := range map[string]objects{
		"rule 13: after a status write": {newFoo(), newOwned(newFoo(), available)}, "rule 1: after a Foo is gone": nil, "rule 2: of a terminating one": {newFoo(fooTerminating)},
	} {
		inCluster(t, func(f *fixture) {
			f.Worker.Debouncer.Postpone(fooKey())
			time.Sleep(time.Millisecond)
			f.sync("")
			differ(f, sentence, time.Second, f.Worker.Debouncer.Postpone(fooKey()))
		}, cached...)
	}
}

// TestEventHandlers checks rule 19: which Foos an event of a Deployment enqueues: its owners before and
// after, and baz, which asks for its name.
func TestEventHandlers(t *testing.T) {
	foo, bar, baz := newFoo(wants("other")), newFoo(fooNamed("bar"), wants("other")), newFoo(fooNamed("baz"))
	fooRef, barRef := ownedBy(*metav1.NewControllerRef(foo, fooGVK())), ownedBy(*metav1.NewControllerRef(bar, fooGVK()))
	other := func(apiVersion, kind string) *appsv1.Deployment {
		return newForeign(ownedBy(metav1.OwnerReference{APIVersion: apiVersion, Kind: kind, Name: "foo", UID: "uid-foo", Controller: ptr.To(true)}))
	}
	changed := func(d *appsv1.Deployment) { d.ResourceVersion = "11" }
	barOwnsWeb := newForeign(barRef)
	for sentence, test := range map[string]struct {
		old, updated *appsv1.Deployment
		want         []string
	}{
		"rule 19: a new Deployment: its owner and its name":        {nil, barOwnsWeb, []string{"bar", "baz"}},
		"rule 19: one whose Pods changed: its owner alone":         {barOwnsWeb, newForeign(barRef, available, changed), []string{"bar"}},
		"rule 19: a relist of unchanged Deployments: none":         {barOwnsWeb, barOwnsWeb.DeepCopy(), nil},
		"rule 17: an owner of kind Foo in another group: its name": {nil, other("example.com/v1", "Foo"), []string{"baz"}},
		"rule 17: an owner of another kind in our group: its name": {nil, other("samplecontroller.k8s.io/v1alpha1", "Bar"), []string{"baz"}},
		"rule 17: another version of our group: owner and name":    {nil, other("samplecontroller.k8s.io/v1beta1", "Foo"), []string{"foo", "baz"}},
		"rule 5: another owner: the old and the new one, and its name": {
			barOwnsWeb, newForeign(fooRef, changed), []string{"bar", "foo", "baz"}},
		"rule 19: one that begins to terminate: its owner and its name": {
			barOwnsWeb, newForeign(barRef, deploymentTerminating, changed), []string{"bar", "baz"}},
		// +drop:rename
		"rule 8: one that this program begins to write: its name, for it may be a former one": {
			newForeign(barRef, func(d *appsv1.Deployment) { d.ManagedFields = nil }), newForeign(barRef, changed), []string{"bar", "baz"}},
		// +drop:end
		"rule 5: one that was made anew: its owner and its name": {
			barOwnsWeb, newForeign(barRef, changed, func(d *appsv1.Deployment) { d.UID = "anew" }), []string{"bar", "baz"}},
	} {
		t.Run(sentence, func(t *testing.T) {
			inCluster(t, func(f *fixture) {
				fixtures.Tell(f.deployments.EventHandler(f.enqueueAsking), test.old, test.updated)
				differ(f, "enqueued", test.want, fixtures.Enqueued(f.Worker, 0))
				differ(f, "requests", []string(nil), f.Requests())
			}, foo, bar, baz)
		})
	}
	inCluster(t, func(f *fixture) {
		gone := cache.DeletedObject[*appsv1.Deployment]{FinalStateUnknown: &cache.DeletedFinalStateUnknown{Key: "ns/web"}}
		f.deployments.EventHandler(f.enqueueAsking).OnDelete(gone)
		differ(f, "rule 9: a deleted Deployment of which the informer knows only the key: the Foos that ask for it", []string{"baz"}, fixtures.Enqueued(f.Worker, 0))
	}, foo, bar, baz)
}

// TestNewControllerFails: an informer has its index already.
func TestNewControllerFails(t *testing.T) {
	inCluster(t, func(f *fixture) {
		options := f.options
		for _, informer := range []string{"Foo informer", "Deployment informer"} {
			c, err := NewController(f.ctx, options)
			if c != nil || err == nil || !strings.Contains(err.Error(), "adding an index to the "+informer) {
				f.Errorf("controller %v, error %v", c, err)
			}
			options.Foos = fooinformers.NewSharedInformerFactory(f.foo, 0).Samplecontroller().V1alpha1().Foos()
		}
	})
}

// TestWritesAreLogged: at -v=2 the log has one line for each write.
func TestWritesAreLogged(t *testing.T) {
	inCluster(t, func(f *fixture) {
		logger := ktesting.NewLogger(f, ktesting.NewConfig(ktesting.Verbosity(2), ktesting.BufferLogs(true)))
		f.ctx = klog.NewContext(f.ctx, logger)
		f.sync("")
		f.fill(newOwned(newFoo(), deploymentReplicas(ptr.To[int32](3))))
		f.sync("")
		f.fill(newOwned(newFoo(), available))
		f.sync("")
		var logged []string
		for _, entry := range logger.GetSink().(ktesting.Underlier).GetBuffer().Data() {
			logged = append(logged, strings.TrimSpace(fmt.Sprintln(append([]any{entry.Message}, entry.ParameterKVList...)...)))
		}
		differ(f, "log", []string{
			"Created Deployment deployment ns/web", "Patched Deployment deployment ns/web changes replicas from 3 to 1",
			"Updated status ready True reason DeploymentAvailable",
		}, logged)
	}, newFoo())
}

func TestFoosAreCountedByReason(t *testing.T) {
	inCluster(t, func(f *fixture) {
		want := `# HELP sample_controller_foos [ALPHA] Number of Foos in this process's cache, by the status and the reason of their ` +
			`Ready condition; Unknown and an empty reason for those that have none. Every replica reports all.
# TYPE sample_controller_foos gauge
sample_controller_foos{ready="True",reason="DeploymentAvailable"} 2
sample_controller_foos{ready="Unknown",reason=""} 1
`
		if err := testutil.GatherAndCompare(f.Registry, strings.NewReader(want), "sample_controller_foos"); err != nil {
			f.Error(err)
		}
	}, newFoo(fooReady), newFoo(fooNamed("second"), fooReady), newFoo(fooNamed("unknown")))
}

// TestPresentVersionIsAskedFor is rule 22: by a process that begins to lead, once a second until the API server answers.
func TestPresentVersionIsAskedFor(t *testing.T) {
	inCluster(t, func(f *fixture) {
		asked, present := 0, f.foos.LatestVersion
		f.foos.LatestVersion = func(context.Context) (string, error) { asked++; return testVersion, nil }
		f.start()()
		differ(f, "rule 22: requests of a process that begins to lead", 1, asked)
		f.foos.LatestVersion = present
		f.Requests()
		fail("list", "foos", apierrors.NewInternalError(errors.New("starting")))(f)
		ctx, cancel := context.WithTimeout(f.ctx, 3*time.Second/2)
		defer cancel()
		f.foos.ReadStartVersion(ctx)
		differ(f, "rule 22: requests in a second and a half without an answer", 2, len(f.Own.Actions()))
	})
}

// TestStallsWhileStatusIsWritten is rule 7: the progress deadline passes while the status that
// reports progress is written. No event announces that, and that of the status enqueues no Foo.
func TestStallsWhileStatusIsWritten(t *testing.T) {
	inCluster(t, func(f *fixture) {
		f.fill(newOwned(newFoo(), available, deploymentTerminating, func(d *appsv1.Deployment) {
			d.DeletionTimestamp, d.Spec.ProgressDeadlineSeconds = ptr.To(metav1.NewTime(time.Now())), ptr.To[int32](2)
		}))
		f.foo.PrependReactor("patch", "foos", func(clienttesting.Action) (bool, runtime.Object, error) {
			time.Sleep(3 * time.Second)
			return false, nil, nil
		})
		differ(f, "rule 7: requeue after", 2*time.Second, f.sync(""))
	}, newFoo(fooReady))
}
