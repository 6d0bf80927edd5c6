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
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"testing"

	intoto "github.com/in-toto/attestation/go/v1"
	"google.golang.org/protobuf/encoding/protojson"
)

// provenanceOf returns the provenance of a release with these files.
func provenanceOf(t *testing.T, files map[string]string) []byte {
	t.Helper()
	dir, out := t.TempDir(), filepath.Join(t.TempDir(), "provenance.json")
	writeFiles(t, dir, files)
	o := origin{
		metadata: metadata{version: "v1.2.3", revision: "0123456789012345678901234567890123456789", source: "https://example.com/program"},
		module:   "example.com/program", image: "registry.example.com/program", platforms: "linux/amd64 linux/arm64", toolchain: "go1.26.0",
	}
	if err := writeProvenance(out, dir, o); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(out)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func TestWriteProvenance(t *testing.T) {
	data := provenanceOf(t, map[string]string{"b.tar.gz": "b", "a.yaml": ""})
	var statement intoto.Statement
	if err := protojson.Unmarshal(data, &statement); err != nil {
		t.Fatal(err)
	}
	if err := statement.Validate(); err != nil {
		t.Error(err)
	}
	var subjects []string
	for _, subject := range statement.GetSubject() {
		subjects = append(subjects, subject.GetName()+" "+subject.GetDigest()["sha256"])
	}
	want := []string{
		"a.yaml e3b0c44298fc1c149afbf4c8996fb92427ae41e4649b934ca495991b7852b855",
		"b.tar.gz 3e23e8160039594a33894f6564e1b1348bbd7a0088d42c4acb73eeaed59c009d",
	}
	if !slices.Equal(subjects, want) {
		t.Errorf("got the subjects %q, want %q", subjects, want)
	}
	var got bytes.Buffer
	if err := json.Indent(&got, data, "", "  "); err != nil || !bytes.Equal(got.Bytes(), data) {
		t.Errorf("the spaces are not those of json.Indent: %v\n%s", err, data)
	}
}

func TestWriteProvenanceSaysWhatItTakesToReproduce(t *testing.T) {
	var statement struct {
		Predicate struct {
			BuildDefinition struct {
				BuildType            string
				ExternalParameters   map[string]any
				InternalParameters   map[string]any
				ResolvedDependencies []struct {
					URI    string
					Digest map[string]string
				}
			}
		}
	}
	if err := json.Unmarshal(provenanceOf(t, map[string]string{"a": ""}), &statement); err != nil {
		t.Fatal(err)
	}
	build := statement.Predicate.BuildDefinition
	if build.BuildType != "https://example.com/program/release/v1" {
		t.Errorf("the type is %s", build.BuildType)
	}
	if got := build.ExternalParameters; got["version"] != "v1.2.3" || got["image"] != "registry.example.com/program" || len(got["platforms"].([]any)) != 2 {
		t.Errorf("the parameters are %v", got)
	}
	if build.InternalParameters["go"] != "go1.26.0" {
		t.Errorf("the toolchain is %v", build.InternalParameters)
	}
	source := build.ResolvedDependencies[0]
	if source.URI != "git+https://example.com/program" || source.Digest["gitCommit"] != "0123456789012345678901234567890123456789" {
		t.Errorf("the source is %v", source)
	}
}

func TestWriteProvenanceRefusesNoFiles(t *testing.T) {
	if err := writeProvenance(filepath.Join(t.TempDir(), "provenance.json"), t.TempDir(), origin{}); err == nil {
		t.Error("got no error for a release without files")
	}
}
