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
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"k8s.io/apimachinery/pkg/types"
)

// change is a way in which leaders change while users are at work.
type change struct {
	sentence string
	// users have foosEach Foos each.
	users, foosEach int
	// former says that it begins with the build that this one replaces.
	former bool
	strike func(*relay)
}

// What can happen to a leader.
const (
	told   = "SIGTERM, another one starts"
	hung   = "SIGTERM while its writes hang"
	killed = "SIGKILL, another one starts"
	rolled = "rolling update"
	back   = "rolling back"
)

var changes = []*change{
	{sentence: "the leader is told to end", users: 8, foosEach: 25, strike: func(r *relay) {
		for range 3 {
			r.replace(syscall.SIGTERM, told)
		}
		for range 2 {
			r.replaceHanging(hung)
		}
	}},
	{sentence: "the leader is killed", users: 8, foosEach: 25, strike: func(r *relay) {
		for range 3 {
			r.replace(syscall.SIGKILL, killed)
		}
	}},
	{sentence: "another build is rolled out, and back", users: 8, foosEach: 25, former: true, strike: func(r *relay) {
		r.roll(r.present, rolled)
		r.roll(r.former, back)
	}},
}

// someChanges are those of FAULTS=part.
var someChanges = []*change{
	{sentence: "the leader is replaced by another build, told to end, and killed", users: 8, foosEach: 5, former: true, strike: func(r *relay) {
		r.step(r.present, r.leader(), rolled)
		r.replaceHanging(hung)
		r.replace(syscall.SIGKILL, killed)
	}},
}

// TestFailover changes the leader among replicas that run as the manifests say,
// while users change Foos, and checks what both replicas and users saw of it. It
// needs a cluster of its own: hack/failover.sh
func TestFailover(t *testing.T) {
	all := changes
	switch part := os.Getenv("FAULTS"); part {
	case "", "all":
	case "part":
		all = someChanges
	default:
		t.Fatalf("FAULTS=%s is neither all nor part", part)
	}
	control, etcd, release := newTheatre(t)
	defer release()
	table := &failoverTable{seconds: map[string][]*handover{}}
	defer table.write(t)
	for _, c := range all {
		t.Run(c.sentence, func(t *testing.T) {
			began := time.Now()
			r := newRelay(newStage(t, control, etcd))
			defer func() { table.add(c, r, time.Since(began)) }()
			if c.former {
				r.begin(r.former)
			} else {
				r.begin(r.present)
			}
			r.play(c.users, c.foosEach, func(*stage) {
				c.strike(r)
				r.awaitOperations()
			})
			r.judge()
			r.end()
		})
	}
}

// roll replaces both replicas, one after the other, as a Deployment does that may
// have one more for a moment and none less. The leader is first on the way there, so
// that there can be two handovers, and last on the way back.
func (r *relay) roll(to *build, kind string) {
	r.t.Helper()
	olds := []*replica{r.leader(), r.standby()}
	if to == r.former {
		slices.Reverse(olds)
	}
	for _, old := range olds {
		r.step(to, old, kind)
	}
}

// step replaces one replica.
func (r *relay) step(to *build, old *replica, kind string) {
	r.t.Helper()
	r.awaitOperations()
	r.awaitReplica(r.start(to))
	r.retire(old, kind)
}

// judge adds to the invariants what must hold whoever leads.
func (r *relay) judge() {
	r.t.Helper()
	for _, found := range [][]string{actingTogether(r.records()), r.history.leftReady(), r.waits().violations(), r.unfair()} {
		r.violations = append(r.violations, found...)
	}
	r.stage.judge()
}

func (r *relay) waits() *waits {
	var all []asked
	for _, u := range r.crowd.users {
		all = append(all, u.asked...)
	}
	return newWaits(all, r.records(), r.handovers)
}

// unfair returns how Priority and Fairness was passed by.
func (r *relay) unfair() (found []string) {
	for schema, by := range map[string]*meter{"service-accounts": &r.ofReplicas, "global-default": &r.ofUser} {
		if flows := by.named(r.schemas); flows[schema] == 0 {
			found = append(found, fmt.Sprintf("no request fell under the flow schema %s, but under %v", schema, flows))
		}
	}
	return found
}

// named returns the counts by the schemas' names.
func (m *meter) named(names map[types.UID]string) map[string]int {
	m.mu.Lock()
	defer m.mu.Unlock()
	flows := map[string]int{}
	for uid, count := range m.flows {
		name, ok := names[uid]
		if !ok {
			name = "none"
		}
		flows[name] += count
	}
	return flows
}

// failoverTable is what hack/failover.sh prints in the end.
type failoverTable struct {
	lines   []string
	seconds map[string][]*handover
}

func (f *failoverTable) add(c *change, r *relay, took time.Duration) {
	requests := 0
	for _, record := range r.records() {
		requests += len(record)
	}
	w := &waits{}
	if r.crowd != nil {
		w = r.waits()
	}
	refused := append(r.ofReplicas.refusals(), r.ofUser.refusals()...)
	if len(refused) > 0 {
		r.t.Logf("Answered with 429: %q", refused)
	}
	for _, h := range r.handovers {
		f.seconds[h.kind] = append(f.seconds[h.kind], h)
	}
	flows := r.ofReplicas.named(r.schemas)
	for name, count := range r.ofUser.named(r.schemas) {
		flows[name] += count
	}
	var schemas []string
	for _, name := range slices.Sorted(maps.Keys(flows)) {
		schemas = append(schemas, fmt.Sprintf("%s %d", name, flows[name]))
	}
	f.lines = append(f.lines, fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%.1f\t%.1f\t%d\t%d\t%d\t%.0f\t  %s (%s)",
		c.users*c.foosEach, r.operations, len(r.history.foos)+len(r.history.deployments), requests,
		w.across, w.calm.Seconds(), w.late.Seconds(), len(refused), r.lateWrites, len(r.violations), took.Seconds(),
		c.sentence, strings.Join(schemas, ", ")))
}

func (f *failoverTable) write(t *testing.T) {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "Foos\toperations\tversions\trequests\tacross\twait\tlate\t429\tlate writes\tviolations\tseconds\t  changes of leader (answers by flow schema)")
	for _, line := range f.lines {
		fmt.Fprintln(table, line)
	}
	fmt.Fprint(table, "\nhandovers\tseconds\tpromised\tdrain\t  of the leader\n")
	for _, kind := range []string{told, hung, killed, rolled, back} {
		all := f.seconds[kind]
		if len(all) == 0 {
			continue
		}
		fmt.Fprintf(table, "%d\t%s\t%s\t%s\t  %s\n", len(all), span(all, (*handover).took),
			span(all, func(h *handover) time.Duration { return h.bound }), span(all, (*handover).drain), kind)
	}
	fmt.Fprintln(table)
	if err := table.Flush(); err != nil {
		t.Error(err)
	}
	text.WriteString(`across: changes that were asked for before or in a handover and told of after it
wait:   seconds until a status told of such a change, at most, beside handovers
late:   seconds until a status told of it after the handover, at most
`)
	writeReport(t, text.String())
}

// span returns the least and the most of that, in seconds.
func span(all []*handover, of func(*handover) time.Duration) string {
	least, most := of(all[0]), of(all[0])
	for _, h := range all {
		least, most = min(least, of(h)), max(most, of(h))
	}
	return fmt.Sprintf("%.1f..%.1f", least.Seconds(), most.Seconds())
}
