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

// Command fork makes another repository from this one: with other names, and without the siblings
// and webhooks that are not wanted. `make fork` runs it; docs/fork.md describes the variables.
package main

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

	"example.com/sample-controller/hack/naming"
)

func main() {
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

// run makes the fork that the variables ask for, from the repository in root.
func run(ctx context.Context, root string, get func(string) string, output io.Writer) error {
	o, err := newOptions(root, get)
	if err != nil {
		return err
	}
	// The commit comes last, and needs a name for its author.
	if err := execute(ctx, root, filepath.Dir(o.dir), "git", "var", "GIT_AUTHOR_IDENT"); err != nil {
		return err
	}
	files, err := readFiles(ctx, root)
	if err != nil {
		return err
	}
	if files, err = convert(o, files); err != nil {
		return err
	}
	fmt.Fprintf(output, "Writing %d files, then generating code, which takes a minute or longer\n", len(files))
	if err := write(ctx, root, o, files); err != nil {
		return err
	}
	fmt.Fprintf(output, `Wrote %s

Next:

  cd %[1]s
  make run     # try it on a local cluster
  make test    # all checks and tests

Then edit %s, what is desired of it in %s.go, and README.md.
To publish it: git remote add origin URL && git push -u origin main
`, o.dir, filepath.Join("pkg/apis", o.GroupPackage, o.Version, "types.go"), strings.ToLower(o.Kind))
	return nil
}

// convert returns the files of the fork but for the generated ones.
func convert(o *options, files []*file) (converted []*file, err error) {
	r := naming.NewRenamer(original(), o.Names, o.isOther)
	for _, f := range files {
		if f.path == "hack/fork/README.md" {
			f.path = "README.md"
		} else if f.path == "README.md" || o.isDropped(f.path) {
			continue
		}
		text, err := o.dropRegions(f.path, string(f.data))
		if err != nil {
			return nil, err
		}
		text = derived.ReplaceAllString(text, "$1$2$3")
		renamed := &file{path: r.Text(f.path, f.path), mode: f.mode, data: f.data}
		if f.isText() {
			// Our copyright stays beside that of the fork.
			text = r.Text(f.path, attribution.ReplaceAllString(text, "${1}\x00${1}\x01"))
			text = strings.NewReplacer("\x00", "Copyright The sample-controller Authors.\n", "\x01", "Copyright "+o.copyright+".").Replace(text)
			renamed.data = []byte(o.Markers(text, o.short))
		}
		if slices.ContainsFunc(converted, func(other *file) bool { return other.path == renamed.path }) {
			return nil, fmt.Errorf("KIND: two files would become %s; give another kind", renamed.path)
		}
		converted = append(converted, renamed)
	}
	return converted, o.checkLeftovers(converted)
}

// file is a file of a repository. The data of a symbolic link are its target.
type file struct {
	path string
	mode fs.FileMode
	data []byte
}

func (f *file) isText() bool {
	return !strings.HasSuffix(f.path, ".sum") && !slices.Contains(f.data, 0)
}

// generated are the files that `make generate` writes anew, and does not read.
var generated = regexp.MustCompile(`^pkg/generated/|/zz_generated\.[^/]*$|^artifacts/deploy/(install[^/]*|policy(-users)?/[^/]*)\.yaml$|^artifacts/deploy/namespaced/role\.yaml$|^artifacts/examples/([^/]+-)?crd\.yaml$|^docs/api\.md$`)

// derived matches what it writes anew within other files: tables of documents, and the components of the
// base of manifests.
var derived = regexp.MustCompile(`(?s)(<!-- begin \w+ -->\n).*?(<!-- end \w+ -->)|(# Derived by hack/update-manifests\.sh\.\n)components:\n(?:- [^\n]*\n)*`)

// readFiles returns the files that git tracks, as they are in the working tree, without those that are
// generated. Files that are not tracked may be the user's own, with secrets in them.
func readFiles(ctx context.Context, root string) ([]*file, error) {
	list := exec.CommandContext(ctx, "git", "-C", root, "ls-files", "-z", "--cached", "--deduplicate")
	list.Env = environment()
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the files with git: %w", err)
	}
	var files []*file
	for path := range strings.SplitSeq(strings.TrimSuffix(string(output), "\x00"), "\x00") {
		full := filepath.Join(root, path)
		info, err := os.Lstat(full)
		if generated.MatchString(path) || errors.Is(err, fs.ErrNotExist) {
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
		files = append(files, &file{path, info.Mode(), data})
	}
	return files, nil
}

// write makes the repository in a temporary directory beside DIR and moves it there at the end, so that a
// failure leaves nothing half made.
func write(ctx context.Context, root string, o *options, files []*file) (err error) {
	work, err := os.MkdirTemp(filepath.Dir(o.dir), ".fork-")
	if err != nil {
		return fmt.Errorf("DIR: %w", err)
	}
	defer func() { err = errors.Join(err, os.RemoveAll(work)) }()
	// os.MkdirTemp lets only the user in.
	if err := os.Chmod(work, 0o755); err != nil {
		return err
	}
	for _, f := range files {
		if err := f.write(work); err != nil {
			return err
		}
	}
	// Hooks and ignored files of the user's other repositories do not concern this one.
	git := func(arguments ...string) []string {
		return append([]string{"git", "-c", "core.hooksPath=/dev/null", "-c", "core.excludesFile=/dev/null", "-c", "commit.gpgSign=false"}, arguments...)
	}
	message := fmt.Sprintf("Start from sample-controller\n\n%s %s/%s, %s.", o.Kind, o.Group, o.Version, o.Module)
	for _, command := range [][]string{
		git("init", "--quiet", "--initial-branch=main"),
		// Packages and helpers that nothing imports any more.
		{"go", "tool", "-modfile=hack/tools/go.mod", "goimports", "-local=" + o.Module, "-w", "."},
		{"make", "--no-print-directory", "generate"},
		{"go", "mod", "tidy"},
		git("add", "--all"),
		git("commit", "--quiet", "--message="+message),
	} {
		if err := execute(ctx, root, work, command...); err != nil {
			return err
		}
	}
	all, err := readFiles(ctx, work)
	if err = errors.Join(err, o.checkLeftovers(all)); err != nil {
		return err
	}
	if err := os.Remove(o.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("DIR: %w; give a directory that does not exist", err)
	}
	return os.Rename(work, o.dir)
}

// write writes the file below that directory.
func (f *file) write(root string) error {
	full := filepath.Join(root, f.path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	if f.mode&fs.ModeSymlink != 0 {
		return os.Symlink(string(f.data), full)
	}
	return os.WriteFile(full, f.data, f.mode.Perm())
}

// environment returns the variables for commands, without those that tie git to another repository, as a
// hook or `git rebase --exec` sets them.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		return strings.HasPrefix(variable, "GIT_DIR=") ||
			strings.HasPrefix(variable, "GIT_WORK_TREE=") || strings.HasPrefix(variable, "GIT_INDEX_FILE=")
	})
}

// execute runs a command in the fork, with the generators of the repository in root. Its error has the output.
func execute(ctx context.Context, root, dir string, command ...string) error {
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
	return nil
}
