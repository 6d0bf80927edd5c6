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

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
)

var memcachedScenarios = []*scenario{
	{
		name:    "Memcached: created",
		prepare: func(*run) {},
		operate: func(r *run) { r.createMemcached(2) },
		want:    []string{"Memcached m: DeploymentAvailable, 2 nodes, 2 ready", "Deployment m of m: 2"},
	},
	{
		name:    "Memcached: scaled up",
		prepare: func(r *run) { r.createMemcached(1).awaitReady("m") },
		operate: func(r *run) { r.patch("m", `{"spec":{"size":3}}`) },
		want:    []string{"Memcached m: DeploymentAvailable, 3 nodes, 3 ready", "Deployment m of m: 3"},
	},
	{
		name:    "Memcached: scaled down to nothing",
		prepare: func(r *run) { r.createMemcached(2).awaitReady("m") },
		operate: func(r *run) { r.patch("m", `{"spec":{"size":0}}`) },
		want:    []string{"Memcached m: DeploymentAvailable, 0 nodes, 0 ready", "Deployment m of m: 0"},
	},
	{
		name:    "Memcached: another image is rolled out",
		prepare: func(r *run) { r.createMemcached(2).awaitReady("m") },
		operate: func(r *run) { r.patch("m", `{"spec":{"image":"memcached:other"}}`) },
		want:    []string{"Memcached m: DeploymentAvailable, 2 nodes, 2 ready", "Deployment m of m: 2"},
	},
	{
		name:    "Memcached: another port is rolled out",
		prepare: func(r *run) { r.createMemcached(2).awaitReady("m") },
		operate: func(r *run) { r.patch("m", `{"spec":{"port":11311}}`) },
		want:    []string{"Memcached m: DeploymentAvailable, 2 nodes, 2 ready", "Deployment m of m: 2"},
	},
	{
		name:    "Memcached: its Deployment is edited by hand",
		prepare: func(r *run) { r.createMemcached(1).awaitReady("m") },
		operate: func(r *run) {
			r.editDeployment("m", `{"metadata":{"labels":{"app.kubernetes.io/managed-by":null,"theirs":"kept"}},
				"spec":{"replicas":2,"template":{"spec":{"containers":[{"name":"memcached","command":["sleep"]}]}}}}`)
		},
		want: []string{"Memcached m: DeploymentAvailable, 1 nodes, 1 ready", "Deployment m of m: 1"},
	},
	{
		name:    "Memcached: its Deployment is deleted",
		prepare: func(r *run) { r.createMemcached(1).awaitReady("m") },
		operate: func(r *run) { r.deleteDeployment("m") },
		want:    []string{"Memcached m: DeploymentAvailable, 1 nodes, 1 ready", "Deployment m of m: 1"},
	},
	{
		name:    "Memcached: a foreign Deployment has the name and is then deleted",
		prepare: func(r *run) { r.createForeign("m") },
		operate: func(r *run) { r.createMemcached(2).awaitNotOwned("m").deleteDeployment("m") },
		want:    []string{"Memcached m: DeploymentAvailable, 2 nodes, 2 ready", "Deployment m of m: 2"},
	},
	{
		name:    "Memcached: deleted in the foreground",
		prepare: func(r *run) { r.createMemcached(1).awaitReady("m") },
		operate: func(r *run) { r.delete("m", metav1.DeletePropagationForeground) },
		want:    []string{},
	},
	{
		name: "Memcached: deleted and recreated under the same name",
		// The finalizer keeps the old Deployment until the new Memcached has reported it.
		prepare: func(r *run) {
			r.createMemcached(1).awaitReady("m").editDeployment("m", `{"metadata":{"finalizers":["example.com/hold"]}}`)
		},
		operate: func(r *run) {
			r.delete("m", metav1.DeletePropagationBackground).createMemcached(1).awaitNotOwned("m").editDeployment("m", `{"metadata":{"finalizers":null}}`)
		},
		want: []string{"Memcached m: DeploymentAvailable, 1 nodes, 1 ready", "Deployment m of m: 1"},
	},
	{
		name:    "Memcached: deleted without its Deployment, and recreated",
		prepare: func(r *run) { r.createMemcached(1).awaitReady("m") },
		operate: func(r *run) { r.delete("m", metav1.DeletePropagationOrphan).createMemcached(3) },
		want:    []string{"Memcached m: DeploymentNotOwned, 0 nodes, 0 ready", "Deployment m without an owner: 1"},
	},
	{
		name:    "Memcached: a Pod is deleted",
		prepare: func(r *run) { r.createMemcached(2).awaitReady("m") },
		operate: func(r *run) { r.deletePod() },
		want:    []string{"Memcached m: DeploymentAvailable, 2 nodes, 2 ready", "Deployment m of m: 2"},
	},
	{
		name:          "Memcached: the namespace is deleted",
		prepare:       func(*run) {},
		operate:       func(r *run) { r.deleteNamespaceDuringCreate(func() { r.createMemcached(0) }) },
		want:          []string{},
		endsNamespace: true,
	},
}

// createMemcached creates Memcached m. Each scenario has one.
func (r *run) createMemcached(size int32) *run {
	r.t.Helper()
	return r.step("create Memcached m", func() error {
		_, err := cluster.foos.CacheV1alpha1().Memcacheds(r.namespace).Create(r.t.Context(), &v1alpha1.Memcached{
			ObjectMeta: metav1.ObjectMeta{Name: "m"}, Spec: v1alpha1.MemcachedSpec{Size: ptr.To(size)},
		}, metav1.CreateOptions{})
		return err
	})
}

// deletePod deletes a Pod of the Memcached and waits until it is gone.
func (r *run) deletePod() {
	r.t.Helper()
	var pod string
	r.poll("the Memcached has a Pod", func(ctx context.Context) error {
		object, err := cluster.foos.CacheV1alpha1().Memcacheds(r.namespace).Get(ctx, "m", metav1.GetOptions{})
		if err != nil {
			return err
		}
		live, err := r.podsByOwner(ctx)
		if err != nil {
			return err
		}
		if len(live[object.UID]) == 0 {
			return errors.New("it has none yet")
		}
		pod = live[object.UID][0]
		return nil
	})
	r.step("delete a Pod", func() error {
		return cluster.kube.CoreV1().Pods(r.namespace).Delete(r.t.Context(), pod, metav1.DeleteOptions{})
	})
	r.poll("the Pod is gone", func(ctx context.Context) error {
		_, err := cluster.kube.CoreV1().Pods(r.namespace).Get(ctx, pod, metav1.GetOptions{})
		switch {
		case apierrors.IsNotFound(err):
			return nil
		case err == nil:
			return errors.New("it exists")
		}
		return err
	})
}
