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

package webhook

import (
	"os"
	"slices"
	"testing"

	"github.com/google/go-cmp/cmp"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/util/yaml"
)

// TestDeployments: the Deployments of the controller and of the webhooks differ only in what this
// test removes, so that a limit or a security context is not changed in one of them alone.
func TestDeployments(t *testing.T) {
	if diff := cmp.Diff(commonSpec(t, "controller"), commonSpec(t, "webhook/server")); diff != "" {
		t.Errorf("the Deployments of controller (-) and webhook/server (+) differ:\n%s", diff)
	}
}

// commonSpec returns the spec of the Deployment in that directory of artifacts/deploy without what
// is its own.
func commonSpec(t *testing.T, directory string) *appsv1.DeploymentSpec {
	t.Helper()
	text, err := os.ReadFile("../../artifacts/deploy/" + directory + "/deployment.yaml")
	if err != nil {
		t.Fatal(err)
	}
	var deployment appsv1.Deployment
	if err := yaml.UnmarshalStrict(text, &deployment); err != nil {
		t.Fatal(err)
	}
	spec := &deployment.Spec
	spec.Selector, spec.Template.Labels = nil, nil
	pod := &spec.Template.Spec
	if len(pod.Containers) != 1 || len(pod.TopologySpreadConstraints) != 1 || pod.Containers[0].ReadinessProbe == nil || pod.Containers[0].StartupProbe == nil {
		t.Fatalf("%s has %+v", directory, pod)
	}
	pod.ServiceAccountName, pod.TerminationGracePeriodSeconds = "", nil
	pod.TopologySpreadConstraints[0].LabelSelector = nil
	container := &pod.Containers[0]
	if ready, started := container.ReadinessProbe.HTTPGet, container.StartupProbe.HTTPGet; !cmp.Equal(ready, started) {
		t.Errorf("%s: the startup probe asks %+v, the readiness probe %+v", directory, started, ready)
	}
	container.Args, container.Lifecycle = nil, nil
	container.ReadinessProbe.HTTPGet.Path, container.StartupProbe.HTTPGet.Path = "", ""
	container.Ports = slices.DeleteFunc(container.Ports, func(port corev1.ContainerPort) bool { return port.Name == "webhook" })
	return spec
}
