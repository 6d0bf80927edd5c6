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
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// modulePackage returns a package in that directory of a module.
func modulePackage(module, moduleDir, dir string) goPackage {
	p := goPackage{Dir: filepath.Join(moduleDir, dir)}
	p.Module = &struct {
		Path, Dir string
		Main      bool
	}{Path: module, Dir: moduleDir}
	return p
}

func TestLicenseFiles(t *testing.T) {
	for name, test := range map[string]struct {
		files map[string]string
		// packages are directories of the module that are linked.
		packages []string
		want     []string
		granted  bool
	}{
		"the texts at the top of a module are those of all its packages": {
			files:    map[string]string{"LICENSE": "", "NOTICE.txt": "", "PATENTS": "", "README.md": "", "a/a.go": ""},
			packages: []string{"a"},
			want:     []string{"m.example/LICENSE", "m.example/NOTICE.txt", "m.example/PATENTS"},
			granted:  true,
		},
		"copied code has its own text": {
			files:    map[string]string{"LICENSE": "", "third_party/a/COPYING": "", "third_party/a/b/b.go": ""},
			packages: []string{"third_party/a/b"},
			want:     []string{"m.example/LICENSE", "m.example/third_party/a/COPYING"},
			granted:  true,
		},
		"a directory that is not linked has none": {
			files:    map[string]string{"LICENSE": "", "a/LICENSE": "", "b/b.go": ""},
			packages: []string{"b"},
			want:     []string{"m.example/LICENSE"},
			granted:  true,
		},
		"names vary": {
			files:    map[string]string{"MIT-LICENSE.txt": "", "licence.md": "", "UNLICENSE": ""},
			packages: []string{"."},
			want:     []string{"m.example/MIT-LICENSE.txt", "m.example/UNLICENSE", "m.example/licence.md"},
			granted:  true,
		},
		"code with such a name is no text, and a notice grants nothing": {
			files:    map[string]string{"license.go": "", "NOTICE": "", "licenses.txt": ""},
			packages: []string{"."},
			want:     []string{"m.example/NOTICE"},
		},
		"a text of a directory does not grant the whole module": {
			files:    map[string]string{"a/LICENSE": ""},
			packages: []string{"a"},
			want:     []string{"m.example/a/LICENSE"},
		},
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			writeFiles(t, dir, test.files)
			var packages []goPackage
			for _, p := range test.packages {
				packages = append(packages, modulePackage("m.example", dir, p))
			}
			copies, granted := licenseFiles(packages)
			if got := slices.Sorted(maps.Keys(copies)); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
			if granted["m.example"] != test.granted {
				t.Errorf("granted is %v, want %v", granted["m.example"], test.granted)
			}
		})
	}
}

// buildProgram builds a program that links a module with these files.
func buildProgram(t *testing.T, module map[string]string) (dir, binary string) {
	t.Helper()
	dir = t.TempDir()
	writeFiles(t, dir, map[string]string{
		"go.mod":     "module p.example\n\ngo 1.26.0\n\nrequire m.example v0.0.0\n\nreplace m.example => ./m\n",
		"main.go":    "package main\n\nimport _ \"m.example\"\n\nfunc main() {}\n",
		"m/go.mod":   "module m.example\n\ngo 1.26.0\n",
		"m/m.go":     "package m\n",
		"m/m_js.go":  "package m\n\nimport _ \"m.example/js\"\n",
		"m/js/js.go": "package js\n", "m/js/LICENSE": "of another platform",
	})
	writeFiles(t, filepath.Join(dir, "m"), module)
	binary = filepath.Join(dir, "program.exe")
	t.Setenv("GOFLAGS", "-mod=mod")
	if _, err := goCommand(dir, nil, "build", "-o", binary, "."); err != nil {
		t.Fatal(err)
	}
	return dir, binary
}

func TestWriteLicenses(t *testing.T) {
	dir, binary := buildProgram(t, map[string]string{"LICENSE": "terms"})
	out := filepath.Join(t.TempDir(), "licenses")
	if err := writeLicenses(binary, dir, out); err != nil {
		t.Fatal(err)
	}
	if got, err := os.ReadFile(filepath.Join(out, "m.example", "LICENSE")); err != nil || string(got) != "terms" {
		t.Errorf("got %q, %v for the module", got, err)
	}
	if _, err := os.Stat(filepath.Join(out, "go", "LICENSE")); err != nil {
		t.Errorf("Go, which every program links: %v", err)
	}
	if _, err := os.Stat(filepath.Join(out, "m.example", "js")); !os.IsNotExist(err) {
		t.Errorf("a package of another platform: %v", err)
	}
}

func TestWriteLicensesRefusesAModuleWithoutTerms(t *testing.T) {
	dir, binary := buildProgram(t, map[string]string{"NOTICE": "no terms"})
	err := writeLicenses(binary, dir, filepath.Join(t.TempDir(), "licenses"))
	if err == nil || !strings.Contains(err.Error(), "module m.example") {
		t.Errorf("got %v, want an error that names the module", err)
	}
}
