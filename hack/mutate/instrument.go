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
	"slices"
	"strings"
)

// The chosen mutant is a number in the environment of the test binary, 0 for
// none.
const environment = "SAMPLE_CONTROLLER_MUTANT"

// selector returns a file that is compiled in beside the changed ones.
func selector(packageName string) string {
	return fmt.Sprintf(`package %s

import (
	mutantOS "os"
	mutantStrconv "strconv"
)

var mutantChosen = func() int {
	chosen, err := mutantStrconv.Atoi(mutantOS.Getenv(%q))
	if err != nil {
		panic("no mutant chosen: " + err.Error())
	}
	return chosen
}()

func mutantValue[T any](id int, with, without T) T {
	if mutantChosen == id {
		return with
	}
	return without
}
`, packageName, environment)
}

// edit puts text in place of a part of a file, or between two parts.
type edit struct {
	start, end int
	text       string
}

// instrument returns the file with all its mutants in it, none of them chosen.
func instrument(src string, sites []site) string {
	var edits []edit
	for _, s := range sites {
		edits = append(edits, s.edits(src[s.start:s.end])...)
	}
	slices.SortStableFunc(edits, func(a, b edit) int { return a.start - b.start })
	var out strings.Builder
	done := 0
	for _, edit := range edits {
		out.WriteString(src[done:edit.start])
		out.WriteString(edit.text)
		done = edit.end
	}
	out.WriteString(src[done:])
	return out.String()
}

func (s *site) edits(original string) []edit {
	around := func(before, after string) []edit {
		return []edit{{s.start, s.start, before}, {s.end, s.end, after}}
	}
	switch s.kind {
	case aStatement:
		// What stands inside may be a site too.
		return around(fmt.Sprintf("if mutantChosen != %d { ", s.mutants[0].id), " }")
	case aTag:
		return around(s.tag+" := ", "; ")
	case aCase:
		return []edit{{s.start, s.end, s.choice(s.tag + " == (" + original + ")")}}
	case aValue:
		text := original
		for _, m := range s.mutants {
			text = fmt.Sprintf("mutantValue(%d, %s, %s)", m.id, m.text, text)
		}
		return []edit{{s.start, s.end, text}}
	default:
		return []edit{{s.start, s.end, s.choice(original)}}
	}
}

// choice is a boolean expression that evaluates the chosen one only.
func (s *site) choice(original string) string {
	var cases strings.Builder
	for _, m := range s.mutants {
		fmt.Fprintf(&cases, "case %d: return %s; ", m.id, m.text)
	}
	return fmt.Sprintf("(func() bool { switch mutantChosen { %s}; return %s }())", cases.String(), original)
}
