//go:build e2e

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
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
)

// TestPolicy shows what the example of a ValidatingAdmissionPolicy allows in a namespace with
// limits, and that it does not affect other namespaces.
func TestPolicy(t *testing.T) {
	t.Parallel()
	shared.installCRD(t)
	limited, free := unique("limited"), unique("free")
	sh(t, fmt.Sprintf("kubectl create namespace %s && kubectl create namespace %s", limited, free))
	sh(t, "kubectl apply --namespace="+limited+" -f artifacts/examples/foo-policy.yaml")
	shOnCleanup(t, fmt.Sprintf("kubectl delete --namespace=%s -f artifacts/examples/foo-policy.yaml && kubectl delete namespace --wait=false %s %s", limited, limited, free))
	const tooMany = "spec.replicas: 11 are more than the 10 that ConfigMap foo-limits allows"
	eventually(t, "the API server enforces the policy", func(context.Context) error {
		output, err := try(t, strings.Replace(applyFoo(limited, "probe", "spec: {deploymentName: x, replicas: 11}"), "kubectl apply", "kubectl apply --dry-run=server", 1))
		switch {
		case err == nil:
			return errors.New("11 replicas are admitted")
		case !strings.Contains(output, tooMany):
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	sh(t, applyFoo(limited, "x", "spec: {deploymentName: x, replicas: 10, image: registry.k8s.io/nginx}"))
	sh(t, applyFoo(limited, "plain", "spec: {deploymentName: plain}"))
	mustContain(t, shFails(t, applyFoo(limited, "x", "spec: {deploymentName: x, replicas: 11}")), tooMany)
	mustContain(t, shFails(t, "kubectl scale foo x --replicas=11 --namespace="+limited), tooMany)
	sh(t, "kubectl scale foo x --replicas=9 --namespace="+limited)
	for _, image := range []string{"nginx", "registry.k8s.io.example.com/nginx", "docker.io/nginx"} {
		mustContain(t, shFails(t, applyFoo(limited, "x", "spec: {deploymentName: x, image: "+image+"}")),
			"spec.image: "+image+" is of none of the registries that ConfigMap foo-limits allows: registry.example.com, registry.k8s.io")
	}
	sh(t, applyFoo(free, "x", "spec: {deploymentName: x, replicas: 11, image: nginx}"))
}
