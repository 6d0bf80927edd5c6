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
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"example.com/sample-controller/hack/naming"
	"example.com/sample-controller/hack/tree"
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
	if err := tree.Execute(ctx, root, filepath.Dir(o.dir), "git", "var", "GIT_AUTHOR_IDENT"); err != nil {
		return err
	}
	files, err := tree.Read(ctx, root)
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
func convert(o *options, files []*tree.File) (converted []*tree.File, err error) {
	r := naming.NewRenamer(original(), o.Names, o.isOther)
	for _, f := range files {
		if f.Path == "hack/fork/README.md" {
			f.Path = "README.md"
		} else if f.Path == "README.md" || o.isDropped(f.Path) {
			continue
		}
		text, err := o.dropRegions(f.Path, string(f.Data))
		if err != nil {
			return nil, err
		}
		text = derived.ReplaceAllString(text, "$1$2$3")
		renamed := &tree.File{Path: r.Text(f.Path, f.Path), Mode: f.Mode, Data: f.Data}
		if f.IsText() {
			// Our copyright stays beside that of the fork.
			text = r.Text(f.Path, attribution.ReplaceAllString(text, "${1}\x00${1}\x01"))
			text = strings.NewReplacer("\x00", "Copyright The sample-controller Authors.\n", "\x01", "Copyright "+o.copyright+".").Replace(text)
			renamed.Data = []byte(o.Markers(text, o.short))
		}
		if slices.ContainsFunc(converted, func(other *tree.File) bool { return other.Path == renamed.Path }) {
			return nil, fmt.Errorf("KIND: two files would become %s; give another kind", renamed.Path)
		}
		converted = append(converted, renamed)
	}
	return converted, o.checkLeftovers(converted)
}

// derived matches what it writes anew within other files: tables of documents, and the components of the
// base of manifests.
var derived = regexp.MustCompile(`(?s)(<!-- begin \w+ -->\n).*?(<!-- end \w+ -->)|(# Derived by hack/update-codegen\.sh\.\n)components:\n(?:- [^\n]*\n)*`)

// write makes the repository in a temporary directory beside DIR and moves it there at the end, so that a
// failure leaves nothing half made.
func write(ctx context.Context, root string, o *options, files []*tree.File) (err error) {
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
		if err := f.Write(work); err != nil {
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
		if err := tree.Execute(ctx, root, work, command...); err != nil {
			return err
		}
	}
	all, err := tree.Read(ctx, work)
	if err = errors.Join(err, o.checkLeftovers(all)); err != nil {
		return err
	}
	if err := os.Remove(o.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return fmt.Errorf("DIR: %w; give a directory that does not exist", err)
	}
	return os.Rename(work, o.dir)
}
