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
	"sync/atomic"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/uuid"
	coordinationclient "k8s.io/client-go/kubernetes/typed/coordination/v1"
	"k8s.io/client-go/tools/leaderelection"
	"k8s.io/client-go/tools/leaderelection/resourcelock"
	"k8s.io/component-base/config"
	"k8s.io/klog/v2"

	"example.com/sample-controller/pkg/client"
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
	lock    *observedLock
	fence   *client.Fence
	health  *leaderelection.HealthzAdaptor
	started chan struct{}
}

// RBAC cannot limit the right to create an object to a name.
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,verbs=create,namespace=sample-controller-system,roleName=sample-controller-lease
// +kubebuilder:rbac:groups=coordination.k8s.io,resources=leases,resourceNames=sample-controller,verbs=get;update,namespace=sample-controller-system,roleName=sample-controller-lease

// NewLease returns a candidacy with these settings, which must be valid. The client must
// have a timeout, and its own rate limit, so that other requests do not delay the renewals. The fence is
// told of the renewals; the writes of all clients but this one should pass it.
func NewLease(ctx context.Context, settings *config.LeaderElectionConfiguration, leases coordinationclient.CoordinationV1Interface, fence *client.Fence) (*Lease, error) {
	host, err := os.Hostname()
	if err != nil {
		return nil, fmt.Errorf("getting the host name for the lease: %w", err)
	}
	// With the host name alone, two processes of one host would both lead.
	identity := host + "_" + string(uuid.NewUUID())
	// It records no events: the Lease itself names the leader.
	lock := &resourcelock.LeaseLock{
		LeaseMeta: metav1.ObjectMeta{Namespace: settings.ResourceNamespace, Name: settings.ResourceName},
		Client:    leases, LockConfig: resourcelock.ResourceLockConfig{Identity: identity},
	}
	l := &Lease{
		lock:  &observedLock{Interface: lock, fence: fence, forbidden: make(chan error, 1), lost: make(chan error, 1)},
		fence: fence, health: leaderelection.NewLeaderHealthzAdaptor(leaseSlack), started: make(chan struct{}),
	}
	l.elector, err = leaderelection.NewLeaderElector(leaderelection.LeaderElectionConfig{
		Lock:            l.lock,
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
// the lease, since the process would stand by forever.
//
// Lead releases the lease after work has returned, so that the next leader starts at once,
// and never beside this one. If the last renewal becomes as old as the renew deadline, or
// the Lease shows another holder, Lead cancels the context of work and returns ErrLeaseLost
// without waiting for anything; the caller must exit. client-go's elector would return up to
// a renew deadline later, and polls on when another process holds the lease.
func (l *Lease) Lead(ctx context.Context, work func(context.Context) error) error {
	electorCtx, stopElector := context.WithCancel(context.WithoutCancel(ctx))
	defer stopElector()
	watchCtx, stopWatching := context.WithCancel(context.WithoutCancel(ctx))
	defer stopWatching()
	workCtx, stopWork := context.WithCancel(ctx)
	defer stopWork()
	electorStopped, worked := make(chan struct{}), make(chan error, 1)
	go func() {
		defer close(electorStopped)
		l.elector.Run(electorCtx)
	}()
	select {
	case <-l.started:
		go func() { worked <- work(workCtx) }()
		go func() { sendFirst(l.lock.lost, l.fence.Watch(watchCtx)) }()
	case err := <-l.lock.forbidden:
		worked <- fmt.Errorf("taking the lease: %w", err)
	case <-ctx.Done():
		worked <- nil
	}

	var err error
	var released <-chan struct{}
	for {
		select {
		case err = <-worked:
			// Not even an event may be sent any more.
			l.fence.Close()
			l.lock.mayRelease.Store(true)
			stopElector()
			released = electorStopped
		case <-released:
			return err
		case cause := <-l.lock.lost:
			l.fence.Close()
			return fmt.Errorf("%w: %w", ErrLeaseLost, cause)
		}
	}
}

// Health returns the check that fails if this process still considers itself the leader
// leaseSlack after its lease expired.
func (l *Lease) Health() *leaderelection.HealthzAdaptor {
	return l.health
}

// observedLock tells the fence of renewals, and Lead of a lease that it cannot have.
type observedLock struct {
	resourcelock.Interface

	fence *client.Fence
	// held says that this process has held the lease.
	held bool
	// mayRelease says that work has ended: the elector also releases a lease that it failed to renew.
	mayRelease atomic.Bool
	// forbidden receives the first error by which RBAC denies access to the lease, lost
	// the reason why another process may hold a lease that was this process's.
	forbidden, lost chan error
}

// Get implements resourcelock.Interface. It returns an error for a lease that this process
// has held and that shows another holder, or none: the elector must neither take nor release it.
func (l *observedLock) Get(ctx context.Context) (*resourcelock.LeaderElectionRecord, []byte, error) {
	record, raw, err := l.Interface.Get(ctx)
	if err == nil && l.held && record.HolderIdentity != l.Identity() {
		err = fmt.Errorf("its holder is %q", record.HolderIdentity)
		sendFirst(l.lost, err)
	}
	return record, raw, l.check(err)
}

// Create implements resourcelock.Interface.
func (l *observedLock) Create(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	return l.write(ctx, record, l.Interface.Create)
}

// Update implements resourcelock.Interface.
func (l *observedLock) Update(ctx context.Context, record resourcelock.LeaderElectionRecord) error {
	if record.HolderIdentity == "" && !l.mayRelease.Load() {
		return ErrLeaseLost
	}
	return l.write(ctx, record, l.Interface.Update)
}

func (l *observedLock) write(ctx context.Context, record resourcelock.LeaderElectionRecord, send func(context.Context, resourcelock.LeaderElectionRecord) error) error {
	// Other candidates count the lease duration from when they see the renewal, which is
	// later.
	sent := l.fence.Now()
	// The end of the process must not cut the write off: the elector would not know whether it
	// holds the lease, and would not release it. The client limits the time.
	err := send(context.WithoutCancel(ctx), record)
	if err == nil && record.HolderIdentity == l.Identity() {
		l.held = true
		l.fence.Renewed(sent)
	}
	return l.check(err)
}

// check returns err, and sends it to Lead if RBAC denies access.
func (l *observedLock) check(err error) error {
	if apierrors.IsForbidden(err) {
		sendFirst(l.forbidden, err)
	}
	return err
}

// sendFirst sends the error unless the channel has one already.
func sendFirst(to chan<- error, err error) {
	select {
	case to <- err:
	default:
	}
}
