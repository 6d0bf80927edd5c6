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
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

func TestGoMemoryLimit(t *testing.T) {
	for sentence, test := range map[string]struct {
		goMemLimit, container string
		want                  int64
		err                   string
	}{
		"outside a container Go keeps its default":         {},
		"in a container Go may use 90 % of its memory":     {container: "268435400", want: 241591860},
		"GOMEMLIMIT takes precedence":                      {goMemLimit: "100MiB", container: "268435456"},
		"GOMEMLIMIT takes precedence over a wrong limit":   {goMemLimit: "off", container: "many"},
		"what is no number is refused":                     {container: "256Mi", err: `the environment variable MEMORY_LIMIT is "256Mi"; give`},
		"0 is refused":                                     {container: "0", err: `is "0"`},
		"the memory of the largest machines is no problem": {container: "9223372036854775800", want: 8301034833169298220},
	} {
		t.Run(sentence, func(t *testing.T) {
			got, err := goMemoryLimit(test.goMemLimit, test.container)
			if got != test.want || (err == nil) != (test.err == "") || err != nil && !strings.Contains(err.Error(), test.err) {
				t.Errorf("got %d, error %v, want %d and %q", got, err, test.want, test.err)
			}
		})
	}
}

// TestApplyMemoryLimit sets the limit of the test's own process, and sets it back.
func TestApplyMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	t.Cleanup(func() { debug.SetMemoryLimit(before) })
	t.Setenv("GOMEMLIMIT", "")
	t.Setenv(memoryLimitVariable, "100000000000")
	if err := applyMemoryLimit(); err != nil {
		t.Fatal(err)
	}
	if got := debug.SetMemoryLimit(-1); got != 90_000_000_000 {
		t.Errorf("the limit is %d", got)
	}
	t.Setenv(memoryLimitVariable, "")
	if err := applyMemoryLimit(); err != nil {
		t.Fatal(err)
	}
	if got := debug.SetMemoryLimit(-1); got != 90_000_000_000 {
		t.Errorf("without a variable the limit became %d", got)
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
