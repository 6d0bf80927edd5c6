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
// hack/e2e.sh outages and hack/e2e.sh failover start a cluster for each test. The tests have the build tag faults.
package failover

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"syscall"
	"testing"
	"time"

	"example.com/sample-controller/test/check/trace"
)

// disruption is a way in which leaders change, or the control plane fails, while users change Foos.
type disruption struct {
	name string
	// Each user has foosEach Foos.
	foosEach int
	disrupt  func(*env)
}

func leaderChanges() []disruption {
	if os.Getenv("FAILOVER") == "part" {
		return []disruption{{"a leader is replaced by another build, terminated, killed, frozen, and not answered", 5, func(e *env) {
			e.roll(e.current)
			e.replaceHangingLeader()
			e.replaceLeader(syscall.SIGKILL)
			e.replaceFrozenLeader()
			e.replaceUnansweredLeader()
		}}}
	}
	return []disruption{
		{"a build is rolled out, and rolled back", 25, func(e *env) {
			e.roll(e.current)
			e.roll(e.previous)
		}},
		{"the leader is terminated", 25, func(e *env) {
			for range 3 {
				e.replaceLeader(syscall.SIGTERM)
			}
			for range 2 {
				e.replaceHangingLeader()
			}
		}},
		{"the leader is killed", 25, func(e *env) {
			for range 3 {
				e.replaceLeader(syscall.SIGKILL)
			}
		}},
		{"the leader is frozen, or gets no answer", 25, func(e *env) {
			for range 2 {
				e.replaceFrozenLeader()
				e.replaceUnansweredLeader()
			}
		}},
	}
}

// TestFailover changes the leader among replicas that run as the manifests say, with their rights and under API Priority
// and Fairness. Beyond the rules, no unchanged Foo stops being Ready, and S5 is judged by all writes and the revisions
// of the Lease. The first change begins with the previous build.
func TestFailover(t *testing.T) {
	for i, d := range leaderChanges() {
		t.Run(d.name, func(t *testing.T) {
			e := newEnv(t)
			former := filepath.Join(e.work, "former")
			e.current = e.readBuild(filepath.Join(e.work, "bin", "sample-controller"), "../../artifacts/deploy/install.yaml")
			e.previous = e.readBuild(filepath.Join(former, "sample-controller"), filepath.Join(former, "install.yaml"))
			from := e.current
			if i == 0 {
				from = e.previous
			}
			e.startBuild(from)
			e.awaitLeader()
			e.awaitReplicaReady(e.startBuild(from))
			e.run(&d)
			e.terminateAll()
			e.report(checkLease(e.processes(), e.versions()))
			e.checkInvariants()
		})
	}
}

// roll replaces both replicas, one after the other, as a rolling update does. On the way to the current build it
// replaces the leader first, so that there can be two handovers, and on the way back last.
func (e *env) roll(to *build) {
	olds := slices.DeleteFunc(slices.Clone(e.replicas), func(r *replica) bool { return r.stopping })
	if (olds[0] == e.awaitLeader()) != (to == e.current) {
		slices.Reverse(olds)
	}
	for _, old := range olds {
		e.awaitReplicaReady(e.startBuild(to))
		e.awaitOperations()
		if old == e.awaitLeader() {
			e.handOver(old, syscall.SIGTERM, "replaced by another build", func() {})
		} else {
			e.terminate(old)
		}
	}
}

// processes returns what each replica sent.
func (e *env) processes() (all []process) {
	for i, r := range e.replicas {
		p := process{name: fmt.Sprintf("replica %d", i+1), requests: r.proxy.recorded()}
		// Only a replica that lost its lease, and hence exited with 1, may have writes on the way at that time. Beside its
		// workers it has one sender of events.
		if r.exited() && r.ProcessState.ExitCode() == 1 {
			p.mayBeLate = defaultWorkers + 1
		}
		all = append(all, p)
	}
	return all
}

// defaultWorkers is the default of --workers, which the manifests do not set.
const defaultWorkers = 8

func outages() []disruption {
	return []disruption{
		{"the API server is killed and restarted", 25, func(e *env) { e.restart(apiServer) }},
		{"etcd is killed and restarted", 25, func(e *env) { e.restart(etcd) }},
		{"the whole control plane is down for a minute", 10, func(e *env) {
			e.killComponents(etcd, apiServer, controllerManager, scheduler, kwok)
			trace.Pause(e.t.Context(), time.Minute)
			e.startComponents(etcd, apiServer)
			e.startComponents(controllerManager, scheduler, kwok)
		}},
	}
}

func (e *env) restart(name string) {
	for range 4 {
		e.killComponents(name)
		e.startComponents(name)
		e.awaitOperations()
	}
}

// TestOutages kills parts of the control plane.
func TestOutages(t *testing.T) {
	for _, d := range outages() {
		t.Run(d.name, func(t *testing.T) {
			e := newEnv(t)
			e.startReplica(filepath.Join(e.work, "bin", "sample-controller"), "", "--namespace="+e.namespace, "-v=2")
			e.run(&d)
			e.checkInvariants()
		})
	}
}
