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
	"sync"
	"time"

	"k8s.io/client-go/tools/cache"
)

const (
	// maxWasted is how much longer the failing syncs of a namespace have taken than the succeeding ones
	// before one worker at a time syncs its keys. No more than twice this is counted, so that the limit
	// ends soon after. Time is counted because a sync that finds nothing to do takes almost none.
	maxWasted = 200 * time.Millisecond
	// maxCounted is how much of one sync is counted: a few slow ones are no reason.
	maxCounted = maxWasted / 16
	// unparked is how many keys follow one whose sync has succeeded, so that all workers are
	// soon busy again.
	unparked = 2
	// pauseFactor is how long the worker of a limited namespace pauses after a sync that failed, as a
	// multiple of the time that the sync took: on an overloaded API server it sends less. minPause
	// allows no more than 10 such syncs a second, as workqueue.DefaultTypedControllerRateLimiter does.
	pauseFactor = 3
	minPause    = 100 * time.Millisecond
	maxPause    = time.Second
	// forgetAfter is how long after the last failure a namespace is forgotten: its objects may be gone.
	// It is longer than maxBackoff.
	forgetAfter = 2 * maxBackoff
)

// failingNamespaces limits the workers of namespaces in which most syncs fail, as where a quota is
// exhausted: one worker at a time syncs their keys, with pauses. Otherwise all workers together would
// send such a namespace's requests, and those of others would wait in the API server. It is safe for
// use by several goroutines.
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
	// wasted is how much longer the failing syncs have taken than the succeeding ones.
	wasted time.Duration
	// next is the key that begin lets pass while the namespace is limited, "" for any. It is in the
	// queue.
	next string
	// pausedUntil is when the worker goes on after the last failure if the namespace is limited.
	pausedUntil time.Time
	// parked are the keys that wait for the worker, each once.
	parked parkedKeys
	// changed are those of events, which take turns with the others: a user's change does not wait
	// for all retries.
	changed     parkedKeys
	lastChanged bool
}

// limited reports whether one worker at a time syncs the namespace.
func (n *failingNamespace) limited() bool {
	return n.wasted >= maxWasted
}

// parkedKeys are names of keys in the order in which they came.
type parkedKeys struct {
	names []string
	has   map[string]bool
}

// push adds a name unless the keys have it, and reports whether it did.
func (k *parkedKeys) push(name string) bool {
	if k.has[name] {
		return false
	}
	if k.has == nil {
		k.has = map[string]bool{}
	}
	k.has[name] = true
	k.names = append(k.names, name)
	return true
}

// pop removes and returns the first name. There must be one.
func (k *parkedKeys) pop() string {
	name := k.names[0]
	delete(k.has, name)
	if k.names = k.names[1:]; len(k.names) == 0 {
		// Neither a slice nor a Go map ever shrinks.
		*k = parkedKeys{}
	}
	return name
}

// begin reports whether the key may be synced now. If not, the caller enqueues the key after the delay,
// or, if that is 0, begin keeps the key until an end returns it.
func (f *failingNamespaces) begin(key cache.ObjectName, now time.Time) (ok bool, delay time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.namespaces[key.Namespace]
	if !ok {
		f.forgetOne(now)
		// Most syncs find no entry, and leave none behind.
		if n, f.spare = f.spare, nil; n == nil {
			n = &failingNamespace{}
		}
		f.namespaces[key.Namespace] = n
	}
	if n.limited() && (n.syncing > 0 || n.next != "" && n.next != key.Name) {
		f.park(&n.parked, key)
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

// forgetOne looks at one namespace, a random one, and forgets it if its last failure is long ago. The
// caller holds the lock.
func (f *failingNamespaces) forgetOne(now time.Time) {
	for namespace, n := range f.namespaces {
		if n.syncing == 0 && n.next == "" && now.Sub(n.pausedUntil) > forgetAfter {
			delete(f.namespaces, namespace)
		}
		return
	}
}

// keepChanged keeps the key of an event until an end returns it, if one worker at a time syncs the
// namespace. It returns false if the key is to be enqueued.
func (f *failingNamespaces) keepChanged(key cache.ObjectName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.namespaces[key.Namespace]
	if !ok || !n.limited() || n.syncing == 0 && n.next == "" {
		return false
	}
	f.park(&n.changed, key)
	return true
}

// park adds the key. The caller holds the lock, and another key of the namespace is being synced or
// is next.
func (f *failingNamespaces) park(keys *parkedKeys, key cache.ObjectName) {
	if keys.push(key.Name) {
		f.parked++
		f.report(f.parked)
	}
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

// end ends a sync that begin has allowed, at a time and after so long. It returns keys to enqueue, and
// after which pause.
func (f *failingNamespaces) end(namespace string, o outcome, now time.Time, took time.Duration) (keys []cache.ObjectName, pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.namespaces[namespace]
	n.syncing--
	switch o {
	case succeeded:
		n.wasted = max(n.wasted-min(took, maxCounted), 0)
	case failed:
		n.wasted = min(n.wasted+min(took, maxCounted), 2*maxWasted)
		n.pausedUntil = now.Add(min(max(pauseFactor*took, minPause), maxPause))
	case undecided:
	}
	count := unparked
	if n.limited() {
		count = 1 - min(n.syncing, 1)
		pause = max(n.pausedUntil.Sub(now), 0)
	}
	for len(n.parked.names)+len(n.changed.names) > 0 && len(keys) < count {
		keys = append(keys, cache.NewObjectName(namespace, n.pop()))
	}
	if len(keys) > 0 {
		f.parked -= len(keys)
		f.report(f.parked)
		if n.limited() {
			n.next = keys[0].Name
		}
	} else if n.syncing == 0 && n.wasted == 0 {
		delete(f.namespaces, namespace)
		*n = failingNamespace{}
		f.spare = n
	}
	return keys, pause
}

// pop removes and returns a name that waits, of changed ones and others in turn. There must be one.
func (n *failingNamespace) pop() string {
	n.lastChanged = len(n.parked.names) == 0 || len(n.changed.names) > 0 && !n.lastChanged
	if n.lastChanged {
		return n.changed.pop()
	}
	return n.parked.pop()
}
