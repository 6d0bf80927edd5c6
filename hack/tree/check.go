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

package tree

import (
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"regexp"
	"strings"
)

// emptyPackages imports packages without their names.
type emptyPackages struct{}

// Import implements types.Importer.
func (emptyPackages) Import(name string) (*types.Package, error) {
	base := path.Base(name)
	if majorVersion.MatchString(name) && !strings.Contains(name, "/apis/") && !strings.HasPrefix(name, "k8s.io/api/") {
		base = path.Base(path.Dir(name))
	}
	imported := types.NewPackage(name, base)
	imported.MarkComplete()
	return imported, nil
}

var majorVersion = regexp.MustCompile(`/v[0-9]+$`)

// nameError matches the errors of go/types about names that a package declares itself.
var nameError = regexp.MustCompile(`^(undefined: \w+$|\w+ redeclared|\S+ already declared|duplicate |no new variables|declared and not used|field and method|\w+ is not a type)`)

// NameErrors returns what is wrong with the names in each package of the files. What they import
// is not there, so errors about it do not count.
func NameErrors(files []*File) (all []string, err error) {
	set, packages := token.NewFileSet(), map[string][]*ast.File{}
	for _, f := range files {
		if path.Ext(f.Path) == ".go" {
			syntax, err := parser.ParseFile(set, f.Path, f.Data, parser.SkipObjectResolution)
			if err != nil {
				return nil, err
			}
			name := path.Dir(f.Path) + " " + syntax.Name.Name
			packages[name] = append(packages[name], syntax)
		}
	}
	config := types.Config{Importer: emptyPackages{}, Error: func(err error) {
		if problem := (types.Error{}); errors.As(err, &problem) && nameError.MatchString(problem.Msg) && problem.Msg != "undefined: GroupName" {
			// GroupName is generated.
			all = append(all, err.Error())
		}
	}}
	for name, syntax := range packages {
		// Its error is one of those above.
		_, _ = config.Check(name, set, syntax, nil)
	}
	return all, nil
}
