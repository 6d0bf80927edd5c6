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
	"fmt"
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
	clienttesting "k8s.io/client-go/testing"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/config"
	"k8s.io/klog/v2/ktesting"
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
	// cutOff makes every request fail.
	cutOff atomic.Bool
	stop   context.CancelFunc
	result chan error
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
	if c.Lease, err = NewLease(ctx, testSettings(), c.client.CoordinationV1()); err != nil {
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
			client := fake.NewClientset()
			if verb == "update" {
				// A lease that its last leader gave up.
				lease := &coordinationv1.Lease{ObjectMeta: metav1.ObjectMeta{Namespace: "here", Name: "lease"}}
				if err := client.Tracker().Add(lease); err != nil {
					t.Fatal(err)
				}
			}
			forbidden := apierrors.NewForbidden(coordinationv1.Resource("leases"), "lease", errors.New("cannot "+verb))
			client.PrependReactor(verb, "leases", func(clienttesting.Action) (bool, runtime.Object, error) {
				return true, nil, forbidden
			})
			lease, err := NewLease(ctx, testSettings(), client.CoordinationV1())
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

func TestLostLeaseDoesNotWaitForWork(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := newCandidate(t, newTracker(), time.Hour)
		synctest.Wait()
		cut := time.Now()
		c.cutOff.Store(true)
		if err := <-c.result; !errors.Is(err, ErrLeaseLost) {
			t.Errorf("rule 20: a lost lease is reported as %v", err)
		}
		if took := time.Since(cut); took >= testLeaseDuration {
			t.Errorf("rule 20: the leader noticed the loss after %s, when another one may lead", took)
		}
		if c.ended.Load() != 0 {
			t.Error("rule 20: it waited for work")
		}
		// Let work end, so that no goroutine is left in the bubble.
		time.Sleep(2 * time.Hour)
	})
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
		client := fake.NewClientset()
		lease, err := NewLease(ctx, testSettings(), client.CoordinationV1())
		if err != nil {
			t.Fatal(err)
		}
		failure := errors.New("failure")
		if err := lease.Lead(ctx, func(context.Context) error { return failure }); !errors.Is(err, failure) {
			t.Errorf("the error is %v", err)
		}
		got, err := client.CoordinationV1().Leases("here").Get(ctx, "lease", metav1.GetOptions{})
		if err != nil || *got.Spec.HolderIdentity != "" {
			t.Errorf("the lease was not given up: %+v, %v", got, err)
		}
	})
}

// recordingLock records whether a write was cut off.
type recordingLock struct {
	resourcelock.Interface

	cut atomic.Bool
}

func (l *recordingLock) Create(ctx context.Context, _ resourcelock.LeaderElectionRecord) error {
	select {
	case <-ctx.Done():
		l.cut.Store(true)
		return ctx.Err()
	case <-time.After(time.Second):
		return nil
	}
}

func (l *recordingLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.Create(ctx, record)
}

func TestSteadyLock(t *testing.T) {
	write := map[string]func(resourcelock.Interface, context.Context) error{
		"create": func(l resourcelock.Interface, ctx context.Context) error {
			return l.Create(ctx, resourcelock.LeaderElectionRecord{})
		},
		"update": func(l resourcelock.Interface, ctx context.Context) error {
			return l.Update(ctx, resourcelock.LeaderElectionRecord{})
		},
	}
	for verb, write := range write {
		for _, test := range []struct {
			sentence string
			context  func(context.Context) (context.Context, context.CancelFunc)
			timeout  time.Duration
			cut      bool
		}{
			{"is finished although the process is stopping", func(ctx context.Context) (context.Context, context.CancelFunc) {
				ctx, cancel := context.WithCancel(ctx)
				cancel()
				return ctx, cancel
			}, time.Minute, false},
			{"does not outlast the deadline of its renewal", func(ctx context.Context) (context.Context, context.CancelFunc) {
				return context.WithTimeout(ctx, time.Millisecond)
			}, time.Minute, true},
			{"does not take forever", context.WithCancel, time.Millisecond, true},
		} {
			t.Run(fmt.Sprintf("%s %s", verb, test.sentence), func(t *testing.T) {
				synctest.Test(t, func(t *testing.T) {
					inner := &recordingLock{}
					ctx, cancel := test.context(t.Context())
					defer cancel()
					err := write(&steadyLock{Interface: inner, timeout: test.timeout}, ctx)
					if inner.cut.Load() != test.cut || (err != nil) != test.cut {
						t.Errorf("cut off: %t, error %v; want %t", inner.cut.Load(), err, test.cut)
					}
				})
			})
		}
	}
}
