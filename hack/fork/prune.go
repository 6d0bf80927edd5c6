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
	"go/ast"
	"go/format"
	"go/parser"
	"go/token"
	"path"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// prune removes from the Go files what names a dropped component: imports, declarations,
// statements, fields, cases, and elements of lists. Then it removes what only that used:
// imports, local variables, and declarations that are not exported.
func (d *dropper) prune(all, kept []*file, paths []string) error {
	before, changed := map[string]map[string]int{}, map[string]bool{}
	for _, f := range all {
		if !f.isGo() {
			continue
		}
		folder := path.Dir(f.path)
		if before[folder] == nil {
			before[folder] = map[string]int{}
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), f.path, f.data, parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		countIdentifiers(parsed, before[folder])
		changed[folder] = changed[folder] || !slices.Contains(kept, f)
	}
	folders := map[string][]*file{}
	for _, f := range kept {
		if !f.isGo() {
			continue
		}
		folder := path.Dir(f.path)
		folders[folder] = append(folders[folder], f)
		did, err := d.pruneFile(f, paths)
		if err != nil {
			return err
		}
		changed[folder] = changed[folder] || did
	}
	for folder, files := range folders {
		if changed[folder] {
			if err := pruneUnused(files, before[folder]); err != nil {
				return fmt.Errorf("%s: %w", folder, err)
			}
		}
	}
	return nil
}

func (d *dropper) pruneFile(f *file, paths []string) (changed bool, err error) {
	p, err := newPruner(f)
	if err != nil {
		return false, err
	}
	imports := d.droppedImports(p.file)
	p.names = func(node ast.Node) bool {
		switch node := node.(type) {
		case *ast.Ident:
			return imports[node.Name] || d.inCode(node.Name, nil)
		case *ast.BasicLit:
			return node.Kind == token.STRING && d.inCode(node.Value, paths)
		case *ast.ImportSpec:
			imported, _ := strconv.Unquote(node.Path.Value)
			return d.isDroppedImport(imported)
		}
		return false
	}
	p.declarations()
	return len(p.cuts) > 0, p.apply()
}

// inCode reports whether Go code names a dropped component, or a file of one.
func (d *dropper) inCode(code string, paths []string) bool {
	return slices.ContainsFunc(d.components, func(c component) bool { return c.code.MatchString(code) }) ||
		slices.ContainsFunc(paths, func(path string) bool { return strings.Contains(code, path) })
}

// isDroppedImport reports whether the package of this module belongs to a dropped component.
func (d *dropper) isDroppedImport(imported string) bool {
	_, inside, ok := strings.Cut(imported, "/pkg/")
	return ok && slices.ContainsFunc(d.components, func(c component) bool {
		return c.owns("pkg/"+inside) || strings.HasPrefix(inside, "generated/") && slices.ContainsFunc(c.folders, func(folder string) bool {
			return strings.Contains(inside+"/", strings.TrimPrefix(folder, "pkg/apis")+"/")
		})
	})
}

// droppedImports returns the names of the imports that are dropped.
func (d *dropper) droppedImports(parsed *ast.File) map[string]bool {
	names := map[string]bool{}
	for _, spec := range parsed.Imports {
		if imported, err := strconv.Unquote(spec.Path.Value); err == nil && d.isDroppedImport(imported) {
			names[importName(spec)] = true
		}
	}
	return names
}

// importName returns the name that the file uses for the import.
func importName(spec *ast.ImportSpec) string {
	if spec.Name != nil {
		return spec.Name.Name
	}
	imported, _ := strconv.Unquote(spec.Path.Value)
	return path.Base(regexp.MustCompile(`/v[0-9]+$`).ReplaceAllStringFunc(imported, func(version string) string {
		if strings.Contains(imported, "/pkg/") || strings.Contains(imported, "k8s.io/api/") {
			return version
		}
		return ""
	}))
}

// pruner cuts nodes out of a Go file.
type pruner struct {
	f    *file
	set  *token.FileSet
	file *ast.File
	// names reports whether a leaf of the tree names what is to be removed.
	names func(ast.Node) bool
	cuts  []span
}

// span is a range of bytes.
type span struct{ from, to int }

func newPruner(f *file) (*pruner, error) {
	p := &pruner{f: f, set: token.NewFileSet()}
	var err error
	p.file, err = parser.ParseFile(p.set, f.path, f.data, parser.ParseComments|parser.SkipObjectResolution)
	return p, err
}

func (p *pruner) offset(pos token.Pos) int {
	return p.set.Position(pos).Offset
}

// cutLines removes a node that has lines of its own, the comment above it, and the comment
// behind it.
func (p *pruner) cutLines(node ast.Node) {
	from, to := p.start(node), p.offset(node.End())
	if rest := bytes.IndexByte(p.f.data[to:], '\n'); rest >= 0 {
		behind := bytes.TrimLeft(p.f.data[to:to+rest], ", \t")
		if len(behind) == 0 || bytes.HasPrefix(behind, []byte("//")) {
			to += rest + 1
		}
	}
	if line := bytes.LastIndexByte(p.f.data[:from], '\n') + 1; len(bytes.TrimSpace(p.f.data[line:from])) == 0 {
		from = line
	}
	p.cuts = append(p.cuts, span{from, to})
}

// start returns where the node begins, with the comment that ends on the line above.
func (p *pruner) start(node ast.Node) int {
	pos := node.Pos()
	for _, comment := range p.file.Comments {
		if comment.End() < pos && p.set.Position(comment.End()).Line == p.set.Position(pos).Line-1 && p.ownLine(comment.Pos()) {
			return p.offset(comment.Pos())
		}
	}
	return p.offset(pos)
}

func (p *pruner) ownLine(pos token.Pos) bool {
	at := p.offset(pos)
	line := bytes.LastIndexByte(p.f.data[:at], '\n') + 1
	return len(bytes.TrimSpace(p.f.data[line:at])) == 0
}

// apply cuts, and formats what is left.
func (p *pruner) apply() error {
	if len(p.cuts) == 0 {
		return nil
	}
	slices.SortFunc(p.cuts, func(a, b span) int { return a.from - b.from })
	var left []byte
	end := 0
	for _, cut := range p.cuts {
		if cut.from > end {
			left = append(left, p.f.data[end:cut.from]...)
		}
		end = max(end, cut.to)
	}
	left = append(left, p.f.data[end:]...)
	formatted, err := format.Source(left)
	if err != nil {
		return fmt.Errorf("%s, after dropping: %w", p.f.path, err)
	}
	p.f.data, p.cuts = formatted, nil
	return nil
}

// declarations prunes the top level.
func (p *pruner) declarations() {
	for _, declaration := range p.file.Decls {
		switch declaration := declaration.(type) {
		case *ast.GenDecl:
			p.specs(declaration, declaration)
		case *ast.FuncDecl:
			if p.visit(declaration.Name) || declaration.Recv != nil && p.visit(declaration.Recv) || p.visit(declaration.Type) {
				p.cutLines(declaration)
			} else if declaration.Body != nil && p.block(declaration.Body.List) {
				p.cutLines(declaration)
			}
		}
	}
}

// specs prunes a declaration, and cuts whole if nothing of it is left.
func (p *pruner) specs(declaration *ast.GenDecl, whole ast.Node) {
	gone := pruneEach(declaration.Specs, func(spec ast.Spec) bool {
		switch spec := spec.(type) {
		case *ast.ImportSpec:
			return p.names(spec)
		case *ast.TypeSpec:
			return p.visit(spec.Name) || p.visit(spec.Type)
		default:
			return p.visit(spec)
		}
	})
	if len(gone) == len(declaration.Specs) && len(gone) > 0 {
		p.cutLines(whole)
		return
	}
	for _, spec := range gone {
		p.cutLines(spec)
	}
}

// pruneEach returns the nodes that visit says are to be removed.
func pruneEach[N ast.Node](nodes []N, visit func(N) bool) (gone []N) {
	for _, node := range nodes {
		if visit(node) {
			gone = append(gone, node)
		}
	}
	return gone
}

// block prunes statements. It returns true if there were some and none is left.
func (p *pruner) block(statements []ast.Stmt) bool {
	gone := pruneEach(statements, func(s ast.Stmt) bool { return p.visit(s) })
	for _, statement := range gone {
		p.cutLines(statement)
	}
	return len(gone) > 0 && len(gone) == len(statements)
}

// visit prunes below the node. It returns true if the node itself has to be removed, with
// whatever contains it up to the next element of a list.
func (p *pruner) visit(node ast.Node) bool {
	switch node := node.(type) {
	case nil:
		return false
	case *ast.BlockStmt:
		return p.block(node.List)
	case *ast.FuncLit:
		if p.visit(node.Type) {
			return true
		}
		return p.block(node.Body.List)
	case *ast.IfStmt:
		if node.Init != nil && p.visit(node.Init) || p.visit(node.Cond) {
			return true
		}
		return p.block(node.Body.List) && node.Else == nil
	case *ast.CaseClause:
		return p.caseClause(node)
	case *ast.DeclStmt:
		if declaration, ok := node.Decl.(*ast.GenDecl); ok {
			p.specs(declaration, node)
		}
		return false
	case *ast.FieldList:
		return p.fields(node)
	case *ast.CompositeLit:
		return p.composite(node)
	case *ast.CallExpr:
		return p.call(node)
	case *ast.AssignStmt:
		return p.assignment(node)
	}
	return p.names(node) || p.children(node)
}

// children visits the nodes directly below node.
func (p *pruner) children(node ast.Node) (gone bool) {
	ast.Inspect(node, func(child ast.Node) bool {
		if child == node {
			return true
		}
		if child != nil && p.visit(child) {
			gone = true
		}
		return false
	})
	return gone
}

func (p *pruner) caseClause(node *ast.CaseClause) bool {
	gone := pruneEach(node.List, func(e ast.Expr) bool { return p.visit(e) })
	if len(gone) > 0 && len(gone) == len(node.List) {
		return true
	}
	p.cutElements(node.List, gone)
	return p.block(node.Body)
}

// fields prunes the fields of a struct. A parameter is not removed, but its function is.
func (p *pruner) fields(list *ast.FieldList) bool {
	gone := pruneEach(list.List, func(field *ast.Field) bool { return p.children(field) })
	if list.Opening.IsValid() && p.f.data[p.offset(list.Opening)] == '{' {
		for _, field := range gone {
			p.cutLines(field)
		}
		return false
	}
	return len(gone) > 0
}

// composite prunes the elements of slices, arrays and maps, and the fields of structs that
// are themselves named.
func (p *pruner) composite(node *ast.CompositeLit) bool {
	if node.Type != nil && p.visit(node.Type) {
		return true
	}
	isList := false
	switch node.Type.(type) {
	case *ast.ArrayType, *ast.MapType:
		isList = true
	}
	propagates := false
	gone := pruneEach(node.Elts, func(element ast.Expr) bool {
		pair, ok := element.(*ast.KeyValueExpr)
		switch {
		case isList:
			return p.visit(element)
		case !ok:
			propagates = p.visit(element) || propagates
			return false
		case p.visit(pair.Key):
			return true
		}
		propagates = p.visit(pair.Value) || propagates
		return false
	})
	// An empty list in place of one with elements would mean something else.
	if isList && len(gone) > 0 && len(gone) == len(node.Elts) {
		return true
	}
	p.cutElements(node.Elts, gone)
	return propagates
}

// variadic are the functions of whose arguments some may be removed.
var variadic = regexp.MustCompile(`^(append|errors\.Join|slices\.Concat|sets\.New)$`)

func (p *pruner) call(node *ast.CallExpr) bool {
	if p.visit(node.Fun) {
		return true
	}
	function := string(p.f.data[p.offset(node.Fun.Pos()):p.offset(node.Fun.End())])
	gone := pruneEach(node.Args, func(e ast.Expr) bool { return p.visit(e) })
	if !variadic.MatchString(function) || len(gone) == len(node.Args) || len(gone) > 0 && gone[0] == node.Args[0] && function == "append" {
		return len(gone) > 0
	}
	p.cutElements(node.Args, gone)
	return false
}

// assignment prunes pairs of a parallel assignment.
func (p *pruner) assignment(node *ast.AssignStmt) bool {
	var goneLeft, goneRight []ast.Expr
	if len(node.Lhs) != len(node.Rhs) {
		return p.children(node)
	}
	for i := range node.Lhs {
		if left, right := p.visit(node.Lhs[i]), p.visit(node.Rhs[i]); left || right {
			goneLeft, goneRight = append(goneLeft, node.Lhs[i]), append(goneRight, node.Rhs[i])
		}
	}
	if len(goneLeft) > 0 && len(goneLeft) == len(node.Lhs) {
		return true
	}
	p.cutElements(node.Lhs, goneLeft)
	p.cutElements(node.Rhs, goneRight)
	return false
}

// cutElements removes elements of a list with commas.
func (p *pruner) cutElements(list, gone []ast.Expr) {
	for i, element := range list {
		switch {
		case !slices.Contains(gone, element):
		case p.set.Position(list[0].Pos()).Line != p.set.Position(list[len(list)-1].End()).Line && p.ownLine(element.Pos()) && p.ownLine(p.next(list, i)):
			p.cutLines(element)
		case i+1 < len(list):
			p.cuts = append(p.cuts, span{p.start(element), p.offset(list[i+1].Pos())})
		case len(gone) == len(list):
			p.cuts = append(p.cuts, span{p.offset(element.Pos()), p.offset(element.End())})
		default:
			last := i - 1
			for last > 0 && slices.Contains(gone, list[last]) {
				last--
			}
			p.cuts = append(p.cuts, span{p.offset(list[last].End()), p.offset(element.End())})
		}
	}
}

// next returns where the next element of the list begins, or the last itself.
func (p *pruner) next(list []ast.Expr, i int) token.Pos {
	if i+1 < len(list) {
		return list[i+1].Pos()
	}
	return list[i].Pos()
}
