//go:build faults

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

package faults

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/apis/meta/v1/unstructured"
	"k8s.io/apimachinery/pkg/types"

	"example.com/sample-controller/pkg/apis/samplecontroller/v1alpha1"
	"example.com/sample-controller/test/kinds"
)

// services are the resource of the Services of Memcacheds.
const services = "services"

// extendMemcached adds what Memcacheds have beyond other kinds: their status lists Pods, and
// each has a Service.
func extendMemcached(k *kindSuite) {
	k.progress = v1alpha1.ReasonDeploymentProgressing
	k.checkSettled, k.awaitMarker = memcachedSettled, markMemcached
	settled := []string{"Memcached x: ready", "Deployment x of x: 2"}
	k.scenarios = append(k.scenarios, &scenario{
		name:    "Memcached: a Pod is deleted",
		prepare: func(r *run) { r.create().awaitReady("x") },
		operate: func(r *run) { r.deletePod() },
		want:    settled,
	}, &scenario{
		name:    "Memcached: its Service is deleted",
		prepare: func(r *run) { r.create().awaitReady("x").awaitService() },
		operate: func(r *run) {
			r.step("delete Service x", func() error { return r.client(services).Delete(r.t.Context(), "x", metav1.DeleteOptions{}) })
		},
		want: settled,
	}, &scenario{
		name:    "Memcached: its Service is edited by hand",
		prepare: func(r *run) { r.create().awaitReady("x").awaitService() },
		operate: func(r *run) {
			r.step("edit Service x", func() error {
				_, err := r.client(services).Patch(r.t.Context(), "x", types.MergePatchType,
					[]byte(`{"metadata":{"labels":null},"spec":{"selector":{"app":"theirs"},"ports":[{"name":"x","port":80}]}}`), metav1.PatchOptions{})
				return err
			})
		},
		want: settled,
	})
}

// memcachedSettled returns nil if the status of each Memcached lists its Pods, and its Service is
// as its spec asks.
func memcachedSettled(ctx context.Context, r *run) error {
	return errors.Join(nodesSettled(ctx, r), servicesSettled(ctx, r))
}

// servicesSettled returns nil if each Memcached that is ready has its Service, or says why not.
func servicesSettled(ctx context.Context, r *run) error {
	list, err := r.client(r.scenario.suite.Resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		memcached := &list.Items[i]
		_, conditions := statusOf(memcached)
		ready := meta.FindStatusCondition(conditions, readyType)
		if isMarker(memcached.GetName()) || ready == nil || ready.Status != metav1.ConditionTrue || strings.Contains(ready.Message, "its Service: ") {
			continue
		}
		service, err := r.client(services).Get(ctx, memcached.GetName(), metav1.GetOptions{})
		if err != nil {
			return err
		}
		selector, ports := kinds.Find("{.spec.selector}", service.Object), kinds.Find("{.spec.ports[*].name}{.spec.ports[*].port}", service.Object)
		port := "memcached " + kinds.Find("{.spec.port}", memcached.Object)
		if !metav1.IsControlledBy(service, memcached) || len(service.GetLabels()) == 0 || selector != "map[app:memcached memcached_cr:"+memcached.GetName()+"]" || ports != port {
			return fmt.Errorf("the Service of Memcached %s is %s", memcached.GetName(), mustEncode(service))
		}
	}
	return nil
}

// awaitService waits until Memcached x has its Service.
func (r *run) awaitService() {
	r.t.Helper()
	r.poll("the Memcached has its Service", func(ctx context.Context) error { return servicesSettled(ctx, r) })
}

// markMemcached creates a marker and waits until its status has its Pod, which is newer
// than all other Deployments, ReplicaSets and Pods. Then it scales the marker down,
// because a simulated node runs at most 110 Pods.
func markMemcached(r *run, name, what string) {
	r.t.Helper()
	createMarker(r, name, what)
	k := r.scenario.suite
	r.await(what, func() error {
		nodes, _, err := unstructured.NestedStringSlice(existing(k.ownerVersions(r.history))[name].Object, "status", "nodes")
		if err == nil && len(nodes) != 1 {
			err = fmt.Errorf("the nodes of the marker are %q", nodes)
		}
		return err
	})
	_, err := r.client(k.Resource).Patch(r.t.Context(), name, types.MergePatchType, []byte(`{"spec":{"size":0}}`), metav1.PatchOptions{})
	r.must(err)
}

// nodesSettled returns nil if the status of each Memcached lists exactly the live Pods of
// the Deployment that it owns.
func nodesSettled(ctx context.Context, r *run) error {
	live, err := r.podsByOwner(ctx)
	if err != nil {
		return err
	}
	list, err := r.client(r.scenario.suite.Resource).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		memcached := &list.Items[i]
		nodes, _, err := unstructured.NestedStringSlice(memcached.Object, "status", "nodes")
		if want := live[memcached.GetUID()]; err != nil || !isMarker(memcached.GetName()) && !slices.Equal(nodes, want) {
			return fmt.Errorf("the nodes of Memcached %s are %q, and its Pods %q", memcached.GetName(), nodes, want)
		}
	}
	return nil
}

// podsByOwner returns the sorted names of live Pods by the UID of the controller of the
// controller of their ReplicaSet.
func (r *run) podsByOwner(ctx context.Context) (map[types.UID][]string, error) {
	names, above := map[types.UID][]string{}, map[types.UID]types.UID{}
	for _, resource := range []string{deployments, "replicasets", pods} {
		list, err := r.client(resource).List(ctx, metav1.ListOptions{})
		if err != nil {
			return nil, err
		}
		for i := range list.Items {
			object := &list.Items[i]
			ref := metav1.GetControllerOf(object)
			if ref == nil {
				continue
			}
			above[object.GetUID()] = ref.UID
			phase, _, _ := unstructured.NestedString(object.Object, "status", "phase")
			if resource == pods && object.GetDeletionTimestamp() == nil && phase != string(corev1.PodSucceeded) && phase != string(corev1.PodFailed) {
				owner := above[above[ref.UID]]
				names[owner] = append(names[owner], object.GetName())
			}
		}
	}
	for _, of := range names {
		slices.Sort(of)
	}
	return names, nil
}

// deletePod deletes a Pod of Memcached x and waits until it is gone.
func (r *run) deletePod() {
	r.t.Helper()
	var pod string
	r.poll("the Memcached has a Pod", func(ctx context.Context) error {
		memcached, err := r.client(r.scenario.suite.Resource).Get(ctx, "x", metav1.GetOptions{})
		if err != nil {
			return err
		}
		live, err := r.podsByOwner(ctx)
		if err != nil {
			return err
		}
		if len(live[memcached.GetUID()]) == 0 {
			return errors.New("it has none yet")
		}
		pod = live[memcached.GetUID()][0]
		return nil
	})
	r.step("delete a Pod", func() error { return r.client(pods).Delete(r.t.Context(), pod, metav1.DeleteOptions{}) })
	r.poll("the Pod is gone", func(ctx context.Context) error {
		_, err := r.client(pods).Get(ctx, pod, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("it exists")
		}
		return err
	})
}
