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
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"

	"example.com/sample-controller/hack/naming"
	"example.com/sample-controller/hack/tree"
)

func main() {
	tree.Main(run)
}

// maxProgram leaves room for what manifests append to the program's name within the 63 characters of a label.
const maxProgram = 40

// options are what the user asks for.
type options struct {
	naming.Names

	dir, copyright string
	short, drop    []string
}

var (
	moduleForm  = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[\w.~-]+)+$`)
	majorSuffix = regexp.MustCompile(`/v[0-9]+$`)
)

// newOptions reads the variables of `make fork`, and returns all mistakes, each with its variable and the rule.
func newOptions(root string, get func(string) string) (*options, error) {
	for _, variable := range []string{"DIR", "MODULE", "GROUP", "VERSION", "KIND"} {
		if get(variable) == "" {
			return nil, fmt.Errorf("%s: is not set; run make fork DIR=../widgets MODULE=github.com/acme/widgets GROUP=widgets.acme.io VERSION=v1alpha1 KIND=Widget", variable)
		}
	}
	list := func(variable string) []string {
		return strings.FieldsFunc(get(variable), func(r rune) bool { return r == ',' })
	}
	program := majorSuffix.ReplaceAllString(get("MODULE"), "")
	program = strings.ToLower(strings.NewReplacer(".", "-", "_", "-").Replace(program[strings.LastIndex(program, "/")+1:]))
	o := &options{drop: list("DROP"), short: list("SHORT"), Names: naming.New(get("GROUP"), get("VERSION"), get("KIND"), get("PLURAL"))}
	o.Module, o.Program = get("MODULE"), cmp.Or(get("PROGRAM"), program)
	for _, p := range parts() {
		if p.name == fork || p.isMore && !slices.Contains(list("WITH"), p.name) {
			o.drop = append(o.drop, p.name)
		}
	}
	// The line in the licence headers ends in a full stop.
	o.copyright = cmp.Or(strings.TrimSuffix(get("COPYRIGHT"), "."), "The "+o.Program+" Authors")
	var problems []error
	refuse := func(is bool, variable, format string, args ...any) {
		if is {
			problems = append(problems, fmt.Errorf("%s: %s", variable, fmt.Sprintf(format, args...)))
		}
	}
	o.validateDir(root, get("DIR"), refuse)
	o.validateNames(root, refuse)
	o.Validate(o.short, refuse)
	for _, variable := range []string{"DROP", "WITH"} {
		known := partNames(variable == "WITH")
		for _, name := range list(variable) {
			refuse(!slices.Contains(known, name), variable, "%q is not one of %s", name, strings.Join(known, ","))
		}
	}
	return o, errors.Join(problems...)
}

// partNames returns the names for DROP, or those for WITH.
func partNames(isMore bool) (names []string) {
	for _, p := range parts() {
		if p.isMore == isMore && p.name != fork {
			names = append(names, p.name)
		}
	}
	return names
}

func (o *options) validateDir(root, dir string, refuse func(bool, string, string, ...any)) {
	dir, absErr := filepath.Abs(dir)
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err = errors.Join(absErr, err); err != nil {
		refuse(true, "DIR", "%v; give a directory below one that exists", err)
		return
	}
	o.dir = filepath.Join(parent, filepath.Base(dir))
	if root, err = filepath.EvalSymlinks(root); err == nil {
		inside, err := filepath.Rel(root, o.dir)
		refuse(err == nil && filepath.IsLocal(inside), "DIR", "%s is in this repository; give a directory outside of it, such as ../widgets", o.dir)
	}
	info, err := os.Lstat(o.dir)
	entries, _ := os.ReadDir(o.dir)
	refuse(err == nil && (!info.IsDir() || len(entries) > 0), "DIR", "%s is not empty, or no directory; give a directory that does not exist or is empty", o.dir)
}

func (o *options) validateNames(root string, refuse func(bool, string, string, ...any)) {
	refuse(!moduleForm.MatchString(o.Module), "MODULE", "%q is not a domain with a path; give the path that your module will be imported by, such as github.com/acme/widgets", o.Module)
	refuse(strings.HasPrefix(o.Module+"/", original().Module+"/"), "MODULE", "%q is this repository's; give the path that your module will be imported by", o.Module)
	refuse(len(validation.IsDNS1035Label(o.Program)) > 0 || len(o.Program) > maxProgram, "PROGRAM",
		"%q is not a DNS label of at most %d characters that begins with a letter, which names of Services and metrics are made of", o.Program, maxProgram)
	_, err := os.Lstat(filepath.Join(root, o.Program))
	refuse(err == nil || o.Program == "makefile", "PROGRAM", "%q is a file or directory of the repository, which .gitignore would hide and make clean delete; give another name", o.Program)
	refuse(strings.ContainsAny(o.copyright, "\n*"), "COPYRIGHT", "must be one line without an asterisk, such as Acme Inc.")
	for _, p := range parts() {
		refuse(p.kind != "" && strings.EqualFold(p.kind, o.Kind) && !slices.Contains(o.drop, p.name), "KIND", "%q is a kind of this repository; give another one, or drop it with DROP", o.Kind)
	}
	for _, p := range parts() {
		for _, need := range p.needs {
			refuse(!slices.Contains(o.drop, p.name) && slices.Contains(o.drop, need), "DROP", "%s needs %s: keep that, or leave out both", p.name, need)
		}
	}
	folder := "pkg/apis/" + o.GroupPackage
	refuse(o.isOfSibling(folder) && !o.isDropped(folder), "GROUP", "%q: %s is the folder of another group; give another first label, or drop what uses it with DROP", o.Group, folder)
}

// run makes the fork that the variables ask for, from the repository in root.
func run(ctx context.Context, root string, get func(string) string, output io.Writer) error {
	o, err := newOptions(root, get)
	if err != nil {
		return err
	}
	// The commit comes last, and needs a name for its author.
	if err := tree.Execute(ctx, root, filepath.Dir(o.dir), []string{"git", "var", "GIT_AUTHOR_IDENT"}); err != nil {
		return err
	}
	original, err := tree.Read(ctx, root)
	if err != nil {
		return err
	}
	files, err := convert(o, original)
	if err != nil {
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
	hasService := slices.ContainsFunc(files, func(f *tree.File) bool {
		return strings.HasPrefix(f.Path, "pkg/controller/") && strings.Contains(string(f.Data), service)
	})
	for _, f := range files {
		if f.Path == "hack/fork/README.md" {
			f.Path = "README.md"
		} else if f.Path == "README.md" || o.isDropped(f.Path) && (f.Path != serviceFile || !hasService) {
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
			return nil, fmt.Errorf("KIND: two files would become %s; give another one, such as %sSet", renamed.Path, o.Kind)
		}
		converted = append(converted, renamed)
	}
	return converted, o.checkLeftovers(converted)
}

// derived matches what it writes anew within other files: tables of documents, and the components of the
// base of manifests.
var derived = regexp.MustCompile(`(?s)(<!-- begin \w+ -->\n).*?(<!-- end \w+ -->)|(# Derived by hack/update-codegen\.sh\.\n)components:\n(?:- [^\n]*\n)*`)

// write makes the repository beside DIR and moves it there at the end.
func write(ctx context.Context, root string, o *options, files []*tree.File) error {
	return tree.InCopy(ctx, filepath.Dir(o.dir), files, func(work string) error {
		message := fmt.Sprintf("Start from sample-controller\n\n%s %s/%s, %s.", o.Kind, o.Group, o.Version, o.Module)
		if err := tree.Execute(ctx, root, work,
			// Packages and helpers that nothing imports any more.
			[]string{"go", "tool", "-modfile=hack/tools/go.mod", "goimports", "-local=" + o.Module, "-w", "."},
			[]string{"make", "--no-print-directory", "generate"},
			[]string{"go", "mod", "tidy"},
			[]string{"go", "vet", "-tags=e2e", "./..."},
			tree.Git("add", "--all"),
			tree.Git("-c", "commit.gpgSign=false", "commit", "--quiet", "--message="+message),
		); err != nil {
			return fmt.Errorf("%w\nIf the code has a name of KIND or GROUP for something else, give another one, such as %sSet", err, o.Kind)
		}
		all, err := tree.Read(ctx, work)
		if err = errors.Join(err, o.checkLeftovers(all)); err != nil {
			return err
		}
		if err := os.Remove(o.dir); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return fmt.Errorf("DIR: %w; give a directory that does not exist", err)
		}
		// The temporary directory lets only the user in.
		return errors.Join(os.Chmod(work, 0o755), os.Rename(work, o.dir))
	})
}
