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
	"fmt"
	"testing"
	"testing/synctest"

	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
	"k8s.io/client-go/tools/cache"

	"example.com/sample-controller/pkg/controller"
	"example.com/sample-controller/test/fixture"
)

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
		run(what, test.want, owned, nil, func(s *env) { tell(s.replicaSetHandlers(), test.old, test.set) })
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
		run(what, test.want, owned, sets, func(s *env) { tell(s.podHandlers(), test.old, test.pod) })
	}
	run("a ReplicaSet before its Deployment enqueues nothing", nil, nil, nil, func(s *env) { tell(s.replicaSetHandlers(), nil, set) })
	run("a Pod before its ReplicaSet enqueues nothing", nil, owned, nil, func(s *env) { tell(s.podHandlers(), nil, pod) })
}

// tell calls the handlers with the event that makes old the object: without old it is new, without
// object gone, and without both only the key of what is gone is known.
func tell[T controller.Object](handlers cache.TypedResourceEventHandlerFuncs[T], old, object T) {
	switch none := *new(T); {
	case object == none:
		handlers.DeleteFunc(cache.DeletedObject[T]{OptionalObj: old})
	case old == none:
		handlers.AddFunc(object)
	default:
		handlers.UpdateFunc(old, object)
	}
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
