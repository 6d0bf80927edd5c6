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
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"example.com/sample-controller/hack/naming"
	"example.com/sample-controller/hack/tree"
	"example.com/sample-controller/pkg/controller"
)

func main() {
	tree.Main(run)
}

// living is where the kinds are that are copied: compiled, linted and tested, but in no program.
const living = "test/newkind/"

// source returns the names of the kind that is copied, whose rules have the letter Z.
func source() naming.Names { return naming.New("tenancy.example.org", "v1alpha1", "Tenant", "") }

// options are what the user asks for.
type options struct {
	naming.Names

	short []string
	// letter is that of the rules of the new contract.
	letter string
	// isExternal says that the kind has an item in an external service.
	isExternal bool
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
	o.isExternal = get("EXTERNAL") == "yes"
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
	refuse(exists("pkg/controller/"+singular+"/") || exists("docs/"+singular+".md") || exists("artifacts/deploy/"+singular+"/"), "KIND",
		"pkg/controller/%[1]s, docs/%[1]s.md or artifacts/deploy/%[1]s is there; give another kind", singular)
	refuse(letters == "", "KIND", "no letter is left for the rules of its contract")
	o.letter = letters[:min(1, len(letters))]
	if initial := strings.ToUpper(singular[:1]); strings.Contains(letters, initial) {
		o.letter = initial
	}
	return o, errors.Join(problems...)
}

// convert returns the files of the new kind, and those that change because of it.
func convert(o *options, files []*tree.File) (converted []*tree.File) {
	from := source()
	from.Module, from.Program = o.Module, o.Program
	r := naming.NewRenamer(from, o.Names, func(string) bool { return false })
	rule := regexp.MustCompile(`\bZ([0-9]+)\b`)
	for _, f := range files {
		words := word.Split(f.Path, -1)
		text, isEdit := o.edit(f.Path, string(f.Data))
		switch singular := strings.ToLower(from.Kind); {
		case tree.Generated.MatchString(f.Path):
			continue
		case isEdit:
			f = &tree.File{Path: f.Path, Mode: f.Mode, Data: []byte(text)}
		case slices.Contains(words, "newkind") && slices.ContainsFunc([]string{singular, from.GroupPackage}, func(of string) bool { return slices.Contains(words, of) }),
			f.Path == "test/e2e/walkthrough_"+singular+"_test.go":
			if text = o.external(f.Path, text); text == "" {
				continue
			}
			text = strings.NewReplacer(living, "", "e2e && newkind", "e2e").Replace(text)
			path := strings.TrimPrefix(f.Path, living)
			text = rule.ReplaceAllString(r.Text(path, text), o.letter+"$1")
			f = &tree.File{Path: r.Text(path, path), Mode: f.Mode, Data: []byte(o.Markers(text, o.short))}
		default:
			continue
		}
		converted = append(converted, f)
	}
	return converted
}

// What is about the external service is marked: lines, or what is between two marks. Lines of comments that are marked
// as plain take their place in a kind without one.
var (
	externalText = regexp.MustCompile(`(?s)[ \t]*(?://|#|<!--) \+external:begin(?: -->)?\n?(.*?)[ \t]*(?://|#|<!--) \+external:end(?: -->)?\n?`)
	externalLine = regexp.MustCompile(`(?m)^(.*\S) *(?://|#|<!--) \+external(?: -->)?( \|)?\n`)
	plainLine    = regexp.MustCompile(`(?m)^([ \t]*)(?://|#) \+plain (.*\n)`)
)

// external returns a file of the living kind with what is about the external service, or without, "" if it is about
// nothing else.
func (o *options) external(path, text string) string {
	if o.isExternal {
		return plainLine.ReplaceAllString(externalLine.ReplaceAllString(externalText.ReplaceAllString(text, "$1"), "$1$2\n"), "")
	}
	if strings.Contains(path, "/service") {
		return ""
	}
	text = strings.ReplaceAll(externalLine.ReplaceAllString(externalText.ReplaceAllString(text, ""), ""), " + withItem", "")
	return plainLine.ReplaceAllString(text, "$1$2")
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

// run adds the kind that the variables ask for to the repository in root. It works in a copy, and takes what has
// changed there in the end, so that a failure leaves the repository as it was.
func run(ctx context.Context, root string, get func(string) string, output io.Writer) error {
	all := []string{"--cached", "--others", "--exclude-standard"}
	before, err := tree.List(ctx, root, all...)
	if err != nil {
		return err
	}
	o, err := newOptions(before, get)
	if err != nil {
		return err
	}
	files := convert(o, before)
	singular := strings.ToLower(o.Kind)
	fmt.Fprintf(output, "Writing %d files, then generating code, which takes a minute or longer\n", len(files))
	err = tree.InCopy(ctx, "", before, func(work string) error {
		// It sorts imports and aligns comments, which the names have moved.
		goimports := []string{"go", "tool", "-modfile=hack/tools/go.mod", "goimports", "-local=" + o.Module, "-w"}
		for _, f := range files {
			if err := f.Write(work); err != nil {
				return err
			}
			if filepath.Ext(f.Path) == ".go" {
				goimports = append(goimports, f.Path)
			}
		}
		if err := tree.Execute(ctx, root, work,
			goimports,
			[]string{"make", "--no-print-directory", "generate"},
			[]string{"go", "vet", ".", "./pkg/apis/...", "./pkg/controller/" + singular},
		); err != nil {
			return fmt.Errorf("%w\nIf the code has a name of KIND or GROUP for something else, give another one, such as %sSet", err, o.Kind)
		}
		after, err := tree.List(ctx, work, all...)
		if err != nil {
			return err
		}
		return update(root, before, after)
	})
	if err == nil {
		fmt.Fprintf(output, next, o.Kind, singular, o.GroupPackage, o.Version, o.Kinds)
	}
	return err
}

// update writes the files to root that are not as they were before.
func update(root string, before, after []*tree.File) (err error) {
	for _, f := range after {
		if !slices.ContainsFunc(before, func(b *tree.File) bool { return b.Path == f.Path && slices.Equal(b.Data, f.Data) }) {
			err = errors.Join(err, f.Write(root))
		}
	}
	return err
}

const next = `Added the kind %[1]s: git status shows the files.

Next:

  go test ./pkg/controller/%[2]s .
  make run    # it starts with the controller of %[5]s once kubectl apply -f artifacts/examples/%[2]s-crd.yaml has run;
              # with EXTERNAL=yes it needs the flag --%[2]s-endpoint (docs/%[2]s.md)

Then make it yours (CONTRIBUTING.md, "Adding a controller"): edit pkg/apis/%[3]s/%[4]s/types.go, what is desired in
pkg/controller/%[2]s/%[2]s.go, its tests and testdata/suites.yaml, and docs/%[2]s.md; then make generate.
Name the kind in README.md and docs/design.md, and give it a panel in artifacts/deploy/monitoring/dashboard.json.
`
