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

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// ErrCacheBehind tells that the API server has something newer than the cache. The
// event is on its way; nothing may be deleted on the strength of what is old.
var ErrCacheBehind = errors.New("the cache is out of date")

// ErrOverridden tells that a write was accepted and yet did not take: admission
// puts other values in place of ours.
var ErrOverridden = errors.New("an admission webhook or policy overrides it")

// IsRejection reports whether the API server refused a write for good: nothing
// but a change of the object, of a policy or of a quota can turn the answer.
func IsRejection(err error) bool {
	return errors.Is(err, ErrOverridden) || (apierrors.IsInvalid(err) || apierrors.IsForbidden(err) || apierrors.IsBadRequest(err) || apierrors.IsRequestEntityTooLargeError(err)) &&
		!IsNamespaceTerminating(err)
}

// IsNamespaceTerminating reports whether a write was refused because its namespace
// is on its way out, with all that is in it: there is nothing left to do.
func IsNamespaceTerminating(err error) bool {
	return apierrors.HasStatusCause(err, corev1.NamespaceTerminatingCause)
}

// IsConflict reports whether a sync ended because somebody changed an object
// meanwhile, which is no failure.
func IsConflict(err error) bool {
	return apierrors.IsConflict(err) || errors.Is(err, ErrCacheBehind)
}

// Confirm returns nil if live, which was read with that error, is the object that
// the cache has, in the same generation and alive; ErrCacheBehind if it is not.
// Another process may have acted on what this one has not seen.
func Confirm(cached, live metav1.Object, err error) error {
	if apierrors.IsNotFound(err) {
		return ErrCacheBehind
	}
	if err != nil {
		return err
	}
	if live.GetUID() != cached.GetUID() || live.GetGeneration() != cached.GetGeneration() || live.GetDeletionTimestamp() != nil {
		return ErrCacheBehind
	}
	return nil
}
