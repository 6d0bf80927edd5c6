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
	"context"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

func TestRun(t *testing.T) {
	// If the test was started in the background of a shell, it ignores the signal, and so would
	// the commands.
	_, stop := signal.NotifyContext(t.Context(), syscall.SIGINT)
	defer stop()
	for sentence, test := range map[string]struct {
		page string
		// want is a part of the error, "" for none.
		want string
	}{
		"commands share the directory and exported variables": {"```console\n$ mkdir a && cd a\n$ export B=1\n$ echo $B $(basename \"$PWD\")\n1 a\n```\n", ""},
		"a command goes on in the next line":                  {"```console\n$ echo a \\\n    b\na b\n```\n", ""},
		"output without mention may be any":                   {"```console\n$ echo a\n```\n", ""},
		"any text in a line, and any lines":                   {"```console\n$ printf 'abbc\\nd\\ne\\nf  \\n\\n'\na…c\n…\nf\n```\n", ""},
		"any text ends with the line":                         {"```console\n$ printf 'ab\\nbc\\n'\na…c\n```\n", "the page shows"},
		"a line more than the page shows":                     {"```console\n$ printf 'a\\nb\\n'\na\n```\n", "the output is\na\nb\n"},
		"a sign of regular expressions stands for it":         {"```console\n$ echo ab\na.\n```\n", "the page shows"},
		"another output is an error with its place":           {"text\n\n```console\n$ true\n$ echo b\na\n```\n", "x.md:3: $ echo b: the page shows\na\nthe output is\nb\n"},
		"a command that fails":                                {"```console\n$ echo why && false\n```\n", "x.md:1: $ echo why && false: error exit status 1, and it is said to fail: false\nwhy\n"},
		"a command may be said to fail":                       {"```console fails\n$ true\n$ false\n```\n", ""},
		"one that is said to fail and does not":               {"```console fails\n$ true\n```\n", "it is said to fail: true"},
		"a file and a patch of it":                            {"```txt file=a/b.txt\none\n```\n\n```diff\n--- a/a/b.txt\n+++ b/a/b.txt\n@@ -1 +1 @@\n-one\n+two\n```\n\n```console\n$ cat a/b.txt\ntwo\n```\n", ""},
		"a patch that does not fit":                           {"```diff\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-one\n+two\n```\n", "No such file"},
		"the short form leaves out what is marked":            {"```console full\n$ false\n```\n", ""},
		"a block with a reason is not run":                    {"```console\n# Not tested: it fails.\n$ false\n```\n", ""},
		"a second terminal, in the same directory":            {"```console\n$ mkdir a && cd a\n```\n\n```console background\n$ basename \"$PWD\"; exec sleep 600\na\n^C\n$ echo b; exec sleep 600\nb\n```\n", ""},
		"two commands there at the same time":                 {"```console background\n$ echo a; exec sleep 600\na\n$ b\n```\n", "$ b: the second terminal is in use"},
		"a command there that ends too early":                 {"```console background\n$ echo a\nb\n```\n", "the command has ended; the page shows\nb\nthe output is\na"},
		"nothing there to interrupt":                          {"```console background\n^C\n```\n", "nothing runs in the second terminal"},
		"a block that says nothing about itself":              {"```\na\n```\n", "does not say what it is"},
		"output without a command":                            {"```console\na\n```\n", "output without a command"},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := &runner{work: t.TempDir(), log: io.Discard}
			err := r.run(t.Context(), "x.md", test.page)
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
	t.Run("an end of the context ends the command", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		if err := (&runner{work: t.TempDir(), log: io.Discard}).run(ctx, "x.md", "```console\n$ sleep 600\n```\n"); err == nil {
			t.Error("no error")
		}
	})
}
