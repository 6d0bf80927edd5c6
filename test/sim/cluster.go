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

package sim

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"sync"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Namespace is the namespace of all objects in the simulated cluster.
const Namespace = "ns"

// Object is a Foo or a Deployment.
type Object interface {
	metav1.Object
	runtime.Object
}

// watchEvent is one version of an object.
type watchEvent struct {
	version int64
	kind    watch.EventType
	object  Object
	at      time.Time
	// delivered is when the present process received it, zero if it has not yet.
	delivered time.Time
}

// table is one resource.
type table struct {
	group   schema.GroupResource
	present map[string]Object
	events  []*watchEvent
	// lag is the latency of watch events. It differs from table to table, so that the
	// order of events is the same in each run.
	lag time.Duration
	// Until heldUntil only the first open events are delivered.
	heldUntil time.Time
	open      int
	watcher   *watcher
}

// simCluster is an API server in memory behind the fake clientsets, with the controllers that
// run in it and the process under test. The fakes of client-go have no resource versions,
// preconditions, generations, finalizers or lagging caches, and the controller relies on
// all of those. All objects share one counter of versions, as in etcd.
type simCluster struct {
	sequence      Sequence
	newController NewController
	// clock is the fake clock of the synctest bubble.
	clock clock.Clock

	mu          sync.Mutex
	version     int64
	uids        int
	foos        *table
	deployments *table
	// podImages are the images of the running Pods, by Deployment.
	podImages                     map[types.UID]string
	collectionIsDue, rolloutIsDue bool
	process                       *process
	restarts                      sync.WaitGroup
	// failures are those of the next requests.
	failures []Failure
	later    []laterOp
	// faultsEnded says that autoscalers are gone. rewrites says that the policy of Rewrite is
	// in force.
	faultsEnded, rewrites bool
	// requests and events count those of the controller.
	requests, events int
	invariants       *invariants
	trace            []string
	begun            time.Time
}

// laterOp is an operation that happens once the API server has received that many more
// requests.
type laterOp struct {
	op Op
	in int
}

const (
	firstVersion   = 100
	foosLag        = time.Millisecond
	deploymentsLag = 1300 * time.Microsecond
	maxRequests    = 20000
	restartDelay   = 100 * time.Millisecond
	watchCapacity  = 4096
	maxTrace       = 400
)

func newCluster(sequence Sequence, newController NewController) *simCluster {
	c := &simCluster{
		sequence:      sequence,
		newController: newController,
		clock:         clock.RealClock{},
		version:       firstVersion,
		foos:          &table{group: schema.GroupResource{Group: v1alpha1.GroupName, Resource: Foos}, present: map[string]Object{}, lag: foosLag},
		deployments: &table{group: schema.GroupResource{Group: appsv1.GroupName, Resource: Deployments},
			present: map[string]Object{}, lag: deploymentsLag},
		podImages: map[types.UID]string{},
	}
	c.begun = c.clock.Now()
	c.invariants = newInvariants(c)
	return c
}

func (c *simCluster) table(resource string) *table {
	if resource == Foos {
		return c.foos
	}
	return c.deployments
}

func (c *simCluster) foo(name string) *v1alpha1.Foo {
	foo, _ := c.foos.present[name].(*v1alpha1.Foo)
	return foo
}

func (c *simCluster) deployment(name string) *appsv1.Deployment {
	deployment, _ := c.deployments.present[name].(*appsv1.Deployment)
	return deployment
}

// state returns the present state. The caller must not change the objects.
func (c *simCluster) state() State {
	s := State{Foos: map[string]*v1alpha1.Foo{}, Deployments: map[string]*appsv1.Deployment{}}
	for name := range c.foos.present {
		s.Foos[name] = c.foo(name)
	}
	for name := range c.deployments.present {
		s.Deployments[name] = c.deployment(name)
	}
	return s
}

// names returns the names of all present objects, sorted.
func (t *table) names() []string {
	return slices.Sorted(maps.Keys(t.present))
}

// logf adds a line to the trace.
func (c *simCluster) logf(format string, args ...any) {
	if len(c.trace) < maxTrace {
		c.trace = append(c.trace, fmt.Sprintf("%10.4f  ", c.clock.Since(c.begun).Seconds())+fmt.Sprintf(format, args...))
	}
}

// store gives the object a new version, keeps a copy, and schedules the watch event. The
// caller holds the lock, here and below.
func (c *simCluster) store(t *table, kind watch.EventType, object Object) {
	c.version++
	object.SetResourceVersion(strconv.FormatInt(c.version, 10))
	if kind == watch.Deleted {
		delete(t.present, object.GetName())
	} else {
		t.present[object.GetName()] = copyOf(object)
	}
	t.events = append(t.events, &watchEvent{version: c.version, kind: kind, object: copyOf(object), at: c.clock.Now()})
	time.AfterFunc(t.lag, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.deliver(t)
	})
	c.wakeControllers()
}

func copyOf[T Object](object T) T {
	return object.DeepCopyObject().(T)
}

// create stores a new object.
func (c *simCluster) create(t *table, object Object) error {
	if t.present[object.GetName()] != nil {
		return apierrors.NewAlreadyExists(t.group, object.GetName())
	}
	c.uids++
	object.SetUID(types.UID(fmt.Sprintf("uid-%d-%s", c.uids, object.GetName())))
	object.SetNamespace(Namespace)
	object.SetGeneration(1)
	object.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	c.store(t, watch.Added, object)
	return nil
}

// replace stores a new version of a present object. A change of the spec increments the
// generation; without any change there is no new version.
func (c *simCluster) replace(t *table, object Object) {
	old := t.present[object.GetName()]
	if sameObject(old, object) {
		return
	}
	if !sameSpec(old, object) {
		object.SetGeneration(old.GetGeneration() + 1)
	}
	if object.GetDeletionTimestamp() != nil && len(object.GetFinalizers()) == 0 {
		c.store(t, watch.Deleted, object)
		return
	}
	c.store(t, watch.Modified, object)
}

// remove deletes an object, or sets its deletion timestamp if it has finalizers.
func (c *simCluster) remove(t *table, name string, options metav1.DeleteOptions) error {
	old := t.present[name]
	if old == nil {
		return apierrors.NewNotFound(t.group, name)
	}
	if conditions := options.Preconditions; conditions != nil {
		if conditions.UID != nil && *conditions.UID != old.GetUID() || conditions.ResourceVersion != nil && *conditions.ResourceVersion != old.GetResourceVersion() {
			return apierrors.NewConflict(t.group, name, fmt.Errorf("the preconditions are not met"))
		}
	}
	object := copyOf(old)
	finalizers := slices.DeleteFunc(object.GetFinalizers(), func(f string) bool {
		return f == metav1.FinalizerDeleteDependents || f == metav1.FinalizerOrphanDependents
	})
	if options.PropagationPolicy != nil {
		switch *options.PropagationPolicy {
		case metav1.DeletePropagationForeground:
			finalizers = append(finalizers, metav1.FinalizerDeleteDependents)
		case metav1.DeletePropagationOrphan:
			finalizers = append(finalizers, metav1.FinalizerOrphanDependents)
		}
	}
	object.SetFinalizers(finalizers)
	if len(finalizers) == 0 {
		c.store(t, watch.Deleted, object)
		return nil
	}
	if object.GetDeletionTimestamp() == nil {
		now := metav1.Now().Rfc3339Copy()
		object.SetDeletionTimestamp(&now)
		object.SetGeneration(object.GetGeneration() + 1)
	}
	if !sameObject(old, object) {
		c.store(t, watch.Modified, object)
	}
	return nil
}

// watcher implements watch.Interface.
type watcher struct {
	results chan watch.Event
	ended   bool
	// next is the index of the next event.
	next int
}

// ResultChan implements watch.Interface.
func (w *watcher) ResultChan() <-chan watch.Event { return w.results }

// Stop implements watch.Interface.
func (w *watcher) Stop() {}

// end closes the watch as the API server does.
func (w *watcher) end() {
	if !w.ended {
		w.ended = true
		close(w.results)
	}
}

// visible returns how many events a list or watch may return now.
func (c *simCluster) visible(t *table) int {
	if c.clock.Now().Before(t.heldUntil) {
		return t.open
	}
	return len(t.events)
}

// deliver sends the events that are due.
func (c *simCluster) deliver(t *table) {
	w := t.watcher
	if w == nil || w.ended {
		return
	}
	for ; w.next < c.visible(t); w.next++ {
		event := t.events[w.next]
		if c.clock.Since(event.at) < t.lag {
			return
		}
		event.delivered = c.clock.Now()
		w.results <- watch.Event{Type: event.kind, Object: event.object.DeepCopyObject()}
	}
}

// hold delays the events of a table.
func (c *simCluster) hold(t *table, duration time.Duration) {
	now := c.clock.Now()
	if !now.Before(t.heldUntil) {
		t.open = len(t.events)
		for t.open > 0 && now.Sub(t.events[t.open-1].at) < t.lag {
			t.open--
		}
	}
	if until := now.Add(duration); until.After(t.heldUntil) {
		t.heldUntil = until
	}
	time.AfterFunc(duration, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.deliver(t)
	})
}

// unhold ends the delay.
func (c *simCluster) unhold(t *table) {
	t.heldUntil = time.Time{}
	c.deliver(t)
}

// list returns the objects that are visible to the present process, and marks their
// events as delivered.
func (c *simCluster) list(t *table) (version string, objects []Object) {
	end := c.visible(t)
	if t.watcher != nil {
		// A process never sees an older state than before.
		end = max(end, t.watcher.next)
	}
	at, names := int64(firstVersion), map[string]Object{}
	for _, event := range t.events[:end] {
		at = event.version
		if event.kind == watch.Deleted {
			delete(names, event.object.GetName())
		} else {
			names[event.object.GetName()] = event.object
		}
		if event.delivered.IsZero() {
			event.delivered = c.clock.Now()
		}
	}
	if end == len(t.events) {
		at = c.version
	}
	for _, name := range slices.Sorted(maps.Keys(names)) {
		objects = append(objects, names[name])
	}
	return strconv.FormatInt(at, 10), objects
}

// watch starts a watch after that version.
func (c *simCluster) watch(t *table, version string) *watcher {
	after, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("watching from version %q: %v", version, err))
	}
	w := &watcher{results: make(chan watch.Event, watchCapacity)}
	for w.next < len(t.events) && t.events[w.next].version <= after {
		w.next++
	}
	t.watcher = w
	c.deliver(t)
	return w
}
