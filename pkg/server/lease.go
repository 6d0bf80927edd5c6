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
	"os"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/config"
	"k8s.io/klog/v2"
)

// ErrLeaseLost tells that another process may lead by now.
var ErrLeaseLost = errors.New("the lease is lost, another process may lead by now")

// leaseSlack is for how long after its lease has run out a process that still
// takes itself for the leader counts as healthy. It must have noticed by then.
const leaseSlack = 20 * time.Second

// Lease is this process's candidacy for a Lease (coordination.k8s.io/v1), of
// which only one holder works at a time. Create one with NewLease.
type Lease struct {
	elector *leaderelection.LeaderElector
	health  *leaderelection.HealthzAdaptor
	started chan struct{}
	// refused gets the API server's word when it forbids to touch the lease.
	refused chan error
}

// NewLease returns a candidacy as settings have it, which must be valid. The
// client should have a rate limit of its own, so that no other work keeps the
// lease from being renewed.
func NewLease(ctx context.Context, settings *config.LeaderElectionConfiguration, client coordinationclient.CoordinationV1Interface) (*Lease, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("naming this candidate: %w", err)
	}
	// The name of the host alone would not do: two processes of one host must not
	// both take themselves for the holder.
	identity := host + "_" + string(uuid.NewUUID())
	l := &Lease{health: leaderelection.NewLeaderHealthzAdaptor(leaseSlack), started: make(chan struct{}), refused: make(chan error, 1)}
	// Without an event recorder: who leads can be read from the Lease.
	lock, err := resourcelock.New(settings.ResourceLock, settings.ResourceNamespace, settings.ResourceName, nil, client,
		resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return nil, fmt.Errorf("making the lock: %w", err)
	}
	l.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            &steadyLock{Interface: lock, timeout: settings.RenewDeadline.Duration, refused: l.refused},
		LeaseDuration:   settings.LeaseDuration.Duration,
		RenewDeadline:   settings.RenewDeadline.Duration,
		RetryPeriod:     settings.RetryPeriod.Duration,
		ReleaseOnCancel: true,
		WatchDog:        l.health,
		Name:            settings.ResourceName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(l.started) },
			OnStoppedLeading: func() {},
			OnNewLeader: func(holder string) {
				if holder != identity {
					klog.FromContext(ctx).Info("Standing by", "leader", holder)
				}
			},
		},
	})
	if err != nil {
		return nil, fmt.Errorf("making the elector: %w", err)
	}
	l.health.SetLeaderElection(l.elector)
	return l, nil
}

// Lead calls work while this process holds the lease, and returns what work
// returned. It returns nil without having called it if ctx ends first, and an error if
// the API server forbids to touch the lease: such a candidate would stand by for ever.
//
// The order at the end is what counts (client-go's own gives the lease up while
// work still runs): when ctx ends so does that of work; once work has returned
// the lease is given up, so that the next leader starts at once and never beside
// this one. If the lease is lost, Lead returns ErrLeaseLost without waiting for
// work: the caller must end the process.
func (l *Lease) Lead(ctx context.Context, work func(context.Context) error) error {
	electorCtx, giveUp := context.WithCancel(context.WithoutCancel(ctx))
	defer giveUp()
	over := make(chan struct{})
	go func() {
		defer close(over)
		l.elector.Run(electorCtx)
	}()

	select {
	case <-l.started:
	case err := <-l.refused:
		giveUp()
		<-over
		return fmt.Errorf("taking the lease: %w", err)
	case <-ctx.Done():
		giveUp()
		<-over
		return nil
	}

	workCtx, stopWork := context.WithCancelCause(ctx)
	defer stopWork(nil)
	result := make(chan error, 1)
	go func() { result <- work(workCtx) }()
	select {
	case err := <-result:
		giveUp()
		<-over
		return err
	case <-over:
		stopWork(ErrLeaseLost)
		return ErrLeaseLost
	}
}

// Health returns the check that fails while this process takes itself for the
// leader although its lease ran out a while ago.
func (l *Lease) Health() *leaderelection.HealthzAdaptor {
	return l.health
}

// steadyLock finishes what it began: were a write cut off because the process is
// told to stop, nobody would know whether the lease is held, nor give it up.
type steadyLock struct {
	resourcelock.Interface

	timeout time.Duration
	refused chan<- error
}

// Get implements resourcelock.Interface.
func (l *steadyLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	return record, raw, l.told(err)
}

// Create implements resourcelock.Interface.
func (l *steadyLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := l.steady(ctx)
	defer cancel()
	return l.told(l.Interface.Create(ctx, record))
}

// Update implements resourcelock.Interface.
func (l *steadyLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := l.steady(ctx)
	defer cancel()
	return l.told(l.Interface.Update(ctx, record))
}

// told returns err, and passes a refusal on to whoever waits for the lease.
func (l *steadyLock) told(err error) error {
	if apierrors.IsForbidden(err) {
		select {
		case l.refused <- err:
		default:
		}
	}
	return err
}

// steady returns ctx without its cancellation, but with its deadline: a renewal
// that hangs past that would hide the loss of the lease.
func (l *steadyLock) steady(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
}
