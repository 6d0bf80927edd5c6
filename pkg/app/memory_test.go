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
	"os"
	"runtime/debug"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestMemoryLimit sets the limit of the test's own process, and sets it back.
func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	for sentence, test := range map[string]struct {
		goMemLimit, container string
		want                  int64
		err                   string
	}{
		"outside a container Go keeps its default":         {want: before},
		"in a container Go may use 90 % of its memory":     {container: "100000000000", want: 90_000_000_000},
		"GOMEMLIMIT takes precedence":                      {goMemLimit: "100MiB", container: "many", want: before},
		"what is no number is refused":                     {container: "256Mi", want: before, err: `the environment variable MEMORY_LIMIT is "256Mi"; give`},
		"0 is refused":                                     {container: "0", want: before, err: `is "0"`},
		"the memory of the largest machines is no problem": {container: "9223372036854775800", want: 8301034833169298220},
	} {
		t.Run(sentence, func(t *testing.T) {
			debug.SetMemoryLimit(before)
			t.Setenv("GOMEMLIMIT", test.goMemLimit)
			t.Setenv(memoryLimitVariable, test.container)
			checkError(t, "the limit", applyMemoryLimit(), test.err)
			if got := debug.SetMemoryLimit(-1); got != test.want {
				t.Errorf("the limit is %d, want %d", got, test.want)
			}
		})
	}
}

// TestManifestPassesTheMemoryLimit: the process learns the limit of its container.
func TestManifestPassesTheMemoryLimit(t *testing.T) {
	text, err := os.ReadFile("../../artifacts/deploy/controller/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.Unmarshal(text, &deployment); err != nil {
		t.Fatal(err)
	}
	container := &deployment.Spec.Template.Spec.Containers[0]
	if container.Resources.Limits.Memory().IsZero() {
		t.Fatal("the container has no memory limit")
	}
	for _, variable := range container.Env {
		if variable.Name == memoryLimitVariable && variable.ValueFrom != nil && variable.ValueFrom.ResourceFieldRef != nil && variable.ValueFrom.ResourceFieldRef.Resource == "limits.memory" {
			return
		}
	}
	t.Errorf("%s is not passed in %+v", memoryLimitVariable, container.Env)
}
