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

package kinds

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
)

const valid = `
controller: bar
apiVersion: cache.acme.io/v1
kind: Bar
resource: bars
owns: {apiVersion: v1, kind: ConfigMap}
spec: {data: {name: $(NAME)}}
`

func TestRead(t *testing.T) {
	for name, test := range map[string]struct {
		data string
		// want is a part of the error, "" for none.
		want string
	}{
		"all that is needed":      {valid, ""},
		"a field is missing":      {strings.Replace(valid, "resource: bars", "", 1), "resource is not set"},
		"a field is unknown":      {valid + "change: {}\n", `unknown field "change"`},
		"a JSONPath that is none": {strings.Replace(valid, "kind: ConfigMap", `kind: ConfigMap, name: "{.spec"`, 1), "unclosed action"},
	} {
		file := filepath.Join(t.TempDir(), "suites.yaml")
		if err := os.WriteFile(file, []byte(test.data), 0o600); err != nil {
			t.Fatal(err)
		}
		k, err := ReadFile(file)
		if test.want != "" {
			if err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: error %v, want %q in it", name, err, test.want)
			}
			continue
		}
		if err != nil {
			t.Fatal(err)
		}
		object, err := k.New("x", k.MarkerSpec)
		if err != nil {
			t.Fatal(err)
		}
		got := []string{k.GVR().String(), k.Owns.GVR().String(), Find(k.Owns.Name, object.Object), Find("{.spec.data.name}", object.Object)}
		if diff := cmp.Diff([]string{"cache.acme.io/v1, Resource=bars", "/v1, Resource=configmaps", "x", "x"}, got); diff != "" {
			t.Error(diff)
		}
	}
}

func TestShowSpec(t *testing.T) {
	owns := Owned{Shows: []Shown{
		{Asked: "{.spec.size}", Is: "{.spec.replicas}"},
		{Asked: "{.spec.port}", Is: `{.spec.containers[?(@.name=="a")].command[-1:]}`},
	}}
	containers := func(words ...any) map[string]any {
		return map[string]any{"spec": map[string]any{"replicas": int64(2), "containers": []any{
			map[string]any{"name": "b", "command": []any{"x"}}, map[string]any{"name": "a", "command": words},
		}}}
	}
	for name, test := range map[string]struct {
		spec, owned map[string]any
		want        bool
	}{
		"each field shows":                      {map[string]any{"size": int64(2), "port": int64(80)}, containers("-p", "80"), true},
		"what the spec does not ask for":        {map[string]any{"size": int64(2)}, containers("-p", "90"), true},
		"a field that shows another value":      {map[string]any{"size": int64(3), "port": int64(80)}, containers("-p", "80"), false},
		"a field of a list that shows no value": {map[string]any{"port": int64(80)}, containers(), false},
	} {
		if got := owns.ShowSpec(test.owned, map[string]any{"spec": test.spec}); got != test.want {
			t.Errorf("%s: got %t", name, got)
		}
	}
}

func TestReady(t *testing.T) {
	for name, test := range map[string]struct {
		observed, ofCondition int64
		want                  string
	}{
		"of the current generation":                     {2, 2, "False Waits"},
		"of an earlier generation":                      {1, 1, " "},
		"a condition that is older than the rest of it": {2, 1, " "},
	} {
		status, reason := Ready(&unstructured.Unstructured{Object: map[string]any{
			"metadata": map[string]any{"generation": int64(2)},
			"status": map[string]any{"observedGeneration": test.observed, "conditions": []any{
				map[string]any{"type": "Ready", "status": "False", "reason": "Waits", "observedGeneration": test.ofCondition},
			}},
		}})
		if got := status + " " + reason; got != test.want {
			t.Errorf("%s: got %q, want %q", name, got, test.want)
		}
	}
}
