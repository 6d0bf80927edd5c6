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

// explanation says why no test notices a mutant.
type explanation struct {
	key string
	why string
	// used says that the mutant was met, and lived.
	used bool
}

// parseExplanations reads paragraphs of the mutant's key, as it is printed, and
// the reason below it. Lines that begin with # are comments.
func parseExplanations(text string) ([]*explanation, error) {
	var list []*explanation
	known := map[string]bool{}
	for _, paragraph := range strings.Split(withoutComments(text), "\n\n") {
		lines := strings.Split(strings.Trim(paragraph, "\n"), "\n")
		if len(lines) == 1 && lines[0] == "" {
			continue
		}
		if len(lines) < 4 || !strings.HasPrefix(lines[1], "- ") || !strings.HasPrefix(lines[2], "+ ") {
			return nil, fmt.Errorf("no explanation: %q; write file and function, the code before (-) and after (+), and below it why no test notices", paragraph)
		}
		e := &explanation{key: strings.Join(lines[:3], "\n"), why: strings.Join(lines[3:], " ")}
		if known[e.key] {
			return nil, fmt.Errorf("explained twice: %q", e.key)
		}
		known[e.key] = true
		list = append(list, e)
	}
	return list, nil
}

func withoutComments(text string) string {
	var kept []string
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "#") {
			kept = append(kept, line)
		}
	}
	return strings.Join(kept, "")
}

// explain reports whether a survivor is on the list.
func explain(list []*explanation, survivor mutant) bool {
	for _, e := range list {
		if e.key == survivor.key {
			e.used = true
			return true
		}
	}
	return false
}
