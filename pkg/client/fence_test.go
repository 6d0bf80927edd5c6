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
	"io"
	"net/http"
	"net/http/httptest"
	"testing"
	"testing/synctest"
	"time"

	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"
)

const (
	testRenewDeadline = 10 * time.Second
	testLeaseDuration = 15 * time.Second
)

// fenceEnv is a fence with clocks that a test sets.
type fenceEnv struct {
	*Fence

	monotonicClock *clocktesting.FakeClock
	wallClock      *clocktesting.FakePassiveClock
}

// pass lets time pass on both clocks.
func (e *fenceEnv) pass(monotonic, wall time.Duration) {
	e.monotonicClock.Step(monotonic)
	e.wallClock.SetTime(e.wallClock.Now().Add(wall))
}

// body is a body that knows whether it was closed.
type body struct {
	io.Reader

	closed bool
}

// Close implements io.Closer.
func (b *body) Close() error {
	b.closed = true
	return nil
}

func TestFence(t *testing.T) {
	const past = testRenewDeadline
	writes := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
	reads := []string{http.MethodGet, http.MethodHead, http.MethodOptions}
	const all, dryRun = "/api/v1/pods?fieldManager=me", "/api/v1/pods?dryRun=All&fieldManager=me"
	for _, test := range []struct {
		sentence string
		// before happens before the request.
		before  func(*fenceEnv)
		methods []string
		uri     string
		// err is a part of the error, "" if the request passes.
		err string
	}{
		{"no write passes before the first renewal", func(*fenceEnv) {}, writes, all, "the lease is not held yet"},
		{"a write passes while the last renewal is younger than the renew deadline",
			func(e *fenceEnv) { e.Renewed(e.Now()); e.pass(past-1, past-1) }, writes, all, ""},
		{"no write passes once the last renewal is as old as the renew deadline",
			func(e *fenceEnv) { e.Renewed(e.Now()); e.pass(past, past) }, writes, all,
			"the lease is not held: the last renewal was sent 10s ago, the renew deadline is 10s"},
		{"time in which the monotonic clock stands still counts, as in a virtual machine that is suspended",
			func(e *fenceEnv) { e.Renewed(e.Now()); e.pass(0, past) }, writes, all, "10s ago"},
		{"time counts although the wall clock is set back",
			func(e *fenceEnv) { e.Renewed(e.Now()); e.pass(past, -past) }, writes, all, "10s ago"},
		{"a renewal counts from when it was sent",
			func(e *fenceEnv) { sent := e.Now(); e.pass(past-1, past-1); e.Renewed(sent); e.pass(1, 1) }, writes, all, "10s"},
		{"each renewal lets writes pass again",
			func(e *fenceEnv) { e.Renewed(e.Now()); e.pass(past, past); e.Renewed(e.Now()) }, writes, all, ""},
		{"no write passes a closed fence, whatever renewals follow",
			func(e *fenceEnv) { e.Renewed(e.Now()); e.Close(); e.Renewed(e.Now()) }, writes, all, "not held any more"},
		{"reads pass without a lease", func(*fenceEnv) {}, reads, all, ""},
		{"dry runs pass without a lease", func(*fenceEnv) {}, writes, dryRun, ""},
	} {
		t.Run("rule 20: "+test.sentence, func(t *testing.T) {
			for _, method := range test.methods {
				start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
				e := &fenceEnv{monotonicClock: clocktesting.NewFakeClock(start), wallClock: clocktesting.NewFakePassiveClock(start)}
				e.Fence = NewFence(e.monotonicClock, e.wallClock, testRenewDeadline, testLeaseDuration)
				test.before(e)
				sent, passed := &body{}, false
				response, err := e.Wrap(roundTripper(func(*http.Request) (*http.Response, error) {
					passed = true
					return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
				})).RoundTrip(httptest.NewRequestWithContext(t.Context(), method, test.uri, sent))
				if err == nil {
					_ = response.Body.Close()
				}
				if !hasText(err, test.err) || err != nil && !errors.Is(err, ErrFenced) {
					t.Errorf("%s: error %v, want %q", method, err, test.err)
				}
				if (err == nil) != passed || err != nil && !sent.closed {
					t.Errorf("%s: error %v, passed: %t, body closed: %t", method, err, passed, sent.closed)
				}
			}
		})
	}
}

// TestDeadlineOfWrites: no write can be executed once another process may have the lease.
func TestDeadlineOfWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFence(clock.RealClock{}, clock.RealClock{}, testRenewDeadline, testLeaseDuration)
		// The API server answers after that time, unless the context of the write ends before.
		var write context.Context
		send := func(after time.Duration) (*http.Response, error) {
			return f.Wrap(roundTripper(func(request *http.Request) (*http.Response, error) {
				write = request.Context()
				select {
				case <-write.Done():
					return nil, context.Cause(write)
				case <-time.After(after):
				}
				return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
			})).RoundTrip(httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil))
		}
		renewed := time.Now()
		f.Renewed(f.Now())
		time.Sleep(testRenewDeadline - time.Second)
		late, err := send(time.Hour)
		if err == nil {
			_ = late.Body.Close()
		}
		if took := time.Since(renewed); !errors.Is(err, ErrFenced) || took != testLeaseDuration {
			t.Errorf("rule 20: a write that hangs ended %s after the renewal with %v, want ErrFenced", took, err)
		}

		f.Renewed(f.Now())
		response, err := send(time.Second)
		if err != nil {
			t.Fatal(err)
		}
		unread := write.Err()
		if err := response.Body.Close(); unread != nil || write.Err() == nil || err != nil {
			t.Errorf("the context of a write ends with %v before its response is read, %v after, error %v", unread, write.Err(), err)
		}
	})
}
