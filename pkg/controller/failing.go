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

package controller

import (
	"container/list"
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

const (
	// limitFrom is the threshold from which a namespace is limited to one worker: the time spent
	// in failing syncs less that in succeeding ones. The difference is capped at twice this, so that
	// the limit ends soon after the failures. Time is counted because a sync that finds nothing to do takes
	// almost none.
	limitFrom = 200 * time.Millisecond
	// maxCounted is how much of one sync is counted: a few slow ones are no reason.
	maxCounted = limitFrom / 16
	// forgiveness is the divisor of the elapsed time that is subtracted (10 ms a second): a few
	// objects that fail for ever do not limit their namespace.
	forgiveness = 100
	// resumed is how many of the keys that wait follow each sync once the limit has ended, so that
	// all workers are soon busy again.
	resumed = 2
	// pauseFactor is how long the worker of a limited namespace pauses after a sync that failed, as a
	// multiple of the time that the sync took: on an overloaded API server it sends less. minPause
	// allows no more than 10 such syncs a second, as workqueue.DefaultTypedControllerRateLimiter does.
	pauseFactor = 3
	minPause    = 100 * time.Millisecond
	maxPause    = time.Second
)

// failingNamespaces limits the workers of namespaces whose failing syncs take longer than the
// succeeding ones, as where a quota is exhausted: one worker at a time syncs their keys, with pauses.
// Otherwise all workers together would send such a namespace's requests, and those of others would
// wait in the API server. It is safe for use by several goroutines.
type failingNamespaces struct {
	mu sync.Mutex
	// namespaces has those in which a sync is in progress, or syncs have failed.
	namespaces map[string]*failingNamespace
	// spare is an entry to use again.
	spare *failingNamespace
	// parked is the number of keys that wait in all of them, and report is told each change of it.
	parked int
	report func(parked int)
}

func newFailingNamespaces(report func(parked int)) *failingNamespaces {
	return &failingNamespaces{namespaces: map[string]*failingNamespace{}, report: report}
}

type failingNamespace struct {
	// syncing is the number of syncs in progress.
	syncing int
	// wasted is how much longer the failing syncs had taken than the succeeding ones at the time
	// countedAt.
	wasted    time.Duration
	countedAt time.Time
	// next is the key that begin lets pass while the namespace is limited, "" for any. It is in the
	// queue, or will be after a pause.
	next string
	// pausedUntil is when the worker goes on if the namespace is limited.
	pausedUntil time.Time
	// waiting has the keys that wait for the worker: those of events, which take turns with the
	// others, because a user's change does not wait for all retries, and the others. Another key of
	// the namespace is being synced, is next, or was returned by end and has not begun.
	waiting         map[string]parkedKey
	changed, others list.List
	lastChanged     bool
}

// parkedKey is where a key waits.
type parkedKey struct {
	line    *list.List
	element *list.Element
}

// limited reports whether one worker at a time syncs the namespace.
func (n *failingNamespace) limited() bool {
	return n.wasted >= limitFrom
}

// forgive forgives what the time since the last call allows.
func (n *failingNamespace) forgive(now time.Time) {
	n.wasted = max(n.wasted-now.Sub(n.countedAt)/forgiveness, 0)
	n.countedAt = now
}

// idle reports whether nothing is known of the namespace.
func (n *failingNamespace) idle() bool {
	return n.syncing == 0 && n.wasted == 0 && n.next == "" && len(n.waiting) == 0
}

// begin reports whether the key may be synced now. If not, the caller enqueues the key after the delay,
// or, if that is 0, begin keeps the key until an end returns it.
func (f *failingNamespaces) begin(key cache.ObjectName, now time.Time) (ok bool, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.namespaces[key.Namespace]
	if !ok {
		f.forgetIdle(now)
		// Most syncs find no entry, and leave none behind.
		if n, f.spare = f.spare, nil; n == nil {
			n = &failingNamespace{}
		}
		f.namespaces[key.Namespace] = n
	}
	n.forgive(now)
	if n.limited() && (n.syncing > 0 || n.next != "" && n.next != key.Name) {
		f.park(n, &n.others, key)
		return false, 0
	}
	if n.limited() && now.Before(n.pausedUntil) {
		n.next = key.Name
		return false, n.pausedUntil.Sub(now)
	}
	n.syncing++
	n.next = ""
	return true, 0
}

// forgetIdle looks at two namespaces, random ones, and forgets them if they are idle: their objects
// may be gone since their syncs failed. The caller holds the lock.
func (f *failingNamespaces) forgetIdle(now time.Time) {
	looked := 0
	for namespace, n := range f.namespaces {
		if n.forgive(now); n.idle() {
			delete(f.namespaces, namespace)
		}
		if looked++; looked == 2 {
			return
		}
	}
}

// keepChanged keeps the key of an event until an end returns it, if one worker at a time syncs the
// namespace. It returns false if the key is to be enqueued.
func (f *failingNamespaces) keepChanged(key cache.ObjectName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.namespaces[key.Namespace]
	if !ok || !n.limited() || n.next == key.Name || n.syncing == 0 && n.next == "" {
		return false
	}
	f.park(n, &n.changed, key)
	return true
}

// park adds the key to the line, unless it waits in that one or in changed. The caller holds the lock.
func (f *failingNamespaces) park(n *failingNamespace, line *list.List, key cache.ObjectName) {
	old, waits := n.waiting[key.Name]
	if waits && (line == old.line || line == &n.others) {
		return
	}
	if waits {
		old.line.Remove(old.element)
	} else {
		f.parked++
		f.report(f.parked)
	}
	if n.waiting == nil {
		n.waiting = map[string]parkedKey{}
	}
	n.waiting[key.Name] = parkedKey{line: line, element: line.PushBack(key.Name)}
}

// outcome is what a sync says about its namespace.
type outcome int

const (
	// undecided is a sync that waits for something else.
	undecided outcome = iota
	succeeded
	failed
)

// outcomeOf returns the outcome of a sync that returned the error.
func outcomeOf(err error) outcome {
	switch {
	case err == nil:
		return succeeded
	case resultOf(0, err) == resultError:
		return failed
	}
	return undecided
}

// resumption is what the caller enqueues at the end of a sync: keys, after a pause. They are urgent if
// all other keys of the namespace wait for them, or one is that of an event.
type resumption struct {
	keys   []cache.ObjectName
	pause  time.Duration
	urgent bool
}

// end ends a sync that begin has allowed, at a time and after so long.
func (f *failingNamespaces) end(namespace string, o outcome, now time.Time, took time.Duration) (r resumption) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.namespaces[namespace]
	n.syncing--
	n.forgive(now)
	switch o {
	case succeeded:
		n.wasted = max(n.wasted-min(took, maxCounted), 0)
	case failed:
		n.wasted = min(n.wasted+min(took, maxCounted), 2*limitFrom)
		n.pausedUntil = now.Add(min(max(pauseFactor*took, minPause), maxPause))
	case undecided:
	}
	count := resumed
	if n.limited() {
		count = 1 - min(n.syncing, 1)
		r.pause, r.urgent = max(n.pausedUntil.Sub(now), 0), true
	}
	for len(n.waiting) > 0 && len(r.keys) < count {
		r.keys = append(r.keys, cache.NewObjectName(namespace, n.pop()))
		r.urgent = r.urgent || n.lastChanged
	}
	if len(r.keys) > 0 {
		f.parked -= len(r.keys)
		f.report(f.parked)
		if n.limited() {
			n.next = r.keys[0].Name
		}
	} else if n.idle() {
		delete(f.namespaces, namespace)
		*n = failingNamespace{}
		f.spare = n
	}
	return r
}

// pop removes and returns a name that waits, of events and others in turn. There must be one.
func (n *failingNamespace) pop() string {
	n.lastChanged = n.others.Len() == 0 || n.changed.Len() > 0 && !n.lastChanged
	line := &n.others
	if n.lastChanged {
		line = &n.changed
	}
	name, _ := line.Remove(line.Front()).(string)
	if delete(n.waiting, name); len(n.waiting) == 0 {
		// A Go map never shrinks.
		n.waiting = nil
	}
	return name
}
