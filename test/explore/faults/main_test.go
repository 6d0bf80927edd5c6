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
