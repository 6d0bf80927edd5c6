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
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"example.com/sample-controller/hack/tree"
)

func variables(changed map[string]string) func(string) string {
	all := map[string]string{"KIND": "Bar", "GROUP": "bars.example.org", "VERSION": "v1beta1"}
	maps.Copy(all, changed)
	return func(name string) string { return all[name] }
}

// readAll returns the files of this repository.
func readAll(t *testing.T) []*tree.File {
	t.Helper()
	files, err := tree.Read(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	return files
}

func TestOptionsAreRefused(t *testing.T) {
	files := append(readAll(t), &tree.File{Path: "pkg/apis/taken/v1/types.go", Data: []byte("// +kubebuilder:resource:path=geese,singular=goose,categories=all\n")})
	for sentence, test := range map[string]struct{ variable, value, want string }{
		"a variable that is not set":         {"GROUP", "", "GROUP: is not set; run make new-kind KIND=Bar"},
		"a kind in lower case":               {"KIND", "bar", "KIND: \"bar\" is not a kind"},
		"a kind that is a Go keyword":        {"KIND", "Type", "KIND: \"Type\": type is a Go keyword"},
		"a kind of Kubernetes":               {"KIND", "ConfigMap", "KIND: \"ConfigMap\" is a kind of Kubernetes"},
		"a kind that exists":                 {"KIND", "Goose", "KIND: pkg/apis/taken/v1/types.go has that kind"},
		"a kind with the name of a package":  {"KIND", "Deployment", "KIND: pkg/controller/deployment or"},
		"a kind with the name of a document": {"KIND", "Design", "docs/design.md is there"},
		"a group that exists":                {"GROUP", "taken.example.org", "GROUP: pkg/apis/taken is the folder of another group"},
		"a group of the Kubernetes project":  {"GROUP", "bars.k8s.io", "GROUP: \"bars.k8s.io\" is reserved"},
		"a version of another form":          {"VERSION", "one", "VERSION: \"one\" is not a version"},
		"a plural that exists":               {"PLURAL", "geese", "PLURAL: pkg/apis/taken/v1/types.go has the plural"},
		"a short name in upper case":         {"SHORT", "B", "SHORT: \"B\" is not a short name"},
		"another word than yes":              {"EXTERNAL", "true", "EXTERNAL: \"true\" is not yes"},
		"two mistakes, which are both told":  {"KIND", "Pod", "PLURAL: \"pod\" is not a plural"},
	} {
		t.Run(sentence, func(t *testing.T) {
			changed := map[string]string{test.variable: test.value}
			if strings.HasPrefix(sentence, "two") {
				changed["PLURAL"] = "pod"
			}
			if _, err := newOptions(files, variables(changed)); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestConvert makes kinds with names that the code might have for something else. Nothing names the kind that was
// copied, what was the English word setting has not become one, all names are declared, once, and each rule of the contract has a test.
func TestConvert(t *testing.T) {
	old := regexp.MustCompile(`(?i:setting|tuning|tenant|tenancy|newkind|\bbars? up\b)|\b[YZ][0-9]`)
	for kind, external := range map[string]string{"Bar": "", "HTTPRoute": "yes", "Client": "", "Image": "yes", "Policy": "", "Queue": "yes"} {
		t.Run(kind, func(t *testing.T) {
			get := variables(map[string]string{"KIND": kind, "EXTERNAL": external, "SHORT": "b,bb"})
			o, err := newOptions(readAll(t), get)
			if err != nil {
				t.Fatal(err)
			}
			files := convert(o, readAll(t))
			paths, texts, tests := map[string]*tree.File{}, []*tree.File{}, ""
			for _, f := range files {
				paths[f.Path] = f
				if strings.HasPrefix(f.Path, "pkg/") {
					texts = append(texts, f)
				}
				if strings.HasSuffix(f.Path, "_test.go") {
					tests += string(f.Data)
				}
				if isShared := f.Path == "main.go" || slices.Contains([]string{"alerts.yaml", "dashboard.json", "kustomization.yaml"}, filepath.Base(f.Path)); !isShared && old.MatchString(f.Path+string(f.Data)) {
					t.Errorf("%s has the name %s", f.Path, old.FindString(f.Path+string(f.Data)))
				}
			}
			problems, err := tree.NameErrors(texts)
			for _, problem := range problems {
				// Where the type of an import is not known, a variable may seem to be unused.
				if !strings.Contains(problem, "declared and not used: ") {
					t.Error(problem)
				}
			}
			lower := strings.ToLower(kind)
			for path, want := range map[string]string{
				"pkg/apis/bars/v1beta1/types.go":                        "type " + kind + " struct",
				"pkg/controller/" + lower + "/controller.go":            `"` + o.Module + `/pkg/apis/bars/v1beta1"`,
				"pkg/controller/" + lower + "/testdata/suites.yaml":     "kind: " + kind,
				"artifacts/examples/" + lower + ".yaml":                 "apiVersion: bars.example.org/v1beta1",
				"artifacts/deploy/monitoring/" + lower + "-alerts.yaml": "runbook: docs/" + lower + ".md#",
				"artifacts/deploy/monitoring/kustomization.yaml":        "\n- alerts.yaml\n- " + lower + "-alerts.yaml\n",
				"artifacts/deploy/monitoring/alerts.yaml":               "|" + lower + `"}`,
				"artifacts/deploy/monitoring/dashboard.json":            "|" + lower + `\"}`,
				"docs/" + lower + ".md":                                 "| " + o.letter + "1 |",
				"test/e2e/walkthrough_" + lower + "_test.go":            "//go:build e2e\n",
				"main.go": "\t\t\t" + lower + ".NewDescriptor(),\n",
			} {
				if f := paths[path]; f == nil || !bytes.Contains(f.Data, []byte(want)) {
					t.Errorf("%s has no %q", path, want)
				}
			}
			if !bytes.Contains(paths["pkg/apis/bars/v1beta1/types.go"].Data, []byte("path="+o.Plural+",shortName=b;bb,")) || err != nil {
				t.Errorf("the type has no short names, error %v", err)
			}
			for _, rule := range regexp.MustCompile(`(?m)^\| ([A-Z][0-9]+) \|`).FindAllStringSubmatch(string(paths["docs/"+lower+".md"].Data), -1) {
				if !strings.Contains(tests, `"rule `+rule[1]) {
					t.Errorf("no test says %q", "rule "+rule[1])
				}
			}
		})
	}
}

// TestRun adds a kind to a copy of this repository, where make fails at first. A failure leaves what was there,
// also what git does not know.
func TestRun(t *testing.T) {
	root, bin := t.TempDir(), t.TempDir()
	mine := &tree.File{Path: "mine", Mode: 0o600, Data: []byte("x")}
	for _, f := range append(readAll(t), mine, &tree.File{Path: "pkg/generated/x.go", Mode: 0o600, Data: []byte("package x\n")}) {
		if err := f.Write(root); err != nil {
			t.Fatal(err)
		}
	}
	const generate = "#!/bin/sh\nrm -r pkg/generated mine\nmkdir -p artifacts/deploy/bar\necho >artifacts/deploy/bar/x\nexit $STATUS\n"
	for name, text := range map[string]string{"make": generate, "go": "#!/bin/sh\nexit 0\n"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte(text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	for _, arguments := range [][]string{{"init", "--quiet"}, {"add", "."}, {"rm", "--quiet", "--cached", "mine"}} {
		if err := tree.Execute(t.Context(), root, root, append([]string{"git"}, arguments...)...); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	list := func() map[string]string {
		files, err := tree.List(t.Context(), root, "--cached", "--others")
		if err != nil {
			t.Fatal(err)
		}
		texts := map[string]string{}
		for _, f := range files {
			texts[f.Path] = string(f.Data)
		}
		return texts
	}
	before := list()
	t.Setenv("STATUS", "3")
	var output bytes.Buffer
	if err := run(t.Context(), root, variables(nil), &output); err == nil || !strings.Contains(err.Error(), "generate: exit status 3") {
		t.Errorf("error %v", err)
	}
	if after := list(); !maps.Equal(before, after) {
		t.Errorf("a failure leaves other files: %d in place of %d", len(after), len(before))
	}
	if left, err := filepath.Glob(filepath.Join(root, "*/*/bar*")); err != nil || len(left) > 0 {
		t.Errorf("a failure leaves %q (%v)", left, err)
	}
	t.Setenv("STATUS", "0")
	if err := run(t.Context(), root, variables(nil), &output); err != nil || !strings.Contains(output.String(), "Added the kind Bar") {
		t.Errorf("error %v, output %s", err, output.String())
	}
	if list()["docs/bar.md"] == "" {
		t.Error("there is no contract")
	}
}
