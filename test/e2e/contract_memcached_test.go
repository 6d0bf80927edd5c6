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

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
)

// TestMemcachedContract checks the Memcached contract on a real API server, rule by
// rule. To run one: hack/e2e.sh -run 'TestMemcachedContract/rule_M4'
func TestMemcachedContract(t *testing.T) {
	t.Parallel()
	for _, rule := range []struct {
		sentence string
		test     func(*testing.T)
	}{
		{"rule M4: drift in what the controller owns is reverted, all else stays", memcachedDrift},
		{"rule M5: a foreign Deployment is never touched, and its end wakes the Memcached", memcachedForeignDeployment},
		{"rule M9: a Foo and a Memcached that ask for one Deployment: the owner keeps it, the other takes over", memcachedAgainstFoo},
		{"rule M13: scaling and a rolling update cost a bounded number of status writes", memcachedStatusWrites},
		{"rule M15: nothing is written while nothing changes, over resyncs and restarts", memcachedSteadyState},
		{"rule M21: a writer that undoes each repair at once is left alone, and told", memcachedFight},
		{"rule M22: the port reaches the command line", memcachedPort},
		{"rule M22: a Memcached with a long name gets a shortened label", memcachedLongName},
		{"rule M23: the nodes are the live Pods of the Deployment's own", memcachedNodes},
		{"rule M24: a namespace that enforces restricted admits the Pods without a warning", memcachedRestricted},
		{"rule M25: kubectl scale and an autoscaler find what they need", memcachedScale},
	} {
		t.Run(rule.sentence, func(t *testing.T) {
			t.Parallel()
			rule.test(t)
		})
	}
}

func memcachedDrift(t *testing.T) {
	s := newScene(t, "")
	memcached := s.createMemcached("drift", size(2), port(11311))
	s.memcachedReady("drift")
	mark := s.mark()
	s.kubectl("rollout restart deployment drift")
	s.updateDeployment("drift", func(d *appsv1.Deployment) {
		d.Annotations["example.com/note"] = "kept"
		pod := &d.Spec.Template.Spec
		pod.Containers[0].Env = []corev1.EnvVar{{Name: "MODE", Value: "kept"}}
		pod.Containers[0].Ports = append([]corev1.ContainerPort{{Name: "extra", ContainerPort: 11311, Protocol: corev1.ProtocolUDP}}, pod.Containers[0].Ports...)
		pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem = ptr.To(true)
		pod.Containers = append(pod.Containers, corev1.Container{Name: "sidecar", Image: "sidecar:1"})
	})
	s.memcachedReady("drift")
	s.noWrites(mark, "deployments", "drift")
	before := s.deployment("drift")

	container := func(change func(*corev1.Container)) func() {
		return func() {
			s.updateDeployment("drift", func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec.Containers[0]) })
		}
	}
	// More than five repairs in a minute would be a fight, if the spec were the same.
	newGeneration := func() {
		s.updateMemcached("drift", size(3))
		s.updateMemcached("drift", size(2))
	}
	for i, drift := range []struct {
		event  string
		change func()
	}{
		{"replicas from 5 to 2", func() { s.kubectl("scale deployment drift --replicas=5") }},
		{"image from memcached:other to memcached:1.6-alpine", func() { s.kubectl("set image deployment/drift memcached=memcached:other") }},
		{"-p 11311]", container(func(c *corev1.Container) { c.Command = []string{"memcached", "-m", "1024"} })},
		{`args from [-m 1] to none`, container(func(c *corev1.Container) { c.Args = []string{"-m", "1"} })},
		{"ports from 22222 to 11311", container(func(c *corev1.Container) { c.Ports[1].ContainerPort = 22222 })},
		{"securityContext.runAsUser to 11211, securityContext.allowPrivilegeEscalation to false", container(func(c *corev1.Container) {
			c.SecurityContext = &corev1.SecurityContext{RunAsNonRoot: ptr.To(true), Capabilities: c.SecurityContext.Capabilities, ReadOnlyRootFilesystem: ptr.To(true)}
		})},
		{"securityContext.runAsNonRoot to true, spec.securityContext.seccompProfile to RuntimeDefault", func() {
			s.updateDeployment("drift", func(d *appsv1.Deployment) { d.Spec.Template.Spec.SecurityContext = nil })
		}},
		{`label ` + managedBy + ` from  to sample-controller`, func() { s.kubectl("label deployment drift " + managedBy + "-") }},
	} {
		if i%3 == 2 {
			newGeneration()
		}
		s.memcachedReady("drift")
		mark = s.mark()
		drift.change()
		s.eventually("an event tells: "+drift.event, func(context.Context) error {
			if !slices.ContainsFunc(s.events(memcached, "Updated"), func(e corev1.Event) bool {
				return strings.HasSuffix(strings.ReplaceAll(e.Message, `"`, ""), drift.event)
			}) {
				return fmt.Errorf("events %v", s.events(memcached, "Updated"))
			}
			return nil
		})
		after := s.deployment("drift")
		if !equality.Semantic.DeepEqual(before.Spec, after.Spec) || !equality.Semantic.DeepEqual(before.Labels, after.Labels) {
			t.Errorf("%s: it is not as it was:\nbefore %+v %+v\nafter  %+v %+v", drift.event, before.Labels, before.Spec, after.Labels, after.Spec)
		}
		if repairs := s.accepted(mark, "patch deployments drift"); repairs != 1 {
			t.Errorf("%s: %d patches, want 1: %v", drift.event, repairs, s.writes(mark))
		}
	}
	newGeneration()
	s.memcachedReady("drift")
	s.updateDeployment("drift", func(d *appsv1.Deployment) { d.Spec.Template.Spec.Containers = d.Spec.Template.Spec.Containers[1:] })
	s.awaitDeployment("drift", "the container is back", func(d *appsv1.Deployment) error {
		if len(d.Spec.Template.Spec.Containers) != 2 {
			return fmt.Errorf("containers %+v", d.Spec.Template.Spec.Containers)
		}
		return nil
	})
	s.memcachedReady("drift")
}

func memcachedForeignDeployment(t *testing.T) {
	s := newScene(t, "")
	foreign := s.createDeployment("cache")
	memcached := s.createMemcached("cache")
	blocked, ready := s.memcachedCondition("cache", v1alpha1.ReasonDeploymentNotOwned)
	mustContain(t, ready.Message, `Deployment "cache" exists and has no controller`, "create this Memcached under another name")
	s.oneEvent(memcached, "ErrResourceExists")
	if blocked.Status.Nodes == nil || len(blocked.Status.Nodes) > 0 || blocked.Status.ReadyReplicas != 0 || blocked.Status.Selector != "" {
		t.Errorf("status %+v", blocked.Status)
	}
	if nodes := s.kubectl("get memcached cache -o jsonpath='{.status.nodes}'"); nodes != "[]" {
		t.Errorf("the nodes are %q, not []", nodes)
	}
	if now := s.deployment("cache"); now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the foreign Deployment was written to: %+v", now.ObjectMeta)
	}
	s.kubectl("delete deployment cache")
	s.memcachedReady("cache")
}

func memcachedAgainstFoo(t *testing.T) {
	s := newScene(t, "")
	s.create("foo", deploymentName("cache"))
	s.ready("foo")
	s.createMemcached("cache", size(2))
	_, ready := s.memcachedCondition("cache", v1alpha1.ReasonDeploymentNotOwned)
	mustContain(t, ready.Message, `controlled by Foo "foo"`)
	s.update("foo", deploymentName("elsewhere"))
	s.memcachedReady("cache")
	s.ready("foo")

	s.update("foo", deploymentName("cache"))
	mustContain(t, s.notReady("foo", v1alpha1.ReasonDeploymentNotOwned), `controlled by Memcached "cache"`)
	s.memcachedReady("cache")
}

// memcachedStatusWrites counts at the API server: one for Ready, and one for each
// second of progress.
func memcachedStatusWrites(t *testing.T) {
	s := newScene(t, "")
	s.createMemcached("x")
	s.memcachedReady("x")
	for _, change := range []struct {
		what   string
		change func()
	}{
		{"scaling from 1 to 5", func() { s.updateMemcached("x", size(5)) }},
		{"a rolling update of 5", func() { s.updateMemcached("x", memcachedImage("memcached:other")) }},
		{"scaling from 5 to 1", func() { s.updateMemcached("x", size(1)) }},
	} {
		s.settle()
		mark, began := s.mark(), time.Now()
		change.change()
		s.memcachedReady("x")
		took := time.Since(began)
		s.restsFor(1500 * time.Millisecond)
		writes, most := s.accepted(mark, "update memcacheds/status x"), 1+int(took.Seconds())
		t.Logf("%s: %d status writes in %s", change.what, writes, took.Round(time.Millisecond))
		if writes < 1 || writes > most {
			t.Errorf("%s: %d status writes in %s, want %d at most: %v", change.what, writes, took, most, s.writes(mark))
		}
		if patches := s.accepted(mark, "patch deployments x"); patches != 1 {
			t.Errorf("%s: %d patches of the Deployment, want 1", change.what, patches)
		}
	}
}

func memcachedSteadyState(t *testing.T) {
	s := newScene(t, "--resync-period=1s")
	for i := range 3 {
		s.createMemcached(fmt.Sprintf("steady-%d", i), size(int32(i)))
	}
	s.createDeployment("blocked")
	blocked := s.createMemcached("blocked")
	for i := range 3 {
		s.oneEvent(s.memcachedReady(fmt.Sprintf("steady-%d", i)), "Synced")
	}
	s.memcachedCondition("blocked", v1alpha1.ReasonDeploymentNotOwned)
	s.oneEvent(blocked, "ErrResourceExists")

	mark := s.mark()
	s.restsFor(3500 * time.Millisecond)
	s.controller.stop()
	s.startController("--resync-period=1s")
	s.restsFor(2500 * time.Millisecond)
	if writes := s.writes(mark); len(writes) > 0 {
		t.Errorf("the controller wrote, though nothing had changed: %v", writes)
	}
}

func memcachedFight(t *testing.T) {
	s := newScene(t, "")
	memcached := s.createMemcached("x")
	s.memcachedReady("x")
	mark := s.mark()
	stop := s.rival("x", 2)
	_, ready := s.memcachedCondition("x", v1alpha1.ReasonDeploymentContested)
	stop()
	mustContain(t, ready.Message, `Deployment "x"`, "replicas (by rival through scale)", "scale or change the Memcached instead")
	if repairs := s.repairs(mark, "x"); len(repairs) > freeRepairs {
		t.Errorf("%d repairs, want %d at most", len(repairs), freeRepairs)
	}
	s.oneEvent(memcached, v1alpha1.ReasonDeploymentContested)
	s.updateMemcached("x", size(3))
	s.memcachedReady("x")
}

func memcachedPort(t *testing.T) {
	s := newScene(t, "")
	s.createMemcached("x")
	s.memcachedReady("x")
	command := func() string {
		return strings.Join(s.deployment("x").Spec.Template.Spec.Containers[0].Command, " ")
	}
	if got := command(); got != "memcached -m 64 -o modern -v -p 11211" {
		t.Errorf("command %q", got)
	}
	s.updateMemcached("x", port(11222))
	memcached := s.memcachedReady("x")
	if got := command(); got != "memcached -m 64 -o modern -v -p 11222" {
		t.Errorf("command %q", got)
	}
	if ports := s.deployment("x").Spec.Template.Spec.Containers[0].Ports; len(ports) != 1 || ports[0].ContainerPort != 11222 || ports[0].Name != "memcached" {
		t.Errorf("ports %+v", ports)
	}
	if memcached.Status.Selector != "app=memcached,memcached_cr=x" {
		t.Errorf("selector %q", memcached.Status.Selector)
	}
}

func memcachedLongName(t *testing.T) {
	s := newScene(t, "")
	name := strings.Repeat("long-", 40)[:199] + "x"
	s.createMemcached(name, size(2))
	s.eventually("its nodes are known", func(ctx context.Context) error {
		memcached, err := s.memcacheds().Get(ctx, name, metav1.GetOptions{})
		if err == nil && len(memcached.Status.Nodes) != 2 {
			err = fmt.Errorf("status %+v", memcached.Status)
		}
		return err
	})
	if label := s.deployment(name).Spec.Template.Labels["memcached_cr"]; len(label) > 63 || !strings.HasPrefix(label, "long-long-") {
		t.Errorf("label %q", label)
	}
}

func memcachedNodes(t *testing.T) {
	s := newScene(t, "")
	s.createMemcached("x", size(3))
	before := s.memcachedReady("x").Status.Nodes
	// One that has the labels and is nobody's.
	pods := shared.kube.CoreV1().Pods(s.namespace)
	_, err := pods.Create(t.Context(), &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Name: "lookalike", Labels: map[string]string{"app": "other", "memcached_cr": "x"}},
		Spec:       corev1.PodSpec{Containers: []corev1.Container{{Name: "memcached", Image: "memcached:1.6-alpine"}}},
	}, metav1.CreateOptions{})
	s.must(err)
	// One that goes.
	s.kubectl("delete pod " + before[0])
	after := s.memcachedReady("x").Status.Nodes
	if slices.Contains(after, before[0]) || slices.Contains(after, "lookalike") {
		t.Errorf("nodes %q, %q was deleted", after, before[0])
	}
	// One that fails, for which the ReplicaSet makes another.
	_, err = pods.Patch(t.Context(), after[0], types.MergePatchType, []byte(`{"status":{"phase":"Failed"}}`), metav1.PatchOptions{}, "status")
	s.must(err)
	s.eventually("the failed Pod is none of the nodes", func(context.Context) error {
		if now := s.memcachedReady("x").Status.Nodes; slices.Contains(now, after[0]) {
			return errors.New("it is")
		}
		return nil
	})
	// Without Pods there is an empty list.
	s.updateMemcached("x", size(0))
	s.memcachedReady("x")
	if nodes := s.kubectl("get memcached x -o jsonpath='{.status.nodes}'"); nodes != "[]" {
		t.Errorf("the nodes are %q, not []", nodes)
	}
}

func memcachedRestricted(t *testing.T) {
	s := newScene(t, "")
	s.kubectl("label namespace " + s.namespace + " pod-security.kubernetes.io/enforce=restricted pod-security.kubernetes.io/warn=restricted")
	s.createMemcached("x", size(2))
	s.memcachedReady("x")
	if output := s.controller.output(); strings.Contains(output, "PodSecurity") {
		t.Errorf("the API server warned:\n%s", output)
	}
}

func memcachedScale(t *testing.T) {
	s := newScene(t, "")
	s.createMemcached("x")
	s.memcachedReady("x")
	s.kubectl("scale memcached x --replicas=4")
	if memcached := s.memcachedReady("x"); memcached.Status.ReadyReplicas != 4 || memcached.Status.Replicas != 4 {
		t.Errorf("status %+v", memcached.Status)
	}
	scale, err := s.memcacheds().GetScale(t.Context(), "x", metav1.GetOptions{})
	s.must(err)
	if scale.Spec.Replicas != 4 || scale.Status.Replicas != 4 || scale.Status.Selector != "app=memcached,memcached_cr=x" {
		t.Errorf("scale %+v", scale)
	}
	s.createAutoscaler("on-memcached", autoscalingv2.CrossVersionObjectReference{APIVersion: "cache.example.com/v1alpha1", Kind: "Memcached", Name: "x"}, 6)
	s.eventually("the autoscaler scales the Memcached", func(ctx context.Context) error {
		memcached, err := s.memcacheds().Get(ctx, "x", metav1.GetOptions{})
		if err == nil && (ptr.Deref(memcached.Spec.Size, 1) != 6 || memcached.Status.ReadyReplicas != 6) {
			err = fmt.Errorf("%+v", memcached)
		}
		return err
	})
}
