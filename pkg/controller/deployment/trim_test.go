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

package deployment

import (
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
)

func TestTrimDropsFinalizers(t *testing.T) {
	d := newRollout(func(d *appsv1.Deployment) { d.Finalizers = []string{"example.com/hold"} })
	if got := NewInterner().Trim(d, corev1.PodTemplateSpec{}).Finalizers; got != nil {
		t.Errorf("rule 24: finalizers are kept only of a terminating Deployment, not %q", got)
	}
}

func TestInternerContainers(t *testing.T) {
	interner := NewInterner()
	first := interner.Containers("one", "image")
	for name, test := range map[string]struct {
		name, image string
		same        bool
	}{
		"the same":      {"one", "image", true},
		"another name":  {"two", "image", false},
		"another image": {"one", "other", false},
	} {
		t.Run(name, func(t *testing.T) {
			got := interner.Containers(test.name, test.image)
			if len(got) != 1 || got[0].Name != test.name || got[0].Image != test.image {
				t.Errorf("got %+v", got)
			}
			if same := &got[0] == &first[0]; same != test.same {
				t.Errorf("it is the same copy: %v, want %v", same, test.same)
			}
		})
	}
}
