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
	"os"
	"path/filepath"
	"strings"
	"testing"
)

const (
	baseManifest = `# A licence.
---
apiVersion: v1
kind: Namespace
metadata:
  name: system
---
apiVersion: apiextensions.k8s.io/v1
kind: CustomResourceDefinition
metadata:
  name: bars.example.com
---
apiVersion: apps/v1
kind: Deployment
metadata:
  annotations:
    message: '{{ .Braces }}'
  name: main
  namespace: system
spec:
  replicas: 2
  template:
    spec:
      containers:
      - image: main:latest
        name: main
        resources:
          limits:
            memory: 1Gi
`
	addedManifest = `---
apiVersion: apps/v1
kind: Deployment
metadata:
  name: further
  namespace: system
spec:
  replicas: 3
  template:
    spec:
      containers:
      - image: main:latest
        name: further
`
)

// chartOf returns the directory of the chart of these manifests.
func chartOf(t *testing.T, base, further string) (string, error) {
	t.Helper()
	dir, out := t.TempDir(), t.TempDir()
	writeFiles(t, dir, map[string]string{"base.yaml": base, "further.yaml": further})
	manifests := []string{filepath.Join(dir, "base.yaml")}
	if further != "" {
		manifests = append(manifests, "further="+filepath.Join(dir, "further.yaml"))
	}
	return out, writeChart(out, origin{metadata: metadata{program: "main", version: "v1.2.3"}}, manifests)
}

// hack/verify.sh helm compares what Helm makes of the chart with the manifests.
func TestWriteChart(t *testing.T) {
	dir, err := chartOf(t, baseManifest, baseManifest+addedManifest)
	if err != nil {
		t.Fatal(err)
	}
	for file, want := range map[string][]string{
		"Chart.yaml":                 {"\nappVersion: v1.2.3\n", "\nname: main\n", "\nversion: 1.2.3\n"},
		"values.yaml":                {"\nimage: main:latest\nreplicas: 2\nresources:\n  limits:\n", "\nfurther:\n  enabled: false\n  replicas: 3\n"},
		"values.schema.json":         {"\n  \"additionalProperties\": false,\n", "\n    \"image\": {\n", "\n    \"further\": {\n", "\n        \"replicas\": {\n"},
		"crds/bars.example.com.yaml": {"name: bars.example.com\n"},
		"templates/install.yaml":     {"replicas: {{ toJson .Values.replicas }}\n", "namespace: {{ toJson .Release.Namespace }}\n", `message: '{{ "{{" }} .Braces }}'`},
		"templates/further.yaml":     {"{{- if .Values.further.enabled }}\n", "replicas: {{ toJson .Values.further.replicas }}\n", "image: {{ toJson .Values.image }}\n"},
	} {
		got, err := os.ReadFile(filepath.Join(dir, file))
		if err != nil {
			t.Error(err)
		}
		for _, part := range want {
			if !strings.Contains("\n"+string(got), part) {
				t.Errorf("%s has no %q:\n%s", file, part, got)
			}
		}
		if file == "templates/further.yaml" && strings.Contains(string(got), "name: main\n") {
			t.Errorf("%s has an object of the base:\n%s", file, got)
		}
	}
}

func TestWriteChartRefusesWhatItCannotSay(t *testing.T) {
	for name, test := range map[string]struct{ base, further, want string }{
		"no namespace":                  {addedManifest, "", "no Namespace"},
		"another object of that name":   {baseManifest, strings.Replace(baseManifest, "replicas: 2", "replicas: 3", 1), "Deployment main is not that of the base"},
		"an object of the base missing": {baseManifest, addedManifest, "has not the Namespace system"},
		"two containers":                {baseManifest + "      - name: second\n", "", "2 containers"},
		"no YAML":                       {"a: b: c", "", "base.yaml"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := chartOf(t, test.base, test.further); err == nil || !strings.Contains(err.Error(), test.want) {
				t.Errorf("got %v, want %q", err, test.want)
			}
		})
	}
}
