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

package memcached

import (
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
	"example.com/sample-controller/test/fixture"
)

var deploymentsGroup = schema.GroupResource{Group: "apps", Resource: "deployments"}

// syncTest is one call of syncHandler for the Memcached "mc": what the caches and the
// API server hold, and all that the call does.
type syncTest struct {
	memcacheds  []*v1alpha1.Memcached
	deployments []*appsv1.Deployment
	sets        []*appsv1.ReplicaSet
	pods        []*corev1.Pod
	// services are that of the Memcached if nil.
	services []*corev1.Service
	// liveDeployments, liveServices and liveMemcacheds are what the API server holds, where that is
	// not what the caches hold.
	liveDeployments []*appsv1.Deployment
	liveServices    []*corev1.Service
	liveMemcacheds  []*v1alpha1.Memcached
	prepare         func(*env)
	// waits is how long the sync is told to wait before it is called a second time.
	waits time.Duration

	requests []string
	events   []string
	// about is what the message of Ready says about the Service, if a status is written.
	about string
	again time.Duration
	// err is a part of the error.
	err string
}

func failCreate(err error) func(*env) {
	return func(s *env) { fixture.Failing(&s.kube.Fake, "create", "deployments", err) }
}

func beginContention(s *env) {
	for range 5 {
		s.contention.Repaired(testKey(), 1, "replicas")
	}
	s.contention.Check(testKey(), 1, "replicas")
}

// answer makes the API server answer requests of that verb with the Deployment.
func (s *env) answer(verb string, d *appsv1.Deployment) {
	s.kube.PrependReactor(verb, "deployments", func(clienttesting.Action) (bool, runtime.Object, error) { return true, d, nil })
}

// answerService makes the API server answer requests of that verb with the Service.
func (s *env) answerService(verb string, service *corev1.Service) {
	s.kube.PrependReactor(verb, "services", func(clienttesting.Action) (bool, runtime.Object, error) { return true, service, nil })
}

// contendService lets another writer have undone five repairs of the field of the Service.
func (s *env) contendService(field string) {
	for range 5 {
		s.serviceContention.Repaired(testKey(), 1, field)
	}
	s.serviceContention.Check(testKey(), 1, field)
}

// aboutService returns what the message of Ready that was written last says about the Service.
func (s *env) aboutService() (text string) {
	for _, action := range s.cache.Actions() {
		if update, ok := action.(clienttesting.UpdateAction); ok {
			_, text = cutService(controller.GetReady(update.GetObject().(*v1alpha1.Memcached).Status.Conditions))
		}
	}
	return text
}

const (
	createMC   = "create deployments mc replicas=1 owner=uid-mc"
	putStatus  = "update memcacheds/status mc uid=uid-mc version=10: "
	notOwned   = "gen=1 nodes=[] ready=0 replicas=0 False/DeploymentNotOwned"
	rejected   = "gen=1 nodes=[] ready=0 replicas=0 False/DeploymentRejected"
	patchThree = `patch deployments mc {"metadata":{"resourceVersion":"10"},"spec":{"replicas":3}}`
)

func errQuota() error {
	return apierrors.NewForbidden(deploymentsGroup, "mc", errors.New("exceeded quota"))
}

// TestSyncHandler is the Memcached contract, rule by rule.
func TestSyncHandler(t *testing.T) {
	for name, test := range syncTests() {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test.run) })
	}
}

func syncTests() map[string]syncTest {
	plain, three := newMemcached(), newMemcached(ready("a"), generation(2), size(3))
	gone := newMemcached(func(m *v1alpha1.Memcached) {
		m.DeletionTimestamp, m.Finalizers = &testNow, []string{"foregroundDeletion"}
	})
	foreign, owned, available := newForeign(), newOwned(plain), newOwned(plain, fixture.Available)
	blocked := newMemcached(status(deployment.Result{Deployment: foreign}))
	set := newSet("rs", owned)
	sets, a, b := []*appsv1.ReplicaSet{set}, newPod("a", set), newPod("b", set)
	one := func(m *v1alpha1.Memcached) []*v1alpha1.Memcached { return []*v1alpha1.Memcached{m} }
	its := func(d *appsv1.Deployment) []*appsv1.Deployment { return []*appsv1.Deployment{d} }
	foo := metav1.OwnerReference{APIVersion: "samplecontroller.k8s.io/v1alpha1", Kind: "Foo", Name: "foo", UID: "uid-foo", Controller: ptr.To(true)}

	return map[string]syncTest{
		"rule M1: a Memcached that is gone from the cache is nothing to do":    {deployments: its(owned)},
		"rule M2: a terminating Memcached's missing Deployment is not created": {memcacheds: one(gone)},
		"rule M2: a terminating Memcached's Deployment is not repaired and no status is written": {
			memcacheds: one(gone), deployments: its(newOwned(newMemcached(size(9))))},
		"rule M3: a missing Deployment is created, the status of its progress put off": {
			memcacheds: one(plain), requests: []string{createMC}, events: []string{"Normal Created"}, again: time.Second},
		"rule M3: the Deployment of a Memcached that is gone from the API server is not created again": {
			memcacheds: one(newMemcached(ready("a"))), liveMemcacheds: []*v1alpha1.Memcached{},
			requests: []string{"get memcacheds mc"}, err: "reading Memcached ns/mc: the cache is out of date"},
		"rule M3: AlreadyExists from a stale cache: it is this Memcached's": {
			memcacheds: one(plain), liveDeployments: its(available),
			requests: []string{createMC, "get deployments mc"}, again: time.Second},
		"rule M3: AlreadyExists, and it is foreign": {
			memcacheds: one(plain), liveDeployments: its(foreign),
			requests: []string{createMC, "get deployments mc", putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}, again: controller.StaleCacheDelay},
		"rule M4: drift is repaired with one patch": {
			memcacheds: one(three), deployments: its(available),
			requests: []string{patchThree}, events: []string{"Normal Updated"}, again: time.Second},
		"rule M4: what another process changed for a newer generation is not undone a second time": {
			memcacheds: one(three), deployments: its(available), liveMemcacheds: one(newMemcached(generation(3))),
			prepare:  func(s *env) { s.contention.Repaired(testKey(), 2, "replicas") },
			requests: []string{"get memcacheds mc"}, err: "reading Memcached ns/mc: the cache is out of date"},
		"rule M4: a second repair is made when the API server has the same generation": {
			memcacheds: one(three), deployments: its(available), prepare: func(s *env) { s.contention.Repaired(testKey(), 2, "replicas") },
			requests: []string{patchThree, "get memcacheds mc"}, events: []string{"Normal Updated"}, again: time.Second},
		"rule M4: a repair that admission takes back is no refusal, and no event tells of it": {
			memcacheds: one(three), deployments: its(available), sets: sets, pods: []*corev1.Pod{a},
			prepare:  func(s *env) { s.answer("patch", available) },
			requests: []string{patchThree}, again: time.Second},
		"rule M4: what admission made of the last write is not written again": {
			memcacheds: one(newMemcached(generation(2), size(3))), deployments: its(available), sets: sets, pods: []*corev1.Pod{a},
			prepare: func(s *env) {
				s.admitted.Set(testKey(), 2, []controller.FieldValue{{Field: "replicas", Value: "1"}})
			}, waits: time.Second,
			requests: []string{putStatus + `gen=2 nodes=["a"] ready=1 replicas=1 True/DeploymentAvailable`}, events: []string{"Normal Synced"}},
		"rule M4: a label that another tool set is left": {
			memcacheds: one(newMemcached(ready("a"))), sets: sets, pods: []*corev1.Pod{a},
			deployments: its(newOwned(plain, fixture.Available, func(d *appsv1.Deployment) { d.Labels[controller.ManagedByLabel] = "Helm" }))},
		"rule M5: a foreign Deployment is reported and never touched": {
			memcacheds: one(plain), deployments: its(foreign), requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
		"rule M5: while it is in the way nothing is written, told or tried again": {memcacheds: one(blocked), deployments: its(foreign)},
		"rule M5: the nodes of a foreign Deployment are not ours": {
			memcacheds: one(blocked), deployments: its(foreign), sets: sets, pods: []*corev1.Pod{a}},
		"rule M6: the Deployment of an earlier Memcached is waited for": {
			memcacheds: one(plain), deployments: its(newOwned(newMemcached(func(m *v1alpha1.Memcached) { m.UID = "earlier" }))),
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
		"rule M7: an owned Deployment that is being deleted is left alone": {
			memcacheds:  one(newMemcached(ready())),
			deployments: its(newOwned(newMemcached(size(5)), fixture.Available, func(d *appsv1.Deployment) { d.DeletionTimestamp, d.Finalizers = &testNow, []string{"x"} })),
			requests:    []string{putStatus + `gen=1 nodes=[] ready=5 replicas=5 False/DeploymentProgressing`}, again: 10 * time.Minute},
		"rule M9: a Foo's Deployment of the same name is not ours": {
			memcacheds: one(plain), deployments: its(newForeign(ownedBy(foo))),
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
		"rule M10: an orphaned Deployment is not adopted": {
			memcacheds: one(plain), deployments: its(newForeign(fixture.Available)),
			requests: []string{putStatus + notOwned}, events: []string{"Warning ErrResourceExists"}},
		"rule M11: refused for good: reported, told once, tried again with backoff": {
			memcacheds: one(plain), prepare: failCreate(errQuota()),
			requests: []string{createMC, putStatus + rejected}, events: []string{"Warning DeploymentRejected"}, err: "exceeded quota"},
		"rule M11: a creation whose owner reference admission removes is a refusal": {
			memcacheds: one(plain), prepare: func(s *env) { s.answer("create", foreign) },
			requests: []string{createMC, putStatus + rejected}, events: []string{"Warning DeploymentRejected"}, err: "owner reference: an admission webhook or policy overrides it"},
		"rule M11: another refusal is told": {
			memcacheds: one(newMemcached(status(deployment.Result{Rejected: errors.New("denied")}))), prepare: failCreate(errQuota()),
			requests: []string{createMC, putStatus + rejected}, events: []string{"Warning DeploymentRejected"}, err: "exceeded quota"},
		"rule M11: in a terminating namespace the sync stops quietly": {
			memcacheds: one(plain), prepare: failCreate(errTerminating()), requests: []string{createMC}},
		"rule M12: 500 is tried again, status unchanged": {
			memcacheds: one(plain), prepare: failCreate(apierrors.NewInternalError(errors.New("oops"))),
			requests: []string{createMC}, err: "creating Deployment \"mc\": Internal error occurred: oops"},
		"rule M12: a failed status write is tried again, without an event": {
			memcacheds: one(plain), deployments: its(foreign),
			prepare: func(s *env) {
				fixture.Failing(&s.cache.Fake, "update", "memcacheds", apierrors.NewConflict(deploymentsGroup, "mc", errors.New("no")))
			},
			requests: []string{putStatus + notOwned}, err: "updating the status of Memcached"},
		"rule M13: ready is written at once, when its nodes are known": {
			memcacheds: one(plain), deployments: its(available), sets: sets, pods: []*corev1.Pod{a},
			requests: []string{putStatus + `gen=1 nodes=["a"] ready=1 replicas=1 True/DeploymentAvailable`}, events: []string{"Normal Synced"}},
		"rule M13: ready is put off while a Pod has not come to the cache": {
			memcacheds: one(plain), deployments: its(available), sets: sets, again: time.Second},
		"rule M13: ready is written after a second, whatever has come": {
			memcacheds: one(plain), deployments: its(available), sets: sets, waits: time.Second,
			requests: []string{putStatus + `gen=1 nodes=[] ready=1 replicas=1 True/DeploymentAvailable`}, events: []string{"Normal Synced"}},
		"rule M13: ready is put off while Pods too many have yet to go": {
			memcacheds: one(plain), deployments: its(newOwned(plain, fixture.Pods(2, 2, 2))), sets: sets, pods: []*corev1.Pod{a, b}, again: time.Second},
		"rule M13: losing Ready without a new generation is written at once": {
			memcacheds: one(newMemcached(ready("a"))), deployments: its(newOwned(plain, fixture.Pods(1, 1, 0))), sets: sets, pods: []*corev1.Pod{a},
			requests: []string{putStatus + `gen=1 nodes=["a"] ready=0 replicas=1 False/DeploymentProgressing`}},
		"rule M13: losing Ready by a new generation is put off": {
			memcacheds: one(newMemcached(ready("a"), generation(2))), deployments: its(newOwned(plain, fixture.Pods(1, 1, 0))), sets: sets, pods: []*corev1.Pod{a}, again: time.Second},
		"rule M13: other nodes alone are put off": {
			memcacheds: one(newMemcached(ready("a"))), deployments: its(available), sets: sets, pods: []*corev1.Pod{b}, again: time.Second},
		"rule M13: other nodes alone are written after a second": {
			memcacheds: one(newMemcached(ready("a"))), deployments: its(available), sets: sets, pods: []*corev1.Pod{b}, waits: time.Second,
			requests: []string{putStatus + `gen=1 nodes=["b"] ready=1 replicas=1 True/DeploymentAvailable`}},
		"rule M14: a sync that its own last write has not come back to waits": {
			memcacheds: one(plain), err: "behind version 11", prepare: func(s *env) {
				s.consistency.WroteAt(testKey(), "uid-mc", appsv1.Resource("deployments"), "11")
				s.deploymentIndexer().Bookmark("10")
			}},
		"rule M14: so does one whose last status has not come back": {
			memcacheds: one(plain), err: "behind version 11", prepare: func(s *env) {
				s.consistency.WroteAt(testKey(), "uid-mc", v1alpha1.Resource("memcacheds"), "11")
				s.memcachedIndexer().Bookmark("10")
			}},
		"rule M15: a converged Memcached costs nothing": {
			memcacheds: one(newMemcached(ready("a"))), deployments: its(available), sets: sets, pods: []*corev1.Pod{a}},
		"rule M16: an invalid spec is told once and not tried again": {
			memcacheds: one(newMemcached(port(0))), requests: []string{putStatus + "gen=1 nodes=[] ready=0 replicas=0 False/InvalidSpec"}, events: []string{"Warning InvalidSpec"}},
		"rule M21: in a fight nothing is repaired until the pause is over": {
			memcacheds: one(newMemcached(size(3), ready("a"))), deployments: its(available), sets: sets, pods: []*corev1.Pod{a}, prepare: beginContention,
			requests: []string{"get deployments mc", putStatus + `gen=1 nodes=["a"] ready=1 replicas=1 False/DeploymentContested`},
			events:   []string{"Warning DeploymentContested"}, again: 10 * time.Second},
		"rule M21: a Deployment that another client deletes again and again is not created until the pause is over": {
			memcacheds: one(plain), prepare: func(s *env) {
				for range 6 {
					s.contention.Created(testKey(), 1, false)
				}
			},
			requests: []string{putStatus + "gen=1 nodes=[] ready=0 replicas=0 False/DeploymentContested"},
			events:   []string{"Warning DeploymentContested"}, again: 10 * time.Second},
		"rule M21: a Deployment that is gone is created, after contention over its fields": {
			memcacheds: one(plain), prepare: beginContention, requests: []string{createMC}, events: []string{"Normal Created"}, again: time.Second},
	}
}

func errTerminating() error {
	err := apierrors.NewForbidden(deploymentsGroup, "mc", errors.New("it is being terminated"))
	err.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	return err
}

func (test syncTest) run(t *testing.T) {
	liveMemcacheds, liveDeployments := test.liveMemcacheds, test.liveDeployments
	if liveMemcacheds == nil {
		liveMemcacheds = test.memcacheds
	}
	if liveDeployments == nil {
		liveDeployments = test.deployments
	}
	services, liveServices := test.services, test.liveServices
	if services == nil {
		services = []*corev1.Service{newOwnedService(newMemcached())}
	}
	if liveServices == nil {
		liveServices = services
	}
	ctx, s := newEnv(t, liveMemcacheds, liveDeployments, liveServices...)
	fixture.Fill(t, s.memcachedIndexer(), test.memcacheds)
	fixture.Fill(t, s.deploymentIndexer(), cached(test.deployments...))
	fixture.Fill(t, s.serviceIndexer(), cachedServices(services...))
	fixture.Fill(t, s.replicaSetIndexer, test.sets)
	fixture.Fill(t, s.podIndexer, test.pods)
	if test.prepare != nil {
		test.prepare(s)
	}
	again, err := s.syncHandler(ctx, testKey())
	if test.waits > 0 {
		fixture.Differ(t, "requests before the wait", []string(nil), s.requests())
		time.Sleep(test.waits)
		again, err = s.syncHandler(ctx, testKey())
	}
	fixture.Differ(t, "requests", test.requests, s.requests())
	fixture.Differ(t, "events", test.events, fixture.Recorded(s.events))
	fixture.Differ(t, "what the message says about the Service", test.about, s.aboutService())
	if again != test.again {
		t.Errorf("to be called again after %v, want %v", again, test.again)
	}
	switch {
	case test.err == "" && err != nil:
		t.Errorf("error %v", err)
	case test.err != "" && (err == nil || !strings.Contains(err.Error(), test.err)):
		t.Errorf("error %v, want %q in it", err, test.err)
	}
}

// TestRun follows one Memcached through a running controller: to the Deployment, to its
// Pods, to the status, through a scaling, and to rest.
func TestRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := newEnv(t, []*v1alpha1.Memcached{newMemcached()}, nil)
		stop := s.start(ctx, t)
		owned := s.rollOut(t, 1, "a")
		time.Sleep(time.Minute)
		fixture.Differ(t, "rule M13: status writes for the first Pod", 1, s.statusWrites())

		memcached, err := s.cache.CacheV1alpha1().Memcacheds(testNamespace).Get(ctx, "mc", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		memcached.Spec.Size, memcached.Generation, memcached.ResourceVersion = ptr.To[int32](5), 2, "20"
		if err := s.cache.Tracker().Update(v1alpha1.Resource("memcacheds").WithVersion("v1alpha1"), memcached, testNamespace); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		set := newSet("rs", owned)
		for i, name := range []string{"e", "d", "c", "b"} {
			if err := s.kube.Tracker().Add(newPod(name, set)); err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
			s.setCounts(t, int32(2+i))
		}
		time.Sleep(time.Minute)
		if got := s.statusWrites(); got != 2 {
			t.Errorf("rule M13: %d status writes in all, want one for each Ready: %q", got, s.requests())
		}
		memcached, err = s.cache.CacheV1alpha1().Memcacheds(testNamespace).Get(ctx, "mc", metav1.GetOptions{})
		if err != nil {
			t.Fatal(err)
		}
		fixture.Differ(t, "status", `gen=2 nodes=["a" "b" "c" "d" "e"] ready=5 replicas=5 True/DeploymentAvailable`, summary(memcached))

		s.kube.ClearActions()
		s.cache.ClearActions()
		time.Sleep(time.Hour)
		fixture.Differ(t, "rule M15: requests in an hour without a change", []string(nil), s.requests())

		if err := s.kube.Tracker().Delete(corev1.SchemeGroupVersion.WithResource("pods"), testNamespace, "c"); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Minute)
		fixture.Differ(t, "rule M23: requests when a Pod goes", []string{
			`update memcacheds/status mc uid=uid-mc version=21: gen=2 nodes=["a" "b" "d" "e"] ready=5 replicas=5 True/DeploymentAvailable`}, s.requests())
		stop()
	})
}

// TestPanic is rule M18: one Memcached's sync panics, the other goes on.
func TestPanic(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		bad := newMemcached(func(m *v1alpha1.Memcached) { m.Name, m.UID = "bad", "uid-bad" })
		ctx, s := newEnv(t, []*v1alpha1.Memcached{bad, newMemcached()}, nil)
		panics := 0
		s.kube.PrependReactor("create", "deployments", func(action clienttesting.Action) (bool, runtime.Object, error) {
			if action.(clienttesting.CreateAction).GetObject().(*appsv1.Deployment).Name == "bad" && panics < 3 {
				panics++
				panic("three times")
			}
			return false, nil, nil
		})
		stop := s.start(ctx, t)
		time.Sleep(time.Minute)
		for _, name := range []string{"bad", "mc"} {
			if _, err := s.kube.AppsV1().Deployments(testNamespace).Get(ctx, name, metav1.GetOptions{}); err != nil {
				t.Errorf("rule M18: %v", err)
			}
		}
		stop()
	})
}
