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

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/random"
)

// An API server in memory, behind the fake clientsets. The stock fakes have no
// resource versions, preconditions, generations, finalizers or lagging caches, and
// those are what the controller relies on. All objects share one counter of
// versions, as they do in etcd.

// simObject is a Foo or a Deployment.
type simObject interface {
	metav1.Object
	runtime.Object
}

// simEvent is a version that an object had.
type simEvent struct {
	version int64
	kind    watch.EventType
	object  simObject
	at      time.Time
	// shown is when the present process was told, zero if it was not yet.
	shown time.Time
}

// simTable is one resource.
type simTable struct {
	group   schema.GroupResource
	present map[string]simObject
	events  []*simEvent
	// lag is how long an event takes to a watcher. It differs from table to table,
	// so that events come in an order that can be repeated.
	lag time.Duration
	// Until heldUntil only the first open events go out.
	heldUntil time.Time
	open      int
	stream    *simStream
}

// simCluster is the API server, what works in it, and the one process under test.
type simCluster struct {
	sequence random.Sequence

	mu          sync.Mutex
	version     int64
	uids        int
	foos        *simTable
	deployments *simTable
	// images are what the Pods of each Deployment run.
	images                        map[types.UID]string
	collectionIsDue, rolloutIsDue bool
	process                       *simProcess
	restarts                      sync.WaitGroup
	failures                      []random.Failure
	later                         []laterOp
	requests, events              int
	judge                         *simJudge
	trace                         []string
	begun                         time.Time
}

// laterOp is an operation that waits for the controller's requests.
type laterOp struct {
	op random.Op
	in int
}

const (
	firstVersion    = 100
	foosLag         = time.Millisecond
	deploymentsLag  = 1300 * time.Microsecond
	maxSimRequests  = 20000
	restartTakes    = 100 * time.Millisecond
	streamCapacity  = 4096
	requestsToTrace = 400
)

func newSimCluster(sequence random.Sequence) *simCluster {
	c := &simCluster{
		sequence: sequence,
		version:  firstVersion,
		foos:     &simTable{group: schema.GroupResource{Group: v1alpha1.GroupName, Resource: random.Foos}, present: map[string]simObject{}, lag: foosLag},
		deployments: &simTable{group: schema.GroupResource{Group: appsv1.GroupName, Resource: random.Deployments},
			present: map[string]simObject{}, lag: deploymentsLag},
		images: map[types.UID]string{},
		begun:  time.Now(),
	}
	c.judge = newSimJudge(c)
	return c
}

func (c *simCluster) table(resource string) *simTable {
	if resource == random.Foos {
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

// world returns what there is.
func (c *simCluster) world() random.World {
	w := random.World{Foos: map[string]*v1alpha1.Foo{}, Deployments: map[string]*appsv1.Deployment{}}
	for name := range c.foos.present {
		w.Foos[name] = c.foo(name)
	}
	for name := range c.deployments.present {
		w.Deployments[name] = c.deployment(name)
	}
	return w
}

// names returns the names of all that there is, in order.
func (t *simTable) names() []string {
	return slices.Sorted(maps.Keys(t.present))
}

// logf notes something for the report of a failure.
func (c *simCluster) logf(format string, args ...any) {
	if len(c.trace) < requestsToTrace {
		c.trace = append(c.trace, fmt.Sprintf("%10.4f  ", time.Since(c.begun).Seconds())+fmt.Sprintf(format, args...))
	}
}

// store gives the object a new version, keeps a copy, and tells the watchers. The
// caller holds the lock, here and below.
func (c *simCluster) store(t *simTable, kind watch.EventType, object simObject) {
	c.version++
	object.SetResourceVersion(strconv.FormatInt(c.version, 10))
	if kind == watch.Deleted {
		delete(t.present, object.GetName())
	} else {
		t.present[object.GetName()] = copyOf(object)
	}
	t.events = append(t.events, &simEvent{version: c.version, kind: kind, object: copyOf(object), at: time.Now()})
	time.AfterFunc(t.lag, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.deliver(t)
	})
	c.wakeActors()
}

func copyOf[T simObject](object T) T {
	return object.DeepCopyObject().(T)
}

// create stores a new object.
func (c *simCluster) create(t *simTable, object simObject) error {
	if t.present[object.GetName()] != nil {
		return apierrors.NewAlreadyExists(t.group, object.GetName())
	}
	c.uids++
	object.SetUID(types.UID(fmt.Sprintf("uid-%d-%s", c.uids, object.GetName())))
	object.SetNamespace(testNamespace)
	object.SetGeneration(1)
	object.SetCreationTimestamp(metav1.Now().Rfc3339Copy())
	c.store(t, watch.Added, object)
	return nil
}

// replace stores a new state of an object that is there. A change of the spec
// raises the generation; without any change there is no new version.
func (c *simCluster) replace(t *simTable, object simObject) {
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

// remove deletes an object, or marks it as long as finalizers keep it.
func (c *simCluster) remove(t *simTable, name string, options metav1.DeleteOptions) error {
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

// simStream is a watch.
type simStream struct {
	results chan watch.Event
	ended   bool
	// next is the index of the event that comes next.
	next int
}

// ResultChan implements watch.Interface.
func (s *simStream) ResultChan() <-chan watch.Event { return s.results }

// Stop implements watch.Interface. What is sent afterwards is not read.
func (s *simStream) Stop() {}

// end ends the watch from the server's side.
func (s *simStream) end() {
	if !s.ended {
		s.ended = true
		close(s.results)
	}
}

// visible returns how many events a process that asks now may see.
func (c *simCluster) visible(t *simTable) int {
	if time.Now().Before(t.heldUntil) {
		return t.open
	}
	return len(t.events)
}

// deliver sends what is due.
func (c *simCluster) deliver(t *simTable) {
	s := t.stream
	if s == nil || s.ended {
		return
	}
	for ; s.next < c.visible(t); s.next++ {
		event := t.events[s.next]
		if time.Since(event.at) < t.lag {
			return
		}
		event.shown = time.Now()
		s.results <- watch.Event{Type: event.kind, Object: event.object.DeepCopyObject()}
	}
}

// hold keeps events back.
func (c *simCluster) hold(t *simTable, duration time.Duration) {
	now := time.Now()
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

// unhold lets all events go.
func (c *simCluster) unhold(t *simTable) {
	t.heldUntil = time.Time{}
	c.deliver(t)
}

// list returns the objects as the present process is to see them, and notes that
// it has.
func (c *simCluster) list(t *simTable) (version string, objects []simObject) {
	end := c.visible(t)
	if t.stream != nil {
		// A process never sees less than it has seen.
		end = max(end, t.stream.next)
	}
	at, names := int64(firstVersion), map[string]simObject{}
	for _, event := range t.events[:end] {
		at = event.version
		if event.kind == watch.Deleted {
			delete(names, event.object.GetName())
		} else {
			names[event.object.GetName()] = event.object
		}
		if event.shown.IsZero() {
			event.shown = time.Now()
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

// watch begins a watch after that version.
func (c *simCluster) watch(t *simTable, version string) *simStream {
	after, err := strconv.ParseInt(version, 10, 64)
	if err != nil {
		panic(fmt.Sprintf("a watch from version %q: %v", version, err))
	}
	s := &simStream{results: make(chan watch.Event, streamCapacity)}
	for s.next < len(t.events) && t.events[s.next].version <= after {
		s.next++
	}
	t.stream = s
	c.deliver(t)
	return s
}
