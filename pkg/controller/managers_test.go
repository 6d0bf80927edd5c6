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
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"
	"sigs.k8s.io/structured-merge-diff/v6/fieldpath"
)

// managed is an entry of managed fields, without a time if at is negative.
func managed(manager, subresource, fields string, at time.Duration) metav1.ManagedFieldsEntry {
	entry := metav1.ManagedFieldsEntry{Manager: manager, Subresource: subresource, Operation: metav1.ManagedFieldsOperationUpdate, FieldsType: "FieldsV1",
		FieldsV1: metav1.NewFieldsV1(fields)}
	if at >= 0 {
		entry.Time = ptr.To(metav1.NewTime(time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC).Add(at)))
	}
	return entry
}

func TestOtherManager(t *testing.T) {
	replicasPath, ownerPath := fieldpath.MakePathOrDie("spec", "replicas"), fieldpath.MakePathOrDie("metadata", "ownerReferences")
	labelPath := fieldpath.MakePathOrDie("metadata", "labels", ManagedByLabel)
	imagePath := fieldpath.MakePathOrDie("spec", "template", "spec", "containers", fieldpath.KeyByFields("name", "nginx"), "image")
	const replicas = `{"f:spec":{"f:replicas":{}}}`
	tests := map[string]struct {
		path    fieldpath.Path
		entries []metav1.ManagedFieldsEntry
		want    string
	}{
		"rule 21: replicas set by an autoscaler through the scale subresource": {
			replicasPath, []metav1.ManagedFieldsEntry{managed("kube-controller-manager", "scale", replicas, 0)}, "kube-controller-manager through scale"},
		"rule 21: the image of our container": {
			imagePath, []metav1.ManagedFieldsEntry{managed("kubectl-set", "", `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"nginx\"}":{"f:image":{}}}}}}}`, 0)}, "kubectl-set"},
		"rule 21: another container's image is not compared": {
			imagePath, []metav1.ManagedFieldsEntry{managed("kubectl-set", "", `{"f:spec":{"f:template":{"f:spec":{"f:containers":{"k:{\"name\":\"other\"}":{"f:image":{}}}}}}}`, 0)}, "a writer that is not on record"},
		"rule 21: the label": {
			labelPath, []metav1.ManagedFieldsEntry{managed("helm", "", `{"f:metadata":{"f:labels":{"f:app.kubernetes.io/managed-by":{}}}}`, 0)}, "helm"},
		"rule 21: the latest writer counts, in any order": {
			replicasPath, []metav1.ManagedFieldsEntry{managed("first", "", replicas, 0), managed("last", "", replicas, time.Minute), managed("second", "", replicas, time.Second)}, "last"},
		"rule 21: a writer without a time is better than none": {
			replicasPath, []metav1.ManagedFieldsEntry{managed("timeless", "", replicas, -1)}, "timeless"},
		"rule 21: this controller does not count": {
			replicasPath, []metav1.ManagedFieldsEntry{managed(FieldManager, "", replicas, 0)}, "a writer that is not on record"},
		"rule 21: a writer of other fields does not count": {
			replicasPath, []metav1.ManagedFieldsEntry{managed("kubectl", "", `{"f:spec":{"f:paused":{}}}`, 0)}, "a writer that is not on record"},
		"rule 21: entries that cannot be read do not count": {
			replicasPath, []metav1.ManagedFieldsEntry{managed("broken", "", `{`, 0), managed("half", "", replicas+"x", 0), {Manager: "empty"}}, "a writer that is not on record"},
		"rule 21: the owner reference": {
			ownerPath, []metav1.ManagedFieldsEntry{managed("gitops", "", `{"f:metadata":{"f:ownerReferences":{".":{},"k:{\"uid\":\"uid-foo\"}":{}}}}`, 0)}, "gitops"},
		"rule 21: a removed owner reference is not recorded": {
			ownerPath, nil, "a writer that is not on record"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			deployment := &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{ManagedFields: test.entries}}
			if got := otherManager(deployment, test.path); got != test.want {
				t.Errorf("got %q, want %q", got, test.want)
			}
		})
	}
}
