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

// manyKeys is how many keys make lines so long that their memory is given back once they
// are empty.
const manyKeys = 1000

// freshInARow is how many fresh keys are handed out at most before one of the backlog.
const freshInARow = 7

// Queue is a workqueue of two lines: the fresh one, of keys of which something has just
// become known, and the backlog, of all others. The fresh line goes first, so that one
// user's change does not wait until ten thousand objects are worked off that were there
// before the controller; every 8th key is of the backlog, so that it always moves on. As
// in any workqueue a key waits at most once and is never handed to two workers.
//
// Add, AddAfter and AddRateLimited add to the backlog.
type Queue struct {
	workqueue.TypedRateLimitingInterface[cache.ObjectName]

	lines *lines
}

// newQueue returns a Queue of that name in the metrics.
func newQueue(name string, backoff workqueue.TypedRateLimiter[cache.ObjectName], clock clock.WithTicker) *Queue {
	lines := &lines{places: map[cache.ObjectName]place{}, news: sets.New[cache.ObjectName]()}
	return &Queue{
		TypedRateLimitingInterface: workqueue.NewTypedRateLimitingQueueWithConfig(backoff, workqueue.TypedRateLimitingQueueConfig[cache.ObjectName]{
			Name: name, Clock: clock,
			DelayingQueue: workqueue.NewTypedDelayingQueueWithConfig(workqueue.TypedDelayingQueueConfig[cache.ObjectName]{
				Name: name, Clock: clock,
				Queue: workqueue.NewTypedWithConfig(workqueue.TypedQueueConfig[cache.ObjectName]{Name: name, Clock: clock, Queue: lines}),
			}),
		}),
		lines: lines,
	}
}

// AddFresh adds the key to the fresh line, or moves it there from the backlog.
func (q *Queue) AddFresh(key cache.ObjectName) {
	q.lines.announce(key)
	q.Add(key)
}

// lines implement workqueue.Queue, which guards all but announce.
type lines struct {
	fresh, backlog line
	// places are where each key waits. What else is in a line has moved to the other.
	places map[cache.ObjectName]place
	turns  uint64
	// most is how many keys have waited at a time since the lines were last given back.
	most int
	// inARow counts the fresh keys since the last one of the backlog.
	inARow int

	mu sync.Mutex
	// news are the keys whose next Push or Touch is for the fresh line. There always is
	// one: if a worker has the key, then when it is done.
	news sets.Set[cache.ObjectName]
}

// line is a queue, first in, first out.
type line struct {
	entries []place
	// waiting is the number of entries that have not moved away.
	waiting int
}

// place is where a key stands in its line.
type place struct {
	key   cache.ObjectName
	fresh bool
	// turn tells apart the places that a key has had.
	turn uint64
}

func (l *lines) announce(key cache.ObjectName) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.news.Insert(key)
}

// announced reports whether there is news of the key, once.
func (l *lines) announced(key cache.ObjectName) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	if !l.news.Has(key) {
		return false
	}
	l.news.Delete(key)
	return true
}

// Push implements workqueue.Queue.
func (l *lines) Push(key cache.ObjectName) {
	l.stand(key, l.announced(key))
}

// Touch implements workqueue.Queue.
func (l *lines) Touch(key cache.ObjectName) {
	if l.announced(key) && !l.places[key].fresh {
		l.backlog.waiting--
		l.stand(key, true)
	}
}

// Len implements workqueue.Queue.
func (l *lines) Len() int {
	return len(l.places)
}

// Pop implements workqueue.Queue.
func (l *lines) Pop() cache.ObjectName {
	line := &l.backlog
	if l.fresh.waiting > 0 && (l.backlog.waiting == 0 || l.inARow < freshInARow) {
		line = &l.fresh
		l.inARow++
	} else {
		l.inARow = 0
	}
	for {
		first := line.entries[0]
		line.entries = line.entries[1:]
		if l.places[first.key] == first {
			delete(l.places, first.key)
			line.waiting--
			l.giveBack()
			return first.key
		}
	}
}

// giveBack lets go of the memory of lines that were long. Neither maps nor what is left of a
// slice do so by themselves.
func (l *lines) giveBack() {
	if len(l.places) == 0 && l.most > manyKeys {
		l.fresh, l.backlog, l.places, l.most = line{}, line{}, map[cache.ObjectName]place{}, 0
	}
}

// stand puts the key at the end of a line.
func (l *lines) stand(key cache.ObjectName, fresh bool) {
	line := &l.backlog
	if fresh {
		line = &l.fresh
	}
	l.turns++
	at := place{key: key, fresh: fresh, turn: l.turns}
	l.places[key] = at
	line.entries = append(line.entries, at)
	line.waiting++
	l.most = max(l.most, len(l.places))
}
