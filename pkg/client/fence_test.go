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
	"strings"
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
	// passed are the requests that passed the fence.
	passed []string
}

func newFenceEnv() *fenceEnv {
	start := time.Date(2026, 11, 22, 12, 0, 0, 0, time.UTC)
	e := &fenceEnv{monotonicClock: clocktesting.NewFakeClock(start), wallClock: clocktesting.NewFakePassiveClock(start)}
	e.Fence = NewFence(e.monotonicClock, e.wallClock, testRenewDeadline, testLeaseDuration)
	return e
}

// pass lets time pass on both clocks.
func (e *fenceEnv) pass(monotonic, wall time.Duration) {
	e.monotonicClock.Step(monotonic)
	e.wallClock.SetTime(e.wallClock.Now().Add(wall))
}

// RoundTrip implements http.RoundTripper for the API server.
func (e *fenceEnv) RoundTrip(request *http.Request) (*http.Response, error) {
	e.passed = append(e.passed, request.Method+" "+request.URL.RequestURI())
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

// send sends a request through the fence, and closes the response.
func (e *fenceEnv) send(t *testing.T, method, uri string) error {
	t.Helper()
	body := &closeRecorder{Reader: strings.NewReader("body")}
	response, err := e.Wrap(e).RoundTrip(httptest.NewRequestWithContext(t.Context(), method, uri, body))
	if err != nil {
		if !body.closed {
			t.Error("the body of a refused request stays open")
		}
		return err
	}
	return response.Body.Close()
}

// closeRecorder is a body that knows whether it was closed.
type closeRecorder struct {
	io.Reader

	closed bool
}

// Close implements io.Closer.
func (r *closeRecorder) Close() error {
	r.closed = true
	return nil
}

func TestFence(t *testing.T) {
	const past = testRenewDeadline
	for sentence, test := range map[string]struct {
		// before happens before the request.
		before func(*fenceEnv)
		uri    string
		reads  bool
		// err is a part of the error, "" if the request passes.
		err string
	}{
		"rule 20: no write passes before the first renewal": {
			before: func(*fenceEnv) {}, err: "the lease is not held yet"},
		"rule 20: a write passes while the last renewal is younger than the renew deadline": {
			before: func(e *fenceEnv) { e.Renewed(e.Now()); e.pass(past-1, past-1) }},
		"rule 20: no write passes once the last renewal is as old as the renew deadline": {
			before: func(e *fenceEnv) { e.Renewed(e.Now()); e.pass(past, past) }, err: "the lease is not held: the last renewal was sent 10s ago, the renew deadline is 10s"},
		"rule 20: time in which the monotonic clock stands still counts, as in a virtual machine that is suspended": {
			before: func(e *fenceEnv) { e.Renewed(e.Now()); e.pass(0, past) }, err: "10s ago"},
		"rule 20: time counts although the wall clock is set back": {
			before: func(e *fenceEnv) { e.Renewed(e.Now()); e.pass(past, -past) }, err: "10s ago"},
		"rule 20: a renewal counts from when it was sent": {
			before: func(e *fenceEnv) {
				sent := e.Now()
				e.pass(past-1, past-1)
				e.Renewed(sent)
				e.pass(1, 1)
			}, err: "10s ago"},
		"rule 20: each renewal lets writes pass again": {
			before: func(e *fenceEnv) {
				e.Renewed(e.Now())
				e.pass(past, past)
				e.Renewed(e.Now())
			}},
		"rule 20: no write passes a closed fence, whatever renewals follow": {
			before: func(e *fenceEnv) {
				e.Renewed(e.Now())
				e.Close()
				e.Renewed(e.Now())
			}, err: "the lease is not held any more"},
		"rule 20: reads pass without a lease": {
			before: func(*fenceEnv) {}, reads: true},
		"rule 20: dry runs pass without a lease": {
			before: func(*fenceEnv) {}, uri: "/api/v1/pods?dryRun=All&fieldManager=me"},
	} {
		t.Run(sentence, func(t *testing.T) {
			methods := []string{http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete}
			if test.reads {
				methods = []string{http.MethodGet, http.MethodHead, http.MethodOptions}
			}
			if test.uri == "" {
				test.uri = "/api/v1/pods?fieldManager=me"
			}
			for _, method := range methods {
				e := newFenceEnv()
				test.before(e)
				err := e.send(t, method, test.uri)
				if (err == nil) != (test.err == "") || err != nil && (!errors.Is(err, ErrFenced) || !strings.Contains(err.Error(), test.err)) {
					t.Errorf("%s: error %v, want %q", method, err, test.err)
				}
				if (err == nil) != (len(e.passed) == 1) {
					t.Errorf("%s: error %v, passed: %q", method, err, e.passed)
				}
			}
		})
	}
}

// hanging is an API server that answers a write when its context ends, or after a while.
type hanging struct {
	after time.Duration
}

// RoundTrip implements http.RoundTripper.
func (h hanging) RoundTrip(request *http.Request) (*http.Response, error) {
	select {
	case <-request.Context().Done():
		return nil, context.Cause(request.Context())
	case <-time.After(h.after):
	}
	return &http.Response{StatusCode: http.StatusOK, Body: io.NopCloser(contextReader{request.Context()})}, nil
}

// contextReader is a body that can be read until the context ends.
type contextReader struct {
	ctx context.Context
}

// Read implements io.Reader.
func (r contextReader) Read(into []byte) (int, error) {
	if r.ctx.Err() != nil {
		return 0, r.ctx.Err()
	}
	return copy(into, "answer"), io.EOF
}

// TestDeadlineOfWrites: no write can be executed once another process may have the lease.
func TestDeadlineOfWrites(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := NewFence(clock.RealClock{}, clock.RealClock{}, testRenewDeadline, testLeaseDuration)
		renewed := time.Now()
		f.Renewed(f.Now())
		time.Sleep(testRenewDeadline - time.Second)
		request := httptest.NewRequestWithContext(t.Context(), http.MethodPut, "/", nil)
		late, err := f.Wrap(hanging{after: time.Hour}).RoundTrip(request)
		if err == nil {
			_ = late.Body.Close()
		}
		if !errors.Is(err, ErrFenced) || time.Since(renewed) != testLeaseDuration {
			t.Errorf("rule 20: a write that hangs ended %s after the renewal with %v, want ErrFenced after %s", time.Since(renewed), err, testLeaseDuration)
		}

		f.Renewed(f.Now())
		var response *http.Response
		response, err = f.Wrap(hanging{after: time.Second}).RoundTrip(request)
		if err != nil {
			t.Fatal(err)
		}
		if answer, err := io.ReadAll(response.Body); string(answer) != "answer" || err != nil {
			t.Errorf("the response is %q, %v", answer, err)
		}
		if err := response.Body.Close(); err != nil {
			t.Error(err)
		}
		if _, err := response.Body.Read(nil); !errors.Is(err, context.Canceled) {
			t.Errorf("the context of a write is not released: %v", err)
		}
	})
}
