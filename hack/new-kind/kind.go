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
	"path/filepath"
	"slices"
	"strings"
	"unicode"

	"example.com/sample-controller/hack/naming"
)

// kind is what the templates know of the kind to add.
type kind struct {
	Header, Module, Program string

	Group, Version, Kind, Plural, Singular, Short string
	Owned                                         owned
	External                                      bool
	// Irregular says that the generators would make another plural.
	Irregular bool

	// APIDir is the directory of the group below pkg/apis, GroupGoName the marker that gives it
	// another name in methods, "" if it needs none.
	APIDir, GroupGoName string
	// NewVersion says that the package of the version does not exist yet.
	NewVersion bool
	// GroupGo, VersionGo and GoPlural are the names in methods of the clients.
	GroupGo, VersionGo, GoPlural string
	// Var and VarPlural are names of variables, Receiver that of a receiver.
	Var, VarPlural, Receiver string
	// Rule is the letter of the rules in the contract.
	Rule string
}

// newKind returns the kind, or an error if the repository has it already.
func newKind(in input, repo *repository) (*kind, error) {
	dependent, err := findOwned(in.owns)
	if err != nil {
		return nil, err
	}
	k := &kind{
		Header: repo.header, Module: repo.module, Program: repo.program,
		Group: in.group, Version: in.version, Kind: in.kind, Plural: in.plural, Singular: strings.ToLower(in.kind), Short: in.short,
		Owned: dependent, External: in.external, VersionGo: naming.UpperFirst(in.version), GoPlural: naming.Plural(in.kind),
	}
	if err := k.setVariables(); err != nil {
		return nil, err
	}
	switch {
	case in.plural == "":
		k.Plural = strings.ToLower(k.GoPlural)
	case in.plural != strings.ToLower(k.GoPlural):
		k.Irregular, k.GoPlural = true, naming.UpperFirst(in.plural)
	}
	if err := k.setGroup(repo); err != nil {
		return nil, err
	}
	for _, path := range []string{"pkg/controller/" + k.Singular, "docs/" + k.Singular + ".md", "artifacts/examples/" + k.Singular + ".yaml", "artifacts/deploy/" + k.Singular} {
		if _, err := os.Stat(filepath.Join(repo.root, path)); err == nil {
			return nil, fmt.Errorf("KIND is %q, but %s exists already; choose another name", in.kind, path)
		}
	}
	k.Rule, err = freeRule(in.kind, repo.rules)
	return k, err
}

// setVariables names variables for an object of the kind, bar or httpRoute for HTTPRoute, and
// for several. The templates must not use the name for something else.
func (k *kind) setVariables() error {
	used, err := templateNames()
	if err != nil {
		return err
	}
	k.Var = naming.LowerCamel(k.Kind)
	if used[k.Var] {
		k.Var += "Object"
	}
	k.VarPlural, k.Receiver = naming.Plural(k.Var), k.Var[:1]
	if used[k.VarPlural] {
		k.VarPlural = k.Var + "List"
	}
	return nil
}

// setGroup finds the directory of the group, or one for a new group.
func (k *kind) setGroup(repo *repository) error {
	for _, group := range repo.groups {
		// In another group too: kubectl and the names of files tell kinds apart by their name.
		if slices.ContainsFunc(group.kinds, func(kind string) bool { return strings.EqualFold(kind, k.Kind) }) {
			return fmt.Errorf("KIND is %q, but the group %s has that kind already, in pkg/apis/%s; choose another name", k.Kind, group.name, group.dir)
		}
	}
	for _, group := range repo.groups {
		if group.name != k.Group {
			continue
		}
		if len(group.versions) > 1 {
			return fmt.Errorf("GROUP is %q, which has the versions %s, and a new kind would have to be in all; use another group", k.Group, strings.Join(group.versions, " and "))
		}
		if group.versions[0] != k.Version {
			return fmt.Errorf("VERSION is %q, but the group %s has the version %s; use that one, or another group", k.Version, k.Group, group.versions[0])
		}
		k.APIDir, k.GroupGo = group.dir, group.goName
		return nil
	}
	k.NewVersion = true
	labels := strings.Split(k.Group, ".")
	for n := 1; n <= len(labels); n++ {
		dir := identifier(strings.Join(labels[:n], ""))
		taken := slices.Contains(unimportable(), dir) ||
			slices.ContainsFunc(repo.groups, func(g apiGroup) bool { return g.dir == dir || g.goName == naming.UpperFirst(dir) })
		if taken {
			continue
		}
		k.APIDir, k.GroupGo = dir, naming.UpperFirst(dir)
		if dir != labels[0] {
			k.GroupGoName = k.GroupGo
		}
		return nil
	}
	return fmt.Errorf("GROUP is %q, for which pkg/apis has no free directory; use another group", k.Group)
}

// freeRule returns the letter of the kind's rules: one of its name that no contract has.
func freeRule(name string, taken []string) (string, error) {
	for _, letter := range strings.ToUpper(name) + "ABCDEFGHIJKLMNOPQRSTUVWXYZ" {
		if unicode.IsLetter(letter) && !slices.Contains(taken, string(letter)) {
			return string(letter), nil
		}
	}
	return "", fmt.Errorf("KIND is %q, and the contracts in docs use all letters for their rules; a contract must free one", name)
}

// identifier returns the text without what no Go identifier may have.
func identifier(text string) string {
	text = strings.Map(func(r rune) rune {
		if unicode.IsLower(r) || unicode.IsDigit(r) {
			return r
		}
		return -1
	}, text)
	if text != "" && unicode.IsDigit(rune(text[0])) {
		return "group" + text
	}
	return text
}

// Package returns the name of the controller's package.
func (k *kind) Package() string { return k.Singular }

// Kinds returns the plural in texts.
func (k *kind) Kinds() string {
	if ending, ok := strings.CutPrefix(k.Plural, k.Singular); ok {
		return k.Kind + ending
	}
	return naming.UpperFirst(k.Plural)
}

// Client returns the method of the clientset, such as CacheV1alpha1.
func (k *kind) Client() string { return k.GroupGo + k.VersionGo }

// Endpoint returns the environment variable with the address of the external service.
func (k *kind) Endpoint() string { return strings.ToUpper(k.Singular) + "_ENDPOINT" }
