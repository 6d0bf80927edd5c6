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

// converge returns the rates of the controller and of another program in a round.
func converge(other string, round int, ours, theirs float64) []result.Measurement {
	details := map[string]float64{"statuses/Foo": 0.1 * float64(round)}
	return []result.Measurement{
		{Row: "converge", Who: result.Ours, Round: round, Objects: many, Value: ours, Details: details},
		{Row: "converge", Who: other, Round: round, Objects: many, Value: theirs},
	}
}

const (
	overPeer  = "converge 2000 Foos: rate over the peer's"
	overPlain = "converge 2000 Foos: rate over a plain client's"
)

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
				"no-op sync: allocations":                      "≤ 40 11 pass",
				"no-op sync: time with 100000 Foos, over 1000": "≤ 1.2 1.1 pass",
				overPeer: "≥ 1 - not measured",
			},
		},
		"a ratio is that of the same round, not of the order in the file": {
			measured: slices.Concat(converge(result.Peer, 1, 300, 200)[:1], converge(result.Peer, 2, 600, 400), converge(result.Peer, 1, 300, 200)[1:]),
			rows:     map[string]string{overPeer: "≥ 1 1.5 1.5 to 1.5 2 pass", overPlain: "≥ 0.95 - not measured"},
		},
		"a round without the other program does not count": {
			measured: slices.Concat(converge(result.Plain, 1, 95, 100), converge(result.Plain, 2, 95, 100), converge(result.Plain, 3, 1, 1)[:1]),
			rows:     map[string]string{overPlain: "≥ 0.95 0.95 0.95 to 0.95 2 pass"},
		},
		"one round has no interval": {
			measured: converge(result.Peer, 1, 500, 100),
			rows:     map[string]string{overPeer: "≥ 1 - not measured"},
		},
		"the whole interval misses the target": {
			measured: slices.Concat(converge(result.Peer, 1, 200, 400), converge(result.Peer, 2, 300, 600)),
			rows:     map[string]string{overPeer: "≥ 1 0.5 0.5 to 0.5 2 FAIL"},
			missed:   []string{overPeer},
		},
		"the interval allows no verdict": {
			measured: slices.Concat(converge(result.Peer, 1, 100, 100), converge(result.Peer, 2, 110, 100)),
			rows:     map[string]string{overPeer: "≥ 1 1.049 0.5724 to 1.922 2 undecided"},
		},
		"of the statuses the highest round counts": {
			measured: slices.Concat(converge(result.Peer, 14, 100, 100), converge(result.Peer, 2, 100, 100)),
			rows:     map[string]string{"statuses a Foo: converge, 2000": "≤ 1.3 1.4 FAIL"},
			missed:   []string{"statuses a Foo: converge, 2000"},
		},
		"of two measurements of a row the last one counts": {
			measured: []result.Measurement{{Row: "restart", Who: result.Ours, Value: 3}, {Row: "restart", Who: result.Ours, Value: 0}},
			rows:     map[string]string{"writes at a restart": "= 0 0 pass"},
		},
		"a measurement of another number of objects does not count": {
			measured: []result.Measurement{{Row: "live heap", Who: result.Ours, Objects: 1000, Value: 1}},
			rows:     map[string]string{memoryRow("live heap, MB"): "≤ 60 - not measured"},
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

func TestCheckSettled(t *testing.T) {
	for name, test := range map[string]struct {
		measured []result.Measurement
		want     string
	}{
		"a narrow interval needs no more rounds": {
			measured: slices.Concat(converge(result.Peer, 1, 100, 100), converge(result.Peer, 2, 100, 100)),
		},
		"a wide interval needs more rounds": {
			measured: slices.Concat(converge(result.Peer, 1, 100, 100), converge(result.Peer, 2, 110, 100)),
			want:     "needs more rounds: " + overPeer,
		},
		"of two intervals of a phase both have to be narrow": {
			measured: slices.Concat(converge(result.Peer, 1, 100, 100), converge(result.Peer, 2, 110, 100), converge(result.Plain, 1, 100, 100)[1:], converge(result.Plain, 2, 0, 110)[1:]),
			want:     "needs more rounds: " + overPeer,
		},
	} {
		t.Run(name, func(t *testing.T) {
			results, _ := files(t, "", test.measured...)
			var table strings.Builder
			got := ""
			if err := checkSettled(results, &table); err != nil {
				got = err.Error()
			}
			if got != test.want {
				t.Errorf("checkSettled() = %q, want %q", got, test.want)
			}
			if !strings.Contains(table.String(), overPeer) || strings.Contains(table.String(), result.NotMeasured) {
				t.Errorf("the table has other rows than the measured ones:\n%s", table.String())
			}
		})
	}
}

func TestReportOfBrokenFiles(t *testing.T) {
	results, printed := files(t, benchmarked, converge(result.Peer, 1, 1, 1)...)
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
