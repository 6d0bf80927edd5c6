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
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"k8s.io/apimachinery/pkg/util/sets"
	"pgregory.net/rapid"

	"example.com/sample-controller/test/fixture"
)

// Start is a settled cluster that is explored.
type Start struct {
	Name string
	// IsLarge says that it is left out under the race detector, with which it takes ten times as long.
	IsLarge bool
	// Operations are those before, and Then those that users may do.
	Operations, Then []Operation
	// Part are the budgets of `make test`, operations+deviations, and All those of `make explore`, "1+0 2+0 1+1" if empty.
	Part, All string
	// Workers is how many syncs may be in progress at once, 0 for one.
	Workers int
	// Until is when the exploration ends, zero for never.
	Until time.Time
}

// pathVariable has the path that Check takes in place of all explorations.
const pathVariable = "EXPLORE_PATH"

// conditionsFiles have a line for each condition that a status may have at rest, with "passing: " before one that
// another one follows, without users.
const conditionsFiles = "testdata/explore/*.txt"

// Scope returns the scope with a budget, such as "1+0", and the operation of that number first, 0 if that may be any.
func (s *Start) Scope(t *testing.T, first int, text string) Scope {
	scope := Scope{Start: *s, First: first}
	if _, err := fmt.Sscanf(text, "%d+%d", &scope.Budget.Operations, &scope.Budget.Deviations); err != nil {
		t.Fatalf("budget %q: %v", text, err)
	}
	return scope
}

// String begins the text of a path.
func (s Scope) String() string {
	return fmt.Sprintf("%s/%d/%d+%d", s.Name, s.First, s.Budget.Operations, s.Budget.Deviations)
}

// Check explores from each start: every interleaving of users' operations, watches, handlers, syncs, garbage collector,
// controllers around and deviations, such as faults (docs/explore.md).
//
//   - EXPLORE_STATES is the number of states after which each exploration ends. If it is set, the scope is that of
//     `make explore`; if not, each exploration must come to its end.
//   - EXPLORE_BUDGETS, such as "1+0 1+1", are budgets in place of those: operations+deviations.
//   - EXPLORE_FIRST is a part of the story of the operation that users do first.
//   - EXPLORE_WITHOUT, of "detached leader held", is what does not happen.
//   - EXPLORE_PATH is a path that was printed, to be told and judged alone.
//
// Under the race detector, which takes ten times as long, there are no deviations and no large starts.
func Check(t *testing.T, kind Kind, starts ...Start) {
	t.Cleanup(func() { debug.SetGCPercent(debug.SetGCPercent(400)) })
	maxStates, _ := strconv.Atoi(os.Getenv("EXPLORE_STATES"))
	kind.MayBe = mayBe(t)
	for _, start := range starts {
		t.Run(start.Name, func(t *testing.T) {
			if path, ok := os.LookupEnv(pathVariable); ok {
				replay(t, kind, start, path)
				return
			}
			t.Parallel()
			budgets := start.Part
			switch {
			case os.Getenv("EXPLORE_BUDGETS") != "":
				budgets = os.Getenv("EXPLORE_BUDGETS")
			case maxStates > 0:
				budgets = cmp.Or(start.All, "1+0 2+0 1+1")
			case os.Getenv("KUBE_CACHE_MUTATION_DETECTOR") != "" && start.Part != "":
				if budgets = "1+0"; start.IsLarge {
					budgets = ""
				}
			}
			for budget := range strings.FieldsSeq(budgets) {
				// go test tells how long it takes.
				if !t.Run(budget, func(t *testing.T) { start.explore(t, kind, budget, maxStates) }) {
					return
				}
			}
		})
	}
}

// mayBe returns Kind.MayBe, nil if there are no files with conditions.
func mayBe(t *testing.T) func(string) bool {
	known := sets.Set[string]{}
	files, err := filepath.Glob(conditionsFiles)
	for _, file := range files {
		text, readErr := os.ReadFile(file)
		err = errors.Join(err, readErr)
		for line := range strings.Lines(string(text)) {
			// A fork that is without a part has the lines for that as comments.
			known.Insert(strings.TrimPrefix(strings.TrimSuffix(line, "\n"), "# "))
		}
	}
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		return nil
	}
	return known.Has
}

// explore explores with each operation first, and tells the totals.
func (s *Start) explore(t *testing.T, kind Kind, budget string, maxStates int) {
	total := Result{Closed: true}
	for first := range max(1, len(s.Then)) {
		scope := s.Scope(t, min(first+1, len(s.Then)), budget)
		if t.Failed() || len(s.Then) > 0 && !strings.Contains(s.Then[first].Story, os.Getenv("EXPLORE_FIRST")) {
			continue
		}
		scope.MaxStates, scope.Without = maxStates, strings.Fields(os.Getenv("EXPLORE_WITHOUT"))
		result := New(t.Context(), kind).Run(scope)
		total.Add(result)
		if !result.Closed && maxStates == 0 {
			t.Errorf("%s: the exploration did not come to an end", scope)
		}
		for _, v := range result.Violations {
			t.Errorf("%s", v)
		}
	}
	t.Logf("%s: %s", budget, total)
}

// replay takes a path that was printed, if it begins at that start.
func replay(t *testing.T, kind Kind, start Start, path string) {
	parts := strings.Split(path, "/")
	if len(parts) != 4 || parts[0] != start.Name {
		return
	}
	first, err := strconv.Atoi(parts[1])
	if err != nil {
		t.Fatal(err)
	}
	var numbers []int
	for number := range strings.FieldsSeq(parts[3]) {
		n, err := strconv.Atoi(number)
		if err != nil {
			t.Fatal(err)
		}
		numbers = append(numbers, n)
	}
	story, violations := New(t.Context(), kind).Replay(start.Scope(t, first, parts[2]), numbers)
	t.Log(strings.Join(story, "\n    "))
	for _, violation := range violations {
		t.Error(violation)
	}
}

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
	operations, faults := len(scope.Then), scope.Budget.Deviations
	scope.Budget = Budget{Operations: operations, Deviations: operations + faults}
	e.scope, e.found = scope, nil
	e.root = e.start()
	s := e.root
	var end time.Time
	for quiet := 0; len(e.found) == 0; {
		steps := e.steps(s)
		users := only(steps, func(step step) bool { return step.kind == operate && step.at == operations-s.left.Operations })
		deviations := only(steps, func(step step) bool { return step.kind != operate && step.costs > 0 && faults > 0 })
		free := only(steps, func(step step) bool { return step.kind != operate && step.costs == 0 })
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

func only(steps []step, is func(step) bool) []step {
	return slices.DeleteFunc(slices.Clone(steps), func(step step) bool { return !is(step) })
}
