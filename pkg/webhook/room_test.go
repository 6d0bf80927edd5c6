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
}

func (c *client) Read(p []byte) (int, error) {
	if c.sends.Len() > 0 {
		return c.sends.Read(p)
	}
	select {
	case <-c.finish:
		return 0, io.EOF
	case <-c.ctx.Done():
		return 0, errors.New("i/o timeout")
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
	ctx, giveUp := context.WithCancelCause(t.Context())
	s := &sending{client: &client{ctx: ctx, sends: bytes.NewReader(make([]byte, size)), finish: make(chan struct{})}, body: r.enter(giveUp), ended: make(chan struct{})}
	go func() {
		defer close(s.ended)
		s.data, s.err = s.body.read(ctx, s.client)
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
			var whole []*sending
			for range maxSmallBodies / maxSmallBody {
				s := send(t, r, maxSmallBody-1)
				close(s.finish)
				<-s.ended
				whole = append(whole, s)
			}
			one := send(t, r, 10)
			if !one.isReading() {
				t.Errorf("beside others that were read: %v", one.err)
			}
			for _, s := range whole {
				s.body.leave()
			}
			one.mustRead(t, 10)
		},
		"a body that takes 5 s is given up": func(t *testing.T, r *room) {
			began := time.Now()
			slow := send(t, r, 10)
			<-slow.ended
			if took := time.Since(began); took != bodyTimeout || !errors.Is(slow.err, errSlow) {
				t.Errorf("%v after %v", slow.err, took)
			}
		},
		"of the large bodies there is one at a time": func(t *testing.T, r *room) {
			first, second := send(t, r, 2*maxSmallBody), send(t, r, 3*maxSmallBody)
			if second.body.large {
				t.Error("both are read")
			}
			send(t, r, 10).mustRead(t, 10)
			time.Sleep(bodyTimeout - time.Second)
			first.mustRead(t, 2*maxSmallBody)
			// The time that it waited does not count.
			time.Sleep(bodyTimeout - time.Second)
			second.mustRead(t, 3*maxSmallBody)
		},
		"a large body that waits is given up for small ones": func(t *testing.T, r *room) {
			var large []*sending
			for range maxSmallBodies/maxSmallBody + 1 {
				large = append(large, send(t, r, 2*maxSmallBody))
			}
			small := send(t, r, 10)
			small.mustRead(t, 10)
			if !errors.Is(large[1].err, errNoRoom) {
				t.Errorf("the one that waited for longest: %v", large[1].err)
			}
			large[0].mustRead(t, 2*maxSmallBody)
			for _, s := range large[2:] {
				s.mustRead(t, 2*maxSmallBody)
			}
		},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				r := newRoom()
				test(t, r)
				synctest.Wait()
				if r.free != maxSmallBodies || r.reading.Len() != 0 || !r.large.TryAcquire(1) {
					t.Errorf("at the end %d bytes are free, and %d bodies are read", r.free, r.reading.Len())
				}
			})
		})
	}
}
