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
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"

	"example.com/sample-controller/pkg/fairqueue"
)

const (
	// manyKeys is the number of waiting keys from which the memory of the queue is
	// released once it is empty.
	manyKeys = 1000
	// highInARow is how many keys of high priority are handed out at most before one of
	// low priority.
	highInARow = 7
)

// Queue is a workqueue with three priorities: high for keys that an event has just
// enqueued, progress for keys whose next sync would only report progress, low for all
// others. A user's change does not wait until ten thousand objects are synced that existed
// before the controller started, and no work waits for reports of progress. While keys of
// high priority wait, every 8th key has low priority, so that no such key starves; keys of
// progress priority come when no other key waits, and the StatusDebouncer raises them to low
// priority in time. Within a priority namespaces take turns: ten thousand keys of one namespace
// delay a key of another one by no more than one of them would. As in any workqueue a key waits
// at most once and is never handed to two workers at the same time.
//
// Add, AddAfter and AddRateLimited add keys with low priority.
type Queue struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]

	keys *priorityQueue
}

// newQueue returns a Queue of that name in the metrics.
func newQueue(name string, backoff workqueue.TypedRateLimiter[cache.ObjectName], clock clock.WithTicker) *Queue {
	keys := &priorityQueue{waiting: map[cache.ObjectName]place{}, next: map[cache.ObjectName]priority{}}
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
	q.keys.setNext(key, highPriority)
	q.Add(key)
}

// AddHighPriorityAfter adds the key with high priority after the delay.
func (q *Queue) AddHighPriorityAfter(key cache.ObjectName, delay time.Duration) {
	q.keys.setNext(key, highPriority)
	q.AddAfter(key, delay)
}

// RaiseNext gives the key high priority when it is added next, for example by AddAfter.
func (q *Queue) RaiseNext(key cache.ObjectName) {
	q.keys.setNext(key, highPriority)
}

// AddProgress adds the key with progress priority, unless it waits for another reason.
func (q *Queue) AddProgress(key cache.ObjectName) {
	q.keys.setNext(key, progressPriority)
	q.Add(key)
}

// priority is a class of keys. The greater one goes first.
type priority int

const (
	progressPriority priority = iota - 1
	// lowPriority is the zero value: that of keys that are added without a priority.
	lowPriority
	highPriority
)

// priorityQueue implements workqueue.Queue. The workqueue's lock guards all fields but
// next.
type priorityQueue struct {
	high, low, progress fairqueue.Queue[cache.ObjectName]
	// waiting has the place of each key in these.
	waiting map[cache.ObjectName]place
	// most is the greatest number of waiting keys since memory was last released.
	most int
	// inARow counts the keys of high priority since the last one of low priority.
	inARow int

	mu sync.Mutex
	// next holds the priority of a key's next Push or Touch, unless it is low. The workqueue
	// calls one of them for each key that is added, at the latest from Done.
	next map[cache.ObjectName]priority
}

// place is where a key waits.
type place struct {
	priority priority
	item     *fairqueue.Item[cache.ObjectName]
}

// setNext sets the priority of the key's next Push or Touch, unless that is already high.
func (q *priorityQueue) setNext(key cache.ObjectName, p priority) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.next[key] != highPriority {
		q.next[key] = p
	}
}

// takeNext returns the priority that setNext set since the last takeNext, else low.
func (q *priorityQueue) takeNext(key cache.ObjectName) priority {
	q.mu.Lock()
	defer q.mu.Unlock()
	p, ok := q.next[key]
	if ok {
		delete(q.next, key)
	}
	return p
}

// Push implements workqueue.Queue.
func (q *priorityQueue) Push(key cache.ObjectName) {
	q.append(key, q.takeNext(key))
}

// Touch implements workqueue.Queue.
func (q *priorityQueue) Touch(key cache.ObjectName) {
	old := q.waiting[key]
	if p := q.takeNext(key); p > old.priority {
		q.of(old.priority).Remove(key.Namespace, old.item)
		q.append(key, p)
	}
}

// Len implements workqueue.Queue.
func (q *priorityQueue) Len() int {
	return len(q.waiting)
}

// Pop implements workqueue.Queue.
func (q *priorityQueue) Pop() cache.ObjectName {
	from := &q.progress
	switch {
	case q.high.Len() > 0 && (q.low.Len() == 0 || q.inARow < highInARow):
		from = &q.high
		q.inARow++
	case q.low.Len() > 0:
		from = &q.low
		q.inARow = 0
	}
	key := from.Pop()
	delete(q.waiting, key)
	q.releaseMemory()
	return key
}

// releaseMemory replaces the maps of a queue that was long: a Go map never shrinks.
func (q *priorityQueue) releaseMemory() {
	if len(q.waiting) > 0 || q.most <= manyKeys {
		return
	}
	q.waiting, q.most = map[cache.ObjectName]place{}, 0
	q.mu.Lock()
	defer q.mu.Unlock()
	if len(q.next) == 0 {
		q.next = map[cache.ObjectName]priority{}
	}
}

// of returns the keys of that priority.
func (q *priorityQueue) of(p priority) *fairqueue.Queue[cache.ObjectName] {
	switch p {
	case highPriority:
		return &q.high
	case progressPriority:
		return &q.progress
	}
	return &q.low
}

// append adds the key with that priority.
func (q *priorityQueue) append(key cache.ObjectName, p priority) {
	q.waiting[key] = place{priority: p, item: q.of(p).Push(key.Namespace, key)}
	q.most = max(q.most, len(q.waiting))
}
