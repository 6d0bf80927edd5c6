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

package webhook

import (
	"container/list"
	"context"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"golang.org/x/sync/semaphore"
)

const (
	// MaxBody is the largest body of a request in bytes; a larger one gets 413. An object
	// of the API server has at most 3 MiB, and an AdmissionReview has two objects.
	MaxBody = 16 << 20
	// maxSmallBody is the largest body of which there may be several at the same time, an
	// AdmissionReview or the conversion of a few hundred objects.
	maxSmallBody = 1 << 20
	// maxSmallBodies limits the bytes of all small bodies in memory. Decoded objects take
	// several times as much.
	maxSmallBodies = 16 << 20
	// minBuffer is the size of the first buffer of a body.
	minBuffer = 8 << 10
	// bodyTimeout is how long a client may take to send a body.
	bodyTimeout = 5 * time.Second
)

var (
	// errNoRoom says that a request was given up because the bodies of others need the memory.
	errNoRoom = errors.New("too many requests at the same time")
	errSlow   = fmt.Errorf("the body did not arrive within %v", bodyTimeout)
)

// room limits the memory of the bodies of all requests. A body is charged for what has
// arrived of it, not for the Content-Length. While there is no room, the small body that is
// being read for longest is given up: it takes a few milliseconds to read the body of the API server,
// and a client that sends slowly must not keep others from being answered. Of the large
// bodies there is one at a time; the others wait.
type room struct {
	large *semaphore.Weighted

	mu   sync.Mutex
	free int
	// reading are the small bodies that are being read, the oldest first.
	reading list.List
	// freed is closed, and replaced, when there is more room.
	freed chan struct{}
}

func newRoom() *room {
	return &room{large: semaphore.NewWeighted(1), free: maxSmallBodies, freed: make(chan struct{})}
}

// body is a body in the room. Call leave when it is no longer needed.
type body struct {
	room *room
	// giveUp makes the reading fail.
	giveUp context.CancelCauseFunc
	// timer gives it up after bodyTimeout.
	timer *time.Timer
	// size is what the body is charged for, unless it is large.
	size  int
	large bool
	// element is nil when the body is not in room.reading.
	element *list.Element
}

// enter returns a body that is charged for nothing yet, and that is to be read at once. The room
// calls giveUp if that takes too long, or while others lack room.
func (r *room) enter(giveUp context.CancelCauseFunc) *body {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &body{room: r, giveUp: giveUp, timer: time.AfterFunc(bodyTimeout, func() { giveUp(errSlow) })}
	b.element = r.reading.PushBack(b)
	return b
}

// read returns the bytes of the body. It returns errNoRoom, or the cause of the end of ctx, if there
// is no room.
func (b *body) read(ctx context.Context, from io.Reader) ([]byte, error) {
	defer b.stopReading()
	var data []byte
	for {
		if len(data) == cap(data) {
			size := max(minBuffer, 2*cap(data))
			if err := b.charge(ctx, size); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, size), data...)
		}
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF):
			return data, nil
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		}
	}
}

// charge waits until there is room for size bytes of the body.
func (b *body) charge(ctx context.Context, size int) error {
	if b.large {
		return nil
	}
	if size > maxSmallBody {
		b.timer.Stop()
		if b.room.large.Acquire(ctx, 1) != nil {
			return fmt.Errorf("%w: %w", errNoRoom, context.Cause(ctx))
		}
		b.stopReading()
		b.large = true
		b.free()
		b.timer.Reset(bodyTimeout)
		return nil
	}
	for {
		freed, err := b.tryCharge(size)
		if freed == nil {
			return err
		}
		select {
		case <-freed:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errNoRoom, context.Cause(ctx))
		}
	}
}

// tryCharge charges the body if there is room. Otherwise it gives up the body that is being read
// for longest, unless that is this one, and returns a channel that is closed when there is more room.
func (b *body) tryCharge(size int) (freed <-chan struct{}, err error) {
	r := b.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if more := size - b.size; more <= r.free {
		r.free -= more
		b.size = size
		return nil, nil
	}
	if b.element == nil {
		// Another body has given it up.
		return nil, errNoRoom
	}
	if oldest := r.reading.Front().Value.(*body); oldest != b {
		r.reading.Remove(oldest.element)
		oldest.element = nil
		oldest.giveUp(errNoRoom)
	}
	return r.freed, nil
}

// stopReading keeps the body from being given up.
func (b *body) stopReading() {
	b.timer.Stop()
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	if b.element != nil {
		b.room.reading.Remove(b.element)
		b.element = nil
	}
}

// free gives back what the body was charged for.
func (b *body) free() {
	r := b.room
	r.mu.Lock()
	defer r.mu.Unlock()
	r.free += b.size
	b.size = 0
	close(r.freed)
	r.freed = make(chan struct{})
}

// leave makes room for others.
func (b *body) leave() {
	b.free()
	if b.large {
		b.room.large.Release(1)
	}
}
