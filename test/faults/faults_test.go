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
	"os"
	"slices"
	"strings"
	"testing"
	"time"
)

// attempts is how often a run is repeated that does not reach its point.
const attempts = 3

// TestFaults runs each scenario without a fault, then once for each fault at each point
// of that run, and once for each fault of the watches. With FAULTS=part it runs a fixed
// part of these, in which each point of the Foo scenarios gets a fault, and each
// fault some points. To run one scenario: hack/e2e.sh faults -run 'TestFaults/swap'; the
// faults of the watches: hack/e2e.sh faults -run 'TestFaults//watches'
func TestFaults(t *testing.T) {
	part := isPart(t)
	var err error
	if cluster, err = newTestCluster(); err != nil {
		t.Fatal(err)
	}
	suites, err := newKindSuites()
	if err != nil {
		t.Fatal(err)
	}
	if cluster.recorder, err = startRecorder(t.Context(), suites); err != nil {
		t.Fatal(err)
	}
	awaitPolicies(t)
	var reports []*kindReport
	// Cleanup runs after all parallel subtests.
	t.Cleanup(func() {
		var texts []string
		for _, r := range reports {
			if text := r.text(); text != "" {
				texts = append(texts, text)
			}
		}
		writeReport(t, strings.Join(texts, "\n"))
	})
	for _, k := range suites {
		report := newKindReport(k)
		reports = append(reports, report)
		every, everyWatch := 1, 1
		if part {
			every, everyWatch = k.every, k.everyWatch
		}
		for i, s := range k.scenarios {
			s.suite = k
			t.Run(s.name, func(t *testing.T) {
				t.Parallel()
				end, points := s.runFaultless(t)
				s.runRequestFaults(t, &report.rows[i], points, every, end)
				s.runWatchFaults(t, report.watches, i, everyWatch, end)
			})
		}
	}
	t.Run("random operations", func(t *testing.T) {
		t.Parallel()
		// The random operations are on Foos, so the report has them below Foos.
		foos, every := reports[0], 1
		if part {
			every = foos.suite.every
		}
		runRandom(t, foos.suite, &foos.rows[len(foos.rows)-1], every)
	})
}

// isPart reports whether the environment selects only a part of the runs.
func isPart(t *testing.T) bool {
	t.Helper()
	part := os.Getenv("FAULTS")
	if part != "" && part != "all" && part != "part" {
		t.Fatalf("FAULTS=%s is neither all nor part", part)
	}
	return part == "part"
}

// runFaultless runs the scenario without a fault. It returns the final state, and the
// points at which a fault can be injected.
func (s *scenario) runFaultless(t *testing.T) (end string, points []point) {
	t.Helper()
	r := newRun(t, s, nil)
	end = r.execute(point{}, nil, "")
	r.close()
	return end, slices.Clone(r.proxy.points)
}

// runRequestFaults runs the scenario once for each fault at each point.
func (s *scenario) runRequestFaults(t *testing.T, row *scenarioRow, points []point, every int, end string) {
	began := time.Now()
	row.name, row.ran = s.name, true
	for i, p := range points {
		if p.isStep() {
			row.steps++
		} else {
			row.requests++
		}
		for j, f := range requestFaultsFor(s.suite) {
			if p.isStep() && !f.kills || (i+j)%every != 0 {
				continue
			}
			row.runs++
			name := fmt.Sprintf("%s #%d, %s", p.request, p.nth, s.suite.faultName(f.name))
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				unreached := ""
				t.Cleanup(func() { row.record(time.Since(began), t.Failed(), unreached) })
				if s.runUntilInjected(t, p, f, end) {
					return
				}
				unreached = s.name + ": " + name
				if p.alwaysReached(s.suite) {
					t.Errorf("no run reached this point in %d attempts", attempts)
				}
			})
		}
	}
}

// runUntilInjected runs the scenario with that fault at that point, again if a run does
// not reach the point. It reports whether one did.
func (s *scenario) runUntilInjected(t *testing.T, p point, f *fault, end string) bool {
	for range attempts {
		r := newRun(t, s, nil)
		r.execute(p, f, end)
		r.close()
		if r.proxy.faultInjected() {
			return true
		}
	}
	return false
}

// runWatchFaults runs the scenario, which has that index, once for each fault of the
// watches, or for every nth, starting at another one for each scenario.
func (s *scenario) runWatchFaults(t *testing.T, rows []watchRow, index, every int, end string) {
	for i, fault := range watchFaults {
		if (index+i)%every != 0 || !s.suite.hasRoles(fault.roles) {
			continue
		}
		t.Run("watches: "+s.suite.faultName(fault.name), func(t *testing.T) {
			t.Parallel()
			began := time.Now()
			var r *run
			t.Cleanup(func() { rows[i].record(time.Since(began), t.Failed(), r) })
			r = newRun(t, s, fault)
			r.execute(point{}, nil, end)
			r.close()
		})
	}
}
