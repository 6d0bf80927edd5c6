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
	"errors"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// ErrStaleCache says that a sync did nothing, because the caches do not show yet what this
// process has last written or read live. The Worker tries again after StaleCacheDelay: that is
// no failure.
var ErrStaleCache = errors.New("the caches are behind the last write or live read")

// ErrOverridden is returned when the API server accepts a write but its answer has another
// owner reference than was sent, because a mutating admission webhook or policy replaced it.
// Without the reference the garbage collector and this controller do not know the owner.
var ErrOverridden = errors.New("an admission webhook or policy overrides it")

// IsRejection reports whether a request fails again until the object, a policy, a quota or
// RBAC changes: the API server refused it, or admission replaced the owner reference. Of errors
// that are joined each has to be such a refusal: a failure is retried sooner.
func IsRejection(err error) bool {
	var joined interface{ Unwrap() []error }
	if errors.As(err, &joined) {
		return !slices.ContainsFunc(joined.Unwrap(), func(err error) bool { return !IsRejection(err) })
	}
	return errors.Is(err, ErrOverridden) || (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)) &&
		!IsNamespaceTerminating(err)
}

// IsNamespaceTerminating reports whether a write was refused because its namespace is
// terminating: the namespace controller deletes everything in it, and nothing is left to do.
func IsNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// NewConflict returns the error of a sync that ended because a live read shows the object
// otherwise than the cache. Like the API server's own answer to an outdated precondition it is
// no failure (apierrors.IsConflict), and the sync is retried with backoff.
func NewConflict(resource schema.GroupResource, name string) error {
	return apierrors.NewConflict(resource, name, errors.New("the cache is out of date"))
}

// maxMessage bounds what is repeated of another component's message: a webhook may answer at
// any length, and the message of a condition has at most 32768 characters.
const maxMessage = 4096

// RejectionMessage returns the API server's message, cut off after 4096 bytes, without the present
// usage of a quota: each change of that would change the status.
func RejectionMessage(rejected error) string {
	message := rejected.Error()
	if before, usage, ok := strings.Cut(message, ", used: "); ok {
		message = before
		if _, limit, ok := strings.Cut(usage, ", limited: "); ok {
			message += ", limited: " + limit
		}
	}
	return BoundedMessage(message)
}

// BoundedMessage returns the message, cut off after 4096 bytes.
func BoundedMessage(message string) string {
	if len(message) > maxMessage {
		return strings.ToValidUTF8(message[:maxMessage], "") + "…"
	}
	return message
}
