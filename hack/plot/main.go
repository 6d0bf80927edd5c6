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

// Command plot draws the measurements in a results.json of hack/bench.sh as SVG files beside
// it: throughput.svg, workers.svg, memory.svg and latency.svg.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"

	"gonum.org/v1/plot"
	"gonum.org/v1/plot/plotter"
	"gonum.org/v1/plot/plotutil"
	"gonum.org/v1/plot/vg"
)

// report is the part of results.json that is drawn.
type report struct {
	Measurements []measurement `json:"measured"`
}

type measurement struct {
	Row     string             `json:"row"`
	Who     string             `json:"who"`
	Objects int                `json:"objects"`
	Workers int                `json:"workers"`
	Value   float64            `json:"value"`
	Details map[string]float64 `json:"details"`
}

// The programs that most charts compare.
const ours, plain = "ours", "plain"

// chart is one SVG file.
type chart struct {
	file, title, unit string
	// byWorkers makes the number of workers, instead of objects, the x axis.
	byWorkers bool
	lines     []line
}

// line is a row of the report, or a detail of it.
type line struct {
	label, who, row, detail string
	// workers and objects select measurements with these numbers; 0 selects all.
	workers, objects int
}

func charts() []chart {
	return []chart{
		{file: "throughput", title: "Foos that existed before the controller started, 32 workers", unit: "Deployments per second", lines: []line{
			{label: "controller", who: ours, row: "converge", workers: 32},
			{label: "peer", who: "peer", row: "converge", workers: 32},
			{label: "plain client", who: plain, row: "converge", workers: 32},
		}},
		{file: "workers", title: "2000 Foos that existed before the controller started", unit: "Deployments per second", byWorkers: true, lines: []line{
			{label: "controller", who: ours, row: "converge", objects: 2000},
			{label: "peer", who: "peer", row: "converge", objects: 2000},
			{label: "plain client", who: plain, row: "converge", objects: 2000},
		}},
		{file: "memory", title: "Memory, with two foreign Deployments per Foo", unit: "MiB", lines: []line{
			{label: "peak", who: ours, row: "peak resident memory"},
			{label: "at rest", who: ours, row: "peak resident memory", detail: "MiB at rest"},
		}},
		{file: "latency", title: "From a Deployment's status to the status of its Foo", unit: "ms", lines: []line{
			{label: "controller, p50", who: ours, row: "status latency p50"},
			{label: "controller, p99", who: ours, row: "status latency p99"},
			{label: "plain client, p50", who: plain, row: "status latency p50"},
			{label: "plain client, p99", who: plain, row: "status latency p99"},
		}},
	}
}

func main() {
	results := flag.String("results", "", "Path of a results.json of hack/bench.sh. The plots are written to its directory.")
	flag.Parse()
	if err := run(*results); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run draws the charts. It omits lines with fewer than two points and charts without lines.
func run(results string) error {
	text, err := os.ReadFile(results)
	if err != nil {
		return err
	}
	var r report
	if err := json.Unmarshal(text, &r); err != nil {
		return fmt.Errorf("%s: %w", results, err)
	}
	var failures []error
	for _, c := range charts() {
		failures = append(failures, c.draw(r, filepath.Join(filepath.Dir(results), c.file+".svg")))
	}
	return errors.Join(failures...)
}

func (c chart) draw(r report, path string) error {
	p := plot.New()
	p.Title.Text, p.Y.Label.Text, p.X.Label.Text = c.title, c.unit, "objects"
	if c.byWorkers {
		p.X.Label.Text = "workers"
	}
	p.Y.Min = 0
	p.Legend.Top = true
	p.Add(plotter.NewGrid())
	var lines []any
	for _, l := range c.lines {
		if points := l.points(r, c.byWorkers); len(points) > 1 {
			lines = append(lines, l.label, points)
		}
	}
	if len(lines) == 0 {
		return nil
	}
	if err := plotutil.AddLinePoints(p, lines...); err != nil {
		return fmt.Errorf("drawing %s: %w", path, err)
	}
	// Leaves room for the legend above the lines.
	p.Y.Max *= 1.35
	return p.Save(18*vg.Centimeter, 11*vg.Centimeter, path)
}

// points returns the mean of the program's measurements for each x value.
func (l line) points(r report, byWorkers bool) plotter.XYs {
	sums, counts := map[int]float64{}, map[int]float64{}
	for _, m := range r.Measurements {
		if m.Row != l.row || m.Who != l.who || l.workers != 0 && m.Workers != l.workers || l.objects != 0 && m.Objects != l.objects {
			continue
		}
		value := m.Value
		if l.detail != "" {
			value = m.Details[l.detail]
		}
		x := m.Objects
		if byWorkers {
			x = m.Workers
		}
		sums[x] += value
		counts[x]++
	}
	var points plotter.XYs
	for x, sum := range sums {
		points = append(points, plotter.XY{X: float64(x), Y: sum / counts[x]})
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
	return points
}
