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
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
)

// maxProgram leaves room for what manifests append to the name of the program, within the 63 characters of
// a label.
const maxProgram = 40

// options are what the user asks for.
type options struct {
	names

	dir, copyright string
	short, drop    []string
}

var (
	versionForm = regexp.MustCompile(`^v([1-9][0-9]*)(?:(alpha|beta)[1-9][0-9]*)?$`)
	moduleForm  = regexp.MustCompile(`^[a-z0-9-]+(\.[a-z0-9-]+)+(/[\w.~-]+)+$`)
	kindForm    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{1,62}$`)
	wordForm    = regexp.MustCompile(`^[a-z][a-z0-9]{0,62}$`)
	majorSuffix = regexp.MustCompile(`/v[0-9]+$`)
)

// newOptions reads the variables of `make fork`, and returns all mistakes, each with the variable's name and
// the rule.
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
	o := &options{drop: list("DROP"), short: list("SHORT"), names: names{
		module: get("MODULE"), group: get("GROUP"), version: get("VERSION"), kind: get("KIND"), program: cmp.Or(get("PROGRAM"), program),
	}}
	for _, p := range parts() {
		if p.name == fork || p.isMore && !slices.Contains(list("WITH"), p.name) {
			o.drop = append(o.drop, p.name)
		}
	}
	o.kinds = pluralOf(o.kind)
	if o.plural = strings.ToLower(o.kinds); get("PLURAL") != "" && get("PLURAL") != o.plural {
		o.plural = get("PLURAL")
		o.kinds = upperFirst(o.plural)
	}
	// The line in the licence headers ends in a full stop.
	o.copyright = cmp.Or(strings.TrimSuffix(get("COPYRIGHT"), "."), "The "+o.program+" Authors")
	label, _, _ := strings.Cut(o.group, ".")
	o.groupPackage = strings.ReplaceAll(label, "-", "")
	var problems []error
	refuse := func(is bool, variable, format string, args ...any) {
		if is {
			problems = append(problems, fmt.Errorf("%s: %s", variable, fmt.Sprintf(format, args...)))
		}
	}
	o.validateDir(root, get("DIR"), refuse)
	o.validateNames(root, refuse)
	o.validateKind(refuse)
	for _, variable := range []string{"DROP", "WITH"} {
		isMore := variable == "WITH"
		for _, name := range list(variable) {
			refuse(!slices.Contains(partNames(isMore), name), variable, "%q is not one of %s", name, strings.Join(partNames(isMore), ","))
		}
	}
	if match := versionForm.FindStringSubmatch(o.version); match == nil {
		refuse(true, "VERSION", "%q is not a version such as v1, v1beta1 or v2alpha1", o.version)
	} else {
		o.nextVersion = following(match[1], match[2])
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

// following returns the version that API servers prefer to this one: v1beta1 after v1alpha1, v1 after
// v1beta1 and v2 after v1.
func following(major, stability string) string {
	switch stability {
	case "alpha":
		return "v" + major + "beta1"
	case "beta":
		return "v" + major
	}
	number, _ := strconv.Atoi(major)
	return fmt.Sprintf("v%d", number+1)
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
	refuse(!moduleForm.MatchString(o.module), "MODULE", "%q is not a domain with a path; give the path that your module will be imported by, such as github.com/acme/widgets", o.module)
	refuse(strings.HasPrefix(o.module+"/", original().module+"/"), "MODULE", "%q is this repository's; give the path that your module will be imported by", o.module)
	refuse(len(validation.IsDNS1035Label(o.program)) > 0 || len(o.program) > maxProgram, "PROGRAM",
		"%q is not a DNS label of at most %d characters that begins with a letter, which names of Services and metrics are made of", o.program, maxProgram)
	_, err := os.Lstat(filepath.Join(root, o.program))
	refuse(err == nil || o.program == "makefile", "PROGRAM", "%q is a file or directory of the repository, which .gitignore would hide and make clean delete; give another name", o.program)
	refuse(strings.ContainsAny(o.copyright, "\n*"), "COPYRIGHT", "must be one line without an asterisk, such as 2026 Acme Inc.")
	refuse(len(validation.IsDNS1123Subdomain(o.group)) > 0 || !strings.Contains(o.group, "."), "GROUP", "%q is not a DNS subdomain with a dot; give a domain that you own, such as widgets.acme.io", o.group)
	refuse(strings.HasSuffix(o.group, ".k8s.io") || strings.HasSuffix(o.group, ".kubernetes.io"), "GROUP", "%q is reserved for APIs that the Kubernetes project has approved; give a domain that you own", o.group)
	notImported := []string{"documentation", "init", "internal", "main", "testdata", "vendor"}
	refuse(!token.IsIdentifier(o.groupPackage) || types.Universe.Lookup(o.groupPackage) != nil || slices.Contains(notImported, o.groupPackage), "GROUP",
		"%q: its first label names Go packages, and %q cannot be imported; give a first label that begins with a letter and has no meaning in Go", o.group, o.groupPackage)
	folder := "pkg/apis/" + o.groupPackage
	refuse(o.isOfSibling(folder) && !o.isDropped(folder), "GROUP", "%q: %s is the folder of another group; give another first label, or drop what uses it with DROP", o.group, folder)
}

func (o *options) validateKind(refuse func(bool, string, string, ...any)) {
	singular := strings.ToLower(o.kind)
	refuse(!kindForm.MatchString(o.kind), "KIND", "%q is not a kind: 2 to 63 letters and digits in camel case that begin with a capital, such as Widget", o.kind)
	refuse(token.IsKeyword(singular) || types.Universe.Lookup(singular) != nil, "KIND",
		"%q: %s is a Go keyword or a predeclared name, and variables have the name of the kind; give another one, such as %sSet", o.kind, singular, o.kind)
	refuse(!isBuilt("fake_"+singular+".go"), "KIND", "%q: Go builds a file of the clientset, fake_%s.go, for one system, processor or tests only; give another one, such as %sSet", o.kind, singular, o.kind)
	refuse(strings.HasSuffix(o.kind, "List") || o.kind == "Resource", "KIND", "%q: the package of the API has that name for something else; give another one, such as %sSet", o.kind, o.kind)
	for known := range scheme.Scheme.AllKnownTypes() {
		if strings.EqualFold(known.Kind, o.kind) || strings.ToLower(pluralOf(known.Kind)) == o.plural {
			refuse(true, "KIND", "%q is a kind of Kubernetes, for which kubectl would take it; give another one, such as %sSet", o.kind, o.kind)
			break
		}
	}
	for _, p := range parts() {
		refuse(p.kind != "" && strings.EqualFold(p.kind, o.kind) && !slices.Contains(o.drop, p.name), "KIND", "%q is a kind of this repository; give another one, or drop it with DROP", o.kind)
	}
	refuse(!wordForm.MatchString(o.plural) || o.plural == singular, "PLURAL", "%q is not a plural in lower case that differs from the kind, such as widgets", o.plural)
	for _, short := range o.short {
		refuse(!wordForm.MatchString(short), "SHORT", "%q is not a short name: lower case letters and digits, such as wd, with commas between several", short)
	}
}

// markers returns the type with the markers of its short names, and of a plural that the generators do not make.
func (o *options) markers(text string) string {
	path := "// +kubebuilder:resource:path=" + o.plural + ","
	marker := path
	if len(o.short) > 0 {
		marker += "shortName=" + strings.Join(o.short, ";") + ","
	}
	if o.kinds != pluralOf(o.kind) {
		marker = "// +resourceName=" + o.plural + "\n" + marker
	}
	return strings.Replace(text, path, marker, 1)
}
