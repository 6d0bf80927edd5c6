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

package main

import (
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/runtime/schema"

	"example.com/sample-controller/test/kinds"
)

// TestSuites tests that the suites in test know each kind, and what its controller caches, as
// the descriptor says it.
func TestSuites(t *testing.T) {
	all, err := kinds.Read(".")
	if err != nil {
		t.Fatal(err)
	}
	want, got := map[string][]schema.GroupVersionResource{}, map[string][]schema.GroupVersionResource{}
	for _, descriptor := range newProgram().Controllers {
		name := descriptor.Name + " of " + descriptor.Kind
		for _, informer := range descriptor.Informers {
			want[name] = append(want[name], informer.Resource)
		}
	}
	for _, k := range all {
		name := k.Controller + " of " + k.Kind
		got[name] = append(got[name], k.GVR(), k.Owns.GVR())
		for i := range k.Reads {
			got[name] = append(got[name], k.Reads[i].GVR())
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("resources of the informers (-), of the files testdata/suites.yaml (+):\n%s", diff)
	}
}
