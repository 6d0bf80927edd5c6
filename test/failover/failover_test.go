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

// Package failover runs the binary of the controllers while the control plane fails or the leader changes, and users
// change Foos. It records the history of all objects from etcd, and judges each write by the rules that test/check has
// for Foos, and the final state.
//
// TestOutages kills parts of the control plane (hack/e2e.sh outages).
//
// TestFailover runs replicas as the manifests say, with their rights and under API Priority and Fairness. It terminates
// and kills the leader, and replaces it by another build. Beyond the rules, no unchanged Foo stops being Ready, and
// every change of a spec reaches its status. S5 is judged by all writes and the revisions of the Lease (hack/e2e.sh
// failover).
//
// Each needs a cluster of its own. The tests have the build tag faults.
package failover

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"example.com/sample-controller/test/check/trace"
)

// leaderChange is a way in which leaders change while users change Foos.
type leaderChange struct {
	name string
	// Each user has foosEach Foos.
	foosEach int
	// fromPrevious starts with replicas of the previous build.
	fromPrevious bool
	disrupt      func(*failoverEnv)
}

func leaderChanges() []*leaderChange {
	return []*leaderChange{
		{name: "the leader is terminated", foosEach: 25, disrupt: func(e *failoverEnv) {
			for range 3 {
				e.replaceLeader(syscall.SIGTERM)
			}
			for range 2 {
				e.replaceHangingLeader()
			}
		}},
		{name: "the leader is killed", foosEach: 25, disrupt: func(e *failoverEnv) {
			for range 3 {
				e.replaceLeader(syscall.SIGKILL)
			}
		}},
		{name: "the leader is frozen, or gets no answer", foosEach: 25, disrupt: func(e *failoverEnv) {
			for range 2 {
				e.replaceFrozenLeader()
				e.replaceUnansweredLeader()
			}
		}},
		{name: "a build is rolled out, and rolled back", foosEach: 25, fromPrevious: true, disrupt: func(e *failoverEnv) {
			e.roll(e.currentBuild)
			e.roll(e.previousBuild)
		}},
	}
}

// partialLeaderChange is for FAILOVER=part.
func partialLeaderChange() *leaderChange {
	name := "the leader is replaced by another build, terminated, killed, frozen, and not answered"
	return &leaderChange{name: name, foosEach: 5, fromPrevious: true, disrupt: func(e *failoverEnv) {
		e.roll(e.currentBuild)
		e.replaceHangingLeader()
		e.replaceLeader(syscall.SIGKILL)
		e.replaceFrozenLeader()
		e.replaceUnansweredLeader()
	}}
}

// TestFailover changes the leader among replicas that run as the manifests say while users change Foos, and checks what
// replicas and users observed. It needs a cluster of its own: hack/e2e.sh failover
func TestFailover(t *testing.T) {
	all := leaderChanges()
	if os.Getenv("FAILOVER") == "part" {
		all = []*leaderChange{partialLeaderChange()}
	}
	cluster := setUp(t)
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			e := newFailoverEnv(newEnv(t, cluster))
			from := e.currentBuild
			if c.fromPrevious {
				from = e.previousBuild
			}
			e.startBuild(from)
			e.awaitLeader()
			e.awaitReplicaReady(e.startBuild(from))
			e.run(c.foosEach, func(*env) { c.disrupt(e) })
			e.terminateAll()
			e.checkInvariants()
			e.addReport(c.name, time.Since(began))
			for _, h := range e.handovers {
				e.t.Logf("  %s: %s of %s; the leader exited after %s", h.cause, h.took(), h.promised, h.drain())
			}
		})
	}
}

// roll replaces both replicas, one after the other, as a rolling update does. On the way to the current build it
// replaces the leader first, so that there can be two handovers, and on the way back last.
func (e *failoverEnv) roll(to *build) {
	olds := slices.DeleteFunc(slices.Clone(e.replicas), func(r *replica) bool { return r.stopping })
	if (olds[0] == e.awaitLeader()) != (to == e.currentBuild) {
		slices.Reverse(olds)
	}
	for _, old := range olds {
		e.replaceReplica(to, old)
	}
}

func (e *failoverEnv) replaceReplica(to *build, old *replica) {
	e.awaitReplicaReady(e.startBuild(to))
	e.awaitOperations()
	if old == e.awaitLeader() {
		e.handOver(old, syscall.SIGTERM, "replaced by another build", func() {})
		return
	}
	e.terminate(old)
}

func (e *failoverEnv) checkInvariants() {
	versions := e.versions()
	var all []process
	for i, r := range e.replicas {
		p := process{name: fmt.Sprintf("replica %d", i+1), requests: r.proxy.recorded()}
		// Only a replica that lost its lease, and hence exited with 1, may have writes on the way at that time. Beside its
		// workers it has one sender of events.
		if r.exited() && r.ProcessState.ExitCode() == 1 {
			p.mayBeLate = defaultWorkers + 1
		}
		all = append(all, p)
	}
	var changes []specChange
	for _, u := range e.users.users {
		changes = append(changes, u.changes...)
	}
	passed, late := checkLease(all, versions)
	outside, across := statusLatencies(changes, versions, e.handovers)
	e.violations = slices.Concat(e.violations, late, leftReady(versions), checkLatencies(outside, across))
	e.t.Logf("%d changes were reported after handovers, %d late writes had passed the fence", len(across), passed)
	e.env.checkInvariants()
}

// defaultWorkers is the default of --workers, which the manifests do not set.
const defaultWorkers = 8

// outage is a way in which the control plane fails while users change Foos.
type outage struct {
	name string
	// Each user has foosEach Foos.
	foosEach int
	disrupt  func(*env)
}

func outages() []*outage {
	return []*outage{
		{name: "the API server is killed and restarted", foosEach: 25, disrupt: func(e *env) {
			for range 4 {
				e.killComponents(apiServerName)
				e.startComponents(apiServerName)
				e.awaitOperations()
			}
		}},
		{name: "etcd is killed and restarted", foosEach: 25, disrupt: func(e *env) {
			for range 4 {
				e.killComponents(etcdName)
				e.startComponents(etcdName)
				e.awaitOperations()
			}
		}},
		{name: "the whole control plane is down for a minute", foosEach: 10, disrupt: func(e *env) {
			var all []string
			for _, c := range e.control {
				all = append(all, c.name)
			}
			e.killComponents(all...)
			trace.Pause(e.t.Context(), time.Minute)
			e.startComponents(all...)
		}},
		{name: "etcd is compacted and the controller's watches expire", foosEach: 10, disrupt: func(e *env) {
			proxy := e.replicas[0].proxy
			open := proxy.watches.close()
			defer open()
			e.awaitOperations()
			e.poll("etcd is compacted", func(ctx context.Context) error {
				now, err := e.etcd.revision(ctx)
				if err != nil {
					return err
				}
				answer, err := e.etcd.post(ctx, "/v3/kv/compaction", map[string]any{"revision": fmt.Sprint(now), "physical": true})
				if err == nil {
					err = answer.Close()
				}
				return err
			})
			// A new API server has no events from before its start. The watches are blocked until it serves them: any other
			// error would make the controller list again.
			e.must(e.control.find(apiServerName).kill(e.t.Context()))
			e.must(e.control.find(apiServerName).start())
			e.poll("the API server serves Foos", func(ctx context.Context) error {
				_, err := e.foos.SamplecontrollerV1alpha1().Foos(e.namespace).List(ctx, metav1.ListOptions{})
				return err
			})
			open()
			e.poll("both watches got 410 Gone", func(context.Context) error {
				for _, resource := range []string{foos, deployments} {
					gone := func(r request) bool { return r.Resource == resource && r.Code == http.StatusGone }
					if !slices.ContainsFunc(proxy.recorded(), gone) {
						return errors.New("not that of " + resource)
					}
				}
				return nil
			})
		}},
	}
}

// TestOutages kills parts of the control plane while users change Foos, and checks what the controller wrote and the
// final state. It needs a cluster of its own: hack/e2e.sh outages
func TestOutages(t *testing.T) {
	c := setUp(t)
	for _, o := range outages() {
		t.Run(o.name, func(t *testing.T) {
			began := time.Now()
			e := newEnv(t, c)
			e.startController()
			e.run(o.foosEach, o.disrupt)
			e.checkInvariants()
			e.addReport(o.name, time.Since(began))
		})
	}
}
