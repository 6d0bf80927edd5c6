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

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	discoveryv1 "k8s.io/api/discovery/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	coreclient "k8s.io/client-go/kubernetes/typed/core/v1"
	"k8s.io/utils/ptr"

	cachev1alpha1 "example.com/sample-controller/pkg/apis/cache/v1alpha1"
)

func (e *env) memcachedServices() coreclient.ServiceInterface {
	return shared.kube.CoreV1().Services(e.namespace)
}

// awaitMemcachedService waits until Memcached x has its Service, as its spec asks.
func (e *env) awaitMemcachedService() *corev1.Service {
	e.Helper()
	const name = "x"
	return awaitObject(e, e.memcachedServices(), name, "is the Memcached's", func(service *corev1.Service) error {
		memcached, ports := getObject(e, e.memcacheds(), name), service.Spec.Ports
		if !metav1.IsControlledBy(service, memcached) || service.Labels[managedBy] == "" || service.Spec.ClusterIP != corev1.ClusterIPNone ||
			service.Spec.Selector["memcached_cr"] != name || len(service.Spec.Selector) != 2 ||
			len(ports) != 1 || ports[0].Name != "memcached" || ports[0].Port != *memcached.Spec.Port || ports[0].TargetPort.StrVal != "memcached" {
			return fmt.Errorf("%+v", service)
		}
		return nil
	})
}

// awaitMemcachedMessage waits until the Memcached is ready and its message has that part.
func (e *env) awaitMemcachedMessage(name, part string) {
	e.Helper()
	awaitObject(e, e.memcacheds(), name, "is ready with "+part, func(memcached *cachev1alpha1.Memcached) error {
		ready := meta.FindStatusCondition(memcached.Status.Conditions, cachev1alpha1.MemcachedReady)
		if ready == nil || ready.Status != metav1.ConditionTrue || !strings.Contains(ready.Message, part) {
			return fmt.Errorf("condition %+v", ready)
		}
		return nil
	})
}

func memcachedOptionalFields(t *testing.T) {
	e := startEnv(t, "")
	e.createMemcached("x", size(2))
	e.awaitMemcachedReady("x")
	template := &e.deployment("x").Spec.Template.Spec
	if probe := template.Containers[0].ReadinessProbe; probe == nil || probe.TCPSocket == nil || probe.TCPSocket.Port.StrVal != "memcached" {
		t.Errorf("rule M28: probe %+v", probe)
	}
	e.updateDeployment("x", func(d *appsv1.Deployment) {
		d.Spec.Template.Spec.Containers[0].ReadinessProbe = nil
		d.Spec.Template.Spec.TopologySpreadConstraints = []corev1.TopologySpreadConstraint{{
			MaxSkew: 2, TopologyKey: "rack", WhenUnsatisfiable: corev1.ScheduleAnyway, LabelSelector: d.Spec.Selector}}
	})
	e.awaitMemcachedReady("x")
	before, mark := e.deployment("x"), e.mark()
	e.controller.stop()
	e.startController("")
	e.createMemcached("settle")
	e.awaitMemcachedReady("settle")
	e.noWrites(mark, "deployments", "x")
	if after := e.deployment("x"); after.Generation != before.Generation {
		t.Errorf("rule M28: the template was changed:\n%+v\n%+v", before.Spec, after.Spec)
	}

	e.updateMemcached("x", func(spec *cachev1alpha1.MemcachedSpec) {
		spec.MemoryMegabytes, spec.TopologyKey = ptr.To[int32](128), "topology.kubernetes.io/zone"
	})
	e.awaitMemcachedReady("x")
	template = &e.deployment("x").Spec.Template.Spec
	if command := strings.Join(template.Containers[0].Command, " "); command != "memcached -m 128 -o modern -v -p 11211" {
		t.Errorf("rule M26: command %q", command)
	}
	if spread := template.TopologySpreadConstraints; len(spread) != 1 || spread[0].TopologyKey != "topology.kubernetes.io/zone" || spread[0].MaxSkew != 1 {
		t.Errorf("rule M27: constraints %+v", spread)
	}
	e.settle()
	mark = e.mark()
	e.updateMemcached("x", func(spec *cachev1alpha1.MemcachedSpec) { spec.TopologyKey = "" })
	e.awaitMemcachedReady("x")
	e.noWrites(mark, "deployments", "x")

	for field, patch := range map[string]string{"memoryMegabytes": "0", "topologyKey": `"a b"`} {
		_, err := e.memcacheds().Patch(t.Context(), "x", types.MergePatchType, fmt.Appendf(nil, `{"spec":{%q:%s}}`, field, patch), metav1.PatchOptions{})
		if !apierrors.IsInvalid(err) || !strings.Contains(err.Error(), "spec."+field) {
			t.Errorf("rule M16: the API server answers to %s %s: %v", field, patch, err)
		}
	}
}

func memcachedService(t *testing.T) {
	e := startEnv(t, "")
	e.createMemcached("x", size(2), port(11222))
	e.awaitMemcachedReady("x")
	created := e.awaitMemcachedService()
	e.eventually("the Service has the addresses of both Pods", func(ctx context.Context) error {
		slices, err := shared.kube.DiscoveryV1().EndpointSlices(e.namespace).List(ctx, metav1.ListOptions{LabelSelector: discoveryv1.LabelServiceName + "=x"})
		if err != nil {
			return err
		}
		ready := 0
		for _, slice := range slices.Items {
			for _, endpoint := range slice.Endpoints {
				if ptr.Deref(endpoint.Conditions.Ready, false) && *slice.Ports[0].Port == 11222 {
					ready++
				}
			}
		}
		if ready != 2 {
			return fmt.Errorf("%+v", slices.Items)
		}
		return nil
	})

	mark := e.mark()
	updateObject(e, e.memcachedServices(), "x", func(service *corev1.Service) {
		service.Labels = map[string]string{"theirs": "kept"}
		service.Spec.Selector, service.Spec.Ports = map[string]string{"app": "theirs"}, []corev1.ServicePort{{Name: "a", Port: 1}, {Name: "b", Port: 2}}
	})
	if repaired := e.awaitMemcachedService(); repaired.Labels["theirs"] != "kept" || repaired.UID != created.UID {
		t.Errorf("the Service is %+v", repaired)
	}
	if repairs := e.accepted(mark, "patch services x"); len(repairs) != 1 {
		t.Errorf("%d patches, want 1: %v", len(repairs), e.writes(mark))
	}
	e.updateMemcached("x", port(11333))
	e.awaitMemcachedService()
	e.kubectl("delete service x")
	e.awaitMemcachedService()
	e.awaitMemcachedReady("x")
	e.kubectl("delete memcached x")
	awaitNotFound(e, e.memcachedServices(), "x")
}

func memcachedServiceContention(t *testing.T) {
	e := startEnv(t, "")
	memcached := e.createMemcached("x")
	e.awaitMemcachedReady("x")
	mark := e.mark()
	for range maxRepairs + 1 {
		e.awaitMemcachedService()
		updateObject(e, e.memcachedServices(), "x", func(service *corev1.Service) { delete(service.Labels, managedBy) })
	}
	e.awaitMemcachedMessage("x", `another writer keeps changing what this Memcached enforces on Service "x": label `+managedBy)
	e.awaitOneEvent(memcached, "ServiceContested")
	if repairs := e.accepted(mark, "patch services x"); len(repairs) > maxRepairs {
		t.Errorf("%d repairs, want %d at most", len(repairs), maxRepairs)
	}
}

func memcachedForeignService(t *testing.T) {
	e := startEnv(t, "")
	foreign := createObject(e, e.memcachedServices(), &corev1.Service{
		ObjectMeta: metav1.ObjectMeta{Name: "x"}, Spec: corev1.ServiceSpec{ClusterIP: corev1.ClusterIPNone, Selector: map[string]string{"app": "theirs"}}})
	memcached := e.createMemcached("x")
	e.awaitMemcachedReady("x")
	e.awaitMemcachedMessage("x", `its Service: Service "x" exists and has no controller; delete it, or create this Memcached under another name`)
	e.awaitOneEvent(memcached, "ErrResourceExists")
	if now := getObject(e, e.memcachedServices(), "x"); now.ResourceVersion != foreign.ResourceVersion {
		t.Errorf("the foreign Service was written to: %+v", now)
	}
	e.kubectl("delete service x")
	e.awaitMemcachedService()
	awaitObject(e, e.memcacheds(), "x", "says nothing about a Service", func(memcached *cachev1alpha1.Memcached) error {
		if message := memcached.Status.Conditions[0].Message; strings.Contains(message, "Service") {
			return errors.New(message)
		}
		return nil
	})
}

func memcachedServiceRefused(t *testing.T) {
	e := startEnv(t, "")
	e.kubectl("create quota none --hard=services=0")
	e.eventually("the quota counts", func(ctx context.Context) error {
		quota, err := shared.kube.CoreV1().ResourceQuotas(e.namespace).Get(ctx, "none", metav1.GetOptions{})
		if err == nil && len(quota.Status.Hard) == 0 {
			err = errors.New("it does not yet")
		}
		return err
	})
	memcached := e.createMemcached("x")
	e.awaitMemcachedReady("x")
	e.awaitMemcachedMessage("x", `its Service: the API server refused: creating Service "x": services "x" is forbidden: exceeded quota: none`)
	e.awaitOneEvent(memcached, "ServiceRejected")
	e.kubectl("delete quota none")
	e.updateMemcached("x", size(2))
	e.awaitMemcachedService()

	dotted := e.createMemcached("a.b")
	e.awaitMemcachedMessage("a.b", "its Service: there is none, because no Service can have a name with a dot")
	e.awaitOneEvent(dotted, "ServiceRejected")
	if creates := slices.DeleteFunc(e.writes(e.startMark), func(write string) bool { return write != "create services a.b" }); len(creates) > 0 {
		t.Errorf("the API server was asked: %v", creates)
	}
}
