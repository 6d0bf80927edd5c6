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

	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
)

const (
	// manyKeys is how many keys must have waited for an empty queue to release its maps, which never shrink.
	manyKeys = 1000
	// highInARow is how many keys of high priority are taken at most before one of low priority.
	highInARow = 7
)

// Queue is a workqueue with two priorities: high for the keys of events, low for all others (Add,
// AddAfter, AddRateLimited), such as the initial list, retries and delays: a user's change does not
// wait for ten thousand old objects. While keys of high priority wait, every 8th key has low
// priority, so that none starves. Within a priority namespaces take turns, so that ten thousand
// keys of one namespace delay a key of another one by no more than one of them would.
type Queue struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]

	keys *priorityQueue
}

// newQueue returns a Queue of that name in the metrics.
func newQueue(name string, backoff workqueue.TypedRateLimiter[cache.ObjectName], clock clock.WithTicker) *Queue {
	keys := &priorityQueue{high: newTurns(), low: newTurns()}
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[cache.ObjectName]{Name: name, Clock: clock, Queue: keys})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{Name: name, Clock: clock, Queue: queue})
	limiting := workqueue.NewTypedRateLimitingQueueWithConfig(backoff, workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{DelayingQueue: delaying})
	return &Queue{TypedRateLimitingInterface: limiting, keys: keys}
}

// AddHighPriority adds the key with high priority, or raises its priority if it waits.
func (q *Queue) AddHighPriority(key cache.ObjectName) {
	q.RaiseNext(key)
	q.Add(key)
}

// RaiseNext gives the key high priority when it is added next, for example by AddAfter.
func (q *Queue) RaiseNext(key cache.ObjectName) {
	q.keys.raised.Store(key, nil)
}

// priorityQueue implements workqueue.Queue. The workqueue's lock guards all fields but raised.
type priorityQueue struct {
	high, low turns
	// inARow counts the keys of high priority since the last one of low priority.
	inARow int
	// raised has the keys whose next Push or Touch has high priority. One of them follows each Add,
	// at the latest from Done.
	raised sync.Map
}

// Push implements workqueue.Queue.
func (q *priorityQueue) Push(key cache.ObjectName) {
	if _, high := q.raised.LoadAndDelete(key); high {
		q.high.push(key)
	} else {
		q.low.push(key)
	}
}

// Touch implements workqueue.Queue.
func (q *priorityQueue) Touch(key cache.ObjectName) {
	if _, high := q.raised.LoadAndDelete(key); high && q.low.keys[key] != nil {
		q.low.remove(key)
		q.high.push(key)
	}
}

// Len implements workqueue.Queue.
func (q *priorityQueue) Len() int {
	return len(q.high.keys) + len(q.low.keys)
}

// Pop implements workqueue.Queue.
func (q *priorityQueue) Pop() cache.ObjectName {
	if len(q.low.keys) == 0 || len(q.high.keys) > 0 && q.inARow < highInARow {
		q.inARow++
		return q.high.pop()
	}
	q.inARow = 0
	return q.low.pop()
}

// turns are the keys of one priority. Namespaces take turns, each is first in, first out.
type turns struct {
	// order has the list of each namespace's keys. It is the turn of the first one.
	order list.List
	// namespaces has the places of these lists in order, keys those of keys in their list.
	namespaces map[string]*list.Element
	keys       map[cache.ObjectName]*list.Element
	// most is the greatest number of keys since memory was last released.
	most int
}

func newTurns() turns {
	return turns{namespaces: map[string]*list.Element{}, keys: map[cache.ObjectName]*list.Element{}}
}

func (t *turns) push(key cache.ObjectName) {
	turn, ok := t.namespaces[key.Namespace]
	if !ok {
		turn = t.order.PushBack(list.New())
		t.namespaces[key.Namespace] = turn
	}
	t.keys[key] = turn.Value.(*list.List).PushBack(key)
	t.most = max(t.most, len(t.keys))
}

// remove removes a key that is there. No turn is taken.
func (t *turns) remove(key cache.ObjectName) {
	turn := t.namespaces[key.Namespace]
	keys := turn.Value.(*list.List)
	if keys.Remove(t.keys[key]); keys.Len() == 0 {
		t.order.Remove(turn)
		delete(t.namespaces, key.Namespace)
	}
	if delete(t.keys, key); len(t.keys) == 0 && t.most > manyKeys {
		*t = newTurns()
	}
}

// pop removes and returns the first key of the namespace whose turn it is. There must be one.
func (t *turns) pop() cache.ObjectName {
	turn := t.order.Front()
	t.order.MoveToBack(turn)
	key := turn.Value.(*list.List).Front().Value.(cache.ObjectName)
	t.remove(key)
	return key
}
