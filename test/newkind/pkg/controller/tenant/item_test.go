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

package tenant

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"example.com/sample-controller/test/fixture"
	"example.com/sample-controller/test/newkind/pkg/apis/tenancy/v1alpha1"
)

const (
	addFinalizer    = `patch tenants x {"metadata":{"finalizers":["tenancy.example.org/tenant"],"resourceVersion":"10"}}`
	removeFinalizer = `patch tenants x {"metadata":{"finalizers":[],"resourceVersion":"10"}}`
	itemFailed      = status + "False/ItemFailed"
	deletionFailed  = status + "False/ItemDeletionFailed"
)

// fault is what a request to the fake service meets.
type fault string

const (
	noFault fault = ""
	// unavailable says that the service refuses the request.
	unavailable fault = "unavailable"
	// answerLost says that the service does what is asked, and the controller does not hear it.
	answerLost fault = "answer lost"
	// stuck says that the service never answers, slow that it does what is asked when the controller no longer waits.
	stuck fault = "stuck"
	slow  fault = "slow"
	// accepted says that the service answers a write a second before it does what is asked.
	accepted fault = "accepted"
)

// fakeService is a Service in memory. Its next requests meet the faults, one each.
type fakeService struct {
	mu     sync.Mutex
	items  map[string]Item
	faults []fault
	writes []string
	reads  int
}

func newFakeService() *fakeService { return &fakeService{items: map[string]Item{}} }

// locked calls change while the service does nothing.
func (s *fakeService) locked(change func()) {
	s.mu.Lock()
	defer s.mu.Unlock()
	change()
}

// do is one request: it calls change unless the fault prevents it. write describes a write.
func (s *fakeService) do(ctx context.Context, write string, change func()) error {
	next := noFault
	s.locked(func() {
		if write == "" {
			s.reads++
		} else {
			s.writes = append(s.writes, write)
		}
		if len(s.faults) > 0 {
			next, s.faults = s.faults[0], s.faults[1:]
		}
	})
	switch next {
	case unavailable:
		return &statusError{code: 503}
	case stuck, slow:
		<-ctx.Done()
		if next == slow {
			s.locked(change)
		}
		return ctx.Err()
	case answerLost:
		s.locked(change)
		return errors.New("connection reset")
	case accepted:
		time.AfterFunc(time.Second, func() { s.locked(change) })
		return nil
	}
	s.locked(change)
	return nil
}

// Get implements Service.
func (s *fakeService) Get(ctx context.Context, id string) (item Item, err error) {
	found := false
	err = s.do(ctx, "", func() { item, found = s.items[id] })
	if err == nil && !found {
		err = ErrNotFound
	}
	return item, err
}

// Put implements Service.
func (s *fakeService) Put(ctx context.Context, id string, item Item) error {
	return s.do(ctx, fmt.Sprint("put ", id, " ", item), func() { s.items[id] = item })
}

// Delete implements Service.
func (s *fakeService) Delete(ctx context.Context, id string) error {
	return s.do(ctx, "delete "+id, func() { delete(s.items, id) })
}

func (s *fakeService) count() (count int) {
	s.locked(func() { count = len(s.items) })
	return count
}

// clear forgets what was requested.
func (e *env) clear() {
	e.kube.ClearActions()
	e.own.ClearActions()
	e.service.locked(func() { e.service.writes, e.service.reads = nil, 0 })
}

// faulty makes the next requests to the external service meet the faults.
func faulty(faults ...fault) func(*env) {
	return func(e *env) { e.service.faults = faults }
}

// TestSyncItem is the part of the Tenant contract that is about the finalizer and the item.
func TestSyncItem(t *testing.T) {
	none, missing := []*corev1.ConfigMap{}, func(e *env) { clear(e.service.items) }
	its := []*corev1.ConfigMap{newOwned()}
	refused := apierrors.NewForbidden(v1alpha1.Resource("tenants"), "x", errors.New("a policy"))
	tests := map[string]syncTest{
		"rule Z17: the finalizer is added before anything else is written": {
			tenant: newTenant(withoutFinalizer), configMaps: none, prepare: missing, requests: []string{getX, addFinalizer}},
		"rule Z17: finalizers of others stay": {
			tenant:   newTenant(func(s *v1alpha1.Tenant) { s.Finalizers = []string{"theirs"} }),
			requests: []string{getX, `patch tenants x {"metadata":{"finalizers":["theirs","tenancy.example.org/tenant"],"resourceVersion":"10"}}`}},
		"rule Z17: a finalizer that is refused is reported, and nothing else is written": {
			tenant: newTenant(withoutFinalizer), configMaps: none, prepare: func(e *env) { e.patchErrors = []error{refused} },
			requests: []string{getX, addFinalizer, "patch tenants/status x version=10 gen=1 item= " + rejected}, events: "Warning ConfigMapRejected", err: "a policy"},
		"rule Z18: a missing item is written after a live read of the Tenant": {prepare: missing, requests: []string{"put uid-x {ns/x blue}", getX}},
		"rule Z18: an item that is different is replaced": {
			prepare: func(e *env) { e.service.items["uid-x"] = Item{Owner: "other"} }, requests: []string{"put uid-x {ns/x blue}", getX}},
		"rule Z18: that of a Tenant that is gone from the API server is not written": {
			prepare: func(e *env) { missing(e); must(e.tracker.Delete(tenantsResource, testNamespace, "x")) }, requests: []string{getX}, err: "the cache is out of date"},
		"rule Z19: while the item cannot be read it is reported, and no ConfigMap is created": {
			tenant: newTenant(ready), configMaps: none, prepare: faulty(unavailable), requests: []string{itemFailed}, events: "Warning ItemFailed", err: "answered 503"},
		"rule Z19: while the item cannot be written it is reported": {
			prepare: func(e *env) { missing(e); faulty(noFault, unavailable)(e) }, requests: []string{"put uid-x {ns/x blue}", getX, itemFailed}, events: "Warning ItemFailed", err: "answered 503"},
		"rule Z19: a request that is not answered ends": {prepare: faulty(stuck), requests: []string{itemFailed}, events: "Warning ItemFailed", err: "deadline exceeded"},
		"rule Z20: without a service nothing is written but the status": {
			tenant: newTenant(withoutFinalizer), configMaps: none, prepare: func(e *env) { e.Controller.service = nil },
			requests: []string{"patch tenants/status x version=10 gen=1 item= False/ItemFailed"}, events: "Warning ItemFailed"},
		"rule Z21: of a terminating Tenant the item is deleted, and then the finalizer removed": {
			tenant: newTenant(ready, deleted), configMaps: its, requests: []string{"delete uid-x", getX, removeFinalizer}},
		"rule Z21: a deletion that fails keeps the Tenant, and is reported": {
			tenant: newTenant(ready, deleted), prepare: faulty(unavailable), requests: []string{"delete uid-x", deletionFailed}, events: "Warning ItemDeletionFailed", err: "answered 503"},
		"rule Z21: so does one that the service has not carried out": {
			tenant: newTenant(ready, deleted), prepare: faulty(accepted), requests: []string{"delete uid-x", deletionFailed}, events: "Warning ItemDeletionFailed", err: "still has it"},
		"rule Z21: and one that cannot be verified": {
			tenant: newTenant(ready, deleted), prepare: faulty(noFault, unavailable), requests: []string{"delete uid-x", deletionFailed}, events: "Warning ItemDeletionFailed", err: "answered 503"},
		"rule Z21: and one without a service": {
			tenant: newTenant(ready, deleted), prepare: func(e *env) { e.Controller.service = nil }, requests: []string{deletionFailed}, events: "Warning ItemDeletionFailed"},
		"rule Z21: a finalizer that may not be removed is reported": {
			tenant: newTenant(ready, deleted), prepare: func(e *env) { e.patchErrors = []error{refused} },
			requests: []string{"delete uid-x", getX, removeFinalizer, deletionFailed}, events: "Warning ItemDeletionFailed", err: "a policy"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) { synctest.Test(t, test.run) })
	}
}

// TestNothingLeaks: whatever the first requests to the service and the API server meet, there is one item while the
// Tenant exists, and none after it. The fake API server panics if the Tenant goes first.
func TestNothingLeaks(t *testing.T) {
	lost := errors.New("connection reset")
	for _, faults := range [][]fault{{}, {unavailable}, {answerLost, answerLost}, {noFault, unavailable}, {noFault, answerLost}, {noFault, slow}, {slow, stuck}, {noFault, noFault, unavailable}, {accepted}, {noFault, accepted}} {
		for _, patches := range [][]error{nil, {lost}, {lost, lost}} {
			t.Run(fmt.Sprint("rule Z22: ", faults, patches), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					ctx, e := newEnv(t, newTenant(withoutFinalizer))
					e.hasVersions, e.service.faults, e.patchErrors = true, faults, patches
					stop := fixture.Run(ctx, t, e.Worker, e.factories...)
					time.Sleep(time.Hour)
					synctest.Wait()
					fixture.Differ(t, "items", map[string]Item{"uid-x": {Owner: "ns/x", DisplayName: "blue"}}, e.service.items)
					stored, err := e.tracker.Get(tenantsResource, testNamespace, "x")
					must(err)
					tenant := stored.DeepCopyObject().(*v1alpha1.Tenant)
					deleted(tenant)
					tenant.ResourceVersion += "0"
					e.service.locked(func() { e.service.faults, e.patchErrors = faults, patches })
					must(e.tracker.Update(tenantsResource, tenant, testNamespace))
					time.Sleep(time.Hour)
					synctest.Wait()
					fixture.Differ(t, "items after the deletion", map[string]Item{}, e.service.items)
					if _, err := e.tracker.Get(tenantsResource, testNamespace, "x"); !apierrors.IsNotFound(err) {
						t.Errorf("the deleted Tenant is still there (%v)", err)
					}
					stop()
				})
			})
		}
	}
}
