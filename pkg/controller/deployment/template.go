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

package deployment

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"slices"
	"strings"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"

	"example.com/sample-controller/pkg/controller"
)

// These functions add changes to the patch of a Deployment. from and to describe the old and the new value. An
// element of path is the name of a field. The value nil removes the field.

// CompareReplicas adds spec.replicas if it is not the desired one. The API server defaults it to 1.
func CompareReplicas(patch *controller.Patch, current, desired *appsv1.Deployment) {
	got, want := ptr.Deref(current.Spec.Replicas, 1), ptr.Deref(desired.Spec.Replicas, 1)
	if got != want {
		patch.Set(want, "replicas", fmt.Sprint(got), fmt.Sprint(want), "spec", "replicas")
	}
}

// +drop:memcached

// SetInTemplate sets the field of the Pod template at that path.
func SetInTemplate(patch *controller.Patch, value any, from, to string, path ...any) {
	patch.Set(value, fieldName(path), from, to, slices.Concat([]any{"spec", "template"}, path)...)
}

// AddContainer adds the named container that was removed from the Pod template.
func AddContainer(patch *controller.Patch, name string, container any) {
	patch.Set(container, "container "+name, "was removed", "", containerPath(name)...)
}

// +drop:end

// SetInContainer sets the field of the named container at that path.
func SetInContainer(patch *controller.Patch, name string, value any, from, to string, path ...any) {
	patch.Set(value, fieldName(path), from, to, slices.Concat(containerPath(name), path)...)
}

func containerPath(name string) []any {
	return []any{"spec", "template", "spec", "containers", fieldpath.KeyByFields("name", name)}
}

func fieldName(path []any) string {
	return strings.TrimPrefix(fieldpath.MakePathOrDie(path...).String(), ".")
}

// labelHash is how many digits of its hash a shortened name ends in, after a hyphen.
const labelHash = 10

// LabelValue returns name if it is a legal label value (at most 63 characters), else a
// shortened form that ends in a hash of the whole name. A name that could be the shortened form of
// another one gets a hash, too.
func LabelValue(name string) string {
	const kept = validation.LabelValueMaxLength - 1 - labelHash
	if len(name) <= kept || len(name) <= validation.LabelValueMaxLength && !isShortened(name) {
		return name
	}
	sum := sha256.Sum256([]byte(name))
	return strings.TrimRight(name[:kept], "-.") + "-" + hex.EncodeToString(sum[:])[:labelHash]
}

// isShortened reports whether the name ends as a shortened name does.
func isShortened(name string) bool {
	prefix, hash := name[:len(name)-labelHash], name[len(name)-labelHash:]
	return strings.HasSuffix(prefix, "-") && strings.Trim(hash, "0123456789abcdef") == ""
}
