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
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestContract has what a simulated API server would not show of the Foo contract: defaults, managed fields,
// admission, the garbage collector, the Deployment controller and autoscalers. This runs one rule:
// hack/e2e.sh -run 'TestContract/rule_4'
func TestContract(t *testing.T) {
	t.Parallel()
	for sentence, test := range map[string]func(t *testing.T){
		"rule 4: a Deployment of the stock sample is taken over, and drift reverted, without a Pod restart":     repairs,
		"rule 8: a rename that stalls leaves the former Deployment serving, and selectors select both":          renameStalls, // +drop:rename
		"rule 10: an orphaned Deployment is left alone, and the command of the message has it adopted":          adoption,
		"rule 11: under a quota of one Deployment a rename waits, the message says why, and there is one event": quotaOfOne, // +drop:rename
		"rule 13: the API server refuses a status of a Foo that was created anew":                               statusPatch,
		"a Pod Security level that refuses the Pods makes the Foo stalled, and the message tells":               restrictedNamespace,
		"rule 21: the status names the writer that undoes repairs, and an autoscaler works on the Foo":          contention,
	} {
		t.Run(sentence, func(t *testing.T) {
			t.Parallel()
			test(t)
		})
	}
}

func repairs(t *testing.T) {
	e := newEnv(t)
	foo := e.create("x", replicas(2))
	createObject(e, e.deployments(), stockDeployment(foo))
	e.kubectl("rollout status deployment x")
	const getPods = "get pods -o name --sort-by=.metadata.name -l controller=x"
	before, pods := e.deployment("x"), e.kubectl(getPods)
	e.startController("")
	e.awaitReady("x")
	e.settle()
	after := e.deployment("x")
	if now := e.kubectl(getPods); now != pods || !equality.Semantic.DeepEqual(before.Spec, after.Spec) || after.Labels[managedBy] == "" {
		t.Errorf("the Pods were %q and are %q, the Deployment was %+v and is %+v", pods, now, before, after)
	}

	mark := e.mark()
	e.kubectl("rollout restart deployment x")
	e.kubectl("annotate deployment x example.com/note=kept")
	e.kubectl("label --overwrite deployment x team=blue " + managedBy + "=Helm")
	e.kubectl("patch deployment x -p '" + addSidecar + "'")
	e.kubectl("rollout status deployment x")
	e.awaitReady("x")
	e.settle()
	e.noWrites(mark, "deployments", "x")

	e.update("x", withImage("nginx:1.27"))
	e.awaitReady("x")
	before, mark = e.deployment("x"), e.mark()
	e.updateDeployment("x", func(d *appsv1.Deployment) {
		d.Spec.Replicas, d.Spec.Template.Spec.Containers[0].Image = ptr.To[int32](5), "nginx:other"
		d.OwnerReferences[0].BlockOwnerDeletion = nil
		delete(d.Labels, managedBy)
	})
	e.eventually("the drift is reverted", func(context.Context) error {
		now := e.deployment("x")
		if label := now.Labels[managedBy]; label != "sample-controller" || !equality.Semantic.DeepEqual(before.Spec, now.Spec) ||
			!ptr.Deref(now.OwnerReferences[0].BlockOwnerDeletion, false) || now.Annotations["example.com/note"] != "kept" {
			return fmt.Errorf("it was %+v and is %+v", before, now)
		}
		return nil
	})
	e.awaitReady("x")
	if repairs := e.accepted(mark, "patch deployments x"); len(repairs) != 1 {
		t.Errorf("%d patches, want 1: %v", len(repairs), e.writes(mark))
	}
}

// addSidecar changes what rule 4 leaves to others.
const addSidecar = `{"spec":{"template":{"metadata":{"labels":{"theirs":"kept"}},"spec":{"containers":[
	{"name":"nginx","image":"nginx:theirs","env":[{"name":"A","value":"b"}],"resources":{"requests":{"cpu":"1m"}}},
	{"name":"sidecar","image":"sidecar:1"}]}}}}`

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

// statusPatch sends the request with which the controller writes a status: the resourceVersion alone
// makes the API server refuse it for a Foo that was created anew, and it ignores a uid.
func statusPatch(t *testing.T) {
	e := startEnv(t, "")
	e.create("x")
	foo := e.awaitReady("x")
	patch := func(metadata string) error {
		body := []byte(`{"metadata":{` + metadata + `},"status":{"selector":"former"}}`)
		_, err := e.foos().Patch(t.Context(), "x", types.MergePatchType, body, metav1.PatchOptions{}, "status")
		return err
	}
	e.kubectl("delete foo x")
	e.create("x")
	if err := patch(fmt.Sprintf(`"resourceVersion":%q`, foo.ResourceVersion)); !apierrors.IsConflict(err) {
		t.Errorf("a status of the former Foo: error %v, want 409", err)
	}
	if err := patch(fmt.Sprintf(`"uid":%q`, foo.UID)); err != nil {
		t.Errorf("a patch with the uid of the former Foo alone: error %v; if the API server compares it now, the decision about status patches is out of date", err)
	}
}

// restricted is what the Pod Security level demands of the Pod template.
const restricted = `{"spec":{"template":{"spec":{"securityContext":{"runAsNonRoot":true,"runAsUser":101,"seccompProfile":{"type":"RuntimeDefault"}},
	"containers":[{"name":"nginx","securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]}}}]}}}}`

func restrictedNamespace(t *testing.T) {
	e := startEnv(t, "")
	e.kubectl("label namespace " + e.namespace + " pod-security.kubernetes.io/enforce=restricted")
	e.create("x")
	e.awaitReason("x", v1alpha1.ReasonDeploymentStalled, "violates PodSecurity", "set the securityContext in the Pod template",
		"kubectl edit deployment x -n "+e.namespace)
	e.kubectl("patch deployment x -p '" + restricted + "'")
	e.awaitReady("x")
	// +drop:rename
	e.update("x", deploymentName("renamed"))
	e.awaitReady("x")
	e.awaitGone("x")
	// +drop:end
}

func contention(t *testing.T) {
	e := startEnv(t, "")
	foo := e.create("x")
	e.awaitReady("x")
	e.eventually("the status reports the other writer", func(ctx context.Context) error {
		scale, err := e.deployments().GetScale(ctx, "x", metav1.GetOptions{})
		if err != nil {
			return err
		}
		if scale.Spec.Replicas == 1 {
			scale.Spec.Replicas = 2
			// The controller or the Deployment controller may write meanwhile.
			_, _ = e.deployments().UpdateScale(ctx, "x", scale, metav1.UpdateOptions{FieldManager: "contender"})
		}
		message := readyMessage(e.foo("x"))
		if missing := firstMissing(message, []string{`Deployment "x"`, "replicas (by contender through scale)", "scale or change the Foo instead"}); missing != "" {
			return fmt.Errorf("no %q in %q", missing, message)
		}
		return nil
	})
	e.awaitEvent(foo, v1alpha1.ReasonDeploymentContested)
	// Without metrics an autoscaler raises the replicas to its minimum.
	e.apply("{apiVersion: autoscaling/v2, kind: HorizontalPodAutoscaler, metadata: {name: x}, spec: {minReplicas: 3, maxReplicas: 5, " +
		"scaleTargetRef: {apiVersion: samplecontroller.k8s.io/v1alpha1, kind: Foo, name: x}}}")
	e.eventually("the autoscaler scales the Foo", func(context.Context) error {
		if foo := e.foo("x"); ptr.Deref(foo.Spec.Replicas, 1) != 3 || foo.Status.AvailableReplicas != 3 {
			return errors.New(readyMessage(foo))
		}
		return nil
	})
}

func readyMessage(foo *v1alpha1.Foo) string {
	for _, condition := range foo.Status.Conditions {
		if condition.Type == v1alpha1.FooReady {
			return condition.Message
		}
	}
	return ""
}
