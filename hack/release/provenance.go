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
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"

	provenance "github.com/in-toto/attestation/go/predicates/provenance/v1"
	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/types/known/structpb"
)

// origin is what a release was made from.
type origin struct {
	metadata
	// module is the path of the Go module, after which the build and its program are named.
	module string
	// image and platforms are the other parameters of hack/release.sh.
	image, platforms string
	// toolchain is the version of Go.
	toolchain string
}

// writeProvenance writes an in-toto statement with a SLSA provenance of the files in dir. It has
// neither times nor names of machines, so that everyone who makes the release gets the same one.
func writeProvenance(out, dir string, o origin) error {
	subjects, err := digests(dir)
	if err != nil {
		return err
	}
	p, err := o.provenance()
	if err != nil {
		return err
	}
	if err := p.Validate(); err != nil {
		return err
	}
	predicate := &structpb.Struct{}
	if err := convert(p, predicate); err != nil {
		return err
	}
	statement := &intoto.Statement{
		Type:          intoto.StatementTypeUri,
		Subject:       subjects,
		PredicateType: "https://slsa.dev/provenance/v1",
		Predicate:     predicate,
	}
	if err := statement.Validate(); err != nil {
		return err
	}
	encoded, err := protojson.Marshal(statement)
	if err != nil {
		return err
	}
	// protojson varies its spaces on purpose.
	var plain any
	if err := json.Unmarshal(encoded, &plain); err != nil {
		return err
	}
	indented, err := json.MarshalIndent(plain, "", "  ")
	if err != nil {
		return err
	}
	return os.WriteFile(out, append(indented, '\n'), 0o644)
}

// provenance returns what docs/release.md describes under "Provenance".
func (o origin) provenance() (*provenance.Provenance, error) {
	var platforms []any
	for _, platform := range strings.Fields(o.platforms) {
		platforms = append(platforms, platform)
	}
	external, err := structpb.NewStruct(map[string]any{"version": o.version, "image": o.image, "platforms": platforms})
	if err != nil {
		return nil, err
	}
	internal, err := structpb.NewStruct(map[string]any{"go": o.toolchain})
	if err != nil {
		return nil, err
	}
	source := &intoto.ResourceDescriptor{Name: "source", Digest: map[string]string{"gitCommit": o.revision}}
	if o.source != "" {
		source.Uri = "git+" + o.source
	}
	return &provenance.Provenance{
		BuildDefinition: &provenance.BuildDefinition{
			BuildType:            "https://" + o.module + "/release/v1",
			ExternalParameters:   external,
			InternalParameters:   internal,
			ResolvedDependencies: []*intoto.ResourceDescriptor{source, {Name: "go", Uri: "pkg:golang/std@" + o.toolchain}},
		},
		RunDetails: &provenance.RunDetails{Builder: &provenance.Builder{Id: "https://" + o.module + "/hack/release.sh"}},
	}, nil
}

// digests returns the files of a directory with their SHA-256 sums, by name.
func digests(dir string) ([]*intoto.ResourceDescriptor, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []*intoto.ResourceDescriptor
	for _, entry := range entries {
		data, err := os.ReadFile(filepath.Join(dir, entry.Name()))
		if err != nil {
			return nil, err
		}
		sum := sha256.Sum256(data)
		files = append(files, &intoto.ResourceDescriptor{
			Name: entry.Name(), Digest: map[string]string{"sha256": hex.EncodeToString(sum[:])},
		})
	}
	return files, nil
}

// convert copies a message to one that has the same JSON.
func convert(from, to proto.Message) error {
	encoded, err := protojson.Marshal(from)
	if err != nil {
		return err
	}
	return protojson.Unmarshal(encoded, to)
}
