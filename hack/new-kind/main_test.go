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
	"encoding/json"
	"errors"
	"io"
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

// readAll returns the files of this repository, without the kind if it was made here.
func readAll(t *testing.T, kind string) []*tree.File {
	t.Helper()
	files, err := tree.Read(t.Context(), "../..")
	if err != nil {
		t.Fatal(err)
	}
	lower := strings.ToLower(kind)
	made := regexp.MustCompile(strings.ReplaceAll(`^(pkg/apis/bars|pkg/controller/KIND|docs/KIND\.md|artifacts/deploy/KIND)\b`, "KIND", lower))
	return slices.DeleteFunc(files, func(f *tree.File) bool {
		return made.MatchString(f.Path) || strings.HasPrefix(f.Path, "pkg/apis/") && strings.Contains(string(f.Data), "singular="+lower+",")
	})
}

func TestOptionsAreRefused(t *testing.T) {
	files := append(readAll(t, "Bar"), &tree.File{Path: "artifacts/deploy/policy/x.yaml"}, &tree.File{Path: "pkg/apis/taken/v1/types.go", Data: []byte("// +kubebuilder:resource:path=geese,singular=goose,categories=all\n")})
	for sentence, test := range map[string]struct{ variable, value, want string }{
		"a variable that is not set":          {"GROUP", "", "GROUP: is not set; run make new-kind KIND=Bar"},
		"a kind that exists":                  {"KIND", "Goose", "KIND: pkg/apis/taken/v1/types.go has that kind"},
		"a kind with the name of a package":   {"KIND", "Deployment", "KIND: pkg/controller/deployment, docs"},
		"a kind with the name of a document":  {"KIND", "Design", "docs/design.md or"},
		"a kind with the name of a component": {"KIND", "Policy", "artifacts/deploy/policy is there"},
		"a group in use":                      {"GROUP", "taken.example.org", "GROUP: pkg/apis/taken is the folder of another"},
		"a plural that exists":                {"PLURAL", "geese", "PLURAL: pkg/apis/taken/v1/types.go has the plural"},
		"another word than yes":               {"EXTERNAL", "true", "EXTERNAL: \"true\" is not yes"},
		"what make fork refuses, too":         {"KIND", "ConfigMap", "KIND: \"ConfigMap\" is a kind of Kubernetes"},
		"all mistakes are told":               {"KIND", "ConfigMap", "SHORT: \"B\" is not a short name"},
	} {
		t.Run(sentence, func(t *testing.T) {
			_, err := newOptions(files, variables(map[string]string{"SHORT": "B", test.variable: test.value}))
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("error %v, want %q in it", err, test.want)
			}
		})
	}
}

// TestConvert makes kinds with names that the code might have for something else. Nothing names the kind that was
// copied, or of an external service without one, and each rule of the contract has a test.
func TestConvert(t *testing.T) {
	old := map[string]*regexp.Regexp{
		"yes": regexp.MustCompile(`(?i:tenant|tenancy|newkind|\bbars? up\b)|\bZ[0-9]|\+(external|plain)`), "": regexp.MustCompile(`(?i:tenant|tenancy|newkind|external service|finalizers'|\bitem(?:ID)?\b)|\bZ[0-9]|\+(external|plain)|flag`),
	}
	shared := regexp.MustCompile(`^main\.go$|/(alerts\.yaml|dashboard\.json|kustomization\.yaml)$`)
	rule := regexp.MustCompile(`(?m)^\| ([A-Z][0-9]+) \|`)
	for kind, external := range map[string]string{
		"Bar": "", "HTTPRoute": "yes", "Client": "", "Image": "yes", "Task": "", "Queue": "yes",
	} {
		t.Run(kind, func(t *testing.T) {
			get := variables(map[string]string{"KIND": kind, "EXTERNAL": external, "SHORT": "b,bb"})
			o, err := newOptions(readAll(t, kind), get)
			if err != nil {
				t.Fatal(err)
			}
			texts, tests := map[string]string{}, ""
			for _, f := range convert(o, readAll(t, kind)) {
				text := string(f.Data)
				texts[f.Path] = text
				if strings.HasSuffix(f.Path, "_test.go") {
					tests += text
				}
				if found := old[external].FindString(f.Path + text); found != "" && !shared.MatchString(f.Path) {
					t.Errorf("%s has the name %s", f.Path, found)
				}
			}
			lower := strings.ToLower(kind)
			for path, want := range map[string]string{
				"pkg/apis/bars/v1beta1/doc.go":                          "\npackage v1beta1\n",
				"pkg/apis/bars/v1beta1/types.go":                        "path=" + o.Plural + ",shortName=b;bb,",
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
				if !strings.Contains(texts[path], want) {
					t.Errorf("%s has no %q", path, want)
				}
			}
			for _, match := range rule.FindAllStringSubmatch(texts["docs/"+lower+".md"], -1) {
				if !strings.Contains(tests, "rule "+match[1]+": ") {
					t.Errorf("no test says %q", "rule "+match[1]+": ")
				}
			}
		})
	}
}

// TestPlain tests the living kind without its external service.
func TestPlain(t *testing.T) {
	dir, replaced := t.TempDir(), map[string]string{}
	for _, f := range readAll(t, "Bar") {
		path, isLiving := strings.CutPrefix(f.Path, living)
		if !isLiving {
			continue
		}
		f = &tree.File{Path: path, Mode: f.Mode, Data: []byte((&options{}).external(f.Path, string(f.Data)))}
		if err := f.Write(dir); err != nil {
			t.Fatal(err)
		}
		if replaced[living+path] = filepath.Join(dir, path); len(f.Data) == 0 {
			replaced[living+path] = ""
		}
	}
	text, err := json.Marshal(map[string]any{"Replace": replaced})
	overlay, test := filepath.Join(dir, "overlay.json"), filepath.Join(dir, "plain.test")
	if err = errors.Join(err, os.WriteFile(overlay, text, 0o600)); err != nil {
		t.Fatal(err)
	}
	const controller = "pkg/controller/tenant"
	err = tree.Execute(t.Context(), "", "../..", []string{"go", "test", "-c", "-overlay=" + overlay, "-o", test, "./" + living + controller})
	if err = errors.Join(err, tree.Execute(t.Context(), "", filepath.Join(dir, controller), []string{test})); err != nil {
		t.Error(err)
	}
}

// TestRun adds a kind to a copy of this repository, where make fails at first. A failure leaves what was there.
func TestRun(t *testing.T) {
	bin := t.TempDir()
	const makes = "rm -r pkg/generated mine\nmkdir -p artifacts/deploy/bar\necho >artifacts/deploy/bar/x\nexit $STATUS\n"
	for name, text := range map[string]string{"make": makes, "go": "exit 0\n"} {
		if err := os.WriteFile(filepath.Join(bin, name), []byte("#!/bin/sh\n"+text), 0o700); err != nil {
			t.Fatal(err)
		}
	}
	t.Setenv("PATH", bin+string(filepath.ListSeparator)+os.Getenv("PATH"))
	generated := &tree.File{Path: "pkg/generated/x.go", Mode: 0o600, Data: []byte("package x\n")}
	err := tree.InCopy(t.Context(), t.TempDir(), append(readAll(t, "Bar"), generated), func(root string) error {
		list := func() map[string]string {
			files, err := tree.List(t.Context(), root, "--cached", "--others")
			texts := map[string]string{}
			for _, f := range files {
				texts[f.Path] = string(f.Data)
			}
			if err != nil {
				t.Error(err)
			}
			return texts
		}
		if err := (&tree.File{Path: "mine", Mode: 0o600}).Write(root); err != nil {
			return err
		}
		before := list()
		t.Setenv("STATUS", "3")
		err := run(t.Context(), root, variables(nil), io.Discard)
		if err == nil || !strings.Contains(err.Error(), "generate: exit status 3") {
			t.Errorf("error %v", err)
		}
		if after := list(); !maps.Equal(before, after) {
			t.Errorf("a failure leaves other files: %d in place of %d", len(after), len(before))
		}
		t.Setenv("STATUS", "0")
		err = run(t.Context(), root, variables(nil), io.Discard)
		after := list()
		for _, path := range []string{"docs/bar.md", "artifacts/deploy/bar/x", "mine"} {
			if _, exists := after[path]; !exists {
				t.Errorf("there is no %s", path)
			}
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
}
