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
	"path"
	"regexp"
	"slices"
	"strings"
)

// leftovers returns what is left of the repository's names and of dropped components, with
// the file and line, and links of documents to files that are not there.
func leftovers(o *options, files []*file) []string {
	from := o.repository.names
	words := strings.ReplaceAll(regexp.QuoteMeta(from.program), "-", "[-_ ]?")
	old := regexp.MustCompile(`(?i:` + words + `)|` + from.kind + `(?:[^a-z]|s|$)|\b` + strings.ToLower(from.kind) + `s?(?:[^a-z]|$)|` + strings.ToUpper(from.kind))
	ours, d := newNames(o), newDropper(o)
	// A line is looked at twice only if there is something in it: most lines have nothing.
	isOld := func(text string) bool {
		return old.MatchString(text) && old.MatchString(ours.ReplaceAllString(text, " "))
	}
	isDropped := func(text string) bool { return d.named(text) != "" && d.named(ours.ReplaceAllString(text, " ")) != "" }
	exist := map[string]bool{".": true}
	for _, f := range files {
		for name := f.path; name != "."; name = path.Dir(name) {
			exist[name] = true
		}
	}
	var left []string
	for _, f := range files {
		if strings.HasSuffix(f.path, ".sum") || bytes.IndexByte(f.data, 0) >= 0 {
			continue
		}
		if isOld(f.path) {
			left = append(left, fmt.Sprintf("%s: the name of the file", f.path))
		}
		for i, line := range strings.Split(string(f.data), "\n") {
			switch {
			case attribution.MatchString(line):
			case isOld(line):
				left = append(left, fmt.Sprintf("%s:%d: a name of this repository: %s", f.path, i+1, strings.TrimSpace(line)))
			case isDropped(line):
				left = append(left, fmt.Sprintf("%s:%d: names %s, which is dropped: %s", f.path, i+1, d.named(line), strings.TrimSpace(line)))
			case path.Ext(f.path) == ".md":
				for _, target := range deadLinks(f.path, line, exist) {
					left = append(left, fmt.Sprintf("%s:%d: links to %s, which is not there", f.path, i+1, target))
				}
			}
		}
	}
	return left
}

// newNames matches the names of the fork, of which a name of this repository may be a part,
// and an example in the description of metav1.Condition, which is in every CRD.
func newNames(o *options) *regexp.Regexp {
	all := []string{regexp.QuoteMeta("foo.example.com/CamelCase")}
	for _, name := range []string{o.module, o.copyright, o.group, o.groupPackage, camel(o.program), o.program, o.kinds, o.kind, o.plural} {
		all = append(all, regexp.QuoteMeta(name), strings.ReplaceAll(regexp.QuoteMeta(name), "-", "_"), strings.ReplaceAll(regexp.QuoteMeta(name), "-", ""))
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	return regexp.MustCompile("(?i)" + strings.Join(all, "|"))
}

// link matches the target of a Markdown link to a file of the repository.
var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// deadLinks returns the targets of links that do not exist.
func deadLinks(document, line string, exist map[string]bool) []string {
	var dead []string
	for _, match := range link.FindAllStringSubmatch(line, -1) {
		if target := path.Join(path.Dir(document), match[1]); !exist[target] && !generated.MatchString(target) {
			dead = append(dead, target)
		}
	}
	return dead
}
