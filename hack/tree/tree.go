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

// Package tree reads and writes the files of a repository, runs commands there and checks names, for the commands
// that copy what works under other names.
package tree

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"os/signal"
	"path"
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
var Generated = regexp.MustCompile(`^(test/\w+/)?pkg/generated/|/zz_generated\.[^/]*$|^artifacts/deploy/(install[^/]*|policy(-users)?/[^/]*)\.yaml$|^artifacts/deploy/namespaced/role\.yaml$|^(test/\w+/)?artifacts/examples/([^/]+-)?crd\.yaml$|^docs/api\.md$`)

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

// nameError matches the errors of go/types about names that a package declares itself.
var nameError = regexp.MustCompile(`^(undefined: \w+$|\w+ redeclared|\S+ already declared|duplicate |no new variables|declared and not used|field and method|\w+ (\(.*\) )?is not a type)`)

const noImport = " hides an import"

// CheckNames fails if names in packages of the files clash that did not before: because of that of the kind, for which
// it suggests another one.
func CheckNames(before, files []*File, kind string) error {
	known, err := nameErrors(before)
	if err != nil {
		return err
	}
	found, err := nameErrors(files)
	if err != nil {
		return err
	}
	var problems []string
	for problem, position := range found {
		// Of a variable with the name of a package only what a package had before can be meant.
		selector, isHidden := strings.CutSuffix(problem, noImport)
		if _, ok := known[problem]; !ok && (!isHidden || slices.ContainsFunc(before, func(f *File) bool { return bytes.Contains(f.Data, []byte(selector)) })) {
			problems = append(problems, fmt.Sprintf("\n%s: %s", position, problem))
		}
	}
	if len(problems) > 0 {
		return fmt.Errorf("KIND: %q: the code has that name for something else; give another one, such as %[1]sSet%s", kind, strings.Join(problems, ""))
	}
	return nil
}

// nameErrors returns what is wrong with the names in each package of the files, and where. What they import and what
// is generated is not there, so some variables seem to be unused and some names undeclared before any change.
func nameErrors(files []*File) (all map[string]token.Position, err error) {
	all = map[string]token.Position{}
	set, packages := token.NewFileSet(), map[string][]*ast.File{}
	for _, f := range files {
		if path.Ext(f.Path) == ".go" {
			syntax, err := parser.ParseFile(set, f.Path, f.Data, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			name := path.Dir(f.Path) + " " + syntax.Name.Name
			packages[name] = append(packages[name], syntax)
		}
	}
	config := types.Config{Error: func(err error) {
		if problem := (types.Error{}); errors.As(err, &problem) && nameError.MatchString(problem.Msg) {
			all[problem.Msg] = set.Position(problem.Pos)
		}
	}}
	for name, syntax := range packages {
		info := types.Info{Uses: map[*ast.Ident]types.Object{}, Scopes: map[ast.Node]*types.Scope{}}
		// Its error is one of those above.
		_, _ = config.Check(name, set, syntax, &info)
		for _, file := range syntax {
			for _, hidden := range hiddenImports(file, &info) {
				all[types.ExprString(hidden)+noImport] = set.Position(hidden.Pos())
			}
		}
	}
	return all, nil
}

// hiddenImports returns the selectors of something else that has the name of an import of the file.
func hiddenImports(file *ast.File, info *types.Info) (hidden []*ast.SelectorExpr) {
	ast.Inspect(file, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			name, _ := selector.X.(*ast.Ident)
			if _, isImport := info.Uses[name].(*types.PkgName); name != nil && info.Uses[name] != nil && !isImport && info.Scopes[file].Lookup(name.Name) != nil {
				hidden = append(hidden, selector)
			}
		}
		return true
	})
	return hidden
}
