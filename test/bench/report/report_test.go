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
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"example.com/sample-controller/test/bench/result"
)

// files writes the two input files of the report and returns their paths.
func files(t *testing.T, benchmarks string, all ...result.Measurement) (results, printed string) {
	t.Helper()
	var lines strings.Builder
	for _, m := range all {
		text, err := json.Marshal(m)
		if err != nil {
			t.Fatal(err)
		}
		lines.Write(append(text, '\n'))
	}
	directory := t.TempDir()
	results, printed = filepath.Join(directory, "results"), filepath.Join(directory, "go-bench")
	for path, text := range map[string]string{results: lines.String(), printed: benchmarks} {
		if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	return results, printed
}

func converge(objects int, ratio, rate float64) result.Measurement {
	return result.Measurement{Row: "converge", Who: result.Ours, Objects: objects, Workers: workers, Value: ratio, Details: map[string]float64{"created/s": rate, "requests/Foo": 2}}
}

const benchmarked = `goos: linux
BenchmarkSync/foos=1000-2     	  300000	      3500 ns/op	     900 B/op	      11 allocs/op
BenchmarkSync/foos=1000-2     	  300000	      3000 ns/op	     900 B/op	      11 allocs/op
BenchmarkSync/foos=100000-2   	  300000	      3300 ns/op	     900 B/op	      11 allocs/op
BenchmarkSync/foos=100000-2   	  300000	      9300 ns/op	     900 B/op	      11 allocs/op
PASS
`

func TestReport(t *testing.T) {
	tests := map[string]struct {
		measured []result.Measurement
		rows     map[string]string
		missed   []string
	}{
		"only the benchmarks ran": {
			rows: map[string]string{
				"no-op sync: allocations":                      "≤ 12 11 pass",
				"no-op sync: time with 100000 Foos, over 1000": "≤ 1.2 1.1 pass",
				"converge 2000 Foos, over raw POSTs":           "≥ 0.85 - not measured",
			},
		},
		"a row misses its target": {
			measured: []result.Measurement{converge(2000, 0.5, 500)},
			rows:     map[string]string{"converge 2000 Foos, over raw POSTs": "≥ 0.85 0.5 FAIL"},
			missed:   []string{"converge 2000 Foos, over raw POSTs"},
		},
		"of two measurements of a row the last one counts": {
			measured: []result.Measurement{converge(2000, 0.5, 500), converge(2000, 0.9, 500)},
			rows:     map[string]string{"converge 2000 Foos, over raw POSTs": "≥ 0.85 0.9 pass"},
		},
		"a count has to be exact": {
			measured: []result.Measurement{{Row: "create: status writes", Who: result.Ours, Value: 1.005}, {Row: "create: Deployment writes", Who: result.Ours, Value: 1}},
			rows:     map[string]string{"a new Foo: status writes": "= 1 1.005 FAIL", "a new Foo: Deployment writes": "= 1 1 pass"},
			missed:   []string{"a new Foo: status writes"},
		},
		"a measurement of another number of objects does not count": {
			measured: []result.Measurement{converge(1000, 1, 900)},
			rows:     map[string]string{"converge 2000 Foos, over raw POSTs": "≥ 0.85 - not measured"},
		},
		"a peer has no verdict": {
			measured: []result.Measurement{{Row: "full cluster", Who: result.Ours, Value: 1.1}, {Row: "full cluster", Who: "peer", Value: 1.5}},
			rows:     map[string]string{"full cluster: 1000 Foos until Ready, over 1000 bare Deployments": "≤ 1.15 1.1 1.5 pass"},
		},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			table, missed, report := runReport(t, test.measured)
			if !slices.Equal(missed, test.missed) {
				t.Errorf("run() missed %q, want %q", missed, test.missed)
			}
			for row, want := range test.rows {
				if got := rowOf(table, row); got != want {
					t.Errorf("row %q is %q, want %q in\n%s", row, got, want, table)
				}
			}
			if len(report.Rows) != len(targets()) || len(report.Measurements) != len(test.measured)+2 || report.Machine.CPUs == 0 {
				t.Errorf("results.json: %+v", report)
			}
		})
	}
}

// runReport returns the printed table, the rows in run's error, and the content of results.json.
func runReport(t *testing.T, measured []result.Measurement) (table string, missed []string, report result.Report) {
	t.Helper()
	results, printed := files(t, benchmarked, measured...)
	out := t.TempDir()
	var text strings.Builder
	if err := run(results, printed, out, &text); err != nil {
		for line := range strings.Lines(err.Error()) {
			missed = append(missed, strings.TrimSpace(strings.TrimPrefix(line, "missed its target: ")))
		}
	}
	content, err := os.ReadFile(filepath.Join(out, "results.json"))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal(content, &report); err != nil {
		t.Fatal(err)
	}
	return text.String(), missed, report
}

// rowOf returns the columns after the row's name, separated by one blank.
func rowOf(table, name string) string {
	for line := range strings.Lines(table) {
		if rest, found := strings.CutPrefix(line, name+" "); found {
			return strings.Join(strings.Fields(rest), " ")
		}
	}
	return ""
}

func TestReportOfBrokenFiles(t *testing.T) {
	results, printed := files(t, benchmarked, converge(1, 1, 1))
	for name, test := range map[string]struct{ results, printed, want string }{
		"no results":        {"nowhere", printed, "nowhere"},
		"results no JSON":   {printed, printed, "invalid character"},
		"no benchmarks":     {results, "nowhere", "nowhere"},
		"not from go bench": {results, broken(t), "invalid syntax"},
	} {
		t.Run(name, func(t *testing.T) {
			if err := run(test.results, test.printed, "", &strings.Builder{}); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("run() = %v, want an error with %q", err, test.want)
			}
		})
	}
}

func broken(t *testing.T) string {
	t.Helper()
	_, printed := files(t, "BenchmarkSync/foos=many 1 2 ns/op\n")
	return printed
}
