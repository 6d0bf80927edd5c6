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

var policies = []string{"", rewrite, refuse, terminating, rewrite, refuse, terminating}

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

// editing returns how the table calls an edit of a Deployment.
func editing(edit sim.Edit) string { return string(sim.EditDeployment) + ": " + string(edit) }

// isEnding reports whether the namespace is terminating.
func (s *sequence) isEnding() bool { return slices.Contains(s.sent, namespaceDeleted) }

// inForce returns the cell under the policy of the sequence.
func (s *sequence) inForce(c cell) cell {
	if c.policy = s.policy; c.policy == refuse || c.policy == terminating && !s.isEnding() {
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

// check fails the test if a class of requests is possible and was sent too seldom: each request that was sent at all,
// with each precondition, to an object in each state.
func (t *table) check(test *testing.T, least int) {
	test.Helper()
	rows, empty := map[cell]bool{}, map[string]int{}
	for c := range t.counts {
		c.state, c.precondition = "", ""
		rows[c] = true
	}
	for c := range rows {
		for _, c.state = range []string{absent, live, terminating, replaced, foreign} {
			for _, c.precondition = range []string{none, fresh, staleVersion, staleUID} {
				count := 0
				for _, n := range t.counts[c] {
					count += n
				}
				if reason := whyEmpty(c); reason == "" && count < least {
					test.Errorf("%+v was sent %d times", c, count)
				} else if reason != "" && count == 0 {
					empty[reason]++
				}
			}
		}
	}
	for reason, count := range empty {
		test.Logf("%d classes are empty: %s", count, reason)
	}
}

// whyEmpty returns why there may be no such requests, "" if there must be some.
func whyEmpty(c cell) string {
	switch {
	case strings.HasPrefix(c.verb, "list"):
		return "a list is of no object"
	case c.policy == terminating && !strings.HasPrefix(c.verb, "create"):
		return "a terminating namespace changes creations alone"
	case c.policy == rewrite && c.resource == sim.Foos:
		return "the policy changes Deployments alone"
	case c.resource == sim.Foos && c.state == foreign:
		return "Foos have no owner"
	case c.precondition != none && c.verb != "delete" && !strings.HasPrefix(c.verb, "patch"):
		return "reads, creations and what users do have no precondition"
	case c.precondition == staleUID && c.verb != "delete":
		return "patches have no UID"
	case c.precondition == staleUID && (c.state == live || c.state == foreign):
		return "there was no other object of that name"
	case c.precondition == fresh && c.state == absent:
		return "what is absent has no version"
	}
	return ""
}
