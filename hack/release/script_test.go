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
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// newRepository returns a repository with a commit that has the script, and a tag of it.
func newRepository(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"release.sh", "lib.sh"} {
		script, err := os.ReadFile(filepath.Join("..", name))
		if err != nil {
			t.Fatal(err)
		}
		writeFiles(t, dir, map[string]string{"hack/" + name: string(script)})
	}
	git(t, dir, "init", "--quiet")
	commit(t, dir)
	git(t, dir, "tag", "v0.1.0")
	return dir
}

func commit(t *testing.T, dir string) {
	t.Helper()
	git(t, dir, "add", ".")
	git(t, dir, "-c", "user.name=Test", "-c", "user.email=test@example.com", "-c", "commit.gpgsign=false", "commit", "--quiet", "--allow-empty", "--message=Test")
}

func git(t *testing.T, dir string, arguments ...string) {
	t.Helper()
	if output, err := exec.Command("git", append([]string{"-C", dir}, arguments...)...).CombinedOutput(); err != nil {
		t.Fatalf("git %q: %v\n%s", arguments, err, output)
	}
}

// TestBadInput lets hack/release.sh refuse to begin. Each message names the variable, if there is
// one, and what to do.
func TestBadInput(t *testing.T) {
	for name, test := range map[string]struct {
		variables []string
		// prepare changes the repository.
		prepare func(t *testing.T, dir string)
		want    []string
	}{
		"VERSION is missing":            {nil, nil, []string{"VERSION is not set", "make release VERSION="}},
		"VERSION has no v":              {[]string{"VERSION=0.1.0"}, nil, []string{"VERSION: '0.1.0'", "give one such as v0.1.0"}},
		"VERSION has two numbers":       {[]string{"VERSION=v0.1"}, nil, []string{"VERSION: 'v0.1'", "give one such as"}},
		"VERSION has a leading zero":    {[]string{"VERSION=v0.01.0"}, nil, []string{"VERSION: 'v0.01.0'", "give one such as"}},
		"VERSION has build metadata":    {[]string{"VERSION=v0.1.0+linux"}, nil, []string{"VERSION: 'v0.1.0+linux'", "without build metadata"}},
		"VERSION would leave dist":      {[]string{"VERSION=v0.1.0/../../x"}, nil, []string{"VERSION: ", "give one such as"}},
		"IMAGE has a tag":               {[]string{"VERSION=v0.1.0", "IMAGE=registry.example.com/a:v1"}, nil, []string{"IMAGE: 'registry.example.com/a:v1'", "without a tag", "give one such as"}},
		"IMAGE of no registry, a tag":   {[]string{"VERSION=v0.1.0", "IMAGE=a:1"}, nil, []string{"IMAGE: 'a:1'", "without a tag"}},
		"IMAGE has a digest":            {[]string{"VERSION=v0.1.0", "IMAGE=a/b@sha256:00"}, nil, []string{"IMAGE: 'a/b@sha256:00'", "give one such as"}},
		"IMAGE would be a command":      {[]string{"VERSION=v0.1.0", "IMAGE=a|e"}, nil, []string{"IMAGE: 'a|e'"}},
		"PLATFORMS has an unknown one":  {[]string{"VERSION=v0.1.0", "PLATFORMS=linux/riscv64"}, nil, []string{"PLATFORMS: 'linux/riscv64'", "give a list"}},
		"PLATFORMS has none for images": {[]string{"VERSION=v0.1.0", "PLATFORMS=darwin/arm64"}, nil, []string{"PLATFORMS: 'darwin/arm64'", "add linux/amd64"}},
		"a file is changed": {[]string{"VERSION=v0.1.0"}, func(t *testing.T, dir string) {
			writeFiles(t, dir, map[string]string{"hack/lib.sh": "# changed\n" + read(t, filepath.Join(dir, "hack/lib.sh"))})
		}, []string{"the working tree is dirty", "commit, stash or remove", "hack/lib.sh"}},
		"a file is new": {[]string{"VERSION=v0.1.0"}, func(t *testing.T, dir string) {
			writeFiles(t, dir, map[string]string{"new.go": ""})
		}, []string{"the working tree is dirty", "?? new.go"}},
		"no repository": {[]string{"VERSION=v0.1.0"}, func(t *testing.T, dir string) {
			if err := os.RemoveAll(filepath.Join(dir, ".git")); err != nil {
				t.Fatal(err)
			}
		}, []string{"is not a git repository with a commit", "in a clone"}},
		"the tag is at another commit": {[]string{"VERSION=v0.1.0"}, commit, []string{"VERSION: the tag v0.1.0 is at commit", "git checkout v0.1.0"}},
		"DIR is not empty":             {[]string{"VERSION=v0.1.0", "DIR=hack"}, nil, []string{"DIR: hack is not empty", "give another directory"}},
		"DIR is a file":                {[]string{"VERSION=v0.1.0", "DIR=hack/lib.sh"}, nil, []string{"DIR: hack/lib.sh is a file", "give another directory"}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := newRepository(t)
			if test.prepare != nil {
				test.prepare(t, dir)
			}
			command := exec.Command("bash", "hack/release.sh")
			command.Dir, command.Env = dir, append(environment(), test.variables...)
			output, err := command.CombinedOutput()
			if err == nil {
				t.Errorf("it ends with success:\n%s", output)
			}
			for _, want := range test.want {
				if !strings.Contains(string(output), want) {
					t.Errorf("it does not say %q:\n%s", want, output)
				}
			}
			if _, err := os.Stat(filepath.Join(dir, "dist")); !os.IsNotExist(err) {
				t.Errorf("it leaves dist: %v", err)
			}
		})
	}
}

// environment returns the variables of this process but those of the script.
func environment() []string {
	var variables []string
	for _, variable := range os.Environ() {
		switch name, _, _ := strings.Cut(variable, "="); name {
		case "VERSION", "DIR", "IMAGE", "PLATFORMS", "GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE":
		default:
			variables = append(variables, variable)
		}
	}
	return variables
}

func read(t *testing.T, file string) string {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(data)
}
