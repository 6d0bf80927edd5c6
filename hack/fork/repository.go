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
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
)

// original is the component that every fork drops: the fork command itself, and what is true
// of this repository only.
const original = "fork"

// component is a part of the repository that a fork can drop.
type component struct {
	// name is the name in DROP. A file or directory belongs to the component if the name, one
	// of the aliases, or the plural of these is one of the words of its path.
	name    string
	aliases []string
	// folders are the folders that belong to it under other names.
	folders []string
	// code matches what names the component in Go: identifiers, and text in strings.
	code *regexp.Regexp
	// text matches what names it in other files, nil for nothing.
	text *regexp.Regexp
	// kind is the kind of a sibling, kinds its plural.
	kind, kinds string
}

// repository is what a fork is made from.
type repository struct {
	names

	root       string
	components []component
}

// openRepository returns the repository in root. Its siblings are the kinds that have a
// manifest artifacts/examples/NAME-crd.yaml.
func openRepository(root string) (*repository, error) {
	root, err := filepath.EvalSymlinks(root)
	if err != nil {
		return nil, err
	}
	own, err := readNames(root)
	if err != nil {
		return nil, err
	}
	r := &repository{names: *own, root: root}
	manifests, err := filepath.Glob(filepath.Join(root, "artifacts/examples/*-crd.yaml"))
	if err != nil {
		return nil, err
	}
	for _, manifest := range manifests {
		sibling, err := r.sibling(manifest)
		if err != nil {
			return nil, err
		}
		r.components = append(r.components, *sibling)
	}
	api := path.Join("pkg/apis", own.groupPackage)
	r.components = append(r.components, component{
		name: "webhooks", folders: []string{path.Join(api, own.nextVersion), path.Join(api, "conversion")},
		code: regexp.MustCompile(`^webhook|Webhook|--webhook`),
		text: regexp.MustCompile(`--webhook|WEBHOOK|webhook-certificate|pkg/webhook|deploy/webhook|webhook(?:-alerts)?\.yaml|webhooks\.md`),
	}, component{name: original, aliases: []string{"tutorial"}, folders: []string{"docs/from-stock.md", "docs/from-kubebuilder.md"}, code: regexp.MustCompile(`^$`)})
	return r, nil
}

func (r *repository) sibling(manifest string) (*component, error) {
	c, err := readCRD(manifest)
	if err != nil {
		return nil, err
	}
	folder, err := groupFolder(r.root, c.Spec.Group)
	if err != nil {
		return nil, err
	}
	folder, err = filepath.Rel(r.root, folder)
	if err != nil {
		return nil, err
	}
	all := c.Spec.Names
	named := regexp.MustCompile("(?i)" + all.Singular + "|" + regexp.QuoteMeta(c.Spec.Group))
	return &component{
		name: all.Singular, folders: []string{filepath.ToSlash(folder)}, code: named, text: named,
		kind: all.Kind, kinds: pluralOf(all.Kind, all.Plural),
	}, nil
}

// pathWords splits a path into words.
var pathWords = regexp.MustCompile(`[/._-]+`)

// owns reports whether the file or folder belongs to the component.
func (c *component) owns(name string) bool {
	for _, folder := range c.folders {
		if name == folder || strings.HasPrefix(name, folder+"/") {
			return true
		}
	}
	return slices.ContainsFunc(pathWords.Split(name, -1), func(word string) bool {
		word = strings.TrimSuffix(word, "s")
		return word == strings.TrimSuffix(c.name, "s") || slices.Contains(c.aliases, word)
	})
}

// isKept reports whether the folder exists and belongs to a component that is not dropped.
func (r *repository) isKept(folder string, drop []string) bool {
	return slices.ContainsFunc(r.components, func(c component) bool {
		return slices.Contains(c.folders, folder) && !slices.Contains(drop, c.name)
	})
}

// isKind reports whether the kind is that of a sibling that is not dropped.
func (r *repository) isKind(kind string, drop []string) bool {
	return slices.ContainsFunc(r.components, func(c component) bool {
		return strings.EqualFold(c.kind, kind) && !slices.Contains(drop, c.name)
	})
}

// file is a file of the fork. The data of a symbolic link are its target.
type file struct {
	path string
	mode fs.FileMode
	data []byte
}

// isGo reports whether the file is Go source.
func (f *file) isGo() bool {
	return strings.HasSuffix(f.path, ".go")
}

// write writes the file below that directory.
func (f *file) write(root string) error {
	full := filepath.Join(root, f.path)
	if err := os.MkdirAll(filepath.Dir(full), 0o755); err != nil {
		return err
	}
	if f.mode&fs.ModeSymlink != 0 {
		return os.Symlink(string(f.data), full)
	}
	return os.WriteFile(full, f.data, f.mode.Perm())
}

// generated are the files that `make generate` writes anew, and does not read.
var generated = regexp.MustCompile(`^pkg/generated/|/zz_generated\.[^/]*$|^artifacts/deploy/(install[^/]*|policy(-users)?/[^/]*)\.yaml$|^artifacts/examples/([^/]+-)?crd\.yaml$|^docs/api\.md$`)

// environment returns the variables for commands, without those that tie git to another
// repository, as a hook or `git rebase --exec` sets them.
func environment() []string {
	return slices.DeleteFunc(os.Environ(), func(variable string) bool {
		name, _, _ := strings.Cut(variable, "=")
		return slices.Contains([]string{"GIT_DIR", "GIT_WORK_TREE", "GIT_INDEX_FILE", "GIT_OBJECT_DIRECTORY", "GIT_COMMON_DIR"}, name)
	})
}

// readFiles returns the files that git tracks, as they are in the working tree, without those
// that are generated. Files that are not tracked may be the user's own, with secrets in them.
func (r *repository) readFiles() ([]*file, error) {
	list := exec.Command("git", "-C", r.root, "ls-files", "-z", "--cached", "--deduplicate")
	list.Env = environment()
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing the files with git: %w", err)
	}
	var files []*file
	for name := range strings.SplitSeq(strings.TrimSuffix(string(output), "\x00"), "\x00") {
		if generated.MatchString(name) {
			continue
		}
		full := filepath.Join(r.root, name)
		info, err := os.Lstat(full)
		if errors.Is(err, fs.ErrNotExist) {
			// It is deleted, but not yet in the index.
			continue
		}
		if err != nil {
			return nil, err
		}
		read := os.ReadFile
		if info.Mode()&fs.ModeSymlink != 0 {
			read = func(name string) ([]byte, error) {
				target, err := os.Readlink(name)
				return []byte(target), err
			}
		}
		data, err := read(full)
		if err != nil {
			return nil, err
		}
		files = append(files, &file{name, info.Mode(), data})
	}
	return files, nil
}

// readRegister returns the generated file that declares names beside those of the first kind.
func (r *repository) readRegister() (*file, error) {
	name := path.Join("pkg/apis", r.groupPackage, r.version, "zz_generated.register.go")
	data, err := os.ReadFile(filepath.Join(r.root, name))
	return &file{path: name, data: data}, err
}
