//go:build faults

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

package failover

import (
	"context"
	"errors"
	"net/http"
	"path/filepath"
	"regexp"
	"slices"
	"syscall"
	"time"

	coordinationv1 "k8s.io/api/coordination/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"
)

// The bounds of leader election in retry periods: a candidate retries after 1 to 2.2
// periods, and counts the lease duration from when it observed the last renewal.
const (
	releasedPeriods = 2.2
	lostPeriods     = 4.4
	// renewDeadline is the default of the flag.
	renewDeadline = 10 * time.Second
	// hangPeriods is for how long writes hang.
	hangPeriods = 2 * releasedPeriods
)

// The factors by which a slow machine may exceed the bounds. They are too small for a
// lease that the leader did not release, and for waiting for a second lease.
const (
	releasedSlack = 3
	lostSlack     = 1.5
)

// failoverEnv is an env with replicas that follow each other as leader. API Priority and
// Fairness applies to them and to the users.
type failoverEnv struct {
	*env

	identity *podIdentity
	// flowSchemas are the names of the flow schemas by UID.
	flowSchemas             map[types.UID]string
	replicaFlows, userFlows flowCounter
	// currentBuild is the build of this commit, previousBuild the one that it replaces.
	currentBuild, previousBuild *build
	handovers                   []*handover
	// passedWrites counts the writes that S5 allows although another replica has the lease.
	passedWrites int
}

func newFailoverEnv(e *env) *failoverEnv {
	e.t.Helper()
	f := &failoverEnv{env: e, flowSchemas: map[types.UID]string{}}
	var err error
	f.currentBuild, err = readBuild(e.controllerBinary(), filepath.Join("..", "..", "artifacts", "deploy", "install.yaml"))
	e.must(err)
	f.previousBuild, err = readBuild(filepath.Join(e.work, "former", "sample-controller"), filepath.Join(e.work, "former", "install.yaml"))
	e.must(err)
	f.identity, err = e.newPodIdentity(e.t, &f.replicaFlows)
	e.must(err)
	schemas, err := e.kube.FlowcontrolV1().FlowSchemas().List(e.t.Context(), metav1.ListOptions{})
	e.must(err)
	for _, schema := range schemas.Items {
		f.flowSchemas[schema.UID] = schema.Name
	}
	f.createUser()
	return f
}

// createUser creates a user with the role edit in the namespace, and the clients of the
// users. An administrator would be exempt from API Priority and Fairness.
func (e *failoverEnv) createUser() {
	e.t.Helper()
	const name = "editor"
	e.poll("user "+name+" has the role edit", func(ctx context.Context) error {
		_, err := e.kube.RbacV1().RoleBindings(e.namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	config := rest.CopyConfig(e.config)
	config.Impersonate.UserName = name
	config.Wrap(e.userFlows.wrap)
	var err error
	e.userClients, err = newClients(config)
	e.must(err)
}

// startReplicas starts two replicas of the build and waits until both are ready.
func (e *failoverEnv) startReplicas(b *build) {
	e.t.Helper()
	e.startBuild(b)
	e.awaitLeader()
	e.awaitReplicaReady(e.startBuild(b))
}

// startBuild starts a replica as its Pod would.
func (e *failoverEnv) startBuild(b *build) *replica {
	e.t.Helper()
	return e.startReplica(b.program, e.identity.transport, e.identity.tls, func(proxy *recordingProxy) []string {
		kubeconfig, err := e.identity.kubeconfig(e.t, proxy)
		e.must(err)
		return append([]string{"--kubeconfig=" + kubeconfig}, b.arguments...)
	})
}

var servedHealth = regexp.MustCompile(`"Serving" what="health" address="([^"]+)"`)

// awaitReplicaReady waits until the replica is ready, as a rolling update does before it
// continues.
func (e *failoverEnv) awaitReplicaReady(started *replica) {
	e.t.Helper()
	e.poll("a replica is ready", func(ctx context.Context) error {
		found := servedHealth.FindStringSubmatch(started.output.String())
		if found == nil {
			return errors.New("it does not serve health yet")
		}
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+found[1]+"/readyz", nil)
		if err != nil {
			return err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return err
		}
		defer response.Body.Close()
		if response.StatusCode != http.StatusOK {
			return errors.New(response.Status)
		}
		return nil
	})
}

// awaitLeader waits until a replica has started its workers, and returns it.
func (e *failoverEnv) awaitLeader() (leader *replica) {
	e.t.Helper()
	e.poll("a replica leads", func(context.Context) error {
		index := slices.IndexFunc(e.replicas, func(other *replica) bool { return !other.stopping && other.started() })
		if index < 0 {
			return errors.New("no replica has started its workers")
		}
		leader = e.replicas[index]
		return nil
	})
	return leader
}

// standby returns a replica that is not the leader.
func (e *failoverEnv) standby() *replica {
	e.t.Helper()
	leader := e.awaitLeader()
	index := slices.IndexFunc(e.replicas, func(other *replica) bool { return !other.stopping && other != leader })
	if index < 0 {
		e.fatalf("there is no standby replica")
	}
	return e.replicas[index]
}

func (e *failoverEnv) getLease() (lease *coordinationv1.Lease) {
	e.t.Helper()
	e.poll("the Lease is returned", func(ctx context.Context) (err error) {
		lease, err = e.kube.CoordinationV1().Leases(systemNamespace).Get(ctx, "sample-controller", metav1.GetOptions{})
		return err
	})
	return lease
}

// replaceLeader sends the signal to the leader and immediately starts another replica, as
// the ReplicaSet controller does.
func (e *failoverEnv) replaceLeader(signal syscall.Signal, cause string) {
	e.t.Helper()
	e.awaitOperations()
	leader := e.awaitLeader()
	e.handOver(leader, signal, cause, func() { e.startBuild(e.currentBuild) })
	e.awaitReplicaReady(e.replicas[len(e.replicas)-1])
}

// replaceHangingLeader terminates the leader while its writes hang. They hang for longer
// than another replica would wait for a lease that the leader released too early.
func (e *failoverEnv) replaceHangingLeader(cause string) {
	e.t.Helper()
	e.awaitOperations()
	leader := e.awaitLeader()
	open := leader.proxy.writeBarrier.close()
	defer open()
	e.poll("a write hangs", func(context.Context) error {
		if !slices.ContainsFunc(leader.proxy.recorded(), func(w request) bool { return w.isWrite() && w.answered.IsZero() }) {
			return errors.New("no write does")
		}
		return nil
	})
	retry, err := e.currentBuild.retryPeriod()
	e.must(err)
	e.handOver(leader, syscall.SIGTERM, cause, func() {
		e.startBuild(e.currentBuild)
		pause(e.t.Context(), periods(hangPeriods, retry))
		open()
	})
	e.awaitReplicaReady(e.replicas[len(e.replicas)-1])
}

// replaceFrozenLeader stops the process of the leader until another replica has taken over
// and worked, and resumes it. It must exit at once, without a write.
func (e *failoverEnv) replaceFrozenLeader(cause string) {
	e.t.Helper()
	e.awaitOperations()
	leader := e.awaitLeader()
	var resumed time.Time
	e.handOver(leader, syscall.SIGSTOP, cause, func() {
		e.startBuild(e.currentBuild)
		e.awaitLeader()
		e.awaitOperations()
		resumed = time.Now()
		e.must(leader.signal(syscall.SIGCONT))
	})
	e.checkLeaseLost(leader, cause, leader.exitedAt.Sub(resumed), 0)
	e.awaitReplicaReady(e.replicas[len(e.replicas)-1])
}

// replaceUnansweredLeader lets all requests of the leader hang. It must exit at the renew
// deadline.
func (e *failoverEnv) replaceUnansweredLeader(cause string) {
	e.t.Helper()
	e.awaitOperations()
	leader := e.awaitLeader()
	open := leader.proxy.barrier.close()
	defer open()
	hung := time.Now()
	e.handOver(leader, noSignal, cause, func() { e.startBuild(e.currentBuild) })
	e.checkLeaseLost(leader, cause, leader.exitedAt.Sub(hung), renewDeadline)
	e.awaitReplicaReady(e.replicas[len(e.replicas)-1])
}

// checkLeaseLost checks how a leader exited that has lost its lease: within a second of the
// time until it can have noticed.
func (e *failoverEnv) checkLeaseLost(leader *replica, cause string, took, until time.Duration) {
	e.t.Helper()
	if code := leader.cmd.ProcessState.ExitCode(); code != 1 {
		e.violations.add("rule 20: %s: the leader exited with %d, want 1", cause, code)
	}
	if limit := until + time.Duration(releasedSlack*float64(time.Second)); took > limit {
		e.violations.add("rule 20: %s: the leader exited after %s, and a slow machine may take %s", cause, took, limit)
	}
}

// handOverOrTerminate terminates a replica. If it is the leader, another replica must
// take over.
func (e *failoverEnv) handOverOrTerminate(old *replica, cause string) {
	e.t.Helper()
	e.awaitOperations()
	if old == e.awaitLeader() {
		e.handOver(old, syscall.SIGTERM, cause, func() {})
		return
	}
	e.terminate(old)
}

// noSignal is the signal that kill(2) does not send.
const noSignal = syscall.Signal(0)

// handOver sends the signal to the leader, waits until another replica has started its
// workers, and checks how long that took.
func (e *failoverEnv) handOver(leader *replica, signal syscall.Signal, cause string, meanwhile func()) {
	e.t.Helper()
	before := e.getLease()
	length := time.Duration(ptr.Deref(before.Spec.LeaseDurationSeconds, 0)) * time.Second
	retry, err := e.currentBuild.retryPeriod()
	e.must(err)
	leader.stopping = true
	h := &handover{cause: cause, signalled: time.Now()}
	e.must(leader.signal(signal))
	last := e.getLease()
	meanwhile()
	if signal == syscall.SIGTERM {
		e.awaitExit(leader)
		last = e.getLease()
	}
	<-leader.done
	h.exited = leader.exitedAt
	h.nextStarted = e.awaitLeader().output.startedAt
	e.handovers = append(e.handovers, h)
	slack := lostSlack
	if signal == syscall.SIGTERM {
		h.promised, slack = periods(releasedPeriods, retry), releasedSlack
		if held := ptr.Deref(last.Spec.HolderIdentity, ""); held == ptr.Deref(before.Spec.HolderIdentity, "") {
			e.violations.add("%s: the leader exited without releasing its Lease", cause)
		}
	} else {
		h.promised = length + periods(lostPeriods, retry)
		if acquired := e.getLease().Spec.AcquireTime; acquired.Time.Before(last.Spec.RenewTime.Add(length)) {
			e.violations.add("%s: the Lease was renewed at %s for %s, but acquired at %s", cause, last.Spec.RenewTime, length, acquired)
		}
	}
	limit := time.Duration(slack * float64(h.promised))
	if signal == syscall.SIGTERM {
		// The lease is released when the old leader has finished its syncs.
		h.promised, limit = h.promised+h.drain(), limit+h.drain()
	}
	if h.took() > limit {
		e.violations.add("%s: the handover took %s, but leader election promises %s, and a slow machine may take %s", cause, h.took(), h.promised, limit)
	}
}

func periods(count float64, retry time.Duration) time.Duration {
	return time.Duration(count * float64(retry))
}

// awaitExit waits until a terminated replica has exited, and checks its exit code and
// that it kept within the grace period.
func (e *failoverEnv) awaitExit(old *replica) {
	e.t.Helper()
	terminatedAt := time.Now()
	e.poll("a replica exits", func(context.Context) error {
		if !old.exited() {
			return errors.New("it still runs")
		}
		return nil
	})
	if code := old.cmd.ProcessState.ExitCode(); code != 0 {
		e.violations.add("rule 20: a replica exited with %d after SIGTERM", code)
	}
	if took := old.exitedAt.Sub(terminatedAt); took > e.currentBuild.gracePeriod {
		e.violations.add("a replica exited %s after SIGTERM; a kubelet would have killed it after %s", took, e.currentBuild.gracePeriod)
	}
}

// terminateAll terminates all replicas, the leader last.
func (e *failoverEnv) terminateAll() {
	e.t.Helper()
	leader := e.awaitLeader()
	for _, old := range append(slices.DeleteFunc(slices.Clone(e.replicas), func(old *replica) bool { return old == leader }), leader) {
		if !old.stopping {
			e.terminate(old)
		}
	}
}

func (e *failoverEnv) terminate(old *replica) {
	e.t.Helper()
	old.stopping = true
	e.must(old.signal(syscall.SIGTERM))
	e.awaitExit(old)
}
