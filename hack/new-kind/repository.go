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
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"example.com/sample-controller/hack/naming"
)

// repository is what the tool reads of the repository that it changes.
type repository struct {
	root string
	// module is the path of its module, program the name of its program.
	module, program string
	// header is the licence header of Go files.
	header string
	groups []apiGroup
	// mainFile is the source of main.go.
	mainFile []byte
	// rules are the letters that the rules of contracts begin with.
	rules []string
}

// apiGroup is a group below pkg/apis.
type apiGroup struct {
	// dir is its directory below pkg/apis, name the name of the API group, goName the name in
	// methods of the clients.
	dir, name, goName string
	versions          []string
	kinds             []string
}

// readRepository reads the repository in that directory.
func readRepository(root string) (*repository, error) {
	root, err := filepath.Abs(root)
	if err != nil {
		return nil, err
	}
	repo := &repository{root: root}
	goMod, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, fmt.Errorf("run new-kind in the root of the repository: %w", err)
	}
	module := regexp.MustCompile(`(?m)^module (\S+)`).FindSubmatch(goMod)
	if module == nil {
		return nil, fmt.Errorf("%s/go.mod has no module line", root)
	}
	repo.module = string(module[1])
	header, err := os.ReadFile(filepath.Join(root, "hack/boilerplate.go.txt"))
	if err != nil {
		return nil, err
	}
	repo.header = strings.TrimSpace(string(header)) + "\n\n"
	if repo.mainFile, err = os.ReadFile(filepath.Join(root, "main.go")); err != nil {
		return nil, err
	}
	if repo.program, err = readConst(filepath.Join(root, "pkg/controller/owner.go"), "FieldManager"); err != nil {
		return nil, err
	}
	if repo.rules, err = readRules(root); err != nil {
		return nil, err
	}
	repo.groups, err = readGroups(root)
	return repo, err
}

// readConst returns the value of a string constant.
func readConst(file, name string) (string, error) {
	parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, 0)
	if err != nil {
		return "", err
	}
	var value string
	ast.Inspect(parsed, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if ok && spec.Names[0].Name == name && len(spec.Values) == 1 {
			if literal, ok := spec.Values[0].(*ast.BasicLit); ok {
				value, err = strconv.Unquote(literal.Value)
			}
		}
		return true
	})
	if value == "" || err != nil {
		return "", fmt.Errorf("%s declares no string constant %s", file, name)
	}
	return value, nil
}

// readRules returns the letters of the rules in docs.
func readRules(root string) ([]string, error) {
	docs, err := filepath.Glob(filepath.Join(root, "docs/*.md"))
	if err != nil {
		return nil, err
	}
	var letters []string
	for _, doc := range docs {
		text, err := os.ReadFile(doc)
		if err != nil {
			return nil, err
		}
		for _, rule := range regexp.MustCompile(`(?m)^\| ([A-Z])[0-9]+ \|`).FindAllSubmatch(text, -1) {
			letters = append(letters, string(rule[1]))
		}
	}
	return letters, nil
}

// readGroups returns the groups below pkg/apis.
func readGroups(root string) ([]apiGroup, error) {
	var groups []apiGroup
	docs, err := filepath.Glob(filepath.Join(root, "pkg/apis/*/*/doc.go"))
	if err != nil {
		return nil, err
	}
	for _, doc := range docs {
		dir := filepath.Base(filepath.Dir(filepath.Dir(doc)))
		i := slices.IndexFunc(groups, func(g apiGroup) bool { return g.dir == dir })
		if i < 0 {
			groups, i = append(groups, apiGroup{dir: dir}), len(groups)
		}
		if err := groups[i].readVersion(filepath.Dir(doc)); err != nil {
			return nil, err
		}
	}
	return groups, nil
}

// readVersion reads the package of one version of the group.
func (g *apiGroup) readVersion(dir string) error {
	files, err := filepath.Glob(filepath.Join(dir, "*.go"))
	if err != nil {
		return err
	}
	named := false
	for _, file := range files {
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ParseComments)
		if err != nil {
			return err
		}
		if name := tag(parsed.Doc, "groupName"); name != "" {
			named, g.name = true, name
			g.goName = naming.UpperFirst(strings.Split(name, ".")[0])
			if goName := tag(parsed.Doc, "groupGoName"); goName != "" {
				g.goName = goName
			}
		}
		for _, declaration := range parsed.Decls {
			if types, ok := declaration.(*ast.GenDecl); ok && types.Tok == token.TYPE && strings.Contains(types.Doc.Text()+commentText(types.Doc), "+genclient") {
				g.kinds = append(g.kinds, types.Specs[0].(*ast.TypeSpec).Name.Name)
			}
		}
	}
	if !named {
		// A package that only converts is no version of an API.
		return nil
	}
	g.versions = append(g.versions, filepath.Base(dir))
	return nil
}

// tag returns the value of a marker +name=value in a comment, "" if there is none.
func tag(comment *ast.CommentGroup, name string) string {
	match := regexp.MustCompile(`(?m)^// ?\+` + name + `=(\S+)$`).FindStringSubmatch(commentText(comment))
	if match == nil {
		return ""
	}
	return match[1]
}

// commentText returns the comment as it is written: Text drops markers.
func commentText(comment *ast.CommentGroup) string {
	if comment == nil {
		return ""
	}
	var lines []string
	for _, line := range comment.List {
		lines = append(lines, line.Text)
	}
	return strings.Join(lines, "\n")
}
