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
	"bytes"
	"fmt"
	"html"
	"os"
	"slices"
	"strings"
)

// report is what check prints in the end.
type report struct {
	Suite          string
	Runs, Injected int
	Findings       []finding
	Unreached      []string
	Notes          []string
	// Names are those of the scenarios and of the runs with faults.
	Names []string
}

// text returns the finding with the requests of both runs side by side, and the command that repeats it.
func (f *finding) text() string {
	var out strings.Builder
	fmt.Fprintf(&out, "\nFINDING %s: %s\n%s\n", f.Judge, f.Run, indent(f.Message))
	if len(f.Requests) > 0 {
		fmt.Fprintf(&out, "    %-70s | %s\n", "without the fault", "this run")
		n := max(len(f.Without), len(f.Requests))
		without, requests := slices.Concat(f.Without, make([]string, n)), slices.Concat(f.Requests, make([]string, n))
		for i := range n {
			fmt.Fprintf(&out, "    %-70s | %s\n", without[i], requests[i])
		}
	}
	fmt.Fprintf(&out, "    repeat: %s\n", f.Command)
	return out.String()
}

// repeat returns the command that repeats one run.
func (c *checker) repeat(id string) string {
	command := slices.Concat([]string{"go", "run", "./test/check", "-suite", c.report.Suite, "-only", id, "--"}, c.command)
	for i, word := range command {
		if strings.ContainsAny(word, " \t\n;&|<>()$`\\\"'*?[]#~{}") {
			command[i] = "'" + strings.ReplaceAll(word, "'", `'\''`) + "'"
		}
	}
	return strings.Join(command, " ")
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// tooManyUnreached is the share of faults, in percent, that may have found no occasion.
const tooManyUnreached = 5

// text returns the summary.
func (r *report) text() string {
	var out strings.Builder
	for _, note := range r.Notes {
		fmt.Fprintln(&out, "note: "+note)
	}
	for _, id := range r.Unreached {
		fmt.Fprintln(&out, "not reached: "+id)
	}
	judges := map[string]int{}
	for i := range r.Findings {
		out.WriteString(r.Findings[i].text())
		judges[r.Findings[i].Judge]++
	}
	fmt.Fprintf(&out, "%d runs, %d faults injected, %d not reached, ", r.Runs, r.Injected, len(r.Unreached))
	fmt.Fprintf(&out, "%d findings %v\n", len(r.Findings), judges)
	if r.tooFew() {
		fmt.Fprintf(&out, "FAILED: more than %d %% of the faults were not reached\n", tooManyUnreached)
	}
	return out.String()
}

// tooFew reports whether more faults than that were not reached.
func (r *report) tooFew() bool {
	return 100*len(r.Unreached) > tooManyUnreached*(r.Injected+len(r.Unreached))
}

// failed reports whether the controller does not pass.
func (r *report) failed() bool { return len(r.Findings) > 0 || r.tooFew() || r.Runs == 0 }

// named returns the reports of the suites in which only names a scenario, or all if it is "".
func named(reports []*report, only string) ([]*report, error) {
	if only != "" {
		reports = slices.DeleteFunc(reports, func(r *report) bool { return r.Runs == 0 && len(r.Findings) == 0 })
	}
	if len(reports) == 0 {
		return nil, fmt.Errorf("-only %q: no scenario begins so", only)
	}
	return reports, nil
}

// writeReport writes the reports to the file, if it has a name.
func writeReport(file string, reports []*report, encode func(any) ([]byte, error)) error {
	if file == "" {
		return nil
	}
	data, err := encode(reports)
	if err != nil {
		return err
	}
	return os.WriteFile(file, data, 0o600)
}

// asJUnit encodes reports, with a test case for each scenario and each run with a fault.
func asJUnit(of any) ([]byte, error) {
	var out bytes.Buffer
	reports, _ := of.([]*report)
	fmt.Fprintln(&out, "<testsuites>")
	for _, r := range reports {
		fmt.Fprintf(&out, "<testsuite name=\"%s\">\n", html.EscapeString(r.Suite))
		slices.Sort(r.Names)
		for _, name := range slices.Compact(r.Names) {
			fmt.Fprintf(&out, "<testcase name=\"%s\">", html.EscapeString(name))
			for i := range r.Findings {
				if f := &r.Findings[i]; f.Run == name {
					fmt.Fprintf(&out, "<failure type=\"%s\">%s</failure>", f.Judge, html.EscapeString(f.text()))
				}
			}
			if slices.Contains(r.Unreached, name) {
				fmt.Fprint(&out, "<skipped/>")
			}
			fmt.Fprintln(&out, "</testcase>")
		}
		fmt.Fprintln(&out, "</testsuite>")
	}
	fmt.Fprintln(&out, "</testsuites>")
	return out.Bytes(), nil
}
