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
	"os"
	"slices"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/util/intstr"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
	reasons "example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/pkg/controller/deployment"
	"example.com/sample-controller/test/fixture"
)

func TestNewDeployment(t *testing.T) {
	labels := map[string]string{"app": "memcached", "memcached_cr": "mc"}
	want := &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{
			Name: "mc", Namespace: "ns", Labels: map[string]string{"app.kubernetes.io/managed-by": "sample-controller"},
			OwnerReferences: []metav1.OwnerReference{{
				APIVersion: "cache.example.com/v1alpha1", Kind: "Memcached", Name: "mc", UID: "uid-mc", Controller: ptr.To(true), BlockOwnerDeletion: ptr.To(true)}},
		},
		Spec: appsv1.DeploymentSpec{
			Replicas: ptr.To[int32](3),
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{
				ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: corev1.PodSpec{
					SecurityContext: &corev1.PodSecurityContext{RunAsNonRoot: ptr.To(true), SeccompProfile: &corev1.SeccompProfile{Type: "RuntimeDefault"}},
					Containers: []corev1.Container{{
						Name: "memcached", Image: "memcached:1.6.40",
						Command:        []string{"memcached", "-m", "64", "-o", "modern", "-v", "-p", "11222"},
						Ports:          []corev1.ContainerPort{{Name: "memcached", ContainerPort: 11222, Protocol: "TCP"}},
						ReadinessProbe: &corev1.Probe{ProbeHandler: corev1.ProbeHandler{TCPSocket: &corev1.TCPSocketAction{Port: intstr.FromString("memcached")}}},
						SecurityContext: &corev1.SecurityContext{
							RunAsNonRoot: ptr.To(true), RunAsUser: ptr.To[int64](11211), AllowPrivilegeEscalation: ptr.To(false),
							Capabilities: &corev1.Capabilities{Drop: []corev1.Capability{"ALL"}}},
					}},
				},
			},
		},
	}
	fixture.Differ(t, "rule M22: the Deployment", want, newDeployment(newMemcached(size(3), port(11222), image("memcached:1.6.40"))))

	want.Spec.Template.Spec.Containers[0].Command[2] = "1024"
	want.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
		MaxSkew: 1, TopologyKey: "topology.kubernetes.io/zone", WhenUnsatisfiable: "ScheduleAnyway", LabelSelector: &metav1.LabelSelector{MatchLabels: labels}}}
	fixture.Differ(t, "rules M26 and M27: the Deployment with memory and a topology key", want,
		newDeployment(newMemcached(size(3), port(11222), image("memcached:1.6.40"), memory(1024), topology("topology.kubernetes.io/zone"))))
}

// TestDriftOfOptionalFields is about the fields of the template that a Memcached asks for only
// if its spec has them.
func TestDriftOfOptionalFields(t *testing.T) {
	const (
		zone   = "topology.kubernetes.io/zone"
		want   = `{"maxSkew":1,"topologyKey":"topology.kubernetes.io/zone","whenUnsatisfiable":"ScheduleAnyway","labelSelector":{"matchLabels":{"app":"memcached","memcached_cr":"mc"}}}`
		spread = `{"metadata":{"resourceVersion":"10"},"spec":{"template":{"spec":{"topologySpreadConstraints":[{"$patch":"replace"},` + want + `]}}}}`
		words  = "topology.kubernetes.io/zone ScheduleAnyway by 1 of app=memcached,memcached_cr=mc"
		field  = "spec.topologySpreadConstraints from "
	)
	ours := newDeployment(newMemcached(topology(zone))).Spec.Template.Spec.TopologySpreadConstraints[0]
	constraint := func(change func(*corev1.TopologySpreadConstraint)) func(*appsv1.Deployment) {
		return func(d *appsv1.Deployment) {
			constraint := ours.DeepCopy()
			change(constraint)
			d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{*constraint}
		}
	}
	tests := map[string]struct {
		asked  []option
		change func(*appsv1.Deployment)
		patch  string
		words  string
	}{
		"rule M26: more memory changes the command": {asked: []option{memory(128)}, change: func(*appsv1.Deployment) {},
			patch: inContainer(`"command":["memcached","-m","128","-o","modern","-v","-p","11211"]`),
			words: `command from ["memcached" "-m" "64" "-o" "modern" "-v" "-p" "11211"] to ["memcached" "-m" "128" "-o" "modern" "-v" "-p" "11211"]`},
		"rule M27: a Memcached without a topology key leaves constraints alone": {change: constraint(func(*corev1.TopologySpreadConstraint) {})},
		"rule M27: with the key and its constraint nothing changes":             {asked: []option{topology(zone)}, change: constraint(func(*corev1.TopologySpreadConstraint) {})},
		"rule M27: fields of the constraint that others set are kept": {asked: []option{topology(zone)}, change: constraint(func(c *corev1.TopologySpreadConstraint) {
			c.NodeTaintsPolicy, c.MatchLabelKeys = ptr.To(corev1.NodeInclusionPolicyHonor), []string{"pod-template-hash"}
		})},
		"rule M27: with a key a missing constraint is added": {asked: []option{topology(zone)}, change: func(*appsv1.Deployment) {}, patch: spread, words: field + "none to " + words},
		"rule M27: another key replaces the constraint": {asked: []option{topology(zone)}, change: constraint(func(c *corev1.TopologySpreadConstraint) { c.TopologyKey = "rack" }),
			patch: spread, words: field + "rack ScheduleAnyway by 1 of app=memcached,memcached_cr=mc to " + words},
		"rule M27: another skew is repaired": {asked: []option{topology(zone)}, change: constraint(func(c *corev1.TopologySpreadConstraint) { c.MaxSkew = 2 }),
			patch: spread, words: field + "topology.kubernetes.io/zone ScheduleAnyway by 2 of app=memcached,memcached_cr=mc to " + words},
		"rule M27: a constraint that holds Pods back is repaired": {asked: []option{topology(zone)}, change: constraint(func(c *corev1.TopologySpreadConstraint) { c.WhenUnsatisfiable = "DoNotSchedule" }),
			patch: spread, words: field + "topology.kubernetes.io/zone DoNotSchedule by 1 of app=memcached,memcached_cr=mc to " + words},
		"rule M27: another selector is repaired": {asked: []option{topology(zone)}, change: constraint(func(c *corev1.TopologySpreadConstraint) { c.LabelSelector.MatchLabels = map[string]string{"a": "b"} }),
			patch: spread, words: field + "topology.kubernetes.io/zone ScheduleAnyway by 1 of a=b to " + words},
		"rule M27: a second constraint is removed": {asked: []option{topology(zone)}, change: func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{ours, {MaxSkew: 3, TopologyKey: "rack", WhenUnsatisfiable: "DoNotSchedule"}}
		}, patch: spread, words: field + words + " and rack DoNotSchedule by 3 of  to " + words},
		"rule M28: an existing Deployment gets no probe, so that an upgrade restarts no Pod": {change: container(func(c *corev1.Container) { c.ReadinessProbe = nil })},
		"rule M28: a probe that others have changed is kept":                                 {change: container(func(c *corev1.Container) { c.ReadinessProbe.PeriodSeconds = 30 })},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			memcached, d := newMemcached(test.asked...), newOwned(newMemcached(), test.change)
			drift := diffDeployment(memcached, d)
			fixture.Differ(t, "patch", test.patch, string(drift.JSON()))
			fixture.Differ(t, "words", test.words, drift.String())
			trimmed := TrimDeployment(d, deployment.NewInterner())
			fromCache := diffDeployment(memcached, trimmed)
			fixture.Differ(t, "patch from the trimmed Deployment", test.patch, string(fromCache.JSON()))
			fixture.Differ(t, "words from the trimmed Deployment", test.words, fromCache.String())
			fixture.Differ(t, "trimmed twice", trimmed, TrimDeployment(trimmed, deployment.NewInterner()))
		})
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
	tests := map[string]struct {
		memcached *v1alpha1.Memcached
		want      string
	}{
		"a good spec":                                          {newMemcached(), ""},
		"no Pods at all":                                       {newMemcached(size(0)), ""},
		"the first and the last port":                          {newMemcached(port(1)), ""},
		"the last port":                                        {newMemcached(port(65535)), ""},
		"rule M16: a negative size is invalid":                 {newMemcached(size(-1)), "spec.size is -1; set it to 0 or more"},
		"rule M16: port 0 is invalid":                          {newMemcached(port(0)), "spec.port is 0; set it to a number from 1 to 65535"},
		"rule M16: a port too high is invalid":                 {newMemcached(port(65536)), "spec.port is 65536; set it to a number from 1 to 65535"},
		"rule M16: a negative port is so, too":                 {newMemcached(port(-1)), "spec.port is -1; set it to a number from 1 to 65535"},
		"the least memory":                                     {newMemcached(memory(1)), ""},
		"a topology key with a prefix":                         {newMemcached(topology("topology.kubernetes.io/zone")), ""},
		"rule M16: no memory at all is invalid":                {newMemcached(memory(0)), "spec.memoryMegabytes is 0; set it to 1 or more"},
		"rule M16: a topology key that is no label is invalid": {newMemcached(topology("a b")), "spec.topologyKey \"a b\" is not a label of nodes: name part must consist of alphanumeric characters, '-', '_' or '.', and must start and end with an alphanumeric character (e.g. 'MyName',  or 'my.name',  or '123-abc', regex used for validation is '([A-Za-z0-9][-A-Za-z0-9_.]*)?[A-Za-z0-9]')"},
		"rule M16: the size is looked at first":                {newMemcached(size(-1), port(0)), "spec.size is -1; set it to 0 or more"},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			fixture.Differ(t, "what is wrong", test.want, validateSpec(test.memcached))
			if d := decide(test.memcached, nil); (d.Action == deployment.Create) != (test.want == "") {
				t.Errorf("decision %+v", d)
			}
		})
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

func TestDrift(t *testing.T) {
	const ownPort = `{"name":"memcached","containerPort":11211,"protocol":"TCP"}`
	tests := map[string]struct {
		change func(*appsv1.Deployment)
		patch  string
		words  string
	}{
		"rule M4: what is as it should be": {change: func(*appsv1.Deployment) {}},
		"rule M4: what the API server adds is no drift": {change: func(d *appsv1.Deployment) {
			pod := &d.Spec.Template.Spec
			pod.RestartPolicy, pod.DNSPolicy, pod.SchedulerName = "Always", "ClusterFirst", "default-scheduler"
			pod.Containers[0].ImagePullPolicy, pod.Containers[0].TerminationMessagePath = "IfNotPresent", "/dev/termination-log"
		}},
		"rule M4: what others add is no drift": {change: func(d *appsv1.Deployment) {
			d.Spec.Template.Annotations, d.Spec.Template.Labels = map[string]string{"theirs": "x"}, map[string]string{"app": "memcached", "memcached_cr": "mc", "theirs": "x"}
			pod := &d.Spec.Template.Spec
			pod.SecurityContext.FSGroup = ptr.To[int64](1)
			pod.Containers[0].Env = []corev1.EnvVar{{Name: "X"}}
			pod.Containers[0].SecurityContext.ReadOnlyRootFilesystem, pod.Containers[0].SecurityContext.Capabilities.Add = ptr.To(true), []corev1.Capability{"NET_BIND_SERVICE"}
			pod.Containers[0].Ports = append([]corev1.ContainerPort{{Name: "extra", ContainerPort: 9150, Protocol: "TCP"}}, pod.Containers[0].Ports...)
			pod.Containers = append([]corev1.Container{{Name: "sidecar"}}, pod.Containers...)
		}},
		"rule M4: another size": {change: func(d *appsv1.Deployment) { d.Spec.Replicas = ptr.To[int32](7) },
			patch: `{"metadata":{"resourceVersion":"10"},"spec":{"replicas":1}}`, words: "replicas from 7 to 1"},
		"rule M4: another image": {change: container(func(c *corev1.Container) { c.Image = "other" }),
			patch: inContainer(`"image":"memcached:1.6-alpine"`), words: "image from other to memcached:1.6-alpine"},
		"rule M22: another command": {change: container(func(c *corev1.Container) { c.Command = c.Command[:6] }),
			patch: inContainer(`"command":["memcached","-m","64","-o","modern","-v","-p","11211"]`),
			words: `command from ["memcached" "-m" "64" "-o" "modern" "-v"] to ["memcached" "-m" "64" "-o" "modern" "-v" "-p" "11211"]`},
		"rule M22: arguments behind the command": {change: container(func(c *corev1.Container) { c.Args = []string{"-p", "1"} }),
			patch: inContainer(`"args":null`), words: `args from ["-p" "1"] to none`},
		"rule M22: another port under our name": {change: container(func(c *corev1.Container) { c.Ports[0].ContainerPort = 5 }),
			patch: inContainer(`"ports":[{"$patch":"replace"},` + ownPort + `]`), words: "ports from memcached 5/TCP to memcached 11211/TCP"},
		"rule M22: our port under another name": {change: container(func(c *corev1.Container) { c.Ports[0].Name = "x" }),
			patch: inContainer(`"ports":[{"$patch":"replace"},` + ownPort + `]`), words: "ports from x 11211/TCP to memcached 11211/TCP"},
		"rule M22: our port gone from among others": {change: container(func(c *corev1.Container) {
			c.Ports = []corev1.ContainerPort{{Name: "udp", ContainerPort: 11211, Protocol: "UDP"}}
		}),
			patch: inContainer(`"ports":[{"$patch":"replace"},{"name":"udp","containerPort":11211,"protocol":"UDP"},` + ownPort + `]`), words: "ports from none to memcached 11211/TCP"},
		"rule M22: our port by another protocol": {change: container(func(c *corev1.Container) { c.Ports[0].Protocol = "UDP" }),
			patch: inContainer(`"ports":[{"$patch":"replace"},` + ownPort + `]`), words: "ports from memcached 11211/UDP to memcached 11211/TCP"},
		"rule M24: all of the container's security": {change: container(func(c *corev1.Container) { c.SecurityContext = nil }),
			patch: inContainer(`"securityContext":{"allowPrivilegeEscalation":false,"capabilities":{"drop":["ALL"]},"runAsNonRoot":true,"runAsUser":11211}`),
			words: `securityContext.runAsNonRoot from none to true, securityContext.runAsUser from none to 11211, securityContext.allowPrivilegeEscalation from none to false, securityContext.capabilities.drop from [] to ["ALL"]`},
		"rule M24: one of it": {change: container(func(c *corev1.Container) { c.SecurityContext.RunAsUser = ptr.To[int64](0) }),
			patch: inContainer(`"securityContext":{"runAsUser":11211}`), words: "securityContext.runAsUser from 0 to 11211"},
		"rule M24: all of the Pod's security": {change: func(d *appsv1.Deployment) { d.Spec.Template.Spec.SecurityContext = nil },
			patch: `{"metadata":{"resourceVersion":"10"},"spec":{"template":{"spec":{"securityContext":{"runAsNonRoot":true,"seccompProfile":{"localhostProfile":null,"type":"RuntimeDefault"}}}}}}`,
			words: "spec.securityContext.runAsNonRoot from none to true, spec.securityContext.seccompProfile from none to RuntimeDefault"},
		"rule M24: another seccomp profile": {
			change: func(d *appsv1.Deployment) {
				d.Spec.Template.Spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: ptr.To("x")}
			},
			patch: `{"metadata":{"resourceVersion":"10"},"spec":{"template":{"spec":{"securityContext":{"seccompProfile":{"localhostProfile":null,"type":"RuntimeDefault"}}}}}}`,
			words: "spec.securityContext.seccompProfile from Localhost x to RuntimeDefault"},
		"rule M22: a label that another selector leaves open, and that is there": {change: func(d *appsv1.Deployment) {
			d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "memcached"}}
		}},
		"rule M22: labels without a selector": {
			change: func(d *appsv1.Deployment) { d.Spec.Selector, d.Spec.Template.Labels = nil, nil },
			patch:  `{"metadata":{"resourceVersion":"10"},"spec":{"template":{"metadata":{"labels":{"app":"memcached","memcached_cr":"mc"}}}}}`,
			words:  `metadata.labels.app from "" to "memcached", metadata.labels.memcached_cr from "" to "mc"`},
		"rule M22: a label that another selector leaves open": {
			change: func(d *appsv1.Deployment) {
				d.Spec.Selector = &metav1.LabelSelector{MatchLabels: map[string]string{"app": "theirs"}}
				d.Spec.Template.Labels = map[string]string{"app": "theirs"}
			},
			patch: `{"metadata":{"resourceVersion":"10"},"spec":{"template":{"metadata":{"labels":{"memcached_cr":"mc"}}}}}`, words: `metadata.labels.memcached_cr from "" to "mc"`},
		"rule M4: all that drifted is one patch": {
			change: func(d *appsv1.Deployment) {
				d.Labels, d.OwnerReferences[0].BlockOwnerDeletion = nil, nil
				d.Spec.Template.Spec.SecurityContext.RunAsNonRoot = ptr.To(false)
				d.Spec.Template.Spec.Containers[0].Image, d.Spec.Template.Spec.Containers[0].Args = "other", []string{"x"}
			},
			patch: `{"metadata":{"labels":{"app.kubernetes.io/managed-by":"sample-controller"},"ownerReferences":[{"apiVersion":"cache.example.com/v1alpha1","kind":"Memcached","name":"mc","uid":"uid-mc","controller":true,"blockOwnerDeletion":true}],"resourceVersion":"10"},` +
				`"spec":{"template":{"spec":{"containers":[{"args":null,"image":"memcached:1.6-alpine","name":"memcached"}],"securityContext":{"runAsNonRoot":true}}}}}`,
			words: `spec.securityContext.runAsNonRoot from false to true, image from other to memcached:1.6-alpine, args from ["x"] to none, label app.kubernetes.io/managed-by from none to "sample-controller", owner reference`},
	}
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			d := newOwned(newMemcached(), test.change)
			before := d.DeepCopy()
			drift := diffDeployment(newMemcached(), d)
			fixture.Differ(t, "patch", test.patch, string(drift.JSON()))
			fixture.Differ(t, "words", test.words, drift.String())
			fixture.Differ(t, "the Deployment in the cache", before, d)
			fromCache := diffDeployment(newMemcached(), TrimDeployment(d, deployment.NewInterner()))
			fixture.Differ(t, "patch from the trimmed Deployment", test.patch, string(fromCache.JSON()))
			fixture.Differ(t, "words from the trimmed Deployment", test.words, fromCache.String())
		})
	}
}

// TestAdmittedLongValues: later syncs compare what the cache keeps, so what admission made of a write is
// kept as the cache keeps it.
func TestAdmittedLongValues(t *testing.T) {
	long := strings.Repeat("x", 5000)
	for name, change := range map[string]func(*appsv1.Deployment){
		"an image":             container(func(c *corev1.Container) { c.Image = long }),
		"an element of a list": container(func(c *corev1.Container) { c.Command = []string{long} }),
		"a list":               container(func(c *corev1.Container) { c.Args = strings.Split(long, "") }),
		"a profile": func(d *appsv1.Deployment) {
			d.Spec.Template.Spec.SecurityContext.SeccompProfile = &corev1.SeccompProfile{Type: "Localhost", LocalhostProfile: ptr.To(long)}
		},
	} {
		t.Run("rule M4: "+name, func(t *testing.T) {
			written := newOwned(newMemcached(), change)
			admitted, err := checkAdmitted(newMemcached(), written)
			if err != nil {
				t.Fatal(err)
			}
			patch := diffDeployment(newMemcached(), TrimDeployment(written, deployment.NewInterner()), admitted...)
			fixture.Differ(t, "written again", "", patch.String())
		})
	}
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

func TestContainerThatWasRemoved(t *testing.T) {
	memcached := newMemcached()
	drift := diffDeployment(memcached, newOwned(memcached, container(func(c *corev1.Container) { c.Name = "renamed" })))
	fixture.Differ(t, "rule M4: words", "container memcached was removed", drift.String())
	if patch := string(drift.JSON()); !strings.Contains(patch, `"containers":[{"name":"memcached","image":"memcached:1.6-alpine","command":["memcached",`) {
		t.Errorf("rule M4: patch %s", patch)
	}
}

func TestChangesHaveTheirFieldPath(t *testing.T) {
	memcached := newMemcached()
	drift := diffDeployment(memcached, newOwned(memcached, func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.SecurityContext.RunAsNonRoot = nil
		d.Spec.Template.Spec.Containers[0].Image = "other"
	}))
	var paths []string
	for _, change := range drift.Changes {
		paths = append(paths, change.Path.String())
	}
	fixture.Differ(t, "rule M21: paths, as managed fields have them", []string{
		".spec.template.spec.securityContext.runAsNonRoot", `.spec.template.spec.containers[name="memcached"].image`}, paths)
}

// TestManyNodes: a status that names the first thousand of its nodes does not wait for more.
func TestManyNodes(t *testing.T) {
	memcached := newMemcached(size(maxNodes + 500))
	for nodes, want := range map[int]bool{maxNodes: false, maxNodes - 1: true} {
		status := newStatus(memcached, deployment.Result{Deployment: newOwned(memcached, fixture.Available)}, make([]string, nodes), testNow)
		if got := isProgress(memcached, &status); got != want {
			t.Errorf("rule M13: with %d nodes of %d the status is progress: %v", nodes, status.Replicas, got)
		}
	}
}

func TestStatusWithoutADeployment(t *testing.T) {
	for name, result := range map[string]deployment.Result{
		"rule M23: no Deployment": {}, "rule M23: a foreign Deployment": {Deployment: newForeign(fixture.Available)},
	} {
		t.Run(name, func(t *testing.T) {
			got := newStatus(newMemcached(ready("a")), result, []string{"x"}, testNow)
			if result.Deployment == nil {
				got = newStatus(newMemcached(ready("a")), result, nil, testNow)
			}
			if got.Nodes == nil || len(got.Nodes) != 0 || got.ReadyReplicas != 0 || got.Replicas != 0 || got.Selector != "" {
				t.Errorf("status %+v", got)
			}
		})
	}
	memcached := newMemcached(size(2))
	got := newStatus(memcached, deployment.Result{Deployment: newOwned(memcached, fixture.Available)}, []string{"a", "b"}, testNow)
	if got.Selector != "app=memcached,memcached_cr=mc" || got.Replicas != 2 || got.ReadyReplicas != 2 || len(got.Nodes) != 2 {
		t.Errorf("rule M25: status %+v", got)
	}
}
