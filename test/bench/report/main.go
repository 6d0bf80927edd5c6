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

// Command report prints what the measurements of test/bench found as a table, row by row
// with its target, and fails if one is missed. hack/bench.sh runs it.
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
	results := flag.String("results", "", "File with the measurements, as JSON, one a line.")
	benchmarks := flag.String("benchmarks", "", "File with the output of go test -bench.")
	out := flag.String("out", "", "Directory to write results.json to; none if empty.")
	flag.Parse()
	if err := run(*results, *benchmarks, *out, os.Stdout); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run writes the table, and results.json if out is a directory. It returns an error if a
// row misses its target.
func run(results, benchmarks, out string, table io.Writer) error {
	measured, err := readResults(results)
	if err != nil {
		return err
	}
	synced, err := readBenchmarks(benchmarks)
	if err != nil {
		return err
	}
	measured = append(measured, synced...)
	judged := judge(rows(), measured)
	if err := print(table, judged); err != nil {
		return err
	}
	if out != "" {
		if err := write(out, result.Report{Machine: machine(), Rows: judged, Measured: measured}); err != nil {
			return err
		}
	}
	var missed []error
	for _, row := range judged {
		if row.Verdict == result.Missed {
			missed = append(missed, fmt.Errorf("missed its target: %s", row.Name))
		}
	}
	return errors.Join(missed...)
}

// readResults returns the measurements of the file.
func readResults(path string) ([]result.Measured, error) {
	file, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer func() { _ = file.Close() }()
	var all []result.Measured
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var one result.Measured
		if err := json.Unmarshal(lines.Bytes(), &one); err != nil {
			return nil, fmt.Errorf("%s: %w: %s", path, err, lines.Text())
		}
		all = append(all, one)
	}
	return all, lines.Err()
}

// readBenchmarks returns what go test -bench -benchmem printed of BenchmarkSync/foos=N, of
// several runs the fastest: whatever else the machine does only adds to it.
func readBenchmarks(path string) ([]result.Measured, error) {
	text, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var all []result.Measured
	for line := range strings.Lines(string(text)) {
		name, found := strings.CutPrefix(line, "BenchmarkSync/foos=")
		if !found {
			continue
		}
		fields := strings.Fields(name)
		objects, err := strconv.Atoi(strings.Split(fields[0], "-")[0])
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		one := result.Measured{Row: "no-op sync", Who: result.Ours, Objects: objects, Details: map[string]float64{}}
		for i := 2; i+1 < len(fields); i += 2 {
			if one.Details[fields[i+1]], err = strconv.ParseFloat(fields[i], 64); err != nil {
				return nil, fmt.Errorf("%s: %w: %s", path, err, line)
			}
		}
		one.Value = one.Details["allocs/op"]
		at := slices.IndexFunc(all, func(other result.Measured) bool { return other.Objects == one.Objects })
		switch {
		case at < 0:
			all = append(all, one)
		case one.Details["ns/op"] < all[at].Details["ns/op"]:
			all[at] = one
		}
	}
	return all, nil
}

// print writes the table.
func print(w io.Writer, judged []result.Row) error {
	peers := false
	for _, row := range judged {
		peers = peers || row.Peer != nil
	}
	columns := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	header := "what\ttarget\tmeasured\t"
	if peers {
		header += "peer\t"
	}
	_, err := fmt.Fprintln(columns, header+"verdict")
	for _, row := range judged {
		line := fmt.Sprintf("%s\t%s %s\t%s\t", row.Name, row.Relation, figure(&row.Target), figure(row.Ours))
		if peers {
			line += figure(row.Peer) + "\t"
		}
		_, printErr := fmt.Fprintln(columns, line+row.Verdict)
		err = errors.Join(err, printErr)
	}
	return errors.Join(err, columns.Flush())
}

// figure returns a number with as many digits as matter, "-" for none.
func figure(value *float64) string {
	if value == nil {
		return "-"
	}
	return strconv.FormatFloat(*value, 'g', 4, 64)
}

// machine says on what the figures are from.
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
		m.CPU = after(string(text), "model name")
	}
	if text, err := os.ReadFile("/proc/meminfo"); err == nil {
		m.Memory = after(string(text), "MemTotal")
	}
	return m
}

// after returns what a line of /proc says of the name.
func after(text, name string) string {
	for line := range strings.Lines(text) {
		if key, value, found := strings.Cut(line, ":"); found && strings.TrimSpace(key) == name {
			return strings.TrimSpace(value)
		}
	}
	return ""
}

// write writes results.json.
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
