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

func memcachedKind() *kind {
	return &kind{
		controller: "memcached",
		every:      12, everyWatch: 24,
		parent:    "Memcached",
		child:     "Deployment",
		other:     "Pod",
		roles:     map[string]role{memcacheds: parents, deployments: children, replicaSets: others, pods: others},
		scenarios: memcachedScenarios,
		state:     (*history).memcachedState,
		parents:   func(h *history) []string { return namesOf(h.memcacheds) },
		children:  func(h *history) int { return countOf(h.deployments) },
		violations: func(h *history, records ...[]request) []string {
			return violations(h, h.memcacheds, memcachedOwners(), records...)
		},
		mark:    markMemcached,
		settled: nodesSettled,
	}
}

// memcachedOwners are Memcacheds as the judge of Deployments sees them.
func memcachedOwners() owners[*v1alpha1.Memcached] {
	return owners[*v1alpha1.Memcached]{
		kind: "Memcached", group: "cache.example.com", resource: memcacheds,
		deployment: func(memcached *v1alpha1.Memcached) string { return memcached.Name },
		conforms:   memcachedConforms,
		status: func(memcached *v1alpha1.Memcached) (int64, []metav1.Condition) {
			return memcached.Status.ObservedGeneration, memcached.Status.Conditions
		},
	}
}

// memcachedConforms reports whether the Deployment is as the Memcached's spec asks
// for.
func memcachedConforms(deployment *appsv1.Deployment, memcached *v1alpha1.Memcached) bool {
	if ptr.Deref(deployment.Spec.Replicas, 1) != ptr.Deref(memcached.Spec.Size, 1) {
		return false
	}
	for _, container := range deployment.Spec.Template.Spec.Containers {
		if container.Name == "memcached" {
			port := ptr.Deref(memcached.Spec.Port, 0)
			return container.Image == memcached.Spec.Image && len(container.Ports) == 1 && container.Ports[0].ContainerPort == port &&
				len(container.Command) > 1 && slices.Equal(container.Command[len(container.Command)-2:], []string{"-p", strconv.Itoa(int(port))})
		}
	}
	return false
}

// memcachedState is the state of a Memcached. The names of its nodes differ from run
// to run.
type memcachedState struct {
	parentState

	Spec     v1alpha1.MemcachedSpec
	Nodes    int
	Ready    int32
	Replicas int32
	Selector string
}

func (h *history) memcachedState() state {
	return state{
		Parents: statesOf(h.memcacheds, func(memcached *v1alpha1.Memcached) objectState {
			return memcachedState{
				parentState: stateOfParent(memcached, memcached.Status.ObservedGeneration, memcached.Status.Conditions),
				Spec:        memcached.Spec,
				Nodes:       len(memcached.Status.Nodes),
				Ready:       memcached.Status.ReadyReplicas,
				Replicas:    memcached.Status.Replicas,
				Selector:    memcached.Status.Selector,
			}
		}),
		Children: deploymentStates(h, h.memcacheds),
	}
}

func (s memcachedState) line(name string) string {
	return forNow(fmt.Sprintf("Memcached %s: %s, %d nodes, %d ready", name, s.Reason, s.Nodes, s.Ready), s.stays())
}

// markMemcached waits until the marker tells of its one Pod: that came after all other
// Deployments, ReplicaSets and Pods. Then it gives the Pod back.
func markMemcached(r *run, name, what string) {
	r.t.Helper()
	client := shared.foos.CacheV1alpha1().Memcacheds(r.namespace)
	_, err := client.Create(r.t.Context(), &v1alpha1.Memcached{ObjectMeta: metav1.ObjectMeta{Name: name}}, metav1.CreateOptions{})
	r.must(err)
	r.await(what, func() error {
		marker, deployment := present(r.history.memcacheds)[name], present(r.history.deployments)[name]
		if marker == nil || deployment == nil || !rolledOut(deployment) || !memcachedOwners().isReady(marker) || len(marker.Status.Nodes) != 1 {
			return errors.New("the marker is not ready")
		}
		return nil
	})
	r.must(shared.patch(r.t.Context(), memcacheds, r.namespace, name, `{"spec":{"size":0}}`))
}

// nodesSettled returns nil if each Memcached tells of the live Pods of the Deployment
// that it owns, as the API server has them, and of no others.
func nodesSettled(ctx context.Context, r *run) error {
	live, err := r.podsByOwner(ctx)
	if err != nil {
		return err
	}
	list, err := shared.foos.CacheV1alpha1().Memcacheds(r.namespace).List(ctx, metav1.ListOptions{})
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

// podsByOwner names the live Pods by the Memcached whose Deployment's ReplicaSets
// control them.
func (r *run) podsByOwner(ctx context.Context) (map[types.UID][]string, error) {
	podList, err := shared.kube.CoreV1().Pods(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	setList, err := shared.kube.AppsV1().ReplicaSets(r.namespace).List(ctx, metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	deploymentList, err := shared.kube.AppsV1().Deployments(r.namespace).List(ctx, metav1.ListOptions{})
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
		if ref := memcachedOwners().controllerOf(&deploymentList.Items[i]); ref != nil {
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
