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

// chart is one SVG file.
type chart struct {
	file, title, unit string
	// byWorkers makes the number of workers, instead of objects, the x axis.
	byWorkers bool
	lines     []line
}

// line is a row of the report, or a detail of it.
type line struct {
	label, row, detail string
	// workers and objects select measurements with these numbers; 0 selects all.
	workers, objects int
}

func charts() []chart {
	return []chart{
		{file: "throughput", title: "Foos that existed before the controller started, 32 workers", unit: "Deployments per second", lines: []line{
			{label: "controller", row: "converge", detail: "created/s", workers: 32},
			{label: "plain client", row: "converge", detail: "POST/s", workers: 32},
		}},
		{file: "workers", title: "2000 Foos that existed before the controller started", unit: "Deployments per second", byWorkers: true, lines: []line{
			{label: "controller", row: "converge", detail: "created/s", objects: 2000},
			{label: "plain client", row: "converge", detail: "POST/s", objects: 2000},
		}},
		{file: "memory", title: "Memory, with two foreign Deployments per Foo", unit: "MB", lines: []line{
			{label: "resident", row: "resident memory"},
			{label: "live heap", row: "resident memory", detail: "live heap MB"},
			{label: "resident after a restart", row: "resident memory", detail: "MB after a restart"},
		}},
		{file: "latency", title: "From a Deployment's status to the status of its Foo", unit: "ms", lines: []line{
			{label: "controller, p50", row: "status latency p50", detail: "ms"},
			{label: "controller, p99", row: "status latency p99", detail: "ms"},
			{label: "plain client, p50", row: "status latency p50", detail: "PUT ms before"},
			{label: "plain client, p99", row: "status latency p99", detail: "PUT ms before"},
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
		p.X.Label.Text = "workers, and concurrent requests of the plain client"
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

// points returns the last measurement of this repository's controller for each x value.
func (l line) points(r report, byWorkers bool) plotter.XYs {
	found := map[int]float64{}
	for _, m := range r.Measurements {
		if m.Row != l.row || m.Who != "ours" || l.workers != 0 && m.Workers != l.workers || l.objects != 0 && m.Objects != l.objects {
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
		found[x] = value
	}
	var points plotter.XYs
	for x, y := range found {
		points = append(points, plotter.XY{X: float64(x), Y: y})
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
	return points
}
