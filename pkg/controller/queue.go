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

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	// manyKeys is the number of waiting keys from which the memory of the queue is
	// released once it is empty.
	manyKeys = 1000
	// highInARow is how many keys of high priority are handed out at most before one of
	// low priority.
	highInARow = 7
)

// Queue is a workqueue with two priorities: high for keys that an event has just enqueued,
// low for all others. A user's change does not wait until ten thousand objects are synced
// that existed before the controller started. Every 8th key has low priority, so that no
// key starves. As in any workqueue a key waits at most once and is never handed to two
// workers at the same time.
//
// Add, AddAfter and AddRateLimited add keys with low priority.
type Queue struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]

	keys *priorityQueue
}

// newQueue returns a Queue of that name in the metrics.
func newQueue(name string, backoff workqueue.TypedRateLimiter[cache.ObjectName], clock clock.WithTicker) *Queue {
	keys := &priorityQueue{waiting: map[cache.ObjectName]entry{}, raised: sets.New[cache.ObjectName]()}
	return &Queue{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(backoff, workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{
			Name: name, Clock: clock,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{
				Name: name, Clock: clock,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[cache.ObjectName]{Name: name, Clock: clock, Queue: keys}),
			}),
		}),
		keys: keys,
	}
}

// AddHighPriority adds the key with high priority, or raises its priority if it waits.
func (q *Queue) AddHighPriority(key cache.ObjectName) {
	q.keys.raise(key)
	q.Add(key)
}

// priorityQueue implements workqueue.Queue. The workqueue's lock guards all fields but
// raised.
type priorityQueue struct {
	high, low fifo
	// waiting holds the valid entry of each key. Other entries of a key are stale: its
	// priority was raised.
	waiting map[cache.ObjectName]entry
	// sequence numbers the entries.
	sequence uint64
	// most is the greatest number of waiting keys since memory was last released.
	most int
	// inARow counts the keys of high priority since the last one of low priority.
	inARow int

	mu sync.Mutex
	// raised are the keys whose next Push or Touch is with high priority. The workqueue
	// calls one of them for each key that is added, at the latest from Done.
	raised sets.Set[cache.ObjectName]
}

// fifo is a queue of entries, first in, first out.
type fifo struct {
	entries []entry
	// valid is the number of entries that are not stale.
	valid int
}

// entry is a key in a fifo.
type entry struct {
	key      cache.ObjectName
	high     bool
	sequence uint64
}

func (q *priorityQueue) raise(key cache.ObjectName) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.raised.Insert(key)
}

// takeRaised reports whether raise was called for the key since the last takeRaised.
func (q *priorityQueue) takeRaised(key cache.ObjectName) bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	if !q.raised.Has(key) {
		return false
	}
	q.raised.Delete(key)
	return true
}

// Push implements workqueue.Queue.
func (q *priorityQueue) Push(key cache.ObjectName) {
	q.append(key, q.takeRaised(key))
}

// Touch implements workqueue.Queue.
func (q *priorityQueue) Touch(key cache.ObjectName) {
	if q.takeRaised(key) && !q.waiting[key].high {
		q.low.valid--
		q.append(key, true)
	}
}

// Len implements workqueue.Queue.
func (q *priorityQueue) Len() int {
	return len(q.waiting)
}

// Pop implements workqueue.Queue.
func (q *priorityQueue) Pop() cache.ObjectName {
	from := &q.low
	if q.high.valid > 0 && (q.low.valid == 0 || q.inARow < highInARow) {
		from = &q.high
		q.inARow++
	} else {
		q.inARow = 0
	}
	for {
		first := from.entries[0]
		from.entries = from.entries[1:]
		if q.waiting[first.key] == first {
			delete(q.waiting, first.key)
			from.valid--
			q.releaseMemory()
			return first.key
		}
	}
}

// releaseMemory replaces the maps and slices of a queue that was long: neither shrinks.
func (q *priorityQueue) releaseMemory() {
	if len(q.waiting) == 0 && q.most > manyKeys {
		q.high, q.low, q.waiting, q.most = fifo{}, fifo{}, map[cache.ObjectName]entry{}, 0
	}
}

// append adds a valid entry of the key.
func (q *priorityQueue) append(key cache.ObjectName, high bool) {
	to := &q.low
	if high {
		to = &q.high
	}
	q.sequence++
	added := entry{key: key, high: high, sequence: q.sequence}
	q.waiting[key] = added
	to.entries = append(to.entries, added)
	to.valid++
	q.most = max(q.most, len(q.waiting))
}
