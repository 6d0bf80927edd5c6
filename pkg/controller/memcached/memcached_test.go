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

package memcached

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	reasons "example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/pkg/controller/deployment"
	"example.com/sample-controller/test/fixture"
)

func TestNewDeployment(t *testing.T) {
	labels := map[string]string{"app": "memcached", "memcached_cr": "mc"}
	pod := corev1.PodSpec{
		SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: "RuntimeDefault"}},
		Containers: []corev1.Container{{
			Name: "memcached", Image: "memcached:1.6.40",
			Command:        []string{"memcached", "-m", "64", "-o", "modern", "-v", "-p", "11222"},
			Ports:          []corev1.ContainerPort{{Name: "memcached", ContainerPort: 11222, Protocol: "TCP"}},
			Resources:      memoryOf("80Mi"),
			ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("memcached")}}},
			SecurityContext: &corev1.SecurityContext{
				RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](11211), AllowPrivilegeEscalation: ptr.To(false),
				Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
		}},
	}
	want := &appsv1.Deployment{ObjectMeta: testMeta(), Spec: appsv1.DeploymentSpec{
		Replicas: ptr.To[int32](3), Selector: &metav1.LabelSelector{MatchLabels: labels},
		Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels}, Spec: pod},
	}}
	asked := newMemcached(size(3), port(11222))
	asked.Spec.Image = "memcached:1.6.40"
	fixture.Differ(t, "rule M22: the Deployment", want, newDeployment(asked))

	want.Spec.Template.Spec.Containers[0].Command[2] = "1024"
	want.Spec.Template.Spec.Containers[0].Resources = memoryOf("1280Mi")
	want.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: "ScheduleAnyway", LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}}
	memory(1024)(asked)
	topology("topology.kubernetes.io/zone")(asked)
	fixture.Differ(t, "rule M26: the Deployment with memory, and with the topology key of rule M27", want, newDeployment(asked))

	fixture.Differ(t, "rule M22: an object without the defaults of the CRD is as one with them", newDeployment(newMemcached()), newDeployment(newMemcached(bare)))
	asked.Name = strings.Repeat("long.", 40)
	fixture.Differ(t, "rule M22: the label of a long name", deployment.LabelValue(asked.Name), labelsOf(asked)[nameLabel])
}

// bare makes the Memcached one that was stored before the CRD had defaults.
func bare(m *v1alpha1.Memcached) { m.Spec = v1alpha1.MemcachedSpec{} }

// memoryOf returns that memory as request and limit.
func memoryOf(memory string) corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	return corev1.ResourceRequirements{Requests: list, Limits: list}
}

// TestSelectorOfService: the Service selects the Pods of a Deployment that another program made.
func TestSelectorOfService(t *testing.T) {
	mc := newMemcached()
	theirs, ours := map[string]string{"app": "theirs"}, labelsOf(mc)
	for sentence, test := range map[string]struct {
		change func(*appsv1.Deployment)
		want   map[string]string
	}{
		"rule M29: the labels of the own Deployment": {func(*appsv1.Deployment) {}, theirs},
		"rule M29: another's Deployment":             {ownedBy(), ours},
		"rule M29: no Service can have expressions": {func(d *appsv1.Deployment) {
			d.Spec.Selector.MatchExpressions = make([]metav1.LabelSelectorRequirement, 1)
		}, ours},
		"rule M29: more labels than the cache keeps of the Service": {func(d *appsv1.Deployment) {
			d.Spec.Selector.MatchLabels = map[string]string{"1": "", "2": "", "3": "", "4": "", "5": "", "6": "", "7": "", "8": "", "9": "", "10": ""}
		}, ours},
		"rule M29: more labels than the cache keeps of the Deployment": {func(d *appsv1.Deployment) { d.Spec.Selector = nil }, ours},
	} {
		d := newOwned(mc, func(d *appsv1.Deployment) { d.Spec.Selector = &metav1.LabelSelector{MatchLabels: theirs} }, test.change)
		fixture.Differ(t, sentence, test.want, selectorOf(mc, d))
	}
}

func TestValidateSpec(t *testing.T) {
	for want, options := range map[string][]option{
		"":                                     {bare, size(0), port(1), port(65535), memory(1), topology("topology.kubernetes.io/zone")},
		"spec.size is -1; set it to 0 or more": {size(-1)},
		"spec.port is 0; set it to a number from 1 to 65535":                     {port(0)},
		"spec.port is 65536; set it to a number from 1 to 65535":                 {port(65536)},
		"spec.memoryMegabytes is 0; set it to 1 or more":                         {memory(0)},
		`spec.topologyKey "a b" is not a label of nodes: name part must consist`: {topology("a b")},
	} {
		for _, option := range options {
			if got := validateSpec(newMemcached(option)); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
				t.Errorf("rule M16: %q is wrong, want %q", got, want)
			}
		}
	}
}

func TestNewService(t *testing.T) {
	want := &corev1.Service{ObjectMeta: testMeta(), Spec: corev1.ServiceSpec{
		ClusterIP: "None", Selector: map[string]string{"app": "memcached", "memcached_cr": "mc"},
		Ports: []corev1.ServicePort{{Name: "memcached", Port: 11222, TargetPort: intstr.FromString("memcached"), Protocol: "TCP"}},
	}}
	fixture.Differ(t, "rule M29: the Service", want, newService(newMemcached(port(11222)), labelsOf(newMemcached())))
}

// testMeta is the metadata of the Deployment and the Service to create.
func testMeta() metav1.ObjectMeta {
	return metav1.ObjectMeta{
		Name: "mc", Namespace: "ns", Labels: map[string]string{"app.kubernetes.io/managed-by": "sample-controller"},
		OwnerReferences: []metav1.OwnerReference{{
			APIVersion: "cache.example.com/v1alpha1", Kind: "Memcached", Name: "mc", UID: "uid-mc", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
	}
}

// container changes the first container of a Deployment.
func container(change func(*corev1.Container)) func(*appsv1.Deployment) {
	return func(d *appsv1.Deployment) { change(&d.Spec.Template.Spec.Containers[0]) }
}

// TestDrift is about what messages say of changes of a Deployment, and about changes that are none of
// this controller's. TestRepairs is about the patch of each change.
func TestDrift(t *testing.T) {
	const zone = "topology.kubernetes.io/zone"
	spread := func(d *appsv1.Deployment) {
		theirs := newSpread(newMemcached(topology(zone)))
		theirs[0].MatchLabelKeys, d.Spec.Template.Spec.TopologySpreadConstraints = []string{"pod-template-hash"}, theirs
	}
	for name, test := range map[string]struct {
		asked  option
		change func(*appsv1.Deployment)
		words  string
	}{
		"rule M4: what others add is no drift": {change: func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations, d.Spec.Template.Labels["theirs"] = map[string]string{"theirs": "x"}, "x"
			pod := &d.Spec.Template.Spec
			d.Labels[controller.ManagedByLabel] = "Helm"
			pod.SecurityContext.FSGroup, pod.DNSPolicy = ptr.To[int64](1), "ClusterFirst"
			pod.Containers[0].Env, pod.Containers[0].ImagePullPolicy = []corev1.EnvVar{{Name: "X"}}, "IfNotPresent"
			pod.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"}
			pod.Containers[0].Ports = append([]corev1.ContainerPort{{Name: "extra", ContainerPort: 9150, Protocol: "TCP"}}, pod.Containers[0].Ports...)
			pod.Containers = append([]corev1.Container{{Name: "sidecar"}}, pod.Containers...)
		}},
		"rules M4 and M26: each field that drifted is named": {
			change: func(d *appsv1.Deployment) {
				d.Labels, d.OwnerReferences[0].BlockOwnerDeletion = nil, nil
				pod := &d.Spec.Template.Spec
				pod.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: ptr.To("x")}
				pod.Containers[0].Image, pod.Containers[0].Command[2], pod.Containers[0].Args = "other", "32", []string{"x"}
				pod.Containers[0].Ports[0].ContainerPort = 80
			},
			words: `spec.securityContext.seccompProfile from Localhost x to RuntimeDefault, image from other to memcached:1.6-alpine, ` +
				`command from ["memcached" "-m" "32" "-o" "modern" "-v" "-p" "11211"] to ["memcached" "-m" "64" "-o" "modern" "-v" "-p" "11211"], ` +
				`resources.requests.memory, resources.limits.memory, args from ["x"] to none, ports from memcached 80/TCP to memcached 11211/TCP, label app.kubernetes.io/managed-by from none to "sample-controller", owner reference of "mc", blockOwnerDeletion false`},
		"rule M26: a shorter command with the same MEMORY leaves the resources": {
			change: container(func(c *corev1.Container) { c.Command = c.Command[:3] }),
			words:  `command from ["memcached" "-m" "64"] to ["memcached" "-m" "64" "-o" "modern" "-v" "-p" "11211"]`},
		"rule M22: a label that the selector requires is left": {change: func(d *appsv1.Deployment) {
			d.Spec.Selector.MatchLabels, d.Spec.Template.Labels = map[string]string{"app": "theirs"}, map[string]string{"app": "theirs", nameLabel: "x"}
		}, words: `metadata.labels.memcached_cr from "x" to "mc"`},
		"rule M22: a label that an expression of the selector requires is left": {change: func(d *appsv1.Deployment) {
			in := []metav1.LabelSelectorRequirement{{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{"theirs"}}}
			d.Spec.Selector, d.Spec.Template.Labels = &metav1.LabelSelector{MatchExpressions: in}, map[string]string{"app": "theirs", nameLabel: "x"}
		}, words: `metadata.labels.memcached_cr from "x" to "mc"`},
		"rule M22: no label is repaired beside a selector that is too long for the cache": {change: func(d *appsv1.Deployment) {
			long := metav1.LabelSelectorRequirement{Key: "app", Operator: metav1.LabelSelectorOpIn, Values: []string{strings.Repeat("x", 5000)}}
			own := metav1.LabelSelectorRequirement{Key: nameLabel, Operator: metav1.LabelSelectorOpExists}
			d.Spec.Selector, d.Spec.Template.Labels = &metav1.LabelSelector{MatchExpressions: []metav1.LabelSelectorRequirement{long, own}}, map[string]string{"app": "theirs", nameLabel: "x"}
		}},
		"rule M27: without a topology key constraints are left alone":                        {change: spread},
		"rule M27: fields of the constraint that others set are kept":                        {asked: topology(zone), change: spread},
		"rule M28: an existing Deployment gets no probe, so that an upgrade restarts no Pod": {change: container(func(c *corev1.Container) { c.ReadinessProbe = nil })},
	} {
		t.Run(name, func(t *testing.T) {
			memcached, d := newMemcached(), newOwned(newMemcached(), test.change)
			if test.asked != nil {
				test.asked(memcached)
			}
			before := d.DeepCopy()
			drift := diffDeployment(newDeployment(memcached), d)
			fixture.Differ(t, "words", test.words, drift.String())
			fixture.Differ(t, "words about the trimmed Deployment", test.words, diffDeployment(newDeployment(memcached), trimDeployment(d)).String())
			fixture.Differ(t, "the Deployment in the cache", before, d)
		})
	}
}

// TestRepairs: each field that is compared is repaired, and kept in the cache.
func TestRepairs(t *testing.T) {
	memcached := newMemcached(topology("rack"))
	d := newOwned(memcached, func(d *appsv1.Deployment) { d.Spec.Selector = &metav1.LabelSelector{} })
	diff := func(d *appsv1.Deployment) controller.Patch { return diffDeployment(newDeployment(memcached), d) }
	fixture.Differ(t, "rules M4, M22, M24 and M27: repaired fields of a Deployment", []string{
		"args", "command", "container memcached", "image", "label app.kubernetes.io/managed-by", "metadata.labels.app", "metadata.labels.memcached_cr", "owner reference", "ports", "replicas", "resources.limits.memory", "resources.requests.memory",
		"securityContext.allowPrivilegeEscalation", "securityContext.capabilities.drop", "securityContext.runAsNonRoot", "securityContext.runAsUser",
		"spec.securityContext.runAsNonRoot", "spec.securityContext.seccompProfile", "spec.topologySpreadConstraints",
	}, fixture.CheckRepairs(t, d, diff, trimDeployment, ".ObjectMeta.ResourceVersion", ".Spec.Template.Spec.Containers.Name"))
	diffs := func(s *corev1.Service) controller.Patch { return diffService(newOwnedService(), s) }
	fixture.Differ(t, "rule M30: repaired fields of a Service", []string{"label app.kubernetes.io/managed-by", "ports", "selector"},
		fixture.CheckRepairs(t, newOwnedService(), diffs, TrimService))
}

// TestTrim: what is kept is bounded, and trimmed again it stays the same.
func TestTrim(t *testing.T) {
	long := strings.Repeat("é", 5000)
	large := newOwned(newMemcached(topology("rack")), container(func(c *corev1.Container) {
		c.Image, c.Command, c.Args = long, []string{long}, strings.Split(long, "")
		c.Ports = append(slices.Repeat([]corev1.ContainerPort{{Name: "x"}}, 64), c.Ports...)
	}))
	pod := &large.Spec.Template.Spec
	pod.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: &long}
	pod.TopologySpreadConstraints = slices.Repeat(pod.TopologySpreadConstraints, 100)
	pod.TopologySpreadConstraints[0].LabelSelector = &metav1.LabelSelector{MatchLabels: map[string]string{"x": long + long}}
	trimmed := trimDeployment(large)
	if data := must(json.Marshal(trimmed)); len(data) > 20_000 {
		t.Errorf("rule M4: of a large Deployment %d bytes are kept", len(data))
	}
	fixture.Differ(t, "rule M22: the port of a container with very many is kept", portName, trimmed.Spec.Template.Spec.Containers[0].Ports[63].Name)
	if _, isLarge := trimmed.Annotations["sample-controller/large"]; !isLarge {
		t.Error("rule 24: a large Deployment is not marked")
	}
	trimmed.Annotations = nil
	fixture.Differ(t, "trimmed twice", trimmed, trimDeployment(trimmed))
	service := newOwnedService(func(service *corev1.Service) {
		for i := range 100 {
			service.Spec.Selector[fmt.Sprint("z", i)] = "x"
		}
		service.Spec.Selector["a"], service.Spec.Ports = long, slices.Repeat(service.Spec.Ports, 100)
	})
	kept := TrimService(service)
	if len(kept.Spec.Selector) != maxSelected || len(kept.Spec.Selector["a"]) > 3000 || len(kept.Spec.Ports) != 2 {
		t.Errorf("rule M30: of a large Service this is kept: %+v", kept.Spec)
	}
	fixture.Differ(t, "trimmed twice", kept, TrimService(kept))
	if d, service := trimDeployment(newForeign()), TrimService(newOwnedService(foreignService)); d != nil || service != nil {
		t.Errorf("rules M5 and M31: of foreign objects this is kept: %v, %v", d, service)
	}
}

// TestAlert: the alert has every reason with which a Memcached does not become ready without help.
func TestAlert(t *testing.T) {
	alerts := string(must(os.ReadFile("../../../artifacts/deploy/monitoring/alerts.yaml")))
	for _, reason := range []string{
		reasons.ReasonDeploymentStalled, reasons.ReasonDeploymentRejected, reasons.ReasonDeploymentContested, reasons.ReasonDeploymentNotOwned, reasons.ReasonInvalidSpec,
	} {
		if !regexp.MustCompile(`sample_controller_memcacheds\{ready="False", reason=~"[^"]*\b` + reason + `\b`).MatchString(alerts) {
			t.Errorf("the alert has no reason %s", reason)
		}
	}
}

// TestManyNodes: a status that names the first thousand of its nodes does not wait for more.
func TestManyNodes(t *testing.T) {
	memcached := newMemcached(size(maxNodes + 500))
	for nodes, want := range map[int]bool{maxNodes: false, maxNodes - 1: true} {
		status := newStatus(memcached, findings{deployment: newOwned(memcached, fixture.Available), nodes: make([]string, nodes)}, testNow)
		if got := isProgress(memcached, &status); got != want {
			t.Errorf("rule M13: with %d nodes of %d the status is progress: %v", nodes, status.Replicas, got)
		}
	}
}

// TestNodes has Pods whose names say what they are.
func TestNodes(t *testing.T) {
	owned := newOwned(newMemcached())
	first, second := newSet("first", owned), newSet("second", owned)
	theirs := newSet("theirs", newOwned(newMemcached(), func(d *appsv1.Deployment) { d.UID = "another" }))
	pods, nodes := []*corev1.Pod{
		newPod("running", first), newPod("of-another-set", second), newPod("pending", first, phase(corev1.PodPending)),
		newPod("terminating", first, terminating), newPod("succeeded", first, phase(corev1.PodSucceeded)), newPod("failed", first, phase(corev1.PodFailed)),
		newPod("of-another-deployment", theirs),
		newPod("lookalike", first, func(pod *corev1.Pod) { pod.OwnerReferences = nil }),
		newPod("not-controlled", first, func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = nil }),
		newPod("of-another-kind", first, func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "StatefulSet" }),
	}, []string{"of-another-set", "pending", "running"}
	synctest.Test(t, func(t *testing.T) {
		_, s := newEnv(t, nil, nil)
		fixture.Differ(t, "rule M23: no Pods", []string(nil), s.nodesOf(owned))
		fixture.Fill(s.replicaSetIndexer, []*appsv1.ReplicaSet{first, second, theirs})
		fixture.Fill(s.podIndexer, pods)
		fixture.Differ(t, "rule M23: live Pods of all its ReplicaSets are nodes, sorted; labels alone do not make a node", nodes, s.nodesOf(owned))
		for i := range 1000 {
			nodes = append(nodes, fmt.Sprintf("very-many-%04d", i))
			must(0, s.podIndexer.Add(newPod(nodes[3+i], first)))
		}
		fixture.Differ(t, "rule M23: of more than a thousand the first thousand", nodes[:1000], s.nodesOf(owned))
	})
}

// TestWatches: the events of each informer reach the queue. New returns an error if an informer has its index already.
func TestWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := newEnv(t, nil, nil)
		if c, err := New(ctx, s.opts); c != nil || err == nil || strings.Count(err.Error(), "indexer conflict") != 3 {
			t.Errorf("controller %v, error %v, want one error for each of Deployments, ReplicaSets and Pods", c, err)
		}
		ctx, cancel := context.WithCancel(ctx)
		s.KubeInformers.StartWithContext(ctx)
		s.informers.StartWithContext(ctx)
		must(0, s.opts.Worker.StartEventHandlers(ctx))
		set := newSet("rs", newOwned(newMemcached()))
		other := func(d *appsv1.Deployment) { d.Name = "other" }
		otherGroup := ownedBy(metav1.OwnerReference{APIVersion: "example.org/v1", Kind: "Memcached", Name: "mc", UID: "uid-mc", Controller: new(true)})
		add := func(object runtime.Object) func() { return func() { must(0, s.Kube.Tracker().Add(object)) } }
		remove := func(resource schema.GroupVersionResource, name string) func() {
			return func() { must(0, s.Kube.Tracker().Delete(resource, testNamespace, name)) }
		}
		mc := []string{"mc"}
		for _, step := range []struct {
			what string
			do   func()
			want []string
		}{
			{"rule M19: a new Memcached is enqueued", func() { must(0, s.Tracker.Add(newMemcached())) }, mc},
			{"rule M19: a changed one is enqueued", func() {
				s.setMemcached(newMemcached(func(m *v1alpha1.Memcached) { m.ResourceVersion, m.Generation = "11", 2 }))
			}, mc},
			{"rule M19: its Deployment enqueues it", add(newOwned(newMemcached())), mc},
			{"rule M23: a new ReplicaSet of its Deployment enqueues it", add(set), mc},
			{"rule M23: a new Pod of the ReplicaSet enqueues it", add(newPod("a", set)), mc},
			{"rule M19: its Service enqueues it", add(newOwnedService()), mc},
			{"rule M31: the end of its Service enqueues it", remove(servicesResource, "mc"), mc},
			{"rule M31: a foreign Service of its name enqueues it", add(newOwnedService(foreignService)), mc},
			{"rule M5: the end of a Deployment of its name enqueues it", remove(deploymentsResource, "mc"), mc},
			{"rule M5: a foreign Deployment of its name enqueues it", add(newForeign()), mc},
			{"rule M23: a Pod of a Deployment that no Memcached has enqueues nothing", add(newPod("b", set)), nil},
			{"rule M19: a Deployment of a name that no Memcached has enqueues nothing", add(newForeign(other)), nil},
			{"", remove(deploymentsResource, "other"), nil},
			{"rule M17: a Memcached of another group is no owner", add(newForeign(other, otherGroup)), nil},
			{"rule M19: a deleted Memcached is enqueued", func() { gone(s) }, mc},
		} {
			step.do()
			fixture.Differ(t, step.what, step.want, fixture.Enqueued(s.opts.Worker, 0))
		}
		cancel()
		s.KubeInformers.Shutdown()
		s.informers.Shutdown()
	})
}

// TestEventsOfNodes is about the events of ReplicaSets and Pods of the Memcached "mc".
func TestEventsOfNodes(t *testing.T) {
	d := newOwned(newMemcached())
	set := newSet("rs", d)
	orphanSet := newSet("rs", d, func(set *appsv1.ReplicaSet) { set.OwnerReferences[0].Controller = nil })
	theirs := newSet("rs", d, func(set *appsv1.ReplicaSet) { set.OwnerReferences[0].UID = "other" })
	newerSet := newSet("rs", d, func(set *appsv1.ReplicaSet) { set.UID = "newer" })
	changed := func(change func(*corev1.Pod)) *corev1.Pod { return newPod("a", set, change) }
	pod, orphan := newPod("a", set), changed(func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	failed, ending := changed(phase(corev1.PodFailed)), changed(terminating)
	earlier := changed(func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "earlier" })
	newer := changed(func(pod *corev1.Pod) { pod.UID = "newer" })
	synctest.Test(t, func(t *testing.T) {
		_, s := newEnv(t, nil, nil)
		sets := func(old, set *appsv1.ReplicaSet) func() {
			return func() { fixture.Tell(s.replicaSetHandlers(), old, set) }
		}
		pods := func(old, pod *corev1.Pod) func() { return func() { fixture.Tell(s.podHandlers(), old, pod) } }
		check := func(want []string, events map[string]func()) {
			for sentence, event := range events {
				event()
				fixture.Differ(t, "rule M23: enqueued by "+sentence, want, fixture.Enqueued(s.opts.Worker, 0))
			}
		}
		check(nil, map[string]func(){
			"a ReplicaSet before its Deployment": sets(nil, set),
			"a Pod before its ReplicaSet":        pods(nil, pod),
		})
		fixture.See(s.deployments.Informer, trimDeployment, d)
		must(0, s.replicaSetIndexer.Add(set))
		check([]string{"mc"}, map[string]func(){
			"a ReplicaSet that is handed over":         sets(orphanSet, set),
			"a ReplicaSet that is released":            sets(set, orphanSet),
			"a ReplicaSet that another Deployment had": sets(theirs, set),
			"another ReplicaSet of the same name":      sets(set, newerSet),
			"a ReplicaSet that goes":                   sets(set, nil),
			"a Pod that terminates":                    pods(pod, ending),
			"a Pod that fails":                         pods(pod, failed),
			"a Pod that is released":                   pods(pod, orphan),
			"a Pod that is taken on":                   pods(orphan, pod),
			"another Pod of the same name":             pods(pod, newer),
			"a Pod that goes without notice":           pods(pod, nil),
			"a Pod that terminates, by its last event": pods(ending, nil),
		})
		check(nil, map[string]func(){
			"a ReplicaSet that changed its counts":              sets(set, set.DeepCopy()),
			"a ReplicaSet of which only the key is known":       sets(nil, nil),
			"a ReplicaSet of an earlier Deployment of the name": sets(nil, theirs),
			"a new Pod that has ended":                          pods(nil, failed),
			"a Pod of an earlier ReplicaSet of the name":        pods(nil, earlier),
			"a Pod that began to run":                           pods(changed(phase(corev1.PodPending)), pod),
			"a Pod of which only the key is known":              pods(nil, nil),
		})
	})
}

func TestTrimNode(t *testing.T) {
	set := newSet("rs", newOwned(newMemcached()))
	pod, fullSet := newPod("a", set, func(pod *corev1.Pod) { pod.DeletionTimestamp = &testNow }), set.DeepCopy()
	full := newPod("a", set, terminating)
	full.Labels, full.ManagedFields, full.Spec.Containers = map[string]string{nameLabel: "mc"}, []metav1.ManagedFieldsEntry{{}}, []corev1.Container{{}}
	full.OwnerReferences = append([]metav1.OwnerReference{{Name: "other"}}, full.OwnerReferences...)
	fullSet.Spec.Template.Labels, fullSet.Status.Replicas = map[string]string{"x": "y"}, 4
	for _, test := range []struct{ full, want any }{{full, pod}, {fullSet, set}, {"else", nil}} {
		fixture.Differ(t, "rule M23: what is left in the cache", test.want, TrimNode(test.full))
	}
}
