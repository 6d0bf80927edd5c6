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
	"os"
	"strconv"
	"testing"
	"time"
)

// Start is a settled cluster that is explored.
type Start struct {
	Name string
	// IsLarge says that it is left out under the race detector, with which it takes ten times as long.
	IsLarge bool
	// IsHuge says that only `make explore` explores it.
	IsHuge bool
	// Operations are those before, and Then those that users may do.
	Operations, Then []Operation
	// Budget is explored first, one operation if it is zero.
	Budget Budget
	// Until is when the exploration ends, zero for never.
	Until time.Time
}

// Check explores what becomes of one operation in each start: every interleaving of watches, handlers, syncs and the
// controllers around. `make explore`, which sets EXPLORE_STATES, goes on with two operations, and with one operation
// and one deviation, and says whether it came to the end of that scope.
func Check(t *testing.T, kind Kind, starts ...Start) {
	isSmall := os.Getenv("KUBE_CACHE_MUTATION_DETECTOR") != ""
	maxStates, _ := strconv.Atoi(os.Getenv("EXPLORE_STATES"))
	for _, start := range starts {
		budgets := []Budget{start.Budget}
		if start.Budget == (Budget{}) {
			budgets[0].Operations = 1
		}
		if maxStates > 0 {
			budgets = append(budgets, Budget{Operations: 2}, Budget{Operations: 1, Deviations: 1})
		}
		t.Run(start.Name, func(t *testing.T) {
			t.Parallel()
			if start.IsLarge && isSmall || start.IsHuge && maxStates == 0 {
				return
			}
			for _, budget := range budgets {
				result := New(t.Context(), kind).Run(Scope{Start: start.Operations, Operations: start.Then, Budget: budget, Until: start.Until, MaxStates: maxStates})
				t.Logf("%+v: %d states, %d transitions, depth %d, closed %t", budget, result.States, result.Transitions, result.Depth, result.Closed)
				if !result.Closed && maxStates == 0 {
					t.Error("the exploration did not come to an end")
				}
				for _, v := range result.Violations {
					t.Errorf("%s", v)
				}
			}
		})
	}
}
