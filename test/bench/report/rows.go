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

	"example.com/sample-controller/test/bench/result"
)

// target is one row of the table: a figure and the bound that it has to meet.
type target struct {
	name     string
	relation string
	bound    float64
	// find returns the figure, nil if it was not measured.
	find func(measurements) *result.Figure
}

type measurements []result.Measurement

// of returns the measurements of a row by who, in the order of time. 0 matches any number of
// objects.
func (m measurements) of(who, row string, objects int) measurements {
	var found measurements
	for _, measured := range m {
		if measured.Who == who && measured.Row == row && (objects == 0 || measured.Objects == objects) {
			found = append(found, measured)
		}
	}
	return found
}

// value finds the last value of the row.
func value(row string, objects int) func(measurements) *result.Figure {
	return func(m measurements) *result.Figure {
		found := m.of(result.Ours, row, objects)
		if len(found) == 0 {
			return nil
		}
		return &result.Figure{Value: found[len(found)-1].Value}
	}
}

// highest finds the highest value of a detail in all rounds of the row.
func highest(row string, objects int, detail string) func(measurements) *result.Figure {
	return func(m measurements) *result.Figure {
		found := m.of(result.Ours, row, objects)
		if len(found) == 0 {
			return nil
		}
		figure := &result.Figure{}
		for _, measured := range found {
			figure.Value = max(figure.Value, measured.Details[detail])
		}
		return figure
	}
}

// over finds how many times as large the controller's figure is as that of another program in
// the same round.
func over(other, row string, objects int) func(measurements) *result.Figure {
	return func(m measurements) *result.Figure {
		theirs := map[int]float64{}
		for _, measured := range m.of(other, row, objects) {
			theirs[measured.Round] = measured.Value
		}
		var pairs [][2]float64
		for _, measured := range m.of(result.Ours, row, objects) {
			if their, ok := theirs[measured.Round]; ok {
				pairs = append(pairs, [2]float64{measured.Value, their})
			}
		}
		if len(pairs) < 2 {
			return nil
		}
		figure := ratio(pairs)
		return &figure
	}
}

// syncTimeRatio finds how many times as long a no-op sync takes with more Foos in the cache.
func syncTimeRatio(moreFoos, fewerFoos int) func(measurements) *result.Figure {
	return func(m measurements) *result.Figure {
		more, fewer := highest(noopSync, moreFoos, "ns/op")(m), highest(noopSync, fewerFoos, "ns/op")(m)
		if more == nil || fewer == nil || fewer.Value == 0 {
			return nil
		}
		return &result.Figure{Value: more.Value / fewer.Value}
	}
}

const (
	atLeast, atMost, exactly = "≥", "≤", "="

	// The objects of the rows that compare the controller with another program.
	many, most, full, smallFull, waiting = 2000, 20000, 1000, 600, 10000

	noopSync, creation, scaling = "no-op sync", "full cluster: creation", "full cluster: scaling"
)

// targets returns the rows of the table.
func targets() []target {
	rows := []target{
		{fmt.Sprintf("converge %d Foos: rate over the peer's", many), atLeast, 1, over(result.Peer, "converge", many)},
		{fmt.Sprintf("scale %d Foos: rate over the peer's", many), atLeast, 1, over(result.Peer, "scale", many)},
	}
	for _, foos := range []int{smallFull, full} {
		rows = append(rows,
			target{fmt.Sprintf("full cluster, create %d Foos: time over the peer's", foos), atMost, 1, over(result.Peer, creation, foos)},
			target{fmt.Sprintf("full cluster, scale %d Foos: time over the peer's", foos), atMost, 1, over(result.Peer, scaling, foos)})
	}
	for _, measured := range []struct {
		row     string
		objects int
	}{{"converge", many}, {"scale", many}, {creation, smallFull}, {scaling, smallFull}, {creation, full}, {scaling, full}} {
		rows = append(rows, target{fmt.Sprintf("statuses a Foo: %s, %d", measured.row, measured.objects), atMost, 1.3, highest(measured.row, measured.objects, "statuses/Foo")})
	}
	// +drop:crontab
	rows = append(rows, target{"runs of 1000 CronTabs due in one second: lateness p99 over a plain client's Jobs", atMost, 1.3, value("CronTabs", 1000)})
	// +drop:end
	return append(rows,
		target{"one Foo alone: s until its status tells progress", atMost, 1.1, value("progress of one Foo", 0)},

		target{fmt.Sprintf("converge %d Foos: rate over a plain client's", many), atLeast, 0.95, over(result.Plain, "converge", many)},
		target{fmt.Sprintf("scale %d Foos: rate over a plain client's", many), atLeast, 0.95, over(result.Plain, "scale", many)},
		target{fmt.Sprintf("full cluster, create %d Foos: time over a plain client's", full), atMost, 1.05, over(result.Plain, creation, full)},
		target{"status latency p50, over a plain client's", atMost, 1.1, over(result.Plain, "status latency p50", 0)},
		target{"status latency p99, over a plain client's", atMost, 1.1, over(result.Plain, "status latency p99", 0)},
		target{fmt.Sprintf("growth of the time a Foo, %d to %d, over a plain client's", result.Few, most), atMost, 1.05, over(result.Plain, "growth: time", most)},
		target{fmt.Sprintf("growth of a change's time under a backlog of %d, over a plain client's", waiting), atMost, 1, over(result.Plain, "fresh change under a backlog", waiting)},

		target{"a new Foo: Deployment writes", exactly, 1, value("create: Deployment writes", 0)},
		target{"a new Foo: status writes", exactly, 1, value("create: status writes", 0)},
		target{"a new Foo: events", atMost, 2, value("create: events", 0)},
		target{"a new Foo: reads", atMost, 0.01, value("create: reads", 0)},
		target{"a scaled Foo: Deployment writes", exactly, 1, value("scale: Deployment writes", 0)},
		target{"a scaled Foo: status writes", exactly, 1, value("scale: status writes", 0)},
		target{"a scaled Foo: reads", exactly, 0, value("scale: reads", 0)},
		target{"writes in steady state, 10 resyncs", exactly, 0, value("steady state", 0)},
		target{"writes at a restart", exactly, 0, value("restart", 0)},
		target{"lists a resource at a restart", atMost, 2, value("restart lists", 0)},
		target{fmt.Sprintf("requests a Foo with %d, over %d", most, result.Few), atMost, 1.2, value("growth: requests", most)},

		target{"no-op sync: allocations", atMost, 40, value(noopSync, 1000)},
		target{"no-op sync: time with 100000 Foos, over 1000", atMost, 1.2, syncTimeRatio(100000, 1000)},
		target{"live heap of a Foo with its Deployment, KB", atMost, 7, value("live heap of a Foo", 0)},
		target{"live heap of a foreign Deployment, KB", atMost, 1.6, value("live heap of a foreign Deployment", 0)},
		target{memoryRow("peak resident, MiB"), atMost, 256, value("peak resident memory", 8000)},
		target{memoryRow("live heap, MB"), atMost, 60, value("live heap", 8000)},
		target{memoryRow("garbage collection at rest, CPUs"), atMost, 0.1, value("garbage collection at rest", 8000)},
	)
}

func memoryRow(what string) string {
	return "14000 Foos, 8000 owned, 16000 foreign Deployments: " + what
}

// evaluate returns the rows of the table.
func evaluate(targets []target, all measurements) []result.Row {
	rows := make([]result.Row, 0, len(targets))
	for _, t := range targets {
		row := result.Row{Name: t.name, Relation: t.relation, Target: t.bound, Measured: t.find(all), Verdict: result.NotMeasured}
		if row.Measured != nil {
			row.Verdict = verdict(t.relation, t.bound, *row.Measured)
		}
		rows = append(rows, row)
	}
	return rows
}
