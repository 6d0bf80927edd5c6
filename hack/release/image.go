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
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"strings"
	"time"

	v1 "github.com/google/go-containerregistry/pkg/v1"
	"github.com/google/go-containerregistry/pkg/v1/empty"
	"github.com/google/go-containerregistry/pkg/v1/layout"
	"github.com/google/go-containerregistry/pkg/v1/mutate"
	"github.com/google/go-containerregistry/pkg/v1/tarball"
	"github.com/google/go-containerregistry/pkg/v1/types"
	"github.com/google/go-containerregistry/pkg/v1/validate"
)

// metadata is what the labels of an image say.
type metadata struct {
	program, version, revision, source string
	created                            time.Time
}

// labels returns the labels of the image, which are its annotations too.
func (m metadata) labels() map[string]string {
	labels := map[string]string{
		"org.opencontainers.image.created":  m.created.Format(time.RFC3339),
		"org.opencontainers.image.licenses": "Apache-2.0",
		"org.opencontainers.image.revision": m.revision,
		"org.opencontainers.image.title":    m.program,
		"org.opencontainers.image.version":  m.version,
	}
	if m.source != "" {
		labels["org.opencontainers.image.source"] = m.source
	}
	return labels
}

// writeImage writes an OCI layout with one index of the platforms' images. Each platform is
// OS/ARCH=DIR, where DIR has the binary, LICENSE and licenses.
func writeImage(out string, m metadata, platforms []string) error {
	index := mutate.IndexMediaType(empty.Index, types.OCIImageIndex)
	for _, platform := range platforms {
		name, dir, _ := strings.Cut(platform, "=")
		system, processor, found := strings.Cut(name, "/")
		if !found || dir == "" {
			return fmt.Errorf("%q is not OS/ARCH=DIR", platform)
		}
		image, err := newImage(m, v1.Platform{OS: system, Architecture: processor}, dir)
		if err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		index = mutate.AppendManifests(index, mutate.IndexAddendum{
			Add: image, Descriptor: v1.Descriptor{Platform: &v1.Platform{OS: system, Architecture: processor}},
		})
	}
	annotated, ok := mutate.Annotations(index, m.labels()).(v1.ImageIndex)
	if !ok {
		return errors.New("an annotated index is no index")
	}
	written, err := layout.Write(out, empty.Index)
	if err != nil {
		return err
	}
	// By this annotation tools find an image of a layout by its tag.
	tag := layout.WithAnnotations(map[string]string{"org.opencontainers.image.ref.name": m.version})
	if err := written.AppendIndex(annotated, tag); err != nil {
		return err
	}
	all, err := layout.ImageIndexFromPath(out)
	if err != nil {
		return err
	}
	return validate.Index(all)
}

// newImage returns what the Dockerfile describes, and licence texts.
func newImage(m metadata, platform v1.Platform, dir string) (v1.Image, error) {
	licenses := tree{"licenses/LICENSE": filepath.Join(dir, "LICENSE")}
	if err := licenses.add("licenses", filepath.Join(dir, "licenses")); err != nil {
		return nil, err
	}
	image := mutate.ConfigMediaType(mutate.MediaType(empty.Image, types.OCIManifestSchema1), types.OCIConfigJSON)
	for _, content := range []struct {
		files   tree
		comment string
	}{
		{licenses, "licence texts"},
		{tree{m.program: filepath.Join(dir, m.program)}, "the program"},
	} {
		layer, err := newLayer(content.files, m.created)
		if err != nil {
			return nil, err
		}
		history := v1.History{Created: v1.Time{Time: m.created}, Comment: content.comment}
		if image, err = mutate.Append(image, mutate.Addendum{Layer: layer, History: history}); err != nil {
			return nil, err
		}
	}
	config, err := image.ConfigFile()
	if err != nil {
		return nil, err
	}
	config = config.DeepCopy()
	config.OS, config.Architecture, config.Created = platform.OS, platform.Architecture, v1.Time{Time: m.created}
	config.Config = v1.Config{User: "65532:65532", Entrypoint: []string{path.Join("/", m.program)}, WorkingDir: "/", Labels: maps.Clone(m.labels())}
	if image, err = mutate.ConfigFile(image, config); err != nil {
		return nil, err
	}
	annotated, ok := mutate.Annotations(image, m.labels()).(v1.Image)
	if !ok {
		return nil, errors.New("an annotated image is no image")
	}
	return annotated, nil
}

// newLayer returns a layer with these files.
func newLayer(files tree, at time.Time) (v1.Layer, error) {
	var packed bytes.Buffer
	if err := files.write(&packed, at); err != nil {
		return nil, err
	}
	open := func() (io.ReadCloser, error) {
		return io.NopCloser(bytes.NewReader(packed.Bytes())), nil
	}
	return tarball.LayerFromOpener(open, tarball.WithMediaType(types.OCILayer),
		tarball.WithCompressionLevel(gzip.BestCompression), tarball.WithCompressedCaching)
}
