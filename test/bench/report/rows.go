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

// target is one row of the table: what is measured, and what it has to come to.
type target struct {
	name     string
	relation string
	bound    float64
	// of returns the figure, and whether it was measured.
	of func(measurements) (float64, bool)
}

// measurements are those of one controller.
type measurements []result.Measured

// find returns the last measurement of that row, with that many objects and workers; 0
// is any.
func (m measurements) find(row string, objects, workers int) (result.Measured, bool) {
	for i := len(m) - 1; i >= 0; i-- {
		if m[i].Row == row && (objects == 0 || m[i].Objects == objects) && (workers == 0 || m[i].Workers == workers) {
			return m[i], true
		}
	}
	return result.Measured{}, false
}

// value returns a function that finds the value of that row.
func value(row string, objects, workers int) func(measurements) (float64, bool) {
	return func(m measurements) (float64, bool) {
		found, ok := m.find(row, objects, workers)
		return found.Value, ok
	}
}

// ratio returns a function that divides what two functions find.
func ratio(numerator, denominator func(measurements) (float64, bool)) func(measurements) (float64, bool) {
	return func(m measurements) (float64, bool) {
		above, ok := numerator(m)
		below, found := denominator(m)
		if !ok || !found || below == 0 {
			return 0, false
		}
		return above / below, true
	}
}

// detail returns a function that finds a detail of that row.
func detail(row string, objects, workers int, name string) func(measurements) (float64, bool) {
	return func(m measurements) (float64, bool) {
		found, ok := m.find(row, objects, workers)
		value, has := found.Details[name]
		return value, ok && has
	}
}

// How many objects the rows are about, and by how many workers where the floor is a
// client with as many requests at a time.
const (
	many, most      = 2000, 20000
	parallel        = 32
	thousand        = 1000
	hundredThousand = 100000
)

// rows returns the table.
func rows() []target {
	const atLeast, atMost, exactly = "≥", "≤", "="
	return []target{
		{fmt.Sprintf("converge %d Foos, over raw POSTs", many), atLeast, 0.85, value("converge", many, parallel)},
		{fmt.Sprintf("scale %d Foos, over raw PATCHes", many), atLeast, 0.85, value("scale", many, parallel)},
		{"full cluster: 1000 Foos until Ready, over 1000 bare Deployments", atMost, 1.15, value("full cluster", 0, 0)},
		{"a new Foo: Deployment writes", exactly, 1, value("create: Deployment writes", 0, 0)},
		{"a new Foo: status writes", exactly, 1, value("create: status writes", 0, 0)},
		{"a new Foo: events", atMost, 2, value("create: events", 0, 0)},
		{"a new Foo: reads", exactly, 0, value("create: reads", 0, 0)},
		{"a scaled Foo: Deployment writes", exactly, 1, value("scale: Deployment writes", 0, 0)},
		{"a scaled Foo: status writes", exactly, 1, value("scale: status writes", 0, 0)},
		{"a scaled Foo: reads", exactly, 0, value("scale: reads", 0, 0)},
		{"writes in steady state, 10 resyncs", exactly, 0, value("steady state", 0, 0)},
		{"writes at a restart", exactly, 0, value("restart", 0, 0)},
		{"lists a resource at a restart", atMost, 1, value("restart lists", 0, 0)},
		{"status latency p50, over a raw PUT", atMost, 2, value("status latency p50", 0, 0)},
		{"status latency p99, over a raw PUT", atMost, 3, value("status latency p99", 0, 0)},
		{"no-op sync: allocations", atMost, 12, value("no-op sync", thousand, 0)},
		{"no-op sync: time with 100000 Foos, over 1000", atMost, 1.2, ratio(detail("no-op sync", hundredThousand, 0, "ns/op"), detail("no-op sync", thousand, 0, "ns/op"))},
		{"live heap of a Foo with its Deployment, KB", atMost, 7, value("live heap of a Foo", 0, 0)},
		{"live heap of a foreign Deployment, KB", atMost, 1.6, value("live heap of a foreign Deployment", 0, 0)},
		{"resident with GOGC=5, 14000 Foos, 8000 owned, 16000 foreign Deployments, MB", atMost, 120, value("resident memory", 8000, 0)},
		{fmt.Sprintf("growth: time a Foo with %d, over %d", most, result.Few), atMost, 1.2, value("growth: time", most, parallel)},
		{fmt.Sprintf("growth: requests a Foo with %d, over %d", most, result.Few), atMost, 1.2, value("growth: requests", most, parallel)},
		{"a fresh change under a backlog of 10000, over idle", atMost, 2, value("fresh change under a backlog", 10000, 0)},
	}
}

// judge returns the rows with what was measured, and whether ours meets the target.
func judge(targets []target, measured []result.Measured) []result.Row {
	var ours, peers measurements
	for _, one := range measured {
		if one.Who == result.Ours {
			ours = append(ours, one)
		} else {
			peers = append(peers, one)
		}
	}
	rows := make([]result.Row, 0, len(targets))
	for _, t := range targets {
		row := result.Row{Name: t.name, Relation: t.relation, Target: t.bound, Verdict: result.NotMeasured}
		if peer, ok := t.of(peers); ok {
			row.Peer = &peer
		}
		if own, ok := t.of(ours); ok {
			row.Ours = &own
			row.Verdict = result.Missed
			if t.met(own) {
				row.Verdict = result.Met
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (t target) met(value float64) bool {
	switch t.relation {
	case "≥":
		return value >= t.bound
	case "≤":
		return value <= t.bound
	}
	return value == t.bound
}
