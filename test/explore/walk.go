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

package explore

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"example.com/sample-controller/test/fixture"
)

const (
	// One step in so many of a walk is the next operation, or a deviation, while any are left.
	operationIn = 12
	deviationIn = 20
	// maxQuiet is how many steps may follow the last operation and the last deviation, and restTime how long a cluster
	// at rest waits: longer than the longest contention.
	maxQuiet = 5000
	restTime = time.Hour
)

// Walks takes that many walks, always the same ones unless RAPID_CHECKS or a flag of rapid says otherwise, with what is
// drawn. It tells the shortest one that it finds in which the contract is broken.
func Walks(t *testing.T, walks int, draw func(*rapid.T) (Kind, Scope)) {
	fixture.FixSeed(t, walks)
	story := ""
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(story)
		}
	})
	rapid.Check(t, func(r *rapid.T) {
		kind, scope := draw(r)
		seed := rapid.Uint64().Draw(r, "seed")
		ctx, cancel := context.WithCancel(t.Context())
		defer cancel()
		if violations, steps := New(ctx, kind).Walk(scope, seed); len(violations) > 0 {
			story = strings.Join(append(violations, steps...), "\n    ")
			r.Fatal("the contract is broken")
		}
	})
}

// Walk takes random steps from the start of the scope: its operations in their order, each of which may come before
// the cluster is at rest, its budget of other deviations, and all that follows. It judges each state on the way, and
// the end as Run does. A walk goes further than an exploration, and tries a few of all interleavings.
func (e *Explorer) Walk(scope Scope, seed uint64) (violations, story []string) {
	random := rand.New(rand.NewPCG(seed, 0))
	operations, faults := len(scope.Operations), scope.Budget.Deviations
	scope.Budget = Budget{Operations: operations, Deviations: operations + faults}
	e.scope, e.found = scope, nil
	e.root = e.start()
	s := e.root
	var end time.Time
	for quiet := 0; len(e.found) == 0; {
		steps := e.steps(s)
		users, rest := split(steps, func(step step) bool { return step.kind == operate })
		users = slices.DeleteFunc(users, func(step step) bool { return step.at != operations-s.left.Operations })
		deviations, free := split(rest, func(step step) bool { return step.costs > 0 })
		if faults == 0 {
			deviations = nil
		}
		if len(users) == 0 && end.IsZero() {
			end = s.process.now.Add(restTime)
		}
		isDone := len(users) == 0 && (len(free) == 0 || free[0].kind == pass && !end.IsZero() && s.process.timers[0].due.After(end))
		switch {
		case isDone:
			wrong, isIdle := e.wrongAtRest(s)
			if !isIdle {
				wrong = append(wrong, "rule 23: a process at rest remembers something")
			}
			return wrong, story
		case len(users) > 0 && (len(free) == 0 || random.IntN(operationIn) == 0):
			free = users
		case len(deviations) > 0 && random.IntN(deviationIn) == 0:
			free, end, quiet = deviations, time.Time{}, 0
			faults--
		}
		if !end.IsZero() {
			if quiet++; quiet > maxQuiet {
				return []string{fmt.Sprintf("L1: after %d steps it still goes on", maxQuiet)}, story
			}
		}
		next := free[random.IntN(len(free))]
		story = append(story, e.tell(s, next))
		t := e.take(s, next)
		if t == nil {
			// The operation changes nothing.
			same := *s
			same.left.Operations--
			t = &same
		}
		s = t
	}
	return e.found, story
}

func split(steps []step, is func(step) bool) (those, others []step) {
	for _, step := range steps {
		if is(step) {
			those = append(those, step)
		} else {
			others = append(others, step)
		}
	}
	return those, others
}
