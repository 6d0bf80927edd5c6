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
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/utils/clock"
)

// TestTutorial reads docs/tutorial.md: each block says what it is, and README.md has its figure.
func TestTutorial(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("../..", page))
	if err != nil {
		t.Fatal(err)
	}
	blocks, err := parsePage(page, string(text))
	if err != nil {
		t.Fatal(err)
	}
	overview, err := os.ReadFile(filepath.Join("../..", readme))
	if err != nil {
		t.Fatal(err)
	}
	r, figures := newTestRunner(t, string(overview), false), 0
	for _, b := range blocks {
		switch b.language {
		case "mermaid":
			figures++
			if err := r.block(t.Context(), b); err != nil {
				t.Error(err)
			}
		case "console":
			if _, err := b.commands(); err != nil {
				t.Error(err)
			}
		}
	}
	if figures != 1 {
		t.Errorf("%d figures, want 1", figures)
	}
}

func newTestRunner(t *testing.T, overview string, full bool) *runner {
	t.Helper()
	r, err := newRunner(t.TempDir(), overview, full, &bytes.Buffer{}, clock.RealClock{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestMatches(t *testing.T) {
	for sentence, test := range map[string]struct {
		page, output string
		want         bool
	}{
		"the same lines":                              {"a\nb", "a\nb\n", true},
		"a line more":                                 {"a", "a\nb\n", false},
		"a line less":                                 {"a\nb", "a\n", false},
		"any text in a line":                          {"a…c", "abbc\n", true},
		"any text ends with the line":                 {"a…c", "ab\nbc\n", false},
		"any lines":                                   {"a\n…\nd", "a\nb\nc\nd\n", true},
		"any lines are also none":                     {"a\n…\nd", "a\nd\n", true},
		"any lines at the end":                        {"a\n…", "a\nb\n", true},
		"blanks at the end of a line are not seen":    {"a\nb  ", "a  \nb\n", true},
		"empty lines at the end are not seen":         {"a", "a\n\n", true},
		"a sign of regular expressions stands for it": {"a.(b)", "axb\n", false},
	} {
		t.Run(sentence, func(t *testing.T) {
			if got := matches(strings.Split(test.page, "\n"), test.output, true); got != test.want {
				t.Errorf("got %v, want %v", got, test.want)
			}
		})
	}
	t.Run("a command that goes on may have said more", func(t *testing.T) {
		if !matches([]string{"a"}, "a\nb\n", false) || matches([]string{"b"}, "a\nb\n", false) {
			t.Error("only the beginning counts")
		}
	})
}

func TestRun(t *testing.T) {
	// If the test was started in the background of a shell, it ignores the signal, and so would
	// the commands.
	_, stop := signal.NotifyContext(t.Context(), os.Interrupt)
	defer stop()
	for sentence, test := range map[string]struct {
		page string
		full bool
		// want is a part of the error, "" for none.
		want string
	}{
		"commands share the directory and exported variables": {page: "```console\n$ mkdir a && cd a\n$ export B=1\n$ echo $B $(basename \"$PWD\")\n1 a\n```\n"},
		"a command goes on in the next line":                  {page: "```console\n$ echo a \\\n    b\na b\n```\n"},
		"output without mention may be any":                   {page: "```console\n$ echo a\n```\n"},
		"another output is an error with place and output": {page: "text\n\n```console\n$ true\n$ echo b\na\n```\n",
			want: "x.md:5: $ echo b: the page shows\na\nthe output is\nb\n"},
		"a command that fails is an error":                  {page: "```console\n$ echo why && false\n```\n", want: "x.md:2: $ echo why && false: exit status 1\nwhy\n"},
		"a command may be said to fail":                     {page: "```console fails\n$ true\n$ false\n```\n"},
		"one that is said to fail and does not is an error": {page: "```console fails\n$ true\n```\n", want: "it succeeded"},
		"a file and a patch of it":                          {page: "```txt file=a/b.txt\none\n```\n\n```diff\n--- a/a/b.txt\n+++ b/a/b.txt\n@@ -1 +1 @@\n-one\n+two\n```\n\n```console\n$ cat a/b.txt\ntwo\n```\n"},
		"a patch that does not fit is an error":             {page: "```diff\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-one\n+two\n```\n", want: "x.md:1: git apply: "},
		"a file of JSON that is none is an error":           {page: "```json file=a.json\n{\n```\n", want: "x.md:1: a.json is no valid JSON"},
		"a figure of README.md":                             {page: "```mermaid\nfigure\n```\n"},
		"another figure is an error":                        {page: "```mermaid\nother\n```\n", want: "x.md:1: README.md has another figure"},
		"the short form leaves out what is marked":          {page: "```console full\n$ false\n```\n"},
		"the full form does not":                            {page: "```console full\n$ false\n```\n", full: true, want: "exit status 1"},
		"a block with a reason is not run":                  {page: "```console\n# Not tested: it fails.\n$ false\n```\n"},
		"a second terminal, in the same directory":          {page: "```console\n$ mkdir a && cd a\n```\n\n```console background\n$ basename \"$PWD\"; exec sleep 600\na\n^C\n$ echo b; exec sleep 600\nb\n```\n"},
		"a command there that ends too early is an error":   {page: "```console background\n$ echo a\nb\n```\n", want: "the command has ended; the page shows\nb\nthe output is\na\n"},
		"one that has ended before Ctrl-C is an error":      {page: "```console background\n$ echo $$ >pid; echo a\na\n```\n\n```console\n$ while kill -0 \"$(cat pid)\" 2>/dev/null; do sleep 0.01; done\n```\n", want: "has ended before Ctrl-C"},
		"two commands there at the same time are an error":  {page: "```console background\n$ echo a; exec sleep 600\na\n$ b\n```\n", want: "x.md:4: $ b: the second terminal is in use"},
		"nothing there to interrupt is an error":            {page: "```console background\n^C\n```\n", want: "nothing runs in the second terminal"},
		"a block without an end":                            {page: "```console\n$ a\n", want: "x.md:1: the block has no end"},
		"a block that says nothing about itself":            {page: "```\na\n```\n", want: "needs file=PATH"},
		"a file outside of the directory":                   {page: "```go file=../a.go\n```\n", want: "needs file=PATH"},
		"a patch in a terminal":                             {page: "```diff background\n```\n", want: `remove what does not fit from ["background"]`},
		"commands with a path":                              {page: "```console file=a\n$ a\n```\n", want: `remove what does not fit from ["file=a"]`},
		"a word without a meaning":                          {page: "```console often\n$ a\n```\n", want: `x.md:1: "often" means nothing`},
		"an indented block":                                 {page: "text\n\n    make\n", want: "x.md:3: an indented block is not run"},
		"output without a command":                          {page: "```console\na\n```\n", want: "x.md:2: output without a command"},
		"a block without a command":                         {page: "```console\n```\n", want: "x.md:1: the block has no command"},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := newTestRunner(t, "```mermaid\nfigure\n```\n", test.full)
			blocks, err := parsePage("x.md", test.page)
			if err == nil {
				err = r.run(t.Context(), blocks)
			}
			switch {
			case test.want == "" && err != nil:
				t.Error(err)
			case test.want != "" && (err == nil || !strings.Contains(err.Error(), test.want)):
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
}

func TestSummary(t *testing.T) {
	var log bytes.Buffer
	r := newTestRunner(t, "", false)
	r.log = &log
	blocks, err := parsePage("x.md", "```console\n$ true\n```\n\n```console full\n$ false\n```\n")
	if err != nil {
		t.Fatal(err)
	}
	if err := r.run(t.Context(), blocks); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(log.String(), "\n")
	if !slices.Contains(lines, "x.md:2: $ true") || !strings.Contains(log.String(), "1 blocks in 0s; 1 blocks marked full were left out") {
		t.Errorf("log %q", lines)
	}
}
