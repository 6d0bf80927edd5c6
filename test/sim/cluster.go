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

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/watch"
	"k8s.io/utils/clock"
)

// Namespace is the namespace of all objects in the simulated cluster.
const Namespace = "ns"

// Object is an object of the API.
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
	*objects

	events []*watchEvent
	// lag is the latency of watch events. It differs from table to table, so that the
	// order of events is the same in each run.
	lag time.Duration
	// Until heldUntil only the first open events are delivered.
	heldUntil time.Time
	open      int
	watcher   *watcher
}

// simCluster is a Store behind the fake clientsets, with the process under test. The fakes of client-go have no resource versions,
// preconditions, generations, finalizers or lagging caches, and the controller relies on
// all of those. All objects share one counter of versions, as in etcd.
type simCluster struct {
	*Store

	sequence      Sequence
	newController NewController
	// clock is the fake clock of the synctest bubble.
	clock clock.Clock

	mu                            sync.Mutex
	foos, deployments             *table
	collectionIsDue, rolloutIsDue bool
	process                       *process
	restarts                      sync.WaitGroup
	// failures are those of the next requests.
	failures []Failure
	later    []laterOp
	// faultsEnded says that autoscalers are gone.
	faultsEnded bool
	// contested says that at the beginning of an operation a Foo waited for a name that another one had.
	contested bool
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
	}
	c.Store = NewStore(FooResources(), func() metav1.Time { return metav1.Now().Rfc3339Copy() }, c.announce)
	c.logf = c.note
	c.foos, c.deployments = &table{objects: c.Store.foos, lag: foosLag}, &table{objects: c.Store.deployments, lag: deploymentsLag}
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

// note adds a line to the trace.
func (c *simCluster) note(format string, args ...any) {
	if len(c.trace) < maxTrace {
		c.trace = append(c.trace, fmt.Sprintf("%10.4f  ", c.clock.Since(c.begun).Seconds())+fmt.Sprintf(format, args...))
	}
}

// announce schedules the watch event. The caller holds the lock.
func (c *simCluster) announce(resource string, event Event) {
	t := c.table(resource)
	t.events = append(t.events, &watchEvent{version: c.version, kind: event.Type, object: event.Object, at: c.clock.Now()})
	time.AfterFunc(t.lag, func() {
		c.mu.Lock()
		defer c.mu.Unlock()
		c.deliver(t)
	})
	c.wakeControllers()
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
