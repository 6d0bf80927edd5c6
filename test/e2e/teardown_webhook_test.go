//go:build e2e && teardown

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
	"sync"
	"testing"
)

// TestUndeployWithWebhooks removes the controller while the webhooks answer, and the garbage collector
// watches Foos in the version that they convert to.
func TestUndeployWithWebhooks(t *testing.T) {
	// Informers of versions that are gone are never stopped: the watch may begin as soon as the CRD is there.
	earlier := len(auditedRequests(t))
	w := newWebhookEnv(t)
	sh(t, w.apply("v1beta1", "last", "spec: {deployment: {name: last}, replicas: 1}"))
	sh(t, "kubectl wait --for=condition=Ready --timeout=3m foo/last --namespace="+w.namespace)
	awaitCollector(t, earlier)
	// The kubelet would end the Pods.
	removed := start(t, shared.home, "kubectl wait --for=delete --timeout=10m deployment/"+webhookAccount+" --namespace="+systemNamespace)
	var ended sync.WaitGroup
	ended.Go(func() {
		<-removed.done
		w.server.kill()
	})
	mustUndeploy(t)
	ended.Wait()
}
