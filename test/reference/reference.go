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

// Package reference makes tables for the documentation from constants, their comments, and manifests. It
// reads them in the working directory, which is the root of the repository.
package reference

import (
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"k8s.io/apimachinery/pkg/util/sets"
	"k8s.io/apimachinery/pkg/util/yaml"

	"example.com/sample-controller/pkg/controller"
)

// Cell escapes a text for a cell of a table.
func Cell(text string) string {
	return strings.ReplaceAll(strings.ReplaceAll(text, "|", `\|`), "\n", " ")
}

// ReasonTable returns the table of the reasons of conditions, from the constants of the APIs and their
// comments. An event is in it if a controller turns the reason into one.
func ReasonTable(t *testing.T) string {
	t.Helper()
	warnings := warningEvents(t)
	var table strings.Builder
	table.WriteString("| kind | condition | reason | Warning event | what it says |\n|---|---|---|---|---|\n")
	for _, path := range goFiles(t, "pkg/apis/*/*/types.go") {
		file := parseGo(t, path)
		var kinds []string
		ast.Inspect(file, func(node ast.Node) bool {
			if group, ok := node.(*ast.GenDecl); ok && strings.Contains(group.Doc.Text(), "+genclient") {
				kinds = append(kinds, group.Specs[0].(*ast.TypeSpec).Name.Name)
			}
			return true
		})
		for _, reason := range reasonsIn(file) {
			if condition, _, ok := strings.Cut(reason.of, " condition"); ok {
				fmt.Fprintf(&table, "| %s | %s | `%s` | %s | %s |\n", strings.Join(kinds, ", "), condition, reason.value, warnings[reason.name], reason.text)
			}
		}
	}
	return table.String()
}

// EventTable returns the table of the reasons of events that are not reasons of conditions, from
// constants of the controllers and their comments. Those of pkg/controller are of any kind. A kind has those
// of its controller's directory, which dirs has, and of the packages that it uses.
func EventTable(t *testing.T, dirs map[string]string) string {
	t.Helper()
	uses := map[string]sets.Set[string]{"any": sets.New("controller")}
	for kind, dir := range dirs {
		uses[kind] = sets.New[string]()
		for _, path := range goFiles(t, filepath.Join(dir, "*.go")) {
			ast.Inspect(parseGo(t, path), func(node ast.Node) bool {
				if name, ok := node.(*ast.Ident); ok && name.Name != "controller" {
					uses[kind].Insert(name.Name)
				}
				return true
			})
		}
	}
	var lines []string
	for _, path := range goFiles(t, controllerFiles...) {
		for _, reason := range reasonsIn(parseGo(t, path)) {
			eventType, _, ok := strings.Cut(reason.of, " event")
			if !ok {
				continue
			}
			for kind, names := range uses {
				if dir := filepath.Dir(path); dir == dirs[kind] || ast.IsExported(reason.name) && names.Has(filepath.Base(dir)) {
					lines = append(lines, fmt.Sprintf("| %s | %s | `%s` | %s |\n", kind, eventType, reason.value, reason.text))
				}
			}
		}
	}
	slices.Sort(lines)
	return "| kind | type | reason | what it says |\n|---|---|---|---|\n" + strings.Join(lines, "")
}

// AlertTable returns the table of the alerts in the manifests.
func AlertTable(t *testing.T) string {
	t.Helper()
	paths, err := filepath.Glob("artifacts/deploy/monitoring/*alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var table strings.Builder
	table.WriteString("| alert | severity | if it lasts | what it says |\n|---|---|---|---|\n")
	for _, path := range paths {
		data, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		var rule struct {
			Spec struct {
				Groups []struct {
					Rules []struct {
						Alert, For          string
						Labels, Annotations map[string]string
					}
				}
			}
		}
		if err := yaml.Unmarshal(data, &rule); err != nil {
			t.Fatal(path, err)
		}
		for _, group := range rule.Spec.Groups {
			for _, alert := range group.Rules {
				page, anchor, _ := strings.Cut(alert.Annotations["runbook"], "#")
				text, err := os.ReadFile(page)
				if err != nil || anchor != strings.ToLower(alert.Alert) || !strings.Contains(string(text), "\n### "+alert.Alert+"\n") {
					t.Errorf("%s has no runbook for %s (%v)", page, alert.Alert, err)
				}
				runbook := strings.TrimPrefix(strings.TrimPrefix(alert.Annotations["runbook"], "docs/"), "operations.md")
				fmt.Fprintf(&table, "| [%s](%s) | %s | %s | %s |\n", alert.Alert, runbook, alert.Labels["severity"], alert.For, Cell(alert.Annotations["summary"]))
			}
		}
	}
	return table.String()
}

// controllerFiles are the files of the controllers.
var controllerFiles = []string{"*.go", "pkg/controller/*.go", "pkg/controller/*/*.go"}

// warningEvents returns the reason of the event for each name of a condition's reason that a controller reports by one:
// it is an argument of ReadyEvent, or in a case that returns a warning.
func warningEvents(t *testing.T) map[string]string {
	t.Helper()
	values, events := map[string]string{}, map[string]string{}
	for _, path := range goFiles(t, append([]string{"pkg/apis/*/*/types.go"}, controllerFiles...)...) {
		for _, reason := range reasonsIn(parseGo(t, path)) {
			values[reason.name] = reason.value
		}
	}
	report := func(reasons []ast.Expr) {
		for _, reason := range reasons {
			name := lastName(reason)
			if events[name] = "`" + values[name] + "`"; strings.HasSuffix(name, "NotOwned") {
				events[name] = "`" + controller.EventErrResourceExists + "`"
			}
		}
	}
	for _, path := range goFiles(t, controllerFiles...) {
		ast.Inspect(parseGo(t, path), func(node ast.Node) bool {
			switch node := node.(type) {
			case *ast.CallExpr:
				if lastName(node.Fun) == "ReadyEvent" {
					report(node.Args[3:])
				}
			case *ast.CaseClause:
				if isWarning(node) {
					report(node.List)
				}
			}
			return true
		})
	}
	return events
}

// isWarning reports whether the clause calls the function warning.
func isWarning(clause *ast.CaseClause) (is bool) {
	ast.Inspect(clause, func(node ast.Node) bool {
		call, isCall := node.(*ast.CallExpr)
		is = is || isCall && lastName(call.Fun) == "warning"
		return true
	})
	return is
}

// lastName returns the last name of a qualified identifier.
func lastName(expression ast.Expr) string {
	switch expression := expression.(type) {
	case *ast.Ident:
		return expression.Name
	case *ast.SelectorExpr:
		return expression.Sel.Name
	}
	return ""
}

// reason is a constant in a group whose comment begins with "Reasons of".
type reason struct {
	// of is the rest of that comment.
	of, name, value, text string
}

// reasonsIn returns the reasons in the file.
func reasonsIn(file *ast.File) []reason {
	var found []reason
	for _, declaration := range file.Decls {
		group, _ := declaration.(*ast.GenDecl)
		if group == nil {
			continue
		}
		of, ok := strings.CutPrefix(group.Doc.Text(), "Reasons of ")
		if of = strings.TrimPrefix(of, "the "); !ok {
			continue
		}
		for _, spec := range group.Specs {
			spec := spec.(*ast.ValueSpec)
			text := strings.ReplaceAll(strings.TrimSpace(spec.Doc.Text()), "\n", " ")
			for _, prefix := range []string{spec.Names[0].Name + " ", "says that ", "is the reason for "} {
				text = strings.TrimPrefix(text, prefix)
			}
			found = append(found, reason{of, spec.Names[0].Name, strings.Trim(spec.Values[0].(*ast.BasicLit).Value, `"`), Cell(text)})
		}
	}
	return found
}

// goFiles returns the files that match a pattern, without tests.
func goFiles(t *testing.T, patterns ...string) []string {
	t.Helper()
	var files []string
	for _, pattern := range patterns {
		found, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		files = append(files, found...)
	}
	return slices.DeleteFunc(files, func(path string) bool { return strings.HasSuffix(path, "_test.go") })
}

func parseGo(t *testing.T, path string) *ast.File {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	return file
}
