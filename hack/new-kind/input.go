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
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"

	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/client-go/kubernetes/scheme"

	"example.com/sample-controller/hack/naming"
)

// input are the variables of `make new-kind`.
type input struct {
	group, version, kind, owns, plural, short string
	external                                  bool
}

const usage = "make new-kind GROUP=cache.acme.io VERSION=v1alpha1 KIND=Bar OWNS=ConfigMap [PLURAL=bars SHORT=b EXTERNAL=yes]"

// parseInput reads arguments such as KIND=Bar. Variables that are empty count as not set.
func parseInput(args []string) (input, error) {
	var in input
	var external string
	variables := map[string]*string{
		"GROUP": &in.group, "VERSION": &in.version, "KIND": &in.kind, "OWNS": &in.owns, "PLURAL": &in.plural, "SHORT": &in.short, "EXTERNAL": &external,
	}
	for _, arg := range args {
		name, value, _ := strings.Cut(arg, "=")
		variable, ok := variables[name]
		if !ok {
			return in, fmt.Errorf("%s is no variable of new-kind; usage: %s", name, usage)
		}
		*variable = strings.TrimSpace(value)
	}
	for _, name := range []string{"GROUP", "VERSION", "KIND", "OWNS"} {
		if *variables[name] == "" {
			return in, fmt.Errorf("%s is not set; usage: %s", name, usage)
		}
	}
	switch external {
	case "", "no":
	case "yes":
		in.external = true
	default:
		return in, fmt.Errorf("EXTERNAL is %q; set it to yes, or leave it out", external)
	}
	return in, in.validate()
}

var (
	versionPattern = regexp.MustCompile(`^v[1-9][0-9]*((alpha|beta)[1-9][0-9]*)?$`)
	kindPattern    = regexp.MustCompile(`^[A-Z][A-Za-z0-9]+$`)
)

// validate checks what can be told without the repository.
func (in *input) validate() error {
	if problems := validation.IsDNS1123Subdomain(in.group); len(problems) > 0 || !strings.Contains(in.group, ".") {
		return fmt.Errorf("GROUP is %q; set it to a domain in lower case that has a dot, such as cache.acme.io", in.group)
	}
	if scheme.Scheme.IsGroupRegistered(in.group) || strings.HasSuffix(in.group, ".k8s.io") || strings.HasSuffix(in.group, ".kubernetes.io") {
		return fmt.Errorf("GROUP is %q, a group of the Kubernetes project, and the API server refuses a CRD in it; use a domain of your own", in.group)
	}
	if !versionPattern.MatchString(in.version) {
		return fmt.Errorf("VERSION is %q; set it to one such as v1, v2beta1 or v3alpha1", in.version)
	}
	if err := validateKind(in.kind); err != nil {
		return err
	}
	for name, value := range map[string]string{"PLURAL": in.plural, "SHORT": in.short} {
		if problems := validation.IsDNS1035Label(value); value != "" && len(problems) > 0 {
			return fmt.Errorf("%s is %q: %s", name, value, strings.Join(problems, "; "))
		}
	}
	if in.plural == strings.ToLower(in.kind) {
		return fmt.Errorf("PLURAL is %q, which is the singular; set it to another word", in.plural)
	}
	_, err := findOwned(in.owns)
	return err
}

// validateKind checks the name of the kind. In lower case it is the name of a package, and
// client-gen makes it the name of parameters.
func validateKind(kind string) error {
	lower := strings.ToLower(kind)
	switch {
	case !kindPattern.MatchString(kind):
		return fmt.Errorf("KIND is %q; set it to a name in CamelCase with two or more letters and digits, such as Bar", kind)
	case len(kind) > validation.DNS1035LabelMaxLength-len("-sample"):
		return fmt.Errorf("KIND is %q, which has more than %d characters", kind, validation.DNS1035LabelMaxLength-len("-sample"))
	case token.IsKeyword(lower) || types.Universe.Lookup(lower) != nil:
		return fmt.Errorf("KIND is %q; %s is a keyword or predeclared in Go, and the generated clients would not compile; choose another name", kind, lower)
	case !naming.IsBuilt("fake_" + lower + ".go"):
		return fmt.Errorf("KIND is %q; Go builds a file of the clientset, fake_%s.go, for one system, processor or tests only; choose another name", kind, lower)
	case slices.Contains(unimportable(), lower):
		return fmt.Errorf("KIND is %q; Go cannot import a package with the name %s; choose another name", kind, lower)
	case isBuiltIn(kind):
		return fmt.Errorf("KIND is %q, a kind of Kubernetes itself, and kubectl get %s would not mean yours; choose another name", kind, lower)
	case strings.HasSuffix(kind, "List"), strings.HasSuffix(kind, "Spec"), strings.HasSuffix(kind, "Status"):
		return fmt.Errorf("KIND is %q; names that end in List, Spec and Status are those of the parts of a kind; choose another name", kind)
	case slices.Contains(generatedNames(), kind):
		return fmt.Errorf("KIND is %q, a name that the generated controller uses itself; choose another name", kind)
	}
	return nil
}

// unimportable are the names of packages that Go does not let main.go import, or does not see.
func unimportable() []string {
	return []string{"documentation", "init", "internal", "main", "testdata", "vendor"}
}

// isBuiltIn reports whether kubectl takes the name for that of a built-in kind.
func isBuiltIn(kind string) bool {
	for known := range scheme.Scheme.AllKnownTypes() {
		if strings.EqualFold(known.Kind, kind) {
			return true
		}
	}
	return false
}

// generatedNames are the words X for which templates declare newX, updateX or a field X beside
// those of the kind, or write a file x.go or x_test.go.
func generatedNames() []string {
	return []string{
		"Claimant", "Client", "Clock", "Container", "Controller", "Counter", "Descriptor", "Env", "External", "Fixture", "HTTPService", "KubeClient", "Meta", "Metric", "Option", "Owned", "Port", "Recorder",
		"Resource", "Value", "Worker",
	}
}
