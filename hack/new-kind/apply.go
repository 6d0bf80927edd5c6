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
	"cmp"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// apply writes the files into a copy of the repository, generates and checks everything there,
// and then copies what has changed into the repository.
func apply(ctx context.Context, repo *repository, k *kind, files map[string][]byte) error {
	temp, err := os.MkdirTemp("", "new-kind-")
	if err != nil {
		return err
	}
	defer func() { _ = os.RemoveAll(temp) }()
	before, err := readTree(repo.root)
	if err != nil {
		return err
	}
	for _, tree := range []map[string][]byte{before, files} {
		if err := writeTree(temp, repo.root, tree); err != nil {
			return err
		}
	}
	for _, command := range [][]string{
		{"make", "generate"},
		{"go", "vet", ".", "./pkg/apis/...", "./pkg/controller/" + k.Singular},
	} {
		if err := execute(ctx, repo.root, temp, command...); err != nil {
			return fmt.Errorf("nothing was changed: %w", err)
		}
	}
	after, err := readTree(temp)
	if err != nil {
		return err
	}
	// A signal from here on changes nothing: an install that ends half-way would leave a mixture.
	return install(repo.root, temp, before, after)
}

// readTree returns the files of the repository, without what git does not know or what was built.
func readTree(root string) (map[string][]byte, error) {
	files := map[string][]byte{}
	err := filepath.WalkDir(root, func(path string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name, err := filepath.Rel(root, path)
		switch {
		case err != nil:
			return err
		case entry.IsDir() && slices.Contains([]string{".git", "bin", ".cluster"}, name):
			return fs.SkipDir
		case name == ".git" || !entry.Type().IsRegular():
			return nil
		}
		files[name], err = os.ReadFile(path)
		return err
	})
	return files, err
}

// writeTree writes the files below dir, with the modes that they have below root.
func writeTree(dir, root string, files map[string][]byte) error {
	for name, content := range files {
		mode := fs.FileMode(0o644)
		if info, err := os.Stat(filepath.Join(root, name)); err == nil {
			mode = info.Mode()
		}
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(path, content, mode); err != nil {
			return err
		}
	}
	return nil
}

// execute runs a command in the copy. It prints the output only if the command fails.
func execute(ctx context.Context, root, dir string, command ...string) error {
	fmt.Println("==>", strings.Join(command, " "))
	cmd := exec.CommandContext(ctx, command[0], command[1:]...)
	cmd.Dir = dir
	// The scripts clean up at a SIGTERM.
	cmd.Cancel = func() error { return cmd.Process.Signal(syscall.SIGTERM) }
	cmd.WaitDelay = 10 * time.Second
	// The generators are those that the repository has built already.
	generators := cmp.Or(os.Getenv("CODEGEN_GOBIN"), filepath.Join(root, "bin/codegen"))
	cmd.Env = append(os.Environ(), "CODEGEN_GOBIN="+generators, "GOWORK=off", "GOFLAGS="+os.Getenv("GOFLAGS")+" -buildvcs=false")
	if output, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("%s: %w\n%s", strings.Join(command, " "), err, output)
	}
	return nil
}

// install makes the repository have the files after in place of those before. If that fails it
// restores what it has changed.
func install(root, from string, before, after map[string][]byte) error {
	changed := map[string][]byte{}
	for name, content := range after {
		if old, existed := before[name]; !existed || !bytes.Equal(old, content) {
			changed[name] = content
		}
	}
	if err := writeTree(root, from, changed); err != nil {
		return errors.Join(err, restore(root, before, changed))
	}
	for name := range before {
		if _, kept := after[name]; !kept {
			if err := os.Remove(filepath.Join(root, name)); err != nil {
				return errors.Join(err, restore(root, before, changed))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(changed)) {
		if _, existed := before[name]; !existed && !strings.HasPrefix(name, "pkg/generated/") {
			fmt.Println("   ", name)
		}
	}
	return nil
}

// restore undoes the writes of install.
func restore(root string, before, changed map[string][]byte) error {
	var failures []error
	old := map[string][]byte{}
	for name := range changed {
		if content, existed := before[name]; existed {
			old[name] = content
			continue
		}
		path := filepath.Join(root, name)
		if _, err := os.Lstat(path); err == nil {
			failures = append(failures, os.Remove(path))
		}
	}
	return errors.Join(append(failures, writeTree(root, root, old))...)
}
