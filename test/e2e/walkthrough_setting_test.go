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

import "testing"

// TestWalkthroughSetting runs the commands of docs/setting.md, on a Setting in the namespace default.
func TestWalkthroughSetting(t *testing.T) {
	shared.deploy(t)
	controller := start(t, shared.home, "sample-controller -kubeconfig=$HOME/.kube/config --namespace=default")
	controller.awaitOutput("Starting Setting controller", "Started workers")

	mustContain(t, sh(t, `kubectl apply -f artifacts/examples/setting.yaml`), "setting-sample created")
	sh(t, `kubectl wait --for=condition=Ready --timeout=1m setting/setting-sample`)
	mustContain(t, sh(t, `kubectl get configmap setting-sample -o yaml`), "color: blue", "kind: Setting")

	sh(t, `kubectl label configmap setting-sample app.kubernetes.io/managed-by-`)
	shUntil(t, `kubectl get configmap setting-sample -o jsonpath='{.metadata.labels.app\.kubernetes\.io/managed-by}'`, `.+`)

	const getUID = `kubectl get configmap --ignore-not-found setting-sample -o jsonpath='{.metadata.uid}'`
	uid := sh(t, getUID)
	sh(t, `kubectl delete configmap setting-sample`)
	shUntil(t, `test "`+uid+`" != "$(`+getUID+`)" && `+getUID, `.+`)
	shUntil(t, `kubectl describe setting setting-sample`, `Created ConfigMap "setting-sample"`)

	sh(t, `kubectl delete -f artifacts/examples/setting.yaml`)
	shUntil(t, getUID, `^$`)
	controller.stop()
	controller.requireNoErrors()
}
