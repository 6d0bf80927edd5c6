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
	"k8s.io/gengo/v2/namer"
	gengo "k8s.io/gengo/v2/types"
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
	switch match := versionForm.FindStringSubmatch(version); {
	case match == nil:
	case match[2] == "alpha":
		n.NextVersion = "v" + match[1] + "beta1"
	case match[2] == "beta":
		n.NextVersion = "v" + match[1]
	default:
		major, _ := strconv.Atoi(match[1])
		n.NextVersion = fmt.Sprintf("v%d", major+1)
	}
	return n
}

var (
	versionForm = regexp.MustCompile(`^v([1-9][0-9]*)(?:(alpha|beta)[1-9][0-9]*)?$`)
	kindForm    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]{1,62}$`)
	wordForm    = regexp.MustCompile(`^[a-z][a-z0-9]{0,62}$`)
)

// Validate calls refuse for each of the names of a kind, with the name of its variable: whether it is to be
// refused, and why.
func (n *Names) Validate(short []string, refuse func(is bool, variable, format string, args ...any)) {
	refuse(len(validation.IsDNS1123Subdomain(n.Group)) > 0 || !strings.Contains(n.Group, "."), "GROUP",
		"%q is not a DNS subdomain with a dot; give a domain that you own, such as widgets.acme.io", n.Group)
	refuse(strings.HasSuffix(n.Group, ".k8s.io") || strings.HasSuffix(n.Group, ".kubernetes.io"), "GROUP",
		"%q is reserved for APIs that the Kubernetes project has approved; give a domain that you own", n.Group)
	notImported := []string{"documentation", "init", "internal", "main", "testdata", "vendor"}
	refuse(!token.IsIdentifier(n.GroupPackage) || types.Universe.Lookup(n.GroupPackage) != nil || slices.Contains(notImported, n.GroupPackage), "GROUP",
		"%q: its first label names Go packages, and %q cannot be imported; give a first label that begins with a letter and has no meaning in Go", n.Group, n.GroupPackage)
	refuse(n.NextVersion == "", "VERSION", "%q is not a version such as v1, v1beta1 or v2alpha1", n.Version)
	singular := strings.ToLower(n.Kind)
	refuse(!kindForm.MatchString(n.Kind), "KIND", "%q is not a kind: 2 to 63 letters and digits in camel case that begin with a capital, such as Widget", n.Kind)
	refuse(token.IsKeyword(singular) || types.Universe.Lookup(singular) != nil, "KIND",
		"%q: %s is a Go keyword or a predeclared name, and variables have the name of the kind; give another one, such as %sSet", n.Kind, singular, n.Kind)
	refuse(!isBuilt("fake_"+singular+".go"), "KIND", "%q: Go builds a file of the clientset, fake_%s.go, for one system, processor or tests only; give another one, such as %sSet", n.Kind, singular, n.Kind)
	refuse(strings.HasSuffix(n.Kind, "List") || n.Kind == "Resource", "KIND", "%q: the API has that name for something else, as those that end in List; give another one, such as %sSet", n.Kind, n.Kind)
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

// Markers returns the type with the markers of its short names, and of a plural that the generators do not make.
func (n *Names) Markers(text string, short []string) string {
	path := "\n// +kubebuilder:resource:path=" + n.Plural + ","
	marker := path
	if len(short) > 0 {
		marker += "shortName=" + strings.Join(short, ";") + ","
	}
	if n.Kinds != PluralOf(n.Kind) {
		marker = "\n// +resourceName=" + n.Plural + marker
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
	first := word[:min(1, len(word))]
	return strings.ToUpper(first) + word[len(first):]
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

// PluralOf returns the plural that the code generators make.
func PluralOf(singular string) string {
	return namer.NewPublicPluralNamer(nil).Name(&gengo.Type{Name: gengo.Name{Name: singular}})
}

// isBuilt reports whether Go builds a file of that name on every system, and not for tests only.
func isBuilt(file string) bool {
	none := build.Context{GOOS: "none", GOARCH: "none", OpenFile: func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("package x\n")), nil
	}}
	built, err := none.MatchFile("", file)
	return built && err == nil && !strings.HasSuffix(file, "_test.go")
}

// Renamer replaces the names of a repository by those of its fork. It replaces words, not parts of words, in
// one pass: what it has written is not replaced again.
type Renamer struct {
	from, to Names
	tokens   *regexp.Regexp
	// spellings are the new forms of what has one form in all places.
	spellings map[string]string
	// isOther matches the paths of kinds with versions of their own.
	isOther func(path string) bool
}

// NewRenamer returns a renamer that puts the names to in place of from.
func NewRenamer(from, to Names, isOther func(path string) bool) *Renamer {
	r := &Renamer{from: from, to: to, isOther: isOther, spellings: map[string]string{
		from.Module: to.Module, from.Group: to.Group, from.GroupPackage: to.GroupPackage, UpperFirst(from.GroupPackage): Camel(to.GroupPackage),
	}}
	for _, form := range []func(string) string{
		func(program string) string { return program },
		func(program string) string { return strings.ReplaceAll(program, "-", "_") },
		func(program string) string { return strings.ToUpper(strings.ReplaceAll(program, "-", "_")) },
		Camel,
	} {
		r.spellings[form(from.Program)] = form(to.Program)
	}
	var forms []string
	for form := range r.spellings {
		forms = append(forms, regexp.QuoteMeta(form))
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	versions := "[vV]" + from.Version[1:] + "|[vV]" + from.NextVersion[1:]
	// Names of alerts are anchors in lower case.
	r.tokens = regexp.MustCompile("#" + squashed(from.Program) + "[a-z]+|" + strings.Join(forms, "|") + "|" + versions + "|" +
		from.Kinds + "|" + from.Kind + "|" + from.Plural + "|" + strings.ToLower(from.Kind) + "|" + strings.ToUpper(from.Kinds) + "|" + strings.ToUpper(from.Kind))
	return r
}

// Text returns the text of the file, or its path, with the new names.
func (r *Renamer) Text(path, text string) string {
	var renamed strings.Builder
	api := "/pkg/apis/" + r.from.GroupPackage + "/"
	isOther := r.isOther(path) || (strings.HasPrefix(path, "pkg/apis/") || strings.Contains(text, r.from.Module+"/pkg/apis/")) && !strings.HasPrefix("/"+path, api)
	end, isOurs := 0, !isOther || strings.Contains(text, "\n\t\""+r.from.Module+api)
	for _, at := range r.tokens.FindAllStringIndex(text, -1) {
		renamed.WriteString(text[end:at[0]])
		renamed.WriteString(r.token(text, at[0], at[1], isOurs))
		end = at[1]
	}
	return article.ReplaceAllStringFunc(renamed.String()+text[end:], func(found string) string {
		match := article.FindStringSubmatch(found)
		if !strings.HasPrefix(strings.ToLower(match[3]), strings.ToLower(r.to.Kind)) || !strings.EqualFold(match[1], "a") {
			return found
		}
		if vowel.MatchString(r.to.Kind) {
			match[1] += "n"
		}
		return match[1] + match[2] + match[3]
	})
}

var (
	// article matches the indefinite article, and the word behind it.
	article = regexp.MustCompile("\\b([Aa])((?: |-|\n|\n\\s*(?://|#) )`?)([A-Za-z]+)")
	// vowel matches the kinds that are spoken with one at first: an Image, an Update, an HTTPRoute, but a Unit, a URL.
	vowel = regexp.MustCompile(`^(?:[AEIO]|U[a-mo-rt-z]|Un[a-hj-z]|[FHLMNRSX][^a-z])`)
)

// beforeVersion matches what tells the group of a version: a/v1, A().V1(), AV1 and as.v1.
var beforeVersion = regexp.MustCompile(`([\w.-]*)/$|(\w+)\(\)\.$|(\w+)\.?$`)

// token returns the new form of the token text[from:to]. isOurs is for version.
func (r *Renamer) token(text string, from, to int, isOurs bool) string {
	token, before, after := text[from:to], text[max(0, from-80):from], text[to:]
	isLower := after != "" && unicode.IsLower(rune(after[0]))
	isPart := before != "" && (unicode.IsLetter(rune(before[len(before)-1])) || unicode.IsDigit(rune(before[len(before)-1])))
	spelling, ok := r.spellings[token]
	switch {
	case token[0] == '#':
		return "#" + squashed(r.to.Program) + strings.ReplaceAll(token[1+len(squashed(r.from.Program)):], r.from.Plural, r.to.Plural)
	case token == r.from.Module && before != "" && strings.ContainsAny(before[len(before)-1:], "."):
		// The name of an image in some registry.
		return strings.TrimSuffix(token, r.from.Program) + r.to.Program
	case ok:
		return spelling
	case token[0] == 'v' || token[0] == 'V':
		return r.version(token, before, isOurs)
	case isLower && (token != strings.ToLower(r.from.Kind) || !importAlias.MatchString(after)):
		// Another word that begins in the same way.
		return token
	}
	kind := r.to.Kind
	if strings.EqualFold(token, r.from.Kinds) {
		kind = r.to.Kinds
	}
	isUpper := after != "" && unicode.IsUpper(rune(after[0]))
	switch {
	case token == r.from.Kind || token == r.from.Kinds:
		return kind
	case isPart:
		return token
	case token == strings.ToUpper(token):
		return strings.ToUpper(kind)
	case isUpper:
		return lowerCamel(kind)
	}
	return strings.ToLower(kind)
}

func squashed(program string) string {
	return strings.ReplaceAll(program, "-", "")
}

// importAlias matches what follows the kind in the names of imports.
var importAlias = regexp.MustCompile(`^(informers|listers|fake|scheme|client)`)

// version returns the new form of a version, unless it is another group's. isOurs tells of one that stands alone.
func (r *Renamer) version(token, before string, isOurs bool) string {
	if match := beforeVersion.FindStringSubmatch(before); match != nil {
		group := match[1] + match[2] + match[3]
		ours := []string{"use", "client", strings.ToLower(r.from.Kind) + "informers", r.from.Plural, strings.ToLower(r.from.Kind), r.from.Group, r.from.GroupPackage}
		isOurs = isOurs && group == "" || slices.ContainsFunc(ours, func(our string) bool { return strings.HasSuffix(strings.ToLower(group), our) })
	}
	switch to := r.to.Version; {
	case !isOurs:
		return token
	case strings.EqualFold(token, r.from.NextVersion):
		to = r.to.NextVersion
		fallthrough
	default:
		return token[:1] + to[1:]
	}
}
