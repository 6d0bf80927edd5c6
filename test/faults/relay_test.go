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

package faults

import (
	"context"
	"errors"
	"fmt"
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

// What leader election promises, in retry periods: a candidate looks again after one
// to 2.2 of them, and counts a lease from the look at which it last saw it renewed.
const (
	releasedPeriods = 2.2
	lostPeriods     = 4.4
	// hangs is for how long writes hang.
	hangs = 2 * releasedPeriods
)

// How many times as long it may take: that leaves room for a slow machine, but not
// for a lease that was not given up, or for a second one.
const (
	releasedSlack = 3
	lostSlack     = 1.5
)

// relay is a stage where replicas follow one another as the leader. The API server's
// Priority and Fairness is on, for them and for the users.
type relay struct {
	*stage

	identity *identity
	// schemas are the names of the flow schemas.
	schemas            map[types.UID]string
	ofReplicas, ofUser meter
	// present is this build of the controller, former the one that it replaces.
	present, former *build
	handovers       []*handover
}

func newRelay(s *stage) *relay {
	s.t.Helper()
	r := &relay{stage: s, schemas: map[types.UID]string{}}
	var err error
	r.present, err = newBuild(shared.program(), filepath.Join("..", "..", "artifacts", "deploy", "install.yaml"))
	s.must(err)
	r.former, err = newBuild(filepath.Join(shared.work, "former", "sample-controller"), filepath.Join(shared.work, "former", "install.yaml"))
	s.must(err)
	r.identity, err = newIdentity(s.t, &r.ofReplicas)
	s.must(err)
	schemas, err := shared.kube.FlowcontrolV1().FlowSchemas().List(s.t.Context(), metav1.ListOptions{})
	s.must(err)
	for _, schema := range schemas.Items {
		r.schemas[schema.UID] = schema.Name
	}
	r.addUser()
	return r
}

// addUser makes the users somebody who may edit in the namespace. An administrator
// would be exempt from Priority and Fairness.
func (r *relay) addUser() {
	r.t.Helper()
	const name = "somebody"
	r.poll(name+" may edit", func(ctx context.Context) error {
		_, err := shared.kube.RbacV1().RoleBindings(r.namespace).Create(ctx, &rbacv1.RoleBinding{
			ObjectMeta: metav1.ObjectMeta{Name: name},
			RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
			Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
		}, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	config := rest.CopyConfig(shared.config)
	config.Impersonate.UserName = name
	config.Wrap(r.ofUser.wrap)
	var err error
	r.rights, err = newAccess(config)
	r.must(err)
}

// begin starts two replicas of the build.
func (r *relay) begin(b *build) {
	r.t.Helper()
	r.start(b)
	r.leader()
	r.awaitReplica(r.start(b))
}

// start starts a replica as a Pod would be.
func (r *relay) start(b *build) *replica {
	r.t.Helper()
	return r.startReplica(b.program, r.identity.transport, r.identity.tls, func(tap *tap) []string {
		kubeconfig, err := r.identity.kubeconfig(r.t, tap)
		r.must(err)
		return append([]string{"--kubeconfig=" + kubeconfig}, b.arguments...)
	})
}

var servedHealth = regexp.MustCompile(`"Serving" what="health" address="([^"]+)"`)

// awaitReplica waits until the replica is ready, as a Deployment does before it goes
// on.
func (r *relay) awaitReplica(started *replica) {
	r.t.Helper()
	r.poll("a replica is ready", func(ctx context.Context) error {
		found := servedHealth.FindStringSubmatch(started.output.String())
		if found == nil {
			return errors.New("it does not serve its health")
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

// leader waits until one of the replicas works.
func (r *relay) leader() (leads *replica) {
	r.t.Helper()
	r.poll("a replica leads", func(context.Context) error {
		index := slices.IndexFunc(r.replicas, func(r *replica) bool { return !r.leaves && r.works() })
		if index < 0 {
			return errors.New("none works")
		}
		leads = r.replicas[index]
		return nil
	})
	return leads
}

// standby returns a replica that does not lead.
func (r *relay) standby() *replica {
	r.t.Helper()
	leader := r.leader()
	index := slices.IndexFunc(r.replicas, func(other *replica) bool { return !other.leaves && other != leader })
	if index < 0 {
		r.fatalf("nobody stands by")
	}
	return r.replicas[index]
}

func (r *relay) lease() (lease *coordinationv1.Lease) {
	r.t.Helper()
	r.poll("the lease is read", func(ctx context.Context) (err error) {
		lease, err = shared.kube.CoordinationV1().Leases(systemNamespace).Get(ctx, "sample-controller", metav1.GetOptions{})
		return err
	})
	return lease
}

// replace strikes the leader and starts another replica in its place, as a
// Deployment does at once.
func (r *relay) replace(signal syscall.Signal, kind string) {
	r.t.Helper()
	r.awaitOperations()
	leader := r.leader()
	r.handOver(leader, signal, kind, func() { r.start(r.present) })
	r.awaitReplica(r.replicas[len(r.replicas)-1])
}

// replaceHanging tells the leader to end while its writes hang, for longer than
// another one would wait for a lease that was given up too early.
func (r *relay) replaceHanging(kind string) {
	r.t.Helper()
	r.awaitOperations()
	leader := r.leader()
	release := leader.tap.writes.hold()
	defer release()
	r.poll("a write hangs", func(context.Context) error {
		if !slices.ContainsFunc(leader.tap.recorded(), func(r request) bool { return r.isWrite() && r.ended.IsZero() }) {
			return errors.New("none does")
		}
		return nil
	})
	retry, err := r.present.retryPeriod()
	r.must(err)
	r.handOver(leader, syscall.SIGTERM, kind, func() {
		r.start(r.present)
		// This is the fault, not a wait.
		select {
		case <-time.After(periods(hangs, retry)):
		case <-r.t.Context().Done():
		}
		release()
	})
	r.awaitReplica(r.replicas[len(r.replicas)-1])
}

// retire tells a replica to end, the leader or another one. Others are there already.
func (r *relay) retire(old *replica, kind string) {
	r.t.Helper()
	r.awaitOperations()
	if old == r.leader() {
		r.handOver(old, syscall.SIGTERM, kind, func() {})
		return
	}
	r.tellToEnd(old)
}

// handOver strikes the leader and waits until another replica works.
func (r *relay) handOver(leader *replica, signal syscall.Signal, kind string, meanwhile func()) {
	r.t.Helper()
	before := r.lease()
	length := time.Duration(ptr.Deref(before.Spec.LeaseDurationSeconds, 0)) * time.Second
	retry, err := r.present.retryPeriod()
	r.must(err)
	leader.leaves = true
	h := &handover{kind: kind, signalled: time.Now()}
	r.must(syscall.Kill(leader.cmd.Process.Pid, signal))
	meanwhile()
	if signal == syscall.SIGTERM {
		r.awaitEnd(leader)
	}
	<-leader.done
	h.gone = leader.ended
	given := r.lease()
	h.works = r.leader().output.since
	r.handovers = append(r.handovers, h)
	if signal == syscall.SIGTERM {
		h.bound = h.drain() + periods(releasedPeriods, retry)
		if held := ptr.Deref(given.Spec.HolderIdentity, ""); held == ptr.Deref(before.Spec.HolderIdentity, "") {
			r.complain("%s: the leader ended and kept its lease", kind)
		}
		if limit := h.drain() + releasedSlack*periods(releasedPeriods, retry); h.took() > limit {
			r.complain("%s: the handover took %s, %s at most is what leader election promises, %s what a slow machine may take", kind, h.took(), h.bound, limit)
		}
		return
	}
	h.bound = length + periods(lostPeriods, retry)
	if limit := time.Duration(lostSlack * float64(h.bound)); h.took() > limit {
		r.complain("%s: the handover took %s, %s at most is what leader election promises, %s what a slow machine may take", kind, h.took(), h.bound, limit)
	}
	if taken := r.lease().Spec.AcquireTime; taken.Time.Before(given.Spec.RenewTime.Add(length)) {
		r.complain("%s: the lease was renewed at %s for %s, and taken at %s", kind, given.Spec.RenewTime, length, taken)
	}
}

func periods(count float64, retry time.Duration) time.Duration {
	return time.Duration(count * float64(retry))
}

func (r *relay) complain(format string, args ...any) {
	r.violations = append(r.violations, fmt.Sprintf(format, args...))
}

// awaitEnd waits until a replica that was told to end has done so, in order.
func (r *relay) awaitEnd(old *replica) {
	r.t.Helper()
	told := time.Now()
	r.poll("a replica ends", func(context.Context) error {
		if !old.over() {
			return errors.New("it runs")
		}
		return nil
	})
	if code := old.cmd.ProcessState.ExitCode(); code != 0 {
		r.complain("rule 20: a replica that was told to end exited with %d", code)
	}
	if took := old.ended.Sub(told); took > r.present.grace {
		r.complain("a replica took %s to end; a kubelet would have killed it after %s", took, r.present.grace)
	}
}

// end tells all replicas to end, the leader last.
func (r *relay) end() {
	r.t.Helper()
	leader := r.leader()
	for _, old := range append(slices.DeleteFunc(slices.Clone(r.replicas), func(old *replica) bool { return old == leader }), leader) {
		if !old.leaves {
			r.tellToEnd(old)
		}
	}
}

func (r *relay) tellToEnd(old *replica) {
	r.t.Helper()
	old.leaves = true
	r.must(old.terminate())
	r.awaitEnd(old)
}
