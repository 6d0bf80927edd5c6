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
	"compress/gzip"
	"errors"
	"io"
	"io/fs"
	"maps"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strings"
	"time"
)

// tree maps names in an archive to files and directories on the disk.
type tree map[string]string

// add adds what is below dir, under that name.
func (t tree) add(name, dir string) error {
	return filepath.WalkDir(dir, func(file string, _ fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(dir, file)
		if err != nil {
			return err
		}
		if within := path.Join(name, filepath.ToSlash(relative)); within != "." {
			t[within] = file
		}
		return nil
	})
}

// write writes a tar archive that depends only on the names, the contents, the execute bits and
// the time: sorted, owned by root, with modes that no umask changes.
func (t tree) write(w io.Writer, at time.Time) error {
	archive := tar.NewWriter(w)
	for _, name := range slices.Sorted(maps.Keys(t)) {
		if err := writeEntry(archive, name, t[name], at); err != nil {
			return err
		}
	}
	return archive.Close()
}

func writeEntry(archive *tar.Writer, name, file string, at time.Time) error {
	info, err := os.Stat(file)
	if err != nil {
		return err
	}
	header := &tar.Header{Typeflag: tar.TypeReg, Name: name, Mode: 0o644, ModTime: at, Size: info.Size()}
	if info.Mode().Perm()&0o100 != 0 {
		header.Mode = 0o755
	}
	if info.IsDir() {
		header.Typeflag, header.Name, header.Size = tar.TypeDir, name+"/", 0
		return archive.WriteHeader(header)
	}
	if err := archive.WriteHeader(header); err != nil {
		return err
	}
	source, err := os.Open(file)
	if err != nil {
		return err
	}
	defer source.Close()
	_, err = io.Copy(archive, source)
	return err
}

// pack writes the archive of a directory, compressed if its name ends in gz. Such archives (.tar.gz,
// and .tgz of a chart) begin with the name of the directory; a layout of an image must not.
func pack(out, dir string, at time.Time) (err error) {
	files, compressed, name := tree{}, strings.HasSuffix(out, "gz"), "."
	if compressed {
		name = filepath.Base(dir)
	}
	if err := files.add(name, dir); err != nil {
		return err
	}
	file, err := os.Create(out)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, file.Close()) }()
	if !compressed {
		return files.write(file, at)
	}
	// Its header has neither a name nor a time.
	w, err := gzip.NewWriterLevel(file, gzip.BestCompression)
	if err != nil {
		return err
	}
	if err := files.write(w, at); err != nil {
		return err
	}
	return w.Close()
}
