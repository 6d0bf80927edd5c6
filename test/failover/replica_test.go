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
	"strings"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	authenticationv1 "k8s.io/api/authentication/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	flowcontrolv1 "k8s.io/api/flowcontrol/v1"
	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/test/check/trace"
)

const (
	systemNamespace = "sample-controller-system"
	serviceAccount  = "sample-controller"
	// tokenSeconds is longer than any run of the suite.
	tokenSeconds = 2 * 60 * 60
)

// The bounds of leader election in retry periods: a candidate retries after 1 to 2.2 periods, and counts the lease
// duration from when it observed the last renewal.
const (
	releasedPeriods = 2.2
	lostPeriods     = 4.4
	// renewDeadline is the default of the flag.
	renewDeadline = 10 * time.Second
	hangPeriods   = 2 * releasedPeriods
)

// The factors by which a slow machine may exceed the bounds. They are too small for a lease that the leader did not
// release, and for waiting for a second lease.
const (
	releasedSlack = 3
	lostSlack     = 1.5
)

// build is a version of the controller and how its manifests run it.
type build struct {
	program   string
	arguments []string
	// gracePeriod is when a kubelet kills a container that was terminated, and retry the retry period of leader election.
	gracePeriod, retry time.Duration
}

func readBuild(program, manifest string) (*build, error) {
	objects, err := trace.ReadObjects(manifest)
	if err != nil {
		return nil, err
	}
	deployment, b := &appsv1.Deployment{}, &build{program: program, retry: 2 * time.Second}
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			err = runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment)
		}
	}
	pod := &deployment.Spec.Template.Spec
	b.gracePeriod = time.Duration(ptr.Deref(pod.TerminationGracePeriodSeconds, 30)) * time.Second
	for _, argument := range pod.Containers[0].Args {
		name, value, _ := strings.Cut(argument, "=")
		switch {
		case strings.HasSuffix(name, "-bind-address"):
			// All replicas run on this machine, and cannot listen on the same port.
			argument = name + "=127.0.0.1:0"
		case name == "--leader-elect-retry-period":
			b.retry, err = time.ParseDuration(value)
		}
		b.arguments = append(b.arguments, argument)
	}
	// A Pod reads its namespace from a file. -v=2 logs when workers start.
	b.arguments = append(b.arguments, "--leader-elect-resource-namespace="+systemNamespace, "-v=2")
	return b, err
}

// failoverEnv is an env with replicas that follow each other as leader, with the flags of the manifests and the rights
// of their service account. API Priority and Fairness applies to them and to the users.
type failoverEnv struct {
	*env

	pods *rest.Config
	// currentBuild is the build of this commit, previousBuild the one that it replaces.
	currentBuild, previousBuild *build
	handovers                   []*handover
}

type handover struct {
	cause string
	// signalled and exited are about the old leader, and nextStarted is when the next one started its workers.
	signalled, exited, nextStarted time.Time
	promised                       time.Duration
}

func (h *handover) took() time.Duration  { return h.nextStarted.Sub(h.signalled) }
func (h *handover) drain() time.Duration { return h.exited.Sub(h.signalled) }

func newFailoverEnv(e *env) *failoverEnv {
	f := &failoverEnv{env: e, pods: rest.AnonymousClientConfig(e.config)}
	var err error
	f.currentBuild, err = readBuild(filepath.Join(e.work, "bin", "sample-controller"), "../../artifacts/deploy/install.yaml")
	e.must(err)
	former := filepath.Join(e.work, "former")
	f.previousBuild, err = readBuild(filepath.Join(former, "sample-controller"), filepath.Join(former, "install.yaml"))
	e.must(err)
	accounts := e.kube.CoreV1().ServiceAccounts(systemNamespace)
	token, err := accounts.CreateToken(e.t.Context(), serviceAccount, &authenticationv1.TokenRequest{
		Spec: authenticationv1.TokenRequestSpec{ExpirationSeconds: ptr.To[int64](tokenSeconds)},
	}, metav1.CreateOptions{})
	e.must(err)
	f.pods.BearerToken = token.Status.Token
	f.checkFlow(f.pods, "service-accounts")
	const name = "editor"
	_, err = e.kube.RbacV1().RoleBindings(e.namespace).Create(e.t.Context(), &rbacv1.RoleBinding{
		ObjectMeta: metav1.ObjectMeta{Name: name},
		RoleRef:    rbacv1.RoleRef{APIGroup: rbacv1.GroupName, Kind: "ClusterRole", Name: "edit"},
		Subjects:   []rbacv1.Subject{{APIGroup: rbacv1.GroupName, Kind: rbacv1.UserKind, Name: name}},
	}, metav1.CreateOptions{})
	e.must(err)
	e.userConfig = rest.CopyConfig(e.config)
	e.userConfig.Impersonate.UserName = name
	f.checkFlow(e.userConfig, "global-default")
	return f
}

// checkFlow checks that API Priority and Fairness applies to a user. An administrator is exempt.
func (e *failoverEnv) checkFlow(config *rest.Config, schema string) {
	transport, err := rest.TransportFor(config)
	e.must(err)
	request, err := http.NewRequestWithContext(e.t.Context(), http.MethodGet, e.URL.JoinPath("version").String(), nil)
	e.must(err)
	response, err := transport.RoundTrip(request)
	e.must(err)
	defer response.Body.Close()
	want, err := e.kube.FlowcontrolV1().FlowSchemas().Get(e.t.Context(), schema, metav1.GetOptions{})
	e.must(err)
	if got := response.Header.Get(flowcontrolv1.ResponseHeaderMatchedFlowSchemaUID); got != string(want.UID) {
		e.violations.add("a request matched the flow schema %q in place of %s", got, schema)
	}
}

// startBuild starts a replica, whose proxy sends the credentials of its Pod only.
func (e *failoverEnv) startBuild(b *build) *replica {
	transport, err := rest.TransportFor(rest.AnonymousClientConfig(e.config))
	e.must(err)
	return e.startReplica(b.program, e.pods.BearerToken, transport, b.arguments...)
}

var servedHealth = regexp.MustCompile(`"Serving" what="health" address="([^"]+)"`)

// awaitReplicaReady waits until the replica is ready, as a rolling update does before it continues.
func (e *failoverEnv) awaitReplicaReady(started *replica) {
	e.poll("a replica is ready", func(context.Context) error {
		found := servedHealth.FindStringSubmatch(started.Output())
		if found == nil {
			return errors.New("it does not serve health yet")
		}
		response, err := http.Get("http://" + found[1] + "/readyz")
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

func (e *failoverEnv) awaitLeader() (leader *replica) {
	e.poll("a replica leads", func(context.Context) error {
		for _, leader = range e.replicas {
			if !leader.stopping && leader.leads() {
				return nil
			}
		}
		return errors.New("no replica has started its workers")
	})
	return leader
}

func (e *failoverEnv) getLease() *coordinationv1.LeaseSpec {
	leases := e.kube.CoordinationV1().Leases(systemNamespace)
	lease, err := leases.Get(e.t.Context(), "sample-controller", metav1.GetOptions{})
	e.must(err)
	return &lease.Spec
}

func (e *failoverEnv) succeed(leader *replica, signal syscall.Signal, cause string, meanwhile func()) {
	var next *replica
	e.handOver(leader, signal, cause, func() {
		next = e.startBuild(e.currentBuild)
		meanwhile()
	})
	e.awaitReplicaReady(next)
	e.awaitOperations()
}

// replaceLeader sends the signal to the leader and starts another replica at once, as the ReplicaSet controller does.
func (e *failoverEnv) replaceLeader(signal syscall.Signal) {
	e.succeed(e.awaitLeader(), signal, signal.String(), func() {})
}

// replaceHangingLeader terminates the leader while its writes hang. They hang for longer than another replica would
// wait for a lease that the leader released too early.
func (e *failoverEnv) replaceHangingLeader() {
	leader := e.awaitLeader()
	open := leader.proxy.writes.close()
	defer open()
	e.poll("a write hangs", func(context.Context) error {
		hangs := func(r request) bool { return r.writesOurs() && r.answered.IsZero() }
		if slices.ContainsFunc(leader.proxy.recorded(), hangs) {
			return nil
		}
		return errors.New("no write does")
	})
	e.succeed(leader, syscall.SIGTERM, "terminated while its writes hang", func() {
		trace.Pause(e.t.Context(), periods(hangPeriods, e.currentBuild.retry))
		open()
	})
}

// replaceFrozenLeader stops the process of the leader until another replica has taken over and worked, and resumes it.
// It must exit at once, without a write.
func (e *failoverEnv) replaceFrozenLeader() {
	leader := e.awaitLeader()
	var resumed time.Time
	e.succeed(leader, syscall.SIGSTOP, "stopped until another replica leads", func() {
		e.awaitLeader()
		e.awaitOperations()
		resumed = time.Now()
		e.must(leader.Cmd.Process.Signal(syscall.SIGCONT))
	})
	e.checkLeaseLost(leader, leader.ExitedAt.Sub(resumed), 0)
}

// replaceUnansweredLeader lets all requests of the leader hang. It must exit at the renew deadline.
func (e *failoverEnv) replaceUnansweredLeader() {
	leader := e.awaitLeader()
	open := leader.proxy.all.close()
	defer open()
	hung := time.Now()
	// kill(2) does not send the signal 0.
	e.succeed(leader, syscall.Signal(0), "all its requests hang", func() {})
	e.checkLeaseLost(leader, leader.ExitedAt.Sub(hung), renewDeadline)
}

// checkLeaseLost checks how a leader exited that lost its lease: within a second of the time until it can notice.
func (e *failoverEnv) checkLeaseLost(leader *replica, took, until time.Duration) {
	if code := leader.ProcessState.ExitCode(); code != 1 {
		e.violations.add("rule 20: a leader that lost its lease exited with %d, want 1", code)
	}
	if limit := until + releasedSlack*time.Second; took > limit {
		e.violations.add("rule 20: a leader that lost its lease exited after %s, and a slow machine may take %s", took, limit)
	}
}

// handOver sends the signal to the leader, waits until another replica has started, and checks how long that took.
func (e *failoverEnv) handOver(leader *replica, signal syscall.Signal, cause string, meanwhile func()) {
	before := e.getLease()
	length := time.Duration(ptr.Deref(before.LeaseDurationSeconds, 0)) * time.Second
	leader.stopping = true
	h := &handover{cause: cause, signalled: time.Now()}
	e.must(leader.Cmd.Process.Signal(signal))
	last := e.getLease()
	meanwhile()
	if signal == syscall.SIGTERM {
		e.awaitExit(leader)
		last = e.getLease()
	}
	<-leader.Done
	h.exited = leader.ExitedAt
	h.nextStarted = e.awaitLeader().started
	e.handovers = append(e.handovers, h)
	var limit time.Duration
	if signal == syscall.SIGTERM {
		// The lease is released when the old leader has finished its syncs.
		h.promised = h.drain() + periods(releasedPeriods, e.currentBuild.retry)
		limit = h.drain() + periods(releasedSlack*releasedPeriods, e.currentBuild.retry)
		if held := ptr.Deref(last.HolderIdentity, ""); held == ptr.Deref(before.HolderIdentity, "") {
			e.violations.add("%s: the leader exited without releasing its Lease", cause)
		}
	} else {
		h.promised = length + periods(lostPeriods, e.currentBuild.retry)
		limit = periods(lostSlack, h.promised)
		if acquired := e.getLease().AcquireTime; acquired.Time.Before(last.RenewTime.Add(length)) {
			e.violations.add("%s: the Lease was renewed at %s for %s, acquired at %s", cause, last.RenewTime, length, acquired)
		}
	}
	if h.took() > limit {
		e.violations.add("%s: it took %s, promised are %s, a slow machine may take %s", cause, h.took(), h.promised, limit)
	}
}

func periods(count float64, retry time.Duration) time.Duration {
	return time.Duration(count * float64(retry))
}

// awaitExit waits until a terminated replica has exited, and checks its exit code and the grace period.
func (e *failoverEnv) awaitExit(old *replica) {
	terminatedAt := time.Now()
	select {
	case <-old.Done:
	case <-time.After(waitTimeout):
		e.fatalf("a replica does not exit")
	}
	if code := old.ProcessState.ExitCode(); code != 0 {
		e.violations.add("rule 20: a replica exited with %d after SIGTERM", code)
	}
	if took := old.ExitedAt.Sub(terminatedAt); took > e.currentBuild.gracePeriod {
		e.violations.add("a replica exited %s after SIGTERM; a kubelet kills it after %s", took, e.currentBuild.gracePeriod)
	}
}

func (e *failoverEnv) terminateAll() {
	leader := e.awaitLeader()
	others := slices.DeleteFunc(slices.Clone(e.replicas), func(r *replica) bool { return r == leader })
	for _, old := range append(others, leader) {
		if !old.stopping {
			e.terminate(old)
		}
	}
}

func (e *failoverEnv) terminate(old *replica) {
	old.stopping = true
	e.must(old.Cmd.Process.Signal(syscall.SIGTERM))
	e.awaitExit(old)
}
