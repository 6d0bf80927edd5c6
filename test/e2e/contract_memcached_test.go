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
	"slices"
	"strings"
	"testing"
	"time"

	appsv1 "k8s.io/api/apps/v1"
	autoscalingv2 "k8s.io/api/autoscaling/v2"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/equality"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/sample-controller/pkg/apis/cache/v1alpha1"
	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestMemcachedContract checks the Memcached contract on a real API server, rule by rule.
func TestMemcachedContract(t *testing.T) {
	t.Parallel()
	runRules(t, []rule{
		{"rule M4: the controller reverts drift in the fields that it owns, and no other change", memcachedDrift},
		{"rule M5: the controller never changes a foreign Deployment, and creates its own after the foreign one is deleted", memcachedForeignDeployment},
		{"rule M9: of a Foo and a Memcached that claim one name the current owner keeps it, and the other one gets it later", memcachedAgainstFoo},
		{"rule M13: the number of status updates during scaling and a rolling update is bounded", memcachedStatusWrites},
		{"rule M15: nothing is written while nothing changes, over resyncs and restarts", memcachedSteadyState},
		{"rule M21: the controller pauses while another writer undoes its repairs, and the status names that writer", memcachedContention},
		{"rule M22: the port reaches the command line", memcachedPort},
		{"rule M22: a Memcached with a long name gets a shortened label", memcachedLongName},
		{"rule M23: the nodes are the live Pods that the Deployment controls", memcachedNodes},
		{"rule M24: a namespace that enforces restricted admits the Pods without a warning", memcachedRestricted},
		{"rule M25: kubectl scale and an autoscaler find what they need", memcachedScale},
		{"rules M26 to M28: memory, spread and probe change no Deployment whose Memcached does not ask for them", memcachedOptionalFields},
		{"rules M29 and M30: the Service has the addresses of the Pods, is repaired, and goes with the Memcached", memcachedService},
		{"rule M30: the controller pauses while another writer undoes its repairs of the Service", memcachedServiceContention},
		{"rule M31: the controller never changes a foreign Service, and creates its own after the foreign one is deleted", memcachedForeignService},
		{"rule M32: a Service that is refused is reported, and the Memcached is ready", memcachedServiceRefused},
	})
}

func memcachedDrift(t *testing.T) {
	e := startEnv(t, "")
	memcached := e.createMemcached("drift", size(2), port(11311))
	e.awaitMemcachedReady("drift")
	mark := e.mark()
	e.kubectl("rollout restart deployment drift")
	e.updateDeployment("drift", func(d *appsv1.Deployment) {
		d.Annotations["example.com/note"] = "kept"
		pod := &d.Spec.Template.Spec
		pod.Containers[0].Env = []corev1.EnvVar{{Name: "MODE", Value: "kept"}}
		pod.Containers[0].Ports = append([]corev1.ContainerPort{{Name: "extra", ContainerPort: 11311, Protocol: corev1.ProtocolUDP}}, pod.Containers[0].Ports...)
		pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
		pod.Containers = append(pod.Containers, corev1.Container{Name: "sidecar", Image: "sidecar:1"})
	})
	e.awaitMemcachedReady("drift")
	e.noWrites(mark, "deployments", "drift")
	before := e.deployment("drift")

	container := func(change func(*corev1.Container)) func() {
		return func() {
			e.updateDeployment("drift", func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec.Containers[0]) })
		}
	}
	for i, drift := range []struct {
		event  string
		change func()
	}{
		{"replicas from 5 to 2", func() { e.kubectl("scale deployment drift --replicas=5") }},
		{"image from memcached:other to memcached:1.6-alpine", func() { e.kubectl("set image deployment/drift memcached=memcached:other") }},
		{"-p 11311], resources.requests.memory, resources.limits.memory", container(func(c *corev1.Container) { c.Command = []string{"memcached", "-m", "1024"} })},
		{`args from [-m 1] to none`, container(func(c *corev1.Container) { c.Args = []string{"-m", "1"} })},
		{"ports from memcached 22222/TCP to memcached 11311/TCP", container(func(c *corev1.Container) { c.Ports[1].ContainerPort = 22222 })},
		{"securityContext.runAsUser from none to 11211, securityContext.allowPrivilegeEscalation from none to false", container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ptr.To(true), Capabilities: c.SecurityContext.Capabilities, ReadOnlyRootFilesystem: ptr.To(true)}
		})},
		{"securityContext.runAsNonRoot from none to true, spec.securityContext.seccompProfile from none to RuntimeDefault", func() {
			e.updateDeployment("drift", func(d *appsv1.Deployment) { d.Spec.Template.Spec.SecurityContext = nil })
		}},
		{`label ` + managedBy + ` from none to sample-controller`, func() { e.kubectl("label deployment drift " + managedBy + "-") }},
	} {
		e.awaitMemcachedReady("drift")
		mark = e.mark()
		drift.change()
		e.eventually("event: "+drift.event, func(context.Context) error {
			if !slices.ContainsFunc(e.events(memcached, "Updated"), func(e corev1.Event) bool {
				return strings.HasSuffix(strings.ReplaceAll(e.Message, `"`, ""), drift.event)
			}) {
				return fmt.Errorf("events %v", e.events(memcached, "Updated"))
			}
			return nil
		})
		after := e.deployment("drift")
		if !equality.Semantic.DeepEqual(before.Spec, after.Spec) || !equality.Semantic.DeepEqual(before.Labels, after.Labels) {
			t.Errorf("%s: the Deployment is not restored:\nbefore %+v %+v\nafter  %+v %+v", drift.event, before.Labels, before.Spec, after.Labels, after.Spec)
		}
		if repairs := e.accepted(mark, "patch deployments drift"); len(repairs) != 1 {
			t.Errorf("%s: %d patches, want 1: %v", drift.event, len(repairs), e.writes(mark))
		}
		// A new generation without an effect: many drifts in one are contention (rule M21).
		memory := ptr.To[int32](64)
		if i%2 == 1 {
			memory = nil
		}
		e.updateMemcached("drift", func(spec *cachev1alpha1.MemcachedSpec) { spec.MemoryMegabytes = memory })
	}
	e.awaitMemcachedReady("drift")
	e.updateDeployment("drift", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.Containers[1:] })
	e.awaitDeployment("drift", "the container is back", func(d *appsv1.Deployment) error {
		if len(d.Spec.Template.Spec.Containers) != 2 {
			return fmt.Errorf("containers %+v", d.Spec.Template.Spec.Containers)
		}
		return nil
	})
	e.awaitMemcachedReady("drift")
}

func memcachedForeignDeployment(t *testing.T) {
	e := startEnv(t, "")
	foreign := e.createDeployment("cache")
	memcached := e.createMemcached("cache")
	blocked, ready := e.awaitMemcachedReason("cache", v1alpha1.ReasonDeploymentNotOwned)
	mustContain(t, ready.Message, `Deployment "cache" exists and has no controller`, "create this Memcached under another name")
	e.awaitOneEvent(memcached, "ErrResourceExists")
	if blocked.Status.Nodes == nil || len(blocked.Status.Nodes) > 0 || blocked.Status.ReadyReplicas != 0 || blocked.Status.Selector != "" {
		t.Errorf("status %+v", blocked.Status)
	}
	if nodes := e.kubectl("get memcached cache -o jsonpath='{.status.nodes}'"); nodes != "[]" {
		t.Errorf("the nodes are %q, not []", nodes)
	}
	if now := e.deployment("cache"); now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the foreign Deployment was written to: %+v", now.ObjectMeta)
	}
	e.kubectl("delete deployment cache")
	e.awaitMemcachedReady("cache")
}

func memcachedAgainstFoo(t *testing.T) {
	e := startEnv(t, "")
	e.create("foo", deploymentName("cache"))
	e.awaitReady("foo")
	e.createMemcached("cache", size(2))
	_, ready := e.awaitMemcachedReason("cache", v1alpha1.ReasonDeploymentNotOwned)
	mustContain(t, ready.Message, `controlled by Foo "foo"`)
	e.update("foo", deploymentName("elsewhere"))
	e.awaitMemcachedReady("cache")
	e.awaitReady("foo")

	e.update("foo", deploymentName("cache"))
	mustContain(t, e.awaitNotReady("foo", v1alpha1.ReasonDeploymentNotOwned), `controlled by Memcached "cache"`)
	e.awaitMemcachedReady("cache")
}

// memcachedStatusWrites counts status updates in the audit log. The contract allows one when
// Ready changes and one for each second of progress.
func memcachedStatusWrites(t *testing.T) {
	e := startEnv(t, "")
	e.createMemcached("x")
	e.awaitMemcachedReady("x")
	for _, change := range []struct {
		what   string
		change func()
	}{
		{"scaling from 1 to 5", func() { e.updateMemcached("x", size(5)) }},
		{"a rolling update of 5", func() { e.updateMemcached("x", memcachedImage("memcached:other")) }},
		{"scaling from 5 to 1", func() { e.updateMemcached("x", size(1)) }},
	} {
		e.settle()
		mark, began := e.mark(), time.Now()
		change.change()
		e.awaitMemcachedReady("x")
		took := time.Since(began)
		e.runFor(1500 * time.Millisecond)
		writes, most := len(e.accepted(mark, "patch memcacheds/status x")), 1+int(took.Seconds())
		t.Logf("%s: %d status writes in %s", change.what, writes, took.Round(time.Millisecond))
		if writes < 1 || writes > most {
			t.Errorf("%s: %d status writes in %s, want %d at most: %v", change.what, writes, took, most, e.writes(mark))
		}
		if patches := len(e.accepted(mark, "patch deployments x")); patches != 1 {
			t.Errorf("%s: %d patches of the Deployment, want 1", change.what, patches)
		}
	}
}

func memcachedSteadyState(t *testing.T) {
	e := startEnv(t, "--resync-period=1s")
	for i := range 3 {
		e.createMemcached(fmt.Sprintf("steady-%d", i), size(int32(i)))
	}
	e.createDeployment("blocked")
	blocked := e.createMemcached("blocked")
	for i := range 3 {
		e.awaitOneEvent(e.awaitMemcachedReady(fmt.Sprintf("steady-%d", i)), "Synced")
	}
	e.awaitMemcachedReason("blocked", v1alpha1.ReasonDeploymentNotOwned)
	e.awaitOneEvent(blocked, "ErrResourceExists")

	mark := e.mark()
	e.runFor(3500 * time.Millisecond)
	e.controller.stop()
	e.startController("--resync-period=1s")
	e.runFor(2500 * time.Millisecond)
	if writes := e.writes(mark); len(writes) > 0 {
		t.Errorf("the controller wrote, though nothing had changed: %v", writes)
	}
}

func memcachedContention(t *testing.T) {
	e := startEnv(t, "")
	memcached := e.createMemcached("x")
	e.awaitMemcachedReady("x")
	mark := e.mark()
	stop := e.startContender("x", 2)
	_, ready := e.awaitMemcachedReason("x", v1alpha1.ReasonDeploymentContested)
	stop()
	mustContain(t, ready.Message, `Deployment "x"`, "replicas (by contender through scale)", "scale or change the Memcached instead")
	if repairs := e.accepted(mark, "patch deployments x"); len(repairs) > maxRepairs {
		t.Errorf("%d repairs, want %d at most", len(repairs), maxRepairs)
	}
	e.awaitOneEvent(memcached, v1alpha1.ReasonDeploymentContested)
	e.updateMemcached("x", size(3))
	e.awaitMemcachedReady("x")
}

func memcachedPort(t *testing.T) {
	e := startEnv(t, "")
	e.createMemcached("x")
	e.awaitMemcachedReady("x")
	command := func() string {
		return strings.Join(e.deployment("x").Spec.Template.Spec.Containers[0].Command, " ")
	}
	if got := command(); got != "memcached -m 64 -o modern -v -p 11211" {
		t.Errorf("command %q", got)
	}
	e.updateMemcached("x", port(11222))
	memcached := e.awaitMemcachedReady("x")
	if got := command(); got != "memcached -m 64 -o modern -v -p 11222" {
		t.Errorf("command %q", got)
	}
	if ports := e.deployment("x").Spec.Template.Spec.Containers[0].Ports; len(ports) != 1 || ports[0].ContainerPort != 11222 || ports[0].Name != "memcached" {
		t.Errorf("ports %+v", ports)
	}
	if memcached.Status.Selector != "app=memcached,memcached_cr=x" {
		t.Errorf("selector %q", memcached.Status.Selector)
	}
}

func memcachedLongName(t *testing.T) {
	e := startEnv(t, "")
	name := strings.Repeat("long-", 40)[:199] + "x"
	e.createMemcached(name, size(2))
	awaitObject(e, e.memcacheds(), name, "has two nodes", func(memcached *cachev1alpha1.Memcached) error {
		if len(memcached.Status.Nodes) != 2 {
			return fmt.Errorf("status %+v", memcached.Status)
		}
		return nil
	})
	if label := e.deployment(name).Spec.Template.Labels["memcached_cr"]; len(label) > 63 || !strings.HasPrefix(label, "long-long-") {
		t.Errorf("label %q", label)
	}
}

func memcachedNodes(t *testing.T) {
	e := startEnv(t, "")
	e.createMemcached("x", size(3))
	before := e.awaitMemcachedReady("x").Status.Nodes
	// A Pod with the labels and without a controller.
	pods := shared.kube.CoreV1().Pods(e.namespace)
	_, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "lookalike", Labels: map[string]string{"app": "other", "memcached_cr": "x"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "memcached", Image: "memcached:1.6-alpine"}}},
	}, metav1.CreateOptions{})
	e.must(err)
	// A Pod that is deleted.
	e.kubectl("delete pod " + before[0])
	after := e.awaitMemcachedReady("x").Status.Nodes
	if slices.Contains(after, before[0]) || slices.Contains(after, "lookalike") {
		t.Errorf("nodes %q, %q was deleted", after, before[0])
	}
	// A Pod that fails, which the ReplicaSet replaces.
	_, err = pods.Patch(t.Context(), after[0], types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	e.must(err)
	e.eventually("the failed Pod is none of the nodes", func(context.Context) error {
		if now := e.awaitMemcachedReady("x").Status.Nodes; slices.Contains(now, after[0]) {
			return errors.New("it is one of them")
		}
		return nil
	})
	// Without Pods the list is empty, not null.
	e.updateMemcached("x", size(0))
	e.awaitMemcachedReady("x")
	if nodes := e.kubectl("get memcached x -o jsonpath='{.status.nodes}'"); nodes != "[]" {
		t.Errorf("the nodes are %q, not []", nodes)
	}
}

func memcachedRestricted(t *testing.T) {
	e := startEnv(t, "")
	e.kubectl("label namespace " + e.namespace + " pod-security.kubernetes.io/enforce=restricted pod-security.kubernetes.io/warn=restricted")
	e.createMemcached("x", size(2))
	e.awaitMemcachedReady("x")
	if output := e.controller.output(); strings.Contains(output, "PodSecurity") {
		t.Errorf("the API server warned:\n%s", output)
	}
}

func memcachedScale(t *testing.T) {
	e := startEnv(t, "")
	e.createMemcached("x")
	e.awaitMemcachedReady("x")
	e.kubectl("scale memcached x --replicas=4")
	if memcached := e.awaitMemcachedReady("x"); memcached.Status.ReadyReplicas != 4 || memcached.Status.Replicas != 4 {
		t.Errorf("status %+v", memcached.Status)
	}
	scale, err := e.memcacheds().GetScale(t.Context(), "x", metav1.GetOptions{})
	e.must(err)
	if scale.Spec.Replicas != 4 || scale.Status.Replicas != 4 || scale.Status.Selector != "app=memcached,memcached_cr=x" {
		t.Errorf("scale %+v", scale)
	}
	e.createAutoscaler("on-memcached", autoscalingv2.CrossVersionObjectReference{APIVersion: "cache.example.com/v1alpha1", Kind: "Memcached", Name: "x"}, 6)
	awaitObject(e, e.memcacheds(), "x", "is scaled by the autoscaler", func(memcached *cachev1alpha1.Memcached) error {
		if ptr.Deref(memcached.Spec.Size, 1) != 6 || memcached.Status.ReadyReplicas != 6 {
			return fmt.Errorf("%+v", memcached)
		}
		return nil
	})
}
