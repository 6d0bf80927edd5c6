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
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/controller"
)

// The nodes of a Memcached are its live Pods, found by the chain of controller references
// from the Deployment to its ReplicaSets to their Pods. Labels do not count: anyone who may
// create Pods can set them.

// maxNodes is how many nodes a status names: with all of those of a very large Memcached the
// API server would refuse it.
const maxNodes = 1000

// isNode reports whether a Pod counts: it has not ended and is not terminating.
func isNode(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// +kubebuilder:rbac:groups=apps,resources=replicasets,verbs=list;watch
// +kubebuilder:rbac:groups="",resources=pods,verbs=list;watch

// nodesOf returns the names of the live Pods of the Deployment's ReplicaSets, sorted, and of
// more than maxNodes the first ones.
func (c *Controller) nodesOf(deployment *appsv1.Deployment) []string {
	var nodes []string
	for _, set := range controller.LookUpOwned(c.replicaSetIndexer, deployment) {
		for _, pod := range controller.LookUpOwned(c.podIndexer, set) {
			if isNode(pod) {
				nodes = append(nodes, pod.Name)
			}
		}
	}
	slices.Sort(nodes)
	return nodes[:min(len(nodes), maxNodes)]
}

// The events of Pods and ReplicaSets enqueue the Memcached at the end of the chain. If the
// cache lacks a link of the chain, the event that adds it enqueues the Memcached. An event
// that changes no node enqueues nothing, nor does the initial list: that of Memcacheds does.

func (c *Controller) replicaSetHandlers() appsinformers.ReplicaSetDetailedHandlerFuncs {
	return appsinformers.ReplicaSetDetailedHandlerFuncs{
		AddFunc: func(set *appsv1.ReplicaSet, isInInitialList bool) {
			if !isInInitialList {
				c.enqueueByReplicaSet(set)
			}
		},
		UpdateFunc: func(old, set *appsv1.ReplicaSet) {
			if old.UID != set.UID || !sameController(old, set) {
				c.enqueueByReplicaSet(old)
				c.enqueueByReplicaSet(set)
			}
		},
		DeleteFunc: func(gone appsinformers.DeletedReplicaSet) {
			if gone.OptionalObj != nil {
				c.enqueueByReplicaSet(gone.OptionalObj)
			}
		},
	}
}

func (c *Controller) podHandlers() coreinformers.PodDetailedHandlerFuncs {
	return coreinformers.PodDetailedHandlerFuncs{
		AddFunc: func(pod *corev1.Pod, isInInitialList bool) {
			if !isInInitialList && isNode(pod) {
				c.enqueueByPod(pod)
			}
		},
		UpdateFunc: func(old, pod *corev1.Pod) {
			if isNode(old) != isNode(pod) || old.UID != pod.UID || !sameController(old, pod) {
				c.enqueueByPod(old)
				c.enqueueByPod(pod)
			}
		},
		DeleteFunc: func(gone coreinformers.DeletedPod) {
			// The deletion event carries the final state: the Pod may have counted as a node
			// until now.
			if gone.OptionalObj != nil {
				c.enqueueByPod(gone.OptionalObj)
			}
		},
	}
}

// sameController reports whether the same object controls both.
func sameController(a, b metav1.Object) bool {
	was, is := metav1.GetControllerOfNoCopy(a), metav1.GetControllerOfNoCopy(b)
	return was != nil && is != nil && was.UID == is.UID
}

func (c *Controller) enqueueByPod(pod *corev1.Pod) {
	ref := controller.ControllerOf(pod, appsv1.SchemeGroupVersion.WithKind("ReplicaSet").GroupKind())
	if ref == nil {
		return
	}
	if set, err := c.replicaSets.ReplicaSets(pod.Namespace).Get(ref.Name); err == nil && set.UID == ref.UID {
		c.enqueueByReplicaSet(set)
	}
}

func (c *Controller) enqueueByReplicaSet(set *appsv1.ReplicaSet) {
	ref := controller.ControllerOf(set, appsv1.SchemeGroupVersion.WithKind("Deployment").GroupKind())
	if ref == nil {
		return
	}
	deployment := c.deployments.Get(set.Namespace, ref.Name)
	if deployment == nil || deployment.UID != ref.UID {
		return
	}
	if ref := controller.ControllerOf(deployment, memcachedGVK().GroupKind()); ref != nil {
		c.Worker.Queue.AddHighPriority(cache.NewObjectName(deployment.Namespace, ref.Name))
	}
}
