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
	"debug/buildinfo"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

var (
	// legal matches the names of files that a distribution must have with it.
	legal = regexp.MustCompile(`^(?i)(([a-z0-9]+-)?(un)?licen[cs]e|copying|copyright|notice|patents)([._-].*)?$`)
	// terms matches those of them that grant rights.
	terms = regexp.MustCompile(`^(?i)(([a-z0-9]+-)?(un)?licen[cs]e|copying)`)
	// source matches code with such a name.
	source = regexp.MustCompile(`\.(go|s|c|h)$`)
)

// goPackage is what `go list` says of a package.
type goPackage struct {
	Dir      string
	Standard bool
	Module   *struct {
		Path, Dir string
		Main      bool
	}
}

// writeLicenses copies the licence texts of everything that the binary links to out/MODULE, and
// those of Go to out/go. The binary was built from the sources in dir.
func writeLicenses(binary, dir, out string) error {
	info, err := buildinfo.ReadFile(binary)
	if err != nil {
		return err
	}
	packages, err := linkedPackages(info, dir)
	if err != nil {
		return err
	}
	copies, granted := licenseFiles(packages)
	var problems []error
	for _, module := range info.Deps {
		if !granted[module.Path] {
			problems = append(problems, fmt.Errorf("module %s, which %s links, has no licence text (LICENSE*, COPYING*)", module.Path, filepath.Base(binary)))
		}
	}
	root, err := goCommand(dir, nil, "env", "GOROOT")
	if err != nil {
		return err
	}
	standard := legalFiles(strings.TrimSpace(string(root)))
	if !slices.ContainsFunc(standard, terms.MatchString) {
		problems = append(problems, fmt.Errorf("%s has no licence text of Go, which every binary links; use a toolchain of go.dev", strings.TrimSpace(string(root))))
	}
	for _, name := range standard {
		copies[path.Join("go", name)] = filepath.Join(strings.TrimSpace(string(root)), name)
	}
	if err := errors.Join(problems...); err != nil {
		return err
	}
	for name, from := range copies {
		if err := copyFile(filepath.Join(out, filepath.FromSlash(name)), from); err != nil {
			return err
		}
	}
	return nil
}

// linkedPackages returns the packages that a build for the platform of that binary compiles.
func linkedPackages(info *buildinfo.BuildInfo, dir string) ([]goPackage, error) {
	var platform []string
	for _, setting := range info.Settings {
		if setting.Key == "GOOS" || setting.Key == "GOARCH" {
			platform = append(platform, setting.Key+"="+setting.Value)
		}
	}
	output, err := goCommand(dir, platform, "list", "-deps", "-json=Dir,Standard,Module", ".")
	if err != nil {
		return nil, err
	}
	var packages []goPackage
	for decoder := json.NewDecoder(strings.NewReader(string(output))); ; {
		var p goPackage
		switch err := decoder.Decode(&p); {
		case errors.Is(err, io.EOF):
			return packages, nil
		case err != nil:
			return nil, err
		default:
			packages = append(packages, p)
		}
	}
}

// licenseFiles returns the legal files of modules, by MODULE/PATH, and which modules have terms.
// They are those of the directories from each package up to its module: copied code often has
// another licence than the module that it is in.
func licenseFiles(packages []goPackage) (copies map[string]string, granted map[string]bool) {
	copies, granted = map[string]string{}, map[string]bool{}
	for _, p := range packages {
		if p.Standard || p.Module == nil || p.Module.Main {
			continue
		}
		for dir := p.Dir; ; dir = filepath.Dir(dir) {
			relative, err := filepath.Rel(p.Module.Dir, dir)
			if err != nil || !filepath.IsLocal(relative) {
				break
			}
			for _, name := range legalFiles(dir) {
				copies[path.Join(p.Module.Path, filepath.ToSlash(relative), name)] = filepath.Join(dir, name)
				granted[p.Module.Path] = granted[p.Module.Path] || relative == "." && terms.MatchString(name)
			}
		}
	}
	return copies, granted
}

// legalFiles returns the names of the legal files in a directory.
func legalFiles(dir string) []string {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil
	}
	var names []string
	for _, entry := range entries {
		if name := entry.Name(); entry.Type().IsRegular() && legal.MatchString(name) && !source.MatchString(name) {
			names = append(names, name)
		}
	}
	return names
}

// goCommand returns what the go command prints in that directory.
func goCommand(dir string, environment []string, arguments ...string) ([]byte, error) {
	command := exec.Command("go", arguments...)
	command.Dir, command.Env, command.Stderr = dir, append(os.Environ(), environment...), os.Stderr
	output, err := command.Output()
	if err != nil {
		return nil, fmt.Errorf("go %s: %w", strings.Join(arguments, " "), err)
	}
	return output, nil
}

// copyFile copies the content alone: files of the module cache are read-only.
func copyFile(to, from string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}
