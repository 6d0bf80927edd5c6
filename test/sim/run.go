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

package sim

import (
	"flag"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"
)

const (
	// maxSettling bounds how long the controller may need after the last fault. It is
	// longer than all retries and the longest contention: the longest pause between two
	// repairs, the repair, and the same time again until the contention counts as over.
	maxSettling = 30 * time.Minute
	// idleTime is longer than the longest backoff, which is 5 minutes by rule 11 of
	// docs/contract.md.
	idleTime = 6 * time.Minute
	// detectorShare is the share of the sequences that run with client-go's mutation
	// detector, which compares all caches each second of the bubble's time.
	detectorShare = 10
	// triesToShrink is how often a sequence runs to see whether it fails as well.
	// Goroutines that are ready at the same time run in any order.
	triesToShrink = 10
)

// Result is the result of running a sequence.
type Result struct {
	// Violations are the violated invariants and rules, in words.
	Violations []string
	// Outcome is that of the final state.
	Outcome string
	// Contested says that a Foo waited for a name that another one had, in the final state or after
	// any operation: if two wait, either may get it, and its user may delete that Foo later.
	Contested bool

	trace []string
}

func (r *Result) report(sequence Sequence) string {
	return fmt.Sprintf("%s\n\nThe sequence:\n\n%s\nThe requests:\n\n%s", strings.Join(r.Violations, "\n"), sequence.Script(), strings.Join(r.trace, "\n"))
}

// Check draws sequences until one has violations. That one is shrunk, and the shortest with
// violations is logged. run is called in a synctest bubble.
func Check(t *testing.T, checks int, profile Profile, run func(Sequence) Result) {
	t.Helper()
	FixSeed(t, checks)
	failure := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(failure)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		sequence := Generate(profile).Draw(t, "sequence")
		tries := 1
		if failure != "" {
			tries = triesToShrink
		}
		for range tries {
			var result Result
			rapid.SyncTest(t, func(*rapid.T) { result = run(sequence) })
			if len(result.Violations) > 0 {
				failure = result.report(sequence)
				// rapid shrinks only failures with the same message.
				t.Fatal("the contract is violated")
			}
		}
	})
}

// FixSeed makes rapid draw the same sequences each time unless a flag or RAPID_CHECKS says
// otherwise: a unit test must not fail once in a while. It reports whether it draws all of them.
func FixSeed(t *testing.T, checks int) (all bool) {
	t.Helper()
	if all = os.Getenv("KUBE_CACHE_MUTATION_DETECTOR") == ""; !all {
		checks /= detectorShare
	}
	given := os.Getenv("RAPID_CHECKS") != ""
	flag.Visit(func(f *flag.Flag) { given = given || strings.HasPrefix(f.Name, "rapid.") })
	if given {
		return false
	}
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(checks), "rapid.seed": "1"} {
		f := flag.Lookup(name)
		before := f.Value.String()
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Value.Set(before) })
	}
	return all
}

// Run runs the sequence against the controller, and returns which invariants it violated:
// S1 to S4 at each write, the contract in the final state, and L1 after that. The caller is
// in a synctest bubble.
func Run(sequence Sequence, newController NewController) Result {
	c := newCluster(sequence, newController)
	c.start(0)
	c.doAll()
	c.endFaults()
	c.settle()
	c.mu.Lock()
	state := c.State()
	violations, outcome := state.Violations(), state.Outcome()
	contested := c.contested || state.contested()
	c.mu.Unlock()
	c.checkIdle()
	c.process.stop()
	violations = append(violations, c.invariants.violations...)
	slices.Sort(violations)
	return Result{Violations: slices.Compact(violations), Outcome: outcome, Contested: contested, trace: c.trace}
}

// settle waits until the state violates nothing and the controller has sent no request for
// a minute, at most for maxSettling.
func (c *simCluster) settle() {
	c.restarts.Wait()
	for began, requests := c.clock.Now(), -1; c.clock.Since(began) < maxSettling; c.clock.Sleep(time.Minute) {
		c.mu.Lock()
		settled := c.requests == requests && len(c.State().Violations()) == 0
		requests = c.requests
		c.mu.Unlock()
		if settled {
			return
		}
	}
}

// checkIdle checks L1: once nothing changes the controller writes nothing, over time, a
// relist, a restart and resyncs.
func (c *simCluster) checkIdle() {
	c.checkIdleDuring("time", 0, func() { c.clock.Sleep(idleTime) })
	c.checkIdleDuring("a relist", 0, func() {
		c.mu.Lock()
		c.do(Op{Verb: Break, Resource: Foos})
		c.do(Op{Verb: Break, Resource: Deployments})
		c.mu.Unlock()
		c.clock.Sleep(10 * time.Second)
	})
	// By rule 4 a process learns by a write what a policy makes of the image, and by rule 22 it
	// reads the Foo live before.
	c.checkIdleDuring("a restart and resyncs", 2*c.State().rewritten(), func() {
		c.process.stop()
		c.start(10 * time.Second)
		c.clock.Sleep(25 * time.Second)
	})
}

// checkIdleDuring checks that nothing is written during the action. It allows that many
// requests without an effect.
func (c *simCluster) checkIdleDuring(what string, allowed int, action func()) {
	c.mu.Lock()
	requests, events, version := c.requests, c.events, c.version
	c.logf("# The controller must be idle over %s.", what)
	c.mu.Unlock()
	action()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests > requests+allowed || c.events != events || c.version != version {
		c.invariants.violated("L1: over %s there were %d requests, of which %d may be, %d events and %d writes with an effect", what, c.requests-requests, allowed, c.events-events, c.version-version)
	}
}
