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
	// find returns the figure and whether it was measured.
	find func(measurements) (float64, bool)
}

// measurements are those of one controller.
type measurements []result.Measurement

// find returns the last measurement of the row with the number of objects and workers; 0
// matches any number.
func (m measurements) find(row string, objects, workers int) (result.Measurement, bool) {
	for i := len(m) - 1; i >= 0; i-- {
		if m[i].Row == row && (objects == 0 || m[i].Objects == objects) && (workers == 0 || m[i].Workers == workers) {
			return m[i], true
		}
	}
	return result.Measurement{}, false
}

// value finds the value of the row.
func value(row string, objects, workers int) func(measurements) (float64, bool) {
	return func(m measurements) (float64, bool) {
		found, ok := m.find(row, objects, workers)
		return found.Value, ok
	}
}

// syncTimeRatio finds how many times as long a no-op sync takes with more Foos in the cache.
func syncTimeRatio(moreFoos, fewerFoos int) func(measurements) (float64, bool) {
	return func(m measurements) (float64, bool) {
		more, ok := m.find(noopSync, moreFoos, 0)
		fewer, found := m.find(noopSync, fewerFoos, 0)
		if !ok || !found || more.Details["ns/op"] == 0 || fewer.Details["ns/op"] == 0 {
			return 0, false
		}
		return more.Details["ns/op"] / fewer.Details["ns/op"], true
	}
}

const (
	atLeast, atMost, exactly = "≥", "≤", "="

	// The objects of the rows that compare with a plain client of as many concurrent requests
	// as there are workers.
	many, most = 2000, 20000
	workers    = 32

	noopSync = "no-op sync"
)

// targets returns the rows of the table.
func targets() []target {
	return []target{
		{fmt.Sprintf("converge %d Foos, over raw POSTs", many), atLeast, 0.85, value("converge", many, workers)},
		{fmt.Sprintf("scale %d Foos, over raw PATCHes", many), atLeast, 0.85, value("scale", many, workers)},
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
		{"no-op sync: allocations", atMost, 12, value(noopSync, 1000, 0)},
		{"no-op sync: time with 100000 Foos, over 1000", atMost, 1.2, syncTimeRatio(100000, 1000)},
		{"live heap of a Foo with its Deployment, KB", atMost, 7, value("live heap of a Foo", 0, 0)},
		{"live heap of a foreign Deployment, KB", atMost, 1.6, value("live heap of a foreign Deployment", 0, 0)},
		{"resident with GOGC=5, 14000 Foos, 8000 owned, 16000 foreign Deployments, MB", atMost, 120, value("resident memory", 8000, 0)},
		{fmt.Sprintf("growth: time a Foo with %d, over %d", most, result.Few), atMost, 1.2, value("growth: time", most, workers)},
		{fmt.Sprintf("growth: requests a Foo with %d, over %d", most, result.Few), atMost, 1.2, value("growth: requests", most, workers)},
		{"a fresh change under a backlog of 10000, over idle", atMost, 2, value("fresh change under a backlog", 10000, 0)},
	}
}

// evaluate returns the rows of the table with the figures of all controllers.
func evaluate(targets []target, all []result.Measurement) []result.Row {
	var ours, peers measurements
	for _, m := range all {
		if m.Who == result.Ours {
			ours = append(ours, m)
		} else {
			peers = append(peers, m)
		}
	}
	rows := make([]result.Row, 0, len(targets))
	for _, t := range targets {
		row := result.Row{Name: t.name, Relation: t.relation, Target: t.bound, Verdict: result.NotMeasured}
		if figure, ok := t.find(peers); ok {
			row.Peer = &figure
		}
		if figure, ok := t.find(ours); ok {
			row.Ours = &figure
			row.Verdict = result.Missed
			if t.met(figure) {
				row.Verdict = result.Met
			}
		}
		rows = append(rows, row)
	}
	return rows
}

func (t target) met(figure float64) bool {
	switch t.relation {
	case atLeast:
		return figure >= t.bound
	case atMost:
		return figure <= t.bound
	}
	return figure == t.bound
}
