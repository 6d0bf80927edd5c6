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
	fixture.Differ(t, "rules M26 and M27: the Deployment with memory and a topology key", want,
		newDeployment(asked))
}

// memoryOf returns that memory as request and limit.
func memoryOf(memory string) corev1.ResourceRequirements {
	list := corev1.ResourceList{corev1.ResourceMemory: resource.MustParse(memory)}
	return corev1.ResourceRequirements{Requests: list, Limits: list}
}

// TestSelectorOfService: the Service selects the Pods of a Deployment that another program made.
func TestSelectorOfService(t *testing.T) {
	mc, theirs := newMemcached(), map[string]string{"app": "theirs"}
	selecting := func(change func(*metav1.LabelSelector)) *appsv1.Deployment {
		d := newDeployment(mc)
		d.Spec.Selector = &metav1.LabelSelector{MatchLabels: theirs}
		change(d.Spec.Selector)
		return d
	}
	many := map[string]string{}
	for i := range maxSelected {
		many[fmt.Sprint("label-", i)] = "x"
	}
	foreign := selecting(func(*metav1.LabelSelector) {})
	foreign.OwnerReferences = nil
	for sentence, test := range map[string]struct {
		deployment *appsv1.Deployment
		want       map[string]string
	}{
		"rule M29: the labels of the own Deployment": {selecting(func(*metav1.LabelSelector) {}), theirs},
		"rule M29: another's Deployment":             {foreign, labelsOf(mc)},
		"rule M29: no Service can have expressions": {selecting(func(s *metav1.LabelSelector) {
			s.MatchExpressions = []metav1.LabelSelectorRequirement{{Key: "a", Operator: metav1.LabelSelectorOpExists}}
		}), labelsOf(mc)},
		"rule M29: more labels than the cache keeps": {selecting(func(s *metav1.LabelSelector) { s.MatchLabels = many }), labelsOf(mc)},
	} {
		fixture.Differ(t, sentence, test.want, selectorOf(mc, test.deployment))
	}
}

func TestDefaults(t *testing.T) {
	bare := newMemcached(func(m *v1alpha1.Memcached) { m.Spec = v1alpha1.MemcachedSpec{} })
	fixture.Differ(t, "rule M22: an object without the defaults of the CRD is as one with them", newDeployment(newMemcached()), newDeployment(bare))
	if invalid := validateSpec(bare); invalid != "" {
		t.Errorf("rule M22: it is %q", invalid)
	}
}

func TestLabelsOfALongName(t *testing.T) {
	long := newMemcached(func(m *v1alpha1.Memcached) { m.Name = strings.Repeat("long.", 40) })
	other := newMemcached(func(m *v1alpha1.Memcached) { m.Name = strings.Repeat("long.", 40) + "x" })
	label := labelsOf(long)[nameLabel]
	if len(label) > 63 || label == labelsOf(other)[nameLabel] {
		t.Errorf("rule M22: label %q", label)
	}
}

func TestValidateSpec(t *testing.T) {
	for want, memcacheds := range map[string][]*v1alpha1.Memcached{
		"":                                     {newMemcached(size(0)), newMemcached(port(1)), newMemcached(port(65535)), newMemcached(memory(1)), newMemcached(topology("topology.kubernetes.io/zone"))},
		"spec.size is -1; set it to 0 or more": {newMemcached(size(-1)), newMemcached(size(-1), port(0))},
		"spec.port is 0; set it to a number from 1 to 65535":                     {newMemcached(port(0))},
		"spec.port is 65536; set it to a number from 1 to 65535":                 {newMemcached(port(65536))},
		"spec.memoryMegabytes is 0; set it to 1 or more":                         {newMemcached(memory(0))},
		`spec.topologyKey "a b" is not a label of nodes: name part must consist`: {newMemcached(topology("a b"))},
	} {
		for _, memcached := range memcacheds {
			if got := validateSpec(memcached); !strings.HasPrefix(got, want) || (got == "") != (want == "") {
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

// inContainer is a patch of our container. The encoder sorts the names of fields.
func inContainer(fields string) string {
	const name = `"name":"memcached"`
	if fields < name {
		fields += "," + name
	} else {
		fields = name + "," + fields
	}
	return `{"metadata":{"resourceVersion":"10"},"spec":{"template":{"spec":{"containers":[{` + fields + `}]}}}}`
}

// TestDrift is about more than one change of a Deployment, and about changes that are none of this
// controller's. TestRepairs is about each change alone.
func TestDrift(t *testing.T) {
	const (
		zone    = "topology.kubernetes.io/zone"
		ownPort = `{"name":"memcached","containerPort":11211,"protocol":"TCP"}]`
	)
	theirs := newSpread(newMemcached(topology(zone)))
	theirs[0].NodeTaintsPolicy, theirs[0].MatchLabelKeys = ptr.To(corev1.NodeInclusionPolicyHonor), []string{"pod-template-hash"}
	spread := func(d *appsv1.Deployment) { d.Spec.Template.Spec.TopologySpreadConstraints = theirs }
	for name, test := range map[string]struct {
		asked  option
		change func(*appsv1.Deployment)
		patch  string
		words  string
	}{
		"rule M4: what others add is no drift": {change: func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations, d.Spec.Template.Labels["theirs"] = map[string]string{"theirs": "x"}, "x"
			pod := &d.Spec.Template.Spec
			pod.SecurityContext.FSGroup, pod.DNSPolicy = ptr.To[int64](1), "ClusterFirst"
			pod.Containers[0].Env, pod.Containers[0].ImagePullPolicy = []corev1.EnvVar{{Name: "X"}}, "IfNotPresent"
			pod.Containers[0].SecurityContext.Capabilities.Add = []corev1.Capability{"NET_BIND_SERVICE"}
			pod.Containers[0].Ports = append([]corev1.ContainerPort{{Name: "extra", ContainerPort: 9150, Protocol: "TCP"}}, pod.Containers[0].Ports...)
			pod.Containers = append([]corev1.Container{{Name: "sidecar"}}, pod.Containers...)
		}},
		"rule M4: the label of another tool is left": {change: func(d *appsv1.Deployment) { d.Labels[controller.ManagedByLabel] = "Helm" }},
		"rule M4: all that drifted is one patch": {
			change: func(d *appsv1.Deployment) {
				d.Labels, d.OwnerReferences[0].BlockOwnerDeletion = nil, nil
				d.Spec.Template.Spec.SecurityContext.RunAsNonRoot = ptr.To(false)
				d.Spec.Template.Spec.Containers[0].Image, d.Spec.Template.Spec.Containers[0].Args = "other", []string{"x"}
			},
			patch: `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"sample-controller"},"ownerReferences":[{"apiVersion":"cache.example.com/v1alpha1","kind":"Memcached","name":"mc","uid":"uid-mc","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"},` +
				`"spec":{"template":{"spec":{"containers":[{"args":null,"image":"memcached:1.6-alpine","name":"memcached"}],"securityContext":{"runAsNonRoot":true}}}}}`,
			words: `spec.securityContext.runAsNonRoot from false to true, image from other to memcached:1.6-alpine, args from ["x"] to none, label app.kubernetes.io/managed-by from none to "sample-controller", owner reference`},
		"rule M4: a container that was renamed is added again": {
			change: container(func(c *corev1.Container) { *c = corev1.Container{Name: "renamed"} }), words: "container memcached was removed",
			patch: strings.Replace(inContainer(""), `{,"name":"memcached"}`, string(must(json.Marshal(newContainer(newMemcached())))), 1)},
		"rule M22: our port gone from among others": {
			change: container(func(c *corev1.Container) {
				c.Ports = []corev1.ContainerPort{{Name: "udp", ContainerPort: 11211, Protocol: "UDP"}}
			}),
			patch: inContainer(`"ports":[{"$patch":"replace"},{"name":"udp","containerPort":11211,"protocol":"UDP"},` + ownPort), words: "ports from none to memcached 11211/TCP"},
		"rule M22: a label that the selector requires is left": {change: func(d *appsv1.Deployment) {
			d.Spec.Selector.MatchLabels, d.Spec.Template.Labels = map[string]string{"app": "theirs", nameLabel: "x"}, map[string]string{"app": "theirs", nameLabel: "x"}
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
			fixture.Differ(t, "patch", test.patch, string(drift.JSON()))
			fixture.Differ(t, "words", test.words, drift.String())
			fixture.Differ(t, "the Deployment in the cache", before, d)
		})
	}
}

func TestServiceDrift(t *testing.T) {
	foreign := newOwnedService(func(service *corev1.Service) {
		service.Labels[controller.ManagedByLabel], service.Annotations = "Helm", map[string]string{"theirs": "x"}
		service.Spec.ClusterIP, service.Spec.Type, service.Spec.SessionAffinity = "10.0.0.1", "NodePort", "ClientIP"
		service.Spec.PublishNotReadyAddresses, service.Spec.Ports[0].NodePort, service.Spec.Ports[0].AppProtocol = true, 30000, ptr.To("x")
	})
	fixture.Differ(t, "rule M30: what others set is no drift", "", diffService(newOwnedService(), foreign).String())
	drift := diffService(newOwnedService(), newOwnedService(func(service *corev1.Service) {
		service.Labels, service.OwnerReferences[0].BlockOwnerDeletion, service.Spec.Selector["zone"] = nil, nil, "a"
		service.Spec.Ports = append(service.Spec.Ports, corev1.ServicePort{Name: "x", Port: 1, TargetPort: intstr.FromInt32(1), Protocol: "TCP"})
	}))
	fixture.Differ(t, "rule M30: all that drifted is one patch", "selector from app=memcached,memcached_cr=mc,zone=a to app=memcached,memcached_cr=mc, "+
		`ports from memcached 11211:memcached/TCP x 1:1/TCP to memcached 11211:memcached/TCP, label app.kubernetes.io/managed-by from none to "sample-controller", owner reference`, drift.String())
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
	diffs := func(service *corev1.Service) controller.Patch { return diffService(newOwnedService(), service) }
	fixture.Differ(t, "rule M30: repaired fields of a Service", []string{"label app.kubernetes.io/managed-by", "owner reference", "ports", "selector"},
		fixture.CheckRepairs(t, newOwnedService(), diffs, TrimService))
}

// TestTrim: what is kept is bounded, and trimmed again it stays the same.
func TestTrim(t *testing.T) {
	long := strings.Repeat("é", 5000)
	large := newOwned(newMemcached(topology("rack")), container(func(c *corev1.Container) {
		c.Image, c.Command, c.Args = long, []string{long}, strings.Split(long, "")
		c.Ports = append(slices.Repeat([]corev1.ContainerPort{{Name: "x"}}, 100), c.Ports...)
	}))
	pod := &large.Spec.Template.Spec
	pod.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: &long}
	pod.TopologySpreadConstraints = slices.Repeat(pod.TopologySpreadConstraints, 100)
	trimmed := trimDeployment(large)
	if data := must(json.Marshal(trimmed)); len(data) > 20_000 {
		t.Errorf("rule M4: of a large Deployment %d bytes are kept", len(data))
	}
	fixture.Differ(t, "rule M22: the port of a container with very many is kept", portName, trimmed.Spec.Template.Spec.Containers[0].Ports[63].Name)
	fixture.Differ(t, "trimmed twice", trimmed, trimDeployment(trimmed))
	service := newOwnedService(func(service *corev1.Service) {
		for i := range 100 {
			service.Spec.Selector[fmt.Sprint("z", i)] = "x"
		}
		service.Spec.Ports = slices.Repeat(service.Spec.Ports, 100)
	})
	kept := TrimService(service)
	if len(kept.Spec.Selector) != maxSelected || len(kept.Spec.Ports) != 2 {
		t.Errorf("rule M30: of a large Service this is kept: %+v", kept.Spec)
	}
	fixture.Differ(t, "trimmed twice", kept, TrimService(kept))
	fixture.Differ(t, "rule M31: what is kept of a foreign Service", (*corev1.Service)(nil), TrimService(newOwnedService(foreignService)))
}

// TestAlert: the alert has every reason with which a Memcached does not become ready without help.
func TestAlert(t *testing.T) {
	alerts, err := os.ReadFile("../../../artifacts/deploy/monitoring/alerts.yaml")
	if err != nil {
		t.Fatal(err)
	}
	_, rest, _ := strings.Cut(string(alerts), `sample_controller_memcacheds{ready="False", reason=~"`)
	listed, _, _ := strings.Cut(rest, `"`)
	for _, reason := range []string{reasons.ReasonDeploymentStalled, reasons.ReasonDeploymentRejected, reasons.ReasonDeploymentContested, reasons.ReasonDeploymentNotOwned, reasons.ReasonInvalidSpec} {
		if !slices.Contains(strings.Split(listed, "|"), reason) {
			t.Errorf("the alert has no reason %s, only %q", reason, listed)
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

func TestSelector(t *testing.T) {
	d := newOwned(newMemcached(size(2)), fixture.Available)
	fixture.Differ(t, "rule M25: the selector", "app=memcached,memcached_cr=mc", newStatus(newMemcached(), findings{deployment: d}, testNow).Selector)
	fixture.Differ(t, "rule M23: the selector of a foreign Deployment", "", newStatus(newMemcached(), findings{deployment: newForeign()}, testNow).Selector)
}

func TestNodes(t *testing.T) {
	owned := newOwned(newMemcached())
	foreign := newOwned(newMemcached(), func(d *appsv1.Deployment) { d.UID = "another" })
	first, second, theirs := newSet("first", owned), newSet("second", owned), newSet("theirs", foreign)
	lookalike := newPod("lookalike", first, func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	notController := newPod("not-controller", first, func(pod *corev1.Pod) { pod.OwnerReferences[0].Controller = nil })
	otherKind := newPod("other-kind", first, func(pod *corev1.Pod) { pod.OwnerReferences[0].Kind = "StatefulSet" })
	var many []*corev1.Pod
	var names []string
	for i := range 1001 {
		names = append(names, fmt.Sprintf("pod-%04d", i))
		many = append(many, newPod(names[i], first))
	}
	tests := map[string]struct {
		pods []*corev1.Pod
		want []string
	}{
		"rule M23: of more than a thousand the first thousand": {many, names[:1000]},
		"rule M23: no Pods": {},
		"rule M23: the Pods of all its ReplicaSets, sorted": {
			[]*corev1.Pod{newPod("c", first), newPod("a", second), newPod("b", first)}, []string{"a", "b", "c"}},
		"rule M23: one that waits for a node counts": {[]*corev1.Pod{newPod("a", first, phase(corev1.PodPending))}, []string{"a"}},
		"rule M23: one that is terminating does not": {[]*corev1.Pod{newPod("a", first, terminating), newPod("b", first)}, []string{"b"}},
		"rule M23: one that has ended does not": {
			[]*corev1.Pod{newPod("a", first, phase(corev1.PodSucceeded)), newPod("b", first, phase(corev1.PodFailed)), newPod("c", first)}, []string{"c"}},
		"rule M23: the Pods of another Deployment's ReplicaSet do not": {[]*corev1.Pod{newPod("a", theirs)}, nil},
		"rule M23: labels alone do not make a node":                    {[]*corev1.Pod{lookalike, notController, otherKind}, nil},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := newEnv(t, nil, nil)
				fixture.Fill(t, s.replicaSetIndexer, []*appsv1.ReplicaSet{first, second, theirs})
				fixture.Fill(t, s.podIndexer, test.pods)
				fixture.Differ(t, "nodes", test.want, s.nodesOf(owned))
			})
		})
	}
}

// TestWatches: the events of each informer reach the queue.
func TestWatches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, s := newEnv(t, nil, nil)
		ctx, cancel := context.WithCancel(ctx)
		s.kubeInformers.StartWithContext(ctx)
		s.informers.StartWithContext(ctx)
		must(0, s.opts.Worker.StartEventHandlers(ctx))
		set := newSet("rs", newOwned(newMemcached()))
		other := func(d *appsv1.Deployment) { d.Name = "other" }
		otherGroup := ownedBy(metav1.OwnerReference{APIVersion: "example.org/v1", Kind: "Memcached", Name: "mc", UID: "uid-mc", Controller: new(true)})
		add := func(object runtime.Object) func() { return func() { must(0, s.kube.Tracker().Add(object)) } }
		remove := func(resource schema.GroupVersionResource, name string) func() {
			return func() { must(0, s.kube.Tracker().Delete(resource, testNamespace, name)) }
		}
		for _, step := range []struct {
			what string
			do   func()
			want []string
		}{
			{"rule M19: a new Memcached is enqueued", func() { must(0, s.cache.Tracker().Add(newMemcached())) }, []string{"mc"}},
			{"rule M19: its Deployment enqueues it", add(newOwned(newMemcached())), []string{"mc"}},
			{"rule M23: a new ReplicaSet of its Deployment enqueues it", add(set), []string{"mc"}},
			{"rule M23: a new Pod of the ReplicaSet enqueues it", add(newPod("a", set)), []string{"mc"}},
			{"rule M19: its Service enqueues it", add(newOwnedService()), []string{"mc"}},
			{"rule M31: the end of its Service enqueues it", remove(servicesResource, "mc"), []string{"mc"}},
			{"rule M31: a foreign Service of its name enqueues it", add(newOwnedService(foreignService)), []string{"mc"}},
			{"rule M5: the end of a Deployment of its name enqueues it", remove(deploymentsResource, "mc"), []string{"mc"}},
			{"rule M5: a foreign Deployment of its name enqueues it", add(newForeign()), []string{"mc"}},
			{"rule M19: a Deployment of a name that no Memcached has enqueues nothing", add(newForeign(other)), nil},
			{"", remove(deploymentsResource, "other"), nil},
			{"rule M17: a Memcached of another group is no owner", add(newForeign(other, otherGroup)), nil},
			{"rule M19: a deleted Memcached is enqueued", func() { gone(s) }, []string{"mc"}},
		} {
			step.do()
			fixture.Differ(t, step.what, step.want, fixture.Enqueued(s.opts.Worker, 0))
		}
		cancel()
		s.kubeInformers.Shutdown()
		s.informers.Shutdown()
	})
}

// TestEventsOfNodes is about the events of ReplicaSets and Pods of the Memcached "mc".
func TestEventsOfNodes(t *testing.T) {
	set := newSet("rs", newOwned(newMemcached()))
	pod, mc := newPod("a", set), []string{"mc"}
	changedSet := func(change func(*metav1.OwnerReference)) *appsv1.ReplicaSet {
		set := set.DeepCopy()
		change(&set.OwnerReferences[0])
		return set
	}
	changed := func(change func(*corev1.Pod)) *corev1.Pod { return newPod("a", set, change) }
	orphanSet := changedSet(func(ref *metav1.OwnerReference) { ref.Controller = nil })
	theirs := changedSet(func(ref *metav1.OwnerReference) { ref.UID = "other" })
	orphan := changed(func(pod *corev1.Pod) { pod.OwnerReferences = nil })
	failed, ending := changed(phase(corev1.PodFailed)), changed(terminating)
	earlier := changed(func(pod *corev1.Pod) { pod.OwnerReferences[0].UID = "earlier" })

	run := func(what string, want []string, deployments []*appsv1.Deployment, sets []*appsv1.ReplicaSet, event func(*env)) {
		t.Run("rule M23: "+what, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				_, s := newEnv(t, nil, nil)
				fixture.Fill(t, s.deploymentIndexer(), deployments)
				fixture.Fill(t, s.replicaSetIndexer, sets)
				event(s)
				fixture.Differ(t, "enqueued", want, fixture.Enqueued(s.opts.Worker, 0))
			})
		})
	}
	owned, sets := []*appsv1.Deployment{newOwned(newMemcached())}, []*appsv1.ReplicaSet{set}
	for what, test := range map[string]struct {
		old, set *appsv1.ReplicaSet
		want     []string
	}{
		"a ReplicaSet that changed its counts enqueues nothing":              {set, set.DeepCopy(), nil},
		"a ReplicaSet that is handed over enqueues it":                       {orphanSet, set, mc},
		"a ReplicaSet that is released enqueues it":                          {set, orphanSet, mc},
		"a ReplicaSet that another Deployment had enqueues it":               {theirs, set, mc},
		"a ReplicaSet that goes enqueues it":                                 {set, nil, mc},
		"a ReplicaSet of which only the key is known enqueues nothing":       {nil, nil, nil},
		"a ReplicaSet of an earlier Deployment of the name enqueues nothing": {nil, theirs, nil},
	} {
		run(what, test.want, owned, nil, func(s *env) { fixture.Tell(s.replicaSetHandlers(), test.old, test.set) })
	}
	for what, test := range map[string]struct {
		old, pod *corev1.Pod
		want     []string
	}{
		"a new Pod that has ended enqueues nothing":                   {nil, failed, nil},
		"a Pod of an earlier ReplicaSet of the name enqueues nothing": {nil, earlier, nil},
		"a Pod that began to run enqueues nothing":                    {changed(phase(corev1.PodPending)), pod, nil},
		"a Pod that terminates enqueues it":                           {pod, ending, mc},
		"a Pod that fails enqueues it":                                {pod, failed, mc},
		"a Pod that is released enqueues it":                          {pod, orphan, mc},
		"a Pod that is taken on enqueues it":                          {orphan, pod, mc},
		"another Pod of the same name enqueues it":                    {pod, changed(func(pod *corev1.Pod) { pod.UID = "newer" }), mc},
		"a Pod that goes without notice enqueues it":                  {pod, nil, mc},
		"a Pod of which only the key is known enqueues nothing":       {nil, nil, nil},
		// No earlier event may have said so.
		"a Pod whose last state says that it terminates enqueues it": {ending, nil, mc},
	} {
		run(what, test.want, owned, sets, func(s *env) { fixture.Tell(s.podHandlers(), test.old, test.pod) })
	}
	run("a ReplicaSet before its Deployment enqueues nothing", nil, nil, nil, func(s *env) { fixture.Tell(s.replicaSetHandlers(), nil, set) })
	run("a Pod before its ReplicaSet enqueues nothing", nil, owned, nil, func(s *env) { fixture.Tell(s.podHandlers(), nil, pod) })
}

func TestTrimNode(t *testing.T) {
	set := newSet("rs", newOwned(newMemcached()))
	pod := newPod("a", set, terminating)
	full := pod.DeepCopy()
	full.Labels, full.Annotations, full.ManagedFields = map[string]string{"x": "y"}, map[string]string{"x": "y"}, []metav1.ManagedFieldsEntry{{}}
	full.OwnerReferences = append([]metav1.OwnerReference{{Name: "other"}}, full.OwnerReferences...)
	full.Spec.Containers, full.Status.PodIP = []corev1.Container{{}}, "10.0.0.1"
	pod.Labels = nil
	orphan := pod.DeepCopy()
	orphan.OwnerReferences = nil
	fullSet := set.DeepCopy()
	fullSet.Spec.Template.Labels, fullSet.Status.Replicas = map[string]string{"x": "y"}, 4
	for _, test := range []struct{ full, want any }{{full, pod}, {orphan, orphan}, {fullSet, set}, {"else", nil}} {
		fixture.Differ(t, "rule M23: what is left in the cache", test.want, TrimNode(test.full))
	}
}
