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
	"unique"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// TrimMetadata drops from a cached object the managed fields and the copy of the object
// that kubectl apply keeps in an annotation. Other annotations stay: admission webhooks see
// them in the object of a status PUT.
//
// A status written from a trimmed object does not lose them: of a PUT to the status of a
// custom resource the API server takes only the status, and the managed fields of the
// stored object (statusStrategy.PrepareForUpdate in k8s.io/apiextensions-apiserver,
// decodeLiveOrNew in k8s.io/apimachinery). A CRD without the status subresource answers
// 404.
func TrimMetadata(object metav1.Object) {
	object.SetManagedFields(nil)
	object.SetNamespace(Intern(object.GetNamespace()))
	annotations := object.GetAnnotations()
	delete(annotations, corev1.LastAppliedConfigAnnotation)
	if len(annotations) == 0 {
		object.SetAnnotations(nil)
	}
}

// TrimConditions interns the type and the reason of each condition.
func TrimConditions(conditions []metav1.Condition) {
	for i := range conditions {
		conditions[i].Type, conditions[i].Reason = Intern(conditions[i].Type), Intern(conditions[i].Reason)
	}
}

// Intern returns an equal string of which the process holds one copy.
func Intern(s string) string {
	return unique.Make(s).Value()
}
