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
	"go/token"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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
	kind := regexp.MustCompile(`(?m)^// \+genclient\n(?://.*\n)*type (\w+)`)
	warnings := warned(t)
	var table strings.Builder
	table.WriteString("| kind | condition | reason | Warning event | what it says |\n|---|---|---|---|---|\n")
	for _, file := range read(t, "pkg/apis/*/*/types.go") {
		var kinds []string
		for _, match := range kind.FindAllStringSubmatch(file.text, -1) {
			kinds = append(kinds, match[1])
		}
		for _, reason := range file.reasons() {
			condition, _, ok := strings.Cut(reason.of, " condition")
			if !ok {
				continue
			}
			event := ""
			switch {
			case warnings[reason.name] && strings.HasSuffix(reason.name, "NotOwned"):
				event = "`" + controller.EventErrResourceExists + "`"
			case warnings[reason.name]:
				event = "`" + reason.value + "`"
			}
			fmt.Fprintf(&table, "| %s | %s | `%s` | %s | %s |\n", strings.Join(kinds, ", "), condition, reason.value, event, reason.text)
		}
	}
	return table.String()
}

// EventTable returns the table of the reasons of events that are not reasons of conditions, from
// constants of the controllers and their comments. Those of pkg/controller are of any kind. A kind has those
// of its controller's directory, which dirs has, and of the packages that it imports.
func EventTable(t *testing.T, dirs map[string]string) string {
	t.Helper()
	const shared = `/pkg/controller"`
	imports := map[string]string{"any": shared}
	for kind, dir := range dirs {
		for _, file := range read(t, filepath.Join(dir, "*.go")) {
			imports[kind] += strings.ReplaceAll(file.text, shared, "")
		}
	}
	var lines []string
	for _, file := range read(t, controllerFiles()...) {
		for _, reason := range file.reasons() {
			eventType, _, ok := strings.Cut(reason.of, " event")
			if !ok {
				continue
			}
			for kind, text := range imports {
				if dir := filepath.Dir(file.path); dir == dirs[kind] || token.IsExported(reason.name) && strings.Contains(text, "/"+dir+`"`) {
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
	var table strings.Builder
	table.WriteString("| alert | severity | if it lasts | what it says |\n|---|---|---|---|\n")
	for _, file := range read(t, "artifacts/deploy/monitoring/*alerts.yaml") {
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
		if err := yaml.Unmarshal([]byte(file.text), &rule); err != nil {
			t.Fatal(file.path, err)
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
func controllerFiles() []string {
	return []string{"*.go", "pkg/controller/*.go", "pkg/controller/*/*.go"}
}

// warned returns the names of the conditions' reasons that a controller reports by a Warning event: each is an
// argument of ReadyEvent, or in a case that returns a warning.
func warned(t *testing.T) map[string]bool {
	t.Helper()
	reports := regexp.MustCompile(`ReadyEvent\([^()]*\)|case [^:]*:\n\t*return warning\(`)
	names := map[string]bool{}
	for _, file := range read(t, controllerFiles()...) {
		for _, report := range reports.FindAllString(file.text, -1) {
			for _, name := range regexp.MustCompile(`\bReason\w+`).FindAllString(report, -1) {
				names[name] = true
			}
		}
	}
	return names
}

// reason is a constant in a group whose comment begins with "Reasons of".
type reason struct {
	// of is the rest of that comment.
	of, name, value, text string
}

// file is a file that is read.
type file struct{ path, text string }

// reasons returns the reasons in the file.
func (f file) reasons() []reason {
	groups := regexp.MustCompile(`(?ms)^// Reasons of (?:the )?([^\n]*)\nconst \(\n(.*?)^\)`)
	constants := regexp.MustCompile(`((?:\t// .*\n)+)\t(\w+) += "(.*)"`)
	var found []reason
	for _, group := range groups.FindAllStringSubmatch(f.text, -1) {
		for _, constant := range constants.FindAllStringSubmatch(group[2], -1) {
			text := strings.TrimPrefix(strings.ReplaceAll(constant[1], "\n\t// ", " "), "\t// ")
			for _, prefix := range []string{constant[2] + " ", "says that ", "is the reason for "} {
				text = strings.TrimPrefix(text, prefix)
			}
			found = append(found, reason{group[1], constant[2], constant[3], Cell(strings.TrimSpace(text))})
		}
	}
	return found
}

// read returns the files that match a pattern, without tests.
func read(t *testing.T, patterns ...string) []file {
	t.Helper()
	var files []file
	for _, pattern := range patterns {
		paths, err := filepath.Glob(pattern)
		if err != nil {
			t.Fatal(err)
		}
		for _, path := range paths {
			text, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			if !strings.HasSuffix(path, "_test.go") {
				files = append(files, file{path, string(text)})
			}
		}
	}
	return files
}
