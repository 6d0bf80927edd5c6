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
	"net/http"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
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

// partialLeaderChanges are for FAILOVER=part.
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
	if os.Getenv("FAILOVER") == "part" {
		all = partialLeaderChanges
	}
	cluster, handovers := setUp(t), map[string][]*handover{}
	cluster.report = []string{"Foos\toperations\tversions\trequests\tacross\twait\tlate\tlate writes\tpassed\tviolations\tseconds\t  changes of leader"}
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
	e.report = append(e.report, fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%d\t%d\t%d\t%.0f\t  %s",
		c.users*c.foosEach, e.operations, len(e.history.foos)+len(e.history.deployments), requests, l.countAcross,
		l.outside.Seconds(), l.afterHandover.Seconds(), e.lateWrites, e.passedWrites, len(e.violations), took.Seconds(), c.name))
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

// What a change of leader must not break, beyond the invariants: Foos stay Ready, and each
// change of a spec reaches its status.

// handover is a change of leader.
type handover struct {
	cause string
	// signalled is when the old leader got the signal, exited when its process had ended,
	// and nextStarted when the next leader started its workers.
	signalled, exited, nextStarted time.Time
	// promised is how long leader election may take for it.
	promised time.Duration
}

func (h *handover) took() time.Duration  { return h.nextStarted.Sub(h.signalled) }
func (h *handover) drain() time.Duration { return h.exited.Sub(h.signalled) }

// leftReady returns the Foos that stopped being Ready although neither their spec changed nor
// their Deployment lost Pods. It loses some after a scale-down that a scale-up follows at once:
// the Deployment is complete again before the Pods of the first change are gone.
func (h *history) leftReady() []string {
	type readiness struct{ generation, revision int64 }
	was := map[types.UID]readiness{}
	var found violations
	for _, v := range h.foos {
		foo := v.object
		switch {
		case v.deleted || foo.DeletionTimestamp != nil:
			delete(was, foo.UID)
		case isFooReady(foo):
			was[foo.UID] = readiness{foo.Generation, v.revision}
		case was[foo.UID].generation == foo.Generation:
			since := was[foo.UID].revision
			delete(was, foo.UID)
			if !h.lostPods(foo.Spec.DeploymentName, since, v.revision) {
				found.add("Foo %s stopped being Ready in generation %d without a change: %+v (revision %d)",
					foo.Name, foo.Generation, foo.Status.Conditions, v.revision)
			}
		}
	}
	return found
}

// lostPods reports whether the Deployment had fewer available Pods than it asks for between
// the two revisions.
func (h *history) lostPods(name string, after, until int64) bool {
	return slices.ContainsFunc(h.deployments, func(v version[*appsv1.Deployment]) bool {
		return v.object.Name == name && v.revision > after && v.revision <= until && v.object.Status.AvailableReplicas < ptr.Deref(v.object.Spec.Replicas, 1)
	})
}

// statusLatency is how long it took until a status had the generation of a spec change.
type statusLatency struct {
	// outside is the longest time of the changes outside handovers. afterHandover is the
	// longest time from a handover until a status had a change from before or during it.
	outside, afterHandover time.Duration
	// slowest is the name of the Foo with that time.
	slowest                   string
	countOutside, countAcross int
}

func measureStatusLatency(all []specChange, records [][]request, handovers []*handover) *statusLatency {
	statusWrites := map[types.UID][]request{}
	for _, requests := range records {
		for _, r := range requests {
			if r.applied() && r.observed.generation > 0 {
				statusWrites[r.observed.uid] = append(statusWrites[r.observed.uid], r)
			}
		}
	}
	l := &statusLatency{}
	for _, a := range all {
		var first *request
		for i, r := range statusWrites[a.uid] {
			if r.observed.generation >= a.generation && (first == nil || r.answered.Before(first.answered)) {
				first = &statusWrites[a.uid][i]
			}
		}
		// The user may have deleted the Foo before.
		if first != nil {
			l.add(a.at, first, handovers)
		}
	}
	return l
}

func (l *statusLatency) add(from time.Time, write *request, handovers []*handover) {
	var last *handover
	to := write.answered
	for _, h := range handovers {
		if h.signalled.Before(to) && from.Before(h.nextStarted) {
			last = h
		}
	}
	if last == nil {
		l.countOutside++
		l.outside = max(l.outside, to.Sub(from))
		return
	}
	l.countAcross++
	if late := to.Sub(last.nextStarted); late > l.afterHandover {
		l.afterHandover, l.slowest = late, write.name
	}
}

// maxLatencyFactor bounds afterHandover as a multiple of outside. It is greater than 1
// because the new leader handles everything that was queued meanwhile at once.
const maxLatencyFactor = 4

// violations returns that a change took too long, or that there were too few to compare.
func (l *statusLatency) violations() []string {
	if l.countOutside == 0 || l.countAcross == 0 {
		return []string{fmt.Sprintf("too few changes to compare: %d outside handovers and %d across them", l.countOutside, l.countAcross)}
	}
	if l.afterHandover > maxLatencyFactor*l.outside {
		return []string{fmt.Sprintf("the status of Foo %s came %s after a handover, but outside handovers none took more than %s", l.slowest, l.afterHandover, l.outside)}
	}
	return nil
}

// statusWriteAt returns a status write for that generation, answered at that second.
func statusWriteAt(generation, ended int64) request {
	return request{
		verb: http.MethodPut, resource: foos, name: "x", subresource: "status", observed: fooGeneration{"1", generation},
		received: unixTime(ended), answered: unixTime(ended), code: http.StatusOK,
	}
}

// specChangeAt returns a change of the spec to that generation at that second.
func specChangeAt(generation, when int64) specChange {
	return specChange{fooGeneration{"1", generation}, unixTime(when)}
}

// TestFailoverInvariants tests the checks of TestFailover, which could otherwise let
// every run pass.
func TestFailoverInvariants(t *testing.T) {
	handovers := []*handover{{signalled: unixTime(100), nextStarted: unixTime(110)}}
	ready := func(generation int64) *v1alpha1.Foo {
		return withStatus(newFoo("1", generation, "a"), v1alpha1.ReasonDeploymentAvailable, generation)
	}
	progressing := withStatus(newFoo("1", 1, "a"), v1alpha1.ReasonDeploymentProgressing, 1)
	history := func(versions ...any) []string {
		h := &fakeHistory{}
		for _, version := range versions {
			switch object := version.(type) {
			case *v1alpha1.Foo:
				h.addFoo(object)
			case *appsv1.Deployment:
				h.addDeployment(object)
			}
		}
		return h.leftReady()
	}
	lost := newDeployment("a", "1", 3)
	lost.Status.AvailableReplicas = 1
	for _, test := range []struct {
		name  string
		found []string
		// want is the beginning of the one violation, "" for none.
		want string
	}{
		{"valid: a Foo stops being Ready because its spec changed",
			history(ready(1), withStatus(newFoo("1", 2, "a"), v1alpha1.ReasonDeploymentAvailable, 1), withStatus(newFoo("1", 2, "a"), v1alpha1.ReasonDeploymentProgressing, 2), ready(2)), ""},
		{"a Foo stops being Ready without a change of its spec", history(ready(1), newDeployment("a", "1", 3), progressing), "Foo x stopped being Ready in generation 1"},
		{"valid: its Deployment lost Pods", history(ready(1), lost, progressing), ""},
		{"its Deployment had lost Pods before", history(lost, ready(1), progressing), "Foo x stopped being Ready in generation 1"},
		{"valid: statuses are as fast after a handover as outside",
			measureStatusLatency([]specChange{specChangeAt(1, 10), specChangeAt(2, 101)}, [][]request{{statusWriteAt(1, 12)}, {statusWriteAt(2, 118)}}, handovers).violations(), ""},
		{"valid: a later generation superseded a change",
			measureStatusLatency([]specChange{specChangeAt(1, 10), specChangeAt(2, 101), specChangeAt(3, 102)}, [][]request{{statusWriteAt(1, 12)}, {statusWriteAt(3, 118)}}, handovers).violations(), ""},
		{"a change is late after a handover",
			measureStatusLatency([]specChange{specChangeAt(1, 10), specChangeAt(2, 101)}, [][]request{{statusWriteAt(1, 12)}, {statusWriteAt(2, 119)}}, handovers).violations(), "the status of Foo x came 9s after a handover"},
		{"no change was made before or during a handover",
			measureStatusLatency([]specChange{specChangeAt(1, 10)}, [][]request{{statusWriteAt(1, 12)}}, handovers).violations(), "too few changes to compare"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if test.want == "" && len(test.found) > 0 || test.want != "" && (len(test.found) != 1 || !strings.HasPrefix(test.found[0], test.want)) {
				t.Errorf("violations: %q", test.found)
			}
		})
	}
}
