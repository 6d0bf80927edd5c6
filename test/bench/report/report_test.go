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
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"
)

// converge returns the lines of the rates of the controller and of another program in a round.
func converge(other string, round int, ours, theirs float64) string {
	return fmt.Sprintf("round: %d\nBenchmarkConverge/who=ours/objects=2000 1 %g foos/s %g statuses/foo\nBenchmarkConverge/who=%s/objects=2000 1 %g foos/s\n", round, ours, 0.1*float64(round), other, theirs)
}

const (
	overPeer  = "converge 2000 Foos: rate over the peer's"
	overPlain = "converge 2000 Foos: rate over a plain client's"
	benches   = `goos: linux
BenchmarkSync/foos=1000-2     	  300000	      3500 ns/op	     900 B/op	      11 allocs/op
BenchmarkSync/foos=1000-2     	  300000	      3000 ns/op	     900 B/op	      11 allocs/op
BenchmarkSync/foos=100000-2   	  300000	      3300 ns/op	     900 B/op	      11 allocs/op
BenchmarkSync/foos=100000-2   	  300000	      9300 ns/op	     900 B/op	      11 allocs/op
PASS
`
)

func TestReport(t *testing.T) {
	for name, test := range map[string]struct {
		results, row, want string
		// failed and unsettled say that the row is named in the error, of the whole table or of what is settled.
		failed, unsettled bool
	}{
		"benchmarks":                      {results: benches, row: "no-op sync: allocations", want: "≤ 40 11 pass"},
		"the fastest of several runs":     {results: benches, row: "no-op sync: time with 100000 Foos, over 1000", want: "≤ 1.2 1.1 pass"},
		"what was not measured":           {results: benches, row: overPeer, want: "≥ 1 - not measured"},
		"another number of objects":       {results: "BenchmarkMemory/objects=1000 1 1 heap-MB\n", row: "14000 Foos, 8000 owned, 16000 foreign Deployments: live heap, MB", want: "≤ 60 - not measured"},
		"the last of two measurements":    {results: "BenchmarkRestart 1 3 writes\nBenchmarkRestart 1 0 writes\n", row: "writes at a restart", want: "= 0 0 pass"},
		"another figure than the target":  {results: "BenchmarkRestart 1 3 writes\n", row: "writes at a restart", want: "= 0 3 FAIL", failed: true},
		"the highest of all rounds":       {results: converge("peer", 14, 1, 1) + converge("peer", 2, 1, 1), row: "statuses a Foo, the most of all rounds: Converge", want: "≤ 1.3 1.4 FAIL", failed: true},
		"one round has no interval":       {results: converge("peer", 1, 500, 100), row: overPeer, want: "≥ 1 - not measured"},
		"another program":                 {results: converge("plain", 1, 95, 100) + converge("plain", 2, 95, 100), row: overPlain, want: "≥ 0.95 0.95 0.95 to 0.95 2 pass"},
		"the whole interval misses":       {results: converge("peer", 1, 200, 400) + converge("peer", 2, 300, 600), row: overPeer, want: "≥ 1 0.5 0.5 to 0.5 2 FAIL", failed: true},
		"a wide interval, no verdict yet": {results: converge("peer", 1, 100, 100) + converge("peer", 2, 110, 100), row: overPeer, want: "≥ 1 1.049 0.5724 to 1.922 2 undecided", unsettled: true},
		"the ratio is that of the same round, and a round without the other program does not count": {
			results: converge("peer", 1, 300, 200) + "round: 3\nBenchmarkConverge/who=peer/objects=2000 1 400 foos/s\nround: 4\nBenchmarkConverge/who=ours/objects=2000 1 1 foos/s\n" +
				"round: 3\nBenchmarkConverge/who=ours/objects=2000 1 600 foos/s\n",
			row: overPeer, want: "≥ 1 1.5 1.5 to 1.5 2 pass",
		},
	} {
		t.Run(name, func(t *testing.T) {
			for isSettled, fails := range map[bool]bool{false: test.failed, true: test.unsettled} {
				var table strings.Builder
				err := run(strings.NewReader(test.results), &table, isSettled)
				if named := err != nil && strings.Contains(err.Error(), test.row); named != fails {
					t.Errorf("settled %t: error %v, want one: %t", isSettled, err, fails)
				}
				isThere := slices.ContainsFunc(strings.Split(table.String(), "\n"), func(line string) bool {
					return strings.Join(strings.Fields(line), " ") == test.row+" "+test.want
				})
				if want := !isSettled || !strings.HasSuffix(test.want, "not measured"); isThere != want {
					t.Errorf("settled %t: there is a row %q %q: %t, want %t in\n%s", isSettled, test.row, test.want, isThere, want, table.String())
				}
			}
		})
	}
	if err := run(strings.NewReader("BenchmarkSync/foos=many 1 x ns/op\n"), &strings.Builder{}, false); err == nil {
		t.Error("no error of a line without a number")
	}
}

// TestOver: the logarithms are 0.1, 0.2 and 0.3: mean 0.2, standard error 0.1/√3, and Student's quantile 4.303.
func TestOver(t *testing.T) {
	all, err := read(strings.NewReader(converge("peer", 1, math.Exp(0.1), 1) + converge("peer", 2, math.Exp(0.2), 1) + converge("peer", 3, math.Exp(0.3), 1)))
	if err != nil {
		t.Fatal(err)
	}
	got := over("peer", "Converge", "foos/s")(all)
	for want, is := range map[float64]float64{0.2: got.value, 0.2 - 0.24844: got.low, 0.2 + 0.24844: got.high} {
		if math.Abs(math.Log(is)-want) > 1e-3 {
			t.Errorf("%g, want %g, in %+v", is, math.Exp(want), got)
		}
	}
}

func TestVerdict(t *testing.T) {
	for name, test := range map[string]struct {
		relation                 string
		target, value, low, high float64
		want                     string
	}{
		"at least: the whole interval meets the target":                  {atLeast, 1, 1.1, 1.05, 1.15, met},
		"at least: the ratio does, the interval is within the precision": {atLeast, 1, 1, 0.951, 1.05, met},
		"at least: the ratio does, the interval is too wide":             {atLeast, 1, 1.01, 0.94, 1.09, undecided},
		"at least: only the upper end meets the target":                  {atLeast, 1, 0.97, 0.94, 1, undecided},
		"at least: no value of the interval meets the target":            {atLeast, 1, 0.95, 0.92, 0.99, missed},
		"at most: the whole interval meets the target":                   {atMost, 1.1, 0.9, 0.8, 1, met},
		"at most: the ratio does, the interval is within the precision":  {atMost, 1.1, 1.1, 1.06, 1.15, met},
		"at most: the ratio does, the interval is too wide":              {atMost, 1.1, 1.09, 1.02, 1.17, undecided},
		"at most: only the lower end meets the target":                   {atMost, 1.1, 1.14, 1.1, 1.18, undecided},
		"at most: no value of the interval meets the target":             {atMost, 1.1, 1.2, 1.15, 1.25, missed},
	} {
		if got := (&row{relation: test.relation, target: test.target}).verdict(&figure{value: test.value, low: test.low, high: test.high}); got != test.want {
			t.Errorf("%s: %s, want %s", name, got, test.want)
		}
	}
}
