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

	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

func TestMustJSON(t *testing.T) {
	defer func() {
		if got := fmt.Sprint(recover()); !strings.Contains(got, "encoding func()") {
			t.Errorf("a value that cannot be encoded made the panic %q", got)
		}
	}()
	mustJSON(func() {})
}

// TestLongValue is rule 24: messages and what is remembered have a bounded part of a value.
func TestLongValue(t *testing.T) {
	for length, whole := range map[int]bool{maxChangeValue: true, maxChangeValue + 1: false} {
		text := strings.Repeat("a", length)
		if got := shorten(text); (got == text) != whole || strings.HasPrefix(got, text[:maxChangeValue]+"… (sha256 ") == whole {
			t.Errorf("rule 24: of %d bytes %q is kept", length, got)
		}
	}
}

func TestPatchOfTwoContainers(t *testing.T) {
	patch := NewPatch(&appsv1.Deployment{ObjectMeta: metav1.ObjectMeta{ResourceVersion: "10"}})
	patch.SetInContainer("first", "x", "a", "x", "image")
	patch.SetInContainer("first", nil, "[]", "none", "args")
	patch.SetInContainer("second", "y", "b", "y", "image")
	const want = `{"metadata":{"resourceVersion":"10"},"spec":{"template":{"spec":{"containers":[{"args":null,"image":"x","name":"first"},{"image":"y","name":"second"}]}}}}`
	if got := string(patch.JSON()); got != want {
		t.Errorf("patch %s, want %s", got, want)
	}
}
