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

package main

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

	"example.com/sample-controller/test/random"

	"example.com/sample-controller/pkg/controller"
)

const (
	// settled is long enough for all retries, pauses and fights to be over: the
	// longest pause of a fight, the repair, and as long again until it counts as
	// over.
	settled = 30 * time.Minute
	// quiet is longer than any delay after which the controller would try again.
	quiet = controller.MaxBackoff + time.Minute

	// checks and memoryChecks are how many sequences a plain `go test` plays. With
	// client-go's mutation detector, which compares all caches once a second of the
	// bubble's time, that is too long, and a part of them must do.
	checks       = 1000
	memoryChecks = 200
	detectorPart = 10
)

// TestRandom plays random sequences of what users and fate do against an API
// server in memory. Each write keeps the invariants S1 to S3; in the end the
// cluster is as the contract says, and nothing more is written, over time, a
// relist, a restart and resyncs. `make random` plays many more sequences than plain
// `go test`, and others each time.
func TestRandom(t *testing.T) {
	check(t, checks, random.Kind{MaxOps: 30}, simulate)
}

// TestRandomMemory drops what the process remembers before each of its requests,
// and compares the outcome with that of the same sequence without: losing it is
// harmless. Where Foos wait for each other's names the outcome may differ, since
// that is a question of who is first.
func TestRandomMemory(t *testing.T) {
	compared := 0
	check(t, memoryChecks, random.Kind{MaxOps: 12, Calm: true}, func(sequence random.Sequence) simResult {
		result := simulate(sequence)
		forgetful := simulate(forgetting(sequence))
		if len(result.faults) == 0 && !result.contested && !forgetful.contested {
			compared++
			if forgetful.outcome != result.outcome {
				forgetful.faults = append(forgetful.faults, "without its memory the controller came to\n"+forgetful.outcome+"\nand with it to\n"+result.outcome)
			}
		}
		if len(forgetful.faults) > 0 {
			return forgetful
		}
		return result
	})
	t.Logf("%d outcomes were compared", compared)
}

// forgetting returns the sequence with the memory dropped before each of the
// requests that follow each operation.
func forgetting(sequence random.Sequence) random.Sequence {
	ops := sequence.Ops
	sequence.Ops = nil
	for _, op := range ops {
		for before := range 10 {
			sequence.Ops = append(sequence.Ops, random.Op{Verb: random.Forget, Before: before + 1})
		}
		sequence.Ops = append(sequence.Ops, op)
	}
	return sequence
}

// check plays random sequences until one has faults. That one is shrunk, and the
// shortest that has faults too is printed.
func check(t *testing.T, checks int, kind random.Kind, play func(random.Sequence) simResult) {
	t.Helper()
	repeatable(t, checks)
	failure := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(failure)
		}
	})
	rapid.Check(t, func(t *rapid.T) {
		sequence := random.Generate(kind).Draw(t, "sequence")
		// Goroutines that are ready at the same time run in any order, so a sequence
		// that is part of shrinking may need several tries.
		tries := 1
		if failure != "" {
			tries = triesToShrink
		}
		for range tries {
			var result simResult
			rapid.SyncTest(t, func(*rapid.T) { result = play(sequence) })
			if len(result.faults) > 0 {
				failure = result.report(sequence)
				// One message for all, or rapid would not shrink.
				t.Fatal("the contract is broken")
			}
		}
	})
}

// repeatable makes rapid draw the same few sequences each time, unless it was told
// otherwise: a unit test that fails once in a while is no help to anyone.
func repeatable(t *testing.T, checks int) {
	t.Helper()
	if os.Getenv("KUBE_CACHE_MUTATION_DETECTOR") != "" {
		checks /= detectorPart
	}
	for name, value := range map[string]string{"rapid.checks": strconv.Itoa(checks), "rapid.seed": "1"} {
		given := os.Getenv("RAPID_CHECKS") != ""
		flag.Visit(func(f *flag.Flag) { given = given || strings.HasPrefix(f.Name, "rapid.") })
		if given {
			return
		}
		f := flag.Lookup(name)
		former := f.Value.String()
		if err := f.Value.Set(value); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { _ = f.Value.Set(former) })
	}
}

// triesToShrink is how often a sequence is played to see whether it fails too.
const triesToShrink = 10

// simResult is what came of a sequence.
type simResult struct {
	faults    []string
	trace     []string
	outcome   string
	contested bool
}

func (r *simResult) report(sequence random.Sequence) string {
	return fmt.Sprintf("%s\n\nafter\n\n%s\nwhich went like this:\n\n%s", strings.Join(r.faults, "\n"), sequence.Script(), strings.Join(r.trace, "\n"))
}

// simulate plays the sequence. The caller is in a synctest bubble.
func simulate(sequence random.Sequence) simResult {
	c := newSimCluster(sequence)
	c.start(0)
	c.play()
	c.calm()
	c.settle()
	c.mu.Lock()
	c.judge.faults = append(c.judge.faults, c.world().Faults()...)
	outcome, contested := c.world().Outcome()
	c.mu.Unlock()
	c.staysQuiet()
	c.process.stop()
	slices.Sort(c.judge.faults)
	return simResult{faults: slices.Compact(c.judge.faults), trace: c.trace, outcome: outcome, contested: contested}
}

// settle waits until all is as it should be and the controller has been quiet for
// a minute, or until it should have been.
func (c *simCluster) settle() {
	c.restarts.Wait()
	for began, requests := time.Now(), -1; time.Since(began) < settled; time.Sleep(time.Minute) {
		c.mu.Lock()
		rests := c.requests == requests && len(c.world().Faults()) == 0
		requests = c.requests
		c.mu.Unlock()
		if rests {
			return
		}
	}
}

// staysQuiet checks L1: there is nothing left to do, whatever makes the controller
// look.
func (c *simCluster) staysQuiet() {
	c.quietOver("time", func() { time.Sleep(quiet) })
	c.quietOver("a relist", func() {
		c.mu.Lock()
		c.do(random.Op{Verb: random.Break, Resource: random.Foos})
		c.do(random.Op{Verb: random.Break, Resource: random.Deployments})
		c.mu.Unlock()
		time.Sleep(10 * time.Second)
	})
	c.quietOver("a restart and resyncs", func() {
		c.process.stop()
		c.start(10 * time.Second)
		time.Sleep(25 * time.Second)
	})
}

func (c *simCluster) quietOver(what string, action func()) {
	c.mu.Lock()
	requests, events := c.requests, c.events
	c.logf("# The controller is to be quiet over %s.", what)
	c.mu.Unlock()
	action()
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.requests != requests || c.events != events {
		c.judge.report("L1: over %s there were %d requests and %d events", what, c.requests-requests, c.events-events)
	}
}
