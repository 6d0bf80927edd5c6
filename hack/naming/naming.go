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

// Package naming has the rules by which names and words follow from the name of a kind.
package naming

import (
	"go/build"
	"io"
	"regexp"
	"strings"
	"unicode"
)

// Plural returns the plural that the code generators make (k8s.io/gengo/v2/namer).
func Plural(singular string) string {
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

// Article returns the indefinite article of the word: an HTTPRoute, a Unit.
func Article(word string) string {
	vowel := strings.ContainsRune("AEIO", rune(word[0])) || strings.HasPrefix(word, "U") && !strings.HasPrefix(word, "Us") && !strings.HasPrefix(word, "Uni")
	if len(word) > 1 && !unicode.IsLower(rune(word[1])) {
		// It is spelled: the names of these letters begin with a vowel.
		vowel = strings.ContainsRune("AEFHILMNORSX", rune(word[0]))
	}
	if vowel {
		return "an"
	}
	return "a"
}

// UpperFirst returns the word with a capital first letter.
func UpperFirst(word string) string {
	return strings.ToUpper(word[:1]) + word[1:]
}

// LowerCamel returns the name with a lower case first word: httpRoute for HTTPRoute.
func LowerCamel(name string) string {
	runes := []rune(name)
	for i := range runes {
		if !unicode.IsUpper(runes[i]) || i > 0 && i+1 < len(runes) && unicode.IsLower(runes[i+1]) {
			break
		}
		runes[i] = unicode.ToLower(runes[i])
	}
	return string(runes)
}

// IsBuilt reports whether Go builds a file of that name on every system, and not for tests only.
func IsBuilt(file string) bool {
	none := build.Context{GOOS: "none", GOARCH: "none", OpenFile: func(string) (io.ReadCloser, error) {
		return io.NopCloser(strings.NewReader("package x\n")), nil
	}}
	built, err := none.MatchFile("", file)
	return built && err == nil && !strings.HasSuffix(file, "_test.go")
}

// stableVersion matches the import of a package such as pkg/apis/widgets/v1 without a name.
var stableVersion = regexp.MustCompile(`(?m)^\t(".*/pkg/apis/.*/(v[0-9]+)")$`)

// Imports returns the Go source with a name for each import of a stable version of an API, as
// goimports wants it, which takes v1 for the version of a module.
func Imports(source []byte) []byte {
	return stableVersion.ReplaceAll(source, []byte("\t$2 $1"))
}
