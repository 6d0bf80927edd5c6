//go:build compare

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

package compare

import (
	"cmp"
	"fmt"
	"iter"
	"maps"
	"slices"
	"strings"
	"sync"
	"testing"

	"example.com/sample-controller/test/sim"
)

// The policies of namespaces, also terminating. Most have none.
const (
	rewrite = "rewrite"
	refuse  = "refuse"
)

var policies = []string{"", rewrite, refuse, terminating, rewrite, refuse}

// The states of an object.
const (
	absent      = "absent"
	live        = "live"
	terminating = "terminating"
	replaced    = "replaced"
	foreign     = "foreign"
)

// reordered is the answer to a write that changes nothing but the order of managers.
const reordered = "done, managers reordered"

// The preconditions of a request.
const (
	none         = "none"
	fresh        = "fresh"
	staleVersion = "stale version"
	staleUID     = "stale UID"
)

// namespaceDeleted stands for the request that makes a namespace terminating.
const namespaceDeleted = "delete the namespace"

// dryRun is the verb of a creation that is not stored.
const dryRun = "create, dry run"

// cell is a class of requests.
type cell struct {
	policy, resource, verb, precondition, state string
}

func (c cell) compare(d cell) int {
	return cmp.Or(strings.Compare(c.policy, d.policy), strings.Compare(c.resource, d.resource), strings.Compare(c.verb, d.verb),
		strings.Compare(c.precondition, d.precondition), strings.Compare(c.state, d.state))
}

// inForce returns the cell under the policy of the sequence.
func (s *sequence) inForce(c cell) cell {
	if c.policy = s.policy; c.policy == refuse || c.policy == terminating && !slices.Contains(s.sent, namespaceDeleted) {
		c.policy = ""
	}
	c.precondition = cmp.Or(c.precondition, none)
	return c
}

// table counts the answers to each class of requests.
type table struct {
	mu     sync.Mutex
	counts map[cell]map[string]int
}

func (t *table) add(c cell, answer string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.counts[c] == nil {
		t.counts[c] = map[string]int{}
	}
	t.counts[c][answer]++
}

// String is a table in Markdown.
func (t *table) String() string {
	var text strings.Builder
	text.WriteString("| policy | resource | request | precondition | object | answers |\n|---|---|---|---|---|---|\n")
	for _, c := range slices.SortedFunc(maps.Keys(t.counts), cell.compare) {
		var answers []string
		for _, answer := range slices.Sorted(maps.Keys(t.counts[c])) {
			answers = append(answers, fmt.Sprintf("%s: %d", answer, t.counts[c][answer]))
		}
		fmt.Fprintf(&text, "| %s | %s | %s | %s | %s | %s |\n", c.policy, c.resource, c.verb, c.precondition, c.state, strings.Join(answers, ", "))
	}
	return text.String()
}

// check fails the test if there is a class of requests that is possible and was sent too seldom.
func (t *table) check(test *testing.T, least int) {
	test.Helper()
	reasons := map[string]int{}
	for c := range classes() {
		count := 0
		for _, n := range t.counts[c] {
			count += n
		}
		if reason := impossible(c); reason != "" {
			reasons[reason]++
			if count > 0 {
				test.Errorf("%+v was sent, but: %s", c, reason)
			}
		} else if count < least {
			test.Errorf("%+v was sent %d times", c, count)
		}
	}
	for reason, count := range reasons {
		test.Logf("%d classes are empty: %s", count, reason)
	}
}

// classes are all combinations.
func classes() iter.Seq[cell] {
	return func(yield func(cell) bool) {
		one := func(c cell, verb string, preconditions ...string) {
			for _, c.state = range []string{absent, live, terminating, replaced, foreign} {
				for _, c.precondition = range preconditions {
					c.verb = verb
					yield(c)
				}
			}
		}
		for _, policy := range []string{"", rewrite, refuse} {
			deployments := cell{policy: policy, resource: sim.Deployments}
			one(deployments, "get", none)
			one(deployments, "create", none)
			one(deployments, dryRun, none)
			one(deployments, "patch", none, fresh, staleVersion, staleUID)
			one(deployments, "delete", none, fresh, staleVersion, staleUID)
			for _, verb := range slices.Compact(slices.Clone(deploymentVerbs)) {
				if policy != refuse && (policy != "" || verb != sim.EditDeployment) {
					one(deployments, string(verb), none)
				}
			}
		}
		foos, deployments, ending := cell{resource: sim.Foos}, cell{resource: sim.Deployments}, cell{policy: terminating, resource: sim.Deployments}
		one(foos, "get", none)
		one(foos, "patch status", none, fresh, staleVersion, staleUID)
		one(foos, "garbage collector", none)
		for _, verb := range slices.Compact(slices.Clone(fooVerbs)) {
			one(foos, string(verb), none)
		}
		one(deployments, "garbage collector", none)
		one(deployments, "Deployment controller", none)
		for _, edit := range edits {
			one(deployments, editing(edit), none)
		}
		// A terminating namespace changes creations alone.
		one(ending, "create", none)
		one(ending, dryRun, none)
		one(ending, string(sim.CreateForeign), none)
		one(cell{policy: terminating, resource: sim.Foos}, string(sim.CreateFoo), none)
	}
}

// editing returns how the table calls an edit of a Deployment.
func editing(edit sim.Edit) string { return string(sim.EditDeployment) + ": " + string(edit) }

// impossible returns why there are no such requests, "" if there are.
func impossible(c cell) string {
	switch {
	case c.resource == sim.Foos && c.state == foreign:
		return "Foos have no owner"
	case c.state == absent && c.precondition == fresh:
		return "what is absent has no version"
	case c.verb != "delete" && c.precondition == staleUID:
		return "patches have no UID"
	case c.state == live && c.precondition == staleUID:
		return "there was no other object of that name"
	}
	return ""
}
