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
	"fmt"
	"slices"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/validation"
	"k8s.io/utils/clock"
)

func TestLabelValue(t *testing.T) {
	long := strings.Repeat("a", 64)
	for _, name := range []string{"foo", strings.Repeat("a", 63)} {
		if got := LabelValue(name); got != name {
			t.Errorf("LabelValue(%q) = %q, want it unchanged", name, got)
		}
	}
	seen := map[string]string{}
	for _, name := range []string{long, long + "b", long + "c", strings.Repeat("a", 51) + ".-." + long, strings.Repeat("a.", 100) + "z"} {
		got := LabelValue(name)
		if problems := validation.IsValidLabelValue(got); len(problems) > 0 {
			t.Errorf("LabelValue(%q) = %q, no legal label value: %v", name, got, problems)
		}
		if again := LabelValue(name); again != got {
			t.Errorf("LabelValue(%q) is %q once and %q another time", name, got, again)
		}
		if other, taken := seen[got]; taken {
			t.Errorf("%q and %q share the label value %q", name, other, got)
		}
		seen[got] = name
	}
	// The value is in the selector of running Deployments: it must never change.
	if got, want := LabelValue(long), strings.Repeat("a", 52)+"-ffe054fe7a"; got != want {
		t.Errorf("labelValue of 64 times a = %q, want %q", got, want)
	}
}

// FuzzLabelValue checks the labels of any two Foos that the API server would keep.
func FuzzLabelValue(f *testing.F) {
	f.Add("foo", "bar")
	f.Add(strings.Repeat("a", 64), strings.Repeat("a", 65))
	f.Add(strings.Repeat("a", 51)+".-."+strings.Repeat("a", 64), strings.Repeat("a.", 100)+"z")
	f.Fuzz(func(t *testing.T, a, b string) {
		for _, name := range []string{a, b} {
			if len(validation.IsDNS1123Subdomain(name)) > 0 {
				return
			}
			value := LabelValue(name)
			if problems := validation.IsValidLabelValue(value); len(problems) > 0 {
				t.Errorf("LabelValue(%q) = %q: %v", name, value, problems)
			}
			if value != LabelValue(name) || len(name) <= validation.LabelValueMaxLength && value != name {
				t.Errorf("LabelValue(%q) = %q, and %q another time", name, value, LabelValue(name))
			}
		}
		if a != b && LabelValue(a) == LabelValue(b) {
			t.Errorf("%q and %q share the label value %q", a, b, LabelValue(a))
		}
	})
}

func TestIsRejection(t *testing.T) {
	terminating := apierrors.NewForbidden(deployments, "web", errors.New("namespace is being terminated"))
	terminating.ErrStatus.Details.Causes = []metav1.StatusCause{{Type: corev1.NamespaceTerminatingCause}}
	tests := map[string]struct {
		err  error
		want bool
	}{
		"rule 11: 422 invalid":                {apierrors.NewInvalid(schema.GroupKind{Kind: "Deployment"}, "web", nil), true},
		"rule 11: 403 forbidden":              {apierrors.NewForbidden(deployments, "web", errors.New("quota")), true},
		"rule 11: 400, a webhook's refusal":   {apierrors.NewBadRequest("no"), true},
		"rule 11: 413":                        {apierrors.NewRequestEntityTooLargeError("big"), true},
		"rule 11: a terminating namespace":    {terminating, false},
		"rule 12: 401, a token being rotated": {apierrors.NewUnauthorized("token"), false},
		"rule 12: 404":                        {apierrors.NewNotFound(deployments, "web"), false},
		"rule 12: 409":                        {apierrors.NewConflict(deployments, "web", errors.New("changed")), false},
		"rule 12: 429":                        {apierrors.NewTooManyRequests("later", 1), false},
		"rule 12: 500":                        {apierrors.NewInternalError(errors.New("oops")), false},
		"rule 12: connection refused":         {errors.New("dial tcp: connection refused"), false},
		"no error":                            {nil, false},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			if got := IsRejection(test.err); got != test.want {
				t.Errorf("IsRejection(%v) = %v, want %v", test.err, got, test.want)
			}
		})
	}
}

// FuzzGateCaughtUp is rule 14 with any resource versions: numbers are compared,
// and with anything else the sync carries on.
func FuzzGateCaughtUp(f *testing.F) {
	f.Add("10", "9")
	f.Add("9", "10")
	f.Add("010", "9")
	f.Add("", "abc")
	f.Add("340282366920938463463374607431768211456", "18446744073709551616")
	f.Fuzz(func(t *testing.T, wrote, reached string) {
		g := NewGate(clock.RealClock{})
		g.Wrote(testKey("foo"), Parents, wrote)
		got := g.CaughtUp(testKey("foo"), Versions{reached, ""})
		want := true
		if isNumber(wrote) && isNumber(reached) {
			want = len(reached) > len(wrote) || len(reached) == len(wrote) && reached >= wrote
		}
		if got != want {
			t.Errorf("rule 14: wrote %q, reached %q: caught up: %v", wrote, reached, got)
		}
	})
}

func isNumber(version string) bool {
	return version != "" && version[0] != '0' && strings.Trim(version, "0123456789") == ""
}

// FuzzRejection is about errors of any code, reason and text: a refusal for good is
// never one that is to be tried again soon.
func FuzzRejection(f *testing.F) {
	f.Add(int32(422), "Invalid", "no")
	f.Add(int32(403), "Forbidden", "exceeded quota")
	f.Add(int32(409), "Conflict", "")
	f.Fuzz(func(t *testing.T, code int32, reason, message string) {
		err := &statusError{metav1.Status{Code: code, Reason: metav1.StatusReason(reason), Message: message}}
		got := IsRejection(fmt.Errorf("creating: %w", err))
		if temporary := code == 409 || code == 429 || code >= 500; temporary && got && !slices.Contains([]string{"Invalid", "Forbidden", "BadRequest", "RequestEntityTooLarge"}, reason) {
			t.Errorf("rule 12: %d %s is taken for a refusal", code, reason)
		}
	})
}

// statusError is any answer of an API server.
type statusError struct{ status metav1.Status }

// Error implements error.
func (e *statusError) Error() string { return e.status.Message }

// Status implements apierrors.APIStatus.
func (e *statusError) Status() metav1.Status { return e.status }
