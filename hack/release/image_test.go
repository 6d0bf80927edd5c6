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
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// testImage writes a layout for two platforms.
func testImage(t *testing.T) string {
	t.Helper()
	work, out := t.TempDir(), filepath.Join(t.TempDir(), "layout")
	var platforms []string
	for _, platform := range []string{"linux/amd64", "linux/arm64"} {
		dir := filepath.Join(work, filepath.Base(platform))
		writeFiles(t, dir, map[string]string{"program": "for " + platform, "LICENSE": "ours", "licenses/m.example/LICENSE": "theirs"})
		platforms = append(platforms, platform+"="+dir)
	}
	m := metadata{program: "program", version: "v1.2.3", revision: "0123", source: "https://example.com/program", created: commitTime}
	if err := writeImage(out, m, platforms); err != nil {
		t.Fatal(err)
	}
	return out
}

// index returns the only index of a layout.
func index(t *testing.T, dir string) v1.ImageIndex {
	t.Helper()
	all, err := layout.ImageIndexFromPath(dir)
	if err != nil {
		t.Fatal(err)
	}
	manifest, err := all.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	if len(manifest.Manifests) != 1 || manifest.Manifests[0].Annotations["org.opencontainers.image.ref.name"] != "v1.2.3" {
		t.Fatalf("the layout has %+v, want one index with the version as its tag", manifest.Manifests)
	}
	found, err := all.ImageIndex(manifest.Manifests[0].Digest)
	if err != nil {
		t.Fatal(err)
	}
	return found
}

func TestWriteImageIsALayoutOfAllPlatforms(t *testing.T) {
	images := index(t, testImage(t))
	if err := validate.Index(images); err != nil {
		t.Error(err)
	}
	manifest, err := images.IndexManifest()
	if err != nil {
		t.Fatal(err)
	}
	var got []string
	for _, descriptor := range manifest.Manifests {
		image, err := images.Image(descriptor.Digest)
		if err != nil {
			t.Fatal(err)
		}
		config, err := image.ConfigFile()
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, config.OS+"/"+config.Architecture)
		if descriptor.Platform.Architecture != config.Architecture {
			t.Errorf("the index says %v of an image for %s", descriptor.Platform, config.Architecture)
		}
		if config.Config.User != "65532:65532" || !slices.Equal(config.Config.Entrypoint, []string{"/program"}) {
			t.Errorf("the image runs %q as %q", config.Config.Entrypoint, config.Config.User)
		}
		if labels := config.Config.Labels; labels["org.opencontainers.image.revision"] != "0123" || labels["org.opencontainers.image.source"] != "https://example.com/program" {
			t.Errorf("the labels are %v", labels)
		}
		want := []string{"licenses/", "licenses/LICENSE", "licenses/m.example/", "licenses/m.example/LICENSE", "program: for " + config.OS + "/" + config.Architecture}
		if files := imageFiles(t, image); !slices.Equal(files, want) {
			t.Errorf("got the files %q, want %q", files, want)
		}
	}
	if want := []string{"linux/amd64", "linux/arm64"}; !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}

// imageFiles returns the files of all layers, and what the program has in it.
func imageFiles(t *testing.T, image v1.Image) []string {
	t.Helper()
	layers, err := image.Layers()
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, layer := range layers {
		unpacked, err := layer.Uncompressed()
		if err != nil {
			t.Fatal(err)
		}
		defer unpacked.Close()
		for archive := tar.NewReader(unpacked); ; {
			header, err := archive.Next()
			if errors.Is(err, io.EOF) {
				break
			}
			if err != nil {
				t.Fatal(err)
			}
			name := header.Name
			if name == "program" {
				content, err := io.ReadAll(archive)
				if err != nil {
					t.Fatal(err)
				}
				name += ": " + string(content)
			}
			names = append(names, name)
		}
	}
	return names
}

func TestWriteImageTwiceGivesTheSameBytes(t *testing.T) {
	one, other := packed(t, testImage(t), "image.tar"), packed(t, testImage(t), "image.tar")
	if !slices.Equal(one, other) {
		t.Error("two layouts of the same files differ")
	}
}

func TestWriteImageRefusesAPlatformWithoutFiles(t *testing.T) {
	for _, platform := range []string{"linux/amd64", "linux=dir", "linux/amd64="} {
		err := writeImage(filepath.Join(t.TempDir(), "layout"), metadata{}, []string{platform})
		if err == nil || !strings.Contains(err.Error(), "OS/ARCH=DIR") {
			t.Errorf("%q: got %v", platform, err)
		}
	}
	err := writeImage(filepath.Join(t.TempDir(), "layout"), metadata{program: "program"}, []string{"linux/amd64=" + t.TempDir()})
	if !errors.Is(err, os.ErrNotExist) {
		t.Errorf("an empty directory: got %v", err)
	}
}
