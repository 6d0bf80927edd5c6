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
	"bytes"
	"fmt"
	"go/format"
	"regexp"
	"slices"
	"strings"

	"example.com/sample-controller/hack/naming"
)

// renamer replaces the names of a repository by those of its fork. It replaces words, not
// parts of words, in one pass: what it has written is not replaced again.
type renamer struct {
	from, to  names
	copyright string
	tokens    *regexp.Regexp
	// article matches the indefinite article with the kind behind it.
	article *regexp.Regexp
	// command matches the kind in commands of kubectl, nil if that takes its name for this kind.
	command *regexp.Regexp
	// program maps the forms of the program's name.
	program map[string]string
	// kept matches the paths of components with versions of their own.
	kept func(path string) bool
}

// attribution matches the line of a licence header that names the copyright holders.
var attribution = regexp.MustCompile(`(?m)^(.*)Copyright .* Authors\.$`)

func newRenamer(o *options) *renamer {
	from := o.repository.names
	forms := func(program string) []string {
		snake := strings.ReplaceAll(program, "-", "_")
		return []string{program, snake, strings.ToUpper(snake), camel(program)}
	}
	r := &renamer{from: from, to: o.names, copyright: o.copyright, program: map[string]string{}}
	r.kept = func(path string) bool {
		return slices.ContainsFunc(o.repository.components, func(c component) bool { return c.kind != "" && c.owns(path) })
	}
	if isBuiltIn(o.kind, o.plural) {
		r.command = regexp.MustCompile(`((?i:kubectl)[("}]* ?(?:-\S+ )*(?:annotate|delete|describe|edit|explain|get|label|patch|scale|wait) (?:-\S+ )*|--resource=)` +
			strings.ToLower(from.kind) + `s?\b(\.v[0-9]|\.` + from.group + `)?`)
	}
	alternatives := []string{regexp.QuoteMeta(from.module), regexp.QuoteMeta(from.group)}
	for i, form := range forms(from.program) {
		r.program[form] = forms(o.program)[i]
		alternatives = append(alternatives, regexp.QuoteMeta(form))
	}
	// The program's name in lower case also begins the anchors of headings.
	squashed := strings.ReplaceAll(from.program, "-", "")
	r.program[squashed] = strings.ReplaceAll(o.program, "-", "")
	// The indefinite article of the kind depends on its name.
	article := "([Aa])((?: |-|\n|\n\\s*(?://|#) )`?)((?i:" + from.kind + ")[A-Za-z0-9]*)"
	r.article = regexp.MustCompile("^" + article + "$")
	alternatives = append(alternatives, squashed+"[a-z]+", article, from.groupPackage, camel(from.groupPackage), "[A-Za-z0-9]+")
	r.tokens = regexp.MustCompile(strings.Join(alternatives, "|"))
	return r
}

// text returns the text of the file with the new names.
func (r *renamer) text(path, text string) string {
	own, other := r.importsVersion(text)
	keepVersion := other || r.kept(path) && !own
	if r.command != nil {
		text = r.command.ReplaceAllStringFunc(text, r.qualify)
	}
	var renamed strings.Builder
	end := 0
	for _, at := range r.tokens.FindAllStringIndex(text, -1) {
		renamed.WriteString(text[end:at[0]])
		renamed.WriteString(r.token(text[:at[0]], text[at[0]:at[1]], keepVersion))
		end = at[1]
	}
	return renamed.String() + text[end:]
}

// qualify adds the group to the resource in a command of kubectl that names none.
func (r *renamer) qualify(command string) string {
	if match := r.command.FindStringSubmatch(command); match[2] == "" {
		return match[1] + r.from.plural + "." + r.from.group
	}
	return command
}

// importsVersion reports whether a Go file imports a package that has the name of our version,
// of our group or of another one.
func (r *renamer) importsVersion(text string) (own, other bool) {
	for _, match := range regexp.MustCompile(`(?m)^\t"[^"]*/([^/"]+)/`+r.from.version+`"$`).FindAllStringSubmatch(text, -1) {
		own = own || match[1] == r.from.groupPackage
		other = other || match[1] != r.from.groupPackage
	}
	return own, other
}

// domainBefore matches the character before a path that is only part of another one.
var domainBefore = regexp.MustCompile(`[\w.-]$`)

// token returns the new form of a token, given the text before it.
func (r *renamer) token(before, token string, keepVersion bool) string {
	if match := r.article.FindStringSubmatch(token); match != nil {
		article, word := match[1], r.token(before+match[1]+match[2], match[3], keepVersion)
		isPlural := strings.HasPrefix(strings.ToLower(match[3]), strings.ToLower(r.from.kinds))
		if word != match[3] && !isPlural && naming.Article(r.to.kind) == "an" {
			article += "n"
		}
		return article + match[2] + word
	}
	squashed := strings.ReplaceAll(r.from.program, "-", "")
	switch program, ok := r.program[token]; {
	case token == r.from.module && domainBefore.MatchString(before[max(0, len(before)-1):]):
		// The name of an image in some registry.
		return strings.TrimSuffix(token, r.from.program) + r.to.program
	case token == r.from.module:
		return r.to.module
	case token == r.from.group:
		return r.to.group
	case token == r.from.groupPackage:
		return r.to.groupPackage
	case token == camel(r.from.groupPackage):
		return camel(r.to.groupPackage)
	case ok:
		return program
	case strings.HasPrefix(token, squashed):
		return r.program[squashed] + strings.ReplaceAll(strings.TrimPrefix(token, squashed), strings.ToLower(r.from.kinds), r.to.plural)
	}
	return r.word(before, token, keepVersion)
}

// word replaces the kind and its versions in a word.
func (r *renamer) word(before, word string, keepVersion bool) string {
	var renamed strings.Builder
	for i := 0; i < len(word); {
		if form, length := r.kindAt(word, i); length > 0 {
			renamed.WriteString(form)
			i += length
			continue
		}
		if form, length := r.versionAt(before, word, i, keepVersion); length > 0 {
			renamed.WriteString(form)
			i += length
			continue
		}
		renamed.WriteByte(word[i])
		i++
	}
	return renamed.String()
}

// aliasSuffix matches what follows the kind in the names of imports.
var aliasSuffix = regexp.MustCompile(`^(informers|listers|fake|scheme|client)?(v[0-9]+((alpha|beta)[0-9]+)?)?$`)

// kindAt returns the new form of the kind that begins at word[i:], and the length of the old
// one, 0 if there is none.
func (r *renamer) kindAt(word string, i int) (form string, length int) {
	isLower := func(s string) bool { return s != "" && s[0] >= 'a' && s[0] <= 'z' }
	isUpper := func(s string) bool { return s != "" && s[0] >= 'A' && s[0] <= 'Z' }
	for _, of := range [][2]string{{r.from.kinds, r.to.kinds}, {r.from.kind, r.to.kind}} {
		from, to := of[0], of[1]
		if rest, ok := strings.CutPrefix(word[i:], from); ok && !isLower(rest) {
			return to, len(from)
		}
		if i > 0 {
			continue
		}
		switch rest, ok := strings.CutPrefix(word, strings.ToLower(from)); {
		case ok && isUpper(rest):
			return naming.LowerCamel(to), len(from)
		case ok && (!isLower(rest) || aliasSuffix.MatchString(rest)):
			return strings.ToLower(to), len(from)
		}
		if rest, ok := strings.CutPrefix(word, strings.ToUpper(from)); ok && !isUpper(rest) && !isLower(rest) {
			return strings.ToUpper(to), len(from)
		}
	}
	return "", 0
}

// versionAt does the same for a version, unless it is that of another group.
func (r *renamer) versionAt(before, word string, i int, keepVersion bool) (form string, length int) {
	for _, of := range [][2]string{{r.from.version, r.to.version}, {r.from.nextVersion, r.to.nextVersion}} {
		title := func(s string) string { return strings.ToUpper(s[:1]) + s[1:] }
		for _, pair := range [][2]string{of, {title(of[0]), title(of[1])}} {
			if rest, ok := strings.CutPrefix(word[i:], pair[0]); !ok || rest != "" {
				continue
			}
			if r.isOurs(before, word[:i], keepVersion) {
				return pair[1], len(pair[0])
			}
			return pair[0], len(pair[0])
		}
	}
	return "", 0
}

// beforeVersion matches what tells the group of a version: a/v1, A().V1() and AV1.
var beforeVersion = regexp.MustCompile(`([\w.-]*)/$|(\w+)\(\)\.$`)

// isOurs reports whether a version is ours, given the text and the part of the word before it.
func (r *renamer) isOurs(before, prefix string, keepVersion bool) bool {
	if prefix != "" {
		form, length := r.kindAt(prefix, 0)
		return length > 0 && form != "" || prefix == "use" || prefix == "client"
	}
	tail := before[max(0, len(before)-80):]
	if match := beforeVersion.FindStringSubmatch(tail); match != nil {
		group := match[1] + match[2]
		return group == "" || group == r.from.group || strings.HasSuffix(group, "."+r.from.group) || group == r.from.groupPackage || group == camel(r.from.groupPackage)
	}
	if strings.HasSuffix(tail, camel(r.from.groupPackage)) {
		return true
	}
	return !keepVersion
}

// file renames a file and its content. Content that is not text stays.
func (r *renamer) file(f *file) error {
	original := f.path
	f.path = r.text(original, original)
	if strings.HasSuffix(original, ".sum") || bytes.IndexByte(f.data, 0) >= 0 {
		return nil
	}
	content := string(f.data)
	lines := strings.SplitAfter(content, "\n")
	for i, line := range lines {
		if match := attribution.FindStringSubmatch(strings.TrimSuffix(line, "\n")); match != nil && strings.Contains(line, r.from.program) {
			lines[i] = "\x00" + line + match[1] + "Copyright " + r.copyright + ".\n"
		}
	}
	var renamed strings.Builder
	for i, block := range strings.Split(strings.Join(lines, ""), "\x00") {
		if i == 0 {
			renamed.WriteString(r.text(original, block))
			continue
		}
		ours, rest, _ := strings.Cut(block, "\n")
		theirs, rest, _ := strings.Cut(rest, "\n")
		renamed.WriteString(ours + "\n" + theirs + "\n" + r.text(original, rest))
	}
	f.data = []byte(renamed.String())
	if !f.isGo() {
		return nil
	}
	formatted, err := format.Source(f.data)
	if err != nil {
		return fmt.Errorf("formatting %s: %w", f.path, err)
	}
	f.data = naming.Imports(blankEnds.ReplaceAll(formatted, []byte("\n$1")))
	return nil
}

// blankEnds matches what dropping the last statement of a block leaves.
var blankEnds = regexp.MustCompile(`\n\n(\t*}\n)`)
