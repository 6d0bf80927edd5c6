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
	// maxMediumBody is the largest body of which there may be several at the same time, such as
	// the conversion of a few hundred objects.
	maxMediumBody = 1 << 20
	// maxMediumBodies limits the bytes of all medium bodies in memory.
	maxMediumBodies = 8 << 20
	// maxSmallBody is the largest body with a room of its own, such as the review of one Foo.
	maxSmallBody = 64 << 10
	// maxSmallBodies limits the bytes of all small bodies in memory. Decoded objects take
	// several times as much.
	maxSmallBodies = 8 << 20
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

// room limits the memory of the bodies of all requests, and how many of them are decoded. A body
// is charged for what has arrived of it, not for the Content-Length. While there is no room, the
// body of its size that is being read for longest is given up: it takes a few milliseconds to read
// the body of the API server, and a client that sends slowly must not keep others from being
// answered. Small bodies and medium ones take no room from each other. Of the large bodies there is
// one at a time; the others wait. Of all that are not small one is decoded at a time, so that
// small ones get a CPU.
type room struct {
	large    *semaphore.Weighted
	decoding *semaphore.Weighted

	mu     sync.Mutex
	small  share
	medium share
	// freed is closed, and replaced, when there is more room.
	freed chan struct{}
}

// share is the part of the room for bodies of a size.
type share struct {
	free int
	// reading are the bodies that are being read, the oldest first.
	reading list.List
}

func newRoom() *room {
	return &room{
		large:    semaphore.NewWeighted(1),
		decoding: semaphore.NewWeighted(1),
		small:    share{free: maxSmallBodies},
		medium:   share{free: maxMediumBodies},
		freed:    make(chan struct{}),
	}
}

// body is a body in the room. Call leave when it is no longer needed.
type body struct {
	room *room
	// giveUp makes the reading fail.
	giveUp context.CancelCauseFunc
	// timer gives it up after bodyTimeout.
	timer *time.Timer
	// share is charged with size; nil when the body is large.
	share *share
	size  int
	// element is the body in share.reading, nil when it is not there.
	element *list.Element
}

// enter returns a body that is charged for nothing yet, and that is to be read at once. The room
// calls giveUp if that takes too long, or while others lack room.
func (r *room) enter(giveUp context.CancelCauseFunc) *body {
	r.mu.Lock()
	defer r.mu.Unlock()
	b := &body{room: r, giveUp: giveUp, timer: time.AfterFunc(bodyTimeout, func() { giveUp(errSlow) }), share: &r.small}
	b.element = b.share.reading.PushBack(b)
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
	if b.share == nil {
		return nil
	}
	if size > maxMediumBody {
		b.timer.Stop()
		if b.room.large.Acquire(ctx, 1) != nil {
			return fmt.Errorf("%w: %w", errNoRoom, context.Cause(ctx))
		}
		b.stopReading()
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

// tryCharge charges the share of bodies of this size if it has room. Otherwise it gives up the body
// of that share that is being read for longest, unless that is this one, and returns a channel that
// is closed when there is more room.
func (b *body) tryCharge(size int) (freed <-chan struct{}, err error) {
	r := b.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.element == nil {
		// Another body has given it up.
		return nil, errNoRoom
	}
	into := &r.small
	if size > maxSmallBody {
		into = &r.medium
	}
	more := size
	if into == b.share {
		more -= b.size
	}
	if more > into.free {
		into.giveUpOldest(b)
		return r.freed, nil
	}
	into.free -= more
	if into != b.share {
		b.share.reading.Remove(b.element)
		b.share.free += b.size
		r.wake()
		b.element = into.reading.PushBack(b)
	}
	b.share, b.size = into, size
	return nil, nil
}

// giveUpOldest gives up the body that is being read for longest, unless it is the one of the caller.
func (s *share) giveUpOldest(caller *body) {
	front := s.reading.Front()
	if front == nil {
		return
	}
	if oldest := front.Value.(*body); oldest != caller {
		s.reading.Remove(front)
		oldest.element = nil
		oldest.giveUp(errNoRoom)
	}
}

// wake tells all who wait that there is more room. The caller holds r.mu.
func (r *room) wake() {
	close(r.freed)
	r.freed = make(chan struct{})
}

// stopReading keeps the body from being given up.
func (b *body) stopReading() {
	b.timer.Stop()
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	if b.element != nil {
		b.share.reading.Remove(b.element)
		b.element = nil
	}
}

// free gives back what the body was charged for.
func (b *body) free() {
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	b.share.free += b.size
	b.share = nil
	b.room.wake()
}

// leave makes room for others.
func (b *body) leave() {
	if b.share == nil {
		b.room.large.Release(1)
		return
	}
	b.free()
}

// decode calls f, which decodes the body. It waits for its turn, unless the body is small, and returns
// errNoRoom if ctx ends before.
func (b *body) decode(ctx context.Context, f func() error) error {
	if b.share != &b.room.small {
		if b.room.decoding.Acquire(ctx, 1) != nil {
			return fmt.Errorf("%w: %w", errNoRoom, context.Cause(ctx))
		}
		defer b.room.decoding.Release(1)
	}
	return f()
}
