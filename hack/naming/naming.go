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

// Package naming has the names of kinds, and replaces those in the text of files: `make fork` and
// `make new-kind` copy what works, with other names.
package naming

import (
	"fmt"
	"go/build"
	"go/token"
	"go/types"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"
)

// Names are what a repository and its first kind are called.
type Names struct {
	Module, Program string
	Group, Version  string
	// GroupPackage is the folder of the group below pkg/apis, NextVersion the version that API servers
	// prefer to this one, which the webhooks serve beside it.
	GroupPackage, NextVersion string
	// Kinds is the plural of Kind in Go, Plural that in lower case.
	Kind, Kinds, Plural string
}

// New returns the names that follow from those of a group, a version and a kind. plural is "" for the one
// that the code generators make.
func New(group, version, kind, plural string) Names {
	n := Names{Group: group, Version: version, Kind: kind, Kinds: PluralOf(kind)}
	if n.Plural = strings.ToLower(n.Kinds); plural != "" && plural != n.Plural {
		n.Plural, n.Kinds = plural, UpperFirst(plural)
	}
	label, _, _ := strings.Cut(group, ".")
	n.GroupPackage = strings.ReplaceAll(label, "-", "")
	if match := versionForm.FindStringSubmatch(version); match != nil {
		n.NextVersion = following(match[1], match[2])
	}
	return n
}

var (
	versionForm = regexp.MustCompile(`^v([1-9][0-9]*)(?:(alpha|beta)[1-9][0-9]*)?$`)
	kindForm    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{1,62}$`)
	wordForm    = regexp.MustCompile(`^[a-z][a-z0-9]{0,62}$`)
)

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

// Validate calls refuse for each of the names of a kind, with the name of its variable: whether it is to be
// refused, and why.
func (n *Names) Validate(short []string, refuse func(is bool, variable, format string, args ...any)) {
	n.validateGroup(refuse)
	refuse(n.NextVersion == "", "VERSION", "%q is not a version such as v1, v1beta1 or v2alpha1", n.Version)
	singular := strings.ToLower(n.Kind)
	refuse(!kindForm.MatchString(n.Kind), "KIND", "%q is not a kind: 2 to 63 letters and digits in camel case that begin with a capital, such as Widget", n.Kind)
	refuse(token.IsKeyword(singular) || types.Universe.Lookup(singular) != nil, "KIND",
		"%q: %s is a Go keyword or a predeclared name, and variables have the name of the kind; give another one, such as %sSet", n.Kind, singular, n.Kind)
	refuse(!isBuilt("fake_"+singular+".go"), "KIND", "%q: Go builds a file of the clientset, fake_%s.go, for one system, processor or tests only; give another one, such as %sSet", n.Kind, singular, n.Kind)
	refuse(strings.HasSuffix(n.Kind, "List") || n.Kind == "Resource", "KIND", "%q: the package of the API has that name for something else; give another one, such as %sSet", n.Kind, n.Kind)
	for known := range scheme.Scheme.AllKnownTypes() {
		if strings.EqualFold(known.Kind, n.Kind) || strings.ToLower(PluralOf(known.Kind)) == n.Plural {
			refuse(true, "KIND", "%q is a kind of Kubernetes, for which kubectl would take it; give another one, such as %sSet", n.Kind, n.Kind)
			break
		}
	}
	refuse(!wordForm.MatchString(n.Plural) || n.Plural == singular, "PLURAL", "%q is not a plural in lower case that differs from the kind, such as widgets", n.Plural)
	for _, short := range short {
		refuse(!wordForm.MatchString(short), "SHORT", "%q is not a short name: lower case letters and digits, such as wd, with commas between several", short)
	}
}

func (n *Names) validateGroup(refuse func(is bool, variable, format string, args ...any)) {
	refuse(len(validation.IsDNS1123Subdomain(n.Group)) > 0 || !strings.Contains(n.Group, "."), "GROUP", "%q is not a DNS subdomain with a dot; give a domain that you own, such as widgets.acme.io", n.Group)
	refuse(strings.HasSuffix(n.Group, ".k8s.io") || strings.HasSuffix(n.Group, ".kubernetes.io"), "GROUP", "%q is reserved for APIs that the Kubernetes project has approved; give a domain that you own", n.Group)
	notImported := []string{"documentation", "init", "internal", "main", "testdata", "vendor"}
	refuse(!token.IsIdentifier(n.GroupPackage) || types.Universe.Lookup(n.GroupPackage) != nil || slices.Contains(notImported, n.GroupPackage), "GROUP",
		"%q: its first label names Go packages, and %q cannot be imported; give a first label that begins with a letter and has no meaning in Go", n.Group, n.GroupPackage)
}

// Markers returns the type with the markers of its short names, and of a plural that the generators do not make.
func (n *Names) Markers(text string, short []string) string {
	path := "// +kubebuilder:resource:path=" + n.Plural + ","
	marker := path
	if len(short) > 0 {
		marker += "shortName=" + strings.Join(short, ";") + ","
	}
	if n.Kinds != PluralOf(n.Kind) {
		marker = "// +resourceName=" + n.Plural + "\n" + marker
	}
	return strings.Replace(text, path, marker, 1)
}

// Camel returns the words of a DNS label in camel case.
func Camel(label string) (camel string) {
	for word := range strings.SplitSeq(label, "-") {
		camel += UpperFirst(word)
	}
	return camel
}

// UpperFirst returns the word with a capital first letter.
func UpperFirst(word string) string {
	if word == "" {
		return ""
	}
	return strings.ToUpper(word[:1]) + word[1:]
}

// lowerCamel returns the name with a lower case first word: httpRoute for HTTPRoute.
func lowerCamel(name string) string {
	runes := []rune(name)
	for i := range runes {
		if !unicode.IsUpper(runes[i]) || i > 0 && i+1 < len(runes) && unicode.IsLower(runes[i+1]) {
			break
		}
		runes[i] = unicode.ToLower(runes[i])
	}
	return string(runes)
}

// PluralOf returns the plural that the code generators make (k8s.io/gengo/v2/namer).
func PluralOf(singular string) string {
	if len(singular) < 2 {
		return singular
	}
	last, before := singular[len(singular)-1], rune(singular[len(singular)-2])
	switch {
	case strings.ContainsRune("sxz", rune(last)), last == 'h' && (before == 'c' || before == 's'):
		return singular + "es"
	case last == 'y' && strings.ContainsRune("bcdfghjklmnpqrstvwxyz", before):
		return singular[:len(singular)-1] + "ies"
	case last == 'f':
		return singular[:len(singular)-1] + "ves"
	case last == 'e' && before == 'f':
		return singular[:len(singular)-2] + "ves"
	}
	return singular + "s"
}

// articleOf returns the indefinite article of the kind: an HTTPRoute, a Unit.
func articleOf(kind string) string {
	vowel := strings.ContainsRune("AEIO", rune(kind[0])) || strings.HasPrefix(kind, "U") && !strings.HasPrefix(kind, "Us") && !strings.HasPrefix(kind, "Uni")
	if !unicode.IsLower(rune(kind[1])) {
		// It is spelled: the names of these letters begin with a vowel.
		vowel = strings.ContainsRune("AEFHILMNORSX", rune(kind[0]))
	}
	if vowel {
		return "an"
	}
	return "a"
}

// isBuilt reports whether Go builds a file of that name on every system, and not for tests only.
func isBuilt(file string) bool {
	none := build.Context{GOOS: "none", GOARCH: "none", OpenFile: func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("package x\n")), nil
	}}
	built, err := none.MatchFile("", file)
	return built && err == nil && !strings.HasSuffix(file, "_test.go")
}
