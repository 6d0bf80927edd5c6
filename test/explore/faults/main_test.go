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
	"path/filepath"
	"strings"
	"testing"

	"example.com/sample-controller/hack/tree"
)

// TestPatches checks that each patch fits the present code. `make
// explore-faults` tells whether they are found.
func TestPatches(t *testing.T) {
	root, err := filepath.Abs("../../..")
	if err != nil {
		t.Fatal(err)
	}
	faults, err := readFaults(root, nil)
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range faults {
		if err := tree.Execute(t.Context(), root, root, tree.Git("apply", "--check", f.patch)); err != nil {
			t.Errorf("%v; make the patch anew, with one line of context", err)
		}
	}
}

// TestParse checks what is read from the output of TestExplore.
func TestParse(t *testing.T) {
	const output = `    explore_test.go:1: 1+0: 5 states, 9 transitions (3 ran code of the controller), depth 3, closed true in 10ms
    explore_test.go:1: S4: Deployment a was deleted
            user: kubectl
            sync of x
            func TestPath(t *testing.T) {}
    explore_test.go:1: L1: at rest: something
            user: kubectl
            func TestPath(t *testing.T) {}
    explore_test.go:1: 1+1: 7 states, 9 transitions (3 ran code of the controller), depth 3, closed true in 2s
--- FAIL: TestExplore
`
	got, ok := parse(output)
	if want := (finding{invariant: "S4", budget: "1+1", states: "7", steps: 2}); !ok || got != want {
		t.Errorf("parse: %+v, %t, want %+v", got, ok, want)
	}
	clean, _, _ := strings.Cut(output, "    explore_test.go:1: S4")
	if got, ok := parse(clean); ok || got.states != "5" {
		t.Errorf("parse of an exploration without a violation: %+v, %t", got, ok)
	}
}
