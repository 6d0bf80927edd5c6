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
	"strconv"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"example.com/sample-controller/pkg/apis/cache/v1alpha1"
)

func memcachedSuite() *kindSuite {
	return &kindSuite{
		controller: "memcached",
		every:      12, everyWatch: 24,
		owner:                  "Memcached",
		dependent:              "Deployment",
		other:                  "Pod",
		roles:                  map[string]role{memcacheds: owners, deployments: dependents, replicaSets: others, pods: others},
		scenarios:              memcachedScenarios,
		state:                  (*history).memcachedState,
		ownerNames:             func(h *history) []string { return existingNames(h.memcacheds) },
		countDependentVersions: func(h *history) int { return countVersions(h.deployments) },
		violations: func(h *history, records ...[]request) []string {
			return deploymentViolations(h, h.memcacheds, memcachedOwnerKind(), records...)
		},
		awaitMarker:  markMemcached,
		checkSettled: nodesSettled,
	}
}

// memcachedOwnerKind describes Memcacheds to the checker.
func memcachedOwnerKind() ownerKind[*v1alpha1.Memcached] {
	return ownerKind[*v1alpha1.Memcached]{
		kind: "Memcached", group: "cache.example.com", resource: memcacheds,
		deploymentName: func(memcached *v1alpha1.Memcached) string { return memcached.Name },
		conforms:       memcachedConforms,
		status: func(memcached *v1alpha1.Memcached) (int64, []metav1.Condition) {
			return memcached.Status.ObservedGeneration, memcached.Status.Conditions
		},
	}
}

// memcachedConforms reports whether the Deployment has the replicas, image and port of
// the Memcached's spec.
func memcachedConforms(deployment *appsv1.Deployment, memcached *v1alpha1.Memcached) bool {
	if ptr.Deref(deployment.Spec.Replicas, 1) != ptr.Deref(memcached.Spec.Size, 1) {
		return false
	}
	container, port := findContainer(deployment, "memcached"), ptr.Deref(memcached.Spec.Port, 0)
	return container != nil && container.Image == memcached.Spec.Image && len(container.Ports) == 1 && container.Ports[0].ContainerPort == port &&
		len(container.Command) > 1 && slices.Equal(container.Command[len(container.Command)-2:], []string{"-p", strconv.Itoa(int(port))})
}

// memcachedState is the state of a Memcached. It counts the nodes, whose names differ
// from run to run.
type memcachedState struct {
	ownerState

	Spec     v1alpha1.MemcachedSpec
	Nodes    int
	Ready    int32
	Replicas int32
	Selector string
}

func (h *history) memcachedState() state {
	return state{
		Owners: statesOf(h.memcacheds, func(memcached *v1alpha1.Memcached) objectState {
			return memcachedState{
				ownerState: newOwnerState(memcached, memcached.Status.ObservedGeneration, memcached.Status.Conditions),
				Spec:       memcached.Spec,
				Nodes:      len(memcached.Status.Nodes),
				Ready:      memcached.Status.ReadyReplicas,
				Replicas:   memcached.Status.Replicas,
				Selector:   memcached.Status.Selector,
			}
		}),
		Dependents: deploymentStates(h, h.memcacheds),
	}
}

func (s memcachedState) summary(name string) string {
	return markUnsettled(fmt.Sprintf("Memcached %s: %s, %d nodes, %d ready", name, s.Reason, s.Nodes, s.Ready), s.settled())
}

// markMemcached creates a marker and waits until its status has its Pod, which is newer
// than all other Deployments, ReplicaSets and Pods. Then it scales the marker down,
// because a simulated node runs at most 110 Pods.
func markMemcached(r *run, name, what string) {
	r.t.Helper()
	client := cluster.foos.CacheV1alpha1().Memcacheds(r.namespace)
	_, err := client.Create(r.t.Context(), &v1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	r.must(err)
	r.await(what, func() error {
		marker, deployment := existing(r.history.memcacheds)[name], existing(r.history.deployments)[name]
		if marker == nil || deployment == nil || !rolledOut(deployment) || !memcachedOwnerKind().isReady(marker) || len(marker.Status.Nodes) != 1 {
			return errors.New("the marker is not ready")
		}
		return nil
	})
	r.must(cluster.patchObject(r.t.Context(), memcacheds, r.namespace, name, `{"spec":{"size":0}}`))
}

// nodesSettled returns nil if the status of each Memcached lists exactly the live Pods of
// the Deployment that it owns.
func nodesSettled(ctx context.Context, r *run) error {
	live, err := r.podsByOwner(ctx)
	if err != nil {
		return err
	}
	list, err := cluster.foos.CacheV1alpha1().Memcacheds(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	for i := range list.Items {
		memcached := &list.Items[i]
		if want := live[memcached.UID]; !isMarker(memcached.Name) && !slices.Equal(memcached.Status.Nodes, want) {
			return fmt.Errorf("the nodes of Memcached %s are %q, and its Pods %q", memcached.Name, memcached.Status.Nodes, want)
		}
	}
	return nil
}

// podsByOwner returns the names of live Pods by the UID of the Memcached above their
// Deployment.
func (r *run) podsByOwner(ctx context.Context) (map[types.UID][]string, error) {
	podList, err := cluster.kube.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	setList, err := cluster.kube.AppsV1().ReplicaSets(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	deploymentList, err := cluster.kube.AppsV1().Deployments(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	above := map[types.UID]types.UID{}
	for i := range setList.Items {
		if ref := metav1.GetControllerOf(&setList.Items[i]); ref != nil {
			above[setList.Items[i].UID] = ref.UID
		}
	}
	for i := range deploymentList.Items {
		if ref := memcachedOwnerKind().controllerOf(&deploymentList.Items[i]); ref != nil {
			above[deploymentList.Items[i].UID] = ref.UID
		}
	}
	names := map[types.UID][]string{}
	for i := range podList.Items {
		pod := &podList.Items[i]
		ref := metav1.GetControllerOf(pod)
		if ref == nil || pod.DeletionTimestamp != nil || pod.Status.Phase == corev1.PodSucceeded || pod.Status.Phase == corev1.PodFailed {
			continue
		}
		owner := above[above[ref.UID]]
		names[owner] = append(names[owner], pod.Name)
	}
	for _, of := range names {
		slices.Sort(of)
	}
	return names, nil
}
