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

// Command faults plants the faults of test/explore/testdata/faults, one at a time, in a copy of the repository, and
// fails if TestExplore does not find one there. `make explore-faults` runs it. FAULTS has the names of some of them.
// With WITHOUT, the names of deviations that the scope is to be without, it only counts. Else it writes the table of
// docs/explore.md, if it has run all.
package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"example.com/sample-controller/hack/tree"
)

const (
	folder = "test/explore/testdata/faults"
	page   = "docs/explore.md"
	begin  = "<!-- begin of the table -->\n"
	end    = "<!-- end of the table -->\n"
)

func main() {
	tree.Main(run)
}

// fault is a patch that plants a fault, with what stands before the patch.
type fault struct {
	name, patch string
	// what describes the fault. mend is the commit that the patch takes back, if it is one.
	what, mend string
	// start, budget and a part of the first operation are the scope in which the fault is found. A budget without
	// deviations is tried first.
	start, budget, first string
	// without are deviations that the scope is without, so that it is small enough.
	without string
}

var header = regexp.MustCompile(`(?m)^(Mend|Start|Budget|First|Without): (.+)$`)

// readFaults returns the faults of those names, or all, in the order of their names.
func readFaults(root string, names []string) (faults []fault, err error) {
	paths, err := filepath.Glob(filepath.Join(root, folder, "*.patch"))
	for _, path := range paths {
		f := fault{name: strings.TrimSuffix(filepath.Base(path), ".patch"), patch: path}
		if len(names) > 0 && !slices.Contains(names, f.name) {
			continue
		}
		data, readErr := os.ReadFile(path)
		text, _, isPatch := strings.Cut(string(data), "diff --git ")
		f.what, _, _ = strings.Cut(text, "\n\n")
		f.what = strings.ReplaceAll(f.what, "\n", " ")
		for _, line := range header.FindAllStringSubmatch(text, -1) {
			*map[string]*string{"Mend": &f.mend, "Start": &f.start, "Budget": &f.budget, "First": &f.first, "Without": &f.without}[line[1]] = line[2]
		}
		if !isPatch || f.start == "" || f.budget == "" {
			readErr = cmp.Or(readErr, fmt.Errorf("%s: no patch, no Start or no Budget", path))
		}
		faults, err = append(faults, f), errors.Join(err, readErr)
	}
	if len(faults) == 0 {
		err = cmp.Or(err, errors.New("no such fault"))
	}
	return faults, err
}

// finding is how a fault was found: by which invariant, with which budget, in how many states and steps.
type finding struct {
	invariant, budget, states string
	steps                     int
}

func run(ctx context.Context, root string, get func(string) string, output io.Writer) error {
	faults, err := readFaults(root, strings.Fields(get("FAULTS")))
	if err != nil {
		return err
	}
	files, err := tree.List(ctx, root, "--cached")
	if err != nil {
		return err
	}
	// Without the other tests there is less to compile.
	files = slices.DeleteFunc(files, func(f *tree.File) bool {
		return !strings.Contains(f.Path, "/") && strings.HasSuffix(f.Path, "_test.go") && !strings.HasPrefix(f.Path, "explore_")
	})
	var rows []string
	var missed []error
	err = tree.InCopy(ctx, os.TempDir(), files, func(dir string) error {
		for _, f := range faults {
			found, err := f.explore(ctx, dir, get("WITHOUT"))
			if ctx.Err() != nil {
				return ctx.Err()
			}
			if err != nil {
				missed = append(missed, fmt.Errorf("%s: %w", f.name, err))
			}
			rows = append(rows, f.row(found))
			fmt.Fprintf(output, "%s: %s", f.name, rows[len(rows)-1])
		}
		return nil
	})
	fmt.Fprintf(output, "Found: %d of %d\n", len(rows)-len(missed), len(faults))
	if err = cmp.Or(err, errors.Join(missed...)); err != nil || get("WITHOUT") != "" || get("FAULTS") != "" {
		return err
	}
	return write(filepath.Join(root, page), rows)
}

func (f *fault) row(found finding) string {
	return fmt.Sprintf("| %s | %s | %s | %s, %s | %s | %d |\n", f.what, cmp.Or(f.mend, "–"), cmp.Or(found.invariant, "not found"),
		f.start, cmp.Or(found.budget, f.budget), found.states, found.steps)
}

// write replaces the table of the page.
func write(path string, rows []string) error {
	data, err := os.ReadFile(path)
	before, rest, isBegun := strings.Cut(string(data), begin)
	_, after, isEnded := strings.Cut(rest, end)
	if err != nil || !isBegun || !isEnded {
		return cmp.Or(err, fmt.Errorf("%s has no place for the table", path))
	}
	table := "| Fault | Mend taken back | Found by | Start, operations + deviations | States | Steps |\n|---|---|---|---|---|---|\n" + strings.Join(rows, "")
	return os.WriteFile(path, []byte(before+begin+table+end+after), 0o600)
}

// explore plants the fault in the copy, runs TestExplore there and takes the fault out again. It returns an error if
// the fault is not found, or needs no deviation although its budget has one.
func (f *fault) explore(ctx context.Context, dir, without string) (found finding, err error) {
	if err := tree.Execute(ctx, dir, dir, tree.Git("apply", f.patch)); err != nil {
		return found, err
	}
	defer func() {
		err = errors.Join(err, tree.Execute(ctx, dir, dir, tree.Git("checkout-index", "--all", "--force")))
	}()
	// The binary runs by itself, so that it ends with this command.
	binary := filepath.Join(dir, "explore.test")
	if err := tree.Execute(ctx, dir, dir, []string{"go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-o", binary, "."}); err != nil {
		return found, err
	}
	operations, deviations, _ := strings.Cut(f.budget, "+")
	budgets := f.budget
	if deviations != "0" {
		budgets = operations + "+0 " + f.budget
	}
	name := strings.ReplaceAll(f.start, " ", "_")
	test := exec.CommandContext(ctx, binary, "-test.v", "-test.timeout=60m", "-test.run=^TestExplore$/^"+name+"$")
	test.Dir, test.Env = dir, append(os.Environ(), "EXPLORE_BUDGETS="+budgets, "EXPLORE_FIRST="+f.first, "EXPLORE_WITHOUT="+f.without+" "+without,
		"EXPLORE_STATES="+cmp.Or(os.Getenv("EXPLORE_STATES"), "1000000"))
	data, testErr := test.CombinedOutput()
	text := string(data)
	if _, isFailed := errors.AsType[*exec.ExitError](testErr); testErr != nil && !isFailed {
		return found, testErr
	}
	found, ok := parse(text)
	switch {
	case !ok:
		return found, fmt.Errorf("not found:\n%s", text)
	case found.budget != f.budget:
		return found, fmt.Errorf("found without a deviation:\n%s", text)
	}
	return found, nil
}

var (
	violation = regexp.MustCompile(`\w+\.go:\d+: ((?:rule \d+|[SL]\d)): .*\n((?:        .*\n)+?) +func TestPath`)
	explored  = regexp.MustCompile(`\w+\.go:\d+: (\d\+\d): (\d+) states`)
)

// parse returns the first violation in the output of TestExplore and the exploration that found it, or the last one.
func parse(output string) (found finding, ok bool) {
	if first := violation.FindStringSubmatchIndex(output); first != nil {
		found.invariant, found.steps = output[first[2]:first[3]], strings.Count(output[first[4]:first[5]], "\n")
		ok, output = true, output[first[1]:]
	}
	for _, total := range explored.FindAllStringSubmatch(output, -1) {
		found.budget, found.states = total[1], total[2]
	}
	return found, ok
}
