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

	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/client-go/tools/cache"
	"k8s.io/client-go/util/workqueue"
	"k8s.io/utils/clock"
	"k8s.io/utils/lru"
)

const (
	// manyKeys is how many keys must have waited for an empty queue to release its maps, which never shrink.
	manyKeys = 1000
	// highInARow is how many keys of high priority are taken at most before one of low priority.
	highInARow = 7
	// minBackoff is the delay before a failed sync is retried. It doubles with each failure, up to maxBackoff after
	// refusals and up to maxTransientBackoff after other errors: no event announces that the API server has recovered.
	minBackoff          = 5 * time.Millisecond
	maxBackoff          = 5 * time.Minute
	maxTransientBackoff = 30 * time.Second
	// maxRetryAfter caps Retry-After: a proxy that answers with an hour must not stop an object.
	maxRetryAfter = 5 * time.Minute
	// refusalQPS and refusalBurst are those of workqueue.DefaultTypedControllerRateLimiter, for maxBuckets namespaces.
	refusalQPS   = 10
	refusalBurst = 100
	maxBuckets   = 1000
	// A status that reports only progress waits for progressDelay, in which a short rollout ends, and
	// for maxProgressDelay at most.
	progressDelay    = time.Second
	maxProgressDelay = 30 * time.Second
	// progressQPS and progressBurst limit such statuses of all objects of the kind together.
	progressQPS   = 4
	progressBurst = 10
)

// Queue is a workqueue with two priorities: high for the keys of events, low for the initial list, retries and delays.
// Every 8th key has low priority, so that none starves. Within a priority namespaces take turns.
type Queue struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]

	keys *priorityQueue
}

// newQueue returns a Queue of that name in the metrics.
func newQueue(name string, backoff workqueue.TypedRateLimiter[cache.ObjectName], clock clock.WithTicker) *Queue {
	type key = cache.ObjectName
	keys := &priorityQueue{high: newTurns(), low: newTurns()}
	queue := workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[key]{Name: name, Clock: clock, Queue: keys})
	delaying := workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[key]{Name: name, Clock: clock, Queue: queue})
	limiting := workqueue.NewTypedRateLimitingQueueWithConfig(backoff, workqueue.TypedRateLimitingQueueConfig[key]{DelayingQueue: delaying})
	return &Queue{limiting, keys}
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
	// raised has the keys whose next Push or Touch has high priority. One of them follows each Add.
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
	// order has the list of each namespace's keys. It is the turn of the first one. namespaces has the
	// places of these lists in order, keys those of keys in their list.
	order      list.List
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

// backoff tells how long to wait after a failed sync. A refused key also waits for a token of its
// namespace: objects that are refused for ever must not take the API server from other namespaces.
type backoff struct {
	workqueue.TypedRateLimiter[cache.ObjectName]

	clock clock.PassiveClock
	// buckets has the *rate.Limiter of the namespaces that were refused last.
	buckets *lru.Cache
}

func newBackoff(clock clock.PassiveClock) *backoff {
	keys := workqueue.NewTypedItemExponentialFailureRateLimiter[cache.ObjectName](minBackoff, maxBackoff)
	return &backoff{TypedRateLimiter: keys, clock: clock, buckets: lru.New(maxBuckets)}
}

// next counts a failure and returns the delay that follows it.
func (b *backoff) next(key cache.ObjectName, err error) time.Duration {
	delay := b.When(key)
	if !IsRefusal(err) {
		return min(delay, maxTransientBackoff)
	}
	return max(delay, b.token(key.Namespace))
}

// token takes a token of the namespace and returns how long to wait for it.
func (b *backoff) token(namespace string) time.Duration {
	bucket, ok := b.buckets.Get(namespace)
	if !ok {
		bucket = rate.NewLimiter(refusalQPS, refusalBurst)
		b.buckets.Add(namespace, bucket)
	}
	return reserve(bucket.(*rate.Limiter), b.clock.Now(), maxBackoff)
}

// reserve takes a token and returns how long to wait for it, most if that is longer: then it takes none.
func reserve(limiter *rate.Limiter, now time.Time, most time.Duration) time.Duration {
	token := limiter.ReserveN(now, 1)
	delay := token.DelayFrom(now)
	if delay > most {
		token.CancelAt(now)
	}
	return min(delay, most)
}

// RetryAfter returns the longest Retry-After of all errors that err joins, 5 minutes at most.
func RetryAfter(err error) (longest time.Duration) {
	seconds, _ := apierrors.SuggestsClientDelay(err)
	longest = min(time.Duration(seconds)*time.Second, maxRetryAfter)
	for _, err := range unjoin(err) {
		longest = max(longest, RetryAfter(err))
	}
	return longest
}

// StatusDebouncer delays reports of progress: a second, then for a token that all objects share, 30 seconds at most.
type StatusDebouncer struct {
	clock  clock.PassiveClock
	budget *rate.Limiter

	mu    sync.Mutex
	waits map[cache.ObjectName]progressWait
}

// progressWait is the wait of one update, which has its token if reserved is set.
type progressWait struct {
	until    time.Time
	reserved bool
}

func newStatusDebouncer(clock clock.PassiveClock) *StatusDebouncer {
	return &StatusDebouncer{clock: clock, budget: rate.NewLimiter(progressQPS, progressBurst), waits: map[cache.ObjectName]progressWait{}}
}

// Postpone begins or continues the wait of key's status. It returns what is left of it, after which to sync again.
func (d *StatusDebouncer) Postpone(key cache.ObjectName) time.Duration {
	d.mu.Lock()
	defer d.mu.Unlock()
	now := d.clock.Now()
	wait, waits := d.waits[key]
	switch {
	case !waits:
		wait.until = now.Add(progressDelay)
	case !wait.reserved && !now.Before(wait.until):
		wait = progressWait{now.Add(reserve(d.budget, now, maxProgressDelay-progressDelay)), true}
	}
	d.waits[key] = wait
	return max(0, wait.until.Sub(now))
}

// Reset ends the wait of key: its status was written, needs no update any more, or the object is gone.
func (d *StatusDebouncer) Reset(key cache.ObjectName) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, waits := d.waits[key]; !waits {
		return
	}
	if delete(d.waits, key); len(d.waits) == 0 {
		d.waits = map[cache.ObjectName]progressWait{} // A Go map never shrinks.
	}
}
