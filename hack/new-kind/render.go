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
	"embed"
	"fmt"
	"go/ast"
	"go/format"
	"go/parser"
	"go/scanner"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"text/template"

	"example.com/sample-controller/hack/naming"
)

//go:embed templates
var templates embed.FS

// outputs returns the files to write and the template of each.
func (k *kind) outputs() map[string]string {
	controller, api := "pkg/controller/"+k.Singular+"/", "pkg/apis/"+k.APIDir+"/"+k.Version+"/"
	files := map[string]string{
		// Without _kind the file of a Wasm or a Windows would be built for that platform alone.
		"test/e2e/walkthrough_" + k.Singular + "_kind_test.go": "walkthrough_test.go",

		controller + "controller.go":                 "controller.go",
		controller + "controller_test.go":            "controller_test.go",
		controller + "descriptor.go":                 "descriptor.go",
		controller + "fixture_test.go":               "fixture_test.go",
		controller + "status.go":                     "status.go",
		controller + k.Singular + ".go":              "decisions.go",
		controller + k.Singular + "_test.go":         "decisions_test.go",
		"artifacts/examples/" + k.Singular + ".yaml": "example.yaml",
		"docs/" + k.Singular + ".md":                 "contract.md",
		controller + "testdata/suites.yaml":          "suites.yaml",
	}
	if k.NewVersion {
		files[api+"doc.go"], files[api+"types.go"] = "doc.go", "types.go"
	} else {
		files[api+k.Singular+"_types.go"] = "types.go"
	}
	if k.External {
		for _, file := range []string{"external.go", "external_test.go", "service.go", "service_test.go"} {
			files[controller+file] = file
		}
	}
	return files
}

// render returns the new files by their path.
func render(k *kind) (map[string][]byte, error) {
	files, err := executeTemplates(k)
	if err != nil {
		return nil, err
	}
	for file, content := range files {
		if path.Ext(file) != ".go" {
			continue
		}
		if files[file], err = tidy(k, content); err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
	}
	return files, nil
}

// executeTemplates returns what the templates make of the kind, by the path of the file.
func executeTemplates(k *kind) (map[string][]byte, error) {
	root := template.New("").Delims("[[", "]]").Funcs(template.FuncMap{
		"a": func(word string) string { return naming.Article(word) + " " + word },
		"A": func(word string) string { return naming.UpperFirst(naming.Article(word)) + " " + word },
	})
	// A definition for the owned kind replaces that of common.tmpl.
	parsed, err := root.ParseFS(templates, "templates/*.tmpl", "templates/owned/common.tmpl", "templates/owned/"+k.Owned.Kind+".tmpl")
	if err != nil {
		return nil, err
	}
	files := map[string][]byte{}
	for file, name := range k.outputs() {
		var text bytes.Buffer
		if err := parsed.ExecuteTemplate(&text, name+".tmpl", k); err != nil {
			return nil, err
		}
		files[file] = text.Bytes()
	}
	return files, nil
}

// templateNames returns the names that the Go code of all templates imports, declares or uses
// beside those of the kind.
func templateNames() (map[string]bool, error) {
	names := map[string]bool{}
	for _, dependent := range ownedKinds() {
		// No kind has an underscore in its name.
		files, err := executeTemplates(&kind{Kind: "Kind_", Var: "var_", VarPlural: "vars_", Owned: dependent, External: true})
		if err != nil {
			return nil, err
		}
		for name, content := range files {
			if path.Ext(name) == ".go" {
				addNames(names, content)
			}
		}
	}
	return names, nil
}

// addNames adds the identifiers in the source.
func addNames(names map[string]bool, source []byte) {
	var s scanner.Scanner
	s.Init(token.NewFileSet().AddFile("", -1, len(source)), source, nil, 0)
	for {
		switch _, kind, text := s.Scan(); kind {
		case token.EOF:
			return
		case token.IDENT:
			names[text] = true
		}
	}
}

// tidy adds the licence header below the build tags, removes imports that are not used, and
// formats the source.
func tidy(k *kind, source []byte) ([]byte, error) {
	header := k.Header
	if tags, rest, found := bytes.Cut(source, []byte("\n\n")); found && bytes.HasPrefix(tags, []byte("//go:build")) {
		header, source = string(tags)+"\n\n"+header, rest
	}
	source = append([]byte(header), source...)
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "", source, 0)
	if err != nil {
		return nil, fmt.Errorf("%w in\n%s", err, source)
	}
	used := map[string]bool{}
	ast.Inspect(file, func(n ast.Node) bool {
		if selector, ok := n.(*ast.SelectorExpr); ok {
			if name, ok := selector.X.(*ast.Ident); ok {
				used[name.Name] = true
			}
		}
		return true
	})
	var edits []edit
	seen := map[string]bool{}
	for _, spec := range file.Imports {
		if !used[importName(spec)] || seen[importName(spec)] {
			// The whole line: it is one of a list of imports.
			from, to := set.Position(spec.Pos()).Offset, set.Position(spec.End()).Offset
			edits = append(edits, edit{from: bytes.LastIndexByte(source[:from], '\n'), to: to})
		}
		seen[importName(spec)] = true
	}
	// A group of imports of which none is left would leave two empty lines.
	source = regexp.MustCompile(`\n(\s*\n)+`).ReplaceAll(applyEdits(source, edits), []byte("\n\n"))
	source = regexp.MustCompile(`import \(\s*\n`).ReplaceAll(source, []byte("import (\n"))
	return format.Source(naming.Imports(source))
}

var majorVersion = regexp.MustCompile(`^v[0-9]+$`)

// importName returns the name by which a file uses an import.
func importName(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	full, err := strconv.Unquote(spec.Path.Value)
	if err != nil {
		return ""
	}
	if base := path.Base(full); !majorVersion.MatchString(base) || strings.Contains(full, "/pkg/apis/") {
		return base
	}
	return path.Base(path.Dir(full))
}

// edit replaces the bytes from one offset to another.
type edit struct {
	from, to int
	text     string
}

// applyEdits returns the source with all edits, which do not overlap.
func applyEdits(source []byte, edits []edit) []byte {
	slices.SortFunc(edits, func(a, b edit) int { return b.from - a.from })
	for _, e := range edits {
		source = slices.Concat(source[:e.from], []byte(e.text), source[e.to:])
	}
	return source
}

// register returns main.go with the kind's descriptor in the list of controllers.
func register(repo *repository, k *kind) ([]byte, error) {
	set := token.NewFileSet()
	file, err := parser.ParseFile(set, "main.go", repo.mainFile, parser.ParseComments)
	if err != nil {
		return nil, err
	}
	name := k.Singular
	if slices.ContainsFunc(file.Imports, func(spec *ast.ImportSpec) bool { return importName(spec) == name }) || file.Scope.Lookup(name) != nil {
		name += "controller"
	}
	edits := []edit{importEdit(set, file, k, name)}
	listed := false
	ast.Inspect(file, func(n ast.Node) bool {
		field, ok := n.(*ast.KeyValueExpr)
		if !ok {
			return true
		}
		switch value := field.Value.(type) {
		case *ast.CompositeLit:
			if isIdent(field.Key, "Controllers") {
				edits, listed = append(edits, elementEdit(set, value, name+".NewDescriptor()")), true
			}
		case *ast.BasicLit:
			if isIdent(field.Key, "Description") && strings.HasSuffix(value.Value, `."`) {
				end := set.Position(value.End()).Offset
				edits = append(edits, edit{end - 2, end, fmt.Sprintf(`, and keeps a %s for each %s."`, k.Owned.Kind, k.Kind)})
			}
		}
		return true
	})
	if !listed {
		return nil, fmt.Errorf("main.go has no field Controllers with a list of descriptors; add one as in pkg/app.Program")
	}
	return format.Source(applyEdits(repo.mainFile, edits))
}

// importEdit imports the kind's controller under that name, after the last import.
func importEdit(set *token.FileSet, file *ast.File, k *kind, name string) edit {
	text := fmt.Sprintf("%q", k.Module+"/pkg/controller/"+k.Singular)
	if name != k.Singular {
		text = name + " " + text
	}
	return insertion(set, file.Imports[len(file.Imports)-1].End(), "\n\t"+text)
}

// insertion inserts the text at that position.
func insertion(set *token.FileSet, at token.Pos, text string) edit {
	offset := set.Position(at).Offset
	return edit{offset, offset, text}
}

// elementEdit appends the element to the list.
func elementEdit(set *token.FileSet, list *ast.CompositeLit, element string) edit {
	if len(list.Elts) == 0 {
		return insertion(set, list.Rbrace, element)
	}
	return insertion(set, list.Elts[len(list.Elts)-1].End(), ", "+element)
}

func isIdent(expression ast.Expr, name string) bool {
	ident, ok := expression.(*ast.Ident)
	return ok && ident.Name == name
}
