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

package client

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"sync"
	"sync/atomic"
	"time"

	"k8s.io/utils/clock"
)

// ErrFenced is returned for a write that the process may not send, because another process
// may be the leader.
var ErrFenced = errors.New("the lease is not held")

var errExpired = fmt.Errorf("%w: it expired during the write", ErrFenced)

// fenceCheckPeriod is how often Watch compares the clocks. Timers stop in a virtual machine
// that is suspended, so a timer for the renew deadline alone would come too late.
const fenceCheckPeriod = 250 * time.Millisecond

// Fence lets writes pass only while the last renewal of the lease is younger than the renew
// deadline, and gives each write a deadline at which the lease expires. A leader that was
// frozen, or that cannot reach the API server, would otherwise write beside its successor
// until the elector notices the loss. Create one with NewFence.
//
// The age of a renewal is the larger of what the monotonic and the wall clock show: the
// monotonic clock stops in a virtual machine that is suspended, and the wall clock can be
// set back.
type Fence struct {
	monotonic                    clock.Clock
	wall                         clock.PassiveClock
	renewDeadline, leaseDuration time.Duration

	closed atomic.Bool
	mu     sync.Mutex
	// renewed is when the last successful renewal was sent, nil before the first one.
	renewed *Instant
}

// Instant is a point in time on both clocks of a Fence.
type Instant struct {
	monotonic, wall time.Time
}

// NewFence returns a Fence that lets no write pass before the first renewal. Both clocks are
// the real one, except in tests.
func NewFence(monotonic clock.Clock, wall clock.PassiveClock, renewDeadline, leaseDuration time.Duration) *Fence {
	return &Fence{monotonic: monotonic, wall: wall, renewDeadline: renewDeadline, leaseDuration: leaseDuration}
}

// Now returns the current time, for Renewed.
func (f *Fence) Now() Instant {
	// Round removes the monotonic time.
	return Instant{monotonic: f.monotonic.Now(), wall: f.wall.Now().Round(0)}
}

// Renewed is told when an accepted renewal of the lease was sent. It opens no expired fence: another process
// may have led meanwhile.
func (f *Fence) Renewed(sent Instant) {
	_, expired := f.remaining()
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.renewed == nil || expired == nil {
		f.renewed = &sent
	}
}

// Close lets no further write pass, whatever renewals follow.
func (f *Fence) Close() {
	f.closed.Store(true)
}

// Watch returns an ErrFenced once the last renewal is as old as the renew deadline, or nil if
// ctx ends first.
func (f *Fence) Watch(ctx context.Context) error {
	for {
		remaining, err := f.remaining()
		if err != nil {
			return err
		}
		timer := f.monotonic.NewTimer(min(fenceCheckPeriod, remaining-(f.leaseDuration-f.renewDeadline)))
		select {
		case <-timer.C():
		case <-ctx.Done():
			timer.Stop()
			return nil
		}
	}
}

// remaining returns how long the lease is still valid, or an ErrFenced if its last renewal is
// as old as the renew deadline.
func (f *Fence) remaining() (time.Duration, error) {
	f.mu.Lock()
	renewed := f.renewed
	f.mu.Unlock()
	if renewed == nil {
		return 0, fmt.Errorf("%w yet", ErrFenced)
	}
	now := f.Now()
	age := max(now.monotonic.Sub(renewed.monotonic), now.wall.Sub(renewed.wall))
	if age >= f.renewDeadline {
		return 0, fmt.Errorf("%w: the last renewal was sent %s ago, the renew deadline is %s", ErrFenced, age.Round(time.Millisecond), f.renewDeadline)
	}
	return f.leaseDuration - age, nil
}

// Wrap wraps a transport so that its writes pass the Fence, and always without a Fence. Reads and
// dry runs always pass.
func (f *Fence) Wrap(next http.RoundTripper) http.RoundTripper {
	if f == nil {
		return next
	}
	return roundTripper(func(request *http.Request) (*http.Response, error) {
		if !isWrite(request) {
			return next.RoundTrip(request)
		}
		// The process may be frozen at any instant.
		start := f.monotonic.Now()
		remaining, err := f.remaining()
		if f.closed.Load() {
			err = fmt.Errorf("%w any more", ErrFenced)
		}
		if err != nil {
			if request.Body != nil {
				// A RoundTripper must close the body, also if it returns an error.
				_ = request.Body.Close()
			}
			return nil, err
		}
		ctx, cancel := context.WithDeadlineCause(request.Context(), start.Add(remaining), errExpired)
		response, err := next.RoundTrip(request.WithContext(ctx))
		if err != nil {
			cancel()
			return nil, err
		}
		response.Body = &cancellingBody{ReadCloser: response.Body, cancel: cancel}
		return response, nil
	})
}

// roundTripper is a transport that is one function.
type roundTripper func(*http.Request) (*http.Response, error)

// RoundTrip implements http.RoundTripper.
func (r roundTripper) RoundTrip(request *http.Request) (*http.Response, error) {
	return r(request)
}

// isWrite reports whether the API server may store something for the request.
func isWrite(request *http.Request) bool {
	switch request.Method {
	case http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete:
		return !request.URL.Query().Has("dryRun")
	}
	return false
}

// cancellingBody releases the context of a request once its response has been read.
type cancellingBody struct {
	io.ReadCloser

	cancel context.CancelFunc
}

// Close implements io.Closer.
func (b *cancellingBody) Close() error {
	defer b.cancel()
	return b.ReadCloser.Close()
}
