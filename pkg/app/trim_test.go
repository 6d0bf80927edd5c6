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

package app

import (
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	fixtures "example.com/sample-controller/test/fixture"
)

// newFullDeployment returns a Deployment with fields that a Trim may drop.
func newFullDeployment() *appsv1.Deployment {
	deleted := metav1.NewTime(time.Unix(1, 0))
	return &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: "web", Namespace: "default", UID: "uid", ResourceVersion: "5", Generation: 3, DeletionTimestamp: &deleted,
			Labels:          map[string]string{"app": "web"},
			Annotations:     map[string]string{corev1.LastAppliedConfigAnnotation: "{}", "theirs": "kept"},
			OwnerReferences: []metav1.OwnerReference{{APIVersion: "example.com/v1", Kind: "Thing", Name: "x", UID: "uid-x", Controller: ptr.To(true)}},
			ManagedFields:   []metav1.ManagedFieldsEntry{{Manager: "kubectl"}},
			Finalizers:      []string{"example.com/wait"},
		},
		Spec:   appsv1.DeploymentSpec{Replicas: ptr.To[int32](3)},
		Status: appsv1.DeploymentStatus{Replicas: 3},
	}
}

// withoutMetadata returns the object without what TrimMetadata drops.
func withoutMetadata() *appsv1.Deployment {
	deployment := newFullDeployment()
	deployment.ManagedFields, deployment.Annotations, deployment.Labels, deployment.Finalizers = nil, nil, nil, nil
	return deployment
}

func metadataOf(deployment *appsv1.Deployment) *appsv1.Deployment {
	return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{
		Name: deployment.Name, Namespace: deployment.Namespace, UID: deployment.UID, ResourceVersion: deployment.ResourceVersion,
		DeletionTimestamp: deployment.DeletionTimestamp, OwnerReferences: deployment.OwnerReferences,
	}}
}

func TestTransform(t *testing.T) {
	named := func(name string) *appsv1.Deployment {
		return &appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{Name: name}}
	}
	claims := TypedTrim(func(*appsv1.Deployment) *appsv1.Deployment { return named("claimed") })
	claimsToo := TypedTrim(func(*appsv1.Deployment) *appsv1.Deployment { return named("claimed too") })
	declines := TypedTrim(func(*appsv1.Deployment) *appsv1.Deployment { return nil })
	ofJobs := TypedTrim(func(*batchv1.Job) *batchv1.Job { return &batchv1.Job{} })
	for sentence, test := range map[string]struct {
		trims []func(any) any
		want  *appsv1.Deployment
	}{
		"rule 24: without a Trim, spec and status are kept, and of the metadata what is bounded": {[]func(any) any{nil}, withoutMetadata()},
		"one controller without a Trim reads spec and status, whatever another one reads":        {[]func(any) any{claims, nil}, withoutMetadata()},
		"the first Trim that claims the object decides":                                          {[]func(any) any{declines, claims, claimsToo}, named("claimed")},
		"of an object that no Trim claims the metadata is kept":                                  {[]func(any) any{declines}, metadataOf(newFullDeployment())},
		"a Trim for another type claims nothing":                                                 {[]func(any) any{ofJobs}, metadataOf(newFullDeployment())},
	} {
		t.Run(sentence, func(t *testing.T) {
			transform := newTransform(test.trims)
			got, err := transform(newFullDeployment())
			if err != nil {
				t.Fatal(err)
			}
			fixtures.Differ(t, "kept", any(test.want), got)
			again, err := transform(got)
			if err != nil {
				t.Fatal(err)
			}
			fixtures.Differ(t, "kept of what is kept", any(test.want), again)
			if got, err := transform("no object"); got != "no object" || err != nil {
				t.Errorf("a string became %v, error %v", got, err)
			}
		})
	}
}

// TestMetadataOnly covers Deployments that no controller of ours owns, of which there may
// be very many.
func TestMetadataOnly(t *testing.T) {
	other := metav1.OwnerReference{APIVersion: "example.com/v1", Kind: "Thing", Name: "x", UID: "uid-x", Controller: ptr.To(true)}
	listed := other
	listed.Controller = nil
	for sentence, owners := range map[string][]metav1.OwnerReference{
		"without an owner": nil, "with another controller": {other}, "with an owner that is not its controller": {listed},
	} {
		t.Run(sentence, func(t *testing.T) {
			deployment := newFullDeployment()
			deployment.OwnerReferences = owners
			want := metadataOf(deployment)
			fixtures.Differ(t, "rule 5: kept", any(want), metadataOnly(deployment))
		})
	}
}
