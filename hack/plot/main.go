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

// Command plot draws the measurements of hack/bench.sh over growing numbers of objects, as
// SVG files in the directory of its results.json: throughput.svg, memory.svg and latency.svg.
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

// report has the fields of results.json that the plots need.
type report struct {
	Measured []measured `json:"measured"`
}

type measured struct {
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
	// byWorkers puts the number of workers on the x axis, not the number of objects.
	byWorkers bool
	lines     []line
}

// line is one figure over the number of objects.
type line struct {
	label, row, detail string
	// workers selects measurements with that number of workers, 0 all.
	workers int
	// objects selects measurements of that number of objects, 0 all.
	objects int
}

// charts returns the charts. Each compares the controller with a plain client.
func charts() []chart {
	return []chart{
		{file: "throughput", title: "Deployments of Foos that were there before the controller, 32 workers", unit: "Deployments a second", lines: []line{
			{label: "controller", row: "converge", detail: "created/s", workers: 32},
			{label: "plain client", row: "converge", detail: "POST/s", workers: 32},
		}},
		{file: "workers", title: "2000 Foos that were there before the controller", unit: "Deployments a second", byWorkers: true, lines: []line{
			{label: "controller", row: "converge", detail: "created/s", objects: 2000},
			{label: "plain client", row: "converge", detail: "POST/s", objects: 2000},
		}},
		{file: "memory", title: "Memory, with two foreign Deployments a Foo", unit: "MB", lines: []line{
			{label: "resident", row: "resident memory"},
			{label: "live heap", row: "resident memory", detail: "live heap MB"},
			{label: "resident after a restart", row: "resident memory", detail: "MB after a restart"},
		}},
		{file: "latency", title: "From a Deployment's status to its Foo's", unit: "ms", lines: []line{
			{label: "controller, p50", row: "status latency p50", detail: "ms"},
			{label: "controller, p99", row: "status latency p99", detail: "ms"},
			{label: "plain client, p50", row: "status latency p50", detail: "PUT ms before"},
			{label: "plain client, p99", row: "status latency p99", detail: "PUT ms before"},
		}},
	}
}

func main() {
	results := flag.String("results", "", "The results.json of hack/bench.sh. The plots are written beside it.")
	flag.Parse()
	if err := run(*results); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run draws all charts that have a line with at least two points.
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
		p.X.Label.Text = "workers, and requests at a time of the plain client"
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
	// Room for the legend above the lines.
	p.Y.Max *= 1.35
	return p.Save(18*vg.Centimeter, 11*vg.Centimeter, path)
}

// points returns the last measurement of our controller for each x value.
func (l line) points(r report, byWorkers bool) plotter.XYs {
	found := map[int]float64{}
	for _, m := range r.Measured {
		if m.Row != l.row || m.Who != "ours" || l.workers != 0 && m.Workers != l.workers || l.objects != 0 && m.Objects != l.objects {
			continue
		}
		value := m.Value
		if l.detail != "" {
			value = m.Details[l.detail]
		}
		if byWorkers {
			found[m.Workers] = value
		} else {
			found[m.Objects] = value
		}
	}
	var points plotter.XYs
	for n, value := range found {
		points = append(points, plotter.XY{X: float64(n), Y: value})
	}
	slices.SortFunc(points, func(a, b plotter.XY) int { return int(a.X - b.X) })
	return points
}
