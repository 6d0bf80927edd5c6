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
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/kubernetes/fake"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/rest"
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/config"
	"k8s.io/klog/v2/ktesting"
	"k8s.io/utils/clock"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/client"
)

const (
	testLeaseDuration = 15 * time.Second
	testRenewDeadline = 10 * time.Second
	testRetryPeriod   = 2 * time.Second
)

func testSettings() *config.LeaderElectionConfiguration {
	return &config.LeaderElectionConfiguration{
		LeaderElect:       true,
		LeaseDuration:     metav1.Duration{Duration: testLeaseDuration},
		RenewDeadline:     metav1.Duration{Duration: testRenewDeadline},
		RetryPeriod:       metav1.Duration{Duration: testRetryPeriod},
		ResourceLock:      resourcelock.LeasesResourceLock,
		ResourceName:      "lease",
		ResourceNamespace: "here",
	}
}

// candidate is a process that stands for election.
type candidate struct {
	*Lease

	client *fake.Clientset
	// began and ended are when work began and ended, in nanoseconds; 0 for never.
	began, ended atomic.Int64
	// cutOff makes every request fail, hangs lets it wait for the client's timeout.
	cutOff, hangs atomic.Bool
	// suspended is for how long the virtual machine was suspended: the wall clock goes on,
	// the monotonic clock and the timers do not.
	suspended atomic.Int64
	stop      context.CancelFunc
	result    chan error
}

// wallClock is the wall clock of a candidate.
type wallClock struct {
	clock.PassiveClock
	*candidate
}

// Now implements clock.PassiveClock.
func (c wallClock) Now() time.Time {
	return c.PassiveClock.Now().Add(time.Duration(c.suspended.Load()))
}

// writeError returns the error of a write that passes the fence of the candidate.
func (c *candidate) writeError(t *testing.T) error {
	t.Helper()
	request := httptest.NewRequestWithContext(t.Context(), http.MethodDelete, "/apis/apps/v1/namespaces/here/deployments/web", nil)
	response, err := c.fence.Wrap(answering{}).RoundTrip(request)
	if err != nil {
		return err
	}
	return response.Body.Close()
}

// answering is an API server that answers every request.
type answering struct{}

// RoundTrip implements http.RoundTripper.
func (answering) RoundTrip(*http.Request) (*http.Response, error) {
	return &http.Response{StatusCode: http.StatusOK, Body: http.NoBody}, nil
}

func newTestFence(wall clock.PassiveClock) *client.Fence {
	return client.NewFence(clock.RealClock{}, wall, testRenewDeadline, testLeaseDuration)
}

// testLeases is a client of Leases whose requests hang while the candidate wants it, and
// which refuses an update of an old version. A reactor of the fake clientset gets no context,
// and its tracker accepts every version.
type testLeases struct {
	coordinationclient.CoordinationV1Interface
	coordinationclient.LeaseInterface

	hangs *atomic.Bool
}

func newTestLeases(client coordinationclient.CoordinationV1Interface, hangs *atomic.Bool) *testLeases {
	return &testLeases{CoordinationV1Interface: client, LeaseInterface: client.Leases("here"), hangs: hangs}
}

func (l *testLeases) Leases(string) coordinationclient.LeaseInterface { return l }

func (l *testLeases) RESTClient() rest.Interface { return nil }

func (l *testLeases) wait(ctx context.Context) error {
	if !l.hangs.Load() {
		return nil
	}
	ctx, cancel := context.WithTimeout(ctx, testRenewDeadline/2)
	defer cancel()
	<-ctx.Done()
	return ctx.Err()
}

func (l *testLeases) Get(ctx context.Context, name string, options metav1.GetOptions) (*coordinationv1.Lease, error) {
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	return l.LeaseInterface.Get(ctx, name, options)
}

func (l *testLeases) Update(ctx context.Context, lease *coordinationv1.Lease, options metav1.UpdateOptions) (*coordinationv1.Lease, error) {
	if err := l.wait(ctx); err != nil {
		return nil, err
	}
	current, err := l.LeaseInterface.Get(ctx, lease.Name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if current.ResourceVersion != lease.ResourceVersion {
		return nil, apierrors.NewConflict(coordinationv1.Resource("leases"), lease.Name, errors.New("changed"))
	}
	return l.LeaseInterface.Update(ctx, lease, options)
}

// newCandidate starts a candidate whose work takes the duration drain to end.
func newCandidate(t *testing.T, tracker clienttesting.ObjectTracker, drain time.Duration) *candidate {
	t.Helper()
	_, ctx := ktesting.NewTestContext(t)
	ctx, stop := context.WithCancel(ctx)
	c := &candidate{client: &fake.Clientset{}, stop: stop, result: make(chan error, 1)}
	c.client.AddReactor("*", "*", func(clienttesting.Action) (bool, runtime.Object, error) {
		return c.cutOff.Load(), nil, apierrors.NewInternalError(errors.New("cut off"))
	})
	c.client.AddReactor("*", "*", clienttesting.ObjectReaction(tracker))
	var err error
	fence := newTestFence(wallClock{clock.RealClock{}, c})
	if c.Lease, err = NewLease(ctx, testSettings(), newTestLeases(c.client.CoordinationV1(), &c.hangs), fence); err != nil {
		t.Fatal(err)
	}
	go func() {
		c.result <- c.Lead(ctx, func(ctx context.Context) error {
			c.began.Store(time.Now().UnixNano())
			<-ctx.Done()
			time.Sleep(drain)
			c.ended.Store(time.Now().UnixNano())
			return nil
		})
	}()
	return c
}

func newTracker() clienttesting.ObjectTracker {
	return fake.NewClientset().Tracker()
}

func TestNextLeaderStartsAfterTheLastHasEnded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := newTracker()
		const drain = 5 * time.Second
		first := newCandidate(t, tracker, drain)
		synctest.Wait()
		second := newCandidate(t, tracker, 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		if first.began.Load() == 0 || second.began.Load() != 0 {
			t.Fatalf("the first began at %d, the second at %d", first.began.Load(), second.began.Load())
		}

		signalled := time.Now()
		first.stop()
		if err := <-first.result; err != nil {
			t.Errorf("rule 20: an orderly end is reported as %v", err)
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if second.began.Load() < first.ended.Load() {
			t.Errorf("rule 20: the second led from %d, the first until %d", second.began.Load(), first.ended.Load())
		}
		if took, most := time.Duration(second.began.Load()-signalled.UnixNano()), drain+testRetryPeriod*22/10; took > most {
			t.Errorf("rule 20: the handover took %s, want %s at most", took, most)
		}
		second.stop()
		if err := <-second.result; err != nil {
			t.Error(err)
		}
	})
}

func TestForbiddenLease(t *testing.T) {
	for _, verb := range []string{"get", "create", "update"} {
		t.Run(verb, func(t *testing.T) {
			_, ctx := ktesting.NewTestContext(t)
			kube := fake.NewClientset()
			if verb == "update" {
				// A lease that its last leader gave up.
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "lease"}}
				if err := kube.Tracker().Add(lease); err != nil {
					t.Fatal(err)
				}
			}
			forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), "lease", errors.New("cannot "+verb))
			kube.PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, forbidden
			})
			lease, err := NewLease(ctx, testSettings(), kube.CoordinationV1(), newTestFence(clock.RealClock{}))
			if err != nil {
				t.Fatal(err)
			}
			err = lease.Lead(ctx, func(context.Context) error {
				t.Error("it led")
				return nil
			})
			if !apierrors.IsForbidden(err) || !strings.Contains(err.Error(), "taking the lease: ") {
				t.Errorf("error %v", err)
			}
		})
	}
}

func TestLeaderThatVanishedIsReplaced(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := newTracker()
		first := newCandidate(t, tracker, 0)
		synctest.Wait()
		second := newCandidate(t, tracker, 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		vanished := time.Now()
		first.cutOff.Store(true)
		time.Sleep(time.Minute)
		synctest.Wait()
		if took, most := time.Duration(second.began.Load()-vanished.UnixNano()), testLeaseDuration+testRetryPeriod*44/10; second.began.Load() == 0 || took > most {
			t.Errorf("rule 20: the replacement took %s, want %s at most", took, most)
		}
		// The first leader must have noticed and exited before the second one began.
		if err := <-first.result; !errors.Is(err, ErrLeaseLost) {
			t.Errorf("rule 20: a lost lease is reported as %v", err)
		}
		if first.ended.Load() >= second.began.Load() {
			t.Errorf("rule 20: the first led until %d, the second from %d", first.ended.Load(), second.began.Load())
		}
		second.stop()
		if err := <-second.result; err != nil {
			t.Error(err)
		}
	})
}

// TestLossIsNoticed: whatever happens to the lease of a leader, the process is told in time,
// whether work ends or not. Then no write passes, and the lease is not released.
func TestLossIsNoticed(t *testing.T) {
	for sentence, test := range map[string]struct {
		// drain is how long work takes to end.
		drain time.Duration
		lose  func(*testing.T, *candidate)
		// within is counted from the last renewal.
		within time.Duration
		// holder is another holder of the lease afterwards.
		holder *string
	}{
		"rule 20: an API server that hangs every request ends the leader at the renew deadline": {
			drain: time.Hour, lose: func(_ *testing.T, c *candidate) { c.hangs.Store(true) }, within: testRenewDeadline},
		"rule 20: an API server that refuses every request ends the leader at the renew deadline": {
			drain: time.Hour, lose: func(_ *testing.T, c *candidate) { c.cutOff.Store(true) }, within: testRenewDeadline},
		"rule 20: a virtual machine that was suspended until the renew deadline ends the leader within a second": {
			drain: time.Hour, lose: func(_ *testing.T, c *candidate) { c.suspended.Store(int64(testRenewDeadline)) }, within: time.Second},
		"rule 20: an API server that hangs ends a leader at the renew deadline that is draining": {
			drain: time.Hour, lose: func(_ *testing.T, c *candidate) { c.hangs.Store(true); c.stop() }, within: testRenewDeadline},
		"rule 20: an API server that hangs ends a leader at the renew deadline that releases the lease": {
			drain: 2 * testRetryPeriod, lose: func(_ *testing.T, c *candidate) { c.hangs.Store(true); c.stop() }, within: testRenewDeadline},
		"rule 20: a lease that shows another holder ends the leader at its next renewal": {
			drain: time.Hour, lose: func(t *testing.T, c *candidate) { c.hold(t, "another") }, within: testRetryPeriod, holder: ptr.To("another")},
		"rule 20: a lease that another client released ends the leader at its next renewal": {
			drain: time.Hour, lose: func(t *testing.T, c *candidate) { c.hold(t, "") }, within: testRetryPeriod, holder: ptr.To("")},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				c := newCandidate(t, newTracker(), test.drain)
				// To the instant of a renewal.
				time.Sleep(10 * testRetryPeriod)
				synctest.Wait()
				renewed, holder := time.Now(), c.holder(t)
				if err := c.writeError(t); err != nil {
					t.Errorf("rule 20: a write of the leader fails: %v", err)
				}
				test.lose(t, c)
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
				c.cutOff.Store(false)
				time.Sleep(time.Minute)
				if err := c.writeError(t); !errors.Is(err, client.ErrFenced) {
					t.Errorf("rule 20: the error of a write afterwards is %v", err)
				}
				// Let work end: it must not release the lease.
				time.Sleep(2 * time.Hour)
				if got, want := c.holder(t), ptr.Deref(test.holder, holder); got != want {
					t.Errorf("rule 20: the holder of the lease is %q afterwards, want %q", got, want)
				}
			})
		})
	}
}

// TestNoWriteAfterRelease: a process that has released the lease sends nothing more, such as
// an event that was queued.
func TestNoWriteAfterRelease(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidate(t, newTracker(), time.Second)
		time.Sleep(time.Minute)
		c.stop()
		synctest.Wait()
		if err := c.writeError(t); err != nil {
			t.Errorf("rule 20: a write that ends a sync fails: %v", err)
		}
		if err := <-c.result; err != nil {
			t.Error(err)
		}
		if err := c.writeError(t); !errors.Is(err, client.ErrFenced) || c.holder(t) != "" {
			t.Errorf("rule 20: the error of a write after the release is %v, the holder %q", err, c.holder(t))
		}
	})
}

// hold makes another process the holder of the lease, "" for none.
func (c *candidate) hold(t *testing.T, holder string) {
	t.Helper()
	leases := c.client.CoordinationV1().Leases("here")
	lease, err := leases.Get(t.Context(), "lease", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	lease.Spec.HolderIdentity = &holder
	lease.ResourceVersion = "another"
	if _, err := leases.Update(t.Context(), lease, metav1.UpdateOptions{}); err != nil {
		t.Fatal(err)
	}
}

// holder returns the holder of the lease.
func (c *candidate) holder(t *testing.T) string {
	t.Helper()
	lease, err := c.client.CoordinationV1().Leases("here").Get(t.Context(), "lease", metav1.GetOptions{})
	if err != nil {
		t.Fatal(err)
	}
	return *lease.Spec.HolderIdentity
}

func TestStandbyIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tracker := newTracker()
		first := newCandidate(t, tracker, 0)
		synctest.Wait()
		second := newCandidate(t, tracker, 0)
		time.Sleep(time.Minute)
		synctest.Wait()
		second.stop()
		if err := <-second.result; err != nil || second.began.Load() != 0 {
			t.Errorf("rule 20: it began at %d and ended with %v", second.began.Load(), err)
		}
		if err := second.Health().Check(nil); err != nil {
			t.Errorf("a standby is not healthy: %v", err)
		}
		first.stop()
		if err := <-first.result; err != nil {
			t.Error(err)
		}
	})
}

func TestErrorOfWorkIsReturned(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		_, ctx := ktesting.NewTestContext(t)
		kube := fake.NewClientset()
		lease, err := NewLease(ctx, testSettings(), kube.CoordinationV1(), newTestFence(clock.RealClock{}))
		if err != nil {
			t.Fatal(err)
		}
		failure := errors.New("failure")
		if err := lease.Lead(ctx, func(context.Context) error { return failure }); !errors.Is(err, failure) {
			t.Errorf("the error is %v", err)
		}
		got, err := kube.CoordinationV1().Leases("here").Get(ctx, "lease", metav1.GetOptions{})
		if err != nil || *got.Spec.HolderIdentity != "" {
			t.Errorf("the lease was not given up: %+v, %v", got, err)
		}
	})
}

// slowLock takes a second for a write.
type slowLock struct {
	resourcelock.Interface
}

func (slowLock) Identity() string { return "me" }

func (slowLock) Update(ctx context.Context, _ resourcelock.LeaderElectionRecord) error {
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(time.Second):
		return nil
	}
}

func TestObservedLock(t *testing.T) {
	for sentence, test := range map[string]struct {
		context func(context.Context) (context.Context, context.CancelFunc)
		timeout time.Duration
		want    error
	}{
		"rule 20: a write is finished although the process is stopping": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			ctx, cancel := context.WithCancel(ctx)
			cancel()
			return ctx, cancel
		}, time.Minute, nil},
		"rule 20: a write does not outlast the deadline of its renewal": {func(ctx context.Context) (context.Context, context.CancelFunc) {
			return context.WithTimeout(ctx, time.Millisecond)
		}, time.Minute, context.DeadlineExceeded},
		"rule 20: a write does not take forever": {context.WithCancel, time.Millisecond, context.DeadlineExceeded},
	} {
		t.Run(sentence, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				ctx, cancel := test.context(t.Context())
				defer cancel()
				lock := &observedLock{Interface: slowLock{}, fence: newTestFence(clock.RealClock{}), timeout: test.timeout}
				if err := lock.Update(ctx, resourcelock.LeaderElectionRecord{}); !errors.Is(err, test.want) {
					t.Errorf("error %v, want %v", err, test.want)
				}
			})
		})
	}
}
