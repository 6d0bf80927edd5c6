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

// scenarioRow is the row of one scenario in the table of request faults.
type scenarioRow struct {
	name string
	// ran is set when the scenario was selected and passed without a fault.
	ran                   bool
	requests, steps, runs int

	mu             sync.Mutex
	passed, failed int
	unreached      []string
	took           time.Duration
}

// record counts a run. A run that did not reach its point counts as unreached only.
func (r *scenarioRow) record(after time.Duration, failed bool, unreached string) {
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

func (r *scenarioRow) add(other *scenarioRow) {
	r.took = max(r.took, other.took)
	r.requests += other.requests
	r.steps += other.steps
	r.runs += other.runs
	r.passed += other.passed
	r.failed += other.failed
	r.unreached = append(r.unreached, other.unreached...)
}

func (r *scenarioRow) line(name string) string {
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t  %s",
		r.requests, r.steps, r.runs, r.passed, r.failed, len(r.unreached), r.took.Seconds(), name)
}

// watchRow is the row of one fault in the table of watch faults.
type watchRow struct {
	mu sync.Mutex
	// notInjected counts the runs in which the fault had no occasion. They have not passed.
	runs, passed, failed, notInjected int
	injections, requests              int
	longest                           time.Duration
}

// record counts a run. r is nil if the run could not start.
func (w *watchRow) record(took time.Duration, failed bool, r *run) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.runs++
	w.longest = max(w.longest, took)
	injections := 0
	if r != nil {
		injections = r.proxy.watches.injectionCount()
		w.requests += len(r.proxy.recorded())
	}
	w.injections += injections
	switch {
	case failed:
		w.failed++
	case injections == 0:
		w.notInjected++
	default:
		w.passed++
	}
}

func (w *watchRow) add(other *watchRow) {
	w.longest = max(w.longest, other.longest)
	w.runs += other.runs
	w.passed += other.passed
	w.failed += other.failed
	w.notInjected += other.notInjected
	w.injections += other.injections
	w.requests += other.requests
}

func (w *watchRow) line(name string) string {
	return fmt.Sprintf("%d\t%d\t%d\t%d\t%d\t%d\t%.0f\t  %s",
		w.runs, w.passed, w.failed, w.notInjected, w.injections, w.requests, w.longest.Seconds(), name)
}

// kindReport is the part of the report of hack/e2e.sh faults about one kind.
type kindReport struct {
	suite   *kindSuite
	rows    []scenarioRow
	watches []watchRow
}

// newKindReport returns a report with a row for each scenario and one for random
// operations.
func newKindReport(k *kindSuite) *kindReport {
	return &kindReport{suite: k, rows: make([]scenarioRow, len(k.scenarios)+1), watches: make([]watchRow, len(watchFaults))}
}

// text returns the tables, "" if nothing ran.
func (r *kindReport) text() string {
	lines := []string{"requests\tsteps\truns\tpassed\tfailed\tnot reached\tseconds\t  scenario"}
	total := &scenarioRow{}
	for i := range r.rows {
		if row := &r.rows[i]; row.ran {
			lines = append(lines, row.line(row.name))
			total.add(row)
		}
	}
	if len(lines) == 1 {
		return ""
	}
	text := formatTable(append(lines, total.line("all of "+r.suite.Kind))...) + r.watchTable()
	if len(total.unreached) > 0 {
		slices.Sort(total.unreached)
		text += fmt.Sprintf("\nNot reached in %d attempts each, hence not tested (the controller had no reason to send the request):\n  %s\n",
			attempts, strings.Join(total.unreached, "\n  "))
	}
	return text
}

// watchTable returns the table of watch faults, "" if none ran.
func (r *kindReport) watchTable() string {
	lines := []string{"\nscenarios\tpassed\tfailed\tnot injected\tinjections\trequests\tlongest\t  watch fault"}
	total := &watchRow{}
	for i := range r.watches {
		if w := &r.watches[i]; w.runs > 0 {
			lines = append(lines, w.line(r.suite.faultName(watchFaults[i].name)))
			total.add(w)
		}
	}
	if len(lines) == 1 {
		return ""
	}
	return formatTable(append(lines, total.line("all of "+r.suite.Kind))...)
}

// formatTable aligns the columns of lines whose cells end in tabs.
func formatTable(lines ...string) string {
	var text strings.Builder
	table := tabwriter.NewWriter(&text, 0, 0, 2, ' ', tabwriter.AlignRight)
	// A strings.Builder returns no errors.
	_, _ = fmt.Fprintln(table, strings.Join(lines, "\n"))
	_ = table.Flush()
	return text.String()
}

// writeReport writes the file that the scripts in hack print when the tests have ended.
func writeReport(t *testing.T, text string) {
	t.Helper()
	if err := os.WriteFile(filepath.Join(cluster.work, "report"), []byte(text), 0o644); err != nil {
		t.Error(err)
	}
}
