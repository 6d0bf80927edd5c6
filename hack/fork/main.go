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

// Command fork makes another repository from this one: with other names, and without the
// siblings and webhooks that are not wanted. `make fork` runs it; docs/fork.md describes the
// variables.
package main

import (
	"bytes"
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"
	"time"

	"k8s.io/utils/clock"

	"example.com/sample-controller/hack/naming"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM, syscall.SIGHUP)
	err := run(ctx, ".", os.Getenv, os.Stdout, clock.RealClock{})
	stop()
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

// run makes the fork that the variables ask for, from the repository in root.
func run(ctx context.Context, root string, get func(string) string, output io.Writer, clock clock.PassiveClock) error {
	begun := clock.Now()
	root, err := filepath.Abs(root)
	if err != nil {
		return err
	}
	repository, err := openRepository(root)
	if err != nil {
		return err
	}
	o, err := newOptions(repository, get)
	if err != nil {
		return err
	}
	if !o.dryRun {
		if err := checkIdentity(ctx, o); err != nil {
			return err
		}
	}
	files, dropped, err := convert(o)
	if err != nil {
		return err
	}
	if o.dryRun {
		for _, path := range dropped {
			fmt.Fprintln(output, "drop ", path)
		}
		for _, f := range files {
			fmt.Fprintln(output, "write", f.path)
		}
		fmt.Fprintf(output, "%s would have %d files, and the generated ones; %d files would be dropped. Nothing was written.\n", o.dir, len(files), len(dropped))
		return nil
	}
	fmt.Fprintf(output, "Writing %d files, then generating code, which takes a minute or longer\n", len(files))
	if err := write(ctx, o, files); err != nil {
		return err
	}
	fmt.Fprintf(output, "Wrote %s (%s)\n\n%s", o.dir, clock.Since(begun).Round(time.Second), next(o, files))
	return nil
}

// next returns what the user can do with the fork.
func next(o *options, files []*file) string {
	decisions := strings.ToLower(o.kind) + ".go"
	for _, f := range files {
		if f.path == strings.ToLower(o.kind)+"_object.go" {
			decisions = f.path
		}
	}
	return fmt.Sprintf(`Next:

  cd %s
  make run     # try it on a local cluster
  make test    # all checks and tests

Then edit %s, what is desired of it in %s, and README.md.
To publish it: git remote add origin URL && git push -u origin main
`, o.dir, filepath.Join("pkg/apis", o.groupPackage, o.version, "types.go"), decisions)
}

// convert returns the files of the fork but for the generated ones, and the paths of those
// that it drops.
func convert(o *options) (files []*file, dropped []string, err error) {
	all, err := o.repository.readFiles()
	if err != nil {
		return nil, nil, err
	}
	d := newDropper(o)
	if files, err = d.files(all); err != nil {
		return nil, nil, err
	}
	dropped = d.droppedPaths(all, files)
	if err := checkResource(o, files); err != nil {
		return nil, nil, err
	}
	register, err := o.repository.readRegister()
	if err != nil {
		return nil, nil, err
	}
	renames, paths := newRenamer(o), map[string]string{}
	named := slices.Concat(files, []*file{register})
	if err := errors.Join(renames.separate(named), renames.checkNames(named)); err != nil {
		return nil, nil, err
	}
	renames.separatePaths(files)
	for _, f := range files {
		from := f.path
		if err := renames.file(f); err != nil {
			return nil, nil, err
		}
		if other, ok := paths[f.path]; ok {
			return nil, nil, fmt.Errorf("KIND: %s and %s would both become %s; give another kind", other, from, f.path)
		}
		paths[f.path] = from
		if err := adapt(o, f); err != nil {
			return nil, nil, err
		}
	}
	return files, dropped, refuseLeftovers(o, files)
}

// rights matches the resources in a marker.
var rights = regexp.MustCompile(`\+kubebuilder:rbac:\S*resources=([^,\s]+)`)

// checkResource returns an error if the program has rights to a resource of the same name in another
// group: tests tell requests apart by the name alone.
func checkResource(o *options, files []*file) error {
	for _, f := range files {
		for _, match := range rights.FindAllStringSubmatch(string(f.data), -1) {
			if f.isGo() && slices.Contains(strings.Split(match[1], ";"), o.plural) {
				return fmt.Errorf("KIND: %s names the resource %s of another group, with which the program works as well; give another kind, such as %sSet, or drop what needs it with DROP", f.path, o.plural, o.kind)
			}
		}
	}
	return nil
}

// adapt makes the changes that no rule makes.
func adapt(o *options, f *file) error {
	replace := func(old, updated string) error {
		if !bytes.Contains(f.data, []byte(old)) {
			return fmt.Errorf("%s has no %q, which the fork changes", f.path, old)
		}
		f.data = bytes.ReplaceAll(f.data, []byte(old), []byte(updated))
		return nil
	}
	if f.path == "README.md" {
		f.data = fmt.Appendf(bytes.TrimRight(f.data, "\n"), "\n\nMade from %s, Copyright The %[1]s Authors.\n", o.repository.program)
	}
	if strings.HasPrefix(f.path, "pkg/apis/"+o.groupPackage+"/") && strings.HasSuffix(f.path, "/types.go") {
		path := fmt.Sprintf("// +kubebuilder:resource:path=%s,", o.plural)
		marker := path
		if len(o.short) > 0 {
			marker += "shortName=" + strings.Join(o.short, ";") + ","
		}
		if o.kinds != naming.Plural(o.kind) {
			marker = "// +resourceName=" + o.plural + "\n" + marker
		}
		return replace(path, marker)
	}
	return nil
}

// refuseLeftovers returns an error that names what is left of the old names.
func refuseLeftovers(o *options, files []*file) error {
	var problems []error
	for _, left := range leftovers(o, files) {
		problems = append(problems, errors.New(left))
	}
	if len(problems) > 0 {
		return fmt.Errorf("these lines would be left in the fork; a region between +drop:NAME and +drop:end is dropped (docs/fork.md):\n%w", errors.Join(problems...))
	}
	return nil
}

// write makes the repository in a temporary directory beside DIR and moves it there at the
// end, so that nothing is left half made.
func write(ctx context.Context, o *options, files []*file) (err error) {
	if empty, notThere := os.Lstat(o.dir); notThere == nil {
		// It goes first, because a mount point cannot, and the work takes minutes.
		if err := os.Remove(o.dir); err != nil {
			return fmt.Errorf("DIR: %w; give a directory that can be replaced", err)
		}
		defer func() {
			if err != nil {
				err = errors.Join(err, os.Mkdir(o.dir, empty.Mode().Perm()))
			}
		}()
	}
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
	if err := complete(ctx, o, work); err != nil {
		return err
	}
	return os.Rename(work, o.dir)
}

// complete generates code in the new repository, commits, and checks what is left of old names.
func complete(ctx context.Context, o *options, work string) error {
	// Hooks and ignored files of the user's other repositories do not concern this one.
	git := func(arguments ...string) []string {
		return append([]string{"git", "-c", "core.hooksPath=/dev/null", "-c", "core.excludesFile=/dev/null", "-c", "commit.gpgSign=false"}, arguments...)
	}
	message := fmt.Sprintf("Start from %s\n\n%s %s, %s.", o.repository.program, o.kind, o.group+"/"+o.version, o.module)
	for _, command := range [][]string{
		git("init", "--quiet", "--initial-branch=main"),
		{"make", "--no-print-directory", "generate"},
		{"go", "mod", "tidy"},
		git("add", "--all"),
		git("commit", "--quiet", "--message="+message),
	} {
		if err := execute(ctx, o, work, command); err != nil {
			return err
		}
	}
	made := &repository{root: work}
	all, err := made.readFiles()
	if err != nil {
		return err
	}
	return refuseLeftovers(o, all)
}

// checkIdentity fails if git does not know in whose name to commit: the commit comes last.
func checkIdentity(ctx context.Context, o *options) error {
	for _, identity := range []string{"GIT_AUTHOR_IDENT", "GIT_COMMITTER_IDENT"} {
		if err := execute(ctx, o, filepath.Dir(o.dir), []string{"git", "var", identity}); err != nil {
			return err
		}
	}
	return nil
}

// execute runs a command in the fork. Its error has the output.
func execute(ctx context.Context, o *options, dir string, command []string) error {
	c := exec.CommandContext(ctx, command[0], command[1:]...)
	c.Dir = dir
	// The generators are the same as this repository's.
	generators := cmp.Or(os.Getenv("CODEGEN_GOBIN"), filepath.Join(o.repository.root, "bin/codegen"))
	c.Env = append(environment(), "GOWORK=off", "CODEGEN_GOBIN="+generators, "MAKEFLAGS=", "MAKEOVERRIDES=")
	// The shells that the command starts end with it.
	c.Cancel = func() error { return c.Process.Signal(syscall.SIGTERM) }
	c.WaitDelay = 10 * time.Second
	if output, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, output)
	}
	return nil
}

// checkModulePath asks the go command.
func checkModulePath(module string) (err error) {
	dir, err := os.MkdirTemp("", "fork-")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	c := exec.Command("go", "mod", "init", module)
	c.Dir, c.Env = dir, append(os.Environ(), "GOWORK=off", "GO111MODULE=on")
	if output, err := c.CombinedOutput(); err != nil {
		return fmt.Errorf("%s; give the path that the module will be imported by, such as github.com/acme/widgets", strings.TrimSpace(strings.TrimPrefix(string(output), "go: ")))
	}
	if !regexp.MustCompile(`^[^/]+\.[^/]+/.`).MatchString(module) {
		return fmt.Errorf("%q does not begin with a domain; give a path such as github.com/acme/widgets", module)
	}
	return nil
}
