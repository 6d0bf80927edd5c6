//go:build e2e && newkind

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
	"slices"  // +external
	"strings" // +external
	"testing"

	"example.com/sample-controller/test/kinds" // +external
)

// TestWalkthroughTenant runs the commands of docs/tenant.md, on a Tenant in the namespace default.
func TestWalkthroughTenant(t *testing.T) {
	shared.deploy(t)
	command := "sample-controller -kubeconfig=$HOME/.kube/config --namespace=default"
	// +external:begin
	k := shared.kinds[slices.IndexFunc(shared.kinds, func(k *kinds.Data) bool { return k.Kind == "Tenant" })]
	service := k.StartService(t.Context())
	command += " " + strings.Join(k.Flags(service), " ")
	// +external:end
	controller := start(t, shared.home, command)
	controller.awaitOutput("Starting Tenant controller", "Started workers")

	mustContain(t, sh(t, `kubectl apply -f artifacts/examples/tenant.yaml`), "tenant-sample created")
	sh(t, `kubectl wait --for=condition=Ready --timeout=1m tenant/tenant-sample`)
	mustContain(t, sh(t, `kubectl get configmap tenant-sample -o yaml`), "displayName: Sample", "kind: Tenant")
	mustContain(t, strings.Join(service.IDs(), " "), sh(t, `kubectl get tenant tenant-sample -o jsonpath='{.status.itemID}'`)) // +external

	sh(t, `kubectl label configmap tenant-sample app.kubernetes.io/managed-by-`)
	shUntil(t, `kubectl get configmap tenant-sample -o jsonpath='{.metadata.labels.app\.kubernetes\.io/managed-by}'`, `.+`)

	const getUID = `kubectl get configmap --ignore-not-found tenant-sample -o jsonpath='{.metadata.uid}'`
	uid := sh(t, getUID)
	sh(t, `kubectl delete configmap tenant-sample`)
	shUntil(t, `test "`+uid+`" != "$(`+getUID+`)" && `+getUID, `.+`)
	shUntil(t, `kubectl describe tenant tenant-sample`, `Created ConfigMap "tenant-sample"`)

	sh(t, `kubectl delete -f artifacts/examples/tenant.yaml`)
	shUntil(t, getUID, `^$`)
	// +external:begin
	if ids := service.IDs(); len(ids) > 0 {
		t.Errorf("the external service has %q", ids)
	}
	// +external:end
	controller.stop()
	controller.requireNoErrors()
}
