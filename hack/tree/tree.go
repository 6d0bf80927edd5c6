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

// Package tree reads and writes files of a repository, and runs commands there, for commands that copy what works.
package tree

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
)

// Main runs a command for the repository in the working directory, with the variables of make, until it has ended
// or is interrupted.
func Main(run func(ctx context.Context, root string, get func(string) string, output io.Writer) error) {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	root, err := filepath.Abs(".")
	if err == nil {
		err = run(ctx, root, os.Getenv, os.Stdout)
	}
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// File is a file of a repository. The data of a symbolic link are its target.
type File struct {
	Path string
	Mode fs.FileMode
	Data []byte
}

// IsText reports whether the file has names to replace.
func (f *File) IsText() bool {
	return !strings.HasSuffix(f.Path, ".sum") && !slices.Contains(f.Data, 0)
}

// Generated are the files that `make generate` writes anew, and does not read.
var Generated = regexp.MustCompile(`^(test/\w+/)?pkg/generated/|/zz_generated\.[^/]*$|^artifacts/deploy/(install[^/]*|policy(-[^/]*)?/[^/]*)\.yaml$|^artifacts/deploy/namespaced/role\.yaml$|^(test/\w+/)?artifacts/examples/([^/]+-)?crd\.yaml$|^docs/api\.md$`)

// Read returns the files that git tracks, as they are in the working tree, without those that are generated.
// Files that are not tracked may be the user's own, with secrets in them.
func Read(ctx context.Context, root string) ([]*File, error) {
	files, err := List(ctx, root, "--cached")
	return slices.DeleteFunc(files, func(f *File) bool { return Generated.MatchString(f.Path) }), err
}

// List returns the files that `git ls-files` lists with these arguments, as they are in the working tree.
func List(ctx context.Context, root string, arguments ...string) ([]*File, error) {
	command := Git(append([]string{"ls-files", "-z", "--deduplicate"}, arguments...)...)
	list := exec.CommandContext(ctx, command[0], command[1:]...)
	list.Dir, list.Env = root, environment()
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the files with git: %w", err)
	}
	var files []*File
	for path := range strings.SplitSeq(strings.TrimSuffix(string(output), "\x00"), "\x00") {
		full := filepath.Join(root, path)
		info, err := os.Lstat(full)
		if errors.Is(err, fs.ErrNotExist) || err == nil && info.IsDir() {
			continue
		}
		var data []byte
		if err == nil && info.Mode()&fs.ModeSymlink != 0 {
			target, linkErr := os.Readlink(full)
			data, err = []byte(target), linkErr
		} else if err == nil {
			data, err = os.ReadFile(full)
		}
		if err != nil {
			return nil, err
		}
		files = append(files, &File{path, info.Mode(), data})
	}
	return files, nil
}

// Write writes the file below that directory.
func (f *File) Write(root string) error {
	full := filepath.Join(root, f.Path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	if f.Mode&fs.ModeSymlink != 0 {
		return os.Symlink(string(f.Data), full)
	}
	return os.WriteFile(full, f.Data, f.Mode.Perm())
}

// environment returns the variables for commands, without those that tie git to another repository, as a
// hook or `git rebase --exec` sets them.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "GIT_DIR=") ||
			strings.HasPrefix(variable, "GIT_WORK_TREE=") || strings.HasPrefix(variable, "GIT_INDEX_FILE=")
	})
}

// Git returns a command of git. Hooks and ignored files of the user's other repositories do not concern this one.
func Git(arguments ...string) []string {
	return append([]string{"git", "-c", "core.hooksPath=/dev/null", "-c", "core.excludesFile=/dev/null"}, arguments...)
}

// Execute runs the commands in the directory, with the generators of the repository in root, until one fails. Its
// error has the output.
func Execute(ctx context.Context, root, dir string, commands ...[]string) error {
	for _, command := range commands {
		c := exec.CommandContext(ctx, command[0], command[1:]...)
		c.Dir = dir
		c.Env = append(environment(), "GOWORK=off", "MAKEFLAGS=", "MAKEOVERRIDES=")
		if os.Getenv("CODEGEN_GOBIN") == "" {
			c.Env = append(c.Env, "CODEGEN_GOBIN="+filepath.Join(root, "bin/codegen"))
		}
		// The shells that the command starts end with it.
		c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
		if output, err := c.CombinedOutput(); err != nil {
			return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, output)
		}
	}
	return nil
}

// InCopy makes a git repository of the files in a temporary directory below parent, and calls work there: a failure
// leaves nothing half made.
func InCopy(ctx context.Context, parent string, files []*File, work func(dir string) error) (err error) {
	dir, err := os.MkdirTemp(parent, ".copy-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	for _, f := range files {
		if err := f.Write(dir); err != nil {
			return err
		}
	}
	if err := Execute(ctx, dir, dir, Git("init", "--quiet", "--initial-branch=main"), Git("add", "--all", "--force")); err != nil {
		return err
	}
	return work(dir)
}
