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
	"fmt"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"k8s.io/apimachinery/pkg/util/yaml"

	"example.com/sample-controller/hack/naming"
)

// names are what a repository and its first kind are called.
type names struct {
	module, program string
	group, version  string
	// groupPackage is the folder of the group below pkg/apis.
	groupPackage string
	// nextVersion is the version that the webhooks serve beside the stored one.
	nextVersion string
	// kinds is the plural of kind in Go, plural that in lower case.
	kind, kinds, plural string
}

// crd has the fields of a CustomResourceDefinition that name a kind.
type crd struct {
	Spec struct {
		Group string
		Names struct {
			Kind, Plural, Singular string
		}
		Versions []struct {
			Name    string
			Storage bool
		}
	}
}

func readCRD(file string) (*crd, error) {
	data, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	c := &crd{}
	if err := yaml.Unmarshal(data, c); err != nil {
		return nil, fmt.Errorf("decoding %s: %w", file, err)
	}
	return c, nil
}

// readNames returns the names of the repository in root.
func readNames(root string) (*names, error) {
	modfile, err := os.ReadFile(filepath.Join(root, "go.mod"))
	if err != nil {
		return nil, err
	}
	first, err := readCRD(filepath.Join(root, "artifacts/examples/crd.yaml"))
	if err != nil {
		return nil, err
	}
	spec := first.Spec
	n := &names{group: spec.Group, kind: spec.Names.Kind, kinds: pluralOf(spec.Names.Kind, spec.Names.Plural), plural: spec.Names.Plural}
	if match := regexp.MustCompile(`(?m)^module (\S+)$`).FindSubmatch(modfile); match != nil {
		n.module = string(match[1])
		n.program = path.Base(n.module)
	}
	for _, version := range spec.Versions {
		if version.Storage {
			n.version = version.Name
		}
	}
	folder, err := groupFolder(root, n.group)
	if err != nil {
		return nil, err
	}
	n.groupPackage = filepath.Base(folder)
	versions, err := filepath.Glob(filepath.Join(folder, "v*"))
	if err != nil {
		return nil, err
	}
	for _, version := range versions {
		if name := filepath.Base(version); name != n.version {
			n.nextVersion = name
		}
	}
	return n, nil
}

// groupFolder returns the folder below pkg/apis whose packages have the marker of the group.
func groupFolder(root, group string) (string, error) {
	docs, err := filepath.Glob(filepath.Join(root, "pkg/apis/*/*/doc.go"))
	if err != nil {
		return "", err
	}
	for _, doc := range docs {
		data, err := os.ReadFile(doc)
		if err != nil {
			return "", err
		}
		if slices.Contains(strings.Split(string(data), "\n"), "// +groupName="+group) {
			return filepath.Dir(filepath.Dir(doc)), nil
		}
	}
	return "", fmt.Errorf("no doc.go below pkg/apis has the marker +groupName=%s", group)
}

// pluralOf returns the plural that the generated code has for a kind whose plural in lower case
// is given.
func pluralOf(kind, plural string) string {
	if regular := naming.Plural(kind); plural == "" || plural == strings.ToLower(regular) {
		return regular
	}
	return naming.UpperFirst(plural)
}

// camel returns the words of a DNS label in camel case.
func camel(label string) string {
	var camel strings.Builder
	for word := range strings.SplitSeq(label, "-") {
		if word != "" {
			camel.WriteString(naming.UpperFirst(word))
		}
	}
	return camel.String()
}

// versionForm is the form of a version that kubectl can order.
var versionForm = regexp.MustCompile(`^v([1-9][0-9]*)(?:(alpha|beta)[1-9][0-9]*)?$`)

// following returns the version that API servers prefer to this one: v1beta1 after v1alpha1,
// v1 after v1beta1 and v2 after v1.
func following(version string) string {
	match := versionForm.FindStringSubmatch(version)
	switch match[2] {
	case "alpha":
		return "v" + match[1] + "beta1"
	case "beta":
		return "v" + match[1]
	default:
		major, _ := strconv.Atoi(match[1])
		return fmt.Sprintf("v%d", major+1)
	}
}
