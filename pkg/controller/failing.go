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
	// manyFailures is how many syncs of a namespace fail in a row before one worker at a time
	// syncs its keys.
	manyFailures = 16
	// unparked is how many keys follow one whose sync has succeeded, so that all workers are
	// soon busy again.
	unparked = 2
	// pauseFactor is how long the worker of a limited namespace pauses after a sync, as a multiple of
	// the time that the sync took: on an overloaded API server it sends less.
	pauseFactor = 3
	maxPause    = time.Second
)

// failingNamespaces limits the workers of namespaces in which all syncs fail, as where a quota is
// exhausted: one worker at a time syncs their keys, with pauses, until a sync succeeds. Otherwise all
// workers together would send such a namespace's requests, and those of others would wait in the API
// server. It is safe for use by several goroutines.
type failingNamespaces struct {
	mu sync.Mutex
	// namespaces has those in which a sync is in progress, or the last one failed.
	namespaces map[string]*failingNamespace
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
	// failures is the number of failed syncs since one succeeded.
	failures int
	// next is the key that begin lets pass while the namespace is limited, "" for any. It is in the
	// queue.
	next string
	// parked are the keys that wait for the worker, each once.
	parked   []string
	isParked map[string]bool
}

// begin reports whether the key may be synced now. If not, it keeps the key until an end returns it.
func (f *failingNamespaces) begin(key cache.ObjectName) bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	n, ok := f.namespaces[key.Namespace]
	if !ok {
		n = &failingNamespace{isParked: map[string]bool{}}
		f.namespaces[key.Namespace] = n
	}
	if n.failures < manyFailures || n.syncing == 0 && (n.next == "" || n.next == key.Name) {
		n.syncing++
		n.next = ""
		return true
	}
	if !n.isParked[key.Name] {
		n.isParked[key.Name] = true
		n.parked = append(n.parked, key.Name)
		f.parked++
		f.report(f.parked)
	}
	return false
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

// end ends a sync that begin has allowed and that took so long. It returns keys to enqueue, and after
// which pause.
func (f *failingNamespaces) end(namespace string, o outcome, took time.Duration) (keys []cache.ObjectName, pause time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := f.namespaces[namespace]
	n.syncing--
	switch o {
	case succeeded:
		n.failures = 0
	case failed:
		n.failures++
	case undecided:
	}
	count := 0
	switch {
	case n.failures < manyFailures:
		count = unparked
	case n.syncing == 0 && len(n.parked) > 0:
		count, n.next, pause = 1, n.parked[0], min(pauseFactor*took, maxPause)
	}
	for _, name := range n.parked[:min(count, len(n.parked))] {
		delete(n.isParked, name)
		keys = append(keys, cache.NewObjectName(namespace, name))
	}
	n.parked = n.parked[len(keys):]
	if len(keys) > 0 {
		f.parked -= len(keys)
		f.report(f.parked)
	}
	if len(n.parked) == 0 {
		// Neither a slice nor a Go map ever shrinks.
		n.parked, n.isParked = nil, map[string]bool{}
	}
	if n.syncing == 0 && n.failures == 0 && len(n.parked) == 0 {
		delete(f.namespaces, namespace)
	}
	return keys, pause
}
