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
	"net/http/httptest"
	"net/url"
	"regexp"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	coordinationv1 "k8s.io/api/coordination/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/rest"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/test/check/trace"
)

const (
	systemNamespace = "sample-controller-system"
	serviceAccount  = "system:serviceaccount:" + systemNamespace + ":sample-controller"
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

func (e *env) readBuild(program, manifest string) *build {
	objects, err := trace.ReadObjects(manifest)
	e.must(err)
	deployment, b := &appsv1.Deployment{}, &build{program: program, retry: 2 * time.Second}
	for _, object := range objects {
		if object.GetKind() == "Deployment" {
			e.must(runtime.DefaultUnstructuredConverter.FromUnstructured(object.Object, deployment))
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
			e.must(err)
		}
		b.arguments = append(b.arguments, argument)
	}
	// A Pod reads its namespace from a file. -v=2 logs when workers start.
	b.arguments = append(b.arguments, "--leader-elect-resource-namespace="+systemNamespace, "-v=2")
	return b
}

// startBuild starts a replica with the rights of the service account, to which API Priority and Fairness applies.
func (e *env) startBuild(b *build) *replica {
	return e.startReplica(b.program, serviceAccount, b.arguments...)
}

// replica is one controller process behind its own proxy.
type replica struct {
	*trace.Process

	proxy *proxy
	// started is when the test saw that it had started its workers.
	started time.Time
	// stopping is set before the test terminates or kills the replica.
	stopping bool
}

func (r *replica) leads() bool {
	if r.started.IsZero() && strings.Contains(r.Output(), "Started workers") {
		r.started = time.Now()
	}
	return !r.started.IsZero()
}

func (r *replica) exited() bool {
	select {
	case <-r.Done:
		return true
	default:
		return false
	}
}

var servedHealth = regexp.MustCompile(`"Serving" what="health" address="([^"]+)"`)

// awaitReplicaReady waits until the replica is ready, as a rolling update does before it continues.
func (e *env) awaitReplicaReady(started *replica) {
	e.poll("a replica is ready", func(context.Context) error {
		found := servedHealth.FindStringSubmatch(started.Output())
		if found == nil {
			return errors.New("it does not serve health yet")
		}
		response, err := http.Get("http://" + found[1] + "/readyz")
		if err != nil {
			return err
		}
		if response.StatusCode != http.StatusOK {
			err = errors.New(response.Status)
		}
		return errors.Join(err, response.Body.Close())
	})
}

func (e *env) awaitLeader() (leader *replica) {
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

func (e *env) getLease() *coordinationv1.LeaseSpec {
	leases := e.kube.CoordinationV1().Leases(systemNamespace)
	lease, err := leases.Get(e.t.Context(), "sample-controller", metav1.GetOptions{})
	e.must(err)
	return &lease.Spec
}

func (e *env) succeed(leader *replica, signal syscall.Signal, cause string, meanwhile func()) {
	var next *replica
	e.handOver(leader, signal, cause, func() {
		next = e.startBuild(e.current)
		meanwhile()
	})
	e.awaitReplicaReady(next)
	e.awaitOperations()
}

// replaceLeader sends the signal to the leader and starts another replica at once, as the ReplicaSet controller does.
func (e *env) replaceLeader(signal syscall.Signal) {
	e.succeed(e.awaitLeader(), signal, signal.String(), func() {})
}

// replaceHangingLeader terminates the leader while its writes hang. They hang for longer than another replica would
// wait for a lease that the leader released too early.
func (e *env) replaceHangingLeader() {
	leader := e.awaitLeader()
	leader.proxy.writes.Lock()
	open := sync.OnceFunc(leader.proxy.writes.Unlock)
	defer open()
	e.poll("a write hangs", func(context.Context) error {
		hangs := func(r trace.Request) bool { return writesOurs(&r) && r.Code == 0 }
		if slices.ContainsFunc(leader.proxy.recorded(), hangs) {
			return nil
		}
		return errors.New("no write does")
	})
	e.succeed(leader, syscall.SIGTERM, "terminated while its writes hang", func() {
		trace.Pause(e.t.Context(), periods(hangPeriods, e.current.retry))
		open()
	})
}

// replaceFrozenLeader stops the process of the leader until another replica has taken over and worked, and resumes it.
// It must exit at once, without a write.
func (e *env) replaceFrozenLeader() {
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

// replaceUnansweredLeader breaks the connections of the leader and lets all requests hang. It must exit at the renew deadline.
func (e *env) replaceUnansweredLeader() {
	leader := e.awaitLeader()
	leader.proxy.all.Lock()
	defer leader.proxy.all.Unlock()
	// Its watches end, too.
	leader.proxy.server.CloseClientConnections()
	hung := time.Now()
	// kill(2) does not send the signal 0.
	e.succeed(leader, syscall.Signal(0), "all its requests hang", func() {})
	e.checkLeaseLost(leader, leader.ExitedAt.Sub(hung), renewDeadline)
}

// checkLeaseLost checks how a leader exited that lost its lease: within a second of the time until it can notice.
func (e *env) checkLeaseLost(leader *replica, took, until time.Duration) {
	if code := leader.ProcessState.ExitCode(); code != 1 {
		e.t.Errorf("rule 20: a leader that lost its lease exited with %d, want 1", code)
	}
	if limit := until + releasedSlack*time.Second; took > limit {
		e.t.Errorf("rule 20: a leader that lost its lease exited after %s, and a slow machine may take %s", took, limit)
	}
}

// handOver sends the signal to the leader, waits until another replica has started, and checks how long that took.
func (e *env) handOver(leader *replica, signal syscall.Signal, cause string, meanwhile func()) {
	before := e.getLease()
	length := time.Duration(ptr.Deref(before.LeaseDurationSeconds, 0)) * time.Second
	leader.stopping = true
	signalled := time.Now()
	e.must(leader.Cmd.Process.Signal(signal))
	last := e.getLease()
	meanwhile()
	if signal == syscall.SIGTERM {
		e.awaitExit(leader)
		last = e.getLease()
	}
	<-leader.Done
	drain := leader.ExitedAt.Sub(signalled)
	took := e.awaitLeader().started.Sub(signalled)
	promised := length + periods(lostPeriods, e.current.retry)
	limit := periods(lostSlack, promised)
	if signal == syscall.SIGTERM {
		// The lease is released when the old leader has finished its syncs.
		promised = drain + periods(releasedPeriods, e.current.retry)
		limit = drain + periods(releasedSlack*releasedPeriods, e.current.retry)
		if held := ptr.Deref(last.HolderIdentity, ""); held == ptr.Deref(before.HolderIdentity, "") {
			e.t.Errorf("%s: the leader exited without releasing its Lease", cause)
		}
	} else if acquired := e.getLease().AcquireTime; acquired.Time.Before(last.RenewTime.Add(length)) {
		e.t.Errorf("%s: the Lease was renewed at %s for %s, acquired at %s", cause, last.RenewTime, length, acquired)
	}
	e.t.Logf("%s: %s of %s; the leader exited after %s", cause, took, promised, drain)
	if took > limit {
		e.t.Errorf("%s: it took %s, promised are %s, a slow machine may take %s", cause, took, promised, limit)
	}
}

func periods(count float64, retry time.Duration) time.Duration {
	return time.Duration(count * float64(retry))
}

// awaitExit waits until a terminated replica has exited, and checks its exit code and the grace period.
func (e *env) awaitExit(old *replica) {
	select {
	case <-old.Done:
	case <-time.After(e.current.gracePeriod):
		e.t.Errorf("a replica still runs %s after SIGTERM: a kubelet kills it", e.current.gracePeriod)
		old.Kill()
	}
	if code := old.ProcessState.ExitCode(); code != 0 {
		e.t.Errorf("rule 20: a replica exited with %d after SIGTERM", code)
	}
}

func (e *env) terminateAll() {
	leader := e.awaitLeader()
	for _, r := range e.replicas {
		if r != leader && !r.stopping {
			e.terminate(r)
		}
	}
	e.terminate(leader)
}

func (e *env) terminate(old *replica) {
	old.stopping = true
	e.must(old.Cmd.Process.Signal(syscall.SIGTERM))
	e.awaitExit(old)
}

// proxy is between one controller and the API server. It records requests, and can hold them.
type proxy struct {
	trace.Upstream

	server *httptest.Server
	// While all is locked requests are held, and while writes is those that write to our objects.
	all, writes sync.RWMutex

	mu       sync.Mutex
	requests []*trace.Request
}

// newProxy returns a proxy that sends requests on as that user.
func newProxy(config *rest.Config) (*proxy, error) {
	to, err := url.Parse(config.Host)
	if err != nil {
		return nil, err
	}
	transport, err := rest.TransportFor(config)
	if err != nil {
		return nil, err
	}
	p := &proxy{Upstream: trace.Upstream{URL: to, Transport: transport}}
	p.server = trace.NewServer(p)
	p.server.StartTLS()
	return p, nil
}

// ServeHTTP implements http.Handler.
func (p *proxy) ServeHTTP(w http.ResponseWriter, incoming *http.Request) {
	pass(&p.all, incoming)
	if incoming.URL.Query().Has("watch") {
		p.Watch(w, incoming, func(int) {}, func(e *trace.Event) bool {
			trace.Send(w, trace.MustEncode(e))
			return true
		})
		return
	}
	// What names no resource is not told apart: the judges ask for resources.
	to, _ := trace.ParsePath(incoming.URL.Path)
	r, body := trace.ReadRequest(incoming, to)
	p.mu.Lock()
	r.At = time.Now()
	p.requests = append(p.requests, r)
	p.mu.Unlock()
	if writesOurs(r) {
		pass(&p.writes, incoming)
	}
	response := p.Forward(incoming, body)
	p.mu.Lock()
	r.Answered(response)
	p.mu.Unlock()
	response.Write(w)
}

// pass waits while the gate is locked. A request whose client is gone ends then.
func pass(gate *sync.RWMutex, incoming *http.Request) {
	gate.RLock()
	defer gate.RUnlock()
	if incoming.Context().Err() != nil {
		panic(http.ErrAbortHandler)
	}
}

func (p *proxy) recorded() (copies []trace.Request) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for _, r := range p.requests {
		copies = append(copies, *r)
	}
	return copies
}
