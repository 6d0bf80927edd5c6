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
	"cmp"
	"errors"
	"fmt"
	"go/token"
	"go/types"
	"io/fs"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
	"k8s.io/component-base/metrics/testutil"

	"example.com/sample-controller/hack/naming"
)

// maxProgram leaves room for what manifests append to the name of the program, within the
// 63 characters of a label.
const maxProgram = 40

// options are what the user asks for.
type options struct {
	names

	dir        string
	short      []string
	drop       []string
	copyright  string
	dryRun     bool
	repository *repository
}

// newOptions reads the variables of `make fork`, and returns all mistakes, each with the
// variable's name and the rule.
func newOptions(repository *repository, get func(string) string) (*options, error) {
	kind, plural := get("KIND"), get("PLURAL")
	o := &options{repository: repository, dir: get("DIR"), dryRun: get("DRY_RUN") != "", drop: list(get("DROP")), short: list(get("SHORT")), names: names{
		module: get("MODULE"), group: get("GROUP"), version: get("VERSION"), kind: kind, kinds: pluralOf(kind, plural),
	}}
	o.plural = cmp.Or(plural, strings.ToLower(o.kinds))
	o.program = cmp.Or(get("PROGRAM"), defaultProgram(o.module))
	// The line in the licence headers ends in a full stop.
	o.copyright = cmp.Or(strings.TrimSuffix(get("COPYRIGHT"), "."), "The "+o.program+" Authors")
	label, _, _ := strings.Cut(o.group, ".")
	o.groupPackage = strings.ReplaceAll(label, "-", "")
	var problems []error
	refuse := func(variable, format string, args ...any) {
		problems = append(problems, fmt.Errorf("%s: %s", variable, fmt.Sprintf(format, args...)))
	}
	for _, variable := range []string{"DIR", "MODULE", "GROUP", "VERSION", "KIND"} {
		if get(variable) == "" {
			refuse(variable, "is not set; run make fork DIR=../widgets MODULE=github.com/acme/widgets GROUP=widgets.acme.io VERSION=v1alpha1 KIND=Widget")
		}
	}
	if len(problems) == 0 {
		o.validateDir(refuse)
		o.validateModule(refuse)
		o.validateGroup(refuse)
		o.validateKind(refuse)
		o.validateDrop(refuse)
	}
	if err := errors.Join(problems...); err != nil {
		return nil, err
	}
	o.nextVersion = following(o.version)
	return o, nil
}

// list splits at commas.
func list(value string) []string {
	return strings.FieldsFunc(value, func(r rune) bool { return r == ',' })
}

// defaultProgram returns the last element of the module path that is no version.
func defaultProgram(module string) string {
	elements := strings.Split(module, "/")
	if last := len(elements) - 1; last > 0 && regexp.MustCompile(`^v[0-9]+$`).MatchString(elements[last]) {
		elements = elements[:last]
	}
	return strings.ToLower(strings.NewReplacer(".", "-", "_", "-").Replace(elements[len(elements)-1]))
}

type refuseFunc func(variable, format string, args ...any)

func (o *options) validateDir(refuse refuseFunc) {
	dir, err := filepath.Abs(o.dir)
	if err != nil {
		refuse("DIR", "%v", err)
		return
	}
	parent, err := filepath.EvalSymlinks(filepath.Dir(dir))
	if err != nil {
		refuse("DIR", "%v; give a directory below one that exists", err)
		return
	}
	o.dir = filepath.Join(parent, filepath.Base(dir))
	inside, relErr := filepath.Rel(o.repository.root, o.dir)
	target, linkErr := os.Readlink(o.dir)
	entries, err := os.ReadDir(o.dir)
	switch {
	case relErr == nil && filepath.IsLocal(inside):
		refuse("DIR", "%s is in this repository; give a directory outside of it, such as ../widgets", o.dir)
	case linkErr == nil:
		refuse("DIR", "%s is a link, which the fork would replace; give its target %s", o.dir, target)
	case err == nil && len(entries) > 0:
		refuse("DIR", "%s is not empty; give a directory that does not exist or is empty", o.dir)
	case err != nil && !errors.Is(err, fs.ErrNotExist):
		refuse("DIR", "%v", err)
	}
}

func (o *options) validateModule(refuse refuseFunc) {
	if err := checkModulePath(o.module); err != nil {
		refuse("MODULE", "%v", err)
	}
	if strings.HasPrefix(o.module+"/", o.repository.module+"/") {
		refuse("MODULE", "%q is this repository's; give the path that your module will be imported by", o.module)
	}
	entries, err := os.ReadDir(o.repository.root)
	taken := slices.ContainsFunc(entries, func(entry fs.DirEntry) bool { return strings.EqualFold(entry.Name(), o.program) })
	switch faults := validation.IsDNS1035Label(o.program); {
	case err != nil:
		refuse("PROGRAM", "%v", err)
	case len(faults) > 0:
		refuse("PROGRAM", "%q is not a DNS label that begins with a letter, which names of Services and metrics are made of: %s", o.program, strings.Join(faults, "; "))
	case taken:
		refuse("PROGRAM", "%q is a file or directory of the repository, which .gitignore would hide and make clean delete; give another name", o.program)
	case len(o.program) > maxProgram:
		refuse("PROGRAM", "%q has %d characters, at most %d leave room for names such as %s-webhook", o.program, len(o.program), maxProgram, o.program)
	}
	if problem := lintMetric(o.program); problem != "" {
		refuse("PROGRAM", "names of metrics begin with %q, and Prometheus says of them: %s; give another name", o.program, problem)
	}
	if strings.ContainsAny(o.copyright, "\n*") {
		refuse("COPYRIGHT", "must be one line without an asterisk, such as 2026 Acme Inc.")
	}
}

// lintMetric returns what the linter that the tests use says of a metric of that program, or "".
func lintMetric(program string) string {
	name := strings.ReplaceAll(program, "-", "_") + "_writes_total"
	problems, err := testutil.NewPromLinter(strings.NewReader("# HELP " + name + " Writes.\n# TYPE " + name + " counter\n" + name + " 1\n")).Lint()
	if err != nil || len(problems) == 0 {
		// Other checks have found a name that is not one.
		return ""
	}
	return problems[0].Text
}

func (o *options) validateGroup(refuse refuseFunc) {
	folder := filepath.Join("pkg/apis", o.groupPackage)
	notImported := []string{"documentation", "init", "internal", "main", "testdata", "vendor"}
	switch faults := validation.IsDNS1123Subdomain(o.group); {
	case len(faults) > 0:
		refuse("GROUP", "%q is not a DNS subdomain: %s", o.group, strings.Join(faults, "; "))
	case !strings.Contains(o.group, "."):
		refuse("GROUP", "%q has no dot; give a domain that you own, such as widgets.acme.io", o.group)
	case strings.HasSuffix(o.group, ".k8s.io"), strings.HasSuffix(o.group, ".kubernetes.io"):
		refuse("GROUP", "%q is reserved for APIs that the Kubernetes project has approved; give a domain that you own", o.group)
	case !token.IsIdentifier(o.groupPackage), types.Universe.Lookup(o.groupPackage) != nil, slices.Contains(notImported, o.groupPackage):
		refuse("GROUP", "%q: its first label names Go packages, and %q cannot be imported; give a first label that begins with a letter and has no meaning in Go", o.group, o.groupPackage)
	case o.repository.isKept(folder, o.drop):
		refuse("GROUP", "%q: %s is the folder of another group; give another first label, or drop what uses it with DROP", o.group, folder)
	}
	if !versionForm.MatchString(o.version) {
		refuse("VERSION", "%q is not a version such as v1, v1beta1 or v2alpha1", o.version)
	}
}

// kindForm is the form of a kind, plurals that of a resource.
var (
	kindForm   = regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`)
	pluralForm = regexp.MustCompile(`^[a-z][a-z0-9]*$`)
)

func (o *options) validateKind(refuse refuseFunc) {
	singular := strings.ToLower(o.kind)
	switch {
	case !kindForm.MatchString(o.kind) || len(o.kind) > validation.DNS1035LabelMaxLength:
		refuse("KIND", "%q is not a kind: two or more letters and digits in camel case that begin with a capital, such as Widget, at most %d", o.kind, validation.DNS1035LabelMaxLength)
	case token.IsKeyword(singular) || types.Universe.Lookup(singular) != nil:
		refuse("KIND", "%q: %s is a Go keyword or a predeclared name, and variables have the name of the kind; give another one, such as %sSet", o.kind, singular, o.kind)
	case !naming.IsBuilt("fake_" + singular + ".go"):
		refuse("KIND", "%q: Go builds a file of the clientset, fake_%s.go, for one system, processor or tests only; give another one, such as %sSet", o.kind, singular, o.kind)
	case strings.HasSuffix(o.kind, "List"):
		refuse("KIND", "%q: a kind whose name ends in List is taken for a list of objects; give another one", o.kind)
	case scheme.Scheme.Recognizes(schema.GroupVersionKind{Group: o.group, Version: o.version, Kind: o.kind}) || builtin(o.group, o.kind):
		refuse("KIND", "%q is built into the group %q; give another one", o.kind, o.group)
	case o.repository.isKind(o.kind, o.drop):
		refuse("KIND", "%q is a kind of this repository; give another one, or drop it with DROP", o.kind)
	}
	switch {
	case !pluralForm.MatchString(o.plural) || len(o.plural) > validation.DNS1035LabelMaxLength:
		refuse("PLURAL", "%q is not a plural: lower case letters and digits that begin with a letter, such as widgets", o.plural)
	case o.plural == singular:
		refuse("PLURAL", "is the kind in lower case, %q; give a word that differs from it", o.plural)
	}
	for _, short := range o.short {
		if !pluralForm.MatchString(short) {
			refuse("SHORT", "%q is not a short name: lower case letters and digits, such as wd, with commas between several", short)
		}
	}
}

// isBuiltIn reports whether kubectl takes one of the names for a built-in kind.
func isBuiltIn(kind, plural string) bool {
	for known := range scheme.Scheme.AllKnownTypes() {
		if strings.EqualFold(known.Kind, kind) || strings.ToLower(naming.Plural(known.Kind)) == plural {
			return true
		}
	}
	return false
}

// builtin reports whether client-go knows the kind in any version of the group.
func builtin(group, kind string) bool {
	for known := range scheme.Scheme.AllKnownTypes() {
		if known.Group == group && known.Kind == kind {
			return true
		}
	}
	return false
}

func (o *options) validateDrop(refuse refuseFunc) {
	var known []string
	for _, c := range o.repository.components {
		if c.name != original {
			known = append(known, c.name)
		}
	}
	for _, name := range o.drop {
		if !slices.Contains(known, name) {
			refuse("DROP", "%q cannot be dropped; give a list of %s", name, strings.Join(known, ","))
		}
	}
}
