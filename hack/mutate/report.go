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
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"text/tabwriter"
)

// file is one of the files to mutate, and what became of its mutants.
type file struct {
	// name is the path below the root.
	name             string
	mutants          []mutant
	explained, lived int
	seconds          float64
}

// directory is that of the file's package, below the root.
func (f *file) directory() string {
	return filepath.Dir(f.name)
}

// target is what is mutated.
type target struct {
	files []*file
	// sources are the files with all mutants in them.
	sources map[string]string
	// packages are the names of the packages, by directory.
	packages map[string]string
}

// readFiles finds the mutants of all files, and keeps those asked for.
func readFiles(o *options) (*target, error) {
	p := &target{sources: map[string]string{}, packages: map[string]string{}}
	nextID := 1
	for _, path := range o.files {
		src, err := os.ReadFile(filepath.Join(o.tester.root, path))
		if err != nil {
			return nil, err
		}
		f := &file{name: path}
		packageName, sites, err := findMutants(f.name, string(src), nextID)
		if err != nil {
			return nil, err
		}
		for _, s := range sites {
			nextID += len(s.mutants)
			for _, m := range s.mutants {
				if o.match.MatchString(m.key) {
					f.mutants = append(f.mutants, m)
				}
			}
		}
		p.packages[f.directory()], p.sources[f.name] = packageName, instrument(string(src), sites)
		p.files = append(p.files, f)
	}
	return p, nil
}

func (p *target) list(out io.Writer) {
	for _, f := range p.files {
		for _, m := range f.mutants {
			fmt.Fprintf(out, "# %s:%d\n%s\n\n", f.name, m.line, m.key)
		}
	}
}

// readExplanations returns those that are about the mutants asked for.
func readExplanations(o *options) ([]*explanation, error) {
	if o.explained == "" {
		return nil, nil
	}
	text, err := os.ReadFile(o.explained)
	if err != nil {
		return nil, err
	}
	list, err := parseExplanations(string(text))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", o.explained, err)
	}
	return slices.DeleteFunc(list, func(e *explanation) bool {
		about, _, _ := strings.Cut(e.key, " ")
		return !o.match.MatchString(e.key) || !slices.Contains(o.files, about)
	}), nil
}

// judge counts the survivors and prints those that nobody has explained.
func (f *file) judge(out io.Writer, survivors []mutant, explanations []*explanation) {
	for _, m := range survivors {
		if explain(explanations, m) {
			f.explained++
			continue
		}
		f.lived++
		fmt.Fprintf(out, "\nLIVED: %s:%d\n%s\n", f.name, m.line, m.key)
	}
}

// report prints the table, and returns an error if something is to be mended.
func report(out io.Writer, files []*file, explanations []*explanation) error {
	needless := 0
	for _, e := range explanations {
		if !e.used {
			needless++
			fmt.Fprintf(out, "\nNEEDLESS EXPLANATION, there is no such survivor:\n%s\n", e.key)
		}
	}
	fmt.Fprintln(out)
	table := tabwriter.NewWriter(out, 0, 0, 2, ' ', tabwriter.AlignRight)
	fmt.Fprintln(table, "file\tmutants\tkilled\texplained\tlived\tseconds\t")
	total := file{name: "total"}
	for _, f := range files {
		f.print(table)
		total.mutants = append(total.mutants, f.mutants...)
		total.explained += f.explained
		total.lived += f.lived
		total.seconds += f.seconds
	}
	total.print(table)
	if err := table.Flush(); err != nil {
		return err
	}
	if total.lived > 0 || needless > 0 {
		return fmt.Errorf("%d mutants lived that no test kills and nobody has explained, %d explanations are needless", total.lived, needless)
	}
	return nil
}

func (f *file) print(out io.Writer) {
	killed := len(f.mutants) - f.explained - f.lived
	fmt.Fprintf(out, "%s\t%d\t%d\t%d\t%d\t%.0f\t\n", f.name, len(f.mutants), killed, f.explained, f.lived, f.seconds)
}
