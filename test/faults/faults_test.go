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
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"
	"time"
)

// attempts is how often a run is tried that does not come to its point.
const attempts = 3

// TestFaults plays each scenario without a fault, then once for each fault at
// each point of that run, and once for each fault of the watches. FAULTS=part
// plays a fixed part of these runs, in which each point of Foos meets some faults and
// each fault some points. To run one scenario: hack/faults.sh -run
// 'TestFaults/swap'; the faults of the watches: hack/faults.sh -run
// 'TestFaults//watches'
func TestFaults(t *testing.T) {
	part := os.Getenv("FAULTS")
	if part != "" && part != "all" && part != "part" {
		t.Fatalf("FAULTS=%s is neither all nor part", part)
	}
	var err error
	if shared, err = newSuite(); err != nil {
		t.Fatal(err)
	}
	if shared.recorder, err = newRecorder(t.Context(), shared.kube, shared.foos); err != nil {
		t.Fatal(err)
	}
	var reports []*report
	// It runs when all parallel subtests have ended.
	t.Cleanup(func() { writeReports(t, reports) })
	for _, k := range kinds() {
		about := newReport(k)
		reports = append(reports, about)
		every, everyWatch := 1, 1
		if part == "part" {
			every, everyWatch = k.every, k.everyWatch
		}
		for i, s := range k.scenarios {
			s.kind = k
			t.Run(s.sentence, func(t *testing.T) {
				t.Parallel()
				end, points := s.playFaultless(t)
				s.explore(t, &about.rows[i], points, every, end)
				s.exploreWatches(t, about.watches, i, everyWatch, end)
			})
		}
	}
	t.Run("random operations", func(t *testing.T) {
		t.Parallel()
		// They are Foos'.
		every := 1
		if part == "part" {
			every = fooKind().every
		}
		playRandom(t, &reports[0].rows[len(reports[0].rows)-1], every)
	})
}

// playFaultless plays the scenario without a fault and returns the state in which
// that ends, and the points where a fault can strike.
func (s *scenario) playFaultless(t *testing.T) (end string, points []point) {
	t.Helper()
	r := newRun(t, s, nil)
	end = r.play(point{}, nil, "")
	r.close()
	return end, slices.Clone(r.proxy.points)
}

// explore plays the scenario with each fault at each point.
func (s *scenario) explore(t *testing.T, result *row, points []point, every int, end string) {
	began := time.Now()
	result.sentence, result.played = s.sentence, true
	for i, p := range points {
		if p.isStep() {
			result.steps++
		} else {
			result.requests++
		}
		for j, strike := range faultsOf(s.kind) {
			if p.isStep() && !strike.kills || (i+j)%every != 0 {
				continue
			}
			result.runs++
			t.Run(fmt.Sprintf("%s #%d, %s", p.request, p.nth, s.kind.named(strike.name)), func(t *testing.T) {
				t.Parallel()
				unreached := ""
				t.Cleanup(func() { result.ended(time.Since(began), t.Failed(), unreached) })
				if s.reaches(t, p, strike, end) {
					return
				}
				unreached = fmt.Sprintf("%s: %s #%d, %s", s.sentence, p.request, p.nth, s.kind.named(strike.name))
				if p.mustCome() {
					t.Errorf("no run came to this point in %d attempts", attempts)
				}
			})
		}
	}
}

// reaches plays the scenario with that fault at that point, and reports whether
// it came to the point.
func (s *scenario) reaches(t *testing.T, p point, strike *fault, end string) bool {
	for range attempts {
		r := newRun(t, s, nil)
		r.play(p, strike, end)
		r.close()
		if r.proxy.reached() {
			return true
		}
	}
	return false
}

// row is what the report says of one scenario.
type row struct {
	sentence string
	// played says that the scenario was selected, and passed without a fault.
	played                bool
	requests, steps, runs int

	mu             sync.Mutex
	passed, failed int
	unreached      []string
	took           time.Duration
}

// ended counts a run. One that did not come to its point has not passed.
func (r *row) ended(after time.Duration, failed bool, unreached string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.took = max(r.took, after)
	switch {
	case failed:
		r.failed++
	case unreached == "":
		r.passed++
	}
	if unreached != "" {
		r.unreached = append(r.unreached, unreached)
	}
}

// report is what hack/faults.sh prints in the end about one kind.
type report struct {
	kind    *kind
	rows    []row
	watches []watchRow
}

// newReport returns one with a row for each scenario, and one more.
func newReport(k *kind) *report {
	return &report{kind: k, rows: make([]row, len(k.scenarios)+1), watches: make([]watchRow, len(watchFaults))}
}

// writeReports writes the tables to where hack/faults.sh expects them.
func writeReports(t *testing.T, reports []*report) {
	var texts []string
	for _, r := range reports {
		if text := r.text(t); text != "" {
			texts = append(texts, text)
		}
	}
	if err := os.WriteFile(filepath.Join(shared.work, "report"), []byte(strings.Join(texts, "\n")), 0o644); err != nil {
		t.Error(err)
	}
}

// text returns the tables, "" if nothing was played.
func (r *report) text(t *testing.T) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "requests\tsteps\truns\tpassed\tfailed\tnot reached\tseconds\t  scenario")
	line := func(row *row, name string) {
		fmt.Fprintf(table, "%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t  %s\n",
			row.requests, row.steps, row.runs, row.passed, row.failed, len(row.unreached), row.took.Seconds(), name)
	}
	total := &row{}
	for i := range r.rows {
		row := &r.rows[i]
		if !row.played {
			continue
		}
		line(row, row.sentence)
		total.played = true
		total.took = max(total.took, row.took)
		total.requests += row.requests
		total.steps += row.steps
		total.runs += row.runs
		total.passed += row.passed
		total.failed += row.failed
		total.unreached = append(total.unreached, row.unreached...)
	}
	if !total.played {
		return ""
	}
	line(total, "all of "+r.kind.parent)
	if err := table.Flush(); err != nil {
		t.Error(err)
	}
	text.WriteString(r.aboutWatches(t))
	if len(total.unreached) > 0 {
		slices.Sort(total.unreached)
		fmt.Fprintf(&text, "\nNot reached in %d attempts each, hence not tested (the controller had no occasion for the request):\n  %s\n",
			attempts, strings.Join(total.unreached, "\n  "))
	}
	return text.String()
}
