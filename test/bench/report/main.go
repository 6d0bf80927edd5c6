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

// Command report prints the figures of test/bench, which a file has in the form of go test -bench, as a table with
// targets, and exits with 1 if a target is missed. With -settled it prints only the rows that were measured, and exits
// with 1 if the interval of one of them is still too wide. hack/bench.sh runs it.
package main

import (
	"bufio"
	"errors"
	"flag"
	"fmt"
	"io"
	"math"
	"os"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
)

func main() {
	settled := flag.Bool("settled", false, "Print only what was measured, and tell whether the intervals are narrow.")
	flag.Parse()
	results, err := os.Open(flag.Arg(0))
	if err == nil {
		err = run(results, os.Stdout, *settled)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run writes the table. It returns an error that names each row that misses its target, or with settled each whose
// interval is too wide.
func run(results io.Reader, table io.Writer, settled bool) error {
	all, err := read(results)
	if err != nil {
		return err
	}
	columns := tabwriter.NewWriter(table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(columns, "what\ttarget\tmeasured\t95 % interval\trounds\tverdict")
	var failures []error
	for _, row := range rows() {
		found := row.find(all)
		if found == nil && settled {
			continue
		}
		fmt.Fprintf(columns, "%s\t%s %g\t", row.name, row.relation, row.target)
		if found == nil {
			fmt.Fprintln(columns, "-\t\t\tnot measured")
			continue
		}
		verdict, interval, rounds := row.verdict(found), "", ""
		if found.rounds > 0 {
			interval, rounds = fmt.Sprintf("%.4g to %.4g", found.low, found.high), strconv.Itoa(found.rounds)
		}
		fmt.Fprintf(columns, "%.4g\t%s\t%s\t%s\n", found.value, interval, rounds, verdict)
		switch {
		case settled && found.high > (1+precision)*found.value:
			failures = append(failures, fmt.Errorf("needs more rounds: %s", row.name))
		case !settled && verdict == missed:
			failures = append(failures, fmt.Errorf("missed its target: %s", row.name))
		}
	}
	return errors.Join(append(failures, columns.Flush())...)
}

// measurement is a line of results. parts are those of the name of the benchmark, figures its figures by their units.
type measurement struct {
	round   string
	parts   []string
	figures map[string]float64
}

// measurements are in the order of time.
type measurements []measurement

var maxProcs = regexp.MustCompile(`-\d+$`)

func read(results io.Reader) (all measurements, err error) {
	round, lines := "", bufio.NewScanner(results)
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		switch {
		case len(fields) == 2 && fields[0] == "round:":
			round = fields[1]
		case len(fields) > 1 && strings.HasPrefix(fields[0], "Benchmark"):
			name := maxProcs.ReplaceAllString(strings.TrimPrefix(fields[0], "Benchmark"), "")
			m := measurement{round, strings.Split(name, "/"), map[string]float64{}}
			for i := 2; i+1 < len(fields); i += 2 {
				if m.figures[fields[i+1]], err = strconv.ParseFloat(fields[i], 64); err != nil {
					return nil, fmt.Errorf("%w: %s", err, lines.Text())
				}
			}
			all = append(all, m)
		}
	}
	return all, lines.Err()
}

// of returns the figures in that unit of a benchmark whose name has all the parts of what, such as
// Converge/objects=2000, and the round of each.
func (m measurements) of(what, unit string) (figures []float64, rounds []string) {
	for _, measured := range m {
		isOther := slices.ContainsFunc(strings.Split(what, "/"), func(part string) bool { return !slices.Contains(measured.parts, part) })
		if figure, ok := measured.figures[unit]; ok && !isOther {
			figures, rounds = append(figures, figure), append(rounds, measured.round)
		}
	}
	return figures, rounds
}

// figure is what was measured for a row. A ratio of two programs has a 95 % confidence interval, from so many rounds in
// which both were measured.
type figure struct {
	value, low, high float64
	rounds           int
}

// one returns a figure without an interval, chosen from those of all rounds, nil if there are none.
func one(what, unit string, choose func([]float64) float64) func(measurements) *figure {
	return func(m measurements) *figure {
		figures, _ := m.of(what, unit)
		if len(figures) == 0 {
			return nil
		}
		value := choose(figures)
		return &figure{value, value, value, 0}
	}
}

func last(figures []float64) float64 { return figures[len(figures)-1] }

// over returns how many times as large the controller's figure is as that of another program in the same round.
func over(other, what, unit string) func(measurements) *figure {
	return func(m measurements) *figure {
		figures, rounds := m.of(what+"/who=ours", unit)
		others, theirs := m.of(what+"/who="+other, unit)
		var logs []float64
		for i, round := range rounds {
			if at := slices.Index(theirs, round); at >= 0 {
				logs = append(logs, math.Log(figures[i]/others[at]))
			}
		}
		if len(logs) < 2 {
			return nil
		}
		return ratio(logs)
	}
}

// ratio returns the geometric mean of ratios, of which it gets the logarithms, with Student's t-interval: logarithms are
// closer to a normal distribution, and in them a ratio and its inverse weigh the same.
func ratio(logs []float64) *figure {
	// The 97.5 % quantiles by degrees of freedom. That of 30 is at most 4 % too large for more.
	quantiles := [...]float64{
		12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.160, 2.145, 2.131,
		2.120, 2.110, 2.101, 2.093, 2.086, 2.080, 2.074, 2.069, 2.064, 2.060, 2.056, 2.052, 2.048, 2.045, 2.042,
	}
	n, mean, squares := float64(len(logs)), 0.0, 0.0
	for _, log := range logs {
		mean += log / n
	}
	for _, log := range logs {
		squares += (log - mean) * (log - mean)
	}
	half := quantiles[min(len(logs)-1, len(quantiles))-1] * math.Sqrt(squares/(n-1)/n)
	return &figure{math.Exp(mean), math.Exp(mean - half), math.Exp(mean + half), len(logs)}
}

// growth returns how many times as long a no-op sync takes with 100000 Foos in the cache as with 1000. Other load on the
// machine only makes a run slower, so the fastest counts.
func growth(m measurements) *figure {
	more, fewer := one("Sync/foos=100000", "ns/op", slices.Min)(m), one("Sync/foos=1000", "ns/op", slices.Min)(m)
	if more == nil || fewer == nil {
		return nil
	}
	value := more.value / fewer.value
	return &figure{value, value, value, 0}
}

// row is one row of the table: a figure and the target that it has to meet.
type row struct {
	name, relation string
	target         float64
	find           func(measurements) *figure
}

const (
	atLeast, atMost, exactly = "≥", "≤", "="
	met, missed, undecided   = "pass", "FAIL", "undecided"
	// precision is the half-width of an interval, as a part of its ratio, at which the rounds end.
	precision = 0.05
)

// verdict judges a figure. A ratio meets its target if the ratio itself does and no value in its interval misses the
// target by more than the precision. It misses the target if all values in the interval do. Otherwise the interval
// allows no verdict.
func (r *row) verdict(f *figure) string {
	isMet, isMissed := f.value == r.target, f.value != r.target
	switch r.relation {
	case atLeast:
		isMet, isMissed = f.value >= r.target && f.low >= r.target*(1-precision), f.high < r.target
	case atMost:
		isMet, isMissed = f.value <= r.target && f.high <= r.target*(1+precision), f.low > r.target
	}
	switch {
	case isMet:
		return met
	case isMissed:
		return missed
	}
	return undecided
}

// rows returns the rows of the table.
func rows() (all []row) {
	add := func(name, relation string, target float64, find func(measurements) *figure) {
		all = append(all, row{name, relation, target, find})
	}
	const many = "/objects=2000"
	for _, compared := range []struct {
		who, name    string
		rate, slower float64
		full         []string
	}{{"peer", "the peer's", 1, 1, []string{"600", "1000"}}, {"plain", "a plain client's", 0.95, 1.05, []string{"1000"}}} {
		add("converge 2000 Foos: rate over "+compared.name, atLeast, compared.rate, over(compared.who, "Converge"+many, "foos/s"))
		add("scale 2000 Foos: rate over "+compared.name, atLeast, compared.rate, over(compared.who, "Scale"+many, "foos/s"))
		for _, foos := range compared.full {
			add("full cluster, create "+foos+" Foos: time over "+compared.name, atMost, compared.slower, over(compared.who, "FullCreate/objects="+foos, "s"))
			if compared.who == "peer" {
				add("full cluster, scale "+foos+" Foos: time over "+compared.name, atMost, compared.slower, over(compared.who, "FullScale/objects="+foos, "s"))
			}
		}
	}
	add("status latency p50, over a plain client's", atMost, 1.1, over("plain", "Latency", "p50-ms"))
	add("status latency p99, over a plain client's", atMost, 1.1, over("plain", "Latency", "p99-ms"))
	for _, step := range []string{"Converge", "Scale", "FullCreate", "FullScale"} {
		add("statuses a Foo, the most of all rounds: "+step, atMost, 1.3, one(step+"/who=ours", "statuses/foo", slices.Max))
	}
	add("one Foo alone: s until its status tells progress", atMost, 1.1, one("Progress", "s", last))
	add("a new Foo: Deployment writes", exactly, 1, one("NewFoo", "deployment-writes", last))
	add("a new Foo: status writes", exactly, 1, one("NewFoo", "status-writes", last))
	add("a new Foo: events", atMost, 2, one("NewFoo", "events", last))
	add("a new Foo: reads", atMost, 0.01, one("NewFoo", "reads", last))
	add("a scaled Foo: Deployment writes", exactly, 1, one("ScaledFoo", "deployment-writes", last))
	add("a scaled Foo: status writes", exactly, 1, one("ScaledFoo", "status-writes", last))
	add("a scaled Foo: reads", exactly, 0, one("ScaledFoo", "reads", last))
	add("writes in steady state, 10 resyncs", exactly, 0, one("SteadyState", "writes", last))
	add("writes at a restart", exactly, 0, one("Restart", "writes", last))
	add("lists a resource at a restart", atMost, 2, one("Restart", "lists", last))
	add("no-op sync: allocations", atMost, 40, one("Sync/foos=1000", "allocs/op", last))
	add("no-op sync: time with 100000 Foos, over 1000", atMost, 1.2, growth)
	const memory, objects = "Memory/objects=8000", "14000 Foos, 8000 owned, 16000 foreign Deployments: "
	add(objects+"peak resident, MiB", atMost, 256, one(memory, "peak-MiB", last))
	add(objects+"live heap, MB", atMost, 60, one(memory, "heap-MB", last))
	add(objects+"garbage collection at rest, CPUs", atMost, 0.1, one(memory, "gc-cpus", last))
	return all
}
