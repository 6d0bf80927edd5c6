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

package v1

import (
	"os"
	"testing"

	"k8s.io/apimachinery/pkg/util/yaml"
)

const examples = "../../../../artifacts/examples/"

// TestCRDSize leaves room for kubectl apply, which stores the CRD as JSON in an annotation:
// all annotations of an object may have 256 KiB.
func TestCRDSize(t *testing.T) {
	text, err := os.ReadFile(examples + "crontab-crd.yaml")
	if err != nil {
		t.Fatal(err)
	}
	data, err := yaml.ToJSON(text)
	if err != nil {
		t.Fatal(err)
	}
	if len(data) > 128<<10 {
		t.Errorf("the CRD has %d bytes as JSON, more than half of the limit for annotations", len(data))
	}
}

// TestExample decodes backup.yaml, which must not have a field that the type lacks.
func TestExample(t *testing.T) {
	text, err := os.ReadFile(examples + "backup.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var cronTab CronTab
	if err := yaml.UnmarshalStrict(text, &cronTab); err != nil {
		t.Fatal(err)
	}
	if cronTab.Name != "backup" || cronTab.Spec.Schedule != "@daily" || cronTab.Spec.JobTemplate.Containers[0].Image != "mybackupscript:v9" {
		t.Errorf("backup.yaml is decoded as %+v", cronTab)
	}
}
