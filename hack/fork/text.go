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
	"errors"
	"fmt"
	"go/build"
	"io"
	"path"
	"regexp"
	"slices"
	"strings"
	"unicode"
)

// names are what a repository and its first kind are called.
type names struct {
	module, program string
	group, version  string
	// groupPackage is the folder of the group below pkg/apis, nextVersion the version that the webhooks
	// serve beside the stored one.
	groupPackage, nextVersion string
	// kinds is the plural of kind in Go, plural that in lower case.
	kind, kinds, plural string
}

// original returns the names of this repository.
func original() names {
	return names{
		module: "example.com/sample-controller", program: "sample-controller", group: "samplecontroller.k8s.io", groupPackage: "samplecontroller",
		version: "v1alpha1", nextVersion: "v1beta1", kind: "Foo", kinds: "Foos", plural: "foos",
	}
}

// fork is the part that every fork is without: this command, and what is true of this repository only.
const fork = "fork"

// part is a part of the repository that a fork can be without.
type part struct {
	// name is the name in DROP and a word in the paths of its files, or the name in WITH if a fork is without
	// the part by default: then only the paths below belong to it. They are the beginnings of paths.
	name   string
	isMore bool
	paths  []string
	// kind is the kind of a sibling. mention matches what names the part in the text of a file.
	kind    string
	mention *regexp.Regexp
}

func parts() []part {
	return []part{
		{name: "memcached", paths: []string{"pkg/apis/cache"}, kind: "Memcached", mention: regexp.MustCompile(`(?i)memcached|cache\.example\.com`)},
		{name: "crontab", paths: []string{"pkg/apis/alpha", "artifacts/examples/backup.yaml"}, kind: "CronTab", mention: regexp.MustCompile(`(?i)crontab|alpha\.ianlewis`)},
		{name: "webhooks", paths: []string{"pkg/apis/samplecontroller/v1beta1", "pkg/apis/samplecontroller/conversion", "artifacts/deploy/webhook", "test/e2e/testdata/single-deployment"},
			mention: regexp.MustCompile(`--webhook|WEBHOOK|webhook-certificate|pkg/webhook|deploy/webhook|webhook/server|with-webhook|webhook(?:-alerts)?\.yaml|webhooks\.md`)},
		{name: fork, paths: []string{"docs/from-stock.md", "docs/from-kubebuilder.md", "docs/tutorial.md", "hack/tutorial", "hack/verify-tutorial.sh", "docs/decisions", "docs/performance.md", "docs/throughput.svg", "docs/latency.svg",
			"docs/memory.svg", "docs/workers.svg", ".ci/run", "hack/ci-image.sh"}, mention: regexp.MustCompile(`docs/performance|docs/decisions`)},
		{name: "bench", isMore: true, paths: []string{"test/bench", "hack/bench.sh", "hack/plot", "hack/sizing.sh"}, mention: regexp.MustCompile(`test/bench|hack/(bench|sizing)\.sh|make bench|hack/plot`)},
		{name: "hostile", isMore: true, paths: []string{"hack/hostile.sh", "test/e2e/hostile_", "test/e2e/webhook_hostile_"}, mention: regexp.MustCompile(`hostile\.sh|make hostile|TestHostile`)},
		{name: "mutation", isMore: true, paths: []string{"docs/mutation.md", "hack/mutate.sh", "hack/tools/mutation"}, mention: regexp.MustCompile(`mutate\.sh|make mutate|mutation\.md`)},
		{name: "node", isMore: true, paths: []string{"hack/node", "hack/e2e-node.sh", "hack/ci-node.sh", "test/e2e/node_"}, mention: regexp.MustCompile(`(e2e|ci)-node|hack/node`)},
		{name: "release", isMore: true, paths: []string{"docs/release.md", ".github/workflows/release.yaml", "hack/release", "hack/verify-release.sh", "hack/verify-helm.sh", "hack/tools/release", "hack/tools/helm"}, mention: regexp.MustCompile(`release\.(sh|md)|make (verify-)?release|hack/release|(build|write)_(helm|chart)`)},
		{name: "versions", isMore: true, paths: []string{"hack/e2e-versions.sh", "hack/cluster/versions"}, mention: regexp.MustCompile(`e2e-versions|cluster/versions`)},
	}
}

// pathWords splits a path into words.
var pathWords = regexp.MustCompile(`[/._-]+`)

// owns reports whether the file or folder belongs to the part.
func (p *part) owns(file string) bool {
	return slices.ContainsFunc(p.paths, func(path string) bool { return strings.HasPrefix(file, path) }) ||
		!p.isMore && slices.ContainsFunc(pathWords.Split(file, -1), func(word string) bool { return strings.TrimSuffix(word, "s") == strings.TrimSuffix(p.name, "s") })
}

// isDropped reports whether the file or folder belongs to a part that the fork is without.
func (o *options) isDropped(file string) bool {
	return slices.ContainsFunc(parts(), func(p part) bool { return slices.Contains(o.drop, p.name) && p.owns(file) })
}

// isOfSibling reports whether the file or folder is a sibling's, whose API has a version of its own.
func (o *options) isOfSibling(file string) bool {
	return slices.ContainsFunc(parts(), func(p part) bool { return p.kind != "" && p.owns(file) })
}

var (
	marker = regexp.MustCompile(`\+drop:([a-z,]+)`)
	// inlineRegion matches a region within a line of Markdown, region a line that begins or ends one, and
	// marked a line that is a region of its own.
	inlineRegion = regexp.MustCompile(`<!-- \+drop:([a-z,]+) -->(.*?)<!-- \+drop:end -->`)
	region       = regexp.MustCompile(`^\s*(?://|#|<!--) \+drop:([a-z,]+)(?: -->)?$`)
	marked       = regexp.MustCompile(`^(.*?) *(?://|#|<!--) \+drop:([a-z,]+)(?: -->)?$`)
	// blankLines matches what a region leaves between two paragraphs, blankEnds what it leaves at the end of
	// a block. panel matches a panel of the dashboard, as JSON has no comments.
	blankLines = regexp.MustCompile(`\n\n\n+`)
	blankEnds  = regexp.MustCompile(`\n\n(\t*}\n)`)
	panel      = regexp.MustCompile(`(?m)^    \{\n(?:      .*\n)+    \},\n`)
)

// dropRegions returns the text without the regions of parts that the fork is without, and without markers. A
// region of several parts, with commas, is dropped if all of them are.
func (o *options) dropRegions(file, text string) (string, error) {
	for _, match := range marker.FindAllStringSubmatch(text, -1) {
		for name := range strings.SplitSeq(match[1], ",") {
			if name != "end" && !slices.ContainsFunc(parts(), func(p part) bool { return p.name == name }) {
				return "", fmt.Errorf("%s: +drop:%s names no part of this repository", file, name)
			}
		}
	}
	isDropped := func(list string) bool {
		return !slices.ContainsFunc(strings.Split(list, ","), func(name string) bool { return !slices.Contains(o.drop, name) })
	}
	text = inlineRegion.ReplaceAllStringFunc(text, func(found string) string {
		if match := inlineRegion.FindStringSubmatch(found); !isDropped(match[1]) {
			return match[2]
		}
		return ""
	})
	var kept []string
	open, dropping := 0, false
	for i, line := range strings.Split(text, "\n") {
		if match := region.FindStringSubmatch(line); match != nil {
			isEnd := match[1] == "end"
			if isEnd != (open > 0) {
				return "", fmt.Errorf("%s:%d: +drop:%s has no counterpart; regions begin with +drop:NAME, end with +drop:end and are not nested", file, i+1, match[1])
			}
			if open, dropping = i+1, !isEnd && isDropped(match[1]); isEnd {
				open = 0
			}
			continue
		}
		if match := marked.FindStringSubmatch(line); match != nil {
			if isDropped(match[2]) {
				continue
			}
			line = match[1]
		}
		if !dropping {
			kept = append(kept, line)
		}
	}
	if open > 0 {
		return "", fmt.Errorf("%s:%d: the region has no +drop:end", file, open)
	}
	text = blankEnds.ReplaceAllString(blankLines.ReplaceAllString(strings.Join(kept, "\n"), "\n\n"), "\n$1")
	return o.dropFromLists(file, text), nil
}

// dropFromLists returns a manifest or dashboard without what names a sibling that the fork is without: panels,
// and alternatives in the expression of a query.
func (o *options) dropFromLists(file, text string) string {
	for _, p := range parts() {
		if p.kind == "" || !slices.Contains(o.drop, p.name) {
			continue
		}
		switch path.Ext(file) {
		case ".json":
			text = panel.ReplaceAllStringFunc(text, func(panel string) string {
				if p.mention.MatchString(strings.NewReplacer("|"+p.name, "").Replace(panel)) {
					return ""
				}
				return panel
			})
			fallthrough
		case ".yaml":
			text = strings.ReplaceAll(text, "|"+p.name, "")
		}
	}
	return text
}

// link matches the target of a Markdown link to a file of the repository.
var link = regexp.MustCompile(`\]\(([^)#:]+)(?:#[^)]*)?\)`)

// checkLeftovers returns an error with what is left of this repository's names and of parts that the fork is
// without, and with links of documents to files that are not there.
func (o *options) checkLeftovers(files []*file) error {
	// The example is in the description of metav1.Condition, which is in every CRD.
	all := []string{"foo.example.com/CamelCase"}
	for _, name := range []string{o.module, o.copyright, o.group, o.groupPackage, camel(o.program), o.program, o.kinds, o.kind, o.plural} {
		all = append(all, name, strings.ReplaceAll(name, "-", "_"), strings.ReplaceAll(name, "-", ""))
	}
	slices.SortFunc(all, func(a, b string) int { return len(b) - len(a) })
	for i := range all {
		all[i] = regexp.QuoteMeta(all[i])
	}
	ours := regexp.MustCompile("(?i)" + strings.Join(all, "|"))
	old := []*regexp.Regexp{regexp.MustCompile(`(?i:sample[-_ ]?controller)|Foo(?:[^a-z]|s|$)|\bfoos?(?:[^a-z]|$)|FOO`)}
	for _, p := range parts() {
		if p.mention != nil && slices.Contains(o.drop, p.name) {
			old = append(old, p.mention)
		}
	}
	exist := map[string]bool{".": true}
	for _, f := range files {
		for name := f.path; name != "."; name = path.Dir(name) {
			exist[name] = true
		}
	}
	var left []error
	for _, f := range files {
		if !f.isText() {
			continue
		}
		for i, line := range strings.Split(f.path+"\n"+string(f.data), "\n") {
			for _, name := range old {
				// The imports of packages that are gone go in the end.
				if !attribution.MatchString(line) && !strings.HasPrefix(line, "\t\""+o.module) && name.MatchString(line) && name.MatchString(ours.ReplaceAllString(line, " ")) {
					left = append(left, fmt.Errorf("%s:%d: %s", f.path, i, strings.TrimSpace(line)))
				}
			}
			for _, match := range link.FindAllStringSubmatch(line, -1) {
				if target := path.Join(path.Dir(f.path), match[1]); path.Ext(f.path) == ".md" && !exist[target] && !generated.MatchString(target) {
					left = append(left, fmt.Errorf("%s:%d: links to %s, which is not there", f.path, i, target))
				}
			}
		}
	}
	if len(left) > 0 {
		return fmt.Errorf("these lines would be left in the fork; mark them with +drop:NAME (docs/fork.md):\n%w", errors.Join(left...))
	}
	return nil
}

// attribution matches the line of a licence header that names the copyright holders.
var attribution = regexp.MustCompile(`(?m)^(.*)Copyright The sample-controller Authors\.$`)

// renamer replaces the names of a repository by those of its fork. It replaces words, not parts of words, in
// one pass: what it has written is not replaced again.
type renamer struct {
	from, to names
	tokens   *regexp.Regexp
	// spellings are the new forms of what has one form in all places.
	spellings map[string]string
	// isOther matches the paths of kinds with versions of their own.
	isOther func(path string) bool
}

func newRenamer(to names, isOther func(path string) bool) *renamer {
	from := original()
	r := &renamer{from: from, to: to, isOther: isOther, spellings: map[string]string{
		from.module: to.module, from.group: to.group, from.groupPackage: to.groupPackage, upperFirst(from.groupPackage): camel(to.groupPackage),
	}}
	for _, form := range []func(string) string{
		func(program string) string { return program },
		func(program string) string { return strings.ReplaceAll(program, "-", "_") },
		func(program string) string { return strings.ToUpper(strings.ReplaceAll(program, "-", "_")) },
		camel,
	} {
		r.spellings[form(from.program)] = form(to.program)
	}
	var forms []string
	for form := range r.spellings {
		forms = append(forms, regexp.QuoteMeta(form))
	}
	slices.SortFunc(forms, func(a, b string) int { return len(b) - len(a) })
	versions := "[vV]" + from.version[1:] + "|[vV]" + from.nextVersion[1:]
	// Names of alerts are anchors in lower case.
	r.tokens = regexp.MustCompile("#" + from.groupPackage + "[a-z]+|" + strings.Join(forms, "|") + "|" + versions + "|" +
		from.kinds + "|" + from.kind + "|" + from.plural + "|" + strings.ToLower(from.kind) + "|" + strings.ToUpper(from.kinds) + "|" + strings.ToUpper(from.kind))
	return r
}

// text returns the text of the file, or its path, with the new names.
func (r *renamer) text(path, text string) string {
	var renamed strings.Builder
	end, isOurs := 0, !r.isOther(path) || strings.Contains(text, "\n\t\""+r.from.module+"/pkg/apis/"+r.from.groupPackage+"/"+r.from.version+"\"\n")
	for _, at := range r.tokens.FindAllStringIndex(text, -1) {
		renamed.WriteString(text[end:at[0]])
		renamed.WriteString(r.token(text, at[0], at[1], isOurs))
		end = at[1]
	}
	return article.ReplaceAllStringFunc(renamed.String()+text[end:], func(found string) string {
		match := article.FindStringSubmatch(found)
		if !strings.HasPrefix(strings.ToLower(match[3]), strings.ToLower(r.to.kind)) || !strings.EqualFold(match[1], "a") {
			return found
		}
		return match[1] + strings.TrimPrefix(articleOf(r.to.kind), "a") + match[2] + match[3]
	})
}

// article matches the indefinite article, and the word behind it.
var article = regexp.MustCompile("\\b([Aa])((?: |-|\n|\n\\s*(?://|#) )`?)([A-Za-z]+)")

// beforeVersion matches what tells the group of a version: a/v1, A().V1() and AV1.
var beforeVersion = regexp.MustCompile(`([\w.-]*)/$|(\w+)\(\)\.$|(\w+)$`)

// token returns the new form of the token text[from:to]. isOurs is for version.
func (r *renamer) token(text string, from, to int, isOurs bool) string {
	token, before, after := text[from:to], text[max(0, from-80):from], text[to:]
	isLower := after != "" && unicode.IsLower(rune(after[0]))
	isPart := before != "" && (unicode.IsLetter(rune(before[len(before)-1])) || unicode.IsDigit(rune(before[len(before)-1])))
	spelling, ok := r.spellings[token]
	switch {
	case token[0] == '#':
		squashed := strings.ReplaceAll(r.to.program, "-", "")
		return "#" + squashed + strings.ReplaceAll(token[1+len(r.from.groupPackage):], r.from.plural, r.to.plural)
	case token == r.from.module && before != "" && strings.ContainsAny(before[len(before)-1:], "."):
		// The name of an image in some registry.
		return strings.TrimSuffix(token, r.from.program) + r.to.program
	case ok:
		return spelling
	case token[0] == 'v' || token[0] == 'V':
		return r.version(token, before, isOurs)
	case isLower && (token != strings.ToLower(r.from.kind) || !importAlias.MatchString(after)):
		// Another word that begins in the same way.
		return token
	}
	kind := r.to.kind
	if strings.EqualFold(token, r.from.kinds) {
		kind = r.to.kinds
	}
	isUpper := after != "" && unicode.IsUpper(rune(after[0]))
	switch {
	case token == r.from.kind || token == r.from.kinds:
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

// importAlias matches what follows the kind in the names of imports.
var importAlias = regexp.MustCompile(`^(informers|listers|fake|scheme|client)`)

// version returns the new form of a version, unless it is that of another group. isOurs says whose it is in
// this file if the text before it does not tell.
func (r *renamer) version(token, before string, isOurs bool) string {
	if match := beforeVersion.FindStringSubmatch(before); match != nil {
		group := match[1] + match[2] + match[3]
		ours := []string{"use", "client", "fooinformers", r.from.plural, strings.ToLower(r.from.kind), r.from.group, r.from.groupPackage}
		isOurs = isOurs && group == "" || slices.ContainsFunc(ours, func(our string) bool { return strings.HasSuffix(strings.ToLower(group), our) })
	}
	switch to := r.to.version; {
	case !isOurs:
		return token
	case strings.EqualFold(token, r.from.nextVersion):
		to = r.to.nextVersion
		fallthrough
	default:
		return token[:1] + to[1:]
	}
}

// camel returns the words of a DNS label in camel case.
func camel(label string) (camel string) {
	for word := range strings.SplitSeq(label, "-") {
		camel += upperFirst(word)
	}
	return camel
}

// upperFirst returns the word with a capital first letter.
func upperFirst(word string) string {
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

// pluralOf returns the plural that the code generators make (k8s.io/gengo/v2/namer).
func pluralOf(singular string) string {
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
