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

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestPolicy shows what the examples of ValidatingAdmissionPolicies allow in a namespace with
// limits, and that others have none.
func TestPolicy(t *testing.T) {
	t.Parallel()
	shared.deploy(t)
	limited, free := unique("limited"), unique("free")
	sh(t, fmt.Sprintf("kubectl create namespace %s && kubectl create namespace %s && kubectl label namespace %s example.com/limits=enforced", limited, free, limited))
	policies := " --namespace=" + limited + " -f artifacts/examples/$(cd artifacts/examples && echo *-policy.yaml | sed 's# # -f artifacts/examples/#g')"
	sh(t, "kubectl apply"+policies)
	shOnCleanup(t, fmt.Sprintf("kubectl delete --ignore-not-found %s && kubectl delete namespace --wait=false %s %s", policies, limited, free))
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
	const registries = " is of none of the registries that ConfigMap foo-limits allows: registry.example.com, registry.k8s.io"
	sh(t, applyFoo(limited, "x", "spec: {deploymentName: x, replicas: 10, image: registry.k8s.io/nginx}"))
	mustContain(t, shFails(t, applyFoo(limited, "x", "spec: {deploymentName: x, replicas: 11}")), tooMany)
	mustContain(t, shFails(t, applyFoo(limited, "plain", "spec: {deploymentName: plain}")), "spec.image: "+defaultImage+registries)
	mustContain(t, shFails(t, "kubectl scale foo x --replicas=11 --namespace="+limited), tooMany)
	sh(t, "kubectl scale foo x --replicas=9 --namespace="+limited)
	for _, image := range []string{"nginx", "registry.k8s.io.example.com/nginx", "docker.io/nginx"} {
		mustContain(t, shFails(t, applyFoo(limited, "x", "spec: {deploymentName: x, image: "+image+"}")), "spec.image: "+image+registries)
	}
	// +drop:memcached,crontab
	for _, check := range []func(t *testing.T, limited, registries string){
		memcachedPolicy, // +drop:memcached
		cronTabPolicy,   // +drop:crontab
	} {
		check(t, limited, registries)
	}
	// +drop:end
	sh(t, applyFoo(free, "x", "spec: {deploymentName: x, replicas: 11, image: nginx}"))

	sh(t, "kubectl delete configmap foo-limits --namespace="+limited)
	eventually(t, "without the ConfigMap nothing is admitted", func(context.Context) error {
		output, err := try(t, applyFoo(limited, "later", "spec: {deploymentName: later, replicas: 1, image: registry.k8s.io/nginx}"))
		if err == nil || !strings.Contains(output, "no params found") {
			return fmt.Errorf("error %w: %s", err, output)
		}
		return nil
	})
}

// defaultImage is what the controller runs if a Foo names no image.
const defaultImage = "nginx:latest"

// addHostPath is a change of users that the policy for the controller does not let it copy.
const addHostPath = `{"spec":{"template":{"spec":{"volumes":[{"name":"host","hostPath":{"path":"/tmp"}}]}}}}`

// renameRefusedByPolicy runs with the policy that deploy applies.
func renameRefusedByPolicy(t *testing.T) {
	e := startEnv(t, "")
	foo := e.create("x", deploymentName("old"), replicas(2))
	e.awaitReady("x")
	e.kubectl("patch deployment old -p '" + addHostPath + "'")
	e.kubectl("rollout status deployment old")
	e.awaitReady("x")
	stop := e.watchAvailability(foo)
	e.update("x", deploymentName("new"))
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentRejected), "starts no Pods with a hostPath volume; remove it", "the former Deployment", "old")

	// The controller changes what it owns, as long as it leaves the template as it is.
	e.update("x", deploymentName("old"), replicas(3))
	e.awaitReady("x")
	e.update("x", deploymentName("new"))
	e.awaitNotReady("x", v1alpha1.ReasonDeploymentRejected)
	e.kubectl(`patch deployment old --type=json -p '[{"op":"remove","path":"/spec/template/spec/volumes"}]'`)
	e.awaitReady("x")
	if none, asked := stop(); none > 0 || asked == 0 {
		t.Errorf("at %d of %d moments no Pod was available", none, asked)
	}
	e.awaitGone("old")
}

// restricted is what the Pod Security level demands of the Pod template.
const restricted = `{"spec":{"template":{"spec":{"securityContext":{"runAsNonRoot":true,"runAsUser":101,"seccompProfile":{"type":"RuntimeDefault"}},
	"containers":[{"name":"nginx","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}}}`

func restrictedNamespace(t *testing.T) {
	e := startEnv(t, "")
	e.kubectl("label namespace " + e.namespace + " pod-security.kubernetes.io/enforce=restricted")
	e.create("x")
	mustContain(t, e.awaitNotReady("x", v1alpha1.ReasonDeploymentStalled), "violates PodSecurity", "set the securityContext in the Pod template", "kubectl edit deployment x -n "+e.namespace)
	e.kubectl("patch deployment x -p '" + restricted + "'")
	e.awaitReady("x")
	e.update("x", deploymentName("renamed"))
	e.awaitReady("x")
	e.awaitGone("x")
}

// TestUsersPolicy applies the policies for those who write our kinds. Other tests run meanwhile,
// as a user who may do everything.
func TestUsersPolicy(t *testing.T) {
	t.Parallel()
	e := startEnv(t, "")
	sh(t, "kubectl apply -k artifacts/deploy/policy-users")
	shOnCleanup(t, "kubectl delete -k artifacts/deploy/policy-users")
	user := unique("jane")
	var resources, names []string
	for _, k := range shared.kinds {
		resources, names = append(resources, k.crd()), append(names, k.Names.Kind)
	}
	e.kubectl("create role jane --verb=get,create,patch --resource=" + strings.Join(resources, ","))
	e.kubectl("create rolebinding jane --role=jane --user=" + user)
	e.kubectl("create role dependents --verb=create --resource=" + strings.Join(shared.dependents, ","))
	samples := fmt.Sprintf(`kubectl apply --namespace=%s --as=%s -f $(grep -lE '^kind: "?(%s)"?$' artifacts/examples/*.yaml | paste -sd, -)`, e.namespace, user, strings.Join(names, "|"))
	refused := user + " may not create in the namespace " + e.namespace
	eventually(t, "the API server enforces the policies", func(context.Context) error {
		output, err := try(t, samples+" --dry-run=server")
		if count := strings.Count(output, refused); err == nil || count < len(shared.kinds) {
			return fmt.Errorf("error %w, %d of %d kinds refused: %s", err, count, len(shared.kinds), output)
		}
		return nil
	})

	e.kubectl("create rolebinding dependents --role=dependents --user=" + user)
	eventually(t, "a user who may create the dependents creates each kind", func(context.Context) error {
		output, err := try(t, samples)
		if err != nil {
			return fmt.Errorf("%w: %s", err, output)
		}
		return nil
	})
	e.awaitReady("example-foo")

	e.kubectl("delete rolebinding dependents")
	spec := fmt.Sprintf(`kubectl patch foo example-foo --namespace=%s --as=%s --type=merge -p '{"spec":{"replicas":2}}'`, e.namespace, user)
	eventually(t, "another user may not change the spec", func(context.Context) error {
		output, err := try(t, spec+" --dry-run=server")
		if err == nil || !strings.Contains(output, "the Foo creates deployments, which "+refused) {
			return fmt.Errorf("error %w: %s", err, output)
		}
		return nil
	})
	sh(t, strings.Replace(spec, `"spec":{"replicas":2}`, `"metadata":{"labels":{"a":"b"}}`, 1))
	// The garbage collector writes finalizers.
	e.kubectl("delete foo example-foo --cascade=foreground")
	e.awaitGone("example-foo")
}
