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

package server

import (
	"context"
	"encoding/json"
	"errors"
	"net/http"
	"net/http/httptest"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/config"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	clocktesting "k8s.io/utils/clock/testing"

	"example.com/sample-controller/pkg/client"
)

const (
	testLeaseDuration = 15 * time.Second
	testRenewDeadline = 10 * time.Second
	testRetryPeriod   = 2 * time.Second
)

// apiServer has one Lease, or none yet, and refuses an update of an old version.
type apiServer struct {
	mu      sync.Mutex
	lease   *coordinationv1.Lease
	version int
}

// holder returns the holder of the lease.
func (s *apiServer) holder() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return *s.lease.Spec.HolderIdentity
}

// store stores the lease. The caller holds the mutex.
func (s *apiServer) store(lease *coordinationv1.Lease) {
	s.version++
	s.lease = lease
	s.lease.ResourceVersion = strconv.Itoa(s.version)
}

// hold makes another process the holder of the lease, "" for none.
func (s *apiServer) hold(holder string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.store(&coordinationv1.Lease{
		TypeMeta:   metav1.TypeMeta{APIVersion: "coordination.k8s.io/v1", Kind: "Lease"},
		ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "lease"},
		Spec:       coordinationv1.LeaseSpec{HolderIdentity: &holder},
	})
}

// candidate is a process that stands for election, and the transport of its requests.
type candidate struct {
	*Lease

	server *apiServer
	// hangs lets every request wait for the client's timeout. Otherwise it takes the time slow. The
	// method in forbidden is.
	hangs     atomic.Bool
	slow      time.Duration
	forbidden string
	// began and ended are when work began and ended.
	began, ended time.Time
	// wall goes on while the virtual machine is suspended. The monotonic clock and the timers do not.
	wall *clocktesting.FakePassiveClock
	stop context.CancelFunc
	// fail makes work end with the error.
	fail   chan error
	result chan error
}

// RoundTrip implements http.RoundTripper.
func (c *candidate) RoundTrip(r *http.Request) (*http.Response, error) {
	var hangs <-chan time.Time
	if !c.hangs.Load() {
		hangs = time.After(c.slow)
	}
	select {
	case <-r.Context().Done():
		return nil, r.Context().Err()
	case <-hangs:
	}
	c.server.mu.Lock()
	defer c.server.mu.Unlock()
	sent, answer := &coordinationv1.Lease{}, httptest.NewRecorder()
	if r.Body != nil {
		_ = json.NewDecoder(r.Body).Decode(sent)
	}
	answer.Header().Set("Content-Type", "application/json")
	switch {
	case c.forbidden == r.Method:
		answer.WriteHeader(http.StatusForbidden)
	case r.Method != http.MethodPost && c.server.lease == nil:
		answer.WriteHeader(http.StatusNotFound)
	case r.Method == http.MethodPut && c.server.lease.ResourceVersion != sent.ResourceVersion:
		answer.WriteHeader(http.StatusConflict)
	case r.Method == http.MethodPost, r.Method == http.MethodPut:
		c.server.store(sent)
	}
	err := json.NewEncoder(answer).Encode(c.server.lease)
	return answer.Result(), err
}

// writeError returns the error of a write that passes the fence of the candidate.
func (c *candidate) writeError() error {
	response, err := c.fence.Wrap(c).RoundTrip(httptest.NewRequest(http.MethodDelete, "/", nil))
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// newCandidate returns a candidate that does not stand for election yet.
func newCandidate(t *testing.T, server *apiServer) (context.Context, *candidate) {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, stop := context.WithCancel(ctx)
	wall := clocktesting.NewFakePassiveClock(time.Now())
	c := &candidate{server: server, wall: wall, stop: stop, fail: make(chan error), result: make(chan error, 1)}
	settings := &config.LeaderElectionConfiguration{
		LeaderElect:       true,
		LeaseDuration:     metav1.Duration{Duration: testLeaseDuration},
		RenewDeadline:     metav1.Duration{Duration: testRenewDeadline},
		RetryPeriod:       metav1.Duration{Duration: testRetryPeriod},
		ResourceLock:      resourcelock.LeasesResourceLock,
		ResourceName:      "lease",
		ResourceNamespace: "here",
	}
	kube := kubernetes.NewForConfigOrDie(&rest.Config{
		Host: "http://api", Transport: c, QPS: -1, Timeout: testRenewDeadline / 2, ContentConfig: rest.ContentConfig{ContentType: runtime.ContentTypeJSON},
	})
	fence := client.NewFence(clock.RealClock{}, wall, testRenewDeadline, testLeaseDuration)
	c.Lease = must(NewLease(ctx, settings, kube.CoordinationV1(), fence))
	return ctx, c
}

// startCandidate starts a candidate for whose requests the API server takes the time slow, and
// whose work takes the duration drain to end.
func startCandidate(t *testing.T, server *apiServer, slow, drain time.Duration) *candidate {
	t.Helper()
	ctx, c := newCandidate(t, server)
	c.slow = slow
	go func() {
		c.result <- c.Lead(ctx, func(ctx context.Context) error {
			c.began = time.Now()
			defer func() { c.ended = time.Now() }()
			select {
			case err := <-c.fail:
				return err
			case <-ctx.Done():
				time.Sleep(drain)
				return nil
			}
		})
	}()
	return c
}

// TestSuccession is about two candidates, of which the first one leads at first.
func TestSuccession(t *testing.T) {
	const drain = 5 * time.Second
	failure := errors.New("failure")
	for sentence, test := range map[string]struct {
		end func(first, second *candidate)
		// err is the error of the first one; the second one leads within that time, 0 for never.
		err    error
		within time.Duration
	}{
		"rule 20: after an orderly end the next leader starts at once": {
			func(first, _ *candidate) {
				first.stop()
				synctest.Wait()
				if err := first.writeError(); err != nil {
					t.Errorf("a write that ends a sync fails: %v", err)
				}
			}, nil, drain + testRetryPeriod*22/10},
		"after an error of work, too": {
			func(first, _ *candidate) { first.fail <- failure }, failure, testRetryPeriod * 22 / 10},
		"rule 20: a leader that vanished is replaced when its lease has expired, and has ended before": {
			func(first, _ *candidate) { first.hangs.Store(true) }, ErrLeaseLost, testLeaseDuration + testRetryPeriod*44/10},
		"rule 20: a standby that is stopped never leads": {
			func(first, second *candidate) {
				second.stop()
				second.result <- <-second.result
				first.stop()
			}, nil, 0},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				server := &apiServer{}
				first := startCandidate(t, server, 0, drain)
				synctest.Wait()
				second := startCandidate(t, server, 0, 0)
				time.Sleep(time.Minute)
				synctest.Wait()
				if err := second.Health().Check(nil); err != nil || first.began.IsZero() || !second.began.IsZero() {
					t.Fatalf("the first began at %s, the second at %s, the health of the standby: %v", first.began, second.began, err)
				}
				told := time.Now()
				test.end(first, second)
				if err := <-first.result; !errors.Is(err, test.err) {
					t.Errorf("the first ended with %v, want %v", err, test.err)
				}
				// Such as an event that was queued.
				if err := first.writeError(); !errors.Is(err, client.ErrFenced) {
					t.Errorf("rule 20: the error of a write after the end is %v", err)
				}
				time.Sleep(time.Minute)
				synctest.Wait()
				if took := second.began.Sub(told); second.began.IsZero() != (test.within == 0) || took > test.within {
					t.Errorf("the second led after %s, want %s at most", took, test.within)
				}
				if test.within > 0 && second.began.Before(first.ended) {
					t.Errorf("the second led from %s, the first until %s", second.began, first.ended)
				}
				second.stop()
				if err := <-second.result; err != nil {
					t.Error(err)
				}
			})
		})
	}
}

// TestNeverLeads is about a process that may not take the lease, or is stopped while it does.
func TestNeverLeads(t *testing.T) {
	for sentence, forbidden := range map[string]string{
		"get is forbidden":    http.MethodGet,
		"create is forbidden": http.MethodPost,
		"rule 20: a process that is stopped while the API server creates its lease releases it": "",
	} {
		t.Run(sentence, func(t *testing.T) {
			// The bubble waits for the end of the elector.
			synctest.Test(t, func(t *testing.T) {
				ctx, c := newCandidate(t, &apiServer{})
				if c.forbidden = forbidden; forbidden == "" {
					c.slow = time.Second
					time.AfterFunc(3*time.Second/2, c.stop)
				}
				err := c.Lead(ctx, func(context.Context) error {
					t.Error("it led")
					return nil
				})
				if apierrors.IsForbidden(err) != (forbidden != "") || err != nil && !strings.HasPrefix(err.Error(), "taking the lease: ") {
					t.Errorf("error %v", err)
				}
				if c.server.lease != nil && c.server.holder() != "" {
					t.Errorf("the holder of the lease is %s", c.server.holder())
				}
			})
		})
	}
}

// TestLossIsNoticed: whatever happens to the lease of a leader, the process is told in time,
// whether work ends or not. Then no write passes, and the lease is not released.
func TestLossIsNoticed(t *testing.T) {
	for sentence, test := range map[string]struct {
		// slow is how long a request takes, drain how long work takes to end.
		slow, drain time.Duration
		lose        func(*candidate)
		// within is counted from the last renewal.
		within time.Duration
	}{
		"rule 20: an API server that hangs every request ends the leader at the renew deadline": {
			drain: time.Hour, lose: func(c *candidate) { c.hangs.Store(true) }, within: testRenewDeadline},
		"rule 20: a renewal counts from when it was sent": {
			slow: time.Second, lose: func(c *candidate) { c.hangs.Store(true) }, within: testRenewDeadline},
		"rule 20: a virtual machine that was suspended until the renew deadline ends the leader within a second": {
			drain: time.Hour, lose: func(c *candidate) { c.wall.SetTime(c.wall.Now().Add(testRenewDeadline)) }, within: time.Second},
		"rule 20: an API server that hangs ends a leader at the renew deadline that is draining": {
			drain: time.Hour, lose: func(c *candidate) { c.hangs.Store(true); c.stop() }, within: testRenewDeadline},
		"rule 20: an API server that hangs ends a leader at the renew deadline that releases the lease": {
			drain: 2 * testRetryPeriod, lose: func(c *candidate) { c.hangs.Store(true); c.stop() }, within: testRenewDeadline},
		"rule 20: a lease that shows another holder ends the leader at its next renewal": {
			drain: time.Hour, lose: func(c *candidate) { c.server.hold("another") }, within: testRetryPeriod},
		"rule 20: a lease that another client released ends the leader at its next renewal": {
			drain: time.Hour, lose: func(c *candidate) { c.server.hold("") }, within: testRetryPeriod},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := startCandidate(t, &apiServer{}, test.slow, test.drain)
				// To the instant of a renewal.
				time.Sleep(10 * testRetryPeriod)
				synctest.Wait()
				renewed := time.Now()
				if err := c.writeError(); err != nil {
					t.Errorf("rule 20: a write of the leader fails: %v", err)
				}
				test.lose(c)
				holder := c.server.holder()
				var err error
				select {
				case err = <-c.result:
				case <-time.After(10 * testLeaseDuration):
					// Or the elector would renew forever.
					c.stop()
				}
				if took := time.Since(renewed); !errors.Is(err, ErrLeaseLost) || took > test.within {
					t.Errorf("%v after %s, want ErrLeaseLost within %s", err, took, test.within)
				}
				c.hangs.Store(false)
				for _, later := range []time.Duration{0, time.Minute} {
					time.Sleep(later)
					if err := c.writeError(); !errors.Is(err, client.ErrFenced) {
						t.Errorf("rule 20: the error of a write %s later is %v", later, err)
					}
				}
				// Let work end: it must not release the lease.
				time.Sleep(2 * time.Hour)
				if got := c.server.holder(); got != holder {
					t.Errorf("rule 20: the holder of the lease is %q afterwards, want %q", got, holder)
				}
			})
		})
	}
}
