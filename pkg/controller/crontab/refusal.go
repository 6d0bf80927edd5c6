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
	"net/http"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"example.com/sample-controller/pkg/controller"
)

// describeRejection repeats the API server's message and says when the controller retries.
func describeRejection(res result) string {
	message := inCronTab(res.rejected)
	if res.tried {
		return fmt.Sprintf("the API server will refuse the Job of the next run: %s; it is tried again when the run is due, and at once when the CronTab changes", message)
	}
	answer := "refused the Job"
	if isServerError(res.rejected) {
		answer = "failed"
	}
	return fmt.Sprintf("the API server %s: %s; it is tried again until the next run is due, and at once when the CronTab changes", answer, message)
}

// inCronTab returns the API server's message. It replaces the fields of the Job that the API
// server names by those of the CronTab, which the user can correct.
func inCronTab(rejected error) string {
	message := controller.RejectionMessage(rejected)
	var status apierrors.APIStatus
	if !errors.As(rejected, &status) || status.Status().Details == nil {
		return message
	}
	var pairs []string
	for _, cause := range status.Status().Details.Causes {
		if cause.Field != "" {
			pairs = append(pairs, cause.Field, cronTabField(cause.Field))
		}
	}
	return strings.NewReplacer(pairs...).Replace(message)
}

// cronTabField returns the field of the CronTab that the field of the Job comes from.
func cronTabField(field string) string {
	for _, prefix := range []struct{ job, cronTab string }{
		{"spec.template.spec", "spec.jobTemplate"},
		{"spec.template.metadata.", "spec.jobOptions.podMetadata."},
		{"spec.template.", "spec.jobOptions.podMetadata."},
		{"spec.", "spec.jobOptions."},
		{"metadata.labels", "spec.jobOptions.metadata.labels"},
		{"metadata.annotations", "spec.jobOptions.metadata.annotations"},
	} {
		if rest, ok := strings.CutPrefix(field, prefix.job); ok {
			return prefix.cronTab + rest
		}
	}
	return field
}

// isServerError reports whether the API server answered that it failed, such as when an
// admission webhook that must not be bypassed does not answer. That may last.
func isServerError(err error) bool {
	var status apierrors.APIStatus
	return errors.As(err, &status) && status.Status().Code >= http.StatusInternalServerError
}

// isInconclusive reports whether the Job that was refused in a dry run may be created all the
// same: a quota counts the Jobs that are still to be deleted, and a webhook with side effects
// answers no dry run. The API server gives these refusals no reason of their own.
func isInconclusive(err error) bool {
	return apierrors.IsForbidden(err) && strings.Contains(err.Error(), "exceeded quota: ") ||
		apierrors.IsBadRequest(err) && strings.Contains(err.Error(), "does not support dry run")
}
