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

	admissionv1 "k8s.io/api/admissionregistration/v1"
	appsv1 "k8s.io/api/apps/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// Rule 4: policies that change what the controller writes.

const (
	mirror = "mirror.example.com/"
	// stamp is an annotation with another value after each write, as of a webhook that notes
	// the time: no write of the controller is without an event.
	stamp = "example.com/stamp"
)

func changingPolicy(t *testing.T) {
	if shared.minor(t) < 36 {
		t.Log("Kubernetes 1.35 has no MutatingAdmissionPolicy of v1, which this test uses.")
		return
	}
	e := newEnv(t)
	e.changeDeployments()
	e.startController("")
	e.create("x", withImage("nginx:1"))
	message := readyMessage(e.awaitReady("x"))
	mustContain(t, message, "replicas 2 in place of 1", "image "+mirror+"nginx:1 in place of nginx:1")

	e.settle()
	before := e.deployment("x").Annotations[stamp]
	mark := e.mark()
	e.kubectl("label deployment x team=blue")
	e.settle()
	e.noWrites(mark, "deployments", "x")
	if after := e.deployment("x").Annotations[stamp]; before == "" || after == before {
		t.Errorf("the policy put the stamp %q on the Deployment, and %q after another write", before, after)
	}

	e.kubectl("scale deployment x --replicas=5")
	e.awaitDeployment("x", "has the replicas of the policy", func(d *appsv1.Deployment) error {
		if got := ptr.Deref(d.Spec.Replicas, 0); got != 2 {
			return fmt.Errorf("%d replicas", got)
		}
		return nil
	})
	e.awaitReady("x")
	e.settle()
	if repairs := e.accepted(mark, repair); len(repairs) != 1 {
		t.Errorf("%d repairs of a third value, want 1: %v", len(repairs), e.writes(mark))
	}

	// Another process asks once more.
	e.controller.stop()
	mark = e.mark()
	e.startController("")
	e.awaitWrites(mark, repair, 1)
	e.settle()
	if repairs := e.accepted(mark, repair); len(repairs) != 1 {
		t.Errorf("%d repairs after a restart, want 1: %v", len(repairs), e.writes(mark))
	}

	e.update("x", replicas(3))
	if message := readyMessage(e.awaitReady("x")); strings.Contains(message, "replicas 3 in place") || !strings.Contains(message, "image "+mirror) {
		t.Errorf("message %q with replicas that the policy allows", message)
	}
}

func readyMessage(foo *v1alpha1.Foo) string {
	for _, condition := range foo.Status.Conditions {
		if condition.Type == v1alpha1.FooReady {
			return condition.Message
		}
	}
	return ""
}

// changeDeployments adds a policy for the namespace that puts the images of Deployments into
// the mirror, gives them two replicas at least, and stamps each write. It waits until the API
// server applies it.
func (e *env) changeDeployments() {
	e.Helper()
	const expression = `(has(object.metadata.annotations) ? [] : [JSONPatch{op: "add", path: "/metadata/annotations", value: {"` + stamp + `": "new"}}]) + [
  JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("` + stamp + `"), value: request.operation == "CREATE" ? "new" : "after " + oldObject.metadata.resourceVersion},
  JSONPatch{op: "replace", path: "/spec/replicas", value: object.spec.replicas < 2 ? 2 : object.spec.replicas},
  JSONPatch{op: "replace", path: "/spec/template/spec/containers/0/image", value: (object.spec.template.spec.containers[0].image.startsWith("` + mirror + `") ? "" : "` + mirror + `") + object.spec.template.spec.containers[0].image}]`
	name := metav1.ObjectMeta{Name: e.namespace}
	policies := shared.kube.AdmissionregistrationV1().MutatingAdmissionPolicies()
	bindings := shared.kube.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	createObject(e, policies, &admissionv1.MutatingAdmissionPolicy{ObjectMeta: name, Spec: admissionv1.MutatingAdmissionPolicySpec{
		MatchConstraints: &admissionv1.MatchResources{ResourceRules: []admissionv1.NamedRuleWithOperations{{RuleWithOperations: admissionv1.RuleWithOperations{
			Operations: []admissionv1.OperationType{admissionv1.Create, admissionv1.Update},
			Rule:       admissionv1.Rule{APIGroups: []string{appsv1.GroupName}, APIVersions: []string{"v1"}, Resources: []string{"deployments"}},
		}}}},
		Mutations:          []admissionv1.Mutation{{PatchType: admissionv1.PatchTypeJSONPatch, JSONPatch: &admissionv1.JSONPatch{Expression: expression}}},
		FailurePolicy:      ptr.To(admissionv1.Fail),
		ReinvocationPolicy: admissionv1.NeverReinvocationPolicy,
	}})
	e.Cleanup(func() { _ = policies.Delete(context.WithoutCancel(e.Context()), e.namespace, metav1.DeleteOptions{}) })
	createObject(e, bindings, &admissionv1.MutatingAdmissionPolicyBinding{ObjectMeta: name, Spec: admissionv1.MutatingAdmissionPolicyBindingSpec{
		PolicyName:     e.namespace,
		MatchResources: &admissionv1.MatchResources{NamespaceSelector: &metav1.LabelSelector{MatchLabels: map[string]string{"kubernetes.io/metadata.name": e.namespace}}},
	}})
	e.Cleanup(func() { _ = bindings.Delete(context.WithoutCancel(e.Context()), e.namespace, metav1.DeleteOptions{}) })
	e.eventually("the policy is applied", func(ctx context.Context) error {
		probe := stockDeployment(newFoo("probe"), "probe")
		probe.OwnerReferences = nil
		created, err := e.deployments().Create(ctx, probe, metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}})
		if err == nil && !strings.HasPrefix(created.Spec.Template.Spec.Containers[0].Image, mirror) {
			err = fmt.Errorf("image %s", created.Spec.Template.Spec.Containers[0].Image)
		}
		return err
	})
}
