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
	"archive/tar"
	"bytes"
	"compress/gzip"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"
)

// commitTime is the time of all files of a release.
var commitTime = time.Date(2026, time.March, 1, 12, 0, 0, 0, time.UTC)

// writeFiles writes files with these contents below dir. A program has execute bits.
func writeFiles(t *testing.T, dir string, files map[string]string) {
	t.Helper()
	for name, content := range files {
		file := filepath.Join(dir, filepath.FromSlash(name))
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		mode := os.FileMode(0o644)
		if filepath.Base(name) == "program" {
			mode = 0o755
		}
		if err := os.WriteFile(file, []byte(content), mode); err != nil {
			t.Fatal(err)
		}
	}
}

// packed returns the archive of a directory.
func packed(t *testing.T, dir, name string) []byte {
	t.Helper()
	out := filepath.Join(t.TempDir(), name)
	if err := pack(out, dir, commitTime); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestPackDependsOnlyOnNamesAndContents(t *testing.T) {
	files := map[string]string{"program": "binary", "LICENSE": "terms", "licenses/a.example/b/LICENSE": "more terms"}
	one, other := filepath.Join(t.TempDir(), "name"), filepath.Join(t.TempDir(), "name")
	writeFiles(t, one, files)
	for _, name := range slices.Backward(slices.Sorted(maps.Keys(files))) {
		writeFiles(t, other, map[string]string{name: files[name]})
	}
	// As with another umask, another day.
	for file, mode := range map[string]os.FileMode{"program": 0o700, "LICENSE": 0o600, "licenses": 0o700} {
		if err := os.Chmod(filepath.Join(other, file), mode); err != nil {
			t.Fatal(err)
		}
		if err := os.Chtimes(filepath.Join(other, file), time.Unix(0, 0), time.Unix(0, 0)); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"a.tar", "a.tar.gz", "a.tgz"} {
		if !bytes.Equal(packed(t, one, name), packed(t, other, name)) {
			t.Errorf("%s differs for the same files in another directory", name)
		}
	}
}

func TestPackNamesFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "name")
	writeFiles(t, dir, map[string]string{"program": "binary", "sub/LICENSE": "terms"})
	for name, test := range map[string]struct {
		file string
		want []string
	}{
		"a release begins with its directory":  {"a.tar.gz", []string{"name/ 755", "name/program 755", "name/sub/ 755", "name/sub/LICENSE 644"}},
		"a layout has its files at the top":    {"a.tar", []string{"program 755", "sub/ 755", "sub/LICENSE 644"}},
		"a chart has its files in a directory": {"a.tgz", []string{"name/ 755", "name/program 755", "name/sub/ 755", "name/sub/LICENSE 644"}},
	} {
		t.Run(name, func(t *testing.T) {
			if got := entries(t, packed(t, dir, test.file)); !slices.Equal(got, test.want) {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}

// entries returns the names and modes in an archive, and checks owners and times.
func entries(t *testing.T, data []byte) []string {
	t.Helper()
	var source io.Reader = bytes.NewReader(data)
	if unpacked, err := gzip.NewReader(bytes.NewReader(data)); err == nil {
		source = unpacked
		if !unpacked.ModTime.IsZero() || unpacked.Name != "" {
			t.Errorf("the gzip header has the time %v and the name %q", unpacked.ModTime, unpacked.Name)
		}
	}
	var names []string
	for archive := tar.NewReader(source); ; {
		header, err := archive.Next()
		if err == io.EOF {
			return names
		}
		if err != nil {
			t.Fatal(err)
		}
		if header.Uid != 0 || header.Gid != 0 || header.Uname != "" || !header.ModTime.Equal(commitTime) {
			t.Errorf("%s has the owner %d:%d %q and the time %v", header.Name, header.Uid, header.Gid, header.Uname, header.ModTime)
		}
		mode := "644"
		if header.Mode == 0o755 {
			mode = "755"
		}
		names = append(names, header.Name+" "+mode)
	}
}
