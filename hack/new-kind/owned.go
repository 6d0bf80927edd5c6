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
	"slices"
	"strings"

	"example.com/sample-controller/hack/naming"
)

// owned is a built-in kind that a generated kind can own. What a controller does with it is in
// templates/owned/<Kind>.tmpl.
type owned struct {
	Kind string
	// Import is the path of its Go package.
	Import string
	// Settles says that other controllers work on the object, and that its status tells when
	// they are done. The others are ready as soon as they exist.
	Settles bool
	// Rollout says that a change of the spec takes time as well.
	Rollout bool
	// ReadyReason is the reason of Ready when it is True.
	ReadyReason string
	// Rights says what the rights of the controller expose, "" if that is nothing secret.
	Rights string
}

func ownedKinds() []owned {
	return []owned{
		{Kind: "ConfigMap", Import: "k8s.io/api/core/v1", ReadyReason: "ConfigMapReady"},
		{Kind: "Deployment", Import: "k8s.io/api/apps/v1", Settles: true, Rollout: true, ReadyReason: "DeploymentReady"},
		{Kind: "Job", Import: "k8s.io/api/batch/v1", Settles: true, ReadyReason: "JobComplete"},
		{Kind: "Secret", Import: "k8s.io/api/core/v1", ReadyReason: "SecretReady",
			Rights: "the controller may get, list, watch, create and patch every Secret of the cluster, because RBAC cannot grant rights by owner. To limit it to one namespace, install artifacts/deploy/namespaced (docs/operations.md)."},
		{Kind: "Service", Import: "k8s.io/api/core/v1", ReadyReason: "ServiceReady"},
		{Kind: "StatefulSet", Import: "k8s.io/api/apps/v1", Settles: true, Rollout: true, ReadyReason: "StatefulSetReady"},
	}
}

// unsuitable has kinds that no template can be written for, and why.
func unsuitable() map[string]string {
	return map[string]string{
		"Pod":                "the API server refuses nearly every change of its spec; own a Deployment, a StatefulSet or a Job",
		"ReplicaSet":         "it does not roll out a change; own a Deployment",
		"Event":              "nothing in it is a desired state",
		"Endpoints":          "it is deprecated, and written by the controllers of Services; own a Service",
		"ControllerRevision": "its data cannot be changed",
		"Namespace":          "it is not namespaced",
		"Node":               "it is not namespaced",
		"ClusterRole":        "it is not namespaced",
		"PersistentVolume":   "it is not namespaced",
	}
}

// findOwned returns the built-in kind of that name.
func findOwned(kind string) (owned, error) {
	kinds := ownedKinds()
	if i := slices.IndexFunc(kinds, func(o owned) bool { return o.Kind == kind }); i >= 0 {
		return kinds[i], nil
	}
	var names []string
	for _, o := range kinds {
		names = append(names, o.Kind)
	}
	list := strings.Join(names, ", ")
	if why := unsuitable()[kind]; why != "" {
		return owned{}, fmt.Errorf("OWNS is %q: %s (possible: %s)", kind, why, list)
	}
	return owned{}, fmt.Errorf("OWNS is %q; there is a template for each of %s. For another namespaced kind whose spec can change add a row to hack/new-kind/owned.go and a file to hack/new-kind/templates/owned", kind, list)
}

// Group returns the last but one element of the import, such as core or apps.
func (o owned) group() string { return strings.Split(o.Import, "/")[2] }

// Alias returns the name of the import, such as corev1.
func (o owned) Alias() string { return o.group() + "v1" }

// Type returns the Go type, such as corev1.ConfigMap.
func (o owned) Type() string { return o.Alias() + "." + o.Kind }

// LowerGroup returns the group in imports, such as core.
func (o owned) LowerGroup() string { return o.group() }

// GroupGo returns the group in the names of methods, such as Core.
func (o owned) GroupGo() string { return naming.UpperFirst(o.group()) }

// VersionGo returns the version in the names of methods.
func (o owned) VersionGo() string { return "V1" }

// GroupVersion returns the end of the import, such as core/v1.
func (o owned) GroupVersion() string { return o.group() + "/v1" }

// APIVersion returns the apiVersion of its objects, such as v1 or apps/v1.
func (o owned) APIVersion() string { return strings.TrimPrefix(o.GroupVersion(), "core/") }

// Client returns the method of the clientset, such as CoreV1.
func (o owned) Client() string { return o.GroupGo() + o.VersionGo() }

// GoPlural returns the plural in the names of methods, such as ConfigMaps.
func (o owned) GoPlural() string { return naming.Plural(o.Kind) }

// Plural returns the name of the resource, such as configmaps.
func (o owned) Plural() string { return strings.ToLower(o.GoPlural()) }

// Lower returns the singular of the resource, such as configmap.
func (o owned) Lower() string { return strings.ToLower(o.Kind) }

// Var returns the name of a variable, such as configMap.
func (o owned) Var() string { return strings.ToLower(o.Kind[:1]) + o.Kind[1:] }

// VarPlural returns the name of a variable for several, such as configMaps.
func (o owned) VarPlural() string { return o.Var() + "s" }

// RBACGroup returns the group in an RBAC marker.
func (o owned) RBACGroup() string {
	if o.group() == "core" {
		return `""`
	}
	return o.group()
}

// Resource returns the resource in messages of the API server, such as deployments.apps.
func (o owned) Resource() string {
	if o.group() == "core" {
		return o.Plural()
	}
	return o.Plural() + "." + o.group()
}
