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
	"fmt"
	"strings"
	"testing"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// restricted is what the Pod Security level demands of the Pod template.
const restricted = `{"spec":{"template":{"spec":{"securityContext":{"runAsNonRoot":true,"runAsUser":101,"seccompProfile":{"type":"RuntimeDefault"}},
	"containers":[{"name":"nginx","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}}}`

// TestContract has what a simulated cluster would not show of the Foo contract: a
// Pod Security level that refuses the Pods makes the Foo stalled, and an autoscaler works on the Foo.
func TestContract(t *testing.T) {
	t.Parallel()
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

// TestContractAdoption has a Deployment adopted by the command that the condition advises.
func TestContractAdoption(t *testing.T) {
	t.Parallel()
	e := startEnv(t, "")
	e.create("x", replicas(2))
	e.awaitReady("x")
	before := e.deployment("x")
	e.kubectl("delete foo x --cascade=orphan")
	foo := e.create("x", replicas(1))
	command := fmt.Sprintf("kubectl annotate deployment x %s=x -n %s", v1alpha1.AdoptByAnnotation, e.namespace)
	e.awaitReason("x", v1alpha1.ReasonDeploymentNotOwned, "has no controller; have it adopted with "+command+",")
	sh(t, command)
	e.awaitReady("x")
	after := e.deployment("x")
	if !metav1.IsControlledBy(after, foo) || *after.Spec.Replicas != 1 || after.UID != before.UID || after.Annotations[v1alpha1.AdoptByAnnotation] != "" {
		t.Errorf("the Deployment was %+v and became %+v", before, after)
	}
}

// +drop:rename

// TestContractRename stalls a rename, and shows what follows from the equal selectors of both Deployments
// (docs/operations.md). The former Deployment is paused, and its template asks for what no node has: only the Pods of
// a copy never start.
func TestContractRename(t *testing.T) {
	t.Parallel()
	e := startEnv(t, "")
	e.create("x", deploymentName("old"), replicas(2))
	e.awaitReady("x")
	e.kubectl(`patch deployment old -p '{"spec":{"paused":true,"progressDeadlineSeconds":2,"template":{"spec":{"nodeSelector":{"no":"node"}}}}}'`)
	e.awaitReason("x", v1alpha1.ReasonDeploymentPaused, "kubectl rollout resume")
	e.update(deploymentName("new"))
	e.awaitReason("x", v1alpha1.ReasonDeploymentStalled, `the former Deployment "old" still serves`, "kubectl delete deployment old")
	// An HPA lists Pods by the selector of the scale subresource, kubectl logs by that of the Deployment.
	for _, selector := range []string{e.foo("x").Status.Selector, metav1.FormatLabelSelector(e.deployment("new").Spec.Selector)} {
		pods, err := shared.kube.CoreV1().Pods(e.namespace).List(e.Context(), metav1.ListOptions{LabelSelector: selector})
		e.must(err)
		if podsOf(pods.Items, "old") != 2 || podsOf(pods.Items, "new") == 0 {
			t.Errorf("selector %q selects %d Pods of the former and %d of the new Deployment", selector, podsOf(pods.Items, "old"), podsOf(pods.Items, "new"))
		}
	}
	e.kubectl("delete deployment old --cascade=orphan")
	present := e.deployment("new")
	e.eventually("the new Deployment adopts the former one's ReplicaSets", func(ctx context.Context) error {
		all, err := shared.kube.AppsV1().ReplicaSets(e.namespace).List(ctx, metav1.ListOptions{})
		if err != nil {
			return err
		}
		for i := range all.Items {
			if !metav1.IsControlledBy(&all.Items[i], present) {
				return fmt.Errorf("ReplicaSet %s has the owners %v", all.Items[i].Name, all.Items[i].OwnerReferences)
			}
		}
		return nil
	})
}

// podsOf returns how many Pods there are of the Deployment of that name.
func podsOf(pods []corev1.Pod, deployment string) (count int) {
	for i := range pods {
		if strings.HasPrefix(pods[i].Name, deployment+"-") {
			count++
		}
	}
	return count
}

// +drop:end
