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
	"fmt"
	"maps"
	"os"
	"slices"
	"syscall"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// leaderChange is a way in which leaders change while users change Foos.
type leaderChange struct {
	name string
	// Each of the users has foosEach Foos.
	users, foosEach int
	// fromPrevious starts with replicas of the previous build.
	fromPrevious bool
	disrupt      func(*failoverEnv)
}

// The causes of a handover, as the report prints them.
const (
	terminated        = "SIGTERM, another replica starts"
	terminatedHanging = "SIGTERM while its writes hang"
	killed            = "SIGKILL, another replica starts"
	frozen            = "SIGSTOP until another replica leads, then SIGCONT"
	unanswered        = "all its requests hang"
	rollingUpdate     = "rolling update"
	rollback          = "rollback"
)

var leaderChanges = []*leaderChange{
	{name: "the leader is terminated", users: 8, foosEach: 25, disrupt: func(e *failoverEnv) {
		for range 3 {
			e.replaceLeader(syscall.SIGTERM, terminated)
		}
		for range 2 {
			e.replaceHangingLeader(terminatedHanging)
		}
	}},
	{name: "the leader is killed", users: 8, foosEach: 25, disrupt: func(e *failoverEnv) {
		for range 3 {
			e.replaceLeader(syscall.SIGKILL, killed)
		}
	}},
	{name: "the leader is frozen for longer than the lease, or gets no answer", users: 8, foosEach: 25, disrupt: func(e *failoverEnv) {
		for range 2 {
			e.replaceFrozenLeader(frozen)
			e.replaceUnansweredLeader(unanswered)
		}
	}},
	{name: "another build is rolled out, and rolled back", users: 8, foosEach: 25, fromPrevious: true, disrupt: func(e *failoverEnv) {
		e.roll(e.currentBuild, rollingUpdate)
		e.roll(e.previousBuild, rollback)
	}},
}

// partialLeaderChanges are for FAULTS=part.
var partialLeaderChanges = []*leaderChange{
	{name: "the leader is replaced by another build, terminated, killed, frozen, and not answered", users: 8, foosEach: 5, fromPrevious: true, disrupt: func(e *failoverEnv) {
		e.replaceReplica(e.currentBuild, e.awaitLeader(), rollingUpdate)
		e.replaceHangingLeader(terminatedHanging)
		e.replaceLeader(syscall.SIGKILL, killed)
		e.replaceFrozenLeader(frozen)
		e.replaceUnansweredLeader(unanswered)
	}},
}

// TestFailover changes the leader among replicas that run as the manifests say while
// users change Foos, and checks what replicas and users observed. It needs a cluster of
// its own: hack/e2e.sh failover
func TestFailover(t *testing.T) {
	all := leaderChanges
	if os.Getenv("FAULTS") == "part" {
		all = partialLeaderChanges
	}
	cluster, handovers := setUp(t), map[string][]*handover{}
	cluster.report = []string{"Foos\toperations\tversions\trequests\tacross\twait\tlate\t429\tlate writes\tpassed\tviolations\tseconds\t  changes of leader"}
	t.Cleanup(func() { cluster.reportHandovers(handovers) })
	for _, c := range all {
		t.Run(c.name, func(t *testing.T) {
			began := time.Now()
			e := newFailoverEnv(newEnv(t, cluster))
			defer func() {
				e.reportChange(c, time.Since(began))
				for _, h := range e.handovers {
					handovers[h.cause] = append(handovers[h.cause], h)
				}
			}()
			if c.fromPrevious {
				e.startReplicas(e.previousBuild)
			} else {
				e.startReplicas(e.currentBuild)
			}
			e.run(c.users, c.foosEach, func(*env) {
				c.disrupt(e)
				e.awaitOperations()
			})
			e.checkInvariants()
			e.terminateAll()
		})
	}
}

// roll replaces both replicas, one after the other, as a rolling update with maxSurge 1
// and maxUnavailable 0 does. On the way to the current build it replaces the leader
// first, so that there can be two handovers, and on the way back last.
func (e *failoverEnv) roll(to *build, cause string) {
	e.t.Helper()
	olds := []*replica{e.awaitLeader(), e.standby()}
	if to == e.previousBuild {
		slices.Reverse(olds)
	}
	for _, old := range olds {
		e.replaceReplica(to, old, cause)
	}
}

func (e *failoverEnv) replaceReplica(to *build, old *replica, cause string) {
	e.t.Helper()
	e.awaitOperations()
	e.awaitReplicaReady(e.startBuild(to))
	e.handOverOrTerminate(old, cause)
}

// checkInvariants adds the violations of what must hold across changes of leader.
func (e *failoverEnv) checkInvariants() {
	e.t.Helper()
	l := e.checkLease()
	e.passedWrites = l.passed
	for _, found := range [][]string{l.violations, e.history.leftReady(), e.statusLatency().violations(), e.flowViolations()} {
		e.violations = append(e.violations, found...)
	}
	e.env.checkInvariants()
}

// defaultWorkers is the default of --workers, which the manifests do not set.
const defaultWorkers = 8

// checkLease checks S5. Only a replica that lost its lease, and hence exited with 1, may have
// writes on the way at that time. Beside its workers it has one sender of events.
func (e *failoverEnv) checkLease() fenceFindings {
	e.t.Helper()
	all, err := e.readAuditLog()
	e.must(err)
	mayBeLate := map[string]int{}
	for _, r := range e.replicas {
		mayBeLate[r.name] = 0
		if r.exited() && r.cmd.ProcessState.ExitCode() == 1 {
			mayBeLate[r.name] = defaultWorkers + 1
		}
	}
	return checkLease(all, mayBeLate, e.history.deletions())
}

func (e *failoverEnv) statusLatency() *statusLatency {
	var all []specChange
	for _, u := range e.users.users {
		all = append(all, u.changes...)
	}
	return measureStatusLatency(all, e.requestRecords(), e.handovers)
}

// flowViolations returns the flow schemas that matched no request, but should have.
func (e *failoverEnv) flowViolations() (found violations) {
	for schema, by := range map[string]*flowCounter{"service-accounts": &e.replicaFlows, "global-default": &e.userFlows} {
		if flows := by.countsByName(e.flowSchemas); flows[schema] == 0 {
			found.add("no request matched the flow schema %s; matched: %v", schema, flows)
		}
	}
	return found
}

// countsByName returns the number of responses by the name of the flow schema.
func (c *flowCounter) countsByName(names map[types.UID]string) map[string]int {
	c.mu.Lock()
	defer c.mu.Unlock()
	flows := map[string]int{}
	for uid, count := range c.flows {
		name, ok := names[uid]
		if !ok {
			name = "none"
		}
		flows[name] += count
	}
	return flows
}

// reportChange adds a line to the report.
func (e *failoverEnv) reportChange(c *leaderChange, took time.Duration) {
	requests, l := 0, &statusLatency{}
	for _, record := range e.requestRecords() {
		requests += len(record)
	}
	if e.users != nil {
		l = e.statusLatency()
	}
	refused := append(e.replicaFlows.throttledRequests(), e.userFlows.throttledRequests()...)
	if len(refused) > 0 {
		e.t.Logf("Requests that got 429: %q", refused)
	}
	e.report = append(e.report, fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%d\t%d\t%d\t%d\t%.0f\t  %s",
		c.users*c.foosEach, e.operations, len(e.history.foos)+len(e.history.deployments), requests, l.countAcross,
		l.outside.Seconds(), l.afterHandover.Seconds(), len(refused), e.lateWrites, e.passedWrites, len(e.violations), took.Seconds(), c.name))
}

// reportHandovers adds to the report how long they took, and what its columns mean.
func (c *testCluster) reportHandovers(handovers map[string][]*handover) {
	c.report = append(c.report, "\nhandovers\tseconds\tpromised\tdrain\t  of the leader")
	for _, cause := range slices.Sorted(maps.Keys(handovers)) {
		all := handovers[cause]
		c.report = append(c.report, fmt.Sprintf("%d\t%s\t%s\t%s\t  %s", len(all), secondsRange(all, (*handover).took),
			secondsRange(all, func(h *handover) time.Duration { return h.promised }), secondsRange(all, (*handover).drain), cause))
	}
	c.report = append(c.report, `
across: changes requested before or during a handover and reported after it
wait:   longest time in seconds until a status reported such a change, outside handovers
late:   longest time in seconds from a handover until a status reported such a change
passed: writes of leaders that had passed the fence before another replica had the lease`)
}

// secondsRange returns the minimum and the maximum in seconds.
func secondsRange(all []*handover, of func(*handover) time.Duration) string {
	least, most := of(all[0]), of(all[0])
	for _, h := range all {
		least, most = min(least, of(h)), max(most, of(h))
	}
	return fmt.Sprintf("%.1f..%.1f", least.Seconds(), most.Seconds())
}
