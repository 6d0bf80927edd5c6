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
	"fmt"
	"testing"

	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestContract has what a simulated cluster would not show of the Foo contract, and executes what conditions advise. This
// runs one case: hack/e2e.sh -run TestContract/adoption
func TestContract(t *testing.T) {
	t.Parallel()
	for name, test := range map[string]func(t *testing.T){
		"restricted":    restrictedNamespace,
		"adoption":      adoption,
		"rename stalls": renameStalls, // +drop:rename
		"quota of one":  quotaOfOne,   // +drop:rename
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func adoption(t *testing.T) {
	e := startEnv(t, "")
	e.create("x", replicas(2))
	e.awaitReady("x")
	before := e.deployment("x")
	e.kubectl("delete foo x --cascade=orphan")
	mark, foo := e.mark(), e.create("x", replicas(1))
	command := fmt.Sprintf("kubectl annotate deployment x %s=x -n %s", v1alpha1.AdoptByAnnotation, e.namespace)
	e.awaitReason("x", v1alpha1.ReasonDeploymentNotOwned, "has no controller; have it adopted with "+command+",")
	e.awaitEvent(foo, "ErrResourceExists")
	e.settle()
	e.noWrites(mark, "deployments", "x")

	sh(t, command)
	e.awaitReady("x")
	e.awaitEvent(foo, "Adopted")
	after := e.deployment("x")
	if !metav1.IsControlledBy(after, foo) || len(after.OwnerReferences) != 1 || *after.Spec.Replicas != 1 || after.UID != before.UID ||
		after.Annotations[v1alpha1.AdoptByAnnotation] != "" || !equality.Semantic.DeepEqual(before.Spec.Template, after.Spec.Template) {
		t.Errorf("the Deployment was %+v and became %+v", before, after)
	}
}

// restricted is what the Pod Security level demands of the Pod template.
const restricted = `{"spec":{"template":{"spec":{"securityContext":{"runAsNonRoot":true,"runAsUser":101,"seccompProfile":{"type":"RuntimeDefault"}},
	"containers":[{"name":"nginx","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}}}`

// restrictedNamespace shows that a Pod Security level which refuses the Pods makes the Foo stalled, and that an autoscaler
// works on the Foo.
func restrictedNamespace(t *testing.T) {
	e := startEnv(t, "")
	e.kubectl("label namespace " + e.namespace + " pod-security.kubernetes.io/enforce=restricted")
	e.create("x")
	e.awaitReason("x", v1alpha1.ReasonDeploymentStalled, "violates PodSecurity", "set the securityContext in the Pod template",
		"kubectl edit deployment x -n "+e.namespace)
	e.kubectl("patch deployment x -p '" + restricted + "'")
	e.awaitReady("x")
	// Without metrics an autoscaler raises the replicas to its minimum. The Foo's Pods keep what users have patched.
	e.apply("{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: x}, spec: {minReplicas: 3, maxReplicas: 5, " +
		"scaleTargetRef: {apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, name: x}}}")
	awaitObject(e, e.foos(), "x", "the autoscaler scales the Foo", func(foo *v1alpha1.Foo) error {
		if ptr.Deref(foo.Spec.Replicas, 1) != 3 || foo.Status.AvailableReplicas != 3 {
			return fmt.Errorf("status %+v", foo.Status)
		}
		return nil
	})
}
