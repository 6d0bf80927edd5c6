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
	// maxMediumBody is the size below which there may be several bodies at the same time, such as the
	// conversion of a few hundred objects.
	maxMediumBody = 1 << 20
	// maxMediumBodies limits the bytes of all medium bodies in memory.
	maxMediumBodies = 8 << 20
	// maxSmallBody is the size below which bodies have a room of their own, such as the review of one
	// Foo.
	maxSmallBody = 64 << 10
	// maxSmallBodies limits the bytes of all small bodies in memory. Decoded objects take
	// several times as much.
	maxSmallBodies = 8 << 20
	// minBuffer is the size of the first buffer of a body.
	minBuffer = 8 << 10
	// bodyTimeout is how long a client may take to send a body, and to read the answer.
	bodyTimeout = 5 * time.Second
	// largeBodyTimeout is the same for large bodies: others wait for the only one. The API server sends
	// MaxBody in a fraction of it.
	largeBodyTimeout = time.Second
)

var (
	// errNoRoom says that a request was given up because the bodies of others need the memory.
	errNoRoom = errors.New("too many requests at the same time")
	errSlow   = errors.New("the body did not arrive in time")
)

// room limits the memory of the bodies of all requests, and how many of them are decoded. A body is
// charged for the buffer that holds what has arrived of it, not for the Content-Length, until the client
// has read the answer. While there is no room, the body of its size that has been waiting for its
// client for longest is given up: the API server sends a body and reads the answer in milliseconds,
// and a slow client must not keep others from being answered. Small bodies and medium ones take no room from
// each other. Of the large bodies there is one at a time; the others wait. Of all that are not small
// one is decoded at a time, so that small ones get a CPU.
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
	// coming is what the bodies that were given up will give back.
	coming int
	// waiting are the bodies with room that wait for their clients, the one that has waited for
	// longest first.
	waiting list.List
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
	// giveUp ends the wait for the client.
	giveUp context.CancelCauseFunc
	// timer gives it up when the client has taken too long.
	timer *time.Timer
	// share is charged with size; nil when the body is large.
	share *share
	size  int
	// element is the body in share.waiting, nil when it is not there.
	element *list.Element
	givenUp bool
}

// enter returns a body that is charged for nothing yet.
func (r *room) enter() *body {
	return &body{room: r, share: &r.small}
}

// awaitClient calls giveUp if the client takes too long from now on, or while others lack room, until
// stopWaiting is called.
func (b *body) awaitClient(giveUp context.CancelCauseFunc) {
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	b.giveUp = giveUp
	timeout := largeBodyTimeout
	if b.share != nil {
		timeout = bodyTimeout
	}
	if b.size > 0 {
		b.element = b.share.waiting.PushBack(b)
		// Those who wait for room may give it up.
		b.room.wake()
	}
	b.timer = time.AfterFunc(timeout, func() { giveUp(errSlow) })
}

// stopWaiting keeps the body from being given up.
func (b *body) stopWaiting() {
	b.timer.Stop()
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	b.unlist()
}

// unlist removes the body from share.waiting. The caller holds room.mu.
func (b *body) unlist() {
	if b.element != nil {
		b.share.waiting.Remove(b.element)
		b.element = nil
	}
}

// read returns the bytes of the body. It returns errNoRoom, or the cause of the end of ctx, if there
// is no room. length is the Content-Length, -1 if it is unknown.
func (b *body) read(ctx context.Context, giveUp context.CancelCauseFunc, from io.Reader, length int64) ([]byte, error) {
	if length > maxMediumBody {
		if err := b.becomeLarge(ctx); err != nil {
			return nil, err
		}
	}
	b.awaitClient(giveUp)
	defer b.stopWaiting()
	var data []byte
	for {
		if len(data) == cap(data) {
			// One byte more, since the end of the body is read separately.
			size := min(max(minBuffer, 2*cap(data)), MaxBody+1)
			if err := b.charge(ctx, size); err != nil {
				return nil, err
			}
			data = append(make([]byte, 0, size), data...)
		}
		n, err := from.Read(data[len(data):cap(data)])
		data = data[:len(data)+n]
		switch {
		case errors.Is(err, io.EOF):
			if b.stopWaiting(); b.givenUp {
				return nil, errNoRoom
			}
			return data, nil
		case err != nil && ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case err != nil:
			return nil, err
		}
	}
}

// becomeLarge waits until there is no other large body.
func (b *body) becomeLarge(ctx context.Context) error {
	if b.room.large.Acquire(ctx, 1) != nil {
		return noRoom(ctx)
	}
	b.free()
	return nil
}

func noRoom(ctx context.Context) error {
	return fmt.Errorf("%w: %w", errNoRoom, context.Cause(ctx))
}

// charge waits until there is room for size bytes of the body.
func (b *body) charge(ctx context.Context, size int) error {
	if b.share == nil {
		return nil
	}
	if size > maxMediumBody {
		b.timer.Stop()
		if err := b.becomeLarge(ctx); err != nil {
			return err
		}
		b.awaitClient(b.giveUp)
		return nil
	}
	for {
		freed, err := b.tryCharge(size)
		if freed == nil {
			return err
		}
		b.timer.Stop()
		select {
		case <-freed:
		case <-ctx.Done():
			return noRoom(ctx)
		}
		b.timer.Reset(bodyTimeout)
	}
}

// tryCharge charges the share of bodies of this size if it has room. Otherwise it gives up others of that
// share, and returns a channel that is closed when there is more room.
func (b *body) tryCharge(size int) (freed <-chan struct{}, err error) {
	r := b.room
	r.mu.Lock()
	defer r.mu.Unlock()
	if b.givenUp {
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
		into.makeRoom(more, b)
		return r.freed, nil
	}
	into.free -= more
	if into != b.share {
		b.unlist()
		b.share.free += b.size
		r.wake()
	}
	if b.element == nil {
		b.element = into.waiting.PushBack(b)
	}
	b.share, b.size = into, size
	return nil, nil
}

// makeRoom gives up bodies that wait for their clients, except that of the caller, until there will be
// room for size bytes. It gives up none if that does not suffice.
func (s *share) makeRoom(size int, caller *body) {
	room := s.free + s.coming
	var chosen []*body
	for e := s.waiting.Front(); e != nil && room < size; e = e.Next() {
		if b := e.Value.(*body); b != caller {
			chosen = append(chosen, b)
			room += b.size
		}
	}
	if room < size {
		return
	}
	for _, b := range chosen {
		b.unlist()
		b.givenUp = true
		s.coming += b.size
		b.giveUp(errNoRoom)
	}
}

// wake tells all who wait that there is more room. The caller holds r.mu.
func (r *room) wake() {
	close(r.freed)
	r.freed = make(chan struct{})
}

// free gives back what the body was charged for, and keeps it from being given up.
func (b *body) free() {
	b.room.mu.Lock()
	defer b.room.mu.Unlock()
	b.unlist()
	b.share.free += b.size
	if b.givenUp {
		b.share.coming -= b.size
	}
	b.share, b.size = nil, 0
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
			return noRoom(ctx)
		}
		defer b.room.decoding.Release(1)
	}
	return f()
}
