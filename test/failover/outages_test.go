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
	"crypto/tls"
	"errors"
	"fmt"
	"net/http"
	"strings"
	"testing"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/test/sim"
)

// outage is a way in which the control plane fails while users change Foos.
type outage struct {
	name string
	// Each of the users has foosEach Foos.
	users, foosEach int
	disrupt         func(*env)
}

const (
	// killsPerOutage is how often an outage kills its component.
	killsPerOutage = 4
	// operationsBetween is how many operations users do between two disruptions.
	operationsBetween = 40
	// downtime is how long the whole control plane is down.
	downtime = time.Minute
)

var outages = []*outage{
	{name: "the API server is killed and restarted", users: 8, foosEach: 25, disrupt: func(e *env) {
		for range killsPerOutage {
			e.awaitOperations()
			e.killComponents(apiServerName)
			e.startComponents(apiServerName)
		}
		e.awaitOperations()
	}},
	{name: "etcd is killed and restarted", users: 8, foosEach: 25, disrupt: func(e *env) {
		for range killsPerOutage {
			e.awaitOperations()
			e.killComponents(etcdName)
			e.startComponents(etcdName)
		}
		e.awaitOperations()
	}},
	{name: "the whole control plane is down for a minute", users: 8, foosEach: 10, disrupt: func(e *env) {
		e.awaitOperations()
		var all []string
		for _, c := range e.control.components {
			all = append(all, c.name)
		}
		e.killComponents(all...)
		pause(e.t.Context(), downtime)
		e.startComponents(all...)
		e.awaitOperations()
	}},
	{name: "etcd is compacted and the controller's watches expire", users: 8, foosEach: 10, disrupt: func(e *env) {
		e.awaitOperations()
		proxy := e.replicas[0].proxy
		open := proxy.watchBarrier.close()
		defer open()
		e.awaitOperations()
		e.compactEtcd()
		// A new API server has no events from before its start. The watches are blocked
		// until it serves them: any other error would make the controller list again.
		e.restartComponent(apiServerName)
		e.kills[apiServerName]++
		e.awaitAPIServer()
		open()
		e.poll("both watches got 410 Gone", func(context.Context) error {
			if proxy.expiredCount(foos) == 0 || proxy.expiredCount(deployments) == 0 {
				return fmt.Errorf("watches that got it: %d of Foos, %d of Deployments", proxy.expiredCount(foos), proxy.expiredCount(deployments))
			}
			return nil
		})
		e.awaitOperations()
	}},
}

// TestOutages kills parts of the control plane while users change Foos, and checks what
// the controller wrote and the final state. It needs a cluster of its own:
// hack/e2e.sh outages
func TestOutages(t *testing.T) {
	c := setUp(t)
	c.report = []string{"Foos\toperations\tversions\trequests\tlost\t410\tlate writes\tviolations\tseconds\t  outage"}
	for _, o := range outages {
		t.Run(o.name, func(t *testing.T) {
			began := time.Now()
			e := newEnv(t, c)
			defer func() { e.reportOutage(o, time.Since(began)) }()
			e.startController()
			e.run(o.users, o.foosEach, o.disrupt)
			e.checkInvariants()
		})
	}
}

// reportOutage adds a line to the report.
func (e *env) reportOutage(o *outage, took time.Duration) {
	lost, proxy := 0, e.replicas[0].proxy
	for _, request := range proxy.recorded() {
		if request.lost {
			lost++
		}
	}
	e.report = append(e.report, fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t  %s (killed: %v)",
		o.users*o.foosEach, e.operations, len(e.history.foos)+len(e.history.deployments), len(proxy.recorded()), lost,
		proxy.expiredCount(foos)+proxy.expiredCount(deployments), e.lateWrites, len(e.violations), took.Seconds(), o.name, e.kills))
}

const (
	// settleTimeout bounds how long the cluster may take to converge.
	settleTimeout = 5 * time.Minute
	// stuckAfter is when a scheduled Pod that is still pending counts as stuck, and a
	// Deployment whose Foo is gone as left by the garbage collector.
	stuckAfter = 45 * time.Second
)

// env is the environment of one outage or of one series of leader changes: a namespace,
// its users and the controllers that work on it.
type env struct {
	*testCluster

	t         *testing.T
	namespace string
	// replicas are all controllers in the order of their start, including those that
	// ended.
	replicas    []*replica
	userClients clientSet
	users       *userGroup
	// kills counts how often the test killed each component.
	kills map[string]int
	// recordedRevision is the etcd revision up to which history is complete.
	recordedRevision int64
	history          *history

	operations int64
	lateWrites int
	violations violations
}

// replica is one controller process behind its own proxy.
type replica struct {
	*process
	proxy *recordingProxy
	// stopping is set before the test terminates or kills the replica.
	stopping bool
}

// endMarkerNamespace is a namespace without a controller. Objects that the test creates
// there mark the end of the history in etcd.
const endMarkerNamespace = "end-of-history"

func newEnv(t *testing.T, c *testCluster) *env {
	t.Helper()
	e := &env{testCluster: c, t: t, namespace: c.uniqueName("outage"), userClients: c.clientSet, kills: map[string]int{}, history: &history{}}
	for _, name := range []string{e.namespace, endMarkerNamespace} {
		e.poll("namespace "+name+" exists", func(ctx context.Context) error {
			_, err := e.kube.CoreV1().Namespaces().Create(ctx, &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
			if apierrors.IsAlreadyExists(err) {
				return nil
			}
			return err
		})
	}
	e.poll("etcd returns its revision", func(ctx context.Context) (err error) {
		e.recordedRevision, err = e.etcd.revision(ctx)
		return err
	})
	return e
}

// startController starts the only controller of the env, with the rights of an
// administrator.
func (e *env) startController() {
	e.t.Helper()
	e.startReplica(e.controllerBinary(), e.transport, nil, func(proxy *recordingProxy) []string {
		return []string{"--master=http://" + proxy.address, "--namespace=" + e.namespace, "-v=2"}
	})
}

// startReplica starts a controller behind a recording proxy.
func (e *env) startReplica(program string, transport http.RoundTripper, serverTLS *tls.Config, arguments func(*recordingProxy) []string) *replica {
	e.t.Helper()
	proxy := newRecordingProxy(e.namespace, e.server, transport, serverTLS)
	e.must(proxy.listen())
	e.t.Cleanup(proxy.close)
	process, err := e.startProcess(program, arguments(proxy)...)
	e.must(err)
	e.t.Cleanup(process.kill)
	r := &replica{process: process, proxy: proxy}
	e.replicas = append(e.replicas, r)
	return r
}

// requestRecords returns the requests of each controller.
func (e *env) requestRecords() [][]request {
	var records [][]request
	for _, r := range e.replicas {
		records = append(records, r.proxy.recorded())
	}
	return records
}

// run starts the users, calls disrupt, stops the users, waits until the cluster has
// converged, and records the history.
func (e *env) run(users, foosEach int, disrupt func(*env)) {
	e.t.Helper()
	e.users = startUsers(e.t.Context(), e.userClients, e.namespace, users, foosEach)
	defer e.users.stop()
	disrupt(e)
	desired, err := e.users.finish()
	e.operations = e.users.operations.Load()
	e.must(err)
	finished := time.Now()
	e.poll("the cluster has converged", func(ctx context.Context) error {
		err := e.checkConverged(ctx, desired)
		if err == nil {
			return nil
		}
		err = errors.Join(err, e.deleteStuckPods(ctx))
		if time.Since(finished) > stuckAfter {
			err = errors.Join(err, e.deleteOrphans(ctx))
		}
		return err
	})
	e.checkNoMoreWrites(desired)
	e.recordHistory()
}

// checkInvariants fails the test for each violation.
func (e *env) checkInvariants() {
	e.t.Helper()
	e.violations = append(e.violations, e.history.checkFoos(e.requestRecords()...)...)
	for _, r := range e.replicas {
		e.violations = append(e.violations, r.proxy.unread...)
		if r.output.panicked() {
			e.violations.add("rule 18: the controller panicked")
		}
	}
	for _, violation := range e.violations {
		e.t.Error(violation)
	}
	if e.t.Failed() {
		e.dump()
	}
}

// dump logs the requests and the output of each controller.
func (e *env) dump() {
	e.t.Helper()
	for i, r := range e.replicas {
		var text strings.Builder
		for _, request := range r.proxy.recorded() {
			fmt.Fprintf(&text, "    %s +%s %s (resource version %d) → %d\n", request.received.Format("15:04:05.000000"),
				request.answered.Sub(request.received).Round(time.Microsecond), &request, request.resourceVersion, request.code)
		}
		e.t.Logf("Namespace %s. The requests of controller %d:\n%s  Its output:\n%s", e.namespace, i+1, text.String(), r.output)
	}
}

func (e *env) must(err error) {
	e.t.Helper()
	if err != nil {
		e.fatalf("%v", err)
	}
}

func (e *env) fatalf(format string, args ...any) {
	e.t.Helper()
	e.t.Errorf(format, args...)
	e.dump()
	e.t.FailNow()
}

// poll waits until check returns nil, and fails the test if a controller exits meanwhile.
func (e *env) poll(what string, check func(context.Context) error) {
	e.t.Helper()
	var last error
	err := wait.PollUntilContextTimeout(e.t.Context(), pollInterval, settleTimeout, true, func(ctx context.Context) (bool, error) {
		ctx, cancel := context.WithTimeout(ctx, attemptTimeout)
		defer cancel()
		last = check(ctx)
		for i, r := range e.replicas {
			if !r.stopping && r.exited() {
				return false, fmt.Errorf("controller %d exited", i+1)
			}
		}
		return last == nil, nil
	})
	if err != nil {
		e.fatalf("%s: %v; last: %v", what, err, last)
	}
}

// awaitOperations waits until the users have done another operationsBetween operations.
func (e *env) awaitOperations() {
	e.t.Helper()
	until := e.users.operations.Load() + operationsBetween
	e.poll("the users do operations", func(context.Context) error {
		if done := e.users.operations.Load(); done < until {
			return fmt.Errorf("%d operations left", until-done)
		}
		return e.users.failure()
	})
}

// killComponents kills components without waiting in between.
func (e *env) killComponents(names ...string) {
	e.t.Helper()
	for _, name := range names {
		e.must(e.control.find(name).kill(e.t.Context()))
		e.kills[name]++
		if name == apiServerName {
			e.replicas[0].proxy.close()
		}
	}
}

// restartComponent restarts a component behind the controller's proxy, so that the
// controller sees failing requests but no closed port.
func (e *env) restartComponent(name string) {
	e.t.Helper()
	e.must(e.control.find(name).kill(e.t.Context()))
	e.must(e.control.find(name).start())
}

// startComponents starts components. It returns once etcd answers and the API server
// accepts connections, before they are ready.
func (e *env) startComponents(names ...string) {
	e.t.Helper()
	for _, name := range names {
		e.must(e.control.find(name).start())
		switch name {
		case etcdName:
			e.poll("etcd answers", func(ctx context.Context) error {
				_, err := e.etcd.revision(ctx)
				return err
			})
		case apiServerName:
			e.must(awaitListening(e.t.Context(), e.server.Host))
			e.must(e.replicas[0].proxy.listen())
		}
	}
}

// awaitAPIServer waits until the API server is ready and serves Foos.
func (e *env) awaitAPIServer() {
	e.t.Helper()
	e.poll("the API server is ready", func(ctx context.Context) error {
		if _, err := e.kube.Discovery().RESTClient().Get().AbsPath("/readyz").DoRaw(ctx); err != nil {
			return err
		}
		_, err := e.foos.SamplecontrollerV1alpha1().Foos(e.namespace).List(ctx, metav1.ListOptions{})
		return err
	})
}

// recordHistory reads the versions since the last call from etcd.
func (e *env) recordHistory() {
	e.t.Helper()
	marker := e.uniqueName("end")
	e.poll("the markers at the end of the history exist", func(ctx context.Context) error {
		_, err := e.foos.SamplecontrollerV1alpha1().Foos(endMarkerNamespace).Create(ctx, markerFoo(marker), metav1.CreateOptions{})
		if err != nil && !apierrors.IsAlreadyExists(err) {
			return err
		}
		deployment := sim.ForeignDeployment(marker)
		deployment.Spec.Replicas = ptr.To[int32](0)
		_, err = e.kube.AppsV1().Deployments(endMarkerNamespace).Create(ctx, deployment, metav1.CreateOptions{})
		if apierrors.IsAlreadyExists(err) {
			return nil
		}
		return err
	})
	ctx, cancel := context.WithTimeout(e.t.Context(), settleTimeout)
	defer cancel()
	upTo, err := e.history.appendFromEtcd(ctx, e.etcd, e.namespace, e.recordedRevision+1, marker)
	e.must(err)
	e.recordedRevision = upTo
}

// compactEtcd records the history and then compacts it away.
func (e *env) compactEtcd() {
	e.t.Helper()
	e.recordHistory()
	e.poll("etcd is compacted", func(ctx context.Context) error { return e.etcd.compact(ctx, e.recordedRevision) })
}
