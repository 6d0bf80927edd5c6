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

// Command report prints the figures of test/bench as a table with targets and exits with 1
// if a target is missed. With -settled it tells whether a phase needs further rounds.
// hack/bench.sh runs it.
package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"

	"example.com/sample-controller/test/bench/result"
)

func main() {
	results := flag.String("results", "", "File with the measurements, one JSON object per line.")
	benchmarks := flag.String("benchmarks", "", "File with the output of go test -bench.")
	out := flag.String("out", "", "Directory for results.json. Without it, no file is written.")
	settled := flag.Bool("settled", false, "Print only the rows that were measured, and exit with 1 if the interval of one of them is still too wide.")
	flag.Parse()
	var err error
	if *settled {
		err = checkSettled(*results, os.Stdout)
	} else {
		err = run(*results, *benchmarks, *out, os.Stdout)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run writes the table, and results.json unless out is empty. It returns an error that names
// each row that misses its target.
func run(results, benchmarks, out string, table io.Writer) error {
	all, err := readResults(results)
	if err != nil {
		return err
	}
	syncs, err := readBenchmarks(benchmarks)
	if err != nil {
		return err
	}
	all = append(all, syncs...)
	rows := evaluate(targets(), all)
	if err := printTable(table, rows); err != nil {
		return err
	}
	if out != "" {
		if err := write(out, result.Report{Machine: machine(), Rows: rows, Measurements: all}); err != nil {
			return err
		}
	}
	var missed []error
	for _, row := range rows {
		if row.Verdict == result.Missed {
			missed = append(missed, fmt.Errorf("missed its target: %s", row.Name))
		}
	}
	return errors.Join(missed...)
}

// checkSettled writes the rows that were measured and returns an error that names each whose
// interval is too wide.
func checkSettled(results string, table io.Writer) error {
	all, err := readResults(results)
	if err != nil {
		return err
	}
	rows := slices.DeleteFunc(evaluate(targets(), all), func(row result.Row) bool { return row.Measured == nil })
	failures := []error{printTable(table, rows)}
	for _, row := range rows {
		if !isPrecise(*row.Measured) {
			failures = append(failures, fmt.Errorf("needs more rounds: %s", row.Name))
		}
	}
	return errors.Join(failures...)
}

func readResults(path string) ([]result.Measurement, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var all []result.Measurement
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var m result.Measurement
		if err := json.Unmarshal(lines.Bytes(), &m); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", path, err, lines.Text())
		}
		all = append(all, m)
	}
	return all, lines.Err()
}

// readBenchmarks returns the figures of BenchmarkSync/foos=N from the output of go test
// -bench -benchmem. Of several runs it takes the fastest, because other load on the machine
// only makes a run slower.
func readBenchmarks(path string) ([]result.Measurement, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []result.Measurement
	for line := range strings.Lines(string(text)) {
		run, found := strings.CutPrefix(line, "BenchmarkSync/foos=")
		if !found {
			continue
		}
		fields := strings.Fields(run)
		objects, err := strconv.Atoi(strings.Split(fields[0], "-")[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		m := result.Measurement{Row: noopSync, Who: result.Ours, Objects: objects, Details: map[string]float64{}}
		for i := 2; i+1 < len(fields); i += 2 {
			if m.Details[fields[i+1]], err = strconv.ParseFloat(fields[i], 64); err != nil {
				return nil, fmt.Errorf("%s: %w: %s", path, err, line)
			}
		}
		m.Value = m.Details["allocs/op"]
		same := slices.IndexFunc(all, func(other result.Measurement) bool { return other.Objects == m.Objects })
		switch {
		case same < 0:
			all = append(all, m)
		case m.Details["ns/op"] < all[same].Details["ns/op"]:
			all[same] = m
		}
	}
	return all, nil
}

func printTable(w io.Writer, rows []result.Row) error {
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	_, err := fmt.Fprintln(columns, "what\ttarget\tmeasured\t95 % interval\trounds\tverdict")
	for _, row := range rows {
		measured, interval, rounds := "-", "", ""
		if row.Measured != nil {
			measured = figure(row.Measured.Value)
			if i := row.Measured.Interval; i != nil {
				interval, rounds = figure(i.Low)+" to "+figure(i.High), strconv.Itoa(i.Rounds)
			}
		}
		_, printErr := fmt.Fprintf(columns, "%s\t%s %s\t%s\t%s\t%s\t%s\n", row.Name, row.Relation, figure(row.Target), measured, interval, rounds, row.Verdict)
		err = errors.Join(err, printErr)
	}
	return errors.Join(err, columns.Flush())
}

// figure formats a number with four significant digits.
func figure(value float64) string {
	return strconv.FormatFloat(value, 'g', 4, 64)
}

func machine() result.Machine {
	m := result.Machine{OS: runtime.GOOS, Arch: runtime.GOARCH, CPUs: runtime.NumCPU(), Go: runtime.Version()}
	if build, ok := debug.ReadBuildInfo(); ok {
		for _, setting := range build.Settings {
			if setting.Key == "vcs.revision" {
				m.Commit = setting.Value
			}
		}
	}
	if text, err := os.ReadFile("/proc/cpuinfo"); err == nil {
		m.CPU = procField(string(text), "model name")
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.Memory = procField(string(text), "MemTotal")
	}
	return m
}

// procField returns the value of a "name: value" line of a file in /proc.
func procField(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

func write(directory string, report result.Report) error {
	text, err := json.MarshalIndent(report, "", "  ")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(directory, 0o755); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(directory, "results.json"), append(text, '\n'), 0o644)
}
