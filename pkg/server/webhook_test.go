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

package server

import (
	"bytes"
	"errors"
	"net/http"
	"net/http/httptest"
	"os"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	utilyaml "k8s.io/apimachinery/pkg/util/yaml"

	"example.com/sample-controller/test/fixture"
)

// TestReadinessProbe asks as the kubelet does while no cache is filled. While Foos are stored
// as v1beta1, the API server fills the caches through the webhooks, and the Service routes to
// those of their Pods that are ready.
func TestReadinessProbe(t *testing.T) {
	handler := NewHealthHandler(nil, []Check{NewCheck("caches", func() error { return errors.New("empty") })})
	for manifest, want := range map[string]map[string]int{
		"install.yaml":         {"sample-controller": http.StatusInternalServerError},
		"install-webhook.yaml": {"sample-controller": http.StatusInternalServerError, "sample-controller-webhook": http.StatusOK},
	} {
		text, err := os.ReadFile("../../artifacts/deploy/" + manifest)
		if err != nil {
			t.Fatal(err)
		}
		got := map[string]int{}
		for document := range bytes.SplitSeq(text, []byte("\n---\n")) {
			var deployment appsv1.Deployment
			if err := utilyaml.Unmarshal(document, &deployment); err != nil || deployment.Kind != "Deployment" {
				continue
			}
			answer := httptest.NewRecorder()
			probe := deployment.Spec.Template.Spec.Containers[0].ReadinessProbe
			handler.ServeHTTP(answer, httptest.NewRequest(http.MethodGet, probe.HTTPGet.Path, nil))
			got[deployment.Name] = answer.Code
		}
		fixture.Differ(t, "answers to the probes of the Deployments of "+manifest, want, got)
	}
}
