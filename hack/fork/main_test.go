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
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	clocktesting "k8s.io/utils/clock/testing"
)

// executable writes a script.
func executable(t *testing.T, name, script string) {
	t.Helper()
	if err := os.WriteFile(name, []byte("#!/bin/sh\n"+script+"\n"), 0o700); err != nil {
		t.Fatal(err)
	}
}

// git runs a command in dir and returns its output.
func git(t *testing.T, dir string, arguments ...string) string {
	t.Helper()
	c := exec.Command("git", append([]string{"-C", dir}, arguments...)...)
	c.Env = environment()
	output, err := c.CombinedOutput()
	if err != nil {
		t.Fatalf("git %q: %v\n%s", arguments, err, output)
	}
	return string(output)
}

// newUser makes git and the commands of a fork those of a user with that configuration of git,
// for whom make ends so.
func newUser(t *testing.T, configuration, generate string) {
	t.Helper()
	dir := t.TempDir()
	executable(t, filepath.Join(dir, "make"), generate)
	executable(t, filepath.Join(dir, "go"), "exit 0")
	t.Setenv("PATH", dir+string(filepath.ListSeparator)+os.Getenv("PATH"))
	global := filepath.Join(dir, "gitconfig")
	if err := os.WriteFile(global, []byte(strings.ReplaceAll(configuration, "DIR", dir)), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GIT_CONFIG_GLOBAL", global)
	t.Setenv("GIT_CONFIG_NOSYSTEM", "1")
	for _, name := range []string{"GIT_AUTHOR_NAME", "GIT_AUTHOR_EMAIL", "GIT_COMMITTER_NAME", "GIT_COMMITTER_EMAIL", "EMAIL"} {
		t.Setenv(name, "")
		if err := os.Unsetenv(name); err != nil {
			t.Fatal(err)
		}
	}
	executable(t, filepath.Join(dir, "pre-commit"), "exit 1")
	if err := os.WriteFile(filepath.Join(dir, "ignored"), []byte("*.md\n"), 0o600); err != nil {
		t.Fatal(err)
	}
}

// writeFork writes two files as a fork to dir.
func writeFork(t *testing.T, dir string) error {
	t.Helper()
	o, err := newTestOptions(t, map[string]string{"DIR": dir})
	if err != nil {
		t.Fatal(err)
	}
	return write(t.Context(), o, []*file{{"README.md", 0o644, []byte("# Widgets\n")}, {"hack/run.sh", 0o755, []byte("#!/bin/sh\n")}})
}

// makeFork makes a fork of this repository in dir, with DRY_RUN or without.
func makeFork(t *testing.T, dir, dryRun string) error {
	t.Helper()
	all := forkVariables(dir)
	all["DRY_RUN"] = dryRun
	// Hardly names of a kind that was added to this repository.
	all["GROUP"], all["KIND"] = "dryrun.example.org", "DryRun"
	return run(t.Context(), "../..", func(name string) string { return all[name] }, &bytes.Buffer{}, clocktesting.NewFakeClock(time.Time{}))
}

const identity = "[user]\nname = x\nemail = x@localhost\n"

// TestWrite replaces an empty directory, for a user whose git signs commits, runs hooks and
// ignores files, from within a hook of another repository.
func TestWrite(t *testing.T) {
	newUser(t, identity+"[commit]\ngpgSign = true\n[gpg]\nprogram = false\n[core]\nhooksPath = DIR\nexcludesFile = DIR/ignored\n", "exit 0")
	t.Setenv("GIT_DIR", t.TempDir())
	dir := t.TempDir()
	if err := writeFork(t, dir); err != nil {
		t.Fatal(err)
	}
	got := git(t, dir, "log", "--format=%s by %an", "--name-only") + git(t, dir, "status", "--short")
	if want := "Start from sample-controller by x\n\nREADME.md\nhack/run.sh\n"; got != want {
		t.Errorf("got  %q\nwant %q", got, want)
	}
}

// entries returns the names in a directory.
func entries(t *testing.T, dir string) (names []string) {
	t.Helper()
	all, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, entry := range all {
		names = append(names, entry.Name())
	}
	return names
}

func TestFailureLeavesWhatWas(t *testing.T) {
	for sentence, before := range map[string][]string{"nothing": nil, "an empty directory": {"widgets"}} {
		t.Run(sentence, func(t *testing.T) {
			newUser(t, identity, "echo no generators; exit 3")
			parent := t.TempDir()
			for _, name := range before {
				if err := os.Mkdir(filepath.Join(parent, name), 0o755); err != nil {
					t.Fatal(err)
				}
			}
			const want = "make --no-print-directory generate: exit status 3\nno generators"
			if err := writeFork(t, filepath.Join(parent, "widgets")); err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("error %v, want %q in it", err, want)
			}
			if after := entries(t, parent); !slices.Equal(after, before) {
				t.Errorf("there are %q, there were %q", after, before)
			}
		})
	}
}

func TestGitIsAskedForAnIdentityFirst(t *testing.T) {
	newUser(t, "[user]\nuseConfigOnly = true\n", "exit 0")
	parent := t.TempDir()
	err := makeFork(t, filepath.Join(parent, "widgets"), "")
	if err == nil || !strings.Contains(err.Error(), "git var GIT_AUTHOR_IDENT") || !strings.Contains(err.Error(), "git config --global user.email") {
		t.Errorf("error %v", err)
	}
	if left := entries(t, parent); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

func TestDryRunWritesNothing(t *testing.T) {
	parent := t.TempDir()
	if err := makeFork(t, filepath.Join(parent, "widgets"), "yes"); err != nil {
		t.Error(err)
	}
	if left := entries(t, parent); len(left) > 0 {
		t.Errorf("left behind: %q", left)
	}
}

// TestReadFiles reads a repository in which one file is tracked, from within a hook of another.
func TestReadFiles(t *testing.T) {
	root := t.TempDir()
	for _, name := range []string{"tracked", ".env"} {
		if err := os.WriteFile(filepath.Join(root, name), []byte(name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	git(t, root, "init", "--quiet")
	git(t, root, "add", "tracked")
	t.Setenv("GIT_DIR", t.TempDir())
	files, err := (&repository{root: root}).readFiles()
	if err != nil {
		t.Fatal(err)
	}
	if len(files) != 1 || files[0].path != "tracked" || string(files[0].data) != "tracked" {
		t.Errorf("files %v", files)
	}
}
