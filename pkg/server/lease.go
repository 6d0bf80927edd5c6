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

// ErrLeaseLost means that another process may be the leader already.
var ErrLeaseLost = errors.New("the lease is lost, another process may be the leader")

// leaseSlack is how long after its lease expired a process that still considers itself
// the leader counts as healthy. It must have noticed by then.
const leaseSlack = 20 * time.Second

// Lease is this process's candidacy for a Lease (coordination.k8s.io/v1). Create one with
// NewLease.
type Lease struct {
	elector *leaderelection.LeaderElector
	health  *leaderelection.HealthzAdaptor
	started chan struct{}
	// forbidden receives the first error by which RBAC denies access to the lease.
	forbidden chan error
}

// RBAC cannot limit the right to create an object to a name.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create,namespace=sample-controller-system,roleName=sample-controller-lease
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=sample-controller,verbs=get;update,namespace=sample-controller-system,roleName=sample-controller-lease

// NewLease returns a candidacy with these settings, which must be valid. The client
// should have its own rate limit, so that other requests do not delay the renewals.
func NewLease(ctx context.Context, settings *config.LeaderElectionConfiguration, client coordinationclient.CoordinationV1Interface) (*Lease, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("getting the host name for the lease: %w", err)
	}
	// With the host name alone, two processes of one host would both lead.
	identity := host + "_" + string(uuid.NewUUID())
	l := &Lease{health: leaderelection.NewLeaderHealthzAdaptor(leaseSlack), started: make(chan struct{}), forbidden: make(chan error, 1)}
	// It records no events: the Lease itself names the leader.
	lock, err := resourcelock.New(settings.ResourceLock, settings.ResourceNamespace, settings.ResourceName, nil, client,
		resourcelock.ResourceLockConfig{Identity: identity})
	if err != nil {
		return nil, fmt.Errorf("making the lock: %w", err)
	}
	l.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            &steadyLock{Interface: lock, timeout: settings.RenewDeadline.Duration, forbidden: l.forbidden},
		LeaseDuration:   settings.LeaseDuration.Duration,
		RenewDeadline:   settings.RenewDeadline.Duration,
		RetryPeriod:     settings.RetryPeriod.Duration,
		ReleaseOnCancel: true,
		WatchDog:        l.health,
		Name:            settings.ResourceName,
		Callbacks: leaderelection.LeaderCallbacks{
			OnStartedLeading: func(context.Context) { close(l.started) },
			OnStoppedLeading: func() {},
			OnNewLeader: func(leader string) {
				if leader != identity {
					klog.FromContext(ctx).Info("Standing by", "leader", leader)
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

// Lead waits for the lease, calls work while this process holds it, and returns the error
// of work. It returns nil if ctx ends before that, and an error if RBAC denies access to
// the lease: otherwise the process would stand by forever.
//
// client-go gives the lease up while work is still running. Lead gives it up after work
// has returned, so that the next leader starts at once, and never beside this one. If the
// lease is lost, Lead cancels the context of work and returns ErrLeaseLost without waiting
// for work; the caller must exit.
func (l *Lease) Lead(ctx context.Context, work func(context.Context) error) error {
	electorCtx, stopElector := context.WithCancel(context.WithoutCancel(ctx))
	defer stopElector()
	stopped := make(chan struct{})
	go func() {
		defer close(stopped)
		l.elector.Run(electorCtx)
	}()

	select {
	case <-l.started:
	case err := <-l.forbidden:
		stopElector()
		<-stopped
		return fmt.Errorf("taking the lease: %w", err)
	case <-ctx.Done():
		stopElector()
		<-stopped
		return nil
	}

	workCtx, stopWork := context.WithCancelCause(ctx)
	defer stopWork(nil)
	result := make(chan error, 1)
	go func() { result <- work(workCtx) }()
	select {
	case err := <-result:
		stopElector()
		<-stopped
		return err
	case <-stopped:
		stopWork(ErrLeaseLost)
		return ErrLeaseLost
	}
}

// Health returns the check that fails if this process still considers itself the leader
// leaseSlack after its lease expired.
func (l *Lease) Health() *leaderelection.HealthzAdaptor {
	return l.health
}

// steadyLock finishes a write after its context is cancelled. If the end of the process
// cut the write off, the elector would not know whether it holds the lease, and would not
// give it up.
type steadyLock struct {
	resourcelock.Interface

	timeout   time.Duration
	forbidden chan<- error
}

// Get implements resourcelock.Interface.
func (l *steadyLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	return record, raw, l.check(err)
}

// Create implements resourcelock.Interface.
func (l *steadyLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := l.withoutCancel(ctx)
	defer cancel()
	return l.check(l.Interface.Create(ctx, record))
}

// Update implements resourcelock.Interface.
func (l *steadyLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	ctx, cancel := l.withoutCancel(ctx)
	defer cancel()
	return l.check(l.Interface.Update(ctx, record))
}

// check returns err, and sends it to Lead if RBAC denies access.
func (l *steadyLock) check(err error) error {
	if apierrors.IsForbidden(err) {
		select {
		case l.forbidden <- err:
		default:
		}
	}
	return err
}

// withoutCancel returns ctx without its cancellation but with its deadline: a renewal that
// took longer would hide the loss of the lease.
func (l *steadyLock) withoutCancel(ctx context.Context) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok {
		return context.WithDeadline(context.WithoutCancel(ctx), deadline)
	}
	return context.WithTimeout(context.WithoutCancel(ctx), l.timeout)
}
