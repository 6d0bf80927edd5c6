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

package crontab

import (
	"errors"
	"fmt"
	"testing"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation/field"
)

// TestInCronTab: the message about a refused Job names the fields of the CronTab.
func TestInCronTab(t *testing.T) {
	invalid := func(fields ...string) error {
		var all field.ErrorList
		for _, name := range fields {
			all = append(all, field.Required(field.NewPath(name), ""))
		}
		return fmt.Errorf("creating Job: %w", apierrors.NewInvalid(schema.GroupKind{Group: "batch", Kind: "Job"}, "backup", all))
	}
	const begins = `creating Job: Job.batch "backup" is invalid: `
	withoutDetails := &apierrors.StatusError{ErrStatus: metav1.Status{Message: "spec.backoffLimit: no", Reason: metav1.StatusReasonForbidden}}
	for name, test := range map[string]struct {
		err  error
		want string
	}{
		"rule C16: a field of the Pod spec": {
			invalid("spec.template.spec.containers[0].image"), begins + "spec.jobTemplate.containers[0].image: Required value"},
		"rule C16: a label of the Pods": {
			invalid("spec.template.labels"), begins + "spec.jobOptions.podMetadata.labels: Required value"},
		"rule C16: an annotation of the Pods": {
			invalid("spec.template.metadata.annotations"), begins + "spec.jobOptions.podMetadata.annotations: Required value"},
		"rule C16: a field of the Job": {
			invalid("spec.backoffLimit"), begins + "spec.jobOptions.backoffLimit: Required value"},
		"rule C16: a label of the Job": {
			invalid("metadata.labels"), begins + "spec.jobOptions.metadata.labels: Required value"},
		"rule C16: an annotation of the Job": {
			invalid("metadata.annotations"), begins + "spec.jobOptions.metadata.annotations: Required value"},
		"rule C16: a field that the controller sets": {
			invalid("metadata.name"), begins + "metadata.name: Required value"},
		"rule C16: several fields, one of them twice": {
			invalid("metadata.labels", "spec.template.spec.volumes", "metadata.labels"),
			begins + "[spec.jobOptions.metadata.labels: Required value, spec.jobTemplate.volumes: Required value]"},
		"rule C16: fields that the API server does not list": {withoutDetails, "spec.backoffLimit: no"},
		"rule C16: an error that is not the API server's":    {errors.New("spec.backoffLimit: no"), "spec.backoffLimit: no"},
	} {
		t.Run(name, func(t *testing.T) { differ(t, "message", test.want, inCronTab(test.err)) })
	}
}
