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

// Command new-kind adds a kind and its controller to this repository, or to a fork of it: it copies a living one
// from test/newkind under other names. `make new-kind` runs it; CONTRIBUTING.md describes the variables.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"syscall"

	"example.com/sample-controller/hack/naming"
	"example.com/sample-controller/hack/tree"
	"example.com/sample-controller/pkg/controller"
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

// living is where the kinds are that are copied: compiled, linted and tested, but in no program.
const living = "test/newkind/"

// source returns the names of the kind that is copied, and the letter of the rules of its contract.
func source(isExternal bool) (names naming.Names, letter string) {
	if isExternal {
		return naming.New("tenancy.example.org", "v1alpha1", "Tenant", ""), "Z"
	}
	return naming.New("tuning.example.org", "v1alpha1", "Setting", ""), "Y"
}

// options are what the user asks for.
type options struct {
	naming.Names

	short  []string
	source naming.Names
	// letter is that of the rules of the new contract in place of oldLetter.
	letter, oldLetter string
}

var (
	module     = regexp.MustCompile(`(?m)^module (\S+)$`)
	ruleLetter = regexp.MustCompile(`(?m)^\| ([A-Z])[0-9]+ \|`)
	// kindIn matches the names of a kind in the markers of its type, word separates the words of a path.
	kindIn = regexp.MustCompile(`(?m)^// \+kubebuilder:resource:path=(\w+),.*singular=(\w+),`)
	word   = regexp.MustCompile(`[/._-]+`)
)

// newOptions reads the variables of `make new-kind`, and returns all mistakes, each with the variable's name and
// the rule.
func newOptions(files []*tree.File, get func(string) string) (*options, error) {
	if unset := slices.DeleteFunc([]string{"KIND", "GROUP", "VERSION"}, func(variable string) bool { return get(variable) != "" }); len(unset) > 0 {
		return nil, fmt.Errorf("%s: is not set; run make new-kind KIND=Bar GROUP=bars.example.org VERSION=v1alpha1", strings.Join(unset, ", "))
	}
	o := &options{Names: naming.New(get("GROUP"), get("VERSION"), get("KIND"), get("PLURAL"))}
	o.Program = controller.FieldManager
	o.short = strings.FieldsFunc(get("SHORT"), func(r rune) bool { return r == ',' })
	o.source, o.oldLetter = source(get("EXTERNAL") == "yes")
	var problems []error
	refuse := func(is bool, variable, format string, args ...any) {
		if is {
			problems = append(problems, fmt.Errorf("%s: %s", variable, fmt.Sprintf(format, args...)))
		}
	}
	o.Validate(o.short, refuse)
	refuse(!slices.Contains([]string{"", "yes"}, get("EXTERNAL")), "EXTERNAL", "%q is not yes; leave it out for a kind without an external service", get("EXTERNAL"))
	letters, singular := "ABCDEFGHIJKLMNOPQRSTUVWX", strings.ToLower(o.Kind)
	for _, f := range files {
		text := string(f.Data)
		switch {
		case f.Path == "go.mod":
			o.Module = module.FindStringSubmatch(text)[1]
		case strings.HasPrefix(f.Path, "docs/"):
			for _, rule := range ruleLetter.FindAllStringSubmatch(text, -1) {
				letters = strings.ReplaceAll(letters, rule[1], "")
			}
		case strings.HasPrefix(f.Path, "pkg/apis/"):
			for _, match := range kindIn.FindAllStringSubmatch(text, -1) {
				refuse(match[2] == singular, "KIND", "%s has that kind; give another one", f.Path)
				refuse(match[1] == o.Plural, "PLURAL", "%s has the plural %s; give another one", f.Path, o.Plural)
			}
		}
	}
	exists := func(path string) bool {
		return slices.ContainsFunc(files, func(f *tree.File) bool { return strings.HasPrefix(f.Path, path) })
	}
	refuse(exists("pkg/apis/"+o.GroupPackage+"/"), "GROUP", "pkg/apis/%s is the folder of another group; give another first label", o.GroupPackage)
	refuse(exists("pkg/controller/"+singular+"/") || exists("docs/"+singular+".md"), "KIND", "pkg/controller/%[1]s or docs/%[1]s.md is there; give another kind", singular)
	refuse(letters == "", "KIND", "no letter is left for the rules of its contract")
	o.letter = letters[:min(1, len(letters))]
	if initial := strings.ToUpper(singular[:1]); strings.Contains(letters, initial) {
		o.letter = initial
	}
	return o, errors.Join(problems...)
}

// convert returns the files of the new kind, and those that change because of it.
func convert(o *options, files []*tree.File) (converted []*tree.File) {
	from := o.source
	from.Module, from.Program = o.Module, o.Program
	r := naming.NewRenamer(from, o.Names, func(string) bool { return false })
	rule := regexp.MustCompile(`\b` + o.oldLetter + `([0-9]+)\b`)
	for _, f := range files {
		words := word.Split(f.Path, -1)
		text, isEdit := o.edit(f.Path, string(f.Data))
		switch singular := strings.ToLower(from.Kind); {
		case isEdit:
			f = &tree.File{Path: f.Path, Mode: f.Mode, Data: []byte(text)}
		case slices.Contains(words, "newkind") && slices.ContainsFunc([]string{singular, from.GroupPackage}, func(of string) bool { return slices.Contains(words, of) }),
			f.Path == "test/e2e/walkthrough_"+singular+"_test.go":
			text = strings.NewReplacer(living, "", "e2e && newkind", "e2e").Replace(text)
			text = rule.ReplaceAllString(r.Text(f.Path, text), o.letter+"$1")
			f = &tree.File{Path: r.Text(f.Path, strings.TrimPrefix(f.Path, living)), Mode: f.Mode, Data: []byte(o.Markers(text, o.short))}
		default:
			continue
		}
		converted = append(converted, f)
	}
	return converted
}

var (
	appImport   = regexp.MustCompile(`(?m)^(\t"\S+/pkg/)app"\n`)
	descriptors = regexp.MustCompile(`(?m)^\t+Controllers: \[\]app\.ControllerDescriptor\{\n`)
	queues      = regexp.MustCompile(`workqueue_\w+\{name=~\\?"[a-z0-9|]+`)
	alertFiles  = regexp.MustCompile(`(?m)^- alerts\.yaml\n`)
)

// edit returns the text of a file that names all kinds with the new one, and whether the file is one.
func (o *options) edit(file, text string) (string, bool) {
	singular := strings.ToLower(o.Kind)
	switch strings.TrimPrefix(file, "artifacts/deploy/monitoring/") {
	case "main.go":
		text = appImport.ReplaceAllString(text, "${0}${1}controller/"+singular+"\"\n")
		return descriptors.ReplaceAllString(text, "${0}\t\t\t"+singular+".NewDescriptor(),\n"), true
	case "alerts.yaml", "dashboard.json":
		return queues.ReplaceAllString(text, "${0}|"+singular), true
	case "kustomization.yaml":
		return alertFiles.ReplaceAllString(text, "${0}- "+singular+"-alerts.yaml\n"), true
	}
	return text, false
}

// run adds the kind that the variables ask for to the repository in root. A failure leaves that as it was.
func run(ctx context.Context, root string, get func(string) string, output io.Writer) (err error) {
	all := []string{"--cached", "--others", "--exclude-standard"}
	before, err := tree.List(ctx, root, all...)
	if err != nil {
		return err
	}
	o, err := newOptions(before, get)
	if err != nil {
		return err
	}
	files := convert(o, slices.DeleteFunc(slices.Clone(before), func(f *tree.File) bool { return tree.Generated.MatchString(f.Path) }))
	defer func() {
		if err != nil {
			// Also after a signal, which has ended ctx.
			err = errors.Join(err, restore(context.WithoutCancel(ctx), root, before, all))
		}
	}()
	// It sorts imports and aligns comments, which the names have moved.
	goimports := []string{"go", "tool", "-modfile=hack/tools/go.mod", "goimports", "-local=" + o.Module, "-w"}
	for _, f := range files {
		if err := f.Write(root); err != nil {
			return err
		}
		if filepath.Ext(f.Path) == ".go" {
			goimports = append(goimports, f.Path)
		}
	}
	singular := strings.ToLower(o.Kind)
	fmt.Fprintf(output, "Wrote %d files, now generating code, which takes a minute or longer\n", len(files))
	for _, command := range [][]string{
		goimports,
		{"make", "--no-print-directory", "generate"},
		{"go", "vet", ".", "./pkg/apis/...", "./pkg/controller/" + singular},
	} {
		if err := tree.Execute(ctx, root, root, command...); err != nil {
			return err
		}
	}
	fmt.Fprintf(output, next, o.Kind, singular, o.GroupPackage, o.Version, o.Kinds)
	return nil
}

const next = `Added the kind %[1]s: git status shows the files.

Next:

  go test ./pkg/controller/%[2]s .
  make run    # it starts with the controller of %[5]s once kubectl apply -f artifacts/examples/%[2]s-crd.yaml has run

Then make it yours (CONTRIBUTING.md, "Adding a controller"): edit pkg/apis/%[3]s/%[4]s/types.go, what is desired in
pkg/controller/%[2]s/%[2]s.go, its tests and testdata/suites.yaml, and docs/%[2]s.md; then make generate.
Name the kind in README.md and docs/design.md, and give it a panel in artifacts/deploy/monitoring/dashboard.json.
`

// restore makes the repository have those files again, and no others that git could add.
func restore(ctx context.Context, root string, before []*tree.File, all []string) error {
	after, err := tree.List(ctx, root, all...)
	errs := []error{err}
	for _, f := range after {
		if slices.ContainsFunc(before, func(old *tree.File) bool { return old.Path == f.Path }) {
			continue
		}
		errs = append(errs, os.Remove(filepath.Join(root, f.Path)))
		for dir := filepath.Dir(f.Path); dir != "." && os.Remove(filepath.Join(root, dir)) == nil; dir = filepath.Dir(dir) {
			continue // It is empty.
		}
	}
	for _, f := range before {
		if !slices.ContainsFunc(after, func(is *tree.File) bool { return is.Path == f.Path && slices.Equal(is.Data, f.Data) }) {
			errs = append(errs, f.Write(root))
		}
	}
	return errors.Join(errs...)
}
