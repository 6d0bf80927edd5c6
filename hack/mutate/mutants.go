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
	"strings"
)

// mutant is one change of the code.
type mutant struct {
	id   int
	line int
	// key is what the change is called, in the words of the list of
	// explanations. It holds no line numbers, so that it survives edits elsewhere.
	key string
	// text replaces the whole of its site.
	text string
}

// kind says how the mutants of a site are chosen while the program runs.
type kind int

const (
	// aCondition is a boolean expression.
	aCondition kind = iota
	// aValue is any other expression. It is evaluated with and without the change.
	aValue
	// aStatement is there or not.
	aStatement
	// aTag is what a switch compares with its cases.
	aTag
	// aCase is one of the values of a case.
	aCase
)

// site is a place in a file with all that is tried there.
type site struct {
	kind       kind
	start, end int
	mutants    []mutant
	// tag names the variable that holds what the switch compares, for aTag and
	// aCase.
	tag string
}

// finder lists the mutants of one file.
type finder struct {
	name string
	src  string
	fset *token.FileSet
	// firstID is the number of the file's first mutant, count how many there are.
	firstID, count int
	sites          []site

	// function is where the finder is, results are the types that it returns (the
	// innermost literal's, in a function literal).
	function string
	results  []ast.Expr
	// conditions are expressions that are boolean because of where they stand.
	conditions map[ast.Expr]bool
	// occurrences counts equal sites within the function.
	occurrences map[string]int
}

// findMutants returns the name of the file's package and lists what can be changed
// in the file. The first mutant gets the number firstID.
func findMutants(name, src string, firstID int) (packageName string, sites []site, err error) {
	f := &finder{name: name, src: src, fset: token.NewFileSet(), firstID: firstID, conditions: map[ast.Expr]bool{}}
	file, err := parser.ParseFile(f.fset, name, src, parser.SkipObjectResolution)
	if err != nil {
		return "", nil, err
	}
	for _, decl := range file.Decls {
		if fn, ok := decl.(*ast.FuncDecl); ok && fn.Body != nil {
			f.function, f.occurrences = fn.Name.Name, map[string]int{}
			f.body(fn.Type, fn.Body)
		}
	}
	return file.Name.Name, f.sites, nil
}

// body goes through a function, declared or literal.
func (f *finder) body(signature *ast.FuncType, block *ast.BlockStmt) {
	outer := f.results
	f.results = nil
	if signature.Results != nil {
		for _, field := range signature.Results.List {
			for range max(1, len(field.Names)) {
				f.results = append(f.results, field.Type)
			}
		}
	}
	ast.Inspect(block, f.visit)
	f.results = outer
}

// visit looks at one node, and returns whether those within are to be looked at.
func (f *finder) visit(node ast.Node) bool {
	switch node := node.(type) {
	case *ast.GenDecl:
		return node.Tok != token.CONST
	case *ast.FuncLit:
		f.body(node.Type, node.Body)
		return false
	case *ast.BlockStmt:
		f.statements(node.List)
	case *ast.CaseClause:
		f.statements(node.Body)
	case *ast.CommClause:
		f.statements(node.Body)
	case *ast.IfStmt:
		f.conditions[node.Cond] = true
	case *ast.ForStmt:
		f.conditions[node.Cond] = true
	case *ast.SwitchStmt:
		f.cases(node)
	case *ast.ReturnStmt:
		for i, result := range node.Results {
			f.conditions[result] = len(node.Results) == len(f.results) && isIdent(f.results[i], "bool")
		}
	case ast.Expr:
		return f.expression(node)
	}
	return true
}

func (f *finder) expression(e ast.Expr) bool {
	switch {
	case f.conditions[e] || isBoolean(e):
		f.add(aCondition, e, append([]change{
			{e.Pos(), e.End(), "true"}, {e.Pos(), e.End(), "false"}, {e.Pos(), e.End(), f.negated(e)},
		}, f.changesWithin(e)...))
	case isArithmetic(e):
		f.add(aValue, e, f.changesWithin(e))
	default:
		return true
	}
	return false
}

// statements finds those that can be left out: calls, also deferred ones, and
// assignments. What is logged is not looked at, and panic must stay: the compiler
// relies on it that the function ends there.
func (f *finder) statements(list []ast.Stmt) {
	for _, statement := range list {
		switch statement := statement.(type) {
		case *ast.ExprStmt:
			if call, ok := statement.X.(*ast.CallExpr); ok && (isIdent(call.Fun, "panic") || isLogging(call)) {
				continue
			}
		case *ast.AssignStmt:
			if statement.Tok == token.DEFINE {
				continue
			}
		case *ast.DeferStmt, *ast.IncDecStmt:
		default:
			continue
		}
		f.add(aStatement, statement, []change{{statement.Pos(), statement.End(), ""}})
	}
}

// cases takes what a switch compares apart: each value as if it always matched,
// and as if it never did.
func (f *finder) cases(statement *ast.SwitchStmt) {
	var values []ast.Expr
	for _, clause := range statement.Body.List {
		values = append(values, clause.(*ast.CaseClause).List...)
	}
	if statement.Tag == nil {
		for _, value := range values {
			f.conditions[value] = true
		}
		return
	}
	// With an initial statement there is no room for the tag's variable.
	if statement.Init != nil || len(values) == 0 {
		return
	}
	tag := fmt.Sprintf("mutantTag%d", f.offset(statement.Pos()))
	f.sites = append(f.sites, site{kind: aTag, start: f.offset(statement.Tag.Pos()), end: f.offset(statement.Tag.End()), tag: tag})
	for _, value := range values {
		// The value itself is nothing to look into.
		f.conditions[value] = false
		f.add(aCase, value, []change{{value.Pos(), value.End(), "true"}, {value.Pos(), value.End(), "false"}})
		f.sites[len(f.sites)-1].tag = tag
	}
}

// change replaces a part of an expression.
type change struct {
	from, to token.Pos
	text     string
}

// changesWithin returns what can be changed in the parts of an expression.
func (f *finder) changesWithin(root ast.Expr) (changes []change) {
	replace := func(e ast.Expr, text string) {
		changes = append(changes, change{e.Pos(), e.End(), text})
	}
	ast.Inspect(root, func(node ast.Node) bool {
		switch e := node.(type) {
		case *ast.FuncLit:
			return false
		case *ast.UnaryExpr:
			if e.Op == token.NOT {
				replace(e, f.text(e.X))
			}
		case *ast.CallExpr:
			if isIdent(e.Fun, "min") {
				replace(e.Fun, "max")
			} else if isIdent(e.Fun, "max") {
				replace(e.Fun, "min")
			}
		case *ast.BinaryExpr:
			for _, operator := range otherOperators(e.Op) {
				changes = append(changes, change{e.OpPos, e.OpPos + token.Pos(len(e.Op.String())), operator})
			}
			if e.Op == token.LAND || e.Op == token.LOR {
				replace(e, f.text(e.X))
				replace(e, f.text(e.Y))
				for _, operand := range []ast.Expr{e.X, e.Y} {
					if !isBoolean(operand) {
						replace(operand, f.negated(operand))
					}
				}
			}
		}
		return true
	})
	return changes
}

// add makes a site of the node, with those changes that change it, each once.
func (f *finder) add(kind kind, node ast.Node, changes []change) {
	s := site{kind: kind, start: f.offset(node.Pos()), end: f.offset(node.End())}
	original := f.src[s.start:s.end]
	head := f.name + " " + f.function
	was := oneLine(original)
	f.occurrences[was]++
	if n := f.occurrences[was]; n > 1 {
		head += fmt.Sprintf(", occurrence %d", n)
	}
	seen := map[string]bool{was: true}
	for _, change := range changes {
		text := f.src[s.start:f.offset(change.from)] + change.text + f.src[f.offset(change.to):s.end]
		is := oneLine(text)
		if seen[is] {
			continue
		}
		seen[is] = true
		if kind == aStatement {
			is = "(nothing)"
		}
		s.mutants = append(s.mutants, mutant{
			id:   f.firstID + f.count,
			line: f.fset.Position(node.Pos()).Line,
			key:  head + "\n- " + was + "\n+ " + is,
			text: text,
		})
		f.count++
	}
	f.sites = append(f.sites, s)
}

func (f *finder) offset(pos token.Pos) int {
	return f.fset.Position(pos).Offset
}

func (f *finder) text(node ast.Node) string {
	return f.src[f.offset(node.Pos()):f.offset(node.End())]
}

// negated returns the opposite of a boolean expression.
func (f *finder) negated(e ast.Expr) string {
	switch e := e.(type) {
	case *ast.UnaryExpr:
		if e.Op == token.NOT {
			return f.text(e.X)
		}
	case *ast.BinaryExpr:
		if opposite := opposite(e.Op); opposite != "" {
			return f.src[f.offset(e.Pos()):f.offset(e.OpPos)] + opposite + f.src[f.offset(e.OpPos)+len(e.Op.String()):f.offset(e.End())]
		}
		return "!(" + f.text(e) + ")"
	case *ast.Ident:
		if e.Name == "true" {
			return "false"
		}
		if e.Name == "false" {
			return "true"
		}
	}
	return "!" + f.text(e)
}

// otherOperators returns what can stand in an operator's place: for a comparison
// its opposite and its neighbour, which differs at the boundary alone.
func otherOperators(operator token.Token) []string {
	switch operator {
	case token.EQL, token.NEQ:
		return []string{opposite(operator)}
	case token.LSS:
		return []string{"<=", opposite(operator)}
	case token.LEQ:
		return []string{"<", opposite(operator)}
	case token.GTR:
		return []string{">=", opposite(operator)}
	case token.GEQ:
		return []string{">", opposite(operator)}
	case token.SUB:
		return []string{"+"}
	}
	return nil
}

func opposite(comparison token.Token) string {
	switch comparison {
	case token.EQL:
		return "!="
	case token.NEQ:
		return "=="
	case token.LSS:
		return ">="
	case token.LEQ:
		return ">"
	case token.GTR:
		return "<="
	case token.GEQ:
		return "<"
	}
	return ""
}

// isBoolean reports whether an expression is boolean by its operator.
func isBoolean(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.UnaryExpr:
		return e.Op == token.NOT
	case *ast.BinaryExpr:
		return e.Op == token.LAND || e.Op == token.LOR || opposite(e.Op) != ""
	}
	return false
}

// isArithmetic reports whether an expression is one whose operator has a
// counterpart of the same type.
func isArithmetic(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CallExpr:
		return isIdent(e.Fun, "min") || isIdent(e.Fun, "max")
	case *ast.BinaryExpr:
		return e.Op == token.SUB
	}
	return false
}

func isIdent(e ast.Expr, name string) bool {
	ident, ok := e.(*ast.Ident)
	return ok && ident.Name == name
}

// isLogging reports whether a chain of calls begins at a logger.
func isLogging(e ast.Expr) bool {
	switch e := e.(type) {
	case *ast.CallExpr:
		return isLogging(e.Fun)
	case *ast.SelectorExpr:
		return isLogging(e.X)
	}
	return isIdent(e, "logger") || isIdent(e, "klog")
}

// oneLine is code in one line. Of a function literal its first line will do.
func oneLine(code string) string {
	if begin, _, long := strings.Cut(code, "{\n"); long {
		code = begin + "{ … }"
	}
	return strings.Join(strings.Fields(code), " ")
}
