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
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
)

// countIdentifiers adds how often each identifier occurs below the node.
func countIdentifiers(node ast.Node, counts map[string]int) {
	ast.Inspect(node, func(node ast.Node) bool {
		if ident, ok := node.(*ast.Ident); ok {
			counts[ident.Name]++
		}
		return true
	})
}

// pruneUnused removes from the files of a package what was used before and is not any more,
// until nothing is left to remove.
func pruneUnused(files []*file, before map[string]int) error {
	for changed := true; changed; {
		changed = false
		now := map[string]int{}
		for _, f := range files {
			parsed, err := parser.ParseFile(token.NewFileSet(), f.path, f.data, parser.SkipObjectResolution)
			if err != nil {
				return err
			}
			countIdentifiers(parsed, now)
		}
		for _, f := range files {
			p, err := newPruner(f)
			if err != nil {
				return err
			}
			p.unusedImports(before)
			p.unusedDeclarations(before, now)
			p.unusedVariables()
			changed = changed || len(p.cuts) > 0
			if err := p.apply(); err != nil {
				return err
			}
		}
	}
	return nil
}

// unusedImports removes the imports whose name the package used before, and this file does
// not use now.
func (p *pruner) unusedImports(before map[string]int) {
	used := map[string]int{}
	for _, declaration := range p.file.Decls {
		if general, ok := declaration.(*ast.GenDecl); !ok || general.Tok != token.IMPORT {
			countIdentifiers(declaration, used)
		}
	}
	p.names = func(node ast.Node) bool {
		spec, ok := node.(*ast.ImportSpec)
		if !ok || spec.Name != nil && (spec.Name.Name == "_" || spec.Name.Name == ".") {
			return false
		}
		name := importName(spec)
		return used[name] == 0 && before[name] > 0
	}
	for _, declaration := range p.file.Decls {
		if general, ok := declaration.(*ast.GenDecl); ok && general.Tok == token.IMPORT {
			p.specs(general, general)
		}
	}
}

// unusedDeclarations removes functions, methods, types, constants and variables that are not
// exported, which the package used before and does not use now.
func (p *pruner) unusedDeclarations(before, now map[string]int) {
	unused := func(name *ast.Ident) bool {
		return !name.IsExported() && name.Name != "main" && name.Name != "init" && name.Name != "_" && now[name.Name] == 1 && before[name.Name] > 1
	}
	for _, declaration := range p.file.Decls {
		switch declaration := declaration.(type) {
		case *ast.FuncDecl:
			if unused(declaration.Name) {
				p.cutLines(declaration)
			}
		case *ast.GenDecl:
			gone := pruneEach(declaration.Specs, func(spec ast.Spec) bool {
				switch spec := spec.(type) {
				case *ast.TypeSpec:
					return unused(spec.Name)
				case *ast.ValueSpec:
					return !slices.ContainsFunc(spec.Names, func(name *ast.Ident) bool { return !unused(name) })
				}
				return false
			})
			if len(gone) > 0 && len(gone) == len(declaration.Specs) {
				p.cutLines(declaration)
				continue
			}
			for _, spec := range gone {
				p.cutLines(spec)
			}
		}
	}
}

// unusedVariables removes local variables that nothing reads.
func (p *pruner) unusedVariables() {
	for _, declaration := range p.file.Decls {
		function, ok := declaration.(*ast.FuncDecl)
		if !ok || function.Body == nil {
			continue
		}
		counts := map[string]int{}
		countIdentifiers(function, counts)
		ast.Inspect(function.Body, func(node ast.Node) bool {
			if assign, ok := node.(*ast.AssignStmt); ok && assign.Tok == token.DEFINE {
				p.unusedPairs(assign, counts)
			}
			return true
		})
	}
}

func (p *pruner) unusedPairs(assign *ast.AssignStmt, counts map[string]int) {
	var left, right []ast.Expr
	for i, variable := range assign.Lhs {
		if name, ok := variable.(*ast.Ident); ok && name.Name != "_" && counts[name.Name] == 1 {
			left = append(left, variable)
			if len(assign.Rhs) == len(assign.Lhs) {
				right = append(right, assign.Rhs[i])
			}
		}
	}
	switch {
	case len(left) == 0:
	case len(left) == len(assign.Lhs):
		p.cutLines(assign)
	case len(right) == len(left):
		p.cutElements(assign.Lhs, left)
		p.cutElements(assign.Rhs, right)
	}
}
