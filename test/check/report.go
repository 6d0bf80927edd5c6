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
	"strings"
)

// report is what check prints in the end.
type report struct {
	runs, reached int
	findings      []finding
	unreached     []string
	notes         []string
}

// text returns the finding with the requests of both runs side by side, and the command that repeats it.
func (f *finding) text(c *checker) string {
	var out strings.Builder
	fmt.Fprintf(&out, "\nFINDING %s: %s\n%s\n", f.judge, f.id, indent(f.message))
	if len(f.requests) > 0 {
		fmt.Fprintf(&out, "    %-70s | %s\n", "without the fault", "this run")
		for i := range max(len(f.without), len(f.requests)) {
			fmt.Fprintf(&out, "    %-70s | %s\n", at(f.without, i), at(f.requests, i))
		}
	}
	fmt.Fprintf(&out, "    repeat: go run ./test/check -suite %s -only '%s' -- %s\n", c.file, f.id, strings.Join(c.command, " "))
	return out.String()
}

func at(lines []string, i int) string {
	if i < len(lines) {
		return lines[i]
	}
	return ""
}

func indent(text string) string {
	return "    " + strings.ReplaceAll(strings.TrimSpace(text), "\n", "\n    ")
}

// tooManyUnreached is the share of faults, in percent, that may have found no occasion.
const tooManyUnreached = 5

// text returns the summary.
func (r *report) text() string {
	var out strings.Builder
	for _, note := range r.notes {
		fmt.Fprintln(&out, "note: "+note)
	}
	for _, id := range r.unreached {
		fmt.Fprintln(&out, "not reached: "+id)
	}
	judges := map[string]int{}
	for i := range r.findings {
		judges[r.findings[i].judge]++
	}
	fmt.Fprintf(&out, "%d runs, %d faults injected, %d not reached, %d findings %v\n", r.runs, r.reached, len(r.unreached), len(r.findings), judges)
	if r.tooFew() {
		fmt.Fprintf(&out, "FAILED: more than %d %% of the faults were not reached\n", tooManyUnreached)
	}
	return out.String()
}

func (r *report) tooFew() bool {
	return 100*len(r.unreached) > tooManyUnreached*(r.reached+len(r.unreached))
}

// passed reports whether the controller passes.
func (r *report) passed() bool { return len(r.findings) == 0 && !r.tooFew() && r.runs > 0 }
