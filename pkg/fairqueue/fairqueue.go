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

// Package fairqueue has a queue in which namespaces take turns.
package fairqueue

// manyLines is the number of namespaces from which the memory of a Queue is released once it
// is empty.
const manyLines = 100

// Queue holds values of namespaces. Namespaces take turns, so that the number of values of one
// does not delay those of another; in a namespace the first value in is the first out. Each
// method takes the same time whatever waits, and a namespace takes memory only while it has
// values. The zero Queue is empty. It is not safe for use by several goroutines.
type Queue[T any] struct {
	// turns are the namespaces that have values. It is the turn of the first one.
	turns list[line[T]]
	lines map[string]*Item[line[T]]
	// most is the greatest number of lines since memory was last released.
	most   int
	length int
}

// line are the values of a namespace.
type line[T any] struct {
	namespace string
	items     list[T]
	length    int
}

// Len returns the number of values.
func (q *Queue[T]) Len() int {
	return q.length
}

// LenOf returns the number of values of the namespace.
func (q *Queue[T]) LenOf(namespace string) int {
	if l, ok := q.lines[namespace]; ok {
		return l.value.length
	}
	return 0
}

// Push adds a value of the namespace, and returns the item by which it can be removed.
func (q *Queue[T]) Push(namespace string, value T) *Item[T] {
	l, ok := q.lines[namespace]
	if !ok {
		if q.lines == nil {
			q.lines = map[string]*Item[line[T]]{}
		}
		l = &Item[line[T]]{value: line[T]{namespace: namespace}}
		q.lines[namespace] = l
		q.turns.append(l)
		q.most = max(q.most, len(q.lines))
	}
	item := &Item[T]{value: value}
	l.value.items.append(item)
	l.value.length++
	q.length++
	return item
}

// Remove removes an item of the namespace that is in the Queue. No turn is taken.
func (q *Queue[T]) Remove(namespace string, item *Item[T]) {
	l := q.lines[namespace]
	l.value.items.remove(item)
	l.value.length--
	q.length--
	if l.value.length > 0 {
		return
	}
	q.turns.remove(l)
	delete(q.lines, namespace)
	if q.length == 0 && q.most > manyLines {
		// A Go map never shrinks.
		q.lines, q.most = nil, 0
	}
}

// First returns the value that Pop would return, false if the Queue is empty.
func (q *Queue[T]) First() (value T, ok bool) {
	if q.turns.first == nil {
		return value, false
	}
	return q.turns.first.value.items.first.value, true
}

// Pop removes and returns the first value of the namespace whose turn it is. The Queue must
// not be empty.
func (q *Queue[T]) Pop() T {
	l := q.turns.first
	q.turns.remove(l)
	q.turns.append(l)
	item := l.value.items.first
	q.Remove(l.value.namespace, item)
	return item.value
}

// Item is a value in a Queue.
type Item[T any] struct {
	value          T
	previous, next *Item[T]
}

// list is a doubly linked list. Unlike container/list it needs one allocation for an item.
type list[T any] struct {
	first, last *Item[T]
}

func (l *list[T]) append(item *Item[T]) {
	item.previous, item.next = l.last, nil
	if l.last == nil {
		l.first = item
	} else {
		l.last.next = item
	}
	l.last = item
}

func (l *list[T]) remove(item *Item[T]) {
	if item.previous == nil {
		l.first = item.next
	} else {
		item.previous.next = item.next
	}
	if item.next == nil {
		l.last = item.previous
	} else {
		item.next.previous = item.previous
	}
}
