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

package controller

import (
	"fmt"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
)

// TestLongValue is rule 24: messages and what is remembered have a bounded part of a value.
func TestLongValue(t *testing.T) {
	patch := NewPatch(&metav1.ObjectMeta{})
	patch.Set("b", "field", strings.Repeat("a", 2*maxValue), "b", "spec", "field")
	if got := patch.Changes[0].From; got != strings.Repeat("a", maxValue)+"…" {
		t.Errorf("rule 24: %q is kept", got)
	}
}

func TestEmptyPatch(t *testing.T) {
	if patch := NewPatch(&metav1.ObjectMeta{ResourceVersion: "10"}); !patch.IsEmpty() || patch.JSON() != nil || patch.String() != "" {
		t.Errorf("rule 15: nothing has drifted, and the patch is %s", patch.JSON())
	}
}

func TestPatch(t *testing.T) {
	patch := NewPatch(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "10"}})
	patch.SetInContainer("first", "x", "a", "x", "image")
	patch.SetInContainer("first", nil, "[]", "none", "args")
	patch.SetInContainer("second", "y", "b", "y", "image")
	patch.AddContainer(&corev1.Container{Name: "third", Image: "z"})
	patch.Set(nil, "annotation a", "", "", "metadata", "annotations", "a")
	patch.SetInTemplate("none", "all", "none", "spec", "restartPolicy")
	patch.CompareReplicas(nil, 2)
	patch.EnsureLabel(&metav1.ObjectMeta{Labels: map[string]string{"a": "theirs"}}, "a", "ours")
	patch.EnsureLabel(&metav1.ObjectMeta{}, "b", "ours")
	const want = `{"metadata":{"annotations":{"a":null},"labels":{"b":"ours"},"resourceVersion":"10"},"spec":{"replicas":2,"template":{"spec":{` +
		`"containers":[{"args":null,"image":"x","name":"first"},{"image":"y","name":"second"},{"name":"third","image":"z","resources":{}}],"restartPolicy":"none"}}}}`
	if got := string(patch.JSON()); got != want {
		t.Errorf("patch %s, want %s", got, want)
	}
	const described = `image from a to x, args from [] to none, image from b to y, container third was removed, annotation a, spec.restartPolicy from all to none, replicas from 1 to 2, label b from none to "ours"`
	if got := patch.String(); got != described {
		t.Errorf("patch of %s, want %s", got, described)
	}
}

func TestManagerOf(t *testing.T) {
	// managed is an entry of managed fields, without a time if at is negative.
	managed := func(manager, subresource, fields string, at time.Duration) metav1.ManagedFieldsEntry {
		entry := metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, FieldsV1: metav1.NewFieldsV1(fields)}
		if at >= 0 {
			entry.Time = ptr.To(metav1.NewTime(time.Unix(0, 0).Add(at)))
		}
		return entry
	}
	replicasOf, image, whole := Change{path: []string{"spec", "replicas"}}, Change{container: "nginx", path: []string{"image"}}, Change{container: "nginx"}
	label, owner := Change{path: []string{"metadata", "labels", ManagedByLabel}}, Change{path: []string{"metadata", "ownerReferences"}}
	const (
		replicas   = `{"f:spec":{"f:replicas":{}}}`
		containers = `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"%s\"}":{".":{},"f:image":{}}}}}}}`
		unknown    = "a writer that is not on record"
	)
	for sentence, test := range map[string]struct {
		change  Change
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		"replicas set by an autoscaler through the scale subresource": {replicasOf, []metav1.ManagedFieldsEntry{managed("scaler", "scale", replicas, 0)}, "scaler through scale"},
		"the image of our container":                                  {image, []metav1.ManagedFieldsEntry{managed("kubectl", "", fmt.Sprintf(containers, "nginx"), 0)}, "kubectl"},
		"another container's image is not compared":                   {image, []metav1.ManagedFieldsEntry{managed("kubectl", "", fmt.Sprintf(containers, "other"), 0)}, unknown},
		"a container that was removed and added":                      {whole, []metav1.ManagedFieldsEntry{managed("kubectl", "", fmt.Sprintf(containers, "nginx"), 0)}, "kubectl"},
		"the label":                                                   {label, []metav1.ManagedFieldsEntry{managed("helm", "", `{"f:metadata":{"f:labels":{"f:app.kubernetes.io/managed-by":{}}}}`, 0)}, "helm"},
		"the owner reference":                                         {owner, []metav1.ManagedFieldsEntry{managed("gitops", "", `{"f:metadata":{"f:ownerReferences":{".":{}}}}`, 0)}, "gitops"},
		"a removed owner reference is not recorded":                   {owner, nil, unknown},
		"the latest writer counts, in any order":                      {replicasOf, []metav1.ManagedFieldsEntry{managed("a", "", replicas, 0), managed("b", "", replicas, 2), managed("c", "", replicas, 1)}, "b"},
		"a writer without a time is better than none":                 {replicasOf, []metav1.ManagedFieldsEntry{managed("timeless", "", replicas, -1)}, "timeless"},
		"this controller does not count":                              {replicasOf, []metav1.ManagedFieldsEntry{managed(FieldManager, "", replicas, 0)}, unknown},
		"entries that cannot be read do not count":                    {replicasOf, []metav1.ManagedFieldsEntry{managed("half", "", replicas+"x", 0), {Manager: "empty"}}, unknown},
	} {
		if got := managerOf(test.change, &metav1.ObjectMeta{ManagedFields: test.entries}); got != test.want {
			t.Errorf("rule 21: %s: got %q, want %q", sentence, got, test.want)
		}
	}
}
