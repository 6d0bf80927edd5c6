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

package naming

import (
	"regexp"
	"slices"
	"strings"
	"unicode"
)

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
	end, isOurs := 0, !r.isOther(path) || strings.Contains(text, "\n\t\""+r.from.Module+"/pkg/apis/"+r.from.GroupPackage+"/"+r.from.Version+"\"\n")
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
		return match[1] + strings.TrimPrefix(articleOf(r.to.Kind), "a") + match[2] + match[3]
	})
}

// article matches the indefinite article, and the word behind it.
var article = regexp.MustCompile("\\b([Aa])((?: |-|\n|\n\\s*(?://|#) )`?)([A-Za-z]+)")

// beforeVersion matches what tells the group of a version: a/v1, A().V1() and AV1.
var beforeVersion = regexp.MustCompile(`([\w.-]*)/$|(\w+)\(\)\.$|(\w+)$`)

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

// version returns the new form of a version, unless it is that of another group. isOurs says whose it is in
// this file if the text before it does not tell.
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
