//go:build e2e

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

package e2e

import (
	"bytes"
	"errors"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"

	rbacv1 "k8s.io/api/rbac/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// kind is a kind that the controller reconciles, as its CRD describes it.
type kind struct {
	Group string
	Names struct {
		Kind, Plural, Singular string
	}
}

// crd returns the name of the CRD, such as foos.samplecontroller.k8s.io.
func (k kind) crd() string {
	return k.Names.Plural + "." + k.Group
}

// finalizersRight returns the right that the OwnerReferencesPermissionEnforcement
// admission plugin demands for owner references to this kind. No request shows it in the
// audit log.
func (k kind) finalizersRight() string {
	return rightOf("update", k.Group, k.Names.Plural+"/finalizers")
}

// manifest has the fields of the CRDs and ClusterRoles in install.yaml that tests read.
type manifest struct {
	metav1.TypeMeta `json:",inline"`

	Spec  kind
	Rules []rbacv1.PolicyRule
}

// readKinds returns the kinds whose CRDs install.yaml has, and the resources of their
// dependents, such as deployments.apps: those that its roles allow to create and watch.
func readKinds(root string) (kinds []kind, dependents []string, err error) {
	data, err := os.ReadFile(filepath.Join(root, "artifacts/deploy/install.yaml"))
	if err != nil {
		return nil, nil, err
	}
	var rules []rbacv1.PolicyRule
	decoder := yaml.NewYAMLOrJSONDecoder(bytes.NewReader(data), 4096)
	for {
		object := manifest{}
		err := decoder.Decode(&object)
		if errors.Is(err, io.EOF) {
			break
		}
		if err != nil {
			return nil, nil, err
		}
		if object.Kind == "CustomResourceDefinition" {
			kinds = append(kinds, object.Spec)
		}
		rules = append(rules, object.Rules...)
	}
	ours := func(group string) bool {
		return slices.ContainsFunc(kinds, func(k kind) bool { return k.Group == group })
	}
	verbs := map[schema.GroupResource][]string{}
	for _, rule := range singleRules(rules...) {
		resource := schema.GroupResource{Group: rule.APIGroups[0], Resource: rule.Resources[0]}
		verbs[resource] = append(verbs[resource], rule.Verbs[0])
	}
	for resource, verbs := range verbs {
		if slices.Contains(verbs, "create") && slices.Contains(verbs, "watch") && !ours(resource.Group) {
			dependents = append(dependents, resource.String())
		}
	}
	slices.Sort(dependents)
	if len(kinds) == 0 || len(dependents) == 0 {
		return nil, nil, errors.New("install.yaml has no CRDs, or no rights to what the controller creates")
	}
	return kinds, dependents, nil
}

// kindOfObject returns the kind whose name in lower case begins the object's name, as
// those of TestEveryRightIsMissed do.
func (s *suite) kindOfObject(name string) kind {
	i := slices.IndexFunc(s.kinds, func(k kind) bool { return strings.HasPrefix(name, k.Names.Singular+"-") })
	if i < 0 {
		return kind{}
	}
	return s.kinds[i]
}

// resources returns the resources of all kinds and of their dependents, as arguments of
// kubectl.
func (s *suite) resources() string {
	var names []string
	for _, k := range s.kinds {
		names = append(names, k.crd())
	}
	return strings.Join(append(names, s.dependents...), ",")
}
