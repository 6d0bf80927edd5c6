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
)

// checkNames returns an error if two names would become the same: of a package, of one
// declaration, or of the fields and methods of a type.
func (r *renamer) checkNames(files []*file) error {
	scopes, renamed := map[string]map[string]string{}, map[string]string{}
	for _, f := range files {
		if !f.isGo() {
			continue
		}
		set := token.NewFileSet()
		parsed, err := parser.ParseFile(set, f.path, f.data, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		eachName(f.path, parsed, func(scope string, ident *ast.Ident) {
			if scopes[scope] == nil {
				scopes[scope] = map[string]string{}
			}
			if _, ok := renamed[ident.Name]; !ok {
				renamed[ident.Name] = r.word("", ident.Name, true)
			}
			name := renamed[ident.Name]
			if other, ok := scopes[scope][name]; ok && other != ident.Name && err == nil {
				err = fmt.Errorf("KIND: %s: %s and %s would both be named %s; give another kind", set.Position(ident.Pos()), other, ident.Name, name)
			}
			scopes[scope][name] = ident.Name
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// eachName calls f for the names in a file, with the scope in which they have to differ.
func eachName(file string, parsed *ast.File, f func(scope string, ident *ast.Ident)) {
	pkg := path.Dir(file) + " " + parsed.Name.Name
	for _, declaration := range parsed.Decls {
		variables(declaration, func(ident *ast.Ident) { f(fmt.Sprint(file, declaration.Pos()), ident) })
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			scope := pkg
			if declaration.Recv != nil {
				scope += "." + typeName(declaration.Recv.List[0].Type).Name
			}
			f(scope, declaration.Name)
		case *ast.GenDecl:
			for _, spec := range declaration.Specs {
				eachSpecName(pkg, spec, f)
			}
		}
	}
	ast.Inspect(parsed, func(node ast.Node) bool {
		if structure, ok := node.(*ast.StructType); ok {
			eachField(fmt.Sprint(file, node.Pos(), "struct"), structure, f)
		}
		return true
	})
}

func eachSpecName(pkg string, spec ast.Spec, f func(scope string, ident *ast.Ident)) {
	switch spec := spec.(type) {
	case *ast.ImportSpec:
		// Files may use an alias for different packages.
		if spec.Name == nil {
			f(pkg, &ast.Ident{NamePos: spec.Pos(), Name: importName(spec)})
		}
	case *ast.TypeSpec:
		f(pkg, spec.Name)
		eachField(pkg+"."+spec.Name.Name, spec.Type, f)
	case *ast.ValueSpec:
		for _, name := range spec.Names {
			f(pkg, name)
		}
	}
}

// eachField calls f for the fields of a struct and the methods of an interface.
func eachField(scope string, of ast.Expr, f func(scope string, ident *ast.Ident)) {
	var fields []*ast.Field
	switch of := of.(type) {
	case *ast.StructType:
		fields = of.Fields.List
	case *ast.InterfaceType:
		fields = of.Methods.List
	}
	for _, field := range fields {
		names := field.Names
		if embedded := typeName(field.Type); len(names) == 0 && embedded != nil {
			names = []*ast.Ident{embedded}
		}
		for _, name := range names {
			f(scope, name)
		}
	}
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

// variables calls f for the identifiers below node that may name variables, functions, types
// and packages, which are not the fields and methods of something.
func variables(node ast.Node, f func(*ast.Ident)) {
	ast.Inspect(node, func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.SelectorExpr:
			variables(node.X, f)
			return false
		case *ast.KeyValueExpr:
			if _, ok := node.Key.(*ast.Ident); ok {
				variables(node.Value, f)
				return false
			}
		case *ast.StructType:
			return false
		case *ast.Ident:
			f(node)
		}
		return true
	})
}
