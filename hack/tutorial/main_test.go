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
	"errors"
	"io"
	"os/signal"
	"strings"
	"syscall"
	"testing"
)

func TestRun(t *testing.T) {
	// If the test was started in the background of a shell, it ignores the signal, and so would the commands.
	_, stop := signal.NotifyContext(t.Context(), syscall.SIGINT)
	defer stop()
	for sentence, test := range map[string]struct {
		words, text string
		// want is a part of the error, "" for none.
		want string
	}{
		"commands share the directory and variables":  {"console", "$ mkdir a && cd a\n$ export B=1\n$ echo $B ${PWD##*/}\n1 a", ""},
		"a command goes on in the next line":          {"console", "$ echo a \\\n    b\na b", ""},
		"output without mention may be any":           {"console", "$ echo a", ""},
		"any text in a line, and any lines":           {"console", "$ printf 'abbc\\nd\\ne\\nf  \\n\\n'\na…c\n…\nf", ""},
		"any text ends with the line":                 {"console", "$ printf 'ab\\nbc\\n'\na…c", "the page shows"},
		"a line more than the page shows":             {"console", "$ printf 'a\\nb\\n'\na", "the output is\na\nb\n"},
		"a sign of regular expressions stands for it": {"console", "$ echo ab\na.", "the page shows"},
		"another output is an error with its place":   {"console", "$ true\n$ echo b\na", "x.md:3: $ echo b: the page shows\na\nthe output is\nb\n"},
		"a failure":                             {"console", "$ echo why; false", "$ echo why; false: error exit status 1"},
		"a command may be said to fail":         {"console fails", "$ true\n$ false", ""},
		"one that is said to fail and does not": {"console fails", "$ true", "it is said to fail: true"},
		"a patch": {"console", "$ echo one >b\n```\n\n```diff\n--- a/b\n+++ b/b\n@@ -1 +1 @@\n-one\n+two\n```\n\n" +
			"```console\n$ cat b\ntwo", ""},
		"a patch that does not fit":                {"diff", "--- a/b\n+++ b/b\n@@ -1 +1 @@\n-one\n+two", "No such file"},
		"the short form leaves out what is marked": {"console full", "$ false", ""},
		"a block with a reason is not run":         {"console", "# Not tested: it fails.\n$ false", ""},
		"a second terminal, in the directory": {"console", "$ mkdir a && cd a\n```\n\n" +
			"```console background\n$ echo ${PWD##*/}; cd /; trap exit INT; sleep 9\na\n^C\n$ echo ${PWD##*/}; sleep 9\na", ""},
		"two commands there at the same time": {"console background", "$ echo a; exec sleep 600\na\n$ b", "$ b: the second terminal is in use"},
		"a command there that ends too early": {"console background", "$ echo a\nb", "the command has ended"},
		"nothing there to interrupt":          {"console background", "^C", "nothing runs in the second terminal"},
		"a block that says nothing of itself": {"", "a", "does not say what it is"},
		"output without a command":            {"console", "a", "output without a command"},
	} {
		t.Run(sentence, func(t *testing.T) {
			r := &runner{work: t.TempDir(), log: io.Discard}
			err := r.run(t.Context(), "x.md", "text\n\n```"+test.words+"\n"+test.text+"\n```\n")
			if (err == nil) != (test.want == "") || err != nil && !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want one with %q", err, test.want)
			}
		})
	}
	t.Run("an end of the context ends the command", func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		cancel()
		err := (&runner{work: t.TempDir(), log: io.Discard}).run(ctx, "x.md", "```console fails\n$ sleep 600\n```\n")
		if !errors.Is(err, context.Canceled) {
			t.Errorf("error %v", err)
		}
	})
}
