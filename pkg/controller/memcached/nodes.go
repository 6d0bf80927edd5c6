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
	"fmt"
	"slices"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime/schema"
	appsinformers "k8s.io/client-go/informers/apps/v1"
	coreinformers "k8s.io/client-go/informers/core/v1"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/controller"
)

// The nodes of a Memcached: its live Pods, found by the chain of controllers from the
// Deployment to its ReplicaSets to their Pods. Labels alone prove nothing: anybody may
// put them on a Pod.

// byOwner indexes ReplicaSets by the Deployment and Pods by the ReplicaSet that
// controls them.
const byOwner = "controller"

// SelectPods limits a list or watch to what has the label of some Memcached.
func SelectPods(options *metav1.ListOptions) {
	options.LabelSelector = nameLabel
}

// StripPods is a cache transform. It leaves of Pods and ReplicaSets who they are, whose
// they are and whether they live: a cluster may have very many.
func StripPods(object any) (any, error) {
	switch object := object.(type) {
	case *corev1.Pod:
		return &corev1.Pod{ObjectMeta: identityOf(&object.ObjectMeta), Status: corev1.PodStatus{Phase: object.Status.Phase}}, nil
	case *appsv1.ReplicaSet:
		return &appsv1.ReplicaSet{ObjectMeta: identityOf(&object.ObjectMeta)}, nil
	}
	return object, nil
}

func identityOf(object *metav1.ObjectMeta) metav1.ObjectMeta {
	stripped := metav1.ObjectMeta{
		Name: object.Name, Namespace: object.Namespace, UID: object.UID, ResourceVersion: object.ResourceVersion,
		DeletionTimestamp: object.DeletionTimestamp,
	}
	if owner := metav1.GetControllerOf(object); owner != nil {
		stripped.OwnerReferences = []metav1.OwnerReference{*owner}
	}
	return stripped
}

func kindOfDeployment() schema.GroupKind {
	return schema.GroupKind{Group: appsv1.GroupName, Kind: "Deployment"}
}

func kindOfReplicaSet() schema.GroupKind {
	return schema.GroupKind{Group: appsv1.GroupName, Kind: "ReplicaSet"}
}

// isNode reports whether a Pod counts: it has not ended, and is not about to.
func isNode(pod *corev1.Pod) bool {
	return pod.DeletionTimestamp == nil && pod.Status.Phase != corev1.PodSucceeded && pod.Status.Phase != corev1.PodFailed
}

// nodesOf returns the names of the live Pods of the Deployment's ReplicaSets, sorted.
func (c *Controller) nodesOf(deployment *appsv1.Deployment) []string {
	var nodes []string
	if deployment == nil {
		return nil
	}
	for _, set := range controller.LookUp(c.replicaSetIndex, byOwner, controller.OwnerKey(deployment.Namespace, deployment.UID)) {
		for _, pod := range controller.LookUp(c.podIndex, byOwner, controller.OwnerKey(set.Namespace, set.UID)) {
			if isNode(pod) {
				nodes = append(nodes, pod.Name)
			}
		}
	}
	slices.Sort(nodes)
	return nodes
}

// addNodeIndexes makes Pods and ReplicaSets be found by who controls them.
func addNodeIndexes(replicaSets appsinformers.ReplicaSetIndexInformer, pods coreinformers.PodIndexInformer) error {
	if err := replicaSets.AddTypedIndexers(appsinformers.ReplicaSetIndexers{byOwner: controller.IndexByOwner[*appsv1.ReplicaSet](kindOfDeployment())}); err != nil {
		return fmt.Errorf("adding an index to the ReplicaSet informer: %w", err)
	}
	if err := pods.AddTypedIndexers(coreinformers.PodIndexers{byOwner: controller.IndexByOwner[*corev1.Pod](kindOfReplicaSet())}); err != nil {
		return fmt.Errorf("adding an index to the Pod informer: %w", err)
	}
	return nil
}

// The events of Pods and ReplicaSets wake the Memcached at the end of the chain. Where
// the cache lacks a link, that one's own event is yet to come and wakes it. An event
// that changes no node wakes nobody.

func (c *Controller) replicaSetHandlers() appsinformers.ReplicaSetHandlerFuncs {
	return appsinformers.ReplicaSetHandlerFuncs{
		AddFunc: c.wakeByReplicaSet,
		UpdateFunc: func(old, set *appsv1.ReplicaSet) {
			if !sameController(old, set) {
				c.wakeByReplicaSet(old)
				c.wakeByReplicaSet(set)
			}
		},
		DeleteFunc: func(gone appsinformers.DeletedReplicaSet) {
			if gone.OptionalObj != nil {
				c.wakeByReplicaSet(gone.OptionalObj)
			}
		},
	}
}

func (c *Controller) podHandlers() coreinformers.PodHandlerFuncs {
	return coreinformers.PodHandlerFuncs{
		AddFunc: func(pod *corev1.Pod) {
			if isNode(pod) {
				c.wakeByPod(pod)
			}
		},
		UpdateFunc: func(old, pod *corev1.Pod) {
			if isNode(old) != isNode(pod) || old.UID != pod.UID || !sameController(old, pod) {
				c.wakeByPod(old)
				c.wakeByPod(pod)
			}
		},
		DeleteFunc: func(gone coreinformers.DeletedPod) {
			// This is how it ended, on its way out, and not what the cache had of it.
			if gone.OptionalObj != nil {
				c.wakeByPod(gone.OptionalObj)
			}
		},
	}
}

// sameController reports whether the same object controls both.
func sameController(a, b metav1.Object) bool {
	was, is := metav1.GetControllerOfNoCopy(a), metav1.GetControllerOfNoCopy(b)
	return was != nil && is != nil && was.UID == is.UID
}

func (c *Controller) wakeByPod(pod *corev1.Pod) {
	ref := controller.ControllerOf(pod, kindOfReplicaSet())
	if ref == nil {
		return
	}
	if set, err := c.replicaSets.ReplicaSets(pod.Namespace).Get(ref.Name); err == nil && set.UID == ref.UID {
		c.wakeByReplicaSet(set)
	}
}

func (c *Controller) wakeByReplicaSet(set *appsv1.ReplicaSet) {
	ref := controller.ControllerOf(set, kindOfDeployment())
	if ref == nil {
		return
	}
	if deployment, err := c.deployments.Deployments(set.Namespace).Get(ref.Name); err == nil && deployment.UID == ref.UID {
		c.EnqueueOwner(kindOfMemcached().GroupKind(), deployment)
	}
}

// wakeAsker wakes the Memcached that asks for that Deployment: the one of its name.
func (c *Controller) wakeAsker(deployment cache.ObjectName) {
	if _, err := c.memcacheds.Memcacheds(deployment.Namespace).Get(deployment.Name); err == nil {
		c.Enqueue(deployment)
	}
}
