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
	"fmt"
	"slices"
	"strings"
	"testing"
)

// memcachedOf returns the manifest of a Memcached.
func memcachedOf(name, spec string) string {
	return fmt.Sprintf("{apiVersion: cache.example.com/v1alpha1, kind: Memcached, metadata: {name: %q}, spec: {%s}}", name, spec)
}

// applyMemcached applies a Memcached, or changes its size.
func (e *env) applyMemcached(name string, size int) {
	e.Helper()
	e.apply(memcachedOf(name, fmt.Sprint("size: ", size)))
}

// awaitMemcached waits until that many Pods of the Memcached are ready.
func (e *env) awaitMemcached(name string, size int) {
	e.Helper()
	e.kubectl(fmt.Sprintf("wait --for=jsonpath='{.status.readyReplicas}'=%d --timeout=3m memcached/%s", size, name))
}

// TestWalkthrough6 runs the commands of walkthrough 6, on a Memcached in the namespace default.
func TestWalkthrough6(t *testing.T) {
	t.Parallel()
	shared.deploy(t)
	controller := start(t, shared.home, "sample-controller -kubeconfig=$HOME/.kube/config --namespace=default --controllers=memcached")
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

// endpointsOf prints the addresses of the Pods that are ready, of a Service.
const endpointsOf = "kubectl get endpointslices -o jsonpath='{.items[*].endpoints[?(@.conditions.ready)].addresses[*]}' --selector=kubernetes.io/service-name="

// TestMemcached has what a simulated API server would not show of the Memcached contract.
func TestMemcached(t *testing.T) {
	t.Parallel()
	e := startEnv(t, "")
	e.kubectl("label namespace " + e.namespace + " pod-security.kubernetes.io/enforce=restricted pod-security.kubernetes.io/warn=restricted")
	e.applyMemcached("x", 2)
	e.awaitMemcached("x", 2)
	if output := e.controller.output(); strings.Contains(output, "PodSecurity") {
		t.Errorf("rule M24: the API server warned:\n%s", output)
	}
	shUntil(t, endpointsOf+"x --namespace="+e.namespace, `^\S+ \S+$`)

	e.kubectl("scale memcached x --replicas=4")
	e.awaitMemcached("x", 4)
	mustContain(t, e.kubectl("get --raw /apis/cache.example.com/v1alpha1/namespaces/"+e.namespace+"/memcacheds/x/scale"), `"replicas":4`, `"selector":"app=memcached,memcached_cr=x"`)
	e.apply("{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: x}, spec: {minReplicas: 6, maxReplicas: 6, " +
		"scaleTargetRef: {apiVersion: cache.example.com/v1alpha1, kind: Memcached, name: x}}}")
	e.awaitMemcached("x", 6)
	for field, value := range map[string]string{"memoryMegabytes": "0", "topologyKey": `"a b"`} {
		mustContain(t, shFails(t, fmt.Sprintf(`kubectl patch memcached x --type=merge -p '{"spec":{%q:%s}}' --namespace=%s`, field, value, e.namespace)), "spec."+field)
	}
}

// keepMemcachedsBusy creates a Memcached that has no Deployment yet.
func keepMemcachedsBusy(e *env, _ string) (flags string) {
	e.Helper()
	e.applyMemcached("memcached-new", 1)
	return ""
}

// memcachedPolicy tries the limits of memcached-policy.yaml.
func memcachedPolicy(t *testing.T, limited, registries string) {
	t.Helper()
	apply := func(spec string) string {
		return "kubectl apply --namespace=" + limited + " -f - <<< '" + memcachedOf("limited", spec) + "'"
	}
	sh(t, apply("size: 10, image: registry.k8s.io/memcached"))
	mustContain(t, shFails(t, apply("size: 11, image: registry.k8s.io/memcached")), "spec.size: 11 are more than the 10 that ConfigMap foo-limits allows")
	mustContain(t, shFails(t, "kubectl scale memcached limited --replicas=11 --namespace="+limited), "spec.size: 11 are more than the 10")
	mustContain(t, shFails(t, apply("size: 1, image: null")), "spec.image: memcached:1.6-alpine"+registries)
}

// createMemcachedVictims creates a Memcached, and a Service of others.
func createMemcachedVictims(e *env) {
	e.Helper()
	e.applyMemcached("x", 1)
	e.kubectl("create service clusterip theirs --tcp=11211")
}

// memcachedAttempts take the rights of the controller of Memcacheds.
func memcachedAttempts() []attempt {
	const path, owner = "/api/v1/namespaces/NS/services", ", OWNER(Memcached)"
	evil := func(metadata, spec string) string {
		return "{metadata: {name: evil" + metadata + "}, spec: {ports: [{port: 11211}], selector: {app: evil}" + spec + "}}"
	}
	return []attempt{
		{"create a Service that a Memcached controls, with any selector", "POST " + path, evil(owner, "")},
		{"create a Service with externalIPs, and so receive traffic for them", "POST " + path, evil(owner, ", externalIPs: [192.0.2.1]")},
		{"create a Service without an owner", "POST " + path, evil("", "")},
		{"change the selector in a Service of others", "PATCH " + path + "/theirs", "{spec: {selector: {app: evil2}}}"},
		{"delete a Service", "DELETE " + path + "/theirs", ""},
		{"read all Pods and ReplicaSets, with what is in their environment",
			"GET /api/v1/namespaces/NS/pods /apis/apps/v1/namespaces/NS/replicasets", ""},
	}
}
