//go:build e2e && node

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

package e2e

import (
	"path/filepath"
	"strings"
	"testing"
)

// TestNodeRelease installs a release from its files, as docs/release.md says, with kubectl and with Helm.
// The nodes run its image, which hack/e2e-node.sh has pushed to their registry.
func TestNodeRelease(t *testing.T) {
	e := newEnv(t)
	shOnCleanup(t, "make deploy IMG="+testImage+" && kubectl apply -k artifacts/deploy/policy")
	shWithin(t, teardownTimeout, "make undeploy")
	release := filepath.Join(shared.work, "release")
	chart := strings.TrimSpace(sh(t, "ls "+release+"/sample-controller-*.tgz"))
	version := "v" + strings.TrimSuffix(strings.TrimPrefix(filepath.Base(chart), "sample-controller-"), ".tgz")
	sh(t, "cd "+release+" && sha256sum --check SHA256SUMS")
	digest := strings.TrimSpace(sh(t, "jq --raw-output '.manifests[0].digest' "+filepath.Join(shared.work, "layout", "index.json")))

	installed := func(name string) {
		e.roll("true", "registry.example.com/sample-controller:"+version)
		pods, err := runningPods(t.Context(), systemNamespace, controllerSelector)
		e.must(err)
		for _, pod := range pods {
			if image := pod.Status.ContainerStatuses[0].ImageID; !strings.HasSuffix(image, "@"+digest) {
				t.Errorf("the Pod %s runs %s, the digest of the release is %s", pod.Name, image, digest)
			}
		}
		mustContain(t, sh(t, "kubectl logs deployment/sample-controller --namespace="+systemNamespace), `version="sample-controller `+version+" (commit ")
		sh(t, applyFoo(e.namespace, name, "spec: {deploymentName: "+name+"}"))
		e.awaitFoo(name)
	}
	sh(t, "kubectl apply -f "+release+"/install.yaml")
	installed("by-kubectl")
	shWithin(t, teardownTimeout, "make undeploy")

	helm := func(command string) {
		sh(t, "helm "+command+" --namespace="+systemNamespace+" --wait")
	}
	helm("install sample-controller " + chart + " --create-namespace")
	installed("by-helm")
	shWithin(t, teardownTimeout, "make uninstall")
	helm("uninstall sample-controller")
	sh(t, "kubectl delete namespace "+systemNamespace)
}
