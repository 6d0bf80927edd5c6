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
	"encoding/json"
	"slices"
	"testing"
)

// TestWalkthrough6 runs the commands of walkthrough 6, on a Memcached in the namespace default.
func TestWalkthrough6(t *testing.T) {
	shared.deploy(t)
	controller := start(t, shared.home, "sample-controller -kubeconfig=$HOME/.kube/config --namespace=default")
	controller.awaitOutput("Starting Memcached controller", "Started workers")

	mustContain(t, sh(t, `kubectl apply -f artifacts/examples/memcached.yaml`), "memcached.cache.example.com/memcached-sample created")
	shUntil(t, `kubectl get deploy`, `(?m)^memcached-sample +3/3 `)
	mustContain(t, sh(t, `kubectl patch memcached memcached-sample -p '{"spec":{"size": 5}}' --type=merge`), "memcached.cache.example.com/memcached-sample patched")
	const getNodes = `kubectl get memcached memcached-sample -o jsonpath='{.status.nodes}'`
	shUntil(t, getNodes, `^\["memcached-sample-[^"]+"(,"memcached-sample-[^"]+"){4}\]$`)
	var nodes []string
	if err := json.Unmarshal([]byte(sh(t, getNodes)), &nodes); err != nil || len(nodes) != 5 || !slices.IsSorted(nodes) {
		t.Errorf("nodes %q (%v)", nodes, err)
	}
	shUntil(t, "kubectl get memcached", `^NAME +SIZE +READY NODES +READY +AGE\nmemcached-sample +5 +5 +True +`)
	mustContain(t, sh(t, "kubectl get service memcached-sample"), "ClusterIP   None", "11211/TCP")
	mustContain(t, sh(t, "kubectl get all"), "service/memcached-sample", "deployment.apps/memcached-sample", "memcached.cache.example.com/memcached-sample")
	mustContain(t, sh(t, "kubectl describe memcached memcached-sample"), "Nodes:", "Events:", `Created Deployment "memcached-sample"`, `Created Service "memcached-sample"`, "replicas from 3 to 5")

	mustContain(t, sh(t, `kubectl delete -f artifacts/examples/memcached.yaml`), `memcached.cache.example.com "memcached-sample" deleted`)
	shUntil(t, `kubectl get deploy,service --ignore-not-found memcached-sample`, `^$`)
	controller.stop()
	controller.requireNoErrors()
}
