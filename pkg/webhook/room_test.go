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
	"bytes"
	"context"
	"errors"
	"io"
	"testing"
	"testing/synctest"
	"time"
)

// client sends some bytes and then nothing more, until ctx ends or it is told to finish.
type client struct {
	ctx    context.Context
	sends  *bytes.Reader
	finish chan struct{}
	// wake is sent to when there is more in sends.
	wake chan struct{}
	// stuck is closed when the end of ctx may end a read, nil for at once.
	stuck chan struct{}
	// wholeAfterAll tells that the end of the body came at the same time as the end of ctx.
	wholeAfterAll bool
}

func (c *client) Read(p []byte) (int, error) {
	for {
		if c.sends.Len() > 0 {
			return c.sends.Read(p)
		}
		select {
		case <-c.wake:
		case <-c.finish:
			return 0, io.EOF
		case <-c.ctx.Done():
			if c.stuck != nil {
				<-c.stuck
			}
			if c.wholeAfterAll {
				return 0, io.EOF
			}
			return 0, errors.New("i/o timeout")
		}
	}
}

// sending is a body that a client sends.
type sending struct {
	*client

	body *body
	// ended is closed when the body was read, or err says why not.
	ended chan struct{}
	data  []byte
	err   error
}

func send(t *testing.T, r *room, size int) *sending {
	return sendLength(t, r, size, -1)
}

// sendLength sends a body of which the client has told the length.
func sendLength(t *testing.T, r *room, size int, length int64) *sending {
	ctx, giveUp := context.WithCancelCause(t.Context())
	s := &sending{client: &client{ctx: ctx, sends: bytes.NewReader(make([]byte, size)), finish: make(chan struct{}), wake: make(chan struct{})}, body: r.enter(), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.data, s.err = s.body.read(ctx, giveUp, s.client, length)
		if s.err != nil {
			s.body.leave()
		}
	}()
	synctest.Wait()
	return s
}

// mustRead fails unless the body is read when the client has finished.
func (s *sending) mustRead(t *testing.T, size int) {
	t.Helper()
	close(s.finish)
	<-s.ended
	if s.err != nil || len(s.data) != size {
		t.Errorf("%d bytes, %v, want %d", len(s.data), s.err, size)
	}
	s.body.leave()
}

// readWhole returns bodies that were read, and that have not left the room.
func readWhole(t *testing.T, r *room, count, size int) (whole []*sending) {
	for range count {
		s := send(t, r, size)
		close(s.finish)
		if <-s.ended; s.err != nil {
			t.Fatal(s.err)
		}
		whole = append(whole, s)
	}
	return whole
}

func (s *sending) isReading() bool {
	select {
	case <-s.ended:
		return false
	default:
		return true
	}
}

func TestRoom(t *testing.T) {
	for sentence, test := range map[string]func(*testing.T, *room){
		"a body is charged for what has arrived": func(t *testing.T, r *room) {
			var slow []*sending
			for range maxSmallBodies / minBuffer {
				slow = append(slow, send(t, r, 1))
			}
			for _, s := range slow {
				s.mustRead(t, 1)
			}
		},
		"the body that is being read for longest is given up for others": func(t *testing.T, r *room) {
			var slow []*sending
			for range maxSmallBodies / maxSmallBody {
				slow = append(slow, send(t, r, maxSmallBody-1))
				time.Sleep(time.Millisecond)
			}
			send(t, r, 10).mustRead(t, 10)
			for i, s := range slow {
				if s.isReading() != (i > 0) {
					t.Errorf("%d: is read %t, error %v", i, s.isReading(), s.err)
				}
			}
			if !errors.Is(slow[0].err, errNoRoom) {
				t.Errorf("the oldest: %v", slow[0].err)
			}
			for _, s := range slow[1:] {
				s.mustRead(t, maxSmallBody-1)
			}
		},
		"a body that was read is not given up, and others wait for it": func(t *testing.T, r *room) {
			whole := readWhole(t, r, maxSmallBodies/maxSmallBody, maxSmallBody-1)
			one := send(t, r, 10)
			if !one.isReading() {
				t.Errorf("beside others that were read: %v", one.err)
			}
			for _, s := range whole {
				s.body.leave()
			}
			one.mustRead(t, 10)
		},
		"medium bodies leave the room of small ones": func(t *testing.T, r *room) {
			whole := readWhole(t, r, maxMediumBodies/maxMediumBody, maxMediumBody-1)
			small := send(t, r, maxSmallBody-1)
			waits := send(t, r, 2*maxSmallBody-1)
			small.mustRead(t, maxSmallBody-1)
			if !waits.isReading() {
				t.Errorf("a medium one beside others that were read: %v", waits.err)
			}
			whole[0].body.leave()
			waits.mustRead(t, 2*maxSmallBody-1)
			for _, s := range whole[1:] {
				s.body.leave()
			}
		},
		"a medium body gives up the medium one that is being read for longest": func(t *testing.T, r *room) {
			small := send(t, r, 10)
			var slow []*sending
			for range maxMediumBodies / maxMediumBody {
				slow = append(slow, send(t, r, maxMediumBody-1))
			}
			send(t, r, 2*maxSmallBody-1).mustRead(t, 2*maxSmallBody-1)
			for i, s := range slow {
				if s.isReading() != (i > 0) {
					t.Errorf("%d: is read %t, error %v", i, s.isReading(), s.err)
				}
			}
			small.mustRead(t, 10)
			for _, s := range slow[1:] {
				s.mustRead(t, maxMediumBody-1)
			}
		},
		"a body that waits for medium room is given up for small ones": func(t *testing.T, r *room) {
			whole := readWhole(t, r, maxMediumBodies/maxMediumBody, maxMediumBody-1)
			var waiting []*sending
			for range maxSmallBodies / maxSmallBody {
				waiting = append(waiting, send(t, r, 2*maxSmallBody-1))
			}
			send(t, r, 10).mustRead(t, 10)
			for i, s := range waiting {
				if s.isReading() != (i > 0) {
					t.Errorf("%d: is read %t, error %v", i, s.isReading(), s.err)
				}
			}
			for _, s := range whole {
				s.body.leave()
			}
			synctest.Wait()
			for _, s := range waiting[1:] {
				close(s.finish)
			}
			for _, s := range waiting[1:] {
				if <-s.ended; s.err == nil {
					s.body.leave()
				}
			}
		},
		"of all bodies that are not small one is decoded at a time": func(t *testing.T, r *room) {
			small, medium, large := readWhole(t, r, 1, 10)[0], readWhole(t, r, 1, maxMediumBody-1)[0], readWhole(t, r, 1, 2*maxMediumBody)[0]
			finish := make(chan struct{})
			decoding := func(s *sending) <-chan struct{} {
				started := make(chan struct{})
				go func() {
					_ = s.body.decode(s.ctx, func() error {
						close(started)
						<-finish
						return nil
					})
					s.body.leave()
				}()
				synctest.Wait()
				return started
			}
			<-decoding(medium)
			waits := decoding(large)
			<-decoding(small)
			ended, end := context.WithCancel(t.Context())
			end()
			other := readWhole(t, r, 1, maxMediumBody-1)[0]
			if err := other.body.decode(ended, nil); !errors.Is(err, errNoRoom) {
				t.Errorf("a request that ended while it waited: %v", err)
			}
			other.body.leave()
			select {
			case <-waits:
				t.Error("a large body was decoded beside a medium one")
			default:
			}
			close(finish)
			<-waits
		},
		"a body that takes 5 s is given up": func(t *testing.T, r *room) {
			began := time.Now()
			slow := send(t, r, 10)
			<-slow.ended
			if took := time.Since(began); took != bodyTimeout || !errors.Is(slow.err, errSlow) {
				t.Errorf("%v after %v", slow.err, took)
			}
		},
		"a body that waits for its first room is not given up: it holds none": func(t *testing.T, r *room) {
			whole := readWhole(t, r, maxSmallBodies/maxSmallBody, maxSmallBody-1)
			var waiting []*sending
			for range 50 {
				waiting = append(waiting, send(t, r, 10))
			}
			for _, s := range whole {
				s.body.leave()
			}
			for _, s := range waiting {
				s.mustRead(t, 10)
			}
		},
		"no more bodies are given up than the room that is needed": func(t *testing.T, r *room) {
			var slow []*sending
			for range maxMediumBodies / maxMediumBody {
				slow = append(slow, send(t, r, maxMediumBody-1))
			}
			// Giving it up takes a moment.
			stuck := make(chan struct{})
			slow[0].stuck = stuck
			one := send(t, r, 2*maxSmallBody-1)
			for range 10 {
				send(t, r, 10).mustRead(t, 10)
			}
			for i, s := range slow[1:] {
				if !s.isReading() {
					t.Errorf("%d: %v", i+1, s.err)
				}
			}
			close(stuck)
			one.mustRead(t, 2*maxSmallBody-1)
			for _, s := range slow[1:] {
				s.mustRead(t, maxMediumBody-1)
			}
		},
		"a body whose turn it is not gives up the next one, and has its time when there is room": func(t *testing.T, r *room) {
			oldest := send(t, r, minBuffer-1)
			whole := readWhole(t, r, maxSmallBodies/maxSmallBody-1, maxSmallBody-1)
			slow := send(t, r, 20<<10)
			time.Sleep(bodyTimeout - time.Second)
			oldest.sends = bytes.NewReader(make([]byte, 40<<10))
			oldest.wake <- struct{}{}
			time.Sleep(bodyTimeout - time.Second)
			synctest.Wait()
			if slow.isReading() || !oldest.isReading() {
				t.Errorf("the oldest: %v, the other: %v", oldest.err, slow.err)
			}
			oldest.mustRead(t, minBuffer-1+40<<10)
			for _, s := range whole {
				s.body.leave()
			}
		},
		"the time for which a body waits for room does not count": func(t *testing.T, r *room) {
			whole := readWhole(t, r, maxSmallBodies/maxSmallBody, maxSmallBody-1)
			one := send(t, r, 10)
			time.Sleep(2 * bodyTimeout)
			for _, s := range whole {
				s.body.leave()
			}
			one.mustRead(t, 10)
		},
		"a body that becomes medium makes room for small ones": func(t *testing.T, r *room) {
			stuck := make(chan struct{})
			first, grows := send(t, r, maxSmallBody-1), send(t, r, maxSmallBody-1)
			first.stuck = stuck
			whole := readWhole(t, r, maxSmallBodies/maxSmallBody-2, maxSmallBody-1)
			one := send(t, r, 10)
			grows.sends = bytes.NewReader(make([]byte, 2))
			grows.wake <- struct{}{}
			one.mustRead(t, 10)
			grows.mustRead(t, maxSmallBody+1)
			close(stuck)
			for _, s := range whole {
				s.body.leave()
			}
		},
		"a body that was given up gets no more room": func(t *testing.T, r *room) {
			b := r.enter()
			ctx, giveUp := context.WithCancelCause(t.Context())
			b.awaitClient(giveUp)
			if err := b.charge(ctx, minBuffer); err != nil {
				t.Fatal(err)
			}
			whole := readWhole(t, r, maxSmallBodies/maxSmallBody-1, maxSmallBody-1)
			other := send(t, r, maxSmallBody-1)
			if !errors.Is(context.Cause(ctx), errNoRoom) {
				t.Errorf("%v", context.Cause(ctx))
			}
			whole[0].body.leave()
			if err := b.charge(t.Context(), 2*minBuffer); !errors.Is(err, errNoRoom) {
				t.Errorf("more room: %v", err)
			}
			b.stopWaiting()
			b.leave()
			other.mustRead(t, maxSmallBody-1)
			for _, s := range whole[1:] {
				s.body.leave()
			}
		},
		"a body that was given up is not read, even if it is whole": func(t *testing.T, r *room) {
			first := send(t, r, maxSmallBody-1)
			first.stuck = first.finish
			whole := readWhole(t, r, maxSmallBodies/maxSmallBody-1, maxSmallBody-1)
			other := send(t, r, 10)
			first.wholeAfterAll = true
			close(first.finish)
			if <-first.ended; !errors.Is(first.err, errNoRoom) {
				t.Errorf("%d bytes, %v", len(first.data), first.err)
			}
			other.mustRead(t, 10)
			for _, s := range whole {
				s.body.leave()
			}
		},
		"no body is given up if that does not suffice": func(t *testing.T, r *room) {
			whole := append(readWhole(t, r, maxMediumBodies/maxMediumBody-1, maxMediumBody-1), readWhole(t, r, 1, maxMediumBody/4-1)...)
			slow := []*sending{send(t, r, 2*maxSmallBody-1), send(t, r, 2*maxSmallBody-1)}
			grows := send(t, r, maxMediumBody/2-1)
			grows.sends = bytes.NewReader(make([]byte, 10))
			grows.wake <- struct{}{}
			synctest.Wait()
			for _, s := range slow {
				if !s.isReading() {
					t.Error(s.err)
				}
				s.mustRead(t, 2*maxSmallBody-1)
			}
			for _, s := range whole {
				s.body.leave()
			}
			grows.mustRead(t, maxMediumBody/2+9)
		},
		"a body whose client does not read the answer is given up for one that waits already": func(t *testing.T, r *room) {
			whole := readWhole(t, r, maxSmallBodies/maxSmallBody, maxSmallBody-1)
			one, two := send(t, r, 10), send(t, r, 10)
			ctx, giveUp := context.WithCancelCause(t.Context())
			whole[0].body.awaitClient(giveUp)
			synctest.Wait()
			if !errors.Is(context.Cause(ctx), errNoRoom) {
				t.Errorf("%v", context.Cause(ctx))
			}
			whole[0].body.stopWaiting()
			for _, s := range whole {
				s.body.leave()
			}
			one.mustRead(t, 10)
			two.mustRead(t, 10)
		},
		"a body that announces to be large waits without room": func(t *testing.T, r *room) {
			first := sendLength(t, r, 2*maxMediumBody, 2*maxMediumBody)
			var others []*sending
			for range 20 {
				others = append(others, sendLength(t, r, 2*maxMediumBody, 2*maxMediumBody))
			}
			if r.medium.free != maxMediumBodies || r.small.free != maxSmallBodies {
				t.Errorf("%d and %d bytes are free", r.small.free, r.medium.free)
			}
			first.mustRead(t, 2*maxMediumBody)
			for _, s := range others {
				synctest.Wait()
				s.mustRead(t, 2*maxMediumBody)
			}
		},
		"a large body that takes a second is given up": func(t *testing.T, r *room) {
			began := time.Now()
			slow := send(t, r, 2*maxMediumBody)
			<-slow.ended
			if took := time.Since(began); took != largeBodyTimeout || !errors.Is(slow.err, errSlow) {
				t.Errorf("%v after %v", slow.err, took)
			}
		},
		"of the large bodies there is one at a time": func(t *testing.T, r *room) {
			first, second := send(t, r, 2*maxMediumBody), send(t, r, 3*maxMediumBody)
			if second.body.share == nil {
				t.Error("both are read")
			}
			send(t, r, 10).mustRead(t, 10)
			time.Sleep(largeBodyTimeout - time.Millisecond)
			first.mustRead(t, 2*maxMediumBody)
			// The time that it waited does not count.
			time.Sleep(largeBodyTimeout - time.Millisecond)
			second.mustRead(t, 3*maxMediumBody)
		},
		"a large body that waits is given up for medium ones": func(t *testing.T, r *room) {
			var large []*sending
			for range maxMediumBodies/maxMediumBody + 1 {
				large = append(large, send(t, r, 2*maxMediumBody))
			}
			send(t, r, 2*maxSmallBody-1).mustRead(t, 2*maxSmallBody-1)
			if !errors.Is(large[1].err, errNoRoom) {
				t.Errorf("the one that waited for longest: %v", large[1].err)
			}
			large[0].mustRead(t, 2*maxMediumBody)
			for _, s := range large[2:] {
				s.mustRead(t, 2*maxMediumBody)
			}
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoom()
				test(t, r)
				synctest.Wait()
				for name, share := range map[string]struct {
					*share
					size int
				}{"small": {&r.small, maxSmallBodies}, "medium": {&r.medium, maxMediumBodies}} {
					if share.free != share.size || share.coming != 0 || share.waiting.Len() != 0 {
						t.Errorf("%s: at the end %d bytes are free, and %d bodies are read", name, share.free, share.waiting.Len())
					}
				}
				if !r.large.TryAcquire(1) || !r.decoding.TryAcquire(1) {
					t.Error("at the end there is a large body, or a body is decoded")
				}
			})
		})
	}
}
