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
	"path"
	"regexp"
	"slices"
	"strings"
)

// scope is where names have to differ: a package, one of its declarations, or the fields and
// methods of one of its types.
type scope struct {
	// pkg is the folder and name of the package, "" stands for all packages.
	pkg string
	// of is the declaration or type, "" stands for all of the package.
	of      string
	members bool
}

// scopedNames are sets of names.
type scopedNames map[scope]map[string]bool

func (n scopedNames) add(s scope, name string) {
	if n[s] == nil {
		n[s] = map[string]bool{}
	}
	n[s][name] = true
}

// goFile is a Go file with its syntax.
type goFile struct {
	*file

	pkg    string
	set    *token.FileSet
	syntax *ast.File
}

func parseGo(files []*file) (all []*goFile, err error) {
	for _, f := range files {
		if !f.isGo() {
			continue
		}
		set := token.NewFileSet()
		syntax, err := parser.ParseFile(set, f.path, f.data, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return nil, err
		}
		all = append(all, &goFile{f, path.Dir(f.path) + " " + syntax.Name.Name, set, syntax})
	}
	return all, nil
}

// collision is a name that would become that of something else in its scope.
type collision struct {
	scope

	at                token.Position
	name, other, both string
}

// collisions returns the names that would become the same: of a package, of one declaration, or
// of the fields and methods of a type, also those of the types that it embeds.
func (r *renamer) collisions(files []*goFile) (all []collision) {
	embedding := map[scope][]scope{}
	for _, f := range files {
		f.eachEmbedded(func(outer, inner scope) { embedding[inner] = append(embedding[inner], outer) })
	}
	scopes, renamed := map[scope]map[string]string{}, map[string]string{}
	for _, f := range files {
		f.eachName(func(in scope, ident *ast.Ident) {
			if _, ok := renamed[ident.Name]; !ok {
				renamed[ident.Name] = r.word("", ident.Name, true)
			}
			name := renamed[ident.Name]
			for _, s := range append(embedding[in], in) {
				if scopes[s] == nil {
					scopes[s] = map[string]string{}
				}
				if other, ok := scopes[s][name]; ok && other != ident.Name {
					all = append(all, collision{s, f.set.Position(ident.Pos()), ident.Name, other, name})
				}
				scopes[s][name] = ident.Name
			}
		})
	}
	return all
}

// checkNames returns an error if two names would become the same.
func (r *renamer) checkNames(files []*file) error {
	parsed, err := parseGo(files)
	if err != nil {
		return err
	}
	for _, c := range r.collisions(parsed) {
		return fmt.Errorf("KIND: %s: %s and %s would both be named %s; give another kind", c.at, c.other, c.name, c.both)
	}
	return nil
}

// separate renames what would get the name of something else in its scope: foo becomes fooObject,
// of which the renamer makes clusterObject beside a variable cluster. Names of the API and of
// the generated clients stay.
func (r *renamer) separate(files []*file) error {
	parsed, err := parseGo(files)
	if err != nil {
		return err
	}
	global, apart := scopedNames{}, scopedNames{}
	for _, f := range parsed {
		f.eachName(func(s scope, ident *ast.Ident) {
			if s.of == "" {
				global.add(s, ident.Name)
			}
		})
	}
	for _, c := range r.collisions(parsed) {
		in, name := c.scope, c.name
		if name == c.both {
			name = c.other
		}
		if in.members || global[scope{pkg: in.pkg}][name] {
			in.of = ""
		}
		if in.of == "" && token.IsExported(name) {
			if strings.HasPrefix(in.pkg, "pkg/apis/") || name == r.from.kinds {
				continue
			}
			in.pkg = ""
		}
		apart.add(in, name)
	}
	for _, f := range parsed {
		r.separateIn(f, apart)
	}
	return nil
}

// separateIn renames the names of the scopes in one file.
func (r *renamer) separateIn(f *goFile, apart scopedNames) {
	type edit struct {
		at   int
		name string
	}
	var edits []edit
	for _, declaration := range f.syntax.Decls {
		of := f.scopesOf(declaration)
		ast.Inspect(declaration, func(node ast.Node) bool {
			if ident, ok := node.(*ast.Ident); ok && slices.ContainsFunc(of(ident), func(s scope) bool { return apart[s][ident.Name] }) {
				edits = append(edits, edit{f.set.Position(ident.Pos()).Offset, ident.Name})
			}
			return true
		})
	}
	for _, group := range f.syntax.Comments {
		for _, comment := range group.List {
			for _, at := range camelCase.FindAllStringIndex(comment.Text, -1) {
				if name := comment.Text[at[0]:at[1]]; apart[scope{}][name] || apart[scope{pkg: f.pkg}][name] {
					edits = append(edits, edit{f.set.Position(comment.Pos()).Offset + at[0], name})
				}
			}
		}
	}
	slices.SortFunc(edits, func(a, b edit) int { return b.at - a.at })
	for _, e := range edits {
		f.data = slices.Replace(f.data, e.at, e.at+len(e.name), []byte(r.objectName(e.name))...)
	}
}

// scopesOf returns a function that returns the scopes in which an identifier below the declaration
// may be declared.
func (f *goFile) scopesOf(declaration ast.Node) func(*ast.Ident) []scope {
	imports, isVariable, isQualified := map[string]bool{}, map[*ast.Ident]bool{}, map[*ast.Ident]bool{}
	for _, spec := range f.syntax.Imports {
		imports[importName(spec)] = true
	}
	variables(declaration, func(ident *ast.Ident) { isVariable[ident] = true })
	ast.Inspect(declaration, func(node ast.Node) bool {
		if selector, ok := node.(*ast.SelectorExpr); ok {
			of, ok := selector.X.(*ast.Ident)
			isQualified[selector.Sel] = ok && imports[of.Name]
		}
		return true
	})
	return func(ident *ast.Ident) []scope {
		switch {
		case isVariable[ident]:
			return []scope{f.scopeOf(declaration), {pkg: f.pkg}, {}}
		case isQualified[ident]:
			return []scope{{}}
		}
		return []scope{{pkg: f.pkg, members: true}, {members: true}}
	}
}

// separatePaths calls the files of the kind foo_object.go, also in documents, if one of them would
// become a file that is there already.
func (r *renamer) separatePaths(files []*file) {
	taken := map[string]bool{}
	for _, f := range files {
		taken[f.path] = true
	}
	if !slices.ContainsFunc(files, func(f *file) bool {
		renamed := r.text(f.path, f.path)
		return renamed != f.path && taken[renamed]
	}) {
		return
	}
	kind := strings.ToLower(r.from.kind)
	own := regexp.MustCompile(`\b` + kind + `((?:_test)?\.go)\b`)
	for _, f := range files {
		f.path = own.ReplaceAllString(f.path, kind+"_object$1")
		f.data = own.ReplaceAll(f.data, []byte(kind+"_object$1"))
	}
}

// camelCase matches names that are no words of a sentence.
var camelCase = regexp.MustCompile(`\b[A-Za-z][a-z0-9]*[A-Z][A-Za-z0-9]*\b`)

// objectName returns the name with Object behind the kind, as newFooObject for newFoo.
func (r *renamer) objectName(name string) string {
	for i := range name {
		if _, length := r.kindAt(name, i); length > 0 {
			end := i + len(r.from.kind)
			return name[:end] + "Object" + name[end:]
		}
	}
	return name
}

func (f *goFile) scopeOf(node ast.Node) scope {
	return scope{pkg: f.pkg, of: fmt.Sprint(f.path, node.Pos())}
}

// eachName calls visit for the names in the file, with the scope in which they have to differ.
func (f *goFile) eachName(visit func(scope, *ast.Ident)) {
	for _, declaration := range f.syntax.Decls {
		variables(declaration, func(ident *ast.Ident) { visit(f.scopeOf(declaration), ident) })
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			s := scope{pkg: f.pkg}
			if declaration.Recv != nil {
				s.of, s.members = typeName(declaration.Recv.List[0].Type).Name, true
			}
			visit(s, declaration.Name)
		case *ast.GenDecl:
			for _, spec := range declaration.Specs {
				f.eachSpecName(spec, visit)
			}
		}
	}
	ast.Inspect(f.syntax, func(node ast.Node) bool {
		if structure, ok := node.(*ast.StructType); ok {
			s := f.scopeOf(node)
			s.members = true
			eachField(s, structure, visit)
		}
		return true
	})
}

// eachEmbedded calls visit for the scopes of types that embed another one of their package.
func (f *goFile) eachEmbedded(visit func(outer, inner scope)) {
	ast.Inspect(f.syntax, func(node ast.Node) bool {
		spec, ok := node.(*ast.TypeSpec)
		if !ok {
			return true
		}
		for _, field := range fieldsOf(spec.Type) {
			if _, ok := field.Type.(*ast.SelectorExpr); len(field.Names) == 0 && !ok && typeName(field.Type) != nil {
				visit(scope{f.pkg, spec.Name.Name, true}, scope{f.pkg, typeName(field.Type).Name, true})
			}
		}
		return true
	})
}

func (f *goFile) eachSpecName(spec ast.Spec, visit func(scope, *ast.Ident)) {
	s := scope{pkg: f.pkg}
	switch spec := spec.(type) {
	case *ast.ImportSpec:
		// Files may use an alias for different packages.
		if spec.Name == nil {
			visit(s, &ast.Ident{NamePos: spec.Pos(), Name: importName(spec)})
		}
	case *ast.TypeSpec:
		visit(s, spec.Name)
		eachField(scope{f.pkg, spec.Name.Name, true}, spec.Type, visit)
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			visit(s, name)
		}
	}
}

// eachField calls visit for the fields of a struct and the methods of an interface.
func eachField(s scope, of ast.Expr, visit func(scope, *ast.Ident)) {
	for _, field := range fieldsOf(of) {
		names := field.Names
		if embedded := typeName(field.Type); len(names) == 0 && embedded != nil {
			names = []*ast.Ident{embedded}
		}
		for _, name := range names {
			visit(s, name)
		}
	}
}

func fieldsOf(of ast.Node) []*ast.Field {
	switch of := of.(type) {
	case *ast.StructType:
		return of.Fields.List
	case *ast.InterfaceType:
		return of.Methods.List
	}
	return nil
}

// typeName returns the name of a type without its package, nil for one that has none.
func typeName(of ast.Expr) *ast.Ident {
	switch of := of.(type) {
	case *ast.Ident:
		return of
	case *ast.SelectorExpr:
		return of.Sel
	case *ast.StarExpr:
		return typeName(of.X)
	case *ast.IndexExpr:
		return typeName(of.X)
	case *ast.IndexListExpr:
		return typeName(of.X)
	}
	return nil
}

// variables calls visit for the identifiers below node that may name variables, functions, types
// and packages, which are not the fields and methods of something.
func variables(node ast.Node, visit func(*ast.Ident)) {
	ast.Inspect(node, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.FuncDecl:
			if node.Recv != nil {
				variables(node.Recv, visit)
				variables(node.Type, visit)
				variables(node.Body, visit)
				return false
			}
		case *ast.SelectorExpr:
			variables(node.X, visit)
			return false
		case *ast.CompositeLit:
			mapKeys(node, visit)
		case *ast.KeyValueExpr:
			if _, ok := node.Key.(*ast.Ident); ok {
				variables(node.Value, visit)
				return false
			}
		case *ast.StructType, *ast.InterfaceType:
			for _, field := range fieldsOf(node) {
				variables(field.Type, visit)
			}
			return false
		case *ast.Ident:
			visit(node)
		}
		return true
	})
}

// mapKeys calls visit for the keys of a map that are identifiers. Those of a struct are fields.
func mapKeys(node *ast.CompositeLit, visit func(*ast.Ident)) {
	if _, ok := node.Type.(*ast.MapType); !ok {
		return
	}
	for _, element := range node.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok {
				visit(key)
			}
		}
	}
}
